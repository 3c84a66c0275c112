/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Which backends of this instance keep a contender while they wait for
 *		another one.
 *
 * Edge A -> B: a backend holds our contender A, behind which others queue, and
 * waits, directly or through others in the lock manager (blockers.c), for our
 * contender B, which is queued behind others; all these waits have lasted long
 * enough.
 *
 * The reads are not of one moment: each row of slots_waits() and
 * slots_holds_of(), and each answer of the lock manager, is of its own.  That
 * is enough.  A waiting backend acquires and releases nothing, and the IDs of
 * holds and waits are never reused.  So if two scans find the same edge, with
 * the same IDs and the same chain, all of it existed at each moment from the
 * end of the first to the beginning of the second.
 *
 * A process that waits for a slot keeps others of this instance waiting for
 * the slot's heavyweight lock.  If it failed, the first of them would wait for
 * the slot in its place, and the deadlock would stay.  So to those others it
 * is only ahead, whatever else it waits for: the edges of what they hold to
 * any of its waits are marked (NoteWait.began is 0), and it is chosen as the
 * victim only if all members are like that.  Then it does not fail, but
 * requeues behind those that wait for the heavyweight lock
 * (slot_requeue_tier1()).
 *
 * A backend that waits for any of several slots is blocked only while it is by
 * each of them.  So its edges are reported only if each of these waits counts,
 * and if they fit into the note of one contender.
 *
 * Limits.  A scan first reports all edges from the contenders that had some in
 * the last scan, so that these edges stay as long as their waits.  It adds a
 * limited number of edges from others, beginning with another hold each time.
 * If one hold has more than MAX_EDGES_OF_HOLD, its edges take turns.
 *
 * A reader may wait without a contender of its own: readers of its instance
 * hold the slot, and it may not join them, since a writer of another instance
 * is behind their contender.  It waits for that writer, and so for whatever
 * that waits for.  Its wait is reported as one for the holders' contender.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/scan.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "shared/clock.h"
#include "shared/holders.h"
#include "worker/deadlock/blockers_private.h"
#include "worker/deadlock/foreign_private.h"
#include "worker/deadlock/scan_private.h"
#include "worker/lock/contender.h"

/*
 * Limits: on all edges of a scan; on those from contenders of which the
 * detector knows no edge; on the edges from one hold that are reported, and on
 * those that are found at all.
 */
#define MAX_EDGES			16384
#define MAX_NEW_EDGES		1024
#define MAX_EDGES_OF_HOLD	64
#define MAX_SEEN_OF_HOLD	1024

/*
 * If a hold has more than can be reported, others have their turn after this
 * multiple of "wait_ms".
 */
#define WINDOW_TIMEOUTS		8

/* Each scan begins this many holds behind the previous one; a prime. */
#define HOLDS_STEP			257

/* The waits of one backend. */
typedef struct WaitsOf
{
	int			pid;			/* hash key, must be first */
	int			first;			/* index of its first wait */
	int			n;				/* number of its waits that count */
	int			alternatives;	/* if any of several locks would end its wait:
								 * their number; else 1 */
} WaitsOf;

/* A wait. */
typedef struct SeenWait
{
	bool		counts;			/* it has lasted long enough */
	NoteWait	wait;			/* if so; "hold" and "chain" are not set */
	LOCKTAG		tag;			/* of the heavyweight lock of its slot */
	int			next;			/* of the same backend, or -1 */
} SeenWait;

/* The scan under way. */
static struct
{
	Scan	   *scan;
	HTAB	   *by_pid;			/* of WaitsOf */
	SeenWait   *waits;
	int			nwaits;			/* number of those that count */
	int64		since_us;		/* what began later does not count */
	int			max_edges;		/* allocated in scan->edges */
	int			window;			/* the first edge to report of a hold that has
								 * too many, modulo their number */
	uint32		round;			/* number of scans */

	/* the source of the edges */
	char		from[NOTE_VERTEX_SIZE];
	NoteId		hold;
	Contender  *contender;		/* that is held; NULL: a session */
	TurnBehind	behind;			/* contender: what is known of others behind
								 * it */
	bool		is_remote;		/* session: it works for the vertex "from" */
	int			nedges;			/* found so far */
	int			total;			/* their number if too many; else 0 */
}			scanning;

static bool
is_of_contender(const Contender *contender, const ZkContender *known)
{
	return contender && contender->has_uuid && known->has_uuid &&
		memcmp(contender->uuid, known->uuid, ZNODE_UUID_BYTES) == 0;
}

/*
 * Does a wait count, since all of it had begun by "since_ms", and does not
 * change by itself?  If so, fills in *wait.
 */
