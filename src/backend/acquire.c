/*-------------------------------------------------------------------------
 *
 * acquire.c
 *		Taking locks, in two tiers: one, several in order, or any of several.
 *
 * First a heavyweight lock, where PostgreSQL queues the backends of this
 * instance (heavyweight.c).  Then the slot (take.c): if the instance owns the
 * lock already, the backend takes it at once, else it asks the worker to queue
 * in ZooKeeper, and waits.
 *
 * An error may come at any point, and the process may end.  So what a call
 * wants or has got, but does not hold yet, is in "attempt", for
 * attempt_cleanup().  There is one such call at a time.  An outcome that the
 * caller can report is returned; the only errors are PostgreSQL's own (cancel,
 * deadlock, lock_timeout in the lock manager, out of memory or slots), and that
 * a lock is held already, in another way.
 *
 * Any of several locks (acquire_any).  A call wants the slots of all its locks,
 * but for those that its session holds already, takes the first that is
 * available, and leaves the others.  One that is left alone is acquired as
 * zk_lock() does.
 *
 * Tier 1.  A backend can wait for only one heavyweight lock at a time, and
 * must not miss the other locks meanwhile.  So the call takes those that it
 * can have without waiting, and keeps them while it waits: later backends
 * queue behind it.  For the others it has a place in the slot's list of
 * backends, which is in the order of arrival.  It tries again when the slot
 * changes; a few times after that, since a holder drops its slot shortly
 * before its heavyweight lock; and from time to time, since the slot does not
 * show a holder of the lock in the other mode, or a backend that waits for
 * several locks in tier 1.
 *
 * Fairness in the instance.  Of several backends that want any, the first gets
 * the lock.  But the lock manager may grant a heavyweight lock to one that
 * queues for it, and came later.  That one finds it when it looks at the slot
 * (is_behind_any), releases the heavyweight lock, wakes the earlier one, and
 * queues again when that has the lock (ZK_REQUEUE_BEHIND).
 *
 * Tier 2.  All contenders that are needed are asked for in one step (take.c),
 * so the call has a place in each queue.  A slot that the instance owns is
 * taken without asking; of several granted at once, the first in the caller's
 * order.  Then the heavyweight locks of the others are released and their
 * slots are left in one step: another backend that wants one goes on with its
 * contender, and the others are deleted together.
 *
 * Without waiting.  A try ends when another backend or contender is known to
 * be ahead for each lock.  That is not known while another backend that also
 * wants any has the heavyweight lock and ZooKeeper has not answered: it will
 * take one lock only.  (Tries of other instances count as waits, since nothing
 * tells them apart.)
 *
 * Deadlocks.  The call does not wait in the lock manager, so neither
 * PostgreSQL's detector nor the search between instances (worker/waits.c) has
 * an edge from it.  A deadlock by way of it ends by timeout, lock_timeout or
 * cancel.
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
#include "backend/commit.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/reads.h"
#include "backend/timeout.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/holders.h"
#include "shared/outcome.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

/* How long to wait for the owner's name, for the log, in ms. */
#define OWNER_READ_MS	1000

/* How long ZooKeeper may take to answer before it is reported, in ms. */
#define SILENCE_MS			1000

/* How long to let backends that want any of several locks go ahead, in ms. */
#define REQUEUE_WAIT_MS		100

/*
 * How long to wait for a change of a slot, in ms: then readers look again
 * whether a writer still waits behind the others.
 */
#define RECHECK_MS			1000

/* How long to wait before checking again that the session is proved, in ms. */
#define UNPROVED_RECHECK_MS	10

/*
 * The first and the longest pause between looks at what wakes nobody, in ms: a
 * heavyweight lock whose release the slot does not show; a contender that
 * goes.
 */
#define RETRY_FIRST_MS		1
#define RETRY_LAST_MS		100

/* The call under way that acquires locks. */
typedef struct Attempt
{
	int			nlocks;			/* 0: no such call */
	HeldLock  **locks;			/* locks that it acquires, none of them held
								 * yet */
	int			at;				/* the one that it is about: those before it
								 * have been taken; 0 if one is enough */
	ZkOutcome	outcome;		/* counted if the call ends now; ZK_PENDING:
								 * an error */
} Attempt;

static Attempt attempt;

/* The wait of a call, through both tiers. */
typedef struct SlotWait
{
	ZkResult   *result;			/* with the name of the lock waited for */
	bool		immediate;		/* wait behind no one */
	bool		try;			/* a timeout is no error */
	const HeldLock *tier1;		/* the lock whose heavyweight lock we wait
								 * for; or NULL */
	int64		deadline;		/* as of zk_now_ms(), or -1 */
	int64		called_us;		/* as of zk_now_us() */
	int64		called_ms;		/* as of zk_now_ms() */
	const char *queued_name;	/* of the last lock with "queued"; or NULL */

	/* of the present lock, if there are several */
	int64		began_us;		/* as of zk_now_us() */
	bool		queued;			/* a backend or contender was ahead of us
								 * ... */
	bool		in_queue;		/* ... in ZooKeeper: we have a place there */
	bool		asked;			/* the instance did not own it */
	int64		no_session_since;	/* as of zk_now_ms(), or 0 */
	int64		started;		/* start of the second tier, as of
								 * zk_now_ms(); or 0 */
	bool		logged;			/* for log_lock_waits */
	ZkSlot	   *prepared;		/* whose condition variable we wait for */
	uint32		ticket;			/* of proof_ask(), or 0 */
} SlotWait;

