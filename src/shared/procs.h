/*-------------------------------------------------------------------------
 *
 * procs.h
 *		What the backends of this instance want or hold of slots.
 *
 * See procs.c for the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/procs.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROCS_H
#define ZKLOCK_PROCS_H

#include "core/lock/znode.h"
#include "datatype/timestamp.h"

/* In place of a deadlock's number: the victim requeues in tier 1. */
#define ZK_VICTIM_REQUEUES	PG_UINT32_MAX

/*
 * What one backend or claim wants or holds of a slot, as a PROCLOCK is for the
 * lock manager.  Kept small, since there may be many.  "committing" and
 * "watched", which alone may change under a shared lock, have a byte each.
 */
typedef struct ZkProcLock
{
	struct ZkSlot *slot;
	struct ZkProcLock *next;	/* of the same slot, or of the free list */
	int			procno;			/* number of its PGPROC */
	bool		granted;		/* holds the slot; else wants it */
	bool		lost;			/* granted, but the contender is gone */
	bool		committing;		/* past the commit check: not to be canceled */
	bool		watched;		/* a scan for deadlocks has seen it: the worker
								 * hears when it ends (slot_end_watch()) */
	uint8		kind;			/* ZnodeKind of the contender that it wanted */
	bool		asked:1;		/* has asked for a contender */
	bool		ready:1;		/* has the heavyweight lock, and only waits
								 * for the slot */
	bool		session:1;		/* has a session-scoped hold */
	bool		watches:1;		/* wants nothing but to see the slot's
								 * contender go */
	bool		provisional:1;	/* of a call that has not got all its locks
								 * yet, and begins again when it loses one */
	bool		tries:1;		/* wants any of several, but waits behind no
								 * one */
	bool		terminates:1;	/* the session ends if it loses its
								 * session-scoped hold */
	bool		advisory:1;		/* the lock stands for an advisory lock of its
								 * database */
	bool		superuser:1;	/* of a superuser's session */
	bool		is_claim:1;		/* granted: of a claim, not of a process */
	bool		uses_claim:1;	/* granted: beside a claim, or one that was */
	bool		retaken:1;		/* granted: it found the slot retained */
	uint16		alternatives:9; /* not granted: number of slots of which it
								 * wants any; 0: this very one */
	uint32		victim_of;		/* number of the deadlock that ends the wait,
								 * or 0, or ZK_VICTIM_REQUEUES */
	int64		since;			/* start of the want or hold, as of
								 * zk_now_us() */
	TimestampTz xact_start;		/* start of the transaction that wanted it; of
								 * a claim, its number */
} ZkProcLock;

/* module load */
extern void procs_request_shmem(void);
extern void procs_startup_shmem(void);

/* backends, before they want a lock */
extern void procs_note_role(void);

/* for the worker's foreign.c */
extern bool procs_remote_seen(void);

#endif							/* ZKLOCK_PROCS_H */
