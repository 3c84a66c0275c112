/*-------------------------------------------------------------------------
 *
 * take_any.h
 *		What a backend does to slots of which it wants any.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/take_any.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TAKE_ANY_H
#define ZKLOCK_TAKE_ANY_H

#include "shared/take.h"

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

extern ZkProcLock *slot_want_any(const ZkKey *key, ZnodeKind kind,
								 bool session, int alternatives, bool tries);
extern ZkTake slots_take_any(ZkAnyWait *wait);
extern void slots_find_reachable(ZkAnyWait *wait);
extern void slots_unwant_any(const ZkAnyWait *wait, int but);
extern bool slot_other_mode_leaves(const ZkProcLock *proc);
extern bool slot_call_ahead(const ZkProcLock *proc);

#endif							/* ZKLOCK_TAKE_ANY_H */
