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
 * What is sent again, and in which pieces:
 *
 * - The writes before the failed one are good.  The server did not try those
 *   after it.  Where one fails, others often do: ZooKeeper collects unused
 *   directories.
 * - But the read of the queue behind a create shows whether its directory is
 *   missing.  If it is, the create gets that answer, too; otherwise it counts
 *   as good.  Where nothing is read, the directory is watched: the event of
 *   its deletion, which precedes the answer, shows the same.
 * - The good writes are sent again as one batch and the others as another,
 *   both apart from new ones.
 * - If such a batch fails, what is behind its failed write is sent in several
 *   pieces, none longer than the good stretch before it, unless that was very
 *   short.
 * - If the answer does not say which write failed, each is sent alone.
 * - A group is not sent again, though its owner may have had a write in the
 *   batch: its answer says what has become of it.
 *
 * So however many writes fail, a few flights settle it.  One failure costs two
 * more requests, and those for what was sent behind.
 *
 * Watches.  The library has one watch for each path and type, however often it
 * is set.  The types are those of the request that sets the watch:
 * ZWATCHTYPE_DATA for a get, ZWATCHTYPE_CHILD for a list of children.  (A
 * watch of a missing node is never set.)  This file keeps the owners that have
 * set a watch; when it fires, each of them gets it.  A watch fires once: at
 * the deletion of its node, or at a change of what its type is about.
 *
 * When the library reconnects, it sets all watches again, in one request.
 * watches_bound() limits the length of that request to what a server accepts.
 * So each watch that the library may have must be here.  A watch without
 * owners is being removed, or was set too late to be useful; it stays until
 * the server has confirmed its removal, it fires, or the connection is lost.
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
#include "utils/memutils.h"
#include "worker/zookeeper/fault_private.h"
#include "worker/zookeeper/flight_private.h"

/*
 * How long to hold back the next flight after an answer that settles nothing
 * although the connection is up: the server may be throttling us.
 */
#define RESEND_DELAY_MS		100

/*
 * The limits of one multi: longer ones are no cheaper per operation, and the
 * server refuses requests of more than REQUEST_MAX_BYTES, which also limits a
 * group.
 */
#define BATCH_OPERATIONS	256
#define BATCH_BYTES			(256 * 1024)

/*
 * The most writes in one batch that is sent again, if they are good, or if
 * nothing is known of them.  The values differ, so that the two kinds stay
 * apart.
 */
#define GOOD_PIECE			BATCH_OPERATIONS
#define UNKNOWN_PIECE		(BATCH_OPERATIONS - 1)

/*
 * If that fails, what is behind the failed write goes in at most so many
 * pieces.
 */
#define MAX_PIECES			8

/* The most operations in one flight, so that it does not take long. */
#define FLIGHT_OPERATIONS	1024

/* Of the reads behind a batch, every so many answers wake the main thread. */
#define WAKE_INTERVAL		16

/* The most stats of a flight that can stand for others. */
#define SHARED_STATS		16

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

/* An owner of requests. */
typedef struct Owner
{
	uint32		id;				/* hash key, must be first */
	RequestHandler handler;
	void	   *data;
} Owner;

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
	Operation  *stats[SHARED_STATS];	/* those that can stand for others */
	Operation  *urgent;			/* the last urgent one of "ahead" */
	int			nbehind;
	int			nstats;
	int			nsent;			/* operations that will be answered */
} FlightPlan;

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

