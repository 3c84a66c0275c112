/*
 * confirm.pml: the confirmation of a deadlock, src/core/deadlock/confirm.c
 *
 * Three instances; a process of each holds a lock and may wait for that of the
 * next one, WAITS times, and AGAIN times of all after the first.  Each wait is
 * published in the holder's note; workers read notes one after the other, probe
 * what looks like a cycle, answer probes, and the victim's instance acts by one
 * multi.  Each atomic step is a change of a process, a look under the lock
 * manager's locks, or a request to ZooKeeper.  What is checked: the waits of a
 * deadlock that is ended have all been there at one moment; no deadlock is ended
 * that a wait ended before was part of; and (LTL) a deadlock that lasts is ended.
 *
 * PRUNE: a probe that can lead to no act any more is given up at once.  Nothing
 * is missed by that: it could be given up at that moment in any case (its
 * deadline), and all that it would do is keep other probes from being created.
 *
 * DROP_... leaves out one condition: see src/proof.md.
 */
#define N		3
#ifndef WAITS
#define WAITS	2
#endif
#ifndef AGAIN
#define AGAIN	N
#endif
#ifndef PROBES
#define PROBES	2
#endif
#define NEXT(i)	(((i) + 1) % N)

/* processes */
byte wait[N];					/* identity of the latest wait, from 1 */
bool waits[N];					/* it lasts */
byte again;						/* waits after the first, of all */
bool victim[N];					/* it was ended as a victim's */

/* ZooKeeper */
byte note[N];					/* the wait in the note of H, or 0 */
byte contender[N];				/* W: the first wait that it was for, or 0 */
bool reused[N];					/* the second wait is for the same contender */

/* the search of an instance: what was read */
byte reads[N];					/* how far */
byte first[N], second[N];

/* probes, with their answers */
bool there[PROBES];
byte edge[PROBES * N];
bool yes[PROBES * N];
bool looked[PROBES];			/* the victim's instance at its own locks */

byte existed;					/* for the check: which deadlocks were there */

#define W_THERE(k, i)	(contender[i] == (EDGE(k, i) == 2 && reused[i] -> 1 : EDGE(k, i)))
#define EDGE(k, i)	edge[(k) * N + (i)]
#define YES(k, i)	yes[(k) * N + (i)]
/* The victim: the process that began last; all agree. */
#define VICTIM(k)	(EDGE(k, 1) > EDGE(k, 0) && EDGE(k, 1) >= EDGE(k, 2) -> 1 : \
					 (EDGE(k, 2) > EDGE(k, 0) -> 2 : 0))
#define BIT(a, b, c)	(1 << (((a) - 1) + 2 * ((b) - 1) + 4 * ((c) - 1)))
#ifdef DROP_IDENTITY
#define SAME(k, i)	waits[i]
#else
#define SAME(k, i)	(waits[i] && wait[i] == EDGE(k, i))
#endif

#define ANSWER(k, i)	(YES(k, i) || VICTIM(k) == i)
#define ANSWERED(k)	(ANSWER(k, 0) && ANSWER(k, 1) && ANSWER(k, 2))
#ifdef DROP_ANSWERS
#define ALL_ANSWERED(k)	true
#else
#define ALL_ANSWERED(k)	ANSWERED(k)
#endif

#ifdef DROP_OWN_LOOK
#define READY(k)	true
#else
#define READY(k)	looked[k]
#endif

byte j;							/* in atomic steps only */

inline over(k)
{
	there[k] = false;
	looked[k] = false;
	j = 0;
	do
	:: j < N -> EDGE(k, j) = 0; YES(k, j) = false; j++
	:: else -> break
	od;
	j = 0
}

inline end_search(i)
{
	reads[i] = 0;
	first[i] = 0;
	second[i] = 0
}

/* Can wait w of process p be in a probe, now or later? */
#if PROBES > 1
#define IN_PROBE(p, w)	(EDGE(0, p) == w || EDGE(1, p) == w)
#else
#define IN_PROBE(p, w)	(EDGE(0, p) == w)
#endif
#define WAS_READ(p, w)	(first[NEXT(NEXT(p))] == w || second[NEXT(p)] == w)
#define NAMED(p, w)	((waits[p] && wait[p] == w) || note[p] == w || \
					 WAS_READ(p, w) || IN_PROBE(p, w))

