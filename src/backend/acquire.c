/*-------------------------------------------------------------------------
 *
 * acquire.c
 *		Taking locks, in two tiers.
 *
 * First a heavyweight lock, where PostgreSQL queues the backends of this
 * cluster (heavyweight.c).  Then the slot (take.c): if the cluster owns the
 * lock already, the backend takes it at once, else it asks the worker to queue
 * in ZooKeeper, and waits.
 *
 * What the call has come to is in attempt.c all the time, so that an error may
 * come at any point.  An outcome that the caller can report is returned: errors
 * are only those of PostgreSQL itself (cancel, deadlock, lock_timeout in the
 * lock manager, out of memory or slots).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "backend/acquire.h"
#include "backend/attempt.h"
#include "backend/commit.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/patience.h"
#include "backend/waiting.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/lock_stats.h"
#include "shared/procs.h"
#include "shared/refusal.h"
#include "shared/session_info.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "storage/proc.h"

static void
waiting_callback(void *arg)
{
	const SlotWait *wait = arg;

	if (wait->tier1 != NULL)
		errcontext("while waiting for lock \"%s\" behind another session of this server",
				   wait->result->name);
	else
		waiting_error_context(wait->result->name);

	/* lock_timeout, or a deadlock, within the lock manager */
	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		char	   *outage = waiting_describe_outage(wait);

		attempt.failure = ZK_FAILURE_TIMEOUT;
		if (outage != NULL)
			errdetail("%s", outage);
	}
	else if (geterrcode() == ERRCODE_T_R_DEADLOCK_DETECTED)
		attempt.failure = ZK_FAILURE_DEADLOCK;
}

static bool
is_end(ZkTake take)
{
	return take == ZK_REFUSED || take == ZK_DEADLOCK ||
		take == ZK_GO_BACK || take == ZK_GIVE_WAY;
}

/*
 * Sleep until the slot has changed, or something else must be looked at.
 * Returns false if the wait is over without success.  The first call for a
 * slot only prepares to sleep: the caller must look at it once more.
 */
