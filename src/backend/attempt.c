/*-------------------------------------------------------------------------
 *
 * attempt.c
 *		The call under way that acquires locks.
 *
 * An error may come at any point of it.  So all that the call wants or has got,
 * but does not hold yet, is noted here, where the callbacks for the end of the
 * (sub)transaction find it and clean up.  There is one such call at a time.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/attempt.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/attempt.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/patience.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/lock_stats.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* How long to let others go ahead that want any of several locks, in ms. */
#define GIVE_WAY_MS		100

/* What acquire.c changes as the call goes on; the rest changes here only. */
Attempt		attempt = {.failure = ZK_FAILURE_ERROR};

static int	maxlocks = 0;		/* room in attempt.locks */
static SubTransactionId attempt_subid = InvalidSubTransactionId;

/*
 * attempt_make_room
 *		Have room for so many locks, ahead of attempt_add().
 */
void
attempt_make_room(int nlocks)
{
	if (nlocks <= maxlocks)
		return;
	if (attempt.locks == NULL)
		attempt.locks = MemoryContextAlloc(TopMemoryContext,
										   nlocks * sizeof(HeldLock *));
	else
		attempt.locks = repalloc(attempt.locks, nlocks * sizeof(HeldLock *));
	maxlocks = nlocks;
}

/*
 * attempt_add
 *		Note that the call under way acquires this lock, which is not held yet.
 *
 * There is room for it.
 */
void
attempt_add(HeldLock *lock)
{
	Assert(attempt.nlocks < maxlocks);
	attempt.locks[attempt.nlocks++] = lock;
	attempt_subid = GetCurrentSubTransactionId();
	attempt.failure = ZK_FAILURE_ERROR;
}

/*
 * attempt_step_back
 *		Let those go ahead that wait for the heavyweight locks of the call.
 *
 * The call waited in ZooKeeper for the lock of this name, and has the heavyweight
 * locks of all; it must acquire them again.  Nobody was to fail in its place:
 * the deadlock is between other clusters and one that waits behind the call.
 */
void
attempt_step_back(const char *name)
{
	ereport(DEBUG1,
			(errmsg_internal("process %d waits for lock \"%s\" again behind others of this cluster",
							 MyProcPid, name)));
	for (int i = 0; i < attempt.nlocks; i++)
	{
		HeldLock   *lock = attempt.locks[i];

		slot_step_back(lock->proc);
		heavyweight_unlock(&lock->heavyweight, false, 1);
	}
}

/*
 * attempt_give_way
 *		Let those get the heavyweight locks of the call that came before it, and
 *		want any of several locks.
 *
 * They can be granted a heavyweight lock only while nobody queues for it, so
 * the caller, who has just released its own, does not do that for a moment; but
 * then they may not want it any more, or somebody else may have it.
 */
void
attempt_give_way(void)
{
	static uint32 wait_event = 0;
	int64		until = zk_now_ms() + GIVE_WAY_MS;

	for (int i = 0; i < attempt.nlocks; i++)
	{
		ZkProcLock *proc = attempt.locks[i]->proc;
		int64		left;

		while (slot_call_ahead(proc) && (left = zk_time_left(until)) > 0)
			(void) ConditionVariableTimedSleep(slot_cv(proc->slot), left,
											   ZkWaitEvent(wait_event, "ZkLockAcquire"));
		ConditionVariableCancelSleep();
	}
}

/*
 * attempt_succeed
 *		End the call: its locks are held.
 */
void
attempt_succeed(void)
{
	attempt.nlocks = 0;
	attempt.any = false;
}

/*
 * attempt_end_any
 *		Leave all locks of a call that wants any of them but the one that is
 *		held now, or NULL.
 *
 * The caller has released their heavyweight locks.  "wait" has the slots, in
 * the order of the locks.  Unless there is a winner, attempt_abandon() ends the
 * call.  Does not throw.
 */
void
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
 * attempt_abandon
 *		End the call under way, if there is one, without its locks.
 *
 * It may have been granted them, if an error came right then.  Allocates
 * nothing.
 */
void
attempt_abandon(void)
{
	if (attempt.other)
		slot_unwant(attempt.other);
	attempt.other = NULL;
	for (int i = 0; i < attempt.nlocks; i++)
	{
		HeldLock   *lock = attempt.locks[i];

		if (lock->proc && lock->proc->granted)
			slot_drop(lock->proc, zk_now_us());
		else if (lock->proc)
			slot_unwant(lock->proc);
		/* one wait was ended, whatever the number of locks */
		if (i == 0 || (attempt.failure != ZK_FAILURE_DEADLOCK && !attempt.any))
		{
			stats_count_failure(attempt.failure);
			lock_stats_failure(lock->stats_id, &lock->key, attempt.failure);
		}
		hold_forget(lock);
	}
	attempt_succeed();
}

/*
 * attempt_end_transaction
 *		The same at the end of a transaction.
 */
void
attempt_end_transaction(void)
{
	attempt_abandon();
	attempt.snapshot_warned = false;
}

static void
abort_subxact_callback(SubXactEvent event, SubTransactionId subid,
					   SubTransactionId parent pg_attribute_unused(),
					   void *arg pg_attribute_unused())
{
	/* the subtransaction of heavyweight_try_until() is another one */
	if (event == SUBXACT_EVENT_ABORT_SUB && attempt_subid == subid)
		attempt_abandon();
}

/*
 * attempt_attach
 *		Install callbacks, ahead of the first lock of this process.
 */
void
attempt_attach(void)
{
	RegisterSubXactCallback(abort_subxact_callback, NULL);
}

/*
 * attempt_warn_of_snapshot
 *		Warn, once in a transaction, if its snapshot was taken ahead of the wait
 *		for this lock: it does not see what the previous holder has committed.
 */
void
attempt_warn_of_snapshot(const char *name, bool session)
{
	if (attempt.snapshot_warned || !IsolationUsesXactSnapshot() ||
		!FirstSnapshotSet)
		return;
	if (session && !IsTransactionBlock())
		return;					/* the snapshot ends with this statement */
	attempt.snapshot_warned = true;
	ZK_FAIL_AT("warn");
	ereport(WARNING,
			(errmsg("the snapshot of this transaction is older than lock \"%s\"",
					name),
			 errdetail("Changes that the previous holder committed under the lock are not visible."),
			 errhint("Use READ COMMITTED, or take a session-scoped lock before BEGIN.")));
}
