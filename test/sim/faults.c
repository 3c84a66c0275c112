/*-------------------------------------------------------------------------
 *
 * faults.c
 *		Faults: of servers, of the network, of machines and of processes, by
 *		lot.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/faults.c
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "workload.h"
#include "zookeeper.h"

extern Process *workload_process(int client);

typedef enum Fault
{
	STOP_SERVER,
	PARTITION_SERVER,
	NEW_LEADER,
	CUT_NETWORK,
	CUT_NETWORK_SILENTLY,
	SLOW_NETWORK,
	EXPIRE_SESSION,
	TERMINATE_WORKER,
	CRASH_INSTANCE,
	FREEZE_MACHINE,
	FREEZE_BACKEND,
	FREEZE_WORKER,
	TERMINATE_BACKEND,
	CANCEL_BACKEND,
	STEP_CLOCK,
	DRIFT_CLOCK,
	LAG_FOLLOWERS,
	SLOW_RESOLVER,
	NFAULTS
} Fault;

static int64_t until;
static int64_t pause_us;
static uint32_t kinds;			/* a bit for each that this schedule has */

static Instance *
some_instance(void)
{
	return instance_at(sim_below(instances_count()));
}

static Process *
some_backend(void)
{
	return workload_process(sim_below(workload_clients()));
}

/* Short mostly, and now and then longer than sessions last. */
static int64_t
some_time(void)
{
	return sim_chance(700000) ? sim_between(1000, 800000) :
		sim_between(500000, 15000000);
}

static void
signal_process(Process *process, int signo)
{
	if (process != NULL)
		process_signal(process, signo, 0);
}

static void
inject(Fault fault)
{
	int			server = sim_below(ensemble_servers());
	Instance   *instance = some_instance();
	int64_t		us = some_time();

	if (us > until - sim_now())
		us = until - sim_now();
	if (us <= 0)
		return;
	totals.faults++;
	sim_trace("fault %d: %" PRId64 " us, server %d, instance %d", fault, us,
			  server, instance_number(instance));
	if (fault != CANCEL_BACKEND && fault != TERMINATE_BACKEND &&
		fault != STEP_CLOCK && fault != DRIFT_CLOCK)
		check_disturb(us);
	switch (fault)
	{
		case STOP_SERVER:
			ensemble_stop(server, us);
			break;
		case PARTITION_SERVER:
			ensemble_partition(server, us);
			break;
		case NEW_LEADER:
			ensemble_depose();
			break;
		case CUT_NETWORK:
		case CUT_NETWORK_SILENTLY:
			network_cut(server, instance_number(instance), us,
						fault == CUT_NETWORK_SILENTLY);
			break;
		case SLOW_NETWORK:
			network_slow(us, sim_between(1000, 300000));
			break;
		case EXPIRE_SESSION:
			if (ensemble_sessions() > 0)
				ensemble_expire(ensemble_session(sim_below(ensemble_sessions())));
			break;
		case TERMINATE_WORKER:
			signal_process(instance_worker(instance), SIGTERM);
			break;
		case CRASH_INSTANCE:
			if (instance_is_up(instance))
				instance_crash(instance, us);
			break;
		case FREEZE_MACHINE:
			instance_freeze(instance, us);
			break;
		case FREEZE_BACKEND:
			if (some_backend() != NULL)
			{
				Process    *process = some_backend();

				if (process != NULL)
					process_freeze(process, us);
			}
			break;
		case FREEZE_WORKER:
			if (instance_worker(instance) != NULL)
				process_freeze(instance_worker(instance), us);
			break;
		case TERMINATE_BACKEND:
			signal_process(some_backend(), SIGTERM);
			break;
		case CANCEL_BACKEND:
			signal_process(some_backend(), SIGINT);
			break;
		case STEP_CLOCK:
			instance_step_wall(instance, sim_between(-60000000, 60000000));
			break;
		case DRIFT_CLOCK:
			instance_set_drift(instance, (double) sim_between(-40, 40) / 1000);
			break;
		case LAG_FOLLOWERS:
			ensemble_lag(sim_between(100, 2000000));
			break;
		case SLOW_RESOLVER:
			instance_set_resolver(instance, sim_between(0, 10000000));
			break;
		case NFAULTS:
			break;
	}
}

static void
next_fault(void *arg)
{
	(void) arg;
	if (sim_now() < until)
	{
		Fault		fault = sim_below(NFAULTS);

		if (kinds >> fault & 1)
			inject(fault);
		sim_at(sim_now() + sim_between(1000, pause_us), next_fault, NULL);
		return;
	}
	for (int i = 0; i < instances_count(); i++)
	{
		instance_set_resolver(instance_at(i), 0);
		instance_set_drift(instance_at(i), 0);
	}
	ensemble_lag(1000);
	schedule_calm();
	sim_trace("no faults any more");
}

void
faults_begin(int64_t from, int64_t to)
{
	until = to;
	pause_us = sim_chance(500000) ? 500000 : 4000000;
	kinds = sim_chance(250000) ? 0 : sim_chance(300000) ? ~0u :
		(uint32_t) sim_random();
	/* it excuses much: not often */
	if (!sim_chance(200000))
		kinds &= ~(1u << EXPIRE_SESSION);
	check_expect_naps(schedule_longest_nap());
	sim_at(from, next_fault, NULL);
}
