/*-------------------------------------------------------------------------
 *
 * test_waits.c
 *		Unit tests of graph.c and waits.c: what is read, and what is found in
 *		it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_waits.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/deadlock/graph_private.h"
#include "core/deadlock/waits.h"

/*
 * A small ZooKeeper: contenders as "x/1w" (number 1 in lock x, a writer) or
 * "x/2r" (a reader); as "s/1q" and "s/1p" those in the locks and the leases of
 * a semaphore.
 */
#define MAX_CONTENDERS	2400

typedef struct Contender
{
	char		path[NOTE_VERTEX_SIZE];
	NoteWait	waits[NOTE_MAX_WAITS];
	int			nwaits;
	bool		persistent;
	const char *cluster;		/* NULL: "shop" */
} Contender;

static Contender contenders[MAX_CONTENDERS];
static int	ncontenders;
static int	nreads;
static long nsteps;				/* of the last search */
static WaitGraph graph;
static WaitDeadlock deadlock;

static const char *
path_of(const char *contender)
{
	static char paths[4][NOTE_VERTEX_SIZE];
	static int	next;
	char	   *path = paths[next++ % 4];
	char		lock;
	int			number;
	char		kind;

	if (contender[0] == '/')
		return contender;
	assert_int_equal(sscanf(contender, "%c/%d%c", &lock, &number, &kind), 3);
	sprintf(path, "/z/%c%s/_c_%08d-0000-0000-0000-000000000000-%s%010d", lock,
			kind == 'q' ? "/locks" : kind == 'p' ? "/leases" : "",
			number % 100000000, kind == 'r' ? "__READ__" : kind == 'p' ? "lease-" :
			kind == 'q' ? "lock-" : "__WRIT__", number);
	return path;
}

static int
reset(void **state)
{
	(void) state;
	graph_free(&graph);
	waits_free_deadlock(&deadlock);
	ncontenders = 0;
	nreads = 0;
	return 0;
}

static Contender *
add(const char *contender)
{
	const char *path = path_of(contender);

	for (int i = 0; i < ncontenders; i++)
		if (strcmp(contenders[i].path, path) == 0)
			return &contenders[i];
	assert_true(ncontenders < MAX_CONTENDERS);
	memset(&contenders[ncontenders], 0, sizeof(Contender));
	strcpy(contenders[ncontenders].path, path);
	return &contenders[ncontenders++];
}

/* An edge from one to another, whose transaction began then. */
static NoteWait *
edge(const char *from, const char *to, int began)
{
	Contender  *holder = add(from);
	NoteWait   *wait = &holder->waits[holder->nwaits++];

	(void) add(to);
	memset(wait, 0, sizeof(*wait));
	wait->hold.pid = 100 + began;
	wait->wait.pid = 200 + began;
	wait->wait.since = began;
	wait->began = began;
	wait->kind = to[3] == 'q' ? NOTE_WAIT_PERMIT :
		to[3] == 'r' ? NOTE_WAIT_SHARED : NOTE_WAIT_EXCLUSIVE;
	wait->permits = to[3] == 'q' ? 2 : 0;
	wait->alternatives = 1;
	strcpy(wait->to, path_of(to));
	return wait;
}

static void
read_directory(const char *path)
{
	const char *children[MAX_CONTENDERS + 1];
	int			n = 0;
	size_t		len = strlen(path);

	children[n++] = "a child that is no contender";
	for (int i = ncontenders - 1; i >= 0; i--)
		if (strncmp(contenders[i].path, path, len) == 0 &&
			contenders[i].path[len] == '/' &&
			strchr(contenders[i].path + len + 1, '/') == NULL)
			children[n++] = contenders[i].path + len + 1;
	graph_add_children(&graph, path, children, n);
}

static void
read_note(const char *path)
{
	char		data[NOTE_FULL_SIZE];
	Note		note;

	for (int i = 0; i < ncontenders; i++)
		if (strcmp(contenders[i].path, path) == 0)
		{
			note_set_contender(&note, "h", 1, contenders[i].cluster ?
							   contenders[i].cluster : "shop", 1, false);
			(void) note_write_waits(&note, contenders[i].waits,
									contenders[i].nwaits, data);
			graph_add_note(&graph, path, data, (int) strlen(data), 7 + i,
						   !contenders[i].persistent);
		}
}

