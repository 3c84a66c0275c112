/*-------------------------------------------------------------------------
 *
 * contender.c
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Each slot that is wanted or owned has one: its state machine, and what the
 * worker knows of it.  This file finds them by slot and by UUID, keeps them in
 * the order in which they are due for a check, and counts the room that they
 * take in the session.  steps.c has what they do.
 *
 * The room.  However a session ends, ZooKeeper writes one transaction that
 * lists the paths of all its ephemeral nodes: PrepRequestProcessor.java makes
 * a CloseSessionTxn, a vector of strings, each with 4 bytes for its length.
 * What is written is unbounded.  But BinaryInputArchive.checkLength() lets no
 * server read a log entry, or a proposal of the leader, longer than
 * jute.maxbuffer + zookeeper.jute.maxbuffer.extrasize, by default 1 MB each.
 * Followers that receive a longer one leave the ensemble, and servers that
 * have logged one cannot be started again: the ensemble stops serving.
 *
 * So the worker counts the paths of what it creates, from the submission of
 * the create until the node is known to be gone, and begins no contender that
 * would exceed ZK_MAX_PATH_BYTES.  A node whose delete is on its way counts no
 * more for what is created behind that: requests of a session are done in
 * order.  If the answer to the delete is lost, or is a refusal, the node counts
 * again.  The other half of jute.maxbuffer is for what is not counted: a few
 * bytes before the list, the instance's member znode (fleet.c), nodes that are
 * deleted as soon as they are seen (REQUEST_DELETE_ORPHAN), and the deletes of
 * a batch that has failed, which go again behind creates of the same flight.
 * Because of the bound alone, a session from before a crash can safely be
 * closed although its nodes are unknown.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/contender.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/znode.h"
#include "core/mutation.h"
#include "postmaster/postmaster.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/test_build.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "worker/contender_private.h"
#include "worker/zookeeper/session.h"

/* A UUID in use by a contender. */
typedef struct ContenderUuid
{
	uint8		uuid[ZNODE_UUID_BYTES]; /* hash key, must be first */
	Contender  *contender;
} ContenderUuid;

static struct
{
	HTAB	   *by_slot;		/* of Contenders */
	HTAB	   *uuids;			/* of ContenderUuids */
	SessionHandler handler;		/* of their requests */
	int64		bytes;			/* of nodes that contenders have, or may have,
								 * as ZK_MAX_PATH_BYTES counts them; */
	int64		leaving;		/* the part whose delete is under way; */
	int64		left;			/* of nodes that could not be deleted */
	int			nhabitual;		/* those that are retained by habit ... */
	int64		habitual_bytes; /* ... and their bytes */
	dlist_head	deferred;		/* not begun for want of room, in order */
	dlist_head	queued;			/* behind others, the longest-queued first */
	dlist_head	watching;		/* waiting for a watch, the one set earliest
								 * first */
	int			nwatching;
	pairingheap *checks;		/* those due for a check, the earliest first */
}			contenders;

static HTAB *
create_table(const char *name, Size keysize, Size entrysize)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = keysize;
	ctl.entrysize = entrysize;
	return hash_create(name, 256, &ctl, HASH_ELEM | HASH_BLOBS);
}

static int
compare_checks(const pairingheap_node *a, const pairingheap_node *b,
			   void *arg pg_attribute_unused())
{
	int64		check_a =
		pairingheap_const_container(Contender, check_node, a)->check_at_ms;
	int64		check_b =
		pairingheap_const_container(Contender, check_node, b)->check_at_ms;

	/* a heap has the greatest first */
	return check_a < check_b ? 1 : check_a > check_b ? -1 : 0;
}

/*
 * contenders_init
 *		Begin with no contenders.
 *
 * The handler is that of their requests; its data is the contender.
 */
void
contenders_init(SessionHandler handler)
{
	contenders.handler = handler;
	contenders.by_slot = create_table("zklock contenders", sizeof(ZkSlot *),
									  sizeof(Contender));
	contenders.uuids = create_table("zklock contender UUIDs",
									ZNODE_UUID_BYTES, sizeof(ContenderUuid));
	contenders.checks = pairingheap_allocate(compare_checks, NULL);
	dlist_init(&contenders.deferred);
	dlist_init(&contenders.queued);
	dlist_init(&contenders.watching);
}

