/*-------------------------------------------------------------------------
 *
 * waits.c
 *		Deadlocks in the wait-for graph between instances.
 *
 * An edge H -> W is reported by an instance: the contender H is held, and its
 * holder waits for W, another contender of the instance.  The rest is in the
 * lock directories:
 *
 *	- W waits for each owner that excludes it: for the first contender, if that
 *	  is exclusive, else for the readers in front.  The contenders between the
 *	  owners and W need not be read, since they wait for the owners themselves.
 *	- But a reader behind readers that own the lock waits for the first
 *	  exclusive contender between them and itself.  The deadlock lists that
 *	  contender ("between"), since it ends when the contender leaves.  A reader
 *	  without a contender of its own, whose instance has one that owns the
 *	  lock, waits for that writer, too, since it may not join because of it;
 *	  its edge leads to the owner.
 *	- A wait for a permit is for any one of them.  As many contenders in
 *	  <name>/leases as the semaphore has permits, the first ones, have them.
 *	  Wherever the waiter is in the queue, it gets none while all of these
 *	  stay.
 *	- A wait for one of several locks (alternatives) is for any of them.
 *	- A wait for a session (vertex.c) is for whatever that session waits for:
 *	  one edge from it is enough, as one blocked reader of several is.
 *
 * The elements of the graph are the waiting processes, each with all its
 * waits, which are its needs: a zk_lock_all needs all locks that it does not
 * have yet, a zk_lock_any needs one.  A link leads from an owner to an
 * element: the process holds the owner's contender, or a holder of that waits
 * for the process.  In a note the waits with the same hold, process and chain
 * are one link; the links of two notes lead to the same process if they have a
 * wait in common.  If one of several backends that hold an owner is blocked
 * forever, the owner is never given up.  So an owner is blocked if one of its
 * links leads to a blocked element.
 *
 * A deadlock is a set of elements that keep each other: an owner is kept by a
 * link into the set, a wait for a lock by one of its owners, a wait for a
 * permit by all, and an element by one of its needs or, if one is enough for
 * it, by all of them.
 *
 * A reported deadlock is minimal: without any one of its elements nothing of
 * it is a deadlock.  So the end of any member is the end of the deadlock, and
 * no member fails for nothing, as it could in a cycle in which another member
 * also waits for a later one.  To find such a set, each element in turn is
 * left out:
 *
 *	- First we keep the element from which we search, and check whether the
 *	  rest is minimal.
 *	- If not, the element may only wait for a deadlock of others.  We try again
 *	  without keeping it, and report what remains if the element is in that.
 *	  This ensures that some instance reports something, since the elements are
 *	  taken in an order common to all.  Proof: of all elements in deadlocks
 *	  take one, e, from which the fewest can be reached.  A member m of the set
 *	  that e finds reaches no more than e, hence the same, and so finds the
 *	  same set, which contains m.
 *
 * A set of elements has three kinds of counts ("kept"): for each owner its
 * links to elements of the set; for each directory its owners with such links;
 * for each element its needs for which the set keeps it waiting.  Adding or
 * removing an element changes the counts along its links only.  An element
 * that is no longer kept is removed as well.  Each is removed once, so the
 * cost of leaving one out, and putting all back, is at most the number of
 * links and needs.
 *
 * A waiting process may keep others of its instance waiting in tier 1, for
 * what it waits for.  The links to it from what those others hold are marked
 * ("ahead"), and lead to another element with the same needs: that represents
 * the first of those others, which would wait in the place of the process if
 * that failed.
 *
 * The victim is the element whose transaction began last; if there are
 * several, the last one in the order common to all.  So all instances that
 * find the set agree on the victim.  An element that is ahead is chosen only
 * if all are.  Then the process does not fail: it lets the others of its
 * instance go ahead, and a later search finds the deadlock with their waits
 * (waits_is_requeued).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/waits.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/deadlock/graph_private.h"
#include "core/memory.h"
#include "core/mutation.h"

/*
 * What a process waits for: that the owners in a directory leave or, for a
 * permit, that one of them does.
 */
typedef struct WaitNeed
{
	int			element;
	WaitDirectory *directory;
	const WaitContender *between;	/* see WaitMember; or NULL */
	bool		session;		/* it waits for a session */
	int			next;			/* of the same element, or -1 */
	int			next_there;		/* in the same directory, or -1 */
} WaitNeed;

