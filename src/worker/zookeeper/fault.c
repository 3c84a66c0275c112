/*-------------------------------------------------------------------------
 *
 * fault.c
 *		Keeps a fault in a thread of libzookeeper_mt from ending the server.
 *
 * Signals.  PostgreSQL's handlers must run in the main thread only.  So the
 * library's threads start with all signals blocked but SIGQUIT, whose handler
 * only calls _exit(), and those of a fault.
 *
 * A server may send anything: it may be no ZooKeeper, or a broken one.  Debian
 * builds the library with assertions, some of which fail on that.  Nor does
 * the library check whether it could parse an answer: it delivers and frees
 * whatever is on its stack in place of the missing part.  An abort or a fault
 * would take the whole PostgreSQL server down.  So the signal handler parks
 * the library's thread for good, and the worker ends and is replaced.
 *
 * How the main thread ends.  The exit callbacks work on shared memory, so they
 * must not run while the main thread is changing that: it may even hold a
 * spinlock.  There are two places where it is not.  One is the main loop,
 * which learns of the fault by fault_check().  The other is a call of the
 * library that waits for its threads or locks, between fault_enter_library()
 * and fault_leave_library(); a signal ends that call, since the parked thread
 * may hold what it waits for.  Anywhere else the main thread continues until
 * it reaches the main loop.  Then it no longer calls the library, runs the
 * exit callbacks, and leaves by _exit().
 *
 * It may never get there: the parked thread may hold a lock of malloc, or have
 * corrupted the heap; or the fault was in the main thread, within a call of
 * the library, with malloc's lock held.  So the fault starts a timer, which
 * finally sends SIGQUIT, the postmaster's own means to end a process at once:
 * any thread takes it, and the process ends with exit code 2 and no callbacks.
 * For the postmaster that is a crash.  It restarts all of PostgreSQL with new
 * shared memory: nothing else is safe after a process that may have left a
 * spinlock held.  The same happens, as for any backend, after a fault of the
 * main thread outside the library, or in the exit callbacks.
 *
 * A thread that corrupts the heap before it is parked would kill the main
 * thread.  So the functions by which the library frees what it may not have
 * parsed are ours (deallocate_*), and free only what looks parsed.  client.c
 * checks that the library calls ours.
 *
 * The handler runs in any thread.  What it shares with the main thread is set
 * before the library has threads (wake_fd, main_thread, deadline), or is a
 * sig_atomic_t.  It only calls functions that are safe in a handler.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/fault.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.jute.h>

#include "port/atomics.h"
#include "shared/compat.h"
#include "storage/ipc.h"
#include "worker/zookeeper/fault_private.h"

/* How long the process may take to end after a fault. */
#define FAULT_SECONDS	10

static int	wake_fd;			/* the main loop waits on it */
static pthread_t main_thread;
static timer_t deadline;		/* finally sends SIGQUIT */
static volatile sig_atomic_t in_library = false;	/* main thread in the
													 * library, where it may
													 * exit */
static volatile sig_atomic_t library_died = 0;	/* by this signal */

/*
 * What follows runs in the library's threads; the handler in any thread.
 */

/*
 * Has the library really parsed this?  Then it is a heap block with a
 * plausible size.  Otherwise it is what was on the stack: any pointer, or
 * none.  Reading it may fault, which fault_handler() handles; freeing it would
 * corrupt the heap.
 */
static bool
is_parsed(void *block, Size size)
{
	if (block == NULL || (uintptr_t) block % MAXIMUM_ALIGNOF != 0)
		return false;
	return malloc_usable_size(block) >= size &&
		malloc_usable_size(block) < size + size / 8 + 64;
}

static bool
is_parsed_path(char *path)
{
	return path != NULL && path[0] == '/' && is_parsed(path, strlen(path) + 1);
}

/*
 * Replace the library's own functions; see the header.  The library calls them
 * through the dynamic linker, which finds ours first.  What is not freed here
 * is lost until the worker ends.
 */
extern PGDLLEXPORT void deallocate_GetDataResponse(struct GetDataResponse *v);
extern PGDLLEXPORT void deallocate_Create2Response(struct Create2Response *v);
extern PGDLLEXPORT void deallocate_WatcherEvent(struct WatcherEvent *v);

void
deallocate_GetDataResponse(struct GetDataResponse *v)
{
	/* the stat comes last, and has the length of the data */
	if (v->data.len >= 0 && v->data.len == v->stat.dataLength &&
		v->stat.pzxid >= v->stat.czxid && is_parsed(v->data.buff, v->data.len))
		free(v->data.buff);
	memset(v, 0, sizeof(*v));
}

