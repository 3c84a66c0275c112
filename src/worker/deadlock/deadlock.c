/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Deadlocks between this instance and others.
 *
 * core/deadlock/detector.c has the protocol.  This file passes the local
 * edges, which a scan finds (scan.c), and the answers to the detector's
 * operations to it; carries out its output; and ends the waits of victims.
 *
 * When to scan.  The first scan is due when a contender has been queued behind
 * others for deadlock_timeout.  From then on a scan is due
 *
 *	- when another contender has been queued for as long,
 *	- when the detector requests it,
 *	- when others have come behind a contender that would have edges,
 *	- and once in deadlock_timeout, as long as there is such a contender or the
 *	  detector is not idle.
 *
 * Without any contender that waits, a scan is due once in deadlock_timeout if
 * sessions may wait for foreign servers, or work for other instances
 * (foreign.c).
 *
 * A scan may take long on a busy server, so the worker pauses after each for
 * as long, and for a multiple of the scan's CPU time.  (A multiple of its
 * duration would let deadlocks last: in a scan the worker may be kept from the
 * processor, or from a lock.)  Nothing is sent to ZooKeeper before a scan has
 * found something.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/deadlock/detector.h"
#include "core/mutation.h"
#include "shared/clock.h"
#include "shared/deadlocks.h"
#include "shared/grant.h"
#include "shared/settings.h"
#include "storage/proc.h"
#include "worker/deadlock/ages_private.h"
#include "worker/deadlock/blockers_private.h"
#include "worker/deadlock/deadlock.h"
#include "worker/deadlock/detector_io_private.h"
#include "worker/deadlock/foreign_private.h"
#include "worker/deadlock/scan_private.h"
#include "worker/lock/contender.h"
#include "worker/wake.h"
#include "worker/zookeeper/session.h"

/* After a scan the worker pauses for this multiple of its CPU time, ... */
#define SCAN_CPU_FACTOR		20

/* ... and for this long, or this part of deadlock_timeout if that is less. */
#define SCAN_PAUSE_MS		20
#define SCAN_PAUSE_PART		4

/* How long a backend may take to requeue in tier 1 before the next scan. */
#define REQUEUE_TIER1_MS	20

static struct
{
	Detector	detector;
	int			timeout_ms;		/* deadlock_timeout, as passed to the
								 * detector */
	bool		to_adopt;		/* some note is yet to be adopted */
	uint32		scan;			/* requested by the detector, or 0 */
	bool		for_sessions;	/* a scan is due because of sessions that are
								 * named, or that foreign servers concern */
	bool		for_event;		/* a scan is due because of an event, if there
								 * is anything to be scanned */

	/* as of zk_now_ms() */
	int64		scanned_ms;		/* the latest scan; 0: none */
	int64		paused_until_ms;	/* no other scan before */
	int64		new_ms;			/* since when the first contender is queued
								 * that did not count in that scan; 0: not
								 * known */
	int64		tick_ms;		/* when the detector is to wake up; 0: never */
	int64		sampled_ms;		/* the latest blockers_sample() */
	int64		foreign_ms;		/* the latest foreign_may_matter() */
}			deadlock;

static void
fill_member(ZkDeadlockMember *to, const WaitMember *from, bool local)
{
	char		path[NOTE_VERTEX_SIZE];

	memset(to, 0, sizeof(*to));
	strlcpy(to->cluster_name, from->cluster_name[0] != '\0' ? from->cluster_name : "unnamed",
			sizeof(to->cluster_name));
	note_lock_of(&from->edge.wait, path);
	strlcpy(to->path, path, sizeof(to->path));
	to->kind = note_wait_kind(&from->edge.wait);
	to->pid = from->edge.wait.wait.pid;
	to->holder_pid = from->edge.wait.hold.pid;
	to->local = local;
}

/* Does a member hold a permit of the semaphore that another one waits for? */
static bool
holds_permit(const WaitMember *member, const NoteWait *wait)
{
	char		permits[NOTE_VERTEX_SIZE];
	size_t		len;

	if (wait->kind != NOTE_WAIT_PERMIT || !note_queue_of(wait, permits))
		return false;
	len = strlen(permits);
	return strncmp(member->edge.from, permits, len) == 0 &&
		member->edge.from[len] == '/';
}

