/*-------------------------------------------------------------------------
 *
 * waits.c
 *		The deadlocks between clusters in what has been read of their waits.
 *
 * An edge H -> W is a fact that a cluster tells: H, a contender, is held, and
 * who holds it waits for W, another contender of the cluster.  The rest is in
 * the lock directories:
 *
 *	- W waits for each owner that excludes it: for the first contender, if that
 *	  is exclusive, else for the readers in front.  Those in between need not be
 *	  looked at, since they wait for the owners themselves.
 *	- Only a reader behind readers that own the lock waits for one of those in
 *	  between, the first that is exclusive.  That one is named with the deadlock
 *	  ("between"), since the deadlock ends when it leaves.  The same goes for a
 *	  reader without a contender of its own, whose cluster has one that owns the
 *	  lock: it may not join because of the writer, and names that contender.
 *	- Who waits for a permit waits for any of the permits that there are: in
 *	  <name>/leases, the first as many as the semaphore has.  Wherever he is
 *	  in the queue, he gets none while none of these goes.
 *	- Who waits for one of several locks (alternatives) waits for any of them.
 *	- Who waits for a session (vertex.c) waits for whatever that waits for: one
 *	  edge from it is enough, as with readers of which one is blocked.
 *
 * An owner of which one backend of several is blocked for ever is never given
 * up, so it is blocked if one of its edges is.  A deadlock is a set of edges
 * that keep one another: for each of them all alternatives are kept, a lock by
 * an owner with an edge in the set, a permit by all owners having one.  Of the
 * edges that have been read, those that are in any deadlock are easily found:
 * take all, and take out what is not kept, until nothing changes (keep_only).
 *
 * What is reported is minimal (minimal.c): without any of its units, nothing of
 * it is a deadlock.  A unit is what goes together when a transaction ends: all
 * edges of one contender, and all that end with the same wait, since who waits
 * may hold several contenders.  So each member's end is the end of the
 * deadlock, and there are no bystanders, as there would be in a cycle of which
 * a member also waits for a later one.  One such set is found by trying to do
 * without each unit in turn, and then without each edge:
 *
 *	- First we keep the edge from which we look, and see whether what remains
 *	  is minimal.
 *	- If not, the edge may only wait for a deadlock of others.  We try again
 *	  without keeping it, and report what remains if it has our edge.  This
 *	  makes sure that somebody reports something: the edges are taken in an
 *	  order that is the same for all.  Of all edges in deadlocks take one, e,
 *	  from which the least can be reached.  A member m of the set that e finds
 *	  reaches no more than e, hence the same, and so finds the same set, which
 *	  has m in it.
 *
 * The victim is the edge whose waiting transaction began last; if there are
 * several, that with the last path.  All who find the set agree on that.  An edge
 * that began at 0 is of somebody who is no part of the deadlock, but ahead of
 * one who is.  He is chosen only if all edges are like that, and then he does
 * not fail: he lets the other one go ahead, and a later look finds the deadlock
 * with that one's wait (waits_steps_back).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/waits.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/waits.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/minimal.h"
#include "core/mutation.h"

/* Whom does a wait of an owner wait for?  False if for nobody. */
static bool
find_need(const WaitGraph *graph, const WaitOwner *owner, const NoteWait *wait,
		  WaitNeed *need)
{
	const WaitDirectory *directory = graph_directory_of(graph, owner->path,
														wait);
	const char *name = strrchr(wait->to, '/');
	int			place = 0;

	memset(need, 0, sizeof(*need));
	need->wait = wait;
	if (directory == NULL ||
		(directory->permits > 0) != (wait->kind == NOTE_WAIT_PERMIT))
		return false;
	need->directory = directory;
	need->nowners = graph_count_owners(directory, wait->permits);
	if (wait->kind == NOTE_WAIT_PERMIT || wait->kind == NOTE_WAIT_SESSION)
		return need->nowners > 0;

	while (place < directory->ncontenders &&
		   strcmp(directory->contenders[place].name, name + 1) != 0)
		place++;
	if (place == directory->ncontenders ||
		need->nowners == directory->ncontenders ||
		(place < need->nowners && !directory->contenders[place].shared))
		return false;			/* it is gone, or owns the lock itself */
	if (directory->contenders[place].shared && directory->contenders[0].shared)
		need->between = &directory->contenders[need->nowners];
	return true;
}

