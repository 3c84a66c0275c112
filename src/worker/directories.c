/*-------------------------------------------------------------------------
 *
 * directories.c
 *		What the worker knows of lock directories.
 *
 * It knows which directories exist, so that a contender can be created without
 * making its directory first; which number owns the lock with nothing read;
 * how many directories are made; and what else was found in them.
 *
 * Making a directory that exists is one more write of ZooKeeper's log, which
 * costs more than the rest of the lock when many locks are taken at once.  So
 * there is room for more directories than an instance has locks.  A directory
 * is represented by a hash of its path, in 2 MB of which only the used part
 * takes memory.  One that was mistaken for another, or has been removed, is
 * found missing, and is made then.  In a full bucket the hash seen longest ago
 * is replaced; with 100,000 directories 2 % are forgotten that way.
 *
 * Ownership with nothing read (src/ownership.md has the proof,
 * core/lock/succession.c the state) needs a watch of the directory.  A get
 * sets it, sent before our owner's node is deleted, in the same flight.  From
 * then on a cycle of create and delete reads nothing, as long as no other
 * client comes and the directory exists.  So the first cycle with a name reads
 * twice, or once in a new directory, and later ones do not read.
 *
 * The library keeps these watches, and would set all of them again when it
 * reconnects, in one request.  So they end with the connection
 * (Request.brief); in case the library is faster than the worker, their paths
 * are limited to MAX_WATCH_BYTES, half of what a server accepts.  That is room
 * for 16,000 names of 28 bytes; a watch takes some 200 bytes here, as many in
 * the library, and fewer in the server.
 *
 * While there is room, a directory is watched when an owner first leaves it.
 * When there is none, a get is sent only for a name that is used again, more
 * often than those whose watches it replaces: those left longest ago, if at
 * least IDLE_FACTOR times as long ago as the last use of this name.  So names
 * used once only cost the read of their queue; and of more names than there is
 * room for, used in turn, as many as there is room for stay watched.  If
 * always the one used longest ago were replaced, none would be watched when
 * its turn comes.
 *
 * Besides the watched ones, MAX_UNWATCHED directories are remembered; the one
 * used longest ago is forgotten first.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/directories.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/lock/succession.h"
#include "core/lock/znode.h"
#include "lib/ilist.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/text.h"
#include "utils/hsearch.h"
#include "worker/directories.h"
#include "worker/zookeeper/session.h"

/*
 * ZooKeeper removes at most so many idle containers a minute by default
 * (znode.container.maxPerMinute); and the pause between two warnings.
 */
#define DIRECTORIES_PER_MINUTE	10000
#define DIRECTORIES_WARN_MS		(10 * 60000)

/* The most lock directories that are remembered, watched and unwatched. */
#define MAX_WATCHED			16384
#define MAX_UNWATCHED		16384

/* The limit of the paths of their watches, with 4 bytes for each. */
#define MAX_WATCH_BYTES		(512 * 1024)

/*
 * A watch is replaced by another directory's if it has been of no use for this
 * multiple of the time after which the other's name was used again.
 */
#define IDLE_FACTOR			4

/* The table of directories that have been seen. */
#define SEEN_BUCKETS		65536
#define SEEN_IN_BUCKET		4

/* A lock directory. */
typedef struct Directory
{
	char		path[ZNODE_PATH_SIZE];	/* hash key, must be first */
	uint32		owner;			/* of the get that watches it; 0: not
								 * watched */
	int64		left_ms;		/* zk_now_ms() when an owner of ours left it;
								 * 0: never */
	Succession	succession;
	dlist_node	node;			/* in one of the lists of "directories" */
} Directory;

static struct
{
	HTAB	   *by_path;		/* of Directories */
	dlist_head	watched;		/* Directories, the last used at the end */
	dlist_head	unwatched;		/* the same */
	int			nwatched;
	int			nunwatched;
	Size		watch_bytes;	/* of the paths of those that are watched */
	bool		warned_of_stranger;
	bool		warned_of_persistent;
	int64		minute_ms;		/* zk_now_ms() when the minute began ... */
	int			made;			/* ... and how many were made since */
	int64		warned_ms;		/* zk_now_ms() of the last warning; 0: none */
}			directories;

/* Hashes, the last seen first; 0: free.  NULL: no directory has been seen. */
static uint64 (*seen)[SEEN_IN_BUCKET] = NULL;

static uint64
hash_path(const char *path)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) path,
										   strlen(path), 0);

	return hash == 0 ? 1 : hash;
}

/* The index of the hash in its bucket, or the last index. */
static int
find_place(const uint64 *bucket, uint64 hash)
{
	int			place = 0;

	while (place < SEEN_IN_BUCKET - 1 && bucket[place] != hash)
		place++;
	return place;
}

