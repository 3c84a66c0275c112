/*-------------------------------------------------------------------------
 *
 * room.c
 *		The znodes %waits: made, listed, watched, and cleaned up.
 *
 * Each root that our edges have to do with has a room, <root>/%waits.  It is
 * made if it is missing, and listed and watched as long as it is needed: while
 * there is an edge, a note that has waits, or a probe; or while sessions of ours
 * may be named there (vertex.c).
 *
 * A room that has not been needed for some time is deleted.  That fails unless
 * it is empty.  Instances that need it hear of that by their watch, and make
 * it anew; so does one whose create of a znode in it fails.
 *
 * A probe is in the room of the first of the roots in which its members wait.
 * Who has no edge to do with that root does not see it, if there are three roots
 * or more, until it finds the deadlock itself: then it makes a probe in that
 * room, too, and watches it for as long as that one lives; and answers the older
 * one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/room.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/detection_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* How many times deadlock_timeout a room stays that is not needed. */
#define ROOM_LINGER			20

/*
 * room_path_in
 *		The path of a znode in a room; "" if that is too long.
 */
void
room_path_in(const char *room, const char *name, char path[NOTE_VERTEX_SIZE])
{
	if (snprintf(path, NOTE_VERTEX_SIZE, "%s/%s", room, name) >=
		NOTE_VERTEX_SIZE)
		path[0] = '\0';
}

/*
 * room_find
 *		What is known of a room; NULL: nothing.
 */
Room *
room_find(Detection *state, const char *path)
{
	for (int i = 0; i < state->nrooms; i++)
		if (strcmp(state->rooms[i].path, path) == 0)
			return &state->rooms[i];
	return NULL;
}

/*
 * room_sweep
 *		There may be znodes of ours in a room that we do not know of: look for
 *		them, and delete them.
 */
void
room_sweep(Detection *state, const char *path)
{
	Room	   *room = room_find(state, path);

	if (room != NULL)
		room->sweep = true;
}

/*
 * room_throw_away
 *		Have a znode of ours deleted, now or when there is a connection.
 */
void
room_throw_away(Detection *state, const char *room, const char *name)
{
	state->orphans = memory_grow(state->orphans, state->norphans, sizeof(Orphan));
	room_path_in(room, name, state->orphans[state->norphans++].path);
}

/*
 * room_made
 *		A mkdir has been answered.
 */
void
room_made(Detection *state, const Pending *pending, const DetectorInput *in)
{
	Room	   *room = room_find(state, pending->path);

	if (room == NULL)
		return;
	room->making = false;
	if (in->answer.result == REQUEST_NO_NODE ||
		in->answer.result == REQUEST_REFUSED)
		room->retry_at = state->now + state->timeout;
}

/*
 * room_deleted
 *		A delete has been answered.
 */
void
room_deleted(Detection *state, const Pending *pending, const DetectorInput *in)
{
	Room	   *room = room_find(state, pending->path);

	if (room != NULL && in->answer.result != REQUEST_REFUSED)
	{
		/* if it is needed again, it is to be listed */
		room->exists = false;
		room->watch = 0;
	}
	for (int i = 0; i < state->norphans; i++)
		if (strcmp(state->orphans[i].path, pending->path) == 0)
		{
			state->orphans[i].out = false;
			if (in->answer.result == REQUEST_UNKNOWN)
				return;
			state->norphans--;
			memmove(&state->orphans[i], &state->orphans[i + 1],
					(state->norphans - i) * sizeof(Orphan));
			return;
		}
}

/*
 * room_changed
 *		The watch of the list with this serial was used up.
 */
void
room_changed(Detection *state, uint32_t serial)
{
	for (int i = 0; i < state->nrooms; i++)
		if (state->rooms[i].watch == serial)
			state->rooms[i].watch = 0;
}

/*
 * room_resumed
 *		There is a connection again: nothing is known of what happened
 *		meanwhile.
 */
void
room_resumed(Detection *state)
{
	for (int i = 0; i < state->nrooms; i++)
	{
		state->rooms[i].watch = 0;
		state->rooms[i].barrier = true;
		state->rooms[i].retry_at = state->now;
	}
}

/* A room that is needed. */
static Room *
need_room(Detection *state, const char *path)
{
	Room	   *room = room_find(state, path);

	if (room == NULL)
	{
		state->rooms = memory_grow(state->rooms, state->nrooms, sizeof(Room));
		room = &state->rooms[state->nrooms++];
		strcpy(room->path, path);
		room->barrier = true;
		room->sweep = state->resumed;
	}
	room->needed = true;
	return room;
}

/* Which rooms do our edges and notes have to do with? */
static void
recount_rooms(Detection *state)
{
	char		room[NOTE_VERTEX_SIZE];

	state->recount = false;
	for (int i = 0; i < state->nrooms; i++)
		state->rooms[i].used = false;
	for (int i = 0; i < state->nedges; i++)
	{
		const WaitEdge *edge = &state->edges[i].edge;

		if (vertex_room_of(edge->wait.to,
						   edge->wait.kind == NOTE_WAIT_PERMIT, room))
			need_room(state, room)->used = true;
	}
	for (const Holder *holder = detection_next_holder(state, NULL);
		 holder != NULL; holder = detection_next_holder(state, holder))
		if (vertex_room_of_owner(holder->path, room))
			need_room(state, room)->used = true;
}

/*
 * room_sweep_anew
 *		The same, of a room that is not known yet: it is listed for that.
 */
void
room_sweep_anew(Detection *state, const char *path)
{
	need_room(state, path)->sweep = true;
}

