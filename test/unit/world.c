/*-------------------------------------------------------------------------
 *
 * world.c
 *		Instances whose backends take locks.
 *
 * Contenders come and go at once; what takes time is what an instance knows of
 * them: a grant is learnt later, and a contender that nobody uses any more is
 * deleted later.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/world.c
 *
 *-------------------------------------------------------------------------
 */
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static World the_world;
World	   *const world = &the_world;

unsigned
world_dice(unsigned n)
{
	world->random = world->random * 6364136223846793005ULL +
		1442695040888963407ULL;
	return (unsigned) (world->random >> 33) % n;
}

bool
world_one_in(unsigned n)
{
	return world_dice(n) == 0;
}

/* What is to be seen when a rule does not hold. */
static void
describe(void)
{
	static const char *const states[] = {"idle", "running", "waits", "blocked",
	"calls"};

	for (int i = 0; i < world->ninstances; i++)
		for (int j = 0; j < WORLD_BACKENDS; j++)
		{
			const WorldBackend *backend = &world->instances[i].backends[j];

			if (backend->state == BACKEND_IDLE)
				continue;
			printf("  %d %s%s%s", backend->pid, states[backend->state],
				   backend->any ? " any" : "",
				   backend->victim ? " victim" : "");
			for (int k = 0; k < backend->nholds; k++)
				printf(" holds %d", backend->holds[k]);
			for (int k = 0; k < backend->nwants; k++)
				printf(" wants %d", backend->wants[k]);
			if (backend->state == BACKEND_BLOCKED)
				printf(" behind %d", 100 * (i + 1) + backend->blocker);
			if (backend->state == BACKEND_CALLING)
				printf(" number %d", backend->remote);
			if (backend->employer >= 0)
				printf(" works for number %d", backend->employer);
			printf("\n");
		}
	for (int i = 0; i < world->ncontenders; i++)
		if (world->contenders[i].death == FOREVER)
			printf("  %d of %d: %s %s%s\n", i, world->contenders[i].cluster,
				   world->contenders[i].path,
				   world->contenders[i].granted ? "granted " : "",
				   tree_find(tree_zxid(), world->contenders[i].path)->data);
	tree_print("/zklock/%waits");
}

void
world_check(bool holds, const char *rule)
{
	if (holds)
		return;
	world->violation = rule;
	if (world->mutated)
		longjmp(world->violated, 1);
	describe();
	fail_msg("%s, run %lu, step %" PRId64 ": %s", world->title, world->run,
			 world->step, rule);
}

bool
world_is_semaphore(int lock)
{
	return lock >= WORLD_LOCKS - WORLD_SEMAPHORES;
}

/*
 * Contenders
 */

bool
world_exists(int contender)
{
	return world->contenders[contender].death == FOREVER;
}

/* The root below which a lock is. */
void
world_write_root(int lock, char root[WORLD_ROOT_SIZE])
{
	if (lock % world->roots == 0)
		strcpy(root, "/zklock");
	else
		sprintf(root, "/root%d", lock % world->roots);
}

static int
add_contender(int cluster, int lock, bool shared, bool permit)
{
	int			number = world->ncontenders++;
	WorldContender *contender = &world->contenders[number];
	char		prefix[NOTE_VERTEX_SIZE];
	char		root[WORLD_ROOT_SIZE];
	const char *name;

	world_check(number < WORLD_CONTENDERS, "there is room for contenders");
	memset(contender, 0, sizeof(*contender));
	world_write_root(lock, root);
	sprintf(prefix, "%s/%d%s/_c_%08x-0000-0000-0000-000000000000-%s",
			root, lock, !world_is_semaphore(lock) ? "" : permit ? "/leases" : "/locks",
			number, permit ? "lease-" : shared ? "__READ__" :
			world_is_semaphore(lock) ? "lock-" : "__WRIT__");
	name = tree_create(prefix, "postgresql ",
					   world->instances[cluster].session.id, true);
	strcpy(contender->path, prefix);
	strcpy(strrchr(contender->path, '/') + 1, name);
	contender->number = atoi(name + strlen(name) - 10);
	contender->cluster = cluster;
	contender->lock = lock;
	contender->shared = shared;
	contender->permit = permit;
	contender->birth = world->step;
	contender->death = FOREVER;
	return number;
}

