/*-------------------------------------------------------------------------
 *
 * detector.c
 *		Deadlocks between instances: the part of one instance.
 *
 * One Detector is one instance's.  Its inputs are the local edges, answers of
 * ZooKeeper, and the time; its outputs are operations, requests to scan the
 * locks, and deadlocks that have been ended.
 *
 * A local edge H -> W says that our contender H is held, and that its holder
 * waits for our contender W, directly or through other backends.  It has
 * identities that are never reused: the hold, the wait, and the chain of waits
 * in between.  waits.c defines the graph that the edges of all instances and
 * the queues make, and what a deadlock in it is.
 *
 *	1	Publish.  The edges are written into H's note, and removed when they no
 *		longer exist.  If they are more than NOTE_MAX_WAITS, they take turns.
 *		Those from a session are written into a znode of that session
 *		(vertex.c), which is created when its directory is known to exist, and
 *		deleted when there are none.
 *	2	Search.  When the write has been answered we search once from the edge,
 *		then again each deadlock_timeout while it lasts, and at once after a
 *		lost connection.  The queues and the notes of owners are read,
 *		including our own.
 *	3	Probe.  A deadlock that was read may never have existed.  So its finder
 *		creates a probe in <root>/%waits that lists its edges, unless there is
 *		one with the same edges.  The oldest counts; others are deleted.
 *	4	Answer.  An instance that publishes watches the children of %waits.  If
 *		it finds an edge of its own in a probe, it scans the locks again, and
 *		creates an answer: the edge is still the same, or not.
 *	5	Act.  When all others have confirmed their edges, the victim's
 *		instance, and no other, scans its locks, too, and at once sends one
 *		multi (confirm.c), which does nothing if anything has changed.
 *	6	Verdict.  All instances with an edge in the probe read that it has been
 *		ended.  Each deletes its own znodes when the verdict is there, an edge
 *		was denied, or nothing has happened for some time.
 *
 * confirm.c has 3 to 6 with the states of a probe, probe.c their form.
 *
 * The deadlock that an act ends existed at one moment: when the first answer
 * was given or, if no other instance has an edge in it, when the victim's
 * instance scanned its locks.
 *
 *	- Each edge existed before the probe did: it was in the note.  It existed
 *	  again when its instance answered, or scanned before its act.
 *	- If it has the same hold, wait and chain both times, it existed in
 *	  between.  A blocked process acquires and releases nothing, and each
 *	  process of the chain was in the same wait both times, as wait and chain
 *	  say.  The hold did not change hands, as its identity says.
 *	- So at the first answer all edges existed: each from before the probe to
 *	  its own answer, which was not earlier.
 *	- W waited behind H then.  That H is ahead was read before the probe, and
 *	  the order of a queue does not change.  The act finds H, W, and each
 *	  "between" of a reader, so they existed all the time: a name is used once.
 *	  Permits are counted from the front, so those that the act finds were in
 *	  the way all the time.
 *	- A deadlock does not end by itself.  If a process gave up after its
 *	  instance's answer, the victim fails although the deadlock is over, but
 *	  not for a deadlock that never existed.  In the victim's own instance no
 *	  process has given up when the act is sent.
 *
 * A deadlock that lasts is found.  One of its edges' writes is the last.  The
 * server that answers it has applied all writes before it, and a session never
 * moves to a server that has applied less than the session has seen.  So a
 * search that begins after the answer reads all the notes; it reads the queues
 * as well, since an edge is published when its wait has long been in the
 * queue.  By the proof in waits.c one of the searching instances reports it or
 * another, smaller one.  (A search before an instance's own write is not
 * enough: two instances that search at the same time, and write afterwards,
 * find nothing.)
 *
 * One act ends a deadlock.  Each act writes the notes of all edges of the
 * victim's wait, and checks the version of each note of others with an edge of
 * it.  An act with an edge of our own note is not sent before a write of that
 * note has been answered, and then its edges are checked again.  So of two
 * acts whose deadlocks share the victim of one of them only the first
 * succeeds.  Two probes with the same edges have the same victim.
 *
 * If the answer to the act is lost, the verdict, read behind a barrier, shows
 * whether it was carried out.  If the worker is lost with it, no backend has
 * been told and no wait fails; the next worker publishes the edge again.
 *
 * A new worker in an old session is given the contenders whose notes may have
 * waits (ADOPT), and writes them again.  In the directories in which an
 * earlier one may have left znodes (SWEEP), and in those that it comes to, it
 * searches for unknown znodes of its session, and deletes them.
 *
 * When the session has ended, all that it has created is gone; but contenders
 * in another session of ours may exist, so their notes are written again.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/detector.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/detector.h"

#include <stdlib.h>
#include <string.h>

#include "core/deadlock/detection_private.h"
#include "core/memory.h"
#include "core/mutation.h"

/*
 * The most notes being written at a time, so that other requests need not wait
 * for all of them.
 */
