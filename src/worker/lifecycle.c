/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *		How the worker and its sessions begin, go on and end.
 *
 * The worker may end at any time without loss.  What the next one needs is in
 * shared memory: each session's ID and password, and the state and contender
 * of each slot.  So a worker that ends alone leaves the sessions open, and the
 * next one resumes them.  They are closed only when the server shuts down or
 * zklock.servers has a new chroot, and then only after the last backend has
 * dropped its locks; a session other than the first is also closed after it
 * has been empty for a while.
 *
 * Sessions are opened or resumed as needed; a failed attempt is repeated, and
 * if this worker cannot get through, another one tries.  The lease of each
 * session is kept running and published.  session.c has the session itself.
 *
 * After a crash of the whole server, shared memory is gone.  The first worker
 * finds the previous sessions in a file (session_file.c), attaches to one
 * after the other and closes it, and only then begins its own.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lifecycle.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <signal.h>

#include "common/hashfn.h"
#include "core/mutation.h"
#include "core/reason.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/test_build.h"
#include "shared/text.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/pidfile.h"
#include "worker/deadlock/deadlock.h"
#include "worker/fleet/fleet.h"
#include "worker/lifecycle.h"
#include "worker/lock/contender.h"
#include "worker/sessions.h"
#include "worker/wake.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/session_file.h"
#include "worker/zookeeper/status.h"

/*
 * The delay before another attempt to open a session; and if the server lacks
 * what zklock needs.
 */
#define REOPEN_DELAY_MS		1000
#define UNFIT_DELAY_MS		10000

/*
 * How long there is no connection (the larger of a fixed time and a number of
 * session timeouts) before a new worker tries, or a further session that has
 * not begun is given up.  The library can get stuck without reaching a server:
 * it may skip every other address (ZOOKEEPER-2466), and servers that lag
 * behind what it has seen refuse it.
 */
#define MIN_UNCONNECTED_MS		10000
#define MAX_UNCONNECTED_TIMEOUTS	2

/*
 * A line of the library is logged once in this time; so many lines are
 * remembered.
 */
#define LOG_INTERVAL_MS		60000
#define MAX_LOGGED			16

/* How often to check whether a TLS handshake hangs, or SASL has failed. */
#define HANDSHAKE_CHECK_MS		500

/* How often to check for the last holder while a session is to end. */
#define DRAIN_CHECK_MS		10

/* In the data directory, which is every process's working directory. */
#define POSTMASTER_PID_FILE	"postmaster.pid"

/*
 * A session whose nodes have longer paths, in all, is closed after they have
 * been deleted in batches; but not later than this.
 */
#define CLOSE_PATH_BYTES	(64 * 1024)
#define CLOSE_DELAY_MS		2000

/*
 * How long the end of the server waits until ZooKeeper has been told that the
 * sessions end.  The library gives up after 4.5 s.
 */
#define TELL_END_MS			6000

/*
 * A session other than the first is closed after it was empty for this long.
 */
#define EMPTY_DELAY_MS		10000

/* SIGTERM came from the postmaster, which ends all its workers. */
static volatile sig_atomic_t ended_by_postmaster = false;

static struct
{
	SessionKey	old[ZK_MAX_SESSIONS];	/* from before a crash, to be closed,
										 * the last one next */
	int			nold;
	int64		close_at_ms;	/* zk_now_ms() at which to close the sessions
								 * in any case; 0: do not */
	int64		empty_since_ms[ZK_MAX_SESSIONS];	/* the same; 0: it is not
													 * empty */
}			lifecycle;

/* By session; times as of zk_now_ms(). */
static struct
{
	int64		reopen_at_ms;	/* before this, do not open it */
	int64		unconnected_since_ms;	/* 0: connected, or not trying */
}			connections[ZK_MAX_SESSIONS];

/*
 * The library has reported, since the last connection, why our credentials are
 * useless.
 */
static bool refusal_reported = false;

/* The library's last message since then: for a suspended session. */
static char latest_reason[ZK_ERROR_SIZE] = "";

