/*-------------------------------------------------------------------------
 *
 * functions.c
 *		The SQL functions that take and release locks.
 *
 * Arguments in, errors and results out; what the calls do is in acquire.c and
 * holds.c.
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

#include "access/htup_details.h"
#include "backend/acquire.h"
#include "backend/deadlock.h"
#include "backend/fence.h"
#include "backend/functions.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/snapshot.h"
#include "backend/timeout.h"
#include "core/lock/znode.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/outcome.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(zk_lock);
PG_FUNCTION_INFO_V1(zk_try_lock);
PG_FUNCTION_INFO_V1(zk_lock_all);
PG_FUNCTION_INFO_V1(zk_lock_any);
PG_FUNCTION_INFO_V1(zk_try_lock_any);
PG_FUNCTION_INFO_V1(zk_wait_lock);
PG_FUNCTION_INFO_V1(zk_wait_lock_all);
PG_FUNCTION_INFO_V1(zk_wait_lock_any);
PG_FUNCTION_INFO_V1(zk_acquire);
PG_FUNCTION_INFO_V1(zk_try_acquire);
PG_FUNCTION_INFO_V1(zk_unlock);
PG_FUNCTION_INFO_V1(zk_unlock_all);
PG_FUNCTION_INFO_V1(zk_fencing_token);
PG_FUNCTION_INFO_V1(zk_fence);

/* The lock that argument 0 names. */
static void
get_lock_name(FunctionCallInfo fcinfo, ZkLockName *lock)
{
	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), lock);
}

/*
 * get_timeout
 *		A timeout argument in ms, rounded up; NULL and infinity mean no
 *		timeout.
 */
int64
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

/* A boolean argument for the mode or the scope. */
static bool
get_choice(FunctionCallInfo fcinfo, int argno)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("mode and scope of a lock must not be null")));
	return PG_GETARG_BOOL(argno);
}

/*
 * kind_of_lock
 *		The kind of contender that a lock of this mode needs.
 */
ZnodeKind
kind_of_lock(bool shared)
{
	if (shared)
		return ZNODE_READER;
	return zklock_node_format == ZK_FORMAT_READWRITE ?
		ZNODE_WRITER : ZNODE_MUTEX;
}

/* The paths of the session's znodes would be too long, in all. */
static void
report_no_room(const char *name)
{
	int			nlocks;
	int64		bytes = path_bytes_read(&nlocks);

	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("no room for lock \"%s\" in the ZooKeeper session", name),
			 errdetail("The paths of this server's znodes, for %d locks, take %lld of %d bytes.",
					   nlocks, (long long) bytes, ZK_PATH_BYTES_BOUND),
			 errhint("Hold and wait for fewer locks at a time, use shorter names or a shorter \"zklock.root\", or set \"zklock.retain_time\" to 0.")));
}

/* A lock and a semaphore have the same name. */
static void
report_mixed(const char *name, bool permit)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 permit ?
			 errmsg("\"%s\" is in use as a lock, not as a semaphore", name) :
			 errmsg("\"%s\" is in use as a semaphore, not as a lock", name),
			 permit ?
			 errdetail("Another session or client uses it as a lock.") :
			 errdetail("Another session uses zk_acquire() with this name, or another client uses Curator's semaphore."),
			 errhint("Use different names.  ZooKeeper removes the directory of an unused name within a minute or two.")));
}

static void
report_refusal(const ZkRequest *request, const ZkResult *result)
{
	const char *name = result->name;
	bool		permit = request->kind == ZNODE_PERMIT;
	char		path[ZNODE_PATH_SIZE];

	key_path(result->key, path);
	switch (result->refusal)
	{
		case ZK_REFUSAL_PERMITS:
			permits_report(name, request->permits, result->permits_found);
			break;
		case ZK_REFUSAL_MIXED:
			report_mixed(name, permit);
			break;
		case ZK_REFUSAL_ENDED:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the sequence numbers of \"%s\" in ZooKeeper are used up",
							name),
					 errdetail("ZooKeeper's counter of the directory \"%s\" has ended at 2147483647, and znodes in the directory prevent it from being made again.",
							   path),
					 errhint("Stop the other clients that use this name, and delete their znodes and the directory.")));
			break;
		case ZK_REFUSAL_ACCESS:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("ZooKeeper denied access to lock \"%s\"", name),
					 errdetail("The credentials of this server do not allow it to create znodes in \"%s\".",
							   path),
					 errhint("Check \"%s\" and \"zklock.acl\", and the ACL of the znode.",
							 secure_name_of_credentials())));
			break;
		case ZK_REFUSAL_NO_CHROOT:
			ereport(ERROR,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg("could not create lock \"%s\" in ZooKeeper", name),
					 errdetail("The chroot of \"zklock.servers\" does not exist in ZooKeeper."),
					 errhint("Create that znode, or change \"zklock.servers\".")));
			break;
		case ZK_REFUSAL_NO_ROOM:
			report_no_room(name);
			break;
		case ZK_REFUSAL_NONE:
		case ZK_REFUSAL_OTHER:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("ZooKeeper refused lock \"%s\"", name),
					 errhint("The server log has the details.")));
			break;
	}
}

