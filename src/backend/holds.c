/*-------------------------------------------------------------------------
 *
 * holds.c
 *		What this backend holds, and for how long.
 *
 * A lock is taken in two tiers.  First a heavyweight lock on a hash of the
 * lock's path, where PostgreSQL queues the backends of this cluster, with all
 * that belongs to it: pg_locks, lock_timeout, cancel, the deadlock detector.
 * Then the slot (slots.c): if the cluster owns the lock already, it is taken
 * there and then, else the worker is asked to queue for it in ZooKeeper.
 *
 * Each successful call is a hold, pushed on the lock's stack; the slot and
 * the heavyweight lock go with the last of them.  All holds are of the
 * transaction, and each remembers the subtransaction that it belongs to, as
 * PostgreSQL's resource owners do for the heavyweight lock: it is acquired
 * once for each hold, in the name of the current (sub)transaction.
 *
 * The slot is dropped in the transaction callbacks: after the commit is
 * visible to everybody, and before the heavyweight lock is released, so that
 * who gets the heavyweight lock next finds the slot as it is.  No callback
 * but the one ahead of the commit may throw, so they allocate nothing.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/holds.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "backend/backend.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/stats.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "zklock.h"

/* In field4 of our lock tags, which tells them from others' user locks: "ZK". */
#define ZK_LOCKTAG_MAGIC	0x5A4B

typedef struct Hold
{
	SubTransactionId subid;		/* that it belongs to */
	SubTransactionId undone;	/* in which zk_unlock marked it, or Invalid */
} Hold;

typedef struct HeldLock
{
	char		path[ZNODE_PATH_SIZE];	/* hash key, must be first */
	dlist_node	node;			/* in held_list */
	ZkSlot	   *slot;
	instr_time	taken_at;		/* the slot, by this backend */
	LOCKTAG		tag;
	int			nholds;			/* 0: being acquired */
	int			maxholds;
	Hold	   *holds;			/* the latest is the last */
} HeldLock;

static HTAB *held_table = NULL; /* all HeldLocks, by path */
static dlist_head held_list = DLIST_STATIC_INIT(held_list); /* nholds > 0 */

/* A call of hold_acquire() that has not ended, for the callbacks to clean up. */
static struct
{
	HeldLock   *lock;			/* NULL: no such call */
	ZkSlot	   *slot;			/* that it wants, or NULL */
	SubTransactionId subid;		/* in which it was made */
	ZkFailure	failure;		/* how to count it if it ends now */
}			acquiring = {NULL, NULL, InvalidSubTransactionId, ZK_FAILURE_ERROR};

/* Of the current transaction. */
static bool transaction_wrote = false;
static bool snapshot_warned = false;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

static void zk_xact_callback(XactEvent event, void *arg);

/*
 * zk_locktag
 *		The tag of the heavyweight lock of a lock directory.
 *
 * Two paths may share it: that costs a wait, and nothing else.
 */
void
zk_locktag(const char *path, LOCKTAG *tag)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) path,
										   strlen(path), 0);

	memset(tag, 0, sizeof(*tag));
	tag->locktag_field1 = 0;
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_field4 = ZK_LOCKTAG_MAGIC;
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

static HeldLock *
find_held(const char *path)
{
	if (held_table == NULL)
		return NULL;
	return hash_search(held_table, path, HASH_FIND, NULL);
}

/*
 * Find or make the entry of a lock, with room for one more hold, so that
 * nothing can fail once the slot is taken.
 */