/* Has a connected session more nodes than it may be closed with? */
static bool
is_one_full(void)
{
	for (int i = 0; i < sessions_end(); i++)
		if (status_is_connected(i) &&
			quota_held(i) > CLOSE_PATH_BYTES)
			return true;
	return false;
}

/*
 * May the sessions be closed now that nothing is held, or must their nodes be
 * deleted first?  Deleting them in batches is cheaper for ZooKeeper than all
 * at once.  But this must not take long, and a session without a connection is
 * not waited for.
 */
static bool
may_close_sessions(void)
{
	int64		now_ms = zk_now_ms();

	if (!is_one_full())
		return true;
	if (lifecycle.close_at_ms == 0)
	{
		lifecycle.close_at_ms = now_ms + CLOSE_DELAY_MS;
		contenders_release();
	}
	return now_ms >= lifecycle.close_at_ms;
}

/*
 * Is the whole server shutting down, not only this worker terminated?  The
 * postmaster writes that to its pid file, for pg_ctl, before it signals any
 * process.
 */
static bool
server_is_stopping(void)
{
	FILE	   *file = fopen(POSTMASTER_PID_FILE, "r");
	char		line[MAXPGPATH];
	bool		stopping = false;

	if (file == NULL)
		return false;
	for (int i = 1; fgets(line, sizeof(line), file) != NULL; i++)
		if (i == LOCK_FILE_LINE_PM_STATUS)
			stopping = strncmp(line, PM_STATUS_STOPPING,
							   strlen(PM_STATUS_STOPPING)) == 0;
	fclose(file);
	return stopping;
}

/*
 * Are we to end because the whole server does?
 *
 * The postmaster starts no other worker then.  So we must wait for the last
 * holder in any case, and leave nothing but a session that we cannot close.
 */
static bool
is_last_worker(void)
{
	return ShutdownRequestPending && server_is_stopping();
}

/* As PostgreSQL's handler of it, but remembers the sender. */
static void
handle_sigterm(int signo pg_attribute_unused(), siginfo_t *info,
			   void *context pg_attribute_unused())
{
	int			save_errno = errno;

	if (info->si_pid == PostmasterPid)
		ended_by_postmaster = true;
	ShutdownRequestPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* Let SIGTERM end the worker in lifecycle_begin_turn(). */
void
lifecycle_handle_sigterm(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handle_sigterm;
	action.sa_flags = SA_RESTART | SA_SIGINFO;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGTERM, &action, NULL) != 0)
		elog(FATAL, "could not set the handler of SIGTERM: %m");
}

/* Tell whom locks exclude from now on. */
static void
log_exclusion(void)
{
	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE)
		ereport(LOG,
				(errmsg("locks exclude sessions of this server only, because \"zklock.exclusion\" is \"instance\""),
				 errdetail("Other servers and clients of ZooKeeper may hold them at the same time.")));
	else
		ereport(LOG,
				(errmsg("locks exclude sessions of all servers again, because \"zklock.exclusion\" is \"fleet\""),
				 errdetail("Those from before, which zk_locks shows, exclude sessions of this server only until they end.")));
}

/*
 * lifecycle_attach
 *		Go on where the previous worker ended.
 *
 * After a crash of the whole server, its sessions are ended first.
 */
void
lifecycle_attach(void)
{
	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE)
		log_exclusion();
	if (!status_is_alive())
		lifecycle.nold = session_file_read(lifecycle.old);
	for (int i = 0; i < lifecycle.nold; i++)
		ereport(LOG,
				(errmsg("ending ZooKeeper session 0x%llx from before the crash",
						(unsigned long long) lifecycle.old[i].client_id)));
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		if (status(i)->client_id != 0)
			sessions_add(i);
	contenders_take_over();
	if (auths_are_old())
		contenders_drain();
}

/*
 * A session from before a crash, to be closed, and its password; or 0.
 *
 * The first session attaches to it, and all others wait.
 */
