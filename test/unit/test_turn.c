/*-------------------------------------------------------------------------
 *
 * test_turn.c
 *		Unit tests of turn.c: a test for each line of its table, by its name.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_turn.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/lock/turn.h"

/* Lengths of time, as their settings may have them, in us. */
#define QUANTUM		INT64_C(50000)
#define PART		(QUANTUM / 10)
#define RETAIN		INT64_C(2000000)
#define IDLE		INT64_C(100000)

/* When the lock is granted, and when it is first dropped. */
#define GRANTED_AT	INT64_C(1000000)
#define DROPPED_AT	INT64_C(1500000)

/* How a Turn comes to be: what has happened since the slot was made. */
typedef struct Story
{
	bool		queued;
	bool		retainable;
	TurnBehind	behind;
} Story;

static const TurnBehind all_behind[] = {
	TURN_UNKNOWN, TURN_TO_ASK, TURN_ASKED, TURN_ALONE, TURN_CONTENDED
};

#define NBEHIND		((int) (sizeof(all_behind) / sizeof(all_behind[0])))

static Turn
granted(Story story)
{
	Turn		turn;

	memset(&turn, 0, sizeof(turn));
	(void) turn_granted(&turn, story.queued, story.retainable, GRANTED_AT);
	turn.behind = story.behind;
	return turn;
}

/* A backend drops the lock, and another one is about to take it. */
static TurnInput
drop_at(int64_t now)
{
	TurnInput	in = {
		.now = now,
		.quantum = QUANTUM,
		.waiting = 3,
		.taker = true
	};

	return in;
}

/* The same, of a lock that may be retained, and that nobody wants. */
static TurnInput
retain_at(int64_t now)
{
	TurnInput	in = drop_at(now);

	in.waiting = 0;
	in.taker = false;
	in.retain_time = RETAIN;
	in.room = true;
	return in;
}

/* A turn that began at DROPPED_AT, when three waited. */
static Turn
begun(Story story)
{
	Turn		turn = granted(story);
	TurnInput	in = drop_at(DROPPED_AT);

	/* one line of the table does not depend on another */
	in.readers = true;
	assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
	assert_int_equal(turn.start, DROPPED_AT);
	assert_int_equal(turn.due, 2);
	return turn;
}

static TurnDecision
dropped(Turn turn, TurnInput in)
{
	return turn_dropped(&turn, &in);
}

/* An idle slot, from DROPPED_AT on. */
static Turn
idle(TurnIdle why, TurnBehind behind)
{
	Turn		turn;

	memset(&turn, 0, sizeof(turn));
	turn.start = GRANTED_AT;
	turn.idle = why;
	turn.idle_since = DROPPED_AT;
	turn.behind = behind;
	return turn;
}

/*
 * Lines B: behind
 */

static void
b1_who_may_be_retained_is_alone_when_granted(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn;

		memset(&turn, 0, sizeof(turn));
		turn.behind = all_behind[i];
		(void) turn_granted(&turn, false, true, GRANTED_AT);
		assert_int_equal(turn.behind, all_behind[i] == TURN_CONTENDED ?
						 TURN_CONTENDED : TURN_ALONE);
	}
}

static void
b2_else_a_grant_tells_nothing(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn;

		memset(&turn, 0, sizeof(turn));
		turn.behind = all_behind[i];
		(void) turn_granted(&turn, true, false, GRANTED_AT);
		assert_int_equal(turn.behind, all_behind[i]);
	}
}

static void
b3_the_first_handoff_asks(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});
		TurnInput	in = drop_at(DROPPED_AT);
		TurnBehind	behind = all_behind[i];

		assert_int_equal(turn_dropped(&turn, &in), behind == TURN_UNKNOWN ?
						 TURN_HAND_ON_AND_ASK : TURN_HAND_ON);
		assert_int_equal(turn.behind, behind == TURN_UNKNOWN ?
						 TURN_TO_ASK : behind);

		/* contested; readers; nobody to hand it to */
		turn = granted((Story) {.behind = behind,.queued = true});
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		assert_int_equal(turn.behind, behind);
		turn = granted((Story) {.behind = behind});
		in.readers = true;
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		assert_int_equal(turn.behind, behind);
	}
	for (int given_up = 0; given_up < 2; given_up++)
	{
		Turn		turn = granted((Story) {.behind = TURN_UNKNOWN});
		TurnInput	in = drop_at(DROPPED_AT);

		in.taker = false;
		in.mail_waiting = !given_up;
		assert_int_equal(turn_dropped(&turn, &in), given_up ?
						 TURN_GIVE_UP : TURN_LEAVE);
		assert_int_equal(turn.behind, TURN_UNKNOWN);
	}
}

