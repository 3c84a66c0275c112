/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *		How the worker and its sessions begin, go on and end.
 *
 * The worker may end at any time and lose nothing.  What the next one needs
 * is in shared memory: each session's id and password, and for each slot its
 * state and contender.  A worker that ends alone therefore leaves the sessions
 * open, and the next one resumes them.  They are closed only when the server
 * shuts down or zklock.servers has a new chroot, and then only after the last
 * backend has dropped its locks; but one other than the first is closed when
 * it has been empty for a while.
 *
 * A session is opened, or resumed, when it is needed; an attempt that fails is
 * repeated, and another worker tries if this one cannot get through.  The
 * lease of each session is kept, and published.  session.c has the session
 * itself.
 *
 * If all of the server has crashed, shared memory is gone.  The first worker
 * finds the previous sessions in a file (session_file.c), attaches to one
 * after the other and closes it, and only then begins one of its own.
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
#include "core/reason.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
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

/* How often to check if the last holder is gone, if the session is to end. */
#define DRAIN_CHECK_MS		10

/* In the data directory, which is every process's working directory. */
#define POSTMASTER_PID_FILE	"postmaster.pid"

/*
 * A session whose nodes have paths of more bytes than this is closed when they
 * have been deleted, in batches; but not later than this.
 */
#define CLOSE_PATH_BYTES	(64 * 1024)
#define CLOSE_DELAY_MS		2000

/*
 * How long to wait, at the end of the server, until ZooKeeper has been told
 * that the sessions end.  The library gives that up after 4.5 s.
 */
#define TELL_END_MS			6000

/* A session other than the first is closed when it was empty for so long. */
#define EMPTY_DELAY_MS		10000

/* SIGTERM has come from the postmaster, which ends all its workers. */
static volatile sig_atomic_t ended_by_postmaster = false;

static struct
{
	SessionKey	old[ZK_MAX_SESSIONS];	/* of before a crash, to be closed,
										 * the last of these next */
	int			nold;
	int64		close_at_ms;	/* zk_now_ms() at which to close the sessions,
								 * whatever they have; 0: they are not to be */
	int64		empty_since_ms[ZK_MAX_SESSIONS];	/* the same; 0: it is not */
}			lifecycle;

/* Of one session; times as of zk_now_ms(). */
static struct
{
	int64		reopen_at_ms;	/* before which not to open it */
	int64		unconnected_since_ms;	/* 0: connected, or not trying */
}			connections[ZK_MAX_SESSIONS];

/*
 * Since the last connection, we have been told why our credentials are no use.
 */
static bool refusal_told = false;

/* What the library told last, since then: for a session that is suspended. */
static char latest_reason[ZK_ERROR_SIZE] = "";

/* Has a session that we can reach more nodes than it may be closed with? */
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
 * May the sessions be closed now that nothing is held, or does that have to
 * wait until their nodes have been deleted?  For these a batch after the other
 * is cheaper for ZooKeeper than all at once.  But this must not take long, and
 * a session that cannot be reached is not waited for.
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
 * Is the whole server shutting down, rather than this worker being terminated
 * alone?  The postmaster notes it in its pid file, for pg_ctl, before it
 * signals anybody.
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
 * Have we been told to end because the whole server does?
 *
 * The postmaster starts no other worker then, so that we must wait for the
 * last holder, come what may, and leave nothing to the next one but a session
 * that we cannot close.
 */
static bool
is_last_worker(void)
{
	return ShutdownRequestPending && server_is_stopping();
}

/* As PostgreSQL's own handler of it, but with who has sent it. */
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

/*
 * lifecycle_handle_sigterm
 *		Have SIGTERM end the worker, when the loop comes to
 *		lifecycle_begin_turn().
 */
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

/*
 * lifecycle_attach
 *		Go on where the worker before this one has ended.
 *
 * If the whole server has crashed, its session is to be ended first.
 */
