/*-------------------------------------------------------------------------
 *
 * publish.c
 *		The edges of a detector in its notes: written, and taken back.
 *
 * An edge is told in the note of the contender that is held, or in the znode of
 * the session that waits (vertex.c).  That znode is made when the room is known
 * to be there, and deleted when there is no edge from it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/publish.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/publish.h"

#include <string.h>

#include "core/mutation.h"
#include "core/room.h"

/* There will be a note to be written at this time. */
static void
write_later(Detection *state, int64_t at)
{
	if (at < state->write_at)
		state->write_at = at;
}

/* The edges of a note: all that there are, or those whose turn it is. */
static int
choose_waits(Detection *state, Holder *holder, NoteWait *waits)
{
	int			total = 0;
	int			n = 0;
	int			place = 0;

	if (ZK_MUTATED(ZK_DEADLOCK_EDGES_STAY))
	{
		memcpy(waits, holder->sent, holder->nsent * sizeof(NoteWait));
		n = holder->nsent;
	}
	for (int i = 0; i < state->nedges; i++)
		total += !state->edges[i].ended &&
			strcmp(state->edges[i].edge.from, holder->path) == 0;
	if (total <= NOTE_MAX_WAITS)
		holder->first = 0;
	else if (holder->turn_at <= state->now)
	{
		/* half of them stay, so that alternatives are together at times */
		holder->first = (holder->first + NOTE_MAX_WAITS / 2) % total;
		holder->turn_at = state->now + state->timeout;
	}
	if (total > NOTE_MAX_WAITS)
		write_later(state, holder->turn_at);
	for (int i = 0; i < state->nedges; i++)
	{
		const LocalEdge *edge = &state->edges[i];
		bool		there = false;

		if (edge->ended || strcmp(edge->edge.from, holder->path) != 0)
			continue;
		for (int j = 0; j < n; j++)
			there |= note_same_wait(&waits[j], &edge->edge.wait);
		if (!there && n < NOTE_MAX_WAITS &&
			(place - holder->first + total) % total < NOTE_MAX_WAITS)
			waits[n++] = edge->edge.wait;
		place++;
	}
	return n;
}

/* Is this what was last written? */
static bool
is_sent(const Holder *holder, const NoteWait *waits, int n)
{
	if (n != holder->nsent)
		return false;
	for (int i = 0; i < n; i++)
	{
		bool		there = false;

		for (int j = 0; j < n; j++)
			there |= note_same_wait(&holder->sent[j], &waits[i]);
		if (!there)
			return false;
	}
	return true;
}

/* Has there been no look yet from an edge of this holder, or is it under way? */
static bool
is_to_look(const Detection *state, const Holder *holder)
{
	for (int i = 0; i < state->nedges; i++)
		if (strcmp(state->edges[i].edge.from, holder->path) == 0 &&
			(state->looking || state->edges[i].look_at == 0))
			return true;
	return false;
}

/* The room of a session's znode, or NULL. */
static Room *
find_room(Detection *state, const Holder *holder)
{
	char		path[NOTE_VERTEX_SIZE];

	return vertex_room_of_owner(holder->path, path) ?
		room_find(state, path) : NULL;
}

/* A session's znode can be made in a room that is there. */
static bool
is_writable(Detection *state, const Holder *holder)
{
	const Room *room;

	if (!holder->session)
		return true;
	room = find_room(state, holder);
	return room != NULL && room->exists &&
		detection_has_edge_from(state, holder->path);
}

/* Write a note if it is not as it should be. */
static void
publish(Detection *state, Holder *holder)
{
	NoteWait	waits[NOTE_MAX_WAITS];
	NoteWait   *copy;
	DetectorOp *op;
	int			n;

	if (holder->out != 0 || holder->gone || !is_writable(state, holder))
		return;
	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD) && is_to_look(state, holder))
		return;
	n = choose_waits(state, holder, waits);
	if (!holder->unsure && is_sent(holder, waits, n))
		return;
	if (holder->retry_at > state->now)
	{
		write_later(state, holder->retry_at);
		return;
	}
	copy = detection_alloc(state, sizeof(waits));
	op = copy == NULL ? NULL :
		detection_send(state, DETECTOR_OP_SET_WAITS, TASK_SET, holder->path, 0);
	if (op == NULL)
		return;
	memcpy(copy, waits, n * sizeof(NoteWait));
	op->waits = copy;
	op->nwaits = n;
	memcpy(holder->sent, waits, n * sizeof(NoteWait));
	holder->nsent = n;
	holder->out = op->serial;
	holder->unsure = false;
	holder->made = true;
	state->counts->published += n;
}

