/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		All shared memory of zklock.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/shmem.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/claims.h"
#include "shared/deadlocks.h"
#include "shared/reads.h"
#include "shared/session_info.h"
#include "shared/shmem.h"
#include "shared/slots.h"
#include "shared/stats.h"

/*
 * shmem_request
 *		Request shared memory and LWLocks; for the shmem_request_hook.
 */
void
shmem_request(void)
{
	session_info_request_shmem();
	slots_request_shmem();
	claims_request_shmem();
	reads_request_shmem();
	stats_request_shmem();
	deadlocks_request_shmem();
}

/*
 * shmem_startup
 *		Create the shared memory or attach to it; for the shmem_startup_hook.
 */
void
shmem_startup(void)
{
	session_info_startup_shmem();
	slots_startup_shmem();
	claims_startup_shmem();
	reads_startup_shmem();
	stats_startup_shmem();
	deadlocks_startup_shmem();
}
