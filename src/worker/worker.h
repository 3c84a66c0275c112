/*-------------------------------------------------------------------------
 *
 * worker.h
 *		The background worker, as the postmaster knows it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/worker.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORKER_H
#define ZKLOCK_WORKER_H

/* The postmaster finds the worker by its function's name. */
#define WORKER_MAIN		"zklock_worker_main"
#define WORKER_NAME		"zklock worker"

extern PGDLLEXPORT void zklock_worker_main(Datum main_arg);

#endif							/* ZKLOCK_WORKER_H */
