/*-------------------------------------------------------------------------
 *
 * graph.c
 *		What has been read of the graph of waits between clusters.
 *
 * A look begins with edges of this cluster (graph_start).  The graph says what
 * it needs next (graph_next_read): the children of a lock directory, which
 * tell who owns the lock, and the notes of the owners, which tell whom they
 * wait for. When there is nothing more to be read, waits.c looks for deadlocks
 * in it.
 *
 * A directory in which some number has no order is given up; so is what would
 * need more than GRAPH_MAX_READS reads.  Then edges are missing, and a deadlock
 * may be found later, or not at all, but no false one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/graph.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
graph_copy_vertex(char to[NOTE_VERTEX_SIZE], const char *from)
{
	(void) snprintf(to, NOTE_VERTEX_SIZE, "%s", from);
}

/* Cut the last component off a path; false if nothing is left. */
bool
graph_cut_last(char path[NOTE_VERTEX_SIZE])
{
	char	   *slash = strrchr(path, '/');

	if (slash == NULL || slash == path)
		return false;
	*slash = '\0';
	return true;
}

/* The directory that tells for whom the contender of a wait waits. */
bool
graph_directory_of(const NoteWait *wait, char directory[NOTE_VERTEX_SIZE])
{
	graph_copy_vertex(directory, wait->to);
	if (wait->kind == NOTE_WAIT_SESSION || !graph_cut_last(directory))
		return false;
	if (wait->kind != NOTE_WAIT_PERMIT)
		return true;
	if (!graph_cut_last(directory) ||
		strlen(directory) + sizeof("/" ZNODE_PERMITS_DIR) > NOTE_VERTEX_SIZE)
		return false;
	strcat(directory, "/" ZNODE_PERMITS_DIR);
	return true;
}

WaitDirectory *
graph_find_directory(const WaitGraph *graph, const char *path)
{
	for (int i = 0; i < graph->ndirectories; i++)
		if (strcmp(graph->directories[i].path, path) == 0)
			return &graph->directories[i];
	return NULL;
}

WaitOwner *
graph_find_owner(const WaitGraph *graph, const char *path)
{
	for (int i = 0; i < graph->nowners; i++)
		if (strcmp(graph->owners[i].path, path) == 0)
			return &graph->owners[i];
	return NULL;
}

/* Have the directory of a wait read; false if memory is short. */
static bool
want_directory(WaitGraph *graph, const NoteWait *wait)
{
	char		path[NOTE_VERTEX_SIZE];
	WaitDirectory *directories;

	if (!graph_directory_of(wait, path) || wait->permits > GRAPH_MAX_PERMITS ||
		graph_find_directory(graph, path) != NULL)
		return true;
	directories = realloc(graph->directories,
						  (graph->ndirectories + 1) * sizeof(*directories));
	if (directories == NULL)
		return false;
	graph->directories = directories;
	directories += graph->ndirectories++;
	memset(directories, 0, sizeof(*directories));
	graph_copy_vertex(directories->path, path);
	directories->permits = wait->permits;
	return true;
}

static bool
want_owner(WaitGraph *graph, const WaitDirectory *directory,
		   const WaitContender *contender)
{
	char		path[2 * NOTE_VERTEX_SIZE];
	WaitOwner  *owners;

	if (snprintf(path, sizeof(path), "%s/%s", directory->path,
				 contender->name) >= NOTE_VERTEX_SIZE ||
		graph_find_owner(graph, path) != NULL)
		return true;
	owners = realloc(graph->owners, (graph->nowners + 1) * sizeof(*owners));
	if (owners == NULL)
		return false;
	graph->owners = owners;
	owners += graph->nowners++;
	memset(owners, 0, sizeof(*owners));
	graph_copy_vertex(owners->path, path);
	return true;
}

/*
 * How many of the first contenders in a directory own the lock, or have one of
 * so many permits?  None, if permits are free.
 */
int
graph_count_owners(const WaitDirectory *directory, int permits)
{
	int			n = 0;

	if (permits > 0)
		return directory->ncontenders < permits ? 0 : permits;
	while (n < directory->ncontenders && directory->contenders[n].shared)
		n++;
	return n == 0 && directory->ncontenders > 0 ? 1 : n;
}

