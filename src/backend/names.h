/*-------------------------------------------------------------------------
 *
 * names.h
 *		Names of locks and other values, between SQL and ZooKeeper; and whether
 *		functions can work.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/names.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NAMES_H
#define ZKLOCK_NAMES_H

#include "access/tupdesc.h"
#include "shared/key.h"

/* A lock as an SQL function names it. */
typedef struct ZkLockName
{
	char	   *name;			/* in the server encoding */
	ZkKey		key;			/* of its exclusive slot, and of its holds */
} ZkLockName;

extern void zk_check_preloaded(void);
extern void zk_check_usable(void);
extern void zk_check_fleet(Oid function);
extern void check_row_columns(TupleDesc tupdesc, int columns);
extern void zk_lock_name(Datum name, bool isnull, ZkLockName *lock);
extern void zk_advisory_name(const int32 *keys, int64 key, ZkLockName *lock);
extern char *key_name(const ZkKey *key);
extern char *path_lock_name(const char *path);
extern char *path_lock_text(const char *path);
extern Datum interval_of_us(int64 us);
extern Datum session_id_text(int64 session_id);

#endif							/* ZKLOCK_NAMES_H */
