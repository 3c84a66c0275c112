/*-------------------------------------------------------------------------
 *
 * detection.c
 *		The state of a detector.
 *
 * The files of the detector share it: operations to be sent, the tasks that
 * wait for their answers, and memory for both.
 *
 * Cost.  One scan may report thousands of edges, and each of their notes is
 * written and answered individually.  So edges and holders are found by hash,
 * each holder knows its edges, and an event only makes work for the holders
 * that it changes: detection_note_changed().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/detection.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/detection_private.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/mutation.h"

/* Zeroed memory, valid until the next step. */
void *
detection_alloc(Detection *state, size_t size)
{
	state->blocks = memory_grow(state->blocks, state->nblocks, sizeof(void *));
	return state->blocks[state->nblocks++] = memory_alloc(size);
}

/* Copy a string as by detection_alloc(). */
char *
detection_strdup(Detection *state, const char *text)
{
	return strcpy(detection_alloc(state, strlen(text) + 1), text);
}

/* Free what the last output has pointed to. */
void
detection_free_blocks(Detection *state)
{
	for (int i = 0; i < state->nblocks; i++)
		free(state->blocks[i]);
	state->nblocks = 0;
}

/*
 * detection_send
 *		Add an operation to the output, to be filled in further.
 *
 * "number" is that of the probe that it is about, or 0.
 */
DetectorOp *
detection_send(Detection *state, RequestKind kind, DetectionTask task,
			   const char *path, int32_t number)
{
	Pending    *pending;
	DetectorOp *op;

	if (++state->serial == 0)
		state->serial++;
	state->ops = memory_grow(state->ops, state->out->nops, sizeof(DetectorOp));
	state->out->ops = state->ops;
	op = &state->ops[state->out->nops++];
	op->request.kind = kind;
	op->request.serial = state->serial;
	op->request.path = detection_strdup(state, path);

	state->pending = memory_grow(state->pending, state->npending,
								 sizeof(Pending));
	pending = &state->pending[state->npending++];
	pending->serial = op->request.serial;
	pending->task = task;
	pending->path = memory_copy(path);
	pending->number = number;
	return op;
}

/*
 * detection_take
 *		Find the task that waits for this answer; false if there is none.
 *
 * The caller must free the path.
 */
bool
detection_take(Detection *state, uint32_t serial, Pending *pending)
{
	for (int i = 0; i < state->npending; i++)
		if (state->pending[i].serial == serial)
		{
			*pending = state->pending[i];
			state->npending--;
			memmove(&state->pending[i], &state->pending[i + 1],
					(state->npending - i) * sizeof(Pending));
			return true;
		}
	return false;
}

/* Something must be done at this time. */
void
detection_wake(Detection *state, int64_t at)
{
	if (at < state->out->wake_at)
		state->out->wake_at = at;
}

/* FNV-1a, continued. */
static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t len)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * UINT64_C(0x100000001B3);
	return hash;
}

static uint64_t
hash_path(const char *path)
{
	return hash_bytes(UINT64_C(0xCBF29CE484222325), path, strlen(path));
}

/* The hash of an edge, from a path with this hash. */
static uint64_t
hash_edge(uint64_t hash, const NoteWait *wait)
{
	if (ZK_MUTATED(ZK_DEADLOCK_ANY_GENERATION))
		return hash;
	hash = hash_bytes(hash, &wait->hold.since, sizeof(wait->hold.since));
	hash = hash_bytes(hash, &wait->wait.since, sizeof(wait->wait.since));
	return hash_bytes(hash, wait->to, strlen(wait->to));
}

/* The same edge among those that there are; NULL: there is none. */
LocalEdge *
detection_find_edge(Detection *state, const WaitEdge *edge)
{
	uint64_t	hash = hash_edge(hash_path(edge->from), &edge->wait);

	if (state->nedges == 0)
		return NULL;
	for (int i = state->edge_table[hash & state->edge_mask]; i >= 0;
		 i = state->edges[i].next_of_hash)
		if (waits_same_edge(&state->edges[i].edge, edge))
			return &state->edges[i];
	return NULL;
}

/*
 * detection_set_edges
 *		These are the edges from now on, each with its holder: an array,
 *		malloc'd.
 */
