/*-------------------------------------------------------------------------
 *
 * test_remote.c
 *		Unit tests of remote.c: names of sessions.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_remote.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/remote.h"

static void
names_of_applications(void **state)
{
	static const char *const bad[] = {
		"", "psql", "zklock:", "zklock:65a0.1f", "zklock:65a0.1f:",
		"zklock:65a0:shop", "zklock:.1f:shop", "zklock:65a0.:shop",
		"zklock:65A0.1f:shop", "zklock:065a0.1f:shop", "zklock:65a0.-1f:shop",
		"zklock:65a0.80000000:shop", "zklock:8000000000000000.1:shop",
		"Zklock:65a0.1f:shop",
		"zklock: 65a0.1f:shop", "zklock:%c:%C",
		/* of 63 bytes, as one that has been cut is */
		"zklock:65a0.1f:shop_with_a_long_name_that_has_been_cut_perhaps_"
	};
	RemoteSession session;
	char		name[REMOTE_NAME_SIZE];

	(void) state;
	assert_true(remote_of_application("zklock:65a0b1c2.1f:shop: a/b", &session));
	assert_true(session.start == 0x65a0b1c2);
	assert_int_equal(session.pid, 0x1f);
	assert_string_equal(session.cluster_name, "shop: a/b");
	remote_write(&session, name);
	assert_string_equal(name, "65a0b1c2.1f:shop: a/b");
	assert_true(remote_parse(name, &session));
	assert_int_equal(session.pid, 0x1f);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (remote_of_application(bad[i], &session))
			fail_msg("\"%s\" names a session", bad[i]);
	assert_int_equal(strlen(bad[sizeof(bad) / sizeof(bad[0]) - 1]), 63);
	assert_true(remote_of_application("zklock:65a0.1f:shop_with_a_long_name_that_has_been_cut_perhaps",
									  &session));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_applications),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
