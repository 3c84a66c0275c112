/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Deadlocks between this cluster and others.
 *
 * core/detector.c has the protocol.  This room hands it the local edges, from
 * a scan (scan.c), and the answers to its operations; carries out what comes
 * out; and tells backends what has been decided.
 *
 * When to scan.  Not before a contender has stood behind others for
 * deadlock_timeout; then when that is so of another one, when a scan is asked
 * for, when it is heard that others stand behind a contender that would have
 * edges, and at least once in deadlock_timeout for as long as there is such a
 * contender or the detector has something to do.  A scan may take long on a
 * busy server, so that the worker pauses for some times as long after each.
 * Nothing is asked of ZooKeeper before a scan has found something.
 *
 * Sessions.  The detector goes by the first session; a note is written in the
 * session of its contender, and so in order with what the recipe writes there.
 *
 * Versions.  A note is written only if it has the version that we know, since
 * another client may have written a revocation over it.  If it has another one,
 * the recipe is made to read that first.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/detector.h"
#include "shared/clock.h"
#include "shared/deadlocks.h"
#include "shared/grant.h"
#include "shared/settings.h"
#include "storage/proc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "worker/contender.h"
#include "worker/deadlock.h"
#include "worker/notes.h"
#include "worker/scan.h"
#include "worker/session.h"
#include "worker/steps.h"
#include "worker/wake.h"

/* Scans take this part of the worker's time, at the most. */
#define SCAN_PART			20

/* How long to pause at the least after a scan, or a part of deadlock_timeout. */
#define SCAN_PAUSE_MS		20
#define SCAN_PAUSE_PART		4

/* Groups of ours have this bit, which those of slots come to late. */
#define GROUP_BIT			UINT32_C(0x80000000)

/* An operation of the detector that is on its way. */
typedef struct Request
{
	uint32		serial;			/* hash key, must be first */
	DetectorOpKind kind;
	int			session;
	int			parts;			/* ACT: answers that are missing */
	DetectorResult result;		/* ACT: so far */
	char		path[NOTE_VERTEX_SIZE];
} Request;

/* An operation that is answered without asking ZooKeeper. */
typedef struct Reply
{
	uint32		serial;
	DetectorResult result;
} Reply;

static struct
{
	Detector	detector;
	HTAB	   *requests;
	int			timeout_ms;		/* deadlock_timeout, as the detector knows it */
	uint32		last_group;
	uint32		scan;			/* that the detector asks for, or 0 */
	bool		soon;			/* something has been heard that calls for one */
	int64		scanned_ms;		/* zk_now_ms() of the latest scan; 0: none */
	int64		pause_ms;		/* the same, before which there is no other */
	int64		new_ms;			/* the same: when the next contender will have
								 * waited for long; 0: not known */
	int64		tick_ms;		/* the same: when the detector wants to wake */
}			deadlock;

static void step_detector(DetectorInput *in);

static DetectorResult
result_of(RecipeResult result)
{
	switch (result)
	{
		case RECIPE_OK:
			return DETECTOR_OK;
		case RECIPE_UNKNOWN:
			return DETECTOR_UNKNOWN;
		case RECIPE_NO_NODE:
			return DETECTOR_NO_NODE;
		case RECIPE_REFUSED:
			break;
	}
	return DETECTOR_REFUSED;
}

static Request *
new_request(const DetectorOp *op, int session)
{
	Request    *request = hash_search(deadlock.requests, &op->serial,
									  HASH_ENTER, NULL);

	request->kind = op->kind;
	request->session = session;
	request->parts = 1;
	request->result = DETECTOR_OK;
	strlcpy(request->path, op->path, sizeof(request->path));
	return request;
}

/* Submit an operation that is one request. */
static void
submit(const DetectorOp *op, RecipeOpKind kind)
{
	RecipeOp	recipe_op = {
		.kind = kind,
		.serial = op->serial,
		.data = op->data,
		.barrier = op->barrier
	};

	new_request(op, 0);
	session_submit(0, SESSION_DEADLOCK_OWNER, op->path, &recipe_op, 0);
}

