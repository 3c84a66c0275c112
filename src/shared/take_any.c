/*-------------------------------------------------------------------------
 *
 * take_any.c
 *		What a backend does to slots of which it wants any.
 *
 * See backend/acquire_any.c for the protocol.  Such a backend looks at all its
 * slots at once, under all their partition locks, so that what it asks for goes
 * to the worker together: the worker opens none of that mail until these locks
 * are released.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/take_any.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/slot_procs.h"
#include "shared/take_any.h"

/*
 * slot_want_any
 *		As slot_want(), for slots_take_any(): the backend wants any of so many
 *		slots, and "tries" if it waits behind nobody.
 */
ZkProcLock *
slot_want_any(const ZkKey *key, ZnodeKind kind, bool session,
			  int alternatives, bool tries)
{
	ZkKey		mine = *key;

	StaticAssertStmt(ZK_MAX_TOGETHER < 1 << 9, "ZkProcLock.alternatives is too small");
	if (kind == ZNODE_READER)
		key_in_mode(key, ZK_KEY_SHARED, &mine);
	return slot_want_this(&mine, kind, session, false, alternatives, tries);
}

static bool
is_owned(const ZkSlot *slot)
{
	return slot->state == ZK_SLOT_IDLE || slot->state == ZK_SLOT_HELD;
}

/*
 * Try to take a slot of which the caller has the heavyweight lock.  Returns
 * ZK_PENDING if that does not end the call, and counts what it has found.
 */
static ZkTake
try_take(ZkAnyWait *wait, int i)
{
	ZkProcLock *proc = wait->procs[i];
	ZkSlot	   *slot = proc->slot;
	bool		was_ready = proc->ready;
	ZkSlotState was = slot->state;
	ZkTake		take = slot_try_take(proc, 0, &wait->news);

	if (!was_ready && slot->nwanting > 1)
		slot_wake(slot);		/* those behind us may go on */
	if (was == ZK_SLOT_NONE && slot->state == ZK_SLOT_WANTED)
		slot->contender.group = wait->group;
	if (take == ZK_QUEUED)
	{
		wait->waited[i] = true;
		wait->nqueued++;
		return ZK_PENDING;
	}
	if (take == ZK_PENDING || take == ZK_UNPROVED)
	{
		wait->npending++;
		wait->pending = i;
		if (take == ZK_UNPROVED && wait->which < 0)
			wait->which = i;
		return ZK_PENDING;
	}
	wait->which = i;
	return take;
}

/*
 * Another backend of the cluster that also wants any of several has the
 * heavyweight lock, and takes the slot or leaves it as soon as ZooKeeper
 * answers; or it came first, and is about to try to get that.
 */
static bool
is_left_soon(const ZkProcLock *proc)
{
	const ZkSlot *slot = proc->slot;
	bool		ahead = true;

	if (slot->state == ZK_SLOT_HELD || slot->queued)
		return false;
	for (const ZkProcLock *other = slot->procs; other != NULL;
		 other = other->next)
	{
		if (other == proc)
			ahead = false;
		else if (other->alternatives > 0 &&
				 (other->ready || (ahead && other->tries)))
			return true;
	}
	return false;
}

/*
 * Could the backend have the heavyweight lock, as far as the slot tells?
 * Readers can have it together, and those of a lock that is wanted exclusive
 * have another slot.
 */
static bool
is_reachable(const ZkProcLock *proc)
{
	const ZkSlot *slot = proc->slot;

	if (znode_is_shared(proc->kind))
		return true;
	for (const ZkProcLock *other = slot->procs; other != NULL;
		 other = other->next)
		if (other != proc && ((other->granted && !other->lost) || other->ready))
			return false;
	return !slot_is_behind_any(proc);
}

/*
 * A slot of which somebody else has the heavyweight lock, or had it when the
 * caller looked for those that it might get.
 */
static void
look_from_behind(ZkAnyWait *wait, int i)
{
	ZkProcLock *proc = wait->procs[i];

	if (wait->immediate)
	{
		if (is_left_soon(proc) || (!wait->reachable[i] && is_reachable(proc)))
		{
			wait->npending++;
			wait->pending = i;
		}
		return;
	}
	wait->waited[i] = true;

	/* as a writer that waits for readers of its own cluster: once */
	if (!znode_is_shared(proc->kind) && !proc->asked)
		slot_note_ahead(proc);
}

/*
 * What the wait for a slot comes to of which somebody else has the heavyweight
 * lock, if a deadlock is to end it, or "take".
 */
static ZkTake
look_for_deadlock(ZkAnyWait *wait, int i, ZkTake take)
{
	ZkProcLock *proc = wait->procs[i];

	if (proc->victim_of == 0)
		return take;
	wait->which = i;
	wait->news.deadlock = proc->victim_of;
	if (proc->victim_of != ZK_STEPS_BACK)
		return ZK_DEADLOCK;
	proc->victim_of = 0;
	return ZK_GO_BACK;
}

