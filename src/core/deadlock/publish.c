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
 *		src/core/deadlock/publish.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/publish.h"

#include <stdlib.h>
#include <string.h>

#include "core/deadlock/room.h"
#include "core/mutation.h"

/*
 * So many notes are being written at a time: what else goes to ZooKeeper is not
 * behind all of them.
 */
#define MAX_WRITING		32

/* There will be a note to be written at this time. */
static void
write_later(Detection *state, Holder *holder, int64_t at)
{
	holder->write_at = at;
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
		while (n < holder->nsent)
		{
			waits[n] = holder->sent[n];
			n++;
		}
	for (int i = holder->edges; i >= 0; i = state->edges[i].next_of_holder)
		total += !state->edges[i].ended;
	if (total <= NOTE_MAX_WAITS)
		holder->first = 0;
	else if (holder->turn_at <= state->now)
	{
		/* half of them stay, so that alternatives are together at times */
		holder->first = (holder->first + NOTE_MAX_WAITS / 2) % total;
		holder->turn_at = state->now + state->timeout;
	}
	if (total > NOTE_MAX_WAITS)
		write_later(state, holder, holder->turn_at);
	for (int i = holder->edges; i >= 0; i = state->edges[i].next_of_holder)
	{
		const LocalEdge *edge = &state->edges[i];
		bool		there = false;

		if (edge->ended)
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

/* Is either of these, or neither, that of one that is only ahead of others? */
static bool
same_mark(const NoteWait *one, const NoteWait *other)
{
	return (one->began == 0) == (other->began == 0);
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
			there |= note_same_wait(&holder->sent[j], &waits[i]) &&
				same_mark(&holder->sent[j], &waits[i]);
		if (!there)
			return false;
	}
	return true;
}

/* Has there been no look yet from an edge of this holder, or is it under way? */
static bool
is_to_look(const Detection *state, const Holder *holder)
{
	for (int i = holder->edges; i >= 0; i = state->edges[i].next_of_holder)
		if (state->looking || state->edges[i].look_at == 0)
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
	return room != NULL && room->exists && holder->edges >= 0;
}

/* Write a note if it is not as it should be. */
static void
publish(Detection *state, Holder *holder)
{
	NoteWait	waits[NOTE_MAX_WAITS];
	NoteWait   *copy;
	NoteWait   *sent;
	DetectorOp *op;
	size_t		size;
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
		write_later(state, holder, holder->retry_at);
		return;
	}
	size = (n > 0 ? n : 1) * sizeof(NoteWait);
	copy = detection_alloc(state, size);
	sent = realloc(holder->sent, size);
	if (sent == NULL)
		state->failed = true;
	else
		holder->sent = sent;
	op = copy == NULL || sent == NULL ? NULL :
		detection_send(state, DETECTOR_OP_SET_WAITS, TASK_SET, holder->path, 0);
	if (op == NULL)
		return;
	memcpy(copy, waits, n * sizeof(NoteWait));
	op->waits = copy;
	op->nwaits = n;
	memcpy(sent, waits, n * sizeof(NoteWait));
	holder->nsent = n;
	holder->out = op->serial;
	holder->unsure = false;
	holder->made = true;
	state->nwriting++;
	state->counts->published += n;
}

/* Is an edge in its note, as that was written and answered? */
static bool
is_in_note(const Holder *holder, const WaitEdge *edge)
{
	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD))
		return true;
	if (holder->gone || holder->unsure || holder->out != 0)
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

	if (holder->out != 0 || holder->edges >= 0)
		return false;
	if (!holder->session)
		return holder->gone || (holder->nsent == 0 && !holder->unsure);
	if (holder->made)
	{
		strcpy(path, holder->path);
		*strrchr(path, '/') = '\0';
		room_throw_away(state, path, strrchr(holder->path, '/') + 1);
	}
	return true;
}

/*
 * Do what is to be done about a note, and note which edges are in it; forget it
 * if that is all.
 */
