/*-------------------------------------------------------------------------
 *
 * timeout.h
 *		How long a call may wait.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/timeout.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TIMEOUT_H
#define ZKLOCK_TIMEOUT_H

#include "shared/session_info.h"

extern int64 zk_time_left(int64 deadline);
extern void zk_watch_client(void);
extern void zk_unwatch_client(void);
extern int64 zk_timeout_left(int64 called_at,
								 int64 *since, ZkSessionInfo *info);
extern char *zk_describe_outage(void);
extern void zk_report_no_session(int elevel, const char *name,
								 const ZkSessionInfo *info);

#endif							/* ZKLOCK_TIMEOUT_H */
