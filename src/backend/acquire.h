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
#include "shared/take.h"

/* No limit except lock_timeout: see acquire_locks(). */
#define ZK_NO_TIMEOUT	(-1)

/* Locks that a backend asks for. */
typedef struct ZkRequest
{
	const ZkKey *keys;			/* of holds, each once; sorted, except for
								 * acquire_any() */
	int			nkeys;
	const char *name;			/* the user's name of the first, for
								 * messages */
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */
	bool		session;		/* scope: the session, or the transaction */
	bool		try;			/* a timeout is no error */
	int64		timeout;		/* ms, over both tiers; 0 waits behind
								 * nobody */
} ZkRequest;

extern void acquire_begin(void);
extern ZkOutcome acquire_locks(const ZkRequest *request, ZkResult *result);
extern ZkOutcome acquire_any(const ZkRequest *request, ZkResult *result);
extern void waiting_error_context(void *name);
extern void permits_report(const char *name, int permits, int permits_found);

#endif							/* ZKLOCK_ACQUIRE_H */