/* Make an empty set of watches, in "context". */
static void
watches_init(Watches *watches, Client *client, MemoryContext context)
{
	HASHCTL		ctl;

	memset(watches, 0, sizeof(*watches));
	watches->client = client;
	watches->context = context;
	dlist_init(&watches->fired);

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(WatchKey);
	ctl.entrysize = sizeof(Watch);
	ctl.hash = hash_key;
	ctl.match = match_keys;
	ctl.hcxt = context;
	watches->by_key =
		hash_create("zklock watches", 64, &ctl,
					HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}

/* The bytes of a path in a request: its length, and itself. */
static Size
watch_bytes(const Watches *watches, const char *path)
{
	return sizeof(int32) + watches->chroot_len + strlen(path);
}

static Watch *
find_watch(Watches *watches, const char *path, ZooWatcherType type)
{
	WatchKey	key = {unconstify(char *, path), type};

	return hash_search(watches->by_key, &key, HASH_FIND, NULL);
}

static Watch *
make_watch(Watches *watches, const char *path, ZooWatcherType type)
{
	WatchKey	key = {unconstify(char *, path), type};
	bool		found;
	Watch	   *watch = hash_search(watches->by_key, &key, HASH_ENTER, &found);

	if (!found)
	{
		watch->key.path = MemoryContextStrdup(watches->context, path);
		dlist_init(&watch->watchers);
		watch->set = false;
		watches->bytes += watch_bytes(watches, path);
	}
	return watch;
}

static void
drop_watch(Watches *watches, Watch *watch)
{
	WatchKey	key = watch->key;

	watches->bytes -= watch_bytes(watches, key.path);
	hash_search(watches->by_key, &key, HASH_REMOVE, NULL);
	pfree(key.path);
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

static void
forget_watcher(Watcher *watcher)
{
	dlist_delete(&watcher->node);
	pfree(watcher);
}

/*
 * Make the library forget a watch.  This is a synchronous call, but to remove
 * watches locally it waits for no server.  (The asynchronous one then uses its
 * own argument as that of a synchronous one.)
 */
static void
remove_from_library(Watches *watches, const Watch *watch)
{
	zoo_remove_all_watches(watches->client->handle, watch->key.path,
						   watch->key.type, 1);
}

/* Forget a watch, and let the owners that have set it get that. */
static void
fire_watch(Watches *watches, Watch *watch)
{
	while (!dlist_is_empty(&watch->watchers))
		dlist_push_tail(&watches->fired,
						dlist_pop_head_node(&watch->watchers));
	drop_watch(watches, watch);
}

static void
fire_all_watches(Watches *watches)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;

	hash_seq_init(&scan, watches->by_key);
	while ((watch = hash_seq_search(&scan)) != NULL)
		fire_watch(watches, watch);
}

/* Forget all watches, with their owners: the session is over. */
static void
watches_forget_all(Watches *watches)
{
	fire_all_watches(watches);
	while (!dlist_is_empty(&watches->fired))
		pfree(dlist_container(Watcher, node,
							  dlist_pop_head_node(&watches->fired)));
}

/*
 * watches_add
 *		"owner" is about to set a watch.
 *
 * The latest "serial" of an owner counts: it gets that one.
 */
static void
watches_add(Watches *watches, const char *path, ZooWatcherType type,
			uint32_t owner, uint32_t serial, bool brief)
{
	Watch	   *watch = make_watch(watches, path, type);
	Watcher    *watcher = find_watcher(watch, owner);

	if (watcher == NULL)
	{
		watcher = MemoryContextAlloc(watches->context, sizeof(Watcher));
		watcher->owner = owner;
		watcher->set = false;
		dlist_push_tail(&watch->watchers, &watcher->node);
	}
	watcher->serial = serial;
	watcher->brief = brief;
}

/*
 * watches_note_set
 *		The watch that "owner" requested was set.
 *
 * So the library has it, even if it has been forgotten here because an earlier
 * one fired, or the connection was lost.
 */
static void
watches_note_set(Watches *watches, const char *path, ZooWatcherType type,
				 uint32_t owner)
{
	Watch	   *watch = make_watch(watches, path, type);
	Watcher    *watcher = find_watcher(watch, owner);

	watch->set = true;
	if (watcher)
		watcher->set = true;
}

/*
 * watches_forget
 *		The watch that "owner" requested with this "serial" was not set.
 *
 * If it was set before, by this owner or by one that has been forgotten since,
 * and has not fired, it still exists.
 */
static void
watches_forget(Watches *watches, const char *path, ZooWatcherType type,
			   uint32_t owner, uint32_t serial)
{
	Watch	   *watch = find_watch(watches, path, type);
	Watcher    *watcher = watch ? find_watcher(watch, owner) : NULL;

	if (watcher == NULL || watcher->serial != serial || watcher->set)
		return;
	forget_watcher(watcher);
	if (dlist_is_empty(&watch->watchers) && !watch->set)
		drop_watch(watches, watch);
}

/*
 * watches_remove
 *		"owner" no longer watches a path.
 *
 * Returns the type that the caller must remove on the server, before it calls
 * watches_removed(); or 0: other owners still watch, or the watch has fired.
 */
static ZooWatcherType
watches_remove(Watches *watches, const char *path, uint32_t owner)
{
	ZooWatcherType unused = 0;

	for (int i = 0; i < (int) lengthof(types); i++)
	{
		Watch	   *watch = find_watch(watches, path, types[i]);
		Watcher    *watcher = watch ? find_watcher(watch, owner) : NULL;

		if (watcher == NULL)
			continue;
		forget_watcher(watcher);
		if (dlist_is_empty(&watch->watchers))
			unused |= types[i];
	}
	return unused;
}

/* The server and the library have removed the watch of a path. */
static void
watches_removed(Watches *watches, const char *path, ZooWatcherType type)
{
	for (int i = 0; i < (int) lengthof(types); i++)
	{
		Watch	   *watch = type & types[i] ?
		find_watch(watches, path, types[i]) : NULL;

		if (watch && dlist_is_empty(&watch->watchers))
			drop_watch(watches, watch);
	}
}

/*
 * watches_drop
 *		The connection is lost: make the library forget, so that it does not
 *		set them again, the watches that end with the connection and those
 *		being removed.
 *
 * A watch whose request is out may still come: if the library had no
 * connection by then, it sends the request on the next one.
 */
static void
watches_drop(Watches *watches)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;
	sigset_t	saved;

	fault_enter_library(&saved);
	hash_seq_init(&scan, watches->by_key);
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
		if (!dlist_is_empty(&watch->watchers))
			continue;
		remove_from_library(watches, watch);
		drop_watch(watches, watch);
	}
	fault_leave_library(&saved);
}