static HeldLock *
prepare_held(const char *path)
{
	HeldLock   *lock;
	bool		found;

	if (held_table == NULL)
	{
		HASHCTL		ctl;

		memset(&ctl, 0, sizeof(ctl));
		ctl.keysize = ZNODE_PATH_SIZE;
		ctl.entrysize = sizeof(HeldLock);
		held_table = hash_create("zklock holds", 16, &ctl,
								 HASH_ELEM | HASH_STRINGS);
	}

	lock = hash_search(held_table, path, HASH_ENTER, &found);
	if (!found)
	{
		lock->slot = NULL;
		lock->nholds = 0;
		lock->maxholds = 0;
		lock->holds = NULL;
		zk_locktag(path, &lock->tag);
	}
	if (lock->nholds == lock->maxholds)
	{
		int			newmax = lock->maxholds == 0 ? 2 : lock->maxholds * 2;

		if (lock->holds == NULL)
			lock->holds = MemoryContextAlloc(TopMemoryContext,
											 newmax * sizeof(Hold));
		else
			lock->holds = repalloc(lock->holds, newmax * sizeof(Hold));
		lock->maxholds = newmax;
	}
	return lock;
}

/* Forget a lock; the slot has been dropped. */
static void
forget_held(HeldLock *lock)
{
	if (lock->holds)
		pfree(lock->holds);
	hash_search(held_table, lock->path, HASH_REMOVE, NULL);
}

static void
push_hold(HeldLock *lock)
{
	Hold	   *hold = &lock->holds[lock->nholds++];

	hold->subid = GetCurrentSubTransactionId();
	hold->undone = InvalidSubTransactionId;
	if (lock->nholds == 1)
		dlist_push_tail(&held_list, &lock->node);
}

/*
 * Give up a lock of which no hold is left: the slot at once, the heavyweight
 * lock when its resource owner goes.
 */
static void
drop_held(HeldLock *lock)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	stats_count_release(stats_us_between(lock->taken_at, now));
	dlist_delete(&lock->node);
	slot_drop(lock->slot);
	forget_held(lock);
}

/* End the call under way, if there is one, without having got the lock. */
static void
abandon_acquiring(void)
{
	if (acquiring.slot)
		slot_unwant(acquiring.slot);
	if (acquiring.lock)
	{
		stats_count_failure(acquiring.failure);
		forget_held(acquiring.lock);
	}
	acquiring.slot = NULL;
	acquiring.lock = NULL;
}

/*
 * Make our transaction callback the first one.  Callbacks run in the reverse
 * order of registration, and our check ahead of the commit must come ahead of
 * postgres_fdw's, which commits the remote side there.
 */
static void
move_callback_first(void)
{
	UnregisterXactCallback(zk_xact_callback, NULL);
	RegisterXactCallback(zk_xact_callback, NULL);
}

/* Time left until a deadline of zk_now_ms(), in ms; -1 if there is none. */
static int64
time_left(int64 deadline)
{
	if (deadline < 0)
		return -1;
	return Max(deadline - zk_now_ms(), 0);
}

static void
report_lost(const char *path, bool committing)
{
	char	   *name = zk_name_of_path(path);

	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 committing ?
			 errmsg("could not commit because lock \"%s\" has been lost", name) :
			 errmsg("lock \"%s\" has been lost", name),
			 errdetail("The ZooKeeper session of this server has ended."),
			 errhint("Retry the transaction.")));
}

static void
waiting_callback(void *arg)
{
	errcontext("while waiting for lock \"%s\" in ZooKeeper",
			   (const char *) arg);

	/* lock_timeout within the lock manager */
	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
		acquiring.failure = ZK_FAILURE_TIMEOUT;
}

/*
 * The heavyweight lock, waiting with "deadline" as lock_timeout.
 *
 * In the name of the current (sub)transaction rather than of the portal, so
 * that a later statement can release it.
 */
static bool
lock_heavyweight(const LOCKTAG *tag, bool wait, int64 deadline)
{
	ResourceOwner save_owner = CurrentResourceOwner;
	int			save_timeout = LockTimeout;
	LockAcquireResult result;

	PG_TRY();
	{
		CurrentResourceOwner = CurTransactionResourceOwner;
		if (deadline >= 0)
			LockTimeout = (int) Min(Max(time_left(deadline), 1), INT_MAX);
		result = LockAcquire(tag, ExclusiveLock, false, !wait);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = save_owner;
		LockTimeout = save_timeout;
	}
	PG_END_TRY();
	return result != LOCKACQUIRE_NOT_AVAIL;
}

