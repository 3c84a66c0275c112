/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Deadlocks between instances: texts, cycles, and how one is ended.
 *
 * An edge H -> W says that a process of this instance has the lock H, which is
 * contended, and waits for the lock W, which this instance has queued for: it
 * does itself, or the last process of the "way" does.  Whoever waits for W
 * waits for all that have it, so a circle of edges is a deadlock.  With
 * postgres_fdw there are more vertices: S, a session, and S*, what works for
 * it elsewhere.
 *
 *	H -> S	H is held by a process that works for S and waits for it, or by one
 *			whose way ends there.  Published by that process's instance.
 *	H -> S*	The same, of S itself, while it is in a foreign statement.
 *			Published by the instance of S, as are the next two.
 *	S -> S*	S is in a foreign statement.
 *	S -> W	S waits for W, by whatever way.
 *	S* -> W	What works for S waits for W.  Published by its instance, as the
 *			next.
 *	S* -> T, S* -> T*, S -> T
 *			The same, where the way ends at another session.
 *
 * Any client can say that it works for S.  But each way through S leaves it by
 * an edge that the instance of S tells of its own session, so a client that
 * pretends to work for S cannot make another session fail.
 *
 *	1	Publish.  Each instance writes all its edges into texts of its own,
 *		ephemeral children of %waits; new ones seldom, ended ones at once and
 *		ahead of the delete of the contender.
 *	2	Look.  It reads the texts of all when it has published something new,
 *		when a child of %waits appears, and now and then while it publishes
 *		something.
 *	3	Confirm.  It searches for the first cycle, in the order that all have,
 *		with an edge of its own.  If a scan that began behind the look has its
 *		own edges of that, it creates %waits/<hash of the cycle>.<id>, and
 *		deletes that as soon as one of these has ended.
 *	4	Act.  When all members have confirmed, the victim's instance sends one
 *		multi: it checks the others' confirms and the writers that keep
 *		readers, removes the victim's edges from its texts, deletes its
 *		confirms of all cycles with these, and creates ended.<hash>.<id>.
 *
 * What is ended was a deadlock.  An instance confirms when it has read all
 * edges of the cycle: each had been published before the first scan that
 * confirmed, and was found again behind it.  An identity is not used twice, so
 * at that moment all edges were there.  A deadlock does not end by itself, but
 * by a cancel or a timeout: then a member deletes its confirm ahead of its
 * contender, and the act fails, or was ahead of that.  A W that was queued
 * stays so: the H in its way is not released, and the writer between two
 * readers is checked.
 *
 * One act ends a deadlock.  With it go the victim's edges from the texts, and
 * all confirms of the victim's instance that have them, so that no act behind
 * it can count on them.
 *
 * A deadlock that lasts is ended.  The last of its edges is published when
 * all others are; whoever published it looks behind that write, finds the
 * cycle or an earlier one, and its confirm has all others look.  Two who
 * prefer different cycles confirm both in the end: a confirm stays when its
 * time has passed, and the next one in the order is confirmed besides.
 *
 * An answer may be lost with the connection.  Then %waits is listed behind a
 * barrier, and ended.<hash> tells whether an act was done.  All that was
 * published is deleted, and published again.  A new worker knows of no act: if
 * the victim still waits, the deadlock is found again.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/lock/note.h"
#include "core/memory.h"
#include "core/mutation.h"
#include "core/siphash.h"

#define HEADER			"zklock1"
#define ENDED			"ended."
#define NEVER			INT64_MAX
#define KEPT			20		/* x deadlock_timeout: what may be of use yet */
#define MS				INT64_C(1000)	/* us */

/*-------------------------------------------------------------------------
 * Edges, and their grammar:
 *
 *	text = "zklock1 " instance LF { wait { keep } }
 *	wait = "wait " pid " " kind " " name " " pid " " generation " " began " "
 *		   marks " " keeper " " way LF
 *	keep = "keep " kind " " name " " generation LF
 *
 * A wait is a process and what it waits for; behind it are the locks that the
 * process has.  Words are percent-encoded, and "-" is none.  pids are decimal,
 * other numbers hexadecimal; marks are letters: "a" ahead, "b" beside.
 *-------------------------------------------------------------------------
 */

