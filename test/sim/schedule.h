/*-------------------------------------------------------------------------
 *
 * schedule.h
 *		Tasks, virtual time, random numbers and the trace: what only the
 *		simulator itself may use.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/schedule.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include "sim.h"

/* How wild a schedule is: set before it begins. */
typedef struct Wildness
{
	uint32_t	yields;			/* a switch at one yield of so many */
	uint32_t	naps;			/* of these one in so many is a short nap */
	uint32_t	sleeps;			/* of the naps, one in so many is a long one */
	int64_t		longest_us;		/* which lasts so long at the most */
	uint32_t	late_clocks;	/* readings of the clock that such a nap
								 * follows, of a million */
} Wildness;

extern void schedule_begin(uint64_t seed, const Wildness *wildness);
extern void schedule_set_wildness(const Wildness *wildness);
extern int64_t schedule_longest_nap(void);
extern bool schedule_run(int64_t until);
extern void schedule_end(void);
extern uint64_t schedule_hash(void);
extern uint64_t schedule_steps(void);
extern bool schedule_is_guard(const void *address);
extern void schedule_calm(void);
extern void schedule_thaw(void);
extern const char *schedule_failure(void);
extern const char *schedule_checker(void);
extern void schedule_set_trace(bool on, bool every_step,
							   uint64_t stop_at);

extern bool task_is_over(const Task *task);

/* Memory that lasts as long as the schedule, or for a lifetime. */
extern void *sim_alloc(size_t size);
extern char *sim_strdup(const char *string);
extern void *sim_keep(size_t size);
extern const char *sim_keep_bytes(const char *bytes, size_t n);
extern void schedule_set_lifetime(int64_t us);

/* process.c */
extern bool process_is_frozen(const Process *process);
extern int64_t process_frozen_until(const Process *process);
extern const char *process_label(const Process *process);

#endif							/* SIM_SCHEDULE_H */
