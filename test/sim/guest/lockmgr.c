/*-------------------------------------------------------------------------
 *
 * lockmgr.c
 *		A stand-in for the lock manager: its queues, soft edges, waitStart, and
 *		its search for deadlocks.
 *
 * Nothing else runs within a function of this file, but where it sleeps or
 * calls sim_point(); PostgreSQL has its partition locks for that.  What it
 * decides is what PostgreSQL's lock.c, proc.c and deadlock.c decide; lock
 * groups and fast paths are left out.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/lockmgr.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "interrupts.h"
#include "miscadmin.h"
#include "shared/lockmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#define MAX_PROCS	64
#define MAX_LOCKS	512
#define MAX_LOCALS	128
#define MAX_OWNERS	32

int			DeadlockTimeout = 1000;
int			LockTimeout = 0;
bool		log_lock_waits = false;

/* A lock in shared memory. */
typedef struct SharedLock
{
	bool		used;
	LOCKTAG		tag;
	LOCKMASK	holds[MAX_PROCS];
	int			nqueue;
	int			queue[MAX_PROCS];	/* numbers of PGPROCs, the first first */
} SharedLock;

/* What this process holds, and in whose name. */
typedef struct LocalLock
{
	bool		used;
	LOCKTAG		tag;
	LOCKMODE	mode;
	int64		n;
	int			nowners;
	struct
	{
		ResourceOwner owner;	/* NULL: the session */
		int64		n;
	}			owners[MAX_OWNERS];
} LocalLock;

static LocalLock *locals;
static int	nlocals;

static LocalLock *awaited = NULL;
static ResourceOwner awaited_owner;

static const LOCKMASK conflicts[] = {
	0,
	LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
	LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(ShareUpdateExclusiveLock) | LOCKBIT_ON(ShareLock) |
	LOCKBIT_ON(ShareRowExclusiveLock) | LOCKBIT_ON(ExclusiveLock) |
	LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(RowExclusiveLock) | LOCKBIT_ON(ShareUpdateExclusiveLock) |
	LOCKBIT_ON(ShareRowExclusiveLock) | LOCKBIT_ON(ExclusiveLock) |
	LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(RowExclusiveLock) | LOCKBIT_ON(ShareUpdateExclusiveLock) |
	LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
	LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(RowShareLock) | LOCKBIT_ON(RowExclusiveLock) |
	LOCKBIT_ON(ShareUpdateExclusiveLock) | LOCKBIT_ON(ShareLock) |
	LOCKBIT_ON(ShareRowExclusiveLock) | LOCKBIT_ON(ExclusiveLock) |
	LOCKBIT_ON(AccessExclusiveLock),
	LOCKBIT_ON(AccessShareLock) | LOCKBIT_ON(RowShareLock) |
	LOCKBIT_ON(RowExclusiveLock) | LOCKBIT_ON(ShareUpdateExclusiveLock) |
	LOCKBIT_ON(ShareLock) | LOCKBIT_ON(ShareRowExclusiveLock) |
	LOCKBIT_ON(ExclusiveLock) | LOCKBIT_ON(AccessExclusiveLock)
};

static const LockMethodData method = {
	.numLockModes = AccessExclusiveLock,
	.conflictTab = conflicts
};

LockMethod
GetLockTagsMethodTable(const LOCKTAG *tag)
{
	(void) tag;
	return &method;
}

static SharedLock *
all_locks(void)
{
	bool		found;

	return instance_shmem(sim_instance(), "lock manager",
						  MAX_LOCKS * sizeof(SharedLock), &found);
}

