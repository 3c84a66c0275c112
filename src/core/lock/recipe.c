/*-------------------------------------------------------------------------
 *
 * recipe.c
 *		The ZooKeeper lock recipe as a pure state machine.
 *
 * One Recipe is one contender of this instance: at most one ephemeral
 * sequential znode in one lock directory.  Its inputs are what the slot wants,
 * answers of the server, watches, and the end of the session; its outputs are
 * operations to send and reports for the slot.
 *
 * The algorithm is ZooKeeper's lock recipe with Curator's protection: the
 * node's name contains a UUID, by which a create whose answer was lost can be
 * found.  Unlike Curator and kazoo,
 *
 *	- create and getChildren are sent in one flight: a session's requests are
 *	  answered in order, so the list has our node;
 *	- the search for a create whose answer was lost is sent behind a write of
 *	  our own: the server that we reconnected to may lag.  A sync is not
 *	  enough, since a deposed leader that has not noticed answers it at once
 *	  (ZOOKEEPER-1675);
 *	- another node with our UUID, from a create that was repeated although it
 *	  had arrived, is deleted when it is seen; so is a predecessor that is of
 *	  our session but of no contender of ours: nobody else would delete it
 *	  before the session ends;
 *	- if the predecessor was the only contender that excluded us and is
 *	  deleted, we own the lock without another read: no contender can have
 *	  come ahead of us since;
 *	- a contender that has waited for a watch for long looks at what it
 *	  watches, in case the event was lost;
 *	- a contender whose number proves that no other is ahead reads nothing;
 *	- an owner that wants the lock again leaves and requeues in one step;
 *	- with "permits" permits, as many own together: the first ones, by their
 *	  numbers.  So a place among permits is not behind a predecessor, but behind
 *	  all ahead of it, and watches the children.  See permit.c;
 *	- the directory is made again before its counter ends;
 *	- a child that is not ephemeral is no contender, whatever its name: below
 *	  a root that is itself a lock directory, lock directories may end in ten
 *	  digits.  The get that watches a predecessor shows that, and is as good as
 *	  its end: only those ahead of it can still exclude us.
 *	  For reports that cannot wait for that get, names in Curator's form count
 *	  as contenders.
 *
 * src/ownership.md has the proofs that a number alone can prove ownership, and
 * that an owner may requeue in one step.
 *
 * Numbers from ZNODE_LATE_SEQUENCE on are late: the counter of the directory
 * comes to its end.  A contender with a late number never owns the lock.  It
 * waits as others do, but counts as a writer.  When its turn has come, it
 * deletes its node, and the directory, if that is empty then.  If others are
 * in it, the contender comes again when it is asked to retry, and has lost its
 * place; they do the same, so that the directory becomes empty.  A contender
 * without order waits for nobody.  So whoever has a number that is not late
 * precedes all that are late and all without order.
 *
 * The invariants of each state, between steps.  An operation without an answer
 * yet is "out"; a read or watch that is out has the latest serial number.  A
 * node that the server has reported is "there" until something shows it gone.
 *
 *	NONE		There is no contender.  Nothing is kept of an earlier one.
 *	ENTERING	The create is out, and decides whether we have a node; "node"
 *				is the prefix of its name.  Behind it a list of the children
 *				is out, unless "unread".
 *	CANCELING	As in ENTERING or REQUEUEING, but the node is not wanted.
 *	SEARCHING	We may have a node.  A list is out, behind a write of our own:
 *				it shows the node if there is one.  "node" is the prefix of
 *				its name, or, if "requeued", the name of the previous node.
 *	ABANDONING	As in SEARCHING, but the node is not wanted.
 *	READING		Our node is there; "node" is its name, "sequence" its number.
 *				A list is out, sent behind the create.  If "blockers" is not 0,
 *				so many contenders that excluded us were ahead of
 *				"predecessor", which is gone, and none is behind it.
 *	WATCHING	Our node is there.  "predecessor" is the last of "blockers"
 *				contenders, at least one, that excluded us when the children
 *				were listed; none has come ahead of us since.  It is watched,
 *				or the watch is out.  A permit has no predecessor, and at least
 *				"permits" blockers; the children are watched.
 *	OWNER		Our node is there, its number is not late, and no contender
 *				that excludes us is ahead, nor will be; for a permit, fewer than
 *				"permits".  If "token" is 0, a stat is out, or was refused.
 *	REQUEUEING	"requeued" is set, and we are exclusive.  The multi is out, and
 *				decides which node we have; "node" and "sequence" are those of
 *				the previous node.
 *	LEAVING		Our node, "node", may be there.  A delete is out, or was
 *				refused.
 *	LATE		Our number is late, and our turn had come.  The delete of our
 *				node is out, unless it is "deleted", and behind it that of the
 *				directory, unless "refused": others were in it.
 *
 * "requeued" is set only in REQUEUEING, SEARCHING and where the node is not
 * wanted (CANCELING, ABANDONING, LEAVING).  "predecessor" may be left over in
 * READING, OWNER, LEAVING and LATE; it is NULL in all other states but
 * WATCHING.  The models of test/unit check this after each step.
 *
 * A permit's number is never late, nor does it prove anything, and without order
 * it counts all others as ahead of it, as Curator always does.  Where a mutex
 * watches its predecessor, a permit lists and watches the children, and looks in
 * the same way.
 *
 * A look is a stat without a watch, since the watch stands and the node may
 * have much data; where no watch stands, the next look finds what has
 * happened.  A list has names only, so an owner's look sets its watch again.
 *
 * The states and events.  A state ignores events that are not listed for it;
 * answers to reads and watches count only with the latest serial number.  A
 * list, watch, stat, set or delete that is unknown is sent again, but for a
 * look and the list of who has come.  A create or requeue that is ok, but under
 * no name that it can have, counts as unknown.
 *
 *	NONE		want -> ENTERING: create, children
 *				want, likely to own the lock unread -> ENTERING: create
 *	ENTERING	create ok, number 0 or the next -> as READING, none excludes us
 *				create ok -> READING (the children are on their way)
 *				create ok, and no read is behind it -> READING: children
 *				create unknown -> SEARCHING: search
 *				create no node -> ENTERING: make the directories, all again;
 *				  or, if they could not be made, -> NONE: failed
 *				create refused -> NONE: failed
 *				release -> CANCELING
 *	CANCELING	create ok; requeue ok, refused -> LEAVING: delete
 *				create, requeue unknown -> ABANDONING: search
 *				create no node, refused; requeue no node -> NONE: gone
 *	SEARCHING	children ok, the node before a requeue among them ->
 *				  REQUEUEING: requeue
 *				children ok, our node among them -> as READING
 *				children ok, without it; no node -> ENTERING: create, children
 *				children refused -> NONE: failed, and perhaps left behind
 *				release -> ABANDONING
 *	ABANDONING	children ok, our node, or that before a requeue, among them ->
 *				  LEAVING: delete
 *				children ok, without it; no node -> NONE: gone
 *				children refused -> NONE: perhaps left behind
 *	READING		children ok, nobody excludes us -> OWNER: stat; or, if the
 *				  answer to the create had the token -> OWNER: token
 *				children ok, somebody does -> WATCHING: watch the last of them;
 *				  the first time that our number is late: late
 *				in place of OWNER, here and below, if our number is late, and
 *				  in place of WATCHING, if it has no order -> LATE: delete,
 *				  rmdir
 *				children ok, without our node; no node -> ENTERING: as new
 *				children ok, with those of a semaphore -> LEAVING: delete;
 *				  failed, mixed
 *				children refused -> LEAVING: delete; failed
 *				release -> LEAVING: delete
 *	WATCHING	predecessor deleted; watch no node: if it was the only one that
 *				  excluded us -> OWNER: stat, and token if the answer to the
 *				  create had it; else -> READING: children
 *				watch used up otherwise -> WATCHING: watch
 *				look -> WATCHING: stat the predecessor
 *				that stat no node -> as predecessor deleted
 *				that stat ok, and the predecessor is an orphan of our session
 *				  -> WATCHING: delete it
 *				watch refused -> LEAVING: unwatch, delete; failed
 *				watch ok, and it is not ephemeral -> as predecessor deleted,
 *				  but unwatch before all else; a stranger
 *				watch ok, if nobody ahead was surely a contender -> queued
 *				watch ok, if only owners are ahead and we ask retained ones: it
 *				  may be retained -> WATCHING: retained; it is not -> queued
 *				watch ok, and the predecessor is an orphan of our session ->
 *				  WATCHING: delete it
 *				list ok, fewer than "permits" ahead -> OWNER: unwatch, stat
 *				list ok, as many, or more -> WATCHING
 *				list ok, without our node; no node -> ENTERING: unwatch, and as
 *				  new
 *				list refused -> LEAVING: unwatch, delete; failed
 *				read again -> READING: unwatch, children
 *				release -> LEAVING: unwatch, delete
 *	OWNER		stat ok, our session's -> OWNER: token
 *				stat ok, not our session's; no node -> NONE: lost
 *				stat refused -> OWNER; no token, if it is not known
 *				retry, after that -> OWNER: stat
 *				watch the queue; the watch of the list used up; look, if the
 *				  queue is watched -> OWNER: list the children and watch them
 *				the watch of the list used up, if we were alone, are shared,
 *				  and our note does not say retain=yes -> OWNER: unwatched
 *				the watch of the list used up, if we were alone, are exclusive,
 *				  and our note says retain=yes -> OWNER: contended; children,
 *				  to see whether another kind of client has come
 *				list ok -> OWNER: alone, or, and then the list ends, contended,
 *				  and if we are shared and a writer is behind us: writer
 *				list no node, refused -> OWNER: contended, since nobody knows
 *				set in use, if our note says retain=yes -> OWNER: set our note
 *				watch for a revocation, once; that watch used up -> OWNER:
 *				  watch our own node
 *				that watch ok, with the data of a revocation -> OWNER: set our
 *				  note; revoked
 *				that watch no node; own node deleted -> OWNER: stat
 *				requeue, if we are exclusive -> REQUEUEING: requeue
 *				release -> LEAVING: delete
 *	REQUEUEING	requeue ok, the next number -> as READING, nobody excludes us
 *				requeue ok -> READING: children
 *				requeue unknown -> SEARCHING: search
 *				requeue no node -> ENTERING: make the directories, as new
 *				requeue refused -> LEAVING: delete (the previous node); failed
 *				release -> CANCELING
 *	LEAVING		delete ok, no node -> NONE: gone
 *				delete refused -> LEAVING: left behind
 *				retry, after a refusal -> LEAVING: delete
 *	LATE		delete ok, no node -> LATE, deleted
 *				delete refused -> LEAVING: failed, left behind
 *				rmdir ok -> ENTERING: as new; renewed
 *				rmdir no node -> ENTERING: as new
 *				either unknown -> LATE: delete, rmdir
 *				rmdir refused, not empty -> LATE, refused: queued, and the
 *				  first time late; or, if our number has no order -> NONE:
 *				  failed, ended
 *				rmdir refused -> NONE: failed
 *				retry, refused -> ENTERING: as new
 *				release, deleted -> NONE: gone
 *				release -> LEAVING (the delete is out)
 *	any			expired -> NONE: lost if it was OWNER, else gone
 *
 * A contender that may be retained watches the queue from the moment that it
 * owns the lock.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/recipe.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "core/lock/note.h"
#include "core/memory.h"
#include "core/mutation.h"

static void
send_op(RecipeOutput *out, RequestKind kind, const char *node, uint32_t serial)
{
	/* No step sends more: the deletes of orphans are limited. */
	if (out->nops == RECIPE_MAX_OPS)
		return;
	out->ops[out->nops++] = (Request) {
		.kind = kind,.node = node,.serial = serial
	};
}

