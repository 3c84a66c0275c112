/*-------------------------------------------------------------------------
 *
 * claims.c
 *		The SQL functions of claims, and the view zk_claims.
 *
 * A claim begins as a hold (holds.c); what it is then is in shared/claims.c.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/claims.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/acquire.h"
#include "backend/functions.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/reads.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_claim);
PG_FUNCTION_INFO_V1(zk_try_claim);
PG_FUNCTION_INFO_V1(zk_renew_claim);
PG_FUNCTION_INFO_V1(zk_use_claim);
PG_FUNCTION_INFO_V1(zk_end_claim);
PG_FUNCTION_INFO_V1(zk_terminate_claims);
PG_FUNCTION_INFO_V1(zk_claim_status);

#define CLAIM_STATUS_COLUMNS	9

/*
 * How long to wait for the name of the instance that has given a token, in ms.
 */
#define INSTANCE_READ_MS	1000

/* A ttl that is not NULL, in microseconds. */
static int64
get_ttl(FunctionCallInfo fcinfo, int argno)
{
	Interval   *interval = PG_GETARG_INTERVAL_P(argno);
	int64		days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	int64		ttl_us = INTERVAL_NOT_FINITE(interval) ? 0 :
	claim_ttl_us(days, interval->time);

	if (ttl_us == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl of a claim must be between 1 second and 1 day")));
	return ttl_us;
}

/*
 * Can this session have a claim of the lock?
 */
static void
check_claimable(const ZkLockName *lock)
{
	ZkKey		permit;

	if (key_is_advisory(&lock->key))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot claim lock \"%s\"", lock->name),
				 errdetail("It stands for an advisory lock of PostgreSQL, which belongs to a session.")));
	key_in_mode(&lock->key, ZK_KEY_PERMIT, &permit);
	if (hold_find(&lock->key) != NULL || hold_find(&permit) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot claim lock \"%s\" because this session holds it already",
						lock->name)));
}

/*
 * How many claims the role that has logged in may have.  A superuser may have
 * all.
 */
static int
most_of_role(void)
{
	if (superuser_arg(MyProc->roleId))
		return zklock_max_claims;
	return zklock_max_claims_per_role < 0 ? (zklock_max_claims + 9) / 10 :
		zklock_max_claims_per_role;
}

/* Either the server has no more claims, or the role has "most". */
static void
report_no_room(int most)
{
	if (claims_count() < zklock_max_claims)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of claims"),
				 errdetail("All %d claims of role \"%s\" are in use.",
						   most, GetUserNameFromId(MyProc->roleId, false)),
				 errhint("You might need to increase \"zklock.max_claims_per_role\".")));
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of claims"),
			 zklock_max_claims == 0 ?
			 errdetail("Claims are turned off.") :
			 errdetail("All %d claims are in use.", zklock_max_claims),
			 errhint("You might need to increase \"zklock.max_claims\".")));
}

/* zk_claim() and zk_try_claim(). */
static Datum
claim_lock(FunctionCallInfo fcinfo, bool try)
{
	ZkLockName	lock;
	ZkRequest	request = {.keys = &lock.key,.nkeys = 1,.try = try};
	ClaimToken	token;
	char		string[CLAIM_TOKEN_SIZE];
	int64		ttl_us;
	int			number;
	int			most = most_of_role();

	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), &lock);
	zk_check_fleet(fcinfo->flinfo->fn_oid);
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("ttl of a claim must not be null")));
	ttl_us = get_ttl(fcinfo, 1);
	request.name = lock.name;
	request.timeout = get_timeout(fcinfo, 2);
	request.kind = kind_of_lock(false);
	check_claimable(&lock);
	if (!claims_have_room(MyProc->roleId, most))
		report_no_room(most);
	strlcpy(token.instance, claims_instance(), sizeof(token.instance));
	if (!pg_strong_random(token.secret, sizeof(token.secret)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));

	if (!acquire_or_fail(&request))
		PG_RETURN_NULL();
	number = claim_reserve(&token, ttl_us, MyProc->roleId, most);
	if (number < 0)
		report_no_room(most);
	hold_push_of_claim(hold_find(&lock.key), number);
	claim_write_token(&token, string);
	PG_RETURN_TEXT_P(cstring_to_text(string));
}

/*
 * zk_claim(name text, ttl interval, timeout interval) returns text
 *
 * Wait for the lock and take it, for the transaction until it commits, and
 * then for whoever has the token, which is returned.
 *
 * Errors: those of zk_lock(); 22004 NULL ttl; 22023 a ttl that is too short or
 * too long; 55000 if the session holds the lock already, or the name is that
 * of a semaphore or of an advisory lock; 53200 out of claims.
 */
Datum
zk_claim(PG_FUNCTION_ARGS)
{
	return claim_lock(fcinfo, false);
}