static void
b4_the_worker_takes_the_question_once(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});

		assert_int_equal(turn_take_ask(&turn), all_behind[i] == TURN_TO_ASK);
		assert_int_equal(turn.behind, all_behind[i] == TURN_TO_ASK ?
						 TURN_ASKED : all_behind[i]);
		assert_false(turn_take_ask(&turn));
	}
}

static void
b5_alone_unless_contended(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
		for (int readers = 0; readers < 2; readers++)
		{
			Turn		turn = granted((Story) {.behind = all_behind[i]});
			bool		stays = all_behind[i] == TURN_CONTENDED && !readers;

			turn_alone(&turn, readers);
			assert_int_equal(turn.behind, stays ? TURN_CONTENDED : TURN_ALONE);
			assert_false(turn_take_ask(&turn));
		}
}

static void
b6_disconnected_is_not_alone(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});

		turn_disconnected(&turn);
		assert_int_equal(turn.behind, all_behind[i] == TURN_ALONE ?
						 TURN_ASKED : all_behind[i]);
	}
}

static void
b7_contended_whatever_was_known(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});

		(void) turn_contended(&turn, false, false, 0, DROPPED_AT);
		assert_int_equal(turn.behind, TURN_CONTENDED);
	}
}

static void
b8_unwatched_is_unknown(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});

		turn_unwatched(&turn);
		assert_int_equal(turn.behind, all_behind[i] == TURN_CONTENDED ?
						 TURN_CONTENDED : TURN_UNKNOWN);
	}
}

static void
b9_a_contender_that_is_gone_takes_all_with_it(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});

		(void) turn_gone(&turn, 0, DROPPED_AT);
		assert_int_equal(turn.behind, TURN_UNKNOWN);
		turn = granted((Story) {.behind = all_behind[i]});
		turn_unknown(&turn);
		assert_int_equal(turn.behind, TURN_UNKNOWN);
	}
}

/*
 * Lines C: contested
 */

static void
c1_who_had_to_queue_is_contested_twice(void **state)
{
	Turn		turn;

	(void) state;
	memset(&turn, 0, sizeof(turn));
	for (int i = 0; i < 2; i++)
	{
		(void) turn_granted(&turn, true, false, GRANTED_AT);
		assert_int_equal(turn.contested, 2);
		(void) turn_gone(&turn, 0, DROPPED_AT);
		assert_int_equal(turn.contested, 2);
	}
}

static void
c2_a_grant_at_once_is_one_less(void **state)
{
	Turn		turn;

	(void) state;
	memset(&turn, 0, sizeof(turn));
	(void) turn_granted(&turn, true, false, GRANTED_AT);
	for (int left = 1; left >= -1; left--)
	{
		(void) turn_granted(&turn, false, false, GRANTED_AT);
		assert_int_equal(turn.contested, left > 0 ? left : 0);
	}
}

/*
 * Lines T: the turn's beginning
 */

static void
t1_a_grant_begins_no_turn(void **state)
{
	Turn		turn = begun((Story) {.behind = TURN_ALONE});

	(void) state;
	(void) turn_granted(&turn, false, false, DROPPED_AT + 1);
	assert_int_equal(turn.start, 0);
}

static void
t2_the_first_drop_does(void **state)
{
	Turn		turn = begun((Story) {.behind = TURN_ALONE});
	TurnInput	in = drop_at(DROPPED_AT + 7);

	(void) state;
	in.waiting = 9;
	(void) turn_dropped(&turn, &in);
	assert_int_equal(turn.start, DROPPED_AT);
	assert_int_equal(turn.due, 1);
}

static void
t3_others_begin_it_anew(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
		for (int queued = 0; queued < 2; queued++)
		{
			Turn		turn = begun((Story) {.behind = all_behind[i],
											  .queued = queued});
			bool		anew = all_behind[i] == TURN_ALONE && !queued;

			assert_int_equal(turn_contended(&turn, false, true, 5,
											DROPPED_AT + 7), TURN_KEEP);
			assert_int_equal(turn.start, anew ? DROPPED_AT + 7 : DROPPED_AT);
			assert_int_equal(turn.due, anew ? 5 : 2);
		}
}

static void
t4_each_drop_that_goes_on_is_one_less(void **state)
{
	Turn		turn = begun((Story) {.behind = TURN_ALONE});
	TurnInput	in = drop_at(DROPPED_AT + 1);

	(void) state;
	(void) turn_dropped(&turn, &in);
	assert_int_equal(turn.due, 1);
	in.taker = false;
	in.mail_waiting = true;
	assert_int_equal(turn_dropped(&turn, &in), TURN_LEAVE);
	assert_int_equal(turn.due, 0);
	in = retain_at(DROPPED_AT + 2);
	assert_int_equal(turn_dropped(&turn, &in), TURN_RETAIN);
	assert_int_equal(turn.due, -1);
	in.retain_time = 0;
	assert_int_equal(turn_dropped(&turn, &in), TURN_GIVE_UP);
	assert_int_equal(turn.due, -1);
}

