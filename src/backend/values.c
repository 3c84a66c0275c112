/*-------------------------------------------------------------------------
 *
 * values.c
 *		SQL values of what ZooKeeper and the worker tell.
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
 * timestamp_of_ctime
 *		ZooKeeper's clock as ours; false if it is out of our range.
 */
bool
timestamp_of_ctime(int64 ctime, TimestampTz *result)
{
	const int64 epoch_ms = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
		(USECS_PER_DAY / 1000);

	if (ctime <= 0 || ctime > END_TIMESTAMP / 1000)
		return false;
	*result = (ctime - epoch_ms) * 1000;
	return true;
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