/*
 * Note that the directory was seen, or is not known to exist any more.
 * Without memory nothing is noted.
 */
static void
note_seen(const char *path, bool exists)
{
	uint64		hash = hash_path(path);
	uint64	   *bucket;
	int			place;

	/* unlike palloc0(), this does not use all of the memory */
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

static void on_answer(void *data, const RequestAnswer *in);

/*
 * directories_forget
 *		Forget all directories, because the session is over; also called at
 *		the beginning.
 */
void
directories_forget(void)
{
	HASHCTL		ctl = {
		.keysize = ZNODE_PATH_SIZE,
		.entrysize = sizeof(Directory)
	};
	HASH_SEQ_STATUS scan;
	Directory  *directory;

	if (directories.by_path)
	{
		hash_seq_init(&scan, directories.by_path);
		while ((directory = hash_seq_search(&scan)) != NULL)
			session_remove_owner(directory->owner);
		hash_destroy(directories.by_path);
	}
	directories.by_path = hash_create("zklock directories", 256, &ctl,
									  HASH_ELEM | HASH_STRINGS);
	dlist_init(&directories.watched);
	dlist_init(&directories.unwatched);
	directories.nwatched = directories.nunwatched = 0;
	directories.watch_bytes = 0;
	free(seen);
	seen = NULL;
}

/* The bytes of the path in the request that sets watches again. */
static Size
watch_bytes(const Directory *directory)
{
	return sizeof(int32) + strlen(directory->path);
}

static void
send(const Directory *directory, RequestKind kind)
{
	Request		op = {
		.kind = kind,
		.serial = directory->succession.serial,
		.path = directory->path,
		.brief = true
	};

	session_submit(directory->owner, &op);
}

/* Forget the unwatched directory used longest ago. */
static void
forget_oldest(void)
{
	dlist_node *node = dlist_pop_head_node(&directories.unwatched);
	Directory  *directory = dlist_container(Directory, node, node);

	directories.nunwatched--;
	hash_search(directories.by_path, directory->path, HASH_REMOVE, NULL);
}

/* Put the directory into the list of unwatched ones. */
static void
add_unwatched(Directory *directory)
{
	if (directories.nunwatched == MAX_UNWATCHED)
		forget_oldest();
	directory->owner = 0;
	dlist_push_tail(&directories.unwatched, &directory->node);
	directories.nunwatched++;
}

/* The watched directory is no longer watched, or is not to be. */
static void
forget_watch(Directory *directory)
{
	session_remove_owner(directory->owner);
	directories.watch_bytes -= watch_bytes(directory);
	directories.nwatched--;
	dlist_delete(&directory->node);
	add_unwatched(directory);
}

static void
unwatch(Directory *directory)
{
	send(directory, REQUEST_UNWATCH);
	succession_fired(&directory->succession, directory->succession.serial);
	forget_watch(directory);
}

/*
 * Make room for a watch of this directory, which an owner of ours is leaving.
 * Returns false if there is none.
 */
static bool
make_room(const Directory *directory, int64 now_ms)
{
	while (directories.nwatched == MAX_WATCHED ||
		   directories.watch_bytes + watch_bytes(directory) > MAX_WATCH_BYTES)
	{
		Directory  *oldest = dlist_head_element(Directory, node,
												&directories.watched);

		if (directory->left_ms == 0 ||
			now_ms - oldest->left_ms <=
			IDLE_FACTOR * (now_ms - directory->left_ms))
			return false;
		unwatch(oldest);
	}
	return true;
}

static void
watch(Directory *directory)
{
	dlist_delete(&directory->node);
	directories.nunwatched--;
	directory->owner = session_add_owner(on_answer, directory);
	dlist_push_tail(&directories.watched, &directory->node);
	directories.nwatched++;
	directories.watch_bytes += watch_bytes(directory);
	succession_watch(&directory->succession, directory->owner);
	send(directory, REQUEST_WATCH);
}

static Directory *
find(const char *path)
{
	return hash_search(directories.by_path, path, HASH_FIND, NULL);
}

static Directory *
find_or_make(const char *path)
{
	bool		found;
	Directory  *directory = hash_search(directories.by_path, path, HASH_ENTER,
										&found);

	if (found)
		return directory;
	directory->left_ms = 0;
	succession_init(&directory->succession);
	add_unwatched(directory);
	return directory;
}

/* The directory is used: it is to be forgotten last. */
static void
touch(Directory *directory)
{
	dlist_move_tail(directory->owner ? &directories.watched :
					&directories.unwatched, &directory->node);
}

/*
 * The connection is lost, and perhaps the session.  Where no watch was asked
 * for, nothing is known that could be doubted.
 */
void
directories_disconnect(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &directories.watched)
	{
		Directory  *directory = dlist_container(Directory, node, iter.cur);

		succession_disconnect(&directory->succession);
		if (directory->succession.watch == SUCCESSION_UNWATCHED)
			forget_watch(directory);
	}
}

