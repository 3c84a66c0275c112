/*-------------------------------------------------------------------------
 *
 * holders.c
 *		Which backends hold slots, or wait for them: for views, for canceling
 *		them, and for finding deadlocks.
 *
 * A snapshot is read under all partition locks: see slots.c.  slots_waits()
 * and slots_holds_of(), which the worker calls repeatedly while there are long
 * waits, lock one partition at a time: each row was true at some moment of the
 * call.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/holders.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/clock.h"
#include "shared/holders.h"
#include "shared/slots_private.h"
#include "utils/memutils.h"

/* "boot" is zk_wall_time(0); the partition lock is held. */
static void
fill_row(ZkLockRow *row, const ZkSlot *slot, const ZkProcLock *proc,
		 TimestampTz boot)
{
	row->key = slot->key;
	key_set_advisory(&row->key, proc->advisory);
	key_path(&slot->key, row->path);
	row->claim = proc->is_claim;
	row->pid = proc->is_claim ? 0 : proc_backend(proc)->pid;
	row->kind = proc->kind;
	row->session = proc->session;
	row->granted = proc->granted;
	row->lost = proc->lost;
	row->since = boot + proc->since;
	row->token = proc->granted && !proc->lost ? slot->token : 0;
}

/* The partition lock is held. */
static void
fill_wait(ZkWait *wait, const ZkSlot *slot, ZkProcLock *proc)
{
	char		path[ZNODE_PATH_SIZE];

	proc->watched = true;
	key_path(&slot->key, path);
	key_tag(&slot->key, path, &wait->tag);
	wait->slot = proc->slot;
	wait->pid = proc_backend(proc)->pid;
	wait->kind = proc->kind;
	wait->since = proc->since;
	wait->xact_start = proc->xact_start;
	wait->state = slot->state;
	wait->contender = slot->contender;
}

/* Likewise. */
static void
fill_hold(ZkHold *hold, const ZkSlot *slot, ZkProcLock *proc)
{
	proc->watched = true;
	hold->slot = proc->slot;
	hold->pid = proc_backend(proc)->pid;
	hold->since = proc->since;
	hold->behind = slot->turn.behind;
	hold->contender = slot->contender;
}

/*
 * compare_pids
 *		A comparison for qsort(): the order of the pids of slots_holds_of().
 */
int
compare_pids(const void *a, const void *b)
{
	int			pid = *(const int *) a;
	int			other = *(const int *) b;

	return (pid > other) - (pid < other);
}

/*
 * slots_snapshot
 *		All holds and waits of this instance at one moment, palloc'd.
 */
ZkLockRow *
slots_snapshot(int *nrows)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	ZkLockRow  *rows;
	int			n = 0;
	TimestampTz boot = zk_wall_time(0);

	/* allocated ahead of the locks */
	rows = MemoryContextAllocHuge(CurrentMemoryContext,
								  mul_size(procs_max(), sizeof(ZkLockRow)));
	slots_lock_all(LW_SHARED);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			fill_row(&rows[n++], slot, proc, boot);
	slots_unlock();

	*nrows = n;
	return rows;
}

/*
 * slots_holders
 *		The backends of this instance that hold the lock in any mode, or a
 *		permit of the semaphore: an array, palloc'd.
 */
int *
slots_holders(const ZkKey *lock, int *npids)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	int		   *pids = palloc(procs_max() * sizeof(int));
	int			n = 0;

	slots_lock_all(LW_SHARED);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (!key_is_of_lock(&slot->key, lock))
			continue;
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			if (proc->granted && !proc->lost && !proc->is_claim)
				pids[n++] = proc_backend(proc)->pid;
	}
	slots_unlock();

	*npids = n;
	return pids;
}

/* Does the backend wait for this slot, and not in the lock manager? */
static bool
is_waiting(const ZkProcLock *proc)
{
	return !proc->granted && proc->ready && proc->victim_of == 0 &&
		proc->alternatives == 0 && proc->kind != ZNODE_PERMIT;
}

