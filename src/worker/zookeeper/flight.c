/*-------------------------------------------------------------------------
 *
 * flight.c
 *		Operations on their way to ZooKeeper and back.
 *
 * Operations travel in flights.  What is submitted while a flight is out
 * waits, and leaves together in the next one, when all answers of the flight
 * are in and the connection is up.  The library hands answers back in the
 * order of the requests; we pass them on in that order.
 *
 * Order.  The creates and deletes of a flight go together, as a batch: one
 * multi, one write of ZooKeeper's log for all of them (or several, each as
 * long as one should be).  What their owners have submitted behind them, such
 * as the reading of the queue, goes behind the batch.  All else goes ahead of
 * it, such as the making of directories, which cannot be in a multi: the
 * library aborts on a container in one.  So each owner's operations keep
 * their order, though those of different owners may not.  Of each owner at
 * most one such write goes in a flight.  A write that is alone in its flight
 * goes alone.  The delete and the create of a requeue are one write, which
 * never goes in two parts; its answer is one, and an error is that of the part
 * that has failed.  Those of a group, with checks and sets if there are any, are
 * a multi of their own, behind the batches.
 *
 * One flight is out at a time.  Two, with half of the operations in each, do
 * not pay: the raw client of bench/ does 35,231 cycles a second with them, and
 * 44,056 with one (64 locks, multis without reads), since each write of
 * ZooKeeper's log carries fewer operations.
 *
 * Tokens.  All that one multi creates has the same czxid:
 * PrepRequestProcessor.java gets one zxid for it ("Each op in a multi-op must
 * have the same zxid!"), and DataTree.java gives it to each of its parts.
 * The answer does not tell the czxid, and create2, whose answer would, frees
 * a bad pointer in the library if it is in a multi.  So the owner asks for it
 * by a stat.  If the owners of several nodes of one multi ask in the same
 * flight, one stat is sent for all.  A create that is alone is a create2.
 *
 * If one operation of a batch fails, none of it has happened.  ZooKeeper
 * tells the error of the first that fails, and that is its answer; what its
 * owner sent behind it is answered as it came, as behind a write that was
 * alone.  The other writes go again in the next flight, and with them what
 * their owners sent behind them in the same flight.  The answers to that are
 * thrown away: the owners asked for them to be heard behind the write.  So
 * owners get answers as if there were no batches.
 *
 * What goes again, and in which pieces:
 *
 * - The writes ahead of the failed one are good.  The server did not try
 *	 those behind it.  Where one fails, others often do: ZooKeeper collects
 *	 directories that nobody uses.
 * - But the reading of the queue behind a create tells whether its directory
 *	 is missing.  If it is, the create is answered so, too; else it is taken
 *	 to be good.  Where nothing is read, the directory is watched: the event
 *	 of its deletion, which comes ahead of the answer, tells the same.
 * - The good ones go again as one batch, and the others as another, both
 *	 apart from what is new.
 * - If such a batch fails, what is behind its failed write goes in several,
 *	 none longer than the good stretch ahead of that, unless that was very
 *	 short.
 * - If the answer does not tell which write failed, each goes alone.
 *
 * So however many writes fail, a few flights settle it.  If one fails, that
 * costs two more requests, and those for what was sent behind.
 *
 * Everything here runs in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/flight.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/request.h"
#include "shared/clock.h"
#include "worker/zookeeper/fault_private.h"
#include "worker/zookeeper/flight_private.h"

/*
 * How long to hold back the next flight after an answer that settles nothing
 * although the connection is up: the server may be throttling us.
 */
#define RESEND_DELAY_MS		100

/*
 * The most that goes in one multi: longer ones do not make operations
 * cheaper, and the server refuses requests of more than
 * REQUEST_MAX_BYTES, which a group must not exceed either.
 */
#define BATCH_OPERATIONS	256
#define BATCH_BYTES			(256 * 1024)

/*
 * The most that go again in one batch, if they are known to be good, or if
 * nothing is known of them.  These are not the same, so that the two sorts
 * stay apart.
 */
#define GOOD_PIECE			BATCH_OPERATIONS
#define UNKNOWN_PIECE		(BATCH_OPERATIONS - 1)

