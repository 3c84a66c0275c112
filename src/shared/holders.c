/*-------------------------------------------------------------------------
 *
 * holders.c
 *		Which backends hold slots, or wait for them: for views, and to cancel
 *		them.
 *
 * Each function takes all partition locks, as slots.c tells.
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
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* "boot" is when zk_now_us() was 0; the partition lock is held. */
static void
fill_row(ZkLockRow *row, const ZkSlot *slot, const ZkProcLock *proc,
		 TimestampTz boot)
{
	row->key = slot->key;
	key_path(&slot->key, row->path);
	row->pid = proc->pid;
	row->kind = proc->kind;
	row->session = proc->session;
	row->granted = proc->granted;
	row->lost = proc->lost;
	row->since = boot + proc->since;
	row->token = proc->granted && !proc->lost ? slot->token : 0;
}

/*
 * slots_snapshot
 *		All holds and waits of this cluster at one moment, palloc'd.
 */
ZkLockRow *
slots_snapshot(int *nrows)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	ZkLockRow  *rows;
	int			n = 0;
	TimestampTz boot = -zk_now_us();

	boot += GetCurrentTimestamp();

	/* allocated ahead of the locks */
	rows = MemoryContextAllocHuge(CurrentMemoryContext,
								  mul_size(procs_max(), sizeof(ZkLockRow)));
	slots_lock_all(LW_SHARED);
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			fill_row(&rows[n++], slot, proc, boot);
	slots_unlock_all();

	*nrows = n;
	return rows;
}

/*
 * slots_holders
 *		The backends of this cluster that hold the lock in any mode, or a
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
			if (proc->granted && !proc->lost)
				pids[n++] = proc->pid;
	}
	slots_unlock_all();

	*npids = n;
	return pids;
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
 *		Cancel what these backends of slots_holders() are running, if they
 *		still hold the lock.
 *
 * Returns how many were canceled: not those that do not hold the lock any
 * more, and not those in their commit, which ends by itself.
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
			if (is_one_of(proc->pid, pids, npids) && proc_cancel(proc))
				n++;
	}
	slots_unlock_all();
	return n;
}

/*
 * slots_count
 *		How many slots, and wants and holds of them, are in use?
 */
void
slots_count(int *nslots, int *nprocs)
{
	*nslots = slots_in_use();
	*nprocs = procs_in_use();
}
