/*-------------------------------------------------------------------------
 *
 * grant.c
 *		What the worker does to slots: opens their mail, and reports what has
 *		become of their contenders.
 *
 * Each function takes the partition locks that it needs: see slots.c.  The
 * worker's own clock is in milliseconds, so times are converted here.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/grant.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots_private.h"
#include "utils/memutils.h"

/* Convert a time as of zk_now_us() to one as of zk_now_ms(), not earlier. */
static int64
ms_of_us(int64 us)
{
	return (us + 999) / 1000;
}

/* Does a backend wait for nothing but the slot? */
static bool
has_ready_waiter(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted && proc->ready)
			return true;
	return false;
}

/*
 * slots_attach_worker
 *		Make the calling process the worker, until it ends.
 *
 * Old mail is discarded: slots_list() finds all that matters.
 */
void
slots_attach_worker(void)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;

	slots_lock_all(LW_EXCLUSIVE);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		slot->mailed = false;
		turn_unwatched(&slot->turn);
		if (slot->check_wanted || slot->check_start != 0)
		{
			/* a backend that waits for it asks again */
			slot->check_wanted = false;
			slot->check_start = 0;
			slot_wake(slot);
		}
	}
	mail_clear();
	worker_set_latch(MyLatch);
	slots_unlock();
}

/*
 * slots_list
 *		The slots that want or have a contender, palloc'd.  They stay until the
 *		worker calls slot_set_gone().
 *
 * Slots that only an earlier worker's mail had kept are removed.
 */
ZkSlot	  **
slots_list(int *nslots)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	ZkSlot	  **list;
	int			n = 0;

	list = MemoryContextAllocHuge(CurrentMemoryContext,
								  mul_size(zklock_max_locks,
										   sizeof(ZkSlot *)));
	slots_lock_all(LW_EXCLUSIVE);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (slot->state != ZK_SLOT_NONE)
			list[n++] = slot;
		else
			slot_remove_unused(slot);
	}
	slots_unlock();

	*nslots = n;
	return list;
}

/*
 * slot_open_mail
 *		What does this slot of the collected chain ask the worker for?
 *
 * Sets *next to the next slot of the chain and, for ZK_MAIL_WANT, *wanted.
 * The slot may be gone afterwards if the answer is ZK_MAIL_NOTHING.
 */
ZkMail
slot_open_mail(ZkSlot *slot, ZkSlot **next, ZkContender *wanted)
{
	ZkMail		mail = ZK_MAIL_NOTHING;
	int64		now;
	bool		watch_wanted;
	static unsigned wanted_before = 0;
	static unsigned released_before = 0;

	slot_lock(slot, LW_EXCLUSIVE);
	now = zk_now_us();			/* not before an earlier slot_drop() */
	*next = slot->mail_next;
	if (slot->state == ZK_SLOT_IDLE &&
		turn_mail_opened(&slot->turn, slot_has_taker(slot),
						 slot_retain_time(slot), now) == TURN_GIVE_UP)
		slot_event(slot, SLOT_GIVEN_UP);
	slot->mailed = false;
	watch_wanted = turn_take_ask(&slot->turn);
	if (slot->state == ZK_SLOT_HELD && slot->check_wanted)
	{
		watch_wanted = true;
		slot->check_start = now;
	}
	slot->check_wanted = false;
	*wanted = slot->contender;
	if (slot->state == ZK_SLOT_WANTED)
		mail = ZK_MUTATED(ZK_MAIL_DROPPED) && ++wanted_before % 50 == 0 ?
			ZK_MAIL_NOTHING : ZK_MAIL_WANT;
	else if (slot->state == ZK_SLOT_RELEASING)
		mail = ZK_MUTATED(ZK_RELEASE_DROPPED) && ++released_before % 50 == 0 ?
			ZK_MAIL_NOTHING : ZK_MAIL_RELEASE;
	else if (watch_wanted)
		mail = ZK_MAIL_WATCH_QUEUE;
	slot_unlock_last(slot);
	return mail;
}