static int
compare_numbers(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* What a way goes on from: locks in any mode, sessions, remote ones. */
static int
sort_of(const DeadlockVertex *vertex)
{
	return vertex->kind == DEADLOCK_SHARED ? DEADLOCK_EXCLUSIVE : vertex->kind;
}

static bool
is_lock(const DeadlockVertex *vertex)
{
	return sort_of(vertex) == DEADLOCK_EXCLUSIVE;
}

static int
compare_vertices(const DeadlockVertex *a, const DeadlockVertex *b)
{
	int			c = strcmp(a->name, b->name);

	if (c == 0)
		c = compare_numbers(a->kind, b->kind);
	if (c == 0)
		c = compare_numbers((uint64_t) a->pid, (uint64_t) b->pid);
	if (c == 0 && !ZK_MUTATED(ZK_CYCLE_ANY_GENERATION))
		c = compare_numbers(a->generation, b->generation);
	return c;
}

/* The order of the waits: all that edges of one process have in common. */
static int
compare_waits(const DeadlockEdge *a, const DeadlockEdge *b)
{
	int			c = compare_vertices(&a->to, &b->to);

	if (c == 0)
		c = compare_numbers((uint64_t) a->from.pid, (uint64_t) b->from.pid);
	if (c == 0)
		c = a->ahead - b->ahead;
	if (c == 0 && !ZK_MUTATED(ZK_CYCLE_ANY_WAY))
		c = strcmp(a->way, b->way);
	if (c == 0)
		c = compare_numbers(a->began, b->began);
	if (c == 0)
		c = a->beside - b->beside;
	if (c == 0 && a->beside)
		c = strcmp(a->keeper ? a->keeper : "", b->keeper ? b->keeper : "");
	return c;
}

/* The order of edges, whatever their ways. */
static int
compare_ends(const DeadlockEdge *a, const DeadlockEdge *b)
{
	int			c = strcmp(a->from.name, b->from.name);

	if (c == 0)
		c = strcmp(a->teller, b->teller);
	if (c == 0)
		c = compare_vertices(&a->from, &b->from);
	return c != 0 ? c : compare_vertices(&a->to, &b->to);
}

/* The order of edges that all instances have; 0: they are the same. */
static int
compare_edges(const DeadlockEdge *a, const DeadlockEdge *b)
{
	int			c = compare_ends(a, b);

	return c != 0 ? c : compare_waits(a, b);
}

static void
sort(void *array, int n, size_t size,
	 int (*compare) (const void *, const void *))
{
	if (n > 1)
		qsort(array, (size_t) n, size, compare);
}

static int
compare_edge_pointers(const void *a, const void *b)
{
	return compare_edges(*(const DeadlockEdge *const *) a,
						 *(const DeadlockEdge *const *) b);
}

/* In a text: the oldest wait first, and one wait's edges together. */
static int
compare_for_text(const void *a, const void *b)
{
	const DeadlockEdge *x = *(const DeadlockEdge *const *) a;
	const DeadlockEdge *y = *(const DeadlockEdge *const *) b;
	int			c = compare_numbers(x->to.generation, y->to.generation);

	if (c == 0)
		c = compare_waits(x, y);
	return c != 0 ? c : compare_edges(x, y);
}

static char *
add_string(char **at, const char *string)
{
	char	   *copy = *at;

	if (string == NULL)
		return NULL;
	*at = stpcpy(copy, string) + 1;
	return copy;
}

/* Copy an edge with its strings; to be freed by free(). */
static DeadlockEdge *
copy_edge(const DeadlockEdge *edge, const char *keeper)
{
	DeadlockEdge *copy =
		memory_alloc(sizeof(DeadlockEdge) + strlen(edge->from.name) +
					 strlen(edge->to.name) + strlen(edge->way) +
					 (keeper ? strlen(keeper) : 0) + strlen(edge->teller) +
					 strlen(edge->instance) + 6);
	char	   *at = (char *) (copy + 1);

	*copy = *edge;
	copy->from.name = add_string(&at, edge->from.name);
	copy->to.name = add_string(&at, edge->to.name);
	copy->way = add_string(&at, edge->way);
	copy->keeper = add_string(&at, keeper);
	copy->teller = add_string(&at, edge->teller);
	copy->instance = add_string(&at, edge->instance);
	return copy;
}

static void
put_word(Writer *writer, const char *word)
{
	word_put_byte(writer, ' ');
	if (word == NULL || *word == '\0')
		word_put_byte(writer, '-');
	else if (strcmp(word, "-") == 0)
		word_put_text(writer, "%2D");
	else
		word_put_encoded(writer, word_bytes(word, (int) strlen(word)), true);
}

static void
put_number(Writer *writer, bool hexadecimal, uint64_t number)
{
	char		word[32];

	(void) snprintf(word, sizeof(word), hexadecimal ? " %llx" : " %llu",
					(unsigned long long) number);
	word_put_text(writer, word);
}

static void
put_kind(Writer *writer, DeadlockKind kind)
{
	word_put_byte(writer, ' ');
	word_put_byte(writer, (char) kind);
}

static void
put_wait(Writer *writer, const DeadlockEdge *edge, bool keeper)
{
	word_put_text(writer, "wait");
	put_number(writer, false, (uint64_t) edge->from.pid);
	put_kind(writer, edge->to.kind);
	put_word(writer, edge->to.name);
	put_number(writer, false, (uint64_t) edge->to.pid);
	put_number(writer, true, edge->to.generation);
	put_number(writer, true, edge->began);
	word_put_text(writer, edge->ahead ? (edge->beside ? " ab" : " a") :
				  (edge->beside ? " b" : " -"));
	put_word(writer, keeper ? edge->keeper : NULL);
	put_word(writer, edge->way);
	word_put_byte(writer, '\n');
}

static void
put_keep(Writer *writer, const DeadlockEdge *edge)
{
	word_put_text(writer, "keep");
	put_kind(writer, edge->from.kind);
	put_word(writer, edge->from.name);
	put_number(writer, true, edge->from.generation);
	word_put_byte(writer, '\n');
}

/*
 * deadlock_write
 *		Write the text of some edges; returns its length, or -1: it does not
 *		fit into "size", with the terminating zero.
 *
 * Edges of the same wait must be next to each other.
 */
int
deadlock_write(const char *instance, const DeadlockEdge *const *edges,
			   int nedges, char *data, int size)
{
	Writer		writer = {.data = data,.size = size};

	word_put_text(&writer, HEADER);
	put_word(&writer, instance);
	word_put_byte(&writer, '\n');
	for (int i = 0; i < nedges; i++)
	{
		if (i == 0 || compare_waits(edges[i - 1], edges[i]) != 0)
			put_wait(&writer, edges[i], true);
		put_keep(&writer, edges[i]);
	}
	return writer.full ? -1 : writer.len;
}

/* A line being read; words are decoded into "memory". */
typedef struct Line
{
	Bytes		rest;
	char	   *memory;
	bool		bad;
} Line;

static Line
next_line(Bytes *rest, char *memory)
{
	const char *end = memchr(rest->data, '\n', (size_t) rest->len);
	Line		line = {.memory = memory,.bad = end == NULL};
	int			len = end ? (int) (end - rest->data) : rest->len;

	line.rest = word_bytes(rest->data, len);
	rest->data += len + !line.bad;
	rest->len -= len + !line.bad;
	line.bad = line.bad || len > DEADLOCK_LINE_BYTES;
	return line;
}

static const char *
take_word(Line *line)
{
	char	   *decoded = line->memory;
	Bytes		word;

	if (!word_next(&line->rest, &word) ||
		!word_decode(word, decoded, word.len + 1))
	{
		line->bad = true;
		return "";
	}
	if (word_bytes_are(word, "-"))
		*decoded = '\0';
	line->memory += strlen(decoded) + 1;
	return decoded;
}

static uint64_t
take_number(Line *line, unsigned base, uint64_t max)
{
	uint64_t	number = 0;
	Bytes		word;

	if (!word_next(&line->rest, &word) ||
		!word_parse_unsigned(word, base, max, &number))
		line->bad = true;
	return number;
}

static DeadlockKind
take_kind(Line *line)
{
	Bytes		word;

	if (!word_next(&line->rest, &word) || word.len != 1 ||
		memchr("xscw", *word.data, 4) == NULL)
	{
		line->bad = true;
		return DEADLOCK_EXCLUSIVE;
	}
	return (DeadlockKind) *word.data;
}

static const char *
take_name(Line *line)
{
	const char *name = take_word(line);

	line->bad = line->bad || *name == '\0';
	return name;
}

static void
parse_wait(Line *line, DeadlockEdge *edge)
{
	const char *marks;
	const char *keeper;

	edge->from.pid = (int) take_number(line, 10, INT_MAX);
	edge->to.kind = take_kind(line);
	edge->to.name = take_name(line);
	edge->to.pid = (int) take_number(line, 10, INT_MAX);
	edge->to.generation = take_number(line, 16, UINT64_MAX);
	edge->began = take_number(line, 16, UINT64_MAX);
	marks = take_word(line);
	edge->ahead = strchr(marks, 'a') != NULL;
	edge->beside = strchr(marks, 'b') != NULL;
	keeper = take_word(line);
	edge->keeper = *keeper != '\0' ? keeper : NULL;
	edge->way = take_word(line);
}

/* Parse the lines behind the first; returns false if one is malformed. */
static bool
parse_lines(Bytes rest, char *memory, DeadlockEdge *edge, DeadlockText *text)
{
	while (rest.len > 0)
	{
		Line		line = next_line(&rest, memory);
		Bytes		word;

		if (line.bad || !word_next(&line.rest, &word))
			return false;
		if (word_bytes_are(word, "wait"))
			parse_wait(&line, edge);
		else if (word_bytes_are(word, "keep") && edge->to.name != NULL)
		{
			edge->from.kind = take_kind(&line);
			edge->from.name = take_name(&line);
			edge->from.generation = take_number(&line, 16, UINT64_MAX);
			text->edges[text->nedges++] = *edge;
		}
		else
			return false;
		if (line.bad || line.rest.len > 0)
			return false;
		memory = line.memory;
	}
	return true;
}

/*
 * deadlock_parse
 *		Parse a text; false, and nothing is there to be freed, if it is
 *		malformed or larger than texts are.
 *
 * "teller" is the id of whose it is, and remains the caller's.
 */
bool
deadlock_parse(const char *teller, const char *data, int len,
			   DeadlockText *text)
{
	Bytes		rest = word_bytes(data, len);
	DeadlockEdge edge = {.teller = teller};
	int			nlines = 0;
	Bytes		word;
	Line		line;

	memset(text, 0, sizeof(*text));
	if (len <= 0 || len > DEADLOCK_TEXT_BYTES)
		return false;
	for (int i = 0; i < len; i++)
		nlines += data[i] == '\n';
	text->memory = memory_alloc((size_t) len + 1);
	text->edges = memory_alloc((size_t) nlines * sizeof(DeadlockEdge));
	line = next_line(&rest, text->memory);
	if (!line.bad && word_next(&line.rest, &word) &&
		word_bytes_are(word, HEADER))
	{
		edge.instance = take_word(&line);
		if (!line.bad && parse_lines(rest, line.memory, &edge, text))
			return true;
	}
	free(text->edges);
	free(text->memory);
	memset(text, 0, sizeof(*text));
	return false;
}

/*-------------------------------------------------------------------------
 * Cycles: the search
 *
 * A node is the name of a vertex: whoever waits for a lock waits for all that
 * have it.  So a cycle visits a node once: one that came there again would be
 * two.  What leads to no cycle, or is not reached from one, is trimmed first;
 * what remains is searched from each edge of our own, no further than where a
 * cycle of the length that is sought can still be closed.
 *-------------------------------------------------------------------------
 */

typedef struct Node
{
	const DeadlockVertex *vertex;
	int			next;			/* with the same hash; -1: none */
	int			out;			/* its edges in Search.out, ... */
	int			nout;
	int			in;				/* and in Search.in */
	int			nin;
	int			ways_out;		/* so many are not trimmed */
	int			ways_in;
	int			distance;		/* edges to the target; -1: no way */
	bool		visited;
} Node;

typedef struct Search
{
	const DeadlockEdge *const *edges;
	int			nedges;
	const char *id;
	bool		(*skip) (const char *hash, void *arg);
	void	   *arg;
	Node	   *nodes;
	int			nnodes;
	int		   *from;			/* by edge: node */
	int		   *to;
	int		   *out;			/* edges by node */
	int		   *in;
	int		   *queue;			/* nodes */
	int			steps;
	int			length;			/* that is sought */
	const DeadlockEdge *path[DEADLOCK_CYCLE];
	const DeadlockEdge *best[DEADLOCK_CYCLE];
	int			nbest;			/* 0: none yet */
	char		hash[DEADLOCK_HASH + 1];
} Search;

static int
find_node(Search *s, int *buckets, int nbuckets, const DeadlockVertex *vertex)
{
	static const SipKey key = {{1, 2}};
	int		   *at = &buckets[siphash(&key, vertex->name,
									  strlen(vertex->name)) % nbuckets];
	int			i;

	for (i = *at; i >= 0; i = s->nodes[i].next)
		if (sort_of(s->nodes[i].vertex) == sort_of(vertex) &&
			strcmp(s->nodes[i].vertex->name, vertex->name) == 0)
			return i;
	i = s->nnodes++;
	s->nodes[i].vertex = vertex;
	s->nodes[i].next = *at;
	*at = i;
	return i;
}

static void
make_nodes(Search *s)
{
	int			nbuckets = 2 * s->nedges;
	int		   *buckets = memory_alloc((size_t) nbuckets * sizeof(int));
	int			out = 0;
	int			in = 0;

	memset(buckets, -1, (size_t) nbuckets * sizeof(int));
	for (int i = 0; i < s->nedges; i++)
	{
		s->from[i] = find_node(s, buckets, nbuckets, &s->edges[i]->from);
		s->to[i] = find_node(s, buckets, nbuckets, &s->edges[i]->to);
		s->nodes[s->from[i]].ways_out++;
		s->nodes[s->to[i]].ways_in++;
	}
	free(buckets);
	for (int i = 0; i < s->nnodes; i++)
	{
		s->nodes[i].out = out;
		s->nodes[i].in = in;
		out += s->nodes[i].ways_out;
		in += s->nodes[i].ways_in;
	}
	for (int i = 0; i < s->nedges; i++)
	{
		Node	   *from = &s->nodes[s->from[i]];
		Node	   *to = &s->nodes[s->to[i]];

		s->out[from->out + from->nout++] = i;
		s->in[to->in + to->nin++] = i;
	}
}

static bool
is_trimmed(const Node *node)
{
	return node->ways_out == 0 || node->ways_in == 0;
}

/* Trim nodes without a way out or in, and those that this leaves so. */
static void
trim(Search *s)
{
	int			n = 0;

	for (int i = 0; i < s->nnodes; i++)
		if (is_trimmed(&s->nodes[i]))
			s->queue[n++] = i;
	while (n > 0)
	{
		Node	   *node = &s->nodes[s->queue[--n]];

		for (int i = 0; i < node->nin; i++)
		{
			Node	   *before = &s->nodes[s->from[s->in[node->in + i]]];

			if (!is_trimmed(before) && --before->ways_out == 0)
				s->queue[n++] = (int) (before - s->nodes);
		}
		for (int i = 0; i < node->nout; i++)
		{
			Node	   *behind = &s->nodes[s->to[s->out[node->out + i]]];

			if (!is_trimmed(behind) && --behind->ways_in == 0)
				s->queue[n++] = (int) (behind - s->nodes);
		}
	}
}

/* How far is it from each node to this one? */
static void
measure(Search *s, int target)
{
	int			n = 0;

	for (int i = 0; i < s->nnodes; i++)
		s->nodes[i].distance = -1;
	s->nodes[target].distance = 0;
	s->queue[n++] = target;
	for (int done = 0; done < n && s->steps > 0; done++)
	{
		const Node *node = &s->nodes[s->queue[done]];

		for (int i = 0; i < node->nin && s->steps-- > 0; i++)
		{
			Node	   *before = &s->nodes[s->from[s->in[node->in + i]]];

			if (before->distance >= 0 || is_trimmed(before))
				continue;
			before->distance = node->distance + 1;
			s->queue[n++] = (int) (before - s->nodes);
		}
	}
}

static void
hash_cycle(const DeadlockEdge *const *cycle, int n, char *hash)
{
	char		line[3 * DEADLOCK_LINE_BYTES];
	SipKey		key[2] = {{{0, 1}}, {{0, 2}}};

	for (int i = 0; i < n; i++)
	{
		Writer		writer = {.data = line,.size = sizeof(line)};
		DeadlockEdge edge = *cycle[i];

		if (ZK_MUTATED(ZK_CYCLE_ANY_GENERATION))
			edge.from.generation = edge.to.generation = 0;
		if (ZK_MUTATED(ZK_CYCLE_ANY_WAY))
			edge.way = "";
		put_word(&writer, edge.teller);
		put_wait(&writer, &edge, edge.beside);
		put_keep(&writer, &edge);
		for (int k = 0; k < 2; k++)
			key[k].half[0] = siphash(&key[k], line, (size_t) writer.len);
	}
	(void) snprintf(hash, DEADLOCK_HASH + 1, "%016llx%016llx",
					(unsigned long long) key[0].half[0],
					(unsigned long long) key[1].half[0]);
}

/* Does an edge offer a victim?  All of a cycle may only be ahead. */
static bool
is_unmarked(const DeadlockEdge *edge)
{
	return is_lock(&edge->to) &&
		(!edge->ahead || ZK_MUTATED(ZK_CYCLE_AHEAD_FAILS));
}

/*
 * The victim: of the unmarked waits, or of all if there are none, that of the
 * transaction that began last.  -1: no edge waits for a lock.
 */
static int
find_victim(const DeadlockEdge *const *cycle, int n)
{
	int			victim = -1;

	for (int i = 0; i < n; i++)
	{
		const DeadlockEdge *edge = cycle[i];
		const DeadlockEdge *old = victim < 0 ? NULL : cycle[victim];
		int			c;

		if (!is_lock(&edge->to))
			continue;
		c = old == NULL ? 1 : is_unmarked(edge) - is_unmarked(old);
		if (c == 0)
			c = compare_numbers(edge->began, old->began);
		if (c == 0)
			c = compare_vertices(&edge->to, &old->to);
		if (c > 0)
			victim = i;
	}
	return victim;
}

/* Is the first of two cycles of one length ahead in the order? */
static bool
is_ahead(const Search *s, const DeadlockEdge *const *a,
		 const DeadlockEdge *const *b)
{
	int			n = s->length;
	int			c = is_unmarked(b[find_victim(b, n)]) -
		is_unmarked(a[find_victim(a, n)]);

	for (int i = 0; i < n && c == 0; i++)
	{
		if (ZK_MUTATED(ZK_CYCLE_LOCAL_ORDER))
			c = (strcmp(b[i]->teller, s->id) == 0) -
				(strcmp(a[i]->teller, s->id) == 0);
		if (c == 0)
			c = compare_edges(a[i], b[i]);
	}
	return c < 0;
}

/* The path is a cycle: is it the best one? */
static void
judge_path(Search *s)
{
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];
	char		hash[DEADLOCK_HASH + 1];
	int			first = 0;

	if (find_victim(s->path, s->length) < 0)
		return;
	for (int i = 1; i < s->length; i++)
		if (compare_edges(s->path[i], s->path[first]) < 0)
			first = i;
	for (int i = 0; i < s->length; i++)
		cycle[i] = s->path[(first + i) % s->length];
	s->steps -= s->length;
	if (s->nbest == s->length && !is_ahead(s, cycle, s->best))
		return;
	hash_cycle(cycle, s->length, hash);
	if (s->skip != NULL && s->skip(hash, s->arg))
		return;
	memcpy(s->best, cycle, sizeof(cycle));
	memcpy(s->hash, hash, sizeof(hash));
	s->nbest = s->length;
}