/* If that fails, what is behind the failed one goes in so many, or fewer. */
#define MAX_PIECES			8

/* The most that go in one flight, so that it does not take long. */
#define FLIGHT_OPERATIONS	1024

/* The main thread is woken for so many answers to reads behind a batch. */
#define WAKE_INTERVAL		16

/* So many stats of a flight can stand for others. */
#define SHARED_STATS		16

/* What an owner has in the flight that is out. */
typedef struct Passenger
{
	uint32		owner;
	char		status;			/* for simplehash.h */
	bool		wrote;			/* a create or delete */
	bool		put_off;		/* another one has to wait for the next flight */
	bool		put_back;		/* the write goes again, and all behind it */
	Operation  *write;			/* that write, if nothing that was behind it
								 * goes again yet; or NULL */
} Passenger;

#define SH_PREFIX passengers
#define SH_ELEMENT_TYPE Passenger
#define SH_KEY_TYPE uint32
#define SH_KEY owner
#define SH_HASH_KEY(tb, key) murmurhash32(key)
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A flight that is being put together: its parts in the order of sending. */
typedef struct FlightPlan
{
	dlist_head	ahead;
	dlist_head	writes;
	dlist_head	groups;
	dlist_head	behind;
	Operation  *stats[SHARED_STATS];	/* those that can stand for others */
	Operation  *urgent;			/* the last of these in "ahead" */
	int			nbehind;
	int			nstats;
	int			nsent;			/* operations that will be answered */
} FlightPlan;

/*
 * flight_init
 *		Make an empty flight, whose operations live in "context".
 */
void
flight_init(Flight *flight, Client *client, Watches *watches,
			MemoryContext context)
{
	memset(flight, 0, sizeof(*flight));
	flight->client = client;
	flight->watches = watches;
	flight->context = context;
	dlist_init(&flight->submitted);
	dlist_init(&flight->again);
	dlist_init(&flight->out);
	flight->passengers = passengers_create(context, 64, NULL);
}

/*
 * flight_submit
 *		Submit a request; it leaves with flight_send().
 */
void
flight_submit(Flight *flight, uint32_t owner, const Request *request)
{
	Operation  *op = operation_make(flight->client, flight->context, owner,
									request);

	dlist_push_tail(&flight->submitted, &op->node);
}

/*
 * flight_submit_heartbeat
 *		Submit a write that changes nothing.
 *
 * It leaves ahead of what else is submitted, and not behind flights of reads,
 * which prove nothing.
 */
void
flight_submit_heartbeat(Flight *flight)
{
	Operation  *op = operation_make_heartbeat(flight->client, flight->context);

	dlist_push_head(&flight->submitted, &op->node);
}

/*
 * flight_is_out
 *		Is a flight out, so that no other can leave?
 */
bool
flight_is_out(const Flight *flight)
{
	return !dlist_is_empty((dlist_head *) &flight->out);
}

/*
 * flight_hold_back
 *		The server, if we are connected to one, has not dealt with something:
 *		let the next flight wait.
 */
void
flight_hold_back(Flight *flight)
{
	if (flight->client->connected)
		flight->resend_ms = zk_now_ms() + RESEND_DELAY_MS;
}

/*
 * flight_forget
 *		Free an operation and its answer.
 */
void
flight_forget(Operation *op)
{
	dlist_delete(&op->node);
	operation_free(op);
}

static void
forget_list(dlist_head *list)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, list)
	{
		flight_forget(dlist_container(Operation, node, iter.cur));
	}
}

/*
 * flight_forget_waiting
 *		Free the operations that the library does not have.
 */
void
flight_forget_waiting(Flight *flight)
{
	forget_list(&flight->again);
	forget_list(&flight->submitted);
}

/*
 * flight_forget_out
 *		Free those that it has; the client must be closed.
 */
void
flight_forget_out(Flight *flight)
{
	forget_list(&flight->out);
}

/* Move the first operation of a list into the flight. */
static Operation *
board(Flight *flight, dlist_head *list)
{
	Operation  *op = dlist_container(Operation, node,
									 dlist_pop_head_node(list));

	dlist_push_tail(&flight->out, &op->node);
	return op;
}

/*
 * flight_directory_deleted
 *		A watch has told that this directory has been deleted.
 */
