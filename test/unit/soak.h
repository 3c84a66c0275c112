/*-------------------------------------------------------------------------
 *
 * soak.h
 *		How many random schedules a test plays.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/soak.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SOAK_H
#define SOAK_H

#include <stdlib.h>

/* So many runs, or with ZKLOCK_TEST_SOAK=n in the environment n times full. */
static inline unsigned long
soak(unsigned long runs, unsigned long full)
{
	const char *factor = getenv("ZKLOCK_TEST_SOAK");

	return factor ? strtoul(factor, NULL, 10) * full : runs;
}

#endif							/* SOAK_H */
