/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		Deadlocks between this instance and others.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_DEADLOCK_H
#define ZKLOCK_WORKER_DEADLOCK_H

extern void deadlock_attach(bool resumed);
extern void deadlock_set_connected(bool connected);
extern void deadlock_end_session(void);
extern void deadlock_ended(const int64 *ends, int n, bool all);
extern void deadlock_run(void);

#endif							/* ZKLOCK_WORKER_DEADLOCK_H */