#define MAX_WRITING		32

/* The most edges that one search begins from. */
#define MAX_STARTS	16

/*
 * Publishing
 */

/* A note may have to be written at this time. */
static void
write_later(Detection *state, OwnNote *note, int64_t at)
{
	note->write_at = at;
	if (at < state->write_at)
		state->write_at = at;
}

/* Choose the edges for a note: all, or those whose turn it is. */
static int
choose_waits(Detection *state, OwnNote *note, NoteWait *waits)
{
	int			total = 0;
	int			n = 0;
	int			place = 0;

	if (ZK_MUTATED(ZK_DEADLOCK_EDGES_STAY))
		while (n < note->nsent)
		{
			waits[n] = note->sent[n];
			n++;
		}
	for (int i = note->edges; i >= 0; i = state->edges[i].next_of_note)
		total += !state->edges[i].ended;
	if (total <= NOTE_MAX_WAITS)
		note->first = 0;
	else if (note->turn_at <= state->now)
	{
		/* half of them stay: alternatives count only if they are together */
		note->first = (note->first + NOTE_MAX_WAITS / 2) % total;
		note->turn_at = state->now + state->timeout;
	}
	if (total > NOTE_MAX_WAITS)
		write_later(state, note, note->turn_at);
	for (int i = note->edges; i >= 0; i = state->edges[i].next_of_note)
	{
		const LocalEdge *edge = &state->edges[i];
		bool		there = false;

		if (edge->ended)
			continue;
		for (int j = 0; j < n; j++)
			there |= note_same_wait(&waits[j], &edge->edge.wait);
		if (!there && n < NOTE_MAX_WAITS &&
			(place - note->first + total) % total < NOTE_MAX_WAITS)
			waits[n++] = edge->edge.wait;
		place++;
	}
	return n;
}

/* Do both waits have the mark of being only ahead of others, or neither? */
static bool
same_mark(const NoteWait *one, const NoteWait *other)
{
	return (one->began == 0) == (other->began == 0);
}

/* Are all these waits among those that were last written? */
static bool
are_sent(const OwnNote *note, const NoteWait *waits, int n)
{
	for (int i = 0; i < n; i++)
	{
		bool		there = false;

		for (int j = 0; j < note->nsent; j++)
			there |= note_same_wait(&note->sent[j], &waits[i]) &&
				same_mark(&note->sent[j], &waits[i]);
		if (!there)
			return false;
	}
	return true;
}

/*
 * Is an edge in this note yet to be searched from, or is a search under way?
 */
static bool
is_to_search(const Detection *state, const OwnNote *note)
{
	for (int i = note->edges; i >= 0; i = state->edges[i].next_of_note)
		if (state->searching || state->edges[i].search_at == 0)
			return true;
	return false;
}

/* The directory of a session's znode, or NULL. */
static WaitsDir *
find_waits_dir(Detection *state, const OwnNote *note)
{
	char		path[NOTE_VERTEX_SIZE];

	return vertex_waits_dir_of_owner(note->path, path) ?
		waits_dir_find(state, path) : NULL;
}

/* Is the directory of a session's znode there, so that it can be made? */
static bool
is_writable(Detection *state, const OwnNote *note)
{
	const WaitsDir *dir;

	if (!note->session)
		return true;
	dir = find_waits_dir(state, note);
	return dir != NULL && dir->exists && note->edges >= 0;
}

