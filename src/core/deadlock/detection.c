/*-------------------------------------------------------------------------
 *
 * detection.c
 *		The state of a detector.
 *
 * The files of the detector share it: operations to be sent, the tasks that
 * wait for their answers, and memory for both.
 *
 * Cost.  One scan may report thousands of edges, and each of their notes is
 * written and answered individually.  So edges and notes are found by hash,
 * each note knows its edges, and an event only makes work for the notes that
 * it changes: detection_note_changed().
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

/* The same edge among the local ones; NULL: there is none. */
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
 *		Make these the local edges.  Each has its "note"; the array is
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
		state->edges[i].note->edges = -1;
	for (int i = nedges - 1; i >= 0; i--)
	{
		OwnNote    *note = edges[i].note;
		uint64_t	hash = hash_edge(note->hash, &edges[i].edge.wait);

		edges[i].next_of_hash = table[hash & (size - 1)];
		table[hash & (size - 1)] = i;
		edges[i].next_of_note = note->edges;
		note->edges = i;
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
		state->search_at = INT64_MAX;
}

/* What is known of the note of a contender or session; NULL: nothing. */
OwnNote *
detection_find_note(const Detection *state, const char *path)
{
	OwnNote    *note = NULL;

	if (state->note_mask != 0)
		note = state->notes[hash_path(path) & state->note_mask];
	while (note != NULL && strcmp(note->path, path) != 0)
		note = note->next;
	return note;
}

/* Have at least one bucket for each note. */
static void
make_room_for_note(Detection *state)
{
	uint64_t	size = 2 * (state->note_mask + 1);
	OwnNote   **table;
	OwnNote    *note;

	if ((uint64_t) state->nnotes < state->note_mask)
		return;
	table = memory_alloc(size * sizeof(OwnNote *));
	for (uint64_t i = 0; i < size / 2 && state->notes != NULL; i++)
		while ((note = state->notes[i]) != NULL)
		{
			state->notes[i] = note->next;
			note->next = table[note->hash & (size - 1)];
			table[note->hash & (size - 1)] = note;
		}
	free(state->notes);
	state->notes = table;
	state->note_mask = size - 1;
}

/*
 * detection_add_note
 *		As detection_find_note(), but made if it is not there.
 */
OwnNote *
detection_add_note(Detection *state, const char *path)
{
	OwnNote    *note = detection_find_note(state, path);
	OwnNote   **bucket;

	if (note != NULL)
		return note;
	make_room_for_note(state);
	note = memory_alloc(sizeof(OwnNote));
	strcpy(note->path, path);
	note->hash = hash_path(path);
	note->edges = -1;
	note->session = vertex_is_node(path);
	bucket = &state->notes[note->hash & state->note_mask];
	note->next = *bucket;
	*bucket = note;
	state->nnotes++;
	state->recount = true;
	return note;
}

/* Forget a note without edges that is not among the changed. */
void
detection_drop_note(Detection *state, OwnNote *note)
{
	OwnNote   **link = &state->notes[note->hash & state->note_mask];

	while (*link != note)
		link = &(*link)->next;
	*link = note->next;
	free(note->sent);
	free(note);

	/* the directory stays in use until the next edges, or the last note */
	if (--state->nnotes == 0)
		state->recount = true;
}

/* The note after this one (NULL: the first one), in any order; or NULL. */
OwnNote *
detection_next_note(const Detection *state, const OwnNote *note)
{
	uint64_t	bucket = 0;

	if (note != NULL && note->next != NULL)
		return note->next;
	if (note != NULL)
		bucket = (note->hash & state->note_mask) + 1;
	for (; state->notes != NULL && bucket <= state->note_mask; bucket++)
		if (state->notes[bucket] != NULL)
			return state->notes[bucket];
	return NULL;
}

/* A note may have to be written: ahead of the others, if "first". */
void
detection_note_changed(Detection *state, OwnNote *note, bool first)
{
	if (note->changed)
		return;
	note->changed = true;
	note->next_changed = first ? state->changed : NULL;
	if (state->changed == NULL)
		state->last_changed = note;
	else if (!first)
		state->last_changed->next_changed = note;
	if (first || state->changed == NULL)
		state->changed = note;
	if (!first)
		state->last_changed = note;
}

/* Any note may have to be written. */
void
detection_note_all_changed(Detection *state)
{
	for (OwnNote *note = detection_next_note(state, NULL); note != NULL;
		 note = detection_next_note(state, note))
		detection_note_changed(state, note, false);
}
