/*-------------------------------------------------------------------------
 *
 * turn.c
 *		When an instance keeps a lock, and when it lets others have it.
 *
 * An instance that owns a lock may hand it on from backend to backend without
 * a word to ZooKeeper: that is what makes a hot lock fast.  Contenders of
 * other instances wait meanwhile, so this must come to an end.  Each slot has
 * a Turn: what the instance knows of others behind its contender, since when
 * its turn lasts, and why the slot is idle.  The functions below take an
 * event, change the Turn, and say what is to become of the slot.  Nothing here
 * knows PostgreSQL or ZooKeeper, reads a clock or a setting, or takes a lock:
 * the caller holds what guards the slot, and does as it is told.
 *
 * The rules in short.  While nobody else waits, and the worker would hear of it
 * if somebody did (alone), handoffs go on.  While that is not known they go on
 * for zklock.handoff_quantum.  When others do wait (contended), or did of late
 * (contested: those that were ahead of us are about to come again), the turn
 * also ends as soon as all who waited here at its beginning have had the lock,
 * and the turn has been long enough; until then, all who wait are due again.  A
 * lock that no backend can take is given up, unless nobody else waits and it
 * may be retained, or the worker could not send anything now anyway.
 *
 * What is long enough depends on how long it takes to release a lock in
 * ZooKeeper.  While the lock goes from one instance to the next, nobody has
 * it.  With turns of length t and handovers of length h, the part t / (t + h)
 * of the time is of use, over any number of instances.  A release takes about
 * as long as a handover: the one ends when its answer has come back, the
 * other when the next instance has heard of it.  So a turn lasts for at least
 * one release, and half of the time is of use.  There is a second round
 * unless the first one was as long as two releases: in two rounds, a backend
 * waits as often for the turns of others as for its neighbours, so that the
 * usual wait is still a long one, and the longest not far from it.  A third
 * would make most waits short, and the others longer.
 *
 * An instance that releases slowly takes longer turns than one that releases
 * fast: the others wait for them about as long as they wait for its handovers
 * in any case, and never longer than the quantum.  The time counts from when
 * the slot is given up, so it does not matter for how long backends hold the
 * lock, nor how many instances there are.  It is smoothed so that one slow
 * release matters little, and not for long: it can add a quarter of what is
 * known, and the next goes half of the way back.
 *
 * The table.  In each group the first line that fits counts; a line that says
 * nothing of a field leaves it alone.  test_turn.c has a test for each line, by
 * its name.
 *
 *	behind: what is known of others behind our contender
 *	B1	granted, retainable, not contended	-> alone (the worker watches the
 *											   queue from the beginning)
 *	B2	granted, else						-> as it is
 *	B3	handed on; unknown, not contested, not readers
 *											-> to ask
 *	B4	the worker takes the question		to ask -> asked
 *	B5	alone (told by the worker)			-> alone, unless contended
 *	B6	unheard: the connection is lost		alone -> asked (the worker looks
 *											   again when it has one)
 *	B7	contended (told by the worker)		-> contended
 *	B8	a new worker						-> unknown, unless contended: it
 *											   knows of no question
 *	B9	the contender is gone				-> unknown
 *
 *	contested: may others be about to come again?
 *	C1	granted, and we had to queue		2: for this grant and the next
 *	C2	granted at once						one less
 *
 *	the turn's beginning, and who is due
 *	T1	granted								none has begun
 *	T2	dropped, none has begun				now; all who wait are due
 *	T3	contended, and we were alone, and not contested
 *											now, anew; all who wait are due
 *	T4	dropped, and not given up			one less is due
 *	T5	dropped, D8, and none is due		ahead of T4: all who wait are
 *											due again
 *
 *	how long a release takes, from when an owned slot is given up until its
 *	contender is gone (or another has its place, made in the same step); at most
 *	TURN_MAX_IDLE
 *	R1	gone, not given up as an owner		as it is
 *	R2	gone; nothing is known				that time
 *	R3	gone; longer than known				a quarter of the way, but at most
 *											a quarter more than known
 *	R4	gone; not longer					half of the way
 *
 *	dropped: the last holder gives the slot back
 *	D1	a permit, which is one backend's own	give up
 *	D2	a writer waits behind our readers		give up
 *	D3	no taker; alone, retainable, room, and a retain time
 *												retain
 *	D4	no taker, no other mail waits			give up
 *	D5	alone, not contested					go on
 *	D6	contended or contested, no taker		give up
 *	D7	contended or contested, quantum over	give up
 *	D8	contended or contested, not over yet: a TURN_PART-th of the quantum;
 *		the time of R; in the first round TURN_RELEASES times that
 *												go on
 *	D9	contended or contested, some are due	go on
 *	D10	contended or contested, none is due		give up
 *	D11	quantum not over						go on
 *	D12	quantum over							give up
 *	  "Go on" is to hand on to the taker, or, without one, to leave the slot to
 *	  the worker's mail.
 *
 *	idle: until when is the slot kept?
 *	K1	granted, handed on		TURN_MAX_IDLE
 *	K2	left, given up			not at all
 *	K3	retained				as long as zklock.retain_time is now
 *
 *	idle: what becomes of it?
 *	I1	contended, no taker					give up
 *	I2	contended, retained, a taker		keep; handed on, from now on
 *	I3	contended, else						keep
 *	I4	nobody wants it; retainable, not contended, and the time of K is not
 *		over								keep
 *	I5	nobody wants it, else				give up
 *	I6	mail opened, no taker, the time of K is over
 *											give up
 *	I7	mail opened, else					keep
 *	I8	checked, the time of K is not over	keep; check again when it is
 *	I9	checked, for a ready backend that wants others with it
 *											keep; check again after
 *											TURN_MAX_IDLE
 *	I10	checked, else						give up
 *
 *	proof: is an idle slot known well enough to be ours?  An instance that was
 *	cut off may not have heard of its loss.  Recent handoffs, and grants, rely
 *	on the commit's check; what is retained, or what a worker that is held up
 *	has not come to, may have been idle for long.
 *	P1	granted								yes P2	the lease
 *	runs						yes P3	retainable							no
 *	P4	TURN_MAX_IDLE after the time of K is not over
 *											yes
 *	P5	else								no
 *
 * That the worker is to be asked, and has not been, is a value of its own, and
 * not a mark beside the others: the mail says only that there is something to
 * see, and what that is follows from the slot.  So the question is overtaken by
 * whatever is learnt before the mail is opened, and a new worker needs no old
 * mail.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/turn.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/turn.h"

/* For so many grants, from one on for which we had to queue, see C1. */
#define CONTESTED_GRANTS	2