static bool
fill_wait(const ZkWait *row, int64 since_ms, NoteWait *wait)
{
	const Contender *contender = contender_find(row->slot);

	if (!is_of_contender(contender, &row->contender) ||
		contender->queued_since_ms == 0 ||
		contender->queued_since_ms > since_ms ||
		row->since > since_ms * 1000 ||
		(row->state != ZK_SLOT_WANTED && row->state != ZK_SLOT_HELD) ||
		!(row->state == ZK_SLOT_WANTED ?
		  contender_queued_path(contender, wait->to) :
		  contender_owned_path(contender, wait->to)))
		return false;
	wait->wait.pid = row->pid;
	wait->wait.since = row->since;
	wait->began = zk_unix_us(row->xact_start);
	wait->alternatives = Max(row->alternatives, 1);
	wait->kind = contender->now.kind == ZNODE_PERMIT ? NOTE_WAIT_PERMIT :
		contender->now.kind == ZNODE_READER ? NOTE_WAIT_SHARED :
		NOTE_WAIT_EXCLUSIVE;
	wait->permits = contender->now.permits;
	return true;
}

/* Find the waits for contenders; those count that began by "since_ms". */
static void
find_waits(int64 since_ms)
{
	int			n;
	ZkWait	   *rows = slots_waits(&n);
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int);
	ctl.entrysize = sizeof(WaitsOf);
	ctl.hcxt = CurrentMemoryContext;
	scanning.by_pid = hash_create("zklock waits", 64, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	scanning.waits = MemoryContextAllocHuge(CurrentMemoryContext,
											mul_size(Max(n, 1),
													 sizeof(SeenWait)));
	scanning.nwaits = 0;
	for (int i = 0; i < n; i++)
	{
		SeenWait   *wait = &scanning.waits[i];
		WaitsOf    *of;
		bool		found;

		memset(wait, 0, sizeof(*wait));
		wait->counts = fill_wait(&rows[i], since_ms, &wait->wait);
		wait->tag = rows[i].tag;
		of = hash_search(scanning.by_pid, &rows[i].pid, HASH_ENTER, &found);
		wait->next = found ? of->first : -1;
		of->n = (found ? of->n : 0) + wait->counts;
		of->alternatives = Max(rows[i].alternatives, 1);
		of->first = i;
		scanning.nwaits += wait->counts;
	}
	pfree(rows);
}

/* The waits of a process, if any counts, or NULL. */
static const WaitsOf *
waits_of(int pid)
{
	const WaitsOf *of = hash_search(scanning.by_pid, &pid, HASH_FIND, NULL);

	return of && of->n > 0 ? of : NULL;
}

/*
 * The backends that wait for a contender, in the lock manager, or for a
 * foreign server; and those that work for sessions of other instances, since
 * these may wait.  An array, palloc'd and sorted.
 */
static int *
list_waiting(List *sessions, int *n)
{
	int		   *pids = palloc((hash_get_num_entries(scanning.by_pid) +
							   list_length(sessions) +
							   blockers_max() + 1) * sizeof(int));
	ListCell   *cell;
	HASH_SEQ_STATUS seq;
	WaitsOf    *of;
	int			last = 0;

	*n = blockers_add_waiting(pids);
	hash_seq_init(&seq, scanning.by_pid);
	while ((of = hash_seq_search(&seq)) != NULL)
		if (of->n > 0)
			pids[(*n)++] = of->pid;
	foreach(cell, sessions)
	{
		const ForeignSession *session = lfirst(cell);

		if (session->statement != 0 || session->works)
			pids[(*n)++] = session->pid;
	}
	qsort(pids, *n, sizeof(int), compare_pids);
	for (int i = 1; i < *n; i++)
		if (pids[i] != pids[last])
			pids[++last] = pids[i];
	*n = Min(*n, last + 1);
	return pids;
}

/* Allocate the next edge; NULL: the limit is reached. */
static WaitEdge *
next_edge(void)
{
	Scan	   *scan = scanning.scan;

	if (scan->nedges == MAX_EDGES)
		return NULL;
	if (scan->nedges == scanning.max_edges)
	{
		scanning.max_edges *= 2;
		scan->edges = repalloc(scan->edges,
							   scanning.max_edges * sizeof(WaitEdge));
	}
	return &scan->edges[scan->nedges];
}

/* Is it the turn of the hold's edge with this number? */
static bool
has_turn(int number)
{
	if (scanning.total != 0)
		number = (number + scanning.total - scanning.window % scanning.total) %
			scanning.total;
	return number < MAX_EDGES_OF_HOLD;
}

/*
 * Add an edge from the current hold or session, if it is that edge's turn;
 * false if no more edges of the hold or session are needed.
 */
