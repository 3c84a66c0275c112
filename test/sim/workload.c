/*-------------------------------------------------------------------------
 *
 * workload.c
 *		What a schedule is made of: instances, settings, clients, and what
 *		these do.  All by lot.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/workload.c
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "workload.h"
#include "zookeeper.h"

#define MAX_SCRIPT		48

/* Values of zklock.commit_check (shared/settings.h), of which 0 is "lease". */
#define CHECK_QUORUM	1
#define CHECK_OFF		2

/* In a long schedule: the numbers of a client, and names that come again. */
#define LONG_NAMES		4
#define USUAL_NAMES		300

typedef struct ClientState
{
	int			instance;
	int			first_name;		/* of its own numbers, in a long schedule;
								 * or 0 */
	Process    *process;		/* NULL: none at the moment */
	SimStatement script[MAX_SCRIPT];
	int			nscript;
	int			next;
	bool		in_block;
	int			nsavepoints;
	int			session_names[4];	/* held for the session */
	int			nsession;
	bool		over;
} ClientState;

static ClientState clients[MAX_CLIENTS];
static int	nclients;
static int	ninstances;
static int	nnames;
static int	npassing;			/* further names, which are taken seldom,
								 * alone, and not for long */
static int	permits;
static int	semaphore;			/* the name that is one */
static bool ordered;			/* locks are taken in the order of their
								 * names */
static bool tangled;			/* they are taken in any order, and many */
static bool prone;				/* hardly any wait ends but by a deadlock */
static bool saving;				/* blocks have a savepoint behind their first
								 * lock, and go back to it */
static uint32_t sharing;		/* so many locks of a million are shared */
static bool claiming;			/* clients claim locks, and use claims */
static int64_t ttl_us;
static bool rows;
static bool counter_ends;
static int	path_bytes;			/* the session has room for so many, few
								 * contenders; 0: for many */
static int	session_timeout_ms;
static int	handoff_quantum;
static int	max_claims;
static int	commit_check;
static int	lock_timeout;
static int	deadlock_timeout;
static bool losing;				/* holders idle for longer than sessions last,
								 * and all servers are cut off */
static bool alone;				/* zklock.exclusion is "instance" at times: */
static int64_t alone_from[MAX_INSTANCES];
static int64_t alone_until[MAX_INSTANCES];
static bool terminates[MAX_INSTANCES];	/* zklock.terminate_on_loss */
static bool hasty;				/* waits end soon, so that what is known of
								 * them is soon out of date */
static int64_t pause_us;
static int64_t hold_us;
static int64_t end_at;
static bool longlasting;
static uint64_t names_made;
static char names[SIM_MAX_NAMES][24];

const char *
workload_name(int name)
{
	return names[name];
}

int
workload_permits(void)
{
	return permits;
}

bool
workload_permits_are_used(void)
{
	return semaphore >= 0;
}

/* Are locks handed on, if no other instance waits for them? */
bool
workload_hands_on(void)
{
	return ninstances == 1 && handoff_quantum > 0;
}

/* Are there names whose directories come and go? */
bool
workload_has_passing_names(void)
{
	return npassing > 0;
}

bool
workload_has_claims(void)
{
	return claiming;
}

/* Of the sessions. */
int
workload_timeout_ms(void)
{
	return session_timeout_ms;
}

/* Claims of an instance, at the most. */
int
workload_max_claims(void)
{
	return max_claims;
}

int
workload_quantum_ms(void)
{
	return handoff_quantum;
}

/* The bytes of paths for which the session has room; 0: enough. */
int
workload_path_bytes(void)
{
	return path_bytes;
}

/* Do holders idle for longer than sessions last? */
bool
workload_is_losing(void)
{
	return losing;
}

/* Are locks taken in any order, and many? */
bool
workload_is_tangled(void)
{
	return tangled;
}

/* Does each commit ask for a proof? */
bool
workload_asks_always(void)
{
	return commit_check == CHECK_QUORUM;
}

/* Is zklock.commit_check off? */
bool
workload_is_unchecked(void)
{
	return commit_check == CHECK_OFF;
}

