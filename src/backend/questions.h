/*-------------------------------------------------------------------------
 *
 * questions.h
 *		What a backend asks of ZooKeeper, by way of the worker.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/questions.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKEND_QUESTIONS_H
#define ZKLOCK_BACKEND_QUESTIONS_H

extern bool ask_owner(const char *path, int timeout_ms,
					  char *owner, size_t size);

#endif							/* ZKLOCK_BACKEND_QUESTIONS_H */
