/*-------------------------------------------------------------------------
 *
 * fault.c
 *		A fault in a thread of libzookeeper_mt does not end the server.
 *
 * Signals.  The library's threads start with all signals blocked but SIGQUIT and
 * those of a fault, since PostgreSQL's handlers must run in the main thread
 * only; the handler of SIGQUIT does no more than _exit().
 *
 * A server may send anything: it may be no ZooKeeper, or a broken one.
 * Debian builds the library with assertions, and some of them fail on that.
 * The library also does not check whether it could parse an answer: it hands
 * on and frees whatever its stack holds in place of the missing part.  An
 * abort or a fault would take the whole PostgreSQL server down.  So the
 * handler of the signal parks the library's thread for good, and the worker
 * ends and is replaced.
 *
 * How the main thread ends.  The exit callbacks work on shared memory, so they
 * must not run while the main thread is in the middle of a change of that: it
 * may even hold a spinlock.  There are two places where it is not: the main
 * loop, which learns of the fault (fault_check()), and the calls of the library
 * that wait for its threads or locks, between fault_enter_library() and
 * fault_leave_library().  From the second a signal takes it away, since the
 * parked thread may hold what it waits for.  Anywhere else the main thread goes
 * on until it gets to the main loop.  Then it calls the library no more, runs the
 * exit callbacks, and leaves by _exit().
 *
 * It may never get there: the parked thread may hold a lock of malloc, or have
 * broken the heap; and the fault may have been in the main thread, within a call
 * of the library, with malloc's lock held.  So a timer is started with the fault.
 * When it is over it sends SIGQUIT, which is what the postmaster ends a process
 * with at once: any thread takes it, and the process ends with exit code 2 and no
 * callbacks.  For the postmaster that is a crash.  It starts all of PostgreSQL
 * anew, with new shared memory: nothing else is safe with a process that may have
 * left a spinlock held.  The same goes for a fault of the main thread outside of
 * the library, and for one in the exit callbacks, as for any backend.
 *
 * A thread that breaks the heap before it is parked would kill the main
 * thread.  So the functions by which the library frees what it may not have
 * parsed are ours (deallocate_*), and free only what looks parsed.  client.c
 * checks that the library calls ours.
 *
 * The handler runs in any thread, so what it shares with the main thread is
 * set before the library has threads (wake_fd, main_thread, deadline), or is of
 * sig_atomic_t.  It calls nothing but what may be called in a handler.
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
static timer_t deadline;		/* sends SIGQUIT when it is over */
static volatile sig_atomic_t in_library = false;	/* the main thread is, and
													 * may exit there */
static volatile sig_atomic_t library_died = 0;	/* by this signal */

/*
 * What follows runs in the library's threads; the handler in any thread.
 */

/*
 * Has the library just parsed this?  Then it is a heap block of its own that
 * fits the size.  Otherwise it is what the stack held in its place: a pointer
 * to anything, or none.  Reading it may fault, which fault_handler() handles;
 * freeing it would break the heap.
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
 * In place of the library's own: see the header.  The library calls them by
 * way of the dynamic linker, which finds ours first.  What is not freed here
 * is lost until the worker ends.
 */
extern PGDLLEXPORT void deallocate_GetDataResponse(struct GetDataResponse *v);
extern PGDLLEXPORT void deallocate_Create2Response(struct Create2Response *v);
extern PGDLLEXPORT void deallocate_WatcherEvent(struct WatcherEvent *v);

void
deallocate_GetDataResponse(struct GetDataResponse *v)
{
	/* the stat comes last, and tells how long the data are */
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

/* From now on the process has so much time to end. */
static void
start_deadline(void)
{
	static const struct itimerspec time = {.it_value.tv_sec = FAULT_SECONDS};

	timer_settime(deadline, 0, &time, NULL);
}

/* The main thread: it dies as ever, unless it is in the library. */
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
		return;					/* of a parked thread, and too late; or of
								 * abort(), which goes on */
	pqsignal(signo, PG_SIG_DFL);
	raise(signo);				/* delivered when we return */
}

/* A thread of the library: it is parked. */
static void
fault_in_library(int signo)
{
	uint64_t	one = 1;

	start_deadline();
	library_died = signo;
	pg_memory_barrier();
	if (in_library)
		pthread_kill(main_thread, SIGABRT); /* it may wait for this thread */
	if (write(wake_fd, &one, sizeof(one)) < 0)
		_exit(2);				/* not that it can fail */
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
 *		See that no thread of the library has been parked: if one has been,
 *		the library must not be called.
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
 * At the very end of the process: not by exit(), which runs what the library
 * and libc have for it, and may wait for a parked thread.
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
 *		Go around a call of the library that starts threads, waits for them or
 *		for their locks, or must not be interrupted.
 *
 * In between the process may exit at any point: no lock of PostgreSQL is to be
 * held, and no shared memory to be changed.  "saved" keeps the signals that
 * were blocked.  Errors: FATAL if a thread of the library has been parked.
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
	pg_memory_barrier();		/* either thread sees what the other has set */
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
 *		Prepare the process, ahead of the first call of the library.
 *
 * A thread that is parked makes "fd", an eventfd, readable.  Errors: as for any
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