/*
 * slots_waits
 *		The waits of this instance's backends that wait for nothing but a slot:
 *		an array, palloc'd.
 *
 * Waits for permits and for any of several slots are left out: see
 * worker/waits.c.
 *
 * If the slot is WANTED, the backend waits for the contenders ahead, once ours
 * is queued.  If it is HELD, a reader waits behind other readers of this
 * instance, since another instance's writer stands behind their contender; so
 * it waits for its own instance's holders first.  If the slot is NONE or
 * RELEASING, the backend asks for it soon.  IDLE slots are left out, since the
 * backend takes them; so are waits that a deadlock is to end.
 *
 * The worker hears when one of them ends (slot_end_watch()), and may use the
 * slots until it calls slot_set_gone().
 */
ZkWait *
slots_waits(int *nwaits)
{
	int			n = procs_used();
	int			room = 16;
	int			nfound = 0;
	ZkWait	   *waits = palloc(room * sizeof(ZkWait));

	for (int i = 0; i < n; i++)
	{
		ZkProcLock *proc = proc_at(i);
		const ZkSlot *slot;

		if (!is_waiting(proc))
			continue;
		if (nfound == room)
			waits = repalloc_huge(waits, (room *= 2) * sizeof(ZkWait));
		slot = proc_lock_slot(proc, LW_SHARED);
		if (slot == NULL)
			continue;
		if (is_waiting(proc) && slot->state != ZK_SLOT_IDLE)
			fill_wait(&waits[nfound++], slot, proc);
		slot_unlock(slot);
	}
	*nwaits = nfound;
	return waits;
}

/*
 * slots_holds_of
 *		What these backends hold and have not lost: an array, palloc'd.
 *
 * "pids" are in the order of compare_pids().  Permits are left out.  Otherwise
 * as slots_waits().
 */
ZkHold *
slots_holds_of(const int *pids, int npids, int *nholds)
{
	int			n = npids > 0 ? procs_used() : 0;
	int			room = 16;
	int			nfound = 0;
	ZkHold	   *holds = palloc(room * sizeof(ZkHold));

	for (int i = 0; i < n; i++)
	{
		ZkProcLock *proc = proc_at(i);
		int			pid = proc_backend(proc)->pid;
		const ZkSlot *slot;

		if (!proc->granted || proc->lost ||
			bsearch(&pid, pids, npids, sizeof(int), compare_pids) == NULL)
			continue;
		if (nfound == room)
			holds = repalloc_huge(holds, (room *= 2) * sizeof(ZkHold));
		slot = proc_lock_slot(proc, LW_SHARED);
		if (slot == NULL)
			continue;
		if (proc_backend(proc)->pid == pid && proc->granted && !proc->lost &&
			!proc->is_claim && proc->kind != ZNODE_PERMIT &&
			slot->state == ZK_SLOT_HELD)
			fill_hold(&holds[nfound++], slot, proc);
		slot_unlock(slot);
	}
	*nholds = nfound;
	return holds;
}

static bool
is_one_of(int pid, const int *pids, int npids)
{
	for (int i = 0; i < npids; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/*
 * slots_cancel_holders
 *		Cancel the statements of these backends of slots_holders(), if they
 *		still hold the lock.
 *
 * Returns how many were canceled.  Backends that no longer hold the lock are
 * left alone, and so are those that are committing, which end by themselves.
 */
int
slots_cancel_holders(const ZkKey *lock, const int *pids, int npids)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	int			n = 0;

	if (npids == 0)
		return 0;
	slots_lock_all(LW_EXCLUSIVE);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (!key_is_of_lock(&slot->key, lock))
			continue;
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			if (is_one_of(proc_backend(proc)->pid, pids, npids) &&
				proc_cancel(proc))
				n++;
	}
	slots_unlock();
	return n;
}
