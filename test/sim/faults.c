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

typedef enum Fault
{
	STOP_SERVER,
	PARTITION_SERVER,
	NEW_LEADER,
	PARTITION_RACK,
	CUT_NETWORK,
	CUT_NETWORK_SILENTLY,
	CUT_ALL,
	ISOLATE_INSTANCE,
	SLOW_NETWORK,
	EXPIRE_SESSION,
	RESTORE_ENSEMBLE,
	LATE_CALLBACKS,
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
	HANG_SESSION,
	COLLECT_DIRECTORIES,
	NFAULTS
} Fault;

#define ALL_FAULTS		((1u << NFAULTS) - 1)

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

/* One that has not ended, or 0. */
static int64_t
some_session(void)
{
	int64_t		chosen = 0;
	int			n = 0;

	for (int i = 0; i < ensemble_sessions(); i++)
		if (ensemble_session(i) != 0 && sim_below(++n) == 0)
			chosen = ensemble_session(i);
	return chosen;
}

/* Short mostly, and now and then longer than sessions last. */
static int64_t
some_time(Fault fault)
{
	if (workload_is_losing())
		return sim_between(workload_timeout_ms() * 250,
						   workload_timeout_ms() * 2000);
	if (fault == PARTITION_RACK || fault == COLLECT_DIRECTORIES)
		return sim_between(1000000, 15000000);
	return sim_chance(700000) ? sim_between(1000, 800000) :
		sim_between(500000, 15000000);
}

/* An instance and its server are cut off from all else. */
static void
partition_rack(int instance, int64_t us)
{
	int			own = ensemble_server_of(instance);

	if (own < 0)
		return;
	ensemble_partition(own, us);
	for (int i = 0; i < ensemble_servers(); i++)
		if (i != own)
			network_cut(i, instance, us, true);
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
	Process    *process;
	int64_t		us = some_time(fault);

	if (us > until - sim_now())
		us = until - sim_now();
	if (us <= 0)
		return;
	totals.faults++;
	sim_trace("fault %d: %" PRId64 " us, server %d, instance %d", fault, us,
			  server, instance_number(instance));
	if (fault != CANCEL_BACKEND && fault != TERMINATE_BACKEND &&
		fault != STEP_CLOCK && fault != DRIFT_CLOCK &&
		fault != COLLECT_DIRECTORIES)
		check_disturb(fault == LAG_FOLLOWERS || fault == SLOW_RESOLVER ?
					  until - sim_now() : us);
	if (fault == COLLECT_DIRECTORIES)
		check_slow(us);
	switch (fault)
	{
		case STOP_SERVER:
			ensemble_stop(server, us);
			break;
		case PARTITION_SERVER:
			ensemble_partition(server, us);
			break;
		case PARTITION_RACK:
			partition_rack(instance_number(instance), us);
			break;
		case NEW_LEADER:
			ensemble_depose();
			break;
		case CUT_NETWORK:
		case CUT_NETWORK_SILENTLY:
			network_cut(server, instance_number(instance), us,
						fault == CUT_NETWORK_SILENTLY);
			break;
		case CUT_ALL:
			for (int i = 0; i < ensemble_servers(); i++)
				for (int j = 0; j < instances_count(); j++)
					network_cut(i, j, us, sim_chance(500000));
			break;
		case ISOLATE_INSTANCE:
			for (int i = 0; i < ensemble_servers(); i++)
				network_cut(i, instance_number(instance), us,
							sim_chance(500000));
			break;
		case SLOW_NETWORK:
			network_slow(us, sim_between(1000, 300000));
			break;
		case EXPIRE_SESSION:
			ensemble_expire(some_session());
			break;
		case RESTORE_ENSEMBLE:
			ensemble_restore(sim_between(1000, 10000000), sim_chance(300000));
			break;
		case LATE_CALLBACKS:
			library_delay(instance_number(instance), us);
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
			process = some_backend();
			if (process != NULL)
				process_freeze(process, us);
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
		case HANG_SESSION:
			library_hang(instance_number(instance), us);
			break;
		case COLLECT_DIRECTORIES:
			ensemble_collect(us);
			break;
		case NFAULTS:
			break;
	}
}

/* One of those that this schedule has. */
static Fault
some_fault(void)
{
	Fault		fault;

	do
		fault = sim_below(NFAULTS);
	while ((kinds >> fault & 1) == 0);
	return fault;
}

static void
next_fault(void *arg)
{
	(void) arg;
	if (sim_now() < until)
	{
		if (kinds != 0)
			inject(some_fault());
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
	check_no_faults();
	sim_trace("no faults any more");
}

void
faults_begin(int64_t from, int64_t to)
{
	until = to;
	pause_us = sim_chance(200000) ? 200000 :
		sim_chance(500000) ? 500000 : 4000000;
	kinds = sim_chance(250000) ? 0 : sim_chance(300000) ? ALL_FAULTS :
		(uint32_t) sim_random() & ALL_FAULTS;
	/* what leases are there for */
	if (sim_chance(100000))
		kinds = 1u << PARTITION_RACK | (sim_chance(500000) ? 0 :
										1u << LATE_CALLBACKS | 1u << FREEZE_WORKER);
	/* what locks are lost by */
	if (workload_is_losing())
	{
		kinds = 1u << CUT_ALL | 1u << ISOLATE_INSTANCE |
			(sim_chance(500000) ? 0 : 1u << FREEZE_WORKER | 1u << FREEZE_MACHINE);
		pause_us = 4000000;
	}
	/* what batches of requests fail by */
	if (workload_has_passing_names() && !workload_is_losing() &&
		sim_chance(500000))
		kinds = 1u << COLLECT_DIRECTORIES;
	/* what the watches of directories are lost by */
	if (workload_has_passing_names() && !workload_is_losing() &&
		sim_chance(200000))
	{
		kinds = 1u << COLLECT_DIRECTORIES | 1u << HANG_SESSION;
		pause_us = 200000;
	}
	/* what a worker leaves of its waits to the next one */
	if (workload_is_tangled() && !workload_is_losing() && sim_chance(200000))
	{
		kinds = 1u << TERMINATE_WORKER | 1u << CANCEL_BACKEND;
		pause_us = sim_chance(500000) ? 50000 : 500000;
	}
	/* they excuse much: not often, unless claims are to be lost */
	if (!sim_chance(workload_has_claims() ? 600000 : 200000))
		kinds &= ~(1u << EXPIRE_SESSION);
	if (!sim_chance(200000))
		kinds &= ~(1u << RESTORE_ENSEMBLE);
	check_expect_delays(schedule_longest_nap(), ensemble_delay(),
						ensemble_longest_lag());
	sim_at(from, next_fault, NULL);
}