/*
 * slot_set_uuid
 *		The worker is about to create a contender with this UUID.
 *
 * Noted before the create, so that the next worker can find the znode even if
 * this one ends before the answer.  "retain_ms": how long the slot may be
 * retained, which the znode will say, or 0.
 */
void
slot_set_uuid(ZkSlot *slot, const uint8 *uuid, int32 retain_ms)
{
	slot_lock(slot, LW_EXCLUSIVE);
	memcpy(slot->contender.uuid, uuid, ZNODE_UUID_BYTES);
	slot->contender.has_uuid = true;
	slot->contender.retain_ms = retain_ms;
	slot->contender.has_sequence = slot->contender.requeued = false;
	slot_unlock(slot);
}

/*
 * slot_set_uncreated
 *		The contender no longer exists, and is about to be created again.
 */
void
slot_set_uncreated(ZkSlot *slot)
{
	slot_lock(slot, LW_EXCLUSIVE);
	slot->contender.has_sequence = slot->contender.requeued = false;
	slot_unlock(slot);
}

/*
 * slot_requeue
 *		The slot is being released: if a contender of the same kind is wanted
 *		again, note that the step that deletes this one is about to create it.
 *
 * The next contender has the UUID of this one, and until it is created the slot
 * has this one's number.  So if this worker ends before the
 * answer, the next one can tell which of the two it finds.  Returns whether a
 * contender is wanted, and sets *wanted.
 */
bool
slot_requeue(ZkSlot *slot, ZkContender *wanted)
{
	ZkContender last;
	bool		requeued = false;

	slot_lock(slot, LW_EXCLUSIVE);
	last = slot->contender;
	if (slot->state == ZK_SLOT_RELEASING && last.has_sequence &&
		last.kind == slot->asked_kind)
	{
		slot_event(slot, SLOT_REQUEUED);
		requeued = slot->state == ZK_SLOT_WANTED;
	}
	if (requeued)
	{
		memcpy(slot->contender.uuid, last.uuid, ZNODE_UUID_BYTES);
		slot->contender.has_uuid = true;
		slot->contender.sequence = last.sequence;
		slot->contender.has_sequence = true;
		slot->contender.requeued = true;
		*wanted = slot->contender;
	}
	slot_unlock(slot);
	return requeued;
}

/*
 * slot_set_retain_ms
 *		The contender that slot_requeue() has announced may be retained for so
 *		long.
 */
void
slot_set_retain_ms(ZkSlot *slot, int32 retain_ms)
{
	slot_lock(slot, LW_EXCLUSIVE);
	slot->contender.retain_ms = retain_ms;
	slot_unlock(slot);
}

/* Tell waiters whether it may take long, if the slot is in this state. */
static void
set_queued(ZkSlot *slot, ZkSlotState state)
{
	if (slot->queued || slot->state != state)
		return;
	slot->queued = true;
	slot_wake(slot);
}

/*
 * slot_set_stuck
 *		The contender is being given up, but ZooKeeper does not let it go.
 */
void
slot_set_stuck(ZkSlot *slot)
{
	slot_lock(slot, LW_EXCLUSIVE);
	set_queued(slot, ZK_SLOT_RELEASING);
	slot_unlock(slot);
}

/*
 * The contender exists, with this sequence number; if slot_requeue() had
 * announced it, the previous one is gone.
 */
static void
set_created(ZkSlot *slot, int32 sequence)
{
	if (slot->contender.requeued)
		slot_learn_release(slot);
	slot->contender.sequence = sequence;
	slot->contender.has_sequence = true;
	slot->contender.requeued = false;
}

/*
 * The contender owns the lock; false if no backend wants it any more.
 *
 * If all backends that want the slot still wait for the heavyweight lock,
 * *check_at is when the worker must call slot_check_idle(): they may be about
 * to get the lock, or may wait for a backend that in turn waits for our
 * contender.
 */
