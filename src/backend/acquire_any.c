/*-------------------------------------------------------------------------
 *
 * acquire_any.c
 *		Taking the first of several locks that is free.
 *
 * A call wants the slots of all its locks, takes the first that is available,
 * and leaves the others.  It skips locks that its session holds already.  If
 * one lock is left, it is acquired as zk_lock() does.
 *
 * Tier 1.  A backend can wait for only one heavyweight lock at a time, and
 * must not miss the other locks meanwhile.  So the call takes those
 * heavyweight locks that it can have without waiting, and keeps them while it
 * waits: later backends queue behind it.  For the others it has a place in the
 * slot's list of backends, which is in the order of arrival.  It tries again
 * for such a heavyweight lock when the slot changes, and a few times after
 * that, since a holder drops its slot shortly before its heavyweight lock; and
 * from time to time, since the slot does not show a holder of the lock in the
 * other mode, or a backend that waits for several locks in tier 1.
 *
 * Fairness in the instance.  The lock manager may grant a heavyweight lock to
 * a backend that queues for it, but came later than one that wants any of
 * several locks.  The later backend finds that when it looks at the slot
 * (is_behind_any), releases the heavyweight lock, wakes the earlier one, and
 * queues again when that one has the lock (ZK_REQUEUE_BEHIND).  Of several
 * backends that want any, the first gets the lock.
 *
 * Tier 2.  All contenders that are needed are asked for in one step (take.c).
 * While it waits the
 * call has a place in each queue.  A slot that the instance owns is taken
 * without asking.  When one slot has been taken, the heavyweight locks of the
 * others are released and their slots are left in one step: another backend
 * that wants one goes on with its contender, and the others are deleted
 * together.  Of several slots granted at once, the first in the caller's order
 * is taken.
 *
 * Without waiting.  A try ends when another backend or contender is known to
 * be ahead for each lock.  That is not known while another backend that also
 * wants any has the heavyweight lock and ZooKeeper has not answered: it will
 * take one lock only.  (Tries of other instances count as waits, since nothing
 * tells them apart.)
 *
 * Deadlocks.  The call does not wait in the lock manager, so PostgreSQL's
 * detector has no edge from it; nor has the search between instances
 * (worker/waits.c).  A deadlock by way of it ends by timeout, lock_timeout or
 * cancel.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/acquire_any.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/acquire_private.h"
#include "backend/attempt.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/timeout.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/session_info.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

/*
 * The first and the longest pause between tries for a heavyweight lock whose
 * release the slot does not show, in ms.
 */
#define RETRY_FIRST_MS		1
#define RETRY_LAST_MS		100

/* A call under way; its locks are those of "attempt". */
typedef struct AnyCall
{
	const ZkRequest *request;
	SlotWait	wait;
	ZkAnyWait	slots;
	bool	   *tier1;			/* by lock: we have the heavyweight lock */
	bool		leaving;		/* a contender of our own is in the way */
	int64		retry_ms;		/* until trying tier 1 again; 0: no need */
} AnyCall;

/*
 * Try tier 1 of the locks that we do not have, without waiting.
 *
 * A call that waits behind no one must not fail because of the instance's own
 * contender in the other mode while that is being deleted: it does not ask for
 * the lock before that contender is gone.
 */
static void
try_heavyweights(AnyCall *call)
{
	bool		failed = false;

	call->leaving = false;
	slots_find_reachable(&call->slots);
	for (int i = 0; i < attempt.nlocks; i++)
	{
		const HeldLock *lock = attempt.locks[i];

		if (!call->tier1[i] && call->slots.reachable[i])
		{
			call->tier1[i] = heavyweight_lock(&lock->heavyweight, false, false,
											  -1);
			failed |= !call->tier1[i];
		}
		if (!call->tier1[i] || call->slots.ready[i])
			continue;
		if (waiting_for_claim(lock))
			continue;
		slot_yield_other_mode(lock->proc);
		if (call->wait.immediate && slot_other_mode_leaves(lock->proc))
			call->leaving = true;
		else
			call->slots.ready[i] = true;
	}
	if (!failed)
		call->retry_ms = 0;
	else if (call->retry_ms == 0)
		call->retry_ms = RETRY_FIRST_MS;
}

static void
release_heavyweights(AnyCall *call, const HeldLock *but)
{
	for (int i = 0; i < attempt.nlocks; i++)
	{
		const HeldLock *lock = attempt.locks[i];

		if (lock != but && call->tier1[i])
			heavyweight_unlock(&lock->heavyweight, false, 1);
	}
}

