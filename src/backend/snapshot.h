/*-------------------------------------------------------------------------
 *
 * snapshot.h
 *		Waiting without a snapshot.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/snapshot.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SNAPSHOT_H
#define ZKLOCK_SNAPSHOT_H

#include "backend/acquire.h"
#include "fmgr.h"

extern void snapshot_release(FunctionCallInfo fcinfo, const ZkRequest *request);

#endif							/* ZKLOCK_SNAPSHOT_H */