/* Go on from a node, with "n" edges in the path. */
static void
follow(Search *s, int at, int n)
{
	Node	   *node = &s->nodes[at];

	if (n == s->length)
	{
		if (node->distance == 0)
			judge_path(s);
		return;
	}
	if (node->visited || node->distance < 0 || node->distance > s->length - n)
		return;
	node->visited = true;
	for (int i = 0; i < node->nout && s->steps-- > 0; i++)
	{
		int			edge = s->out[node->out + i];

		if (is_trimmed(&s->nodes[s->to[edge]]))
			continue;
		s->path[n] = s->edges[edge];
		follow(s, s->to[edge], n + 1);
	}
	node->visited = false;
}

/* Search for the shortest cycles through our own edges from this node. */
static void
search_from(Search *s, int target)
{
	Node	   *node = &s->nodes[target];
	int			longest = s->nbest > 0 ? s->nbest : DEADLOCK_CYCLE;
	bool		found = false;

	measure(s, target);
	node->visited = true;
	for (s->length = 1; s->length <= longest && !found; s->length++)
	{
		for (int i = 0; i < node->nout && s->steps > 0; i++)
		{
			int			edge = s->out[node->out + i];
			int			to = s->to[edge];

			if (strcmp(s->edges[edge]->teller, s->id) != 0 ||
				s->nodes[to].distance < 0 ||
				s->nodes[to].distance >= s->length ||
				is_trimmed(&s->nodes[to]))
				continue;
			s->path[0] = s->edges[edge];
			follow(s, to, 1);
		}
		found = s->nbest == s->length;
	}
	node->visited = false;
}

/*
 * deadlock_search
 *		The first cycle, in the order of all, with an edge of instance "id":
 *		its edges in their order, at most DEADLOCK_CYCLE, and its hash.
 *		Returns how many they are; 0: there is none.
 *
 * "skip", or NULL, says which cycles are known.  The work is bounded, by
 * DEADLOCK_STEPS; where there are more cycles than that, it is one of them.
 */
int
deadlock_search(const DeadlockEdge *const *edges, int nedges, const char *id,
				bool (*skip) (const char *hash, void *arg), void *arg,
				const DeadlockEdge **cycle, char *hash)
{
	Search		s = {
		.edges = edges,.nedges = nedges,.id = id,.skip = skip,.arg = arg,
		.steps = DEADLOCK_STEPS
	};
	int		   *memory;

	if (nedges == 0)
		return 0;
	memory = memory_alloc(6 * (size_t) nedges * sizeof(int));
	s.nodes = memory_alloc(2 * (size_t) nedges * sizeof(Node));
	s.from = memory;
	s.to = memory + nedges;
	s.out = memory + 2 * nedges;
	s.in = memory + 3 * nedges;
	s.queue = memory + 4 * nedges;
	make_nodes(&s);
	trim(&s);
	for (int i = 0; i < s.nnodes && s.steps > 0; i++)
	{
		bool		own = false;

		if (is_trimmed(&s.nodes[i]))
			continue;
		for (int j = 0; j < s.nodes[i].nout && !own; j++)
			own = strcmp(edges[s.out[s.nodes[i].out + j]]->teller, id) == 0;
		if (own)
			search_from(&s, i);
	}
	free(s.nodes);
	free(memory);
	memcpy(cycle, s.best, (size_t) s.nbest * sizeof(*cycle));
	if (s.nbest > 0)
		memcpy(hash, s.hash, sizeof(s.hash));
	return s.nbest;
}

/*-------------------------------------------------------------------------
 * The protocol
 *-------------------------------------------------------------------------
 */

/* An edge of our own that is published. */
typedef struct OwnEdge
{
	DeadlockEdge *edge;
	int			text;
	bool		acted;			/* the act that is under way removes it */
	bool		gone;			/* the same, and it has ended */
} OwnEdge;

/* A text of our own. */
typedef struct OwnText
{
	char	   *node;			/* NULL: there is none */
	int32_t		version;		/* when all that was sent has been done */
	int			bytes;
	int			nedges;
	bool		creating;
	bool		dirty;			/* to be written */
	bool		acted;			/* written by the act that is under way */
	int64_t		empty_since;
} OwnText;

/* A cycle, as an outcome has it: shared with that. */
typedef struct Cycle
{
	int			refs;
	int			nedges;
	DeadlockEdge *edges[DEADLOCK_CYCLE];
	int			victim;
	bool		requeue;
	bool		verdict;		/* of an outcome */
	char		hash[DEADLOCK_HASH + 1];
} Cycle;

/* What is known of a cycle. */
typedef struct Record
{
	DeadlockState state;
	Cycle	   *cycle;
	bool		confirm;		/* our confirm was sent, and not deleted */
	bool		left;			/* the same, when the connection was lost */
	bool		ended;			/* ended.<hash> is ours */
	bool		missing;		/* the last look did not find all edges */
	int64_t		until;			/* when the state's time has passed */
} Record;

/* What a request is for, and its answer. */
typedef enum Purpose
{
	FOR_PART,					/* of the act: it is answered by the last one */
	FOR_NOTHING,
	FOR_BEFORE,					/* for nothing any more: sent on a connection
								 * that was lost */
	FOR_LOAD,					/* list behind a barrier */
	FOR_CREATE,					/* of a text */
	FOR_SET,
	FOR_NEW_SET,				/* with new edges */
	FOR_LIST,					/* of a look */
	FOR_TEXT,
	FOR_CONFIRM,
	FOR_ACT
} Purpose;

typedef struct Pending
{
	uint32_t	serial;
	Purpose		purpose;
	char	   *node;
	int			text;
} Pending;

typedef struct Sent
{
	Request		request;
	char	   *path;			/* copies, or NULL */
	char	   *node;
	char	   *data;
} Sent;

typedef enum Look
{
	LOOK_NONE,
	LOOK_LISTING,
	LOOK_READING,
	LOOK_READ					/* a scan is to judge it */
} Look;

struct Deadlocks
{
	char	   *dir;
	char	   *id;
	char	   *instance;
	int64_t		timeout;		/* deadlock_timeout */
	bool		connected;
	bool		loading;
	bool		loaded;			/* what is left of before is deleted */
	bool		wants_scan;
	bool		watched;		/* the children of the directory are */
	Record	   *acting;			/* the act of this is under way */