/* A call that takes any lock of "attempt". */
typedef struct AnyCall
{
	const ZkRequest *request;
	SlotWait	wait;
	ZkAnyWait	slots;
	bool	   *tier1;			/* by lock: we have the heavyweight lock */
	bool		leaving;		/* a contender of our own is in the way */
	int64		retry_ms;		/* until trying tier 1 again; 0: no need */
} AnyCall;

/* A call begins, for as many locks as this at most. */
static void
attempt_begin(int nlocks)
{
	memset(&attempt, 0, sizeof(attempt));
	attempt.locks = palloc(nlocks * sizeof(HeldLock *));
	attempt.outcome = ZK_PENDING;
}

/* End the call: its locks are held. */
static void
attempt_succeed(void)
{
	zk_unwatch_client();
	attempt.nlocks = attempt.at = 0;
}

/* Give back a lock that has been taken, or want it no longer. */
static void
leave(HeldLock *lock)
{
	ZkProcLock *proc = lock->proc;

	if (proc && proc->granted)
	{
		int64		now = zk_now_us();
		int64		held_us = now - proc->since;
		bool		retained = slot_drop(proc, now);

		stats_release(lock->stats_id, retained, held_us);
	}
	else if (proc)
		slot_unwant(proc);
	lock->proc = NULL;
}

/*
 * Leave all locks of a call that wants any of them, except the one that
 * is now held, if not NULL.
 *
 * The caller has released their heavyweight locks.  "wait" has the slots, in
 * the order of the locks.  Unless there is a winner, attempt_abandon() ends
 * the call.  Does not throw.
 */
static void
attempt_end_any(const ZkAnyWait *wait, HeldLock *winner)
{
	int			but = -1;

	for (int i = 0; i < attempt.nlocks; i++)
		if (attempt.locks[i] == winner)
			but = i;
	slots_unwant_any(wait, but);
	for (int i = 0; i < attempt.nlocks; i++)
	{
		if (i == but)
			continue;
		attempt.locks[i]->proc = NULL;
		if (winner != NULL)
			hold_forget(attempt.locks[i]);
	}
	if (winner != NULL)
		attempt_succeed();
}

/*
 * End the call under way, if any, without its locks.
 *
 * They may have been granted just before the error.  It counts for the lock
 * that the call waited for.  Allocates nothing.
 */
static void
attempt_abandon(void)
{
	for (int i = 0; i < attempt.nlocks; i++)
	{
		HeldLock   *lock = attempt.locks[i];

		if (i == attempt.at && !(lock->proc && lock->proc->granted))
			stats_failure(lock->stats_id, &lock->key, attempt.outcome);
		leave(lock);
		hold_forget(lock);
	}
	attempt_succeed();
}

/* After an error, and at the end of the process. */
static void
attempt_cleanup(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	ConditionVariableCancelSleep(); /* a slot may go */
	attempt_abandon();
}

/*
 * waiting_error_context
 *		The context of an error in a wait, or about its outcome.
 */
void
waiting_error_context(void *name)
{
	errcontext("while waiting for lock \"%s\" in ZooKeeper", (char *) name);
}

/* Does a session of this server hold the lock, in any mode? */
static bool
is_held_here(const HeldLock *lock)
{
	int			npids;

	pfree(slots_holders(&lock->key, &npids));
	return npids > 0;
}

/*
 * A wait is past its time: the state of ZooKeeper as an error detail,
 * palloc'd; NULL if ZooKeeper is not to blame.
 *
 * It is not if it is not asked, nor if this server holds the lock, nor if
 * contenders are ahead and the connection is there.
 */
static char *
describe_outage(const SlotWait *wait)
{
	char	   *outage;
	int64		silent_ms;

	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE)
		return NULL;
	outage = zk_describe_outage();

	/* the check looks through all slots, so it comes second */
	if (outage != NULL && wait->tier1 != NULL && is_held_here(wait->tier1))
		return NULL;
	if (outage != NULL || wait->tier1 != NULL || wait->in_queue ||
		wait->started == 0)
		return outage;
	silent_ms = zk_now_ms() - wait->started;
	if (silent_ms < SILENCE_MS)
		return NULL;
	return psprintf("ZooKeeper has not reported for %lld ms whether another contender is ahead.",
					(long long) silent_ms);
}

/* A call begins, and with it its wait. */
static void
waiting_begin(SlotWait *wait, const ZkRequest *request, ZkResult *result)
{
	memset(result, 0, sizeof(*result));
	result->name = request->name;
	result->key = request->keys;
	memset(wait, 0, sizeof(*wait));
	wait->result = result;
	wait->immediate = request->timeout == 0;
	wait->try = request->try;
	wait->called_us = zk_now_us();
	wait->began_us = wait->called_us;
	wait->called_ms = wait->called_us / 1000;
	wait->deadline = -1;
	if (request->timeout > 0)
		wait->deadline = wait->called_ms + request->timeout;
	if (LockTimeout > 0)
	{
		int64		limit = wait->called_ms + LockTimeout;

		wait->deadline = wait->deadline < 0 ? limit :
			Min(wait->deadline, limit);
	}
}

