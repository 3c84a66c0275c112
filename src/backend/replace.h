/*-------------------------------------------------------------------------
 *
 * replace.h
 *		Replaces calls of PostgreSQL's advisory lock functions by calls of
 *		ours.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/replace.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REPLACE_H
#define ZKLOCK_REPLACE_H

extern void replace_init(void);

#endif							/* ZKLOCK_REPLACE_H */
