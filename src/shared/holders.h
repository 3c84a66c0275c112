/*-------------------------------------------------------------------------
 *
 * holders.h
 *		Which backends hold slots, or wait for them: for views, for canceling
 *		them, and for finding deadlocks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/holders.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLDERS_H
#define ZKLOCK_HOLDERS_H

#include "core/lock/turn.h"
#include "datatype/timestamp.h"
#include "shared/slots.h"

/* One hold or wait, as the view zk_locks shows it. */
typedef struct ZkLockRow
{
	ZkKey		key;			/* its root may be another one by now */
	char		path[ZNODE_PATH_SIZE];	/* of the lock directory */
	int			pid;			/* or 0, of a claim */
	ZnodeKind	kind;
	bool		session;
	bool		claim;
	bool		granted;
	bool		lost;
	TimestampTz since;
	int64		token;
} ZkLockRow;

/*
 * A wait for nothing but a slot.  The pid and "since" together identify one
 * wait for the slot.
 */
typedef struct ZkWait
{
	ZkSlot	   *slot;
	int			pid;
	ZnodeKind	kind;			/* of the contender that it needs */
	int64		since;			/* as of zk_now_us(); in tier 1, too */
	TimestampTz xact_start;		/* of the transaction that waits */
	ZkSlotState state;			/* see slots_waits() */
	ZkContender contender;
	LOCKTAG		tag;			/* of the slot's heavyweight lock */
} ZkWait;

/*
 * A hold of a slot.  The pid and "since" together identify one hold of the
 * slot.
 */
typedef struct ZkHold
{
	ZkSlot	   *slot;
	int			pid;
	int64		since;			/* as of zk_now_us() */
	TurnBehind	behind;			/* what is known of others */
	ZkContender contender;
} ZkHold;

extern int	compare_pids(const void *a, const void *b);
extern ZkWait *slots_waits(int *nwaits);
extern ZkHold *slots_holds_of(const int *pids, int npids, int *nholds);
extern ZkLockRow *slots_snapshot(int *nrows);
extern int *slots_holders(const ZkKey *lock, int *npids);
extern int	slots_cancel_holders(const ZkKey *lock, const int *pids,
								 int npids);

#endif							/* ZKLOCK_HOLDERS_H */
