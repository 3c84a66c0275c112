/*
 * claims.pml: claims in use and ending, src/shared/claims.c
 *
 * One claim of a lock, transactions that use it by its token, and a taker of
 * the same lock.  Each atomic step is a stretch under the partition lock of the
 * slot, or an event outside: a tick, the end of the session, a COMMIT.  A tick
 * ends the ttl; renewals start it again; the holder of the token, an
 * administrator, or the loss of the session ends the claim.  The instance
 * learns of that loss later than it comes; until then only the lease tells.
 * What is checked: the lock goes to the taker only when the claim has ended and
 * no transaction uses it, or when the session has ended; a transaction that
 * uses the claim commits only under the lock; a renewal that returned true was
 * true; and (LTL) a claim whose time is over goes, so that the taker gets the
 * lock.
 *
 * DROP_... leaves out one condition: see src/proof.md.
 */
#ifndef USERS
#define USERS	2
#endif
#ifndef TTL
#define TTL		2
#endif

/* The state of the claim's entry; FREE: it has ended */
mtype = { RESERVED, LIVE, FREE };
mtype claim = RESERVED;
byte left = TTL;				/* ticks until entry->end_us */

bool lease = true;				/* lease_read_ms() */
bool lost;						/* the session has ended */
bool reported;					/* proc->lost: the instance knows */

mtype = { OUT, USES, CHECKED };
mtype claimer = USES;			/* the transaction of zk_claim() */
mtype user[USERS] = OUT;		/* transactions that use the claim */
bool ends[USERS];				/* hold_end_claim() */
byte uses;						/* slot->nholding, but for the claim's own */
bool taker;						/* has the lock */
bool waits;						/* the taker */

#define OVER	(left == 0)		/* claim_is_over() */
#define FOUND	(claim == LIVE && !reported && !OVER)	/* lock_live() */

/* slot->nholding == 0, or the slot of another session */
#ifdef DROP_USE_KEEPS
#define UNHELD	(claim == FREE)
#else
#define UNHELD	(claim == FREE && uses == 0)
#endif

/* The lease covers what lies between the check and the commit record. */
#ifdef DROP_LEASE
#define UNCOVERED	true
#else
#define UNCOVERED	(claimer != CHECKED && user[0] != CHECKED && user[1] != CHECKED)
#endif

/* check_holds(): slot_begin_commit(), is_session_proved() */
#ifdef DROP_CHECK
#define PASSES	true
#else
#define PASSES	(!reported && lease)
#endif

/* end_entry() */
inline end_entry()
{
	claim = FREE;
	printf("the claim has ended; %d transactions use it\n", uses)
}

/* claim_leave() */
inline leave(u, also)
{
	if
	:: claim == LIVE && !reported && ((also) || (uses == 1 && OVER)) -> end_entry()
	:: else
	fi;
	user[u] = OUT;
	ends[u] = false;
	uses--
}

/* The transaction of zk_claim(), which has called claim_reserve() */
proctype Claimer()
{
end:
	do
	:: atomic { claimer == USES && PASSES -> claimer = CHECKED; printf("the claimer passes the check\n") }
	/* become_claim(): claim_begin(); the lease excludes a loss since the check */
	:: atomic { claimer == CHECKED ->
		assert(!taker && !lost);
		claimer = OUT;
		claim = LIVE;
		left = TTL;
		printf("COMMIT: the hold becomes the claim\n")
	}
	/* drop_held(): claim_cancel() */
	:: atomic { claimer == USES -> claimer = OUT; claim = FREE; printf("ROLLBACK: the claim never was\n") }
	od
}

proctype User(byte u)
{
end:
	do
	/* zk_use_claim(): claim_use() */
	:: atomic { user[u] == OUT && FOUND ->
		user[u] = USES;
		uses++;
		printf("transaction %d uses the claim\n", u)
	}
	:: atomic { user[u] == USES && PASSES -> user[u] = CHECKED; printf("transaction %d passes the check\n", u) }
	/* COMMIT: drop_held() */
	:: atomic { user[u] == CHECKED ->
		assert(!taker && !lost);
		printf("transaction %d has committed\n", u);
		leave(u, ends[u])
	}
	/* ROLLBACK, also because the check fails: the claim is not ended by it */
	:: atomic { user[u] == USES -> printf("transaction %d rolls back\n", u); leave(u, false) }
#ifndef PROGRESS
	/* zk_end_claim() in a transaction that has changed anything */
	:: atomic { user[u] == USES && !ends[u] -> ends[u] = true; printf("transaction %d is to end the claim at its COMMIT\n", u) }
#endif
	od
}

/* Who has the token, and the administrator. */
proctype Holder()
{
end:
	do
	/* zk_renew_claim(): claim_renew() */
#ifdef DROP_RENEW_CHECK
	:: atomic { claim != RESERVED && lease ->
#else
#ifdef DROP_RENEW_LEASE
	:: atomic { FOUND ->
#else
	:: atomic { FOUND && lease ->
#endif
#endif
		printf("the claim is renewed\n");
		assert(claim == LIVE && !OVER && !taker && !lost);
		left = TTL
	}
	/* zk_end_claim(): claim_end() */
	:: atomic { FOUND -> end_entry() }
	/* zk_cancel_holders(): claim_end_of(), slot_cancel_holders(); slots_retire() */
	:: atomic { claim == LIVE && !reported -> end_entry() }
	od
}

/* What the worker looks at: look_at_entry(). */
proctype Worker()
{
end:
	do
	:: atomic { claim == LIVE && reported -> end_entry() }
	/* one that is in use is left to the last of its users */
	:: atomic { claim == LIVE && !reported && OVER && uses == 0 -> end_entry() }
	od
}

/* Time, the session, and its lease. */
proctype Outside()
{
end:
	do
	:: atomic { claim == LIVE && left > 0 -> left--; printf("a tick\n") }
#ifndef PROGRESS
	:: atomic { lease && UNCOVERED -> lease = false; printf("the lease is over\n") }
	:: atomic { !lease && !lost -> lease = true; printf("ZooKeeper confirms the session\n") }
	:: atomic { !lease && !lost -> lost = true; printf("the session ends\n") }
	/* the loss of a lock: proc->lost */
	:: atomic { lost && !reported -> reported = true; printf("the instance learns that the session has ended\n") }
#endif
	od
}

/* Another backend or, after the end of the session, anybody. */
proctype Taker()
{
	waits = true;
end:
	atomic { UNHELD || lost ->
		printf("the taker has the lock\n");
		assert(lost || (uses == 0 && claim == FREE));
		waits = false;
		taker = true
	}
}

#ifdef PROGRESS
ltl goes { [] (waits -> <> taker) }
#endif

init
{
	byte u;

	atomic {
		run Claimer();
		do
		:: u < USERS -> run User(u); u++
		:: else -> break
		od;
#ifndef PROGRESS
		run Holder();
#endif
		run Worker();
		run Outside();
		run Taker()
	}
}
