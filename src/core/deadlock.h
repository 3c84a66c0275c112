/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		Deadlocks between instances: texts, cycles, and how one is ended.
 *
 * A Deadlocks is the part of one instance.  What the worker passes in: a scan
 * of its locks, generations that have ended, answers of ZooKeeper, the time.
 * What it takes out: requests, outcomes, and when to scan or to come again.
 *
 * The states of a cycle, the events, the next state and what is sent.  An
 * event that is not listed changes nothing; a cycle without a record is NONE.
 *
 *	state		event		next		sends
 *	TOLD		SAME		CONFIRMED	CONFIRM
 *				SEEN		ENDED		SHOW
 *				OVER		NONE
 *	CONFIRMED	CHANGED		TOLD		RETRACT
 *				PASSED		LATE
 *				COMPLETE	ACTING		ACT
 *				SEEN		ENDED		RETRACT, SHOW
 *				CUT			TOLD
 *	LATE		CHANGED		TOLD		RETRACT
 *				COMPLETE	ACTING		ACT
 *				SEEN		ENDED		RETRACT, SHOW
 *				CUT			TOLD
 *	ACTING		CHANGED		STALE		RETRACT
 *				DONE		ENDED		VERDICT
 *				FAILED		LATE
 *				CUT			SOUGHT
 *	STALE		DONE		ENDED		VERDICT
 *				FAILED		TOLD
 *				CUT			SOUGHT
 *	SOUGHT		DONE		ENDED		VERDICT
 *				FAILED		TOLD
 *	ENDED		OVER		NONE		REMOVE
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CORE_DEADLOCK_H
#define ZKLOCK_CORE_DEADLOCK_H

#include "core/request.h"

/* The directory below a root that has the texts. */
#define DEADLOCK_DIRECTORY		"%waits"

/* Bounds: of a text in bytes, of how many an instance has, ... */
#define DEADLOCK_TEXT_BYTES		65536
#define DEADLOCK_TEXTS			8
/* ... of one line, ... */
#define DEADLOCK_LINE_BYTES		4096
/* ... of the texts that a look reads, and of the edges in them, ... */
#define DEADLOCK_CHILDREN		1000
#define DEADLOCK_READ_BYTES		(16 * 1024 * 1024)
#define DEADLOCK_READ_EDGES		100000
#define DEADLOCK_GETS			8	/* of these are out at a time */
/* ... of a cycle, of the cycles known, and of the steps of a search. */
#define DEADLOCK_CYCLE			64
#define DEADLOCK_CYCLES			64
#define DEADLOCK_STEPS			100000

/* The digits of a cycle's hash. */
#define DEADLOCK_HASH			32

typedef enum DeadlockState
{
	DEADLOCK_NONE,
	DEADLOCK_TOLD,				/* all its edges are in texts, or were */
	DEADLOCK_CONFIRMED,			/* our confirm is there */
	DEADLOCK_LATE,				/* the same, but not those of all others in
								 * time, or our act has failed: the next cycle
								 * is confirmed, too */
	DEADLOCK_ACTING,			/* our act is under way; its victim is ours */
	DEADLOCK_STALE,				/* the same, and an edge of ours has ended */
	DEADLOCK_SOUGHT,			/* the connection was lost with the act */
	DEADLOCK_ENDED				/* ended.<hash> is there */
} DeadlockState;

typedef enum DeadlockEvent
{
	DEADLOCK_SAME,				/* a fresh scan has our edges of it, and it is
								 * the next in the order */
	DEADLOCK_CHANGED,			/* one of its edges has ended */
	DEADLOCK_PASSED,			/* 2 x deadlock_timeout since our confirm */
	DEADLOCK_COMPLETE,			/* all confirms were listed, a fresh scan has
								 * our edges, the victim is ours */
	DEADLOCK_DONE,				/* the act was carried out */
	DEADLOCK_FAILED,			/* it was not */
	DEADLOCK_SEEN,				/* ended.<hash> was listed */
	DEADLOCK_OVER,				/* nothing has happened for some time */
	DEADLOCK_CUT				/* the connection is lost */
} DeadlockEvent;

/* What is sent. */
typedef enum DeadlockTodo
{
	DEADLOCK_CONFIRM = 1,		/* create <hash>.<id> */
	DEADLOCK_RETRACT = 2,		/* delete it */
	DEADLOCK_ACT = 4,			/* the multi */
	DEADLOCK_VERDICT = 8,		/* an outcome, with a verdict for the victim */
	DEADLOCK_SHOW = 16,			/* an outcome for the view */
	DEADLOCK_REMOVE = 32		/* delete ended.<hash> if it is ours */
} DeadlockTodo;

/*
 * A vertex: a lock that a process holds or waits for, a session (S), or what
 * works for a session in other instances (S*).  Ways go on from one vertex to
 * all that have its name and are of its sort: lock, S or S*.
 */
