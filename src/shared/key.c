/*-------------------------------------------------------------------------
 *
 * key.c
 *		The key of a slot: which lock it is, and for what.
 *
 * A key has two forms.  Callers pass a string: the path of the lock directory,
 * and behind it a mark, if the slot serves something else than exclusive
 * locks.  The hash table of slots has a short one, with a number in place of
 * the root.  Only this file makes the short form and reads it.
 *
 * Locking protocol.  The numbered roots are guarded by the partition locks of
 * slots.c: they are read under any of them, and changed under all.  An entry
 * that a slot in use names does not change, so whoever may use the slot
 * without a lock may read its key.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/key.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/key.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

/* As a number of ZK_ROOT_DIGITS digits of this base, which can be printed. */
#define ROOT_BASE		16
#define FIRST_DIGIT		'A'

typedef struct KeysShared
{
	char		roots[ZK_MAX_ROOTS][ZNODE_MAX_ROOT + 1];	/* "": free */
} KeysShared;

static KeysShared *keys = NULL;

/*
 * keys_request_shmem
 *		Reserve shared memory; for the shmem_request_hook.
 */
void
keys_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(KeysShared));
}

/*
 * keys_startup_shmem
 *		Create or attach to the roots; AddinShmemInitLock is held.
 */
void
keys_startup_shmem(void)
{
	bool		found;

	keys = ShmemInitStruct("zklock keys", sizeof(KeysShared), &found);
	if (!found)
		memset(keys, 0, sizeof(KeysShared));
}

/*
 * key_split
 *		Copy the root of a key, without the slash behind it, and return the
 *		rest: the encoded name and the mark.
 */
const char *
key_split(const char *key, char root[ZNODE_MAX_ROOT + 1])
{
	const char *name = strstr(key, ZK_KEY_MARK);

	/* behind the last slash of the path */
	name = name ? name : key + strlen(key);
	while (name > key && name[-1] != '/')
		name--;
	strlcpy(root, key, Min(name - key, ZNODE_MAX_ROOT + 1));
	return name;
}

/*
 * key_shorten
 *		Make the short form of a key from the number of its root and the rest.
 */
void
key_shorten(int root, const char *name, char short_key[ZK_SHORT_KEY_SIZE])
{
	short_key[0] = FIRST_DIGIT + root / ROOT_BASE;
	short_key[1] = FIRST_DIGIT + root % ROOT_BASE;
	strlcpy(short_key + ZK_ROOT_DIGITS, name,
			ZK_SHORT_KEY_SIZE - ZK_ROOT_DIGITS);
}

/*
 * key_read
 *		The key of which this is the short form; of a slot in use.
 */
void
key_read(const char *short_key, char key[ZK_SLOT_KEY_SIZE])
{
	snprintf(key, ZK_SLOT_KEY_SIZE, "%s/%s",
			 keys->roots[root_of_key(short_key)], short_key + ZK_ROOT_DIGITS);
}

/*
 * key_read_path
 *		The lock directory of the key of which this is the short form; of a
 *		slot in use.
 */
void
key_read_path(const char *short_key, char path[ZNODE_PATH_SIZE])
{
	char		key[ZK_SLOT_KEY_SIZE];
	char	   *mark;

	key_read(short_key, key);
	mark = strstr(key, ZK_KEY_MARK);
	if (mark)
		*mark = '\0';
	strlcpy(path, key, ZNODE_PATH_SIZE);
}

/*
 * root_of_key
 *		The number of the root in a short key.
 */
int
root_of_key(const char *short_key)
{
	return (short_key[0] - FIRST_DIGIT) * ROOT_BASE +
		short_key[1] - FIRST_DIGIT;
}

/*
 * root_find
 *		The number of a root, or -1; the caller holds a partition lock.
 */
int
root_find(const char *root)
{
	for (int i = 0; i < ZK_MAX_ROOTS; i++)
		if (root_is(i, root))
			return i;
	return -1;
}

/*
 * root_is
 *		Is this the root that has this number?  The caller holds a partition
 *		lock.
 */
bool
root_is(int number, const char *root)
{
	return strcmp(keys->roots[number], root) == 0;
}

/*
 * root_add
 *		Find or make the number of a root; -1 if all are taken.  The caller
 *		holds all partition locks exclusively.
 */
int
root_add(const char *root)
{
	int			number = root_find(root);

	if (number < 0)
		number = root_find("");
	if (number >= 0)
		strlcpy(keys->roots[number], root, sizeof(keys->roots[number]));
	return number;
}

/*
 * roots_forget
 *		Free the numbers that no slot uses.  The caller holds all partition
 *		locks exclusively.
 */
void
roots_forget(const bool used[ZK_MAX_ROOTS])
{
	for (int i = 0; i < ZK_MAX_ROOTS; i++)
		if (!used[i])
			keys->roots[i][0] = '\0';
}
