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
 * the heavyweight lock go with the last of them.  A hold is of the session or
 * of the transaction, and then remembers the subtransaction that it belongs
 * to, as PostgreSQL's resource owners do for the heavyweight lock: it is
 * acquired once for each hold, in the name of the session or of the current
 * (sub)transaction, and always in the mode of the first.
 *
 * A trigger may take one lock a million times, or be in a subtransaction a
 * million times while a thousand locks are held.  So holds that lie upon each
 * other and do not differ are one entry of the stack, with a count; and the end
 * of a subtransaction looks only at locks that it has touched, and there only at
 * what lies above the latest hold that is older and not undone: what is below
 * that cannot have been undone since, as the latest is always undone first.
 *
 * At a transaction's end the check is first and the release last.  The slot is
 * dropped when the commit is visible to everybody and all callbacks for
 * XACT_EVENT_COMMIT have run, since a foreign data wrapper's may commit on
 * another server; and before the heavyweight lock is released, so that who gets
 * that next finds the slot as it is.  A rollback drops it at once: there is
 * nothing that others must see first, and a foreign server may keep a callback
 * waiting.  No callback but the one ahead of the commit may throw, so they
 * allocate nothing.
 *
 * pg_advisory_unlock_all() takes heavyweight locks of session-scoped holds
 * away behind our back.  The slot remains ours, so others wait for it, though
 * where the lock manager does not see it.
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
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "executor/executor.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/*
 * How long to wait for news of a slot, in ms: readers look again whether a
 * writer still waits behind the others.
 */
#define RECHECK_MS			1000

/* How long to wait for the owner's name, for the log, in ms. */
#define OWNER_QUERY_MS		1000

/* How long to wait until looking again whether the session is sure, in ms. */
#define UNPROVED_RECHECK_MS	10

/* How long a commit waits for news of the session until it asks again, in ms. */
#define PROOF_RECHECK_MS	100

/* What ZooKeeper was asked so long ago proves nothing any more, in ms. */
#define PROOF_MAX_AGE_MS	1000

/* How long to keep others from NOTIFY meanwhile, in ms. */
#define QUEUE_LOCK_MS		1000

/* Ends the key of the slot that the readers of a lock share. */
#define READERS_MARK		ZK_KEY_MARK "r"

/* In field4 of our lock tags, which tells them from others' user locks: "ZK". */
#define ZK_LOCKTAG_MAGIC	0x5A4B

/* Holds that do not differ. */
typedef struct Hold
{
	SubTransactionId subid;		/* that it belongs to; Invalid: session */
	SubTransactionId undone;	/* in which zk_unlock marked it, or Invalid;
								 * Top for one of the session, since that is
								 * not rolled back */
	bool		session;
	int64		count;			/* how many they are */
} Hold;

typedef struct HeldLock
{
	char		key[ZK_SLOT_KEY_SIZE];	/* hash key, must be first */
	dlist_node	node;			/* in held_list */
	ZkProcLock *proc;			/* of the slot; NULL: not even wanted */
	LOCKTAG		tag;
	LOCKMODE	mode;
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */
	bool		loss_told;		/* by warn_of_lost_holds() */
	int			nholds;			/* entries; 0: being acquired */
	int			maxholds;
	Hold	   *holds;			/* the latest is the last */
	int64		nsession;		/* holds of the session, each counted */
	int64		nundone;		/* holds that are marked, likewise */
	SubTransactionId touched;	/* in which the holds may have changed; Invalid:
								 * in none but Top */
	dlist_node	touched_node;	/* in touched_list, unless Invalid */
} HeldLock;

static HTAB *held_table = NULL; /* all HeldLocks, by key */
static dlist_head held_list = DLIST_STATIC_INIT(held_list); /* nholds > 0 */

/* Locks that the present subtransactions have touched, the innermost first. */
static dlist_head touched_list = DLIST_STATIC_INIT(touched_list);

/*
 * The locks of a call that has not ended, for the callbacks to clean up.  A
 * single one is the usual case.
 */
static struct
{
	int			nlocks;			/* 0: no such call */
	int			maxlocks;
	HeldLock  **locks;
	SubTransactionId subid;		/* in which it was made */
	ZkProcLock *other;			/* see wait_for_other_mode(), or NULL */
	ZkFailure	failure;		/* how to count it if it ends now */
}			acquiring = {0, 0, NULL, InvalidSubTransactionId, NULL, ZK_FAILURE_ERROR};

/* Of the current transaction. */
static bool transaction_wrote = false;
static bool transaction_used_foreign = false;	/* tables, perhaps */
static bool snapshot_warned = false;

/* Of the hooks around statements, which functions run others in. */
static int	nesting = 0;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/*
 * Of a command whose effects a rollback does not undo: see
 * has_lasting_effects().
 */
typedef enum Lasting
{
	LASTING_NONE,
	LASTING_RUNNING,			/* it may commit several times by itself */
	LASTING_DONE				/* the commit that ends it is to come */
} Lasting;

static Lasting lasting = LASTING_NONE;

static void zk_xact_callback(XactEvent event, void *arg);
static void release_at_exit(int code, Datum arg);

/*
 * zk_locktag
 *		The tag of the heavyweight lock of a hold key.
 *
 * Two keys may share it: that costs a wait, and nothing else.
 */
void
zk_locktag(const char *key, LOCKTAG *tag)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) key,
										   strlen(key), 0);

	memset(tag, 0, sizeof(*tag));
	tag->locktag_field1 = 0;
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_field4 = ZK_LOCKTAG_MAGIC;
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

/*
 * zk_semaphore_key
 *		The key of this backend's holds of a semaphore.
 *
 * A permit is the backend's own, so there is nobody to share its slot with,
 * nor to wait for in the lock manager.
 */
void
zk_semaphore_key(const char *path, char key[ZK_SLOT_KEY_SIZE])
{
	snprintf(key, ZK_SLOT_KEY_SIZE, "%s" ZK_KEY_MARK "s%d",
			 path, ZkMyProcNumber);
}

static HeldLock *
find_held(const char *key)
{
	HeldLock   *lock;

	if (held_table == NULL)
		return NULL;
	lock = hash_search(held_table, key, HASH_FIND, NULL);
	return lock && lock->nholds > 0 ? lock : NULL;
}

/* Do several backends have such a lock together? */
static bool
is_shared(ZnodeKind kind)
{
	return kind == ZNODE_READER || kind == ZNODE_PERMIT;
}

static void
make_held_table(void)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = ZK_SLOT_KEY_SIZE;
	ctl.entrysize = sizeof(HeldLock);
	held_table = hash_create("zklock holds", 16, &ctl,
							 HASH_ELEM | HASH_STRINGS);
	before_shmem_exit(release_at_exit, (Datum) 0);
}

/* Have room for one more entry on the stack. */
static void
make_room_for_hold(HeldLock *lock)
{
	int			newmax = lock->maxholds == 0 ? 2 : lock->maxholds * 2;

	if (lock->nholds < lock->maxholds)
		return;
	if (lock->holds == NULL)
		lock->holds = MemoryContextAlloc(TopMemoryContext,
										 newmax * sizeof(Hold));
	else
		lock->holds = repalloc_huge(lock->holds, newmax * sizeof(Hold));
	lock->maxholds = newmax;
}

/*
 * Find or make the entry of a lock, with room for one more hold, so that
 * nothing can fail once the slot is taken.
 */
static HeldLock *
prepare_held(const char *key, ZnodeKind kind, int permits)
{
	HeldLock   *lock;
	bool		found;

	if (held_table == NULL)
		make_held_table();

	lock = hash_search(held_table, key, HASH_ENTER, &found);
	if (!found)
	{
		lock->nholds = 0;
		lock->maxholds = 0;
		lock->holds = NULL;
		lock->nsession = lock->nundone = 0;
		lock->touched = InvalidSubTransactionId;
	}
	if (lock->nholds == 0)
	{
		lock->proc = NULL;
		lock->kind = kind;
		lock->mode = is_shared(kind) ? ShareLock : ExclusiveLock;
		lock->permits = permits;
		lock->loss_told = false;
		zk_locktag(key, &lock->tag);
	}
	make_room_for_hold(lock);
	return lock;
}