/* The number of contenders, including deferred ones. */
int
contenders_count(void)
{
	return hash_get_num_entries(contenders.by_slot);
}

/* Bytes of the paths of nodes that contenders have, or may have. */
int64
contenders_bytes(void)
{
	return contenders.bytes;
}

/* Publish how much of the session's room is taken. */
void
contenders_publish(void)
{
	path_bytes_write(contenders.bytes + contenders.left, contenders_count());
}

/* All contenders, palloc'd, since a step changes the table. */
Contender **
contenders_list(int *n)
{
	HASH_SEQ_STATUS scan;
	Contender  *contender;
	Contender **list;

	list = palloc(sizeof(Contender *) * (contenders_count() + 1));
	*n = 0;
	hash_seq_init(&scan, contenders.by_slot);
	while ((contender = hash_seq_search(&scan)) != NULL)
		list[(*n)++] = contender;
	return list;
}

Contender *
contender_find(ZkSlot *slot)
{
	return hash_search(contenders.by_slot, &slot, HASH_FIND, NULL);
}

/*
 * What a node of this kind, in a directory or in one below it, adds to the
 * list of the session's nodes, which has their full paths.
 */
static int
path_bytes(const char *directory, const char *below, ZnodeKind kind)
{
	static const uint8 uuid[ZNODE_UUID_BYTES];
	const char *chroot = status_chroot();
	char		name[ZNODE_CONTENDER_SIZE];

	znode_contender_name(uuid, kind, 0, name);
	return ZK_PATH_BYTES + strlen(chroot) + strlen(directory) + 1 +
		strlen(below) + strlen(name);
}

/* Make the state machine of a contender: most are for locks. */
static void
make_machine(Contender *contender, ZnodeKind kind)
{
	contender->permit = NULL;
	if (kind == ZNODE_PERMIT)
	{
		contender->permit = MemoryContextAlloc(TopMemoryContext,
											   sizeof(Permit));
		permit_init(contender->permit);
		contender->recipe = &contender->permit->lock;
	}
	else
	{
		contender->recipe = MemoryContextAlloc(TopMemoryContext,
											   sizeof(Recipe));
		recipe_init(contender->recipe);
	}
}

static void
free_machine(Contender *contender)
{
	if (contender->permit)
	{
		permit_free(contender->permit);
		pfree(contender->permit);
	}
	else
	{
		recipe_free(contender->recipe);
		pfree(contender->recipe);
	}
}

/* Find the contender of a slot, or make one that is not begun. */
Contender *
contender_make(ZkSlot *slot, ZnodeKind kind)
{
	Contender  *contender;
	bool		found;

	contender = hash_search(contenders.by_slot, &slot, HASH_ENTER, &found);
	if (found)
		return contender;

	key_path(slot_key(slot), contender->directory);
	contender->habitual = contender->revokes = false;
	contender->owner = session_add_owner(contenders.handler, contender);
	contender->has_uuid = false;
	contender->check_at_ms = 0;
	make_machine(contender, kind);
	contender->bytes = contender->leaving = 0;
	contender->in_doubt = false;
	contender->deferred = false;
	contender->owner_since_ms = contender->answer_due_ms = 0;
	contender->queued_since_ms = 0;
	contender->watch_serial = 0;
	contender->awaited = false;
	contender->permit_bytes = 0;
	if (kind != ZNODE_PERMIT)
		contender->place_bytes = path_bytes(contender->directory, "", kind);
	else
	{
		contender->place_bytes = path_bytes(contender->directory,
											"/" ZNODE_LOCKS_DIR, ZNODE_MUTEX);
		contender->permit_bytes = path_bytes(contender->directory,
											 "/" ZNODE_PERMITS_DIR, kind);
	}
	return contender;
}

/*
 * contender_set_habitual
 *		Note whether the contender's lock is retained by habit.
 *
 * Returns false, and does not note it, if that would take more than a
 * HABITUAL_PART-th of the slots or of the session's room.
 */