static void
t5_until_it_is_long_enough_all_are_due_again(void **state)
{
	Turn		turn = begun((Story) {.behind = TURN_CONTENDED});
	TurnInput	in = drop_at(DROPPED_AT + PART - 1);

	(void) state;
	turn.due = 1;
	in.waiting = 9;
	(void) turn_dropped(&turn, &in);
	assert_int_equal(turn.due, 0);	/* one was due, so not yet */
	(void) turn_dropped(&turn, &in);
	assert_int_equal(turn.due, 8);	/* T4, too */

	/* they have it, though it is long enough by then */
	in.now++;
	for (int left = 7; left >= 0; left--)
	{
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		assert_int_equal(turn.due, left);
	}
	assert_int_equal(turn_dropped(&turn, &in), TURN_GIVE_UP);
	assert_int_equal(turn.due, 0);
}

/*
 * Lines R: how long a release takes
 */

/* What is known when a release that was given up then has taken so long. */
static int
released(int known, int64_t took)
{
	Turn		turn = granted((Story) {.behind = TURN_CONTENDED});

	turn_given_up(&turn, DROPPED_AT);
	return turn_gone(&turn, known, DROPPED_AT + took);
}

static void
r1_what_no_owner_gave_up_tells_nothing(void **state)
{
	(void) state;
	for (int why = TURN_GRANTED; why <= TURN_RETAINED; why++)
	{
		Turn		turn = idle(why, TURN_ALONE);

		assert_int_equal(turn_gone(&turn, 800, DROPPED_AT + 10), 800);
		assert_int_equal(turn_gone(&turn, 0, DROPPED_AT + 10), 0);

		/* an owner that gave up does, once */
		turn_given_up(&turn, DROPPED_AT);
		turn_unknown(&turn);
		assert_int_equal(turn_gone(&turn, 0, DROPPED_AT + 900), 900);
		assert_int_equal(turn_gone(&turn, 800, DROPPED_AT + 910), 800);
	}
	assert_int_equal(released(800, 0), 800);
	assert_int_equal(released(800, -5), 800);
}

static void
r2_the_first_release_counts_as_it_is(void **state)
{
	(void) state;
	assert_int_equal(released(0, 1), 1);
	assert_int_equal(released(0, 800), 800);
	assert_int_equal(released(0, IDLE), IDLE);
	assert_int_equal(released(0, IDLE + 1), IDLE);
}

static void
r3_a_longer_one_adds_a_quarter_at_most(void **state)
{
	(void) state;
	assert_int_equal(released(800, 1200), 900);
	assert_int_equal(released(800, 1600), 1000);
	assert_int_equal(released(800, 1700), 1000);
	assert_int_equal(released(800, INT64_C(1000000000000)), 1000);
	assert_int_equal(released(IDLE, INT64_C(1000000000000)), IDLE);

	/* however little is known */
	assert_int_equal(released(1, 2), 2);
	assert_int_equal(released(800, 801), 801);
}

static void
r4_a_shorter_one_counts_half(void **state)
{
	(void) state;
	assert_int_equal(released(800, 800), 800);
	assert_int_equal(released(800, 400), 600);
	assert_int_equal(released(800, 1), 401);
}

/* R3, R4: one slow release is soon forgotten, a slow server soon known. */
static void
r_one_slow_release_is_soon_forgotten(void **state)
{
	int			known = 1000;

	(void) state;
	known = released(known, 50 * 1000);
	assert_true(known <= 1250);
	known = released(known, 1000);
	known = released(known, 1000);
	assert_true(known < 1100);
	for (int i = 0; i < 20; i++)
		known = released(known, 50 * 1000);
	assert_true(known > 45 * 1000 && known <= 50 * 1000);
}

/*
 * Lines D: dropped
 */

static void
d1_a_permit_is_given_up(void **state)
{
	Turn		turn = granted((Story) {.behind = TURN_ALONE});
	TurnInput	in = drop_at(DROPPED_AT);

	(void) state;
	in.permit = true;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	in = retain_at(DROPPED_AT);
	in.permit = true;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
}

