/*-------------------------------------------------------------------------
 *
 * lockmgr.c
 *		What PostgreSQL's lock manager has no function for.
 *
 * The worker reads its queues at one moment.  All its partition locks are held
 * shared meanwhile, as by the view pg_locks: no lock is granted or released,
 * and no process leaves a queue or its lock group.  All else is done with the
 * copy, without them.  A process is waiting if its PGPROC.waitLock says so, as
 * for DeadLockCheck().  Prepared transactions, which wait for nothing, are
 * left out.
 *
 * A backend has a request go ahead of the processes that wait.  The lock
 * manager has a process wait behind those that wait for a mode which conflicts
 * with its own, unless it holds the lock in a mode that they wait for: then it
 * goes ahead of them, and gets at once what no holder conflicts with
 * (ProcSleep(); from 18 on JoinWaitQueue()).  A process that comes to hold a
 * lock together with others, and does not let those wait that wait for all of
 * them, needs the second without the first.  So it says that it holds the lock
 * in such a mode, while it asks for its own.  For others, who may look
 * meanwhile, that is what is true in a moment: they wait for this process,
 * too.  Only two masks are changed, under the lock manager's own lock, and
 * changed back: of what the process holds, and of what is held, which has all
 * that any process holds.  Nothing is counted, so nobody is kept waiting.  The
 * process holds the lock in some weaker mode throughout, so that there is a
 * mask.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/lockmgr.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/compat.h"
#include "shared/lockmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"

static int
pid_of(const PGPROC *proc)
{
	return proc->lockGroupLeader ? proc->lockGroupLeader->pid : proc->pid;
}

/* Copy a lock's queue and its holders. */
static void
copy_queue(Queue *queue, LOCK *lock)
{
	int			room = 0;

	memset(queue, 0, sizeof(*queue));
	queue->tag = lock->tag;
	ZkForEachLockHolder(proclock, lock)
		room++;
	queue->holders = palloc(room * sizeof(QueueHolder));
	queue->waiters = palloc(room * sizeof(QueueWaiter));
	ZkForEachLockHolder(proclock, lock)
	{
		int			pid = pid_of(proclock->tag.myProc);

		if (pid == 0 || proclock->holdMask == 0)
			continue;
		queue->holders[queue->nholders].pid = pid;
		queue->holders[queue->nholders++].modes = proclock->holdMask;
	}

	/* whoever waits has a PROCLOCK, too */
	ZkForEachLockWaiter(proc, lock)
	{
		QueueWaiter *waiter = &queue->waiters[queue->nwaiters++];

		waiter->pid = pid_of(proc);
		waiter->mode = proc->waitLockMode;
		waiter->since = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
	}
}

static HTAB *
make_table(void)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(LOCK *);
	ctl.entrysize = sizeof(LOCK *);
	ctl.hcxt = CurrentMemoryContext;
	return hash_create("zklock queues", 64, &ctl,
					   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * queues_read
 *		The locks that processes wait for: an array, palloc'd in the current
 *		context.
 */
Queue *
queues_read(int *nqueues)
{
	HTAB	   *seen = make_table();
	int			room = 16;
	Queue	   *queues = palloc(room * sizeof(Queue));
	int			n = 0;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		LOCK	   *lock = ProcGlobal->allProcs[i].waitLock;
		bool		found = true;

		if (lock != NULL)
			(void) hash_search(seen, &lock, HASH_ENTER, &found);
		if (found)
			continue;
		if (n == room)
			queues = repalloc_huge(queues, (room *= 2) * sizeof(Queue));
		copy_queue(&queues[n++], lock);
	}
	for (int i = NUM_LOCK_PARTITIONS; --i >= 0;)
		LWLockRelease(LockHashPartitionLockByIndex(i));
	hash_destroy(seen);
	*nqueues = n;
	return queues;
}

/* Set the mask of what is held of a lock in this mode, by what processes say. */
static void
update_grant_mask(LOCK *lock, LOCKMODE mode)
{
	bool		held = lock->granted[mode] > 0;

	ZkForEachLockHolder(proclock, lock)
		held |= (proclock->holdMask & LOCKBIT_ON(mode)) != 0;
	if (held)
		lock->grantMask |= LOCKBIT_ON(mode);
	else
		lock->grantMask &= LOCKBIT_OFF(mode);
}

/*
 * ahead_of_waiters
 *		Let requests of this process go ahead of those that conflict with
 *		"mode", or no longer.  The process holds the lock in another mode.
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
		update_grant_mask(proclock->tag.myLock, mode);
	}
	LWLockRelease(partition);
}
