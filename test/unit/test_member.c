/*-------------------------------------------------------------------------
 *
 * test_member.c
 *		Unit tests of members in note.c: their znodes, and what conflicts.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_member.c
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

#include "core/lock/note.h"
#include "core/lock/znode.h"

#define ALL_WORDS	((MEMBER_ID << 1) - 1)

static Member
make(const char *cluster, uint64_t system, uint64_t place)
{
	Member		member;

	memset(&member, 0, sizeof(member));
	member.kind = MEMBER_READ;
	member.words = ALL_WORDS;
	word_set_text(member.host, "db1");
	member.port = 5432;
	word_set_text(member.cluster_name, cluster);
	member.system = system;
	member.place = place;
	word_set_text(member.version, "1.0");
	word_set_text(member.server, "15.18");
	word_set_text(member.format, "mutex");
	member.timeout = 10000;
	word_set_text(member.id, "0123456789abcdef");
	member.since = 1;
	return member;
}

/* Read a copy of just these bytes, so that ASan sees a read behind them. */
static void
parse(Member *member, const char *data, int len)
{
	char	   *copy = malloc(len > 0 ? len : 1);

	if (len > 0)
		memcpy(copy, data, len);
	member_parse(member, copy, len);
	free(copy);
}

static void
there_and_back(void **state)
{
	Member		member = make("shop a/\xC3\xA4 100%", UINT64_MAX, 0xABC);
	Member		again;
	char		data[MEMBER_SIZE];
	int			len;

	(void) state;
	member.standby = 1;
	len = member_write(&member, data);
	assert_int_equal(len, strlen(data));
	assert_string_equal(data,
						"zklock host=db1 port=5432 cluster=shop%20a/%C3%A4%20100%25 "
						"system=ffffffffffffffff place=abc version=1.0 server=15.18 "
						"format=mutex timeout=10000 standby=1 "
						"id=0123456789abcdef");
	parse(&again, data, (int) strlen(data));
	assert_int_equal(again.kind, MEMBER_READ);
	assert_int_equal(again.words, ALL_WORDS);
	assert_string_equal(again.cluster_name, member.cluster_name);
	assert_true(again.system == member.system && again.place == member.place);
	assert_int_equal(again.timeout, 10000);
	assert_int_equal(again.standby, 1);
	assert_string_equal(again.id, member.id);

	/* an empty name is one; what is not set is not written */
	member.words = MEMBER_CLUSTER;
	member.cluster_name[0] = '\0';
	(void) member_write(&member, data);
	assert_string_equal(data, "zklock cluster=");
	parse(&again, data, (int) strlen(data));
	assert_int_equal(again.words, MEMBER_CLUSTER);
	assert_string_equal(again.cluster_name, "");
	member.words = 0;
	(void) member_write(&member, data);
	assert_string_equal(data, "zklock");
}

