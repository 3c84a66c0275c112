/*-------------------------------------------------------------------------
 *
 * graph.c
 *		The wait-for graph between instances, as far as it was read.
 *
 * A search begins with edges of this instance (graph_start), from an empty
 * graph: all zero.  The graph says what to read next (graph_next_read): the
 * children of a lock directory, which show which contenders own the lock, and
 * the notes of these owners, which say what their holders wait for.  When
 * nothing is left to be read, waits.c looks for deadlocks in the graph.  For a
 * wait for a session (vertex.c) the session's znodes are read, in the %waits
 * of the root that the note with the wait belongs to.
 *
 * A directory with a contender whose number has no order is left out, and so
 * are reads beyond GRAPH_MAX_READS; each search begins with other notes.  Then
 * edges are missing, so a deadlock may be found later, or not at all, but no
 * false one is.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/graph.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/graph_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* A search begins this many notes behind the previous one; a prime. */
#define READS_STEP		127

/*
 * Which directory is to be read for a wait in the note of "from"?  If the wait
 * is for a session, fills in the vertex whose znodes count there, else "".
 * False if there is none.
 */
static bool
place_of(const char *from, const NoteWait *wait,
		 char directory[NOTE_VERTEX_SIZE], char session[VERTEX_SESSION_SIZE])
{
	session[0] = '\0';
	if (wait->kind != NOTE_WAIT_SESSION)
		return note_queue_of(wait, directory);
	return snprintf(session, VERTEX_SESSION_SIZE, "%s", wait->to) <
		VERTEX_SESSION_SIZE && vertex_waits_dir_of_owner(from, directory);
}

/* The chain of a path in a hash table (FNV-1a). */
static unsigned
chain_of(const char *path)
{
	uint32_t	hash = 2166136261U;

	for (; *path != '\0'; path++)
		hash = (hash ^ (unsigned char) *path) * 16777619U;
	return (hash ^ hash >> 16) % GRAPH_CHAINS;
}

static WaitDirectory *
find_directory(const WaitGraph *graph, const char *path, const char *session)
{
	int			i = graph->directory_chains[chain_of(path)] - 1;

	while (i >= 0 && (strcmp(graph->directories[i].path, path) != 0 ||
					  strcmp(graph->directories[i].session, session) != 0))
		i = graph->directories[i].next;
	return i < 0 ? NULL : &graph->directories[i];
}

/*
 * The directory in the graph that shows what a wait in the note of "from" is
 * for, or NULL.
 */
WaitDirectory *
graph_directory_of(const WaitGraph *graph, const char *from,
				   const NoteWait *wait)
{
	char		path[NOTE_VERTEX_SIZE];
	char		session[VERTEX_SESSION_SIZE];

	return place_of(from, wait, path, session) ?
		find_directory(graph, path, session) : NULL;
}

static WaitOwner *
find_owner(const WaitGraph *graph, const char *path)
{
	int			i = graph->owner_chains[chain_of(path)] - 1;

	while (i >= 0 && strcmp(graph->owners[i].path, path) != 0)
		i = graph->owners[i].next;
	return i < 0 ? NULL : &graph->owners[i];
}

/*
 * Put the last one of n elements of an array at the head of its chain.
 * Returns the index of the next one in the chain, or -1.
 */
static int
chain_last(int chains[GRAPH_CHAINS], const char *path, int n)
{
	int		   *head = &chains[chain_of(path)];
	int			next = *head - 1;

	*head = n;
	return next;
}

/* Have the directory of a wait read. */
static void
want_directory(WaitGraph *graph, const char *from, const NoteWait *wait)
{
	char		path[NOTE_VERTEX_SIZE];
	char		session[VERTEX_SESSION_SIZE];
	WaitDirectory *directory;

	if (!place_of(from, wait, path, session) ||
		wait->permits > GRAPH_MAX_PERMITS ||
		find_directory(graph, path, session) != NULL)
		return;
	graph->directories = memory_grow(graph->directories, graph->ndirectories,
									 sizeof(WaitDirectory));
	directory = &graph->directories[graph->ndirectories++];
	strcpy(directory->path, path);
	strcpy(directory->session, session);
	directory->permits = wait->permits;
	directory->next = chain_last(graph->directory_chains, path,
								 graph->ndirectories);
}

/* Have the note of an owner read. */
static void
want_owner(WaitGraph *graph, const WaitDirectory *directory,
		   const WaitContender *contender)
{
	char		path[2 * NOTE_VERTEX_SIZE];
	WaitOwner  *owner;

	if (snprintf(path, sizeof(path), "%s/%s", directory->path,
				 contender->name) >= NOTE_VERTEX_SIZE ||
		find_owner(graph, path) != NULL)
		return;
	graph->owners = memory_grow(graph->owners, graph->nowners,
								sizeof(WaitOwner));
	owner = &graph->owners[graph->nowners++];
	strcpy(owner->path, path);
	owner->next = chain_last(graph->owner_chains, path, graph->nowners);
}