/*
 * watches_bound
 *		The connection is lost: limit what the library sets again.
 *
 * The library will set all its watches again on the next connection, in one
 * request.  If that would be too long for a server, make the library forget
 * all watches before, and tell their owners that the watches have fired: they
 * set them again one by one.  If the library is faster, the server drops the
 * connection, and this is called again.
 */
static void
watches_bound(Watches *watches)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;
	sigset_t	saved;

	if (watches->bytes <= WATCH_BYTES)
		return;
	fault_enter_library(&saved);
	hash_seq_init(&scan, watches->by_key);
	while ((watch = hash_seq_search(&scan)) != NULL)
		remove_from_library(watches, watch);
	fault_leave_library(&saved);
	watches->fired_deleted = false;
	fire_all_watches(watches);
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
static void
fire(Watches *watches, const char *path, int event)
{
	ZooWatcherType fired = types_of_event(event);
	static unsigned events = 0;

	if (ZK_MUTATED(ZK_EVENT_DROPPED) && ++events % 50 == 0)
		return;
	watches->fired_deleted = event == ZOO_DELETED_EVENT;
	for (int i = 0; i < (int) lengthof(types); i++)
	{
		Watch	   *watch = fired & types[i] ?
		find_watch(watches, path, types[i]) : NULL;

		if (watch)
			fire_watch(watches, watch);
	}
}

/* May this be in a group? */
static bool
can_be_grouped(const Operation *op)
{
	RequestKind kind = op->request.kind;

	return kind == REQUEST_CREATE || kind == REQUEST_SET ||
		kind == REQUEST_CHECK || kind == REQUEST_DELETE;
}

