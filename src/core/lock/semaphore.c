/*-------------------------------------------------------------------------
 *
 * semaphore.c
 *		A permit of a semaphore in ZooKeeper, as a pure state machine.
 *
 * One Semaphore is one backend's wait for, or hold of, one permit.  Inputs and
 * outputs are as in recipe.c.
 *
 * In ZooKeeper it is Curator's InterProcessSemaphoreV2:
 *
 *		<name>/locks/_c_<uuid>-lock-0000000042		takes the next permit
 *		<name>/leases/_c_<uuid>-lease-0000000017	a permit in use
 *
 * A waiter queues for the lock (an embedded Recipe).  As its owner it creates
 * its permit, a node in <name>/leases, and waits until fewer permits precede
 * its own than the semaphore has.  Then the permit is granted, and the waiter
 * releases the lock.  Only the owner of the lock creates permits, so they are
 * granted in the order of the queue.  Even if two waiters both took themselves
 * for the owner, their permits would have an order: the number would not be
 * exceeded, nor would the two wait for each other.
 *
 * Unlike Curator,
 *
 *	- the data of <name>/leases is the number of permits that its users have
 *	  agreed on.  While others have permits, a different number is refused;
 *	  else the owner of the lock writes its own.  The number is read before
 *	  queueing, so that a waiter that will be refused need not wait; again by
 *	  the owner of the lock, whose answer counts; and once more when the
 *	  owner's permit keeps the directory, and the number, from being collected;
 *	- contenders of a lock in <name> itself are looked for: before all else,
 *	  so that no directory is made in that of a lock, and by the owner of our
 *	  lock, whose contender keeps <name>/locks from being collected.  The lock
 *	  recipe looks for permits after it has made its contender, so at least
 *	  one of the two sees the other.  If we do, our directories are deleted,
 *	  unless they are in use;
 *	- the counters of the directories come to an end.  <name>/locks is made
 *	  anew in time, as for any lock.  The counter of <name>/leases does not
 *	  matter: permits are counted, not ordered, and a permit whose number has
 *	  no order counts all others as before it, as Curator always does;
 *	- a waiter is reported queued as soon as no permit can be free for it.  In
 *	  the queue that is so if the permits of others and the contenders ahead
 *	  are more than the semaphore's permits: one of those ahead may count
 *	  twice, with the lock and a permit, but even then no permit is left.  The
 *	  permits are read before the queue, so that a contender that gets its
 *	  permit between the two is not counted twice.
 *
 * The search for a permit of ours is sent behind a write of our own, as in
 * recipe.c.  All else is read behind a sync, unless our own create makes the
 * server catch up.  A deposed leader that has not noticed may answer the sync
 * from old state: then a waiter may be refused, or reported queued, without
 * need.  But the owner of the lock has seen the contender before it go, and so
 * the permit that it left.
 *
 * The invariants of each state, between steps.  An operation without an answer
 * yet is "out"; it has the latest serial number, as all of its flight.
 * "has_node" says that "node" is the name of our permit, which is there for
 * all we know; otherwise "node" is the prefix of that name, and except where a
 * state says so, we have no permit.  "The lock" is the embedded recipe.
 *
 *	NONE		The lock is NONE, and there is no permit.
 *	RESUMING	We may have a permit.  A search is out.  The lock is resumed as
 *				wanted.
 *	RETRACTING	As in RESUMING, but "has_node", and the permit's delete is out.
 *	PREPARING	The lock is NONE, or resumed as wanted.  The reads are out.
 *	QUEUEING	The lock is wanted, and not ours yet.  The reads of permits and
 *				queue may be out.
 *	CHECKING	We own the lock, here and in all states up to WAITING.  The
 *				reads are out.
 *	AGREEING	The set of the number is out.  With "has_node" we have a
 *				permit.
 *	CREATING	The create is out, and decides whether we have a permit.  The
 *				reads are out behind it.
 *	SEARCHING	We may have a permit.  A search is out.
 *	COUNTING	"has_node".  The reads are out; "others" is -1 until the list
 *				of permits is answered.
 *	WAITING		"has_node".  At least "permits" others preceded ours when they
 *				were last listed.  They are watched, or the list is out.
 *	OWNER		"has_node", and the permit is granted.  The lock is not wanted.
 *	RECLAIMING	We may have a permit, which was granted.  A search is out.  The
 *				lock is not wanted.
 *	CANCELLING	As in CREATING, but the permit is not wanted.  The lock is
 *				ours, or lost.
 *	ABANDONING	As in SEARCHING, RESUMING or RECLAIMING, but the permit is not
 *				wanted.
 *	LEAVING		The lock is not wanted.  With "has_node", the permit's delete
 *				is out, or was refused; otherwise the lock is not NONE yet.
 *
 * The model of test/unit checks this after each step.
 *
 * The states and events.  A state ignores events that are not listed for it;
 * answers and watches count only with the latest serial number, which all of a
 * flight share.  "Look" is: make the directories that were found missing, sync
 * and read <name>, read the permits, get the agreed number; "count" is the
 * last two of these.
 *
 *	NONE		want -> PREPARING: look
 *				resume, wanted -> RESUMING: search; the lock resumed as wanted
 *				resume, owned -> RECLAIMING: search; the lock as releasing
 *				resume, releasing -> ABANDONING: search; the lock the same
 *	RESUMING	search ok, our permit among them -> RETRACTING: delete
 *				search ok, without it; no node -> PREPARING: look
 *				search refused -> LEAVING: release the lock; failed, and
 *				  perhaps left behind
 *				search unknown -> RESUMING: search
 *				release -> ABANDONING
 *	RETRACTING	delete ok, no node -> RESUMING: search
 *				delete unknown -> RETRACTING: delete
 *				delete refused -> LEAVING: release the lock; failed, left
 *				release -> LEAVING: release the lock
 *	PREPARING	<name> ok, with contenders -> LEAVING: release the lock, delete
 *				  the directories; failed, mixed
 *				agreement ok, and is ours, or there are no permits -> QUEUEING:
 *				  want the lock, unless it is resumed; if that is owned, as
 *				  QUEUEING; if that waits, as there
 *				agreement ok, but another, and there are permits -> LEAVING:
 *				  release the lock; failed, with the number found
 *				anything unknown -> PREPARING: look
 *				anything no node -> PREPARING: look, with directories to be
 *				  made, the next time with their parents; or, if they could
 *				  not be, as refused
 *				anything refused -> LEAVING: release the lock; failed
 *				release -> LEAVING: release the lock
 *	QUEUEING	lock granted -> CHECKING: look
 *				lock queued -> QUEUEING: read the permits, read the queue; or,
 *				  if its number is late -> QUEUEING: queued
 *				queue ok -> QUEUEING: queued, or not yet certain
 *				permits or queue unknown -> QUEUEING: read both again
 *				permits or queue refused -> LEAVING: release the lock; failed
 *				release -> LEAVING: release the lock
 *	CHECKING	agreement ok, and is ours -> CREATING: create, count
 *				agreement ok, but none, or another, and there are no permits
 *				  -> AGREEING: set
 *				all else as PREPARING, but in CHECKING
 *	AGREEING	set ok -> CREATING: create, count; or, with a permit already,
 *				  COUNTING: count
 *				set unknown -> AGREEING: set
 *				set no node -> CHECKING: look, with directories to be made
 *				set refused -> LEAVING: delete the permit if there is one,
 *				  release the lock; failed
 *				release -> LEAVING: the same
 *	CREATING	create ok -> COUNTING (the answers are on their way)
 *				create unknown, or under no name that it can have ->
 *				  SEARCHING: search
 *				create no node -> CHECKING: look, with directories to be made
 *				create refused -> LEAVING: release the lock; failed
 *				release -> CANCELLING
 *	SEARCHING	search ok, our permit among them -> COUNTING: count
 *				search ok, without it -> CREATING: create, count
 *				search no node -> CHECKING: look, with directories to be made
 *				search unknown -> SEARCHING: search
 *				search refused -> LEAVING: release the lock; failed, and
 *				  perhaps left behind
 *				release -> ABANDONING
 *	COUNTING	children ok, without our permit -> CREATING: create, count
 *				agreement ok, and is ours; fewer before ours than there may be
 *				  -> OWNER: stat, release the lock; granted
 *				the same, but as many, or more -> WAITING: list; queued
 *				agreement ok, but another, and there are permits of others ->
 *				  LEAVING: delete, release the lock; failed, with the number
 *				agreement ok, but none, or another, and there are none ->
 *				  AGREEING: set
 *				anything unknown -> COUNTING: count
 *				anything no node -> CHECKING: look, with directories to be made
 *				anything refused -> LEAVING: delete, release the lock; failed
 *				release -> LEAVING: delete, release the lock
 *	WAITING		list ok, fewer before ours than there may be -> OWNER: unwatch,
 *				  stat, release the lock; granted
 *				list ok, as many, or more -> WAITING
 *				list ok, without our permit -> CREATING: unwatch, create, count
 *				watch used up; list unknown; look -> WAITING: list
 *				list no node -> CHECKING: unwatch, look, with directories to be
 *				  made
 *				list refused -> LEAVING: unwatch, delete, release the lock;
 *				  failed
 *				release -> LEAVING: unwatch, delete, release the lock
 *	OWNER		stat ok, our session's -> OWNER: token
 *				stat ok, not our session's; no node -> LEAVING: lost
 *				stat unknown -> OWNER: stat
 *				stat refused -> OWNER: the permit is ours, but has no token
 *				watch for a revocation, once; that watch used up or unknown ->
 *				  OWNER: watch our permit
 *				that watch ok, our session's -> OWNER: token; and with the data
 *				  of a revocation -> OWNER: set our note; revoked
 *				that watch ok, not our session's; no node -> LEAVING: lost
 *				that watch refused -> OWNER
 *				set unknown -> OWNER: set
 *				release -> LEAVING: delete, release the lock
 *	RECLAIMING	search ok, our permit among them -> OWNER: stat
 *				search ok, without it; no node -> LEAVING: lost
 *				search unknown -> RECLAIMING: search
 *				search refused -> LEAVING: lost, and perhaps left behind
 *				release -> ABANDONING
 *	CANCELLING	create ok -> LEAVING: delete, release the lock
 *				create unknown, or under no name that it can have ->
 *				  ABANDONING: search
 *				create no node, refused -> LEAVING: release the lock
 *	ABANDONING	search ok, our permit among them -> LEAVING: delete, release
 *				  the lock
 *				search ok, without it; no node -> LEAVING: release the lock
 *				search unknown -> ABANDONING: search
 *				search refused -> LEAVING: release the lock; perhaps left
 *	LEAVING		neither permit nor lock is there -> NONE: gone
 *				delete ok, no node -> LEAVING, without the permit
 *				delete unknown -> LEAVING: delete
 *				delete refused -> LEAVING: left behind
 *				retry, after a refusal -> LEAVING: delete
 *	up to WAITING: the lock failed -> failed, all else as release; the lock is
 *				  lost -> as release
 *	any			the lock is left behind, has a stranger -> the same: told so
 *				look, but in WAITING; retry -> the same: passed on to the lock
 *				expired -> NONE: lost if it was OWNER or RECLAIMING, else gone
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/semaphore.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/semaphore.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/lock/note.h"
#include "core/mutation.h"

#define AGREEMENT_PREFIX	"permits="

static void take_lock_output(Semaphore *semaphore, const RecipeOutput *lock,
							 SemaphoreOutput *out);

static void
add_op(SemaphoreOutput *out, const Request *op, SemaphorePlace place,
	   bool for_lock)
{
	/* No step sends more: the deletes of orphans are limited. */
	if (out->nops == SEMAPHORE_MAX_OPS)
		return;
	out->ops[out->nops].op = *op;
	out->ops[out->nops].place = place;
	out->ops[out->nops].for_lock = for_lock;
	out->nops++;
}