/* The serial number of a read or watch; 0 stands for none. */
static uint32_t
next_serial(Recipe *recipe)
{
	recipe->serial = recipe->serial % RECIPE_MAX_SERIAL + 1;
	return recipe->serial;
}

static void
forget(char **name)
{
	free(*name);
	*name = NULL;
}

/*
 * Has the child a name that only contenders have, all of which are ephemeral?
 */
static bool
is_surely_contender(const char *child)
{
	return strncmp(child, "_c_", 3) == 0;
}

/* The contender is gone: forget everything about it. */
static void
end(Recipe *recipe, RecipeOutput *out, unsigned report)
{
	forget(&recipe->predecessor);
	forget(&recipe->writer);
	recipe->state = RECIPE_NONE;
	out->report |= report | RECIPE_REPORT_GONE;
}

/* Our node may stay. */
static void
report_left(const Recipe *recipe, RecipeOutput *out, int error)
{
	out->report |= RECIPE_REPORT_LEFT;
	out->error = error;
	out->left = recipe->node;
}

static void
fail(Recipe *recipe, RecipeOutput *out, int error)
{
	out->error = error;
	end(recipe, out, RECIPE_REPORT_FAILED);
}

/*
 * Create our node, after making the directory if necessary, and read the
 * queue, unless the number is likely to prove that we own the lock.
 */
