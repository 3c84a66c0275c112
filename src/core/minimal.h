/*-------------------------------------------------------------------------
 *
 * minimal.h
 *		The smallest deadlock in a graph of waits.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/minimal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MINIMAL_H
#define ZKLOCK_MINIMAL_H

#include "core/graph.h"

/* For whom a contender waits: any of the first in a directory, or all. */
typedef struct WaitNeed
{
	const NoteWait *wait;
	const WaitDirectory *directory;
	int			nowners;
	const WaitContender *between;
} WaitNeed;

/* An edge, or those that are alternatives of one wait. */
typedef struct WaitElement
{
	const WaitOwner *owner;
	WaitNeed	needs[NOTE_MAX_WAITS];
	int			nneeds;
	int			unit;			/* the same for all that go together */
	int			distance;		/* from the victim against the edges */
	int			best;			/* the need that is nearest to it */
	int			member;			/* the first of its own in the deadlock */
} WaitElement;

/* A search: all elements, in an order that is the same for all clusters. */
typedef struct WaitSearch
{
	WaitElement *elements;
	int			nelements;
	bool	   *set;			/* of elements: what is being made smaller */
	bool	   *attempt;		/* the same without one of them */
} WaitSearch;

extern bool minimal_find(WaitSearch *search, int start);

#endif							/* ZKLOCK_MINIMAL_H */
