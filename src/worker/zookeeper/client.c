/*-------------------------------------------------------------------------
 *
 * client.c
 *		libzookeeper_mt: its threads, their faults, and the queue of events.
 *
 * The handle of the library has two threads of its own, in which the library
 * calls us back.  A callback touches nothing of PostgreSQL and nothing of the
 * main thread.  It fills in the answer of an operation, or a malloc'd notice,
 * and appends it to the queue of events.  Code that runs in other threads is
 * only in this file, where comments mark it.
 *
 * Opening and closing.  The library resolves names when it makes a handle.
 * When it closes one, it waits for the server and for its threads, one of
 * which may be resolving names.  Either may take long, so a thread of ours
 * does it, and the main thread has no handle meanwhile.  Events of a handle
 * are not delivered before the main thread has the handle, and are dropped
 * once it has given the handle up, except lines of the library's log and the
 * last event (CLIENT_EVENT_CLOSED), behind which another handle may be made.
 * A handle that is no longer wanted when it has been made is closed by the
 * same thread.  A process that ends waits for none of these threads.
 *
 * Locking.  event_lock guards the static variables below it, and the end of
 * CLIENT_OPENING, which the thread that makes the handle checks; otherwise the
 * state belongs to the main thread.  The lock is held for a few assignments,
 * and no PostgreSQL error leaves it held.  "opening" is set before the thread
 * that reads it starts, and not again before the handle is closed.  An event,
 * an Operation or a Multi belongs to the library's threads from the request
 * until the callback has queued it, and to the main thread otherwise.  To free
 * such memory earlier, the main thread closes the handle first and waits for
 * CLIENT_EVENT_CLOSED.
 *
 * The main loop waits on an eventfd, which is written to when something has
 * been appended to an empty queue.  The loop reads the eventfd first
 * (session_reset_wake) and then takes from the queue until it was seen empty.
 * So events whose write has been read are in the queue that has yet to be
 * checked, and all others end the next wait at once.
 *
 * Only asynchronous calls are used: the synchronous ones can hang for good if
 * the session ends at the wrong moment (ZOOKEEPER-2802).  flight.c has one
 * exception, which asks no server.
 *
 * Faults.  PostgreSQL's handlers must run in the main thread only.  So the
 * library's threads start with all signals blocked but SIGQUIT, whose handler
 * only calls _exit(), and those of a fault.
 *
 * A server may send anything: it may be no ZooKeeper, or a broken one.  Debian
 * builds the library with assertions, some of which fail on that.  Nor does
 * the library check whether it could parse an answer: it delivers and frees
 * whatever is on its stack in place of the missing part.  An abort or a fault
 * would take the whole PostgreSQL server down.  So the functions that free
 * such an answer are ours (deallocate_*), and free only what looks parsed, and
 * a signal handler parks the library's thread for good; the worker ends and is
 * replaced.
 *
 * How the main thread ends.  The exit callbacks work on shared memory, so they
 * must not run while the main thread is changing that: it may even hold a
 * spinlock.  There are two places where it is not: the main loop, which learns
 * of the fault by check_library(); and a call of the library that waits for
 * its threads or locks, between client_enter_library() and
 * client_leave_library(), which a signal ends, since the parked thread may
 * hold what it waits for.  Anywhere else the main thread continues until it
 * reaches the main loop.  Then it no longer calls the library, runs the exit
 * callbacks, and leaves by _exit().
 *
 * It may never get there: the parked thread may hold a lock of malloc, or have
 * corrupted the heap; or the fault was in the main thread, within a call of
 * the library, with malloc's lock held.  So the fault starts a timer, which
 * finally sends SIGQUIT, the postmaster's own means to end a process at once,
 * without callbacks.  For the postmaster that is a crash.  It restarts all of
 * PostgreSQL with new shared memory: nothing else is safe after a process that
 * may have left a spinlock held.  The same happens, as for any backend, after
 * a fault of the main thread outside the library, or in the exit callbacks.
 *
 * The handler runs in any thread.  What it shares with the main thread is set
 * before the library has threads (client.wake_fd, main_thread, deadline), or
 * is a sig_atomic_t.  It only calls functions that are safe in a handler.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/client.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.jute.h>

#include "core/lock/znode.h"
#include "core/mutation.h"
#include "port/atomics.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "worker/zookeeper/client_private.h"

/*
 * How long a handshake may take: the larger of a fixed time and a part of a
 * session timeout.
 */
#define MIN_HANDSHAKE_MS		1000
#define HANDSHAKES_PER_TIMEOUT	3

/* More than a sequence number can add to a path. */
#define SEQUENCE_SIZE		32

/* How long the process may take to end after a fault. */
#define FAULT_SECONDS			10

/* More than the size of a handle of the library. */
#define NO_HANDLE_SIZE			(64 * 1024)

/* What a handle is made of, for the thread that makes it. */
typedef struct Opening
{
	char	   *servers;
	int			timeout_ms;
	char	   *tls;			/* or NULL */
	const struct SaslParams *sasl;	/* or NULL */
	clientid_t	id;				/* of the session to resume, or 0 */
} Opening;

Client		client = {.wake_fd = -1};

