/*-------------------------------------------------------------------------
 *
 * minimal.h
 *		The smallest deadlock in a graph of waits.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/minimal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MINIMAL_H
#define ZKLOCK_MINIMAL_H

#include "core/deadlock/graph.h"

/* One of the first in a directory, or all, for which a process waits. */
typedef struct WaitNeed
{
	int			element;
	WaitDirectory *directory;
	const WaitContender *between;	/* see WaitMember */
	bool		session;		/* it is a session that it waits for */
	int			next;			/* of the same element, or -1 */
	int			next_there;		/* in the same directory, or -1 */
} WaitNeed;

/* A wait of a note that counts, and the need that it tells of. */
typedef struct WaitTold
{
	const NoteWait *wait;
	WaitDirectory *directory;
	const WaitContender *between;
	bool		ahead;			/* that of the link */
	int			link;
	int			need;
} WaitTold;

/*
 * An owner's contender is held by a process that waits, or by one that waits
 * for it; the waits in the owner's note that tell so.
 */
typedef struct WaitLink
{
	WaitOwner  *owner;
	int			element;
	int			first_told;
	int			ntold;
	int			next;			/* of the same element, or -1 */
} WaitLink;

/*
 * A process that waits, with all its waits; or those who wait behind it in tier
 * 1 of what it waits for, and would wait in its place ("ahead").
 */
typedef struct WaitElement
{
	bool		any;			/* one of its needs is enough for it; else it
								 * needs all */
	int			nneeds;
	int			first_need;
	int			first_link;
	int64_t		began;			/* its transaction; 0: ahead */
	bool		in_all;			/* it is in a deadlock */
	bool		in;				/* in the set that is being made smaller */
	int			kept;			/* needs for which the set has it wait */
	int			distance;		/* waits between it and another element */
} WaitElement;

/*
 * A search: all elements, in an order that is the same for all clusters, and a
 * set of them.
 */
struct WaitSearch
{
	WaitGraph  *graph;
	int			nwaits;			/* there is room for so many of each */
	WaitElement *elements;
	int			nelements;
	WaitLink   *links;
	int			nlinks;
	WaitTold   *told;
	int			ntold;
	WaitNeed   *needs;
	int			nneeds;
	int			nin;			/* elements in the set */
	int		   *taken;			/* those taken out last, in order */
	int			ntaken;
	unsigned	measured;		/* so many times have distances been taken */
	long		nsteps;			/* what all this has cost so far: links and
								 * needs looked at */
};

#define WAIT_FAR_AWAY	INT32_MAX

extern void minimal_begin(WaitSearch *search);
extern bool minimal_find(WaitSearch *search, int start);
extern void minimal_measure(WaitSearch *search, int element, bool in_all);
extern int	minimal_distance(const WaitSearch *search, int link);
extern int	minimal_nearest(WaitSearch *search, const WaitOwner *owner,
							bool in_all);

#endif							/* ZKLOCK_MINIMAL_H */
