/*-------------------------------------------------------------------------
 *
 * steps_private.h
 *		Steps of contenders: events in, operations and reports out.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/steps_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STEPS_PRIVATE_H
#define ZKLOCK_STEPS_PRIVATE_H

#include "worker/contender_private.h"

extern void step_start(Contender *contender,
					   const ZkContender *wanted);
extern bool step_requeue(Contender *contender);
extern void step_resume(ZkSlot *slot, ZkSlotState state,
						const ZkContender *known);

#endif							/* ZKLOCK_STEPS_PRIVATE_H */
