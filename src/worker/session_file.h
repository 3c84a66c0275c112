/*-------------------------------------------------------------------------
 *
 * session_file.h
 *		The session's id and password on disk, for after a crash.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/session_file.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_FILE_H
#define ZKLOCK_SESSION_FILE_H

#include "shared/session_info.h"

extern void session_file_write(int64 client_id,
							   const char passwd[ZK_PASSWD_SIZE]);
extern bool session_file_read(int64 *client_id, char passwd[ZK_PASSWD_SIZE]);
extern void session_file_remove(void);

#endif							/* ZKLOCK_SESSION_FILE_H */