/* Is zklock.exclusion "instance" there for a part of the time? */
bool
workload_is_alone_at_times(void)
{
	return alone;
}

/* Is it now? */
bool
workload_is_alone(int instance)
{
	return alone && sim_now() >= alone_from[instance] &&
		sim_now() < alone_until[instance];
}

/* Do numbers of contenders come to their end? */
bool
workload_counter_ends(void)
{
	return counter_ends;
}

int
workload_clients(void)
{
	return nclients;
}

int64_t
workload_end_time(void)
{
	return end_at;
}

int
workload_lock_timeout(int client)
{
	(void) client;
	return hasty ? (int) sim_between(deadlock_timeout / 2, 8 * deadlock_timeout) :
		lock_timeout;
}

/*
 * Scripts.
 */
static SimStatement *
add(ClientState *client, SimStep step)
{
	SimStatement *statement = &client->script[client->nscript++];

	if (client->nscript > MAX_SCRIPT)
		sim_lacks("so long a script");
	memset(statement, 0, sizeof(*statement));
	statement->step = step;
	statement->timeout_ms = -1;
	return statement;
}

static void
add_idle(ClientState *client, int64_t us)
{
	add(client, STEP_IDLE)->idle_us = sim_between(0, us);
}

static int64_t
some_timeout(void)
{
	return sim_chance(300000) ? 0 : sim_between(1, 3000);
}

/*
 * In a long schedule each client has its own numbers, whose names change: so
 * those of others are the same now and then.
 */
static int
some_name(const ClientState *client)
{
	return longlasting ? client->first_name + sim_below(LONG_NAMES) :
		sim_below(nnames);
}

/* One or more locks, in some way. */
static void
add_lock(ClientState *client, int name)
{
	SimStatement *statement = add(client, STEP_LOCK);

	statement->names[0] = name;
	statement->nnames = 1;
	/* a deadlock by way of permits is not found */
	if (name == semaphore)
	{
		statement->mode = SIM_PERMIT;
		statement->permits = permits;
		statement->timeout_ms = sim_between(1, 3000);
	}
	else if (sim_chance(sharing))
		statement->mode = SIM_SHARED;
	if (sim_chance(prone ? 20000 : 200000))
	{
		statement->try = sim_chance(700000);
		statement->timeout_ms = some_timeout();
	}
}

static void
add_several(ClientState *client, bool any)
{
	SimStatement *statement = add(client, STEP_LOCK);

	statement->any = any;
	for (int i = 0; i < (longlasting ? LONG_NAMES : nnames); i++)
		if (client->first_name + i != semaphore && sim_chance(600000))
			statement->names[statement->nnames++] = client->first_name + i;
	if (statement->nnames == 0)
		statement->names[statement->nnames++] =
			client->first_name + (semaphore == 0 ? 1 : 0);
	/* in no order */
	for (int i = statement->nnames - 1; any && i > 0; i--)
	{
		int			j = sim_below(i + 1);
		int			name = statement->names[i];

		statement->names[i] = statement->names[j];
		statement->names[j] = name;
	}
	if (sim_chance(sharing))
		statement->mode = SIM_SHARED;
	/* nor is one by way of any of several */
	if (any || sim_chance(prone ? 20000 : 200000))
		statement->timeout_ms = sim_between(1, 3000);
	statement->try = any && sim_chance(700000);
}

static void
add_row(ClientState *client)
{
	add(client, STEP_ROW)->row = sim_below(3);
}

static void
add_block(ClientState *client)
{
	int			n = tangled ? 2 + sim_below(3) : 1 + sim_below(3);
	int			name = some_name(client);
	bool		savepoint = false;

	add(client, STEP_BEGIN);
	for (int i = 0; i < n; i++)
	{
		if (rows && sim_chance(250000))
			add_row(client);
		if (sim_chance(150000))
			add_several(client, sim_chance(500000));
		else
			add_lock(client, name);
		if (ordered && ++name == nnames)
			break;
		if (!ordered)
			name = some_name(client);
		if (sim_chance(300000))
			add_idle(client, hold_us);
		if (!savepoint && sim_chance(150000))
		{
			savepoint = true;
			add(client, STEP_SAVEPOINT);
		}
	}
	if (savepoint)
		add(client, sim_chance(700000) ? STEP_ROLLBACK_TO : STEP_RELEASE);
	if (sim_chance(700000))
		add(client, STEP_WRITE);
	add_idle(client, hold_us);
	if (losing && sim_chance(500000))
		client->script[client->nscript - 1].idle_us =
			sim_between(session_timeout_ms * 500, session_timeout_ms * 3000);
	if (sim_chance(50000))
		add(client, STEP_UNLOCK)->names[0] = name < nnames ? name :
			client->first_name;
	add(client, sim_chance(850000) ? STEP_COMMIT : STEP_ROLLBACK);
}