/*
 * The same, but a timeout is an answer: false, and not an error.  The lock
 * manager knows a timeout only as an error, so this takes a subtransaction.
 */
static bool
try_lock_heavyweight(const LOCKTAG *tag, int64 deadline)
{
	MemoryContext save_context = CurrentMemoryContext;
	ResourceOwner save_owner = CurrentResourceOwner;
	volatile bool got = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		got = lock_heavyweight(tag, true, deadline);

		/* the timeout may have struck when the lock was just granted */
		CHECK_FOR_INTERRUPTS();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *edata;

		MemoryContextSwitchTo(save_context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(save_context);
		CurrentResourceOwner = save_owner;
		if (edata->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(edata);
		FreeErrorData(edata);
		got = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(save_context);
	CurrentResourceOwner = save_owner;
	return got;
}

/* Release the heavyweight lock "times" times. */
static void
unlock_heavyweight(const LOCKTAG *tag, int times)
{
	ResourceOwner save_owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	while (times-- > 0)
		LockRelease(tag, ExclusiveLock, false);
	CurrentResourceOwner = save_owner;
}

static void
report_refusal(const char *path, const char *name, ZkRefusal refusal)
{
	switch (refusal)
	{
		case ZK_REFUSAL_ACCESS:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("ZooKeeper denied access to lock \"%s\"", name),
					 errdetail("The credentials of this server do not allow it to create znodes in \"%s\".",
							   path),
					 errhint("Check \"zklock.auth\" and \"zklock.acl\", and the ACL of the znode.")));
			break;
		case ZK_REFUSAL_NO_CHROOT:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("could not create lock \"%s\" in ZooKeeper", name),
					 errdetail("The chroot of \"zklock.servers\" does not exist in ZooKeeper."),
					 errhint("Create that znode, or change \"zklock.servers\".")));
			break;
		case ZK_REFUSAL_NONE:
		case ZK_REFUSAL_OTHER:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("ZooKeeper refused lock \"%s\"", name),
					 errhint("The server log has the details.")));
			break;
	}
}

static void
report_no_session(const char *name, const ZkSessionInfo *info)
{
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("could not reach ZooKeeper for lock \"%s\"", name),
			 info->worker_pid == 0 ?
			 errdetail("The zklock worker is not running.") :
			 info->last_error[0] != '\0' ?
			 errdetail("There was no session with \"%s\" for %d ms: %s",
					   zklock_servers, info->timeout, info->last_error) :
			 errdetail("There was no session with \"%s\" for %d ms.",
					   zklock_servers, info->timeout),
			 errhint("Check \"zklock.servers\" and that ZooKeeper is running; the view zk_session shows the state.")));
}

/*
 * A call that has no place in a queue yet waits for a session, but not for
 * longer than a session would live.  Returns how long it may sleep until it
 * must look again, in ms; *since is when the session was first missed, or 0.
 */
static int64
check_session(const char *name, int64 *since)
{
	ZkSessionInfo info;
	int64		now = zk_now_ms();

	session_read(&info);
	if (info.state == ZK_SESSION_CONNECTED)
	{
		*since = 0;
		return info.timeout;
	}
	if (*since == 0)
		*since = now;
	if (now - *since >= info.timeout)
		report_no_session(name, &info);
	return info.timeout - (now - *since);
}

/*
 * The second tier: take the slot, or have the worker queue for it and wait.
 *
 * "immediate" does not wait behind anybody: it wants ZooKeeper's word whether
 * the lock is free.  Returns false at the deadline, or if "immediate" and
 * somebody is ahead.  Sets *waited if somebody was, and *handed_off if the
 * cluster owned the lock already.
 */
