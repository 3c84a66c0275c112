/*-------------------------------------------------------------------------
 *
 * seen.c
 *		Which lock directories have been seen to exist.
 *
 * To make a directory that exists is one more write of ZooKeeper's log for a
 * lock, which costs more than all the rest of the lock when many are taken at
 * once.  So there is room for more directories than a cluster has locks.
 *
 * A hash of the path stands for it, in 2 MB of which only what is used takes
 * memory.  A directory that is taken for another, or has been removed since, is
 * found missing, and made then.  In a full bucket the one that was seen longest
 * ago makes room; with 100,000 directories 2 in 100 are forgotten by that.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/seen.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "worker/lock/seen.h"

#define SEEN_BUCKETS	65536
#define SEEN_IN_BUCKET	4

/* Hashes, those seen last first; 0: free.  NULL: nothing has been seen. */
static uint64 (*seen)[SEEN_IN_BUCKET] = NULL;

static uint64
hash_path(const char *path)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) path,
										   strlen(path), 0);

	return hash == 0 ? 1 : hash;
}

/* The hash's place in its bucket, or the last one. */
static int
find_place(const uint64 *bucket, uint64 hash)
{
	int			place = 0;

	while (place < SEEN_IN_BUCKET - 1 && bucket[place] != hash)
		place++;
	return place;
}

/*
 * seen_forget_all
 *		Nothing has been seen any more.
 */
void
seen_forget_all(void)
{
	free(seen);
	seen = NULL;
}

/*
 * seen_note
 *		The directory has been seen; or it is not known to exist any more.
 *
 * Without memory nothing is noted.
 */
void
seen_note(const char *path, bool exists)
{
	uint64		hash = hash_path(path);
	uint64	   *bucket;
	int			place;

	/* not palloc0(), which would use all of it */
	if (seen == NULL)
		seen = calloc(SEEN_BUCKETS, sizeof(seen[0]));
	if (seen == NULL)
		return;
	bucket = seen[hash % SEEN_BUCKETS];
	place = find_place(bucket, hash);
	if (exists)
	{
		memmove(&bucket[1], &bucket[0], place * sizeof(bucket[0]));
		bucket[0] = hash;
	}
	else if (bucket[place] == hash)
		bucket[place] = 0;
}

/*
 * seen_has
 *		Has the directory been seen to exist?
 */
bool
seen_has(const char *path)
{
	uint64		hash = hash_path(path);
	const uint64 *bucket;

	if (seen == NULL)
		return false;
	bucket = seen[hash % SEEN_BUCKETS];
	return bucket[find_place(bucket, hash)] == hash;
}