/*
 * Whoever goes back to the savepoint holds what he has had ahead of it, and
 * has ended his wait, in the midst of a deadlock perhaps.
 */
static void
add_saving_block(ClientState *client)
{
	add(client, STEP_BEGIN);
	add_lock(client, some_name(client));
	if (rows && sim_chance(400000))
		add_row(client);
	add(client, STEP_SAVEPOINT);
	for (int i = 0; i < 2; i++)
		if (rows && sim_chance(500000))
			add_row(client);
		else
			add_lock(client, some_name(client));
	add(client, STEP_ROLLBACK_TO);
	add_idle(client, hold_us);
	if (sim_chance(500000))
		add_lock(client, some_name(client));
	add(client, STEP_WRITE);
	add_idle(client, hold_us);
	add(client, STEP_COMMIT);
}

/*
 * Names that are taken so seldom that ZooKeeper removes their directories in
 * between.
 */
static void
add_passing(ClientState *client)
{
	for (int i = 0; i < 8; i++)
	{
		SimStatement *statement = add(client, STEP_LOCK);

		statement->names[0] = nnames + sim_below(npassing);
		statement->nnames = 1;
		add_idle(client, hold_us);
	}
}

/* A lock for the session, some transactions under it, and its end. */
static void
add_session(ClientState *client)
{
	int			name = some_name(client);

	add_lock(client, name);
	client->script[client->nscript - 1].session = true;
	client->session_names[client->nsession++] = name;
	add_idle(client, hold_us);
	add(client, STEP_BEGIN);
	add(client, STEP_WRITE);
	add_idle(client, hold_us);
	add(client, STEP_COMMIT);
	if (sim_chance(200000))
		add(client, STEP_UNLOCK_ALL);
	else
		add(client, STEP_UNLOCK)->names[0] = name;
}

/*
 * Claims: one is taken, renewed and used by a client, and used by others that
 * know its token.
 */
static void
add_claim_call(ClientState *client, SimStep step, bool own)
{
	SimStatement *statement = add(client, step);

	statement->own = own;
	if (step == STEP_RENEW_CLAIM && sim_chance(300000))
		statement->ttl_us = -1;	/* the same, as an argument */
}

/* A transaction under a claim. */
static void
add_use(ClientState *client, bool own)
{
	bool		savepoint = sim_chance(200000);

	add(client, STEP_BEGIN);
	if (savepoint && sim_chance(300000))
		add(client, STEP_WRITE);
	if (savepoint)
		add(client, STEP_SAVEPOINT);
	add_claim_call(client, STEP_USE_CLAIM, own);
	if (sim_chance(100000))
		add_claim_call(client, STEP_RENEW_CLAIM, own);
	if (rows && sim_chance(300000))
		add_row(client);
	if (sim_chance(ordered ? 100000 : 300000))
		add_lock(client, some_name(client));
	if (savepoint)
		add(client, sim_chance(500000) ? STEP_ROLLBACK_TO : STEP_RELEASE);
	if (sim_chance(700000))
		add(client, STEP_WRITE);
	add_idle(client, sim_chance(300000) ? ttl_us : hold_us);
	if (sim_chance(100000))
		add_claim_call(client, STEP_END_CLAIM, own);
	add(client, sim_chance(850000) ? STEP_COMMIT : STEP_ROLLBACK);
}

