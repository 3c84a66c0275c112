/*-------------------------------------------------------------------------
 *
 * watches.c
 *		Who watches which znodes.
 *
 * The library has one watch for each path and type, however often it is set.
 * The types are those of the request that sets the watch: ZWATCHTYPE_DATA for
 * a get, ZWATCHTYPE_CHILD for a list of children.  (A watch of a missing node
 * is never set.)  This file keeps the owners that have set a watch; when it
 * fires, each of them is told.  A watch fires once: at the deletion of its
 * node, or at a change of what its type is about.
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

/* A session begins; its chroot has this length.  No watch is set. */
void
watches_begin(Watches *watches, Size chroot_len)
{
	watches->chroot_len = chroot_len;
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

/* Forget a watch, and let the owners that have set it be told. */
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
 * The latest "serial" of an owner counts; watches_next() returns it.
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
 *		The watch that "owner" requested was set.
 *
 * So the library has it, even if it has been forgotten here because an earlier
 * one fired, or the connection was lost.
 */
void
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
void
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

/* The server and the library have removed the watch of a path. */
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
 *		The connection is lost: make the library forget, so that it does not
 *		set them again, the watches that end with the connection and those
 *		being removed.
 *
 * A watch whose request is out may still come: if the library had no
 * connection by then, it sends the request on the next one.
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

/* The types of watches that the library uses up for an event. */
static ZooWatcherType
types_of_event(int event)
{
	if (event == ZOO_DELETED_EVENT || ZK_MUTATED(ZK_WATCHES_OF_ONE_TYPE))
		return ZWATCHTYPE_ANY;
	return event == ZOO_CHILD_EVENT ? ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA;
}

/*
 * watches_fire
 *		The watches of a path that an event of the library uses up have
 *		fired.
 *
 * To be called only when watches_next() has returned false.
 */
void
watches_fire(Watches *watches, const char *path, int event)
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
