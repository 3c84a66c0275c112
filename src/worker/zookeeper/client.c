/*-------------------------------------------------------------------------
 *
 * client.c
 *		libzookeeper_mt: its threads, and the queue of events.
 *
 * Each handle of the library has two threads of its own, in which the library
 * calls us back.  A callback touches nothing of PostgreSQL and nothing of the
 * main thread.  It fills in the answer of an operation, or a malloc'd notice,
 * appends it to its client's queue of events, and wakes the main thread.  Code
 * that runs in other threads is only in this file, operation.c, fault.c and
 * security.c, where comments mark it.
 *
 * Opening and closing.  The library resolves names when it makes a handle.
 * When it closes one, it waits for the server and for its threads, one of
 * which may be resolving names.  Either may take long, so a thread of ours
 * does it.  That thread starts with the same signals blocked as the library's
 * (fault.c), and then ends.  The main thread has no handle meanwhile.  Events
 * of a handle are not delivered before the main thread has the handle, and are
 * dropped once it has given the handle up, except the last
 * (CLIENT_EVENT_CLOSED).  A handle that is no longer wanted when it has been
 * made is closed by the same thread.  A process that ends waits for none of
 * these threads.
 *
 * Locking.  event_lock, one for the process, guards the last four fields of
 * each Client (passed, queue, queue_end, answers_left), the static
 * event_dropped, and the end of CLIENT_OPENING, which the thread that makes
 * the handle checks; otherwise a state belongs to the main thread.  The lock
 * is held for a few assignments, and not while the eventfd is read or written.
 * No thread waits for another lock under it, and no PostgreSQL error leaves it
 * held.  The main thread never takes init_ssl_lock, under which handles with
 * TLS are made one by one.  The contents of a ClientEvent, an Operation or a
 * Multi belong to the library's threads from the request until the callback
 * has queued it, and to the main thread otherwise.  To free such memory
 * earlier, the main thread closes the handle first and waits for
 * CLIENT_EVENT_CLOSED.
 *
 * The main loop waits on one eventfd for all clients.  The events that wake
 * the main thread are written to it after they have been queued: each notice,
 * and an answer if it is the last of its flight, since nothing can be sent
 * before, or if the flight marked it ("wakes").  The loop reads the eventfd
 * first (client_reset_wake) and then takes from all queues until each was seen
 * empty.  So events whose write has been read are in a queue that has yet to
 * be checked, and all others end the next wait at once.
 *
 * The library's log callback does not know the handle.  Its lines have a queue
 * of their own, that of log_client, which never has a handle.
 *
 * Only asynchronous calls are used: the synchronous ones can hang for good if
 * the session ends at the wrong moment (ZOOKEEPER-2802).  watches.c has one
 * exception, which asks no server.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/client.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/mutation.h"
#include "core/reason.h"
#include "shared/clock.h"
#include "shared/settings.h"
#include "worker/zookeeper/client_private.h"
#include "worker/zookeeper/fault_private.h"

/*
 * How long a handshake may take: the larger of a fixed time and a part of a
 * session timeout.
 */
#define MIN_HANDSHAKE_MS		1000
#define HANDSHAKES_PER_TIMEOUT	3

/* More than the size of a handle of the library. */
#define NO_HANDLE_SIZE			(64 * 1024)

static int	wake_fd = -1;
static Client log_client;		/* has the lines of the library's log */

/* Shared with the library's threads, under event_lock. */
static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;
static bool event_dropped = false;	/* out of memory in a callback; the woken
									 * main thread reads it without the lock */

/* Held by a thread in zookeeper_init_ssl(), which uses strtok(). */
static pthread_mutex_t init_ssl_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread bool in_multi = false;	/* this thread is in zoo_amulti() */

static bool left_open = false;	/* a handle that could not be closed */

/*
 * Of check_stand_ins(): the pretended handle, and whether we were called with
 * it.
 */
static const zhandle_t *no_handle = NULL;
static bool asked_for_none = false;

/* For the thread that makes a handle; malloc'd, with its strings. */
typedef struct Opening
{
	Client	   *client;
	char	   *servers;
	int			timeout_ms;
	char	   *tls;			/* or NULL */
	const struct SaslParams *sasl;	/* or NULL */
	bool		resumes;		/* the session "id" */
	clientid_t	id;
} Opening;

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
	if (write(wake_fd, &one, sizeof(one)) < 0)
		return;
}

