/*-------------------------------------------------------------------------
 *
 * session.c
 *		The cluster's ZooKeeper session.
 *
 * All that knows libzookeeper_mt is here.  The library has two threads of its
 * own, in which it calls us back.  A callback touches nothing of PostgreSQL
 * and nothing of the main thread: it fills in the operation that it answers,
 * or a malloc'd notice, appends it to the queue of news under the mutex
 * news_lock, and writes to an eventfd that the worker's main loop waits on.
 * Everything else here runs in the main thread.
 *
 * Operations travel in flights.  What is submitted while a flight is out
 * waits and goes together in the next one, when all answers of the flight are
 * in and the connection is up.  The library hands answers back in the order
 * of the requests; we pass them on in that order.
 *
 * Only asynchronous calls are used: the synchronous ones can hang for good if
 * the session ends at the wrong moment (ZOOKEEPER-2802).  For the same reason
 * an operation that the library will never answer, because the session has
 * ended, is forgotten with the session and not waited for.
 *
 * The threads start with every signal blocked, since PostgreSQL's handlers
 * must run in the main thread only.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/session.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "lib/ilist.h"
#include "utils/memutils.h"
#include "worker/session.h"

/* What a callback has to tell the main thread. */
typedef enum NewsKind
{
	NEWS_ANSWER,				/* embedded in an Operation */
	NEWS_WATCH,
	NEWS_STATE,
	NEWS_MESSAGE
} NewsKind;

typedef struct News
{
	struct News *next;
	NewsKind	kind;
	int			code;			/* ANSWER: ZOO_ERRORS; WATCH: type of event;
								 * STATE: state of the handle */
	uint32_t	owner;			/* WATCH */
	uint32_t	serial;			/* WATCH */
	char	   *string;			/* MESSAGE; created path of ANSWER; malloc'd */
	char	  **children;		/* ANSWER: one malloc'd block */
	int			nchildren;
	struct Stat stat;			/* ANSWER */
} News;

typedef struct Operation
{
	News		news;			/* the answer; must be first */
	dlist_node	node;			/* in submitted or flight */
	uint32_t	owner;
	RecipeOpKind kind;
	uint32_t	serial;
	char		path[FLEXIBLE_ARRAY_MEMBER];	/* of what it is about */
} Operation;

static zhandle_t *handle = NULL;
static bool connected = false;
static bool resuming = false;	/* a session of old, not connected yet */
static int	wake_fd = -1;
static const struct ACL_vector *acl;
static char *contender_data;
static MemoryContext session_context;

static dlist_head submitted = DLIST_STATIC_INIT(submitted);
static dlist_head flight = DLIST_STATIC_INIT(flight);
static News *delivered = NULL;	/* the news behind the event last given out */

/* Shared with the library's threads; guarded by news_lock. */
static pthread_mutex_t news_lock = PTHREAD_MUTEX_INITIALIZER;
static News *news_head = NULL;
static News **news_tail = &news_head;
static bool news_dropped = false;	/* out of memory in a callback */

/*
 * The part that runs in the library's threads, up to watch_fired().
 */

static void
post_news(News *news)
{
	uint64_t	one = 1;

	pthread_mutex_lock(&news_lock);
	if (news)
	{
		news->next = NULL;
		*news_tail = news;
		news_tail = &news->next;
	}
	else
		news_dropped = true;
	pthread_mutex_unlock(&news_lock);

	/* fails only if the counter is full, and then the reader wakes anyway */
	if (write(wake_fd, &one, sizeof(one)) < 0)
		return;
}

static void
answer_void(int rc, const void *data)
{
	Operation  *op = (Operation *) data;

	if (op == NULL)
		return;					/* a step of an operation, not its end */
	op->news.code = rc;
	post_news(&op->news);
}