/* Order the waits of an owner, so that all clusters have the same order. */
static int
compare_waits(const void *a, const void *b)
{
	const NoteWait *one = a;
	const NoteWait *other = b;
	int			order = strcmp(one->to, other->to);

	if (order == 0)
		order = (one->wait.since > other->wait.since) -
			(one->wait.since < other->wait.since);
	if (order == 0)
		order = one->wait.pid - other->wait.pid;
	if (order == 0)
		order = (one->hold.since > other->hold.since) -
			(one->hold.since < other->hold.since);
	return order != 0 ? order : one->hold.pid - other->hold.pid;
}

static int
compare_owners(const void *a, const void *b)
{
	return strcmp(((const WaitOwner *) a)->path, ((const WaitOwner *) b)->path);
}

/* Is it an alternative of the same wait? */
static bool
is_alternative(const NoteWait *a, const NoteWait *b)
{
	return a->hold.pid == b->hold.pid && a->hold.since == b->hold.since &&
		a->wait.pid == b->wait.pid && a->chain == b->chain &&
		a->alternatives == b->alternatives && a->alternatives > 1;
}

/* The element of an owner's wait; false if it is none, or has been added. */
static bool
fill_element(WaitGraph *graph, const WaitOwner *owner, int wait,
			 WaitElement *element)
{
	const NoteWait *waits = owner->waits;
	const char *last = NULL;

	memset(element, 0, sizeof(*element));
	element->owner = owner;
	for (int i = 0; i < owner->nwaits; i++)
	{
		if (i != wait && !is_alternative(&waits[i], &waits[wait]))
			continue;
		if (i < wait)
			return false;
		if (last != NULL && strcmp(last, waits[i].to) == 0)
			continue;
		last = waits[i].to;
		if (!find_need(graph, owner, &waits[i],
					   &element->needs[element->nneeds++]))
			return false;
	}
	return element->nneeds == waits[wait].alternatives;
}

static void
end_search(WaitSearch *search)
{
	free(search->elements);
	free(search->set);
	free(search->attempt);
}

static bool
is_same_unit(const WaitElement *a, const WaitElement *b)
{
	const NoteWait *one = a->needs[0].wait;
	const NoteWait *other = b->needs[0].wait;

	return a->owner == b->owner ||
		(one->wait.pid == other->wait.pid &&
		 one->wait.since == other->wait.since &&
		 strcmp(one->to, other->to) == 0);
}

/*
 * The elements that go together: those of one owner, those that end with the
 * same wait, and so on.  Nobody can end one of them and leave the others, so a
 * deadlock that would do without a whole unit has no need of it, and one that
 * would do without a part of a unit may need it all the same.
 */
static void
find_units(WaitSearch *search)
{
	bool		changed = true;

	for (int i = 0; i < search->nelements; i++)
		search->elements[i].unit = i;
	while (changed)
	{
		changed = false;
		for (int i = 0; i < search->nelements; i++)
			for (int j = 0; j < i; j++)
			{
				WaitElement *a = &search->elements[i];
				WaitElement *b = &search->elements[j];

				if (a->unit == b->unit || !is_same_unit(a, b))
					continue;
				a->unit = b->unit = a->unit < b->unit ? a->unit : b->unit;
				changed = true;
			}
	}
}

static bool
begin_search(WaitSearch *search, WaitGraph *graph)
{
	int			nwaits = 1;

	for (int i = 0; i < graph->nowners; i++)
		nwaits += graph->owners[i].nwaits;
	search->elements = malloc(nwaits * sizeof(WaitElement));
	search->set = calloc(nwaits, sizeof(bool));
	search->attempt = calloc(nwaits, sizeof(bool));
	search->nelements = 0;
	if (search->elements == NULL || search->set == NULL ||
		search->attempt == NULL)
	{
		end_search(search);
		return false;
	}

	if (graph->nowners > 0)
		qsort(graph->owners, graph->nowners, sizeof(WaitOwner), compare_owners);
	graph_link_owners(graph);
	for (int i = 0; i < graph->nowners; i++)
	{
		WaitOwner  *owner = &graph->owners[i];

		owner->first = search->nelements;
		if (owner->nwaits > 0)
			qsort(owner->waits, owner->nwaits, sizeof(NoteWait),
				  compare_waits);
		for (int j = 0; j < owner->nwaits; j++)
			if (fill_element(graph, owner, j,
							 &search->elements[search->nelements]))
				search->nelements++;
		owner->nelements = search->nelements - owner->first;
	}
	find_units(search);
	return true;
}

