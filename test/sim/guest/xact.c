/*-------------------------------------------------------------------------
 *
 * xact.c
 *		Stand-ins for transactions, subtransactions and resource owners: the
 *		order in which PostgreSQL calls back, and releases.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/xact.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define MAX_LEVELS	32

typedef struct ResourceOwnerData
{
	ResourceOwner parent;
} ResourceOwnerData;

typedef struct Level
{
	SubTransactionId subid;
	ResourceOwner owner;
	MemoryContext context;		/* of before */
} Level;

typedef struct XactCallbackItem
{
	struct XactCallbackItem *next;
	XactCallback callback;
	void	   *arg;
} XactCallbackItem;

typedef struct SubXactCallbackItem
{
	struct SubXactCallbackItem *next;
	SubXactCallback callback;
	void	   *arg;
} SubXactCallbackItem;

typedef struct ReleaseItem
{
	struct ReleaseItem *next;
	ResourceReleaseCallback callback;
	void	   *arg;
} ReleaseItem;

ResourceOwner CurrentResourceOwner = NULL;
ResourceOwner CurTransactionResourceOwner = NULL;
ResourceOwner TopTransactionResourceOwner = NULL;
int			XactIsoLevel = XACT_READ_COMMITTED;
bool		FirstSnapshotSet = false;

static XactCallbackItem *xact_callbacks;
static SubXactCallbackItem *subxact_callbacks;
static ReleaseItem *release_callbacks;
static Level levels[MAX_LEVELS];
static int	nlevels;
static SubTransactionId last_subid;
static TransactionId xid;
static TimestampTz started;
static bool force_sync;

void
RegisterXactCallback(XactCallback callback, void *arg)
{
	XactCallbackItem *item = MemoryContextAlloc(TopMemoryContext, sizeof(*item));

	item->callback = callback;
	item->arg = arg;
	item->next = xact_callbacks;
	xact_callbacks = item;
}

void
UnregisterXactCallback(XactCallback callback, void *arg)
{
	for (XactCallbackItem **place = &xact_callbacks; *place;
		 place = &(*place)->next)
		if ((*place)->callback == callback && (*place)->arg == arg)
		{
			XactCallbackItem *item = *place;

			*place = item->next;
			pfree(item);
			break;
		}
}

void
RegisterSubXactCallback(SubXactCallback callback, void *arg)
{
	SubXactCallbackItem *item = MemoryContextAlloc(TopMemoryContext,
												   sizeof(*item));

	item->callback = callback;
	item->arg = arg;
	item->next = subxact_callbacks;
	subxact_callbacks = item;
}

void
RegisterResourceReleaseCallback(ResourceReleaseCallback callback, void *arg)
{
	ReleaseItem *item = MemoryContextAlloc(TopMemoryContext, sizeof(*item));

	item->callback = callback;
	item->arg = arg;
	item->next = release_callbacks;
	release_callbacks = item;
}

static void
call_xact_callbacks(XactEvent event)
{
	for (XactCallbackItem *item = xact_callbacks; item; item = item->next)
		item->callback(event, item->arg);
}

static void
call_subxact_callbacks(SubXactEvent event, SubTransactionId subid,
					   SubTransactionId parent)
{
	for (SubXactCallbackItem *item = subxact_callbacks; item; item = item->next)
		item->callback(event, subid, parent, item->arg);
}

ResourceOwner
ResourceOwnerGetParent(ResourceOwner owner)
{
	return owner->parent;
}

static ResourceOwner
new_owner(ResourceOwner parent)
{
	ResourceOwner owner = MemoryContextAlloc(TopMemoryContext,
											 sizeof(ResourceOwnerData));

	owner->parent = parent;
	return owner;
}

static void
release_phase(ResourceOwner owner, ResourceReleasePhase phase, bool commit,
			  bool top_level)
{
	ResourceOwner save = CurrentResourceOwner;

	CurrentResourceOwner = owner;
	if (phase == RESOURCE_RELEASE_LOCKS && top_level)
		lockmgr_release_all(false);
	else if (phase == RESOURCE_RELEASE_LOCKS)
		lockmgr_release_owner(owner, commit);
	for (ReleaseItem *item = release_callbacks; item; item = item->next)
		item->callback(phase, commit, top_level, item->arg);
	CurrentResourceOwner = save;
}

static void
release_owner(ResourceOwner owner, bool commit, bool top_level)
{
	release_phase(owner, RESOURCE_RELEASE_BEFORE_LOCKS, commit, top_level);
	sim_point();
	release_phase(owner, RESOURCE_RELEASE_LOCKS, commit, top_level);
	release_phase(owner, RESOURCE_RELEASE_AFTER_LOCKS, commit, top_level);
	pfree(owner);
}

static void
push_level(void)
{
	Level	   *level = &levels[nlevels];

	if (nlevels == MAX_LEVELS)
		sim_lacks("so many subtransactions");
	level->subid = ++last_subid;
	level->owner = new_owner(nlevels > 0 ? levels[nlevels - 1].owner : NULL);
	level->context = CurrentMemoryContext;
	nlevels++;
	CurTransactionResourceOwner = CurrentResourceOwner = level->owner;
}

