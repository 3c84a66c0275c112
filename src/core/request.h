/*-------------------------------------------------------------------------
 *
 * request.h
 *		A request to ZooKeeper, and what becomes of it.
 *
 * Whoever asks ZooKeeper for something, a state machine of core/ or a room of
 * the worker, fills in a Request.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/request.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The most that the requests of one group may have: the server takes 1 MB
 * (jute.maxbuffer).  Count the bytes of paths and data, and
 * REQUEST_OVERHEAD_BYTES for each request.
 */
#define REQUEST_MAX_BYTES		(1000 * 1000)
#define REQUEST_OVERHEAD_BYTES	128

typedef enum RequestKind
{
	REQUEST_MKDIR,				/* create the lock directory */
	REQUEST_MKDIRS,				/* the same, with its missing parents */
	REQUEST_CREATE,				/* create "node", ephemeral and sequential */
	REQUEST_CHILDREN,			/* list the lock directory */
	REQUEST_SEARCH,				/* the same, behind a write of our own: has
								 * all that was done before it was sent */
	REQUEST_SYNC,				/* the same, behind a sync: has that as a
								 * rule */
	REQUEST_LIST,				/* the same as CHILDREN, and watch them */
	REQUEST_WATCH,				/* get "node" and watch it */
	REQUEST_UNWATCH,			/* remove that watch; nobody waits */
	REQUEST_GET,				/* get "node", or the lock directory */
	REQUEST_SET,				/* set the data of "node" */
	REQUEST_STAT,				/* stat our own "node" */
	REQUEST_DELETE,				/* delete our own "node" */
	REQUEST_REQUEUE,			/* the same, and create another one of its
								 * name but for the number, in one multi */
	REQUEST_DELETE_STRAY,		/* delete "node"; nobody waits */
	REQUEST_RMDIR,				/* delete the lock directory, if empty */
	REQUEST_CHECK,				/* "node" exists, with "version"; in a group
								 * only */
	REQUEST_SET_ACL,			/* give "node" the ACL that we would make it
								 * with */
	REQUEST_GET_ACL				/* get it */
} RequestKind;

typedef struct Request
{
	RequestKind kind;
	uint32_t	serial;			/* to be handed back with the answer */
	const char *node;			/* valid until the next step; or NULL: the
								 * directory */
	const char *data;			/* of MKDIR, CREATE, REQUEUE, SET; NULL: our
								 * note */
	uint32_t	batch;			/* of STAT: any node of it will do, or 0 */
	bool		has_version;	/* of SET and CHECK: only if the data have ... */
	int32_t		version;		/* ... this version; 0: nobody has ever set
								 * them */
	bool		barrier;		/* of LIST and GET: as SEARCH is */
	bool		exact;			/* of CREATE in a group: not sequential */
	bool		persistent;		/* of MKDIR, MKDIRS: not a container; of these
								 * and SET_ACL: anybody may read it */
} Request;

typedef enum RequestResult
{
	REQUEST_OK,
	REQUEST_UNKNOWN,			/* connection lost: it may have happened */
	REQUEST_NO_NODE,
	REQUEST_REFUSED				/* any other error: "error" tells which; a
								 * directory that exists already is OK */
} RequestResult;

#endif							/* ZKLOCK_REQUEST_H */