static void
d2_readers_give_way_to_a_writer(void **state)
{
	Turn		turn = granted((Story) {.behind = TURN_ALONE});
	TurnInput	in = drop_at(DROPPED_AT);

	(void) state;
	in.readers = true;
	assert_int_equal(dropped(turn, in), TURN_HAND_ON);
	in.writer_behind = true;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	in = retain_at(DROPPED_AT);
	in.writer_behind = true;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
}

static void
d3_what_nobody_else_wants_is_retained(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
		for (int queued = 0; queued < 2; queued++)
		{
			Turn		turn = granted((Story) {.behind = all_behind[i],
												.queued = queued});
			TurnInput	in = retain_at(DROPPED_AT);

			assert_int_equal(turn_dropped(&turn, &in),
							 all_behind[i] == TURN_ALONE ?
							 TURN_RETAIN : TURN_GIVE_UP);
			if (all_behind[i] != TURN_ALONE)
				continue;
			assert_int_equal(turn.idle, TURN_RETAINED);
			assert_int_equal(turn.idle_since, DROPPED_AT);
		}
}

static void
d3_each_condition_counts(void **state)
{
	Turn		turn = granted((Story) {.behind = TURN_ALONE});
	TurnInput	in = retain_at(DROPPED_AT);

	(void) state;
	in.retain_time = 1;
	assert_int_equal(dropped(turn, in), TURN_RETAIN);
	in.retain_time = 0;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	in = retain_at(DROPPED_AT);
	in.room = false;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	in = retain_at(DROPPED_AT);
	in.taker = true;
	assert_int_equal(dropped(turn, in), TURN_HAND_ON);
}

/* Backends that wait, but cannot take it, are no takers. */
static void
d4_without_a_taker_it_is_given_up(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = granted((Story) {.behind = all_behind[i]});
		TurnInput	in = drop_at(DROPPED_AT);

		in.taker = false;
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	}
}

static void
d5_alone_handoffs_go_on_for_ever(void **state)
{
	Turn		turn = begun((Story) {.behind = TURN_ALONE});

	(void) state;
	for (int i = 1; i <= 10; i++)
	{
		TurnInput	in = drop_at(DROPPED_AT + i * QUANTUM);

		in.waiting = 0;
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		assert_int_equal(turn.idle, TURN_HANDED_ON);
		assert_int_equal(turn.idle_since, in.now);
		in.taker = false;
		in.mail_waiting = true;
		assert_int_equal(turn_dropped(&turn, &in), TURN_LEAVE);
		assert_int_equal(turn.idle, TURN_LEFT);
	}
}

static void
d6_others_do_not_wait_for_our_mail(void **state)
{
	TurnInput	in = drop_at(DROPPED_AT + 1);

	(void) state;
	in.taker = false;
	in.mail_waiting = true;
	assert_int_equal(dropped(begun((Story) {.behind = TURN_CONTENDED}), in),
					 TURN_GIVE_UP);
	for (int i = 0; i < NBEHIND; i++)
		assert_int_equal(dropped(begun((Story) {.behind = all_behind[i],
												.queued = true}), in),
						 TURN_GIVE_UP);
}

static const Story others[] = {
	{.behind = TURN_CONTENDED},
	{.behind = TURN_CONTENDED,.queued = true},
	{.behind = TURN_ALONE,.queued = true},
	{.behind = TURN_UNKNOWN,.queued = true}
};

#define NOTHERS		((int) (sizeof(others) / sizeof(others[0])))

static void
d7_a_turn_ends_with_the_quantum(void **state)
{
	(void) state;
	for (int i = 0; i < NOTHERS; i++)
	{
		Turn		turn = begun(others[i]);

		assert_int_equal(dropped(turn, drop_at(DROPPED_AT + QUANTUM - 1)),
						 TURN_HAND_ON);
		assert_int_equal(dropped(turn, drop_at(DROPPED_AT + QUANTUM)),
						 TURN_GIVE_UP);
	}
}

static void
d8_a_part_of_the_quantum_is_ours(void **state)
{
	(void) state;
	for (int i = 0; i < NOTHERS; i++)
	{
		Turn		turn = begun(others[i]);

		turn.due = 0;
		assert_int_equal(dropped(turn, drop_at(DROPPED_AT + PART - 1)),
						 TURN_HAND_ON);
		assert_int_equal(dropped(turn, drop_at(DROPPED_AT + PART)),
						 TURN_GIVE_UP);
	}
}

static void
d8_or_as_long_as_a_release_takes(void **state)
{
	(void) state;
	for (int i = 0; i < NOTHERS; i++)
	{
		Turn		turn = begun(others[i]);
		TurnInput	in = drop_at(DROPPED_AT + PART);

		turn.due = 0;
		turn.again = true;
		in.release_time = PART;
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
		in.release_time++;
		assert_int_equal(dropped(turn, in), TURN_HAND_ON);
		in.now++;
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);

		/* D7: but not beyond the quantum */
		in.release_time = 2 * QUANTUM;
		in.now = DROPPED_AT + QUANTUM - 1;
		assert_int_equal(dropped(turn, in), TURN_HAND_ON);
		in.now++;
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	}
}

