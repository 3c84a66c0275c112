/*-------------------------------------------------------------------------
 *
 * holds.c
 *		The locks that this backend holds, and their scopes.
 *
 * Each successful call is a hold, pushed on the lock's stack.  When the last
 * hold is removed, the slot is dropped and the heavyweight lock released.  A
 * trigger may take one lock a million times, so adjacent holds that do not
 * differ are one entry of the stack, with a count.
 *
 * A hold belongs to the session or to the transaction.  A transaction-scoped
 * hold remembers its subtransaction, as PostgreSQL's resource owners do for
 * the heavyweight lock.  That is acquired once for each hold, in the name of
 * the session or of the current (sub)transaction, and always in the mode of
 * the first hold.
 *
 * A trigger may be in a subtransaction a million times while a thousand locks
 * are held.  So the end of a subtransaction visits only locks that it has
 * touched, and there only the entries above the latest transaction-scoped hold
 * that is older than it and not undone.  Transaction-scoped holds below that
 * cannot have been undone since, because the latest is always undone first;
 * and session-scoped holds do not change.
 *
 * A hold that is undone, but cannot be removed yet, is marked.  The latest is
 * undone first, so each entry above a marked transaction-scoped one is marked
 * or session-scoped, or of a claim.  Session-scoped holds may be marked in any
 * order.
 *
 * A lock that becomes a claim at COMMIT, or that the transaction holds because
 * it uses one, has a hold for that, which zk_unlock() does not undo.  It is
 * the first hold of the lock, since a lock that is held already can do
 * neither, and so the last to be removed.  No hold of such a lock is
 * session-scoped.  A transaction that uses a claim has the heavyweight lock of
 * all that use it, not that of the lock; it goes with its resource owner.
 *
 * Only the callback before the commit may throw, so the functions that end
 * holds allocate nothing; stack_make_room() is called before memory is needed.
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

/* How a hold concerns a claim. */
typedef enum ClaimHold
{
	CLAIM_HOLD_NONE,
	CLAIM_HOLD_LASTS,			/* the first hold: it becomes a claim, or is
								 * there because the transaction uses one */
	CLAIM_HOLD_ENDS				/* it ends that claim at COMMIT */
} ClaimHold;

/* An entry of the stack: holds that do not differ. */
typedef struct Hold
{
	SubTransactionId subid;		/* that the holds belong to; Invalid:
								 * session */
	SubTransactionId undone;	/* in which zk_unlock marked them, or Invalid;
								 * Top for the session's, since these marks
								 * are not rolled back */
	bool		session;
	bool		shared;			/* asked for as shared; only of locks that
								 * stand for advisory locks */
	ClaimHold	claim;
	int64		count;			/* number of holds */
} Hold;

static HTAB *held_table = NULL; /* all HeldLocks, by key */
static dlist_head held_list = DLIST_STATIC_INIT(held_list); /* nholds > 0 */

/* Locks that the current subtransactions have touched, the innermost first. */
static dlist_head touched_list = DLIST_STATIC_INIT(touched_list);

/* The latest transaction that may have changed something. */
static LocalTransactionId wrote_in = InvalidLocalTransactionId;

static void release_at_exit(int code, Datum arg);

/* Are the holds of this entry marked? */
static bool
hold_is_undone(const Hold *hold)
{
	return hold->undone != InvalidSubTransactionId;
}

/* Do these entries differ in number only? */
static bool
are_alike(const Hold *hold, const Hold *other)
{
	return hold->session == other->session && hold->subid == other->subid &&
		hold->undone == other->undone && hold->shared == other->shared &&
		hold->claim == other->claim;
}

/* Have memory for one more entry. */
static void
stack_make_room(HoldStack *stack)
{
	int			newmax = stack->maxholds == 0 ? 2 : stack->maxholds * 2;

	if (stack->nholds < stack->maxholds)
		return;
	if (stack->holds == NULL)
		stack->holds = MemoryContextAlloc(TopMemoryContext,
										  newmax * sizeof(Hold));
	else
		stack->holds = repalloc_huge(stack->holds, newmax * sizeof(Hold));
	stack->maxholds = newmax;
}

