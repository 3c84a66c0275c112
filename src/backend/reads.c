/*-------------------------------------------------------------------------
 *
 * reads.c
 *		What a backend reads in ZooKeeper, by way of the worker.
 *
 * The worker lists and reads what it is told, in several requests for each
 * call: the queues here, and their order, are the backend's.  So a row may be
 * of two moments some milliseconds apart, and rows are of different ones.  What
 * shows only shared memory, and never waits, is in views.c.
 *
 * A lock has its contenders in its directory, a semaphore in two parts of it.
 * First all of these are listed, then the nodes that matter are read.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/reads.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "backend/reads.h"
#include "backend/timeout.h"
#include "catalog/pg_type.h"
#include "core/deadlock.h"
#include "core/lock/note.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/text.h"
#include "storage/ipc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_queue);
PG_FUNCTION_INFO_V1(zk_fleet_locks);
PG_FUNCTION_INFO_V1(zk_fleet);

#define QUEUE_COLUMNS	10
#define FLEET_LOCKS_COLUMNS	13
#define FLEET_COLUMNS		13

/* The most instances that are compared, which takes time in the square. */
#define MAX_MEMBERS			1000

/* Of all locks, so many are listed and read together. */
#define LOCKS_AT_A_TIME		100

/* How often the next contenders of a lock are read, if the first ones left. */
#define MAX_ROUNDS			8

/* A request, from before it is put into a box until its answer is copied. */
typedef struct Asking
{
	ZkReadBox  *box;			/* NULL: not yet */
	const ZkReadAnswer *answer; /* NULL: none yet */
	ZkSessionInfo session;		/* as of the end of the wait */
} Asking;

static void
end_asking(int code pg_attribute_unused(), Datum arg)
{
	Asking	   *asking = (Asking *) DatumGetPointer(arg);

	if (asking->box)
		reads_end(asking->box);
	asking->box = NULL;
	asking->answer = NULL;
}

/*
 * Ask, and wait for the answer.  asking->answer is NULL if none has come by
 * the deadline (as of zk_now_ms(), or -1), or if there was no session for the
 * session timeout.  The caller calls end_asking(), after an error too.
 */
static void
ask(Asking *asking, const ZkReadRequest *request, int64 deadline)
{
	static uint32 wait_event = 0;
	int64		called_at = zk_now_ms();
	int64		no_session_since = 0;

	for (;;)
	{
		int64		sleep = zk_timeout_left(called_at, &no_session_since,
											&asking->session);
		int64		left = zk_time_left(deadline);

		if (asking->box == NULL)
			asking->box = reads_ask(request);
		if (asking->box)
			asking->answer = reads_answer(asking->box);
		if (deadline >= 0)
			sleep = Min(sleep, left);
		if (asking->answer || sleep <= 0)
			break;

		/* the first sleep on a condition variable only prepares */
		(void) ConditionVariableTimedSleep(reads_cv(asking->box),
										   Min(sleep, INT_MAX),
										   ZkWaitEvent(wait_event, "ZkRead"));
		CHECK_FOR_INTERRUPTS();
	}
	ConditionVariableCancelSleep();
}

/* Copy the znodes of an answer to our own memory. */
static char *
copy_answer(dsm_handle handle)
{
	dsm_segment *segment = dsm_attach(handle);
	Size		size;
	char	   *copy;

	if (segment == NULL)
		elog(ERROR, "could not attach to the segment of an answer");
	size = dsm_segment_map_length(segment);
	copy = MemoryContextAllocHuge(CurrentMemoryContext, size);
	memcpy(copy, dsm_segment_address(segment), size);
	dsm_detach(segment);
	return copy;
}

/* Fail if the answer is unusable; report at reading->elevel if none came. */
static void
report_unread(const Reading *reading, const Asking *asking,
			  ZkReadOutcome outcome)
{
	const ZkLockName *lock = reading->lock;

	switch (outcome)
	{
		case ZK_READ_DONE:
			zk_report_no_session(reading->elevel, lock ? lock->name : NULL,
								 &asking->session);
			break;
		case ZK_READ_NO_MEMORY:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 lock ?
					 errmsg("out of shared memory for the queue of lock \"%s\"",
							lock->name) :
					 errmsg("out of shared memory for the queues below \"%s\"",
							reading->path),
					 errhint("The server log has the details.")));
			break;
		case ZK_READ_TOO_LARGE:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 lock ? errmsg("too many contenders for lock \"%s\"",
								   lock->name) :
					 errmsg("too many locks below \"%s\"", reading->path),
					 errdetail("An answer has at most %d MB.",
							   ZK_READ_MAX_BYTES / (1024 * 1024)),
					 lock ?
					 errhint("Other clients may have created znodes there.") :
					 errhint("Call zk_queue() for single locks, or look at zk_locks in each server.")));
			break;
	}
}

