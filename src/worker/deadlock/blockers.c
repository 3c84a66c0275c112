/*-------------------------------------------------------------------------
 *
 * blockers.c
 *		Who waits for whom in the lock manager.
 *
 * This is a graph, for one scan, of the server's processes that wait for
 * heavyweight locks.  As in pg_blocking_pids(), a process is blocked by those
 * that hold the lock in a conflicting mode, and by those before it in the
 * queue that want it in one.  The processes of a lock group count as one, by
 * its leader's PID.  Prepared transactions have no process, and lead nowhere.
 *
 * A wait counts when it has lasted for deadlock_timeout, by the samples of
 * ages.c.  One whose beginning the process has not noted yet does not.
 *
 * GetBlockerStatusData(), which shows the lock manager's queues, does not
 * identify a wait.  So the beginning of each wait is read from its process
 * before the call and again after it: if it is the same, so was the wait.
 *
 * Cost.  GetBlockerStatusData() takes all partition locks of the lock manager,
 * and returns all processes that hold or want the lock that one process waits
 * for, and the queue up to that process.  So it is called at most twice for a
 * lock: for the process that we come from, and for the last one in the queue,
 * which usually has all others before it; and at most MAX_QUESTIONS times in a
 * scan.  The walk does not go on from any process beyond that.  Of the
 * processes that want a lock in the same mode only the last one that blocks is
 * followed, since it is blocked by whatever blocks the others; and the holders
 * of a lock are visited once for each mode.  So a walk takes few steps for
 * each lock, however long its queue is, and one for each of its holders.
 *
 * Locks that are usually held only for a moment, as that of a tuple or of a
 * relation's extension, count as well: each process on a way from one to
 * another waits, so none of them releases anything meanwhile.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/blockers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "nodes/pg_list.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"
#include "worker/deadlock/ages_private.h"
#include "worker/deadlock/blockers_private.h"

#define MAX_QUESTIONS		256

/* The wait of a process, alone or in a lock group. */
typedef struct WaitStart
{
	int			pid;			/* hash key, must be first */
	PGPROC	   *proc;
	TimestampTz since;
	bool		is_old;			/* it counts */
} WaitStart;

/* A process in the queue of a lock. */
typedef struct Waiter
{
	int			pid;			/* of the leader of its lock group */
	LOCKMODE	mode;
	TimestampTz since;			/* identifies the wait; 0: it is over */
	bool		is_old;			/* it counts */
	int			last[MAX_LOCKMODES];	/* index of the last one before it that
										 * wants that mode, or -1 */
} Waiter;

/* A lock that is waited for. */
typedef struct WaitedLock
{
	LOCKTAG		tag;
	LockMethod	method;
	int			nwaiters;
	Waiter	   *waiters;		/* in the order of the queue */
	int			ninstances;
	LockInstanceData *instances;	/* all that hold or want it */
	uint32		walk;			/* the last that has visited it, ... */
	int			followed[MAX_LOCKMODES];	/* ... and the index of the last
											 * waiter followed in it, by mode;
											 * or -1 */
} WaitedLock;

/* The place of a process in a queue. */
typedef struct Place
{
	WaitedLock *lock;
	int			number;			/* index of the Waiter */
	struct Place *next;			/* of the same process */
} Place;

/* A process, by the leader of its lock group. */
typedef struct Process
{
	int			pid;			/* hash key, must be first */
	bool		waits;			/* for a heavyweight lock, for long enough */
	bool		in_group;		/* possibly of several processes */
	bool		asked;			/* its places are known */
	Place	   *places;
	uint32		walk;			/* the last that has visited it, ... */
	uint64		chain;			/* ... on this way, */
	const LOCKTAG *last;		/* ... whose last wait is for this lock */
} Process;

static struct
{
	HTAB	   *processes;
	HTAB	   *starts;			/* of WaitStarts */
	List	   *locks;			/* of WaitedLocks */
	int			questions;
	uint32		walk;
	BlockersAhead is_ahead;		/* of the walk */
}			blockers;