	OwnEdge    *own;			/* in the order of edges */
	int			nown;
	OwnText		texts[DEADLOCK_TEXTS];
	int			nwriting;		/* writes of new edges that are not answered */
	Record	  **records;
	int			nrecords;

	Look		look;
	bool		look_again;
	char	  **names;			/* children that are no texts, sorted */
	int			nnames;
	char	  **unread;			/* texts to be read; whose they are, when they
								 * have been asked for */
	int			nunread;
	int			next_unread;
	int			ngets;
	DeadlockText *read;
	int			nread;
	int			read_bytes;
	int			read_edges;
	bool		partly;			/* not all was read */
	int			ninstances;		/* that had texts in the last list */

	int64_t		scan_at;		/* NEVER: not by time */
	int64_t		write_at;		/* no new edges ahead of this */
	int64_t		look_at;

	Pending    *pending;
	int			npending;
	uint32_t	serial;
	uint32_t	group;
	Sent	   *sent;			/* to be taken out */
	int			nsent;
	int			next_sent;
	Cycle	  **outcomes;
	int			noutcomes;
	Cycle	   *shown;			/* the outcome that was taken out */
	unsigned	complained;		/* bits */
	DeadlockComplaint complaint;
};

static void look(Deadlocks *d);
static void send_act(Deadlocks *d, Record *record);

/* The table of the header. */
DeadlockState
deadlock_step(DeadlockState state, DeadlockEvent event, unsigned *todo)
{
	static const struct
	{
		DeadlockState state;
		DeadlockEvent event;
		DeadlockState next;
		unsigned	todo;
	}			lines[] = {
		{DEADLOCK_TOLD, DEADLOCK_SAME, DEADLOCK_CONFIRMED, DEADLOCK_CONFIRM},
		{DEADLOCK_TOLD, DEADLOCK_SEEN, DEADLOCK_ENDED, DEADLOCK_SHOW},
		{DEADLOCK_TOLD, DEADLOCK_OVER, DEADLOCK_NONE, 0},
		{DEADLOCK_CONFIRMED, DEADLOCK_CHANGED, DEADLOCK_TOLD,
		DEADLOCK_RETRACT},
		{DEADLOCK_CONFIRMED, DEADLOCK_PASSED, DEADLOCK_LATE, 0},
		{DEADLOCK_CONFIRMED, DEADLOCK_COMPLETE, DEADLOCK_ACTING,
		DEADLOCK_ACT},
		{DEADLOCK_CONFIRMED, DEADLOCK_SEEN, DEADLOCK_ENDED,
		DEADLOCK_RETRACT | DEADLOCK_SHOW},
		{DEADLOCK_CONFIRMED, DEADLOCK_CUT, DEADLOCK_TOLD, 0},
		{DEADLOCK_LATE, DEADLOCK_CHANGED, DEADLOCK_TOLD, DEADLOCK_RETRACT},
		{DEADLOCK_LATE, DEADLOCK_COMPLETE, DEADLOCK_ACTING, DEADLOCK_ACT},
		{DEADLOCK_LATE, DEADLOCK_SEEN, DEADLOCK_ENDED,
		DEADLOCK_RETRACT | DEADLOCK_SHOW},
		{DEADLOCK_LATE, DEADLOCK_CUT, DEADLOCK_TOLD, 0},
		{DEADLOCK_ACTING, DEADLOCK_CHANGED, DEADLOCK_STALE, DEADLOCK_RETRACT},
		{DEADLOCK_ACTING, DEADLOCK_DONE, DEADLOCK_ENDED, DEADLOCK_VERDICT},
		{DEADLOCK_ACTING, DEADLOCK_FAILED, DEADLOCK_LATE, 0},
		{DEADLOCK_ACTING, DEADLOCK_CUT, DEADLOCK_SOUGHT, 0},
		{DEADLOCK_STALE, DEADLOCK_DONE, DEADLOCK_ENDED, DEADLOCK_VERDICT},
		{DEADLOCK_STALE, DEADLOCK_FAILED, DEADLOCK_TOLD, 0},
		{DEADLOCK_STALE, DEADLOCK_CUT, DEADLOCK_SOUGHT, 0},
		{DEADLOCK_SOUGHT, DEADLOCK_DONE, DEADLOCK_ENDED, DEADLOCK_VERDICT},
		{DEADLOCK_SOUGHT, DEADLOCK_FAILED, DEADLOCK_TOLD, 0},
		{DEADLOCK_ENDED, DEADLOCK_OVER, DEADLOCK_NONE, DEADLOCK_REMOVE}
	};

	*todo = 0;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		if (lines[i].state == state && lines[i].event == event)
		{
			*todo = lines[i].todo;
			return lines[i].next;
		}
	return state;
}

static void
complain(Deadlocks *d, DeadlockComplaint complaint)
{
	if (!(d->complained & 1U << complaint))
		d->complaint = complaint;
	d->complained |= 1U << complaint;
}

/* Put a request into the queue. */
static Request *
send(Deadlocks *d, RequestKind kind, const char *node, Purpose purpose,
	 int text)
{
	Sent	   *sent;

	d->sent = memory_grow(d->sent, d->nsent, sizeof(Sent));
	sent = &d->sent[d->nsent++];
	sent->node = node != NULL ? memory_copy(node) : NULL;
	sent->request.kind = kind;
	sent->request.path = d->dir;
	sent->request.node = sent->node;
	if (purpose != FOR_PART)
	{
		Pending    *pending;

		d->pending = memory_grow(d->pending, d->npending, sizeof(Pending));
		pending = &d->pending[d->npending++];
		if (++d->serial == 0)
			d->serial = 1;
		pending->serial = sent->request.serial = d->serial;
		pending->purpose = purpose;
		pending->node = node != NULL ? memory_copy(node) : NULL;
		pending->text = text;
	}
	return &sent->request;
}

static void
set_data(Deadlocks *d, Request *request, const char *data)
{
	d->sent[d->nsent - 1].data = memory_copy(data);
	request->data = d->sent[d->nsent - 1].data;
}

static void
free_sent(Sent *sent)
{
	free(sent->path);
	free(sent->node);
	free(sent->data);
	memset(sent, 0, sizeof(*sent));
}

static void
free_names(char ***names, int *n)
{
	for (int i = 0; i < *n; i++)
		free((*names)[i]);
	free(*names);
	*names = NULL;
	*n = 0;
}