static void
answer_string(int rc, const char *value, const void *data)
{
	Operation  *op = (Operation *) data;

	if (op == NULL)
		return;
	op->news.code = rc;
	if (rc == ZOK && value)
	{
		op->news.string = strdup(value);
		if (op->news.string == NULL)
			op->news.code = ZCONNECTIONLOSS;	/* as if we had not heard */
	}
	post_news(&op->news);
}

static void
answer_strings(int rc, const struct String_vector *strings, const void *data)
{
	Operation  *op = (Operation *) data;

	op->news.code = rc;
	if (rc == ZOK && strings && strings->count > 0)
	{
		Size		size = strings->count * sizeof(char *);
		char	   *end;

		for (int i = 0; i < strings->count; i++)
			size += strlen(strings->data[i]) + 1;
		op->news.children = malloc(size);
		if (op->news.children == NULL)
			op->news.code = ZCONNECTIONLOSS;
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

	op->news.code = rc;
	if (rc == ZOK && stat)
		op->news.stat = *stat;
	post_news(&op->news);
}

static void
answer_data(int rc, const char *value pg_attribute_unused(),
			int value_len pg_attribute_unused(),
			const struct Stat *stat pg_attribute_unused(), const void *data)
{
	answer_void(rc, data);
}

static void
log_message(const char *message)
{
	News	   *news = calloc(1, sizeof(News));

	if (news)
	{
		news->kind = NEWS_MESSAGE;
		news->string = strdup(message);
	}
	post_news(news);
}

static void
state_changed(zhandle_t *zh pg_attribute_unused(), int type, int state,
			  const char *path pg_attribute_unused(),
			  void *ctx pg_attribute_unused())
{
	News	   *news;

	if (type != ZOO_SESSION_EVENT)
		return;
	news = calloc(1, sizeof(News));
	if (news)
	{
		news->kind = NEWS_STATE;
		news->code = state;
	}
	post_news(news);
}

/* The context of a watch is its owner and serial number, so nothing leaks. */
static void *
watch_context(uint32_t owner, uint32_t serial)
{
	return (void *) (uintptr_t) ((uint64_t) owner << 32 | serial);
}

static void
watch_fired(zhandle_t *zh pg_attribute_unused(), int type,
			int state pg_attribute_unused(),
			const char *path pg_attribute_unused(), void *ctx)
{
	News	   *news;

	if (type == ZOO_SESSION_EVENT)
		return;					/* the watch itself is still set */
	news = calloc(1, sizeof(News));
	if (news)
	{
		news->kind = NEWS_WATCH;
		news->code = type;
		news->owner = (uint64_t) (uintptr_t) ctx >> 32;
		news->serial = (uint32_t) (uintptr_t) ctx;
	}
	post_news(news);
}

/*
 * From here on, everything runs in the main thread.
 */

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
	StaticAssertStmt(sizeof(void *) >= 8,
					 "a watch context needs 64-bit pointers");
	wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (wake_fd < 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create eventfd: %m")));
	session_context = AllocSetContextCreate(TopMemoryContext, "zklock session",
											ALLOCSET_DEFAULT_SIZES);
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
	sigset_t	all;
	sigset_t	old;
	clientid_t	id;

	Assert(handle == NULL);
	acl = options->creator_acl ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
	if (contender_data)
		pfree(contender_data);
	contender_data = MemoryContextStrdup(session_context, options->data);

	resuming = options->client_id != 0;
	id.client_id = options->client_id;
	memcpy(id.passwd, options->passwd, sizeof(id.passwd));

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	handle = zookeeper_init2(options->servers, state_changed, options->timeout,
							 id.client_id != 0 ? &id : NULL, NULL,
							 ZOO_NO_LOG_CLIENTENV, log_message);
	pthread_sigmask(SIG_SETMASK, &old, NULL);

	if (handle != NULL && options->auth[0] != '\0')
		zoo_add_auth(handle, "digest", options->auth, strlen(options->auth),
					 NULL, NULL);
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
		pfree(op);
	}
}