static void
enter(Recipe *recipe, bool unread, RecipeOutput *out)
{
	znode_contender_prefix(recipe->uuid, recipe->kind, recipe->node);
	recipe->requeued = false;
	recipe->token = 0;
	recipe->batch = 0;
	forget(&recipe->predecessor);
	recipe->blockers = 0;
	if (recipe->parents_tried)
		send_op(out, REQUEST_MKDIRS, NULL, 0);
	else if (!recipe->dir_known)
		send_op(out, REQUEST_MKDIR, NULL, 0);
	send_op(out, REQUEST_CREATE, recipe->node, 0);
	recipe->unread = unread;
	if (!unread)
		send_op(out, REQUEST_CHILDREN, NULL, next_serial(recipe));
	recipe->state = RECIPE_ENTERING;
}

static void
requeue(Recipe *recipe, RecipeOutput *out)
{
	recipe->requeued = true;
	recipe->parents_tried = false;
	recipe->mkdir_error = 0;
	forget(&recipe->predecessor);
	if (!ZK_MUTATED(ZK_REQUEUE_KEEPS_TOKEN))
		recipe->token = 0;
	recipe->batch = 0;
	recipe->unread = true;
	send_op(out, REQUEST_REQUEUE, recipe->node, 0);
	recipe->state = RECIPE_REQUEUEING;
}

static void
search(Recipe *recipe, RecipeOutput *out, RecipeState state)
{
	send_op(out, REQUEST_SEARCH, NULL, next_serial(recipe));
	recipe->state = state;
}

static void
read_queue(Recipe *recipe, RecipeOutput *out)
{
	send_op(out, REQUEST_CHILDREN, NULL, next_serial(recipe));
	recipe->state = RECIPE_READING;
}

/*
 * Watch what we wait for: the predecessor, or, for a permit, all children,
 * since any of those ahead may be the next to leave.
 */
static void
watch(Recipe *recipe, RecipeOutput *out)
{
	send_op(out, recipe->kind == ZNODE_PERMIT ? REQUEST_LIST : REQUEST_WATCH,
			recipe->predecessor, next_serial(recipe));
	recipe->state = RECIPE_WATCHING;
}

/* Read the queue again, though nobody ahead has left. */
static void
read_again(Recipe *recipe, RecipeOutput *out)
{
	if (recipe->state != RECIPE_WATCHING)
		return;
	send_op(out, REQUEST_UNWATCH, recipe->predecessor, 0);
	recipe->blockers = 0;		/* it is still there */
	read_queue(recipe, out);
}

/* List the children and watch them: another contender may queue behind us. */
static void
watch_queue(Recipe *recipe, RecipeOutput *out)
{
	recipe->alone = false;
	recipe->queue_watch = next_serial(recipe);
	send_op(out, REQUEST_LIST, NULL, recipe->queue_watch);
}

static void
stat_node(Recipe *recipe, RecipeOutput *out, uint32_t batch)
{
	send_op(out, REQUEST_STAT, recipe->node, 0);
	out->ops[out->nops - 1].batch = batch;
}

/*
 * Is our number late?  Permits are counted, not ordered: the end of their
 * counter does not matter.
 */
static bool
is_late(const Recipe *recipe)
{
	return recipe->kind != ZNODE_PERMIT && znode_is_late(recipe->sequence);
}

/*
 * Our number is late, and our turn has come: leave, and delete the directory if
 * nobody else is in it.
 */
static void
step_aside(Recipe *recipe, RecipeOutput *out)
{
	send_op(out, REQUEST_DELETE, recipe->node, next_serial(recipe));
	send_op(out, REQUEST_RMDIR, NULL, recipe->serial);
	recipe->refused = recipe->deleted = false;
	recipe->state = RECIPE_LATE;
}

/* Others are ahead of our late number, or in its directory. */
static void
report_late(Recipe *recipe, RecipeOutput *out)
{
	if (!recipe->was_late)
		out->report |= RECIPE_REPORT_LATE;
	recipe->was_late = true;
}

/*
 * We own the lock, unless our number is late.  The stat gets the token, and
 * checks that our node still exists in our session.  If the answer to a create
 * of this session has just shown our node in the queue, only the token may be
 * missing, which a stat of any node created with ours has, too.
 */
static void
own(Recipe *recipe, RecipeOutput *out, bool seen)
{
	if (is_late(recipe))
	{
		step_aside(recipe, out);
		return;
	}
	forget(&recipe->writer);
	recipe->blockers = 0;
	recipe->queue_watch = recipe->comers_list = recipe->revocation_watch = 0;
	recipe->rewritten = recipe->refused = false;
	recipe->state = RECIPE_OWNER;
	out->report |= RECIPE_REPORT_GRANTED;
	if (recipe->token != 0)
		out->report |= RECIPE_REPORT_TOKEN;
	if (!seen)
		stat_node(recipe, out, 0);
	else if (recipe->token == 0)
		stat_node(recipe, out, recipe->batch);
	if (recipe->retain)
		watch_queue(recipe, out);
}

/* Is the end of the predecessor to be missed, for a test? */
static bool
lose_wakeup(void)
{
	static unsigned wakeups = 0;

	return ZK_MUTATED(ZK_LOST_WAKEUP) && ++wakeups % 50 == 0;
}

static void
leave(Recipe *recipe, RecipeOutput *out)
{
	/* a watch left behind would wait for a node that no longer matters */
	if (recipe->state == RECIPE_WATCHING)
		send_op(out, REQUEST_UNWATCH, recipe->predecessor, 0);
	send_op(out, REQUEST_DELETE, recipe->node, 0);
	recipe->refused = false;
	recipe->state = RECIPE_LEAVING;
}

static void
fail_and_leave(Recipe *recipe, RecipeOutput *out, int error)
{
	out->report |= RECIPE_REPORT_FAILED;
	out->error = error;
	leave(recipe, out);
}

static void
created(Recipe *recipe, RecipeOutput *out, int32_t sequence)
{
	recipe->sequence = sequence;
	recipe->requeued = false;
	recipe->dir_known = true;
	znode_contender_name(recipe->uuid, recipe->kind, sequence, recipe->node);
	out->report |= RECIPE_REPORT_CREATED;
}

/* The create, or a read behind it, has found no lock directory. */
static void
enter_without_directory(Recipe *recipe, RecipeOutput *out)
{
	if (ZK_MUTATED(ZK_DIRECTORY_STAYS))
	{
		enter(recipe, false, out);
		return;
	}
	recipe->dir_known = false;
	if (recipe->parents_tried && recipe->mkdir_error != 0)
		fail(recipe, out, recipe->mkdir_error);
	else
	{
		/* missing parents, or an idle container was just collected */
		recipe->parents_tried = true;
		enter(recipe, false, out);
	}
}

