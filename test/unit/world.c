/*-------------------------------------------------------------------------
 *
 * world.c
 *		Clusters whose backends take locks, with a detector each.
 *
 * Contenders come and go at once; what takes time is what a cluster knows of
 * them: a grant is learnt later, and a contender that nobody uses any more is
 * deleted later.  What detectors send goes by the sessions of tree.c.
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
	static const char *const states[] = {"idle", "running", "waits", "blocked"};

	for (int i = 0; i < world->nclusters; i++)
		for (int j = 0; j < WORLD_BACKENDS; j++)
		{
			const WorldBackend *backend = &world->clusters[i].backends[j];

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

static bool
is_semaphore(int lock)
{
	return lock >= WORLD_LOCKS - WORLD_SEMAPHORES;
}

/*
 * Contenders
 */

static bool
exists(int contender)
{
	return world->contenders[contender].death == FOREVER;
}

static int
add_contender(int cluster, int lock, bool shared, bool permit)
{
	int			number = world->ncontenders++;
	WorldContender *contender = &world->contenders[number];
	char		prefix[NOTE_VERTEX_SIZE];
	const char *name;

	world_check(number < WORLD_CONTENDERS, "there is room for contenders");
	memset(contender, 0, sizeof(*contender));
	sprintf(prefix, "/zklock/%d%s/_c_%08x-0000-0000-0000-000000000000-%s",
			lock, !is_semaphore(lock) ? "" : permit ? "/leases" : "/locks",
			number, permit ? "lease-" : shared ? "__READ__" :
			is_semaphore(lock) ? "lock-" : "__WRIT__");
	name = tree_create(prefix, "postgresql ",
					   world->clusters[cluster].session.id, true);
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
	if (!exists(contender))
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

		if (!exists(i) || other->lock != contender->lock)
			continue;
		if (other->permit)
			permits++;
		else if (other->number < contender->number &&
				 !(other->shared && contender->shared))
			return false;
	}
	return permits < WORLD_PERMITS;
}

static WorldBackend *
backend_at(int cluster, int backend)
{
	return &world->clusters[cluster].backends[backend];
}

/* Who of the cluster holds a contender, or waits for it, but for "but"? */
static int
find_user(int cluster, int contender, bool holders, int but)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *backend = backend_at(cluster, i);

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
		if (exists(i) && world->contenders[i].cluster == cluster &&
			world->contenders[i].lock == lock &&
			world->contenders[i].shared == shared)
			return i;
	return -1;
}

/*
 * Backends
 */

static void
begin(WorldBackend *backend)
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
}

static void
hold(WorldBackend *backend, int contender)
{
	world_check(backend->nholds < WORLD_HOLDS, "there is room for holds");
	backend->holds[backend->nholds] = contender;
	backend->hold_since[backend->nholds++] = ++world->stamp;
}

/* Does a backend wait, by way of others of its cluster, for another one? */
static bool
waits_for(int cluster, int backend, int other)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		if (backend == other)
			return true;
		if (backend_at(cluster, backend)->state != BACKEND_BLOCKED)
			return false;
		backend = backend_at(cluster, backend)->blocker;
	}
	return true;
}

/* Wait for another backend of the cluster; not if that waits for us. */
bool
world_block(int cluster, int backend, int blocker)
{
	WorldBackend *waiter = backend_at(cluster, backend);

	if (backend_at(cluster, blocker)->state == BACKEND_IDLE ||
		waits_for(cluster, blocker, backend))
		return false;
	begin(waiter);
	waiter->blocker = blocker;
	waiter->lock = -1;
	begin_wait(waiter, BACKEND_BLOCKED);
	return true;
}