/* Make an operation from a request, in "context". */
static Operation *
operation_make(Client *client, MemoryContext context, uint32_t owner,
			   const Request *request)
{
	Operation  *op;
	Size		size = strlen(request->path) + 1;

	if (request->node)
		size += strlen(request->node) + 1;
	op = MemoryContextAllocZero(context, offsetof(Operation, path) + size);
	op->event.kind = CLIENT_EVENT_ANSWER;
	op->event.client = client;
	op->owner = owner;
	strcpy(op->path, request->path);
	if (request->node)
	{
		strcat(op->path, "/");
		strcat(op->path, request->node);
	}
	op->request = *request;
	op->request.path = op->path;
	op->request.node = NULL;
	op->request.barrier |= request->kind == REQUEST_SEARCH;
	if (!can_be_grouped(op))
		op->request.group = 0;
	if (!request->has_version)
		op->request.version = -1;
	if (request->data)
		op->request.data = MemoryContextStrdup(context, request->data);
	if (request->kind == REQUEST_REQUEUE)
	{
		op->prefix = MemoryContextStrdup(context, op->path);
		op->prefix[strlen(op->path) - ZNODE_SEQUENCE_DIGITS] = '\0';
	}
	return op;
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

/* The watch that this was to set was not set. */
static void
forget_watch(const Operation *op, Watches *watches)
{
	if (sets_watch(op))
		watches_forget(watches, op->path, watch_type(op), op->owner,
					   op->request.serial);
}

/* Note by the answer whether this has set or removed its watch. */
static void
operation_note_watch(const Operation *op, Watches *watches)
{
	if (sets_watch(op) && op->read)
		watches_note_set(watches, op->path, watch_type(op), op->owner);
	else if (op->answer.error != ZOK)
		forget_watch(op, watches);
	else if (op->unwatched != 0)
		watches_removed(watches, op->path, op->unwatched);
}

/* Forget the answer to an operation, so that it can be sent again. */
static void
operation_reset(Operation *op, Watches *watches)
{
	forget_watch(op, watches);
	client_free_answer(op);
	op->event.string = NULL;
	op->barrier = NULL;
	op->wakes = op->read = false;
	op->request.batch = 0;
	memset(&op->answer, 0, sizeof(op->answer));
}

/* Free an operation, which is in no list, and its answer. */
static void
operation_free(Operation *op)
{
	client_free_answer(op);
	if (op->request.data)
		pfree(unconstify(char *, op->request.data));
	if (op->prefix)
		pfree(op->prefix);
	pfree(op);
}

/* Is the operation about a znode in this directory? */
static bool
operation_is_in(const Operation *op, const char *directory)
{
	size_t		len = strlen(directory);

	return strncmp(directory, op->path, len) == 0 && op->path[len] == '/' &&
		strchr(op->path + len + 1, '/') == NULL;
}

/* This directory has been deleted since the operation was submitted. */
static void
operation_note_deletion(Operation *op, const char *directory)
{
	if (op->request.kind == REQUEST_CREATE && operation_is_in(op, directory))
		op->directory_deleted = true;
}

/* Has the leader processed this, and a quorum logged the outcome? */
bool
flight_is_proof(const Operation *op)
{
	RequestKind kind = op->request.kind;

	if (!client_is_leaders(op->answer.error))
		return false;
	return operation_is_heartbeat(op) || operation_creates(op) || kind == REQUEST_SET ||
		kind == REQUEST_DELETE || kind == REQUEST_DELETE_ORPHAN;
}

/* Why the parents of a directory cannot be made, or ZOK. */
static int
parents_code(const Operation *op)
{
	return op->request.kind == REQUEST_MKDIRS ? op->parents_code : ZOK;
}

static RequestResult
operation_result(const Operation *op)
{
	int			code = op->answer.error;

	switch (code)
	{
		case ZOK:
			return REQUEST_OK;
		case ZNONODE:
			return op->parent_lost ? REQUEST_UNKNOWN :
				parents_code(op) != ZOK ? REQUEST_REFUSED : REQUEST_NO_NODE;
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
 * Complete the answer that the callback has begun; not of heartbeats, nor of
 * UNWATCH and DELETE_ORPHAN, which are not answered.
 */
static void
complete_answer(Operation *op)
{
	RequestAnswer *answer = &op->answer;
	int			code = answer->error;

	answer->kind = op->request.kind;
	answer->serial = op->request.serial;
	answer->result = operation_result(op);
	if (code == ZNONODE && parents_code(op) != ZOK)
		answer->error = parents_code(op);
	answer->not_empty = code == ZNOTEMPTY;
	answer->ours = client_is_ours(op->event.client, answer->ephemeral_owner);
	if (operation_creates(op) && code == ZOK)
	{
		answer->batch = op->request.batch;
		answer->token = answer->ours ? answer->czxid : 0;
	}
}

/*
 * Make an empty flight, with its operations in "context".  "proved" is called
 * with each operation that is answered, before its owner is.
 */
void
flight_init(Flight *flight, Client *client, MemoryContext context,
			void (*proved) (const Operation *op))
{
	HASHCTL		ctl;

	memset(flight, 0, sizeof(*flight));
	flight->proved = proved;
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(uint32);
	ctl.entrysize = sizeof(Owner);
	flight->owners = hash_create("zklock owners of requests", 256, &ctl,
								 HASH_ELEM | HASH_BLOBS);
	flight->client = client;
	watches_init(&flight->watches, client, context);
	flight->context = context;
	dlist_init(&flight->submitted);
	dlist_init(&flight->again);
	dlist_init(&flight->out);
	flight->flying = flying_create(context, 64, NULL);
}

/* Add an owner of requests; returns its ID. */
uint32
flight_add_owner(Flight *flight, RequestHandler handler, void *data)
{
	Owner	   *owner;
	bool		found;

	/* IDs wrap around, and some owners live long */
	do
	{
		if (++flight->last_owner == NOBODY)
			flight->last_owner++;
		owner = hash_search(flight->owners, &flight->last_owner, HASH_ENTER,
							&found);
	} while (found);
	owner->handler = handler;
	owner->data = data;
	return owner->id;
}

void
flight_remove_owner(Flight *flight, uint32 owner)
{
	hash_search(flight->owners, &owner, HASH_REMOVE, NULL);
}

/* A session begins; its chroot has this length.  No watch is set. */
void
flight_begin(Flight *flight, Size chroot_len)
{
	flight->watches.chroot_len = chroot_len;
}

/* Submit a request, to be sent by flight_send(). */
void
flight_submit(Flight *flight, uint32_t owner, const Request *request)
{
	Operation  *op = operation_make(flight->client, flight->context, owner,
									request);

	dlist_push_tail(&flight->submitted, &op->node);
}

/*
 * flight_submit_heartbeat
 *		Submit a write that changes nothing.
 *
 * It is sent before what else is submitted, and does not wait for flights of
 * reads, which prove nothing.
 */
void
flight_submit_heartbeat(Flight *flight)
{
	static const Request check = {.kind = REQUEST_CHECK,.path = "/"};
	Operation  *op = operation_make(flight->client, flight->context, NOBODY,
									&check);

	dlist_push_head(&flight->submitted, &op->node);
}

/* Is a flight out?  Then no other can be sent. */
bool
flight_is_out(const Flight *flight)
{
	return !dlist_is_empty((dlist_head *) &flight->out);
}

/* The server has not processed something: delay the next flight. */
void
flight_hold_back(Flight *flight)
{
	if (flight->client->connected)
		flight->resend_ms = zk_now_ms() + RESEND_DELAY_MS;
}

/* Free an operation and its answer. */
static void
forget(Operation *op)
{
	dlist_delete(&op->node);
	if (ZK_MUTATED(ZK_OPERATION_LEAKED) &&
		op->request.kind == REQUEST_CHILDREN)
		return;
	operation_free(op);
}

static void
forget_list(dlist_head *list)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, list)
	{
		forget(dlist_container(Operation, node, iter.cur));
	}
}

/* The session is over: forget all watches, and what has not been sent. */
void
flight_end(Flight *flight)
{
	watches_forget_all(&flight->watches);
	forget_list(&flight->again);
	forget_list(&flight->submitted);
}

/* Free the operations that are out; the client must be closed. */
void
flight_forget_out(Flight *flight)
{
	forget_list(&flight->out);
}

/* Move the first operation of a list into the flight. */
static Operation *
add(Flight *flight, dlist_head *list)
{
	Operation  *op = dlist_container(Operation, node,
									 dlist_pop_head_node(list));

	dlist_push_tail(&flight->out, &op->node);
	return op;
}

/* A watch has reported the deletion of this directory. */
void
flight_directory_deleted(Flight *flight, const char *directory)
{
	dlist_head *lists[] = {&flight->out, &flight->again, &flight->submitted};

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_iter	iter;

		dlist_foreach(iter, lists[i])
		{
			operation_note_deletion(dlist_container(Operation, node, iter.cur),
									directory);
		}
	}
}