/* Can probe k lead to no act?  Waits, notes and contenders do not come back. */
#define OVER(k, i)	(!(waits[i] && wait[i] == EDGE(k, i)) && \
					 (VICTIM(k) == i -> !looked[k] : !YES(k, i)))
#define MOVED(k, i)	(!W_THERE(k, i) || (VICTIM(k) != i && note[i] != EDGE(k, i)))
#define HOPELESS(k)	(there[k] && (OVER(k, 0) || OVER(k, 1) || OVER(k, 2) || \
					 MOVED(k, 0) || MOVED(k, 1) || MOVED(k, 2)))

/* Something is over: forget all that has become useless. */
inline forget()
{
#ifdef PRUNE
	if
	:: HOPELESS(0) -> over(0)
	:: else
	fi;
#if PROBES > 1
	if
	:: HOPELESS(1) -> over(1)
	:: else
	fi;
#endif
#endif
	/* bits for the check that no probe can name any more: see BIT() */
	existed = existed & (NAMED(0, 1) -> 255 : 170) & (NAMED(0, 2) -> 255 : 85) &
		(NAMED(1, 1) -> 255 : 204) & (NAMED(1, 2) -> 255 : 51) &
		(NAMED(2, 1) -> 255 : 240) & (NAMED(2, 2) -> 255 : 15);
	victim[0] = victim[0] && NAMED(0, wait[0]);
	victim[1] = victim[1] && NAMED(1, wait[1]);
	victim[2] = victim[2] && NAMED(2, wait[2])
}

/* Our note is being written: what was seen of our locks is to be seen again. */
inline note_written(i)
{
	looked[0] = looked[0] && VICTIM(0) != i;
#if PROBES > 1
	looked[1] = looked[1] && VICTIM(1) != i;
#endif
	skip
}

proctype Process(byte i)
{
end:
	do
	:: atomic { !waits[i] && (wait[i] == 0 || wait[i] < WAITS && again < AGAIN) ->
		again = again + (wait[i] > 0);
		wait[i]++;
		waits[i] = true;
		victim[i] = false;
		reused[i] = contender[i] != 0;
		contender[i] = (reused[i] -> contender[i] : wait[i]);
		printf("process %d waits, the %d. time\n", i, wait[i]);
		if
		:: waits[0] && waits[1] && waits[2] ->
			printf("that is a deadlock\n");
			existed = existed | BIT(wait[0], wait[1], wait[2])
		:: else
		fi
	}
#ifndef PROGRESS
	:: atomic { waits[i] ->
		waits[i] = false;
		printf("process %d gives up\n", i);
		forget()
	}
#endif
	od
}

proctype Worker(byte i)
{
	byte k;

end:
	do
	/* the contender of a wait that is over is deleted */
	:: atomic { !waits[i] && contender[i] != 0 ->
		contender[i] = 0;
		reused[i] = false;
		printf("instance %d deletes its contender\n", i);
		forget()
	}
	/* publish, and take back: detector.c 1 */
	:: atomic { note[i] != (waits[i] -> wait[i] : 0) ->
		note[i] = (waits[i] -> wait[i] : 0);
		note_written(i);
		end_search(i);
		printf("instance %d writes into its note: wait %d\n", i, note[i]);
		forget()
	}
	/* search: detector.c 2 */
	:: atomic { reads[i] == 0 && waits[i] && note[i] == wait[i] && note[NEXT(i)] != 0 ->
		first[i] = note[NEXT(i)];
		reads[i] = 1;
		printf("instance %d reads that of %d: wait %d\n", i, NEXT(i), first[i])
	}
	:: atomic { reads[i] == 1 ->
		second[i] = note[NEXT(NEXT(i))];
		reads[i] = 2;
		printf("instance %d reads that of %d: wait %d\n", i, NEXT(NEXT(i)), second[i]);
		if
		:: second[i] == 0 -> end_search(i); forget()
		:: else
		fi
	}
	/* probe: detector.c 3 */
	:: atomic { reads[i] == 2 ->
		j = 0;
		do
		:: j < PROBES && !(there[j] && EDGE(j, i) == wait[i] &&
				EDGE(j, NEXT(i)) == first[i] && EDGE(j, NEXT(NEXT(i))) == second[i]) -> j++
		:: else -> break
		od;
		/* no older probe is the same */
		k = 0;
		do
		:: j == PROBES && k < PROBES && there[k] -> k++
		:: else -> break
		od;
		if
		:: j == PROBES && k < PROBES && waits[i] && note[i] == wait[i] ->
			there[k] = true;
			EDGE(k, i) = wait[i];
			EDGE(k, NEXT(i)) = first[i];
			EDGE(k, NEXT(NEXT(i))) = second[i];
			printf("instance %d creates a probe of waits %d, %d, %d\n", i, EDGE(k, 0), EDGE(k, 1), EDGE(k, 2))
		:: else
		fi;
		j = 0;
		k = 0;
		end_search(i);
		forget()
	}
	od
}

