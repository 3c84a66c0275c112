/*-------------------------------------------------------------------------
 *
 * shmem.h
 *		All shared memory of zklock.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/shmem.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SHMEM_H
#define ZKLOCK_SHMEM_H

extern void shmem_request(void);
extern void shmem_startup(void);

#endif							/* ZKLOCK_SHMEM_H */