static void
add_name(char ***names, int *n, const char *name)
{
	*names = memory_grow(*names, *n, sizeof(char *));
	(*names)[(*n)++] = memory_copy(name);
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

static bool
is_listed(const Deadlocks *d, const char *name)
{
	return d->nnames > 0 &&
		bsearch(&name, d->names, (size_t) d->nnames, sizeof(char *),
				compare_names) != NULL;
}

static int
compare_prefix(const void *prefix, const void *name)
{
	return strncmp(prefix, *(char *const *) name, strlen(prefix));
}

/* The name of a child: a cycle's confirm of an instance, or that it ended. */
#define NAME_SIZE	256

static const char *
confirm_name(const char *hash, const char *id, char name[NAME_SIZE])
{
	(void) snprintf(name, NAME_SIZE, "%s.%s", hash, id);
	return name;
}

/* The victim's instance has ended it; "id" may be "", for a prefix. */
static const char *
ended_name(const char *hash, const char *id, char name[NAME_SIZE])
{
	(void) snprintf(name, NAME_SIZE, ENDED "%s.%s", hash, id);
	return name;
}

/*
 * Is this the name of a text: <id>-<number>?  Then *len is the length of the
 * id.
 */
static bool
is_text_name(const char *name, int *len)
{
	const char *dash = strrchr(name, '-');

	if (dash == NULL || dash == name || strlen(dash + 1) != 10 ||
		strspn(dash + 1, "0123456789") != 10 || dash - name > NAME_SIZE / 2)
		return false;
	*len = (int) (dash - name);
	return true;
}

/* Is this the name of a text of an instance? */
bool
deadlock_is_text(const char *name)
{
	int			len;

	return is_text_name(name, &len);
}

static bool
is_own_text(const Deadlocks *d, const char *name)
{
	int			len;

	return is_text_name(name, &len) && (int) strlen(d->id) == len &&
		strncmp(name, d->id, (size_t) len) == 0;
}

/* Cycles and their records. */

static Cycle *
make_cycle(const DeadlockEdge *const *edges, int nedges, const char *hash)
{
	Cycle	   *cycle = memory_alloc(sizeof(Cycle));

	cycle->refs = 1;
	cycle->nedges = nedges;
	for (int i = 0; i < nedges; i++)
		cycle->edges[i] = copy_edge(edges[i], edges[i]->keeper);
	cycle->victim = find_victim(edges, nedges);
	cycle->requeue = !is_unmarked(edges[cycle->victim]);
	memcpy(cycle->hash, hash, sizeof(cycle->hash));
	return cycle;
}

static void
free_cycle(Cycle *cycle)
{
	if (cycle == NULL || --cycle->refs > 0)
		return;
	for (int i = 0; i < cycle->nedges; i++)
		free(cycle->edges[i]);
	free(cycle);
}

static Record *
find_record(const Deadlocks *d, const char *hash)
{
	for (int i = 0; i < d->nrecords; i++)
		if (strncmp(d->records[i]->cycle->hash, hash, DEADLOCK_HASH) == 0)
			return d->records[i];
	return NULL;
}

static bool
has_edge(const Cycle *cycle, const DeadlockEdge *edge)
{
	for (int i = 0; i < cycle->nedges; i++)
		if (compare_edges(cycle->edges[i], edge) == 0)
			return true;
	return false;
}

static void
add_outcome(Deadlocks *d, Cycle *cycle, bool verdict)
{
	d->outcomes = memory_grow(d->outcomes, d->noutcomes, sizeof(Cycle *));
	d->outcomes[d->noutcomes++] = cycle;
	cycle->refs++;
	cycle->verdict = verdict;
}

/* Make it due at this time, if it is not earlier. */
static void
due(int64_t *when, int64_t at)
{
	if (at < *when)
		*when = at;
}

/* Pass an event to a cycle, and do what the table says. */
static void
step(Deadlocks *d, Record *record, DeadlockEvent event, int64_t now)
{
	DeadlockState old = record->state;
	char		name[NAME_SIZE];
	unsigned	todo;

	record->state = deadlock_step(old, event, &todo);
	confirm_name(record->cycle->hash, d->id, name);
	if (ZK_MUTATED(ZK_CYCLE_GIVES_UP) && event == DEADLOCK_PASSED)
		todo |= DEADLOCK_RETRACT;
	if (todo & DEADLOCK_CONFIRM)
	{
		Request    *create = send(d, REQUEST_CREATE, name, FOR_CONFIRM, 0);

		create->exact = true;
		record->confirm = true;
		record->until = now + 2 * d->timeout;
		due(&d->scan_at, now + d->timeout / 4);
	}
	if ((todo & DEADLOCK_RETRACT) && record->confirm)
	{
		(void) send(d, REQUEST_DELETE, name, FOR_NOTHING, 0);
		record->confirm = false;
	}
	if (todo & DEADLOCK_ACT)
		send_act(d, record);
	if (todo & (DEADLOCK_VERDICT | DEADLOCK_SHOW))
		add_outcome(d, record->cycle, (todo & DEADLOCK_VERDICT) != 0);
	if (todo & DEADLOCK_VERDICT)
		record->ended = true;
	if ((todo & DEADLOCK_REMOVE) && record->ended)
		(void) send(d, REQUEST_DELETE,
					ended_name(record->cycle->hash, d->id, name), FOR_NOTHING,
					0);
	if (event == DEADLOCK_CUT)
	{
		record->left |= record->confirm;
		record->confirm = false;
	}
	if (record->state == old)
		return;
	if (record->state == DEADLOCK_ENDED && event == DEADLOCK_SEEN)
		record->until = now + 2 * KEPT * d->timeout;	/* longer than that is */
	else if (record->state == DEADLOCK_TOLD || event == DEADLOCK_DONE)
		record->until = now + KEPT * d->timeout;
	else if (record->state != DEADLOCK_CONFIRMED)
		record->until = NEVER;
}

/* Forget the records of state NONE. */
static void
sweep(Deadlocks *d)
{
	int			n = 0;

	for (int i = 0; i < d->nrecords; i++)
		if (d->records[i]->state == DEADLOCK_NONE)
		{
			free_cycle(d->records[i]->cycle);
			free(d->records[i]);
		}
		else
			d->records[n++] = d->records[i];
	d->nrecords = n;
}

/* An edge of ours is published no more: retract what confirms it. */
static void
edge_ended(Deadlocks *d, const DeadlockEdge *edge, int64_t now)
{
	for (int i = 0; i < d->nrecords; i++)
		if (has_edge(d->records[i]->cycle, edge))
			step(d, d->records[i], DEADLOCK_CHANGED, now);
}

/* Publishing: our texts. */

static bool
is_written(const OwnEdge *own, int text)
{
	return own->text == text && !own->acted && !own->gone;
}

static char *
render(Deadlocks *d, int text)
{
	const DeadlockEdge **edges =
		memory_alloc((size_t) d->nown * sizeof(*edges));
	char	   *data = memory_alloc(DEADLOCK_TEXT_BYTES + 1);
	int			n = 0;

	for (int i = 0; i < d->nown; i++)
		if (is_written(&d->own[i], text))
			edges[n++] = d->own[i].edge;
	sort(edges, n, sizeof(*edges), compare_for_text);
	d->texts[text].nedges = n;
	d->texts[text].bytes = deadlock_write(d->instance, edges, n, data,
										  DEADLOCK_TEXT_BYTES + 1);
	free(edges);
	return data;
}

/* Write a text, or create it. */
static void
write_text(Deadlocks *d, int number, Purpose purpose, int64_t now)
{
	OwnText    *text = &d->texts[number];
	char	   *data = render(d, number);
	char		prefix[NAME_SIZE];
	Request    *request;

	if (text->node == NULL)
	{
		(void) send(d, REQUEST_MKDIRS, NULL, FOR_NOTHING, 0);
		(void) snprintf(prefix, sizeof(prefix), "%s-", d->id);
		request = send(d, REQUEST_CREATE, prefix, FOR_CREATE, number);
		text->creating = true;
	}
	else
	{
		request = send(d, REQUEST_SET, text->node, purpose, number);
		text->version++;
	}
	set_data(d, request, data);
	free(data);
	text->dirty = false;
	if (text->nedges == 0)
		text->empty_since = now;
}

/* Write what has changed, but nothing new. */
static void
write_dirty(Deadlocks *d, int64_t now)
{
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		if (d->texts[i].dirty && d->texts[i].node != NULL)
			write_text(d, i, FOR_SET, now);
}

static void
remove_own(Deadlocks *d, bool (*which) (const OwnEdge *own, uint64_t arg),
			uint64_t arg, int64_t now)
{
	int			n = 0;

	for (int i = 0; i < d->nown; i++)
	{
		OwnEdge		own = d->own[i];

		if (which(&own, arg))
		{
			d->texts[own.text].dirty = true;
			if (!own.gone)
				edge_ended(d, own.edge, now);
			if (!own.acted)
			{
				free(own.edge);
				continue;
			}
			own.gone = true;
		}
		d->own[n++] = own;
	}
	d->nown = n;
}

static bool
is_of_generation(const OwnEdge *own, uint64_t generation)
{
	return own->edge->from.generation == generation ||
		own->edge->to.generation == generation;
}

static bool
is_in_text(const OwnEdge *own, uint64_t text)
{
	return own->text == (int) text;
}

static bool
is_gone(const OwnEdge *own, uint64_t arg)
{
	(void) arg;
	return own->gone;
}

static int
compare_own(const void *a, const void *b)
{
	return compare_edges(((const OwnEdge *) a)->edge,
						 ((const OwnEdge *) b)->edge);
}

static int
compare_own_ends(const void *a, const void *b)
{
	return compare_ends(((const OwnEdge *) a)->edge,
						((const OwnEdge *) b)->edge);
}

/* That edge if it is published, or any with its ends. */
static OwnEdge *
find_own(const Deadlocks *d, const DeadlockEdge *edge, bool exactly)
{
	OwnEdge		key = {.edge = (DeadlockEdge *) (uintptr_t) edge};

	return d->nown == 0 ? NULL :
		bsearch(&key, d->own, (size_t) d->nown, sizeof(OwnEdge),
				exactly ? compare_own : compare_own_ends);
}

/* The next line of a text has this many bytes at most. */
static int
edge_bytes(const DeadlockEdge *edge, bool wait)
{
	char		line[2 * DEADLOCK_LINE_BYTES];
	Writer		writer = {.data = line,.size = sizeof(line)};
	int			len;

	put_wait(&writer, edge, true);
	len = writer.len;
	put_keep(&writer, edge);
	if (writer.full || len > DEADLOCK_LINE_BYTES ||
		writer.len - len > DEADLOCK_LINE_BYTES)
		return DEADLOCK_TEXT_BYTES;
	return wait ? writer.len : writer.len - len;
}

/* Put a new edge into the first text that has room; false: none has. */
static bool
place(Deadlocks *d, const DeadlockEdge *edge, const DeadlockEdge *last,
	  int *last_text)
{
	bool		same = last != NULL && compare_waits(last, edge) == 0;

	for (int i = 0; i < DEADLOCK_TEXTS; i++)
	{
		OwnText    *text = &d->texts[i];
		int			bytes = edge_bytes(edge, !same || i != *last_text);

		if (text->node == NULL && !text->dirty)
			text->bytes = (int) strlen(HEADER) +
				3 * (int) strlen(d->instance) + 4;
		if (text->bytes + bytes > DEADLOCK_TEXT_BYTES)
			continue;
		text->bytes += bytes;
		text->dirty = true;
		d->own = memory_grow(d->own, d->nown, sizeof(OwnEdge));
		d->own[d->nown].edge = copy_edge(edge, edge->keeper);
		d->own[d->nown++].text = i;
		*last_text = i;
		return true;
	}
	return false;
}

static bool
is_creating(const Deadlocks *d)
{
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		if (d->texts[i].creating)
			return true;
	return false;
}

/* Publish the edges that are not: seldom, all at a time. */
static void
publish_new(Deadlocks *d, const DeadlockEdge **new, int n, int64_t now)
{
	const DeadlockEdge *last = NULL;
	int64_t		pause = 10 * MS * d->ninstances;
	int			text = -1;

	if (n == 0 || is_creating(d) || d->acting)
		return;					/* the answer scans again */
	if (now < d->write_at && !ZK_MUTATED(ZK_CYCLE_WRITES_AT_ONCE))
	{
		due(&d->scan_at, d->write_at);
		return;
	}
	sort(new, n, sizeof(*new), compare_for_text);
	for (int i = 0; i < n; i++)
	{
		if (!place(d, new[i], last, &text))
			complain(d, DEADLOCK_TEXT_FULL);
		else
			last = new[i];
	}
	sort(d->own, d->nown, sizeof(OwnEdge), compare_own);
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		if (d->texts[i].dirty)
		{
			write_text(d, i, FOR_NEW_SET, now);
			d->nwriting++;
		}
	d->write_at = now + (d->timeout > pause ? d->timeout : pause);
	due(&d->look_at, now + 5 * d->timeout);
}

/* Looking: what all tell. */

static void
end_look(Deadlocks *d)
{
	for (int i = 0; i < d->nread; i++)
	{
		free(d->read[i].edges);
		free(d->read[i].memory);
	}
	free(d->read);
	d->read = NULL;
	d->nread = d->read_bytes = d->read_edges = 0;
	free_names(&d->names, &d->nnames);
	free_names(&d->unread, &d->nunread);
	d->next_unread = 0;
	d->partly = false;
	d->look = LOOK_NONE;
}

static void
look(Deadlocks *d)
{
	if (!d->loaded || (d->nown == 0 && d->nrecords == 0))
		return;
	if (d->look != LOOK_NONE)
	{
		d->look_again = true;
		return;
	}
	d->look_again = false;
	d->look = LOOK_LISTING;
	(void) send(d, d->watched ? REQUEST_CHILDREN : REQUEST_LIST, NULL,
				FOR_LIST, 0);
	d->watched = true;
}

/* Get texts, some at a time; when all are read, have a scan judge them. */
static void
read_texts(Deadlocks *d)
{
	while (d->next_unread < d->nunread && d->ngets < DEADLOCK_GETS)
	{
		char	   *node = d->unread[d->next_unread];
		int			len = 0;

		(void) is_text_name(node, &len);
		(void) send(d, REQUEST_GET, node, FOR_TEXT, d->next_unread++);
		node[len] = '\0';
		d->ngets++;
	}
	if (d->ngets == 0)
	{
		d->look = LOOK_READ;
		d->wants_scan = true;
	}
}

/* Which deadlocks have been ended? */
static void
note_ended(Deadlocks *d, int64_t now)
{
	char		name[NAME_SIZE];

	for (int i = 0; i < d->nrecords; i++)
	{
		Record	   *record = d->records[i];

		const Cycle *cycle = record->cycle;

		/* ended by a worker that has gone with the verdict: once more */
		if (is_listed(d, ended_name(cycle->hash,
									cycle->edges[cycle->victim]->teller,
									name)))
			step(d, record, DEADLOCK_SEEN, now);
		else if (record->state == DEADLOCK_ENDED && !record->ended)
			step(d, record, DEADLOCK_OVER, now);
	}
	sweep(d);
}

static void
on_listed(Deadlocks *d, const RequestAnswer *answer, int64_t now)
{
	const char *last = "";
	int			last_len = 0;
	int			len;

	d->ninstances = 0;
	d->look = LOOK_READING;
	if (answer->result != REQUEST_OK)
		d->watched = false;
	for (int i = 0; answer->result == REQUEST_OK && i < answer->nchildren; i++)
	{
		const char *name = answer->children[i];

		if (strlen(name) >= NAME_SIZE)
			continue;
		if (!is_text_name(name, &len))
			add_name(&d->names, &d->nnames, name);
		else if (d->nunread < DEADLOCK_CHILDREN)
			add_name(&d->unread, &d->nunread, name);
		else
			d->partly = true;
	}
	sort(d->names, d->nnames, sizeof(char *), compare_names);
	sort(d->unread, d->nunread, sizeof(char *), compare_names);
	note_ended(d, now);
	for (int i = 0; i < d->nunread; i++)
	{
		(void) is_text_name(d->unread[i], &len);
		if (len != last_len || strncmp(d->unread[i], last, (size_t) len) != 0)
			d->ninstances++;
		last = d->unread[i];
		last_len = len;
	}
	read_texts(d);
}

static void
on_text(Deadlocks *d, const RequestAnswer *answer, int number)
{
	DeadlockText text;

	d->ngets--;
	if (answer->result != REQUEST_OK)
		d->partly = d->partly || answer->result != REQUEST_NO_NODE;
	else if (d->read_bytes + answer->data_len > DEADLOCK_READ_BYTES ||
			 d->read_edges > DEADLOCK_READ_EDGES ||
			 answer->data_len > DEADLOCK_TEXT_BYTES)
		d->partly = true;
	else if (deadlock_parse(d->unread[number], answer->data,
							answer->data_len, &text))
	{
		d->read = memory_grow(d->read, d->nread, sizeof(DeadlockText));
		d->read[d->nread++] = text;
		d->read_bytes += answer->data_len;
		d->read_edges += text.nedges;
	}
	read_texts(d);
}

/* Confirming and acting: what a scan judges behind a look. */

/* The skip of a search: what we need not confirm. */
static bool
is_known(const char *hash, void *arg)
{
	const Deadlocks *d = arg;
	const Record *record = find_record(d, hash);
	char		name[NAME_SIZE];

	if (record != NULL)
		return record->state != DEADLOCK_TOLD &&
			record->state != DEADLOCK_CONFIRMED;
	return d->nnames > 0 &&
		bsearch(ended_name(hash, "", name), d->names, (size_t) d->nnames,
				sizeof(char *), compare_prefix) != NULL;
}

/* The record of a cycle; NULL: there are too many. */
static Record *
enter_cycle(Deadlocks *d, const DeadlockEdge *const *edges, int nedges,
			const char *hash, int64_t now)
{
	Record	   *record = find_record(d, hash);

	if (record != NULL)
		return record;
	for (int i = 0; i < d->nrecords && d->nrecords >= DEADLOCK_CYCLES; i++)
	{
		step(d, d->records[i], DEADLOCK_OVER, now);
		sweep(d);
	}
	if (d->nrecords >= DEADLOCK_CYCLES)
		return NULL;
	d->records = memory_grow(d->records, d->nrecords, sizeof(Record *));
	record = d->records[d->nrecords++] = memory_alloc(sizeof(Record));
	record->state = DEADLOCK_TOLD;
	record->cycle = make_cycle(edges, nedges, hash);
	record->until = NEVER;
	return record;
}

/*
 * Which edges does a look have?  Of our own those that are published and were
 * found by the scan.  Returns them, sorted, and their number.
 */
static const DeadlockEdge **
gather(Deadlocks *d, int *n)
{
	const DeadlockEdge **edges =
		memory_alloc((size_t) d->read_edges * sizeof(*edges));

	*n = 0;
	for (int i = 0; i < d->nread; i++)
		for (int j = 0; j < d->read[i].nedges; j++)
		{
			const DeadlockEdge *edge = &d->read[i].edges[j];

			if (strcmp(edge->teller, d->id) == 0)
			{
				const OwnEdge *own = find_own(d, edge, true);

				if (own == NULL || own->acted)
					continue;
				edge = own->edge;
			}
			edges[(*n)++] = edge;
		}
	if (d->nrecords > 0 && *n > 0)
		sort(edges, *n, sizeof(*edges), compare_edge_pointers);
	return edges;
}

/*
 * Are the edges of a cycle still published?  The writers that keep its readers
 * may be others than before.
 */
static bool
refresh(Cycle *cycle, const DeadlockEdge **edges, int nedges)
{
	for (int i = 0; i < cycle->nedges; i++)
	{
		DeadlockEdge *edge = cycle->edges[i];
		const DeadlockEdge *const *found = nedges == 0 ? NULL :
			bsearch(&edge, edges, (size_t) nedges, sizeof(*edges),
					compare_edge_pointers);

		if (found == NULL)
			return false;
		if (((*found)->keeper == NULL) != (edge->keeper == NULL) ||
			(edge->keeper && strcmp((*found)->keeper, edge->keeper) != 0))
		{
			cycle->edges[i] = copy_edge(edge, (*found)->keeper);
			free(edge);
		}
	}
	return true;
}

static bool
is_confirmed(const Record *record)
{
	return record->state == DEADLOCK_CONFIRMED ||
		record->state == DEADLOCK_LATE;
}

static bool
has_all_confirms(const Deadlocks *d, const Cycle *cycle)
{
	char		name[NAME_SIZE];

	for (int i = 0; i < cycle->nedges; i++)
		if (!is_listed(d, confirm_name(cycle->hash, cycle->edges[i]->teller,
									   name)))
			return false;
	return true;
}

/* May we act on a cycle, of whose edges all are published? */
static bool
may_act(const Deadlocks *d, const Record *record)
{
	const Cycle *cycle = record->cycle;

	return is_confirmed(record) && record->confirm && !record->missing &&
		!d->acting && !is_creating(d) &&
		strcmp(cycle->edges[cycle->victim]->teller, d->id) == 0 &&
		(has_all_confirms(d, cycle) || ZK_MUTATED(ZK_CYCLE_UNCONFIRMED));
}

/* A scan behind a look: our own edges are as "own" says. */
static void
judge(Deadlocks *d, int64_t now)
{
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];
	char		hash[DEADLOCK_HASH + 1];
	int			nedges;
	const DeadlockEdge **edges = gather(d, &nedges);
	int			n;

	for (int i = 0; i < d->nrecords; i++)
	{
		Record	   *record = d->records[i];
		bool		missing;

		if (!is_confirmed(record))
			continue;
		/* ended.<hash> may come behind a list: so it must be so twice */
		missing = !refresh(record->cycle, edges, nedges) && !d->partly;
		if (missing && record->missing)
			step(d, record, DEADLOCK_CHANGED, now);
		else if (missing)
			due(&d->look_at, now + d->timeout / 4);
		record->missing = missing;
	}
	sweep(d);
	n = deadlock_search(edges, nedges, d->id, is_known, d, cycle, hash);
	if (n > 0)
	{
		Record	   *record = enter_cycle(d, cycle, n, hash, now);

		if (record != NULL)
			step(d, record, DEADLOCK_SAME, now);
	}
	for (int i = 0; i < d->nrecords; i++)
		if (may_act(d, d->records[i]))
			step(d, d->records[i], DEADLOCK_COMPLETE, now);
	free(edges);
	if (d->partly)
		complain(d, DEADLOCK_NOT_READ);
	end_look(d);
	if (d->look_again)
		look(d);
}

