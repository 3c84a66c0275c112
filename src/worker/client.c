/*-------------------------------------------------------------------------
 *
 * client.c
 *		libzookeeper_mt: its threads, and the queue of news.
 *
 * Each handle of the library has two threads of its own, in which the library
 * calls us back.  A callback touches nothing of PostgreSQL and nothing of the
 * main thread.  It fills in the answer of an operation, or a malloc'd notice,
 * appends it to its client's queue of news, and wakes the main thread.  Code
 * that runs in the library's threads is in this file, in callbacks.c, fault.c
 * and sasl.c only, where comments mark it.
 *
 * Locking.  news_lock, one for the process, guards the last three fields of
 * each Client (queue, queue_end, answers_left) and the static news_dropped.
 * It is held for a few assignments, and not while the eventfd is read or
 * written.  Nobody waits for another lock under it, and no PostgreSQL error
 * leaves it held.  What a News, an Operation or a Multi contains belongs to
 * the library's threads from the request until the callback has queued it, and
 * to the main thread otherwise.  A main thread that wants to free such memory
 * earlier closes the handle first, which joins the threads.
 *
 * The main loop waits on one eventfd for all clients.  News that wake the main
 * thread are written to it, after they have been queued: each notice, and an
 * answer if it is the last of its flight, since nothing can leave before, or
 * if the flight marked it ("wakes").  The loop reads the eventfd first
 * (client_reset_wake) and then takes from all queues until each has been seen
 * empty.  So news whose write has been read are in a queue that has yet to be
 * looked at, and all others make the next wait end at once.
 *
 * The library's log callback does not tell the handle.  Its lines go to the
 * client that was opened last (log_reader, which one assignment changes).
 *
 * Only asynchronous calls are used: the synchronous ones can hang for good if
 * the session ends at the wrong moment (ZOOKEEPER-2802).  watches.c has the
 * one exception, which asks no server.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/client.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/reason.h"
#include "shared/clock.h"
#include "shared/secure.h"
#include "worker/client.h"
#include "worker/fault.h"

/* How long a handshake may take, at the least and in parts of a timeout. */
#define MIN_HANDSHAKE_MS		1000
#define HANDSHAKES_PER_TIMEOUT	3

/* A handle of the library is smaller. */
#define NO_HANDLE_SIZE			(64 * 1024)

static int	wake_fd = -1;
static Client *log_reader;		/* gets the lines of the library's log */

/* Shared with the library's threads; guarded by news_lock. */
static pthread_mutex_t news_lock = PTHREAD_MUTEX_INITIALIZER;
static bool news_dropped = false;	/* out of memory in a callback; the main
									 * thread reads it without the lock, after
									 * it has been woken */

static __thread bool in_multi = false;	/* this thread is in zoo_amulti() */

static bool left_open = false;	/* a handle that could not be closed */

/* check_stand_ins() asks for this one, which is none; it was asked for. */
static const zhandle_t *no_handle = NULL;
static bool asked_for_none = false;

/* zookeeper_init_ssl(), which zookeeper.h has for its own build only. */
typedef zhandle_t *(*InitSsl) (const char *servers, const char *files,
							   watcher_fn watcher, int timeout_ms,
							   const clientid_t *id, void *context, int flags);

/* zookeeper_init_sasl(), likewise. */
typedef zhandle_t *(*InitSasl) (const char *servers, watcher_fn watcher,
								int timeout_ms, const clientid_t *id,
								void *context, int flags,
								log_callback_fn log, const SaslParams *sasl);

/* Which zookeeper.h has only for programs without threads. */
extern int	zookeeper_process(zhandle_t *zh, int events);

/*
 * client_is_leaders
 *		Is this the code of an answer that the leader gave to a write, and
 *		that a quorum has logged?
 *
 * ZooKeeper logs a request that fails as it logs others.
 */
bool
client_is_leaders(int code)
{
	return code == ZOK || code == ZNONODE || code == ZNODEEXISTS ||
		code == ZNOAUTH;
}

/*
 * What follows runs in the library's threads.
 */