/* Submit the write of a contender's note. */
static void
submit_note(const Contender *contender, const char *path, uint32 serial)
{
	RecipeOp	set = {
		.kind = RECIPE_OP_SET,
		.serial = serial,
		.data = notes_write(contender),
		.has_version = contender->note_version >= 0,
		.version = contender->note_version
	};

	session_submit(contender->session, SESSION_NOTES_OWNER, path, &set, 0);
}

/*
 * The note of our contender has another version than we know: read it, in case
 * it is a revocation, ahead of writing it whatever its version is.
 *
 * If the node is watched for a revocation, the watch has come ahead of the
 * answer that told us, and the read is on its way.
 */
static void
write_again(Contender *contender, const char *path, uint32 serial)
{
	RecipeInput input = {.event = RECIPE_WATCH_REVOCATION};

	if (!contender_is_revocable(contender))
		step(contender, false, &input);
	contender->note_version = -1;
	submit_note(contender, path, serial);
}

/* Our contender that owns its lock with this node, or NULL. */
static Contender *
find_owner(const char *path)
{
	Contender  *contender = contender_find_path(path);
	char		owned[NOTE_VERTEX_SIZE];

	return contender && contender_owned_path(contender, owned) ?
		contender : NULL;
}

/* Write a note; false if there is none to be written. */
static bool
set_waits(const DetectorOp *op)
{
	Contender  *contender = find_owner(op->path);

	if (contender == NULL)
		return false;
	notes_set_waits(contender, op->waits, op->nwaits);
	new_request(op, contender->session);
	if (contender->note_version < 0)
		write_again(contender, op->path, op->serial);
	else
		submit_note(contender, op->path, op->serial);
	return true;
}

/* Submit a part of an act. */
static void
submit_part(Request *request, RecipeOp *part, const char *path)
{
	part->serial = request->serial;
	request->parts++;
	session_submit(0, SESSION_DEADLOCK_OWNER, path, part,
				   GROUP_BIT | deadlock.last_group);
}

/* End a deadlock, if it is still there; false if it is not. */
static bool
act(const DetectorOp *op)
{
	Contender  *contender = find_owner(op->path);
	Request    *request;
	RecipeOp	set = {
		.kind = RECIPE_OP_SET,
		.has_version = true,
		.version = op->version
	};
	RecipeOp	create = {.kind = RECIPE_OP_CREATE,.data = ""};

	if (contender == NULL)
		return false;
	request = new_request(op, 0);
	request->parts = 0;
	deadlock.last_group = (deadlock.last_group + 1) & ~GROUP_BIT;
	for (int i = 0; i < op->nchecks; i++)
	{
		RecipeOp	check = {
			.kind = RECIPE_OP_CHECK,
			.has_version = op->checks[i].version >= 0,
			.version = op->checks[i].version
		};

		submit_part(request, &check, op->checks[i].path);
	}
	notes_set_waits(contender, op->waits, op->nwaits);
	set.data = notes_write(contender);
	submit_part(request, &set, op->path);
	submit_part(request, &create, op->verdict);
	return true;
}

/* Carry out an operation; false if it has to be answered with "no node". */
static bool
carry_out(const DetectorOp *op)
{
	switch (op->kind)
	{
		case DETECTOR_OP_LIST:
			submit(op, RECIPE_OP_CHILDREN);
			break;
		case DETECTOR_OP_LIST_WATCH:
			submit(op, RECIPE_OP_LIST);
			break;
		case DETECTOR_OP_GET:
			submit(op, RECIPE_OP_GET);
			break;
		case DETECTOR_OP_MKDIR:
			submit(op, RECIPE_OP_MKDIR);
			break;
		case DETECTOR_OP_CREATE:
			submit(op, RECIPE_OP_CREATE);
			break;
		case DETECTOR_OP_DELETE:
			submit(op, RECIPE_OP_DELETE);
			break;
		case DETECTOR_OP_SET_WAITS:
			return set_waits(op);
		case DETECTOR_OP_ACT:
			return act(op);
	}
	return true;
}

static ZnodeKind
kind_of(NoteWaitKind kind)
{
	return kind == NOTE_WAIT_SHARED ? ZNODE_READER :
		kind == NOTE_WAIT_PERMIT ? ZNODE_PERMIT : ZNODE_MUTEX;
}

