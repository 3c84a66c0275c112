/*-------------------------------------------------------------------------
 *
 * test_lease.c
 *		Unit tests of lease.c: a lease never outlives the session.
 *
 * The rules of the lease are arguments about what a leader, a follower and the
 * client library do.  Here they are a model: messages travel in order, each for
 * as long as chance has it, links stall, the client process is stopped; and the
 * leader ends the session when it has not heard of it for too long.  However
 * that goes, no lease may be longer.
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

#include "worker/lease.h"

#define TIMEOUT		1200		/* of the session, in ms */
#define PING_INTERVAL	(TIMEOUT / 4 + TIMEOUT / 50)
#define RUN_TIME	12000
#define NRUNS		10000

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
three_proofs_are_a_long_one(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1010 + PING_INTERVAL, 1400);
	assert_int_equal(lease.until, 1010 + PING_INTERVAL + TIMEOUT / 50);
	lease_prove(&lease, TIMEOUT, 1400, 1410);
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
	lease_prove(&lease, TIMEOUT, 1400, 1410);
	assert_int_equal(lease.until, 1400 + TIMEOUT / 50);
}

static void
an_early_third_does_not_count(void **state)
{
	Lease		lease;

	(void) state;
	lease_begin(&lease, 1000);
	lease_prove(&lease, TIMEOUT, 1000, 1010);
	lease_prove(&lease, TIMEOUT, 1310, 1400);
	lease_prove(&lease, TIMEOUT, 1399, 1410);
	assert_int_equal(lease.until, 1399 + TIMEOUT / 50);
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
 */

typedef enum MessageKind
{
	CLIENT_PING,				/* client to follower, answered there */
	WRITE,						/* client by way of follower to leader */
	REVALIDATE,					/* the same, of a new connection */
	LEADER_PING,				/* leader to follower */
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

/* One direction of a link: in order, and now and then it stalls. */
typedef struct Link
{
	Message		messages[MAX_MESSAGES];
	int			first;
	int			n;
	int64_t		last_arrival;
	int64_t		stalled_until;
} Link;

typedef struct Model
{
	int64_t		now;
	int64_t		tick;
	Link		to_follower;	/* from the client */
	Link		to_client;
	Link		to_leader;
	Link		from_leader;
	/* leader */
	int64_t		heard_at;		/* of the session */
	int64_t		ended_at;		/* 0: alive */
	int64_t		ping_at;
	/* follower */
	bool		touched;
	/* client */
	int64_t		stopped_until;
	bool		connected;
	int			connection;
	bool		write_out;
	int64_t		sent_at;		/* anything, to the follower */
	int64_t		received_at;
	int64_t		turn_at;
	Lease		lease;
	int64_t		clear_until;	/* of the Weather */
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
stall(Model *model, Link *link, int64_t until)
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
	(void) model;
}

static void
leader_turn(Model *model)
{
	Message		message;

	if (model->ended_at == 0 && model->now >= model->heard_at + TIMEOUT)
		model->ended_at = model->now;
	while (get(model, &model->to_leader, &message))
	{
		if (model->ended_at == 0 &&
			((message.kind == TOUCHES && message.touched) ||
			 message.kind == REVALIDATE))
			model->heard_at = model->now;
		if (message.kind == WRITE || message.kind == REVALIDATE)
		{
			message.refused = model->ended_at != 0;
			put(model, &model->from_leader, message);
		}
	}
	if (model->now >= model->ping_at)
	{
		put(model, &model->from_leader, (Message) {.kind = LEADER_PING});
		model->ping_at += model->tick / 2;
	}
}

static void
follower_turn(Model *model)
{
	Message		message;

	/* which of the two it reads first is anybody's guess */
	for (int i = 0, which = dice(2); i < 2; i++, which = !which)
	{
		while (which && get(model, &model->to_follower, &message))
		{
			model->touched = true;
			put(model, message.kind == CLIENT_PING ?
				&model->to_client : &model->to_leader, message);
		}
		while (!which && get(model, &model->from_leader, &message))
		{
			if (message.kind == LEADER_PING)
			{
				put(model, &model->to_leader,
					(Message) {.kind = TOUCHES,.touched = model->touched});
				model->touched = false;
			}
			else
				put(model, &model->to_client, message);
		}
	}
}

static void
to_follower(Model *model, MessageKind kind)
{
	model->sent_at = model->now;
	put(model, &model->to_follower,
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
	to_follower(model, REVALIDATE);
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
	while (get(model, &model->to_client, &message))
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
		to_follower(model, CLIENT_PING);

	/* the worker: when it has to, and for something else in between */
	if (model->now >= model->turn_at ||
		model->now == lease_heartbeat_at(&model->lease, TIMEOUT) ||
		dice(200) == 0)
	{
		model->turn_at = lease_turn(&model->lease, TIMEOUT, model->now);
		if (model->connected && !model->write_out &&
			(model->now >= lease_heartbeat_at(&model->lease, TIMEOUT) ||
			 dice(8) == 0))
		{
			model->write_out = true;
			to_follower(model, WRITE);
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
} Weather;

static void
misfortune(Model *model, const Weather *weather)
{
	Link	   *links[] = {&model->to_follower, &model->to_client,
	&model->to_leader, &model->from_leader};

	if (weather->stops && dice(weather->stops) == 0)
		model->stopped_until = model->now + dice(weather->duration);
	if (weather->stalls && dice(weather->stalls) == 0 &&
		model->now >= model->clear_until)
	{
		int64_t		until = model->now + dice(weather->duration);
		int			which = dice(6);

		if (weather->pause != 0)
			model->clear_until = until + weather->pause;

		/* one direction, or a link as a whole */
		if (which < 4)
			stall(model, links[which], until);
		else
			for (int i = (which - 4) * 2; i < (which - 4) * 2 + 2; i++)
				stall(model, links[i], until);
	}
}

/*
 * Returns the least that was left of the lease once it was long, in ms.  If
 * "three", proofs do not count alone.
 */
static int64_t
run(uint64_t seed, const Weather *weather, bool three)
{
	Model	   *model = calloc(1, sizeof(Model));
	int64_t		least = INT64_MAX;

	assert_non_null(model);
	random_state = seed;
	model->tick = TIMEOUT / 2 - dice(TIMEOUT / 3);
	model->now = 1000;
	model->heard_at = model->now;
	model->ping_at = model->now + dice((uint32_t) model->tick / 2);
	lease_begin(&model->lease, model->now);
	if (three)
		model->lease.distrust_until = INT64_MAX;
	connect_anew(model);

	for (; model->now < 1000 + RUN_TIME; model->now++)
	{
		misfortune(model, weather);
		leader_turn(model);
		follower_turn(model);
		client_turn(model);
		if (model->ended_at != 0 && model->lease.until > model->ended_at)
			fail_msg("seed %llu: the session ended at %lld, the lease is until %lld",
					 (unsigned long long) seed, (long long) model->ended_at,
					 (long long) model->lease.until);
		if (model->now >= 1000 + TIMEOUT &&
			model->lease.until - model->now < least)
			least = model->lease.until - model->now;
	}
	free(model);
	return least;
}

static void
in_good_weather_the_lease_stays_ahead(void **state)
{
	const Weather good = {0};

	(void) state;
	for (uint64_t seed = 1; seed <= NRUNS / 10; seed++)
		assert_true(run(seed, &good, false) > TIMEOUT / 10);
}

static void
no_lease_of_three_outlives_the_session(void **state)
{
	const Weather weathers[] = {
		{0, 300, TIMEOUT / 2, 0},
		{0, 2000, TIMEOUT, 0},
		{0, 4000, TIMEOUT * 2, 0},
		{2000, 0, TIMEOUT * 3 / 2, 0},
		{4000, 4000, TIMEOUT * 3 / 2, 0},
		{1000, 500, TIMEOUT, 0},
	};

	(void) state;
	for (uint64_t seed = 1; seed <= NRUNS; seed++)
		(void) run(seed, &weathers[seed % 6], true);
}

/* What a proof alone takes: a link that works again goes on for a while. */
static void
no_lease_outlives_the_session(void **state)
{
	const Weather weathers[] = {
		{0, 300, TIMEOUT / 2, TIMEOUT / 4},
		{0, 500, TIMEOUT, TIMEOUT / 4},
		{0, 1000, TIMEOUT * 2, TIMEOUT / 4},
		{2000, 0, TIMEOUT * 3 / 2, TIMEOUT / 4},
		{4000, 1000, TIMEOUT * 3 / 2, TIMEOUT / 4},
		{1000, 500, TIMEOUT, TIMEOUT / 4},
	};

	(void) state;
	for (uint64_t seed = 1; seed <= NRUNS; seed++)
		(void) run(seed, &weathers[seed % 6], false);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_proof_is_a_short_lease),
		cmocka_unit_test(three_proofs_are_a_long_one),
		cmocka_unit_test(proofs_of_a_busy_moment_are_one),
		cmocka_unit_test(an_early_second_does_not_count),
		cmocka_unit_test(an_early_third_does_not_count),
		cmocka_unit_test(a_new_connection_begins_anew),
		cmocka_unit_test(after_a_stop_one_does_not_count),
		cmocka_unit_test(in_good_weather_the_lease_stays_ahead),
		cmocka_unit_test(no_lease_of_three_outlives_the_session),
		cmocka_unit_test(no_lease_outlives_the_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
