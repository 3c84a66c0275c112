/*
 * lease.pml: the lease of src/core/lock/lease.c, and the check ahead of COMMIT
 *
 * The leader ends a session that it has not heard of for T ticks.  It sends a
 * ping each PING ticks; the follower that the client is connected to notes when
 * it hears of the client, and tells the leader in its answer (pong).  Requests
 * are worked on by the leader, but do not prolong the session.  The links take
 * any time and keep the order.  The client relies on what it sees itself: four
 * requests in a row prove the session until LEASE ticks after the first was sent
 * (lease_prove()).
 *
 * Events of one tick come in any order.  The client's clock is once a tick too
 * slow or too fast.  The leader is stopped once, for any time; when it
 * goes on, it sends a ping and ends sessions within that tick.  The process
 * that commits is paused nowhere between its check and its commit record.
 * What is checked: the session has not ended while the lease runs, and none has
 * ended when a commit record is written.
 *
 * DROP_... leaves out one condition: see src/proof.md.
 */
#define T		8
#define PING	2
#ifdef DROP_MARGIN
#define LEASE	T				/* LEASE_OF_FOUR() without the 5 % */
#else
#define LEASE	(T - 1)
#endif
#ifdef DROP_PING_INTERVAL
#define DISTANCE	0
#else
#define DISTANCE	(PING + 2)	/* PING_INTERVAL(): a tick more, and one for the clock */
#endif
#ifdef DROP_WAKE_TIME
#define WAKE	0
#else
#define WAKE	1				/* WAKE_TIME() */
#endif
#ifdef DROP_FOURTH
#define PROOFS	3
#else
#define PROOFS	4
#endif
#ifndef ROOM
#define ROOM	3				/* messages on a link; more, and it breaks */
#endif

mtype = { PINGS, ANSWER, PONG, TOUCHED, REQUEST };
chan down = [ROOM] of { mtype };	/* leader to follower */
chan up = [ROOM] of { mtype };	/* follower to leader */
bool broken;					/* the connection, for good */

/* leader */
bool stopped;
bool was_stopped;
byte ping_age;
byte heard_age;					/* since the leader heard of the session */
bool ended;						/* the session */
/* follower */
bool touched;					/* has heard of the client since the last pong */

/* client: its clock, and the requests of one proof */
bool wrong;						/* the clock was, once */
byte proofs;					/* requests of this proof that are answered */
bool sending, answered;			/* a request, an answer, between client and follower */
bool out;						/* a request is somewhere */
byte age;						/* since the first was sent, by the client's clock */
byte since;						/* since the last answer */
byte lease;						/* ticks left: lease->until */

/* committing process */
bool waits;						/* in check_holds(), without a lease */
bool passed;					/* has passed the check */

#define UNTIL(x, end)	((x) < (end) -> (x) : (end))

/* The client's clock goes on by n. */
inline clock(n)
{
	age = (proofs > 0 || out -> UNTIL(age + n, LEASE + 1) : 0);
	since = (proofs == 0 || out -> 0 : UNTIL(since + n, (proofs == 1 -> DISTANCE : WAKE)));
	lease = (lease > n -> lease - n : 0);
	/* a lease that has run out is of no use: begin a proof anew */
	if
	:: age > LEASE && !out -> proofs = 0; age = 0; since = 0
	:: else
	fi
}

#ifdef DROP_NO_PAUSE
#define RUNNING	true
#else
#define RUNNING	!passed			/* the process in its commit is not paused */
#endif
#ifdef DROP_CHECK
#define PROVED	true
#else
#define PROVED	(lease > 0)		/* is_session_proved() */
#endif

#ifdef PROGRESS
/* nothing that can be done at once takes a tick */
#define QUIET	(empty(up) && empty(down) && !sending && !answered && !stopped && \
				 !(waits && PROVED) && \
				 (ended || out || (proofs > 0 && since < (proofs == 1 -> DISTANCE : WAKE))))
#else
#define QUIET	true
#endif