/* Send an operation with the current serial number. */
static void
send_op(Semaphore *semaphore, SemaphoreOutput *out, RequestKind kind,
		SemaphorePlace place, const char *node, const char *data)
{
	Request		op = {
		.kind = kind,
		.serial = semaphore->serial,
		.node = node,
		.data = data
	};

	add_op(out, &op, place, false);
}

/*
 * Send one with a new serial number: answers to earlier ones no longer count.
 */
static void
send_new(Semaphore *semaphore, SemaphoreOutput *out, RequestKind kind,
		 SemaphorePlace place, const char *node, const char *data)
{
	semaphore->serial++;
	send_op(semaphore, out, kind, place, node, data);
}

/* Let the lock's recipe take a step within ours. */
static void
step_lock(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	RecipeOutput lock;

	recipe_step(&semaphore->lock, in, &lock);
	take_lock_output(semaphore, &lock, out);
}

static void
report_left(SemaphoreOutput *out, int error, SemaphorePlace place,
			const char *node)
{
	out->report |= RECIPE_REPORT_LEFT;
	out->error = error;
	out->left = node;
	out->left_place = place;
}

/* Are we waiting for a permit? */
static bool
is_wanted(const Semaphore *semaphore)
{
	switch (semaphore->state)
	{
		case SEMAPHORE_RESUMING:
		case SEMAPHORE_RETRACTING:
		case SEMAPHORE_PREPARING:
		case SEMAPHORE_QUEUEING:
		case SEMAPHORE_CHECKING:
		case SEMAPHORE_AGREEING:
		case SEMAPHORE_CREATING:
		case SEMAPHORE_SEARCHING:
		case SEMAPHORE_COUNTING:
		case SEMAPHORE_WAITING:
			return true;
		case SEMAPHORE_NONE:
		case SEMAPHORE_OWNER:
		case SEMAPHORE_RECLAIMING:
		case SEMAPHORE_CANCELLING:
		case SEMAPHORE_ABANDONING:
		case SEMAPHORE_LEAVING:
			break;
	}
	return false;
}