/* Report why the locks of a request were not acquired. */
static void
report_failure(const ZkRequest *request, const ZkResult *result)
{
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = waiting_error_context,
		.arg = unconstify(char *, result->name)
	};

	switch (result->outcome)
	{
		case ZK_NO_SESSION:
			error_context_stack = &context;
			zk_report_no_session(ERROR, result->name, result->session);
			break;
		case ZK_DENIED:
			error_context_stack = &context;
			report_refusal(request, result);
			break;
		case ZK_DEADLOCKED:
			error_context_stack = &context;
			deadlock_report(result->deadlock);
			break;
		case ZK_HELD_ALL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("this session holds all of these locks already"),
					 errdetail("Locks that the session holds are not free, and nobody else can release them.")));
			break;
		case ZK_NOT_IN_TIME:
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not obtain lock \"%s\" in ZooKeeper",
							result->name),
					 result->outage ? errdetail("%s", result->outage) : 0));
			break;
		case ZK_PENDING:
		case ZK_UNPROVED:
		case ZK_QUEUED:
		case ZK_REQUEUE_TIER1:
		case ZK_REQUEUE_BEHIND:
		case ZK_LOST:
		case ZK_ACQUIRED:
			Assert(false);
			break;
	}
}

/*
 * Warn if a try has failed because of ZooKeeper, and not because the lock is
 * held.
 */
static void
warn_of_outage(const ZkRequest *request, const ZkResult *result)
{
	if (result->outage == NULL)
		return;
	ereport(WARNING,
			(request->nkeys > 1 ?
			 errmsg("could not learn in time whether any of %d locks is free",
					request->nkeys) :
			 request->kind == ZNODE_PERMIT ?
			 errmsg("could not learn in time whether semaphore \"%s\" has a free permit",
					result->name) :
			 errmsg("could not learn in time whether lock \"%s\" is free",
					result->name),
			 errdetail("%s", result->outage)));
}

/*
 * acquire_or_fail
 *		Take the locks of a request.  If they are not available in time,
 *		returns false if the request has "try".
 *
 * Errors: 55P03 timeout; 53200 out of slots, or of room in the session; 57P03
 * no session; 42501, 55000, F0000 or 58000 refused by ZooKeeper; 57014
 * canceled; 40P01 deadlock, within the instance or with others; 40001 if a
 * lock is held, but has been lost; 55000 if a shared lock would have to be
 * made exclusive, a semaphore has other permits, or a name is a lock here and
 * a semaphore there.
 */
bool
acquire_or_fail(const ZkRequest *request)
{
	ZkResult	result;
	ZkOutcome	outcome = acquire_locks(request, &result);

	if (outcome == ZK_NOT_IN_TIME && request->try)
	{
		warn_of_outage(request, &result);
		return false;
	}
	if (outcome != ZK_ACQUIRED)
		report_failure(request, &result);
	return true;
}