static News *
next_news(void)
{
	News	   *news;

	pthread_mutex_lock(&news_lock);
	news = news_head;
	if (news)
	{
		news_head = news->next;
		if (news_head == NULL)
			news_tail = &news_head;
	}
	pthread_mutex_unlock(&news_lock);
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

	if (handle == NULL)
		return;

	if (delivered)
	{
		free_news(delivered);
		delivered = NULL;
	}

	/* joins the threads, so that no callback comes any more */
	zookeeper_close(handle);
	handle = NULL;
	connected = false;

	while ((news = next_news()) != NULL)
		if (news->kind != NEWS_ANSWER)
			free_news(news);
	forget_operations(&flight);
	forget_operations(&submitted);
}

/*
 * session_submit
 *		Submit an operation of a contender; it leaves with session_flush().
 *
 * "owner" is handed back with the answer.  Accepted in any state: without a
 * connection it waits for one, or for the end of the session.
 */
void
session_submit(uint32_t owner, const char *directory, const RecipeOp *recipe_op)
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

/* Hand one operation to the library; returns one of ZOO_ERRORS. */
static int
send_operation(Operation *op)
{
	switch (op->kind)
	{
		case RECIPE_OP_MKDIRS:
			send_mkdir_parents(op->path);
			/* FALLTHROUGH */
		case RECIPE_OP_MKDIR:
			return zoo_acreate(handle, op->path, NULL, -1, acl, ZOO_CONTAINER,
							   answer_string, op);
		case RECIPE_OP_CREATE:
			return zoo_acreate(handle, op->path, contender_data,
							   strlen(contender_data), acl,
							   ZOO_EPHEMERAL_SEQUENTIAL, answer_string, op);
		case RECIPE_OP_SEARCH:
			zoo_async(handle, op->path, answer_string, NULL);
			/* FALLTHROUGH */
		case RECIPE_OP_CHILDREN:
			return zoo_aget_children(handle, op->path, 0, answer_strings, op);
		case RECIPE_OP_WATCH:
			return zoo_awget(handle, op->path, watch_fired,
							 watch_context(op->owner, op->serial),
							 answer_data, op);
		case RECIPE_OP_STAT:
			return zoo_aexists(handle, op->path, 0, answer_stat, op);
		case RECIPE_OP_DELETE:
		case RECIPE_OP_DELETE_STRAY:
			return zoo_adelete(handle, op->path, -1, answer_void, op);
	}
	return ZBADARGUMENTS;
}

/*
 * session_flush
 *		Send what has been submitted, if no flight is out and the connection is
 *		up.  To be called whenever events have been dealt with.
 */
void
session_flush(void)
{
	if (!connected || !dlist_is_empty(&flight))
		return;

	while (!dlist_is_empty(&submitted))
	{
		Operation  *op = dlist_container(Operation, node,
										 dlist_pop_head_node(&submitted));
		int			rc;

		dlist_push_tail(&flight, &op->node);
		rc = send_operation(op);

		/*
		 * ZINVALIDSTATE is the end of the session, which comes as an event of
		 * its own and takes the operation with it.
		 */
		if (rc != ZOK && rc != ZINVALIDSTATE)
		{
			op->news.code = rc;
			post_news(&op->news);
		}
	}
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
		case ZCONNECTIONLOSS:
		case ZOPERATIONTIMEOUT:
		case ZSESSIONMOVED:
		case ZTHROTTLEDOP:
			return RECIPE_UNKNOWN;
		default:
			return RECIPE_REFUSED;
	}
}

static const RecipeEvent event_of[] = {
	[RECIPE_OP_MKDIR] = RECIPE_MKDIR_DONE,
	[RECIPE_OP_MKDIRS] = RECIPE_MKDIR_DONE,
	[RECIPE_OP_CREATE] = RECIPE_CREATE_DONE,
	[RECIPE_OP_CHILDREN] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_SEARCH] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_WATCH] = RECIPE_WATCH_DONE,
	[RECIPE_OP_STAT] = RECIPE_STAT_DONE,
	[RECIPE_OP_DELETE] = RECIPE_DELETE_DONE,
};

