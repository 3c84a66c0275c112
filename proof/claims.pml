/*
 * claims.pml: claims in use and ending (DESIGN, "Claims")
 *
 * One claim of a lock, transactions that use it by its token, and a local taker
 * of the same lock.  Each atomic step is a stretch under the partition lock of
 * the slot.  A tick of the clock ends the time to live; renewals start it again;
 * the holder of the token, an administrator, or the loss of the session ends the
 * claim.  What is checked: the lock goes to the taker only when the claim has
 * ended and no transaction uses it; a transaction that uses the claim commits
 * only if the lock was not lost; a renewal that returned true was true; and (LTL)
 * a claim whose time is over goes, so that the taker gets the lock.
 *
 * DROP_... leaves out one condition: see doc/proof.md.
 */
#ifndef USERS
#define USERS	2
#endif
#ifndef TTL
#define TTL		2
#endif

mtype = { TAKEN, CLAIMED, ENDING, ENDED };
mtype claim = TAKEN;			/* TAKEN: an ordinary hold until its COMMIT */
byte left = TTL;				/* ticks */
bool lost;						/* the session */

mtype = { OUT, USES, CHECKED };
mtype user[USERS] = OUT;		/* transactions */
byte uses;						/* holds of the slot by users */
bool taker;						/* has the lock */
bool waits;						/* the taker, in tier 1 */

#ifdef DROP_USE_KEEPS
#define FREE	(claim == ENDED || claim == ENDING)
#else
#define FREE	(claim == ENDED && uses == 0)
#endif

#ifdef DROP_LEASE
#define NO_LEASE	true
#else
#define NO_LEASE	(user[0] != CHECKED && user[1] != CHECKED)
#endif

/* The claim ends: at once, or when the last transaction that uses it does. */
inline end_claim()
{
	if
	:: uses == 0 -> claim = ENDED; printf("the claim has ended\n")
	:: else -> claim = ENDING; printf("the claim ends with its last use\n")
	fi
}

inline leave(u)
{
	user[u] = OUT;
	uses--;
	if
	:: uses == 0 && claim == ENDING -> claim = ENDED; printf("the claim has ended\n")
	:: else
	fi
}

/* zk_claim(): its transaction */
proctype Claimer()
{
	atomic {
		if
		:: claim == TAKEN -> claim = CLAIMED; left = TTL; printf("COMMIT: the hold becomes the claim\n")
		:: claim == TAKEN -> claim = ENDED; printf("ROLLBACK: the claim never was\n")
		fi
	}
}

/* zk_use_claim() */
proctype User(byte u)
{
end:
	do
	:: atomic { user[u] == OUT && claim == CLAIMED && !lost ->
		user[u] = USES;
		uses++;
		printf("transaction %d uses the claim\n", u)
	}
	/* check_holds() */
	:: atomic { user[u] == USES ->
		if
#ifdef DROP_CHECK
		:: true -> user[u] = CHECKED; printf("transaction %d passes the check\n", u)
#else
		:: !lost -> user[u] = CHECKED; printf("transaction %d passes the check\n", u)
		:: lost -> user[u] = OUT; uses--; printf("transaction %d fails\n", u)
#endif
		fi
	}
	/* COMMIT; the lease keeps the session between the check and it */
	:: atomic { user[u] == CHECKED ->
		assert(!taker && !lost);
		printf("transaction %d has committed\n", u);
		leave(u)
	}
#ifndef PROGRESS
	/* zk_end_claim() in a transaction that uses it: with its COMMIT */
	:: atomic { user[u] == USES && claim == CLAIMED -> claim = ENDING; printf("the claim ends with its last use\n") }
	:: atomic { user[u] == USES -> leave(u); printf("transaction %d rolls back\n", u) }
#endif
	od
}

/* The holder of the token, and the administrator. */
proctype Holder()
{
end:
	do
#ifndef PROGRESS
	/* zk_renew_claim(): true only while the claim counts */
#ifdef DROP_RENEW_CHECK
	:: atomic { claim != TAKEN ->
#else
	:: atomic { claim == CLAIMED && left > 0 && !lost ->
#endif
		printf("renewed\n");
		assert(claim == CLAIMED && !taker);
		left = TTL
	}
#endif
	/* zk_end_claim(), zk_cancel_holders() */
	:: atomic { claim == CLAIMED -> end_claim() }
	od
}

/* The worker: claims that are overdue, and the session's loss. */
proctype Worker()
{
end:
	do
	:: atomic { claim == CLAIMED && left > 0 -> left--; printf("a tick\n") }
	:: atomic { claim == CLAIMED && left == 0 -> end_claim() }
#ifndef PROGRESS
	/* the session cannot end while a commit is covered by its lease */
	:: atomic { !lost && claim != TAKEN && NO_LEASE ->
		lost = true;
		claim = ENDED;
		printf("the session is lost\n")
	}
#endif
	od
}

/* A local backend that wants the lock: tier 1, then the slot. */
proctype Taker()
{
	waits = true;
end:
	atomic { FREE && !lost ->
		printf("the taker has the lock\n");
		assert(uses == 0 && claim == ENDED);
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
		run Holder();
		run Worker();
		run Taker()
	}
}
