/*-------------------------------------------------------------------------
 *
 * main.c
 *		The simulator: runs schedules, and tells what it has found.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/main.c
 *
 *-------------------------------------------------------------------------
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "workload.h"
#include "zookeeper.h"

/* How long a free lock may have a waiter when nothing disturbs. */
#define FREE_BOUND_US	15000000

/* From the last fault until everybody must have come to his end. */
#define END_BOUND_US	INT64_C(600000000)

/* From the last client's end until nothing is left. */
#define REST_US			INT64_C(70000000)

/* The last part of that, in which nothing is asked of ZooKeeper any more. */
#define IDLE_US			INT64_C(15000000)

extern void library_begin(void);

static const char *mutation;
static const char *program;
static uint64_t running_seed;	/* of the schedule that runs */
static uint64_t all_hashes;		/* of the schedules that have been run */

/* The clients must come to their end, and nothing must be left. */
static bool
run_to_the_end(void)
{
	int64_t		calm_at = workload_end_time();
	bool		over = false;

	if (!schedule_run(calm_at))
		return false;
	check_calm(FREE_BOUND_US);
	for (int64_t at = calm_at; at < calm_at + END_BOUND_US && !over;
		 at += 1000000)
	{
		if (!schedule_run(at))
			return false;
		over = workload_is_over();
	}
	return true;
}

static void
fail_liveness(void *arg)
{
	char		text[700] = "";

	(void) arg;
	for (int i = 0; i < workload_clients(); i++)
		if (check_is_waiting(i))
			snprintf(text +strlen(text), sizeof(text) - strlen(text),
					 " %d %s;", i, check_describe(i));
	sim_violation("liveness", "clients have not come to their end:%s", text);
}

static void
look_at_rest(void *arg)
{
	(void) arg;
	check_at_rest();
}

/* Add the schedule that has ended to the totals. */
static void
count_schedule(void)
{
	totals.schedules++;
	totals.steps += schedule_steps();
	totals.virtual_us += sim_now();
	totals.requests += ensemble_requests();
	totals.writes += ensemble_writes();
	totals.contenders += ensemble_counts().contenders;
}

static bool
run_schedule(uint64_t seed)
{
	Wildness	wildness;
	bool		ok;

	running_seed = seed;
	memset(&wildness, 0, sizeof(wildness));
	wildness.yields = 8;
	schedule_begin(seed, &wildness);
	processes_begin();
	library_begin();
	check_schedule_begin();
	wildness.yields = 1 << sim_below(6);
	wildness.naps = 20 << sim_below(7);
	wildness.sleeps = 20 << sim_below(5);
	wildness.longest_us = 1000 << sim_below(9);
	wildness.late_clocks = sim_chance(200000) ? 20000 : 0;
	schedule_set_wildness(&wildness);
	workload_begin(mutation);
	check_chosen();
	faults_begin(sim_now() + 2000000, workload_end_time() - 4000000);
	ok = run_to_the_end();
	if (ok && !workload_is_over())
	{
		sim_at(sim_now(), fail_liveness, NULL);
		ok = schedule_run(sim_now() + 1);
	}
	if (ok)
		ok = schedule_run(sim_now() + REST_US - IDLE_US);
	check_begin_rest();
	if (ok)
		ok = schedule_run(sim_now() + IDLE_US);
	if (ok)
	{
		sim_at(sim_now(), look_at_rest, NULL);
		ok = schedule_run(sim_now() + 1);
	}
	count_schedule();
	return ok;
}

/*
 * Memory: what the workers have at rest stays what it was on the first day.
 */
#define DAY_US			INT64_C(86400000000)
#define SAMPLES			240
#define SAMPLE_US		250000
#define GROWTH_PERCENT	10

/* So long a message between simulated machines is kept, and more than that. */
#define LIFETIME_US		INT64_C(600000000)

static size_t first_day[MAX_INSTANCES];
static size_t least[MAX_INSTANCES];