/* Look from the first edge of a contender: is a deadlock found? */
static bool
look(const char *from)
{
	const Contender *holder = add(from);
	WaitEdge	start;
	WaitRead	read;
	WaitSearch *search;
	bool		found;

	graph_free(&graph);
	waits_free_deadlock(&deadlock);
	memset(&start, 0, sizeof(start));
	strcpy(start.from, holder->path);
	start.wait = holder->waits[0];
	graph_start(&graph, &start);
	while (graph_next_read(&graph, &read))
	{
		nreads++;
		if (read.kind == GRAPH_READ_CHILDREN)
			read_directory(read.path);
		else
			read_note(read.path);
	}
	search = waits_begin(&graph);
	found = waits_find(search, &start, &deadlock);
	nsteps = graph.nsteps;
	waits_end(search);
	return found;
}

/* The members' contenders that are held, the victim first; NULL ends. */
static void
assert_members(const char *first, ...)
{
	va_list		args;
	int			n = 0;

	va_start(args, first);
	for (const char *next = first; next != NULL;
		 next = va_arg(args, const char *))
	{
		assert_true(n < deadlock.nmembers);
		assert_string_equal(deadlock.members[n].edge.from, path_of(next));
		n++;
	}
	va_end(args);
	assert_int_equal(deadlock.nmembers, n);
}

static void
two_instances(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("y/1w", "x/2w", 2);
	for (int i = 0; i < 2; i++)
	{
		assert_true(look(i == 0 ? "x/1w" : "y/1w"));
		assert_members("y/1w", "x/1w", NULL);
		assert_int_equal(deadlock.members[0].blocked_by, 1);
		assert_int_equal(deadlock.members[1].blocked_by, 0);
		assert_string_equal(deadlock.members[0].cluster_name, "shop");
		assert_int_equal(deadlock.members[0].version, 7 + 2);
		assert_string_equal(deadlock.members[0].between, "");
	}
	assert_int_equal(nreads, 2 * 4);
}

static void
no_cycle_no_deadlock(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	add("y/1w");
	add("x/2w");
	assert_false(look("x/1w"));

	/* nor is it one that W owns its lock, or is not in the queue */
	edge("z/1w", "z/1w", 1);
	assert_false(look("z/1w"));
	edge("u/1w", "v/1w", 1);
	edge("v/2w", "u/2w", 1);
	assert_false(look("u/1w"));

	reset(NULL);
	edge("x/1w", "y/1w", 1);
	edge("y/1w", "x/2w", 2);
	add("y/2w");
	assert_false(look("x/1w"));

	reset(NULL);
	strcpy(edge("x/1w", "y/3w", 1)->to, path_of("y/2w"));
	edge("y/1w", "x/2w", 2);
	assert_false(look("x/1w"));
}

/* From each of two deadlocks that share a member its own is found. */
static void
of_several_deadlocks_ones_own(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("y/1w", "x/2w", 2);
	edge("y/1w", "z/2w", 2);
	edge("z/1w", "y/3w", 3);
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
	assert_true(look("z/1w"));
	assert_members("z/1w", "y/1w", NULL);
}

/* It is the same if no note has been written in between. */
static void
the_same_deadlock(void **state)
{
	WaitDeadlock other;
	WaitMember	members[2];

	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("y/1w", "x/2w", 2);
	assert_true(look("x/1w"));
	other = deadlock;
	memcpy(members, deadlock.members, sizeof(members));
	other.members = members;
	assert_true(waits_same_deadlock(&deadlock, &other));
	members[1].version++;
	assert_false(waits_same_deadlock(&deadlock, &other));
	members[1] = members[0];
	assert_false(waits_same_deadlock(&deadlock, &other));
	other.nmembers = 1;
	assert_false(waits_same_deadlock(&deadlock, &other));
}

/* a owns x; c queues for x; b, who holds y, queues behind; a waits for y. */
static void
nobody_dies_in_vain(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);	/* a */
	edge("z/1w", "x/2w", 9);	/* c, for whom somebody waits as well */
	add("z/2w");
	edge("y/1w", "x/3w", 2);	/* b */
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
	assert_true(look("y/1w"));
	assert_members("y/1w", "x/1w", NULL);
	assert_false(look("z/1w"));
}

