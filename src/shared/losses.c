/*-------------------------------------------------------------------------
 *
 * losses.c
 *		Which sessions are to be told that they have lost a lock.
 *
 * A session that holds a lock for longer than a transaction may be idle when
 * the lock is lost, and hears of that with its next statement only.  So it is
 * told by NOTIFY.  That needs a transaction in the session's database, which
 * the worker cannot have: it starts a process there for a moment
 * (worker/lock/notices.c), which sends all that is to be told (backend/notice.c).
 *
 * There is no queue of what is to be told: a lost hold stays in its slot until
 * the session has given it back, and ZkProcLock.untold says that nobody has
 * told of it.  So no loss is forgotten, however many come at once and whoever
 * of the processes ends meanwhile, and there is nothing that can be full.
 *
 * Protocol.  The mark is guarded by the partition lock, as all of a ZkProcLock
 * (slots.c), and is changed under the exclusive lock:
 *
 *		set			by the worker, with "lost", if the hold is the session's
 *		cleared		by the process that tells of it, when its transaction has
 *					been committed, if it is the same hold still
 *		cleared		by the worker of a standby: nobody can be told there
 *		gone		with the ZkProcLock, when the session has given back the
 *					hold or ends: then there is nothing to tell
 *
 * Since it is cleared after the commit, a loss is told again if the process ends
 * in between; and a session may be told of a hold that it has just given back.
 * No loss is left out.  procs_losses() grows after each mark, so that the worker
 * need not look for marks otherwise.
 *
 * All marks are looked at one by one, each under the lock of its own partition,
 * and no lock is held while something is sent.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/losses.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/losses.h"
#include "shared/slots_private.h"
#include "utils/memutils.h"

/*
 * Lock the slot of a lost hold that its session is to be told of, with the
 * number "i"; NULL, and nothing is locked, if that is no such hold.
 */
static ZkSlot *
lock_untold(int i, LWLockMode mode)
{
	const ZkProcLock *proc = proc_at(i);
	ZkSlot	   *slot;

	if (!proc->untold)
		return NULL;
	slot = proc_lock_slot(proc, mode);
	if (slot == NULL || proc->untold)
		return slot;
	slot_unlock(slot);
	return NULL;
}

/*
 * losses_count
 *		How many losses were to be told, ever: another number than before tells
 *		that there are new ones.
 */
uint32
losses_count(void)
{
	return procs_losses();
}

/*
 * losses_databases
 *		The databases with sessions that are to be told, each once: an array,
 *		palloc'd.
 */
Oid *
losses_databases(int *ndatabases)
{
	int			n = procs_used();
	int			room = 16;
	int			nfound = 0;
	Oid		   *found = palloc(room * sizeof(Oid));

	for (int i = 0; i < n; i++)
	{
		const ZkSlot *slot = lock_untold(i, LW_SHARED);
		Oid			database;
		int			known = 0;

		if (slot == NULL)
			continue;
		database = proc_backend(proc_at(i))->databaseId;
		slot_unlock(slot);
		while (known < nfound && found[known] != database)
			known++;
		if (known < nfound || !OidIsValid(database))
			continue;
		if (nfound == room)
			found = repalloc(found, (room *= 2) * sizeof(Oid));
		found[nfound++] = database;
	}
	*ndatabases = nfound;
	return found;
}

/*
 * losses_of
 *		What the sessions of a database are to be told: an array, palloc'd.
 */
ZkLoss *
losses_of(Oid database, int *nlosses)
{
	int			n = procs_used();
	int			room = 16;
	int			nfound = 0;
	ZkLoss	   *losses = palloc(room * sizeof(ZkLoss));

	for (int i = 0; i < n; i++)
	{
		const ZkProcLock *proc = proc_at(i);
		const ZkSlot *slot;

		/* ahead of the lock */
		if (nfound == room)
			losses = repalloc_huge(losses, (room *= 2) * sizeof(ZkLoss));
		slot = lock_untold(i, LW_SHARED);
		if (slot == NULL)
			continue;
		if (proc_backend(proc)->databaseId == database)
		{
			ZkLoss	   *loss = &losses[nfound++];

			loss->key = slot->key;
			loss->number = i;
			loss->pid = proc_backend(proc)->pid;
			loss->since = proc->since;
		}
		slot_unlock(slot);
	}
	*nlosses = nfound;
	return losses;
}

/*
 * losses_set_told
 *		These losses of losses_of() have been told.
 */
void
losses_set_told(const ZkLoss *losses, int nlosses)
{
	for (int i = 0; i < nlosses; i++)
	{
		ZkProcLock *proc = proc_at(losses[i].number);
		ZkSlot	   *slot = lock_untold(losses[i].number, LW_EXCLUSIVE);

		if (slot == NULL)
			continue;
		if (proc_backend(proc)->pid == losses[i].pid &&
			proc->since == losses[i].since)
			proc->untold = false;
		slot_unlock(slot);
	}
}

/*
 * losses_forget
 *		Nobody can be told of what has been lost so far.
 */
void
losses_forget(void)
{
	int			n = procs_used();

	for (int i = 0; i < n; i++)
	{
		ZkSlot	   *slot = lock_untold(i, LW_EXCLUSIVE);

		if (slot == NULL)
			continue;
		proc_at(i)->untold = false;
		slot_unlock(slot);
	}
}
