/*-------------------------------------------------------------------------
 *
 * request.h
 *		A request to ZooKeeper, and its answer.
 *
 * The state machines of core/ and the files of the worker all ask ZooKeeper by
 * a Request, and are told by a RequestAnswer what has come of it.
 * worker/zookeeper/operation.c carries requests out.
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

/* "The directory" is Request.path, and "node" is in it. */
typedef enum RequestKind
{
	REQUEST_MKDIR,				/* create the directory, a container */
	REQUEST_MKDIRS,				/* the same, with its missing parents */
	REQUEST_CREATE,				/* create "node", ephemeral and sequential */
	REQUEST_CHILDREN,			/* list the directory */
	REQUEST_SEARCH,				/* the same, behind a barrier: has all that was
								 * done before it was sent */
	REQUEST_SYNC,				/* the same, behind a sync: has that as a
								 * rule */
	REQUEST_LIST,				/* the same as CHILDREN, and watch them */
	REQUEST_WATCH,				/* get "node" and watch it */
	REQUEST_UNWATCH,			/* remove that watch; it is not answered */
	REQUEST_GET,				/* get "node", or the directory */
	REQUEST_SET,				/* set the data of "node" */
	REQUEST_STAT,				/* stat "node" */
	REQUEST_DELETE,				/* delete "node", our own */
	REQUEST_REQUEUE,			/* the same, and create another one of its
								 * name but for the number, in one multi */
	REQUEST_DELETE_ORPHAN,		/* delete "node"; it is not answered */
	REQUEST_RMDIR,				/* delete the directory, if empty */
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
	const char *path;			/* of the directory; NULL: a contender's, whose
								 * state machine does not know it */
	const char *node;			/* name in it; NULL: it is about the directory
								 * itself.  Valid until the next step */
	const char *data;			/* of MKDIR, CREATE, REQUEUE, SET; NULL: none,
								 * or, of a contender, its note */
	uint32_t	batch;			/* of STAT: any node of it will do, or 0 */
	bool		has_version;	/* of SET and CHECK: only if the data have ... */
	int32_t		version;		/* ... this version; 0: nobody has ever set
								 * them */
	bool		barrier;		/* of LIST and GET: as SEARCH is; session.c
								 * has barriers */
	bool		brief;			/* of WATCH and LIST: the watch ends with the
								 * connection, and the owner is not told */
	bool		exact;			/* of CREATE in a group: not sequential */
	bool		persistent;		/* of MKDIR, MKDIRS: not a container; of these
								 * and SET_ACL: anybody may read it */
	uint32_t	group;			/* of CREATE, SET and CHECK: those that are
								 * submitted one after the other with the same
								 * group are one multi; or 0 */
} Request;

typedef enum RequestResult
{
	REQUEST_OK,
	REQUEST_UNKNOWN,			/* connection lost: it may have happened */
	REQUEST_NO_NODE,
	REQUEST_REFUSED				/* any other error: "error" tells which; a
								 * directory that exists already is OK */
} RequestResult;

/* What a request's handler is called for. */
typedef enum RequestEvent
{
	REQUEST_DONE,				/* the answer */
	REQUEST_NODE_DELETED,		/* its watch: the node is gone */
	REQUEST_NODE_TOUCHED		/* its watch was used up by anything else */
} RequestEvent;

/* What it points to is the handler's until it returns. */
typedef struct RequestAnswer
{
	RequestEvent event;
	uint32_t	serial;			/* that of the request */
	RequestKind kind;			/* the same; DONE only, as all that follows */
	RequestResult result;
	int			error;			/* ZooKeeper's code; 0: it did as asked */
	bool		not_empty;		/* of RMDIR: refused because of that */
	const char *node;			/* of CREATE and REQUEUE: name of the znode */
	int64_t		token;			/* of CREATE: its czxid, or 0: not told */
	uint32_t	batch;			/* of CREATE and REQUEUE: what has been created
								 * with it, and so has the same czxid, or 0 */
	const char *const *children;	/* names in the directory */
	int			nchildren;
	const char *data;			/* of WATCH and GET: not terminated */
	int			data_len;		/* -1: none */
	int			size;			/* of STAT: so many bytes the data have */
	int64_t		mzxid;			/* of SET: of the request that has set it */
	int64_t		czxid;			/* of STAT, WATCH, GET */
	int32_t		version;		/* the same, and SET: of the data */
	int64_t		ctime;			/* the same; ms since 1970 */
	int64_t		ephemeral_owner;	/* the same; 0 or INT64_MIN, which
									 * containers have: not ephemeral */
	bool		ours;			/* the same: ephemeral of our session */
	int			acl_count;		/* of GET_ACL: entries of the ACL; 0: not
								 * known */
	bool		acl_open;		/* the same: anybody may do more than read */
} RequestAnswer;

/* Is the znode that was read ephemeral, as all contenders are? */
static inline bool
request_is_ephemeral(const RequestAnswer *answer)
{
	return answer->ephemeral_owner != 0 &&
		answer->ephemeral_owner != INT64_MIN;
}

#endif							/* ZKLOCK_REQUEST_H */