static void
attend(Detection *state, Holder *holder)
{
	if (state->connected)
		publish(state, holder);
	if (is_done(state, holder))
	{
		detection_drop_holder(state, holder);
		return;
	}
	for (int i = holder->edges; i >= 0; i = state->edges[i].next_of_holder)
	{
		LocalEdge  *edge = &state->edges[i];

		edge->published = !edge->ended && is_in_note(holder, &edge->edge);
		if (edge->published && edge->look_at < state->look_at)
			state->look_at = edge->look_at;
	}
}

/*
 * publish_edges
 *		These are the local edges from now on; what is known of them stays known.
 */
void
publish_edges(Detection *state, const WaitEdge *list, int n)
{
	LocalEdge  *edges = calloc(n + 1, sizeof(LocalEdge));

	if (edges == NULL)
	{
		state->failed = true;
		return;
	}
	for (int i = 0; i < state->nedges; i++)
		state->edges[i].kept = false;
	for (int i = 0; i < n; i++)
	{
		LocalEdge  *known = detection_find_edge(state, &list[i]);

		if (known != NULL)
		{
			known->kept = true;
			edges[i] = *known;
		}
		else
			edges[i].holder = detection_add_holder(state, list[i].from);
		if (edges[i].holder == NULL)
		{
			free(edges);
			return;
		}
		edges[i].edge = list[i];
		if (known == NULL || !same_mark(&known->edge.wait, &list[i].wait))
			detection_note_changed(state, edges[i].holder, false);
	}
	for (int i = 0; i < state->nedges; i++)
		if (!state->edges[i].kept)
			detection_note_changed(state, state->edges[i].holder, false);
	if (!detection_set_edges(state, edges, n))
		free(edges);
}

/*
 * publish_answered
 *		The write of a note has been answered.
 */
void
publish_answered(Detection *state, const Pending *pending, const DetectorInput *in)
{
	Holder	   *holder = detection_find_holder(state, pending->path);

	state->nwriting--;
	if (holder == NULL || holder->out != pending->serial)
		return;
	holder->out = 0;
	detection_note_changed(state, holder, true);
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

/* Notes that were to be written later may be now. */
static void
note_due(Detection *state)
{
	if (state->write_at > state->now)
		return;
	state->write_at = INT64_MAX;
	for (Holder *holder = detection_next_holder(state, NULL); holder != NULL;
		 holder = detection_next_holder(state, holder))
		if (holder->write_at > state->now)
			write_later(state, holder, holder->write_at);
		else if (holder->write_at != 0)
		{
			holder->write_at = 0;
			detection_note_changed(state, holder, false);
		}
}

/*
 * publish_all
 *		Write what is to be written, and note which edges are in their notes.
 */
void
publish_all(Detection *state)
{
	Holder	   *holder;

	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD))
		detection_note_all_changed(state);
	note_due(state);
	while ((holder = state->changed) != NULL && state->nwriting < MAX_WRITING)
	{
		state->changed = holder->next_changed;
		holder->changed = false;
		attend(state, holder);
	}
}

/*
 * publish_expired
 *		The session has ended: no answer comes any more, and notes are to be
 *		written again.  The znodes of sessions have ended with it: the edges from
 *		them will have other names.
 */
void
publish_expired(Detection *state)
{
	int			n = 0;

	for (int i = 0; i < state->nedges; i++)
		state->edges[i].holder->edges = -1;
	for (int i = 0; i < state->nedges; i++)
		if (!state->edges[i].holder->session)
			state->edges[n++] = state->edges[i];
	(void) detection_set_edges(state, state->edges, n);
	state->nwriting = 0;
	for (Holder *holder = detection_next_holder(state, NULL); holder != NULL;
		 holder = detection_next_holder(state, holder))
	{
		holder->unsure = true;
		holder->made = false;
		holder->out = 0;
	}
	detection_note_all_changed(state);
}
