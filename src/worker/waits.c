/*-------------------------------------------------------------------------
 *
 * waits.c
 *		What this instance's backends have, and wait for, as the search for
 *		deadlocks between instances needs it.
 *
 * An edge H -> W (core/deadlock.c): a backend holds H, by our contender that
 * others stand behind, and waits for W, for which our contender is queued, by
 * an answer of ZooKeeper.  It does so itself, or by a way through the queues of
 * the lock manager (lockmgr.c): from a process that waits there to those that
 * hold the lock in a mode that conflicts, and to those ahead of it in the queue
 * that want one, as DeadLockCheck() sees them.  With postgres_fdw (foreign.c)
 * sessions have and wait, too.
 *
 * Only the wait for W must be old.  No kind of heavyweight lock is left out,
 * tuple locks neither: each process on a way waits, so none of them releases
 * anything meanwhile.
 *
 * Not published are waits for permits and for any of several slots.
 *
 * The slots and the queues are read one after the other.  That is enough.  A
 * waiting backend acquires and releases nothing, and what identifies holds,
 * waits and the steps of a way is not used again.  So if two scans find the
 * same edge, all of it existed at each moment from the end of the first to the
 * beginning of the second.
 *
 * There may be several ways from one process to another.  A way on which each
 * keeps a lock from the one before it counts rather than one whose last step is
 * the heavyweight lock of the slot that is waited for: there the waiter is only
 * ahead.  But the way of the latest scan counts before any other, as long as it
 * is there, so that edges last.
 *
 * A walk takes few steps for each lock, however long its queue is: of those
 * that want a lock in the same mode only the last one ahead is followed, since
 * it is blocked by whatever blocks the others; and the holders of a lock are
 * visited once for each mode.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/waits.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "shared/clock.h"
#include "shared/holders.h"
#include "shared/lockmgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "worker/contender.h"
#include "worker/foreign.h"
#include "worker/waits.h"

/* More edges have no room in texts: see DEADLOCK_TEXTS. */
#define MAX_EDGES			16384

/* A queue, in a scan. */
typedef struct ScanQueue
{
	const Queue *queue;
	LockMethod	method;
	int			(*last)[MAX_LOCKMODES]; /* by waiter: index of the last one
										 * ahead of it that wants a mode, or
										 * -1 */
	uint32		walk;			/* the last that has visited it, ... */
	int			followed[MAX_LOCKMODES];	/* ... and up to which waiter, by
											 * mode; or -1 */
} ScanQueue;

/* The place of a process in a queue.  A lock group may have several. */
typedef struct Place
{
	ScanQueue  *in;
	int			number;
	struct Place *next;
} Place;

/* A process; of a lock group, the leader. */
typedef struct Process
{
	int			pid;			/* hash key, must be first */
	Place	   *places;
	const DeadlockEdge *wait;	/* for a slot, if that counts; only "to" and
								 * what describes it */
	const LOCKTAG *tag;			/* the heavyweight lock of that slot */
	uint32		walk;			/* the last that has visited it, ... */
	const struct Process *before;	/* ... from this one, ... */
	const Place *by;			/* ... by its wait in this place */
} Process;

/* Where a way ends. */
typedef struct WayEnd
{
	const Process *process;
	const char *way;
	bool		ahead;
} WayEnd;

/* A way that has edges. */
typedef struct Way
{
	int			from;			/* pids */
	int			to;
	char	   *text;
} Way;

/* The scan under way. */
static struct
{
	Waits	   *result;
	int			room;			/* for edges */
	HTAB	   *processes;
	uint32		walk;
	WayEnd	   *ends;			/* of the walk */
	int			nends;
	int			max_ends;
	List	   *ways;			/* those that have edges, in "context" */
}			scan;

/* The ways of the latest scan, sorted. */
static struct
{
	MemoryContext context;
	Way		   *ways;
	int			nways;
}			known;

static Process *
find_process(int pid)
{
	bool		found;
	Process    *process = hash_search(scan.processes, &pid, HASH_ENTER, &found);

	if (!found)
	{
		memset(process, 0, sizeof(*process));
		process->pid = pid;
	}
	return process;
}