/*
 * How long a call without a place in the queue may sleep, in ms; 0, for
 * ZK_NO_SESSION, if the session was missing for too long.
 */
static int64
waiting_timeout(SlotWait *wait)
{
	ZkSessionInfo info;
	int64		timeout = zk_timeout_left(wait->called_ms,
										  &wait->no_session_since, &info);

	if (timeout == 0)
	{
		wait->result->session = palloc(sizeof(info));
		*wait->result->session = info;
	}
	return Min(timeout, RECHECK_MS);
}

/* Returns the shorter of two times to sleep; -1 stands for any time. */
static int64
shorter(int64 sleep, int64 other)
{
	return sleep < 0 || (other >= 0 && other < sleep) ? other : sleep;
}

/*
 * How long a wait may sleep after this answer, in ms, before something besides
 * slots must be looked at; 0, for ZK_NO_SESSION, if the session was missing
 * for too long.  A call that has its place needs no session.
 */
static int64
waiting_step(SlotWait *wait, bool has_place, ZkOutcome answer)
{
	int64		sleep = has_place ? RECHECK_MS : waiting_timeout(wait);

	if (answer != ZK_UNPROVED)
		return sleep;
	if (wait->ticket == 0 || proof_is_given(wait->ticket))
		wait->ticket = proof_ask();
	return Min(sleep, UNPROVED_RECHECK_MS);
}

/*
 * All slots are in use: sleep until one may be free.
 *
 * Returns ZK_PENDING, or why the wait is over.  The first call only prepares
 * to sleep; the caller ends the wait by ConditionVariableCancelSleep().
 */
static ZkOutcome
waiting_for_room(SlotWait *wait)
{
	static uint32 wait_event = 0;
	int64		sleep = zk_time_left(wait->deadline);
	int64		timeout;

	wait->asked = true;
	if (sleep == 0)
		return ZK_NOT_IN_TIME;
	timeout = waiting_timeout(wait);
	if (timeout == 0)
		return ZK_NO_SESSION;
	sleep = shorter(sleep, timeout);
	zk_watch_client();
	InvalidateCatalogSnapshotConditionally();
	(void) ConditionVariableTimedSleep(slots_room_cv(), Min(sleep, INT_MAX),
									   ZkWaitEvent(wait_event, "ZkLockRoom"));
	return ZK_PENDING;
}

/*
 * The call ends without a lock: its outcome, and the details for its
 * message.
 */
static void
waiting_fail(const SlotWait *wait, ZkOutcome outcome)
{
	ZkResult   *result = wait->result;
	ZkKey	   *key;

	attempt.outcome = outcome;
	result->outcome = outcome;
	/* the entry of the lock is about to be removed */
	key = palloc(sizeof(ZkKey));
	*key = *result->key;
	result->key = key;
	if (outcome == ZK_NOT_IN_TIME)
		result->outage = describe_outage(wait);
}

static const char *
lock_word(ZnodeKind kind)
{
	return kind == ZNODE_READER ? "shared lock" :
		kind == ZNODE_PERMIT ? "a permit of" : "exclusive lock";
}

/*
 * Has the wait lasted for deadlock_timeout, and must be logged, once, as the
 * lock manager does for log_lock_waits?  If it must later, *sleep is bounded
 * by that time.
 */
static bool
log_is_due(SlotWait *wait, int64 *sleep)
{
	int64		left = wait->started + DeadlockTimeout - zk_now_ms();

	if (!log_lock_waits || wait->logged)
		return false;
	if (left > 0)
		*sleep = shorter(*sleep, left);
	return wait->logged = left <= 0;
}

/* Log which contender blocks us, and what that contender waits for. */
static void
waiting_log(SlotWait *wait, const HeldLock *lock)
{
	StringInfoData owner;
	int64		waited = zk_now_ms() - wait->started;
	int64		left = zk_time_left(wait->deadline);
	bool		known;

	wait->prepared = NULL;		/* a read sleeps on another one */
	initStringInfo(&owner);
	known = !hold_is_of_instance(lock) &&
		read_owner(&lock->key, (int) shorter(left, OWNER_READ_MS), &owner);
	ereport(LOG,
			(errmsg("process %d still waiting for %s \"%s\" in ZooKeeper after %lld ms",
					MyProcPid, lock_word(lock->kind), wait->result->name,
					(long long) waited),
			 known ? errdetail_log("%s", owner.data) : 0));
	pfree(owner.data);
}

/* The end of a wait whose beginning was logged, with this lock. */
static void
waiting_log_end(const SlotWait *wait, const HeldLock *lock)
{
	ZK_FAIL_AT("log");
	if (wait->logged)
		ereport(LOG,
				(errmsg("process %d acquired %s \"%s\" in ZooKeeper after %lld ms",
						MyProcPid, lock_word(lock->kind), wait->result->name,
						(long long) (zk_now_ms() - wait->started))));
}

