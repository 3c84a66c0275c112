/*-------------------------------------------------------------------------
 *
 * semaphore.c
 *		A permit of a semaphore in ZooKeeper, as a pure state machine.
 *
 * One Semaphore is one backend's wait for, or hold of, one permit.  As with
 * recipe.c, events go in, operations and news come out, and nothing here
 * knows PostgreSQL or libzookeeper.
 *
 * In ZooKeeper it is Curator's InterProcessSemaphoreV2:
 *
 *		<name>/locks/_c_<uuid>-lock-0000000042		who takes the next permit
 *		<name>/leases/_c_<uuid>-lease-0000000017	a permit in use
 *
 * A waiter queues for the lock (an embedded Recipe).  Owning it, the waiter
 * creates its permit, a node in <name>/leases, and waits until fewer permits
 * are before it than the semaphore has.  Then the permit is granted, and the
 * waiter gives up the lock.  Only the owner of the lock adds permits, so they
 * are granted in the order of the queue.  Even if two both took themselves for
 * the owner, their permits have an order: the number would not be exceeded, nor
 * would the two wait for each other.
 *
 * In addition to what Curator does,
 *
 *	- the data of <name>/leases is the number of permits that its users have
 *	  agreed on.  While there are permits of others, another number is refused;
 *	  else the owner of the lock writes its own.  The number is read ahead of
 *	  queueing, so that a waiter that will be refused need not wait; again by
 *	  the owner of the lock, whose answer stands; and once more when the owner's
 *	  permit keeps the directory, and with it the number, from being collected;
 *	- a lock's contenders in <name> itself are looked for, too: ahead of all
 *	  else, so that no directory is made in that of a lock, and by the owner
 *	  of our lock, whose contender keeps <name>/locks from being collected.  As
 *	  the lock recipe looks for that when it has made its own contender, at
 *	  least one of the two sees the other.  If it is us, our directories are
 *	  deleted, unless they are in use;
 *	- the directories' counters come to an end.  That of <name>/locks begins anew
 *	  in time, as for any lock.  That of <name>/leases does not matter: permits
 *	  are counted, not ordered, and a permit whose number has no order counts all
 *	  others as before it, as Curator does with every permit;
 *	- a waiter is told to be queued as soon as it is certain that no permit is
 *	  free for it.  In the queue that is so if the permits of others and the
 *	  contenders ahead are more than the semaphore has permits.  One of those
 *	  ahead may have been counted twice, as it has the lock and a permit, but
 *	  even so no permit is left.  The permits are read first, and then the
 *	  queue: a contender that gets through between the two must not be counted
 *	  twice.
 *
 * The search for a permit of ours goes behind a write of our own, as in recipe.c.
 * All else is read behind a sync where it is not our own create that makes sure
 * that the server has heard of those before us.  A leader that does not know
 * yet that there is another one may answer that from old state; then a waiter is
 * refused, or told to wait, that need not have been.  But the owner of the lock
 * has seen the contender before it go, and with that the permit that it left.
 *
 * The states and events (a state that an event is not listed for ignores it;
 * answers and watches count only with the latest serial number, which all of
 * one flight have in common; "look" is: make the directories that are missing,
 * if some have been found to be, sync and read <name>, read the permits, get the
 * agreement; "count" is the last two of them):
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
 *				delete refused -> LEAVING: release the lock; failed, left behind
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
 *				lock queued -> QUEUEING: read the permits, read the queue; or, as
 *				  it awaits an empty directory -> QUEUEING: queued
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
 *				watch used up; list unknown -> WAITING: list
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
 *				that watch ok, our session's -> OWNER: token; and with the data of a
 *				  revocation -> OWNER: set (who we are); revoked
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
 *	ABANDONING	search ok, our permit among them -> LEAVING: delete, release the
 *				  lock
 *				search ok, without it; no node -> LEAVING: release the lock
 *				search unknown -> ABANDONING: search
 *				search refused -> LEAVING: release the lock; perhaps left behind
 *	LEAVING		neither permit nor lock is there -> NONE: gone
 *				delete ok, no node -> LEAVING, without the permit
 *				delete unknown -> LEAVING: delete
 *				delete refused -> LEAVING: left behind
 *				retry, after a refusal -> LEAVING: delete
 *	up to WAITING: the lock failed -> failed, all else as release; the lock is
 *				  lost -> as release
 *	any			the lock is left behind, has a stranger -> the same: told so
 *				retry -> the same: passed on to the lock
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

#define AGREEMENT_PREFIX	"permits="

static void take_lock_output(Semaphore *semaphore, const RecipeOutput *lock,
							 SemaphoreOutput *out);

static void
add_op(SemaphoreOutput *out, const Request *op, SemaphorePlace place,
	   bool for_lock)
{
	/* The bound is the most that any step sends, orphans being rationed. */
	if (out->nops == SEMAPHORE_MAX_OPS)
		return;
	out->ops[out->nops].op = *op;
	out->ops[out->nops].place = place;
	out->ops[out->nops].for_lock = for_lock;
	out->nops++;
}

