/*-------------------------------------------------------------------------
 *
 * queue_list.h
 *		The contenders of a lock or semaphore, as they are read from ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/queue_list.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUEUE_LIST_H
#define ZKLOCK_QUEUE_LIST_H

#include "core/request.h"
#include "lib/stringinfo.h"
#include "shared/questions.h"

/* Where a contender stands, in the order in which they are told. */
typedef enum QueuePlace
{
	PLACE_NAME,					/* the lock directory */
	PLACE_PERMITS,				/* of a semaphore: has a permit */
	PLACE_LOCKS					/* of a semaphore: waits for one */
} QueuePlace;

#define NPLACES			(PLACE_LOCKS + 1)

typedef struct QueueNode
{
	QueuePlace	place;
	const char *node;
	ZnodeContender contender;
	bool		seen;			/* its stat is known, or refused */
	bool		read;			/* there is no more to learn of it */
	bool		gone;			/* it has left, or is no contender */
	bool		ours;			/* one of our sessions' */
	int64		session_id;		/* 0: not known */
	int64		ctime;			/* the same */
	int			data_len;		/* -1: none, or not to be read */
	const char *data;
} QueueNode;

typedef struct QueueList
{
	QueueNode  *nodes;
	int			n;
	int			max;			/* room for so many */
} QueueList;

extern const char *queue_directory(QueuePlace place);
extern void queue_clear(QueueList *list);
extern void queue_add(QueueList *list, QueuePlace place,
					  const RequestAnswer *in, bool parts[NPLACES]);
extern void queue_sort(QueueList *list);
extern RequestKind queue_next_op(const QueueNode *node);
extern void queue_note(QueueNode *node, const RequestAnswer *in, int max);
extern ZkQueueMode queue_mode(const QueueNode *node);
extern void queue_append_entry(StringInfo buf, const QueueNode *entry);

#endif							/* ZKLOCK_QUEUE_LIST_H */
