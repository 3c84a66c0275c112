/*-------------------------------------------------------------------------
 *
 * lifecycle.c
 *		How the worker and its session begin, go on and end.
 *
 * The worker may end at any time without loss.  What the next one needs is in
 * shared memory: the session's ID and password, and the state and contender of
 * each slot.  So a worker that ends alone leaves the session open, and the next
 * one resumes it.  It is closed only when the server shuts down or
 * zklock.servers has a new chroot, and then only after the last backend has
 * dropped its locks.
 *
 * A failed attempt to open or resume the session is repeated, and if this
 * worker cannot get through, another one tries.  The lease is kept running and
 * published.  session.c has the session itself.
 *
 * After a crash of the whole server, shared memory is gone.  The first worker
 * finds the previous session in a file (session_file.c), attaches to it and
 * closes it, and only then begins its own.
 *
 * When the postmaster shuts down, which it notes in its pid file before it
 * signals any process, the worker goes on until no slot is held, since a
 * backend may be in the middle of its commit.  Then it takes back what is
 * owned and idle, under all partition locks at once (slots_retire()), has the
 * nodes deleted in batches if there are many (may_close_session()), closes the
 * session and removes the file.  A session without a connection cannot be
 * closed: then the file stays, as after an immediate shutdown, and the next
 * start closes it.
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
#include "shared/text.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/pidfile.h"
#include "worker/contender.h"
#include "worker/deadlock.h"
#include "worker/directories.h"
#include "worker/fleet.h"
#include "worker/lifecycle.h"
#include "worker/reads.h"
#include "worker/wake.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/session_file.h"

/*
 * The delay before another attempt to open a session; and if the server lacks
 * what zklock needs.
 */
#define REOPEN_DELAY_MS		1000
#define UNFIT_DELAY_MS		10000

/*
 * How long there is no connection (the larger of a fixed time and a number of
 * session timeouts) before a new worker tries.  The library can get stuck
 * without reaching a server: it may skip every other address (ZOOKEEPER-2466),
 * and servers that lag behind what it has seen refuse it.
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

/* How often to check for the last holder while the session is to end. */
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
 * session ends.  The library gives up after 4.5 s.
 */
#define TELL_END_MS			6000

/* SIGTERM came from the postmaster, which ends all its workers. */
static volatile sig_atomic_t ended_by_postmaster = false;

/* Times as of zk_now_ms(). */
static struct
{
	SessionKey	old;			/* from before a crash, to be closed; its ID
								 * is 0 if there is none */
	int64		reopen_at_ms;	/* before this, do not open the session */
	int64		unconnected_since_ms;	/* 0: connected, or not trying */
	int64		close_at_ms;	/* when to close the session in any case; 0:
								 * do not */
}			lifecycle;

/*
 * The library has reported, since the last connection, why our credentials are
 * useless.
 */
static bool refusal_reported = false;

/* The library's last message since then: for a suspended session. */
static char latest_reason[ZK_ERROR_SIZE] = "";

/*
 * May the session be closed now that nothing is held, or must its nodes be
 * deleted first?  Deleting them in batches is cheaper for ZooKeeper than all
 * at once.  But this must not take long, and a session without a connection is
 * not waited for.
 */
static bool
may_close_session(void)
{
	int64		now_ms = zk_now_ms();

	if (!status_is_connected() || contenders_bytes() <= CLOSE_PATH_BYTES)
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

/* Let SIGTERM end the worker in lifecycle_begin_iteration(). */
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
 * After a crash of the whole server, its session is ended first.
 */
void
lifecycle_attach(void)
{
	if (zklock_exclusion == ZK_EXCLUSION_INSTANCE)
		log_exclusion();
	if (!status_is_alive() && session_file_read(&lifecycle.old))
		ereport(LOG,
				(errmsg("ending ZooKeeper session 0x%llx from before the crash",
						(unsigned long long) lifecycle.old.client_id)));
	contenders_take_over();
	if (auths_are_old())
		contenders_drain();
}

/* Is there a session from before a crash, to be closed first? */
static bool
has_old_session(void)
{
	return lifecycle.old.client_id != 0;
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
	contenders_expire();
	session_close();
	if (expired)
	{
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx from before the crash has ended",
						(unsigned long long) lifecycle.old.client_id)));
		lifecycle.old.client_id = 0;
		session_file_remove();
	}
	directories_forget();
	contenders_take_over();
	reads_restart();
}

