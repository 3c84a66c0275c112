/*-------------------------------------------------------------------------
 *
 * replace.c
 *		Replaces calls of PostgreSQL's advisory lock functions by calls of
 *		ours.
 *
 * This is done in the planner, so that the origin of a query does not matter:
 * the client, a prepared statement, PL/pgSQL, which plans its expressions too,
 * or the body of an SQL function.  By then views and rules are expanded, and
 * the function is known by its OID, whatever the search_path.
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
 * its value; our functions check it (advisory.c).  So locks taken while it was
 * on can be unlocked, and plans need not be made again when it is turned off.
 * When it is turned on for the first time, or for the first time since a plan
 * was made without our functions, all plans are made again (settings.c).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/replace.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "backend/advisory.h"
#include "backend/replace.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/planner.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

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
		advisory_find(name, get_func_nargs(function)) : -1;

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
 * replace_init
 *		Install the hook, at module load.
 */
void
replace_init(void)
{
	prev_planner = planner_hook;
	planner_hook = zk_planner;
}