/* A valid wait of a note, and the need that it stands for. */
typedef struct PublishedWait
{
	const NoteWait *wait;
	WaitDirectory *directory;
	const WaitContender *between;
	bool		ahead;			/* that of the link */
	int			link;
	int			need;
} PublishedWait;

/*
 * The contender of an owner is held by a process that waits, or by one that
 * waits for such a process: the waits of the owner's note that say so.
 */
typedef struct WaitLink
{
	WaitOwner  *owner;
	int			element;
	int			first_published;
	int			npublished;
	int			next;			/* of the same element, or -1 */
} WaitLink;

/*
 * A waiting process, with all its waits; or the processes behind it in tier 1,
 * which would wait in its place ("ahead").
 */
typedef struct WaitElement
{
	bool		any;			/* one of its needs is enough; else it needs
								 * all */
	int			nneeds;
	int			first_need;
	int			first_link;
	int64_t		began;			/* when its transaction began; 0: ahead */
	bool		in_all;			/* it is in some deadlock */
	bool		in;				/* in the set that is being reduced */
	int			kept;			/* needs for which the set keeps it waiting */
	int			distance;		/* see measure() */
} WaitElement;

/*
 * A search: all elements, in an order common to all instances, and a set of
 * them.
 */
struct WaitSearch
{
	WaitGraph  *graph;
	int			nwaits;			/* allocated elements of each array */
	WaitElement *elements;
	int			nelements;
	WaitLink   *links;
	int			nlinks;
	PublishedWait *published;
	int			npublished;
	WaitNeed   *needs;
	int			nneeds;
	int			nin;			/* elements in the set */
	int		   *taken;			/* elements taken out last, in order */
	int			ntaken;
	unsigned	measured;		/* how often distances were measured */
};

#define WAIT_FAR_AWAY	INT32_MAX

/*
 * Making the elements
 */

/*
 * Fill in what a wait of an owner's note is for; false if it is for nothing.
 */
static bool
find_need(const WaitGraph *graph, const WaitOwner *owner,
		  PublishedWait *published)
{
	const NoteWait *wait = published->wait;
	WaitDirectory *directory = graph_directory_of(graph, owner->path, wait);
	int			place;

	if (directory == NULL || directory->permits != wait->permits ||
		directory->nowners == 0)
		return false;
	published->directory = directory;
	if (wait->kind == NOTE_WAIT_PERMIT || wait->kind == NOTE_WAIT_SESSION)
		return true;

	place = graph_place_of(directory, strrchr(wait->to, '/') + 1);
	if (place < 0 || directory->nowners == directory->ncontenders ||
		(place < directory->nowners && !directory->contenders[place].shared))
		return false;			/* it is gone, or owns the lock itself */
	if (directory->contenders[place].shared && directory->contenders[0].shared)
		published->between = &directory->contenders[directory->nowners];
	return true;
}

/* Order the waits of a note, so that those of a link are together. */
static int
compare_links(const NoteWait *one, const NoteWait *other)
{
	int			order = one->wait.pid - other->wait.pid;

	if (order == 0)
		order = (one->hold.since > other->hold.since) -
			(one->hold.since < other->hold.since);
	if (order == 0)
		order = one->hold.pid - other->hold.pid;
	if (order == 0)
		order = (one->chain > other->chain) - (one->chain < other->chain);
	return order != 0 ? order : one->alternatives - other->alternatives;
}

/* Compare two waits, whichever notes have them. */
static int
compare_ends(const NoteWait *one, const NoteWait *other)
{
	int			order = strcmp(one->to, other->to);

	if (order == 0)
		order = (one->wait.since > other->wait.since) -
			(one->wait.since < other->wait.since);
	if (order == 0)
		order = one->wait.pid - other->wait.pid;
	return order != 0 ? order : one->alternatives - other->alternatives;
}

static int
compare_waits(const void *a, const void *b)
{
	int			order = compare_links(a, b);

	return order != 0 ? order : compare_ends(a, b);
}

static int
compare_owners(const void *a, const void *b)
{
	return strcmp((*(WaitOwner *const *) a)->path,
				  (*(WaitOwner *const *) b)->path);
}

