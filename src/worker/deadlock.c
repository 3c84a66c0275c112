/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		Deadlocks between this instance and others.
 *
 * core/deadlock.c has the protocol.  This file passes scans (waits.c), ends of
 * waits and holds, and the answers of ZooKeeper to it; carries out its
 * requests; and ends the waits of victims.
 *
 * When to scan.  The first scan is due when a contender has been queued behind
 * others for deadlock_timeout.  From then on one is due
 *
 *	- when another wait has lasted as long,
 *	- when core/deadlock.c wants one,
 *	- when others have come behind a contender that would have edges,
 *	- and once in deadlock_timeout, as long as there is such a contender.
 *
 * After a scan the worker pauses for as long as it took, so that answers are
 * taken, if it was kept from the processor or from a lock.
 *
 * Without any contender that waits, a scan is due once in deadlock_timeout if
 * sessions may wait for foreign servers, or work for other instances
 * (foreign.c).  Nothing is sent before a scan has found edges, but by a worker
 * that resumes a session, which may have left something.
 *
 * Order.  A confirm must have gone when the contender of one of its edges goes,
 * and must not come behind its own delete.  What a batch that fails contains
 * is sent again, perhaps behind the rest of its flight.  So our creates and
 * deletes are in no batch: flight.c sends them in the order of submission,
 * before it sends the deletes of contenders.  On a new connection, what a
 * former worker may have left is deleted before anything else is sent.
 *
 * Reads.  Any client may have written what is read, so each read begins with a
 * stat: no text is read that is not ephemeral or is longer than ours are, and
 * no directory with many more children than there can be instances, for which
 * all lock traffic would wait.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/deadlock.h"
#include "core/mutation.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/deadlocks.h"
#include "shared/grant.h"
#include "shared/settings.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "worker/contender.h"
#include "worker/deadlock.h"
#include "worker/foreign.h"
#include "worker/waits.h"
#include "worker/wake.h"
#include "worker/zookeeper/session.h"

/* Our groups have this bit, which those of fleet.c take long to reach. */
#define GROUP_BIT			UINT32_C(0x80000000)

/* A directory with more children is not listed; see DEADLOCK_CHILDREN, too. */
#define MAX_CHILDREN		2000

/* How long a backend may take to requeue in tier 1 before the next scan. */
#define REQUEUE_TIER1_MS	20

/* How long to wait until queues are listed before new edges are published. */
#define LISTING_MS			200

/* A read that is out. */
typedef struct Reading
{
	uint32		serial;			/* hash key, must be first */
	RequestKind kind;
	char		node[ZNODE_MAX_NAME + 1];	/* of GET */
} Reading;

static struct
{
	Deadlocks  *core;			/* NULL: there was nothing to send yet */
	char		directory[ZNODE_PATH_SIZE]; /* %waits */
	int			timeout_ms;		/* deadlock_timeout, as passed to it */
	bool		connected;
	bool		lost;			/* an answer is, with a connection */
	bool		checks;			/* zklock.deadlock_check */
	bool		for_event;		/* a scan is due because of an event, if there
								 * is anything to be scanned */
	bool		for_sessions;	/* one is due because of foreign servers */

	uint32		owner;			/* of our requests */
	HTAB	   *reading;
	int64		set_zxid;		/* of the latest write of a text */
	int64		act_zxid;		/* of the act whose answer is handled, or 0 */

	/* as of zk_now_ms(); 0: none */
	int64		scanned_ms;		/* the latest scan */
	int64		paused_until_ms;	/* no other one before */
	int64		new_ms;			/* since when the first contender is queued
								 * that did not count in that scan */
	int64		next_ms;		/* when another wait counts */
	int64		foreign_ms;		/* the latest foreign_may_matter() */
	int64		listing_ms;		/* since when queues are being listed */
}			deadlock;

static void on_answer(void *data, const RequestAnswer *in);

/* Answers to requests of before are not ours any more. */
static void
renew_owners(void)
{
	HASHCTL		ctl;

	if (deadlock.owner != 0)
	{
		session_remove_owner(deadlock.owner);
		hash_destroy(deadlock.reading);
	}
	deadlock.owner = session_add_owner(on_answer, NULL);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(uint32);
	ctl.entrysize = sizeof(Reading);
	deadlock.reading = hash_create("zklock deadlock reads", 16, &ctl,
								   HASH_ELEM | HASH_BLOBS);
}

/* Send a read: first a stat, which tells whether there is much to read. */
static void
submit_read(const Request *request)
{
	Reading    *reading = hash_search(deadlock.reading, &request->serial,
									  HASH_ENTER, NULL);
	Request		stat = {
		.kind = REQUEST_STAT,
		.serial = request->serial,
		.path = request->path,
		.node = request->node
	};

	reading->kind = request->kind;
	strlcpy(reading->node, request->node ? request->node : "",
			sizeof(reading->node));
	session_submit(deadlock.owner, &stat);
}