static bool
want_owners(WaitGraph *graph, const WaitDirectory *directory)
{
	int			n = graph_count_owners(directory, directory->permits);

	/* without anybody behind them nobody waits for them */
	if (directory->permits == 0 && n == directory->ncontenders)
		return true;
	for (int i = 0; i < n; i++)
		if (!want_owner(graph, directory, &directory->contenders[i]))
			return false;
	return true;
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

static void
forget_contenders(WaitDirectory *directory)
{
	for (int i = 0; i < directory->ncontenders; i++)
		free(directory->contenders[i].name);
	free(directory->contenders);
	directory->contenders = NULL;
	directory->ncontenders = 0;
}

/*
 * graph_init
 *		Begin a look: a graph without vertices.
 */
void
graph_init(WaitGraph *graph)
{
	memset(graph, 0, sizeof(*graph));
}

/*
 * graph_free
 *		Free what a graph has allocated; the struct is the caller's.
 */
void
graph_free(WaitGraph *graph)
{
	for (int i = 0; i < graph->ndirectories; i++)
		forget_contenders(&graph->directories[i]);
	for (int i = 0; i < graph->nowners; i++)
		free(graph->owners[i].waits);
	free(graph->directories);
	free(graph->owners);
	graph_init(graph);
}

/*
 * graph_start
 *		Look from this edge, too; false if memory is short.
 */
bool
graph_start(WaitGraph *graph, const WaitEdge *edge)
{
	return want_directory(graph, &edge->wait);
}

/*
 * graph_next_read
 *		What is to be read next?  False if nothing more is, for now.
 *
 * Several reads may be under way at a time.  When all have been told of, there
 * may be more.
 */
bool
graph_next_read(WaitGraph *graph, WaitRead *read)
{
	if (graph->nreads == GRAPH_MAX_READS)
		return false;
	for (int i = 0; i < graph->nowners; i++)
		if (!graph->owners[i].asked)
		{
			graph->owners[i].asked = true;
			read->kind = GRAPH_READ_NOTE;
			graph_copy_vertex(read->path, graph->owners[i].path);
			graph->nreads++;
			return true;
		}
	for (int i = 0; i < graph->ndirectories; i++)
		if (!graph->directories[i].asked)
		{
			graph->directories[i].asked = true;
			read->kind = GRAPH_READ_CHILDREN;
			graph_copy_vertex(read->path, graph->directories[i].path);
			graph->nreads++;
			return true;
		}
	return false;
}

/*
 * graph_told_children
 *		A directory has been read.  If it has not, or is missing, it need not be
 *		told of.
 *
 * False if memory is short.
 */
bool
graph_told_children(WaitGraph *graph, const char *path,
					const char *const *children, int nchildren)
{
	WaitDirectory *directory = graph_find_directory(graph, path);

	if (directory == NULL || directory->contenders != NULL)
		return true;
	directory->contenders = calloc(nchildren > 0 ? nchildren : 1,
								   sizeof(WaitContender));
	if (directory->contenders == NULL)
		return false;
	for (int i = 0; i < nchildren; i++)
	{
		WaitContender *contender =
			&directory->contenders[directory->ncontenders];
		ZnodeContender parsed;

		if (!znode_parse_contender(children[i], &parsed))
			continue;
		contender->name = strdup(children[i]);
		if (contender->name == NULL)
			return false;
		directory->ncontenders++;
		contender->sequence = parsed.sequence;
		contender->shared = parsed.shared && !znode_is_late(parsed.sequence);
		if (znode_is_unordered(parsed.sequence))
		{
			forget_contenders(directory);
			return true;
		}
	}
	qsort(directory->contenders, directory->ncontenders,
		  sizeof(WaitContender), compare_contenders);
	return want_owners(graph, directory);
}

/* An owner that was read is not ephemeral: it was no contender. */
static bool
pass_over(WaitGraph *graph, const char *path)
{
	char		place[NOTE_VERTEX_SIZE];
	const char *name;
	WaitDirectory *directory;

	graph_copy_vertex(place, path);
	if (!graph_cut_last(place))
		return true;
	name = path + strlen(place) + 1;
	directory = graph_find_directory(graph, place);
	for (int i = 0; directory != NULL && i < directory->ncontenders; i++)
		if (strcmp(directory->contenders[i].name, name) == 0)
		{
			free(directory->contenders[i].name);
			directory->ncontenders--;
			memmove(&directory->contenders[i], &directory->contenders[i + 1],
					(directory->ncontenders - i) * sizeof(WaitContender));
			return want_owners(graph, directory);
		}
	return true;
}

/*
 * graph_told_note
 *		An owner's data has been read.  If it is gone, or may not be read, it
 *		need not be told of.
 *
 * "data" and "len" are as for note_parse(); "ephemeral" as
 * recipe_is_ephemeral() has it.  False if memory is short.
 */
bool
graph_told_note(WaitGraph *graph, const char *path, const char *data, int len,
				int32_t version, bool ephemeral)
{
	WaitOwner  *owner = graph_find_owner(graph, path);
	NoteWait	waits[NOTE_MAX_WAITS];
	int			nwaits;
	Note		note;

	if (owner == NULL || owner->waits != NULL)
		return true;
	if (!ephemeral)
		return pass_over(graph, path);
	nwaits = note_parse_waits(data, len, waits);
	if (nwaits == 0)
		return true;
	note_parse(&note, data, len);
	(void) snprintf(owner->cluster, sizeof(owner->cluster), "%s", note.cluster);
	owner->version = version;
	owner->waits = malloc(nwaits * sizeof(NoteWait));
	if (owner->waits == NULL)
		return false;
	memcpy(owner->waits, waits, nwaits * sizeof(NoteWait));
	owner->nwaits = nwaits;
	for (int i = 0; i < nwaits; i++)
		if (!want_directory(graph, &waits[i]))
			return false;
	return true;
}
