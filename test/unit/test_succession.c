/*-------------------------------------------------------------------------
 *
 * test_succession.c
 *		Unit tests of succession.c: every event in every state.
 *
 * test_recipe_model.c plays it together with the recipe.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_succession.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/lock/succession.h"
#include "core/lock/znode.h"

#define NUMBER	7

typedef enum Event
{
	WATCH,
	WATCHED,
	WATCHED_STALE,
	NOT_WATCHED,
	NOT_WATCHED_STALE,
	FIRED,
	FIRED_STALE,
	DISCONNECT,
	DOUBT,
	LEAVE,
	LEFT,
	LEFT_OTHER,
	NOT_LEFT,
	NOT_LEFT_OTHER,
	NEVENTS
} Event;

static const char *const event_names[NEVENTS] = {
	"watch", "watched", "watched, an earlier get", "not watched",
	"not watched, an earlier get", "fired", "fired, an earlier get",
	"disconnect", "doubt", "leave", "left", "left, another", "not left",
	"not left, another"
};

static void
give(Succession *succession, Event event)
{
	switch (event)
	{
		case WATCH:
			succession_watch(succession, succession->serial + 1);
			break;
		case WATCHED:
		case WATCHED_STALE:
			succession_watched(succession, succession->serial -
							   (event == WATCHED_STALE), true);
			break;
		case NOT_WATCHED:
		case NOT_WATCHED_STALE:
			succession_watched(succession, succession->serial -
							   (event == NOT_WATCHED_STALE), false);
			break;
		case FIRED:
		case FIRED_STALE:
			succession_fired(succession, succession->serial -
							 (event == FIRED_STALE));
			break;
		case DISCONNECT:
			succession_disconnect(succession);
			break;
		case DOUBT:
			succession_doubt(succession);
			break;
		case LEAVE:
			succession_leave(succession, NUMBER);
			break;
		case LEFT:
		case LEFT_OTHER:
			succession_left(succession, NUMBER + (event == LEFT_OTHER), true);
			break;
		case NOT_LEFT:
		case NOT_LEFT_OTHER:
			succession_left(succession, NUMBER + (event == NOT_LEFT_OTHER),
							false);
			break;
		case NEVENTS:
			break;
	}
}

/* What the table in succession.c says of the state. */
static SuccessionState
state_after(SuccessionState state, SuccessionWatch watch, Event event)
{
	bool		watched = watch != SUCCESSION_UNWATCHED;

	if (event == LEAVE)
		return watched ? SUCCESSION_LEAVING : SUCCESSION_UNKNOWN;
	if (event == DISCONNECT || event == DOUBT ||
		(watched && (event == FIRED || event == NOT_WATCHED)))
		return SUCCESSION_UNKNOWN;
	if (state == SUCCESSION_LEAVING && event == LEFT)
		return SUCCESSION_LEFT;
	if (state == SUCCESSION_LEAVING && event == NOT_LEFT)
		return SUCCESSION_UNKNOWN;
	return state;
}

/* And of the watch. */
static SuccessionWatch
watch_after(SuccessionWatch watch, Event event)
{
	if (event == WATCH)
		return SUCCESSION_ASKED;
	if (watch != SUCCESSION_UNWATCHED && event == WATCHED)
		return SUCCESSION_WATCHED;
	if (event == FIRED || event == NOT_WATCHED || event == DISCONNECT)
		return SUCCESSION_UNWATCHED;
	return watch;
}

static void
test_table(void **arg)
{
	(void) arg;
	for (int state = SUCCESSION_UNKNOWN; state <= SUCCESSION_LEFT; state++)
		for (int watch = SUCCESSION_UNWATCHED; watch <= SUCCESSION_WATCHED;
			 watch++)
			for (int event = 0; event < NEVENTS; event++)
			{
				Succession	succession = {state, watch, 3, NUMBER};

				give(&succession, event);
				if (succession.state != state_after(state, watch, event) ||
					succession.watch != watch_after(watch, event))
					fail_msg("state %d, watch %d: %s: state %d, watch %d",
							 state, watch, event_names[event],
							 succession.state, succession.watch);
				assert_int_equal(succession_next(&succession),
								 succession.state == SUCCESSION_LEFT &&
								 succession.watch == SUCCESSION_WATCHED ?
								 NUMBER + 1 : 0);
			}
}

static void
test_late_number(void **arg)
{
	Succession	succession;

	(void) arg;
	succession_init(&succession);
	assert_int_equal(succession_next(&succession), 0);
	succession_watch(&succession, 1);
	succession_watched(&succession, 1, true);
	succession_leave(&succession, ZNODE_LATE_SEQUENCE - 2);
	succession_left(&succession, ZNODE_LATE_SEQUENCE - 2, true);
	assert_int_equal(succession_next(&succession), ZNODE_LATE_SEQUENCE - 1);
	succession_leave(&succession, ZNODE_LATE_SEQUENCE - 1);
	succession_left(&succession, ZNODE_LATE_SEQUENCE - 1, true);
	assert_int_equal(succession_next(&succession), 0);
}

/*
 * A get that is out when the connection is lost may be answered on the next
 * one.  Its watch is of no use: it had an owner on the old connection only.
 */
static void
test_get_of_lost_connection(void **arg)
{
	Succession	succession;

	(void) arg;
	succession_init(&succession);
	succession_watch(&succession, 1);
	succession_disconnect(&succession);
	succession_watched(&succession, 1, true);
	succession_leave(&succession, NUMBER);
	succession_left(&succession, NUMBER, true);
	assert_int_equal(succession_next(&succession), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_get_of_lost_connection),
		cmocka_unit_test(test_late_number)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
