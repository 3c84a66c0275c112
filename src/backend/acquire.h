/*-------------------------------------------------------------------------
 *
 * acquire.h
 *		Taking locks, in two tiers.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/acquire.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_H
#define ZKLOCK_ACQUIRE_H

#include "core/lock/znode.h"
#include "shared/key.h"
#include "shared/refusal.h"
#include "shared/session_info.h"

/* No limit but lock_timeout: see acquire_locks(). */
#define ZK_NO_TIMEOUT	(-1)

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

extern ZkOutcome acquire_locks(const ZkRequest *request, ZkResult *result);
extern ZkOutcome acquire_any(const ZkRequest *request, ZkResult *result);
extern void waiting_error_context(const char *name);

#endif							/* ZKLOCK_ACQUIRE_H */