/* Send an operation under the current serial number. */
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

/* The same under a new one: what was sent before does not count any more. */
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
tell_left(SemaphoreOutput *out, int error, SemaphorePlace place,
		  const char *node)
{
	out->report |= RECIPE_REPORT_LEFT;
	out->error = error;
	out->left = node;
	out->left_place = place;
}

/* Does a permit wait to be given to us? */
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

/* Leaving is over when neither node of ours is left. */
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

/* A watch that stays would wake somebody who does not wait any more. */
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
 * order: the next owner of the lock need not wait for the permit then.
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

/* The permit is not wanted any more. */
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
 * that are before ours, if that is known.  Returns whether it is there.  One
 * more of ours, from a create that was repeated although it had arrived, is
 * deleted.
 */
static bool
count_permits(Semaphore *semaphore, const RecipeInput *in,
			  SemaphoreOutput *out)
{
	bool		found = false;

	semaphore->others = 0;
	semaphore->ahead = 0;
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

/* The number that the data of <name>/leases tells, or 0 if it is none. */
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

/* There is no permit of ours, or not any more. */
static void
not_created(Semaphore *semaphore)
{
	semaphore->has_node = false;
	znode_contender_prefix(semaphore->uuid, ZNODE_PERMIT, semaphore->node);
}

/*
 * Look around: ahead of queueing (PREPARING), or as the owner of the lock
 * (CHECKING).
 */
static void
look_around(Semaphore *semaphore, SemaphoreOutput *out, SemaphoreState state)
{
	semaphore->state = state;
	semaphore->serial++;
	semaphore->mkdir_error = 0;
	semaphore->name_made = false;
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

/* A directory was found missing: look around again, and make it. */
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

/* The directory of our permit is missing: make it, and do all again. */
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

/* Count the permits, with ours among them, and see that the agreement holds. */
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

/* Our permit is granted; the lock is the next one's. */
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

/* The permits are counted, and ours is among them. */
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

/* Our contender waits for the lock: will there be a permit when it has it? */
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
		recipe_want(&semaphore->lock, semaphore->uuid, ZNODE_MUTEX, false,
					true, false, &lock);
		take_lock_output(semaphore, &lock, out);
	}
	else if (semaphore->lock.state == RECIPE_OWNER)
		look_around(semaphore, out, SEMAPHORE_CHECKING);
	else if (semaphore->lock.state == RECIPE_WATCHING)
		read_queue(semaphore, out);
}

/* What the lock's recipe came out with is sent, and changes our state. */
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
	out->report |= lock->report & RECIPE_REPORT_RENEWED;
	if (lock->report & RECIPE_REPORT_LEFT)
		tell_left(out, lock->error, SEMAPHORE_LOCKS, semaphore->lock.node);

	if ((lock->report & RECIPE_REPORT_FAILED) && is_wanted(semaphore))
	{
		out->report |= lock->report &
			(RECIPE_REPORT_MIXED | RECIPE_REPORT_ENDED);
		fail(semaphore, out, lock->error);
	}
	else if ((lock->report & RECIPE_REPORT_LOST) && is_wanted(semaphore))
		withdraw(semaphore, out);	/* somebody deleted it: begin anew */
	else if (semaphore->state == SEMAPHORE_QUEUEING)
	{
		if (lock->report & RECIPE_REPORT_GRANTED)
			look_around(semaphore, out, SEMAPHORE_CHECKING);
		else if (lock->report & RECIPE_REPORT_QUEUED)
		{
			if (semaphore->lock.state == RECIPE_AWAITING_EMPTY)
				out->report |= RECIPE_REPORT_QUEUED;
			else
				read_queue(semaphore, out);
		}
	}
	end_if_gone(semaphore, out);
}

/*
 * The answers.
 */

/* Deal with an answer to reading that is none; returns false then. */
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

/* <name> has been read: is it a lock's? */
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
	/* who uses the lock must not find them, unless they are used as well */
	for (int i = 0; i < in->answer.nchildren; i++)
		if (strcmp(in->answer.children[i], ZNODE_LOCKS_DIR) == 0 ||
			strcmp(in->answer.children[i], ZNODE_PERMITS_DIR) == 0)
			send_op(semaphore, out, REQUEST_DELETE_ORPHAN, SEMAPHORE_NAME,
					in->answer.children[i], NULL);
}

