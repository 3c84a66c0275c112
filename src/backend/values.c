/*-------------------------------------------------------------------------
 *
 * values.c
 *		SQL values for data from ZooKeeper and the worker.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/values.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/values.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/*
 * check_row_columns
 *		Check that rows with so many columns fit the schema.
 *
 * A newer version of the extension adds columns at the end.  If the schema is
 * older than the library, it has the first columns.  If it is newer, the
 * server has not been restarted since the update.
 */
void
check_row_columns(TupleDesc tupdesc, int columns)
{
	if (tupdesc->natts > columns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the extension zklock is newer than the library that the server has loaded"),
				 errhint("Restart the server.")));
}

/*
 * interval_of_us
 *		A time in microseconds as an interval.
 */
Datum
interval_of_us(int64 us)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return IntervalPGetDatum(interval);
}

/*
 * session_id_text
 *		The id of a ZooKeeper session as text, as ZooKeeper writes it.
 */
Datum
session_id_text(int64 session_id)
{
	return CStringGetTextDatum(psprintf("0x%llx",
										(unsigned long long) session_id));
}
