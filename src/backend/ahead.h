/*-------------------------------------------------------------------------
 *
 * ahead.h
 *		A heavyweight lock ahead of the processes that wait for it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/ahead.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AHEAD_H
#define ZKLOCK_AHEAD_H

#include "storage/lock.h"

extern void ahead_of_waiters(const LOCKTAG *tag, LOCKMODE mode, bool ahead);

#endif							/* ZKLOCK_AHEAD_H */
