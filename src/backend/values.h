/*-------------------------------------------------------------------------
 *
 * values.h
 *		SQL values for data from ZooKeeper and the worker.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/values.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_VALUES_H
#define ZKLOCK_VALUES_H

#include "access/tupdesc.h"

extern void check_row_columns(TupleDesc tupdesc, int columns);
extern Datum interval_of_us(int64 us);
extern Datum session_id_text(int64 session_id);

#endif							/* ZKLOCK_VALUES_H */