void
flight_directory_deleted(Flight *flight, const char *directory)
{
	dlist_head *lists[] = {&flight->out, &flight->again, &flight->submitted};

	for (int i = 0; i < (int) lengthof(lists); i++)
	{
		dlist_iter	iter;

		dlist_foreach(iter, lists[i])
		{
			operation_note_deletion(dlist_container(Operation, node, iter.cur),
									directory);
		}
	}
}

/* Send the first operation of a list by itself. */
static void
send_first(Flight *flight, dlist_head *list)
{
	operation_send(board(flight, list), flight->watches);
}

static void
send_all(Flight *flight, dlist_head *list)
{
	while (!dlist_is_empty(list))
		send_first(flight, list);
}

/*
 * Send the first operations of a list, creates and deletes, as one multi.
 */
static void
send_multi(Flight *flight, dlist_head *list, int count, bool is_batch)
{
	Operation **ops = palloc(count * sizeof(Operation *));

	for (int i = 0; i < count; i++)
		ops[i] = board(flight, list);
	if (++flight->last_batch == 0)
		++flight->last_batch;
	operation_send_multi(ops, count, is_batch, flight->last_batch,
						 flight->context);
	pfree(ops);
}

/*
 * Send creates and deletes in batches: what is new apart from what was in a
 * batch that has failed.
 */
static void
send_writes(Flight *flight, dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		int			piece = dlist_head_element(Operation, node, list)->piece;
		int			limit = piece == 0 ? BATCH_OPERATIONS : piece;
		dlist_iter	iter;
		int			count = 0;
		int			parts = 0;
		Size		bytes = 0;

		dlist_foreach(iter, list)
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			parts += operation_parts(op);
			bytes += operation_parts(op) *
				(REQUEST_OVERHEAD_BYTES + strlen(op->path)) +
				(op->request.data ? strlen(op->request.data) : 0);
			if (op->piece != piece ||
				(count > 0 && (parts > limit || bytes > BATCH_BYTES)))
				break;
			count++;
		}
		if (count > 1)
			send_multi(flight, list, count, true);
		else if (operation_parts(dlist_head_element(Operation, node, list)) > 1)
			send_multi(flight, list, 1, false);
		else
			send_first(flight, list);
	}
}

/* Send what must succeed or fail together: each group as a multi. */
static void
send_groups(Flight *flight, dlist_head *list)
{
	while (!dlist_is_empty(list))
	{
		Operation  *first = dlist_head_element(Operation, node, list);
		dlist_iter	iter;
		int			count = 0;

		dlist_foreach(iter, list)
		{
			Operation  *op = dlist_container(Operation, node, iter.cur);

			if (op->request.group != first->request.group)
				break;
			count++;
		}
		send_multi(flight, list, count, false);
	}
}

/*
 * Is there another stat in the flight that tells what this one asks for?
 * Then it stands for this one, which is not sent.
 */
static bool
share_stat(FlightPlan *plan, Operation *op)
{
	for (int i = 0; i < plan->nstats; i++)
	{
		Operation  *stat = plan->stats[i];

		if (stat->request.batch != op->request.batch)
			continue;
		op->sharer = stat->sharer;
		stat->sharer = op;
		return true;
	}
	if (plan->nstats < SHARED_STATS)
		plan->stats[plan->nstats++] = op;
	return false;
}

/* May somebody wait for the answer to this, other than for that to a write? */
static bool
is_urgent(const Operation *op)
{
	RequestKind kind = op->request.kind;

	return !op->heartbeat && kind != REQUEST_MKDIR && kind != REQUEST_MKDIRS &&
		kind != REQUEST_STAT && kind != REQUEST_UNWATCH;
}

/*
 * Move an operation from the list that it waits in to where it belongs in the
 * flight.  Returns false if it has to stay.
 */