/*
 * The connection is lost.  What the library was given while it had none is
 * sent on the next one, though what it was given before is lost: so a
 * directory may lack its parent.
 */
void
flight_disconnect(Flight *flight)
{
	dlist_iter	iter;

	dlist_foreach(iter, &flight->out)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		op->parent_lost = op->request.kind == REQUEST_MKDIR ||
			op->request.kind == REQUEST_MKDIRS;
	}
	watches_drop(&flight->watches);
	watches_bound(&flight->watches);
}

/* Send the first operation of a list alone. */
static void
send_first(Flight *flight, dlist_head *list)
{
	Operation  *op = add(flight, list);

	if (sets_watch(op))
		watches_add(&flight->watches, op->path, watch_type(op), op->owner,
					op->request.serial, op->request.brief);
	else if (op->request.kind == REQUEST_UNWATCH)
		op->unwatched = watches_remove(&flight->watches, op->path, op->owner);
	client_send(op);
}

static void
send_all(Flight *flight, dlist_head *list)
{
	while (!dlist_is_empty(list))
		send_first(flight, list);
}

/* Send the first creates and deletes of a list as one multi. */
static void
send_multi(Flight *flight, dlist_head *list, int count, bool is_batch)
{
	Operation **ops = palloc(count * sizeof(Operation *));

	for (int i = 0; i < count; i++)
		ops[i] = add(flight, list);
	if (++flight->last_batch == 0)
		++flight->last_batch;
	client_send_multi(ops, count, is_batch, flight->last_batch,
					  flight->context);
	pfree(ops);
}

