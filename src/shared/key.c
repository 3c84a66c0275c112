/*-------------------------------------------------------------------------
 *
 * key.c
 *		The key of a slot: which lock it is, and what of it the slot serves.
 *
 * Keys are hashed and compared as structs.  key_path() makes the path of the
 * lock directory from a key, where ZooKeeper, the lock manager or a user needs
 * it.
 *
 * A root is long and nearly always the same, so a key has its number in a
 * table in shared memory.  A key is valid while its root is in use.  Each slot
 * uses its root.  Each backend pins (uses) the root that it resolved last,
 * until it resolves another or ends: so a key that a backend has made is valid
 * until that backend makes one with another root, or longer, while the backend
 * wants or holds the key's slot.  The worker makes no keys; it takes those of
 * slots.
 *
 * Locking protocol.  Each root has a count of its uses.  While that is above
 * 0, the root does not change, and its users read it without a lock.  Roots
 * are looked up under the LWLock, and an unused entry is overwritten under the
 * same lock, held exclusively.  A pin is counted under the lock, shared or
 * exclusive, since it may be the first use.  A process with a key that stays
 * valid meanwhile counts another use without the lock; a use ends without the
 * lock.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/key.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/string.h"
#include "core/mutation.h"
#include "core/siphash.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared/compat.h"
#include "shared/key.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

/* "ZK": field4 of our lock tags, which no other user lock has. */
#define ZK_LOCKTAG_MAGIC	0x5A4B

#define ROOTS_TRANCHE	"zklock roots"

/* The offsets from which a key is compared, and hashed. */
#define COUNTING		offsetof(ZkKey, hash)
#define HASHED			offsetof(ZkKey, for_whom)

typedef char Root[ZNODE_MAX_ROOT + 1];

/* in shared memory; apart: one is read often, the other changed */
static Root *roots = NULL;		/* "": never used */
static pg_atomic_uint32 *uses = NULL;
static SipKey *secret = NULL;	/* of the tags; does not change */
static LWLock *roots_lock = NULL;

/* the number of the root that this process pins, or -1 */
static int	pinned = -1;

/* Each process may pin a root that no slot uses. */
static int
roots_max(void)
{
	return Min(ZK_MAX_ROOTS + MaxBackends, PG_UINT16_MAX);
}

/*
 * keys_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
keys_request_shmem(void)
{
	RequestAddinShmemSpace(mul_size(roots_max(), sizeof(Root)));
	RequestAddinShmemSpace(mul_size(roots_max(), sizeof(pg_atomic_uint32)));
	RequestAddinShmemSpace(sizeof(SipKey));
	RequestNamedLWLockTranche(ROOTS_TRANCHE, 1);
}

/*
 * keys_startup_shmem
 *		Create or attach to the roots; AddinShmemInitLock is held.
 */
void
keys_startup_shmem(void)
{
	bool		found;

	roots = ShmemInitStruct("zklock roots", mul_size(roots_max(), sizeof(Root)),
							&found);
	if (!found)
		memset(roots, 0, roots_max() * sizeof(Root));
	uses = ShmemInitStruct("zklock root uses",
						   mul_size(roots_max(), sizeof(pg_atomic_uint32)),
						   &found);
	if (!found)
		for (int i = 0; i < roots_max(); i++)
			pg_atomic_init_u32(&uses[i], 0);
	secret = ShmemInitStruct("zklock secret", sizeof(SipKey), &found);
	if (!found && !pg_strong_random(secret, sizeof(SipKey)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	roots_lock = &GetNamedLWLockTranche(ROOTS_TRANCHE)->lock;
}

/*
 * root_use
 *		Count a slot's use of this root.  The caller has a valid key with it.
 */
void
root_use(uint16 root)
{
	pg_atomic_fetch_add_u32(&uses[root], 1);
}

/*
 * root_leave
 *		End a slot's use of this root.
 */
void
root_leave(uint16 root)
{
	pg_atomic_fetch_sub_u32(&uses[root], 1);
}

static void
unpin(void)
{
	if (pinned >= 0)
		root_leave(pinned);
	pinned = -1;
}

static void
unpin_at_exit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	unpin();
}

/* The number of a root, or -1; the lock is held. */
static int
find_root(const char *root)
{
	for (int i = 0; i < roots_max(); i++)
		if (strcmp(roots[i], root) == 0)
			return i;
	return -1;
}

/* Give a root an unused number, or -1; the lock is held exclusively. */
static int
enter_root(const char *root)
{
	for (int i = 0; i < roots_max(); i++)
		if (pg_atomic_read_u32(&uses[i]) == 0)
		{
			strlcpy(roots[i], root, sizeof(Root));
			return i;
		}
	return -1;
}

/*
 * Pin a root in place of the pinned one, and return its number.
 *
 * Errors: 53200 if too many are in use.
 */
static int
pin(const char *root)
{
	static bool registered = false;
	int			number;

	if (!registered)
		on_shmem_exit(unpin_at_exit, (Datum) 0);
	registered = true;

	LWLockAcquire(roots_lock, LW_SHARED);
	number = find_root(root);
	if (number < 0)
	{
		LWLockRelease(roots_lock);
		LWLockAcquire(roots_lock, LW_EXCLUSIVE);
		number = find_root(root);	/* another backend may have entered it */
		if (number < 0)
			number = enter_root(root);
	}
	if (number >= 0)
		root_use(number);
	LWLockRelease(roots_lock);

	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of roots for locks"),
				 errdetail("Locks are in use below %d different values of \"zklock.root\".",
						   ZK_MAX_ROOTS),
				 errhint("Use fewer roots, and tell tenants apart by the names of their locks.")));
	unpin();
	pinned = number;
	return number;
}