static bool
plan_operation(Flight *flight, FlightPlan *plan, Operation *op)
{
	RequestKind kind = op->request.kind;
	Passenger  *passenger;
	dlist_head *list;
	bool		found;

	passenger = passengers_insert(flight->passengers, op->owner, &found);
	if (!found)
	{
		passenger->wrote = passenger->put_off = passenger->put_back = false;
		passenger->write = NULL;
	}
	if (op->request.group != 0)
		list = &plan->groups;
	else if (kind != REQUEST_CREATE && kind != REQUEST_DELETE &&
			 kind != REQUEST_REQUEUE)
		list = passenger->wrote ? &plan->behind : &plan->ahead;
	else
	{
		list = &plan->writes;
		if (passenger->wrote)
			passenger->put_off = true;
	}
	if (passenger->put_off && op->request.group == 0)
		return false;
	if (list == &plan->groups || list == &plan->writes)
		passenger->wrote = true;

	/* answers of one owner must keep their order */
	if (kind == REQUEST_STAT && op->request.batch != 0 && !found &&
		share_stat(plan, op))
		list = &flight->out;
	else
		plan->nsent++;
	if (list == &plan->ahead && is_urgent(op))
		plan->urgent = op;
	if (list == &plan->behind && ++plan->nbehind % WAKE_INTERVAL == 0)
		op->event.wakes = true;
	dlist_delete(&op->node);
	dlist_push_tail(list, &op->node);
	return true;
}

/* Plan what has to go again, and what has been submitted. */
static void
plan_flight(Flight *flight, FlightPlan *plan)
{
	dlist_mutable_iter iter;
	uint32		group = 0;
	int			count = 0;

	memset(plan, 0, sizeof(*plan));
	dlist_init(&plan->ahead);
	dlist_init(&plan->writes);
	dlist_init(&plan->groups);
	dlist_init(&plan->behind);
	passengers_reset(flight->passengers);
	dlist_foreach_modify(iter, &flight->again)
	{
		/* an owner has one write in it at the most, ahead of all else */
		(void) plan_operation(flight, plan,
							  dlist_container(Operation, node, iter.cur));
	}
	dlist_foreach_modify(iter, &flight->submitted)
	{
		Operation  *op = dlist_container(Operation, node, iter.cur);

		/* a group must not be torn apart */
		if (count >= FLIGHT_OPERATIONS &&
			(op->request.group == 0 || op->request.group != group))
			break;
		if (!plan_operation(flight, plan, op))
			continue;
		group = op->request.group;
		count++;
	}
	if (plan->urgent)
		plan->urgent->event.wakes = true;
}

/*
 * flight_send
 *		Send what has to go again, and what has been submitted, or as much of
 *		it as one flight takes.
 *
 * No flight may be out, and the connection must be up.
 */
void
flight_send(Flight *flight, int64 now_ms)
{
	FlightPlan	plan;
	sigset_t	saved;

	if (dlist_is_empty(&flight->submitted) && dlist_is_empty(&flight->again))
		return;
	flight->sent_ms = now_ms;
	flight->batch_failed = false;
	plan_flight(flight, &plan);
	client_expect_answers(flight->client, plan.nsent);
	fault_enter_library(&saved);
	send_all(flight, &plan.ahead);
	send_writes(flight, &plan.writes);
	send_groups(flight, &plan.groups);
	send_all(flight, &plan.behind);
	fault_leave_library(&saved);
}

/*
 * Have the stats that this one stands for answered right behind it.  If it
 * has not found a node of our session, they have to ask for themselves.
 */
static void
answer_sharers(Flight *flight, Operation *op)
{
	int			code = op->event.code == ZOK &&
	client_is_ours(flight->client, &op->event.stat) ? ZOK :
	OPERATION_NOT_SHARED;
	Operation  *first = op->sharer;
	Operation  *last = op;

	while (last->sharer != NULL)
	{
		Operation  *sharer = last->sharer;

		sharer->event.code = code;
		sharer->event.stat = op->event.stat;
		last->event.next = &sharer->event;
		last->sharer = NULL;
		last = sharer;
	}
	if (first)
		client_put_back(&first->event, &last->event);
}

/*
 * How many may go in one batch with this operation, next time, now that the
 * batch has failed that it was in?
 */
static int
next_piece(const Operation *op)
{
	int			failed = op->event.failed;

	if (failed < 0)
		return 1;
	if (op->place < failed)
		return GOOD_PIECE;
	if (op->piece == 0)
		return UNKNOWN_PIECE;
	return Max(failed + 1, (op->place_count + MAX_PIECES - 1) / MAX_PIECES);
}

