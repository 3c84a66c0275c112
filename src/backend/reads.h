/*-------------------------------------------------------------------------
 *
 * reads.h
 *		What a backend reads in ZooKeeper, by way of the worker.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/reads.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKEND_READS_H
#define ZKLOCK_BACKEND_READS_H

#include "backend/names.h"
#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "shared/reads.h"

/* What the reads of one call have in common. */
typedef struct Reading
{
	const char *root;			/* below which; "": the worker's own */
	const char *path;			/* what is read, for errors; */
	const ZkLockName *lock;		/* if it is that of a lock; or NULL */
	int64		deadline;		/* as of zk_now_ms(): what cannot be read by
								 * then is no error; -1: none */
	int			elevel;			/* without a deadline: of the report that
								 * there is no session */
	int			max_data;		/* how many bytes of a znode's data; 0:
								 * ZK_READ_MAX_DATA */
	Size		size;			/* of what has been read and is kept */
} Reading;

/* The directory of a contender, in the order in which they are shown. */
typedef enum QueuePlace
{
	PLACE_NAME,					/* the lock directory */
	PLACE_PERMITS,				/* of a semaphore: has a permit */
	PLACE_LOCKS					/* of a semaphore: waits for one */
} QueuePlace;

typedef struct QueueNode
{
	QueuePlace	place;
	ZnodeContender contender;
	const char *path;			/* below the root */
	const ZkReadNode *read;		/* NULL: not yet */
} QueueNode;

/* The contenders of a lock or semaphore. */
typedef struct Queue
{
	const char *name;			/* of the lock directory, below the root */
	ZkRefusal	refusal;		/* of a list */
	TimestampTz seen;			/* when it was listed */
	QueueNode  *nodes;			/* in the order of the queue */
	int			n;
	int			max;			/* allocated nodes */

	/* set by queue_find_first(): indexes of the nodes, or -1 */
	int			holder;
	int			waiter;
	int			nholders;
	int			nwaiters;
} Queue;

extern bool read_nodes(Reading *reading, ZkReadKind kind,
					   const char *const *paths, int n,
					   const ZkReadNode **nodes);
extern void read_begin_of_lock(Reading *reading, const ZkKey *key,
							   char *path, Queue *queue);
extern bool read_queues(Reading *reading, Queue *queues, int n);
extern bool read_queue_nodes(Reading *reading, QueueNode *const *wanted,
							 int n);
extern void read_check_refusal(const Reading *reading, ZkRefusal refusal);
extern bool queue_node_is_gone(const QueueNode *node);
extern void queue_find_first(Queue *queue);
extern bool read_instance(const char *id, int timeout_ms, StringInfo buf);
extern bool read_owner(const ZkKey *key, int timeout_ms, StringInfo owner);

#endif							/* ZKLOCK_BACKEND_READS_H */