/* A request of the act. */
static Request *
send_part(Deadlocks *d, RequestKind kind, const char *node, Purpose purpose)
{
	Request    *request = send(d, kind, node, purpose, 0);

	request->group = d->group;
	request->exact = true;
	return request;
}

/* The checks of the act: confirms of others, writers that keep readers. */
static void
send_checks(Deadlocks *d, const Cycle *cycle)
{
	char		name[NAME_SIZE];

	for (int i = 0; i < cycle->nedges; i++)
	{
		const DeadlockEdge *edge = cycle->edges[i];
		bool		first = strcmp(edge->teller, d->id) != 0;

		for (int j = 0; j < i && first; j++)
			first = strcmp(edge->teller, cycle->edges[j]->teller) != 0;
		if (first && !ZK_MUTATED(ZK_CYCLE_ACT_UNCHECKED))
			(void) send_part(d, REQUEST_CHECK,
							 confirm_name(cycle->hash, edge->teller, name),
							 FOR_PART);
		if (edge->keeper != NULL && strrchr(edge->keeper, '/') != NULL &&
			!ZK_MUTATED(ZK_CYCLE_KEEPER_UNCHECKED))
		{
			const char *slash = strrchr(edge->keeper, '/');
			Request    *check = send_part(d, REQUEST_CHECK, slash + 1,
										  FOR_PART);
			char	   *path = memory_copy(edge->keeper);

			path[slash - edge->keeper] = '\0';
			d->sent[d->nsent - 1].path = path;
			check->path = path;
		}
	}
}

