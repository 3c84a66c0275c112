/*-------------------------------------------------------------------------
 *
 * permit.c
 *		A permit of a semaphore in ZooKeeper: two recipes in sequence.
 *
 * One Permit is one backend's wait for, or hold of, one permit.  Inputs and
 * outputs are as in recipe.c.
 *
 * In ZooKeeper it is Curator's InterProcessSemaphoreV2:
 *
 *		<name>/locks/_c_<uuid>-lock-0000000042		takes the next permit
 *		<name>/leases/_c_<uuid>-lease-0000000017	a permit in use
 *
 * The first recipe, "lock", is a mutex in <name>/locks.  While it owns, the
 * second one, "place", has a node in <name>/leases, and owns when fewer nodes
 * precede its own than the semaphore has permits.  Then the permit is granted,
 * and the lock is released.  It is kept until then, since Curator counts the
 * nodes behind its own, too: with one there it would wait forever.  If the
 * permit is no longer wanted, the lock is kept until it is known whether
 * "place" has a node, whose delete goes first: so the next owner of the lock
 * need not wait for it.  Only the owner of the lock creates nodes in "leases",
 * so permits are granted in the order of the queue.  Even if two waiters both
 * took themselves for the owner, their nodes would have an order: the number
 * would not be exceeded, nor would the two wait for each other.
 *
 * Unlike Curator,
 *
 *	- the data of <name>/leases is the number of permits that its users have
 *	  agreed on.  While others have permits, a different number is refused;
 *	  else the owner of the lock writes its own.  The number is read before
 *	  queueing, so that a waiter that will be refused need not wait; again by
 *	  the owner of the lock; and once more behind the create of its node, which
 *	  keeps the directory, and the number, from being collected;
 *	- contenders of a lock in <name> itself are looked for: before all else,
 *	  so that no directory is made in that of a lock, and by the owner of our
 *	  lock, whose contender keeps <name>/locks from being collected.  The lock
 *	  recipe looks for permits after it has made its contender, so at least
 *	  one of the two sees the other.  If we do, our directories are deleted,
 *	  unless they are in use;
 *	- a waiter is reported queued as soon as no permit can be free for it.  In
 *	  the queue that is so if the permits of others and the contenders ahead
 *	  are more than the semaphore's permits: one of those ahead may count
 *	  twice, with the lock and a permit, but even then no permit is left.  The
 *	  permits are listed right before the queue, so that a contender that gets
 *	  its permit between the two is not counted twice, and behind our create,
 *	  so that the answer is not older than our wait.  Such a contender was
 *	  perhaps not counted at all, so the permits are listed once more behind
 *	  the queue: if they are few enough then, each contender ahead will get
 *	  one, and so shall we; else both are read again.
 *
 * What is read before we queue, and as the owner of the lock, goes behind a
 * sync.  A deposed leader that has not noticed may answer it from old state:
 * then a waiter may be refused without need.  But the owner of the lock has
 * seen the contender before it go, and so the permit that it left.
 *
 * The invariants of each state, between steps; "wanted" is a recipe that is
 * neither NONE nor leaving.
 *
 *	NONE		Both recipes are NONE.
 *	READING		"lock" is NONE, or owns.  "place" is NONE.  The reads are out.
 *	QUEUEING	"lock" is wanted, and "place" is NONE; or both are resumed:
 *				"place" is leaving, and only then "lock" may own.
 *	TAKING		"lock" owns, "place" is wanted.  Unless "agreed", a get of the
 *				number is out, or "place" has its create or its search out.
 *	OWNER		"lock" is NONE or leaving.  "place" owns.
 *	LEAVING		"place" is NONE or leaving, not both are NONE.  "lock" is NONE
 *				or leaving, or "place" is CANCELING or ABANDONING.
 *
 * The states and events.  "Look" is: sync and list <name>, list the permits,
 * get the number.  A missing directory is an empty one without a number.
 *
 *	NONE		want -> READING: look
 *				resume, wanted -> QUEUEING: resume "place" as releasing, "lock"
 *				  as wanted
 *				resume, owned -> OWNER: resume "place" as owned, "lock" as
 *				  releasing
 *				resume, releasing -> LEAVING: resume both as releasing
 *	READING		<name> ok, with contenders -> LEAVING; delete the directories;
 *				  failed, mixed
 *				number ok, another, and others have permits -> LEAVING; failed,
 *				  with that number
 *				number ok, the lock is NONE -> QUEUEING: want the lock
 *				number ok, the lock owns -> TAKING: set ours, unless it was
 *				  that, want the place
 *				anything unknown -> READING: look
 *				anything refused -> LEAVING; failed
 *	QUEUEING	the lock owns, and the place is NONE -> READING: look
 *				the lock is queued, and no permit can be free -> QUEUEING; queued
 *	TAKING		number ok, and ours -> TAKING, agreed
 *				number ok, another, and others have permits -> LEAVING; failed,
 *				  with that number
 *				number ok, but none, or another -> TAKING: set ours, get it
 *				number no node -> LEAVING
 *				number unknown -> TAKING: get it
 *				number, or its set, refused -> LEAVING; failed
 *				the place is created again, or searched for -> TAKING: get the
 *				  number behind that
 *				agreed, the place is queued -> TAKING; queued
 *				agreed, the place owns -> OWNER: release the lock; granted
 *	OWNER		the place has a token, or is revoked -> OWNER; reported
 *				the place is lost -> LEAVING; lost
 *				release -> LEAVING
 *	LEAVING		(entered by releasing the place)
 *				the place is NONE, or its delete is out -> LEAVING: release the
 *				  lock
 *				both are NONE -> NONE; gone
 *	up to TAKING: a recipe has failed; the place is left behind -> LEAVING;
 *				  failed
 *				a recipe is lost; release -> LEAVING
 *	any			a recipe leaves a node behind, finds a stranger -> the same;
 *				  reported
 *				look; retry -> the same: passed on to both recipes
 *				expired -> NONE; lost if it was OWNER, else gone
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/permit.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/permit.h"

#include <string.h>

#define LOCKS				"/" ZNODE_LOCKS_DIR
#define PERMITS				"/" ZNODE_PERMITS_DIR

static void leave(Permit *permit, RecipeOutput *out);

static void
add_op(RecipeOutput *out, const Request *op)
{
	if (out->nops < RECIPE_MAX_OPS)
		out->ops[out->nops++] = *op;
}

/* Send a request of our own, in <name> or below it. */
static void
send_op(RecipeOutput *out, RequestKind kind, const char *path,
		const char *data, uint32_t serial)
{
	Request		op = {
		.kind = kind,
		.path = path,
		.data = data,
		.serial = PERMIT_SERIAL(serial, PERMIT_READS)
	};

	add_op(out, &op);
}

