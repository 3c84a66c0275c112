/*-------------------------------------------------------------------------
 *
 * workload.h
 *		What a schedule is made of.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/workload.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include "sim.h"

extern void workload_begin(const char *mutation);
extern void workload_begin_long(const char *mutation, int64_t us);
extern int64_t workload_end_time(void);
extern void workload_calm(void);
extern bool workload_is_over(void);
extern int	workload_clients(void);
extern Process *workload_process(int client);
extern int	workload_permits(void);
extern bool workload_permits_are_used(void);
extern bool workload_hands_on(void);
extern int	workload_timeout_ms(void);
extern int	workload_max_claims(void);
extern int	workload_quantum_ms(void);
extern int	workload_path_bytes(void);
extern bool workload_is_unchecked(void);
extern bool workload_asks_always(void);
extern bool workload_is_losing(void);
extern bool workload_is_tangled(void);
extern bool workload_counter_ends(void);
extern bool workload_has_passing_names(void);
extern bool workload_has_claims(void);
extern bool workload_is_alone_at_times(void);
extern void workload_describe(char *text, size_t size);

/* faults.c */
extern void faults_begin(int64_t from, int64_t to);
extern const char *faults_list(void);

#endif							/* SIM_WORKLOAD_H */
