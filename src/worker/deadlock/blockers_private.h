/*-------------------------------------------------------------------------
 *
 * blockers_private.h
 *		Who waits for whom in the lock manager.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/blockers_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BLOCKERS_PRIVATE_H
#define ZKLOCK_BLOCKERS_PRIVATE_H

#include "storage/lock.h"

/*
 * Called for each process that another one waits for, directly or through
 * others.  "chain", which is never 0, is a hash of the processes on the way to
 * it, with their waits; "last" is the lock that the last of these waits for.
 * Returns false to end the walk.
 */
typedef bool (*BlockersVisit) (int pid, uint64 chain, const LOCKTAG *last,
							   void *arg);

/*
 * Does a backend that waits for the lock "last" wait for the process only
 * because that is ahead of it in the queue for a slot?
 */
typedef bool (*BlockersAhead) (int pid, const LOCKTAG *last);

extern bool blockers_sample(int64 wait_us);
extern void blockers_begin(int64 wait_us);
extern int	blockers_add_waiting(int *pids);
extern int	blockers_max(void);
extern void blockers_walk(int pid, BlockersAhead is_ahead,
						  BlockersVisit visit, void *arg);

#endif							/* ZKLOCK_BLOCKERS_PRIVATE_H */
