/*-------------------------------------------------------------------------
 *
 * connection.c
 *		The worker's connections to ZooKeeper, and the leases of its sessions.
 *
 * Opens a session, or resumes it, waits between attempts, and has another
 * worker try if it cannot get through.  session.c has the session itself.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/connection.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "common/hashfn.h"
#include "core/reason.h"
#include "shared/clock.h"
#include "shared/proof.h"
#include "shared/secure.h"
#include "shared/servers.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/text.h"
#include "storage/ipc.h"
#include "worker/connection.h"
#include "worker/fleet/fleet.h"
#include "worker/lives.h"
#include "worker/lock/checks.h"
#include "worker/lock/contender.h"
#include "worker/lock/sessions.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/session_file.h"
#include "worker/zookeeper/status.h"

/* How long to wait before trying to open a session again. */
#define REOPEN_DELAY_MS		1000

/*
 * How long to be without a connection, at the least and in session timeouts,
 * before a new worker tries, or a further session that has not begun is given
 * up.  The library can get into states in which it reaches no server any more:
 * it may skip every other address (ZOOKEEPER-2466), and servers refuse it that
 * know less than it has seen.
 */
#define MIN_UNCONNECTED_MS		10000
#define MAX_UNCONNECTED_TIMEOUTS	2

/* How long not to repeat a line of the library in the log, and of how many. */
#define LOG_INTERVAL_MS		60000
#define MAX_LOGGED			16

/* How often to look if a TLS handshake hangs, or SASL has failed. */
#define HANDSHAKE_CHECK_MS		500

/* Of one session; times as of zk_now_ms(). */
static struct
{
	int64		reopen_at_ms;	/* before which not to open it */
	int64		unconnected_since_ms;	/* 0: connected, or not trying */
}			connections[ZK_MAX_SESSIONS];

/* Since the last connection, we have been told why our credentials are no use. */
static bool refusal_told = false;

/* What the library told last, since then: for a session that is suspended. */
static char latest_reason[ZK_ERROR_SIZE] = "";

/*
 * With a setting that is wrong there is no session; a new worker comes when it
 * has been corrected.  Files may come right by themselves.
 */
static bool
settings_are_wrong(int session)
{
	ZkWrongSetting wrong;
	char	   *problem;

	problem = zk_wrong_setting(false, &wrong) ?
		zk_describe_wrong_setting(&wrong) : security_find_problem();
	if (problem == NULL)
		return false;
	if (status_set_error(session, problem) && wrong.name == NULL)
		ereport(LOG,
				(errmsg("could not use %s for ZooKeeper: %s",
						tls_is_wanted() ? "TLS" : "SASL", problem)));
	status_publish(session, ZK_SESSION_DOWN);
	connections[session].reopen_at_ms = zk_now_ms() + REOPEN_DELAY_MS;
	return true;
}

/* Which session to resume, if any, and what is known of it. */
static void
resume_options(int session, SessionOptions *options)
{
	const ZkSessionInfo *info = status(session);

	options->client_id = lives_old_session(options->passwd);
	if (options->client_id != 0 || info->client_id == 0)
		return;

	/* a shorter timeout counts from when the server hears of it */
	if (options->timeout < info->timeout)
		lease_shorten(session, zk_now_ms() + options->timeout -
					  options->timeout / 20);
	options->client_id = info->client_id;
	memcpy(options->passwd, info->passwd, sizeof(options->passwd));
	options->lease_until = lease_read_ms(session);
	options->first_timeout = info->first_timeout;
}

/*
 * connection_open
 *		Have a session: begin to connect if there is none and it is time
 *		for that.
 */
void
connection_open(int session)
{
	SessionOptions options;
	bool		several = auths_are_several();

	if (!session_is_closed(session) ||
		zk_now_ms() < connections[session].reopen_at_ms ||
		(session > 0 && lives_has_old_session()) ||
		settings_are_wrong(session))
		return;

	memset(&options, 0, sizeof(options));
	options.servers = psprintf("%s%s", servers_for_library(zklock_servers),
							   status_settle_chroot(session));
	options.timeout = zklock_session_timeout;
	options.auths = auths_collect(zklock_acl == ZK_ACL_CREATOR ||
								   contenders_count() > 0);
	options.tls = tls_files();
	options.sasl = sasl_params(session);
	if (several && !auths_are_several())
		fleet_drop_auths();
	refusal_told = false;
	options.creator_acl = zklock_acl == ZK_ACL_CREATOR;
	options.ticket = proof_latest(session);
	resume_options(session, &options);
	session_open(session, &options);

	/* if the last attempt has failed, that counts until this one gets further */
	if (connections[session].reopen_at_ms == 0)
		status_publish(session, ZK_SESSION_CONNECTING);
}

/*
 * connection_note_failure
 *		ZooKeeper's client could not begin to connect, with this errno: try
 *		again after a while.
 */
