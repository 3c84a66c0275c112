/*-------------------------------------------------------------------------
 *
 * slots.h
 *		The locks of this instance in shared memory: slots, states, locks.
 *
 * The types that both wings use; functions for backends are in take.h, those
 * for the worker in grant.h.  See slots.c for the states and the locking
 * protocol.
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

/* The most names of one call of zk_lock_all() or zk_lock_any(). */
#define ZK_MAX_NAMES		500

typedef enum ZkSlotState
{
	ZK_SLOT_NONE,				/* the instance has and wants nothing */
	ZK_SLOT_WANTED,				/* asked of the worker */
	ZK_SLOT_IDLE,				/* owned by the instance, held by no backend */
	ZK_SLOT_HELD,				/* owned by the instance, held by backends */
	ZK_SLOT_RELEASING			/* being given up; nobody may take it */
} ZkSlotState;

/* What the worker keeps in ZooKeeper for a slot, or is asked to keep. */
typedef struct ZkContender
{
	int			permits;		/* a semaphore's permits, or 0 */
	int			asker_pid;		/* of the backend that asked for it */
	int32		sequence;
	int32		retain_ms;		/* how long the slot may be retained, as its
								 * znode says by retain=yes, or 0 */
	uint8		uuid[ZNODE_UUID_BYTES];
	uint8		kind;			/* ZnodeKind */
	bool		has_uuid:1;
	bool		has_sequence:1;
	bool		requeued:1;		/* its node has this sequence number, or this
								 * UUID and another number */
	bool		for_any:1;		/* asked for by a backend that wants any of
								 * several locks */
} ZkContender;

/* How backends have used what the instance owned by a contender. */
typedef struct ZkSlotUse
{
	int64		dropped_at;		/* when the last holder gave it back, as of
								 * zk_now_us() */
	uint16		retaken;		/* takes that found it retained, or the most
								 * that there is room for */
	bool		revoked;		/* given up while it was, since others had
								 * come */
} ZkSlotUse;

/* The most generations of waits and holds that slots_collect_ends() returns. */
#define SLOTS_MAX_ENDS		256

/* See slots_private.h. */
typedef struct ZkSlot ZkSlot;

/* module load */
extern void slots_request_shmem(void);
extern void slots_startup_shmem(void);
extern bool slots_available(void);

/* for a slot in use, without its partition lock */
extern const ZkKey *slot_key(const ZkSlot *slot);
extern ConditionVariable *slot_cv(ZkSlot *slot);

/* to wait for a free slot */
extern ConditionVariable *slots_room_cv(void);

/* any process; takes the partition lock itself */
extern ZkSlotState slot_find_contender(const ZkKey *key,
									   ZkContender *contender);
extern ZkSlotState slot_read_contender(ZkSlot *slot, ZkContender *contender);

/* the worker, as grant.h */
extern void slots_detach_worker(void);
extern void slots_hold_mail(bool held);
extern int	slots_collect_ends(int64 *ends, bool *all);

#endif							/* ZKLOCK_SLOTS_H */