/* The same with one more edge: b waits for c's lock, too (zk_lock_all). */
static void
the_shorter_cycle_counts(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);	/* a waits for b */
	edge("y/1w", "z/2w", 2);	/* b waits for c */
	edge("y/1w", "x/3w", 2);	/* and for a */
	edge("z/1w", "x/2w", 9);	/* c waits for a */
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
	assert_string_equal(deadlock.members[0].edge.wait.to, path_of("x/3w"));
	assert_true(look("y/1w"));	/* from its edge to c's lock, too */
	assert_members("y/1w", "x/1w", NULL);
	assert_false(look("z/1w"));
}

/* Who keeps another waiting by two locks is the same by each of them. */
static void
one_that_holds_two_locks(void **state)
{
	(void) state;
	edge("x/1r", "z/2w", 1);	/* a holds x and y, and waits for b */
	edge("y/1w", "z/2w", 1);
	edge("z/1w", "x/3w", 2);	/* b waits for a, and for c */
	edge("x/2r", "y/2w", 9);	/* c waits for a */
	assert_false(look("x/2r"));
	assert_true(look("z/1w"));
	assert_members("z/1w", "x/1r", NULL);
	assert_true(look("x/1r"));
	assert_members("z/1w", "x/1r", NULL);
}

/* Two backends that hold a lock wait for the same: one edge is enough. */
static void
one_of_two_holders_is_enough(void **state)
{
	(void) state;
	edge("x/1r", "y/2w", 1);
	edge("x/1r", "y/2w", 4);
	edge("y/1w", "x/2w", 2);
	assert_true(look("y/1w"));
	assert_int_equal(deadlock.nmembers, 2);
	assert_true(look("x/1r"));
	assert_int_equal(deadlock.nmembers, 2);
}

/* The same one of them is, in whatever order the note has them. */
static void
the_order_of_a_note_does_not_count(void **state)
{
	int64_t		since[2];

	(void) state;
	for (int i = 0; i < 2; i++)
	{
		reset(NULL);
		edge("x/1r", "y/2w", i == 0 ? 1 : 4);
		edge("x/1r", "y/2w", i == 0 ? 4 : 1);
		edge("y/1w", "x/2w", 9);
		assert_true(look("y/1w"));
		assert_members("y/1w", "x/1r", NULL);
		since[i] = deadlock.members[1].edge.wait.wait.since;
	}
	assert_int_equal(since[0], since[1]);
}

static void
the_victim_began_last(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 5);
	edge("y/1w", "z/2w", 7);
	edge("z/1w", "x/2w", 6);
	assert_true(look("x/1w"));
	assert_members("y/1w", "z/1w", "x/1w", NULL);

	/* and has the last path, if they began together */
	reset(NULL);
	edge("x/1w", "y/2w", 5);
	edge("y/1w", "x/2w", 5);
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
}

static void
who_is_only_ahead_of_others_requeues(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 5);
	edge("y/1w", "x/2w", 0);
	assert_true(look("x/1w"));
	assert_members("x/1w", "y/1w", NULL);
	assert_false(waits_is_requeued(&deadlock));

	/* if there are only such, the one with the last path */
	reset(NULL);
	edge("x/1w", "y/2w", 0);
	edge("y/1w", "x/2w", 0);
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
	assert_true(waits_is_requeued(&deadlock));
}

/*
 * M holds z, and waits in tier 1 of x or y behind P, who wants both of T, and
 * began last; T waits for M.  So M and T are the deadlock.  "all": P's waits
 * all bear the mark; else only that for the lock of the two, as it was before.
 */
static void
play_ahead(bool any, bool of_later, bool all)
{
	NoteWait   *waits[2];

	reset(NULL);
	edge("x/1w", "z/2w", 5);	/* T */
	edge("y/1w", "z/2w", 5);
	waits[0] = edge("z/1w", "x/2w", 9);	/* P */
	waits[1] = edge("z/1w", "y/2w", 9);
	for (int i = 0; i < 2; i++)
	{
		waits[i]->alternatives = any ? 2 : 1;
		if (all || i == of_later)
			waits[i]->began = 0;
	}
	for (int i = 0; i < 3; i++)
	{
		assert_true(look(i == 0 ? "x/1w" : i == 1 ? "y/1w" : "z/1w"));
		assert_int_equal(deadlock.members[0].edge.wait.began, 5);
		for (int j = 1; j < deadlock.nmembers; j++)
			assert_true(deadlock.members[j].edge.wait.began == 0 ||
						deadlock.members[j].edge.wait.began == 5);
		assert_int_equal(deadlock.nmembers, any ? 4 : 2);
		assert_false(waits_is_requeued(&deadlock));
	}
}