static void
d8_or_twice_as_long_in_the_first_round(void **state)
{
	(void) state;
	for (int i = 0; i < NOTHERS; i++)
	{
		Turn		turn = begun(others[i]);
		TurnInput	in = drop_at(DROPPED_AT + 2 * PART - 1);

		turn.due = 0;
		in.release_time = PART;
		in.waiting = 1;
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);

		/* that was the second round */
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
		turn.again = false;
		in.now++;
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
		in.release_time++;
		assert_int_equal(dropped(turn, in), TURN_HAND_ON);

		/* a turn begins with its first round */
		turn = begun(others[i]);
		turn.due = 0;
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		(void) turn_granted(&turn, true, false, DROPPED_AT + QUANTUM);
		in.now = DROPPED_AT + 2 * QUANTUM;
		(void) turn_dropped(&turn, &in);
		turn.due = 0;
		in.now += 2 * PART;
		assert_int_equal(dropped(turn, in), TURN_HAND_ON);
	}
}

/* C2: the grant after one for which we had to queue is contested, too. */
static void
d8_so_is_the_next_grant(void **state)
{
	Turn		turn = granted((Story) {.queued = true});
	TurnInput	in = drop_at(DROPPED_AT);

	(void) state;
	(void) turn_granted(&turn, false, false, GRANTED_AT + 1);
	in.waiting = 1;
	assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
	in.now += PART;
	assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	(void) turn_granted(&turn, false, false, GRANTED_AT + 2);
	assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON_AND_ASK);
	in.now += PART;
	assert_int_equal(dropped(turn, in), TURN_HAND_ON);
}

static void
d9_all_who_waited_have_it_once(void **state)
{
	(void) state;
	for (int i = 0; i < NOTHERS; i++)
	{
		Turn		turn = begun(others[i]);
		TurnInput	in = drop_at(DROPPED_AT + PART);

		in.waiting = 100;		/* others have come since */
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		assert_int_equal(turn_dropped(&turn, &in), TURN_HAND_ON);
		assert_int_equal(turn_dropped(&turn, &in), TURN_GIVE_UP);
	}
}

static void
d10_and_then_others_have_it(void **state)
{
	(void) state;
	for (int i = 0; i < NOTHERS; i++)
		for (int due = -1; due <= 0; due++)
		{
			Turn		turn = begun(others[i]);

			turn.due = due;
			assert_int_equal(dropped(turn, drop_at(DROPPED_AT + PART)),
							 TURN_GIVE_UP);
		}
}

static const TurnBehind not_known[] = {
	TURN_UNKNOWN, TURN_TO_ASK, TURN_ASKED
};

#define NNOT_KNOWN	((int) (sizeof(not_known) / sizeof(not_known[0])))

static void
d11_what_is_not_known_goes_on_for_the_quantum(void **state)
{
	(void) state;
	for (int i = 0; i < NNOT_KNOWN; i++)
	{
		Turn		turn = begun((Story) {.behind = not_known[i]});
		TurnInput	in = drop_at(DROPPED_AT + QUANTUM - 1);

		turn.due = 0;
		in.readers = true;
		assert_int_equal(dropped(turn, in), TURN_HAND_ON);
		in.taker = false;
		in.mail_waiting = true;
		assert_int_equal(dropped(turn, in), TURN_LEAVE);
	}
}

static void
d12_and_no_longer(void **state)
{
	(void) state;
	for (int i = 0; i < NNOT_KNOWN; i++)
	{
		Turn		turn = begun((Story) {.behind = not_known[i]});
		TurnInput	in = drop_at(DROPPED_AT + QUANTUM);

		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
		in.taker = false;
		in.mail_waiting = true;
		assert_int_equal(dropped(turn, in), TURN_GIVE_UP);
	}
}

/*
 * Lines K and I: idle
 */

/* Until when is it kept, as seen by the worker that looks after it? */
static void
assert_kept_until(Turn turn, int64_t retain_time, int64_t until)
{
	int64_t		check_at = 0;

	if (until > turn.idle_since)
	{
		assert_int_equal(turn_checked(&turn, retain_time, until - 1,
									  &check_at), TURN_KEEP);
		assert_int_equal(check_at, until);
	}
	check_at = 0;
	assert_int_equal(turn_checked(&turn, retain_time, until,
								  &check_at), TURN_GIVE_UP);
	assert_int_equal(check_at, 0);
}

