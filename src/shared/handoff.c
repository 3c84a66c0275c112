/*-------------------------------------------------------------------------
 *
 * handoff.c
 *		When a cluster keeps a lock that a backend drops, and when it lets go.
 *
 * The last holder may leave the lock to the next local backend: a handoff.
 * At the first handoff the slot asks the worker to watch the queue, and while
 * nobody else waits, handoffs go on.  While others wait (the lock is
 * contended), or while that is not known, handoffs go on within
 * zklock.handoff_quantum of the first.  If others wait, or did of late
 * ("contested": they may be about to come again), the turn ends as soon as all
 * backends that waited here when it began have had the lock, and a part of the
 * quantum has passed.
 *
 * A lock that no backend wants is given up.  But while the worker has a flight
 * out, and other mail waits for the next, the lock is only left idle until the
 * worker opens the mail: a backend that wants it before that takes it back.
 * Or it is retained, for zklock.retain_time.  So that this keeps no other
 * cluster waiting, the worker then watches the queue; the znode of a contender
 * that may be retained says so, and a contender that finds it ahead does not
 * take it for a holder at once.
 *
 * These functions decide from their arguments and the settings alone, and
 * change nothing but the ZkHandoff.  The caller holds the partition lock of
 * the slot, exclusively to change anything.  All times are in microseconds, as
 * of zk_now_us().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/handoff.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/handoff.h"
#include "shared/settings.h"

/*
 * The part of zklock.handoff_quantum for which a turn goes on in any case: to
 * let others have the lock and get it back takes its time, too.
 */
#define TURN_PART		10

static int64
quantum(void)
{
	return (int64) zklock_handoff_quantum * 1000;
}

static int64
retain_time(void)
{
	return (int64) zklock_retain_time * 1000;
}

static void
begin_turn(ZkHandoff *handoff, int nwanting, int64 now)
{
	handoff->turn_start = now;
	handoff->turn_due = nwanting;
}

/* May the turn of this cluster go on, though others wait behind it? */
static bool
turn_goes_on(const ZkHandoff *handoff, int64 now)
{
	int64		lasted = now - handoff->turn_start;

	if (lasted >= quantum())
		return false;
	return lasted < quantum() / TURN_PART || handoff->turn_due > 0;
}

/*
 * May a slot that nobody wants be retained?  Not if what nobody uses would
 * leave no room for others.
 */
static bool
may_retain(const ZkHandoff *handoff, const ZkHandoffInput *input)
{
	return input->retain && zklock_retain_time > 0 && handoff->watched &&
		input->room;
}

/*
 * handoff_granted
 *		The contender owns the lock; "queued" tells whether it stood behind
 *		others.
 */
void
handoff_granted(ZkHandoff *handoff, bool queued, int64 now)
{
	handoff->turn_start = 0;
	if (queued)
		handoff->contested = 2;
	else if (handoff->contested > 0)
		handoff->contested--;
	handoff->keep_until = now + ZK_MAX_IDLE;
}

/*
 * handoff_end
 *		The contender is gone, and with it what was known of others behind it.
 */
void
handoff_end(ZkHandoff *handoff)
{
	handoff->watched = false;
	handoff->contended = false;
	handoff->watch_wanted = false;
	handoff->watch_asked = false;
}

/*
 * handoff_goes_on
 *		May the last holder leave the slot idle, rather than give it up?
 */
bool
handoff_goes_on(ZkHandoff *handoff, const ZkHandoffInput *input, int64 now)
{
	if (handoff->turn_start == 0)
		begin_turn(handoff, input->nwanting, now);
	if (!input->taker && may_retain(handoff, input))
		return true;
	if (!input->taker && !input->mail_waiting)
		return false;
	if (handoff->watched && !handoff->contested)
		return true;
	if (handoff->contended || handoff->contested)
		return input->taker && turn_goes_on(handoff, now);
	return now - handoff->turn_start < quantum();
}

/*
 * handoff_leave_idle
 *		The last holder leaves the slot idle.
 *
 * Returns whether the worker must see the slot: to give it up, if no backend
 * can take it and it is not retained; or else to watch the queue.
 */
bool
handoff_leave_idle(ZkHandoff *handoff, const ZkHandoffInput *input, int64 now)
{
	handoff->turn_due--;
	if (!input->taker)
	{
		bool		retained = may_retain(handoff, input);

		handoff->keep_until = now + (retained ? retain_time() : 0);
		return !retained;
	}
	handoff->keep_until = now + ZK_MAX_IDLE;
	if (handoff->watched || handoff->contended || handoff->contested ||
		handoff->watch_asked || input->shared)
		return false;
	handoff->watch_asked = true;
	handoff->watch_wanted = true;
	return true;
}

/*
 * handoff_is_retained
 *		Is an idle slot to be kept although nobody wants it?
 */
bool
handoff_is_retained(const ZkHandoff *handoff, bool retain, int64 now)
{
	return retain && !handoff->contended && now < handoff->keep_until;
}

/*
 * handoff_needs_lease
 *		May an idle slot be taken only while the lease runs?
 *
 * A cluster that was cut off may not have heard of its loss.  The commit check
 * is enough for a grant and for a handoff that takes a moment; but a slot that
 * is retained, or that a worker which is held up has not come to, may have
 * been idle for long.
 */
bool
handoff_needs_lease(const ZkHandoff *handoff, bool retain, int64 now)
{
	return handoff->turn_start != 0 &&
		(retain || now >= handoff->keep_until + ZK_MAX_IDLE);
}

/*
 * handoff_take_watch_wanted
 *		Is the worker to watch the queue?  Answers once.
 */
bool
handoff_take_watch_wanted(ZkHandoff *handoff)
{
	bool		wanted = handoff->watch_wanted;

	handoff->watch_wanted = false;
	return wanted;
}

/*
 * handoff_set_watched
 *		The worker hears when others come to stand behind our contender; or
 *		not any more.
 */
void
handoff_set_watched(ZkHandoff *handoff, bool watched)
{
	handoff->watched = watched && !handoff->contended;
}

/*
 * handoff_forget_watch
 *		The worker that watched, or was asked to, is no more.
 */
void
handoff_forget_watch(ZkHandoff *handoff)
{
	handoff->watched = false;
	handoff->watch_asked = false;
}

/*
 * handoff_set_contended
 *		Others wait behind our contender.
 */
void
handoff_set_contended(ZkHandoff *handoff, int nwanting, int64 now)
{
	if (handoff->watched && !handoff->contested)
		begin_turn(handoff, nwanting, now);
	handoff->watched = false;
	handoff->contended = true;
	/* it may have been retained before a backend came that can take it */
	handoff->keep_until = Min(handoff->keep_until, now + ZK_MAX_IDLE);
}

/*
 * handoff_bound_retained
 *		Retain the slot no longer than zklock.retain_time from now, which may
 *		have become shorter.
 */
void
handoff_bound_retained(ZkHandoff *handoff, int64 now)
{
	handoff->keep_until = Min(handoff->keep_until, now + retain_time());
}
