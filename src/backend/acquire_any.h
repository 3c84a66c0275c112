/*-------------------------------------------------------------------------
 *
 * acquire_any.h
 *		Taking the first of several locks that is free.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/acquire_any.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACQUIRE_ANY_H
#define ZKLOCK_ACQUIRE_ANY_H

#include "backend/waiting.h"

extern ZkOutcome acquire_any(const ZkRequest *request, ZkResult *result);

#endif							/* ZKLOCK_ACQUIRE_ANY_H */