/* Order the published waits, so that those of one need are together. */
static int
compare_published(const void *a, const void *b)
{
	const PublishedWait *one = *(PublishedWait *const *) a;
	const PublishedWait *other = *(PublishedWait *const *) b;
	int			order = compare_ends(one->wait, other->wait);

	if (order == 0)
		order = one->ahead - other->ahead;
	return order != 0 ? order :
		strcmp(one->directory->path, other->directory->path);
}

/*
 * Is the process of these waits only ahead?  Earlier versions mark only its
 * waits for the lock for which others wait behind it.
 */
static bool
is_ahead(const NoteWait *waits, int nwaits)
{
	bool		ahead = false;

	if (ZK_MUTATED(ZK_DEADLOCK_AHEAD_BY_ONE))
		nwaits = 1;
	for (int i = 0; i < nwaits; i++)
		ahead |= waits[i].began == 0 && waits[i].kind != NOTE_WAIT_SESSION;
	return ahead;
}

/* Add the link of these waits of a note, if any of them is valid. */
static void
add_link(WaitSearch *search, WaitOwner *owner, const NoteWait *waits,
		 int nwaits)
{
	WaitLink   *link = &search->links[search->nlinks];
	bool		ahead = is_ahead(waits, nwaits);
	int			nvalid = 0;

	for (int i = 0; i < nwaits; i++)
	{
		PublishedWait *published =
			&search->published[search->npublished + nvalid];

		memset(published, 0, sizeof(*published));
		published->wait = &waits[i];
		published->link = search->nlinks;
		published->ahead = ahead;
		if ((i == 0 || strcmp(waits[i].to, waits[i - 1].to) != 0) &&
			find_need(search->graph, owner, published))
			nvalid++;
	}
	if (nvalid == 0 ||
		(waits->alternatives > 1 && waits->alternatives != nvalid))
		return;
	link->owner = owner;
	link->first_published = search->npublished;
	link->npublished = nvalid;
	search->npublished += nvalid;
	search->nlinks++;
	owner->nlinks++;
}

/* Add the links of an owner. */
static void
add_links(WaitSearch *search, WaitOwner *owner)
{
	int			end;

	owner->first_link = search->nlinks;
	owner->nlinks = 0;
	if (owner->nwaits > 0)
		qsort(owner->waits, owner->nwaits, sizeof(NoteWait), compare_waits);
	for (int i = 0; i < owner->nwaits; i = end)
	{
		end = i + 1;
		while (end < owner->nwaits &&
			   compare_links(&owner->waits[i], &owner->waits[end]) == 0)
			end++;
		add_link(search, owner, &owner->waits[i], end - i);
	}
}

/* The first link to the same process, as far as that is known. */
static int
first_link_of(int *firsts, int link)
{
	while (firsts[link] != link)
		link = firsts[link] = firsts[firsts[link]];
	return link;
}

/*
 * Find the needs: one for each wait, however many notes have it.  Links with
 * the same need lead to one element: "firsts" leads from each to the first.
 */
static void
find_needs(WaitSearch *search, PublishedWait **sorted, int *firsts)
{
	for (int i = 0; i < search->nlinks; i++)
		firsts[i] = i;
	for (int i = 0; i < search->npublished; i++)
		sorted[i] = &search->published[i];
	qsort(sorted, search->npublished, sizeof(PublishedWait *),
		  compare_published);
	for (int i = 0; i < search->npublished; i++)
	{
		PublishedWait *published = sorted[i];

		if (i > 0 && compare_published(&sorted[i - 1], &sorted[i]) == 0)
		{
			int			one = first_link_of(firsts, published->link);
			int			other = first_link_of(firsts, sorted[i - 1]->link);

			firsts[one > other ? one : other] = one < other ? one : other;
		}
		else
		{
			WaitNeed   *need = &search->needs[search->nneeds++];

			need->directory = published->directory;
			need->between = published->between;
			need->session = published->wait->kind == NOTE_WAIT_SESSION;
		}
		published->need = search->nneeds - 1;
	}
}

