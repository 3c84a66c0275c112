/*-------------------------------------------------------------------------
 *
 * holds.c
 *		The locks that this backend holds, and their scopes.
 *
 * Each successful call is a hold, of the session or of the transaction, and
 * counted.  When the last hold is removed, the slot is dropped and the
 * heavyweight lock released.  That is acquired once for each hold, in the name
 * of the session or of the current (sub)transaction, and always in the mode of
 * the first hold.
 *
 * The transaction's holds are counted by subtransaction, as PostgreSQL's
 * resource owners count the heavyweight lock's: in a level for each one that
 * has taken or undone any.  If it is rolled back, its level is dropped; if it
 * is released, its level becomes part of its parent's.  A trigger may be in a
 * subtransaction a million times while a thousand locks are held, so the end
 * of a subtransaction visits only the locks that it has touched.
 *
 * A hold that is undone, but cannot be removed yet, is counted as undone, and
 * goes with the transaction: one of the transaction's in the level of the
 * subtransaction that has undone it, whose rollback restores it; one of the
 * session's for good, as with advisory locks.  No level, with those below it,
 * has undone more than they have taken; so the lowest has taken some.
 *
 * A lock that becomes a claim at COMMIT, or that the transaction holds because
 * it uses one, has a hold for that, which zk_unlock() does not undo.  It is
 * the first hold of the lock, since a lock that is held already can do
 * neither, and so the last to be removed.  No hold of such a lock is
 * session-scoped.  A transaction that uses a claim has the heavyweight lock of
 * all that use it, not that of the lock; it goes with its resource owner.
 *
 * Only the callback before the commit may throw, so the functions that end
 * holds allocate nothing; make_room() is called before memory is needed.
 *
 * Unless zklock.advisory_locks is on, pg_advisory_unlock_all() releases the
 * heavyweight locks of session-scoped holds, and we do not notice that.  The
 * slot remains ours, so other backends wait for the slot, where the lock
 * manager does not see their wait.  pg_advisory_unlock() releases only the
 * advisory lock that a lock stands for.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/holds.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "core/lock/znode.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/key.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* What a subtransaction has done with a lock, and those that it includes. */
typedef struct HoldLevel
{
	SubTransactionId subid;
	int64		taken;			/* holds that it has taken */
	int64		undone;			/* holds that it has undone: its own, or those
								 * of the levels below */
	bool		ends_claim;		/* it ends the lock's claim at COMMIT */
} HoldLevel;

static HTAB *held_table = NULL; /* all HeldLocks, by key */
static dlist_head held_list = DLIST_STATIC_INIT(held_list); /* those held */

/* Locks that the current subtransactions have touched, the innermost first. */
static dlist_head touched_list = DLIST_STATIC_INIT(touched_list);

/* The latest transaction that may have changed something. */
static LocalTransactionId wrote_in = InvalidLocalTransactionId;

static void release_at_exit(int code, Datum arg);

/* Have memory for one more level. */
static void
make_room(HeldLock *lock)
{
	int			newmax = Max(lock->maxlevels * 2, 2);

	if (lock->nlevels < lock->maxlevels)
		return;
	if (lock->levels == NULL)
		lock->levels = MemoryContextAlloc(TopMemoryContext,
										  newmax * sizeof(HoldLevel));
	else
		lock->levels = repalloc_huge(lock->levels, newmax * sizeof(HoldLevel));
	lock->maxlevels = newmax;
}

/* The level of a subtransaction, the innermost one; there is room for it. */
static HoldLevel *
level_of(HeldLock *lock, SubTransactionId subid)
{
	if (lock->nlevels == 0 || lock->levels[lock->nlevels - 1].subid != subid)
		lock->levels[lock->nlevels++] = (HoldLevel) {.subid = subid};
	return &lock->levels[lock->nlevels - 1];
}

/* The transaction's holds that are neither undone nor of a claim. */
static int64
count_of_transaction(const HeldLock *lock)
{
	int64		live = 0;

	for (int i = 0; i < lock->nlevels; i++)
		live += lock->levels[i].taken - lock->levels[i].undone;
	return live - hold_is_of_claim(lock);
}