static void
wake_main(void)
{
	uint64_t	one = 1;

	/* fails only if the counter is full, and then the reader wakes anyway */
	if (write(wake_fd, &one, sizeof(one)) < 0)
		return;
}

/*
 * Append "count" news, chained from the first to the last, to the queue of
 * their client.
 */
static void
post_chain(News *first, News *last, int count)
{
	Client	   *client = first->client;
	bool		wakes = true;

	pthread_mutex_lock(&news_lock);
	last->next = NULL;
	*client->queue_end = first;
	client->queue_end = &last->next;
	if (first->kind == NEWS_ANSWER)
	{
		client->answers_left -= count;
		wakes = client->answers_left <= 0 || first->wakes;
	}
	pthread_mutex_unlock(&news_lock);
	if (wakes)
		wake_main();
}

/* Post news that answer no operation. */
static void
post_notice(Client *client, NewsKind kind, int code, const char *string)
{
	News	   *news = calloc(1, sizeof(News));

	if (news && string && (news->string = strdup(string)) == NULL)
	{
		free(news);
		news = NULL;
	}
	if (news)
	{
		news->client = client;
		news->kind = kind;
		news->code = code;
		post_chain(news, news, 1);
	}
	else
	{
		pthread_mutex_lock(&news_lock);
		news_dropped = true;
		pthread_mutex_unlock(&news_lock);
		wake_main();
	}
}

/*
 * client_post_answer
 *		Queue the answer to an operation.
 *
 * "code" is one of ZOO_ERRORS.  For the main thread, too, if the library does
 * not take an operation.
 */
void
client_post_answer(News *answer, int code)
{
	answer->code = code;
	post_chain(answer, answer, 1);
}

/*
 * client_post_multi
 *		Queue all answers of a multi at once.
 *
 * The main thread may free the multi as soon as it has the last answer.  For
 * the main thread, too, if the library does not take a multi.
 */
void
client_post_multi(const Multi *multi)
{
	News	   *first = NULL;
	News	   *last = NULL;
	int			count = 0;

	for (int i = 0; i < multi->count; i++)
	{
		if (multi->answers[i] == NULL)
			continue;
		if (last == NULL)
			first = multi->answers[i];
		else
			last->next = multi->answers[i];
		last = multi->answers[i];
		count++;
	}
	post_chain(first, last, count);
}

/*
 * The first request on a connection has been answered, or not.  The library does
 * not log for what reason the server has refused it, but only that it closes the
 * connection.
 */
void
client_answer_greeting(int rc, const void *data)
{
	if (rc == ZSESSIONCLOSEDREQUIRESASLAUTH)
		post_notice((Client *) data, NEWS_MESSAGE, 0, REASON_UNWELCOME);
	post_notice((Client *) data, NEWS_GREETED, rc, NULL);
}

static void
log_message(const char *message)
{
	post_notice(log_reader, NEWS_MESSAGE, 0, message);
}

static void
state_changed(zhandle_t *zh pg_attribute_unused(), int type, int state,
			  const char *path pg_attribute_unused(), void *ctx)
{
	if (type == ZOO_SESSION_EVENT)
		post_notice(ctx, NEWS_STATE, state, NULL);
}

/*
 * All watches of a handle have the same function and context: the library
 * compares each with each at every session event.  Such an event leaves the
 * watch set.
 */
void
client_watch_fired(zhandle_t *zh pg_attribute_unused(), int type,
				   int state pg_attribute_unused(), const char *path,
				   void *ctx)
{
	if (type != ZOO_SESSION_EVENT && path != NULL)
		post_notice(ctx, NEWS_WATCH, type, path);
}

/*
 * In place of the library's own, as the functions of fault.c are; see
 * check_stand_ins().
 *
 * The library asks this for each operation of a multi, and from the first yes
 * on it frees, as a copy of the next operation's path, whatever its stack
 * holds there.  An IO thread that learns of the end of its session at that
 * moment would have the main thread abort.  So this denies the end of the
 * session to a thread that makes a multi.
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

/*
 * From here on, everything runs in the main thread.
 */

