/*
 * recipe.pml: the queue recipe of src/core/lock/recipe.c
 *
 * N instances, each with one contender at a time for one exclusive lock, and one
 * ZooKeeper.  Each atomic step is either one request that the server carries
 * out, or one answer or watch event that the recipe deals with; in between any
 * other step may come.  What is checked: the lock has one owner at a time; a
 * contender that is gone has left no node; and (LTL) a contender in the queue
 * gets the lock, and somebody always gets it again.
 *
 * Numbers are late from LATE on, and end at LAST: the counter then gives LAST
 * again and again.  Creates have no bound: since the directory is made again,
 * there are finitely many states.  For progress, the pause of a contender with a
 * late number is longer than the requests of the others take, and who fails
 * because the numbers have ended comes again after the same pause.  Each instance
 * loses its connection at most LOSSES times; then its request is carried out, or
 * not, or later.
 *
 * TRACE: a trace of the code is followed (proof/traces.py).  Of the steps that it
 * shows, only its next one may be taken; the others may be taken at any time.
 *
 * DROP_... leaves out one condition: see src/proof.md.
 */
#ifndef N
#define N		3
#endif
#ifndef LOSSES
#define LOSSES	1
#endif
#ifdef TRACE
/* Events: the server's, and those that callers see. */
#define DIR_MADE	1
#define DIR_GONE	2
#define NODE_MADE	3
#define NODE_GONE	4
#define OWNS	5
#define RELEASES	6
#define LOST	7				/* the connection */
#define END		8
#include "trace.h"
#else
#define LATE	3
#define LAST	(LATE + 1)
#endif
#ifdef TWO_NODES				/* a contender may have two */
#define MAX		(LAST + 2 * N)	/* places in a directory */
#else
#define MAX		(LAST + N)
#endif
#define NONE	255				/* no number */

/* RecipeState; CANCELING, ABANDONING are CREATE, REQUEUE, SEARCH, not wanted */
#define IDLE	0
#define MKDIR	1				/* ENTERING, with a mkdir ahead of the create */
#define CREATE	2				/* ENTERING */
#define SEARCH	3				/* SEARCHING */
#define READ	4				/* READING */
#define WATCH	5				/* WATCHING */
#define OWNER	6
#define REQUEUE	7				/* REQUEUEING */
#define LEAVE	8				/* LEAVING */
#define ASIDE	9				/* LATE: the delete of our node is out */
#define RMDIR	10				/* LATE, deleted: that of the directory is out */
#define PAUSE	11				/* LATE, aside */

/* How far the request of that state is: the phase. */
#define OUT		0				/* on its way to the server */
#define OK		1				/* carried out; the answer is on its way */
#define MORE	2				/* in mutants only */

/* ZooKeeper: the directory, its children in the order of their creates. */
bool dir;
byte creates;					/* in this directory: cversion, or LAST */
byte child[MAX];				/* by number, then those with LAST: contender + 1 */

/* The contenders. */
byte state[N];
byte phase[N];
bool wanted[N];
byte node[N];					/* place of our node: recipe->sequence */
byte found[N];					/* place that a search has found, or the new one */
byte ahead[N];					/* recipe->blockers */
byte last[N];					/* recipe->predecessor */
byte left[N];					/* succession.c: the number that left, or NONE */
byte late_write[N];				/* the state whose request may still arrive */
bool deaf[N];					/* hears of no deletion of the directory */
byte losses[N];

#define NUMBER(place)	((place) < LAST -> (place) : LAST)
#define UNORDERED(place) ((place) >= LAST)

/* For progress: nobody else is about to leave with a late number. */
#ifdef PROGRESS
#define HURRIES(c)	(state[c] == ASIDE || state[c] == RMDIR || \
					 (state[c] == READ && node[c] >= LATE) || \
					 (state[c] == CREATE && (phase[c] == OK || creates >= LATE)))
#if N > 2
#define PAUSED	(!HURRIES(0) && !HURRIES(1) && !HURRIES(2))
#else
#define PAUSED	(!HURRIES(0) && !HURRIES(1))
#endif
#else
#define PAUSED	true
#endif

