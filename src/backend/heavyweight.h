/*-------------------------------------------------------------------------
 *
 * heavyweight.h
 *		The first tier of a lock: PostgreSQL's lock manager.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/heavyweight.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HEAVYWEIGHT_H
#define ZKLOCK_HEAVYWEIGHT_H

#include "shared/key.h"
#include "storage/lock.h"

extern bool heavyweight_lock(const LOCKTAG *tag, LOCKMODE mode, bool session,
							 bool wait, int64 deadline);
extern bool heavyweight_try_until(const LOCKTAG *tag, LOCKMODE mode,
								  int64 deadline);
extern void heavyweight_unlock(const LOCKTAG *tag, LOCKMODE mode,
							   bool session, int64 times);

#endif							/* ZKLOCK_HEAVYWEIGHT_H */