static SharedLock *
find_lock(const LOCKTAG *tag, bool make)
{
	SharedLock *locks = all_locks();
	SharedLock *unused = NULL;

	for (int i = 0; i < MAX_LOCKS; i++)
	{
		if (locks[i].used && memcmp(&locks[i].tag, tag, sizeof(LOCKTAG)) == 0)
			return &locks[i];
		if (!locks[i].used)
		{
			unused = unused ? unused : &locks[i];
			if (locks[i].tag.locktag_lockmethodid == 0)
				break;			/* those behind were never used */
		}
	}
	if (!make)
		return NULL;
	if (unused == NULL)
		sim_lacks("so many heavyweight locks");
	memset(unused, 0, sizeof(SharedLock));
	unused->used = true;
	unused->tag = *tag;
	return unused;
}

static void
forget_unused(SharedLock *lock)
{
	if (lock->nqueue > 0)
		return;
	for (int i = 0; i < MAX_PROCS; i++)
		if (lock->holds[i] != 0)
			return;
	lock->used = false;
}

static PGPROC *
proc_of(int number)
{
	return &ProcGlobal->allProcs[number];
}

/* Does somebody else hold the lock in a mode that conflicts? */
static bool
is_held_by_others(const SharedLock *lock, LOCKMODE mode, int self)
{
	for (int i = 0; i < MAX_PROCS; i++)
		if (i != self && (lock->holds[i] & conflicts[mode]))
			return true;
	return false;
}

/*
 * Owners.
 */
static LocalLock *
find_local(const LOCKTAG *tag, LOCKMODE mode, bool make)
{
	LocalLock  *unused = NULL;

	for (int i = 0; i < nlocals; i++)
	{
		if (locals[i].used && locals[i].mode == mode &&
			memcmp(&locals[i].tag, tag, sizeof(LOCKTAG)) == 0)
			return &locals[i];
		if (!locals[i].used)
			unused = &locals[i];
	}
	if (!make)
		return NULL;
	if (unused == NULL)
	{
		if (locals == NULL)
			locals = MemoryContextAlloc(TopMemoryContext,
										MAX_LOCALS * sizeof(LocalLock));
		if (nlocals == MAX_LOCALS)
			sim_lacks("so many heavyweight locks of a process");
		unused = &locals[nlocals++];
	}
	memset(unused, 0, sizeof(LocalLock));
	unused->used = true;
	unused->tag = *tag;
	unused->mode = mode;
	return unused;
}

static void
add_owner(LocalLock *local, ResourceOwner owner)
{
	int			i = 0;

	while (i < local->nowners && local->owners[i].owner != owner)
		i++;
	if (i == MAX_OWNERS)
		sim_lacks("so many owners of a heavyweight lock");
	if (i == local->nowners)
	{
		local->owners[i].owner = owner;
		local->owners[i].n = 0;
		local->nowners++;
	}
	local->owners[i].n++;
	local->n++;
}

/* So many holds of an owner go; returns how many went. */
static int64
take_from_owner(LocalLock *local, ResourceOwner owner, int64 n)
{
	for (int i = 0; i < local->nowners; i++)
	{
		int64		taken;

		if (local->owners[i].owner != owner)
			continue;
		taken = Min(n, local->owners[i].n);
		local->owners[i].n -= taken;
		local->n -= taken;
		if (local->owners[i].n == 0)
			local->owners[i] = local->owners[--local->nowners];
		return taken;
	}
	return 0;
}

/*
 * The queue.
 */
static void
remove_from_queue(SharedLock *lock, int number)
{
	for (int i = 0; i < lock->nqueue; i++)
		if (lock->queue[i] == number)
		{
			lock->nqueue--;
			memmove(&lock->queue[i], &lock->queue[i + 1],
					(lock->nqueue - i) * sizeof(int));
			break;
		}
	proc_of(number)->waitLock = NULL;
}

