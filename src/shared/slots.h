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
#include "datatype/timestamp.h"
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
	ZkSlotUse	use;
} ZkContender;

/* The most generations that slots_collect_ends() returns. */
#define SLOTS_MAX_ENDS		256

/* See slots_private.h. */
typedef struct ZkSlot ZkSlot;

/* In place of a deadlock's number: the victim requeues in tier 1. */
#define ZK_VICTIM_REQUEUES	PG_UINT32_MAX

/*
 * What one backend or claim wants or holds of a slot, as a PROCLOCK is for the
 * lock manager.  Kept small, since there may be many.  "committing" and
 * "watched", which alone may change under a shared lock, have a byte each.
 */
typedef struct ZkProcLock
{
	struct ZkSlot *slot;
	struct ZkProcLock *next;	/* of the same slot, or of the free list */
	int			procno;			/* number of its PGPROC */
	bool		granted;		/* holds the slot; else wants it */
	bool		lost;			/* granted, but the contender is gone */
	bool		committing;		/* past the commit check: not to be canceled */
	bool		watched;		/* a scan for deadlocks has seen it: the worker
								 * hears when it ends (slot_end_watch()) */
	uint8		kind;			/* ZnodeKind of the contender that it wanted */
	bool		asked:1;		/* has asked for a contender */
	bool		ready:1;		/* has the heavyweight lock, and only waits
								 * for the slot */
	bool		session:1;		/* has a session-scoped hold */
	bool		provisional:1;	/* of a call that has not got all its locks
								 * yet, and begins again when it loses one */
	bool		tries:1;		/* wants any of several, but waits behind no
								 * one */
	bool		terminates:1;	/* the session ends if it loses its
								 * session-scoped hold */
	bool		advisory:1;		/* the lock stands for an advisory lock of its
								 * database */
	bool		superuser:1;	/* of a superuser's session */
	bool		is_claim:1;		/* granted: of a claim, not of a process */
	bool		uses_claim:1;	/* granted: beside a claim, or one that was */
	bool		retaken:1;		/* granted: it found the slot retained */
	uint16		alternatives:9; /* not granted: number of slots of which it
								 * wants any; 0: this very one */
	uint32		victim_of;		/* number of the deadlock that ends the wait,
								 * or 0, or ZK_VICTIM_REQUEUES */
	int64		since;			/* start of the want or hold, as of
								 * zk_now_us() */
	TimestampTz xact_start;		/* start of the transaction that wanted it; of
								 * a claim, its number */
} ZkProcLock;

/* module load */
extern void slots_request_shmem(void);
extern void slots_startup_shmem(void);
extern bool slots_available(void);

/* for a slot in use, without its partition lock */
extern const ZkKey *slot_key(const ZkSlot *slot);
extern ConditionVariable *slot_cv(ZkSlot *slot);

/* backends, before they want a lock */
extern void procs_note_role(void);

/* what is in use, and to wait for a free slot */
extern int	slots_in_use(void);
extern int	procs_in_use(void);
extern ConditionVariable *slots_room_cv(void);

/* any process; takes the partition lock itself */
extern ZkSlotState slot_read_other_mode(const ZkSlot *slot,
										ZkContender *contender);
extern ZkSlotState slot_read_contender(ZkSlot *slot, ZkContender *contender);

/* the worker, as grant.h */
extern void slots_hold_mail(bool held);
extern ZkSlot *slots_collect_mail(void);
extern int	slots_collect_ends(int64 *ends, bool *all);
extern bool procs_remote_seen(void);

#endif							/* ZKLOCK_SLOTS_H */
