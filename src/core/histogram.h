/*-------------------------------------------------------------------------
 *
 * histogram.h
 *		Which bucket of a log-scale histogram a time belongs to.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/histogram.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HISTOGRAM_H
#define ZKLOCK_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS	32

/*
 * Bucket n, from 0, has the times from 2^n up to 2^(n+1) microseconds.  The
 * first bucket also has 0; the last one has all longer times.
 */
static inline int
histogram_bucket(uint64_t us)
{
	int			bucket = 0;

	while (us >= 2 && bucket < HISTOGRAM_BUCKETS - 1)
	{
		us >>= 1;
		bucket++;
	}
	return bucket;
}

#endif							/* ZKLOCK_HISTOGRAM_H */
