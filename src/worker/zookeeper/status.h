/*-------------------------------------------------------------------------
 *
 * status.h
 *		The published state of the session.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/status.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STATUS_H
#define ZKLOCK_STATUS_H

#include "shared/session_info.h"
#include "worker/zookeeper/session.h"

extern void status_attach(void);
extern void status_detach(void);
extern const ZkSessionInfo *status(void);
extern bool status_is_alive(void);
extern bool status_is_connected(void);
extern void status_publish(ZkSessionState state);
extern void status_set_up(const SessionIdentity *identity);
extern void status_set_answered(void);
extern void status_set_missing(uint32 missing);
extern void status_forget_probes(void);
extern void status_set_suspended(void);
extern void status_set_ended(void);
extern void status_set_closed(void);
extern void status_set_closing(void);
extern void status_set_draining(bool draining);
extern bool status_set_error(const char *error);
extern const char *status_settle_chroot(void);
extern const char *status_chroot(void);
extern bool status_chroot_changed(void);
extern bool status_is_ending(void);

#endif							/* ZKLOCK_STATUS_H */
