/*-------------------------------------------------------------------------
 *
 * stats.c
 *		Counters in shared memory, of this instance and of single locks.
 *
 * Those of the instance count from server start or reset, and a restart clears
 * them.  Each is an atomic, which any process may add to or read at any time,
 * also in transaction callbacks, without a lock.  A reader may see a call in
 * one counter and not yet in another, and a reset may come between the two;
 * nothing depends on them.  All backends share the counters' cache lines,
 * which is no bottleneck: a take and a release cost four to six atomic
 * additions, and each take has gone through the heavyweight lock and the slot
 * of its name, and, unless the lock was handed off, through ZooKeeper.  The
 * numbers of locks taken and released are the sums of the histograms' buckets.
 *
 * Those of single locks are for the view zk_stat_locks.  There is room for
 * zklock.max_tracked_locks locks.  When it is full, a new lock takes the entry
 * of the one that has been waited for the least in total, whose counts are
 * added to those of entry 0, that of all other locks.  It allocates nothing,
 * since transaction callbacks count, too.  A lock is identified by a 64-bit
 * hash of its path: two locks with the same hash are counted as one.
 *
 * The counters of locks survive a restart of the server in a file that the
 * postmaster writes at shutdown, and reads and removes at start.  A crash
 * loses them, and a damaged file is ignored.
 *
 * Locking protocol.  The hash table from id to entry, and the ids and paths of
 * all entries, are changed under the LWLock of the tranche ZK_TRANCHE, held
 * exclusively, which may be taken inside any other lock.  An entry's spinlock
 * guards its counters.  The id is changed with both locks held, and may be
 * read with either: a backend remembers the entries that it has used, and
 * needs no LWLock if the id is still the same under the spinlock.  "waits", by
 * which entries are compared, is written with the spinlock held, and read
 * without: what is read may be a moment old.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/stats.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "port/pg_crc32c.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#define ZK_TRANCHE		"zklock lock stats"

#define STATS_FILE		PGSTAT_STAT_PERMANENT_DIRECTORY "/zklock_locks.stat"
#define STATS_FORMAT	0x5A4B0004	/* changes with ZkLockStats */

/* The number of entries that a backend remembers. */
#define REMEMBERED		64

/* The numbers in a ZkCounts. */
#define COUNTS			((int) (sizeof(ZkCounts) / sizeof(int64)))

typedef struct StatsEntry
{
	slock_t		mutex;
	ZkLockStats stats;
} StatsEntry;

/* The beginning of the file; the entries follow, and their checksum. */
typedef struct StatsHeader
{
	uint32		format;
	int32		n;				/* entries */
} StatsHeader;

typedef struct IdEntry
{
	uint64		id;				/* hash key, must be first */
	int			entry;
} IdEntry;

typedef struct StatsShared
{
	/* of the instance */
	pg_atomic_uint64 reset_at;	/* a TimestampTz */
	pg_atomic_uint64 claims_expired;
	pg_atomic_uint64 counts[COUNTS];	/* a ZkCounts, without "taken" */

	/* of locks */
	int			used;			/* the entries from here on are free */
	StatsEntry	entries[FLEXIBLE_ARRAY_MEMBER];
} StatsShared;

static StatsShared *shared = NULL;
static int64 *waits;			/* of each entry, close together */
static HTAB *ids = NULL;
static LWLock *stats_lock = NULL;

/* of this backend: an entry's number, or 0, by the last bits of the id */
static int	remembered[REMEMBERED];

/* The entries, that of all other locks included. */
static int
max_entries(void)
{
	return zklock_max_tracked_locks + 1;
}

static Size
entries_size(void)
{
	return MAXALIGN(offsetof(StatsShared, entries) +
					mul_size(max_entries(), sizeof(StatsEntry)));
}

static Size
shared_size(void)
{
	return add_size(entries_size(), mul_size(max_entries(), sizeof(int64)));
}

/*
 * stats_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
stats_request_shmem(void)
{
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(hash_estimate_size(max_entries(),
											  sizeof(IdEntry)));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/* Add the counters of a lock to those of all other locks. */
static void
add_to_others(const ZkLockStats *stats)
{
	StatsEntry *others = &shared->entries[0];
	int64	   *sums = (int64 *) &others->stats.counts;
	const int64 *counts = (const int64 *) &stats->counts;

	SpinLockAcquire(&others->mutex);
	if (others->stats.since == 0 || stats->since < others->stats.since)
		others->stats.since = stats->since;
	others->stats.max_wait = Max(others->stats.max_wait, stats->max_wait);
	others->stats.max_hold = Max(others->stats.max_hold, stats->max_hold);
	for (int i = 0; i < COUNTS; i++)
		sums[i] += counts[i];
	SpinLockRelease(&others->mutex);
}