static bool
wait_for_slot(SlotWait *wait, const HeldLock *lock, ZkTake take)
{
	static uint32 wait_event = 0;
	ZkSlot	   *slot = lock->proc->slot;
	int64		sleep = zk_time_left(wait->deadline);
	int64		log_in;
	int64		check_in;

	wait->asked = true;
	if (take == ZK_QUEUED)
		wait->queued = wait->in_queue = true;
	if (wait->started == 0)
		wait->started = zk_now_ms();
	if (sleep == 0 || (wait->queued && wait->immediate))
		return false;
	if (!wait->in_queue)
	{
		int64		recheck = waiting_patience(wait, slot);

		if (recheck == 0)
			return false;
		sleep = sleep < 0 ? recheck : Min(sleep, recheck);
	}
	else
		sleep = sleep < 0 ? RECHECK_MS : Min(sleep, RECHECK_MS);
	if (take == ZK_UNPROVED)
	{
		int			session = lock->proc->zk_session;

		if (wait->ticket == 0 || proof_is_given(session, wait->ticket))
			wait->ticket = proof_ask(session);
		sleep = Min(sleep, UNPROVED_RECHECK_MS);
	}
	log_in = waiting_log(wait, lock);
	if (log_in >= 0)
		sleep = Min(sleep, log_in);
	check_in = zk_check_client();
	if (check_in >= 0)
		sleep = Min(sleep, check_in);

	if (wait->prepared != slot)
	{
		ConditionVariablePrepareToSleep(slot_cv(slot));
		wait->prepared = slot;
		return true;
	}
	(void) ConditionVariableTimedSleep(slot_cv(slot), Min(sleep, INT_MAX),
									   ZkWaitEvent(wait_event, "ZkLockAcquire"));
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * A call that waits behind nobody must not fail because of the cluster's own
 * contender of the other mode, while that is being deleted.  Returns false if
 * it is not gone in time, or ZooKeeper does not let it go.
 */
static bool
wait_for_other_mode(const HeldLock *lock, SlotWait *wait)
{
	static uint32 wait_event = 0;
	ZkSlot	   *slot;
	bool		stuck;
	bool		gone = true;

	slot_yield_other_mode(lock->proc);
	attempt.other = slot_want_leaving(lock->proc);
	if (attempt.other == NULL)
		return true;

	slot = attempt.other->slot;
	while (slot_is_leaving(slot, &stuck))
	{
		int64		left = zk_time_left(wait->deadline);
		int64		sleep;

		if (stuck || left == 0 || (sleep = waiting_patience(wait, slot)) == 0)
		{
			gone = false;
			break;
		}
		if (left > 0)
			sleep = Min(sleep, left);
		(void) ConditionVariableTimedSleep(slot_cv(slot), Min(sleep, INT_MAX),
										   ZkWaitEvent(wait_event, "ZkLockAcquire"));
	}
	ConditionVariableCancelSleep();
	slot_unwant(attempt.other);
	attempt.other = NULL;
	return gone;
}

/*
 * The second tier: take the slot, or have the worker queue for it and wait.
 * Returns ZK_TAKEN; or ZK_GO_BACK or ZK_GIVE_WAY: both tiers have to be gone
 * through again; all else is the end without success.
 *
 * We have the heavyweight lock, so no backend of this cluster can take the lock
 * in the other mode.  If the cluster has a contender of that mode all the same,
 * we would wait for it, and it for us: give it up.  It may come while we wait,
 * so each turn of the wait does this.
 *
 * Nothing may throw between the take and hold_push(): there is no hold yet that
 * an error could release.
 */
static ZkTake
take_slot(HeldLock *lock, SlotWait *wait)
{
	ZkTake		take;

	if (wait->immediate && !wait_for_other_mode(lock, wait))
		return ZK_PENDING;
	for (;;)
	{
		ZkTakeNews	news;

		take = slot_take(lock->proc, lock->permits, &news);
		if (is_end(take))
		{
			waiting_note_end(wait->result, lock, take, &news);
			break;
		}
		if (take != ZK_TAKEN &&
			slot_read_state(lock->proc->slot) != ZK_SLOT_HELD)
			slot_yield_other_mode(lock->proc);
		if (take == ZK_TAKEN || !wait_for_slot(wait, lock, take))
			break;
	}
	ConditionVariableCancelSleep();
	return take;
}

/* The same for several slots: all or none. */
static ZkTake
take_slots(HeldLock **locks, int nlocks, SlotWait *wait)
{
	ZkProcLock **procs = palloc(nlocks * sizeof(ZkProcLock *));
	uint32		group = 0;
	ZkTake		take;

	for (int i = 0; i < nlocks; i++)
		procs[i] = locks[i]->proc;
	for (;;)
	{
		ZkTakeNews	news;
		int			which;

		take = slots_take_together(procs, nlocks, &group, &which, &news);
		if (take == ZK_TAKEN)
			break;
		for (int i = 0; i < nlocks; i++)
			slot_yield_other_mode(locks[i]->proc);
		wait->result->name = key_name(&locks[which]->key);
		if (is_end(take))
			waiting_note_end(wait->result, locks[which], take, &news);
		if (is_end(take) || !wait_for_slot(wait, locks[which], take))
			break;
	}
	ConditionVariableCancelSleep();
	pfree(procs);
	return take;
}

/* The first tier of one lock. */
static bool
acquire_heavyweight(HeldLock *lock, const ZkRequest *request, SlotWait *wait)
{
	if (heavyweight_lock(&lock->heavyweight, false, false, -1))
		return true;
	wait->tier1 = lock;
	if (wait->immediate)
		return false;
	wait->queued = true;
	if (lock->heavyweight.mode == ExclusiveLock)
		slot_ask(lock->proc);
	return request->try && wait->deadline >= 0 ?
		heavyweight_try_until(&lock->heavyweight, wait->deadline) :
		heavyweight_lock(&lock->heavyweight, false, true, wait->deadline);
}

/*
 * The first tier of several locks, in the order of their paths, which is the
 * same for all callers.  While we wait for one, the cluster must not keep those
 * of which we have the heavyweight lock: nobody here could take them.
 */
static bool
acquire_heavyweights(HeldLock **locks, int nlocks, SlotWait *wait)
{
	for (int i = 0; i < nlocks; i++)
	{
		const HeldLock *lock = locks[i];

		if (heavyweight_lock(&lock->heavyweight, false, false, -1))
			continue;
		wait->tier1 = lock;
		wait->queued = true;
		if (wait->immediate)
			return false;
		for (int j = 0; j < i; j++)
		{
			slot_yield(&locks[j]->key);
			slot_yield_other_mode(locks[j]->proc);
		}
		wait->result->name = key_name(&lock->key);
		if (!heavyweight_lock(&lock->heavyweight, false, true, wait->deadline))
			return false;
	}
	return true;
}

static void
want_slots(const ZkRequest *request)
{
	for (int i = 0; i < attempt.nlocks; i++)
	{
		HeldLock   *lock = attempt.locks[i];
		bool		together = attempt.nlocks > 1;

		lock->proc = slot_want(&lock->key, lock->kind, request->session,
							   together);
	}
}

/*
 * acquire_for_session
 *		Make the latest holds of these locks, which are of the transaction, the
 *		session's: all or none.
 *
 * That comes last, so that an earlier error leaves no hold behind.
 */
void
acquire_for_session(HeldLock **locks, int nlocks)
{
	volatile int n = 0;

	PG_TRY();
	{
		/* without waiting: pg_advisory_unlock_all() may have let others in */
		for (; n < nlocks; n++)
			(void) heavyweight_lock(&locks[n]->heavyweight, true, false, -1);
		ZK_FAIL_AT("session");
	}
	PG_CATCH();
	{
		while (n-- > 0)
			heavyweight_unlock(&locks[n]->heavyweight, true, 1);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; i < nlocks; i++)
	{
		heavyweight_unlock(&locks[i]->heavyweight, false, 1);
		hold_move_to_session(locks[i]);
	}
}

/* A call that has acquired no lock.  The caller has set the outcome. */
static void
fail_tiers(bool tier1, const SlotWait *wait)
{
	ZkResult   *result = wait->result;
	HeldLock   *first = attempt.locks[0];

	if (result->outcome == ZK_DEADLOCKED)
		attempt.failure = ZK_FAILURE_DEADLOCK;
	if (result->outcome == ZK_NOT_IN_TIME)
	{
		attempt.failure = ZK_FAILURE_TIMEOUT;
		result->outage = waiting_describe_outage(wait);
		/* those of several, or in any other case, go with the error */
		if (tier1 && attempt.nlocks == 1)
			heavyweight_unlock(&first->heavyweight, false, 1);
	}
	attempt_abandon();
}

/*
 * acquire_hold
 *		A lock that a call has acquired is held from now on.  Does not throw.
 */
void
acquire_hold(const SlotWait *wait, HeldLock *lock)
{
	int64		waited_us = lock->proc->since - wait->called_us;

	hold_push(lock, lock->kind == ZNODE_READER);
	stats_count_take(!wait->asked, wait->queued, waited_us);
	lock_stats_take(lock->stats_id, &lock->key, !wait->asked, wait->queued,
					waited_us);
}

/*
 * acquire_end
 *		The rest of a call that holds its locks.  An error ends the holds, too.
 */
void
acquire_end(const ZkRequest *request, const SlotWait *wait, HeldLock **locks,
			int nlocks)
{
	ZK_FAIL_AT("ask");
	for (int i = 0; i < nlocks; i++)
		if (locks[i]->kind == ZNODE_READER)
			slot_ask_for_others(&locks[i]->key);
	waiting_log_end(wait, locks[0]);
	if (wait->queued)
		attempt_warn_of_snapshot(wait->result->name, request->session);
}

/* A call that has acquired all its locks. */
static void
hold_acquired(const ZkRequest *request, const SlotWait *wait)
{
	int			nlocks = attempt.nlocks;

	for (int i = 0; i < nlocks; i++)
		acquire_hold(wait, attempt.locks[i]);
	attempt_succeed();
	acquire_end(request, wait, attempt.locks, nlocks);
}

/* Once through both tiers; sets *tier1 to whether the first was passed. */
static ZkTake
go_through_tiers(const ZkRequest *request, SlotWait *wait, bool *tier1)
{
	int			nlocks = attempt.nlocks;

	if (nlocks == 1)
		*tier1 = acquire_heavyweight(attempt.locks[0], request, wait);
	else
		*tier1 = acquire_heavyweights(attempt.locks, nlocks, wait);
	if (!*tier1)
		return ZK_PENDING;
	wait->tier1 = NULL;
	return nlocks == 1 ? take_slot(attempt.locks[0], wait) :
		take_slots(attempt.locks, nlocks, wait);
}

/*
 * Both tiers in order, for the locks in "attempt", which this backend does not
 * hold.  Returns false if they were not acquired.
 */
static bool
acquire_tiers(const ZkRequest *request, SlotWait *wait)
{
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = waiting_callback,
		.arg = wait
	};
	bool		tier1;
	bool		gave_way = false;
	ZkTake		take;

	error_context_stack = &context;
	/* ahead of the wait, so that a holder hands the slot on */
	want_slots(request);
	for (;;)
	{
		take = go_through_tiers(request, wait, &tier1);
		if (take != ZK_GO_BACK && take != ZK_GIVE_WAY)
			break;
		attempt_step_back(wait->result->name);
		wait->in_queue = false;
		wait->prepared = NULL;
		tier1 = false;
		if (take == ZK_GIVE_WAY)
		{
			/* once, since one who only tries may be gone in a moment */
			if (wait->immediate && gave_way)
				break;
			gave_way = true;
			wait->queued = !wait->immediate;
			attempt_give_way();
		}
	}
	if (take != ZK_TAKEN)
		fail_tiers(tier1, wait);
	else
	{
		ZK_FAIL_AT("taken");
		hold_acquired(request, wait);
	}
	error_context_stack = context.previous;
	return take == ZK_TAKEN;
}

