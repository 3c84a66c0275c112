/*-------------------------------------------------------------------------
 *
 * waits_dir.c
 *		The znodes %waits: created, listed, watched, and cleaned up.
 *
 * Each root of our edges has a directory, <root>/%waits.  It is created if it
 * is missing, and listed and watched while it is needed: while there is an
 * edge, a note with waits, or a probe, or while sessions of ours may be named
 * there (vertex.c).
 *
 * A directory that has not been needed for some time is deleted; the delete
 * fails unless it is empty.  Instances that need the directory learn of that
 * from their watch, and create it again; so does an instance whose create of a
 * znode in it fails.
 *
 * A probe is in the directory of one root: of those in which its members wait,
 * the first by name.  With three roots or more, an instance without an edge of
 * that root does not see the probe until it finds the deadlock itself.  Then
 * it creates a probe in that directory, too, watches the directory as long as
 * that probe lives, and answers the older one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/waits_dir.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/detection_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/*
 * A directory that is not needed stays for this multiple of deadlock_timeout.
 */
#define DIR_LINGER			20

/* The path of a znode in a directory; "" if that is too long. */
void
waits_dir_path_in(const char *dir, const char *name,
				  char path[NOTE_VERTEX_SIZE])
{
	if (snprintf(path, NOTE_VERTEX_SIZE, "%s/%s", dir, name) >=
		NOTE_VERTEX_SIZE)
		path[0] = '\0';
}

/* Find a known directory, or NULL. */
WaitsDir *
waits_dir_find(Detection *state, const char *path)
{
	for (int i = 0; i < state->ndirs; i++)
		if (strcmp(state->dirs[i].path, path) == 0)
			return &state->dirs[i];
	return NULL;
}

/* Have unknown znodes of ours in a directory found, and deleted. */
void
waits_dir_sweep(Detection *state, const char *path)
{
	WaitsDir   *dir = waits_dir_find(state, path);

	if (dir != NULL)
		dir->sweep = true;
}

/* Delete a znode of ours, now or when there is a connection. */
void
waits_dir_delete(Detection *state, const char *dir, const char *name)
{
	state->deletes =
		memory_grow(state->deletes, state->ndeletes, sizeof(PendingDelete));
	waits_dir_path_in(dir, name, state->deletes[state->ndeletes++].path);
}

/* A mkdir has been answered. */
void
waits_dir_made(Detection *state, const Pending *pending,
			   const DetectorInput *in)
{
	WaitsDir   *dir = waits_dir_find(state, pending->path);

	if (dir == NULL)
		return;
	dir->making = false;
	if (in->answer.result == REQUEST_NO_NODE ||
		in->answer.result == REQUEST_REFUSED)
		dir->retry_at = state->now + state->timeout;
}

/* A delete has been answered. */
void
waits_dir_deleted(Detection *state, const Pending *pending,
				  const DetectorInput *in)
{
	WaitsDir   *dir = waits_dir_find(state, pending->path);

	if (dir != NULL && in->answer.result != REQUEST_REFUSED)
	{
		/* to be listed if it is needed again */
		dir->exists = false;
		dir->watch = 0;
	}
	for (int i = 0; i < state->ndeletes; i++)
		if (strcmp(state->deletes[i].path, pending->path) == 0)
		{
			state->deletes[i].out = false;
			if (in->answer.result == REQUEST_UNKNOWN)
				return;
			state->ndeletes--;
			memmove(&state->deletes[i], &state->deletes[i + 1],
					(state->ndeletes - i) * sizeof(PendingDelete));
			return;
		}
}

/* The watch that the list with this serial has set has fired. */
void
waits_dir_changed(Detection *state, uint32_t serial)
{
	for (int i = 0; i < state->ndirs; i++)
		if (state->dirs[i].watch == serial)
			state->dirs[i].watch = 0;
}

/* There is a connection again: changes may have been missed. */
void
waits_dir_resumed(Detection *state)
{
	for (int i = 0; i < state->ndirs; i++)
	{
		state->dirs[i].watch = 0;
		state->dirs[i].barrier = true;
		state->dirs[i].retry_at = state->now;
	}
}

/* Mark a directory, which may be unknown yet, as needed. */
static WaitsDir *
need_waits_dir(Detection *state, const char *path)
{
	WaitsDir   *dir = waits_dir_find(state, path);

	if (dir == NULL)
	{
		state->dirs = memory_grow(state->dirs, state->ndirs, sizeof(WaitsDir));
		dir = &state->dirs[state->ndirs++];
		strcpy(dir->path, path);
		dir->barrier = true;
		dir->sweep = state->resumed;
	}
	dir->needed = true;
	return dir;
}

/* Mark the directories of our edges and notes as used. */
static void
recount_waits_dirs(Detection *state)
{
	char		dir[NOTE_VERTEX_SIZE];

	state->recount = false;
	for (int i = 0; i < state->ndirs; i++)
		state->dirs[i].used = false;
	for (int i = 0; i < state->nedges; i++)
	{
		const WaitEdge *edge = &state->edges[i].edge;

		if (vertex_waits_dir_of(edge->wait.to,
								edge->wait.kind == NOTE_WAIT_PERMIT, dir))
			need_waits_dir(state, dir)->used = true;
	}
	for (const OwnNote *note = detection_next_note(state, NULL);
		 note != NULL; note = detection_next_note(state, note))
		if (vertex_waits_dir_of_owner(note->path, dir))
			need_waits_dir(state, dir)->used = true;
}

/* As waits_dir_sweep(), for a directory that may be unknown yet. */
void
waits_dir_sweep_new(Detection *state, const char *path)
{
	need_waits_dir(state, path)->sweep = true;
}

