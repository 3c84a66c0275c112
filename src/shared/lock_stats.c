/*-------------------------------------------------------------------------
 *
 * lock_stats.c
 *		Counters of single locks in shared memory.
 *
 * For the view zk_stat_locks.  There is room for zklock.max_tracked_locks
 * locks.  When it is full, a new lock takes the entry of the one that has been
 * waited for the least in total, whose counts are added to those of entry 0,
 * that of all other locks.  It allocates nothing, since transaction callbacks
 * count, too.
 *
 * A lock is identified by a 64-bit hash of its path: two locks with the same
 * hash are counted as one.
 *
 * The counters survive a restart of the server in a file that the postmaster
 * writes at shutdown, and reads and removes at start.  A crash loses them, and
 * a damaged file is ignored.
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
 *		src/shared/lock_stats.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "shared/compat.h"
#include "shared/lock_stats.h"
#include "shared/settings.h"
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

typedef struct LockStatsShared
{
	int			used;			/* the entries from here on are free */
	StatsEntry	entries[FLEXIBLE_ARRAY_MEMBER];
} LockStatsShared;

static LockStatsShared *shared = NULL;
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
	return MAXALIGN(offsetof(LockStatsShared, entries) +
					mul_size(max_entries(), sizeof(StatsEntry)));
}

static Size
shared_size(void)
{
	return add_size(entries_size(), mul_size(max_entries(), sizeof(int64)));
}

/*
 * lock_stats_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
lock_stats_request_shmem(void)
{
	Size		ids_size = hash_estimate_size(max_entries(), sizeof(IdEntry));

	RequestAddinShmemSpace(add_size(shared_size(), ids_size));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/* Add the counters of a lock to those of all other locks. */
static void
add_to_others(const ZkLockStats *stats)
{
	StatsEntry *others = &shared->entries[0];
	int64	   *sums = &others->stats.taken;
	const int64 *counts = &stats->taken;

	SpinLockAcquire(&others->mutex);
	if (others->stats.since == 0 || stats->since < others->stats.since)
		others->stats.since = stats->since;
	others->stats.max_wait = Max(others->stats.max_wait, stats->max_wait);
	others->stats.max_hold = Max(others->stats.max_hold, stats->max_hold);
	for (int i = 0; &sums[i] < (int64 *) (&others->stats + 1); i++)
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
	waits[number] = stats->wait_time;
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
		lock_stats_reset();
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

	if (code != 0 || shared == NULL || shared->used == 1)
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
 * lock_stats_startup_shmem
 *		Create or attach to the counters; for the shmem_startup_hook.
 */
void
lock_stats_startup_shmem(void)
{
	HASHCTL		info = {
		.keysize = sizeof(uint64),
		.entrysize = sizeof(IdEntry)
	};
	bool		found;

	/* after a restart within the postmaster */
	shared = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct(ZK_TRANCHE, shared_size(), &found);
	waits = (int64 *) ((char *) shared + entries_size());
	ids = ZkShmemInitHash("zklock lock stats ids", max_entries(),
						  &info, HASH_ELEM | HASH_BLOBS);
	stats_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
	if (!found)
	{
		shared->used = 1;
		for (int i = 0; i < max_entries(); i++)
		{
			memset(&shared->entries[i], 0, sizeof(StatsEntry));
			SpinLockInit(&shared->entries[i].mutex);
		}
	}
	LWLockRelease(AddinShmemInitLock);

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
 * lock_stats_take
 *		A backend has taken the lock; see stats_count_take().
 */
void
lock_stats_take(uint64 id, const ZkKey *key, bool handed_off, bool retaken,
				bool waited, int64 wait_us)
{
	StatsEntry *entry = find_entry(id, key);
	int			bucket = histogram_bucket(wait_us);

	if (entry == NULL)
		return;
	entry->stats.taken++;
	entry->stats.handed_off += handed_off;
	entry->stats.retaken += retaken;
	entry->stats.waited += waited;
	entry->stats.wait_time += wait_us;
	entry->stats.max_wait = Max(entry->stats.max_wait, wait_us);
	entry->stats.wait_histogram[bucket]++;
	waits[entry - shared->entries] = entry->stats.wait_time;
	SpinLockRelease(&entry->mutex);
}

/*
 * lock_stats_failure
 *		A call has ended without the lock.
 */
void
lock_stats_failure(uint64 id, const ZkKey *key, ZkOutcome outcome)
{
	StatsEntry *entry = find_entry(id, key);

	if (entry == NULL)
		return;
	if (outcome == ZK_NOT_IN_TIME)
		entry->stats.timed_out++;
	else if (outcome == ZK_DEADLOCKED)
		entry->stats.deadlocks++;
	else
		entry->stats.failed++;
	SpinLockRelease(&entry->mutex);
}

/*
 * lock_stats_release
 *		A backend gives back the lock, which the instance may retain.
 */
void
lock_stats_release(uint64 id, bool retained, int64 held_us)
{
	StatsEntry *entry = find_entry(id, NULL);
	int			bucket = histogram_bucket(held_us);

	if (entry == NULL)
		return;
	entry->stats.retained += retained;
	entry->stats.hold_time += held_us;
	entry->stats.max_hold = Max(entry->stats.max_hold, held_us);
	entry->stats.hold_histogram[bucket]++;
	SpinLockRelease(&entry->mutex);
}

/* Count an event of the lock with this key, in the counter at "offset". */
static void
count_event(const ZkKey *key, Size offset)
{
	char		path[ZNODE_PATH_SIZE];
	StatsEntry *entry;

	key_path(key, path);
	entry = find_entry(lock_stats_id(path), key);
	if (entry == NULL)
		return;
	++*(int64 *) ((char *) &entry->stats + offset);
	SpinLockRelease(&entry->mutex);
}

/*
 * lock_stats_lost
 *		A backend has lost the lock while it held it.
 *
 * "key" is that of its slot, here and below.  The caller may hold a partition
 * lock.
 */
void
lock_stats_lost(const ZkKey *key)
{
	count_event(key, offsetof(ZkLockStats, lost));
}

/*
 * lock_stats_revoked
 *		The lock, which was retained, is given up, because others wait for it.
 */
void
lock_stats_revoked(const ZkKey *key)
{
	count_event(key, offsetof(ZkLockStats, revoked));
}

/*
 * lock_stats_revoke_wait
 *		We own the lock, which another instance had retained and given up.
 */
void
lock_stats_revoke_wait(const ZkKey *key)
{
	count_event(key, offsetof(ZkLockStats, waited_revoke));
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
 * lock_stats_reset
 *		Clear all entries.
 */
void
lock_stats_reset(void)
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
