/*-------------------------------------------------------------------------
 *
 * fence.h
 *		Fencing tokens in the database: the table zk_fences.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/fence.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FENCE_H
#define ZKLOCK_FENCE_H

extern void fence_write(Oid function, const char *name, int64 token);

#endif							/* ZKLOCK_FENCE_H */
