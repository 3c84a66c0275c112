/*-------------------------------------------------------------------------
 *
 * attempt.h
 *		The call under way that acquires locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/attempt.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ATTEMPT_H
#define ZKLOCK_ATTEMPT_H

#include "backend/holds.h"
#include "shared/procs.h"
#include "shared/stats.h"
#include "shared/take.h"

typedef struct Attempt
{
	int			nlocks;			/* 0: no such call */
	HeldLock  **locks;			/* locks that it acquires, none of them held
								 * yet */
	int			at;				/* the one that it is about: those before it
								 * have been taken; 0 if one is enough */
	ZkProcLock *other;			/* wants the slot of the other mode, to see
								 * its contender go; or NULL */
	ZkOutcome	outcome;		/* counted if the call ends now; ZK_PENDING:
								 * an error */
	bool		snapshot_warned;	/* in this transaction */
} Attempt;

extern Attempt attempt;

extern void attempt_attach(void);
extern void attempt_make_room(int nlocks);
extern void attempt_add(HeldLock *lock);
extern void attempt_end_any(const ZkAnyWait *wait, HeldLock *winner);
extern void attempt_succeed(void);
extern void attempt_give_back(void);
extern void attempt_abandon(void);
extern void attempt_end_transaction(void);

#endif							/* ZKLOCK_ATTEMPT_H */
