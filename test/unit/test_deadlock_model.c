/*-------------------------------------------------------------------------
 *
 * test_deadlock_model.c
 *		Random schedules of deadlock.c: several instances, and every fault.
 *
 * town.c checks them.  With ZKLOCK_TEST_SOAK in the environment there are
 * more; ZKLOCK_TEST_SEED is the first seed.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_deadlock_model.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "soak.h"
#include "town.h"

#define SCHEDULES	1500

static int
compare_times(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

static void
test_random_schedules(void **state)
{
	const char *first = getenv("ZKLOCK_TEST_SEED");
	uint64_t	seed = first ? strtoull(first, NULL, 10) : 1;
	unsigned long n = soak(SCHEDULES, 100000);
	TownStats	sum = {0};
	static int64_t times[100000];
	int			ntimes = 0;

	(void) state;
	for (uint64_t end = seed + n; seed < end; seed++)
	{
		Town	   *town = town_make(seed, 1000 * MS, 250 * MS);
		const TownStats *stats = town_stats(town);

		town_by_chance(town);
		if (town_violation(town))
			fail_msg("seed %llu: %s", (unsigned long long) seed,
					 town_violation(town));
		sum.victims += stats->victims;
		sum.requeues += stats->requeues;
		sum.acts += stats->acts;
		sum.failed_acts += stats->failed_acts;
		sum.cuts += stats->cuts;
		for (int i = 0; i < stats->ntimes && ntimes < 100000; i++)
			times[ntimes++] = stats->times[i];
		town_free(town);
	}
	qsort(times, (size_t) ntimes, sizeof(int64_t), compare_times);
	assert_true(sum.victims > 0 && sum.requeues > 0 && sum.cuts > 0);
	print_message("%lu schedules: %d acts, %d failed; %d victims, %d queued "
				  "again; %d lost connections; a deadlock lasts %lld ms at "
				  "the median, at most %lld\n", n, sum.acts, sum.failed_acts,
				  sum.victims, sum.requeues, sum.cuts,
				  (long long) (times[ntimes / 2] / MS),
				  (long long) (times[ntimes - 1] / MS));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_schedules)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