static void
add_claim(ClientState *client)
{
	SimStatement *statement;
	bool		block = sim_chance(600000);
	bool		savepoint = block && sim_chance(200000);

	if (block)
		add(client, STEP_BEGIN);
	if (savepoint)
		add(client, STEP_SAVEPOINT);
	statement = add(client, STEP_CLAIM);
	statement->nnames = 1;
	statement->names[0] = some_name(client);
	if (statement->names[0] == semaphore)
		statement->names[0] = client->first_name;
	statement->ttl_us = ttl_us;
	if (sim_chance(300000))
	{
		statement->try = sim_chance(700000);
		statement->timeout_ms = some_timeout();
	}
	if (block && sim_chance(200000))
		add_claim_call(client, STEP_RENEW_CLAIM + sim_below(3), true);
	if (savepoint)
		add(client, sim_chance(500000) ? STEP_ROLLBACK_TO : STEP_RELEASE);
	if (block && sim_chance(500000))
		add(client, STEP_WRITE);
	if (!block)
		return;
	add_idle(client, hold_us);
	add(client, sim_chance(850000) ? STEP_COMMIT : STEP_ROLLBACK);
}

static void
add_life_of_claim(ClientState *client)
{
	int			n = sim_below(4);

	add_claim(client);
	for (int i = 0; i < n; i++)
	{
		add_idle(client, sim_chance(200000) ? ttl_us * 5 / 4 : pause_us);
		if (sim_chance(300000))
			add_claim_call(client, STEP_RENEW_CLAIM, true);
		else
			add_use(client, true);
	}
	if (sim_chance(600000))
		add_claim_call(client, STEP_END_CLAIM, true);
}

/* A claim that is renewed all the time, and used now and then. */
static void
add_long_claim(ClientState *client)
{
	add_claim(client);
	for (int i = 0; i < 3; i++)
	{
		add_idle(client, ttl_us * 2 / 3);
		add_claim_call(client, STEP_RENEW_CLAIM, true);
		if (sim_chance(700000))
			add_use(client, true);
	}
}

/* Several clients renew the same claim at a time, and then nobody does. */
static void
add_renewals(ClientState *client)
{
	for (int i = 0; i < 6; i++)
	{
		add_claim_call(client, STEP_RENEW_CLAIM, false);
		add_idle(client, ttl_us / 10);
	}
	for (int i = 0; i < 6; i++)
	{
		add_idle(client, ttl_us / 4);
		add(client, STEP_BEGIN);
		add_claim_call(client, STEP_USE_CLAIM, false);
		add(client, STEP_COMMIT);
	}
}

static void
add_something_of_claims(ClientState *client)
{
	switch (sim_below(9))
	{
		case 8:
			add_renewals(client);
			break;
		case 0:
			add_long_claim(client);
			break;
		case 1:
		case 2:
			add_life_of_claim(client);
			break;
		case 3:
			add(client, STEP_SHOW_CLAIMS);
			break;
		case 4:
			add_claim_call(client, STEP_RENEW_CLAIM, false);
			break;
		default:
			add_use(client, false);
			break;
	}
}

/* Which claim it is about, now that it is known. */
static void
choose_claim(int number, SimStatement *statement)
{
	int			claim = statement->own ? claims_own(number) :
		claims_choose(clients[number].instance);

	statement->claim = claim;
	if (claim < 0)
		statement->step = STEP_IDLE;
	else if (statement->ttl_us < 0)
		statement->ttl_us = claims_ttl(claim);
}

/* Some names are used again and again, others once. */
static void
rename_all(const ClientState *client)
{
	for (int i = 0; i < LONG_NAMES; i++)
	{
		int			number = client->first_name + i;

		if (sim_chance(500000))
			snprintf(names[number], sizeof(names[number]), "%c%d-%d",
					 number == semaphore ? 's' : 'l', i,
					 sim_below(USUAL_NAMES));
		else
			snprintf(names[number], sizeof(names[number]), "%c%d-%" PRIu64,
					 number == semaphore ? 's' : 'l', i,
					 USUAL_NAMES + names_made++);
	}
}