static void
waiting_callback(void *arg)
{
	const SlotWait *wait = arg;

	if (wait->tier1 != NULL)
		errcontext("while waiting for lock \"%s\" behind another session of this server",
				   wait->result->name);
	else
		waiting_error_context(unconstify(char *, wait->result->name));

	/* lock_timeout, or a deadlock, within the lock manager */
	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		char	   *outage = describe_outage(wait);

		attempt.outcome = ZK_NOT_IN_TIME;
		if (outage != NULL)
			errdetail("%s", outage);
	}
	else if (geterrcode() == ERRCODE_T_R_DEADLOCK_DETECTED)
		attempt.outcome = ZK_DEADLOCKED;
}

static bool
goes_on(ZkOutcome outcome)
{
	return outcome == ZK_PENDING || outcome == ZK_UNPROVED ||
		outcome == ZK_QUEUED;
}

/*
 * Is a claim in the way of a lock that would be taken without ZooKeeper?
 *
 * Then its slot does not tell; and a claim has no heavyweight lock.
 */
static bool
waiting_for_claim(const HeldLock *lock)
{
	return key_is_of_instance(slot_key(lock->proc->slot)) &&
		claim_is_in_way(&lock->key);
}

/* Wait in the lock manager; false: a try that has timed out. */
static bool
wait_tier1(const Heavyweight *lock, const SlotWait *wait)
{
	return wait->try && wait->deadline >= 0 ?
		heavyweight_try_until(lock, wait->deadline) :
		heavyweight_lock(lock, false, true, wait->deadline);
}

/*
 * Wait for the end of all transactions that hold the lock because they use its
 * claim; false if there are none.  Returns with "outcome" as wait_for_slot().
 *
 * We have the heavyweight lock, which they do not have.  So wait for the one
 * that they do have, where the lock manager sees what we wait for.  That is no
 * wait for the slot.
 */
static bool
wait_for_users(SlotWait *wait, const HeldLock *lock, ZkOutcome *outcome)
{
	Heavyweight users;

	if (!claim_has_users(&lock->key))
		return false;
	ConditionVariableCancelSleep();
	wait->prepared = NULL;
	wait->tier1 = lock;
	slot_requeue_tier1(lock->proc);
	heavyweight_set_users(&users, &lock->key, ShareLock);
	*outcome = wait_tier1(&users, wait) ? ZK_PENDING : ZK_NOT_IN_TIME;
	if (*outcome == ZK_PENDING)
		heavyweight_unlock(&users, false, 1);
	wait->tier1 = NULL;
	return true;
}

/*
 * Sleep until the slot has changed, or something else must be looked at.
 * Returns ZK_PENDING, or why the wait is over without success.  The first call
 * for a slot only prepares to sleep: the caller must look at it once more.
 */
static ZkOutcome
wait_for_slot(SlotWait *wait, const HeldLock *lock, ZkOutcome answer)
{
	static uint32 wait_event = 0;
	ZkSlot	   *slot = lock->proc->slot;
	int64		sleep = zk_time_left(wait->deadline);
	int64		step;
	ZkOutcome	outcome;

	wait->asked = true;
	if (answer == ZK_QUEUED)
		wait->queued = wait->in_queue = true;
	if (wait->started == 0)
		wait->started = zk_now_ms();
	if (sleep == 0 || (wait->queued && wait->immediate))
		return ZK_NOT_IN_TIME;
	if (!wait->immediate && wait_for_users(wait, lock, &outcome))
		return outcome;
	step = waiting_step(wait, wait->in_queue, answer);
	if (step == 0)
		return ZK_NO_SESSION;
	sleep = shorter(sleep, step);
	if (log_is_due(wait, &sleep))
		waiting_log(wait, lock);

	if (wait->prepared != slot)
	{
		ConditionVariablePrepareToSleep(slot_cv(slot));
		wait->prepared = slot;
		return ZK_PENDING;
	}
	zk_watch_client();
	InvalidateCatalogSnapshotConditionally();
	(void) ConditionVariableTimedSleep(slot_cv(slot), Min(sleep, INT_MAX),
									   ZkWaitEvent(wait_event, "ZkLockAcquire"));
	CHECK_FOR_INTERRUPTS();
	return ZK_PENDING;
}

/*
 * A call that fails if others are ahead must not fail because of the
 * instance's own contender in the other mode: wait until that is deleted.
 * Returns ZK_PENDING, or the outcome if the contender is not gone in time.
 */
static ZkOutcome
wait_for_other_mode(const HeldLock *lock, SlotWait *wait)
{
	static uint32 wait_event = 0;
	int64		pause = RETRY_FIRST_MS;

	slot_yield_other_mode(lock->proc);
	while (slot_other_mode_leaves(lock->proc))
	{
		int64		left = zk_time_left(wait->deadline);
		int64		timeout = waiting_timeout(wait);

		if (left == 0)
			return ZK_NOT_IN_TIME;
		if (timeout == 0)
			return ZK_NO_SESSION;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) shorter(pause, shorter(timeout, left)),
						 ZkWaitEvent(wait_event, "ZkLockAcquire"));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause = Min(2 * pause, RETRY_LAST_MS);
	}
	return ZK_PENDING;
}