/* A contender to hold or to wait for; or -1: who is in the way is *blocker. */
static int
use_contender(int cluster, int backend, int lock, bool shared, int *blocker)
{
	int			other = is_semaphore(lock) ? -1 :
		find_contender(cluster, lock, !shared);
	int			mine = is_semaphore(lock) ? -1 :
		find_contender(cluster, lock, shared);

	*blocker = -1;
	if (other >= 0)
	{
		*blocker = find_user(cluster, other, true, -1);
		if (*blocker < 0)
			*blocker = find_user(cluster, other, false, -1);
		if (*blocker >= 0)
			return -1;
		delete_contender(other);
	}
	if (mine >= 0 && !shared)
	{
		*blocker = find_user(cluster, mine, true, -1);
		if (*blocker < 0)
			*blocker = find_user(cluster, mine, false, -1);
		if (*blocker >= 0)
			return -1;
	}
	(void) backend;
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
	WorldBackend *taker = backend_at(cluster, backend);
	bool		shared = nlocks == 101;
	int			blocker;

	if (shared)
		nlocks = 1;
	if (taker->state > BACKEND_RUNNING ||
		taker->nholds > WORLD_HOLDS - WORLD_WANTS)
		return false;
	for (int i = 0; i < nlocks; i++)
		for (int j = 0; j < taker->nholds; j++)
			if (world->contenders[taker->holds[j]].lock == locks[i])
				return false;
	begin(taker);
	taker->nwants = 0;
	for (int i = 0; i < nlocks; i++)
	{
		int			contender = use_contender(cluster, backend, locks[i],
											  shared, &blocker);

		if (contender < 0)
		{
			/* tier 1 comes first, and leaves nothing behind */
			if (taker->nwants > 0 || !world_block(cluster, backend, blocker))
				return false;
			taker->lock = locks[i];
			taker->shared = shared;
			return true;
		}
		if (world->contenders[contender].granted && nlocks == 1)
		{
			hold(taker, contender);
			return true;
		}
		taker->wants[taker->nwants++] = contender;
	}
	taker->any = any;
	begin_wait(taker, BACKEND_WAITING);
	return true;
}

/* Whoever was blocked by this backend goes on, and takes what it wanted. */
static void
unblock(int cluster, int blocker)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = backend_at(cluster, i);

		if (backend->state != BACKEND_BLOCKED || backend->blocker != blocker)
			continue;
		backend->state = BACKEND_RUNNING;
		if (backend->lock >= 0 &&
			world->clusters[cluster].session.alive &&
			world->ncontenders < WORLD_CONTENDERS - 100)
			(void) world_lock(cluster, i, backend->lock, backend->shared);
	}
}

/* Nobody of the cluster uses a contender: give it up, now or later. */
static void
maybe_release(int cluster, int contender)
{
	if (exists(contender) && find_user(cluster, contender, true, -1) < 0 &&
		find_user(cluster, contender, false, -1) < 0 &&
		(world->contenders[contender].permit || world_dice(2)))
		delete_contender(contender);
}

/* The wait fails, and the transaction with it; or it commits. */
void
world_finish(int cluster, int backend)
{
	WorldBackend *leaver = backend_at(cluster, backend);
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
		if (is_semaphore(world->contenders[leaver->wants[i]].lock))
			delete_contender(leaver->wants[i]);
		else
			maybe_release(cluster, leaver->wants[i]);
}

/* The wait fails, as that of zk_try_lock; the transaction goes on. */
void
world_leave(int cluster, int backend)
{
	WorldBackend *leaver = backend_at(cluster, backend);
	int			nwants = leaver->state == BACKEND_WAITING ? leaver->nwants : 0;

	leaver->state = BACKEND_RUNNING;
	leaver->nwants = 0;
	leaver->victim = false;

	/* whoever waited for us in tier 1 may take what we wanted */
	if (nwants > 0 && leaver->nholds == 0)
		unblock(cluster, backend);
	for (int i = 0; i < nwants; i++)
		if (is_semaphore(world->contenders[leaver->wants[i]].lock))
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
		if (is_semaphore(world->contenders[contender].lock))
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
	if (!world->clusters[cluster].worker ||
		!world->clusters[cluster].session.connected)
		return false;
	for (int i = 0; i < world->ncontenders; i++)
	{
		WorldContender *contender = &world->contenders[i];
		int			user;

		if (!exists(i) || contender->cluster != cluster ||
			contender->permit ||
			(!contender->granted && !is_first(i)))
			continue;
		user = find_user(cluster, i, false, -1);
		if (user < 0 && contender->granted)
			continue;
		contender->granted = true;
		for (; user >= 0; user = -1)
			if (grant(cluster, backend_at(cluster, user)))
				return true;
	}
	return false;
}

/* A contender that nobody uses is deleted. */
bool
world_release_idle(int cluster)
{
	for (int i = 0; i < world->ncontenders; i++)
		if (exists(i) && world->contenders[i].cluster == cluster &&
			find_user(cluster, i, true, -1) < 0 &&
			find_user(cluster, i, false, -1) < 0)
		{
			delete_contender(i);
			return true;
		}
	return false;
}

