/*-------------------------------------------------------------------------
 *
 * operation_private.h
 *		One operation, as a request to the library and as its answer.
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
 * In place of one of ZOO_ERRORS: the stat that was to stand for this one has
 * failed.
 */
#define OPERATION_NOT_SHARED	(CLIENT_BATCH_FAILED + 1)

/* No owner of requests has this id. */
#define NOBODY				0

typedef struct Operation
{
	ClientEvent event;			/* the answer; must be first */
	dlist_node	node;			/* in a list of the flight */
	uint32_t	owner;			/* or NOBODY: of a heartbeat */
	Request		request;		/* "batch" is also, of CREATE and REQUEUE, the
								 * id of the multi that it is in */
	int			place;			/* its number in its multi, or the last of
								 * them */
	int			place_count;	/* and how many that multi has */
	int			piece;			/* the most that go in one batch with this
								 * one, since it was in one that has failed;
								 * or 0 */
	struct Operation *sharer;	/* STAT: next of those that it stands for */
	struct Multi *multi;		/* to be freed with this operation, or NULL */
	bool		directory_deleted;	/* CREATE: since it was submitted */
	ZooWatcherType unwatched;	/* UNWATCH: what it has the server remove, or
								 * 0 */
	bool		heartbeat;		/* this is all that it is for */
	zoo_op_result_t checked;	/* of a heartbeat */
	char	   *prefix;			/* REQUEUE: path to create, without the
								 * number; else NULL */
	char		path[FLEXIBLE_ARRAY_MEMBER];	/* of what it is about */
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