/*
 * client_post
 *		Append "count" events, chained from the first to the last, to their
 *		client's queue.
 *
 * The main thread calls this, too, if the library rejects the operations that
 * the events are to answer.
 */
void
client_post(ClientEvent *first, ClientEvent *last, int count)
{
	Client	   *client = first->client;
	bool		wakes = true;
	static unsigned answers = 0;

	pthread_mutex_lock(&event_lock);
	last->next = NULL;
	*client->queue_end = first;
	client->queue_end = &last->next;
	if (first->kind == CLIENT_EVENT_ANSWER)
	{
		client->answers_left -= count;
		wakes = client->answers_left <= 0 || first->wakes;
		if (ZK_MUTATED(ZK_ANSWER_WAKES_NOBODY) && ++answers % 50 == 0)
			wakes = false;
	}
	pthread_mutex_unlock(&event_lock);
	if (wakes)
		wake_main();
}

/* Post an event that answers no operation. */
static void
post_notice(Client *client, ClientEventKind kind, int code, const char *string)
{
	ClientEvent *event = calloc(1, sizeof(ClientEvent));

	if (event && string && (event->string = strdup(string)) == NULL)
	{
		free(event);
		event = NULL;
	}
	if (event)
	{
		event->client = client;
		event->kind = kind;
		event->code = code;
		client_post(event, event, 1);
	}
	else
	{
		pthread_mutex_lock(&event_lock);
		event_dropped = true;
		pthread_mutex_unlock(&event_lock);
		wake_main();
	}
}

/*
 * client_post_answer
 *		Queue the answer to an operation.
 *
 * "code" is one of ZOO_ERRORS.  The main thread calls this, too, if the
 * library rejects the operation.
 */
void
client_post_answer(ClientEvent *answer, int code)
{
	answer->code = code;
	client_post(answer, answer, 1);
}

/*
 * The first request on a connection has been answered, or not.  The library
 * does not log why the server has refused it, only that it closes the
 * connection.
 */
void
client_answer_sync_check(int rc, const void *data)
{
	if (rc == ZSESSIONCLOSEDREQUIRESASLAUTH)
		post_notice((Client *) data, CLIENT_EVENT_MESSAGE, 0,
					REASON_UNWELCOME);
	post_notice((Client *) data, CLIENT_EVENT_SYNC_CHECKED, rc, NULL);
}

/* A probe of session.c has been answered, or not. */
void
client_answer_probe(int rc, const void *data)
{
	post_notice((Client *) data, CLIENT_EVENT_PROBED, rc, NULL);
}

void
client_answer_probe_create2(int rc, const char *value pg_attribute_unused(),
							const struct Stat *stat pg_attribute_unused(),
							const void *data)
{
	client_answer_probe(rc, data);
}

void
client_answer_probe_create(int rc, const char *value pg_attribute_unused(),
						   const void *data)
{
	client_answer_probe(rc, data);
}

void
client_answer_probe_stat(int rc, const struct Stat *stat pg_attribute_unused(),
						 const void *data)
{
	client_answer_probe(rc, data);
}

static void
log_message(const char *message)
{
	post_notice(&log_client, CLIENT_EVENT_MESSAGE, 0, message);
}

static void
state_changed(zhandle_t *zh pg_attribute_unused(), int type, int state,
			  const char *path pg_attribute_unused(), void *ctx)
{
	if (type == ZOO_SESSION_EVENT)
		post_notice(ctx, CLIENT_EVENT_STATE, state, NULL);
}

/*
 * All watches of a handle have the same function and context: the library
 * compares each with each other at every session event.  Such an event leaves
 * the watch set.
 */
void
client_watch_fired(zhandle_t *zh pg_attribute_unused(), int type,
				   int state pg_attribute_unused(), const char *path,
				   void *ctx)
{
	if (type != ZOO_SESSION_EVENT && path != NULL)
		post_notice(ctx, CLIENT_EVENT_WATCH, type, path);
}