static void
add_queue(ScanQueue *in, const Queue *queue)
{
	in->queue = queue;
	in->method = GetLockTagsMethodTable(&queue->tag);
	in->last = palloc(queue->nwaiters * sizeof(*in->last));
	in->walk = 0;
	for (int i = 0; i < queue->nwaiters; i++)
	{
		Process    *process = find_process(queue->waiters[i].pid);
		Place	   *place = palloc(sizeof(Place));

		if (i == 0)
			memset(in->last[i], -1, sizeof(in->last[i]));
		else
		{
			memcpy(in->last[i], in->last[i - 1], sizeof(in->last[i]));
			in->last[i][queue->waiters[i - 1].mode] = i - 1;
		}
		place->in = in;
		place->number = i;
		place->next = process->places;
		process->places = place;
	}
}

/* Read the lock manager's queues. */
static void
read_queues(void)
{
	int			n;
	const Queue *queues = queues_read(&n);
	ScanQueue  *list = palloc(Max(n, 1) * sizeof(ScanQueue));

	for (int i = 0; i < n; i++)
		add_queue(&list[i], &queues[i]);
}

static DeadlockKind
kind_of(bool shared)
{
	return shared ? DEADLOCK_SHARED : DEADLOCK_EXCLUSIVE;
}

/* Note a wait for a slot, if it is one in ZooKeeper's queue, by an answer. */
static void
add_wait(const ZkWait *row, int64 now_us, int64 wait_us)
{
	const Contender *contender = contender_find(row->slot,
												&row->contender);
	int64		queued_ms = contender ?
		contender_queued_ms(contender, row->state) : 0;
	bool		shared = row->kind == ZNODE_READER;
	char		keeper[CONTENDER_PATH_SIZE];
	Process    *process;
	DeadlockEdge *wait;
	int64		left_us;

	if (queued_ms == 0 ||
		(shared && !contender_keeper(contender, keeper)))
		return;
	left_us = Max(row->since, queued_ms * 1000) + wait_us -
		now_us;
	if (left_us > 0)
	{
		scan.result->next_us = Min(scan.result->next_us, left_us);
		return;
	}
	scan.result->old = true;
	wait = palloc0(sizeof(DeadlockEdge));
	wait->to.kind = kind_of(shared);
	wait->to.name = pstrdup(contender_directory(contender));
	wait->to.pid = row->pid;
	wait->to.generation = (uint64) row->since;
	wait->began = (uint64) (row->xact_start +
							(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
							USECS_PER_DAY);
	wait->beside = row->state == ZK_SLOT_HELD;
	wait->keeper = shared ? pstrdup(keeper) : NULL;
	process = find_process(row->pid);
	process->wait = wait;
	process->tag = &row->tag;
}

/* Does a session wait for another instance? */
static bool
waits_abroad(const ForeignSession *session)
{
	return session->statement != 0 ||
		(session->origin[0] != '\0' && session->idle != 0);
}

/*
 * The processes that wait, in any way: an array, palloc'd, in the order of
 * slots_holds_of().
 */
static int *
list_waiting(List *sessions, int *n)
{
	int		   *pids;
	ListCell   *cell;
	HASH_SEQ_STATUS seq;
	Process    *process;
	int			i = 0;

	foreach(cell, sessions)
	{
		const ForeignSession *session = lfirst(cell);

		if (waits_abroad(session))
			(void) find_process(session->pid);
	}
	*n = hash_get_num_entries(scan.processes);
	pids = palloc(Max(*n, 1) * sizeof(int));
	hash_seq_init(&seq, scan.processes);
	while ((process = hash_seq_search(&seq)) != NULL)
		pids[i++] = process->pid;
	qsort(pids, *n, sizeof(int), compare_pids);
	return pids;
}

/*
 * Is a process only ahead of one that waits in this place: in the queue of the
 * slot that it waits for?
 */
static bool
is_ahead(const Process *process, const Place *by)
{
	return process->tag && by && memcmp(process->tag, &by->in->queue->tag,
										sizeof(LOCKTAG)) == 0;
}

/* The walk reaches a process by the wait of "from" in a place. */
static void
reach(int pid, const Process *from, const Place *by, List **todo)
{
	Process    *process = find_process(pid);

	if (process == from)
		return;
	if (process->walk != scan.walk)
		*todo = lappend(*todo, process);
	else if (process->places != NULL || !is_ahead(process, process->by) ||
			 is_ahead(process, by))
		return;
	process->walk = scan.walk;
	process->before = from;
	process->by = by;
}

/* Go on from a process to those that block it in one queue. */
static void
follow(const Process *process, const Place *place, List **todo)
{
	ScanQueue  *in = place->in;
	const Queue *queue = in->queue;
	const QueueWaiter *waiter = &queue->waiters[place->number];
	LOCKMASK	conflicts = in->method->conflictTab[waiter->mode];

	if (waiter->since == 0)
		return;
	if (in->walk != scan.walk)
		memset(in->followed, -1, sizeof(in->followed));
	in->walk = scan.walk;
	if (in->followed[waiter->mode] < 0)
		for (int i = 0; i < queue->nholders; i++)
			if (queue->holders[i].modes & conflicts)
				reach(queue->holders[i].pid, process, place, todo);
	in->followed[waiter->mode] = Max(in->followed[waiter->mode],
									 place->number);
	for (int mode = 1; mode <= in->method->numLockModes; mode++)
	{
		int			last = in->last[place->number][mode];

		if ((conflicts & LOCKBIT_ON(mode)) && last > in->followed[mode])
			reach(queue->waiters[last].pid, process, place, todo);
	}
}

/* Does this process block one that waits in this place? */
static bool
blocks(int pid, const Place *place)
{
	const Queue *queue = place->in->queue;
	LOCKMASK	conflicts =
		place->in->method->conflictTab[queue->waiters[place->number].mode];

	for (int i = 0; i < queue->nholders; i++)
		if (queue->holders[i].pid == pid && (queue->holders[i].modes & conflicts))
			return true;
	for (int i = 0; i < place->number; i++)
		if (queue->waiters[i].pid == pid &&
			(conflicts & LOCKBIT_ON(queue->waiters[i].mode)))
			return true;
	return false;
}

/* The place of a process that waits since then, or NULL. */
static const Place *
find_place(const Process *process, uint64 since)
{
	for (const Place *place = process->places; place; place = place->next)
		if ((uint64) place->in->queue->waiters[place->number].since == since)
			return place;
	return NULL;
}

/*
 * Is this way from "process" to "end" still there?  If so, sets *by to its last
 * step.
 */
static bool
is_there(const char *way, const Process *process, const Process *end,
		 const Place **by)
{
	while (*way != '\0')
	{
		char	   *rest;
		long		pid = strtol(way, &rest, 10);
		uint64		since = *rest == '.' ? strtoull(rest + 1, &rest, 16) : 0;
		int			next;

		way = *rest == ',' ? rest + 1 : rest;
		next = *way == '\0' ? end->pid : (int) strtol(way, NULL, 10);
		*by = pid == process->pid ? find_place(process, since) : NULL;
		if (*by == NULL || !blocks(next, *by))
			return false;
		process = find_process(next);
	}
	return process == end;
}

static int
compare_ways(const void *a, const void *b)
{
	const Way  *left = a;
	const Way  *right = b;

	if (left->from != right->from)
		return left->from < right->from ? -1 : 1;
	return (left->to > right->to) - (left->to < right->to);
}

/* Append the steps of the walk's way to a process. */
static void
append_way(StringInfo buf, const Process *process)
{
	if (process->before == NULL)
		return;
	append_way(buf, process->before);
	if (buf->len < DEADLOCK_LINE_BYTES)
		appendStringInfo(buf, "%s%d.%llx", buf->len > 0 ? "," : "",
						 process->before->pid, (unsigned long long)
						 process->by->in->queue->waiters[process->by->number].since);
}

/* The walk from "start" has an end here: note it, with its way. */
static void
add_end(const Process *start, const Process *process)
{
	Way			key = {.from = start->pid,.to = process->pid};
	const Way  *old = known.nways == 0 || process == start ? NULL :
		bsearch(&key, known.ways, known.nways, sizeof(Way), compare_ways);
	const Place *by = process->by;
	WayEnd	   *end;

	if (scan.nends == scan.max_ends)
	{
		scan.max_ends = Max(64, 2 * scan.max_ends);
		scan.ends = scan.ends ?
			repalloc_huge(scan.ends, scan.max_ends * sizeof(WayEnd)) :
			palloc(scan.max_ends * sizeof(WayEnd));
	}
	end = &scan.ends[scan.nends++];
	end->process = process;
	if (old && is_there(old->text, start, process, &by))
		end->way = pstrdup(old->text);
	else
	{
		StringInfoData buf;

		by = process->by;
		initStringInfo(&buf);
		append_way(&buf, process);
		end->way = buf.data;
	}
	end->ahead = is_ahead(process, by);
}

/*
 * Find where the ways from a process end, its own included.  All ways are
 * followed first, since the one that counts may be longer.
 */
static void
walk(int pid)
{
	Process    *start = find_process(pid);
	List	   *todo = list_make1(start);

	scan.walk++;
	start->walk = scan.walk;
	start->before = NULL;
	start->by = NULL;
	for (int i = 0; i < list_length(todo); i++)
	{
		Process    *process = list_nth(todo, i);

		for (Place *place = process->places; place; place = place->next)
			follow(process, place, &todo);
	}
	scan.nends = 0;
	for (int i = 0; i < list_length(todo); i++)
	{
		const Process *process = list_nth(todo, i);
		const ForeignSession *session = foreign_find(process->pid);

		if (process->wait || (session && waits_abroad(session)))
			add_end(start, process);
	}
	list_free(todo);
}

static void
add_edge(const DeadlockVertex *from, const DeadlockEdge *wait,
		 const WayEnd *end)
{
	Waits	   *result = scan.result;
	DeadlockEdge *edge;

	if (result->nedges == MAX_EDGES)
		return;
	if (result->nedges == scan.room)
	{
		scan.room *= 2;
		result->edges = repalloc(result->edges,
								 scan.room * sizeof(DeadlockEdge));
	}
	edge = &result->edges[result->nedges++];
	*edge = *wait;
	edge->from = *from;
	edge->way = end->way;
	edge->ahead = end->ahead && wait == end->process->wait;
}

/*
 * Add the edges to sessions where a way ends: to the one that this process
 * works for, if it is idle, and to what works for it, if it is in a statement
 * on a foreign server.
 */
static void
add_edges_abroad(const DeadlockVertex *from, const WayEnd *end)
{
	const ForeignSession *session = foreign_find(end->process->pid);
	DeadlockEdge wait = {.to.pid = end->process->pid};

	if (session == NULL)
		return;

	/* what works for a session and is idle keeps it from nothing itself */
	if (session->origin[0] != '\0' && session->idle != 0 &&
		!(from->kind == DEADLOCK_WORK && from->pid == session->pid))
	{
		wait.to.kind = DEADLOCK_SESSION;
		wait.to.name = session->origin;
		wait.to.generation = session->idle;
		add_edge(from, &wait, end);
	}
	if (session->statement != 0)
	{
		wait.to.kind = DEADLOCK_WORK;
		wait.to.name = session->name;
		wait.to.generation = session->statement;
		add_edge(from, &wait, end);
	}
}

/* Add the edges from a vertex whose process walk() began with. */
static void
add_edges(const DeadlockVertex *from)
{
	for (int i = 0; i < scan.nends; i++)
	{
		const WayEnd *end = &scan.ends[i];

		if (end->process->wait)
			add_edge(from, end->process->wait, end);
		add_edges_abroad(from, end);
	}
}

/* Have the next scan look for the ways of this walk that have edges. */
static void
keep_ways(int from)
{
	MemoryContext save = MemoryContextSwitchTo(known.context);

	for (int i = 0; i < scan.nends; i++)
	{
		Way		   *way;

		if (scan.ends[i].way[0] == '\0')
			continue;
		way = palloc(sizeof(Way));
		way->from = from;
		way->to = scan.ends[i].process->pid;
		way->text = pstrdup(scan.ends[i].way);
		scan.ways = lappend(scan.ways, way);
	}
	MemoryContextSwitchTo(save);
}

/* Add the edges from what a process holds. */
static void
add_hold(const ZkHold *hold)
{
	Contender  *contender = contender_find(hold->slot, &hold->contender);
	DeadlockVertex from;

	if (scan.nends == 0 || hold->behind == TURN_ALONE ||
		contender == NULL || !contender_owns(contender))
		return;
	if (hold->behind != TURN_CONTENDED)
	{
		scan.result->unknown = lappend(scan.result->unknown, contender);
		return;
	}
	from.kind = kind_of(hold->contender.kind == ZNODE_READER);
	from.name = pstrdup(contender_directory(contender));
	from.pid = hold->pid;
	from.generation = (uint64) hold->since;
	add_edges(&from);
}

static int
compare_holds(const void *a, const void *b)
{
	return compare_pids(&((const ZkHold *) a)->pid, &((const ZkHold *) b)->pid);
}

/* Add the edges from a session, as itself and as what works for another. */
static void
add_session(const ForeignSession *session)
{
	DeadlockVertex from = {
		.pid = session->pid,
		.generation = session->start
	};

	if (session->name[0] != '\0')
	{
		from.kind = DEADLOCK_SESSION;
		from.name = session->name;
		add_edges(&from);
	}
	if (session->origin[0] != '\0')
	{
		from.kind = DEADLOCK_WORK;
		from.name = session->origin;
		add_edges(&from);
	}
}

/* The ways of this scan are those of the latest one. */
static void
exchange_ways(MemoryContext old)
{
	ListCell   *cell;
	MemoryContext save = MemoryContextSwitchTo(known.context);

	known.ways = palloc((list_length(scan.ways) + 1) * sizeof(Way));
	known.nways = 0;
	foreach(cell, scan.ways)
		known.ways[known.nways++] = *(const Way *) lfirst(cell);
	MemoryContextSwitchTo(save);
	if (known.nways > 1)
		qsort(known.ways, known.nways, sizeof(Way), compare_ways);
	if (old)
		MemoryContextDelete(old);
}

/* Add all edges from what waiting processes hold, and from sessions. */
static void
add_all(List *sessions)
{
	ListCell   *cell;
	int			npids;
	int		   *pids = list_waiting(sessions, &npids);
	int			nholds;
	ZkHold	   *holds = slots_holds_of(pids, npids, &nholds);

	qsort(holds, nholds, sizeof(ZkHold), compare_holds);
	for (int i = 0; i < nholds; i++)
	{
		if (i == 0 || holds[i].pid != holds[i - 1].pid)
		{
			walk(holds[i].pid);
			keep_ways(holds[i].pid);
		}
		add_hold(&holds[i]);
	}
	foreach(cell, sessions)
	{
		const ForeignSession *session = lfirst(cell);

		walk(session->pid);
		add_session(session);
		keep_ways(session->pid);
	}
}

/*
 * waits_scan
 *		Find the edges of this instance whose waits for slots have lasted for
 *		"wait_us".
 *
 * All is palloc'd in the current context.
 */
void
waits_scan(Waits *result, int64 wait_us)
{
	MemoryContext old = known.context;
	int64		now_us = zk_now_us();
	int			nrows;
	ZkWait	   *rows = slots_waits(&nrows);
	HASHCTL		ctl;
	List	   *sessions;

	memset(result, 0, sizeof(*result));
	memset(&scan, 0, sizeof(scan));
	result->next_us = PG_INT64_MAX;
	scan.result = result;
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int);
	ctl.entrysize = sizeof(Process);
	ctl.hcxt = CurrentMemoryContext;
	scan.processes = hash_create("zklock processes", 256, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	scan.room = 64;
	result->edges = palloc(scan.room * sizeof(DeadlockEdge));
	for (int i = 0; i < nrows; i++)
		add_wait(&rows[i], now_us, wait_us);
	sessions = foreign_begin(wait_us, &result->next_us);
	known.context = AllocSetContextCreate(TopMemoryContext, "zklock ways",
										  ALLOCSET_SMALL_SIZES);
	if (result->old || sessions != NIL)
	{
		read_queues();
		add_all(sessions);
	}
	exchange_ways(old);
	ereport(DEBUG2,
			(errmsg_internal("%d waits for slots, %d edges, in %lld us",
							 nrows, result->nedges,
							 (long long) (zk_now_us() - now_us))));
}
