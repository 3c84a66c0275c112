/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The SQL functions that take and give back locks.
 *
 * Arguments in, errors and results out; what the calls do is in holds.c.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/functions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/parallel.h"
#include "backend/backend.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/qunique.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_lock_all);
PG_FUNCTION_INFO_V1(zk_acquire);
PG_FUNCTION_INFO_V1(zk_try_acquire);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_fencing_token);
PG_FUNCTION_INFO_V1(zk_fence);

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
 * Fail (F0000) if a setting has been given a value that is none: with the
 * default in its place this would be another lock.
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

/* The lock that argument 0 names. */
static void
get_lock_name(FunctionCallInfo fcinfo, ZkLockName *lock)
{
	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), lock);
}

/* A timeout argument in ms, rounded up; NULL and infinity are none. */
static int64
get_timeout(FunctionCallInfo fcinfo, int argno)
{
	Interval   *interval;
	int64		days;
	int64		ms;
	int64		rest;

	if (PG_ARGISNULL(argno))
		return ZK_NO_TIMEOUT;
	interval = PG_GETARG_INTERVAL_P(argno);
	if (INTERVAL_NOT_FINITE(interval) && interval->month > 0)
		return ZK_NO_TIMEOUT;

	days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	ms = days * (USECS_PER_DAY / 1000) + interval->time / 1000;
	rest = interval->time % 1000;
	if (ms < 0 || (ms == 0 && rest < 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock timeout must not be negative")));
	return rest > 0 ? ms + 1 : ms;
}

/* A boolean argument that tells the mode or the scope. */
static bool
get_choice(FunctionCallInfo fcinfo, int argno)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("mode and scope of a lock must not be null")));
	return PG_GETARG_BOOL(argno);
}

static ZnodeKind
kind_of_lock(bool shared)
{
	if (shared)
		return ZNODE_READER;
	return zklock_node_format == ZK_FORMAT_READWRITE ?
		ZNODE_WRITER : ZNODE_MUTEX;
}

/* zk_lock() and zk_try_lock(). */
static bool
acquire_lock(FunctionCallInfo fcinfo, bool try)
{
	ZkLockName	lock;
	char	   *key = lock.path;
	ZkRequest	request = {.keys = &key,.nkeys = 1,.try = try};

	get_lock_name(fcinfo, &lock);
	request.name = lock.name;
	request.timeout = get_timeout(fcinfo, 1);
	request.kind = kind_of_lock(get_choice(fcinfo, 2));
	request.session = get_choice(fcinfo, 3);
	return hold_acquire(&request);
}

/*
 * zk_lock(name text, timeout interval, shared boolean, session boolean)
 *		returns void
 *
 * Wait for the lock and take it.  A NULL timeout leaves the bound to
 * lock_timeout.
 *
 * Errors: 22004 NULL name, mode or scope; 22023 empty or overlong name,
 * negative timeout; 55000 not preloaded; and those of hold_acquire().
 */
Datum
zk_lock(PG_FUNCTION_ARGS)
{
	(void) acquire_lock(fcinfo, false);
	PG_RETURN_VOID();
}

/*
 * zk_try_lock(name text, timeout interval, shared boolean, session boolean)
 *		returns boolean
 *
 * As zk_lock(), but false if the lock cannot be had in time.
 */
Datum
zk_try_lock(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire_lock(fcinfo, true));
}

/*
 * zk_lock_all(names text[], timeout interval, shared boolean, session boolean)
 *		returns void
 *
 * Wait for all the locks and take them: all or none.  A name that comes twice
 * counts once.  Errors: as zk_lock(), and 22004 NULL array or element; 54000
 * more than ZK_MAX_TOGETHER names.
 */