/* Mark the directories that our edges and probes need. */
static void
need_waits_dirs(Detection *state)
{
	if (state->recount)
		recount_waits_dirs(state);
	for (int i = 0; i < state->ndirs; i++)
		state->dirs[i].needed = state->dirs[i].used ||
			state->dirs[i].sweep || state->dirs[i].wanted;
	for (int i = 0; i < state->nprobes; i++)
		if (state->probes[i].state != PROBE_OVER || state->probes[i].verdict)
			(void) need_waits_dir(state, state->probes[i].dir);
}

/* From now on watch these directories, whether there are edges or not. */
void
waits_dir_want(Detection *state, const char *const *dirs, int ndirs)
{
	for (int i = 0; i < ndirs; i++)
		(void) need_waits_dir(state, dirs[i]);
	for (int i = 0; i < state->ndirs; i++)
	{
		WaitsDir   *dir = &state->dirs[i];
		bool		wanted = false;

		for (int j = 0; j < ndirs; j++)
			wanted |= strcmp(dir->path, dirs[j]) == 0;
		if (wanted && !dir->wanted && dir->nnamed > 0)
			state->out->named = true;
		dir->wanted = wanted;
	}
}

/*
 * Is this znode ours, as far as we know?  One that is being deleted is, until
 * the delete has been answered.
 */
static bool
is_ours(Detection *state, const char *path)
{
	for (int i = 0; i < state->ndeletes; i++)
		if (strcmp(state->deletes[i].path, path) == 0)
			return true;
	return detection_find_note(state, path) != NULL;
}

/* Note that a session is named. */
static void
add_named(WaitsDir *dir, const char *vertex)
{
	VertexSession session;
	char		name[VERTEX_SESSION_SIZE];

	(void) vertex_parse(vertex, &session);
	session.remote = false;
	vertex_write(&session, name);
	for (int i = 0; i < dir->nnamed; i++)
		if (strcmp(dir->named[i], name) == 0)
			return;
	dir->named = memory_grow(dir->named, dir->nnamed,
							 sizeof(*dir->named));
	strcpy(dir->named[dir->nnamed++], name);
}

/*
 * waits_dir_listed
 *		Handle the list of a directory: note whether it exists, and which
 *		sessions are named.
 *
 * A znode of ours does not name its session: otherwise that would be named as
 * long as it waits.  If the directory is to be swept, so are znodes of
 * sessions.
 */
void
waits_dir_listed(Detection *state, WaitsDir *dir, const DetectorInput *in)
{
	char		(*before)[VERTEX_SESSION_SIZE] = dir->named;
	int			nbefore = dir->nnamed;
	int			same = 0;

	if (in->answer.result != REQUEST_OK &&
		in->answer.result != REQUEST_NO_NODE)
		return;
	if (in->answer.result == REQUEST_OK && !dir->exists)
		detection_note_all_changed(state);	/* sessions' znodes can be made */
	dir->exists = in->answer.result == REQUEST_OK;
	dir->named = NULL;
	dir->nnamed = 0;
	for (int i = 0; dir->exists && i < in->answer.nchildren; i++)
	{
		char		path[NOTE_VERTEX_SIZE];
		VertexNode	node;

		if (!vertex_parse_node(in->answer.children[i], &node))
			continue;
		waits_dir_path_in(dir->path, in->answer.children[i], path);
		if (is_ours(state, path))
			continue;
		add_named(dir, node.vertex);
		if (dir->sweep)
			(void) detection_send(state, REQUEST_GET, TASK_SWEEP, path, 0);
	}
	for (int i = 0; i < dir->nnamed; i++)
		for (int j = 0; j < nbefore; j++)
			same += strcmp(dir->named[i], before[j]) == 0;
	if (dir->wanted && (same != nbefore || same != dir->nnamed))
		state->out->named = true;
	free(before);
}

/* The session has ended: forget all directories, and all pending deletes. */
void
waits_dir_forget(Detection *state)
{
	for (int i = 0; i < state->ndirs; i++)
		free(state->dirs[i].named);
	state->ndirs = 0;
	state->ndeletes = 0;
	state->recount = true;
}

/* A directory is not needed: delete it when that has lasted long enough. */
static void
leave(Detection *state, WaitsDir *dir)
{
	if (dir->leave_at == 0)
		return;
	if (dir->leave_at > state->now)
	{
		detection_wake(state, dir->leave_at);
		return;
	}
	dir->leave_at = 0;
	(void) detection_send(state, REQUEST_DELETE, TASK_DELETE, dir->path,
						  0);
}

/*
 * waits_dir_watch_needed
 *		List and watch the needed directories that are not watched, and delete
 *		those that have not been needed for long.
 */
void
waits_dir_watch_needed(Detection *state)
{
	need_waits_dirs(state);
	for (int i = 0; i < state->ndirs; i++)
	{
		WaitsDir   *dir = &state->dirs[i];
		DetectorOp *op;

		if (!dir->needed)
		{
			leave(state, dir);
			continue;
		}
		dir->leave_at = state->now + DIR_LINGER * state->timeout;
		if (dir->listing || dir->making || dir->watch != 0)
			continue;
		if (dir->retry_at > state->now)
		{
			detection_wake(state, dir->retry_at);
			continue;
		}
		op = detection_send(state, REQUEST_LIST, TASK_LIST,
							dir->path, 0);
		op->request.barrier = dir->barrier;
		dir->barrier = false;
		dir->watch = op->request.serial;
		dir->listing = true;
	}
}

/* Delete the znodes that are to be deleted. */
void
waits_dir_clean_up(Detection *state)
{
	for (int i = 0; i < state->ndeletes; i++)
		if (!state->deletes[i].out)
		{
			(void) detection_send(state, REQUEST_DELETE, TASK_DELETE,
								  state->deletes[i].path, 0);
			state->deletes[i].out = true;
		}
}