static void
sample_memory(void)
{
	for (int i = 0; i < instances_count(); i++)
	{
		size_t		bytes = process_bytes(instance_worker(instance_at(i)));

		if (bytes < least[i])
			least[i] = bytes;
	}
}

static void
compare_memory(void *arg)
{
	int			day = (int) (uintptr_t) arg;

	for (int i = 0; i < instances_count(); i++)
	{
		printf("sim: day %d, instance %d: the worker has %zu bytes, after %" PRIu64
			   " locks\n", day, i, least[i], totals.acquired);
		if (day == 1)
			first_day[i] = least[i];
		if (least[i] > first_day[i] + first_day[i] * GROWTH_PERCENT / 100)
			sim_violation("memory", "instance %d had %zu bytes on the first day, "
						  "and has %zu on day %d", i, first_day[i], least[i],
						  day);
	}
}

static bool
run_days(uint64_t seed, int days)
{
	Wildness	wildness = {.yields = 64};
	int64_t		begin;
	bool		ok;

	running_seed = seed;
	schedule_begin(seed, &wildness);
	processes_begin();
	library_begin();
	check_schedule_begin();
	workload_begin_long(mutation, (days + 1) * DAY_US);
	begin = sim_now();
	ok = schedule_run(begin + 10000000);
	schedule_set_lifetime(LIFETIME_US);
	for (int day = 1; day <= days && ok; day++)
	{
		int64_t		end = begin + day * DAY_US;

		memset(least, 0xFF, sizeof(least));
		ok = schedule_run(end - SAMPLES * SAMPLE_US);
		for (int i = SAMPLES; i > 0 && ok; i--)
		{
			sample_memory();
			ok = schedule_run(end - i * SAMPLE_US);
		}
		if (!ok)
			break;
		sim_at(sim_now(), compare_memory, (void *) (uintptr_t) day);
		ok = schedule_run(sim_now() + 1);
	}
	count_schedule();
	return ok;
}

static void
end_schedule(void)
{
	processes_end();
	schedule_end();
}

static double
read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void
report(double seconds)
{
	double		cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	double		s = cpu > 0 ? cpu : 1;

	printf("sim: %" PRIu64 " schedules in %.1f s, %.1f s of CPU (%.1f a second), %"
		   PRIu64 " steps, %" PRId64 " s of virtual time\n",
		   totals.schedules, seconds, cpu, totals.schedules / s, totals.steps,
		   totals.virtual_us / 1000000);
	printf("sim: %" PRIu64 " locks (%" PRIu64
		   " of an instance alone), %" PRIu64 " commits, %" PRIu64
		   " rollbacks, %" PRIu64 " errors (%" PRIu64 " lost, %" PRIu64
		   " timeouts, %" PRIu64 "+%" PRIu64 " deadlocks, %" PRIu64
		   " late, %" PRIu64 " unclear), %" PRIu64 " faults, %" PRIu64
		   " older copies noticed\n",
		   totals.acquired, totals.alone, totals.committed, totals.rolled_back,
		   totals.failed, totals.lost, totals.timeouts, totals.deadlocks_here,
		   totals.deadlocks_between, totals.late, totals.unclear, totals.faults,
		   totals.noticed);
	printf("sim: %" PRIu64 " overlaps excused: %" PRIu64
		   " by a pause at the commit, %" PRIu64 " since a session was closed from outside, %"
		   PRIu64 " since the check is off, %" PRIu64 " by an older copy\n",
		   totals.holes + totals.outside + totals.unchecked + totals.restored,
		   totals.holes, totals.outside, totals.unchecked, totals.restored);
	printf("sim: %" PRIu64 " schedules with long holds: %" PRIu64
		   " sections, %" PRIu64 " lost, %" PRIu64 " that waited for a proof\n",
		   totals.losing, totals.losing_sections, totals.losing_lost,
		   totals.losing_waits);
	printf("sim: %" PRIu64 " claims, %" PRIu64 " times renewed, used or ended\n",
		   totals.claims, totals.claim_calls);
	printf("sim: %" PRIu64 " requests of ZooKeeper, %" PRIu64 " writes, %" PRIu64
		   " contenders; hash %016" PRIx64 "\n",
		   totals.requests, totals.writes, totals.contenders, all_hashes);
}

