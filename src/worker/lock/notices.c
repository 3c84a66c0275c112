/*-------------------------------------------------------------------------
 *
 * notices.c
 *		Notifies sessions of lost locks.
 *
 * The worker is connected to no database, so it cannot use NOTIFY.  It has the
 * postmaster start a short-lived process in each database with sessions to
 * notify: backend/notice.c.  shared/losses.c has the protocol.
 *
 * However many locks are lost at once, each database has one process at a
 * time, and there are at most ZK_NOTICES; the other databases follow.  If a
 * process cannot be started, or ends without having notified all sessions,
 * another one is started later, as long as there are sessions to notify.
 *
 * A worker that ends leaves its processes running; they are done soon.  The
 * next worker does not know of them, and may start others: then sessions are
 * notified twice.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/notices.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "shared/clock.h"
#include "shared/losses.h"
#include "utils/memutils.h"
#include "worker/lock/contender.h"
#include "worker/wake.h"

/* The most processes at a time. */
#define ZK_NOTICES		4

/* The postmaster finds the process by its function's name. */
#define NOTICE_MAIN		"zklock_notice_main"
#define NOTICE_NAME		"zklock notice"

/*
 * The pause before another attempt if PostgreSQL can start no process, and if
 * one has failed.
 */
#define START_AGAIN_MS	1000
#define TELL_AGAIN_MS	30000

typedef struct Notice
{
	Oid			database;
	BackgroundWorkerHandle *handle; /* NULL: not in use */
	uint32		nlosses;		/* losses_count() when it was started */
} Notice;

static struct
{
	Notice		running[ZK_NOTICES];
	bool		begun;			/* has looked for sessions to notify */
	uint32		nlosses;		/* losses_count() when it last did */
	List	   *ended;			/* databases whose process has ended, perhaps
								 * without notifying any session */
	bool		crowded;		/* others wait until one of "running" ends */
	bool		refused;		/* PostgreSQL could start no process */
}			notices;

/* The process for a database; NULL if there is none. */
static Notice *
find_notice(Oid database)
{
	for (int i = 0; i < ZK_NOTICES; i++)
		if (notices.running[i].handle != NULL &&
			notices.running[i].database == database)
			return &notices.running[i];
	return NULL;
}

/* An unused entry, or NULL; sets *running to the number of the others. */
static Notice *
free_place(int *running)
{
	Notice	   *place = NULL;

	*running = 0;
	for (int i = 0; i < ZK_NOTICES; i++)
		if (notices.running[i].handle != NULL)
			(*running)++;
		else
			place = &notices.running[i];
	return place;
}

/*
 * Forget the processes that have ended.  Sets *room if databases wait and one
 * has ended, and *more if locks have been lost that it may have missed.
 */
static void
reap(bool *room, bool *more)
{
	for (int i = 0; i < ZK_NOTICES; i++)
	{
		Notice	   *notice = &notices.running[i];
		MemoryContext old_context;
		pid_t		pid;

		if (notice->handle == NULL ||
			GetBackgroundWorkerPid(notice->handle, &pid) != BGWH_STOPPED)
			continue;
		pfree(notice->handle);
		notice->handle = NULL;
		old_context = MemoryContextSwitchTo(TopMemoryContext);
		notices.ended =
			list_append_unique_oid(notices.ended, notice->database);
		MemoryContextSwitchTo(old_context);
		*room |= notices.crowded;
		*more |= notice->nlosses != losses_count();
	}
}

/* Have the postmaster start a process; false if there is no room for one. */
static bool
start_notice(Notice *notice, Oid database)
{
	BackgroundWorker worker;
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	bool		started;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, NOTICE_MAIN,
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, NOTICE_NAME, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, NOTICE_NAME, sizeof(worker.bgw_type));
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;	/* sets our latch when it ends */

	notice->nlosses = losses_count();
	notice->database = database;
	started = RegisterDynamicBackgroundWorker(&worker, &notice->handle);
	MemoryContextSwitchTo(old_context);
	if (!started)
		notice->handle = NULL;
	return started;
}

/* Note whether a process can be started; if not, log that once. */
static void
set_refused(bool refused)
{
	if (refused && !notices.refused)
		ereport(LOG,
				(errmsg("could not start a process to notify sessions of lost locks"),
				 errdetail("It is tried again."),
				 errhint("You might need to increase \"max_worker_processes\".")));
	notices.refused = refused;
}

/*
 * Start a process in each database that has sessions to notify and no process;
 * if there is no room for all, the others follow.  Those of "ended" are left
 * out.
 */
static void
look(void)
{
	int			n;
	int			running = 0;
	Oid		   *databases;

	notices.nlosses = losses_count();
	databases = losses_databases(&n);
	notices.crowded = false;
	for (int i = 0; i < n && !notices.crowded; i++)
		if (find_notice(databases[i]) == NULL &&
			!list_member_oid(notices.ended, databases[i]))
		{
			Notice	   *notice = free_place(&running);

			notices.crowded = notice == NULL ||
				!start_notice(notice, databases[i]);
		}
	set_refused(notices.crowded && running == 0);

	/* are all notified by then? */
	wake_set(WAKE_NOTICES, n == 0 ? 0 : zk_now_ms() +
			 (notices.refused ? START_AGAIN_MS : TELL_AGAIN_MS));
	pfree(databases);
}

/*
 * notices_run
 *		Notify sessions of the locks that they have lost.
 *
 * Not while the server or this worker stops, and not on a standby, where
 * NOTIFY and LISTEN cannot be used.
 */
void
notices_run(void)
{
	bool		room = false;
	bool		more = !notices.begun || notices.nlosses != losses_count() ||
		wake_is_due(WAKE_NOTICES);

	reap(&room, &more);
	if (more)
	{
		list_free(notices.ended);
		notices.ended = NIL;
	}
	if (ShutdownRequestPending)
		wake_set(WAKE_NOTICES, 0);
	else if ((room || more) && RecoveryInProgress())
	{
		notices.nlosses = losses_count();
		losses_forget();
		wake_set(WAKE_NOTICES, 0);
	}
	else if (room || more)
		look();
	notices.begun = true;
}
