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
 * The parked thread may have broken the heap, and may hold locks of the
 * library and of malloc.  So the main thread does as little as it can: it
 * calls the library no more, runs the exit callbacks, which work on shared
 * memory, and leaves by _exit().  If it has not got there after
 * LIBRARY_DEATH_SECONDS, because it waits for such a lock, the parked thread
 * interrupts it with a signal whose handler goes the same way.
 *
 * A thread that breaks the heap before it is parked would kill the main
 * thread.  So the functions by which the library frees what it may not have
 * parsed are ours (deallocate_*), and free only what looks parsed.
 *
 * The handler runs in any thread, so what it shares with the main thread is
 * set before the library has threads (wake_fd, main_thread), or is of
 * sig_atomic_t.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fault.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <malloc.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.jute.h>

#include "shared/compat.h"
#include "storage/ipc.h"
#include "worker/fault.h"

/* How long a parked thread gives the main thread to end. */
#define LIBRARY_DEATH_SECONDS	5

static int	wake_fd;			/* the main loop waits on it */
static pthread_t main_thread;
static volatile sig_atomic_t in_library = false;	/* the main thread is */
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

/*
 * Handler of SIGABRT and of the signals of faults.  The main thread dies of
 * them as ever, unless the fault is the library's.
 */
static void
fault_handler(SIGNAL_ARGS)
{
	struct timespec patience = {.tv_sec = LIBRARY_DEATH_SECONDS};
	uint64_t	one = 1;

	if (pthread_equal(pthread_self(), main_thread))
	{
		if (in_library || library_died)
			proc_exit(1);
		pqsignal(postgres_signal_arg, PG_SIG_DFL);
		raise(postgres_signal_arg); /* delivered when we return */
		return;
	}

	library_died = postgres_signal_arg;
	if (in_library)
		pthread_kill(main_thread, SIGABRT); /* it may wait for this thread */
	if (write(wake_fd, &one, sizeof(one)) < 0)
		pthread_kill(main_thread, SIGABRT); /* not that it can fail */
	while (nanosleep(&patience, &patience) != 0)
		;

	/* or for a lock that this thread holds */
	pthread_kill(main_thread, SIGABRT);
	for (;;)
		pause();
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

/*
 * fault_enter_library, fault_leave_library
 *		Go around a call of the library that starts threads, waits for them,
 *		or must not be interrupted.
 *
 * "saved" keeps the signals that were blocked.  Errors: FATAL if a thread of
 * the library has been parked.
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
 * A thread that is parked makes "fd", an eventfd, readable.
 */
void
fault_init(int fd)
{
	wake_fd = fd;
	main_thread = pthread_self();
	pqsignal(SIGABRT, fault_handler);
	pqsignal(SIGSEGV, fault_handler);
	pqsignal(SIGBUS, fault_handler);
	on_proc_exit(leave_at_once, (Datum) 0);
}
