/*-------------------------------------------------------------------------
 *
 * slots.h
 *		The locks of this cluster in shared memory: slots, states, locks.
 *
 * The types that both wings use.  Backends do the rest by take.h, the worker by
 * grant.h.  See slots.c for the states and the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slots.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOTS_H
#define ZKLOCK_SLOTS_H

#include "core/lock/turn.h"
#include "core/lock/znode.h"
#include "lib/ilist.h"
#include "shared/key.h"
#include "shared/procs.h"
#include "shared/refusal.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

/* The most locks that are taken together, by one request to ZooKeeper. */
#define ZK_MAX_TOGETHER		500

typedef enum ZkSlotState
{
	ZK_SLOT_NONE,				/* the cluster has and wants nothing */
	ZK_SLOT_WANTED,				/* asked of the worker */
	ZK_SLOT_IDLE,				/* owned by the cluster, held by no backend */
	ZK_SLOT_HELD,				/* owned by the cluster, held by backends */
	ZK_SLOT_RELEASING			/* being given up; nobody may take it */
} ZkSlotState;

/* What the worker keeps in ZooKeeper for a slot, or is asked to. */
typedef struct ZkContender
{
	uint32		group;			/* to be created in one step with others of
								 * the same number, or 0 */
	int			permits;		/* of a semaphore, or 0 */
	int			asker_pid;		/* of the backend that asked for it */
	int32		sequence;
	uint8		uuid[ZNODE_UUID_BYTES];
	uint8		kind;			/* ZnodeKind */
	uint8		session;		/* number of the session that it is in; the
								 * last one's, until it is begun */
	bool		has_uuid;
	bool		has_sequence;
	bool		requeued;		/* its node is the one of this number, or has
								 * this UUID and another number */
	bool		retain;			/* its znode says that it may be idle */
	bool		tells_waits;	/* its znode may tell of waits that keep it */
} ZkContender;

/*
 * There may be many of these, so they are kept small.  Times are in
 * microseconds, as of zk_now_us().
 */
typedef struct ZkSlot
{
	ZkKey		key;			/* hash key, must be first */
	uint8		state;			/* ZkSlotState */
	uint8		refusal;		/* ZkRefusal: news for the waiter that asked */
	uint8		token_refusal;	/* ZkRefusal: why there is no token */
	bool		queued;			/* WANTED, RELEASING: may take long */
	bool		reserved;		/* for a backend that takes several together */
	bool		asked;			/* a backend waits for a contender */
	uint8		asked_kind;		/* ZnodeKind of the contender that is asked for */
	bool		mailed;			/* in the worker's mail */
	bool		check_wanted;	/* see ZK_MAIL_CHECK_WRITERS */
	bool		writer_behind;	/* seen at checked_at, behind our readers */
	bool		has_victim;		/* a waiter may have a "victim_of" */
	int			asked_permits;	/* ... of a semaphore, or 0 */
	int			asker_pid;		/* of the latest backend that asked */
	int			permits_found;	/* of ZK_REFUSAL_PERMITS */
	ZkContender contender;		/* in any state but NONE */
	int64		token;			/* czxid, or 0 while not known */
	ConditionVariable cv;		/* broadcast at every change for a waiter */

	/* the backends, in the order in which they came */
	int			nwanting;
	int			nholding;		/* without those that have lost it */
	int			nany;			/* those that want any of several slots */
	ZkProcLock *procs;
	ZkProcLock **procs_end;		/* the last "next" */

	/* fairness to contenders of others */
	Turn		turn;			/* in us as of zk_now_us() */
	int64		checked_at;		/* when we checked for writers behind us */
	int64		check_start;	/* of the check under way, or 0 */

	slist_node	mail_node;
} ZkSlot;

/* module load */
extern void slots_request_shmem(void);
extern void slots_startup_shmem(void);
extern bool slots_available(void);

/* any process; takes the partition lock itself */
extern ZkSlotState slot_find_contender(const ZkKey *key,
									   ZkContender *contender);
extern ZkSlotState slot_read_contender(ZkSlot *slot, ZkContender *contender);

#endif							/* ZKLOCK_SLOTS_H */