static bool
take_slot(ZkSlot *slot, const char *name, bool immediate, int64 deadline,
		  bool *waited, bool *handed_off)
{
	static uint32 wait_event = 0;
	bool		prepared = false;
	bool		taken = false;
	bool		queued = false;
	int64		no_session_since = 0;

	for (;;)
	{
		ZkRefusal	refusal;
		ZkTake		take = slot_take(slot, &refusal);
		int64		sleep = time_left(deadline);

		if (take == ZK_TAKEN)
		{
			taken = true;
			*handed_off = !prepared;
			break;
		}
		if (take == ZK_REFUSED)
			report_refusal(slot->path, name, refusal);
		if (take == ZK_QUEUED)
		{
			queued = true;
			*waited = true;
			if (immediate)
				break;
		}
		if (sleep == 0)
			break;
		if (!queued)
		{
			int64		recheck = check_session(name, &no_session_since);

			sleep = sleep < 0 ? recheck : Min(sleep, recheck);
		}

		/* prepare, and look again, before the first sleep */
		if (!prepared)
		{
			ConditionVariablePrepareToSleep(&slot->cv);
			prepared = true;
			continue;
		}
		(void) ConditionVariableTimedSleep(&slot->cv,
										   sleep < 0 ? -1 : Min(sleep, INT_MAX),
										   ZkWaitEvent(wait_event, "ZkLockAcquire"));
		CHECK_FOR_INTERRUPTS();
	}
	if (prepared)
		ConditionVariableCancelSleep();
	return taken;
}

/*
 * A transaction whose snapshot was taken ahead of the wait does not see what
 * the holder before it has committed.
 */
static void
warn_of_old_snapshot(const char *name)
{
	if (snapshot_warned || !IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	snapshot_warned = true;
	ereport(WARNING,
			(errmsg("the snapshot of this transaction is older than lock \"%s\"",
					name),
			 errdetail("Changes that the holder before committed under the lock are not visible."),
			 errhint("Use READ COMMITTED, or take a session-scoped lock before BEGIN.")));
}

/*
 * Both tiers in order, for a lock that this backend does not hold.  What the
 * call has come to is in "acquiring" all the time, so that an error may come
 * at any point.
 */
static bool
acquire_tiers(HeldLock *lock, const char *name, bool try, bool immediate,
			  int64 deadline)
{
	bool		waited = false;
	bool		handed_off = false;
	instr_time	called_at;
	bool		got;

	INSTR_TIME_SET_CURRENT(called_at);
	acquiring.failure = ZK_FAILURE_ERROR;
	acquiring.lock = lock;
	acquiring.subid = GetCurrentSubTransactionId();
	acquiring.slot = slot_want(lock->path);

	got = lock_heavyweight(&lock->tag, false, -1);
	if (!got && !immediate)
	{
		waited = true;
		got = try && deadline >= 0 ?
			try_lock_heavyweight(&lock->tag, deadline) :
			lock_heavyweight(&lock->tag, true, deadline);
	}
	if (got && !take_slot(acquiring.slot, name, immediate, deadline, &waited,
						  &handed_off))
	{
		unlock_heavyweight(&lock->tag, 1);
		got = false;
	}
	if (!got)
	{
		acquiring.failure = ZK_FAILURE_TIMEOUT;
		abandon_acquiring();
		return false;
	}

	lock->slot = acquiring.slot;
	acquiring.slot = NULL;
	acquiring.lock = NULL;
	INSTR_TIME_SET_CURRENT(lock->taken_at);
	stats_count_take(handed_off, waited,
					 stats_us_between(called_at, lock->taken_at));
	push_hold(lock);
	if (waited)
		warn_of_old_snapshot(name);
	return true;
}

/*
 * hold_acquire
 *		Take the lock of a path, once more if this backend holds it already.
 *
 * name: what the user calls it, for messages.
 * timeout: ms, over both tiers; 0 does not wait behind anybody;
 * ZK_NO_TIMEOUT leaves it to lock_timeout, which bounds the call in any case.
 * Returns false, or if not "try" throws 55P03, if the lock cannot be had in
 * time.
 *
 * Errors: 55P03; 53200 out of slots; 57P03 no session; 42501, F0000 or 58000
 * refused by ZooKeeper; 57014 cancelled; 40P01 deadlock within the cluster;
 * 40001 if the lock is held, but has been lost.
 */
bool
hold_acquire(const char *path, const char *name, int64 timeout, bool try)
{
	HeldLock   *lock;
	ErrorContextCallback context;
	int64		deadline = -1;
	bool		got;

	if (dlist_is_empty(&held_list))
		move_callback_first();

	lock = prepare_held(path);
	if (lock->nholds > 0)
	{
		if (!slot_is_mine(lock->slot, NULL))
			report_lost(path, false);
		lock_heavyweight(&lock->tag, true, -1);
		push_hold(lock);
		return true;
	}

	if (timeout > 0)
		deadline = zk_now_ms() + timeout;
	if (LockTimeout > 0)
	{
		int64		limit = zk_now_ms() + LockTimeout;

		deadline = deadline < 0 ? limit : Min(deadline, limit);
	}

	context.callback = waiting_callback;
	context.arg = unconstify(char *, name);
	context.previous = error_context_stack;
	error_context_stack = &context;
	got = acquire_tiers(lock, name, try, timeout == 0, deadline);
	error_context_stack = context.previous;

	if (!got && !try)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock \"%s\" in ZooKeeper", name)));
	return got;
}

