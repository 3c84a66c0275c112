/*-------------------------------------------------------------------------
 *
 * holds.h
 *		The locks that this backend holds, and their scopes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/holds.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOLDS_H
#define ZKLOCK_HOLDS_H

#include "backend/heavyweight.h"
#include "core/lock/znode.h"
#include "lib/ilist.h"
#include "shared/key.h"
#include "shared/slots.h"

/*
 * The holds of one lock, in the order of their acquisition; private to
 * holds.c.  All zero: no hold, no memory.
 */
typedef struct HoldStack
{
	int			nholds;			/* entries */
	int			maxholds;
	struct Hold *holds;			/* the latest is the last */
	int64		nsession;		/* number of the session's holds */
	int64		nundone;		/* number of marked holds */
} HoldStack;

typedef struct HeldLock
{
	ZkKey		key;			/* hash key, must be first: of the lock, or of
								 * our permit */
	ZkProcLock *proc;			/* of the slot; NULL: not even wanted */
	uint64		stats_id;		/* its id in stats.c */
	Heavyweight heavyweight;
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */
	bool		loss_reported;	/* a WARNING has reported the loss */
	int			claim;			/* of claim_reserve(), what it becomes at
								 * COMMIT; or -1 */
	bool		uses_claim;		/* the slot is held beside a claim */

	/* private to holds.c */
	HoldStack	stack;			/* empty: being acquired */
	dlist_node	node;			/* in held_list, unless that is empty */
	SubTransactionId touched;	/* in which the holds may have changed;
								 * Invalid: in none but Top */
	dlist_node	touched_node;	/* in touched_list, unless Invalid */
} HeldLock;

extern void holds_attach(void);

/* all locks that are held */
extern bool holds_exist(void);
extern HeldLock *holds_next(HeldLock *lock);
extern void holds_release_session(void);
extern void holds_release_advisory(void);
extern void holds_discard_session(void);
extern void holds_note_write(void);
extern bool holds_may_go(void);
extern void holds_end_transaction(bool commit);

/* one lock */
extern HeldLock *hold_find(const ZkKey *key);
extern HeldLock *hold_prepare(const ZkKey *key, ZnodeKind kind, int permits);
extern bool hold_is_held(const HeldLock *lock);
extern bool hold_is_of_instance(const HeldLock *lock);
extern int64 hold_count_of_session(const HeldLock *lock);
extern void hold_forget(HeldLock *lock);
extern void hold_push(HeldLock *lock, bool shared);
extern void hold_push_of_claim(HeldLock *lock, int claim);
extern void hold_end_claim(HeldLock *lock);
extern bool hold_is_of_claim(const HeldLock *lock);
extern void hold_move_to_session(HeldLock *lock);
extern bool hold_release(const ZkKey *key);
extern bool hold_release_advisory(HeldLock *lock, bool shared);
extern void hold_report_lost(const ZkKey *key, bool committing);

#endif							/* ZKLOCK_HOLDS_H */