/* Grant the lock to all who can have it. */
static void
wake_waiters(SharedLock *lock)
{
	LOCKMASK	ahead = 0;
	int			queue[MAX_PROCS];
	int			n = lock->nqueue;

	memcpy(queue, lock->queue, n * sizeof(int));
	for (int i = 0; i < n; i++)
	{
		PGPROC	   *proc = proc_of(queue[i]);
		LOCKMODE	mode = proc->waitLockMode;

		if ((conflicts[mode] & ahead) ||
			is_held_by_others(lock, mode, queue[i]))
		{
			ahead |= LOCKBIT_ON(mode);
			continue;
		}
		lock->holds[queue[i]] |= LOCKBIT_ON(mode);
		remove_from_queue(lock, queue[i]);
		proc->waitStatus = PROC_WAIT_STATUS_OK;
		proc->waitStart.value = 0;
		proc->procLatch.is_set = true;
		task_wake(instance_find_main(sim_instance(), queue[i]));
	}
}

/*
 * The search for deadlocks, as in deadlock.c.
 */
typedef struct Edge
{
	int			waiter;
	int			blocker;
	SharedLock *lock;
} Edge;

typedef struct Order
{
	SharedLock *lock;
	int			queue[MAX_PROCS];
} Order;

static int	visited[MAX_PROCS];
static int	nvisited;
static Edge constraints[MAX_PROCS];
static int	nconstraints;
static Order orders[MAX_PROCS];
static int	norders;

static const int *
queue_of(const SharedLock *lock)
{
	for (int i = 0; i < norders; i++)
		if (orders[i].lock == lock)
			return orders[i].queue;
	return lock->queue;
}

static bool
find_cycle_from(int number, Edge *soft, int *nsoft)
{
	PGPROC	   *proc = proc_of(number);
	SharedLock *lock = (SharedLock *) proc->waitLock;
	LOCKMASK	mask;
	const int  *queue;

	for (int i = 0; i < nvisited; i++)
		if (visited[i] == number)
			return i == 0;
	visited[nvisited++] = number;
	if (lock == NULL)
		return false;
	mask = conflicts[proc->waitLockMode];
	for (int i = 0; i < MAX_PROCS; i++)
		if (i != number && (lock->holds[i] & mask) &&
			find_cycle_from(i, soft, nsoft))
			return true;
	queue = queue_of(lock);
	for (int i = 0; i < lock->nqueue && queue[i] != number; i++)
		if ((mask & LOCKBIT_ON(proc_of(queue[i])->waitLockMode)) &&
			find_cycle_from(queue[i], soft, nsoft))
		{
			soft[(*nsoft)++] = (Edge) {number, queue[i], lock};
			return true;
		}
	return false;
}

static bool
find_cycle(int number, Edge *soft, int *nsoft)
{
	nvisited = 0;
	*nsoft = 0;
	return find_cycle_from(number, soft, nsoft);
}

/* Is there a constraint that this one must come ahead of another one left? */
static bool
must_be_ahead(int number, const int *left, int nleft, const SharedLock *lock)
{
	for (int i = 0; i < nconstraints; i++)
	{
		if (constraints[i].lock != lock || constraints[i].waiter != number)
			continue;
		for (int j = 0; j < nleft; j++)
			if (left[j] == constraints[i].blocker)
				return true;
	}
	return false;
}

/* The queue of a lock in an order that the constraints allow. */
static bool
sort_queue(const SharedLock *lock, int *queue)
{
	int			left[MAX_PROCS];
	int			nleft = lock->nqueue;

	memcpy(left, lock->queue, nleft * sizeof(int));
	while (nleft > 0)
	{
		int			last = nleft - 1;

		while (last >= 0 && must_be_ahead(left[last], left, nleft, lock))
			last--;
		if (last < 0)
			return false;
		queue[nleft - 1] = left[last];
		nleft--;
		memmove(&left[last], &left[last + 1], (nleft - last) * sizeof(int));
	}
	return true;
}

static bool
expand_constraints(void)
{
	norders = 0;
	for (int i = nconstraints - 1; i >= 0; i--)
	{
		SharedLock *lock = constraints[i].lock;
		bool		known = false;

		for (int j = 0; j < norders; j++)
			known |= orders[j].lock == lock;
		if (known)
			continue;
		orders[norders].lock = lock;
		if (!sort_queue(lock, orders[norders].queue))
			return false;
		norders++;
	}
	return true;
}

