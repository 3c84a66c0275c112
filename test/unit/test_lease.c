/*-------------------------------------------------------------------------
 *
 * test_lease.c
 *		Unit tests of lease.c: a lease never outlives the session.
 *
 * The rules of the lease are arguments about what a leader, a follower and the
 * client library do.  Here they are a model: messages travel in order, each
 * for as long as chance has it, links stall (or the library's queue does,
 * which is the same), the client process is stopped, and so are servers, whose
 * threads go on one after the other; and the leader ends the session when it
 * has not heard of it for too long.  However that goes, no lease may be
 * longer.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_lease.c
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

#include "core/lock/lease.h"

#define TIMEOUT		1200		/* of the session, in ms */
#define PING_INTERVAL	(TIMEOUT / 4 + TIMEOUT / 50)
#define WAKE_TIME	(TIMEOUT / 50)
#define RUN_TIME	12000

/* How many schedules; fewer where it is about memory, and slow. */
#ifdef __SANITIZE_ADDRESS__
#define NRUNS		2000
#else
#define NRUNS		10000
#endif

static uint64_t random_state;

static uint32_t
dice(uint32_t n)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t) (random_state >> 33) % n;
}

/*
 * Rules by hand
 */

static void
one_proof_is_a_short_lease(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	assert_int_equal(lease.until, 0);
	(void) lease_turn(&lease, TIMEOUT, 1010);
	lease_prove(&lease, TIMEOUT, 1010, 1020);
	assert_int_equal(lease.until, 1010 + TIMEOUT / 50);
}

static void
four_proofs_are_a_long_one(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1010 + PING_INTERVAL, 1400);
	assert_int_equal(lease.until, 1010 + PING_INTERVAL + TIMEOUT / 50);
	lease_prove(&lease, TIMEOUT, 1400 + WAKE_TIME, 1500);
	assert_int_equal(lease.until, 1400 + WAKE_TIME + TIMEOUT / 50);
	lease_prove(&lease, TIMEOUT, 1500, 1510);
	assert_int_equal(lease.until, 1000 + TIMEOUT - TIMEOUT / 20);
}

static void
proofs_of_a_busy_moment_are_one(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	for (int i = 0; i < 100; i++)
		lease_prove(&lease, TIMEOUT, 1000 + i, 1001 + i);
	assert_int_equal(lease.until, 1099 + TIMEOUT / 50);
}

static void
an_early_second_does_not_count(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1009 + PING_INTERVAL, 1400);
	lease_prove(&lease, TIMEOUT, 1400 + WAKE_TIME, 1500);
	lease_prove(&lease, TIMEOUT, 1500, 1510);
	assert_int_equal(lease.until, 1500 + TIMEOUT / 50);
}

/* The leader may have gone on with the second, and not have sent its ping. */
static void
an_early_third_does_not_count(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1010 + PING_INTERVAL, 1400);
	lease_prove(&lease, TIMEOUT, 1399 + WAKE_TIME, 1500);
	lease_prove(&lease, TIMEOUT, 1500, 1510);
	assert_int_equal(lease.until, 1500 + TIMEOUT / 50);
}

static void
an_early_fourth_does_not_count(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1010 + PING_INTERVAL, 1400);
	lease_prove(&lease, TIMEOUT, 1400 + WAKE_TIME, 1500);
	lease_prove(&lease, TIMEOUT, 1499, 1510);
	assert_int_equal(lease.until, 1499 + TIMEOUT / 50);
}

static void
a_new_connection_begins_anew(void **state)
{
	Lease		lease;
	int64_t		until;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1400, 1410);
	until = lease.until;
	lease_disconnect(&lease);
	assert_int_equal(lease.until, until);
	lease_prove(&lease, TIMEOUT, 1420, 1430);
	assert_int_equal(lease.until, 1420 + TIMEOUT / 50);
}