bool
contender_set_habitual(Contender *contender, bool habitual)
{
	if (contender->habitual == habitual)
		return true;
	if (habitual && !ZK_MUTATED(ZK_HABITS_UNBOUNDED) &&
		(contenders.nhabitual >= zklock_max_locks / HABITUAL_PART ||
		 contenders.habitual_bytes + contender->place_bytes >
		 ZK_PATH_BYTES_BOUND / HABITUAL_PART))
		return false;
	contender->habitual = habitual;
	contenders.nhabitual += habitual ? 1 : -1;
	contenders.habitual_bytes += habitual ? contender->place_bytes :
		-contender->place_bytes;
	return true;
}

static void
unschedule_check(Contender *contender)
{
	if (contender->check_at_ms != 0)
		pairingheap_remove(contenders.checks, &contender->check_node);
	contender->check_at_ms = 0;
}

static void
forget_uuid(Contender *contender)
{
	if (contender->has_uuid)
		hash_search(contenders.uuids, contender->uuid, HASH_REMOVE, NULL);
	contender->has_uuid = false;
}

/*
 * contender_note
 *		The contender's note, valid until the next call.
 *
 * Each write of a contender's data writes the whole note: besides this
 * instance, only other clients write there, for a revocation, so no other
 * words need to be kept.
 */
const char *
contender_note(const Contender *contender)
{
	static char data[NOTE_SIZE];
	Note		note;

	note_set_contender(&note, host_name(), PostPortNumber, cluster_name,
					   contender->asker_pid,
					   contender->recipe->retain);
	(void) note_write(&note, data);
	return data;
}

/* Give the contender a new UUID, in place of any other, to begin with. */
void
contender_note_uuid(Contender *contender, const uint8 *uuid)
{
	ContenderUuid *by_uuid;

	forget_uuid(contender);
	memcpy(contender->uuid, uuid, ZNODE_UUID_BYTES);
	by_uuid = hash_search(contenders.uuids, contender->uuid, HASH_ENTER, NULL);
	by_uuid->contender = contender;
	contender->has_uuid = true;
	contender->owner_since_ms = 0;
	contender->answer_due_ms = 0;
	contender->revokes = false;
	contender->created = contender->in_doubt = false;
	contender->awaited = false;
	contender_set_queued(contender, false);
}

/* Does a contender use this UUID? */
bool
contender_has_uuid(const uint8 *uuid)
{
	return hash_search(contenders.uuids, uuid, HASH_FIND, NULL) != NULL;
}

/*
 * The path of the lock directory, or of a part of a semaphore's, as a state
 * machine calls it.
 */
void
contender_place_path(const Contender *contender, const char *below,
					 char path[PLACE_PATH_SIZE])
{
	snprintf(path, PLACE_PATH_SIZE, "%s%s", contender->directory,
			 below ? below : "");
}

/* Is it, or may it be, behind others with its node in its queue? */
bool
contender_is_queued(const Contender *contender)
{
	RecipeState state = contender->recipe->state;

	return state == RECIPE_WATCHING || state == RECIPE_READING ||
		(state == RECIPE_OWNER && !contender_owns(contender));
}

/* The name of its state, for log lines. */
const char *
contender_state_name(const Contender *contender)
{
	return contender->permit ?
		permit_state_name(contender->permit->state) :
		recipe_state_name(contender->recipe->state);
}

/*
 * contender_keeper
 *		The path of the writer that keeps readers of this instance waiting;
 *		false if none is known.
 */
bool
contender_keeper(const Contender *contender, char path[CONTENDER_PATH_SIZE])
{
	const Recipe *recipe = contender->recipe;
	const char *keeper;

	if (recipe->kind != ZNODE_READER)
		return false;
	keeper = contender_owns(contender) ? recipe->writer :
		contender_is_queued(contender) ? recipe->predecessor : NULL;
	if (keeper == NULL)
		return false;
	snprintf(path, CONTENDER_PATH_SIZE, "%s/%s", contender->directory, keeper);
	return true;
}

