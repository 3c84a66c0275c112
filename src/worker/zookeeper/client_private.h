/*-------------------------------------------------------------------------
 *
 * client_private.h
 *		libzookeeper_mt: its threads, their faults, and the queue of events.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/client_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLIENT_PRIVATE_H
#define ZKLOCK_CLIENT_PRIVATE_H

#include <zookeeper/zookeeper.h>

#include "core/request.h"
#include "lib/ilist.h"
#include "shared/session_info.h"

/* In place of one of ZOO_ERRORS: another operation of the batch has failed. */
#define CLIENT_BATCH_FAILED		1

/* The code for an answer that makes no sense: as if none had come. */
#define UNACKNOWLEDGED			ZCONNECTIONLOSS

/* What a callback reports to the main thread. */
typedef enum ClientEventKind
{
	CLIENT_EVENT_ANSWER,		/* the first part of an Operation */
	CLIENT_EVENT_WATCH,
	CLIENT_EVENT_STATE,
	CLIENT_EVENT_MESSAGE,
	CLIENT_EVENT_CLOSED			/* the last of a handle */
} ClientEventKind;

typedef struct ClientEvent
{
	struct ClientEvent *next;
	ClientEventKind kind;
	int			code;			/* WATCH: type of event; STATE: state of the
								 * handle; CLOSED: errno if there was no
								 * handle, 0 if it was closed */
	char	   *string;			/* MESSAGE; path of WATCH; created path of
								 * ANSWER; malloc'd */
} ClientEvent;

typedef enum ClientState
{
	CLIENT_CLOSED,
	CLIENT_OPENING,				/* a thread makes the handle */
	CLIENT_OPEN,
	CLIENT_CLOSING,				/* a thread closes it, and tells the server */
	CLIENT_ABANDONED			/* the same; no server hears of it */
} ClientState;

/* The handle of the library. */
typedef struct Client
{
	ClientState state;
	zhandle_t  *handle;			/* NULL unless open */
	bool		connected;		/* as far as the main thread knows */
	int			wake_fd;		/* readable when client_next_event() may have
								 * something new */
} Client;

struct SaslParams;

extern Client client;

/* A request on its way to ZooKeeper, and its answer on the way back. */
typedef struct Operation
{
	ClientEvent event;			/* must be first */
	dlist_node	node;			/* in a list of the flight */
	uint32_t	owner;
	Request		request;		/* its "batch" is also, of CREATE and REQUEUE,
								 * the ID of its multi */

	/*
	 * The callback sets the error (ZOO_ERRORS or the above) and what
	 * ZooKeeper has sent, malloc'd; flight.c does the rest.
	 */
	RequestAnswer answer;
	int			parents_code;	/* MKDIRS: why the parents cannot be made; ZOK
								 * of other kinds */
	bool		read;			/* the server has read this and set the watch,
								 * even if the answer does not count */
	uint32		barrier;		/* its number, if the read is behind one */
	struct Stat stat;			/* of SET in a multi */

	int			limit;			/* the most operations of its next batch: half
								 * as many as of one that failed */
	struct Operation *sharer;	/* STAT: the next one that this stands for */
	struct Multi *multi;		/* to be freed with this operation, or NULL */
	bool		directory_deleted;	/* CREATE: since it was submitted */
	ZooWatcherType unwatched;	/* UNWATCH: the watch to be removed on the
								 * server, or 0 */
	char		path[FLEXIBLE_ARRAY_MEMBER];	/* of the znode; then its
												 * data */
} Operation;

/* Is this a write that changes nothing, and in no group? */
static inline bool
operation_is_check(const Operation *op)
{
	return op->request.kind == REQUEST_CHECK && op->request.group == 0;
}

/* Does this create a sequential znode? */
static inline bool
operation_creates(const Operation *op)
{
	return op->request.kind == REQUEST_CREATE ||
		op->request.kind == REQUEST_REQUEUE;
}

/* The number of operations in a multi that this takes. */
static inline int
operation_parts(const Operation *op)
{
	return op->request.kind == REQUEST_REQUEUE ? 2 : 1;
}

extern void client_init(void);
extern void client_enter_library(void);
extern void client_leave_library(void);
extern void client_open(const char *servers, const SessionKey *key,
						const char *tls, const struct SaslParams *sasl);
extern bool client_hangs(void);
extern void client_close(void);
extern void client_send(Operation *op);
extern void client_send_multi(Operation *const *ops, int count,
							  bool is_batch);
extern bool client_is_leaders(int code);
extern bool client_is_ours(int64_t owner);
extern ClientEvent *client_next_event(void);
extern void client_put_back(ClientEvent *event);
extern void client_free_answer(Operation *op);
extern void client_free_notice(ClientEvent *event);

#endif							/* ZKLOCK_CLIENT_PRIVATE_H */