static void
set_hash(ZkKey *key)
{
	key->hash = hash_bytes((const unsigned char *) key + HASHED,
						   offsetof(ZkKey, name) - HASHED + key->length);
}

/*
 * key_make
 *		The key of a lock: of its exclusive slot, and of a backend's holds.
 *
 * "name" is encoded.  The root stays pinned until this process makes a key
 * with another one.
 *
 * Errors: 53200 if too many roots are in use.
 */
void
key_make(const char *root, const char *name, ZkKey *key)
{
	key->advisory = false;
	key->root = pinned >= 0 && strcmp(roots[pinned], root) == 0 ?
		pinned : pin(root);
	key->mode = ZK_KEY_EXCLUSIVE;
	key->for_whom = -1;
	key->length = strlcpy(key->name, name, sizeof(key->name));
	set_hash(key);
}

/*
 * key_parse_advisory
 *		Parse the advisory lock's key at the end of a name: "<key>", a bigint,
 *		or "<key1>,<key2>", integers.
 *
 * Only the canonical form is accepted, without leading zeros or a plus sign:
 * two names must not stand for one lock.
 */
bool
key_parse_advisory(const char *text, ZkAdvisoryKey *advisory)
{
	const char *comma = strchr(text, ',');
	char		written[32];

	if (comma != NULL)
	{
		int			key1 = strtoint(text, NULL, 10);
		int			key2 = strtoint(comma + 1, NULL, 10);

		advisory->classid = (uint32) key1;
		advisory->objid = (uint32) key2;
		advisory->objsubid = 2;
		snprintf(written, sizeof(written), "%d,%d", key1, key2);
	}
	else
	{
		int64		key = strtoi64(text, NULL, 10);

		advisory->classid = (uint32) ((uint64) key >> 32);
		advisory->objid = (uint32) key;
		advisory->objsubid = 1;
		snprintf(written, sizeof(written), INT64_FORMAT, key);
	}
	return strcmp(written, text) == 0;
}

/*
 * key_set_advisory
 *		Note whether a lock stands for an advisory lock of PostgreSQL in the
 *		database of this process.
 *
 * Must be called for each key made from such a name, so that all backends of
 * the database take the same heavyweight locks.  The key of a slot, which
 * sessions of all databases share, has no such mark.
 */
void
key_set_advisory(ZkKey *key, bool advisory)
{
	key->advisory = advisory;
}

/* Also for hash tables; "size" is ignored. */
static void *
copy_key(void *copy, const void *key, Size size pg_attribute_unused())
{
	/* includes the name's terminator */
	return memcpy(copy, key,
				  offsetof(ZkKey, name) + ((const ZkKey *) key)->length + 1);
}

/*
 * key_in_mode
 *		The key of the slot that serves the same lock in this mode; of this
 *		backend's own slot, if the mode has one for each backend.
 */
void
key_in_mode(const ZkKey *key, ZkKeyMode mode, ZkKey *result)
{
	copy_key(result, key, sizeof(ZkKey));
	result->mode = mode;
	result->for_whom = mode == ZK_KEY_PERMIT ? ZkMyProcNumber : -1;
	set_hash(result);
}

/*
 * key_in_other_mode
 *		The key of the slot whose contender would conflict with this slot's.
 *
 * For an exclusive lock that is the slot that all readers share.  Returns
 * false for a permit, which has no other mode, and for a slot without
 * contender.
 */
bool
key_in_other_mode(const ZkKey *key, ZkKey *result)
{
	if (key->mode == ZK_KEY_PERMIT || key_is_of_instance(key))
		return false;
	key_in_mode(key, key->mode == ZK_KEY_EXCLUSIVE ?
				ZK_KEY_SHARED : ZK_KEY_EXCLUSIVE, result);
	return true;
}

/*
 * key_is_advisory
 *		Does the lock stand for an advisory lock of PostgreSQL?
 */
