/*-------------------------------------------------------------------------
 *
 * test_histogram.c
 *		Unit tests of the buckets of the histograms in zk_stat.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_histogram.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/histogram.h"

static void
test_edges(void **state)
{
	(void) state;
	assert_int_equal(histogram_bucket(0), 0);
	assert_int_equal(histogram_bucket(1), 0);
	assert_int_equal(histogram_bucket(2), 1);
	assert_int_equal(histogram_bucket(3), 1);
	assert_int_equal(histogram_bucket(4), 2);
	assert_int_equal(histogram_bucket(UINT64_C(1) << 31), 31);
	assert_int_equal(histogram_bucket((UINT64_C(1) << 31) - 1), 30);
	assert_int_equal(histogram_bucket(UINT64_C(1) << 32), 31);
	assert_int_equal(histogram_bucket(INT64_MAX), 31);
	assert_int_equal(histogram_bucket(UINT64_MAX), 31);
}

/* Each bucket has the times from a power of two up to the next. */
static void
test_powers(void **state)
{
	(void) state;
	for (int bucket = 1; bucket < HISTOGRAM_BUCKETS; bucket++)
	{
		assert_int_equal(histogram_bucket(UINT64_C(1) << bucket), bucket);
		assert_int_equal(histogram_bucket((UINT64_C(1) << bucket) - 1),
						 bucket - 1);
	}
	for (int power = HISTOGRAM_BUCKETS; power < 64; power++)
		assert_int_equal(histogram_bucket(UINT64_C(1) << power),
						 HISTOGRAM_BUCKETS - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_powers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