/*
 * The session is over, or we end it.  Wanted contenders queue again in the next
 * one.
 */
static void
end_session(const char *why)
{
	ZkSessionInfo *info = status();

	if (status_is_alive())
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx has ended",
						(unsigned long long) info->key.client_id),
				 errdetail_internal("%s", why)));
	contenders_expire();
	session_close();
	session_file_remove();
	directories_forget();
	fleet_end_session();
	memset(&info->key, 0, sizeof(info->key));
	info->probed = false;
	info->server[0] = '\0';
	status_publish(ZK_SESSION_CONNECTING);
	deadlock_end_session();
	lifecycle.close_at_ms = 0;
	contenders_take_over();
	reads_restart();
}

/*
 * lifecycle_end_restored
 *		ZooKeeper has been restored from an older copy, so the nodes of our
 *		session are not as we know them.
 */
void
lifecycle_end_restored(void)
{
	ereport(LOG,
			(errmsg("ZooKeeper has been restored from an older copy of its data"),
			 errdetail("It has lost writes of this server that it had acknowledged."),
			 errhint("Locks and fencing tokens of all servers are affected.")));
	end_session("ZooKeeper has been restored from an older copy.");
}

/*
 * Is a setting invalid?  Then there is no session.  When the setting is
 * corrected, a new worker comes; files may become valid by themselves.
 */
static bool
settings_are_wrong(void)
{
	ZkWrongSetting wrong;
	char	   *problem;

	problem = zk_wrong_setting(false, &wrong) ?
		zk_describe_wrong_setting(&wrong) : security_find_problem();
	if (problem == NULL)
		return false;
	if (status_set_error(problem) && wrong.name == NULL)
		ereport(LOG,
				(errmsg("could not use %s for ZooKeeper: %s",
						tls_is_wanted() ? "TLS" : "SASL", problem)));
	status_publish(ZK_SESSION_DOWN);
	lifecycle.reopen_at_ms = zk_now_ms() + REOPEN_DELAY_MS;
	return true;
}

/* Begin to connect, if there is no connection and it is time. */
static void
open_session(void)
{
	bool		several = auths_are_several();

	if (!session_is_closed() || zk_now_ms() < lifecycle.reopen_at_ms ||
		settings_are_wrong())
		return;

	auths_collect(zklock_acl == ZK_ACL_CREATOR || contenders_count() > 0);
	if (several && !auths_are_several())
		fleet_drop_auths();
	refusal_reported = false;
	session_open(has_old_session() ? &lifecycle.old : NULL);

	/* a failed attempt stays published until this one gets further */
	if (lifecycle.reopen_at_ms == 0)
		status_publish(ZK_SESSION_CONNECTING);
}

/*
 * ZooKeeper's client could not begin to connect, with this errno: try again
 * later.
 */
static void
note_failure(int error)
{
	/* unless the library has logged a better reason */
	if (status()->last_error[0] == '\0')
		(void) status_set_error(psprintf("could not begin to connect: %s",
										 strerror(error)));
	status_publish(ZK_SESSION_DOWN);
	lifecycle.reopen_at_ms = zk_now_ms() + REOPEN_DELAY_MS;
}

