/*-------------------------------------------------------------------------
 *
 * take.c
 *		What backends do to slots: want, ask, take, yield, drop.
 *
 * Each function takes the partition locks that it needs: see slots.c.
 *
 * A backend that wants any of several slots looks at all of them at once,
 * under all their partition locks, so that the worker sees its requests
 * together: it opens none of that mail until the locks are released.  See
 * backend/acquire.c.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/take.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots_private.h"
#include "shared/take.h"

/* The setting in microseconds. */
#define HANDOFF_QUANTUM_US	((int64) zklock_handoff_quantum * 1000)

/* How long a writer that was seen behind readers is assumed to wait, in us. */
#define RECHECK_TIME	1000000

/*
 * slot_add_proc
 *		Link a ZkProcLock to its slot, as the latest arrival; the partition
 *		lock is held exclusively.
 */
void
slot_add_proc(ZkProcLock *proc)
{
	proc->next = NULL;
	*proc->slot->procs_end = proc;
	proc->slot->procs_end = &proc->next;
}

static void
unlink_proc(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	ZkProcLock **link = &slot->procs;

	/* a holder came early, so it is among the first */
	while (*link != proc)
		link = &(*link)->next;
	*link = proc->next;
	if (slot->procs_end == &proc->next)
		slot->procs_end = link;
}

/* Unlink from the slot and free; the partition lock is held exclusively. */
static void
remove_proc(ZkProcLock *proc)
{
	slot_end_watch(proc);
	unlink_proc(proc);
	proc->slot = NULL;
	proc_free(proc);
}

/*
 * Is the heavyweight lock due to a backend that came before this one?
 *
 * A backend that wants any of several slots does not queue for heavyweight
 * locks, so one that came later may get the lock first.
 */
static bool
is_behind_any(const ZkProcLock *proc)
{
	const ZkSlot *slot = proc->slot;

	if (slot->nany == 0 || znode_is_shared(proc->kind))
		return false;
	for (const ZkProcLock *other = slot->procs; other != proc;
		 other = other->next)
		if (other->alternatives > 0 && !other->ready)
			return true;
	return false;
}

/*
 * slots_report_full
 *		Fail (53200), since no slot or ZkProcLock is free.
 */
void
slots_report_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of lock slots"),
			 errdetail("All %d slots for locks in ZooKeeper are in use.",
					   zklock_max_locks),
			 errhint("You might need to increase \"zklock.max_locks\".")));
}

/*
 * The key of the slot that serves a lock for a contender of this kind: the
 * lock's own key, or *mine, which is filled in.
 */
static const ZkKey *
slot_key_for(const ZkKey *lock, ZnodeKind kind, ZkKey *mine)
{
	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE &&
		!ZK_MUTATED(ZK_EXCLUSION_IGNORED))
		key_in_mode(lock, ZK_KEY_INSTANCE, mine);
	else if (kind == ZNODE_READER)
		key_in_mode(lock, ZK_KEY_SHARED, mine);
	else
		return lock;
	return mine;
}

/*
 * slot_want
 *		Find or make the slot that serves a lock, and note that this backend
 *		wants it.  The key is that of the backend's hold.
 *
 * Called before the wait for the heavyweight lock, so that a holder sees a
 * backend to hand the slot to.  A backend wants or holds a slot once;
 * slot_unwant() ends a want, slot_drop() a hold.  "wish" has the kind of the
 * contender that the backend needs; "session", which is only shown in
 * zk_locks; "provisional", if the hold is the call's own until slots_keep();
 * and for slots_take_any(), "alternatives" and "tries".
 *
 * If all zklock.max_locks slots are in use, those that are only retained are
 * given up.  Returns NULL if a slot is free soon: the caller waits for
 * slots_room_cv(), and calls again.
 *
 * Errors: 53200 if all slots are in use, and none is being released; or all
 * ZkProcLocks, which are never kept behind a release.
 */
