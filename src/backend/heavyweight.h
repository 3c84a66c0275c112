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

/* The heavyweight locks of a lock, in the order of their acquisition. */
typedef struct Heavyweight
{
	LOCKTAG		tags[2];		/* that of the path; PostgreSQL's advisory
								 * lock, if it stands for one */
	int			ntags;
	LOCKMODE	mode;
} Heavyweight;

extern void heavyweight_set(Heavyweight *lock, const ZkKey *key,
							const char *path, LOCKMODE mode);
extern void heavyweight_set_users(Heavyweight *lock, const ZkKey *key,
								  LOCKMODE mode);
extern bool heavyweight_lock(const Heavyweight *lock, bool session, bool wait,
							 int64 deadline);
extern bool heavyweight_try_until(const Heavyweight *lock, int64 deadline);
extern void heavyweight_lock_ahead(const Heavyweight *lock);
extern void heavyweight_unlock(const Heavyweight *lock, bool session,
							   int64 times);

#endif							/* ZKLOCK_HEAVYWEIGHT_H */