static int
find_element(const WaitSearch *search, const WaitEdge *edge)
{
	for (int i = 0; i < search->nelements; i++)
	{
		const WaitElement *element = &search->elements[i];

		for (int j = 0; j < element->nneeds; j++)
			if (strcmp(element->owner->path, edge->from) == 0 &&
				note_same_wait(element->needs[j].wait, &edge->wait))
				return i;
	}
	return -1;
}

/* The element whose transaction began last. */
static int
choose_victim(const WaitSearch *search)
{
	int			victim = -1;

	for (int i = 0; i < search->nelements; i++)
	{
		const WaitElement *element = &search->elements[i];

		if (search->set[i] &&
			element->needs[0].wait->kind != NOTE_WAIT_SESSION &&
			(victim < 0 || element->needs[0].wait->began >=
			 search->elements[victim].needs[0].wait->began))
			victim = i;
	}
	return victim;
}

/* The element of the set that a need waits for and is nearest to the victim. */
static int
nearest_owner(const WaitSearch *search, const WaitNeed *need)
{
	int			nearest = -1;

	for (int i = 0; i < need->nowners; i++)
	{
		const WaitOwner *owner = need->directory->contenders[i].owner;

		for (int j = 0; owner != NULL && j < owner->nelements; j++)
		{
			int			element = owner->first + j;

			if (search->set[element] && (nearest < 0 ||
				search->elements[element].distance <
				search->elements[nearest].distance))
				nearest = element;
		}
	}
	return nearest;
}

/* How far is each element of the set from the victim? */
static void
measure(WaitSearch *search, int victim)
{
	bool		changed = true;

	for (int i = 0; i < search->nelements; i++)
	{
		search->elements[i].distance = i == victim ? 0 : INT_MAX - 1;
		search->elements[i].best = 0;
	}
	while (changed)
	{
		changed = false;
		for (int i = 0; i < search->nelements; i++)
		{
			WaitElement *element = &search->elements[i];

			for (int j = 0; search->set[i] && j < element->nneeds; j++)
			{
				int			next = nearest_owner(search, &element->needs[j]);

				if (search->elements[next].distance + 1 < element->distance)
				{
					element->distance = search->elements[next].distance + 1;
					element->best = j;
					changed = true;
				}
			}
		}
	}
}

/* Add a member to the deadlock; false if there are too many. */
static bool
add_member(WaitDeadlock *deadlock, const WaitElement *element,
		   const WaitNeed *need)
{
	WaitMember *member = &deadlock->members[deadlock->nmembers];

	if (deadlock->nmembers == WAITS_MAX_MEMBERS)
		return false;
	deadlock->nmembers++;
	memset(member, 0, sizeof(*member));
	graph_copy_vertex(member->edge.from, element->owner->path);
	member->edge.wait = *need->wait;
	memcpy(member->cluster, element->owner->cluster, sizeof(member->cluster));
	member->version = element->owner->version;
	if (need->between != NULL &&
		snprintf(member->between, NOTE_VERTEX_SIZE, "%s/%s",
				 need->directory->path, need->between->name) >=
		NOTE_VERTEX_SIZE)
		return false;
	return true;
}

/* Add what the set has, from the victim on; false if that is too much. */
static bool
add_members(WaitSearch *search, int victim, WaitDeadlock *deadlock)
{
	int			next = victim;

	for (int i = 0; i < search->nelements; i++)
		search->elements[i].member = -1;
	while (search->elements[next].member < 0)
	{
		WaitElement *element = &search->elements[next];
		const WaitNeed *need = &element->needs[element->best];

		element->member = deadlock->nmembers;
		if (!add_member(deadlock, element, need))
			return false;
		next = nearest_owner(search, need);
	}
	for (int i = 0; i < search->nelements; i++)
	{
		WaitElement *element = &search->elements[i];
		bool		on_way = element->member >= 0;

		if (!search->set[i])
			continue;
		if (!on_way)
			element->member = deadlock->nmembers;
		if (!on_way &&
			!add_member(deadlock, element, &element->needs[element->best]))
			return false;
		for (int j = 0; j < element->nneeds; j++)
			if (j != element->best &&
				!add_member(deadlock, element, &element->needs[j]))
				return false;
	}
	return true;
}

