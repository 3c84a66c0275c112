/*-------------------------------------------------------------------------
 *
 * sessions.h
 *		Which sessions are in use, how much room each has, and which one a
 *		contender goes into.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/sessions.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSIONS_H
#define ZKLOCK_SESSIONS_H

#include "shared/session_info.h"

#define NO_SESSION			(-1)

extern int	sessions_end(void);
extern bool sessions_has(int session);
extern int64 sessions_since(int session);
extern void sessions_add(int session);
extern void sessions_remove(int session);
extern int	sessions_choose(int64 bytes);

/* the bytes that the paths of a session's nodes may have */
extern void quota_change(int session, int bytes, int leaving);
extern void quota_leave(int session, int bytes);
extern void quota_forget_left(int session);
extern bool quota_fits(int session, int64 bytes);
extern bool quota_will_fit(int session, int64 bytes);
extern int64 quota_excess(int session, int64 bytes);
extern int64 quota_held(int session);
extern void quota_publish(int session);

#endif							/* ZKLOCK_SESSIONS_H */