/* Does the node that we had before the requeue still exist? */
static bool
find_old(const Recipe *recipe, const RequestAnswer *answer)
{
	if (!recipe->requeued)
		return false;
	for (int i = 0; i < answer->nchildren; i++)
		if (strcmp(answer->children[i], recipe->node) == 0)
			return true;
	return false;
}

/* Find our node, by its UUID, in a list of children. */
static bool
find_created(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	ZnodeContender contender;

	for (int i = 0; i < answer->nchildren; i++)
	{
		if (znode_has_uuid(answer->children[i], recipe->uuid) &&
			znode_parse_contender(answer->children[i], &contender))
		{
			created(recipe, out, contender.sequence);
			return true;
		}
	}
	return false;
}

/* Does a contender wait for all that are ahead, and all behind for it? */
static bool
is_writer(bool shared, int32_t sequence)
{
	return !shared || znode_is_late(sequence);
}

/* Does the contender precede us?  For a permit, any does if there is no order. */
static bool
is_ahead(const Recipe *recipe, const ZnodeContender *contender)
{
	if (recipe->kind == ZNODE_PERMIT &&
		(znode_is_unordered(recipe->sequence) ||
		 znode_is_unordered(contender->sequence)))
		return true;
	return znode_before(contender->sequence, recipe->sequence);
}

/* May we own with those ahead that exclude us? */
static bool
may_own(const Recipe *recipe)
{
	return recipe->kind == ZNODE_PERMIT ?
		recipe->blockers < recipe->permits : recipe->blockers == 0;
}

/* The order of the queue; by name where numbers are equal. */
static bool
stands_before(const char *a, int32_t a_sequence, const char *b,
			  int32_t b_sequence)
{
	return znode_before(a_sequence, b_sequence) ||
		(a_sequence == b_sequence && strcmp(a, b) < 0);
}

/* Our place in the queue, by a list of children. */
typedef struct QueuePlace
{
	bool		found;			/* our own node is in the list */
	bool		shared;			/* readers ahead do not exclude us */
	const char *predecessor;	/* the last one that excludes us; or NULL */
	int32_t		predecessor_sequence;
	int32_t		first;			/* the lowest number ahead of us, or our own */
	bool		writer;			/* one that excludes us waits for all */
	const char *end;			/* only those ahead of this child count; or
								 * NULL: all do */
	ZnodeContender at_end;
} QueuePlace;

/* Note a contender ahead of us, and whether it excludes us. */
static void
note_ahead(Recipe *recipe, QueuePlace *place, const char *child,
		   const ZnodeContender *contender)
{
	bool		writer = is_writer(contender->shared, contender->sequence);

	if (znode_before(contender->sequence, place->first))
		place->first = contender->sequence;
	if (place->shared && !writer)
		return;
	place->writer |= writer;
	recipe->blockers++;
	recipe->others |= !znode_is_of_instance(child);
	if (is_surely_contender(child))
		recipe->unsure = false;
	if (place->predecessor == NULL ||
		stands_before(place->predecessor, place->predecessor_sequence, child,
					  contender->sequence))
	{
		place->predecessor = child;
		place->predecessor_sequence = contender->sequence;
	}
}

/* Note one child of the lock directory. */
static void
note_child(Recipe *recipe, QueuePlace *place, const char *child,
		   RecipeOutput *out)
{
	ZnodeContender contender;

	if (strcmp(child, recipe->node) == 0)
		place->found = true;
	else if (recipe->kind != ZNODE_PERMIT && znode_is_semaphore_part(child))
		out->report |= RECIPE_REPORT_MIXED;
	else if (!znode_parse_contender(child, &contender))
	{
		out->report |= RECIPE_REPORT_STRANGER;
		out->stranger = child;
	}
	else if (znode_has_uuid(child, recipe->uuid))
	{
		if (out->nops < RECIPE_MAX_ORPHANS)
			send_op(out, REQUEST_DELETE_ORPHAN, child, 0);
	}
	else if (is_ahead(recipe, &contender) &&
			 (place->end == NULL ||
			  stands_before(child, contender.sequence, place->end,
							place->at_end.sequence)))
		note_ahead(recipe, place, child, &contender);
}

/*
 * Find our place in the queue: count the contenders that exclude us, and keep
 * the last of them as predecessor.  Returns false if our own node is missing.
 */
static bool
find_place(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	QueuePlace	place = {
		.first = recipe->sequence,
		.shared = !is_writer(recipe->kind == ZNODE_READER, recipe->sequence),
		.end = recipe->blockers > 0 ? recipe->predecessor : NULL
	};

	if (place.end != NULL)
		(void) znode_parse_contender(place.end, &place.at_end);
	recipe->blockers = 0;
	recipe->unsure = recipe->kind != ZNODE_PERMIT;
	for (int i = 0; i < answer->nchildren; i++)
		note_child(recipe, &place, answer->children[i], out);
	if (recipe->kind == ZNODE_PERMIT && recipe->blockers > 0)
		recipe->blockers += ZK_MUTATED(ZK_PERMIT_TWICE) ? 1 :
			ZK_MUTATED(ZK_PERMIT_MISSED) ? -1 : 0;

	/* all that exclude us own the lock: readers, or the first one only */
	recipe->retained_ahead = recipe->asks_retained &&
		place.predecessor != NULL &&
		(!place.writer || place.first == place.predecessor_sequence);
	forget(&recipe->predecessor);
	if (place.found && place.predecessor != NULL &&
		recipe->kind != ZNODE_PERMIT)
		recipe->predecessor = memory_copy(place.predecessor);
	return place.found;
}

/*
 * The children have been listed, and we know our node's name; "found": it is
 * among them.
 */
static void
settle(Recipe *recipe, bool found, RecipeOutput *out)
{
	if (!found)
	{
		out->report &= ~RECIPE_REPORT_MIXED;
		enter(recipe, false, out);	/* another client deleted our node */
	}
	else if (out->report & RECIPE_REPORT_MIXED)
		fail_and_leave(recipe, out, 0);
	else if (may_own(recipe))
		own(recipe, out, true);
	else if (is_late(recipe) && znode_is_unordered(recipe->sequence))
		step_aside(recipe, out);
	else
	{
		watch(recipe, out);
		if (is_late(recipe))
			report_late(recipe, out);
		if (recipe->retained_ahead)
			recipe->unsure = false;
		else if (!recipe->unsure)
			out->report |= RECIPE_REPORT_QUEUED;
	}
}

/* The predecessor does not exclude us any more. */
static void
predecessor_gone(Recipe *recipe, RecipeOutput *out)
{
	if (--recipe->blockers == 0)
		own(recipe, out, false);
	else
		read_queue(recipe, out);
}

/*
 * Our place in the queue has been read; or, while we wait for a permit, the
 * children are listed and watched again.
 */