/* May the request have one more hold of a lock that this backend holds? */
static ZkOutcome
check_again(const HeldLock *lock, const ZkRequest *request)
{
	if (!slot_is_mine(lock->proc))
		return ZK_LOST;
	if (request->kind != ZNODE_READER && lock->kind == ZNODE_READER)
		return ZK_HELD_SHARED;
	if (request->permits != lock->permits)
		return ZK_HELD_OTHER_PERMITS;
	return ZK_ACQUIRED;
}

/*
 * Sort the locks of a request: first those that this backend holds already, of
 * which it fills in the number; the others are noted in "attempt", too.
 * Returns false, with an outcome, if one that is held cannot be had again.
 */
static bool
sort_locks(const ZkRequest *request, HeldLock **locks, int *nagain,
		   ZkResult *result)
{
	attempt_make_room(request->nkeys);
	*nagain = 0;
	for (int i = 0; i < request->nkeys; i++)
	{
		HeldLock   *lock = hold_prepare(&request->keys[i], request->kind,
										request->permits);
		ZkOutcome	outcome;

		if (!hold_is_held(lock))
		{
			attempt_add(lock);
			locks[request->nkeys - attempt.nlocks] = lock;
			continue;
		}
		outcome = check_again(lock, request);
		if (outcome != ZK_ACQUIRED)
		{
			result->outcome = outcome;
			result->key = &request->keys[i];
			result->permits_found = lock->permits;
			attempt_abandon();
			return false;
		}
		locks[(*nagain)++] = lock;
	}
	return true;
}