static bool
add_edge(const NoteWait *wait, uint64 chain)
{
	Scan	   *scan = scanning.scan;
	WaitEdge   *edge = next_edge();

	if (edge == NULL || scanning.nedges == MAX_SEEN_OF_HOLD)
		return false;
	if (!has_turn(scanning.nedges++))
		return true;
	if (scanning.contender && scanning.behind != TURN_CONTENDED &&
		scanning.contender->now.kind != ZNODE_PERMIT)
	{
		/* one edge is enough; several readers may add the contender */
		scan->unknown = lappend(scan->unknown, scanning.contender);
		return false;
	}
	strlcpy(edge->from, scanning.from, sizeof(edge->from));
	edge->wait = *wait;
	edge->wait.hold = scanning.hold;
	edge->wait.chain = chain;
	scan->nedges++;
	if (scanning.contender == NULL)
		foreign_published(scanning.from);
	return true;
}

/*
 * Name a session of another instance: it waits for itself, in a znode of ours.
 */
static void
name_session(const ForeignSession *session, const NoteWait *wait)
{
	Scan	   *scan = scanning.scan;
	WaitEdge   *edge = next_edge();

	if (edge == NULL ||
		!foreign_node(&session->works_for, false, edge->from))
		return;
	edge->wait = *wait;
	edge->wait.hold = wait->wait;
	scan->nedges++;
	foreign_published(edge->from);
}

/*
 * Add the edge to the session of another instance that this process works for,
 * or to its own session if that is in a statement on a foreign server; false
 * if no more are needed.  A holder that does not wait in this instance must
 * have held for long.
 *
 * A session waits for the one that it works for only while it is idle;
 * otherwise that one waits for it.  So if this process holds the contender,
 * the session that it works for may have waited long enough for something else
 * only if this process has been idle for as long.
 */
static bool
add_foreign(int pid, uint64 chain)
{
	const ForeignSession *session = foreign_find(pid);
	bool		itself = scanning.contender == NULL &&
		scanning.hold.pid == pid;
	NoteWait	wait = {.kind = NOTE_WAIT_SESSION,.alternatives = 1};

	if (session == NULL || (scanning.contender && chain == 0 &&
							scanning.hold.since > scanning.since_us))
		return true;
	wait.wait.pid = pid;
	wait.wait.since = session->start;
	if (session->works &&
		(itself ? session->idle && !scanning.is_remote :
		 scanning.contender == NULL || chain != 0 || session->rests))
	{
		vertex_write(&session->works_for, wait.to);
		if (!add_edge(&wait, chain))
			return false;
		name_session(session, &wait);
	}
	if (session->named && session->statement != 0 && waits_of(pid) == NULL)
	{
		VertexSession self = session->self;

		self.remote = itself && !scanning.is_remote;
		if (self.remote)
			wait.wait.since = session->statement;
		vertex_write(&self, wait.to);
		return add_edge(&wait, chain);
	}
	return true;
}

/*
 * Is a process blocked by its waits?  If it wants any of several locks, all of
 * its waits must count.
 */
static bool
is_blocked(const WaitsOf *of)
{
	return of->alternatives == 1 ||
		(of->alternatives == of->n && of->alternatives <= NOTE_MAX_WAITS);
}

/*
 * Is "last" the heavyweight lock of a slot for which the process waits, for
 * however short a time?  Then those that wait for that lock do so only because
 * the process is ahead of them.
 */
static bool
is_ahead(int pid, const LOCKTAG *last)
{
	const WaitsOf *of = waits_of(pid);

	for (int i = of && last ? of->first : -1; i >= 0;
		 i = scanning.waits[i].next)
		if (memcmp(last, &scanning.waits[i].tag, sizeof(LOCKTAG)) == 0)
			return true;
	return false;
}

/*
 * Add the edges to what this process waits for; false if no more are needed.
 */
static bool
add_edges(int pid, uint64 chain, const LOCKTAG *last,
		  void *arg pg_attribute_unused())
{
	const WaitsOf *of = waits_of(pid);
	bool		ahead;

	if (of != NULL && !is_blocked(of))
		of = NULL;
	ahead = of && is_ahead(pid, last);
	for (int i = of ? of->first : -1; i >= 0; i = scanning.waits[i].next)
	{
		const SeenWait *found = &scanning.waits[i];
		NoteWait	wait = found->wait;

		if (!found->counts)
			continue;
		if (ZK_MUTATED(ZK_DEADLOCK_AHEAD_BY_ONE) ?
			last && memcmp(last, &found->tag, sizeof(LOCKTAG)) == 0 : ahead)
			wait.began = 0;
		if (!add_edge(&wait, chain))
			return false;
	}
	return add_foreign(pid, chain);
}