/*
 * Does this have to go again?  Once a batch has failed, all that its owners
 * have in it and behind it does.
 */
static bool
goes_again(Flight *flight, Operation *op)
{
	Passenger  *passenger;

	if (op->event.code == CLIENT_BATCH_FAILED)
	{
		flight->batch_failed = true;
		op->piece = next_piece(op);
	}
	if (!flight->batch_failed)
		return false;
	passenger = passengers_lookup(flight->passengers, op->owner);
	if (passenger && op->event.code == CLIENT_BATCH_FAILED)
		passenger->put_back = true;
	return passenger && passenger->put_back;
}

/*
 * This answers something that was sent behind a write that goes again: does
 * it tell what would become of the write?  If the directory in which the
 * write creates is missing, returns the write, to be given out with that
 * answer; this one follows.
 */
static Operation *
known_to_fail(Flight *flight, Operation *op)
{
	Passenger  *passenger = passengers_lookup(flight->passengers, op->owner);
	Operation  *write = passenger->write;

	if (op->request.kind != REQUEST_CHILDREN || write == NULL ||
		write->request.kind != REQUEST_CREATE ||
		!operation_is_in(write, op->path))
		return NULL;
	if (op->event.code == ZOK && write->piece == UNKNOWN_PIECE)
		write->piece = GOOD_PIECE;

	/* that a write fails proves something, so it must have been heard */
	if (op->event.code != ZNONODE || write->piece != UNKNOWN_PIECE)
		return NULL;
	passenger->put_back = false;
	passenger->write = NULL;
	write->event.code = op->event.code;
	client_put_back(&op->event, &op->event);
	return write;
}

/* Send an operation again, in the next flight. */
static void
send_again(Flight *flight, Operation *op)
{
	passengers_lookup(flight->passengers, op->owner)->write =
		op->event.code == CLIENT_BATCH_FAILED ? op : NULL;
	operation_reset(op, flight->watches);
	dlist_delete(&op->node);
	dlist_push_tail(&flight->again, &op->node);
}

/*
 * Nobody waits for the answer to the deletion of an orphan, so nobody else
 * would repeat it, if nothing is known of it.
 */
static bool
is_lost_orphan(const Operation *op)
{
	return op->request.kind == REQUEST_DELETE_ORPHAN &&
		op->event.code != ZSESSIONEXPIRED && op->event.code != ZCLOSING &&
		operation_result(op) == REQUEST_UNKNOWN;
}

/*
 * A create whose batch has failed would have failed itself, if its directory
 * has been deleted.  The server has heard it.
 */
static void
answer_without_directory(Operation *op)
{
	if (op->directory_deleted && op->event.code == CLIENT_BATCH_FAILED &&
		op->event.failed >= 0)
		op->event.code = ZNONODE;
}

/*
 * flight_answer
 *		An answer has come.
 *
 * Returns the operation whose answer is to be given out now, which the caller
 * frees by flight_forget(); or NULL: the one that was answered goes again.
 */
Operation *
flight_answer(Flight *flight, ClientEvent *event)
{
	Operation  *op = (Operation *) event;

	operation_note_watch(op, flight->watches);
	if (is_lost_orphan(op))
	{
		flight_hold_back(flight);
		send_again(flight, op);
		return NULL;
	}
	answer_without_directory(op);
	if (goes_again(flight, op))
	{
		Operation  *write = known_to_fail(flight, op);

		if (write == NULL)
		{
			send_again(flight, op);
			return NULL;
		}
		op = write;
	}
	answer_sharers(flight, op);
	return op;
}

/*
 * flight_fill_answer
 *		Tell the answer to an operation.
 *
 * As operation_fill_answer().  If nothing is known of the outcome, the next
 * flight is held back; but not if it is another one of its group that failed.
 */
void
flight_fill_answer(Flight *flight, const Operation *op, RequestAnswer *answer)
{
	operation_fill_answer(op, answer);
	if (answer->result == REQUEST_UNKNOWN &&
		op->event.code != OPERATION_NOT_SHARED &&
		!(op->request.group != 0 && op->event.code == ZRUNTIMEINCONSISTENCY))
		flight_hold_back(flight);
}