/*
 * Carry out a request; "nodes" get the znodes, in a palloc'd copy.  Returns
 * their number; 0 if fewer must be asked for at a time; or -1 if there is no
 * answer, and that is no error.
 */
static int
carry_out(Reading *reading, const ZkReadRequest *request,
		  const ZkReadNode **nodes)
{
	Asking		asking = {0};
	volatile ZkReadOutcome outcome = ZK_READ_DONE;
	char	   *volatile next = NULL;

	PG_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	{
		ask(&asking, request, reading->deadline);
		if (asking.answer)
			outcome = asking.answer->outcome;
		if (asking.answer && outcome == ZK_READ_DONE)
			next = copy_answer(asking.answer->segment);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	end_asking(0, PointerGetDatum(&asking));

	for (int i = 0; next && i < request->npaths; i++)
	{
		nodes[i] = (const ZkReadNode *) next;
		next += ZkReadNodeSize(nodes[i]->nbytes);
		reading->size += ZkReadNodeSize(nodes[i]->nbytes);
	}
	if (outcome == ZK_READ_TOO_LARGE && request->npaths > 1)
		return 0;
	if (reading->size > ZK_READ_MAX_BYTES)
		outcome = ZK_READ_TOO_LARGE;
	if (next && outcome == ZK_READ_DONE)
		return request->npaths;
	if (reading->deadline < 0)
		report_unread(reading, &asking, outcome);
	return -1;
}

/* Add paths to a request, as many as have room, of "n"; returns how many. */
static int
add_paths(ZkReadRequest *request, const char *const *paths, int n)
{
	request->npaths = request->size = 0;
	while (request->npaths < n)
	{
		Size		size = strlen(paths[request->npaths]) + 1;

		if (request->size + size > ZK_READ_PATHS_SIZE)
			break;
		memcpy(request->paths + request->size, paths[request->npaths++], size);
		request->size += size;
	}
	return request->npaths;
}

/*
 * read_nodes
 *		List or read these znodes below the root, or request revocation of
 *		them; "nodes" get what ZooKeeper has, palloc'd.
 *
 * If an answer would be too long, less is asked for at a time.  Returns false
 * if there is none, and that is no error, as "reading" says.
 *
 * Errors: 57P03 no session; 53200 no memory for an answer; 54000 all that is
 * kept has more than ZK_READ_MAX_BYTES; 57014 canceled.
 */
bool
read_nodes(Reading *reading, ZkReadKind kind, const char *const *paths, int n,
		   const ZkReadNode **nodes)
{
	static const ZkReadNode no_room = {.refusal = ZK_REFUSAL_OTHER,.data_len = -1};
	ZkReadRequest *request = palloc(sizeof(ZkReadRequest));
	int			max = INT_MAX;
	int			done = 0;

	request->kind = kind;
	request->max_data = reading->max_data > 0 ? reading->max_data :
		ZK_READ_MAX_DATA;
	strlcpy(request->root, reading->root, sizeof(request->root));
	while (done < n)
	{
		int			count = add_paths(request, paths + done,
									  Min(n - done, max));
		int			nread = 1;

		if (count == 0)
			nodes[done] = &no_room; /* a stranger's name */
		else
			nread = carry_out(reading, request, nodes + done);
		if (nread < 0)
			break;
		max = nread == 0 ? count / 2 : Max(max, 2 * count);
		done += nread;
	}
	pfree(request);
	return done == n;
}

/*
 * read_check_refusal
 *		Fail if ZooKeeper has refused what was to be read.
 *
 * Errors: 42501; 58000.
 */
void
read_check_refusal(const Reading *reading, ZkRefusal refusal)
{
	const ZkLockName *lock = reading->lock;

	if (refusal == ZK_REFUSAL_NONE)
		return;
	if (refusal == ZK_REFUSAL_ACCESS)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 lock ? errmsg("ZooKeeper denied access to lock \"%s\"",
							   lock->name) :
				 errmsg("ZooKeeper denied access to \"%s\"", reading->path),
				 errdetail("The credentials of this server do not allow it to read or change the znodes in \"%s\".",
						   reading->path),
				 errhint("Check \"%s\", and the ACL of the znodes.",
						 secure_name_of_credentials())));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 lock ? errmsg("ZooKeeper refused a request for lock \"%s\"",
						   lock->name) :
			 errmsg("ZooKeeper refused a request for \"%s\"", reading->path),
			 errhint("The server log has the details.")));
}

/*
 * read_begin_of_lock
 *		Prepare to read about a lock, and what its queue is called there.
 *		"path" has room for ZNODE_PATH_SIZE bytes, and gets the lock's.
 */
void
read_begin_of_lock(Reading *reading, const ZkKey *key, char *path,
				   Queue *queue)
{
	memset(reading, 0, sizeof(*reading));
	memset(queue, 0, sizeof(*queue));
	key_path(key, path);
	reading->root = pnstrdup(path, strlen(path) - strlen(key->name) - 1);
	reading->path = path;
	reading->deadline = -1;
	reading->elevel = ERROR;
	queue->name = key->name;
}

