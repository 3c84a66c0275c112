/*-------------------------------------------------------------------------
 *
 * slots_private.h
 *		The table of slots, for the files that change slots or read several:
 *		take.c (backends), grant.c (the worker), claims.c, holders.c and
 *		test_build.c (either).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slots_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOTS_PRIVATE_H
#define ZKLOCK_SLOTS_PRIVATE_H

#include "core/lock/turn.h"
#include "shared/slots.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"

/* What moves a slot from state to state: see the table in slots.c. */
typedef enum SlotEvent
{
	SLOT_ASKED,
	SLOT_GRANTED,
	SLOT_TAKEN,
	SLOT_HANDED,
	SLOT_GIVEN_UP,
	SLOT_REQUEUED,
	SLOT_CONTENDER_GONE
} SlotEvent;

/*
 * Kept small, since there may be many.  Times are in microseconds, as of
 * zk_now_us().
 */
struct ZkSlot
{
	ZkKey		key;			/* hash key, must be first */
	uint8		state;			/* ZkSlotState */
	uint8		refusal;		/* ZkRefusal: news for the waiter that asked */
	uint8		token_refusal;	/* ZkRefusal: why there is no token */
	uint8		asked_kind;		/* ZnodeKind of the contender asked for */
	bool		queued:1;		/* WANTED, RELEASING: may take long */
	bool		asked:1;		/* a backend waits for a contender */
	bool		mailed:1;		/* in the worker's mail */
	bool		check_wanted:1; /* a reader asks for ZK_MAIL_WATCH_QUEUE */
	bool		writer_behind:1;	/* a writer was behind our readers */
	bool		has_victim:1;	/* a waiter may have a "victim_of" */
	int			asked_permits;	/* permits of the semaphore asked for, or 0 */
	int			asker_pid;		/* of the latest backend that asked */
	int			permits_found;	/* of ZK_REFUSAL_PERMITS */
	ZkContender contender;		/* in any state but NONE */
	ConditionVariable cv;		/* broadcast at every change for a waiter */
	int64		token;			/* czxid, or 0 while not known */

	/* the backends, in the order of their arrival, and how many there are */
	uint64		nwanting:21;
	uint64		nholding:21;	/* without those that have lost it */
	uint64		nany:21;		/* backends that want any of several slots */
	ZkProcLock *procs;
	ZkProcLock **procs_end;		/* the last "next" */

	/* fairness to other instances' contenders */
	Turn		turn;			/* in us as of zk_now_us() */
	int64		checked_at;		/* when writer_behind was true, by a list that
								 * a backend asked for */
	int64		check_start;	/* when that list was asked for, or 0 */

	ZkSlot	   *mail_next;		/* in the mail, or NULL */
};

/*
 * proc_backend
 *		The PGPROC of the backend.
 *
 * It stays that backend's while the partition lock is held, since a backend
 * gives back its ZkProcLocks before it ends.  Without the lock, or of a claim,
 * it may belong to any other backend, or to none (pid 0).
 */
static inline PGPROC *
proc_backend(const ZkProcLock *proc)
{
	return &ProcGlobal->allProcs[proc->procno];
}

/* the partition locks */
extern void slot_lock(const ZkSlot *slot, LWLockMode mode);
extern void slot_unlock(const ZkSlot *slot);
extern void slot_unlock_last(ZkSlot *slot);
extern ZkSlot *proc_lock_slot(const ZkProcLock *proc, LWLockMode mode);
extern void slots_lock_of(ZkProcLock **procs, int n);
extern void slots_lock_all(LWLockMode mode);
extern void slots_unlock(void);

/* the table */
extern ZkSlot *slot_find_locked(const ZkKey *key, LWLockMode mode);
extern ZkSlot *slot_find_other_mode(const ZkSlot *slot, LWLockMode mode);
extern ZkSlot *slot_enter_locked(const ZkKey *key);
extern void slot_remove_unused(ZkSlot *slot);
extern void slots_scan(HASH_SEQ_STATUS *scan);
extern bool slots_give_up_retained(void);
extern int64 slot_retain_time(const ZkSlot *slot);
extern int32 slots_release_time(void);
extern void slot_learn_release(ZkSlot *slot);

/* the states */
extern void slot_event(ZkSlot *slot, SlotEvent event);
extern void slot_wake(ZkSlot *slot);
extern void slot_wake_any(const ZkSlot *slot);
extern void slot_mail(ZkSlot *slot);
extern void slot_lose_holders(ZkSlot *slot);
extern bool slot_has_taker(const ZkSlot *slot);

extern void slot_end_watch(ZkProcLock *proc);

/* the mail */
extern bool mail_is_waiting(void);
extern void mail_clear(void);

/* what backends want or hold */
extern int	procs_max(void);
extern int	procs_used(void);
extern ZkProcLock *proc_at(int i);
extern ZkProcLock *proc_new(const ZkProcLock *wish);
extern void proc_free(ZkProcLock *proc);
extern bool proc_cancel(const ZkProcLock *proc);

/* of the worker: claims may be lost that it has not ended yet */
extern bool claims_may_be_lost;

/* in take.c: holders; the partition lock is held exclusively */
extern void slot_add_proc(ZkProcLock *proc);
extern bool slot_drop_locked(ZkProcLock *proc, int64 now);

#endif							/* ZKLOCK_SLOTS_PRIVATE_H */
