/*-------------------------------------------------------------------------
 *
 * check.c
 *		The checkers: what backends tell of their locks is compared with what
 *		the locks promise.
 *
 * A section is what a committed transaction did under a lock, from the moment
 * at which it was told that it has the lock to its commit record, or to its
 * zk_unlock().  Sections of one lock must not overlap.  If the later one began
 * after the check ahead of the earlier one's commit, it is the pause that
 * doc/guarantees.md names, and is counted.
 *
 * All times are true ones.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/check.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "workload.h"
#include "zookeeper.h"

#define MAX_HOLDS		64
#define MAX_SECTIONS	64
#define MAX_ROWS		8

/*
 * What is decided is decided by a multi, and the victim hears of it later: by
 * how much, at the most, and how long a fault is felt.
 */
#define LATE_US			40000
#define DISTURBED_US	5000000

/* For so long an instance may not hear that its session has been closed. */
#define OUTSIDE_US		15000000

typedef struct Hold
{
	int			name;
	SimMode		mode;
	bool		session;
	int			level;			/* of savepoints; 0: none */
	int64_t		from;
	int64_t		until;			/* of zk_unlock(); 0: still held */
	int64_t		token;			/* or 0: not known */
} Hold;

typedef struct Client
{
	bool		known;
	int			instance;
	Hold		holds[MAX_HOLDS];
	int			nholds;
	int			level;
	int64_t		began_at;		/* the transaction */
	int64_t		checked_at;		/* ahead of its commit */

	/* its wait */
	bool		waits;
	int			names[SIM_MAX_NAMES];
	int			nnames;
	int			row;			/* or -1 */
	SimMode		mode;
	bool		any;
	bool		timed;			/* it may end by itself */
	int64_t		since;
	bool		in_cycle;		/* since this wait began */
	bool		maybe_in_cycle;
	bool		was_in_cycle;	/* which a victim has ended */
	int64_t		cycle_ended_at; /* by another one's timeout, say; or 0 */
	bool		ended_here;		/* by one of its own instance, and only so */
	bool		rows[MAX_ROWS]; /* that it has locked */
} Client;

typedef struct Section
{
	int			client;
	SimMode		mode;
	int64_t		from;
	int64_t		checked_at;
	int64_t		to;
	int64_t		token;			/* or 0: not known */
}			Section;

/* What a worker has published of one of its sessions. */
typedef struct Lease
{
	int64_t		id;				/* of the session */
	int64_t		until;			/* of the machine's clock */
	bool		expired;		/* the session has, by the servers' clock */
} Lease;

#define MAX_LEASES		16

/* An act, and when the look began that was the last ahead of it. */
typedef struct Act
{
	int64_t		at;
	int64_t		looked_at;
}			Act;

#define MAX_ACTS		64

typedef struct Acts
{
	int64_t		looked_at;
	Act			acts[MAX_ACTS]; /* the latest */
	int			n;
}			Acts;

Totals		totals;

static Client clients[MAX_CLIENTS];
static int	nclients;			/* the highest number that is known, plus 1 */
static Section sections[SIM_MAX_NAMES][MAX_SECTIONS];
static int	nsections[SIM_MAX_NAMES];	/* ever; the latest stay */
static int64_t free_since[SIM_MAX_NAMES];
static int64_t closed_at[MAX_INSTANCES];	/* a session, from outside */
static Lease leases[MAX_INSTANCES][MAX_LEASES];
static Acts acts[MAX_INSTANCES];
static int64_t ended_at[MAX_INSTANCES]; /* a session, in whatever way */
static int64_t bound_us;		/* 0: there are faults */
static int64_t disturbed_until;
static int64_t grace_us;		/* so long a victim may fail behind its cycle */

void
check_schedule_begin(void)
{
	grace_us = LATE_US;
	disturbed_until = 0;
	memset(clients, 0, sizeof(clients));
	nclients = 0;
	memset(nsections, 0, sizeof(nsections));
	memset(free_since, 0, sizeof(free_since));
	memset(closed_at, 0, sizeof(closed_at));
	memset(acts, 0, sizeof(acts));
	memset(ended_at, 0, sizeof(ended_at));
	memset(leases, 0, sizeof(leases));
	bound_us = 0;
}