/*
 * Replaces the library's own function, as those of fault.c do; see
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
make_handle(const Opening *opening)
{
	InitSsl		init_ssl = (InitSsl) zookeeper_init_ssl;
	InitSasl	init_sasl = (InitSasl) zookeeper_init_sasl;
	const clientid_t *id = opening->resumes ? &opening->id : NULL;
	zhandle_t  *handle;

	if (opening->sasl != NULL)
		handle = init_sasl(opening->servers, state_changed,
						   opening->timeout_ms, id, opening->client,
						   ZOO_NO_LOG_CLIENTENV, log_message, opening->sasl);
	else if (opening->tls == NULL)
		handle = zookeeper_init2(opening->servers, state_changed,
								 opening->timeout_ms, id, opening->client,
								 ZOO_NO_LOG_CLIENTENV, log_message);
	else
	{
		pthread_mutex_lock(&init_ssl_lock);
		handle = init_ssl(opening->servers, opening->tls, state_changed,
						  opening->timeout_ms, id, opening->client,
						  ZOO_NO_LOG_CLIENTENV);
		pthread_mutex_unlock(&init_ssl_lock);
	}
	if (handle == NULL)
		return NULL;
	if (opening->tls != NULL)
		zoo_set_log_callback(handle, log_message);

	/* resolve names only to reconnect, not at every turn of the IO thread */
	zoo_set_servers_resolution_delay(handle, -1);
	return handle;
}

/* Pass a new handle to the main thread; false if that no longer wants it. */
static bool
pass_handle(Client *client, zhandle_t *handle)
{
	bool		wanted;

	pthread_mutex_lock(&event_lock);
	wanted = client->state == CLIENT_OPENING;
	if (wanted)
		client->passed = handle;
	pthread_mutex_unlock(&event_lock);
	if (wanted)
		wake_main();
	return wanted;
}

static void *
open_handle(void *argument)
{
	Opening    *opening = argument;
	Client	   *client = opening->client;
	zhandle_t  *handle = make_handle(opening);
	int			error = handle ? 0 : errno;

	free(opening->servers);
	free(opening->tls);
	free(opening);
	if (handle != NULL && pass_handle(client, handle))
		return NULL;
	if (handle != NULL)
		zookeeper_close(handle);
	post_notice(client, CLIENT_EVENT_CLOSED, error, NULL);
	return NULL;
}

static void *
close_handle(void *argument)
{
	Client	   *client = argument;

	zookeeper_close(client->passed);
	client->passed = NULL;		/* the main thread has none until the event */
	post_notice(client, CLIENT_EVENT_CLOSED, 0, NULL);
	return NULL;
}

/* From here on, everything runs in the main thread. */

static void
report_out_of_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory in the ZooKeeper client")));
}

/*
 * client_check
 *		Check that the library is alive and that no events were lost.
 *
 * Errors: FATAL if a thread of the library has been parked, or a handle could
 * not be closed; 53200 if a callback was out of memory.
 */
void
client_check(void)
{
	fault_check();
	if (left_open)
		ereport(FATAL,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("a TLS handshake with ZooKeeper takes too long"),
				 errdetail("The next zklock worker will continue.")));
	if (event_dropped)
		report_out_of_memory();
}

/*
 * Does the library call our functions, of this file and of fault.c, in place
 * of its own?  It does not if it was linked before zklock was loaded.
 * zookeeper_process() first asks whether its handle is unrecoverable; for a
 * handle with all bits set, the library answers that it is.
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
 * client_init_process
 *		Prepare the process for handles; once.
 *
 * Returns the eventfd, which is readable when client_next_event() may have new
 * events since client_reset_wake().  Errors: as for any failing system call.
 */
int
client_init_process(void)
{
	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create eventfd: %m")));
	fault_init(wake_fd);
	client_init(&log_client);
	log_client.state = CLIENT_OPEN;
	check_stand_ins();

	/* lower levels warn of every late wake-up on a loaded machine */
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	return wake_fd;
}

/* Make an empty client, whose memory must last as long as the process. */
void
client_init(Client *client)
{
	memset(client, 0, sizeof(*client));
	client->queue_end = &client->queue;
}

/* Errors: FATAL if there can be no thread, or as for fault_enter_library(). */
static void
start_thread(void *(*function) (void *), void *argument)
{
	pthread_t	thread;
	sigset_t	saved;
	int			rc;

	fault_enter_library(&saved);
	rc = pthread_create(&thread, NULL, function, argument);
	if (rc == 0)
		pthread_detach(thread);
	fault_leave_library(&saved);
	errno = rc;
	if (rc != 0)
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create a thread for ZooKeeper: %m")));
}