/*
 * Send creates and deletes in batches: new ones apart from those whose batch
 * has failed.
 */
static void
send_writes(Flight *flight, dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		Operation  *first = dlist_head_element(Operation, node, list);
		int			piece = first->piece;
		int			limit = piece == 0 ? BATCH_OPERATIONS : piece;
		dlist_iter	iter;
		int			count = 0;
		int			parts = 0;
		Size		bytes = 0;

		dlist_foreach(iter, list)
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			parts += operation_parts(op);
			bytes += operation_parts(op) *
				(REQUEST_OVERHEAD_BYTES + strlen(op->path)) +
				(op->request.data ? strlen(op->request.data) : 0);
			if (op->piece != piece ||
				(count > 0 && (parts > limit || bytes > BATCH_BYTES)))
				break;
			count++;
		}
		if (count > 1)
			send_multi(flight, list, count, true);
		else if (operation_parts(first) > 1)
			send_multi(flight, list, 1, false);
		else
			send_first(flight, list);
	}
}

/* Send each group as a multi. */
static void
send_groups(Flight *flight, dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		Operation  *first = dlist_head_element(Operation, node, list);
		dlist_iter	iter;
		int			count = 0;

		dlist_foreach(iter, list)
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			if (op->request.group != first->request.group)
				break;
			count++;
		}
		send_multi(flight, list, count, false);
	}
}

/*
 * If another stat in the flight has the same answer, let it stand for this
 * one, which is not sent.
 */
static bool
share_stat(FlightPlan *plan, Operation *op)
{
	for (int i = 0; i < plan->nstats; i++)
	{
		Operation  *stat = plan->stats[i];

		if (stat->request.batch != op->request.batch)
			continue;
		op->sharer = stat->sharer;
		stat->sharer = op;
		return true;
	}
	if (plan->nstats < SHARED_STATS)
		plan->stats[plan->nstats++] = op;
	return false;
}

/* May a backend wait for this answer alone, not for that to a write? */
static bool
is_urgent(const Operation *op)
{
	RequestKind kind = op->request.kind;

	return !operation_is_heartbeat(op) && kind != REQUEST_MKDIR && kind != REQUEST_MKDIRS &&
		kind != REQUEST_STAT && kind != REQUEST_UNWATCH;
}

/*
 * Move an operation from its waiting list to its place in the flight.  Returns
 * false if it has to wait.
 */
static bool
plan_operation(Flight *flight, FlightPlan *plan, Operation *op)
{
	RequestKind kind = op->request.kind;
	FlightOwner *owner;
	dlist_head *list;
	bool		found;

	owner = flying_insert(flight->flying, op->owner, &found);
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
		list = &flight->out;
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

/* Compose a flight: what is sent again, then what has been submitted. */
static void
plan_flight(Flight *flight, FlightPlan *plan)
{
	dlist_mutable_iter iter;
	uint32		group = 0;
	int			count = 0;

	memset(plan, 0, sizeof(*plan));
	dlist_init(&plan->ahead);
	dlist_init(&plan->writes);
	dlist_init(&plan->groups);
	dlist_init(&plan->behind);
	flying_reset(flight->flying);
	dlist_foreach_modify(iter, &flight->again)
	{
		/* this is the first write of its owner here */
		(void) plan_operation(flight, plan,
							  dlist_container(Operation, node, iter.cur));
	}
	dlist_foreach_modify(iter, &flight->submitted)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		/* a group must not be split */
		if (count >= FLIGHT_OPERATIONS &&
			(op->request.group == 0 || op->request.group != group))
			break;
		if (!plan_operation(flight, plan, op))
			continue;
		group = op->request.group;
		count++;
	}
	if (plan->urgent)
		plan->urgent->wakes = true;
}

/*
 * flight_send_alone
 *		Send a request of nobody ahead of all that has been submitted; returns
 *		its operation, until "proved" (flight_init()) has been called with it.
 *
 * No flight may be out, and the connection must be up.
 */
