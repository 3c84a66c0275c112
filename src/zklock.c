/*-------------------------------------------------------------------------
 *
 * zklock.c
 *		Module load: settings, shared memory, registration of the worker.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/zklock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/advisory.h"
#include "backend/hooks.h"
#include "core/memory.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "shared/claims.h"
#include "shared/deadlocks.h"
#include "shared/reads.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "worker/worker.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "zklock", .version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

PGDLLEXPORT void _PG_init(void);

static void
register_worker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, WORKER_MAIN,
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, WORKER_NAME, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, WORKER_NAME, sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

static void
zk_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	session_info_request_shmem();
	slots_request_shmem();
	claims_request_shmem();
	reads_request_shmem();
	stats_request_shmem();
	deadlocks_request_shmem();
}

static void
zk_shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	session_info_startup_shmem();
	slots_startup_shmem();
	claims_startup_shmem();
	reads_startup_shmem();
	stats_startup_shmem();
	deadlocks_startup_shmem();
	LWLockRelease(AddinShmemInitLock);
}

/* Memory for core/ cannot be allocated. */
static void
out_of_memory(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory")));
}

/*
 * _PG_init
 *		Entry point of the library.
 *
 * After server start it does nothing: the functions say that preloading is
 * missing.  pg_upgrade's servers hold no locks.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;

	memory_exhausted = out_of_memory;
	test_settings_define();
	settings_define();
	hooks_init();
	advisory_init();
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = zk_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = zk_shmem_startup;
	register_worker();
}
