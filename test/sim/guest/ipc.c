/*-------------------------------------------------------------------------
 *
 * ipc.c
 *		Stand-ins for shared memory, lightweight locks, latches, condition
 *		variables and the end of a process.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/ipc.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include <unistd.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proclist.h"
#include "storage/shmem.h"

#define MAX_CALLBACKS	20
#define MAX_LWLOCKS		200
#define MAX_TRANCHES	16
#define LW_EXCLUSIVE_BIT	0x80000000U

PROC_HDR   *ProcGlobal = NULL;
PGPROC	   *MyProc = NULL;
Latch	   *MyLatch = NULL;
int			MyProcPid = 0;
int			MaxBackends = 0;
LWLockPadded *MainLWLockArray = NULL;
bool		proc_exit_inprogress = false;
bool		shmem_exit_inprogress = false;

typedef struct Callback
{
	pg_on_exit_callback function;
	Datum		arg;
} Callback;

typedef struct CallbackList
{
	Callback	callbacks[MAX_CALLBACKS];
	int			n;
} CallbackList;

static CallbackList before_shmem;
static CallbackList on_shmem;
static CallbackList on_exit_list;

static struct
{
	const char *name;
	int			n;
}			tranches[MAX_TRANCHES];
static int	ntranches;

static LWLock *held[MAX_LWLOCKS];
static LWLockMode held_modes[MAX_LWLOCKS];
static int	nheld;

static ConditionVariable *cv_target = NULL;

/*
 * The process begins: its PGPROC.
 */
void
ipc_begin(void)
{
	Instance   *instance = sim_instance();
	int			n = instance_max_procs(instance);
	int			number = process_number(sim_process());
	bool		found;

	MaxBackends = n;
	MyProcPid = process_pid(sim_process());
	ProcGlobal = instance_shmem(instance, "ProcGlobal", sizeof(PROC_HDR),
								&found);
	ProcGlobal->allProcs = instance_shmem(instance, "allProcs",
										  n * sizeof(PGPROC), &found);
	ProcGlobal->allProcCount = n;
	MainLWLockArray = instance_shmem(instance, "LWLocks",
									 NUM_FIXED_LWLOCKS * sizeof(LWLockPadded),
									 &found);
	if (!found)
		for (int i = 0; i < NUM_FIXED_LWLOCKS; i++)
			LWLockInitialize(&MainLWLockArray[i].lock, 0);

	MyProc = &ProcGlobal->allProcs[number];
	memset(MyProc, 0, sizeof(PGPROC));
	MyProc->pgprocno = number;
	MyProc->backendId = number + 1;
	MyProc->databaseId = process_is_worker(sim_process()) ? InvalidOid : 5;
	MyProc->roleId = 10;
	MyProc->isBackgroundWorker = process_is_worker(sim_process());
	InitLatch(&MyProc->procLatch);
	MyLatch = &MyProc->procLatch;
	MyProc->pid = MyProcPid;
}

/*
 * Shared memory.
 */
void *
ShmemInitStruct(const char *name, Size size, bool *found)
{
	return instance_shmem(sim_instance(), name, size, found);
}

void
RequestAddinShmemSpace(Size size)
{
	(void) size;
}

void
RequestNamedLWLockTranche(const char *name, int n)
{
	Assert(ntranches < MAX_TRANCHES);
	tranches[ntranches].name = name;
	tranches[ntranches++].n = n;
}

LWLockPadded *
GetNamedLWLockTranche(const char *name)
{
	for (int i = 0; i < ntranches; i++)
		if (strcmp(tranches[i].name, name) == 0)
		{
			bool		found;
			LWLockPadded *locks =
				instance_shmem(sim_instance(), psprintf("tranche %s", name),
							   tranches[i].n * sizeof(LWLockPadded), &found);

			for (int j = 0; !found && j < tranches[i].n; j++)
				LWLockInitialize(&locks[j].lock, 0);
			return locks;
		}
	SIM_LACKS();
}

Size
add_size(Size a, Size b)
{
	return a + b;
}

Size
mul_size(Size a, Size b)
{
	return a * b;
}

/*
 * Lightweight locks.  Who is woken up tries again.
 */
void
LWLockInitialize(LWLock *lock, int tranche_id)
{
	lock->tranche = tranche_id;
	pg_atomic_init_u32(&lock->state, 0);
	proclist_init(&lock->waiters);
}

static bool
take(LWLock *lock, LWLockMode mode)
{
	uint32		state = lock->state.value;

	if (state & LW_EXCLUSIVE_BIT || (mode == LW_EXCLUSIVE && state != 0))
		return false;
	lock->state.value = mode == LW_EXCLUSIVE ? LW_EXCLUSIVE_BIT : state + 1;
	return true;
}

bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	bool		free = true;

	HOLD_INTERRUPTS();
	Assert(nheld < MAX_LWLOCKS);
	for (int i = 0; i < nheld; i++)
		if (held[i] == lock)
			sim_violation("LWLocks", "a process waits for itself");
	sim_point();
	while (!take(lock, mode))
	{
		free = false;
		MyProc->lwWaiting = true;
		proclist_push_tail(&lock->waiters, MyProc->pgprocno, lwWaitLink);
		while (MyProc->lwWaiting)
		{
			(void) sim_wait(SIM_NEVER);
			signals_take();
		}
	}
	held_modes[nheld] = mode;
	held[nheld++] = lock;
	return free;
}

void
LWLockRelease(LWLock *lock)
{
	proclist_mutable_iter iter;
	int			i = nheld - 1;

	while (i >= 0 && held[i] != lock)
		i--;
	if (i < 0)
		sim_violation("LWLocks", "released, but not held");
	lock->state.value = held_modes[i] == LW_EXCLUSIVE ? 0 :
		lock->state.value - 1;
	memmove(&held[i], &held[i + 1], (nheld - i - 1) * sizeof(held[0]));
	memmove(&held_modes[i], &held_modes[i + 1],
			(nheld - i - 1) * sizeof(held_modes[0]));
	nheld--;
	if (lock->state.value == 0)
		proclist_foreach_modify(iter, &lock->waiters, lwWaitLink)
		{
			proclist_delete(&lock->waiters, iter.cur, lwWaitLink);
			ProcGlobal->allProcs[iter.cur].lwWaiting = false;
			task_wake(instance_find_main(sim_instance(), iter.cur));
		}
	RESUME_INTERRUPTS();
	sim_point();
}

bool
LWLockHeldByMe(LWLock *lock)
{
	for (int i = 0; i < nheld; i++)
		if (held[i] == lock)
			return true;
	return false;
}

void
LWLockReleaseAll(void)
{
	while (nheld > 0)
	{
		HOLD_INTERRUPTS();
		LWLockRelease(held[nheld - 1]);
	}
}

/*
 * Latches.
 */
void
InitLatch(Latch *latch)
{
	memset(latch, 0, sizeof(Latch));
	latch->is_shared = true;
	latch->owner_pid = MyProcPid;
}

void
SetLatch(Latch *latch)
{
	PGPROC	   *proc = (PGPROC *) ((char *) latch - offsetof(PGPROC, procLatch));

	sim_point();
	if (latch->is_set)
		return;
	latch->is_set = true;
	task_wake(instance_find_main(sim_instance(), proc - ProcGlobal->allProcs));
}

void
ResetLatch(Latch *latch)
{
	Assert(latch == MyLatch);
	latch->is_set = false;
	sim_point();
}

static int
await(int events, pgsocket fd, long timeout)
{
	int64		until = timeout < 0 ? SIM_NEVER :
		guest_deadline(guest_now() + timeout * INT64CONST(1000));

	sim_point();
	for (;;)
	{
		int			result = 0;

		signals_take();
		if ((events & WL_LATCH_SET) && MyLatch->is_set)
			result |= WL_LATCH_SET;
		if ((events & WL_SOCKET_READABLE) && process_is_readable(fd))
			result |= WL_SOCKET_READABLE;
		if (result == 0 && sim_now() >= until)
			result = WL_TIMEOUT;
		if (result != 0)
			return result;
		(void) sim_wait(until);
	}
}

int
WaitLatch(Latch *latch, int wakeEvents, long timeout, uint32 wait_event_info)
{
	int			result;

	Assert(latch == MyLatch);
	MyProc->wait_event_info = wait_event_info;
	result = await(wakeEvents, PGINVALID_SOCKET,
				   wakeEvents & WL_TIMEOUT ? timeout : -1);
	MyProc->wait_event_info = 0;
	return result;
}

struct WaitEventSet
{
	int			n;
	int			events;
	pgsocket	fd;
};

WaitEventSet *
CreateWaitEventSet(MemoryContext context, int nevents)
{
	(void) nevents;
	return MemoryContextAllocZero(context, sizeof(WaitEventSet));
}

int
AddWaitEventToSet(WaitEventSet *set, uint32 events, pgsocket fd, Latch *latch,
				  void *user_data)
{
	(void) user_data;
	Assert(latch == NULL || latch == MyLatch);
	if (events & WL_SOCKET_READABLE)
		set->fd = fd;
	set->events |= events;
	return set->n++;
}

int
WaitEventSetWait(WaitEventSet *set, long timeout, WaitEvent *occurred,
				 int nevents, uint32 wait_event_info)
{
	int			events;

	Assert(nevents == 1);
	MyProc->wait_event_info = wait_event_info;
	events = await(set->events, set->fd, timeout);
	MyProc->wait_event_info = 0;
	memset(occurred, 0, sizeof(*occurred));
	occurred->events = events;
	return events == WL_TIMEOUT ? 0 : 1;
}

bool
WaitEventSetCanReportClosed(void)
{
	return false;
}

/*
 * Condition variables, as PostgreSQL has them.
 */
