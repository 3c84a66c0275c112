/*-------------------------------------------------------------------------
 *
 * minimal.c
 *		The smallest deadlock in a graph of waits.
 *
 * waits.c makes the elements of the graph, and tells what a deadlock is.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/minimal.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/minimal.h"

#include <stdlib.h>
#include <string.h>

#include "core/mutation.h"

/* Is one of an owner's elements in the set? */
static bool
is_kept(const bool *set, const WaitOwner *owner)
{
	for (int i = 0; owner != NULL && i < owner->nelements; i++)
		if (set[owner->first + i])
			return true;
	return false;
}

/* Does a set of elements keep somebody from what he waits for? */
static bool
keeps(const bool *set, const WaitNeed *need)
{
	bool		all = need->directory->permits > 0;

	for (int i = 0; i < need->nowners; i++)
		if (is_kept(set, need->directory->contenders[i].owner) != all)
			return !all;
	return all;
}

/* Take out of a set what it does not keep, until nothing changes. */
static void
keep_only(const WaitSearch *search, bool *set)
{
	bool		changed = true;

	while (changed)
	{
		changed = false;
		for (int i = 0; i < search->nelements; i++)
		{
			const WaitElement *element = &search->elements[i];

			for (int j = 0; set[i] && j < element->nneeds; j++)
				if (!keeps(set, &element->needs[j]))
				{
					set[i] = false;
					changed = true;
				}
		}
	}
}

static bool
is_empty(const WaitSearch *search, const bool *set)
{
	for (int i = 0; i < search->nelements; i++)
		if (set[i])
			return false;
	return true;
}

/*
 * What is left in deadlocks of the set without an element, or without all of
 * its unit: the attempt.
 */
static void
do_without(WaitSearch *search, int element, bool whole_unit)
{
	memcpy(search->attempt, search->set, search->nelements * sizeof(bool));
	for (int i = 0; i < search->nelements; i++)
		if (i == element || (whole_unit && search->elements[i].unit ==
							 search->elements[element].unit))
			search->attempt[i] = false;
	keep_only(search, search->attempt);
}

/*
 * Make the set, a deadlock, as small as it can be by doing without elements, or
 * without units; with element "kept" in it, unless that is -1.
 */
static void
minimize(WaitSearch *search, int kept, bool whole_units)
{
	for (int i = 0; i < search->nelements; i++)
	{
		if (!search->set[i] || i == kept)
			continue;
		do_without(search, i, whole_units);
		if (kept >= 0 ? search->attempt[kept] :
			!is_empty(search, search->attempt))
			memcpy(search->set, search->attempt,
				   search->nelements * sizeof(bool));
	}
}

/* Is nothing left of the set without any of its elements, or units? */
static bool
is_minimal(WaitSearch *search, bool whole_units)
{
	for (int i = 0; i < search->nelements; i++)
		if (search->set[i])
		{
			do_without(search, i, whole_units);
			if (!is_empty(search, search->attempt))
				return false;
		}
	return true;
}

/* Of a set that has no needless unit, one without needless elements. */
static bool
minimize_elements(WaitSearch *search, int start)
{
	size_t		size = search->nelements * sizeof(bool);
	bool	   *units = malloc(size);

	if (units == NULL || !search->set[start])
	{
		free(units);
		return false;
	}
	memcpy(units, search->set, size);
	minimize(search, start, false);
	if (!is_minimal(search, false))
	{
		memcpy(search->set, units, size);
		minimize(search, -1, false);
	}
	free(units);
	return search->set[start];
}

/*
 * minimal_find
 *		Find a minimal deadlock that element "start" is in: the set.
 *
 * False if there is none, or memory is short.
 */
bool
minimal_find(WaitSearch *search, int start)
{
	size_t		size = search->nelements * sizeof(bool);
	bool	   *all = malloc(size);
	bool		found = false;

	if (all == NULL)
		return false;
	memset(all, true, size);
	keep_only(search, all);
	memcpy(search->set, all, size);
	if (all[start] && ZK_MUTATED(ZK_DEADLOCK_NOT_MINIMAL))
		found = true;
	else if (all[start])
	{
		minimize(search, start, true);
		found = is_minimal(search, true) && minimize_elements(search, start);
		if (!found)
		{
			memcpy(search->set, all, size);
			minimize(search, -1, true);
			found = minimize_elements(search, start);
		}
	}
	free(all);
	return found;
}