/* Leaving is over when both our nodes are gone. */
static void
end_if_gone(Semaphore *semaphore, SemaphoreOutput *out)
{
	if (semaphore->state == SEMAPHORE_LEAVING && !semaphore->has_node &&
		semaphore->lock.state == RECIPE_NONE)
	{
		semaphore->state = SEMAPHORE_NONE;
		out->report |= RECIPE_REPORT_GONE;
	}
}

static void
release_lock(Semaphore *semaphore, SemaphoreOutput *out)
{
	RecipeInput release = {.event = RECIPE_RELEASE};

	step_lock(semaphore, &release, out);
}

/* A watch left behind would fire after the wait has ended. */
static void
stop_waiting(Semaphore *semaphore, SemaphoreOutput *out)
{
	if (semaphore->state == SEMAPHORE_WAITING)
		send_op(semaphore, out, REQUEST_UNWATCH, SEMAPHORE_PERMITS, NULL,
				NULL);
}

static void
delete_permit(Semaphore *semaphore, SemaphoreOutput *out, SemaphoreState state)
{
	send_new(semaphore, out, REQUEST_DELETE, SEMAPHORE_PERMITS,
			 semaphore->node, NULL);
	semaphore->has_node = true;
	semaphore->refused = false;
	semaphore->state = state;
}

/*
 * Delete our permit, if there is one, and leave the lock's queue, in this
 * order: so the next owner of the lock need not wait for the permit.
 */
static void
leave(Semaphore *semaphore, SemaphoreOutput *out, bool has_node)
{
	stop_waiting(semaphore, out);
	semaphore->has_node = false;
	semaphore->state = SEMAPHORE_LEAVING;
	if (has_node)
		delete_permit(semaphore, out, SEMAPHORE_LEAVING);
	release_lock(semaphore, out);
	end_if_gone(semaphore, out);
}

/* The permit is no longer wanted. */
static void
withdraw(Semaphore *semaphore, SemaphoreOutput *out)
{
	switch (semaphore->state)
	{
		case SEMAPHORE_PREPARING:
		case SEMAPHORE_QUEUEING:
		case SEMAPHORE_CHECKING:
		case SEMAPHORE_AGREEING:
		case SEMAPHORE_COUNTING:
		case SEMAPHORE_WAITING:
		case SEMAPHORE_OWNER:
			leave(semaphore, out, semaphore->has_node);
			break;
		case SEMAPHORE_RETRACTING:
			semaphore->state = SEMAPHORE_LEAVING;	/* the delete is out */
			release_lock(semaphore, out);
			break;
		case SEMAPHORE_CREATING:
			semaphore->state = SEMAPHORE_CANCELLING;
			break;
		case SEMAPHORE_RESUMING:
		case SEMAPHORE_SEARCHING:
		case SEMAPHORE_RECLAIMING:
			semaphore->state = SEMAPHORE_ABANDONING;
			break;
		case SEMAPHORE_NONE:
		case SEMAPHORE_CANCELLING:
		case SEMAPHORE_ABANDONING:
		case SEMAPHORE_LEAVING:
			break;
	}
}

static void
fail(Semaphore *semaphore, SemaphoreOutput *out, int error)
{
	out->report |= RECIPE_REPORT_FAILED;
	out->error = error;
	withdraw(semaphore, out);
}

/*
 * Count the permits of others in a list of <name>/leases, and those of them
 * that precede ours, if its number is known.  Returns whether ours is listed.
 * Deletes another one of ours, from a create that was repeated although it had
 * arrived.
 */
static bool
count_permits(Semaphore *semaphore, const RecipeInput *in,
			  SemaphoreOutput *out)
{
	bool		found = false;

	semaphore->others = in->answer.nchildren < 2 ? 0 :
		ZK_MUTATED(ZK_PERMIT_TWICE) ? 1 : ZK_MUTATED(ZK_PERMIT_MISSED) ? -1 : 0;
	semaphore->ahead = semaphore->others;
	for (int i = 0; i < in->answer.nchildren; i++)
	{
		const char *child = in->answer.children[i];
		ZnodeContender permit;

		if (strcmp(child, semaphore->node) == 0)
			found = true;
		else if (!znode_parse_contender(child, &permit))
		{
			out->report |= RECIPE_REPORT_STRANGER;
			out->stranger = child;
			out->stranger_place = SEMAPHORE_PERMITS;
		}
		else if (!znode_has_uuid(child, semaphore->uuid))
		{
			semaphore->others++;
			if (znode_is_unordered(permit.sequence) ||
				znode_is_unordered(semaphore->sequence) ||
				znode_before(permit.sequence, semaphore->sequence))
				semaphore->ahead++;
		}
		else if (out->nops < RECIPE_MAX_OPS)
			send_op(semaphore, out, REQUEST_DELETE_ORPHAN, SEMAPHORE_PERMITS,
					child, NULL);
	}
	return found;
}

