/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		Deadlocks between this instance and others.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

extern void deadlock_attach(bool resumed);
extern void deadlock_set_connected(bool connected);
extern void deadlock_end_session(void);
extern void deadlock_run(void);

#endif							/* ZKLOCK_DEADLOCK_H */
