/*-------------------------------------------------------------------------
 *
 * lives.c
 *		How the worker begins, goes on and ends, and the session with it.
 *
 * The worker may end at any time and lose nothing.  What the next one needs
 * is in shared memory: the session's id and password, and for each slot its
 * state and contender.  A worker that ends alone therefore leaves the session
 * open, and the next one resumes it.  The session is closed only when the
 * server shuts down or zklock.servers has a new chroot, and then only after
 * the last backend has dropped its locks.
 *
 * If all of the server has crashed, shared memory is gone.  The first worker
 * finds the session of before that in a file (session_file.c), attaches to
 * it, closes it, and only then begins one of its own.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lives.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "postmaster/interrupt.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/pidfile.h"
#include "worker/answers.h"
#include "worker/auths.h"
#include "worker/contender.h"
#include "worker/desk.h"
#include "worker/directories.h"
#include "worker/lives.h"
#include "worker/quota.h"
#include "worker/session.h"
#include "worker/session_file.h"
#include "worker/status.h"
#include "worker/steps.h"
#include "worker/wake.h"

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

static struct
{
	int64		old_session;	/* of before a crash, to be closed; 0: none */
	char		old_passwd[ZK_PASSWD_SIZE];
	int64		close_at_ms;	/* zk_now_ms() at which to close the session,
								 * whatever it has; 0: it is not to be */
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

/* Forget all contenders, whose session is over, and tell the slots. */
static void
forget_contenders(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
		step_expire(list[i]);
	quota_forget_left();
}

/*
 * The session is to end when nothing is held: no lock is to go on from backend
 * to backend for long, or be retained, until then.
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

/*
 * May the session be closed now that nothing is held, or does that have to wait
 * until its nodes have been deleted?  For these a batch after the other is
 * cheaper for ZooKeeper than all at once.  But this must not take long, and
 * whoever cannot be reached is not waited for.
 */
static bool
may_close_session(void)
{
	int64		now_ms = zk_now_ms();

	if (status()->state != ZK_SESSION_CONNECTED ||
		quota_held() <= CLOSE_PATH_BYTES)
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

/*
 * lives_attach
 *		Go on where the worker before this one has ended.
 *
 * If the whole server has crashed, its session is to be ended first.
 */
void
lives_attach(void)
{
	if (status()->client_id == 0 &&
		session_file_read(&lives.old_session, lives.old_passwd))
		ereport(LOG,
				(errmsg("ending ZooKeeper session 0x%llx of before the crash",
						(unsigned long long) lives.old_session)));
	take_over();
	if (auths_are_old())
		begin_drain();
}

/*
 * lives_old_session
 *		The session of before a crash, which is to be closed, and its
 *		password; or 0.
 */
int64
lives_old_session(char passwd[ZK_PASSWD_SIZE])
{
	memcpy(passwd, lives.old_passwd, ZK_PASSWD_SIZE);
	return lives.old_session;
}

/*
 * lives_end_old_session
 *		We are attached to the session of before the crash, or it has
 *		expired.
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
	forget_contenders();
	session_close();
	if (expired)
	{
		ereport(LOG,
				(errmsg("ZooKeeper session 0x%llx of before the crash has ended",
						(unsigned long long) lives.old_session)));
		session_file_remove();
		lives.old_session = 0;
	}
	directories_forget();
	take_over();
	answers_restart();
}

/*
 * lives_end_session
 *		The session is over, or we end it ourselves, which takes
 *		slots_retire().
 *
 * What is still wanted queues again, in the next session.
 */
void
lives_end_session(const char *why)
{
	ereport(LOG,
			(errmsg("ZooKeeper session 0x%llx has ended",
					(unsigned long long) status()->client_id),
			 errdetail_internal("%s", why)));
	forget_contenders();
	session_close();
	session_file_remove();
	directories_forget();
	status_set_ended();
	lives.close_at_ms = 0;
	take_over();
	answers_restart();
}

/*
 * lives_check_chroot
 *		If zklock.servers has a new chroot, drain the session, and end it
 *		when nothing is held.
 */
void
lives_check_chroot(void)
{
	if (status_chroot_changed() && slots_retire() && may_close_session())
		lives_end_session("\"zklock.servers\" has a new chroot.");
	if (status()->draining != status_chroot_changed())
	{
		status_set_draining(status_chroot_changed());
		if (status()->draining)
			begin_drain();
	}
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
	int			timeout = zklock_session_timeout;
	int			old_acl = zklock_acl;
	bool		waiting = status_chroot_changed();

	ProcessConfigFile(PGC_SIGHUP);

	servers[strcspn(servers, "/")] = '\0';
	if ((strlen(servers) != strcspn(zklock_servers, "/") ||
		 strncmp(servers, zklock_servers, strlen(servers)) != 0 ||
		 strcmp(auth, zklock_auth) != 0 ||
		 timeout != zklock_session_timeout || old_acl != zklock_acl) &&
		!lives_is_last_worker())
	{
		ereport(LOG,
				(errmsg("restarting the zklock worker to apply new settings")));
		proc_exit(1);
	}

	/* changed back: what was put off is wanted here after all */
	if (waiting && !status_chroot_changed())
	{
		lives.close_at_ms = 0;
		take_over();
	}

	pfree(servers);
	pfree(auth);
}

/*
 * lives_renew_auths
 *		Have the next worker present zklock.auth only, if it is time for
 *		that.
 */
void
lives_renew_auths(void)
{
	if (status()->state != ZK_SESSION_CONNECTED || ShutdownRequestPending ||
		contenders_count() > 0 || !auths_are_old())
		return;
	auths_collect(false);
	ereport(LOG,
			(errmsg("restarting the zklock worker, since its session does not need former credentials any more")));
	proc_exit(1);
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
				(errmsg("zklock worker is terminated, its session goes on")));
		proc_exit(1);
	}
	if (!slots_retire())
		return;
	status_set_closing();
	if (!may_close_session())
		return;
	session_close();
	/* without a connection nobody was told, and the next start has to do it */
	if (status()->state == ZK_SESSION_CONNECTED)
		session_file_remove();
	status_set_closed();

	/* not 0: in a smart shutdown of long, a new worker may be wanted */
	proc_exit(1);
}