/* A marked backend finds its mark. */
bool
world_kill_victim(int cluster)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = backend_at(cluster, i);

		if (backend->state == BACKEND_WAITING && backend->victim)
		{
			world->victims++;
			world_finish(cluster, i);
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
		const WorldBackend *backend = backend_at(cluster, i);

		if (backend->state == BACKEND_WAITING && backend->pid == wait.pid &&
			backend->wait_since == wait.since)
			return backend->victim;
	}
	return true;
}

/*
 * Detectors
 */

static int
contender_at(const char *path)
{
	for (int i = 0; i < world->ncontenders; i++)
		if (strcmp(world->contenders[i].path, path) == 0)
			return i;
	return -1;
}

/* The note that goes with an operation; NULL: no such contender is ours. */
static const char *
compose_note(int cluster, const char *path, const NoteWait *waits, int nwaits)
{
	static char data[NOTE_FULL_SIZE];
	int			number = contender_at(path);
	char		name[8];
	Note		note;

	if (number < 0 || !exists(number) || !world->contenders[number].granted ||
		world->contenders[number].cluster != cluster)
		return NULL;
	sprintf(name, "c%d", cluster);
	note_set_contender(&note, "h", 1, name, 1, false);
	(void) note_write_waits(&note, waits, nwaits, data);
	world->contenders[number].noted = true;
	return data;
}

static void
submit(int cluster, const DetectorOp *op)
{
	TreeRequest *request;

	request = tree_submit(&world->clusters[cluster].session, op,
						  op->kind != DETECTOR_OP_SET_WAITS &&
						  op->kind != DETECTOR_OP_ACT ? NULL :
						  compose_note(cluster, op->path, op->waits,
									   op->nwaits));
	for (int i = 0; i < op->nothers; i++)
	{
		const DetectorNote *other = &op->others[i];
		const char *note = compose_note(cluster, other->path, other->waits,
										other->nwaits);

		request->other_notes[i] = note == NULL ? NULL : tree_copy(note);
	}
}

/* The worker marks the victim, if it still waits in that very wait. */
static void
mark_victim(int cluster, const WaitEdge *edge)
{
	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = backend_at(cluster, i);

		if (backend->state == BACKEND_WAITING &&
			backend->pid == edge->wait.wait.pid &&
			backend->wait_since == edge->wait.wait.since)
			backend->victim = true;
	}
}

void
world_step(int cluster, DetectorInput *in)
{
	WorldCluster *own = &world->clusters[cluster];
	DetectorOutput out;

	in->now = world->now;
	detector_step(&own->detector, in, &out);
	for (int i = 0; i < out.nops; i++)
		submit(cluster, &out.ops[i]);
	if (out.scan != 0)
		own->scan = out.scan;
	for (int i = 0; i < out.nverdicts; i++)
	{
		const WaitDeadlock *deadlock = out.verdicts[i].deadlock;

		world->verdicts++;
		world_check(deadlock->nmembers > 0, "a verdict has members");
		if (out.verdicts[i].ours)
			mark_victim(cluster, &deadlock->members[0].edge);
	}
	own->wake_at = out.wake_at;
}

/* For whom does a backend wait in the end, if all waits are long? */
static int
follow_chain(int cluster, int backend, bool aged, uint64_t *chain)
{
	*chain = 0;
	while (backend_at(cluster, backend)->state == BACKEND_BLOCKED)
	{
		const WorldBackend *link = backend_at(cluster, backend);

		if (aged && link->wait_at + WORLD_TIMEOUT > world->now)
			return -1;
		*chain = (*chain + (uint64_t) link->wait_since) *
			6364136223846793005ULL + 1442695040888963407ULL +
			(uint64_t) link->pid;
		backend = link->blocker;
	}
	return backend;
}

