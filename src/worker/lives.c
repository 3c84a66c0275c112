/*-------------------------------------------------------------------------
 *
 * lives.c
 *		How the worker begins, goes on and ends, and the sessions with it.
 *
 * The worker may end at any time and lose nothing.  What the next one needs
 * is in shared memory: each session's id and password, and for each slot its
 * state and contender.  A worker that ends alone therefore leaves the sessions
 * open, and the next one resumes them.  They are closed only when the server
 * shuts down or zklock.servers has a new chroot, and then only after the last
 * backend has dropped its locks; but one other than the first is closed when
 * it has been empty for a while.
 *
 * If all of the server has crashed, shared memory is gone.  The first worker
 * finds the sessions of before that in a file (session_file.c), attaches to
 * one after the other and closes it, and only then begins one of its own.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lives.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/proof.h"
#include "shared/secure.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/pidfile.h"
#include "worker/deadlock/deadlock.h"
#include "worker/fleet/answers.h"
#include "worker/fleet/fleet.h"
#include "worker/lives.h"
#include "worker/lock/contender.h"
#include "worker/lock/desk.h"
#include "worker/lock/directories.h"
#include "worker/lock/quota.h"
#include "worker/lock/sessions.h"
#include "worker/lock/steps.h"
#include "worker/wake.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/session_file.h"
#include "worker/zookeeper/status.h"

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
 * How long to wait, at the end of the server, until ZooKeeper has been told that
 * the sessions end.  The library gives that up after 4.5 s.
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
}			lives;

/*
 * Have a contender for each slot that wants one and has none: take over those
 * of the worker before this one, begin the others.
 */
static void
take_over(void)
{
	int			nslots;
	ZkSlot	  **list = slots_list(&nslots);

	/* what may exist already takes its room ahead of all else */
	for (int i = 0; i < nslots; i++)
	{
		ZkContender known;
		ZkSlotState state = slot_read_contender(list[i], &known);

		if (known.has_uuid && contender_find(list[i]) == NULL)
			step_resume(list[i], state, &known);
	}
	pfree(list);
	desk_begin_wanted();
}

/* Forget all contenders of a session that is over, and tell the slots. */
static void
forget_contenders(int session)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
		if (list[i]->session == session)
			step_expire(list[i]);
	pfree(list);
	quota_forget_left(session);
}

/*
 * The sessions are to end when nothing is held: no lock is to go on from
 * backend to backend for long, or be retained, until then.
 */
static void
begin_drain(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
		(void) slot_set_contended(list[i]->slot);
	pfree(list);
}

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
	if (lives.close_at_ms == 0)
	{
		int			n;
		Contender **list = contenders_list(&n);

		/* those that are wanted, too: they queue again in another session */
		lives.close_at_ms = now_ms + CLOSE_DELAY_MS;
		for (int i = 0; i < n; i++)
			desk_release(list[i]->slot);
		pfree(list);
	}
	return now_ms >= lives.close_at_ms;
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
 * lives_handle_sigterm
 *		Have SIGTERM end the worker, when the loop comes to lives_shut_down().
 */
void
lives_handle_sigterm(void)
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
 * lives_attach
 *		Go on where the worker before this one has ended.
 *
 * If the whole server has crashed, its session is to be ended first.
 */
void
lives_attach(void)
{
	if (!status_is_alive())
		lives.nold = session_file_read(lives.old);
	for (int i = 0; i < lives.nold; i++)
		ereport(LOG,
				(errmsg("ending ZooKeeper session 0x%llx from before the crash",
						(unsigned long long) lives.old[i].client_id)));
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		if (status(i)->client_id != 0)
			sessions_add(i);
	take_over();
	if (auths_are_old())
		begin_drain();
}

/*
 * lives_old_session
 *		A session of before a crash, which is to be closed, and its
 *		password; or 0.
 *
 * The first session attaches to it, and all others wait.
 */
int64
lives_old_session(char passwd[ZK_PASSWD_SIZE])
{
	if (lives.nold == 0)
		return 0;
	memcpy(passwd, lives.old[lives.nold - 1].passwd, ZK_PASSWD_SIZE);
	return lives.old[lives.nold - 1].client_id;
}

/*
 * lives_has_old_session
 *		Is there a session of before a crash, to be closed ahead of all else?
 */
bool
lives_has_old_session(void)
{
	return lives.nold > 0;
}