/* As the lock manager does for log_lock_waits; see waiting_log(). */
static int64
log_wait(AnyCall *call)
{
	SlotWait   *wait = &call->wait;
	int64		waited = zk_now_ms() - wait->started;

	if (!log_lock_waits || wait->logged)
		return -1;
	if (waited < DeadlockTimeout)
		return DeadlockTimeout - waited;
	wait->logged = true;
	ereport(LOG,
			(errmsg("process %d still waiting for any of %d locks in ZooKeeper after %lld ms",
					MyProcPid, attempt.nlocks, (long long) waited),
			 errdetail_log("The first is \"%s\".", wait->result->name)));
	return -1;
}

/* Have the session proved, so that what the instance owns can be taken. */
static void
ask_proof(AnyCall *call)
{
	SlotWait   *wait = &call->wait;

	if (wait->ticket == 0 || proof_is_given(wait->ticket))
		wait->ticket = proof_ask();
}

static int64
shorter(int64 sleep, int64 other)
{
	return sleep < 0 || (other >= 0 && other < sleep) ? other : sleep;
}

/*
 * What the wait is for: what the lock manager has, while other sessions of
 * this instance have all of the locks, so that nothing is asked of ZooKeeper.
 */
static uint32
event_of_wait(const AnyCall *call)
{
	static uint32 wait_event = 0;

	for (int i = 0; i < attempt.nlocks; i++)
		if (call->tier1[i])
			return ZkWaitEvent(wait_event, "ZkLockAcquire");
	return PG_WAIT_LOCK | LOCKTAG_USERLOCK;
}

/*
 * Sleep until a slot has changed, or something else must be looked at.
 * Returns ZK_PENDING, or why the wait is over without success.
 */
static ZkOutcome
sleep_for_any(AnyCall *call, ZkOutcome answer)
{
	SlotWait   *wait = &call->wait;
	int64		sleep = zk_time_left(wait->deadline);
	int			events;

	wait->asked = true;
	if (call->slots.nqueued > 0)
		wait->in_queue = true;
	if (wait->started == 0)
		wait->started = zk_now_ms();
	if (sleep == 0 ||
		(wait->immediate && !call->leaving && answer == ZK_QUEUED))
		return ZK_NOT_IN_TIME;
	if ((!wait->in_queue || wait->immediate) &&
		(call->leaving || answer != ZK_QUEUED))
	{
		int64		timeout = waiting_timeout(wait);

		if (timeout == 0)
			return ZK_NO_SESSION;
		sleep = shorter(sleep, timeout);
	}
	sleep = shorter(sleep, RECHECK_MS);
	if (answer == ZK_UNPROVED)
		ask_proof(call);
	if (answer == ZK_UNPROVED || call->leaving)
		sleep = shorter(sleep, UNPROVED_RECHECK_MS);
	if (call->retry_ms > 0)
		sleep = shorter(sleep, call->retry_ms);
	sleep = shorter(sleep, log_wait(call));
	sleep = shorter(sleep, zk_check_client());

	InvalidateCatalogSnapshotConditionally();
	events = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   (long) sleep, event_of_wait(call));
	CHECK_FOR_INTERRUPTS();
	if (events & WL_LATCH_SET)
		call->retry_ms = 0;
	else
		call->retry_ms = Min(2 * call->retry_ms, RETRY_LAST_MS);
	return ZK_PENDING;
}

/*
 * Wait until a slot has been taken: returns ZK_ACQUIRED, with its number in
 * call->slots.which, or the outcome of the failure.
 *
 * We have the heavyweight locks of what we wait for in ZooKeeper, so no
 * backend of this instance can take it in the other mode: see take_slot() in
 * acquire.c.
 */
static ZkOutcome
wait_for_any(AnyCall *call)
{
	ZkAnyWait  *slots = &call->slots;

	ZkOutcome	outcome;

	do
	{
		ResetLatch(MyLatch);
		try_heavyweights(call);
		outcome = slots_take_any(slots);
		if (outcome == ZK_ACQUIRED)
			return outcome;
		if (outcome == ZK_DENIED)
		{
			const HeldLock *lock = attempt.locks[slots->which];

			call->wait.result->key = &lock->key;
			call->wait.result->name = key_name(&lock->key);
			return outcome;
		}
		for (int i = 0; i < attempt.nlocks; i++)
			if (slots->ready[i] &&
				slot_read_state(attempt.locks[i]->proc->slot) != ZK_SLOT_HELD)
				slot_yield_other_mode(attempt.locks[i]->proc);
		outcome = sleep_for_any(call, outcome);
	} while (outcome == ZK_PENDING);
	return outcome;
}