static int64
old_session(char passwd[ZK_PASSWD_SIZE])
{
	if (lifecycle.nold == 0)
		return 0;
	memcpy(passwd, lifecycle.old[lifecycle.nold - 1].passwd, ZK_PASSWD_SIZE);
	return lifecycle.old[lifecycle.nold - 1].client_id;
}

/* Is there a session from before a crash, to be closed first? */
static bool
has_old_session(void)
{
	return lifecycle.nold > 0;
}

/*
 * We are attached to a session from before the crash, or it has expired.
 *
 * To close it, we come back until ZooKeeper says that it is gone: the request
 * may be lost with the connection.
 *
 * Requests of backends have been prepared meanwhile, but no operation has been
 * sent in that session; they start over.
 */
static void
end_old_session(bool expired)
{
	contenders_expire(0);
	session_close(0);
	if (expired)
	{
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx from before the crash has ended",
						(unsigned long long)
						lifecycle.old[lifecycle.nold - 1].client_id)));
		session_file_write(lifecycle.old, --lifecycle.nold);
	}
	directories_forget();
	contenders_take_over();
	answers_restart();
}

/* A session is over, or we end it; its number may be needed again. */
static void
end_session(int session, const char *why)
{
	SessionKey	others[ZK_MAX_SESSIONS];
	int			nothers = status_list_others(session, others);

	if (status(session)->client_id != 0)
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx has ended",
						(unsigned long long) status(session)->client_id),
				 errdetail_internal("%s", why)));
	contenders_expire(session);
	session_close(session);
	if (lifecycle.nold == 0)
		session_file_write(others, nothers);
	if (session == 0)
	{
		directories_forget();	/* no other session watches any */
		fleet_end_session(nothers == 0);
	}
	status_set_ended(session, session == 0);
	if (session > 0)
	{
		sessions_remove(session);
		lease_write(session, 0, proof_latest(session));
		quota_publish(session);
	}
	lifecycle.empty_since_ms[session] = 0;
	deadlock_end_session(session);
}

/*
 * A session is over.  Wanted contenders queue again, in this session or
 * another.
 */
static void
replace_session(int session, const char *why)
{
	end_session(session, why);
	lifecycle.close_at_ms = 0;
	contenders_take_over();
	if (session == 0)
		answers_restart();
}

/* End all sessions.  Wanted contenders queue again in the next one. */
static void
end_all_sessions(const char *why)
{
	for (int i = sessions_end() - 1; i >= 0; i--)
		if (sessions_has(i))
			end_session(i, why);
	lifecycle.close_at_ms = 0;
	contenders_take_over();
	answers_restart();
}

/*
 * lifecycle_end_restored
 *		ZooKeeper has been restored from an older copy, so the nodes of our
 *		sessions are not as we know them.
 */
void
lifecycle_end_restored(void)
{
	ereport(LOG,
			(errmsg("ZooKeeper has been restored from an older copy of its data"),
			 errdetail("It has lost writes of this server that it had acknowledged."),
			 errhint("Locks and fencing tokens of all servers are affected.")));
	end_all_sessions("ZooKeeper has been restored from an older copy.");
}

/*
 * Close the sessions, other than the first, that have been empty for a while,
 * and schedule the check of the others.
 */
static void
close_empty(void)
{
	int64		now_ms = zk_now_ms();
	int64		wake_ms = 0;

	for (int i = sessions_end() - 1; i > 0; i--)
	{
		int64	   *since_ms = &lifecycle.empty_since_ms[i];

		if (!sessions_has(i) || contenders_count_of(i) > 0)
			*since_ms = 0;
		else if (*since_ms == 0)
			*since_ms = now_ms;
		else if (now_ms >= *since_ms + EMPTY_DELAY_MS &&
				 !ZK_MUTATED(ZK_SESSION_STAYS))
			end_session(i, "It was empty.");
		if (*since_ms != 0 &&
			(wake_ms == 0 || *since_ms + EMPTY_DELAY_MS < wake_ms))
			wake_ms = *since_ms + EMPTY_DELAY_MS;
	}
	wake_set(WAKE_EMPTY, wake_ms);
}

