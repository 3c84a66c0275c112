/*-------------------------------------------------------------------------
 *
 * flight.c
 *		Operations on their way to ZooKeeper and back.
 *
 * Operations are sent in flights.  What is submitted while a flight is out
 * waits, and is sent in the next one, when all answers are in and the
 * connection is up.  The library delivers answers in the order of the
 * requests, and so do we.
 *
 * Order.  The creates and deletes of a flight are one batch: one multi, one
 * write of ZooKeeper's log (or several multis, if it would be too long).  What
 * their owners have submitted after them, such as reads of the queue, goes
 * behind the batch.  All else goes ahead of it; that includes making
 * directories, which cannot be in a multi, since the library aborts on a
 * container there, and writes that must be in no batch.  So the order of each
 * owner's operations is kept, but not that between owners.  A flight has at
 * most one write in a batch for each owner.  A write that is alone in its
 * flight is sent without a multi.  The delete and the create of a requeue are
 * one write, which is never split; its answer is one, and an error is that of
 * the part that failed.  The operations of a group, which may include checks
 * and sets, are a multi of their own, behind the batches, and not in order
 * with the other writes of their owner: neither those in batches nor those
 * that must be in none.
 *
 * One flight is out at a time.  Two, each with half of the operations, do not
 * pay: with them the raw client of bench/ does 35,231 cycles a second, and
 * 44,056 with one (64 locks, multis without reads), since each write of
 * ZooKeeper's log has fewer operations.
 *
 * Tokens.  All that one multi creates has the same czxid:
 * PrepRequestProcessor.java gets one zxid for it ("Each op in a multi-op must
 * have the same zxid!"), and DataTree.java uses it for each part.  The answer
 * does not have the czxid, and create2, whose answer would, frees a bad
 * pointer of the library in a multi.  So the owner asks by a stat.  If the
 * owners of several nodes of one multi ask in the same flight, one stat is
 * sent for all.  A create that is alone is a create2.
 *
 * If one operation of a batch fails, none of it has happened.  ZooKeeper
 * reports the error of the first one that fails; its owner gets that answer
 * and those to what it sent behind it, as if the write had been alone.  The
 * other writes are sent again in the next flight, with what their owners sent
 * behind them; the first answers to that are discarded, since it must be read
 * behind the write.  So owners get answers as if there were no batches.
 *
 * The writes that are sent again go in batches of half the size, apart from new
 * ones, so that a few flights settle it however many of them fail.  Where one
 * fails, others often do: ZooKeeper collects unused directories.  Therefore a
 * create whose directory is known to be missing is not sent again, but answered
 * so: the read of the queue behind it shows that or, where nothing is read, the
 * watch of the directory, whose event precedes the answer.  A group is not sent
 * again, though its owner may have had a write in the batch: its answer says
 * what has become of it.
 *
 * Watches.  The library has one watch for each path and type, however often it
 * is set.  The types are those of the request that sets the watch:
 * ZWATCHTYPE_DATA for a get, ZWATCHTYPE_CHILD for a list of children.  (A
 * watch of a missing node is never set.)  This file keeps the owners that have
 * set a watch; when it fires, each of them gets it.  A watch fires once: at
 * the deletion of its node, or at a change of what its type is about.
 *
 * When the library reconnects, it sets all watches again, in one request, whose
 * length flight_disconnect() limits to what a server accepts.  So each watch
 * that the library may have must be here.  A watch without owners is being
 * removed, or was set too late to be useful; it stays until the server has
 * confirmed its removal, it fires, or the connection is lost.
 *
 * Everything here runs in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/flight.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/lock/znode.h"
#include "core/mutation.h"
#include "core/request.h"
#include "shared/clock.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "worker/zookeeper/flight_private.h"

/*
 * How long to hold back the next flight after an answer that settles nothing
 * although the connection is up: the server may be throttling us.
 */
#define RESEND_DELAY_MS		100

