/*-------------------------------------------------------------------------
 *
 * stats.c
 *		Counters of this instance in shared memory.
 *
 * They count from server start or reset, and a restart clears them.
 *
 * Locking protocol: none.  Each counter is an atomic, which any process may
 * add to or read at any time, also in transaction callbacks.  A reader may see
 * a call in one counter and not yet in another, and a reset may come between
 * the two; nothing depends on them.
 *
 * All backends share the counters' cache lines, which is no bottleneck: a take
 * and a release cost four to six atomic additions, and each take has gone
 * through the heavyweight lock and the slot of its name, and, unless the lock
 * was handed off, through ZooKeeper.
 *
 * The numbers of locks taken and released are the sums of the histograms'
 * buckets.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/stats.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

typedef enum Counter
{
	HANDED_OFF,
	WAITED,
	TIMED_OUT,
	FAILED,
	LOST,
	CLAIMS_EXPIRED,
	DEADLOCKS,
	RETAINED,
	RETAKEN,
	REVOKED,
	WAITED_REVOKE,
	WAIT_TIME,
	HOLD_TIME,
	WAIT_HISTOGRAM,				/* the first of the buckets */
	HOLD_HISTOGRAM = WAIT_HISTOGRAM + HISTOGRAM_BUCKETS,
	NUM_COUNTERS = HOLD_HISTOGRAM + HISTOGRAM_BUCKETS
} Counter;

typedef struct StatsShared
{
	pg_atomic_uint64 reset_at;	/* a TimestampTz */
	pg_atomic_uint64 counters[NUM_COUNTERS];
} StatsShared;

static StatsShared *shared = NULL;

/*
 * stats_request_shmem
 *		Reserve shared memory; for the shmem_request_hook.
 */
void
stats_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(StatsShared));
}

/*
 * stats_startup_shmem
 *		Create or attach to the counters; for the shmem_startup_hook.
 */
void
stats_startup_shmem(void)
{
	bool		found;

	/* after a restart within the postmaster */
	shared = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zklock stats", sizeof(StatsShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&shared->reset_at, (uint64) GetCurrentTimestamp());
		for (int i = 0; i < NUM_COUNTERS; i++)
			pg_atomic_init_u64(&shared->counters[i], 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

static void
add(int counter, int64 amount)
{
	pg_atomic_fetch_add_u64(&shared->counters[counter], amount);
}

static int64
get(int counter)
{
	return (int64) pg_atomic_read_u64(&shared->counters[counter]);
}

/*
 * stats_count_take
 *		A backend has taken a lock that it did not hold.
 *
 * handed_off: the instance owned the lock already.  retaken: it had retained
 * the lock.  waited: the lock was not free.  wait_us: from the call to the
 * take.
 */
void
stats_count_take(bool handed_off, bool retaken, bool waited, int64 wait_us)
{
	if (handed_off)
		add(HANDED_OFF, 1);
	if (retaken)
		add(RETAKEN, 1);
	if (waited)
		add(WAITED, 1);
	add(WAIT_TIME, wait_us);
	add(WAIT_HISTOGRAM + histogram_bucket(wait_us), 1);
}

/*
 * stats_count_failure
 *		A call has ended without its lock.
 */
void
stats_count_failure(ZkOutcome outcome)
{
	add(outcome == ZK_NOT_IN_TIME ? TIMED_OUT :
		outcome == ZK_DEADLOCKED ? DEADLOCKS : FAILED, 1);
}

/*
 * stats_count_release
 *		A backend gives back the last hold of a lock, which the instance may
 *		retain.
 */
void
stats_count_release(bool retained, int64 held_us)
{
	if (retained)
		add(RETAINED, 1);
	add(HOLD_TIME, held_us);
	add(HOLD_HISTOGRAM + histogram_bucket(held_us), 1);
}

/*
 * stats_count_revoked
 *		A retained lock is given up, because others wait for it.
 */
void
stats_count_revoked(void)
{
	add(REVOKED, 1);
}

/*
 * stats_count_revoke_wait
 *		We own a lock that another instance had retained and given up.
 */
void
stats_count_revoke_wait(void)
{
	add(WAITED_REVOKE, 1);
}

/*
 * stats_count_lost
 *		A holder has lost its lock.
 */
void
stats_count_lost(void)
{
	add(LOST, 1);
}

/*
 * stats_count_expired_claim
 *		A claim has ended because its ttl was over.
 */
void
stats_count_expired_claim(void)
{
	add(CLAIMS_EXPIRED, 1);
}

/*
 * stats_read
 *		Copy all counters.
 */
void
stats_read(ZkStats *stats)
{
	stats->handed_off = get(HANDED_OFF);
	stats->waited = get(WAITED);
	stats->timed_out = get(TIMED_OUT);
	stats->failed = get(FAILED);
	stats->lost = get(LOST);
	stats->claims_expired = get(CLAIMS_EXPIRED);
	stats->deadlocks = get(DEADLOCKS);
	stats->retained = get(RETAINED);
	stats->retaken = get(RETAKEN);
	stats->revoked = get(REVOKED);
	stats->waited_revoke = get(WAITED_REVOKE);
	stats->wait_time = get(WAIT_TIME);
	stats->hold_time = get(HOLD_TIME);
	stats->taken = 0;
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
	{
		stats->wait_histogram[i] = get(WAIT_HISTOGRAM + i);
		stats->hold_histogram[i] = get(HOLD_HISTOGRAM + i);
		stats->taken += stats->wait_histogram[i];
	}
	stats->reset_at = (TimestampTz) pg_atomic_read_u64(&shared->reset_at);
}

/*
 * stats_reset
 *		Set all counters to zero.
 */
void
stats_reset(void)
{
	for (int i = 0; i < NUM_COUNTERS; i++)
		pg_atomic_write_u64(&shared->counters[i], 0);
	pg_atomic_write_u64(&shared->reset_at, (uint64) GetCurrentTimestamp());
}
