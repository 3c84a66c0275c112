/*-------------------------------------------------------------------------
 *
 * directories.c
 *		What the worker knows of lock directories.
 *
 * Which ones exist, so that a contender can be created without making its
 * directory first; which number owns the lock with nothing read; how many are
 * made; and what else was found in them.
 *
 * To make a directory that exists is one more write of ZooKeeper's log for a
 * lock, which costs more than all the rest of the lock when many are taken at
 * once.  So there is room for more directories than an instance has locks.  A
 * hash of the path stands for it, in 2 MB of which only what is used takes
 * memory.  A directory that is taken for another, or has been removed since,
 * is found missing, and made then.  In a full bucket the one that was seen
 * longest ago makes room; with 100,000 directories 2 in 100 are forgotten by
 * that.
 *
 * Ownership with nothing read (src/ownership.md has the proof,
 * core/lock/succession.c what is remembered for it) takes a watch of the
 * directory, which is set by a get in the flight in which our owner's node is
 * deleted, ahead of that.  From then on a cycle of create and delete reads
 * nothing, for as long as nobody else comes, and the directory is not
 * deleted.  So the first cycle with a name reads twice, or once in a new
 * directory, and those that follow do not read.
 *
 * The library keeps a watch for each directory, and would set all of them
 * again when it reconnects, in one request.  So they end with the connection
 * (Request.brief), and there are no more than MAX_WATCH_BYTES of them,
 * half of what a server takes in a request: that is for the case that the
 * library is faster than the worker.  It is room for 16,000 names of 28
 * bytes; a watch takes some 200 bytes here, the same in the library, and less
 * in the server.
 *
 * While there is room, a directory is watched when an owner leaves it for the
 * first time.  When there is none, a get is sent for names only that come
 * again, and that come more often than those whose watches have to be removed
 * for it: the ones that were left longest ago, if that is at least
 * IDLE_FACTOR times as long as it took this name to come again.  So names
 * that are used only once cost no more than reading their queue; and of more
 * names than there is room for, used in turn, as many as there is room for
 * stay watched.  If always the one that was used longest ago made room, none
 * would be watched when its turn comes.
 *
 * Beside those that are watched, MAX_UNWATCHED directories are remembered;
 * the one that was used longest ago is forgotten first.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/directories.c
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
#include "worker/lock/directories_private.h"
#include "worker/zookeeper/session.h"

/*
 * ZooKeeper removes so many idle containers a minute, if it is not configured
 * otherwise (znode.container.maxPerMinute).  How long not to warn again.
 */
#define DIRECTORIES_PER_MINUTE	10000
#define DIRECTORIES_WARN_MS		(10 * 60000)

/* The most lock directories that are remembered, watched or not. */
#define MAX_WATCHED			16384
#define MAX_UNWATCHED		16384

/* The most that their watches' paths may have, each with 4 bytes more. */
#define MAX_WATCH_BYTES		(512 * 1024)

/*
 * A watch is removed for that of another directory if it has not been of use
 * for so many times as long as it took the other one's name to come again.
 */
#define IDLE_FACTOR			4

/* Of the directories that have been seen to exist. */
#define SEEN_BUCKETS		65536
#define SEEN_IN_BUCKET		4

/* A lock directory. */
typedef struct Directory
{
	char		path[ZNODE_PATH_SIZE];	/* hash key, must be first */
	bool		deleted;		/* its watch told so, and nobody has since
								 * made it for us */
	bool		watched;
	int64		left_ms;		/* zk_now_ms() when an owner of ours left it;
								 * 0: none has */
	Succession	succession;
	dlist_node	node;			/* in one of the lists of "directories" */
} Directory;

/* The get that watches a directory. */
typedef struct DirectoryWatch
{
	uint32		serial;			/* hash key, must be first */
	Directory  *directory;
} DirectoryWatch;

