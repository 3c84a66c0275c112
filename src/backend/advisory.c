/*-------------------------------------------------------------------------
 *
 * advisory.c
 *		The functions that stand in for PostgreSQL's advisory lock functions.
 *
 * With zklock.advisory_locks on, replace.c replaces PostgreSQL's by them.
 * They take locks in ZooKeeper named "advisory/<namespace>/<key>", whose first
 * tier has PostgreSQL's advisory lock of the same key, scope and mode
 * (heavyweight.c).  So they and sessions that take that lock from PostgreSQL
 * exclude each other, and pg_locks shows its holders.
 *
 * A plan may be older than the current value of the setting.  So they check
 * the setting when they are called: if it is off, they call PostgreSQL's
 * function.  Unlocking does not depend on it: a hold in ZooKeeper is undone
 * first.
 *
 * PostgreSQL counts a session's locks for each mode separately; here each hold
 * has a mode, but the lock itself, and the heavyweight lock of every hold, has
 * the mode of the first hold (holds.c).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/advisory.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/advisory.h"
#include "backend/functions.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "catalog/pg_proc.h"
#include "core/lock/znode.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(zk_advisory_call);

#define BOTH_FORMS(FUNCTION, verb, act, shared, session) \
	{F_PG_##FUNCTION##_INT8, "zk_" #verb, 1, pg_##verb##_int8, \
	act, shared, session}, \
	{F_PG_##FUNCTION##_INT4_INT4, "zk_" #verb, 2, pg_##verb##_int4, \
	act, shared, session}

const AdvisoryFunction advisory_functions[ADVISORY_FUNCTIONS] = {
	BOTH_FORMS(ADVISORY_LOCK, advisory_lock,
			   ADVISORY_LOCK, false, true),
	BOTH_FORMS(ADVISORY_LOCK_SHARED, advisory_lock_shared,
			   ADVISORY_LOCK, true, true),
	BOTH_FORMS(ADVISORY_XACT_LOCK, advisory_xact_lock,
			   ADVISORY_LOCK, false, false),
	BOTH_FORMS(ADVISORY_XACT_LOCK_SHARED, advisory_xact_lock_shared,
			   ADVISORY_LOCK, true, false),
	BOTH_FORMS(TRY_ADVISORY_LOCK, try_advisory_lock,
			   ADVISORY_TRY, false, true),
	BOTH_FORMS(TRY_ADVISORY_LOCK_SHARED, try_advisory_lock_shared,
			   ADVISORY_TRY, true, true),
	BOTH_FORMS(TRY_ADVISORY_XACT_LOCK, try_advisory_xact_lock,
			   ADVISORY_TRY, false, false),
	BOTH_FORMS(TRY_ADVISORY_XACT_LOCK_SHARED, try_advisory_xact_lock_shared,
			   ADVISORY_TRY, true, false),
	BOTH_FORMS(ADVISORY_UNLOCK, advisory_unlock,
			   ADVISORY_UNLOCK, false, true),
	BOTH_FORMS(ADVISORY_UNLOCK_SHARED, advisory_unlock_shared,
			   ADVISORY_UNLOCK, true, true),
	{F_PG_ADVISORY_UNLOCK_ALL, "zk_advisory_unlock_all", 0,
	pg_advisory_unlock_all, ADVISORY_UNLOCK_ALL, false, true}
};

/*
 * advisory_find
 *		The number of the function with this name and number of arguments, or
 *		-1.
 */
int
advisory_find(const char *standin, int nargs)
{
	for (int i = 0; i < ADVISORY_FUNCTIONS; i++)
		if (advisory_functions[i].nargs == nargs &&
			strcmp(advisory_functions[i].standin, standin) == 0)
			return i;
	return -1;
}

/*
 * The function that is called.  A role that may not call PostgreSQL's must not
 * call ours instead; checked once for each call in a plan, as the executor
 * does.
 */
static const AdvisoryFunction *
get_function(FunctionCallInfo fcinfo)
{
	FmgrInfo   *flinfo = fcinfo->flinfo;

	if (flinfo->fn_extra == NULL)
	{
		char	   *name = get_func_name(flinfo->fn_oid);
		int			number = name ? advisory_find(name, PG_NARGS()) : -1;
		const AdvisoryFunction *function;
		AclResult	allowed;

		if (number < 0)
			elog(ERROR, "function %u stands in for no advisory lock function",
				 flinfo->fn_oid);
		function = &advisory_functions[number];
		allowed = ZkCheckExecute(function->oid, GetUserId());
		if (allowed != ACLCHECK_OK)
			aclcheck_error(allowed, OBJECT_FUNCTION,
						   get_func_name(function->oid));
		flinfo->fn_extra = unconstify(AdvisoryFunction *, function);
	}
	return flinfo->fn_extra;
}

