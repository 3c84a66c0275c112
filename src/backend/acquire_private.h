/*-------------------------------------------------------------------------
 *
 * acquire_private.h
 *		A call that takes locks, and its wait: for acquire.c and acquire_any.c.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/acquire_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_PRIVATE_H
#define ZKLOCK_ACQUIRE_PRIVATE_H

#include "backend/acquire.h"
#include "backend/holds.h"
#include "shared/take.h"

/*
 * How long to wait for a change of a slot, in ms: then readers look again
 * whether a writer still waits behind the others.
 */
#define RECHECK_MS			1000

/* How long to wait before checking again that the session is proved, in ms. */
#define UNPROVED_RECHECK_MS	10

/* The wait of a call, through both tiers. */
typedef struct SlotWait
{
	ZkResult   *result;			/* with the name of the lock waited for */
	bool		immediate;		/* wait behind no one */
	bool		try;			/* a timeout is no error */
	const HeldLock *tier1;		/* the lock whose heavyweight lock we wait
								 * for; or NULL */
	int64		deadline;		/* as of zk_now_ms(), or -1 */
	int64		called_us;		/* as of zk_now_us() */
	int64		called_ms;		/* as of zk_now_ms() */
	const char *queued_name;	/* of the last lock with "queued"; or NULL */

	/* of the present lock, if there are several */
	int64		began_us;		/* as of zk_now_us() */
	bool		queued;			/* a backend or contender was ahead of us
								 * ... */
	bool		in_queue;		/* ... in ZooKeeper: we have a place there */
	bool		asked;			/* the instance did not own it */
	int64		no_session_since;	/* as of zk_now_ms(), or 0 */
	int64		started;		/* start of the second tier, as of
								 * zk_now_ms(); or 0 */
	bool		logged;			/* for log_lock_waits */
	ZkSlot	   *prepared;		/* whose condition variable we wait for */
	uint32		ticket;			/* of proof_ask(), or 0 */
} SlotWait;

/* the wait */
extern void waiting_begin(SlotWait *wait, const ZkRequest *request,
						  ZkResult *result);
extern int64 waiting_timeout(SlotWait *wait);
extern ZkOutcome waiting_for_room(SlotWait *wait);
extern bool waiting_for_claim(const HeldLock *lock);
extern void waiting_fail(const SlotWait *wait, ZkOutcome outcome);

/* the call */
extern void acquire_begin(void);
extern void acquire_count(const SlotWait *wait, const HeldLock *lock);
extern void acquire_taken(SlotWait *wait, const HeldLock *lock);
extern void acquire_end(const ZkRequest *request, const SlotWait *wait,
						const HeldLock *lock);
extern void acquire_for_session(HeldLock **locks, int nlocks);

#endif							/* ZKLOCK_ACQUIRE_PRIVATE_H */