#define BOTH_FORMS(FUNCTION) \
	{F_PG_##FUNCTION##_INT8, F_PG_##FUNCTION##_INT4_INT4}

/* PostgreSQL's functions: by try, session, shared, and two integers. */
static const Oid advisory_lock_functions[2][2][2][2] = {
	{
		{BOTH_FORMS(ADVISORY_XACT_LOCK), BOTH_FORMS(ADVISORY_XACT_LOCK_SHARED)},
		{BOTH_FORMS(ADVISORY_LOCK), BOTH_FORMS(ADVISORY_LOCK_SHARED)}
	},
	{
		{BOTH_FORMS(TRY_ADVISORY_XACT_LOCK), BOTH_FORMS(TRY_ADVISORY_XACT_LOCK_SHARED)},
		{BOTH_FORMS(TRY_ADVISORY_LOCK), BOTH_FORMS(TRY_ADVISORY_LOCK_SHARED)}
	}
};

/*
 * Fail (42501) if a name stands for an advisory lock of PostgreSQL that the
 * role may not take from PostgreSQL in this way.
 */
static void
check_advisory(const ZkRequest *request)
{
	bool		shared = request->kind == ZNODE_READER;

	for (int i = 0; i < request->nkeys; i++)
	{
		LOCKTAG		tag;
		Oid			function;
		AclResult	allowed;

		if (!key_advisory_tag(&request->keys[i], &tag))
			continue;
		function = advisory_lock_functions[request->try][request->session]
			[shared][tag.locktag_field4 == 2];
		allowed = ZkCheckExecute(function, GetUserId());
		if (allowed != ACLCHECK_OK)
			aclcheck_error(allowed, OBJECT_FUNCTION, get_func_name(function));
	}
}

/* The request of zk_lock() and the like; the lock goes to *lock. */
static ZkRequest
get_lock(FunctionCallInfo fcinfo, ZkLockName *lock, bool try)
{
	ZkRequest	request = {.keys = &lock->key,.nkeys = 1,.try = try};

	get_lock_name(fcinfo, lock);
	request.name = lock->name;
	request.timeout = get_timeout(fcinfo, 1);
	request.kind = kind_of_lock(get_choice(fcinfo, 2));
	request.session = get_choice(fcinfo, 3);
	check_advisory(&request);
	return request;
}

/*
 * zk_lock(name text, timeout interval, shared boolean, session boolean)
 *		returns void
 *
 * Wait for the lock and take it.  A NULL timeout leaves the bound to
 * lock_timeout.
 *
 * Errors: 22004 NULL name, mode or scope; 22023 empty or overlong name,
 * negative timeout; 55000 not preloaded; 42501 an advisory lock that the role
 * may not take; and those of acquire_or_fail().
 */
Datum
zk_lock(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	ZkRequest	request = get_lock(fcinfo, &lock, false);

	(void) acquire_or_fail(&request);
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
	ZkLockName	lock;
	ZkRequest	request = get_lock(fcinfo, &lock, true);

	PG_RETURN_BOOL(acquire_or_fail(&request));
}

/*
 * zk_wait_lock(name text, timeout interval, shared boolean, session boolean)
 *
 * A procedure: as zk_lock(), but waits without a snapshot.  Errors: those of
 * zk_lock(), and of snapshot_release().
 */
Datum
zk_wait_lock(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	ZkRequest	request = get_lock(fcinfo, &lock, false);

	snapshot_release(fcinfo, &request);
	(void) acquire_or_fail(&request);
	PG_RETURN_VOID();
}

/*
 * The locks that the names in an array stand for, in their order, each once:
 * an array.  An array of any length is read no further than to the first name
 * too many.
 */
static ZkKey *
get_keys(ArrayType *names, ZkRequest *request)
{
	ArrayIterator iterator = array_create_iterator(names, 0, NULL);
	HASHCTL		ctl;
	int			flags = key_hash_ctl(&ctl, sizeof(ZkKey));
	HTAB	   *seen;
	ZkKey	   *keys = palloc(ZK_MAX_NAMES * sizeof(ZkKey));
	Datum		name;
	bool		isnull;

	ctl.hcxt = CurrentMemoryContext;
	seen = hash_create("zklock names", 64, &ctl, flags | HASH_CONTEXT);
	while (array_iterate(iterator, &name, &isnull))
	{
		ZkLockName	lock;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		zk_lock_name(name, isnull, &lock);
		(void) hash_search(seen, &lock.key, HASH_ENTER, &found);
		if (!found && request->nkeys == ZK_MAX_NAMES)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("cannot take more than %d locks together",
							ZK_MAX_NAMES)));
		if (request->nkeys == 0)
			request->name = lock.name;
		else
			pfree(lock.name);
		if (!found)
			keys[request->nkeys++] = lock.key;
	}
	hash_destroy(seen);
	array_free_iterator(iterator);
	return keys;
}

/*
 * Fill in the request of zk_lock_all() and the like; returns the locks that
 * the names in argument 0 stand for.
 *
 * Errors: 22004 NULL array or element; 54000 more than ZK_MAX_NAMES names;
 * 42501 an advisory lock that the role may not take; and those of
 * zk_lock_name().
 */
static ZkKey *
get_locks(FunctionCallInfo fcinfo, ZkRequest *request)
{
	ZkKey	   *keys;

	zk_check_preloaded();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("lock names must not be null")));
	request->timeout = get_timeout(fcinfo, 1);
	request->kind = kind_of_lock(get_choice(fcinfo, 2));
	request->session = get_choice(fcinfo, 3);
	request->keys = keys = get_keys(PG_GETARG_ARRAYTYPE_P(0), request);
	check_advisory(request);
	return keys;
}

