/*-------------------------------------------------------------------------
 *
 * test_detector_model.c
 *		Random schedules of up to five instances with detectors, and rings of
 *		up to eight.
 *
 * Backends take locks in any order, for themselves or behind one another, give
 * up, or end; servers lag, connections break, workers and sessions end,
 * between any two steps.  What is true of it all is in truth.c.  At the end
 * nobody gives up any more: then no deadlock may stay.
 *
 * In the calm schedules nothing fails: there a deadlock has to end in a
 * bounded time, before anybody looks again.
 *
 * Each mutation breaks a rule in its runs; without one, none is broken.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_detector_model.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/mutation.h"
#include "soak.h"
#include "world.h"

#define lengthof(array)	(sizeof(array) / sizeof((array)[0]))

#define RANDOM_RUNS		soak(150, 700)
#define CALM_RUNS		soak(100, 400)
#define MUTATION_RUNS	700

/* What may happen in a schedule. */
typedef struct Mix
{
	const char *title;
	int			instances;		/* 0: two to five */
	bool		shared;
	bool		semaphores;
	bool		several;		/* zk_lock_all, zk_lock_any */
	bool		blocks;			/* backends wait for others of their
								 * instance */
	bool		gives_up;		/* waits fail, and transactions end */
	bool		faults;			/* connections, workers and sessions */
	bool		sessions;		/* they work for one another, as by
								 * postgres_fdw */
	int			locks;			/* so many, if not 0 */
	int			roots;			/* below so many, if not 0 */
	unsigned	timeout;		/* how rarely waits fail, if not 0 */
} Mix;

static const Mix mixes[] = {
	{.title = "exclusive locks",.gives_up = true},
	{.title = "shared locks",.shared = true,.gives_up = true},
	{.title = "local waits",.shared = true,.blocks = true,.gives_up = true},
	{.title = "semaphores",.semaphores = true,.blocks = true,.gives_up = true},
	{.title = "several locks",.several = true,.gives_up = true},
	{.title = "two instances, faults",.instances = 2,.blocks = true,
	.gives_up = true,.faults = true},
	{.title = "handoffs",.instances = 2,.gives_up = true,.locks = 3,
	.timeout = 5},
	{.title = "handoffs, faults",.instances = 3,.shared = true,.gives_up = true,
	.faults = true,.locks = 3,.timeout = 5},
	{.title = "three roots, faults",.blocks = true,.gives_up = true,
	.faults = true,.roots = 3},
	{.title = "sessions of others",.blocks = true,.gives_up = true,
	.sessions = true},
	{.title = "two instances, sessions of others, faults",.instances = 2,
	.blocks = true,.gives_up = true,.faults = true,.sessions = true},
	{.title = "all",.shared = true,.semaphores = true,.several = true,
	.blocks = true,.gives_up = true,.faults = true,.sessions = true},
};

static int
random_lock(const Mix *mix)
{
	if (mix->semaphores && world_one_in(3))
		return WORLD_LOCKS - 1 - (int) world_dice(WORLD_SEMAPHORES);
	return (int) world_dice(mix->locks ? (unsigned) mix->locks : 5);
}

/* A backend takes locks, or waits for another one. */
static void
random_wait(const Mix *mix, int cluster, int number)
{
	int			locks[2];

	locks[0] = random_lock(mix);
	locks[1] = random_lock(mix);
	if (!world->instances[cluster].session.alive)
		return;
	if (mix->blocks && world_one_in(4))
		(void) world_block(cluster, number, (int) world_dice(WORLD_BACKENDS));
	else if (mix->several && world_one_in(3) && locks[0] != locks[1] &&
			 locks[0] < WORLD_LOCKS - WORLD_SEMAPHORES &&
			 locks[1] < WORLD_LOCKS - WORLD_SEMAPHORES)
		(void) world_lock_several(cluster, number, locks, 2, world_one_in(2));
	else
		(void) world_lock(cluster, number, locks[0], mix->shared &&
						  locks[0] < WORLD_LOCKS - WORLD_SEMAPHORES &&
						  world_one_in(2));
}

/* A backend has one of another instance do something. */
static void
random_call(const Mix *mix, int cluster, int number)
{
	int			other = (int) world_dice(world->ninstances);
	int			remote = world_call(cluster, number, other);

	if (remote < 0)
		return;
	if (world_one_in(5))
		random_call(mix, other, remote);
	else
		random_wait(mix, other, remote);
}