/*
 * The limits of one batch: longer ones are no cheaper per operation, and the
 * server closes the connection after a request of more than 1 MB
 * (jute.maxbuffer).  A group is shorter by itself: see DEADLOCK_TEXTS.
 */
#define BATCH_OPERATIONS	256
#define BATCH_BYTES			(256 * 1024)

/* What an operation has in a request besides its path and data, at most. */
#define OVERHEAD_BYTES		128

/* The most operations in one flight, so that it does not take long. */
#define FLIGHT_OPERATIONS	1024

/* The limit of the one request by which the library sets its watches again. */
#define WATCH_BYTES			(256 * 1024)

/* An owner that watches a znode. */
typedef struct Watcher
{
	dlist_node	node;			/* in the Watch, then in "fired" */
	uint32_t	owner;
	uint32_t	serial;			/* of the latest request to set the watch */
	bool		set;			/* one of them was answered OK */
	bool		brief;			/* it ends with the connection on which it is
								 * set */
} Watcher;

typedef struct WatchKey
{
	char	   *path;			/* palloc'd in a Watch */
	ZooWatcherType type;
} WatchKey;

/* The watch of a znode. */
typedef struct Watch
{
	WatchKey	key;			/* hash key, must be first */
	dlist_head	watchers;		/* one for each owner, or none */
	bool		set;			/* the library has it, by whatever request */
} Watch;

static const ZooWatcherType types[] = {ZWATCHTYPE_CHILD, ZWATCHTYPE_DATA};

/* An owner's operations in the flight that is out. */
typedef struct FlightOwner
{
	uint32		owner;
	char		status;			/* for simplehash.h */
	bool		wrote;			/* a create or delete */
	bool		deferred;		/* another write waits for the next flight */
	bool		put_back;		/* the write is sent again, with all behind
								 * it */
	Operation  *write;			/* that write, if nothing behind it is sent
								 * again yet; or NULL */
} FlightOwner;

#define SH_PREFIX flying
#define SH_ELEMENT_TYPE FlightOwner
#define SH_KEY_TYPE uint32
#define SH_KEY owner
#define SH_HASH_KEY(tb, key) murmurhash32(key)
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A flight being composed: its parts in the order of sending. */
typedef struct FlightPlan
{
	dlist_head	ahead;
	dlist_head	writes;
	dlist_head	groups;
	dlist_head	behind;
	Operation  *stat;			/* the latest that can stand for others */
} FlightPlan;

Flight		flight;

static MemoryContext context;	/* of operations and watches */
static dlist_head submitted = DLIST_STATIC_INIT(submitted);
static dlist_head again = DLIST_STATIC_INIT(again); /* to be sent before
													 * "submitted" */
static dlist_head out = DLIST_STATIC_INIT(out); /* the flight that is out */
static struct flying_hash *flying;	/* the owners of what is in it */
static uint32 barriers = 0;		/* number of the latest barrier */
static uint32 passed_barrier = 0;	/* of the latest that the leader has
									 * answered */

static HTAB *watches;			/* of Watch: set, requested, or being removed */
static dlist_head fired = DLIST_STATIC_INIT(fired); /* of Watcher */
static bool fired_deleted;		/* by the event being delivered */

static uint32
hash_key(const void *key, Size keysize pg_attribute_unused())
{
	const WatchKey *watch = key;

	return hash_bytes((const unsigned char *) watch->path,
					  strlen(watch->path)) ^ watch->type;
}

static int
match_keys(const void *a, const void *b, Size keysize pg_attribute_unused())
{
	const WatchKey *one = a;
	const WatchKey *other = b;

	return one->type == other->type ? strcmp(one->path, other->path) : 1;
}

/* The bytes of a path in a request: its length, and itself. */
static Size
watch_bytes(const char *path)
{
	return sizeof(int32) + flight.chroot_len + strlen(path);
}

static Watch *
find_watch(const char *path, ZooWatcherType type)
{
	WatchKey	key = {unconstify(char *, path), type};

	return hash_search(watches, &key, HASH_FIND, NULL);
}

