/*-------------------------------------------------------------------------
 *
 * turn.c
 *		When an instance keeps a lock, and when it gives it up.
 *
 * An instance that owns a lock can hand it from backend to backend without
 * ZooKeeper; that is what makes a hot lock fast.  Contenders of other
 * instances wait meanwhile, so this must be bounded.  Each slot has a Turn:
 * what the instance knows of contenders behind its own, when its turn began,
 * and why the slot is idle.  The functions below take an event, change the
 * Turn, and decide what happens to the slot.  They know neither PostgreSQL nor
 * ZooKeeper, read no clock or setting, and take no lock: the caller holds the
 * lock that guards the slot, and carries the decision out.
 *
 * In short: while nobody else waits, and the worker would learn of it (alone),
 * handoffs go on.  While that is unknown, they go on for
 * zklock.handoff_quantum.  While others wait (contended), or probably will
 * (contested: contenders that were ahead of us may come again), the turn also
 * ends once all backends that waited at its beginning have had the lock and
 * the turn has been long enough; until it has, all waiting backends are due
 * again.  A lock that no backend can take is given up, unless nobody else
 * waits and it may be retained, or the worker could not send anything now
 * anyway.
 *
 * How long is enough depends on how long a release takes in ZooKeeper.  While
 * the lock passes from one instance to the next, nobody holds it: with turns
 * of length t and handovers of length h, the lock is used for the part t / (t
 * + h) of the time, over any number of instances.  A release takes about as
 * long as a handover: one ends when its answer is back, the other when the
 * next instance has learned of it.  So a turn lasts for at least one release,
 * which makes half of the time useful.  It has a second round unless the first
 * one took as long as two releases: with two rounds, a backend waits as often
 * for other instances' turns as for its neighbors, so that the usual wait is
 * still a long one, and the longest not much longer.  With a third round most
 * waits would be short, and the others longer.
 *
 * An instance that releases slowly has longer turns than a fast one: the
 * others wait for them about as long as for its handovers in any case, and
 * never longer than the quantum.  The time counts from when the slot is given
 * up, so neither the time for which backends hold the lock nor the number of
 * instances matters.  It is smoothed so that one slow release matters little
 * and briefly: it adds at most a quarter of the known time, and the next one
 * goes half of the way back.
 *
 * The table.  In each group the first matching line counts; fields that a line
 * does not mention stay as they are.  test_turn.c has a test for each line, by
 * its name.
 *
 *	behind: what is known of others behind our contender
 *	B1	granted, retainable, not contended	-> alone (the worker watches the
 *											   queue from the beginning)
 *	B2	granted, else						-> as it is
 *	B3	handed on; unknown, not contested, not readers
 *											-> to ask
 *	B4	the worker takes the question		to ask -> asked
 *	B5	alone (reported by the worker)		-> alone; if contended, only
 *											   readers that are not retained
 *	B6	the connection is lost				alone -> asked (the worker checks
 *											   again when it has one)
 *	B7	contended (reported by the worker)	-> contended
 *	B8	a new worker, which knows of no question; or the watch of our
 *		readers' queue is used up			-> unknown, unless contended
 *	B9	the contender is gone				-> unknown
 *
 *	contested: may others be about to come again?
 *	C1	granted, and we had to queue		2: for this grant and the next
 *	C2	granted at once						one less
 *
 *	the turn's beginning, and the backends that are due
 *	T1	granted								none has begun
 *	T2	dropped, none has begun				now; all that wait are due
 *	T3	contended, and we were alone, and not contested
 *											now, anew; all that wait are due
 *	T4	dropped, and not given up			one less is due
 *	T5	dropped, D8, and none is due		before T4: all that wait are due
 *											again
 *
 *	how long a release takes, from when an owned slot is given up until its
 *	contender is gone (or replaced in the same step); at most TURN_MAX_IDLE
 *	R1	gone, not given up as an owner		as it is
 *	R2	gone; nothing is known				that time
 *	R3	gone; longer than known				a quarter of the way, but at most
 *											a quarter more than known
 *	R4	gone; not longer					half of the way
 *
 *	dropped: the last holder gives the slot back
 *	D1	a permit, which is one backend's own	give up
 *	D2	a writer waits behind our readers		give up
 *	D3	no taker; alone, a retain time, and room
 *												retain
 *	D4	no taker, no other mail waits			give up
 *	D5	alone, not contested					go on
 *	D6	contended or contested, no taker		give up
 *	D7	contended or contested, quantum over	give up
 *	D8	contended or contested, shorter than: a TURN_PART-th of the quantum;
 *		the time of R; in the first round TURN_RELEASES times that
 *												go on
 *	D9	contended or contested, some are due	go on
 *	D10	contended or contested, none is due		give up
 *	D11	quantum not over						go on
 *	D12	quantum over							give up
 *	  "Go on" hands the slot on to the taker or, without one, leaves it to the
 *	  worker's mail.
 *
 *	idle: until when is the slot kept?
 *	K1	granted, handed on		TURN_MAX_IDLE
 *	K2	left, given up			not at all
 *	K3	retained				for its retain time
 *
 *	idle: what happens to it?
 *	I1	contended, no taker					give up
 *	I2	contended, retained, a taker		keep; handed on, from now on
 *	I3	contended, else						keep
 *	I4	nobody wants it; a retain time, not contended, and the time of K is not
 *		over								keep
 *	I5	nobody wants it, else				give up
 *	I6	mail opened, no taker, the time of K is over
 *											give up
 *	I7	mail opened, else					keep
 *	I8	checked, the time of K is not over	keep; check again when it is
 *	I9	checked, else						give up
 *
 *	proof: is an idle slot known well enough to be ours?  An instance that was
 *	cut off may not know of its loss yet.  Recent handoffs and grants rely on
 *	the check at commit; a slot that is retained, or that a delayed worker has
 *	not looked after, may have been idle for long.
 *	P1	granted								yes
 *	P2	the lease runs						yes
 *	P3	a retain time						no
 *	P4	TURN_MAX_IDLE after the time of K is not over
 *											yes
 *	P5	else								no
 *
 * "To ask" is a value, not a flag beside the others.  The mail only says that
 * the slot needs attention; why follows from the slot.  So whatever is learned
 * before the mail is opened supersedes the question, and a new worker needs no
 * old mail.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/turn.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/turn.h"

#include "core/mutation.h"

/* The number of grants for which C1 counts. */
#define CONTESTED_GRANTS	2

