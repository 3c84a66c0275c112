/*-------------------------------------------------------------------------
 *
 * wrapped.c
 *		What the checkers are told by functions of zklock: the linker has
 *		__wrap_NAME() called in the place of NAME(), which is __real_NAME().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/wrapped.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "shared/session_info.h"
#include "worker/deadlock/scan_private.h"

extern void __real_scan_run(Scan *scan, int64 now_ms, int wait_ms, List *named,
							const Detector *detector);
extern void __wrap_scan_run(Scan *scan, int64 now_ms, int wait_ms, List *named,
							const Detector *detector);
extern void __real_session_write(int session, const ZkSessionInfo *info);
extern void __wrap_session_write(int session, const ZkSessionInfo *info);
extern void __real_lease_write(int session, int64 until_ms, uint32 ticket);
extern void __wrap_lease_write(int session, int64 until_ms, uint32 ticket);
extern void __real_lease_shorten(int session, int64 until_ms);
extern void __wrap_lease_shorten(int session, int64 until_ms);

void
__wrap_scan_run(Scan *scan, int64 now_ms, int wait_ms, List *named,
				const Detector *detector)
{
	check_look(instance_number(sim_instance()));
	__real_scan_run(scan, now_ms, wait_ms, named, detector);
}

void
__wrap_session_write(int session, const ZkSessionInfo *info)
{
	check_session(instance_number(sim_instance()), session, info->client_id);
	__real_session_write(session, info);
}

/* It is told ahead of a process that may read it, and taken back behind it. */
void
__wrap_lease_write(int session, int64 until_ms, uint32 ticket)
{
	check_lease(instance_number(sim_instance()), session, until_ms * 1000);
	__real_lease_write(session, until_ms, ticket);
}

void
__wrap_lease_shorten(int session, int64 until_ms)
{
	__real_lease_shorten(session, until_ms);
	check_lease(instance_number(sim_instance()), session, until_ms * 1000);
}