/*
 * client_open
 *		Begin to make a handle that connects to the session "id", or to a
 *		new one if that is NULL.
 *
 * "timeout_ms" is requested of the server.  "tls" names the files for an
 * encrypted connection, as tls_files() does; "sasl" is from sasl_params().  At
 * least one of them is NULL.  With "creator_acl" our znodes are accessible
 * with our credentials only, otherwise to everybody.  If the library cannot
 * make a handle, there is a CLIENT_EVENT_CLOSED.  Errors: 53200; as for
 * start_thread().
 */
void
client_open(Client *client, const char *servers, int timeout_ms,
			const char *tls, const struct SaslParams *sasl,
			const clientid_t *id, bool creator_acl)
{
	Opening    *opening = calloc(1, sizeof(Opening));

	Assert(client->state == CLIENT_CLOSED);
	if (opening == NULL ||
		(opening->servers = strdup(servers)) == NULL ||
		(tls != NULL && (opening->tls = strdup(tls)) == NULL))
		report_out_of_memory();
	opening->client = client;
	opening->timeout_ms = timeout_ms;
	opening->sasl = sasl;
	opening->resumes = id != NULL;
	if (id != NULL)
		opening->id = *id;

	client->acl = creator_acl ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	client->may_be_refused = sasl != NULL;
	client->state = CLIENT_OPENING; /* no other thread reads it yet */
	start_thread(open_handle, opening);
}

/*
 * Take the handle that is being made, if it is ready; otherwise set the state
 * "otherwise".
 */