/* Our permit exists, or did. */
static void
created(Semaphore *semaphore, int32_t sequence)
{
	semaphore->sequence = sequence;
	semaphore->has_node = true;
	znode_contender_name(semaphore->uuid, ZNODE_PERMIT, sequence,
						 semaphore->node);
}

/* Find our permit by its UUID in a list of <name>/leases. */
static bool
find_permit(Semaphore *semaphore, const RecipeInput *in)
{
	for (int i = 0; i < in->answer.nchildren; i++)
	{
		ZnodeContender permit;

		if (znode_has_uuid(in->answer.children[i], semaphore->uuid) &&
			znode_parse_contender(in->answer.children[i], &permit))
		{
			created(semaphore, permit.sequence);
			return true;
		}
	}
	return false;
}

/* The number that is the data of <name>/leases, or 0 if they are none. */
static int
parse_agreement(const char *data, int len)
{
	int			prefix_len = (int) strlen(AGREEMENT_PREFIX);
	long long	permits = 0;

	if (len <= prefix_len || len >= SEMAPHORE_DATA_SIZE ||
		memcmp(data, AGREEMENT_PREFIX, prefix_len) != 0 ||
		data[prefix_len] == '0')
		return 0;
	for (int i = prefix_len; i < len; i++)
	{
		if (data[i] < '0' || data[i] > '9')
			return 0;
		permits = permits * 10 + (data[i] - '0');
	}
	return permits <= INT_MAX ? (int) permits : 0;
}

/* There is no permit of ours. */
static void
not_created(Semaphore *semaphore)
{
	semaphore->has_node = false;
	znode_contender_prefix(semaphore->uuid, ZNODE_PERMIT, semaphore->node);
}

/*
 * Read everything, before queueing (PREPARING) or as the owner of the lock
 * (CHECKING).
 */
static void
look_around(Semaphore *semaphore, SemaphoreOutput *out, SemaphoreState state)
{
	semaphore->state = state;
	semaphore->serial++;
	semaphore->mkdir_error = 0;
	semaphore->name_read = false;
	semaphore->others = -1;
	not_created(semaphore);

	if (semaphore->making > 0)
	{
		send_op(semaphore, out,
				semaphore->making == 1 ? REQUEST_MKDIR : REQUEST_MKDIRS,
				SEMAPHORE_NAME, NULL, NULL);
		send_op(semaphore, out, REQUEST_MKDIR, SEMAPHORE_LOCKS, NULL, NULL);
		send_op(semaphore, out, REQUEST_MKDIR, SEMAPHORE_PERMITS, NULL,
				semaphore->agreement);
	}
	send_op(semaphore, out, REQUEST_SYNC, SEMAPHORE_NAME, NULL, NULL);
	send_op(semaphore, out, REQUEST_CHILDREN, SEMAPHORE_PERMITS, NULL, NULL);
	send_op(semaphore, out, REQUEST_GET, SEMAPHORE_PERMITS, NULL, NULL);
}

/* A directory is missing: make it, and read again. */
static void
look_without_directories(Semaphore *semaphore, SemaphoreOutput *out,
						 SemaphoreState state)
{
	if (semaphore->making == 2 && semaphore->mkdir_error != 0)
		fail(semaphore, out, semaphore->mkdir_error);
	else
	{
		/* never used, missing parents, or an idle container just collected */
		if (semaphore->making < 2)
			semaphore->making++;
		look_around(semaphore, out, state);
	}
}

/* The directory of our permit is missing: make it, and start over. */
static void
check_again(Semaphore *semaphore, SemaphoreOutput *out)
{
	look_without_directories(semaphore, out, SEMAPHORE_CHECKING);
}

static void
agree(Semaphore *semaphore, SemaphoreOutput *out)
{
	send_new(semaphore, out, REQUEST_SET, SEMAPHORE_PERMITS, NULL,
			 semaphore->agreement);
	semaphore->state = SEMAPHORE_AGREEING;
}

/* Count the permits, including ours, and check the agreed number. */
static void
send_count(Semaphore *semaphore, SemaphoreOutput *out)
{
	semaphore->others = -1;
	send_op(semaphore, out, REQUEST_CHILDREN, SEMAPHORE_PERMITS, NULL, NULL);
	send_op(semaphore, out, REQUEST_GET, SEMAPHORE_PERMITS, NULL, NULL);
}

static void
count(Semaphore *semaphore, SemaphoreOutput *out)
{
	semaphore->serial++;
	send_count(semaphore, out);
	semaphore->state = SEMAPHORE_COUNTING;
}

static void
create(Semaphore *semaphore, SemaphoreOutput *out)
{
	not_created(semaphore);
	send_new(semaphore, out, REQUEST_CREATE, SEMAPHORE_PERMITS,
			 semaphore->node, NULL);
	send_count(semaphore, out);
	semaphore->state = SEMAPHORE_CREATING;
}

static void
search(Semaphore *semaphore, SemaphoreOutput *out, SemaphoreState state)
{
	send_new(semaphore, out, REQUEST_SEARCH, SEMAPHORE_PERMITS, NULL, NULL);
	semaphore->state = state;
}

static void
stat_permit(Semaphore *semaphore, SemaphoreOutput *out)
{
	send_new(semaphore, out, REQUEST_STAT, SEMAPHORE_PERMITS,
			 semaphore->node, NULL);
	semaphore->state = SEMAPHORE_OWNER;
}

/* Our permit is granted; the lock goes to the next waiter. */
static void
own(Semaphore *semaphore, SemaphoreOutput *out)
{
	stop_waiting(semaphore, out);
	stat_permit(semaphore, out);
	out->report |= RECIPE_REPORT_GRANTED;
	release_lock(semaphore, out);
}

static void
lose(Semaphore *semaphore, SemaphoreOutput *out)
{
	out->report |= RECIPE_REPORT_LOST;
	leave(semaphore, out, false);
}

static void
list_permits(Semaphore *semaphore, SemaphoreOutput *out)
{
	send_new(semaphore, out, REQUEST_LIST, SEMAPHORE_PERMITS, NULL, NULL);
	semaphore->state = SEMAPHORE_WAITING;
}

