/*-------------------------------------------------------------------------
 *
 * client.c
 *		libzookeeper_mt: its threads, its callbacks, and the queue of news.
 *
 * Each handle of the library has two threads of its own, in which the library
 * calls us back.  A callback touches nothing of PostgreSQL and nothing of the
 * main thread.  It fills in the answer of an operation, or a malloc'd notice,
 * appends it to its client's queue of news, and wakes the main thread.  Code
 * that runs in the library's threads is in this file and in fault.c only,
 * where comments mark it.
 *
 * Locking.  news_lock, one for the process, guards the last four fields of
 * each Client (queue, queue_end, answers_left, wants_main) and the statics
 * nwaiting and news_dropped.  It is held for a few assignments and at most
 * one read or write of the eventfd.  Nobody waits for another lock under it,
 * and no PostgreSQL error leaves it held.  What a News, an Operation or a
 * Multi contains belongs to the library's threads from the request until the
 * callback has queued it, and to the main thread otherwise.  A main thread
 * that wants to free such memory earlier closes the handle first, which joins
 * the threads.
 *
 * The main loop waits on one eventfd for all clients.  It is readable while
 * any client's queue holds something that wakes the main thread.  A notice
 * does.  An answer does if it is the last of its flight, since nothing can
 * leave before, or if the flight marked it ("wakes").  The queues of several
 * clients may be taken in any order, and none is forgotten.
 *
 * The library's log callback does not tell the handle.  Its lines go to the
 * client that was opened last (log_reader, which one assignment changes).
 *
 * Only asynchronous calls are used: the synchronous ones can hang for good if
 * the session ends at the wrong moment (ZOOKEEPER-2802).  watches.c has the
 * one exception, which asks no server.
 *
 * Callbacks do not trust what the library hands on.  A missing string or a
 * code that does not exist counts as an answer that was lost.
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

#include "worker/client.h"
#include "worker/fault.h"

/* What came in place of an answer that makes no sense: as if none had come. */
#define UNHEARD		ZCONNECTIONLOSS

static int	wake_fd = -1;
static Client *log_reader;		/* gets the lines of the library's log */

/* Shared with the library's threads; guarded by news_lock. */
static pthread_mutex_t news_lock = PTHREAD_MUTEX_INITIALIZER;
static int	nwaiting = 0;		/* clients with wants_main */
static bool news_dropped = false;	/* out of memory in a callback; the main
									 * thread reads it without the lock, after
									 * it has been woken */

static __thread bool in_multi = false;	/* this thread is in zoo_amulti() */

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

/* An error code of the server, which has no positive ones; we do. */
static int
code_of(int rc)
{
	return rc > 0 ? UNHEARD : rc;
}

/*
 * Wake the main thread for news of this client, unless earlier ones have.
 * The caller holds news_lock.
 */
static void
wake_main(Client *client)
{
	uint64_t	one = 1;

	if (client->wants_main)
		return;
	client->wants_main = true;

	/* fails only if the counter is full, and then the reader wakes anyway */
	if (nwaiting++ == 0 && write(wake_fd, &one, sizeof(one)) < 0)
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
	if (wakes)
		wake_main(client);
	pthread_mutex_unlock(&news_lock);
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
		wake_main(client);
		pthread_mutex_unlock(&news_lock);
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
	for (int i = 1; i < multi->count; i++)
		multi->answers[i - 1]->next = multi->answers[i];
	post_chain(multi->answers[0], multi->answers[multi->count - 1],
			   multi->count);
}

void
client_answer_void(int rc, const void *data)
{
	News	   *news = (News *) data;

	if (news)					/* else a step of an operation, not its end */
		client_post_answer(news, code_of(rc));
}

void
client_answer_string(int rc, const char *value, const void *data)
{
	News	   *news = (News *) data;
	int			code = code_of(rc);

	if (news == NULL)
		return;
	if (rc == ZOK)
	{
		news->string = value ? strdup(value) : NULL;
		if (news->string == NULL)
			code = UNHEARD;
	}
	client_post_answer(news, code);
}

void
client_answer_create(int rc, const char *value, const struct Stat *stat,
					 const void *data)
{
	News	   *news = (News *) data;

	if (rc == ZOK && stat)
		news->stat = *stat;
	client_answer_string(rc, value, data);
}

/* The barrier ahead of an operation is answered ahead of it. */
void
client_answer_barrier(int rc, const void *data)
{
	Barrier    *barrier = (Barrier *) data;

	barrier->code = rc;
}

/*
 * A list that was cut short has no strings at its end, or none at all.  Part
 * of a queue would look like a queue in which others are missing.  The list
 * may claim to have 2^31 strings, which the library would free one by one:
 * set the count to what there is.
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
copy_children(News *news, const struct String_vector *strings)
{
	Size		size = strings->count * sizeof(char *);
	char	   *end;

	for (int i = 0; i < strings->count; i++)
		size += strlen(strings->data[i]) + 1;
	news->children = malloc(size);
	if (news->children == NULL)
		return false;
	end = (char *) (news->children + strings->count);
	for (int i = 0; i < strings->count; i++)
	{
		news->children[i] = end;
		strcpy(end, strings->data[i]);
		end += strlen(end) + 1;
	}
	news->nchildren = strings->count;
	return true;
}

/* What was read behind a barrier that has failed does not count. */
static int
behind_barrier(const News *news, int rc)
{
	if ((rc == ZOK || rc == ZNONODE) &&
		news->barrier && !client_is_leaders(news->barrier->code))
		return UNHEARD;
	return rc;
}

