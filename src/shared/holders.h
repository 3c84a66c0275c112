/*-------------------------------------------------------------------------
 *
 * holders.h
 *		Which backends hold slots, or wait for them: for views, and to cancel
 *		them.
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

#include "datatype/timestamp.h"
#include "shared/slots.h"

/* One hold or wait, as the view zk_locks shows it. */
typedef struct ZkLockRow
{
	ZkKey		key;			/* its root may be another one by now */
	char		path[ZNODE_PATH_SIZE];	/* of the lock directory */
	int			pid;
	ZnodeKind	kind;
	bool		session;
	bool		granted;
	bool		lost;
	TimestampTz since;
	int64		token;
} ZkLockRow;

extern ZkLockRow *slots_snapshot(int *nrows);
extern int *slots_holders(const ZkKey *lock, int *npids);
extern int	slots_cancel_holders(const ZkKey *lock, const int *pids,
								 int npids);
extern void slots_count(int *nslots, int *nprocs);

#endif							/* ZKLOCK_HOLDERS_H */