static Watch *
make_watch(const char *path, ZooWatcherType type)
{
	WatchKey	key = {unconstify(char *, path), type};
	bool		found;
	Watch	   *watch = hash_search(watches, &key, HASH_ENTER, &found);

	if (!found)
	{
		watch->key.path = MemoryContextStrdup(context, path);
		dlist_init(&watch->watchers);
		watch->set = false;
		flight.watch_bytes += watch_bytes(path);
	}
	return watch;
}

static void
drop_watch(Watch *watch)
{
	WatchKey	key = watch->key;

	flight.watch_bytes -= watch_bytes(key.path);
	hash_search(watches, &key, HASH_REMOVE, NULL);
	pfree(key.path);
}

/* The owner's part in a watch, which may be NULL. */
static Watcher *
find_watcher(Watch *watch, uint32_t owner)
{
	dlist_iter	iter;

	if (watch == NULL)
		return NULL;
	dlist_foreach(iter, &watch->watchers)
	{
		Watcher    *watcher = dlist_container(Watcher, node, iter.cur);

		if (watcher->owner == owner)
			return watcher;
	}
	return NULL;
}

static void
forget_watcher(Watcher *watcher)
{
	dlist_delete(&watcher->node);
	pfree(watcher);
}

static bool
sets_watch(const Operation *op)
{
	return op->request.kind == REQUEST_WATCH ||
		op->request.kind == REQUEST_LIST;
}

/* The type of watch that this sets. */
static ZooWatcherType
watch_type(const Operation *op)
{
	return op->request.kind == REQUEST_LIST ?
		ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA;
}

/*
 * The operation is about to set a watch.  The latest one of an owner counts:
 * it gets the serial of that.
 */
static void
add_watch(const Operation *op)
{
	Watch	   *watch = make_watch(op->path, watch_type(op));
	Watcher    *watcher = find_watcher(watch, op->owner);

	if (watcher == NULL)
	{
		watcher = MemoryContextAlloc(context, sizeof(Watcher));
		watcher->owner = op->owner;
		watcher->set = false;
		dlist_push_tail(&watch->watchers, &watcher->node);
	}
	watcher->serial = op->request.serial;
	watcher->brief = op->request.brief;
}

/*
 * The operation has not set its watch.  If that was set before, by this owner
 * or by one that has been forgotten since, and has not fired, it still exists.
 */
static void
forget_watch(const Operation *op)
{
	Watch	   *watch = sets_watch(op) ?
	find_watch(op->path, watch_type(op)) : NULL;
	Watcher    *watcher = find_watcher(watch, op->owner);

	if (watcher == NULL || watcher->serial != op->request.serial ||
		watcher->set)
		return;
	forget_watcher(watcher);
	if (dlist_is_empty(&watch->watchers) && !watch->set)
		drop_watch(watch);
}

/*
 * The owner of the operation no longer watches its path.  What it has to remove
 * on the server is left in "unwatched": nothing if other owners still watch, or
 * the watch has fired.
 */
static void
remove_watcher(Operation *op)
{
	op->unwatched = 0;
	for (int i = 0; i < (int) lengthof(types); i++)
	{
		Watch	   *watch = find_watch(op->path, types[i]);
		Watcher    *watcher = find_watcher(watch, op->owner);

		if (watcher == NULL)
			continue;
		forget_watcher(watcher);
		if (dlist_is_empty(&watch->watchers))
			op->unwatched |= types[i];
	}
}

/*
 * Note by the answer whether the operation has set or removed its watch.  If it
 * has set it, the library has it, even if it has been forgotten here because an
 * earlier one fired, or the connection was lost.
 */
static void
note_watch(const Operation *op)
{
	if (sets_watch(op) && op->read)
	{
		Watch	   *watch = make_watch(op->path, watch_type(op));
		Watcher    *watcher = find_watcher(watch, op->owner);

		watch->set = true;
		if (watcher)
			watcher->set = true;
		return;
	}
	if (op->answer.error != ZOK)
		forget_watch(op);
	else
		for (int i = 0; i < (int) lengthof(types); i++)
		{
			Watch	   *watch = op->unwatched & types[i] ?
			find_watch(op->path, types[i]) : NULL;

			if (watch && dlist_is_empty(&watch->watchers))
				drop_watch(watch);
		}
}

