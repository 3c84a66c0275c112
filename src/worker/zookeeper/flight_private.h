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

#include "worker/zookeeper/client_private.h"

/* The owners of barriers, and of session.c's requests. */
#define NOBODY				0
#define OURSELVES			1

typedef struct Flight
{
	Size		chroot_len;		/* of the session: added to each path */
	Size		watch_bytes;	/* of the request that would set all watches
								 * again */
	int64		sent_ms;		/* zk_now_ms() when the latest was sent */
	int64		resend_ms;		/* zk_now_ms() before which none is sent */
	uint32		first;			/* see session_let_first(), or NOBODY */
} Flight;

extern Flight flight;

extern void flight_init(void);
extern void flight_end(void);
extern void flight_forget_out(void);
extern const Operation *flight_submit(uint32_t owner, const Request *request);
extern void flight_directory_deleted(const char *directory);
extern void flight_disconnect(void);
extern bool flight_is_out(void);
extern void flight_send(int64 now_ms);
extern void flight_send_alone(uint32_t owner, const Request *request);
extern void flight_hold_back(void);
extern Operation *flight_take_answer(Operation *op);
extern void flight_forget(Operation *op);
extern void flight_fire(const char *path, int event);
extern bool flight_next_fired(uint32 *owner, RequestAnswer *answer);

#endif							/* ZKLOCK_FLIGHT_PRIVATE_H */
