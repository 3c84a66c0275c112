/*-------------------------------------------------------------------------
 *
 * truth.c
 *		Who waits for whom in world.c: what is true, and when it was.
 *
 * The rules:
 *
 *	T1	A victim is made of a deadlock that existed at one moment: all edges of
 *		the probe were there at the same time, each W in a queue behind an H.
 *	T2	That deadlock was minimal: without any of its edges, none is left.
 *	T3	The victim is one of its edges, that whose transaction began last.
 *	T4	No edge of it has been made a victim before.
 *	T5	No deadlock stays (the schedules look to that).
 *	T6	No edge stays published (the same).
 *	T7	Nobody fails who is only ahead of a member in tier 1 of his instance:
 *		the member would wait in his place.
 *	T8	No name of a session's znode is used twice: a path and a version are
 *		one text for ever.
 *	T9	When an act is sent, all edges of the victim's own instance are there.
 *
 * Other than waits.c this takes each contender ahead for one that is waited
 * for, and follows the queue.  A session waits as long as it has an edge.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/truth.c
 *
 *-------------------------------------------------------------------------
 */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include "core/deadlock/probe.h"

static bool
same_edge(const WorldEdge *a, const WorldEdge *b)
{
	return a->from == b->from && a->to == b->to &&
		a->hold.pid == b->hold.pid && a->hold.since == b->hold.since &&
		a->wait.pid == b->wait.pid && a->wait.since == b->wait.since &&
		a->chain == b->chain;
}

/* Note which edges there are after this step. */
void
truth_update(void)
{
	static WorldEdge list[WORLD_LISTED];

	for (int cluster = 0; cluster < world->ninstances; cluster++)
	{
		int			n = world_list_edges(cluster, false, list);

		for (int i = 0; i < n; i++)
		{
			int			j = world->nedges - 1;

			while (j >= 0 && !(world->edges[j].death == FOREVER &&
							   same_edge(&world->edges[j], &list[i])))
				j--;
			if (j < 0)
			{
				world_check(world->nedges < WORLD_EDGES,
							"there is room for edges");
				j = world->nedges++;
				world->edges[j] = list[i];
				world->edges[j].birth = world->step;
				world->edges[j].death = FOREVER;
			}
			world->edges[j].seen = world->step;
			world->edges[j].ahead = list[i].ahead;
		}
	}
	for (int i = 0; i < world->nedges; i++)
		if (world->edges[i].death == FOREVER &&
			world->edges[i].seen < world->step)
			world->edges[i].death = world->step;
}

static bool
was_there(int vertex, int64_t step)
{
	return world_is_session(vertex) ||
		(world->contenders[vertex].birth <= step &&
		 step < world->contenders[vertex].death);
}

/* Edges: indexes into World.edges. */
typedef struct EdgeSet
{
	int			edges[WORLD_LISTED];
	bool		in[WORLD_LISTED];
	int			n;
} EdgeSet;

static bool
has_edge(const EdgeSet *set, int vertex)
{
	for (int i = 0; i < set->n; i++)
		if (set->in[i] && world->edges[set->edges[i]].from == vertex)
			return true;
	return false;
}

/* Are all of the first permits of a semaphore kept by the set? */
static bool
permits_are_kept(const EdgeSet *set, int lock, int64_t step)
{
	int			n = 0;

	for (int i = 0; i < world->ncontenders; i++)
		if (world->contenders[i].permit && world->contenders[i].lock == lock &&
			was_there(i, step))
		{
			if (!has_edge(set, i))
				return false;
			n++;
		}
	return n >= WORLD_PERMITS;
}

/*
 * Does the set keep this contender in its queue, as that was then; or this
 * session from what it does?
 */
