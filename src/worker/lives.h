/*-------------------------------------------------------------------------
 *
 * lives.h
 *		How the worker begins, goes on and ends, and the sessions with it.
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

#include "shared/session_info.h"

extern void lives_handle_sigterm(void);
extern void lives_attach(void);
extern int64 lives_old_session(char passwd[ZK_PASSWD_SIZE]);
extern bool lives_has_old_session(void);
extern void lives_end_old_session(bool expired);
extern void lives_end_session(int session, const char *why);
extern void lives_end_restored(void);
extern void lives_close_empty(void);
extern void lives_check_chroot(void);
extern void lives_wake(void);
extern void lives_reload(void);
extern void lives_renew_auths(void);
extern void lives_shut_down(void);
extern bool lives_is_last_worker(void);

#endif							/* ZKLOCK_LIVES_H */