/* The serial number of a read; 0: the permits, listed with the lock's queue. */
static uint32_t
next_serial(Permit *permit)
{
	permit->serial = permit->serial % RECIPE_MAX_SERIAL + 1;
	return permit->serial;
}

static void
fail(Permit *permit, RecipeOutput *out, unsigned report, int error)
{
	out->report |= report | RECIPE_REPORT_FAILED;
	out->error = error;
	leave(permit, out);
}

static void
set_agreement(Permit *permit, RecipeOutput *out)
{
	send_op(out, REQUEST_SET, PERMITS, permit->agreement, permit->serial);
}

/* Get the number, behind what has just been sent. */
static void
get_agreement(Permit *permit, RecipeOutput *out)
{
	permit->agreed = false;
	send_op(out, REQUEST_GET, PERMITS, NULL, next_serial(permit));
}

/*
 * Send the operations of a recipe, with what is read ahead of the lock's queue
 * and behind the create of our permit's node.
 */
static void
send_ops(Permit *permit, PermitPart part, const RecipeOutput *from,
		 RecipeOutput *out)
{
	bool		is_lock = part == PERMIT_LOCK;
	bool		may_create = false;

	for (int i = 0; i < from->nops; i++)
	{
		Request		op = from->ops[i];

		if (is_lock && permit_is_wanted(permit) &&
			(op.kind == REQUEST_CHILDREN || op.kind == REQUEST_SEARCH))
			send_op(out, op.kind, PERMITS, NULL, 0);
		if (!is_lock && op.kind == REQUEST_CREATE && permit->differs)
			set_agreement(permit, out);
		if (!is_lock &&
			(op.kind == REQUEST_MKDIR || op.kind == REQUEST_MKDIRS))
			op.data = permit->agreement;
		may_create |= op.kind == REQUEST_CREATE || op.kind == REQUEST_SEARCH;
		op.path = is_lock ? LOCKS : PERMITS;
		op.serial = PERMIT_SERIAL(op.serial, part);
		add_op(out, &op);
	}
	if (may_create && !is_lock && permit->state == PERMIT_TAKING)
		get_agreement(permit, out);
}

