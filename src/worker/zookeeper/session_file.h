/*-------------------------------------------------------------------------
 *
 * session_file.h
 *		The sessions' IDs and passwords on disk, for after a crash.
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

/* What is needed to attach to a session. */
typedef struct SessionKey
{
	int64		client_id;
	char		passwd[ZK_PASSWD_SIZE];
} SessionKey;

extern void session_file_write(const SessionKey *keys, int n);
extern int	session_file_read(SessionKey *keys);
extern uint64 session_file_place(void);

#endif							/* ZKLOCK_SESSION_FILE_H */
