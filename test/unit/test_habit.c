/*-------------------------------------------------------------------------
 *
 * test_habit.c
 *		Unit tests of habit.c: a test for each line of its table, by its name.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_habit.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/lock/habit.h"

/* Lengths of time, in us. */
#define MOST		INT64_C(1000000)
#define LONGEST		(MOST / 2)	/* of short pauses */
#define PAUSE		INT64_C(10000)
#define HELD		INT64_C(500)

/* A lock that nobody has taken, and the clock. */
typedef struct Scene
{
	Habit		habit;
	int64_t		now;
	int32_t		number;			/* of the next contender */
	int64_t		retained;		/* what habit_wanted() has said last */
} Scene;

static Scene
begin(void)
{
	Scene		scene = {.habit.required = HABIT_ROW,.now = 1,.number = 5};

	return scene;
}

/* It is taken after a pause, and given back. */
static void
take(Scene *scene, int64_t pause)
{
	scene->now += pause;
	scene->retained = habit_wanted(&scene->habit, MOST, scene->now);
	scene->now += HELD;
	habit_dropped(&scene->habit, MOST, scene->number++, 0, false, scene->now);
}

/* The same, and while it is retained it is taken again, and revoked. */
static void
take_and_lose(Scene *scene, uint32_t retaken)
{
	scene->now += PAUSE;
	scene->retained = habit_wanted(&scene->habit, MOST, scene->now);
	scene->now += HELD;
	habit_dropped(&scene->habit, MOST, scene->number, retaken, true,
				  scene->now);
	scene->number += 2;
}

/* It has been taken so often in a row. */
static Scene
taken(int row)
{
	Scene		scene = begin();

	for (int i = 0; i < row; i++)
		take(&scene, PAUSE);
	assert_int_equal(scene.habit.row, row);
	return scene;
}

/* How often it must be taken, from now on, until it is retained. */
static int
takes_until_retained(Scene *scene)
{
	int			takes = 0;

	do
	{
		take(scene, PAUSE);
		takes++;
	} while (scene->retained == 0 && takes < 2 * HABIT_MAX_ROW);
	return takes;
}

/*
 * Lines W: wanted
 */

static void
w1_after_a_long_pause_it_is_not_retained(void **state)
{
	Scene		scene = begin();

	(void) state;
	assert_int_equal(habit_wanted(&scene.habit, MOST, 1), 0);
	scene = taken(HABIT_ROW);
	assert_true(habit_wanted(&scene.habit, MOST, scene.now + LONGEST) > 0);
	assert_int_equal(habit_wanted(&scene.habit, MOST,
								  scene.now + LONGEST + 1), 0);
}

static void
w2_nor_before_it_was_taken_in_a_row(void **state)
{
	Scene		scene = begin();

	(void) state;
	for (int i = 1; i < HABIT_ROW; i++)
	{
		take(&scene, PAUSE);
		assert_int_equal(scene.retained, 0);
	}
	take(&scene, PAUSE);
	assert_true(scene.retained > 0);
}

static void
w3_it_is_retained_over_several_pauses(void **state)
{
	Scene		scene = taken(HABIT_ROW);
	int64_t		just = MOST / HABIT_MULTIPLE;

	(void) state;
	take(&scene, PAUSE);
	assert_int_equal(scene.retained, HABIT_MULTIPLE * PAUSE);
	take(&scene, just);
	assert_int_equal(scene.retained, MOST);
	take(&scene, LONGEST);
	assert_int_equal(scene.retained, MOST);
}

/*
 * Lines R: the row
 */

static void
r1_a_row_begins_after_a_long_pause(void **state)
{
	Scene		scene = taken(2);

	(void) state;
	take(&scene, LONGEST);
	assert_int_equal(scene.habit.row, 3);
	take(&scene, LONGEST + 1);
	assert_int_equal(scene.habit.row, 1);
}

static void
r1_and_when_somebody_was_in_between(void **state)
{
	static const int others[] = {1, 2, -1, -100};

	(void) state;
	for (int i = 0; i < 4; i++)
	{
		Scene		scene = taken(HABIT_ROW);

		/* negative: the directory was made again */
		scene.number += others[i];
		take(&scene, PAUSE);
		assert_int_equal(scene.habit.row, 1);
	}
}

