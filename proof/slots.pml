/*
 * slots.pml: a slot of src/shared/slots.c, its backends and the worker
 *
 * Backends want, take and drop the slot of one exclusive lock; the worker keeps
 * one contender in ZooKeeper for it; another instance queues for the same lock.
 * The worker is killed KILLS times, and the next one resumes the session.  Each
 * atomic step is a stretch under the partition lock, a request that ZooKeeper
 * carries out, or an answer that the worker deals with.  What is checked: a
 * backend that holds the slot has the first node of the queue; the slot has one
 * holder; a slot in state NONE has left no node; nobody sleeps for ever (LTL:
 * who wants the lock gets it).
 *
 * LOOSE: without the heavyweight lock, since safety must not rest on it.
 * DROP_... leaves out one condition: see src/proof.md.
 */
#ifndef N
#define N		3
#endif
#ifndef KILLS
#define KILLS	2
#endif
#define NOBODY	N

/* slot->state */
mtype = { NONE, WANTED, IDLE, HELD, RELEASING };
mtype slot = NONE;
bool asked;						/* slot->asked */
bool mailed;					/* slot->mailed */
bool uuid, sequence, requeued;	/* slot->contender */
byte nwanting;

/* backends: ZkProcLock and the condition variable */
mtype = { OUT, TIER1, AWAKE, ASLEEP, HOLDS };
mtype backend[N] = OUT;
bool has_asked[N];
byte tier1 = NOBODY;

/* ZooKeeper: our node, and the other instance's */
byte nodes;						/* of ours */
byte ours;						/* 0: none, 1: behind the other one, 2: first */
bool stale;						/* the number in the slot is not our node's */
bool other;						/* the other instance has a node */
mtype = { NOTHING, CREATE, DELETE, REQUEUE };
mtype request = NOTHING;		/* on its way */
mtype late = NOTHING;			/* of a worker that was killed */
bool answered;

/* the worker: the state of its contender's recipe */
mtype = { ABSENT, BEGINNING, CREATING, READING, QUEUED, OWNER, DELETING, REQUEUEING, SEARCHING };
mtype contender = ABSENT;
bool wanted;					/* the recipe was not told to release */
bool dead;
byte kills;

#ifdef DROP_RELEASING
#define FREE	(slot == IDLE || slot == RELEASING)
#else
#define FREE	(slot == IDLE)
#endif

#ifdef PROGRESS
#define UNUSED	(tier1 == NOBODY)	/* no ready waiter: has_ready_waiter() */
#else
#define UNUSED	true
#endif

byte i;							/* in atomic steps only */

