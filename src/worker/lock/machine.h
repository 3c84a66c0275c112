/*-------------------------------------------------------------------------
 *
 * machine.h
 *		The state of a contender's machine.
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

/* The state of a machine.  Pointers are valid until its next step. */
typedef struct MachineStatus
{
	const char *state;			/* for log lines */
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */

	/* its node in the queue; for an owner, the node by which it owns */
	SemaphorePlace place;
	const char *node;			/* its name; before the create, its prefix */
	int32_t		sequence;		/* of a lock's node, once created */
	bool		queues;			/* it is, or may be, behind others with it */
	bool		owns;			/* it owns the lock, or a permit */
	bool		reclaims;		/* the same, but its permit is searched for */
	bool		enters;			/* it is creating that node */
	bool		deletes;		/* it is deleting that node, of a lock */
	bool		is_late;		/* its number was: it is to come again */
	bool		retain;			/* the note is to say retain=yes */
	bool		watches_queue;	/* it is an owner that watches its queue */
	bool		others;			/* another kind of client was in the queue */
	bool		watches_itself; /* the same, its own node for a revocation */
	bool		no_directory;	/* it has found the lock directory missing */

	/* the watch of what is ahead, or of its queue if it owns the lock */
	uint32_t	watch_serial;	/* or 0: it waits for none */
	bool		watch_for_lock; /* that watch is of a semaphore's lock */
	const char *predecessor;	/* the watched node in the queue, or NULL */
	const char *keeper;			/* of readers: the writer that keeps it, or
								 * others that come to it, waiting; NULL: none
								 * is known */

	/* what it has in ZooKeeper, or may have */
	bool		has_place;		/* a node in the queue */
	bool		has_permit;
	bool		leaves_place;	/* its delete is out, or was refused */
	bool		leaves_permit;
	bool		leaves;			/* it is to be gone */
	bool		is_stuck;		/* whose delete was refused, to be retried */
	bool		has_given_up;	/* the same, not to be retried */
} MachineStatus;

#endif							/* ZKLOCK_MACHINE_H */
