/*-------------------------------------------------------------------------
 *
 * clock.h
 *		The clock that all processes of an instance share.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/clock.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLOCK_H
#define ZKLOCK_CLOCK_H

#include "datatype/timestamp.h"

extern int64 zk_now_us(void);
extern int64 zk_now_ms(void);
extern int64 zk_earlier(int64 one, int64 other);
extern int64 zk_cpu_us(void);
extern TimestampTz zk_wall_time(int64 us);

#endif							/* ZKLOCK_CLOCK_H */