/* Does the transaction end the lock's claim, if it commits now? */
static bool
ends_claim(const HeldLock *lock)
{
	for (int i = 0; i < lock->nlevels; i++)
		if (lock->levels[i].ends_claim)
			return true;
	return false;
}

/*
 * holds_exist
 *		Does this backend hold any lock?
 */
bool
holds_exist(void)
{
	return !dlist_is_empty(&held_list);
}

/*
 * holds_next
 *		The lock taken after this one (NULL: the first lock), or NULL.
 */
HeldLock *
holds_next(HeldLock *lock)
{
	if (lock == NULL)
		return holds_exist() ?
			dlist_head_element(HeldLock, node, &held_list) : NULL;
	if (!dlist_has_next(&held_list, &lock->node))
		return NULL;
	return dlist_container(HeldLock, node,
						   dlist_next_node(&held_list, &lock->node));
}

/*
 * hold_is_held
 *		Does the lock have any hold?  If not, a call is acquiring it.
 */
bool
hold_is_held(const HeldLock *lock)
{
	return lock->nlevels > 0 || hold_count_of_session(lock) > 0;
}

/*
 * hold_is_of_instance
 *		Does the lock, held or wanted, exclude sessions of this instance only?
 */
bool
hold_is_of_instance(const HeldLock *lock)
{
	return key_is_of_instance(slot_key(lock->proc->slot));
}

/*
 * hold_count_of_session
 *		The number of the session's holds of the lock, undone or not.
 */
int64
hold_count_of_session(const HeldLock *lock)
{
	return lock->session[false].taken + lock->session[true].taken;
}

/*
 * hold_find
 *		The lock that this backend holds under a key, or NULL.
 */
HeldLock *
hold_find(const ZkKey *key)
{
	HeldLock   *lock;

	if (held_table == NULL)
		return NULL;
	lock = hash_search(held_table, key, HASH_FIND, NULL);
	return lock && hold_is_held(lock) ? lock : NULL;
}

/*
 * hold_prepare
 *		Find or make the entry of a lock, with room for one more hold, so that
 *		nothing can fail once the slot is taken.
 *
 * The kind and the permits are for a new entry; an existing one keeps its own.
 */
HeldLock *
hold_prepare(const ZkKey *key, ZnodeKind kind, int permits)
{
	HeldLock   *lock;
	char		path[ZNODE_PATH_SIZE];
	bool		found;

	lock = hash_search(held_table, key, HASH_ENTER, &found);
	if (!found)
	{
		lock->levels = NULL;
		lock->nlevels = lock->maxlevels = 0;
		memset(lock->session, 0, sizeof(lock->session));
		lock->touched = InvalidSubTransactionId;
	}
	if (!hold_is_held(lock))
	{
		lock->proc = NULL;
		lock->kind = kind;
		lock->permits = permits;
		lock->claim = -1;
		lock->uses_claim = false;
		lock->loss_reported = false;
		key_path(key, path);
		heavyweight_set(&lock->heavyweight, key, path,
						kind == ZNODE_READER || kind == ZNODE_PERMIT ?
						ShareLock : ExclusiveLock);
		lock->stats_id = lock_stats_id(path);
	}
	make_room(lock);
	return lock;
}

/*
 * hold_forget
 *		Forget a lock; its slot has been dropped.
 */