/* Two instances in turns: neither ever retains it. */
static void
r1_so_nobody_retains_what_is_taken_in_turns(void **state)
{
	Scene		scene = begin();

	(void) state;
	for (int i = 0; i < 100; i++)
	{
		scene.number++;
		take(&scene, PAUSE);
		assert_int_equal(scene.retained, 0);
	}
}

static void
r2_a_take_continues_the_row(void **state)
{
	Scene		scene = begin();

	(void) state;
	for (int i = 1; i < HABIT_MAX_ROW + 10; i++)
	{
		take(&scene, PAUSE);
		assert_int_equal(scene.habit.row,
						 i < HABIT_MAX_ROW ? i : HABIT_MAX_ROW);
	}
}

/* A contender that nobody has held is not a take: its number is missing. */
static void
r2_but_a_contender_without_a_holder_ends_it(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	assert_true(habit_wanted(&scene.habit, MOST, scene.now + PAUSE) > 0);
	scene.number++;
	take(&scene, PAUSE);
	assert_int_equal(scene.habit.row, 1);
}

static void
r3_a_revocation_ends_it(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	take_and_lose(&scene, HABIT_WORTH);
	assert_int_equal(scene.habit.row, 0);
}

/*
 * Lines P: the usual pause
 */

static void
p1_a_longer_pause_is_the_usual_one(void **state)
{
	Scene		scene = taken(1);

	(void) state;
	take(&scene, PAUSE);
	assert_int_equal(scene.habit.pause, PAUSE);
	take(&scene, PAUSE + 1);
	assert_int_equal(scene.habit.pause, PAUSE + 1);

	/* of what was before the row, nothing counts */
	take(&scene, LONGEST + 1);
	take(&scene, 2);
	assert_int_equal(scene.habit.pause, 2);
}

static void
p2_a_shorter_one_counts_a_quarter(void **state)
{
	Scene		scene = taken(2);

	(void) state;
	take(&scene, PAUSE - 400);
	assert_int_equal(scene.habit.pause, PAUSE - 100);
}

/*
 * Lines C: the credit
 */

static void
c1_takes_while_it_was_retained_are_a_credit(void **state)
{
	Scene		scene = taken(HABIT_ROW);
	uint32_t	takes[] = {0, 1, HABIT_CREDIT - 2, 1, 1, UINT32_MAX};
	int			credits[] = {0, 1, HABIT_CREDIT - 1, HABIT_CREDIT,
		HABIT_CREDIT, HABIT_CREDIT
	};

	(void) state;
	for (int i = 0; i < 6; i++)
	{
		habit_dropped(&scene.habit, MOST, scene.number++, takes[i], false,
					  scene.now);
		assert_int_equal(scene.habit.credit, credits[i]);
	}
}

static void
c2_a_revocation_uses_it_up(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	take_and_lose(&scene, HABIT_CREDIT + 5);
	for (int credit = HABIT_CREDIT - HABIT_WORTH; credit > 0;
		 credit -= HABIT_WORTH)
	{
		assert_int_equal(scene.habit.credit, credit);
		assert_int_equal(scene.habit.required, HABIT_ROW);
		take_and_lose(&scene, 0);
	}
	assert_int_equal(scene.habit.credit, 0);
	assert_int_equal(scene.habit.required, HABIT_ROW);
	take_and_lose(&scene, HABIT_WORTH - 1);
	assert_int_equal(scene.habit.credit, 0);
	assert_int_equal(scene.habit.required, 2 * HABIT_ROW);
}

/*
 * Lines T: the takes required
 */

static void
t1_not_even_worth_makes_up_for_other_clients(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	habit_of_others(&scene.habit);
	take_and_lose(&scene, 1000);
	assert_int_equal(scene.habit.required, HABIT_NEVER);
	take_and_lose(&scene, 0);
	assert_int_equal(scene.habit.required, HABIT_NEVER);
}

static void
t3_takes_while_it_was_retained_are_worth_it(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	scene.habit.required = HABIT_MAX_ROW;
	take_and_lose(&scene, HABIT_WORTH);
	assert_int_equal(scene.habit.required, HABIT_ROW);
	assert_int_equal(takes_until_retained(&scene), HABIT_ROW);
}