/* Make the elements, in the order of their first links. */
static void
make_elements(WaitSearch *search, int *firsts)
{
	for (int i = 0; i < search->nlinks; i++)
	{
		WaitLink   *link = &search->links[i];
		const PublishedWait *published =
			&search->published[link->first_published];
		int			first = first_link_of(firsts, i);
		WaitElement *element;

		if (first < i)
			link->element = search->links[first].element;
		else
		{
			link->element = search->nelements++;
			element = &search->elements[link->element];
			memset(element, 0, sizeof(*element));
			element->any = published->wait->alternatives > 1;
			element->first_link = element->first_need = -1;
		}
		element = &search->elements[link->element];
		for (int j = 0; j < link->npublished; j++)
			if (!published[j].ahead &&
				element->began < published[j].wait->began)
				element->began = published[j].wait->began;
		link->next = element->first_link;
		element->first_link = i;
	}
}

/* Enter each need in the lists of its element and its directory, in order. */
static void
link_needs(WaitSearch *search)
{
	for (int i = 0; i < search->npublished; i++)
	{
		const PublishedWait *published = &search->published[i];

		search->needs[published->need].element =
			search->links[published->link].element;
	}
	for (int i = 0; i < search->graph->ndirectories; i++)
		search->graph->directories[i].first_need = -1;
	for (int i = search->nneeds - 1; i >= 0; i--)
	{
		WaitNeed   *need = &search->needs[i];
		WaitElement *element = &search->elements[need->element];

		need->next = element->first_need;
		element->first_need = i;
		element->nneeds++;
		need->next_there = need->directory->first_need;
		need->directory->first_need = i;
	}
}

/*
 * The smallest deadlock
 */

/* Does the set keep the process from what it waits for? */
static bool
is_kept(const WaitElement *element)
{
	return element->any ? element->kept == element->nneeds : element->kept > 0;
}

/* How many owners of a directory must be blocked to block those that wait? */
static int
enough_owners(const WaitDirectory *directory)
{
	return directory->permits > 0 ? directory->nowners : 1;
}

/* Those that wait in a directory become blocked (1), or no longer are (-1). */
static void
change_waiting(WaitSearch *search, const WaitDirectory *directory, int change)
{
	for (int i = directory->first_need; i >= 0;
		 i = search->needs[i].next_there)
	{
		WaitElement *element = &search->elements[search->needs[i].element];

		search->graph->nsteps++;
		element->kept += change;
		if (change < 0 && element->in && !is_kept(element))
		{
			element->in = false;
			search->nin--;
			search->taken[search->ntaken++] = search->needs[i].element;
		}
	}
}

/* An element was added to the set (1), or removed (-1): change the counts. */
static void
change_counts(WaitSearch *search, int element, int change)
{
	for (int i = search->elements[element].first_link; i >= 0;
		 i = search->links[i].next)
	{
		WaitOwner  *owner = search->links[i].owner;
		WaitDirectory *directory = owner->directory;
		bool		was = owner->kept > 0;

		search->graph->nsteps++;
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

/* Remove an element from the set, and those that the rest does not keep. */
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

/* Put back what do_without() has removed. */
static void
undo(WaitSearch *search)
{
	while (search->ntaken > 0)
		put_in(search, search->taken[--search->ntaken]);
}

/*
 * Reduce the set, which is a deadlock, as far as possible.  Element "start"
 * stays, unless that is -1.
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

/* Is nothing left of the set without any one of its elements? */
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
 * The measured distance of the element that a link leads to.  WAIT_FAR_AWAY:
 * the link is -1, or there is no way.
 */
static int
distance_of(const WaitSearch *search, int link)
{
	return link < 0 ? WAIT_FAR_AWAY :
		search->elements[search->links[link].element].distance;
}

/*
 * The owner's link to the nearest element of the set or, with "in_all", of
 * those in deadlocks; -1: none.
 */
static int
nearest_of_owner(WaitSearch *search, const WaitOwner *owner, bool in_all)
{
	int			nearest = -1;

	for (int i = owner->first_link; i < owner->first_link + owner->nlinks; i++)
	{
		const WaitElement *element =
		&search->elements[search->links[i].element];

		search->graph->nsteps++;
		if ((in_all ? element->in_all : element->in) &&
			(nearest < 0 ||
			 element->distance < distance_of(search, nearest)))
			nearest = i;
	}
	return nearest;
}

/*
 * Set the distance of those that wait in a directory, unless it is known.
 */
static void
reach_waiting(WaitSearch *search, WaitDirectory *directory, int distance,
			  bool in_all, int *ntodo)
{
	if (directory == NULL || directory->measured == search->measured)
		return;
	directory->measured = search->measured;
	for (int i = directory->first_need; i >= 0;
		 i = search->needs[i].next_there)
	{
		WaitElement *from = &search->elements[search->needs[i].element];

		search->graph->nsteps++;
		if (from->distance < WAIT_FAR_AWAY ||
			!(in_all ? from->in_all : from->in))
			continue;
		from->distance = distance;
		search->taken[(*ntodo)++] = search->needs[i].element;
	}
}

/*
 * Measure how far each element of the set or, with "in_all", of those in
 * deadlocks is from this one: by how many waits it waits for this one.
 */
static void
measure(WaitSearch *search, int element, bool in_all)
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
			search->graph->nsteps++;
			reach_waiting(search, search->links[i].owner->directory,
						  to->distance + 1, in_all, &ntodo);
		}
	}
}