static void
who_is_ahead_by_one_lock_is_no_member(void **state)
{
	(void) state;
	for (int i = 0; i < 8; i++)
		play_ahead((i & 1) != 0, (i & 2) != 0, (i & 4) != 0);
}

/*
 * The same, but P holds a lock that T waits for, too: P is a member by that.
 */
static void
who_is_ahead_and_a_member_may_fail(void **state)
{
	(void) state;
	play_ahead(false, false, true);
	edge("w/1w", "x/2w", 9);
	edge("x/1w", "w/2w", 5);
	edge("y/1w", "w/2w", 5);
	assert_true(look("w/1w"));
	assert_members("w/1w", "x/1w", NULL);
	assert_int_equal(deadlock.members[0].edge.wait.began, 9);
	assert_true(look("z/1w"));
	assert_members("x/1w", "z/1w", NULL);
}

/* If T is only ahead of somebody, too, one of both requeues in tier 1. */
static void
who_requeues_of_those_ahead(void **state)
{
	(void) state;
	play_ahead(false, true, false);
	for (int i = 0; i < ncontenders; i++)
		for (int j = 0; j < contenders[i].nwaits; j++)
			if (contenders[i].waits[j].began == 5)
				contenders[i].waits[j].began = 0;
	assert_true(look("x/1w"));
	assert_int_equal(deadlock.nmembers, 2);
	assert_true(waits_is_requeued(&deadlock));
}

static void
who_waits_behind_a_deadlock_reports_nothing(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("y/1w", "x/2w", 2);
	edge("z/1w", "x/3w", 3);
	add("z/2w");
	assert_false(look("z/1w"));
	assert_true(look("x/1w"));
}

static void
readers(void **state)
{
	(void) state;

	/* a writer waits for each reader in front */
	edge("x/1r", "y/2w", 1);
	add("x/2r");
	edge("y/1w", "x/3w", 2);
	assert_true(look("y/1w"));
	assert_members("y/1w", "x/1r", NULL);

	/* a reader among them waits for nobody, and their notes are not read */
	reset(NULL);
	edge("x/1r", "y/2w", 1);
	edge("y/1w", "x/2r", 2);
	assert_false(look("y/1w"));
	assert_int_equal(nreads, 1);

	/* but he does behind a writer, who is named */
	add("x/3w");
	edge("y/1w", "x/4r", 3);
	contenders[1].nwaits = 0;
	for (int i = 0; i < ncontenders; i++)
		if (strcmp(contenders[i].path, path_of("y/1w")) == 0)
		{
			contenders[i].waits[0] = contenders[i].waits[1];
			contenders[i].nwaits = 1;
		}
	assert_true(look("y/1w"));
	assert_members("y/1w", "x/1r", NULL);
	assert_string_equal(deadlock.members[0].between, path_of("x/3w"));
	assert_string_equal(deadlock.members[1].between, "");
}

/* The last numbers have no order, and a reader with a late one owns alone. */
static void
late_numbers(void **state)
{
	(void) state;
	edge("x/2000000001r", "y/2w", 1);
	edge("y/1w", "x/2000000002r", 2);
	assert_true(look("y/1w"));
	assert_members("y/1w", "x/2000000001r", NULL);
	add("x/2147483647w");
	assert_false(look("y/1w"));
}

