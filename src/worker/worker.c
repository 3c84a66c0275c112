/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The background worker: requests out, completions in, grants.
 *
 * The worker keeps one contender (recipe.c) for each slot that is wanted or
 * owned, and one session (session.c) for all of them.  Its loop opens the
 * mail of the slots, deals with what the session tells, and sleeps on its
 * latch and on the session's file descriptor.
 *
 * The worker may end at any time and lose nothing.  What the next one needs
 * is in shared memory: the session's id and password, and for each slot its
 * state and contender.  A worker that ends alone therefore leaves the session
 * open, and the next one resumes it.  The session is closed only when the
 * server shuts down or zklock.servers has a new chroot, and then only after
 * the last backend has dropped its locks.
 *
 * If all of the server has crashed, shared memory is gone.  The first worker
 * finds the session of before that in a file (session_file.c), attaches to it,
 * closes it, and only then begins one of its own.
 *
 * However a session ends, ZooKeeper writes that as one transaction that lists
 * the paths of all its ephemeral nodes: PrepRequestProcessor.java makes a
 * CloseSessionTxn of them, a vector of strings with 4 bytes for the length of
 * each.  Nothing bounds what is written; but BinaryInputArchive.checkLength()
 * lets no server read an entry of the log, or a proposal of the leader, that is
 * longer than jute.maxbuffer + zookeeper.jute.maxbuffer.extrasize, each 1 MB if
 * it is not set.  Followers that get a longer one leave, and servers that have
 * logged it do not start any more: nobody serves.  So whatever is created is
 * counted, from when it is submitted until it is known to be gone, and what
 * would exceed ZK_MAX_PATH_BYTES is not begun.  The other half is for what is
 * not counted: a few bytes ahead of the list, and nodes that are deleted as soon
 * as they are seen (RECIPE_OP_DELETE_STRAY).  The bound alone makes it safe to
 * close the session of before a crash, whose nodes nobody knows any more.
 *
 * What does not fit is refused with an error, but ahead of that it is parked
 * until room is made by what is being given up already, or is only retained.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>
#include <unistd.h>

#include "access/xact.h"
#include "common/hashfn.h"
#include "core/semaphore.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "postmaster/postmaster.h"
#include "shared/compat.h"
#include "shared/grant.h"
#include "shared/proof.h"
#include "shared/questions.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"
#include "utils/timestamp.h"
#include "worker/answers.h"
#include "worker/session.h"
#include "worker/session_file.h"

/* How long to wait before trying to open a session again. */
#define REOPEN_DELAY_MS		1000

/*
 * How long to be without a connection, at the least and in session timeouts,
 * before a new worker tries.  The library can get into states in which it
 * reaches no server any more: it may skip every other address
 * (ZOOKEEPER-2466), and servers refuse it that know less than it has seen.
 */
#define MIN_UNCONNECTED_MS		10000
#define MAX_UNCONNECTED_TIMEOUTS	2

/* How long to wait before trying again what ZooKeeper has refused. */
#define RETRY_DELAY_MS		10000

/* How long not to repeat a line of the library in the log, and of how many. */
#define LOG_INTERVAL_MS		60000
#define MAX_LOGGED			16

/* How often to look whether the last holder is gone, if the session is to end. */
#define DRAIN_CHECK_MS		10

/* How often to look after all the contenders that own their locks. */
#define SWEEP_INTERVAL_MS	1000

/* How long to wait for an owner that may not need its lock to say whether. */
#define COURTING_MS			1000

/*
 * So many contenders are guarded at the most, since the library sets all
 * watches again in one request when it reconnects.
 */
#define MAX_GUARDED			1000

/* In the data directory, which is every process's working directory. */
#define POSTMASTER_PID_FILE	"postmaster.pid"

/*
 * A session whose nodes have paths of more bytes than this is closed when they
 * have been deleted, in batches; but not later than this.
 */
#define CLOSE_PATH_BYTES	(64 * 1024)
#define CLOSE_DELAY_MS		2000

/*
 * ZooKeeper removes so many idle containers a minute, if it is not configured
 * otherwise (znode.container.maxPerMinute).  How long not to warn again.
 */
#define DIRECTORIES_PER_MINUTE	10000
#define DIRECTORIES_WARN_MS		(10 * 60000)

/* Forget which lock directories exist when they become this many. */
#define MAX_KNOWN_DIRECTORIES	16384

/* What we keep in ZooKeeper for a slot: a place in a queue, or a permit. */
typedef struct Contender
{
	ZkSlot	   *slot;			/* hash key, must be first */
	uint32		id;				/* owner of its operations */
	uint32		lock_id;		/* the same, of those for a semaphore's lock */
	int64		owner_since;	/* zk_now_ms(); 0: not the owner */
	int64		courting_until; /* the same: see COURTING_MS; or 0 */
	int64		check_at;		/* the same: to be looked after then; or 0 */
	pairingheap_node check_node;	/* in "checks", unless 0 */
	int			asker_pid;		/* backend that it was begun for */
	bool		created;		/* the slot has its sequence number */
	bool		has_uuid;
	uint8		uuid[ZNODE_UUID_BYTES];
	char		directory[ZNODE_PATH_SIZE];
	int			place_bytes;	/* of its node in a queue, and ... */
	int			lease_bytes;	/* ... of its lease, or 0: see path_bytes() */
	int			bytes;			/* in held_bytes */
	int			leaving;		/* in leaving_bytes */
	bool		parked;			/* not begun, until there is room */
	uint32		group;			/* parked: that of the slot */
	dlist_node	parked_node;
	bool		is_permit;
	union
	{
		Recipe		recipe;
		Semaphore	semaphore;
	};
} Contender;

typedef struct ContenderId
{
	uint32		id;				/* hash key, must be first */
	Contender  *contender;
} ContenderId;

/* A UUID that one of the contenders goes by. */
typedef struct ContenderUuid
{
	uint8		uuid[ZNODE_UUID_BYTES]; /* hash key, must be first */
} ContenderUuid;

/* The data of a contender, and the terminator. */
#define CONTENDER_DATA_SIZE	256

/* What is asked for together goes in one request, chroots and all. */
StaticAssertDecl(ZK_MAX_TOGETHER *
				 (ZNODE_MAX_ROOT + ZNODE_PATH_SIZE + ZNODE_CONTENDER_SIZE +
				  CONTENDER_DATA_SIZE + SESSION_OPERATION_BYTES) <
				 SESSION_REQUEST_BYTES,
				 "zk_lock_all() must fit in one request");

/* Owner of operations whose answers nobody waits for. */
#define NOBODY				0

/* The path of a semaphore's directory. */
#define PLACE_PATH_SIZE		(ZNODE_PATH_SIZE + 8)

PGDLLEXPORT void zklock_worker_main(Datum main_arg);

static HTAB *contenders;		/* by slot */
static HTAB *contender_ids;		/* by id */
static HTAB *contender_uuids;	/* those of all contenders */
static HTAB *known_directories; /* paths that have been seen to exist */
static uint32 last_contender_id = 0;
static ZkSessionInfo session;	/* what session_write() last published */
static char auths[ZK_AUTHS_SIZE];	/* what the session has presented */
static int64 old_session = 0;	/* of before a crash, to be closed; 0: none */
static char old_passwd[ZK_PASSWD_SIZE];
static int64 reopen_at = 0;		/* zk_now_ms() before which not to open one */
static int64 unconnected_since = 0; /* the same; 0: connected, or not trying */
static int64 retry_at = 0;		/* the same of RECIPE_RETRY; 0: none needed */
static int64 sweep_at = 0;		/* the same of the next sweep of all owners */
static pairingheap *checks;		/* contenders with a time of their own to be
								 * looked after, the earliest first */
static bool stranger_warned = false;
static bool persistent_warned = false;

/* Of the session: see ZK_MAX_PATH_BYTES. */
static int64 held_bytes = 0;	/* of the nodes that contenders have, or may */
static int64 leaving_bytes = 0; /* the part of it that is being deleted */
static int64 left_bytes = 0;	/* of nodes that could not be deleted */
static dlist_head parked = DLIST_STATIC_INIT(parked);
static bool closing = false;	/* the server stops, and nothing is held */
static int64 close_at = 0;		/* zk_now_ms() at which to close the session;
								 * 0: it is not to be */

static bool is_last_worker(void);

static void
publish_session(ZkSessionState state)
{
	if (session.state != state)
	{
		session.state = state;
		session.state_since = GetCurrentTimestamp();
	}
	session_write(&session);
}

/* The earlier of two times, of which 0 is none. */
static int64
earlier(int64 a, int64 b)
{
	if (a == 0 || b == 0)
		return a + b;
	return Min(a, b);
}

static void
worker_exit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	slots_detach_worker();
	session.worker_pid = 0;
	session.server[0] = '\0';
	publish_session(ZK_SESSION_DOWN);
}