/*
 * publish_add_holder
 *		What is known of the note of a contender of ours, or of a session's
 *		znode, from now on; NULL if memory is short.
 */
Holder *
publish_add_holder(Detection *state, const char *path)
{
	Holder	   *holders = detection_find_holder(state, path);

	if (holders != NULL)
		return holders;
	holders = detection_grow(state, state->holders, state->nholders,
							 sizeof(Holder));
	if (holders == NULL)
		return NULL;
	state->holders = holders;
	holders += state->nholders++;
	strcpy(holders->path, path);
	holders->session = vertex_is_node(path);
	return holders;
}

/* Is an edge in its note, as that was written and answered? */
static bool
is_in_note(Detection *state, const WaitEdge *edge)
{
	const Holder *holder = detection_find_holder(state, edge->from);

	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD))
		return true;
	if (holder == NULL || holder->gone || holder->unsure || holder->out != 0)
		return false;
	for (int i = 0; i < holder->nsent; i++)
		if (note_same_wait(&holder->sent[i], &edge->wait))
			return true;
	return false;
}

/* There is no room for a session's znode: have it made. */
static void
lose_room(Detection *state, const Holder *holder)
{
	Room	   *room = find_room(state, holder);

	if (room != NULL)
	{
		room->exists = false;
		room->watch = 0;
	}
}

/* Is nothing more to be done about a note? */
static bool
is_done(Detection *state, const Holder *holder)
{
	char		path[NOTE_VERTEX_SIZE];

	if (holder->out != 0 || detection_has_edge_from(state, holder->path))
		return false;
	if (!holder->session)
		return holder->nsent == 0 && !holder->unsure;
	if (holder->made)
	{
		strcpy(path, holder->path);
		*strrchr(path, '/') = '\0';
		room_throw_away(state, path, strrchr(holder->path, '/') + 1);
	}
	return true;
}

/*
 * publish_answered
 *		The write of a note has been answered.
 */
void
publish_answered(Detection *state, const Pending *pending, const DetectorInput *in)
{
	Holder	   *holder = detection_find_holder(state, pending->path);

	if (holder == NULL || holder->out != pending->serial)
		return;
	holder->out = 0;
	switch (in->result)
	{
		case DETECTOR_OK:
			break;
		case DETECTOR_NO_NODE:
			holder->gone = !holder->session;
			holder->made = false;
			holder->nsent = 0;
			if (holder->session)
				lose_room(state, holder);
			break;
		case DETECTOR_UNKNOWN:
			holder->unsure = true;
			break;
		case DETECTOR_REFUSED:
			holder->unsure = true;
			holder->retry_at = state->now + state->timeout;
			break;
	}
}

/*
 * publish_all
 *		Write what is to be written, and note which edges are in their notes.
 */
void
publish_all(Detection *state)
{
	state->changed = false;
	state->write_at = INT64_MAX;
	for (int i = 0; i < state->nedges; i++)
		(void) publish_add_holder(state, state->edges[i].edge.from);
	for (int i = state->nholders - 1; i >= 0; i--)
	{
		Holder	   *holder = &state->holders[i];

		if (state->connected)
			publish(state, holder);
		if (is_done(state, holder))
		{
			state->nholders--;
			memmove(holder, holder + 1,
					(state->nholders - i) * sizeof(Holder));
		}
	}
	for (int i = 0; i < state->nedges; i++)
		state->edges[i].published = !state->edges[i].ended &&
			is_in_note(state, &state->edges[i].edge);
}

/*
 * publish_forget_sessions
 *		The session has ended, and with it the znodes of sessions: the edges from
 *		them will have other names.
 */
void
publish_forget_sessions(Detection *state)
{
	int			n = 0;

	for (int i = 0; i < state->nholders; i++)
		if (!state->holders[i].session)
			memmove(&state->holders[n++], &state->holders[i], sizeof(Holder));
	state->nholders = n;
	n = 0;
	for (int i = 0; i < state->nedges; i++)
		if (!vertex_is_node(state->edges[i].edge.from))
			memmove(&state->edges[n++], &state->edges[i], sizeof(LocalEdge));
	state->nedges = n;
}