/* The members that block the one at "place", as bits by place in "order". */
static uint64
blocking_members(const WaitDeadlock *found, const int *order, int n, int place)
{
	const WaitMember *member = &found->members[order[place]];
	uint64		blockers = 0;

	for (int i = 0; i < n; i++)
	{
		const WaitMember *other = &found->members[order[i]];
		bool		is_first = true;

		/* a wait for any of several locks is a member for each of them */
		for (int j = 0; j < i; j++)
			is_first &= strcmp(found->members[order[j]].edge.from,
							   other->edge.from) != 0;
		if (member->edge.wait.kind == NOTE_WAIT_PERMIT ?
			is_first && holds_permit(other, &member->edge.wait) :
			order[i] == member->blocked_by)
			blockers |= UINT64CONST(1) << i;
	}
	return blockers;
}

/*
 * Note a deadlock for backends to read, and return its number.  The victim
 * comes first, and each member is blocked by the next, as far as they are on
 * the way from the victim back to it; the others follow.
 */
static uint32
note_deadlock(const DetectorVerdict *verdict)
{
	const WaitDeadlock *found = verdict->deadlock;
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
		fill_member(&result.members[i], &found->members[order[i]],
					(verdict->mine >> order[i] & 1) != 0);
		result.members[i].blocked_by = blocking_members(found, order, n, i);
	}
	return deadlock_add(&result);
}

/* The wait of ours that is to end, or NULL. */
static const NoteWait *
wait_to_end(const DetectorVerdict *verdict)
{
	const WaitDeadlock *deadlock = verdict->deadlock;

	if (verdict->ours)
		return &deadlock->members[0].edge.wait;
	for (int i = 1; i < deadlock->nmembers &&
		 ZK_MUTATED(ZK_DEADLOCK_SECOND_VICTIM); i++)
		if (contender_find_path(deadlock->members[i].edge.wait.to))
			return &deadlock->members[i].edge.wait;
	return NULL;
}

/*
 * A deadlock with a member of ours has been ended: note it and, if the victim
 * is ours, end its wait.
 *
 * If our victim only requeues in tier 1, nothing is noted, and the next scan
 * finds what has come to its place.
 *
 * The act is logged before the victim can notice.
 */
static void
report_verdict(const DetectorVerdict *verdict)
{
	const NoteWait *wait = wait_to_end(verdict);
	Contender  *contender;
	uint32		number = ZK_VICTIM_REQUEUES;

	if (verdict->requeues)
		wake_set(WAKE_SCAN, zk_now_ms() + REQUEUE_TIER1_MS);
	else
	{
		number = note_deadlock(verdict);
		ereport(DEBUG1,
				(errmsg_internal("deadlock %u with other instances, %d members, the victim is %s",
								 number, verdict->deadlock->nmembers,
								 verdict->ours ? "ours" : "another instance's")));
	}
	if (wait == NULL)
		return;
	ereport(DEBUG1,
			(errmsg_internal("act 0x%llx: process %d %s",
							 (unsigned long long) verdict->zxid,
							 wait->wait.pid,
							 verdict->requeues ? "requeues in tier 1" : "fails")));
	contender = contender_find_path(wait->to);
	if (contender == NULL ||
		!slot_end_wait(contender->slot, wait->wait.pid, wait->wait.since,
					   number))
		ereport(DEBUG1, (errmsg_internal("the victim does not wait any more")));
}

/* Take a step of the detector, and carry it out. */
static void
step_detector(DetectorInput *in)
{
	List	   *not_sent = NIL; /* serials */

	for (;;)
	{
		DetectorOutput out;

		in->now = zk_now_us();
		detector_step(&deadlock.detector, in, &out);
		for (int i = 0; i < out.nops; i++)
		{
			if (!detector_io_submit(&out.ops[i]))
				not_sent = lappend_int(not_sent,
									   (int) out.ops[i].request.serial);
		}
		for (int i = 0; i < out.nverdicts; i++)
			report_verdict(&out.verdicts[i]);
		if (out.scan != 0)
			deadlock.scan = out.scan;
		deadlock.for_sessions |= out.named;
		deadlock.tick_ms = out.wake_at == PG_INT64_MAX ? 0 :
			(out.wake_at + 999) / 1000;
		if (not_sent == NIL)
			return;
		memset(in, 0, sizeof(*in));
		in->event = DETECTOR_DONE;
		in->answer.serial = (uint32) linitial_int(not_sent);
		in->answer.result = REQUEST_NO_NODE;
		not_sent = list_delete_first(not_sent);
	}
}