/* What is done about probe k; the victim's instance is VICTIM(k). */
proctype Probe(byte k)
{
	byte i;

end:
	do
	/* SCANNING: another instance looks at its locks, and answers */
	:: atomic { there[k] && !ANSWERED(k) ->
		if
		:: !ANSWER(k, 0) -> i = 0
		:: !ANSWER(k, 1) -> i = 1
		:: !ANSWER(k, 2) -> i = 2
		fi;
		if
		:: SAME(k, i) -> YES(k, i) = true; printf("instance %d confirms its wait %d\n", i, EDGE(k, i))
		:: else -> over(k); printf("instance %d denies its wait\n", i)
		fi;
		forget();
		i = 0
	}
#ifndef PROGRESS
	/* deadline */
	:: atomic { there[k] -> over(k); forget(); printf("probe %d is given up\n", k) }
#endif
	/* WAITING -> SCANNING: the victim's instance looks at its own locks */
	:: atomic { there[k] && ALL_ANSWERED(k) && !READY(k) ->
		i = VICTIM(k);
		if
		:: SAME(k, i) -> looked[k] = true; printf("instance %d looks at its own locks\n", i)
		:: else -> over(k); printf("instance %d's own wait is over\n", i)
		fi;
		forget();
		i = 0
	}
	/* ACTING: the multi */
	:: atomic { there[k] && ALL_ANSWERED(k) && READY(k) ->
		i = VICTIM(k);
		if
#ifdef DROP_ACT_CHECKS
		:: true ->
#else
		:: W_THERE(k, 0) && W_THERE(k, 1) && W_THERE(k, 2) &&
				(i == 0 || note[0] == EDGE(k, 0)) && (i == 1 || note[1] == EDGE(k, 1)) && (i == 2 || note[2] == EDGE(k, 2)) ->
#endif
			printf("instance %d ends the deadlock of waits %d, %d, %d\n", i, EDGE(k, 0), EDGE(k, 1), EDGE(k, 2));
			assert(existed & BIT(EDGE(k, 0), EDGE(k, 1), EDGE(k, 2)));
			assert(!(victim[0] && wait[0] == EDGE(k, 0)) &&
				   !(victim[1] && wait[1] == EDGE(k, 1)) &&
				   !(victim[2] && wait[2] == EDGE(k, 2)));
			note[i] = 0;
			note_written(i);
			/* slot_end_wait(): in that very wait only */
			if
			:: waits[i] && wait[i] == EDGE(k, i) -> waits[i] = false; victim[i] = true; printf("process %d fails\n", i)
			:: else
			fi;
			over(k)
		:: else -> over(k); printf("the act fails: something has moved\n")
		fi;
		forget();
		i = 0
	}
	od
}

#ifdef PROGRESS
#define DEADLOCK	(waits[0] && waits[1] && waits[2])
ltl ended { [] (DEADLOCK -> <> !DEADLOCK) }
#endif

init
{
	atomic {
		j = 0;
		do
		:: j < N -> run Process(j); run Worker(j); j++
		:: else -> break
		od;
		j = 0;
		do
		:: j < PROBES -> run Probe(j); j++
		:: else -> break
		od;
		j = 0
	}
}