static void
semaphores(void **state)
{
	(void) state;
	edge("x/1w", "s/1q", 1);
	edge("s/1p", "x/2w", 2);
	add("s/2p");
	assert_false(look("x/1w"));
	edge("s/2p", "x/3w", 3);
	assert_true(look("x/1w"));
	assert_members("s/2p", "x/1w", "s/1p", NULL);
	assert_int_equal(deadlock.members[1].blocked_by, 0);
	assert_int_equal(deadlock.members[2].blocked_by, 1);

	/* a third permit is not granted: it may be that of who waits */
	add("s/3p");
	assert_true(look("x/1w"));

	/* nor does anybody wait for a permit as for a lock */
	reset(NULL);
	edge("x/1w", "s/1q", 1);
	edge("s/1p", "y/2w", 2);
	edge("s/2p", "x/2w", 3);
	edge("y/1w", "s/3p", 4);
	assert_false(look("x/1w"));

	/* with a free permit nobody waits */
	reset(NULL);
	edge("x/1w", "s/1q", 1);
	edge("s/1p", "x/2w", 2);
	assert_false(look("x/1w"));
}

/*
 * A note may tell of waits that no call has: for a lock and a permit together.
 */
static void
a_permit_beside_a_lock(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("x/1w", "s/1q", 1);
	edge("y/1w", "x/2w", 2);
	edge("s/1p", "x/3w", 2);
	add("s/2p");
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
	assert_false(look("s/1p"));
}

static void
alternatives(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1)->alternatives = 2;
	edge("x/1w", "z/2w", 1)->alternatives = 2;
	edge("y/1w", "x/2w", 2);
	add("z/1w");
	assert_false(look("x/1w"));
	edge("z/1w", "x/3w", 3);
	assert_true(look("x/1w"));
	assert_int_equal(deadlock.nmembers, 4);

	/* they are not of one wait if there are two ways to it */
	contenders[0].waits[1].chain = 7;
	assert_false(look("x/1w"));
	contenders[0].waits[1].chain = 0;

	/* one of three has not been published */
	for (int i = 0; i < 2; i++)
		contenders[0].waits[i].alternatives = 3;
	assert_false(look("x/1w"));
}

/* Who waits for several locks together waits for each. */
static void
several_locks(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("x/1w", "z/2w", 1);
	edge("z/1w", "x/2w", 2);
	add("y/1w");
	assert_true(look("z/1w"));
	assert_members("z/1w", "x/1w", NULL);
	assert_false(look("x/1w"));
	assert_string_equal(contenders[0].waits[0].to, path_of("y/2w"));
}

static void
what_is_no_contender_is_passed_over(void **state)
{
	(void) state;
	edge("x/1w", "y/2w", 1);
	edge("y/1w", "x/2w", 2);
	add("y/0w")->persistent = true;
	add("x/0r")->persistent = true;
	assert_true(look("x/1w"));
	assert_members("y/1w", "x/1w", NULL);
}

static void
reads_are_bounded(void **state)
{
	char		from[8];
	char		to[8];

	(void) state;
	for (int i = 0; i < 30; i++)
	{
		sprintf(from, "%c/1w", 'A' + i);
		sprintf(to, "%c/2w", 'A' + (i + 1) % 30);
		edge(from, to, i);
	}
	assert_true(look("A/1w"));
	assert_int_equal(deadlock.nmembers, 30);
	assert_int_equal(nreads, 60);
	graph.nreads = GRAPH_MAX_READS;
	assert_false(graph_next_read(&graph, &(WaitRead) {0}));

	/* a semaphore with more permits than a deadlock may have is not read */
	reset(NULL);
	edge("x/1w", "s/1q", 1)->permits = GRAPH_MAX_PERMITS + 1;
	add("s/1p");
	assert_false(look("x/1w"));
	assert_int_equal(nreads, 0);
}

typedef enum Craft
{
	OF_MANY,					/* each wait is of another process */
	ALL,						/* those of a note are of one, ... */
	ANY,						/* ... or of one that wants any, ... */
	OF_ONE						/* ... or all are of one */
} Craft;

/*
 * What notes may be made to say within the limits: each of n locks has an
 * owner that waits for 16 others.  Returns what a search costs.
 */
static long
search_crafted(int n, Craft craft)
{
	char		from[NOTE_VERTEX_SIZE];
	char		to[NOTE_VERTEX_SIZE];

	reset(NULL);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < NOTE_MAX_WAITS; j++)
		{
			int			lock = (i + 1 + j * (n / NOTE_MAX_WAITS)) % n;
			NoteWait   *wait;

			sprintf(from, "/z/L%03d/_c_%08d-0000-0000-0000-000000000000-__WRIT__%010d",
					i, i, 1);
			sprintf(to, "/z/L%03d/_c_%08d-0000-0000-0000-000000000000-__WRIT__%010d",
					lock, 1000 * j + i, 2 + i);
			wait = edge(from, to, 1 + i);
			wait->wait.pid = craft == OF_ONE ? 1 :
				craft == OF_MANY ? 1 + NOTE_MAX_WAITS * i + j : 1 + i;
			wait->alternatives = craft == ANY ? NOTE_MAX_WAITS : 1;
		}
	(void) look(contenders[0].path);
	assert_int_equal(nreads, 2 * n);
	return nsteps;
}

