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

#include "backend/names.h"
#include "lib/stringinfo.h"
#include "shared/questions.h"

extern char *ask_entries(ZkQuestion question, const char *path,
						 const ZkLockName *lock, int *count);
extern bool ask_owner(const char *path, int timeout_ms, StringInfo owner);

#endif							/* ZKLOCK_BACKEND_QUESTIONS_H */