/* Forget a watch, and let the owners that have set it get that. */
static void
fire_watch(Watch *watch)
{
	while (!dlist_is_empty(&watch->watchers))
		dlist_push_tail(&fired,
						dlist_pop_head_node(&watch->watchers));
	drop_watch(watch);
}

/*
 * The connection is lost, and the library will set all its watches again on
 * the next one, in one request.  Make it forget before those that end with the
 * connection, and those being removed.  If the request would be too long for a
 * server, make it forget all, and tell their owners that they have fired: they
 * set them again one by one.  If the library is faster, the server drops the
 * connection, and this is called again.
 *
 * A watch whose request is out may still come: if the library had no
 * connection by then, it sends the request on the next one.
 */
void
flight_disconnect(void)
{
	bool		too_long = flight.watch_bytes > WATCH_BYTES;
	Watch	   *watch;
	HASH_SEQ_STATUS scan;

	client_enter_library();
	fired_deleted = false;
	hash_seq_init(&scan, watches);
	while ((watch = hash_seq_search(&scan)) != NULL)
	{
		dlist_mutable_iter iter;

		dlist_foreach_modify(iter, &watch->watchers)
		{
			Watcher    *watcher = dlist_container(Watcher, node, iter.cur);

			if (watcher->brief &&
				(watcher->set || ZK_MUTATED(ZK_UNSENT_WATCH_DROPPED)))
				forget_watcher(watcher);
		}
		if (too_long || dlist_is_empty(&watch->watchers))
		{
			/*
			 * This synchronous call waits for no server.  (The asynchronous
			 * one then uses its own argument as that of a synchronous one.)
			 */
			zoo_remove_all_watches(client.handle, watch->key.path,
								   watch->key.type, 1);
			fire_watch(watch);
		}
	}
	client_leave_library();
}

/* The types of watches that the library uses up for an event. */
static ZooWatcherType
types_of_event(int event)
{
	if (event == ZOO_DELETED_EVENT || ZK_MUTATED(ZK_WATCHES_OF_ONE_TYPE))
		return ZWATCHTYPE_ANY;
	return event == ZOO_CHILD_EVENT ? ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA;
}

/* The watches of a path that an event of the library uses up have fired. */
void
flight_fire(const char *path, int event)
{
	ZooWatcherType used = types_of_event(event);
	static unsigned events = 0;

	if (ZK_MUTATED(ZK_EVENT_DROPPED) && ++events % 50 == 0)
		return;
	fired_deleted = event == ZOO_DELETED_EVENT;
	for (int i = 0; i < (int) lengthof(types); i++)
	{
		Watch	   *watch = used & types[i] ?
		find_watch(path, types[i]) : NULL;

		if (watch)
			fire_watch(watch);
	}
}

/*
 * Take the next owner whose watch has fired, and what it is to be told; false
 * if there is none.
 */
bool
flight_next_fired(uint32 *owner, RequestAnswer *answer)
{
	Watcher    *watcher;

	if (dlist_is_empty(&fired))
		return false;
	watcher = dlist_container(Watcher, node, dlist_pop_head_node(&fired));
	*owner = watcher->owner;
	memset(answer, 0, sizeof(*answer));
	answer->event = fired_deleted ? REQUEST_NODE_DELETED : REQUEST_NODE_TOUCHED;
	answer->serial = watcher->serial;
	pfree(watcher);
	return true;
}