static void
begin_turn(Turn *turn, int waiting, int64_t now)
{
	turn->start = now;
	turn->due = waiting;
	turn->again = false;
}

/* Lines K: until when is an idle slot kept? */
static int64_t
keep_until(const Turn *turn, int64_t retain_time)
{
	switch ((TurnIdle) turn->idle)
	{
		case TURN_GRANTED:
		case TURN_HANDED_ON:
			return turn->idle_since + TURN_MAX_IDLE;
		case TURN_LEFT:
		case TURN_GIVEN_UP:
			break;
		case TURN_RETAINED:
			return turn->idle_since + retain_time;
	}
	return turn->idle_since;
}

/*
 * turn_granted
 *		The contender owns the lock, from "now" on.
 *
 * "queued": it had to wait behind others.  "retainable": its data say that it
 * may be retained, and so the worker watches the queue.  Returns when to call
 * turn_checked() if no backend is ready to take the lock.
 */
int64_t
turn_granted(Turn *turn, bool queued, bool retainable, int64_t now)
{
	turn->start = 0;
	turn->idle = TURN_GRANTED;
	turn->idle_since = now;
	if (queued)
		turn->contested = CONTESTED_GRANTS;
	else if (turn->contested > 0)
		turn->contested--;
	if (retainable)
		turn_alone(turn, false);
	return keep_until(turn, 0);
}

/* The contender, which owns the lock, is to be deleted. */
void
turn_given_up(Turn *turn, int64_t now)
{
	turn->idle = TURN_GIVEN_UP;
	turn->idle_since = now;
}

