/*-------------------------------------------------------------------------
 *
 * waiting.h
 *		The wait of a call that acquires locks: its time, its end, the log.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/waiting.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAITING_H
#define ZKLOCK_WAITING_H

#include "backend/holds.h"
#include "core/lock/znode.h"
#include "shared/key.h"
#include "shared/refusal.h"
#include "shared/session_info.h"
#include "shared/take.h"

/* No limit but lock_timeout: see acquire_locks(). */
#define ZK_NO_TIMEOUT	(-1)

/*
 * How long to wait for news of a slot, in ms: readers look again whether a
 * writer still waits behind the others.
 */
#define RECHECK_MS			1000

/* How long to wait until looking again whether the session is sure, in ms. */
#define UNPROVED_RECHECK_MS	10

/* Locks that a backend asks for. */
typedef struct ZkRequest
{
	const ZkKey *keys;			/* of holds, each once; sorted, but for
								 * acquire_any() */
	int			nkeys;
	const char *name;			/* what the user calls the first, for messages */
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */
	bool		session;		/* scope: the session, or the transaction */
	bool		try;			/* a timeout is no error */
	int64		timeout;		/* ms, over both tiers; 0 waits behind nobody */
} ZkRequest;

/* What has become of a call. */
typedef enum ZkOutcome
{
	ZK_ACQUIRED,
	ZK_NOT_IN_TIME,				/* or not without waiting, if it must not */
	ZK_NO_SESSION,				/* there was none for too long */
	ZK_DENIED,					/* ZooKeeper refused */
	ZK_DEADLOCKED,				/* with other clusters; this wait was ended */
	ZK_LOST,					/* the lock was held already, and is lost */
	ZK_HELD_SHARED,				/* it is held shared, and wanted exclusive */
	ZK_HELD_OTHER_PERMITS,		/* the semaphore is held with another size */
	ZK_HELD_ALL,				/* there is none that is not held already */
	ZK_NOT_HELD
} ZkOutcome;

/* The outcome, and what an error message about it tells. */
typedef struct ZkResult
{
	ZkOutcome	outcome;
	const char *name;			/* of the lock in question */
	const ZkKey *key;			/* of its hold */
	ZkRefusal	refusal;		/* of ZK_DENIED */
	uint32		deadlock;		/* of ZK_DEADLOCKED: its number */
	int			permits_found;	/* of ZK_HELD_OTHER_PERMITS, and of ZK_DENIED
								 * because of ZK_REFUSAL_PERMITS */
	ZkSessionInfo *session;		/* of ZK_NO_SESSION, palloc'd */
	char	   *outage;			/* of ZK_NOT_IN_TIME: why ZooKeeper is to blame,
								 * palloc'd; NULL if it is not */
} ZkResult;

/* The wait of a call, through both tiers. */
typedef struct SlotWait
{
	ZkResult   *result;			/* with the name of the lock waited for */
	bool		immediate;		/* wait behind nobody */
	const HeldLock *tier1;		/* the lock whose heavyweight lock somebody
								 * else has, while we wait for it; or NULL */
	int64		deadline;		/* of zk_now_ms(), or -1 */
	int64		called_us;		/* of zk_now_us() */
	int64		called_ms;		/* of zk_now_ms() */
	bool		queued;			/* a backend or contender was ahead of us ... */
	bool		in_queue;		/* ... in ZooKeeper: we have a place there */
	bool		asked;			/* the cluster did not own it already */
	int64		no_session_since;	/* of zk_now_ms(), or 0 */
	int64		started;		/* the second tier, of zk_now_ms(); or 0 */
	bool		logged;			/* for log_lock_waits */
	ZkSlot	   *prepared;		/* whose condition variable we wait for */
	uint32		ticket;			/* of proof_ask(), or 0 */
} SlotWait;

extern void waiting_begin(SlotWait *wait, const ZkRequest *request,
						  ZkResult *result);
extern int64 waiting_patience(SlotWait *wait, ZkSlot *slot);
extern void waiting_note_end(ZkResult *result, const HeldLock *lock,
							 ZkTake take, const ZkTakeNews *news);
extern int64 waiting_log(SlotWait *wait, const HeldLock *lock);
extern void waiting_log_end(const SlotWait *wait, const HeldLock *lock);
extern void waiting_error_context(const char *name);
extern char *waiting_describe_outage(const SlotWait *wait);

#endif							/* ZKLOCK_WAITING_H */