static void
submit(const Request *request)
{
	Request		copy = *request;

	ereport(DEBUG3,
			(errmsg_internal("deadlock request %u: kind %d, %s, group %u",
							 request->serial, request->kind,
							 request->node ? request->node : request->path,
							 request->group)));
	if (request->kind == REQUEST_GET || request->kind == REQUEST_CHILDREN ||
		request->kind == REQUEST_SEARCH || request->kind == REQUEST_LIST)
	{
		submit_read(request);
		return;
	}
	if (copy.group != 0)
		copy.group |= GROUP_BIT;
	else
		copy.alone = true;
	session_submit(deadlock.owner, &copy);
}

static void
fill_member(ZkDeadlockMember *to, const DeadlockEdge *from)
{
	memset(to, 0, sizeof(*to));
	strlcpy(to->cluster_name, from->instance[0] != '\0' ? from->instance :
			"unnamed", sizeof(to->cluster_name));
	strlcpy(to->path, from->to.name, sizeof(to->path));
	to->kind = from->to.kind;
	to->pid = from->to.pid;
	to->holder_pid = from->from.pid;
	to->local = strcmp(from->teller, claims_instance()) == 0;
}

/* Note a deadlock for backends to read, and return its number. */
static uint32
note_deadlock(const DeadlockOutcome *outcome)
{
	ZkDeadlockMember members[ZK_DEADLOCK_MEMBERS];
	ZkDeadlock	result = {.members = members};

	result.nmembers = Min(outcome->nedges, ZK_DEADLOCK_MEMBERS);
	for (int i = 0; i < result.nmembers; i++)
		fill_member(&members[i],
					outcome->edges[(outcome->victim + i) % outcome->nedges]);
	return deadlock_add(&result);
}

/* End a wait of ours. */
static void
end_wait(const DeadlockEdge *victim, uint32 number)
{
	ereport(DEBUG1,
			(errmsg_internal("act 0x%llx: process %d %s",
							 (unsigned long long) deadlock.act_zxid,
							 victim->to.pid, number == ZK_VICTIM_REQUEUES ?
							 "requeues in tier 1" : "fails")));
	if (!slots_end_wait(victim->to.name, victim->to.pid,
						(int64) victim->to.generation, number))
		ereport(DEBUG1, (errmsg_internal("the victim does not wait any more")));
}

/*
 * A deadlock with a member of ours has been ended: note it and, if the victim
 * is ours, end its wait.
 *
 * If the victim only requeues in tier 1, nothing is noted, and the next scan
 * finds what has come to its place.  All is logged before the victim can
 * notice.
 */
static void
report(const DeadlockOutcome *outcome)
{
	uint32		number = ZK_VICTIM_REQUEUES;

	if (outcome->requeue)
		wake_set(WAKE_SCAN, zk_now_ms() + REQUEUE_TIER1_MS);
	else
	{
		number = note_deadlock(outcome);
		ereport(DEBUG1,
				(errmsg_internal("deadlock %u with other instances, %d members, the victim is %s",
								 number, outcome->nedges, outcome->verdict ?
								 "ours" : "another instance's")));
	}
	if (outcome->verdict)
		end_wait(outcome->edges[outcome->victim], number);
	for (int i = 0; i < outcome->nedges &&
		 ZK_MUTATED(ZK_CYCLE_SECOND_VICTIM); i++)
		if (i != outcome->victim)
			end_wait(outcome->edges[i], number);
}

/* What the server's log says once. */
static void
log_complaint(DeadlockComplaint complaint)
{
	switch (complaint)
	{
		case DEADLOCK_NO_COMPLAINT:
			break;
		case DEADLOCK_TEXT_FULL:
			ereport(LOG,
					(errmsg("too many waits to search for all deadlocks with other servers"),
					 errdetail("The oldest ones are published, in %d znodes of %d bytes.",
							   DEADLOCK_TEXTS, DEADLOCK_TEXT_BYTES)));
			break;
		case DEADLOCK_NOT_READ:
			ereport(LOG,
					(errmsg("too much in \"%s\" to search for deadlocks",
							deadlock.directory),
					 errdetail("Deadlocks with other servers may last until there is less.")));
			break;
		case DEADLOCK_REFUSED:
			ereport(LOG,
					(errmsg("ZooKeeper refused a request for \"%s\"",
							deadlock.directory),
					 errdetail("Deadlocks with other servers are not found.")));
			break;
	}
}