void
lifecycle_attach(void)
{
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
 * A session from before a crash, which is to be closed, and its password; or
 * 0.
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

/* Is there a session from before a crash, to be closed ahead of all else? */
static bool
has_old_session(void)
{
	return lifecycle.nold > 0;
}

/*
 * We are attached to a session from before the crash, or it has expired.
 *
 * If it is to be closed, we come back until ZooKeeper says that it is gone:
 * the request may get lost with the connection.
 *
 * What backends have asked for meanwhile has been prepared, but no operation
 * has left for that session; it begins anew.
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
 * A session is over.  What is still wanted queues again, in this session or
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

/* End all sessions.  What is still wanted queues again, in the next one. */
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
 *		ZooKeeper has been restored from an older copy: what our sessions have
 *		there is not what we know.
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
 * and have the loop come back for the others.
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
		else if (now_ms >= *since_ms + EMPTY_DELAY_MS)
			end_session(i, "It was empty.");
		if (*since_ms != 0 &&
			(wake_ms == 0 || *since_ms + EMPTY_DELAY_MS < wake_ms))
			wake_ms = *since_ms + EMPTY_DELAY_MS;
	}
	wake_set(WAKE_EMPTY, wake_ms);
}

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

	options->client_id = old_session(options->passwd);
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

/* Begin to connect, if there is no session and it is time for that. */
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
	refusal_told = false;
	options.creator_acl = zklock_acl == ZK_ACL_CREATOR;
	options.ticket = proof_latest(session);
	resume_options(session, &options);
	session_open(session, &options);

	/*
	 * if the last attempt has failed, that counts until this one gets further
	 */
	if (connections[session].reopen_at_ms == 0)
		status_publish(session, ZK_SESSION_CONNECTING);
}

/* Have the sessions that are needed. */
static void
open_sessions(void)
{
	for (int i = 0; i < sessions_end(); i++)
		if (sessions_has(i))
			open_session(i);
}

/*
 * ZooKeeper's client could not begin to connect, with this errno: try again
 * after a while.
 */
static void
note_failure(int session, int error)
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

/* The session is connected: a new one, or again. */
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
	refusal_told = false;
	latest_reason[0] = '\0';
	status_set_up(session, &identity);
	ereport(LOG,
			(errmsg("connected to ZooKeeper at %s, session 0x%llx, timeout %d ms",
					identity.address, (unsigned long long) identity.client_id,
					identity.timeout)));
}

/* A session is connected: go on with it, or end it if it is an old one. */
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
	SetLatch(MyLatch);			/* collect what was asked meanwhile */
}

/* Have another worker try if ZooKeeper answers on no connection. */
static void
replace_if_stuck(int session)
{
	if (!session_is_stuck(session) || is_last_worker())
		return;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper does not answer on any connection")));
	proc_exit(1);
}

/*
 * The connection is lost; have another worker try if ZooKeeper answers on
 * none.
 */
static void
set_suspended(int session)
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
 * Has ZooKeeper refused the credentials for so long that the session is to be
 * given up?
 *
 * The library resumes the session ahead of authentication, and each time the
 * servers count its timeout anew.  So it would never expire, and nobody get
 * the locks.
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

/* A session has ended: begin another, if it is needed. */
static void
session_ended(int session, const char *why)
{
	if (has_old_session())
		end_old_session(true);
	else
		replace_session(session, why);
}

/*
 * ZooKeeper has refused the credentials of a session, which are those of all:
 * end each one that it has refused for too long.  A worker that ends at the
 * first refusal does not hear of the others'.
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
 * Has the server log had this line of late?  The library repeats itself at
 * each attempt to connect, and lines that differ in their numbers only, such
 * as addresses and times, count as one.
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
 * given up.  But this worker goes on, and tries again itself, if it was to be
 * a further session beside one that has a connection: that might not get
 * another one.
 */
static void
set_refused(int session)
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
	if (!is_last_worker())
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
				   has_old_session() ? old_session(passwd) :
				   info->client_id,
				   reason, ZK_ERROR_SIZE);
	return text_for_log(reason);
}

