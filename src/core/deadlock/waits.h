/*-------------------------------------------------------------------------
 *
 * waits.h
 *		Deadlocks in the wait-for graph between instances.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/waits.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAITS_H
#define ZKLOCK_WAITS_H

#include "core/deadlock/vertex.h"

struct WaitGraph;

/* The most members of a deadlock. */
#define WAITS_MAX_MEMBERS	64

/* An edge of a deadlock, with what is checked when it is ended. */
typedef struct WaitMember
{
	WaitEdge	edge;
	char		cluster_name[WORD_VALUE_SIZE];	/* of its instance */
	int32_t		version;		/* of the data of edge.from when it was read */
	char		between[NOTE_VERTEX_SIZE];	/* an exclusive contender between
											 * the reader wait.to and readers
											 * that own the lock; or "" */
	int			blocked_by;		/* the member whose edge.from wait.to waits
								 * for; the first, if there are several */
} WaitMember;

/*
 * A deadlock that ends when any member ends.  The victim is the first member;
 * blocked_by leads from the victim by way of others back to it.  With a
 * semaphore or zk_lock_any there are members beside that way.
 */
typedef struct WaitDeadlock
{
	int			nmembers;
	WaitMember *members;		/* malloc'd */
} WaitDeadlock;

/* A search for deadlocks in the graph; see waits.c. */
typedef struct WaitSearch WaitSearch;

extern WaitSearch *waits_begin(struct WaitGraph *graph);
extern bool waits_find(WaitSearch *search, const WaitEdge *edge,
					   WaitDeadlock *deadlock);
extern void waits_end(WaitSearch *search);

extern bool waits_same_edge(const WaitEdge *a, const WaitEdge *b);
extern void waits_free_deadlock(WaitDeadlock *deadlock);
extern bool waits_same_deadlock(const WaitDeadlock *a, const WaitDeadlock *b);
extern bool waits_is_requeued(const WaitDeadlock *deadlock);

#endif							/* ZKLOCK_WAITS_H */