static Process *
find_process(int pid)
{
	bool		found;
	Process    *process = hash_search(blockers.processes, &pid, HASH_ENTER,
									  &found);

	if (!found)
	{
		memset(process, 0, sizeof(*process));
		process->pid = pid;
	}
	return process;
}

/* The wait of a process, if it is still the same; or NULL. */
static const WaitStart *
wait_start(int pid)
{
	const WaitStart *start = hash_search(blockers.starts, &pid, HASH_FIND,
										 NULL);

	if (start == NULL || start->proc->pid != pid ||
		start->since !=
		(TimestampTz) pg_atomic_read_u64(&start->proc->waitStart))
		return NULL;
	return start;
}

/* Note that a process waits for a heavyweight lock. */
static void
note_waiting(PGPROC *proc, int pid, TimestampTz since, bool is_old, int leader)
{
	WaitStart  *start = hash_search(blockers.starts, &pid, HASH_ENTER, NULL);
	Process    *process;

	start->proc = proc;
	start->since = since;
	start->is_old = is_old;
	if (!is_old)
		return;
	process = find_process(leader);
	process->waits = true;
	process->in_group = proc->lockGroupLeader != NULL;
}

/*
 * Sample all processes, and note those that wait, for a scan.  Has any wait
 * lasted for "wait_us"?
 */
static bool
sample(int64 wait_us, bool for_scan)
{
	bool		found = false;

	ages_sample(AGE_OF_LOCK_WAIT);
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		PGPROC	   *leader = proc->lockGroupLeader;
		int			pid = proc->pid;
		TimestampTz since = pg_atomic_read_u64(&proc->waitStart);
		bool		is_old;

		if (pid == 0 || since == 0)
			continue;
		is_old = ages_has_lasted(AGE_OF_LOCK_WAIT, pid, since, wait_us);
		found |= is_old;
		if (for_scan)
			note_waiting(proc, pid, since, is_old, leader ? leader->pid : pid);
	}
	return found;
}

/*
 * blockers_sample
 *		Sample the waits, so that they have an age in a later scan.  Has any
 *		lasted for "wait_us" already?
 *
 * To be called AGES_SAMPLES times in that time, as long as there may be a
 * scan.
 */
bool
blockers_sample(int64 wait_us)
{
	return sample(wait_us, false);
}

/*
 * blockers_begin
 *		Begin a scan, in which waits that have lasted for "wait_us" count.
 *
 * Reads each process of the server without a lock: a later scan finds what
 * this one misses.  The memory is in the current context, and must last until
 * the next scan begins.
 */