static void
on_place_read(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		waiting = recipe->state == RECIPE_WATCHING;
	bool		found;

	if (answer->result == REQUEST_UNKNOWN)
	{
		if (waiting)
			watch(recipe, out);
		else
			read_queue(recipe, out);
		return;
	}
	if (answer->result == REQUEST_REFUSED)
	{
		fail_and_leave(recipe, out, answer->error);
		return;
	}
	found = answer->result == REQUEST_OK && find_place(recipe, answer, out);
	if (waiting && found && !may_own(recipe))
		return;

	/* a watch left behind would fire after the wait has ended */
	if (waiting)
		send_op(out, REQUEST_UNWATCH, NULL, 0);
	if (answer->result == REQUEST_OK)
		settle(recipe, found, out);
	else
		enter_without_directory(recipe, out);
}

/* The predecessor is no contender, whatever its name. */
static void
pass_over_predecessor(Recipe *recipe, RecipeOutput *out)
{
	out->report |= RECIPE_REPORT_STRANGER;
	out->stranger = recipe->predecessor;
	send_op(out, REQUEST_UNWATCH, recipe->predecessor, 0);
	predecessor_gone(recipe, out);
}

static void
on_release(Recipe *recipe, RecipeOutput *out)
{
	switch (recipe->state)
	{
		case RECIPE_ENTERING:
		case RECIPE_REQUEUEING:
			recipe->state = RECIPE_CANCELING;
			break;
		case RECIPE_SEARCHING:
			recipe->state = RECIPE_ABANDONING;
			break;
		case RECIPE_READING:
		case RECIPE_WATCHING:
		case RECIPE_OWNER:
			leave(recipe, out);
			break;
		case RECIPE_LATE:
			if (recipe->deleted)
				end(recipe, out, 0);
			else
				recipe->state = RECIPE_LEAVING; /* the delete is out */
			break;
		default:
			break;
	}
}

/* Does our number prove that no contender is ahead? */
static bool
owns_by_number(const Recipe *recipe)
{
	int32_t		next = recipe->next;

	if (recipe->kind == ZNODE_PERMIT)
		return false;
	if (ZK_MUTATED(ZK_GAP_OWNS) && next != 0 && recipe->sequence > next)
		return true;
	return recipe->sequence == 0 || recipe->sequence == next;
}

/*
 * Our node is created: own the lock if its number proves that, or read the
 * queue.
 */
static void
on_entered(Recipe *recipe, bool owns, RecipeOutput *out)
{
	if (owns)
	{
		/* the read behind the create does not count */
		if (!recipe->unread)
			(void) next_serial(recipe);
		own(recipe, out, true);
	}
	else if (recipe->unread)
		read_queue(recipe, out);
	else
		recipe->state = RECIPE_READING;
}

/*
 * A create or requeue has been answered: what does that say?  A name that a
 * sequential create cannot get says nothing.
 */
static RequestResult
accept_created(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	ZnodeContender contender;

	if (answer->result != REQUEST_OK)
		return answer->result;
	if (!znode_parse_contender(answer->node, &contender))
		return REQUEST_UNKNOWN;
	created(recipe, out, contender.sequence);
	recipe->batch = answer->batch;
	if (answer->kind == REQUEST_CREATE)
		recipe->token = answer->token;
	return REQUEST_OK;
}

/* The answer to what decides whether we have a node, which is not wanted. */
static void
on_unwanted(Recipe *recipe, RequestResult result, bool has_node,
			RecipeOutput *out)
{
	if (result == REQUEST_UNKNOWN)
		search(recipe, out, RECIPE_ABANDONING);
	else if (has_node)
		leave(recipe, out);
	else
		end(recipe, out, 0);
}

/* The create, or the search for what it has made, was not done. */
static void
on_not_entered(Recipe *recipe, RequestResult result, int error,
			   RecipeOutput *out)
{
	if (result == REQUEST_UNKNOWN)
		search(recipe, out, RECIPE_SEARCHING);
	else if (result == REQUEST_NO_NODE)
		enter_without_directory(recipe, out);
	else
		fail(recipe, out, error);
}

/*
 * The create has been answered; or the multi has deleted our node and created
 * another one, or neither.  The previous number shows whether another contender
 * came in between.
 */
static void
on_create_done(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		requeue = answer->kind == REQUEST_REQUEUE;
	bool		wanted = recipe->state ==
		(requeue ? RECIPE_REQUEUEING : RECIPE_ENTERING);
	int32_t		last = recipe->sequence;
	RequestResult result;
	bool		has_node;

	if (recipe->requeued != requeue ||
		(!wanted && recipe->state != RECIPE_CANCELING))
		return;

	/* without the previous node none is created; if refused, it exists */
	result = accept_created(recipe, answer, out);
	has_node = requeue ? result != REQUEST_NO_NODE :
		result == REQUEST_OK && !ZK_MUTATED(ZK_CANCEL_KEEPS_NODE);
	if (!wanted)
		on_unwanted(recipe, result, has_node, out);
	else if (result == REQUEST_OK)
		on_entered(recipe, requeue ? recipe->sequence == last + 1 ||
				   ZK_MUTATED(ZK_REQUEUED_OWNS) : owns_by_number(recipe), out);
	else if (result == REQUEST_REFUSED && has_node)
		fail_and_leave(recipe, out, answer->error);
	else
		on_not_entered(recipe, result, answer->error, out);
}

static void
on_search_done(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		listed = answer->result == REQUEST_OK;
	bool		old = listed && find_old(recipe, answer);
	bool		found = old ||
		(listed && find_created(recipe, answer, out));

	recipe->dir_known |= listed;
	if (answer->result == REQUEST_REFUSED)
		report_left(recipe, out, answer->error);	/* nobody knows */

	if (recipe->state == RECIPE_ABANDONING)
		on_unwanted(recipe, answer->result, found, out);
	else if (old)
		requeue(recipe, out);
	else if (found && ZK_MUTATED(ZK_RECOVERED_CREATE_OWNS))
		own(recipe, out, false);
	else if (found)
		settle(recipe, find_place(recipe, answer, out), out);
	else if (listed)
		enter(recipe, false, out);
	else
		on_not_entered(recipe, answer->result, answer->error, out);
}

static bool
is_sibling(const Recipe *recipe, const char *child)
{
	return recipe->has_sibling && znode_has_uuid(child, recipe->sibling);
}

/*
 * The first contender that waits behind us, NULL: there is none.  A reader does
 * not wait for a reader.
 *
 * This instance's contender in the other mode does not count: backends wait for
 * each other in tier 1.  But with "behind_sibling", readers behind this
 * instance's writer do, since that waits for us.
 */