/*
 * Go through those slots of which the caller has the heavyweight lock, and which
 * the cluster owns, or does not.
 */
static ZkTake
try_all(ZkAnyWait *wait, bool owned)
{
	ZkTake		result = ZK_PENDING;
	ZkTakeNews	news = {0};
	int			which = -1;

	for (int i = 0; i < wait->n; i++)
	{
		ZkTake		take;

		if (!wait->ready[i] || is_owned(wait->procs[i]->slot) != owned)
			continue;
		take = try_take(wait, i);
		if (take == ZK_TAKEN)
			return take;
		if (take != ZK_PENDING && result == ZK_PENDING)
		{
			result = take;
			news = wait->news;
			which = i;
		}
	}
	if (result != ZK_PENDING)
	{
		wait->news = news;
		wait->which = which;
	}
	return result;
}

/*
 * slots_take_any
 *		Take the first of the slots that can be had; else ask the worker for
 *		contenders for all of them, together.
 *
 * The caller must want all of the slots.  What the cluster owns is taken ahead
 * of asking for anything else.  Answers as slot_take(), but ZK_QUEUED only if
 * there is nothing to wait for in that way: all the slots have others ahead.
 * ZK_TAKEN, ZK_REFUSED, ZK_DEADLOCK, ZK_GO_BACK and ZK_UNPROVED tell "which".
 * Unless one is taken the caller's latch is set when another try is worthwhile.
 * slots_find_reachable() goes ahead of each.
 */
ZkTake
slots_take_any(ZkAnyWait *wait)
{
	bool		partitions[ZK_PARTITIONS];
	ZkTake		take;

	wait->which = -1;
	wait->npending = wait->nqueued = wait->pending = 0;
	wait->group = slots_new_group();
	slots_lock_of(wait->procs, wait->n, partitions);
	take = try_all(wait, true);
	if (take == ZK_PENDING)
		take = try_all(wait, false);
	if (take == ZK_PENDING)
	{
		for (int i = 0; i < wait->n; i++)
			if (!wait->ready[i])
				look_from_behind(wait, i);
		take = wait->which >= 0 ? ZK_UNPROVED :
			wait->npending > 0 ? ZK_PENDING : ZK_QUEUED;
		for (int i = 0; i < wait->n; i++)
			if (!wait->ready[i] && take != ZK_DEADLOCK)
				take = look_for_deadlock(wait, i, take);
	}
	slots_unlock_of(partitions);
	return take;
}

/*
 * slots_find_reachable
 *		Find the slots of which the caller does not have the heavyweight lock,
 *		but might get it now.
 */
void
slots_find_reachable(ZkAnyWait *wait)
{
	bool		partitions[ZK_PARTITIONS];

	slots_lock_of(wait->procs, wait->n, partitions);
	for (int i = 0; i < wait->n; i++)
		wait->reachable[i] = !wait->ready[i] && is_reachable(wait->procs[i]);
	slots_unlock_of(partitions);
}

/*
 * slots_unwant_any
 *		Want none of the slots any more, but the one of that number, or -1.
 *
 * What is to be deleted goes to the worker together.  The caller has released
 * their heavyweight locks.  Does not throw.
 */
void
slots_unwant_any(const ZkAnyWait *wait, int but)
{
	bool		partitions[ZK_PARTITIONS];

	slots_lock_of(wait->procs, wait->n, partitions);
	for (int i = 0; i < wait->n; i++)
	{
		ZkSlot	   *slot = wait->procs[i]->slot;

		if (i == but)
			continue;
		slot_note_unwanted(wait->procs[i]);
		slot_remove_unused(slot);
	}
	slots_unlock_of(partitions);
}

/*
 * slot_other_mode_leaves
 *		Is the contender that the cluster has of the lock in the other mode
 *		being given up, and gone in a moment?
 */
bool
slot_other_mode_leaves(const ZkProcLock *proc)
{
	ZkKey		other;
	ZkSlot	   *slot;
	bool		leaves;

	if (!key_in_other_mode(&proc->slot->key, &other))
		return false;
	slot = slot_find_locked(&other, LW_SHARED);
	if (slot == NULL)
		return false;
	leaves = slot->state == ZK_SLOT_RELEASING && !slot->queued;
	slot_unlock(slot);
	return leaves;
}

/*
 * slot_call_ahead
 *		Wake those who came before this backend, and want any of several slots,
 *		to get the heavyweight lock; false if there is none.
 *
 * The caller has released it, and waits for it again afterwards.
 */
bool
slot_call_ahead(const ZkProcLock *proc)
{
	bool		behind;

	slot_lock(proc->slot, LW_SHARED);
	behind = slot_is_behind_any(proc);
	if (behind)
		slot_wake_any(proc->slot);
	slot_unlock(proc->slot);
	return behind;
}
