/*-------------------------------------------------------------------------
 *
 * outcome.h
 *		The outcome of a call that wants a lock, and why ZooKeeper refuses it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/outcome.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_OUTCOME_H
#define ZKLOCK_OUTCOME_H

/* The answer of a slot, a wait or a call, each of which has some of these. */
typedef enum ZkOutcome
{
	/* the wait goes on */
	ZK_PENDING,					/* no answer from ZooKeeper yet */
	ZK_UNPROVED,				/* is the instance still the owner? */
	ZK_QUEUED,					/* contenders are ahead */

	/* it starts over */
	ZK_REQUEUE_TIER1,			/* call slot_requeue_tier1(), and wait in tier
								 * 1 */
	ZK_REQUEUE_BEHIND,			/* the same, once slot_call_ahead() is false */
	ZK_LOST,					/* one of several that had been taken */

	/* it is over */
	ZK_ACQUIRED,
	ZK_NOT_IN_TIME,				/* or not without waiting, if it must not */
	ZK_NO_SESSION,				/* there was none for the session timeout */
	ZK_DENIED,					/* ZooKeeper refused: see ZkRefusal */
	ZK_DEADLOCKED,				/* with other instances; ends this wait */

	/* there was none */
	ZK_HELD_ALL					/* all of them are held already */
} ZkOutcome;

/* Why ZooKeeper does not do what a backend asks for. */
typedef enum ZkRefusal
{
	ZK_REFUSAL_NONE,
	ZK_REFUSAL_ACCESS,			/* the credentials do not allow it */
	ZK_REFUSAL_NO_CHROOT,		/* the chroot of zklock.servers is missing */
	ZK_REFUSAL_MIXED,			/* a lock and a semaphore under one name */
	ZK_REFUSAL_PERMITS,			/* the semaphore has another size */
	ZK_REFUSAL_ENDED,			/* the counter of the directory has ended */
	ZK_REFUSAL_NO_ROOM,			/* the session has too many nodes: see
								 * ZK_MAX_PATH_BYTES */
	ZK_REFUSAL_OTHER			/* the server log has the details */
} ZkRefusal;

#endif							/* ZKLOCK_OUTCOME_H */
