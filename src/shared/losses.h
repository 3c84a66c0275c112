/*-------------------------------------------------------------------------
 *
 * losses.h
 *		Which sessions must be notified that they have lost a lock.
 *
 * See losses.c for the protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/losses.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOSSES_H
#define ZKLOCK_LOSSES_H

#include "shared/slots.h"

/* The channel of NOTIFY. */
#define ZK_LOSS_CHANNEL		"zklock_lost"

/* A session-scoped hold that has been lost. */
typedef struct ZkLoss
{
	ZkKey		key;			/* its root may be another one by now */
	int			number;			/* of the ZkProcLock, for proc_at() */
	int			pid;
	int64		since;			/* start of the hold, as of zk_now_us() */
} ZkLoss;

/* the worker */
extern uint32 losses_count(void);
extern Oid *losses_databases(int *ndatabases);
extern void losses_forget(void);

/* the process that sends a database's notices */
extern ZkLoss *losses_of(Oid database, int *nlosses);
extern void losses_set_told(const ZkLoss *losses, int nlosses);

#endif							/* ZKLOCK_LOSSES_H */
