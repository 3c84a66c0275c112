/*-------------------------------------------------------------------------
 *
 * machine_private.h
 *		The state machine of a contender: a recipe, or a semaphore.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/machine_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MACHINE_PRIVATE_H
#define ZKLOCK_MACHINE_PRIVATE_H

#include "shared/slots.h"
#include "worker/lock/machine.h"

/* The output of a step; "report" has bits RECIPE_REPORT_*. */
typedef SemaphoreOp MachineOp;
typedef SemaphoreOutput MachineOutput;

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

#endif							/* ZKLOCK_MACHINE_PRIVATE_H */
