/*-------------------------------------------------------------------------
 *
 * operation_private.h
 *		One operation: as a request to the library, and its answer.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/operation_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_OPERATION_PRIVATE_H
#define ZKLOCK_OPERATION_PRIVATE_H

#include "core/request.h"
#include "lib/ilist.h"
#include "worker/zookeeper/client_private.h"
#include "worker/zookeeper/watches_private.h"

/*
 * In place of one of ZOO_ERRORS: the stat that stood for this one has failed.
 */
#define OPERATION_NOT_SHARED	(CLIENT_BATCH_FAILED + 1)

/* The ID of no owner. */
#define NOBODY				0

typedef struct Operation
{
	ClientEvent event;			/* the answer; must be first */
	dlist_node	node;			/* in a list of the flight */
	uint32_t	owner;			/* or NOBODY: of a heartbeat */
	Request		request;		/* its "batch" is also, of CREATE and REQUEUE,
								 * the ID of its multi */
	int			place;			/* its number in its multi, or that of its last
								 * part */
	int			place_count;	/* the number of operations in that multi */
	int			piece;			/* the most operations of its next batch, after
								 * one that failed; or 0 */
	struct Operation *sharer;	/* STAT: the next one that this stands for */
	struct Multi *multi;		/* to be freed with this operation, or NULL */
	bool		directory_deleted;	/* CREATE: since it was submitted */
	bool		parent_lost;	/* MKDIR, MKDIRS: the connection was lost since
								 * it was sent, and the create of the parent
								 * perhaps with it */
	ZooWatcherType unwatched;	/* UNWATCH: the watch to be removed on the
								 * server, or 0 */
	bool		heartbeat;		/* it is only that */
	zoo_op_result_t checked;	/* of a heartbeat */
	char	   *prefix;			/* REQUEUE: path to create, without the
								 * number */
	char		path[FLEXIBLE_ARRAY_MEMBER];	/* of the znode */
} Operation;

extern Operation *operation_make(Client *client, MemoryContext context,
								 uint32_t owner, const Request *request);
extern Operation *operation_make_heartbeat(Client *client,
										   MemoryContext context);
extern int	operation_parts(const Operation *op);
extern void operation_send(Operation *op, Watches *watches);
extern void operation_send_multi(Operation *const *ops, int count,
								 bool is_batch, uint32_t id,
								 MemoryContext context);
extern void operation_reset(Operation *op, Watches *watches);
extern void operation_free(Operation *op);
extern void operation_note_watch(const Operation *op, Watches *watches);
extern bool operation_is_in(const Operation *op, const char *directory);
extern void operation_note_deletion(Operation *op, const char *directory);
extern bool operation_is_proof(const Operation *op);
extern RequestResult operation_result(const Operation *op);
extern void operation_fill_answer(const Operation *op, RequestAnswer *answer);

#endif							/* ZKLOCK_OPERATION_PRIVATE_H */