static void
begin_turn(Turn *turn, int waiting, int64_t now)
{
	turn->start = now;
	turn->due = waiting;
	turn->again = false;
}

/* Lines K: until when is an idle slot not given up? */
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
 * "queued": it had to wait behind others; "retainable": its data say that it
 * may be retained, and so the worker watches the queue.  Returns when to call
 * turn_checked(), if nobody is ready to take the lock.
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
		turn_alone(turn);
	return keep_until(turn, 0);
}

/*
 * turn_given_up
 *		The contender, which owns the lock, is to be deleted.
 */
void
turn_given_up(Turn *turn, int64_t now)
{
	turn->idle = TURN_GIVEN_UP;
	turn->idle_since = now;
}

/* Lines R2 to R4: what is known when a release has taken so long. */
static int32_t
smooth_release(int32_t known, int64_t took)
{
	int32_t		more;

	if (took > TURN_MAX_IDLE)
		took = TURN_MAX_IDLE;
	if (took <= 0)
		return known;			/* no release takes no time */
	if (known == 0)
		return (int32_t) took;
	more = (int32_t) took - known;
	if (more <= 0)
		return known + more / 2;
	return known + ((more < known ? more : known) + 3) / 4;
}

/*
 * turn_unknown
 *		The contender is gone, or is to go in one step with the creation of the
 *		next: nothing is known of who stands behind.
 */
void
turn_unknown(Turn *turn)
{
	turn->behind = TURN_UNKNOWN;
}

/*
 * turn_gone
 *		The contender is no more.
 *
 * "release_time" (us) is how long it takes the instance to release a lock, as
 * far as is known, or 0.  Returns what is known of that now.
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
 *		Nobody stands behind our contender, and the worker will hear if somebody
 *		does.
 */
void
turn_alone(Turn *turn)
{
	if (turn->behind != TURN_CONTENDED)
		turn->behind = TURN_ALONE;
}

/*
 * turn_unheard
 *		The worker, which watches the queue, has lost its connection: it hears
 *		of nobody, until it has looked again.
 */
void
turn_unheard(Turn *turn)
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
 * turn_new_worker
 *		There is another worker now, and the old mail has been thrown away.
 */
void
turn_new_worker(Turn *turn)
{
	if (turn->behind != TURN_CONTENDED)
		turn->behind = TURN_UNKNOWN;
}

/*
 * turn_take_ask
 *		Is the worker, which opens its mail, to watch the queue?  It is told so
 *		once.
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
 * Lines D8 to D10, and T5: others wait, or are about to.  Is any backend due
 * that goes ahead of them?
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

	if (in->permit || in->writer_behind)
		return TURN_GIVE_UP;
	if (turn->start == 0)
		begin_turn(turn, in->waiting, in->now);
	if (!in->taker && turn->behind == TURN_ALONE && in->retainable &&
		in->room && in->retain_time > 0)
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
 *		The last backend that wanted an idle slot does no more.
 *
 * "retainable" and "retain_time" (us) are as in TurnInput, here and below.
 * Returns TURN_KEEP or TURN_GIVE_UP.
 */
TurnDecision
turn_unwanted(const Turn *turn, bool retainable, int64_t retain_time,
			  int64_t now)
{
	return retainable && turn->behind != TURN_CONTENDED &&
		now < keep_until(turn, retain_time) ? TURN_KEEP : TURN_GIVE_UP;
}

/*
 * turn_mail_opened
 *		The worker comes to an idle slot in its mail.
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
 *		The worker looks after an idle slot: has it been idle for too long?
 *
 * The backends that it was kept for do not come, or cannot take it: they wait
 * for something else, and must not keep other instances waiting.  "reserved":
 * a backend is ready for it that wants others together with it.  Returns
 * TURN_GIVE_UP; or TURN_KEEP, and sets *check_at to when to look again.
 */
TurnDecision
turn_checked(const Turn *turn, bool reserved, int64_t retain_time,
			 int64_t now, int64_t *check_at)
{
	int64_t		until = keep_until(turn, retain_time);

	if (now >= until && !reserved)
		return TURN_GIVE_UP;
	*check_at = now < until ? until : now + TURN_MAX_IDLE;
	return TURN_KEEP;
}

/*
 * turn_is_proved
 *		Is an idle slot known well enough to be ours to be taken?
 *
 * "lease_until" (us): until when the session cannot have ended.  If not, the
 * session has to be proved alive first.
 */
bool
turn_is_proved(const Turn *turn, bool retainable, int64_t lease_until,
			   int64_t now)
{
	if (turn->idle == TURN_GRANTED || now < lease_until)
		return true;
	return !retainable && now < keep_until(turn, 0) + TURN_MAX_IDLE;
}