/* The edges from one hold, behind those in the list. */
static void
list_from(int cluster, int holder, int from, int64_t since, bool aged,
		  WorldEdge *list, int *n)
{
	uint64_t	chain;
	int			waiter = follow_chain(cluster, holder, aged, &chain);
	const WorldBackend *last;

	if (waiter < 0)
		return;
	last = backend_at(cluster, waiter);
	if (last->state != BACKEND_WAITING ||
		(aged && (last->victim || last->wait_at + WORLD_TIMEOUT > world->now)))
		return;
	for (int i = 0; last->any && i < last->nwants; i++)
		if (world->contenders[last->wants[i]].granted)
			return;
	for (int i = 0; i < last->nwants; i++)
	{
		WorldEdge  *edge = &list[*n];

		if (!exists(from) || !exists(last->wants[i]) ||
			world->contenders[last->wants[i]].granted)
			continue;
		memset(edge, 0, sizeof(*edge));
		edge->from = from;
		edge->to = last->wants[i];
		edge->hold.pid = backend_at(cluster, holder)->pid;
		edge->hold.since = since;
		edge->wait.pid = last->pid;
		edge->wait.since = last->wait_since;
		edge->began = last->began;
		edge->chain = chain;
		edge->alternatives = last->any ? last->nwants : 1;
		if (++*n == WORLD_LISTED)
			abort();
	}
}

/*
 * All edges of a cluster; "aged": as its worker would list them.  Returns how
 * many there are.
 */
int
world_list_edges(int cluster, bool aged, WorldEdge list[WORLD_LISTED])
{
	int			n = 0;

	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		const WorldBackend *backend = backend_at(cluster, i);

		for (int j = 0; j < backend->nholds; j++)
			list_from(cluster, i, backend->holds[j], backend->hold_since[j],
					  aged, list, &n);

		/* what is in front counts as held while others are waited for */
		for (int j = 0; backend->state == BACKEND_WAITING && !backend->any &&
			 j < backend->nwants; j++)
			if (world->contenders[backend->wants[j]].granted)
				list_from(cluster, i, backend->wants[j], backend->wait_since,
						  aged, list, &n);
	}
	return n;
}

/* The worker looks at the locks; 0: nobody has asked it to. */
void
world_scan(int cluster, uint32_t scan)
{
	static WorldEdge list[WORLD_LISTED];
	static WaitEdge edges[WORLD_LISTED];
	WorldCluster *own = &world->clusters[cluster];
	DetectorInput in = {.event = DETECTOR_EDGES,.edges = edges,.scan = scan};

	in.nedges = world_list_edges(cluster, true, list);
	for (int i = 0; i < in.nedges; i++)
	{
		const WorldContender *to = &world->contenders[list[i].to];
		WaitEdge   *edge = &edges[i];

		memset(edge, 0, sizeof(*edge));
		strcpy(edge->from, world->contenders[list[i].from].path);
		edge->wait.hold = list[i].hold;
		edge->wait.wait = list[i].wait;
		edge->wait.began = list[i].began;
		edge->wait.chain = list[i].chain;
		edge->wait.kind = is_semaphore(to->lock) ? NOTE_WAIT_PERMIT :
			to->shared ? NOTE_WAIT_SHARED : NOTE_WAIT_EXCLUSIVE;
		edge->wait.permits = is_semaphore(to->lock) ? WORLD_PERMITS : 0;
		edge->wait.alternatives = list[i].alternatives;
		strcpy(edge->wait.to, to->path);
	}
	if (scan == own->scan)
		own->scan = 0;
	own->scan_at = world->now + WORLD_TIMEOUT / 4;
	world_step(cluster, &in);
}

/* The worker hears an answer or an event; false if there is none. */
bool
world_deliver(int cluster)
{
	DetectorInput in;

	memset(&in, 0, sizeof(in));
	if (!world->clusters[cluster].worker ||
		!world->clusters[cluster].session.connected ||
		!tree_hear(&world->clusters[cluster].session, &in))
		return false;
	world_step(cluster, &in);
	return true;
}

void
world_lose_connection(int cluster)
{
	WorldCluster *own = &world->clusters[cluster];
	uint32_t	serials[TREE_QUEUE];
	int			n = tree_lose_connection(&own->session,
										 (int) world_dice(own->session.n + 1),
										 serials);
	bool		early = world_one_in(2);
	DetectorInput suspended = {.event = DETECTOR_SUSPENDED};

	if (!early)
		world_step(cluster, &suspended);
	for (int i = 0; i < n; i++)
	{
		DetectorInput in = {.event = DETECTOR_DONE,.serial = serials[i],
		.result = DETECTOR_UNKNOWN};

		world_step(cluster, &in);
	}
	if (early)
	{
		world_step(cluster, &suspended);

		/* what was sent in between went nowhere */
		n = tree_lose_connection(&own->session, 0, serials);
		for (int i = 0; i < n; i++)
		{
			DetectorInput in = {.event = DETECTOR_DONE,.serial = serials[i],
			.result = DETECTOR_UNKNOWN};

			world_step(cluster, &in);
		}
	}
}

