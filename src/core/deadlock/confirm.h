/*-------------------------------------------------------------------------
 *
 * confirm.h
 *		Probes, answers and verdicts: the second half of a detector.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/confirm.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONFIRM_H
#define ZKLOCK_CONFIRM_H

#include "core/deadlock/detection.h"

extern void confirm_found(Detection *state, WaitDeadlock *deadlock);
extern void confirm_done(Detection *state, const Pending *pending,
						 const DetectorInput *in);
extern void confirm_scanned(Detection *state, uint32_t scan);
extern void confirm_forget(Detection *state);
extern void confirm_advance(Detection *state);

#endif							/* ZKLOCK_CONFIRM_H */
