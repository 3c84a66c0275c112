/*-------------------------------------------------------------------------
 *
 * reads.h
 *		Reads in ZooKeeper what backends ask for.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/reads.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_READS_H
#define ZKLOCK_WORKER_READS_H

extern void reads_collect(void);
extern void reads_begin(void);
extern void reads_restart(void);

#endif							/* ZKLOCK_WORKER_READS_H */