/* Connect again: with the same session, or, if that has ended, a new one. */
void
world_reconnect(int cluster, int64_t view)
{
	WorldCluster *own = &world->clusters[cluster];
	DetectorInput in = {.event = DETECTOR_RESUMED};

	if (own->session.alive)
		tree_reconnect(&own->session, view);
	else
	{
		DetectorInput expired = {.event = DETECTOR_EXPIRED};

		/* all that the cluster held is lost, and nobody waits any longer */
		for (int i = 0; i < WORLD_BACKENDS; i++)
			if (own->backends[i].state != BACKEND_IDLE)
				world_finish(cluster, i);
		if (own->worker)
			world_step(cluster, &expired);
		tree_begin_session(&own->session);
	}
	own->scan = 0;
	if (own->worker)
		world_step(cluster, &in);
}

/* The worker ends, and another one takes over, in the same session. */
void
world_lose_worker(int cluster)
{
	WorldCluster *own = &world->clusters[cluster];
	uint32_t	serials[TREE_QUEUE];

	(void) tree_lose_connection(&own->session,
								(int) world_dice(own->session.n + 1), serials);
	detector_free(&own->detector);
	truth_forget_acts(cluster);
	world->lost_workers++;
	assert_true(detector_init(&own->detector, WORLD_TIMEOUT, true));
	own->scan = 0;
	own->wake_at = FOREVER;
	for (int i = 0; i < world->ncontenders; i++)
		if (exists(i) && world->contenders[i].cluster == cluster &&
			world->contenders[i].noted)
		{
			DetectorInput in = {.event = DETECTOR_ADOPT,
			.path = world->contenders[i].path};

			world_step(cluster, &in);
		}
}

/* The session ends at the server. */
void
world_expire(int cluster)
{
	WorldCluster *own = &world->clusters[cluster];

	tree_expire(&own->session);
	for (int i = 0; i < world->ncontenders; i++)
		if (exists(i) && world->contenders[i].cluster == cluster)
			world->contenders[i].death = world->step;
}

/*
 * Runs
 */

void
world_reset(const char *title, unsigned long run, int nclusters)
{
	char		path[64];
	bool		mutated = world->mutated;

	world_end();
	tree_reset();
	world->title = title;
	world->run = run;
	world->random = run * 0x9E3779B97F4A7C15ULL + 1;
	(void) world_dice(2);
	world->mutated = mutated;
	world->violation = NULL;
	world->nclusters = nclusters;
	world->ncontenders = 0;
	world->nedges = 0;
	world->step = 0;
	world->now = WORLD_TIMEOUT;
	world->stamp = 0;
	world->largest = 0;
	world->lost_workers = 0;
	tree_on_act = truth_on_act;
	(void) tree_create("/zklock", "", 0, false);
	for (int i = 0; i < WORLD_LOCKS; i++)
	{
		sprintf(path, "/zklock/%d", i);
		(void) tree_create(path, "", 0, false);
		if (!is_semaphore(i))
			continue;
		sprintf(path, "/zklock/%d/locks", i);
		(void) tree_create(path, "", 0, false);
		sprintf(path, "/zklock/%d/leases", i);
		(void) tree_create(path, "", 0, false);
	}
	for (int i = 0; i < nclusters; i++)
	{
		WorldCluster *cluster = &world->clusters[i];
		DetectorInput in = {.event = DETECTOR_RESUMED};

		memset(cluster, 0, sizeof(*cluster));
		for (int j = 0; j < WORLD_BACKENDS; j++)
			cluster->backends[j].pid = 100 * (i + 1) + j;
		cluster->worker = true;
		tree_begin_session(&cluster->session);
		assert_true(detector_init(&cluster->detector, WORLD_TIMEOUT, false));
		world_step(i, &in);
	}
}

void
world_end(void)
{
	for (int i = 0; i < world->nclusters; i++)
		detector_free(&world->clusters[i].detector);
	world->nclusters = 0;
}
