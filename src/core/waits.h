/*-------------------------------------------------------------------------
 *
 * waits.h
 *		The graph of waits between clusters, and the deadlocks in it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/waits.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAITS_H
#define ZKLOCK_WAITS_H

#include "core/note.h"

/* How much is read for one look, and how large a deadlock may be. */
#define WAITS_MAX_READS		256
#define WAITS_MAX_MEMBERS	64

/*
 * A local edge: the contender "from" is held, and who holds it waits for
 * wait.to.
 */
typedef struct WaitEdge
{
	char		from[NOTE_VERTEX_SIZE];
	NoteWait	wait;
} WaitEdge;

/* An edge of a deadlock, with what is to be checked when it is ended. */
typedef struct WaitMember
{
	WaitEdge	edge;
	char		cluster[NOTE_VALUE_SIZE];	/* cluster_name of its cluster */
	int32_t		version;		/* of the data of edge.from when it was read */
	char		between[NOTE_VERTEX_SIZE];	/* an exclusive contender that
											 * stands between the reader
											 * wait.to and readers that own
											 * the lock; or "" */
	int			blocked_by;		/* the member whose edge.from wait.to waits
								 * for; the first, if there are several */
} WaitMember;

/*
 * A deadlock of which each member's end is the end.  The victim is the first;
 * from it one follows blocked_by, which comes back to it.  Where a semaphore or
 * zk_lock_any is a part of it, there are members beside that way.
 */
typedef struct WaitDeadlock
{
	int			nmembers;
	WaitMember *members;		/* malloc'd */
} WaitDeadlock;

/* What the graph needs to be told next. */
typedef enum WaitReadKind
{
	WAITS_READ_CHILDREN,		/* of the directory "path" */
	WAITS_READ_NOTE				/* data and version of the znode "path" */
} WaitReadKind;

typedef struct WaitRead
{
	WaitReadKind kind;
	char		path[NOTE_VERTEX_SIZE];
} WaitRead;

/* One look: what has been read so far; all malloc'd. */
typedef struct WaitGraph
{
	struct WaitDirectory *directories;
	int			ndirectories;
	struct WaitOwner *owners;
	int			nowners;
	int			nreads;
} WaitGraph;

extern void waits_init(WaitGraph *graph);
extern void waits_free(WaitGraph *graph);
extern bool waits_start(WaitGraph *graph, const WaitEdge *edge);
extern bool waits_next_read(WaitGraph *graph, WaitRead *read);
extern bool waits_told_children(WaitGraph *graph, const char *path,
								const char *const *children, int nchildren);
extern bool waits_told_note(WaitGraph *graph, const char *path,
							const char *data, int len, int32_t version);
extern bool waits_find(const WaitGraph *graph, const WaitEdge *edge,
					   WaitDeadlock *deadlock);

extern bool waits_same_edge(const WaitEdge *a, const WaitEdge *b);
extern bool waits_copy(WaitDeadlock *to, const WaitDeadlock *from);
extern void waits_free_deadlock(WaitDeadlock *deadlock);
extern void waits_directory_of(const char *path, char directory[NOTE_VERTEX_SIZE]);
extern void waits_lock_of(const char *path, char lock[NOTE_VERTEX_SIZE]);

#endif							/* ZKLOCK_WAITS_H */