static void
fill_member(ZkDeadlockMember *to, const WaitMember *from)
{
	char		path[NOTE_VERTEX_SIZE];

	memset(to, 0, sizeof(*to));
	strlcpy(to->cluster, from->cluster[0] != '\0' ? from->cluster : "unnamed",
			sizeof(to->cluster));
	waits_lock_of(&from->edge.wait, path);
	strlcpy(to->path, path, sizeof(to->path));
	to->kind = kind_of(from->edge.wait.kind);
	to->pid = from->edge.wait.wait.pid;
	to->holder_pid = from->edge.wait.hold.pid;
	to->local = contender_find_path(from->edge.wait.to) != NULL ||
		contender_find_path(from->edge.from) != NULL;
}

/*
 * Note a deadlock for backends to read, and return its number: the victim comes
 * first, and each is blocked by the next, as far as they are on one way.
 */
static uint32
note_deadlock(const WaitDeadlock *found)
{
	ZkDeadlock	result;
	int			n = Min(found->nmembers, ZK_DEADLOCK_MEMBERS);
	int		   *place = palloc(found->nmembers * sizeof(int));
	int		   *order = palloc(found->nmembers * sizeof(int));
	int			count = 0;

	for (int i = 0; i < found->nmembers; i++)
		place[i] = -1;
	for (int i = 0; place[i] < 0; i = found->members[i].blocked_by)
	{
		place[i] = count;
		order[count++] = i;
	}
	for (int i = 0; i < found->nmembers; i++)
		if (place[i] < 0)
		{
			place[i] = count;
			order[count++] = i;
		}
	memset(&result, 0, sizeof(result));
	result.nmembers = n;
	result.members = palloc(n * sizeof(ZkDeadlockMember));
	for (int i = 0; i < n; i++)
	{
		const WaitMember *member = &found->members[order[i]];

		fill_member(&result.members[i], member);
		if (place[member->blocked_by] < n)
			result.members[i].blocked_by =
				UINT64CONST(1) << place[member->blocked_by];
	}
	return deadlock_add(&result);
}

/* A deadlock has been ended that we are a part of. */
static void
hear_verdict(const DetectorVerdict *verdict)
{
	uint32		number = note_deadlock(verdict->deadlock);
	const NoteWait *wait = &verdict->deadlock->members[0].edge.wait;
	Contender  *contender;

	ereport(DEBUG1,
			(errmsg_internal("deadlock %u with other clusters, %d members, the victim is %s",
							 number, verdict->deadlock->nmembers,
							 verdict->ours ? "ours" : "another cluster's")));
	if (!verdict->ours)
		return;
	contender = contender_find_path(wait->to);
	if (contender == NULL ||
		!slot_end_wait(contender->slot, wait->wait.pid, wait->wait.since,
					   number))
		ereport(DEBUG1, (errmsg_internal("the victim does not wait any more")));
}

/* One step of the detector, and all that comes of it. */
static void
step_detector(DetectorInput *in)
{
	List	   *replies = NIL;

	for (;;)
	{
		DetectorOutput out;
		Reply	   *reply;

		in->now = zk_now_us();
		detector_step(&deadlock.detector, in, &out);
		for (int i = 0; i < out.nops; i++)
		{
			if (carry_out(&out.ops[i]))
				continue;
			reply = palloc(sizeof(Reply));
			reply->serial = out.ops[i].serial;
			reply->result = DETECTOR_NO_NODE;
			replies = lappend(replies, reply);
		}
		for (int i = 0; i < out.nverdicts; i++)
			hear_verdict(&out.verdicts[i]);
		if (out.scan != 0)
			deadlock.scan = out.scan;
		deadlock.tick_ms = out.wake_at == PG_INT64_MAX ? 0 :
			(out.wake_at + 999) / 1000;
		if (replies == NIL)
			return;
		reply = linitial(replies);
		replies = list_delete_first(replies);
		memset(in, 0, sizeof(*in));
		in->event = DETECTOR_DONE;
		in->serial = reply->serial;
		in->result = reply->result;
	}
}

static void
tell_detector(DetectorEvent event)
{
	DetectorInput in = {.event = event};

	step_detector(&in);
}

/* Notes of the worker before this one, or of another session, may have waits. */
static void
adopt_notes(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
	{
		DetectorInput in = {.event = DETECTOR_ADOPT};
		char		path[NOTE_VERTEX_SIZE];

		if (!list[i]->tells_waits || !contender_owned_path(list[i], path))
			continue;
		in.path = path;
		step_detector(&in);
	}
	pfree(list);
}