/* Values that are as long as can be, and take three bytes for each. */
static void
too_long(void **state)
{
	Member		member = make("", 1, 2);
	char		data[MEMBER_SIZE + 1];
	char		text[3 * WORD_VALUE_SIZE];

	(void) state;
	memset(text, '%', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	word_set_text(member.host, text);
	word_set_text(member.cluster_name, text);
	word_set_text(member.version, text);
	data[MEMBER_SIZE] = 'x';
	assert_true(member_write(&member, data) < MEMBER_SIZE);
	assert_int_equal(data[MEMBER_SIZE], 'x');
	parse(&member, data, (int) strlen(data));
	assert_int_equal(member.words, ALL_WORDS & ~MEMBER_VERSION);
	assert_int_equal(strlen(member.cluster_name), WORD_VALUE_SIZE - 1);
}

static void
what_others_write(void **state)
{
	static const char *const strange[] = {
		"", "z", "zklock", "zklockx host=a", "postgresql host=a", "ZKLOCK host=a",
		"\0zklock host=a"
	};
	char		data[512];
	Member		member;

	(void) state;
	parse(&member, NULL, -1);
	assert_int_equal(member.kind, MEMBER_UNREAD);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
	{
		parse(&member, strange[i], (int) strlen(strange[i]));
		assert_int_equal(member.kind, MEMBER_STRANGE);
		assert_int_equal(member.words, 0);
	}

	/* any order, the first counts, what is not known or wrong does not */
	strcpy(data, "zklock   later=1 timeout=-1 port=70000000000 timeout=5 "
		   "cluster=b cluster=c place=g system=10000000000000000 standby= x");
	parse(&member, data, (int) strlen(data));
	assert_int_equal(member.kind, MEMBER_READ);
	assert_int_equal(member.words, MEMBER_CLUSTER);
	assert_string_equal(member.cluster_name, "b");

	/* cut anywhere, and with any byte anywhere */
	for (int i = 0; i <= (int) strlen(data); i++)
		parse(&member, data, i);
	for (int i = 0; i < (int) strlen(data); i++)
		for (int byte = 0; byte < 256; byte += 5)
		{
			char		save = data[i];

			data[i] = (char) byte;
			parse(&member, data, 100);
			assert_true(memchr(member.cluster_name, '\0', WORD_VALUE_SIZE) != NULL);
			data[i] = save;
		}
}

static void
names_of_znodes(void **state)
{
	uint8_t		uuid[16];
	char		node[MEMBER_NODE_SIZE];
	ZnodeContender contender;

	(void) state;
	for (int i = 0; i < 16; i++)
		uuid[i] = (uint8_t) (0xF0 + i);
	member_node(uuid, node);
	assert_string_equal(node, "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff-cluster");
	assert_int_equal(strlen(node), MEMBER_NODE_SIZE - 1);
	assert_true(member_is_node(node));
	for (size_t i = 0; i < strlen(node); i++)
	{
		char		other[MEMBER_NODE_SIZE + 1];

		strcpy(other, node);
		other[i] = 'x';
		assert_false(member_is_node(other));
		other[i] = '\0';
		assert_false(member_is_node(other));
		strcpy(other, node);
		strcat(other, "s");
		assert_false(member_is_node(other));
	}
	memset(uuid, 0, sizeof(uuid));
	member_node(uuid, node);
	assert_false(znode_parse_contender(node, &contender));
}

static void
identity(void **state)
{
	char		fleet[MEMBER_FLEET_SIZE];
	char		other[MEMBER_FLEET_SIZE];

	(void) state;
	member_fleet(0x1200000034, INT64_C(0x0102030405ab), fleet);
	assert_string_equal(fleet, "01020304-05ab-8000-8000-001200000034");
	member_fleet(0x1200000035, INT64_C(0x0102030405ab), other);
	assert_string_not_equal(fleet, other);
	member_fleet(0x1200000034, INT64_C(0x0102030405ac), other);
	assert_string_not_equal(fleet, other);

	/* what a server may answer */
	member_fleet(-1, -1, fleet);
	assert_string_equal(fleet, "ffffffff-ffff-8000-bfff-ffffffffffff");
}

static void
assert_conflicts(Member *members, int n, const unsigned *expected)
{
	member_judge(members, n);
	for (int i = 0; i < n; i++)
		assert_int_equal(members[i].conflicts, expected[i]);
}

static void
names(void **state)
{
	Member		members[4] = {
		make("a", 1, 1), make("b", 2, 2), make("a", 3, 3), make("", 4, 4)
	};

	(void) state;
	assert_conflicts(members, 1, (unsigned[]) {0});
	assert_conflicts(members, 2, (unsigned[]) {0, 0});
	assert_conflicts(members, 4, (unsigned[]) {
		MEMBER_SAME_NAME, 0, MEMBER_SAME_NAME, MEMBER_NO_NAME
	});

	/* a copy of a server is another one; a standby is its primary's */
	members[2].system = 1;
	assert_conflicts(members, 3, (unsigned[]) {
		MEMBER_SAME_NAME, 0, MEMBER_SAME_NAME
	});
	members[2].standby = 1;
	assert_conflicts(members, 3, (unsigned[]) {0, 0, 0});
	members[2].system = 5;
	assert_conflicts(members, 3, (unsigned[]) {
		MEMBER_SAME_NAME, 0, MEMBER_SAME_NAME
	});

	/* two empty names are no clash of names; nor is one that is not told */
	members[0].words &= ~MEMBER_CLUSTER;
	members[1].cluster_name[0] = '\0';
	assert_conflicts(members, 4, (unsigned[]) {
		MEMBER_NO_NAME, MEMBER_NO_NAME, 0, MEMBER_NO_NAME
	});
}

/* What an earlier session has left. */
static void
left_over(void **state)
{
	Member		members[3] = {
		make("a", 1, 1), make("a", 1, 1), make("b", 2, 2)
	};

	(void) state;
	members[0].since = 5;
	word_set_text(members[0].format, "readwrite");
	word_set_text(members[2].format, "readwrite");
	word_set_text(members[1].cluster_name, "old");
	assert_conflicts(members, 3, (unsigned[]) {0, 0, 0});
	assert_true(members[1].left_over && !members[0].left_over);
	word_set_text(members[1].cluster_name, "a");
	assert_conflicts(members, 3, (unsigned[]) {0, 0, 0});
	members[1].since = 5;
	assert_conflicts(members, 2, (unsigned[]) {0, 0});

	/* who does not tell where he is, is another one */
	members[1] = make("a", 1, 1);
	members[1].words &= ~MEMBER_PLACE;
	word_set_text(members[1].format, "readwrite");
	assert_conflicts(members, 2, (unsigned[]) {
		MEMBER_SAME_NAME, MEMBER_SAME_NAME
	});
}

static void
settings(void **state)
{
	Member		members[4] = {
		make("a", 1, 1), make("b", 2, 2), make("c", 3, 3), make("d", 4, 4)
	};
	const unsigned format = MEMBER_OTHER_FORMAT;

	(void) state;
	word_set_text(members[1].format, "readwrite");
	members[2].timeout = 4000;
	assert_conflicts(members, 4, (unsigned[]) {0, format, MEMBER_OTHER_TIMEOUT, 0});
	assert_conflicts(members, 2, (unsigned[]) {format, format});
	word_set_text(members[0].format, "readwrite");
	members[2].timeout = 10000;
	assert_conflicts(members, 4, (unsigned[]) {format, format, format, format});
	assert_conflicts(members, 3, (unsigned[]) {0, 0, format});

	/* who tells nothing does not count */
	members[1].words = 0;
	members[1].kind = MEMBER_UNREAD;
	members[2].words = 0;
	members[2].kind = MEMBER_STRANGE;
	assert_conflicts(members, 3, (unsigned[]) {
		0, MEMBER_IS_UNREAD, MEMBER_IS_STRANGE
	});
}

/*
 * The stat of a write of our znode: zxid, czxid, version.
 */
static void
marks(void **state)
{
	MemberMark	mark = {0};

	(void) state;
	assert_true(member_mark(&mark, 20, 10, 1, true));
	assert_true(member_mark(&mark, 21, 10, 2, true));
	assert_true(member_mark(&mark, 30, 10, 9, true)); /* others write it, too */

	/* restored: one server, then an ensemble in a higher epoch */
	assert_false(member_mark(&mark, 29, 10, 10, true));
	assert_true(member_mark(&mark, 30, 10, 11, true));
	assert_false(member_mark(&mark, 40, 35, 1, true)); /* the copy has none */
	assert_true(member_mark(&mark, 41, 35, 2, true));
	assert_true(member_mark(&mark, 42, 35, 3, true));
	assert_false(member_mark(&mark, 1000, 35, 3, true));
	assert_true(member_mark(&mark, 1001, 35, 4, true));

	/* behind a write whose answer is lost: not done, done, lost by a copy */
	assert_true(member_mark(&mark, 1001, 35, 4, false));
	assert_true(member_mark(&mark, 1005, 35, 5, false));
	assert_false(member_mark(&mark, 2000, 35, 5, false));
	assert_false(member_mark(&mark, 2000, 35, 1, true));
	assert_false(member_mark(&mark, 2000, 36, 2, true));

	/* the highest version, and the one that follows */
	memset(&mark, 0, sizeof(mark));
	assert_true(member_mark(&mark, 3000, 40, INT32_MAX, true));
	assert_true(member_mark(&mark, 3001, 40, INT32_MIN, true));
	assert_true(member_mark(&mark, 3002, 40, INT32_MIN + 1, true));
	assert_false(member_mark(&mark, 3003, 40, INT32_MAX, true));
}

static void
texts(void **state)
{
	(void) state;
	for (int i = 0; i < MEMBER_CONFLICTS; i++)
		assert_string_not_equal(member_conflict_text(1 << i), "unknown");
	assert_string_equal(member_conflict_text(1 << MEMBER_CONFLICTS), "unknown");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(too_long),
		cmocka_unit_test(what_others_write),
		cmocka_unit_test(names_of_znodes),
		cmocka_unit_test(identity),
		cmocka_unit_test(names),
		cmocka_unit_test(left_over),
		cmocka_unit_test(settings),
		cmocka_unit_test(marks),
		cmocka_unit_test(texts)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
