/*-------------------------------------------------------------------------
 *
 * fence.c
 *		Fencing tokens in the database: the table zk_fences.
 *
 * A holder writes its token into the row of its lock, within its own
 * transaction.  The row lock makes every later one wait for the end of that
 * transaction, and an earlier one that comes too late finds a higher token.
 *
 * Whoever may take locks may do so, but only through here: the statement runs
 * as the owner of the table, who alone may write to it.  The table is the one
 * in the schema of the calling function, that is, of the extension; the
 * statement names it in full and depends on no search_path.
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
#include "backend/backend.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "zklock.h"

#define FENCE_TABLE		"zk_fences"

/*
 * A higher token in the row stays and is returned, and when it was written;
 * the caller then fails, so that nothing of the statement remains.
 */
#define FENCE_STATEMENT \
	"INSERT INTO %s AS f (name, root, token, fenced_at)" \
	" VALUES ($1, $2, $3, pg_catalog.clock_timestamp())" \
	" ON CONFLICT (name, root) DO UPDATE" \
	" SET token = GREATEST(f.token, EXCLUDED.token)," \
	" fenced_at = CASE WHEN f.token OPERATOR(pg_catalog.>) EXCLUDED.token" \
	" THEN f.fenced_at ELSE EXCLUDED.fenced_at END" \
	" RETURNING f.token, f.fenced_at"

/* The statement, prepared, and the table that it is for. */
static SPIPlanPtr fence_plan = NULL;
static Oid	fence_table = InvalidOid;

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
				 errhint("It is part of extension \"zklock\".")));
	return table_open(table, RowExclusiveLock);
}

/*
 * The prepared statement.  It is made anew when the table is another one, or
 * may have got another name or schema: the plan cache would only parse the
 * same text again.  That the plan is valid can be told when the table is
 * locked.
 */
static SPIPlanPtr
get_plan(Relation table)
{
	Oid			argtypes[] = {TEXTOID, TEXTOID, INT8OID};
	SPIPlanPtr	plan = fence_plan;
	char	   *name;

	if (plan != NULL && fence_table == RelationGetRelid(table) &&
		SPI_plan_is_valid(plan))
		return plan;

	fence_plan = NULL;
	if (plan != NULL)
		SPI_freeplan(plan);

	name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
									  RelationGetRelationName(table));
	plan = SPI_prepare(psprintf(FENCE_STATEMENT, name),
					   lengthof(argtypes), argtypes);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	SPI_keepplan(plan);
	fence_table = RelationGetRelid(table);
	fence_plan = plan;
	return plan;
}

/*
 * Run the statement as the table's owner; the token that is in the row then,
 * and when it was written.
 */
static int64
write_token(Relation table, const char *name, int64 token,
			TimestampTz *fenced_at)
{
	Datum		values[3];
	bool		isnull;
	Oid			save_userid;
	int			save_sec_context;
	int			result;

	values[0] = CStringGetTextDatum(name);
	values[1] = CStringGetTextDatum(zklock_root);
	values[2] = Int64GetDatum(token);

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(table->rd_rel->relowner,
						   save_sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	result = SPI_execute_plan(get_plan(table), values, NULL, false, 0);
	SetUserIdAndSecContext(save_userid, save_sec_context);

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
	 * We cannot tell a later holder, which is gone when the caller tries
	 * again, from ZooKeeper's data having been lost, after which the caller
	 * might try for ever.  Who knows the date of the loss can.
	 */
	if (highest > token)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("lock \"%s\" has had a later holder", name),
				 errdetail("The fencing token of this hold is %lld, but table \"%s\" has %lld, written at %s.",
						   (long long) token, FENCE_TABLE,
						   (long long) highest,
						   timestamptz_to_str(fenced_at)),
				 errhint("Retry the transaction.  If the error persists, ZooKeeper's data has been lost or replaced, and tokens have started over: then delete the row of the lock, after making sure that no transaction from before the loss is left.")));
}