/* The directory of a place of a queue, below the root. */
static const char *
directory_of(const Queue *queue, QueuePlace place)
{
	return place == PLACE_NAME ? queue->name :
		psprintf("%s/%s", queue->name, place == PLACE_PERMITS ?
				 ZNODE_PERMITS_DIR : ZNODE_LOCKS_DIR);
}

static void
add_node(Queue *queue, QueuePlace place, const char *directory,
		 const char *child, const ZnodeContender *contender)
{
	QueueNode  *node;

	if (queue->n == queue->max)
	{
		Size		size;

		queue->max = Max(queue->max * 2, 4);
		size = queue->max * sizeof(QueueNode);
		queue->nodes = queue->nodes == NULL ?
			palloc_extended(size, MCXT_ALLOC_HUGE) :
			repalloc_huge(queue->nodes, size);
	}
	node = &queue->nodes[queue->n++];
	memset(node, 0, sizeof(*node));
	node->place = place;
	node->path = psprintf("%s/%s", directory, child);
	node->contender = *contender;
}

/* A directory that is to be listed. */
typedef struct QueuePart
{
	Queue	   *queue;
	QueuePlace	place;
} QueuePart;

/*
 * Add the contenders in the list of a part, and the parts of a semaphore to
 * "more", of which there are *nmore.  This adds two at most, even if the server
 * lists a name twice.
 */
static void
add_contenders(const QueuePart *part, const char *directory,
			   const ZkReadNode *list, QueuePart *more, int *nmore)
{
	Queue	   *queue = part->queue;
	const char *child = list->bytes;
	bool		permits = false;
	bool		locks = false;

	if (list->refusal != ZK_REFUSAL_NONE)
		queue->refusal = list->refusal;
	for (int i = 0; i < list->nchildren; i++)
	{
		ZnodeContender contender;

		if (znode_parse_contender(child, &contender))
			add_node(queue, part->place, directory, child, &contender);
		else if (part->place == PLACE_NAME)
		{
			permits |= strcmp(child, ZNODE_PERMITS_DIR) == 0;
			locks |= strcmp(child, ZNODE_LOCKS_DIR) == 0;
		}
		child += strlen(child) + 1;
	}
	if (permits)
		more[(*nmore)++] = (QueuePart) {queue, PLACE_PERMITS};
	if (locks)
		more[(*nmore)++] = (QueuePart) {queue, PLACE_LOCKS};
	queue->seen = GetCurrentTimestamp();
}

static int
compare_nodes(const void *a, const void *b)
{
	const QueueNode *left = a;
	const QueueNode *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;
	if (left->contender.sequence != right->contender.sequence)
		return znode_before(left->contender.sequence,
							right->contender.sequence) ? -1 : 1;
	return strcmp(left->path, right->path);
}

/*
 * read_queues
 *		List the contenders of these queues, whose names are set.  Returns and
 *		fails as read_nodes().
 */
bool
read_queues(Reading *reading, Queue *queues, int n)
{
	QueuePart  *parts = palloc(n * sizeof(QueuePart));
	int			nparts = n;

	for (int i = 0; i < n; i++)
		parts[i] = (QueuePart) {&queues[i], PLACE_NAME};
	while (nparts > 0)
	{
		QueuePart  *more = palloc(2 * nparts * sizeof(QueuePart));
		int			nmore = 0;
		const char **paths = palloc(nparts * sizeof(char *));
		const ZkReadNode **lists = palloc(nparts * sizeof(ZkReadNode *));

		for (int i = 0; i < nparts; i++)
			paths[i] = directory_of(parts[i].queue, parts[i].place);
		if (!read_nodes(reading, ZK_READ_CHILDREN, paths, nparts, lists))
			return false;
		for (int i = 0; i < nparts; i++)
			add_contenders(&parts[i], paths[i], lists[i], more, &nmore);
		parts = more;
		nparts = nmore;
	}
	for (int i = 0; i < n; i++)
		if (queues[i].n > 0)
			qsort(queues[i].nodes, queues[i].n, sizeof(QueueNode),
				  compare_nodes);
	return true;
}

/*
 * read_queue_nodes
 *		Read these contenders.  Returns and fails as read_nodes().
 */
bool
read_queue_nodes(Reading *reading, QueueNode *const *wanted, int n)
{
	const char **paths = palloc(n * sizeof(char *));
	const ZkReadNode **nodes = palloc(n * sizeof(ZkReadNode *));

	for (int i = 0; i < n; i++)
		paths[i] = wanted[i]->path;
	if (!read_nodes(reading, ZK_READ_DATA, paths, n, nodes))
		return false;
	for (int i = 0; i < n; i++)
		wanted[i]->read = nodes[i];
	return true;
}

/*
 * queue_node_is_gone
 *		Has it been read that this contender has left, or is none because the
 *		node is not ephemeral?
 */
