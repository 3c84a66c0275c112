/*-------------------------------------------------------------------------
 *
 * contender_private.h
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/contender_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_PRIVATE_H
#define ZKLOCK_CONTENDER_PRIVATE_H

#include "worker/contender.h"
#include "worker/zookeeper/session.h"

/* How often to check all owners. */
#define SWEEP_INTERVAL_MS	1000

/*
 * The part of the slots and of the session's room for locks retained by habit.
 */
#define HABITUAL_PART		8

/* A lock directory, or one of the two parts of a semaphore. */
#define PLACE_PATH_SIZE		(ZNODE_PATH_SIZE + 8)

extern void contenders_init(SessionHandler handler);
extern Contender *contender_make(ZkSlot *slot, ZnodeKind kind);
extern bool contender_set_habitual(Contender *contender, bool habitual);
extern void contender_drop(Contender *contender);
extern void contender_note_uuid(Contender *contender, const uint8 *uuid);
extern const char *contender_note(const Contender *contender);
extern bool contender_has_uuid(const uint8 *uuid);

extern void contender_place_path(const Contender *contender,
								 const char *below,
								 char path[PLACE_PATH_SIZE]);
extern const char *contender_state_name(const Contender *contender);
extern bool contender_is_begun(const Contender *contender);
extern void contender_update(Contender *contender);

extern int64 contender_excess(const Contender *contender);
extern void contender_leave(const Contender *contender);
extern void contenders_forget_left(void);
extern void contender_defer(Contender *contender);
extern Contender *contender_first_deferred(void);

extern void contender_set_queued(Contender *contender, bool queued);

extern void contender_delay_watch(Contender *contender);
extern Contender *contender_first_watching(int *nwatching);

extern void contender_schedule_check(Contender *contender, int64 at_ms);
extern Contender *contender_next_due(int64 now_ms);
extern int64 contender_next_check(void);

#endif							/* ZKLOCK_CONTENDER_PRIVATE_H */