ZkProcLock *
slot_want(const ZkKey *key, const ZkProcLock *wish)
{
	ZkProcLock *proc = proc_new(wish);
	ZkKey		mine;
	ZkSlot	   *slot;

	StaticAssertStmt(ZK_MAX_NAMES < 1 << 9, "ZkProcLock.alternatives is too small");
	if (proc == NULL)
		slots_report_full();
	key = slot_key_for(key, wish->kind, &mine);
	slot = slot_enter_locked(key);
	if (slot == NULL)
	{
		proc_free(proc);
		if (!slots_give_up_retained())
			slots_report_full();
		return NULL;
	}
	proc->slot = slot;
	proc->terminates = proc->session && zklock_terminate_on_loss;
	proc->advisory = key_is_advisory(key);
	proc->since = zk_now_us();
	slot_add_proc(proc);
	slot->nwanting++;
	if (proc->alternatives > 0)
		slot->nany++;
	slot_unlock(slot);
	return proc;
}

/*
 * slots_check_room
 *		Can there be a slot for each of these locks, with those that are in use
 *		by others?
 *
 * Slots that are only retained, or are being released, count as free, since
 * slot_want() waits for them.  Errors: 53200 if there cannot.
 */
void
slots_check_room(const ZkKey **keys, int n, ZnodeKind kind)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	int			needed = 0;

	if (slots_in_use() + n <= zklock_max_locks)
		return;
	for (int i = 0; i < n; i++)
	{
		ZkKey		mine;

		slot = slot_find_locked(slot_key_for(keys[i], kind, &mine), LW_SHARED);
		if (slot == NULL || slot->procs == NULL)
			needed++;
		if (slot != NULL)
			slot_unlock(slot);
	}
	slots_lock_all(LW_SHARED);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
		if (slot->procs != NULL)
			needed++;
	slots_unlock();
	if (needed > zklock_max_locks)
		slots_report_full();
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
 * A backend that had asked for a contender is gone.  Other backends that asked
 * need not ask again: they may be waiting for the heavyweight lock.
 */
static void
retract_ask(ZkSlot *slot)
{
	if (!slot->asked)
		return;
	slot->asked = false;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (proc->asked && !proc->granted)
		{
			note_ask(proc, slot->asked_permits);
			break;
		}
}

/* Is an idle slot to be given up, now that its last waiter is gone? */
static bool
is_left_for_good(const ZkSlot *slot, bool any)
{
	/* a grant that came too late for a zk_lock_any() is not retained */
	return (any && slot->turn.idle == TURN_GRANTED) ||
		turn_unwanted(&slot->turn, slot_retain_time(slot),
					  zk_now_us()) == TURN_GIVE_UP;
}

/*
 * slot_unwant() under the partition lock, held exclusively.  The slot stays.
 */
static void
note_unwanted(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		asked = proc->asked;
	bool		any = proc->alternatives > 0;

	if (any)
		slot->nany--;
	remove_proc(proc);
	slot->nwanting--;
	if (asked)
		retract_ask(slot);
	if (any || slot->nany > 0)
		slot_wake(slot);		/* another backend may get its heavyweight
								 * lock */
	if (slot->nwanting > 0)
		return;
	slot->refusal = ZK_REFUSAL_NONE;
	if (slot->state == ZK_SLOT_WANTED ||
		(slot->state == ZK_SLOT_IDLE && is_left_for_good(slot, any)))
		slot_event(slot, SLOT_GIVEN_UP);
}

/*
 * slot_unwant
 *		The backend wants the slot no more: timeout, cancel, error.
 *
 * The slot may be gone afterwards.  Does not throw: transaction callbacks call
 * it.
 */
void
slot_unwant(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;

	slot_lock(slot, LW_EXCLUSIVE);
	note_unwanted(proc);
	slot_unlock_last(slot);
}

/*
 * May an idle slot be taken?  It may if it is ours, as far as that must be
 * known before the commit check: see turn_is_proved().
 */
static bool
is_surely_ours(const ZkSlot *slot, int64 now)
{
	return turn_is_proved(&slot->turn, slot_retain_time(slot),
						  lease_read_ms() * 1000, now);
}

/*
 * Take a free slot at "now", as of zk_now_us(); the partition lock is held
 * exclusively.
 */