/* Make an operation from a request. */
static Operation *
operation_make(uint32_t owner, const Request *request)
{
	Operation  *op;
	const char *node = request->node ? request->node : "";
	const char *data = request->data ? request->data : "";
	Size		path_size = strlen(request->path) + strlen(node) + 2;

	op = MemoryContextAllocZero(context, offsetof(Operation, path) +
								path_size + strlen(data) + 1);
	op->event.kind = CLIENT_EVENT_ANSWER;
	op->limit = BATCH_OPERATIONS;
	op->owner = owner;
	op->request = *request;
	op->request.path = op->path;
	op->request.node = NULL;
	op->request.barrier |= request->kind == REQUEST_SEARCH;
	if (!request->has_version)
		op->request.version = -1;
	snprintf(op->path, path_size, "%s%s%s", request->path,
			 request->node ? "/" : "", node);
	if (request->data)
		op->request.data = strcpy(op->path + path_size, data);
	return op;
}

/* Forget the answer to an operation, so that it can be sent again. */
static void
operation_reset(Operation *op)
{
	forget_watch(op);
	client_free_answer(op);
	op->event.string = NULL;
	op->read = false;
	op->request.batch = 0;
	memset(&op->answer, 0, sizeof(op->answer));
}

/* Free an operation and its answer. */
void
flight_forget(Operation *op)
{
	dlist_delete(&op->node);
	if (ZK_MUTATED(ZK_OPERATION_LEAKED) &&
		op->request.kind == REQUEST_CHILDREN)
		return;
	client_free_answer(op);
	pfree(op);
}

static void
forget_list(dlist_head *list)
{
	while (!dlist_is_empty(list))
		flight_forget(dlist_head_element(Operation, node, list));
}

/* Is the operation about a znode in this directory? */
static bool
operation_is_in(const Operation *op, const char *directory)
{
	size_t		len = strlen(directory);

	return strncmp(directory, op->path, len) == 0 && op->path[len] == '/' &&
		strchr(op->path + len + 1, '/') == NULL;
}

/* Prepare the process for the session. */
void
flight_init(void)
{
	HASHCTL		ctl;

	context = AllocSetContextCreate(TopMemoryContext, "zklock session",
									ALLOCSET_DEFAULT_SIZES);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(WatchKey);
	ctl.entrysize = sizeof(Watch);
	ctl.hash = hash_key;
	ctl.match = match_keys;
	ctl.hcxt = context;
	watches =
		hash_create("zklock watches", 64, &ctl,
					HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	flying = flying_create(context, 64, NULL);
}

/*
 * flight_submit
 *		Submit a request, to be sent by flight_send().
 *
 * A heartbeat is sent before what else is submitted, and does not wait for
 * flights of reads, which prove nothing.  Returns the operation, which is freed
 * with its answer.
 */
const Operation *
flight_submit(uint32_t owner, const Request *request)
{
	Operation  *op = operation_make(owner, request);

	if (operation_is_check(op))
		dlist_push_head(&submitted, &op->node);
	else
		dlist_push_tail(&submitted, &op->node);
	return op;
}

/* Is a flight out?  Then no other can be sent. */
bool
flight_is_out(void)
{
	return !dlist_is_empty(&out);
}

/* The server has not processed something: delay its next flight. */
void
flight_hold_back(void)
{
	flight.resend_ms = zk_now_ms() + RESEND_DELAY_MS;
}

/* The session is over: forget all watches, and what has not been sent. */
void
flight_end(void)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;
	uint32		owner;
	RequestAnswer answer;

	hash_seq_init(&scan, watches);
	while ((watch = hash_seq_search(&scan)) != NULL)
		fire_watch(watch);
	while (flight_next_fired(&owner, &answer))
		;
	forget_list(&again);
	forget_list(&submitted);
}

/* Free the operations that are out; the client must be closed. */
void
flight_forget_out(void)
{
	forget_list(&out);
}

/* Move the first operation of a list into the flight. */
static Operation *
add(dlist_head *list)
{
	Operation  *op = dlist_container(Operation, node,
									 dlist_pop_head_node(list));

	dlist_push_tail(&out, &op->node);
	return op;
}

/* A watch has reported the deletion of this directory. */
void
flight_directory_deleted(const char *directory)
{
	dlist_head *lists[] = {&out, &again, &submitted};

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_iter	iter;

		dlist_foreach(iter, lists[i])
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			op->directory_deleted |= op->request.kind == REQUEST_CREATE &&
				operation_is_in(op, directory);
		}
	}
}

