/*-------------------------------------------------------------------------
 *
 * stats.h
 *		Counters in shared memory, of this instance and of single locks.
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
#include "shared/key.h"
#include "shared/outcome.h"

/* What is counted of the instance and of each lock; times in us. */
typedef struct ZkCounts
{
	int64		taken;
	int64		handed_off;
	int64		waited;
	int64		timed_out;
	int64		failed;
	int64		deadlocks;
	int64		lost;
	int64		retained;
	int64		retaken;
	int64		revoked;
	int64		waited_revoke;
	int64		wait_time;
	int64		hold_time;
	int64		wait_histogram[HISTOGRAM_BUCKETS];
	int64		hold_histogram[HISTOGRAM_BUCKETS];
} ZkCounts;

/* Those of this instance, as read at about one moment. */
typedef struct ZkStats
{
	ZkCounts	counts;
	int64		claims_expired;
	TimestampTz reset_at;
} ZkStats;

/* Those of a lock. */
typedef struct ZkLockStats
{
	uint64		id;				/* that of its path; 0: all other locks */
	char		path[ZNODE_PATH_SIZE];	/* of its lock directory; empty for all
										 * other locks */
	TimestampTz since;			/* when counting began */
	int64		max_wait;		/* us */
	int64		max_hold;
	ZkCounts	counts;
} ZkLockStats;

/* module load */
extern void stats_request_shmem(void);
extern void stats_startup_shmem(void);

/* what happens to a lock; to the instance, and to the lock with this id */
extern uint64 lock_stats_id(const char *path);
extern void stats_take(uint64 id, const ZkKey *key, bool handed_off,
					   bool retaken, bool waited, int64 wait_us);
extern void stats_failure(uint64 id, const ZkKey *key, ZkOutcome outcome);
extern void stats_release(uint64 id, bool retained, int64 held_us);
extern void stats_lost(const ZkKey *key);
extern void stats_revoked(const ZkKey *key);
extern void stats_revoke_wait(const ZkKey *key);
extern void stats_expired_claim(void);

/* views */
extern void stats_read(ZkStats *stats);
extern void stats_reset(void);
extern ZkLockStats *lock_stats_read(int *n);

#endif							/* ZKLOCK_STATS_H */