static void
new_script(ClientState *client)
{
	client->nscript = client->next = 0;
	client->nsession = 0;
	if (sim_now() >= end_at)
	{
		add(client, STEP_UNLOCK_ALL);
		add(client, STEP_END);
		client->over = true;
		return;
	}
	if (longlasting)
		rename_all(client);
	add_idle(client, pause_us);
	if (npassing > 0 && sim_chance(400000))
		add_passing(client);
	else if (claiming && claims_have_room() && sim_chance(500000))
		add_something_of_claims(client);
	else if (sim_chance(losing ? 300000 : 100000))
		add_session(client);
	else if (sim_chance(longlasting ? 300 : 30000))
		add(client, STEP_END);
	else if (saving && sim_chance(600000))
		add_saving_block(client);
	else
		add_block(client);
}

/*
 * A backend flushes its commit record, or waits for the standby that has to
 * flush it, too: for how long?  That can be long enough for a lock of its
 * session to be lost meanwhile.
 */
int64_t
workload_flush_us(int number)
{
	const ClientState *client = &clients[number];

	if (losing && terminates[client->instance] && client->nsession > 0 &&
		sim_chance(200000))
		return sim_between(session_timeout_ms * 500, session_timeout_ms * 3000);
	return sim_between(50, 2000);
}

void
workload_next(int number, SimStatement * statement)
{
	ClientState *client = &clients[number];

	if (client->next == client->nscript)
		new_script(client);
	*statement = client->script[client->next++];
	switch (statement->step)
	{
		case STEP_BEGIN:
			client->in_block = true;
			client->nsavepoints = 0;
			break;
		case STEP_SAVEPOINT:
			client->nsavepoints++;
			break;
		case STEP_COMMIT:
		case STEP_ROLLBACK:
			client->in_block = false;
			client->nsavepoints = 0;
			break;
		case STEP_RELEASE:
		case STEP_ROLLBACK_TO:
			/* there may be none, after an error */
			if (client->nsavepoints == 0)
				statement->step = STEP_IDLE;
			if (statement->step == STEP_RELEASE)
				client->nsavepoints--;
			break;
		case STEP_RENEW_CLAIM:
		case STEP_USE_CLAIM:
		case STEP_END_CLAIM:
			choose_claim(number, statement);
			break;
		default:
			break;
	}
	sim_mix(statement->step);
}

/* A statement has failed: go back to the savepoint, or roll back. */
void
workload_failed(int number, const char *sqlstate)
{
	ClientState *client = &clients[number];
	bool		savepoint = client->nsavepoints > 0 && sim_chance(700000);

	(void) sqlstate;
	if (savepoint)
	{
		while (client->next < client->nscript &&
			   client->script[client->next].step != STEP_ROLLBACK_TO)
			client->next++;
		if (client->next < client->nscript)
			return;
	}
	if (!client->in_block)
	{
		/* the session may hold something, lost or not */
		client->nscript = client->next = 0;
		add(client, STEP_UNLOCK_ALL);
		return;
	}
	client->nscript = client->next = 0;
	add(client, STEP_ROLLBACK);
	add(client, STEP_UNLOCK_ALL);
}

static void
connect_client(void *arg)
{
	ClientState *client = arg;
	int			number = client - clients;
	Instance   *instance = instance_at(client->instance);

	if (client->process != NULL)
		return;
	if (sim_now() >= end_at)
	{
		client->over = true;
		return;
	}
	if (!instance_is_up(instance))
	{
		sim_at(sim_now() + sim_between(10000, 300000), connect_client, client);
		return;
	}
	client->nscript = client->next = 0;
	client->in_block = false;
	client->nsavepoints = 0;
	check_client(number, client->instance);
	client->process = backend_start(instance, number);
}

/* The process is gone; the client comes back. */
void
workload_ended(int number)
{
	ClientState *client = &clients[number];

	check_gone(number);
	client->process = NULL;
	if (!client->over)
		sim_at(sim_now() + sim_between(1000, 100000), connect_client, client);
}

bool
workload_is_over(void)
{
	for (int i = 0; i < nclients; i++)
		if (clients[i].process != NULL || !clients[i].over)
			return false;
	return true;
}

Process *
workload_process(int number)
{
	return clients[number].process;
}

/*
 * The schedule.
 */
