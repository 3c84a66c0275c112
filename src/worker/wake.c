/*-------------------------------------------------------------------------
 *
 * wake.c
 *		When the worker wakes up, and why.
 *
 * Each file sets the times of its own reasons; the loop sleeps until the
 * earliest of them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/wake.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "shared/clock.h"
#include "worker/wake.h"

static int64 times_ms[WAKE_REASONS];	/* as of zk_now_ms(); 0: none */

/*
 * wake_set
 *		Wake up at this time, as of zk_now_ms(), for this reason; 0: not for
 *		this reason.
 */
void
wake_set(WakeReason reason, int64 at_ms)
{
	times_ms[reason] = at_ms;
}

/* When the worker is to wake up for this reason, as of zk_now_ms(), or 0. */
int64
wake_time(WakeReason reason)
{
	return times_ms[reason];
}

/* Has the time for this reason come? */
bool
wake_is_due(WakeReason reason)
{
	return times_ms[reason] != 0 && times_ms[reason] <= zk_now_ms();
}

/* How long to sleep, in ms; -1: until an event. */
long
wake_timeout(void)
{
	int64		now_ms = zk_now_ms();	/* once: it goes on between two
										 * readings */
	int64		first_ms = 0;

	for (int i = 0; i < WAKE_REASONS; i++)
		first_ms = zk_earlier(first_ms, times_ms[i]);
	if (ZK_MUTATED(ZK_CLOCK_READ_TWICE) && first_ms > now_ms)
		return first_ms - zk_now_ms();
	return first_ms == 0 ? -1 : Max(first_ms - now_ms, 0);
}
