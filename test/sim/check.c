/*-------------------------------------------------------------------------
 *
 * check.c
 *		The checkers: what backends tell of their locks is compared with what
 *		the locks promise.
 *
 * A section is what a committed transaction did under a lock, from the moment
 * at which it was told that it has the lock to its commit record, or to its
 * zk_unlock().  Sections of one lock must not overlap.  If the earlier one's
 * session ended between its check and its commit record, and the later one began
 * meanwhile, it is the pause that doc/guarantees.md names, and is counted.
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

/*
 * A lock that has been granted is given up if no backend takes it for some
 * 100 ms: those that stand still no longer than this at a time take it before.
 */
#define PROMPT_US		16000

/* For so long an instance may not hear that its session has been closed. */
#define OUTSIDE_US		15000000

/*
 * So long a lock that is free may have a waiter that could take it, when
 * nothing disturbs; a server's log, and its messages, take a few milliseconds.
 */
#define GRANT_US		200000

/* When faults are over, messages that were under way need so long to arrive. */
#define CALM_US			1000000

/* So long the news that others wait, and a release, may take. */
#define NEWS_US			100000

/*
 * So many overlaps may have an excuse: a few, and one more in so many
 * schedules.
 */
#define EXCUSES			5
#define EXCUSE_EVERY	100

/* So many schedules with long holds tell how many locks are lost in them. */
#define ENOUGH_LOSING	10

typedef struct Hold
{
	int			name;
	SimMode		mode;
	bool		session;
	int			level;			/* of savepoints; 0: none */
	int64_t		from;
	int64_t		until;			/* of zk_unlock(); 0: still held */
	bool		marked;			/* undone, but it goes with the transaction */
	int64_t		token;			/* or 0: not known */
	int64_t		zk_session;		/* or 0: it was lost by then */
	int			claim;			/* that it becomes or uses, plus 1; or 0 */
	bool		alone;			/* it excludes those of its instance only */
} Hold;

typedef struct Client
{
	bool		known;
	int			instance;
	int64_t		renewed_in;		/* the session of the claim renewed last */
	Hold		holds[MAX_HOLDS];
	int			nholds;
	int			level;
	int64_t		began_at;		/* the transaction */
	int64_t		commit_at;		/* COMMIT has begun, */
	int64_t		commit_boottime;	/* by the machine's clock, too; */
	int64_t		commit_session; /* of its locks; 0: it has none */
	char		commit_lost[32];	/* a lock that was lost already; or "" */
	int64_t		clock_read_at;
	int64_t		checked_at;		/* ahead of its commit */
	bool		asks;			/* its commit has, for a proof */

	/* its wait */
	bool		waits;
	int			names[SIM_MAX_NAMES];
	int			nnames;
	int			row;			/* or -1 */
	SimMode		mode;
	bool		any;
	bool		alone;			/* for those of its instance only */
	bool		timed;			/* it may end by itself */
	bool		next;			/* nobody but writers of its instance is
								 * ahead */
	int64_t		since;
	int			acts_before;	/* number of acts ahead of it */
	bool		in_cycle;		/* since this wait began */
	bool		maybe_in_cycle;
	bool		was_in_cycle;	/* which a victim has ended, ... */
	int			acted;			/* ... by this act, or one before */
	int64_t		cycle_ended_at; /* by another one's timeout, say; or 0 */
	bool		goes_on;		/* in a cycle that may be one, ... */
	int64_t		went_on_until;	/* ... until then; or 0 */
	int64_t		victim_at;		/* when a victim ended it, if was_in_cycle */
	bool		ended_here;		/* by one of its own instance, and only so */
	bool		rows[MAX_ROWS]; /* that it has locked */

	int64_t		terminated_at;	/* its worker has, for a lost lock; or 0 */
} Client;

typedef struct Section
{
	int			client;
	int			claim;			/* that it is of, plus 1; or 0 */
	SimMode		mode;
	int64_t		from;
	int64_t		checked_at;
	int64_t		to;
	int64_t		token;			/* or 0: not known */
	int64_t		zk_session;		/* or 0: it was lost by then */
	bool		alone;			/* it excludes those of its instance only */
}			Section;

/* A session that has ended, and with it contenders. */
typedef struct Ended
{
	int64_t		id;
	int64_t		at;
	bool		outside;		/* it was closed from outside */
}			Ended;

#define MAX_ENDED		1024

/* What an instance does with a lock while others wait for it. */
typedef struct Turn
{
	int			instance;		/* the latest owner, or -1 */
	uint64_t	contender;		/* that it had it by: see look_at_contender() */
	int64_t		left_at;		/* when its first section with that contender
								 * ended; or 0.  Later by sections of the
								 * instance alone, for which the next owner
								 * had to wait */
	int64_t		busy_at;		/* when one that had it, or waited, was the last
								 * to end that */
	int64_t		writer_at;		/* when an exclusive wait was the last to end,
								 * or, without a worker, the next one starts */
	int64_t		nobody_at;		/* since when nobody has it; 0: somebody has */
	int64_t		spare_at;		/* the same of the last permit */
}			Turn;

/* What a worker has published of its session. */
typedef struct Lease
{
	int64_t		id;				/* of the session */
	int64_t		until;			/* of the machine's clock */
	int64_t		longest;		/* the latest that "until" has ever been */
	bool		expired;		/* the session has, by the servers' clock */
} Lease;

/* An act, and when the look began that was the last ahead of it. */
typedef struct Act
{
	int64_t		at;
	int64_t		looked_at;
}			Act;

/*
 * The same act, when it is carried out: whose wait it may end.
 */
typedef struct DoneAct
{
	int			number;
	int			pid;
	bool		between;		/* a reader is behind a writer that waits */
	int64_t		at;
	int64_t		confirmed_at;
}			DoneAct;

#define MAX_ACTS		64

/* A confirm of a deadlock that has been sent, and when the look ahead of it was. */
typedef struct Confirm
{
	char		path[128];
	int64_t		looked_at;
}			Confirm;

#define MAX_CONFIRMS	256

typedef struct Acts
{
	int64_t		looked_at;
	Act			acts[MAX_ACTS]; /* the latest */
	int			n;
	DoneAct		done[MAX_ACTS]; /* those that were carried out */
	int			ndone;
}			Acts;

/* Where an exclusive owner has left, and when. */
typedef struct Left
{
	char		path[64];
	int64_t		at;
}			Left;

#define LEFTS			256

Totals		totals;