static void
set(InstanceOptions * options, const char *name, int value)
{
	options->settings[options->nsettings].name = name;
	options->settings[options->nsettings++].value = value;
}

static int
one_of(const int *values, int n)
{
	return values[sim_below(n)];
}

#define ONE_OF(...) \
	one_of((const int[]) {__VA_ARGS__}, \
		   sizeof((const int[]) {__VA_ARGS__}) / sizeof(int))

static char description[256];

void
workload_describe(char *text, size_t size)
{
	snprintf(text, size, "%s", description);
}

static void
begin_ensemble(int timeout_ms)
{
	EnsembleOptions options = {
		.nservers = ONE_OF(1, 3, 3, 5),
		.tick_ms = timeout_ms / 4,
		.lag_us = ONE_OF(100, 5000, 300000),
		.delay_us = 400,
		.containers_ms = ONE_OF(200, 1500, 10000),
		.first_number = sim_chance(30000) ? 1999999990 : 0
	};

	session_timeout_ms = timeout_ms;
	counter_ends = options.first_number > 0;

	ensemble_begin(&options);
	snprintf(description, sizeof(description), "%d servers, timeout %d ms",
			 options.nservers, timeout_ms);
}

static void
begin_instances(const char *mutation, int timeout_ms, int per_instance)
{
	int			format = sim_chance(300000);
	int			retain = ONE_OF(-1, -1, 0, 20, 500);

	commit_check = losing ? ONE_OF(0, CHECK_QUORUM, CHECK_OFF) :
		ONE_OF(0, 0, 0, CHECK_QUORUM);
	max_claims = ONE_OF(2, 20);
	handoff_quantum = ONE_OF(0, 10, 10, 100);
	for (int i = 0; i < ninstances; i++)
	{
		static const char *const labels[] = {"a", "b", "c", "d"};
		InstanceOptions options = {
			.cluster_name = labels[i],.servers = "zoo1:2181,zoo2:2181,zoo3:2181",
			.max_procs = per_instance + 12,.mutation = mutation,
			.drift = sim_chance(500000) ? 0 :
			(double) sim_between(-40, 40) / 1000,
			.boot_offset = sim_between(0, 1000000000),
			.wall_offset = sim_between(-5000000, 5000000)
		};

		set(&options, "zklock.session_timeout", timeout_ms);
		set(&options, "zklock.max_locks", 40);
		set(&options, "zklock.max_claims", max_claims);
		set(&options, "zklock.max_claims_per_role", max_claims);
		if (path_bytes > 0)
			set(&options, "zklock.path_bytes", path_bytes);
		set(&options, "zklock.max_tracked_locks", 10);
		set(&options, "zklock.node_format", format);
		set(&options, "zklock.handoff_quantum", handoff_quantum);
		set(&options, "zklock.retain_time", retain);
		set(&options, "zklock.commit_check", commit_check);
		terminates[i] = sim_chance(500000);
		set(&options, "zklock.terminate_on_loss", terminates[i]);
		set(&options, "zklock.look_again", 0);
		set(&options, "deadlock_timeout", deadlock_timeout);
		(void) instance_new(&options);
	}
}

/* The sizes, and what the clients are like. */
static int
choose_clients(void)
{
	int			per_instance;

	prone = sim_chance(250000);
	ninstances = prone ? ONE_OF(2, 2, 3, 3) : ONE_OF(1, 2, 2, 3);
	per_instance = prone ? ONE_OF(1, 2, 3, 3, 5) :
		sim_chance(10000) ? 30 : ONE_OF(1, 2, 3, 3, 5, 8);
	npassing = sim_chance(prone ? 500000 : 100000) ? 8 : 0;
	if (prone && npassing > 0)
		per_instance = ONE_OF(3, 5, 8);
	nclients = ninstances * per_instance;
	nnames = prone ? ONE_OF(2, 3, 4, 6) : ONE_OF(1, 2, 3, 5);
	sharing = ONE_OF(0, 250000, 250000, 500000);
	permits = ONE_OF(1, 2, 3);
	semaphore = sim_chance(300000) && nnames > 1 ? nnames - 1 : -1;
	ordered = !prone && sim_chance(500000);
	tangled = prone || (!ordered && sim_chance(400000));
	saving = prone && sim_chance(500000);
	claiming = sim_chance(300000);
	path_bytes = nnames > 1 && sim_chance(200000) ? ONE_OF(250, 500, 1000) : 0;
	rows = sim_chance(saving ? 800000 : 400000);
	hasty = sim_chance(saving ? 800000 : 200000);
	losing = !prone && per_instance <= 3 && sim_chance(250000);
	alone = semaphore < 0 && !claiming && sim_chance(200000);
	for (int i = 0; i < ninstances; i++)
	{
		alone_from[i] = sim_now() + sim_between(0, 15000000);
		alone_until[i] = alone_from[i] + sim_between(100000, 10000000);
	}
	return per_instance;
}