/*
 * Note the serial number of the watch that the contender waits for; 0: none.
 */
static void
set_watch(Contender *contender, uint32 serial)
{
	if (contender->watch_serial != 0)
	{
		dlist_delete(&contender->watching_node);
		contenders.nwatching--;
	}
	contender->watch_serial = serial;
	if (serial == 0)
		return;
	contender->watched_ms = zk_now_ms();
	dlist_push_tail(&contenders.watching, &contender->watching_node);
	contenders.nwatching++;
}

static void
set_bytes(Contender *contender, int bytes, int leaving)
{
	contenders.bytes += bytes - contender->bytes;
	contenders.leaving += leaving - contender->leaving;
	contender->bytes = bytes;
	contender->leaving = leaving;
}

/* Forget a contender. */
void
contender_drop(Contender *contender)
{
	forget_uuid(contender);
	unschedule_check(contender);
	contender_set_queued(contender, false);
	set_watch(contender, 0);
	set_bytes(contender, 0, 0);
	(void) contender_set_habitual(contender, false);
	if (contender->deferred)
		dlist_delete(&contender->deferred_node);
	free_machine(contender);
	session_remove_owner(contender->owner);
	hash_search(contenders.by_slot, &contender->slot, HASH_REMOVE, NULL);
}

/* Has the contender anything in ZooKeeper, or may it have? */
bool
contender_is_begun(const Contender *contender)
{
	return contender->permit ? contender->permit->state != PERMIT_NONE :
		contender->recipe->state != RECIPE_NONE;
}

/*
 * Count a node of a recipe that the contender has, or may have; "wanted": it
 * may be created again though it is being deleted.
 */
static void
count_node(const Contender *contender, const Recipe *recipe, bool wanted,
		   int node_bytes, int *bytes, int *leaving)
{
	if (recipe->state == RECIPE_NONE && !wanted)
		return;
	*bytes += node_bytes;
	if (recipe->state == RECIPE_LEAVING && !wanted && !contender->in_doubt)
		*leaving += node_bytes;
}

/* Count what the contender has in ZooKeeper, or may have. */
static void
count_bytes(Contender *contender)
{
	const Permit *permit = contender->permit;
	bool		wanted = permit && permit_is_wanted(permit);
	int			bytes = 0;
	int			leaving = 0;

	count_node(contender, permit ? &permit->lock : contender->recipe, wanted,
			   contender->place_bytes, &bytes, &leaving);
	if (permit)
		count_node(contender, &permit->place, wanted, contender->permit_bytes,
				   &bytes, &leaving);
	set_bytes(contender, bytes, leaving);
}

/*
 * The serial number of the watch that a recipe waits for behind others, or by
 * which an owner watches its queue; 0: none.
 */
static uint32
watch_of(const Recipe *recipe)
{
	return recipe->state == RECIPE_WATCHING ? recipe->serial :
		recipe->state == RECIPE_OWNER ? recipe->queue_watch : 0;
}

/* Note what a step of the contender's state machine has changed. */
void
contender_update(Contender *contender)
{
	Permit	   *permit = contender->permit;
	uint32		watch;

	if (permit)
		contender->recipe = permit->state == PERMIT_OWNER ?
			&permit->place : &permit->lock;
	watch = watch_of(contender->recipe);
	if (permit && permit->state == PERMIT_TAKING)
	{
		watch = watch_of(&permit->place);
		if (watch != 0)
			watch = PERMIT_SERIAL(watch, PERMIT_PLACE);
	}
	else if (permit && watch != 0)
		watch = PERMIT_SERIAL(watch, PERMIT_LOCK);
	count_bytes(contender);
	if (watch != contender->watch_serial)
		set_watch(contender, watch);
	if (!contender_is_begun(contender) ||
		(permit ? permit->state == PERMIT_LEAVING :
		 recipe_is_leaving(contender->recipe)))
		contender_set_queued(contender, false);
}

/*
 * contender_excess
 *		How many bytes too many the session's nodes would have if the contender
 *		began now; it may if this is not above 0.
 */