static void
delete_contender(int contender)
{
	if (!world_exists(contender))
		return;
	(void) tree_delete(world->contenders[contender].path);
	world->contenders[contender].death = world->step;
}

/* Is this contender the owner of its lock, or may it have a permit? */
static bool
is_first(int number)
{
	const WorldContender *contender = &world->contenders[number];
	int			permits = 0;

	for (int i = 0; i < world->ncontenders; i++)
	{
		const WorldContender *other = &world->contenders[i];

		if (!world_exists(i) || other->lock != contender->lock)
			continue;
		if (other->permit)
			permits++;
		else if (other->number < contender->number &&
				 !(other->shared && contender->shared))
			return false;
	}
	return permits < WORLD_PERMITS;
}

WorldBackend *
world_backend(int cluster, int backend)
{
	return &world->instances[cluster].backends[backend];
}

/* Who of the instance holds a contender, or waits for it, but for "but"? */
static int
find_user(int cluster, int contender, bool holders, int but)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *backend = world_backend(cluster, i);

		if (i == but)
			continue;
		for (int j = 0; holders && j < backend->nholds; j++)
			if (backend->holds[j] == contender)
				return i;
		for (int j = 0; !holders && backend->state == BACKEND_WAITING &&
			 j < backend->nwants; j++)
			if (backend->wants[j] == contender)
				return i;
	}
	return -1;
}

static bool
holds(const WorldBackend *backend, int contender)
{
	for (int i = 0; i < backend->nholds; i++)
		if (backend->holds[i] == contender)
			return true;
	return false;
}

static int
find_contender(int cluster, int lock, bool shared)
{
	for (int i = 0; i < world->ncontenders; i++)
		if (world_exists(i) && world->contenders[i].cluster == cluster &&
			world->contenders[i].lock == lock &&
			world->contenders[i].shared == shared)
			return i;
	return -1;
}

/*
 * Backends
 */

void
world_begin(WorldBackend *backend)
{
	if (backend->state == BACKEND_IDLE)
	{
		backend->state = BACKEND_RUNNING;
		backend->began = world->now + ++world->stamp;
	}
}

static void
begin_wait(WorldBackend *backend, BackendState how)
{
	backend->state = how;
	backend->wait_since = ++world->stamp;
	backend->wait_at = world->now;
	backend->victim = false;
	backend->requeues = false;
}

static void
hold(WorldBackend *backend, int contender)
{
	world_check(backend->nholds < WORLD_HOLDS, "there is room for holds");
	backend->holds[backend->nholds] = contender;
	backend->hold_since[backend->nholds++] = ++world->stamp;
}

/* Wait for another backend of the instance; not if that waits for us. */
bool
world_block(int cluster, int backend, int blocker)
{
	WorldBackend *waiter = world_backend(cluster, backend);

	if (world_backend(cluster, blocker)->state == BACKEND_IDLE ||
		world_waits_for(world_number(cluster, blocker),
						world_number(cluster, backend)))
		return false;
	world_begin(waiter);
	waiter->blocker = blocker;
	waiter->lock = -1;
	begin_wait(waiter, BACKEND_BLOCKED);
	return true;
}

/*
 * Who of the instance has tier 1 of a lock, so that this backend has to wait;
 * or -1.  Who waits for the second of two in tier 1 has the first one.
 */
static int
find_blocker(int cluster, int backend, int lock, bool shared)
{
	int			blocker = -1;

	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *other = world_backend(cluster, i);

		if (i != backend && other->state == BACKEND_BLOCKED &&
			other->lock >= 0 && other->nlocks == 2 &&
			other->lock != other->locks[0] && other->locks[0] == lock)
			return i;
	}

	for (int i = 0; i < 2 && blocker < 0 && !world_is_semaphore(lock); i++)
	{
		int			contender = find_contender(cluster, lock, i == 0);

		if (contender < 0 || (shared && i == 0))
			continue;
		blocker = find_user(cluster, contender, true, -1);
		if (blocker < 0)
			blocker = find_user(cluster, contender, false, -1);
	}
	return blocker;
}

