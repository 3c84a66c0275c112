/*-------------------------------------------------------------------------
 *
 * names.h
 *		Names and keys of locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/names.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMES_H
#define ZKLOCK_NAMES_H

#include "core/znode.h"
#include "shared/key.h"

/* A lock as an SQL function names it. */
typedef struct ZkLockName
{
	char	   *name;			/* in the server encoding */
	char		path[ZNODE_PATH_SIZE];	/* of its directory; its hold key */
} ZkLockName;

extern void zk_check_preloaded(void);
extern void zk_lock_name(Datum name, bool isnull, ZkLockName *lock);

/* keys of holds and of slots */
extern void zk_semaphore_key(const char *path, char key[ZK_SLOT_KEY_SIZE]);
extern void zk_slot_key(const char *hold_key, ZnodeKind kind, bool together,
						char key[ZK_SLOT_KEY_SIZE]);
extern bool zk_other_mode_key(const char *hold_key, ZnodeKind kind,
							  char key[ZK_SLOT_KEY_SIZE]);
extern char *zk_hold_key(const char *slot_key, ZnodeKind kind);
extern char *zk_path_of_key(const char *key);
extern char *zk_name_of_key(const char *key);

extern char *zk_text_of_utf8(const char *utf8, int len);

#endif							/* ZKLOCK_NAMES_H */
