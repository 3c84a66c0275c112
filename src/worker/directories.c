/*-------------------------------------------------------------------------
 *
 * directories.c
 *		What the worker knows of lock directories.
 *
 * Which ones exist, so that a contender can be created without making its
 * directory first; how many are made; and what else was found in them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/directories.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/znode.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "utils/hsearch.h"
#include "worker/directories.h"

/*
 * ZooKeeper removes so many idle containers a minute, if it is not configured
 * otherwise (znode.container.maxPerMinute).  How long not to warn again.
 */
#define DIRECTORIES_PER_MINUTE	10000
#define DIRECTORIES_WARN_MS		(10 * 60000)

/* Forget which lock directories exist when they become this many. */
#define MAX_KNOWN_DIRECTORIES	16384

static struct
{
	HTAB	   *known;			/* paths that have been seen to exist */
	bool		warned_of_stranger;
	bool		warned_of_persistent;
	int64		minute_ms;		/* zk_now_ms() when the minute began ... */
	int			made;			/* ... and how many were made in it */
	int64		warned_ms;		/* zk_now_ms() of the last warning; 0: none */
}			directories;

/*
 * directories_forget
 *		Forget which directories exist; to be called ahead of all else,
 *		too.
 */
void
directories_forget(void)
{
	HASHCTL		ctl;

	if (directories.known)
		hash_destroy(directories.known);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = ctl.entrysize = ZNODE_PATH_SIZE;
	directories.known = hash_create("zklock directories", 256, &ctl,
									HASH_ELEM | HASH_STRINGS);
}

/*
 * directory_is_known
 *		Has this directory been seen to exist?
 */
bool
directory_is_known(const char *path)
{
	return hash_search(directories.known, path, HASH_FIND, NULL) != NULL;
}

/*
 * directory_note
 *		This directory exists; or is not known to do so any more.
 */
void
directory_note(const char *path, bool known)
{
	if (!known)
	{
		hash_search(directories.known, path, HASH_REMOVE, NULL);
		return;
	}
	if (hash_get_num_entries(directories.known) >= MAX_KNOWN_DIRECTORIES)
		directories_forget();
	hash_search(directories.known, path, HASH_ENTER, NULL);
}

/*
 * directory_made
 *		A lock directory has been made.
 *
 * Warns if more of them are made than ZooKeeper removes: idle ones pile up.
 */
void
directory_made(void)
{
	int64		now_ms = zk_now_ms();

	directories_count();
	if (now_ms - directories.minute_ms >= 60000)
	{
		directories.minute_ms = now_ms;
		directories.made = 0;
	}
	if (++directories.made <= DIRECTORIES_PER_MINUTE ||
		(directories.warned_ms != 0 &&
		 now_ms - directories.warned_ms < DIRECTORIES_WARN_MS))
		return;
	directories.warned_ms = now_ms;
	ereport(WARNING,
			(errmsg("more than %d lock directories have been created in ZooKeeper within a minute",
					DIRECTORIES_PER_MINUTE),
			 errdetail("By default ZooKeeper removes no more than %d idle ones a minute: if this goes on, they pile up.",
					   DIRECTORIES_PER_MINUTE),
			 errhint("Use fewer different names of locks, or raise \"znode.container.maxPerMinute\" of the ZooKeeper servers.")));
}

/*
 * directory_warn
 *		Warn, once for each kind, of a child of a lock directory that is no
 *		contender: its name is not that of one, or it is persistent.
 */
void
directory_warn(const char *path, const char *child, bool persistent)
{
	bool	   *warned = persistent ? &directories.warned_of_persistent :
		&directories.warned_of_stranger;

	if (*warned)
		return;
	*warned = true;
	ereport(WARNING,
			(errmsg("ignoring znode \"%s\" in lock directory \"%s\"",
					child, path),
			 persistent ?
			 errdetail("Its name ends in a sequence number, but it is not ephemeral, so it is no contender for the lock.") :
			 errdetail("Its name does not end in a sequence number, so it is no contender for the lock."),
			 persistent ?
			 errhint("Other clients may wait for it forever: do not keep other znodes in lock directories, and do not set \"zklock.root\" to a path below another root.") :
			 errhint("Curator clients count it as one and may wait for it forever: do not keep other znodes in lock directories.")));
}
