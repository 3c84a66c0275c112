/*-------------------------------------------------------------------------
 *
 * functions.h
 *		The SQL functions that take and release locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/functions.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FUNCTIONS_H
#define ZKLOCK_FUNCTIONS_H

#include "backend/acquire.h"
#include "fmgr.h"

extern int64 get_timeout(FunctionCallInfo fcinfo, int argno);
extern ZnodeKind kind_of_lock(bool shared);
extern bool acquire_or_fail(const ZkRequest *request);

#endif							/* ZKLOCK_FUNCTIONS_H */