static void
k1_a_grant_and_a_handoff_are_kept_for_a_moment(void **state)
{
	Turn		turn;

	(void) state;
	memset(&turn, 0, sizeof(turn));
	assert_int_equal(turn_granted(&turn, false, false, GRANTED_AT),
					 GRANTED_AT + IDLE);
	assert_int_equal(turn.idle_since, GRANTED_AT);

	/* a short time for what is retained does not make that shorter */
	assert_kept_until(turn, 0, GRANTED_AT + IDLE);
	assert_kept_until(turn, RETAIN, GRANTED_AT + IDLE);
	turn = begun((Story) {.behind = TURN_ALONE});
	assert_kept_until(turn, 0, DROPPED_AT + IDLE);
	assert_kept_until(turn, RETAIN, DROPPED_AT + IDLE);
	(void) turn_granted(&turn, false, false, GRANTED_AT);
	assert_int_equal(turn.idle, TURN_GRANTED);
}

static void
k2_what_is_left_is_not_kept(void **state)
{
	(void) state;
	assert_kept_until(idle(TURN_LEFT, TURN_ALONE), RETAIN, DROPPED_AT);
	assert_kept_until(idle(TURN_GIVEN_UP, TURN_ALONE), RETAIN, DROPPED_AT);
}

static void
k3_what_is_retained_is_for_its_time(void **state)
{
	Turn		turn = idle(TURN_RETAINED, TURN_ALONE);

	(void) state;
	assert_kept_until(turn, RETAIN, DROPPED_AT + RETAIN);
	assert_kept_until(turn, 5, DROPPED_AT + 5);
	assert_kept_until(turn, 0, DROPPED_AT);
}

static void
i1_contended_and_nobody_to_take_it(void **state)
{
	(void) state;
	for (int why = TURN_GRANTED; why <= TURN_RETAINED; why++)
	{
		Turn		turn = idle(why, TURN_ALONE);

		assert_int_equal(turn_contended(&turn, true, false, 2,
										DROPPED_AT + 1), TURN_GIVE_UP);
		assert_int_equal(turn.behind, TURN_CONTENDED);
	}
}

static void
i2_what_was_retained_is_soon_taken_or_given_up(void **state)
{
	Turn		turn = idle(TURN_RETAINED, TURN_ALONE);

	(void) state;
	assert_int_equal(turn_contended(&turn, true, true, 1, DROPPED_AT + 7),
					 TURN_KEEP);
	assert_int_equal(turn.idle, TURN_HANDED_ON);
	assert_kept_until(turn, RETAIN, DROPPED_AT + 7 + IDLE);
}

static void
i3_else_it_is_kept_as_before(void **state)
{
	Turn		turn = idle(TURN_GRANTED, TURN_ALONE);

	(void) state;
	assert_int_equal(turn_contended(&turn, true, true, 1, DROPPED_AT + 7),
					 TURN_KEEP);
	assert_int_equal(turn.idle, TURN_GRANTED);
	assert_kept_until(turn, RETAIN, DROPPED_AT + IDLE);
	turn = idle(TURN_LEFT, TURN_ALONE);
	assert_int_equal(turn_contended(&turn, true, true, 1, DROPPED_AT + 7),
					 TURN_KEEP);
	assert_kept_until(turn, RETAIN, DROPPED_AT);

	/* what is held is not idle, whatever it was before */
	turn = idle(TURN_RETAINED, TURN_ALONE);
	assert_int_equal(turn_contended(&turn, false, false, 0, DROPPED_AT + 7),
					 TURN_KEEP);
	assert_int_equal(turn.idle, TURN_RETAINED);
	assert_int_equal(turn.idle_since, DROPPED_AT);
}

static void
i4_what_may_be_retained_is_kept_for_nobody(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
	{
		Turn		turn = idle(TURN_RETAINED, all_behind[i]);

		assert_int_equal(turn_unwanted(&turn, RETAIN,
									   DROPPED_AT + RETAIN - 1),
						 all_behind[i] == TURN_CONTENDED ?
						 TURN_GIVE_UP : TURN_KEEP);
		turn = idle(TURN_GRANTED, all_behind[i]);
		assert_int_equal(turn_unwanted(&turn, RETAIN,
									   DROPPED_AT + IDLE - 1),
						 all_behind[i] == TURN_CONTENDED ?
						 TURN_GIVE_UP : TURN_KEEP);
	}
}