/* Send the first operations of a list as one multi. */
static void
send_multi(dlist_head *list, int count, bool is_batch)
{
	Operation **ops = palloc(count * sizeof(Operation *));

	for (int i = 0; i < count; i++)
		ops[i] = add(list);
	client_send_multi(ops, count, is_batch);
	pfree(ops);
}

/* Send a barrier.  Returns its number, which its answer has as its serial. */
static uint32
send_barrier(void)
{
	dlist_head	list = DLIST_STATIC_INIT(list);
	Request		check = {.kind = REQUEST_CHECK,.path = "/",.serial = ++barriers};

	dlist_push_tail(&list, &operation_make(NOBODY, &check)->node);
	send_multi(&list, 1, false);
	return barriers;
}

/* Send the first operation of a list alone. */
static void
send_first(dlist_head *list)
{
	Operation  *op = dlist_head_element(Operation, node, list);

	if (operation_is_check(op) || operation_parts(op) > 1)
	{
		send_multi(list, 1, false);
		return;
	}
	if (op->request.barrier)
		op->barrier = send_barrier();
	if (sets_watch(op))
		add_watch(op);
	else if (op->request.kind == REQUEST_UNWATCH)
		remove_watcher(op);
	client_send(add(list));
}

static void
send_all(dlist_head *list)
{
	while (!dlist_is_empty(list))
		send_first(list);
}

/*
 * Send creates and deletes in batches, new ones apart from those whose batch
 * has failed; or each group as a multi.
 */
static void
send_writes(dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		Operation  *first = dlist_head_element(Operation, node, list);
		bool		is_batch = first->request.group == 0;
		dlist_iter	iter;
		int			count = 0;
		int			parts = 0;
		Size		bytes = 0;

		dlist_foreach(iter, list)
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			parts += operation_parts(op);
			bytes += operation_parts(op) *
				(OVERHEAD_BYTES + strlen(op->path)) +
				(op->request.data ? strlen(op->request.data) : 0);
			if (op->request.group != first->request.group ||
				op->limit != first->limit ||
				(is_batch && count > 0 &&
				 (parts > op->limit || bytes > BATCH_BYTES)))
				break;
			count++;
		}
		if (is_batch && count == 1)
			send_first(list);
		else
			send_multi(list, count, is_batch);
	}
}

/*
 * If the stat before this one has the same answer, let it stand for this one,
 * which is not sent.
 */
static bool
share_stat(FlightPlan *plan, Operation *op)
{
	Operation  *stat = plan->stat;

	if (stat == NULL || stat->request.batch != op->request.batch)
	{
		plan->stat = op;
		return false;
	}
	op->sharer = stat->sharer;
	stat->sharer = op;
	return true;
}

/*
 * Move an operation from its waiting list to its place in the flight.  Returns
 * false if it has to wait.
 */
static bool
plan_operation(FlightPlan *plan, Operation *op)
{
	RequestKind kind = op->request.kind;
	FlightOwner *owner;
	dlist_head *list;
	bool		found;

	if (flight.first != NOBODY && op->owner != flight.first &&
		!operation_is_check(op))
		return false;
	owner = flying_insert(flying, op->owner, &found);
	if (!found)
	{
		owner->wrote = owner->deferred = owner->put_back = false;
		owner->write = NULL;
	}
	if (op->request.group != 0)
		list = &plan->groups;
	else if (op->request.alone)
		list = &plan->ahead;
	else if (kind != REQUEST_CREATE && kind != REQUEST_DELETE &&
			 kind != REQUEST_REQUEUE)
		list = owner->wrote ? &plan->behind : &plan->ahead;
	else
	{
		list = &plan->writes;
		if (owner->wrote)
			owner->deferred = true;
	}
	if (owner->deferred && op->request.group == 0)
		return false;
	if (list == &plan->groups || list == &plan->writes)
		owner->wrote = true;

	/* answers of one owner must keep their order */
	if (kind == REQUEST_STAT && op->request.batch != 0 && !found &&
		share_stat(plan, op))
		list = &out;
	dlist_delete(&op->node);
	dlist_push_tail(list, &op->node);
	return true;
}

