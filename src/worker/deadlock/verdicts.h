/*-------------------------------------------------------------------------
 *
 * verdicts.h
 *		Deadlocks that have been ended, for backends.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/verdicts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_VERDICTS_H
#define ZKLOCK_VERDICTS_H

#include "core/deadlock/detector.h"

extern void verdict_tell(const DetectorVerdict *verdict);

#endif							/* ZKLOCK_VERDICTS_H */