/* A free entry, or that with the least wait; the lock is held. */
static int
find_room(void)
{
	int			least = 1;

	if (shared->used < max_entries())
		return shared->used++;
	for (int i = 2; i < shared->used; i++)
		if (waits[i] < waits[least])
			least = i;
	return least;
}

/*
 * The entry of a lock, made from "stats" if missing; the lock is held.
 * Counting begins now if "stats" does not say when it began.
 */
static int
add_entry(const ZkLockStats *stats)
{
	bool		found;
	IdEntry    *entry = hash_search(ids, &stats->id, HASH_FIND, NULL);
	StatsEntry *made;
	ZkLockStats old;
	int			number;

	if (entry)
		return entry->entry;
	number = find_room();
	made = &shared->entries[number];
	SpinLockAcquire(&made->mutex);
	old = made->stats;
	made->stats = *stats;
	waits[number] = stats->counts.wait_time;
	SpinLockRelease(&made->mutex);
	if (made->stats.since == 0)
		made->stats.since = GetCurrentTimestamp();
	if (old.id != 0)
	{
		add_to_others(&old);
		(void) hash_search(ids, &old.id, HASH_REMOVE, NULL);
	}
	entry = hash_search(ids, &stats->id, HASH_ENTER, &found);
	entry->entry = number;
	return number;
}

static void
clear_entries(void)
{
	LWLockAcquire(stats_lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->used; i++)
	{
		StatsEntry *entry = &shared->entries[i];
		uint64		id = entry->stats.id;

		if (id != 0)
			(void) hash_search(ids, &id, HASH_REMOVE, NULL);
		SpinLockAcquire(&entry->mutex);
		memset(&entry->stats, 0, sizeof(entry->stats));
		SpinLockRelease(&entry->mutex);
	}
	shared->used = 1;
	LWLockRelease(stats_lock);
}

/* Read the file; false if it is damaged: then what has been read is, too. */
static bool
load_entries(FILE *file)
{
	StatsHeader header;
	ZkLockStats stats;
	pg_crc32c	crc;
	pg_crc32c	written;

	if (fread(&header, sizeof(header), 1, file) != 1 ||
		header.format != STATS_FORMAT)
		return false;
	INIT_CRC32C(crc);
	for (int i = 0; i < header.n; i++)
	{
		if (fread(&stats, sizeof(stats), 1, file) != 1)
			return false;
		COMP_CRC32C(crc, &stats, sizeof(stats));
		if (i == 0)
			shared->entries[0].stats = stats;
		else
			(void) add_entry(&stats);
	}
	FIN_CRC32C(crc);
	return fread(&written, sizeof(written), 1, file) == 1 &&
		EQ_CRC32C(crc, written) && fgetc(file) == EOF;
}

static void
read_file(void)
{
	FILE	   *file = AllocateFile(STATS_FILE, PG_BINARY_R);

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", STATS_FILE)));
		return;
	}
	if (!load_entries(file))
	{
		clear_entries();
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring invalid data in file \"%s\"", STATS_FILE)));
	}
	FreeFile(file);

	/* so that a backup does not have it, and a crash does not restore it */
	(void) unlink(STATS_FILE);
}

static bool
save_entries(FILE *file)
{
	StatsHeader header = {.format = STATS_FORMAT,.n = shared->used};
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	(void) fwrite(&header, sizeof(header), 1, file);
	for (int i = 0; i < header.n; i++)
	{
		const ZkLockStats *stats = &shared->entries[i].stats;

		COMP_CRC32C(crc, stats, sizeof(*stats));
		(void) fwrite(stats, sizeof(*stats), 1, file);
	}
	FIN_CRC32C(crc);
	(void) fwrite(&crc, sizeof(crc), 1, file);
	return !ferror(file);
}

/* At the postmaster's exit, when all other processes have ended. */
static void
write_file(int code, Datum arg pg_attribute_unused())
{
	FILE	   *file;
	bool		saved;

	if (code != 0 || shared->used == 1)
		return;
	file = AllocateFile(STATS_FILE ".tmp", PG_BINARY_W);
	saved = file != NULL && save_entries(file);
	if (file != NULL && FreeFile(file) != 0)
		saved = false;
	if (saved)
		(void) durable_rename(STATS_FILE ".tmp", STATS_FILE, LOG);
	else
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", STATS_FILE ".tmp")));
		(void) unlink(STATS_FILE ".tmp");
	}
}

/*
 * stats_startup_shmem
 *		Create or attach to the counters; AddinShmemInitLock is held.
 */
