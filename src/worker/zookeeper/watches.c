/*-------------------------------------------------------------------------
 *
 * watches.c
 *		Who watches which znodes.
 *
 * The library has one watch for each path and type, however often it is set.
 * The types are those of the request that sets the watch: ZWATCHTYPE_DATA is
 * set by a get, ZWATCHTYPE_CHILD by a list of children.  (A watch of a node
 * that does not exist yet is never set.)  This file keeps the owners that have
 * set a watch, and when it fires each of them is told, one after the other.  A
 * watch is used up when it fires: by the deletion of its node, or by a change of
 * what its type is about.
 *
 * When the library reconnects, it sets all watches again, in one request.
 * watches_bound() keeps that request shorter than what a server takes.  So each
 * watch that the library may have must be in here.  A watch without owners is
 * one that is being removed, or that was set too late to be of use: it stays
 * until the server has confirmed that it is removed, it fires, or the connection
 * is lost.
 *
 * Everything here runs in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/watches.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/mutation.h"
#include "utils/memutils.h"
#include "worker/zookeeper/fault_private.h"
#include "worker/zookeeper/watches_private.h"

/*
 * The most that the library may ask the server to watch again, in the one
 * request after it has reconnected.
 */
#define WATCH_BYTES			(256 * 1024)

/* An owner that watches a znode. */
typedef struct Watcher
{
	dlist_node	node;			/* in the Watch, then in "fired" */
	uint32_t	owner;
	uint32_t	serial;			/* of the latest request to set the watch */
	bool		set;			/* one of them has been answered OK */
	bool		brief;			/* it ends with the connection */
} Watcher;

/* Which watch. */
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
} Watch;

static const ZooWatcherType types[] = {ZWATCHTYPE_CHILD, ZWATCHTYPE_DATA};

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

/*
 * watches_init
 *		Make an empty set of watches, which lives in "context".
 */
void
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

/*
 * watches_begin
 *		A session begins whose chroot has so many bytes.  No watch is set.
 */
void
watches_begin(Watches *watches, Size chroot_len)
{
	watches->chroot_len = chroot_len;
}

/* What a path takes in a request: its length, and itself. */
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
 * Have the library forget a watch.  This call is a synchronous one, but to
 * remove watches locally it waits for no server.  (Its asynchronous sibling
 * then takes its own argument for that of a synchronous one.)
 */
static void
remove_from_library(Watches *watches, const Watch *watch)
{
	zoo_remove_all_watches(watches->client->handle, watch->key.path,
						   watch->key.type, 1);
}

/* Forget a watch, and have the owners that have set it told. */
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

/*
 * watches_forget_all
 *		Forget all watches, told or not: their session is over.
 */
void
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
 * Of one owner the latest "serial" counts; watches_next() hands it back.
 */
void
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
 *		The watch that "owner" asked for was set.
 *
 * The library has it now, even if it has been forgotten here meanwhile, because
 * an earlier one fired, or the connection was lost.
 */
void
watches_note_set(Watches *watches, const char *path, ZooWatcherType type,
				 uint32_t owner)
{
	Watcher    *watcher = find_watcher(make_watch(watches, path, type), owner);

	if (watcher)
		watcher->set = true;
}

/*
 * watches_forget
 *		The watch that "owner" asked for with this "serial" was not set.
 *
 * If it had been set before, and has not fired, it is still there.
 */
void
watches_forget(Watches *watches, const char *path, ZooWatcherType type,
			   uint32_t owner, uint32_t serial)
{
	Watch	   *watch = find_watch(watches, path, type);
	Watcher    *watcher = watch ? find_watcher(watch, owner) : NULL;

	if (watcher == NULL || watcher->serial != serial || watcher->set)
		return;
	forget_watcher(watcher);
	if (dlist_is_empty(&watch->watchers))
		drop_watch(watches, watch);
}

/*
 * watches_remove
 *		"owner" no longer watches a path.
 *
 * Returns the type that the caller must have the server remove, to call
 * watches_removed() when it has; or 0: other owners go on watching, or the
 * watch has fired.
 */
ZooWatcherType
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

/*
 * watches_removed
 *		The server and the library have removed the watch of a path.
 */
void
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
 *		The connection is lost, and with it the watches that end with it: have
 *		the library forget them, so that they are not set again; and what was
 *		being removed, likewise.
 */
void
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

			if (watcher->brief)
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
 *		The connection is lost: bound what the library sets again.
 *
 * The library will ask the next server to watch again all that it watches, in
 * one request.  If that would be longer than a server takes, have the library
 * forget all watches before it gets there, and tell their owners that the
 * watches are used up: the owners set them again one by one.  Should the
 * library be faster, the server drops the connection, which calls this again.
 */
void
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

/* The types of watches that the library takes an event to use up. */
static ZooWatcherType
types_of_event(int event)
{
	if (event == ZOO_DELETED_EVENT || ZK_MUTATED(ZK_WATCHES_OF_ONE_TYPE))
		return ZWATCHTYPE_ANY;
	return event == ZOO_CHILD_EVENT ? ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA;
}

/*
 * watches_fire
 *		Watches of a path have fired: those that this event, one of the
 *		library's, uses up.
 *
 * To be called only when watches_next() has nothing left.
 */
void
watches_fire(Watches *watches, const char *path, int event)
{
	ZooWatcherType fired = types_of_event(event);

	watches->fired_deleted = event == ZOO_DELETED_EVENT;
	for (int i = 0; i < (int) lengthof(types); i++)
	{
		Watch	   *watch = fired & types[i] ?
		find_watch(watches, path, types[i]) : NULL;

		if (watch)
			fire_watch(watches, watch);
	}
}

/*
 * watches_next
 *		The next owner to be told that its watch has fired.
 *
 * Sets *owner and, in *answer, the event and the serial.  Returns false if
 * there is none.
 */
bool
watches_next(Watches *watches, uint32_t *owner, RequestAnswer *answer)
{
	Watcher    *watcher;

	if (dlist_is_empty(&watches->fired))
		return false;
	watcher = dlist_container(Watcher, node,
							  dlist_pop_head_node(&watches->fired));
	memset(answer, 0, sizeof(*answer));
	*owner = watcher->owner;
	answer->event = watches->fired_deleted ?
		REQUEST_NODE_DELETED : REQUEST_NODE_TOUCHED;
	answer->serial = watcher->serial;
	pfree(watcher);
	return true;
}
