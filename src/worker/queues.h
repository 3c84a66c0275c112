/*-------------------------------------------------------------------------
 *
 * queues.h
 *		The queues of PostgreSQL's lock manager, at one moment.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/queues.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUES_H
#define ZKLOCK_QUEUES_H

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

extern Queue *queues_read(int *nqueues);

#endif							/* ZKLOCK_QUEUES_H */
