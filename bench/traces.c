/*-------------------------------------------------------------------------
 *
 * traces.c
 *		What zklock.retain_time = -1 would do with the takes of a trace.
 *
 * Each instance has a memory of its own, of core/lock/habit.c, as its worker
 * has.  What happens in between is simulated: who owns a lock, who comes, and
 * when the time is over for which it is retained.  For each trace it prints
 * what part of the takes found the lock retained, and so cost nothing in
 * ZooKeeper; how many revoked it in another instance, and so waited for one
 * more handover; and for what part of the time a lock was retained.  The same
 * is printed for a fixed time, zklock.retain_time = 1s.
 *
 *	traces				the built-in traces
 *	traces FILE...		those in the files, "-" for the standard input
 *
 * A line of a file is a take: the time in seconds, the instance, the lock and,
 * if known, for how long it is held, in seconds; separated by white space, in
 * the order of time.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		bench/traces.c
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/lock/habit.h"

#define MAX_INSTANCES	64
#define MAX_LOCKS		(1 << 20)

#define SECOND			INT64_C(1000000)
#define MINUTE			(60 * SECOND)

/* zklock.max_retain_time, and how often the worker looks for what is over */
#define MOST			SECOND
#define SWEEP			SECOND

/* How long a lock is held if the trace does not tell. */
#define HELD			INT64_C(500)

typedef struct Take
{
	int64_t		at;				/* us */
	int64_t		held;
	int			instance;
	int			lock;
} Take;

typedef struct Trace
{
	const char *name;
	Take	   *takes;
	int			n;
	int			room;
} Trace;

/* A lock, and by which contender it is owned. */
typedef struct Lock
{
	bool		owned;
	int			owner;
	int64_t		retain;			/* how long it is retained; 0: not */
	int64_t		free_at;		/* when its last holder gives it back */
	uint32_t	retaken;
	int32_t		number;			/* of the contender */
} Lock;

typedef struct Outcome
{
	int			takes;
	int			retaken;
	int			revoked;
	int64_t		idle;			/* us, of all locks */
	int64_t		lasted;			/* us, the trace */
} Outcome;

/* -1: by habit; else us */
static int64_t fixed;

static Habits *memories[MAX_INSTANCES];
static Lock *locks;
static Outcome outcome;

static uint64_t seed;

/* A random number from 0 to 1, exclusive. */
static double
chance(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return ((double) (seed >> 11) + 0.5) / (double) (UINT64_C(1) << 53);
}

/* A time between two independent events, with this mean. */
static int64_t
random_pause(int64_t mean)
{
	return (int64_t) (-log(chance()) * (double) mean);
}

static void
add(Trace *trace, int64_t at, int instance, int lock, int64_t held)
{
	if (trace->n == trace->room)
	{
		trace->room = trace->room ? 2 * trace->room : 1024;
		trace->takes = realloc(trace->takes, trace->room * sizeof(Take));
		if (trace->takes == NULL)
			exit(1);
	}
	trace->takes[trace->n++] = (Take) {at, held, instance, lock};
}

/*
 * The built-in traces
 */

static void
alone(Trace *trace)
{
	for (int64_t at = 0; at < MINUTE; at += 10000)
		add(trace, at, 0, 0, HELD);
}

static void
alone_at_random(Trace *trace)
{
	for (int64_t at = 0; at < MINUTE; at += random_pause(10000))
		add(trace, at, 0, 0, HELD);
}

static void
alone_and_slow(Trace *trace)
{
	for (int64_t at = 0; at < 10 * MINUTE; at += random_pause(300000))
		add(trace, at, 0, 0, HELD);
}

static void
in_turns(Trace *trace)
{
	int			n = 0;

	for (int64_t at = 0; at < MINUTE; at += 10000)
		add(trace, at, n++ % 2, 0, HELD);
}

static void
two_at_random(Trace *trace)
{
	for (int64_t at = 0; at < MINUTE; at += random_pause(10000))
		add(trace, at, chance() < 0.5, 0, HELD);
}

/* Names by Zipf's law, over four instances. */
#define NAMES	1000