/* There is something to lose with the connection. */
#define TO_LOSE(c)	(state[c] == CREATE || state[c] == REQUEUE || \
					 state[c] == ASIDE || state[c] == RMDIR || \
					 state[c] == LEAVE || \
					 (state[c] == IDLE && left[c] != NONE))

byte i;							/* in atomic steps only */

#ifdef TRACE
/* An event that is seen must be the trace's next one; if not, all stops. */
short which, at;
bool off;

#define NEXT(e, c, n)	(event[at] == (e) && who[at] == (c) && number[at] == (n))
#define ON_TRACE	provided (!off)
#define MAY_LOSE(c)	NEXT(LOST, c, 0)
#define see(e, c, n)	off = !NEXT(e, c, n); at++
#else
#define ON_TRACE
#define MAY_LOSE(c)	(losses[c] < LOSSES)
#define see(e, c, n)	skip
#endif

inline to(c, s)
{
	state[c] = s;
	phase[c] = OUT
}

/* The directory is deleted; the watches of it fire: succession_fired(). */
inline delete_directory()
{
	see(DIR_GONE, 0, 0);
	dir = false;
	creates = 0;
	i = 0;
	do
	:: i < N ->
		assert(state[i] != OWNER);
		if
		:: !deaf[i] -> left[i] = NONE
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline make_directory()
{
	if
	:: dir
	:: else ->
		dir = true;
		see(DIR_MADE, 0, 0)
	fi
}

inline has_children()
{
	i = 0;
	do
	:: i < MAX && child[i] == 0 -> i++
	:: else -> break
	od
	/* i < MAX: there is one */
}

inline create_node(c, place)
{
	if
	:: creates < LAST -> place = creates; creates++
#ifdef TWO_NODES
	:: creates == LAST && child[LAST + c] != 0 -> place = LAST + N + c
#endif
	:: else -> place = LAST + c
	fi;
	child[place] = c + 1;
	see(NODE_MADE, c, NUMBER(place))
}

inline delete_node(c)
{
	child[node[c]] = 0;
	see(NODE_GONE, c, NUMBER(node[c]))
}

/* find_place(): who is ahead of our node, and who of them is the last. */
inline find_place(c)
{
	ahead[c] = 0;
	last[c] = 0;
	i = 0;
	do
	:: i < LAST ->
		if
		:: child[i] != 0 && child[i] != c + 1 && i < node[c] ->
			ahead[c]++;
			last[c] = i
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* own(), step_aside(); the lock has one owner at a time. */
inline own(c)
{
	if
#ifndef DROP_LATE
	:: node[c] >= LATE ->
		printf("c%d's number %d is late: it leaves\n", c, NUMBER(node[c]));
		to(c, ASIDE)
#endif
	:: else ->
		printf("c%d owns the lock with number %d\n", c, NUMBER(node[c]));
		i = 0;
		do
		:: i < N -> assert(i == c || state[i] != OWNER); i++
		:: else -> break
		od;
		i = 0;
		see(OWNS, c, NUMBER(node[c]));
		to(c, OWNER)
	fi
}

/* settle() */
inline evaluate(c)
{
	if
	:: ahead[c] == 0 || UNORDERED(node[c]) -> own(c)
	:: else -> to(c, WATCH)
	fi
}

/* The contender is gone: end(). */
inline end_contender(c)
{
	i = 0;
	do
	:: i < MAX -> assert(child[i] != c + 1); i++
	:: else -> break
	od;
	i = 0;
	assert(late_write[c] != CREATE && late_write[c] != REQUEUE);
	node[c] = 0;
	found[c] = 0;
	state[c] = IDLE;
	phase[c] = OUT;
	printf("c%d is gone\n", c)
}

/* A request of this state arrives: what the server does. */
inline serve(c, s)
{
	if
	:: s == CREATE && dir -> create_node(c, i); i = 0
	:: s == REQUEUE && child[node[c]] == c + 1 ->
		delete_node(c);
		create_node(c, i);
		i = 0
	:: (s == LEAVE || s == ASIDE) && child[node[c]] == c + 1 ->
		delete_node(c)
	:: s == RMDIR && dir ->
		has_children();
		if
		:: i == MAX -> delete_directory()
		:: else -> i = 0
		fi
	:: else
	fi
}

proctype Contender(byte c) ON_TRACE
{
	do
	/* recipe_want(), enter() */
	:: atomic { state[c] == IDLE ->
		wanted[c] = true;
#ifdef DROP_ASK_AT_ANSWER
		last[c] = left[c];
#endif
#ifdef DROP_LIST_BEHIND_CREATE
		node[c] = LAST;
		find_place(c);
		printf("server: c%d reads the queue: %d ahead\n", c, ahead[c]);
#endif
		printf("c%d wants the lock\n", c);
		to(c, CREATE)
	}
	/* enter(): REQUEST_MKDIR */
	:: atomic { state[c] == MKDIR ->
		make_directory();
		printf("server: the directory is there for c%d\n", c);
		to(c, CREATE)
	}
	/* REQUEST_CREATE; enter_without_directory() */
	:: atomic { state[c] == CREATE && phase[c] == OUT ->
		if
		:: dir ->
			create_node(c, found[c]);
			printf("server: c%d's node is created, number %d\n", c, NUMBER(found[c]));
			phase[c] = OK
		:: else ->
			printf("server: no directory for c%d's node\n", c);
			last[c] = 0;
			if
			:: wanted[c] -> to(c, MKDIR)
			:: else -> end_contender(c)
			fi
		fi
	}
	/* on_create_done(), on_entered(), owns_by_number(), succession_next() */
	:: atomic { state[c] == CREATE && phase[c] == OK ->
		node[c] = found[c];
		found[c] = 0;
		if
		:: !wanted[c] -> last[c] = 0; to(c, LEAVE)
#ifdef DROP_EXACT_NUMBER
		:: wanted[c] && (node[c] == 0 || (left[c] != NONE && node[c] > left[c])) ->
#else
#ifdef DROP_ASK_AT_ANSWER
		:: wanted[c] && (node[c] == 0 || (last[c] != NONE && node[c] == last[c] + 1)) ->
#else
		:: wanted[c] && (node[c] == 0 || (left[c] != NONE && node[c] == left[c] + 1)) ->
#endif
#endif
			printf("c%d reads nothing: number %d tells that nobody is ahead\n", c, NUMBER(node[c]));
			own(c)
#ifdef DROP_LIST_BEHIND_CREATE
		:: else -> evaluate(c)
#else
		:: else -> to(c, READ)
#endif
		fi;
		left[c] = NONE
	}

	/* search(), on_search_done() */
	:: atomic { state[c] == SEARCH ->
#ifndef DROP_SEARCH_BEHIND_WRITE
		late_write[c] = 0;
#endif
		i = 0;
		do
		:: i < MAX && child[i] != c + 1 -> i++
		:: else -> break
		od;
		if
		:: i == MAX ->
			printf("server: c%d searches, and has no node\n", c);
			node[c] = 0;
			found[c] = 0;
			if
			:: wanted[c] -> to(c, CREATE)
			:: else -> end_contender(c)
			fi
		:: i < MAX && i == found[c] ->
			/* find_old() */
			printf("server: c%d searches, and finds the node of before, number %d\n", c, NUMBER(i));
			found[c] = 0;
			if
			:: wanted[c] -> to(c, REQUEUE)
			:: else -> to(c, LEAVE)
			fi
		:: else ->
			/* find_created() */
			printf("server: c%d searches, and finds number %d\n", c, NUMBER(i));
			node[c] = i;
			found[c] = 0;
			if
			:: !wanted[c] -> to(c, LEAVE)
#ifdef DROP_EVALUATE_FOUND
			:: wanted[c] -> own(c)
#else
			:: wanted[c] -> find_place(c); evaluate(c)
#endif
			fi
		fi;
		i = 0
	}

	/* read_queue(), on_place_read() */
	:: atomic { state[c] == READ ->
		find_place(c);
		printf("server: c%d reads the queue: %d ahead\n", c, ahead[c]);
		evaluate(c)
	}
	/* watch(); predecessor_gone() */
	:: atomic { state[c] == WATCH && child[last[c]] == 0 ->
		printf("c%d hears that number %d is gone\n", c, NUMBER(last[c]));
#ifdef DROP_ONLY_ONE_AHEAD
		own(c)
#else
		if
		:: ahead[c] == 1 -> ahead[c] = 0; last[c] = 0; own(c)
#if N > 2
		:: else -> ahead[c] = 0; last[c] = 0; to(c, READ)
#endif
		fi
#endif
	}

	/* on_release(), leave(); succession_leave() */
	:: atomic { state[c] == OWNER ->
		see(RELEASES, c, NUMBER(node[c]));
		wanted[c] = false;
		left[c] = node[c];
#ifdef DROP_WATCH_BEFORE_DELETE
		deaf[c] = true;
#else
		deaf[c] = false;
#endif
		printf("c%d releases the lock: sends a delete\n", c);
		to(c, LEAVE)
	}
#ifndef PROGRESS
	:: atomic { wanted[c] && (state[c] == READ || state[c] == WATCH) ->
		wanted[c] = false;
		ahead[c] = 0;
		last[c] = 0;
		printf("c%d gives up: sends a delete\n", c);
		to(c, LEAVE)
	}
	/* CANCELING, ABANDONING */
	:: atomic { wanted[c] && (state[c] == CREATE || state[c] == MKDIR ||
			state[c] == SEARCH || state[c] == REQUEUE) ->
		wanted[c] = false;
		printf("c%d gives up\n", c)
	}
	:: atomic { wanted[c] && state[c] == ASIDE ->
		wanted[c] = false;
		printf("c%d gives up; its delete is out\n", c);
		to(c, LEAVE)
	}
	:: atomic { wanted[c] && (state[c] == RMDIR || state[c] == PAUSE) ->
		wanted[c] = false;
		printf("c%d gives up; its node is gone\n", c);
		end_contender(c)
	}
#endif
	/* on_delete_done(); succession_left() */
	:: atomic { state[c] == LEAVE && phase[c] == OUT ->
		late_write[c] = 0;
		if
		:: child[node[c]] == c + 1 ->
			delete_node(c);
			printf("server: c%d's node is deleted\n", c)
		:: else
		fi;
#ifdef DROP_WATCH_BEFORE_DELETE
		phase[c] = OK
	}
	:: atomic { state[c] == LEAVE && phase[c] == OK ->
		printf("server: c%d watches the directory, if it is there\n", c);
		deaf[c] = false;
		left[c] = (dir -> left[c] : NONE);
#endif
		end_contender(c)
	}

	/* recipe_step(), requeue() */
	:: atomic { state[c] == OWNER ->
		see(RELEASES, c, NUMBER(node[c]));
		printf("c%d releases the lock and wants it again: sends one multi\n", c);
		to(c, REQUEUE)
	}
	:: atomic { state[c] == REQUEUE && phase[c] == OUT ->
		delete_node(c);
#ifdef DROP_ONE_MULTI
		printf("server: c%d's number %d is deleted\n", c, NUMBER(node[c]));
		phase[c] = MORE
	}
	:: atomic { state[c] == REQUEUE && phase[c] == MORE ->
		dir = true;
#endif
		create_node(c, found[c]);
		printf("server: c%d has number %d in the place of %d\n", c, NUMBER(found[c]), NUMBER(node[c]));
		phase[c] = OK
	}
	/* on_create_done() */
	:: atomic { state[c] == REQUEUE && phase[c] == OK ->
		last[c] = node[c];
		node[c] = found[c];
		found[c] = 0;
		if
		:: !wanted[c] -> to(c, LEAVE)
#ifdef DROP_REQUEUED_NUMBER
		:: wanted[c] -> own(c)
#else
		:: wanted[c] && NUMBER(node[c]) == NUMBER(last[c]) + 1 -> own(c)
		:: wanted[c] && NUMBER(node[c]) != NUMBER(last[c]) + 1 -> to(c, READ)
#endif
		fi;
		last[c] = 0
	}

	/* step_aside(), on_late_deleted() */
	:: atomic { state[c] == ASIDE ->
		late_write[c] = 0;
		if
		:: child[node[c]] == c + 1 -> delete_node(c)
		:: else
		fi;
		printf("server: c%d's late number is deleted\n", c);
		to(c, RMDIR)
	}
	/* on_rmdir_done() */
	:: atomic { state[c] == RMDIR ->
		late_write[c] = 0;
		has_children();
#ifdef DROP_RMDIR_IF_EMPTY
		if
		:: i < MAX -> child[i] = 0; i = MAX
		:: else
		fi;
#endif
		if
		:: i == MAX ->
			printf("server: the directory is deleted for c%d, or was gone\n", c);
			delete_directory();
			node[c] = 0;
			to(c, MKDIR)
#ifndef PROGRESS
		:: i < MAX && UNORDERED(node[c]) ->
			printf("c%d fails: the numbers have ended, and others are there\n", c);
			wanted[c] = false;
			end_contender(c)
#endif
		:: else ->
			i = 0;
			printf("server: c%d may not delete the directory\n", c);
			node[c] = 0;
			to(c, PAUSE)
		fi
	}
	/* retry(), a second later */
	:: atomic { state[c] == PAUSE && PAUSED ->
		printf("c%d comes again\n", c);
		to(c, CREATE)
	}

	/* The connection is lost: REQUEST_UNKNOWN, succession_disconnect(). */
	:: atomic { MAY_LOSE(c) && TO_LOSE(c) ->
#ifdef TRACE
		see(LOST, c, 0);
#else
		losses[c]++;
#endif
#ifdef DROP_FORGET_AT_DISCONNECT
		deaf[c] = true;
#else
		left[c] = NONE;
#endif
		printf("c%d loses its connection\n", c);
		if
		:: phase[c] == OUT && state[c] != IDLE -> late_write[c] = state[c]
		:: else
		fi;
		if
		:: state[c] == CREATE || state[c] == REQUEUE ->
			/* in SEARCH: the place of the node of before */
			found[c] = (state[c] == REQUEUE -> node[c] : NONE);
			last[c] = 0;
#ifdef DROP_SEARCH
			to(c, CREATE)
#else
			to(c, SEARCH)
#endif
		:: state[c] == RMDIR && node[c] != 0 -> to(c, ASIDE)
		:: else -> phase[c] = OUT
		fi
	}
#ifdef TRACE
	:: atomic { MAY_LOSE(c) && !TO_LOSE(c) -> see(LOST, c, 0) }
#else
	/* The server carries out a request of a lost connection late. */
	:: atomic { late_write[c] != 0 ->
		printf("server: carries out a request of c%d's lost connection\n", c);
		serve(c, late_write[c]);
		late_write[c] = 0
	}
#endif
	od
}

/* What nobody asks for. */
active proctype Server() ON_TRACE
{
end:
	do
	/* ZooKeeper deletes a container that has had children, and is empty. */
	:: atomic { dir && creates > 0 ->
		has_children();
		if
		:: i == MAX ->
			i = 0;
			printf("server: the empty container is collected\n");
			delete_directory()
		:: else -> i = 0
		fi
	}
	od
}

#ifdef PROGRESS
#define QUEUED(c) (wanted[c] && state[c] == WATCH && node[c] < LATE)
#if N > 2
#define OWNED	(state[0] == OWNER || state[1] == OWNER || state[2] == OWNER)
#else
#define OWNED	(state[0] == OWNER || state[1] == OWNER)
#endif
ltl served { [] (QUEUED(0) -> <> (state[0] == OWNER)) && [] <> OWNED }
#endif

init
{
	atomic {
#ifdef TRACE
		do
		:: which + 1 < TRACES -> which++
		:: break
		od;
		at = start[which];
		creates = first[which];
#endif
		i = 0;
		do
		:: i < N -> left[i] = NONE; run Contender(i); i++
		:: else -> break
		od;
		i = 0
	}
#ifdef TRACE
	atomic { event[at] == END && !off ->
		c_code { printf("followed %d\n", now.which); };
		off = true
	}
#endif
}
