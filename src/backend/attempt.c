/*-------------------------------------------------------------------------
 *
 * attempt.c
 *		The call under way that acquires locks.
 *
 * An error may come at any point.  So what the call wants or has got, but does
 * not hold yet, is noted here for the callbacks that clean up at the end of
 * the (sub)transaction.  There is one such call at a time.
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
#include "backend/holds.h"
#include "shared/clock.h"
#include "shared/lock_stats.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "utils/memutils.h"

/* acquire.c changes this as the call goes on; all else changes here only */
Attempt		attempt;

static int	maxlocks = 0;		/* room in attempt.locks */
static SubTransactionId attempt_subid = InvalidSubTransactionId;

/*
 * attempt_make_room
 *		Make room for so many locks, before attempt_add().
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
	attempt.outcome = ZK_PENDING;
}

/*
 * attempt_succeed
 *		End the call: its locks are held.
 */
void
attempt_succeed(void)
{
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

		stats_count_release(retained, held_us);
		lock_stats_release(lock->stats_id, retained, held_us);
	}
	else if (proc)
		slot_unwant(proc);
	lock->proc = NULL;
}

/*
 * attempt_give_back
 *		Give back what has been taken.  The call goes on.
 */
void
attempt_give_back(void)
{
	for (int i = 0; i < attempt.nlocks; i++)
		leave(attempt.locks[i]);
}

/*
 * attempt_end_any
 *		Leave all locks of a call that wants any of them, except the one that
 *		is now held, if not NULL.
 *
 * The caller has released their heavyweight locks.  "wait" has the slots, in
 * the order of the locks.  Unless there is a winner, attempt_abandon() ends
 * the call.  Does not throw.
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
 *		End the call under way, if any, without its locks.
 *
 * They may have been granted just before the error.  It counts for the lock
 * that the call waited for.  Allocates nothing.
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

		if (i == attempt.at && !(lock->proc && lock->proc->granted))
		{
			stats_count_failure(attempt.outcome);
			lock_stats_failure(lock->stats_id, &lock->key, attempt.outcome);
		}
		leave(lock);
		hold_forget(lock);
	}
	attempt_succeed();
}

/*
 * attempt_end_transaction
 *		As attempt_abandon(), at the end of a transaction.
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
	/* that of heavyweight_try_until() is another one */
	if (event == SUBXACT_EVENT_ABORT_SUB && attempt_subid == subid)
		attempt_abandon();
}

/*
 * attempt_attach
 *		Install callbacks, before the first lock of this process.
 */
void
attempt_attach(void)
{
	RegisterSubXactCallback(abort_subxact_callback, NULL);
}