const Operation *
flight_send_alone(Flight *flight, const Request *request, int64 now_ms)
{
	Operation  *op = operation_make(flight->client, flight->context, NOBODY,
									request);
	dlist_head	list;
	sigset_t	saved;

	dlist_init(&list);
	dlist_push_tail(&list, &op->node);
	flight->sent_ms = now_ms;
	flight->batch_failed = false;
	client_expect_answers(flight->client, 1);
	fault_enter_library(&saved);
	send_first(flight, &list);
	fault_leave_library(&saved);
	return op;
}

/*
 * flight_send
 *		Send what is to be sent again, and what has been submitted, up to
 *		the limit of a flight.
 *
 * No flight may be out, and the connection must be up.
 */
void
flight_send(Flight *flight, int64 now_ms)
{
	FlightPlan	plan;
	sigset_t	saved;

	if (dlist_is_empty(&flight->submitted) && dlist_is_empty(&flight->again))
		return;
	flight->sent_ms = now_ms;
	flight->batch_failed = false;
	plan_flight(flight, &plan);
	client_expect_answers(flight->client, plan.nsent);
	fault_enter_library(&saved);
	send_all(flight, &plan.ahead);
	send_writes(flight, &plan.writes);
	send_groups(flight, &plan.groups);
	send_all(flight, &plan.behind);
	fault_leave_library(&saved);
}

/*
 * Answer the stats that this one stands for right behind it.  If it has not
 * found a node of our session, they are sent themselves.
 */
static void
answer_sharers(Flight *flight, Operation *op)
{
	bool		shared = op->answer.error == ZOK &&
		client_is_ours(flight->client, op->answer.ephemeral_owner);
	Operation  *first = op->sharer;
	Operation  *last = op;

	while (last->sharer != NULL)
	{
		Operation  *sharer = last->sharer;

		sharer->answer = op->answer;
		if (!shared)
			sharer->answer.error = OPERATION_NOT_SHARED;
		last->event.next = &sharer->event;
		last->sharer = NULL;
		last = sharer;
	}
	if (first)
		client_put_back(&first->event, &last->event);
}

/*
 * The size of the next batch with this operation, now that its batch has
 * failed.
 */
static int
next_piece(const Operation *op)
{
	int			failed = op->failed;

	if (failed < 0)
		return 1;
	if (op->place < failed)
		return GOOD_PIECE;
	if (op->piece == 0)
		return UNKNOWN_PIECE;
	return Max(failed + 1, (op->place_count + MAX_PIECES - 1) / MAX_PIECES);
}

/*
 * Is this to be sent again?  If a batch has failed, all that its owners have
 * in it and behind it is, except groups.
 */
static bool
must_resend(Flight *flight, Operation *op)
{
	FlightOwner *owner;

	if (op->answer.error == CLIENT_BATCH_FAILED)
	{
		flight->batch_failed = true;
		op->piece = next_piece(op);
	}
	if (!flight->batch_failed || op->request.group != 0)
		return false;
	owner = flying_lookup(flight->flying, op->owner);
	if (owner && op->answer.error == CLIENT_BATCH_FAILED)
		owner->put_back = true;
	if (ZK_MUTATED(ZK_READS_NOT_AGAIN))
		return op->answer.error == CLIENT_BATCH_FAILED;
	return owner && owner->put_back;
}

/*
 * This answers what was sent behind a write that is sent again: does it show
 * what would become of the write?  If the directory of a create is missing,
 * returns the create, to be answered so first; this one follows.
 */
static Operation *
known_to_fail(Flight *flight, Operation *op)
{
	FlightOwner *owner = flying_lookup(flight->flying, op->owner);
	Operation  *write = owner->write;

	if (op->request.kind != REQUEST_CHILDREN || write == NULL ||
		write->request.kind != REQUEST_CREATE ||
		!operation_is_in(write, op->path))
		return NULL;
	if (op->answer.error == ZOK && write->piece == UNKNOWN_PIECE)
		write->piece = GOOD_PIECE;

	/* a failed write is a proof, so the server must have received it */
	if (op->answer.error != ZNONODE || write->piece != UNKNOWN_PIECE)
		return NULL;
	owner->put_back = false;
	owner->write = NULL;
	write->answer.error = op->answer.error;
	client_put_back(&op->event, &op->event);
	return write;
}

/* Send an operation again, in the next flight. */
static void
send_again(Flight *flight, Operation *op)
{
	flying_lookup(flight->flying, op->owner)->write =
		op->answer.error == CLIENT_BATCH_FAILED ? op : NULL;
	operation_reset(op, &flight->watches);
	dlist_delete(&op->node);
	dlist_push_tail(&flight->again, &op->node);
}