/* slot_wake() */
inline wake()
{
	i = 0;
	do
	:: i < N ->
		if
		:: backend[i] == ASLEEP -> backend[i] = AWAKE
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* slot_event(SLOT_GIVEN_UP) */
inline give_up()
{
	slot = RELEASING;
	mailed = true;
	wake()
}

/* The node that the slot's holder has is the first, and he is the only one. */
inline check_holders()
{
	i = 0;
	do
	:: i < N ->
		assert(backend[i] != HOLDS || (ours == 2 && slot == HELD));
		i++
	:: else -> break
	od;
	i = 0
}

proctype Backend(byte b)
{
	do
	/* slot_want() */
	:: atomic { backend[b] == OUT ->
		backend[b] = TIER1;
		nwanting++;
		printf("b%d wants the slot\n", b)
	}
	/* heavyweight_lock() */
#ifdef LOOSE
	:: atomic { backend[b] == TIER1 -> backend[b] = AWAKE }
#else
	:: atomic { backend[b] == TIER1 && tier1 == NOBODY ->
		tier1 = b;
		backend[b] = AWAKE;
		printf("b%d has the heavyweight lock\n", b)
	}
#endif
	/* slot_take(): try_take() */
	:: atomic { backend[b] == AWAKE ->
		has_asked[b] = true;
		asked = true;			/* note_ask() */
		if
		:: FREE ->
			asked = false;
			has_asked[b] = false;
			nwanting--;
			slot = HELD;
			backend[b] = HOLDS;
			printf("b%d takes the slot\n", b);
			check_holders()
		:: slot == NONE ->
			slot = WANTED;
			mailed = true;
			backend[b] = ASLEEP;
			printf("b%d asks the worker\n", b)
		:: else -> backend[b] = ASLEEP; printf("b%d waits\n", b)
		fi
	}
	/* slot_drop(), after the commit: leave_slot(); turn.c decides */
	:: atomic { backend[b] == HOLDS ->
		backend[b] = OUT;
		tier1 = NOBODY;
		if
		:: true -> slot = IDLE; wake(); printf("b%d drops the slot, for the next backend\n", b)
		:: true -> give_up(); printf("b%d drops the slot, and gives it up\n", b)
		fi
	}
#ifndef PROGRESS
	/* slot_unwant(): note_unwanted() */
	:: atomic { backend[b] == TIER1 || backend[b] == AWAKE || backend[b] == ASLEEP ->
		if
		:: tier1 == b -> tier1 = NOBODY
		:: else
		fi;
		backend[b] = OUT;
		nwanting--;
		printf("b%d is canceled\n", b);
		if
		:: has_asked[b] ->
			/* retract_ask() */
			has_asked[b] = false;
			asked = false;
			i = 0;
			do
			:: i < N -> asked = asked || has_asked[i]; i++
			:: else -> break
			od;
			i = 0
		:: else
		fi;
		if
		:: nwanting == 0 && (slot == WANTED || slot == IDLE) -> give_up()
		:: else
		fi
	}
#endif
	od
}

/* What ZooKeeper does for a request. */
inline serve(what)
{
	if
	:: what == CREATE -> ours = (other -> 1 : 2); nodes++
	:: what == DELETE && nodes > 0 && !stale -> ours = 0; nodes--
	/* nothing, if the node of before is gone */
	:: what == REQUEUE && nodes > 0 && !stale -> ours = (other -> 1 : 2); stale = true
	:: else
	fi;
	check_holders()
}

proctype ZooKeeper()
{
	do
	:: atomic { request != NOTHING ->
		printf("server: carries out %e\n", request);
		serve(request);
		request = NOTHING;
		answered = true
	}
	:: atomic { late != NOTHING ->
		printf("server: carries out %e of the worker that was killed\n", late);
		serve(late);
		late = NOTHING
	}
	od
}

/* Another instance queues, and leaves when it is first, and so owner. */
proctype Other()
{
	do
	:: atomic { !other -> other = true; printf("the other instance queues\n") }
	:: atomic { other && ours != 2 ->
		other = false;
		ours = (ours == 1 -> 2 : 0);
		printf("the other instance leaves\n")
	}
	od
}

/* The contender is gone: slot_set_gone(), SLOT_CONTENDER_GONE. */
inline gone()
{
	contender = ABSENT;
	uuid = false;
	sequence = false;
	requeued = false;
	assert(nodes == 0 && late == NOTHING);
	if
	:: asked -> slot = WANTED; contender = BEGINNING; printf("worker: a contender is wanted again\n")
	:: else -> slot = NONE; wake(); printf("worker: the contender is gone\n")
	fi
}

inline begin()
{
	contender = BEGINNING
}

/* RECIPE_REPORT_GRANTED: slot_report(), set_granted() */
inline grant()
{
	contender = OWNER;
	if
	:: slot == WANTED ->
		slot = IDLE;
		printf("worker: the lock is ours\n");
#ifndef DROP_WAKE_AT_GRANT
		wake();
#endif
		skip
	:: else -> printf("worker: the lock is ours, but the slot is given up\n")
	fi
}

proctype Worker()
{
	do
	/* contender: slot_open_mail() */
	:: atomic { !dead && mailed ->
		mailed = false;
		if
		:: slot == WANTED && contender == ABSENT -> begin()
		:: slot == RELEASING && contender == BEGINNING -> gone()
		:: slot == RELEASING && (contender == CREATING || contender == REQUEUEING || contender == SEARCHING) ->
			wanted = false
		:: slot == RELEASING && (contender == READING || contender == QUEUED || contender == OWNER) ->
			if
			/* slot_requeue() */
			:: contender == OWNER && asked && sequence ->
				slot = WANTED;
				contender = REQUEUEING;
				wanted = true;
				request = REQUEUE;
#ifndef DROP_REQUEUE_NOTED
				requeued = true;
#endif
				printf("worker: releases the lock, and queues again\n")
			:: else ->
				contender = DELETING;
				request = DELETE;
				printf("worker: sends a delete\n")
			fi
		:: else
		fi
	}
	/* steps: slot_set_uuid(), then the create is sent */
	:: atomic { !dead && contender == BEGINNING && !uuid ->
		contender = CREATING;
		wanted = true;
		request = CREATE;
#ifndef DROP_UUID_FIRST
		uuid = true;
#endif
		printf("worker: sends a create\n")
	}
#ifdef DROP_UUID_FIRST
	:: atomic { !dead && contender == CREATING && !uuid -> uuid = true }
#endif
	/* RECIPE_REPORT_CREATED: set_created() */
	:: atomic { !dead && answered && (contender == CREATING || contender == REQUEUEING) ->
		answered = false;
		sequence = true;
		requeued = false;
		stale = false;
		uuid = true;
		if
		:: wanted -> contender = READING
		:: else -> contender = DELETING; request = DELETE; printf("worker: sends a delete\n")
		fi
	}
	:: atomic { !dead && contender == READING ->
		if
#ifdef DROP_REQUEUE_NOTED
		:: stale -> contender = CREATING; request = CREATE; printf("worker: its node is missing, sends a create\n")
#endif
		:: !stale && ours == 2 -> grant()
		:: else -> contender = QUEUED
		fi
	}
	/* the watch of the predecessor */
	:: atomic { !dead && contender == QUEUED && ours == 2 -> grant() }
	:: atomic { !dead && answered && contender == DELETING -> answered = false; gone() }
	/* slot_check_idle(), slot_set_contended() */
#ifdef DROP_IDLE_ONLY
	:: atomic { !dead && (slot == IDLE || slot == HELD) && contender == OWNER ->
#else
	:: atomic { !dead && slot == IDLE && contender == OWNER && UNUSED ->
#endif
		asked = false;
		give_up();
		printf("worker: gives up the idle slot\n")
	}
	/* killed, and what it knew is gone */
	:: atomic { !dead && kills < KILLS ->
		kills++;
		dead = true;
		late = request;
		request = NOTHING;
		answered = false;
		contender = ABSENT;
		wanted = false;
		printf("worker: killed\n")
	}
	/* slots_attach_worker(), slots_list(); recipe_resume() */
	:: atomic { dead ->
		dead = false;
		mailed = false;
		printf("worker: the next one starts, the slot is %e\n", slot);
		if
#ifndef DROP_RESUME_LISTS_SLOTS
		:: slot == NONE
		:: slot != NONE && !uuid -> 
			if
			:: slot == WANTED -> begin()
			:: else -> gone()
			fi
		:: slot != NONE && uuid && (!sequence || requeued) ->
			contender = SEARCHING;
			wanted = (slot == WANTED)
		:: slot == WANTED && sequence && !requeued -> late = NOTHING; contender = READING
		:: (slot == IDLE || slot == HELD) && sequence && !requeued -> contender = OWNER
		:: slot == RELEASING && sequence && !requeued ->
			late = NOTHING;
			contender = DELETING;
			request = DELETE
#else
		:: true
#endif
		fi
	}
	/* recipe.c: a search behind a write of our own */
	:: atomic { !dead && contender == SEARCHING ->
#ifndef DROP_SEARCH_BEHIND_WRITE
		late = NOTHING;
#endif
		if
		/* find_old() */
		:: nodes > 0 && requeued && !stale && wanted -> contender = REQUEUEING; request = REQUEUE
		/* find_created() */
		:: nodes > 0 && !(requeued && !stale) && wanted ->
			sequence = true;
			requeued = false;
			stale = false;
			contender = READING
		:: nodes > 0 && !wanted ->
			sequence = true;
			requeued = false;
			stale = false;
			contender = DELETING;
			request = DELETE
		:: nodes == 0 && wanted -> contender = CREATING; request = CREATE
		:: else -> gone()
		fi;
		printf("worker: has searched\n")
	}
	od
}

#ifdef PROGRESS
ltl served { [] (tier1 == 0 -> <> (backend[0] == HOLDS)) }
#endif

init
{
	atomic {
		i = 0;
		do
		:: i < N -> run Backend(i); i++
		:: else -> break
		od;
		i = 0;
		run ZooKeeper();
		run Other();
		run Worker()
	}
}
