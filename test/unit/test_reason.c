/*-------------------------------------------------------------------------
 *
 * test_reason.c
 *		Unit tests of reason.c: lines of the client library, in plain words.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_reason.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/reason.h"

#define CLOSED "Socket [127.0.0.1:2181] zk retcode=-4, errno=112(Host is down): failed while receiving a server response"

static const char *
reason(const char *line, bool connected, int64_t session)
{
	static char text[256];

	memset(text, 'x', sizeof(text));
	reason_of_line(line, connected, session, text, sizeof(text));
	return text;
}

static void
a_closed_connection_is_known_by_what_it_was_for(void **state)
{
	(void) state;
	assert_string_equal(reason(CLOSED, true, 0x1000),
						"server [127.0.0.1:2181] has closed the connection: it stops, has no majority any more, or the session has ended");
	assert_string_equal(reason(CLOSED, false, INT64_C(0x100000000abcdef)),
						"server [127.0.0.1:2181] has closed the connection instead of resuming session 0x100000000abcdef: it is starting, has no majority, too many connections of this host, or older data than the session has seen");
	assert_string_equal(reason(CLOSED, false, 0),
						"server [127.0.0.1:2181] has closed the connection before a session began: it is starting, has no majority, too many connections of this host, or expects TLS");
}

static void
a_time_that_is_none_is_left_out(void **state)
{
	static const char *const lines[] = {
		"Socket 10.0.0.1:2181 zk retcode=-7, errno=110(Connection timed out): connection to 10.0.0.1:2181 timed out (exceeded timeout by 0ms)",
		"Socket 10.0.0.1:2181 zk retcode=-7, errno=110(Connection timed out): connection to 10.0.0.1:2181 timed out (exceeded timeout by -2147483648ms)",
		"connection to 10.0.0.1:2181 timed out (exceeded timeout by 431655765ms)",
	};

	(void) state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_string_equal(reason(lines[i], false, 1),
							"connection to 10.0.0.1:2181 timed out");
}

static void
a_server_without_sasl_is_reported(void **state)
{
	(void) state;
	assert_string_equal(reason("During SASL negotiation: invalid parameter supplied SASL(-7): invalid parameter supplied: Parameter error in ../../lib/client.c near line 917",
							   false, 0),
						"no SASL from the server: it has no JAAS configuration, does not offer DIGEST-MD5, or has refused us and lets such clients in (zookeeper.allowSaslFailedClients)");
}

static void
a_refusal_is_known(void **state)
{
	(void) state;
	assert_true(reason_is_of_refusal(REASON_UNWELCOME));
	assert_true(reason_is_of_refusal("During SASL negotiation: authentication failure"));
	assert_true(reason_is_of_refusal("getpeername"));
	assert_false(reason_is_of_refusal("SASL authentication failed. rc=-1"));
	assert_false(reason_is_of_refusal(CLOSED));
	assert_true(reason_is_none("SASL authentication failed. rc=-1"));
	assert_false(reason_is_none(""));
}

static void
other_lines_stay(void **state)
{
	static const char *const lines[] = {
		"Socket 127.0.0.1:2181 zk retcode=-4, errno=111(Connection refused): server refused to accept the client",
		"Socket 127.0.0.1:2181 zk retcode=-4, errno=104(Connection reset by peer): failed while receiving a server response",
		"could not resolve zk1",
		"During SASL negotiation: authentication failure SASL(-13): authentication failure: server failed",
		"Socket ",
		" zk retcode=, errno=112(",
		"Socket  zk retcode=-4, errno=112(",
		" (exceeded timeout by connection to ",
		"",
	};

	(void) state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_string_equal(reason(lines[i], false, 1), lines[i]);
}

static void
what_does_not_fit_is_cut(void **state)
{
	char		text[20];

	(void) state;
	reason_of_line(CLOSED, false, 1, text, sizeof(text));
	assert_string_equal(text, "server [127.0.0.1:2");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_closed_connection_is_known_by_what_it_was_for),
		cmocka_unit_test(a_time_that_is_none_is_left_out),
		cmocka_unit_test(a_server_without_sasl_is_reported),
		cmocka_unit_test(a_refusal_is_known),
		cmocka_unit_test(other_lines_stay),
		cmocka_unit_test(what_does_not_fit_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