/*
 * The number of first contenders in a directory that own the lock, or have one
 * of the permits; 0 if permits are free.  All znodes of a session count.
 */
static int
count_owners(const WaitDirectory *directory)
{
	int			permits = directory->permits;
	int			n = 0;

	if (directory->session[0] != '\0')
		return directory->ncontenders;
	if (permits > 0)
		return directory->ncontenders < permits ? 0 : permits;
	while (n < directory->ncontenders && directory->contenders[n].shared)
		n++;
	return n == 0 && directory->ncontenders > 0 ? 1 : n;
}

/* Have the notes of a directory's owners read. */
static void
want_owners(WaitGraph *graph, const WaitDirectory *directory)
{
	int			n = count_owners(directory);

	/* nobody waits for them if there are no others behind them */
	if (directory->permits == 0 && directory->session[0] == '\0' &&
		n == directory->ncontenders)
		return;
	for (int i = 0; i < n; i++)
		want_owner(graph, directory, &directory->contenders[i]);
}

static int
compare_contenders(const void *a, const void *b)
{
	const WaitContender *one = a;
	const WaitContender *other = b;

	if (one->sequence != other->sequence)
		return znode_before(one->sequence, other->sequence) ? -1 : 1;
	return strcmp(one->name, other->name);
}

/* The index of a contender in its directory, or -1. */
int
graph_place_of(const WaitDirectory *directory, const char *name)
{
	ZnodeContender parsed;
	WaitContender key = {.name = (char *) name};
	const WaitContender *found;

	if (directory->ncontenders == 0 || !znode_parse_contender(name, &parsed))
		return -1;
	key.sequence = parsed.sequence;
	found = bsearch(&key, directory->contenders, directory->ncontenders,
					sizeof(WaitContender), compare_contenders);
	return found == NULL ? -1 : (int) (found - directory->contenders);
}

static void
forget_contenders(WaitDirectory *directory)
{
	for (int i = 0; i < directory->ncontenders; i++)
		free(directory->contenders[i].name);
	free(directory->contenders);
	directory->contenders = NULL;
	directory->ncontenders = 0;
}

/* Free what a graph has allocated, and make it empty for the next search. */
void
graph_free(WaitGraph *graph)
{
	for (int i = 0; i < graph->ndirectories; i++)
		forget_contenders(&graph->directories[i]);
	for (int i = 0; i < graph->nowners; i++)
		free(graph->owners[i].waits);
	free(graph->directories);
	free(graph->owners);
	memset(graph, 0, sizeof(*graph));
}

/* Search from this edge, too. */
void
graph_start(WaitGraph *graph, const WaitEdge *edge)
{
	want_directory(graph, edge->from, &edge->wait);
}

/*
 * graph_next_read
 *		What to read next; false if there is nothing for now.
 *
 * Several reads may be under way at a time.  Their answers may show more to
 * read.
 */
bool
graph_next_read(WaitGraph *graph, WaitRead *read)
{
	if (graph->nreads == GRAPH_MAX_READS)
		return false;
	for (int i = 0; i < graph->nowners; i++)
	{
		WaitOwner  *owner = &graph->owners[(graph->turn * READS_STEP + i) %
										   (unsigned) graph->nowners];

		if (!owner->asked)
		{
			owner->asked = true;
			read->kind = GRAPH_READ_NOTE;
			strcpy(read->path, owner->path);
			graph->nreads++;
			return true;
		}
	}
	for (int i = 0; i < graph->ndirectories; i++)
		if (!graph->directories[i].asked)
		{
			read->kind = GRAPH_READ_CHILDREN;
			strcpy(read->path, graph->directories[i].path);
			graph->nreads++;

			/* a directory is read once for several sessions */
			for (int j = i; j < graph->ndirectories; j++)
				if (strcmp(graph->directories[j].path, read->path) == 0)
					graph->directories[j].asked = true;
			return true;
		}
	return false;
}

/*
 * Fill in a contender by the name of a child; false if the child is none, or
 * not of the session in question.
 */
static bool
parse_child(const WaitDirectory *directory, const char *child,
			WaitContender *contender)
{
	ZnodeContender parsed;
	VertexNode	node;

	memset(contender, 0, sizeof(*contender));
	if (directory->session[0] != '\0')
		return vertex_parse_node(child, &node) &&
			strcmp(node.vertex, directory->session) == 0;
	if (!znode_parse_contender(child, &parsed))
		return false;
	contender->sequence = parsed.sequence;
	contender->shared = parsed.shared && !znode_is_late(parsed.sequence);
	return true;
}

/* Fill in the children of a directory. */
static void
fill_directory(WaitGraph *graph, WaitDirectory *directory,
			   const char *const *children, int nchildren)
{
	directory->contenders = memory_alloc(nchildren * sizeof(WaitContender));
	for (int i = 0; i < nchildren; i++)
	{
		WaitContender *contender =
		&directory->contenders[directory->ncontenders];

		if (!parse_child(directory, children[i], contender))
			continue;
		contender->name = memory_copy(children[i]);
		directory->ncontenders++;
		if (znode_is_unordered(contender->sequence))
		{
			forget_contenders(directory);
			return;
		}
	}
	qsort(directory->contenders, directory->ncontenders,
		  sizeof(WaitContender), compare_contenders);
	want_owners(graph, directory);
}