static void
pass_event(DetectorEvent event)
{
	DetectorInput in = {.event = event};

	step_detector(&in);
}

/* Handle the answer to a request of ours, or a watch. */
static void
on_answer(void *data pg_attribute_unused(), const RequestAnswer *in)
{
	DetectorInput input;

	if (detector_io_answer(in, &input))
		step_detector(&input);
}

/*
 * Adopt notes of the previous worker that may have waits.  A contender whose
 * node must be searched for first is adopted later.
 */
static void
adopt_notes(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	deadlock.to_adopt = false;
	for (int i = 0; i < n; i++)
	{
		DetectorInput in = {.event = DETECTOR_ADOPT};
		char		path[NOTE_VERTEX_SIZE];

		if (!list[i]->may_have_waits || list[i]->adopted)
			continue;
		if (!contender_owned_path(list[i], path))
		{
			if (list[i]->now.reclaims)
				deadlock.to_adopt = true;
			continue;
		}
		list[i]->adopted = true;
		in.path = path;
		step_detector(&in);
	}
	pfree(list);
}

/* The previous worker may have left znodes behind, if it had a session. */
static void
sweep_waits_dirs(void)
{
	char		path[ZNODE_PATH_SIZE];

	for (int i = 0; detector_io_read_waits_dir(i, path); i++)
	{
		DetectorInput in = {.event = DETECTOR_SWEEP,.path = path};

		step_detector(&in);
	}
}

/*
 * deadlock_attach
 *		Begin; "resumed": there was a session before this worker.
 *
 * To be called after the contenders have been taken over.
 */
void
deadlock_attach(bool resumed)
{
	deadlock.timeout_ms = DeadlockTimeout;
	detector_init(&deadlock.detector, (int64) DeadlockTimeout * 1000, resumed);
	detector_io_attach(on_answer);
	sweep_waits_dirs();
	adopt_notes();
}

/* The session has got a connection, or lost it. */
void
deadlock_set_connected(bool connected)
{
	pass_event(connected ? DETECTOR_RESUMED : DETECTOR_SUSPENDED);
}

/* The session is over, with all its requests. */
void
deadlock_end_session(void)
{
	detector_io_forget();
	detector_io_forget_waits_dirs();
	pass_event(DETECTOR_EXPIRED);
}

/* Have contenders that would have edges watch for others behind them. */
static void
watch_queues(const Scan *scan)
{
	ListCell   *cell;

	foreach(cell, scan->unknown)
	{
		Contender  *contender = lfirst(cell);

		contender->awaited = true;
		if (!contender->now.watches_queue)
			step_queue_behind(contender, RECIPE_WATCH_QUEUE);
	}
}

/* The sessions that others name: a list of vertices. */
static List *
list_named(void)
{
	List	   *named = NIL;
	const char *dir;
	const char *vertex;

	for (int i = 0;
		 (vertex = detector_named(&deadlock.detector, i, &dir)) != NULL; i++)
		named = lappend(named, pstrdup(vertex));
	return named;
}

