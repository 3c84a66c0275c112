/*-------------------------------------------------------------------------
 *
 * checks.h
 *		Contenders that are looked after at times of their own.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/checks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CHECKS_H
#define ZKLOCK_CHECKS_H

extern void checks_run(void);
extern void checks_watch_queues(int session, bool connected);

#endif							/* ZKLOCK_CHECKS_H */
