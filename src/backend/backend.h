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

#include "shared/slots.h"
#include "storage/lock.h"

/* No limit but lock_timeout: see hold_acquire(). */
#define ZK_NO_TIMEOUT	(-1)

extern void zk_check_preloaded(void);

extern void holds_init(void);
extern bool hold_acquire(const char *path, const char *name, int64 timeout,
						 bool try);
extern bool hold_release(const char *path);
extern int64 hold_token(const char *path, const char *name);

extern void fence_write(Oid function, const char *name, int64 token);

extern char *zk_name_of_path(const char *path);
extern void zk_locktag(const char *path, LOCKTAG *tag);

#endif							/* ZKLOCK_BACKEND_H */