/*
 * client_check
 *		See that the library is alive and that no news are lost.
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
	if (news_dropped)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));
}

/*
 * Does the library call our functions, of this file and of fault.c, in place of
 * its own?  It does not if it was linked before zklock was loaded.  The first
 * thing that zookeeper_process() does is to ask whether its handle is
 * unrecoverable.  This handle has all bits set: for the library, too, it is.
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
 * Returns the eventfd: it is readable when client_next_news() has something
 * new since client_reset_wake().  Errors: as for any failing system call.
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
	check_stand_ins();

	/* below that it warns of every late wake-up of a loaded machine */
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	return wake_fd;
}

/*
 * client_init
 *		Make an empty client, whose memory must last as long as the process.
 */
void
client_init(Client *client)
{
	memset(client, 0, sizeof(*client));
	client->queue_end = &client->queue;
}

/*
 * client_open
 *		Begin to connect: to the session "id", or to a new one if that is
 *		NULL.
 *
 * "timeout_ms" is asked of the server.  "tls" names the files for an encrypted
 * connection, as tls_files() does, or is NULL; so is "sasl", from sasl_params().
 * At least one of them is NULL.  With "creator_acl" our znodes are for our
 * credentials only, else for everybody.  Returns false if the library cannot
 * begin.  Errors: as for fault_enter_library().
 */
bool
client_open(Client *client, const char *servers, int timeout_ms,
			const char *tls, const SaslParams *sasl, const clientid_t *id,
			bool creator_acl)
{
	InitSsl		init_ssl = (InitSsl) zookeeper_init_ssl;
	InitSasl	init_sasl = (InitSasl) zookeeper_init_sasl;
	sigset_t	saved;

	Assert(client->handle == NULL);
	log_reader = client;
	client->acl = creator_acl ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	fault_enter_library(&saved);
	if (sasl != NULL)
		client->handle = init_sasl(servers, state_changed, timeout_ms, id,
								   client, ZOO_NO_LOG_CLIENTENV, log_message,
								   sasl);
	else if (tls == NULL)
		client->handle = zookeeper_init2(servers, state_changed, timeout_ms,
										 id, client, ZOO_NO_LOG_CLIENTENV,
										 log_message);
	else
		client->handle = init_ssl(servers, tls, state_changed, timeout_ms, id,
								  client, ZOO_NO_LOG_CLIENTENV);
	if (tls != NULL && client->handle != NULL)
		zoo_set_log_callback(client->handle, log_message);
	fault_leave_library(&saved);
	client->may_be_refused = sasl != NULL && client->handle != NULL;

	/* not at every turn of the IO thread, only without a connection */
	if (client->handle != NULL)
		zoo_set_servers_resolution_delay(client->handle, -1);
	return client->handle != NULL;
}

/*
 * Is the library in a TLS handshake, or about to begin one?  Its IO thread waits
 * there for the server for ever, and does nothing else.
 */
static bool
is_in_handshake(const Client *client)
{
	int			state = client->handle ? zoo_state(client->handle) : 0;

	/* zookeeper.h does not have this state's name, but all others */
	return state > 0 && state != ZOO_CONNECTING_STATE &&
		state != ZOO_ASSOCIATING_STATE && state != ZOO_CONNECTED_STATE &&
		state != ZOO_READONLY_STATE && state != ZOO_NOTCONNECTED_STATE;
}

/*
 * client_hangs
 *		Has the library been in a TLS handshake for too long?  To be called
 *		again and again, as it only knows of how long from that.
 */
bool
client_hangs(Client *client)
{
	int64		now_ms = zk_now_ms();

	if (!is_in_handshake(client))
		client->handshake_since_ms = 0;
	else if (client->handshake_since_ms == 0)
		client->handshake_since_ms = now_ms;
	return client->handshake_since_ms != 0 &&
		now_ms - client->handshake_since_ms >=
		Max(zoo_recv_timeout(client->handle) / HANDSHAKES_PER_TIMEOUT,
			MIN_HANDSHAKE_MS);
}