static bool
set_granted(ZkSlot *slot, int64 *check_at)
{
	int64		now = zk_now_us();
	bool		queued = slot->queued;

	if (slot->state != ZK_SLOT_WANTED)
		return false;
	slot_event(slot, SLOT_GRANTED);
	slot->checked_at = now;
	slot->writer_behind = false;
	*check_at = turn_granted(&slot->turn, queued,
							 slot->contender.retain_ms > 0, now);
	if (has_ready_waiter(slot))
		*check_at = 0;
	slot_wake_any(slot);
	return true;
}

/* The list that slot_open_mail() asked for is there. */
static void
set_writers_checked(ZkSlot *slot, bool writer_behind)
{
	if (slot->check_start == 0)
		return;
	slot->checked_at = slot->check_start;
	slot->check_start = 0;
	slot->writer_behind = writer_behind;
	slot_wake(slot);
}

/* Only a holder waits for the token; others would wake in vain. */
static void
wake_for_token(ZkSlot *slot)
{
	if (slot->state == ZK_SLOT_HELD)
		ConditionVariableBroadcast(&slot->cv);
}

/* The fencing token of the contender that owns the lock. */
static void
set_token(ZkSlot *slot, int64 token)
{
	slot->token = token;
	slot->token_refusal = ZK_REFUSAL_NONE;
	wake_for_token(slot);
}

/*
 * The contender is no longer the owner, though its node may be left: the
 * holders have lost the lock.
 */
static void
set_lost(ZkSlot *slot)
{
	if (slot->state != ZK_SLOT_HELD && slot->state != ZK_SLOT_IDLE)
		return;
	slot_lose_holders(slot);
	slot_event(slot, SLOT_GIVEN_UP);
}

/*
 * slot_report
 *		Report the outcome of a contender's step: bits RECIPE_REPORT_*, of
 *		which SLOT_TOLD concern the slot.
 *
 * "sequence" belongs to CREATED, "token" to TOKEN.  QUEUED is ignored if the
 * contender is being given up: it goes in a moment.  ALONE also means that the
 * worker hears when another contender comes.
 *
 * Returns when the worker must call slot_check_idle() after GRANTED, as of
 * zk_now_ms(); or 0.
 */
int64
slot_report(ZkSlot *slot, unsigned report, int32 sequence, int64 token)
{
	int64		check_at = 0;
	bool		granted = false;
	static unsigned grants = 0;

	if (!(report & SLOT_TOLD))
		return 0;
	slot_lock(slot, LW_EXCLUSIVE);
	if (report & RECIPE_REPORT_CREATED)
		set_created(slot, sequence);
	if (report & RECIPE_REPORT_QUEUED)
		set_queued(slot, ZK_SLOT_WANTED);
	if (report & RECIPE_REPORT_GRANTED)
		granted = set_granted(slot, &check_at);
	if (report & RECIPE_REPORT_ALONE)
		turn_alone(&slot->turn, slot->contender.kind == ZNODE_READER &&
				   slot->contender.retain_ms == 0);
	if ((report & RECIPE_REPORT_UNWATCHED) && !ZK_MUTATED(ZK_CHANGE_IGNORED))
		turn_unwatched(&slot->turn);
	if (report & (RECIPE_REPORT_ALONE | RECIPE_REPORT_CONTENDED))
		set_writers_checked(slot, (report & RECIPE_REPORT_WRITER) != 0);
	if (report & RECIPE_REPORT_TOKEN)
		set_token(slot, token);
	if (report & RECIPE_REPORT_LOST)
		set_lost(slot);
	slot_unlock(slot);

	/* without the lock: the slot has a contender, which only we end */
	if (granted &&
		!(ZK_MUTATED(ZK_GRANT_WAKES_NOBODY) && ++grants % 50 == 0))
		ConditionVariableBroadcast(&slot->cv);
	return ms_of_us(check_at);
}