/*
 * graph_add_children
 *		A directory has been read.  If it could not be read, this need not
 *		be called.
 */
void
graph_add_children(WaitGraph *graph, const char *path,
				   const char *const *children, int nchildren)
{
	for (int i = 0; i < graph->ndirectories; i++)
	{
		WaitDirectory *directory = &graph->directories[i];

		if (strcmp(directory->path, path) == 0 && directory->asked &&
			directory->contenders == NULL)
			fill_directory(graph, directory, children, nchildren);
	}
}

/* Remove a contender from a directory. */
static void
take_out(WaitGraph *graph, WaitDirectory *directory, const char *name)
{
	for (int i = 0; i < directory->ncontenders; i++)
		if (strcmp(directory->contenders[i].name, name) == 0)
		{
			free(directory->contenders[i].name);
			directory->ncontenders--;
			memmove(&directory->contenders[i], &directory->contenders[i + 1],
					(directory->ncontenders - i) * sizeof(WaitContender));
			want_owners(graph, directory);
			return;
		}
}

/* An owner that was read is not ephemeral: it was no contender. */
static void
pass_over(WaitGraph *graph, const char *path)
{
	char		directory[NOTE_VERTEX_SIZE];
	const char *name = vertex_split_path(path, directory);

	for (int i = 0; i < graph->ndirectories; i++)
		if (strcmp(graph->directories[i].path, directory) == 0)
			take_out(graph, &graph->directories[i], name);
}

/*
 * graph_add_note
 *		An owner's data have been read.  If they could not be read, this
 *		need not be called.
 *
 * "data" and "len" are as for note_parse(); "ephemeral" is the result of
 * request_is_ephemeral().
 */
void
graph_add_note(WaitGraph *graph, const char *path, const char *data, int len,
			   int32_t version, bool ephemeral)
{
	WaitOwner  *owner = find_owner(graph, path);
	NoteWait	waits[NOTE_MAX_WAITS];
	int			nparsed;
	int			nwaits = 0;
	Note		note;

	if (owner == NULL || owner->waits != NULL)
		return;
	if (!ephemeral)
	{
		pass_over(graph, path);
		return;
	}
	nparsed = note_parse_waits(data, len, waits);
	for (int i = 0; i < nparsed; i++)
		if (!vertex_only_names(path, &waits[i]))
			waits[nwaits++] = waits[i];
	if (nwaits == 0)
		return;
	note_parse(&note, data, len);
	word_set_text(owner->cluster_name, note.cluster_name);
	owner->version = version;
	owner->waits = memory_alloc(nwaits * sizeof(NoteWait));
	memcpy(owner->waits, waits, nwaits * sizeof(NoteWait));
	owner->nwaits = nwaits;
	for (int i = 0; i < nwaits; i++)
		want_directory(graph, path, &waits[i]);
}

/*
 * Choose which notes in the znodes of a session count.  For a session itself
 * these are only those of its own instance, or none if two publishers have the
 * name of that instance; for its remote sessions all count.
 */
static void
choose_notes(WaitDirectory *directory)
{
	VertexSession session;
	const WaitContender *first = NULL;
	bool		twice = false;

	if (!vertex_parse(directory->session, &session) || session.remote)
		return;
	for (int i = 0; i < directory->ncontenders; i++)
	{
		WaitContender *contender = &directory->contenders[i];
		VertexNode	node;
		VertexNode	first_node;

		if (contender->owner == NULL ||
			strcmp(contender->owner->cluster_name,
				   session.cluster_name) != 0 ||
			!vertex_parse_node(contender->name, &node))
			contender->owner = NULL;
		else if (first == NULL)
			first = contender;
		else
			twice |= vertex_parse_node(first->name, &first_node) &&
				first_node.publisher != node.publisher;
	}
	for (int i = 0; twice && i < directory->ncontenders; i++)
		directory->contenders[i].owner = NULL;
}

/*
 * graph_link_owners
 *		For a search, link the first contenders of each directory with their
 *		notes, and the owners with their directories.
 *
 * Owners and directories must not move any more.
 */
void
graph_link_owners(WaitGraph *graph)
{
	for (int i = 0; i < graph->ndirectories; i++)
	{
		WaitDirectory *directory = &graph->directories[i];

		directory->nowners = count_owners(directory);
		for (int j = 0; j < directory->nowners; j++)
		{
			char		path[2 * NOTE_VERTEX_SIZE];

			(void) snprintf(path, sizeof(path), "%s/%s", directory->path,
							directory->contenders[j].name);
			directory->contenders[j].owner = find_owner(graph, path);
		}
		if (directory->session[0] != '\0')
			choose_notes(directory);
		for (int j = 0; j < directory->nowners; j++)
			if (directory->contenders[j].owner != NULL)
				directory->contenders[j].owner->directory = directory;
	}
}
