/*-------------------------------------------------------------------------
 *
 * advisory.c
 *		PostgreSQL's advisory lock functions: ours, which stand in for them,
 *		and the planner hook, which replaces their calls.
 *
 * With zklock.advisory_locks on, calls of PostgreSQL's functions are replaced
 * by calls of ours.  These take locks in ZooKeeper named
 * "advisory/<namespace>/<key>", whose first tier has PostgreSQL's advisory
 * lock of the same key, scope and mode (heavyweight.c).  So they and sessions
 * that take that lock from PostgreSQL exclude each other, and pg_locks shows
 * its holders.
 *
 * A plan may be older than the current value of the setting.  So our functions
 * check the setting when they are called: if it is off, they call PostgreSQL's
 * function.  Unlocking does not depend on it: a hold in ZooKeeper is undone
 * first.
 *
 * PostgreSQL counts a session's locks for each mode separately; here each hold
 * has a mode, but the lock itself, and the heavyweight lock of every hold, has
 * the mode of the first hold (holds.c).
 *
 * Calls are replaced in the planner, so that the origin of a query does not
 * matter: the client, a prepared statement, PL/pgSQL, which plans its
 * expressions too, or the body of an SQL function.  By then views and rules
 * are expanded, and the function is known by its OID, whatever the
 * search_path.
 *
 * The query is changed before it is planned.  But the planner adds calls: from
 * the body of an SQL function that it inlines, and from default arguments.  So
 * the plan is searched, too.
 *
 * Calls that are not planned are not replaced: arguments of CALL and EXECUTE,
 * column defaults and the condition of COPY FROM, conditions of triggers and
 * checks of constraints and domains, defaults and USING of ALTER TABLE, bounds
 * of partitions, and the protocol's function call message.  Nor is a function
 * with another OID, such as a user's in language internal, or an operator.
 *
 * Once the setting has been on in this process, calls are replaced whatever
 * its value.  So locks taken while it was on can be unlocked, and plans need
 * not be made again when it is turned off.  When it is turned on for the first
 * time, or for the first time since a plan was made without our functions, all
 * plans are made again (settings.c).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/advisory.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "backend/advisory.h"
#include "backend/functions.h"
#include "backend/heavyweight.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "core/lock/znode.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(zk_advisory_call);

typedef enum AdvisoryAct
{
	ADVISORY_LOCK,
	ADVISORY_TRY,
	ADVISORY_UNLOCK,
	ADVISORY_UNLOCK_ALL
} AdvisoryAct;

/* One of PostgreSQL's functions. */
typedef struct AdvisoryFunction
{
	Oid			oid;
	const char *standin;		/* name of ours, with the same arguments */
	int			nargs;			/* 1: a bigint; 2: two integers; or 0 */
	PGFunction	function;
	AdvisoryAct act;
	bool		shared;
	bool		session;
} AdvisoryFunction;

#define ADVISORY_FUNCTIONS	21

#define BOTH_FORMS(FUNCTION, verb, act, shared, session) \
	{F_PG_##FUNCTION##_INT8, "zk_" #verb, 1, pg_##verb##_int8, \
	act, shared, session}, \
	{F_PG_##FUNCTION##_INT4_INT4, "zk_" #verb, 2, pg_##verb##_int4, \
	act, shared, session}