/* What is promised that a checker examines: doc/guarantees.md and others. */
static const struct
{
	const char *checker;
	const char *promise;
}			promises[] =
{
	{"mutual exclusion", "guarantee 1, mutual exclusion"},
	{"permits", "guarantee 1, mutual exclusion, of permits"},
	{"succession", "guarantee 1: owned with nothing read"},
	{"sync", "guarantee 1: a resumed session reads behind a sync"},
	{"restored", "guarantee 1: an ensemble restored from a copy is noticed"},
	{"exclusion", "settings.md: zklock.exclusion"},
	{"termination", "settings.md: zklock.terminate_on_loss"},
	{"proofs", "guarantee 3, no commit under a lost lock"},
	{"lease", "guarantee 3: the lease ends ahead of the session"},
	{"order", "guarantee 7, order"},
	{"fairness", "guarantee 7: handoffs end with the quantum"},
	{"acts", "guarantee 8: who fails with 40P01 is in a deadlock"},
	{"victims", "guarantee 8: one session of a deadlock fails"},
	{"errors", "guarantees 8 and 9: an error has its cause"},
	{"lost wake-up", "guarantee 9, nothing hangs"},
	{"liveness", "guarantee 9, nothing hangs"},
	{"sleep", "guarantee 9: the worker's sleeps end"},
	{"time", "guarantee 9: a free lock is granted at once"},
	{"leaks", "guarantee 10, nothing leaks"},
	{"room", "guarantee 10: the end of a session can be read back"},
	{"memory", "guarantee 10: memory"},
	{"watches", "guarantee 10: watches"},
	{"worker", "guarantee 11, the worker may die"},
	{"tokens", "guarantee 12, fencing"},
	{"claims", "guarantee 15, claims"},
	{"requests", "performance.md: requests for each lock"},
	{"library", "none: how zklock calls the client library"},
	{"simulator", "none: it is the simulator itself"}
};

static const char *
promise_of(const char *checker)
{
	for (size_t i = 0; i < sizeof(promises) / sizeof(promises[0]); i++)
		if (strcmp(promises[i].checker, checker) == 0)
			return promises[i].promise;
	sim_lacks("a checker without a promise");
	return NULL;
}

static void
tell_failure(uint64_t seed)
{
	char		text[300];

	if (sim_tracing())
		ensemble_print();
	workload_describe(text, sizeof(text));
	printf("sim: seed %" PRIu64 ", step %" PRIu64 ": %s: %s\n"
		   "sim: what is broken: %s\n"
		   "sim: the schedule: %s\n"
		   "sim: again with: make simulate SEED=%" PRIu64 " SCHEDULES=1 TRACE=1%s%s\n",
		   seed, schedule_steps(), schedule_checker(), schedule_failure(),
		   promise_of(schedule_checker()), text,
		   seed, mutation ? " MUTATION=" : "", mutation ? mutation : "");
}

/*
 * A simulated process has crashed, or the simulator: say where, and crash.
 * All is in one process, so printing here is as good as anywhere.
 */
static void
on_crash(int signo, siginfo_t *info, void *context)
{
	(void) context;
	printf("sim: seed %" PRIu64 ", step %" PRIu64 ": signal %d in %s, at %p%s\n",
		   running_seed, schedule_steps(), signo, process_label(sim_process()),
		   info->si_addr,
		   schedule_is_guard(info->si_addr) ? ": its stack is full" : "");
	fflush(stdout);
	signal(signo, SIG_DFL);
	raise(signo);
}

static void
catch_crashes(void)
{
	static char stack[65536];
	stack_t		alternate = {.ss_sp = stack,.ss_size = sizeof(stack)};
	struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};

	action.sa_sigaction = on_crash;
	sigaltstack(&alternate, NULL);
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGFPE, &action, NULL);
	sigaction(SIGABRT, &action, NULL);
}

