/*-------------------------------------------------------------------------
 *
 * take.h
 *		What backends do to slots: want, take, drop.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/take.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAKE_H
#define ZKLOCK_TAKE_H

#include "shared/slots.h"

typedef enum ZkTake
{
	ZK_TAKEN,					/* the slot is ours */
	ZK_PENDING,					/* wait: no word from ZooKeeper yet */
	ZK_UNPROVED,				/* wait: is the cluster still the owner? */
	ZK_QUEUED,					/* wait: contenders are ahead */
	ZK_REFUSED					/* ZooKeeper refused: *refusal tells why */
} ZkTake;

extern ZkProcLock *slot_want(const ZkKey *key, ZnodeKind kind, bool session,
							 bool together);
extern ZkProcLock *slot_want_leaving(const ZkProcLock *proc);
extern void slot_unwant(ZkProcLock *proc);
extern void slot_ask(ZkProcLock *proc);
extern void slot_ask_for_others(const ZkKey *key);
extern ZkTake slot_take(ZkProcLock *proc, int permits, ZkRefusal *refusal,
						int *permits_found);
extern ZkTake slots_take_together(ZkProcLock **procs, int n, uint32 *group,
								  int *which, ZkRefusal *refusal);
extern void slot_yield(const ZkKey *key);
extern void slot_yield_other_mode(const ZkProcLock *proc);
extern void slot_drop(ZkProcLock *proc, int64 now);
extern ZkSlotState slot_read_state(ZkSlot *slot);
extern bool slot_is_leaving(ZkSlot *slot, bool *stuck);
extern bool slot_is_mine(ZkProcLock *proc, int64 *token);
extern bool slot_begin_commit(ZkProcLock *proc);
extern void slot_end_commit(ZkProcLock *proc);
extern void slot_set_scope(ZkProcLock *proc, bool session);

#endif							/* ZKLOCK_TAKE_H */