static const AdvisoryFunction advisory_functions[ADVISORY_FUNCTIONS] = {
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
 * The number of the function with this name and number of arguments, or -1.
 */
static int
find_function(const char *standin, int nargs)
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
		int			number = name ? find_function(name, PG_NARGS()) : -1;
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

/*
 * Our functions, in the order of advisory_functions[]; Invalid: there is none.
 */
static Oid	standins[ADVISORY_FUNCTIONS];
static bool standins_known = false;
static uint32 functions_changed = 0;	/* number of changes seen */

static planner_hook_type prev_planner = NULL;

static void
forget_standins(Datum arg pg_attribute_unused(),
				int cache pg_attribute_unused(),
				uint32 hash pg_attribute_unused())
{
	standins_known = false;
	functions_changed++;
}

/* Note a function of the extension. */
static void
note_standin(Oid function)
{
	char	   *name = get_func_name(function);
	int			number = name ?
		find_function(name, get_func_nargs(function)) : -1;

	if (number >= 0)
		standins[number] = function;
}

/*
 * Find our functions in this database, in whatever schema the extension is.  A
 * function with the name of one of ours counts only if it belongs to our
 * extension.
 */
static void
find_standins(void)
{
	static bool registered = false;
	uint32		before;
	Oid			extension;
	ScanKeyData key[2];
	Relation	depend;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!registered)
		CacheRegisterSyscacheCallback(PROCOID, forget_standins, (Datum) 0);
	registered = true;
	before = functions_changed;
	memset(standins, 0, sizeof(standins));
	extension = get_extension_oid("zklock", true);

	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(ExtensionRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(extension));
	depend = table_open(DependRelationId, AccessShareLock);
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL,
							  lengthof(key), key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend entry = (Form_pg_depend) GETSTRUCT(tuple);

		if (entry->classid == ProcedureRelationId &&
			entry->deptype == DEPENDENCY_EXTENSION)
			note_standin(entry->objid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	standins_known = functions_changed == before;
}

/*
 * The function to call instead: the same, if it is no advisory lock function.
 *
 * Errors: 55000 if the setting is on and the extension is not there.
 */
static Oid
replacement(Oid function)
{
	int			number = 0;

	while (number < ADVISORY_FUNCTIONS &&
		   advisory_functions[number].oid != function)
		number++;
	if (number == ADVISORY_FUNCTIONS)
		return function;
	if (!standins_known)
		find_standins();
	if (OidIsValid(standins[number]))
		return standins[number];
	if (zklock_advisory_locks == ZK_ADVISORY_OFF)
	{
		zklock_advisory_used = false;
		return function;
	}
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot take or release advisory locks in ZooKeeper"),
			 errdetail("\"zklock.advisory_locks\" is on, but database \"%s\" does not have the extension zklock.",
					   get_database_name(MyDatabaseId)),
			 errhint("Run CREATE EXTENSION zklock, or turn \"zklock.advisory_locks\" off.")));
	return InvalidOid;			/* keep the compiler quiet */
}

/* A plan must be made anew when a function that it calls is dropped. */
static void
note_dependency(PlannedStmt *plan, Oid function)
{
	PlanInvalItem *item = makeNode(PlanInvalItem);

	item->cacheId = PROCOID;
	item->hashValue = GetSysCacheHashValue1(PROCOID,
											ObjectIdGetDatum(function));
	plan->invalItems = lappend(plan->invalItems, item);
}

/*
 * Replace the calls in an expression, a list of them, or a query; "context" is
 * the plan that it is part of, or NULL.
 *
 * It is changed in place: the planner owns its query.
 */
static bool
replace_calls(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr))
	{
		FuncExpr   *call = (FuncExpr *) node;
		Oid			function = replacement(call->funcid);

		if (function != call->funcid && context != NULL)
			note_dependency(context, function);
		call->funcid = function;
	}
	else if (IsA(node, Query))
		return query_tree_walker((Query *) node, replace_calls, context, 0);
	return expression_tree_walker(node, replace_calls, context);
}

static void
replace_in(void *expression, PlannedStmt *stmt)
{
	(void) replace_calls(expression, stmt);
}

static void replace_in_plan(Plan *plan, PlannedStmt *stmt);

static void
replace_in_plans(List *plans, PlannedStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, plans)
		replace_in_plan(lfirst(cell), stmt);
}

static void
replace_in_modify(const ModifyTable *modify, PlannedStmt *stmt)
{
	replace_in(modify->withCheckOptionLists, stmt);
	replace_in(modify->returningLists, stmt);
	replace_in(modify->onConflictSet, stmt);
	replace_in(modify->onConflictWhere, stmt);
	replace_in(modify->mergeActionLists, stmt);
#if PG_VERSION_NUM >= 170000
	replace_in(modify->mergeJoinConditions, stmt);
#endif
}

