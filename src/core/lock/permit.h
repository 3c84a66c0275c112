/*-------------------------------------------------------------------------
 *
 * permit.h
 *		A permit of a semaphore in ZooKeeper: two recipes in sequence.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/permit.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PERMIT_H
#define ZKLOCK_PERMIT_H

#include "core/lock/note.h"
#include "core/lock/recipe.h"

typedef enum PermitState
{
	PERMIT_NONE,				/* no node of ours, and no permit wanted */
	PERMIT_READING,				/* reading the semaphore: ahead of the queue,
								 * or as the lock's owner */
	PERMIT_QUEUEING,			/* waiting for the lock; if taken over, also
								 * for the end of a node of ours in "leases" */
	PERMIT_TAKING,				/* as the lock's owner, waiting for a place in
								 * "leases" */
	PERMIT_OWNER,				/* a permit is ours */
	PERMIT_LEAVING				/* nothing is wanted; nodes may be there */
} PermitState;

/*
 * The sender of an operation.  The serial number of a Request, of its answer
 * and of its watch is the sender's own, times PERMIT_PARTS, plus this.
 */
typedef enum PermitPart
{
	PERMIT_READS,
	PERMIT_LOCK,
	PERMIT_PLACE
} PermitPart;

#define PERMIT_PARTS			3
#define PERMIT_SERIAL(serial, part) ((serial) * PERMIT_PARTS + (part))

/* With all fields zero, it is not wanted. */
typedef struct Permit
{
	PermitState state;
	Recipe		lock;			/* our contender in <name>/locks */
	Recipe		place;			/* our node in <name>/leases */
	uint8_t		uuid[ZNODE_UUID_BYTES]; /* of both */
	char		agreement[NOTE_PERMITS_SIZE];	/* data of <name>/leases */
	uint32_t	serial;			/* of our latest read of the semaphore */
	int			others;			/* permits of others, as last listed: right
								 * before what they are compared with */
	bool		differs;		/* the number read last was not ours: it is
								 * set ahead of our node's create */
	bool		agreed;			/* TAKING: our number was read behind our
								 * node's create */
} Permit;

extern void permit_free(Permit *permit);
extern void permit_want(Permit *permit, const uint8_t uuid[ZNODE_UUID_BYTES],
						int permits, RecipeOutput *out);
extern void permit_resume(Permit *permit, const uint8_t uuid[ZNODE_UUID_BYTES],
						  int permits, RecipeResume how,
						  const int32_t *sequence, RecipeOutput *out);
extern void permit_step(Permit *permit, RecipeEvent event,
						const RequestAnswer *answer, RecipeOutput *out);
extern bool permit_is_wanted(const Permit *permit);
extern const char *permit_state_name(PermitState state);

#endif							/* ZKLOCK_PERMIT_H */
