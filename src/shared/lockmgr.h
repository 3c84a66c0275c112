/*-------------------------------------------------------------------------
 *
 * lockmgr.h
 *		What PostgreSQL's lock manager has no function for.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/lockmgr.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCKMGR_H
#define ZKLOCK_LOCKMGR_H

#include "datatype/timestamp.h"
#include "storage/lock.h"

/* A process that waits; of a lock group, "pid" is the leader's. */
typedef struct QueueWaiter
{
	int			pid;
	LOCKMODE	mode;
	TimestampTz since;			/* identifies the wait; 0: not noted yet */
} QueueWaiter;

/* A process that has the lock in some modes; likewise. */
typedef struct QueueHolder
{
	int			pid;
	LOCKMASK	modes;
} QueueHolder;

/* A heavyweight lock that somebody waits for. */
typedef struct Queue
{
	LOCKTAG		tag;
	int			nwaiters;
	QueueWaiter *waiters;		/* in the order of the queue */
	int			nholders;
	QueueHolder *holders;
} Queue;

/* the worker */
extern Queue *queues_read(int *nqueues);

/* backends */
extern void ahead_of_waiters(const LOCKTAG *tag, LOCKMODE mode, bool ahead);

#endif							/* ZKLOCK_LOCKMGR_H */