/* The part of zklock.servers that says below which znode all our paths are. */
static const char *
chroot_of(const char *servers)
{
	const char *slash = strchr(servers, '/');

	return slash && slash[1] != '\0' ? slash : "";
}

/*
 * Has zklock.servers another chroot than the session has begun with?  Then no
 * contender is begun any more until nothing is held, and the session ends.
 */
static bool
chroot_changed(void)
{
	return session.client_id != 0 &&
		strcmp(session.chroot, chroot_of(zklock_servers)) != 0;
}

/* Is the session to end, so that no contender is begun in it any more? */
static bool
session_is_ending(void)
{
	return closing || chroot_changed();
}

/*
 * Credentials.  The directories of our contenders, and with zklock.acl =
 * creator the contenders too, belong to who made them: with other credentials
 * we could not even delete them.  So a session goes on presenting those that it
 * has begun with, together with the new ones, while it has contenders.  When
 * it has none, the next worker resumes it with the new ones only: credentials
 * are of a connection, and cannot be taken back from one.
 */

static char *
find_auth(const char *auth)
{
	for (char *known = auths; known[0] != '\0'; known += strlen(known) + 1)
		if (strcmp(known, auth) == 0)
			return known;
	return NULL;
}

static void
forget_auth(char *auth)
{
	size_t		len = strlen(auth) + 1;

	memmove(auth, auth + len, auths + sizeof(auths) - (auth + len));
}

/* The session is to present zklock.auth, and nothing else if it has no nodes. */
static void
collect_auths(void)
{
	size_t		need = strlen(zklock_auth) + 1;
	char	   *end = auths;

	if (session.client_id == 0 || hash_get_num_entries(contenders) == 0)
		memset(auths, 0, sizeof(auths));
	if (zklock_auth[0] != '\0' && find_auth(zklock_auth) == NULL)
	{
		for (;;)
		{
			for (end = auths; end[0] != '\0'; end += strlen(end) + 1)
				;
			if (end + need < auths + sizeof(auths))
				break;
			forget_auth(auths); /* the oldest, after a good many */
		}
		memcpy(end, zklock_auth, need);
		end[need] = '\0';
	}
	session_write_auths(auths);
}

/* Does the session present credentials that are zklock.auth no more? */
static bool
auths_are_old(void)
{
	if (session.client_id == 0)
		return false;
	for (const char *auth = auths; auth[0] != '\0'; auth += strlen(auth) + 1)
		if (strcmp(auth, zklock_auth) != 0)
			return true;
	return false;
}

/* Have the next worker present zklock.auth only, if it is time for that. */
static void
renew_auths(void)
{
	if (session.state != ZK_SESSION_CONNECTED || ShutdownRequestPending ||
		hash_get_num_entries(contenders) > 0 || !auths_are_old())
		return;
	collect_auths();
	ereport(LOG,
			(errmsg("restarting the zklock worker, since its session does not need former credentials any more")));
	proc_exit(1);
}

static HTAB *
create_table(const char *name, Size keysize, Size entrysize, int flags)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	return hash_create(name, 256, &ctl, HASH_ELEM | flags);
}

static uint32
new_contender_id(Contender *contender)
{
	ContenderId *by_id;
	bool		found;

	/* they wrap around, and some contenders live long */
	do
	{
		last_contender_id = (last_contender_id + 1) & ~ANSWERS_OWNER;
		by_id = hash_search(contender_ids, &last_contender_id, HASH_ENTER,
							&found);
	} while (found || last_contender_id == NOBODY);
	by_id->contender = contender;
	return last_contender_id;
}

/*
 * What a node of this kind, in a directory or in one below it, adds to the list
 * of the session's nodes, which has their full paths.
 */
static int
path_bytes(const char *directory, const char *below, ZnodeKind kind)
{
	static const uint8 uuid[ZNODE_UUID_BYTES];
	const char *chroot = session_is_open() ?
		session.chroot : chroot_of(zklock_servers);
	char		name[ZNODE_CONTENDER_SIZE];

	znode_contender_name(uuid, kind, 0, name);
	return ZK_PATH_BYTES + strlen(chroot) + strlen(directory) + 1 +
		strlen(below) + strlen(name);
}

/* Count what the contender has in ZooKeeper, or may have, after a change. */
static void
count_bytes(Contender *contender)
{
	int			bytes = 0;
	int			leaving = 0;

	if (!contender->is_permit)
	{
		const Recipe *recipe = &contender->recipe;

		if (recipe->state != RECIPE_NONE)
			bytes = contender->place_bytes;
		if (recipe_is_leaving(recipe))
			leaving = bytes;
	}
	else
	{
		const Semaphore *semaphore = &contender->semaphore;

		if (semaphore_may_have_permit(semaphore))
			bytes = contender->lease_bytes;
		if (semaphore_is_leaving(semaphore))
			leaving = bytes;
		if (semaphore_may_queue(semaphore))
			bytes += contender->place_bytes;
		if (semaphore->state >= SEMAPHORE_OWNER &&
			recipe_is_leaving(&semaphore->lock))
			leaving += contender->place_bytes;
	}
	held_bytes += bytes - contender->bytes;
	leaving_bytes += leaving - contender->leaving;
	contender->bytes = bytes;
	contender->leaving = leaving;
}

/* What it takes to begin the contender. */
static int
bytes_wanted(const Contender *contender)
{
	return contender->place_bytes + contender->lease_bytes;
}

static bool
fits(int64 bytes)
{
	return held_bytes + left_bytes + bytes <= ZK_MAX_PATH_BYTES;
}

/* The contender has to wait for room, behind others that do. */
static void
park(Contender *contender, uint32 group)
{
	contender->parked = true;
	contender->group = group;
	dlist_push_tail(&parked, &contender->parked_node);
}

static Contender *
make_contender(ZkSlot *slot, ZnodeKind kind)
{
	Contender  *contender;
	bool		found;

	contender = hash_search(contenders, &slot, HASH_ENTER, &found);
	if (found)
		return contender;

	slot_read_path(slot, contender->directory);
	contender->id = new_contender_id(contender);
	contender->lock_id = 0;
	contender->has_uuid = false;
	contender->check_at = 0;
	contender->is_permit = kind == ZNODE_PERMIT;
	contender->bytes = contender->leaving = 0;
	contender->parked = false;
	contender->owner_since = contender->courting_until = 0;
	contender->place_bytes =
		path_bytes(contender->directory,
				   contender->is_permit ? "/" ZNODE_LOCKS_DIR : "",
				   contender->is_permit ? ZNODE_MUTEX : kind);
	contender->lease_bytes = !contender->is_permit ? 0 :
		path_bytes(contender->directory, "/" ZNODE_PERMITS_DIR, kind);
	if (contender->is_permit)
	{
		contender->lock_id = new_contender_id(contender);
		semaphore_init(&contender->semaphore);
	}
	else
		recipe_init(&contender->recipe);
	return contender;
}

static bool
is_begun(const Contender *contender)
{
	return contender->is_permit ?
		contender->semaphore.state != SEMAPHORE_NONE :
		contender->recipe.state != RECIPE_NONE;
}

static bool
is_guarded(const Contender *contender)
{
	return contender->is_permit ?
		contender->semaphore.revocation_watched :
		contender->recipe.revocation_watch != 0;
}

static int
compare_checks(const pairingheap_node *a, const pairingheap_node *b,
			   void *arg pg_attribute_unused())
{
	int64		check_a = pairingheap_const_container(Contender, check_node, a)->check_at;
	int64		check_b = pairingheap_const_container(Contender, check_node, b)->check_at;

	/* a heap has the greatest first */
	return check_a < check_b ? 1 : check_a > check_b ? -1 : 0;
}

static void
unschedule_check(Contender *contender)
{
	if (contender->check_at != 0)
		pairingheap_remove(checks, &contender->check_node);
	contender->check_at = 0;
}

/* Look after a contender at that time, or before; 0: no need to. */
static void
schedule_check(Contender *contender, int64 at)
{
	if (at == 0 || (contender->check_at != 0 && contender->check_at <= at))
		return;
	unschedule_check(contender);
	contender->check_at = at;
	pairingheap_add(checks, &contender->check_node);
}

static void
forget_uuid(Contender *contender)
{
	if (contender->has_uuid)
		hash_search(contender_uuids, contender->uuid, HASH_REMOVE, NULL);
	contender->has_uuid = false;
}

/* The contender goes by this UUID from now on, and by no other. */
static void
note_uuid(Contender *contender, const uint8 *uuid)
{
	forget_uuid(contender);
	memcpy(contender->uuid, uuid, ZNODE_UUID_BYTES);
	hash_search(contender_uuids, contender->uuid, HASH_ENTER, NULL);
	contender->has_uuid = true;
}