void
client_answer_strings(int rc, const struct String_vector *strings,
					  const void *data)
{
	News	   *news = (News *) data;
	int			code;

	rc = behind_barrier(news, rc);
	code = code_of(rc);
	if (rc == ZOK && !list_is_whole(strings))
		code = UNHEARD;
	else if (rc == ZOK && strings->count > 0 && !copy_children(news, strings))
		code = UNHEARD;
	client_post_answer(news, code);
}

void
client_answer_stat(int rc, const struct Stat *stat, const void *data)
{
	News	   *news = (News *) data;

	if (rc == ZOK && stat)
		news->stat = *stat;
	client_post_answer(news, code_of(rc));
}

void
client_answer_data(int rc, const char *value, int value_len,
				   const struct Stat *stat, const void *data)
{
	News	   *news = (News *) data;
	int			code;

	rc = behind_barrier(news, rc);
	code = code_of(rc);
	news->data_len = -1;
	if (rc == ZOK && stat)
		news->stat = *stat;
	if (rc == ZOK && (stat == NULL || Max(value_len, 0) != stat->dataLength))
		code = UNHEARD;			/* cut short, so it is not even there */
	else if (rc == ZOK && value && value_len >= 0)
	{
		news->data = malloc((Size) value_len + 1);
		if (news->data == NULL)
			code = UNHEARD;
		else
		{
			memcpy(news->data, value, value_len);
			news->data_len = value_len;
		}
	}
	client_post_answer(news, code);
}

/*
 * A multi can fail in two ways.  If one of its operations fails, that one has
 * an error of its own, those ahead of it have none, and those behind it have
 * ZRUNTIMEINCONSISTENCY, since the server did not try them.  If the request
 * fails or the connection is lost, all have the same error.
 */
void
client_answer_multi(int rc, const void *data)
{
	const Multi *multi = data;
	bool		one_failed = false;
	int			failed = -1;

	for (int i = 0; i < multi->count; i++)
	{
		int			own = multi->results[i].err;

		if (own != rc)
			one_failed = true;
		else if (failed < 0 && own < ZAPIERROR && own != ZRUNTIMEINCONSISTENCY)
			failed = i;
	}
	for (int i = 0; i < multi->count; i++)
	{
		News	   *news = multi->answers[i];
		int			own = multi->results[i].err;

		news->code = code_of(rc);
		news->failed = failed;
		if (one_failed && multi->is_batch)
		{
			if (i != failed)
				news->code = CLIENT_BATCH_FAILED;
		}
		else if (one_failed && rc < ZAPIERROR)
			news->code = own < ZAPIERROR ? own : ZRUNTIMEINCONSISTENCY;
		if (news->code == ZOK)
			news->created = multi->results[i].value;
	}
	client_post_multi(multi);
}

/* The first request on a connection has been answered, or not. */
void
client_answer_greeting(int rc, const void *data)
{
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
 * In place of the library's own, as the functions of fault.c are.
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
	return zoo_state(zh) < 0 && !in_multi ? ZINVALIDSTATE : ZOK;
}

/*
 * From here on, everything runs in the main thread.
 */

/*
 * client_check
 *		See that the library is alive and that no news are lost.
 *
 * Errors: FATAL if a thread of the library has been parked; 53200 if a
 * callback was out of memory.
 */
void
client_check(void)
{
	fault_check();
	if (news_dropped)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));
}

/*
 * client_init_process
 *		Prepare the process for handles; once.
 *
 * Returns the eventfd: it is readable when client_next_news() has something
 * new.  Errors: as for any failing system call.
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
 * "timeout_ms" is asked of the server.  With "creator_acl" our znodes are for
 * our credentials only, else for everybody.  Returns false if the library
 * cannot begin.  Errors: as for fault_enter_library().
 */
bool
client_open(Client *client, const char *servers, int timeout_ms,
			const clientid_t *id, bool creator_acl)
{
	sigset_t	saved;

	Assert(client->handle == NULL);
	log_reader = client;
	client->acl = creator_acl ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	fault_enter_library(&saved);
	client->handle = zookeeper_init2(servers, state_changed, timeout_ms, id,
									 client, ZOO_NO_LOG_CLIENTENV, log_message);
	fault_leave_library(&saved);

	/* not at every turn of the IO thread, only without a connection */
	if (client->handle != NULL)
		zoo_set_servers_resolution_delay(client->handle, -1);
	return client->handle != NULL;
}

/*
 * client_close
 *		Close the handle, if it is open, and drop all news.
 *
 * Joins the threads, so no callback comes afterwards.  May block for a few
 * seconds.  The caller frees the operations, answered or not.  Errors: as for
 * fault_enter_library().
 */
void
client_close(Client *client)
{
	sigset_t	saved;
	News	   *news;

	if (client->handle != NULL)
	{
		fault_enter_library(&saved);
		zookeeper_close(client->handle);
		fault_leave_library(&saved);
	}
	client->handle = NULL;
	client->connected = false;
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
 * client_next_news
 *		The oldest of the news, or NULL if there are none.
 *
 * The caller frees them: client_free_notice(), or what owns the answer.
 */
News *
client_next_news(Client *client)
{
	News	   *news;

	if (client->taken == NULL)
	{
		uint64_t	count;
		bool		failed = false;

		pthread_mutex_lock(&news_lock);
		client->taken = client->queue;
		client->queue = NULL;
		client->queue_end = &client->queue;
		if (client->wants_main && --nwaiting == 0)
			failed = read(wake_fd, &count, sizeof(count)) < 0;
		client->wants_main = false;
		pthread_mutex_unlock(&news_lock);
		if (failed && errno != EAGAIN)
			elog(ERROR, "could not read from eventfd: %m");
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
