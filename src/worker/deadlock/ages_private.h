/*-------------------------------------------------------------------------
 *
 * ages_private.h
 *		How long waits, statements and states have lasted, by our own clock.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/ages_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AGES_PRIVATE_H
#define ZKLOCK_AGES_PRIVATE_H

#include "datatype/timestamp.h"

typedef enum AgeOf
{
	AGE_OF_LOCK_WAIT,			/* PGPROC.waitStart */
	AGE_OF_STATEMENT,			/* st_activity_start_timestamp */
	AGE_OF_STATE				/* st_state_start_timestamp */
} AgeOf;

/* Samples in the time that something has to last; see ages.c. */
#define AGES_SAMPLES		4

extern void ages_sample(AgeOf of);
extern bool ages_has_lasted(AgeOf of, int pid, TimestampTz started,
							 int64 us);

#endif							/* ZKLOCK_AGES_PRIVATE_H */