/* A backend does something. */
static void
random_backend(const Mix *mix, int cluster)
{
	int			number = (int) world_dice(WORLD_BACKENDS);
	WorldBackend *backend = &world->instances[cluster].backends[number];

	if (world->ncontenders > WORLD_CONTENDERS - 100)
		return;
	if (backend->state >= BACKEND_WAITING)
	{
		if (mix->gives_up && world_one_in(mix->timeout ? mix->timeout : 20))
		{
			if (backend->state == BACKEND_WAITING && world_one_in(3))
				world_leave(cluster, number);
			else
				world_finish(cluster, number);
		}
	}
	else if (backend->state == BACKEND_RUNNING && mix->gives_up &&
			 backend->employer < 0 && world_one_in(4))
		world_finish(cluster, number);
	else if (backend->employer >= 0)
		return;
	else if (mix->sessions && backend->state == BACKEND_RUNNING &&
			 world_one_in(3))
		random_call(mix, cluster, number);
	else
		random_wait(mix, cluster, number);
}

/* The worker does what is due at this time. */
static void
turn_worker(int cluster)
{
	WorldInstance *own = &world->instances[cluster];
	DetectorInput in = {.event = DETECTOR_TICK};

	if (own->wake_at <= world->now)
		world_step(cluster, &in);
}

static void
random_fault(int cluster)
{
	WorldInstance *own = &world->instances[cluster];
	TreeSession *session = &own->session;

	switch (world_dice(8))
	{
		case 0:
		case 1:
		case 2:
			if (session->connected)
				world_lose_connection(cluster);
			break;
		case 3:
			if (session->connected)
			{
				world_lose_connection(cluster);
				world_lose_worker(cluster);
			}
			break;
		case 4:
			if (!session->connected && session->alive && world_one_in(6))
				world_expire(cluster);
			break;
		default:
			break;
	}
}

static void
reconnect(int cluster)
{
	TreeSession *session = &world->instances[cluster].session;
	int64_t		lag = tree_zxid() - session->seen;

	if (lag >= TREE_HISTORY / 2)
		lag = TREE_HISTORY / 2;
	if (!session->connected)
		world_reconnect(cluster, tree_zxid() -
						(int64_t) world_dice((unsigned) lag + 1));
}

/* No server lags by more than is remembered. */
static void
bound_lag(void)
{
	for (int i = 0; i < world->ninstances; i++)
		if (world->instances[i].session.view < tree_zxid() - TREE_HISTORY / 2)
			tree_advance(&world->instances[i].session,
						 tree_zxid() - TREE_HISTORY / 4);
}

static void
random_step(const Mix *mix)
{
	int			cluster = (int) world_dice(world->ninstances);
	WorldInstance *own = &world->instances[cluster];
	TreeSession *session = &own->session;

	world->step++;
	switch (world_dice(16))
	{
		case 0:
		case 1:
			random_backend(mix, cluster);
			break;
		case 2:
			(void) world_learn(cluster);
			break;
		case 3:
			(void) world_release_idle(cluster);
			break;
		case 4:
			if (own->scan != 0 || world_one_in(3))
				world_scan(cluster, own->scan);
			break;
		case 5:
			world->now += WORLD_TIMEOUT / (1 + world_dice(40));
			turn_worker(cluster);
			break;
		case 6:
			(void) world_kill_victim(cluster);
			(void) world_return(cluster);
			break;
		case 7:
			if (mix->faults && world_one_in(4))
				random_fault(cluster);
			else if (mix->faults)
				reconnect(cluster);
			break;
		case 8:
			tree_advance(session, session->view + 1 + world_dice(4) <
						 tree_zxid() ? session->view + 1 : tree_zxid());
			break;
		case 9:
		case 10:
		case 11:
			if (session->alive && session->connected)
				(void) tree_execute(session);
			break;
		default:
			(void) world_deliver(cluster);
			break;
	}
	bound_lag();
	truth_update();
}

/* One instance does all that it can, but ends no wait by itself. */
static bool
settle_instance(int cluster)
{
	WorldInstance *own = &world->instances[cluster];
	bool		busy = false;

	reconnect(cluster);
	tree_advance(&own->session, tree_zxid());
	while (tree_execute(&own->session))
		;
	while (world_deliver(cluster))
		busy = true;
	while (world_learn(cluster))
		busy = true;
	if (own->scan != 0 || own->scan_at <= world->now)
		world_scan(cluster, own->scan);
	turn_worker(cluster);
	busy |= world_kill_victim(cluster);
	busy |= world_return(cluster);
	for (int i = 0; i < WORLD_BACKENDS; i++)
		if (own->backends[i].state == BACKEND_RUNNING &&
			own->backends[i].employer < 0)
		{
			world_finish(cluster, i);
			busy = true;
		}
	while (world_release_idle(cluster))
		busy = true;
	return busy;
}