/* The permits are counted, including ours. */
static void
evaluate_permits(Semaphore *semaphore, SemaphoreOutput *out)
{
	if (semaphore->ahead < semaphore->permits)
		own(semaphore, out);
	else if (semaphore->state != SEMAPHORE_WAITING)
	{
		out->report |= RECIPE_REPORT_QUEUED;
		list_permits(semaphore, out);
	}
}

/* We wait for the lock: will there be a permit when we own it? */
static void
read_queue(Semaphore *semaphore, SemaphoreOutput *out)
{
	semaphore->others = -1;
	send_new(semaphore, out, REQUEST_SYNC, SEMAPHORE_PERMITS, NULL, NULL);
	send_op(semaphore, out, REQUEST_CHILDREN, SEMAPHORE_LOCKS, NULL, NULL);
}

static void
queue(Semaphore *semaphore, SemaphoreOutput *out)
{
	RecipeOutput lock;

	semaphore->state = SEMAPHORE_QUEUEING;
	if (semaphore->lock.state == RECIPE_NONE)
	{
		recipe_want(&semaphore->lock, semaphore->uuid, ZNODE_MUTEX,
					true, false, &lock);
		take_lock_output(semaphore, &lock, out);
	}
	else if (semaphore->lock.state == RECIPE_OWNER)
		look_around(semaphore, out, SEMAPHORE_CHECKING);
	else if (semaphore->lock.state == RECIPE_WATCHING)
		read_queue(semaphore, out);
}

/* Send the operations of the lock's recipe, and act on its reports. */
static void
take_lock_output(Semaphore *semaphore, const RecipeOutput *lock,
				 SemaphoreOutput *out)
{
	for (int i = 0; i < lock->nops; i++)
		add_op(out, &lock->ops[i], SEMAPHORE_LOCKS, true);

	if (lock->report & (RECIPE_REPORT_STRANGER | RECIPE_REPORT_PERSISTENT))
	{
		out->report |= lock->report &
			(RECIPE_REPORT_STRANGER | RECIPE_REPORT_PERSISTENT);
		out->stranger = lock->stranger;
		out->stranger_place = SEMAPHORE_LOCKS;
	}
	out->report |= lock->report &
		(RECIPE_REPORT_RENEWED | RECIPE_REPORT_LATE);
	if (lock->report & RECIPE_REPORT_LEFT)
		report_left(out, lock->error, SEMAPHORE_LOCKS, semaphore->lock.node);

	if ((lock->report & RECIPE_REPORT_FAILED) && is_wanted(semaphore))
	{
		out->report |= lock->report &
			(RECIPE_REPORT_MIXED | RECIPE_REPORT_LATE);
		fail(semaphore, out, lock->error);
	}
	else if ((lock->report & RECIPE_REPORT_LOST) && is_wanted(semaphore))
		withdraw(semaphore, out);	/* another client deleted our contender */
	else if (semaphore->state == SEMAPHORE_QUEUEING)
	{
		if (lock->report & RECIPE_REPORT_GRANTED)
			look_around(semaphore, out, SEMAPHORE_CHECKING);
		else if (lock->report & RECIPE_REPORT_QUEUED)
		{
			if (semaphore->lock.state == RECIPE_LATE)
				out->report |= RECIPE_REPORT_QUEUED;
			else
				read_queue(semaphore, out);
		}
	}
	end_if_gone(semaphore, out);
}


/* Handle an answer to a read; returns false if there is nothing to see. */
static bool
can_see(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	bool		counting = semaphore->state == SEMAPHORE_COUNTING;

	switch (in->answer.result)
	{
		case REQUEST_OK:
			return true;
		case REQUEST_UNKNOWN:
			if (counting)
				count(semaphore, out);
			else
				look_around(semaphore, out, semaphore->state);
			break;
		case REQUEST_NO_NODE:
			look_without_directories(semaphore, out,
									 counting ? SEMAPHORE_CHECKING :
									 semaphore->state);
			break;
		case REQUEST_REFUSED:
			fail(semaphore, out, in->answer.error);
			break;
	}
	return false;
}

/* <name> has been read: is it the directory of a lock? */
static void
on_name_done(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	ZnodeContender contender;
	bool		mixed = false;

	if (!can_see(semaphore, in, out))
		return;
	semaphore->name_read = true;
	for (int i = 0; i < in->answer.nchildren; i++)
		mixed = mixed ||
			znode_parse_contender(in->answer.children[i], &contender);
	if (!mixed)
		return;

	out->report |= RECIPE_REPORT_MIXED;
	fail(semaphore, out, 0);
	/*
	 * users of the lock must not find our directories, unless they are in use
	 */
	for (int i = 0; i < in->answer.nchildren; i++)
		if (strcmp(in->answer.children[i], ZNODE_LOCKS_DIR) == 0 ||
			strcmp(in->answer.children[i], ZNODE_PERMITS_DIR) == 0)
			send_op(semaphore, out, REQUEST_DELETE_ORPHAN, SEMAPHORE_NAME,
					in->answer.children[i], NULL);
}

/* The last of the reads: which number have others agreed on? */
static void
on_get_done(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	int			agreed;

	if ((semaphore->state != SEMAPHORE_PREPARING &&
		 semaphore->state != SEMAPHORE_CHECKING &&
		 semaphore->state != SEMAPHORE_COUNTING) ||
		semaphore->others < 0 || !can_see(semaphore, in, out))
		return;
	semaphore->making = 0;
	semaphore->mkdir_error = 0;

	agreed = parse_agreement(in->answer.data, in->answer.data_len);
	if (agreed != 0 && agreed != semaphore->permits && semaphore->others > 0)
	{
		out->permits_found = agreed;
		fail(semaphore, out, 0);
	}
	else if (semaphore->state == SEMAPHORE_PREPARING)
		queue(semaphore, out);
	else if (agreed != semaphore->permits)
		agree(semaphore, out);
	else if (semaphore->state == SEMAPHORE_CHECKING)
		create(semaphore, out);
	else
		evaluate_permits(semaphore, out);
}

/*
 * While we wait for the lock, first the permits and then the queue are read.
 */