/* Do others and those ahead in the queue leave no permit for us? */
static bool
none_is_left(const Permit *permit)
{
	return permit->others + permit->lock.blockers > permit->place.permits;
}

/*
 * A recipe is queued: can no permit be free for us?  If that is not certain,
 * list the permits once more: is it certain that one will be?  A place behind
 * others is reported when the number is agreed.
 */
static void
note_queued(Permit *permit, PermitPart part, RecipeOutput *out)
{
	if (part == PERMIT_PLACE ? permit->agreed :
		permit->lock.state == RECIPE_LATE || none_is_left(permit))
		out->report |= RECIPE_REPORT_QUEUED;
	else if (part == PERMIT_LOCK)
		send_op(out, REQUEST_CHILDREN, PERMITS, NULL, 0);
}

/* Carry out the step of a recipe. */
static void
carry_out(Permit *permit, PermitPart part, const RecipeOutput *from,
		  RecipeOutput *out)
{
	bool		is_lock = part == PERMIT_LOCK;
	unsigned	reported = RECIPE_REPORT_STRANGER | RECIPE_REPORT_LEFT |
		RECIPE_REPORT_RENEWED | RECIPE_REPORT_LATE;

	send_ops(permit, part, from, out);
	if (permit->state == PERMIT_OWNER)
		reported |= RECIPE_REPORT_TOKEN | RECIPE_REPORT_REVOKED |
			RECIPE_REPORT_LOST;
	reported &= from->report;
	if (reported != 0)
	{
		out->report |= reported;
		out->error = from->error;
		out->stranger = from->stranger;
		out->left = from->left;
		out->path = is_lock ? LOCKS : PERMITS;
	}
	if ((from->report & RECIPE_REPORT_QUEUED) && permit_is_wanted(permit))
		note_queued(permit, part, out);

	if (permit_is_wanted(permit) &&
		(from->report & (RECIPE_REPORT_FAILED |
						 (is_lock ? 0 : RECIPE_REPORT_LEFT))))
		fail(permit, out, from->report & RECIPE_REPORT_MIXED, from->error);
	else if ((from->report & RECIPE_REPORT_LOST) &&
			 permit->state != PERMIT_LEAVING)
		leave(permit, out);
}

/* Let a recipe take a step within ours. */
static void
step_recipe(Permit *permit, PermitPart part, RecipeEvent event,
			const RequestAnswer *answer, RecipeOutput *out)
{
	RecipeOutput from;

	recipe_step(part == PERMIT_LOCK ? &permit->lock : &permit->place, event,
				answer, &from);
	carry_out(permit, part, &from, out);
}