void
connection_note_failure(int session, int error)
{
	/* the library has told more, if it knew more */
	if (status(session)->last_error[0] == '\0')
		(void) status_set_error(session,
								psprintf("could not begin to connect: %s",
										 strerror(error)));
	status_publish(session, ZK_SESSION_DOWN);
	connections[session].reopen_at_ms = zk_now_ms() + REOPEN_DELAY_MS;
}

/* A session begins: note it for after a crash, beside the others. */
static void
write_file(int session, const SessionIdentity *identity)
{
	SessionKey	keys[ZK_MAX_SESSIONS];
	int			n = status_list_others(session, keys);

	keys[n].client_id = identity->client_id;
	memcpy(keys[n].passwd, identity->passwd, sizeof(keys[n].passwd));
	session_file_write(keys, n + 1);
}

/*
 * connection_set_up
 *		The session is connected: a new one, or again.
 */
void
connection_set_up(int session)
{
	SessionIdentity identity;

	session_identity(session, &identity);
	if (status(session)->client_id != identity.client_id)
		write_file(session, &identity);
	else
		checks_watch_queues(session, true);
	connections[session].reopen_at_ms = 0;
	refusal_told = false;
	latest_reason[0] = '\0';
	status_set_up(session, &identity);
	ereport(LOG,
			(errmsg("connected to ZooKeeper at %s, session 0x%llx, timeout %d ms",
					identity.address, (unsigned long long) identity.client_id,
					identity.timeout)));
}

/* Have another worker try if ZooKeeper answers on no connection. */
static void
replace_if_stuck(int session)
{
	if (!session_is_stuck(session) || lives_is_last_worker())
		return;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper does not answer on any connection")));
	proc_exit(1);
}

/*
 * connection_set_suspended
 *		The connection is lost; have another worker try if ZooKeeper
 *		answers on none.
 */
void
connection_set_suspended(int session)
{
	checks_watch_queues(session, false);
	if (latest_reason[0] != '\0')
		(void) status_set_error(session, latest_reason);
	status_set_suspended(session);
	ereport(LOG, (errmsg("lost the connection to ZooKeeper")));
	replace_if_stuck(session);
}

/* Is this a session beside the first, of which ZooKeeper does not know yet? */
static bool
has_not_begun(int session)
{
	return session > 0 && status(session)->client_id == 0;
}

/*
 * connection_is_locked_out
 *		Has ZooKeeper refused the credentials for so long that the session is
 *		to be given up?
 *
 * The library resumes the session ahead of authentication, and each time the
 * servers count its timeout anew.  So it would never expire, and nobody get the
 * locks.
 */
bool
connection_is_locked_out(int session)
{
	const ZkSessionInfo *info = status(session);

	return !has_not_begun(session) &&
		zk_now_us() - info->unreached_since >=
		Max(info->timeout, zklock_session_timeout) * INT64CONST(1000);
}

/*
 * Has the server log had this line of late?  The library repeats itself at
 * each attempt to connect, and lines that differ in their numbers only, such as
 * addresses and times, count as one.
 */
static bool
logged_of_late(const char *line)
{
	static struct
	{
		uint32		hash;
		int64		logged_ms;	/* as of zk_now_ms() */
	}			logged[MAX_LOGGED];
	int64		now_ms = zk_now_ms();
	uint32		hash;
	int			oldest = 0;
	char	   *words = pstrdup(line);
	int			len = 0;

	for (const char *c = line; *c != '\0'; c++)
		if (!isdigit((unsigned char) *c))
			words[len++] = *c;

	hash = hash_bytes((const unsigned char *) words, len);
	pfree(words);

	for (int i = 0; i < MAX_LOGGED; i++)
	{
		if (logged[i].hash == hash && logged[i].logged_ms != 0 &&
			now_ms - logged[i].logged_ms < LOG_INTERVAL_MS)
			return true;
		if (logged[i].logged_ms < logged[oldest].logged_ms)
			oldest = i;
	}
	logged[oldest].hash = hash;
	logged[oldest].logged_ms = now_ms;
	return false;
}

static bool
is_one_connected(void)
{
	for (int i = 0; i < sessions_end(); i++)
		if (status_is_connected(i))
			return true;
	return false;
}

/*
 * connection_set_refused
 *		ZooKeeper refused the credentials.
 *
 * The session lives on: the next worker tries to resume it, unless it has been
 * given up.  But this worker goes on, and tries again itself, if it was to be a
 * further session beside one that has a connection: that might not get another
 * one.
 */
void
connection_set_refused(int session)
{
	auths_forget_refused();
	if (!refusal_told)
	{
		char	   *reason = psprintf("ZooKeeper refused the credentials of \"%s\"",
									  secure_name_of_credentials());

		for (int i = 0; i < sessions_end(); i++)
			if (i == session || (sessions_has(i) && !status_is_connected(i)))
				(void) status_set_error(i, reason);
		ereport(logged_of_late(reason) ? DEBUG1 : LOG,
				(errmsg("%s", reason)));
	}
	if (has_not_begun(session) && is_one_connected())
	{
		session_disconnect(session);
		connections[session].reopen_at_ms = zk_now_ms() + REOPEN_DELAY_MS;
		refusal_told = false;
		if (sessions_has(session))	/* else it has just been given up */
			status_publish(session, ZK_SESSION_CONNECTING);
		return;
	}
	if (!lives_is_last_worker())
		proc_exit(1);
	session_close(session);
	status_publish(session, ZK_SESSION_SUSPENDED);
	connections[session].reopen_at_ms = PG_INT64_MAX;
}

