/*-------------------------------------------------------------------------
 *
 * session.c
 *		The cluster's ZooKeeper session.
 *
 * All that knows libzookeeper_mt is here.  The library has two threads of its
 * own, in which it calls us back.  A callback touches nothing of PostgreSQL
 * and nothing of the main thread: it fills in the operation that it answers,
 * or a malloc'd notice, appends it to the queue of news under the mutex
 * news_lock, and writes to an eventfd that the worker's main loop waits on, if
 * it has not been written to.  Answers do so when they are the last of their
 * flight, since nothing can leave before, or when enough of them have come for
 * others to have work.  Everything else here runs in the main thread.
 *
 * Operations travel in flights.  What is submitted while a flight is out
 * waits and goes together in the next one, when all answers of the flight are
 * in and the connection is up.  The library hands answers back in the order
 * of the requests; we pass them on in that order.
 *
 * The creates and deletes of a flight go together, as a batch: one multi, one
 * write of ZooKeeper's log for all of them (or several, of which each is as
 * long as one should be).  Behind them goes what their owners have submitted
 * behind them, such as the reading of the queue; all else goes ahead, such as
 * the making of directories, which cannot be in a multi: the library aborts on
 * a container in one.  So the order is kept for each owner, though not between
 * them.  Of each owner no more than one such write goes in a flight.  One that
 * is alone in its flight goes alone.
 *
 * All that one multi creates has the same czxid: PrepRequestProcessor.java gets
 * one zxid for it ("Each op in a multi-op must have the same zxid!"), and
 * DataTree.java gives it to each of its parts.  The answer does not tell it,
 * and create2, whose answer would, frees a bad pointer in the library if it is
 * in a multi.  So it is asked for by a stat, which is sent once for all nodes
 * of one multi whose owners ask in the same flight.  A create that is alone is
 * a create2.
 *
 * If one operation of a batch fails, none of it has happened.  ZooKeeper tells
 * the error of the first that fails, and that is its answer: what its owner had
 * sent behind it is answered as it came, as behind a write that was alone.  The
 * others go again in the next flight, and with them what their owners had sent
 * behind them in the same flight, whose answers are thrown away: they were asked
 * for to be heard behind the write.  So owners get answers as if there were no
 * batches.
 *
 * Those ahead of the one that failed are good; those behind it have not been
 * looked at.  Where one fails, others often do: directories that nobody uses are
 * collected.  But the reading of the queue behind a create tells whether its
 * directory is missing.  If so, that is what the create is answered, too; else it
 * is taken to be good.  The good ones go again as one batch, and the others as
 * another, both apart from what is new.  If such a batch fails, what is behind
 * the one that did goes in several: none longer than what was good at a stretch,
 * unless that was very little.  So however many fail, it takes a few flights; if
 * one does, two requests more, and what was sent behind.  If it is not told which
 * has failed, each goes alone.
 *
 * Only asynchronous calls are used: the synchronous ones can hang for good if
 * the session ends at the wrong moment (ZOOKEEPER-2802).  For the same reason
 * an operation that the library will never answer, because the session has
 * ended, is forgotten with the session and not waited for.  (bound_watches()
 * has the one exception, which asks no server.)
 *
 * The threads start with all signals blocked but SIGQUIT, since PostgreSQL's
 * handlers must run in the main thread only; that of SIGQUIT does no more than
 * _exit().
 *
 * Each answer to a request that changes the tree tells lease.c that the session
 * lives; if there are none, a heartbeat does: a multi that only checks that "/"
 * exists, which also goes through the leader.
 *
 * The same multi is a barrier: a server answers the reads of a session behind
 * its writes (CommitProcessor.java), and a write when a majority has it.  So
 * what is read behind it on the same connection has all that was done anywhere
 * before it was sent.  A sync does not promise that: a leader that has been
 * deposed, and has not noticed, answers it at once, from old state.  One barrier
 * greets each server, and nothing else leaves before it has been answered: the
 * server need not be as far as a worker before this one had seen.
 *
 * What a server sends may be anything: it may be no ZooKeeper, or a broken one.
 * Debian builds the library with assertions, some of which fail on that; and it
 * does not look whether an answer could be parsed, but hands on and frees
 * whatever its stack has in place of what was cut off.  An abort or a fault
 * would take the whole cluster down, so a library thread that comes to it is
 * parked for good in the handler of the signal, and the worker ends, to be
 * replaced by a new one.  That thread may have broken the heap or hold locks, of
 * the library and of malloc.  So the main thread does as little as it can: it
 * calls the library no more, runs the exit callbacks, which work on shared
 * memory, and leaves by _exit(); and if it has not got there after a while, as
 * it waits for such a lock, the parked thread interrupts it to do that.
 *
 * That thread must not have broken the heap of the main thread before, which
 * would die of it: so the functions by which the library frees what may not have
 * been parsed are ours (deallocate_*), and free only what looks as if it had
 * been.
 *
 * What the library hands on is not trusted either: a string that is missing, a
 * code that is none, or the end of a session that has not ended count as an
 * answer that was lost, and a session that cannot be as a reason to go.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/session.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "common/hashfn.h"
#include "lib/ilist.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* Connections lost in a row without an answer that are more than bad luck. */
#define MAX_SILENT_CONNECTIONS	10

/*
 * How long to hold back the next flight after an answer that settles nothing
 * although the connection is up: the server may be throttling us.
 */
#define RESEND_DELAY_MS		100

/*
 * The most that the library may ask the server to watch again, in the one
 * request that it does so with when it has reconnected.
 */
#define WATCH_BYTES			(256 * 1024)

/*
 * The most that goes in one multi: beyond so many operations they do not
 * become cheaper, and the server refuses requests of more than
 * SESSION_REQUEST_BYTES, which a group must not exceed either.
 */
#define BATCH_OPERATIONS	256
#define BATCH_BYTES			(256 * 1024)

/*
 * The most that go again in one batch, if they are known to be good, or if
 * nothing is known of them.  These are not the same, so that the two sorts stay
 * apart.
 */
#define GOOD_PIECE			BATCH_OPERATIONS
#define UNKNOWN_PIECE		(BATCH_OPERATIONS - 1)

/* Later, in so many batches goes what was behind one that failed, or in fewer. */
#define MAX_PIECES			8

/* And in one flight, so that it does not take long. */
#define FLIGHT_OPERATIONS	1024

/* How long a parked thread gives the main thread to end, in s. */
#define LIBRARY_DEATH_SECONDS	5

/*
 * No server grants sessions that are shorter or longer than this, in ms.  The
 * library reckons with twice the timeout, as an int.
 */
#define MIN_GRANTED_TIMEOUT	100
#define MAX_GRANTED_TIMEOUT	(INT_MAX / 2)

/* The main thread is woken for so many answers to reads behind a batch. */
#define WAKE_INTERVAL		16

/* What a sequence number can add to a path, and a good deal more. */
#define SEQUENCE_SIZE		32

/* Not one of ZOO_ERRORS: another operation of the batch has failed. */
#define BATCH_FAILED		1

/* Nor is this: the stat that was to stand for this one has failed. */
#define NOT_SHARED			2

/* So many stats of a flight can stand for others. */
#define SHARED_STATS		16

/* What a callback has to tell the main thread. */
typedef enum NewsKind
{
	NEWS_ANSWER,				/* embedded in an Operation */
	NEWS_WATCH,
	NEWS_GREETED,
	NEWS_STATE,
	NEWS_MESSAGE
} NewsKind;

typedef struct News
{
	struct News *next;
	NewsKind	kind;
	int			code;			/* ANSWER: ZOO_ERRORS, or BATCH_FAILED or
								 * NOT_SHARED; WATCH: type of event; STATE:
								 * state of the handle */
	char	   *string;			/* MESSAGE; path of WATCH; created path of
								 * ANSWER; malloc'd */
	char	  **children;		/* ANSWER: one malloc'd block */
	int			nchildren;
	char	   *data;			/* ANSWER; malloc'd */
	int			data_len;
	struct Stat stat;			/* ANSWER */
} News;

