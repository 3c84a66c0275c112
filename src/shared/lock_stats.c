/*-------------------------------------------------------------------------
 *
 * lock_stats.c
 *		Counters of single locks in shared memory.
 *
 * For the view zk_stat_locks.  There is room for zklock.max_tracked_locks
 * locks.  When it is full, a new lock replaces one that is little used, found
 * by a clock sweep: it halves the usage of each entry that it passes, and
 * takes the first with none left, or after STEPS entries the one that had the
 * least.  It allocates nothing, since transaction callbacks count, too.
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
 * guards its counters and usage.  The id is changed with both locks held, and
 * may be read with either: a backend remembers the entries that it has used,
 * and needs no LWLock if the id is still the same under the spinlock.
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
#define STATS_FORMAT	0x5A4B0003	/* changes with ZkLockStats */

/* The most entries that one clock sweep looks at. */
#define STEPS			32

/* The number of entries that a backend remembers. */
#define REMEMBERED		64

typedef struct StatsEntry
{
	slock_t		mutex;
	uint64		usage;
	ZkLockStats stats;
} StatsEntry;

/* The beginning of the file; the entries follow. */
typedef struct StatsHeader
{
	uint32		format;
	int32		n;				/* entries */
	pg_crc32c	crc;			/* of all that follows */
} StatsHeader;

typedef struct IdEntry
{
	uint64		id;				/* hash key, must be first */
	int			entry;
} IdEntry;

typedef struct LockStatsShared
{
	int			used;			/* the entries from here on are free */
	int			hand;
	StatsEntry	entries[FLEXIBLE_ARRAY_MEMBER];
} LockStatsShared;

static LockStatsShared *shared = NULL;
static HTAB *ids = NULL;
static LWLock *stats_lock = NULL;

/* of this backend: an entry's number plus 1, by the last bits of the id */
static int	remembered[REMEMBERED];

static Size
shared_size(void)
{
	return offsetof(LockStatsShared, entries) +
		mul_size(zklock_max_tracked_locks, sizeof(StatsEntry));
}

/*
 * lock_stats_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
lock_stats_request_shmem(void)
{
	Size		ids_size = hash_estimate_size(Max(zklock_max_tracked_locks, 1),
										  sizeof(IdEntry));

	RequestAddinShmemSpace(add_size(shared_size(), ids_size));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/* A free entry, or a little used one; the lock is held. */
static int
find_room(void)
{
	int			victim = -1;
	uint64		least = 0;

	if (shared->used < zklock_max_tracked_locks)
		return shared->used++;
	for (int i = 0; i < STEPS && (victim < 0 || least > 0); i++)
	{
		int			number = shared->hand;
		StatsEntry *entry = &shared->entries[number];
		uint64		usage;

		shared->hand = (number + 1) % zklock_max_tracked_locks;
		SpinLockAcquire(&entry->mutex);
		usage = entry->usage;
		entry->usage /= 2;
		SpinLockRelease(&entry->mutex);
		if (victim < 0 || usage < least)
		{
			victim = number;
			least = usage;
		}
	}
	(void) hash_search(ids, &shared->entries[victim].stats.id, HASH_REMOVE,
					   NULL);
	return victim;
}

/* The entry of a lock, made if missing; the lock is held. */
static int
add_entry(uint64 id, const char *path)
{
	bool		found;
	IdEntry    *entry = hash_search(ids, &id, HASH_FIND, NULL);
	int			number;
	StatsEntry *made;

	if (entry)
		return entry->entry;
	number = find_room();
	made = &shared->entries[number];
	SpinLockAcquire(&made->mutex);
	memset(&made->stats, 0, sizeof(made->stats));
	made->usage = 0;
	made->stats.id = id;
	SpinLockRelease(&made->mutex);
	strlcpy(made->stats.path, path, sizeof(made->stats.path));
	made->stats.since = GetCurrentTimestamp();
	entry = hash_search(ids, &id, HASH_ENTER, &found);
	entry->entry = number;
	return number;
}

/* Read the header; true if the whole file is what was written. */
static bool
check_file(FILE *file, StatsHeader *header)
{
	ZkLockStats stats;
	pg_crc32c	crc;

	if (fread(header, sizeof(*header), 1, file) != 1 ||
		header->format != STATS_FORMAT)
		return false;
	INIT_CRC32C(crc);
	for (int i = 0; i < header->n; i++)
	{
		if (fread(&stats, sizeof(stats), 1, file) != 1)
			return false;
		COMP_CRC32C(crc, &stats, sizeof(stats));
	}
	FIN_CRC32C(crc);
	return EQ_CRC32C(crc, header->crc) && fgetc(file) == EOF;
}