/*
 * client_close
 *		Close the handle, if it is open, and drop all news.
 *
 * Joins the threads, so no callback comes afterwards.  May block for a few
 * seconds.  A handle in a TLS handshake is left open, as the join might never
 * return: then the worker must end, which client_check() sees to.  The caller frees the operations, answered or not.  Errors: as for
 * fault_enter_library().
 */
void
client_close(Client *client)
{
	sigset_t	saved;
	News	   *news;

	if (is_in_handshake(client))
		left_open = true;
	else if (client->handle != NULL)
	{
		fault_enter_library(&saved);
		zookeeper_close(client->handle);
		fault_leave_library(&saved);
	}
	client->handle = NULL;
	client->connected = client->may_be_refused = false;
	while ((news = client_next_news(client)) != NULL)
		if (news->kind != NEWS_ANSWER)
			client_free_notice(news);
}

/*
 * client_send_multi
 *		As zoo_amulti(), which must not be called otherwise.
 *
 * If the session ends meanwhile, the multi may be taken all the same: it is
 * answered when the handle is closed.
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

/*
 * client_is_ours
 *		Is this of an ephemeral node of our session?
 */
bool
client_is_ours(const Client *client, const struct Stat *stat)
{
	return client->handle != NULL &&
		stat->ephemeralOwner == zoo_client_id(client->handle)->client_id;
}

/*
 * client_expect_answers
 *		A flight of so many answers is about to leave: the last of them wakes
 *		the main thread.
 */
void
client_expect_answers(Client *client, int count)
{
	pthread_mutex_lock(&news_lock);
	client->answers_left = count;
	pthread_mutex_unlock(&news_lock);
}

/*
 * client_reset_wake
 *		Have the eventfd tell of later news only: to be called ahead of
 *		taking all that there are.
 */
void
client_reset_wake(void)
{
	uint64_t	count;

	if (read(wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		elog(ERROR, "could not read from eventfd: %m");
}

/* Are there news of this client that have not been given out? */
static bool
has_news(Client *client)
{
	bool		result;

	pthread_mutex_lock(&news_lock);
	result = client->taken != NULL || client->queue != NULL;
	pthread_mutex_unlock(&news_lock);
	return result;
}

/*
 * Post what the library does not when SASL has failed: behind its reason, which
 * may be among the news of another client.
 */
static void
note_refusal(Client *client)
{
	if (!client->may_be_refused ||
		zoo_state(client->handle) != ZOO_AUTH_FAILED_STATE ||
		has_news(log_reader))
		return;
	client->may_be_refused = false;
	post_notice(client, NEWS_STATE, ZOO_AUTH_FAILED_STATE, NULL);
}

/*
 * client_next_news
 *		The oldest of the news, or NULL if there are none.
 *
 * That SASL has failed does not wake the main thread: while there is no
 * connection, the loop must call this every now and then.  The caller frees
 * them: client_free_notice(), or what owns the answer.
 */
News *
client_next_news(Client *client)
{
	News	   *news;

	if (client->taken == NULL)
	{
		note_refusal(client);
		pthread_mutex_lock(&news_lock);
		client->taken = client->queue;
		client->queue = NULL;
		client->queue_end = &client->queue;
		pthread_mutex_unlock(&news_lock);
	}
	news = client->taken;
	if (news)
		client->taken = news->next;
	return news;
}

/*
 * client_put_back
 *		Have client_next_news() give out these news next, chained from the
 *		first to the last.
 */
void
client_put_back(News *first, News *last)
{
	Client	   *client = first->client;

	last->next = client->taken;
	client->taken = first;
}

/*
 * client_free_answer
 *		Free what callbacks have put into an answer, but not the News itself,
 *		which is part of an operation.
 */
void
client_free_answer(News *news)
{
	free(news->string);
	free(news->children);
	free(news->data);
	free(news->barrier);
}

/*
 * client_free_notice
 *		Free news that are no answer.
 */
void
client_free_notice(News *news)
{
	free(news->string);
	free(news);
}
