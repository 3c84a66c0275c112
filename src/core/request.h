/*-------------------------------------------------------------------------
 *
 * request.h
 *		A request to ZooKeeper, and its answer.
 *
 * The state machines of core/ and the files of the worker make Requests and
 * receive RequestAnswers.  worker/zookeeper/flight.c carries requests out.
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

/* "The directory" is Request.path, and "node" is a child of it. */
typedef enum RequestKind
{
	REQUEST_MKDIR,				/* create the directory, a container */
	REQUEST_MKDIRS,				/* the same, with its missing parents */
	REQUEST_CREATE,				/* create "node", ephemeral and sequential */
	REQUEST_CHILDREN,			/* list the directory */
	REQUEST_SEARCH,				/* the same, behind a barrier: has all that was
								 * done before it was sent */
	REQUEST_SYNC,				/* the same, behind a sync: usually has that */
	REQUEST_LIST,				/* as CHILDREN, and watch them */
	REQUEST_WATCH,				/* get "node" and watch it */
	REQUEST_UNWATCH,			/* remove that watch; not answered */
	REQUEST_GET,				/* get "node", or the directory */
	REQUEST_SET,				/* set the data of "node" */
	REQUEST_STAT,				/* stat "node" */
	REQUEST_DELETE,				/* delete "node", which is ours */
	REQUEST_REQUEUE,			/* the same, and create another one with its
								 * name but the number, in one multi */
	REQUEST_DELETE_ORPHAN,		/* delete "node"; not answered */
	REQUEST_RMDIR,				/* delete the directory if it is empty */
	REQUEST_CHECK,				/* "node" exists, with "version"; only in a
								 * group */
	REQUEST_SET_ACL,			/* give "node" the ACL that we create it
								 * with */
	REQUEST_GET_ACL				/* get the ACL */
} RequestKind;

typedef struct Request
{
	RequestKind kind;
	uint32_t	serial;			/* returned with the answer */
	const char *path;			/* of the directory; NULL: a contender's, which
								 * its state machine does not know */
	const char *node;			/* name in it; NULL: the directory itself.
								 * Valid until the next step */
	const char *data;			/* of MKDIR, CREATE, REQUEUE, SET; NULL: none
								 * or, for a contender, its note */
	uint32_t	batch;			/* of STAT: nodes of this batch are as good, or
								 * 0 */
	bool		has_version;	/* of SET and CHECK: only if the data have
								 * ... */
	int32_t		version;		/* ... this version; 0: nobody has set them
								 * since the create */
	bool		barrier;		/* of LIST and GET: behind a barrier
								 * (session.c) */
	bool		brief;			/* of WATCH and LIST: the watch ends with the
								 * connection, silently */
	bool		exact;			/* of CREATE: not sequential */
	bool		persistent;		/* of MKDIR, MKDIRS: not a container; of these
								 * and SET_ACL: readable by anybody */
	bool		alone;			/* of CREATE and DELETE: the request is in no
								 * batch, and is sent before all batches */
	uint32_t	group;			/* of CREATE, SET, CHECK and DELETE:
								 * consecutive requests with the same group
								 * are one multi; or 0 */
} Request;

typedef enum RequestResult
{
	REQUEST_OK,
	REQUEST_UNKNOWN,			/* connection lost: it may have been done */
	REQUEST_NO_NODE,			/* of MKDIRS: a parent was deleted meanwhile;
								 * if the topmost one cannot be made,
								 * REFUSED */
	REQUEST_REFUSED				/* any other error: see "error".  A directory
								 * that exists already is OK */
} RequestResult;

/* Why a request's handler is called. */
typedef enum RequestEvent
{
	REQUEST_DONE,
	REQUEST_NODE_DELETED,		/* its watch fired: the node is gone */
	REQUEST_NODE_TOUCHED		/* its watch fired for another reason */
} RequestEvent;

/* Pointers in it are valid until the handler returns. */
typedef struct RequestAnswer
{
	RequestEvent event;
	uint32_t	serial;			/* that of the request */
	RequestKind kind;			/* the same; only for DONE, as all that
								 * follows */
	RequestResult result;
	int			error;			/* ZooKeeper's code; 0: success */
	bool		not_empty;		/* of RMDIR: refused for that reason */
	const char *node;			/* of CREATE and REQUEUE: name of the znode */
	int64_t		token;			/* of CREATE: its czxid, or 0: unknown */
	uint32_t	batch;			/* of CREATE and REQUEUE: nodes created
								 * together, which have the same czxid, or 0 */
	const char *const *children;	/* names in the directory */
	int			nchildren;
	const char *data;			/* of WATCH and GET: not terminated */
	int			data_len;		/* -1: none */
	int			size;			/* of STAT: length of the data */
	int			child_count;	/* the same: number of children */
	int64_t		mzxid;			/* of SET: zxid of that write */
	int64_t		czxid;			/* of STAT, WATCH, GET */
	int32_t		version;		/* the same, and of SET: version of the data */
	int64_t		ctime;			/* the same; ms since 1970 */
	int64_t		ephemeral_owner;	/* the same; 0, or INT64_MIN of a
									 * container: not ephemeral */
	bool		ours;			/* the same: ephemeral of our session */
	int			acl_count;		/* of GET_ACL: entries of the ACL; 0:
								 * unknown */
	bool		acl_open;		/* the same: anybody may do more than read */
} RequestAnswer;

/* Does a request of this kind list the directory? */
static inline bool
request_is_list(RequestKind kind)
{
	return kind == REQUEST_CHILDREN || kind == REQUEST_SEARCH ||
		kind == REQUEST_SYNC || kind == REQUEST_LIST;
}

/*
 * The handler of an owner of requests: called with their answers, and when a
 * watch set by one of them fires.
 */
typedef void (*RequestHandler) (void *data, const RequestAnswer *answer);

/* Is the znode that was read ephemeral, as all contenders are? */
static inline bool
request_is_ephemeral(const RequestAnswer *answer)
{
	return answer->ephemeral_owner != 0 &&
		answer->ephemeral_owner != INT64_MIN;
}

#endif							/* ZKLOCK_REQUEST_H */