/* Has the transaction changed anything that others could be kept from seeing? */
static bool
transaction_has_written(void)
{
	return transaction_wrote || TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static int
latest_live_hold(const HeldLock *lock)
{
	for (int i = lock->nholds - 1; i >= 0; i--)
		if (lock->holds[i].undone == InvalidSubTransactionId)
			return i;
	return -1;
}

/*
 * hold_release
 *		Undo the latest hold of a path that is not undone yet.
 *
 * At once, if the transaction has changed nothing and is in no savepoint;
 * else the hold is only marked, and the lock goes with the transaction: what
 * the transaction has done under the lock must be visible before anybody else
 * gets it.  Returns false if there is no such hold.  Warns if the lock has
 * been lost meanwhile.
 */
bool
hold_release(const char *path)
{
	HeldLock   *lock = find_held(path);
	int			latest;

	if (lock == NULL || (latest = latest_live_hold(lock)) < 0)
		return false;

	if (!slot_is_mine(lock->slot, NULL))
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost", zk_name_of_path(path)),
				 errdetail("The ZooKeeper session of this server has ended.")));

	lock->holds[latest].undone = GetCurrentSubTransactionId();
	if (GetCurrentTransactionNestLevel() > 1 || transaction_has_written())
		return true;

	/* the holds behind it, if any, are marked and go with it */
	if (latest_live_hold(lock) < 0)
	{
		LOCKTAG		tag = lock->tag;
		int			nholds = lock->nholds;

		drop_held(lock);
		unlock_heavyweight(&tag, nholds);
	}
	else
	{
		unlock_heavyweight(&lock->tag, lock->nholds - latest);
		lock->nholds = latest;
	}
	return true;
}

/*
 * hold_token
 *		The fencing token of a lock that this backend holds.
 *
 * Waits for the worker to learn it, if need be.
 *
 * Errors: 55000 if the lock is not held; 40001 if it has been lost.
 */
int64
hold_token(const char *path, const char *name)
{
	static uint32 wait_event = 0;
	HeldLock   *lock = find_held(path);
	int64		token;

	if (lock == NULL || lock->nholds == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held", name),
				 errhint("Call zk_lock() first, in the same transaction.")));

	for (;;)
	{
		if (!slot_is_mine(lock->slot, &token))
			report_lost(path, false);
		if (token != 0)
			break;
		ConditionVariableSleep(&lock->slot->cv,
							   ZkWaitEvent(wait_event, "ZkLockToken"));
	}
	ConditionVariableCancelSleep();
	return token;
}

