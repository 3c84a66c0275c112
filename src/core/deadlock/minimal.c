/*-------------------------------------------------------------------------
 *
 * minimal.c
 *		The smallest deadlock in a graph of waits.
 *
 * waits.c makes the elements of the graph, and tells what a deadlock is.
 *
 * A set of elements goes with three kinds of counts: for each owner its links to
 * elements of the set; for each directory its owners that have such links; for
 * each element its needs for which the set has it wait.  Putting an element into
 * the set or taking it out changes the counts along its links only.  An element
 * that is not kept any more then is taken out as well.  Each is taken out once, so
 * doing without one, and putting all back, costs no more than there are links and
 * needs.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/minimal.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/minimal.h"

#include <stdlib.h>
#include <string.h>

#include "core/mutation.h"

/* Does the set keep the process from what it waits for? */
static bool
is_kept(const WaitElement *element)
{
	return element->any ? element->kept == element->nneeds : element->kept > 0;
}

/* So many owners of a directory must be blocked to block those who wait there. */
static int
enough_owners(const WaitDirectory *directory)
{
	return directory->permits > 0 ? directory->nowners : 1;
}

/* Those who wait in a directory are blocked there from now on, or no more. */
static void
change_waiting(WaitSearch *search, const WaitDirectory *directory, int change)
{
	for (int i = directory->first_need; i >= 0; i = search->needs[i].next_there)
	{
		WaitElement *element = &search->elements[search->needs[i].element];

		search->nsteps++;
		element->kept += change;
		if (change < 0 && element->in && !is_kept(element))
		{
			element->in = false;
			search->nin--;
			search->taken[search->ntaken++] = search->needs[i].element;
		}
	}
}

/* An element has come into the set (1), or left it (-1): change the counts. */
static void
change_counts(WaitSearch *search, int element, int change)
{
	for (int i = search->elements[element].first_link; i >= 0;
		 i = search->links[i].next)
	{
		WaitOwner  *owner = search->links[i].owner;
		WaitDirectory *directory = owner->directory;
		bool		was = owner->kept > 0;

		search->nsteps++;
		owner->kept += change;
		if (was == (owner->kept > 0) || directory == NULL)
			continue;
		directory->kept += change;
		if ((change > 0 ? directory->kept : directory->kept + 1) ==
			enough_owners(directory))
			change_waiting(search, directory, change);
	}
}

static void
put_in(WaitSearch *search, int element)
{
	search->elements[element].in = true;
	search->nin++;
	change_counts(search, element, 1);
}

/* Take an element out of the set, and those that are not kept then. */
static void
do_without(WaitSearch *search, int element)
{
	search->elements[element].in = false;
	search->nin--;
	search->taken[0] = element;
	search->ntaken = 1;
	for (int i = 0; i < search->ntaken; i++)
		change_counts(search, search->taken[i], -1);
}

/* Put back those that do_without() has taken out. */
static void
undo(WaitSearch *search)
{
	while (search->ntaken > 0)
		put_in(search, search->taken[--search->ntaken]);
}

/*
 * Make the set, a deadlock, as small as it can be; with element "start" in it,
 * unless that is -1.
 */
static void
minimize(WaitSearch *search, int start)
{
	for (int i = 0; i < search->nelements; i++)
	{
		if (!search->elements[i].in || i == start)
			continue;
		do_without(search, i);
		if (start >= 0 ? !search->elements[start].in : search->nin == 0)
			undo(search);
	}
}

/* Is nothing left of the set without any of its elements? */
static bool
is_minimal(WaitSearch *search)
{
	for (int i = 0; i < search->nelements; i++)
		if (search->elements[i].in)
		{
			bool		empty;

			do_without(search, i);
			empty = search->nin == 0;
			undo(search);
			if (!empty)
				return false;
		}
	return true;
}

/*
 * minimal_distance
 *		How far is the element that a link leads to, as was measured last?
 *		WAIT_FAR_AWAY: there is no such link (-1), or no way.
 */
int
minimal_distance(const WaitSearch *search, int link)
{
	return link < 0 ? WAIT_FAR_AWAY :
		search->elements[search->links[link].element].distance;
}

/*
 * minimal_nearest
 *		The link of an owner that leads to the nearest element of the set, or of
 *		all in deadlocks; -1: none does.
 */