/* A contender to hold or to wait for; nobody uses one of the other mode. */
static int
use_contender(int cluster, int lock, bool shared)
{
	int			other = world_is_semaphore(lock) ? -1 :
		find_contender(cluster, lock, !shared);
	int			mine = world_is_semaphore(lock) ? -1 :
		find_contender(cluster, lock, shared);

	if (other >= 0)
		delete_contender(other);
	return mine >= 0 ? mine : add_contender(cluster, lock, shared, false);
}

/* A running backend takes a lock, or waits; false if it cannot. */
bool
world_lock(int cluster, int backend, int lock, bool shared)
{
	return world_lock_several(cluster, backend, &lock, 1 + shared * 100, false);
}

/*
 * The same with several exclusive locks, all or any; 101: one shared.
 */
bool
world_lock_several(int cluster, int backend, const int *locks, int nlocks,
				   bool any)
{
	WorldBackend *taker = world_backend(cluster, backend);
	bool		shared = nlocks == 101;
	int			n = shared ? 1 : nlocks;

	if (taker->state > BACKEND_RUNNING ||
		taker->nholds > WORLD_HOLDS - WORLD_WANTS)
		return false;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < taker->nholds; j++)
			if (world->contenders[taker->holds[j]].lock == locks[i])
				return false;
	world_begin(taker);
	memmove(taker->locks, locks, n * sizeof(int));
	taker->nlocks = nlocks;
	taker->any = any;
	taker->nwants = 0;

	/* tier 1 comes first, and leaves nothing behind */
	for (int i = 0; i < n; i++)
	{
		int			blocker = find_blocker(cluster, backend, locks[i],
											   shared);

		if (blocker < 0)
			continue;
		if (!world_block(cluster, backend, blocker))
			return false;
		taker->lock = locks[i];
		taker->shared = shared;
		return true;
	}
	for (int i = 0; i < n; i++)
	{
		int			contender = use_contender(cluster, locks[i], shared);

		if (world->contenders[contender].granted && n == 1)
		{
			hold(taker, contender);
			return true;
		}
		taker->wants[taker->nwants++] = contender;
	}
	begin_wait(taker, BACKEND_WAITING);
	return true;
}

/* A backend that waited in tier 1 takes what it wanted. */
static void
go_on(int cluster, int number)
{
	WorldBackend *backend = world_backend(cluster, number);
	int			locks[WORLD_WANTS];

	backend->state = BACKEND_RUNNING;
	memcpy(locks, backend->locks, sizeof(locks));
	if (backend->lock >= 0 && world->instances[cluster].session.alive &&
		world->ncontenders < WORLD_CONTENDERS - 100)
		(void) world_lock_several(cluster, number, locks, backend->nlocks,
								  backend->any);
}

/* Whoever was blocked by this backend goes on, and takes what it wanted. */
static void
unblock(int cluster, int blocker)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = world_backend(cluster, i);

		if (backend->state != BACKEND_BLOCKED || backend->blocker != blocker)
			continue;
		go_on(cluster, i);
	}
}

/* Nobody of the instance uses a contender: give it up, now or later. */
static void
maybe_release(int cluster, int contender)
{
	if (world_exists(contender) && find_user(cluster, contender, true, -1) < 0 &&
		find_user(cluster, contender, false, -1) < 0 &&
		(world->contenders[contender].permit || world_dice(2)))
		delete_contender(contender);
}

