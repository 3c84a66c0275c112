/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		Hooks of the executor and of utility commands.
 *
 * They tell holds.c and commit.c what the transaction does, and keep our
 * transaction callback before those that statements register.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/hooks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/commit.h"
#include "backend/holds.h"
#include "backend/hooks.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "executor/executor.h"
#include "shared/compat.h"
#include "tcop/utility.h"

/* A statement is running; statements of its functions are part of it. */
static bool in_statement = false;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

static void
fail_statement(MemoryContext context)
{
	if (!commit_is_lasting())
		commit_explain_cancel(context);
	commit_fail_lasting();
}

/*
 * Run a statement that is not part of another one: if it was canceled because
 * a lock was lost, the error says so.
 */
#define AS_STATEMENT(call) \
	do { \
		MemoryContext statement_context = CurrentMemoryContext; \
		in_statement = true; \
		commit_note_statement(); \
		PG_TRY(); \
		{ \
			call; \
		} \
		PG_CATCH(); \
		{ \
			in_statement = false; \
			fail_statement(statement_context); \
			PG_RE_THROW(); \
		} \
		PG_END_TRY(); \
		commit_note_statement(); \
		in_statement = false; \
	} while (0)

/* A statement begins, possibly in the transaction of a previous one. */
static void
begin_statement(void)
{
	if (!in_statement)
		commit_leave_lasting();
}

static bool
changes_data(const QueryDesc *queryDesc)
{
	return queryDesc->operation != CMD_SELECT ||
		queryDesc->plannedstmt->hasModifyingCTE;
}

static bool
has_foreign_table(const PlannedStmt *statement)
{
	ListCell   *cell;

	foreach(cell, statement->rtable)
	{
		if (lfirst_node(RangeTblEntry, cell)->relkind == RELKIND_FOREIGN_TABLE)
			return true;
	}
	return false;
}

/* Note whether the transaction changes something, or uses a foreign table. */
static void
zk_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	begin_statement();
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 && changes_data(queryDesc))
		holds_note_write();
	if (has_foreign_table(queryDesc->plannedstmt))
		commit_note_foreign();

	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

static void
next_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction, uint64 count
				 ZK_EXECUTE_ONCE_PARAMETER)
{
	if (prev_ExecutorRun)
		prev_ExecutorRun(queryDesc, direction, count ZK_EXECUTE_ONCE);
	else
		standard_ExecutorRun(queryDesc, direction, count ZK_EXECUTE_ONCE);
}

static void
zk_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction, uint64 count
			   ZK_EXECUTE_ONCE_PARAMETER)
{
	if (in_statement)
		next_ExecutorRun(queryDesc, direction, count ZK_EXECUTE_ONCE);
	else
		AS_STATEMENT(next_ExecutorRun(queryDesc, direction, count
									  ZK_EXECUTE_ONCE));
}

static void
next_ExecutorFinish(QueryDesc *queryDesc)
{
	if (prev_ExecutorFinish)
		prev_ExecutorFinish(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);
}

/* separate, so that other statements do not pay for its stack frame */
static pg_noinline void
finish_statement(QueryDesc *queryDesc)
{
	AS_STATEMENT(next_ExecutorFinish(queryDesc));
}

/* As zk_ExecutorStart(), for AFTER triggers; reads have none. */
static void
zk_ExecutorFinish(QueryDesc *queryDesc)
{
	if (in_statement || !changes_data(queryDesc))
		next_ExecutorFinish(queryDesc);
	else
		finish_statement(queryDesc);
}

/* Were rows inserted into foreign partitions, which the plan does not show? */
static bool
has_filled_foreign_partition(const EState *estate)
{
	ListCell   *cell;

	foreach(cell, estate->es_tuple_routing_result_relations)
	{
		if (((const ResultRelInfo *) lfirst(cell))->ri_FdwRoutine != NULL)
			return true;
	}
	return false;
}

/* The statement may have registered a foreign data wrapper's callback. */
static void
zk_ExecutorEnd(QueryDesc *queryDesc)
{
	if (has_foreign_table(queryDesc->plannedstmt) ||
		has_filled_foreign_partition(queryDesc->estate))
		commit_note_foreign();
	if (prev_ExecutorEnd)
		prev_ExecutorEnd(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);

	if (holds_exist())
		commit_check_first();
}

static bool
has_option(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		if (strcmp(lfirst_node(DefElem, cell)->defname, name) == 0)
			return true;
	}
	return false;
}

/* As ExecReindex() reads it: the last option counts. */
static bool
is_concurrent_reindex(const ReindexStmt *stmt)
{
	bool		concurrently = false;
	ListCell   *cell;

	foreach(cell, stmt->params)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, "concurrently") == 0)
			concurrently = defGetBoolean(option);
	}
	return concurrently;
}

static bool
is_concurrent_detach(const AlterTableStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, cell);

		if (cmd->subtype == AT_DetachPartition &&
			castNode(PartitionCmd, cmd->def)->concurrent)
			return true;
	}
	return false;
}

