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
#include "shared/clock.h"
#include "shared/holders.h"
#include "shared/proof.h"
#include "shared/session_info.h"
#include "shared/take.h"
#include "storage/lock.h"

/* No limit but lock_timeout: see hold_acquire(). */
#define ZK_NO_TIMEOUT	(-1)

/* Locks that a backend asks for. */
typedef struct ZkRequest
{
	char	  **keys;			/* hold keys, sorted, each once: paths, or see
								 * zk_semaphore_key() */
	int			nkeys;
	const char *name;			/* what the user calls the first, for messages */
	ZnodeKind	kind;
	int			permits;		/* of a semaphore, or 0 */
	bool		session;		/* scope: the session, or the transaction */
	bool		try;			/* that it is not to be had is no error */
	int64		timeout;		/* ms, over both tiers; 0 waits behind nobody */
} ZkRequest;

/* A lock as an SQL function names it. */
typedef struct ZkLockName
{
	char	   *name;			/* in the server encoding */
	char		path[ZNODE_PATH_SIZE];	/* of its directory; its hold key */
} ZkLockName;

/* functions.c */
extern void zk_check_preloaded(void);
extern void zk_lock_name(Datum name, bool isnull, ZkLockName *lock);

/* holds.c */
extern void holds_init(void);
extern bool hold_acquire(const ZkRequest *request);
extern bool hold_release(const char *key);
extern void hold_release_session(void);
extern int64 hold_token(const char *key, const char *name);
extern void zk_semaphore_key(const char *path, char key[ZK_SLOT_KEY_SIZE]);
extern void zk_locktag(const char *key, LOCKTAG *tag);
extern int64 zk_session_patience(int64 called_at, int64 *since,
								 ZkSessionInfo *info);
extern void zk_report_no_session(int elevel, const char *name,
								 const ZkSessionInfo *info);

/* queries.c */
extern bool ask_owner(const char *path, int timeout_ms,
						char *owner, size_t size);

/* views.c */
extern char *zk_text_of_utf8(const char *utf8, int len);
extern char *zk_path_of_key(const char *key);
extern char *zk_name_of_key(const char *key);


/* fence.c */
extern void fence_write(Oid function, const char *name, int64 token);


#endif							/* ZKLOCK_BACKEND_H */
