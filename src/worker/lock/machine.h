/*-------------------------------------------------------------------------
 *
 * machine.h
 *		What there is to know of the state machine of a contender.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/machine.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MACHINE_H
#define ZKLOCK_MACHINE_H

#include "core/lock/semaphore.h"

typedef struct Machine Machine;

/*
 * What a machine tells of itself.  Pointers are valid until its next step.
 */
typedef struct MachineStatus
{
	const char *state;			/* for log lines */
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */

	/* its node in the queue; of an owner, that with which it owns */
	SemaphorePlace place;
	const char *node;			/* its name, or its prefix before it is
								 * created */
	int32_t		sequence;		/* of a lock's, once created */
	bool		queues;			/* it stands behind others with it, or may */
	bool		owns;			/* it owns the lock, or has a permit */
	bool		reclaims;		/* the same; of a permit that is looked for */
	bool		enters;			/* it is about to create it */
	bool		deletes;		/* it is about to delete it: of a lock */
	bool		retain;			/* the note is to say retain=yes */
	bool		watches_queue;	/* it owns, and watches the queue behind */
	bool		watches_itself; /* the same, for a revocation */
	bool		no_directory;	/* it has found the lock directory missing */

	/* the watch of what is ahead */
	uint32_t	watch_serial;	/* or 0: it waits for none */
	bool		watch_for_lock; /* that is of a semaphore's lock */
	const char *predecessor;	/* the node in the queue that it is of, or
								 * NULL */

	/* what there is of it in ZooKeeper, or may be */
	bool		has_place;		/* a node in the queue */
	bool		has_permit;
	bool		leaves_place;	/* it is being deleted */
	bool		leaves_permit;
	bool		is_stuck;		/* of a node that was left: it is tried again */
	bool		has_given_up;	/* it is not */
} MachineStatus;

#endif							/* ZKLOCK_MACHINE_H */
