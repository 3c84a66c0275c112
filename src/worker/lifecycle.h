/*-------------------------------------------------------------------------
 *
 * lifecycle.h
 *		How the worker and its session begin, go on and end.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lifecycle.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LIFECYCLE_H
#define ZKLOCK_LIFECYCLE_H

#include "worker/zookeeper/session.h"

extern void lifecycle_handle_sigterm(void);
extern void lifecycle_attach(void);
extern void lifecycle_begin_iteration(void);
extern void lifecycle_event(const SessionEvent *event);
extern void lifecycle_keep_session(void);
extern void lifecycle_end_iteration(void);
extern void lifecycle_end_restored(void);

#endif							/* ZKLOCK_LIFECYCLE_H */
