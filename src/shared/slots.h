/*-------------------------------------------------------------------------
 *
 * slots.h
 *		The locks of this instance in shared memory: slots, states, locks.
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

#include "core/lock/znode.h"
#include "shared/key.h"
#include "shared/outcome.h"
#include "storage/condition_variable.h"

/* The most locks that are taken together, by one request to ZooKeeper. */
#define ZK_MAX_TOGETHER		500

typedef enum ZkSlotState
{
	ZK_SLOT_NONE,				/* the instance has and wants nothing */
	ZK_SLOT_WANTED,				/* asked of the worker */
	ZK_SLOT_IDLE,				/* owned by the instance, held by no backend */
	ZK_SLOT_HELD,				/* owned by the instance, held by backends */
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

/* See slots_private.h. */
typedef struct ZkSlot ZkSlot;

/* module load */
extern void slots_request_shmem(void);
extern void slots_startup_shmem(void);
extern bool slots_available(void);

/* of a slot in use, without its partition lock */
extern const ZkKey *slot_key(const ZkSlot *slot);
extern ConditionVariable *slot_cv(ZkSlot *slot);

/* any process; takes the partition lock itself */
extern ZkSlotState slot_find_contender(const ZkKey *key,
									   ZkContender *contender);
extern ZkSlotState slot_read_contender(ZkSlot *slot, ZkContender *contender);

#endif							/* ZKLOCK_SLOTS_H */
