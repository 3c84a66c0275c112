/*-------------------------------------------------------------------------
 *
 * scan_private.h
 *		Which backends of this instance keep a contender while they wait for
 *		another one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/scan_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SCAN_PRIVATE_H
#define ZKLOCK_SCAN_PRIVATE_H

#include "core/deadlock/detector.h"
#include "nodes/pg_list.h"

/* The result of a scan, palloc'd. */
typedef struct Scan
{
	WaitEdge   *edges;
	int			nedges;
	List	   *unknown;		/* Contenders that would have edges if others
								 * are behind them, which is unknown */
	bool		foreign;		/* others may name sessions of ours in
								 * foreign_waits_dir() */
} Scan;

extern void scan_run(Scan *scan, int64 now_ms, int wait_ms, List *named,
					 const Detector *detector);

#endif							/* ZKLOCK_SCAN_PRIVATE_H */
