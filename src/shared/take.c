/*-------------------------------------------------------------------------
 *
 * take.c
 *		What backends that wait do to slots: want, ask, take, yield.
 *
 * Each function takes the partition locks that it needs, as slots.c tells.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/take.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/proof.h"
#include "shared/settings.h"
#include "shared/slot_procs.h"
#include "shared/take.h"

/* How long to believe that a writer waits behind readers, in us. */
#define RECHECK_TIME	1000000

/*
 * slot_want_this
 *		slot_want() for the slot with this very key.
 */
ZkProcLock *
slot_want_this(const ZkKey *key, ZnodeKind kind, bool session,
			   bool together, int alternatives, bool tries)
{
	ZkProcLock *proc = proc_new();
	ZkSlot	   *slot = proc ? slot_enter_locked(key) : NULL;

	if (slot == NULL)
	{
		if (proc != NULL)
			proc_free(proc);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of lock slots"),
				 errdetail("All %d slots for locks in ZooKeeper are in use.",
						   zklock_max_locks),
				 errhint("You might need to increase \"zklock.max_locks\".")));
	}
	proc->slot = slot;
	proc->procno = ZkMyProcNumber;
	proc->kind = kind;
	proc->session = session;
	proc->advisory = key_is_advisory(key);
	proc->together = together;
	proc->alternatives = alternatives;
	proc->tries = tries;
	proc->since = zk_now_us();
	proc->xact_start = GetCurrentTransactionStartTimestamp();
	slot_add_proc(proc);
	slot->nwanting++;
	if (alternatives > 0)
		slot->nany++;
	slot_unlock(slot);
	return proc;
}

/*
 * slot_want
 *		Find or make the slot that serves a lock, and say that this backend
 *		wants it.  The key is that of the backend's hold.
 *
 * To be called ahead of waiting for the heavyweight lock, so that a holder
 * sees that there is a backend to hand the slot to.  A backend wants or holds
 * a slot once; slot_unwant() ends a want, slot_drop() a hold.  "kind" is that of
 * the contender that it needs; "session" is for zk_locks only; "together" is
 * for slots_take_together().
 *
 * Errors: 53200 if all zklock.max_locks slots are in use, or all ZkProcLocks.
 */
ZkProcLock *
slot_want(const ZkKey *key, ZnodeKind kind, bool session, bool together)
{
	ZkKey		readers;

	if (kind != ZNODE_READER)
		return slot_want_this(key, kind, session, together, 0, false);

	/* others, which ask for fewer, cannot share the contenders of several */
	key_in_mode(key, together ? ZK_KEY_SHARED_TOGETHER : ZK_KEY_SHARED,
				&readers);
	return slot_want_this(&readers, kind, session, together, 0, false);
}

/*
 * slot_want_leaving
 *		If the contender that the cluster has of the lock in the other mode is
 *		being given up, want its slot, to see it go; else NULL.
 *
 * The caller wants the slot in its own mode.  Errors: as slot_want().
 */
ZkProcLock *
slot_want_leaving(const ZkProcLock *proc)
{
	ZkKey		other;
	ZkContender contender;

	if (!key_in_other_mode(&proc->slot->key, &other) ||
		slot_find_contender(&other, &contender) != ZK_SLOT_RELEASING)
		return NULL;
	return slot_want_this(&other, proc->kind, false, true, 0, false);
}

/* The backend needs a contender; the partition lock is held exclusively. */
static void
note_ask(ZkProcLock *proc, int permits)
{
	ZkSlot	   *slot = proc->slot;

	proc->asked = true;
	slot->asked = true;
	slot->asked_kind = proc->kind;
	slot->asked_permits = permits;
	slot->asker_pid = proc_backend(proc)->pid;
}

/*
 * A backend that had asked for a contender is gone.  Others may have asked,
 * too, and need not ask again: they may be waiting for the heavyweight lock.
 */
static void
retract_ask(ZkSlot *slot)
{
	if (!slot->asked)
		return;
	slot->asked = false;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (proc->asked && !proc->granted && !proc->together)
		{
			note_ask(proc, slot->asked_permits);
			break;
		}
}

