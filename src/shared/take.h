/*-------------------------------------------------------------------------
 *
 * take.h
 *		What backends that wait do to slots: want, ask, take, yield.
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
	ZK_REFUSED,					/* ZooKeeper refused */
	ZK_DEADLOCK,				/* the wait is to end, or nobody's would */
	ZK_GO_BACK,					/* call slot_step_back(), and wait in tier 1 */
	ZK_GIVE_WAY					/* the same, once slot_call_ahead() is false */
} ZkTake;

/* What two of them tell in addition. */
typedef struct ZkTakeNews
{
	ZkRefusal	refusal;		/* of ZK_REFUSED */
	int			permits_found;	/* ... because of ZK_REFUSAL_PERMITS */
	uint32		deadlock;		/* of ZK_DEADLOCK: its number */
} ZkTakeNews;

extern ZkProcLock *slot_want(const ZkKey *key, ZnodeKind kind, bool session,
							 bool together);
extern ZkProcLock *slot_want_leaving(const ZkProcLock *proc);
extern void slot_unwant(ZkProcLock *proc);
extern void slot_ask(ZkProcLock *proc);
extern void slot_ask_for_others(const ZkKey *key);
extern ZkTake slot_take(ZkProcLock *proc, int permits, ZkTakeNews *news);
extern ZkTake slots_take_together(ZkProcLock **procs, int n, uint32 *group,
								  int *which, ZkTakeNews *news);
extern void slot_step_back(ZkProcLock *proc);
extern void slot_yield(const ZkKey *key);
extern void slot_yield_other_mode(const ZkProcLock *proc);
extern ZkSlotState slot_read_state(ZkSlot *slot);
extern bool slot_is_leaving(ZkSlot *slot, bool *stuck);

/* for take_any.c, which has the partition locks exclusively */
extern ZkProcLock *slot_want_this(const ZkKey *key, ZnodeKind kind,
								  bool session, bool together,
								  int alternatives, bool tries);
extern void slot_note_unwanted(ZkProcLock *proc);
extern void slot_note_ahead(ZkProcLock *proc);
extern ZkTake slot_try_take(ZkProcLock *proc, int permits, ZkTakeNews *news);

#endif							/* ZKLOCK_TAKE_H */
