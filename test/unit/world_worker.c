/*-------------------------------------------------------------------------
 *
 * world_worker.c
 *		The workers of world.c: they look at the locks and drive a detector.
 *
 * What detectors send goes by the sessions of tree.c.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/world_worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "world.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mutation.h"

/* The note that goes with an operation; NULL: no such contender is ours. */
static const char *
compose_note(int cluster, const char *path, const NoteWait *waits, int nwaits)
{
	static char data[NOTE_FULL_SIZE];
	int			number = world_vertex(path);
	bool		of_session = number >= 0 && world_is_session(number);
	char		name[8];
	Note		note;

	if (number < 0 ||
		(!of_session && (!world_exists(number) ||
						 !world->contenders[number].granted ||
						 world->contenders[number].cluster != cluster)))
		return NULL;
	sprintf(name, "c%d", cluster);
	note_set_contender(&note, "h", 1, name, 1, false);
	(void) note_write_waits(&note, waits, nwaits, data);
	if (!of_session)
		world->contenders[number].noted = true;
	return data;
}

static void
submit(int cluster, const DetectorOp *op)
{
	TreeRequest *request;

	if (op->verdict != NULL)
		truth_on_act_sent(cluster, op);
	request = tree_submit(&world->instances[cluster].session, op,
						  op->request.kind != REQUEST_SET ? NULL :
						  compose_note(cluster, op->request.path, op->waits,
									   op->nwaits));
	for (int i = 0; i < op->nothers; i++)
	{
		const DetectorNote *other = &op->others[i];
		const char *note = compose_note(cluster, other->path, other->waits,
										other->nwaits);

		request->other_notes[i] = note == NULL ? NULL : tree_copy(note);
	}
}

/* The worker marks the victim, if it still waits in that very wait. */
static void
mark_victim(int cluster, const WaitEdge *edge, bool requeues)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = world_backend(cluster, i);

		if (backend->state == BACKEND_WAITING &&
			backend->pid == edge->wait.wait.pid &&
			backend->wait_since == edge->wait.wait.since)
		{
			backend->victim = true;
			backend->requeues = requeues;
		}
	}
}

void
world_step(int cluster, DetectorInput *in)
{
	WorldInstance *own = &world->instances[cluster];
	DetectorOutput out;

	in->now = world->now;
	detector_step(&own->detector, in, &out);
	for (int i = 0; i < out.nops; i++)
		submit(cluster, &out.ops[i]);
	if (out.scan != 0)
		own->scan = out.scan;
	if (out.named)
		own->scan_at = 0;
	for (int i = 0; i < out.nverdicts; i++)
	{
		const WaitDeadlock *deadlock = out.verdicts[i].deadlock;

		world->verdicts++;
		world_check(deadlock->nmembers > 0, "a verdict has members");
		if (out.verdicts[i].ours)
			mark_victim(cluster, &deadlock->members[0].edge,
						out.verdicts[i].requeues);
	}
	own->wake_at = out.wake_at;
}

static WorldEdge *
add_edge(const WorldEdge *edge, int to, WorldEdge *list, int *n)
{
	list[*n] = *edge;
	list[*n].to = to;
	if (++*n == WORLD_LISTED)
		abort();
	return &list[*n - 1];
}

/* Does a backend wait in tier 1 for this contender of one that waits? */
static bool
is_behind(const WorldBackend *backend, const WorldBackend *last, int wanted)
{
	const WorldContender *contender = &world->contenders[wanted];

	return backend != last && backend->lock == contender->lock &&
		backend->shared == contender->shared && !contender->granted;
}

/*
 * The edges to the contenders that a backend waits for; "before" waits for it,
 * or is the same.
 */
static void
list_waits(const WorldBackend *before, const WorldBackend *last, bool aged,
		   WorldEdge *edge, WorldEdge *list, int *n)
{
	if (last->state != BACKEND_WAITING ||
		(aged && (last->victim || last->wait_at + WORLD_TIMEOUT > world->now)))
		return;
	for (int i = 0; last->any && i < last->nwants; i++)
		if (world->contenders[last->wants[i]].granted)
			return;
	edge->wait.pid = last->pid;
	edge->wait.since = last->wait_since;
	edge->alternatives = last->any ? last->nwants : 1;
	edge->ahead = false;
	for (int i = 0; i < last->nwants; i++)
		edge->ahead |= is_behind(before, last, last->wants[i]);
	for (int i = 0; i < last->nwants; i++)
	{
		bool		marked = ZK_MUTATED(ZK_DEADLOCK_AHEAD_BY_ONE) ?
			is_behind(before, last, last->wants[i]) : edge->ahead;

		edge->began = marked ? 0 : last->began;
		if (world_exists(last->wants[i]) &&
			!world->contenders[last->wants[i]].granted)
			(void) add_edge(edge, last->wants[i], list, n);
	}
	edge->ahead = false;
}

