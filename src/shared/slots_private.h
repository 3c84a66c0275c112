/*-------------------------------------------------------------------------
 *
 * slots_private.h
 *		The table of slots, for those that change slots or read several.
 *
 * What take.c (backends), grant.c (the worker) and holders.c, losses.c and
 * test_build.c (either) are built on.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slots_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOTS_PRIVATE_H
#define ZKLOCK_SLOTS_PRIVATE_H

#include "shared/slots.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#define ZK_PARTITIONS		64

/* What moves a slot from state to state: see the table in slots.c. */
typedef enum SlotEvent
{
	SLOT_ASKED,
	SLOT_GRANTED,
	SLOT_TAKEN,
	SLOT_HANDED,
	SLOT_GIVEN_UP,
	SLOT_REQUEUED,
	SLOT_CONTENDER_GONE
} SlotEvent;

/* the partition locks */
extern void slot_lock(const ZkSlot *slot, LWLockMode mode);
extern void slot_unlock(const ZkSlot *slot);
extern void slot_unlock_last(ZkSlot *slot);
extern ZkSlot *proc_lock_slot(const ZkProcLock *proc, LWLockMode mode);
extern void slots_lock_of(ZkProcLock **procs, int n,
						  bool partitions[ZK_PARTITIONS]);
extern void slots_unlock_of(const bool partitions[ZK_PARTITIONS]);
extern void slots_lock_all(LWLockMode mode);
extern void slots_unlock_all(void);

/* the table */
extern ZkSlot *slot_find_locked(const ZkKey *key, LWLockMode mode);
extern ZkSlot *slot_enter_locked(const ZkKey *key);
extern void slot_remove_unused(ZkSlot *slot);
extern void slots_scan(HASH_SEQ_STATUS *scan);
extern int	slots_in_use(void);
extern bool slots_have_room(void);
extern int32 slots_release_time(void);
extern void slot_learn_release(ZkSlot *slot);
extern uint32 slots_new_group(void);

/* the states */
extern void slot_event(ZkSlot *slot, SlotEvent event);
extern void slot_wake(ZkSlot *slot);
extern void slot_wake_any(const ZkSlot *slot);
extern void slot_mail(ZkSlot *slot);
extern void slot_lose_holders(ZkSlot *slot);
extern bool slot_has_taker(const ZkSlot *slot);

#endif							/* ZKLOCK_SLOTS_PRIVATE_H */