/*
 * Does this command have effects that a rollback does not undo?
 *
 * Then the locks are checked before it: see commit_begin_lasting().
 * PostgreSQL allows no such command in a transaction block.  Of the commands
 * not allowed there (PreventInTransactionBlock()):
 *
 *	COMMIT PREPARED,		yes: it is over when the command returns
 *	ROLLBACK PREPARED
 *	CREATE, DROP DATABASE,	yes: files were copied or removed; what fails
 *	ALTER DATABASE SET		later leaves files that no catalog knows, or a
 *	TABLESPACE				database without files
 *	CREATE, DROP			yes: directories, in the same way
 *	TABLESPACE
 *	ALTER SYSTEM			yes: the file is written
 *	CREATE, ALTER, DROP		yes, if it has made or dropped slots of the
 *	SUBSCRIPTION			publisher; else PostgreSQL does allow it there,
 *							and it is as any other command
 *	CREATE, DROP INDEX		yes: several transactions, and only the last makes
 *	CONCURRENTLY, REINDEX	it whole; to fail at any but the first leaves an
 *	CONCURRENTLY, DETACH	invalid index, or a partition half detached
 *	PARTITION CONCURRENTLY
 *	VACUUM, CLUSTER of		no: a transaction for each table or index, and an
 *	several tables, REINDEX	empty one ahead of all, which is checked; each is
 *	of a schema, a			whole, changes no data, and may be done again.  (So
 *	database, or partitions is ANALYZE of several tables.)
 *	DISCARD ALL				no: it gives up the holds
 *	replication commands	no: they commit nothing
 */
static bool
has_lasting_effects(Node *stmt)
{
	TransactionStmtKind kind;

	switch (nodeTag(stmt))
	{
		case T_TransactionStmt:
			kind = castNode(TransactionStmt, stmt)->kind;
			return kind == TRANS_STMT_COMMIT_PREPARED ||
				kind == TRANS_STMT_ROLLBACK_PREPARED;
		case T_CreatedbStmt:
		case T_DropdbStmt:
		case T_CreateTableSpaceStmt:
		case T_DropTableSpaceStmt:
		case T_AlterSystemStmt:
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
		case T_DropSubscriptionStmt:
			return true;
		case T_AlterDatabaseStmt:
			return has_option(castNode(AlterDatabaseStmt, stmt)->options,
							  "tablespace");
		case T_IndexStmt:
			return castNode(IndexStmt, stmt)->concurrent;
		case T_DropStmt:
			return castNode(DropStmt, stmt)->concurrent;
		case T_ReindexStmt:
			return is_concurrent_reindex(castNode(ReindexStmt, stmt));
		case T_AlterTableStmt:
			return is_concurrent_detach(castNode(AlterTableStmt, stmt));
		default:
			return false;
	}
}

/*
 * A command with lasting effects has ended.  One for a subscription may have
 * had none: PostgreSQL has noted whether it must be in a transaction of its
 * own.
 */
static void
end_command(Node *stmt)
{
	bool		of_subscription = IsA(stmt, CreateSubscriptionStmt) ||
		IsA(stmt, AlterSubscriptionStmt) || IsA(stmt, DropSubscriptionStmt);

	commit_end_lasting();
	if (of_subscription && (MyXactFlags & XACT_FLAGS_NEEDIMMEDIATECOMMIT) == 0)
		commit_leave_lasting();
}

/* May a utility command use foreign tables? */
static bool
may_be_foreign(Node *stmt)
{
	return GetCommandLogLevel(stmt) < LOGSTMT_ALL ||
		IsA(stmt, CopyStmt) || IsA(stmt, VacuumStmt);
}

/*
 * Note what a utility command, such as COPY FROM, TRUNCATE or DISCARD ALL,
 * means for the transaction and its locks.
 *
 * DISCARD ALL, which is never in a transaction block, releases our locks
 * before the lock manager does, which would let other backends have the
 * heavyweight locks while we have the slots.
 */
static void
begin_command(const PlannedStmt *pstmt, bool top_level)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (GetCommandLogLevel(stmt) < LOGSTMT_ALL)
		holds_note_write();
	if (may_be_foreign(stmt))
		commit_note_foreign();
	if (IsA(stmt, DiscardStmt) &&
		castNode(DiscardStmt, stmt)->target == DISCARD_ALL)
	{
		PreventInTransactionBlock(top_level, "DISCARD ALL");
		holds_discard_session();
	}
	if (holds_exist() && !IsInTransactionBlock(top_level) &&
		has_lasting_effects(stmt))
		commit_begin_lasting();
}

static void
next_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv,
					DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context,
							params, queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
}

static void
zk_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	bool		foreign = may_be_foreign(pstmt->utilityStmt);

	begin_statement();
	begin_command(pstmt, context == PROCESS_UTILITY_TOPLEVEL);

	if (in_statement)
		next_ProcessUtility(pstmt, queryString, readOnlyTree, context,
							params, queryEnv, dest, qc);
	else
	{
		AS_STATEMENT(next_ProcessUtility(pstmt, queryString, readOnlyTree,
										 context, params, queryEnv, dest, qc));
		/* only then: a ROLLBACK may have freed *pstmt */
		if (commit_is_lasting())
			end_command(pstmt->utilityStmt);
	}

	/* again: a trigger may have taken a lock before the foreign table */
	if (foreign)
		commit_note_foreign();
	if (holds_exist())
		commit_check_first();
}

/*
 * hooks_init
 *		Install hooks and callbacks, at module load.
 */
void
hooks_init(void)
{
	commit_init();

	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = zk_ExecutorStart;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = zk_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = zk_ExecutorFinish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = zk_ExecutorEnd;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = zk_ProcessUtility;
}