/*
 * The edges to the session that a backend works for, and to its own if it
 * calls another instance.
 */
static void
list_sessions(int cluster, int backend, bool aged, WorldEdge *edge,
			  WorldEdge *list, int *n)
{
	const WorldBackend *process = world_backend(cluster, backend);
	int			number = world_number(cluster, backend);
	bool		itself = world_is_session(edge->from) && edge->chain == 0;
	bool		remote = itself && !world_is_remote(edge->from);

	edge->alternatives = 1;
	edge->began = 0;
	edge->wait.pid = process->pid;
	if (process->employer >= 0 &&
		(!itself || (remote && process->state == BACKEND_RUNNING)))
	{
		edge->wait.since = process->employed;
		add_edge(edge, world_session_vertex(process->employer, false),
				 list, n)->works = true;
	}
	if (process->state != BACKEND_CALLING ||
		(aged && (process->wait_at + WORLD_TIMEOUT > world->now ||
				  !world_is_named(cluster, backend))))
		return;
	edge->wait.since = remote ? process->wait_since : 1;
	(void) add_edge(edge, world_session_vertex(number, remote), list, n);
}

/* The edges from one hold, or one session, behind those in the list. */
static void
list_from(int cluster, int holder, int from, int64_t since, bool aged,
		  WorldEdge *list, int *n)
{
	WorldEdge	edge = {.from = from};
	const WorldBackend *before = world_backend(cluster, holder);
	int			backend = holder;

	if (!world_is_session(from) && !world_exists(from))
		return;
	edge.hold.pid = world_backend(cluster, holder)->pid;
	edge.hold.since = since;
	for (;;)
	{
		const WorldBackend *link = world_backend(cluster, backend);

		list_waits(before, link, aged, &edge, list, n);
		list_sessions(cluster, backend, aged, &edge, list, n);
		if (link->state != BACKEND_BLOCKED ||
			(aged && link->wait_at + WORLD_TIMEOUT > world->now))
			return;
		edge.chain = (edge.chain + (uint64_t) link->wait_since) *
			6364136223846793005ULL + 1442695040888963407ULL +
			(uint64_t) link->pid;
		before = link;
		backend = link->blocker;
	}
}

/* The edges from a session of this instance, and from those it works for. */
static void
list_of_session(int cluster, int backend, bool aged, WorldEdge *list, int *n)
{
	int			number = world_number(cluster, backend);
	const WorldBackend *process = world_backend(cluster, backend);

	if (process->state != BACKEND_IDLE &&
		(!aged || world_is_named(cluster, backend)))
		list_from(cluster, backend, world_session_vertex(number, false), 1,
				  aged, list, n);
	if (process->employer >= 0)
		list_from(cluster, backend,
				  world_session_vertex(process->employer, true),
				  process->employed, aged, list, n);
}

/*
 * All edges of an instance; "aged": as its worker would list them.  Returns
 * how many there are.
 */
int
world_list_edges(int cluster, bool aged, WorldEdge list[WORLD_LISTED])
{
	int			n = 0;

	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *backend = world_backend(cluster, i);

		for (int j = 0; j < backend->nholds; j++)
			list_from(cluster, i, backend->holds[j], backend->hold_since[j],
					  aged, list, &n);

		/* what is in front counts as held while others are waited for */
		for (int j = 0; backend->state == BACKEND_WAITING && !backend->any &&
			 j < backend->nwants; j++)
			if (world->contenders[backend->wants[j]].granted)
				list_from(cluster, i, backend->wants[j], backend->wait_since,
						  aged, list, &n);
		list_of_session(cluster, i, aged, list, &n);
	}
	return n;
}

/* An edge as the detector is told of it. */
static void
fill_edge(int cluster, const WorldEdge *known, WaitEdge *edge)
{
	const WorldContender *to;

	memset(edge, 0, sizeof(*edge));
	if (world_is_session(known->from))
		world_session_path(cluster, known->from, edge->from);
	else
		strcpy(edge->from, world->contenders[known->from].path);
	edge->wait.hold = known->hold;
	edge->wait.wait = known->wait;
	edge->wait.began = known->began;
	edge->wait.chain = known->chain;
	edge->wait.alternatives = known->alternatives;
	if (world_is_session(known->to))
	{
		edge->wait.kind = NOTE_WAIT_SESSION;
		world_write_vertex(known->to, edge->wait.to);
		return;
	}
	to = &world->contenders[known->to];
	edge->wait.kind = world_is_semaphore(to->lock) ? NOTE_WAIT_PERMIT :
		to->shared ? NOTE_WAIT_SHARED : NOTE_WAIT_EXCLUSIVE;
	edge->wait.permits = world_is_semaphore(to->lock) ? WORLD_PERMITS : 0;
	strcpy(edge->wait.to, to->path);
}