bool
key_is_advisory(const ZkKey *key)
{
	return key->advisory && key->mode != ZK_KEY_PERMIT;
}

/*
 * key_is_of_instance
 *		Is it a slot whose locks exclude within this instance only?
 */
bool
key_is_of_instance(const ZkKey *key)
{
	return key->mode == ZK_KEY_INSTANCE;
}

/*
 * key_is_of_lock
 *		Do these keys belong to the same lock or semaphore, in any mode?
 */
bool
key_is_of_lock(const ZkKey *key, const ZkKey *lock)
{
	return key->root == lock->root && key->length == lock->length &&
		memcmp(key->name, lock->name, key->length) == 0;
}

/*
 * key_compare
 *		The order of locks below one root that all callers agree on, for
 *		qsort(): that of their paths.
 */
int
key_compare(const void *a, const void *b)
{
	return strcmp(((const ZkKey *) a)->name, ((const ZkKey *) b)->name);
}

/*
 * key_path
 *		The path of the lock directory.
 */
void
key_path(const ZkKey *key, char path[ZNODE_PATH_SIZE])
{
	size_t		length = strlcpy(path, roots[key->root], ZNODE_PATH_SIZE);

	path[length++] = '/';
	memcpy(path + length, key->name, key->length + 1);
}

/*
 * The tag of a heavyweight lock of this path.  "kind" tells apart those that
 * are not the lock's own, for which it is 0.
 */
static void
set_tag(const ZkKey *key, const char *path, uint64 kind, LOCKTAG *tag)
{
	SipKey		of_kind = *secret;
	uint64		hash;

	of_kind.half[0] ^= kind;
	hash = siphash(&of_kind, path, strlen(path));

	memset(tag, 0, sizeof(*tag));
	tag->locktag_field1 = key->root;
	tag->locktag_field2 = (uint32) (hash >> 32);
	tag->locktag_field3 = (uint32) hash;
	tag->locktag_field4 = ZK_LOCKTAG_MAGIC;
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

/*
 * key_tag
 *		The tag of the heavyweight lock of a hold or slot.
 *
 * All slots of a lock have the same tag, in all databases; a permit is one
 * backend's own, so no other has its tag.  "path" is that of key_path().
 *
 * pg_locks shows tags to all roles, and who holds a tag keeps everybody else
 * from it.  So nobody may be able to compute the tag of a path, or to choose
 * names by their tags: the hash has a key, which this postmaster has made.
 * Two locks that share a tag by chance wait for each other, and nothing worse.
 */
void
key_tag(const ZkKey *key, const char *path, LOCKTAG *tag)
{
	uint64		apart = ZK_MUTATED(ZK_EXCLUSION_APART) ? zklock_exclusion * 7 : 0;

	set_tag(key, path, apart +
			(key->mode == ZK_KEY_PERMIT ? (uint64) key->for_whom + 1 : 0), tag);
}

/*
 * key_users_tag
 *		The tag of the heavyweight lock of those that use the lock's claim.
 */
void
key_users_tag(const ZkKey *key, const char *path, LOCKTAG *tag)
{
	set_tag(key, path, PG_UINT64_MAX, tag);
}

/*
 * key_advisory_tag
 *		The tag of the advisory lock of PostgreSQL that the lock stands for, in
 *		the database of this process; false if it stands for none.
 */
bool
key_advisory_tag(const ZkKey *key, LOCKTAG *tag)
{
	ZkAdvisoryKey advisory;

	/* the last encoded byte of the name is the slash before the key */
	if (!key_is_advisory(key) ||
		!key_parse_advisory(strrchr(key->name, '%') + strlen("%2F"), &advisory))
		return false;
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, advisory.classid,
						 advisory.objid, advisory.objsubid);
	return true;
}

/* For hash tables; "size" is ignored. */
static uint32
hash_of_key(const void *key, Size size pg_attribute_unused())
{
	return ((const ZkKey *) key)->hash;
}

static int
match_keys(const void *a, const void *b, Size size pg_attribute_unused())
{
	/* "length" is compared before the names */
	return memcmp((const char *) a + COUNTING, (const char *) b + COUNTING,
				  offsetof(ZkKey, name) - COUNTING +
				  ((const ZkKey *) a)->length);
}

/*
 * key_hash_ctl
 *		Fill in *ctl for a hash table whose entries begin with a ZkKey, and
 *		return the flags; the caller may add to both.
 */
int
key_hash_ctl(HASHCTL *ctl, Size entrysize)
{
	memset(ctl, 0, sizeof(*ctl));
	ctl->keysize = sizeof(ZkKey);
	ctl->entrysize = entrysize;
	ctl->hash = hash_of_key;
	ctl->match = match_keys;
	ctl->keycopy = copy_key;
	return HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_KEYCOPY;
}
