/*-------------------------------------------------------------------------
 *
 * test_memory.c
 *		Unit tests of memory for core/.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_memory.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory.h"

/* More than there is, on processors of 32 bits, too. */
#define TOO_MUCH	(SIZE_MAX - 1)

static jmp_buf exhausted;

/* AddressSanitizer would end the program instead. */
extern const char *__asan_default_options(void);

const char *
__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void
leave(void)
{
	longjmp(exhausted, 1);
}

/* What cannot be had is not returned. */
static void
test_exhausted(void **state)
{
	volatile int left = 0;
	char	   *array = memory_grow(NULL, 0, 1);

	(void) state;
	memory_exhausted = leave;
	if (setjmp(exhausted) == 0)
		(void) memory_alloc(TOO_MUCH);
	else
		left++;
	if (setjmp(exhausted) == 0)
		(void) memory_grow(array, 1, TOO_MUCH / 2);
	else
		left++;
	memory_exhausted = abort;
	assert_int_equal(left, 2);
	free(array);
}

/* A new element is 0, and the others are as they were. */
static void
test_grow(void **state)
{
	int		   *array = NULL;

	(void) state;
	for (int n = 0; n < 100; n++)
	{
		array = memory_grow(array, n, sizeof(int));
		assert_int_equal(array[n], 0);
		array[n] = n + 1;
		for (int i = 0; i < n; i++)
			assert_int_equal(array[i], i + 1);

		/* one that is taken out leaves its place to the next */
		array[n] = -1;
		array = memory_grow(array, n, sizeof(int));
		assert_int_equal(array[n], 0);
		array[n] = n + 1;
	}
	free(array);
}

static void
test_alloc(void **state)
{
	char		zeroes[100] = {0};
	char	   *memory = memory_alloc(sizeof(zeroes));
	char	   *nothing = memory_alloc(0);
	char	   *copy = memory_copy("text");

	(void) state;
	assert_memory_equal(memory, zeroes, sizeof(zeroes));
	assert_non_null(nothing);
	assert_string_equal(copy, "text");
	free(memory);
	free(nothing);
	free(copy);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc),
		cmocka_unit_test(test_grow),
		cmocka_unit_test(test_exhausted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