static const char *
somebody_behind(Recipe *recipe, const RequestAnswer *answer,
				bool behind_sibling)
{
	const char *first = NULL;
	int32_t		first_sequence = 0;
	ZnodeContender contender;
	ZnodeContender sibling;
	bool		found = false;

	for (int i = 0; i < answer->nchildren && behind_sibling && !found; i++)
		found = is_sibling(recipe, answer->children[i]) &&
			znode_parse_contender(answer->children[i], &sibling) &&
			znode_before(recipe->sequence, sibling.sequence);
	for (int i = 0; i < answer->nchildren; i++)
	{
		const char *child = answer->children[i];

		if (znode_parse_contender(child, &contender) &&
			znode_before(recipe->sequence, contender.sequence) &&
			(recipe->kind != ZNODE_READER ||
			 is_writer(contender.shared, contender.sequence) ||
			 (found && znode_before(sibling.sequence, contender.sequence))) &&
			!is_sibling(recipe, child) &&
			(first == NULL || znode_before(contender.sequence, first_sequence)))
		{
			first = child;
			first_sequence = contender.sequence;
		}
	}
	recipe->others |= first != NULL && !znode_is_of_instance(first);
	return first;
}

/*
 * The queue behind us has been listed, and is watched from now on.  Does a
 * writer wait behind our reader?
 */
static void
on_queue_listed(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		reader = recipe->kind == ZNODE_READER;
	bool		known = answer->result == REQUEST_OK;
	const char *writer = NULL;

	if (answer->result == REQUEST_UNKNOWN)
	{
		watch_queue(recipe, out);
		return;
	}

	/* if that is unknown, the lock must not be withheld from anybody */
	recipe->alone = known && somebody_behind(recipe, answer, true) == NULL;
	if (!recipe->alone)
		recipe->queue_watch = 0;
	out->report |= recipe->alone ?
		RECIPE_REPORT_ALONE : RECIPE_REPORT_CONTENDED;
	if (known && reader && !recipe->alone)
		writer = somebody_behind(recipe, answer, false);
	forget(&recipe->writer);
	if (writer != NULL)
	{
		recipe->writer = memory_copy(writer);
		out->report |= RECIPE_REPORT_WRITER;
	}
}

/* Watch our own node: its data may become a request for the lock. */
static void
watch_revocation(Recipe *recipe, RecipeOutput *out)
{
	recipe->revocation_watch = next_serial(recipe);
	send_op(out, REQUEST_WATCH, recipe->node, recipe->revocation_watch);
}

/*
 * The queue behind us has changed.
 *
 * Readers may come and go behind a reader.  Unless it may be idle, the queue is
 * read when that matters again, not at each change: otherwise, with many
 * readers, each would read it for all of them.
 *
 * If nobody was behind an exclusive owner, somebody has come.  A lock that may
 * be idle is then given up at once.  The list that shows who has come is sent
 * ahead of the delete, which does not wait for its answer.
 */
static void
on_queue_touched(Recipe *recipe, RecipeOutput *out)
{
	bool		reader = recipe->kind == ZNODE_READER;

	if (reader && recipe->alone && !recipe->retain)
	{
		recipe->alone = false;
		recipe->queue_watch = 0;
		out->report |= RECIPE_REPORT_UNWATCHED;
	}
	else if (!recipe->alone || !recipe->retain || reader)
		watch_queue(recipe, out);
	else
	{
		recipe->queue_watch = 0;
		recipe->comers_list = next_serial(recipe);
		send_op(out, REQUEST_CHILDREN, NULL, recipe->comers_list);
		out->report |= RECIPE_REPORT_CONTENDED;
	}
}

/*
 * Who has come?  If nobody is there, it is somebody who did not wait: a try of
 * another kind of client.  An instance waits until we have let go of a lock
 * that may be retained, and our own other contenders come when this one is
 * gone.
 */
static void
on_comers_listed(Recipe *recipe, const RequestAnswer *answer)
{
	recipe->comers_list = 0;
	if (answer->result == REQUEST_OK &&
		somebody_behind(recipe, answer, false) == NULL)
		recipe->others = true;
}

/*
 * In this state, is this of its latest read or watch with this serial number?
 * 0: there is none.
 */
static bool
is_of(const Recipe *recipe, const RequestAnswer *answer, RecipeState state,
	  uint32_t serial)
{
	return recipe->state == state && serial != 0 && answer->serial == serial;
}

/* Our own node has been read, and is watched. */
static void
on_own_node_watched(Recipe *recipe, const RequestAnswer *answer,
					RecipeOutput *out)
{
	if (answer->result == REQUEST_UNKNOWN)
		watch_revocation(recipe, out);
	else if (answer->result == REQUEST_NO_NODE)
		stat_node(recipe, out, 0);
	else if (answer->result == REQUEST_OK &&
			 note_is_revocation(answer->data, answer->data_len))
	{
		/* write our note again, so that a later request is noticed */
		out->report |= RECIPE_REPORT_REVOKED;
		recipe->rewritten = true;
		send_op(out, REQUEST_SET, recipe->node, 0);
	}

	/* if it was refused, there is no revocation, but all else works */
}

/* The directory that we have left has been deleted, or not. */
static void
on_rmdir_done(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	if (recipe->state != RECIPE_LATE || answer->serial != recipe->serial)
		return;

	if (answer->result == REQUEST_OK || answer->result == REQUEST_NO_NODE)
	{
		if (answer->result == REQUEST_OK)
			out->report |= RECIPE_REPORT_RENEWED;
		recipe->dir_known = false;
		enter(recipe, false, out);
	}
	else if (answer->result == REQUEST_UNKNOWN)
		step_aside(recipe, out);
	else if (!answer->not_empty)
		fail(recipe, out, answer->error);
	else if (znode_is_unordered(recipe->sequence))
		end(recipe, out, RECIPE_REPORT_FAILED | RECIPE_REPORT_LATE);
	else
	{
		out->report |= RECIPE_REPORT_QUEUED;
		report_late(recipe, out);
		recipe->refused = true;
	}
}

static void
on_children_done(Recipe *recipe, const RequestAnswer *answer,
				 RecipeOutput *out)
{
	if (recipe->comers_list != 0 && answer->serial == recipe->comers_list)
		on_comers_listed(recipe, answer);
	else if (is_of(recipe, answer, RECIPE_OWNER, recipe->queue_watch))
		on_queue_listed(recipe, answer, out);
	else if (answer->serial != recipe->serial)
		return;
	else if (recipe->state == RECIPE_SEARCHING ||
			 recipe->state == RECIPE_ABANDONING)
		on_search_done(recipe, answer, out);
	else if (recipe->state == RECIPE_READING ||
			 (recipe->state == RECIPE_WATCHING &&
			  recipe->kind == ZNODE_PERMIT))
		on_place_read(recipe, answer, out);
}