/* Write a note unless it is up to date. */
static void
write_note(Detection *state, OwnNote *note)
{
	NoteWait	waits[NOTE_MAX_WAITS];
	NoteWait   *copy;
	DetectorOp *op;
	size_t		size;
	bool		grows;
	int			n;

	if (note->out != 0 || note->gone || !is_writable(state, note))
		return;
	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD) && is_to_search(state, note))
		return;
	n = choose_waits(state, note, waits);
	grows = note->unsure || !are_sent(note, waits, n);
	if (!grows && n == note->nsent && !note->copy_differs)
		return;
	if (note->retry_at > state->now)
	{
		write_later(state, note, note->retry_at);
		return;
	}
	size = n * sizeof(NoteWait);
	copy = memcpy(detection_alloc(state, size), waits, size);
	op = detection_send(state, REQUEST_SET, TASK_SET, note->path, 0);
	op->waits = copy;
	op->nwaits = n;
	free(note->sent);
	note->sent = memcpy(memory_alloc(size), waits, size);
	note->nsent = n;
	note->out = op->request.serial;
	note->grows = grows;
	note->unsure = note->copy_differs = false;
	note->made = true;
	state->nwriting++;
	state->counts->published += n;
}

/* Is an edge in its note, as written and answered? */
static bool
is_in_note(const OwnNote *note, const WaitEdge *edge)
{
	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD))
		return true;
	if (note->gone || note->unsure || note->out != 0)
		return false;
	for (int i = 0; i < note->nsent; i++)
		if (note_same_wait(&note->sent[i], &edge->wait))
			return true;
	return false;
}

/* The directory of a session's znode is missing: have it made. */
static void
lose_waits_dir(Detection *state, const OwnNote *note)
{
	WaitsDir   *dir = find_waits_dir(state, note);

	if (dir != NULL)
	{
		dir->exists = false;
		dir->watch = 0;
	}
}

/* Is nothing more to be written into a note? */
static bool
is_done(const OwnNote *note)
{
	if (note->out != 0 || note->edges >= 0)
		return false;
	return note->session || note->gone || (note->nsent == 0 && !note->unsure);
}

/* Delete a session's znode, without edges, if it may exist. */
static void
delete_session_node(Detection *state, const OwnNote *note)
{
	char		dir[NOTE_VERTEX_SIZE];
	const char *name = vertex_split_path(note->path, dir);

	if (note->session && note->made)
		waits_dir_delete(state, dir, name);
}

/*
 * Write a note if that is due, and mark the edges in it; forget the note if
 * nothing is left to be done about it.
 */
static void
publish_note(Detection *state, OwnNote *note)
{
	if (state->connected)
		write_note(state, note);
	if (is_done(note))
	{
		delete_session_node(state, note);
		detection_drop_note(state, note);
		return;
	}
	for (int i = note->edges; i >= 0; i = state->edges[i].next_of_note)
	{
		LocalEdge  *edge = &state->edges[i];

		edge->published = !edge->ended && is_in_note(note, &edge->edge);
		if (edge->published && edge->search_at < state->search_at)
			state->search_at = edge->search_at;
	}
}

/* Set the local edges, keeping what is known of those that stay. */
static void
publish_edges(Detection *state, const WaitEdge *list, int n)
{
	LocalEdge  *edges = memory_alloc(n * sizeof(LocalEdge));

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
			edges[i].note = detection_add_note(state, list[i].from);
		edges[i].edge = list[i];
		if (known == NULL || !same_mark(&known->edge.wait, &list[i].wait))
			detection_note_changed(state, edges[i].note, false);
	}
	for (int i = 0; i < state->nedges; i++)
		if (!state->edges[i].kept)
			detection_note_changed(state, state->edges[i].note, false);
	detection_set_edges(state, edges, n);
}