static Client clients[MAX_CLIENTS];
static int	nclients;			/* the highest number that is known, plus 1 */
static Section sections[SIM_MAX_NAMES][MAX_SECTIONS];
static int	nsections[SIM_MAX_NAMES];	/* ever; the latest stay */
static int64_t free_since[SIM_MAX_NAMES];
static Ended ended[MAX_ENDED];	/* the latest */
static int	nended;				/* ever */
static Turn turns[SIM_MAX_NAMES];
static Section excused;			/* the latest one that needed an excuse */
static int64_t calm_at;			/* since then nobody stands still; 0: not yet */
static Lease leases[MAX_INSTANCES];
static Lease former_leases[MAX_INSTANCES];	/* of the sessions before those */
static Acts acts[MAX_INSTANCES];
static int	nacts;				/* that were carried out */
static Confirm confirms[MAX_CONFIRMS];	/* the latest */
static int	nconfirms;			/* ever */
static Left lefts[MAX_INSTANCES][LEFTS];	/* by the hash of the path */
static int64_t ended_at[MAX_INSTANCES]; /* a session, in whatever way */
static int64_t busy_here[MAX_INSTANCES][SIM_MAX_NAMES]; /* as busy_at */
static int64_t writer_gone_at;	/* the last one that waited; 0: none */
static int64_t restored_at;		/* an older copy of ZooKeeper's data; 0:
								 * never */
static int64_t bound_us;		/* 0: there are faults */
static int64_t disturbed_until;
static int64_t slow_until;		/* requests fail, and are sent again */
static uint64_t wanted;			/* locks */
static uint64_t handed;			/* of those, on by others of the instance */
static uint64_t again;			/* contenders for a writer that had one */
static uint64_t faults_before;	/* this schedule */
static uint64_t asked;			/* times a commit has asked for a proof */
static uint64_t requests_before;	/* the last part of its rest */
static int64_t grace_us;		/* so long a victim may fail behind its
								 * cycle */

void
check_schedule_begin(void)
{
	grace_us = LATE_US;
	disturbed_until = slow_until = 0;
	memset(clients, 0, sizeof(clients));
	nclients = 0;
	memset(nsections, 0, sizeof(nsections));
	memset(free_since, 0, sizeof(free_since));
	nended = 0;
	memset(ended, 0, sizeof(ended));
	memset(turns, 0, sizeof(turns));
	for (int i = 0; i < SIM_MAX_NAMES; i++)
		turns[i].instance = -1;
	calm_at = 0;
	excused = (Section){.client = -1};
	memset(acts, 0, sizeof(acts));
	nconfirms = 0;
	nacts = 0;
	memset(lefts, 0, sizeof(lefts));
	memset(ended_at, 0, sizeof(ended_at));
	memset(busy_here, 0, sizeof(busy_here));
	memset(leases, 0, sizeof(leases));
	memset(former_leases, 0, sizeof(former_leases));
	writer_gone_at = 0;
	claims_begin();
	wanted = handed = again = asked = 0;
	faults_before = totals.faults;
	restored_at = 0;
	bound_us = 0;
}

/* The schedule has been chosen. */
void
check_chosen(void)
{
	totals.losing += workload_is_losing();
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

static int
pid_of(const Client *client)
{
	return process_pid(workload_process(client - clients));
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

/* Is the lock, which zk_unlock() has given back, held until the COMMIT? */
static bool
keeps_marked(const Client *client, int name)
{
	for (int i = 0; i < client->nholds; i++)
		if (client->holds[i].name == name && client->holds[i].marked &&
			client->holds[i].mode == SIM_EXCLUSIVE)
			return true;
	return false;
}

/*
 * Does this call for all of several locks keep the others from everybody,
 * since it waits for one?  Sets "held" of those; returns whether there are
 * any.
 */
static bool
note_kept(const Client *client, bool *held)
{
	bool		waits = false;
	bool		any = false;

	if (!client->waits || client->any || client->nnames < 2)
		return false;
	for (int i = 0; i < client->nnames; i++)
		waits |= held[client->names[i]];
	for (int i = 0; i < client->nnames && waits; i++)
	{
		any |= !held[client->names[i]];
		held[client->names[i]] = true;
	}
	return any;
}

/*
 * Since when has nobody had each lock, in whatever mode?  "kept": those that
 * nobody may have, since somebody has them exclusively, or a call for all of
 * several locks does.
 */
static void
note_nobody(const bool *kept)
{
	bool		had[SIM_MAX_NAMES];

	memcpy(had, kept, sizeof(had));
	for (int i = 0; i < nclients; i++)
		for (int j = 0; j < clients[i].nholds; j++)
			if (clients[i].holds[j].until == 0)
				had[clients[i].holds[j].name] = true;
	for (int name = 0; name < SIM_MAX_NAMES; name++)
		if (had[name])
			turns[name].nobody_at = 0;
		else if (turns[name].nobody_at == 0)
			turns[name].nobody_at = sim_now();
}

/* Since when has each semaphore had a permit that nobody has? */
static void
note_spare(void)
{
	int			used[SIM_MAX_NAMES] = {0};

	for (int i = 0; i < nclients; i++)
		for (int j = 0; j < clients[i].nholds; j++)
			if (clients[i].holds[j].mode == SIM_PERMIT)
				used[clients[i].holds[j].name]++;
	for (int name = 0; name < SIM_MAX_NAMES; name++)
		if (used[name] >= workload_permits())
			turns[name].spare_at = 0;
		else if (turns[name].spare_at == 0)
			turns[name].spare_at = sim_now();
}

static void
note_free(void)
{
	bool		held[SIM_MAX_NAMES];
	bool		again = true;

	for (int name = 0; name < SIM_MAX_NAMES; name++)
	{
		held[name] = claims_hold(name);
		for (int i = 0; i < nclients && !held[name]; i++)
			held[name] = clients[i].known &&
				(holds(&clients[i], name, SIM_EXCLUSIVE) ||
				 keeps_marked(&clients[i], name));
	}
	while (again)
	{
		again = false;
		for (int i = 0; i < nclients; i++)
			again |= note_kept(&clients[i], held);
	}
	for (int name = 0; name < SIM_MAX_NAMES; name++)
		if (held[name])
			free_since[name] = 0;
		else if (free_since[name] == 0)
			free_since[name] = sim_now();
	note_nobody(held);
	note_spare();
}

static void
remove_hold(Client *client, int i)
{
	int			name = client->holds[i].name;
	bool		exclusive = client->holds[i].mode == SIM_EXCLUSIVE;
	bool		alone = client->holds[i].alone;
	int64_t		from = client->holds[i].from;
	Turn	   *turn = &turns[name];

	turn->busy_at = busy_here[client->instance][name] = sim_now();
	client->holds[i] = client->holds[--client->nholds];
	if (turn->instance != client->instance)
		return;
	if (exclusive && !alone && turn->left_at == 0 &&
		!holds(client, name, SIM_EXCLUSIVE))
		turn->left_at = sim_now();
	else if (alone && turn->left_at != 0)
		turn->left_at += sim_now() - (from > turn->left_at ? from : turn->left_at);
}

/*
 * Cycles: who waits for whom.
 */

/* Does this one, or its hold, say nothing to that one? */
static bool
is_apart(const Client *a, const Client *b, bool alone)
{
	return a->instance != b->instance && (a->alone || alone);
}

/* Does that one hold what this one waits for? */
static bool
is_kept_by(const Client *a, const Client *b, int name, SimMode mode)
{
	for (int i = 0; i < b->nholds; i++)
		if (is_hold_of(&b->holds[i], name, mode) &&
			!is_apart(a, b, b->holds[i].alone))
			return true;
	return false;
}

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
		if (is_kept_by(a, b, a->names[i], a->mode) ||
			(!sure && workload_counter_ends() &&
			 is_kept_by(a, b, a->names[i], SIM_EXCLUSIVE)))
			return true;
		if (!b->waits || b->row >= 0 || (sure && b->since > a->since) ||
			is_apart(a, b, b->alone))
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
 * Find whom this one waits for, himself or by way of others; or who waits so
 * for him.
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
			client->goes_on = true;
			client->cycle_ended_at = sim_now();
			client->ended_here = leaver != NULL &&
				leaver->instance == client->instance;
		}
		else if (leaver == NULL || leaver->instance != client->instance)
			client->ended_here = false;
		if (client->goes_on)
		{
			client->goes_on = is_in_cycle(i, false);
			client->went_on_until = sim_now();
		}
	}
}