static pthread_t main_thread;
static timer_t deadline;		/* finally sends SIGQUIT */
static sigset_t unblocked;		/* the signal mask outside the library */
static volatile sig_atomic_t in_library = false;	/* main thread in the
													 * library, where it may
													 * exit */
static volatile sig_atomic_t library_died = 0;	/* by this signal */
static Opening opening;
static const struct ACL_vector *node_acl;	/* of created nodes */
static int64 handshake_since_ms;	/* as of zk_now_ms(); 0: not in one */

/* For the library's thread that delivers answers: see callback_parent(). */
static int	parents_code;

/* Shared with the library's threads, under event_lock. */
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static zhandle_t *passed = NULL;	/* from the thread that opened it, or to the
									 * one that closes it */
static ClientEvent *queue = NULL;
static ClientEvent **queue_end = &queue;
static bool event_dropped = false;	/* out of memory in a callback; the woken
									 * main thread reads it without the lock */

static __thread bool in_multi = false;	/* this thread is in zoo_amulti() */

static bool left_open = false;	/* a handle that could not be closed */

/*
 * Of check_stand_ins(): the pretended handle, and whether we were called with
 * it.
 */
static const zhandle_t *no_handle = NULL;
static bool asked_for_none = false;

/* Operations that succeed or fail together: a group or a batch. */
typedef struct Multi
{
	bool		is_batch;
	int			count;
	zoo_op_result_t *results;
	Operation  *ops[FLEXIBLE_ARRAY_MEMBER]; /* NULL: the next one's */
} Multi;

/* zookeeper_init_ssl(), which zookeeper.h declares only if built so. */
typedef zhandle_t *(*InitSsl) (const char *servers, const char *files,
							   watcher_fn watcher, int timeout_ms,
							   const clientid_t *id, void *context, int flags);

/* zookeeper_init_sasl(), likewise. */
typedef zhandle_t *(*InitSasl) (const char *servers, watcher_fn watcher,
								int timeout_ms, const clientid_t *id,
								void *context, int flags,
								log_callback_fn log,
								const struct SaslParams *sasl);

/* zookeeper.h declares it only for programs without threads. */
extern int	zookeeper_process(zhandle_t *zh, int events);

/*
 * client_is_leaders
 *		Is this the code of the leader's answer to a write, which a quorum
 *		has logged?
 *
 * ZooKeeper logs failed requests, too.
 */
bool
client_is_leaders(int code)
{
	return code == ZOK || code == ZNONODE || code == ZNODEEXISTS ||
		code == ZNOAUTH;
}

/* What follows runs in the library's threads. */

static void
wake_main(void)
{
	uint64_t	one = 1;

	/* fails only if the counter is full, when the reader wakes anyway */
	if (write(client.wake_fd, &one, sizeof(one)) < 0)
		return;
}

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
 * Replace the library's own functions, which it calls through the dynamic
 * linker, so that ours are found first.  What is not freed here is lost until
 * the worker ends.
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
	start_deadline();
	library_died = signo;
	pg_memory_barrier();
	if (in_library)
		pthread_kill(main_thread, SIGABRT); /* it may be waiting for this
											 * thread */
	wake_main();
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

/* Append an event to the queue; event_lock is held. */
static void
append(ClientEvent *event)
{
	event->next = NULL;
	*queue_end = event;
	queue_end = &event->next;
}

/* Post an event that answers no operation. */
static void
post_notice(ClientEventKind kind, int code, const char *string)
{
	ClientEvent *event = calloc(1, sizeof(ClientEvent));

	if (event && string && (event->string = strdup(string)) == NULL)
	{
		free(event);
		event = NULL;
	}
	pthread_mutex_lock(&event_lock);
	if (event)
	{
		event->kind = kind;
		event->code = code;
		append(event);
	}
	else
		event_dropped = true;
	pthread_mutex_unlock(&event_lock);
	wake_main();
}

/*
 * Post the answers to operations, those of a multi at once; NULL is none.  The
 * main thread calls this, too, if the library rejects the operations.
 */
static void
post_answers(Operation *const *ops, int count)
{
	bool		wakes;
	static unsigned answers = 0;

	pthread_mutex_lock(&event_lock);
	wakes = queue == NULL;
	for (int i = 0; i < count; i++)
	{
		if (ops[i] != NULL)
			append(&ops[i]->event);
	}

	/* from here on the main thread may free the operations, and their multi */
	pthread_mutex_unlock(&event_lock);
	if (ZK_MUTATED(ZK_ANSWER_WAKES_NOBODY) && ++answers % 50 == 0)
		return;
	if (wakes)
		wake_main();
}

/* Post the answer to an operation; "code" is one of ZOO_ERRORS. */
static void
post_answer(Operation *op, int code)
{
	op->answer.error = code;
	post_answers(&op, 1);
}

/*
 * Callbacks for the answers to operations.  "data" is the Operation; of
 * callback_multi() the Multi.
 *
 * What the library delivers is not trusted: a missing string or an impossible
 * code counts as a lost answer.
 */

/* The error code of a server.  It has no positive ones; we do. */
static int
code_of(int rc)
{
	return rc > 0 ? UNACKNOWLEDGED : rc;
}