/* The write of a note has been answered. */
static void
on_note_written(Detection *state, const Pending *pending,
				const DetectorInput *in)
{
	OwnNote    *note = detection_find_note(state, pending->path);

	state->nwriting--;
	if (note == NULL || note->out != pending->serial)
		return;
	note->out = 0;
	detection_note_changed(state, note, true);
	switch (in->answer.result)
	{
		case REQUEST_OK:
			if (note->grows)
				note->grown = in->answer.version;
			break;
		case REQUEST_NO_NODE:
			note->gone = !note->session;
			note->made = false;
			note->nsent = 0;
			if (note->session)
				lose_waits_dir(state, note);
			break;
		case REQUEST_UNKNOWN:
			note->unsure = true;
			break;
		case REQUEST_REFUSED:
			note->unsure = true;
			note->retry_at = state->now + state->timeout;
			break;
	}
}

/* Notes whose write was put off may be due. */
static void
note_due(Detection *state)
{
	if (state->write_at > state->now)
		return;
	state->write_at = INT64_MAX;
	for (OwnNote *note = detection_next_note(state, NULL); note != NULL;
		 note = detection_next_note(state, note))
		if (note->write_at > state->now)
			write_later(state, note, note->write_at);
		else if (note->write_at != 0)
		{
			note->write_at = 0;
			detection_note_changed(state, note, false);
		}
}

/* Publish all notes that are due, as many as may be written at a time. */
static void
publish_all(Detection *state)
{
	OwnNote    *note;

	if (ZK_MUTATED(ZK_DEADLOCK_LOOK_AHEAD))
		detection_note_all_changed(state);
	note_due(state);
	while ((note = state->changed) != NULL && state->nwriting < MAX_WRITING)
	{
		state->changed = note->next_changed;
		note->changed = false;
		publish_note(state, note);
	}
}

/*
 * The ZooKeeper session has ended: no more answers come, and notes must be
 * written again.  The znodes of PostgreSQL's sessions have ended with it; the
 * next scan has their edges with new names.
 */
static void
publish_expired(Detection *state)
{
	int			n = 0;

	for (int i = 0; i < state->nedges; i++)
		state->edges[i].note->edges = -1;
	for (int i = 0; i < state->nedges; i++)
		if (!state->edges[i].note->session)
			state->edges[n++] = state->edges[i];
	detection_set_edges(state, state->edges, n);
	state->nwriting = 0;
	for (OwnNote *note = detection_next_note(state, NULL); note != NULL;
		 note = detection_next_note(state, note))
	{
		note->unsure = true;
		note->made = false;
		note->out = 0;
	}
	detection_note_all_changed(state);
}

static void
on_edges(Detection *state, const DetectorInput *in)
{
	publish_edges(state, in->edges, in->nedges);
	waits_dir_want(state, in->dirs, in->ndirs);
	if (in->scan != 0)
		confirm_scanned(state, in->scan);
}

/*
 * Searching
 */

static void
end_search(Detection *state)
{
	graph_free(&state->graph);
	free(state->starts);
	state->starts = NULL;
	state->nstarts = 0;
	state->nreading = 0;
	state->searching = false;
}

/*
 * All has been read that can be read: find the deadlocks, and end the search.
 */
static void
find_deadlocks(Detection *state)
{
	WaitSearch *search = waits_begin(&state->graph);

	for (int i = 0; i < state->nstarts; i++)
	{
		const LocalEdge *edge = detection_find_edge(state, &state->starts[i]);
		WaitDeadlock deadlock;

		if (edge != NULL && !edge->ended &&
			waits_find(search, &state->starts[i], &deadlock))
			confirm_found(state, &deadlock);
	}
	waits_end(search);
	end_search(state);
}

/* Send the next reads of the search; if there are none, it is complete. */
static void
read_on(Detection *state)
{
	WaitRead	read;

	while (graph_next_read(&state->graph, &read))
	{
		(void) detection_send(state, read.kind == GRAPH_READ_CHILDREN ?
							  REQUEST_CHILDREN : REQUEST_GET, TASK_SEARCH,
							  read.path, 0);
		state->nreading++;
		state->counts->reads++;
	}
	if (state->nreading == 0)
		find_deadlocks(state);
}