typedef enum DeadlockKind
{
	DEADLOCK_EXCLUSIVE = 'x',
	DEADLOCK_SHARED = 's',
	DEADLOCK_SESSION = 'c',
	DEADLOCK_WORK = 'w'
} DeadlockKind;

typedef struct DeadlockVertex
{
	DeadlockKind kind;
	const char *name;			/* path of the lock directory, or session */
	int			pid;
	uint64_t	generation;		/* of that process's hold or wait; for S -> S*
								 * and others: when that wait began */
} DeadlockVertex;

/*
 * An edge: from.pid has "from", and waits for "to", itself or by a way of
 * other processes.  All but the keeper is the edge's identity; of a reader
 * beside its own instance's readers the keeper is, too.  Strings are never
 * NULL, but for the keeper.
 */
typedef struct DeadlockEdge
{
	DeadlockVertex from;
	DeadlockVertex to;			/* generations of waits grow with time */
	const char *way;			/* "" or <pid>.<when its wait began>,... */
	uint64_t	began;			/* the transaction that waits for "to" */
	bool		ahead;			/* who waits for "to" is only ahead of a member
								 * in tier 1 of its lock */
	bool		beside;			/* a reader that may not join its own
								 * instance's readers */
	const char *keeper;			/* path of the writer that keeps a reader */
	const char *teller;			/* id of the instance; not set in a scan */
	const char *instance;		/* its name; the same */
} DeadlockEdge;

/*
 * What a scan has found, at one moment.  If several ways lead from one lock to
 * one wait, each is an edge: that which is published counts as long
 * as it is there.
 */
typedef struct DeadlockScan
{
	const DeadlockEdge *edges;
	int			nedges;
	bool		listing;		/* the queue of a lock is being listed that may
								 * have others behind: another scan follows */
	bool		waits;			/* a wait in tier 2 is as old as
								 * deadlock_timeout */
} DeadlockScan;

/* A cycle that was ended, its edges in their order; see deadlock_outcome(). */
typedef struct DeadlockOutcome
{
	char		hash[DEADLOCK_HASH + 1];
	const DeadlockEdge *const *edges;
	int			nedges;
	int			victim;			/* the edge whose wait was ended */
	bool		verdict;		/* the victim is ours: tell its wait, */
	bool		requeue;		/* to queue again in tier 1, in place of an
								 * error */
} DeadlockOutcome;

/* What the log says once: see deadlock_complaint(). */
typedef enum DeadlockComplaint
{
	DEADLOCK_NO_COMPLAINT,
	DEADLOCK_TEXT_FULL,			/* more edges than the texts have room for */
	DEADLOCK_NOT_READ,			/* larger or more children than are read */
	DEADLOCK_REFUSED			/* it may not read or write below %waits */
} DeadlockComplaint;

/* A text that was parsed; free() its memory. */
typedef struct DeadlockText
{
	DeadlockEdge *edges;
	int			nedges;
	char	   *memory;			/* its strings */
} DeadlockText;

typedef struct Deadlocks Deadlocks;

extern Deadlocks *deadlock_make(const char *dir, const char *id,
								const char *instance, int64_t timeout_us);
extern void deadlock_free(Deadlocks *d);

extern void deadlock_connect(Deadlocks *d, int64_t now);
extern void deadlock_disconnect(Deadlocks *d);
extern void deadlock_end(Deadlocks *d);
extern void deadlock_set_timeout(Deadlocks *d, int64_t timeout_us);
extern void deadlock_scanned(Deadlocks *d, const DeadlockScan *scan,
							 int64_t now);
extern void deadlock_over(Deadlocks *d, uint64_t generation, int64_t now);
extern void deadlock_answer(Deadlocks *d, const RequestAnswer *answer,
							int64_t now);
extern void deadlock_tick(Deadlocks *d, int64_t now);

extern bool deadlock_is_loading(const Deadlocks *d);
extern bool deadlock_wants_scan(const Deadlocks *d);
extern int64_t deadlock_wake(const Deadlocks *d);
extern bool deadlock_request(Deadlocks *d, Request *request);
extern bool deadlock_outcome(Deadlocks *d, DeadlockOutcome *outcome);
extern int	deadlock_cycle(const Deadlocks *d, const char *hash,
						   const DeadlockEdge *const **edges);
extern DeadlockComplaint deadlock_complaint(Deadlocks *d);

extern DeadlockState deadlock_step(DeadlockState state, DeadlockEvent event,
								   unsigned *todo);
extern int	deadlock_write(const char *instance,
						   const DeadlockEdge *const *edges, int nedges,
						   char *data, int size);
extern bool deadlock_is_text(const char *name);
extern bool deadlock_parse(const char *teller, const char *data, int len,
						   DeadlockText *text);
extern int	deadlock_search(const DeadlockEdge *const *edges, int nedges,
							const char *id,
							bool (*skip) (const char *hash, void *arg),
							void *arg, const DeadlockEdge **cycle, char *hash);

#endif							/* ZKLOCK_CORE_DEADLOCK_H */
