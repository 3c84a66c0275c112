/*-------------------------------------------------------------------------
 *
 * schedule.h
 *		What happens next to the clients of a model, and in what order.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/schedule.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SCHEDULE_H
#define ZKLOCK_SCHEDULE_H

#include "model.h"

/* How many faults of each kind are possible now. */
typedef struct ScheduleFaults
{
	unsigned	refusals;		/* of what is carried out next */
	unsigned	expiries;
	unsigned	losses;			/* of the connection, or of the worker */
} ScheduleFaults;

/* one step of a session's */
extern bool schedule_go_on(ModelSession *session);
extern bool schedule_catch_up(ModelSession *session);
extern unsigned schedule_count_faults(const ModelSession *session, bool may,
									  bool refusals, ScheduleFaults *faults);
extern void schedule_fault(ModelSession *session,
						   const ScheduleFaults *faults, unsigned which);
extern void schedule_random_fault(ModelSession *session, bool restarts);
extern void schedule_random_catch_up(ModelSession *session);
extern void schedule_random_reconnect(ModelSession *session);

/* all of them */
extern void schedule_settle(void);

/* programs of tests, each of which begins with its title */
extern void schedule_explore(const ModelHooks *hooks, const void *plan,
							 void (*start) (const char *title,
											unsigned long run),
							 void (*play) (const void *plan),
							 unsigned long at_least);
extern int	schedule_run_tests(const char *name, const void *plans, size_t size,
							   size_t n, void (*test) (void **state));

#endif							/* ZKLOCK_SCHEDULE_H */