bool
queue_node_is_gone(const QueueNode *node)
{
	return node->read && (node->read->gone || node->read->persistent);
}

/*
 * queue_find_first
 *		Find the first holder and the first waiter, and count both kinds.
 */
void
queue_find_first(Queue *queue)
{
	bool		writer = false;

	queue->holder = queue->waiter = -1;
	queue->nholders = queue->nwaiters = 0;
	for (int i = 0; i < queue->n; i++)
	{
		const QueueNode *node = &queue->nodes[i];
		bool		holds;

		if (queue_node_is_gone(node))
			continue;

		/*
		 * the first contender of a lock; readers before a writer; owners of
		 * permits
		 */
		if (node->place == PLACE_NAME)
		{
			holds = queue->nholders == 0 ||
				(node->contender.shared && !writer);
			writer |= !node->contender.shared;
		}
		else
			holds = node->place == PLACE_PERMITS;
		if (holds && queue->nholders++ == 0)
			queue->holder = i;
		if (!holds && queue->nwaiters++ == 0)
			queue->waiter = i;
	}
}

static const char *
mode_of(const QueueNode *node)
{
	if (node->place != PLACE_NAME)
		return "permit";
	return node->contender.shared ? "shared" : "exclusive";
}

/*
 * Read the children of a directory that are wanted, "max" of them at most;
 * *list is the directory.  Returns how many are wanted, or -1 if there is no
 * answer, and that is no error.
 */
static int
read_children(Reading *reading, const char *directory,
			  bool (*is_wanted) (const char *child), int max,
			  const ZkReadNode **list, const ZkReadNode ***nodes)
{
	const char **paths;
	const char *child;
	int			n = 0;

	if (!read_nodes(reading, ZK_READ_CHILDREN, &directory, 1, list))
		return -1;
	paths = palloc(max * sizeof(char *));
	child = (*list)->bytes;
	for (int i = 0; i < (*list)->nchildren; i++)
	{
		if (is_wanted(child) && n++ < max)
			paths[n - 1] = psprintf("%s/%s", directory, child);
		child += strlen(child) + 1;
	}
	*nodes = palloc(max * sizeof(ZkReadNode *));
	return read_nodes(reading, ZK_READ_DATA, paths, Min(n, max), *nodes) ? n : -1;
}

/* More texts are not read. */
#define MAX_TEXTS			1000

/*
 * Read the texts of waits that instances have published; returns their number.
 * None count if there is no answer, or ZooKeeper refuses it.
 *
 * Errors: those of read_nodes().
 */
static int
read_texts(int64 deadline, const ZkReadNode ***texts)
{
	Reading		reading = {
		.root = "",.path = DEADLOCK_DIRECTORY,.deadline = deadline,
		.elevel = ERROR,.max_data = DEADLOCK_TEXT_BYTES
	};
	const ZkReadNode *list;
	int			n = read_children(&reading, DEADLOCK_DIRECTORY,
								  deadlock_is_text, MAX_TEXTS, &list, texts);

	return Min(Max(n, 0), MAX_TEXTS);
}

/* That a holder of one lock waits for another one; paths of lock directories. */
typedef struct HolderWait
{
	char	   *held;
	char	   *wanted;
} HolderWait;

/* Add the waits of holders in a text to a list, palloc'd. */
static List *
add_waits(List *waits, const ZkReadNode *node)
{
	DeadlockText text;

	if (node->persistent || !deadlock_parse("", node->bytes, node->data_len, &text))
		return waits;
	for (int i = 0; i < text.nedges; i++)
	{
		HolderWait *wait;

		if (text.edges[i].from.name[0] != '/' || text.edges[i].to.name[0] != '/')
			continue;
		wait = palloc(sizeof(HolderWait));
		wait->held = pstrdup(text.edges[i].from.name);
		wait->wanted = pstrdup(text.edges[i].to.name);
		waits = lappend(waits, wait);
	}
	free(text.edges);
	free(text.memory);
	return waits;
}

/* The locks that holders of a lock wait for; NULL: none. */
static ArrayType *
waited_for(List *waits, const char *path)
{
	ArrayBuildState *names = NULL;
	List	   *known = NIL;
	ListCell   *cell;

	foreach(cell, waits)
	{
		const HolderWait *wait = lfirst(cell);

		if (strcmp(wait->held, path) != 0 ||
			list_member(known, makeString(wait->wanted)))
			continue;
		known = lappend(known, makeString(wait->wanted));
		names = accumArrayResult(names,
								 CStringGetTextDatum(path_lock_name(wait->wanted)),
								 false, TEXTOID, CurrentMemoryContext);
	}
	return names == NULL ? NULL :
		DatumGetArrayTypeP(makeArrayResult(names, CurrentMemoryContext));
}