/* Has the call lost one of the locks that it has taken already? */
static bool
has_lost_one(void)
{
	for (int i = 0; i < attempt.at; i++)
		if (!slot_is_mine(attempt.locks[i]->proc))
			return true;
	return false;
}

/*
 * The second tier: take the slot, or have the worker queue for it and wait.
 * Returns the outcome of the wait; ZK_REQUEUE_TIER1 or ZK_REQUEUE_BEHIND mean
 * that both tiers must be repeated, ZK_LOST that the call must begin again.
 *
 * If the instance has a contender in the other mode, give it up: we would wait
 * for it, and it for us, since we have the heavyweight lock and no backend of
 * this instance can take it.  It may come while we wait, so each iteration
 * does this.
 *
 * There is no hold yet when the slot is taken: until then attempt_abandon()
 * gives it back after an error.
 */
static ZkOutcome
take_slot(HeldLock *lock, SlotWait *wait)
{
	ZkOutcome	outcome = ZK_PENDING;

	wait->result->key = &lock->key;
	if (wait->immediate)
		outcome = wait_for_other_mode(lock, wait);
	while (outcome == ZK_PENDING)
	{
		outcome = waiting_for_claim(lock) ? ZK_QUEUED :
			slot_take(lock->proc, lock->permits, wait->result);
		if (!goes_on(outcome))
			break;
		if (slot_read_state(lock->proc->slot) != ZK_SLOT_HELD)
			slot_yield_other_mode(lock->proc);
		outcome = wait_for_slot(wait, lock, outcome);
		if (outcome == ZK_PENDING && has_lost_one())
			outcome = ZK_LOST;
	}
	ConditionVariableCancelSleep();
	return outcome;
}

/* The first tier. */
static bool
acquire_heavyweight(HeldLock *lock, SlotWait *wait)
{
	if (heavyweight_lock(&lock->heavyweight, false, false, -1))
		return true;
	wait->tier1 = lock;
	if (wait->immediate)
		return false;
	wait->queued = true;
	if (lock->heavyweight.mode == ExclusiveLock)
		slot_ask(lock->proc);
	return wait_tier1(&lock->heavyweight, wait);
}

/*
 * Want the slot of the lock; returns ZK_PENDING, or the outcome.
 *
 * Done before the wait for the heavyweight lock, so that a holder hands the
 * slot on.
 */
static ZkOutcome
want_slot(HeldLock *lock, const ZkProcLock *wish, SlotWait *wait)
{
	ZkOutcome	outcome = ZK_PENDING;

	while (outcome == ZK_PENDING &&
		   (lock->proc = slot_want(&lock->key, wish)) == NULL)
		outcome = waiting_for_room(wait);
	ConditionVariableCancelSleep();
	return outcome;
}

/*
 * Make the latest holds of these locks, which are the transaction's, the
 * session's: all or none.
 *
 * Done last, so that an earlier error leaves no hold behind.
 */
static void
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

/* Count a lock that a call has taken.  Does not throw. */
static void
acquire_count(const SlotWait *wait, const HeldLock *lock)
{
	stats_take(lock->stats_id, &lock->key, !wait->asked,
			   lock->proc->retaken, wait->queued,
			   lock->proc->since - wait->began_us);
}

/*
 * Warn, once in a transaction, if its snapshot was taken before the wait for
 * this lock: it does not see what the previous holder has committed.
 */
static void
warn_of_snapshot(const char *name, bool session)
{
	static LocalTransactionId warned_in = InvalidLocalTransactionId;

	if (warned_in == ZkMyLocalTransactionId || !IsolationUsesXactSnapshot() ||
		!FirstSnapshotSet)
		return;
	if (session && !IsTransactionBlock())
		return;					/* the snapshot ends with this statement */
	warned_in = ZkMyLocalTransactionId;
	ZK_FAIL_AT("warn");
	ereport(WARNING,
			(errmsg("the snapshot of this transaction is older than lock \"%s\"",
					name),
			 errdetail("Changes that the previous holder committed under the lock are not visible."),
			 errhint("Use READ COMMITTED, or take a session-scoped lock before BEGIN.")));
}

/*
 * Warn of the first lock of this session that excludes sessions of this server
 * only, and of the first after one that excludes all.
 */
static void
warn_of_exclusion(const HeldLock *lock)
{
	static bool warned = false;
	bool		of_instance = hold_is_of_instance(lock);
	bool		first = of_instance && !warned;

	warned = of_instance;
	if (first)
		ereport(WARNING,
				(errmsg("lock \"%s\" excludes sessions of this server only",
						key_name(&lock->key)),
				 errdetail("\"zklock.exclusion\" is \"instance\": other servers and clients of ZooKeeper may hold the lock at the same time.")));
}

/*
 * Warn of a lock that is taken once more, but excludes no other server, since
 * it was taken at first while zklock.exclusion was "instance".
 */
static void
warn_of_old_hold(const HeldLock *lock)
{
	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE || !hold_is_of_instance(lock))
		return;
	ereport(WARNING,
			(errmsg("lock \"%s\" excludes sessions of this server only",
					key_name(&lock->key)),
			 errdetail("This session has held it since \"zklock.exclusion\" was \"instance\"."),
			 errhint("Release it, and take it again.")));
}

/*
 * Finish a call that holds its locks, of which this is one.  An error
 * ends the holds, too.
 */
