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
#include "utils/hsearch.h"
#include "worker/zookeeper/client_private.h"

/* The watches of one session. */
typedef struct Watches
{
	Client	   *client;
	MemoryContext context;
	HTAB	   *by_key;			/* of Watch: set, requested, or being
								 * removed */
	Size		bytes;			/* of the request that would set them again */
	Size		chroot_len;		/* added to each path in that */
	dlist_head	fired;			/* of Watcher: to be reported */
	bool		fired_deleted;	/* of the event being delivered */
} Watches;

/* The operations of one session. */
typedef struct Flight
{
	Client	   *client;
	Watches		watches;
	MemoryContext context;
	HTAB	   *owners;			/* of requests, by ID */
	uint32		last_owner;
	void		(*proved) (const Operation *op);	/* see flight_init() */
	dlist_head	submitted;
	dlist_head	again;			/* to be sent before "submitted" */
	dlist_head	out;			/* the flight that is out */
	struct flying_hash *flying;	/* the owners of what is in it */
	bool		batch_failed;	/* one of it */
	uint32_t	last_batch;		/* ID of the latest multi; never 0 again */
	int64		sent_ms;		/* zk_now_ms() when the latest was sent */
	int64		resend_ms;		/* zk_now_ms() before which none is sent */
} Flight;

extern void flight_init(Flight *flight, Client *client,
						MemoryContext context,
						void (*proved) (const Operation *op));
extern uint32 flight_add_owner(Flight *flight, RequestHandler handler,
							   void *data);
extern void flight_remove_owner(Flight *flight, uint32 owner);
extern void flight_begin(Flight *flight, Size chroot_len);
extern void flight_end(Flight *flight);
extern void flight_submit(Flight *flight, uint32_t owner,
						  const Request *request);
extern void flight_submit_heartbeat(Flight *flight);
extern void flight_directory_deleted(Flight *flight, const char *directory);
extern void flight_disconnect(Flight *flight);
extern bool flight_is_out(const Flight *flight);
extern void flight_send(Flight *flight, int64 now_ms);
extern const Operation *flight_send_alone(Flight *flight,
										  const Request *request,
										  int64 now_ms);
extern void flight_hold_back(Flight *flight);
extern ClientEvent *flight_next_event(Flight *flight);
extern void flight_forget_out(Flight *flight);
extern bool flight_is_proof(const Operation *op);

#endif							/* ZKLOCK_FLIGHT_PRIVATE_H */
