/*-------------------------------------------------------------------------
 *
 * waits.h
 *		What this instance's backends have, and wait for, as the search for
 *		deadlocks between instances needs it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/waits.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAITS_H
#define ZKLOCK_WAITS_H

#include "core/deadlock.h"
#include "nodes/pg_list.h"

/* A scan's result, palloc'd. */
typedef struct Waits
{
	DeadlockEdge *edges;
	int			nedges;
	bool		old;			/* a wait for a slot is as old as
								 * deadlock_timeout */
	int64		next_us;		/* in how many us another wait or statement is;
								 * PG_INT64_MAX: none */
	List	   *unknown;		/* Contenders that would have edges if others
								 * are behind them, which is unknown; some
								 * perhaps more than once */
} Waits;

extern void waits_scan(Waits *result, int64 wait_us);

#endif							/* ZKLOCK_WAITS_H */