void
stats_startup_shmem(void)
{
	HASHCTL		info = {
		.keysize = sizeof(uint64),
		.entrysize = sizeof(IdEntry)
	};
	bool		found;

	shared = ShmemInitStruct(ZK_TRANCHE, shared_size(), &found);
	waits = (int64 *) ((char *) shared + entries_size());
	ids = ZkShmemInitHash("zklock lock stats ids", max_entries(),
						  &info, HASH_ELEM | HASH_BLOBS);
	stats_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
	if (!found)
	{
		pg_atomic_init_u64(&shared->reset_at, (uint64) GetCurrentTimestamp());
		pg_atomic_init_u64(&shared->claims_expired, 0);
		for (int i = 0; i < COUNTS; i++)
			pg_atomic_init_u64(&shared->counts[i], 0);
		shared->used = 1;
		for (int i = 0; i < max_entries(); i++)
		{
			memset(&shared->entries[i], 0, sizeof(StatsEntry));
			SpinLockInit(&shared->entries[i].mutex);
		}
	}

	if (IsUnderPostmaster)
		return;
	on_shmem_exit(write_file, (Datum) 0);
	if (!found && zklock_max_tracked_locks > 0)
		read_file();
}

/*
 * lock_stats_id
 *		The id of a lock: a hash of its directory's path; never 0.
 */
uint64
lock_stats_id(const char *path)
{
	uint64		id = hash_bytes_extended((const unsigned char *) path,
										 strlen(path), 0);

	return id == 0 ? 1 : id;
}

/* The entry if it is the lock's, with its spinlock held; else NULL. */
static StatsEntry *
lock_entry(int number, uint64 id)
{
	StatsEntry *entry = &shared->entries[number];

	SpinLockAcquire(&entry->mutex);
	if (entry->stats.id == id)
		return entry;
	SpinLockRelease(&entry->mutex);
	return NULL;
}

/*
 * The entry of a lock with its spinlock held, which the caller releases; NULL
 * if locks are not tracked.  A missing entry is made if the key is given; if
 * not, and there is no room for all, the lock is one of all others.
 */
static StatsEntry *
find_entry(uint64 id, const ZkKey *key)
{
	int		   *number = &remembered[id % REMEMBERED];
	StatsEntry *entry;
	IdEntry    *found;
	bool		full;

	if (zklock_max_tracked_locks == 0)
		return NULL;
	if (*number > 0 && (entry = lock_entry(*number, id)) != NULL)
		return entry;

	LWLockAcquire(stats_lock, LW_SHARED);
	found = hash_search(ids, &id, HASH_FIND, NULL);
	*number = found ? found->entry : 0;
	full = shared->used == max_entries();
	LWLockRelease(stats_lock);
	if (*number == 0 && key)
	{
		ZkLockStats stats = {.id = id};

		key_path(key, stats.path);
		LWLockAcquire(stats_lock, LW_EXCLUSIVE);
		*number = add_entry(&stats);
		LWLockRelease(stats_lock);
	}
	if (*number == 0)
		return full ? lock_entry(0, 0) : NULL;

	/* it may have been reused for another lock meanwhile */
	entry = lock_entry(*number, id);
	return entry ? entry : lock_entry(0, 0);
}

/*
 * Add to a number of the instance and of a lock, whose entry the caller has
 * found: that at "offset" of ZkCounts.
 */
static void
count(StatsEntry *entry, Size offset, int64 amount)
{
	if (amount == 0)
		return;
	pg_atomic_fetch_add_u64(&shared->counts[offset / sizeof(int64)], amount);
	if (entry)
		*(int64 *) ((char *) &entry->stats.counts + offset) += amount;
}

#define COUNT(entry, field, amount) \
	count(entry, offsetof(ZkCounts, field), amount)
#define COUNT_BUCKET(entry, field, us) \
	count(entry, offsetof(ZkCounts, field) + \
		  histogram_bucket(us) * sizeof(int64), 1)

/*
 * stats_take
 *		A backend has taken a lock that it did not hold.
 *
 * handed_off: the instance owned the lock already.  retaken: it had retained
 * the lock.  waited: the lock was not free.  wait_us: from the call to the
 * take.
 */
void
stats_take(uint64 id, const ZkKey *key, bool handed_off, bool retaken,
		   bool waited, int64 wait_us)
{
	StatsEntry *entry = find_entry(id, key);

	COUNT(entry, handed_off, handed_off);
	COUNT(entry, retaken, retaken);
	COUNT(entry, waited, waited);
	COUNT(entry, wait_time, wait_us);
	COUNT_BUCKET(entry, wait_histogram, wait_us);
	if (entry == NULL)
		return;
	entry->stats.counts.taken++;
	entry->stats.max_wait = Max(entry->stats.max_wait, wait_us);
	waits[entry - shared->entries] = entry->stats.counts.wait_time;
	SpinLockRelease(&entry->mutex);
}

