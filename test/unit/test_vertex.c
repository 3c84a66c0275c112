/*-------------------------------------------------------------------------
 *
 * test_vertex.c
 *		Unit tests of vertex.c: names of sessions, and of their znodes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_vertex.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/deadlock/vertex.h"

static void
names_of_applications(void **state)
{
	static const char *const bad[] = {
		"", "psql", "zklock:", "zklock:65a0.1f", "zklock:65a0.1f:",
		"zklock:65a0:shop", "zklock:.1f:shop", "zklock:65a0.:shop",
		"zklock:65A0.1f:shop", "zklock:065a0.1f:shop", "zklock:65a0.-1f:shop",
		"zklock:65a0.80000000:shop", "zklock:8000000000000000.1:shop",
		"Zklock:65a0.1f:shop", "zklock:remote:65a0.1f:shop",
		"zklock: 65a0.1f:shop", "zklock:%c:%C",
		/* of 63 bytes, as one that has been cut is */
		"zklock:65a0.1f:shop_with_a_long_name_that_has_been_cut_perhaps_"
	};
	VertexSession session;
	char		vertex[VERTEX_SESSION_SIZE];

	(void) state;
	assert_true(vertex_of_application("zklock:65a0b1c2.1f:shop: a/b", &session));
	assert_false(session.remote);
	assert_true(session.start == 0x65a0b1c2);
	assert_int_equal(session.pid, 0x1f);
	assert_string_equal(session.cluster_name, "shop: a/b");
	vertex_write(&session, vertex);
	assert_string_equal(vertex, "65a0b1c2.1f:shop: a/b");
	session.remote = true;
	vertex_write(&session, vertex);
	assert_string_equal(vertex, "remote:65a0b1c2.1f:shop: a/b");
	assert_true(vertex_parse(vertex, &session));
	assert_true(session.remote);
	assert_int_equal(session.pid, 0x1f);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (vertex_of_application(bad[i], &session))
			fail_msg("\"%s\" names a session", bad[i]);
	assert_int_equal(strlen(bad[sizeof(bad) / sizeof(bad[0]) - 1]), 63);
	assert_true(vertex_of_application("zklock:65a0.1f:shop_with_a_long_name_that_has_been_cut_perhaps",
									  &session));
}

static void
names_of_znodes(void **state)
{
	static const char *const bad[] = {
		"session-", "session-5f.a%3As-0000000000000001",
		"session-5f.a%3As-0000000000000001-000000000000000",
		"session-5f.a%3As-0000000000000001-000000000000000G",
		"session-5f.a-0000000000000001-0000000000000002",
		"session--0000000000000001-0000000000000002",
		"probe-0000000001"
	};
	VertexNode	node = {.publisher = UINT64_C(0xfedcba9876543210),.number = 7};
	VertexNode	again;
	char		path[NOTE_VERTEX_SIZE];
	char		dir[NOTE_VERTEX_SIZE];

	(void) state;
	strcpy(node.vertex, "remote:65a0.1f:shop a/b-c");
	assert_true(vertex_node_path("/z/%waits", &node, path));
	assert_true(vertex_is_node(path));
	assert_null(strchr(path + strlen("/z/%waits/"), '/'));
	assert_true(vertex_parse_node(strrchr(path, '/') + 1, &again));
	assert_string_equal(again.vertex, node.vertex);
	assert_true(again.publisher == node.publisher);
	assert_true(again.number == node.number);
	assert_true(vertex_waits_dir_of_owner(path, dir));
	assert_string_equal(dir, "/z/%waits");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (vertex_parse_node(bad[i], &again))
			fail_msg("\"%s\" is a session's znode", bad[i]);
}

static void
dirs(void **state)
{
	char		dir[NOTE_VERTEX_SIZE];

	(void) state;
	assert_true(vertex_waits_dir_of("/a/z/x/node", false, dir));
	assert_string_equal(dir, "/a/z/%waits");
	assert_true(vertex_waits_dir_of("/z/x/locks/node", true, dir));
	assert_string_equal(dir, "/z/%waits");
	assert_false(vertex_waits_dir_of("/node", false, dir));
	assert_false(vertex_waits_dir_of("5f.a:shop", false, dir));
	assert_true(vertex_waits_dir_of_owner("/z/x/node", dir));
	assert_string_equal(dir, "/z/%waits");
	assert_true(vertex_waits_dir_of_owner("/z/x/leases/_c_1-lease-0000000001", dir));
	assert_string_equal(dir, "/z/%waits");
	assert_true(vertex_waits_dir_of_owner("/z/leases/_c_1-lock-0000000001", dir));
	assert_string_equal(dir, "/z/%waits");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_applications),
		cmocka_unit_test(names_of_znodes),
		cmocka_unit_test(dirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