/* Ahead of the commit: every lock must still be ours. */
static void
check_holds(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		if (!slot_is_mine(lock->slot, NULL))
			report_lost(lock->path, true);
	}

	/* the lock must never be free before its commit is durable */
	if (!dlist_is_empty(&held_list))
		ForceSyncCommit();
}

static void
release_all(void)
{
	dlist_mutable_iter iter;

	abandon_acquiring();
	dlist_foreach_modify(iter, &held_list)
		drop_held(dlist_container(HeldLock, node, iter.cur));
	transaction_wrote = false;
	snapshot_warned = false;
}

static void
zk_xact_callback(XactEvent event, void *arg pg_attribute_unused())
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			check_holds();
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (!dlist_is_empty(&held_list))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds a lock in ZooKeeper"),
						 errhint("Locks go with the server's ZooKeeper session, which a prepared transaction may outlive.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			release_all();
			break;
		case XACT_EVENT_PREPARE:
			transaction_wrote = false;
			snapshot_warned = false;
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

/* A subtransaction is rolled back: its holds go, and so do its marks. */
static void
abort_subtransaction(HeldLock *lock, SubTransactionId subid)
{
	int			kept = 0;

	for (int i = 0; i < lock->nholds; i++)
	{
		if (lock->holds[i].subid == subid)
			continue;
		if (lock->holds[i].undone == subid)
			lock->holds[i].undone = InvalidSubTransactionId;
		lock->holds[kept++] = lock->holds[i];
	}
	lock->nholds = kept;
	if (kept == 0)
		drop_held(lock);
}

/* A subtransaction is released: its holds and marks are its parent's. */
static void
commit_subtransaction(HeldLock *lock, SubTransactionId subid,
					  SubTransactionId parent)
{
	for (int i = 0; i < lock->nholds; i++)
	{
		if (lock->holds[i].subid == subid)
			lock->holds[i].subid = parent;
		if (lock->holds[i].undone == subid)
			lock->holds[i].undone = parent;
	}
}

static void
zk_subxact_callback(SubXactEvent event, SubTransactionId subid,
					SubTransactionId parent,
					void *arg pg_attribute_unused())
{
	dlist_mutable_iter iter;

	/* the subtransaction of try_lock_heavyweight() is another one */
	if (event == SUBXACT_EVENT_ABORT_SUB && acquiring.subid == subid)
		abandon_acquiring();
	dlist_foreach_modify(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		if (event == SUBXACT_EVENT_ABORT_SUB)
			abort_subtransaction(lock, subid);
		else if (event == SUBXACT_EVENT_COMMIT_SUB)
			commit_subtransaction(lock, subid, parent);
	}
}

/*
 * Note that the transaction changes something, on a foreign server too, where
 * it leaves no transaction id here.
 */
static void
zk_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 &&
		(queryDesc->operation != CMD_SELECT ||
		 queryDesc->plannedstmt->hasModifyingCTE))
		transaction_wrote = true;

	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

/* The statement may have brought in a foreign data wrapper's callback. */
static void
zk_ExecutorEnd(QueryDesc *queryDesc)
{
	if (prev_ExecutorEnd)
		prev_ExecutorEnd(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);

	if (!dlist_is_empty(&held_list))
		move_callback_first();
}

/* As the two above, for utility commands such as COPY FROM and TRUNCATE. */
static void
zk_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	if (GetCommandLogLevel(pstmt->utilityStmt) < LOGSTMT_ALL)
		transaction_wrote = true;

	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context,
							params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);

	if (!dlist_is_empty(&held_list))
		move_callback_first();
}

/*
 * holds_init
 *		Install callbacks and hooks, at module load.
 */
void
holds_init(void)
{
	RegisterXactCallback(zk_xact_callback, NULL);
	RegisterSubXactCallback(zk_subxact_callback, NULL);

	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = zk_ExecutorStart;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = zk_ExecutorEnd;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = zk_ProcessUtility;
}