/* Make the set empty. */
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
 * Make the set a small deadlock to begin with: of the elements that keep an
 * owner one is enough, the one nearest to "start", unless that is -1.  So it
 * has at most one element more than there are owners.
 */
static void
begin_set(WaitSearch *search, int start)
{
	const WaitGraph *graph = search->graph;

	measure(search, start, true);
	clear(search);
	if (start >= 0)
		put_in(search, start);
	for (int i = 0; i < graph->nowners; i++)
	{
		int			link = nearest_of_owner(search, &graph->owners[i], true);

		if (link >= 0 && !search->elements[search->links[link].element].in)
			put_in(search, search->links[link].element);
	}
	if (ZK_MUTATED(ZK_DEADLOCK_NOT_MINIMAL))
		for (int i = 0; i < search->nelements; i++)
			if (search->elements[i].in_all && !search->elements[i].in)
				put_in(search, i);
}

/*
 * Find the elements that are in some deadlock: put in all, and remove those
 * that are not kept.
 */
static void
find_in_all(WaitSearch *search)
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
 * Make the set a minimal deadlock with element "start"; false: there is none.
 */
static bool
find_minimal(WaitSearch *search, int start)
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

/* Make links, needs and elements. */
static void
make_graph(WaitSearch *search)
{
	WaitGraph  *graph = search->graph;
	WaitOwner **owners = memory_alloc(graph->nowners * sizeof(WaitOwner *));
	PublishedWait **sorted =
		memory_alloc(search->nwaits * sizeof(PublishedWait *));

	for (int i = 0; i < graph->nowners; i++)
		owners[i] = &graph->owners[i];
	qsort(owners, graph->nowners, sizeof(WaitOwner *), compare_owners);
	graph_link_owners(graph);
	for (int i = 0; i < graph->nowners; i++)
		add_links(search, owners[i]);
	find_needs(search, sorted, search->taken);
	make_elements(search, search->taken);
	link_needs(search);
	find_in_all(search);
	free(owners);
	free(sorted);
}

/* Begin to search the graph, which must not change until waits_end(). */
WaitSearch *
waits_begin(WaitGraph *graph)
{
	WaitSearch *search = memory_alloc(sizeof(WaitSearch));
	int			n = 0;

	for (int i = 0; i < graph->nowners; i++)
		n += graph->owners[i].nwaits;
	search->graph = graph;
	search->nwaits = n;
	search->elements = memory_alloc(n * sizeof(WaitElement));
	search->links = memory_alloc(n * sizeof(WaitLink));
	search->published = memory_alloc(n * sizeof(PublishedWait));
	search->needs = memory_alloc(n * sizeof(WaitNeed));
	search->taken = memory_alloc(n * sizeof(int));
	make_graph(search);
	return search;
}

/* End a search. */
void
waits_end(WaitSearch *search)
{
	free(search->elements);
	free(search->links);
	free(search->published);
	free(search->needs);
	free(search->taken);
	free(search);
}

/*
 * Listing the deadlock
 */

/* The element that an edge leads to; -1: there is none. */
static int
find_element(const WaitSearch *search, const WaitEdge *edge)
{
	for (int i = 0; i < search->npublished; i++)
	{
		const WaitLink *link = &search->links[search->published[i].link];

		if (note_same_wait(search->published[i].wait, &edge->wait) &&
			strcmp(link->owner->path, edge->from) == 0)
			return link->element;
	}
	return -1;
}

