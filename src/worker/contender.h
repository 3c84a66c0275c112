/*-------------------------------------------------------------------------
 *
 * contender.h
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/contender.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "core/lock/znode.h"
#include "shared/slots.h"

/* The path of a znode in a lock directory. */
#define CONTENDER_PATH_SIZE		(ZNODE_PATH_SIZE + 7 + ZNODE_CONTENDER_SIZE)

typedef struct Contender Contender;

/* the loop */
extern void contenders_attach(void);
extern void contenders_open_mail(void (*over) (const int64 *ends, int n,
											   bool all));
extern void contenders_check(void);
extern void contenders_publish(void);

/* the session, and the previous worker */
extern int	contenders_count(void);
extern int64 contenders_bytes(void);
extern void contenders_take_over(void);
extern void contenders_expire(void);
extern void contenders_drain(void);
extern void contenders_release(void);
extern void contenders_watch_queues(bool connected);

/* deadlocks */
extern Contender *contender_find(ZkSlot *slot, const ZkContender *known);
extern const char *contender_directory(const Contender *contender);
extern bool contender_owns(const Contender *contender);
extern int64 contender_queued_ms(const Contender *contender,
								 ZkSlotState state);
extern bool contender_keeper(const Contender *contender,
							 char path[CONTENDER_PATH_SIZE]);
extern void contender_await(Contender *contender);
extern int64 contenders_queued_ms(void);
extern int64 contenders_queued_after(int64 at_ms);

#endif							/* ZKLOCK_CONTENDER_H */