void
detection_set_edges(Detection *state, LocalEdge *edges, int nedges)
{
	uint64_t	size = 1;
	int		   *table;

	while (size < (uint64_t) nedges)
		size *= 2;
	table = memory_alloc(size * sizeof(int));
	memset(table, -1, size * sizeof(int));
	for (int i = 0; i < state->nedges; i++)
		state->edges[i].holder->edges = -1;
	for (int i = nedges - 1; i >= 0; i--)
	{
		Holder	   *holder = edges[i].holder;
		uint64_t	hash = hash_edge(holder->hash, &edges[i].edge.wait);

		edges[i].next_of_hash = table[hash & (size - 1)];
		table[hash & (size - 1)] = i;
		edges[i].next_of_holder = holder->edges;
		holder->edges = i;
	}
	free(state->edge_table);
	state->edge_table = table;
	state->edge_mask = size - 1;
	if (edges != state->edges)
		free(state->edges);
	state->edges = edges;
	state->nedges = nedges;
	state->recount = true;
	if (nedges == 0)
		state->look_at = INT64_MAX;
}

/* What is known of the note of a contender of ours; NULL: nothing. */
Holder *
detection_find_holder(const Detection *state, const char *path)
{
	Holder	   *holder = NULL;

	if (state->holder_mask != 0)
		holder = state->holders[hash_path(path) & state->holder_mask];
	while (holder != NULL && strcmp(holder->path, path) != 0)
		holder = holder->next;
	return holder;
}

/* Have at least one bucket for each holder. */
static void
make_room_for_holder(Detection *state)
{
	uint64_t	size = 2 * (state->holder_mask + 1);
	Holder	  **table;
	Holder	   *holder;

	if ((uint64_t) state->nholders < state->holder_mask)
		return;
	table = memory_alloc(size * sizeof(Holder *));
	for (uint64_t i = 0; i < size / 2 && state->holders != NULL; i++)
		while ((holder = state->holders[i]) != NULL)
		{
			state->holders[i] = holder->next;
			holder->next = table[holder->hash & (size - 1)];
			table[holder->hash & (size - 1)] = holder;
		}
	free(state->holders);
	state->holders = table;
	state->holder_mask = size - 1;
}

/*
 * detection_add_holder
 *		What is known of the note of a contender of ours, or of a session's
 *		znode, from now on.
 */
Holder *
detection_add_holder(Detection *state, const char *path)
{
	Holder	   *holder = detection_find_holder(state, path);
	Holder	  **bucket;

	if (holder != NULL)
		return holder;
	make_room_for_holder(state);
	holder = memory_alloc(sizeof(Holder));
	strcpy(holder->path, path);
	holder->hash = hash_path(path);
	holder->edges = -1;
	holder->session = vertex_is_node(path);
	bucket = &state->holders[holder->hash & state->holder_mask];
	holder->next = *bucket;
	*bucket = holder;
	state->nholders++;
	state->recount = true;
	return holder;
}

/* Forget a holder without edges that is not among the changed. */
void
detection_drop_holder(Detection *state, Holder *holder)
{
	Holder	  **link = &state->holders[holder->hash & state->holder_mask];

	while (*link != holder)
		link = &(*link)->next;
	*link = holder->next;
	free(holder->sent);
	free(holder);

	/* until the next edges come their directories are taken to be used */
	if (--state->nholders == 0)
		state->recount = true;
}

/* Any holder, or the one that comes after another; NULL: there is none. */
Holder *
detection_next_holder(const Detection *state, const Holder *holder)
{
	uint64_t	bucket = 0;

	if (holder != NULL && holder->next != NULL)
		return holder->next;
	if (holder != NULL)
		bucket = (holder->hash & state->holder_mask) + 1;
	for (; state->holders != NULL && bucket <= state->holder_mask; bucket++)
		if (state->holders[bucket] != NULL)
			return state->holders[bucket];
	return NULL;
}

/* A note may have to be written, ahead of others or behind them. */
void
detection_note_changed(Detection *state, Holder *holder, bool first)
{
	if (holder->changed)
		return;
	holder->changed = true;
	holder->next_changed = first ? state->changed : NULL;
	if (state->changed == NULL)
		state->last_changed = holder;
	else if (!first)
		state->last_changed->next_changed = holder;
	if (first || state->changed == NULL)
		state->changed = holder;
	if (!first)
		state->last_changed = holder;
}

/* Any note may have to be written. */
void
detection_note_all_changed(Detection *state)
{
	for (Holder *holder = detection_next_holder(state, NULL); holder != NULL;
		 holder = detection_next_holder(state, holder))
		detection_note_changed(state, holder, false);
}