/* The slot is idle, and its last waiter wants it no more: is it given up? */
static bool
is_left_for_good(const ZkSlot *slot, bool any)
{
	/* what came too late for one who wanted any of several is not retained */
	return (any && slot->turn.idle == TURN_GRANTED) ||
		turn_unwanted(&slot->turn, slot->contender.retain, retain_time_us(),
					  zk_now_us()) == TURN_GIVE_UP;
}

/*
 * slot_note_unwanted
 *		slot_unwant() under the partition lock, held exclusively.  The slot
 *		stays.
 */
void
slot_note_unwanted(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		asked = proc->asked;
	bool		any = proc->alternatives > 0;

	/* reserved by us, if we have tried to take several together */
	if (proc->together && proc->ready)
		slot->reserved = false;
	if (any)
		slot->nany--;
	slot_remove_proc(proc);
	slot->nwanting--;
	if (asked)
		retract_ask(slot);
	if (any || slot->nany > 0)
		slot_wake(slot);		/* others may get its heavyweight lock */
	if (slot->nwanting > 0)
		return;
	slot->refusal = ZK_REFUSAL_NONE;
	if (slot->state == ZK_SLOT_WANTED ||
		(slot->state == ZK_SLOT_IDLE && is_left_for_good(slot, any)))
		slot_event(slot, SLOT_GIVEN_UP);
}

/*
 * slot_unwant
 *		Say that this backend wants the slot no more: timeout, cancel, error.
 *
 * The slot may be gone afterwards.  Does not throw: to be called in
 * transaction callbacks too.
 */
void
slot_unwant(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;

	slot_lock(slot, LW_EXCLUSIVE);
	slot_note_unwanted(proc);
	slot_unlock_last(slot);
}

/*
 * May an idle slot be taken, since it is still ours as far as one must know
 * ahead of the commit check?
 */
static bool
is_surely_ours(const ZkSlot *slot, int64 now)
{
	return turn_is_proved(&slot->turn, slot->contender.retain,
						  lease_read_ms(slot->contender.session) * 1000, now);
}

/* It is not: the backend may ask its session (proof_ask()). */
static ZkTake
unproved(ZkProcLock *proc)
{
	proc->zk_session = proc->slot->contender.session;
	return ZK_UNPROVED;
}

/*
 * The slot is free to be taken; the partition lock is held exclusively.  "now"
 * is that of zk_now_us().
 */
static void
take(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;

	slot->asked = false;
	slot->reserved = false;
	slot->nwanting--;
	slot->nholding++;
	if (proc->alternatives > 0)
		slot->nany--;
	proc->alternatives = 0;
	proc->granted = true;
	proc->victim_of = 0;
	proc->zk_session = slot->contender.session;
	proc->since = now;
	slot_event(slot, SLOT_TAKEN);
}

/*
 * A slot is held by readers: may one more join them?  Not if an exclusive
 * contender waits behind ours, or it would wait forever.  If that is not known
 * well enough, have the worker check for writers.
 */
static ZkTake
try_join(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	int64		now = zk_now_us();
	int64		age = now - slot->checked_at;
	bool		fresh;

	/* a check after we came is an answer, however long ago it was */
	fresh = age < handoff_quantum_us() ||
		(slot->writer_behind ? age < RECHECK_TIME :
		 slot->checked_at >= proc->since);
	if (fresh && slot->writer_behind)
		return ZK_QUEUED;
	if (fresh)
	{
		take(proc, now);
		return ZK_TAKEN;
	}
	if (!slot->check_wanted && slot->check_start == 0)
	{
		slot->check_wanted = true;
		slot_mail(slot);
	}
	return ZK_PENDING;
}

/*
 * slot_note_ahead
 *		Ask for a backend that has not got the heavyweight lock yet; the
 *		partition lock is held exclusively.
 */
void
slot_note_ahead(ZkProcLock *proc)
{
	if (proc->slot->reserved)
		return;
	note_ask(proc, 0);
	slot_event(proc->slot, SLOT_ASKED);
}

/*
 * slot_ask
 *		Ask for a contender ahead of waiting for the heavyweight lock.
 *
 * For a writer: readers of other clusters that come later must see that it
 * waits, though it is readers of its own cluster that it waits for.
 */