/*
 * zk_try_claim(name text, ttl interval, timeout interval) returns text
 *
 * As zk_claim(), but NULL if the lock cannot be had in time.
 */
Datum
zk_try_claim(PG_FUNCTION_ARGS)
{
	return claim_lock(fcinfo, true);
}

/* The token is another instance's. */
static void
report_foreign(const ClaimToken *token)
{
	StringInfoData instance;
	bool		known;

	initStringInfo(&instance);
	known = read_instance(token->instance, INSTANCE_READ_MS, &instance);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the claim was given by another instance"),
			 known ?
			 errhint("Connect to instance %s.", instance.data) :
			 errhint("No instance of the fleet has this id now.  The claim has ended if the one that gave it was restarted.")));
}

/*
 * The token that argument 0 is.
 *
 * Errors: those of zk_check_usable(); 22004 NULL; 22023 no token; 55000
 * another instance's.
 */
static void
get_claim_token(FunctionCallInfo fcinfo, ClaimToken *token)
{
	text	   *argument;

	zk_check_usable();
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("token of a claim must not be null")));
	argument = PG_GETARG_TEXT_PP(0);
	if (!claim_parse_token(VARDATA_ANY(argument),
						   (int) VARSIZE_ANY_EXHDR(argument), token))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("malformed token of a claim")));
	if (strcmp(token->instance, claims_instance()) != 0)
		report_foreign(token);
}

/* The lock that this transaction holds, which becomes that claim. */
static HeldLock *
find_reserved(int number)
{
	HeldLock   *lock = NULL;

	while ((lock = holds_next(lock)) != NULL)
		if (lock->claim == number)
			return lock;
	elog(ERROR, "claim %d is reserved, but not held", number);
	return NULL;
}

/*
 * claim_renew(), which may have to ask ZooKeeper whether the session lives.
 *
 * The answer counts if it comes before the claim is over.
 */
static ZkClaimState
renew(const ClaimToken *token, int64 ttl_us)
{
	static uint32 wait_event = 0;

	for (;;)
	{
		int64		end_ms;
		int			number;
		ZkClaimState state = claim_renew(token, ttl_us, &end_ms, &number);

		if (state == ZK_CLAIM_RESERVED &&
			!slot_is_mine(find_reserved(number)->proc))
			return ZK_CLAIM_ENDED;
		if (state != ZK_CLAIM_UNPROVED ||
			!proof_wait(proof_ask(), end_ms,
						ZkWaitEvent(wait_event, "ZkLockRenew")))
			return state;
	}
}

/*
 * zk_renew_claim(token text, ttl interval) returns boolean
 *
 * Have the ttl of a claim count from now on; NULL: the same ttl as before.
 * False if it has ended.  This is not undone by a rollback.
 *
 * Errors: those of get_claim_token(); 22023 a ttl that is too short or too
 * long; 57P03 if ZooKeeper does not confirm the session before the claim is
 * over.
 */
Datum
zk_renew_claim(PG_FUNCTION_ARGS)
{
	ClaimToken	token;
	ZkClaimState state;

	zk_check_fleet(fcinfo->flinfo->fn_oid);
	get_claim_token(fcinfo, &token);
	state = renew(&token, PG_ARGISNULL(1) ? 0 : get_ttl(fcinfo, 1));
	if (state == ZK_CLAIM_UNPROVED)
		ereport(ERROR,
				(errcode(ERRCODE_CANNOT_CONNECT_NOW),
				 errmsg("could not renew the claim"),
				 errdetail("ZooKeeper has not confirmed the session of this server before the ttl was over.")));
	PG_RETURN_BOOL(state != ZK_CLAIM_ENDED);
}

/*
 * Use a claim that this transaction does not use yet; NULL if it has ended.
 *
 * The heavyweight lock of its users goes with the transaction, or back to a
 * savepoint.
 */
static HeldLock *
begin_use(const ClaimToken *token, const ZkKey *key)
{
	Heavyweight users;
	HeldLock   *lock;
	bool		full;

	heavyweight_set_users(&users, key, RowExclusiveLock);
	heavyweight_lock_ahead(&users);
	lock = hold_prepare(key, kind_of_lock(false), 0);
	lock->proc = claim_use(token, &full);
	if (lock->proc == NULL)
	{
		heavyweight_unlock(&users, false, 1);
		hold_forget(lock);
		if (full)
			slots_report_full();
		return NULL;
	}
	lock->kind = lock->proc->kind;
	hold_push_of_claim(lock, -1);
	stats_take(lock->stats_id, &lock->key, true, false, false, 0);
	return lock;
}

/*
 * The session holds the lock for itself, though a claim has it: PostgreSQL has
 * released the heavyweight lock of its hold.
 */
static void
report_not_of_claim(const ZkKey *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot use the claim of lock \"%s\"", key_name(key)),
			 errdetail("This session has held the lock since \"zklock.exclusion\" was \"instance\"."),
			 errhint("Release the lock first.")));
}