static struct
{
	HTAB	   *by_path;		/* of Directories */
	HTAB	   *by_serial;		/* of DirectoryWatches, of those watched */
	dlist_head	watched;		/* Directories, the latest used at the end */
	dlist_head	unwatched;		/* the same */
	int			nwatched;
	int			nunwatched;
	Size		watch_bytes;	/* of the paths of those that are watched */
	uint32		last_serial;
	uint32		owner;			/* of our requests; 0: not yet */
	bool		warned_of_stranger;
	bool		warned_of_persistent;
	int64		minute_ms;		/* zk_now_ms() when the minute began ... */
	int			made;			/* ... and how many were made in it */
	int64		warned_ms;		/* zk_now_ms() of the last warning; 0: none */
}			directories;

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
 * The directory has been seen; or it is not known to exist any more.  Without
 * memory nothing is noted.
 */
static void
note_seen(const char *path, bool exists)
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

static HTAB *
create_table(const char *name, Size keysize, Size entrysize, int kind)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	return hash_create(name, 256, &ctl, HASH_ELEM | kind);
}

static void on_answer(void *data, const RequestAnswer *in);

/*
 * directories_forget
 *		Forget all directories, as the session is over; to be called ahead of
 *		all else, too.
 */
void
directories_forget(void)
{
	if (directories.by_path)
	{
		hash_destroy(directories.by_path);
		hash_destroy(directories.by_serial);
	}
	if (directories.owner == 0)
		directories.owner = session_add_owner(on_answer, NULL);
	directories.by_path = create_table("zklock directories", ZNODE_PATH_SIZE,
									   sizeof(Directory), HASH_STRINGS);
	directories.by_serial = create_table("zklock directory watches",
										 sizeof(uint32),
										 sizeof(DirectoryWatch), HASH_BLOBS);
	dlist_init(&directories.watched);
	dlist_init(&directories.unwatched);
	directories.nwatched = directories.nunwatched = 0;
	directories.watch_bytes = 0;
	free(seen);
	seen = NULL;
}

/* What the path takes in the request in which watches are set again. */
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

	session_submit(0, directories.owner, &op);
}

/* Forget the unwatched directory that was used longest ago. */
static void
forget_oldest(void)
{
	dlist_node *node = dlist_pop_head_node(&directories.unwatched);
	Directory  *directory = dlist_container(Directory, node, node);

	directories.nunwatched--;
	hash_search(directories.by_path, directory->path, HASH_REMOVE, NULL);
}

/* Have the directory in the list for those that are not watched. */
static void
add_unwatched(Directory *directory)
{
	if (directories.nunwatched == MAX_UNWATCHED)
		forget_oldest();
	directory->watched = false;
	dlist_push_tail(&directories.unwatched, &directory->node);
	directories.nunwatched++;
}

/* The watch of the directory is none any more, or is not to be one. */
static void
forget_watch(Directory *directory)
{
	if (!directory->watched)
		return;
	hash_search(directories.by_serial, &directory->succession.serial,
				HASH_REMOVE, NULL);
	directories.watch_bytes -= watch_bytes(directory);
	directories.nwatched--;
	dlist_delete(&directory->node);
	add_unwatched(directory);
}

/* Remove the watch of the directory. */
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

/* Watch the directory. */
static void
watch(Directory *directory)
{
	DirectoryWatch *entry;

	dlist_delete(&directory->node);
	directories.nunwatched--;
	directory->watched = true;
	dlist_push_tail(&directories.watched, &directory->node);
	directories.nwatched++;
	directories.watch_bytes += watch_bytes(directory);
	succession_watch(&directory->succession, ++directories.last_serial);
	entry = hash_search(directories.by_serial, &directories.last_serial,
						HASH_ENTER, NULL);
	entry->directory = directory;
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
	directory->deleted = false;
	directory->left_ms = 0;
	succession_init(&directory->succession);
	add_unwatched(directory);
	return directory;
}

/* The directory is used: it is the last to be forgotten. */
static void
touch(Directory *directory)
{
	dlist_move_tail(directory->watched ? &directories.watched :
					&directories.unwatched, &directory->node);
}

static void
disconnect_all(dlist_head *list)
{
	dlist_iter	iter;

	dlist_foreach(iter, list)
	{
		Directory  *directory = dlist_container(Directory, node, iter.cur);

		succession_disconnect(&directory->succession);
	}
}

/*
 * directories_disconnect
 *		The connection is lost, and the session with it, or not.
 */
