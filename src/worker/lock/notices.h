/*-------------------------------------------------------------------------
 *
 * notices.h
 *		Has sessions told that they have lost locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/notices.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTICES_H
#define ZKLOCK_NOTICES_H

extern void notices_run(void);

#endif							/* ZKLOCK_NOTICES_H */
