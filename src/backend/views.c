/*-------------------------------------------------------------------------
 *
 * views.c
 *		The functions behind the views zk_locks, zk_session, zk_stat,
 *		zk_stat_locks and zk_deadlocks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/views.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "backend/heavyweight.h"
#include "backend/names.h"
#include "backend/timeout.h"
#include "catalog/pg_type.h"
#include "core/histogram.h"
#include "core/lock/znode.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/deadlocks.h"
#include "shared/holders.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "shared/test_build.h"
#include "shared/text.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_lock_status);
PG_FUNCTION_INFO_V1(zk_session_status);
PG_FUNCTION_INFO_V1(zk_stat_status);
PG_FUNCTION_INFO_V1(zk_stat_reset);
PG_FUNCTION_INFO_V1(zk_deadlock_status);
PG_FUNCTION_INFO_V1(zk_stat_locks_status);

#define LOCK_STATUS_COLUMNS		13
#define SESSION_STATUS_COLUMNS	17
#define STAT_STATUS_COLUMNS		20
#define DEADLOCK_STATUS_COLUMNS	12
#define STAT_LOCKS_COLUMNS		20

static const char *
mode_name(ZnodeKind kind)
{
	switch (kind)
	{
		case ZNODE_MUTEX:
		case ZNODE_WRITER:
			return "exclusive";
		case ZNODE_READER:
			return "shared";
		case ZNODE_PERMIT:
			return "permit";
	}
	return "unknown";
}

/* Whom a lock excludes, as zklock.exclusion has it. */
static Datum
exclusion_value(bool of_instance)
{
	return CStringGetTextDatum(of_instance ? "instance" : "fleet");
}

/*
 * zk_lock_status() returns setof record
 *
 * The holds and waits of this instance; behind the view zk_locks.
 */
Datum
zk_lock_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkLockRow  *rows;
	int			nrows;

	zk_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, LOCK_STATUS_COLUMNS);
	rows = slots_snapshot(&nrows);

	for (int i = 0; i < nrows; i++)
	{
		Datum		values[LOCK_STATUS_COLUMNS];
		bool		nulls[LOCK_STATUS_COLUMNS] = {0};
		LOCKTAG		tag;
		int			n = 0;

		CHECK_FOR_INTERRUPTS();
		if (!key_advisory_tag(&rows[i].key, &tag))
			key_tag(&rows[i].key, rows[i].path, &tag);
		values[n++] = CStringGetTextDatum(key_name(&rows[i].key));
		nulls[n] = rows[i].claim;
		values[n++] = Int32GetDatum(rows[i].pid);
		values[n++] = CStringGetTextDatum(mode_name(rows[i].kind));
		values[n++] = CStringGetTextDatum(rows[i].claim ? "claim" :
										  rows[i].session ?
										  "session" : "transaction");
		values[n++] = BoolGetDatum(rows[i].granted);
		values[n++] = BoolGetDatum(rows[i].lost);
		values[n++] = TimestampTzGetDatum(rows[i].since);
		values[n++] = CStringGetTextDatum(rows[i].path);
		nulls[n] = rows[i].token == 0;
		values[n++] = Int64GetDatum(rows[i].token);
		values[n++] = ObjectIdGetDatum(tag.locktag_field2);
		values[n++] = ObjectIdGetDatum(tag.locktag_field3);
		values[n++] = Int16GetDatum((int16) tag.locktag_field4);
		values[n++] = exclusion_value(key_is_of_instance(&rows[i].key));
		Assert(n == LOCK_STATUS_COLUMNS);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	pfree(rows);
	return (Datum) 0;
}

static const char *
session_state_name(ZkSessionState state)
{
	switch (state)
	{
		case ZK_SESSION_DOWN:
			return "down";
		case ZK_SESSION_CONNECTING:
			return "connecting";
		case ZK_SESSION_CONNECTED:
			return "connected";
		case ZK_SESSION_SUSPENDED:
			return "suspended";
	}
	return "unknown";
}

