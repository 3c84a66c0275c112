/*-------------------------------------------------------------------------
 *
 * names.c
 *		Names of locks and other values, between SQL and ZooKeeper; and whether
 *		functions can work.
 *
 * SQL gives a name in the server encoding.  Its key has it in UTF-8,
 * percent-encoded into one path component below zklock.root.
 *
 * A lock named "advisory/<namespace>/<key>", or "<key1>,<key2>" at the end,
 * stands for the advisory lock of that key of the database it is taken in, if
 * the namespace is that of the session.  Else it is a lock like any other.  It
 * never stands for an advisory lock of another database: a role that may not
 * connect to a database must not be able to block its advisory locks.
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
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "core/lock/znode.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/text.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(zk_warn_not_preloaded);

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
 * check_row_columns
 *		Check that rows with so many columns fit the schema.
 *
 * A newer version of the extension adds columns at the end.  If the schema is
 * older than the library, it has the first columns.  If it is newer, the
 * server has not been restarted since the update.
 */
void
check_row_columns(TupleDesc tupdesc, int columns)
{
	if (tupdesc->natts > columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extension zklock is newer than the library that the server has loaded"),
				 errhint("Restart the server.")));
}

/*
 * zk_warn_not_preloaded() returns void
 *
 * Warns at CREATE or ALTER EXTENSION, if zklock was not loaded at server
 * start.  For the extension's scripts only.
 */
Datum
zk_warn_not_preloaded(PG_FUNCTION_ARGS pg_attribute_unused())
{
	if (!slots_available())
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zklock must be loaded via \"shared_preload_libraries\""),
				 errdetail("Its functions and views fail until then."),
				 errhint("Add zklock to \"shared_preload_libraries\" and restart the server.")));
	PG_RETURN_VOID();
}

/*
 * Fail (F0000, or 0A000) if a setting has an invalid value: with the default
 * in its place this would be another lock, or a connection in clear.
 */
static void
check_settings(void)
{
	ZkWrongSetting wrong;

	if (!zk_wrong_setting(true, &wrong))
		return;
	ereport(ERROR,
			(errcode(wrong.sqlstate),
			 errmsg("cannot use locks in ZooKeeper because of an invalid value for parameter \"%s\"",
					wrong.name),
			 wrong.value ?
			 errdetail("The value is \"%s\".  %s", wrong.value, wrong.problem) :
			 errdetail("%s", wrong.problem),
			 errhint("Correct the value where it is set: for the role or database, or in a configuration file, which must then be reloaded.")));
}

/* The namespace of this session's advisory locks. */
static const char *
advisory_namespace(void)
{
	const char *database;

	if (zklock_advisory_namespace[0] != '\0')
		return zklock_advisory_namespace;
	database = get_database_name(MyDatabaseId);
	if (database == NULL)
		elog(ERROR, "could not find the name of database %u", MyDatabaseId);
	return database;
}

/* Does the name stand for an advisory lock of this database? */
static bool
is_advisory(const char *name)
{
	const char *space = name + strlen(ZK_ADVISORY_PREFIX);
	const char *slash;
	ZkAdvisoryKey advisory;

	if (strncmp(name, ZK_ADVISORY_PREFIX, strlen(ZK_ADVISORY_PREFIX)) != 0 ||
		(slash = strrchr(space, '/')) == NULL ||
		!key_parse_advisory(slash + 1, &advisory))
		return false;
	return strcmp(advisory_namespace(), pnstrdup(space, slash - space)) == 0;
}

/*
 * zk_check_usable
 *		Fail if this process cannot use locks in ZooKeeper: 55000 not
 *		preloaded, or in single-user mode; 0A000 in a parallel worker; F0000 a
 *		setting is wrong.
 */
void
zk_check_usable(void)
{
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
	procs_note_role();
}

/*
 * zk_check_fleet
 *		Fail (0A000) if this SQL function, which needs ZooKeeper, is called
 *		while locks do without.
 */
void
zk_check_fleet(Oid function)
{
	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot call %s() while locks exclude sessions of this server only",
						get_func_name(function)),
				 errdetail("\"zklock.exclusion\" is \"instance\", so ZooKeeper is not asked.")));
}

/*
 * zk_lock_name
 *		The lock that an SQL argument names.
 *
 * Errors: those of zk_check_usable(); 22004 NULL; 22023 empty or too long;
 * 53200 out of roots.
 */
void
zk_lock_name(Datum name, bool isnull, ZkLockName *lock)
{
	char	   *utf8;
	char		encoded[ZNODE_MAX_NAME + 1];

	zk_check_usable();
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
				 errdetail("It is longer than %d bytes in a znode path, where letters, digits and \"-_.~:@=+,\" take one byte and every other byte of UTF-8 takes three.",
						   ZNODE_MAX_NAME)));
	key_make(zklock_root, encoded, &lock->key);
	key_set_advisory(&lock->key, is_advisory(lock->name));
}

/*
 * zk_advisory_name
 *		The lock that stands for PostgreSQL's advisory lock of two integers, or
 *		of "key" if "keys" is NULL, in this database.
 *
 * Errors: those of zk_lock_name(), except for NULL and the length.
 */
void
zk_advisory_name(const int32 *keys, int64 key, ZkLockName *lock)
{
	StringInfoData name;

	initStringInfo(&name);
	appendStringInfo(&name, ZK_ADVISORY_PREFIX "%s/", advisory_namespace());
	if (keys)
		appendStringInfo(&name, "%d,%d", keys[0], keys[1]);
	else
		appendStringInfo(&name, INT64_FORMAT, key);
	zk_lock_name(CStringGetTextDatum(name.data), false, lock);
}

/* Decode a name from a path to the server encoding, palloc'd. */
static char *
decoded_name(const char *encoded)
{
	char		utf8[ZNODE_MAX_NAME + 1];
	int			len = znode_decode_name(encoded, utf8, sizeof(utf8));
	char	   *name = len < 0 ? NULL : text_of_utf8(utf8, len);

	return name ? name : text_of_string(encoded);
}

/*
 * key_name
 *		The name of the lock in the server encoding, palloc'd.
 *
 * A name taken in another database may not exist in this one's encoding; then
 * it is returned as it is in the path.
 */
char *
key_name(const ZkKey *key)
{
	return decoded_name(key->name);
}

static const char *
last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * path_lock_name
 *		The name of the lock with this directory, as key_name().
 */
char *
path_lock_name(const char *path)
{
	return decoded_name(last_component(path));
}

/*
 * path_lock_text
 *		As path_lock_name(), for messages: with printing characters only.
 */
char *
path_lock_text(const char *path)
{
	const char *encoded = last_component(path);
	char		utf8[ZNODE_MAX_NAME + 1];
	int			len = znode_decode_name(encoded, utf8, sizeof(utf8));

	return len < 0 ? text_of_string(encoded) : text_of_data(utf8, len);
}

/*
 * interval_of_us
 *		A time in microseconds as an interval.
 */
Datum
interval_of_us(int64 us)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return IntervalPGetDatum(interval);
}

/*
 * session_id_text
 *		The id of a ZooKeeper session as text, as ZooKeeper writes it.
 */
Datum
session_id_text(int64 session_id)
{
	return CStringGetTextDatum(psprintf("0x%llx",
										(unsigned long long) session_id));
}