static bool
is_kept(const EdgeSet *set, int number, int64_t step)
{
	const WorldContender *contender;

	if (world_is_session(number))
		return has_edge(set, number);
	if (!was_there(number, step))
		return false;
	contender = &world->contenders[number];
	if (contender->lock >= WORLD_LOCKS - WORLD_SEMAPHORES)
		return permits_are_kept(set, contender->lock, step);
	for (int i = 0; i < world->ncontenders; i++)
	{
		const WorldContender *other = &world->contenders[i];

		if (other->lock == contender->lock && was_there(i, step) &&
			other->number < contender->number &&
			!(other->shared && contender->shared) &&
			(has_edge(set, i) || is_kept(set, i, step)))
			return true;
	}
	return false;
}

/* Is an edge kept: it, or all alternatives of its wait? */
static bool
edge_is_kept(const EdgeSet *set, int place, int64_t step)
{
	const WorldEdge *edge = &world->edges[set->edges[place]];
	int			alternatives = 0;

	if (edge->alternatives == 1)
		return is_kept(set, edge->to, step);
	for (int i = 0; i < set->n; i++)
	{
		const WorldEdge *other = &world->edges[set->edges[i]];

		if (!set->in[i] || other->from != edge->from ||
			other->hold.since != edge->hold.since ||
			other->wait.since != edge->wait.since ||
			other->wait.pid != edge->wait.pid || other->chain != edge->chain)
			continue;
		if (!is_kept(set, other->to, step))
			return false;
		alternatives++;
	}
	return alternatives == edge->alternatives;
}

/* Take out what is not kept; returns how many are left. */
static int
keep_only(EdgeSet *set, int64_t step)
{
	bool		changed = true;
	int			n = 0;

	while (changed)
	{
		changed = false;
		n = 0;
		for (int i = 0; i < set->n; i++)
		{
			if (set->in[i] && !edge_is_kept(set, i, step))
			{
				set->in[i] = false;
				changed = true;
			}
			n += set->in[i];
		}
	}
	return n;
}

/* Has the wait of an edge been made a victim? */
static bool
is_acted(const WorldEdge *edge)
{
	for (int i = 0; i < world->nedges; i++)
		if (world->edges[i].acted &&
			world->edges[i].wait.pid == edge->wait.pid &&
			world->edges[i].wait.since == edge->wait.since)
			return true;
	return false;
}

/* How many edges are in deadlocks now, but for those of victims? */
int
truth_deadlocked(void)
{
	static EdgeSet set;

	set.n = 0;
	for (int i = 0; i < world->nedges; i++)
		if (world->edges[i].death == FOREVER && !is_acted(&world->edges[i]))
		{
			set.edges[set.n] = i;
			set.in[set.n++] = true;
		}
	return keep_only(&set, world->step);
}

/* The latest edge that a member tells of; -1: there never was one. */
static int
find_edge(const WaitMember *member)
{
	WorldEdge	edge = {
		.from = world_vertex(member->edge.from),
		.to = world_vertex(member->edge.wait.to),
		.hold = member->edge.wait.hold,
		.wait = member->edge.wait.wait,
		.chain = member->edge.wait.chain
	};

	for (int i = world->nedges - 1; i >= 0; i--)
		if (same_edge(&world->edges[i], &edge))
			return i;
	return -1;
}

/* T2: without any edge (and its alternatives) the rest is no deadlock. */
static void
check_minimal(EdgeSet *set, int64_t step)
{
	for (int i = 0; i < set->n; i++)
	{
		memset(set->in, true, sizeof(set->in));
		set->in[i] = false;
		world_check(keep_only(set, step) == 0, "T2: a deadlock is minimal");
	}
}

static bool
victim_began_last(const WaitDeadlock *deadlock)
{
	for (int i = 1; i < deadlock->nmembers; i++)
		if (deadlock->members[i].edge.wait.began >
			deadlock->members[0].edge.wait.began)
			return false;
	return true;
}