/* The wait fails, and the transaction with it; or it commits. */
void
world_end_transaction(int cluster, int backend)
{
	WorldBackend *leaver = world_backend(cluster, backend);
	int			nholds = leaver->nholds;
	int			nwants = leaver->state == BACKEND_WAITING ? leaver->nwants : 0;

	leaver->state = BACKEND_IDLE;
	leaver->nholds = 0;
	leaver->nwants = 0;
	leaver->victim = false;
	unblock(cluster, backend);
	for (int i = 0; i < nholds; i++)
		maybe_release(cluster, leaver->holds[i]);
	for (int i = 0; i < nwants; i++)
		if (world_is_semaphore(world->contenders[leaver->wants[i]].lock))
			delete_contender(leaver->wants[i]);
		else
			maybe_release(cluster, leaver->wants[i]);
}

/* The wait fails, as that of zk_try_lock; the transaction goes on. */
void
world_leave(int cluster, int backend)
{
	WorldBackend *leaver = world_backend(cluster, backend);
	int			nwants = leaver->state == BACKEND_WAITING ? leaver->nwants : 0;

	leaver->state = BACKEND_RUNNING;
	leaver->nwants = 0;
	leaver->victim = false;

	/* whoever waited for us in tier 1 may take what we wanted */
	if (nwants > 0 && leaver->nholds == 0)
		unblock(cluster, backend);
	for (int i = 0; i < nwants; i++)
		if (world_is_semaphore(world->contenders[leaver->wants[i]].lock))
			delete_contender(leaver->wants[i]);
		else
			maybe_release(cluster, leaver->wants[i]);
}

/* Give a waiter what is granted now; true if its wait is over. */
static bool
grant(int cluster, WorldBackend *backend)
{
	int			granted = 0;

	for (int i = 0; i < backend->nwants; i++)
		granted += world->contenders[backend->wants[i]].granted &&
			find_user(cluster, backend->wants[i], true, -1) < 0;
	if (backend->nwants == 1 && world->contenders[backend->wants[0]].shared)
		granted = world->contenders[backend->wants[0]].granted;
	if (granted == 0 || (granted < backend->nwants && !backend->any))
		return false;
	for (int i = 0; i < backend->nwants; i++)
	{
		int			contender = backend->wants[i];

		if (!world->contenders[contender].granted ||
			(backend->any && holds(backend, backend->wants[0])))
		{
			delete_contender(contender);
			continue;
		}
		if (world_is_semaphore(world->contenders[contender].lock))
		{
			int			permit = add_contender(cluster,
											   world->contenders[contender].lock,
											   false, true);

			delete_contender(contender);
			world->contenders[permit].granted = true;
			hold(backend, permit);
		}
		else
			hold(backend, contender);
	}
	backend->state = BACKEND_RUNNING;
	backend->nwants = 0;
	backend->victim = false;
	return true;
}

/* The worker learns of a grant; true if there was one to learn of. */
bool
world_learn(int cluster)
{
	if (!world->instances[cluster].worker ||
		!world->instances[cluster].session.connected)
		return false;
	for (int i = 0; i < world->ncontenders; i++)
	{
		WorldContender *contender = &world->contenders[i];
		int			user;

		if (!world_exists(i) || contender->cluster != cluster ||
			contender->permit ||
			(!contender->granted && !is_first(i)))
			continue;
		user = find_user(cluster, i, false, -1);
		if (user < 0 && contender->granted)
			continue;
		contender->granted = true;
		for (; user >= 0; user = -1)
			if (grant(cluster, world_backend(cluster, user)))
				return true;
	}
	return false;
}

/* A contender that nobody uses is deleted. */
bool
world_release_idle(int cluster)
{
	for (int i = 0; i < world->ncontenders; i++)
		if (world_exists(i) && world->contenders[i].cluster == cluster &&
			find_user(cluster, i, true, -1) < 0 &&
			find_user(cluster, i, false, -1) < 0)
		{
			delete_contender(i);
			return true;
		}
	return false;
}

/*
 * The backend of the instance that has waited longest behind another one in
 * tier 1 of this lock, or -1.
 */
static int
first_behind(int cluster, int ahead, int lock)
{
	int			first = -1;

	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *backend = world_backend(cluster, i);

		if (backend->state == BACKEND_BLOCKED && backend->blocker == ahead &&
			backend->lock == lock &&
			(first < 0 || backend->wait_since <
			 world_backend(cluster, first)->wait_since))
			first = i;
	}
	return first;
}

