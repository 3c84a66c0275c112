/*-------------------------------------------------------------------------
 *
 * lease.c
 *		Until when the ZooKeeper session cannot have ended.
 *
 * The leader ends a session that it has not heard of for the session timeout
 * T.  It hears of a session through the server that we are connected to (the
 * follower): that server notes when it heard of each client, and reports it in
 * its answers to the leader's pings, which come a little more often than every
 * T/4 (every half tick; T is at least two ticks).  A request that the leader
 * has processed proves that the session was alive then, but does not prolong
 * it.  What such requests ("proofs") guarantee follows from when we sent them
 * and when we saw the answers, all on one connection:
 *
 *	- Four proofs in a row, the second sent a good T/4 after the answer to the
 *	  first, the third T/50 after the answer to the second, the fourth after
 *	  the answer to the third: the session lives until T after the first was
 *	  sent.  For between processing the first and the third the leader sent a
 *	  ping.  The ping had reached the follower, which had heard of us by then,
 *	  when the answer to the third did; and the follower's answer to the ping
 *	  reached the leader before the fourth.
 *
 *	  Why there was a ping: the next one was due T/4 after the first proof was
 *	  processed.  If the leader, or its machine, was stopped at that time, for
 *	  however long, it may have found the second proof waiting when it went
 *	  on, and processed it before the ping; hence the third.  This assumes that
 *	  a resumed leader runs each of its threads within T/50, and is not stopped
 *	  again before.  A resumed leader ends the sessions that are due; ours is
 *	  not due while the lease runs, since the fourth has reported us.
 *	- One proof: the session lives until T/50 after it was sent.  The library
 *	  gives a connection up after hearing nothing for 2/3 T, and the leader
 *	  learns within T/4 what the follower has heard.  This assumes that the
 *	  process has been running, so it does not count within T/4 after the
 *	  process was found to have been stopped; a new connection lifts that,
 *	  since it makes the leader hear of us.  It also assumes that the link
 *	  between follower and leader was not cut for most of T, then restored for
 *	  our request and cut again at once; and that the leader was not stopped
 *	  for so long and processed our request before ending sessions.  Hence so
 *	  short a time.  A check through ZooKeeper at commit would hardly be
 *	  better, and costs a round trip.  This lease is for the first locks after
 *	  a while without any.
 *
 * Pings and reads prove nothing: the follower, which may be cut off from the
 * leader, answers them by itself.  T is reduced by 5 %, for clocks that run at
 * different speeds.
 *
 * A proof counts as sent when it was passed to the library, or earlier; it
 * counts as answered when we saw the answer, or later.  So delays, here or in
 * the library, only make the lease shorter and the distances longer.
 *
 * An observer connected to another server's observerMasterPort is not covered:
 * that server gets its reports by pings of its own, and passes them to the
 * leader with the next ping.  That would take seven proofs and, with
 * heartbeats so far apart, all of T (src/guarantees.md).
 *
 * The unit test runs this file against a model of a leader and a follower with
 * links that stall.
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

#include "core/mutation.h"

/* In parts of the session timeout; see the header. */
#define LEASE_OF_FOUR(timeout)	((timeout) - (timeout) / 20)
#define LEASE_OF_ONE(timeout)	((timeout) / 50)
#define PING_INTERVAL(timeout)	((timeout) / 4 + (timeout) / 50)
#define WAKE_TIME(timeout)		((timeout) / 50)

/* A heartbeat is due after this time without a proof. */
#define HEARTBEAT_INTERVAL(timeout) ((timeout) / 10)

/* Proofs closer together than this are not remembered individually. */
#define PROOF_INTERVAL(timeout) ((timeout) / 16)

static void
extend(Lease *lease, int64_t until)
{
	if (until > lease->until)
		lease->until = until;
}

/* A client starts; it will not connect before "now". */
void
lease_begin(Lease *lease, int64_t now)
{
	memset(lease, 0, sizeof(*lease));
	lease->awake_at = now;
}

/* The connection is lost.  The lease stays valid. */
void
lease_disconnect(Lease *lease)
{
	lease->nproofs = 0;
}

/* The session timeout has become shorter: the lease is void. */
void
lease_forget(Lease *lease)
{
	lease->until = 0;
	lease->nproofs = 0;
}

/*
 * lease_turn
 *		To be called before sending anything and, if there is nothing to
 *		send, at the time that the last call has returned.
 *
 * A late call means that the process was stopped; then the server may not have
 * heard of us for longer than the library's pings suggest.
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
 *		The leader has processed a request that was sent at "sent" on this
 *		connection; the answer was seen "now".
 */
void
lease_prove(Lease *lease, int64_t timeout, int64_t sent, int64_t now)
{
	LeaseProof *last;
	int			kept = 0;

	lease->last_sent = sent;
	if (sent >= lease->distrust_until)
		extend(lease, sent + (ZK_MUTATED(ZK_LEASE_OF_ONE) ?
							  timeout : LEASE_OF_ONE(timeout)));

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

/* When the next proof is due to keep the lease running. */
int64_t
lease_heartbeat_at(const Lease *lease, int64_t timeout)
{
	return lease->last_sent + HEARTBEAT_INTERVAL(timeout);
}