/*
 * The link by which a need leads to the nearest element of the set; -1: the
 * set does not keep it waiting.
 */
static int
nearest_link(WaitSearch *search, const WaitNeed *need)
{
	const WaitDirectory *directory = need->directory;
	int			nearest = -1;

	if (directory->permits > 0 && directory->kept < directory->nowners)
		return -1;
	for (int i = 0; i < directory->nowners; i++)
	{
		const WaitOwner *owner = directory->contenders[i].owner;
		int			link = owner ? nearest_of_owner(search, owner, false) : -1;

		if (nearest < 0 || distance_of(search, link) <
			distance_of(search, nearest))
			nearest = link;
	}
	return nearest;
}

/*
 * The need by which an element waits for the nearest one, and the link of
 * that.  For the victim, which has distance 0, a wait for a session does not
 * do.
 */
static int
best_need(WaitSearch *search, int element, int *link)
{
	int			best = -1;

	*link = -1;
	for (int i = search->elements[element].first_need; i >= 0;
		 i = search->needs[i].next)
	{
		int			nearest = nearest_link(search, &search->needs[i]);

		if (distance_of(search, nearest) >= distance_of(search, *link) ||
			(search->needs[i].session &&
			 search->elements[element].distance == 0))
			continue;
		best = i;
		*link = nearest;
	}
	return best;
}

/*
 * Of the elements of the set that wait for a lock or a permit, the one whose
 * transaction began last; -1: none.
 */
static int
choose_victim(WaitSearch *search)
{
	int			victim = -1;

	for (int i = 0; i < search->nelements; i++)
	{
		bool		waits = false;

		for (int j = search->elements[i].in ? search->elements[i].first_need :
			 -1;
			 j >= 0; j = search->needs[j].next)
			waits |= !search->needs[j].session &&
				nearest_link(search, &search->needs[j]) >= 0;
		if (waits && (victim < 0 || search->elements[i].began >=
					  search->elements[victim].began))
			victim = i;
	}
	return victim;
}

/* A deadlock, listed from one of its elements on. */
typedef struct DeadlockList
{
	WaitSearch *search;
	WaitDeadlock *deadlock;
	int			links[WAITS_MAX_MEMBERS];	/* by member */
	int			needs[WAITS_MAX_MEMBERS];
} DeadlockList;

static int
find_member(const DeadlockList *list, int link, int need)
{
	for (int i = 0; i < list->deadlock->nmembers; i++)
		if (list->links[i] == link &&
			(need < 0 || list->needs[i] == need))
			return i;
	return -1;
}

/* Add a member, a link with one of its needs, unless it is listed. */
static bool
add_member(DeadlockList *list, int number, int need)
{
	const WaitSearch *search = list->search;
	const WaitLink *link = &search->links[number];
	const WaitContender *between = search->needs[need].between;
	WaitDeadlock *deadlock = list->deadlock;
	WaitMember *member = &deadlock->members[deadlock->nmembers];
	const PublishedWait *published = &search->published[link->first_published];
	const PublishedWait *end = published + link->npublished;

	if (find_member(list, number, need) >= 0)
		return true;
	while (published < end && published->need != need)
		published++;
	if (published == end || deadlock->nmembers == WAITS_MAX_MEMBERS)
		return false;
	list->links[deadlock->nmembers] = number;
	list->needs[deadlock->nmembers++] = need;
	memset(member, 0, sizeof(*member));
	strcpy(member->edge.from, link->owner->path);
	member->edge.wait = *published->wait;
	if (published->ahead)
		member->edge.wait.began = 0;
	memcpy(member->cluster_name, link->owner->cluster_name,
		   sizeof(member->cluster_name));
	member->version = link->owner->version;
	return between == NULL ||
		snprintf(member->between, NOTE_VERTEX_SIZE, "%s/%s",
				 published->directory->path, between->name) < NOTE_VERTEX_SIZE;
}

/*
 * Add the way from the victim back to the victim.  The first member is that of
 * the link by which the way returns.
 */
static bool
add_way(DeadlockList *list, int victim)
{
	WaitSearch *search = list->search;
	int			links[WAITS_MAX_MEMBERS];
	int			needs[WAITS_MAX_MEMBERS];
	int			element = victim;
	int			n = 0;

	do
	{
		if (n == WAITS_MAX_MEMBERS)
			return false;
		needs[n] = best_need(search, element, &links[n]);
		if (needs[n] < 0)
			return false;
		element = search->links[links[n++]].element;
	} while (element != victim);

	for (int i = 0; i < n; i++)
		if (!add_member(list, links[(i + n - 1) % n], needs[i]))
			return false;
	return true;
}

