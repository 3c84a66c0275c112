/*-------------------------------------------------------------------------
 *
 * names.c
 *		Names and keys of locks.
 *
 * A lock has a name, which SQL gives, and a path, that of its directory in
 * ZooKeeper.  A key identifies it in this backend and in shared memory: the
 * path, and for some kinds of locks a mark behind it.  Keys are made and taken
 * apart here only.
 *
 *		lock				hold key	slot key
 *		exclusive			path		path
 *		shared				path		path//r
 *		shared, together	path		path//N
 *		with other locks
 *		permit				path//sN	path//sN
 *
 * N is the number of the backend.  The hold key tells whether a backend holds
 * a lock already; backends that use the same slot key share a contender.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/names.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "backend/names.h"
#include "catalog/namespace.h"
#include "core/znode.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/key.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "utils/builtins.h"

/* Ends the key of the slot that the readers of a lock share. */
#define READERS_MARK		ZK_KEY_MARK "r"

/*
 * zk_check_preloaded
 *		Fail (55000) if zklock was not loaded at server start.
 */
void
zk_check_preloaded(void)
{
	if (!slots_available())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock must be loaded via \"shared_preload_libraries\""),
				 errhint("Add zklock to \"shared_preload_libraries\" and restart the server.")));
}

/*
 * Fail (F0000) if a setting was given an invalid value: with the default
 * in its place this would be another lock.
 */
static void
check_settings(void)
{
	ZkWrongSetting wrong;

	if (!zk_wrong_setting(true, &wrong))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("cannot use locks in ZooKeeper because of an invalid value for parameter \"%s\"",
					wrong.name),
			 wrong.value ?
			 errdetail("The value is \"%s\".  %s", wrong.value, wrong.problem) :
			 errdetail("%s", wrong.problem),
			 errhint("Correct it where it is set: the view pg_settings tells where.  In a configuration file, reload it then.")));
}

/*
 * zk_lock_name
 *		The lock that an SQL argument names.
 *
 * Errors: 22004 NULL; 22023 empty or too long; 55000 not preloaded, or in
 * single-user mode; 0A000 in a parallel worker; F0000 a setting is wrong.
 */
void
zk_lock_name(Datum name, bool isnull, ZkLockName *lock)
{
	char	   *utf8;
	char		encoded[ZNODE_MAX_NAME + 1];

	zk_check_preloaded();
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use locks in ZooKeeper in single-user mode"),
				 errdetail("There is no zklock worker.")));
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot use locks in ZooKeeper in a parallel worker")));
	check_settings();
	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock name must not be null")));

	lock->name = TextDatumGetCString(name);
	if (lock->name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock name must not be empty")));

	utf8 = pg_server_to_any(lock->name, strlen(lock->name), PG_UTF8);
	if (znode_encode_name(utf8, strlen(utf8), encoded, sizeof(encoded)) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock name is too long"),
				 errdetail("In a znode path, where letters, digits and \"-_.~:@=+,\" take one byte and every other byte of UTF-8 takes three, it is longer than %d bytes.",
						   ZNODE_MAX_NAME)));
	strlcpy(lock->path, zklock_root, sizeof(lock->path));
	strlcat(lock->path, "/", sizeof(lock->path));
	strlcat(lock->path, encoded, sizeof(lock->path));
}

/*
 * zk_semaphore_key
 *		The key of this backend's holds of a semaphore.
 *
 * A permit is the backend's own, so no other backend shares its slot, or
 * waits for it in the lock manager.
 */
void
zk_semaphore_key(const char *path, char key[ZK_SLOT_KEY_SIZE])
{
	snprintf(key, ZK_SLOT_KEY_SIZE, "%s" ZK_KEY_MARK "s%d",
			 path, ZkMyProcNumber);
}

/*
 * zk_slot_key
 *		The key of the slot that serves a lock.
 *
 * together: the lock is taken together with others.  Several shared locks at
 * once have slots of their own: other backends, which ask for fewer of them,
 * cannot share the contenders.
 */
void
zk_slot_key(const char *hold_key, ZnodeKind kind, bool together,
			char key[ZK_SLOT_KEY_SIZE])
{
	if (kind != ZNODE_READER)
		strlcpy(key, hold_key, ZK_SLOT_KEY_SIZE);
	else if (together)
		snprintf(key, ZK_SLOT_KEY_SIZE, "%s" ZK_KEY_MARK "%d",
				 hold_key, ZkMyProcNumber);
	else
		snprintf(key, ZK_SLOT_KEY_SIZE, "%s" READERS_MARK, hold_key);
}

/*
 * zk_other_mode_key
 *		The key of the slot that serves a lock in the other mode.
 *
 * Of an exclusive lock that is the slot that all readers share.  Returns false
 * for a permit, which has no other mode.
 */
bool
zk_other_mode_key(const char *hold_key, ZnodeKind kind,
				  char key[ZK_SLOT_KEY_SIZE])
{
	if (kind == ZNODE_PERMIT)
		return false;
	snprintf(key, ZK_SLOT_KEY_SIZE, "%s%s", hold_key,
			 kind == ZNODE_READER ? "" : READERS_MARK);
	return true;
}

/*
 * zk_hold_key
 *		The hold key of a slot key, palloc'd.
 */
char *
zk_hold_key(const char *slot_key, ZnodeKind kind)
{
	return kind == ZNODE_PERMIT ? pstrdup(slot_key) : zk_path_of_key(slot_key);
}

/*
 * zk_path_of_key
 *		The lock directory of a hold or slot key, palloc'd.
 */
char *
zk_path_of_key(const char *key)
{
	const char *mark = strstr(key, ZK_KEY_MARK);

	return mark ? pnstrdup(key, mark - key) : pstrdup(key);
}

/*
 * zk_text_of_utf8
 *		UTF-8 in the server encoding, palloc'd; NULL if it is not valid or has
 *		characters that this encoding does not have.
 */
char *
zk_text_of_utf8(const char *utf8, int len)
{
	int			encoding = GetDatabaseEncoding();
	char	   *text;
	Oid			conversion;

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return pg_verify_mbstr(encoding, utf8, len, true) ?
			pnstrdup(utf8, len) : NULL;

	conversion = FindDefaultConversionProc(PG_UTF8, encoding);
	if (!OidIsValid(conversion) ||
		!pg_verify_mbstr(PG_UTF8, utf8, len, true))
		return NULL;
	text = palloc(len * MAX_CONVERSION_GROWTH + 1);

	if (pg_do_encoding_conversion_buf(conversion, PG_UTF8, encoding,
									  (unsigned char *) unconstify(char *, utf8),
									  len, (unsigned char *) text,
									  len * MAX_CONVERSION_GROWTH + 1,
									  true) != len)
		return NULL;
	return text;
}

/*
 * zk_name_of_key
 *		The lock name of a path or key, palloc'd, in the server encoding.
 *
 * A name that was taken in another database may not exist in this one's
 * encoding; then it is given as it stands in the path.
 */
char *
zk_name_of_key(const char *key)
{
	char	   *path = zk_path_of_key(key);
	const char *slash = strrchr(path, '/');
	const char *encoded = slash ? slash + 1 : path;
	char		utf8[ZNODE_MAX_NAME + 1];
	int			len = znode_decode_name(encoded, utf8, sizeof(utf8));
	char	   *name = len < 0 ? NULL : zk_text_of_utf8(utf8, len);

	return name ? name : pstrdup(encoded);
}