/* Nobody else would delete a predecessor that is of our session alone. */
static void
delete_orphan(Recipe *recipe, RecipeOutput *out)
{
	if (recipe->orphan)
		send_op(out, REQUEST_DELETE_ORPHAN, recipe->predecessor, 0);
}

/* The predecessor has been read, and is watched. */
static void
on_predecessor_watched(Recipe *recipe, const RequestAnswer *answer,
					   RecipeOutput *out)
{
	if (answer->result == REQUEST_UNKNOWN)
		watch(recipe, out);
	else if (answer->result == REQUEST_NO_NODE)
		predecessor_gone(recipe, out);
	else if (answer->result == REQUEST_REFUSED)
		fail_and_leave(recipe, out, answer->error);
	else if (!request_is_ephemeral(answer))
		pass_over_predecessor(recipe, out);
	else
	{
		delete_orphan(recipe, out);
		if (recipe->unsure)
			out->report |= RECIPE_REPORT_QUEUED;
		else if (recipe->retained_ahead)
		{
			recipe->retained_ahead =
				note_may_be_retained(answer->data, answer->data_len);
			out->report |= recipe->retained_ahead ?
				RECIPE_REPORT_RETAINED : RECIPE_REPORT_QUEUED;
		}
		recipe->unsure = false;
	}
}

static void
on_watch_done(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	if (is_of(recipe, answer, RECIPE_OWNER, recipe->revocation_watch))
		on_own_node_watched(recipe, answer, out);
	else if (is_of(recipe, answer, RECIPE_WATCHING, recipe->serial))
		on_predecessor_watched(recipe, answer, out);
}

/*
 * A watch has fired: what it watched is gone, or the watch is used up for
 * another reason, and is to be set again.
 */
static void
on_fired(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		deleted = answer->event == REQUEST_NODE_DELETED;

	if (is_of(recipe, answer, RECIPE_WATCHING, recipe->serial))
	{
		if (!deleted || recipe->kind == ZNODE_PERMIT)
			watch(recipe, out);
		else if (!lose_wakeup())
			predecessor_gone(recipe, out);
	}
	else if (is_of(recipe, answer, RECIPE_OWNER, recipe->queue_watch))
		on_queue_touched(recipe, out);
	else if (is_of(recipe, answer, RECIPE_OWNER, recipe->revocation_watch))
	{
		if (deleted)
			stat_node(recipe, out, 0);
		else
			watch_revocation(recipe, out);
	}
}

/* Look at what we watch: its event may have been lost. */
static void
look(Recipe *recipe, RecipeOutput *out)
{
	if (recipe->state == RECIPE_WATCHING && recipe->kind == ZNODE_PERMIT)
		watch(recipe, out);
	else if (recipe->state == RECIPE_WATCHING)
		send_op(out, REQUEST_STAT, recipe->predecessor, recipe->serial);
	else if (recipe->state == RECIPE_OWNER && recipe->queue_watch != 0)
		watch_queue(recipe, out);
}

/*
 * Our own node has been read, or a predecessor by a look, while we wait for
 * the same watch.  If the answer to that is unknown, the library has lost the
 * connection, and sets the watch again.
 */
static void
on_stat_done(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	if (is_of(recipe, answer, RECIPE_WATCHING, recipe->serial))
	{
		if (answer->result == REQUEST_NO_NODE)
			predecessor_gone(recipe, out);
		else
			delete_orphan(recipe, out);
		return;
	}

	/* only that of our own node has no serial number */
	if (recipe->state != RECIPE_OWNER || answer->serial != 0)
		return;

	if (answer->result == REQUEST_UNKNOWN)
		stat_node(recipe, out, 0);
	else if (answer->result == REQUEST_OK && answer->ours)
	{
		out->report |= RECIPE_REPORT_TOKEN;
		recipe->token = answer->czxid;
	}
	else if (answer->result != REQUEST_REFUSED)
	{
		out->error = answer->error;
		end(recipe, out, RECIPE_REPORT_LOST);
	}
	else if (recipe->token == 0)
	{
		/* the lock is ours nevertheless */
		recipe->refused = true;
		out->report |= RECIPE_REPORT_NO_TOKEN;
		out->error = answer->error;
	}
}

/* It is time to retry what was refused, or to come again. */
static void
retry(Recipe *recipe, RecipeOutput *out)
{
	if (!recipe->refused)
		return;
	if (recipe->state == RECIPE_LEAVING)
		leave(recipe, out);
	else if (recipe->state == RECIPE_LATE)
		enter(recipe, false, out);
	else if (recipe->state == RECIPE_OWNER)
	{
		recipe->refused = false;
		stat_node(recipe, out, 0);
	}
}

/* Our node has been deleted, or not: with a late number, or for good. */
static void
on_delete_done(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	if (recipe->state == RECIPE_LATE && answer->result == REQUEST_REFUSED)
	{
		/* the answer to the directory's delete counts no more */
		recipe->state = RECIPE_LEAVING;
		out->report |= RECIPE_REPORT_FAILED;
	}
	if (recipe->state == RECIPE_LATE)
	{
		if (answer->result == REQUEST_UNKNOWN)
			step_aside(recipe, out);
		else
			recipe->deleted = true;
	}
	if (recipe->state != RECIPE_LEAVING)
		return;

	if (answer->result == REQUEST_REFUSED)
	{
		recipe->refused = true;
		report_left(recipe, out, answer->error);
	}
	else if (answer->result == REQUEST_UNKNOWN &&
			 !ZK_MUTATED(ZK_DELETE_FORGOTTEN))
		leave(recipe, out);
	else
		end(recipe, out, 0);
}

/* Free what a recipe has allocated; the struct is the caller's. */
void
recipe_free(Recipe *recipe)
{
	forget(&recipe->predecessor);
	forget(&recipe->writer);
}

/*
 * recipe_want
 *		Queue for the lock with a new contender.
 *
 * "uuid" must never have been used in this lock directory.  "dir_known": the
 * directory has been seen, which saves an operation.  "unread": the new number
 * is likely to own the lock with nothing read, which saves the read; if it does
 * not, the read takes another round trip.  The recipe must be in RECIPE_NONE.
 * "out" is overwritten.
 */
void
recipe_want(Recipe *recipe, const uint8_t uuid[ZNODE_UUID_BYTES],
			ZnodeKind kind, bool dir_known, bool unread, RecipeOutput *out)
{
	memset(out, 0, sizeof(*out));
	if (recipe->state != RECIPE_NONE)
		return;
	memcpy(recipe->uuid, uuid, ZNODE_UUID_BYTES);
	recipe->kind = kind;
	recipe->dir_known = dir_known;
	recipe->parents_tried = false;
	recipe->mkdir_error = 0;
	recipe->comers_list = 0;
	recipe->has_sibling = recipe->others = recipe->was_late = false;
	enter(recipe, unread, out);
}