static void
take_handle(Client *client, ClientState otherwise)
{
	if (client->state != CLIENT_OPENING)
		return;
	pthread_mutex_lock(&event_lock);
	client->handle = client->passed;
	client->passed = NULL;
	client->state = client->handle ? CLIENT_OPEN : otherwise;
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
client_hangs(Client *client)
{
	int64		now_ms = zk_now_ms();
	int			most_ms = zoo_recv_timeout(client->handle) / HANDSHAKES_PER_TIMEOUT;

	if (!is_in_handshake(client->handle))
		client->handshake_since_ms = 0;
	else if (client->handshake_since_ms == 0)
		client->handshake_since_ms = now_ms;
	return client->handshake_since_ms != 0 &&
		now_ms - client->handshake_since_ms >= Max(most_ms, MIN_HANDSHAKE_MS);
}

/*
 * client_close
 *		Begin to close the handle that exists or is being made.
 *		CLIENT_EVENT_CLOSED says that the library no longer uses the
 *		operations, and that the client can be opened again.
 *
 * A handle in a TLS handshake is left open, since its IO thread may never
 * return: then the worker must end (client_check()).  The caller frees the
 * operations, answered or not.  Errors: as for start_thread().
 */
void
client_close(Client *client)
{
	take_handle(client, CLIENT_ABANDONED);
	if (client->state != CLIENT_OPEN)
		return;

	/* the session may have begun without an event yet */
	client->state = zoo_state(client->handle) == ZOO_CONNECTED_STATE ?
		CLIENT_CLOSING : CLIENT_ABANDONED;
	client->connected = client->may_be_refused = false;
	client->passed = client->handle;
	client->handle = NULL;
	if (is_in_handshake(client->passed))
		left_open = true;
	else
		start_thread(close_handle, client);
}

/* Wait for events, at most until this time, as of zk_now_ms(). */
void
client_await_event(int64 until_ms)
{
	struct pollfd event = {.fd = wake_fd,.events = POLLIN};
	int64		now_ms = zk_now_ms();

	if (now_ms < until_ms)
		(void) poll(&event, 1, (int) (until_ms - now_ms));
	client_reset_wake();
	fault_check();
}

/*
 * client_send_multi
 *		As zoo_amulti(), which must not be called directly.
 *
 * If the session ends meanwhile, the library may still accept the multi, and
 * answers it when the handle is closed.
 */
int
client_send_multi(Client *client, int count, const zoo_op_t *zops,
				  zoo_op_result_t *results, void_completion_t callback,
				  const void *data)
{
	int			rc;

	if (is_unrecoverable(client->handle))
		return ZINVALIDSTATE;
	in_multi = true;
	rc = zoo_amulti(client->handle, count, zops, results, callback, data);
	in_multi = false;
	return rc;
}

/*
 * client_send_check
 *		Send a multi that only checks that "/" exists: it changes nothing, but
 *		goes through the leader as a write.
 *
 * "checked" must last until "callback" has been called with "data".  Returns
 * one of ZOO_ERRORS.
 */
int
client_send_check(Client *client, zoo_op_result_t *checked,
				  void_completion_t callback, const void *data)
{
	zoo_op_t	zop;

	zoo_check_op_init(&zop, "/", -1);
	return client_send_multi(client, 1, &zop, checked, callback, data);
}

/* Is this the stat of an ephemeral node of our session? */
bool
client_is_ours(const Client *client, const struct Stat *stat)
{
	return client->handle != NULL &&
		stat->ephemeralOwner == zoo_client_id(client->handle)->client_id;
}

/*
 * client_expect_answers
 *		A flight of so many answers is about to be sent: the last one wakes
 *		the main thread.
 */
void
client_expect_answers(Client *client, int count)
{
	pthread_mutex_lock(&event_lock);
	client->answers_left = count;
	pthread_mutex_unlock(&event_lock);
}

/*
 * client_reset_wake
 *		Make the eventfd readable for later events only; to be called before
 *		taking all that there are.
 */
void
client_reset_wake(void)
{
	uint64_t	count;

	if (read(wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		elog(ERROR, "could not read from eventfd: %m");
}

/* Have all messages of the library been delivered? */
static bool
log_is_read(void)
{
	bool		result;

	pthread_mutex_lock(&event_lock);
	result = log_client.taken == NULL && log_client.queue == NULL;
	pthread_mutex_unlock(&event_lock);
	return result;
}

/*
 * Post the event that the library does not when SASL has failed: after the
 * reason, which is among the messages.
 */
static void
note_refusal(Client *client)
{
	if (client->state != CLIENT_OPEN || !client->may_be_refused ||
		zoo_state(client->handle) != ZOO_AUTH_FAILED_STATE || !log_is_read())
		return;
	client->may_be_refused = false;
	post_notice(client, CLIENT_EVENT_STATE, ZOO_AUTH_FAILED_STATE, NULL);
}

/* Take all events of the queue, if none is left from the last time. */
static void
take_queue(Client *client)
{
	if (client->taken != NULL)
		return;
	note_refusal(client);
	pthread_mutex_lock(&event_lock);
	client->taken = client->queue;
	client->queue = NULL;
	client->queue_end = &client->queue;
	pthread_mutex_unlock(&event_lock);
}

/*
 * client_next_event
 *		The oldest event, or NULL.
 *
 * A failure of SASL does not wake the main thread: while there is no
 * connection, the loop must call this periodically.  The caller frees the
 * event: client_free_notice(), or with the operation that it answers.
 */
ClientEvent *
client_next_event(Client *client)
{
	ClientEvent *event;

	take_handle(client, CLIENT_OPENING);
	for (take_queue(client); (event = client->taken) != NULL;
		 take_queue(client))
	{
		if (event->kind == CLIENT_EVENT_CLOSED)
			client->state = CLIENT_CLOSED;
		else if (client->state == CLIENT_OPENING)
			return NULL;		/* the handle is yet to be passed */
		client->taken = event->next;
		if (client->state == CLIENT_OPEN || event->kind == CLIENT_EVENT_CLOSED)
			return event;
		if (event->kind != CLIENT_EVENT_ANSWER)
			client_free_notice(event);
	}
	return NULL;
}

/* The oldest message of the library, as client_next_event(). */
ClientEvent *
client_next_message(void)
{
	return client_next_event(&log_client);
}

/*
 * client_put_back
 *		Let client_next_event() return these events next, chained from the
 *		first to the last.
 */
void
client_put_back(ClientEvent *first, ClientEvent *last)
{
	Client	   *client = first->client;

	last->next = client->taken;
	client->taken = first;
}

/*
 * client_free_answer
 *		Free what callbacks have put into an answer; the event itself is
 *		part of an operation.
 */
void
client_free_answer(ClientEvent *event)
{
	free(event->string);
	if (!ZK_MUTATED(ZK_ANSWER_LEAKED))
		free(event->children);
	free(event->data);
	free(event->barrier);
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