void
check_client(int client, int instance)
{
	memset(&clients[client], 0, sizeof(Client));
	clients[client].known = true;
	if (client >= nclients)
		nclients = client + 1;
	clients[client].instance = instance;
	clients[client].row = -1;
}

/*
 * Holds.
 */
static bool
modes_conflict(SimMode a, SimMode b)
{
	return a == SIM_EXCLUSIVE || b == SIM_EXCLUSIVE;
}

static bool
is_hold_of(const Hold *hold, int name, SimMode mode)
{
	return hold->name == name && hold->until == 0 &&
		(mode == SIM_PERMIT || modes_conflict(hold->mode, mode));
}

static bool
holds(const Client *client, int name, SimMode mode)
{
	for (int i = 0; i < client->nholds; i++)
		if (is_hold_of(&client->holds[i], name, mode))
			return true;
	return false;
}

static void
note_free(void)
{
	for (int name = 0; name < SIM_MAX_NAMES; name++)
	{
		bool		held = false;

		for (int i = 0; i < nclients && !held; i++)
			held = clients[i].known && holds(&clients[i], name, SIM_EXCLUSIVE);
		if (held)
			free_since[name] = 0;
		else if (free_since[name] == 0)
			free_since[name] = sim_now();
	}
}

static void
remove_hold(Client *client, int i)
{
	client->holds[i] = client->holds[--client->nholds];
}

/*
 * Cycles: who waits for whom.
 */

/* May this one wait for that?  "sure": for that one's hold, or its place. */
static bool
waits_for(const Client *a, const Client *b, bool sure)
{
	if (!a->waits || a == b)
		return false;
	if (a->row >= 0)
		return a->instance == b->instance &&
			(b->rows[a->row] || (b->waits && b->row == a->row &&
								 (!sure || b->since < a->since)));
	for (int i = 0; i < a->nnames; i++)
	{
		/* whoever has a late number waits for readers, too */
		if (holds(b, a->names[i], a->mode) ||
			(!sure && workload_counter_ends() &&
			 holds(b, a->names[i], SIM_EXCLUSIVE)))
			return true;
		if (!b->waits || b->row >= 0 || (sure && b->since > a->since))
			continue;
		for (int j = 0; j < b->nnames; j++)
			if (a->names[i] == b->names[j] &&
				(a->mode == SIM_PERMIT || modes_conflict(a->mode, b->mode) ||
				 (!sure && workload_counter_ends())))
				return true;
	}
	return false;
}

/*
 * Find whom this one waits for, himself or by way of others; or who waits so for
 * him.
 */
static void
follow(int from, bool *visited, bool sure, bool back)
{
	for (int i = 0; i < nclients; i++)
	{
		if (!clients[i].known || visited[i] ||
			!(back ? waits_for(&clients[i], &clients[from], sure) :
			  waits_for(&clients[from], &clients[i], sure)))
			continue;
		visited[i] = true;
		follow(i, visited, sure, back);
	}
}

static bool
is_in_cycle(int number, bool sure)
{
	bool		visited[MAX_CLIENTS] = {false};

	follow(number, visited, sure, false);
	return visited[number];
}

/*
 * This one has begun to wait, or to hold: who is in a cycle now?  Any new one
 * leads by way of this one.
 */
static void
note_cycles(int number)
{
	for (int sure = 1; sure >= 0; sure--)
	{
		bool		ahead[MAX_CLIENTS] = {false};
		bool		behind[MAX_CLIENTS] = {false};

		follow(number, ahead, sure, false);
		if (!ahead[number])
			continue;
		follow(number, behind, sure, true);
		for (int i = 0; i < nclients; i++)
			if (!ahead[i] || !behind[i] || !clients[i].waits)
				continue;
			else if (sure)
				clients[i].in_cycle = true;
			else
				clients[i].maybe_in_cycle = true;
	}
}