/* A search costs no more than the square of what was read. */
static void
what_a_search_costs(void **state)
{
	(void) state;
	for (int craft = OF_MANY; craft <= OF_ONE; craft++)
	{
		long		half = search_crafted(GRAPH_MAX_READS / 4, (Craft) craft);
		long		whole = search_crafted(GRAPH_MAX_READS / 2, (Craft) craft);

		printf("crafted notes, %d: %ld steps, %ld for half as many\n",
			   craft, whole, half);
		assert_true(whole < 5 * half);
		assert_true(whole < 2000000);
	}
}

static void
locks_are_named(void **state)
{
	NoteWait	wait = {.kind = NOTE_WAIT_SHARED};
	char		lock[NOTE_VERTEX_SIZE];

	(void) state;
	strcpy(wait.to, path_of("x/1r"));
	note_lock_of(&wait, lock);
	assert_string_equal(lock, "/z/x");
	wait.kind = NOTE_WAIT_PERMIT;
	strcpy(wait.to, path_of("s/1q"));
	note_lock_of(&wait, lock);
	assert_string_equal(lock, "/z/s");
}

/*
 * Sessions: a transaction of "far" has one of its sessions work for it in
 * "shop".
 */
#define FAR			"5f.a:far"
#define FAR_WORKERS	"remote:5f.a:far"
#define FAR_NODE	"/z/%waits/session-5f.a%3Afar-0000000000000001-0000000000000001"
#define FAR_TWIN	"/z/%waits/session-5f.a%3Afar-0000000000000002-0000000000000001"
#define SHOP_NAMES	"/z/%waits/session-5f.a%3Afar-0000000000000003-0000000000000001"
#define SHOP_NODE	"/z/%waits/session-remote%3A5f.a%3Afar-0000000000000003-0000000000000002"

/* An edge to a session, or from one, as this instance tells it. */
static NoteWait *
session_edge(const char *cluster, const char *from, const char *to, int began)
{
	NoteWait   *wait;

	if (to[0] == '/' || to[1] == '/')
		wait = edge(from, to, began);
	else
	{
		wait = edge(from, "u/9w", began);
		strcpy(wait->to, to);
		wait->kind = NOTE_WAIT_SESSION;
	}
	add(from)->cluster = cluster;
	return wait;
}

/* shop holds x and wants a row of a session that works for far's. */
static void
a_session_that_waits_itself(void **state)
{
	(void) state;
	session_edge("shop", "x/1w", FAR, 9);
	session_edge("shop", SHOP_NAMES, FAR, 9);
	session_edge("far", FAR_NODE, "x/2w", 1);
	session_edge("far", FAR_NODE, FAR, 9);	/* which only names it */
	for (int i = 0; i < 2; i++)
	{
		assert_true(look(i == 0 ? "x/1w" : FAR_NODE));
		assert_members(FAR_NODE, "x/1w", NULL);
		assert_int_equal(deadlock.members[0].blocked_by, 1);
		assert_int_equal(deadlock.members[1].blocked_by, 0);
		assert_string_equal(deadlock.members[0].cluster_name, "far");
	}
	assert_false(look(SHOP_NAMES));
}

/* far's session holds x, and the one that works for it waits for shop's. */
static void
a_session_whose_remote_one_waits(void **state)
{
	(void) state;
	session_edge("far", "x/1w", FAR, 9);
	session_edge("far", FAR_NODE, FAR_WORKERS, 9);
	session_edge("shop", SHOP_NODE, "x/2w", 1);
	for (int i = 0; i < 3; i++)
	{
		assert_true(look(i == 0 ? "x/1w" : i == 1 ? FAR_NODE : SHOP_NODE));
		assert_members(SHOP_NODE, "x/1w", FAR_NODE, NULL);
	}
}