/* Queue for the lock, or, as its owner, for a permit. */
static void
want(Permit *permit, bool dir_known, RecipeOutput *out)
{
	bool		queueing = permit->lock.state == RECIPE_NONE;
	RecipeOutput from;

	permit->state = queueing ? PERMIT_QUEUEING : PERMIT_TAKING;
	recipe_want(queueing ? &permit->lock : &permit->place, permit->uuid,
				queueing ? ZNODE_MUTEX : ZNODE_PERMIT, queueing || dir_known,
				false, &from);
	carry_out(permit, queueing ? PERMIT_LOCK : PERMIT_PLACE, &from, out);
}

/* Nothing is wanted any more; go_on() releases the lock. */
static void
leave(Permit *permit, RecipeOutput *out)
{
	permit->state = PERMIT_LEAVING;
	step_recipe(permit, PERMIT_PLACE, RECIPE_RELEASE, NULL, out);
}

/* Read the semaphore: ahead of the queue, or as the lock's owner. */
static void
look(Permit *permit, RecipeOutput *out)
{
	uint32_t	serial = next_serial(permit);

	permit->state = PERMIT_READING;
	send_op(out, REQUEST_SYNC, "", NULL, serial);
	send_op(out, REQUEST_CHILDREN, PERMITS, NULL, serial);
	send_op(out, REQUEST_GET, PERMITS, NULL, serial);
}

static void
grant(Permit *permit, RecipeOutput *out)
{
	permit->state = PERMIT_OWNER;
	out->report |= RECIPE_REPORT_GRANTED | RECIPE_REPORT_CREATED;
	if (permit->place.token != 0)
		out->report |= RECIPE_REPORT_TOKEN;
	step_recipe(permit, PERMIT_LOCK, RECIPE_RELEASE, NULL, out);
}

/* Do what follows from the states of the recipes. */
static void
go_on(Permit *permit, RecipeOutput *out)
{
	RecipeState lock = permit->lock.state;
	RecipeState place = permit->place.state;

	if (permit->state == PERMIT_QUEUEING && lock == RECIPE_OWNER &&
		place == RECIPE_NONE)
		look(permit, out);
	else if (permit->state == PERMIT_TAKING && permit->agreed &&
			 place == RECIPE_OWNER)
		grant(permit, out);
	else if (permit->state == PERMIT_LEAVING &&
			 place != RECIPE_CANCELING && place != RECIPE_ABANDONING)
		step_recipe(permit, PERMIT_LOCK, RECIPE_RELEASE, NULL, out);

	if (permit->state == PERMIT_LEAVING &&
		permit->lock.state == RECIPE_NONE && place == RECIPE_NONE)
	{
		permit->state = PERMIT_NONE;
		out->report |= RECIPE_REPORT_GONE;
	}
}

/* The contenders of others in a list: in <name>/leases, their permits. */
static int
count_others(const Permit *permit, const RequestAnswer *answer)
{
	ZnodeContender contender;
	int			others = 0;

	if (answer->result != REQUEST_OK)
		return 0;
	for (int i = 0; i < answer->nchildren; i++)
		if (znode_parse_contender(answer->children[i], &contender) &&
			!znode_has_uuid(answer->children[i], permit->uuid))
			others++;
	return others;
}

/* <name> has been read: is it the directory of a lock? */
static void
on_name_read(Permit *permit, const RequestAnswer *answer, RecipeOutput *out)
{
	if (count_others(permit, answer) == 0)
		return;
	fail(permit, out, RECIPE_REPORT_MIXED, 0);
	go_on(permit, out);

	/*
	 * users of the lock must not find our directories, unless they are in use
	 */
	for (int i = 0; i < answer->nchildren; i++)
	{
		Request		op = {.kind = REQUEST_DELETE_ORPHAN,.path = "",
		.node = answer->children[i]};

		if (znode_is_semaphore_part(op.node))
			add_op(out, &op);
	}
}

