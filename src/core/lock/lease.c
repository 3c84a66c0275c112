/*-------------------------------------------------------------------------
 *
 * lease.c
 *		Until when the ZooKeeper session cannot have ended.
 *
 * The leader ends a session when it has not heard of it for the session timeout
 * T.  What it hears comes by way of the server that we are connected to (the
 * follower): that notes when a client was heard of, and tells the leader in its
 * answers to the leader's pings, which come every half tick and a little; T is two
 * ticks or more.  A request that the leader has worked on proves that the session was
 * alive then, but does not prolong it.  What can be relied on follows from such
 * requests that were answered ("proofs"), by when we sent them and when we saw
 * the answer, all on one connection:
 *
 *	- Four in a row, the second sent a good T/4 after the answer to the first,
 *	  the third T/50 after the answer to the second, the fourth after the answer
 *	  to the third: the session lives until T after the first was sent.  For
 *	  between working on the first and on the third the leader sent a ping; that
 *	  had reached the follower, which had heard of us by then, when the answer
 *	  to the third did; and the follower's answer went ahead of the fourth.
 *
 *	  That there was a ping: the next one was due T/4 after the first was worked
 *	  on.  If the leader, or its machine, was stopped at that time, for however
 *	  long, it may have found the second waiting when it went on, and worked on
 *	  that ahead of the ping; hence the third.  This takes that a leader that
 *	  goes on lets each of its threads run within T/50, and is not stopped
 *	  again before.  It ends the sessions that are due when it goes on; ours is
 *	  not while the lease runs, since it has been told of us by the fourth.
 *	- One: the session lives until T/50 after it was sent.  The library gives a
 *	  connection up if it hears nothing for 2/3 T, and what the follower has
 *	  heard reaches the leader within T/4.  This takes that the process has run
 *	  all the time, so it does not count within T/4 after it was found to have
 *	  been stopped.  A new connection makes the leader hear of us, so there is
 *	  nothing to wait for then.  It also takes that the link between follower
 *	  and leader has not been cut for most of T, then let our request through,
 *	  and been cut again at once; and that the leader has not been stopped for
 *	  so long, and works on our request ahead of the sessions that are due.
 *	  Hence so short a time: to ask ZooKeeper at the commit is not much better,
 *	  and takes a round trip.  It is for the first locks after a while without
 *	  any.
 *
 * Pings and reads prove nothing, since the follower answers these by itself: it
 * may be cut off from the leader.  T is taken as 5 % less, for clocks that run
 * at different speeds.
 *
 * When a proof was sent is when it was handed to the library, or before that;
 * when it was answered is when we saw the answer, or after.  So what keeps it
 * waiting, here or in the library, makes the lease shorter, and the distances
 * longer than they have to be.
 *
 * An observer that is connected to another server's observerMasterPort is not
 * covered: that server asks it for news by pings of its own, and tells the
 * leader with the next ping of that.  It would take seven proofs, one such
 * distance more, and with heartbeats so far apart all of T (doc/guarantees.md).
 *
 * Nothing here knows PostgreSQL or libzookeeper, so the unit test lets it run
 * against a model of a leader and a follower with links that stall.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/lease.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/lease.h"

#include <string.h>

/* In parts of the session timeout: see the header. */
#define LEASE_OF_FOUR(timeout)	((timeout) - (timeout) / 20)
#define LEASE_OF_ONE(timeout)	((timeout) / 50)
#define PING_INTERVAL(timeout)	((timeout) / 4 + (timeout) / 50)
#define WAKE_TIME(timeout)		((timeout) / 50)

/* A heartbeat is due when there was no other proof for so long. */
#define HEARTBEAT_INTERVAL(timeout) ((timeout) / 10)

/* Proofs closer together than this are not remembered each. */
#define PROOF_INTERVAL(timeout) ((timeout) / 16)

static void
extend(Lease *lease, int64_t until)
{
	if (until > lease->until)
		lease->until = until;
}

/*
 * lease_begin
 *		A client starts, and will connect, not before "now".
 */
void
lease_begin(Lease *lease, int64_t now)
{
	memset(lease, 0, sizeof(*lease));
	lease->awake_at = now;
}

/*
 * lease_disconnect
 *		The connection is lost.  What has been proved holds on.
 */
void
lease_disconnect(Lease *lease)
{
	lease->nproofs = 0;
}

/*
 * lease_forget
 *		The session timeout has become shorter: what was proved is void.
 */
void
lease_forget(Lease *lease)
{
	lease->until = 0;
	lease->nproofs = 0;
}

/*
 * lease_turn
 *		To be called ahead of sending anything, and at the time that the last
 *		call has returned if there is nothing to send.
 *
 * If it is called late, the process has been stopped, and the server may not
 * have heard of us for longer than the library's pings let one expect.
 */
int64_t
lease_turn(Lease *lease, int64_t timeout, int64_t now)
{
	int64_t		distrust_until = now + PING_INTERVAL(timeout);

	if (now - lease->awake_at > PING_INTERVAL(timeout) &&
		lease->distrust_until < distrust_until)
		lease->distrust_until = distrust_until;
	lease->awake_at = now;
	return now + HEARTBEAT_INTERVAL(timeout);
}

/*
 * lease_prove
 *		The leader has worked on a request that was sent at "sent", on the
 *		present connection; the answer is seen "now".
 */
void
lease_prove(Lease *lease, int64_t timeout, int64_t sent, int64_t now)
{
	LeaseProof *last;
	int			kept = 0;

	lease->last_sent = sent;
	if (sent >= lease->distrust_until)
		extend(lease, sent + LEASE_OF_ONE(timeout));

	for (int i = 0; i < lease->nproofs; i++)
	{
		LeaseProof	first = lease->proofs[i];

		if (first.third_answered != 0)
		{
			if (sent >= first.third_answered)
			{
				extend(lease, first.sent + LEASE_OF_FOUR(timeout));
				continue;
			}
		}
		else if (first.second_answered != 0)
		{
			if (sent >= first.second_answered + WAKE_TIME(timeout))
				first.third_answered = now;
		}
		else if (sent >= first.answered + PING_INTERVAL(timeout))
			first.second_answered = now;
		lease->proofs[kept++] = first;
	}
	lease->nproofs = kept;

	last = kept > 0 ? &lease->proofs[kept - 1] : NULL;
	if (last == NULL || (kept < LEASE_MAX_PROOFS &&
						 sent >= last->sent + PROOF_INTERVAL(timeout)))
	{
		last = &lease->proofs[lease->nproofs++];
		last->sent = sent;
		last->answered = now;
		last->second_answered = 0;
		last->third_answered = 0;
	}
}

/*
 * lease_heartbeat_at
 *		When the next proof is due, for the lease to stay ahead.
 */
int64_t
lease_heartbeat_at(const Lease *lease, int64_t timeout)
{
	return lease->last_sent + HEARTBEAT_INTERVAL(timeout);
}