static void
acquire_end(const ZkRequest *request, const SlotWait *wait,
			const HeldLock *lock)
{
	warn_of_exclusion(lock);
	if (wait->queued_name)
		warn_of_snapshot(wait->queued_name, request->session);
}

/*
 * A call has taken a lock: let others of this instance ask for it, and
 * log the end of the wait.
 */
static void
acquire_taken(SlotWait *wait, const HeldLock *lock)
{
	ZK_FAIL_AT("ask");
	if (wait->queued)
		wait->queued_name = wait->result->name;
	if (lock->kind == ZNODE_READER)
		slot_ask_for_others(&lock->key);
	waiting_log_end(wait, lock);
}

/*
 * Let backends that wait for the heavyweight lock go ahead.
 *
 * The call waited in ZooKeeper with that lock; it must acquire it again.  No
 * one fails in its place: the deadlock is between other instances and a
 * backend that waits behind the call.
 */
static void
requeue_tier1(const HeldLock *lock, SlotWait *wait)
{
	ereport(DEBUG1,
			(errmsg_internal("process %d waits for lock \"%s\" again behind others of this instance",
							 MyProcPid, wait->result->name)));
	slot_requeue_tier1(lock->proc);
	heavyweight_unlock(&lock->heavyweight, false, 1);
	wait->in_queue = false;
	wait->prepared = NULL;
}

/*
 * Let backends that came before the call, and want any of several locks, get
 * the heavyweight lock.
 *
 * They can get it only while no backend queues for it, so the caller, which
 * has just released it, waits a moment before it queues.  By then they may not
 * want the lock any more, or another backend may have it.
 */
static void
wait_behind(const ZkProcLock *proc)
{
	static uint32 wait_event = 0;
	int64		until = zk_now_ms() + REQUEUE_WAIT_MS;
	int64		left;

	while (slot_call_ahead(proc) && (left = zk_time_left(until)) > 0)
		(void) ConditionVariableTimedSleep(slot_cv(proc->slot), left,
										   ZkWaitEvent(wait_event, "ZkLockAcquire"));
	ConditionVariableCancelSleep();
}

/*
 * Go through both tiers for a lock of "attempt".  Returns the outcome, with
 * *tier1 set to whether the heavyweight lock is held; ZK_LOST means that one
 * of the locks that the call has taken before is lost.
 */
static ZkOutcome
acquire_lock(HeldLock *lock, const ZkRequest *request, SlotWait *wait,
			 bool *tier1)
{
	ZkProcLock	wish = {
		.kind = lock->kind,
		.session = request->session,
		.provisional = attempt.nlocks > 1
	};
	ZkOutcome	outcome;
	bool		has_waited = false;

	*tier1 = false;
	outcome = want_slot(lock, &wish, wait);
	while (outcome == ZK_PENDING)
	{
		*tier1 = acquire_heavyweight(lock, wait);
		if (!*tier1)
			return ZK_NOT_IN_TIME;
		wait->tier1 = NULL;
		outcome = take_slot(lock, wait);
		if (outcome != ZK_REQUEUE_TIER1 && outcome != ZK_REQUEUE_BEHIND)
			break;
		requeue_tier1(lock, wait);
		*tier1 = false;
		if (outcome == ZK_REQUEUE_BEHIND)
		{
			/* once, since a backend that only tries may be gone in a moment */
			if (wait->immediate && has_waited)
				return ZK_NOT_IN_TIME;
			has_waited = true;
			wait->queued = !wait->immediate;
			wait_behind(lock->proc);
		}
		outcome = ZK_PENDING;
	}
	return outcome;
}

/* The wait for the next one of several locks begins. */
static void
waiting_for_next(SlotWait *wait, const HeldLock *lock)
{
	wait->result->key = &lock->key;
	wait->result->name = key_name(&lock->key);
	wait->began_us = zk_now_us();
	wait->no_session_since = wait->started = 0;
	wait->queued = wait->asked = wait->logged = false;
	wait->prepared = NULL;
	wait->ticket = 0;
}

/* Have the locks of "attempt" all been kept, since they were taken? */
static bool
keep_all(void)
{
	ZkProcLock **procs = palloc(attempt.nlocks * sizeof(ZkProcLock *));
	bool		kept;

	for (int i = 0; i < attempt.nlocks; i++)
		procs[i] = attempt.locks[i]->proc;
	kept = slots_keep(procs, attempt.nlocks);
	pfree(procs);
	return kept;
}

/*
 * Take the locks of "attempt" one after the other.  Returns the outcome, with
 * *tier1 as acquire_lock(); ZK_LOST if one was lost before all were taken.
 *
 * The order is that of their paths, which is the same for all callers.  So
 * callers that held nothing before cannot wait for each other in a circle.
 */
static ZkOutcome
acquire_in_order(const ZkRequest *request, SlotWait *wait, bool *tier1)
{
	for (attempt.at = 0; attempt.at < attempt.nlocks; attempt.at++)
	{
		HeldLock   *lock = attempt.locks[attempt.at];
		ZkOutcome	outcome;

		if (request->nkeys > 1)
			waiting_for_next(wait, lock);
		outcome = acquire_lock(lock, request, wait, tier1);
		if (outcome != ZK_ACQUIRED)
			return outcome;
		acquire_count(wait, lock);
		ZK_FAIL_AT("taken");
		acquire_taken(wait, lock);
		wait->in_queue = false;
	}
	return attempt.nlocks == 1 || keep_all() ? ZK_ACQUIRED : ZK_LOST;
}

