/*-------------------------------------------------------------------------
 *
 * contender.c
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Each slot that is wanted or owned has one: its state machine, and what the
 * worker knows of it.  This file finds them by slot and by UUID, makes them
 * begin, end and look again, passes events to their recipes, or permits,
 * carries their output out, and counts the room that they take in the session.
 *
 * Steps.  A contender's recipe, or its permit, processes an event: an answer
 * of ZooKeeper, a watch that has fired, or what the slot or the time asks for.
 * Its output's operations go to the session; its reports go to the slot, and
 * so to backends, and to the server log.
 *
 * If a contender's slot is wanted again when nothing of the contender is left
 * in ZooKeeper, it begins again at once, if there is room.  If that is known
 * before an exclusive owner's node is deleted, the next node is created in the
 * same step (requeue).
 *
 * Mail and time.  Mail of the slots begins and releases contenders.  One for
 * which the session has no room is deferred to the end of the iteration, when
 * all that is to be released has been.  If there is no room then either,
 * retained ones are given up for it; if that is not enough, it is refused with
 * an error.  Independently of mail and answers, the worker retries what was
 * refused, gives up idle locks, counts a retained owner that does not answer
 * as a holder, watches long-time owners for a revocation, and ends claims that
 * are over.
 *
 * Watches.  No event is sent twice, and a server or the client library may
 * lose one: then a contender would wait forever, or an owner that watches its
 * queue keep the lock from others.  So a contender that has waited for its
 * watch for a session timeout looks at what it watches, the one that has
 * waited for longest first.  With n of them, one is due in each nth part of a
 * timeout: so all are done after two timeouts, and never many at once.  No
 * more than 100 are due in a second, so 10,000 contenders take 100 seconds.
 * They go a few together, since other requests wait for a flight of reads.
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
 * order.  If the answer to the delete is lost, or is a refusal, the node
 * counts again.  The other half of jute.maxbuffer is for what is not counted:
 * a few bytes before the list, the instance's member znode (fleet.c), nodes
 * that are deleted as soon as they are seen (REQUEST_DELETE_ORPHAN), and the
 * deletes of a batch that has failed, which go again behind creates of the
 * same flight.  Because of the bound alone, a session from before a crash can
 * safely be closed although its nodes are unknown.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/contender.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/note.h"
#include "core/lock/permit.h"
#include "core/lock/recipe.h"
#include "core/mutation.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "postmaster/postmaster.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/outcome.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "shared/test_build.h"
#include "shared/text.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "worker/contender.h"
#include "worker/directories.h"
#include "worker/habits.h"
#include "worker/wake.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"

/* The pause before retrying what ZooKeeper has refused. */
#define RETRY_DELAY_MS		10000

/* The delay before a contender comes again whose number was late. */
#define LATE_DELAY_MS		1000

/* How long a retained owner may take to say whether it needs its lock. */
#define RETAINED_ANSWER_MS	1000

/*
 * The part of the slots and of the session's room for locks retained by habit.
 */
#define HABITUAL_PART		8

/* How often to check all owners. */
#define SWEEP_INTERVAL_MS	1000

/*
 * The most contenders that are watched for a revocation: the library sets all
 * watches again in one request when it reconnects.
 */
#define MAX_REVOCABLE		1000

/*
 * The pause between two sweeps over the owners is the larger of
 * SWEEP_INTERVAL_MS and this multiple of a sweep's CPU time, which is some
 * ms with 8,000 owners.
 */
#define SWEEP_PAUSE			50

/* How many contenders look together, and how often. */
#define LOOKS_AT_A_TIME		10
#define LOOKS_PAUSE_MS		100

/* Claims that end before they are logged. */
#define CLAIMS_AT_A_TIME	16

/* A lock directory, or one of the two parts of a semaphore. */
#define PLACE_PATH_SIZE		(ZNODE_PATH_SIZE + 8)

/* What we keep in ZooKeeper for a slot: a place in a queue, or a permit. */
struct Contender
{
	ZkSlot	   *slot;			/* hash key, must be first */
	uint32		owner;			/* of its requests */
	Recipe	   *recipe;			/* its queue; of a permit, that of the lock, or
								 * when it is granted, that of the permits */
	Permit	   *permit;			/* or NULL: it is for a lock */
	int64		owner_since_ms; /* zk_now_ms(); 0: not the owner */
	int64		answer_due_ms;	/* the same: when the answer of a retained
								 * owner is due, or 0 */
	int64		check_at_ms;	/* the same: when a check is due, or 0 */
	pairingheap_node check_node;	/* in a heap, unless check_at_ms is 0 */
	int			asker_pid;		/* the backend that it was begun for */
	bool		created;		/* the slot has its sequence number */
	uint8		uuid[ZNODE_UUID_BYTES]; /* or zeros: not begun yet */
	char		directory[ZNODE_PATH_SIZE];
	int			place_bytes;	/* room for its node in a queue, */
	int			permit_bytes;	/* and for its permit's node, or 0 */
	int			bytes;			/* room for all that it has, or may have */
	int			leaving;		/* the part whose delete is under way */
	bool		in_doubt;		/* a delete was refused, or its answer lost */
	bool		habitual;		/* its lock is retained by habit */
	bool		revokes;		/* it waits for an owner that may be retained,
								 * whether that has answered in time or not */
	bool		deferred;		/* not begun for want of room, until the end
								 * of the turn */
	dlist_node	deferred_node;	/* in its list, if deferred */
	int64		queued_since_ms;	/* zk_now_ms(): behind others, or with a
									 * writer behind it; 0: neither, as far as
									 * we know */
	dlist_node	queued_node;	/* in its list, unless
								 * queued_since_ms is 0 */
	uint32		watch_serial;	/* of the watch that it waits for, or 0 */
	int64		watched_ms;		/* zk_now_ms() when that was set, or when it
								 * last looked */
	dlist_node	watching_node;	/* in its list, unless watch_serial
								 * is 0 */
	bool		awaited;		/* a scan waits to learn if it is contended */
};

