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

#include "lib/stringinfo.h"

extern bool ask_instance(const char *id, int timeout_ms, StringInfo buf);
extern bool ask_owner(const char *path, int timeout_ms, StringInfo owner);

#endif							/* ZKLOCK_BACKEND_QUESTIONS_H */