/* The last answer of reading: how many permits have others agreed on? */
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

/* First the permits, then the queue has been read while we wait for the lock. */
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

/* The permits are in, of which one should be ours. */
static void
on_permits_listed(Semaphore *semaphore, const RecipeInput *in,
				  SemaphoreOutput *out)
{
	bool		found;

	if (semaphore->others >= 0 || !can_see(semaphore, in, out))
		return;
	found = count_permits(semaphore, in, out);
	if (semaphore->state == SEMAPHORE_COUNTING && !found)
		create(semaphore, out); /* somebody deleted it */
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

/* We have looked for a permit of ours; it is there, or it is not. */
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
			/* whether our permit exists cannot be found out */
			tell_left(out, in->answer.error, SEMAPHORE_PERMITS,
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
 * The first error tells why the others failed.  That <name> is missing is
 * none, if it was there a moment ago: then it has just been collected.
 */
static void
on_mkdir_done(Semaphore *semaphore, const RecipeInput *in)
{
	if (semaphore->mkdir_error == 0 &&
		(in->answer.result == REQUEST_REFUSED ||
		 (in->answer.result == REQUEST_NO_NODE && !semaphore->name_made)))
		semaphore->mkdir_error = in->answer.error;
	semaphore->name_made = true;
}

static void
on_set_done(Semaphore *semaphore, const RecipeInput *in, SemaphoreOutput *out)
{
	/* the next who reads it must not find the revocation again */
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
				/* not a name that a sequential create can have: look */
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

/* Watch our permit: somebody may ask for the permit by its data. */
static void
watch_revocation(Semaphore *semaphore, SemaphoreOutput *out)
{
	semaphore->revocation_watched = true;
	send_new(semaphore, out, REQUEST_WATCH, SEMAPHORE_PERMITS,
			 semaphore->node, NULL);
}

/* The watch stands for a stat that it may have overtaken. */
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
		/* say again who we are, so that it can be asked again */
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
			tell_left(out, in->answer.error, SEMAPHORE_PERMITS,
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
	/* of the lock only its delete: nobody needs its token */
	if (semaphore->lock.state == RECIPE_LEAVING)
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

/* Answers and watches of our own operations. */
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

/*
 * semaphore_init
 *		Set up a semaphore that has no permit and wants none.
 */
void
semaphore_init(Semaphore *semaphore)
{
	memset(semaphore, 0, sizeof(*semaphore));
	semaphore->state = SEMAPHORE_NONE;
	recipe_init(&semaphore->lock);
}

/*
 * semaphore_free
 *		Free what a semaphore has allocated; the struct is the caller's.
 */
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
 * SEMAPHORE_NONE.  "out" is filled anew.
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
 *		Take over a permit, or the wait for one, from an earlier worker, in the
 *		same session.
 *
 * The semaphore must be new.  As with recipe_resume(), what it sends must go
 * behind a write of our own.  The place in the queue is kept.  A permit that is
 * found while it is still waited for is deleted, but the lock is kept, so that
 * this costs no more than time.  "out" is filled anew.
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

	/* an owner has no need of the lock, and may still have it */
	recipe_resume(&semaphore->lock, uuid, ZNODE_MUTEX, false,
				  how == RECIPE_RESUME_WANTED ? RECIPE_RESUME_WANTED :
				  RECIPE_RESUME_RELEASING, NULL, &lock);
	take_lock_output(semaphore, &lock, out);
}

/*
 * semaphore_step
 *		The transition function: one event in, operations and news out.
 *
 * "for_lock" is that of the operation which an answer or a watch is for;
 * RECIPE_RELEASE, RECIPE_RETRY and RECIPE_EXPIRED are given once, for both.
 * All else is as told of recipe_step().
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
 *		Have we a contender in "locks", a permit, or may there be one yet?
 */
bool
semaphore_may_queue(const Semaphore *semaphore)
{
	/* from OWNER on the lock is not wanted any more */
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

/*
 * semaphore_is_leaving
 *		Is our permit, if there is one, about to be gone, as far as we can tell?
 */
bool
semaphore_is_leaving(const Semaphore *semaphore)
{
	return semaphore->state == SEMAPHORE_CANCELLING ||
		semaphore->state == SEMAPHORE_ABANDONING ||
		(semaphore->state == SEMAPHORE_LEAVING && !semaphore->refused);
}

/*
 * semaphore_state_name
 *		The name of a state, for log lines.
 */
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