static void
waiting_callback(void *arg)
{
	errcontext("while waiting for any of %d locks in ZooKeeper",
			   ((const AnyCall *) arg)->slots.n);
}

/* End a call that has acquired no lock. */
static void
fail_any(AnyCall *call, ZkOutcome outcome)
{
	waiting_fail(&call->wait, outcome);
	release_heavyweights(call, NULL);
	attempt_end_any(&call->slots, NULL);
	attempt_abandon();
}

/* Make the lock of this number, which the call has acquired, a hold. */
static void
hold_any(AnyCall *call, int which)
{
	SlotWait   *wait = &call->wait;
	HeldLock   *lock = attempt.locks[which];

	wait->queued = call->slots.waited[which];
	wait->result->outcome = ZK_ACQUIRED;
	wait->result->key = &lock->key;
	acquire_count(wait, lock);
	ZK_FAIL_AT("taken");
	hold_push(lock, lock->kind == ZNODE_READER);
	release_heavyweights(call, lock);
	attempt_end_any(&call->slots, lock);
	wait->result->name = key_name(&lock->key);
	acquire_taken(wait, lock);
	acquire_end(call->request, wait, lock);
	if (call->request->session)
		acquire_for_session(&lock, 1);
}

/*
 * Want the slots of all locks in "attempt"; returns ZK_PENDING, or the
 * outcome.
 */
static ZkOutcome
want_any(AnyCall *call)
{
	int			n = attempt.nlocks;
	ZkAnyWait  *slots = &call->slots;
	ZkOutcome	outcome = ZK_PENDING;

	slots->procs = palloc(n * sizeof(ZkProcLock *));
	slots->ready = palloc0(n * sizeof(bool));
	slots->waited = palloc0(n * sizeof(bool));
	slots->reachable = palloc0(n * sizeof(bool));
	slots->immediate = call->wait.immediate;
	slots->result = call->wait.result;
	call->tier1 = palloc0(n * sizeof(bool));
	while (slots->n < n && outcome == ZK_PENDING)
	{
		HeldLock   *lock = attempt.locks[slots->n];

		lock->proc = slot_want_any(&lock->key, lock->kind,
								   call->request->session, n,
								   slots->immediate);
		if (lock->proc != NULL)
			slots->procs[slots->n++] = lock->proc;
		else
			outcome = waiting_for_room(&call->wait);
	}
	ConditionVariableCancelSleep();
	return outcome;
}

/*
 * The locks of a request that this session does not hold: an array, palloc'd.
 */
static const ZkKey **
list_not_held(const ZkRequest *request, int *n)
{
	const ZkKey **keys = palloc(Max(request->nkeys, 1) * sizeof(ZkKey *));

	*n = 0;
	for (int i = 0; i < request->nkeys; i++)
		if (hold_find(&request->keys[i]) == NULL)
			keys[(*n)++] = &request->keys[i];
	return keys;
}

/* Take the only lock that is left. */
static ZkOutcome
acquire_one(const ZkRequest *request, const ZkKey *key, ZkResult *result)
{
	ZkRequest	one = *request;

	one.keys = key;
	one.nkeys = 1;
	one.name = key_name(key);
	return acquire_locks(&one, result);
}

/*
 * acquire_any
 *		Take the first free lock of a request among those that this session
 *		does not hold.
 *
 * Of several that are free, it takes the first in the order of the keys.
 * Returns the outcome, which is in *result, too; result->key is that of the
 * lock taken.  Outcomes and errors are those of acquire_locks(), with
 * ZK_HELD_ALL, if the session holds all of them.
 */
ZkOutcome
acquire_any(const ZkRequest *request, ZkResult *result)
{
	AnyCall		call = {.request = request};
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = waiting_callback,
		.arg = &call
	};
	ZkOutcome	outcome;
	int			n;
	const ZkKey **keys = list_not_held(request, &n);

	if (n == 1)
		return acquire_one(request, keys[0], result);
	waiting_begin(&call.wait, request, result);
	if (n == 0)
		return result->outcome = ZK_HELD_ALL;
	acquire_begin();
	attempt_make_room(n);
	for (int i = 0; i < n; i++)
		attempt_add(hold_prepare(keys[i], request->kind, 0));

	error_context_stack = &context;
	outcome = want_any(&call);
	if (outcome == ZK_PENDING)
		outcome = wait_for_any(&call);
	if (outcome == ZK_ACQUIRED)
		hold_any(&call, call.slots.which);
	else
		fail_any(&call, outcome);
	error_context_stack = context.previous;
	return result->outcome;
}
