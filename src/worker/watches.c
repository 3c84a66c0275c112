/*-------------------------------------------------------------------------
 *
 * watches.c
 *		Who watches which znodes.
 *
 * The library has one watch for each path, however often it is set.  So this
 * file keeps the owners that have set it, and when it fires each of them is
 * told, one after the other.  A watch is used up when it fires.
 *
 * When the library reconnects, it sets all watches again, in one request.
 * watches_bound() keeps that request shorter than what a server takes.
 *
 * Everything here runs in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/watches.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/memutils.h"
#include "worker/fault.h"
#include "worker/watches.h"

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
	uint32_t	serial;
} Watcher;

/* The watch of a znode. */
typedef struct Watch
{
	char	   *path;			/* hash key, must be first; palloc'd */
	dlist_head	watchers;		/* one for each owner */
} Watch;

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
	ctl.keysize = sizeof(char *);
	ctl.entrysize = sizeof(Watch);
	ctl.hash = hash_path;
	ctl.match = match_path;
	ctl.hcxt = context;
	watches->by_path =
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
find_watch(Watches *watches, const char *path)
{
	return hash_search(watches->by_path, &path, HASH_FIND, NULL);
}

static Watch *
make_watch(Watches *watches, const char *path)
{
	bool		found;
	Watch	   *watch = hash_search(watches->by_path, &path, HASH_ENTER,
									&found);

	if (!found)
	{
		watch->path = MemoryContextStrdup(watches->context, path);
		dlist_init(&watch->watchers);
		watches->bytes += watch_bytes(watches, path);
	}
	return watch;
}

static void
drop_watch(Watches *watches, Watch *watch)
{
	char	   *path = watch->path;

	watches->bytes -= watch_bytes(watches, path);
	hash_search(watches->by_path, &path, HASH_REMOVE, NULL);
	pfree(path);
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

/* Forget a watcher, and its watch if no other owner has set it: then true. */
static bool
forget_watcher(Watches *watches, Watch *watch, Watcher *watcher)
{
	dlist_delete(&watcher->node);
	pfree(watcher);
	if (!dlist_is_empty(&watch->watchers))
		return false;
	drop_watch(watches, watch);
	return true;
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

	hash_seq_init(&scan, watches->by_path);
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
 *		"owner" is about to watch a path.
 *
 * Of one owner the latest "serial" counts; watches_next() hands it back.
 */
void
watches_add(Watches *watches, const char *path, uint32_t owner,
			uint32_t serial)
{
	Watch	   *watch = make_watch(watches, path);
	Watcher    *watcher = find_watcher(watch, owner);

	if (watcher == NULL)
	{
		watcher = MemoryContextAlloc(watches->context, sizeof(Watcher));
		watcher->owner = owner;
		dlist_push_tail(&watch->watchers, &watcher->node);
	}
	watcher->serial = serial;
}

/*
 * watches_forget
 *		The watch that "owner" asked for with this "serial" was not set.
 */
void
watches_forget(Watches *watches, const char *path, uint32_t owner,
			   uint32_t serial)
{
	Watch	   *watch = find_watch(watches, path);
	Watcher    *watcher = watch ? find_watcher(watch, owner) : NULL;

	if (watcher && watcher->serial == serial)
		(void) forget_watcher(watches, watch, watcher);
}

/*
 * watches_remove
 *		"owner" no longer watches a path.
 *
 * Returns true if the caller must have the server remove the watch, or false:
 * other owners go on watching, or it has fired.
 */
bool
watches_remove(Watches *watches, const char *path, uint32_t owner)
{
	Watch	   *watch = find_watch(watches, path);
	Watcher    *watcher = watch ? find_watcher(watch, owner) : NULL;

	return watcher && forget_watcher(watches, watch, watcher);
}

/*
 * watches_drop
 *		The connection is lost, and with it all that "owner" watches: have
 *		the library forget it, so that it is not set again.
 *
 * The library's call is the same as in watches_bound().
 */
void
watches_drop(Watches *watches, uint32_t owner)
{
	Watch	   *watch;
	HASH_SEQ_STATUS scan;
	sigset_t	saved;

	fault_enter_library(&saved);
	hash_seq_init(&scan, watches->by_path);
	while ((watch = hash_seq_search(&scan)) != NULL)
	{
		Watcher    *watcher = find_watcher(watch, owner);

		if (watcher == NULL)
			continue;
		if (dlist_has_next(&watch->watchers, dlist_head_node(&watch->watchers)))
		{
			(void) forget_watcher(watches, watch, watcher);
			continue;
		}
		zoo_remove_all_watches(watches->client->handle, watch->path,
							   ZWATCHTYPE_ANY, 1);
		(void) forget_watcher(watches, watch, watcher);
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
 *
 * The library's call is a synchronous one, but to remove watches locally it
 * waits for no server.  (Its asynchronous sibling then takes its own argument
 * for that of a synchronous one.)
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
	hash_seq_init(&scan, watches->by_path);
	while ((watch = hash_seq_search(&scan)) != NULL)
		zoo_remove_all_watches(watches->client->handle, watch->path,
							   ZWATCHTYPE_ANY, 1);
	fault_leave_library(&saved);
	watches->fired_deleted = false;
	fire_all_watches(watches);
}

/*
 * watches_fire
 *		The watch of a path has fired, since its node was deleted or for any
 *		other reason.
 *
 * To be called only when watches_next() has nothing left.
 */
void
watches_fire(Watches *watches, const char *path, bool deleted)
{
	Watch	   *watch = find_watch(watches, path);

	watches->fired_deleted = deleted;
	if (watch)
		fire_watch(watches, watch);
}

/*
 * watches_next
 *		The next owner to be told that its watch has fired.
 *
 * Sets *owner and, in *input, the event and the serial.  Returns false if
 * there is none.
 */
bool
watches_next(Watches *watches, uint32_t *owner, RecipeInput *input)
{
	Watcher    *watcher;

	if (dlist_is_empty(&watches->fired))
		return false;
	watcher = dlist_container(Watcher, node,
							  dlist_pop_head_node(&watches->fired));
	memset(input, 0, sizeof(*input));
	*owner = watcher->owner;
	input->event = watches->fired_deleted ?
		RECIPE_NODE_DELETED : RECIPE_NODE_TOUCHED;
	input->serial = watcher->serial;
	pfree(watcher);
	return true;
}