/* Take all the locks of a request, whose keys these are. */
static void
acquire_all(const ZkRequest *request, ZkKey *keys)
{
	qsort(keys, request->nkeys, sizeof(ZkKey), key_compare);
	if (request->nkeys > 0)
		(void) acquire_or_fail(request);
}

/*
 * zk_lock_all(names text[], timeout interval, shared boolean, session boolean)
 *		returns void
 *
 * Wait for all the locks and take them: all or none.  A name that comes twice
 * counts once.  Errors: as zk_lock(), and 22004 NULL array or element; 54000
 * more than ZK_MAX_NAMES names.
 */
Datum
zk_lock_all(PG_FUNCTION_ARGS)
{
	ZkRequest	request = {0};
	ZkKey	   *keys = get_locks(fcinfo, &request);

	acquire_all(&request, keys);
	PG_RETURN_VOID();
}

/*
 * zk_wait_lock_all(names text[], timeout interval, shared boolean,
 *					session boolean)
 *
 * A procedure: as zk_lock_all(), but waits without a snapshot.  Errors: those
 * of zk_lock_all(), and of snapshot_release().
 */
Datum
zk_wait_lock_all(PG_FUNCTION_ARGS)
{
	ZkRequest	request = {0};
	ZkKey	   *keys = get_locks(fcinfo, &request);

	snapshot_release(fcinfo, &request);
	acquire_all(&request, keys);
	PG_RETURN_VOID();
}

/*
 * Take the first lock of a request that is free; returns its name, or NULL if
 * the request may fail, and none is free in time.
 */
static text *
acquire_first(const ZkRequest *request)
{
	ZkResult	result;
	ZkOutcome	outcome;

	if (request->nkeys == 0)
		return NULL;
	outcome = acquire_any(request, &result);
	if (request->try && (outcome == ZK_NOT_IN_TIME || outcome == ZK_HELD_ALL))
	{
		warn_of_outage(request, &result);
		return NULL;
	}
	if (outcome == ZK_NOT_IN_TIME && request->nkeys > 1)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain any of %d locks in ZooKeeper",
						request->nkeys),
				 result.outage ? errdetail("%s", result.outage) : 0));
	if (outcome != ZK_ACQUIRED)
		report_failure(request, &result);
	return cstring_to_text(key_name(result.key));
}

/* The request of zk_lock_any(), which cannot do without a name. */
static ZkRequest
get_locks_of_any(FunctionCallInfo fcinfo)
{
	ZkRequest	request = {0};

	(void) get_locks(fcinfo, &request);
	if (request.nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there must be at least one lock name")));
	return request;
}

/*
 * zk_lock_any(names text[], timeout interval, shared boolean, session boolean)
 *		returns text
 *
 * Wait for the first of the locks that is free, take it, and return its name.
 * Errors: as zk_lock_all(), and 22023 no name; 55000 if the session holds all
 * of them already.
 */
Datum
zk_lock_any(PG_FUNCTION_ARGS)
{
	ZkRequest	request = get_locks_of_any(fcinfo);

	PG_RETURN_TEXT_P(acquire_first(&request));
}

/*
 * zk_try_lock_any(names text[], timeout interval, shared boolean,
 *				   session boolean) returns text
 *
 * As zk_lock_any(), but NULL if none of the locks can be had in time.
 */
Datum
zk_try_lock_any(PG_FUNCTION_ARGS)
{
	ZkRequest	request = {.try = true};
	text	   *name;

	(void) get_locks(fcinfo, &request);
	name = acquire_first(&request);
	if (name == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(name);
}

/*
 * zk_wait_lock_any(names text[], timeout interval, shared boolean,
 *					session boolean, INOUT name text)
 *
 * A procedure: as zk_lock_any(), but waits without a snapshot; the name of the
 * lock goes to its last parameter.  Errors: those of zk_lock_any(), and of
 * snapshot_release().
 */
Datum
zk_wait_lock_any(PG_FUNCTION_ARGS)
{
	ZkRequest	request = get_locks_of_any(fcinfo);
	TupleDesc	row;
	Datum		value;
	bool		isnull = false;

	/* ahead of the wait, since it reads catalogs */
	if (get_call_result_type(fcinfo, NULL, &row) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	row = BlessTupleDesc(row);
	snapshot_release(fcinfo, &request);
	value = PointerGetDatum(acquire_first(&request));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(row, &value, &isnull)));
}

/* zk_acquire() and zk_try_acquire(). */
static bool
acquire_permit(FunctionCallInfo fcinfo, bool try)
{
	ZkLockName	lock;
	ZkKey		key;
	ZkRequest	request = {.keys = &key,.nkeys = 1,.try = try};

	zk_check_fleet(fcinfo->flinfo->fn_oid);
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
	key_in_mode(&lock.key, ZK_KEY_PERMIT, &key);
	return acquire_or_fail(&request);
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
	ZkKey		permit;
	const HeldLock *held;

	get_lock_name(fcinfo, &lock);
	key_in_mode(&lock.key, ZK_KEY_PERMIT, &permit);
	if (hold_release(&lock.key) || hold_release(&permit))
		PG_RETURN_BOOL(true);
	held = hold_find(&lock.key);
	ereport(WARNING,
			(held && hold_is_of_claim(held) ?
			 errmsg("lock \"%s\" is held because of a claim", lock.name) :
			 errmsg("you do not hold lock \"%s\"", lock.name),
			 held && hold_is_of_claim(held) ?
			 errhint("Use zk_end_claim() to end the claim.") : 0));
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
	holds_release_session();
	PG_RETURN_VOID();
}

static void
report_no_token(const ZkLockName *lock, ZkRefusal refusal)
{
	char		path[ZNODE_PATH_SIZE];

	if (refusal != ZK_REFUSAL_ACCESS)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("ZooKeeper refused the fencing token of lock \"%s\"",
						lock->name),
				 errhint("The server log has the details.")));
	key_path(&lock->key, path);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("ZooKeeper denied access to the fencing token of lock \"%s\"",
					lock->name),
			 errdetail("The lock is held, but the ACL of its contender in \"%s\" does not allow this server to read it.",
					   path),
			 errhint("Check \"%s\" and the ACL of the contender.  The server asks ZooKeeper again every few seconds.",
					 secure_name_of_credentials())));
}