static bool
are_backends_idle(void)
{
	for (int i = 0; i < world->ninstances; i++)
		for (int j = 0; j < WORLD_BACKENDS; j++)
			if (world->instances[i].backends[j].state != BACKEND_IDLE)
				return false;
	return true;
}

static bool
are_detectors_idle(void)
{
	for (int i = 0; i < world->ninstances; i++)
		if (!detector_is_idle(&world->instances[i].detector))
			return false;
	return true;
}

/* All come to rest, in a time that is bounded. */
static void
settle(void)
{
	truth_update();
	world->found += truth_deadlocked() > 0;
	for (int i = 0; i < 1500; i++)
	{
		for (int j = 0; j < world->ninstances; j++)
		{
			world->step++;
			(void) settle_instance(j);
			bound_lag();
			truth_update();
		}
		world->now += WORLD_TIMEOUT / 50;
		if (are_backends_idle() && are_detectors_idle())
			break;
	}
	world_check(are_backends_idle(), "T5: no deadlock stays");
	world_check(are_detectors_idle(), "T6: no edge stays published");
	for (int i = 0; i < world->roots; i++)
	{
		char		dir[WORLD_ROOT_SIZE + sizeof("/%waits")];

		world_write_root(i, dir);
		strcat(dir, "/%waits");
		world_check(world->lost_workers || tree_count_below(dir) == 0,
					"nothing is left below %waits");
	}
}

static void
play_random(const Mix *mix, unsigned long run)
{
	world->roots = mix->roots ? mix->roots : 1;
	world_reset(mix->title, run,
				mix->instances ? mix->instances : 2 + (int) (run % 4));
	world->sessions = mix->sessions;
	for (int steps = 300 + (int) world_dice(1500); steps > 0; steps--)
		random_step(mix);
	settle();
}

static void
test_random(void **state)
{
	const Mix  *mix = *state;

	world->acts = world->victims = world->requeues = world->found = 0;
	for (unsigned long run = 0; run < RANDOM_RUNS; run++)
		play_random(mix, run);
	world_end();
	tree_reset();
	printf("%s: %lu acts, %lu victims, %lu requeues in tier 1, %lu with deadlocks at the end\n",
		   mix->title, world->acts, world->victims, world->requeues,
		   world->found);
	assert_true(world->victims > RANDOM_RUNS / 10);
	assert_true(world->acts > world->found + RANDOM_RUNS / 100);
}

/*
 * Calm schedules: a ring of instances, in which each has one lock and wants
 * the next.  Nothing fails, an operation takes at most a hundredth of
 * deadlock_timeout, and all that is due is done at once.
 */

#define LATENCY		(WORLD_TIMEOUT / 100)

/* Each instance comes on by at most one operation. */
static void
calm_round(void)
{
	for (int i = 0; i < world->ninstances; i++)
	{
		WorldInstance *own = &world->instances[i];

		world->step++;
		if (own->scan != 0 || own->scan_at <= world->now)
			world_scan(i, own->scan);
		turn_worker(i);
		if (world_one_in(4))
			continue;
		tree_advance(&own->session, tree_zxid() - world_dice(2));
		for (int j = (int) world_dice(4); j >= 0; j--)
			if (world_one_in(2))
				(void) tree_execute(&own->session);
			else
				(void) world_deliver(i);
		bound_lag();
		truth_update();
	}
	world->now += LATENCY / 4;
}

/* How long after the last wait has lasted deadlock_timeout is it ended? */
static int64_t
play_ring(int ninstances, unsigned long run)
{
	int64_t		due;

	world_reset("a ring", run, ninstances);
	for (int i = 0; i < ninstances; i++)
	{
		assert_true(world_lock(i, 0, i, false));
		(void) world_learn(i);
	}
	for (int i = 0; i < ninstances; i++)
	{
		assert_true(world_lock(i, 0, (i + 1) % ninstances, false));
		for (int j = (int) world_dice(3); j > 0; j--)
			calm_round();
	}
	due = world->now + WORLD_TIMEOUT;
	while (world->now < due + 5 * WORLD_TIMEOUT)
	{
		calm_round();
		for (int i = 0; i < ninstances; i++)
			if (world_kill_victim(i))
				return world->now - due;
	}
	world_check(false, "T5: no deadlock stays");
	return 0;
}

