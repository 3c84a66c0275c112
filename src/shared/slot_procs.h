/*-------------------------------------------------------------------------
 *
 * slot_procs.h
 *		The backends of a slot: those that want it, and those that hold it.
 *
 * For take.c, drop.c and grant.c alone.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slot_procs.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOT_PROCS_H
#define ZKLOCK_SLOT_PROCS_H

#include "shared/slots.h"

extern void slot_add_proc(ZkProcLock *proc);
extern void slot_remove_proc(ZkProcLock *proc);
extern void slot_move_to_end(ZkProcLock *proc);
extern bool slot_has_taker(const ZkSlot *slot);
extern bool slot_has_ready_waiter(const ZkSlot *slot);
extern bool slot_is_behind_any(const ZkProcLock *proc);

#endif							/* ZKLOCK_SLOT_PROCS_H */