/*
 * Somebody waits or holds no more: who is in no cycle any more?  "leaver" is
 * whose wait has ended, or NULL.
 */
static void
note_ended_cycles(const Client *leaver)
{
	for (int i = 0; i < nclients; i++)
	{
		Client	   *client = &clients[i];

		if (!client->known || !client->waits)
			continue;
		if (client->in_cycle && !is_in_cycle(i, true))
		{
			client->in_cycle = client->maybe_in_cycle = false;
			client->cycle_ended_at = sim_now();
			client->ended_here = leaver != NULL &&
				leaver->instance == client->instance;
		}
		else if (leaver == NULL || leaver->instance != client->instance)
			client->ended_here = false;
	}
}

static void
begin_wait(int number)
{
	Client	   *client = &clients[number];

	client->waits = true;
	client->timed = false;
	client->in_cycle = client->maybe_in_cycle = client->was_in_cycle = false;
	client->cycle_ended_at = 0;
	client->ended_here = false;
	client->since = sim_now();
	note_cycles(number);
}

void
check_want(int number, const int *names, int n, SimMode mode, bool any)
{
	Client	   *client = &clients[number];
	char		list[SIM_MAX_NAMES * 8] = "";

	client->nnames = n;
	for (int i = 0; i < n; i++)
	{
		client->names[i] = names[i];
		snprintf(list + strlen(list), sizeof(list) - strlen(list), " %d",
				 names[i]);
	}
	client->row = -1;
	client->mode = mode;
	client->any = any;
	sim_trace("wants%s, mode %d%s", list, mode, any ? ", any" : "");
	begin_wait(number);
}

void
check_want_row(int number, int row)
{
	clients[number].row = row;
	clients[number].nnames = 0;
	sim_trace("wants row %d", row);
	begin_wait(number);
}

void
check_want_timed(int number)
{
	clients[number].timed = true;
}

void
check_want_end(int number)
{
	clients[number].waits = false;
	note_ended_cycles(&clients[number]);
}

bool
check_is_waiting(int number)
{
	return clients[number].waits;
}

void
check_acquired_row(int number, int row)
{
	clients[number].rows[row] = true;
	note_cycles(number);
}

/* zk_unlock() has undone the latest hold that was not undone. */
void
check_unlocked(int number, int name)
{
	Client	   *client = &clients[number];

	for (int i = client->nholds - 1; i >= 0; i--)
		if (client->holds[i].name == name && client->holds[i].until == 0)
		{
			client->holds[i].until = sim_now();
			break;
		}
	sim_trace("unlocks %d", name);
	note_free();
}

void
check_unlocked_session(int number)
{
	Client	   *client = &clients[number];

	for (int i = 0; i < client->nholds; i++)
		if (client->holds[i].session && client->holds[i].until == 0)
			client->holds[i].until = sim_now();
	sim_trace("unlocks all");
	note_free();
}

/*
 * The order of the queue: whoever is told that it has a lock has a contender of
 * its instance ahead of all others that exclude it.  What is ahead is never
 * created later, so this does not depend on when it is looked at.
 */
typedef struct QueueLook
{
	int			instance;
	bool		shared;
	int64_t		first_own;		/* number of its first contender, or -1 */
	int64_t		first_other;	/* that excludes it, or -1 */
} QueueLook;

static void
look_at_contender(const char *child, int instance, int64_t number, void *arg)
{
	QueueLook  *look = arg;
	bool		reads = strstr(child, "__READ__") != NULL;
	int64_t    *first = instance == look->instance ? &look->first_own :
		&look->first_other;

	if (instance != look->instance ? look->shared && reads :
		reads && !look->shared)
		return;
	if (*first < 0 || number < *first)
		*first = number;
}

