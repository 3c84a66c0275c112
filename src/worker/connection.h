/*-------------------------------------------------------------------------
 *
 * connection.h
 *		The worker's connection to ZooKeeper, and the lease of its session.
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

extern bool connection_open(void);
extern void connection_note_failure(int error);
extern void connection_set_up(void);
extern void connection_set_suspended(void);
extern void connection_set_refused(void);
extern void connection_message(const char *message);
extern void connection_keep_lease(void);
extern void connection_check(void);

#endif							/* ZKLOCK_CONNECTION_H */
