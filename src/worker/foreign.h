/*-------------------------------------------------------------------------
 *
 * foreign.h
 *		Sessions that work for those of other instances, by postgres_fdw,
 *		and ours for which others work.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/foreign.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FOREIGN_H
#define ZKLOCK_FOREIGN_H

#include "core/remote.h"
#include "nodes/pg_list.h"

/* A session of this instance; times are of the wall clock, in us. */
typedef struct ForeignSession
{
	int			pid;			/* hash key, must be first */
	uint64		start;
	char		name[REMOTE_NAME_SIZE]; /* by which others know it; "": they
										 * do not */
	uint64		statement;		/* when its statement on a foreign server
								 * began; 0: it is in none, or not for long
								 * enough */
	char		origin[REMOTE_NAME_SIZE]; /* the session of another instance
										   * that it works for, or "" */
	uint64		idle;			/* since when it is idle in a transaction
								 * there; 0: it is not, or not for long
								 * enough */
} ForeignSession;

extern bool foreign_is_set(void);
extern bool foreign_may_matter(void);
extern List *foreign_begin(int64 wait_us, int64 *next_us);
extern const ForeignSession *foreign_find(int pid);

#endif							/* ZKLOCK_FOREIGN_H */
