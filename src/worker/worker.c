/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The background worker: its entry point and its loop.
 *
 * The loop opens the mail of the slots, handles the events of the session,
 * checks contenders that are due, and sleeps on its latch and on the session's
 * file descriptor.  lifecycle.c has the worker's beginning and end.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/worker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "shared/compat.h"
#include "shared/grant.h"
#include "shared/reads.h"
#include "shared/session_info.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "worker/contender.h"
#include "worker/deadlock.h"
#include "worker/directories.h"
#include "worker/fleet.h"
#include "worker/lifecycle.h"
#include "worker/reads.h"
#include "worker/wake.h"
#include "worker/worker.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"

/* How late ZK_WAKE_LATE is, so that more events arrive. */
#define LATE_WAKE_US		50000

static void
worker_exit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	slots_hold_mail(false);
	worker_set_latch(NULL);
	status_detach();
}

static void
session_events(void)
{
	SessionEvent event;

	while (session_next_event(&event))
		lifecycle_event(&event);

	if (ZK_MUTATED(ZK_WAKE_LATE))
	{
		pg_usleep(LATE_WAKE_US);
		session_reset_wake();
	}
}

/*
 * Is there a connection, but no request could be sent now?  Until it can be
 * sent, it may be withdrawn.
 */
static bool
is_busy(void)
{
	return status_is_connected() && !session_ready();
}

/* Collect the requests of backends. */
static void
open_mail(void)
{
	bool		may_ask;

	if (is_busy())
		return;
	may_ask = status_is_connected();
	if (may_ask)
		reads_collect();
	contenders_open_mail(deadlock_ended);
	if (may_ask)
		reads_begin();
}

static WaitEventSet *
make_wait_set(void)
{
	WaitEventSet *wait_set = ZkCreateWaitEventSet(3);

	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL,
					  NULL);
	AddWaitEventToSet(wait_set, WL_SOCKET_READABLE, session_init(), NULL,
					  NULL);
	return wait_set;
}

/* Entry point of the background worker. */
void
zklock_worker_main(Datum main_arg pg_attribute_unused())
{
	WaitEventSet *wait_set;
	MemoryContext loop_context;
	static uint32 wait_event = 0;

	lifecycle_handle_sigterm();
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	/* shared catalogs only, so that it is in pg_stat_activity */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname(WORKER_NAME);

	contenders_attach();
	loop_context = AllocSetContextCreate(TopMemoryContext, "zklock worker loop",
										 ALLOCSET_DEFAULT_SIZES);
	status_attach();
	before_shmem_exit(worker_exit, (Datum) 0);
	wait_set = make_wait_set();
	directories_forget();
	slots_attach_worker();
	reads_attach_worker();
	MemoryContextSwitchTo(loop_context);
	lifecycle_attach();
	deadlock_attach(status()->key.client_id != 0);
	fleet_attach(lifecycle_end_restored);

	for (;;)
	{
		WaitEvent	event;

		lifecycle_begin_iteration();
		session_events();
		open_mail();
		contenders_check();
		deadlock_run();
		fleet_run();
		contenders_publish();
		lifecycle_keep_session();
		slots_hold_mail(is_busy());
		MemoryContextReset(loop_context);
		lifecycle_end_iteration();
		(void) WaitEventSetWait(wait_set, wake_timeout(), &event, 1,
								ZkWaitEvent(wait_event, "ZkLockWorkerMain"));
		ResetLatch(MyLatch);
		session_reset_wake();
	}
}