void
deallocate_Create2Response(struct Create2Response *v)
{
	if (is_parsed_path(v->path))
		free(v->path);
	memset(v, 0, sizeof(*v));
}

void
deallocate_WatcherEvent(struct WatcherEvent *v)
{
	if (is_parsed_path(v->path))
		free(v->path);
	memset(v, 0, sizeof(*v));
}

/* From now on the process must end within that time. */
static void
start_deadline(void)
{
	static const struct itimerspec time = {.it_value.tv_sec = FAULT_SECONDS};

	timer_settime(deadline, 0, &time, NULL);
}

/* In the main thread: die as usual, unless it is in the library. */
static void
fault_in_main(int signo)
{
	if (in_library)
	{
		in_library = false;
		library_died = signo;
		start_deadline();
		proc_exit(1);
	}
	if (signo == SIGABRT && library_died)
		return;					/* of a parked thread, too late; or of abort(),
								 * which continues */
	pqsignal(signo, PG_SIG_DFL);
	raise(signo);				/* delivered when we return */
}

/* In a thread of the library: park it. */
static void
fault_in_library(int signo)
{
	uint64_t	one = 1;

	start_deadline();
	library_died = signo;
	pg_memory_barrier();
	if (in_library)
		pthread_kill(main_thread, SIGABRT); /* it may be waiting for this
											 * thread */
	if (write(wake_fd, &one, sizeof(one)) < 0)
		_exit(2);				/* does not happen */
	for (;;)
		pause();
}

/* Handler of SIGABRT and of the signals of faults. */
static void
fault_handler(SIGNAL_ARGS)
{
	if (pthread_equal(pthread_self(), main_thread))
		fault_in_main(postgres_signal_arg);
	else
		fault_in_library(postgres_signal_arg);
}

/*
 * From here on, everything runs in the main thread.
 */

/*
 * fault_check
 *		Check that no thread of the library has been parked, after which the
 *		library must not be called.
 *
 * Errors: FATAL if one has been.
 */
void
fault_check(void)
{
	if (!library_died)
		return;
	in_library = false;
	ereport(FATAL,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 library_died == SIGABRT ?
			 errmsg("the ZooKeeper client library failed an assertion") :
			 errmsg("the ZooKeeper client library crashed"),
			 errdetail("The next zklock worker will continue the session."),
			 errhint("Check that all of \"zklock.servers\" are ZooKeeper servers.")));
}

/*
 * The last exit callback.  exit() would run the handlers of the library and
 * libc, which may wait for a parked thread.
 */
static void
leave_at_once(int code, Datum arg pg_attribute_unused())
{
	if (library_died)
		_exit(code);
}

/* The exit callbacks change shared memory, wherever the process has exited. */
static void
leave_library(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	in_library = false;
}

/*
 * fault_enter_library, fault_leave_library
 *		Enclose a call of the library that starts threads, waits for them or
 *		for their locks, or must not be interrupted.
 *
 * In between the process may exit at any point: no lock of PostgreSQL may be
 * held, and no shared memory changed.  "saved" keeps the blocked signals.
 * Errors: FATAL if a thread of the library has been parked.
 */
void
fault_enter_library(sigset_t *saved)
{
	sigset_t	block;

	sigfillset(&block);
	sigdelset(&block, SIGQUIT);
	sigdelset(&block, SIGABRT); /* some libc's abort() does not unblock it */
	sigdelset(&block, SIGSEGV);
	sigdelset(&block, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &block, saved);
	in_library = true;
	pg_memory_barrier();		/* each thread sees what the other has set */
	fault_check();
}

void
fault_leave_library(const sigset_t *saved)
{
	in_library = false;
	pthread_sigmask(SIG_SETMASK, saved, NULL);
}

/*
 * fault_init
 *		Prepare the process before the first call of the library.
 *
 * A parked thread makes "fd", an eventfd, readable.  Errors: as for any
 * failing system call.
 */
void
fault_init(int fd)
{
	struct sigevent event;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGQUIT;
	if (timer_create(CLOCK_MONOTONIC, &event, &deadline) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not create timer: %m")));
	wake_fd = fd;
	main_thread = pthread_self();
	pqsignal(SIGABRT, fault_handler);
	pqsignal(SIGSEGV, fault_handler);
	pqsignal(SIGBUS, fault_handler);
	before_shmem_exit(leave_library, (Datum) 0);
	on_proc_exit(leave_at_once, (Datum) 0);
}