Datum
zk_lock_all(PG_FUNCTION_ARGS)
{
	Datum	   *names;
	bool	   *nulls;
	int			nnames;
	ZkLockName *locks;
	ZkRequest	request = {0};

	zk_check_preloaded();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock names must not be null")));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false,
					  TYPALIGN_INT, &names, &nulls, &nnames);
	request.timeout = get_timeout(fcinfo, 1);
	request.kind = kind_of_lock(get_choice(fcinfo, 2));
	request.session = get_choice(fcinfo, 3);
	if (nnames == 0)
		PG_RETURN_VOID();

	locks = palloc(nnames * sizeof(ZkLockName));
	request.keys = palloc(nnames * sizeof(char *));
	for (int i = 0; i < nnames; i++)
	{
		zk_lock_name(names[i], nulls[i], &locks[i]);
		request.keys[i] = locks[i].path;
	}
	request.name = locks[0].name;
	qsort(request.keys, nnames, sizeof(char *), pg_qsort_strcmp);
	request.nkeys = qunique(request.keys, nnames, sizeof(char *),
							pg_qsort_strcmp);
	if (request.nkeys > ZK_MAX_TOGETHER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot take more than %d locks together",
						ZK_MAX_TOGETHER)));
	(void) hold_acquire(&request);
	PG_RETURN_VOID();
}

/* zk_acquire() and zk_try_acquire(). */
static bool
acquire_permit(FunctionCallInfo fcinfo, bool try)
{
	ZkLockName	lock;
	char		key[ZK_SLOT_KEY_SIZE];
	char	   *key_pointer = key;
	ZkRequest	request = {.keys = &key_pointer,.nkeys = 1,.try = try};

	get_lock_name(fcinfo, &lock);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("number of permits must not be null")));
	request.permits = PG_GETARG_INT32(1);
	if (request.permits < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of permits must be at least 1")));
	request.name = lock.name;
	request.timeout = get_timeout(fcinfo, 2);
	request.kind = ZNODE_PERMIT;
	request.session = get_choice(fcinfo, 3);
	zk_semaphore_key(lock.path, key);
	return hold_acquire(&request);
}

/*
 * zk_acquire(name text, permits integer, timeout interval, session boolean)
 *		returns void
 *
 * Wait for one of the permits of a semaphore and take it.  Errors: as
 * zk_lock(), and 22004, 22023 a number of permits that is NULL or below 1.
 */
Datum
zk_acquire(PG_FUNCTION_ARGS)
{
	(void) acquire_permit(fcinfo, false);
	PG_RETURN_VOID();
}

/*
 * zk_try_acquire(name text, permits integer, timeout interval,
 *				  session boolean) returns boolean
 *
 * As zk_acquire(), but false if no permit can be had in time.
 */
Datum
zk_try_acquire(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(acquire_permit(fcinfo, true));
}

/*
 * zk_unlock(name text) returns boolean
 *
 * Undo the latest hold of a lock or semaphore; false and a WARNING if there is
 * none.  Errors: those of the name, as in zk_lock().
 */
Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	char		key[ZK_SLOT_KEY_SIZE];

	get_lock_name(fcinfo, &lock);
	zk_semaphore_key(lock.path, key);
	if (hold_release(lock.path) || hold_release(key))
		PG_RETURN_BOOL(true);
	ereport(WARNING,
			(errmsg("you do not hold lock \"%s\"", lock.name)));
	PG_RETURN_BOOL(false);
}

/*
 * zk_unlock_all() returns void
 *
 * Undo all session-scoped holds.  Errors: 55000 not preloaded.
 */
Datum
zk_unlock_all(PG_FUNCTION_ARGS)
{
	zk_check_preloaded();
	hold_release_session();
	PG_RETURN_VOID();
}

/*
 * zk_fencing_token(name text) returns bigint
 *
 * The token of a lock that this session holds.  Errors: those of the name, as
 * in zk_lock(), and of hold_token().
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;

	get_lock_name(fcinfo, &lock);
	PG_RETURN_INT64(hold_token(lock.path, lock.name));
}

/*
 * zk_fence(name text) returns bigint
 *
 * The token of a lock that this transaction holds, written into table
 * zk_fences.  Errors: those of the name, as in zk_lock(); 25006 in a read-only
 * transaction; those of hold_token() and fence_write().
 */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	int64		token;

	get_lock_name(fcinfo, &lock);
	PreventCommandIfReadOnly("zk_fence()");
	token = hold_token(lock.path, lock.name);
	fence_write(fcinfo->flinfo->fn_oid, lock.name, token);
	PG_RETURN_INT64(token);
}
