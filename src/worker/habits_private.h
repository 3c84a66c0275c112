/*-------------------------------------------------------------------------
 *
 * habits_private.h
 *		Which locks the instance retains, and how long.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/habits_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HABITS_PRIVATE_H
#define ZKLOCK_HABITS_PRIVATE_H

#include "worker/contender_private.h"

extern int32 habits_retain_ms(Contender *contender, const ZkContender *wanted);
extern void habits_learn(const Contender *contender);
extern void habits_learn_others(const Contender *contender);

#endif							/* ZKLOCK_HABITS_PRIVATE_H */
