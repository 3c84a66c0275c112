/*-------------------------------------------------------------------------
 *
 * stats.h
 *		Counters of this instance in shared memory.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/stats.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STATS_H
#define ZKLOCK_STATS_H

#include "core/histogram.h"
#include "datatype/timestamp.h"
#include "shared/outcome.h"

/* All counters, as read at about one moment; see the view zk_stat. */
typedef struct ZkStats
{
	int64		taken;
	int64		handed_off;
	int64		waited;
	int64		timed_out;
	int64		failed;
	int64		lost;
	int64		claims_expired;
	int64		deadlocks;
	int64		retained;
	int64		retaken;
	int64		revoked;
	int64		waited_revoke;
	int64		wait_time;		/* us, in total */
	int64		hold_time;		/* us, in total */
	int64		wait_histogram[HISTOGRAM_BUCKETS];
	int64		hold_histogram[HISTOGRAM_BUCKETS];
	TimestampTz reset_at;
} ZkStats;

/* module load */
extern void stats_request_shmem(void);
extern void stats_startup_shmem(void);

extern void stats_count_take(bool handed_off, bool retaken, bool waited,
							 int64 wait_us);
extern void stats_count_failure(ZkOutcome outcome);
extern void stats_count_release(bool retained, int64 held_us);
extern void stats_count_revoked(void);
extern void stats_count_revoke_wait(void);
extern void stats_count_lost(void);
extern void stats_count_expired_claim(void);
extern void stats_read(ZkStats *stats);
extern void stats_reset(void);

#endif							/* ZKLOCK_STATS_H */
