/*-------------------------------------------------------------------------
 *
 * vertex.h
 *		Sessions as vertices of the wait-for graph, and their znodes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/vertex.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_VERTEX_H
#define ZKLOCK_VERTEX_H

#include "core/lock/note.h"

/* The directory below a root that has probes, and what sessions wait for. */
#define WAITS_DIR		"%waits"

/* postgres_fdw.application_name that says for which session another works. */
#define VERTEX_APPLICATION_NAME	"zklock:%c:%C"

/* PostgreSQL cuts names to one byte less. */
#define VERTEX_NAME_SIZE	64

/*
 * The text of a session's vertex: "remote:", 16 digits, ".", 8 digits, ":", a
 * name.
 */
#define VERTEX_SESSION_SIZE	(33 + VERTEX_NAME_SIZE)

/* A vertex that is a session. */
typedef struct VertexSession
{
	bool		remote;			/* S*: the sessions that work for it */
	int64_t		start;			/* when the session began; s since 1970 */
	int			pid;
	char		cluster_name[VERTEX_NAME_SIZE]; /* its cluster_name */
} VertexSession;

/* The name of a session's znode. */
typedef struct VertexNode
{
	char		vertex[VERTEX_SESSION_SIZE];
	uint64_t	publisher;		/* the ZooKeeper session that created it */
	uint64_t	number;			/* of that session's; not used again */
} VertexNode;

/*
 * A wait-for edge of this instance: the contender "from" is held, and its
 * holder waits for wait.to.  Or "from" is a session's znode, and that session
 * waits for wait.to.
 */
typedef struct WaitEdge
{
	char		from[NOTE_VERTEX_SIZE];
	NoteWait	wait;
} WaitEdge;

extern bool vertex_of_application(const char *name, VertexSession *session);
extern void vertex_write(const VertexSession *session,
						 char vertex[VERTEX_SESSION_SIZE]);
extern bool vertex_parse(const char *vertex, VertexSession *session);
extern bool vertex_node_path(const char *dir, const VertexNode *node,
							 char path[NOTE_VERTEX_SIZE]);
extern bool vertex_parse_node(const char *name, VertexNode *node);
extern bool vertex_is_node(const char *path);
extern const char *vertex_split_path(const char *path,
									 char dir[NOTE_VERTEX_SIZE]);
extern bool vertex_waits_dir_of(const char *path, bool permit,
								char dir[NOTE_VERTEX_SIZE]);
extern bool vertex_waits_dir_of_owner(const char *path,
									  char dir[NOTE_VERTEX_SIZE]);
extern bool vertex_only_names(const char *path, const NoteWait *wait);

#endif							/* ZKLOCK_VERTEX_H */
