/*-------------------------------------------------------------------------
 *
 * detection.c
 *		What a detector is told, what it tells, and what it knows.
 *
 * Here is what detector.c and confirm.c share: operations that go out, who
 * waits for their answers, and memory.  Where memory is short the detector
 * begins anew, as a new worker does.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/detection.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/detection.h"

#include <stdlib.h>
#include <string.h>

/*
 * detection_alloc
 *		Memory, all 0, that is the output's until the next step; NULL if there
 *		is none.
 */
void *
detection_alloc(Detection *state, size_t size)
{
	void	  **blocks = detection_grow(state, state->blocks, state->nblocks,
										sizeof(void *));
	void	   *block;

	if (blocks == NULL)
		return NULL;
	state->blocks = blocks;
	block = calloc(1, size);
	if (block == NULL)
		state->failed = true;
	else
		blocks[state->nblocks++] = block;
	return block;
}

/*
 * detection_strdup
 *		A copy of a text, as detection_alloc() makes it.
 */
char *
detection_strdup(Detection *state, const char *text)
{
	char	   *copy = detection_alloc(state, strlen(text) + 1);

	if (copy != NULL)
		strcpy(copy, text);
	return copy;
}

/*
 * detection_grow
 *		Make room for one more in an array of n; NULL if memory is short, and
 *		the array is as it was.
 *
 * The new element is all 0.
 */
void *
detection_grow(Detection *state, void *array, int n, size_t size)
{
	char	   *grown = realloc(array, (n + 1) * size);

	if (grown == NULL)
		state->failed = true;
	else
		memset(grown + n * size, 0, size);
	return grown;
}

/*
 * detection_free_blocks
 *		Free what the last output has pointed to.
 */
void
detection_free_blocks(Detection *state)
{
	for (int i = 0; i < state->nblocks; i++)
		free(state->blocks[i]);
	state->nblocks = 0;
}

/*
 * detection_send
 *		Put out an operation, to be filled in further; NULL if memory is short.
 *
 * "number" is that of the probe that it is about, or 0.
 */
DetectorOp *
detection_send(Detection *state, DetectorOpKind kind, DetectionTask task,
			   const char *path, int32_t number)
{
	Pending    *pending = detection_grow(state, state->pending,
										 state->npending, sizeof(Pending));
	DetectorOp *ops;
	DetectorOp *op;

	if (pending == NULL)
		return NULL;
	state->pending = pending;
	ops = detection_grow(state, state->ops, state->out->nops,
						 sizeof(DetectorOp));
	if (ops == NULL)
		return NULL;
	state->ops = state->out->ops = ops;
	op = &ops[state->out->nops];
	op->path = detection_strdup(state, path);
	if (op->path == NULL)
		return NULL;
	if (++state->serial == 0)
		state->serial++;
	op->kind = kind;
	op->serial = state->serial;
	op->version = -1;
	state->out->nops++;

	pending += state->npending++;
	pending->serial = op->serial;
	pending->task = task;
	strcpy(pending->path, path);
	pending->number = number;
	return op;
}

/*
 * detection_take
 *		Who waits for this answer?  False if nobody.
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

/*
 * detection_tell
 *		Put out that the deadlock of a probe has been ended, by the act with
 *		this zxid.
 */
void
detection_tell(Detection *state, const Probe *probe, int64_t zxid)
{
	const WaitDeadlock *deadlock = &probe->deadlock;
	int			n = state->out->nverdicts;
	DetectorVerdict *verdicts = detection_alloc(state, (n + 1) *
												sizeof(*verdicts));
	WaitDeadlock *copy = detection_alloc(state, sizeof(*copy));
	WaitMember *members = detection_alloc(state, deadlock->nmembers *
										  sizeof(*members));

	if (verdicts == NULL || copy == NULL || members == NULL)
		return;
	memcpy(members, deadlock->members, deadlock->nmembers * sizeof(*members));
	copy->members = members;
	copy->nmembers = deadlock->nmembers;
	if (n > 0)
		memcpy(verdicts, state->out->verdicts, n * sizeof(*verdicts));
	verdicts[n].deadlock = copy;
	verdicts[n].mine = probe->mine;
	verdicts[n].ours = (probe->mine & 1) != 0;
	verdicts[n].steps_back = waits_steps_back(deadlock);
	verdicts[n].zxid = zxid;
	state->out->verdicts = verdicts;
	state->out->nverdicts++;
}

/*
 * detection_wake
 *		There will be something to do at this time.
 */
void
detection_wake(Detection *state, int64_t at)
{
	if (at < state->out->wake_at)
		state->out->wake_at = at;
}

/*
 * detection_find_holder
 *		What is known of the note of a contender of ours; NULL: nothing.
 */
Holder *
detection_find_holder(Detection *state, const char *path)
{
	for (int i = 0; i < state->nholders; i++)
		if (strcmp(state->holders[i].path, path) == 0)
			return &state->holders[i];
	return NULL;
}

/*
 * detection_find_edge
 *		The same edge among those that there are; NULL: there is none.
 */
LocalEdge *
detection_find_edge(Detection *state, const WaitEdge *edge)
{
	for (int i = 0; i < state->nedges; i++)
		if (waits_same_edge(&state->edges[i].edge, edge))
			return &state->edges[i];
	return NULL;
}

/*
 * detection_has_edge_from
 *		Is there an edge from this contender?
 */
bool
detection_has_edge_from(const Detection *state, const char *path)
{
	for (int i = 0; i < state->nedges; i++)
		if (strcmp(state->edges[i].edge.from, path) == 0)
			return true;
	return false;
}

/* Is the edge about to be written into a note? */
static bool
is_yet_to_be_told(Detection *state, const WaitEdge *edge)
{
	const Holder *holder = detection_find_holder(state, edge->from);

	if (holder == NULL)
		return true;
	if (holder->gone || holder->retry_at > state->now)
		return false;
	if (holder->out != 0)
		return true;
	for (int i = 0; i < holder->nsent; i++)
		if (note_same_wait(&holder->sent[i], &edge->wait))
			return false;
	return holder->nsent < NOTE_MAX_WAITS;
}

/*
 * detection_is_told
 *		Are all local edges that end with this wait in our notes?
 *
 * If not, who has made a probe with it does not know all that it blocks, and the
 * deadlock may have a smaller one in it, of which the victim is no part.
 */
bool
detection_is_told(Detection *state, const NoteWait *wait)
{
	for (int i = 0; i < state->nedges; i++)
	{
		const LocalEdge *local = &state->edges[i];

		if (!local->ended &&
			local->edge.wait.wait.pid == wait->wait.pid &&
			local->edge.wait.wait.since == wait->wait.since &&
			is_yet_to_be_told(state, &local->edge))
			return false;
	}
	return true;
}