/*
 * The deletion of an orphan has an unknown result, and no owner that would
 * repeat it.
 */
static bool
is_lost_orphan(const Operation *op)
{
	return op->request.kind == REQUEST_DELETE_ORPHAN &&
		op->answer.error != ZSESSIONEXPIRED && op->answer.error != ZCLOSING &&
		operation_result(op) == REQUEST_UNKNOWN;
}

/*
 * A create whose batch has failed would itself have failed if its directory
 * has been deleted.  The server has processed it.
 */
static void
answer_without_directory(Operation *op)
{
	if (op->directory_deleted && op->answer.error == CLIENT_BATCH_FAILED &&
		op->failed >= 0)
		op->answer.error = ZNONODE;
}

/*
 * Take an answer.  Returns the operation to be answered now; or NULL: the
 * answered one is sent again.
 */
static Operation *
take_answer(Flight *flight, Operation *op)
{
	operation_note_watch(op, &flight->watches);
	if (is_lost_orphan(op))
	{
		flight_hold_back(flight);
		send_again(flight, op);
		return NULL;
	}
	answer_without_directory(op);
	if (must_resend(flight, op))
	{
		Operation  *write = known_to_fail(flight, op);

		if (write == NULL)
		{
			send_again(flight, op);
			return NULL;
		}
		op = write;
	}
	answer_sharers(flight, op);
	return op;
}

/* Does an owner wait for this answer? */
static bool
is_awaited(const Flight *flight, const Operation *op)
{
	/* the session ended, on which the library must agree */
	if ((op->answer.error == ZSESSIONEXPIRED || op->answer.error == ZCLOSING) &&
		is_unrecoverable(flight->client->handle))
		return false;
	return op->owner != NOBODY && op->request.kind != REQUEST_DELETE_ORPHAN &&
		op->request.kind != REQUEST_UNWATCH;
}

/* Call the handler of an owner, if it is still there. */
static void
tell_owner(Flight *flight, uint32 id, const RequestAnswer *answer)
{
	Owner	   *owner = hash_search(flight->owners, &id, HASH_FIND, NULL);

	if (owner)
		owner->handler(owner->data, answer);
}

/*
 * Deliver an answer.  If the result is unknown, the next flight is delayed,
 * unless another operation of the group failed.
 */
static void
deliver_answer(Flight *flight, Operation *op)
{
	flight->proved(op);
	if (is_awaited(flight, op))
	{
		int			code = op->answer.error;

		complete_answer(op);
		if (op->answer.result == REQUEST_UNKNOWN &&
			code != OPERATION_NOT_SHARED &&
			!(op->request.group != 0 && code == ZRUNTIMEINCONSISTENCY))
			flight_hold_back(flight);
		tell_owner(flight, op->owner, &op->answer);
	}
	forget(op);
}

/* Tell owners that their watches have fired. */
static void
tell_watchers(Flight *flight)
{
	dlist_head *fired = &flight->watches.fired;

	while (!dlist_is_empty(fired))
	{
		Watcher    *watcher = dlist_container(Watcher, node,
											  dlist_pop_head_node(fired));
		RequestAnswer answer = {
			.event = flight->watches.fired_deleted ?
			REQUEST_NODE_DELETED : REQUEST_NODE_TOUCHED,
			.serial = watcher->serial
		};
		uint32		owner = watcher->owner;

		pfree(watcher);
		tell_owner(flight, owner, &answer);
	}
}

/*
 * flight_next_event
 *		Deliver answers, and watches that have fired, to their owners, up to
 *		the next other event of the client or the library, or NULL.
 *
 * The caller frees that event.  A handler may close the session as its last
 * action.  Errors: as for client_check(); those of handlers.
 */
ClientEvent *
flight_next_event(Flight *flight)
{
	for (;;)
	{
		ClientEvent *event;
		Operation  *op;

		client_check();
		tell_watchers(flight);
		event = client_next_message();
		if (event == NULL)
			event = client_next_event(flight->client);
		if (event == NULL)
			return NULL;
		if (event->kind == CLIENT_EVENT_ANSWER)
		{
			op = take_answer(flight, (Operation *) event);
			if (op)
				deliver_answer(flight, op);
		}
		else if (event->kind == CLIENT_EVENT_WATCH)
		{
			fire(&flight->watches, event->string, event->code);
			client_free_notice(event);
		}
		else
			return event;
	}
}