static void
on_queue_done(Semaphore *semaphore, const RecipeInput *in,
			  SemaphoreOutput *out)
{
	bool		found = false;
	int			ahead = 0;

	if (in->answer.result == REQUEST_UNKNOWN)
	{
		read_queue(semaphore, out);
		return;
	}
	if (in->answer.result == REQUEST_REFUSED)
	{
		fail(semaphore, out, in->answer.error);
		return;
	}
	if (semaphore->others < 0)
	{
		(void) count_permits(semaphore, in, out);
		return;
	}

	for (int i = 0; i < in->answer.nchildren; i++)
	{
		ZnodeContender contender;

		if (strcmp(in->answer.children[i], semaphore->lock.node) == 0)
			found = true;
		else if (znode_parse_contender(in->answer.children[i], &contender) &&
				 !znode_has_uuid(in->answer.children[i], semaphore->uuid) &&
				 znode_before(contender.sequence, semaphore->lock.sequence))
			ahead++;
	}
	if (found && semaphore->others + ahead > semaphore->permits)
		out->report |= RECIPE_REPORT_QUEUED;
}

/* The permits are listed; while COUNTING, one should be ours. */
static void
on_permits_listed(Semaphore *semaphore, const RecipeInput *in,
				  SemaphoreOutput *out)
{
	bool		found;

	if (semaphore->others >= 0 || !can_see(semaphore, in, out))
		return;
	found = count_permits(semaphore, in, out);
	if (semaphore->state == SEMAPHORE_COUNTING && !found)
		create(semaphore, out); /* another client deleted it */
}

static void
on_list_done(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	switch (in->answer.result)
	{
		case REQUEST_OK:
			if (count_permits(semaphore, in, out))
				evaluate_permits(semaphore, out);
			else
			{
				stop_waiting(semaphore, out);
				create(semaphore, out);
			}
			break;
		case REQUEST_UNKNOWN:
			list_permits(semaphore, out);
			break;
		case REQUEST_NO_NODE:
			stop_waiting(semaphore, out);
			check_again(semaphore, out);
			break;
		case REQUEST_REFUSED:
			fail(semaphore, out, in->answer.error);
			break;
	}
}

/* The search for our permit is over. */
static void
on_permit_searched(Semaphore *semaphore, SemaphoreOutput *out, bool found,
				   bool directory)
{
	switch (semaphore->state)
	{
		case SEMAPHORE_RESUMING:
			if (found)
				delete_permit(semaphore, out, SEMAPHORE_RETRACTING);
			else
				look_around(semaphore, out, SEMAPHORE_PREPARING);
			break;
		case SEMAPHORE_SEARCHING:
			if (found)
				count(semaphore, out);
			else if (directory)
				create(semaphore, out);
			else
				check_again(semaphore, out);
			break;
		case SEMAPHORE_RECLAIMING:
			if (found)
				stat_permit(semaphore, out);
			else
				lose(semaphore, out);
			break;
		default:				/* ABANDONING */
			leave(semaphore, out, found);
			break;
	}
}

static void
on_search_done(Semaphore *semaphore, const RecipeInput *in,
			   SemaphoreOutput *out)
{
	switch (in->answer.result)
	{
		case REQUEST_OK:
			on_permit_searched(semaphore, out, find_permit(semaphore, in),
							   true);
			break;
		case REQUEST_NO_NODE:
			on_permit_searched(semaphore, out, false, false);
			break;
		case REQUEST_UNKNOWN:
			search(semaphore, out, semaphore->state);
			break;
		case REQUEST_REFUSED:
			/* it cannot be found out whether our permit exists */
			report_left(out, in->answer.error, SEMAPHORE_PERMITS,
						semaphore->node);
			if (semaphore->state == SEMAPHORE_RECLAIMING)
				out->report |= RECIPE_REPORT_LOST;
			else if (semaphore->state != SEMAPHORE_ABANDONING)
				out->report |= RECIPE_REPORT_FAILED;
			leave(semaphore, out, false);
			break;
	}
}

static void
on_children_done(Semaphore *semaphore, const RecipeInput *in,
				 SemaphoreOutput *out)
{
	switch (semaphore->state)
	{
		case SEMAPHORE_PREPARING:
		case SEMAPHORE_CHECKING:
			if (!semaphore->name_read)
				on_name_done(semaphore, in, out);
			else
				on_permits_listed(semaphore, in, out);
			break;
		case SEMAPHORE_QUEUEING:
			on_queue_done(semaphore, in, out);
			break;
		case SEMAPHORE_COUNTING:
			on_permits_listed(semaphore, in, out);
			break;
		case SEMAPHORE_WAITING:
			on_list_done(semaphore, in, out);
			break;
		case SEMAPHORE_RESUMING:
		case SEMAPHORE_SEARCHING:
		case SEMAPHORE_RECLAIMING:
		case SEMAPHORE_ABANDONING:
			on_search_done(semaphore, in, out);
			break;
		default:
			break;
	}
}

/*
 * The first error explains the others.  No node is none: a parent has just
 * been collected.
 */
static void
on_mkdir_done(Semaphore *semaphore, const RecipeInput *in)
{
	if (semaphore->mkdir_error == 0 &&
		in->answer.result == REQUEST_REFUSED)
		semaphore->mkdir_error = in->answer.error;
}

static void
on_set_done(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	/* the next read must not find the same revocation */
	if (semaphore->state == SEMAPHORE_OWNER &&
		semaphore->revocation_watched &&
		in->answer.result == REQUEST_UNKNOWN)
		send_op(semaphore, out, REQUEST_SET, SEMAPHORE_PERMITS,
				semaphore->node, NULL);
	if (semaphore->state != SEMAPHORE_AGREEING)
		return;

	switch (in->answer.result)
	{
		case REQUEST_OK:
			if (semaphore->has_node)
				count(semaphore, out);
			else
				create(semaphore, out);
			break;
		case REQUEST_UNKNOWN:
			agree(semaphore, out);
			break;
		case REQUEST_NO_NODE:
			check_again(semaphore, out);
			break;
		case REQUEST_REFUSED:
			fail(semaphore, out, in->answer.error);
			break;
	}
}