typedef struct Operation
{
	News		news;			/* the answer; must be first */
	dlist_node	node;			/* in submitted, again or flight */
	uint32_t	owner;
	RecipeOpKind kind;
	uint32_t	serial;
	uint32_t	group;			/* CREATE: that of its multi, or 0 */
	uint32_t	batch;			/* CREATE: id of its multi; STAT: that of the
								 * multi which created the node; or 0 */
	bool		wakes;			/* its answer wakes the main thread */
	int			piece;			/* the most that go in one batch with this
								 * one, since it was in one that has failed;
								 * or 0 */
	struct Operation *sharer;	/* STAT: next of those that it stands for */
	struct Barrier *barrier;	/* SEARCH: what it is behind; malloc'd */
	struct Multi *multi;		/* to be freed with this operation, or NULL */
	const char *created;		/* path, in the memory of its multi, or NULL */
	bool		untouched;		/* SET: only if nobody has ever done so */
	bool		heartbeat;		/* this is all that it is for */
	zoo_op_result_t checked;	/* of a heartbeat */
	char	   *data;			/* to be written, or NULL */
	char		path[FLEXIBLE_ARRAY_MEMBER];	/* of what it is about */
} Operation;

/* A request that changes nothing, but goes through the leader as a write. */
typedef struct Barrier
{
	zoo_op_result_t checked;
	int			code;			/* ZOO_ERRORS */
} Barrier;

/* Operations that succeed or fail together: those of a group, or a batch. */
typedef struct Multi
{
	bool		is_batch;
	int			count;
	zoo_op_result_t *results;
	Operation  *operations[FLEXIBLE_ARRAY_MEMBER];
} Multi;

/* What an owner has in the flight that is out. */
typedef struct Passenger
{
	uint32		owner;
	char		status;			/* for simplehash.h */
	bool		wrote;			/* a create or delete */
	bool		put_off;		/* another one has to wait for the next flight */
	bool		put_back;		/* the write goes again, and all behind it */
	struct Operation *write;	/* that write, if nothing does yet that was
								 * behind it; or NULL */
} Passenger;

#define SH_PREFIX passengers
#define SH_ELEMENT_TYPE Passenger
#define SH_KEY_TYPE uint32
#define SH_KEY owner
#define SH_HASH_KEY(tb, key) murmurhash32(key)
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "core/lease.h"
#include "core/recipe.h"
#include "core/znode.h"
#include "lib/simplehash.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "worker/session.h"
#include "worker/status.h"

/* Somebody who watches a znode. */
typedef struct Watcher
{
	dlist_node	node;			/* in the Watch, then in fired_watchers */
	uint32_t	owner;
	uint32_t	serial;
} Watcher;

/*
 * The watch of a znode.  The library has one for each path, however often it is
 * set; those who have set it are told one after the other.
 */
typedef struct Watch
{
	char	   *path;			/* hash key, must be first; palloc'd */
	dlist_head	watchers;		/* one for each owner */
} Watch;

static zhandle_t *handle = NULL;
static bool connected = false;
static bool greeting_out = false;	/* to the server that we are connected to */
static bool greeted = false;	/* it has been answered */
static zoo_op_result_t greeting_checked;
static int	silent_connections = 0; /* lost in a row without any answer */
static int64 resend_at = 0;		/* zk_now_ms() before which not to send */
static int	wake_fd = -1;
static char auths[ZK_AUTHS_SIZE];	/* as in SessionOptions ... */
static const char *next_auth;	/* ... and that to be sent next, or "" */
static HTAB *watches;			/* that are set, or on their way */
static Size watched_bytes = 0;	/* what it takes to set them again */
static Size chroot_len;			/* of which each path has that */
static dlist_head fired_watchers = DLIST_STATIC_INIT(fired_watchers);
static bool fired_deleted;		/* of the event that they wait for */
static const struct ACL_vector *acl;
static MemoryContext session_context;

static dlist_head submitted = DLIST_STATIC_INIT(submitted);
static dlist_head again = DLIST_STATIC_INIT(again); /* ahead of submitted */
static dlist_head flight = DLIST_STATIC_INIT(flight);
static passengers_hash *passengers;
static bool batch_failed = false;	/* one of the flight */
static uint32 last_batch = 0;	/* id of the latest multi; never 0 again */
static News *taken = NULL;		/* from the queue, and not yet given out */
static News *delivered = NULL;	/* the news behind the event last given out */

static Lease lease;
static int	first_timeout;		/* of the session when it began; 0: not yet */
static int64 flight_sent = 0;	/* zk_now_ms() of the latest flight */
static bool heartbeat_out = false;
static uint32 heartbeat_ticket; /* of the one that is out */
static uint32 proved_ticket = 0;	/* of the latest that was answered */

/* Shared with the library's threads; guarded by news_lock. */
static pthread_mutex_t news_lock = PTHREAD_MUTEX_INITIALIZER;
static News *news_head = NULL;
static News **news_tail = &news_head;
static int	flight_left = 0;	/* operations of the flight without answer */
static bool wake_written = false;	/* wake_fd is readable */
static bool news_dropped = false;	/* out of memory in a callback */

/* For the handler of SIGABRT and faults. */
static pthread_t main_thread;
static volatile sig_atomic_t in_library = false;	/* the main thread is */
static volatile sig_atomic_t library_died = 0;	/* by this signal */

/*
 * Is this the code of an answer that the leader has given to a write, and that
 * has been written to the quorum?  A request that fails is logged as one, too.
 */
static bool
is_leaders(int code)
{
	return code == ZOK || code == ZNONODE || code == ZNODEEXISTS ||
		code == ZNOAUTH;
}

/*
 * The part that runs in the library's threads, up to fault_handler().
 */

/* What came in place of an answer that makes no sense: as if none had come. */
#define UNHEARD		ZCONNECTIONLOSS

/* An error code of the server, which has no positive ones; we do. */
static int
code_of(int rc)
{
	return rc > 0 ? UNHEARD : rc;
}

/*
 * Is this what has just been parsed?  It is a block of the heap for itself, that
 * fits the size.  If not, it is what the stack had in its place: a pointer to
 * anything, or none.  To look at it may be a fault, for which there is the
 * handler; to free it would break the heap.
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
 * In place of the library's own: see the header.  It calls them by way of the
 * dynamic linker, which finds ours first.  What is not freed here is lost until
 * the worker ends.
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
 * Append news, chained from the first to the last, to the queue, or note that
 * there was no memory for some.
 */
static void
post_chain(News *first, News *last, int count)
{
	uint64_t	one = 1;
	bool		wake = true;

	pthread_mutex_lock(&news_lock);
	if (first == NULL)
		news_dropped = true;
	else
	{
		last->next = NULL;
		*news_tail = first;
		news_tail = &last->next;
		if (first->kind == NEWS_ANSWER)
		{
			flight_left -= count;
			wake = flight_left <= 0 || ((Operation *) first)->wakes;
		}
	}
	/* fails only if the counter is full, and then the reader wakes anyway */
	if (wake && !wake_written)
		wake_written = write(wake_fd, &one, sizeof(one)) > 0;
	pthread_mutex_unlock(&news_lock);
}

static void
post_news(News *news)
{
	post_chain(news, news, 1);
}

static void
answer_void(int rc, const void *data)
{
	Operation  *op = (Operation *) data;

	if (op == NULL)
		return;					/* a step of an operation, not its end */
	op->news.code = code_of(rc);
	post_news(&op->news);
}

static void
answer_string(int rc, const char *value, const void *data)
{
	Operation  *op = (Operation *) data;

	if (op == NULL)
		return;
	op->news.code = code_of(rc);
	if (rc == ZOK)
	{
		op->news.string = value ? strdup(value) : NULL;
		if (op->news.string == NULL)
			op->news.code = UNHEARD;
	}
	post_news(&op->news);
}

