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
	uint64_t	alone;			/* locks of an instance alone, of those */
	uint64_t	committed;
	uint64_t	rolled_back;
	uint64_t	failed;
	uint64_t	lost;			/* 40001 */
	uint64_t	losing;			/* schedules with long holds */
	uint64_t	losing_sections;	/* there: transactions under locks */
	uint64_t	losing_lost;	/* of those, that have failed by 40001, */
	uint64_t	losing_waits;	/* or have waited for a proof of their lease */
	uint64_t	timeouts;		/* 55P03 */
	uint64_t	deadlocks_here;
	uint64_t	deadlocks_between;
	uint64_t	late;			/* victims whose cycle had just ended */
	uint64_t	unclear;		/* victims by the order of a queue that is not
								 * known */
	uint64_t	holes;			/* rule 7: a session ended between check and
								 * commit */
	uint64_t	outside;		/* a session was closed from outside */
	uint64_t	unchecked;		/* it had ended, and the check is off */
	uint64_t	restored;		/* ZooKeeper was an older copy */
	uint64_t	noticed;		/* an instance has seen that ZooKeeper is an
								 * older copy */
	uint64_t	claims;
	uint64_t	claim_calls;	/* that have succeeded */
	uint64_t	faults;
	uint64_t	requests;
	uint64_t	writes;
	uint64_t	contenders;		/* that were created */
	int64_t		virtual_us;
} Totals;

extern Totals totals;

extern void check_schedule_begin(void);
extern void check_chosen(void);
extern void check_client(int client, int instance);
extern void check_gone(int client);
extern void check_closed_outside(int64_t id);
extern void check_session_ended(int instance, int64_t id, int bytes);
extern void check_no_faults(void);
extern bool check_excuses(void);
extern bool check_losses(void);
extern void check_restored(int instance);
extern void check_expired(int instance, int64_t id);
extern void check_confirm(int instance, const char *path);
extern int64_t check_confirmed_at(const char *path);
extern void check_acted(int instance, const int *pids, int n, bool between,
						int64_t confirmed_at);
extern void check_sent_again(const char *path);
extern void check_unconfirmed(int actor, const char *confirm);
extern void check_expect_delays(int64_t nap_us, int64_t message_us,
								int64_t lag_us);
extern void check_disturb(int64_t us);
extern void check_slow(int64_t us);
extern void check_calm(int64_t bound_us);
extern void check_begin_rest(void);
extern void check_at_rest(void);
extern bool check_is_waiting(int client);
extern const char *check_describe(int client);

/* for claims.c */
extern int	check_level(int client);
extern int64_t check_mark_claim(int client, int name, int claim,
								int64_t *session);
extern void check_used(int client, int name, int claim);
extern void check_section_of_claim(int client, int name, int claim, int64_t at);
extern bool check_is_undisturbed(int64_t us);
extern int64_t check_grace_us(void);

/* claims.c */
extern void claims_begin(void);
extern int	claims_own(int client);
extern int	claims_choose(int instance);
extern bool claims_have_room(void);
extern bool claims_hold(int name);
extern int64_t claims_since(int claim);
extern int64_t claims_session(int claim);
extern bool claims_explain(int client, const char *sqlstate);
extern bool claims_may_fill(int instance);
extern int64_t claims_proved_at(int claim);
extern void claims_prove(int claim, int64_t at);
extern void claims_rolled_back_to(int client, int level);
extern void claims_released(int client, int level);
extern void claims_rolled_back(int client);
extern void claims_committed(int client);
extern void claims_gone(int client);
extern void claims_crashed(int instance);

#endif							/* SIM_CHECK_H */