/*
 * Is a setting invalid?  Then there is no session.  When the setting is
 * corrected, a new worker comes; files may become valid by themselves.
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

/* Which session to resume, if any, and how. */
static void
resume_options(int session, SessionOptions *options)
{
	const ZkSessionInfo *info = status(session);

	options->client_id = old_session(options->passwd);
	if (options->client_id != 0 || info->client_id == 0)
		return;

	/* a shorter timeout counts from when the server learns of it */
	if (options->timeout < info->timeout)
		lease_shorten(session, zk_now_ms() + options->timeout -
					  options->timeout / 20);
	options->client_id = info->client_id;
	memcpy(options->passwd, info->passwd, sizeof(options->passwd));
	options->lease_until = lease_read_ms(session);
	options->first_timeout = info->first_timeout;
	options->probed = info->probed;
}

/* Begin to connect, if there is no session and it is time. */
static void
open_session(int session)
{
	SessionOptions options;
	bool		several = auths_are_several();

	if (!session_is_closed(session) ||
		zk_now_ms() < connections[session].reopen_at_ms ||
		(session > 0 && has_old_session()) ||
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
	refusal_reported = false;
	options.creator_acl = zklock_acl == ZK_ACL_CREATOR;
	options.ticket = proof_latest(session);
	resume_options(session, &options);
	session_open(session, &options);

	/* a failed attempt stays published until this one gets further */
	if (connections[session].reopen_at_ms == 0)
		status_publish(session, ZK_SESSION_CONNECTING);
}

/* Open the sessions that are needed. */
static void
open_sessions(void)
{
	for (int i = 0; i < sessions_end(); i++)
		if (sessions_has(i))
			open_session(i);
}

/*
 * ZooKeeper's client could not begin to connect, with this errno: try again
 * later.
 */
static void
note_failure(int session, int error)
{
	/* unless the library has logged a better reason */
	if (status(session)->last_error[0] == '\0')
		(void) status_set_error(session,
								psprintf("could not begin to connect: %s",
										 strerror(error)));
	status_publish(session, ZK_SESSION_DOWN);
	connections[session].reopen_at_ms = zk_now_ms() + REOPEN_DELAY_MS;
}

/* A session begins: write it to the file, beside the others. */
static void
write_file(int session, const SessionIdentity *identity)
{
	SessionKey	keys[ZK_MAX_SESSIONS];
	int			n = status_list_others(session, keys);

	keys[n].client_id = identity->client_id;
	memcpy(keys[n].passwd, identity->passwd, sizeof(keys[n].passwd));
	session_file_write(keys, n + 1);
}

/* The session, new or resumed, is connected. */
static void
set_up(int session)
{
	SessionIdentity identity;

	session_identity(session, &identity);
	if (status(session)->client_id != identity.client_id)
		write_file(session, &identity);
	else
		checks_watch_queues(session, true);
	connections[session].reopen_at_ms = 0;
	refusal_reported = false;
	latest_reason[0] = '\0';
	status_set_up(session, &identity);
	ereport(LOG,
			(errmsg("connected to ZooKeeper at %s, session 0x%llx, timeout %d ms",
					identity.address, (unsigned long long) identity.client_id,
					identity.timeout)));
}

/* A session is connected: use it, or close it if it is from before a crash. */
static void
session_up(int session)
{
	if (has_old_session())
		end_old_session(false);
	else
	{
		set_up(session);
		if (session == 0)
		{
			deadlock_set_connected(true);
			fleet_check();
		}
	}
	SetLatch(MyLatch);			/* collect requests that came meanwhile */
}

/* Let another worker try if ZooKeeper answers on no connection. */
static void
replace_if_stuck(int session)
{
	if (!session_is_stuck(session) || is_last_worker())
		return;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper does not answer on any connection")));
	proc_exit(1);
}

/* The connection is lost. */
static void
set_suspended(int session)
{
	checks_watch_queues(session, false);
	if (latest_reason[0] != '\0')
		(void) status_set_error(session, latest_reason);
	status_set_suspended(session);
	ereport(LOG,
			(errmsg("lost the connection to ZooKeeper"),
			 status(session)->client_id != 0 ?
			 errdetail("Locks and places in queues are kept if the session is resumed within its timeout of %d ms.",
					   status(session)->timeout) : 0));
	replace_if_stuck(session);
}

/* Is this a further session that ZooKeeper does not know yet? */
static bool
has_not_begun(int session)
{
	return session > 0 && status(session)->client_id == 0;
}

/*
 * Has ZooKeeper refused the credentials for so long that the session is to be
 * given up?
 *
 * The library resumes the session before authentication, and the servers
 * restart its timeout each time.  So it would never expire, and its locks
 * would never be free.
 */
static bool
is_locked_out(int session)
{
	const ZkSessionInfo *info = status(session);

	return !has_not_begun(session) &&
		!info->answered &&
		zk_now_us() - info->unreached_since >=
		Max(info->timeout, zklock_session_timeout) * INT64CONST(1000);
}

/* A session has ended: begin another one, if needed. */
static void
session_ended(int session, const char *why)
{
	if (has_old_session())
		end_old_session(true);
	else
		replace_session(session, why);
}

/*
 * ZooKeeper has refused the credentials, which are those of all sessions: end
 * each session that it has refused for too long.  A worker that ended at the
 * first refusal would not learn of the others.
 */
static void
end_locked_out(int refused)
{
	static const char *why = "ZooKeeper has refused the credentials for longer than the session timeout.";

	if (has_old_session())
	{
		if (is_locked_out(refused))
			session_ended(refused, why);
		return;
	}
	for (int i = sessions_end() - 1; i >= 0; i--)
		if (sessions_has(i) &&
			(i == refused || !status_is_connected(i)) &&
			is_locked_out(i))
			session_ended(i, why);
}

/*
 * Was this line logged recently?  The library repeats itself at each attempt
 * to connect; lines that differ only in numbers, such as addresses and times,
 * are the same.
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
 * ZooKeeper refused the credentials.
 *
 * The session lives on: the next worker tries to resume it, unless it has been
 * given up.  If it is a further session and another one is connected, this
 * worker goes on and tries again itself, since a new one might not even get
 * that connection.
 */
static void
set_refused(int session)
{
	auths_forget_refused();
	if (!refusal_reported)
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
		refusal_reported = false;
		if (sessions_has(session))	/* unless it has just been given up */
			status_publish(session, ZK_SESSION_CONNECTING);
		return;
	}
	if (!is_last_worker())
		proc_exit(1);
	session_close(session);
	status_publish(session, ZK_SESSION_SUSPENDED);
	connections[session].reopen_at_ms = PG_INT64_MAX;
}

