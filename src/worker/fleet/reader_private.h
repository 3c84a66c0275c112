/*-------------------------------------------------------------------------
 *
 * reader_private.h
 *		Reads queues of contenders, or the members of the fleet.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/reader_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_READER_PRIVATE_H
#define ZKLOCK_READER_PRIVATE_H

#include "core/member.h"
#include "core/request.h"
#include "lib/stringinfo.h"
#include "shared/questions.h"

/* The directory of a contender, in the order in which they are reported. */
typedef enum QueuePlace
{
	PLACE_NAME,					/* the lock directory */
	PLACE_PERMITS,				/* of a semaphore: has a permit */
	PLACE_LOCKS					/* of a semaphore: waits for one */
} QueuePlace;

#define NPLACES			(PLACE_LOCKS + 1)

/* A contender, or a member. */
typedef struct QueueNode
{
	QueuePlace	place;
	const char *node;
	ZnodeContender contender;	/* not of a member */
	bool		seen;			/* its stat is known, or was refused */
	bool		read;			/* nothing more to be read */
	bool		gone;			/* it has left, or is not ephemeral */
	bool		ours;			/* of one of our sessions */
	int64		session_id;		/* 0: unknown */
	int64		ctime;			/* the same */
	int			data_len;		/* -1: none, or not to be read */
	const char *data;
} QueueNode;

typedef enum QueueState
{
	QUEUE_NAMED,				/* the root has been listed, this not yet */
	QUEUE_LISTING,
	QUEUE_READING,
	QUEUE_DONE
} QueueState;

/* The contenders of a lock or semaphore, or all members. */
typedef struct Queue
{
	QueueState	state;
	char	   *name;			/* of its directory in the root; NULL: the path
								 * of the reader is its own */
	QueueNode  *nodes;			/* as listed; sorted, if they are contenders */
	int			n;
	int			max;			/* allocated nodes */
	int			nread;			/* at most so many of them are read */
	int			next;			/* the first node without an operation */
	int			open;			/* unanswered operations */
	int			lists;			/* how often it was listed */
	bool		moved;			/* a node to be read has gone */
	bool		refused;		/* a list of it was */
	TimestampTz seen;			/* when the last list came in */

	/* indexes of contenders, or -1 */
	int			holder;			/* the first */
	int			waiter;			/* the same */
	int			nholders;
	int			nwaiters;
} Queue;

typedef struct Reader
{
	ZkQuestion	question;
	uint32		owner;			/* id of its operations */
	char		path[ZNODE_PATH_SIZE];	/* of a queue, of the root, or of
										 * %clusters */
	MemoryContext context;		/* of the reader, and of what it points to */
	Queue	   *queues;
	int			nqueues;
	int			next;			/* the first queue that is NAMED only */
	int			open;			/* unanswered operations */
	StringInfoData entries;		/* of the locks that are DONE, in the question
								 * about all */
	int			nentries;
	bool		too_large;		/* the answer would be, or what is read for
								 * it */
	bool		unsure;			/* an answer was lost */
	int			error;			/* ZooKeeper's code, if it refused a list that
								 * the answer is about; or 0 */
} Reader;

extern void members_path(const char *root, char path[ZNODE_PATH_SIZE]);
extern Reader *reader_begin(ZkQuestion question, uint32 owner,
							const char *path);
extern bool reader_event(Reader *reader, const RequestAnswer *in);
extern void reader_free(Reader *reader);
extern const char *queue_directory(QueuePlace place);
extern int	reader_append(const Reader *reader, StringInfo buf);
extern int	reader_left_out(const Reader *reader);
extern bool reader_has(const Reader *reader, const char *node);
extern Member *reader_members(const Reader *reader, int *count);

#endif							/* ZKLOCK_READER_PRIVATE_H */