/*
 * lives_end_old_session
 *		We are attached to a session from before the crash, or it has expired.
 *
 * If it is to be closed, we come back until ZooKeeper says that it is gone:
 * the request may get lost with the connection.
 *
 * What backends have asked for meanwhile has been prepared, but no operation
 * has left for that session; it begins anew.
 */
void
lives_end_old_session(bool expired)
{
	forget_contenders(0);
	session_close(0);
	if (expired)
	{
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx from before the crash has ended",
						(unsigned long long) lives.old[lives.nold - 1].client_id)));
		session_file_write(lives.old, --lives.nold);
	}
	directories_forget();
	take_over();
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
	forget_contenders(session);
	session_close(session);
	if (lives.nold == 0)
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
	lives.empty_since_ms[session] = 0;
	deadlock_end_session(session);
}

/*
 * lives_end_session
 *		A session is over.
 *
 * What is still wanted queues again, in this session or another.
 */
void
lives_end_session(int session, const char *why)
{
	end_session(session, why);
	lives.close_at_ms = 0;
	take_over();
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
	lives.close_at_ms = 0;
	take_over();
	answers_restart();
}

/*
 * lives_end_restored
 *		ZooKeeper has been restored from an older copy: what our sessions have
 *		there is not what we know.
 */
void
lives_end_restored(void)
{
	ereport(LOG,
			(errmsg("ZooKeeper has been restored from an older copy of its data"),
			 errdetail("It has lost writes of this server that it had acknowledged."),
			 errhint("Locks and fencing tokens of all servers are affected.")));
	end_all_sessions("ZooKeeper has been restored from an older copy.");
}

/*
 * lives_close_empty
 *		Close the sessions, other than the first, that have been empty for a
 *		while, and have the loop come back for the others.
 */
void
lives_close_empty(void)
{
	int64		now_ms = zk_now_ms();
	int64		wake_ms = 0;

	for (int i = sessions_end() - 1; i > 0; i--)
	{
		int64	   *since_ms = &lives.empty_since_ms[i];

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
 * lives_check_chroot
 *		If zklock.servers has a new chroot, drain the sessions, and end them
 *		when nothing is held.
 */
void
lives_check_chroot(void)
{
	if (status_chroot_changed() && slots_retire() && may_close_sessions())
		end_all_sessions("\"zklock.servers\" has a new chroot.");
	if (status(0)->draining != status_chroot_changed())
	{
		status_set_draining(status_chroot_changed());
		if (status(0)->draining)
			begin_drain();
	}
}

/*
 * lives_wake
 *		Have the loop come back while the session is to end, and is still in use.
 *
 * To be called at the end of a turn, so that a drain leaves the slots' locks
 * alone for a while, however long the turn took.
 */
void
lives_wake(void)
{
	wake_set(WAKE_DRAIN, ShutdownRequestPending || status_chroot_changed() ?
			 zk_now_ms() + DRAIN_CHECK_MS : 0);
}

/*
 * lives_is_last_worker
 *		Have we been told to end because the whole server does?
 *
 * The postmaster starts no other worker then, so that we must wait for the
 * last holder, come what may, and leave nothing to the next one but a session
 * that we cannot close.
 */
bool
lives_is_last_worker(void)
{
	return ShutdownRequestPending && server_is_stopping();
}

/*
 * lives_reload
 *		Apply a changed configuration.
 *
 * Another chroot takes effect in the loop, when nothing is held; all else
 * with the next worker, which resumes the session with the new settings (and
 * with the old credentials beside the new).
 */
void
lives_reload(void)
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
		!lives_is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker to apply new settings")));
		proc_exit(1);
	}

	fleet_check();

	/* changed back: what was put off is wanted here after all */
	if (waiting && !status_chroot_changed())
	{
		lives.close_at_ms = 0;
		take_over();
	}

	pfree(servers);
	pfree(auth);
	pfree(secure);
	pfree(new_secure);
}

/*
 * lives_renew_auths
 *		Have the next worker present zklock.auth only, if it is time for
 *		that.
 */
void
lives_renew_auths(void)
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
 * lives_shut_down
 *		SIGTERM has come.
 *
 * Returns if the worker has to go on, for backends that still hold locks
 * while the server stops: a backend may be in the middle of its commit, and
 * its locks must not be free before that is over.
 */
void
lives_shut_down(void)
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