static void
stack_free(HoldStack *stack)
{
	if (stack->holds)
		pfree(stack->holds);
	memset(stack, 0, sizeof(*stack));
}

/* Push holds, for which there is memory. */
static void
stack_add(HoldStack *stack, Hold added)
{
	Hold	   *top = stack->nholds > 0 ?
	&stack->holds[stack->nholds - 1] : NULL;

	if (added.session)
		stack->nsession += added.count;
	if (hold_is_undone(&added))
		stack->nundone += added.count;
	if (top && are_alike(top, &added))
		top->count += added.count;
	else
		stack->holds[stack->nholds++] = added;
}

/*
 * Pop all entries but the lowest "kept".
 *
 * Their memory can still be read: the caller goes through them from below, and
 * pushes those that stay, which take no more room than before.
 */
static void
stack_take_off(HoldStack *stack, int kept)
{
	for (int i = kept; i < stack->nholds; i++)
	{
		if (stack->holds[i].session)
			stack->nsession -= stack->holds[i].count;
		if (hold_is_undone(&stack->holds[i]))
			stack->nundone -= stack->holds[i].count;
	}
	stack->nholds = kept;
}

/* Pop the latest hold, which is not marked; true if it was the session's. */
static bool
stack_take_off_latest(HoldStack *stack)
{
	Hold	   *hold = &stack->holds[stack->nholds - 1];
	bool		session = hold->session;

	Assert(!hold_is_undone(hold));
	if (session)
		stack->nsession--;
	if (--hold->count == 0)
		stack->nholds--;
	return session;
}

/*
 * The number of the latest entry that is neither marked nor of a claim, or -1.
 */
static int
stack_latest_live(const HoldStack *stack)
{
	for (int i = stack->nholds - 1; i >= 0; i--)
		if (!hold_is_undone(&stack->holds[i]) &&
			stack->holds[i].claim == CLAIM_HOLD_NONE)
			return i;
	return -1;
}

/* Is there a hold that ends a claim? */
static bool
stack_ends_claim(const HoldStack *stack)
{
	for (int i = stack->nholds - 1; i >= 0; i--)
		if (stack->holds[i].claim == CLAIM_HOLD_ENDS)
			return true;
	return false;
}

/* The latest unmarked session-scoped entry in this mode, or -1. */
static int
stack_latest_of_session(const HoldStack *stack, bool shared)
{
	for (int i = stack->nholds - 1; i >= 0; i--)
	{
		const Hold *hold = &stack->holds[i];

		if (hold->session && hold->shared == shared && !hold_is_undone(hold))
			return i;
	}
	return -1;
}

/*
 * Mark the latest hold of entry "number" as undone.
 *
 * The entry is not marked; all entries above it are, or are of a claim, unless
 * it is session-scoped.
 */
static void
stack_mark(HoldStack *stack, int number)
{
	Hold	   *holds;
	Hold		marked;

	stack_make_room(stack);
	holds = stack->holds;
	marked = holds[number];
	marked.undone = marked.session ? TopSubTransactionId :
		GetCurrentSubTransactionId();
	marked.count = 1;
	stack->nundone++;

	/* the hold leaves its entry for the one above or below, or a new one */
	if (--holds[number].count == 0)
	{
		stack->nholds--;
		memmove(&holds[number], &holds[number + 1],
				(stack->nholds - number) * sizeof(Hold));
	}
	else
		number++;
	for (int i = number; i >= number - 1; i--)
	{
		if (i < 0 || i >= stack->nholds || !are_alike(&holds[i], &marked))
			continue;
		holds[i].count++;
		return;
	}
	memmove(&holds[number + 1], &holds[number],
			(stack->nholds - number) * sizeof(Hold));
	holds[number] = marked;
	stack->nholds++;
}