static void
set_stat(Operation *op, const struct Stat *stat)
{
	RequestAnswer *answer = &op->answer;

	answer->size = stat->dataLength;
	answer->child_count = stat->numChildren;
	answer->mzxid = stat->mzxid;
	answer->czxid = stat->czxid;
	answer->version = stat->version;
	answer->ctime = stat->ctime;
	answer->ephemeral_owner = stat->ephemeralOwner;
}

/* The name of a created node, in its path. */
static void
set_node(Operation *op, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	op->answer.node = slash ? slash + 1 : "";
}

static void
callback_void(int rc, const void *data)
{
	Operation  *op = (Operation *) data;

	post_answer(op, code_of(rc));
}

static void
callback_string(int rc, const char *value, const void *data)
{
	Operation  *op = (Operation *) data;
	int			code = code_of(rc);

	if (op == NULL)
		return;					/* a sync before the operation itself */
	if (op->request.kind == REQUEST_MKDIRS && op->parents_code == ZOK)
		op->parents_code = parents_code;
	if (rc == ZOK)
	{
		op->event.string = value ? strdup(value) : NULL;
		if (op->event.string == NULL)
			code = UNACKNOWLEDGED;
		else if (operation_creates(op))
			set_node(op, op->event.string);
	}
	post_answer(op, code);
}

static void
callback_create(int rc, const char *value, const struct Stat *stat,
				const void *data)
{
	Operation  *op = (Operation *) data;

	if (rc == ZOK && stat)
		set_stat(op, stat);
	callback_string(rc, value, data);
}

/*
 * A parent of a directory is answered just before the directory; the topmost
 * one, with "data", first.  One that is missing has been collected meanwhile,
 * but for the topmost one, which is missing if the chroot is.
 */
static void
callback_parent(int rc, const char *value pg_attribute_unused(),
				const void *data)
{
	if (data != NULL)
		parents_code = ZOK;
	if (rc == ZNONODE ? data != NULL :
		parents_code == ZOK && rc != ZNODEEXISTS)
		parents_code = code_of(rc);
}

/*
 * A truncated list has no strings at its end, or none at all.  Part of a queue
 * would look like a queue without the others.  The list may claim to have 2^31
 * strings, which the library would free one by one: set the count to the
 * strings that exist.
 */
static bool
list_is_whole(const struct String_vector *strings)
{
	if (strings == NULL || strings->count < 0 ||
		(strings->count > 0 && strings->data == NULL))
		return false;
	for (int i = 0; i < strings->count; i++)
	{
		if (strings->data[i] != NULL)
			continue;
		((struct String_vector *) strings)->count = i;
		return false;
	}
	return true;
}

/* Copy a list into one block; false if there is no memory. */
static bool
copy_children(Operation *op, const struct String_vector *strings)
{
	Size		size = strings->count * sizeof(char *);
	char	  **children;
	char	   *end;

	for (int i = 0; i < strings->count; i++)
		size += strlen(strings->data[i]) + 1;
	children = malloc(size);
	if (children == NULL)
		return false;
	end = (char *) (children + strings->count);
	for (int i = 0; i < strings->count; i++)
	{
		children[i] = end;
		strcpy(end, strings->data[i]);
		end += strlen(end) + 1;
	}
	op->answer.children = (const char *const *) children;
	op->answer.nchildren = strings->count;
	return true;
}

static void
callback_strings(int rc, const struct String_vector *strings,
				 const void *data)
{
	Operation  *op = (Operation *) data;
	int			code = code_of(rc);

	op->read = rc == ZOK;
	if (rc == ZOK && !list_is_whole(strings))
		code = UNACKNOWLEDGED;
	else if (rc == ZOK && strings->count > 0 && !copy_children(op, strings))
		code = UNACKNOWLEDGED;
	post_answer(op, code);
}

static void
callback_stat(int rc, const struct Stat *stat, const void *data)
{
	Operation  *op = (Operation *) data;

	if (rc == ZOK && stat)
		set_stat(op, stat);
	post_answer(op, code_of(rc));
}

/* Does this let everybody do more than read? */
static bool
is_open(const struct ACL *acl)
{
	return (acl->perms & ~ZOO_PERM_READ) != 0 &&
		(acl->id.scheme == NULL || strcmp(acl->id.scheme, "world") == 0);
}

static void
callback_acl(int rc, struct ACL_vector *acl,
			 struct Stat *stat pg_attribute_unused(), const void *data)
{
	Operation  *op = (Operation *) data;
	int			code = code_of(rc);

	if (rc == ZOK && (acl == NULL || acl->data == NULL))
		code = UNACKNOWLEDGED;
	else if (rc == ZOK)
	{
		op->answer.acl_count = acl->count;
		for (int i = 0; i < acl->count; i++)
			op->answer.acl_open |= is_open(&acl->data[i]);
	}
	post_answer(op, code);
}

