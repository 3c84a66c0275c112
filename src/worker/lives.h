/*-------------------------------------------------------------------------
 *
 * lives.h
 *		How the worker and its sessions begin, go on and end.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lives.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIVES_H
#define ZKLOCK_LIVES_H

#include "worker/zookeeper/session.h"

extern void lives_handle_sigterm(void);
extern void lives_attach(void);
extern void lives_begin_turn(void);
extern void lives_event(const SessionEvent *event);
extern void lives_keep_sessions(void);
extern void lives_end_turn(void);
extern void lives_end_restored(void);

#endif							/* ZKLOCK_LIVES_H */