/* Compose a flight: what is sent again, then what has been submitted. */
static void
plan_flight(FlightPlan *plan)
{
	dlist_mutable_iter iter;
	uint32		group = 0;
	int			count = 0;

	memset(plan, 0, sizeof(*plan));
	flying_reset(flying);
	dlist_foreach_modify(iter, &again)
	{
		/* this is the first write of its owner here */
		(void) plan_operation(plan,
							  dlist_container(Operation, node, iter.cur));
	}
	dlist_foreach_modify(iter, &submitted)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		/* a group must not be split */
		if (count >= FLIGHT_OPERATIONS &&
			(op->request.group == 0 || op->request.group != group))
			break;
		if (!plan_operation(plan, op))
			continue;
		group = op->request.group;
		count++;
	}
}

/*
 * flight_send_alone
 *		Send a request now, ahead of the submitted ones.
 *
 * No flight may be out, and the connection must be up.
 */
void
flight_send_alone(uint32_t owner, const Request *request)
{
	dlist_head	list = DLIST_STATIC_INIT(list);

	dlist_push_tail(&list, &operation_make(owner, request)->node);
	flight.sent_ms = zk_now_ms();
	client_enter_library();
	send_first(&list);
	client_leave_library();
}

/*
 * flight_send
 *		Send what is to be sent again, and what has been submitted, up to
 *		the limit of a flight.
 *
 * No flight may be out, and the connection must be up.
 */
void
flight_send(int64 now_ms)
{
	FlightPlan	plan;

	if (dlist_is_empty(&submitted) && dlist_is_empty(&again))
		return;
	flight.sent_ms = now_ms;
	plan_flight(&plan);
	client_enter_library();
	send_all(&plan.ahead);
	send_writes(&plan.writes);
	send_writes(&plan.groups);
	send_all(&plan.behind);
	client_leave_library();
}

/*
 * Answer the stats that this one stands for behind it.  If it has not found a
 * node of our session, that answers none of them.
 */
static void
answer_sharers(Operation *op)
{
	Operation  *sharer;

	while ((sharer = op->sharer) != NULL)
	{
		op->sharer = sharer->sharer;
		sharer->sharer = NULL;
		sharer->answer = op->answer;
		if (op->answer.error != ZOK ||
			!client_is_ours(op->answer.ephemeral_owner))
			sharer->answer.error = UNACKNOWLEDGED;
		client_put_back(&sharer->event);
	}
}

/*
 * Is this to be sent again?  If a batch has failed, all that its owners have
 * in it and behind it is, except groups, and creates in a directory that has
 * been deleted: the server has processed them.
 */
static bool
must_resend(Operation *op)
{
	FlightOwner *owner = flying_lookup(flying, op->owner);
	bool		failed = op->answer.error == CLIENT_BATCH_FAILED;

	if (failed && op->directory_deleted)
		op->answer.error = ZNONODE;
	if (owner == NULL || op->request.group != 0)
		return false;
	owner->put_back |= op->answer.error == CLIENT_BATCH_FAILED;
	return owner->put_back && (failed || !ZK_MUTATED(ZK_READS_NOT_AGAIN));
}

/*
 * This answers what was sent behind a write that is sent again: does it show
 * what would become of the write?  If the directory of a create is missing,
 * returns the create, to be answered so first; this one follows.
 */
static Operation *
known_to_fail(Operation *op)
{
	FlightOwner *owner = flying_lookup(flying, op->owner);
	Operation  *write = owner->write;

	if (op->request.kind != REQUEST_CHILDREN ||
		op->answer.error != ZNONODE || write == NULL ||
		write->request.kind != REQUEST_CREATE ||
		!operation_is_in(write, op->path))
		return NULL;
	owner->put_back = false;
	owner->write = NULL;
	write->answer.error = op->answer.error;
	client_put_back(&op->event);
	return write;
}