/*
 * recipe_resume
 *		Take over a contender from an earlier worker, in the same session.
 *
 * The recipe must be new.  What it sends must go behind a write of our own:
 * the session's server may lag behind what the earlier worker had seen.
 *
 * "sequence" is NULL if that worker had no answer to the create; if the
 * contender was about to requeue, it is that of the previous node.  "out" is
 * overwritten.
 */
void
recipe_resume(Recipe *recipe, const uint8_t uuid[ZNODE_UUID_BYTES],
			  ZnodeKind kind, RecipeResume how, const int32_t *sequence,
			  RecipeOutput *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(recipe->uuid, uuid, ZNODE_UUID_BYTES);
	recipe->kind = kind;
	if (sequence == NULL || recipe->requeued)
	{
		if (sequence != NULL)
		{
			recipe->sequence = *sequence;
			znode_contender_name(uuid, kind, *sequence, recipe->node);
		}
		search(recipe, out, how == RECIPE_RESUME_RELEASING ?
			   RECIPE_ABANDONING : RECIPE_SEARCHING);
		return;
	}

	created(recipe, out, *sequence);
	switch (how)
	{
		case RECIPE_RESUME_WANTED:
			read_queue(recipe, out);
			break;
		case RECIPE_RESUME_OWNED:
			stat_node(recipe, out, 0);
			recipe->state = RECIPE_OWNER;
			recipe->rewritten = true;	/* possibly */
			if (recipe->retain)
				watch_queue(recipe, out);
			break;
		case RECIPE_RESUME_RELEASING:
			leave(recipe, out);
			break;
	}
}

/* A request of ours has been answered, or its watch has fired. */
static void
on_answer(Recipe *recipe, const RequestAnswer *answer, RecipeOutput *out)
{
	if (answer->event != REQUEST_DONE)
	{
		on_fired(recipe, answer, out);
		return;
	}
	switch (answer->kind)
	{
		case REQUEST_MKDIR:
		case REQUEST_MKDIRS:
			/* no node: a parent has just been collected */
			recipe->mkdir_error = answer->result == REQUEST_REFUSED ?
				answer->error : 0;
			break;
		case REQUEST_CREATE:
		case REQUEST_REQUEUE:
			on_create_done(recipe, answer, out);
			break;
		case REQUEST_CHILDREN:
		case REQUEST_SEARCH:
		case REQUEST_LIST:
			on_children_done(recipe, answer, out);
			break;
		case REQUEST_WATCH:
			on_watch_done(recipe, answer, out);
			break;
		case REQUEST_RMDIR:
			on_rmdir_done(recipe, answer, out);
			break;
		case REQUEST_SET:
			/* the next read must not find the same revocation */
			if (recipe->state == RECIPE_OWNER &&
				answer->result == REQUEST_UNKNOWN)
				send_op(out, REQUEST_SET, recipe->node, 0);
			break;
		case REQUEST_STAT:
			on_stat_done(recipe, answer, out);
			break;
		case REQUEST_DELETE:
			on_delete_done(recipe, answer, out);
			break;
		default:
			break;				/* not answered, or not ours */
	}
}

/* Write that we use the lock. */
static void
set_in_use(Recipe *recipe, RecipeOutput *out)
{
	recipe->retain = false;
	send_op(out, REQUEST_SET, recipe->node, 0);

	/* not over a revocation that we have not read yet */
	out->ops[out->nops - 1].has_version = !recipe->rewritten;
}

/*
 * recipe_step
 *		The transition function: one event in, operations and reports out.
 *
 * Operations must be sent in the order given.  Their answers must come back in
 * the order sent, as ZooKeeper guarantees for a session; after RECIPE_EXPIRED
 * no answers of the ended session may come back.  "answer" is that of
 * RECIPE_ANSWER.  "out" is overwritten; it points into "answer" and "recipe",
 * so it is valid until either changes.
 */
void
recipe_step(Recipe *recipe, RecipeEvent event, const RequestAnswer *answer,
			RecipeOutput *out)
{
	bool		owns = recipe->state == RECIPE_OWNER;

	memset(out, 0, sizeof(*out));
	switch (event)
	{
		case RECIPE_ANSWER:
			on_answer(recipe, answer, out);
			break;
		case RECIPE_RELEASE:
			on_release(recipe, out);
			break;
		case RECIPE_REQUEUE:
			if (owns && recipe->kind != ZNODE_READER)
				requeue(recipe, out);
			break;
		case RECIPE_READ_QUEUE:
			read_again(recipe, out);
			break;
		case RECIPE_WATCH_QUEUE:
			if (owns)
				watch_queue(recipe, out);
			break;
		case RECIPE_SET_IN_USE:
			if (owns && recipe->retain)
				set_in_use(recipe, out);
			break;
		case RECIPE_WATCH_REVOCATION:
			if (owns && recipe->revocation_watch == 0)
				watch_revocation(recipe, out);
			break;
		case RECIPE_LOOK:
			look(recipe, out);
			break;
		case RECIPE_RETRY:
			retry(recipe, out);
			break;
		case RECIPE_EXPIRED:
			if (recipe->state != RECIPE_NONE)
				end(recipe, out, owns ? RECIPE_REPORT_LOST : 0);
			break;
	}
}

/* Was the delete of our node refused?  It is to be retried. */
bool
recipe_is_stuck(const Recipe *recipe)
{
	return recipe->state == RECIPE_LEAVING && recipe->refused;
}

/* Is our node, if there is one, no longer wanted? */
bool
recipe_is_leaving(const Recipe *recipe)
{
	return recipe->state == RECIPE_CANCELING ||
		recipe->state == RECIPE_ABANDONING ||
		recipe->state == RECIPE_LEAVING;
}

/* The name of a state, for log lines. */
const char *
recipe_state_name(RecipeState state)
{
	static const char *const names[] = {
		[RECIPE_NONE] = "none",
		[RECIPE_ENTERING] = "entering",
		[RECIPE_CANCELING] = "canceling",
		[RECIPE_SEARCHING] = "searching",
		[RECIPE_ABANDONING] = "abandoning",
		[RECIPE_READING] = "reading",
		[RECIPE_WATCHING] = "watching",
		[RECIPE_OWNER] = "owner",
		[RECIPE_REQUEUEING] = "requeueing",
		[RECIPE_LEAVING] = "leaving",
		[RECIPE_LATE] = "late"
	};

	return (unsigned) state <= RECIPE_LATE ? names[state] : "unknown";
}