/* An array of the names of what is missing. */
static Datum
feature_names(uint32 missing)
{
	Datum		names[ZK_FEATURES];
	int			n = 0;

	for (int i = 0; i < ZK_FEATURES; i++)
		if (missing & (1 << i))
			names[n++] = CStringGetTextDatum(zk_feature_name(i));
	return PointerGetDatum(construct_array(names, n, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

/*
 * zk_session_status() returns record
 *
 * The state of the ZooKeeper session; behind the view zk_session.
 */
Datum
zk_session_status(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[SESSION_STATUS_COLUMNS];
	bool		nulls[SESSION_STATUS_COLUMNS] = {0};
	ZkSessionInfo info;
	ZkFleetInfo fleet;
	ZkWrongSetting wrong;
	int64		lease;
	int			n = 0;

	zk_check_preloaded();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	check_row_columns(tupdesc, SESSION_STATUS_COLUMNS);
	session_read(&info);
	session_read_fleet(&fleet);
	lease = lease_read_ms();

	values[n++] = CStringGetTextDatum(session_state_name(info.state));
	values[n++] = TimestampTzGetDatum(zk_wall_time(info.state_since));
	nulls[n] = info.key.client_id == 0;
	values[n++] = session_id_text(info.key.client_id);
	nulls[n] = info.server[0] == '\0';
	values[n++] = CStringGetTextDatum(info.server);
	values[n++] = CStringGetTextDatum(zklock_servers);
	values[n++] = interval_of_us((int64) info.timeout * 1000);
	nulls[n] = lease == 0;
	values[n++] = interval_of_us(zk_time_left(lease) * 1000);
	values[n++] = Int64GetDatum(info.sessions);
	values[n++] = Int64GetDatum(info.reconnects);
	nulls[n] = info.worker_pid == 0;
	values[n++] = Int32GetDatum(info.worker_pid);

	/* this backend takes no lock either, if its own root is wrong */
	if (info.last_error[0] == '\0' && zk_wrong_setting(true, &wrong))
		strlcpy(info.last_error, zk_describe_wrong_setting(&wrong),
				sizeof(info.last_error));
	nulls[n] = info.last_error[0] == '\0';
	values[n++] = CStringGetTextDatum(info.last_error);
	values[n++] = Int64GetDatum(path_bytes_read(NULL));
	values[n++] = Int64GetDatum(ZK_PATH_BYTES_BOUND);
	values[n++] = Int64GetDatum(directories_read());
	nulls[n] = fleet.id[0] == '\0';
	values[n++] = fleet.id[0] == '\0' ? (Datum) 0 :
		DirectFunctionCall1(uuid_in, CStringGetDatum(fleet.id));
	values[n++] = exclusion_value(zklock_exclusion == ZK_EXCLUSION_INSTANCE);
	nulls[n] = info.missing == 0;
	values[n++] = feature_names(info.missing);
	Assert(n == SESSION_STATUS_COLUMNS);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

static Datum
histogram(const int64 *buckets)
{
	Datum		elements[HISTOGRAM_BUCKETS];
	int16		typlen;
	bool		typbyval;
	char		typalign;

	get_typlenbyvalalign(INT8OID, &typlen, &typbyval, &typalign);
	for (int i = 0; i < HISTOGRAM_BUCKETS; i++)
		elements[i] = Int64GetDatum(buckets[i]);
	return PointerGetDatum(construct_array(elements, HISTOGRAM_BUCKETS,
										   INT8OID,
										   typlen, typbyval, typalign));
}

/*
 * zk_stat_status() returns record
 *
 * The counters of this instance; behind the view zk_stat.
 */
Datum
zk_stat_status(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Datum		values[STAT_STATUS_COLUMNS];
	bool		nulls[STAT_STATUS_COLUMNS] = {0};
	ZkStats		stats;
	const ZkCounts *counts = &stats.counts;
	int			n = 0;

	zk_check_preloaded();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	check_row_columns(tupdesc, STAT_STATUS_COLUMNS);
	stats_read(&stats);

	values[n++] = Int64GetDatum(counts->taken);
	values[n++] = Int64GetDatum(counts->handed_off);
	values[n++] = Int64GetDatum(counts->waited);
	values[n++] = Int64GetDatum(counts->timed_out);
	values[n++] = Int64GetDatum(counts->failed);
	values[n++] = Int64GetDatum(counts->deadlocks);
	values[n++] = Int64GetDatum(counts->lost);
	values[n++] = Float8GetDatum(counts->wait_time / 1000.0);
	values[n++] = Float8GetDatum(counts->hold_time / 1000.0);
	values[n++] = histogram(counts->wait_histogram);
	values[n++] = histogram(counts->hold_histogram);
	values[n++] = Int32GetDatum(slots_in_use());
	values[n++] = Int32GetDatum(procs_in_use());
	values[n++] = TimestampTzGetDatum(stats.reset_at);
	values[n++] = Int32GetDatum(claims_count());
	values[n++] = Int64GetDatum(stats.claims_expired);
	values[n++] = Int64GetDatum(counts->retained);
	values[n++] = Int64GetDatum(counts->retaken);
	values[n++] = Int64GetDatum(counts->revoked);
	values[n++] = Int64GetDatum(counts->waited_revoke);
	Assert(n == STAT_STATUS_COLUMNS);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

/*
 * zk_stat_reset() returns void
 *
 * Set the counters of this instance to zero, and forget its deadlocks and the
 * counters of single locks.
 */
Datum
zk_stat_reset(PG_FUNCTION_ARGS pg_attribute_unused())
{
	zk_check_preloaded();
	stats_reset();
	deadlocks_forget();
	PG_RETURN_VOID();
}

/* The member that blocks another one, by its number from 1, as an array. */
static Datum
blockers(const ZkDeadlock *deadlock, int member)
{
	Datum		next = Int32GetDatum((member + 1) % deadlock->nmembers + 1);

	return PointerGetDatum(construct_array(&next, 1, INT4OID, sizeof(int32),
										   true, TYPALIGN_INT));
}

static void
put_member(ReturnSetInfo *rsinfo, const ZkDeadlock *deadlock, int i)
{
	const ZkDeadlockMember *member = &deadlock->members[i];
	Datum		values[DEADLOCK_STATUS_COLUMNS];
	bool		nulls[DEADLOCK_STATUS_COLUMNS] = {0};
	bool		of_session = member->kind == DEADLOCK_SESSION ||
		member->kind == DEADLOCK_WORK;
	int			n = 0;

	values[n++] = Int64GetDatum(deadlock->number);
	values[n++] = TimestampTzGetDatum(deadlock->detected);
	values[n++] = Int32GetDatum(i + 1);
	values[n++] = CStringGetTextDatum(text_of_string(member->cluster_name));
	values[n++] = Int32GetDatum(member->pid);
	nulls[n] = of_session;
	values[n++] = CStringGetTextDatum(member->kind == DEADLOCK_SHARED ?
									  "shared" : "exclusive");
	nulls[n] = of_session;
	values[n++] = of_session ? (Datum) 0 :
		CStringGetTextDatum(path_lock_name(member->path));
	values[n++] = CStringGetTextDatum(text_of_string(member->path));
	values[n++] = Int32GetDatum(member->holder_pid);
	values[n++] = blockers(deadlock, i);
	values[n++] = BoolGetDatum(i == 0);
	values[n++] = BoolGetDatum(member->local);
	Assert(n == DEADLOCK_STATUS_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_deadlock_status() returns setof record
 *
 * The latest deadlocks with other instances, a row for each member; behind the
 * view zk_deadlocks.
 */
Datum
zk_deadlock_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkDeadlock *deadlocks;
	int			ndeadlocks;

	zk_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, DEADLOCK_STATUS_COLUMNS);
	deadlocks = deadlocks_list(&ndeadlocks);
	for (int i = 0; i < ndeadlocks; i++)
		for (int j = 0; j < deadlocks[i].nmembers; j++)
			put_member(rsinfo, &deadlocks[i], j);
	return (Datum) 0;
}

static void
put_lock_stats(ReturnSetInfo *rsinfo, const ZkLockStats *stats)
{
	Datum		values[STAT_LOCKS_COLUMNS];
	bool		nulls[STAT_LOCKS_COLUMNS] = {0};
	const ZkCounts *counts = &stats->counts;
	bool		others = stats->id == 0;
	const char *slash = strrchr(stats->path, '/');
	int			n = 0;

	values[n++] = CStringGetTextDatum(others ? "others" :
									  path_lock_name(stats->path));
	nulls[n] = others;
	values[n++] = others ? (Datum) 0 :
		CStringGetTextDatum(pnstrdup(stats->path, slash - stats->path));
	values[n++] = Int64GetDatum(counts->taken);
	values[n++] = Int64GetDatum(counts->handed_off);
	values[n++] = Int64GetDatum(counts->waited);
	values[n++] = Int64GetDatum(counts->timed_out);
	values[n++] = Int64GetDatum(counts->failed);
	values[n++] = Int64GetDatum(counts->deadlocks);
	values[n++] = Int64GetDatum(counts->lost);
	values[n++] = Float8GetDatum(counts->wait_time / 1000.0);
	values[n++] = Float8GetDatum(stats->max_wait / 1000.0);
	values[n++] = Float8GetDatum(counts->hold_time / 1000.0);
	values[n++] = Float8GetDatum(stats->max_hold / 1000.0);
	values[n++] = histogram(counts->wait_histogram);
	values[n++] = histogram(counts->hold_histogram);
	values[n++] = TimestampTzGetDatum(stats->since);
	values[n++] = Int64GetDatum(counts->retained);
	values[n++] = Int64GetDatum(counts->retaken);
	values[n++] = Int64GetDatum(counts->revoked);
	values[n++] = Int64GetDatum(counts->waited_revoke);
	Assert(n == STAT_LOCKS_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_stat_locks_status() returns setof record
 *
 * The counters of single locks of this instance; behind the view
 * zk_stat_locks.
 */
Datum
zk_stat_locks_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkLockStats *stats;
	int			n;

	zk_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, STAT_LOCKS_COLUMNS);
	stats = lock_stats_read(&n);
	for (int i = 0; i < n; i++)
		put_lock_stats(rsinfo, &stats[i]);
	pfree(stats);
	return (Datum) 0;
}