/* Add a member for this link, unless one is listed; false if that fails. */
static bool
add_blocker(DeadlockList *list, int link)
{
	WaitSearch *search = list->search;
	int			need;
	int			ignored;

	if (link < 0)
		return false;
	if (find_member(list, link, -1) >= 0)
		return true;
	need = best_need(search, search->links[link].element, &ignored);
	return need >= 0 && add_member(list, link, need);
}

/* Add what blocks a member, and the alternatives to its wait. */
static bool
add_needed(DeadlockList *list, int member)
{
	WaitSearch *search = list->search;
	int			link = list->links[member];
	const WaitElement *element =
	&search->elements[search->links[link].element];
	const WaitNeed *need = &search->needs[list->needs[member]];
	const WaitDirectory *directory = need->directory;

	if (directory->permits == 0 &&
		!add_blocker(list, nearest_link(search, need)))
		return false;
	for (int i = 0; directory->permits > 0 && i < directory->nowners; i++)
		if (!add_blocker(list,
						 nearest_of_owner(search,
										  directory->contenders[i].owner,
										  false)))
			return false;
	for (int i = element->first_need; element->any && i >= 0;
		 i = search->needs[i].next)
		if (!add_member(list, link, i))
			return false;
	return true;
}

/*
 * List the set as a deadlock with this victim; false if it is too large, or
 * the notes do not have all of it.
 */
static bool
list_deadlock(WaitSearch *search, int victim, WaitDeadlock *deadlock)
{
	DeadlockList list = {.search = search,.deadlock = deadlock};

	measure(search, victim, false);
	if (!add_way(&list, victim))
		return false;
	for (int i = 0; ZK_MUTATED(ZK_DEADLOCK_NOT_MINIMAL) &&
		 i < search->nlinks; i++)
		if (search->elements[search->links[i].element].in)
			(void) add_blocker(&list, i);
	/* members are added while this runs */
	for (int i = 0; i < deadlock->nmembers; i++)
		if (!add_needed(&list, i))
			return false;
	for (int i = 0; i < deadlock->nmembers; i++)
	{
		const WaitNeed *need = &search->needs[list.needs[i]];

		deadlock->members[i].blocked_by =
			find_member(&list, nearest_link(search, need), -1);
	}
	return true;
}

/*
 * waits_find
 *		Find a minimal deadlock that has the process of "edge" as a member,
 *		and its victim.
 *
 * False if there is none, it is too large, or none of its members waits for a
 * lock or a permit.  "deadlock" is overwritten; on success the caller must
 * call waits_free_deadlock().
 */
bool
waits_find(WaitSearch *search, const WaitEdge *edge, WaitDeadlock *deadlock)
{
	int			start = find_element(search, edge);
	int			victim;

	memset(deadlock, 0, sizeof(*deadlock));
	if (start < 0 || !find_minimal(search, start) ||
		(victim = choose_victim(search)) < 0)
		return false;
	deadlock->members = memory_alloc(WAITS_MAX_MEMBERS * sizeof(WaitMember));
	if (list_deadlock(search, victim, deadlock))
		return true;
	waits_free_deadlock(deadlock);
	return false;
}

/* Are these the same edge, of the same hold and the same wait? */
bool
waits_same_edge(const WaitEdge *a, const WaitEdge *b)
{
	return strcmp(a->from, b->from) == 0 && note_same_wait(&a->wait, &b->wait);
}

/* Do two deadlocks have the same members, with the same notes? */
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

/* Is the victim to requeue in tier 1 of its instance, instead of failing? */
bool
waits_is_requeued(const WaitDeadlock *deadlock)
{
	return deadlock->members[0].edge.wait.began == 0 &&
		!ZK_MUTATED(ZK_DEADLOCK_AHEAD_FAILS);
}

/* Free what a deadlock has allocated; the struct is the caller's. */
void
waits_free_deadlock(WaitDeadlock *deadlock)
{
	free(deadlock->members);
	deadlock->members = NULL;
	deadlock->nmembers = 0;
}
