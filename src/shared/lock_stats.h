/*-------------------------------------------------------------------------
 *
 * lock_stats.h
 *		Counters of single locks in shared memory.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/lock_stats.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LOCK_STATS_H
#define ZKLOCK_LOCK_STATS_H

#include "core/histogram.h"
#include "datatype/timestamp.h"
#include "shared/key.h"
#include "shared/stats.h"

/*
 * The counters of a lock; times in us.  All from "taken" on are sums of int64,
 * and nothing else.
 */
typedef struct ZkLockStats
{
	uint64		id;				/* that of its path; 0: all other locks */
	char		path[ZNODE_PATH_SIZE];	/* of its lock directory; empty for all
										 * other locks */
	TimestampTz since;			/* when counting began */
	int64		max_wait;
	int64		max_hold;
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
} ZkLockStats;

/* module load */
extern void lock_stats_request_shmem(void);
extern void lock_stats_startup_shmem(void);

extern uint64 lock_stats_id(const char *path);
extern void lock_stats_take(uint64 id, const ZkKey *key, bool handed_off,
							bool retaken, bool waited, int64 wait_us);
extern void lock_stats_failure(uint64 id, const ZkKey *key, ZkOutcome outcome);
extern void lock_stats_release(uint64 id, bool retained, int64 held_us);
extern void lock_stats_lost(const ZkKey *key);
extern void lock_stats_revoked(const ZkKey *key);
extern void lock_stats_revoke_wait(const ZkKey *key);
extern ZkLockStats *lock_stats_read(int *n);
extern void lock_stats_reset(void);

#endif							/* ZKLOCK_LOCK_STATS_H */