/* A session waits for itself, in a znode of ours: that only names it. */
static void
name_session(int cluster, const WorldEdge *known, WaitEdge *edge)
{
	fill_edge(cluster, known, edge);
	world_session_path(cluster, known->to, edge->from);
	edge->wait.hold = edge->wait.wait;
	edge->wait.chain = 0;
}

/* The worker looks at the locks; 0: nobody has asked it to. */
void
world_scan(int cluster, uint32_t scan)
{
	static WorldEdge list[WORLD_LISTED];
	static WaitEdge edges[2 * WORLD_LISTED];
	static const char *const dirs[] = {"/zklock/" WAITS_DIR};
	WorldInstance *own = &world->instances[cluster];
	DetectorInput in = {.event = DETECTOR_EDGES,.edges = edges,.scan = scan,
	.dirs = dirs,.ndirs = world->sessions};
	int			n;

	own->scans++;
	n = world_list_edges(cluster, true, list);
	for (int i = 0; i < n; i++)
	{
		fill_edge(cluster, &list[i], &edges[in.nedges++]);
		if (list[i].works)
			name_session(cluster, &list[i], &edges[in.nedges++]);
	}
	if (scan == own->scan)
		own->scan = 0;
	own->scan_at = world->now + WORLD_TIMEOUT / 4;
	world_step(cluster, &in);
}

/* The worker hears an answer or an event; false if there is none. */
bool
world_deliver(int cluster)
{
	DetectorInput in;

	memset(&in, 0, sizeof(in));
	if (!world->instances[cluster].worker ||
		!world->instances[cluster].session.connected ||
		!tree_hear(&world->instances[cluster].session, &in))
		return false;
	world_step(cluster, &in);
	return true;
}

void
world_lose_connection(int cluster)
{
	WorldInstance *own = &world->instances[cluster];
	uint32_t	serials[TREE_QUEUE];
	int			n = tree_lose_connection(&own->session,
										 (int) world_dice(own->session.n + 1),
										 serials);
	bool		early = world_one_in(2);
	DetectorInput suspended = {.event = DETECTOR_SUSPENDED};

	if (!early)
		world_step(cluster, &suspended);
	for (int i = 0; i < n; i++)
	{
		DetectorInput in = {.event = DETECTOR_DONE,.answer.serial = serials[i],
		.answer.result = REQUEST_UNKNOWN};

		world_step(cluster, &in);
	}
	if (early)
	{
		world_step(cluster, &suspended);

		/* what was sent in between went nowhere */
		n = tree_lose_connection(&own->session, 0, serials);
		for (int i = 0; i < n; i++)
		{
			DetectorInput in = {.event = DETECTOR_DONE,.answer.serial = serials[i],
			.answer.result = REQUEST_UNKNOWN};

			world_step(cluster, &in);
		}
	}
}

/* Connect again: with the same session, or, if that has ended, a new one. */
void
world_reconnect(int cluster, int64_t view)
{
	WorldInstance *own = &world->instances[cluster];
	DetectorInput in = {.event = DETECTOR_RESUMED};

	if (own->session.alive)
		tree_reconnect(&own->session, view);
	else
	{
		DetectorInput expired = {.event = DETECTOR_EXPIRED};

		/* all that the instance held is lost, and nobody waits any longer */
		for (int i = 0; i < WORLD_BACKENDS; i++)
			if (own->backends[i].state != BACKEND_IDLE)
				world_finish(cluster, i);
		if (own->worker)
			world_step(cluster, &expired);
		tree_begin_session(&own->session);
	}
	own->scan = 0;
	if (own->worker)
		world_step(cluster, &in);
}

/* The worker ends, and another one takes over, in the same session. */
void
world_lose_worker(int cluster)
{
	WorldInstance *own = &world->instances[cluster];
	uint32_t	serials[TREE_QUEUE];

	(void) tree_lose_connection(&own->session,
								(int) world_dice(own->session.n + 1), serials);
	detector_free(&own->detector);
	truth_forget_acts(cluster);
	world->lost_workers++;
	detector_init(&own->detector, WORLD_TIMEOUT, true);
	own->scan = 0;
	own->wake_at = FOREVER;
	memset(own->nodes, 0, sizeof(own->nodes));
	for (int i = 0; i < world->ncontenders; i++)
		if (world_exists(i) && world->contenders[i].cluster == cluster &&
			world->contenders[i].noted)
		{
			DetectorInput in = {.event = DETECTOR_ADOPT,
			.path = world->contenders[i].path};

			world_step(cluster, &in);
		}
}

/* The session ends at the server. */
void
world_expire(int cluster)
{
	WorldInstance *own = &world->instances[cluster];

	tree_expire(&own->session);
	for (int i = 0; i < world->ncontenders; i++)
		if (world_exists(i) && world->contenders[i].cluster == cluster)
			world->contenders[i].death = world->step;
}