static void
after_a_stop_one_does_not_count(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	(void) lease_turn(&lease, TIMEOUT, 2000);
	lease_prove(&lease, TIMEOUT, 2000, 2010);
	assert_int_equal(lease.until, 0);
	(void) lease_turn(&lease, TIMEOUT, 2200);
	(void) lease_turn(&lease, TIMEOUT, 2000 + PING_INTERVAL);
	lease_prove(&lease, TIMEOUT, 2000 + PING_INTERVAL, 2400);
	assert_int_equal(lease.until, 2000 + PING_INTERVAL + TIMEOUT / 50);
}

/*
 * The model
 *
 * The client is connected to a server that hears the leader itself, or to an
 * observer that another server, its master, pings and reports of: all are
 * "nodes" in a row, the leader 0, the client last.  Messages go up the row and
 * down, one link to each neighbour and direction.
 */

typedef enum MessageKind
{
	CLIENT_PING,				/* client to its server, answered there */
	WRITE,						/* client by way of the servers to the
								 * leader */
	REVALIDATE,					/* the same, of a new connection */
	SERVER_PING,				/* down to the next server */
	TOUCHES						/* its answer: when the client was heard of */
} MessageKind;

typedef struct Message
{
	MessageKind kind;
	int64_t		sent;			/* by the client, of WRITE */
	int			connection;
	bool		touched;		/* of TOUCHES: heard of since the last ones */
	bool		refused;		/* of answers: the session had ended */
	int64_t		arrives;
} Message;

#define MAX_MESSAGES	512
#define MAX_NODES		4

/* One direction of a link: in order, and now and then it stalls. */
typedef struct Link
{
	Message		messages[MAX_MESSAGES];
	int			first;
	int			n;
	int64_t		last_arrival;
	int64_t		stalled_until;
} Link;

/* A server has several threads, which need not go on at once after a stop. */
typedef enum Thread
{
	EXPIRES,					/* ends the session; of the leader */
	PINGS,						/* asks the next server for news */
	READS_ABOVE,
	READS_BELOW,
	NTHREADS
} Thread;

typedef struct Server
{
	bool		touched;		/* the client was heard of */
	int64_t		ping_at;
	int64_t		runs_at[NTHREADS];	/* not before */
} Server;

typedef struct Model
{
	int64_t		now;
	int64_t		tick;
	int			client;			/* its place in the row */
	Link		up[MAX_NODES];	/* from a node to the one above it */
	Link		down[MAX_NODES];	/* and back */
	Server		servers[MAX_NODES];
	int64_t		heard_at;		/* of the session, by the leader */
	int64_t		ended_at;		/* 0: alive */
	/* client */
	int64_t		stopped_until;
	bool		connected;
	int			connection;
	bool		write_out;
	int64_t		sent_at;		/* anything */
	int64_t		received_at;
	int64_t		turn_at;
	Lease		lease;
	bool		busy;			/* the client has something to write all the
								 * time */
	int64_t		clear_until;	/* of the Weather */
	int64_t		awake_until;
} Model;

static void
put(Model *model, Link *link, Message message)
{
	int64_t		arrives = model->now + dice(4);

	if (arrives < link->stalled_until)
		arrives = link->stalled_until;
	if (arrives < link->last_arrival)
		arrives = link->last_arrival;
	link->last_arrival = arrives;
	message.arrives = arrives;
	assert_true(link->n < MAX_MESSAGES);
	link->messages[(link->first + link->n++) % MAX_MESSAGES] = message;
}

static bool
get(Model *model, Link *link, Message *message)
{
	if (link->n == 0 || link->messages[link->first].arrives > model->now)
		return false;
	*message = link->messages[link->first];
	link->first = (link->first + 1) % MAX_MESSAGES;
	link->n--;
	return true;
}