/* Forget a lock; the slot has been dropped. */
static void
forget_held(HeldLock *lock)
{
	if (lock->holds)
		pfree(lock->holds);
	hash_search(held_table, lock->key, HASH_REMOVE, NULL);
}

static bool
is_undone(const Hold *hold)
{
	return hold->undone != InvalidSubTransactionId;
}

/* Put holds on top of the stack, where there is room. */
static void
add_holds(HeldLock *lock, Hold added)
{
	Hold	   *top = lock->nholds > 0 ? &lock->holds[lock->nholds - 1] : NULL;

	if (added.session)
		lock->nsession += added.count;
	if (is_undone(&added))
		lock->nundone += added.count;
	if (top && top->session == added.session && top->subid == added.subid &&
		top->undone == added.undone)
		top->count += added.count;
	else
		lock->holds[lock->nholds++] = added;
}

/*
 * Take the entries from number "kept" on off the stack.  They are still there to
 * be read: the caller goes through them from below, and adds again those that
 * stay, which takes no more room than they had.
 */
static void
take_off_holds(HeldLock *lock, int kept)
{
	for (int i = kept; i < lock->nholds; i++)
	{
		if (lock->holds[i].session)
			lock->nsession -= lock->holds[i].count;
		if (is_undone(&lock->holds[i]))
			lock->nundone -= lock->holds[i].count;
	}
	lock->nholds = kept;
}

/* The current subtransaction changes the holds of a lock. */
static void
touch(HeldLock *lock)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	if (subid == lock->touched || subid == TopSubTransactionId)
		return;
	if (lock->touched != InvalidSubTransactionId)
		dlist_delete(&lock->touched_node);
	dlist_push_head(&touched_list, &lock->touched_node);
	lock->touched = subid;
}

static void
push_hold(HeldLock *lock, bool session)
{
	Hold		hold = {
		.subid = session ? InvalidSubTransactionId : GetCurrentSubTransactionId(),
		.undone = InvalidSubTransactionId,
		.session = session,
		.count = 1
	};

	if (lock->nholds == 0)
		dlist_push_tail(&held_list, &lock->node);
	add_holds(lock, hold);
	touch(lock);
}

/*
 * Give up a lock of which no hold is left: the slot at once, the heavyweight
 * lock when its resource owner goes.
 */
static void
drop_held(HeldLock *lock)
{
	int64		now = zk_now_us();

	stats_count_release(now - lock->proc->since);
	dlist_delete(&lock->node);
	if (lock->touched != InvalidSubTransactionId)
		dlist_delete(&lock->touched_node);
	slot_drop(lock->proc, now);
	forget_held(lock);
}

/* Tell zk_locks of what scope the remaining holds are. */
static void
show_scope(HeldLock *lock)
{
	bool		session = lock->nsession > 0;

	if (session != lock->proc->session)
		slot_set_scope(lock->proc, session);
}

/*
 * Note that the call under way acquires this lock, which is not held yet.
 * There is room for it.
 */
static void
add_acquiring(HeldLock *lock)
{
	acquiring.locks[acquiring.nlocks++] = lock;
	acquiring.subid = GetCurrentSubTransactionId();
	acquiring.failure = ZK_FAILURE_ERROR;
}

static void
make_room_for_acquiring(int nlocks)
{
	if (nlocks <= acquiring.maxlocks)
		return;
	if (acquiring.locks == NULL)
		acquiring.locks = MemoryContextAlloc(TopMemoryContext,
											 nlocks * sizeof(HeldLock *));
	else
		acquiring.locks = repalloc(acquiring.locks,
								   nlocks * sizeof(HeldLock *));
	acquiring.maxlocks = nlocks;
}

/*
 * End the call under way, if there is one, without its locks.  It may have been
 * granted them, if an error came right then.
 */
static void
abandon_acquiring(void)
{
	if (acquiring.other)
		slot_unwant(acquiring.other);
	acquiring.other = NULL;
	for (int i = 0; i < acquiring.nlocks; i++)
	{
		HeldLock   *lock = acquiring.locks[i];

		if (lock->proc && lock->proc->granted)
			slot_drop(lock->proc, zk_now_us());
		else if (lock->proc)
			slot_unwant(lock->proc);
		stats_count_failure(acquiring.failure);
		forget_held(lock);
	}
	acquiring.nlocks = 0;
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
report_lost(const char *key, bool committing)
{
	char	   *name = zk_name_of_key(key);

	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 committing ?
			 errmsg("could not commit because lock \"%s\" has been lost", name) :
			 errmsg("lock \"%s\" has been lost", name),
			 errdetail("The ZooKeeper session of this server has ended."),
			 errhint("Retry the transaction.")));
}

/* The wait of a call, through both tiers. */
typedef struct SlotWait
{
	const char *name;
	bool		immediate;		/* wait behind nobody */
	int64		deadline;		/* of zk_now_ms(), or -1 */
	int64		called_us;		/* of zk_now_us() */
	int64		called_ms;		/* of zk_now_ms() */
	bool		queued;			/* somebody has been ahead of us ... */
	bool		in_queue;		/* ... in ZooKeeper: we have a place there */
	bool		asked;			/* the cluster did not own it already */
	int64		no_session_since;	/* of zk_now_ms(), or 0 */
	int64		started;		/* the second tier, of zk_now_ms(); or 0 */
	bool		logged;			/* for log_lock_waits */
	ZkSlot	   *prepared;		/* whose condition variable we wait for */
	uint32		ticket;			/* of proof_ask(), or 0 */
} SlotWait;

static void
waiting_callback(void *arg)
{
	errcontext("while waiting for lock \"%s\" in ZooKeeper",
			   ((const SlotWait *) arg)->name);

	/* lock_timeout within the lock manager */
	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
		acquiring.failure = ZK_FAILURE_TIMEOUT;
}

/*
 * The heavyweight lock, waiting with "deadline" as lock_timeout.
 *
 * In the name of the session, or of the current (sub)transaction rather than
 * of the portal, so that a later statement can release it.
 */
static bool
lock_heavyweight(const HeldLock *lock, bool session, bool wait, int64 deadline)
{
	ResourceOwner save_owner = CurrentResourceOwner;
	int			save_timeout = LockTimeout;
	LockAcquireResult result;

	PG_TRY();
	{
		CurrentResourceOwner = CurTransactionResourceOwner;
		if (deadline >= 0)
			LockTimeout = (int) Min(Max(time_left(deadline), 1), INT_MAX);
		result = LockAcquire(&lock->tag, lock->mode, session, !wait);
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
try_lock_heavyweight(const HeldLock *lock, int64 deadline)
{
	MemoryContext save_context = CurrentMemoryContext;
	ResourceOwner save_owner = CurrentResourceOwner;
	volatile bool got = false;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		got = lock_heavyweight(lock, false, true, deadline);

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

/*
 * Release the heavyweight lock as often as it was acquired in the name of the
 * session, or of the transaction.
 */
static void
unlock_heavyweight(const LOCKTAG *tag, LOCKMODE mode, bool session,
				   int64 times)
{
	ResourceOwner save_owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	while (times-- > 0 && ZkLockHeldByMe(tag, mode))
		LockRelease(tag, mode, session);
	CurrentResourceOwner = save_owner;
}

static void
report_permits(const char *name, int permits, int permits_found)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("semaphore \"%s\" is in use with %d permits, not %d",
					name, permits_found, permits),
			 errhint("All users of a semaphore must agree on its number of permits.")));
}