static void
on_search_read(Detection *state, const Pending *pending,
			   const DetectorInput *in)
{
	if (!state->searching || state->nreading == 0)
		return;
	state->nreading--;
	if (in->answer.result == REQUEST_OK && in->answer.children != NULL)
		graph_add_children(&state->graph, pending->path, in->answer.children,
						   in->answer.nchildren);
	else if (in->answer.result == REQUEST_OK)
		graph_add_note(&state->graph, pending->path, in->answer.data,
					   in->answer.data_len, in->answer.version,
					   request_is_ephemeral(&in->answer));
	if (state->nreading == 0)
		read_on(state);
}

/* Begin the search with this edge, too. */
static void
start(Detection *state, LocalEdge *edge)
{
	state->starts = memory_grow(state->starts, state->nstarts,
								sizeof(WaitEdge));
	state->starts[state->nstarts++] = edge->edge;
	edge->search_at = state->now + state->timeout;
	graph_start(&state->graph, &edge->edge);
}

/*
 * Search from the edges that are due, unless a search is under way.  If they
 * are too many for one search, the next one begins behind them.
 */
static void
search_from_due_edges(Detection *state)
{
	int			n = 0;

	if (state->searching || state->search_at > state->now)
		return;
	state->search_at = INT64_MAX;
	for (; n < state->nedges && state->nstarts < MAX_STARTS; n++)
	{
		LocalEdge  *edge = &state->edges[(state->first_start + n) %
										 state->nedges];

		if (!edge->published || edge->ended ||
			vertex_only_names(edge->edge.from, &edge->edge.wait))
			continue;
		if (edge->search_at <= state->now)
			start(state, edge);
		if (edge->search_at < state->search_at)
			state->search_at = edge->search_at;
	}
	if (n < state->nedges)
		state->search_at = state->now;
	state->first_start = state->nedges == 0 ? 0 :
		(state->first_start + n) % state->nedges;
	if (state->nstarts > 0)
	{
		state->searching = true;
		state->graph.turn = (unsigned) state->counts->searches++;
		read_on(state);
	}
}

/* Give up the search under way. */
static void
break_search(Detection *state)
{
	for (int i = 0; i < state->nstarts; i++)
	{
		LocalEdge  *edge = detection_find_edge(state, &state->starts[i]);

		if (edge != NULL)
			edge->search_at = state->now;
	}
	state->search_at = state->now;
	for (int i = state->npending - 1; i >= 0; i--)
		if (state->pending[i].task == TASK_SEARCH)
		{
			free(state->pending[i].path);
			state->npending--;
			memmove(&state->pending[i], &state->pending[i + 1],
					(state->npending - i) * sizeof(Pending));
		}
	end_search(state);
}

/*
 * The connection, the session, and the detector itself
 */

static void
on_suspended(Detection *state)
{
	state->connected = false;
	break_search(state);
}

static void
on_resumed(Detection *state)
{
	state->connected = true;
	waits_dir_resumed(state);

	/* what was under way when the connection was lost may have been missed */
	for (int i = 0; i < state->nedges; i++)
		state->edges[i].search_at = state->now;
	state->search_at = state->now;
	detection_note_all_changed(state);
}

static void
forget_pending(Detection *state)
{
	for (int i = 0; i < state->npending; i++)
		free(state->pending[i].path);
	state->npending = 0;
}

/* No more answers come; notes in other sessions may still exist. */
static void
on_expired(Detection *state)
{
	on_suspended(state);
	confirm_forget(state);
	publish_expired(state);
	forget_pending(state);
	state->resumed = false;
}

static void
on_adopt(Detection *state, const char *path)
{
	OwnNote    *note = detection_add_note(state, path);

	note->unsure = true;
	detection_note_changed(state, note, false);
}

static void
on_done(Detection *state, const DetectorInput *in)
{
	Pending		pending;

	if (!detection_take(state, in->answer.serial, &pending))
		return;
	if (pending.task == TASK_SET)
		on_note_written(state, &pending, in);
	else if (pending.task == TASK_SEARCH)
		on_search_read(state, &pending, in);
	else
		confirm_done(state, &pending, in);
	free(pending.path);
}

/*
 * detector_init
 *		Set up a detector, without a connection as yet.
 *
 * "deadlock_timeout" is in us.  "resumed": the session is that of an earlier
 * worker, which may have left znodes behind.
 */