static void
usage(void)
{
	fprintf(stderr,
			"usage: sim [--seed N] [--schedules N] [--seconds N] [--cpu SECONDS]\n"
			"           [--mutation NAME] [--keep-going]\n"
			"           [--trace] [--stop-at STEP] [--twice] [--days N] PROGRAM\n");
	exit(2);
}

static const struct option long_options[] = {
	{"seed", required_argument, NULL, 's'},
	{"schedules", required_argument, NULL, 'n'},
	{"seconds", required_argument, NULL, 't'},
	{"cpu", required_argument, NULL, 'c'},
	{"mutation", required_argument, NULL, 'm'},
	{"trace", no_argument, NULL, 'v'},
	{"stop-at", required_argument, NULL, 'b'},
	{"twice", no_argument, NULL, '2'},
	{"keep-going", no_argument, NULL, 'k'},
	{"days", required_argument, NULL, 'd'},
	{NULL, 0, NULL, 0}
};

int
main(int argc, char **argv)
{
	uint64_t	seed = (uint64_t) time(NULL) * 1000;
	uint64_t	schedules = UINT64_MAX;
	double		seconds = 1e18;
	clockid_t	clock = CLOCK_MONOTONIC;
	uint64_t	stop_at = 0;
	bool		trace = false;
	bool		trace_steps = false;
	bool		twice = false;
	bool		keep_going = false;
	int			days = 0;		/* 0: schedules as usual */
	int			failures = 0;
	double		start;
	double		from;
	int			c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		switch (c)
		{
			case 's':
				seed = strtoull(optarg, NULL, 0);
				break;
			case 'n':
				schedules = strtoull(optarg, NULL, 0);
				break;
			case 't':
				seconds = strtod(optarg, NULL);
				break;
			case 'c':
				seconds = strtod(optarg, NULL);
				clock = CLOCK_PROCESS_CPUTIME_ID;
				break;
			case 'm':
				mutation = *optarg ? optarg : NULL;
				break;
			case 'v':
				trace_steps = trace;
				trace = true;
				break;
			case 'b':
				stop_at = strtoull(optarg, NULL, 0);
				break;
			case '2':
				twice = true;
				break;
			case 'd':
				days = atoi(optarg);
				schedules = 1;
				break;
			case 'k':
				keep_going = true;
				break;
			default:
				usage();
		}
	if (optind != argc - 1)
		usage();
	if (schedules == UINT64_MAX && seconds > 1e17)
		schedules = 100;
	program = argv[optind];
	setvbuf(stdout, NULL, trace ? _IOFBF : _IOLBF, 0);
	schedule_set_trace(trace, trace_steps, stop_at);
	catch_crashes();
	copies_open(program, 200, stop_at > 0);
	printf("sim: from seed %" PRIu64 "\n", seed);
	start = read_clock(CLOCK_MONOTONIC);
	from = read_clock(clock);
	for (uint64_t i = 0; i < schedules && read_clock(clock) - from < seconds;
		 i++, seed++)
	{
		bool		ok = days > 0 ? run_days(seed, days) : run_schedule(seed);
		uint64_t	hash = schedule_hash();

		all_hashes = all_hashes * 31 + hash;
		if (!ok)
			tell_failure(seed);
		end_schedule();
		if (twice)
		{
			(void) run_schedule(seed);
			if (schedule_hash() != hash)
			{
				printf("sim: seed %" PRIu64 " is not the same schedule twice\n",
					   seed);
				failures++;
			}
			end_schedule();
		}
		if (!ok)
			failures++;
		if (failures > 0 && !keep_going)
			break;
	}
	report(read_clock(CLOCK_MONOTONIC) - start);
	if (totals.schedules > 10 && (totals.committed == 0 || totals.acquired == 0))
	{
		printf("sim: nobody has got a lock\n");
		failures++;
	}
	if (!check_losses())
	{
		printf("sim: too few locks are lost\n");
		failures++;
	}
	if (!check_excuses())
	{
		printf("sim: too many excuses\n");
		failures++;
	}
	if (failures > 0)
		printf("sim: %d failures\n", failures);
	return failures > 0;
}