static void
drop_contender(Contender *contender)
{
	forget_uuid(contender);
	unschedule_check(contender);
	held_bytes -= contender->bytes;
	leaving_bytes -= contender->leaving;
	if (contender->parked)
		dlist_delete(&contender->parked_node);
	if (contender->is_permit)
	{
		semaphore_free(&contender->semaphore);
		hash_search(contender_ids, &contender->lock_id, HASH_REMOVE, NULL);
	}
	else
		recipe_free(&contender->recipe);
	hash_search(contender_ids, &contender->id, HASH_REMOVE, NULL);
	hash_search(contenders, &contender->slot, HASH_REMOVE, NULL);
}

static void
forget_directories(void)
{
	if (known_directories)
		hash_destroy(known_directories);
	known_directories = create_table("zklock directories", ZNODE_PATH_SIZE,
									 ZNODE_PATH_SIZE, HASH_STRINGS);
}

static bool
directory_known(const char *path)
{
	return hash_search(known_directories, path, HASH_FIND, NULL) != NULL;
}

static void
note_directory(const char *path, bool known)
{
	if (!known)
		hash_search(known_directories, path, HASH_REMOVE, NULL);
	else
	{
		if (hash_get_num_entries(known_directories) >= MAX_KNOWN_DIRECTORIES)
			forget_directories();
		hash_search(known_directories, path, HASH_ENTER, NULL);
	}
}

/* A UUID for a new contender, noted in its slot ahead of all else. */
static void
new_uuid(Contender *contender, uint8 *uuid, bool retain)
{
	if (!pg_strong_random(uuid, ZNODE_UUID_BYTES))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	znode_make_uuid(uuid);
	note_uuid(contender, uuid);
	contender->owner_since = 0;
	contender->courting_until = 0;
	contender->created = false;
	slot_set_uuid(contender->slot, uuid, retain);
}

/* Queue for a lock that is wanted. */
static void
want(Contender *contender, const ZkContender *wanted, RecipeOutput *out)
{
	uint8		uuid[ZNODE_UUID_BYTES];

	contender->recipe.retain = zklock_retain_time > 0 && !auths_are_old();
	contender->recipe.asks_retained = true;
	new_uuid(contender, uuid, contender->recipe.retain);
	contender->asker_pid = wanted->asker_pid;
	recipe_want(&contender->recipe, uuid, wanted->kind, wanted->group != 0,
				directory_known(contender->directory), out);
}

static void
refuse(Contender *contender, unsigned told, int error, int permits_found)
{
	ZkRefusal	refusal = ZK_REFUSAL_OTHER;

	if (told & RECIPE_TOLD_MIXED)
		refusal = ZK_REFUSAL_MIXED;
	else if (told & RECIPE_TOLD_ENDED)
		refusal = ZK_REFUSAL_ENDED;
	else if (permits_found != 0)
		refusal = ZK_REFUSAL_PERMITS;
	else
	{
		if (session_error_is_access(error))
			refusal = ZK_REFUSAL_ACCESS;
		else if (session_error_is_no_node(error))
			refusal = ZK_REFUSAL_NO_CHROOT;
		ereport(LOG,
				(errmsg("ZooKeeper refused a contender for \"%s\": %s",
						contender->directory, session_error_text(error))));
	}
	slot_set_refused(contender->slot, refusal, permits_found);
}

static void
warn_of_stranger(const char *directory, const char *stranger)
{
	if (stranger_warned)
		return;
	stranger_warned = true;
	ereport(WARNING,
			(errmsg("ignoring znode \"%s\" in lock directory \"%s\"",
					stranger, directory),
			 errdetail("Its name does not end in a sequence number, so it is no contender for the lock."),
			 errhint("Curator clients count it as one and may wait for it forever: do not keep other znodes in lock directories.")));
}

static void
warn_of_persistent(const char *directory, const char *node)
{
	if (persistent_warned)
		return;
	persistent_warned = true;
	ereport(WARNING,
			(errmsg("ignoring znode \"%s\" in lock directory \"%s\"",
					node, directory),
			 errdetail("Its name ends in a sequence number, but it is not ephemeral, so it is no contender for the lock."),
			 errhint("Other clients may wait for it forever: do not keep other znodes in lock directories, and do not set \"zklock.root\" to a path below another root.")));
}

/*
 * Our node may be left in ZooKeeper.  If it was its deletion that was refused,
 * that is tried again from time to time, and who wants the slot is told that
 * it may take long.
 */
static void
warn_of_left(Contender *contender, const char *directory, const char *node,
			 int error)
{
	ereport(WARNING,
			(errmsg("could not delete contender \"%s/%s\": %s",
					directory, node, session_error_text(error)),
			 errdetail("If it exists, it blocks the lock until the session ends.")));
	if (contender->is_permit ?
		!contender->semaphore.refused && !contender->semaphore.lock.refused :
		contender->recipe.state == RECIPE_NONE)
		left_bytes += contender->place_bytes + contender->lease_bytes;
	if (contender->is_permit ?
		contender->semaphore.state != SEMAPHORE_NONE :
		contender->recipe.state == RECIPE_LEAVING)
	{
		slot_set_stuck(contender->slot);
		if (retry_at == 0)
			retry_at = zk_now_ms() + RETRY_DELAY_MS;
	}
}

/* The contender owns its lock: sweep_owners() will look after it. */
static void
note_owner(Contender *contender)
{
	contender->owner_since = zk_now_ms();
	if (sweep_at == 0)
		sweep_at = contender->owner_since + SWEEP_INTERVAL_MS;
}

/* Another client has written into our node that it wants the lock. */
static void
revoked(const Contender *contender)
{
	int			n = slot_cancel_holders(contender->slot);

	ereport(LOG,
			(errmsg("another client asks for lock \"%s\"", contender->directory),
			 errdetail_plural("The statement of %d holder has been canceled.",
							  "The statements of %d holders have been canceled.",
							  n, n)));
}

/* Tell the slot the news that contenders of all kinds can have. */
static void
tell_slot(Contender *contender, unsigned told, int64 token)
{
	ZkSlot	   *slot = contender->slot;

	if (told & (RECIPE_TOLD_QUEUED | RECIPE_TOLD_GRANTED))
		contender->courting_until = 0;
	if (told & RECIPE_TOLD_QUEUED)
		slot_set_queued(slot);
	if (told & RECIPE_TOLD_RETAINED)
	{
		contender->courting_until = zk_now_ms() + COURTING_MS;
		schedule_check(contender, contender->courting_until);
	}
	if (told & RECIPE_TOLD_GRANTED)
	{
		note_owner(contender);
		schedule_check(contender, slot_set_granted(slot));
	}
	if (told & RECIPE_TOLD_ALONE)
		slot_set_watched(slot, true);
	if (told & RECIPE_TOLD_REVOKED)
		revoked(contender);
	if (told & RECIPE_TOLD_RENEWED)
		ereport(LOG,
				(errmsg("the queue of \"%s\" has begun anew in ZooKeeper, since its sequence numbers were nearly used up",
						contender->directory)));
	if (told & (RECIPE_TOLD_NO_WRITER | RECIPE_TOLD_WRITER))
		slot_set_writers_checked(slot, (told & RECIPE_TOLD_WRITER) != 0);
	if (told & RECIPE_TOLD_TOKEN)
		slot_set_token(slot, token);
	if (told & RECIPE_TOLD_LOST)
	{
		ereport(LOG,
				(errmsg("lost the lock \"%s\"", contender->directory)));
		slot_set_lost(slot);
	}
}

/* What a person finds in our contenders: short, and who we are. */
static const char *
contender_data(int pid, bool retain)
{
	static char data[CONTENDER_DATA_SIZE];
	static char host[128] = "";

	if (host[0] == '\0')
	{
		if (gethostname(host, sizeof(host)) != 0)
			strlcpy(host, "unknown", sizeof(host));
		host[sizeof(host) - 1] = '\0';
	}
	snprintf(data, sizeof(data), RECIPE_DATA_PREFIX "host=%s port=%d cluster=%s pid=%d%s",
			 host, PostPortNumber, cluster_name, pid,
			 retain ? RECIPE_RETAIN_MARK : "");
	return data;
}

static void
submit(Contender *contender, RecipeOp *op, uint32 group)
{
	if (op->kind == RECIPE_OP_CREATE || op->kind == RECIPE_OP_SET)
		op->data = contender_data(contender->asker_pid,
								  contender->recipe.retain);
	session_submit(contender->id, contender->directory, op, group);
}

/*
 * Do what a step of the recipe came out with: send its operations and tell
 * the slot the news.  The contender is gone afterwards if the news was that.
 */
