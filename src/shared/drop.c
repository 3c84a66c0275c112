/*-------------------------------------------------------------------------
 *
 * drop.c
 *		What backends that hold slots do to them: check, commit, drop.
 *
 * Each function takes the partition locks that it needs, as slots.c tells.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/drop.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/drop.h"
#include "shared/mail.h"
#include "shared/settings.h"
#include "shared/slot_procs.h"

/* What the rules of a turn depend on. */
static TurnInput
turn_input(const ZkSlot *slot, int64 now)
{
	TurnInput	input = {0};

	input.now = now;
	input.quantum = handoff_quantum_us();
	input.retain_time = retain_time_us();
	input.waiting = slot->nwanting;
	input.taker = slot_has_taker(slot);
	input.mail_waiting = !input.taker && mail_is_waiting();
	input.room = !input.taker && slots_have_room();
	input.release_time = input.taker ? slots_release_time() : 0;
	input.retainable = slot->contender.retain;
	input.permit = slot->contender.kind == ZNODE_PERMIT;
	input.readers = znode_is_shared(slot->contender.kind);
	input.writer_behind = slot->writer_behind;
	return input;
}

/* The last holder is gone. */
static void
leave_slot(ZkSlot *slot, int64 now)
{
	TurnInput	input = turn_input(slot, now);
	TurnDecision decision = turn_dropped(&slot->turn, &input);

	if (decision == TURN_GIVE_UP)
	{
		slot_event(slot, SLOT_GIVEN_UP);
		return;
	}
	slot_event(slot, SLOT_HANDED);
	if (decision == TURN_LEAVE || decision == TURN_HAND_ON_AND_ASK)
		slot_mail(slot);
}

/*
 * slot_drop
 *		The holder gives the slot back, at the end of its transaction or of
 *		its last hold.
 *
 * The slot may be gone afterwards.  Does not throw, and does not wait for
 * more than LWLocks: to be called in transaction callbacks.  "now" is that of
 * zk_now_us().
 */
void
slot_drop(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;
	bool		lost;

	slot_lock(slot, LW_EXCLUSIVE);
	lost = proc->lost;
	slot_remove_proc(proc);
	if (!lost && --slot->nholding == 0)
		leave_slot(slot, now);
	slot_unlock_last(slot);
}

static bool
is_held(const ZkProcLock *proc)
{
	return !proc->lost && proc->slot->state == ZK_SLOT_HELD;
}

/*
 * slot_read_token
 *		Does this backend, which took the slot, still hold it, and what is the
 *		fencing token?
 *
 * Sets *token to 0 while the worker has not got it, and then *refusal to why
 * ZooKeeper does not tell it, or to ZK_REFUSAL_NONE before it has answered.
 */
bool
slot_read_token(ZkProcLock *proc, int64 *token, ZkRefusal *refusal)
{
	ZkSlot	   *slot = proc->slot;
	bool		mine;

	slot_lock(slot, LW_SHARED);
	mine = is_held(proc);
	*token = slot->token;
	*refusal = slot->token_refusal;
	slot_unlock(slot);
	return mine;
}

/*
 * slot_is_mine
 *		Does this backend, which took the slot, still hold it?
 */
bool
slot_is_mine(ZkProcLock *proc)
{
	int64		token;
	ZkRefusal	refusal;

	return slot_read_token(proc, &token, &refusal);
}

/*
 * slot_begin_commit
 *		As slot_is_mine(), for the check ahead of a commit.
 *
 * If so, the backend is not canceled any more, even if the lock is lost, until
 * slot_end_commit().
 */
bool
slot_begin_commit(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		mine;

	/* shared will do: whoever reads it has the exclusive lock */
	slot_lock(slot, LW_SHARED);
	mine = is_held(proc);
	proc->committing = mine;
	slot_unlock(slot);
	return mine;
}

/*
 * slot_end_commit
 *		The commit is over, and the backend goes on holding the slot.
 */
void
slot_end_commit(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;

	slot_lock(slot, LW_SHARED);
	proc->committing = false;
	slot_unlock(slot);
}

/*
 * slot_set_scope
 *		Tell zk_locks whether the backend has a session-scoped hold.
 */
void
slot_set_scope(ZkProcLock *proc, bool session)
{
	ZkSlot	   *slot = proc->slot;

	slot_lock(slot, LW_EXCLUSIVE);
	proc->session = session;
	slot_unlock(slot);
}