/* The session, new or resumed, is connected. */
static void
set_up(void)
{
	const ZkSessionInfo *info = status();

	if (status_set_up())
		session_file_write(&info->key);
	else
		contenders_watch_queues(true);
	lifecycle.reopen_at_ms = 0;
	refusal_reported = false;
	latest_reason[0] = '\0';
	status_publish(ZK_SESSION_CONNECTED);
	ereport(LOG,
			(errmsg("connected to ZooKeeper at %s, session 0x%llx, timeout %d ms",
					info->server, (unsigned long long) info->key.client_id,
					info->timeout)));
}

/* There is a connection: use the session, or close that from before a crash. */
static void
session_up(void)
{
	if (has_old_session())
		end_old_session(false);
	else
	{
		set_up();
		deadlock_set_connected(true);
		fleet_check();
	}
	SetLatch(MyLatch);			/* collect requests that came meanwhile */
}

/* Let another worker try if ZooKeeper answers on no connection. */
static void
replace_if_stuck(void)
{
	if (!session_is_stuck() || is_last_worker())
		return;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper does not answer on any connection")));
	proc_exit(1);
}

/* The connection is lost. */
static void
set_suspended(void)
{
	ZkSessionInfo *info = status();

	directories_disconnect();
	contenders_watch_queues(false);
	if (latest_reason[0] != '\0')
		(void) status_set_error(latest_reason);
	info->server[0] = '\0';
	status_publish(info->key.client_id != 0 ?
				   ZK_SESSION_SUSPENDED : ZK_SESSION_CONNECTING);
	ereport(LOG,
			(errmsg("lost the connection to ZooKeeper"),
			 info->key.client_id != 0 ?
			 errdetail("Locks and places in queues are kept if the session is resumed within its timeout of %d ms.",
					   info->timeout) : 0));
	deadlock_set_connected(false);
	replace_if_stuck();
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
is_locked_out(void)
{
	const ZkSessionInfo *info = status();

	return !info->answered &&
		zk_now_us() - info->unreached_since >=
		Max(info->timeout, zklock_session_timeout) * INT64CONST(1000);
}

/* The session to which we are attached has ended. */
static void
session_ended(const char *why)
{
	if (has_old_session())
		end_old_session(true);
	else
		end_session(why);
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

/*
 * ZooKeeper refused the credentials.
 *
 * The session lives on: the next worker tries to resume it, unless it has been
 * given up.
 */
static void
set_refused(void)
{
	if (is_locked_out())
		session_ended("ZooKeeper has refused the credentials for longer than the session timeout.");
	auths_forget_refused();
	if (!refusal_reported)
	{
		char	   *reason = psprintf("ZooKeeper refused the credentials of \"%s\"",
									  secure_name_of_credentials());

		(void) status_set_error(reason);
		ereport(logged_of_late(reason) ? DEBUG1 : LOG,
				(errmsg("%s", reason)));
	}
	if (!is_last_worker())
		proc_exit(1);
	session_close();
	deadlock_end_session();
	status_publish(ZK_SESSION_SUSPENDED);
	lifecycle.reopen_at_ms = PG_INT64_MAX;
}

/* Explain a line of the library's log, in the length of last_error. */
static char *
explain(const char *line)
{
	const ZkSessionInfo *info = status();
	char	   *reason = palloc(ZK_ERROR_SIZE);

	reason_of_line(line, info->state == ZK_SESSION_CONNECTED,
				   has_old_session() ? lifecycle.old.client_id :
				   info->key.client_id,
				   reason, ZK_ERROR_SIZE);
	return text_for_log(reason);
}

/*
 * A line of the library's log.  If we have closed the handle, our own reason
 * for that is kept.
 */
static void
take_message(const char *message)
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
	reason = explain(line);
	strlcpy(latest_reason, reason, sizeof(latest_reason));
	if (!status_is_connected() && session_is_open() &&
		status_set_error(reason))
		status_publish(status()->state);
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
set_unfit(uint32 missing)
{
	char	   *server = pstrdup(status()->server);
	char	   *names = list_features(missing);
	char	   *reason = psprintf("server %s lacks requests that zklock needs: %s",
								  server, names);

	session_ended("Its server lacks requests that zklock needs.");
	status()->missing |= missing;
	(void) status_set_error(reason);
	status_publish(ZK_SESSION_DOWN);
	lifecycle.reopen_at_ms = zk_now_ms() + UNFIT_DELAY_MS;
	ereport(logged_of_late(reason) ? DEBUG1 : WARNING,
			(errmsg("ZooKeeper server %s lacks requests that zklock needs",
					server),
			 errdetail("They are: %s.", names),
			 errhint("Use servers of ZooKeeper 3.5.3 or later, or others that have these requests.")));
}

/*
 * Has the session ended though it cannot have timed out?  If none was ever resumed,
 * the servers may not resume sessions at all.
 */
static void
note_early_end(void)
{
	ZkSessionInfo *info = status();

	if (info->key.client_id == 0 || info->reconnects > 0 ||
		zk_now_ms() >= lease_read_ms())
		return;
	info->missing |= 1 << ZK_FEATURE_RESUME;
	ereport(WARNING,
			(errmsg("ZooKeeper ended session 0x%llx before its timeout",
					(unsigned long long) info->key.client_id),
			 errdetail("Another client has closed it, or the servers do not resume sessions on another connection."),
			 errhint("Where servers do not resume sessions, all locks are lost with each connection: use servers of ZooKeeper.")));
}

/* Handle an event of the session or its connection. */
void
lifecycle_event(const SessionEvent *event)
{
	switch (event->kind)
	{
		case SESSION_NOTHING:
			break;
		case SESSION_FAILED:
			note_failure(event->error);
			break;
		case SESSION_UP:
			session_up();
			break;
		case SESSION_SUSPENDED:
			set_suspended();
			break;
		case SESSION_EXPIRED:
			if (!has_old_session())
				note_early_end();
			session_ended("The session has expired.");
			break;
		case SESSION_AUTH_FAILED:
			set_refused();
			break;
		case SESSION_UNFIT:
			set_unfit(event->missing);
			break;
		case SESSION_MESSAGE:
			take_message(event->message);
			break;
	}
}

/* The server of the current connection has answered, and has what we need. */
static void
note_answer(void)
{
	ZkSessionInfo *info = status();

	if (info->answered || info->state != ZK_SESSION_CONNECTED)
		return;
	info->answered = info->probed = true;
	info->missing &= 1 << ZK_FEATURE_RESUME;
	info->last_error[0] = '\0';
	session_write(info);
}

/*
 * lifecycle_keep_session
 *		Publish the state of the session, prove it alive, and send.
 */
void
lifecycle_keep_session(void)
{
	if (session_is_synced())
		note_answer();
	wake_set(WAKE_LEASE, session_keep_lease(contenders_count() > 0 ||
											ZK_MUTATED(ZK_HEARTBEAT_ALWAYS)));
	wake_set(WAKE_FLUSH, session_flush());
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
check_connection(void)
{
	int64		now_ms = zk_now_ms();
	int64	   *since_ms = &lifecycle.unconnected_since_ms;
	int64		limit_ms;
	int64		replace_at_ms;

	if (session_is_closed() || session_is_opening() || status()->answered)
		*since_ms = 0;
	else if (*since_ms == 0)
		*since_ms = now_ms;
	if (session_is_closed())
		return Max(lifecycle.reopen_at_ms, 1);
	if (*since_ms == 0)
		return 0;

	if (session_is_open() && status()->state == ZK_SESSION_DOWN)
		status_publish(ZK_SESSION_CONNECTING);
	if (tls_is_wanted())
		replace_if_stuck();
	limit_ms = (int64) status()->timeout * MAX_UNCONNECTED_TIMEOUTS;
	replace_at_ms = *since_ms + Max(limit_ms, MIN_UNCONNECTED_MS);
	if (now_ms < replace_at_ms)
		return tls_is_wanted() || sasl_is_wanted() ?
			Min(now_ms + HANDSHAKE_CHECK_MS, replace_at_ms) : replace_at_ms;
	if (is_last_worker())
		return 0;
	ereport(LOG,
			(errmsg("restarting the zklock worker, because ZooKeeper could not be reached for %lld ms",
					(long long) (now_ms - *since_ms))));
	proc_exit(1);
}

/*
 * If zklock.servers has a new chroot, drain the session, and end it when
 * nothing is held.
 */
static void
check_chroot(void)
{
	if (status_chroot_changed() && slots_retire() && may_close_session())
		end_session("\"zklock.servers\" has a new chroot.");
	if (status()->draining != status_chroot_changed())
	{
		status()->draining = status_chroot_changed();
		session_write(status());
		if (status()->draining)
			contenders_drain();
	}
}

/*
 * Schedule the next check while the session is to end but still in use.
 *
 * This is done at the end of an iteration, so that a drain leaves the slots'
 * locks alone for a while however long the iteration took.
 */
static void
schedule_drain(void)
{
	wake_set(WAKE_DRAIN, ShutdownRequestPending || status_chroot_changed() ?
			 zk_now_ms() + DRAIN_CHECK_MS : 0);
}

/*
 * The settings with which a worker begins, as one string, palloc'd; the chroot
 * is none of them.
 */
static char *
connection_settings(void)
{
	return psprintf("%.*s\n%s\n%s\n%s\n%s\n%s\n%s\n%d\n%d",
					(int) strcspn(zklock_servers, "/"), zklock_servers,
					zklock_auth, zklock_tls_ca, zklock_tls_cert,
					zklock_tls_key, zklock_sasl_user,
					zklock_sasl_password_file, zklock_session_timeout,
					zklock_acl);
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
	char	   *before = connection_settings();
	char	   *after;
	int			old_exclusion = zklock_exclusion;
	bool		waiting = status_chroot_changed();

	ProcessConfigFile(PGC_SIGHUP);

	if (zklock_exclusion != old_exclusion)
		log_exclusion();
	after = connection_settings();
	if (strcmp(before, after) != 0 && !is_last_worker())
	{
		status()->probed = false;	/* there may be other servers */
		session_write(status());
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

	pfree(before);
	pfree(after);
}

/* Let the next worker present zklock.auth only, if it is time. */
static void
renew_auths(void)
{
	if (!status_is_connected() || ShutdownRequestPending ||
		contenders_count() > 0 || !fleet_is_settled() || !auths_are_old())
		return;
	auths_collect(false);
	fleet_drop_auths();
	ereport(LOG,
			(errmsg("restarting the zklock worker, because its session no longer needs the former credentials")));
	proc_exit(1);
}

/*
 * Close the session.  Without a connection it stays, and the next start has to
 * close it.
 */
static void
close_session(void)
{
	session_close();
	session_await_closed(zk_now_ms() + TELL_END_MS);
	if (status_is_connected())
		session_file_remove();
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
	if (!may_close_session())
		return;
	close_session();
	fleet_end_session();
	status()->key.client_id = 0;
	session_write(status());

	/*
	 * After 0 the postmaster starts no other worker, and logs nothing.  In a
	 * smart shutdown it signals no process until the last client has gone; if
	 * another process sent the signal, clients may need another worker.
	 */
	proc_exit(ended_by_postmaster ? 0 : 1);
}

/*
 * lifecycle_begin_iteration
 *		Begin an iteration of the loop: handle signals, and open the session
 *		if it is not.
 */
void
lifecycle_begin_iteration(void)
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
	open_session();
}

/*
 * lifecycle_end_iteration
 *		End an iteration of the loop: check whether another worker is to take
 *		over, and schedule the next iteration.
 */
void
lifecycle_end_iteration(void)
{
	renew_auths();
	schedule_drain();
	wake_set(WAKE_CONNECTION, check_connection());
}