/*
 * A backend goes to the end of the queues of tier 1.  Contenders that were
 * created together are given up; one is left to the next backend.
 */
static void
requeue_tier1(int cluster, int number)
{
	WorldBackend *ahead = world_backend(cluster, number);
	int			wants[WORLD_WANTS];
	int			nwants = ahead->nwants;

	world->requeues++;
	memcpy(wants, ahead->wants, sizeof(wants));
	ahead->state = BACKEND_RUNNING;
	ahead->nwants = 0;
	ahead->victim = false;
	for (int i = 0; nwants > 1 && !ahead->any && i < nwants; i++)
		delete_contender(wants[i]);
	for (int i = 0; i < nwants; i++)
	{
		int			lock = world->contenders[wants[i]].lock;
		int			next;

		while ((next = first_behind(cluster, number, lock)) >= 0)
			go_on(cluster, next);
	}
	ahead->lock = 0;
	go_on(cluster, number);
}

/* A marked backend finds its mark. */
bool
world_kill_victim(int cluster)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = world_backend(cluster, i);

		if (backend->state == BACKEND_WAITING && backend->victim)
		{
			if (backend->requeues)
				requeue_tier1(cluster, i);
			else
			{
				truth_on_victim(backend);
				world->victims++;
				world_finish(cluster, i);
			}
			return true;
		}
	}
	return false;
}

/* Does a backend that is in this wait bear the mark, or is nobody in it? */
bool
world_is_marked(int cluster, NoteId wait)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *backend = world_backend(cluster, i);

		if (backend->state == BACKEND_WAITING && backend->pid == wait.pid &&
			backend->wait_since == wait.since)
			return backend->victim;
	}
	return true;
}

/*
 * Runs
 */

void
world_reset(const char *title, unsigned long run, int ninstances)
{
	char		root[WORLD_ROOT_SIZE];
	char		path[64];
	bool		mutated = world->mutated;

	world->sessions = false;
	if (world->roots == 0)
		world->roots = 1;
	world_end();
	tree_reset();
	world->title = title;
	world->run = run;
	world->random = run * 0x9E3779B97F4A7C15ULL + 1;
	(void) world_dice(2);
	world->mutated = mutated;
	world->violation = NULL;
	world->ninstances = ninstances;
	world->ncontenders = 0;
	world->nedges = 0;
	world->step = 0;
	world->now = WORLD_TIMEOUT;
	world->stamp = 0;
	world->largest = 0;
	world->lost_workers = 0;
	world->nnodes = 0;
	tree_on_act = truth_on_act;
	tree_on_session_node = truth_on_session_node;
	for (int i = 0; i < world->roots; i++)
	{
		world_write_root(i, root);
		(void) tree_create(root, "", 0, false);
	}
	for (int i = 0; i < WORLD_LOCKS; i++)
	{
		world_write_root(i, root);
		sprintf(path, "%s/%d", root, i);
		(void) tree_create(path, "", 0, false);
		if (!world_is_semaphore(i))
			continue;
		sprintf(path, "%s/%d/locks", root, i);
		(void) tree_create(path, "", 0, false);
		sprintf(path, "%s/%d/leases", root, i);
		(void) tree_create(path, "", 0, false);
	}
	for (int i = 0; i < ninstances; i++)
	{
		WorldInstance *cluster = &world->instances[i];
		DetectorInput in = {.event = DETECTOR_RESUMED};

		memset(cluster, 0, sizeof(*cluster));
		for (int j = 0; j < WORLD_BACKENDS; j++)
		{
			cluster->backends[j].pid = 100 * (i + 1) + j;
			cluster->backends[j].employer = -1;
		}
		cluster->worker = true;
		tree_begin_session(&cluster->session);
		detector_init(&cluster->detector, WORLD_TIMEOUT, false);
		world_step(i, &in);
	}
}

void
world_end(void)
{
	for (int i = 0; i < world->ninstances; i++)
		detector_free(&world->instances[i].detector);
	world->ninstances = 0;
}
