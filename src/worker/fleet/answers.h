/*-------------------------------------------------------------------------
 *
 * answers.h
 *		The worker's answers to the questions of backends.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/answers.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ANSWERS_H
#define ZKLOCK_ANSWERS_H

#include "core/request.h"

/* Set in the owner ids of operations for answers, and in no contender's. */
#define ANSWERS_OWNER		UINT32_C(0x80000000)

extern void answers_collect(void);
extern void answers_begin(void);
extern void answers_event(uint32_t owner, const RequestAnswer *in);
extern void answers_restart(void);

#endif							/* ZKLOCK_ANSWERS_H */