static void
check_order(int number, int name, SimMode mode)
{
	const Client *client = &clients[number];
	QueueLook	look = {
		.instance = client->instance,.shared = mode == SIM_SHARED,
		.first_own = -1,.first_other = -1
	};
	char		path[64];

	if (mode == SIM_PERMIT || workload_counter_ends() ||
		(ended_at[client->instance] != 0 &&
		 ended_at[client->instance] > client->since - OUTSIDE_US))
		return;
	snprintf(path, sizeof(path), "/zklock/%s", workload_name(name));
	ensemble_look_at_queue(path, look_at_contender, &look);
	if (look.first_own < 0)
		sim_violation("order", "client %d has lock %d with no contender",
					  number, name);
	if (look.first_other >= 0 && look.first_other < look.first_own)
		sim_violation("order", "client %d has lock %d with number %" PRId64
					  ", and %" PRId64 " is ahead", number, name,
					  look.first_own, look.first_other);
}

/* A session of the instance has ended, and with it contenders. */
void
check_session_ended(int instance)
{
	ended_at[instance] = sim_now();
}

void
check_acquired(int number, int name, SimMode mode, bool session)
{
	Client	   *client = &clients[number];

	if (client->nholds == MAX_HOLDS)
		sim_lacks("so many holds");
	client->holds[client->nholds++] = (Hold)
	{
		.name = name,.mode = mode,.session = session,.level = client->level,
			.from = sim_now()
	};
	totals.acquired++;
	sim_mix((uint64_t) name);
	sim_trace("has %d, mode %d%s", name, mode, session ? ", for the session" : "");
	check_order(number, name, mode);
	note_free();
	note_cycles(number);
}

/*
 * Transactions.
 */
void
check_begin(int number)
{
	clients[number].began_at = sim_now();
	clients[number].level = 0;
	sim_trace("begin");
}

void
check_savepoint(int number)
{
	clients[number].level++;
	sim_trace("savepoint");
}

void
check_release_savepoint(int number)
{
	Client	   *client = &clients[number];

	client->level--;
	for (int i = 0; i < client->nholds; i++)
		if (client->holds[i].level > client->level)
			client->holds[i].level = client->level;
}

/* What was taken since the savepoint is given back. */
void
check_rolled_back_to(int number)
{
	Client	   *client = &clients[number];

	for (int i = client->nholds - 1; i >= 0; i--)
		if (client->holds[i].level >= client->level &&
			!client->holds[i].session)
			remove_hold(client, i);
	client->level--;
	sim_trace("rolled back to a savepoint");
	note_free();
}

/* The transaction is over, whatever became of it. */
void
check_ended(int number)
{
	Client	   *client = &clients[number];

	for (int i = client->nholds - 1; i >= 0; i--)
		if (!client->holds[i].session || client->holds[i].until != 0)
			remove_hold(client, i);
		else
			client->holds[i].level = 0;
	client->level = 0;
	memset(client->rows, 0, sizeof(client->rows));
	note_free();
	note_ended_cycles(NULL);
}

void
check_rolled_back(int number)
{
	totals.rolled_back++;
	sim_trace("rolled back");
	check_ended(number);
}

/* The check ahead of the commit is over. */
void
check_committing(int number)
{
	clients[number].checked_at = sim_now();
	sim_trace("may commit");
}

/* Somebody has closed a session of the instance, of which no lease can tell. */
void
check_closed_outside(int instance)
{
	closed_at[instance] = sim_now();
}

/*
 * Leases: as long as one runs, the servers do not end the session by themselves.
 */
static void
compare_lease(int instance, const Lease *lease)
{
	int64_t		now = sim_boottime(instance_at(instance));

	if (lease->expired && lease->until > now)
		sim_violation("lease",
					  "session %" PRIx64 " of instance %d has expired %" PRId64
					  " us ahead of the end of its lease", lease->id, instance,
					  lease->until - now);
}

void
check_session(int instance, int number, int64_t id)
{
	Lease	   *lease = &leases[instance][number];

	assert(number < MAX_LEASES);
	if (lease->id != id)
		*lease = (Lease) {.id = id};
}

/* The worker publishes a lease. */
void
check_lease(int instance, int number, int64_t until)
{
	assert(number < MAX_LEASES);
	leases[instance][number].until = until;
	compare_lease(instance, &leases[instance][number]);
}

