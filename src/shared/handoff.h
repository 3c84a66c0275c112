/*-------------------------------------------------------------------------
 *
 * handoff.h
 *		When a cluster keeps a lock that a backend drops, and when it lets go.
 *
 * See handoff.c for the rules.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/handoff.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HANDOFF_H
#define ZKLOCK_HANDOFF_H

#include "c.h"

/*
 * How long a lock is kept for a backend that does not take it, in us, and for
 * how long it is left idle before its owner must be proved.
 */
#define ZK_MAX_IDLE		100000

/* What a slot knows of those behind its contender, and of its turn. */
typedef struct ZkHandoff
{
	int64		turn_start;		/* of the first handoff since the grant, or
								 * since others are known to wait; or 0 */
	int64		keep_until;		/* IDLE: not given up before, if nobody else
								 * waits */
	int			turn_due;		/* backends that waited at turn_start and have
								 * not had the lock since */
	uint8		contested;		/* we had to queue behind others for it: 2;
								 * for the contender before it: 1 */
	bool		watch_wanted;	/* see ZK_MAIL_WATCH_QUEUE ... */
	bool		watch_asked;	/* ... and once is enough */
	bool		watched;		/* the worker hears of others behind us */
	bool		contended;		/* it has */
} ZkHandoff;

/* What else the rules depend on. */
typedef struct ZkHandoffInput
{
	bool		taker;			/* a backend can take the slot */
	bool		retain;			/* the contender says that it may be idle */
	bool		shared;			/* it is a reader's */
	bool		room;			/* few enough slots are in use to retain one */
	bool		mail_waiting;	/* until the worker can send something again */
	int			nwanting;		/* backends that want the slot */
} ZkHandoffInput;

extern void handoff_granted(ZkHandoff *handoff, bool queued, int64 now);
extern void handoff_end(ZkHandoff *handoff);
extern bool handoff_goes_on(ZkHandoff *handoff, const ZkHandoffInput *input,
							int64 now);
extern bool handoff_leave_idle(ZkHandoff *handoff,
							   const ZkHandoffInput *input, int64 now);
extern bool handoff_is_retained(const ZkHandoff *handoff, bool retain,
								int64 now);
extern bool handoff_needs_lease(const ZkHandoff *handoff, bool retain,
								int64 now);
extern bool handoff_take_watch_wanted(ZkHandoff *handoff);
extern void handoff_set_watched(ZkHandoff *handoff, bool watched);
extern void handoff_forget_watch(ZkHandoff *handoff);
extern void handoff_set_contended(ZkHandoff *handoff, int nwanting, int64 now);
extern void handoff_bound_retained(ZkHandoff *handoff, int64 now);

#endif							/* ZKLOCK_HANDOFF_H */