/* Explain a line of the library's log, in the length of last_error. */
static char *
explain(int session, const char *line)
{
	const ZkSessionInfo *info = status(session);
	char		passwd[ZK_PASSWD_SIZE];
	char	   *reason = palloc(ZK_ERROR_SIZE);

	reason_of_line(line, info->state == ZK_SESSION_CONNECTED,
				   has_old_session() ? old_session(passwd) :
				   info->client_id,
				   reason, ZK_ERROR_SIZE);
	return text_for_log(reason);
}

/*
 * A line of the library's log.
 *
 * The library does not say which session it means: any that is not connected,
 * or else any that is about to lose its connection.  One whose handle we have
 * closed keeps our reason for that.
 */
static void
take_message(int session, const char *message)
{
	const char *text = strchr(message, '@');
	char	   *line;
	char	   *reason;

	/* "<time>:<pid>(<thread>):ZOO_ERROR@<function>@<line>: <line>" */
	text = text ? strstr(text, ": ") : NULL;
	line = pstrdup(text ? text + 2 : message);
	line[strcspn(line, "\r\n")] = '\0';
	if (reason_is_none(line) ||
		(refusal_reported && !reason_is_of_refusal(line)))
		return;
	refusal_reported = reason_is_of_refusal(line);
	reason = explain(session, line);
	strlcpy(latest_reason, reason, sizeof(latest_reason));

	for (int i = 0; i < sessions_end(); i++)
	{
		if (!sessions_has(i) || status_is_connected(i) || !session_is_open(i))
			continue;
		reason = explain(i, line);
		if (status_set_error(i, reason))
			status_publish(i, status(i)->state);
	}
	ereport(logged_of_late(reason) ? DEBUG1 : LOG,
			(errmsg("ZooKeeper client: %s", reason)));

	/* the library would retry at once, without end */
	if (tls_is_hopeless(line) && !is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker, because the files for TLS do not fit")));
		proc_exit(1);
	}
}