/* The leader ends a session of which it has not heard for its timeout. */
void
check_expired(int instance, int64_t id)
{
	for (int i = 0; i < MAX_LEASES; i++)
		if (leases[instance][i].id == id)
		{
			leases[instance][i].expired = true;
			compare_lease(instance, &leases[instance][i]);
		}
}

/* The fencing token of what has been acquired last. */
void
check_token(int number, int name, int64_t token)
{
	Client	   *client = &clients[number];

	sim_trace("token of %d: %" PRIx64, name, token);
	for (int i = client->nholds - 1; i >= 0; i--)
		if (client->holds[i].name == name)
		{
			client->holds[i].token = token;
			break;
		}
}

static bool
was_closed_outside(const Section * section)
{
	int64_t		at = closed_at[clients[section->client].instance];

	return at != 0 && at > section->from - OUTSIDE_US && at <= section->to;
}

static void
compare_sections(int name, const Section * a, const Section * b)
{
	const		Section *first = a->from <= b->from ? a : b;
	const		Section *second = first == a ? b : a;

	if (first->to <= second->from && first->token > second->token &&
		second->token != 0 && !was_closed_outside(first) &&
		!was_closed_outside(second))
		sim_violation("tokens",
					  "lock %d: client %d had %" PRIx64
					  ", and client %d later %" PRIx64,
					  name, first->client, first->token, second->client,
					  second->token);
	if (a->client == b->client || first->to <= second->from ||
		!modes_conflict(a->mode, b->mode))
		return;
	if (was_closed_outside(first) || was_closed_outside(second))
	{
		totals.outside++;
		sim_trace("a session was closed from outside: lock %d", name);
		return;
	}
	if (second->from > first->checked_at)
	{
		totals.holes++;
		sim_trace("a pause between check and commit: lock %d", name);
		return;
	}
	sim_violation("mutual exclusion",
				  "lock %d: client %d from %" PRId64 " to %" PRId64
				  ", checked at %" PRId64 ", and client %d from %" PRId64
				  " to %" PRId64 ", checked at %" PRId64,
				  name, first->client, first->from, first->to,
				  first->checked_at, second->client, second->from, second->to,
				  second->checked_at);
}

/* More permits than there are, at the moment at which this one began? */
static void
count_permits(int name, const Section * section)
{
	int			n = nsections[name] < MAX_SECTIONS ? nsections[name] :
	MAX_SECTIONS;
	bool		has[MAX_CLIENTS] = {false};
	int			at_once = 1;

	for (int i = 0; i < n; i++)
	{
		const		Section *other = &sections[name][i];

		/* the holds of a session share its permit */
		if (other->client == section->client || has[other->client] ||
			other->from > section->from || other->to <= section->from ||
			other->checked_at <= section->from)
			continue;
		has[other->client] = true;
		at_once++;
	}
	if (at_once > workload_permits())
		sim_violation("permits", "%d holders of %d permits of %d", at_once,
					  workload_permits(), name);
}

static void
add_section(int name, const Section * section)
{
	int			n = nsections[name] < MAX_SECTIONS ? nsections[name] :
	MAX_SECTIONS;

	if (section->mode == SIM_PERMIT)
		count_permits(name, section);
	else
		for (int i = 0; i < n; i++)
			compare_sections(name, &sections[name][i], section);
	sections[name][nsections[name]++ % MAX_SECTIONS] = *section;
}

/* The commit record is written. */
void
check_committed(int number)
{
	Client	   *client = &clients[number];

	totals.committed++;
	sim_trace("committed");
	for (int i = 0; i < client->nholds; i++)
	{
		const Hold *hold = &client->holds[i];
		Section		section = {
			.client = number,.mode = hold->mode,
			.from = hold->from > client->began_at ? hold->from : client->began_at,
			.checked_at = client->checked_at,
			.to = hold->until != 0 ? hold->until : sim_now(),
			.token = hold->token
		};

		if (section.from < section.to)
			add_section(hold->name, &section);
	}
}

