/*-------------------------------------------------------------------------
 *
 * sessions.h
 *		Which sessions are in use, and which one a contender goes into.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/sessions.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSIONS_H
#define ZKLOCK_SESSIONS_H

#include "shared/session_info.h"

/* In place of a session's number. */
#define NO_SESSION			(-1)

extern int	sessions_end(void);
extern bool sessions_has(int session);
extern int64 sessions_since(int session);
extern void sessions_add(int session);
extern void sessions_remove(int session);
extern int	sessions_choose(int64 bytes);

#endif							/* ZKLOCK_SESSIONS_H */