/*
 * Replace the calls in the expressions that only a plan node of this kind has,
 * and in its plans other than the left and right one.  Expressions in which
 * PostgreSQL allows no volatile functions, as those of indexes and hashes, are
 * skipped.
 */
static void
replace_in_node(Plan *plan, PlannedStmt *stmt)
{
	switch (nodeTag(plan))
	{
		case T_ModifyTable:
			replace_in_modify((ModifyTable *) plan, stmt);
			break;
		case T_Append:
			replace_in_plans(((Append *) plan)->appendplans, stmt);
			break;
		case T_MergeAppend:
			replace_in_plans(((MergeAppend *) plan)->mergeplans, stmt);
			break;
		case T_SubqueryScan:
			replace_in_plan(((SubqueryScan *) plan)->subplan, stmt);
			break;
		case T_FunctionScan:
			replace_in(((FunctionScan *) plan)->functions, stmt);
			break;
		case T_TableFuncScan:
			replace_in(((TableFuncScan *) plan)->tablefunc, stmt);
			break;
		case T_ValuesScan:
			replace_in(((ValuesScan *) plan)->values_lists, stmt);
			break;
		case T_SampleScan:
			replace_in(((SampleScan *) plan)->tablesample, stmt);
			break;
		case T_ForeignScan:
			replace_in(((ForeignScan *) plan)->fdw_exprs, stmt);
			replace_in(((ForeignScan *) plan)->fdw_recheck_quals, stmt);
			break;
		case T_CustomScan:
			replace_in_plans(((CustomScan *) plan)->custom_plans, stmt);
			replace_in(((CustomScan *) plan)->custom_exprs, stmt);
			break;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			replace_in(((Join *) plan)->joinqual, stmt);
			break;
		case T_Result:
			replace_in(((Result *) plan)->resconstantqual, stmt);
			break;
		case T_WindowAgg:
			replace_in(((WindowAgg *) plan)->startOffset, stmt);
			replace_in(((WindowAgg *) plan)->endOffset, stmt);
			break;
		case T_Limit:
			replace_in(((Limit *) plan)->limitOffset, stmt);
			replace_in(((Limit *) plan)->limitCount, stmt);
			break;
		default:
			break;
	}
}

/* Replace the calls that the planner has added. */
static void
replace_in_plan(Plan *plan, PlannedStmt *stmt)
{
	if (plan == NULL)
		return;
	check_stack_depth();
	replace_in(plan->targetlist, stmt);
	replace_in(plan->qual, stmt);
	replace_in_node(plan, stmt);
	replace_in_plan(plan->lefttree, stmt);
	replace_in_plan(plan->righttree, stmt);
}

static PlannedStmt *
next_planner(Query *parse, const char *query_string, int cursorOptions,
			 ParamListInfo boundParams ZK_EXPLAIN_STATE_PARAMETER)
{
	if (prev_planner)
		return prev_planner(parse, query_string, cursorOptions,
							boundParams ZK_EXPLAIN_STATE);
	return standard_planner(parse, query_string, cursorOptions,
							boundParams ZK_EXPLAIN_STATE);
}

static PlannedStmt *
zk_planner(Query *parse, const char *query_string, int cursorOptions,
		   ParamListInfo boundParams ZK_EXPLAIN_STATE_PARAMETER)
{
	PlannedStmt *stmt;

	if (!zklock_advisory_used)
		return next_planner(parse, query_string, cursorOptions,
							boundParams ZK_EXPLAIN_STATE);
	(void) replace_calls((Node *) parse, NULL);
	stmt = next_planner(parse, query_string, cursorOptions,
						boundParams ZK_EXPLAIN_STATE);
	replace_in_plan(stmt->planTree, stmt);
	replace_in_plans(stmt->subplans, stmt);
	return stmt;
}

/*
 * advisory_init
 *		Install the hook, at module load.
 */
void
advisory_init(void)
{
	prev_planner = planner_hook;
	planner_hook = zk_planner;
}