/* The names of what is missing. */
static char *
list_features(uint32 missing)
{
	StringInfoData names;

	initStringInfo(&names);
	for (int i = 0; i < ZK_FEATURES; i++)
		if (missing & (1 << i))
			appendStringInfo(&names, names.len > 0 ? ", %s" : "%s",
							 zk_feature_name(i));
	return names.data;
}

/*
 * The server lacks requests without which no lock is safe: end the session,
 * and look again later.
 */
static void
set_unfit(int session, uint32 missing)
{
	char	   *server = pstrdup(status(session)->server);
	char	   *names = list_features(missing);
	char	   *reason = psprintf("server %s lacks requests that zklock needs: %s",
								  server, names);

	session_ended(session, "Its server lacks requests that zklock needs.");
	status_set_missing(session, missing);
	(void) status_set_error(session, reason);
	status_publish(session, ZK_SESSION_DOWN);
	connections[session].reopen_at_ms = zk_now_ms() + UNFIT_DELAY_MS;
	ereport(logged_of_late(reason) ? DEBUG1 : WARNING,
			(errmsg("ZooKeeper server %s lacks requests that zklock needs",
					server),
			 errdetail("They are: %s.", names),
			 errhint("Use servers of ZooKeeper 3.5.3 or later, or others that have these requests.")));
}

/*
 * Has a session ended that cannot have timed out?  If none was ever resumed,
 * the servers may not resume sessions at all.
 */
static void
note_early_end(int session)
{
	const ZkSessionInfo *info = status(session);

	if (info->client_id == 0 || info->reconnects > 0 ||
		zk_now_ms() >= lease_read_ms(session))
		return;
	status_set_missing(session, 1 << ZK_FEATURE_RESUME);
	ereport(WARNING,
			(errmsg("ZooKeeper ended session 0x%llx before its timeout",
					(unsigned long long) info->client_id),
			 errdetail("Another client has closed it, or the servers do not resume sessions on another connection."),
			 errhint("Where servers do not resume sessions, all locks are lost with each connection: use servers of ZooKeeper.")));
}

/* Handle an event of a session or its connection. */
void
lifecycle_event(const SessionEvent *event)
{
	switch (event->kind)
	{
		case SESSION_FAILED:
			note_failure(event->session, event->error);
			break;
		case SESSION_UP:
			session_up(event->session);
			break;
		case SESSION_SUSPENDED:
			directories_disconnect();
			set_suspended(event->session);
			if (event->session == 0)
				deadlock_set_connected(false);
			break;
		case SESSION_EXPIRED:
			if (!has_old_session())
				note_early_end(event->session);
			session_ended(event->session, "The session has expired.");
			break;
		case SESSION_AUTH_FAILED:
			end_locked_out(event->session);
			set_refused(event->session);
			break;
		case SESSION_UNFIT:
			set_unfit(event->session, event->missing);
			break;
		case SESSION_MESSAGE:
			take_message(event->session, event->message);
			break;
	}
}