/*
 * A line of the library's log.
 *
 * The library does not tell of which session it speaks: it may be any that is
 * not connected, and else any that is about to lose its connection.
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
	if (tls_is_hopeless(line) && !is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker, because the files for TLS do not fit")));
		proc_exit(1);
	}
}

/*
 * lifecycle_event
 *		Deal with what has become of a session or its connection.
 */
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
			session_ended(event->session, "The session has expired.");
			break;
		case SESSION_AUTH_FAILED:
			end_locked_out(event->session);
			set_refused(event->session);
			break;
		case SESSION_MESSAGE:
			take_message(event->session, event->message);
			break;
	}
}

/*
 * Publish how long the session can be relied on, and see that it stays so
 * while there is anything to lose.
 *
 * Returns when to come back, as of zk_now_ms(), or 0.
 */
static int64
keep_lease(int session)
{
	uint32		ticket;
	int64		until = session_lease(session, &ticket);

	if (until != lease_read_ms(session) || ticket != proof_latest(session))
		lease_write(session, until, ticket);
	return session_keep_lease(session, proof_asked(session),
							  contenders_count_of(session) > 0);
}

static void
set_earlier(int64 *time_ms, int64 at_ms)
{
	if (at_ms != 0 && (*time_ms == 0 || at_ms < *time_ms))
		*time_ms = at_ms;
}

/*
 * lifecycle_keep_sessions
 *		Close the sessions that are not needed any more; publish what is known
 *		of the others, prove that they live, and send.
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
 * Have a new worker try, if this one has been without a connection for long.
 *
 * A connection on which nothing but pings is answered is none: a server that is
 * asked to resume a session while another client closes it may keep that.
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
 * Have a new worker try, if this one has been without a connection for long;
 * but a further session that has not begun is given up, whatever it is that
 * keeps it: what is wanted in it may have room elsewhere by now.
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
	return again_ms == 0 ? give_up_ms : Min(again_ms, give_up_ms);
}

/* Have a new worker try if one session is without a connection for long. */
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
 * Have the loop come back while the session is to end, and is still in use.
 *
 * This is done at the end of a turn, so that a drain leaves the slots' locks
 * alone for a while, however long the turn took.
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
 * Another chroot takes effect in the loop, when nothing is held; all else with
 * the next worker, which resumes the session with the new settings (and with
 * the old credentials beside the new).
 */
static void
reload(void)
{
	char	   *servers = pstrdup(zklock_servers);
	char	   *auth = pstrdup(zklock_auth);
	char	   *secure = secure_values();
	int			timeout = zklock_session_timeout;
	int			old_acl = zklock_acl;
	char	   *new_secure;
	bool		waiting = status_chroot_changed();

	ProcessConfigFile(PGC_SIGHUP);

	new_secure = secure_values();
	servers[strcspn(servers, "/")] = '\0';
	if ((strlen(servers) != strcspn(zklock_servers, "/") ||
		 strncmp(servers, zklock_servers, strlen(servers)) != 0 ||
		 strcmp(auth, zklock_auth) != 0 ||
		 strcmp(secure, new_secure) != 0 ||
		 timeout != zklock_session_timeout || old_acl != zklock_acl) &&
		!is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker to apply new settings")));
		proc_exit(1);
	}

	fleet_check();

	/* changed back: what was put off is wanted here after all */
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

/* Have the next worker present zklock.auth only, if it is time for that. */
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
 * Close all sessions.  If one has no connection, nobody is told, and the next
 * start has to do it.
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
 * Returns if the worker has to go on, for backends that still hold locks
 * while the server stops: a backend may be in the middle of its commit, and
 * its locks must not be free before that is over.
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
	 * The postmaster starts no other worker after 0, and logs nothing.  In a
	 * smart shutdown it signals nobody until the last client has gone: if
	 * another process has, clients may want another worker.
	 */
	proc_exit(ended_by_postmaster ? 0 : 1);
}

/*
 * lifecycle_begin_turn
 *		A turn of the loop begins: do what signals ask for, and have the
 *		sessions that are needed.
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
 *		It ends: see if another worker is to go on, and when the loop is to
 *		come back.
 */
void
lifecycle_end_turn(void)
{
	renew_auths();
	schedule_drain();
	check_connections();
}