/* Read the entries; false, and nothing is read, if the file is damaged. */
static bool
load_entries(FILE *file)
{
	StatsHeader header;
	ZkLockStats stats;

	if (!check_file(file, &header) ||
		fseek(file, sizeof(header), SEEK_SET) != 0)
		return false;
	for (int i = 0; i < Min(header.n, zklock_max_tracked_locks); i++)
	{
		StatsEntry *entry;

		if (fread(&stats, sizeof(stats), 1, file) != 1)
			return false;
		entry = &shared->entries[add_entry(stats.id, stats.path)];
		entry->stats = stats;
		entry->usage = stats.taken;
	}
	return true;
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
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring invalid data in file \"%s\"", STATS_FILE)));
	FreeFile(file);

	/* so that a backup does not have it, and a crash does not restore it */
	(void) unlink(STATS_FILE);
}

static bool
save_entries(FILE *file)
{
	StatsHeader header = {.format = STATS_FORMAT,.n = shared->used};

	INIT_CRC32C(header.crc);
	for (int i = 0; i < header.n; i++)
		COMP_CRC32C(header.crc, &shared->entries[i].stats,
					sizeof(ZkLockStats));
	FIN_CRC32C(header.crc);
	if (fwrite(&header, sizeof(header), 1, file) != 1)
		return false;
	for (int i = 0; i < header.n; i++)
		if (fwrite(&shared->entries[i].stats, sizeof(ZkLockStats), 1,
				   file) != 1)
			return false;
	return true;
}

/* At the postmaster's exit, when all other processes have ended. */
static void
write_file(int code, Datum arg pg_attribute_unused())
{
	FILE	   *file;
	bool		saved;

	if (code != 0 || shared == NULL || shared->used == 0)
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
	ids = ZkShmemInitHash("zklock lock stats ids",
						  Max(zklock_max_tracked_locks, 1),
						  &info, HASH_ELEM | HASH_BLOBS);
	stats_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
	if (!found)
	{
		shared->used = shared->hand = 0;
		for (int i = 0; i < zklock_max_tracked_locks; i++)
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
	{
		entry->usage++;
		return entry;
	}
	SpinLockRelease(&entry->mutex);
	return NULL;
}

/*
 * The entry of a lock with its spinlock held, which the caller releases; NULL
 * if locks are not tracked.  A missing entry is made if the key is given.
 */
static StatsEntry *
find_entry(uint64 id, const ZkKey *key)
{
	int		   *last = &remembered[id % REMEMBERED];
	StatsEntry *entry;
	IdEntry    *found;
	int			number = -1;

	if (zklock_max_tracked_locks == 0)
		return NULL;
	if (*last > 0 && (entry = lock_entry(*last - 1, id)) != NULL)
		return entry;

	LWLockAcquire(stats_lock, LW_SHARED);
	found = hash_search(ids, &id, HASH_FIND, NULL);
	if (found)
		number = found->entry;
	LWLockRelease(stats_lock);
	if (number < 0 && key)
	{
		char		path[ZNODE_PATH_SIZE];

		key_path(key, path);
		LWLockAcquire(stats_lock, LW_EXCLUSIVE);
		number = add_entry(id, path);
		LWLockRelease(stats_lock);
	}
	if (number < 0)
		return NULL;
	*last = number + 1;

	/* if the entry was reused for another lock, this event is lost */
	return lock_entry(number, id);
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

/* The entry of the lock with this key, as find_entry(). */
static StatsEntry *
find_entry_of(const ZkKey *key)
{
	char		path[ZNODE_PATH_SIZE];

	key_path(key, path);
	return find_entry(lock_stats_id(path), key);
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
	StatsEntry *entry = find_entry_of(key);

	if (entry == NULL)
		return;
	entry->stats.lost++;
	SpinLockRelease(&entry->mutex);
}

/*
 * lock_stats_revoked
 *		The lock, which was retained, is given up, because others wait for it.
 */
void
lock_stats_revoked(const ZkKey *key)
{
	StatsEntry *entry = find_entry_of(key);

	if (entry == NULL)
		return;
	entry->stats.revoked++;
	SpinLockRelease(&entry->mutex);
}

/*
 * lock_stats_revoke_wait
 *		We own the lock, which another instance had retained and given up.
 */
void
lock_stats_revoke_wait(const ZkKey *key)
{
	StatsEntry *entry = find_entry_of(key);

	if (entry == NULL)
		return;
	entry->stats.waited_revoke++;
	SpinLockRelease(&entry->mutex);
}

/*
 * lock_stats_read
 *		A copy of all *n entries, palloc'd.
 */
ZkLockStats *
lock_stats_read(int *n)
{
	ZkLockStats *copy = palloc_extended(Max(zklock_max_tracked_locks, 1) *
										sizeof(ZkLockStats), MCXT_ALLOC_HUGE);

	LWLockAcquire(stats_lock, LW_SHARED);
	for (int i = 0; i < shared->used; i++)
	{
		StatsEntry *entry = &shared->entries[i];

		SpinLockAcquire(&entry->mutex);
		copy[i] = entry->stats;
		SpinLockRelease(&entry->mutex);
	}
	*n = shared->used;
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

		(void) hash_search(ids, &id, HASH_REMOVE, NULL);
		SpinLockAcquire(&entry->mutex);
		entry->stats.id = 0;
		SpinLockRelease(&entry->mutex);
	}
	shared->used = shared->hand = 0;
	LWLockRelease(stats_lock);
}