static void
carry_out(Contender *contender, RecipeOutput *out)
{
	Recipe	   *recipe = &contender->recipe;

	for (;;)
	{
		ZkContender wanted;

		ereport(DEBUG3,
				(errmsg_internal("contender \"%s/%s\" is %s",
								 contender->directory, recipe->node,
								 recipe_state_name(recipe->state))));
		count_bytes(contender);
		for (int i = 0; i < out->nops; i++)
			submit(contender, &out->ops[i], 0);

		if (out->told & RECIPE_TOLD_STRANGER)
			warn_of_stranger(contender->directory, out->stranger);
		if (out->told & RECIPE_TOLD_PERSISTENT)
			warn_of_persistent(contender->directory, out->stranger);
		if (out->told & RECIPE_TOLD_CREATED)
		{
			slot_set_created(contender->slot, recipe->sequence);
			contender->created = true;
			note_directory(contender->directory, true);
		}
		else if (contender->created && recipe->state == RECIPE_ENTERING)
		{
			/* the next worker must not look for the node of before */
			slot_set_uncreated(contender->slot);
			contender->created = false;
		}
		tell_slot(contender, out->told, out->token);
		if (out->told & RECIPE_TOLD_FAILED)
			refuse(contender, out->told, out->error, 0);
		if (out->told & RECIPE_TOLD_LEFT)
			warn_of_left(contender, contender->directory, recipe->node,
						 out->error);

		if (!recipe->dir_known)
			note_directory(contender->directory, false);
		if (out->told & RECIPE_TOLD_CONTENDED &&
			slot_set_contended(contender->slot) && recipe->retain)
		{
			RecipeInput deny = {.event = RECIPE_SET_IN_USE};

			recipe_step(recipe, &deny, out);
			continue;
		}
		if (!(out->told & RECIPE_TOLD_GONE))
			return;
		if (!slot_set_gone(contender->slot) || session_is_ending())
		{
			drop_contender(contender);
			return;
		}
		slot_read_contender(contender->slot, &wanted);
		if (!fits(bytes_wanted(contender)))
		{
			park(contender, wanted.group);
			return;
		}
		want(contender, &wanted, out);
	}
}

/* The directory of a semaphore's operation. */
static void
place_path(const Contender *contender, SemaphorePlace place,
		   char path[PLACE_PATH_SIZE])
{
	snprintf(path, PLACE_PATH_SIZE, "%s%s%s", contender->directory,
			 place == SEMAPHORE_NAME ? "" : "/",
			 place == SEMAPHORE_NAME ? "" :
			 place == SEMAPHORE_LOCKS ? ZNODE_LOCKS_DIR :
			 ZNODE_PERMITS_DIR);
}

static void
submit_permit(Contender *contender, SemaphoreOp *op)
{
	char		path[PLACE_PATH_SIZE];

	if (op->op.data == NULL && (op->op.kind == RECIPE_OP_CREATE ||
								op->op.kind == RECIPE_OP_SET))
		op->op.data = contender_data(contender->asker_pid, false);

	/* that of the name itself is a container, too; nobody waits for it */
	if (op->op.kind == RECIPE_OP_MKDIRS)
	{
		RecipeOp	mkdirs = {.kind = RECIPE_OP_MKDIRS};

		session_submit(NOBODY, contender->directory, &mkdirs, 0);
	}
	place_path(contender, op->place, path);
	session_submit(op->for_lock ? contender->lock_id : contender->id,
				   path, &op->op, 0);
}

static void
want_permit(Contender *contender, const ZkContender *wanted,
			SemaphoreOutput *out)
{
	uint8		uuid[ZNODE_UUID_BYTES];

	new_uuid(contender, uuid, false);
	contender->asker_pid = wanted->asker_pid;
	semaphore_want(&contender->semaphore, uuid, wanted->permits, out);
}

/* As carry_out(), for a permit. */
static void
carry_out_permit(Contender *contender, SemaphoreOutput *out)
{
	Semaphore  *semaphore = &contender->semaphore;
	char		path[PLACE_PATH_SIZE];

	for (;;)
	{
		ZkContender wanted;

		ereport(DEBUG3,
				(errmsg_internal("permit of \"%s\" is %s",
								 contender->directory,
								 semaphore_state_name(semaphore->state))));
		count_bytes(contender);
		for (int i = 0; i < out->nops; i++)
			submit_permit(contender, &out->ops[i]);

		if (out->told & RECIPE_TOLD_STRANGER)
		{
			place_path(contender, out->stranger_place, path);
			warn_of_stranger(path, out->stranger);
		}
		if (out->told & RECIPE_TOLD_PERSISTENT)
		{
			place_path(contender, out->stranger_place, path);
			warn_of_persistent(path, out->stranger);
		}
		tell_slot(contender, out->told, out->token);
		if (out->told & RECIPE_TOLD_FAILED)
			refuse(contender, out->told, out->error, out->permits_found);
		if (out->told & RECIPE_TOLD_LEFT)
		{
			place_path(contender, out->left_place, path);
			warn_of_left(contender, path, out->left, out->error);
		}

		if (!(out->told & RECIPE_TOLD_GONE))
			return;
		if (!slot_set_gone(contender->slot) || session_is_ending())
		{
			drop_contender(contender);
			return;
		}
		slot_read_contender(contender->slot, &wanted);
		if (!fits(bytes_wanted(contender)))
		{
			park(contender, wanted.group);
			return;
		}
		want_permit(contender, &wanted, out);
	}
}

/* One event for a contender of any kind. */
static void
step_contender(Contender *contender, bool for_lock, const RecipeInput *input)
{
	if (contender->is_permit)
	{
		SemaphoreOutput out;

		semaphore_step(&contender->semaphore, for_lock, input, &out);
		carry_out_permit(contender, &out);
	}
	else
	{
		RecipeOutput out;

		recipe_step(&contender->recipe, input, &out);
		carry_out(contender, &out);
	}
}

/* Begin a contender for which there is room. */
static void
start_contender(Contender *contender, const ZkContender *wanted)
{
	if (contender->is_permit)
	{
		SemaphoreOutput out;

		want_permit(contender, wanted, &out);
		carry_out_permit(contender, &out);
	}
	else
	{
		RecipeOutput out;

		want(contender, wanted, &out);
		carry_out(contender, &out);
	}
}

/* The slot is wanted: have a contender for it, if it has none. */
static void
begin_contender(ZkSlot *slot, const ZkContender *wanted)
{
	Contender  *contender;

	if (session_is_ending())
		return;					/* take_over() will, in the next session */
	contender = make_contender(slot, wanted->kind);
	if (is_begun(contender) || contender->parked)
		return;
	if (dlist_is_empty(&parked) && fits(bytes_wanted(contender)))
		start_contender(contender, wanted);
	else
		park(contender, wanted->group);
}

/* A slot that is to be asked for together with others. */
typedef struct GroupMember
{
	ZkSlot	   *slot;
	ZkContender wanted;
	RecipeOutput out;
} GroupMember;

static int
compare_groups(const ListCell *a, const ListCell *b)
{
	uint32		group_a = ((GroupMember *) lfirst(a))->wanted.group;
	uint32		group_b = ((GroupMember *) lfirst(b))->wanted.group;

	return group_a < group_b ? -1 : group_a > group_b;
}

static void
add_to_groups(List **members, ZkSlot *slot, const ZkContender *wanted)
{
	GroupMember *member = palloc(sizeof(GroupMember));

	member->slot = slot;
	member->wanted = *wanted;
	*members = lappend(*members, member);
}

/*
 * Submit the operations of members first to last (not included) that are of
 * this kind.
 */
static void
submit_group_part(List *members, int first, int last, RecipeOpKind kind)
{
	for (int i = first; i < last; i++)
	{
		GroupMember *member = list_nth(members, i);
		Contender  *contender = hash_search(contenders, &member->slot,
											HASH_FIND, NULL);

		for (int j = 0; j < member->out.nops; j++)
			if (member->out.ops[j].kind == kind)
				submit(contender, &member->out.ops[j], member->wanted.group);
	}
}

static Contender *
contender_of(const GroupMember *member)
{
	return hash_search(contenders, &member->slot, HASH_FIND, NULL);
}

/*
 * Begin the members first to last (not included), of one group, for which there
 * is room: the directories first, then all the contenders in one step.
 */
static void
start_group(List *members, int first, int last)
{
	for (int i = first; i < last; i++)
	{
		GroupMember *member = list_nth(members, i);
		Contender  *contender = contender_of(member);

		member->out.nops = 0;
		if (!is_begun(contender))
			want(contender, &member->wanted, &member->out);
		count_bytes(contender);
	}
	submit_group_part(members, first, last, RECIPE_OP_MKDIRS);
	submit_group_part(members, first, last, RECIPE_OP_CREATE);
	submit_group_part(members, first, last, RECIPE_OP_CHILDREN);
}