static void
run_scan(int64 now_ms)
{
	char		dir[NOTE_VERTEX_SIZE];
	const char *dirs[] = {dir};
	DetectorInput in = {.event = DETECTOR_EDGES,.scan = deadlock.scan};
	Scan		scan = {0};
	int64		cpu_us = zk_cpu_us();
	int64		end_ms;

	deadlock.scan = 0;
	deadlock.for_event = false;
	deadlock.for_sessions = false;
	if (zklock_deadlock_check)
		scan_run(&scan, now_ms, deadlock.timeout_ms, list_named(),
				 &deadlock.detector);
	else
		foreign_skip();
	cpu_us = zk_cpu_us() - cpu_us;
	end_ms = zk_now_ms();
	deadlock.scanned_ms = now_ms;
	deadlock.paused_until_ms = end_ms + (end_ms - now_ms) +
		cpu_us * SCAN_CPU_FACTOR / 1000 +
		Min(SCAN_PAUSE_MS, deadlock.timeout_ms / SCAN_PAUSE_PART);
	deadlock.new_ms = 0;
	in.edges = scan.edges;
	in.nedges = scan.nedges;
	in.dirs = dirs;
	in.ndirs = scan.foreign && foreign_waits_dir(dir) ? 1 : 0;
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
		return now_ms;			/* a probe waits for the result */
	if (!detector_is_idle(&deadlock.detector))
		at_ms = deadlock.scanned_ms + timeout_ms;
	if (first && zklock_deadlock_check)
	{
		int64		due_ms = first->queued_since_ms + timeout_ms;

		if (due_ms <= deadlock.scanned_ms)
		{
			/* it counted in the latest scan: repeat that, also for others */
			due_ms = deadlock.scanned_ms + timeout_ms;
			if (deadlock.new_ms == 0)
				deadlock.new_ms =
					contender_queued_after(deadlock.scanned_ms - timeout_ms);
			if (deadlock.new_ms != 0)
				due_ms = Min(due_ms, deadlock.new_ms + timeout_ms);
		}
		at_ms = zk_earlier(at_ms, due_ms);
	}
	if (deadlock.for_sessions || (at_ms != 0 && deadlock.for_event))
		at_ms = now_ms;
	return at_ms == 0 ? 0 : Max(at_ms, deadlock.paused_until_ms);
}

/*
 * Sample waits in the lock manager before a scan needs their age.  Returns
 * when to do so again, or 0.
 */
static int64
sample_waits(int64 now_ms)
{
	int64		pause_ms = Max(deadlock.timeout_ms / AGES_SAMPLES, 1);

	if (!zklock_deadlock_check || contender_first_queued() == NULL)
		return 0;
	if (deadlock.sampled_ms + pause_ms <= now_ms)
	{
		deadlock.sampled_ms = now_ms;
		(void) blockers_sample((int64) deadlock.timeout_ms * 1000);
	}
	return deadlock.sampled_ms + pause_ms;
}

/*
 * Have sessions scanned that use foreign servers, or work for other instances.
 * Returns when to check again, or 0.
 *
 * While none of our contenders waits, a session that keeps one may wait for a
 * foreign server, or for a session that works for another instance, or work
 * for one itself.  And even if this instance has no contender, deadlocks may
 * lead through sessions of it that work for other instances and for which
 * others work.
 */
static int64
check_foreign(int64 now_ms)
{
	if (!zklock_deadlock_check ||
		(contenders_count() == 0 && !foreign_is_set()))
		return 0;
	if (deadlock.foreign_ms + deadlock.timeout_ms <= now_ms)
	{
		deadlock.foreign_ms = now_ms;
		if (deadlock.scanned_ms + deadlock.timeout_ms <= now_ms &&
			foreign_may_matter((int64) deadlock.timeout_ms * 1000))
			deadlock.for_sessions = true;
	}
	return deadlock.foreign_ms + deadlock.timeout_ms;
}

/* Do what is due, and schedule the next call. */
void
deadlock_run(void)
{
	int64		now_ms = zk_now_ms();
	int64		again_ms;
	int64		at_ms;

	if (deadlock.timeout_ms != DeadlockTimeout)
	{
		deadlock.timeout_ms = DeadlockTimeout;
		deadlock.new_ms = 0;
		detector_set_timeout(&deadlock.detector,
							 (int64) DeadlockTimeout * 1000);
	}
	if (deadlock.to_adopt)
		adopt_notes();
	if (detector_is_idle(&deadlock.detector))
		detector_io_forget_waits_dirs();
	if (wake_is_due(WAKE_SCAN))
	{
		deadlock.for_event = true;
		wake_set(WAKE_SCAN, 0);
	}
	again_ms = sample_waits(now_ms);
	again_ms = zk_earlier(again_ms, check_foreign(now_ms));
	at_ms = next_scan(now_ms);
	if (at_ms != 0 && at_ms <= now_ms)
	{
		run_scan(now_ms);
		at_ms = next_scan(now_ms);
	}
	if (deadlock.tick_ms != 0 && deadlock.tick_ms <= now_ms)
		pass_event(DETECTOR_TICK);
	wake_set(WAKE_DEADLOCK,
			 zk_earlier(zk_earlier(at_ms, again_ms), deadlock.tick_ms));
}
