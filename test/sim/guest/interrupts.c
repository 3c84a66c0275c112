/*-------------------------------------------------------------------------
 *
 * interrupts.c
 *		Stand-ins for interrupts: cancel, termination, lock_timeout.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/interrupts.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include <signal.h>

#include "interrupts.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"

volatile sig_atomic_t InterruptPending = false;
volatile sig_atomic_t QueryCancelPending = false;
volatile sig_atomic_t ProcDiePending = false;
volatile sig_atomic_t ClientConnectionLost = false;
volatile sig_atomic_t ConfigReloadPending = false;
volatile sig_atomic_t ShutdownRequestPending = false;
volatile uint32 InterruptHoldoffCount = 0;
volatile uint32 QueryCancelHoldoffCount = 0;
volatile uint32 CritSectionCount = 0;

bool		lock_timeout_struck = false;
bool		reading_command = false;

void
SignalHandlerForConfigReload(int signo)
{
	(void) signo;
	ConfigReloadPending = true;
	SetLatch(MyLatch);
}

static void
handle_cancel(int signo)
{
	(void) signo;
	if (!proc_exit_inprogress)
	{
		InterruptPending = true;
		QueryCancelPending = true;
	}
	SetLatch(MyLatch);
}

void
die(int signo)
{
	(void) signo;
	if (!proc_exit_inprogress)
	{
		InterruptPending = true;
		ProcDiePending = true;
	}
	SetLatch(MyLatch);
}

void
interrupts_begin(bool worker)
{
	if (worker)
		return;
	pqsignal(SIGINT, handle_cancel);
	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
}

/* lock_timeout: its handler sends SIGINT. */
void
lock_timeout_strike(void)
{
	lock_timeout_struck = true;
	handle_cancel(SIGINT);
}

void
ProcessInterrupts(void)
{
	if (InterruptHoldoffCount != 0 || CritSectionCount != 0)
		return;
	InterruptPending = false;
	if (ProcDiePending)
	{
		ProcDiePending = false;
		QueryCancelPending = false;
		lockmgr_cleanup();
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("terminating connection due to administrator command")));
	}
	if (QueryCancelPending && QueryCancelHoldoffCount != 0)
		InterruptPending = true;
	else if (QueryCancelPending)
	{
		bool		timeout = lock_timeout_struck;

		QueryCancelPending = false;
		lock_timeout_struck = false;
		if (timeout)
		{
			lockmgr_cleanup();
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout")));
		}
		if (!reading_command)
		{
			lockmgr_cleanup();
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("canceling statement due to user request")));
		}
	}
}