/* A tick passes: nothing that is due is left, and nobody is in his commit. */
proctype Clock()
{
	do
	:: atomic { QUIET && (stopped || broken || ping_age < PING) &&
			(stopped || heard_age < T || ended) && RUNNING ->
		ping_age = UNTIL(ping_age + 1, PING);
		heard_age = (ended -> 0 : UNTIL(heard_age + 1, T));
		if
		:: clock(1); printf("a tick\n")
		:: !wrong -> wrong = true; printf("a tick, the client's clock stands still\n")
		:: !wrong -> clock(2); wrong = true; printf("a tick, the client's clock goes on by two\n")
		fi;
		assert(!(ended && lease > 0))
	}
	od
}

proctype Leader()
{
	do
	:: atomic { !stopped && !broken && ping_age == PING ->
		ping_age = 0;
		if
		:: nfull(down) -> down!PINGS; printf("leader: ping\n")
		:: full(down) -> broken = true; printf("the link breaks\n")
		fi
	}
	:: atomic { !stopped && !broken && nempty(up) ->
		if
#ifdef DROP_LINKS_IN_ORDER
		:: up??[REQUEST] -> up??REQUEST; goto request
#endif
		:: up?PONG; printf("leader: a pong without the session\n")
		:: up?TOUCHED;
			heard_age = 0;
			printf("leader: a pong with the session\n")
		:: up?REQUEST ->
#ifdef DROP_LINKS_IN_ORDER
request:
#endif
			if
			:: ended -> broken = true; printf("leader: refuses a request, the session has ended\n")
			:: else ->
				if
				:: nfull(down) -> down!ANSWER; printf("leader: works on a request\n")
				:: full(down) -> broken = true; printf("the link breaks\n")
				fi
			fi
		fi
	}
	:: atomic { !stopped && !ended && heard_age == T ->
		ended = true;
		printf("leader: ends the session\n");
		assert(lease == 0)
	}
	:: atomic { !was_stopped ->
		was_stopped = true;
		stopped = true;
		printf("leader: stopped\n")
	}
	:: atomic { stopped -> stopped = false; printf("leader: goes on\n") }
	od
}

proctype Follower()
{
	do
	:: atomic { !broken && nempty(down) && nfull(up) ->
		if
		:: down?PINGS ->
			if
			:: touched -> up!TOUCHED
			:: else -> up!PONG
			fi;
			touched = false;
			printf("follower: answers a ping\n")
		:: down?ANSWER -> answered = true; printf("follower: an answer for the client\n")
		fi
	}
	:: atomic { !broken && sending && nfull(up) ->
		sending = false;
		touched = true;
		up!REQUEST;
		printf("follower: hears of the client\n")
	}
	od
}

/* lease_prove() */
proctype Client()
{
	do
	:: atomic { !broken && !out && (proofs == 0 ||
			(proofs == 1 && since >= DISTANCE) ||
			(proofs == 2 && since >= WAKE) || proofs == 3) ->
		if
		:: proofs == 0 -> age = 0
		:: else
		fi;
#ifdef DROP_FROM_THE_FIRST
		age = 0;
#endif
		sending = true;
		out = true;
		printf("client: sends request %d of a proof\n", proofs + 1)
	}
	:: atomic { answered ->
		answered = false;
		out = false;
		since = 0;
		proofs++;
		if
		:: proofs == PROOFS ->
			lease = (age < LEASE && LEASE - age > lease -> LEASE - age : lease);
			proofs = 0;
			age = 0;
			printf("client: the lease runs for %d ticks\n", lease);
			assert(!(ended && lease > 0))
		:: else -> printf("client: an answer\n")
		fi
	}
	od
}

/* check_holds(); the slot tells of a session that has ended. */
proctype Committer()
{
	do
	:: atomic { !waits && !passed -> waits = true; printf("a transaction is about to commit\n") }
	:: atomic { waits && PROVED ->
		waits = false;
		passed = true;
		printf("it passes the check\n")
	}
	:: atomic { passed ->
		printf("it has committed\n");
		assert(!ended);
		passed = false
	}
	:: atomic { waits && ended -> waits = false; printf("it fails: the lock is lost\n") }
	:: atomic { waits && broken -> waits = false; printf("it fails: commit_timeout\n") }
	od
}

#ifdef PROGRESS
ltl commits { [] (waits -> <> !waits) }
#endif

init
{
	atomic {
		run Clock();
		run Leader();
		run Follower();
		run Client();
		run Committer()
	}
}