static void
take(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;

	slot_end_watch(proc);
	slot->asked = false;
	proc->retaken = slot->state == ZK_SLOT_IDLE &&
		slot->turn.idle == TURN_RETAINED;
	if (proc->retaken && slot->contender.use.retaken < PG_UINT16_MAX)
		slot->contender.use.retaken++;
	slot->nwanting--;
	slot->nholding++;
	if (proc->alternatives > 0)
		slot->nany--;
	proc->alternatives = 0;
	proc->granted = true;
	proc->victim_of = 0;
	proc->since = now;
	slot_event(slot, SLOT_TAKEN);
}

/*
 * May one more reader join those that hold the slot?  Not if an exclusive
 * contender waits behind ours, or that contender would wait forever.  If this
 * is not known well enough, have the worker watch the queue.  The worker then
 * reports the first change, unless it stands still or hears nothing: so what it
 * has reported counts only while the lease runs.
 */
static ZkOutcome
try_join(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	int64		now = zk_now_us();
	int64		age = now - slot->checked_at;
	bool		fresh;

	/* a check that began after we came is an answer, whatever its age */
	fresh = age < HANDOFF_QUANTUM_US ||
		(slot->turn.behind == TURN_ALONE && now < lease_read_ms() * 1000) ||
		(slot->writer_behind ? age < RECHECK_TIME :
		 slot->checked_at >= proc->since);
	if (fresh && slot->writer_behind)
		return ZK_QUEUED;
	if (fresh)
	{
		take(proc, now);
		return ZK_ACQUIRED;
	}
	if (!slot->check_wanted && slot->check_start == 0)
	{
		slot->check_wanted = true;
		slot_mail(slot);
	}
	return ZK_PENDING;
}

/*
 * Ask on behalf of a backend that does not have the heavyweight lock yet; the
 * partition lock is held exclusively.
 */
static void
note_ahead(ZkProcLock *proc)
{
	if (key_is_of_instance(&proc->slot->key))
		return;
	note_ask(proc, 0);
	slot_event(proc->slot, SLOT_ASKED);
}

/*
 * slot_ask
 *		Ask for a contender before waiting for the heavyweight lock.
 *
 * For a writer: later readers of other instances must see that it waits, even
 * though it waits for readers of its own instance.
 */
void
slot_ask(ZkProcLock *proc)
{
	slot_lock(proc->slot, LW_EXCLUSIVE);
	note_ahead(proc);
	slot_unlock(proc->slot);
}

/*
 * slot_ask_for_others
 *		As slot_ask(), for another backend that waits for the slot with this
 *		key.
 *
 * Called by a reader that has got the lock, and may have given up the
 * contender that writers of the lock had asked for.
 */
void
slot_ask_for_others(const ZkKey *key)
{
	ZkSlot	   *slot = slot_find_locked(key, LW_EXCLUSIVE);
	ZkProcLock *proc;

	if (slot == NULL)
		return;
	for (proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted)
			break;
	if (proc != NULL && slot->state == ZK_SLOT_NONE)
		note_ahead(proc);
	slot_unlock(slot);
}

/*
 * The outcome of a wait, which is "outcome" unless the backend has been chosen
 * as the victim of a deadlock.
 *
 * A backend that takes the slot is no victim any more, and neither is one
 * whose slot changes its state.
 */
static ZkOutcome
outcome_of_wait(const ZkProcLock *proc, ZkOutcome outcome, ZkResult *result)
{
	if (proc->victim_of == ZK_VICTIM_REQUEUES && outcome != ZK_DENIED)
		return ZK_REQUEUE_TIER1;
	if (proc->victim_of == 0 || proc->victim_of == ZK_VICTIM_REQUEUES)
		return outcome;
	result->deadlock = proc->victim_of;
	return ZK_DEADLOCKED;
}

/*
 * Does another backend hold this slot, which is of this instance alone, in a
 * mode that excludes the backend's?
 *
 * The heavyweight lock nearly always prevents that; but PostgreSQL may have
 * released that of a session-scoped hold (backend/holds.c).
 */
static bool
is_excluded_here(const ZkProcLock *proc)
{
	for (const ZkProcLock *other = proc->slot->procs; other != NULL;
		 other = other->next)
		if (other->granted && !(znode_is_shared(other->kind) &&
								znode_is_shared(proc->kind)))
			return true;
	return false;
}

/*
 * If ZooKeeper has refused what was asked for, fill in *result; true once.
 * The partition lock is held exclusively.
 */
