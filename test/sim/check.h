/*-------------------------------------------------------------------------
 *
 * check.h
 *		The checkers, as the schedule starts them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/check.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "sim.h"

#define MAX_CLIENTS		96
#define MAX_INSTANCES	8

typedef struct Totals
{
	uint64_t	schedules;
	uint64_t	steps;
	uint64_t	acquired;
	uint64_t	committed;
	uint64_t	rolled_back;
	uint64_t	failed;
	uint64_t	lost;			/* 40001 */
	uint64_t	timeouts;		/* 55P03 */
	uint64_t	deadlocks_here;
	uint64_t	deadlocks_between;
	uint64_t	late;			/* victims whose cycle had just ended */
	uint64_t	unclear;		/* victims by the order of a queue that is not
								 * known */
	uint64_t	holes;			/* rule 7 */
	uint64_t	outside;		/* a session was closed from outside */
	uint64_t	faults;
	uint64_t	requests;
	uint64_t	writes;
	int64_t		virtual_us;
} Totals;

extern Totals totals;

extern void check_schedule_begin(void);
extern void check_client(int client, int instance);
extern void check_gone(int client);
extern void check_closed_outside(int instance);
extern void check_session_ended(int instance);
extern void check_expired(int instance, int64_t id);
extern void check_expect_naps(int64_t longest_us);
extern void check_disturb(int64_t us);
extern void check_calm(int64_t bound_us);
extern void check_at_rest(void);
extern bool check_is_waiting(int client);
extern const char *check_describe(int client);

#endif							/* SIM_CHECK_H */
