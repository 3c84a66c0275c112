/*-------------------------------------------------------------------------
 *
 * foreign_private.h
 *		Sessions that work for those of other instances, by postgres_fdw,
 *		and ours for which others work.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/foreign_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FOREIGN_PRIVATE_H
#define ZKLOCK_FOREIGN_PRIVATE_H

#include "core/deadlock/vertex.h"
#include "nodes/pg_list.h"

/* A session of this instance. */
typedef struct ForeignSession
{
	int			pid;			/* hash key, must be first */
	int64		start;			/* us since 1970 */
	int64		statement;		/* the same: when its statement on a foreign
								 * server began; 0: it is in none, or not for
								 * long enough */
	bool		named;			/* other instances say that their sessions
								 * work for it */
	bool		idle;			/* it is idle in a transaction */
	bool		rests;			/* it has run nothing for long enough */
	bool		works;			/* it works for one of another instance */
	VertexSession works_for;	/* that session */
	VertexSession self;			/* its own vertex, if it can be named */
} ForeignSession;

extern bool foreign_is_set(void);
extern bool foreign_may_matter(int64 wait_us);
extern List *foreign_begin(int64 wait_us, List *named);
extern void foreign_skip(void);
extern ForeignSession *foreign_find(int pid);
extern bool foreign_waits_dir(char dir[NOTE_VERTEX_SIZE]);
extern bool foreign_node(const VertexSession *session, bool remote,
						 char path[NOTE_VERTEX_SIZE]);
extern void foreign_published(const char *path);

#endif							/* ZKLOCK_FOREIGN_PRIVATE_H */