static void
on_create_done(Semaphore *semaphore, const RecipeInput *in,
			   SemaphoreOutput *out)
{
	bool		wanted = semaphore->state == SEMAPHORE_CREATING;
	SemaphoreState searching = wanted ? SEMAPHORE_SEARCHING :
		SEMAPHORE_ABANDONING;
	ZnodeContender permit;

	if (!wanted && semaphore->state != SEMAPHORE_CANCELLING)
		return;

	switch (in->answer.result)
	{
		case REQUEST_OK:
			if (!znode_parse_contender(in->answer.node, &permit))
			{
				/* not a name that a sequential create can get: search */
				search(semaphore, out, searching);
				break;
			}
			created(semaphore, permit.sequence);
			if (wanted)
				semaphore->state = SEMAPHORE_COUNTING;
			else
				leave(semaphore, out, true);
			break;
		case REQUEST_UNKNOWN:
			search(semaphore, out, searching);
			break;
		case REQUEST_NO_NODE:
			if (wanted)
				check_again(semaphore, out);
			else
				leave(semaphore, out, false);
			break;
		case REQUEST_REFUSED:
			if (wanted)
			{
				out->report |= RECIPE_REPORT_FAILED;
				out->error = in->answer.error;
			}
			leave(semaphore, out, false);
			break;
	}
}

static void
on_stat_done(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	if (semaphore->state != SEMAPHORE_OWNER)
		return;

	switch (in->answer.result)
	{
		case REQUEST_OK:
			if (in->answer.ours)
			{
				out->report |= RECIPE_REPORT_TOKEN;
				out->token = in->answer.czxid;
			}
			else
				lose(semaphore, out);
			break;
		case REQUEST_UNKNOWN:
			stat_permit(semaphore, out);
			break;
		case REQUEST_NO_NODE:
			out->error = in->answer.error;
			lose(semaphore, out);
			break;
		case REQUEST_REFUSED:
			break;				/* no token, but the permit is ours */
	}
}

/* Watch our permit: its data may become a request for it. */
static void
watch_revocation(Semaphore *semaphore, SemaphoreOutput *out)
{
	semaphore->revocation_watched = true;
	send_new(semaphore, out, REQUEST_WATCH, SEMAPHORE_PERMITS,
			 semaphore->node, NULL);
}

/* The watch also replaces a stat that it may have superseded. */
static void
on_own_node_watched(Semaphore *semaphore, const RecipeInput *in,
					SemaphoreOutput *out)
{
	if (semaphore->state != SEMAPHORE_OWNER || !semaphore->revocation_watched)
		return;
	if (in->answer.result == REQUEST_UNKNOWN)
	{
		watch_revocation(semaphore, out);
		return;
	}
	if (in->answer.result != REQUEST_REFUSED)
		on_stat_done(semaphore, in, out);
	if (semaphore->state == SEMAPHORE_OWNER &&
		in->answer.result == REQUEST_OK &&
		note_is_revocation(in->answer.data, in->answer.data_len))
	{
		/* write our note again, so that a later request is noticed */
		out->report |= RECIPE_REPORT_REVOKED;
		send_op(semaphore, out, REQUEST_SET, SEMAPHORE_PERMITS,
				semaphore->node, NULL);
	}
}

static void
on_delete_done(Semaphore *semaphore, const RecipeInput *in,
			   SemaphoreOutput *out)
{
	bool		wanted = semaphore->state == SEMAPHORE_RETRACTING;

	if (!wanted && (semaphore->state != SEMAPHORE_LEAVING ||
					!semaphore->has_node))
		return;

	switch (in->answer.result)
	{
		case REQUEST_OK:
		case REQUEST_NO_NODE:
			semaphore->has_node = false;
			if (wanted)
				search(semaphore, out, SEMAPHORE_RESUMING);
			end_if_gone(semaphore, out);
			break;
		case REQUEST_UNKNOWN:
			delete_permit(semaphore, out, semaphore->state);
			break;
		case REQUEST_REFUSED:
			semaphore->refused = true;
			report_left(out, in->answer.error, SEMAPHORE_PERMITS,
						semaphore->node);
			if (wanted)
				fail(semaphore, out, in->answer.error);
			break;
	}
}

static void
on_retry(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	if (semaphore->state == SEMAPHORE_LEAVING && semaphore->has_node &&
		semaphore->refused)
		delete_permit(semaphore, out, SEMAPHORE_LEAVING);
	/* of the lock only its delete: its token is not needed */
	if (semaphore->lock.state == RECIPE_LEAVING ||
		semaphore->lock.state == RECIPE_LATE)
		step_lock(semaphore, in, out);
}

static void
on_expired(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	RecipeOutput lock;

	if (semaphore->state == SEMAPHORE_NONE)
		return;
	recipe_step(&semaphore->lock, in, &lock);
	if (semaphore->state == SEMAPHORE_OWNER ||
		semaphore->state == SEMAPHORE_RECLAIMING)
		out->report |= RECIPE_REPORT_LOST;
	out->report |= RECIPE_REPORT_GONE;
	semaphore->has_node = false;
	semaphore->state = SEMAPHORE_NONE;
}

/* Handle answers and watches of our own operations. */
static void
on_answer(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	if (in->answer.serial != semaphore->serial)
		return;

	switch (in->event)
	{
		case RECIPE_MKDIR_DONE:
			on_mkdir_done(semaphore, in);
			break;
		case RECIPE_CREATE_DONE:
			on_create_done(semaphore, in, out);
			break;
		case RECIPE_CHILDREN_DONE:
			on_children_done(semaphore, in, out);
			break;
		case RECIPE_GET_DONE:
			on_get_done(semaphore, in, out);
			break;
		case RECIPE_WATCH_DONE:
			on_own_node_watched(semaphore, in, out);
			break;
		case RECIPE_SET_DONE:
			on_set_done(semaphore, in, out);
			break;
		case RECIPE_STAT_DONE:
			on_stat_done(semaphore, in, out);
			break;
		case RECIPE_DELETE_DONE:
			on_delete_done(semaphore, in, out);
			break;
		case RECIPE_NODE_DELETED:
		case RECIPE_NODE_TOUCHED:
			if (semaphore->state == SEMAPHORE_WAITING)
				list_permits(semaphore, out);
			else if (semaphore->state == SEMAPHORE_OWNER &&
					 semaphore->revocation_watched)
				watch_revocation(semaphore, out);
			break;
		default:
			break;
	}
}

/* Set up a semaphore that has no permit and wants none. */
void
semaphore_init(Semaphore *semaphore)
{
	memset(semaphore, 0, sizeof(*semaphore));
	semaphore->state = SEMAPHORE_NONE;
	recipe_init(&semaphore->lock);
}