void
slot_ask(ZkProcLock *proc)
{
	slot_lock(proc->slot, LW_EXCLUSIVE);
	slot_note_ahead(proc);
	slot_unlock(proc->slot);
}

/*
 * slot_ask_for_others
 *		The same for a backend that waits for the slot with this key.
 *
 * To be called by a reader that has got the lock, and may have given up the
 * contender that writers of the lock had asked for.
 */
void
slot_ask_for_others(const ZkKey *key)
{
	ZkContender contender;
	ZkSlot	   *slot;
	ZkProcLock *proc;

	if (slot_find_contender(key, &contender) != ZK_SLOT_NONE)
		return;
	slot = slot_find_locked(key, LW_EXCLUSIVE);
	if (slot == NULL)
		return;
	for (proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted && !proc->together)
			break;
	if (proc)
		slot_note_ahead(proc);
	slot_unlock(slot);
}

/*
 * What a wait comes to that so far is "result": is it to end because of a
 * deadlock, or to go on in tier 1?  A backend that has just taken the slot waits
 * no more, and one whose slot has changed its state waits anew.
 */
static ZkTake
look_for_deadlock(const ZkProcLock *proc, ZkTake result, ZkTakeNews *news)
{
	if (proc->victim_of == ZK_STEPS_BACK && result != ZK_REFUSED)
		return ZK_GO_BACK;
	if (proc->victim_of == 0 || proc->victim_of == ZK_STEPS_BACK)
		return result;
	news->deadlock = proc->victim_of;
	return ZK_DEADLOCK;
}

/*
 * slot_take
 *		Take the slot if the cluster owns it and nobody is in the way; else ask
 *		the worker for a contender.
 *
 * The caller must want the slot and have the heavyweight lock of its name.
 * "permits" is that of a semaphore, or 0.  Unless the answer is ZK_TAKEN, the
 * caller goes on wanting the slot; the condition variable of the slot is
 * broadcast when another try is worthwhile.  ZK_REFUSED, which is told once,
 * and ZK_DEADLOCK fill in *news.  After ZK_GO_BACK the caller waits for the
 * heavyweight lock once more, at the end of its queue; and so after ZK_GIVE_WAY,
 * when one that came before it has got the lock.
 */
ZkTake
slot_take(ZkProcLock *proc, int permits, ZkTakeNews *news)
{
	ZkTake		result;

	slot_lock(proc->slot, LW_EXCLUSIVE);
	result = slot_is_behind_any(proc) ? ZK_GIVE_WAY :
		slot_try_take(proc, permits, news);
	slot_unlock(proc->slot);
	return result;
}

/*
 * slot_try_take
 *		The same under the partition lock, held exclusively, and never
 *		ZK_GIVE_WAY.
 */
ZkTake
slot_try_take(ZkProcLock *proc, int permits, ZkTakeNews *news)
{
	ZkSlot	   *slot = proc->slot;
	ZkTake		result = ZK_PENDING;
	int64		now;

	proc->ready = true;
	note_ask(proc, permits);
	if (slot->refusal != ZK_REFUSAL_NONE)
	{
		slot->asked = false;
		news->refusal = slot->refusal;
		news->permits_found = slot->permits_found;
		slot->refusal = ZK_REFUSAL_NONE;
		result = ZK_REFUSED;
	}
	else
		switch (slot->state)
		{
			case ZK_SLOT_NONE:
				slot_event(slot, SLOT_ASKED);
				break;
			case ZK_SLOT_WANTED:
			case ZK_SLOT_RELEASING:
				if (slot->queued)
					result = ZK_QUEUED;
				break;
			case ZK_SLOT_IDLE:
				now = zk_now_us();
				if (!is_surely_ours(slot, now))
					result = unproved(proc);
				else
				{
					take(proc, now);
					result = ZK_TAKEN;
				}
				break;
			case ZK_SLOT_HELD:
				result = znode_is_shared(proc->kind) ?
					try_join(proc) : ZK_QUEUED;
				break;
		}
	return look_for_deadlock(proc, result, news);
}

/* How far several slots are that must be had together. */
typedef enum ZkTogether
{
	ZK_ALL_READY,				/* each is owned by the cluster and idle */
	ZK_ALL_NONE,				/* each can be asked for */
	ZK_ALL_ASKED,				/* each was asked for in the same step */
	ZK_APART
} ZkTogether;