/* The subtransaction is gone. */
static void
pop_level(void)
{
	nlevels--;
	CurTransactionResourceOwner = CurrentResourceOwner =
		levels[nlevels - 1].owner;
}

bool
xact_is_open(void)
{
	return nlevels > 0;
}

/* The next of this PGPROC, whatever processes it has been of. */
static LocalTransactionId
next_lxid(void)
{
	bool		found;
	LocalTransactionId *last = instance_shmem(sim_instance(), "last lxids",
											  ProcGlobal->allProcCount *
											  sizeof(*last), &found);

	return ++last[MyProc->pgprocno];
}

void
xact_start(void)
{
	Assert(nlevels == 0);
	last_subid = 0;
	xid = InvalidTransactionId;
	force_sync = false;
	MyProc->lxid = next_lxid();
	started = GetCurrentTimestamp();
	push_level();
	TopTransactionResourceOwner = levels[0].owner;
}

void
xact_assign_id(void)
{
	bool		found;
	uint32	   *last;
	LOCKTAG		tag;

	if (xid != InvalidTransactionId)
		return;
	last = instance_shmem(sim_instance(), "last xid", sizeof(uint32), &found);
	xid = 100 + ++*last;
	MyProc->xid = xid;
	SET_LOCKTAG_TRANSACTION(tag, xid);
	CurrentResourceOwner = TopTransactionResourceOwner;
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	CurrentResourceOwner = CurTransactionResourceOwner;
}

static void
end_subtransaction(bool commit)
{
	Level	   *level = &levels[nlevels - 1];
	SubTransactionId parent = levels[nlevels - 2].subid;

	if (commit)
		call_subxact_callbacks(SUBXACT_EVENT_PRE_COMMIT_SUB, level->subid,
							   parent);
	HOLD_INTERRUPTS();
	if (!commit)
	{
		LWLockReleaseAll();
		ConditionVariableCancelSleep();
		lockmgr_cleanup();
	}
	CurrentResourceOwner = level->owner;
	call_subxact_callbacks(commit ? SUBXACT_EVENT_COMMIT_SUB :
						   SUBXACT_EVENT_ABORT_SUB, level->subid, parent);
	release_owner(level->owner, commit, false);
	pop_level();
	RESUME_INTERRUPTS();
}

/* Ends the top transaction, of which there is nothing but the top level. */
static void
end_transaction(bool commit)
{
	MyProc->lxid = InvalidLocalTransactionId;
	MyProc->xid = InvalidTransactionId;
	xid = InvalidTransactionId;
	CurrentResourceOwner = NULL;
	call_xact_callbacks(commit ? XACT_EVENT_COMMIT : XACT_EVENT_ABORT);
	CurrentResourceOwner = TopTransactionResourceOwner;
	release_owner(TopTransactionResourceOwner, commit, true);
	nlevels = 0;
	CurrentResourceOwner = CurTransactionResourceOwner =
		TopTransactionResourceOwner = NULL;
}

/*
 * COMMIT: an error ahead of the commit record leaves the transaction to abort.
 */
void
xact_commit(void)
{
	int			client = process_client(sim_process());

	while (nlevels > 1)
		end_subtransaction(true);
	note_holds();
	call_xact_callbacks(XACT_EVENT_PRE_COMMIT);
	check_committing(client, zklock_commit_check == ZK_CHECK_QUORUM);
	HOLD_INTERRUPTS();
	sim_point();
	if (xid != InvalidTransactionId || force_sync)
		sim_sleep(workload_flush_us(client));
	signals_take();
	check_committed(client);
	check_ended(client);
	sim_point();
	end_transaction(true);
	check_claims_settled(client);
	RESUME_INTERRUPTS();
}

void
xact_abort(void)
{
	while (nlevels > 1)
		end_subtransaction(false);
	if (nlevels == 0)
		return;
	HOLD_INTERRUPTS();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	lockmgr_cleanup();
	CurrentResourceOwner = TopTransactionResourceOwner;
	sim_point();
	end_transaction(false);
	RESUME_INTERRUPTS();
}

void
xact_savepoint(void)
{
	push_level();
	call_subxact_callbacks(SUBXACT_EVENT_START_SUB, levels[nlevels - 1].subid,
						   levels[nlevels - 2].subid);
}

void
xact_abort_sub(void)
{
	end_subtransaction(false);
}

void
xact_release(void)
{
	end_subtransaction(true);
}

void
AbortOutOfAnyTransaction(void)
{
	xact_abort();
}

void
BeginInternalSubTransaction(const char *name)
{
	(void) name;
	xact_savepoint();
}

void
ReleaseCurrentSubTransaction(void)
{
	end_subtransaction(true);
}

void
RollbackAndReleaseCurrentSubTransaction(void)
{
	end_subtransaction(false);
}

int
GetCurrentTransactionNestLevel(void)
{
	return nlevels;
}

SubTransactionId
GetCurrentSubTransactionId(void)
{
	Assert(nlevels > 0);
	return levels[nlevels - 1].subid;
}

TransactionId
GetTopTransactionIdIfAny(void)
{
	return xid;
}

TimestampTz
GetCurrentTransactionStartTimestamp(void)
{
	return started;
}

void
ForceSyncCommit(void)
{
	force_sync = true;
}