static void
callback_data(int rc, const char *value, int value_len,
			  const struct Stat *stat, const void *data)
{
	Operation  *op = (Operation *) data;
	int			code = code_of(rc);

	op->read = rc == ZOK;
	op->answer.data_len = -1;
	if (rc == ZOK && stat)
		set_stat(op, stat);
	if (rc == ZOK && (stat == NULL || Max(value_len, 0) != stat->dataLength))
		code = UNACKNOWLEDGED;			/* truncated, so unknown */
	else if (rc == ZOK && value && value_len >= 0)
	{
		char	   *copy = malloc((Size) value_len + 1);

		if (copy == NULL)
			code = UNACKNOWLEDGED;
		else
		{
			memcpy(copy, value, value_len);
			op->answer.data = copy;
			op->answer.data_len = value_len;
		}
	}
	post_answer(op, code);
}

/*
 * A multi can fail in two ways.  If one of its operations fails, that one has
 * its error, those before it have none, and those after it have
 * ZRUNTIMEINCONSISTENCY, since the server did not try them.  If the request
 * fails or the connection is lost, all have the same error.
 */
static void
callback_multi(int rc, const void *data)
{
	const Multi *multi = data;
	bool		one_failed = false;
	int			failed = -1;
	int			answered;		/* part that has the answer to what failed */

	for (int i = 0; i < multi->count; i++)
	{
		int			own = multi->results[i].err;

		if (own != rc)
			one_failed = true;
		else if (failed < 0 && own < ZAPIERROR && own != ZRUNTIMEINCONSISTENCY)
			failed = i;
	}
	answered = failed >= 0 && multi->ops[failed] == NULL ? failed + 1 : failed;
	for (int i = 0; i < multi->count; i++)
	{
		Operation  *op = multi->ops[i];
		int			own = multi->results[i].err;
		int			code = code_of(rc);

		if (op == NULL)
			continue;
		if (!one_failed || multi->count == 1 || i == answered)
			;
		else if (multi->is_batch)
		{
			code = failed < 0 ? UNACKNOWLEDGED : CLIENT_BATCH_FAILED;
			op->limit = Max(multi->count / 2, 1);
		}
		else if (rc < ZAPIERROR)
			code = own < ZAPIERROR ? own : ZRUNTIMEINCONSISTENCY;
		op->answer.error = code;
		if (code == ZOK && operation_creates(op))
			set_node(op, multi->results[i].value);
		else if (code == ZOK && op->request.kind == REQUEST_SET)
			set_stat(op, &op->stat);
	}
	post_answers(multi->ops, multi->count);
}

static void
log_message(const char *message)
{
	post_notice(CLIENT_EVENT_MESSAGE, 0, message);
}

static void
state_changed(zhandle_t *zh pg_attribute_unused(), int type, int state,
			  const char *path pg_attribute_unused(),
			  void *ctx pg_attribute_unused())
{
	if (type == ZOO_SESSION_EVENT)
		post_notice(CLIENT_EVENT_STATE, state, NULL);
}

/*
 * All watches of a handle have the same function and context: the library
 * compares each with each other at every session event.  Such an event leaves
 * the watch set.
 */
static void
watch_fired(zhandle_t *zh pg_attribute_unused(), int type,
			int state pg_attribute_unused(), const char *path,
			void *ctx pg_attribute_unused())
{
	if (type != ZOO_SESSION_EVENT && path != NULL)
		post_notice(CLIENT_EVENT_WATCH, type, path);
}

/*
 * Replaces the library's own function, as deallocate_*() do; see
 * check_stand_ins().
 *
 * The library asks this for each operation of a multi.  From the first "yes"
 * on it frees, as a copy of the next operation's path, whatever is on its
 * stack.  If an IO thread learned of the end of its session at that moment,
 * the main thread would abort.  So a thread that makes a multi does not learn
 * of the end.
 */
extern PGDLLEXPORT int is_unrecoverable(zhandle_t *zh);

int
is_unrecoverable(zhandle_t *zh)
{
	if (no_handle != NULL && zh == no_handle)
	{
		asked_for_none = true;
		return ZINVALIDSTATE;
	}
	return zoo_state(zh) < 0 && !in_multi ? ZINVALIDSTATE : ZOK;
}

static zhandle_t *
make_handle(void)
{
	InitSsl		init_ssl = (InitSsl) zookeeper_init_ssl;
	InitSasl	init_sasl = (InitSasl) zookeeper_init_sasl;
	const clientid_t *id = opening.id.client_id ? &opening.id : NULL;
	zhandle_t  *handle;

	if (opening.sasl != NULL)
		handle = init_sasl(opening.servers, state_changed,
						   opening.timeout_ms, id, NULL,
						   ZOO_NO_LOG_CLIENTENV, log_message, opening.sasl);
	else if (opening.tls == NULL)
		handle = zookeeper_init2(opening.servers, state_changed,
								 opening.timeout_ms, id, NULL,
								 ZOO_NO_LOG_CLIENTENV, log_message);
	else
		handle = init_ssl(opening.servers, opening.tls, state_changed,
						  opening.timeout_ms, id, NULL,
						  ZOO_NO_LOG_CLIENTENV);
	if (handle == NULL)
		return NULL;
	if (opening.tls != NULL)
		zoo_set_log_callback(handle, log_message);

	/* resolve names only to reconnect, not in every loop of the IO thread */
	zoo_set_servers_resolution_delay(handle, -1);
	return handle;
}

