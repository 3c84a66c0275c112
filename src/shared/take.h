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

#include "shared/outcome.h"
#include "shared/session_info.h"
#include "shared/slots.h"

/* The outcome of a call, as its error message needs it. */
typedef struct ZkResult
{
	ZkOutcome	outcome;
	const char *name;			/* of the lock in question */
	const ZkKey *key;			/* of its hold */

	/* filled in by the functions here */
	ZkRefusal	refusal;		/* of ZK_DENIED */
	uint32		deadlock;		/* of ZK_DEADLOCKED: its number */
	int			permits_found;	/* of ZK_REFUSAL_PERMITS */

	ZkSessionInfo *session;		/* of ZK_NO_SESSION, palloc'd */
	char	   *outage;			/* of ZK_NOT_IN_TIME: why ZooKeeper is to
								 * blame, palloc'd; NULL if it is not */
} ZkResult;

/* The slots of which a backend wants any, and what it found. */
typedef struct ZkAnyWait
{
	int			n;
	ZkProcLock **procs;			/* in the order of preference */
	bool		immediate;		/* wait behind no one */
	bool	   *ready;			/* by slot: the caller has its heavyweight
								 * lock */
	bool	   *waited;			/* by slot: another backend or contender was
								 * ahead */

	/* set by slots_find_reachable() */
	bool	   *reachable;		/* by slot: the caller may try for that lock */

	/* set by slots_take_any() */
	int			which;			/* the slot that the answer is about */
	int			npending;		/* slots of which nothing is known yet */
	int			nqueued;		/* slots for which contenders are ahead */
	ZkResult   *result;			/* of the call */
} ZkAnyWait;

/* one lock */
extern void slots_report_full(void);
extern ZkProcLock *slot_want(const ZkKey *key, const ZkProcLock *wish);
extern void slots_check_room(const ZkKey **keys, int n, ZnodeKind kind);
extern void slot_unwant(ZkProcLock *proc);
extern void slot_ask(ZkProcLock *proc);
extern void slot_ask_for_others(const ZkKey *key);
extern ZkOutcome slot_take(ZkProcLock *proc, int permits, ZkResult *result);
extern void slot_requeue_tier1(ZkProcLock *proc);
extern void slot_yield_other_mode(const ZkProcLock *proc);
extern ZkSlotState slot_read_state(ZkSlot *slot);
extern bool slot_other_mode_leaves(const ZkProcLock *proc);

/* the first of several */
extern ZkOutcome slots_take_any(ZkAnyWait *wait);
extern void slots_find_reachable(ZkAnyWait *wait);
extern void slots_unwant_any(const ZkAnyWait *wait, int but);
extern bool slot_call_ahead(const ZkProcLock *proc);

/* slots that the backend holds */
extern bool slot_drop(ZkProcLock *proc, int64 now);
extern bool slot_is_mine(ZkProcLock *proc);
extern bool slots_keep(ZkProcLock **procs, int n);
extern bool slot_read_token(ZkProcLock *proc, int64 *token,
							ZkRefusal *refusal);
extern bool slot_begin_commit(ZkProcLock *proc);
extern void slot_end_commit(ZkProcLock *proc);
extern void slot_set_scope(ZkProcLock *proc, bool session);

#endif							/* ZKLOCK_TAKE_H */