/* Carry out what core/deadlock.c has to send and to report. */
static void
carry_out(void)
{
	Request		request;
	DeadlockOutcome outcome;

	while (deadlock_request(deadlock.core, &request))
		submit(&request);
	while (deadlock_outcome(deadlock.core, &outcome))
		report(&outcome);
	log_complaint(deadlock_complaint(deadlock.core));
	session_let_first(deadlock_is_loading(deadlock.core) ? deadlock.owner : 0);
}

/*
 * Handle the stat that precedes a read.  Returns true if the read has been
 * sent; else *answer is what is passed on.
 */
static bool
read_on(const Reading *reading, const RequestAnswer *stat,
		RequestAnswer *answer)
{
	Request		request = {
		.kind = reading->kind,
		.serial = reading->serial,
		.path = deadlock.directory,
		.brief = true
	};
	bool		lists = reading->kind != REQUEST_GET;

	if (stat->result == REQUEST_UNKNOWN || stat->result == REQUEST_REFUSED)
		return false;
	if (stat->result == REQUEST_OK && lists &&
		stat->child_count > MAX_CHILDREN)
	{
		answer->result = REQUEST_REFUSED;
		log_complaint(DEADLOCK_NOT_READ);
		return false;
	}
	if (!lists && stat->result == REQUEST_OK && !request_is_ephemeral(stat))
		answer->result = REQUEST_NO_NODE;
	else if (!lists && stat->size > DEADLOCK_TEXT_BYTES)
		answer->result = REQUEST_REFUSED;
	if (!lists && answer->result != REQUEST_OK)
		return false;
	request.node = lists ? NULL : reading->node;
	session_submit(deadlock.owner, &request);
	return true;
}

/* Handle the answer to a request of ours, or a watch. */
static void
on_answer(void *data pg_attribute_unused(), const RequestAnswer *in)
{
	RequestAnswer answer = *in;
	Reading    *reading;

	if (deadlock.core == NULL)
		return;
	if (in->event == REQUEST_DONE)
	{
		reading = hash_search(deadlock.reading, &in->serial, HASH_FIND, NULL);
		if (reading && in->kind == REQUEST_STAT &&
			read_on(reading, in, &answer))
			return;
		if (reading)
			hash_search(deadlock.reading, &in->serial, HASH_REMOVE, NULL);

		/* another part of the group has failed */
		if (in->result == REQUEST_UNKNOWN && session_error_is_untried(in->error))
			answer.result = REQUEST_REFUSED;
		deadlock.lost |= answer.result == REQUEST_UNKNOWN;

		/* an act writes texts, and ends with a create */
		if (in->kind == REQUEST_SET)
			deadlock.set_zxid = in->mzxid;
		deadlock.act_zxid = in->kind == REQUEST_CREATE ? deadlock.set_zxid : 0;
	}
	deadlock_answer(deadlock.core, &answer, zk_now_us());
	carry_out();
}

/* There is a connection: begin, or go on. */
static void
resume(void)
{
	deadlock.lost = false;
	deadlock_connect(deadlock.core, zk_now_us());
	carry_out();
}

/* Begin, with the settings as they are. */
static void
make_core(void)
{
	if (deadlock.core)
		deadlock_free(deadlock.core);
	renew_owners();
	deadlock.timeout_ms = DeadlockTimeout;
	snprintf(deadlock.directory, sizeof(deadlock.directory), "%s/%s",
			 zklock_root, DEADLOCK_DIRECTORY);
	deadlock.core = deadlock_make(deadlock.directory, claims_instance(),
								  cluster_name,
								  (int64) deadlock.timeout_ms * 1000);
	if (deadlock.connected)
		resume();
}

/*
 * deadlock_attach
 *		Begin; "resumed": there was a session before this worker.
 */
void
deadlock_attach(bool resumed)
{
	deadlock.timeout_ms = DeadlockTimeout;
	deadlock.checks = zklock_deadlock_check;
	if (resumed)
		make_core();
}

/* The session has got a connection, or lost it. */
void
deadlock_set_connected(bool connected)
{
	deadlock.connected = connected;
	if (deadlock.core == NULL)
		return;
	if (connected)
		resume();
	else
		deadlock_disconnect(deadlock.core);
}

/* The session is over, with all its requests. */
void
deadlock_end_session(void)
{
	deadlock_set_connected(false);
	if (deadlock.core == NULL)
		return;
	deadlock_end(deadlock.core);
	renew_owners();
}

/*
 * Have contenders that would have edges watch for others behind them.  Returns
 * whether that is still to be waited for.
 */