/*
 * Two instances with a client each, for so long, and about a lock a second; no
 * faults.
 */
void
workload_begin_long(const char *mutation, int64_t us)
{
	memset(clients, 0, sizeof(clients));
	longlasting = true;
	ninstances = nclients = 2;
	nnames = 2 * LONG_NAMES;
	npassing = 0;
	sharing = 250000;
	permits = 2;
	semaphore = nnames - 1;
	prone = ordered = tangled = saving = rows = hasty = claiming = false;
	path_bytes = 0;
	losing = alone = false;
	deadlock_timeout = 1000;
	lock_timeout = 0;
	pause_us = 8000000;
	hold_us = 5000;
	end_at = sim_now() + us;
	begin_ensemble(10000);
	begin_instances(mutation, 10000, 1);
	for (int i = 0; i < nclients; i++)
	{
		clients[i].instance = i;
		clients[i].first_name = i * LONG_NAMES;
		rename_all(&clients[i]);
		check_client(i, i);
		sim_at(sim_now() + 1000000, connect_client, &clients[i]);
	}
}

void
workload_begin(const char *mutation)
{
	int			timeout_ms = ONE_OF(2000, 4000, 10000);
	int			per_instance;

	memset(clients, 0, sizeof(clients));
	longlasting = false;
	per_instance = choose_clients();
	deadlock_timeout = hasty || prone ? ONE_OF(10, 10, 50, 300) :
		ONE_OF(50, 300, 1000);
	lock_timeout = sim_chance(prone ? 50000 : 300000) ?
		(int) sim_between(500, 5000) : 0;
	pause_us = ONE_OF(2000, 50000, 500000);
	hold_us = ONE_OF(100, 5000, 50000);
	/* for longer than it takes to lose a session */
	if (per_instance <= 3 && sim_chance(200000))
		hold_us = 4000000;
	if (losing)
		timeout_ms = 2000;
	ttl_us = ONE_OF(1000000, 1500000, 5000000, 5000000);
	end_at = sim_now() + 20000000;
	for (int i = 0; i < nnames + npassing; i++)
		snprintf(names[i], sizeof(names[i]), "l%d", i);

	begin_ensemble(timeout_ms);
	begin_instances(mutation, timeout_ms, per_instance);
	snprintf(description + strlen(description),
			 sizeof(description) - strlen(description),
			 ", %d instances, %d clients, %d names%s%s%s%s%s%s%s%s%s%s", ninstances, nclients,
			 nnames, npassing > 0 ? ", and passing ones" : "",
			 sharing == 0 ? ", no readers" : "", semaphore >= 0 ? ", a semaphore" : "",
			 hasty ? ", hasty" : "",
			 ordered ? ", in order" : prone ? ", prone to deadlocks" :
			 tangled ? ", tangled" : "", saving ? ", savepoints" : "",
			 claiming ? ", claims" : "", path_bytes > 0 ? ", little room" : "",
			 losing ? ", losses" : "", alone ? ", alone at times" : "");
	if (counter_ends)
		strcat(description, ", the counter ends");
	sim_trace("%s", description);
	for (int i = 0; i < nclients; i++)
	{
		clients[i].instance = i % ninstances;
		check_client(i, clients[i].instance);
		sim_at(sim_now() + sim_between(1000, 2000000), connect_client,
			   &clients[i]);
	}
}