/* Lines R2 to R4: the known time, given that a release took "took". */
static int32_t
smooth_release(int32_t known, int64_t took)
{
	int32_t		more;

	if (took > TURN_MAX_IDLE)
		took = TURN_MAX_IDLE;
	if (took <= 0)
		return known;
	if (known == 0)
		return (int32_t) took;
	more = (int32_t) took - known;
	if (more <= 0)
		return known + more / 2;
	return known + ((more < known ? more : known) + 3) / 4;
}

/*
 * turn_unknown
 *		The contender is gone, or is to be replaced in one step: nothing is
 *		known of contenders behind it.
 */
void
turn_unknown(Turn *turn)
{
	turn->behind = TURN_UNKNOWN;
}

/*
 * turn_gone
 *		The contender is gone.
 *
 * "release_time" (us) is the known time of a release in this instance, or 0.
 * Returns the new value.
 */
int32_t
turn_gone(Turn *turn, int32_t release_time, int64_t now)
{
	if (turn->idle == TURN_GIVEN_UP)
		release_time = smooth_release(release_time, now - turn->idle_since);
	turn->idle = TURN_LEFT;
	turn->behind = TURN_UNKNOWN;
	return release_time;
}

/*
 * turn_alone
 *		No other contender is behind ours, and the worker will learn of any.
 *
 * An exclusive lock that was contended is about to be given up.  "readers": the
 * lock is shared, and may not be retained; they go on when a writer has left.
 */
void
turn_alone(Turn *turn, bool readers)
{
	if (readers || turn->behind != TURN_CONTENDED)
		turn->behind = TURN_ALONE;
}

/*
 * turn_disconnected
 *		The worker, which watches the queue, has lost its connection: it
 *		learns of no other contender until it has checked again.
 */
void
turn_disconnected(Turn *turn)
{
	if (turn->behind == TURN_ALONE)
		turn->behind = TURN_ASKED;
}

/*
 * turn_contended
 *		Others wait behind our contender.
 *
 * "idle": the instance owns the lock and nobody holds it; "taker" and
 * "waiting" are as in TurnInput.  Returns TURN_KEEP or TURN_GIVE_UP.
 */
TurnDecision
turn_contended(Turn *turn, bool idle, bool taker, int waiting, int64_t now)
{
	if (turn->behind == TURN_ALONE && turn->contested == 0)
		begin_turn(turn, waiting, now);
	turn->behind = TURN_CONTENDED;
	if (idle && !taker)
		return TURN_GIVE_UP;
	if (idle && turn->idle == TURN_RETAINED)
	{
		turn->idle = TURN_HANDED_ON;
		turn->idle_since = now;
	}
	return TURN_KEEP;
}

/*
 * turn_unwatched
 *		The queue is watched no more, and the worker has not been asked to: it
 *		is new, and the old mail has been discarded; or our readers' queue has
 *		changed.
 */
void
turn_unwatched(Turn *turn)
{
	if (turn->behind != TURN_CONTENDED)
		turn->behind = TURN_UNKNOWN;
}

/*
 * turn_take_ask
 *		Is the worker, which opens its mail, to watch the queue?  Returns
 *		true once.
 */
bool
turn_take_ask(Turn *turn)
{
	if (turn->behind != TURN_TO_ASK)
		return false;
	turn->behind = TURN_ASKED;
	return true;
}

/*
 * Lines D8 to D10, and T5: others wait, or soon will.  Is any backend due
 * before them?
 */
static bool
some_are_due(Turn *turn, const TurnInput *in)
{
	int64_t		lasted = in->now - turn->start;

	int64_t		releases = turn->again ? 1 : TURN_RELEASES;

	if (turn->due <= 0 && (lasted < in->quantum / TURN_PART ||
						   lasted < releases * in->release_time))
	{
		turn->due = in->waiting;
		turn->again = true;
	}
	return turn->due > 0;
}