/*
 * The lock that this transaction holds because of the claim with this token,
 * which it uses from now on; NULL if the claim has ended.
 *
 * Errors: 40001 if the session has held the lock, and has lost it; 55000 if it
 * holds the lock in some other way.
 */
static HeldLock *
use_claim(const ClaimToken *token)
{
	ZkKey		key;
	int			number;
	HeldLock   *lock;

	acquire_begin();
	switch (claim_find(token, &key, &number))
	{
		case ZK_CLAIM_RESERVED:
			lock = find_reserved(number);
			break;
		case ZK_CLAIM_LIVE:
			lock = hold_find(&key);
			if (lock == NULL)
				return begin_use(token, &key);
			break;
		default:
			return NULL;
	}
	if (!slot_is_mine(lock->proc))
		hold_report_lost(&lock->key, false);
	if (!hold_is_of_claim(lock))
		report_not_of_claim(&lock->key);
	return lock;
}

/*
 * zk_use_claim(token text) returns void
 *
 * Hold the lock of a claim for the transaction.
 *
 * Errors: those of get_claim_token() and use_claim(); 40001 if the claim has
 * ended; 53200 out of slots or of the lock manager's memory.
 */
Datum
zk_use_claim(PG_FUNCTION_ARGS)
{
	ClaimToken	token;

	zk_check_fleet(fcinfo->flinfo->fn_oid);
	get_claim_token(fcinfo, &token);
	if (use_claim(&token) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the claim has ended"),
				 errdetail("It was not renewed in time, it was ended, or its lock was lost."),
				 errhint("Call zk_claim() again; others may have had the lock meanwhile.")));
	PG_RETURN_VOID();
}

/*
 * zk_end_claim(token text) returns boolean
 *
 * End a claim: at once, or when the transaction commits, if it has changed
 * anything or is in a savepoint, and then it uses the claim until then.  False
 * if it has ended already.
 *
 * Errors: as zk_use_claim(), but for a claim that has ended.
 */
Datum
zk_end_claim(PG_FUNCTION_ARGS)
{
	ClaimToken	token;
	ZkKey		key;
	int			number;
	HeldLock   *lock;

	get_claim_token(fcinfo, &token);
	if (holds_may_go() &&
		claim_find(&token, &key, &number) != ZK_CLAIM_RESERVED)
		PG_RETURN_BOOL(claim_end(&token));
	lock = use_claim(&token);
	if (lock != NULL)
		hold_end_claim(lock);
	PG_RETURN_BOOL(lock != NULL);
}

/*
 * zk_terminate_claims(role regrole) returns integer
 *
 * End the claims of this server that sessions of a role have begun, whatever
 * transactions use them; those are not ended, and keep the lock until then.
 * Returns how many.
 *
 * Errors: 42501 if the role is a superuser, and the caller's is not.
 */
Datum
zk_terminate_claims(PG_FUNCTION_ARGS)
{
	Oid			role = PG_GETARG_OID(0);
	char	   *name = GetUserNameFromId(role, true);
	int			count;

	zk_check_preloaded();
	if (superuser_arg(role) && !superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be a superuser to end claims of a superuser")));
	count = claims_end_of_role(role);
	if (count > 0)
		ereport(LOG,
				(errmsg("role \"%s\" ends the claims of role \"%s\"",
						GetUserNameFromId(GetUserId(), false),
						name ? name : "?"),
				 errdetail("Claims: %d.", count)));
	PG_RETURN_INT32(count);
}

/*
 * zk_claim_status() returns setof record
 *
 * The claims of this instance; behind the view zk_claims.
 */
Datum
zk_claim_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkClaimRow *rows;
	int			nrows;

	zk_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, CLAIM_STATUS_COLUMNS);
	rows = claims_snapshot(&nrows);
	for (int i = 0; i < nrows; i++)
	{
		Datum		values[CLAIM_STATUS_COLUMNS];
		bool		nulls[CLAIM_STATUS_COLUMNS] = {0};
		int			n = 0;

		CHECK_FOR_INTERRUPTS();
		values[n++] = CStringGetTextDatum(key_name(&rows[i].key));
		values[n++] = TimestampTzGetDatum(rows[i].began);
		values[n++] = interval_of_us(rows[i].ttl_us);
		values[n++] = TimestampTzGetDatum(rows[i].renewed);
		values[n++] = TimestampTzGetDatum(rows[i].ends);
		values[n++] = Int32GetDatum(rows[i].users);
		values[n++] = CStringGetTextDatum(rows[i].path);
		nulls[n] = rows[i].fencing_token == 0;
		values[n++] = Int64GetDatum(rows[i].fencing_token);
		values[n++] = ObjectIdGetDatum(rows[i].role);
		Assert(n == CLAIM_STATUS_COLUMNS);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	pfree(rows);
	return (Datum) 0;
}