static void
forget_requests(void)
{
	HASHCTL		ctl;

	if (deadlock.requests)
		hash_destroy(deadlock.requests);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(uint32);
	ctl.entrysize = sizeof(Request);
	deadlock.requests = hash_create("zklock deadlock requests", 64, &ctl,
									HASH_ELEM | HASH_BLOBS);
}

/*
 * deadlock_attach
 *		Begin; "resumed" tells that there was a session ahead of this worker.
 *
 * To be called when the contenders have been taken over.  Errors: 53200 out of
 * memory.
 */
void
deadlock_attach(bool resumed)
{
	deadlock.timeout_ms = DeadlockTimeout;
	if (!detector_init(&deadlock.detector, (int64) DeadlockTimeout * 1000,
					   resumed))
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	forget_requests();
	adopt_notes();
}

/*
 * deadlock_set_connected
 *		The first session has a connection, again or for the first time; or has
 *		lost it.
 */
void
deadlock_set_connected(bool connected)
{
	tell_detector(connected ? DETECTOR_RESUMED : DETECTOR_SUSPENDED);
}

/*
 * deadlock_end_session
 *		A session is over, and all that was on its way in it.
 */
void
deadlock_end_session(int session)
{
	HASH_SEQ_STATUS scan;
	Request    *request;
	List	   *serials = NIL;
	ListCell   *cell;

	if (session == 0)
	{
		forget_requests();
		tell_detector(DETECTOR_EXPIRED);
		adopt_notes();
		return;
	}
	hash_seq_init(&scan, deadlock.requests);
	while ((request = hash_seq_search(&scan)) != NULL)
		if (request->session == session)
			serials = lappend_int(serials, (int) request->serial);
	foreach(cell, serials)
	{
		DetectorInput in = {
			.event = DETECTOR_DONE,
			.serial = (uint32) lfirst_int(cell),
			.result = DETECTOR_NO_NODE
		};

		hash_search(deadlock.requests, &in.serial, HASH_REMOVE, NULL);
		step_detector(&in);
	}
}

/*
 * Take one answer of an act.  That a part was not tried means nothing: another
 * one tells why.
 */
static void
take_part(Request *request, const RecipeInput *in)
{
	request->parts--;
	if (session_error_is_untried(in->error))
		return;
	if (in->result == RECIPE_UNKNOWN && request->result == DETECTOR_OK)
		request->result = DETECTOR_UNKNOWN;
	else if (in->result == RECIPE_NO_NODE || in->result == RECIPE_REFUSED)
		request->result = DETECTOR_NO_NODE;
	if (in->event == RECIPE_SET_DONE && in->result == RECIPE_OK)
	{
		Contender  *contender = find_owner(request->path);

		if (contender)
			contender->note_version = in->version;
	}
}

/* The note of a contender has been written, or not; false: it goes again. */
static bool
note_written(const Request *request, const RecipeInput *in)
{
	Contender  *contender = find_owner(request->path);

	if (contender == NULL)
		return true;
	if (in->result == RECIPE_OK)
		contender->note_version = in->version;
	else if (in->result == RECIPE_UNKNOWN)
		contender->note_version = -1;
	else if (session_error_is_bad_version(in->error))
	{
		write_again(contender, request->path, request->serial);
		return false;
	}
	return true;
}

/*
 * deadlock_event
 *		The server has answered an operation of ours, or the watch has come.
 */
void
deadlock_event(const RecipeInput *in)
{
	DetectorInput input = {
		.event = DETECTOR_DONE,
		.serial = in->serial,
		.result = result_of(in->result),
		.children = in->children,
		.nchildren = in->nchildren,
		.data = in->data,
		.len = in->data_len,
		.version = in->version,
		.ephemeral = recipe_is_ephemeral(in),
		.ours = in->ours,
		.node = in->node
	};
	Request    *request;

	if (in->event == RECIPE_NODE_DELETED || in->event == RECIPE_NODE_TOUCHED)
	{
		input.event = DETECTOR_ROOM_CHANGED;
		step_detector(&input);
		return;
	}
	request = hash_search(deadlock.requests, &in->serial, HASH_FIND, NULL);
	if (request == NULL)
		return;					/* of a session that has ended */
	if (request->kind == DETECTOR_OP_ACT)
	{
		take_part(request, in);
		if (request->parts > 0)
			return;
		input.result = request->result;
	}
	else if (request->kind == DETECTOR_OP_SET_WAITS &&
			 !note_written(request, in))
		return;
	hash_search(deadlock.requests, &in->serial, HASH_REMOVE, NULL);
	step_detector(&input);
}

