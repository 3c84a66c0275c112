/*-------------------------------------------------------------------------
 *
 * questions.h
 *		Questions of backends to ZooKeeper, and the worker's answers.
 *
 * See the header of questions.c for the states of a box and the locking
 * protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/questions.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUESTIONS_H
#define ZKLOCK_QUESTIONS_H

#include "core/lock/znode.h"
#include "datatype/timestamp.h"
#include "shared/outcome.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"

/* The most questions that can be under way at a time. */
#define ZK_QUESTION_BOXES		16

/* The longest queue shown, and the most data of a contender. */
#define ZK_ANSWER_MAX_ENTRIES	10000
#define ZK_ANSWER_MAX_DATA	1024

/* The longest entries about all locks; an answer with more is an error. */
#define ZK_ANSWER_MAX_BYTES	(8 * 1024 * 1024)

typedef enum ZkQuestion
{
	ZK_QUESTION_QUEUE,			/* which contenders are in the queue? */
	ZK_QUESTION_OWNER,			/* what does the data of the first one say? */
	ZK_QUESTION_REVOKE,			/* ask other clients' owners to release the
								 * lock */
	ZK_QUESTION_QUEUES,			/* which contenders are first in each queue
								 * below a root? */
	ZK_QUESTION_FLEET			/* which instances are there? */
} ZkQuestion;

/* The kind of a contender in a queue. */
typedef enum ZkQueueMode
{
	ZK_QUEUE_EXCLUSIVE,
	ZK_QUEUE_SHARED,
	ZK_QUEUE_PERMIT				/* of a semaphore, or waiting for one */
} ZkQueueMode;

/*
 * One contender, or the znode of an instance.  The entries in an answer's
 * segment follow one another, each with its bytes and padded to the maximal
 * alignment.
 */
typedef struct ZkQueueEntry
{
	int64		session_id;		/* 0: not known, or the node is persistent */
	int64		ctime;			/* ms since 1970; 0: not known */
	ZkQueueMode mode;
	bool		ours;			/* of a session of this instance */
	int			node_len;		/* its path below the lock directory */
	int			data_len;		/* -1: none, or not to be read */
	char		bytes[FLEXIBLE_ARRAY_MEMBER];	/* node, then data */
} ZkQueueEntry;

#define ZkQueueEntrySize(entry) \
	MAXALIGN(offsetof(ZkQueueEntry, bytes) + \
			 (entry)->node_len + Max((entry)->data_len, 0))

/* One lock in the answer to QUEUES; laid out as ZkQueueEntry. */
typedef struct ZkFleetLockEntry
{
	TimestampTz seen;			/* when its queue was listed */
	int64		since;			/* ms since 1970: the first holder's ctime; 0:
								 * not known */
	int64		waiter_since;	/* the same of the first waiter */
	bool		refused;		/* we may not list it: all other fields are
								 * unknown */
	bool		ours;			/* the first holder is of a session of this
								 * instance */
	ZkQueueMode mode;			/* of the first holder, or else waiter */
	int			nholders;
	int			nwaiters;
	int			name_len;		/* of the lock directory's name, encoded */
	int			data_len;		/* of the first holder's data; -1: none, or
								 * not to be read */
	char		bytes[FLEXIBLE_ARRAY_MEMBER];	/* name, then data */
} ZkFleetLockEntry;

#define ZkFleetLockEntrySize(entry) \
	MAXALIGN(offsetof(ZkFleetLockEntry, bytes) + \
			 (entry)->name_len + Max((entry)->data_len, 0))

typedef struct ZkAnswer
{
	ZkRefusal	refusal;		/* why there is no answer */
	bool		out_of_memory;	/* the same */
	bool		too_large;		/* the same, of QUEUES */
	int			count;			/* of the entries */
	int			revoked;		/* REVOKE: contenders that were asked */
	int			left_out;		/* number of entries left out */
	dsm_handle	segment;		/* of the entries, if there are any */
	int			data_len;		/* OWNER: -1 if not known */
	char		data[ZK_ANSWER_MAX_DATA];
} ZkAnswer;

typedef struct ZkBox ZkBox;

/* module load */
extern void questions_request_shmem(void);
extern void questions_startup_shmem(void);

/* backends */
extern ZkBox *question_ask(ZkQuestion question, const char *path);
extern const ZkAnswer *question_answer(ZkBox *box);
extern void question_end(ZkBox *box);
extern ConditionVariable *question_cv(ZkBox *box);

/* the worker */
extern void questions_attach_worker(void);
extern int	questions_take(uint32 *serial, ZkQuestion *question, char *path);
extern bool question_is_open(int box, uint32 serial);
extern void question_set_answer(int box, uint32 serial, ZkAnswer *answer,
								const char *entries, Size size);

#endif							/* ZKLOCK_QUESTIONS_H */
