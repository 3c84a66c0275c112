/*-------------------------------------------------------------------------
 *
 * drop.h
 *		What backends that hold slots do to them: check, commit, drop.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/drop.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DROP_H
#define ZKLOCK_DROP_H

#include "shared/slots.h"

extern void slot_drop(ZkProcLock *proc, int64 now);
extern bool slot_is_mine(ZkProcLock *proc);
extern bool slot_read_token(ZkProcLock *proc, int64 *token,
							ZkRefusal *refusal);
extern bool slot_begin_commit(ZkProcLock *proc);
extern void slot_end_commit(ZkProcLock *proc);
extern void slot_set_scope(ZkProcLock *proc, bool session);

#endif							/* ZKLOCK_DROP_H */