/* The last of the reads: which number have others agreed on? */
static void
on_agreement(Permit *permit, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		found = answer->result == REQUEST_OK;
	int			agreed = found ?
		note_permits(answer->data, answer->data_len) : 0;

	permit->differs = found && agreed != permit->place.permits;
	if (agreed != 0 && permit->differs && permit->others > 0)
	{
		out->permits_found = agreed;
		fail(permit, out, 0, 0);
	}
	else if (permit->state == PERMIT_READING)
		want(permit, found, out);
	else if (!found)
		leave(permit, out);		/* somebody has deleted our node, too */
	else if (permit->differs)
	{
		set_agreement(permit, out);
		get_agreement(permit, out);
	}
	else
	{
		permit->agreed = true;
		if (permit->place.state == RECIPE_WATCHING)
			out->report |= RECIPE_REPORT_QUEUED;
	}
}

/*
 * The permits have been listed: ahead of the lock's queue, or, while the lock
 * waits there, behind it.  A lock that does not wait ignores RECIPE_READ_QUEUE.
 */
static void
on_permits_listed(Permit *permit, const RequestAnswer *answer,
				  RecipeOutput *out)
{
	if (!permit_is_wanted(permit))
		return;
	if (answer->result == REQUEST_REFUSED)
		fail(permit, out, 0, answer->error);
	permit->others = count_others(permit, answer);
	if (answer->result == REQUEST_UNKNOWN || none_is_left(permit))
		step_recipe(permit, PERMIT_LOCK, RECIPE_READ_QUEUE, NULL, out);
}

/* One of our own requests has been answered. */
static void
on_read(Permit *permit, const RequestAnswer *answer, RecipeOutput *out)
{
	bool		taking = permit->state == PERMIT_TAKING;

	if (answer->serial == 0)
		on_permits_listed(permit, answer, out);
	else if (answer->kind == REQUEST_SET)
	{
		/* whether it was done is read behind it */
		if (taking && answer->result == REQUEST_REFUSED)
			fail(permit, out, 0, answer->error);
	}
	else if (answer->serial != permit->serial ||
			 (!taking && permit->state != PERMIT_READING))
		return;
	else if (answer->result == REQUEST_REFUSED)
		fail(permit, out, 0, answer->error);
	else if (answer->result == REQUEST_UNKNOWN)
	{
		if (taking)
			get_agreement(permit, out);
		else
			look(permit, out);
	}
	else if (answer->kind == REQUEST_SYNC)
		on_name_read(permit, answer, out);
	else if (answer->kind == REQUEST_CHILDREN)
		permit->others = count_others(permit, answer);
	else
		on_agreement(permit, answer, out);
}

/* Handle an answer, or a watch that has fired. */
static void
on_answer(Permit *permit, const RequestAnswer *answer, RecipeOutput *out)
{
	PermitPart	part = answer->serial % PERMIT_PARTS;
	RequestAnswer own = *answer;

	own.serial /= PERMIT_PARTS;
	if (part == PERMIT_READS)
		on_read(permit, &own, out);
	else
	{
		if (part == PERMIT_PLACE && answer->event == REQUEST_DONE &&
			request_is_list(answer->kind) && answer->result == REQUEST_OK)
			permit->others = count_others(permit, answer);
		step_recipe(permit, part, RECIPE_ANSWER, &own, out);
	}
}

/* Free what a permit has allocated; the struct is the caller's. */
void
permit_free(Permit *permit)
{
	recipe_free(&permit->lock);
	recipe_free(&permit->place);
}

static void
begin(Permit *permit, const uint8_t uuid[ZNODE_UUID_BYTES], int permits)
{
	memcpy(permit->uuid, uuid, ZNODE_UUID_BYTES);
	permit->place.permits = permits;
	note_write_permits(permit->agreement, permits);
}

/*
 * permit_want
 *		Wait for one of "permits" permits.
 *
 * "uuid" must never have been used in this semaphore; the state must be
 * PERMIT_NONE.  "out" is overwritten.
 */
