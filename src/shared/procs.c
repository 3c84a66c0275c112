/*-------------------------------------------------------------------------
 *
 * procs.c
 *		What the backends of this instance want or hold of slots.
 *
 * A fixed number of ZkProcLocks.  A backend takes one for each slot that it
 * wants, and gives it back when it neither wants nor holds the slot.
 *
 * Locking protocol.  A spinlock, taken inside partition locks, guards the free
 * list and the counts.  A ZkProcLock in use belongs to its slot, and is
 * guarded as that: see slots.c.  The slot of a free one is NULL, so that a
 * process that scans them with procs_used() and proc_at() can tell: see
 * proc_lock_slot().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/procs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "core/mutation.h"
#include "core/remote.h"
#include "miscadmin.h"
#include "shared/procs_private.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/guc.h"

typedef struct ProcsShared
{
	slock_t		lock;
	int			nused;
	int			nused_ever;		/* those from here on were never in use */
	uint32		nclaim_losses;	/* see procs_claim_losses() */
	bool		remote_seen;	/* see procs_remote_seen(); without the lock,
								 * since it is only ever set */
	ZkProcLock *free;
	ZkProcLock	procs[FLEXIBLE_ARRAY_MEMBER];	/* procs_max() of them */
} ProcsShared;

static ProcsShared *pool = NULL;

/* Is this a superuser's session?  See procs_note_role(). */
static bool of_superuser = false;

/*
 * procs_max
 *		The maximum number of wants and holds: one for each lock, and a reserve
 *		for shared ones.
 */
int
procs_max(void)
{
	return zklock_max_locks + MaxBackends;
}

static Size
shared_size(void)
{
	return offsetof(ProcsShared, procs) +
		mul_size(procs_max(), sizeof(ZkProcLock));
}

/*
 * procs_request_shmem
 *		Reserve shared memory; for the shmem_request_hook.
 */
void
procs_request_shmem(void)
{
	RequestAddinShmemSpace(shared_size());
}

/*
 * procs_startup_shmem
 *		Create or attach to the ZkProcLocks; AddinShmemInitLock is held.
 */
void
procs_startup_shmem(void)
{
	bool		found;

	pool = ShmemInitStruct("zklock procs", shared_size(), &found);
	if (!found)
	{
		memset(pool, 0, shared_size());
		SpinLockInit(&pool->lock);
		for (int i = 0; i < procs_max() - 1; i++)
			pool->procs[i].next = &pool->procs[i + 1];
		pool->free = &pool->procs[0];
	}
}

/*
 * procs_in_use
 *		How many wants and holds are there?
 */
int
procs_in_use(void)
{
	int			n;

	SpinLockAcquire(&pool->lock);
	n = pool->nused;
	SpinLockRelease(&pool->lock);
	return n;
}

/*
 * procs_used
 *		How many ZkProcLocks, from the first, were ever in use?
 */
int
procs_used(void)
{
	int			n;

	SpinLockAcquire(&pool->lock);
	n = pool->nused_ever;
	SpinLockRelease(&pool->lock);
	return n;
}

/*
 * proc_at
 *		The ZkProcLock with this number, below procs_used(); it may be in use
 *		or not.
 */
ZkProcLock *
proc_at(int i)
{
	return &pool->procs[i];
}

/*
 * procs_note_role
 *		Note whether the session is a superuser's, for the ZkProcLocks that it
 *		takes from now on.
 *
 * This may read a catalog, so it is done neither under a partition lock nor in
 * a wait without a snapshot.
 */
void
procs_note_role(void)
{
	of_superuser = superuser_arg(MyProc->roleId);
}

/*
 * proc_new
 *		Take a ZkProcLock from the free ones; NULL if there is none.
 */
ZkProcLock *
proc_new(void)
{
	ZkProcLock *proc;
	RemoteSession origin;

	if (!pool->remote_seen &&
		remote_of_application(application_name, &origin))
		pool->remote_seen = true;
	SpinLockAcquire(&pool->lock);
	proc = pool->free;
	if (proc)
	{
		pool->free = proc->next;
		pool->nused++;
		pool->nused_ever = Max(pool->nused_ever,
							   (int) (proc - pool->procs) + 1);
	}
	SpinLockRelease(&pool->lock);
	if (proc)
	{
		memset(proc, 0, sizeof(ZkProcLock));
		proc->superuser = of_superuser;
	}
	return proc;
}

/*
 * procs_remote_seen
 *		Has a session that works for another instance's, by postgres_fdw, ever
 *		wanted a lock here?
 */
bool
procs_remote_seen(void)
{
	return pool->remote_seen;
}

/*
 * proc_free
 *		Give back a ZkProcLock that belongs to no slot.
 */
void
proc_free(ZkProcLock *proc)
{
	SpinLockAcquire(&pool->lock);
	proc->next = pool->free;
	pool->free = proc;
	pool->nused--;
	SpinLockRelease(&pool->lock);
}

/*
 * proc_has_role
 *		Does a backend have a role?  An autovacuum worker does not.
 *
 * The partition lock is held.  The role does not change after authentication.
 */
bool
proc_has_role(const ZkProcLock *proc)
{
	return OidIsValid(proc_backend(proc)->roleId);
}

/* Cancel a backend's statement, or end it; the partition lock is held. */
static bool
signal_backend(const ZkProcLock *proc, int signo)
{
	int			pid = proc_backend(proc)->pid;

	return pid != 0 && kill(-pid, signo) == 0;
}

/*
 * proc_cancel
 *		Cancel a backend's statement, if it holds its slot; returns whether it
 *		was canceled.
 *
 * Not once its commit has begun: a signal would only cut short its wait for a
 * synchronous standby.  The partition lock is held exclusively, so that the
 * backend neither ends nor begins its commit meanwhile.
 */
bool
proc_cancel(const ZkProcLock *proc)
{
	return proc->granted && !proc->lost && !proc->committing &&
		!proc->is_claim && signal_backend(proc, SIGINT);
}

/*
 * proc_lose
 *		Mark that a backend has lost what it holds.
 *
 * Its statement is canceled; but not a commit that has passed its check (see
 * proc_cancel()), nor a call that begins again.  With
 * zklock.terminate_on_loss, the loss of a session-scoped hold ends the session;
 * behind such a commit, slot_end_commit() does that.  The caller is the worker,
 * and holds the partition lock exclusively.
 */
void
proc_lose(ZkProcLock *proc)
{
	proc->lost = true;
	if (proc->is_claim)
	{
		SpinLockAcquire(&pool->lock);
		pool->nclaim_losses++;
		SpinLockRelease(&pool->lock);
	}
	else if (!proc->committing && !proc->provisional)
		(void) signal_backend(proc, proc->terminates &&
							  !ZK_MUTATED(ZK_LOSS_CANCELS) ?
							  SIGTERM : SIGINT);
}

/*
 * procs_claim_losses
 *		How many claims have been lost, ever.
 */
uint32
procs_claim_losses(void)
{
	uint32		n;

	SpinLockAcquire(&pool->lock);
	n = pool->nclaim_losses;
	SpinLockRelease(&pool->lock);
	return n;
}