int64
contender_excess(const Contender *contender)
{
	if (ZK_MUTATED(ZK_ROOM_UNCHECKED))
		return 0;
	return contenders.bytes - contenders.leaving + contenders.left +
		contender->place_bytes + contender->permit_bytes -
		ZK_PATH_BYTES_BOUND;
}

/* The contender's nodes may remain until the session ends. */
void
contender_leave(const Contender *contender)
{
	contenders.left += contender->place_bytes + contender->permit_bytes;
}

/* The session has ended, and with it all its nodes. */
void
contenders_forget_left(void)
{
	contenders.left = 0;
}

/* Have the contender begun at the end of the iteration, if there is room. */
void
contender_defer(Contender *contender)
{
	contender->deferred = true;
	dlist_push_tail(&contenders.deferred, &contender->deferred_node);
}

/* The first contender to be begun at the end of the iteration, or NULL. */
Contender *
contender_first_deferred(void)
{
	return dlist_is_empty(&contenders.deferred) ? NULL :
		dlist_head_element(Contender, deferred_node, &contenders.deferred);
}

/*
 * contender_set_queued
 *		Note whether the contender is queued behind others.
 *
 * A contender of readers with a writer behind it counts, too: other readers
 * wait for that writer.
 */
void
contender_set_queued(Contender *contender, bool queued)
{
	if (queued == (contender->queued_since_ms != 0))
		return;
	contender->queued_since_ms = queued ? zk_now_ms() : 0;
	if (queued)
		dlist_push_tail(&contenders.queued, &contender->queued_node);
	else
		dlist_delete(&contender->queued_node);
}

/* The contender that has been queued behind others for longest, or NULL. */
Contender *
contender_first_queued(void)
{
	return dlist_is_empty(&contenders.queued) ? NULL :
		dlist_head_element(Contender, queued_node, &contenders.queued);
}

/*
 * contender_queued_after
 *		When, after "at_ms", a contender was first queued behind others, as
 *		of zk_now_ms(); or 0.
 */
int64
contender_queued_after(int64 at_ms)
{
	int64		first_ms = 0;
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &contenders.queued)
	{
		const Contender *contender = dlist_container(Contender, queued_node,
													 iter.cur);

		if (contender->queued_since_ms <= at_ms)
			break;
		first_ms = contender->queued_since_ms;
	}
	return first_ms;
}

/* The contender is to wait for its watch as long as if it were set now. */
void
contender_delay_watch(Contender *contender)
{
	set_watch(contender, contender->watch_serial);
}

/*
 * contender_first_watching
 *		The contender whose watch was set earliest, or NULL; and how many
 *		wait for a watch.
 */
Contender *
contender_first_watching(int *nwatching)
{
	*nwatching = contenders.nwatching;
	return dlist_is_empty(&contenders.watching) ? NULL :
		dlist_head_element(Contender, watching_node, &contenders.watching);
}

/*
 * contender_schedule_check
 *		Check a contender at this time, as of zk_now_ms(), or earlier; 0: no
 *		check is needed.
 */
void
contender_schedule_check(Contender *contender, int64 at_ms)
{
	if (at_ms == 0 ||
		(contender->check_at_ms != 0 && contender->check_at_ms <= at_ms))
		return;
	unschedule_check(contender);
	contender->check_at_ms = at_ms;
	pairingheap_add(contenders.checks, &contender->check_node);
}

/* A contender that is due for a check, or NULL; the time is reset. */
Contender *
contender_next_due(int64 now_ms)
{
	Contender  *contender;

	if (pairingheap_is_empty(contenders.checks))
		return NULL;
	contender = pairingheap_container(Contender, check_node,
									  pairingheap_first(contenders.checks));
	if (contender->check_at_ms > now_ms)
		return NULL;
	unschedule_check(contender);
	return contender;
}

/* When the first contender is due for a check, as of zk_now_ms(); or 0. */
int64
contender_next_check(void)
{
	Contender  *contender;

	if (pairingheap_is_empty(contenders.checks))
		return 0;
	contender = pairingheap_container(Contender, check_node,
									  pairingheap_first(contenders.checks));
	return contender->check_at_ms;
}
