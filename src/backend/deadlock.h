/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		The error of a deadlock with other instances.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCK_H
#define ZKLOCK_DEADLOCK_H

#include "lib/stringinfo.h"
#include "shared/deadlocks.h"

extern void deadlock_report(uint32 number);
extern void deadlock_append_wait(StringInfo buf, const char *cluster_name,
								 int holder_pid, int pid, ZnodeKind kind,
								 const char *path);
extern bool deadlock_is_blocked_by(const ZkDeadlock *deadlock, int member,
								   int other);

#endif							/* ZKLOCK_DEADLOCK_H */