static ZkTogether
how_together(ZkProcLock **procs, int n, uint32 group)
{
	int			ready = 0;
	int			none = 0;
	int			asked = 0;

	for (int i = 0; i < n; i++)
	{
		const ZkSlot *slot = procs[i]->slot;

		if (slot->state == ZK_SLOT_NONE)
			none++;
		else if (slot->state == ZK_SLOT_IDLE)
			ready++;
		if ((slot->state == ZK_SLOT_IDLE || slot->state == ZK_SLOT_WANTED) &&
			group != 0 && slot->contender.group == group)
			asked++;
	}
	return ready == n ? ZK_ALL_READY :
		none == n ? ZK_ALL_NONE :
		asked == n ? ZK_ALL_ASKED : ZK_APART;
}

/*
 * Ask for all slots in one step.  Since the partition locks are held until all
 * are in the mail, the worker, when it opens one, finds the others there.
 */
static uint32
ask_together(ZkProcLock **procs, int n)
{
	uint32		group = slots_new_group();

	for (int i = 0; i < n; i++)
	{
		ZkSlot	   *slot = procs[i]->slot;

		note_ask(procs[i], 0);
		slot_event(slot, SLOT_ASKED);
		slot->asked = false;
		slot->contender.group = group;
	}
	return group;
}

/*
 * Reserve all slots, so that no other backend of this cluster asks for one of
 * them.  Sets *which, and fills in *news, if one was refused, or the wait is to
 * end, or to go on elsewhere, because of a deadlock.
 */
static ZkTake
reserve_together(ZkProcLock **procs, int n, int *which, ZkTakeNews *news)
{
	ZkTake		result = ZK_PENDING;

	for (int i = 0; i < n; i++)
		if (slot_is_behind_any(procs[i]))
		{
			*which = i;
			return ZK_GIVE_WAY;
		}
	for (int i = 0; i < n; i++)
	{
		ZkSlot	   *slot = procs[i]->slot;
		ZkTake		end;

		procs[i]->ready = true;
		slot->reserved = true;
		slot->asked = false;
		if (slot->refusal != ZK_REFUSAL_NONE)
		{
			news->refusal = slot->refusal;
			news->permits_found = 0;
			slot->refusal = ZK_REFUSAL_NONE;
			*which = i;
			return ZK_REFUSED;
		}
		end = look_for_deadlock(procs[i], ZK_PENDING, news);
		if (end != ZK_PENDING)
		{
			*which = i;
			return end;
		}
		if (slot->queued || slot->state == ZK_SLOT_HELD)
			result = ZK_QUEUED;
	}
	return result;
}

/* All slots are idle: take all or none. */
static ZkTake
take_all(ZkProcLock **procs, int n)
{
	int64		now = zk_now_us();

	for (int i = 0; i < n; i++)
		if (!is_surely_ours(procs[i]->slot, now))
			return unproved(procs[i]);
	for (int i = 0; i < n; i++)
		take(procs[i], now);
	return ZK_TAKEN;
}

static void
give_up_together(ZkProcLock **procs, int n)
{
	for (int i = 0; i < n; i++)
		if (procs[i]->slot->state == ZK_SLOT_WANTED ||
			procs[i]->slot->state == ZK_SLOT_IDLE)
			slot_event(procs[i]->slot, SLOT_GIVEN_UP);
}

/*
 * The slot to wait for until all are in this state.
 *
 * It is the middle one of those that are not yet.  Each time that the caller
 * wakes up it looks at all; this way it does so a few times, whether they come
 * from the first to the last or the other way, and not once for each.
 */
static int
choose_awaited(ZkProcLock **procs, int n, ZkSlotState state)
{
	int			left = 0;
	int			which = 0;

	for (int i = 0; i < n; i++)
		if (procs[i]->slot->state != state)
			left++;
	left = (left + 1) / 2;
	for (int i = 0; left > 0; i++)
		if (procs[i]->slot->state != state)
		{
			which = i;
			left--;
		}
	return which;
}