/*
 * Instance 0 has published an edge that is not there any more: its backend 0
 * held lock 0 and waited for lock 1; now backend 1 holds the one, and backend
 * 2 waits for the other.  Before the worker looks again, instance 1, which
 * owns lock 1, waits for lock 0.
 */
static void
play_stale(unsigned long run)
{
	bool		shared = run % 2 != 0;

	world_reset("a stale edge", run, 2);
	assert_true(world_lock(0, 0, 0, shared));
	(void) world_learn(0);
	assert_true(world_lock(1, 0, 1, false));
	(void) world_learn(1);
	assert_true(world_lock(0, 1, 0, shared));
	assert_true(world_lock(0, 0, 1, shared));
	assert_true(world_lock(0, 2, 1, shared));
	while (world->now < 3 * WORLD_TIMEOUT)
		calm_round();
	world_finish(0, 0);
	world->instances[0].scan_at = FOREVER;
	assert_true(world_lock(1, 0, 0, false));
	for (int i = (int) world_dice(1600); i > 0; i--)
	{
		calm_round();
		if (world->instances[0].scan_at < FOREVER && world_one_in(2))
			world->instances[0].scan_at = FOREVER;
	}
	for (int i = 0; i < world->ninstances; i++)
		world->instances[i].scan_at = 0;
	settle();
}

/*
 * a owns lock 0; c queues for it; b, who holds lock 1, queues behind c; a
 * waits for lock 1.  For c, who began last, somebody waits as well.
 */
static void
play_bystander(unsigned long run)
{
	const WorldBackend *c;

	world_reset("a bystander", run, 4);
	assert_true(world_lock(0, 0, 0, false));
	assert_true(world_lock(1, 0, 1, false));
	assert_true(world_lock(2, 0, 2, false));
	for (int i = 0; i < 3; i++)
		(void) world_learn(i);
	assert_true(world_lock(2, 0, 0, false));
	assert_true(world_lock(3, 0, 2, false));
	for (int i = 0; i < 2; i++)
	{
		int			who = (int) (run + i) % 2;

		for (int j = (int) world_dice(500); j > 0; j--)
			calm_round();
		assert_true(world_lock(who, 0, 1 - who, false));
	}
	c = &world->instances[2].backends[0];
	for (int i = 0; i < 1000; i++)
	{
		calm_round();
		world_check(!c->victim, "nobody dies in vain");
	}
	world_check(world->instances[0].backends[0].victim !=
				world->instances[1].backends[0].victim, "one of two dies");
	settle();
}

static void
test_bystander(void **state)
{
	(void) state;
	for (unsigned long run = 0; run < CALM_RUNS / 4; run++)
		play_bystander(run);
	world_end();
	tree_reset();
}

/* A backend has one of another instance take a lock; returns which. */
static int
call_to_lock(int cluster, int backend, int other, int lock)
{
	int			remote = world_call(cluster, backend, other);

	assert_true(remote >= 0);
	assert_true(world_lock(other, remote, lock, false));
	(void) world_learn(other);
	return remote;
}

/*
 * a has one of b have one of c take lock 0, and waits for lock 1 then, that d
 * holds, who waits for lock 0.  Or c's part is a wait for lock 1.
 */
static void
play_way(unsigned long run)
{
	bool		idle = run % 2 != 0;
	int			middle;

	world_reset("a way over three instances", run, 4);
	world->sessions = true;
	assert_true(world_lock(3, 0, 1, false));
	(void) world_learn(3);
	assert_true(world_lock(0, 0, idle ? 2 : 0, false));
	(void) world_learn(0);
	middle = world_call(0, 0, 1);
	assert_true(middle >= 0);
	(void) call_to_lock(1, middle, 2, idle ? 0 : 1);
	(void) world_return(1);
	(void) world_return(0);
	if (idle)
		assert_true(world_lock(0, 0, 1, false));
	for (int i = (int) world_dice(500); i > 0; i--)
		calm_round();
	assert_true(world_lock(3, 0, 0, false));
	for (int i = 0; i < 1500; i++)
		calm_round();
	world_check(world->instances[3].backends[0].victim !=
				world->instances[idle ? 0 : 2].backends[0].victim,
				"T5: one of two dies");
	settle();
}

static void
test_ways(void **state)
{
	(void) state;
	for (unsigned long run = 0; run < CALM_RUNS / 4; run++)
		play_way(run);
	world_end();
	tree_reset();
}

static void
test_stale(void **state)
{
	(void) state;
	for (unsigned long run = 0; run < CALM_RUNS; run++)
		play_stale(run);
	world_end();
	tree_reset();
}