static bool
take_refusal(ZkSlot *slot, ZkResult *result)
{
	if (slot->refusal == ZK_REFUSAL_NONE)
		return false;
	slot->asked = false;
	result->refusal = slot->refusal;
	result->permits_found = slot->permits_found;
	slot->refusal = ZK_REFUSAL_NONE;
	return true;
}

/*
 * slot_take() under the partition lock, held exclusively; never
 * ZK_REQUEUE_BEHIND.
 */
static ZkOutcome
try_take(ZkProcLock *proc, int permits, ZkResult *result)
{
	ZkSlot	   *slot = proc->slot;
	ZkOutcome	outcome = ZK_PENDING;
	int64		now;

	proc->ready = true;
	if (key_is_of_instance(&slot->key))
	{
		if (is_excluded_here(proc))
			return ZK_QUEUED;
		take(proc, zk_now_us());
		return ZK_ACQUIRED;
	}
	note_ask(proc, permits);
	if (take_refusal(slot, result))
		outcome = ZK_DENIED;
	else
		switch (slot->state)
		{
			case ZK_SLOT_NONE:
				slot_event(slot, SLOT_ASKED);
				break;
			case ZK_SLOT_WANTED:
			case ZK_SLOT_RELEASING:
				if (slot->queued)
					outcome = ZK_QUEUED;
				break;
			case ZK_SLOT_IDLE:
				now = zk_now_us();
				if (!is_surely_ours(slot, now))
					outcome = ZK_UNPROVED;
				else
				{
					take(proc, now);
					outcome = ZK_ACQUIRED;
				}
				break;
			case ZK_SLOT_HELD:
				outcome = znode_is_shared(proc->kind) ?
					try_join(proc) : ZK_QUEUED;
				break;
		}
	return outcome_of_wait(proc, outcome, result);
}

/*
 * slot_take
 *		Take the slot if the instance owns it and no other backend is in the
 *		way; else ask the worker for a contender.
 *
 * The caller must want the slot and have the heavyweight lock of its name.
 * "permits" is that of a semaphore, or 0.  Unless the answer is ZK_ACQUIRED,
 * the caller goes on wanting the slot; the slot's condition variable is
 * broadcast when another try is worthwhile.  ZK_DENIED, which is reported
 * once, and ZK_DEADLOCKED fill in *result.  After ZK_REQUEUE_TIER1 the caller
 * waits for the heavyweight lock again, at the end of its queue.  So it does
 * after ZK_REQUEUE_BEHIND, once a backend that came before it has got the
 * lock.
 */
ZkOutcome
slot_take(ZkProcLock *proc, int permits, ZkResult *result)
{
	ZkOutcome	outcome;

	slot_lock(proc->slot, LW_EXCLUSIVE);
	outcome = is_behind_any(proc) ? ZK_REQUEUE_BEHIND :
		try_take(proc, permits, result);
	slot_unlock(proc->slot);
	return outcome;
}

/*
 * slot_requeue_tier1
 *		The backend gives up the heavyweight lock and waits for it again, or
 *		waits for that of transactions that use a claim: its wait for the slot
 *		ends, and another one begins.
 *
 * The backends behind it use the contender from now on, if there is one.
 */
void
slot_requeue_tier1(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;

	slot_lock(slot, LW_EXCLUSIVE);
	slot_end_watch(proc);
	proc->ready = false;
	proc->victim_of = 0;
	proc->since = zk_now_us();
	slot_unlock(slot);
}

/*
 * slot_yield_other_mode
 *		Give up what the instance owns or waits for of the lock in the other
 *		mode than that of the slot that the caller wants, if no backend holds
 *		it.
 *
 * The caller has the heavyweight lock of the name, so no backend can take that
 * slot first; but the caller will wait for its own, which may in turn wait for
 * that one.
 */
