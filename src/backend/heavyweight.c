/*-------------------------------------------------------------------------
 *
 * heavyweight.c
 *		The first tier of a lock: PostgreSQL's lock manager.
 *
 * The backends of an instance queue for a heavyweight lock on a hash of the
 * lock's path, as for any of PostgreSQL's: with pg_locks, lock_timeout,
 * cancel, the deadlock detector.  That lock is the same in all databases.
 *
 * A lock that stands for PostgreSQL's advisory lock of this database takes
 * that one second, so that it excludes sessions that take it from PostgreSQL.
 * The functions here take and release both.
 *
 * Each is acquired once for each hold, in the name of the session, or of the
 * current (sub)transaction rather than the portal, so that a later statement
 * can release it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/heavyweight.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "backend/heavyweight.h"
#include "backend/timeout.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/lockmgr.h"
#include "storage/proc.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/*
 * heavyweight_set
 *		Set the heavyweight locks of the lock with this key and path.
 */
void
heavyweight_set(Heavyweight *lock, const ZkKey *key, const char *path,
				LOCKMODE mode)
{
	key_tag(key, path, &lock->tags[0]);
	lock->ntags = key_advisory_tag(key, &lock->tags[1]) ? 2 : 1;
	lock->mode = mode;
}

/*
 * heavyweight_set_users
 *		Set the heavyweight lock of the transactions that hold the lock with
 *		this key because they use its claim: RowExclusiveLock for them, and
 *		ShareLock for those who wait for all of them.
 */
void
heavyweight_set_users(Heavyweight *lock, const ZkKey *key, LOCKMODE mode)
{
	char		path[ZNODE_PATH_SIZE];

	key_path(key, path);
	key_users_tag(key, path, &lock->tags[0]);
	lock->ntags = 1;
	lock->mode = mode;
}

/* Release the first "n" heavyweight locks of the lock. */
static void
release_first(const Heavyweight *lock, int n, bool session)
{
	while (n-- > 0)
		(void) LockRelease(&lock->tags[n], lock->mode, session);
}

/* The lock_timeout that ends at a deadline; 0 would be none. */
static int
timeout_until(int64 deadline)
{
	int64		left = zk_time_left(deadline);

	return (int) Min(Max(left, 1), INT_MAX);
}

/* Acquire the heavyweight locks in order; *n counts those acquired. */
static void
acquire_in_order(const Heavyweight *lock, bool session, bool wait,
				 int64 deadline, volatile int *n)
{
	for (*n = 0; *n < lock->ntags; (*n)++)
	{
		if (deadline >= 0)
			LockTimeout = timeout_until(deadline);
		if (LockAcquire(&lock->tags[*n], lock->mode, session, !wait) ==
			LOCKACQUIRE_NOT_AVAIL)
			break;
	}
}

/*
 * heavyweight_lock
 *		Acquire the lock, in the name of the session or of the transaction.
 *
 * "deadline" (as of zk_now_ms(), or -1) replaces lock_timeout.  Returns false
 * if not "wait", and another backend has the lock.
 *
 * Errors: those of LockAcquire(), 55P03 among them if the deadline has passed.
 */
bool
heavyweight_lock(const Heavyweight *lock, bool session, bool wait,
				 int64 deadline)
{
	ResourceOwner save_owner = CurrentResourceOwner;
	int			save_timeout = LockTimeout;
	volatile int n = 0;

	if (wait)
	{
		InvalidateCatalogSnapshotConditionally();
		zk_watch_client();
	}
	PG_TRY();
	{
		CurrentResourceOwner = CurTransactionResourceOwner;
		acquire_in_order(lock, session, wait, deadline, &n);
	}
	PG_FINALLY();
	{
		if (n < lock->ntags)
			release_first(lock, n, session);
		CurrentResourceOwner = save_owner;
		LockTimeout = save_timeout;
		zk_unwatch_client();
	}
	PG_END_TRY();
	return n == lock->ntags;
}

/*
 * heavyweight_lock_ahead
 *		As heavyweight_lock(), in the name of the transaction, for a lock that
 *		is held in modes that do not conflict: ahead of all that wait for it.
 *
 * "mode" is RowExclusiveLock, and those that wait do so for ShareLock.
 */
void
heavyweight_lock_ahead(const Heavyweight *lock)
{
	Heavyweight weak = *lock;

	Assert(lock->ntags == 1 && lock->mode == RowExclusiveLock);
	if (heavyweight_lock(lock, false, false, -1))
		return;
	weak.mode = AccessShareLock;
	(void) heavyweight_lock(&weak, false, true, -1);

	/*
	 * A process that is terminated here would release a mode that it does not
	 * hold.  The wait is short: those that get ShareLock release it at once.
	 */
	HOLD_INTERRUPTS();
	ahead_of_waiters(&lock->tags[0], ShareUpdateExclusiveLock, true);
	PG_TRY();
	{
		(void) heavyweight_lock(lock, false, true, -1);
	}
	PG_FINALLY();
	{
		ahead_of_waiters(&lock->tags[0], ShareUpdateExclusiveLock, false);
	}
	PG_END_TRY();
	RESUME_INTERRUPTS();
	heavyweight_unlock(&weak, false, 1);
}

/*
 * heavyweight_try_until
 *		Wait for the lock in the name of the transaction; false if the deadline
 *		has passed.
 *
 * The lock manager reports a timeout as an error, so this uses a
 * subtransaction.
 */
bool
heavyweight_try_until(const Heavyweight *lock, int64 deadline)
{
	MemoryContext save_context = CurrentMemoryContext;
	ResourceOwner save_owner = CurrentResourceOwner;
	volatile bool got = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		got = heavyweight_lock(lock, false, true, deadline);

		/* the timeout may have come just when the lock was granted */
		CHECK_FOR_INTERRUPTS();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(save_context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(save_context);
		CurrentResourceOwner = save_owner;
		if (edata->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(edata);
		FreeErrorData(edata);
		got = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(save_context);
	CurrentResourceOwner = save_owner;
	return got;
}

/*
 * heavyweight_unlock
 *		Release the lock so many times, in the name of the session or of the
 *		transaction.
 *
 * Stops for each heavyweight lock when it is no longer held in that name:
 * pg_advisory_unlock_all() releases all that the session has, and
 * pg_advisory_unlock() the advisory lock.  The lock manager warns if the lock
 * is held in the other name.
 */
void
heavyweight_unlock(const Heavyweight *lock, bool session, int64 times)
{
	ResourceOwner save_owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	for (int i = lock->ntags - 1; i >= 0; i--)
	{
		const LOCKTAG *tag = &lock->tags[i];

		for (int64 left = times; left > 0; left--)
			if (!ZkLockHeldByMe(tag, lock->mode) ||
				!LockRelease(tag, lock->mode, session))
				break;
	}
	CurrentResourceOwner = save_owner;
}