/*
 * There is no room for these members, of one group: the backend that wants them
 * gets none.  It looks at all of them, so it is enough to tell it by one, but
 * that ahead of the others' end.
 */
static void
refuse_group(List *members)
{
	ListCell   *cell;

	foreach(cell, members)
	{
		GroupMember *member = lfirst(cell);

		if (member == linitial(members))
			slot_set_refused(member->slot, ZK_REFUSAL_NO_ROOM, 0);
		if (slot_set_gone(member->slot))
		{
			slot_read_contender(member->slot, &member->wanted);
			begin_contender(member->slot, &member->wanted);
		}
	}
}

/* Begin or park the members first to last (not included), of one group. */
static void
begin_group(List *members, int first, int last)
{
	int64		bytes = 0;

	for (int i = first; i < last; i++)
	{
		GroupMember *member = list_nth(members, i);
		Contender  *contender = make_contender(member->slot,
											   member->wanted.kind);

		if (contender->parked)
			return;
		if (!is_begun(contender))
			bytes += bytes_wanted(contender);
	}
	if (dlist_is_empty(&parked) && fits(bytes))
		start_group(members, first, last);
	else
		for (int i = first; i < last; i++)
		{
			GroupMember *member = list_nth(members, i);
			Contender  *contender = contender_of(member);

			if (!is_begun(contender))
				park(contender, member->wanted.group);
		}
}

/* Begin the contenders of slots that are asked for together. */
static void
begin_groups(List *members)
{
	int			first = 0;
	int			last;

	if (session_is_ending())
		return;
	list_sort(members, compare_groups);
	for (; first < list_length(members); first = last)
	{
		GroupMember *member = list_nth(members, first);
		uint32		group = member->wanted.group;

		for (last = first; last < list_length(members); last++)
		{
			member = list_nth(members, last);
			if (member->wanted.group != group)
				break;
		}
		begin_group(members, first, last);
	}
}

/* Something is asked of the contender of a slot, if it has one. */
static bool
tell_contender(ZkSlot *slot, RecipeEvent event)
{
	RecipeInput input = {.event = event};
	Contender  *contender;

	contender = hash_search(contenders, &slot, HASH_FIND, NULL);
	if (contender != NULL)
		step_contender(contender, false, &input);
	return contender != NULL;
}

/* Look who waits behind our contender, but for writers of this cluster. */
static void
look_behind(Contender *contender, RecipeEvent event)
{
	RecipeInput input = {.event = event};
	ZkContender writer;

	if (contender->recipe.kind == ZNODE_READER &&
		slot_find_contender(contender->directory, &writer) != ZK_SLOT_NONE &&
		writer.has_uuid)
		input.sibling = writer.uuid;
	step_contender(contender, false, &input);
}

static void
look_behind_slot(ZkSlot *slot, RecipeEvent event)
{
	Contender  *contender = hash_search(contenders, &slot, HASH_FIND, NULL);

	if (contender != NULL)
		look_behind(contender, event);
}

static void
release_contender(ZkSlot *slot)
{
	ZkContender wanted;
	Contender  *contender = hash_search(contenders, &slot, HASH_FIND, NULL);

	if (contender && contender->parked)
		drop_contender(contender);
	if (!tell_contender(slot, RECIPE_RELEASE) && slot_set_gone(slot))
	{
		slot_read_contender(slot, &wanted);
		begin_contender(slot, &wanted);
	}
}

/*
 * What is asked for together is in the mail together, but perhaps not in the
 * part of it that was collected first.  It may be given up in the mail behind
 * that: so releases come last, when what they are about has been begun, and the
 * slots have not gone.
 */
static void
open_mail(void)
{
	List	   *members = NIL;
	List	   *released = NIL;
	ZkSlot	   *slot;
	ListCell   *cell;

	while ((slot = slots_collect_mail()) != NULL)
	{
		while (slot != NULL)
		{
			ZkSlot	   *next;
			ZkContender wanted;
			ZkMail		mail = slot_open_mail(slot, &next, &wanted);

			if (mail == ZK_MAIL_WANT && wanted.group != 0)
				add_to_groups(&members, slot, &wanted);
			else if (mail == ZK_MAIL_WANT)
				begin_contender(slot, &wanted);
			else if (mail == ZK_MAIL_CHECK_WRITERS)
				look_behind_slot(slot, RECIPE_CHECK_WRITERS);
			else if (mail == ZK_MAIL_WATCH_QUEUE)
				look_behind_slot(slot, RECIPE_WATCH_QUEUE);
			else if (mail == ZK_MAIL_RELEASE)
				released = lappend(released, slot);
			slot = next;
		}
	}
	begin_groups(members);
	foreach(cell, released)
		release_contender(lfirst(cell));
}

/* All contenders, palloc'd: carry_out() changes the table. */
static Contender **
list_contenders(int *n)
{
	HASH_SEQ_STATUS scan;
	Contender  *contender;
	Contender **list;

	list = palloc(sizeof(Contender *) *
				  Max(hash_get_num_entries(contenders), 1));
	*n = 0;
	hash_seq_init(&scan, contenders);
	while ((contender = hash_seq_search(&scan)) != NULL)
		list[(*n)++] = contender;
	return list;
}

/* Make room for so many bytes by giving up what is only retained. */
static void
give_up_retained(int64 bytes)
{
	int			n;
	Contender **list = list_contenders(&n);

	for (int i = 0; i < n && bytes > 0; i++)
	{
		Contender  *contender = list[i];

		if (contender->is_permit || !contender->recipe.retain ||
			contender->recipe.state != RECIPE_OWNER ||
			!slot_give_up_idle(contender->slot))
			continue;
		bytes -= contender->bytes;
		release_contender(contender->slot);
	}
	pfree(list);
}

/*
 * The first of the parked contenders, and those of its group, as GroupMembers;
 * they are parked no more, but have been dropped.  Those that nobody wants any
 * more are left out: their mail is on its way.
 */
static List *
unpark_first(void)
{
	uint32		group = dlist_head_element(Contender, parked_node, &parked)->group;
	List	   *members = NIL;

	do
	{
		Contender  *contender = dlist_head_element(Contender, parked_node,
												   &parked);
		ZkSlot	   *slot = contender->slot;
		ZkContender wanted;

		if (contender->group != group)
			break;
		drop_contender(contender);
		if (slot_read_contender(slot, &wanted) == ZK_SLOT_WANTED)
			add_to_groups(&members, slot, &wanted);
	} while (group != 0 && !dlist_is_empty(&parked));
	return members;
}

/* What it takes to begin the first of the parked contenders and its group. */
static int64
bytes_of_first(void)
{
	uint32		group = dlist_head_element(Contender, parked_node, &parked)->group;
	int64		bytes = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &parked)
	{
		Contender  *contender = dlist_container(Contender, parked_node, iter.cur);

		if (contender->group != group || (group == 0 && bytes > 0))
			break;
		bytes += bytes_wanted(contender);
	}
	return bytes;
}

/*
 * Begin what is parked and fits now.  What will not fit when all is gone that is
 * being given up is refused.
 */
static void
begin_parked(void)
{
	while (!dlist_is_empty(&parked))
	{
		int64		bytes = bytes_of_first();
		bool		room = fits(bytes);
		List	   *members;

		if (!room && !fits(bytes - leaving_bytes))
			give_up_retained(held_bytes + left_bytes - leaving_bytes + bytes -
							 ZK_MAX_PATH_BYTES);
		if (!room && fits(bytes - leaving_bytes))
			return;				/* there will be, in a moment */
		members = unpark_first();
		if (members == NIL)
			continue;
		if (!room)
			refuse_group(members);
		else if (!session_is_ending())
		{
			GroupMember *member;
			ListCell   *cell;

			foreach(cell, members)
			{
				member = lfirst(cell);
				(void) make_contender(member->slot, member->wanted.kind);
			}
			member = linitial(members);
			if (member->wanted.group != 0)
				start_group(members, 0, list_length(members));
			else
				start_contender(contender_of(member), &member->wanted);
		}
	}
}

/* Go on with a contender of the worker before this one. */
static void
resume_contender(ZkSlot *slot, ZkSlotState state, const ZkContender *known)
{
	Contender  *contender = make_contender(slot, known->kind);
	RecipeResume how = RECIPE_RESUME_OWNED;

	if (state == ZK_SLOT_WANTED)
		how = RECIPE_RESUME_WANTED;
	else if (state == ZK_SLOT_RELEASING)
		how = RECIPE_RESUME_RELEASING;
	note_uuid(contender, known->uuid);
	contender->asker_pid = known->asker_pid;
	contender->owner_since = 0;
	contender->courting_until = 0;
	contender->created = false;
	if (how == RECIPE_RESUME_OWNED)
		note_owner(contender);
	if (contender->is_permit)
	{
		SemaphoreOutput out;

		semaphore_resume(&contender->semaphore, known->uuid, known->permits,
						 how, &out);
		carry_out_permit(contender, &out);
	}
	else
	{
		RecipeOutput out;

		contender->recipe.retain = known->retain;
		contender->recipe.asks_retained = true;
		recipe_resume(&contender->recipe, known->uuid, known->kind,
					  known->group != 0, how,
					  known->has_sequence ? &known->sequence : NULL, &out);
		carry_out(contender, &out);
	}
}

