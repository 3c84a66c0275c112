/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The background worker: its entry point and its loop.
 *
 * The loop opens the mail of the slots, deals with what the session tells,
 * looks after contenders whose time has come, and sleeps on its latch and on
 * the session's file descriptor.  lives.c tells how the worker begins and
 * ends.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "shared/compat.h"
#include "shared/grant.h"
#include "shared/questions.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "worker/answers.h"
#include "worker/auths.h"
#include "worker/checks.h"
#include "worker/connection.h"
#include "worker/contender.h"
#include "worker/desk.h"
#include "worker/directories.h"
#include "worker/lives.h"
#include "worker/quota.h"
#include "worker/session.h"
#include "worker/status.h"
#include "worker/steps.h"
#include "worker/wake.h"
#include "worker/worker.h"

static void
worker_exit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	slots_detach_worker();
	status_detach();
}

/* The session is connected: go on with it, or end it if it is an old one. */
static void
session_up(void)
{
	char		passwd[ZK_PASSWD_SIZE];

	if (lives_old_session(passwd) != 0)
		lives_end_old_session(false);
	else
		connection_set_up();
	SetLatch(MyLatch);			/* collect what was asked meanwhile */
}

/* The session has ended: begin another. */
static void
session_expired(void)
{
	char		passwd[ZK_PASSWD_SIZE];

	if (lives_old_session(passwd) != 0)
		lives_end_old_session(true);
	else
		lives_end_session("ZooKeeper has let it expire.");
}

/* Deal with all that the session tells. */
static void
session_events(void)
{
	SessionEvent event;

	while (session_next_event(&event))
	{
		switch (event.kind)
		{
			case SESSION_UP:
				session_up();
				break;
			case SESSION_SUSPENDED:
				directories_disconnect();
				connection_set_suspended();
				break;
			case SESSION_EXPIRED:
				session_expired();
				break;
			case SESSION_AUTH_FAILED:
				connection_set_refused();
				break;
			case SESSION_ANSWER:
			case SESSION_WATCH:
				if (event.owner & ANSWERS_OWNER)
					answers_event(event.owner, &event.input);
				else if (event.owner == SESSION_BRIEF_OWNER)
					directories_event(&event.input);
				else
					step_answered(event.owner, &event.input);
				break;
			case SESSION_MESSAGE:
				connection_message(event.message);
				break;
		}
	}
}

static void
handle_signals(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		lives_reload();
	}
	if (ShutdownRequestPending)
		lives_shut_down();
}

/* Have a session, or tell why there is none. */
static void
open_session(void)
{
	int			save_errno;

	if (connection_open())
		return;
	save_errno = errno;
	session_events();
	connection_note_failure(save_errno);
}

/* Collect what backends ask for. */
static void
open_mail(void)
{
	/* what cannot leave yet may be taken back until it can */
	if (status()->state != ZK_SESSION_CONNECTED)
		desk_open_mail();
	else if (session_ready())
	{
		answers_collect();
		desk_open_mail();
		answers_begin();
	}
}

static WaitEventSet *
make_wait_set(void)
{
	WaitEventSet *wait_set = ZkCreateWaitEventSet(3);

	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL,
					  NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, session_init(), NULL, NULL);
	return wait_set;
}

/*
 * zklock_worker_main
 *		Entry point of the background worker.
 */
void
zklock_worker_main(Datum main_arg pg_attribute_unused())
{
	WaitEventSet *wait_set;
	MemoryContext loop_context;
	static uint32 wait_event = 0;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	/* shared catalogs only: to be seen in pg_stat_activity */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname(WORKER_NAME);

	contenders_init();
	directories_forget();
	loop_context = AllocSetContextCreate(TopMemoryContext, "zklock worker loop",
										 ALLOCSET_DEFAULT_SIZES);
	status_attach();
	auths_attach();
	before_shmem_exit(worker_exit, (Datum) 0);
	wait_set = make_wait_set();
	slots_attach_worker();
	questions_attach_worker();
	MemoryContextSwitchTo(loop_context);
	lives_attach();

	for (;;)
	{
		WaitEvent	event;

		handle_signals();
		lives_check_chroot();
		open_session();
		session_events();
		open_mail();
		desk_begin_parked();
		quota_publish();
		checks_run();
		connection_keep_lease();
		wake_set(WAKE_FLUSH, session_flush());
		slots_hold_mail(status()->state == ZK_SESSION_CONNECTED &&
						!session_ready());
		MemoryContextReset(loop_context);
		lives_renew_auths();
		connection_check();
		(void) WaitEventSetWait(wait_set, wake_timeout(), &event, 1,
								ZkWaitEvent(wait_event, "ZkLockWorkerMain"));
		ResetLatch(MyLatch);
	}
}