static struct
{
	HTAB	   *by_slot;		/* of Contenders */
	HTAB	   *uuids;			/* those in use by contenders */
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

/* Begin with no contenders. */
void
contenders_attach(void)
{
	contenders.by_slot = create_table("zklock contenders", sizeof(ZkSlot *),
									  sizeof(Contender));
	contenders.uuids = create_table("zklock contender UUIDs",
									ZNODE_UUID_BYTES, ZNODE_UUID_BYTES);
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

/* All contenders, since a step changes the table. */
static List *
list_all(void)
{
	HASH_SEQ_STATUS scan;
	Contender  *contender;
	List	   *list = NIL;

	hash_seq_init(&scan, contenders.by_slot);
	while ((contender = hash_seq_search(&scan)) != NULL)
		list = lappend(list, contender);
	return list;
}

static Contender *
find(ZkSlot *slot)
{
	return hash_search(contenders.by_slot, &slot, HASH_FIND, NULL);
}

/*
 * contender_find
 *		The contender of a slot, if it is the one that this describes; or NULL.
 */
Contender *
contender_find(ZkSlot *slot, const ZkContender *known)
{
	Contender  *contender = find(slot);

	return contender != NULL && known->has_uuid &&
		memcmp(contender->uuid, known->uuid, ZNODE_UUID_BYTES) == 0 ?
		contender : NULL;
}

/* Its lock directory. */
const char *
contender_directory(const Contender *contender)
{
	return contender->directory;
}

/* Does it own its lock, or a permit? */
bool
contender_owns(const Contender *contender)
{
	return contender->recipe->state == RECIPE_OWNER &&
		(!contender->permit || contender->permit->state == PERMIT_OWNER);
}

/* Is it an owner that watches its queue? */
static bool
watches_queue(const Contender *contender)
{
	return contender_owns(contender) && contender->recipe->queue_watch != 0;
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

static void on_answer(void *data, const RequestAnswer *answer);

/* Find the contender of a slot, or make one that is not begun. */
static Contender *
make(ZkSlot *slot, ZnodeKind kind)
{
	Contender  *contender;
	bool		found;

	contender = hash_search(contenders.by_slot, &slot, HASH_ENTER, &found);
	if (found)
		return contender;

	memset(contender, 0, sizeof(*contender));
	contender->slot = slot;
	key_path(slot_key(slot), contender->directory);
	contender->owner = session_add_owner(on_answer, contender);
	if (kind != ZNODE_PERMIT)
	{
		contender->recipe = MemoryContextAllocZero(TopMemoryContext,
												   sizeof(Recipe));
		contender->place_bytes = path_bytes(contender->directory, "", kind);
	}
	else
	{
		contender->permit = MemoryContextAllocZero(TopMemoryContext,
												   sizeof(Permit));
		contender->recipe = &contender->permit->lock;
		contender->place_bytes = path_bytes(contender->directory,
											"/" ZNODE_LOCKS_DIR, ZNODE_MUTEX);
		contender->permit_bytes = path_bytes(contender->directory,
											 "/" ZNODE_PERMITS_DIR, kind);
	}
	return contender;
}

/*
 * Note whether the contender's lock is retained by habit.
 *
 * Returns false, and does not note it, if that would take more than a
 * HABITUAL_PART-th of the slots or of the session's room.
 */
static bool
set_habitual(Contender *contender, bool habitual)
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

/*
 * Note whether the contender is queued behind others.
 *
 * A contender of readers with a writer behind it counts, too: other readers
 * wait for that writer.
 */
static void
set_queued(Contender *contender, bool queued)
{
	if (queued == (contender->queued_since_ms != 0))
		return;
	contender->queued_since_ms = queued ? zk_now_ms() : 0;
	if (queued)
		dlist_push_tail(&contenders.queued, &contender->queued_node);
	else
		dlist_delete(&contender->queued_node);
}

static void
unschedule_check(Contender *contender)
{
	if (contender->check_at_ms != 0)
		pairingheap_remove(contenders.checks, &contender->check_node);
	contender->check_at_ms = 0;
}

/* Check a contender at this zk_now_ms(), or earlier; 0: no need. */
static void
schedule_check(Contender *contender, int64 at_ms)
{
	if (at_ms == 0 ||
		(contender->check_at_ms != 0 && contender->check_at_ms <= at_ms))
		return;
	unschedule_check(contender);
	contender->check_at_ms = at_ms;
	pairingheap_add(contenders.checks, &contender->check_node);
}

/*
 * The contender's note, valid until the next call.
 *
 * Each write of a contender's data writes the whole note: besides this
 * instance, only other clients write there, for a revocation, so no other
 * words need to be kept.
 */
static const char *
note_of(const Contender *contender)
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
static void
note_uuid(Contender *contender, const uint8 *uuid)
{
	(void) hash_search(contenders.uuids, contender->uuid, HASH_REMOVE, NULL);
	memcpy(contender->uuid, uuid, ZNODE_UUID_BYTES);
	(void) hash_search(contenders.uuids, uuid, HASH_ENTER, NULL);
	contender->owner_since_ms = 0;
	contender->answer_due_ms = 0;
	contender->revokes = false;
	contender->created = contender->in_doubt = false;
	contender->awaited = false;
	set_queued(contender, false);
}

/*
 * The path of the lock directory, or of a part of a semaphore's, as a state
 * machine calls it; valid until the next call.
 */
static const char *
place_path(const Contender *contender, const char *below)
{
	static char path[PLACE_PATH_SIZE];

	snprintf(path, sizeof(path), "%s%s", contender->directory,
			 below ? below : "");
	return path;
}

/* Is it, or may it be, behind others with its node in its queue? */
static bool
is_queued(const Contender *contender)
{
	RecipeState state = contender->recipe->state;

	return state == RECIPE_WATCHING || state == RECIPE_READING ||
		(state == RECIPE_OWNER && !contender_owns(contender));
}

/*
 * contender_queued_ms
 *		Since when it has been queued as a wait for its slot in this state
 *		has it, as of zk_now_ms(); 0: it is not.
 */
int64
contender_queued_ms(const Contender *contender, ZkSlotState state)
{
	bool		is_so = state == ZK_SLOT_WANTED ? is_queued(contender) :
		state == ZK_SLOT_HELD && contender_owns(contender);

	return is_so ? contender->queued_since_ms : 0;
}

/* The name of its state, for log lines. */
static const char *
state_name(const Contender *contender)
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
		is_queued(contender) ? recipe->predecessor : NULL;
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
static void
drop(Contender *contender)
{
	(void) hash_search(contenders.uuids, contender->uuid, HASH_REMOVE, NULL);
	unschedule_check(contender);
	set_queued(contender, false);
	set_watch(contender, 0);
	set_bytes(contender, 0, 0);
	(void) set_habitual(contender, false);
	if (contender->deferred)
		dlist_delete(&contender->deferred_node);
	free_machine(contender);
	session_remove_owner(contender->owner);
	hash_search(contenders.by_slot, &contender->slot, HASH_REMOVE, NULL);
}

/* Has the contender anything in ZooKeeper, or may it have? */
static bool
is_begun(const Contender *contender)
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
static void
update(Contender *contender)
{
	Permit	   *permit = contender->permit;
	bool		taking = permit && permit->state == PERMIT_TAKING;
	uint32		watch;

	if (permit)
		contender->recipe = permit->state == PERMIT_OWNER ?
			&permit->place : &permit->lock;
	watch = watch_of(taking ? &permit->place : contender->recipe);
	if (permit && watch != 0)
		watch = PERMIT_SERIAL(watch, taking ? PERMIT_PLACE : PERMIT_LOCK);
	count_bytes(contender);
	if (watch != contender->watch_serial)
		set_watch(contender, watch);
	if (!is_begun(contender) ||
		(permit ? permit->state == PERMIT_LEAVING :
		 recipe_is_leaving(contender->recipe)))
		set_queued(contender, false);
}

/*
 * How many bytes too many the session's nodes would have if the contender
 * began now; it may if this is not above 0.
 */
static int64
excess(const Contender *contender)
{
	if (ZK_MUTATED(ZK_ROOM_UNCHECKED))
		return 0;
	return contenders.bytes - contenders.leaving + contenders.left +
		contender->place_bytes + contender->permit_bytes -
		ZK_PATH_BYTES_BOUND;
}

/* Have the contender begun at the end of the iteration, if there is room. */
static void
defer(Contender *contender)
{
	contender->deferred = true;
	dlist_push_tail(&contenders.deferred, &contender->deferred_node);
}

/*
 * Since when a contender has been queued behind others, as of zk_now_ms(), the
 * longest-queued one; 0: none is.
 */
int64
contenders_queued_ms(void)
{
	return dlist_is_empty(&contenders.queued) ? 0 :
		dlist_head_element(Contender, queued_node,
						   &contenders.queued)->queued_since_ms;
}

/*
 * contenders_queued_after
 *		When, after "at_ms", a contender was first queued behind others, as
 *		of zk_now_ms(); or 0.
 */
int64
contenders_queued_after(int64 at_ms)
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

/* The contender that is due for a check first, or NULL. */
static Contender *
first_check(void)
{
	return pairingheap_is_empty(contenders.checks) ? NULL :
		pairingheap_container(Contender, check_node,
							  pairingheap_first(contenders.checks));
}

/* Submit an operation of a step. */
static void
submit(Contender *contender, Request *request)
{
	if (request->data == NULL && (request->kind == REQUEST_CREATE ||
								  request->kind == REQUEST_REQUEUE ||
								  request->kind == REQUEST_SET))
		request->data = note_of(contender);

	/* a semaphore's parent is a container, too; the next answer counts */
	if (request->kind == REQUEST_MKDIRS && request->path != NULL)
	{
		Request		parent = *request;

		parent.path = contender->directory;
		parent.data = NULL;
		session_submit(contender->owner, &parent);
	}
	request->path = place_path(contender, request->path);
	session_submit(contender->owner, request);
}

/* ZooKeeper refuses the contender: pass on why. */
static void
refuse(Contender *contender, const RecipeOutput *out)
{
	ZkRefusal	refusal = ZK_REFUSAL_OTHER;

	if (out->report & RECIPE_REPORT_MIXED)
		refusal = ZK_REFUSAL_MIXED;
	else if (out->report & RECIPE_REPORT_LATE)
		refusal = ZK_REFUSAL_ENDED;
	else if (out->permits_found != 0)
		refusal = ZK_REFUSAL_PERMITS;
	else
	{
		if (session_error_is_access(out->error))
			refusal = ZK_REFUSAL_ACCESS;
		else if (session_error_is_no_node(out->error))
			refusal = ZK_REFUSAL_NO_CHROOT;
		ereport(LOG,
				(errmsg("ZooKeeper refused a contender for \"%s\": %s",
						contender->directory,
						session_error_text(out->error))));
	}
	slot_set_refused(contender->slot, refusal, out->permits_found);
}

/*
 * Our node may be left in ZooKeeper.  If its deletion was refused, the worker
 * retries from time to time, and backends that want the slot see that it may
 * take long.
 */
static void
warn_of_left(Contender *contender, const RecipeOutput *out)
{
	const Permit *permit = contender->permit;

	ereport(WARNING,
			(errmsg("could not delete contender \"%s/%s\": %s",
					place_path(contender, out->path), out->left,
					session_error_text(out->error)),
			 errdetail("If it exists, it blocks the lock until the session ends.")));
	if (recipe_is_stuck(contender->recipe) ||
		(permit && recipe_is_stuck(&permit->place)))
	{
		slot_set_stuck(contender->slot);
		schedule_check(contender, zk_now_ms() + RETRY_DELAY_MS);
	}
	else
		contenders.left += contender->place_bytes + contender->permit_bytes;
}

/*
 * ZooKeeper refuses the fencing token.  Holders that ask for it fail, and the
 * worker retries from time to time.
 */
static void
refuse_token(Contender *contender, int error)
{
	ZkRefusal	refusal = session_error_is_access(error) ? ZK_REFUSAL_ACCESS :
	ZK_REFUSAL_OTHER;

	if (slot_set_no_token(contender->slot, refusal))
		ereport(LOG,
				(errmsg("ZooKeeper refused the fencing token of \"%s\": %s",
						contender->directory, session_error_text(error))));
	schedule_check(contender, zk_now_ms() + RETRY_DELAY_MS);
}

/* Another client has requested the lock by writing to our node. */
static void
revoked(const Contender *contender)
{
	int			nleft;
	bool		claim_ended;
	int			n = slot_cancel_holders(contender->slot, &nleft, &claim_ended);

	ereport(LOG,
			(errmsg("another client requests revocation of lock \"%s\"", contender->directory),
			 nleft == 0 ?
			 errdetail_plural("The statement of %d holder has been canceled.",
							  "The statements of %d holders have been canceled.",
							  n, n) :
			 errdetail("Holders whose statement has been canceled: %d.  Holders left alone, since only superusers may cancel them: %d.",
					   n, nleft)));
	if (claim_ended)
		ereport(LOG,
				(errmsg("claim of lock \"%s\" has ended because another client has requested that",
						contender->directory)));
}

static void
log_loss(const Contender *contender)
{
	ereport(LOG,
			(errmsg("lost the lock \"%s\"", contender->directory)));
}

/* The contender owns its lock: include it in the sweep of owners. */
static void
note_owner(Contender *contender)
{
	contender->owner_since_ms = zk_now_ms();
	if (wake_time(WAKE_SWEEP) == 0)
		wake_set(WAKE_SWEEP, contender->owner_since_ms + SWEEP_INTERVAL_MS);
}

/* Note whether the contender has a node in the queue. */
static void
note_created(Contender *contender, unsigned report)
{
	if (report & RECIPE_REPORT_CREATED)
	{
		contender->created = true;
		if (!contender->permit)
			directory_note(contender->directory, true);
	}
	else if (contender->created &&
			 contender->recipe->state == RECIPE_ENTERING)
	{
		/* the next worker must not search for the previous node */
		slot_set_uncreated(contender->slot);
		contender->created = false;
		set_queued(contender, false);
	}
}

/* Note the contender's place in its queue. */
static void
note_queue(Contender *contender, unsigned report)
{
	if ((report & RECIPE_REPORT_GRANTED) && contender->revokes)
		stats_revoke_wait(slot_key(contender->slot));
	if (report & (RECIPE_REPORT_QUEUED | RECIPE_REPORT_GRANTED))
	{
		contender->answer_due_ms = 0;
		contender->revokes = false;
	}
	if (report & RECIPE_REPORT_QUEUED)
		set_queued(contender, true);
	if (report & RECIPE_REPORT_RETAINED)
	{
		contender->revokes = true;
		contender->answer_due_ms = zk_now_ms() + RETAINED_ANSWER_MS;
		schedule_check(contender, contender->answer_due_ms);
	}
	if (report & RECIPE_REPORT_GRANTED)
	{
		set_queued(contender, false);
		note_owner(contender);
	}
	if (report & RECIPE_REPORT_UNWATCHED)
		contender->awaited = false; /* the next scan asks again */
	if (report & (RECIPE_REPORT_CONTENDED | RECIPE_REPORT_ALONE))
	{
		set_queued(contender, (report & RECIPE_REPORT_WRITER) != 0);
		if (contender->awaited)
			wake_set(WAKE_SCAN, zk_now_ms());
		contender->awaited = false;
	}
	if (contender->recipe->others && !contender->permit)
		habits_of_others(contender->directory, contender->recipe->kind);
}

/*
 * Pass the reports of a step to the slot and the server log.  The caller
 * handles GONE and CONTENDED, which another step may follow.
 */
static void
report_step(Contender *contender, const RecipeOutput *out)
{
	const Recipe *recipe = contender->recipe;
	unsigned	report = out->report;

	if (report & RECIPE_REPORT_STRANGER)
		directory_warn(place_path(contender, out->path), out->stranger);
	if (report & RECIPE_REPORT_LOST)
		log_loss(contender);
	note_created(contender, report);
	note_queue(contender, report);
	schedule_check(contender,
				   slot_report(contender->slot, report, recipe->sequence,
							   recipe->token));
	if (report & RECIPE_REPORT_REVOKED)
		revoked(contender);
	if (recipe->state == RECIPE_LATE && recipe->refused)
		schedule_check(contender, zk_now_ms() + LATE_DELAY_MS);
	if ((report & RECIPE_REPORT_LATE) && !(report & RECIPE_REPORT_FAILED))
		ereport(LOG,
				(errmsg("the sequence numbers of \"%s\" in ZooKeeper are nearly used up",
						contender->directory),
				 errdetail("This server does not take the lock before the directory has been deleted, which needs a moment in which nobody is in it.")));
	if (report & RECIPE_REPORT_RENEWED)
		ereport(LOG,
				(errmsg("the queue of \"%s\" has started over in ZooKeeper, because its sequence numbers were nearly used up",
						contender->directory)));
	if (report & RECIPE_REPORT_NO_TOKEN)
		refuse_token(contender, out->error);
	if (report & RECIPE_REPORT_FAILED)
		refuse(contender, out);
	if (report & RECIPE_REPORT_LEFT)
		warn_of_left(contender, out);
	if (!contender->permit && !recipe->dir_known)
		directory_note(contender->directory, false);
}

/*
 * A contender is about to be created: how long may its lock be retained, in
 * ms?  0: not at all.
 *
 * Not while the session has presented credentials of the past, since it is to
 * be without contenders.
 */
static int32
retain_ms_for(Contender *contender, const ZkContender *wanted)
{
	int64		time;

	(void) set_habitual(contender, false);
	if (wanted->kind == ZNODE_PERMIT || auths_are_old())
		return 0;
	if (zklock_retain_time != ZK_RETAIN_BY_HABIT)
		return zklock_retain_time;
	time = habits_wanted(contender->directory, wanted);
	if (time > 0 && !set_habitual(contender, true))
		time = 0;
	return (int32) ((time + 999) / 1000);
}

/*
 * Queue for a wanted lock or permit with a new UUID, which is noted in its
 * slot before anything is sent.
 */
static void
want(Contender *contender, const ZkContender *wanted, RecipeOutput *out)
{
	Recipe	   *recipe = contender->recipe;
	int32		retain_ms = retain_ms_for(contender, wanted);
	uint8		uuid[ZNODE_UUID_BYTES];

	contender->asker_pid = wanted->asker_pid;
	session_make_uuid(uuid);
	note_uuid(contender, uuid);
	slot_set_uuid(contender->slot, uuid, retain_ms);
	if (contender->permit)
		permit_want(contender->permit, uuid, wanted->permits, out);
	else
	{
		recipe->retain = retain_ms > 0;
		recipe->asks_retained = true;
		recipe_want(recipe, uuid, wanted->kind,
					directory_is_known(contender->directory),
					directory_owns_unread(contender->directory), out);
	}
	update(contender);
}

/*
 * Before a step: may it end an exclusive owner that directories.c remembers?
 */
static bool
may_leave(const Contender *contender)
{
	return contender_owns(contender) && !contender->permit &&
		(contender->recipe->kind != ZNODE_READER ||
		 ZK_MUTATED(ZK_READER_PRECEDES));
}

/* Let the contender's recipe, or its permit, take one step. */
static void
take_step(Contender *contender, RecipeEvent event, const RequestAnswer *answer,
		  RecipeOutput *out)
{
	bool		leaves = may_leave(contender);

	if (contender->permit)
		permit_step(contender->permit, event, answer, out);
	else
		recipe_step(contender->recipe, event, answer, out);
	update(contender);

	/* note the directory before the delete is sent */
	if (leaves && contender->recipe->state == RECIPE_LEAVING &&
		!status_is_ending())
		directory_leave(contender->directory, contender->recipe->sequence);
}

/*
 * If a step has reported others behind our contender, and its note says
 * retain=yes, take the step that writes that the lock is in use.  Returns
 * false if there is no such step.
 */
static bool
set_in_use(Contender *contender, RecipeOutput *out)
{
	if (!(out->report & RECIPE_REPORT_CONTENDED) ||
		!slot_set_contended(contender->slot) || !contender->recipe->retain)
		return false;
	take_step(contender, RECIPE_SET_IN_USE, NULL, out);
	return true;
}

/*
 * Nothing of the contender is left in ZooKeeper.  If its slot is wanted again
 * and there is room, begins it again and returns true; otherwise defers or
 * drops it.
 */
static bool
want_again(Contender *contender, RecipeOutput *out)
{
	ZkContender wanted;

	if (!slot_set_gone(contender->slot, &wanted) || status_is_ending())
	{
		drop(contender);
		return false;
	}
	if (excess(contender) > 0)
	{
		defer(contender);
		return false;
	}
	want(contender, &wanted, out);
	return true;
}

/*
 * Carry out a step's output, and the further steps that follow from it.  May
 * drop the contender.
 */
static void
carry_out(Contender *contender, RecipeOutput *out)
{
	bool		again = true;

	while (again)
	{
		ereport(DEBUG3,
				(errmsg_internal("contender \"%s/%s\" is %s",
								 contender->directory, contender->recipe->node,
								 state_name(contender))));
		for (int i = 0; i < out->nops; i++)
			submit(contender, &out->ops[i]);
		report_step(contender, out);
		again = set_in_use(contender, out) ||
			((out->report & RECIPE_REPORT_GONE) && want_again(contender, out));
	}
}

/* Process one event of a contender, which may be dropped by that. */
static void
step(Contender *contender, RecipeEvent event, const RequestAnswer *answer)
{
	RecipeOutput out;

	take_step(contender, event, answer, &out);
	carry_out(contender, &out);
}

/* Begin a contender, for which there is room. */
static void
start(Contender *contender, const ZkContender *wanted)
{
	RecipeOutput out;

	want(contender, wanted, &out);
	carry_out(contender, &out);
}

/*
 * The slot is being released: if it is wanted again, and the contender is an
 * exclusive owner, requeue in the same step.  Returns whether it does.
 */
static bool
requeue(Contender *contender)
{
	ZkContender wanted;
	RecipeOutput out;
	int32		retain_ms;

	if (!contender_owns(contender) || contender->permit ||
		znode_is_shared(contender->recipe->kind) || status_is_ending() ||
		!slot_requeue(contender->slot, &wanted))
		return false;
	retain_ms = retain_ms_for(contender, &wanted);
	if (retain_ms > 0)
		slot_set_retain_ms(contender->slot, retain_ms);
	contender->asker_pid = wanted.asker_pid;
	contender->owner_since_ms = 0;
	contender->awaited = false;
	contender->recipe->retain = retain_ms > 0;
	take_step(contender, RECIPE_REQUEUE, NULL, &out);
	carry_out(contender, &out);
	return true;
}

/* A contender that owns its lock is being given up: learn from its use. */
static void
learn(const Contender *contender)
{
	ZkContender known;

	if (contender->permit)
		return;
	(void) slot_read_contender(contender->slot, &known);
	if (known.use.revoked && !status_is_ending())
		stats_revoked(slot_key(contender->slot));
	if (known.use.dropped_at != 0)
		habits_dropped(contender->directory, contender->recipe->kind,
					   contender->recipe->sequence, &known.use);
}

/* Resume its recipe or permit. */
static void
resume(Contender *contender, ZkSlotState state, const ZkContender *known,
	   RecipeOutput *out)
{
	RecipeResume how =
		state == ZK_SLOT_WANTED ? RECIPE_RESUME_WANTED :
		state == ZK_SLOT_RELEASING ? RECIPE_RESUME_RELEASING :
		RECIPE_RESUME_OWNED;
	const int32 *sequence = known->has_sequence ? &known->sequence : NULL;
	Recipe	   *recipe = contender->recipe;

	if (contender->permit)
	{
		permit_resume(contender->permit, known->uuid, known->permits, how,
					  sequence, out);
		return;
	}
	recipe->retain = known->retain_ms > 0;
	recipe->asks_retained = true;
	recipe->requeued = known->requeued;
	recipe_resume(recipe, known->uuid, known->kind, how, sequence, out);
}

/* Continue a contender of the previous worker, as its slot describes it. */
static void
take_over(ZkSlot *slot, ZkSlotState state, const ZkContender *known)
{
	Contender  *contender = make(slot, known->kind);
	RecipeOutput out;

	note_uuid(contender, known->uuid);
	(void) set_habitual(contender, known->retain_ms > 0 &&
						zklock_retain_time == ZK_RETAIN_BY_HABIT);
	contender->asker_pid = known->asker_pid;
	if (state != ZK_SLOT_WANTED && state != ZK_SLOT_RELEASING)
		note_owner(contender);
	resume(contender, state, known, &out);
	update(contender);
	carry_out(contender, &out);
}

/* The session has ended, and the contender with it: drop it. */
static void
expire(Contender *contender)
{
	RecipeOutput out;
	ZkContender wanted;

	take_step(contender, RECIPE_EXPIRED, NULL, &out);
	if (out.report & RECIPE_REPORT_LOST)
		log_loss(contender);
	(void) slot_set_gone(contender->slot, &wanted);
	drop(contender);
}

/* The session has ended, and its contenders with it: drop them. */
void
contenders_expire(void)
{
	ListCell   *cell;

	foreach(cell, list_all())
		expire(lfirst(cell));
	contenders.left = 0;		/* with all its nodes */
}

/*
 * Have a slot's contender list the queue, and watch it; the contender of this
 * instance in the other mode does not count.
 */
static void
watch_queue(ZkSlot *slot)
{
	Contender  *contender = find(slot);
	ZkContender writer;
	Recipe	   *recipe;

	if (contender == NULL)
		return;
	recipe = contender->recipe;
	recipe->has_sibling = recipe->kind == ZNODE_READER &&
		slot_read_other_mode(slot, &writer) != ZK_SLOT_NONE && writer.has_uuid;
	if (recipe->has_sibling)
		memcpy(recipe->sibling, writer.uuid, ZNODE_UUID_BYTES);
	step(contender, RECIPE_WATCH_QUEUE, NULL);
}

/*
 * contender_await
 *		A scan of ours waits to learn whether others are behind an owner.
 */
void
contender_await(Contender *contender)
{
	if (contender->awaited)
		return;
	contender->awaited = true;
	if (!watches_queue(contender))
		watch_queue(contender->slot);
}

/*
 * Is the predecessor that a contender watches, by this answer, an orphan: of
 * our session, but of none of our contenders?  It would block the queue until
 * the session ends.
 *
 * A node's UUID is noted from before its create until its delete is known to
 * be done; and this answer is not older than the answer to any delete.
 */
static bool
is_orphan(const Contender *contender, const RequestAnswer *answer)
{
	const char *predecessor = contender->recipe->predecessor;
	uint8		uuid[ZNODE_UUID_BYTES];

	if (answer->result != REQUEST_OK || !answer->ours ||
		contender->recipe->state != RECIPE_WATCHING ||
		answer->serial != contender->watch_serial ||
		!znode_parse_uuid(predecessor, uuid) ||
		hash_search(contenders.uuids, uuid, HASH_FIND, NULL) != NULL)
		return false;

	ereport(LOG,
			(errmsg("deleting znode \"%s\" of a lost contender of this instance for \"%s\"",
					text_for_log(predecessor), contender->directory),
			 errdetail("It belongs to the session of this instance, but no contender of this instance knows it.")));
	return true;
}

/* Note what an answer tells of the directory, or of our node. */
static void
note_answer(Contender *contender, const RequestAnswer *answer)
{
	Recipe	   *recipe = contender->recipe;

	if (answer->kind == REQUEST_MKDIR || answer->kind == REQUEST_MKDIRS)
		directory_made(answer);
	else if (answer->kind == REQUEST_CREATE && !contender->permit)
		recipe->next = directory_next(contender->directory);
	else if (answer->kind == REQUEST_DELETE)
	{
		if (answer->result == REQUEST_UNKNOWN ||
			answer->result == REQUEST_REFUSED)
			contender->in_doubt = true;
		if (!contender->permit)
			directory_left(contender->directory, recipe->sequence,
						   answer->result == REQUEST_OK);
	}
	recipe->orphan = is_orphan(contender, answer);
}

/* A request of a contender has been answered, or its watch has fired. */
static void
on_answer(void *data, const RequestAnswer *answer)
{
	Contender  *contender = data;

	if (answer->event == REQUEST_DONE)
		note_answer(contender, answer);
	step(contender, RECIPE_ANSWER, answer);
}

/* The slot is wanted: begin a contender, unless it has one. */
static void
begin(ZkSlot *slot, const ZkContender *wanted)
{
	Contender  *contender;

	if (status_is_ending())
		return;					/* contenders_take_over() does so, in the next
								 * session */
	contender = make(slot, wanted->kind);
	if (is_begun(contender) || contender->deferred)
		return;
	if (excess(contender) > 0)
		defer(contender);
	else
		start(contender, wanted);
}

/* The slot is released: give its contender up, or cancel its begin. */
static void
release(ZkSlot *slot)
{
	ZkContender wanted;
	Contender  *contender = find(slot);

	if (contender != NULL && contender->deferred)
	{
		drop(contender);
		contender = NULL;
	}
	if (contender != NULL && contender_owns(contender))
		learn(contender);
	if (contender != NULL && requeue(contender))
		return;
	if (contender != NULL)
		step(contender, RECIPE_RELEASE, NULL);
	else if (slot_set_gone(slot, &wanted))
		begin(slot, &wanted);
}

/*
 * contenders_take_over
 *		Give a contender to each slot that wants one and has none: take over
 *		those of the previous worker, begin the others, or release the slot
 *		if no worker had seen it wanted.
 */
void
contenders_take_over(void)
{
	int			nslots;
	ZkSlot	  **list = slots_list(&nslots);

	/* what may exist already takes its room first */
	for (int i = 0; i < nslots; i++)
	{
		ZkContender known;
		ZkSlotState state = slot_read_contender(list[i], &known);

		if (known.has_uuid && find(list[i]) == NULL)
			take_over(list[i], state, &known);
	}
	pfree(list);

	/* some slots may be gone by now */
	list = slots_list(&nslots);
	for (int i = 0; i < nslots; i++)
	{
		ZkSlot	   *slot = list[i];
		ZkContender wanted;
		ZkSlotState state = slot_read_contender(slot, &wanted);

		if (find(slot) != NULL)
			continue;
		if (state == ZK_SLOT_RELEASING)
			release(slot);
		else
			begin(slot, &wanted);
	}
	pfree(list);
}

/*
 * contenders_drain
 *		The session is to end when nothing is held: until then, no lock
 *		may pass from backend to backend for long, or be retained.
 */
void
contenders_drain(void)
{
	ListCell   *cell;

	foreach(cell, list_all())
		(void) slot_set_contended(((Contender *) lfirst(cell))->slot);
}

/*
 * contenders_release
 *		Release all contenders, when nothing is held: wanted ones, too,
 *		which queue again in another session.
 */
void
contenders_release(void)
{
	ListCell   *cell;

	foreach(cell, list_all())
		release(((Contender *) lfirst(cell))->slot);
}

/* Give up retained contenders until there is room for this one. */
static void
give_up_retained(const Contender *deferred)
{
	ListCell   *cell;

	if (excess(deferred) <= 0)
		return;
	foreach(cell, list_all())
	{
		const Contender *contender = lfirst(cell);

		if (excess(deferred) > 0 &&
			contender_owns(contender) && contender->recipe->retain &&
			slot_give_up_idle(contender->slot))
			release(contender->slot);
	}
}

/*
 * Begin the deferred contenders that fit when retained ones have been given
 * up, and refuse the others.
 */
static void
begin_deferred(void)
{
	while (!dlist_is_empty(&contenders.deferred))
	{
		Contender  *contender = dlist_head_element(Contender, deferred_node,
												   &contenders.deferred);
		ZkSlot	   *slot = contender->slot;
		ZkContender wanted;
		bool		fits;

		give_up_retained(contender);
		fits = excess(contender) <= 0;
		drop(contender);

		/* if no backend wants it any more, that is in the mail */
		if (slot_read_contender(slot, &wanted) != ZK_SLOT_WANTED)
			continue;
		if (!fits)
		{
			slot_set_refused(slot, ZK_REFUSAL_NO_ROOM, 0);
			if (slot_set_gone(slot, &wanted))
				begin(slot, &wanted);
		}
		else if (!status_is_ending())
			start(make(slot, wanted.kind), &wanted);
	}
}

/*
 * contenders_open_mail
 *		Pass the ends of waits and holds to "over" (see slots_collect_ends()),
 *		do what the slots in the mail request, and begin what was deferred.
 */
void
contenders_open_mail(void (*over) (const int64 *ends, int n, bool all))
{
	bool		more = true;

	while (more)
	{
		ZkSlot	   *slot = slots_collect_mail();
		int64		ends[SLOTS_MAX_ENDS];
		bool		all;
		int			n = slots_collect_ends(ends, &all);

		more = slot != NULL;
		if (n > 0)
			over(ends, n, all);
		while (slot != NULL)
		{
			ZkSlot	   *next;
			ZkContender wanted;
			ZkMail		mail = slot_open_mail(slot, &next, &wanted);

			if (mail == ZK_MAIL_WANT)
				begin(slot, &wanted);
			else if (mail == ZK_MAIL_WATCH_QUEUE)
				watch_queue(slot);
			else if (mail == ZK_MAIL_RELEASE)
				release(slot);
			slot = next;
		}
	}
	begin_deferred();
}

/* A retained owner that does not answer in time counts as a holder. */
static void
check_answer(Contender *contender, int64 now_ms)
{
	if (contender->answer_due_ms == 0)
		return;
	/* does it still watch that owner? */
	if (!is_queued(contender) || contender->watch_serial == 0)
		contender->answer_due_ms = 0;
	else if (now_ms < contender->answer_due_ms)
		schedule_check(contender, contender->answer_due_ms);
	else
	{
		contender->answer_due_ms = 0;
		(void) slot_report(contender->slot, RECIPE_REPORT_QUEUED, 0, 0);
		set_queued(contender, true);
	}
}

/*
 * Check the contenders that are due: each at its own time, since thousands may
 * be retained.  An owner that no backend takes is given up, what ZooKeeper has
 * refused is retried, and one whose number was late queues again.
 */
static void
check_due(void)
{
	int64		now_ms = zk_now_ms();
	int			n = 0;
	Contender  *contender;

	while ((contender = first_check()) != NULL &&
		   contender->check_at_ms <= now_ms)
	{
		unschedule_check(contender);
		check_answer(contender, now_ms);
		schedule_check(contender, slot_check_idle(contender->slot, now_ms));
		step(contender, RECIPE_RETRY, NULL);
		n++;
	}
	if (n > 0)
		ereport(DEBUG2, (errmsg_internal("looked after %d contenders", n)));
	wake_set(WAKE_CHECK, contender ? contender->check_at_ms : 0);
}

static bool
watches_itself(const Contender *contender)
{
	return contender->recipe->revocation_watch != 0;
}

/*
 * Check all owners: watch those that have owned for some time for a
 * revocation, and find those that have become idle.
 */
static void
sweep_owners(void)
{
	int64		now_ms = zk_now_ms();
	int64		cpu_us = zk_cpu_us();
	int			revocable = 0;
	bool		again = false;
	List	   *list;
	ListCell   *cell;

	if (!wake_is_due(WAKE_SWEEP))
		return;
	wake_set(WAKE_SWEEP, 0);
	list = list_all();
	foreach(cell, list)
		if (watches_itself(lfirst(cell)))
			revocable++;
	foreach(cell, list)
	{
		Contender  *contender = lfirst(cell);

		if (contender->owner_since_ms == 0)
			continue;
		again = true;
		schedule_check(contender, slot_check_idle(contender->slot, now_ms));
		if (now_ms - contender->owner_since_ms >= SWEEP_INTERVAL_MS &&
			!watches_itself(contender) && revocable < MAX_REVOCABLE)
		{
			revocable++;
			step(contender, RECIPE_WATCH_REVOCATION, NULL);
		}
	}
	if (again)
	{
		int64		pause_ms = SWEEP_PAUSE * (zk_cpu_us() - cpu_us) / 1000;

		wake_set(WAKE_SWEEP, now_ms + Max(pause_ms, SWEEP_INTERVAL_MS));
	}
	ereport(DEBUG2, (errmsg_internal("looked after %d contenders",
									 list_length(list))));
}

/* The contender whose watch was set earliest, or NULL. */
static Contender *
first_watching(void)
{
	return dlist_is_empty(&contenders.watching) ? NULL :
		dlist_head_element(Contender, watching_node, &contenders.watching);
}

/*
 * Let a contender look at what it watches.  Not without a connection: the
 * library sets all watches again on the next one, and then delivers what was
 * missed.
 */
static void
look_again(Contender *contender)
{
	/* next after a timeout, as if the watch were set now */
	set_watch(contender, contender->watch_serial);
	if (status_is_connected())
		step(contender, RECIPE_LOOK, NULL);
}

/* When the first contender that waits for a watch is due. */
static int64
due_to_look(const Contender *first, int64 last_ms)
{
	int			timeout_ms = status()->timeout;

	return Max(first->watched_ms + timeout_ms,
			   last_ms + Max(timeout_ms / contenders.nwatching,
							 LOOKS_PAUSE_MS));
}

/* Let contenders that have waited for a watch for long look. */
static void
look_again_in_turn(void)
{
	static int64 last_ms = 0;
	int64		now_ms = zk_now_ms();
	int			timeout_ms = status()->timeout;
	Contender  *first = ZK_LOOKS_AGAIN ? first_watching() : NULL;

	if (first != NULL && now_ms >= due_to_look(first, last_ms))
	{
		int			count = Min((int64) contenders.nwatching *
								LOOKS_PAUSE_MS / timeout_ms + 1,
								LOOKS_AT_A_TIME);

		last_ms = now_ms;
		while (count-- > 0 && first != NULL &&
			   now_ms >= first->watched_ms + timeout_ms)
		{
			look_again(first);
			first = first_watching();
		}
	}
	wake_set(WAKE_WATCH, first ? due_to_look(first, last_ms) : 0);
}

/* End claims that are over or lost, and have the slots' mail opened next. */
static void
end_claims(void)
{
	ZkEndedClaim ended[CLAIMS_AT_A_TIME];
	int64		due_ms;

	while ((due_ms = claims_due_ms()) != 0 && due_ms <= zk_now_ms())
	{
		int			n = claims_end_due(ended, CLAIMS_AT_A_TIME);

		for (int i = 0; i < n; i++)
			ereport(LOG,
					(ended[i].lost ?
					 errmsg("claim of lock \"%s\" has been lost",
							ended[i].path) :
					 errmsg("claim of lock \"%s\" has ended because it was not renewed in time",
							ended[i].path)));
	}
	wake_set(WAKE_CLAIMS, due_ms);
}

/*
 * contenders_check
 *		Check all contenders and claims that are due.
 */
void
contenders_check(void)
{
	end_claims();
	sweep_owners();
	check_due();
	look_again_in_turn();
}

/*
 * contenders_watch_queues
 *		The connection is lost, or back.
 *
 * Without a connection we do not learn who queues behind our contenders.  With
 * a new one, the contenders that need it watch their queues again.
 */
void
contenders_watch_queues(bool connected)
{
	ListCell   *cell;

	foreach(cell, list_all())
	{
		const Contender *contender = lfirst(cell);

		if (!watches_queue(contender))
			continue;
		if (connected)
			watch_queue(contender->slot);
		else
			slot_set_disconnected(contender->slot);
	}
}