/*
 * slots_take_together
 *		As slot_take(), for several slots: all or none.
 *
 * Contenders for all are created in one step, so that any two callers that
 * take several locks stand in the same order in all the queues, and cannot
 * wait for each other.  For the same reason no slot is kept while the caller
 * waits for one that was not asked for in the same step.
 *
 * *group tells the last such step of this call; it is 0 at first.  The caller
 * must want all of the slots and have the heavyweight locks of their names.
 * Answers as slot_take(); ZK_REFUSED, ZK_DEADLOCK, ZK_GO_BACK and ZK_GIVE_WAY
 * set *which.  Unless all are taken, *which is a slot whose condition variable
 * to wait for; others may change, too.
 */
ZkTake
slots_take_together(ZkProcLock **procs, int n, uint32 *group, int *which,
					ZkTakeNews *news)
{
	bool		partitions[ZK_PARTITIONS];
	ZkTake		result;
	ZkTogether	together;

	slots_lock_of(procs, n, partitions);
	together = how_together(procs, n, *group);
	*which = -1;
	result = reserve_together(procs, n, which, news);
	if (*which >= 0)
		;
	else if (together == ZK_ALL_READY)
		result = take_all(procs, n);
	else if (together == ZK_ALL_NONE)
		*group = ask_together(procs, n);
	else if (together == ZK_APART)
		give_up_together(procs, n);

	if (*which < 0)
		*which = choose_awaited(procs, n, together == ZK_APART ?
								ZK_SLOT_NONE : ZK_SLOT_IDLE);
	slots_unlock_of(partitions);
	return result;
}

/*
 * slot_step_back
 *		The backend has the heavyweight lock, and gives it up to wait for it
 *		again: that is another wait for the slot.
 *
 * Those behind it use the contender from now on, if there is one; but one that
 * was created together with others is given up, as they all are.
 */
void
slot_step_back(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		was_ready;

	slot_lock(slot, LW_EXCLUSIVE);
	was_ready = proc->ready;
	proc->ready = false;
	proc->victim_of = 0;
	proc->since = zk_now_us();
	if (proc->alternatives > 0)
		slot_move_to_end(proc);
	if (proc->together && was_ready)
	{
		slot->reserved = false;
		if (slot->state == ZK_SLOT_WANTED || slot->state == ZK_SLOT_IDLE)
		{
			slot->asked = false;
			slot_event(slot, SLOT_GIVEN_UP);
		}
	}
	slot_unlock(slot);
}

/*
 * slot_yield
 *		Give up what the cluster owns or waits for under this key, if no
 *		backend holds it.
 *
 * The caller has the heavyweight lock of the name, so nobody can take the slot
 * before it; but it will wait for something else, which may in turn wait for
 * this.
 */
void
slot_yield(const ZkKey *key)
{
	ZkContender contender;
	ZkSlot	   *slot;

	if (slot_find_contender(key, &contender) == ZK_SLOT_NONE)
		return;					/* as nearly always */
	slot = slot_find_locked(key, LW_EXCLUSIVE);
	if (slot == NULL)
		return;
	if (slot->state == ZK_SLOT_WANTED || slot->state == ZK_SLOT_IDLE)
	{
		slot->asked = false;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	slot_unlock(slot);
}

/*
 * slot_yield_other_mode
 *		The same for the lock in the other mode than that of the slot that the
 *		caller wants.
 */
void
slot_yield_other_mode(const ZkProcLock *proc)
{
	ZkKey		other;

	if (key_in_other_mode(&proc->slot->key, &other))
		slot_yield(&other);
}

/*
 * slot_read_state
 *		The state of a slot that the caller wants.
 */
ZkSlotState
slot_read_state(ZkSlot *slot)
{
	ZkSlotState state;

	slot_lock(slot, LW_SHARED);
	state = slot->state;
	slot_unlock(slot);
	return state;
}

/*
 * slot_is_leaving
 *		Is the contender of a slot, which the caller wants, being given up?
 *
 * If so, sets *stuck to whether ZooKeeper does not let it go.
 */
bool
slot_is_leaving(ZkSlot *slot, bool *stuck)
{
	bool		leaving;

	slot_lock(slot, LW_SHARED);
	leaving = slot->state == ZK_SLOT_RELEASING;
	*stuck = slot->queued;
	slot_unlock(slot);
	return leaving;
}