/* Send an operation again, in the next flight. */
static void
send_again(Operation *op)
{
	flying_lookup(flying, op->owner)->write =
		op->answer.error == CLIENT_BATCH_FAILED ? op : NULL;
	operation_reset(op);
	dlist_delete(&op->node);
	dlist_push_tail(&again, &op->node);
}

/*
 * The result that the answer to an operation is.
 *
 * What the library was given while it had no connection is sent on the next
 * one, though what it was given before is lost: so a directory may lack a
 * parent whose create has an unknown result.
 */
static RequestResult
result_of(const Operation *op)
{
	int			code = op->answer.error;

	if (code == ZNONODE && op->parents_code != ZOK)
		code = op->parents_code;
	switch (code)
	{
		case ZOK:
			return REQUEST_OK;
		case ZNONODE:
			return op->parents_code == ZNONODE ?
				REQUEST_REFUSED : REQUEST_NO_NODE;
		case ZNODEEXISTS:
			/* another client made the directory */
			return op->request.kind == REQUEST_MKDIR ||
				op->request.kind == REQUEST_MKDIRS ?
				REQUEST_OK : REQUEST_REFUSED;
		case ZSESSIONEXPIRED:
		case ZCLOSING:
		case ZSESSIONMOVED:
		case ZTHROTTLEDOP:
			return REQUEST_UNKNOWN;
		case ZBADARGUMENTS:
		case ZUNIMPLEMENTED:
			return REQUEST_REFUSED;
		default:
			/* up to ZAPIERROR it is the client's code, which knows no more */
			return code > ZAPIERROR ? REQUEST_UNKNOWN : REQUEST_REFUSED;
	}
}

/*
 * Complete an answer.  If the result is unknown, the next flight is delayed,
 * unless another operation of the group failed.
 */
static void
complete_answer(Operation *op)
{
	RequestAnswer *answer = &op->answer;
	int			code = answer->error;

	answer->kind = op->request.kind;
	answer->serial = op->request.serial;
	answer->result = result_of(op);
	if (code == ZNONODE && op->parents_code != ZOK)
		answer->error = op->parents_code;
	answer->not_empty = code == ZNOTEMPTY;
	answer->ours = client_is_ours(answer->ephemeral_owner);
	if (operation_creates(op) && code == ZOK)
	{
		answer->batch = op->request.batch;
		answer->token = answer->ours ? answer->czxid : 0;
	}
	if (answer->result == REQUEST_UNKNOWN &&
		!(op->request.group != 0 && code == ZRUNTIMEINCONSISTENCY))
		flight_hold_back();
}

/*
 * flight_take_answer
 *		Take an answer.  Returns the operation to be answered now, completed,
 *		before others are taken, and then forgotten; or NULL, if it is sent
 *		again, or of a barrier.
 */
Operation *
flight_take_answer(Operation *op)
{
	Operation  *write;

	if (op->owner == NOBODY)
	{
		if (client_is_leaders(op->answer.error))
			passed_barrier = op->request.serial;
		flight_forget(op);
		return NULL;
	}
	note_watch(op);

	/* what was read behind a failed barrier does not count */
	if (op->request.barrier && op->barrier != passed_barrier &&
		(op->answer.error == ZOK || op->answer.error == ZNONODE))
		op->answer.error = UNACKNOWLEDGED;

	/* no owner would repeat the deletion of an orphan */
	if (op->request.kind == REQUEST_DELETE_ORPHAN &&
		result_of(op) == REQUEST_UNKNOWN)
	{
		flight_hold_back();
		send_again(op);
		return NULL;
	}
	if (must_resend(op))
	{
		write = known_to_fail(op);
		if (write == NULL)
		{
			send_again(op);
			return NULL;
		}
		op = write;
	}
	answer_sharers(op);
	complete_answer(op);
	return op;
}