/*
 * Have those contenders hear if others stand behind them that would have edges
 * then.
 */
static void
watch_queues(const Scan *scan)
{
	ListCell   *cell;

	foreach(cell, scan->unknown)
	{
		Contender  *contender = lfirst(cell);

		contender->awaited = true;
		if (!contender_watches_queue(contender))
			step_queue_behind(contender, RECIPE_WATCH_QUEUE);
	}
}

static void
run_scan(int64 now_ms)
{
	DetectorInput in = {.event = DETECTOR_EDGES,.scan = deadlock.scan};
	Scan		scan = {0};
	int64		begun_us = zk_now_us();
	int64		took_us;

	deadlock.scan = 0;
	deadlock.soon = false;
	if (zklock_deadlock_check)
		scan_run(&scan, now_ms, deadlock.timeout_ms);
	took_us = zk_now_us() - begun_us;
	deadlock.scanned_ms = now_ms;
	deadlock.pause_ms = now_ms + took_us * SCAN_PART / 1000 +
		Min(SCAN_PAUSE_MS, deadlock.timeout_ms / SCAN_PAUSE_PART);
	deadlock.new_ms = 0;
	in.edges = scan.edges;
	in.nedges = scan.nedges;
	watch_queues(&scan);
	step_detector(&in);
}

/* When to scan next, as of zk_now_ms(), or 0. */
static int64
next_scan(int64 now_ms)
{
	const Contender *first = contender_first_queued();
	int64		timeout_ms = deadlock.timeout_ms;
	int64		at_ms = 0;

	if (deadlock.scan != 0)
		return now_ms;			/* others wait for it */
	if (!detector_is_idle(&deadlock.detector))
		at_ms = deadlock.scanned_ms + timeout_ms;
	if (first && zklock_deadlock_check)
	{
		int64		due_ms = first->queued_since_ms + timeout_ms;

		if (due_ms <= deadlock.scanned_ms)
		{
			/* it was there already: look again, and for those that are new */
			due_ms = deadlock.scanned_ms + timeout_ms;
			if (deadlock.new_ms == 0)
				deadlock.new_ms =
					contender_queued_after(deadlock.scanned_ms - timeout_ms);
			if (deadlock.new_ms != 0)
				due_ms = Min(due_ms, deadlock.new_ms + timeout_ms);
		}
		at_ms = at_ms == 0 ? due_ms : Min(at_ms, due_ms);
	}
	if (at_ms != 0 && deadlock.soon)
		at_ms = now_ms;
	return at_ms == 0 ? 0 : Max(at_ms, deadlock.pause_ms);
}

/*
 * deadlock_run
 *		Do what is due, and have the loop come back in time.
 */
void
deadlock_run(void)
{
	int64		now_ms = zk_now_ms();
	int64		at_ms;

	if (deadlock.timeout_ms != DeadlockTimeout)
	{
		deadlock.timeout_ms = DeadlockTimeout;
		deadlock.new_ms = 0;
		detector_set_timeout(&deadlock.detector,
							 (int64) DeadlockTimeout * 1000);
	}
	if (wake_time(WAKE_SCAN) != 0)
		deadlock.soon = true;
	wake_set(WAKE_SCAN, 0);
	at_ms = next_scan(now_ms);
	if (at_ms != 0 && at_ms <= now_ms)
	{
		run_scan(now_ms);
		at_ms = next_scan(now_ms);
	}
	if (deadlock.tick_ms != 0 && deadlock.tick_ms <= now_ms)
		tell_detector(DETECTOR_TICK);
	if (deadlock.tick_ms != 0)
		at_ms = at_ms == 0 ? deadlock.tick_ms : Min(at_ms, deadlock.tick_ms);
	wake_set(WAKE_DEADLOCK, at_ms);
}