/*
 * slot_set_disconnected
 *		The worker does not hear when another contender comes to stand behind
 *		ours, until it has a connection.
 */
void
slot_set_disconnected(ZkSlot *slot)
{
	slot_lock(slot, LW_EXCLUSIVE);
	turn_disconnected(&slot->turn);
	slot_unlock(slot);
}

/*
 * slot_set_contended
 *		Other contenders wait behind ours, or the worker waits to end the
 *		session.
 *
 * A slot that is only retained is given up.  Returns whether the slot is in
 * use instead, so that they have to wait.
 */
bool
slot_set_contended(ZkSlot *slot)
{
	bool		in_use;
	bool		was_retained;

	slot_lock(slot, LW_EXCLUSIVE);
	was_retained = slot->turn.idle == TURN_RETAINED;
	if (!ZK_MUTATED(ZK_CONTENTION_IGNORED) &&
		turn_contended(&slot->turn, slot->state == ZK_SLOT_IDLE,
					   slot_has_taker(slot), slot->nwanting,
					   zk_now_us()) == TURN_GIVE_UP)
	{
		slot->contender.use.revoked = was_retained;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	in_use = slot->state == ZK_SLOT_IDLE || slot->state == ZK_SLOT_HELD;
	slot_unlock(slot);
	return in_use;
}

/*
 * slot_set_no_token
 *		ZooKeeper refuses the fencing token of the contender that owns the
 *		lock.
 *
 * Returns whether that was unknown.
 */
bool
slot_set_no_token(ZkSlot *slot, ZkRefusal refusal)
{
	bool		is_news;

	slot_lock(slot, LW_EXCLUSIVE);
	/* an earlier worker may have reported it */
	is_news = slot->token == 0 && slot->token_refusal != refusal;
	if (is_news)
	{
		slot->token_refusal = refusal;
		wake_for_token(slot);
	}
	slot_unlock(slot);
	return is_news;
}

/*
 * slot_set_refused
 *		ZooKeeper refuses the contender.
 *
 * The waiter that asked is told.  The worker calls slot_set_gone() when
 * nothing is left of the contender.
 */
void
slot_set_refused(ZkSlot *slot, ZkRefusal refusal, int permits_found)
{
	slot_lock(slot, LW_EXCLUSIVE);
	if (slot->state == ZK_SLOT_WANTED)
	{
		slot->refusal = refusal;
		slot->permits_found = permits_found;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	slot_unlock(slot);
}

/*
 * slot_set_gone
 *		Nothing of the contender is left in ZooKeeper.
 *
 * Returns true, and fills in *wanted, if the slot is wanted all the same and
 * needs a new contender; else the slot may be gone.
 */
bool
slot_set_gone(ZkSlot *slot, ZkContender *wanted)
{
	bool		is_wanted;

	slot_lock(slot, LW_EXCLUSIVE);
	slot_event(slot, SLOT_CONTENDER_GONE);
	is_wanted = slot->state == ZK_SLOT_WANTED;
	*wanted = slot->contender;
	slot_unlock_last(slot);
	return is_wanted;
}

/* Does any backend hold the slot? */
static bool
is_held_by_backend(const ZkSlot *slot)
{
	if (slot->state != ZK_SLOT_HELD)
		return false;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (proc->granted && !proc->lost && !proc->is_claim)
			return true;
	return false;
}

/*
 * slots_retire
 *		Take back what the instance owns, if no backend holds any of it, so
 *		that the worker may close the session.
 *
 * Returns false, and does nothing, while a backend holds a slot: it may be
 * committing.  Claims end.
 */
bool
slots_retire(void)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	bool		held = false;

	slots_lock_all(LW_EXCLUSIVE);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
		if (is_held_by_backend(slot))
			held = true;
	if (!held)
	{
		slots_scan(&scan);
		while ((slot = hash_seq_search(&scan)) != NULL)
		{
			if (slot->state == ZK_SLOT_HELD)
				(void) claim_end_of_slot(slot, zk_now_us());
			if (slot->state == ZK_SLOT_IDLE)
				slot_event(slot, SLOT_GIVEN_UP);
		}
	}
	slots_unlock();
	return !held;
}

/*
 * slot_cancel_holders
 *		Another client asks for the lock: cancel the statements of its holders,
 *		and end the claim that holds it.
 *
 * Returns how many statements were canceled.  A holder that is committing is
 * left alone, since it ends by itself.  The client that asks is unknown, so
 * holders that only superusers may cancel are left alone, too: sessions of
 * superusers, and processes without a role, as autovacuum workers are.  *nleft
 * is the number of those.  *claim_ended: there was a claim.
 */
int
slot_cancel_holders(ZkSlot *slot, int *nleft, bool *claim_ended)
{
	int			n = 0;

	*nleft = 0;
	slot_lock(slot, LW_EXCLUSIVE);
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (proc->is_claim)
			continue;
		else if (proc->granted &&
				 (proc->superuser || !OidIsValid(proc_backend(proc)->roleId)))
			(*nleft)++;
		else if (proc_cancel(proc))
			n++;
	*claim_ended = claim_end_of_slot(slot, zk_now_us());
	slot_unlock(slot);
	return n;
}

/*
 * slots_end_wait
 *		A backend's wait for a lock is to end because of a deadlock with other
 *		instances.
 *
 * "pid" and "since" identify the wait, as in ZkWait; "path" is that of the
 * lock directory.  "deadlock" is the number from deadlock_add(); or
 * ZK_VICTIM_REQUEUES: the wait does not end, but goes on behind other backends
 * that wait for the heavyweight lock.  Returns false, and does nothing, if that
 * wait is over.  The backend goes on waiting after all if the slot changes its
 * state before the backend sees this.
 */
bool
slots_end_wait(const char *path, int pid, int64 since, uint32 deadlock)
{
	int			n = procs_used();
	bool		found = false;

	for (int i = 0; i < n && !found; i++)
	{
		ZkProcLock *proc = proc_at(i);
		char		its[ZNODE_PATH_SIZE];
		ZkSlot	   *slot;

		if (proc->granted || proc->since != since)
			continue;
		slot = proc_lock_slot(proc, LW_EXCLUSIVE);
		if (slot == NULL)
			continue;
		key_path(&slot->key, its);
		found = proc_backend(proc)->pid == pid && proc->since == since &&
			proc->ready && !proc->granted && strcmp(its, path) == 0 &&
			(slot->state == ZK_SLOT_WANTED || slot->state == ZK_SLOT_HELD);
		if (found)
		{
			proc->victim_of = deadlock;
			slot->has_victim = true;
			slot_wake(slot);
		}
		slot_unlock(slot);
	}
	return found;
}

/*
 * slot_check_idle
 *		Give up the slot if it has been idle for too long.
 *
 * Returns when to look again, or 0 if it is not idle; both times are as of
 * zk_now_ms().
 */
int64
slot_check_idle(ZkSlot *slot, int64 now_ms)
{
	int64		check_at = 0;

	slot_lock(slot, LW_EXCLUSIVE);
	if (slot->state == ZK_SLOT_IDLE &&
		turn_checked(&slot->turn, slot_retain_time(slot), now_ms * 1000,
					 &check_at) == TURN_GIVE_UP)
	{
		slot->asked = false;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	slot_unlock(slot);
	return ms_of_us(check_at);
}

/*
 * slot_give_up_idle
 *		Give up the slot if it is only retained, to make room for others.
 *
 * Returns whether it was given up.  The worker must see to its release.
 */
bool
slot_give_up_idle(ZkSlot *slot)
{
	bool		given_up;

	slot_lock(slot, LW_EXCLUSIVE);
	given_up = slot->state == ZK_SLOT_IDLE && slot->nwanting == 0;
	if (given_up)
		slot_event(slot, SLOT_GIVEN_UP);
	slot_unlock(slot);
	return given_up;
}
