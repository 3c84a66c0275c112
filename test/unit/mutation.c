/*-------------------------------------------------------------------------
 *
 * mutation.c
 *		The mutation in force, for the files that can be broken on purpose.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/mutation.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/mutation.h"

int			zklock_mutation = ZK_MUTATION_NONE;
