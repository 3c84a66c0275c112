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
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "zklock.h"

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_fencing_token);
PG_FUNCTION_INFO_V1(zk_fence);

/* A lock as an SQL function names it. */
typedef struct LockName
{
	char	   *name;			/* in the server encoding */
	char		path[ZNODE_PATH_SIZE];
} LockName;

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

/* The lock that argument 0 names. */
static void
get_lock_name(FunctionCallInfo fcinfo, LockName *lock)
{
	text	   *name;
	char	   *utf8;
	char		encoded[ZNODE_MAX_NAME + 1];

	zk_check_preloaded();
	if (IsParallelWorker())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot use locks in ZooKeeper in a parallel worker")));
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock name must not be null")));

	name = PG_GETARG_TEXT_PP(0);
	lock->name = text_to_cstring(name);
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
	snprintf(lock->path, sizeof(lock->path), "%s/%s", zklock_root, encoded);
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

/* The arguments "shared" and "session", of which only false is supported. */
static void
check_mode(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(2) || PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("mode and scope of a lock must not be null")));
	if (PG_GETARG_BOOL(2))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("shared locks are not supported")));
	if (PG_GETARG_BOOL(3))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("session-scoped locks are not supported")));
}

/*
 * zk_lock(name text, timeout interval, shared boolean, session boolean)
 *		returns void
 *
 * Wait for the lock and take it.  A NULL timeout leaves the bound to
 * lock_timeout.
 *
 * Errors: 22004 NULL name; 22023 empty or overlong name, negative timeout;
 * 0A000 shared or session; 55000 not preloaded; and those of hold_acquire().
 */
Datum
zk_lock(PG_FUNCTION_ARGS)
{
	LockName	lock;

	get_lock_name(fcinfo, &lock);
	check_mode(fcinfo);
	hold_acquire(lock.path, lock.name, get_timeout(fcinfo, 1), false);
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
	LockName	lock;

	get_lock_name(fcinfo, &lock);
	check_mode(fcinfo);
	PG_RETURN_BOOL(hold_acquire(lock.path, lock.name,
								get_timeout(fcinfo, 1), true));
}

/*
 * zk_unlock(name text) returns boolean
 *
 * Undo the latest hold; false and a WARNING if there is none.  Errors: those
 * of the name, as in zk_lock().
 */
Datum
zk_unlock(PG_FUNCTION_ARGS)
{
	LockName	lock;

	get_lock_name(fcinfo, &lock);
	if (hold_release(lock.path))
		PG_RETURN_BOOL(true);
	ereport(WARNING,
			(errmsg("you do not hold lock \"%s\"", lock.name)));
	PG_RETURN_BOOL(false);
}

/*
 * zk_fencing_token(name text) returns bigint
 *
 * The token of a lock that this transaction holds.  Errors: those of the
 * name, as in zk_lock(), and of hold_token().
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	LockName	lock;

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
	LockName	lock;
	int64		token;

	get_lock_name(fcinfo, &lock);
	PreventCommandIfReadOnly("zk_fence()");
	token = hold_token(lock.path, lock.name);
	fence_write(fcinfo->flinfo->fn_oid, lock.name, token);
	PG_RETURN_INT64(token);
}