void
hold_forget(HeldLock *lock)
{
	if (lock->levels != NULL)
		pfree(lock->levels);
	hash_search(held_table, &lock->key, HASH_REMOVE, NULL);
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

/*
 * hold_push
 *		Add a transaction-scoped hold.  There is room for it.
 */
void
hold_push(HeldLock *lock)
{
	if (!hold_is_held(lock))
		dlist_push_tail(&held_list, &lock->node);
	level_of(lock, GetCurrentSubTransactionId())->taken++;
	touch(lock);
}

/*
 * hold_push_of_claim
 *		The only hold of the lock becomes a claim, or is pushed because the
 *		transaction uses one.
 *
 * "claim" is the number of claim_reserve(), of a lock with a hold; or -1, of a
 * lock without one, with room for it.
 */
void
hold_push_of_claim(HeldLock *lock, int claim)
{
	if (claim < 0)
		hold_push(lock);
	Assert(count_of_transaction(lock) == 1 && hold_count_of_session(lock) == 0);
	lock->claim = claim;
	lock->uses_claim = claim < 0;
}

/*
 * hold_end_claim
 *		End the claim that the lock becomes, or uses, when the transaction
 *		commits.
 */
void
hold_end_claim(HeldLock *lock)
{
	make_room(lock);
	level_of(lock, GetCurrentSubTransactionId())->ends_claim = true;
	touch(lock);
}

/*
 * hold_is_of_claim
 *		Does the lock become a claim, or use one?
 */
bool
hold_is_of_claim(const HeldLock *lock)
{
	return lock->claim >= 0 || lock->uses_claim;
}

static void
unlink_held(HeldLock *lock)
{
	dlist_delete(&lock->node);
	if (lock->touched != InvalidSubTransactionId)
		dlist_delete(&lock->touched_node);
}

/*
 * Drop the slot of a lock without holds.  The heavyweight lock goes with its
 * resource owner, or the caller releases it.
 */
static void
drop_held(HeldLock *lock, bool end_claim)
{
	int64		now = zk_now_us();
	int64		held_us = now - lock->proc->since;
	bool		retained = false;

	unlink_held(lock);
	if (lock->claim >= 0)
		claim_cancel(lock->claim);
	if (lock->uses_claim)
		claim_leave(lock->proc, end_claim);
	else
		retained = slot_drop(lock->proc, now);
	stats_release(lock->stats_id, retained, held_us);
	hold_forget(lock);
}

/* The transaction has committed: the lock becomes a claim. */
static void
become_claim(HeldLock *lock)
{
	unlink_held(lock);
	claim_begin(lock->claim, lock->proc, zk_now_us());
	hold_forget(lock);
}

/* Have zk_locks show the scope of the remaining holds. */
static void
show_scope(HeldLock *lock)
{
	bool		session = hold_count_of_session(lock) > 0;

	if (session != lock->proc->session)
		slot_set_scope(lock->proc, session);
}

/*
 * hold_move_to_session
 *		Make a hold that the subtransaction has taken, in this mode, the
 *		session's.
 *
 * The caller does the same for the heavyweight lock.
 */
void
hold_move_to_session(HeldLock *lock, bool shared)
{
	HoldLevel  *level = level_of(lock, GetCurrentSubTransactionId());

	lock->session[shared && key_is_advisory(&lock->key)].taken++;
	level->taken--;
	if (level->taken == 0 && level->undone == 0)
		lock->nlevels--;
	show_scope(lock);
}

/*
 * hold_report_lost
 *		Fail (40001) because a lock has been lost.
 */
void
hold_report_lost(const ZkKey *key, bool committing)
{
	char	   *name = key_name(key);
	HeldLock   *lock = hold_find(key);

	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 committing ?
			 errmsg("could not commit because lock \"%s\" has been lost", name) :
			 errmsg("lock \"%s\" has been lost", name),
			 errdetail("The ZooKeeper session of this server has ended."),
			 lock && hold_count_of_session(lock) > 0 ?
			 errhint("Retry the transaction when you have unlocked the lock: until then every transaction of this session fails.") :
			 errhint("Retry the transaction.")));
}

/*
 * Has the transaction changed anything?  Then no one may have a lock before
 * the changes are visible.
 */