/* What anybody says of a session counts only if its own instance says it. */
static void
only_its_own_instance_tells_of_a_session(void **state)
{
	(void) state;
	session_edge("shop", "x/1w", FAR, 9);
	session_edge("shop", FAR_NODE, "x/2w", 1);
	assert_false(look("x/1w"));
	add(FAR_NODE)->cluster = "";
	assert_false(look("x/1w"));
	add(FAR_NODE)->cluster = "far";
	assert_true(look("x/1w"));

	/* two instances have its name, and a session like it */
	session_edge("far", FAR_TWIN, "x/3w", 1);
	assert_false(look("x/1w"));
	assert_false(look(FAR_TWIN));
}

/* Nor is a session that only works for another, and does nothing. */
static void
a_session_that_does_not_wait(void **state)
{
	(void) state;
	session_edge("far", "x/1w", FAR, 9);
	session_edge("shop", SHOP_NODE, "x/2w", 1);
	assert_false(look("x/1w"));
	assert_false(look(SHOP_NODE));

	/* it is named, by its own instance, too */
	session_edge("far", FAR_NODE, FAR, 9);
	assert_false(look("x/1w"));
}

/* Without a wait for a lock there is nobody who could be ended. */
static void
sessions_alone_are_no_victims(void **state)
{
	(void) state;
	session_edge("far", FAR_NODE, FAR_WORKERS, 1);
	session_edge("shop", SHOP_NODE, FAR, 1);
	assert_false(look(FAR_NODE));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(two_instances, reset, reset),
		cmocka_unit_test_setup_teardown(no_cycle_no_deadlock, reset, reset),
		cmocka_unit_test_setup_teardown(of_several_deadlocks_ones_own, reset, reset),
		cmocka_unit_test_setup_teardown(the_same_deadlock, reset, reset),
		cmocka_unit_test_setup_teardown(nobody_dies_in_vain, reset, reset),
		cmocka_unit_test_setup_teardown(the_shorter_cycle_counts, reset, reset),
		cmocka_unit_test_setup_teardown(one_that_holds_two_locks, reset,
										reset),
		cmocka_unit_test_setup_teardown(one_of_two_holders_is_enough, reset,
										reset),
		cmocka_unit_test_setup_teardown(the_order_of_a_note_does_not_count, reset,
										reset),
		cmocka_unit_test_setup_teardown(the_victim_began_last, reset, reset),
		cmocka_unit_test_setup_teardown(who_is_only_ahead_of_others_requeues,
										reset, reset),
		cmocka_unit_test_setup_teardown(who_is_ahead_by_one_lock_is_no_member,
										reset, reset),
		cmocka_unit_test_setup_teardown(who_is_ahead_and_a_member_may_fail,
										reset, reset),
		cmocka_unit_test_setup_teardown(who_requeues_of_those_ahead, reset,
										reset),
		cmocka_unit_test_setup_teardown(who_waits_behind_a_deadlock_reports_nothing,
										reset, reset),
		cmocka_unit_test_setup_teardown(readers, reset, reset),
		cmocka_unit_test_setup_teardown(late_numbers, reset, reset),
		cmocka_unit_test_setup_teardown(semaphores, reset, reset),
		cmocka_unit_test_setup_teardown(a_permit_beside_a_lock, reset, reset),
		cmocka_unit_test_setup_teardown(alternatives, reset, reset),
		cmocka_unit_test_setup_teardown(several_locks, reset, reset),
		cmocka_unit_test_setup_teardown(what_is_no_contender_is_passed_over,
										reset, reset),
		cmocka_unit_test_setup_teardown(reads_are_bounded, reset, reset),
		cmocka_unit_test_setup_teardown(what_a_search_costs, reset, reset),
		cmocka_unit_test_setup_teardown(locks_are_named, reset, reset),
		cmocka_unit_test_setup_teardown(a_session_that_waits_itself, reset, reset),
		cmocka_unit_test_setup_teardown(a_session_whose_remote_one_waits, reset, reset),
		cmocka_unit_test_setup_teardown(only_its_own_instance_tells_of_a_session, reset, reset),
		cmocka_unit_test_setup_teardown(a_session_that_does_not_wait, reset, reset),
		cmocka_unit_test_setup_teardown(sessions_alone_are_no_victims, reset, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