static void
answer_create(int rc, const char *value, const struct Stat *stat,
			  const void *data)
{
	Operation  *op = (Operation *) data;

	if (rc == ZOK && stat)
		op->news.stat = *stat;
	answer_string(rc, value, data);
}

/* The barrier ahead of an operation; it is answered ahead of it. */
static void
answer_barrier(int rc, const void *data)
{
	Barrier    *barrier = (Barrier *) data;

	barrier->code = rc;
}

/*
 * A list that was cut short has no strings at its end, or none at all.  Part of
 * it would be a queue in which others are missing.  It may claim to have 2^31 of
 * them, which the library would free one by one: it is told what there is.
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

static void
answer_strings(int rc, const struct String_vector *strings, const void *data)
{
	Operation  *op = (Operation *) data;

	/* what was read behind a barrier that has failed does not count */
	if ((rc == ZOK || rc == ZNONODE) &&
		op->barrier && !is_leaders(op->barrier->code))
		rc = UNHEARD;
	op->news.code = code_of(rc);
	if (rc == ZOK && !list_is_whole(strings))
		op->news.code = UNHEARD;
	else if (rc == ZOK && strings->count > 0)
	{
		Size		size = strings->count * sizeof(char *);
		char	   *end;

		for (int i = 0; i < strings->count; i++)
			size += strlen(strings->data[i]) + 1;
		op->news.children = malloc(size);
		if (op->news.children == NULL)
			op->news.code = UNHEARD;
		else
		{
			end = (char *) (op->news.children + strings->count);
			for (int i = 0; i < strings->count; i++)
			{
				op->news.children[i] = end;
				strcpy(end, strings->data[i]);
				end += strlen(end) + 1;
			}
			op->news.nchildren = strings->count;
		}
	}
	post_news(&op->news);
}

static void
answer_stat(int rc, const struct Stat *stat, const void *data)
{
	Operation  *op = (Operation *) data;

	op->news.code = code_of(rc);
	if (rc == ZOK && stat)
		op->news.stat = *stat;
	post_news(&op->news);
}

static void
answer_data(int rc, const char *value, int value_len, const struct Stat *stat,
			const void *data)
{
	Operation  *op = (Operation *) data;

	op->news.code = code_of(rc);
	op->news.data_len = -1;
	if (rc == ZOK && stat)
		op->news.stat = *stat;
	if (rc == ZOK && (stat == NULL || Max(value_len, 0) != stat->dataLength))
		op->news.code = UNHEARD;	/* cut short, so it is not even there */
	else if (rc == ZOK && value && value_len >= 0)
	{
		op->news.data = malloc((Size) value_len + 1);
		if (op->news.data == NULL)
			op->news.code = UNHEARD;
		else
		{
			memcpy(op->news.data, value, value_len);
			op->news.data_len = value_len;
		}
	}
	post_news(&op->news);
}

/* All of it at once: the last operation takes the multi with it when freed. */
static void
post_multi(const Multi *multi)
{
	for (int i = 1; i < multi->count; i++)
		multi->operations[i - 1]->news.next = &multi->operations[i]->news;
	post_chain(&multi->operations[0]->news,
			   &multi->operations[multi->count - 1]->news, multi->count);
}

/*
 * How many may go in one batch with operation i, next time, now that the one
 * with this number has failed, or -1: nobody knows which.
 */
static int
next_piece(const Multi *multi, int i, int failed)
{
	if (failed < 0)
		return 1;
	if (i < failed)
		return GOOD_PIECE;
	if (multi->operations[i]->piece == 0)
		return UNKNOWN_PIECE;
	return Max(failed + 1, (multi->count + MAX_PIECES - 1) / MAX_PIECES);
}

/*
 * A multi can fail in two ways.  If one of its operations does, that one has an
 * error of its own, those ahead of it have none, and those behind it have
 * ZRUNTIMEINCONSISTENCY, since they were not looked at.  If the request does, or
 * the connection is lost, all have the same.
 */
static void
answer_multi(int rc, const void *data)
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
		Operation  *op = multi->operations[i];
		int			own = multi->results[i].err;

		op->news.code = code_of(rc);
		if (one_failed && multi->is_batch)
		{
			if (i != failed)
			{
				op->news.code = BATCH_FAILED;
				op->piece = next_piece(multi, i, failed);
			}
		}
		else if (one_failed && rc < ZAPIERROR)
			op->news.code = own < ZAPIERROR ? own : ZRUNTIMEINCONSISTENCY;
		if (op->news.code == ZOK)
			op->created = multi->results[i].value;
	}
	post_multi(multi);
}

/* Post news that answer no operation. */
static void
post_notice(NewsKind kind, int code, const char *string)
{
	News	   *news = calloc(1, sizeof(News));

	if (news && string && (news->string = strdup(string)) == NULL)
	{
		free(news);
		news = NULL;
	}
	if (news)
	{
		news->kind = kind;
		news->code = code;
	}
	post_news(news);
}

/* The first request on a connection has been answered, or not. */
static void
answer_greeting(int rc, const void *data pg_attribute_unused())
{
	post_notice(NEWS_GREETED, rc, NULL);
}

static void
log_message(const char *message)
{
	post_notice(NEWS_MESSAGE, 0, message);
}

static void
state_changed(zhandle_t *zh pg_attribute_unused(), int type, int state,
			  const char *path pg_attribute_unused(),
			  void *ctx pg_attribute_unused())
{
	if (type == ZOO_SESSION_EVENT)
		post_notice(NEWS_STATE, state, NULL);
}

/*
 * All watches have the same function and context: the library compares each
 * with each at every session event.  Such an event leaves the watch set.
 */
static void
watch_fired(zhandle_t *zh pg_attribute_unused(), int type,
			int state pg_attribute_unused(), const char *path,
			void *ctx pg_attribute_unused())
{
	if (type != ZOO_SESSION_EVENT && path != NULL)
		post_notice(NEWS_WATCH, type, path);
}