static bool
watch_queues(List *unknown)
{
	ListCell   *cell;

	if (unknown == NIL)
		deadlock.listing_ms = 0;
	else if (deadlock.listing_ms == 0)
		deadlock.listing_ms = zk_now_ms();
	foreach(cell, unknown)
		contender_await(lfirst(cell));
	return unknown != NIL && zk_now_ms() - deadlock.listing_ms < LISTING_MS;
}

static void
run_scan(void)
{
	int64		now_ms = zk_now_ms();
	Waits		waits = {.next_us = PG_INT64_MAX};
	DeadlockScan result = {0};

	deadlock.for_event = false;
	deadlock.for_sessions = false;
	if (zklock_deadlock_check)
		waits_scan(&waits, (int64) deadlock.timeout_ms * 1000);
	deadlock.scanned_ms = now_ms;
	deadlock.paused_until_ms = 2 * zk_now_ms() - now_ms;
	deadlock.new_ms = 0;
	deadlock.next_ms = waits.next_us == PG_INT64_MAX ? 0 :
		now_ms + waits.next_us / 1000 + 1;
	result.edges = waits.edges;
	result.nedges = waits.nedges;
	result.listing = watch_queues(waits.unknown);
	result.waits = waits.old;
	if (deadlock.core == NULL && result.nedges == 0)
		return;
	if (deadlock.core == NULL)
		make_core();
	deadlock_scanned(deadlock.core, &result, zk_now_us());
	carry_out();
}

/*
 * deadlock_ended
 *		These waits and holds of ours have ended, by their generations; not
 *		"all": so have others.
 *
 * To be called ahead of what the worker does for their slots.
 */
void
deadlock_ended(const int64 *ends, int n, bool all)
{
	if (deadlock.core == NULL)
		return;
	for (int i = 0; i < n; i++)
		deadlock_over(deadlock.core, (uint64) ends[i], zk_now_us());
	carry_out();
	if (!all)
		run_scan();
}

/* When to scan next, as of zk_now_ms(), or 0. */
static int64
next_scan(int64 now_ms)
{
	int64		first_ms = contenders_queued_ms();
	int64		timeout_ms = deadlock.timeout_ms;
	int64		at_ms = deadlock.next_ms;

	if (!deadlock.connected)
		return 0;
	if (deadlock.core && deadlock_wants_scan(deadlock.core))
		at_ms = now_ms;
	if (first_ms != 0 && zklock_deadlock_check)
	{
		int64		due_ms = first_ms + timeout_ms;

		if (due_ms <= deadlock.scanned_ms)
		{
			/* it counted in the latest scan: repeat that, also for others */
			due_ms = deadlock.scanned_ms + timeout_ms;
			if (deadlock.new_ms == 0)
				deadlock.new_ms =
					contenders_queued_after(deadlock.scanned_ms - timeout_ms);
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
			foreign_may_matter())
			deadlock.for_sessions = true;
	}
	return deadlock.foreign_ms + deadlock.timeout_ms;
}

/* Other settings than before? */
static void
note_settings(void)
{
	char		directory[ZNODE_PATH_SIZE];

	snprintf(directory, sizeof(directory), "%s/%s", zklock_root,
			 DEADLOCK_DIRECTORY);
	if (deadlock.core && strcmp(directory, deadlock.directory) != 0)
		make_core();
	else if (deadlock.core)
		deadlock_set_timeout(deadlock.core,
							 (int64) DeadlockTimeout * 1000);
	deadlock.timeout_ms = DeadlockTimeout;
	if (deadlock.checks != zklock_deadlock_check && deadlock.core)
		deadlock.for_sessions = true;
	deadlock.checks = zklock_deadlock_check;
}

/* Do what is due, and schedule the next call. */
void
deadlock_run(void)
{
	int64		now_ms = zk_now_ms();
	int64		again_ms;
	int64		at_ms;

	note_settings();
	if (deadlock.lost && deadlock.connected)
		resume();
	if (wake_is_due(WAKE_SCAN))
	{
		deadlock.for_event = true;
		wake_set(WAKE_SCAN, 0);
	}
	again_ms = check_foreign(now_ms);
	if (deadlock.core && deadlock_wake(deadlock.core) <= zk_now_us())
	{
		deadlock_tick(deadlock.core, zk_now_us());
		carry_out();
	}
	at_ms = next_scan(now_ms);
	if (at_ms != 0 && at_ms <= now_ms)
	{
		run_scan();
		at_ms = next_scan(now_ms);
	}
	if (deadlock.core && deadlock_wake(deadlock.core) != PG_INT64_MAX)
		at_ms = zk_earlier(at_ms,
						   (deadlock_wake(deadlock.core) + 999) / 1000);
	wake_set(WAKE_DEADLOCK, zk_earlier(at_ms, again_ms));
}