static void
report_refusal(const HeldLock *lock, const char *name, ZkRefusal refusal,
			   int permits_found)
{
	switch (refusal)
	{
		case ZK_REFUSAL_PERMITS:
			report_permits(name, lock->permits, permits_found);
			break;
		case ZK_REFUSAL_MIXED:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 lock->kind == ZNODE_PERMIT ?
					 errmsg("\"%s\" is in use as a lock, not as a semaphore", name) :
					 errmsg("\"%s\" is in use as a semaphore, not as a lock", name),
					 lock->kind == ZNODE_PERMIT ?
					 errdetail("Somebody takes it as a lock.") :
					 errdetail("Somebody uses zk_acquire() with this name, or Curator's semaphore."),
					 errhint("Use different names.  ZooKeeper forgets a name that is not used any more within a minute or two.")));
			break;
		case ZK_REFUSAL_ENDED:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the sequence numbers of \"%s\" in ZooKeeper are used up",
							name),
					 errdetail("ZooKeeper's counter of the directory \"%s\" has ended at 2147483647, and znodes in the directory keep it from beginning anew.",
							   zk_path_of_key(lock->key)),
					 errhint("Stop the other clients that use this name, and delete their znodes and the directory.")));
			break;
		case ZK_REFUSAL_ACCESS:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("ZooKeeper denied access to lock \"%s\"", name),
					 errdetail("The credentials of this server do not allow it to create znodes in \"%s\".",
							   lock->key),
					 errhint("Check \"zklock.auth\" and \"zklock.acl\", and the ACL of the znode.")));
			break;
		case ZK_REFUSAL_NO_CHROOT:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("could not create lock \"%s\" in ZooKeeper", name),
					 errdetail("The chroot of \"zklock.servers\" does not exist in ZooKeeper."),
					 errhint("Create that znode, or change \"zklock.servers\".")));
			break;
		case ZK_REFUSAL_NO_ROOM:
			ereport(ERROR,
					(errcode(ERRCODE_OUT_OF_MEMORY),
					 errmsg("no room for lock \"%s\" in the ZooKeeper session",
							name),
					 errdetail("The paths of this server's znodes take %lld bytes; a session may have %d bytes of them.",
							   (long long) path_bytes_read(), ZK_MAX_PATH_BYTES),
					 errhint("Hold and await fewer locks at a time, or use shorter names.")));
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

/*
 * zk_report_no_session
 *		Say (57P03) that there was no session for too long.
 */
void
zk_report_no_session(int elevel, const char *name, const ZkSessionInfo *info)
{
	ereport(elevel,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("could not reach ZooKeeper for lock \"%s\"", name),
			 info->worker_pid == 0 ?
			 errdetail("The zklock worker is not running.") :
			 info->draining ?
			 errdetail("\"zklock.servers\" has a new chroot, and locks in the old one have been held for %d ms.",
					   info->timeout) :
			 info->last_error[0] != '\0' ?
			 errdetail("There was no session with \"%s\" for %d ms: %s",
					   zklock_servers, info->timeout, info->last_error) :
			 errdetail("There was no session with \"%s\" for %d ms.",
					   zklock_servers, info->timeout),
			 errhint("Check \"zklock.servers\" and that ZooKeeper is running; the view zk_session shows the state.")));
}

/*
 * zk_session_patience
 *		A call that has no place in a queue yet waits for a session, but not
 *		for longer than a session would live.
 *
 * Returns how long it may sleep until it must look again, in ms, or 0 if it
 * has waited for long enough.  "called_at" is when the call began, as of
 * zk_now_ms(); what it has waited for since then counts, too, if there was no
 * session.  *since is when the session was first missed, or 0.  Fills in *info.
 */
int64
zk_session_patience(int64 called_at, int64 *since, ZkSessionInfo *info)
{
	int64		now = zk_now_ms();

	session_read(info);
	if (info->state == ZK_SESSION_CONNECTED && !info->draining)
	{
		*since = 0;
		return info->timeout;
	}
	if (*since == 0 && info->state == ZK_SESSION_CONNECTED)
		*since = now;			/* draining */
	else if (*since == 0)
		*since = Max(called_at,
					 now - TimestampDifferenceMilliseconds(info->state_since,
														   GetCurrentTimestamp()));
	return Max(info->timeout - (now - *since), 0);
}

/* The same, with an error in place of 0. */
static int64
check_session(SlotWait *wait)
{
	ZkSessionInfo info;
	int64		patience = zk_session_patience(wait->called_ms,
											   &wait->no_session_since, &info);

	if (patience == 0)
		zk_report_no_session(ERROR, wait->name, &info);
	return patience;
}

static const char *
lock_word(ZnodeKind kind)
{
	return kind == ZNODE_READER ? "shared lock" :
		kind == ZNODE_PERMIT ? "a permit of" : "exclusive lock";
}

/*
 * As log_lock_waits has the lock manager do it: tell once who has kept us
 * waiting for deadlock_timeout.  Returns how long that is still to come, in
 * ms, or -1 if it is not.
 */
static int64
log_wait(SlotWait *wait, const HeldLock *lock)
{
	char		owner[256];
	int64		waited;
	bool		known;

	if (!log_lock_waits || wait->logged)
		return -1;
	waited = zk_now_ms() - wait->started;
	if (waited < DeadlockTimeout)
		return DeadlockTimeout - waited;

	wait->logged = true;
	wait->prepared = NULL;		/* the query sleeps, too */
	known = ask_owner(zk_path_of_key(lock->key),
						wait->deadline < 0 ? OWNER_QUERY_MS :
						(int) Min(time_left(wait->deadline), OWNER_QUERY_MS),
						owner, sizeof(owner));
	ereport(LOG,
			(errmsg("process %d still waiting for %s \"%s\" in ZooKeeper after %lld ms",
					MyProcPid, lock_word(lock->kind), wait->name,
					(long long) waited),
			 known ? errdetail_log("First in the queue: %s", owner) : 0));
	return -1;
}

/* The end of the story, if its beginning was told. */
static void
log_wait_end(const SlotWait *wait, const HeldLock *lock)
{
	ZK_FAIL_AT("log");
	if (wait->logged)
		ereport(LOG,
				(errmsg("process %d acquired %s \"%s\" in ZooKeeper after %lld ms",
						MyProcPid, lock_word(lock->kind), wait->name,
						(long long) (zk_now_ms() - wait->started))));
}

/*
 * Sleep until the slot has changed, or something else must be looked at.
 * Returns false if the wait is over without success.  The first call for a
 * slot only prepares to sleep: the caller must look at it once more.
 */