void
permit_want(Permit *permit, const uint8_t uuid[ZNODE_UUID_BYTES], int permits,
			RecipeOutput *out)
{
	memset(out, 0, sizeof(*out));
	if (permit->state != PERMIT_NONE)
		return;
	begin(permit, uuid, permits);
	look(permit, out);
}

/*
 * permit_resume
 *		Take over a permit, or the wait for one, from an earlier worker, in the
 *		same session.
 *
 * The permit must be new.  As with recipe_resume(), what it sends must go
 * behind a write of our own.  The place in the queue is kept, and what is read
 * ahead of queueing is not read again.  A node in "leases" that is found while
 * the permit is still being waited for is deleted; since the lock is kept, this
 * only costs time.  "sequence" is that of a permit that was granted, else NULL.
 * "out" is overwritten.
 */
void
permit_resume(Permit *permit, const uint8_t uuid[ZNODE_UUID_BYTES],
			  int permits, RecipeResume how, const int32_t *sequence,
			  RecipeOutput *out)
{
	bool		wanted = how == RECIPE_RESUME_WANTED;
	RecipeOutput from;

	memset(out, 0, sizeof(*out));
	begin(permit, uuid, permits);
	permit->state = wanted ? PERMIT_QUEUEING :
		how == RECIPE_RESUME_OWNED ? PERMIT_OWNER : PERMIT_LEAVING;
	recipe_resume(&permit->place, uuid, ZNODE_PERMIT,
				  wanted ? RECIPE_RESUME_RELEASING : how, sequence, &from);
	carry_out(permit, PERMIT_PLACE, &from, out);

	/* an owner does not need the lock, but may still have it */
	recipe_resume(&permit->lock, uuid, ZNODE_MUTEX,
				  wanted ? how : RECIPE_RESUME_RELEASING, NULL, &from);
	carry_out(permit, PERMIT_LOCK, &from, out);
}

/*
 * permit_step
 *		The transition function: one event in, operations and reports out.
 *
 * As recipe_step().
 */
void
permit_step(Permit *permit, RecipeEvent event, const RequestAnswer *answer,
			RecipeOutput *out)
{
	memset(out, 0, sizeof(*out));

	switch (event)
	{
		case RECIPE_ANSWER:
			on_answer(permit, answer, out);
			break;
		case RECIPE_RELEASE:
			if (permit_is_wanted(permit) || permit->state == PERMIT_OWNER)
				leave(permit, out);
			break;
		case RECIPE_WATCH_REVOCATION:
			if (permit->state == PERMIT_OWNER)
				step_recipe(permit, PERMIT_PLACE, event, NULL, out);
			break;
		case RECIPE_LOOK:
		case RECIPE_RETRY:
			/* an owner would ask for its token, which nobody needs */
			if (permit->place.state != RECIPE_OWNER)
				step_recipe(permit, PERMIT_PLACE, event, NULL, out);
			if (permit->lock.state != RECIPE_OWNER)
				step_recipe(permit, PERMIT_LOCK, event, NULL, out);
			break;
		case RECIPE_EXPIRED:
			step_recipe(permit, PERMIT_PLACE, event, NULL, out);
			step_recipe(permit, PERMIT_LOCK, event, NULL, out);
			if (permit_is_wanted(permit))
				leave(permit, out);
			break;
		default:
			break;				/* of locks only */
	}
	go_on(permit, out);
}

/* Is a permit being waited for? */
bool
permit_is_wanted(const Permit *permit)
{
	return permit->state >= PERMIT_READING && permit->state <= PERMIT_TAKING;
}

/* The name of a state, for log lines. */
const char *
permit_state_name(PermitState state)
{
	static const char *const names[] = {
		[PERMIT_NONE] = "none",
		[PERMIT_READING] = "reading",
		[PERMIT_QUEUEING] = "queueing",
		[PERMIT_TAKING] = "taking",
		[PERMIT_OWNER] = "owner",
		[PERMIT_LEAVING] = "leaving"
	};

	return names[state];
}