/*
 * Handler of SIGABRT and of the signals of faults.  The main thread dies of them
 * as ever, unless it is the library that came to it.
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
		pqsignal(postgres_signal_arg, SIG_DFL);
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

/* After a library thread has been parked, the library must not be called. */
static void
check_library(void)
{
	if (!library_died)
		return;
	in_library = false;
	ereport(FATAL,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 library_died == SIGABRT ?
			 errmsg("the ZooKeeper client library failed an assertion") :
			 errmsg("the ZooKeeper client library crashed"),
			 errdetail("The next zklock worker will go on with the session."),
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
 * Around a call of the library that starts threads, waits for them, or must
 * not be interrupted.
 */
static void
enter_library(sigset_t *saved)
{
	sigset_t	block;

	sigfillset(&block);
	sigdelset(&block, SIGQUIT);
	sigdelset(&block, SIGABRT); /* some libc's abort() does not unblock it */
	sigdelset(&block, SIGSEGV);
	sigdelset(&block, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &block, saved);
	in_library = true;
	check_library();
}

static void
leave_library(const sigset_t *saved)
{
	in_library = false;
	pthread_sigmask(SIG_SETMASK, saved, NULL);
}

static uint32
hash_path(const void *key, Size keysize pg_attribute_unused())
{
	const char *path = *(char *const *) key;

	return hash_bytes((const unsigned char *) path, strlen(path));
}

static int
match_path(const void *a, const void *b, Size keysize pg_attribute_unused())
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/*
 * session_init
 *		Prepare the process for sessions.
 *
 * Returns a file descriptor that is readable when session_next_event() has
 * something new.  Errors: as for any failing system call.
 */
int
session_init(void)
{
	HASHCTL		ctl;

	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create eventfd: %m")));
	session_context = AllocSetContextCreate(TopMemoryContext, "zklock session",
											ALLOCSET_DEFAULT_SIZES);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(char *);
	ctl.entrysize = sizeof(Watch);
	ctl.hash = hash_path;
	ctl.match = match_path;
	ctl.hcxt = session_context;
	watches = hash_create("zklock watches", 64, &ctl,
						  HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	passengers = passengers_create(session_context, 64, NULL);

	main_thread = pthread_self();
	pqsignal(SIGABRT, fault_handler);
	pqsignal(SIGSEGV, fault_handler);
	pqsignal(SIGBUS, fault_handler);
	on_proc_exit(leave_at_once, (Datum) 0);

	/* below that it warns of every late wake-up of a loaded machine */
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	return wake_fd;
}

/*
 * session_open
 *		Begin to connect: to a session of old, if options name one, or to a
 *		new one.
 *
 * Returns false if the library cannot even begin (no server's name could be
 * resolved, say); a SESSION_MESSAGE may tell more.
 */
bool
session_open(const SessionOptions *options)
{
	sigset_t	saved;
	clientid_t	id;

	Assert(handle == NULL);
	chroot_len = strlen(options->servers) - strcspn(options->servers, "/");
	acl = options->creator_acl ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	memcpy(auths, options->auths, sizeof(auths));
	next_auth = auths;

	id.client_id = options->client_id;
	memcpy(id.passwd, options->passwd, sizeof(id.passwd));

	lease_begin(&lease, zk_now_ms());
	lease.until = options->lease_until;
	first_timeout = options->first_timeout;
	proved_ticket = options->ticket;
	enter_library(&saved);
	handle = zookeeper_init2(options->servers, state_changed, options->timeout,
							 id.client_id != 0 ? &id : NULL, NULL,
							 ZOO_NO_LOG_CLIENTENV, log_message);
	leave_library(&saved);

	/* not at every turn of the IO thread, only without a connection */
	if (handle != NULL)
		zoo_set_servers_resolution_delay(handle, -1);
	return handle != NULL;
}

/*
 * session_is_open
 *		Is there a session, or an attempt at one?
 */
bool
session_is_open(void)
{
	return handle != NULL;
}

static void
free_answer(News *news)
{
	free(news->string);
	free(news->children);
	free(news->data);
}

static void
forget_barrier(Operation *op)
{
	free(op->barrier);
	op->barrier = NULL;
}

/* Free news that have been delivered, or never will be. */
static void
free_news(News *news)
{
	free_answer(news);
	if (news->kind != NEWS_ANSWER)
		free(news);
	else
	{
		Operation  *op = (Operation *) news;

		dlist_delete(&op->node);
		if (op->data)
			pfree(op->data);
		if (op->multi)
			pfree(op->multi);
		forget_barrier(op);
		pfree(op);
	}
}

static News *
next_news(void)
{
	News	   *news;

	if (taken == NULL)
	{
		uint64_t	count;
		bool		failed = false;

		pthread_mutex_lock(&news_lock);
		taken = news_head;
		news_head = NULL;
		news_tail = &news_head;
		if (wake_written)
			failed = read(wake_fd, &count, sizeof(count)) < 0;
		wake_written = false;
		pthread_mutex_unlock(&news_lock);
		if (failed && errno != EAGAIN)
			elog(ERROR, "could not read from eventfd: %m");
	}
	news = taken;
	if (news)
		taken = news->next;
	return news;
}

static void
forget_operations(dlist_head *list)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, list)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		free_news(&op->news);
	}
}

/* What a path takes in a request: its length, and itself. */
static Size
watch_bytes(const char *path)
{
	return sizeof(int32) + chroot_len + strlen(path);
}

static Watch *
find_watch(const char *path)
{
	return hash_search(watches, &path, HASH_FIND, NULL);
}

static Watch *
make_watch(const char *path)
{
	bool		found;
	Watch	   *watch = hash_search(watches, &path, HASH_ENTER, &found);

	if (!found)
	{
		watch->path = MemoryContextStrdup(session_context, path);
		dlist_init(&watch->watchers);
		watched_bytes += watch_bytes(path);
	}
	return watch;
}

static void
drop_watch(Watch *watch)
{
	char	   *path = watch->path;

	watched_bytes -= watch_bytes(path);
	hash_search(watches, &path, HASH_REMOVE, NULL);
	pfree(path);
}

/* Forget a watcher, and its watch if nobody else has set it: then true. */
static bool
forget_watcher(Watch *watch, Watcher *watcher)
{
	dlist_delete(&watcher->node);
	pfree(watcher);
	if (!dlist_is_empty(&watch->watchers))
		return false;
	drop_watch(watch);
	return true;
}

/* Forget a watch, and have those who have set it told. */
static void
fire_watch(Watch *watch)
{
	while (!dlist_is_empty(&watch->watchers))
		dlist_push_tail(&fired_watchers,
						dlist_pop_head_node(&watch->watchers));
	drop_watch(watch);
}

static void
fire_all_watches(void)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;

	hash_seq_init(&scan, watches);
	while ((watch = hash_seq_search(&scan)) != NULL)
		fire_watch(watch);
}

static void
forget_all_watches(void)
{
	fire_all_watches();
	while (!dlist_is_empty(&fired_watchers))
		pfree(dlist_container(Watcher, node,
							  dlist_pop_head_node(&fired_watchers)));
}

/*
 * session_close
 *		End the session, if one is open: its znodes go at once if the
 *		connection is up, else when it times out.
 *
 * Operations under way are forgotten.  May block for a few seconds.
 */
void
session_close(void)
{
	News	   *news;
	sigset_t	saved;

	if (delivered)
	{
		free_news(delivered);
		delivered = NULL;
	}

	/* joins the threads, so that no callback comes any more */
	if (handle != NULL)
	{
		enter_library(&saved);
		zookeeper_close(handle);
		leave_library(&saved);
	}
	handle = NULL;
	connected = greeted = greeting_out = false;
	silent_connections = 0;

	forget_all_watches();
	while ((news = next_news()) != NULL)
		if (news->kind != NEWS_ANSWER)
			free_news(news);
	forget_operations(&flight);
	forget_operations(&again);
	forget_operations(&submitted);
	lease_begin(&lease, zk_now_ms());
	heartbeat_out = false;
}

/*
 * session_submit
 *		Submit an operation of a contender; it leaves with session_flush().
 *
 * "owner" is handed back with the answer.  Creates that are submitted one
 * after the other with the same "group", other than 0, are one multi: they
 * succeed or fail together.  Accepted in any state: without a connection it
 * waits for one, or for the end of the session.
 */
void
session_submit(uint32_t owner, const char *directory, const RecipeOp *recipe_op,
			   uint32_t group)
{
	Operation  *op;
	Size		size = strlen(directory) + 1;

	if (recipe_op->node)
		size += strlen(recipe_op->node) + 1;
	op = MemoryContextAllocZero(session_context,
								offsetof(Operation, path) + size);
	op->news.kind = NEWS_ANSWER;
	op->owner = owner;
	op->kind = recipe_op->kind;
	op->serial = recipe_op->serial;
	op->group = recipe_op->kind == RECIPE_OP_CREATE ? group : 0;
	op->batch = recipe_op->batch;
	op->untouched = recipe_op->untouched;
	if (recipe_op->data)
		op->data = MemoryContextStrdup(session_context, recipe_op->data);
	strcpy(op->path, directory);
	if (recipe_op->node)
	{
		strcat(op->path, "/");
		strcat(op->path, recipe_op->node);
	}
	dlist_push_tail(&submitted, &op->node);
}

/* Create the directory's parents, as plain nodes: failures show in the end. */
static void
send_mkdir_parents(const char *path)
{
	char		parent[ZNODE_PATH_SIZE];

	for (const char *slash = strchr(path + 1, '/'); slash != NULL;
		 slash = strchr(slash + 1, '/'))
	{
		strlcpy(parent, path, slash - path + 1);
		zoo_acreate(handle, parent, NULL, -1, acl, ZOO_PERSISTENT,
					answer_string, NULL);
	}
}

static Watcher *
find_watcher(Watch *watch, uint32_t owner)
{
	dlist_iter	iter;

	dlist_foreach(iter, &watch->watchers)
	{
		Watcher    *watcher = dlist_container(Watcher, node, iter.cur);

		if (watcher->owner == owner)
			return watcher;
	}
	return NULL;
}