static bool
transaction_has_written(void)
{
	return wrote_in == ZkMyLocalTransactionId ||
		TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/* Holds of a lock have been removed: drop the lock if no other is left. */
static void
settle_held(HeldLock *lock)
{
	if (hold_is_held(lock))
		show_scope(lock);
	else
		drop_held(lock, false);
}

/*
 * Remove the session's holds, all or those that are undone, with their
 * heavyweight locks.  The lock is gone afterwards if no hold is left.
 */
static void
remove_of_session(HeldLock *lock, bool all)
{
	Heavyweight heavyweight = lock->heavyweight;
	int64		removed = 0;

	for (int shared = 0; shared <= 1; shared++)
	{
		HoldCount  *count = &lock->session[shared];
		int64		goes = all ? count->taken : count->undone;

		removed += goes;
		count->taken -= goes;
		count->undone = 0;
	}
	settle_held(lock);
	heavyweight_unlock(&heavyweight, true, removed);
}

/*
 * Remove all undone holds, with their heavyweight locks.  The transaction is
 * in no savepoint, so it has one level, or none.
 */
static void
remove_undone(HeldLock *lock)
{
	Heavyweight heavyweight = lock->heavyweight;
	int64		removed = 0;

	if (lock->nlevels > 0)
	{
		HoldLevel  *level = &lock->levels[0];

		removed = level->undone;
		level->taken -= removed;
		level->undone = 0;
		if (level->taken == 0)
			lock->nlevels = 0;
	}
	remove_of_session(lock, false);
	heavyweight_unlock(&heavyweight, false, removed);
}

/*
 * holds_may_go
 *		May a hold be removed at once?  Yes, if the transaction has changed
 *		nothing and is in no savepoint.  Otherwise its changes must be visible
 *		before another backend gets the lock.
 */
bool
holds_may_go(void)
{
	return GetCurrentTransactionNestLevel() == 1 && !transaction_has_written();
}

/*
 * Undo a hold, the session's in this mode or the transaction's: at once, or
 * with the transaction.  False if all are undone, or there is none.  Warns if
 * the lock has been lost meanwhile.
 */
static bool
undo_hold(HeldLock *lock, bool session, bool shared)
{
	HoldCount  *count = &lock->session[shared];

	if (session ? count->taken == count->undone :
		count_of_transaction(lock) <= 0)
		return false;
	if (!slot_is_mine(lock->proc))
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost", key_name(&lock->key)),
				 errdetail("The ZooKeeper session of this server has ended.")));

	if (session)
		count->undone++;
	else
	{
		make_room(lock);
		level_of(lock, GetCurrentSubTransactionId())->undone++;
		touch(lock);
	}
	if (holds_may_go())
		remove_undone(lock);
	return true;
}

/*
 * hold_release
 *		Undo a hold under a key: the transaction's latest that is not undone,
 *		or else one of the session's.
 *
 * If possible, it is removed at once; else it goes with the transaction.
 * Returns false if there is no such hold.  Warns if the lock has been lost
 * meanwhile.
 */
bool
hold_release(const ZkKey *key)
{
	HeldLock   *lock = hold_find(key);

	return lock != NULL &&
		(undo_hold(lock, false, false) || undo_hold(lock, true, false) ||
		 undo_hold(lock, true, true));
}

/*
 * hold_release_advisory
 *		As hold_release(), for a session-scoped hold asked for in this mode:
 *		what pg_advisory_unlock() undoes.
 */
bool
hold_release_advisory(HeldLock *lock, bool shared)
{
	return undo_hold(lock, true, shared);
}

/* Undo all session-scoped holds of a lock, which may be gone afterwards. */
static void
undo_session_holds(HeldLock *lock)
{
	for (int shared = 0; shared <= 1; shared++)
		lock->session[shared].undone = lock->session[shared].taken;
	if (holds_may_go())
		remove_undone(lock);
}

/*
 * holds_release_session
 *		Undo all session-scoped holds, as hold_release() does.
 */
void
holds_release_session(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &held_list)
		undo_session_holds(dlist_container(HeldLock, node, iter.cur));
}

/* Does the session have a hold of any lock? */
static bool
has_session_holds(void)
{
	HeldLock   *lock = NULL;

	while ((lock = holds_next(lock)) != NULL)
		if (hold_count_of_session(lock) > 0)
			return true;
	return false;
}

/*
 * holds_release_advisory
 *		What pg_advisory_unlock_all() does: undo the session-scoped holds of
 *		locks that stand for advisory locks, and release the session's advisory
 *		locks that are PostgreSQL's own.
 *
 * The session keeps the heavyweight locks of the remaining holds, so they are
 * acquired in the name of the transaction meanwhile, which never waits.
 */