/* Tell each member which one it waits for. */
static void
link_members(const WaitSearch *search, WaitDeadlock *deadlock)
{
	for (int i = 0; i < deadlock->nmembers; i++)
	{
		WaitMember *member = &deadlock->members[i];
		int			element = find_element(search, &member->edge);

		for (int j = 0; j < search->elements[element].nneeds; j++)
		{
			const WaitNeed *need = &search->elements[element].needs[j];

			if (strcmp(need->wait->to, member->edge.wait.to) == 0)
				member->blocked_by =
					search->elements[nearest_owner(search, need)].member;
		}
	}
}

/*
 * waits_find
 *		Find a minimal deadlock in what has been read, of which "edge" is a
 *		part, and its victim.
 *
 * False if there is none, it is too large, none of its members waits for a lock
 * or a permit, or memory is short.  "deadlock" is filled anew, and to be freed
 * by waits_free_deadlock() if the answer is true.
 */
bool
waits_find(WaitGraph *graph, const WaitEdge *edge, WaitDeadlock *deadlock)
{
	WaitSearch	search;
	int			start;
	int			victim;
	bool		found = false;

	memset(deadlock, 0, sizeof(*deadlock));
	if (!begin_search(&search, graph))
		return false;
	start = find_element(&search, edge);
	if (start >= 0 && minimal_find(&search, start) &&
		(victim = choose_victim(&search)) >= 0)
	{
		deadlock->members = malloc(WAITS_MAX_MEMBERS * sizeof(WaitMember));
		measure(&search, victim);
		found = deadlock->members != NULL &&
			add_members(&search, victim, deadlock);
		if (found)
			link_members(&search, deadlock);
		else
			waits_free_deadlock(deadlock);
	}
	end_search(&search);
	return found;
}

/*
 * waits_same_edge
 *		Are these the same edge, of the same hold and the same wait?
 */
bool
waits_same_edge(const WaitEdge *a, const WaitEdge *b)
{
	return strcmp(a->from, b->from) == 0 && note_same_wait(&a->wait, &b->wait);
}

/*
 * waits_same_deadlock
 *		Have two deadlocks the same members, with the same notes?
 */
bool
waits_same_deadlock(const WaitDeadlock *a, const WaitDeadlock *b)
{
	if (a->nmembers != b->nmembers)
		return false;
	for (int i = 0; i < a->nmembers; i++)
	{
		int			j = 0;

		while (j < b->nmembers &&
			   !(waits_same_edge(&a->members[i].edge, &b->members[j].edge) &&
				 a->members[i].version == b->members[j].version))
			j++;
		if (j == b->nmembers)
			return false;
	}
	return true;
}

/*
 * waits_steps_back
 *		Is the victim only to step back in a queue of its own cluster?
 */
bool
waits_steps_back(const WaitDeadlock *deadlock)
{
	return deadlock->members[0].edge.wait.began == 0 &&
		!ZK_MUTATED(ZK_DEADLOCK_AHEAD_FAILS);
}

/*
 * waits_free_deadlock
 *		Free what a deadlock has allocated; the struct is the caller's.
 */
void
waits_free_deadlock(WaitDeadlock *deadlock)
{
	free(deadlock->members);
	deadlock->members = NULL;
	deadlock->nmembers = 0;
}

/*
 * waits_lock_of
 *		The lock that a contender waits for, or the semaphore:
 *		"<root>/<encoded name>".
 */
void
waits_lock_of(const NoteWait *wait, char lock[NOTE_VERTEX_SIZE])
{
	graph_copy_vertex(lock, wait->to);
	if (wait->kind == NOTE_WAIT_SESSION)
		return;
	(void) graph_cut_last(lock);
	if (wait->kind == NOTE_WAIT_PERMIT)
		(void) graph_cut_last(lock);
}
