/*-------------------------------------------------------------------------
 *
 * losses.c
 *		Which sessions must be notified that they have lost a lock.
 *
 * A session that holds a lock for longer than a transaction may be idle when
 * the lock is lost, and learns of that with its next statement only.  So it is
 * told by NOTIFY.  That needs a transaction in the session's database, which
 * the worker cannot have: it starts a process there (worker/lock/notices.c)
 * that sends the notices (backend/notice.c).
 *
 * There is no queue.  A lost hold stays in its slot until the session has
 * given it back, and ZkProcLock.untold says that no notice was sent.  So no
 * loss is forgotten, however many come at once and whichever process ends
 * meanwhile, and nothing can be full.
 *
 * Protocol.  The partition lock guards the mark, as all of a ZkProcLock
 * (slots.c); it is changed under the exclusive lock:
 *
 *		set			by the worker, with "lost", if the hold is session-scoped
 *		cleared		by the process that sends the notice, when its transaction
 *					has been committed, if it is still the same hold
 *		cleared		by the worker of a standby, which can send no notice
 *		gone		with the ZkProcLock, when the session has given back the
 *					hold or ends: then a notice is not needed
 *
 * Since the mark is cleared after the commit, a notice is repeated if the
 * process ends in between; and a session may be told of a hold that it has
 * just given back.  procs_losses() grows after each mark, so that the worker
 * need not look for marks otherwise.
 *
 * Marks are read one by one, each under the lock of its own partition, and no
 * lock is held while a notice is sent.
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
 * Lock the slot of lost hold number "i", if its session must be notified; else
 * lock nothing and return NULL.
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
 *		How many losses were ever marked?  A change means new ones.
 */
uint32
losses_count(void)
{
	return procs_losses();
}

/*
 * losses_databases
 *		The databases with sessions to be notified, each once: an array,
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
 *		The losses that sessions of a database must be told: an array,
 *		palloc'd.
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

		/* before the lock is taken */
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
 *		Notices of these losses of losses_of() have been sent.
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
 *		Clear all marks: no session can be told.
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