/* Read the node or list its children, and watch. */
static int
send_watch(Operation *op)
{
	Watch	   *watch = make_watch(op->path);
	Watcher    *watcher = find_watcher(watch, op->owner);

	if (watcher == NULL)
	{
		watcher = MemoryContextAlloc(session_context, sizeof(Watcher));
		watcher->owner = op->owner;
		dlist_push_tail(&watch->watchers, &watcher->node);
	}
	watcher->serial = op->serial;
	if (op->kind == RECIPE_OP_LIST)
		return zoo_awget_children(handle, op->path, watch_fired, NULL,
								  answer_strings, op);
	return zoo_awget(handle, op->path, watch_fired, NULL, answer_data, op);
}

/* The watch was not set after all. */
static void
forget_watch(const Operation *op)
{
	Watch	   *watch = find_watch(op->path);
	Watcher    *watcher = watch ? find_watcher(watch, op->owner) : NULL;

	if (watcher && watcher->serial == op->serial)
		(void) forget_watcher(watch, watcher);
}

static int
send_unwatch(Operation *op)
{
	Watch	   *watch = find_watch(op->path);
	Watcher    *watcher = watch ? find_watcher(watch, op->owner) : NULL;

	if (watcher && forget_watcher(watch, watcher))
		return zoo_aremove_all_watches(handle, op->path, ZWATCHTYPE_ANY, 0,
									   (void_completion_t *) answer_void, op);
	/* others go on watching, or it has fired */
	answer_void(ZOK, op);
	return ZOK;
}

static int
data_len(const Operation *op)
{
	return op->data ? (int) strlen(op->data) : -1;
}

/* Check that "/" exists, whatever comes of it: see the header. */
static int
send_check(zoo_op_result_t *checked, void_completion_t answer,
		   const void *data)
{
	zoo_op_t	zop;

	zoo_check_op_init(&zop, "/", -1);
	return zoo_amulti(handle, 1, &zop, checked, answer, data);
}

/* List the children behind a barrier. */
static int
send_search(Operation *op)
{
	int			rc;

	op->barrier = calloc(1, sizeof(Barrier));
	if (op->barrier == NULL)
		return ZSYSTEMERROR;
	rc = send_check(&op->barrier->checked, answer_barrier, op->barrier);
	if (rc != ZOK)
	{
		forget_barrier(op);
		return rc;
	}
	rc = zoo_aget_children(handle, op->path, 0, answer_strings, op);
	if (rc != ZOK)
		op->barrier = NULL;		/* leave it to its answer; memory is short */
	return rc;
}

static void
send_greeting(void)
{
	greeting_out = send_check(&greeting_checked, answer_greeting, NULL) == ZOK;
}

/* Hand one operation to the library; returns one of ZOO_ERRORS. */
static int
send_operation(Operation *op)
{
	if (op->heartbeat)
		return send_check(&op->checked, answer_void, op);
	switch (op->kind)
	{
		case RECIPE_OP_MKDIRS:
			send_mkdir_parents(op->path);
			/* FALLTHROUGH */
		case RECIPE_OP_MKDIR:
			return zoo_acreate(handle, op->path, op->data, data_len(op), acl,
							   ZOO_CONTAINER, answer_string, op);
		case RECIPE_OP_CREATE:
			return zoo_acreate2(handle, op->path, op->data, data_len(op), acl,
								ZOO_EPHEMERAL_SEQUENTIAL, answer_create, op);
		case RECIPE_OP_SEARCH:
			return send_search(op);
		case RECIPE_OP_SYNC:
			zoo_async(handle, op->path, answer_string, NULL);
			/* FALLTHROUGH */
		case RECIPE_OP_CHILDREN:
			return zoo_aget_children(handle, op->path, 0, answer_strings, op);
		case RECIPE_OP_LIST:
		case RECIPE_OP_WATCH:
			return send_watch(op);
		case RECIPE_OP_GET:
			return zoo_aget(handle, op->path, 0, answer_data, op);
		case RECIPE_OP_SET:
			return zoo_aset(handle, op->path, op->data, data_len(op),
							op->untouched ? 0 : -1,
							answer_stat, op);
		case RECIPE_OP_UNWATCH:
			return send_unwatch(op);
		case RECIPE_OP_STAT:
			return zoo_aexists(handle, op->path, 0, answer_stat, op);
		case RECIPE_OP_DELETE:
		case RECIPE_OP_DELETE_STRAY:
		case RECIPE_OP_RMDIR:
			return zoo_adelete(handle, op->path, -1, answer_void, op);
	}
	return ZBADARGUMENTS;
}

/* Is this of an ephemeral node of our session? */
static bool
is_ours(const struct Stat *stat)
{
	return handle != NULL &&
		stat->ephemeralOwner == zoo_client_id(handle)->client_id;
}

/* Move the first operation of a list into the flight. */
static Operation *
board(dlist_head *list)
{
	Operation  *op = dlist_container(Operation, node,
									 dlist_pop_head_node(list));

	dlist_push_tail(&flight, &op->node);
	return op;
}

/* Send the first operation of a list by itself. */
static void
send_first(dlist_head *list)
{
	Operation  *op = board(list);
	int			rc = send_operation(op);

	/*
	 * ZINVALIDSTATE is the end of the session, which comes as an event of its
	 * own and takes the operation with it.
	 */
	if (rc != ZOK && rc != ZINVALIDSTATE)
	{
		op->news.code = rc;
		post_news(&op->news);
	}
}

static void
send_all(dlist_head *list)
{
	while (!dlist_is_empty(list))
		send_first(list);
}

/*
 * Send the first operations of a list, creates and deletes, as one multi.  The
 * results, and the paths that come with them, are the library's until it has
 * answered.
 */
static void
send_multi(dlist_head *list, int count, bool is_batch)
{
	Multi	   *multi;
	zoo_op_t   *zops = palloc(count * sizeof(zoo_op_t));
	Size		size = offsetof(Multi, operations) +
		count * (sizeof(Operation *) + sizeof(zoo_op_result_t));
	char	   *path;
	dlist_iter	iter;
	int			rc;
	int			n = 0;

	dlist_foreach(iter, list)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		if (n++ == count)
			break;
		size += strlen(op->path) + SEQUENCE_SIZE;
	}

	if (++last_batch == 0)
		++last_batch;
	multi = MemoryContextAlloc(session_context, size);
	multi->is_batch = is_batch;
	multi->count = count;
	multi->results = (zoo_op_result_t *) &multi->operations[count];
	path = (char *) &multi->results[count];
	for (int i = 0; i < count; i++)
	{
		Operation  *op = board(list);

		multi->operations[i] = op;
		memset(&multi->results[i], 0, sizeof(zoo_op_result_t));
		multi->results[i].err = ZRUNTIMEINCONSISTENCY;
		if (op->kind == RECIPE_OP_DELETE)
			zoo_delete_op_init(&zops[i], op->path, -1);
		else
		{
			int			path_size = strlen(op->path) + SEQUENCE_SIZE;

			op->batch = last_batch;
			path[0] = '\0';
			zoo_create_op_init(&zops[i], op->path, op->data, data_len(op), acl,
							   ZOO_EPHEMERAL_SEQUENTIAL, path, path_size);
			path += path_size;
		}
	}
	multi->operations[count - 1]->multi = multi;

	rc = zoo_amulti(handle, count, zops, multi->results, answer_multi, multi);
	if (rc != ZOK && rc != ZINVALIDSTATE)
	{
		for (int i = 0; i < count; i++)
		{
			multi->operations[i]->news.code = is_batch ? BATCH_FAILED : rc;
			multi->operations[i]->piece = 1;
		}
		post_multi(multi);
	}
	pfree(zops);
}

/*
 * Send creates and deletes in batches: what is new apart from what was in a
 * batch that has failed.
 */