/* Count an event of a lock, whose entry the caller has found. */
static void
count_event(StatsEntry *entry, Size offset)
{
	count(entry, offset, 1);
	if (entry)
		SpinLockRelease(&entry->mutex);
}

/* As find_entry(), for the lock of this slot. */
static StatsEntry *
entry_of_slot(const ZkKey *key)
{
	char		path[ZNODE_PATH_SIZE];

	key_path(key, path);
	return find_entry(lock_stats_id(path), key);
}

/*
 * stats_failure
 *		A call has ended without its lock.
 */
void
stats_failure(uint64 id, const ZkKey *key, ZkOutcome outcome)
{
	StatsEntry *entry = find_entry(id, key);

	if (outcome == ZK_NOT_IN_TIME)
		count_event(entry, offsetof(ZkCounts, timed_out));
	else if (outcome == ZK_DEADLOCKED)
		count_event(entry, offsetof(ZkCounts, deadlocks));
	else
		count_event(entry, offsetof(ZkCounts, failed));
}

/*
 * stats_release
 *		A backend gives back the last hold of a lock, which the instance may
 *		retain.
 */
void
stats_release(uint64 id, bool retained, int64 held_us)
{
	StatsEntry *entry = find_entry(id, NULL);

	COUNT(entry, retained, retained);
	COUNT(entry, hold_time, held_us);
	COUNT_BUCKET(entry, hold_histogram, held_us);
	if (entry == NULL)
		return;
	entry->stats.max_hold = Max(entry->stats.max_hold, held_us);
	SpinLockRelease(&entry->mutex);
}

/*
 * stats_lost
 *		A backend has lost the lock while it held it.
 *
 * "key" is that of its slot, here and below.  The caller may hold a partition
 * lock.
 */
void
stats_lost(const ZkKey *key)
{
	count_event(entry_of_slot(key), offsetof(ZkCounts, lost));
}

/*
 * stats_revoked
 *		The lock, which was retained, is given up, because others wait for it.
 */
void
stats_revoked(const ZkKey *key)
{
	count_event(entry_of_slot(key), offsetof(ZkCounts, revoked));
}

/*
 * stats_revoke_wait
 *		We own the lock, which another instance had retained and given up.
 */
void
stats_revoke_wait(const ZkKey *key)
{
	count_event(entry_of_slot(key), offsetof(ZkCounts, waited_revoke));
}

/*
 * stats_expired_claim
 *		A claim has ended because its ttl was over.
 */
void
stats_expired_claim(void)
{
	pg_atomic_fetch_add_u64(&shared->claims_expired, 1);
}

/*
 * stats_read
 *		Copy all counters.
 */
void
stats_read(ZkStats *stats)
{
	ZkCounts   *counts = &stats->counts;

	for (int i = 0; i < COUNTS; i++)
		((int64 *) counts)[i] = (int64) pg_atomic_read_u64(&shared->counts[i]);
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
		counts->taken += counts->wait_histogram[i];
	stats->claims_expired =
		(int64) pg_atomic_read_u64(&shared->claims_expired);
	stats->reset_at = (TimestampTz) pg_atomic_read_u64(&shared->reset_at);
}

/*
 * lock_stats_read
 *		A copy of all *n entries, palloc'd.
 *
 * The last one is that of all other locks, if any have been counted there.
 */
ZkLockStats *
lock_stats_read(int *n)
{
	ZkLockStats *copy = palloc_extended(max_entries() * sizeof(ZkLockStats),
										MCXT_ALLOC_HUGE);

	*n = 0;
	LWLockAcquire(stats_lock, LW_SHARED);
	for (int i = shared->used - 1; i >= 0; i--)
	{
		StatsEntry *entry = &shared->entries[i];

		SpinLockAcquire(&entry->mutex);
		copy[*n] = entry->stats;
		SpinLockRelease(&entry->mutex);
		*n += copy[*n].since != 0;
	}
	LWLockRelease(stats_lock);
	return copy;
}

/*
 * stats_reset
 *		Set all counters to zero, and clear all entries.
 */
void
stats_reset(void)
{
	for (int i = 0; i < COUNTS; i++)
		pg_atomic_write_u64(&shared->counts[i], 0);
	pg_atomic_write_u64(&shared->claims_expired, 0);
	pg_atomic_write_u64(&shared->reset_at, (uint64) GetCurrentTimestamp());
	clear_entries();
}