static bool
wait_for_slot(SlotWait *wait, const HeldLock *lock, ZkTake take)
{
	static uint32 wait_event = 0;
	ZkSlot	   *slot = lock->proc->slot;
	int64		sleep = time_left(wait->deadline);
	int64		log_in;

	wait->asked = true;
	if (take == ZK_QUEUED)
		wait->queued = wait->in_queue = true;
	if (wait->started == 0)
		wait->started = zk_now_ms();
	if (sleep == 0 || (wait->queued && wait->immediate))
		return false;
	if (!wait->in_queue)
	{
		int64		recheck = check_session(wait);

		sleep = sleep < 0 ? recheck : Min(sleep, recheck);
	}
	else
		sleep = sleep < 0 ? RECHECK_MS : Min(sleep, RECHECK_MS);
	if (take == ZK_UNPROVED)
	{
		if (wait->ticket == 0 || proof_is_given(wait->ticket))
			wait->ticket = proof_ask();
		sleep = Min(sleep, UNPROVED_RECHECK_MS);
	}
	log_in = log_wait(wait, lock);
	if (log_in >= 0)
		sleep = Min(sleep, log_in);

	if (wait->prepared != slot)
	{
		ConditionVariablePrepareToSleep(&slot->cv);
		wait->prepared = slot;
		return true;
	}
	(void) ConditionVariableTimedSleep(&slot->cv, Min(sleep, INT_MAX),
									   ZkWaitEvent(wait_event, "ZkLockAcquire"));
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * The key of the slot that serves a lock in the other mode, or false if there
 * is no such mode.  That of the readers is shared by all of them.
 */
static bool
other_mode_key(const HeldLock *lock, char key[ZK_SLOT_KEY_SIZE])
{
	if (lock->kind == ZNODE_PERMIT)
		return false;
	snprintf(key, ZK_SLOT_KEY_SIZE, "%s%s", lock->key,
			 lock->kind == ZNODE_READER ? "" : READERS_MARK);
	return true;
}

/*
 * We have the heavyweight lock, so nobody of this cluster can be first in line
 * in the other mode.  A contender of that mode that the cluster has all the
 * same would stand in our way, and wait for us.  It may come while we wait, so
 * this is done again and again.
 */
static void
yield_other_mode(const HeldLock *lock)
{
	char		key[ZK_SLOT_KEY_SIZE];

	if (other_mode_key(lock, key))
		slot_yield(key);
}

/*
 * Who waits behind nobody must not take the cluster's own contender of the
 * other mode for somebody, while that is being deleted.  Returns false if it is
 * not gone in time, or ZooKeeper does not let it go.
 */
static bool
wait_for_other_mode(const HeldLock *lock, SlotWait *wait)
{
	static uint32 wait_event = 0;
	char		key[ZK_SLOT_KEY_SIZE];
	ZkContender contender;
	ZkSlot	   *slot;
	bool		stuck;
	bool		gone = true;

	yield_other_mode(lock);
	if (!other_mode_key(lock, key) ||
		slot_find_contender(key, &contender) != ZK_SLOT_RELEASING)
		return true;

	acquiring.other = slot_want(key, lock->kind, false, true);
	slot = acquiring.other->slot;
	while (gone && slot_is_leaving(slot, &stuck))
	{
		int64		left = time_left(wait->deadline);

		if (stuck || left == 0)
			gone = false;
		else
		{
			int64		sleep = check_session(wait);

			if (left > 0)
				sleep = Min(sleep, left);
			(void) ConditionVariableTimedSleep(&slot->cv, Min(sleep, INT_MAX),
											   ZkWaitEvent(wait_event, "ZkLockAcquire"));
		}
	}
	ConditionVariableCancelSleep();
	slot_unwant(acquiring.other);
	acquiring.other = NULL;
	return gone;
}

/*
 * The second tier: take the slot, or have the worker queue for it and wait.
 * Returns false if that ended without success.
 *
 * Nothing may throw between the take and push_hold(): there is no hold yet that
 * an error could give back.
 */
static bool
take_slot(HeldLock *lock, SlotWait *wait)
{
	ZkTake		take;

	if (wait->immediate && !wait_for_other_mode(lock, wait))
		return false;
	for (;;)
	{
		ZkRefusal	refusal;
		int			permits_found;

		take = slot_take(lock->proc, lock->permits, &refusal, &permits_found);
		if (take == ZK_REFUSED)
			report_refusal(lock, wait->name, refusal, permits_found);
		if (take != ZK_TAKEN &&
			slot_read_state(lock->proc->slot) != ZK_SLOT_HELD)
			yield_other_mode(lock);
		if (take == ZK_TAKEN || !wait_for_slot(wait, lock, take))
			break;
	}
	ConditionVariableCancelSleep();
	return take == ZK_TAKEN;
}

/* The same for several slots: all or none. */
static bool
take_slots(HeldLock **locks, int nlocks, SlotWait *wait)
{
	ZkProcLock **procs = palloc(nlocks * sizeof(ZkProcLock *));
	uint32		group = 0;
	ZkTake		take;

	for (int i = 0; i < nlocks; i++)
		procs[i] = locks[i]->proc;
	for (;;)
	{
		ZkRefusal	refusal;
		int			which;

		take = slots_take_together(procs, nlocks, &group, &which, &refusal);
		if (take == ZK_TAKEN)
			break;
		for (int i = 0; i < nlocks; i++)
			yield_other_mode(locks[i]);
		wait->name = zk_name_of_key(locks[which]->key);
		if (take == ZK_REFUSED)
			report_refusal(locks[which], wait->name, refusal, 0);
		if (!wait_for_slot(wait, locks[which], take))
			break;
	}
	ConditionVariableCancelSleep();
	pfree(procs);
	return take == ZK_TAKEN;
}

/*
 * A transaction whose snapshot was taken ahead of the wait does not see what
 * the holder before it has committed.
 */
static void
warn_of_old_snapshot(const char *name, bool session)
{
	if (snapshot_warned || !IsolationUsesXactSnapshot() || !FirstSnapshotSet)
		return;
	if (session && !IsTransactionBlock())
		return;					/* the snapshot ends with this statement */
	snapshot_warned = true;
	ZK_FAIL_AT("warn");
	ereport(WARNING,
			(errmsg("the snapshot of this transaction is older than lock \"%s\"",
					name),
			 errdetail("Changes that the previous holder committed under the lock are not visible."),
			 errhint("Use READ COMMITTED, or take a session-scoped lock before BEGIN.")));
}

/*
 * The key of the slot that serves a lock.  Several shared locks at once have
 * slots of their own, because what is asked for together cannot be shared with
 * others of this cluster that ask for less.
 */
static void
slot_key(const HeldLock *lock, bool together, char key[ZK_SLOT_KEY_SIZE])
{
	if (lock->kind != ZNODE_READER)
		strlcpy(key, lock->key, ZK_SLOT_KEY_SIZE);
	else if (together)
		snprintf(key, ZK_SLOT_KEY_SIZE, "%s" ZK_KEY_MARK "%d",
				 lock->key, ZkMyProcNumber);
	else
		snprintf(key, ZK_SLOT_KEY_SIZE, "%s" READERS_MARK, lock->key);
}

/* The first tier of one lock. */
static bool
acquire_heavyweight(HeldLock *lock, const ZkRequest *request, SlotWait *wait)
{
	if (lock_heavyweight(lock, false, false, -1))
		return true;
	if (wait->immediate)
		return false;
	wait->queued = true;
	if (!is_shared(lock->kind))
		slot_ask(lock->proc);
	return request->try && wait->deadline >= 0 ?
		try_lock_heavyweight(lock, wait->deadline) :
		lock_heavyweight(lock, false, true, wait->deadline);
}

/*
 * The first tier of several locks, in the order of their paths, which all
 * callers share.  While we wait for one, the cluster must not keep those that
 * we are first in line for.
 */
static bool
acquire_heavyweights(HeldLock **locks, int nlocks, SlotWait *wait)
{
	for (int i = 0; i < nlocks; i++)
	{
		if (lock_heavyweight(locks[i], false, false, -1))
			continue;
		wait->queued = true;
		if (wait->immediate)
			return false;
		for (int j = 0; j < i; j++)
		{
			slot_yield(locks[j]->key);
			yield_other_mode(locks[j]);
		}
		wait->name = zk_name_of_key(locks[i]->key);
		if (!lock_heavyweight(locks[i], false, true, wait->deadline))
			return false;
	}
	return true;
}

static void
want_slots(const ZkRequest *request)
{
	for (int i = 0; i < acquiring.nlocks; i++)
	{
		HeldLock   *lock = acquiring.locks[i];
		bool		together = acquiring.nlocks > 1;
		char		key[ZK_SLOT_KEY_SIZE];

		slot_key(lock, together, key);
		lock->proc = slot_want(key, lock->kind, request->session, together);
	}
}

/* The latest hold is the session's, not the transaction's. */
static void
make_latest_of_session(HeldLock *lock)
{
	Hold		hold = {
		.subid = InvalidSubTransactionId,
		.undone = InvalidSubTransactionId,
		.session = true,
		.count = 1
	};

	/* there is room, since it has an entry of its own or needed none */
	if (--lock->holds[lock->nholds - 1].count == 0)
		lock->nholds--;
	add_holds(lock, hold);
}

/*
 * The latest holds of these locks, which are of the transaction, are the
 * session's from now on: all or none.  Only now, so that an error on the way
 * here leaves nothing behind.
 */
static void
make_session_scoped(HeldLock **locks, int nlocks)
{
	volatile int n = 0;

	PG_TRY();
	{
		/* without waiting: pg_advisory_unlock_all() may have let others in */
		for (; n < nlocks; n++)
			(void) lock_heavyweight(locks[n], true, false, -1);
		ZK_FAIL_AT("session");
	}
	PG_CATCH();
	{
		while (n-- > 0)
			unlock_heavyweight(&locks[n]->tag, locks[n]->mode, true, 1);
		PG_RE_THROW();
	}
	PG_END_TRY();

	for (int i = 0; i < nlocks; i++)
	{
		unlock_heavyweight(&locks[i]->tag, locks[i]->mode, false, 1);
		make_latest_of_session(locks[i]);
		show_scope(locks[i]);
	}
}

/*
 * Both tiers in order, for the locks in "acquiring", which this backend does
 * not hold.  What the call has come to is there all the time, so that an error
 * may come at any point.
 */
static bool
acquire_tiers(const ZkRequest *request, SlotWait *wait)
{
	HeldLock   *first = acquiring.locks[0];
	int			nlocks = acquiring.nlocks;
	bool		tier1;
	bool		got = false;

	/* ahead of the wait, so that a holder hands the slot on */
	want_slots(request);
	if (nlocks == 1)
	{
		tier1 = acquire_heavyweight(first, request, wait);
		got = tier1 && take_slot(first, wait);
	}
	else
	{
		tier1 = acquire_heavyweights(acquiring.locks, nlocks, wait);
		got = tier1 && take_slots(acquiring.locks, nlocks, wait);
	}
	if (!got)
	{
		acquiring.failure = ZK_FAILURE_TIMEOUT;
		/* those of several go with the error */
		if (tier1 && nlocks == 1)
			unlock_heavyweight(&first->tag, first->mode, false, 1);
		abandon_acquiring();
		return false;
	}

	ZK_FAIL_AT("taken");
	for (int i = 0; i < nlocks; i++)
	{
		push_hold(acquiring.locks[i], false);
		stats_count_take(!wait->asked, wait->queued,
						 acquiring.locks[i]->proc->since - wait->called_us);
	}
	acquiring.nlocks = 0;

	/* from here on an error ends the holds, too */
	ZK_FAIL_AT("ask");
	for (int i = 0; i < nlocks; i++)
		if (acquiring.locks[i]->kind == ZNODE_READER)
			slot_ask_for_others(acquiring.locks[i]->key);
	log_wait_end(wait, first);
	if (wait->queued)
		warn_of_old_snapshot(wait->name, request->session);
	return true;
}

/* May the request have one more hold of a lock that this backend holds? */
static void
check_again(const HeldLock *lock, const ZkRequest *request)
{
	if (!slot_is_mine(lock->proc, NULL))
		report_lost(lock->key, false);
	if (!is_shared(request->kind) && is_shared(lock->kind))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot make the shared lock \"%s\" exclusive",
						zk_name_of_key(lock->key)),
				 errdetail("Two transactions that did so would wait for each other forever."),
				 errhint("Take the exclusive lock first, or release the shared lock first.")));
	if (request->permits != lock->permits)
		report_permits(request->name, request->permits, lock->permits);
}

