/*-------------------------------------------------------------------------
 *
 * contender.h
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/contender.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "core/lock/note.h"
#include "core/lock/permit.h"
#include "core/lock/recipe.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "shared/slots.h"

/* The path of a znode in a lock directory. */
#define CONTENDER_PATH_SIZE		(ZNODE_PATH_SIZE + 7 + ZNODE_CONTENDER_SIZE)

/* What we keep in ZooKeeper for a slot: a place in a queue, or a permit. */
typedef struct Contender
{
	ZkSlot	   *slot;			/* hash key, must be first */
	uint32		owner;			/* of its requests */
	Recipe	   *recipe;			/* its queue; of a permit, that of the lock, or
								 * when it is granted, that of the permits */
	Permit	   *permit;			/* or NULL: it is for a lock */
	int64		owner_since_ms; /* zk_now_ms(); 0: not the owner */
	int64		answer_due_ms;	/* the same: when the answer of a retained
								 * owner is due, or 0 */
	int64		check_at_ms;	/* the same: when a check is due, or 0 */
	pairingheap_node check_node;	/* in a heap, unless check_at_ms is 0 */
	int			asker_pid;		/* the backend that it was begun for */
	bool		created;		/* the slot has its sequence number */
	bool		has_uuid;
	uint8		uuid[ZNODE_UUID_BYTES];
	char		directory[ZNODE_PATH_SIZE];
	int			place_bytes;	/* room for its node in a queue, */
	int			permit_bytes;	/* and for its permit's node, or 0 */
	int			bytes;			/* room for all that it has, or may have */
	int			leaving;		/* the part whose delete is under way */
	bool		in_doubt;		/* a delete was refused, or its answer lost */
	bool		habitual;		/* its lock is retained by habit */
	bool		revokes;		/* it waits for an owner that may be retained,
								 * whether that has answered in time or not */
	bool		deferred;		/* not begun for want of room, until the end
								 * of the turn */
	dlist_node	deferred_node;	/* in its list, if deferred */
	int64		queued_since_ms;	/* zk_now_ms(): behind others, or with a
									 * writer behind it, for which backends
									 * wait; 0: neither, as far as we know */
	dlist_node	queued_node;	/* in its list, unless
								 * queued_since_ms is 0 */
	uint32		watch_serial;	/* of the watch that it waits for, or 0 */
	int64		watched_ms;		/* zk_now_ms() when that was set, or when it
								 * last looked */
	dlist_node	watching_node;	/* in its list, unless watch_serial
								 * is 0 */
	bool		awaited;		/* a scan waits to learn if it is contended */
} Contender;

/* The kind of its node in ZooKeeper. */
static inline ZnodeKind
contender_kind(const Contender *contender)
{
	return contender->permit ? ZNODE_PERMIT : contender->recipe->kind;
}

/* Does it own its lock, or a permit? */
static inline bool
contender_owns(const Contender *contender)
{
	return contender->recipe->state == RECIPE_OWNER &&
		(!contender->permit || contender->permit->state == PERMIT_OWNER);
}

/* Is it an owner that watches its queue?  Or its own node, for a revocation? */
static inline bool
contender_watches_queue(const Contender *contender)
{
	return contender_owns(contender) && contender->recipe->queue_watch != 0;
}

static inline bool
contender_watches_itself(const Contender *contender)
{
	return contender->recipe->revocation_watch != 0;
}

/* the loop */
extern void contenders_attach(void);
extern void dispatch_open_mail(void (*over) (const int64 *ends, int n,
											 bool all));
extern void dispatch_begin_deferred(void);
extern void contenders_publish(void);
extern void checks_run(void);

/* the session, and the previous worker */
extern int	contenders_count(void);
extern int64 contenders_bytes(void);
extern void contenders_take_over(void);
extern void contenders_expire(void);
extern void contenders_drain(void);
extern void contenders_release(void);
extern void checks_watch_queues(bool connected);

/* deadlocks */
extern Contender *contender_find(ZkSlot *slot);
extern bool contender_is_queued(const Contender *contender);
extern bool contender_keeper(const Contender *contender,
							 char path[CONTENDER_PATH_SIZE]);
extern Contender *contender_first_queued(void);
extern int64 contender_queued_after(int64 at_ms);
extern void step_queue_behind(Contender *contender, RecipeEvent event);

#endif							/* ZKLOCK_CONTENDER_H */