static void
begin_wait(int number)
{
	Client	   *client = &clients[number];

	client->waits = true;
	client->timed = false;
	client->in_cycle = client->maybe_in_cycle = client->was_in_cycle = false;
	client->cycle_ended_at = client->went_on_until = 0;
	client->ended_here = client->goes_on = false;
	client->since = sim_now();
	client->acts_before = nacts;
	if (client->nnames > 1)
		note_free();
	note_cycles(number);
}

/* Is this name held, and waited for, by writers of it alone? */
static bool
is_behind_writers(int number, int name)
{
	bool		held = false;

	for (int i = 0; i < nclients; i++)
	{
		const Client *client = &clients[i];

		if (i == number || !client->known)
			continue;
		for (int j = 0; j < client->nholds; j++)
			if (client->holds[j].name == name && client->holds[j].until == 0)
			{
				if (client->holds[j].mode != SIM_EXCLUSIVE)
					return false;
				held = true;
			}
		for (int j = 0; client->waits && j < client->nnames; j++)
			if (client->names[j] == name &&
				(client->nnames > 1 || client->mode != SIM_EXCLUSIVE))
				return false;
	}
	return held;
}

void
check_want(int number, const int *names, int n, SimMode mode, bool any,
		   bool alone)
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
	client->alone = alone;
	wanted += n;
	client->next = n == 1 && mode == SIM_EXCLUSIVE && !any &&
		!workload_is_alone_at_times() && !workload_has_claims() &&
		is_behind_writers(number, names[0]);
	sim_trace("wants%s, mode %d%s%s", list, mode, any ? ", any" : "",
			  alone ? ", here" : "");
	begin_wait(number);
}