/* An instance sends an act. */
void
truth_on_act_sent(int cluster, const DetectorOp *op)
{
	const TreeNode *probe = tree_find(tree_zxid(), op->checks[0].path);
	WaitDeadlock deadlock;

	if (probe == NULL ||
		!probe_parse(probe->data, (int) strlen(probe->data), &deadlock))
		return;
	for (int i = 0; i < deadlock.nmembers; i++)
	{
		int			number = find_edge(&deadlock.members[i]);
		int			pid = deadlock.members[i].edge.wait.wait.pid;

		if (number >= 0 && pid / 100 == cluster + 1 &&
			world->edges[number].death != FOREVER)
		{
			waits_free_deadlock(&deadlock);
			world_check(false,
						"T9: what is its own is there when an act is sent");
			return;
		}
	}
	waits_free_deadlock(&deadlock);
}

/* An act has been carried out. */
void
truth_on_act(const DetectorOp *op, const char *probe)
{
	static EdgeSet set;
	WaitDeadlock deadlock;
	int64_t		step = 0;
	int			nmembers;
	int			between;
	bool		waits_for_lock;
	bool		began_last;

	world_check(probe_parse(probe, (int) strlen(probe), &deadlock),
				"a probe is well-formed");
	world->acts++;
	if (deadlock.nmembers > world->largest)
		world->largest = deadlock.nmembers;
	set.n = 0;
	for (int i = 0; i < deadlock.nmembers; i++)
	{
		int			number = find_edge(&deadlock.members[i]);
		const WorldEdge *edge = &world->edges[number < 0 ? 0 : number];

		if (number < 0)
			break;
		set.edges[set.n] = number;
		set.in[set.n++] = true;
		if (edge->birth > step)
			step = edge->birth;
		if (!world_is_session(edge->to) &&
			world->contenders[edge->to].birth > step)
			step = world->contenders[edge->to].birth;
		between = world_vertex(deadlock.members[i].between);
		if (between >= 0 && world->contenders[between].birth > step)
			step = world->contenders[between].birth;
	}
	nmembers = deadlock.nmembers;
	waits_for_lock =
		deadlock.members[0].edge.wait.kind != NOTE_WAIT_SESSION;
	began_last = victim_began_last(&deadlock);
	waits_free_deadlock(&deadlock); /* a check that fails does not return */
	world_check(set.n == nmembers, "T1: each edge was there");
	world_check(waits_for_lock, "T3: the victim waits for a lock");
	world_check(began_last, "T3: the victim began last");
	for (int i = 0; i < set.n; i++)
	{
		world_check(world->edges[set.edges[i]].death > step,
					"T1: all edges were there at one moment");
		world_check(!is_acted(&world->edges[set.edges[i]]),
					"T4: no edge has been a victim");
	}
	world_check(world_vertex(op->request.path) ==
				world->edges[set.edges[0]].from,
				"T3: the first member is the victim");
	world_check(keep_only(&set, step) == set.n,
				"T1: the deadlock was there at one moment");
	check_minimal(&set, step);
	world->edges[set.edges[0]].acted = true;
}

/* The worker that would have told these victims is gone. */
void
truth_forget_acts(int cluster)
{
	for (int i = 0; i < world->nedges; i++)
	{
		WorldEdge  *edge = &world->edges[i];

		if (edge->acted && world->contenders[edge->to].cluster == cluster &&
			!world_is_marked(cluster, edge->wait))
			edge->acted = false;
	}
}

/* This backend's wait fails. */
void
truth_on_victim(const WorldBackend *victim)
{
	for (int i = 0; i < world->nedges; i++)
	{
		const WorldEdge *edge = &world->edges[i];

		if (edge->acted && edge->wait.pid == victim->pid &&
			edge->wait.since == victim->wait_since)
			world_check(!edge->ahead,
						"T7: nobody fails in place of a member");
	}
}

/* A session's znode is made. */
void
truth_on_session_node(const char *path)
{
	VertexNode	node;

	world_check(vertex_parse_node(strrchr(path, '/') + 1, &node),
				"a session's znode has a name");
	for (int i = 0; i < world->nnodes; i++)
		world_check(memcmp(&world->nodes[i], &node, sizeof(node)) != 0,
					"T8: no name is used twice");
	world_check(world->nnodes < WORLD_NODES, "there is room for znodes");
	world->nodes[world->nnodes++] = node;
}