static void
send_writes(dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		int			piece = dlist_head_element(Operation, node, list)->piece;
		int			limit = piece == 0 ? BATCH_OPERATIONS : piece;
		dlist_iter	iter;
		int			count = 0;
		Size		bytes = 0;

		dlist_foreach(iter, list)
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			bytes += SESSION_OPERATION_BYTES + strlen(op->path) +
				(op->data ? strlen(op->data) : 0);
			if (count == limit || op->piece != piece ||
				(count > 0 && bytes > BATCH_BYTES))
				break;
			count++;
		}
		if (count == 1)
			send_first(list);
		else
			send_multi(list, count, true);
	}
}

/* Send creates that must succeed or fail together: each group as a multi. */
static void
send_groups(dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		uint32		group = dlist_head_element(Operation, node, list)->group;
		dlist_iter	iter;
		int			count = 0;

		dlist_foreach(iter, list)
		{
			if (dlist_container(Operation, node, iter.cur)->group != group)
				break;
			count++;
		}
		send_multi(list, count, false);
	}
}

/*
 * Is there another stat in the flight that tells what this one asks for?  Then
 * it stands for this one, which is not sent.  "stats" are those that can.
 */
static bool
share_stat(Operation *op, Operation **stats, int *nstats)
{
	for (int i = 0; i < *nstats; i++)
	{
		if (stats[i]->batch != op->batch)
			continue;
		op->sharer = stats[i]->sharer;
		stats[i]->sharer = op;
		return true;
	}
	if (*nstats < SHARED_STATS)
		stats[(*nstats)++] = op;
	return false;
}

/*
 * Answer those that this stat stands for, right behind it.  If it has not found
 * a node of our session, they have to ask for themselves.
 */
static void
answer_sharers(Operation *op)
{
	News	  **end = &taken;

	while (op->sharer != NULL)
	{
		Operation  *sharer = op->sharer;

		op->sharer = sharer->sharer;
		sharer->sharer = NULL;
		sharer->news.code = op->news.code == ZOK &&
			is_ours(&op->news.stat) ? ZOK : NOT_SHARED;
		sharer->news.stat = op->news.stat;
		sharer->news.next = *end;
		*end = &sharer->news;
		end = &sharer->news.next;
	}
}

/* May somebody wait for the answer to this, other than for that to a write? */
static bool
is_urgent(const Operation *op)
{
	return !op->heartbeat && op->kind != RECIPE_OP_MKDIR &&
		op->kind != RECIPE_OP_MKDIRS && op->kind != RECIPE_OP_STAT &&
		op->kind != RECIPE_OP_UNWATCH;
}

static void
expect_answers(int count)
{
	pthread_mutex_lock(&news_lock);
	flight_left = count;
	pthread_mutex_unlock(&news_lock);
}

/* A flight that is being put together: its parts in the order of sending. */
typedef struct FlightPlan
{
	dlist_head	ahead;
	dlist_head	writes;
	dlist_head	groups;
	dlist_head	behind;
	Operation  *stats[SHARED_STATS];
	Operation  *urgent;			/* the last of these in "ahead" */
	int			nbehind;
	int			nstats;
	int			nsent;			/* operations that will be answered */
} FlightPlan;

/*
 * Move an operation from the list that it waits in to where it belongs in the
 * flight.  Returns false if it has to stay.
 */
static bool
plan_operation(FlightPlan *plan, Operation *op)
{
	Passenger  *passenger;
	dlist_head *list;
	bool		found;

	passenger = passengers_insert(passengers, op->owner, &found);
	if (!found)
	{
		passenger->wrote = passenger->put_off = passenger->put_back = false;
		passenger->write = NULL;
	}
	if (op->group != 0)
		list = &plan->groups;
	else if (op->kind != RECIPE_OP_CREATE && op->kind != RECIPE_OP_DELETE)
		list = passenger->wrote ? &plan->behind : &plan->ahead;
	else
	{
		list = &plan->writes;
		if (passenger->wrote)
			passenger->put_off = true;
	}
	if (passenger->put_off && op->group == 0)
		return false;
	if (list == &plan->groups || list == &plan->writes)
		passenger->wrote = true;

	/* answers of one owner must keep their order */
	if (op->kind == RECIPE_OP_STAT && op->batch != 0 && !found &&
		share_stat(op, plan->stats, &plan->nstats))
		list = &flight;
	else
		plan->nsent++;
	if (list == &plan->ahead && is_urgent(op))
		plan->urgent = op;
	if (list == &plan->behind && ++plan->nbehind % WAKE_INTERVAL == 0)
		op->wakes = true;
	dlist_delete(&op->node);
	dlist_push_tail(list, &op->node);
	return true;
}

/*
 * Send what has to go again, and what has been submitted, or as much of it as
 * one flight takes.
 */
static void
send_flight(void)
{
	FlightPlan	plan;
	dlist_mutable_iter iter;
	uint32		group = 0;
	int			count = 0;

	memset(&plan, 0, sizeof(plan));
	dlist_init(&plan.ahead);
	dlist_init(&plan.writes);
	dlist_init(&plan.groups);
	dlist_init(&plan.behind);
	passengers_reset(passengers);
	dlist_foreach_modify(iter, &again)
	{
		/* an owner has one write in it at the most, ahead of all else */
		(void) plan_operation(&plan, dlist_container(Operation, node, iter.cur));
	}
	dlist_foreach_modify(iter, &submitted)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		/* a group must not be torn apart */
		if (count >= FLIGHT_OPERATIONS &&
			(op->group == 0 || op->group != group))
			break;
		if (!plan_operation(&plan, op))
			continue;
		group = op->group;
		count++;
	}
	if (plan.urgent)
		plan.urgent->wakes = true;
	expect_answers(plan.nsent);

	send_all(&plan.ahead);
	send_writes(&plan.writes);
	send_groups(&plan.groups);
	send_all(&plan.behind);
}

/*
 * Does this have to go again?  Once a batch has failed, all that its owners
 * have in it and behind it does.
 */
static bool
goes_again(const Operation *op)
{
	Passenger  *passenger;

	if (op->news.code == BATCH_FAILED)
		batch_failed = true;
	if (!batch_failed)
		return false;
	passenger = passengers_lookup(passengers, op->owner);
	if (passenger && op->news.code == BATCH_FAILED)
		passenger->put_back = true;
	return passenger && passenger->put_back;
}

/* Is this the directory of the node with that path? */
static bool
is_directory_of(const char *directory, const char *path)
{
	size_t		len = strlen(directory);

	return strncmp(directory, path, len) == 0 && path[len] == '/' &&
		strchr(path + len + 1, '/') == NULL;
}

/*
 * An answer to something that was sent behind a write that goes again: does it
 * tell what that would come to?  If the directory in which it creates is
 * missing, returns the write, to be given out with that answer; this one
 * follows.
 */
static Operation *
known_to_fail(Operation *op)
{
	Passenger  *passenger = passengers_lookup(passengers, op->owner);
	Operation  *write = passenger->write;

	if (op->kind != RECIPE_OP_CHILDREN || write == NULL ||
		write->kind != RECIPE_OP_CREATE ||
		!is_directory_of(op->path, write->path))
		return NULL;
	if (op->news.code == ZOK && write->piece == UNKNOWN_PIECE)
		write->piece = GOOD_PIECE;

	/* that a write fails proves something, so it must have been heard */
	if (op->news.code != ZNONODE || write->piece != UNKNOWN_PIECE)
		return NULL;
	passenger->put_back = false;
	passenger->write = NULL;
	write->news.code = op->news.code;
	op->news.next = taken;
	taken = &op->news;
	return write;
}

/*
 * The session timeout that can be relied on.  If it has been changed since the
 * session began, the new one counts, but ZooKeeper remembers the old one, and
 * goes by that if it is restarted or has a new leader.
 */
static int
lease_timeout(void)
{
	int			timeout = zoo_recv_timeout(handle);

	return first_timeout == 0 ? timeout : Min(timeout, first_timeout);
}

/*
 * session_ready
 *		Would what is submitted now leave with the next session_flush()?
 */
bool
session_ready(void)
{
	return handle != NULL && connected && greeted && dlist_is_empty(&flight) &&
		zk_now_ms() >= resend_at;
}