static void
i5_what_nobody_wants_is_given_up(void **state)
{
	Turn		turn = idle(TURN_RETAINED, TURN_ALONE);

	(void) state;
	assert_int_equal(turn_unwanted(&turn, RETAIN, DROPPED_AT + RETAIN),
					 TURN_GIVE_UP);
	turn = idle(TURN_HANDED_ON, TURN_ALONE);
	assert_int_equal(turn_unwanted(&turn, RETAIN, DROPPED_AT + IDLE),
					 TURN_GIVE_UP);
	assert_int_equal(turn_unwanted(&turn, 0, DROPPED_AT),
					 TURN_GIVE_UP);
}

static void
i6_the_worker_takes_what_was_left(void **state)
{
	Turn		turn = idle(TURN_LEFT, TURN_UNKNOWN);

	(void) state;
	assert_int_equal(turn_mail_opened(&turn, false, RETAIN, DROPPED_AT),
					 TURN_GIVE_UP);
	turn = idle(TURN_HANDED_ON, TURN_UNKNOWN);
	assert_int_equal(turn_mail_opened(&turn, false, RETAIN,
									  DROPPED_AT + IDLE), TURN_GIVE_UP);
	turn = idle(TURN_RETAINED, TURN_ALONE);
	assert_int_equal(turn_mail_opened(&turn, false, RETAIN,
									  DROPPED_AT + RETAIN), TURN_GIVE_UP);
}

static void
i7_but_not_from_a_taker_or_ahead_of_time(void **state)
{
	Turn		turn = idle(TURN_LEFT, TURN_UNKNOWN);

	(void) state;
	assert_int_equal(turn_mail_opened(&turn, true, RETAIN, DROPPED_AT + 1),
					 TURN_KEEP);
	turn = idle(TURN_HANDED_ON, TURN_UNKNOWN);
	assert_int_equal(turn_mail_opened(&turn, false, RETAIN,
									  DROPPED_AT + IDLE - 1), TURN_KEEP);
	turn = idle(TURN_RETAINED, TURN_ALONE);
	assert_int_equal(turn_mail_opened(&turn, false, RETAIN,
									  DROPPED_AT + RETAIN - 1), TURN_KEEP);
}

static void
i8_it_is_checked_again_in_time(void **state)
{
	Turn		turn = idle(TURN_RETAINED, TURN_ALONE);
	int64_t		check_at = 0;

	(void) state;
	assert_int_equal(turn_checked(&turn, RETAIN, DROPPED_AT, &check_at),
					 TURN_KEEP);
	assert_int_equal(check_at, DROPPED_AT + RETAIN);
}

static void
i9_what_nobody_takes_is_given_up(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
		assert_kept_until(idle(TURN_HANDED_ON, all_behind[i]), RETAIN,
						  DROPPED_AT + IDLE);
}

/*
 * Lines P: proof
 */

static void
p1_a_grant_relies_on_the_commit(void **state)
{
	(void) state;
	for (int i = 0; i < NBEHIND; i++)
		for (int retainable = 0; retainable < 2; retainable++)
		{
			Turn		turn = granted((Story) {.retainable = retainable});

			assert_true(turn_is_proved(&turn, retainable ? RETAIN : 0, 0,
									   GRANTED_AT + 100 * IDLE));

			/* that others come says nothing about the session */
			(void) turn_contended(&turn, true, true, 1, GRANTED_AT + 1);
			assert_true(turn_is_proved(&turn, retainable ? RETAIN : 0, 0,
									   GRANTED_AT + 100 * IDLE));
		}
}

static void
p2_the_lease_proves_all(void **state)
{
	(void) state;
	for (int why = TURN_HANDED_ON; why <= TURN_RETAINED; why++)
	{
		Turn		turn = idle(why, TURN_ALONE);
		int64_t		now = DROPPED_AT + 100 * IDLE;

		assert_true(turn_is_proved(&turn, RETAIN, now + 1, now));
		assert_false(turn_is_proved(&turn, RETAIN, now, now));
		assert_true(turn_is_proved(&turn, 0, now + 1, now));
		assert_false(turn_is_proved(&turn, 0, now, now));
	}
}

static void
p3_what_may_be_retained_needs_it(void **state)
{
	(void) state;
	for (int why = TURN_HANDED_ON; why <= TURN_RETAINED; why++)
	{
		Turn		turn = idle(why, TURN_ALONE);

		assert_false(turn_is_proved(&turn, RETAIN, 0, DROPPED_AT));
	}
}

static void
p4_a_recent_handoff_relies_on_the_commit(void **state)
{
	Turn		turn = idle(TURN_HANDED_ON, TURN_ALONE);

	(void) state;
	assert_true(turn_is_proved(&turn, 0, 0, DROPPED_AT + 2 * IDLE - 1));
	turn = idle(TURN_LEFT, TURN_ALONE);
	assert_true(turn_is_proved(&turn, 0, 0, DROPPED_AT + IDLE - 1));
}