static int
zipf(void)
{
	static double sums[NAMES];
	double		at;
	int			low = 0;
	int			high = NAMES - 1;

	if (sums[0] == 0)
		for (int i = 0; i < NAMES; i++)
			sums[i] = (i ? sums[i - 1] : 0) + 1.0 / (i + 1);
	at = chance() * sums[NAMES - 1];
	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (sums[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void
zipf_trace(Trace *trace, double home)
{
	for (int64_t at = 0; at < MINUTE; at += random_pause(1000))
	{
		int			name = zipf();

		add(trace, at,
			chance() < home ? name % 4 : (name + 1 + (int) (3 * chance())) % 4,
			name, HELD);
	}
}

static void
zipf_at_home(Trace *trace)
{
	zipf_trace(trace, 0.9);
}

static void
zipf_alike(Trace *trace)
{
	zipf_trace(trace, 0.25);
}

static void
bursts(Trace *trace)
{
	for (int64_t at = 0; at < 10 * MINUTE; at += 10 * SECOND)
		for (int i = 0; i < 20; i++)
			add(trace, at + i * 5000, 0, 0, HELD);
}

/* The second of two bursts is another instance's. */
static void
bursts_in_turns(Trace *trace)
{
	int			n = 0;

	for (int64_t at = 0; at < 10 * MINUTE; at += 2 * SECOND)
	{
		for (int i = 0; i < 20; i++)
			add(trace, at + i * 5000, n % 2, 0, HELD);
		n++;
	}
}

static void
failover(Trace *trace)
{
	for (int64_t at = 0; at < 3 * MINUTE; at += 10000)
		add(trace, at, at / MINUTE % 2, 0, HELD);
}

static void
cron(Trace *trace)
{
	for (int64_t at = 0; at < 60 * MINUTE; at += MINUTE)
		add(trace, at, 0, 0, SECOND);
}

static void
once(Trace *trace)
{
	int			n = 0;

	for (int64_t at = 0; at < MINUTE; at += 1000)
		add(trace, at, 0, n++, HELD);
}

/*
 * The simulation
 */

/* The habit of an instance with a lock; ids are spread as a hash is. */
static Habit *
habit_of(int instance, int lock, int64_t now)
{
	return habit_enter(memories[instance],
					   (uint64_t) (lock + 1) * UINT64_C(0x9E3779B97F4A7C15),
					   now);
}

/* Its owner gives the lock up. */
static void
give_up(int number, bool revoked)
{
	Lock	   *lock = &locks[number];

	habit_dropped(habit_of(lock->owner, number, lock->free_at), MOST,
				  lock->number, lock->retaken, revoked, lock->free_at);
	lock->owned = false;
	outcome.revoked += revoked;
}

/* When the worker finds that the lock's time is over. */
static int64_t
kept_until(const Lock *lock)
{
	int64_t		over = lock->free_at + lock->retain;
	int64_t		sweep = lock->free_at - lock->free_at % SWEEP + SWEEP;

	return lock->retain == 0 ? lock->free_at : over > sweep ? over : sweep;
}

/* Idle locks that are over by now are given up. */
static void
end_if_over(int number, int64_t now)
{
	Lock	   *lock = &locks[number];

	if (!lock->owned || now < kept_until(lock))
		return;
	outcome.idle += kept_until(lock) - lock->free_at;
	give_up(number, false);
}

static void
take(const Take *take)
{
	Lock	   *lock = &locks[take->lock];
	int64_t		now = take->at > lock->free_at ? take->at : lock->free_at;

	outcome.takes++;
	end_if_over(take->lock, now);
	if (lock->owned && lock->owner == take->instance)
	{
		lock->retaken++;
		outcome.retaken++;
		outcome.idle += now - lock->free_at;
		lock->free_at = now + take->held;
		return;
	}
	if (lock->owned)
	{
		outcome.idle += now - lock->free_at;
		/* who comes while it is held waits for its holder in any case */
		give_up(take->lock, take->at > lock->free_at);
	}
	lock->owned = true;
	lock->owner = take->instance;
	lock->retain = fixed >= 0 ? fixed :
		habit_wanted(habit_of(take->instance, take->lock, now), MOST, now);
	lock->free_at = now + take->held;
	lock->retaken = 0;
	lock->number++;
}

static void
play(const Trace *trace, int64_t time)
{
	fixed = time;
	memset(&outcome, 0, sizeof(outcome));
	memset(locks, 0, MAX_LOCKS * sizeof(Lock));
	for (int i = 0; i < MAX_INSTANCES; i++)
		memories[i] = habits_make(16384);
	for (int i = 0; i < trace->n; i++)
		take(&trace->takes[i]);
	outcome.lasted = trace->n == 0 ? 1 :
		trace->takes[trace->n - 1].at - trace->takes[0].at + 1;
	for (int i = 0; i < MAX_LOCKS; i++)
		end_if_over(i, INT64_MAX);
	for (int i = 0; i < MAX_INSTANCES; i++)
		habits_free(memories[i]);
}

static void
print(void)
{
	printf(" %8.1f %8.2f %8.2f", 100.0 * outcome.retaken / outcome.takes,
		   100.0 * outcome.revoked / outcome.takes,
		   (double) outcome.idle / (double) outcome.lasted);
}

static void
report(const Trace *trace)
{
	printf("%-40s %8d", trace->name, trace->n);
	if (trace->n > 0)
	{
		play(trace, -1);
		print();
		play(trace, SECOND);
		print();
	}
	printf("\n");
}

/* The number of a name, from 0 on, or the end of the program. */
static int
number_of(char *names[], int *n, int max, const char *name)
{
	for (int i = 0; i < *n; i++)
		if (strcmp(names[i], name) == 0)
			return i;
	if (*n == max)
	{
		fprintf(stderr, "traces: more than %d names\n", max);
		exit(1);
	}
	names[*n] = strdup(name);
	return (*n)++;
}

static void
read_trace(Trace *trace, FILE *file)
{
	static char *instances[MAX_INSTANCES];
	static char *names[MAX_LOCKS];
	int			ninstances = 0;
	int			nnames = 0;
	char		line[4096];

	while (fgets(line, sizeof(line), file) != NULL)
	{
		double		at;
		double		held = (double) HELD / SECOND;
		char		instance[1024];
		char		name[2048];

		if (sscanf(line, "%lf %1023s %2047s %lf", &at, instance, name,
				   &held) < 3)
			continue;
		add(trace, (int64_t) (at * SECOND),
			number_of(instances, &ninstances, MAX_INSTANCES, instance),
			number_of(names, &nnames, MAX_LOCKS, name),
			(int64_t) (held * SECOND));
	}
}

int
main(int argc, char **argv)
{
	static const struct
	{
		const char *name;
		void		(*make) (Trace *trace);
	}			traces[] =
	{
		{"one instance, every 10 ms", alone},
		{"one, at random, every 10 ms", alone_at_random},
		{"one, at random, every 300 ms", alone_and_slow},
		{"two in turns, every 10 ms", in_turns},
		{"two, at random, every 10 ms", two_at_random},
		{"four, Zipf, nine of ten by one", zipf_at_home},
		{"four, Zipf, all alike", zipf_alike},
		{"bursts of 20, every 10 s", bursts},
		{"bursts of 20, of two in turns", bursts_in_turns},
		{"failover after a minute, and back", failover},
		{"each minute", cron},
		{"names that are taken once", once}
	};

	locks = calloc(MAX_LOCKS, sizeof(Lock));
	if (locks == NULL)
		return 1;
	printf("%-40s %8s %26s %26s\n", "", "", "-------- by habit --------",
		   "------- 1 s, fixed -------");
	printf("%-40s %8s %8s %8s %8s %8s %8s %8s\n", "trace", "takes",
		   "retaken%", "revoked%", "idle", "retaken%", "revoked%", "idle");
	for (size_t i = 0; argc == 1 && i < sizeof(traces) / sizeof(traces[0]); i++)
	{
		Trace		trace = {.name = traces[i].name};

		seed = UINT64_C(88172645463325252);
		traces[i].make(&trace);
		report(&trace);
		free(trace.takes);
	}
	for (int i = 1; i < argc; i++)
	{
		FILE	   *file = strcmp(argv[i], "-") == 0 ? stdin : fopen(argv[i], "r");
		Trace		trace = {.name = argv[i]};

		if (file == NULL)
		{
			perror(argv[i]);
			return 1;
		}
		read_trace(&trace, file);
		report(&trace);
		free(trace.takes);
	}
	return 0;
}
