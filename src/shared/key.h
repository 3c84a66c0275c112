/*-------------------------------------------------------------------------
 *
 * key.h
 *		The key of a slot: which lock it is, and what of it the slot serves.
 *
 * See key.c for how long a key is valid, and for the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/key.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_KEY_H
#define ZKLOCK_KEY_H

#include "core/lock/znode.h"
#include "storage/lock.h"
#include "utils/hsearch.h"

/* The number of roots that can surely be in use at a time. */
#define ZK_MAX_ROOTS		256

/* What a slot serves; each mode has its own slot. */
typedef enum ZkKeyMode
{
	ZK_KEY_EXCLUSIVE,			/* exclusive locks; also the key of a lock's
								 * holds, in any mode */
	ZK_KEY_SHARED,				/* the shared locks of all backends */
	ZK_KEY_PERMIT,				/* a backend's permit of a semaphore */
	ZK_KEY_INSTANCE				/* locks of any mode that exclude within this
								 * instance only: no contender */
} ZkKeyMode;

/* The key of one of PostgreSQL's advisory locks, as pg_locks shows it. */
typedef struct ZkAdvisoryKey
{
	uint32		classid;		/* first of two keys, or upper half of one */
	uint32		objid;			/* second of two keys, or lower half of one */
	uint16		objsubid;		/* 1: one key, a bigint; 2: two integers */
} ZkAdvisoryKey;

/*
 * Made by key.c only.  The bytes after the name's terminator are unset and
 * ignored.
 */
typedef struct ZkKey
{
	bool		advisory;		/* in the database of the process that made
								 * the key, the lock stands for PostgreSQL's
								 * advisory lock whose key ends the name.
								 * Ignored in comparisons */
	uint32		hash;			/* of all that follows */
	int32		for_whom;		/* number of the backend that owns the slot,
								 * or -1 */
	uint16		root;			/* number in the table of roots */
	uint8		mode;			/* ZkKeyMode */
	uint8		length;			/* of the name */
	char		name[ZNODE_MAX_NAME + 1];	/* encoded; below the root */
} ZkKey;

/* module load */
extern void keys_request_shmem(void);
extern void keys_startup_shmem(void);

/* making keys */
extern void key_make(const char *root, const char *name, ZkKey *key);
extern bool key_parse_advisory(const char *text, ZkAdvisoryKey *advisory);
extern void key_set_advisory(ZkKey *key, bool advisory);
extern void key_in_mode(const ZkKey *key, ZkKeyMode mode, ZkKey *result);
extern bool key_in_other_mode(const ZkKey *key, ZkKey *result);

/* reading keys */
extern bool key_is_advisory(const ZkKey *key);
extern bool key_is_of_instance(const ZkKey *key);
extern bool key_is_of_lock(const ZkKey *key, const ZkKey *lock);
extern int	key_compare(const void *a, const void *b);
extern void key_path(const ZkKey *key, char path[ZNODE_PATH_SIZE]);
extern void key_tag(const ZkKey *key, const char *path, LOCKTAG *tag);
extern void key_users_tag(const ZkKey *key, const char *path, LOCKTAG *tag);
extern bool key_advisory_tag(const ZkKey *key, LOCKTAG *tag);

/* hash tables by key */
extern int	key_hash_ctl(HASHCTL *ctl, Size entrysize);

/* for slots.c: a slot uses the root of its key */
extern void root_use(uint16 root);
extern void root_leave(uint16 root);

#endif							/* ZKLOCK_KEY_H */