static void
p5_an_old_one_does_not(void **state)
{
	Turn		turn = idle(TURN_HANDED_ON, TURN_ALONE);

	(void) state;
	assert_false(turn_is_proved(&turn, 0, 0, DROPPED_AT + 2 * IDLE));
	turn = idle(TURN_LEFT, TURN_ALONE);
	assert_false(turn_is_proved(&turn, 0, 0, DROPPED_AT + IDLE));
}

static void
a_turn_is_small(void **state)
{
	(void) state;
	assert_true(sizeof(Turn) <= 24);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(b1_who_may_be_retained_is_alone_when_granted),
		cmocka_unit_test(b2_else_a_grant_tells_nothing),
		cmocka_unit_test(b3_the_first_handoff_asks),
		cmocka_unit_test(b4_the_worker_takes_the_question_once),
		cmocka_unit_test(b5_alone_unless_contended),
		cmocka_unit_test(b6_disconnected_is_not_alone),
		cmocka_unit_test(b7_contended_whatever_was_known),
		cmocka_unit_test(b8_unwatched_is_unknown),
		cmocka_unit_test(b9_a_contender_that_is_gone_takes_all_with_it),
		cmocka_unit_test(c1_who_had_to_queue_is_contested_twice),
		cmocka_unit_test(c2_a_grant_at_once_is_one_less),
		cmocka_unit_test(t1_a_grant_begins_no_turn),
		cmocka_unit_test(t2_the_first_drop_does),
		cmocka_unit_test(t3_others_begin_it_anew),
		cmocka_unit_test(t4_each_drop_that_goes_on_is_one_less),
		cmocka_unit_test(t5_until_it_is_long_enough_all_are_due_again),
		cmocka_unit_test(r1_what_no_owner_gave_up_tells_nothing),
		cmocka_unit_test(r2_the_first_release_counts_as_it_is),
		cmocka_unit_test(r3_a_longer_one_adds_a_quarter_at_most),
		cmocka_unit_test(r4_a_shorter_one_counts_half),
		cmocka_unit_test(r_one_slow_release_is_soon_forgotten),
		cmocka_unit_test(d1_a_permit_is_given_up),
		cmocka_unit_test(d2_readers_give_way_to_a_writer),
		cmocka_unit_test(d3_what_nobody_else_wants_is_retained),
		cmocka_unit_test(d3_each_condition_counts),
		cmocka_unit_test(d4_without_a_taker_it_is_given_up),
		cmocka_unit_test(d5_alone_handoffs_go_on_for_ever),
		cmocka_unit_test(d6_others_do_not_wait_for_our_mail),
		cmocka_unit_test(d7_a_turn_ends_with_the_quantum),
		cmocka_unit_test(d8_a_part_of_the_quantum_is_ours),
		cmocka_unit_test(d8_or_as_long_as_a_release_takes),
		cmocka_unit_test(d8_or_twice_as_long_in_the_first_round),
		cmocka_unit_test(d8_so_is_the_next_grant),
		cmocka_unit_test(d9_all_who_waited_have_it_once),
		cmocka_unit_test(d10_and_then_others_have_it),
		cmocka_unit_test(d11_what_is_not_known_goes_on_for_the_quantum),
		cmocka_unit_test(d12_and_no_longer),
		cmocka_unit_test(k1_a_grant_and_a_handoff_are_kept_for_a_moment),
		cmocka_unit_test(k2_what_is_left_is_not_kept),
		cmocka_unit_test(k3_what_is_retained_is_for_its_time),
		cmocka_unit_test(i1_contended_and_nobody_to_take_it),
		cmocka_unit_test(i2_what_was_retained_is_soon_taken_or_given_up),
		cmocka_unit_test(i3_else_it_is_kept_as_before),
		cmocka_unit_test(i4_what_may_be_retained_is_kept_for_nobody),
		cmocka_unit_test(i5_what_nobody_wants_is_given_up),
		cmocka_unit_test(i6_the_worker_takes_what_was_left),
		cmocka_unit_test(i7_but_not_from_a_taker_or_ahead_of_time),
		cmocka_unit_test(i8_it_is_checked_again_in_time),
		cmocka_unit_test(i9_what_nobody_takes_is_given_up),
		cmocka_unit_test(p1_a_grant_relies_on_the_commit),
		cmocka_unit_test(p2_the_lease_proves_all),
		cmocka_unit_test(p3_what_may_be_retained_needs_it),
		cmocka_unit_test(p4_a_recent_handoff_relies_on_the_commit),
		cmocka_unit_test(p5_an_old_one_does_not),
		cmocka_unit_test(a_turn_is_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