/* Convert ZooKeeper's time; false if it is out of our range. */
static bool
timestamp_of_ctime(int64 ctime, TimestampTz *result)
{
	const int64 epoch_ms = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
	(USECS_PER_DAY / 1000);

	if (ctime <= 0 || ctime > END_TIMESTAMP / 1000)
		return false;
	*result = (ctime - epoch_ms) * 1000;
	return true;
}

static Datum
text_value(const char *text)
{
	return CStringGetTextDatum(text_of_string(text));
}

/* One more column of a row, which is NULL unless its value is known. */
#define PUT(known, value) \
	do { \
		nulls[n] = !(known); \
		values[n] = nulls[n] ? (Datum) 0 : (value); \
		n++; \
	} while (0)

/*
 * Put the data of a contender, and its parts, into five columns from values[n]
 * on.  Returns the number of the next column.
 *
 * "of_claim": a claim of this instance has the lock, so that the process in
 * the note, which took the lock, holds it no more.
 */
static int
put_owner(const ZkReadNode *read, bool of_claim, Datum *values, bool *nulls,
		  int n)
{
	Note		note;

	note_parse(&note, read->bytes, read->data_len);
	PUT(read->data_len >= 0,
		CStringGetTextDatum(text_of_data(read->bytes, read->data_len)));
	PUT(note.words & NOTE_CLUSTER, text_value(note.cluster_name));
	PUT(note.words & NOTE_HOST, text_value(note.host));
	PUT(note.words & NOTE_PORT, Int32GetDatum(note.port));
	PUT((note.words & NOTE_PID) && !of_claim, Int32GetDatum(note.pid));
	return n;
}

/* Could a claim of this instance have the lock by this contender? */
static bool
may_be_of_claim(const QueueNode *node)
{
	return node->place == PLACE_NAME && !node->contender.shared &&
		node->read && node->read->ours;
}

/* Has one the lock whose directory is "name" below zklock.root? */
static bool
is_claimed(const char *name)
{
	ZkKey		key;

	if (strlen(name) > ZNODE_MAX_NAME)
		return false;
	key_make(zklock_root, name, &key);
	return claim_is_in_way(&key);
}

static void
put_entry(ReturnSetInfo *rsinfo, int position, const Reading *reading,
		  const QueueNode *node, bool claimed)
{
	Datum		values[QUEUE_COLUMNS];
	bool		nulls[QUEUE_COLUMNS];
	const ZkReadNode *read = node->read;
	TimestampTz queued_at;
	int			n = 0;

	PUT(true, Int32GetDatum(position));
	PUT(true, CStringGetTextDatum(psprintf("%s/%s", reading->root,
										   text_of_string(node->path))));
	PUT(true, CStringGetTextDatum(mode_of(node)));
	n = put_owner(read, claimed && may_be_of_claim(node), values, nulls, n);
	PUT(read->session_id != 0, session_id_text(read->session_id));
	PUT(timestamp_of_ctime(read->ctime, &queued_at),
		TimestampTzGetDatum(queued_at));
	Assert(n == QUEUE_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_queue(name text) returns setof record
 *
 * The contenders for a lock as ZooKeeper has them now, in the order of the
 * queue; for a semaphore, first those that have a permit, then those that wait
 * for one.
 *
 * Errors: those of the name, as in zk_lock(), of read_nodes() and of
 * read_check_refusal().
 */
Datum
zk_queue(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkLockName	lock;
	char		path[ZNODE_PATH_SIZE];
	Reading		reading;
	Queue		queue;
	QueueNode **wanted;
	int			position = 0;
	bool		claimed;

	zk_check_fleet(fcinfo->flinfo->fn_oid);
	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), &lock);
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, QUEUE_COLUMNS);

	read_begin_of_lock(&reading, &lock.key, path, &queue);
	reading.lock = &lock;
	(void) read_queues(&reading, &queue, 1);
	read_check_refusal(&reading, queue.refusal);
	wanted = palloc_extended(queue.n * sizeof(QueueNode *), MCXT_ALLOC_HUGE);
	for (int i = 0; i < queue.n; i++)
		wanted[i] = &queue.nodes[i];
	(void) read_queue_nodes(&reading, wanted, queue.n);
	claimed = claim_is_in_way(&lock.key);
	for (int i = 0; i < queue.n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!queue_node_is_gone(wanted[i]))
			put_entry(rsinfo, ++position, &reading, wanted[i], claimed);
	}
	return (Datum) 0;
}