/*
 * A lock was lost before the call had all: give back those that it has, to
 * begin again.  It waits for a session then as one that has had a place in a
 * queue.
 */
static void
begin_again(SlotWait *wait)
{
	int			ntaken = Min(attempt.at + 1, attempt.nlocks);

	ereport(DEBUG1,
			(errmsg_internal("process %d has lost one of the first %d of %d locks, and begins again",
							 MyProcPid, ntaken, attempt.nlocks)));
	for (int i = 0; i < attempt.nlocks; i++)
		leave(attempt.locks[i]);
	for (int i = 0; i < ntaken; i++)
		heavyweight_unlock(&attempt.locks[i]->heavyweight, false, 1);
	wait->in_queue = !wait->immediate;
	CHECK_FOR_INTERRUPTS();
}

/*
 * If there are several locks: fail (53200) if there cannot be room for all of
 * them.
 */
static void
check_room(ZnodeKind kind)
{
	const ZkKey **keys;

	if (attempt.nlocks == 1)
		return;
	keys = palloc(attempt.nlocks * sizeof(ZkKey *));
	for (int i = 0; i < attempt.nlocks; i++)
		keys[i] = &attempt.locks[i]->key;
	slots_check_room(keys, attempt.nlocks, kind);
	pfree(keys);
}

/*
 * Take the locks in "attempt", which this backend does not hold: all or none.
 *
 * One that has been taken is no hold before all are.  If the call ends without
 * them, they go at once, whatever the transaction has changed: nothing has
 * happened under them.  The error that the caller then reports releases their
 * heavyweight locks.
 */
static ZkOutcome
acquire_attempt(const ZkRequest *request, SlotWait *wait)
{
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = waiting_callback,
		.arg = wait
	};
	bool		tier1;
	ZkOutcome	outcome;

	error_context_stack = &context;
	check_room(request->kind);
	while ((outcome = acquire_in_order(request, wait, &tier1)) == ZK_LOST)
		begin_again(wait);
	if (outcome == ZK_ACQUIRED)
	{
		for (int i = 0; i < attempt.nlocks; i++)
			hold_push(attempt.locks[i], request->kind == ZNODE_READER);
		attempt_succeed();
	}
	else
	{
		waiting_fail(wait, outcome);
		/* a try is no error */
		if (request->try && tier1)
			heavyweight_unlock(&attempt.locks[0]->heavyweight, false, 1);
		attempt_abandon();
	}
	error_context_stack = context.previous;
	return outcome;
}

/*
 * permits_report
 *		Fail (55000): a semaphore has another number of permits.
 */
void
permits_report(const char *name, int permits, int permits_found)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("semaphore \"%s\" is in use with %d permits, not %d",
					name, permits_found, permits),
			 errhint("All users of a semaphore must agree on its number of permits.")));
}

/*
 * Fail (55000; 40001 if it is lost) if the request cannot have one more hold of
 * a lock that this backend holds, and whose key is this one.
 */
static void
check_again(const HeldLock *lock, const ZkKey *key, const ZkRequest *request)
{
	if (!slot_is_mine(lock->proc))
		hold_report_lost(key, false);
	if (request->kind != ZNODE_READER && lock->kind == ZNODE_READER)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot make the shared lock \"%s\" exclusive",
						key_name(key)),
				 errdetail("Two transactions that did so would wait for each other forever."),
				 errhint("Take the exclusive lock first, or release the shared lock first.")));
	if (request->permits != lock->permits)
		permits_report(request->name, request->permits, lock->permits);
	if (key_is_advisory(key) && !key_is_advisory(&lock->key))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is held, but not as an advisory lock",
						key_name(key)),
				 errdetail("It was taken with another value of \"zklock.advisory_namespace\", so it does not exclude sessions that take the advisory lock of this database."),
				 errhint("Release the lock first.")));
	if (request->session && hold_is_of_claim(lock))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot take lock \"%s\" for the session",
						key_name(key)),
				 errdetail("This transaction holds it because of a claim.")));
}

/*
 * Sort the locks of a request: first those that this backend holds already,
 * and can have once more; the others are also noted in "attempt".  Returns how
 * many it holds.
 */
static int
sort_locks(const ZkRequest *request, HeldLock **locks)
{
	int			nagain = 0;

	for (int i = 0; i < request->nkeys; i++)
	{
		HeldLock   *lock = hold_prepare(&request->keys[i], request->kind,
										request->permits);

		if (hold_is_held(lock))
		{
			check_again(lock, &request->keys[i], request);
			locks[nagain++] = lock;
		}
		else
		{
			attempt.locks[attempt.nlocks++] = lock;
			locks[request->nkeys - attempt.nlocks] = lock;
		}
	}
	return nagain;
}