/* -1: a deadlock for sure; else so many soft edges that could be reversed. */
static int
test_configuration(int start, Edge *soft)
{
	Edge		found[MAX_PROCS];
	int			result = 0;
	int			n;

	if (!expand_constraints())
		return -1;
	for (int i = 0; i <= 2 * nconstraints; i++)
	{
		int			number = i == 2 * nconstraints ? start :
			i % 2 == 0 ? constraints[i / 2].waiter : constraints[i / 2].blocker;

		if (!find_cycle(number, found, &n))
			continue;
		if (n == 0)
			return -1;
		memcpy(soft, found, n * sizeof(Edge));
		result = n;
	}
	return result;
}

static bool
is_hard_deadlock(int start)
{
	Edge		soft[MAX_PROCS];
	int			n = test_configuration(start, soft);

	if (n < 0)
		return true;
	if (n == 0)
		return false;
	if (nconstraints >= MAX_PROCS / 2)
		return true;
	for (int i = 0; i < n; i++)
	{
		constraints[nconstraints++] = soft[i];
		if (!is_hard_deadlock(start))
			return false;
		nconstraints--;
	}
	return true;
}

/* Is this process in a deadlock that no other order of the queues resolves? */
static bool
check_for_deadlock(void)
{
	nconstraints = norders = 0;
	if (is_hard_deadlock(MyProc->pgprocno))
		return true;
	for (int i = 0; i < norders; i++)
	{
		memcpy(orders[i].lock->queue, orders[i].queue,
			   orders[i].lock->nqueue * sizeof(int));
		wake_waiters(orders[i].lock);
	}
	return false;
}

static void
report_deadlock(void)
{
	check_deadlock(process_client(sim_process()), true);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected")));
}

/*
 * Waiting.
 */

/* Where to queue; -1: the lock can be had at once, -2: a deadlock. */
static int
place_in_queue(const SharedLock *lock, LOCKMODE mode)
{
	LOCKMASK	own = lock->holds[MyProc->pgprocno];
	LOCKMASK	ahead = 0;

	for (int i = 0; own != 0 && i < lock->nqueue; i++)
	{
		int			number = lock->queue[i];
		LOCKMODE	other = proc_of(number)->waitLockMode;

		if (conflicts[other] & own)
		{
			if (conflicts[mode] & lock->holds[number])
				return -2;
			if ((conflicts[mode] & ahead) == 0 &&
				!is_held_by_others(lock, mode, MyProc->pgprocno))
				return -1;
			return i;
		}
		ahead |= LOCKBIT_ON(other);
	}
	return lock->nqueue;
}

/* The process sleeps until it has the lock; errors leave "awaited" set. */
static void
sleep_in_queue(SharedLock *lock)
{
	int64		start = guest_now();
	int64		deadlock_at = start + DeadlockTimeout * INT64CONST(1000);
	int64		timeout_at = LockTimeout > 0 ?
		start + LockTimeout * INT64CONST(1000) : -1;

	sim_point();
	if (MyProc->waitStatus == PROC_WAIT_STATUS_WAITING)
		MyProc->waitStart.value = GetCurrentTimestamp();
	while (MyProc->waitStatus == PROC_WAIT_STATUS_WAITING)
	{
		int64		until = -1;
		int64		now = guest_now();

		if (deadlock_at >= 0 && now >= deadlock_at)
		{
			deadlock_at = -1;
			if (check_for_deadlock())
			{
				remove_from_queue(lock, MyProc->pgprocno);
				MyProc->waitStatus = PROC_WAIT_STATUS_ERROR;
				break;
			}
			continue;
		}
		if (timeout_at >= 0 && now >= timeout_at)
		{
			timeout_at = -1;
			lock_timeout_strike();
		}
		if (deadlock_at >= 0)
			until = deadlock_at;
		if (timeout_at >= 0 && (until < 0 || timeout_at < until))
			until = timeout_at;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
						 (until < 0 ? 0 : WL_TIMEOUT),
						 until < 0 ? -1 : (long) ((until - now + 999) / 1000),
						 PG_WAIT_LOCK | 10);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	MyProc->waitStart.value = 0;
	if (MyProc->waitStatus == PROC_WAIT_STATUS_ERROR)
	{
		wake_waiters(lock);
		forget_unused(lock);
		awaited->used = awaited->n > 0;
		awaited = NULL;
		report_deadlock();
	}
}