/*
 * session_flush
 *		Send what has been submitted, if no flight is out and the connection is
 *		up.  To be called whenever events have been dealt with.
 *
 * Returns when it wants to be called again, as of zk_now_ms(), or 0.
 */
int64
session_flush(void)
{
	int64		now = zk_now_ms();
	int64		again_at;

	if (handle == NULL)
		return 0;
	again_at = lease_turn(&lease, lease_timeout(), now);
	if (!connected || !dlist_is_empty(&flight))
		return again_at;
	if (now < resend_at)
		return again_at == 0 ? resend_at : Min(resend_at, again_at);
	if (!greeted)
	{
		if (!greeting_out)
			send_greeting();
		return again_at;
	}
	if (dlist_is_empty(&submitted) && dlist_is_empty(&again))
		return again_at;

	flight_sent = now;
	batch_failed = false;
	send_flight();
	return again_at;
}

/*
 * session_keep_lease
 *		Submit a heartbeat, if none is out and one is due: because "ticket" is
 *		not the one that was last proved, or because a lease is needed and the
 *		latest proof is old.
 *
 * Returns when it wants to be called again, as of zk_now_ms(), or 0.
 */
int64
session_keep_lease(uint32 ticket, bool needed)
{
	int64		due_at = 0;
	Operation  *op;

	if (!connected || heartbeat_out)
		return 0;
	if (ticket == proved_ticket)
	{
		if (!needed)
			return 0;
		due_at = lease_heartbeat_at(&lease, lease_timeout());
		if (zk_now_ms() < due_at)
			return due_at;
	}
	op = MemoryContextAllocZero(session_context,
								offsetof(Operation, path) + sizeof("/"));
	op->news.kind = NEWS_ANSWER;
	op->heartbeat = true;
	strcpy(op->path, "/");
	/* not behind flights of reads, which prove nothing */
	dlist_push_head(&submitted, &op->node);
	heartbeat_out = true;
	heartbeat_ticket = ticket;
	return 0;
}

/*
 * session_lease
 *		Until when the session cannot have ended, as of zk_now_ms(), or 0.
 *
 * Sets *ticket to the latest of session_keep_lease() after which the session
 * was alive.
 */
int64
session_lease(uint32 *ticket)
{
	*ticket = proved_ticket;
	return lease.until;
}

/* Has the leader worked on this, and written its outcome to the quorum? */
static bool
is_proof(const Operation *op)
{
	if (!is_leaders(op->news.code))
		return false;
	return op->heartbeat || op->kind == RECIPE_OP_CREATE ||
		op->kind == RECIPE_OP_SET || op->kind == RECIPE_OP_DELETE ||
		op->kind == RECIPE_OP_DELETE_STRAY;
}

static void
end_heartbeat(bool proof)
{
	heartbeat_out = false;
	if (proof)
		proved_ticket = heartbeat_ticket;
	else if (connected)
		resend_at = zk_now_ms() + RESEND_DELAY_MS;
}

static RecipeResult
result_of(int code, RecipeOpKind kind)
{
	switch (code)
	{
		case ZOK:
			return RECIPE_OK;
		case ZNONODE:
			return RECIPE_NO_NODE;
		case ZNODEEXISTS:
			/* somebody else made the directory */
			return kind == RECIPE_OP_MKDIR || kind == RECIPE_OP_MKDIRS ?
				RECIPE_OK : RECIPE_REFUSED;
		case ZSESSIONEXPIRED:
		case ZCLOSING:
		case ZSESSIONMOVED:
		case ZTHROTTLEDOP:
			return RECIPE_UNKNOWN;
		case ZBADARGUMENTS:
		case ZUNIMPLEMENTED:
			return RECIPE_REFUSED;
		default:
			/* up to ZAPIERROR it is the client's, which knows no more */
			return code > ZAPIERROR ? RECIPE_UNKNOWN : RECIPE_REFUSED;
	}
}

/*
 * Nobody waits for the answer to the deletion of a stray, so nobody else would
 * repeat it, if nothing is known of it.
 */
static bool
is_lost_stray(const Operation *op)
{
	int			code = op->news.code;

	if (op->kind != RECIPE_OP_DELETE_STRAY || code == ZSESSIONEXPIRED ||
		code == ZCLOSING || result_of(code, op->kind) != RECIPE_UNKNOWN)
		return false;
	if (connected)
		resend_at = zk_now_ms() + RESEND_DELAY_MS;
	return true;
}

static const RecipeEvent event_of[] = {
	[RECIPE_OP_MKDIR] = RECIPE_MKDIR_DONE,
	[RECIPE_OP_MKDIRS] = RECIPE_MKDIR_DONE,
	[RECIPE_OP_CREATE] = RECIPE_CREATE_DONE,
	[RECIPE_OP_CHILDREN] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_SEARCH] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_SYNC] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_LIST] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_WATCH] = RECIPE_WATCH_DONE,
	[RECIPE_OP_GET] = RECIPE_GET_DONE,
	[RECIPE_OP_SET] = RECIPE_SET_DONE,
	[RECIPE_OP_STAT] = RECIPE_STAT_DONE,
	[RECIPE_OP_DELETE] = RECIPE_DELETE_DONE,
	[RECIPE_OP_RMDIR] = RECIPE_RMDIR_DONE,
};

/* Returns false if nobody waits for this answer. */
static bool
fill_answer(SessionEvent *event, Operation *op)
{
	News	   *news = &op->news;
	RecipeInput *input = &event->input;
	bool		proof = is_proof(op);

	answer_sharers(op);
	if (proof && connected && flight_sent != lease.last_sent)
		lease_prove(&lease, lease_timeout(), flight_sent, zk_now_ms());
	if (op->heartbeat)
	{
		end_heartbeat(proof);
		return false;
	}
	if (news->code != ZOK &&
		(op->kind == RECIPE_OP_WATCH || op->kind == RECIPE_OP_LIST))
		forget_watch(op);

	/*
	 * Of an operation that died with its session (which the library must agree
	 * to have ended), or of a stray's deletion.
	 */
	if ((news->code == ZSESSIONEXPIRED || news->code == ZCLOSING) &&
		is_unrecoverable(handle))
		return false;
	if (op->kind == RECIPE_OP_DELETE_STRAY || op->kind == RECIPE_OP_UNWATCH)
		return false;

	event->kind = SESSION_ANSWER;
	event->owner = op->owner;
	input->event = event_of[op->kind];
	input->serial = op->serial;
	input->result = result_of(news->code, op->kind);
	if (input->result == RECIPE_UNKNOWN && news->code != NOT_SHARED && connected)
		resend_at = zk_now_ms() + RESEND_DELAY_MS;
	input->error = news->code;
	input->not_empty = news->code == ZNOTEMPTY;
	if (op->kind == RECIPE_OP_CREATE && news->code == ZOK)
	{
		const char *created = op->created ? op->created : news->string;
		const char *slash = created ? strrchr(created, '/') : NULL;

		input->node = slash ? slash + 1 : "";
		input->batch = op->batch;
		input->token = is_ours(&news->stat) ? news->stat.czxid : 0;
	}
	input->children = (const char *const *) news->children;
	input->nchildren = news->nchildren;
	input->data = news->data;
	input->data_len = news->data_len;
	input->czxid = news->stat.czxid;
	input->ctime = news->stat.ctime;
	input->ephemeral_owner = news->stat.ephemeralOwner;
	input->ours = is_ours(&news->stat);
	return true;
}

/* Send an operation again, in the next flight. */
static void
send_again(Operation *op)
{
	passengers_lookup(passengers, op->owner)->write =
		op->news.code == BATCH_FAILED ? op : NULL;
	if (op->kind == RECIPE_OP_WATCH || op->kind == RECIPE_OP_LIST)
		forget_watch(op);
	free_answer(&op->news);
	memset(&op->news, 0, sizeof(op->news));
	op->news.kind = NEWS_ANSWER;
	if (op->multi)
		pfree(op->multi);
	op->multi = NULL;
	forget_barrier(op);
	op->created = NULL;
	op->batch = 0;
	dlist_delete(&op->node);
	dlist_push_tail(&again, &op->node);
}

