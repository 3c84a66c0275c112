/*-------------------------------------------------------------------------
 *
 * wake.h
 *		When the worker wakes up, and why.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/wake.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WAKE_H
#define ZKLOCK_WAKE_H

typedef enum WakeReason
{
	WAKE_DRAIN,					/* has the last holder gone? */
	WAKE_CONNECTION,			/* open the session, or give up connecting */
	WAKE_LEASE,					/* prove that the session is alive */
	WAKE_FLUSH,					/* send what has been collected */
	WAKE_SWEEP,					/* check all owners */
	WAKE_CHECK,					/* check one contender */
	WAKE_WATCH,					/* set watches again */
	WAKE_SCAN,					/* scan for deadlocks */
	WAKE_DEADLOCK,				/* search for deadlocks between instances */
	WAKE_CLAIMS,				/* end claims that are over */
	WAKE_FLEET					/* write our member znode */
} WakeReason;

#define WAKE_REASONS		(WAKE_FLEET + 1)

extern void wake_set(WakeReason reason, int64 at_ms);
extern int64 wake_time(WakeReason reason);
extern bool wake_is_due(WakeReason reason);
extern long wake_timeout(void);

#endif							/* ZKLOCK_WAKE_H */
