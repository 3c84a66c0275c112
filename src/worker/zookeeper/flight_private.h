/*-------------------------------------------------------------------------
 *
 * flight_private.h
 *		Operations on their way to ZooKeeper and back.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/flight_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FLIGHT_PRIVATE_H
#define ZKLOCK_FLIGHT_PRIVATE_H

#include "lib/ilist.h"
#include "worker/zookeeper/operation_private.h"

/* The operations of one session. */
typedef struct Flight
{
	Client	   *client;
	Watches    *watches;
	MemoryContext context;
	dlist_head	submitted;
	dlist_head	again;			/* to be sent before "submitted" */
	dlist_head	out;			/* the flight that is out */
	struct owners_hash *owners; /* in it */
	bool		batch_failed;	/* one of it */
	uint32_t	last_batch;		/* ID of the latest multi; never 0 again */
	int64		sent_ms;		/* zk_now_ms() when the latest was sent */
	int64		resend_ms;		/* zk_now_ms() before which none is sent */
} Flight;

extern void flight_init(Flight *flight, Client *client, Watches *watches,
						MemoryContext context);
extern void flight_submit(Flight *flight, uint32_t owner,
						  const Request *request);
extern void flight_submit_heartbeat(Flight *flight);
extern void flight_directory_deleted(Flight *flight, const char *directory);
extern void flight_disconnect(Flight *flight);
extern bool flight_is_out(const Flight *flight);
extern void flight_send(Flight *flight, int64 now_ms);
extern void flight_hold_back(Flight *flight);
extern Operation *flight_answer(Flight *flight, ClientEvent *event);
extern void flight_fill_answer(Flight *flight, const Operation *op,
							   RequestAnswer *answer);
extern void flight_forget(Operation *op);
extern void flight_forget_waiting(Flight *flight);
extern void flight_forget_out(Flight *flight);

#endif							/* ZKLOCK_FLIGHT_PRIVATE_H */
