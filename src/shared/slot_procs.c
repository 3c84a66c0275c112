/*-------------------------------------------------------------------------
 *
 * slot_procs.c
 *		The backends of a slot: those that want it, and those that hold it.
 *
 * A slot has its ZkProcLocks in the order in which they came, and its partition
 * lock guards that list: see slots.c.  The caller holds it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slot_procs.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/slot_procs.h"

/*
 * slot_add_proc
 *		Link to its slot; the partition lock is held exclusively.
 */
void
slot_add_proc(ZkProcLock *proc)
{
	proc->next = NULL;
	*proc->slot->procs_end = proc;
	proc->slot->procs_end = &proc->next;
}

static void
unlink_proc(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	ZkProcLock **link = &slot->procs;

	/* a holder has come long ago, and is one of the first */
	while (*link != proc)
		link = &(*link)->next;
	*link = proc->next;
	if (slot->procs_end == &proc->next)
		slot->procs_end = link;
}

/*
 * slot_remove_proc
 *		Unlink from the slot and free; the partition lock is held exclusively.
 */
void
slot_remove_proc(ZkProcLock *proc)
{
	unlink_proc(proc);
	proc->slot = NULL;
	proc_free(proc);
}

/*
 * slot_move_to_end
 *		Count as the latest that has come; the partition lock is held
 *		exclusively.
 */
void
slot_move_to_end(ZkProcLock *proc)
{
	unlink_proc(proc);
	slot_add_proc(proc);
}

/*
 * slot_has_taker
 *		Is there a backend that can take the slot from the last holder?
 *
 * A writer gets the heavyweight lock in a moment, unless it waits for several;
 * but a reader that has not got it already stands behind a writer there.
 */
bool
slot_has_taker(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted &&
			(proc->ready || (!znode_is_shared(proc->kind) && !proc->together)))
			return true;
	return false;
}

/*
 * slot_has_ready_waiter
 *		Is there a backend that waits for nothing but the slot?
 */
bool
slot_has_ready_waiter(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted && proc->ready)
			return true;
	return false;
}

/*
 * slot_is_behind_any
 *		Is the heavyweight lock due to one who came before this backend?
 *
 * Who wants any of several slots does not queue for heavyweight locks, so that
 * a backend that came later may get one ahead of it.
 */
bool
slot_is_behind_any(const ZkProcLock *proc)
{
	const ZkSlot *slot = proc->slot;

	if (slot->nany == 0 || znode_is_shared(proc->kind))
		return false;
	for (const ZkProcLock *other = slot->procs; other != proc;
		 other = other->next)
		if (other->alternatives > 0 && !other->ready)
			return true;
	return false;
}
