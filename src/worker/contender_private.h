/*-------------------------------------------------------------------------
 *
 * contender_private.h
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/contender_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_PRIVATE_H
#define ZKLOCK_CONTENDER_PRIVATE_H

#include "worker/contender.h"

/* How often to check all owners. */
#define SWEEP_INTERVAL_MS	1000

extern Contender *contender_make(ZkSlot *slot, ZnodeKind kind);
extern void contender_drop(Contender *contender);
extern bool contender_is_begun(const Contender *contender);
extern void contender_learn(const Contender *contender);
extern void step_start(Contender *contender, const ZkContender *wanted);
extern bool step_requeue(Contender *contender);
extern void step_resume(ZkSlot *slot, ZkSlotState state,
						const ZkContender *known);

extern int64 contender_excess(const Contender *contender);
extern void contender_defer(Contender *contender);
extern Contender *contender_first_deferred(void);

extern void contender_set_queued(Contender *contender, bool queued);
extern void contender_delay_watch(Contender *contender);
extern Contender *contender_first_watching(int *nwatching);
extern void contender_schedule_check(Contender *contender, int64 at_ms);
extern Contender *contender_next_due(int64 now_ms);
extern int64 contender_next_check(void);

#endif							/* ZKLOCK_CONTENDER_PRIVATE_H */