/* Nothing that is on its way gets through before that. */
static void
stall(Link *link, int64_t until)
{
	if (until > link->stalled_until)
		link->stalled_until = until;
	for (int i = 0; i < link->n; i++)
	{
		Message    *message = &link->messages[(link->first + i) % MAX_MESSAGES];

		if (message->arrives < until)
			message->arrives = until;
	}
	if (link->n > 0 && link->last_arrival < until)
		link->last_arrival = until;
}

static void
leader_hears(Model *model, Message message)
{
	if (model->ended_at == 0 &&
		((message.kind == TOUCHES && message.touched) ||
		 message.kind == REVALIDATE))
		model->heard_at = model->now;
	if (message.kind == WRITE || message.kind == REVALIDATE)
	{
		message.refused = model->ended_at != 0;
		put(model, &model->down[1], message);
	}
}

/* Of server "i", and not the leader: something from below. */
static void
server_hears(Model *model, int i, Message message)
{
	if (message.kind == TOUCHES)
		model->servers[i].touched |= message.touched;
	else
	{
		/* an observer's request is no sign of life to its master */
		if (i == model->client - 1)
			model->servers[i].touched = true;
		put(model, message.kind == CLIENT_PING ?
			&model->down[model->client] : &model->up[i], message);
	}
}

static void
server_is_told(Model *model, int i, Message message)
{
	if (message.kind == SERVER_PING)
	{
		put(model, &model->up[i],
			(Message) {.kind = TOUCHES,.touched = model->servers[i].touched});
		model->servers[i].touched = false;
	}
	else
	{
		/* a master notes what it has had validated for an observer */
		if (message.kind == REVALIDATE && !message.refused)
			model->servers[i].touched = true;
		put(model, &model->down[i + 1], message);
	}
}

static void
server_turn(Model *model, int i)
{
	Server	   *server = &model->servers[i];
	Message		message;

	/* which of its threads is first is anybody's guess */
	for (int n = 0, thread = dice(NTHREADS); n < NTHREADS;
		 n++, thread = (thread + 1) % NTHREADS)
	{
		if (model->now < server->runs_at[thread])
			continue;
		if (thread == EXPIRES && i == 0 && model->ended_at == 0 &&
			model->now >= model->heard_at + TIMEOUT)
			model->ended_at = model->now;
		if (thread == PINGS && i + 1 < model->client &&
			model->now >= server->ping_at)
		{
			put(model, &model->down[i + 1], (Message) {.kind = SERVER_PING});
			server->ping_at = model->now + model->tick / 2;
		}
		while (thread == READS_BELOW && get(model, &model->up[i + 1], &message))
		{
			if (i == 0)
				leader_hears(model, message);
			else
				server_hears(model, i, message);
		}
		while (thread == READS_ABOVE && i > 0 &&
			   get(model, &model->down[i], &message))
			server_is_told(model, i, message);
	}
}

static void
to_server(Model *model, MessageKind kind)
{
	model->sent_at = model->now;
	put(model, &model->up[model->client],
		(Message) {.kind = kind,.sent = model->now,
		.connection = model->connection});
}

static void
connect_anew(Model *model)
{
	lease_disconnect(&model->lease);
	model->connection++;
	model->connected = false;
	model->write_out = false;
	model->received_at = model->now;
	to_server(model, REVALIDATE);
}

static void
client_turn(Model *model)
{
	Message		message;

	if (model->now < model->stopped_until)
		return;

	/* the library looks at its clock ahead of what has arrived */
	if (model->now - model->received_at >= TIMEOUT * 2 / 3)
		connect_anew(model);
	while (get(model, &model->down[model->client], &message))
	{
		if (message.connection != model->connection)
			continue;
		model->received_at = model->now;
		if (message.refused)
			continue;
		if (message.kind == REVALIDATE)
			model->connected = true;
		else if (message.kind == WRITE)
		{
			model->write_out = false;
			lease_prove(&model->lease, TIMEOUT, message.sent, model->now);
		}
	}
	if (model->connected && model->now - model->sent_at >= TIMEOUT / 3)
		to_server(model, CLIENT_PING);

	/* the worker: when it has to, and for something else in between */
	if (dice(TIMEOUT / 2) == 0)
		model->busy = !model->busy;
	if (model->now >= model->turn_at || model->busy ||
		model->now == lease_heartbeat_at(&model->lease, TIMEOUT) ||
		dice(200) == 0)
	{
		model->turn_at = lease_turn(&model->lease, TIMEOUT, model->now);
		if (model->connected && !model->write_out &&
			(model->now >= lease_heartbeat_at(&model->lease, TIMEOUT) ||
			 dice(model->busy ? 2 : 8) == 0))
		{
			model->write_out = true;
			to_server(model, WRITE);
		}
	}
}

