/*-------------------------------------------------------------------------
 *
 * take.h
 *		What backends do to slots: want, ask, take, yield, drop.
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

#include "shared/procs.h"
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

/* The slots of which a backend wants any, and what has been found of them. */
typedef struct ZkAnyWait
{
	int			n;
	ZkProcLock **procs;			/* in the order in which they are preferred */
	bool		immediate;		/* wait behind nobody */
	bool	   *ready;			/* by slot: the caller has its heavyweight
								 * lock */
	bool	   *waited;			/* by slot: somebody was ahead of the caller */

	/* by slots_find_reachable() */
	bool	   *reachable;		/* by slot: the caller may try to get that */

	/* by slots_take_any() */
	int			which;			/* the slot that the answer is about */
	int			npending;		/* slots of which nothing is known yet */
	int			pending;		/* one of them */
	int			nqueued;		/* slots for which contenders are ahead */
	uint32		group;			/* of the contenders that it has asked for */
	ZkTakeNews	news;
} ZkAnyWait;

/* to want and take one, or all together */
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

/* the first of several */
extern ZkProcLock *slot_want_any(const ZkKey *key, ZnodeKind kind,
								 bool session, int alternatives, bool tries);
extern ZkTake slots_take_any(ZkAnyWait *wait);
extern void slots_find_reachable(ZkAnyWait *wait);
extern void slots_unwant_any(const ZkAnyWait *wait, int but);
extern bool slot_other_mode_leaves(const ZkProcLock *proc);
extern bool slot_call_ahead(const ZkProcLock *proc);

/* those that are held */
extern void slot_drop(ZkProcLock *proc, int64 now);
extern bool slot_is_mine(ZkProcLock *proc);
extern bool slot_read_token(ZkProcLock *proc, int64 *token,
							ZkRefusal *refusal);
extern bool slot_begin_commit(ZkProcLock *proc);
extern void slot_end_commit(ZkProcLock *proc);
extern void slot_set_scope(ZkProcLock *proc, bool session);

#endif							/* ZKLOCK_TAKE_H */
