/*-------------------------------------------------------------------------
 *
 * session_file.h
 *		The session's ID and password on disk, for after a crash.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/session_file.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_FILE_H
#define ZKLOCK_SESSION_FILE_H

#include "shared/session_info.h"

extern void session_file_write(const SessionKey *key);
extern void session_file_remove(void);
extern bool session_file_read(SessionKey *key);
extern uint64 session_file_place(void);

#endif							/* ZKLOCK_SESSION_FILE_H */
