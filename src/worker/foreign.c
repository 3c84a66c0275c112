/*-------------------------------------------------------------------------
 *
 * foreign.c
 *		Sessions that work for those of other instances, by postgres_fdw,
 *		and ours for which others work.
 *
 * See core/remote.c.  A session's application_name, which the other instance
 * has set by postgres_fdw.application_name, says for which session it works.
 * If this instance is configured with that setting, others may name our
 * sessions.
 *
 * A session of ours is in a statement on a foreign server if its wait event is
 * one of an extension, or of an Append that has sent its queries.  Some other
 * waits look the same, but then none of its remote sessions waits for a lock,
 * and no way leads on from what works for it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/foreign.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/remote.h"
#include "shared/compat.h"
#include "shared/slots.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#include "worker/foreign.h"

#define WAIT_CLASS_MASK		0xFF000000U

/* Of the latest scan. */
static HTAB *sessions;
static TimestampTz read_at;		/* ahead of reading their status */

/*
 * Do our sessions say to other instances for which session their remote
 * sessions work?
 */
bool
foreign_is_set(void)
{
	const char *name = GetConfigOption("postgres_fdw.application_name", true,
									   false);

	return name && strcmp(name, REMOTE_APPLICATION_NAME) == 0 &&
		cluster_name[0] != '\0';
}

/* May a process wait for a foreign server? */
static bool
may_wait_remotely(const PGPROC *proc)
{
	uint32		event = proc->wait_event_info;

	return (event & WAIT_CLASS_MASK) == PG_WAIT_EXTENSION ||
		event == WAIT_EVENT_APPEND_READY;
}

/*
 * Has this session an origin, one of another instance that it works for?  If
 * so, fills in that.
 */
static bool
read_origin(const PgBackendStatus *status, RemoteSession *origin)
{
	return status->st_backendType == B_BACKEND && status->st_appname &&
		remote_of_application(status->st_appname, origin) &&
		strcmp(origin->cluster_name, cluster_name) != 0;
}

/*
 * Has any session an origin?
 *
 * That matters only if it holds a lock.  So the status of all sessions is not
 * copied as long as no session that has an origin has ever wanted one.
 */
static bool
any_has_origin(void)
{
	RemoteSession origin;
	bool		found = false;

	if (!procs_remote_seen())
		return false;
	pgstat_clear_backend_activity_snapshot();
	for (int i = pgstat_fetch_stat_numbackends(); i > 0 && !found; i--)
		found = read_origin(&ZkLocalBackendStatus(i)->backendStatus, &origin);
	pgstat_clear_backend_activity_snapshot();
	return found;
}

/*
 * foreign_may_matter
 *		May there be edges through foreign servers: does any session wait for
 *		one, or work for another instance?
 */
bool
foreign_may_matter(void)
{
	bool		is_set = foreign_is_set();

	for (uint32 i = 0; is_set && i < ProcGlobal->allProcCount; i++)
	{
		const PGPROC *proc = &ProcGlobal->allProcs[i];

		if (proc->pid != 0 && may_wait_remotely(proc))
			return true;
	}
	return any_has_origin();
}

/* Fill in by which name others may know a session of ours. */
static void
set_name(ForeignSession *session, TimestampTz start)
{
	RemoteSession name = {.pid = session->pid};

	if (strlen(cluster_name) >= sizeof(name.cluster_name))
		return;
	name.start = (int64) timestamptz_to_time_t(start);
	strcpy(name.cluster_name, cluster_name);
	remote_write(&name, session->name);
}

/* Add a session if it matters; "set" is foreign_is_set(). */
static void
add_session(const PgBackendStatus *status, bool set)
{
	RemoteSession origin;
	bool		has_origin = read_origin(status, &origin);
	ForeignSession *session;

	if (status->st_backendType != B_BACKEND || (!has_origin && !set))
		return;
	session = hash_search(sessions, &status->st_procpid, HASH_ENTER, NULL);
	memset(session, 0, sizeof(*session));
	session->pid = status->st_procpid;
	session->start = (uint64) status->st_proc_start_timestamp;
	if (has_origin)
		remote_write(&origin, session->origin);
	if (has_origin && status->st_state == STATE_IDLEINTRANSACTION)
		session->idle = (uint64) status->st_state_start_timestamp;
	if (!set)
		return;
	set_name(session, status->st_proc_start_timestamp);
	if (session->name[0] != '\0' && (status->st_state == STATE_RUNNING ||
									 status->st_state == STATE_FASTPATH))
		session->statement = (uint64) status->st_activity_start_timestamp;
}

/*
 * Had what began at this time lasted for "wait_us" when the status of sessions
 * was read?  It had if it began in the future.  If not, sets *next_us to when
 * it will have, unless that is later than it says.
 */
static bool
has_lasted(uint64 began, int64 wait_us, int64 *next_us)
{
	int64		lasted = Max(read_at - (int64) began, 0);

	if (lasted >= wait_us || (int64) began > GetCurrentTimestamp())
		return true;
	*next_us = Min(*next_us, wait_us - lasted);
	return false;
}

/* Take away what does not count in this scan. */
static void
judge_session(ForeignSession *session, const PGPROC *proc, int64 wait_us,
			  int64 *next_us)
{
	if (session->idle != 0 && !has_lasted(session->idle, wait_us, next_us))
		session->idle = 0;
	if (session->statement != 0 &&
		!(may_wait_remotely(proc) &&
		  has_lasted(session->statement, wait_us, next_us)))
		session->statement = 0;
}

/*
 * foreign_begin
 *		Begin a scan, in which statements on foreign servers count, and what
 *		rests, if they have lasted for "wait_us".
 *
 * Returns the sessions that matter: a list of ForeignSessions, palloc'd in the
 * current context, and valid until the next scan begins.  Sets *next_us to in
 * how many us another one counts, unless that is more than it says.
 */
List *
foreign_begin(int64 wait_us, int64 *next_us)
{
	bool		set = foreign_is_set();
	List	   *result = NIL;
	HASHCTL		ctl;
	HASH_SEQ_STATUS seq;
	ForeignSession *session;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int);
	ctl.entrysize = sizeof(ForeignSession);
	ctl.hcxt = CurrentMemoryContext;
	sessions = hash_create("zklock foreign sessions", 64, &ctl,
						   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (!set && !procs_remote_seen())
		return NIL;
	read_at = GetCurrentTimestamp();
	pgstat_clear_backend_activity_snapshot();
	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
		add_session(&ZkLocalBackendStatus(i)->backendStatus, set);
	pgstat_clear_backend_activity_snapshot();
	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		const PGPROC *proc = &ProcGlobal->allProcs[i];
		int			pid = proc->pid;

		session = pid == 0 ? NULL :
			hash_search(sessions, &pid, HASH_FIND, NULL);
		if (session)
			judge_session(session, proc, wait_us, next_us);
	}
	hash_seq_init(&seq, sessions);
	while ((session = hash_seq_search(&seq)) != NULL)
		result = lappend(result, session);
	return result;
}

/* The session of a process, or NULL. */
const ForeignSession *
foreign_find(int pid)
{
	return hash_search(sessions, &pid, HASH_FIND, NULL);
}
