/*-------------------------------------------------------------------------
 *
 * backend.h
 *		What the rooms of backend/ share.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/backend.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKEND_H
#define ZKLOCK_BACKEND_H

#include "fmgr.h"
#include "shared/slots.h"
#include "storage/lock.h"

/* No limit but lock_timeout: see hold_acquire(). */
#define ZK_NO_TIMEOUT	(-1)

/* A lock as an SQL function names it. */
typedef struct LockName
{
	char	   *name;			/* in the server encoding */
	char		path[ZNODE_PATH_SIZE];
} LockName;

extern void zk_check_preloaded(void);
extern void get_lock_name(FunctionCallInfo fcinfo, LockName *lock);

extern void holds_init(void);
extern bool hold_acquire(const char *path, const char *name, int64 timeout,
						 bool try);
extern bool hold_release(const char *path);
extern int64 hold_token(const char *path, const char *name);

extern int64 zk_session_patience(int64 *since, ZkSessionInfo *info);
extern void zk_report_no_session(int elevel, const char *name,
								 const ZkSessionInfo *info);

extern bool query_owner(const char *path, int timeout_ms,
						char *owner, size_t size);

extern char *zk_text_of_utf8(const char *utf8, int len);
extern char *zk_name_of_path(const char *path);
extern void zk_locktag(const char *path, LOCKTAG *tag);

#endif							/* ZKLOCK_BACKEND_H */