/*
 * hold_acquire
 *		Take the locks of a request, once more where this backend holds them
 *		already: all or none.
 *
 * Several keys cannot be tried, only waited for.  Returns false, or if not
 * "try" throws 55P03, if the locks cannot be had in time.
 *
 * Errors: 55P03; 53200 out of slots; 57P03 no session; 42501, F0000 or 58000
 * refused by ZooKeeper; 57014 cancelled; 40P01 deadlock within the cluster;
 * 40001 if a lock is held, but has been lost; 55000 if a shared lock would
 * have to be made exclusive, a semaphore has other permits, or a name is a
 * lock here and a semaphore there.
 */
bool
hold_acquire(const ZkRequest *request)
{
	SlotWait	wait = {
		.name = request->name,
		.immediate = request->timeout == 0,
		.deadline = -1
	};
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = waiting_callback,
		.arg = &wait
	};
	HeldLock  **locks = palloc(request->nkeys * sizeof(HeldLock *));
	int			nagain = 0;		/* so many are held already, and come first */

	Assert(!request->try || request->nkeys == 1);
	wait.called_us = zk_now_us();
	wait.called_ms = wait.called_us / 1000;
	if (dlist_is_empty(&held_list))
		move_callback_first();
	if (request->timeout > 0)
		wait.deadline = wait.called_ms + request->timeout;
	if (LockTimeout > 0)
	{
		int64		limit = wait.called_ms + LockTimeout;

		wait.deadline = wait.deadline < 0 ? limit : Min(wait.deadline, limit);
	}

	make_room_for_acquiring(request->nkeys);
	for (int i = 0; i < request->nkeys; i++)
	{
		HeldLock   *lock = prepare_held(request->keys[i], request->kind,
										request->permits);

		if (lock->nholds == 0)
		{
			add_acquiring(lock);
			locks[request->nkeys - acquiring.nlocks] = lock;
		}
		else
		{
			check_again(lock, request);
			locks[nagain++] = lock;
		}
	}

	if (acquiring.nlocks > 0)
	{
		bool		got;

		error_context_stack = &context;
		got = acquire_tiers(request, &wait);
		error_context_stack = context.previous;
		if (!got && !request->try)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not obtain lock \"%s\" in ZooKeeper",
							wait.name)));
		if (!got)
			return false;
	}
	for (int i = 0; i < nagain; i++)
	{
		/* without waiting, as in make_session_scoped() */
		(void) lock_heavyweight(locks[i], false, false, -1);
		push_hold(locks[i], false);
	}
	if (request->session)
		make_session_scoped(locks, request->nkeys);
	return true;
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
		if (!is_undone(&lock->holds[i]))
			return i;
	return -1;
}

/*
 * Mark the latest of the holds of an entry that is not marked: those above it
 * are.
 */
static void
mark_hold(HeldLock *lock, int number)
{
	Hold	   *holds;
	Hold		marked;

	make_room_for_hold(lock);
	holds = lock->holds;
	marked = holds[number];
	marked.undone = marked.session ? TopSubTransactionId :
		GetCurrentSubTransactionId();
	marked.count = 1;
	lock->nundone++;
	touch(lock);

	/* it leaves its entry, and joins that above or below, or has its own */
	if (--holds[number].count == 0)
	{
		lock->nholds--;
		memmove(&holds[number], &holds[number + 1],
				(lock->nholds - number) * sizeof(Hold));
	}
	else
		number++;
	for (int i = number; i >= number - 1; i--)
	{
		if (i < 0 || i >= lock->nholds || holds[i].session != marked.session ||
			holds[i].subid != marked.subid || holds[i].undone != marked.undone)
			continue;
		holds[i].count++;
		return;
	}
	memmove(&holds[number + 1], &holds[number],
			(lock->nholds - number) * sizeof(Hold));
	holds[number] = marked;
	lock->nholds++;
}

/* What is left of a lock when holds have been removed. */
static void
settle_held(HeldLock *lock)
{
	if (lock->nholds == 0)
		drop_held(lock);
	else
		show_scope(lock);
}

/*
 * Take from the stack what goes now, and give back the heavyweight lock for
 * holds of the session.  Those of the transaction are released too if
 * "transaction_too", else by their resource owner.  The lock is gone
 * afterwards if nothing is left.
 */
