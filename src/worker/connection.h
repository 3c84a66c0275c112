/*-------------------------------------------------------------------------
 *
 * connection.h
 *		The worker's connections to ZooKeeper, and the leases of its sessions.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/connection.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONNECTION_H
#define ZKLOCK_CONNECTION_H

extern void connection_open(int session);
extern void connection_note_failure(int session, int error);
extern void connection_set_up(int session);
extern void connection_set_suspended(int session);
extern bool connection_is_locked_out(int session);
extern void connection_set_refused(int session);
extern void connection_message(int session, const char *message);
extern int64 connection_keep_lease(int session);
extern int64 connection_check(int session);

#endif							/* ZKLOCK_CONNECTION_H */