/*
 * The connection is lost, and the library will ask the next server to watch
 * again all that it watches, in one request.  If that would be longer than a
 * server takes, have the library forget all, before it gets there, and those
 * who watch told that their watches are used up: they set them again one by
 * one.  Should the library be faster, the server drops the connection, which
 * brings us here again.
 *
 * The call is of the synchronous sort, but what is removed locally only waits
 * for nobody.  (Its asynchronous sibling takes its own argument for that of a
 * synchronous one then.)
 */
static void
bound_watches(void)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;
	sigset_t	saved;

	if (watched_bytes <= WATCH_BYTES)
		return;
	enter_library(&saved);
	hash_seq_init(&scan, watches);
	while ((watch = hash_seq_search(&scan)) != NULL)
		zoo_remove_all_watches(handle, watch->path, ZWATCHTYPE_ANY, 1);
	leave_library(&saved);
	fired_deleted = false;
	fire_all_watches();
}

/* The next of them; false if there is none. */
static bool
fill_watch(SessionEvent *event)
{
	Watcher    *watcher;

	if (dlist_is_empty(&fired_watchers))
		return false;
	watcher = dlist_container(Watcher, node,
							  dlist_pop_head_node(&fired_watchers));
	memset(event, 0, sizeof(*event));
	event->kind = SESSION_WATCH;
	event->owner = watcher->owner;
	event->input.event = fired_deleted ?
		RECIPE_NODE_DELETED : RECIPE_NODE_TOUCHED;
	event->input.serial = watcher->serial;
	pfree(watcher);
	return true;
}

/*
 * A connection is up.  Ahead of all else our credentials go out, if the
 * library has not got them yet (it refuses them while it has no connection),
 * and a barrier.
 */
static void
greet_server(void)
{
	while (next_auth[0] != '\0' &&
		   zoo_add_auth(handle, "digest", next_auth, strlen(next_auth),
						NULL, NULL) == ZOK)
		next_auth += strlen(next_auth) + 1;
	connected = true;
	greeted = false;
	send_greeting();

	/* a shorter timeout counts from when the server has heard of it */
	if (first_timeout == 0 || first_timeout > zoo_recv_timeout(handle))
	{
		first_timeout = zoo_recv_timeout(handle);
		lease_forget(&lease);
	}
}

/* A server that grants such a session is none: let a new worker try. */
static void
check_granted(void)
{
	int			timeout = zoo_recv_timeout(handle);

	if (timeout >= MIN_GRANTED_TIMEOUT && timeout <= MAX_GRANTED_TIMEOUT &&
		zoo_client_id(handle)->client_id != 0)
		return;
	ereport(FATAL,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("ZooKeeper granted a session that cannot be"),
			 errdetail("Its id is 0x%llx, its timeout %d ms.",
					   (unsigned long long) zoo_client_id(handle)->client_id,
					   timeout),
			 errhint("Check that all of \"zklock.servers\" are ZooKeeper servers.")));
}

/*
 * Returns false if the change is none for us.  A server may tell us any state;
 * the library knows whether a session has really ended.
 */
static bool
fill_state(SessionEvent *event, int state)
{
	if ((state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) ?
		zoo_state(handle) != state :
		state != ZOO_CONNECTED_STATE && state != ZOO_CONNECTING_STATE &&
		state != ZOO_ASSOCIATING_STATE)
		return false;
	if (state == ZOO_CONNECTED_STATE)
	{
		check_granted();
		greet_server();
		event->kind = SESSION_UP;
		return true;
	}
	if (connected)
		silent_connections++;
	connected = greeted = greeting_out = false;
	bound_watches();
	lease_disconnect(&lease);
	if (state == ZOO_EXPIRED_SESSION_STATE)
		event->kind = SESSION_EXPIRED;
	else if (state == ZOO_AUTH_FAILED_STATE)
		event->kind = SESSION_AUTH_FAILED;
	else
		event->kind = SESSION_SUSPENDED;
	return true;
}

/*
 * session_next_event
 *		The next thing that has happened, or false if there is none.
 *
 * What the event points to is valid until the next call.  After
 * SESSION_EXPIRED and SESSION_AUTH_FAILED the caller must session_close()
 * before it submits anything.
 *
 * Errors: 53200 if a callback was out of memory, so that an event is lost;
 * FATAL if the library has aborted.  The caller must give up, and a new worker
 * look at everything afresh.
 */
bool
session_next_event(SessionEvent *event)
{
	News	   *news;
	Operation  *op;
	Watch	   *watch;
	bool		found = false;

	if (delivered)
	{
		free_news(delivered);
		delivered = NULL;
	}

	check_library();
	if (news_dropped)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));

	if (fill_watch(event))
		return true;
	while (!found && (news = next_news()) != NULL)
	{
		memset(event, 0, sizeof(*event));
		switch (news->kind)
		{
			case NEWS_ANSWER:
				op = (Operation *) news;
				if (is_lost_stray(op))
				{
					send_again(op);
					continue;
				}
				if (goes_again(op))
				{
					Operation  *write = known_to_fail(op);

					if (write == NULL)
					{
						send_again(op);
						continue;
					}
					op = write;
					news = &op->news;
				}
				found = fill_answer(event, op);
				break;
			case NEWS_WATCH:
				watch = find_watch(news->string);
				fired_deleted = news->code == ZOO_DELETED_EVENT;
				if (watch)
					fire_watch(watch);
				free_news(news);
				if (fill_watch(event))
					return true;
				continue;
			case NEWS_GREETED:
				greeting_out = false;
				if (connected && is_leaders(news->code))
				{
					greeted = true;
					silent_connections = 0;
				}
				else if (connected)
					resend_at = zk_now_ms() + RESEND_DELAY_MS;
				break;
			case NEWS_STATE:
				found = fill_state(event, news->code);
				break;
			case NEWS_MESSAGE:
				event->kind = SESSION_MESSAGE;
				event->message = news->string;
				found = true;
				break;
		}
		if (found)
			delivered = news;
		else
			free_news(news);
	}
	return found;
}

/*
 * session_is_stuck
 *		Has one connection after the other been lost without any answer?
 *
 * The library sets all watches again on each connection, in one request that
 * the server may find too long.  Only a new process gets rid of them.
 */
bool
session_is_stuck(void)
{
	return silent_connections >= MAX_SILENT_CONNECTIONS;
}

/*
 * session_identity
 *		Who and where we are; after SESSION_UP.
 */
void
session_identity(SessionIdentity *identity)
{
	const clientid_t *id = zoo_client_id(handle);
	struct sockaddr_storage address;
	socklen_t	size = sizeof(address);
	char		host[NI_MAXHOST];
	char		port[NI_MAXSERV];

	memset(identity, 0, sizeof(*identity));
	identity->client_id = id->client_id;
	memcpy(identity->passwd, id->passwd, ZK_PASSWD_SIZE);
	identity->timeout = zoo_recv_timeout(handle);
	identity->first_timeout = first_timeout;
	if (zookeeper_get_connected_host(handle, (struct sockaddr *) &address,
									 &size) != NULL &&
		getnameinfo((struct sockaddr *) &address, size, host, sizeof(host),
					port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(identity->address, sizeof(identity->address), "%s:%s",
				 host, port);
	else
		strlcpy(identity->address, "unknown address", sizeof(identity->address));
}

/*
 * session_error_text
 *		ZooKeeper's words for an error code.
 */
const char *
session_error_text(int error)
{
	return zerror(error);
}

/*
 * session_error_is_access, session_error_is_no_node
 *		What kind of refusal is this?
 */
bool
session_error_is_access(int error)
{
	return error == ZNOAUTH || error == ZINVALIDACL || error == ZAUTHFAILED;
}

bool
session_error_is_no_node(int error)
{
	return error == ZNONODE;
}
