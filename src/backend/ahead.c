/*-------------------------------------------------------------------------
 *
 * ahead.c
 *		A heavyweight lock ahead of the processes that wait for it.
 *
 * PostgreSQL's lock manager has a process wait behind those that wait for a
 * mode which conflicts with its own, unless it holds the lock in a mode that
 * they wait for: then it goes ahead of them, and gets at once what no holder
 * conflicts with (ProcSleep(); from 18 on JoinWaitQueue()).  A process that
 * comes to hold a lock together with others, and does not let those wait that
 * wait for all of them, needs the second without the first.  So it says that
 * it holds the lock in such a mode, while it asks for its own.  For others,
 * who may look meanwhile, that is what is true in a moment: they wait for this
 * process, too.
 *
 * Only the mask of what the process holds is changed, under the lock manager's
 * own lock, and changed back; nothing is counted.  The process holds the lock
 * in some weaker mode throughout, so that there is a mask.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/ahead.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/ahead.h"
#include "shared/compat.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

/*
 * ahead_of_waiters
 *		Have requests of this process go ahead of those that conflict with
 *		"mode", or stop that.  The process holds the lock in another mode.
 */
void
ahead_of_waiters(const LOCKTAG *tag, LOCKMODE mode, bool ahead)
{
	uint32		hash = LockTagHashCode(tag);
	LWLock	   *partition = LockHashPartitionLock(hash);

	LWLockAcquire(partition, LW_EXCLUSIVE);
	ZkForEachProcLock(proclock, MyProc, LockHashPartition(hash))
	{
		if (memcmp(&proclock->tag.myLock->tag, tag, sizeof(LOCKTAG)) != 0)
			continue;
		if (ahead)
			proclock->holdMask |= LOCKBIT_ON(mode);
		else
			proclock->holdMask &= LOCKBIT_OFF(mode);
	}
	LWLockRelease(partition);
}