static void
walk_once(int pid)
{
	scanning.nedges = 0;
	if (add_edges(pid, 0, NULL, NULL))
		blockers_walk(pid, is_ahead, add_edges, NULL);
}

/*
 * Find the edges from the current source, held by this process.  If they are
 * too many, find those whose turn it is.
 */
static void
walk(int pid, int64 since)
{
	int			first = scanning.scan->nedges;

	scanning.hold.pid = pid;
	scanning.hold.since = since;
	scanning.total = 0;
	walk_once(pid);
	if (scanning.nedges <= MAX_EDGES_OF_HOLD)
		return;
	scanning.scan->nedges = first;
	scanning.total = scanning.nedges;
	walk_once(pid);
}

/*
 * Find the edges of a hold, if the detector knows any edge of it ("known"), or
 * if it knows none.
 */
static void
scan_hold(const ZkHold *hold, const Detector *detector, bool known)
{
	scanning.contender = contender_find(hold->slot);
	scanning.behind = hold->behind;
	if (hold->behind != TURN_ALONE &&
		is_of_contender(scanning.contender, &hold->contender) &&
		contender_owned_path(scanning.contender, scanning.from) &&
		detector_knows(detector, scanning.from) == known)
		walk(hold->pid, hold->since);
}

/* Find the edges of holds, first of those that have edges by the last scan. */
static void
scan_holds(const ZkHold *holds, int n, const Detector *detector)
{
	int			most;
	uint32		first;

	for (int i = 0; i < n; i++)
		scan_hold(&holds[i], detector, true);
	most = scanning.scan->nedges + MAX_NEW_EDGES;
	first = scanning.round++ * HOLDS_STEP;
	for (int i = 0; i < n && scanning.scan->nedges < most; i++)
		scan_hold(&holds[(first + i) % n], detector, false);
}

/*
 * Find the edges of a session that others name, and of the remote sessions of
 * the one that it works for.
 */
static void
scan_session(const ForeignSession *session)
{
	scanning.contender = NULL;
	scanning.is_remote = false;
	if (session->named && foreign_node(&session->self, false, scanning.from))
		walk(session->pid, session->start);
	scanning.is_remote = true;
	if (session->works &&
		foreign_node(&session->works_for, true, scanning.from))
		walk(session->pid, session->start);
}

/*
 * May other instances name sessions of ours that keep others waiting?  That is
 * so if a session waits in ZooKeeper; or if one is in a statement on a foreign
 * server, and it works for another instance or a waiting session holds
 * anything.
 */
static bool
may_be_named(List *sessions, int nholds)
{
	ListCell   *cell;

	if (!foreign_is_set())
		return false;
	foreach(cell, sessions)
	{
		const ForeignSession *session = lfirst(cell);

		if (session->statement != 0 && (session->works || nholds > 0))
			return true;
	}
	return scanning.nwaits > 0;
}

/*
 * scan_run
 *		Find the local edges whose waits have all lasted for "wait_ms".
 *		Other instances name the sessions "named": a list of vertices.  The
 *		detector knows the edges of the last scan.
 *
 * A scan takes some time, but holds no locks for long: see blockers.c and
 * holders.c.  All is palloc'd in the current context.
 */
void
scan_run(Scan *scan, int64 now_ms, int wait_ms, List *named,
		 const Detector *detector)
{
	List	   *sessions;
	ListCell   *cell;
	int		   *pids;
	int			npids;
	ZkHold	   *holds;
	int			nholds;
	int64		begun_us = zk_now_us();

	memset(scan, 0, sizeof(*scan));
	scanning.scan = scan;
	scanning.since_us = (now_ms - wait_ms) * 1000;
	find_waits(now_ms - wait_ms);
	sessions = foreign_begin((int64) wait_ms * 1000, named);
	if (scanning.nwaits == 0 && sessions == NIL)
		return;
	scanning.max_edges = 64;
	scan->edges = palloc(scanning.max_edges * sizeof(WaitEdge));
	scanning.window = now_ms / (WINDOW_TIMEOUTS * (int64) wait_ms) %
		MAX_SEEN_OF_HOLD * (MAX_EDGES_OF_HOLD / 2);
	blockers_begin((int64) wait_ms * 1000);
	pids = list_waiting(sessions, &npids);
	holds = slots_holds_of(pids, npids, &nholds);
	foreach(cell, sessions)
		scan_session(lfirst(cell));
	scan_holds(holds, nholds, detector);
	scan->foreign = may_be_named(sessions, nholds);
	ereport(DEBUG2,
			(errmsg_internal("%d long waits, %d holds of waiting backends, %d edges between them, in %lld us",
							 scanning.nwaits, nholds, scan->nedges,
							 (long long) (zk_now_us() - begun_us))));
}
