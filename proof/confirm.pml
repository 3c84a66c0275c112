/*
 * confirm.pml: how a deadlock is confirmed and ended, src/core/deadlock.c
 *
 * Three instances, an edge each: that of 0 is in two cycles, with that of 1 and
 * with that of 2, who have the same lock.  An edge has an identity: a generation
 * and, of 0, a way.  It ends by a cancel, a handoff, or a change in the middle
 * of its way, and another one begins.  Each atomic step is a change of a
 * process, a look under the lock manager's locks, or a request to ZooKeeper; a
 * multi and its answer are under way for any time, and the answer may be lost
 * with the connection or the worker.  The victim of each cycle is any of its
 * edges.
 *
 * What is checked: the edges of a cycle that is ended were there at one moment;
 * its contenders are all there, and the writer that keeps a reader, so nobody in
 * it owns what he waits for; no edge of it was the victim of another cycle; a
 * verdict is given only if the act was done; and (LTL) a deadlock that lasts is
 * ended.
 *
 * DROP_... leaves out one condition: see src/proof.md.
 */
#ifndef GENERATIONS
#define GENERATIONS	2
#endif
#ifndef WAYS
#define WAYS	2				/* of the edge of 0 */
#endif
#ifndef FAULTS
#define FAULTS	1				/* edges after the first, lost connections (with
								 * the worker or not) and ended sessions, of all */
#endif
#ifndef INSTANCES
#define INSTANCES	3			/* 2: the first cycle alone */
#endif

/* the processes: the edge of each instance */
bool there[3];
byte generation[3];				/* of the latest edge, from 1 */
byte way[3];

/* ZooKeeper: 0 is none.  An edge is 2 x generation + way. */
byte text[3];
bool contender[3];
bool writer = true;				/* keeps the reader that 1 waits with */
byte confirm0[6], confirm1[6];	/* by cycle and instance: the edges in the hash */
byte ended0[2], ended1[2];

/* workers: what was read of a cycle; the act */
byte read0[6], read1[6];
bool confirmed[6];				/* it knows of its confirm */
byte acting[3];					/* cycle + 1 */
byte act0[3], act1[3];
bool sent[3], done[3], sought[3];

byte victim[2];					/* of each cycle */
byte killed[3];					/* the latest edge that was a victim */
byte existed[2];				/* for the check: pairs that were there */
byte faults;

#define OTHER(c)	((c) + 1)
#define EDGE(i)		(2 * generation[i] + way[i])
#define K(c, i)		(3 * (c) + (i))
#define MEMBER(c, i)	((i) == 0 || (i) == OTHER(c))
/* at most 4 identities of 0, 2 of others */
#define BIT(a, b)	(1 << (((a) - 2) + 4 * (((b) - 2) / 2)))

#if defined(DROP_GENERATION)
#define SAME(i, e)	(there[i] && way[i] == (e) % 2)
#elif defined(DROP_WAY)
#define SAME(i, e)	(there[i] && generation[i] == (e) / 2)
#elif defined(DROP_RESCAN)
#define SAME(i, e)	true
#else
#define SAME(i, e)	(there[i] && EDGE(i) == (e))
#endif
#define OWN(i, a, b)	((i) == 0 -> (a) : (b))

#define LISTED(c)	(confirm0[K(c, 0)] != 0 && \
	confirm0[K(c, 0)] == confirm0[K(c, OTHER(c))] && \
	confirm1[K(c, 0)] == confirm1[K(c, OTHER(c))])
#define CAN_READ(c, i)	(MEMBER(c, i) && text[0] != 0 && \
	text[OTHER(c)] != 0 && !confirmed[K(c, i)] && \
	(read0[K(c, i)] != text[0] || read1[K(c, i)] != text[OTHER(c)]))
#define CAN_ACT(c, i)	(confirmed[K(c, i)] && victim[c] == i && LISTED(c))
#define HAS_CONFIRM(c, i, a, b)	(confirm0[K(c, i)] == (a) && confirm1[K(c, i)] == (b))

byte k;							/* in atomic steps only */

inline delete_confirm(dc, di)
{
	confirm0[K(dc, di)] = 0;
	confirm1[K(dc, di)] = 0;
	confirmed[K(dc, di)] = false
}

inline forget_reads(ri)
{
	read0[K(0, ri)] = 0; read1[K(0, ri)] = 0;
	read0[K(1, ri)] = 0; read1[K(1, ri)] = 0
}

inline read_cycle(rc, ri)
{
	read0[K(rc, ri)] = text[0];
	read1[K(rc, ri)] = text[OTHER(rc)];
	printf("instance %d reads cycle %d: edges %d, %d\n", ri, rc, text[0], text[OTHER(rc)])
}

