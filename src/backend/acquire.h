/*-------------------------------------------------------------------------
 *
 * acquire.h
 *		Taking locks, in two tiers.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/acquire.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_H
#define ZKLOCK_ACQUIRE_H

#include "backend/holds.h"
#include "backend/waiting.h"

extern ZkOutcome acquire_locks(const ZkRequest *request, ZkResult *result);

/* for acquire_any.c */
extern void acquire_begin(void);
extern void acquire_hold(const SlotWait *wait, HeldLock *lock);
extern void acquire_end(const ZkRequest *request, const SlotWait *wait,
						HeldLock **locks, int nlocks);
extern void acquire_for_session(HeldLock **locks, int nlocks);

#endif							/* ZKLOCK_ACQUIRE_H */