static void
remove_holds(HeldLock *lock, bool (*goes) (const Hold *), bool transaction_too)
{
	LOCKTAG		tag = lock->tag;
	LOCKMODE	mode = lock->mode;
	int			nholds = lock->nholds;
	int64		of_session = 0;
	int64		of_transaction = 0;

	take_off_holds(lock, 0);
	for (int i = 0; i < nholds; i++)
	{
		Hold		hold = lock->holds[i];

		if (!goes(&hold))
			add_holds(lock, hold);
		else if (hold.session)
			of_session += hold.count;
		else
			of_transaction += hold.count;
	}
	settle_held(lock);
	unlock_heavyweight(&tag, mode, true, of_session);
	if (transaction_too)
		unlock_heavyweight(&tag, mode, false, of_transaction);
}

/* The same for the latest hold, if none is marked, and at once. */
static void
remove_latest(HeldLock *lock)
{
	LOCKTAG		tag = lock->tag;
	LOCKMODE	mode = lock->mode;
	Hold	   *hold = &lock->holds[lock->nholds - 1];
	bool		session = hold->session;

	if (session)
		lock->nsession--;
	if (--hold->count == 0)
		lock->nholds--;
	settle_held(lock);
	unlock_heavyweight(&tag, mode, session, 1);
}

static bool
ends_with_transaction(const Hold *hold)
{
	return !hold->session || is_undone(hold);
}

static bool
is_of_session(const Hold *hold)
{
	return hold->session;
}

/*
 * May a hold go at once?  If the transaction has changed nothing and is in no
 * savepoint; else what it has done under the lock must be visible before
 * anybody else gets it.
 */
static bool
may_release_now(void)
{
	return GetCurrentTransactionNestLevel() == 1 && !transaction_has_written();
}

/*
 * hold_release
 *		Undo the latest hold under a key that is not undone yet.
 *
 * At once if that is possible; else the hold is only marked, and the lock goes
 * with the transaction.  Returns false if there is no such hold.  Warns if the
 * lock has been lost meanwhile.
 */
bool
hold_release(const char *key)
{
	HeldLock   *lock = find_held(key);
	int			latest;

	if (lock == NULL || (latest = latest_live_hold(lock)) < 0)
		return false;

	if (!slot_is_mine(lock->proc, NULL))
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost", zk_name_of_key(key)),
				 errdetail("The ZooKeeper session of this server has ended.")));

	if (may_release_now() && lock->nundone == 0)
		remove_latest(lock);
	else
	{
		mark_hold(lock, latest);
		if (may_release_now())
			remove_holds(lock, is_undone, true);
	}
	return true;
}

/*
 * hold_release_session
 *		Undo all session-scoped holds, as hold_release() does.
 */
void
hold_release_session(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		for (int i = 0; i < lock->nholds; i++)
		{
			Hold	   *hold = &lock->holds[i];

			if (!hold->session || is_undone(hold))
				continue;
			hold->undone = TopSubTransactionId;
			lock->nundone += hold->count;
		}
		if (may_release_now())
			remove_holds(lock, is_undone, true);
	}
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
hold_token(const char *key, const char *name)
{
	static uint32 wait_event = 0;
	HeldLock   *lock = find_held(key);
	int64		token;

	if (lock == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lock \"%s\" is not held", name),
				 errhint("Call zk_lock() first.")));

	for (;;)
	{
		if (!slot_is_mine(lock->proc, &token))
			report_lost(key, false);
		if (token != 0)
			break;
		ConditionVariableSleep(&lock->proc->slot->cv,
							   ZkWaitEvent(wait_event, "ZkLockToken"));
	}
	ConditionVariableCancelSleep();
	return token;
}

/*
 * Every lock must still be ours, as far as this cluster knows.  From here on
 * we are not canceled any more if one is lost.
 */
static void
begin_commit_of_holds(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		if (!slot_begin_commit(lock->proc))
			report_lost(lock->key, true);
	}
}

/* We may be canceled again. */
static void
end_commit_of_holds(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		if (lock->proc->committing)
			slot_end_commit(lock->proc);
	}
}

/*
 * In place of the error under way, which a canceled statement has come to, tell
 * that a lock has been lost, if that is so: the worker cancels the holders.
 *
 * Not in a statement within a function, which could take that error for one of
 * its own and go on.
 */
static void
explain_cancel(MemoryContext context, bool committing)
{
	dlist_iter	iter;

	if (geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	dlist_foreach(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		if (slot_is_mine(lock->proc, NULL))
			continue;
		MemoryContextSwitchTo(context);
		FlushErrorState();
		report_lost(lock->key, committing);
	}
}

/*
 * Has the transaction used NOTIFY (or LISTEN)?  That is for PREPARE TRANSACTION
 * to ask, who takes it for an error; it changes nothing, so the error needs no
 * rollback.
 */
static bool
has_notified(void)
{
	MemoryContext context = CurrentMemoryContext;
	bool		save_exit = ExitOnAnyError;
	volatile bool notified = false;

	ExitOnAnyError = false;
	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		notified = true;
	}
	PG_END_TRY();
	ExitOnAnyError = save_exit;
	return notified;
}

/*
 * The lock by which all transactions that have used NOTIFY commit one after the
 * other.  PostgreSQL takes it between our check and the commit, and may wait
 * long for it: so we wait for it ahead of the check.
 */
static void
lock_notify_queue(void)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		LockSharedObject(DatabaseRelationId, InvalidOid, 0,
						 AccessExclusiveLock);
	}
	PG_CATCH();
	{
		explain_cancel(context, true);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Others must not wait while we do. */
static void
unlock_notify_queue(void)
{
	UnlockSharedObject(DatabaseRelationId, InvalidOid, 0, AccessExclusiveLock);
}

/*
 * Is it known well enough that the session has not ended?  "proved_at" is when
 * ZooKeeper was asked that has said so, or 0.
 */
static bool
is_proved(int64 lease, int64 proved_at)
{
	int64		now = zk_now_ms();

	switch (zklock_commit_check)
	{
		case ZK_CHECK_LEASE:
			return now < lease;
		case ZK_CHECK_QUORUM:
			return proved_at != 0 && now < proved_at + PROOF_MAX_AGE_MS;
		default:
			return true;
	}
}

/*
 * Ahead of the commit: every lock must still be ours.
 *
 * ZooKeeper may have ended the session, and this cluster not have heard of it.
 * While the lease runs that cannot be.  Otherwise, or if zklock.commit_check
 * says so, wait until the worker has asked; the wait can be canceled.
 *
 * A process that ends cannot be, and its locks go in a moment.  What it still
 * commits is the removal of its temporary tables, which is right in any case.
 *
 * Errors: 40001 if a lock has been lost.
 */
static void
check_holds(void)
{
	static uint32 wait_event = 0;
	uint32		ticket = 0;
	int64		asked_at = 0;	/* of zk_now_ms(); 0: not asked */
	int64		queue_locked_at = 0;	/* the same */
	bool		notified;

	if (dlist_is_empty(&held_list) || proc_exit_inprogress ||
		ZK_MUTATED(ZK_COMMIT_CHECK_OFF))
		return;

	notified = has_notified();
	for (;;)
	{
		int64		lease = lease_read();
		bool		proved = asked_at != 0 && proof_is_given(ticket);

		/* ahead of interrupts: we may have been canceled for that reason */
		begin_commit_of_holds();
		/* ahead of the commit, whose wait for a standby it would cut short */
		CHECK_FOR_INTERRUPTS();
		if (is_proved(lease, proved ? asked_at : 0))
		{
			if (!notified || queue_locked_at != 0)
				break;
			ConditionVariableCancelSleep();
			end_commit_of_holds();
			lock_notify_queue();
			queue_locked_at = zk_now_ms();
			continue;
		}

		if (queue_locked_at != 0 &&
			zk_now_ms() >= queue_locked_at + QUEUE_LOCK_MS)
		{
			unlock_notify_queue();
			queue_locked_at = 0;
		}
		end_commit_of_holds();
		if (asked_at != 0)
		{
			(void) WaitLatch(MyLatch,
							 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 PROOF_RECHECK_MS,
							 ZkWaitEvent(wait_event, "ZkLockCommit"));
			ResetLatch(MyLatch);
		}
		proof_prepare_wait();
		if (asked_at == 0 || proved)
		{
			asked_at = zk_now_ms();
			ticket = proof_ask();
		}
	}
	ConditionVariableCancelSleep();

	/*
	 * The foreign server may be this one, and a trigger there use NOTIFY: to
	 * keep the lock while postgres_fdw commits would be a deadlock.
	 */
	if (queue_locked_at != 0 && transaction_used_foreign)
		unlock_notify_queue();

	/* the lock must never be free before its commit is durable */
	ForceSyncCommit();
}

/*
 * Ahead of the commit of a command with lasting effects, which was checked
 * ahead of these.  An error would tell that nothing has happened, which is not
 * so, and to wait could end in one.  So only tell of a loss; the hold stays
 * lost, and fails the next commit.
 */
static void
warn_of_lost_holds(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);

		if (slot_begin_commit(lock->proc) || lock->loss_told)
			continue;
		lock->loss_told = true;
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost while the command was running",
						zk_name_of_key(lock->key)),
				 errdetail("The ZooKeeper session of this server has ended.  What the command has done stays."),
				 errhint("zk_unlock() acknowledges the loss; until then no transaction of this session can commit.")));
	}
	if (!dlist_is_empty(&held_list))
		ForceSyncCommit();
}

