/*-------------------------------------------------------------------------
 *
 * claims.h
 *		Locks that belong to the holder of a token.
 *
 * See claims.c for what a claim is, and for who guards it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/claims.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLAIMS_H
#define ZKLOCK_CLAIMS_H

#include "core/lock/claim.h"
#include "datatype/timestamp.h"
#include "shared/slots.h"

/* What a token stands for. */
typedef enum ZkClaimState
{
	ZK_CLAIM_ENDED,				/* nothing, or nothing any more */
	ZK_CLAIM_RESERVED,			/* a hold of this process, which becomes a
								 * claim when its transaction commits */
	ZK_CLAIM_LIVE,
	ZK_CLAIM_UNPROVED			/* live, if the session has not ended */
} ZkClaimState;

/* A claim, as the view zk_claims shows it. */
typedef struct ZkClaimRow
{
	ZkKey		key;			/* its root may be another one by now */
	char		path[ZNODE_PATH_SIZE];	/* of the lock directory */
	int64		ttl_us;
	TimestampTz began;
	TimestampTz renewed;
	TimestampTz ends;
	int			users;			/* transactions that use it */
	int64		fencing_token;	/* or 0 */
	Oid			role;			/* that had logged in */
} ZkClaimRow;

/* A claim that the worker has ended, for the log. */
typedef struct ZkEndedClaim
{
	char		path[ZNODE_PATH_SIZE];
	bool		lost;			/* with its session; else its ttl was over */
} ZkEndedClaim;

/* module load */
extern void claims_request_shmem(void);
extern void claims_startup_shmem(void);

/* any process */
extern const char *claims_instance(void);
extern int	claims_count(void);
extern ZkClaimRow *claims_snapshot(int *nrows);

/* backends: claims that are to begin at COMMIT */
extern bool claims_have_room(Oid role, int most);
extern int	claim_reserve(const ClaimToken *token, int64 ttl_us, Oid role,
						  int most);
extern void claim_cancel(int number);
extern void claim_begin(int number, ZkProcLock *proc, int64 now);

/* backends: those that a token stands for */
extern ZkClaimState claim_find(const ClaimToken *token, ZkKey *key,
							   int *number);
extern ZkClaimState claim_renew(const ClaimToken *token, int64 ttl_us,
								int64 *end_ms, int *number);
extern ZkProcLock *claim_use(const ClaimToken *token, bool *full);
extern void claim_leave(ZkProcLock *proc, bool end);
extern bool claim_end(const ClaimToken *token);

/* backends: those in the way */
extern bool claim_has_users(const ZkKey *lock);
extern bool claim_is_in_way(const ZkKey *lock);
extern bool claim_holds(const ZkKey *lock);
extern bool claim_end_of(const ZkKey *lock);
extern int	claims_end_of_role(Oid role);

/* the worker */
extern int64 claims_due_ms(void);
extern int	claims_end_due(ZkEndedClaim *ended, int room);

/* the worker, within the locks of the slots */
extern bool claim_end_of_slot(ZkSlot *slot, int64 now);

#endif							/* ZKLOCK_CLAIMS_H */