inline note_existing()
{
	if
	:: there[0] && there[1] -> existed[0] = existed[0] | BIT(EDGE(0), EDGE(1))
	:: else
	fi;
	if
	:: there[0] && there[2] -> existed[1] = existed[1] | BIT(EDGE(0), EDGE(2))
	:: else
	fi
}

inline begin(bi)
{
	there[bi] = true;
	contender[bi] = true;
	printf("instance %d has edge %d\n", bi, EDGE(bi));
	note_existing()
}

proctype Process(byte i)
{
end:
	do
	:: atomic { !there[i] && generation[i] == 0 ->
		generation[i] = 1;
		begin(i)
	}
	/* a handoff or a new wait; the contender is the same or another one */
	:: atomic { !there[i] && generation[i] > 0 && generation[i] < GENERATIONS &&
			faults < FAULTS ->
		faults++;
		killed[i] = 0;
		generation[i]++;
		begin(i)
	}
#ifndef PROGRESS
	/* another way from the same hold to the same wait */
	:: atomic { !there[i] && generation[i] > 0 && contender[i] && i == 0 &&
			way[i] + 1 < WAYS && faults < FAULTS ->
		faults++;
		killed[i] = 0;
		way[i]++;
		begin(i)
	}
	:: atomic { there[i] -> there[i] = false; printf("the edge of %d ends\n", i) }
	:: atomic { writer && i == 1 -> writer = false; printf("the writer leaves\n") }
#endif
	od
}

/* The multi is carried out, or is refused. */
inline carry_out(ai, ac, aa, ab)
{
	if
	:: text[ai] == OWN(ai, aa, ab) &&
#ifndef DROP_ACT_CHECKS
			HAS_CONFIRM(ac, (ai == 0 -> OTHER(ac) : 0), aa, ab) &&
#endif
#ifndef DROP_WRITER
			(ac == 1 || writer) &&
#endif
			HAS_CONFIRM(ac, ai, aa, ab) &&
			!(ended0[ac] == aa && ended1[ac] == ab) ->
		printf("instance %d ends cycle %d: edges %d, %d\n", ai, ac, aa, ab);
		assert(existed[ac] & BIT(aa, ab));
		assert(contender[0] && contender[OTHER(ac)]);
		assert(ac == 1 || writer);
		assert(killed[0] != aa && killed[OTHER(ac)] != ab);
		killed[ai] = OWN(ai, aa, ab);
		text[ai] = 0;
		delete_confirm(ac, ai);
#ifndef DROP_OWN_CONFIRMS
		if
		:: ac == 0 -> delete_confirm(1, ai)
		:: else -> delete_confirm(0, ai)
		fi;
#endif
		ended0[ac] = aa;
		ended1[ac] = ab;
		done[ai] = true
	:: else -> printf("the act of %d is refused\n", ai)
	fi
}

inline forget_act(ti)
{
	acting[ti] = 0;
	act0[ti] = 0;
	act1[ti] = 0;
	sent[ti] = false;
	done[ti] = false;
	sought[ti] = false
}

/* The act was done: in that very wait only. */
inline verdict(vi)
{
	assert(done[vi]);
	if
	:: there[vi] && EDGE(vi) == OWN(vi, act0[vi], act1[vi]) ->
		there[vi] = false;
		printf("the process of %d fails\n", vi)
	:: else
	fi
}