/* LockErrorCleanup(): the process does not wait any more. */
void
lockmgr_cleanup(void)
{
	SharedLock *lock;

	lock_timeout_struck = false;
	if (awaited == NULL)
		return;
	lock = find_lock(&awaited->tag, false);
	MyProc->waitStart.value = 0;
	if (MyProc->waitLock != NULL)
	{
		remove_from_queue(lock, MyProc->pgprocno);
		wake_waiters(lock);
		forget_unused(lock);
		awaited->used = awaited->n > 0;
	}
	else if (MyProc->waitStatus == PROC_WAIT_STATUS_OK)
		add_owner(awaited, awaited_owner);
	awaited = NULL;
}

LockAcquireResult
LockAcquire(const LOCKTAG *tag, LOCKMODE mode, bool sessionLock, bool dontWait)
{
	ResourceOwner owner = sessionLock ? NULL : CurrentResourceOwner;
	LocalLock  *local = find_local(tag, mode, true);
	SharedLock *lock;
	LOCKMASK	waited_for = 0;
	int			self = MyProc->pgprocno;
	int			place;

	if (local->n > 0)
	{
		add_owner(local, owner);
		return LOCKACQUIRE_ALREADY_HELD;
	}
	sim_point();
	lock = find_lock(tag, true);
	for (int i = 0; i < lock->nqueue; i++)
		waited_for |= LOCKBIT_ON(proc_of(lock->queue[i])->waitLockMode);
	if ((conflicts[mode] & waited_for) == 0 &&
		!is_held_by_others(lock, mode, self))
		place = -1;
	else if (dontWait)
	{
		local->used = false;
		forget_unused(lock);
		return LOCKACQUIRE_NOT_AVAIL;
	}
	else
		place = place_in_queue(lock, mode);
	if (place == -2)
	{
		local->used = false;
		report_deadlock();
	}
	if (place == -1)
	{
		lock->holds[self] |= LOCKBIT_ON(mode);
		add_owner(local, owner);
		sim_point();
		return LOCKACQUIRE_OK;
	}
	memmove(&lock->queue[place + 1], &lock->queue[place],
			(lock->nqueue - place) * sizeof(int));
	lock->queue[place] = self;
	lock->nqueue++;
	MyProc->waitLock = (LOCK *) lock;
	MyProc->waitLockMode = mode;
	MyProc->waitStatus = PROC_WAIT_STATUS_WAITING;
	awaited = local;
	awaited_owner = owner;
	sleep_in_queue(lock);
	add_owner(awaited, owner);
	awaited = NULL;
	return LOCKACQUIRE_OK;
}

/* The process has no hold in this mode any more. */
static void
give_up(LocalLock *local)
{
	SharedLock *lock = find_lock(&local->tag, false);

	local->used = false;
	lock->holds[MyProc->pgprocno] &= ~LOCKBIT_ON(local->mode);
	wake_waiters(lock);
	forget_unused(lock);
}

bool
LockRelease(const LOCKTAG *tag, LOCKMODE mode, bool sessionLock)
{
	LocalLock  *local = find_local(tag, mode, false);

	if (local == NULL || local->n == 0 ||
		take_from_owner(local, sessionLock ? NULL : CurrentResourceOwner, 1) == 0)
	{
		ereport(WARNING,
				(errmsg_internal("you don't own a lock of type %d", mode)));
		return false;
	}
	if (local->n == 0)
		give_up(local);
	sim_point();
	return true;
}