static void
t2_without_credit_a_revocation_doubles_them(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	for (int required = 2 * HABIT_ROW; required <= HABIT_MAX_ROW;
		 required *= 2)
	{
		take_and_lose(&scene, HABIT_WORTH - 1);
		assert_int_equal(scene.habit.credit, 0);
		assert_int_equal(scene.habit.required, required);
		assert_int_equal(takes_until_retained(&scene), required);
	}
	take_and_lose(&scene, 0);
	assert_int_equal(scene.habit.required, HABIT_MAX_ROW);
}

static void
t4_else_they_stay(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	scene.habit.required = 2 * HABIT_ROW;
	take(&scene, PAUSE);
	take(&scene, LONGEST + 1);
	assert_int_equal(scene.habit.required, 2 * HABIT_ROW);

	/* nor does one that the credit covers change them */
	scene.habit.credit = HABIT_WORTH;
	take_and_lose(&scene, 0);
	assert_int_equal(scene.habit.required, 2 * HABIT_ROW);
}

/*
 * Lines X and O
 */

static void
x1_together_with_others_there_is_no_row(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	habit_broken(&scene.habit);
	assert_int_equal(takes_until_retained(&scene), HABIT_ROW);
}

static void
o1_with_other_clients_it_is_never_retained(void **state)
{
	Scene		scene = taken(HABIT_ROW);

	(void) state;
	habit_of_others(&scene.habit);
	assert_int_equal(takes_until_retained(&scene), 2 * HABIT_MAX_ROW);
}

/*
 * Memory
 */

static void
test_memory(void **state)
{
	Habits	   *habits = habits_make(10);
	Habit	   *habit;

	(void) state;
	assert_non_null(habits);
	assert_null(habit_find(habits, 7));
	habit = habit_enter(habits, 7, 100);
	assert_int_equal(habit->required, HABIT_ROW);
	assert_int_equal(habit->row, 0);
	habit->row = 42;
	assert_ptr_equal(habit_find(habits, 7), habit);
	assert_ptr_equal(habit_enter(habits, 7, 200), habit);
	assert_int_equal(habit->row, 42);
	assert_null(habit_find(habits, 17));	/* of the same bucket */
	habits_free(habits);
}

/* In a full bucket the lock that was wanted longest ago is forgotten. */
static void
test_forgetting(void **state)
{
	Habits	   *habits = habits_make(1);

	(void) state;
	for (uint64_t id = 1; id <= 4; id++)
		(void) habit_enter(habits, id, 100 + (int64_t) id);
	(void) habit_wanted(habit_find(habits, 1), MOST, 200);
	(void) habit_enter(habits, 5, 300);
	for (uint64_t id = 1; id <= 5; id++)
		if (id == 2)
			assert_null(habit_find(habits, id));
		else
			assert_non_null(habit_find(habits, id));
	habits_free(habits);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(w1_after_a_long_pause_it_is_not_retained),
		cmocka_unit_test(w2_nor_before_it_was_taken_in_a_row),
		cmocka_unit_test(w3_it_is_retained_over_several_pauses),
		cmocka_unit_test(r1_a_row_begins_after_a_long_pause),
		cmocka_unit_test(r1_and_when_somebody_was_in_between),
		cmocka_unit_test(r1_so_nobody_retains_what_is_taken_in_turns),
		cmocka_unit_test(r2_a_take_continues_the_row),
		cmocka_unit_test(r2_but_a_contender_without_a_holder_ends_it),
		cmocka_unit_test(r3_a_revocation_ends_it),
		cmocka_unit_test(p1_a_longer_pause_is_the_usual_one),
		cmocka_unit_test(p2_a_shorter_one_counts_a_quarter),
		cmocka_unit_test(c1_takes_while_it_was_retained_are_a_credit),
		cmocka_unit_test(c2_a_revocation_uses_it_up),
		cmocka_unit_test(t1_not_even_worth_makes_up_for_other_clients),
		cmocka_unit_test(t2_without_credit_a_revocation_doubles_them),
		cmocka_unit_test(t3_takes_while_it_was_retained_are_worth_it),
		cmocka_unit_test(t4_else_they_stay),
		cmocka_unit_test(x1_together_with_others_there_is_no_row),
		cmocka_unit_test(o1_with_other_clients_it_is_never_retained),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_forgetting)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