/*
 * Publish the lease, and prove the session alive while anything depends on it.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
static int64
keep_lease(int session)
{
	uint32		ticket;
	int64		until = session_lease(session, &ticket);

	if (!ZK_HAS_LEASE)
		until = Min(until, 1);
	if (until != lease_read_ms(session) || ticket != proof_latest(session))
		lease_write(session, until, ticket);
	return session_keep_lease(session, proof_asked(session),
							  contenders_count_of(session) > 0 ||
							  ZK_MUTATED(ZK_HEARTBEAT_ALWAYS));
}

static void
set_earlier(int64 *time_ms, int64 at_ms)
{
	if (at_ms != 0 && (*time_ms == 0 || at_ms < *time_ms))
		*time_ms = at_ms;
}

/*
 * lifecycle_keep_sessions
 *		Close unneeded sessions; publish the state of the others, prove them
 *		alive, and send.
 */
void
lifecycle_keep_sessions(void)
{
	int64		lease_ms = 0;
	int64		flush_ms = 0;

	close_empty();
	for (int i = 0; i < sessions_end(); i++)
	{
		if (!sessions_has(i))
			continue;
		if (session_is_synced(i))
			status_set_answered(i);
		set_earlier(&lease_ms, keep_lease(i));
		set_earlier(&flush_ms, session_flush(i));
	}
	wake_set(WAKE_LEASE, lease_ms);
	wake_set(WAKE_FLUSH, flush_ms);
}

/*
 * Let a new worker try if this one has long been without a connection.
 *
 * A connection on which only pings are answered is none: a server may keep one
 * on which it was to resume a session that another client was closing.
 *
 * The time in which the library makes a handle does not count: resolving names
 * takes as long for any worker.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
static int64
check_handle(int session, int64 now_ms, int64 limit_ms)
{
	int64	   *since_ms = &connections[session].unconnected_since_ms;

	if (session_is_closed(session) || session_is_opening(session) ||
		status(session)->answered)
		*since_ms = 0;
	else if (*since_ms == 0)
		*since_ms = now_ms;
	if (session_is_closed(session))
		return session > 0 && has_old_session() ? 0 :
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
	if (has_not_begun(session) || is_last_worker())
		return 0;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper could not be reached for %lld ms",
					(long long) (now_ms - *since_ms))));
	proc_exit(1);
}

/*
 * Let a new worker try if this one has long been without a connection; but
 * give up a further session that has not begun, whatever the cause: by now
 * there may be room elsewhere for what it was to have.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
static int64
check_connection(int session)
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
		replace_session(session, "It could not be opened.");
		return 1;
	}
	again_ms = check_handle(session, now_ms, limit_ms);
	return zk_earlier(again_ms, give_up_ms);
}

static void
check_connections(void)
{
	int64		at_ms = 0;

	for (int i = 0; i < sessions_end(); i++)
		if (sessions_has(i))
			set_earlier(&at_ms, check_connection(i));
	wake_set(WAKE_CONNECTION, at_ms);
}

/*
 * If zklock.servers has a new chroot, drain the sessions, and end them when
 * nothing is held.
 */
static void
check_chroot(void)
{
	if (status_chroot_changed() && slots_retire() && may_close_sessions())
		end_all_sessions("\"zklock.servers\" has a new chroot.");
	if (status(0)->draining != status_chroot_changed())
	{
		status_set_draining(status_chroot_changed());
		if (status(0)->draining)
			contenders_drain();
	}
}

/*
 * Schedule the next check while the session is to end but still in use.
 *
 * This is done at the end of a turn, so that a drain leaves the slots' locks
 * alone for a while however long the turn took.
 */
static void
schedule_drain(void)
{
	wake_set(WAKE_DRAIN, ShutdownRequestPending || status_chroot_changed() ?
			 zk_now_ms() + DRAIN_CHECK_MS : 0);
}

/*
 * Apply a changed configuration.
 *
 * A new chroot takes effect in the loop, when nothing is held; all else with
 * the next worker, which resumes the session with the new settings (and with
 * the old credentials as well).
 */