/* Lines D1 to D4 and D6 to D12: does the instance go on with the lock? */
static bool
goes_on(Turn *turn, const TurnInput *in)
{
	int64_t		lasted = in->now - turn->start;

	if (!in->taker && !in->mail_waiting)
		return false;
	if (ZK_MUTATED(ZK_QUANTUM_FORGOTTEN) && in->taker)
		return true;
	if (turn->behind == TURN_ALONE && turn->contested == 0)
		return true;
	if (turn->behind == TURN_CONTENDED || turn->contested > 0)
		return in->taker && lasted < in->quantum && some_are_due(turn, in);
	return lasted < in->quantum;
}

/*
 * turn_dropped
 *		The last holder gives the slot back.
 *
 * Reads all of "in".  Returns any decision but TURN_KEEP.  Unless it is
 * TURN_GIVE_UP, the slot is idle from "now" on.
 */
TurnDecision
turn_dropped(Turn *turn, const TurnInput *in)
{
	TurnDecision decision = TURN_GIVE_UP;

	if (in->permit || in->writer_behind || ZK_MUTATED(ZK_NOT_HANDED_ON))
		return TURN_GIVE_UP;
	if (turn->start == 0)
		begin_turn(turn, in->waiting, in->now);
	if (!in->taker && turn->behind == TURN_ALONE && in->retain_time > 0 &&
		in->room)
		decision = TURN_RETAIN;
	else if (goes_on(turn, in))
		decision = in->taker ? TURN_HAND_ON : TURN_LEAVE;
	if (decision == TURN_GIVE_UP)
		return decision;

	turn->due--;
	turn->idle_since = in->now;
	turn->idle = decision == TURN_RETAIN ? TURN_RETAINED :
		decision == TURN_LEAVE ? TURN_LEFT : TURN_HANDED_ON;
	if (decision == TURN_HAND_ON && turn->behind == TURN_UNKNOWN &&
		turn->contested == 0 && !in->readers)
	{
		turn->behind = TURN_TO_ASK;
		decision = TURN_HAND_ON_AND_ASK;
	}
	return decision;
}

/*
 * turn_unwanted
 *		The last backend that wanted an idle slot no longer wants it.
 *
 * "retain_time" (us) is as in TurnInput, here and below.
 * Returns TURN_KEEP or TURN_GIVE_UP.
 */
TurnDecision
turn_unwanted(const Turn *turn, int64_t retain_time, int64_t now)
{
	return retain_time > 0 && turn->behind != TURN_CONTENDED &&
		now < keep_until(turn, retain_time) ? TURN_KEEP : TURN_GIVE_UP;
}

/*
 * turn_mail_opened
 *		The worker finds an idle slot in its mail.
 *
 * Returns TURN_KEEP or TURN_GIVE_UP.
 */
TurnDecision
turn_mail_opened(const Turn *turn, bool taker, int64_t retain_time,
				 int64_t now)
{
	return taker || now < keep_until(turn, retain_time) ?
		TURN_KEEP : TURN_GIVE_UP;
}

/*
 * turn_checked
 *		The worker checks whether a slot has been idle for too long.
 *
 * The backends that it was kept for may not come, or may wait for something
 * else first; other instances must not wait for them.  Returns TURN_GIVE_UP;
 * or TURN_KEEP, and sets *check_at to when to check again.
 */
TurnDecision
turn_checked(const Turn *turn, int64_t retain_time, int64_t now,
			 int64_t *check_at)
{
	int64_t		until = keep_until(turn, retain_time);

	if (now >= until)
		return TURN_GIVE_UP;
	*check_at = until;
	return TURN_KEEP;
}

/*
 * turn_is_proved
 *		Is an idle slot known well enough to be ours to be taken?
 *
 * The session cannot have ended before "lease_until" (us).  If the result is
 * false, the session must be proved alive first.
 */
bool
turn_is_proved(const Turn *turn, int64_t retain_time, int64_t lease_until,
			   int64_t now)
{
	if (turn->idle == TURN_GRANTED || now < lease_until)
		return true;
	return retain_time == 0 && now < keep_until(turn, 0) + TURN_MAX_IDLE;
}