void
detector_init(Detector *detector, int64_t deadlock_timeout, bool resumed)
{
	memset(detector, 0, sizeof(*detector));
	detector->state = memory_alloc(sizeof(Detection));
	detector->state->timeout = deadlock_timeout;
	detector->state->write_at = INT64_MAX;
	detector->state->search_at = INT64_MAX;
	detector->state->resumed = resumed;
}

/* Free what a detector has allocated; the struct is the caller's. */
void
detector_free(Detector *detector)
{
	Detection  *state = detector->state;
	OwnNote    *note;

	if (state == NULL)
		return;
	end_search(state);
	confirm_forget(state);
	free(state->edges);
	free(state->edge_table);
	while ((note = detection_next_note(state, NULL)) != NULL)
		detection_drop_note(state, note);
	forget_pending(state);
	detection_free_blocks(state);
	free(state->blocks);
	free(state->ops);
	free(state->notes);
	free(state->dirs);
	free(state->probes);
	free(state->deletes);
	free(state->pending);
	free(state);
	detector->state = NULL;
}

/* Change deadlock_timeout, in us. */
void
detector_set_timeout(Detector *detector, int64_t deadlock_timeout)
{
	detector->state->timeout = deadlock_timeout;
}

/*
 * detector_step
 *		The transition function: one event in; operations, requests for a scan
 *		and verdicts out.
 *
 * Operations must be sent in the order given; each is to be answered once, by
 * its serial and in the order sent, unless the session has expired.  "out" is
 * overwritten; what it points to is valid until the next step.
 */
void
detector_step(Detector *detector, const DetectorInput *in, DetectorOutput *out)
{
	Detection  *state = detector->state;

	detection_free_blocks(state);
	memset(out, 0, sizeof(*out));
	out->wake_at = INT64_MAX;
	state->out = out;
	state->counts = &detector->counts;
	state->now = in->now;
	switch (in->event)
	{
		case DETECTOR_EDGES:
			on_edges(state, in);
			break;
		case DETECTOR_DONE:
			on_done(state, in);
			break;
		case DETECTOR_DIR_CHANGED:
			waits_dir_changed(state, in->answer.serial);
			break;
		case DETECTOR_TICK:
			break;
		case DETECTOR_ADOPT:
			on_adopt(state, in->path);
			break;
		case DETECTOR_SWEEP:
			waits_dir_sweep_new(state, in->path);
			break;
		case DETECTOR_SUSPENDED:
			on_suspended(state);
			break;
		case DETECTOR_RESUMED:
			on_resumed(state);
			break;
		case DETECTOR_EXPIRED:
			on_expired(state);
			break;
	}
	publish_all(state);
	detection_wake(state, state->write_at);
	if (state->connected)
		search_from_due_edges(state);
	if (state->connected && !state->searching)
		detection_wake(state, state->search_at);
	confirm_advance(state);
}

/* Was there an edge from this contender in the last EDGES? */
bool
detector_knows(const Detector *detector, const char *path)
{
	const OwnNote *note = detection_find_note(detector->state, path);

	return note != NULL && note->edges >= 0;
}

/* Is there nothing to be scanned, read, written or waited for? */
bool
detector_is_idle(const Detector *detector)
{
	const Detection *state = detector->state;

	for (int i = 0; i < state->ndirs; i++)
		if (state->dirs[i].sweep)
			return false;
	return state->nedges == 0 && state->nnotes == 0 &&
		state->npending == 0 && state->ndeletes == 0 && state->nprobes == 0;
}

/*
 * detector_named
 *		The session that others name, and the directory in which they do, by
 *		number from 0 on; NULL: there are no more.
 *
 * Covers the directories that EDGES has requested.  Valid until the next step.
 */
const char *
detector_named(const Detector *detector, int number, const char **dir)
{
	const Detection *state = detector->state;

	for (int i = 0; i < state->ndirs; i++)
	{
		if (!state->dirs[i].wanted)
			continue;
		*dir = state->dirs[i].path;
		if (number < state->dirs[i].nnamed)
			return state->dirs[i].named[number];
		number -= state->dirs[i].nnamed;
	}
	return NULL;
}