static bool
has_acted_edge(const Deadlocks *d, const Cycle *cycle)
{
	for (int i = 0; i < d->nown; i++)
		if (d->own[i].acted && has_edge(cycle, d->own[i].edge))
			return true;
	return false;
}

/* The multi that ends a cycle. */
static void
send_act(Deadlocks *d, Record *record)
{
	const DeadlockEdge *victim = record->cycle->edges[record->cycle->victim];
	char		name[NAME_SIZE];

	d->acting = record;
	d->group++;
	for (int i = 0; i < d->nown; i++)
		if (compare_vertices(&d->own[i].edge->to, &victim->to) == 0)
		{
			d->own[i].acted = true;
			d->texts[d->own[i].text].acted = true;
		}
	send_checks(d, record->cycle);
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		if (d->texts[i].acted)
		{
			OwnText    *text = &d->texts[i];
			char	   *data = render(d, i);
			Request    *set = send_part(d, REQUEST_SET, text->node,
										FOR_PART);

			set->has_version = true;
			set->version = text->version++;
			set_data(d, set, data);
			free(data);
			text->dirty = false;
		}
	for (int i = 0; i < d->nrecords; i++)
		if (d->records[i]->confirm &&
			has_acted_edge(d, d->records[i]->cycle))
			(void) send_part(d, REQUEST_DELETE,
							 confirm_name(d->records[i]->cycle->hash, d->id,
										  name), FOR_PART);
	(void) send_part(d, REQUEST_CREATE,
					 ended_name(record->cycle->hash, d->id, name), FOR_ACT);
}

/* The act was carried out: nothing of the victim is published any more. */
static void
act_done(Deadlocks *d, Record *record, int64_t now)
{
	for (int i = 0; i < d->nrecords; i++)
		if (has_acted_edge(d, d->records[i]->cycle))
			d->records[i]->confirm = false;
	step(d, record, DEADLOCK_DONE, now);
	for (int i = 0; i < d->nown; i++)
		if (d->own[i].acted)
		{
			d->own[i].acted = false;
			if (!d->own[i].gone)
				edge_ended(d, d->own[i].edge, now);
			d->own[i].gone = true;
		}
	remove_own(d, is_gone, 0, now);
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		d->texts[i].dirty = d->texts[i].acted = false;
	d->look_at = now;
}

/* It was not: what it removed is still there, or was written behind it. */
static void
act_failed(Deadlocks *d, Record *record, int64_t now)
{
	for (int i = 0; i < d->nown; i++)
		d->own[i].acted = false;
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		if (d->texts[i].acted)
		{
			d->texts[i].version--;
			d->texts[i].acted = false;
			d->texts[i].dirty = true;
		}
	step(d, record, DEADLOCK_FAILED, now);
	remove_own(d, is_gone, 0, now);
	write_dirty(d, now);
	due(&d->look_at, now + 50 * MS);
}

static void
on_acted(Deadlocks *d, bool done, int64_t now)
{
	Record	   *record = d->acting;

	d->acting = NULL;
	if (done)
		act_done(d, record, now);
	else
		act_failed(d, record, now);
	d->wants_scan = true;
}

/*-------------------------------------------------------------------------
 * What the worker calls
 *-------------------------------------------------------------------------
 */

/*
 * deadlock_make
 *		The part of one instance: "dir" is %waits of the worker's root, "id" a
 *		name that no other instance has and this one never again, "instance"
 *		what people call it, "timeout_us" deadlock_timeout.
 */
Deadlocks *
deadlock_make(const char *dir, const char *id, const char *instance,
			  int64_t timeout_us)
{
	Deadlocks  *d = memory_alloc(sizeof(Deadlocks));

	d->dir = memory_copy(dir);
	d->id = memory_copy(id);
	d->instance = memory_copy(instance);
	d->timeout = timeout_us;
	d->scan_at = d->look_at = NEVER;
	d->write_at = INT64_MIN;
	return d;
}

/* Take the request with this serial from those that are not answered. */
static bool
take_pending(Deadlocks *d, uint32_t serial, Pending *pending)
{
	for (int i = 0; i < d->npending; i++)
		if (d->pending[i].serial == serial)
		{
			*pending = d->pending[i];
			d->pending[i] = d->pending[--d->npending];
			return true;
		}
	return false;
}

/* Forget our texts, and what requests that are out are for. */
static void
forget_connection(Deadlocks *d)
{
	Pending		pending;

	for (int i = d->next_sent; i < d->nsent; i++)
		if (take_pending(d, d->sent[i].request.serial, &pending))
			free(pending.node);
	for (int i = 0; i < d->nsent; i++)
		free_sent(&d->sent[i]);	/* of those taken out, the last one's */
	d->nsent = d->next_sent = 0;
	for (int i = 0; i < d->npending; i++)
	{
		free(d->pending[i].node);
		d->pending[i].node = NULL;
		d->pending[i].purpose = FOR_BEFORE;
	}
	for (int i = 0; i < d->nown; i++)
		free(d->own[i].edge);
	d->nown = 0;
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		free(d->texts[i].node);
	memset(d->texts, 0, sizeof(d->texts));
	end_look(d);
	d->nwriting = d->ngets = 0;
	d->loading = d->loaded = d->watched = d->look_again = false;
	d->acting = NULL;
	d->wants_scan = d->connected = false;
	d->scan_at = d->look_at = NEVER;
}

void
deadlock_free(Deadlocks *d)
{
	forget_connection(d);
	for (int i = 0; i < d->nrecords; i++)
	{
		free_cycle(d->records[i]->cycle);
		free(d->records[i]);
	}
	for (int i = 0; i < d->noutcomes; i++)
		free_cycle(d->outcomes[i]);
	free_cycle(d->shown);
	free(d->outcomes);
	free(d->records);
	free(d->own);
	free(d->pending);
	free(d->sent);
	free(d->dir);
	free(d->id);
	free(d->instance);
	free(d);
}

/*
 * deadlock_disconnect
 *		The connection is lost: what was sent has been done, or not, or is
 *		sent once there is another one.
 */
void
deadlock_disconnect(Deadlocks *d)
{
	for (int i = 0; i < d->nrecords; i++)
		step(d, d->records[i], DEADLOCK_CUT, 0);
	forget_connection(d);
}

/* Change deadlock_timeout. */
void
deadlock_set_timeout(Deadlocks *d, int64_t timeout_us)
{
	d->timeout = timeout_us;
}

/* The session is over, too: what was sent is not answered any more. */
void
deadlock_end(Deadlocks *d)
{
	deadlock_disconnect(d);
	d->npending = 0;
}

/* List what there is, once all that was sent on other connections is done. */
static void
load(Deadlocks *d)
{
	if (!d->connected || d->loading || d->loaded)
		return;
	for (int i = 0; i < d->npending; i++)
		if (d->pending[i].purpose == FOR_BEFORE)
			return;
	d->loading = true;
	(void) send(d, REQUEST_SEARCH, NULL, FOR_LOAD, 0);
}

/*
 * deadlock_connect
 *		There is a connection, of the session of before or of another one.
 *
 * Nothing is published before all of ours is deleted; our confirms are at
 * once, ahead of the deletes of contenders.  What was sent before and is not
 * answered may still create some of it: it is listed behind the last such
 * answer.
 */
void
deadlock_connect(Deadlocks *d, int64_t now)
{
	char		name[NAME_SIZE];

	deadlock_disconnect(d);
	d->connected = true;
	for (int i = 0; i < d->nrecords; i++)
	{
		Record	   *record = d->records[i];

		if (record->left)
			(void) send(d, REQUEST_DELETE,
						confirm_name(record->cycle->hash, d->id, name),
						FOR_NOTHING, 0);
		record->left = false;
		if (record->state == DEADLOCK_TOLD)
			record->until = now + KEPT * d->timeout;
	}
	load(d);
}

/*
 * What there is behind a barrier: was our act done?  Then delete all of ours,
 * but for ended.<hash> that we know of, which goes in its time.
 */
static void
on_loaded(Deadlocks *d, const RequestAnswer *answer, int64_t now)
{
	char		name[NAME_SIZE];

	for (int i = 0; answer->result == REQUEST_OK && i < answer->nchildren; i++)
		if (strlen(answer->children[i]) < NAME_SIZE)
			add_name(&d->names, &d->nnames, answer->children[i]);
	sort(d->names, d->nnames, sizeof(char *), compare_names);
	for (int i = 0; i < d->nrecords; i++)
		if (d->records[i]->state == DEADLOCK_SOUGHT)
			step(d, d->records[i],
				 is_listed(d, ended_name(d->records[i]->cycle->hash, d->id,
										 name)) ||
				 ZK_MUTATED(ZK_CYCLE_SOUGHT_IS_DONE) ?
				 DEADLOCK_DONE : DEADLOCK_FAILED, now);
	for (int i = 0; i < d->nnames; i++)
	{
		const char *child = d->names[i];
		const char *dot = strrchr(child, '.');

		if (is_own_text(d, child) ||
			(dot != NULL && strcmp(dot + 1, d->id) == 0 &&
			 !(strncmp(child, ENDED, strlen(ENDED)) == 0 &&
			   find_record(d, child + strlen(ENDED)) != NULL) &&
			 !ZK_MUTATED(ZK_CYCLE_LEFTOVERS_STAY)))
			(void) send(d, REQUEST_DELETE, child, FOR_NOTHING, 0);
	}
	free_names(&d->names, &d->nnames);
	d->write_at = now;
	d->loaded = true;
	d->wants_scan = true;
	look(d);
}

