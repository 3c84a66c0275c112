/*-------------------------------------------------------------------------
 *
 * habits.h
 *		Which locks the instance retains, and how long.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/habits.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HABITS_H
#define ZKLOCK_HABITS_H

#include "core/lock/znode.h"
#include "shared/slots.h"

extern int64 habits_wanted(const char *directory, const ZkContender *wanted);
extern void habits_dropped(const char *directory, ZnodeKind kind,
						   int32 number, const ZkSlotUse *use);
extern void habits_of_others(const char *directory, ZnodeKind kind);

#endif							/* ZKLOCK_HABITS_H */