/*
 * Have a contender for each slot that wants one and has none: take over those
 * of the worker before this one, begin the others.
 */
static void
take_over(void)
{
	int			nslots;
	ZkSlot	  **list = slots_list(&nslots);
	List	   *members = NIL;

	/* what may exist already takes its room ahead of all else */
	for (int i = 0; i < nslots; i++)
	{
		ZkContender known;
		ZkSlotState state = slot_read_contender(list[i], &known);

		if (known.has_uuid &&
			hash_search(contenders, &list[i], HASH_FIND, NULL) == NULL)
			resume_contender(list[i], state, &known);
	}
	for (int i = 0; i < nslots; i++)
	{
		ZkSlot	   *slot = list[i];
		ZkContender known;
		ZkSlotState state = slot_read_contender(slot, &known);

		if (hash_search(contenders, &slot, HASH_FIND, NULL) != NULL)
			continue;
		if (state == ZK_SLOT_RELEASING)
			release_contender(slot);	/* no worker had seen it wanted */
		else if (known.group != 0)
			add_to_groups(&members, slot, &known);
		else
			begin_contender(slot, &known);
	}
	begin_groups(members);
	pfree(list);
}

/* Try again what ZooKeeper has refused. */
static void
retry_refused(void)
{
	int			n;
	Contender **list;
	RecipeInput input = {.event = RECIPE_RETRY};

	if (retry_at == 0 || zk_now_ms() < retry_at)
		return;
	retry_at = 0;
	list = list_contenders(&n);
	for (int i = 0; i < n; i++)
		step_contender(list[i], false, &input);
}

/* The owner that we ask has not answered in time: it counts as a holder. */
static void
check_courting(Contender *contender, int64 now)
{
	if (contender->courting_until == 0)
		return;
	if (contender->recipe.state != RECIPE_WATCHING)
		contender->courting_until = 0;
	else if (now < contender->courting_until)
		schedule_check(contender, contender->courting_until);
	else
	{
		contender->courting_until = 0;
		slot_set_queued(contender->slot);
	}
}

/*
 * Look after a contender: give it up if it owns its lock and no backend takes
 * it, and see if it has waited long enough for an answer.
 */
static void
check_contender(Contender *contender, int64 now)
{
	check_courting(contender, now);
	if (contender->owner_since != 0)
		schedule_check(contender, slot_check_idle(contender->slot, now));
}

/*
 * Look after those whose time has come: each for itself, since thousands may be
 * retained.  Returns when to look again, as of zk_now_ms(), or 0.
 */
static int64
check_contenders(void)
{
	int64		now = zk_now_ms();
	int			n = 0;

	while (!pairingheap_is_empty(checks))
	{
		Contender  *contender = pairingheap_container(Contender, check_node,
													  pairingheap_first(checks));

		if (contender->check_at > now)
			break;
		unschedule_check(contender);
		check_contender(contender, now);
		n++;
	}
	if (n > 0)
		ereport(DEBUG2, (errmsg_internal("looked after %d contenders", n)));
	return pairingheap_is_empty(checks) ? 0 :
		pairingheap_container(Contender, check_node,
							  pairingheap_first(checks))->check_at;
}

/*
 * Look after all contenders that own their locks: have those guarded that do so
 * for some time, and find those that have become idle.
 */
static void
sweep_owners(void)
{
	int64		now = zk_now_ms();
	int			n;
	int			guarded = 0;
	Contender **list;
	RecipeInput input = {.event = RECIPE_WATCH_REVOCATION};

	if (sweep_at == 0 || now < sweep_at)
		return;
	sweep_at = 0;
	list = list_contenders(&n);
	for (int i = 0; i < n; i++)
		if (is_guarded(list[i]))
			guarded++;
	for (int i = 0; i < n; i++)
	{
		Contender  *contender = list[i];

		if (contender->owner_since == 0)
			continue;
		sweep_at = now + SWEEP_INTERVAL_MS;
		check_contender(contender, now);
		if (now - contender->owner_since >= SWEEP_INTERVAL_MS &&
			!is_guarded(contender) && guarded < MAX_GUARDED)
		{
			guarded++;
			step_contender(contender, false, &input);
		}
	}
	ereport(DEBUG2, (errmsg_internal("looked after %d contenders", n)));
}

/* Forget all contenders, whose session is over, and tell the slots. */
static void
forget_contenders(void)
{
	int			n;
	Contender **list = list_contenders(&n);
	RecipeInput input = {.event = RECIPE_EXPIRED};

	for (int i = 0; i < n; i++)
	{
		Contender  *contender = list[i];
		unsigned	told;

		if (contender->is_permit)
		{
			SemaphoreOutput out;

			semaphore_step(&contender->semaphore, false, &input, &out);
			told = out.told;
		}
		else
		{
			RecipeOutput out;

			recipe_step(&contender->recipe, &input, &out);
			told = out.told;
		}
		if (told & RECIPE_TOLD_LOST)
			ereport(LOG,
					(errmsg("lost the lock \"%s\"", contender->directory)));
		(void) slot_set_gone(contender->slot);
		drop_contender(contender);
	}
	left_bytes = 0;
}

/*
 * The session is over, or we end it ourselves, which takes slots_retire().
 * What is still wanted queues again, in the next session.
 */
static void
end_session(const char *why)
{
	ereport(LOG,
			(errmsg("ZooKeeper session 0x%llx has ended",
					(unsigned long long) session.client_id),
			 errdetail_internal("%s", why)));
	forget_contenders();
	session_close();
	session_file_remove();
	forget_directories();

	session.client_id = 0;
	memset(session.passwd, 0, sizeof(session.passwd));
	session.server[0] = '\0';
	publish_session(ZK_SESSION_CONNECTING);

	close_at = 0;
	take_over();
	answers_restart();
}

/*
 * We are attached to the session of before the crash, or it has expired.  If
 * it is to be closed, we come back until ZooKeeper says that it is gone: the
 * request may get lost with the connection.
 *
 * What backends have asked for meanwhile has been prepared, but no operation
 * has left for that session; it begins anew.
 */
static void
end_old_session(bool expired)
{
	forget_contenders();
	session_close();
	if (expired)
	{
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx of before the crash has ended",
						(unsigned long long) old_session)));
		session_file_remove();
		old_session = 0;
	}
	forget_directories();
	take_over();
	answers_restart();
}

/*
 * Without a connection we do not hear who comes to wait behind our contenders.
 * When there is one again, we look, for those that are to be watched.
 */
static void
watch_contenders(bool connected)
{
	int			n;
	Contender **list = list_contenders(&n);

	for (int i = 0; i < n; i++)
	{
		Contender  *contender = list[i];

		if (contender->is_permit || contender->recipe.state != RECIPE_OWNER ||
			contender->recipe.queue_watch == 0)
			continue;
		if (connected)
			look_behind(contender, RECIPE_WATCH_QUEUE);
		else
			slot_set_watched(contender->slot, false);
	}
	pfree(list);
}

/*
 * The session is to end when nothing is held: no lock is to go on from backend
 * to backend for long, or be retained, until then.
 */
static void
begin_drain(void)
{
	int			n;
	Contender **list = list_contenders(&n);

	for (int i = 0; i < n; i++)
		(void) slot_set_contended(list[i]->slot);
	pfree(list);
}

/*
 * May the session be closed now that nothing is held, or does that have to wait
 * until its nodes have been deleted?  For these a batch after the other is
 * cheaper for ZooKeeper than all at once.  But this must not take long, and
 * whoever cannot be reached is not waited for.
 */
static bool
may_close_session(void)
{
	int64		now = zk_now_ms();

	if (session.state != ZK_SESSION_CONNECTED ||
		held_bytes <= CLOSE_PATH_BYTES)
		return true;
	if (close_at == 0)
	{
		int			n;
		Contender **list = list_contenders(&n);

		/* those that are wanted, too: they queue again in another session */
		close_at = now + CLOSE_DELAY_MS;
		for (int i = 0; i < n; i++)
			release_contender(list[i]->slot);
		pfree(list);
	}
	return now >= close_at;
}

