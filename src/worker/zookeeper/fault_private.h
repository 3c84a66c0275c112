/*-------------------------------------------------------------------------
 *
 * fault_private.h
 *		A fault in a thread of libzookeeper_mt does not end the server.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/fault_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FAULT_PRIVATE_H
#define ZKLOCK_FAULT_PRIVATE_H

#include <signal.h>

extern void fault_init(int fd);
extern void fault_check(void);
extern void fault_enter_library(sigset_t *saved);
extern void fault_leave_library(const sigset_t *saved);

#endif							/* ZKLOCK_FAULT_PRIVATE_H */
