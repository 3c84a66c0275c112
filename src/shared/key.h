/*-------------------------------------------------------------------------
 *
 * key.h
 *		The key of a slot: which lock it is, and for what.
 *
 * See key.c for the forms of a key and for who guards the roots.
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

#include "core/znode.h"

/*
 * A slot's key is the path of its lock directory.  A slot that serves
 * something else than exclusive locks adds a mark: ZK_KEY_MARK, which no path
 * can contain, and something that tells such slots apart.
 */
#define ZK_KEY_MARK			"//"
#define ZK_KEY_MARK_SIZE	10
#define ZK_SLOT_KEY_SIZE	(ZNODE_PATH_SIZE + ZK_KEY_MARK_SIZE)

/*
 * The same in shared memory, where the root is a number of two digits: it is
 * long, and nearly always the same.
 */
#define ZK_ROOT_DIGITS		2
#define ZK_SHORT_KEY_SIZE	(ZK_ROOT_DIGITS + ZNODE_MAX_NAME + \
							 ZK_KEY_MARK_SIZE + 1)

/* So many roots can be in use at the same time. */
#define ZK_MAX_ROOTS		256

/* module load */
extern void keys_request_shmem(void);
extern void keys_startup_shmem(void);

/* the two forms of a key */
extern const char *key_split(const char *key, char root[ZNODE_MAX_ROOT + 1]);
extern void key_shorten(int root, const char *name,
						char short_key[ZK_SHORT_KEY_SIZE]);
extern void key_read(const char *short_key, char key[ZK_SLOT_KEY_SIZE]);
extern void key_read_path(const char *short_key, char path[ZNODE_PATH_SIZE]);

/* the roots */
extern int	root_of_key(const char *short_key);
extern int	root_find(const char *root);
extern bool root_is(int number, const char *root);
extern int	root_add(const char *root);
extern void roots_forget(const bool used[ZK_MAX_ROOTS]);

#endif							/* ZKLOCK_KEY_H */
