/*-------------------------------------------------------------------------
 *
 * misc.c
 *		Stand-ins for what is left of PostgreSQL, and for the parts of zklock
 *		that the simulator leaves out.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/misc.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include <signal.h>
#include <zookeeper/zookeeper.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "backend/reads.h"
#include "commands/async.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "postmaster/bgworker.h"
#include "postmaster/postmaster.h"
#include "replication/logicalworker.h"
#include "replication/origin.h"
#include "storage/dsm.h"
#include "tcop/pquery.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "storage/pmsignal.h"
#include "utils/tuplestore.h"
#include "worker/contender.h"
#include "worker/zookeeper/session_file.h"

/*
 * PostgreSQL: who we are.
 */
bool		IsUnderPostmaster = true;
bool		process_shared_preload_libraries_in_progress = false;
bool		InitializingParallelWorker = false;
int			ParallelWorkerNumber = -1;
pid_t		PostmasterPid = 1;
int			PostPortNumber = 5432;
Oid			MyDatabaseId = InvalidOid;
BackendType MyBackendType = B_BACKEND;
struct Port *MyProcPort = NULL;
Portal		ActivePortal = NULL;
int			client_connection_check_interval = 0;
XLogRecPtr	replorigin_session_origin_lsn;
TimestampTz replorigin_session_origin_timestamp;

static TimestampTz statement_started;

uint64
GetSystemIdentifier(void)
{
	return 7000 + instance_number(sim_instance());
}

bool
RecoveryInProgress(void)
{
	return false;
}

bool
IsLogicalWorker(void)
{
	return false;
}

void
BackgroundWorkerInitializeConnection(const char *dbname, const char *username,
									 uint32 flags)
{
	(void) dbname;
	(void) username;
	(void) flags;
}

void
BackgroundWorkerUnblockSignals(void)
{
}

void
pgstat_report_appname(const char *name)
{
	(void) name;
}

void
pgstat_report_deadlock(void)
{
}

void
pgstat_clear_backend_activity_snapshot(void)
{
}

/* None works for another instance. */
int
pgstat_fetch_stat_numbackends(void)
{
	return 0;
}

LocalPgBackendStatus *
pgstat_fetch_stat_local_beentry(int beid)
{
	(void) beid;
	SIM_LACKS();
}

const char *
pgstat_get_backend_current_activity(int pid, bool checkUser)
{
	(void) pid;
	(void) checkUser;
	return "a statement";
}

bool
pq_is_reading_msg(void)
{
	return false;
}

bool
pq_check_connection(void)
{
	SIM_LACKS();
}

void
enable_timeout_after(TimeoutId id, int delay_ms)
{
	(void) id;
	(void) delay_ms;
	SIM_LACKS();
}

void
disable_timeout(TimeoutId id, bool keep_indicator)
{
	(void) id;
	(void) keep_indicator;
	SIM_LACKS();
}

/* No transaction uses NOTIFY. */
void
AtPrepare_Notify(void)
{
}

bool
IsTransactionBlock(void)
{
	return xact_is_open();
}

TimestampTz
GetCurrentStatementStartTimestamp(void)
{
	return statement_started;
}

void
note_statement_start(void)
{
	statement_started = GetCurrentTimestamp();
}

const char *
timestamptz_to_str(TimestampTz time)
{
	static char text[32];

	pg_snprintf(text, sizeof(text), "%lld", (long long) time);
	return text;
}