/* At the end of a transaction, whatever that was. */
static void
end_transaction(void)
{
	dlist_mutable_iter iter;

	abandon_acquiring();
	while (!dlist_is_empty(&touched_list))
		dlist_container(HeldLock, touched_node,
						dlist_pop_head_node(&touched_list))->touched =
			InvalidSubTransactionId;
	dlist_foreach_modify(iter, &held_list)
		remove_holds(dlist_container(HeldLock, node, iter.cur),
					 ends_with_transaction, false);
	if (lasting != LASTING_RUNNING)
	{
		lasting = LASTING_NONE;
		end_commit_of_holds();
	}
	transaction_wrote = false;
	transaction_used_foreign = false;
	snapshot_warned = false;
}

/*
 * At the end of the session: end its last transaction, and give back what is
 * left, ahead of the lock manager.
 */
static void
release_at_exit(int code pg_attribute_unused(),
				Datum arg pg_attribute_unused())
{
	AbortOutOfAnyTransaction();
	while (!dlist_is_empty(&held_list))
		drop_held(dlist_container(HeldLock, node,
								  dlist_head_node(&held_list)));
}

static void
zk_xact_callback(XactEvent event, void *arg pg_attribute_unused())
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (lasting == LASTING_NONE)
				check_holds();
			else
				warn_of_lost_holds();
#ifdef ZKLOCK_TEST_BUILD
			if (ZK_MUTATED(ZK_RELEASE_BEFORE_COMMIT))
				end_transaction();
			if (zklock_stop_before_commit)
				kill(MyProcPid, SIGSTOP);
#endif
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (!dlist_is_empty(&held_list))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds a lock in ZooKeeper"),
						 errhint("Locks go with the server's ZooKeeper session, which a prepared transaction may outlive.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			break;				/* not yet: see zk_release_callback() */
		case XACT_EVENT_ABORT:
			end_transaction();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

/*
 * The transaction has been committed or prepared, and everybody's transaction
 * callbacks have run; its heavyweight locks go next.
 *
 * PostgreSQL calls this for every resource owner that it releases.  That of the
 * transaction is released as "top level" at the transaction's end only, always
 * right behind the callbacks.
 */
static void
zk_release_callback(ResourceReleasePhase phase,
					bool isCommit, bool isTopLevel,
					void *arg pg_attribute_unused())
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS && isCommit && isTopLevel &&
		CurrentResourceOwner == TopTransactionResourceOwner)
		end_transaction();
}

#ifdef ZKLOCK_TEST_BUILD
/* Stop where a foreign data wrapper may commit or roll back its remote side. */
static void
stop_at_end_callback(XactEvent event, void *arg pg_attribute_unused())
{
	if (zklock_stop_at_end &&
		(event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT))
		kill(MyProcPid, SIGSTOP);
}
#endif

/*
 * A subtransaction ends.  If it is rolled back its holds go, and so do its marks;
 * not so what it has done to holds of the session, as with advisory locks.  If
 * it is released they are its parent's.  Returns false if nothing is left of
 * the lock.
 */
static bool
end_subtransaction(HeldLock *lock, SubTransactionId subid, bool commit,
				   SubTransactionId parent)
{
	int			nholds = lock->nholds;
	int			first = nholds;
	bool		left;

	for (; first > 0; first--)
	{
		const Hold *hold = &lock->holds[first - 1];

		if (!hold->session && !is_undone(hold) && hold->subid < subid)
			break;
	}

	take_off_holds(lock, first);
	for (int i = first; i < nholds; i++)
	{
		Hold		hold = lock->holds[i];

		if (!hold.session && hold.subid == subid)
		{
			if (!commit)
				continue;
			hold.subid = parent;
		}
		if (!hold.session && hold.undone == subid)
			hold.undone = commit ? parent : InvalidSubTransactionId;
		add_holds(lock, hold);
	}
	left = lock->nholds > 0;
	settle_held(lock);
	return left;
}

static void
zk_subxact_callback(SubXactEvent event, SubTransactionId subid,
					SubTransactionId parent,
					void *arg pg_attribute_unused())
{
	dlist_head	left = DLIST_STATIC_INIT(left);

	/* the subtransaction of try_lock_heavyweight() is another one */
	if (event == SUBXACT_EVENT_ABORT_SUB && acquiring.subid == subid)
		abandon_acquiring();
	if (event != SUBXACT_EVENT_ABORT_SUB && event != SUBXACT_EVENT_COMMIT_SUB)
		return;

	while (!dlist_is_empty(&touched_list))
	{
		HeldLock   *lock = dlist_head_element(HeldLock, touched_node,
											  &touched_list);

		if (lock->touched != subid)
			break;
		dlist_delete(&lock->touched_node);
		lock->touched = InvalidSubTransactionId;
		if (end_subtransaction(lock, subid, event == SUBXACT_EVENT_COMMIT_SUB,
							   parent) &&
			parent != TopSubTransactionId)
			dlist_push_tail(&left, &lock->touched_node);
	}
	while (!dlist_is_empty(&left))
	{
		dlist_node *node = dlist_pop_head_node(&left);

		dlist_container(HeldLock, touched_node, node)->touched = parent;
		dlist_push_head(&touched_list, node);
	}
}

static bool
has_foreign_table(const PlannedStmt *statement)
{
	ListCell   *cell;

	foreach(cell, statement->rtable)
		if (((RangeTblEntry *) lfirst(cell))->relkind == RELKIND_FOREIGN_TABLE)
		return true;
	return false;
}

/*
 * The transaction is as any other from now on.  In a pipeline, the next statement
 * may be in the transaction that a command with lasting effects has ended in.
 */
static void
leave_lasting_command(void)
{
	if (nesting > 0 || lasting != LASTING_DONE)
		return;
	lasting = LASTING_NONE;
	end_commit_of_holds();
}

/*
 * Note that the transaction changes something, on a foreign server too, where
 * it leaves no transaction id here; and that it uses one.
 */
