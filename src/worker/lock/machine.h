/*-------------------------------------------------------------------------
 *
 * machine.h
 *		The state machine of a contender: a recipe, or a semaphore.
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

#include "core/lock/recipe.h"
#include "core/lock/semaphore.h"
#include "core/lock/znode.h"
#include "shared/slots.h"

typedef struct Machine Machine;

/* What a step comes out with; "told" has bits RECIPE_TOLD_*. */
typedef SemaphoreOp MachineOp;
typedef SemaphoreOutput MachineOutput;

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
	int32		sequence;		/* of a lock's, once created */
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
	uint32		watch_serial;	/* or 0: it waits for none */
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

extern Machine *machine_make(ZnodeKind kind);
extern void machine_free(Machine *machine);
extern void machine_want(Machine *machine, const uint8 *uuid,
						 const ZkContender *wanted, bool retain,
						 bool dir_known, bool unread, MachineOutput *out);
extern void machine_resume(Machine *machine, ZkSlotState state,
						   const ZkContender *known, MachineOutput *out);
extern void machine_requeue(Machine *machine, bool retain,
							MachineOutput *out);
extern void machine_step(Machine *machine, bool for_lock,
						 const RecipeInput *input, MachineOutput *out);
extern void machine_describe(const Machine *machine, MachineStatus *status);

#endif							/* ZKLOCK_MACHINE_H */