static bool
holds_anything(const Client *client)
{
	if (client->nholds > 0)
		return true;
	for (int i = 0; i < MAX_ROWS; i++)
		if (client->rows[i])
			return true;
	return false;
}

/* Processes stand still for so long at the most. */
void
check_expect_naps(int64_t longest_us)
{
	grace_us = LATE_US + 3 * longest_us;
}

/* What is decided from now on, for so long, may be heard of much later. */
void
check_disturb(int64_t us)
{
	int64_t		until = sim_now() + us + DISTURBED_US;

	if (until > disturbed_until)
		disturbed_until = until;
}

static bool
may_be_late(const Client *client)
{
	return client->cycle_ended_at != 0 &&
		(sim_now() < disturbed_until ||
		 sim_now() - client->cycle_ended_at <= grace_us);
}

/*
 * Whoever acts looks at his own members first (confirm.c).  So an act that ends
 * this wait left ahead of the end of the cycle, or the look ahead of it began
 * before; any act will do, since it does not tell whose wait it ends.
 */
static bool
was_looked_at(const Client *client)
{
	const		Acts *of = &acts[client->instance];

	for (int i = 0; i < MAX_ACTS; i++)
		if (of->acts[i].at >= client->since &&
			of->acts[i].looked_at <= client->cycle_ended_at)
			return true;
	return false;
}

/* A worker looks at what its backends wait for. */
void
check_look(int instance)
{
	acts[instance].looked_at = sim_now();
}

/* A worker sends the end of a deadlock. */
void
check_act(int instance)
{
	Acts	   *of = &acts[instance];

	of->acts[of->n++ % MAX_ACTS] = (Act)
	{
		.at = sim_now(),.looked_at = of->looked_at
	};
}

/*
 * Does anybody hold this by a contender that the servers have?  An instance that
 * stands still goes on holding what its session has lost.
 */
static bool
is_held(int name, SimMode mode)
{
	for (int i = 0; i < nclients; i++)
	{
		const Client *client = &clients[i];

		for (int j = 0; j < client->nholds; j++)
			if (is_hold_of(&client->holds[j], name, mode) &&
				client->holds[j].from > ended_at[client->instance])
				return true;
	}
	return false;
}

/*
 * Has it nothing that others wait for, but its place ahead of them?  What a call
 * for all of several locks may have is what nobody holds.
 */
static bool
is_bystander(const Client *client)
{
	if (holds_anything(client))
		return false;
	for (int i = 0; i < client->nnames && !client->any; i++)
		if (client->nnames > 1 && !is_held(client->names[i], client->mode))
			return false;
	return true;
}

/* A victim has ended its deadlocks: who is in none now? */
static void
end_cycles(Client *victim)
{
	victim->waits = false;
	for (int i = 0; i < nclients; i++)
	{
		Client	   *client = &clients[i];

		if (!client->known || !client->in_cycle || client == victim)
			continue;
		client->in_cycle = is_in_cycle(i, true);
		client->maybe_in_cycle = is_in_cycle(i, false);
		if (!client->in_cycle)
			client->was_in_cycle = true;
	}
}

void
check_deadlock(int number, bool local)
{
	Client	   *client = &clients[number];

	if (local)
		totals.deadlocks_here++;
	else
		totals.deadlocks_between++;
	sim_trace("deadlock, %s", local ? "here" : "between instances");
	client->in_cycle |= is_in_cycle(number, true);
	client->maybe_in_cycle |= is_in_cycle(number, false);
	if (!client->in_cycle && client->maybe_in_cycle)
		totals.unclear++;
	else if (!client->in_cycle && !local && client->ended_here &&
			 client->cycle_ended_at != 0 && !was_looked_at(client))
		sim_violation("victims", "client %d: its deadlock had ended here",
					  number);
	else if (!client->in_cycle && may_be_late(client))
		totals.late++;
	else if (!client->in_cycle && client->was_in_cycle)
		sim_violation("victims", "client %d was in a deadlock that had a victim",
					  number);
	else if (!client->in_cycle)
		sim_violation("victims", "client %d was in no deadlock", number);
	if (!local && is_bystander(client))
		sim_violation("victims", "client %d keeps nothing from anybody", number);
	if (!local)
		end_cycles(client);
}

