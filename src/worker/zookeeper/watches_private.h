/*-------------------------------------------------------------------------
 *
 * watches_private.h
 *		Who watches which znodes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/watches_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WATCHES_PRIVATE_H
#define ZKLOCK_WATCHES_PRIVATE_H

#include "core/request.h"
#include "lib/ilist.h"
#include "utils/hsearch.h"
#include "worker/zookeeper/client_private.h"

/* The watches of one session. */
typedef struct Watches
{
	Client	   *client;
	MemoryContext context;
	HTAB	   *by_key;			/* of Watch: set, requested, or being
								 * removed */
	Size		bytes;			/* of the request that would set them again */
	Size		chroot_len;		/* added to each path in that */
	dlist_head	fired;			/* of Watcher: to be reported */
	bool		fired_deleted;	/* of the event being delivered */
} Watches;

extern void watches_init(Watches *watches, Client *client,
						 MemoryContext context);
extern void watches_begin(Watches *watches, Size chroot_len);
extern void watches_forget_all(Watches *watches);
extern void watches_add(Watches *watches, const char *path,
						ZooWatcherType type, uint32_t owner, uint32_t serial,
						bool brief);
extern void watches_note_set(Watches *watches, const char *path,
							 ZooWatcherType type, uint32_t owner);
extern void watches_forget(Watches *watches, const char *path,
						   ZooWatcherType type, uint32_t owner,
						   uint32_t serial);
extern ZooWatcherType watches_remove(Watches *watches, const char *path,
									 uint32_t owner);
extern void watches_removed(Watches *watches, const char *path,
							ZooWatcherType type);
extern void watches_drop(Watches *watches);
extern void watches_bound(Watches *watches);
extern void watches_fire(Watches *watches, const char *path, int event);
extern bool watches_next(Watches *watches, uint32_t *owner,
						 RequestAnswer *answer);

#endif							/* ZKLOCK_WATCHES_PRIVATE_H */
