/*-------------------------------------------------------------------------
 *
 * deadlock.h
 *		The error of a deadlock with other instances.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/deadlock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKEND_DEADLOCK_H
#define ZKLOCK_BACKEND_DEADLOCK_H

#include "shared/deadlocks.h"

extern void deadlock_report(uint32 number);

#endif							/* ZKLOCK_BACKEND_DEADLOCK_H */