void
check_failed(int number, const char *sqlstate, const char *message)
{
	totals.failed++;
	if (strcmp(sqlstate, "40001") == 0)
		totals.lost++;
	else if (strcmp(sqlstate, "55P03") == 0)
		totals.timeouts++;
	else if (strcmp(sqlstate, "40P01") != 0 && strcmp(sqlstate, "57014") != 0 &&
			 strcmp(sqlstate, "57P01") != 0 && strcmp(sqlstate, "57P03") != 0 &&
			 strcmp(sqlstate, "55000") != 0 && strcmp(sqlstate, "53200") != 0)
		sim_violation("errors", "client %d: %s %s", number, sqlstate, message);
}

/* The process of the client is gone. */
void
check_gone(int number)
{
	int			instance = clients[number].instance;

	check_client(number, instance);
	note_free();
	note_ended_cycles(NULL);
}

/*
 * Liveness: there are no faults any more.
 */
static bool
is_free_for(const Client *client)
{
	int64_t		now = sim_now();

	for (int i = 0; i < client->nnames; i++)
	{
		int64_t		since = free_since[client->names[i]];
		bool		is_free = since != 0 && now - since > bound_us;

		if (client->any && is_free)
			return true;
		if (!client->any && !is_free)
			return false;
	}
	return !client->any && client->nnames > 0;
}

static void
look(void *arg)
{
	(void) arg;
	for (int i = 0; i < nclients; i++)
	{
		const Client *client = &clients[i];

		if (client->known && client->waits && client->row < 0 &&
			sim_now() - client->since > bound_us && is_free_for(client))
			sim_violation("lost wake-up",
						  "client %d has waited since %" PRId64
						  " for lock %d, which is free since %" PRId64,
						  i, client->since, client->names[0],
						  free_since[client->names[0]]);
	}
	sim_at(sim_now() + 500000, look, NULL);
}

void
check_calm(int64_t us)
{
	bound_us = us;
	for (int i = 0; i < SIM_MAX_NAMES; i++)
		if (free_since[i] != 0)
			free_since[i] = sim_now();
	sim_at(sim_now() + bound_us, look, NULL);
}

const char *
check_describe(int number)
{
	static char text[128];
	const Client *client = &clients[number];

	snprintf(text, sizeof(text), "%s%s%d since %" PRId64 ", holds %d",
			 client->waits ? "waits for " : "does not wait ",
			 client->row >= 0 ? "row " : "lock ",
			 client->row >= 0 ? client->row : client->names[0],
			 client->since, client->nholds);
	return text;
}

/*
 * At rest: nothing is left.
 */
static void
visit_node(const char *path, int64_t owner, int64_t czxid, void *arg)
{
	(void) czxid;
	(void) arg;
	if (owner != 0 && strncmp(path, "/zklock/%clusters", 17) != 0)
		sim_violation("leaks", "znode %s of session %" PRIx64, path, owner);
}

void
check_at_rest(void)
{
	ensemble_visit(visit_node, NULL);
	for (int i = 0; i < instances_count(); i++)
	{
		Instance   *instance = instance_at(i);
		int			slots;
		int			procs;
		long		bytes;

		if (instance_worker(instance) == NULL)
			sim_violation("worker", "instance %d has no worker", i);
		process_guest(instance_worker(instance))->inspect(&slots, &procs,
														  &bytes);
		if (slots != 0 || procs != 0)
			sim_violation("leaks", "instance %d: %d slots, %d processes",
						  i, slots, procs);
		sim_trace("instance %d at rest: %ld bytes of paths", i, bytes);
	}
	if (library_watches("/zklock/l") > 0)
		sim_violation("leaks", "%d watches in the library",
					  library_watches("/zklock/l"));
	if (ensemble_watches("/zklock/l") > 0)
		sim_violation("leaks", "%d watches at the servers",
					  ensemble_watches("/zklock/l"));
}