/* Pass a new handle to the main thread; false if that no longer wants it. */
static bool
pass_handle(zhandle_t *handle)
{
	bool		wanted;

	pthread_mutex_lock(&event_lock);
	wanted = client.state == CLIENT_OPENING;
	if (wanted)
		passed = handle;
	pthread_mutex_unlock(&event_lock);
	if (wanted)
		wake_main();
	return wanted;
}

static void *
open_handle(void *argument pg_attribute_unused())
{
	zhandle_t  *handle = make_handle();
	int			error = handle ? 0 : errno;

	if (handle != NULL && pass_handle(handle))
		return NULL;
	if (handle != NULL)
		zookeeper_close(handle);
	post_notice(CLIENT_EVENT_CLOSED, error, NULL);
	return NULL;
}

static void *
close_handle(void *argument pg_attribute_unused())
{
	zookeeper_close(passed);
	passed = NULL;				/* the main thread has none until the event */
	post_notice(CLIENT_EVENT_CLOSED, 0, NULL);
	return NULL;
}

/* From here on, everything runs in the main thread. */

/*
 * Check that no thread of the library has been parked, after which the library
 * must not be called.  Errors: FATAL if one has been.
 */
static void
check_fault(void)
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
 * client_enter_library, client_leave_library
 *		Enclose a call of the library that starts threads, waits for them or
 *		for their locks, or must not be interrupted.
 *
 * In between the process may exit at any point: no lock of PostgreSQL may be
 * held, and no shared memory changed.  Errors: FATAL if a thread of the library
 * has been parked.
 */
void
client_enter_library(void)
{
	sigset_t	block;

	sigfillset(&block);
	sigdelset(&block, SIGQUIT);
	sigdelset(&block, SIGABRT); /* some libc's abort() does not unblock it */
	sigdelset(&block, SIGSEGV);
	sigdelset(&block, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &block, &unblocked);
	in_library = true;
	pg_memory_barrier();		/* each thread sees what the other has set */
	check_fault();
}

void
client_leave_library(void)
{
	in_library = false;
	pthread_sigmask(SIG_SETMASK, &unblocked, NULL);
}

/* Prepare for faults before the first call of the library. */
static void
init_faults(void)
{
	struct sigevent event;

	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGQUIT;
	if (timer_create(CLOCK_MONOTONIC, &event, &deadline) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not create timer: %m")));
	main_thread = pthread_self();
	pqsignal(SIGABRT, fault_handler);
	pqsignal(SIGSEGV, fault_handler);
	pqsignal(SIGBUS, fault_handler);
	before_shmem_exit(leave_library, (Datum) 0);
	on_proc_exit(leave_at_once, (Datum) 0);
}

/* Check that the library is alive and that no events were lost. */
static void
check_library(void)
{
	check_fault();
	if (left_open)
		ereport(FATAL,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("a TLS handshake with ZooKeeper takes too long"),
				 errdetail("The next zklock worker will continue.")));
	if (event_dropped)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));
}

/*
 * Does the library call our functions in place of its own?  It does not if it
 * was linked before zklock was loaded.  zookeeper_process() first asks whether
 * its handle is unrecoverable; for a handle with all bits set, the library
 * answers that it is.
 */
static void
check_stand_ins(void)
{
	char	   *block = palloc(NO_HANDLE_SIZE);

	memset(block, 0xFF, NO_HANDLE_SIZE);
	no_handle = (zhandle_t *) block;
	zookeeper_process((zhandle_t *) block, 0);
	no_handle = NULL;
	pfree(block);
	if (!asked_for_none)
		ereport(WARNING,
				(errmsg("zklock cannot replace functions of the ZooKeeper client library"),
				 errdetail("Another module has loaded the library before zklock.  Locks are not affected, but where the library fails on the answer of a broken server, PostgreSQL may restart."),
				 errhint("List zklock ahead of that module in \"shared_preload_libraries\".")));
}

/*
 * client_init
 *		Prepare the process for handles; once.
 *
 * Errors: as for any failing system call.
 */