/* What a line of the library's log means, as long as last_error may be. */
static char *
explain(int session, const char *line)
{
	const ZkSessionInfo *info = status(session);
	char		passwd[ZK_PASSWD_SIZE];
	char	   *reason = palloc(ZK_ERROR_SIZE);

	reason_of_line(line, info->state == ZK_SESSION_CONNECTED,
				   lives_has_old_session() ? lives_old_session(passwd) :
				   info->client_id,
				   reason, ZK_ERROR_SIZE);
	return text_for_log(reason);
}

/*
 * connection_message
 *		A line of the library's log.
 *
 * The library does not tell of which session it speaks: it may be any that is
 * not connected, and else any that is about to lose its connection.
 */
void
connection_message(int session, const char *message)
{
	const char *text = strchr(message, '@');
	char	   *line;
	char	   *reason;

	/* "<time>:<pid>(<thread>):ZOO_ERROR@<function>@<line>: <line>" */
	text = text ? strstr(text, ": ") : NULL;
	line = pstrdup(text ? text + 2 : message);
	line[strcspn(line, "\r\n")] = '\0';
	if (reason_is_none(line) || (refusal_told && !reason_is_of_refusal(line)))
		return;
	refusal_told = reason_is_of_refusal(line);
	reason = explain(session, line);
	strlcpy(latest_reason, reason, sizeof(latest_reason));

	for (int i = 0; i < sessions_end(); i++)
	{
		if (!sessions_has(i) || status_is_connected(i))
			continue;
		reason = explain(i, line);
		if (status_set_error(i, reason))
			status_publish(i, status(i)->state);
	}
	ereport(logged_of_late(reason) ? DEBUG1 : LOG,
			(errmsg("ZooKeeper client: %s", reason)));

	/* it would try again at once, and again */
	if (tls_is_hopeless(line) && !lives_is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker, because the files for TLS do not fit")));
		proc_exit(1);
	}
}

/*
 * connection_keep_lease
 *		Publish how long the session can be relied on, and see that it
 *		stays so while there is anything to lose.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
int64
connection_keep_lease(int session)
{
	uint32		ticket;
	int64		until = session_lease(session, &ticket);

	if (until != lease_read_ms(session) || ticket != proof_latest(session))
		lease_write(session, until, ticket);
	return session_keep_lease(session, proof_asked(session),
							  contenders_count_of(session) > 0);
}

/*
 * Have a new worker try, if this one has been without a connection for long.
 *
 * The time in which the library makes a handle does not count: that takes as
 * long as it takes to resolve names, for any worker.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
static int64
check_handle(int session, int64 now_ms, int64 limit_ms)
{
	int64	   *since_ms = &connections[session].unconnected_since_ms;

	if (session_is_closed(session) || session_is_opening(session) ||
		status_is_connected(session))
		*since_ms = 0;
	else if (*since_ms == 0)
		*since_ms = now_ms;
	if (session_is_closed(session))
		return session > 0 && lives_has_old_session() ? 0 :
			Max(connections[session].reopen_at_ms, 1);
	if (*since_ms == 0)
		return 0;

	if (session_is_open(session) && status(session)->state == ZK_SESSION_DOWN)
		status_publish(session, ZK_SESSION_CONNECTING);
	if (tls_is_wanted())
		replace_if_stuck(session);
	if (now_ms < *since_ms + limit_ms)
		return tls_is_wanted() || sasl_is_wanted() ?
			Min(now_ms + HANDSHAKE_CHECK_MS, *since_ms + limit_ms) :
			*since_ms + limit_ms;
	if (has_not_begun(session) || lives_is_last_worker())
		return 0;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper could not be reached for %lld ms",
					(long long) (now_ms - *since_ms))));
	proc_exit(1);
}

/*
 * connection_check
 *		Have a new worker try, if this one has been without a connection for
 *		long; but a further session that has not begun is given up, whatever it
 *		is that keeps it: what is wanted in it may have room elsewhere by now.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
int64
connection_check(int session)
{
	int64		now_ms = zk_now_ms();
	int64		limit_ms =
		(int64) status(session)->timeout * MAX_UNCONNECTED_TIMEOUTS;
	int64		give_up_ms;
	int64		again_ms;

	limit_ms = Max(limit_ms, MIN_UNCONNECTED_MS);
	if (!has_not_begun(session))
		return check_handle(session, now_ms, limit_ms);
	give_up_ms = sessions_since(session) + limit_ms;
	if (now_ms >= give_up_ms)
	{
		lives_end_session(session, "It could not be opened.");
		return 1;
	}
	again_ms = check_handle(session, now_ms, limit_ms);
	return again_ms == 0 ? give_up_ms : Min(again_ms, give_up_ms);
}
