/*-------------------------------------------------------------------------
 *
 * queries.h
 *		The worker's answers to the questions of backends.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/queries.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_QUERIES_H
#define ZKLOCK_WORKER_QUERIES_H

#include "worker/recipe.h"

/* Set in the owner ids of operations for queries, and in no contender's. */
#define QUERY_OWNER		UINT32_C(0x80000000)

extern void queries_collect(void);
extern void queries_begin(void);
extern void queries_event(uint32_t owner, const RecipeInput *in);
extern void queries_restart(void);

#endif							/* ZKLOCK_WORKER_QUERIES_H */
