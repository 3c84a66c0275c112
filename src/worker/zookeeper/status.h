/*-------------------------------------------------------------------------
 *
 * status.h
 *		The published state of the sessions.
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
#include "worker/zookeeper/session_file.h"

extern void status_attach(void);
extern void status_detach(void);
extern const ZkSessionInfo *status(int session);
extern bool status_is_alive(void);
extern bool status_is_connected(int session);
extern bool status_is_ours(int64 client_id);
extern int	status_list_others(int session, SessionKey *keys);
extern void status_publish(int session, ZkSessionState state);
extern void status_set_up(int session, const SessionIdentity *identity);
extern void status_set_answered(int session);
extern void status_set_missing(int session, uint32 missing);
extern void status_forget_probes(void);
extern void status_set_suspended(int session);
extern void status_set_ended(int session, bool needed);
extern void status_set_closed(void);
extern void status_set_closing(void);
extern void status_set_draining(bool draining);
extern bool status_set_error(int session, const char *error);
extern const char *status_settle_chroot(int session);
extern const char *status_chroot(void);
extern bool status_chroot_changed(void);
extern bool status_is_ending(void);

#endif							/* ZKLOCK_STATUS_H */