static void
zk_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	leave_lasting_command();
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 &&
		(queryDesc->operation != CMD_SELECT ||
		 queryDesc->plannedstmt->hasModifyingCTE))
		transaction_wrote = true;
	if (!transaction_used_foreign)
		transaction_used_foreign = has_foreign_table(queryDesc->plannedstmt);

	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

static void
zk_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction, uint64 count
			   ZK_EXECUTE_ONCE_PARAMETER)
{
	MemoryContext context = CurrentMemoryContext;

	nesting++;
	PG_TRY();
	{
		if (prev_ExecutorRun)
			prev_ExecutorRun(queryDesc, direction, count ZK_EXECUTE_ONCE);
		else
			standard_ExecutorRun(queryDesc, direction, count ZK_EXECUTE_ONCE);
	}
	PG_CATCH();
	{
		if (--nesting == 0)
			explain_cancel(context, false);
		PG_RE_THROW();
	}
	PG_END_TRY();
	nesting--;
}

/* The same for AFTER triggers. */
static void
zk_ExecutorFinish(QueryDesc *queryDesc)
{
	MemoryContext context = CurrentMemoryContext;

	nesting++;
	PG_TRY();
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(queryDesc);
		else
			standard_ExecutorFinish(queryDesc);
	}
	PG_CATCH();
	{
		if (--nesting == 0)
			explain_cancel(context, false);
		PG_RE_THROW();
	}
	PG_END_TRY();
	nesting--;
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

/*
 * DISCARD ALL, which is never in a transaction block: ahead of the lock manager,
 * which would let others have the heavyweight locks while we have the slots.
 */
static void
discard_holds(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &held_list)
		remove_holds(dlist_container(HeldLock, node, iter.cur),
					 is_of_session, true);
}

static bool
has_option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
		if (strcmp(((DefElem *) lfirst(cell))->defname, name) == 0)
		return true;
	return false;
}

/* As ExecReindex() reads it: the last one counts. */
static bool
is_concurrent_reindex(const ReindexStmt *stmt)
{
	bool		concurrently = false;
	ListCell   *cell;

	foreach(cell, stmt->params)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "concurrently") == 0)
			concurrently = defGetBoolean(option);
	}
	return concurrently;
}

static bool
is_concurrent_detach(const AlterTableStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, cell);

		if (cmd->subtype == AT_DetachPartition &&
			castNode(PartitionCmd, cmd->def)->concurrent)
			return true;
	}
	return false;
}

/*
 * has_lasting_effects
 *		Does this command do what a rollback does not undo?
 *
 * Then the locks are checked ahead of it, when nothing has happened yet, and not
 * at its commits.  Nor is it canceled when one is lost meanwhile: it would stop
 * half-way.  PostgreSQL allows no such command in a transaction block.  Of
 * those that it does not allow there (PreventInTransactionBlock()):
 *
 *	COMMIT PREPARED,		yes: it is over when the command returns
 *	ROLLBACK PREPARED
 *	CREATE, DROP DATABASE,	yes: files were copied or removed; what fails
 *	ALTER DATABASE SET		later leaves files that no catalog knows, or a
 *	TABLESPACE				database without files
 *	CREATE, DROP			yes: directories, in the same way
 *	TABLESPACE
 *	ALTER SYSTEM			yes: the file is written
 *	CREATE, ALTER, DROP		yes, if it has made or dropped slots of the
 *	SUBSCRIPTION			publisher; else PostgreSQL does allow it there,
 *							and it is as any other command
 *	CREATE, DROP INDEX		yes: several transactions, and only the last makes
 *	CONCURRENTLY, REINDEX	it whole; to fail at any but the first leaves an
 *	CONCURRENTLY, DETACH	invalid index, or a partition half detached
 *	PARTITION CONCURRENTLY
 *	VACUUM, CLUSTER of		no: a transaction for each table or index, and an
 *	several tables, REINDEX	empty one ahead of all, which is checked; each is
 *	of a schema, a			whole, changes no data, and may be done again.  (So
 *	database, or partitions is ANALYZE of several tables.)
 *	DISCARD ALL				no: it gives up the holds
 *	replication commands	no: they commit nothing
 */
static bool
has_lasting_effects(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_TransactionStmt:
			return castNode(TransactionStmt, stmt)->kind == TRANS_STMT_COMMIT_PREPARED ||
				castNode(TransactionStmt, stmt)->kind == TRANS_STMT_ROLLBACK_PREPARED;
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_CreateTableSpaceStmt:
		case T_DropTableSpaceStmt:
		case T_AlterSystemStmt:
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
		case T_DropSubscriptionStmt:
			return true;
		case T_AlterDatabaseStmt:
			return has_option(castNode(AlterDatabaseStmt, stmt)->options,
							  "tablespace");
		case T_IndexStmt:
			return castNode(IndexStmt, stmt)->concurrent;
		case T_DropStmt:
			return castNode(DropStmt, stmt)->concurrent;
		case T_ReindexStmt:
			return is_concurrent_reindex(castNode(ReindexStmt, stmt));
		case T_AlterTableStmt:
			return is_concurrent_detach(castNode(AlterTableStmt, stmt));
		default:
			return false;
	}
}

/*
 * A command with lasting effects has come to its end.  Subscriptions may have
 * had none: PostgreSQL has noted whether the command must be on its own.
 */
static void
end_lasting_command(Node *stmt)
{
	bool		of_subscription = IsA(stmt, CreateSubscriptionStmt) ||
		IsA(stmt, AlterSubscriptionStmt) || IsA(stmt, DropSubscriptionStmt);

	lasting = LASTING_DONE;
	if (of_subscription && (MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) == 0)
		leave_lasting_command();
}

/* As the two above, for utility commands such as COPY FROM and TRUNCATE. */
static void
zk_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	MemoryContext caller = CurrentMemoryContext;

	leave_lasting_command();
	if (GetCommandLogLevel(pstmt->utilityStmt) < LOGSTMT_ALL)
		transaction_wrote = transaction_used_foreign = true;
	else if (IsA(pstmt->utilityStmt, CopyStmt) ||
			 IsA(pstmt->utilityStmt, VacuumStmt))
		transaction_used_foreign = true;
	if (IsA(pstmt->utilityStmt, DiscardStmt) &&
		((DiscardStmt *) pstmt->utilityStmt)->target == DISCARD_ALL)
	{
		PreventInTransactionBlock(context == PROCESS_UTILITY_TOPLEVEL,
								  "DISCARD ALL");
		discard_holds();
	}
	if (!dlist_is_empty(&held_list) &&
		!IsInTransactionBlock(context == PROCESS_UTILITY_TOPLEVEL) &&
		has_lasting_effects(pstmt->utilityStmt))
	{
		check_holds();
		lasting = LASTING_RUNNING;
	}

	nesting++;
	PG_TRY();
	{
		if (prev_ProcessUtility)
			prev_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
		else
			standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
									params, queryEnv, dest, qc);
	}
	PG_CATCH();
	{
		if (--nesting == 0 && lasting == LASTING_NONE)
			explain_cancel(caller, false);
		if (nesting == 0)
			lasting = LASTING_NONE;
		PG_RE_THROW();
	}
	PG_END_TRY();
	nesting--;
	if (nesting == 0 && lasting == LASTING_RUNNING)
		end_lasting_command(pstmt->utilityStmt);

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
#ifdef ZKLOCK_TEST_BUILD
	/* behind ours, as others' are: the latest is called first */
	RegisterXactCallback(stop_at_end_callback, NULL);
#endif
	RegisterXactCallback(zk_xact_callback, NULL);
	RegisterSubXactCallback(zk_subxact_callback, NULL);
	RegisterResourceReleaseCallback(zk_release_callback, NULL);

	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = zk_ExecutorStart;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = zk_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = zk_ExecutorFinish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = zk_ExecutorEnd;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = zk_ProcessUtility;
}