static void
session_up(void)
{
	SessionIdentity identity;

	session_identity(&identity);
	if (session.client_id != identity.client_id)
	{
		session.sessions++;
		session_file_write(identity.client_id, identity.passwd);
	}
	else
	{
		session.reconnects++;
		watch_contenders(true);
	}
	session.client_id = identity.client_id;
	memcpy(session.passwd, identity.passwd, sizeof(session.passwd));
	session.timeout = identity.timeout;
	session.first_timeout = identity.first_timeout;
	strlcpy(session.server, identity.address, sizeof(session.server));
	unconnected_since = 0;
	session.last_error[0] = '\0';
	publish_session(ZK_SESSION_CONNECTED);
	ereport(LOG,
			(errmsg("connected to ZooKeeper at %s, session 0x%llx, timeout %d ms",
					identity.address, (unsigned long long) identity.client_id,
					identity.timeout)));
}

/*
 * Has the server log had this line of late?  The library repeats itself at
 * each attempt to connect, and lines that differ in their numbers only, such as
 * addresses and times, count as one.
 */
static bool
logged_of_late(const char *line)
{
	static struct
	{
		uint32		hash;
		int64		logged_at;	/* as of zk_now_ms() */
	}			logged[MAX_LOGGED];
	int64		now = zk_now_ms();
	uint32		hash;
	int			oldest = 0;
	char	   *words = pstrdup(line);
	int			len = 0;

	for (const char *c = line; *c != '\0'; c++)
		if (!isdigit((unsigned char) *c))
			words[len++] = *c;

	hash = hash_bytes((const unsigned char *) words, len);
	pfree(words);

	for (int i = 0; i < MAX_LOGGED; i++)
	{
		if (logged[i].hash == hash && logged[i].logged_at != 0 &&
			now - logged[i].logged_at < LOG_INTERVAL_MS)
			return true;
		if (logged[i].logged_at < logged[oldest].logged_at)
			oldest = i;
	}
	logged[oldest].hash = hash;
	logged[oldest].logged_at = now;
	return false;
}

/* A line of the library's log. */
static void
session_message(const char *message)
{
	char	   *line = strchr(message, '@');

	/* "<time>:<pid>(<thread>):ZOO_ERROR@<function>@<line>: <line>" */
	line = line ? strstr(line, ": ") : NULL;
	line = pstrdup(line ? line + 2 : message);
	line[strcspn(line, "\r\n")] = '\0';

	if (strncmp(session.last_error, line, sizeof(session.last_error) - 1) != 0)
	{
		strlcpy(session.last_error, line, sizeof(session.last_error));
		session_write(&session);
	}
	ereport(logged_of_late(line) ? DEBUG1 : LOG,
			(errmsg("ZooKeeper client: %s", line)));
}

/*
 * The predecessor that a contender watches is of our session.  Is it of none of
 * our contenders, and so in the way of all for as long as the session lives?
 *
 * Whatever is created has its UUID noted ahead of that, and until it is known to
 * have been deleted; and this answer is not older than that to any delete.
 */
static bool
is_stray(const Contender *contender, bool for_lock, const RecipeInput *input)
{
	const Recipe *recipe = &contender->recipe;
	uint8		uuid[ZNODE_UUID_BYTES];

	if (input->event != RECIPE_WATCH_DONE || input->result != RECIPE_OK ||
		!input->ours)
		return false;
	if (contender->is_permit)
		recipe = &contender->semaphore.lock;
	if (contender->is_permit != for_lock ||
		(recipe->state != RECIPE_WATCHING &&
		 recipe->state != RECIPE_AWAITING_EMPTY) ||
		input->serial != recipe->serial ||
		!znode_parse_uuid(recipe->predecessor, uuid) ||
		hash_search(contender_uuids, uuid, HASH_FIND, NULL) != NULL)
		return false;

	ereport(LOG,
			(errmsg("deleting znode \"%s\" of a lost contender of this cluster for \"%s\"",
					recipe->predecessor, contender->directory),
			 errdetail("It is of this cluster's session, and nobody here knows of it.")));
	return true;
}

/*
 * A lock directory has been made.  Warn if there are more than ZooKeeper
 * removes: those that are idle pile up.
 */
static void
count_directory(void)
{
	static int64 minute = 0;	/* zk_now_ms() at its beginning */
	static int64 warned_at = 0;
	static int	count = 0;		/* in this minute */
	int64		now = zk_now_ms();

	directories_count();
	if (now - minute >= 60000)
	{
		minute = now;
		count = 0;
	}
	if (++count <= DIRECTORIES_PER_MINUTE ||
		(warned_at != 0 && now - warned_at < DIRECTORIES_WARN_MS))
		return;
	warned_at = now;
	ereport(WARNING,
			(errmsg("more than %d lock directories have been created in ZooKeeper within a minute",
					DIRECTORIES_PER_MINUTE),
			 errdetail("By default ZooKeeper removes no more than %d idle ones a minute: if this goes on, they pile up.",
					   DIRECTORIES_PER_MINUTE),
			 errhint("Use fewer different names of locks, or raise \"znode.container.maxPerMinute\" of the ZooKeeper servers.")));
}

static void
contender_event(SessionEvent *event)
{
	ContenderId *by_id;
	bool		for_lock;

	if (event->input.event == RECIPE_MKDIR_DONE &&
		event->input.result == RECIPE_OK && event->input.error == 0)
		count_directory();		/* else it existed */
	by_id = hash_search(contender_ids, &event->owner, HASH_FIND, NULL);
	if (by_id == NULL)
		return;					/* a watch of one that is gone */
	for_lock = event->owner == by_id->contender->lock_id;
	event->input.stray = is_stray(by_id->contender, for_lock, &event->input);
	step_contender(by_id->contender, for_lock, &event->input);
}

static void
session_events(void)
{
	SessionEvent event;

	while (session_next_event(&event))
	{
		switch (event.kind)
		{
			case SESSION_UP:
				if (old_session != 0)
					end_old_session(false);
				else
					session_up();
				SetLatch(MyLatch);	/* collect what was asked meanwhile */
				break;
			case SESSION_SUSPENDED:
				session.server[0] = '\0';
				if (unconnected_since == 0)
					unconnected_since = zk_now_ms();
				watch_contenders(false);
				publish_session(session.client_id != 0 ?
								ZK_SESSION_SUSPENDED : ZK_SESSION_CONNECTING);
				ereport(LOG, (errmsg("lost the connection to ZooKeeper")));
				if (session_is_stuck() && !is_last_worker())
				{
					ereport(LOG,
							(errmsg("restarting the zklock worker, since ZooKeeper answers on no connection")));
					proc_exit(1);
				}
				break;
			case SESSION_EXPIRED:
				if (old_session != 0)
					end_old_session(true);
				else
					end_session("ZooKeeper has let it expire.");
				break;
			case SESSION_AUTH_FAILED:
				/* the session lives on: the next worker tries to resume it */
				if (find_auth(zklock_auth) != NULL)
				{
					forget_auth(find_auth(zklock_auth));
					session_write_auths(auths);
				}
				ereport(LOG,
						(errmsg("ZooKeeper refused the credentials of \"zklock.auth\"")));
				if (!is_last_worker())
					proc_exit(1);
				session_close();
				publish_session(ZK_SESSION_SUSPENDED);
				reopen_at = PG_INT64_MAX;
				break;
			case SESSION_ANSWER:
			case SESSION_WATCH:
				if (event.owner & ANSWERS_OWNER)
					answers_event(event.owner, &event.input);
				else
					contender_event(&event);
				break;
			case SESSION_MESSAGE:
				session_message(event.message);
				break;
		}
	}
}

/*
 * Publish how long the session can be relied on, and see that it stays so while
 * there is anything to lose.  Returns when to look again, as of zk_now_ms(), or
 * 0.
 */
static int64
keep_lease(void)
{
	uint32		ticket;
	int64		until = session_lease(&ticket);

	if (until != lease_read() || ticket != proof_latest())
		lease_write(until, ticket);
	return session_keep_lease(proof_asked(),
							  hash_get_num_entries(contenders) > 0);
}

/*
 * With a setting that is wrong there is no session; a new worker comes when it
 * has been corrected.
 */
static bool
settings_are_wrong(void)
{
	ZkWrongSetting wrong;

	if (!zk_wrong_setting(false, &wrong))
		return false;
	strlcpy(session.last_error, zk_describe_wrong_setting(&wrong),
			sizeof(session.last_error));
	publish_session(ZK_SESSION_DOWN);
	reopen_at = zk_now_ms() + REOPEN_DELAY_MS;
	return true;
}