/*
 * acquire_begin
 *		A call begins: this process may be about to hold its first lock, or the
 *		first since it had none.
 *
 * One that never takes a lock has no callbacks at the end of its transactions.
 */
void
acquire_begin(void)
{
	static bool attached = false;

	if (holds_exist())
		return;
	if (!attached)
	{
		commit_attach();
		holds_attach();
		attempt_attach();
		attached = true;
	}
	commit_check_first();
}

/*
 * acquire_locks
 *		Take the locks of a request, once more where this backend holds them
 *		already: all or none.
 *
 * Several keys cannot be tried, only waited for.  Returns the outcome, which is
 * in *result, too.  Any but ZK_ACQUIRED the caller must report as an error, with
 * one exception: ZK_NOT_IN_TIME if the request has "try".  The message of
 * ZK_NO_SESSION and of ZK_DENIED has waiting_error_context().
 *
 * Errors: 55P03 timeout within the lock manager; 53200 out of slots; 57014
 * cancelled; 40P01 deadlock within the cluster.
 */
ZkOutcome
acquire_locks(const ZkRequest *request, ZkResult *result)
{
	SlotWait	wait;
	HeldLock  **locks = palloc(request->nkeys * sizeof(HeldLock *));
	int			nagain;

	Assert(!request->try || request->nkeys == 1);
	waiting_begin(&wait, request, result);
	acquire_begin();
	if (!sort_locks(request, locks, &nagain, result))
		return result->outcome;
	if (attempt.nlocks > 0 && !acquire_tiers(request, &wait))
		return result->outcome;

	for (int i = 0; i < nagain; i++)
	{
		/* without waiting, as in acquire_for_session() */
		(void) heavyweight_lock(&locks[i]->heavyweight, false, false, -1);
		hold_push(locks[i], request->kind == ZNODE_READER);
	}
	if (request->session)
		acquire_for_session(locks, request->nkeys);
	return result->outcome = ZK_ACQUIRED;
}