void
blockers_begin(int64 wait_us)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int);
	ctl.entrysize = sizeof(Process);
	ctl.hcxt = CurrentMemoryContext;
	blockers.processes = hash_create("zklock processes", 64, &ctl,
									 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.entrysize = sizeof(WaitStart);
	blockers.starts = hash_create("zklock wait starts", 64, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	blockers.locks = NIL;
	blockers.questions = 0;
	(void) sample(wait_us, true);
}

/* The most processes that blockers_add_waiting() can find. */
int
blockers_max(void)
{
	return hash_get_num_entries(blockers.processes);
}

/*
 * blockers_add_waiting
 *		The processes that wait for a heavyweight lock: fills in "pids", and
 *		returns their number.
 */
int
blockers_add_waiting(int *pids)
{
	HASH_SEQ_STATUS scan;
	Process    *process;
	int			n = 0;

	hash_seq_init(&scan, blockers.processes);
	while ((process = hash_seq_search(&scan)) != NULL)
		if (process->waits)
			pids[n++] = process->pid;
	return n;
}

static int
compare_instances(const void *a, const void *b)
{
	int			left = ((const LockInstanceData *) a)->pid;
	int			right = ((const LockInstanceData *) b)->pid;

	return left < right ? -1 : left > right;
}

static const LockInstanceData *
find_instance(const WaitedLock *lock, int pid)
{
	LockInstanceData key;

	key.pid = pid;
	return bsearch(&key, lock->instances, lock->ninstances,
				   sizeof(LockInstanceData), compare_instances);
}

static WaitedLock *
find_lock(const LOCKTAG *tag)
{
	ListCell   *cell;

	foreach(cell, blockers.locks)
	{
		WaitedLock *lock = lfirst(cell);

		if (memcmp(&lock->tag, tag, sizeof(LOCKTAG)) == 0)
			return lock;
	}
	return NULL;
}

/* Append a process to the queue of a lock. */
static void
add_waiter(WaitedLock *lock, const LockInstanceData *instance)
{
	const WaitStart *start = wait_start(instance->pid);
	int			number = lock->nwaiters++;
	Waiter	   *waiter = &lock->waiters[number];
	Process    *process;
	Place	   *place;

	waiter->pid = instance->leaderPid;
	waiter->mode = instance->waitLockMode;
	waiter->since = start ? start->since : 0;
	waiter->is_old = start && start->is_old;
	for (int mode = 0; mode < MAX_LOCKMODES; mode++)
		waiter->last[mode] = number == 0 ? -1 : waiter[-1].last[mode];
	if (number > 0)
		waiter->last[waiter[-1].mode] = number - 1;

	process = find_process(instance->leaderPid);
	if (!process->in_group)
		process->asked = true;	/* it waits for no other lock */
	place = palloc(sizeof(Place));
	place->lock = lock;
	place->number = number;
	place->next = process->places;
	process->places = place;
}

/* Add a lock that a process waits for, with its queue up to that process. */
static void
add_lock(const BlockedProcsData *data, const BlockedProcData *blocked)
{
	WaitedLock *lock = palloc0(sizeof(WaitedLock));

	lock->instances = &data->locks[blocked->first_lock];
	lock->ninstances = blocked->num_locks;
	lock->tag = lock->instances[0].locktag;
	lock->method = GetLockTagsMethodTable(&lock->tag);
	qsort(lock->instances, lock->ninstances, sizeof(LockInstanceData),
		  compare_instances);
	lock->waiters = palloc((blocked->num_waiters + 1) * sizeof(Waiter));
	for (int i = 0; i <= blocked->num_waiters; i++)
	{
		int			pid = i == blocked->num_waiters ? blocked->pid :
		data->waiter_pids[blocked->first_waiter + i];
		const LockInstanceData *instance = find_instance(lock, pid);

		if (instance && instance->waitLockMode != NoLock)
			add_waiter(lock, instance);
	}
	blockers.locks = lappend(blockers.locks, lock);
}

/*
 * The process that began to wait for the lock last by the wall clock: the last
 * one in the queue, unless that clock was set.
 */
static int
newest_waiter(const BlockedProcsData *data, const BlockedProcData *blocked)
{
	int			newest = blocked->pid;
	const WaitStart *start = wait_start(newest);
	TimestampTz newest_since = start ? start->since : 0;

	for (int i = 0; i < blocked->num_locks; i++)
	{
		const LockInstanceData *instance =
			&data->locks[blocked->first_lock + i];

		if (instance->waitLockMode == NoLock)
			continue;
		start = wait_start(instance->pid);
		if (start && start->since > newest_since)
		{
			newest = instance->pid;
			newest_since = start->since;
		}
	}
	return newest;
}

/* The process in the data that waits for this lock, or NULL. */
static const BlockedProcData *
find_blocked(const BlockedProcsData *data, const LOCKTAG *tag)
{
	for (int i = 0; i < data->nprocs; i++)
	{
		const BlockedProcData *blocked = &data->procs[i];

		if (blocked->num_locks > 0 &&
			memcmp(&data->locks[blocked->first_lock].locktag, tag,
				   sizeof(LOCKTAG)) == 0)
			return blocked;
	}
	return NULL;
}

/* Is the process in the known part of a lock's queue? */
static bool
has_place(int pid, const WaitedLock *lock)
{
	for (Place *place = find_process(pid)->places; place; place = place->next)
		if (place->lock == lock)
			return true;
	return false;
}

/*
 * Note that a process waits for a lock, and the queue for that lock as far as
 * it can be known.
 */
static void
note_blocked(int pid, const BlockedProcsData *data,
			 const BlockedProcData *blocked)
{
	LOCKTAG		tag = data->locks[blocked->first_lock].locktag;
	WaitedLock *known = find_lock(&tag);
	int			newest = newest_waiter(data, blocked);

	if (known && has_place(pid, known))
		return;
	if (known == NULL && newest != blocked->pid &&
		blockers.questions < MAX_QUESTIONS)
	{
		const BlockedProcsData *more = GetBlockerStatusData(newest);
		const BlockedProcData *same = find_blocked(more, &tag);

		blockers.questions++;
		if (same)
			add_lock(more, same);
		known = find_lock(&tag);
	}
	if (known == NULL || !has_place(pid, known))
		add_lock(data, blocked);
}

/* Find out which locks a process waits for. */
static void
ask(Process *process)
{
	BlockedProcsData *data;

	if (process->asked || !process->waits ||
		blockers.questions >= MAX_QUESTIONS)
		return;
	process->asked = true;
	blockers.questions++;
	data = GetBlockerStatusData(process->pid);
	for (int i = 0; i < data->nprocs; i++)
		if (data->procs[i].num_locks > 0)
			note_blocked(process->pid, data, &data->procs[i]);
}

/*
 * The walk reaches process "pid" through a wait of "from", for the lock "tag".
 *
 * There may be several ways to a process.  A way on which it keeps a lock from
 * the one before it counts rather than one on which it is only ahead of it.
 */
static void
reach(int pid, const Process *from, const Waiter *wait, const LOCKTAG *tag,
	  List **todo)
{
	Process    *process;
	struct
	{
		int64		since;
		int64		pid;
	}			step = {wait->since, from->pid};

	if (pid == 0)
		return;
	process = find_process(pid);
	if (process->walk != blockers.walk)
		*todo = lappend(*todo, process);
	else if (!blockers.is_ahead(pid, process->last) ||
			 blockers.is_ahead(pid, tag))
		return;
	process->walk = blockers.walk;
	process->chain = hash_bytes_extended((unsigned char *) &step, sizeof(step),
										 from->chain);
	if (process->chain == 0)
		process->chain = 1;
	process->last = tag;
}

/* Go from a process to those that block it in one queue. */
static void
follow(const Process *process, const Place *place, List **todo)
{
	WaitedLock *lock = place->lock;
	const Waiter *waiter = &lock->waiters[place->number];
	LOCKMASK	conflicts = lock->method->conflictTab[waiter->mode];

	if (!waiter->is_old)
		return;
	if (lock->walk != blockers.walk)
	{
		lock->walk = blockers.walk;
		memset(lock->followed, -1, sizeof(lock->followed));
	}
	if (lock->followed[waiter->mode] < 0)
		for (int i = 0; i < lock->ninstances; i++)
			if (lock->instances[i].holdMask & conflicts)
				reach(lock->instances[i].leaderPid, process, waiter,
					  &lock->tag, todo);
	lock->followed[waiter->mode] = Max(lock->followed[waiter->mode],
									   place->number);
	for (int mode = 1; mode <= lock->method->numLockModes; mode++)
		if ((conflicts & LOCKBIT_ON(mode)) &&
			waiter->last[mode] > lock->followed[mode])
			reach(lock->waiters[waiter->last[mode]].pid, process, waiter,
				  &lock->tag, todo);
}

/*
 * blockers_walk
 *		Call "visit" for each process that this one waits for, directly or
 *		through others, those with the shortest way first.
 *
 * All ways are followed before the first visit, since the way that counts may
 * be a longer one: see reach().
 */
void
blockers_walk(int pid, BlockersAhead is_ahead, BlockersVisit visit, void *arg)
{
	Process    *start = find_process(pid);
	List	   *todo = list_make1(start);

	if (++blockers.walk == 0)
		++blockers.walk;
	blockers.is_ahead = is_ahead;
	start->walk = blockers.walk;
	start->chain = 0;
	start->last = NULL;
	for (int i = 0; i < list_length(todo); i++)
	{
		Process    *process = list_nth(todo, i);

		ask(process);
		for (Place *place = process->places; place; place = place->next)
			follow(process, place, &todo);
	}
	for (int i = 1; i < list_length(todo); i++)
	{
		const Process *process = list_nth(todo, i);

		if (!visit(process->pid, process->chain, process->last, arg))
			break;
	}
	list_free(todo);
}
