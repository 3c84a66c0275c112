/*-------------------------------------------------------------------------
 *
 * timeout.c
 *		How long a call may wait.
 *
 * A call has a deadline of its own, or none.  A call without a place in a
 * queue of ZooKeeper also gives up when there was no session for too long.
 * And a session whose client has gone stops waiting: if
 * client_connection_check_interval is off, a wait for a lock checks the
 * connection.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/timeout.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/timeout.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* How long connecting may take before it is reported, in ms. */
#define CONNECT_MS			3000

/* The longest time between a wait's checks of its client's connection. */
#define CLIENT_CHECK_MS		1000

/* We have set client_connection_check_interval for a wait. */
static bool watching = false;

/*
 * zk_time_left
 *		The time until a deadline of zk_now_ms(), in ms; -1 if there is none.
 */
int64
zk_time_left(int64 deadline)
{
	int64		now_ms = zk_now_ms();	/* once: it goes on between two
										 * readings */

	return deadline < 0 ? -1 : Max(deadline - now_ms, 0);
}

/*
 * The interval in ms at which a wait must check its client's connection; 0 if
 * there is no client, or PostgreSQL checks it, or the operating system cannot
 * tell.
 *
 * At most deadlock_timeout: a session of another instance may have had this
 * one work for it, and go on without it.  This one must have stopped waiting
 * by the time that matters for deadlocks.
 */
static int
client_interval(void)
{
	if (MyProcPort == NULL || client_connection_check_interval > 0 ||
		!WaitEventSetCanReportClosed())
		return 0;
	return Min(CLIENT_CHECK_MS, DeadlockTimeout);
}

/*
 * zk_watch_client, zk_unwatch_client
 *		Have PostgreSQL check the client's connection in a wait, as if
 *		client_connection_check_interval were set; and stop that, also after an
 *		error.
 */
void
zk_watch_client(void)
{
	int			interval = client_interval();

	if (interval == 0)
		return;
	watching = true;
	client_connection_check_interval = interval;
	enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT, interval);
}

void
zk_unwatch_client(void)
{
	if (!watching)
		return;
	disable_timeout(CLIENT_CONNECTION_CHECK_TIMEOUT, false);
	client_connection_check_interval = 0;
	watching = false;
}

/*
 * Has a server answered on the present connection?  One that has only granted
 * it may refuse the credentials, or lack what zklock needs.
 */
static bool
is_reached(const ZkSessionInfo *info)
{
	return info->state == ZK_SESSION_CONNECTED && info->answered;
}

/*
 * zk_timeout_left
 *		A call without a place in a queue waits for a session, but not for
 *		longer than the session timeout.
 *
 * Returns how long it may sleep until it must look again, in ms, or 0 if it
 * has waited for long enough.  "called_at" is when the call began, as of
 * zk_now_ms(): it counts as waiting for a session since then, if there was
 * none.  *since is when the session was first missed, or 0.  Fills in *info.
 */
int64
zk_timeout_left(int64 called_at, int64 *since, ZkSessionInfo *info)
{
	int64		now = zk_now_ms();

	session_read(info);

	/*
	 * Before PostgreSQL 16 the postmaster may sleep for up to a minute over
	 * the time at which the next worker is due: a signal that comes right
	 * before its select() does not end that.
	 */
	if (info->worker_pid == 0)
		SendPostmasterSignal(PMSIGNAL_BACKGROUND_WORKER_CHANGE);

	if (is_reached(info) && !info->draining)
	{
		*since = 0;
		return info->timeout;
	}
	if (*since == 0 && is_reached(info))
		*since = now;			/* draining */
	else if (*since == 0)
		*since = Max(called_at, info->state_since / 1000);
	return Max(info->timeout - (now - *since), 0);
}

/*
 * Is ZooKeeper unreachable?  A new worker needs a moment to connect, for which
 * ZooKeeper is not to blame.  It is not to blame either if workers have ended
 * one after the other, and none has failed to connect.
 */
static bool
is_outage(const ZkSessionInfo *info)
{
	if (info->state == ZK_SESSION_CONNECTED)
		return false;
	return (info->worker_pid != 0 && info->state != ZK_SESSION_CONNECTING) ||
		zk_now_us() - (info->last_error[0] != '\0' ? info->unreached_since :
					   info->state_since) >= CONNECT_MS * 1000;
}

/*
 * zk_describe_outage
 *		Since when and why there is no connection to ZooKeeper, as an error
 *		detail, palloc'd; NULL if there is one, or it is too early to expect
 *		one.
 */
char *
zk_describe_outage(void)
{
	ZkSessionInfo info;
	const char *since;

	session_read(&info);
	if (!is_outage(&info))
		return NULL;
	since = timestamptz_to_str(zk_wall_time(info.unreached_since));
	if (info.last_error[0] == '\0')
		return psprintf("ZooKeeper has not been reached since %s.", since);
	return psprintf("ZooKeeper has not been reached since %s: %s", since,
					info.last_error);
}

/*
 * zk_report_no_session
 *		Report (57P03) that there was no session for too long, for the lock
 *		with this name or, if that is NULL, for what is read of all locks.
 */
void
zk_report_no_session(int elevel, const char *name, const ZkSessionInfo *info)
{
	ereport(elevel,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 name ? errmsg("could not reach ZooKeeper for lock \"%s\"", name) :
			 errmsg("could not reach ZooKeeper"),
			 info->draining ?
			 errdetail("\"zklock.servers\" has a new chroot, but locks below the old one are still held after %d ms.",
					   info->timeout) :
			 info->last_error[0] != '\0' ?
			 errdetail("There was no session with \"%s\" for %d ms: %s",
					   zklock_servers, info->timeout, info->last_error) :
			 info->worker_pid == 0 ?
			 errdetail("The zklock worker is not running.") :
			 errdetail("There was no session with \"%s\" for %d ms.",
					   zklock_servers, info->timeout),
			 errhint("Check \"zklock.servers\" and that ZooKeeper is running; the view zk_session shows the state.")));
}