static void
put_lock(ReturnSetInfo *rsinfo, const Queue *queue, List *all_waits)
{
	Datum		values[FLEET_LOCKS_COLUMNS];
	bool		nulls[FLEET_LOCKS_COLUMNS];
	bool		listed = queue->refusal == ZK_REFUSAL_NONE;
	const QueueNode *holder =
	queue->holder >= 0 ? &queue->nodes[queue->holder] : NULL;
	const QueueNode *waiter =
	queue->waiter >= 0 ? &queue->nodes[queue->waiter] : NULL;
	static const ZkReadNode unread = {.data_len = -1};
	const ZkReadNode *held = holder && holder->read ? holder->read : &unread;
	const ZkReadNode *waits = waiter && waiter->read ? waiter->read : &unread;
	ArrayType  *waits_for = waited_for(all_waits, psprintf("%s/%s", zklock_root,
														   queue->name));
	TimestampTz queued_at;
	TimestampTz waiter_since;
	int			n = 0;

	PUT(true, CStringGetTextDatum(path_lock_name(queue->name)));
	PUT(listed, CStringGetTextDatum(mode_of(holder ? holder : waiter)));
	PUT(listed, Int32GetDatum(queue->nholders));
	n = put_owner(held, holder && may_be_of_claim(holder) &&
				  is_claimed(queue->name), values, nulls, n);
	PUT(timestamp_of_ctime(held->ctime, &queued_at),
		TimestampTzGetDatum(queued_at));
	PUT(listed, Int32GetDatum(queue->nwaiters));
	PUT(timestamp_of_ctime(waits->ctime, &waiter_since),
		interval_of_us(Max(queue->seen - waiter_since, 0)));
	PUT(waits_for != NULL, PointerGetDatum(waits_for));
	PUT(true, TimestampTzGetDatum(queue->seen));
	Assert(n == FLEET_LOCKS_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * Read the first holder and the first waiter of each queue.  Returns false if
 * all of them have been read already.
 */
static bool
read_first(Reading *reading, Queue *queues, int n)
{
	QueueNode **wanted = palloc(2 * n * sizeof(QueueNode *));
	int			nwanted = 0;

	for (int i = 0; i < n; i++)
	{
		Queue	   *queue = &queues[i];

		queue_find_first(queue);
		if (queue->holder >= 0 && queue->nodes[queue->holder].read == NULL)
			wanted[nwanted++] = &queue->nodes[queue->holder];
		if (queue->waiter >= 0 && queue->nodes[queue->waiter].read == NULL)
			wanted[nwanted++] = &queue->nodes[queue->waiter];
	}
	(void) read_queue_nodes(reading, wanted, nwanted);
	return nwanted > 0;
}

/*
 * Read some of all locks, and put a row for each that is in use.  Their lists
 * are not kept.
 */
static void
put_locks(ReturnSetInfo *rsinfo, Reading *reading, Queue *queues, int n,
		  List *all_waits)
{
	Size		kept = reading->size;
	Size		listed;

	(void) read_queues(reading, queues, n);
	listed = reading->size - kept;
	for (int round = 0;
		 round < MAX_ROUNDS && read_first(reading, queues, n); round++)
		 /* those behind the ones that have left */ ;
	for (int i = 0; i < n; i++)
	{
		Queue	   *queue = &queues[i];

		queue_find_first(queue);
		if (queue->refusal != ZK_REFUSAL_NONE ||
			queue->nholders + queue->nwaiters > 0)
			put_lock(rsinfo, queue, all_waits);
	}
	reading->size -= listed;
}

/* Is this child of the root a lock directory?  Not %waits, and so on. */
static bool
is_lock_directory(const char *child)
{
	char		name[ZNODE_MAX_NAME + 1];

	return znode_decode_name(child, name, sizeof(name)) >= 0 &&
		(child[0] != '%' || name[0] != '%' || strncmp(child, "%25", 3) == 0);
}

/*
 * zk_fleet_locks() returns setof record
 *
 * Each lock below zklock.root that an instance or another client holds or
 * waits for, as ZooKeeper had it when it was read.
 *
 * Errors: those of zk_check_usable(), read_nodes() and read_check_refusal().
 */
Datum
zk_fleet_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Reading		reading = {.deadline = -1,.elevel = ERROR};
	const char *path = "";
	const ZkReadNode *root;
	const char *child;
	MemoryContext context;
	const ZkReadNode **texts;
	int			ntexts;
	List	   *waits = NIL;
	int			i = 0;

	zk_check_usable();
	zk_check_fleet(fcinfo->flinfo->fn_oid);
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, FLEET_LOCKS_COLUMNS);
	ntexts = read_texts(-1, &texts);
	for (int t = 0; t < ntexts; t++)
		waits = add_waits(waits, texts[t]);

	reading.root = reading.path = zklock_root;
	(void) read_nodes(&reading, ZK_READ_CHILDREN, &path, 1, &root);
	read_check_refusal(&reading, root->refusal);
	reading.size = 0;
	child = root->bytes;
	context = AllocSetContextCreate(CurrentMemoryContext, "zklock queues",
									ALLOCSET_DEFAULT_SIZES);
	while (i < root->nchildren)
	{
		MemoryContext save = MemoryContextSwitchTo(context);
		Queue	   *queues = palloc0(LOCKS_AT_A_TIME * sizeof(Queue));
		int			n = 0;

		for (; i < root->nchildren && n < LOCKS_AT_A_TIME; i++)
		{
			if (is_lock_directory(child))
				queues[n++].name = child;
			child += strlen(child) + 1;
		}
		put_locks(rsinfo, &reading, queues, n, waits);
		MemoryContextSwitchTo(save);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	return (Datum) 0;
}

/* The member's conflicts, as an array. */
static Datum
conflicts_of(const Member *member)
{
	Datum		texts[MEMBER_CONFLICTS];
	int			n = 0;

	for (int i = 0; i < MEMBER_CONFLICTS; i++)
		if (member->conflicts & (1U << i))
			texts[n++] = CStringGetTextDatum(member_conflict_text(1 << i));
	return PointerGetDatum(construct_array(texts, n, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

static void
put_member(ReturnSetInfo *rsinfo, const Member *member, const ZkReadNode *read)
{
	Datum		values[FLEET_COLUMNS];
	bool		nulls[FLEET_COLUMNS];
	TimestampTz started_at;
	int			n = 0;

	PUT(member->words & MEMBER_CLUSTER, text_value(member->cluster_name));
	PUT(member->words & MEMBER_HOST, text_value(member->host));
	PUT(member->words & MEMBER_PORT, Int32GetDatum(member->port));
	PUT(member->words & MEMBER_STANDBY, BoolGetDatum(member->standby != 0));
	PUT(member->words & MEMBER_VERSION, text_value(member->version));
	PUT(member->words & MEMBER_SERVER, text_value(member->server));
	PUT(member->words & MEMBER_SYSTEM, Int64GetDatum((int64) member->system));
	PUT(member->words & MEMBER_FORMAT, text_value(member->format));
	PUT(member->words & MEMBER_TIMEOUT,
		interval_of_us((int64) member->timeout * 1000));
	PUT(timestamp_of_ctime(read->ctime, &started_at),
		TimestampTzGetDatum(started_at));
	PUT(read->session_id != 0, session_id_text(read->session_id));
	PUT(read->session_id != 0, BoolGetDatum(read->ours));
	PUT(member->conflicts != 0, conflicts_of(member));
	Assert(n == FLEET_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* The directory of the instances, as far as it is known. */
static char *
fleet_path(void)
{
	ZkFleetInfo fleet;

	session_read_fleet(&fleet);
	return psprintf("%s/%s", fleet.root, MEMBER_DIR);
}

/*
 * Read the znodes of the instances that share the worker's ensemble and root,
 * not this session's zklock.root; returns their number, or -1 if they could not
 * be read and that is no error.
 *
 * Warns (54000) if there are more than MAX_MEMBERS.
 *
 * Errors: those of read_nodes() and read_check_refusal().
 */
static int
read_members(int64 deadline, const ZkReadNode ***nodes)
{
	Reading		reading = {
		.root = "",
		.path = fleet_path(),
		.deadline = deadline,
		.elevel = ERROR
	};
	const ZkReadNode *list;
	int			n = read_children(&reading, MEMBER_DIR, member_is_node,
								  MAX_MEMBERS, &list, nodes);

	if (n < 0)
		return -1;
	reading.path = fleet_path();	/* the worker has joined */
	if (deadline < 0)
		read_check_refusal(&reading, list->refusal);
	if (n > MAX_MEMBERS && deadline < 0)
		ereport(WARNING,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("not all znodes in \"%s\" are shown", reading.path),
				 errdetail("%d are shown, %d more are not.", MAX_MEMBERS,
						   n - MAX_MEMBERS)));
	return Min(n, MAX_MEMBERS);
}

/* Has this instance left, or is it none? */
static bool
member_is_gone(const ZkReadNode *read)
{
	return read->gone || read->persistent;
}

/* What an instance's znode says; one that is too long is none of zklock's. */
static void
parse_member(Member *member, const ZkReadNode *read)
{
	member_parse(member, read->bytes,
				 read->size >= MEMBER_SIZE ? 0 : read->data_len);
	member->since = read->ctime;
}

/*
 * zk_fleet() returns setof record
 *
 * The instances that share the worker's ensemble and root, as ZooKeeper has
 * them, and their conflicts.
 *
 * Errors: those of zk_check_usable() and read_members().
 */
Datum
zk_fleet(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const ZkReadNode **nodes;
	Member	   *members;
	int			nread;
	int			n = 0;
	bool		local = false;

	zk_check_usable();
	zk_check_fleet(fcinfo->flinfo->fn_oid);
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, FLEET_COLUMNS);

	nread = read_members(-1, &nodes);
	members = palloc(nread * sizeof(Member));
	for (int i = 0; i < nread; i++)
		if (!member_is_gone(nodes[i]))
		{
			nodes[n] = nodes[i];
			parse_member(&members[n], nodes[n]);
			local |= nodes[n++]->ours;
		}
	if (!local)
		member_miss();
	member_judge(members, n);
	for (int i = 0; i < n; i++)
		put_member(rsinfo, &members[i], nodes[i]);
	return (Datum) 0;
}

/*
 * Append how an owner describes itself.  The last word is ignored, since it may
 * be cut.
 */
static void
describe_owner(StringInfo buf, const char *data, int len)
{
	char		text[NOTE_SIZE];
	Note		note;

	while (len == ZK_READ_MAX_DATA && len > 0 && data[len - 1] != ' ')
		len--;
	note_parse(&note, data, len);
	if (note.kind == NOTE_OF_INSTANCE)
		(void) note_write(&note, text);
	appendStringInfo(buf, "First in the queue: %s",
					 note.kind == NOTE_OF_INSTANCE ? text :
					 text_of_data(data, Min(len, NOTE_SIZE - 1)));
}

/* Append who that holds this lock waits for another one, by a text. */
static void
describe_waits(StringInfo buf, const char *path, const char *data, int len)
{
	DeadlockText text;

	if (!deadlock_parse("", data, len, &text))
		return;
	for (int i = 0; i < text.nedges; i++)
	{
		const DeadlockEdge *edge = &text.edges[i];
		const char *instance = text_of_string(edge->instance);

		if (strcmp(edge->from.name, path) != 0 || edge->to.name[0] != '/')
			continue;
		if (edge->from.pid != edge->to.pid)
			appendStringInfo(buf, "\nProcess %d of instance %s waits for process %d of the same instance.",
							 edge->from.pid, instance, edge->to.pid);
		appendStringInfo(buf, "\nProcess %d of instance %s waits for %s lock \"%s\" in ZooKeeper.",
						 edge->to.pid, instance,
						 edge->to.kind == DEADLOCK_SHARED ? "shared" :
						 "exclusive", path_lock_text(edge->to.name));
	}
	free(text.edges);
	free(text.memory);
}

/*
 * read_owner
 *		How the first contender for a lock describes itself, and what holders
 *		of the lock wait for, for the log.
 *
 * Appends a line for each; returns false, and appends nothing, if there is no
 * answer within the timeout.  The caller may have prepared to sleep on a
 * condition variable: its next sleep prepares again, and returns at once.
 *
 * Errors: 57014 canceled; out of memory.
 */
bool
read_owner(const ZkKey *key, int timeout_ms, StringInfo owner)
{
	char		path[ZNODE_PATH_SIZE];
	char		held[ZNODE_PATH_SIZE];
	Reading		reading;
	Queue		queue;
	QueueNode  *first;
	const ZkReadNode **texts;
	int			ntexts;

	read_begin_of_lock(&reading, key, path, &queue);
	reading.deadline = zk_now_ms() + timeout_ms;
	if (!read_queues(&reading, &queue, 1) || queue.n == 0)
		return false;
	first = queue.nodes;
	if (!read_queue_nodes(&reading, &first, 1) || first->read->data_len < 0)
		return false;
	describe_owner(owner, first->read->bytes, first->read->data_len);
	key_path(key, held);
	ntexts = read_texts(reading.deadline, &texts);
	for (int i = 0; i < ntexts; i++)
		describe_waits(owner, held, texts[i]->bytes, texts[i]->data_len);
	return true;
}

/* Read the instances of the fleet, and remember them. */
static void
read_instances(int timeout_ms)
{
	const ZkReadNode **nodes;
	int			nread = read_members(zk_now_ms() + timeout_ms, &nodes);
	ZkInstance *instances;
	int			n = 0;

	if (nread < 0)
		return;
	instances = palloc0(nread * sizeof(ZkInstance));
	for (int i = 0; i < nread; i++)
	{
		Member		member;

		parse_member(&member, nodes[i]);
		if (member_is_gone(nodes[i]) || !(member.words & MEMBER_ID))
			continue;
		strlcpy(instances[n].id, member.id, WORD_VALUE_SIZE);
		strlcpy(instances[n].cluster_name, member.cluster_name,
				WORD_VALUE_SIZE);
		strlcpy(instances[n].host, member.host, WORD_VALUE_SIZE);
		instances[n++].port = member.port;
	}
	instances_write(instances, n);
	pfree(instances);
}

/*
 * read_instance
 *		Which instance of the fleet has this id, by its name and address; false
 *		if none has, or it is not known within the timeout.
 *
 * Anybody can make up ids, so the instances are read again only when it is a
 * while since they were.
 *
 * Errors: 57014 canceled; out of memory.
 */
bool
read_instance(const char *id, int timeout_ms, StringInfo buf)
{
	ZkInstance	instance;
	bool		known;
	bool		found = instances_find(id, &instance, &known);

	if (!known)
	{
		read_instances(timeout_ms);
		found = instances_find(id, &instance, &known);
	}
	if (found)
		appendStringInfo(buf, "\"%s\" (host %s, port %d)",
						 text_of_string(instance.cluster_name),
						 text_of_string(instance.host), instance.port);
	return found;
}