static void
open_session(void)
{
	SessionOptions options;
	char	   *servers;

	if (session_is_open() || zk_now_ms() < reopen_at || settings_are_wrong())
		return;

	/* a session lives below the chroot that it has begun with */
	if (session.client_id == 0)
		strlcpy(session.chroot, chroot_of(zklock_servers),
				sizeof(session.chroot));
	servers = psprintf("%.*s%s", (int) strcspn(zklock_servers, "/"),
					   zklock_servers, session.chroot);

	memset(&options, 0, sizeof(options));
	options.servers = servers;
	options.timeout = zklock_session_timeout;
	collect_auths();
	options.auths = auths;
	options.creator_acl = zklock_acl == ZK_ACL_CREATOR;

	options.ticket = proof_latest();
	if (old_session != 0)
	{
		options.client_id = old_session;
		memcpy(options.passwd, old_passwd, sizeof(options.passwd));
	}
	else if (session.client_id != 0)
	{
		/* a shorter timeout counts from when the server hears of it */
		if (options.timeout < session.timeout)
			lease_shorten(zk_now_ms() + options.timeout - options.timeout / 20);
		options.client_id = session.client_id;
		memcpy(options.passwd, session.passwd, sizeof(options.passwd));
		options.lease_until = lease_read();
		options.first_timeout = session.first_timeout;
	}

	if (session_open(&options))
	{
		unconnected_since = zk_now_ms();
		publish_session(ZK_SESSION_CONNECTING);
	}
	else
	{
		int			save_errno = errno;

		/* the library has told more, if it knew more */
		session_events();
		if (session.last_error[0] == '\0')
			snprintf(session.last_error, sizeof(session.last_error),
					 "could not begin to connect: %s", strerror(save_errno));
		publish_session(ZK_SESSION_DOWN);
		reopen_at = zk_now_ms() + REOPEN_DELAY_MS;
	}
}

/*
 * Have a new worker try, if this one has been without a connection for long.
 * Returns when to look again, as of zk_now_ms(), or 0.
 */
static int64
check_connection(void)
{
	int64		limit = Max(MIN_UNCONNECTED_MS,
							(int64) session.timeout * MAX_UNCONNECTED_TIMEOUTS);

	if (!session_is_open() || unconnected_since == 0)
		return 0;
	if (zk_now_ms() < unconnected_since + limit)
		return unconnected_since + limit;
	if (is_last_worker())
		return 0;
	ereport(LOG,
			(errmsg("restarting the zklock worker, since ZooKeeper could not be reached for %lld ms",
					(long long) (zk_now_ms() - unconnected_since))));
	proc_exit(1);
}

/*
 * Apply a changed configuration.  Another chroot takes effect in the main
 * loop, when nothing is held; all else with the next worker, which resumes the
 * session with the new settings (and with the old credentials beside the new).
 */
static void
reload(void)
{
	char	   *servers = pstrdup(zklock_servers);
	char	   *auth = pstrdup(zklock_auth);
	int			timeout = zklock_session_timeout;
	int			old_acl = zklock_acl;
	bool		waiting = chroot_changed();

	ProcessConfigFile(PGC_SIGHUP);

	servers[strcspn(servers, "/")] = '\0';
	if ((strlen(servers) != strcspn(zklock_servers, "/") ||
		 strncmp(servers, zklock_servers, strlen(servers)) != 0 ||
		 strcmp(auth, zklock_auth) != 0 ||
		 timeout != zklock_session_timeout || old_acl != zklock_acl) &&
		!is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker to apply new settings")));
		proc_exit(1);
	}

	/* changed back: what was put off is wanted here after all */
	if (waiting && !chroot_changed())
	{
		close_at = 0;
		take_over();
	}

	pfree(servers);
	pfree(auth);
}

/*
 * Is the whole server shutting down, rather than this worker being terminated
 * alone?  The postmaster notes it in its pid file, for pg_ctl, before it
 * signals anybody.
 */
static bool
server_is_stopping(void)
{
	FILE	   *file = fopen(POSTMASTER_PID_FILE, "r");
	char		line[MAXPGPATH];
	bool		stopping = false;

	if (file == NULL)
		return false;
	for (int i = 1; fgets(line, sizeof(line), file) != NULL; i++)
		if (i == LOCK_FILE_LINE_PM_STATUS)
			stopping = strncmp(line, PM_STATUS_STOPPING,
							   strlen(PM_STATUS_STOPPING)) == 0;
	fclose(file);
	return stopping;
}

/*
 * Have we been told to end because the whole server does?  The postmaster starts
 * no other worker then, so that we must see the last holder out, come what may,
 * and leave nothing to the next one but a session that we cannot close.
 */
static bool
is_last_worker(void)
{
	return ShutdownRequestPending && server_is_stopping();
}

/*
 * SIGTERM has come.  Returns if the worker has to go on, for backends that
 * still hold locks while the server stops: a backend may be in the middle of
 * its commit, and its locks must not be free before that is over.
 */
static void
shut_down(void)
{
	if (!server_is_stopping())
	{
		ereport(LOG,
				(errmsg("zklock worker is terminated, its session goes on")));
		proc_exit(1);
	}
	if (!slots_retire())
		return;
	closing = true;
	if (!may_close_session())
		return;
	session_close();
	/* without a connection nobody was told, and the next start has to do it */
	if (session.state == ZK_SESSION_CONNECTED)
		session_file_remove();
	session.client_id = 0;
	session_write(&session);

	/* not 0: in a smart shutdown of long, a new worker may be wanted */
	proc_exit(1);
}

/*
 * zklock_worker_main
 *		Entry point of the background worker.
 */
void
zklock_worker_main(Datum main_arg pg_attribute_unused())
{
	WaitEventSet *wait_set;
	MemoryContext loop_context;
	static uint32 wait_event = 0;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	/* shared catalogs only: to be seen in pg_stat_activity */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname(ZKLOCK_WORKER_NAME);

	contenders = create_table("zklock contenders", sizeof(ZkSlot *),
							  sizeof(Contender), HASH_BLOBS);
	contender_ids = create_table("zklock contender ids", sizeof(uint32),
								 sizeof(ContenderId), HASH_BLOBS);
	contender_uuids = create_table("zklock contender UUIDs", ZNODE_UUID_BYTES,
								   sizeof(ContenderUuid), HASH_BLOBS);
	checks = pairingheap_allocate(compare_checks, NULL);
	forget_directories();
	loop_context = AllocSetContextCreate(TopMemoryContext, "zklock worker loop",
										 ALLOCSET_DEFAULT_SIZES);

	session_read(&session);
	session_read_auths(auths);
	if (session.client_id == 0 && session_file_read(&old_session, old_passwd))
		ereport(LOG,
				(errmsg("ending ZooKeeper session 0x%llx of before the crash",
						(unsigned long long) old_session)));
	session.worker_pid = MyProcPid;
	publish_session(ZK_SESSION_CONNECTING);
	before_shmem_exit(worker_exit, (Datum) 0);

	wait_set = ZkCreateWaitEventSet(3);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, session_init(), NULL, NULL);

	slots_attach_worker();
	questions_attach_worker();
	MemoryContextSwitchTo(loop_context);
	take_over();
	if (auths_are_old())
		begin_drain();

	for (;;)
	{
		WaitEvent	event;
		int64		check_at;
		int64		lease_at;
		int64		flush_at;
		int64		wake_at;
		long		timeout;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			reload();
		}
		if (ShutdownRequestPending)
			shut_down();
		if (chroot_changed() && slots_retire() && may_close_session())
			end_session("\"zklock.servers\" has a new chroot.");
		if (session.draining != chroot_changed())
		{
			session.draining = chroot_changed();
			session_write(&session);
			if (session.draining)
				begin_drain();
		}

		open_session();
		session_events();

		/* what cannot leave yet may be taken back until it can */
		if (session.state != ZK_SESSION_CONNECTED)
			open_mail();
		else if (session_ready())
		{
			answers_collect();
			open_mail();
			answers_begin();
		}
		begin_parked();
		path_bytes_write(held_bytes + left_bytes);
		retry_refused();
		sweep_owners();
		check_at = check_contenders();
		lease_at = keep_lease();
		flush_at = session_flush();
		slots_hold_mail(session.state == ZK_SESSION_CONNECTED &&
						!session_ready());
		MemoryContextReset(loop_context);
		renew_auths();

		wake_at = 0;
		if (ShutdownRequestPending || chroot_changed())
			wake_at = zk_now_ms() + DRAIN_CHECK_MS;
		if (!session_is_open())
			wake_at = earlier(wake_at, Max(reopen_at, 1));
		wake_at = earlier(wake_at, retry_at);
		wake_at = earlier(wake_at, check_connection());
		wake_at = earlier(wake_at, sweep_at);
		wake_at = earlier(wake_at, check_at);
		wake_at = earlier(wake_at, lease_at);
		wake_at = earlier(wake_at, flush_at);
		timeout = wake_at == 0 ? -1 : Max(wake_at - zk_now_ms(), 0);
		(void) WaitEventSetWait(wait_set, timeout, &event, 1,
								ZkWaitEvent(wait_event, "ZkLockWorkerMain"));
		ResetLatch(MyLatch);
	}
}
