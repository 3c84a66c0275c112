/*-------------------------------------------------------------------------
 *
 * holds.c
 *		The locks that this backend holds, and their scopes.
 *
 * Each successful call is a hold, pushed on the lock's stack; the slot and
 * the heavyweight lock go with the last of them.  A hold is of the session or
 * of the transaction.  One of the transaction remembers its subtransaction, as
 * PostgreSQL's resource owners do for the heavyweight lock: that is acquired
 * once for each hold, in the name of the session or of the current
 * (sub)transaction, and always in the mode of the first hold.
 *
 * A trigger may take one lock a million times, or be in a subtransaction a
 * million times while a thousand locks are held.  So adjacent holds that do not
 * differ are one entry of the stack, with a count.  The end of a subtransaction
 * looks only at locks that it has touched, and there only at the entries above
 * the latest hold that is older and not undone: what is below that cannot have
 * been undone since, as the latest is always undone first.
 *
 * No callback but the one ahead of the commit may throw, so the functions that
 * end holds allocate nothing.
 *
 * pg_advisory_unlock_all() takes heavyweight locks of session-scoped holds
 * away without telling us.  The slot remains ours, so others wait for it, though
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

#include "access/xact.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "core/znode.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/drop.h"
#include "shared/key.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

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

static HTAB *held_table = NULL; /* all HeldLocks, by key */
static dlist_head held_list = DLIST_STATIC_INIT(held_list); /* nholds > 0 */

/* Locks that the present subtransactions have touched, the innermost first. */
static dlist_head touched_list = DLIST_STATIC_INIT(touched_list);

/* The latest transaction that has changed something, a foreign table perhaps. */
static LocalTransactionId wrote_in = InvalidLocalTransactionId;

static void release_at_exit(int code, Datum arg);

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
 *		The lock that was taken after this one, or the first for NULL; NULL
 *		behind the last.
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
 *		Has the lock any hold?  Else a call is acquiring it.
 */
bool
hold_is_held(const HeldLock *lock)
{
	return lock->nholds > 0;
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
	return lock && lock->nholds > 0 ? lock : NULL;
}

static void
make_held_table(void)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(ZkKey);
	ctl.entrysize = sizeof(HeldLock);
	ctl.hash = key_hash;
	ctl.match = key_match;
	ctl.keycopy = key_copy;
	held_table = hash_create("zklock holds", 16, &ctl,
							 HASH_ELEM | ZK_KEY_HASH);
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
 * hold_prepare
 *		Find or make the entry of a lock, with room for one more hold.
 *
 * So nothing can fail once the slot is taken.  The kind and the permits are
 * for a new entry; one that is there keeps its own.
 */
HeldLock *
hold_prepare(const ZkKey *key, ZnodeKind kind, int permits)
{
	HeldLock   *lock;
	char		path[ZNODE_PATH_SIZE];
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
		lock->mode = kind == ZNODE_READER || kind == ZNODE_PERMIT ?
			ShareLock : ExclusiveLock;
		lock->permits = permits;
		lock->loss_told = false;
		key_path(key, path);
		key_tag(key, path, &lock->tag);
	}
	make_room_for_hold(lock);
	return lock;
}

/*
 * hold_forget
 *		Forget a lock; its slot has been dropped.
 */
void
hold_forget(HeldLock *lock)
{
	if (lock->holds)
		pfree(lock->holds);
	hash_search(held_table, &lock->key, HASH_REMOVE, NULL);
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
 * Take all entries but the lowest "kept" off the stack.  Their memory can still
 * be read: the caller goes through them from below, and adds again those that
 * stay, which take no more room than before.
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

/*
 * hold_push
 *		One more hold, of the transaction.  There is room for it.
 */
void
hold_push(HeldLock *lock)
{
	Hold		hold = {
		.subid = GetCurrentSubTransactionId(),
		.undone = InvalidSubTransactionId,
		.session = false,
		.count = 1
	};

	if (lock->nholds == 0)
		dlist_push_tail(&held_list, &lock->node);
	add_holds(lock, hold);
	touch(lock);
}

/*
 * Give up a lock that has no hold left: the slot now.  The heavyweight lock
 * goes with its resource owner, or the caller releases it.
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
	hold_forget(lock);
}

/* Tell zk_locks the scope of the remaining holds. */
static void
show_scope(HeldLock *lock)
{
	bool		session = lock->nsession > 0;

	if (session != lock->proc->session)
		slot_set_scope(lock->proc, session);
}

/*
 * hold_move_to_session
 *		Make the latest hold, which is the transaction's, the session's.
 *
 * The caller does so with the heavyweight lock.
 */
void
hold_move_to_session(HeldLock *lock)
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

	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 committing ?
			 errmsg("could not commit because lock \"%s\" has been lost", name) :
			 errmsg("lock \"%s\" has been lost", name),
			 errdetail("The ZooKeeper session of this server has ended."),
			 errhint("Retry the transaction.")));
}