static void
test_rings(void **state)
{
	int64_t		longest = 0;

	(void) state;
	for (int ninstances = 2; ninstances <= WORLD_INSTANCES; ninstances++)
		for (unsigned long run = 0; run < CALM_RUNS; run++)
		{
			int64_t		time = play_ring(ninstances, run);

			longest = time > longest ? time : longest;
			world_check(time < 3 * WORLD_TIMEOUT / 4,
						"T5: the first search finds it");
		}
	printf("rings: at most %ld us\n", (long) longest);
	world_end();
	tree_reset();
}

/*
 * The same with locks below several roots: not each watches the first one's.
 */
static void
test_roots(void **state)
{
	int64_t		longest = 0;

	(void) state;
	for (int ninstances = 3; ninstances <= WORLD_INSTANCES; ninstances++)
		for (unsigned long run = 0; run < CALM_RUNS / 4; run++)
		{
			int64_t		time;

			world->roots = ninstances;
			time = play_ring(ninstances, run);
			world_check(time < 3 * WORLD_TIMEOUT / 2,
						"T5: the second search finds it");
			longest = time > longest ? time : longest;
		}
	world->roots = 1;
	printf("rings below several roots: at most %ld us\n", (long) longest);
	world_end();
	tree_reset();
}

/*
 * Mutations
 */

static void
test_mutation(void **state)
{
	volatile unsigned long violated = 0;
	volatile unsigned long first = 0;
	const char *volatile rule = "";

	zklock_mutation = *(const int *) *state;
	world->mutated = true;
	for (volatile unsigned long run = 0; run < MUTATION_RUNS; run++)
		for (volatile size_t i = 0; i <= lengthof(mixes) + 1; i++)
			if (setjmp(world->violated) != 0)
			{
				if (violated++ == 0)
				{
					first = run;
					rule = world->violation;
				}
				if (violated == soak(3, 20))
					run = MUTATION_RUNS;
			}
			else if (i < lengthof(mixes))
				play_random(&mixes[i], run);
			else if (i == lengthof(mixes))
				play_stale(run);
			else
				world_check(play_ring(2, run) < 3 * WORLD_TIMEOUT / 4,
							"T5: the first search finds it");
	zklock_mutation = ZK_MUTATION_NONE;
	world->mutated = false;
	printf("%lu runs break rules, first %lu: %s\n", violated, first, rule);
	assert_true(violated >= 3);
}

static const struct
{
	const char *title;
	int			mutation;
}			mutations[] = {
	{"no confirming round", ZK_DEADLOCK_UNCONFIRMED},
	{"own members not looked at ahead of the act", ZK_DEADLOCK_CHECKED_EARLY},
	{"answers without a look at one's own locks", ZK_DEADLOCK_ANSWERED_BLINDLY},
	{"changes not noticed by the act", ZK_DEADLOCK_ACT_UNCHECKED},
	{"generation not compared", ZK_DEADLOCK_ANY_GENERATION},
	{"edges not taken back", ZK_DEADLOCK_EDGES_STAY},
	{"not minimal", ZK_DEADLOCK_NOT_MINIMAL},
	{"looking ahead of one's own write", ZK_DEADLOCK_LOOK_AHEAD},
	{"who is only ahead fails", ZK_DEADLOCK_AHEAD_FAILS},
	{"who is ahead by one lock fails", ZK_DEADLOCK_AHEAD_BY_ONE},
	{"names used again", ZK_DEADLOCK_NAMES_AGAIN},
};

int
main(void)
{
	const struct CMUnitTest calm[] = {
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_roots),
		cmocka_unit_test(test_stale),
		cmocka_unit_test(test_bystander),
		cmocka_unit_test(test_ways),
	};
	struct CMUnitTest random[lengthof(mixes)];
	struct CMUnitTest mutated[lengthof(mutations)];
	int			failed = 0;

	memset(random, 0, sizeof(random));
	for (size_t i = 0; i < lengthof(mixes); i++)
	{
		random[i].name = mixes[i].title;
		random[i].test_func = test_random;
		random[i].initial_state = (void *) &mixes[i];
	}
	memset(mutated, 0, sizeof(mutated));
	for (size_t i = 0; i < lengthof(mutations); i++)
	{
		mutated[i].name = mutations[i].title;
		mutated[i].test_func = test_mutation;
		mutated[i].initial_state = (void *) &mutations[i].mutation;
	}
	failed += cmocka_run_group_tests_name("calm", calm, NULL, NULL);
	failed += cmocka_run_group_tests_name("random", random, NULL, NULL);
	failed += cmocka_run_group_tests_name("mutated", mutated, NULL, NULL);
	return failed;
}