void
check_want_row(int number, int row)
{
	clients[number].row = row;
	clients[number].nnames = 0;
	clients[number].alone = false;
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
	for (int i = 0; clients[number].waits && i < clients[number].nnames; i++)
	{
		Turn	   *turn = &turns[clients[number].names[i]];

		turn->busy_at = sim_now();
		busy_here[clients[number].instance][clients[number].names[i]] =
			sim_now();
		if (clients[number].mode == SIM_EXCLUSIVE)
			turn->writer_at = sim_now() +
				(instance_worker(instance_at(clients[number].instance)) ?
				 0 : SIM_RESTART_US);
		if (clients[number].nnames > 1)
			turn->contender = 0;	/* it may have had it meanwhile */
	}
	clients[number].waits = false;
	if (clients[number].nnames > 1)
		note_free();
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

/*
 * zk_unlock() has undone the latest hold that was not undone; "at_once": it
 * does not go with the transaction.
 */
void
check_unlocked(int number, int name, bool at_once)
{
	Client	   *client = &clients[number];

	for (int i = client->nholds - 1; i >= 0; i--)
		if (client->holds[i].name == name && client->holds[i].until == 0)
		{
			client->holds[i].until = sim_now();
			client->holds[i].marked = !at_once;
			break;
		}
	sim_trace("unlocks %d", name);
	note_free();
}

void
check_unlocked_session(int number, bool at_once)
{
	Client	   *client = &clients[number];

	for (int i = 0; i < client->nholds; i++)
		if (client->holds[i].session && client->holds[i].until == 0)
		{
			client->holds[i].until = sim_now();
			client->holds[i].marked = !at_once;
		}
	sim_trace("unlocks all");
	note_free();
}

/*
 * The order of the queue: whoever is told that it has a lock has a contender
 * of its instance ahead of all others that exclude it.  What is ahead is never
 * created later, so this does not depend on when it is looked at.
 */
typedef struct QueueLook
{
	int			instance;
	bool		shared;
	int64_t		first_own;		/* number of its first contender, or -1 */
	uint64_t	own;			/* the beginning of its UUID, and that: the
								 * numbers of a new directory begin at 0 */
	int64_t		first_other;	/* that excludes it, or -1 */
	int64_t		other_since;	/* when that one was created */
} QueueLook;

static void
look_at_contender(const char *child, int instance, int64_t number,
				  int64_t created, void *arg)
{
	QueueLook  *look = arg;
	bool		reads = strstr(child, "__READ__") != NULL;
	int64_t    *first = instance == look->instance ? &look->first_own :
		&look->first_other;

	if (instance != look->instance ? look->shared && reads :
		reads && !look->shared)
		return;
	if (*first >= 0 && number >= *first)
		return;
	*first = number;
	if (instance != look->instance)
		look->other_since = created;
	else
		look->own = strtoull(child + strlen("_c_"), NULL, 16) << 32 |
			(uint32_t) number;
}

static void
check_order(int number, int name, SimMode mode, int64_t since)
{
	const Client *client = &clients[number];
	QueueLook	look = {
		.instance = client->instance,.shared = mode == SIM_SHARED,
		.first_own = -1,.first_other = -1
	};
	char		path[64];

	if (mode == SIM_PERMIT || workload_counter_ends() ||
		(ended_at[client->instance] != 0 &&
		 ended_at[client->instance] > since - OUTSIDE_US))
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

/*
 * Succession: a number owns a lock with nothing read only if its directory is
 * the one that the instance's owner of before has left.
 */

static unsigned
path_hash(const char *path)
{
	unsigned	hash = 0;

	for (; *path; path++)
		hash = hash * 31 + (unsigned char) *path;
	return hash;
}

/* An exclusive owner is about to leave this directory. */
void
check_leave(int instance, const char *path)
{
	Left	   *left = &lefts[instance][path_hash(path) % LEFTS];

	left->at = sim_now();
	snprintf(left->path, sizeof(left->path), "%s", path);
}

/* A contender has been created there, and owns the lock with this number. */
void
check_next(int instance, const char *path, int number)
{
	const Left *left = &lefts[instance][path_hash(path) % LEFTS];

	if (strcmp(left->path, path) == 0 &&
		ensemble_has_new_directory(path, instance, left->at))
		sim_violation("succession",
					  "number %d would own %s, which is another directory",
					  number, path);
}

static void
note_ended(int64_t id, bool outside)
{
	ended[nended++ % MAX_ENDED] = (Ended)
	{
		.id = id,.at = sim_now(),.outside = outside
	};
}

/*
 * A session of the instance has ended, with contenders whose paths have so many
 * bytes, without those whose delete was in a batch that has failed: it goes
 * again behind creates for which it was to make room (contender.c).  What an
 * older copy has given back to it counts beside all.
 */
void
check_session_ended(int instance, int64_t id, int bytes)
{
	int			room = workload_path_bytes();

	note_ended(id, false);
	if (bytes > 0)
		ended_at[instance] = sim_now();
	if (room > 0 && bytes > room && restored_at == 0)
		sim_violation("room", "session %" PRIx64 " ends with %d bytes of paths, where %d fit",
					  id, bytes, room);
}

/*
 * Had this session ended by then?  0: the hold was lost when it was looked at,
 * so a session of the instance had.
 */
static bool
had_ended(int instance, int64_t id, int64_t by, bool outside)
{
	if (id == 0)
		return ended_at[instance] != 0 && !outside;
	for (int i = 0; i < MAX_ENDED; i++)
		if (ended[i].id == id && ended[i].at <= by &&
			(ended[i].outside || !outside))
			return true;
	return false;
}

/* The latest hold of a name by which the transaction has a claim, or NULL. */
static Hold *
find_hold_of_claim(Client *client, int name)
{
	for (int i = client->nholds - 1; i >= 0; i--)
		if (client->holds[i].name == name && client->holds[i].claim != 0)
			return &client->holds[i];
	return NULL;
}

static void
add_hold(int number, Hold hold, int64_t since)
{
	Client	   *client = &clients[number];

	if (client->nholds == MAX_HOLDS)
		sim_lacks("so many holds");
	hold.level = client->level;
	hold.from = sim_now();
	client->holds[client->nholds++] = hold;
	sim_mix((uint64_t) hold.name);
	sim_trace("has %d, mode %d%s%s", hold.name, hold.mode,
			  hold.session ? ", for the session" : "",
			  hold.alone ? ", here" : "");
	if (!hold.alone)
		check_order(number, hold.name, hold.mode, since);
	note_free();
	note_cycles(number);
}

/* From then on no fault is felt: sessions that were cut off have ended. */
static int64_t
undisturbed_from(void)
{
	int64_t		until = disturbed_until > slow_until ? disturbed_until :
		slow_until;

	return until == 0 ? 0 : until + workload_timeout_ms() * INT64_C(1000);
}

/*
 * Time: a lock that is free, and fairness: with another instance in the queue,
 * an instance hands a lock on for its quantum from the end of its first section
 * on, or from when the other one came.  A client that asked when nobody had the
 * lock or waited for it comes before those that ask while it waits for the
 * lease.  Where nothing disturbs (for time: any more), and claims do not end by
 * themselves.
 */
static void
check_turn(int number, int name, SimMode mode)
{
	const Client *client = &clients[number];
	Turn	   *turn = &turns[name];
	QueueLook	look = {
		.instance = client->instance,.first_own = -1,.first_other = -1
	};
	char		path[64];
	int64_t		now = sim_now();
	bool		calm = calm_at != 0 && client->since > calm_at + CALM_US;
	int64_t		slow_us = calm ? 0 : grace_us;
	int64_t		since = client->since;
	int64_t		free_at = mode == SIM_PERMIT ? turn->spare_at : turn->nobody_at;
	int64_t		others_since = INT64_MAX;

	if (free_at > since)
		since = free_at;
	for (int i = 0; i < nclients; i++)
	{
		const Client *other = &clients[i];

		if (other->known && other->waits && other->instance != client->instance &&
			other->nnames == 1 && other->row < 0 && other->names[0] == name &&
			!other->any && !other->alone && other->since < others_since)
			others_since = other->since;
	}
	if (holds(client, name, SIM_EXCLUSIVE))
		return;
	if (mode == SIM_EXCLUSIVE)
	{
		snprintf(path, sizeof(path), "/zklock/%s", workload_name(name));
		ensemble_look_at_queue(path, look_at_contender, &look);
		if (turn->instance != client->instance ||
			turn->contender != look.own)
			turn->left_at = 0;
		turn->instance = client->instance;
		turn->contender = look.own;
	}
	if (client->any || client->nnames != 1 ||
		workload_has_claims() || workload_counter_ends() ||
		workload_path_bytes() > 0)
		return;
	if (free_at != 0 && calm_at != 0 && since > calm_at + CALM_US &&
		since > undisturbed_from() && now - since > GRANT_US)
		sim_violation("time", "lock %d was free for %" PRId64
					  " us while client %d waited", name, now - since, number);
	if (client->since > turn->left_at && client->since < others_since)
		return;
	others_since = turn->left_at;
	if (look.first_other >= 0 && look.other_since > others_since)
		others_since = look.other_since;
	if (mode == SIM_EXCLUSIVE && turn->left_at != 0 &&
		look.first_other >= 0 && others_since > undisturbed_from() &&
		now - others_since > workload_quantum_ms() * 1000 + NEWS_US + slow_us)
		sim_violation("fairness", "instance %d takes lock %d again, for which another has waited %"
					  PRId64 " us of its turn", client->instance, name, now - others_since);
}

/*
 * A try has said no: somebody must have had the lock, or have waited for it,
 * unless it had no time, or something disturbs.
 */
void
check_denied(int number, int64_t timeout_ms)
{
	const Client *client = &clients[number];
	int64_t		late_us = GRANT_US + grace_us;

	if (client->nnames != 1 || client->mode == SIM_PERMIT ||
		workload_has_claims() || client->since <= undisturbed_from() ||
		(timeout_ms > 0 && timeout_ms * 1000 < late_us) || timeout_ms == 0)
		return;
	for (int i = 0; i < nclients; i++)
	{
		if (!clients[i].known || i == number)
			continue;
		for (int j = 0; j < clients[i].nholds; j++)
			if (clients[i].holds[j].name == client->names[0])
				return;
		for (int j = 0; clients[i].waits && j < clients[i].nnames; j++)
			if (clients[i].names[j] == client->names[0])
				return;
	}
	if (turns[client->names[0]].busy_at < client->since - late_us)
		sim_violation("errors", "client %d is refused lock %d, which nobody has",
					  number, client->names[0]);
}

/* Does a client of this instance wait for the name as a writer? */
static bool
has_waiting_writer(int instance, int name)
{
	for (int i = 0; i < nclients; i++)
	{
		const Client *client = &clients[i];

		if (!client->known || !client->waits || client->instance != instance ||
			client->mode != SIM_EXCLUSIVE)
			continue;
		for (int j = 0; j < client->nnames; j++)
			if (client->names[j] == name)
				return true;
	}
	return false;
}

/*
 * Exclusion: the lock is of the instance alone, or of all, as the call has
 * found zklock.exclusion, unless it is held already; and one of the instance
 * alone waits for nobody else.
 */
static void
check_exclusion(int number, int name, bool alone)
{
	const Client *client = &clients[number];
	int64_t		since = busy_here[client->instance][name];

	for (int i = 0; i < client->nholds; i++)
		if (client->holds[i].name == name)
			return;
	if (alone != client->alone)
		sim_violation("exclusion", "client %d has lock %d %s", number, name,
					  alone ? "of its instance alone" : "of all instances");
	if (client->since > since)
		since = client->since;
	if (alone && client->nnames == 1 && !client->any &&
		since > undisturbed_from() &&
		sim_now() - since > GRANT_US + grace_us)
		sim_violation("exclusion", "client %d has waited %" PRId64
					  " us for lock %d of its instance alone", number,
					  sim_now() - since, name);
}

void
check_acquired(int number, int name, SimMode mode, bool session, bool mine,
			   bool alone)
{
	Client	   *client = &clients[number];
	const Hold *first = find_hold_of_claim(client, name);

	totals.acquired++;
	totals.alone += alone;
	again += mode == SIM_SHARED &&
		has_waiting_writer(client->instance, name);
	check_exclusion(number, name, alone);
	if (!alone)
		check_turn(number, name, mode);
	handed += client->next;
	client->next = false;
	add_hold(number, (Hold)
			 {
				 .name = name,.mode = mode,.session = session,
				 .zk_session = mine ? leases[client->instance].id : 0,
				 .claim = first ? first->claim : 0,.alone = alone
			 }, client->since);
}

/* The transaction uses a claim. */
void
check_used(int number, int name, int claim)
{
	Client	   *client = &clients[number];
	const Hold *first = find_hold_of_claim(client, name);

	if (first != NULL && first->claim == claim + 1)
		return;
	add_hold(number, (Hold)
			 {
				 .name = name,.claim = claim + 1,
				 .zk_session = claims_session(claim)
			 }, claims_since(claim));
}

/* What was acquired last becomes a claim: since when is it held? */
int64_t
check_mark_claim(int number, int name, int claim, int64_t *session)
{
	Client	   *client = &clients[number];
	Hold	   *hold = &client->holds[client->nholds - 1];

	if (client->nholds == 0 || hold->name != name || hold->session)
		sim_violation("simulator", "no hold to claim");
	hold->claim = claim + 1;
	*session = hold->zk_session;
	return hold->from;
}

int
check_level(int number)
{
	return clients[number].level;
}

/*
 * Transactions.
 */
/*
 * Termination: a session whose worker has ended it, since it has lost a lock
 * of the session, begins no other transaction.
 */
void
check_terminated(int instance, int pid)
{
	for (int i = 0; i < nclients; i++)
		if (clients[i].known && clients[i].instance == instance &&
			workload_process(i) != NULL && pid_of(&clients[i]) == pid)
			clients[i].terminated_at = sim_now();
}

void
check_begin(int number)
{
	int64_t		terminated_at = clients[number].terminated_at;

	if (terminated_at != 0 && sim_now() - terminated_at > grace_us)
		sim_violation("termination", "client %d goes on %" PRId64
					  " us after it has lost a lock of its session", number,
					  sim_now() - terminated_at);
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
	claims_released(number, client->level);
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
	claims_rolled_back_to(number, client->level);
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
	claims_rolled_back(number);
	check_ended(number);
}

/*
 * Proofs: a transaction that commits has had all of its locks when its COMMIT
 * began, as far as its instance knew, and a proof since then that their session
 * was alive.
 */

/* COMMIT has begun; check_commit_hold() is called for each of its locks. */
void
check_commit(int number)
{
	Client	   *client = &clients[number];

	client->commit_at = sim_now();
	client->asks = false;
	client->commit_boottime = sim_boottime(instance_at(client->instance));
	client->commit_session = 0;
	client->commit_lost[0] = '\0';
}

void
check_commit_hold(int number, const char *name, bool mine)
{
	Client	   *client = &clients[number];

	if (!mine)
		snprintf(client->commit_lost, sizeof(client->commit_lost), "%s", name);
	client->commit_session = leases[client->instance].id;
}

/* By a lease of the session that was running when COMMIT began, or later. */
static void
check_proof(int number, int64_t id)
{
	const Client *client = &clients[number];
	const Lease *lease = &leases[client->instance];

	if (lease->id != id)
		lease = &former_leases[client->instance];
	if (lease->id != id || lease->longest <= client->commit_boottime)
		sim_violation("proofs", "client %d commits without a lease of session %"
					  PRIx64, number, id);
}

/* A claim has been renewed; the attempt began then. */
void
check_renewed(int instance, int64_t boottime)
{
	const Lease *lease = &leases[instance];

	clients[process_client(sim_process())].renewed_in = lease->id;
	if (lease->longest <= boottime)
		sim_violation("proofs", "a claim is renewed without a lease of session %"
					  PRIx64 " of instance %d", lease->id, instance);
}

/* The process that runs has read its clock. */
void
check_clock_read(void)
{
	int			number = process_client(sim_process());

	if (number >= 0)
		clients[number].clock_read_at = sim_now();
}

/*
 * The check ahead of the commit is over; "quorum": it asks ZooKeeper.  It is as
 * of the clock that was read last, behind which the process may have stood
 * still.
 */
void
check_committing(int number, bool quorum)
{
	Client	   *client = &clients[number];

	client->checked_at = client->clock_read_at > client->commit_at ?
		client->clock_read_at : sim_now();
	sim_trace("may commit");
	if (client->commit_lost[0] != '\0')
		sim_violation("proofs", "client %d commits without \"%s\"", number,
					  client->commit_lost);
	if (client->commit_session == 0)
		return;
	if (!quorum && !workload_is_unchecked())
		check_proof(number, client->commit_session);
	if (quorum && !client->asks)
		sim_violation("proofs", "client %d commits, and has asked for no proof",
					  number);
	if (quorum && restored_at < client->commit_at &&
		!ensemble_was_alive(client->commit_session, client->commit_at))
		sim_violation("proofs", "client %d commits, but session %" PRIx64
					  " had ended", number, client->commit_session);
}

/*
 * Somebody has closed a session of the instance, of which no lease can tell.
 */
void
check_closed_outside(int64_t id)
{
	note_ended(id, true);
}

/*
 * Leases: as long as one runs, the servers do not end the session by
 * themselves.
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
check_session(int instance, int64_t id)
{
	Lease	   *lease = &leases[instance];

	if (lease->id != id)
	{
		if (lease->id != 0)
			former_leases[instance] = *lease;
		*lease = (Lease) {.id = id};
	}
}

/* The worker publishes a lease. */
void
check_lease(int instance, int64_t until)
{
	Lease	   *lease = &leases[instance];

	lease->until = until;
	if (until > lease->longest)
		lease->longest = until;
	compare_lease(instance, lease);
}

/* The leader ends a session of which it has not heard for its timeout. */
void
check_expired(int instance, int64_t id)
{
	if (leases[instance].id != id)
		return;
	leases[instance].expired = true;
	compare_lease(instance, &leases[instance]);
}

/*
 * ZooKeeper is an older copy of itself: an instance may not know before it has
 * a connection, tokens begin again, and sessions that have ended may be alive.
 */
void
check_restored(int instance)
{
	restored_at = sim_now();
	leases[instance].expired = false;
	ended_at[instance] = sim_now();
}

/* A worker says that it is. */
void
check_noticed(int instance)
{
	sim_trace("instance %d notices the older copy", instance);
	totals.noticed++;
	if (restored_at == 0)
		sim_violation("restored", "instance %d takes ZooKeeper for an older copy",
					  instance);
}

/*
 * The worker sleeps for so long, and something is due in "due_ms"; -1: without
 * an end, and nothing is.
 */
void
check_sleep(int instance, int64_t ms, int64_t due_ms)
{
	if (due_ms >= 0 && (ms < 0 || ms > due_ms))
		sim_violation("sleep",
					  "the worker of instance %d sleeps for %" PRId64
					  " ms, and something is due in %" PRId64, instance, ms,
					  due_ms);
}

/*
 * Watches: the worker knows of all that the library has, and so how long the
 * request is that sets them again on the next connection.
 */
void
check_watches(int instance, size_t library, size_t books)
{
	if (library > books)
		sim_violation("watches",
					  "instance %d has %zu bytes of watches, and knows of %zu",
					  instance, library, books);
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

/* Had its session ended, or been closed from outside, by its commit record? */
static bool
was_lost(const Section * section, bool outside)
{
	return !section->alone &&
		had_ended(clients[section->client].instance, section->zk_session,
				  section->to, outside);
}

/* Was ZooKeeper an older copy of itself since the one began, or shortly before? */
static bool
was_restored(const Section * first, const Section * second)
{
	return restored_at != 0 && restored_at >= first->from - OUTSIDE_US &&
		(restored_at <= first->to || restored_at <= second->to);
}

/* Are enough locks lost, or in doubt, where they are to be?  One of a hundred. */
bool
check_losses(void)
{
	return totals.losing < ENOUGH_LOSING ||
		(totals.losing_lost + totals.losing_waits) * 100 >=
		totals.losing_sections;
}

/*
 * Overlaps that have one.  With commit_check = off a commit after the end of
 * the session is no excuse, but what is to be expected.
 */
static uint64_t
excuses(void)
{
	return totals.holes + totals.outside + totals.restored;
}

/* More than a handful? */
bool
check_excuses(void)
{
	return excuses() <= EXCUSES + totals.schedules / EXCUSE_EVERY;
}

/*
 * What excuses the overlap of these sections, of which the first began first?
 * NULL: nothing.
 */
static uint64_t *
excuse_for(const Section * first, const Section * second)
{
	if (second->from > first->checked_at && was_lost(first, false))
		return &totals.holes;
	if (was_lost(first, true) || was_lost(second, true))
		return &totals.outside;
	if (was_restored(first, second))
		return &totals.restored;
	if (workload_is_unchecked() &&
		(was_lost(first, false) || was_lost(second, false)))
		return &totals.unchecked;
	return NULL;
}

/*
 * Has the overlap of these sections an excuse?  Counts it, once for all
 * sections that the first one overlaps: they are compared when it ends.
 */
static bool
is_excused(const Section * first, const Section * second)
{
	uint64_t   *excuse = excuse_for(first, second);

	if (excuse == NULL)
		return false;
	if (excused.client != first->client || excused.from != first->from)
		++*excuse;
	excused = *first;
	return true;
}

/* All that is done under a claim is of one owner. */
static bool
is_same_owner(const Section * a, const Section * b)
{
	return a->claim == b->claim && (a->claim != 0 || a->client == b->client);
}

static void
compare_sections(int name, const Section * a, const Section * b)
{
	const		Section *first = a->from <= b->from ? a : b;
	const		Section *second = first == a ? b : a;

	if ((a->alone || b->alone) &&
		clients[a->client].instance != clients[b->client].instance)
		return;
	if (first->to <= second->from && first->token > second->token &&
		second->token != 0 && !was_lost(second, !workload_is_unchecked()) &&
		!was_restored(first, second))
		sim_violation("tokens",
					  "lock %d: client %d had %" PRIx64
					  ", and client %d later %" PRIx64,
					  name, first->client, first->token, second->client,
					  second->token);
	if (is_same_owner(a, b) || first->to <= second->from ||
		!modes_conflict(a->mode, b->mode))
		return;
	if (is_excused(first, second))
	{
		sim_trace("sections that overlap are excused: lock %d", name);
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
			was_lost(other, other->checked_at > section->from &&
					 !workload_is_unchecked()) ||
			was_restored(other, section))
			continue;
		has[other->client] = true;
		at_once++;
	}
	if (at_once > workload_permits() &&
		!was_lost(section, !workload_is_unchecked()))
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

/* The claim is live: so nobody else has had the lock until then. */
void
check_section_of_claim(int number, int name, int claim, int64_t at)
{
	Section		section = {
		.client = number,.claim = claim + 1,
		.from = claims_proved_at(claim),.checked_at = at,.to = at,
		.zk_session = clients[number].renewed_in
	};

	add_section(name, &section);
	claims_prove(claim, at);
}

/* What is done under a claim has nobody else's section since it was proved. */
static void
extend_over_claim(Section * section)
{
	int			claim = section->claim - 1;
	int64_t		proved_at = claims_proved_at(claim);

	if (proved_at < section->from)
		section->from = proved_at;
	claims_prove(claim, section->checked_at);
}

/* The commit record is written. */
void
check_committed(int number)
{
	Client	   *client = &clients[number];

	totals.committed++;
	if (workload_is_losing() && client->nholds > 0)
	{
		totals.losing_sections++;
		totals.losing_waits += client->asks && !workload_asks_always();
	}
	sim_trace("committed");
	claims_committed(number);
	for (int i = 0; i < client->nholds; i++)
	{
		const Hold *hold = &client->holds[i];
		Section		section = {
			.client = number,.mode = hold->mode,
			.from = hold->from > client->began_at ? hold->from : client->began_at,
			.checked_at = client->checked_at,
			.to = hold->until != 0 ? hold->until : sim_now(),
			.token = hold->token,.zk_session = hold->zk_session,
			.claim = hold->claim,.alone = hold->alone
		};

		/*
		 * What had been lost before can only be given back; and what is given
		 * back at once is not checked, since nothing has been changed.
		 */
		if (hold->until != 0 && !hold->alone &&
			had_ended(client->instance, hold->zk_session,
					  hold->marked ? client->began_at : hold->until, false))
			continue;
		if (section.claim != 0)
			extend_over_claim(&section);
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

/*
 * Processes stand still for so long at the most, messages take so long, and a
 * follower is so far behind: its instance hears of the end of a cycle as much
 * later, and what it has sent meanwhile is answered as much later.
 */
void
check_expect_delays(int64_t nap_us, int64_t message_us, int64_t lag_us)
{
	grace_us = LATE_US + 3 * nap_us + 10 * message_us + 2 * lag_us;
}

/* What is decided from now on, for so long, may be heard of much later. */
void
check_disturb(int64_t us)
{
	int64_t		until = sim_now() + us + DISTURBED_US;

	if (until > disturbed_until)
		disturbed_until = until;
}

/* Requests fail for so long, since directories go or names are resolved. */
void
check_slow(int64_t us)
{
	if (sim_now() + us > slow_until)
		slow_until = sim_now() + us;
}

/* There are no faults any more, and nobody stands still. */
void
check_no_faults(void)
{
	calm_at = sim_now();
}

/* Has nothing disturbed anybody for so long? */
bool
check_is_undisturbed(int64_t us)
{
	return sim_now() - us > disturbed_until;
}

/* How late all may be, since processes stand still. */
int64_t
check_grace_us(void)
{
	return grace_us;
}

/*
 * Had the cycle, or the one that may have gone on, ended just before, or was
 * there a fault since then?
 */
static bool
had_just_ended(const Client *client, int64_t at)
{
	int64_t		ended_at = client->went_on_until > client->cycle_ended_at ?
		client->went_on_until : client->cycle_ended_at;

	return at < disturbed_until || at - ended_at <= grace_us;
}

/* The act that has ended this wait, or NULL. */
static const DoneAct *
find_act(const Client *client)
{
	const		Acts *of = &acts[client->instance];
	const		DoneAct *latest = NULL;

	for (int i = 0; i < MAX_ACTS; i++)
		if (of->done[i].pid == pid_of(client) &&
			of->done[i].number > client->acts_before &&
			(latest == NULL || of->done[i].number > latest->number))
			latest = &of->done[i];
	return latest;
}

/*
 * A deadlock may be ended when the cycle is over, by an act that was on its
 * way.  But the cycle was there at the first look that led to a confirm
 * (deadlock.c), whatever has failed; unless a reader is behind a writer's
 * znode, which stays for a moment when that has given up.
 */
static bool
may_be_late(const Client *client, bool local)
{
	const		DoneAct *act = find_act(client);

	if (client->cycle_ended_at == 0)
		return false;
	if (local)
		return had_just_ended(client, sim_now());
	return act != NULL &&
		(act->between || act->confirmed_at <= client->went_on_until) &&
		had_just_ended(client, act->at);
}

/*
 * Whoever acts looks at his own members first (core/deadlock.c).  So an act that
 * ends this wait left ahead of the end of the cycle, or the look ahead of it
 * began before; any act will do, since it does not tell whose wait it ends.
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

/* A worker sends the confirm of a deadlock. */
void
check_confirm(int instance, const char *path)
{
	Confirm    *confirm = &confirms[nconfirms++ % MAX_CONFIRMS];

	snprintf(confirm->path, sizeof(confirm->path), "%s", path);
	confirm->looked_at = acts[instance].looked_at;
}

/* When was the look ahead of the latest confirm that was sent with this path? */
int64_t
check_confirmed_at(const char *path)
{
	for (int i = nconfirms - 1; i >= 0 && i >= nconfirms - MAX_CONFIRMS; i--)
		if (strcmp(confirms[i % MAX_CONFIRMS].path, path) == 0)
			return confirms[i % MAX_CONFIRMS].looked_at;
	return sim_now();
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

/* A worker ends a deadlock, but has not just looked at its own members. */
void
check_blind_act(int instance)
{
	sim_violation("acts", "instance %d has not looked ahead of an act",
				  instance);
}

/* A session has created this, and sends the same multi again. */
void
check_sent_again(const char *path)
{
	sim_violation("acts", "the act that has made %s is sent again", path);
}

/*
 * A deadlock is ended, and an instance with a member has not confirmed it.  An
 * older copy lacks confirms that have been read.
 */
void
check_unconfirmed(int actor, const char *confirm)
{
	if (restored_at == 0)
		sim_violation("acts", "instance %d acts, but there is no %s", actor,
					  confirm);
}

/* The leader carries such an act out. */
void
check_acted(int instance, const int *pids, int n, bool between,
			int64_t confirmed_at)
{
	Acts	   *of = &acts[instance];

	nacts++;
	for (int i = 0; i < n; i++)
		of->done[of->ndone++ % MAX_ACTS] = (DoneAct)
	{
		.number = nacts,.pid = pids[i],.between = between,.at = sim_now(),
		.confirmed_at = confirmed_at
	};
}

/*
 * Two deadlocks may have a member in common that is the victim of one.  If the
 * act that ends the other one is the first, each has its victim, whichever
 * hears of it first.
 */
static bool
has_acted_first(const Client *client)
{
	const		Acts *of = &acts[client->instance];

	for (int i = 0; client->was_in_cycle && i < MAX_ACTS; i++)
		if (of->done[i].pid == pid_of(client) &&
			of->done[i].number > client->acts_before &&
			of->done[i].number < client->acted)
			return true;
	return false;
}

/*
 * A reader waits behind the znode of a writer until that is deleted, so also
 * for a moment after the writer has become the victim of another deadlock.
 */
static bool
may_be_behind_victim(const Client *client)
{
	return client->was_in_cycle && client->mode == SIM_SHARED &&
		sim_now() - client->victim_at <= grace_us;
}

/*
 * The same where a writer has given up, or its process has ended: without a
 * worker, or if its whole instance has ended, the znode stays until the next
 * worker deletes it, or the session ends.
 */
static bool
may_be_behind_gone(const Client *client)
{
	const		DoneAct *act = find_act(client);

	if (client->mode != SIM_SHARED)
		return false;
	for (int i = 0; act != NULL && act->between && i < client->nnames; i++)
		if (turns[client->names[i]].writer_at != 0 &&
			sim_now() - turns[client->names[i]].writer_at <= grace_us)
			return true;
	return writer_gone_at != 0 &&
		sim_now() - writer_gone_at <= workload_timeout_ms() * 2000 + grace_us;
}

/*
 * Has anybody held what this one wants since "at", by a contender that the
 * servers have, or here?  An instance that stands still goes on holding what
 * its session has lost.
 */
static bool
is_held(const Client *waiter, int name, int64_t at)
{
	for (int i = 0; i < nclients; i++)
	{
		const Client *client = &clients[i];

		for (int j = 0; j < client->nholds; j++)
			if (is_hold_of(&client->holds[j], name, waiter->mode) &&
				!is_apart(waiter, client, client->holds[j].alone) &&
				client->holds[j].from > ended_at[client->instance] &&
				client->holds[j].from <= at)
				return true;
	}
	return false;
}

/*
 * Had it nothing that others wait for, but its place ahead of them?  What a
 * call for all of several locks may have is what nobody has held since before
 * the act, by which it has given back all.
 */
static bool
is_bystander(const Client *client)
{
	const		DoneAct *act = find_act(client);

	if (holds_anything(client))
		return false;
	for (int i = 0; i < client->nnames && !client->any; i++)
		if (client->nnames > 1 &&
			!is_held(client, client->names[i],
					 act != NULL ? act->at : sim_now()))
			return false;
	return true;
}

/* A victim has ended its deadlocks: who is in none now? */
static void
end_cycles(Client *victim)
{
	const		DoneAct *act = find_act(victim);

	victim->waits = false;
	for (int i = 0; i < nclients; i++)
	{
		Client	   *client = &clients[i];

		if (!client->known || !client->in_cycle || client == victim)
			continue;
		client->in_cycle = is_in_cycle(i, true);
		client->maybe_in_cycle = is_in_cycle(i, false);
		if (client->in_cycle)
			continue;
		client->was_in_cycle = true;
		client->victim_at = sim_now();
		client->acted = act != NULL ? act->number : 0;
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
			 client->cycle_ended_at != 0 && !was_looked_at(client) &&
			 !may_be_behind_gone(client))
		sim_violation("victims", "client %d: its deadlock had ended here",
					  number);
	else if (!client->in_cycle &&
			 (may_be_late(client, local) || has_acted_first(client) ||
			  may_be_behind_victim(client) || may_be_behind_gone(client)))
		totals.late++;
	else if (!client->in_cycle && client->was_in_cycle)
		sim_violation("victims", "client %d was in a deadlock that had a victim",
					  number);
	else if (!client->in_cycle)
		sim_violation("victims", "client %d was in no deadlock", number);
	if (!local && find_act(client) == NULL)
		sim_violation("victims", "client %d fails, and no act is about it",
					  number);
	if (!local && is_bystander(client))
		sim_violation("victims", "client %d keeps nothing from anybody", number);
	if (!local)
		end_cycles(client);
}

/* Has one of its locks been lost? */
static bool
has_lost(const Client *client)
{
	for (int i = 0; i < client->nholds; i++)
		if (!client->holds[i].alone &&
			had_ended(client->instance, client->holds[i].zk_session, sim_now(),
					  false))
			return true;
	return restored_at != 0;
}

/* Does it hold what it wants? */
static bool
holds_wanted(const Client *client)
{
	for (int i = 0; i < client->nholds; i++)
		for (int j = 0; j < client->nnames; j++)
			if (client->holds[i].name == client->names[j])
				return true;
	return false;
}

/* Is there a reason for this error? */
static bool
has_cause(int number, const char *sqlstate)
{
	const Client *client = &clients[number];

	if (claims_explain(number, sqlstate))
		return true;
	if (strcmp(sqlstate, "40001") == 0)
		return has_lost(client);
	if (strcmp(sqlstate, "57P03") == 0)
		return sim_now() < undisturbed_from() +
			workload_timeout_ms() * INT64_C(1000);
	if (strcmp(sqlstate, "53200") == 0)
		return workload_path_bytes() > 0 || claims_may_fill(client->instance);
	if (strcmp(sqlstate, "55000") == 0)
		return holds_wanted(client);
	return true;
}

void
check_failed(int number, const char *sqlstate, const char *message)
{
	totals.failed++;
	if (!has_cause(number, sqlstate))
		sim_violation("errors", "client %d: %s %s, and there is no cause", number,
					  sqlstate, message);
	if (strcmp(sqlstate, "40001") == 0)
	{
		totals.lost++;
		totals.losing_lost += workload_is_losing();
		totals.losing_sections += workload_is_losing();
	}
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

	claims_gone(number);
	if (clients[number].waits && clients[number].mode == SIM_EXCLUSIVE)
		writer_gone_at = sim_now();
	for (int name = 0; name < SIM_MAX_NAMES; name++)
		busy_here[instance][name] = sim_now();
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
	note_free();				/* claims end by themselves */
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

/*
 * Servers that are an older copy refuse what has seen newer data until the
 * next worker, after twice the session timeout, and sessions that had ended
 * live for one timeout in the copy.
 */
void
check_calm(int64_t us)
{
	int64_t		timeout_us = INT64_C(1000) * workload_timeout_ms();

	bound_us = us;
	if (restored_at != 0)
		bound_us += timeout_us +
			(2 * timeout_us < 10000000 ? 10000000 : 2 * timeout_us);
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

	/*
	 * An older copy may have znodes that had been deleted; a session that has
	 * lost no mark by it goes on, and does not know of them.
	 */
	if (owner != 0 && restored_at == 0 &&
		strncmp(path, "/zklock/%clusters", 17) != 0)
		sim_violation("leaks", "znode %s of session %" PRIx64, path, owner);
}

/* Nothing has been held or wanted for a while. */
void
check_begin_rest(void)
{
	requests_before = ensemble_counts().all;
}

/* A commit asks for a proof of its session. */
void
check_asked(void)
{
	asked++;
	if (process_client(sim_process()) >= 0)
		clients[process_client(sim_process())].asks = true;
}

/*
 * Requests, as doc/performance.md has them: a contender for a lock that is
 * wanted, and none if it is handed on; while there are any, a write every
 * tenth of the timeout, and as many of the instance's own znode.  At rest
 * there are none.  A reader may give up the contender of writers that wait
 * behind it in its instance.  They get another one when it has the lock.
 */
static void
check_requests(void)
{
	RequestCounts counts = ensemble_counts();
	uint64_t	n = instances_count();
	uint64_t	tenths = sim_now() * 10 / (workload_timeout_ms() * 1000) + 20;

	if (counts.all != requests_before)
		sim_violation("requests", "%" PRIu64 " requests at rest",
					  counts.all - requests_before);
	if (totals.faults != faults_before)
		return;
	if (counts.members > n * tenths)
		sim_violation("requests", "%" PRIu64 " writes of own znodes",
					  counts.members);
	if (counts.heartbeats > ensemble_sessions() * tenths + asked)
		sim_violation("requests", "%" PRIu64 " writes that change nothing",
					  counts.heartbeats);
	if (!workload_permits_are_used() && !workload_counter_ends() &&
		schedule_longest_nap() <= PROMPT_US &&
		counts.contenders > wanted + again - (workload_hands_on() ? handed : 0))
		sim_violation("requests", "%" PRIu64 " contenders for %" PRIu64
					  " locks, of which %" PRIu64
					  " were handed on, and %" PRIu64 " again for writers",
					  counts.contenders, wanted, handed, again);
}

void
check_at_rest(void)
{
	ensemble_visit(visit_node, NULL);
	check_requests();
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
		if (bytes != 0)
			sim_violation("leaks", "instance %d: %ld bytes of paths", i, bytes);
		if (ensemble_sessions_of(i) != 1)
			sim_violation("leaks", "instance %d: %d sessions", i,
						  ensemble_sessions_of(i));
		if (ensemble_is_outdated(i))
			sim_violation("restored", "instance %d has not noticed that "
						  "ZooKeeper is an older copy", i);
	}
	if (library_watches("/zklock/l") > 0)
		sim_violation("leaks", "%d watches in the library",
					  library_watches("/zklock/l"));
	if (ensemble_watches("/zklock/l") > 0)
		sim_violation("leaks", "%d watches at the servers",
					  ensemble_watches("/zklock/l"));
}