/* Which rooms do our edges and probes need? */
static void
need_rooms(Detection *state)
{
	if (state->recount)
		recount_rooms(state);
	for (int i = 0; i < state->nrooms; i++)
		state->rooms[i].needed = state->rooms[i].used ||
			state->rooms[i].sweep || state->rooms[i].wanted;
	for (int i = 0; i < state->nprobes; i++)
		if (state->probes[i].state != PROBE_OVER || state->probes[i].verdict)
			(void) need_room(state, state->probes[i].room);
}

/*
 * room_want
 *		These rooms are to be watched, whether there are edges or not.
 */
void
room_want(Detection *state, const char *const *rooms, int nrooms)
{
	for (int i = 0; i < nrooms; i++)
		(void) need_room(state, rooms[i]);
	for (int i = 0; i < state->nrooms; i++)
	{
		Room	   *room = &state->rooms[i];
		bool		wanted = false;

		for (int j = 0; j < nrooms; j++)
			wanted |= strcmp(room->path, rooms[j]) == 0;
		if (wanted && !room->wanted && room->nnamed > 0)
			state->out->named = true;
		room->wanted = wanted;
	}
}

/*
 * Is this znode ours, for all that we know?  One that is about to be deleted is,
 * until the delete has been answered.
 */
static bool
is_ours(Detection *state, const char *path)
{
	for (int i = 0; i < state->norphans; i++)
		if (strcmp(state->orphans[i].path, path) == 0)
			return true;
	return detection_find_holder(state, path) != NULL;
}

/* Note that a session is named. */
static void
add_named(Room *room, const char *vertex)
{
	VertexSession session;
	char		name[VERTEX_SESSION_SIZE];

	(void) vertex_parse(vertex, &session);
	session.remote = false;
	vertex_write(&session, name);
	for (int i = 0; i < room->nnamed; i++)
		if (strcmp(room->named[i], name) == 0)
			return;
	room->named = memory_grow(room->named, room->nnamed,
							  sizeof(*room->named));
	strcpy(room->named[room->nnamed++], name);
}

/*
 * room_listed
 *		The list of a room has been answered: if the room has been listed, or
 *		is not there, which sessions are named?
 *
 * What we tell of a session does not name it: it would be named as long as it
 * waits.  If the room is to be swept, so are znodes of sessions.
 */
void
room_listed(Detection *state, Room *room, const DetectorInput *in)
{
	char		(*before)[VERTEX_SESSION_SIZE] = room->named;
	int			nbefore = room->nnamed;
	int			same = 0;

	if (in->answer.result != REQUEST_OK &&
		in->answer.result != REQUEST_NO_NODE)
		return;
	if (in->answer.result == REQUEST_OK && !room->exists)
		detection_note_all_changed(state);	/* sessions' znodes can be made */
	room->exists = in->answer.result == REQUEST_OK;
	room->named = NULL;
	room->nnamed = 0;
	for (int i = 0; room->exists && i < in->answer.nchildren; i++)
	{
		char		path[NOTE_VERTEX_SIZE];
		VertexNode	node;

		if (!vertex_parse_node(in->answer.children[i], &node))
			continue;
		room_path_in(room->path, in->answer.children[i], path);
		if (is_ours(state, path))
			continue;
		add_named(room, node.vertex);
		if (room->sweep)
			(void) detection_send(state, REQUEST_GET, TASK_SWEEP, path, 0);
	}
	for (int i = 0; i < room->nnamed; i++)
		for (int j = 0; j < nbefore; j++)
			same += strcmp(room->named[i], before[j]) == 0;
	if (room->wanted && (same != nbefore || same != room->nnamed))
		state->out->named = true;
	free(before);
}

/*
 * room_forget
 *		The session has ended: forget all rooms, and what was to be deleted in
 *		them.
 */
void
room_forget(Detection *state)
{
	for (int i = 0; i < state->nrooms; i++)
		free(state->rooms[i].named);
	state->nrooms = 0;
	state->norphans = 0;
	state->recount = true;
}

/* A room is not needed, perhaps any more: delete it when that has lasted. */
static void
leave(Detection *state, Room *room)
{
	if (room->leave_at == 0)
		return;
	if (room->leave_at > state->now)
	{
		detection_wake(state, room->leave_at);
		return;
	}
	room->leave_at = 0;
	(void) detection_send(state, REQUEST_DELETE, TASK_DELETE, room->path,
						  0);
}

/*
 * room_watch_needed
 *		List what is needed and not watched, and delete what has not been needed
 *		for long.
 */
void
room_watch_needed(Detection *state)
{
	need_rooms(state);
	for (int i = 0; i < state->nrooms; i++)
	{
		Room	   *room = &state->rooms[i];
		DetectorOp *op;

		if (!room->needed)
		{
			leave(state, room);
			continue;
		}
		room->leave_at = state->now + ROOM_LINGER * state->timeout;
		if (room->listing || room->making || room->watch != 0)
			continue;
		if (room->retry_at > state->now)
		{
			detection_wake(state, room->retry_at);
			continue;
		}
		op = detection_send(state, REQUEST_LIST, TASK_LIST,
							room->path, 0);
		op->request.barrier = room->barrier;
		room->barrier = false;
		room->watch = op->request.serial;
		room->listing = true;
	}
}

/*
 * room_clean_up
 *		Delete what is to be deleted.
 */
void
room_clean_up(Detection *state)
{
	for (int i = 0; i < state->norphans; i++)
		if (!state->orphans[i].out)
		{
			(void) detection_send(state, REQUEST_DELETE, TASK_DELETE,
								  state->orphans[i].path, 0);
			state->orphans[i].out = true;
		}
}