bool
LockHeldByMe(const LOCKTAG *tag, LOCKMODE mode)
{
	LocalLock  *local = find_local(tag, mode, false);

	return local && local->n > 0;
}

void
LockReleaseSession(LOCKMETHODID method_id)
{
	for (int i = 0; i < nlocals; i++)
		if (locals[i].used && locals[i].tag.locktag_lockmethodid == method_id &&
			take_from_owner(&locals[i], NULL, INT64_MAX) > 0 &&
			locals[i].n == 0)
			give_up(&locals[i]);
}

/* A subtransaction ends: its locks go, or become its parent's. */
void
lockmgr_release_owner(ResourceOwner owner, bool commit)
{
	for (int i = 0; i < nlocals; i++)
	{
		int64		n = locals[i].used ?
			take_from_owner(&locals[i], owner, INT64_MAX) : 0;

		for (int64 j = 0; commit && j < n; j++)
			add_owner(&locals[i], ResourceOwnerGetParent(owner));
		if (n > 0 && locals[i].n == 0)
			give_up(&locals[i]);
	}
}

/* All go, or all but the session's. */
void
lockmgr_release_all(bool session_too)
{
	for (int i = 0; i < nlocals; i++)
	{
		int64		kept = 0;

		if (!locals[i].used)
			continue;
		if (!session_too)
			kept = take_from_owner(&locals[i], NULL, INT64_MAX);
		locals[i].nowners = 0;
		locals[i].n = 0;
		for (int64 j = 0; j < kept; j++)
			add_owner(&locals[i], NULL);
		if (kept == 0)
			give_up(&locals[i]);
	}
}

/* As src/shared/lockmgr.c does. */
void
ahead_of_waiters(const LOCKTAG *tag, LOCKMODE mode, bool ahead)
{
	LOCKMASK   *own = &find_lock(tag, false)->holds[MyProc->pgprocno];

	if (ahead)
		*own |= LOCKBIT_ON(mode);
	else
		*own &= LOCKBIT_OFF(mode);
}

/* As src/shared/lockmgr.c does. */
Queue *
queues_read(int *nqueues)
{
	SharedLock *locks = all_locks();
	Queue	   *queues = palloc0(MAX_LOCKS * sizeof(Queue));

	sim_point();
	*nqueues = 0;
	for (int i = 0; i < MAX_LOCKS; i++)
	{
		Queue	   *queue = &queues[*nqueues];

		if (!locks[i].used || locks[i].nqueue == 0)
			continue;
		(*nqueues)++;
		queue->tag = locks[i].tag;
		queue->waiters = palloc(MAX_PROCS * sizeof(QueueWaiter));
		queue->holders = palloc(MAX_PROCS * sizeof(QueueHolder));
		for (int j = 0; j < locks[i].nqueue; j++)
		{
			PGPROC	   *proc = proc_of(locks[i].queue[j]);

			queue->waiters[queue->nwaiters++] = (QueueWaiter)
			{
				proc->pid, proc->waitLockMode, proc->waitStart.value
			};
		}
		for (int j = 0; j < MAX_PROCS; j++)
			if (locks[i].holds[j] != 0)
				queue->holders[queue->nholders++] = (QueueHolder)
			{
				proc_of(j)->pid, locks[i].holds[j]
			};
	}
	return queues;
}

/* The lock manager's part of a row that is locked: see backend.c. */
void
LockSharedObject(Oid classid, Oid objid, uint16 objsubid, LOCKMODE lockmode)
{
	(void) classid;
	(void) objid;
	(void) objsubid;
	(void) lockmode;
	SIM_LACKS();
}

void
UnlockSharedObject(Oid classid, Oid objid, uint16 objsubid, LOCKMODE lockmode)
{
	(void) classid;
	(void) objid;
	(void) objsubid;
	(void) lockmode;
	SIM_LACKS();
}