/*
 * acquire_begin
 *		A call begins: install the callbacks, if this process has none.
 *
 * A process that never takes a lock has no callbacks at the end of its
 * transactions.
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
		attached = true;
	}
	commit_check_first();
}

/*
 * acquire_locks
 *		Take the locks of a request, with one more hold of those that this
 *		backend holds already: all or none.
 *
 * Several keys can only be waited for, not tried.  While the call waits for
 * one, it has those before it.  Returns the outcome, which is in *result, too.
 * The caller must report any other than ZK_ACQUIRED as an error, except
 * ZK_NOT_IN_TIME if the request has "try".  The messages of ZK_NO_SESSION and
 * ZK_DENIED have waiting_error_context().
 *
 * Errors: those of check_again(); 55P03 timeout within the lock manager; 53200
 * out of slots; 57014 canceled; 40P01 deadlock within the instance.
 */
ZkOutcome
acquire_locks(const ZkRequest *request, ZkResult *result)
{
	SlotWait	wait;
	HeldLock  **locks = palloc(request->nkeys * sizeof(HeldLock *));
	volatile int nagain;
	volatile bool acquired;

	Assert(!request->try || request->nkeys == 1);
	waiting_begin(&wait, request, result);
	acquire_begin();
	attempt_begin(request->nkeys);
	PG_ENSURE_ERROR_CLEANUP(attempt_cleanup, (Datum) 0);
	{
		nagain = sort_locks(request, locks);
		acquired = nagain == request->nkeys ||
			acquire_attempt(request, &wait) == ZK_ACQUIRED;
	}
	PG_END_ENSURE_ERROR_CLEANUP(attempt_cleanup, (Datum) 0);
	if (!acquired)
		return result->outcome;
	if (nagain < request->nkeys)
		acquire_end(request, &wait, locks[nagain]);

	for (int i = 0; i < nagain; i++)
	{
		/* without waiting, as in acquire_for_session() */
		(void) heavyweight_lock(&locks[i]->heavyweight, false, false, -1);
		hold_push(locks[i], request->kind == ZNODE_READER);
		warn_of_old_hold(locks[i]);
	}
	if (request->session)
		acquire_for_session(locks, request->nkeys);
	return result->outcome = ZK_ACQUIRED;
}

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

/* As waiting_log(). */
static void
log_wait(const SlotWait *wait)
{
	ereport(LOG,
			(errmsg("process %d still waiting for any of %d locks in ZooKeeper after %lld ms",
					MyProcPid, attempt.nlocks,
					(long long) (zk_now_ms() - wait->started)),
			 errdetail_log("The first is \"%s\".", wait->result->name)));
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
	int64		step;
	int			events;

	wait->asked = true;
	if (call->slots.nqueued > 0)
		wait->in_queue = true;
	if (wait->started == 0)
		wait->started = zk_now_ms();
	if (sleep == 0 ||
		(wait->immediate && !call->leaving && answer == ZK_QUEUED))
		return ZK_NOT_IN_TIME;
	step = waiting_step(wait, (wait->in_queue && !wait->immediate) ||
						(answer == ZK_QUEUED && !call->leaving), answer);
	if (step == 0)
		return ZK_NO_SESSION;
	sleep = shorter(sleep, step);
	if (call->leaving)
		sleep = shorter(sleep, UNPROVED_RECHECK_MS);
	if (call->retry_ms > 0)
		sleep = shorter(sleep, call->retry_ms);
	if (log_is_due(wait, &sleep))
		log_wait(wait);

	zk_watch_client();
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
 * backend of this instance can take it in the other mode: see take_slot().
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
any_callback(void *arg)
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
	ZkProcLock	wish = {
		.kind = call->request->kind,
		.session = call->request->session,
		.alternatives = n,
		.tries = call->wait.immediate
	};
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

		outcome = want_slot(lock, &wish, &call->wait);
		if (outcome == ZK_PENDING)
			slots->procs[slots->n++] = lock->proc;
	}
	return outcome;
}

/* Take any of the locks in "attempt". */
static void
any_attempt(AnyCall *call)
{
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = any_callback,
		.arg = call
	};
	ZkOutcome	outcome;

	error_context_stack = &context;
	outcome = want_any(call);
	if (outcome == ZK_PENDING)
		outcome = wait_for_any(call);
	if (outcome == ZK_ACQUIRED)
		hold_any(call, call->slots.which);
	else
		fail_any(call, outcome);
	error_context_stack = context.previous;
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
	int			n;
	const ZkKey **keys = list_not_held(request, &n);

	if (n == 1)
	{
		ZkRequest	one = *request;

		one.keys = keys[0];
		one.nkeys = 1;
		one.name = key_name(keys[0]);
		return acquire_locks(&one, result);
	}
	waiting_begin(&call.wait, request, result);
	if (n == 0)
		return result->outcome = ZK_HELD_ALL;
	acquire_begin();
	attempt_begin(n);
	PG_ENSURE_ERROR_CLEANUP(attempt_cleanup, (Datum) 0);
	{
		for (int i = 0; i < n; i++)
			attempt.locks[attempt.nlocks++] = hold_prepare(keys[i],
														   request->kind, 0);
		any_attempt(&call);
	}
	PG_END_ENSURE_ERROR_CLEANUP(attempt_cleanup, (Datum) 0);
	return result->outcome;
}