pg_time_t
timestamptz_to_time_t(TimestampTz time)
{
	return (pg_time_t) (time / USECS_PER_SEC +
						(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY);
}

void
ResetPlanCache(void)
{
}

void
InvalidateCatalogSnapshotConditionally(void)
{
}

/*
 * Text: the server encoding is UTF8.
 */
text *
cstring_to_text(const char *s)
{
	text	   *result = palloc(strlen(s) + VARHDRSZ);

	SET_VARSIZE(result, strlen(s) + VARHDRSZ);
	memcpy(VARDATA(result), s, strlen(s));
	return result;
}

char *
text_to_cstring(const text *t)
{
	return pnstrdup(VARDATA_ANY(t), VARSIZE_ANY_EXHDR(t));
}

char *
pg_server_to_any(const char *s, int len, int encoding)
{
	(void) len;
	(void) encoding;
	return unconstify(char *, s);
}

int
pg_do_encoding_conversion_buf(Oid proc, int src_encoding, int dest_encoding,
							  unsigned char *src, int srclen,
							  unsigned char *dest, int destlen, bool noError)
{
	(void) proc;
	(void) src_encoding;
	(void) dest_encoding;
	(void) src;
	(void) srclen;
	(void) dest;
	(void) destlen;
	(void) noError;
	SIM_LACKS();
}

Oid
FindDefaultConversionProc(int32 for_encoding, int32 to_encoding)
{
	(void) for_encoding;
	(void) to_encoding;
	SIM_LACKS();
}

int
GetDatabaseEncoding(void)
{
	return PG_UTF8;
}

bool
pg_verify_mbstr(int encoding, const char *mbstr, int len, bool noError)
{
	(void) encoding;
	(void) mbstr;
	(void) len;
	(void) noError;
	return true;
}

bool
superuser_arg(Oid roleid)
{
	(void) roleid;
	return false;
}

bool
superuser(void)
{
	return superuser_arg(InvalidOid);
}

Oid
GetUserId(void)
{
	SIM_LACKS();
	return InvalidOid;
}

char *
GetUserNameFromId(Oid roleid, bool noerr)
{
	(void) roleid;
	(void) noerr;
	SIM_LACKS();
	return NULL;
}

/* No value is compressed, or out of line. */
struct varlena *
pg_detoast_datum_packed(struct varlena *datum)
{
	return datum;
}

/* No function returns a set. */
void
InitMaterializedSRF(FunctionCallInfo fcinfo, bits32 flags)
{
	(void) fcinfo;
	(void) flags;
	SIM_LACKS();
}

#ifndef USE_FLOAT8_BYVAL
Datum
Int64GetDatum(int64 value)
{
	(void) value;
	SIM_LACKS();
}
#endif

void
tuplestore_putvalues(Tuplestorestate *state, TupleDesc tdesc, Datum *values,
					 bool *isnull)
{
	(void) state;
	(void) tdesc;
	(void) values;
	(void) isnull;
	SIM_LACKS();
}

/* Settings are as locks need them. */
char *
get_func_name(Oid funcid)
{
	(void) funcid;
	SIM_LACKS();
}

char *
get_database_name(Oid dbid)
{
	(void) dbid;
	return pstrdup("db");
}

/*
 * The worker reads nothing for backends, since none asks.
 */
dsm_segment *
dsm_create(Size size, int flags)
{
	(void) size;
	(void) flags;
	SIM_LACKS();
}

void
dsm_detach(dsm_segment *segment)
{
	(void) segment;
	SIM_LACKS();
}

void *
dsm_segment_address(dsm_segment *segment)
{
	(void) segment;
	SIM_LACKS();
}

dsm_handle
dsm_segment_handle(dsm_segment *segment)
{
	(void) segment;
	SIM_LACKS();
}

void
dsm_pin_segment(dsm_segment *segment)
{
	(void) segment;
	SIM_LACKS();
}

void
dsm_unpin_segment(dsm_handle handle)
{
	(void) handle;
	SIM_LACKS();
}

/*
 * Of zklock: what the simulator leaves out.
 */
bool
read_owner(const ZkKey *key, int timeout_ms, StringInfo owner)
{
	(void) key;
	(void) timeout_ms;
	(void) owner;
	SIM_LACKS();
}

/* Nobody knows which instance it is. */
bool
read_instance(const char *id, int timeout_ms, StringInfo instance)
{
	(void) id;
	(void) timeout_ms;
	(void) instance;
	return false;
}

/* As the library's: it asks for the state of its handle first. */
int
zookeeper_process(zhandle_t *zh, int events)
{
	(void) events;
	return is_unrecoverable(zh) ? ZINVALIDSTATE : ZOK;
}

/* The session file: always whole, and never of another data directory. */
static void
write_file(const SessionKey *key)
{
	sim_point();
	instance_write_file(sim_instance(), key, sizeof(*key));
	sim_point();
}

void
session_file_write(const SessionKey *key)
{
	write_file(key);
}

void
session_file_remove(void)
{
	SessionKey	none;

	memset(&none, 0, sizeof(none));
	write_file(&none);
}

bool
session_file_read(SessionKey *key)
{
	memset(key, 0, sizeof(*key));
	(void) instance_read_file(sim_instance(), key);
	return key->client_id != 0;
}

uint64
session_file_place(void)
{
	return 1 + instance_number(sim_instance());
}

/* The simulated postmaster starts the next worker in time. */
void
SendPostmasterSignal(PMSignalReason reason)
{
	(void) reason;
}
