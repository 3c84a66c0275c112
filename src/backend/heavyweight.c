/*-------------------------------------------------------------------------
 *
 * heavyweight.c
 *		The first tier of a lock: PostgreSQL's lock manager.
 *
 * The backends of a cluster queue for a heavyweight lock on a hash of the lock's
 * path, with all that PostgreSQL gives it: pg_locks, lock_timeout, cancel, the
 * deadlock detector.
 *
 * It is acquired once for each hold, in the name of the session, or of the
 * current (sub)transaction rather than of the portal, so that a later
 * statement can release it.
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
#include "backend/patience.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "storage/proc.h"
#include "utils/resowner.h"

/*
 * heavyweight_lock
 *		Acquire the lock, in the name of the session or of the transaction.
 *
 * "deadline" (of zk_now_ms(), or -1) is in place of lock_timeout.  Returns false
 * if not "wait", and the lock is taken.
 *
 * Errors: those of LockAcquire(), 55P03 among them if the deadline has passed.
 */
bool
heavyweight_lock(const LOCKTAG *tag, LOCKMODE mode, bool session, bool wait,
				 int64 deadline)
{
	ResourceOwner save_owner = CurrentResourceOwner;
	int			save_timeout = LockTimeout;
	LockAcquireResult result;

	PG_TRY();
	{
		CurrentResourceOwner = CurTransactionResourceOwner;
		if (deadline >= 0)
			LockTimeout = (int) Min(Max(zk_time_left(deadline), 1), INT_MAX);
		result = LockAcquire(tag, mode, session, !wait);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = save_owner;
		LockTimeout = save_timeout;
	}
	PG_END_TRY();
	return result != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * heavyweight_try_until
 *		Wait for the lock in the name of the transaction; false if the deadline
 *		has passed.
 *
 * The lock manager knows a timeout only as an error, so this takes a
 * subtransaction.
 */
bool
heavyweight_try_until(const LOCKTAG *tag, LOCKMODE mode, int64 deadline)
{
	MemoryContext save_context = CurrentMemoryContext;
	ResourceOwner save_owner = CurrentResourceOwner;
	volatile bool got = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		got = heavyweight_lock(tag, mode, false, true, deadline);

		/* the timeout may have struck when the lock was just granted */
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
 * Stops when it is not held in that name any more: pg_advisory_unlock_all()
 * takes away what the session has.  The lock manager warns of that if it is held
 * in the other name.
 */
void
heavyweight_unlock(const LOCKTAG *tag, LOCKMODE mode, bool session,
				   int64 times)
{
	ResourceOwner save_owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	while (times-- > 0 && ZkLockHeldByMe(tag, mode) &&
		   LockRelease(tag, mode, session))
		;
	CurrentResourceOwner = save_owner;
}
