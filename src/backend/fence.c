/*-------------------------------------------------------------------------
 *
 * fence.c
 *		Fencing tokens in the database: the table zk_fences.
 *
 * A holder writes its token into the row of its lock, within its own
 * transaction.  The row lock makes every later holder wait for the end of that
 * transaction, and an earlier holder that comes too late finds a higher token.
 *
 * A role that is granted zk_fence() may write its tokens, but only through
 * this file: the statement runs as the owner of the table, and no other role
 * may write to it.  The table is the one in the schema of the calling
 * function, that is, of the extension; the statement qualifies it, so
 * search_path does not matter.
 *
 * The tokens are those of this database's holders.  A publication of all
 * tables includes the table, and rows that arrive by logical replication could
 * lower a token, or violate the key: so triggers that fire for replication
 * only discard all changes that do not come from this file.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/fence.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "backend/fence.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(zk_fences_keep);

#define FENCE_TABLE		"zk_fences"

/*
 * If the row has a higher token, keeps and returns it, and when it was
 * written; the caller then fails, so that the statement has no effect.
 */
#define FENCE_STATEMENT \
	"INSERT INTO %s AS f (name, root, token, fenced_at)" \
	" VALUES ($1, $2, $3, pg_catalog.clock_timestamp())" \
	" ON CONFLICT (name, root) DO UPDATE" \
	" SET token = GREATEST(f.token, EXCLUDED.token)," \
	" fenced_at = CASE WHEN f.token OPERATOR(pg_catalog.>) EXCLUDED.token" \
	" THEN f.fenced_at ELSE EXCLUDED.fenced_at END" \
	" RETURNING f.token, f.fenced_at"

/* Reads all rows as one, to keep them over a TRUNCATE. */
#define KEEP_COLUMNS	4
#define KEEP_STATEMENT \
	"SELECT pg_catalog.array_agg(name), pg_catalog.array_agg(root)," \
	" pg_catalog.array_agg(token), pg_catalog.array_agg(fenced_at) FROM %s"

/* This unnest is always that of pg_catalog, as it has several arguments. */
#define PUT_BACK_STATEMENT \
	"INSERT INTO %s (name, root, token, fenced_at)" \
	" SELECT * FROM unnest($1, $2, $3, $4)"

/* The statement, prepared, and the table that it is for. */
static SPIPlanPtr fence_plan = NULL;
static Oid	fence_table = InvalidOid;

/* A statement of this file is running, which the triggers allow. */
static bool writing = false;

/* The rows of a TRUNCATE under way, in TopTransactionContext, or NULL. */
static Datum *kept_rows = NULL;

/* Open the table that goes with a function of the extension. */
static Relation
open_table(Oid function)
{
	Oid			schema = get_func_namespace(function);
	Oid			table = get_relname_relid(FENCE_TABLE, schema);

	if (!OidIsValid(table))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" does not exist",
						quote_qualified_identifier(get_namespace_name(schema),
												   FENCE_TABLE)),
				 errhint("The table is part of extension \"zklock\".")));
	return table_open(table, RowExclusiveLock);
}

static char *
full_name(Relation table)
{
	Oid			schema = RelationGetNamespace(table);

	return quote_qualified_identifier(get_namespace_name(schema),
									  RelationGetRelationName(table));
}

/*
 * The prepared statement.  It is prepared again if the table is another one,
 * or may have another name or schema, since the plan cache would only parse
 * the same text again.  Whether the plan is valid is known only when the table
 * is locked.
 */
static SPIPlanPtr
get_plan(Relation table)
{
	Oid			argtypes[] = {TEXTOID, TEXTOID, INT8OID};
	SPIPlanPtr	plan = fence_plan;

	if (plan != NULL && fence_table == RelationGetRelid(table) &&
		SPI_plan_is_valid(plan))
		return plan;

	fence_plan = NULL;
	if (plan != NULL)
		SPI_freeplan(plan);

	plan = SPI_prepare(psprintf(FENCE_STATEMENT, full_name(table)),
					   lengthof(argtypes), argtypes);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	fence_table = RelationGetRelid(table);
	fence_plan = plan;
	return plan;
}