/* The get of a directory has been answered, or its watch has fired. */
static void
on_answer(void *data, const RequestAnswer *in)
{
	Directory  *directory = data;

	if (in->event == REQUEST_DONE)
		succession_watched(&directory->succession, in->serial,
						   in->result == REQUEST_OK);
	else
		succession_fired(&directory->succession, in->serial);
	if (in->event == REQUEST_NODE_DELETED)
	{
		note_seen(directory->path, false);
		session_directory_deleted(directory->path);
	}
	if (directory->succession.watch == SUCCESSION_UNWATCHED)
		forget_watch(directory);
}

/* Has this directory been seen to exist? */
bool
directory_is_known(const char *path)
{
	uint64		hash = hash_path(path);
	const uint64 *bucket;

	if (seen == NULL)
		return false;
	bucket = seen[hash % SEEN_BUCKETS];
	return bucket[find_place(bucket, hash)] == hash;
}

/* Note whether this directory is known to exist. */
void
directory_note(const char *path, bool known)
{
	Directory  *directory = known ? find_or_make(path) : find(path);

	note_seen(path, known);
	if (directory == NULL)
		return;
	if (known)
		touch(directory);
	else
		succession_doubt(&directory->succession);
}

/*
 * Is our next contender likely to own the lock with nothing read?  If we used
 * the directory, and it is not known to exist any more, it will be a new one.
 */
bool
directory_owns_unread(const char *path)
{
	Directory  *directory = find(path);

	return directory != NULL &&
		(!directory_is_known(path) ||
		 succession_next(&directory->succession) != 0);
}

/*
 * directory_next
 *		The number that owns the lock with nothing read, or 0.
 *
 * To be called when the create is answered, not earlier.
 */
int32_t
directory_next(const char *path)
{
	Directory  *directory = find(path);

	return directory == NULL ? 0 : succession_next(&directory->succession);
}

/*
 * directory_leave
 *		The contender with this number, an exclusive owner, is about to be
 *		deleted.
 */
void
directory_leave(const char *path, int32_t number)
{
	Directory  *directory = find_or_make(path);
	int64		now_ms = zk_now_ms();

	touch(directory);
	if (directory->owner == 0 && make_room(directory, now_ms))
		watch(directory);
	directory->left_ms = now_ms;
	succession_leave(&directory->succession, number);
}

/* The delete of a contender is answered; "deleted": it is done. */
void
directory_left(const char *path, int32_t number, bool deleted)
{
	Directory  *directory = find(path);

	if (directory != NULL)
		succession_left(&directory->succession, number, deleted);
}

/*
 * directory_made
 *		Note the answer to the creation of a lock directory.
 *
 * Warns if more directories are made than ZooKeeper removes, so that idle ones
 * pile up.
 */
void
directory_made(const RequestAnswer *in)
{
	int64		now_ms = zk_now_ms();

	if (in->result != REQUEST_OK || in->error != 0)
		return;
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
			 errdetail("By default ZooKeeper removes no more than %d idle ones a minute; the others pile up.",
					   DIRECTORIES_PER_MINUTE),
			 errhint("Use fewer different lock names, or raise \"znode.container.maxPerMinute\" on the ZooKeeper servers.")));
}

/*
 * directory_warn
 *		Warn, once for each kind, of a child of a lock directory that is no
 *		contender, by its name or, if it has that of one, because it is
 *		persistent.
 */
void
directory_warn(const char *path, const char *child)
{
	ZnodeContender contender;
	bool		persistent = znode_parse_contender(child, &contender);
	bool	   *warned = persistent ? &directories.warned_of_persistent :
		&directories.warned_of_stranger;

	if (*warned)
		return;
	*warned = true;
	ereport(WARNING,
			(errmsg("ignoring znode \"%s\" in lock directory \"%s\"",
					text_for_log(child), path),
			 persistent ?
			 errdetail("Its name ends in a sequence number, but it is not ephemeral, so it is not a contender for the lock.") :
			 errdetail("Its name does not end in a sequence number, so it is not a contender for the lock."),
			 persistent ?
			 errhint("Other clients may wait for it forever.  Do not keep other znodes in lock directories, and do not set \"zklock.root\" to a path below another root.") :
			 errhint("Curator clients count it as a contender and may wait for it forever.  Do not keep other znodes in lock directories.")));
}