/* How often something happens in a run, and for how long it does. */
typedef struct Weather
{
	int			stops;			/* of the client, one in so many ms; 0: none */
	int			stalls;			/* of a link */
	int			duration;		/* ms at most */
	int			pause;			/* ms at least between two stalls of links */
	int			server_stops;	/* as stops, of a server: the leader, mostly */
	bool		observer;		/* the client is connected to one with a
								 * master */
} Weather;

/* When it goes on, each of its threads gets to run before the next stop. */
static void
stop_server(Model *model, Server *server, int64_t until)
{
	for (int i = 0; i < NTHREADS; i++)
		server->runs_at[i] = until + dice(WAKE_TIME);
	model->awake_until = until + WAKE_TIME;
}

static void
misfortune(Model *model, const Weather *weather)
{
	if (weather->stops && dice(weather->stops) == 0)
		model->stopped_until = model->now + dice(weather->duration);
	if (weather->server_stops && dice(weather->server_stops) == 0 &&
		model->now >= model->awake_until)
	{
		int64_t		until = model->now + dice(weather->duration);

		stop_server(model, &model->servers[dice(2) ? 0 : dice(model->client)],
					until);
	}
	if (weather->stalls && dice(weather->stalls) == 0 &&
		model->now >= model->clear_until)
	{
		int64_t		until = model->now + dice(weather->duration);
		int			which = dice(3 * model->client);
		int			link = 1 + which / 3;

		if (weather->pause != 0)
			model->clear_until = until + weather->pause;

		/* one direction, or a link as a whole */
		if (which % 3 != 1)
			stall(&model->up[link], until);
		if (which % 3 != 2)
			stall(&model->down[link], until);
	}
}

/*
 * One run.  Returns the least that was left of the lease once it was long, in
 * ms; or, once a lease has outlived the session, INT64_MIN.  If "chained",
 * proofs do not count alone.
 */
static int64_t
run(uint64_t seed, const Weather *weather, bool chained)
{
	Model	   *model = calloc(1, sizeof(Model));
	int64_t		least = INT64_MAX;

	assert_non_null(model);
	random_state = seed;
	model->tick = TIMEOUT / 2 - dice(TIMEOUT / 3);
	model->now = 1000;
	model->heard_at = model->now;
	model->client = weather->observer ? 3 : 2;
	for (int i = 0; i < model->client; i++)
		model->servers[i].ping_at = model->now +
			dice((uint32_t) model->tick / 2);
	lease_begin(&model->lease, model->now);
	if (chained)
		model->lease.distrust_until = INT64_MAX;
	connect_anew(model);

	for (; model->now < 1000 + RUN_TIME && least != INT64_MIN; model->now++)
	{
		misfortune(model, weather);
		for (int i = 0; i < model->client; i++)
			server_turn(model, i);
		client_turn(model);
		if (model->now >= 1000 + TIMEOUT &&
			model->lease.until - model->now < least)
			least = model->lease.until - model->now;
		if (model->ended_at != 0 && model->lease.until > model->ended_at)
			least = INT64_MIN;
	}
	free(model);
	return least;
}

