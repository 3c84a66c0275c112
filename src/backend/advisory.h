/*-------------------------------------------------------------------------
 *
 * advisory.h
 *		PostgreSQL's advisory lock functions, and ours in place of them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/advisory.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ADVISORY_H
#define ZKLOCK_ADVISORY_H

extern void advisory_init(void);

#endif							/* ZKLOCK_ADVISORY_H */