/* Free what a semaphore has allocated; the struct is the caller's. */
void
semaphore_free(Semaphore *semaphore)
{
	recipe_free(&semaphore->lock);
}

static void
begin(Semaphore *semaphore, const uint8_t uuid[ZNODE_UUID_BYTES], int permits)
{
	memcpy(semaphore->uuid, uuid, ZNODE_UUID_BYTES);
	semaphore->permits = permits;
	snprintf(semaphore->agreement, sizeof(semaphore->agreement),
			 AGREEMENT_PREFIX "%d", permits);
	semaphore->making = 0;
	semaphore->revocation_watched = false;
	not_created(semaphore);
}

/*
 * semaphore_want
 *		Wait for one of "permits" permits.
 *
 * "uuid" must never have been used in this semaphore, which must be in
 * SEMAPHORE_NONE.  "out" is overwritten.
 */
void
semaphore_want(Semaphore *semaphore, const uint8_t uuid[ZNODE_UUID_BYTES],
			   int permits, SemaphoreOutput *out)
{
	memset(out, 0, sizeof(*out));
	if (semaphore->state != SEMAPHORE_NONE)
		return;
	begin(semaphore, uuid, permits);
	look_around(semaphore, out, SEMAPHORE_PREPARING);
}

/*
 * semaphore_resume
 *		Take over a permit, or the wait for one, from an earlier worker, in
 *		the same session.
 *
 * The semaphore must be new.  As with recipe_resume(), what it sends must go
 * behind a write of our own.  The place in the queue is kept.  A permit found
 * while it is still being waited for is deleted; since the lock is kept, this
 * only costs time.  "out" is overwritten.
 */
void
semaphore_resume(Semaphore *semaphore, const uint8_t uuid[ZNODE_UUID_BYTES],
				 int permits, RecipeResume how, SemaphoreOutput *out)
{
	static const SemaphoreState states[] = {
		[RECIPE_RESUME_WANTED] = SEMAPHORE_RESUMING,
		[RECIPE_RESUME_OWNED] = SEMAPHORE_RECLAIMING,
		[RECIPE_RESUME_RELEASING] = SEMAPHORE_ABANDONING
	};
	RecipeOutput lock;

	memset(out, 0, sizeof(*out));
	begin(semaphore, uuid, permits);
	search(semaphore, out, states[how]);

	/* an owner does not need the lock, but may still have it */
	recipe_resume(&semaphore->lock, uuid, ZNODE_MUTEX,
				  how == RECIPE_RESUME_WANTED ? RECIPE_RESUME_WANTED :
				  RECIPE_RESUME_RELEASING, NULL, &lock);
	take_lock_output(semaphore, &lock, out);
}

/*
 * semaphore_step
 *		The transition function: one event in, operations and reports out.
 *
 * "for_lock" is that of the operation that an answer or watch belongs to;
 * RECIPE_RELEASE, RECIPE_LOOK, RECIPE_RETRY and RECIPE_EXPIRED are passed
 * once, for both.  Otherwise as recipe_step().
 */
void
semaphore_step(Semaphore *semaphore, bool for_lock, const RecipeInput *in,
			   SemaphoreOutput *out)
{
	memset(out, 0, sizeof(*out));

	switch (in->event)
	{
		case RECIPE_RELEASE:
			withdraw(semaphore, out);
			break;
		case RECIPE_RETRY:
			on_retry(semaphore, in, out);
			break;
		case RECIPE_EXPIRED:
			on_expired(semaphore, in, out);
			break;
		case RECIPE_LOOK:
			if (semaphore->state == SEMAPHORE_WAITING)
				list_permits(semaphore, out);
			else
				step_lock(semaphore, in, out);
			break;
		case RECIPE_CHECK_WRITERS:
			break;
		case RECIPE_WATCH_REVOCATION:
			if (semaphore->state == SEMAPHORE_OWNER &&
				!semaphore->revocation_watched)
				watch_revocation(semaphore, out);
			break;
		default:
			if (for_lock)
				step_lock(semaphore, in, out);
			else
				on_answer(semaphore, in, out);
			break;
	}
}

/*
 * semaphore_may_queue, semaphore_may_have_permit
 *		Have we, or may we have, a contender in "locks"?  A permit?
 */
bool
semaphore_may_queue(const Semaphore *semaphore)
{
	/* from OWNER on the lock is not wanted */
	return semaphore->lock.state != RECIPE_NONE ||
		(semaphore->state != SEMAPHORE_NONE &&
		 semaphore->state < SEMAPHORE_OWNER);
}

bool
semaphore_may_have_permit(const Semaphore *semaphore)
{
	return semaphore->state != SEMAPHORE_NONE &&
		(semaphore->state != SEMAPHORE_LEAVING || semaphore->has_node);
}

/* Is our permit, if there is one, no longer wanted? */
bool
semaphore_is_leaving(const Semaphore *semaphore)
{
	return semaphore->state == SEMAPHORE_CANCELLING ||
		semaphore->state == SEMAPHORE_ABANDONING ||
		semaphore->state == SEMAPHORE_LEAVING;
}

/* The name of a state, for log lines. */
const char *
semaphore_state_name(SemaphoreState state)
{
	switch (state)
	{
		case SEMAPHORE_NONE:
			return "none";
		case SEMAPHORE_RESUMING:
			return "resuming";
		case SEMAPHORE_RETRACTING:
			return "retracting";
		case SEMAPHORE_PREPARING:
			return "preparing";
		case SEMAPHORE_QUEUEING:
			return "queueing";
		case SEMAPHORE_CHECKING:
			return "checking";
		case SEMAPHORE_AGREEING:
			return "agreeing";
		case SEMAPHORE_CREATING:
			return "creating";
		case SEMAPHORE_SEARCHING:
			return "searching";
		case SEMAPHORE_COUNTING:
			return "counting";
		case SEMAPHORE_WAITING:
			return "waiting";
		case SEMAPHORE_OWNER:
			return "owner";
		case SEMAPHORE_RECLAIMING:
			return "reclaiming";
		case SEMAPHORE_CANCELLING:
			return "cancelling";
		case SEMAPHORE_ABANDONING:
			return "abandoning";
		case SEMAPHORE_LEAVING:
			return "leaving";
	}
	return "unknown";
}