/* The lock that the arguments stand for. */
static void
get_lock(FunctionCallInfo fcinfo, ZkLockName *lock)
{
	int32		keys[2];

	if (PG_NARGS() == 1)
	{
		zk_advisory_name(NULL, PG_GETARG_INT64(0), lock);
		return;
	}
	keys[0] = PG_GETARG_INT32(0);
	keys[1] = PG_GETARG_INT32(1);
	zk_advisory_name(keys, 0, lock);
}

/* pg_advisory_lock() and others: returns whether the lock was taken. */
static bool
take(FunctionCallInfo fcinfo, const AdvisoryFunction *function)
{
	ZkLockName	lock;
	ZkRequest	request = {.keys = &lock.key,.nkeys = 1};

	get_lock(fcinfo, &lock);
	request.name = lock.name;
	request.kind = kind_of_lock(function->shared);
	request.session = function->session;
	request.try = function->act == ADVISORY_TRY;
	request.timeout = request.try ? 0 : ZK_NO_TIMEOUT;
	return acquire_or_fail(&request);
}

/* Does a held lock stand for this advisory lock? */
static bool
stands_for(const HeldLock *lock, const LOCKTAG *tag)
{
	return lock->heavyweight.ntags == 2 &&
		memcmp(&lock->heavyweight.tags[1], tag, sizeof(LOCKTAG)) == 0;
}

/*
 * Undo the session's latest hold in this mode, if any.  It may have been taken
 * with another zklock.root.
 */
static bool
undo_hold(const ZkKey *key, const LOCKTAG *tag, bool shared)
{
	HeldLock   *lock = hold_find(key);

	if (lock && hold_release_advisory(lock, shared))
		return true;
	for (lock = holds_next(NULL); lock != NULL; lock = holds_next(lock))
		if (stands_for(lock, tag) && hold_release_advisory(lock, shared))
			return true;
	return false;
}

/*
 * Call PostgreSQL's function, which releases PostgreSQL's own lock, or warns
 * that there is none.
 *
 * Session-scoped holds that are marked as undone keep their lock: the session
 * gives it up and the transaction holds it meanwhile, so that nothing waits
 * and no other backend gets it.
 */
static Datum
undo_own(FunctionCallInfo fcinfo, const AdvisoryFunction *function,
		 const LOCKTAG *tag)
{
	Heavyweight own = {
		.tags = {*tag},
		.ntags = 1,
		.mode = function->shared ? ShareLock : ExclusiveLock
	};
	int64		aside = 0;
	Datum		result;

	for (HeldLock *lock = holds_next(NULL); lock; lock = holds_next(lock))
		if (stands_for(lock, tag) && lock->heavyweight.mode == own.mode)
			aside += hold_count_of_session(lock);
	if (aside == 0)
		return function->function(fcinfo);

	(void) heavyweight_lock(&own, false, false, -1);
	heavyweight_unlock(&own, true, aside);
	result = function->function(fcinfo);
	while (aside-- > 0)
		(void) heavyweight_lock(&own, true, false, -1);
	heavyweight_unlock(&own, false, 1);
	return result;
}

/* pg_advisory_unlock() and pg_advisory_unlock_shared(). */
static Datum
undo(FunctionCallInfo fcinfo, const AdvisoryFunction *function)
{
	ZkLockName	name;
	LOCKTAG		tag;

	if (!holds_exist())
		return function->function(fcinfo);
	get_lock(fcinfo, &name);
	if (!key_advisory_tag(&name.key, &tag))
		elog(ERROR, "\"%s\" stands for no advisory lock", name.name);
	if (undo_hold(&name.key, &tag, function->shared))
		PG_RETURN_BOOL(true);
	return undo_own(fcinfo, function, &tag);
}

/*
 * zk_advisory_lock(bigint), zk_try_advisory_lock(integer, integer), ...
 *
 * Each does in ZooKeeper what PostgreSQL's function does, whose name begins
 * with "pg_".
 *
 * Errors: 42501 without the privilege for that function; those of
 * acquire_or_fail() and, to unlock too, of zk_advisory_name().
 */
Datum
zk_advisory_call(PG_FUNCTION_ARGS)
{
	const AdvisoryFunction *function = get_function(fcinfo);

	switch (function->act)
	{
		case ADVISORY_LOCK:
		case ADVISORY_TRY:
			if (zklock_advisory_locks == ZK_ADVISORY_OFF)
				return function->function(fcinfo);

			/*
			 * one that waits returns void, and only comes here with the lock
			 */
			PG_RETURN_BOOL(take(fcinfo, function));
		case ADVISORY_UNLOCK:
			return undo(fcinfo, function);
		case ADVISORY_UNLOCK_ALL:
			holds_release_advisory();
			break;
	}
	PG_RETURN_VOID();
}