int
minimal_nearest(WaitSearch *search, const WaitOwner *owner, bool in_all)
{
	int			nearest = -1;

	for (int i = owner->first_link; i < owner->first_link + owner->nlinks; i++)
	{
		const WaitElement *element =
			&search->elements[search->links[i].element];

		search->nsteps++;
		if ((in_all ? element->in_all : element->in) &&
			(nearest < 0 ||
			 element->distance < minimal_distance(search, nearest)))
			nearest = i;
	}
	return nearest;
}

/* Those who wait in a directory are so far away, if they were not nearer. */
static void
reach_waiting(WaitSearch *search, WaitDirectory *directory, int distance,
			  bool in_all, int *ntodo)
{
	if (directory == NULL || directory->measured == search->measured)
		return;
	directory->measured = search->measured;
	for (int i = directory->first_need; i >= 0; i = search->needs[i].next_there)
	{
		WaitElement *from = &search->elements[search->needs[i].element];

		search->nsteps++;
		if (from->distance < WAIT_FAR_AWAY ||
			!(in_all ? from->in_all : from->in))
			continue;
		from->distance = distance;
		search->taken[(*ntodo)++] = search->needs[i].element;
	}
}

/*
 * minimal_measure
 *		How far is each element of the set, or of all in deadlocks, from this
 *		one, along the waits?
 */
void
minimal_measure(WaitSearch *search, int element, bool in_all)
{
	int			ntodo = 0;

	for (int i = 0; i < search->nelements; i++)
		search->elements[i].distance = WAIT_FAR_AWAY;
	if (element < 0)
		return;
	search->measured++;
	search->elements[element].distance = 0;
	search->taken[ntodo++] = element;
	for (int done = 0; done < ntodo; done++)
	{
		const WaitElement *to = &search->elements[search->taken[done]];

		for (int i = to->first_link; i >= 0; i = search->links[i].next)
		{
			search->nsteps++;
			reach_waiting(search, search->links[i].owner->directory,
						  to->distance + 1, in_all, &ntodo);
		}
	}
}

/* The set has nothing in it. */
static void
clear(WaitSearch *search)
{
	WaitGraph  *graph = search->graph;

	for (int i = 0; i < search->nelements; i++)
	{
		search->elements[i].in = false;
		search->elements[i].kept = 0;
	}
	for (int i = 0; i < graph->nowners; i++)
		graph->owners[i].kept = 0;
	for (int i = 0; i < graph->ndirectories; i++)
		graph->directories[i].kept = 0;
	search->nin = 0;
}

/*
 * Begin with a deadlock that is small already: of the elements that keep an
 * owner one is enough, that which is nearest to the start, if there is one.  So
 * it has no more elements than there are owners.
 */
static void
begin_set(WaitSearch *search, int start)
{
	const WaitGraph *graph = search->graph;

	minimal_measure(search, start, true);
	clear(search);
	if (start >= 0)
		put_in(search, start);
	for (int i = 0; i < graph->nowners; i++)
	{
		int			link = minimal_nearest(search, &graph->owners[i], true);

		if (link >= 0 && !search->elements[search->links[link].element].in)
			put_in(search, search->links[link].element);
	}
	if (ZK_MUTATED(ZK_DEADLOCK_NOT_MINIMAL))
		for (int i = 0; i < search->nelements; i++)
			if (search->elements[i].in_all && !search->elements[i].in)
				put_in(search, i);
}

/*
 * minimal_begin
 *		Find the elements that are in any deadlock: take all, and take out what
 *		is not kept.
 */
void
minimal_begin(WaitSearch *search)
{
	clear(search);
	for (int i = 0; i < search->nelements; i++)
		put_in(search, i);
	for (int i = 0; i < search->nelements; i++)
		if (search->elements[i].in && !is_kept(&search->elements[i]))
			do_without(search, i);
	for (int i = 0; i < search->nelements; i++)
		search->elements[i].in_all = search->elements[i].in;
}

/*
 * minimal_find
 *		Find a minimal deadlock that element "start" is in: the set.
 *
 * False if there is none.
 */
bool
minimal_find(WaitSearch *search, int start)
{
	if (!search->elements[start].in_all)
		return false;
	begin_set(search, start);
	if (ZK_MUTATED(ZK_DEADLOCK_NOT_MINIMAL))
		return true;
	minimize(search, start);
	if (!is_minimal(search))
	{
		begin_set(search, -1);
		minimize(search, -1);
	}
	return search->elements[start].in;
}
