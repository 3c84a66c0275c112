/*-------------------------------------------------------------------------
 *
 * steps.h
 *		Steps of contenders: events in, operations and news out.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/steps.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STEPS_H
#define ZKLOCK_STEPS_H

#include "core/lock/recipe.h"
#include "shared/slots.h"
#include "worker/lock/contender.h"

extern void step(Contender *contender, bool for_lock,
				 const RecipeInput *input);
extern void step_answered(void *contender, const RequestAnswer *answer);
extern void step_lock_answered(void *contender, const RequestAnswer *answer);
extern void step_start(Contender *contender, int session,
					   const ZkContender *wanted);
extern void step_start_together(Contender *contender, int session,
								const ZkContender *wanted, MachineOutput *out);
extern void step_submit_part(Contender *contender, MachineOutput *out,
							 RequestKind kind, uint32 group);
extern bool step_requeue(Contender *contender);
extern void step_resume(ZkSlot *slot, ZkSlotState state,
						const ZkContender *known);
extern void step_expire(Contender *contender);
extern void step_queue_behind(Contender *contender, RecipeEvent event);

#endif							/* ZKLOCK_STEPS_H */