/* Run a statement of ours as the table's owner. */
static int
run_as_owner(Relation table, int (*run) (Relation table, Datum *values),
			 Datum *values)
{
	Oid			save_userid;
	int			save_sec_context;
	volatile int result;

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(table->rd_rel->relowner,
						   save_sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	writing = true;
	PG_TRY();
	{
		result = run(table, values);
	}
	PG_FINALLY();
	{
		writing = false;
	}
	PG_END_TRY();
	SetUserIdAndSecContext(save_userid, save_sec_context);
	return result;
}

static int
run_fence(Relation table, Datum *values)
{
	return SPI_execute_plan(get_plan(table), values, NULL, false, 0);
}

/*
 * Write the token; returns the one that is then in the row, and when it was
 * written.
 */
static int64
write_token(Relation table, const char *name, int64 token,
			TimestampTz *fenced_at)
{
	Datum		values[3];
	bool		isnull;
	int			result;

	values[0] = CStringGetTextDatum(name);
	values[1] = CStringGetTextDatum(zklock_root);
	values[2] = Int64GetDatum(token);

	result = run_as_owner(table, run_fence, values);
	if (result != SPI_OK_INSERT_RETURNING || SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not write fencing token into table \"%s\"",
						RelationGetRelationName(table)),
				 errhint("This is most likely due to a trigger or rule on the table.")));
	*fenced_at = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0],
												   SPI_tuptable->tupdesc, 2,
												   &isnull));
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * fence_write
 *		Write the token of a lock that is held into table zk_fences.
 *
 * function: the SQL function that was called, in whose schema the table is.
 *
 * Errors: 40001 if a higher token is there, or is about to be committed by a
 * transaction that this one has to wait for.
 */
void
fence_write(Oid function, const char *name, int64 token)
{
	Relation	table;
	int64		highest;
	TimestampTz fenced_at;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	table = open_table(function);
	highest = write_token(table, name, token, &fenced_at);
	table_close(table, NoLock);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");

	/*
	 * There may be a later holder, which is gone when the caller tries again;
	 * or ZooKeeper's data may have been lost, so that the caller could try
	 * forever.  Only an administrator who knows the date of the loss can tell
	 * which.
	 */
	if (highest > token)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("lock \"%s\" has had a later holder", name),
				 errdetail("The fencing token of this hold is %lld, but table \"%s\" has %lld, written at %s.",
						   (long long) token, FENCE_TABLE,
						   (long long) highest,
						   timestamptz_to_str(fenced_at)),
				 errhint("Retry the transaction.  If the error persists, ZooKeeper's data has been lost or replaced, and tokens have started over.  Then make sure that no transaction from before the loss is left, and delete the row of the lock.")));
}

static int
run_keep(Relation table, Datum *values pg_attribute_unused())
{
	return SPI_execute(psprintf(KEEP_STATEMENT, full_name(table)), false, 0);
}

static int
run_put_back(Relation table, Datum *values)
{
	Oid			argtypes[KEEP_COLUMNS] = {
		TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, TIMESTAMPTZARRAYOID
	};

	return SPI_execute_with_args(psprintf(PUT_BACK_STATEMENT,
										  full_name(table)),
								 KEEP_COLUMNS, argtypes, values, NULL,
								 false, 0);
}

/* Keep the rows before a TRUNCATE, which a trigger cannot prevent. */
static void
keep_rows(Relation table)
{
	HeapTuple	row;
	TupleDesc	desc;
	MemoryContext save_context;
	bool		isnull;

	kept_rows = NULL;
	if (run_as_owner(table, run_keep, NULL) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "could not read table \"%s\"",
			 RelationGetRelationName(table));
	row = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	(void) SPI_getbinval(row, desc, 1, &isnull);
	if (isnull)
		return;

	save_context = MemoryContextSwitchTo(TopTransactionContext);
	kept_rows = palloc(KEEP_COLUMNS * sizeof(Datum));
	for (int i = 0; i < KEEP_COLUMNS; i++)
	{
		Datum		column = SPI_getbinval(row, desc, i + 1, &isnull);

		kept_rows[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(column));
	}
	MemoryContextSwitchTo(save_context);
}

static void
put_rows_back(Relation table)
{
	if (kept_rows &&
		run_as_owner(table, run_put_back, kept_rows) != SPI_OK_INSERT)
		elog(ERROR, "could not write table \"%s\"",
			 RelationGetRelationName(table));
	kept_rows = NULL;
}

/*
 * zk_fences_keep() returns trigger
 *
 * Trigger of the table zk_fences, for replication only (ENABLE REPLICA
 * TRIGGER): each database keeps its own tokens.  Changes of rows are skipped;
 * the rows that a TRUNCATE removes are put back.
 */
Datum
zk_fences_keep(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" was not called by trigger manager",
						"zk_fences_keep")));
	if (TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
	{
		if (!writing)
			return PointerGetDatum(NULL);
		return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
							   trigger->tg_newtuple : trigger->tg_trigtuple);
	}

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (TRIGGER_FIRED_BEFORE(trigger->tg_event))
		keep_rows(trigger->tg_relation);
	else
		put_rows_back(trigger->tg_relation);
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	return PointerGetDatum(NULL);
}
