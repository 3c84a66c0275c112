/*-------------------------------------------------------------------------
 *
 * preempt.h
 *		Spinlocks and atomics at which another process may go on.
 *
 * The compiler is told to include this ahead of each source of zklock that
 * includes PostgreSQL's headers.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/preempt.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_PREEMPT_H
#define SIM_PREEMPT_H

#define S_LOCK(lock)	sim_spin_lock(lock)

#include "postgres.h"

#include "port/atomics.h"
#include "storage/spin.h"

extern int	sim_spin_lock(volatile slock_t *lock);
extern void sim_point(void);

#define pg_atomic_read_u32(a) \
	(sim_point(), pg_atomic_read_u32(a))
#define pg_atomic_write_u32(a, v) \
	(sim_point(), pg_atomic_write_u32(a, v))
#define pg_atomic_compare_exchange_u32(a, e, n) \
	(sim_point(), pg_atomic_compare_exchange_u32(a, e, n))
#define pg_atomic_fetch_add_u32(a, v) \
	(sim_point(), pg_atomic_fetch_add_u32(a, v))
#define pg_atomic_fetch_sub_u32(a, v) \
	(sim_point(), pg_atomic_fetch_sub_u32(a, v))
#define pg_atomic_add_fetch_u32(a, v) \
	(sim_point(), pg_atomic_add_fetch_u32(a, v))
#define pg_atomic_read_u64(a) \
	(sim_point(), pg_atomic_read_u64(a))
#define pg_atomic_write_u64(a, v) \
	(sim_point(), pg_atomic_write_u64(a, v))
#define pg_atomic_fetch_add_u64(a, v) \
	(sim_point(), pg_atomic_fetch_add_u64(a, v))

#endif							/* SIM_PREEMPT_H */