/* Returns false if nobody waits for this answer. */
static bool
fill_answer(SessionEvent *event, Operation *op)
{
	News	   *news = &op->news;
	RecipeInput *input = &event->input;

	/* of an operation that died with its session, or of a stray's deletion */
	if (news->code == ZSESSIONEXPIRED || news->code == ZCLOSING ||
		op->kind == RECIPE_OP_DELETE_STRAY)
		return false;

	event->kind = SESSION_ANSWER;
	event->owner = op->owner;
	input->event = event_of[op->kind];
	input->serial = op->serial;
	input->result = result_of(news->code, op->kind);
	input->error = news->code;
	if (news->string)
	{
		const char *slash = strrchr(news->string, '/');

		input->node = slash ? slash + 1 : news->string;
	}
	input->children = (const char *const *) news->children;
	input->nchildren = news->nchildren;
	input->czxid = news->stat.czxid;
	input->ours = handle != NULL &&
		news->stat.ephemeralOwner == zoo_client_id(handle)->client_id;
	return true;
}

static void
fill_watch(SessionEvent *event, News *news)
{
	event->kind = SESSION_WATCH;
	event->owner = news->owner;
	event->input.event = news->code == ZOO_DELETED_EVENT ?
		RECIPE_NODE_DELETED : RECIPE_NODE_TOUCHED;
	event->input.serial = news->serial;
}

/* Returns false if the change is none for us. */
static bool
fill_state(SessionEvent *event, int state)
{
	if (state == ZOO_CONNECTED_STATE)
	{
		/*
		 * A new handle does not ask of the server to be as far as the process
		 * before us had seen: so the first thing is a sync.
		 */
		if (resuming)
			zoo_async(handle, "/", answer_string, NULL);
		resuming = false;
		connected = true;
		event->kind = SESSION_UP;
		return true;
	}
	connected = false;
	if (state == ZOO_EXPIRED_SESSION_STATE)
		event->kind = SESSION_EXPIRED;
	else if (state == ZOO_AUTH_FAILED_STATE)
		event->kind = SESSION_AUTH_FAILED;
	else if (state == ZOO_CONNECTING_STATE || state == ZOO_ASSOCIATING_STATE)
		event->kind = SESSION_SUSPENDED;
	else
		return false;
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
 * Errors: 53200 if a callback was out of memory, so that an event is lost:
 * the caller must give up, and a new worker look at everything afresh.
 */
bool
session_next_event(SessionEvent *event)
{
	uint64_t	count;
	News	   *news;
	bool		found = false;

	if (delivered)
	{
		free_news(delivered);
		delivered = NULL;
	}

	/* reset the descriptor ahead of looking, so that no wake-up is lost */
	if (read(wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		elog(ERROR, "could not read from eventfd: %m");
	if (news_dropped)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));

	while (!found && (news = next_news()) != NULL)
	{
		memset(event, 0, sizeof(*event));
		switch (news->kind)
		{
			case NEWS_ANSWER:
				found = fill_answer(event, (Operation *) news);
				break;
			case NEWS_WATCH:
				fill_watch(event, news);
				found = true;
				break;
			case NEWS_STATE:
				found = fill_state(event, news->code);
				break;
			case NEWS_MESSAGE:
				event->kind = SESSION_MESSAGE;
				event->message = news->string ? news->string : "";
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
	memcpy(identity->passwd, id->passwd, SESSION_PASSWD_SIZE);
	identity->timeout = zoo_recv_timeout(handle);
	if (zookeeper_get_connected_host(handle, (struct sockaddr *) &address,
									 &size) != NULL &&
		getnameinfo((struct sockaddr *) &address, size, host, sizeof(host),
					port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(identity->address, sizeof(identity->address), "%s:%s",
				 host, port);
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