static void
reload(void)
{
	char	   *servers = pstrdup(zklock_servers);
	char	   *auth = pstrdup(zklock_auth);
	char	   *secure = secure_values();
	int			timeout = zklock_session_timeout;
	int			old_acl = zklock_acl;
	int			old_exclusion = zklock_exclusion;
	char	   *new_secure;
	bool		waiting = status_chroot_changed();

	ProcessConfigFile(PGC_SIGHUP);

	if (zklock_exclusion != old_exclusion)
		log_exclusion();
	new_secure = secure_values();
	servers[strcspn(servers, "/")] = '\0';
	if ((strlen(servers) != strcspn(zklock_servers, "/") ||
		 strncmp(servers, zklock_servers, strlen(servers)) != 0 ||
		 strcmp(auth, zklock_auth) != 0 ||
		 strcmp(secure, new_secure) != 0 ||
		 timeout != zklock_session_timeout || old_acl != zklock_acl) &&
		!is_last_worker())
	{
		status_forget_probes();
		ereport(LOG,
				(errmsg("restarting the zklock worker to apply new settings")));
		proc_exit(1);
	}

	fleet_check();

	/* changed back: begin the contenders that were put off */
	if (waiting && !status_chroot_changed())
	{
		lifecycle.close_at_ms = 0;
		contenders_take_over();
	}

	pfree(servers);
	pfree(auth);
	pfree(secure);
	pfree(new_secure);
}

/* Let the next worker present zklock.auth only, if it is time. */
static void
renew_auths(void)
{
	if (!status_is_connected(0) || ShutdownRequestPending ||
		contenders_count() > 0 || !fleet_is_settled() || !auths_are_old())
		return;
	auths_collect(false);
	fleet_drop_auths();
	ereport(LOG,
			(errmsg("restarting the zklock worker, because its session no longer needs the former credentials")));
	proc_exit(1);
}

/*
 * Close all sessions.  Without a connection a session stays, and the next
 * start has to close it.
 */
static void
close_all_sessions(void)
{
	SessionKey	unreached[ZK_MAX_SESSIONS];
	int			n = 0;
	bool		reached = false;

	for (int i = 0; i < sessions_end(); i++)
	{
		const ZkSessionInfo *info = status(i);

		if (!sessions_has(i))
			continue;
		session_close(i);
		if (info->state == ZK_SESSION_CONNECTED)
			reached = true;
		if (info->state == ZK_SESSION_CONNECTED || info->client_id == 0)
			continue;
		unreached[n].client_id = info->client_id;
		memcpy(unreached[n].passwd, info->passwd, ZK_PASSWD_SIZE);
		n++;
	}
	session_await_closed(zk_now_ms() + TELL_END_MS);
	if (reached)
		session_file_write(unreached, n);
}

/*
 * SIGTERM has come.
 *
 * Returns if the worker must go on because backends still hold locks while the
 * server stops: a backend may be in the middle of its commit, until whose end
 * its locks must not be free.
 */
static void
shut_down(void)
{
	if (!server_is_stopping())
	{
		ereport(LOG,
				(errmsg("zklock worker is terminating, its session continues")));
		proc_exit(1);
	}
	if (!slots_retire())
		return;
	status_set_closing();
	if (!may_close_sessions())
		return;
	close_all_sessions();
	status_set_closed();

	/*
	 * After 0 the postmaster starts no other worker, and logs nothing.  In a
	 * smart shutdown it signals no process until the last client has gone; if
	 * another process sent the signal, clients may need another worker.
	 */
	proc_exit(ended_by_postmaster ? 0 : 1);
}

/*
 * lifecycle_begin_turn
 *		Begin a turn of the loop: handle signals, and open the sessions that
 *		are needed.
 */
void
lifecycle_begin_turn(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		reload();
	}
	if (ShutdownRequestPending)
		shut_down();
	check_chroot();
	open_sessions();
}

/*
 * lifecycle_end_turn
 *		End a turn of the loop: check whether another worker is to take
 *		over, and schedule the next turn.
 */
void
lifecycle_end_turn(void)
{
	renew_auths();
	schedule_drain();
	check_connections();
}