/* A text was created or written, or could not be. */
static void
on_written(Deadlocks *d, const RequestAnswer *answer, const Pending *pending,
		   int64_t now)
{
	OwnText    *text = &d->texts[pending->text];

	if (pending->purpose == FOR_CREATE)
		text->creating = false;
	if (answer->result != REQUEST_OK)
	{
		if (answer->result == REQUEST_REFUSED)
			complain(d, DEADLOCK_REFUSED);
		remove_own(d, is_in_text, (uint64_t) pending->text, now);
		free(text->node);
		memset(text, 0, sizeof(*text));
		due(&d->scan_at, d->write_at);
	}
	else if (pending->purpose == FOR_CREATE)
	{
		text->node = memory_copy(answer->node);
		text->version = 0;
	}
	write_dirty(d, now);
	if (pending->purpose == FOR_SET)
		return;
	if (--d->nwriting == 0)
	{
		d->wants_scan = true;
		if (!ZK_MUTATED(ZK_CYCLE_LOOKS_AHEAD))
			look(d);
	}
}

static void
on_confirm(Deadlocks *d, const RequestAnswer *answer, const char *node,
		   int64_t now)
{
	Record	   *record = find_record(d, node);

	if (answer->result == REQUEST_OK || record == NULL || !record->confirm)
		return;
	record->confirm = false;
	step(d, record, DEADLOCK_CHANGED, now);
}

/*
 * deadlock_answer
 *		An answer of ZooKeeper, or the event of the watch.
 *
 * Of a group the last request's answer counts, and only that has a serial.
 * After REQUEST_UNKNOWN, deadlock_disconnect() is called.
 */
void
deadlock_answer(Deadlocks *d, const RequestAnswer *answer, int64_t now)
{
	Pending		pending;

	if (answer->event != REQUEST_DONE)
	{
		d->watched = false;
		look(d);
		return;
	}
	if (!take_pending(d, answer->serial, &pending))
		return;
	if (answer->result != REQUEST_UNKNOWN)
		switch (pending.purpose)
		{
			case FOR_LOAD:
				on_loaded(d, answer, now);
				break;
			case FOR_CREATE:
			case FOR_SET:
			case FOR_NEW_SET:
				on_written(d, answer, &pending, now);
				break;
			case FOR_LIST:
				on_listed(d, answer, now);
				break;
			case FOR_TEXT:
				on_text(d, answer, pending.text);
				break;
			case FOR_CONFIRM:
				on_confirm(d, answer, pending.node, now);
				break;
			case FOR_ACT:
				on_acted(d, answer->result == REQUEST_OK, now);
				break;
			case FOR_PART:
			case FOR_NOTHING:
			case FOR_BEFORE:
				break;
		}
	free(pending.node);
	load(d);
	sweep(d);
}

static int
compare_own_edges(const void *a, const void *b)
{
	return compare_edges(a, b);
}

/* What is published, but not found, has ended; a keeper may be another. */
static void
compare_with_scan(Deadlocks *d, const DeadlockEdge *found, int nfound,
				  int64_t now)
{
	for (int i = 0; i < d->nown; i++)
	{
		OwnEdge    *own = &d->own[i];
		const DeadlockEdge *edge = nfound == 0 ? NULL :
			bsearch(own->edge, found, (size_t) nfound, sizeof(*found),
					compare_own_edges);

		if (edge == NULL && !own->gone && !ZK_MUTATED(ZK_CYCLE_NO_RESCAN))
		{
			own->gone = true;
			d->texts[own->text].dirty = true;
			edge_ended(d, own->edge, now);
		}
		else if (edge != NULL && strcmp(edge->keeper ? edge->keeper : "",
										own->edge->keeper ?
										own->edge->keeper : "") != 0)
		{
			DeadlockEdge *copy = copy_edge(own->edge, edge->keeper);

			free(own->edge);
			own->edge = copy;
			d->texts[own->text].dirty = true;
		}
	}
	remove_own(d, is_gone, 0, now);
	write_dirty(d, now);
}

/*
 * deadlock_scanned
 *		A scan, which began after the last call of any other function here.
 */
void
deadlock_scanned(Deadlocks *d, const DeadlockScan *scan, int64_t now)
{
	DeadlockEdge *found;
	const DeadlockEdge **new;
	int			n = 0;

	if (!d->loaded)
		return;
	found = memory_alloc((size_t) scan->nedges * sizeof(DeadlockEdge));
	new = memory_alloc((size_t) scan->nedges * sizeof(*new));
	if (scan->nedges > 0)
		memcpy(found, scan->edges, (size_t) scan->nedges * sizeof(*found));
	for (int i = 0; i < scan->nedges; i++)
	{
		found[i].teller = d->id;
		found[i].instance = d->instance;
	}
	sort(found, scan->nedges, sizeof(*found), compare_own_edges);
	d->wants_scan = false;
	d->scan_at = scan->waits ? now + d->timeout : NEVER;
	compare_with_scan(d, found, scan->nedges, now);
	if (d->look == LOOK_READ)
		judge(d, now);
	for (int i = 0; i < scan->nedges; i++)
		if (find_own(d, &found[i], false) == NULL &&
			(i == 0 || compare_ends(&found[i - 1], &found[i]) != 0))
			new[n++] = &found[i];
	if (!scan->listing)
		publish_new(d, new, n, now);
	for (int i = 0; i < d->nrecords; i++)
		if (is_confirmed(d->records[i]))
			due(&d->scan_at, now + d->timeout / 4);
	free(found);
	free(new);
	sweep(d);
}

/*
 * deadlock_over
 *		A hold or a wait of this instance has ended, by its generation.
 *
 * The requests that come of it must go ahead of the delete of its contender.
 */
void
deadlock_over(Deadlocks *d, uint64_t generation, int64_t now)
{
	if (!d->loaded || ZK_MUTATED(ZK_CYCLE_ENDS_LATE))
		return;
	remove_own(d, is_of_generation, generation, now);
	write_dirty(d, now);
	sweep(d);
}

/* When is a text deleted? */
static int64_t
text_end(const Deadlocks *d, const OwnText *text)
{
	return text->node != NULL && text->nedges == 0 && !text->acted ?
		text->empty_since + KEPT * d->timeout : NEVER;
}

/* What is due by time.  An emptied text is deleted when it was not needed. */
void
deadlock_tick(Deadlocks *d, int64_t now)
{
	if (!d->loaded)
		return;
	for (int i = 0; i < d->nrecords; i++)
		if (d->records[i]->until <= now)
		{
			bool		passes = d->records[i]->state == DEADLOCK_CONFIRMED;

			step(d, d->records[i], passes ? DEADLOCK_PASSED : DEADLOCK_OVER,
				 now);
			if (passes)
				look(d);
		}
	sweep(d);
	if (d->scan_at <= now)
	{
		d->scan_at = NEVER;
		d->wants_scan = true;
	}
	if (d->look_at <= now)
	{
		d->look_at = d->nown > 0 || d->nrecords > 0 ? now + 5 * d->timeout :
			NEVER;
		look(d);
	}
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		if (text_end(d, &d->texts[i]) <= now)
		{
			(void) send(d, REQUEST_DELETE, d->texts[i].node, FOR_NOTHING, 0);
			free(d->texts[i].node);
			memset(&d->texts[i], 0, sizeof(OwnText));
		}
}

/*
 * deadlock_is_loading
 *		May %waits still have confirms from before this connection, or of the
 *		worker before?
 *
 * As long as it may, no contender may be deleted: with such a confirm, another
 * instance could end a deadlock after the contender's wait has ended.
 */
bool
deadlock_is_loading(const Deadlocks *d)
{
	return d->connected && !d->loaded && !ZK_MUTATED(ZK_CYCLE_LOADS_BEHIND);
}

/* Is a scan to be made, as soon as possible? */
bool
deadlock_wants_scan(const Deadlocks *d)
{
	return d->loaded && d->wants_scan;
}

/* When is deadlock_tick() due?  INT64_MAX: not by time. */
int64_t
deadlock_wake(const Deadlocks *d)
{
	int64_t		at = NEVER;

	if (!d->loaded)
		return NEVER;
	for (int i = 0; i < d->nrecords; i++)
		due(&at, d->records[i]->until);
	due(&at, d->scan_at);
	due(&at, d->look_at);
	for (int i = 0; i < DEADLOCK_TEXTS; i++)
		due(&at, text_end(d, &d->texts[i]));
	return at;
}

/*
 * deadlock_request
 *		Take out the next request; false: there is none.  Its strings last
 *		until the next call of any function here.
 */
bool
deadlock_request(Deadlocks *d, Request *request)
{
	if (d->next_sent > 0)
		free_sent(&d->sent[d->next_sent - 1]);
	if (d->next_sent == d->nsent)
	{
		d->next_sent = d->nsent = 0;
		return false;
	}
	*request = d->sent[d->next_sent++].request;
	return true;
}

/*
 * deadlock_outcome
 *		Take out a deadlock that was ended; false: there is none.  It lasts
 *		until the next call.
 */
bool
deadlock_outcome(Deadlocks *d, DeadlockOutcome *outcome)
{
	free_cycle(d->shown);
	d->shown = NULL;
	if (d->noutcomes == 0)
		return false;
	d->shown = d->outcomes[0];
	memmove(d->outcomes, d->outcomes + 1,
			(size_t) --d->noutcomes * sizeof(Cycle *));
	memcpy(outcome->hash, d->shown->hash, sizeof(outcome->hash));
	outcome->edges = (const DeadlockEdge *const *) d->shown->edges;
	outcome->nedges = d->shown->nedges;
	outcome->victim = d->shown->victim;
	outcome->verdict = d->shown->verdict;
	outcome->requeue = d->shown->requeue;
	return true;
}

/*
 * The edges of a cycle that is known, and how many they are; 0: it is not.  Of
 * "hash" the digits of one count.
 */
int
deadlock_cycle(const Deadlocks *d, const char *hash,
			   const DeadlockEdge *const **edges)
{
	const Record *record = find_record(d, hash);

	if (record == NULL)
		return 0;
	*edges = (const DeadlockEdge *const *) record->cycle->edges;
	return record->cycle->nedges;
}

/* Take out what the log is to say; each comes once. */
DeadlockComplaint
deadlock_complaint(Deadlocks *d)
{
	DeadlockComplaint complaint = d->complaint;

	d->complaint = DEADLOCK_NO_COMPLAINT;
	return complaint;
}