void
directories_disconnect(void)
{
	dlist_mutable_iter iter;

	disconnect_all(&directories.watched);
	disconnect_all(&directories.unwatched);

	/* a get that has not been answered will be */
	dlist_foreach_modify(iter, &directories.watched)
	{
		Directory  *directory = dlist_container(Directory, node, iter.cur);

		if (directory->succession.watch == SUCCESSION_UNWATCHED)
			forget_watch(directory);
	}
}

/* A request of ours is answered, or a watch has been used up. */
static void
on_answer(void *data pg_attribute_unused(), const RequestAnswer *in)
{
	uint32		serial = in->serial;
	DirectoryWatch *watch = hash_search(directories.by_serial, &serial,
										HASH_FIND, NULL);
	Directory  *directory;

	if (in->event == REQUEST_DONE && in->kind == REQUEST_MKDIRS)
		directory_made(in);
	if (watch == NULL)
		return;
	directory = watch->directory;
	if (in->event == REQUEST_DONE)
		succession_watched(&directory->succession, serial,
						   in->result == REQUEST_OK);
	else
		succession_fired(&directory->succession, serial);
	if (in->event == REQUEST_NODE_DELETED)
	{
		note_seen(directory->path, false);
		directory->deleted = true;
		session_directory_deleted(0, directory->path);
	}
	if (directory->succession.watch == SUCCESSION_UNWATCHED)
		forget_watch(directory);
}

/*
 * directory_is_known
 *		Has this directory been seen to exist?
 */
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

/*
 * directory_note
 *		This directory exists; or is not known to do so any more.
 */
void
directory_note(const char *path, bool known)
{
	Directory  *directory = known ? find_or_make(path) : find(path);

	note_seen(path, known);
	if (directory == NULL)
		return;
	if (known)
	{
		directory->deleted = false;
		touch(directory);
	}
	else
		succession_doubt(&directory->succession);
}

/*
 * directory_owns_unread
 *		Is the next contender of ours likely to own the lock with nothing
 *		read?
 */
bool
directory_owns_unread(const char *path)
{
	Directory  *directory = find(path);

	return directory != NULL &&
		(directory->deleted || succession_next(&directory->succession) != 0);
}

/*
 * directory_next
 *		The number that owns the lock with nothing read, or 0.
 *
 * To be asked when the create is answered, not before.
 */
int32_t
directory_next(const char *path)
{
	Directory  *directory = find(path);

	return directory == NULL ? 0 : succession_next(&directory->succession);
}

/*
 * directory_leave
 *		The contender with this number, which owned the lock exclusively, is
 *		about to be deleted.
 */
void
directory_leave(const char *path, int32_t number)
{
	Directory  *directory = find_or_make(path);
	int64		now_ms = zk_now_ms();

	touch(directory);
	if (!directory->watched && make_room(directory, now_ms))
		watch(directory);
	directory->left_ms = now_ms;
	succession_leave(&directory->succession, number);
}

/*
 * directory_left
 *		The delete of a contender is answered; "deleted": it was done.
 */
void
directory_left(const char *path, int32_t number, bool deleted)
{
	Directory  *directory = find(path);

	if (directory != NULL)
		succession_left(&directory->succession, number, deleted);
}

/*
 * directory_made
 *		A lock directory has been made, unless it existed: this is the answer.
 *
 * Warns if more of them are made than ZooKeeper removes: idle ones pile up.
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
					text_for_log(child), path),
			 persistent ?
			 errdetail("Its name ends in a sequence number, but it is not ephemeral, so it is not a contender for the lock.") :
			 errdetail("Its name does not end in a sequence number, so it is not a contender for the lock."),
			 persistent ?
			 errhint("Other clients may wait for it forever.  Do not keep other znodes in lock directories, and do not set \"zklock.root\" to a path below another root.") :
			 errhint("Curator clients count it as a contender and may wait for it forever.  Do not keep other znodes in lock directories.")));
}

/*
 * directory_make
 *		Make a directory, with its parents, and wait for no answer.
 */
void
directory_make(const char *path, int session)
{
	Request		op = {.kind = REQUEST_MKDIRS,.path = path};

	session_submit(session, directories.owner, &op);
}
