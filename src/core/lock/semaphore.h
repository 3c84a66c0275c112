/*-------------------------------------------------------------------------
 *
 * semaphore.h
 *		A permit of a semaphore in ZooKeeper, as a pure state machine.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/semaphore.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEMAPHORE_H
#define ZKLOCK_SEMAPHORE_H

#include "core/lock/recipe.h"

typedef enum SemaphoreState
{
	SEMAPHORE_NONE,				/* no node of ours, and no permit wanted */
	SEMAPHORE_RESUMING,			/* taken over: searching for our permit */
	SEMAPHORE_RETRACTING,		/* the same: deleting the permit found */
	SEMAPHORE_PREPARING,		/* making and reading the directories */
	SEMAPHORE_QUEUEING,			/* waiting for the lock */
	SEMAPHORE_CHECKING,			/* we own the lock: reading "leases" */
	SEMAPHORE_AGREEING,			/* writing our number of permits there */
	SEMAPHORE_CREATING,			/* create of our permit is out */
	SEMAPHORE_SEARCHING,		/* the create's result is unknown: searching */
	SEMAPHORE_COUNTING,			/* our permit exists: reading "leases" again */
	SEMAPHORE_WAITING,			/* there are too many: watching them */
	SEMAPHORE_OWNER,			/* a permit is ours */
	SEMAPHORE_RECLAIMING,		/* it was before the new worker: searching */
	SEMAPHORE_CANCELLING,		/* as CREATING, but no longer wanted */
	SEMAPHORE_ABANDONING,		/* as SEARCHING, but no longer wanted */
	SEMAPHORE_LEAVING			/* permit and lock are being deleted */
} SemaphoreState;

/* The directory of an operation; <name> is as for a lock. */
typedef enum SemaphorePlace
{
	SEMAPHORE_NAME,				/* <name> */
	SEMAPHORE_LOCKS,			/* <name>/locks */
	SEMAPHORE_PERMITS			/* <name>/leases */
} SemaphorePlace;

typedef struct SemaphoreOp
{
	Request		op;
	SemaphorePlace place;
	bool		for_lock;		/* returned with answer and watch */
} SemaphoreOp;

/* What the lock's recipe can send in a step, and as much of our own. */
#define SEMAPHORE_MAX_OPS		(2 * RECIPE_MAX_OPS)

/* "permits=2147483647" and the terminator, rounded up. */
#define SEMAPHORE_DATA_SIZE		24

/*
 * "report" has these bits of recipe.h: QUEUED, GRANTED, TOKEN, REVOKED, LOST,
 * FAILED, MIXED, GONE, LEFT, STRANGER, PERSISTENT, and LATE and RENEWED of
 * <name>/locks.  LOST may be reported before GONE, since the lock may still
 * have to be released.
 */
typedef struct SemaphoreOutput
{
	SemaphoreOp ops[SEMAPHORE_MAX_OPS];
	int			nops;
	unsigned	report;
	int			error;			/* FAILED, LEFT: ZooKeeper's code, or 0 */
	int			permits_found;	/* FAILED: the number that others agreed on, or
								 * 0 */
	int64_t		token;
	const char *stranger;		/* STRANGER: its name, and its place */
	SemaphorePlace stranger_place;
	const char *left;			/* LEFT: the same of our node, or its prefix */
	SemaphorePlace left_place;
} SemaphoreOutput;

typedef struct Semaphore
{
	SemaphoreState state;
	Recipe		lock;			/* our contender in <name>/locks */
	uint8_t		uuid[ZNODE_UUID_BYTES]; /* of that and of the permit */
	int			permits;
	char		agreement[SEMAPHORE_DATA_SIZE]; /* data of <name>/leases */
	int			making;			/* directories: 1, with parents: 2; or 0 */
	int			mkdir_error;	/* why that of a directory failed, or 0 */
	bool		name_read;		/* PREPARING, CHECKING: <name> may be used */
	bool		has_node;		/* our permit exists, for all we know */
	bool		refused;		/* LEAVING: its delete was; to be retried */
	bool		revocation_watched; /* OWNER: our permit is watched for one */
	int32_t		sequence;		/* of our permit, once created */
	char		node[ZNODE_CONTENDER_SIZE]; /* its name, or prefix before */
	uint32_t	serial;			/* of our latest operation, the lock's aside */
	int			others;			/* permits of others, as last read, or -1 */
	int			ahead;			/* those of them that precede ours */
} Semaphore;

extern void semaphore_init(Semaphore *semaphore);
extern void semaphore_free(Semaphore *semaphore);
extern void semaphore_want(Semaphore *semaphore,
						   const uint8_t uuid[ZNODE_UUID_BYTES], int permits,
						   SemaphoreOutput *out);
extern void semaphore_resume(Semaphore *semaphore,
							 const uint8_t uuid[ZNODE_UUID_BYTES], int permits,
							 RecipeResume how, SemaphoreOutput *out);
extern void semaphore_step(Semaphore *semaphore, bool for_lock,
						   const RecipeInput *in, SemaphoreOutput *out);
extern bool semaphore_may_queue(const Semaphore *semaphore);
extern bool semaphore_may_have_permit(const Semaphore *semaphore);
extern bool semaphore_is_leaving(const Semaphore *semaphore);
extern const char *semaphore_state_name(SemaphoreState state);

#endif							/* ZKLOCK_SEMAPHORE_H */