/* How many of many runs have a lease that outlives the session? */
static int
too_long(const Weather *weathers, int n, int nruns, bool chained)
{
	int			found = 0;

	for (int seed = 1; seed <= nruns; seed++)
		if (run(seed, &weathers[seed % n], chained) == INT64_MIN &&
			found++ == 0)
			print_message("seed %d: a lease outlives the session\n", seed);
	return found;
}

static void
in_good_weather_the_lease_stays_ahead(void **state)
{
	const Weather good = {0};

	(void) state;
	for (uint64_t seed = 1; seed <= NRUNS / 10; seed++)
		assert_true(run(seed, &good, false) > TIMEOUT / 6);
}

static void
no_lease_of_a_chain_outlives_the_session(void **state)
{
	const Weather weathers[] = {
		{0, 300, TIMEOUT / 2, 0, 0, false},
		{0, 2000, TIMEOUT, 0, 0, false},
		{0, 4000, TIMEOUT * 2, 0, 0, false},
		{2000, 0, TIMEOUT * 3 / 2, 0, 0, false},
		{4000, 4000, TIMEOUT * 3 / 2, 0, 0, false},
		{1000, 500, TIMEOUT, 0, 0, false},
	};

	(void) state;
	assert_int_equal(too_long(weathers, 6, NRUNS, true), 0);
}

/* The leader, above all, stops for longer than its pings are apart. */
static void
nor_if_servers_are_stopped(void **state)
{
	const Weather weathers[] = {
		{0, 0, TIMEOUT, 0, 300, false},
		{0, 0, TIMEOUT, 0, 150, false},
		{0, 0, TIMEOUT, 0, 80, false},
		{0, 1000, TIMEOUT, 0, 150, false},
		{1000, 0, TIMEOUT, 0, 150, false},
		{2000, 1000, TIMEOUT / 2, 0, 300, false},
	};

	(void) state;
	assert_int_equal(too_long(weathers, 6, NRUNS, true), 0);
}

/*
 * What lease.c says that it does not cover.  Should this fail, it does, and
 * the documentation need not warn of it.
 */
static void
but_behind_an_observer_master_some_do(void **state)
{
	const Weather weathers[] = {
		{0, 300, TIMEOUT / 2, 0, 0, true},
		{300, 300, TIMEOUT / 2, 0, 0, true},
	};

	(void) state;
	assert_int_not_equal(too_long(weathers, 2, NRUNS / 5, true), 0);
}

/* What a proof alone takes: a link that works again goes on for a while. */
static void
no_lease_outlives_the_session(void **state)
{
	const Weather weathers[] = {
		{0, 300, TIMEOUT / 2, TIMEOUT / 4, 0, false},
		{0, 500, TIMEOUT, TIMEOUT / 4, 0, false},
		{0, 1000, TIMEOUT * 2, TIMEOUT / 4, 0, false},
		{2000, 0, TIMEOUT * 3 / 2, TIMEOUT / 4, 0, false},
		{4000, 1000, TIMEOUT * 3 / 2, TIMEOUT / 4, 0, false},
		{1000, 500, TIMEOUT, TIMEOUT / 4, 0, false},
	};

	(void) state;
	assert_int_equal(too_long(weathers, 6, NRUNS, false), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_proof_is_a_short_lease),
		cmocka_unit_test(four_proofs_are_a_long_one),
		cmocka_unit_test(proofs_of_a_busy_moment_are_one),
		cmocka_unit_test(an_early_second_does_not_count),
		cmocka_unit_test(an_early_third_does_not_count),
		cmocka_unit_test(an_early_fourth_does_not_count),
		cmocka_unit_test(a_new_connection_begins_anew),
		cmocka_unit_test(after_a_stop_one_does_not_count),
		cmocka_unit_test(in_good_weather_the_lease_stays_ahead),
		cmocka_unit_test(no_lease_of_a_chain_outlives_the_session),
		cmocka_unit_test(nor_if_servers_are_stopped),
		cmocka_unit_test(but_behind_an_observer_master_some_do),
		cmocka_unit_test(no_lease_outlives_the_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