static void
report_not_held(const ZkLockName *lock)
{
	ZkKey		permit;

	key_in_mode(&lock->key, ZK_KEY_PERMIT, &permit);
	if (hold_find(&permit) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a permit of semaphore \"%s\" has no fencing token",
						lock->name),
				 errdetail("A token distinguishes a holder from earlier ones, but several sessions can have permits at the same time."),
				 errhint("Use zk_lock() for what is to be fenced.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("lock \"%s\" is not held", lock->name),
			 errhint("Call zk_lock() first.")));
}

/*
 * The fencing token of a lock that this session holds; waits until the worker
 * has it.
 *
 * Errors: 0A000 if locks, or this one, do without ZooKeeper; 55000 if the lock
 * is not held, or a permit is; 40001 if it has been lost; 42501 or 58000
 * refused by ZooKeeper; 57014 canceled.
 */
static int64
get_token(FunctionCallInfo fcinfo, const ZkLockName *lock)
{
	static uint32 wait_event = 0;
	int64		token = 0;
	ZkRefusal	refusal = ZK_REFUSAL_NONE;
	HeldLock   *held = hold_find(&lock->key);
	bool		mine;

	zk_check_fleet(fcinfo->flinfo->fn_oid);
	if (held == NULL)
		report_not_held(lock);
	if (hold_is_of_instance(held))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("lock \"%s\" has no fencing token", lock->name),
				 errdetail("It excludes sessions of this server only, since it was taken while \"zklock.exclusion\" was \"instance\"."),
				 errhint("Release it, and take it again.")));
	while ((mine = slot_read_token(held->proc, &token, &refusal)) &&
		   token == 0 && refusal == ZK_REFUSAL_NONE)
		ConditionVariableSleep(slot_cv(held->proc->slot),
							   ZkWaitEvent(wait_event, "ZkLockToken"));
	ConditionVariableCancelSleep();
	if (!mine)
		hold_report_lost(&lock->key, false);
	if (token == 0)
		report_no_token(lock, refusal);
	return token;
}

/*
 * zk_fencing_token(name text) returns bigint
 *
 * The token of a lock that this session holds.  Errors: those of the name, as
 * in zk_lock(), and of get_token().
 */
Datum
zk_fencing_token(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;

	get_lock_name(fcinfo, &lock);
	PG_RETURN_INT64(get_token(fcinfo, &lock));
}

/*
 * zk_fence(name text) returns bigint
 *
 * The token of a lock that this transaction holds, written into table
 * zk_fences.  Errors: those of the name, as in zk_lock(); 25006 in a read-only
 * transaction; those of get_token() and fence_write().
 */
Datum
zk_fence(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	int64		token;

	get_lock_name(fcinfo, &lock);
	PreventCommandIfReadOnly("zk_fence()");
	token = get_token(fcinfo, &lock);
	fence_write(fcinfo->flinfo->fn_oid, lock.name, token);
	PG_RETURN_INT64(token);
}