void
client_init(void)
{
	client.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (client.wake_fd < 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create eventfd: %m")));
	init_faults();
	check_stand_ins();

	/* lower levels warn of every late wake-up on a loaded machine */
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
}

/* Errors: FATAL if there is no thread, or as for client_enter_library(). */
static void
start_thread(void *(*function) (void *))
{
	pthread_t	thread;
	int			rc;

	client_enter_library();
	rc = pthread_create(&thread, NULL, function, NULL);
	if (rc == 0)
		pthread_detach(thread);
	client_leave_library();
	errno = rc;
	if (rc != 0)
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create a thread for ZooKeeper: %m")));
}

/*
 * client_open
 *		Begin to make a handle that connects to the session "key", or to a
 *		new one if its ID is 0; with the files for TLS, or the parameters for
 *		SASL, if not NULL.
 *
 * With zklock.acl = creator our znodes are accessible with our credentials
 * only, otherwise to everybody.  If the library cannot make a handle, there is
 * a CLIENT_EVENT_CLOSED.  Errors: 53200; as for start_thread().
 */
void
client_open(const char *servers, const SessionKey *key, const char *tls,
			const struct SaslParams *sasl)
{
	Assert(client.state == CLIENT_CLOSED);
	if (opening.servers)
		pfree(opening.servers);
	if (opening.tls)
		pfree(opening.tls);
	opening.servers = MemoryContextStrdup(TopMemoryContext, servers);
	opening.tls = tls ? MemoryContextStrdup(TopMemoryContext, tls) : NULL;
	opening.timeout_ms = zklock_session_timeout;
	opening.sasl = sasl;
	opening.id.client_id = key->client_id;
	memcpy(opening.id.passwd, key->passwd, sizeof(opening.id.passwd));

	node_acl = zklock_acl == ZK_ACL_CREATOR ?
		&ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	client.state = CLIENT_OPENING;	/* no other thread reads it yet */
	start_thread(open_handle);
}

/*
 * Take the handle that is being made, if it is ready; otherwise set the state
 * "otherwise".
 */
static void
take_handle(ClientState otherwise)
{
	if (client.state != CLIENT_OPENING)
		return;
	pthread_mutex_lock(&event_lock);
	client.handle = passed;
	passed = NULL;
	client.state = client.handle ? CLIENT_OPEN : otherwise;
	pthread_mutex_unlock(&event_lock);
}

/*
 * Is the library in a TLS handshake, or about to begin one?  Its IO thread
 * then waits for the server without a limit, and does nothing else.
 */
static bool
is_in_handshake(zhandle_t *handle)
{
	int			state = handle ? zoo_state(handle) : 0;

	/* the only state whose name zookeeper.h does not have */
	return state > 0 && state != ZOO_CONNECTING_STATE &&
		state != ZOO_ASSOCIATING_STATE && state != ZOO_CONNECTED_STATE &&
		state != ZOO_READONLY_STATE && state != ZOO_NOTCONNECTED_STATE;
}

/*
 * client_hangs
 *		Has the library been in a TLS handshake for too long?  To be called
 *		repeatedly, since its calls measure the time.
 */
bool
client_hangs(void)
{
	int64		now_ms = zk_now_ms();
	int			most_ms;

	if (!is_in_handshake(client.handle))
	{
		handshake_since_ms = 0;
		return false;
	}
	if (handshake_since_ms == 0)
		handshake_since_ms = now_ms;
	most_ms = zoo_recv_timeout(client.handle) / HANDSHAKES_PER_TIMEOUT;
	return now_ms - handshake_since_ms >= Max(most_ms, MIN_HANDSHAKE_MS);
}

/*
 * client_close
 *		Begin to close the handle that exists or is being made.
 *		CLIENT_EVENT_CLOSED says that the library no longer uses the
 *		operations, and that the client can be opened again.
 *
 * A handle in a TLS handshake is left open, since its IO thread may never
 * return: then the worker must end (check_library()).  The caller frees the
 * operations, answered or not.  Errors: as for start_thread().
 */
void
client_close(void)
{
	take_handle(CLIENT_ABANDONED);
	if (client.state != CLIENT_OPEN)
		return;

	/* the session may have begun without an event yet */
	client.state = zoo_state(client.handle) == ZOO_CONNECTED_STATE ?
		CLIENT_CLOSING : CLIENT_ABANDONED;
	client.connected = false;
	passed = client.handle;
	client.handle = NULL;
	if (is_in_handshake(passed))
		left_open = true;
	else
		start_thread(close_handle);
}

/*
 * As zoo_amulti(), which must not be called directly.
 *
 * If the session ends meanwhile, the library may still accept the multi, and
 * answers it when the handle is closed.
 */
static int
pass_multi(int count, const zoo_op_t *zops,
		   zoo_op_result_t *results, void_completion_t callback,
		   const void *data)
{
	int			rc;

	if (is_unrecoverable(client.handle))
		return ZINVALIDSTATE;
	in_multi = true;
	rc = zoo_amulti(client.handle, count, zops, results, callback, data);
	in_multi = false;
	return rc;
}

static int
data_len(const Operation *op)
{
	return op->request.data ? (int) strlen(op->request.data) : -1;
}

/* The ACL of a node; a persistent one is readable by others. */
static const struct ACL_vector *
acl_of(const Operation *op)
{
	static struct ACL acls[2];
	static const struct ACL_vector readable = {lengthof(acls), acls};

	if (node_acl != &ZOO_CREATOR_ALL_ACL || !op->request.persistent)
		return node_acl;
	acls[0].perms = ZOO_PERM_ALL;
	acls[0].id = ZOO_AUTH_IDS;
	acls[1].perms = ZOO_PERM_READ;
	acls[1].id = ZOO_ANYONE_ID_UNSAFE;
	return &readable;
}

/*
 * Create a directory, behind its parents if they are wanted, which are plain
 * nodes.  If one of those cannot be made, the create of the directory fails.
 */
static int
send_mkdir(Operation *op)
{
	bool		all = op->request.kind == REQUEST_MKDIRS;
	const char *first = all ? strchr(op->path + 1, '/') : NULL;
	char		parent[ZNODE_PATH_SIZE];

	for (const char *slash = first; slash != NULL;
		 slash = strchr(slash + 1, '/'))
	{
		strlcpy(parent, op->path, slash - op->path + 1);
		zoo_acreate(client.handle, parent, NULL, -1, node_acl,
					ZOO_PERSISTENT, callback_parent,
					slash == first ? op : NULL);
	}

	/* a directory without parents is the topmost one itself */
	op->parents_code = all && first == NULL ? ZNONODE : ZOK;
	return zoo_acreate(client.handle, op->path, op->request.data,
					   data_len(op), acl_of(op), op->request.persistent ?
					   ZOO_PERSISTENT : ZOO_CONTAINER,
					   callback_string, op);
}

/* Pass the operation to the library; returns one of ZOO_ERRORS. */
static int
send_by_kind(Operation *op)
{
	zhandle_t  *handle = client.handle;
	const char *data = op->request.data;

	switch (op->request.kind)
	{
		case REQUEST_MKDIR:
		case REQUEST_MKDIRS:
			return send_mkdir(op);
		case REQUEST_CREATE:
			return zoo_acreate2(handle, op->path, data, data_len(op),
								node_acl, op->request.exact ?
								ZOO_EPHEMERAL : ZOO_EPHEMERAL_SEQUENTIAL,
								callback_create, op);
		case REQUEST_SYNC:
			zoo_async(handle, op->path, callback_string, NULL);
			pg_fallthrough;		/* FALLTHROUGH */
		case REQUEST_SEARCH:
		case REQUEST_CHILDREN:
			return zoo_aget_children(handle, op->path, 0,
									 callback_strings, op);
		case REQUEST_LIST:
			return zoo_awget_children(handle, op->path, watch_fired, NULL,
									  callback_strings, op);
		case REQUEST_WATCH:
			return zoo_awget(handle, op->path, watch_fired, NULL,
							 callback_data, op);
		case REQUEST_GET:
			return zoo_aget(handle, op->path, 0, callback_data, op);
		case REQUEST_SET:
			return zoo_aset(handle, op->path, data, data_len(op),
							op->request.version, callback_stat, op);
		case REQUEST_UNWATCH:
			if (op->unwatched != 0)
				return zoo_aremove_all_watches(handle, op->path, op->unwatched,
											   0, (void_completion_t *) callback_void,
											   op);
			post_answer(op, ZOK);
			return ZOK;
		case REQUEST_STAT:
			return zoo_aexists(handle, op->path, 0, callback_stat, op);
		case REQUEST_DELETE:
		case REQUEST_DELETE_ORPHAN:
		case REQUEST_RMDIR:
			return zoo_adelete(handle, op->path, -1, callback_void, op);
		case REQUEST_SET_ACL:
			return zoo_aset_acl(handle, op->path, -1,
								unconstify(struct ACL_vector *, acl_of(op)),
								callback_void, op);
		case REQUEST_GET_ACL:
			return zoo_aget_acl(handle, op->path, callback_acl, op);
		case REQUEST_CHECK:
		case REQUEST_REQUEUE:
			break;				/* in a multi only: client_send_multi() */
	}
	return ZBADARGUMENTS;
}

/*
 * Did the library reject a request, so that we must answer it?  ZINVALIDSTATE
 * is the end of the session, an event of its own, which ends the operation
 * too.
 */
static bool
was_refused(int rc)
{
	return rc != ZOK && rc != ZINVALIDSTATE;
}

/*
 * client_send
 *		Pass an operation to the library, alone.
 *
 * It is answered in any case, unless the session ends.
 */
void
client_send(Operation *op)
{
	int			rc = send_by_kind(op);

	if (was_refused(rc))
		post_answer(op, rc);
}

/*
 * Make a multi, followed by room for the results and their paths: all that the
 * library uses until it has answered.
 */
static Multi *
make_multi(Operation *const *ops, int count, bool is_batch)
{
	Multi	   *multi;
	Size		size = offsetof(Multi, ops);
	int			parts = 0;

	for (int i = 0; i < count; i++)
	{
		size += strlen(ops[i]->path) + SEQUENCE_SIZE;
		parts += operation_parts(ops[i]);
	}
	size += parts * (sizeof(Operation *) + sizeof(zoo_op_result_t));
	multi = MemoryContextAllocZero(GetMemoryChunkContext(ops[0]), size);
	multi->is_batch = is_batch;
	multi->count = parts;
	multi->results = (zoo_op_result_t *) &multi->ops[parts];
	for (int i = 0; i < parts; i++)
		multi->results[i].err = ZRUNTIMEINCONSISTENCY;
	return multi;
}

/* Add a create to a multi; *room is for its path. */
static void
add_create(zoo_op_t *zop, const Operation *op, const char *path, char **room)
{
	int			size = strlen(path) + SEQUENCE_SIZE;

	zoo_create_op_init(zop, path, op->request.data, data_len(op),
					   node_acl, op->request.exact ?
					   ZOO_EPHEMERAL : ZOO_EPHEMERAL_SEQUENTIAL, *room, size);
	*room += size;
}

/* Add an operation to a multi, in operation_parts() parts. */
static void
add_operation(zoo_op_t *zop, Operation *op, char **room)
{
	switch (op->request.kind)
	{
		case REQUEST_REQUEUE:
			add_create(zop + 1, op,
					   pnstrdup(op->path,
								strlen(op->path) - ZNODE_SEQUENCE_DIGITS),
					   room);
			pg_fallthrough;		/* FALLTHROUGH */
		case REQUEST_DELETE:
			zoo_delete_op_init(zop, op->path, -1);
			break;
		case REQUEST_CHECK:
			zoo_check_op_init(zop, op->path, op->request.version);
			break;
		case REQUEST_SET:
			zoo_set_op_init(zop, op->path, op->request.data, data_len(op),
							op->request.version, &op->stat);
			break;
		default:
			add_create(zop, op, op->path, room);
			break;
	}
}

/*
 * client_send_multi
 *		Pass creates and deletes, a group, or one check to the library as one
 *		multi.
 *
 * What it creates gets its number as "batch".  "is_batch": the operations are
 * unrelated, and if one fails the others are answered CLIENT_BATCH_FAILED.
 * All are answered in any case, unless the session ends.  The multi, in the
 * memory context of the operations, is freed with the last of them.
 */
void
client_send_multi(Operation *const *ops, int count, bool is_batch)
{
	static uint32 batch = 0;	/* never 0 again */
	Multi	   *multi = make_multi(ops, count, is_batch);
	zoo_op_t   *zops = palloc(multi->count * sizeof(zoo_op_t));
	char	   *room = (char *) &multi->results[multi->count];
	int			n = 0;
	int			rc;

	if (++batch == 0)
		++batch;
	for (int i = 0; i < count; i++)
	{
		Operation  *op = ops[i];

		add_operation(&zops[n], op, &room);
		n += operation_parts(op);
		multi->ops[n - 1] = op;
		if (operation_creates(op))
			op->request.batch = batch;
	}
	ops[count - 1]->multi = multi;

	rc = pass_multi(multi->count, zops, multi->results, callback_multi, multi);
	if (was_refused(rc))
	{
		for (int i = 0; i < count; i++)
			ops[i]->answer.error = rc;
		post_answers(multi->ops, multi->count);
	}
	pfree(zops);
}

/* Is this the owner of the ephemeral nodes of our session? */
bool
client_is_ours(int64_t owner)
{
	return client.handle != NULL &&
		owner == zoo_client_id(client.handle)->client_id;
}

/*
 * Post the event that the library does not when SASL has failed: behind the
 * reason, which the library has logged before.
 */
static void
note_refusal(void)
{
	if (client.state == CLIENT_OPEN && opening.sasl != NULL &&
		zoo_state(client.handle) == ZOO_AUTH_FAILED_STATE)
		post_notice(CLIENT_EVENT_STATE, ZOO_AUTH_FAILED_STATE, NULL);
}

static bool
outlives_handle(const ClientEvent *event)
{
	return event->kind == CLIENT_EVENT_CLOSED ||
		event->kind == CLIENT_EVENT_MESSAGE;
}

/*
 * Take the first event of the queue, or NULL.  While the handle is yet to be
 * passed, only those are taken that need none.
 */
static ClientEvent *
take_first(void)
{
	ClientEvent *event;

	pthread_mutex_lock(&event_lock);
	event = queue;
	if (event && client.state == CLIENT_OPENING && !outlives_handle(event))
		event = NULL;
	if (event && (queue = event->next) == NULL)
		queue_end = &queue;
	pthread_mutex_unlock(&event_lock);
	return event;
}

/*
 * client_next_event
 *		The oldest event, or NULL.
 *
 * A failure of SASL does not wake the main thread: while there is no
 * connection, the loop must call this periodically.  The caller frees the
 * event: client_free_notice(), or with the operation that it answers.
 *
 * Errors: FATAL if a thread of the library has been parked, or a handle could
 * not be closed; 53200 if a callback was out of memory.
 */
ClientEvent *
client_next_event(void)
{
	ClientEvent *event;

	check_library();
	take_handle(CLIENT_OPENING);
	note_refusal();
	while ((event = take_first()) != NULL)
	{
		if (event->kind == CLIENT_EVENT_CLOSED)
			client.state = CLIENT_CLOSED;
		if (client.state == CLIENT_OPEN || outlives_handle(event))
			return event;
		if (event->kind != CLIENT_EVENT_ANSWER)
			client_free_notice(event);
	}
	return NULL;
}

/* Let client_next_event() return this event next. */
void
client_put_back(ClientEvent *event)
{
	pthread_mutex_lock(&event_lock);
	event->next = queue;
	if (queue == NULL)
		queue_end = &event->next;
	queue = event;
	pthread_mutex_unlock(&event_lock);
}

/* Free what an operation's answer has, and its multi with the last of it. */
void
client_free_answer(Operation *op)
{
	free(op->event.string);
	if (!ZK_MUTATED(ZK_ANSWER_LEAKED))
		free((void *) op->answer.children);
	free((void *) op->answer.data);
	if (op->multi)
		pfree(op->multi);
	op->multi = NULL;
}

/* Free an event that is not an answer. */
void
client_free_notice(ClientEvent *event)
{
	if (ZK_MUTATED(ZK_EVENT_LEAKED) && event->kind == CLIENT_EVENT_WATCH)
		return;
	free(event->string);
	free(event);
}