/* Has it changed anything?  Then nobody else may have a lock until all see it. */
static bool
transaction_has_written(void)
{
	return wrote_in == ZkMyLocalTransactionId ||
		TransactionIdIsValid(GetTopTransactionIdIfAny());
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
 * Mark the latest hold of entry "number" as undone.  The entry is not marked,
 * all entries above it are.
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

	/*
	 * it leaves its entry, and joins the one above or below, or gets a new
	 * one
	 */
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

/* Holds of a lock have been removed: go on with the others, or drop it. */
static void
settle_held(HeldLock *lock)
{
	if (lock->nholds == 0)
		drop_held(lock);
	else
		show_scope(lock);
}

/*
 * Remove the holds for which "goes" is true, and release the heavyweight lock
 * for those of the session.  For those of the transaction its resource owner
 * does so, or this function if "transaction_too".  The lock is gone afterwards
 * if no hold is left.
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
	heavyweight_unlock(&tag, mode, true, of_session);
	if (transaction_too)
		heavyweight_unlock(&tag, mode, false, of_transaction);
}

/* The same for the latest hold of any scope, if no hold is marked. */
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
	heavyweight_unlock(&tag, mode, session, 1);
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
 * May a hold go at once?  Yes, if the transaction has changed nothing and is in
 * no savepoint.  Else its changes must be visible before anybody else gets the
 * lock.
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
 * If possible, it goes at once; else it is only marked, and goes with the
 * transaction.  Returns false if there is no such hold.  Warns if the
 * lock has been lost meanwhile.
 */
bool
hold_release(const ZkKey *key)
{
	HeldLock   *lock = hold_find(key);
	int			latest;

	if (lock == NULL || (latest = latest_live_hold(lock)) < 0)
		return false;

	if (!slot_is_mine(lock->proc, NULL))
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost", key_name(key)),
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
 * holds_release_session
 *		Undo all session-scoped holds, as hold_release() does.
 */
void
holds_release_session(void)
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
 * holds_discard_session
 *		Release all session-scoped holds, whatever the transaction has done.
 */
void
holds_discard_session(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &held_list)
		remove_holds(dlist_container(HeldLock, node, iter.cur),
					 is_of_session, true);
}

/*
 * At the end of the session: end its last transaction, and release the
 * remaining locks, ahead of the lock manager.
 */
static void
release_at_exit(int code pg_attribute_unused(),
				Datum arg pg_attribute_unused())
{
	ZkForgetOrigin();
	AbortOutOfAnyTransaction();
	while (!dlist_is_empty(&held_list))
		drop_held(dlist_container(HeldLock, node,
								  dlist_head_node(&held_list)));
}

/*
 * A subtransaction ends.  If it is rolled back, its holds go, and its marks on
 * holds of the transaction; what it has done to holds of the session stays, as
 * with advisory locks.  If it is released, holds and marks become its parent's.
 * Returns false if no hold of the lock is left.
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
 *		The transaction changes something, perhaps on a foreign server, where
 *		it leaves no transaction id here.
 */
void
holds_note_write(void)
{
	wrote_in = ZkMyLocalTransactionId;
}

/*
 * holds_end_transaction
 *		End the holds that go with the transaction, after its commit or when it
 *		is rolled back.
 */
void
holds_end_transaction(void)
{
	dlist_mutable_iter iter;

	while (!dlist_is_empty(&touched_list))
		dlist_container(HeldLock, touched_node,
						dlist_pop_head_node(&touched_list))->touched =
			InvalidSubTransactionId;
	dlist_foreach_modify(iter, &held_list)
		remove_holds(dlist_container(HeldLock, node, iter.cur),
					 ends_with_transaction, false);
}

/*
 * holds_attach
 *		Install callbacks, ahead of the first lock of this process.
 */
void
holds_attach(void)
{
	RegisterSubXactCallback(end_subxact_callback, NULL);
}
