/*-------------------------------------------------------------------------
 *
 * graph_private.h
 *		The wait-for graph between instances, as far as it was read.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/graph_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GRAPH_PRIVATE_H
#define ZKLOCK_GRAPH_PRIVATE_H

#include "core/deadlock/vertex.h"

/* The most reads for one search. */
#define GRAPH_MAX_READS		256

/* A semaphore with more permits is left out. */
#define GRAPH_MAX_PERMITS	64

/* Chains of the hash tables of a graph. */
#define GRAPH_CHAINS		1024

/* What the graph needs next. */
typedef enum WaitReadKind
{
	GRAPH_READ_CHILDREN,		/* of the directory "path" */
	GRAPH_READ_NOTE				/* data and version of the znode "path" */
} WaitReadKind;

typedef struct WaitRead
{
	WaitReadKind kind;
	char		path[NOTE_VERTEX_SIZE];
} WaitRead;

/* A contender in a directory. */
typedef struct WaitContender
{
	char	   *name;
	int32_t		sequence;
	bool		shared;			/* it may own the lock with others */
	struct WaitOwner *owner;	/* set by graph_link_owners(): its note was
								 * read; or NULL */
} WaitContender;

/*
 * A lock directory, or that of a semaphore's permits; or the znodes of one
 * session in a directory.
 */
typedef struct WaitDirectory
{
	char		path[NOTE_VERTEX_SIZE];
	char		session[VERTEX_SESSION_SIZE];	/* its vertex, or "" */
	int			permits;		/* 0: it is a lock's */
	bool		asked;			/* graph_next_read() has returned it */
	WaitContender *contenders;	/* in the order of the queue */
	int			ncontenders;
	int			next;			/* in the hash table, or -1 */

	/* see waits.c */
	int			nowners;		/* this many, the first ones, block others */
	int			first_need;		/* of those that wait here, or -1 */
	int			kept;			/* owners with a link into the set */
	unsigned	measured;		/* by the measurement with this number */
} WaitDirectory;

/* A contender that owns its lock, or a session's znode, whose note is read. */
typedef struct WaitOwner
{
	char		path[NOTE_VERTEX_SIZE];
	bool		asked;			/* graph_next_read() has returned it */
	char		cluster_name[WORD_VALUE_SIZE];
	int32_t		version;
	NoteWait   *waits;
	int			nwaits;
	int			next;			/* in the hash table, or -1 */

	/* see waits.c */
	WaitDirectory *directory;	/* in which it is an owner, or NULL */
	int			first_link;
	int			nlinks;
	int			kept;			/* links into the set */
} WaitOwner;

/* What one search has read so far; all malloc'd.  All zero: empty. */
typedef struct WaitGraph
{
	WaitDirectory *directories;
	int			ndirectories;
	int			directory_chains[GRAPH_CHAINS]; /* numbers, from 1 on */
	WaitOwner  *owners;
	int			nowners;
	int			owner_chains[GRAPH_CHAINS];
	int			nreads;
	unsigned	turn;			/* number of the search: where it begins, if
								 * not all can be read */
	long		nsteps;			/* the cost of waits.c: links and needs that it
								 * has visited */
} WaitGraph;

extern void graph_free(WaitGraph *graph);
extern void graph_start(WaitGraph *graph, const WaitEdge *edge);
extern bool graph_next_read(WaitGraph *graph, WaitRead *read);
extern void graph_add_children(WaitGraph *graph, const char *path,
							   const char *const *children, int nchildren);
extern void graph_add_note(WaitGraph *graph, const char *path,
						   const char *data, int len, int32_t version,
						   bool ephemeral);

/* for waits.c */
extern WaitDirectory *graph_directory_of(const WaitGraph *graph,
										 const char *from,
										 const NoteWait *wait);
extern void graph_link_owners(WaitGraph *graph);
extern int	graph_place_of(const WaitDirectory *directory, const char *name);

#endif							/* ZKLOCK_GRAPH_PRIVATE_H */