void
ConditionVariableInit(ConditionVariable *cv)
{
	SpinLockInit(&cv->mutex);
	proclist_init(&cv->wakeup);
}

void
ConditionVariablePrepareToSleep(ConditionVariable *cv)
{
	if (cv_target != NULL)
		ConditionVariableCancelSleep();
	cv_target = cv;
	sim_point();
	proclist_push_tail(&cv->wakeup, MyProc->pgprocno, cvWaitLink);
}

void
ConditionVariableSleep(ConditionVariable *cv, uint32 wait_event_info)
{
	(void) ConditionVariableTimedSleep(cv, -1, wait_event_info);
}

bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout,
							uint32 wait_event_info)
{
	int64		until = timeout < 0 ? SIM_NEVER :
		guest_now() + timeout * INT64CONST(1000);

	if (cv_target != cv)
	{
		ConditionVariablePrepareToSleep(cv);
		return false;
	}
	for (;;)
	{
		bool		done = false;
		int64		left = timeout < 0 ? -1 : Max(until - guest_now(), 0);

		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
						 (timeout < 0 ? 0 : WL_TIMEOUT),
						 left < 0 ? -1 : (long) ((left + 999) / 1000),
						 wait_event_info);
		ResetLatch(MyLatch);
		if (!proclist_contains(&cv->wakeup, MyProc->pgprocno, cvWaitLink))
		{
			done = true;
			proclist_push_tail(&cv->wakeup, MyProc->pgprocno, cvWaitLink);
		}
		CHECK_FOR_INTERRUPTS();
		if (cv != cv_target)
			done = true;
		if (done)
			return false;
		if (timeout >= 0 && guest_now() >= until)
			return true;
	}
}

void
ConditionVariableCancelSleep(void)
{
	ConditionVariable *cv = cv_target;
	bool		signaled = false;

	if (cv == NULL)
		return;
	if (proclist_contains(&cv->wakeup, MyProc->pgprocno, cvWaitLink))
		proclist_delete(&cv->wakeup, MyProc->pgprocno, cvWaitLink);
	else
		signaled = true;
	if (signaled)
		ConditionVariableSignal(cv);
	cv_target = NULL;
}

void
ConditionVariableSignal(ConditionVariable *cv)
{
	sim_point();
	if (!proclist_is_empty(&cv->wakeup))
		SetLatch(&proclist_pop_head_node(&cv->wakeup, cvWaitLink)->procLatch);
}

/* Those that have come to sleep before. */
void
ConditionVariableBroadcast(ConditionVariable *cv)
{
	proclist_mutable_iter iter;
	int			left = 0;

	sim_point();
	proclist_foreach_modify(iter, &cv->wakeup, cvWaitLink)
		left++;
	while (left-- > 0 && !proclist_is_empty(&cv->wakeup))
		SetLatch(&proclist_pop_head_node(&cv->wakeup, cvWaitLink)->procLatch);
}

/*
 * The end of a process.
 */
static void
add_callback(CallbackList *list, pg_on_exit_callback function, Datum arg)
{
	if (list->n == MAX_CALLBACKS)
		ereport(FATAL,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg_internal("out of exit callback slots")));
	list->callbacks[list->n].function = function;
	list->callbacks[list->n++].arg = arg;
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	add_callback(&before_shmem, function, arg);
}

void
cancel_before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	const Callback *latest = &before_shmem.callbacks[before_shmem.n - 1];

	if (before_shmem.n == 0 || latest->function != function ||
		latest->arg != arg)
		elog(ERROR, "before_shmem_exit callback is not the latest entry");
	before_shmem.n--;
}

void
on_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	add_callback(&on_shmem, function, arg);
}

void
on_proc_exit(pg_on_exit_callback function, Datum arg)
{
	add_callback(&on_exit_list, function, arg);
}

static void
run_callbacks(CallbackList *list, int code)
{
	while (list->n > 0)
	{
		Callback   *callback = &list->callbacks[--list->n];

		callback->function(code, callback->arg);
	}
}

/* What ProcKill() and its like do. */
static void
leave_shared_memory(void)
{
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	lockmgr_cleanup();
	lockmgr_release_all(true);
	MyProc->pid = 0;
	MyProc->lxid = 0;
	MyProc->wait_event_info = 0;
}

void
proc_exit(int code)
{
	proc_exit_inprogress = true;
	InterruptPending = false;
	ProcDiePending = false;
	QueryCancelPending = false;
	InterruptHoldoffCount = 1;
	CritSectionCount = 0;
	error_context_stack = NULL;
	shmem_exit_inprogress = true;
	LWLockReleaseAll();
	run_callbacks(&before_shmem, code);
	if (xact_is_open())
		AbortOutOfAnyTransaction();
	run_callbacks(&on_shmem, code);
	leave_shared_memory();
	run_callbacks(&on_exit_list, code);
	sim_exit_process(code);
}