void
holds_release_advisory(void)
{
	dlist_mutable_iter iter;
	HeldLock   *lock = NULL;

	dlist_foreach_modify(iter, &held_list)
	{
		lock = dlist_container(HeldLock, node, iter.cur);
		if (key_is_advisory(&lock->key))
			undo_session_holds(lock);
	}
	if (!has_session_holds())
	{
		LockReleaseSession(USER_LOCKMETHOD);
		return;
	}

	for (lock = holds_next(NULL); lock != NULL; lock = holds_next(lock))
		if (hold_count_of_session(lock) > 0)
			(void) heavyweight_lock(&lock->heavyweight, false, false, -1);
	LockReleaseSession(USER_LOCKMETHOD);
	for (lock = holds_next(NULL); lock != NULL; lock = holds_next(lock))
	{
		for (int64 i = 0; i < hold_count_of_session(lock); i++)
			(void) heavyweight_lock(&lock->heavyweight, true, false, -1);
		if (hold_count_of_session(lock) > 0)
			heavyweight_unlock(&lock->heavyweight, false, 1);
	}
}

/*
 * holds_discard_session
 *		Release all session-scoped holds, even if the transaction has written.
 */
void
holds_discard_session(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &held_list)
		remove_of_session(dlist_container(HeldLock, node, iter.cur), true);
}

/*
 * At the end of the session: end its last transaction, and release the
 * remaining locks, before the lock manager does.
 */
static void
release_at_exit(int code pg_attribute_unused(),
				Datum arg pg_attribute_unused())
{
	ZkForgetOrigin();
	AbortOutOfAnyTransaction();
	while (!dlist_is_empty(&held_list))
	{
		HeldLock   *lock = dlist_container(HeldLock, node,
										   dlist_head_node(&held_list));

		if (lock->proc->terminates && !slot_is_mine(lock->proc))
			ereport(LOG,
					(errmsg("session ends because it has lost lock \"%s\"",
							key_name(&lock->key)),
					 errdetail("\"zklock.terminate_on_loss\" was on when it took the lock.")));
		drop_held(lock, false);
	}
}

/*
 * A subtransaction ends: what it has done with a lock is undone, or becomes
 * its parent's.  Returns false if no hold of the lock is left.
 */
static bool
end_subtransaction(HeldLock *lock, SubTransactionId subid, bool commit,
				   SubTransactionId parent)
{
	bool		left;

	if (lock->nlevels > 0 && lock->levels[lock->nlevels - 1].subid == subid)
	{
		HoldLevel	ended = lock->levels[--lock->nlevels];

		if (commit)
		{
			HoldLevel  *level = level_of(lock, parent);

			level->taken += ended.taken;
			level->undone += ended.undone;
			level->ends_claim |= ended.ends_claim;
		}
	}
	left = hold_is_held(lock);
	settle_held(lock);
	return left;
}

static void
end_subxact_callback(SubXactEvent event, SubTransactionId subid,
					 SubTransactionId parent,
					 void *arg pg_attribute_unused())
{
	dlist_head	left = DLIST_STATIC_INIT(left);

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

/*
 * holds_note_write
 *		The transaction changes something, possibly on a foreign server, where
 *		it leaves no transaction id here.
 */
void
holds_note_write(void)
{
	wrote_in = ZkMyLocalTransactionId;
}

/*
 * holds_end_transaction
 *		End the transaction-scoped holds, after a commit or in a rollback; a
 *		commit makes claims of those that are to become some.
 */
void
holds_end_transaction(bool commit)
{
	dlist_mutable_iter iter;

	while (!dlist_is_empty(&touched_list))
		dlist_container(HeldLock, touched_node,
						dlist_pop_head_node(&touched_list))->touched =
			InvalidSubTransactionId;
	dlist_foreach_modify(iter, &held_list)
	{
		HeldLock   *lock = dlist_container(HeldLock, node, iter.cur);
		bool		ends = ends_claim(lock);

		if (commit && lock->claim >= 0 && !ends)
			become_claim(lock);
		else if (commit && ends)
			drop_held(lock, true);
		else
		{
			/* the heavyweight locks go with their resource owner */
			lock->nlevels = 0;
			remove_of_session(lock, false);
		}
	}
}

/*
 * holds_attach
 *		Make the table, and install callbacks, before the first lock of this
 *		process.
 */
void
holds_attach(void)
{
	HASHCTL		ctl;
	int			flags = key_hash_ctl(&ctl, sizeof(HeldLock));

	held_table = hash_create("zklock holds", 16, &ctl, flags);
	before_shmem_exit(release_at_exit, (Datum) 0);
	RegisterSubXactCallback(end_subxact_callback, NULL);
}