proctype Worker(byte i)
{
	byte c;

end:
	do
	/* tell, and tell no more: the text and the confirms go together */
	:: atomic { text[i] == 0 && there[i] && killed[i] != EDGE(i) && acting[i] == 0 ->
		text[i] = EDGE(i);
		printf("instance %d tells edge %d\n", i, text[i])
	}
	:: atomic { text[i] != 0 && !(there[i] && EDGE(i) == text[i]) ->
		text[i] = 0;
		if
		:: confirmed[K(0, i)] -> delete_confirm(0, i)
		:: else
		fi;
		if
		:: confirmed[K(1, i)] -> delete_confirm(1, i)
		:: else
		fi;
		forget_reads(i);
		printf("instance %d tells it no more\n", i)
	}
	/* the contender goes behind them */
	:: atomic { !there[i] && contender[i] &&
#ifndef DROP_RETRACT_FIRST
			text[i] == 0 &&
#endif
			true ->
		contender[i] = false;
		printf("instance %d deletes its contender\n", i)
	}
	/* look */
	:: atomic { text[i] != 0 && CAN_READ(0, i) -> read_cycle(0, i) }
	:: atomic { text[i] != 0 && CAN_READ(1, i) -> read_cycle(1, i) }
	/* confirm: a scan behind the look */
	:: atomic { read0[K(0, i)] != 0 || read0[K(1, i)] != 0 ->
		if
		:: read0[K(0, i)] != 0 -> c = 0
		:: read0[K(1, i)] != 0 -> c = 1
		fi;
		if
		:: SAME(i, OWN(i, read0[K(c, i)], read1[K(c, i)])) && !confirmed[K(c, i)] &&
				text[i] == OWN(i, read0[K(c, i)], read1[K(c, i)]) ->
			confirm0[K(c, i)] = read0[K(c, i)];
			confirm1[K(c, i)] = read1[K(c, i)];
			confirmed[K(c, i)] = true;
			printf("instance %d confirms cycle %d\n", i, c)
		:: else
		fi;
		read0[K(c, i)] = 0;
		read1[K(c, i)] = 0;
		c = 0
	}
	/* what it confirmed is published no more by another one: not confirmed */
	:: atomic { confirmed[K(0, i)] && acting[i] == 0 &&
			(text[0] != confirm0[K(0, i)] || text[1] != confirm1[K(0, i)]) ->
		delete_confirm(0, i)
	}
	:: atomic { confirmed[K(1, i)] && acting[i] == 0 &&
			(text[0] != confirm0[K(1, i)] || text[2] != confirm1[K(1, i)]) ->
		delete_confirm(1, i)
	}
	/* act: its own scan agrees, too */
	:: atomic { acting[i] == 0 && there[i] && EDGE(i) == text[i] &&
			(CAN_ACT(0, i) || CAN_ACT(1, i)) ->
		if
		:: CAN_ACT(0, i) -> c = 0
		:: CAN_ACT(1, i) -> c = 1
		fi;
		acting[i] = c + 1;
		act0[i] = confirm0[K(c, i)];
		act1[i] = confirm1[K(c, i)];
		printf("instance %d acts on cycle %d\n", i, c);
		c = 0
	}
	:: atomic { acting[i] != 0 && !sent[i] && !sought[i] ->
		sent[i] = true;
		c = acting[i] - 1;
		carry_out(i, c, act0[i], act1[i]);
		c = 0
	}
	:: atomic { sent[i] && !sought[i] ->
		if
		:: done[i] -> verdict(i)
		:: else
		fi;
		forget_act(i)
	}
#ifndef PROGRESS
	/* the connection is lost: what was sent is done or not */
	:: atomic { faults < FAULTS ->
		faults++;
		if
		:: acting[i] != 0 && !sent[i] -> c = acting[i] - 1; carry_out(i, c, act0[i], act1[i]); c = 0
		:: true
		fi;
		forget_reads(i);
		if
		/* the worker remains, and looks for its act behind a barrier */
		:: acting[i] != 0 ->
			sought[i] = true;
			printf("instance %d loses its connection\n", i)
		/* or there is a new one, that knows of no act */
		:: true ->
			forget_act(i);
			printf("instance %d has a new worker\n", i)
		fi;
#ifdef DROP_CLEAN
		confirmed[K(0, i)] = false;
		confirmed[K(1, i)] = false
#else
		delete_confirm(0, i);
		delete_confirm(1, i);
		if
		:: !sought[i] && ended0[0] != 0 && victim[0] == i -> ended0[0] = 0; ended1[0] = 0; killed[i] = 0
		:: else
		fi;
		if
		:: !sought[i] && ended0[1] != 0 && victim[1] == i -> ended0[1] = 0; ended1[1] = 0; killed[i] = 0
		:: else
		fi
#endif
	}
	:: atomic { sought[i] ->
		c = acting[i] - 1;
		if
#ifdef DROP_ENDED
		:: text[i] != OWN(i, act0[i], act1[i]) ->
#else
		:: ended0[c] == act0[i] && ended1[c] == act1[i] ->
#endif
			verdict(i)
		:: else
		fi;
		forget_act(i);
		c = 0
	}
	/* the session ends, and its locks are lost */
	:: atomic { faults < FAULTS && generation[i] > 0 ->
		faults++;
		text[i] = 0;
		delete_confirm(0, i);
		delete_confirm(1, i);
		contender[i] = false;
		there[i] = false;
		forget_reads(i);
		forget_act(i);
		printf("the session of %d ends\n", i)
	}
#endif
	od
}

#ifdef PROGRESS
#define DEADLOCK	(there[0] && there[1] || there[0] && there[2])
ltl ended { [] (DEADLOCK -> <> !DEADLOCK) }
#endif

init
{
	atomic {
		if
		:: victim[0] = 0
		:: victim[0] = 1
		fi;
		if
		:: victim[1] = 0
		:: victim[1] = 2
		fi;
		k = 0;
		do
		:: k < INSTANCES -> run Process(k); run Worker(k); k++
		:: else -> break
		od;
		k = 0
	}
}