void
slot_yield_other_mode(const ZkProcLock *proc)
{
	ZkSlot	   *slot = slot_find_other_mode(proc->slot, LW_EXCLUSIVE);

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

static bool
is_owned(const ZkSlot *slot)
{
	return slot->state == ZK_SLOT_IDLE || slot->state == ZK_SLOT_HELD;
}

/*
 * Try to take a slot whose heavyweight lock the caller has.  Returns
 * ZK_PENDING, and counts what it has found, if that does not end the call.
 */
static ZkOutcome
try_any_of(ZkAnyWait *wait, int i, ZkResult *result)
{
	ZkProcLock *proc = wait->procs[i];
	ZkSlot	   *slot = proc->slot;
	bool		was_ready = proc->ready;
	ZkSlotState was = slot->state;
	ZkOutcome	outcome = try_take(proc, 0, result);

	if (!was_ready && slot->nwanting > 1)
		slot_wake(slot);		/* backends behind us may go on */
	if (was == ZK_SLOT_NONE && slot->state == ZK_SLOT_WANTED)
		slot->contender.for_any = true;
	if (outcome == ZK_UNPROVED && wait->which < 0)
		wait->which = i;
	if (outcome == ZK_PENDING || outcome == ZK_UNPROVED)
		wait->npending++;
	else if (outcome == ZK_QUEUED)
	{
		wait->waited[i] = true;
		wait->nqueued++;
	}
	else
		return outcome;
	return ZK_PENDING;
}

/*
 * Is this slot, whose heavyweight lock another backend has or may get first,
 * about to be taken or left?  It is, as soon as ZooKeeper answers, if that
 * backend wants any of several slots, and has the lock, or came before us and
 * waits behind no one.
 */
static bool
is_left_soon(const ZkProcLock *proc)
{
	const ZkSlot *slot = proc->slot;
	bool		ahead = true;

	if (slot->state == ZK_SLOT_HELD || slot->queued)
		return false;
	for (const ZkProcLock *other = slot->procs; other != NULL;
		 other = other->next)
	{
		if (other == proc)
			ahead = false;
		else if (other->alternatives > 0 &&
				 (other->ready || (ahead && other->tries)))
			return true;
	}
	return false;
}

/*
 * Could the backend get the heavyweight lock now, as far as the slot shows?
 * Readers can have it together; those that want it exclusively are in another
 * slot.
 */
static bool
is_reachable(const ZkProcLock *proc)
{
	const ZkSlot *slot = proc->slot;

	if (znode_is_shared(proc->kind))
		return true;
	for (const ZkProcLock *other = slot->procs; other != NULL;
		 other = other->next)
		if (other != proc &&
			((other->granted && !other->lost) || other->ready))
			return false;
	return !is_behind_any(proc);
}

/*
 * Count a slot whose heavyweight lock the caller does not have, and ask for a
 * contender if that is its turn.
 */
static void
wait_from_behind(ZkAnyWait *wait, int i)
{
	ZkProcLock *proc = wait->procs[i];

	if (wait->immediate)
	{
		if (is_left_soon(proc) || (!wait->reachable[i] && is_reachable(proc)))
			wait->npending++;
		return;
	}
	wait->waited[i] = true;

	/* as a writer that waits for readers of its own instance does; once */
	if (!znode_is_shared(proc->kind) && !proc->asked)
		note_ahead(proc);
}

/*
 * Of the slots whose heavyweight lock the caller has, try those that the
 * instance owns or, if not "owned", the others.  The first one that ends the
 * call counts, unless one can be taken.
 */
static ZkOutcome
try_all(ZkAnyWait *wait, bool owned)
{
	ZkOutcome	result = ZK_PENDING;
	ZkResult	ignored;

	for (int i = 0; i < wait->n && result != ZK_ACQUIRED; i++)
	{
		ZkOutcome	outcome;

		if (!wait->ready[i] || is_owned(wait->procs[i]->slot) != owned)
			continue;
		outcome = try_any_of(wait, i, result == ZK_PENDING ?
							 wait->result : &ignored);
		if (outcome == ZK_ACQUIRED ||
			(outcome != ZK_PENDING && result == ZK_PENDING))
		{
			result = outcome;
			wait->which = i;
		}
	}
	return result;
}

/*
 * slots_take_any
 *		Take the first slot that is available; else ask the worker for
 *		contenders for all of them.
 *
 * The caller must want all slots, and has called slots_find_reachable().  A
 * slot that the instance owns is taken before any other is asked for.  Answers
 * as slot_take(), but ZK_QUEUED only if every slot has contenders ahead.
 * ZK_ACQUIRED, ZK_DENIED and ZK_UNPROVED set "which".  Unless one is taken, the
 * caller's latch is set when another try is worthwhile.
 */
ZkOutcome
slots_take_any(ZkAnyWait *wait)
{
	ZkOutcome	outcome;

	wait->which = -1;
	wait->npending = wait->nqueued = 0;
	slots_lock_of(wait->procs, wait->n);
	outcome = try_all(wait, true);
	if (outcome == ZK_PENDING)
		outcome = try_all(wait, false);
	if (outcome == ZK_PENDING)
	{
		for (int i = 0; i < wait->n; i++)
			if (!wait->ready[i])
				wait_from_behind(wait, i);
		outcome = wait->which >= 0 ? ZK_UNPROVED :
			wait->npending > 0 ? ZK_PENDING : ZK_QUEUED;
	}
	slots_unlock();
	return outcome;
}

/*
 * slots_find_reachable
 *		Find the slots whose heavyweight lock the caller does not have, but
 *		might get now.
 */
void
slots_find_reachable(ZkAnyWait *wait)
{
	slots_lock_of(wait->procs, wait->n);
	for (int i = 0; i < wait->n; i++)
		wait->reachable[i] = !wait->ready[i] && is_reachable(wait->procs[i]);
	slots_unlock();
}

/*
 * slots_unwant_any
 *		Stop wanting the slots, except number "but" (-1: none).
 *
 * All deletes go to the worker together.  The caller has released the
 * heavyweight locks.  Does not throw.
 */
void
slots_unwant_any(const ZkAnyWait *wait, int but)
{
	slots_lock_of(wait->procs, wait->n);
	for (int i = 0; i < wait->n; i++)
	{
		ZkSlot	   *slot = wait->procs[i]->slot;

		if (i == but)
			continue;
		note_unwanted(wait->procs[i]);
		slot_remove_unused(slot);
	}
	slots_unlock();
}

/*
 * slot_other_mode_leaves
 *		Is the instance's contender for the lock in the other mode being given
 *		up, and gone in a moment, since ZooKeeper has not refused to delete it?
 */
bool
slot_other_mode_leaves(const ZkProcLock *proc)
{
	ZkSlot	   *slot = slot_find_other_mode(proc->slot, LW_SHARED);
	bool		leaves;

	if (slot == NULL)
		return false;
	leaves = slot->state == ZK_SLOT_RELEASING && !slot->queued;
	slot_unlock(slot);
	return leaves;
}

/*
 * slot_call_ahead
 *		Wake the backends that came before this one and want any of several
 *		slots, so that they get the heavyweight lock; false if there are none.
 *
 * The caller has released that lock, and waits for it again afterwards.
 */
bool
slot_call_ahead(const ZkProcLock *proc)
{
	bool		behind;

	slot_lock(proc->slot, LW_SHARED);
	behind = is_behind_any(proc);
	if (behind)
		slot_wake_any(proc->slot);
	slot_unlock(proc->slot);
	return behind;
}

/* The input to the rules of a turn. */
static TurnInput
turn_input(const ZkSlot *slot, int64 now)
{
	TurnInput	input = {0};

	input.now = now;
	input.quantum = HANDOFF_QUANTUM_US;
	input.retain_time = slot_retain_time(slot);
	input.waiting = slot->nwanting;
	input.taker = slot_has_taker(slot);
	input.mail_waiting = !input.taker && mail_is_waiting();
	input.room = !input.taker && slots_in_use() <= zklock_max_locks / 2;
	input.release_time = input.taker ? slots_release_time() : 0;
	input.permit = slot->contender.kind == ZNODE_PERMIT;
	input.readers = znode_is_shared(slot->contender.kind);
	input.writer_behind = slot->writer_behind;
	return input;
}

/*
 * The last holder is gone: hand the slot on, keep it, or give it up.  Returns
 * whether it is retained.
 */
static bool
leave_slot(ZkSlot *slot, int64 now)
{
	TurnInput	input;
	TurnDecision decision;

	if (key_is_of_instance(&slot->key))
	{
		slot_wake(slot);
		return false;
	}
	input = turn_input(slot, now);
	slot->contender.use.dropped_at = now;
	decision = turn_dropped(&slot->turn, &input);
	if (decision == TURN_GIVE_UP)
	{
		slot_event(slot, SLOT_GIVEN_UP);
		return false;
	}
	slot_event(slot, SLOT_HANDED);
	if (decision == TURN_LEAVE || decision == TURN_HAND_ON_AND_ASK)
		slot_mail(slot);
	return decision == TURN_RETAIN;
}

/*
 * slot_drop_locked
 *		slot_drop() under the partition lock, held exclusively.  The slot
 *		stays.
 */
bool
slot_drop_locked(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;
	bool		lost = proc->lost;

	remove_proc(proc);
	return !lost && --slot->nholding == 0 && leave_slot(slot, now);
}

/*
 * slot_drop
 *		The holder gives the slot back, at the end of its transaction or of its
 *		last hold.
 *
 * The slot may be gone afterwards.  Transaction callbacks call it: it does not
 * throw, and waits for LWLocks only.  "now" is as of zk_now_us().  Returns
 * whether the slot is retained.
 */
bool
slot_drop(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;
	bool		retained;

	slot_lock(slot, LW_EXCLUSIVE);
	retained = slot_drop_locked(proc, now);
	slot_unlock_last(slot);
	return retained;
}

static bool
is_held(const ZkProcLock *proc)
{
	return !proc->lost && (proc->slot->state == ZK_SLOT_HELD ||
						   key_is_of_instance(&proc->slot->key));
}

/*
 * slot_read_token
 *		Does this backend, which took the slot, still hold it, and what is the
 *		fencing token?
 *
 * Sets *token to 0 while the worker does not have it, and *refusal to the
 * reason for which ZooKeeper refuses it, or to ZK_REFUSAL_NONE while there is
 * no answer.
 */
bool
slot_read_token(ZkProcLock *proc, int64 *token, ZkRefusal *refusal)
{
	ZkSlot	   *slot = proc->slot;
	bool		mine;

	slot_lock(slot, LW_SHARED);
	mine = is_held(proc);
	*token = slot->token;
	*refusal = slot->token_refusal;
	slot_unlock(slot);
	return mine;
}

/*
 * slot_is_mine
 *		Does this backend, which took the slot, still hold it?
 */
bool
slot_is_mine(ZkProcLock *proc)
{
	int64		token;
	ZkRefusal	refusal;

	return slot_read_token(proc, &token, &refusal);
}

/*
 * slots_keep
 *		A call has taken all its slots: from now on the loss of one cancels the
 *		backend's statement.
 *
 * Returns false, and does nothing, if one has been lost already.
 */
bool
slots_keep(ZkProcLock **procs, int n)
{
	bool		mine = true;

	slots_lock_of(procs, n);
	for (int i = 0; i < n && mine; i++)
		mine = is_held(procs[i]);
	for (int i = 0; i < n && mine; i++)
		procs[i]->provisional = false;
	slots_unlock();
	return mine;
}

/*
 * slot_begin_commit
 *		As slot_is_mine(), for the commit check.
 *
 * If it does, losing the lock no longer cancels the backend, until
 * slot_end_commit().
 */
bool
slot_begin_commit(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		mine;

	/* a shared lock is enough: readers of the field have the exclusive one */
	slot_lock(slot, LW_SHARED);
	mine = is_held(proc);
	proc->committing = mine;
	slot_unlock(slot);
	return mine;
}

/*
 * slot_end_commit
 *		The commit is over, and the backend goes on holding the slot.
 *
 * If it has been lost since the check, this does what proc_lose() did not.
 */
void
slot_end_commit(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		terminates;

	slot_lock(slot, LW_SHARED);
	proc->committing = false;
	terminates = proc->lost && proc->terminates;
	slot_unlock(slot);
	if (terminates && !ZK_MUTATED(ZK_LOSS_UNTOLD))
		(void) kill(MyProcPid, SIGTERM);
}

/*
 * slot_set_scope
 *		Note whether the backend has a session-scoped hold: for zk_locks, and
 *		with the present value of zklock.terminate_on_loss.
 */
void
slot_set_scope(ZkProcLock *proc, bool session)
{
	ZkSlot	   *slot = proc->slot;

	slot_lock(slot, LW_EXCLUSIVE);
	proc->session = session;
	proc->terminates = session && zklock_terminate_on_loss;
	slot_unlock(slot);
}
