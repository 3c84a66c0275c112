/*-------------------------------------------------------------------------
 *
 * room.c
 *		The znodes %waits: made, listed, watched, and cleaned up.
 *
 * Each root that our edges have to do with has a room, <root>/%waits.  It is
 * made if it is missing, and listed and watched as long as it is needed: while
 * there is an edge, a note that has waits, or a probe.
 *
 * A probe is in the room of the first of the roots in which its members wait.
 * Who has no edge to do with that root does not see it; so a deadlock through
 * locks below three roots or more may stay.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/room.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/room.h"

#include <stdio.h>
#include <string.h>

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
 * room_of
 *		The room of the root below which a contender is; false if there is none.
 */
bool
room_of(const char *contender, bool permit, char room[NOTE_VERTEX_SIZE])
{
	char		path[NOTE_VERTEX_SIZE];
	int			levels = permit ? 3 : 2;

	strcpy(path, contender);
	if (path[0] != '/')
		return false;
	while (levels-- > 0)
	{
		char	   *slash = strrchr(path, '/');

		if (slash == NULL)
			return false;
		*slash = '\0';
	}
	room_path_in(path, PROBE_ROOM, room);
	return room[0] != '\0';
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
	Litter	   *litter = detection_grow(state, state->litter, state->nlitter,
										sizeof(Litter));

	if (litter == NULL)
		return;
	state->litter = litter;
	room_path_in(room, name, litter[state->nlitter++].path);
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
	if (in->result == DETECTOR_NO_NODE || in->result == DETECTOR_REFUSED)
		room->retry_at = state->now + state->timeout;
}

/*
 * room_deleted
 *		A delete has been answered.
 */
void
room_deleted(Detection *state, const Pending *pending, const DetectorInput *in)
{
	for (int i = 0; i < state->nlitter; i++)
		if (strcmp(state->litter[i].path, pending->path) == 0)
		{
			state->litter[i].out = false;
			if (in->result == DETECTOR_UNKNOWN)
				return;
			state->nlitter--;
			memmove(&state->litter[i], &state->litter[i + 1],
					(state->nlitter - i) * sizeof(Litter));
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

/* Is this contender a permit? */
static bool
is_permit(const char *contender)
{
	const char *name = strrchr(contender, '/');
	size_t		len = strlen("/" ZNODE_PERMITS_DIR);

	return name != NULL && name >= contender + len &&
		memcmp(name - len, "/" ZNODE_PERMITS_DIR, len) == 0 &&
		strstr(name, "-lease-") != NULL;
}

static void
need_room(Detection *state, const char *path)
{
	Room	   *rooms = room_find(state, path);

	if (rooms == NULL)
	{
		rooms = detection_grow(state, state->rooms, state->nrooms,
							   sizeof(Room));
		if (rooms == NULL)
			return;
		state->rooms = rooms;
		rooms += state->nrooms++;
		strcpy(rooms->path, path);
		rooms->barrier = true;
		rooms->sweep = state->resumed;
	}
	rooms->needed = true;
}

/* Which rooms do our edges and probes need? */
static void
need_rooms(Detection *state)
{
	char		room[NOTE_VERTEX_SIZE];

	for (int i = 0; i < state->nrooms; i++)
		state->rooms[i].needed = state->rooms[i].sweep;
	for (int i = 0; i < state->nedges; i++)
	{
		const WaitEdge *edge = &state->edges[i].edge;

		if (room_of(edge->wait.to, edge->wait.kind == NOTE_WAIT_PERMIT, room))
			need_room(state, room);
	}
	for (int i = 0; i < state->nholders; i++)
	{
		const char *path = state->holders[i].path;

		if (room_of(path, is_permit(path), room))
			need_room(state, room);
	}
	for (int i = 0; i < state->nprobes; i++)
		if (state->probes[i].state != PROBE_OVER || state->probes[i].verdict)
			need_room(state, state->probes[i].room);
}

/*
 * room_watch_needed
 *		List what is needed and not watched.
 */
void
room_watch_needed(Detection *state)
{
	need_rooms(state);
	for (int i = 0; i < state->nrooms; i++)
	{
		Room	   *room = &state->rooms[i];
		DetectorOp *op;

		if (!room->needed || room->listing || room->making || room->watch != 0)
			continue;
		if (room->retry_at > state->now)
		{
			detection_wake(state, room->retry_at);
			continue;
		}
		op = detection_send(state, DETECTOR_OP_LIST_WATCH, TASK_LIST,
							room->path, 0);
		if (op == NULL)
			return;
		op->barrier = room->barrier;
		room->barrier = false;
		room->watch = op->serial;
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
	for (int i = 0; i < state->nlitter; i++)
		if (!state->litter[i].out)
			state->litter[i].out =
				detection_send(state, DETECTOR_OP_DELETE, TASK_DELETE,
							   state->litter[i].path, 0) != NULL;
}