/* Mark all holds of the session. */
static void
stack_mark_session(HoldStack *stack)
{
	for (int i = 0; i < stack->nholds; i++)
	{
		Hold	   *hold = &stack->holds[i];

		if (!hold->session || hold_is_undone(hold))
			continue;
		hold->undone = TopSubTransactionId;
		stack->nundone += hold->count;
	}
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
	return lock->stack.nholds > 0;
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

/* Does the session have a hold of the lock, marked or not? */
static bool
hold_is_of_session(const HeldLock *lock)
{
	return lock->stack.nsession > 0;
}

/*
 * hold_count_of_session
 *		The number of the session's holds of the lock, marked or not.
 */
int64
hold_count_of_session(const HeldLock *lock)
{
	return lock->stack.nsession;
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
		memset(&lock->stack, 0, sizeof(lock->stack));
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
	stack_make_room(&lock->stack);
	return lock;
}

/*
 * hold_forget
 *		Forget a lock; its slot has been dropped.
 */
void
hold_forget(HeldLock *lock)
{
	stack_free(&lock->stack);
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
 *		Add a transaction-scoped hold, asked for in this mode.  There is room
 *		for it.
 */
void
hold_push(HeldLock *lock, bool shared)
{
	Hold		hold = {
		.subid = GetCurrentSubTransactionId(),
		.undone = InvalidSubTransactionId,
		.session = false,
		.shared = shared && key_is_advisory(&lock->key),
		.count = 1
	};

	if (!hold_is_held(lock))
		dlist_push_tail(&held_list, &lock->node);
	stack_add(&lock->stack, hold);
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
		hold_push(lock, false);
	Assert(lock->stack.nholds == 1 && lock->stack.holds[0].count == 1);
	lock->stack.holds[0].claim = CLAIM_HOLD_LASTS;
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
	Hold		hold = {
		.subid = GetCurrentSubTransactionId(),
		.undone = InvalidSubTransactionId,
		.claim = CLAIM_HOLD_ENDS,
		.count = 1
	};

	if (stack_ends_claim(&lock->stack))
		return;
	stack_make_room(&lock->stack);
	stack_add(&lock->stack, hold);
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
	bool		session = hold_is_of_session(lock);

	if (session != lock->proc->session)
		slot_set_scope(lock->proc, session);
}

/*
 * hold_move_to_session
 *		Make the latest hold, which is the transaction's, the session's.
 *
 * The caller does the same for the heavyweight lock.
 */
void
hold_move_to_session(HeldLock *lock)
{
	Hold		hold = {
		.subid = InvalidSubTransactionId,
		.undone = InvalidSubTransactionId,
		.session = true,
		.shared = lock->stack.holds[lock->stack.nholds - 1].shared,
		.count = 1
	};

	/* there is room: the hold has an entry of its own, or needed none */
	(void) stack_take_off_latest(&lock->stack);
	stack_add(&lock->stack, hold);
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
			 lock && hold_is_of_session(lock) ?
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
 * Remove the holds for which "goes" is true, and release the heavyweight lock
 * for the session's.  For the transaction's the resource owner does so, or
 * this function if "transaction_too".  The lock is gone afterwards if no hold
 * is left.
 */
static void
remove_holds(HeldLock *lock, bool (*goes) (const Hold *), bool transaction_too)
{
	Heavyweight heavyweight = lock->heavyweight;
	int			nholds = lock->stack.nholds;
	int64		of_session = 0;
	int64		of_transaction = 0;

	stack_take_off(&lock->stack, 0);
	for (int i = 0; i < nholds; i++)
	{
		Hold		hold = lock->stack.holds[i];

		if (!goes(&hold))
			stack_add(&lock->stack, hold);
		else if (hold.session)
			of_session += hold.count;
		else
			of_transaction += hold.count;
	}
	settle_held(lock);
	heavyweight_unlock(&heavyweight, true, of_session);
	if (transaction_too)
		heavyweight_unlock(&heavyweight, false, of_transaction);
}

/* Remove the latest hold of any scope, if no hold is marked. */
static void
remove_latest(HeldLock *lock)
{
	Heavyweight heavyweight = lock->heavyweight;
	bool		session = stack_take_off_latest(&lock->stack);

	settle_held(lock);
	heavyweight_unlock(&heavyweight, session, 1);
}

static bool
ends_with_transaction(const Hold *hold)
{
	return !hold->session || hold_is_undone(hold);
}

static bool
is_of_session(const Hold *hold)
{
	return hold->session;
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
 * Undo the latest hold of entry "number", which stack_mark() may mark: at
 * once, or with the transaction.  Warns if the lock has been lost meanwhile.
 */
static void
undo_hold(HeldLock *lock, int number)
{
	if (!slot_is_mine(lock->proc))
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost", key_name(&lock->key)),
				 errdetail("The ZooKeeper session of this server has ended.")));

	if (holds_may_go() && lock->stack.nundone == 0 &&
		number == lock->stack.nholds - 1)
		remove_latest(lock);
	else
	{
		stack_mark(&lock->stack, number);
		touch(lock);
		if (holds_may_go())
			remove_holds(lock, hold_is_undone, true);
	}
}

/*
 * hold_release
 *		Undo the latest hold under a key that is not undone yet.
 *
 * If possible, it is removed at once; else it is only marked, and goes with
 * the transaction.  Returns false if there is no such hold.  Warns if the lock
 * has been lost meanwhile.
 */
bool
hold_release(const ZkKey *key)
{
	HeldLock   *lock = hold_find(key);
	int			latest;

	if (lock == NULL || (latest = stack_latest_live(&lock->stack)) < 0)
		return false;
	undo_hold(lock, latest);
	return true;
}

/*
 * hold_release_advisory
 *		As hold_release(), for the latest session-scoped hold asked for in this
 *		mode: what pg_advisory_unlock() undoes.
 */
bool
hold_release_advisory(HeldLock *lock, bool shared)
{
	int			latest = stack_latest_of_session(&lock->stack, shared);

	if (latest < 0)
		return false;
	undo_hold(lock, latest);
	return true;
}

/* Undo all session-scoped holds of a lock, which may be gone afterwards. */
static void
undo_session_holds(HeldLock *lock)
{
	stack_mark_session(&lock->stack);
	if (holds_may_go())
		remove_holds(lock, hold_is_undone, true);
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
		if (hold_is_of_session(lock))
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
		if (hold_is_of_session(lock))
			(void) heavyweight_lock(&lock->heavyweight, false, false, -1);
	LockReleaseSession(USER_LOCKMETHOD);
	for (lock = holds_next(NULL); lock != NULL; lock = holds_next(lock))
	{
		for (int64 i = 0; i < lock->stack.nsession; i++)
			(void) heavyweight_lock(&lock->heavyweight, true, false, -1);
		if (hold_is_of_session(lock))
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
		remove_holds(dlist_container(HeldLock, node, iter.cur),
					 is_of_session, true);
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
 * A subtransaction ends.  If it is rolled back, its holds are removed, and so
 * are its marks on transaction-scoped holds; its changes of session-scoped
 * holds stay, as with advisory locks.  If it is released, its holds and marks
 * become its parent's.  Returns false if no hold of the lock is left.
 */
static bool
end_subtransaction(HeldLock *lock, SubTransactionId subid, bool commit,
				   SubTransactionId parent)
{
	int			nholds = lock->stack.nholds;
	int			first = nholds;
	bool		left;

	for (; first > 0; first--)
	{
		const Hold *hold = &lock->stack.holds[first - 1];

		if (!hold->session && !hold_is_undone(hold) &&
			hold->claim == CLAIM_HOLD_NONE && hold->subid < subid)
			break;
	}

	stack_take_off(&lock->stack, first);
	for (int i = first; i < nholds; i++)
	{
		Hold		hold = lock->stack.holds[i];

		if (!hold.session && hold.subid == subid)
		{
			if (!commit)
				continue;
			hold.subid = parent;
		}
		if (!hold.session && hold.undone == subid)
			hold.undone = commit ? parent : InvalidSubTransactionId;
		stack_add(&lock->stack, hold);
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
		bool		ends = stack_ends_claim(&lock->stack);

		if (commit && lock->claim >= 0 && !ends)
			become_claim(lock);
		else if (commit && ends)
			drop_held(lock, true);
		else
			remove_holds(lock, ends_with_transaction, false);
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
