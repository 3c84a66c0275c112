/*-------------------------------------------------------------------------
 *
 * test_znode.c
 *		Unit tests of lock names, znode paths, and the order of contenders.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_znode.c
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/lock/znode.h"

#define lengthof(array)	(sizeof(array) / sizeof((array)[0]))

#define UUID_TEXT		"0123456f-89ab-4def-8edc-ba9876543210"
#define UUID_HEX		"0123456f89ab4def8edcba9876543210"

static const uint8_t uuid[ZNODE_UUID_BYTES] = {
	0x01, 0x23, 0x45, 0x6f, 0x89, 0xab, 0x4d, 0xef,
	0x8e, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10
};

/*
 * Encode "name" and hold the result to what every encoded name must be: one
 * path component that ZooKeeper takes, made of the bytes that we allow, that
 * decodes to the name again.  Returns the length.
 */
static int
encode_checked(const char *name, size_t len, char encoded[ZNODE_MAX_NAME + 1])
{
	static const char allowed[] =
		"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"-_.~:@=+,%";
	char		decoded[ZNODE_MAX_NAME + 1];
	int			used;

	used = znode_encode_name(name, len, encoded, ZNODE_MAX_NAME + 1);
	assert_true(used >= 0);
	assert_int_equal(strlen(encoded), used);
	assert_int_equal(strspn(encoded, allowed), used);
	assert_string_not_equal(encoded, ".");
	assert_string_not_equal(encoded, "..");

	assert_int_equal(znode_decode_name(encoded, decoded, sizeof(decoded)),
					 len);
	assert_memory_equal(decoded, name, len);
	assert_int_equal(decoded[len], '\0');
	return used;
}

static void
test_encode_examples(void **state)
{
	static const struct
	{
		const char *name;
		const char *encoded;
	}			examples[] =
	{
		{"", ""},
		{"stock", "stock"},
		{"AZaz09", "AZaz09"},
		{"-_.~:@=+,", "-_.~:@=+,"},
		{"stock/17", "stock%2F17"},
		{"/", "%2F"},
		{"100%", "100%25"},
		{"%2F", "%252F"},
		{".", "%2E"},
		{"..", "%2E%2E"},
		{"...", "..."},
		{".a", ".a"},
		{"a.", "a."},
		{"./.", ".%2F."},
		{" ", "%20"},
		{"a b  c", "a%20b%20%20c"},
		{"a\tb\n", "a%09b%0A"},
		{"\x7f", "%7F"},
		{"'\"\\;", "%27%22%5C%3B"},
		{"\xc3\xa9t\xc3\xa9", "%C3%A9t%C3%A9"},
		{"\xf0\x9f\x94\x92", "%F0%9F%94%92"}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
	{
		char		encoded[ZNODE_MAX_NAME + 1];

		encode_checked(examples[i].name, strlen(examples[i].name), encoded);
		assert_string_equal(encoded, examples[i].encoded);
	}
}

/* Every byte, even the one that no text of PostgreSQL has. */
static void
test_encode_every_byte(void **state)
{
	char		name[ZNODE_MAX_NAME];
	char		encoded[ZNODE_MAX_NAME + 1];

	(void) state;
	for (int byte = 0; byte <= 255; byte++)
	{
		name[0] = (char) byte;
		encode_checked(name, 1, encoded);

		name[0] = 'a';
		name[1] = (char) byte;
		name[2] = 'z';
		encode_checked(name, 3, encoded);
	}

	/* all of 1..255 at once do not fit, so in chunks that do */
	for (int first = 1; first <= 255; first += 85)
	{
		for (int i = 0; i < 85; i++)
			name[i] = (char) (first + i);
		encode_checked(name, 85, encoded);
	}
}

static void
test_encode_length_limit(void **state)
{
	static const struct
	{
		int			plain;		/* bytes that stand for themselves, ... */
		int			escaped;	/* ... then bytes that take three */
		int			encoded;
	}			limits[] =
	{
		{254, 0, 254},
		{255, 0, 255},
		{256, 0, -1},
		{0, 85, 255},
		{0, 86, -1},
		{1, 85, -1},
		{3, 84, 255},
		{4, 84, -1},
		{251, 1, 254},
		{252, 1, 255},
		{253, 1, -1},			/* the escape would straddle the limit, ... */
		{254, 1, -1},
		{255, 1, -1}			/* ... or begin right at it */
	};

	(void) state;
	for (size_t i = 0; i < lengthof(limits); i++)
	{
		char		name[512];
		char		encoded[1024];
		size_t		len = limits[i].plain + limits[i].escaped;

		memset(name, 'x', limits[i].plain);
		memset(name + limits[i].plain, '/', limits[i].escaped);
		assert_int_equal(znode_encode_name(name, len, encoded,
										   sizeof(encoded)),
						 limits[i].encoded);
		if (limits[i].encoded >= 0)
			assert_int_equal(encode_checked(name, len, encoded),
							 limits[i].encoded);
	}
}

/* Nothing is written behind the caller's buffer, however small it is. */
static void
test_encode_buffer_size(void **state)
{
	static const struct
	{
		const char *name;
		size_t		needed;		/* with the terminator */
	}			names[] = {
		{"", 1}, {"abc", 4}, {"/", 4}, {"ab/", 6}, {"/ab", 6}, {"..", 7}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(names); i++)
	{
		for (size_t size = 1; size <= 8; size++)
		{
			char		encoded[16];
			int			result;

			memset(encoded, '#', sizeof(encoded));
			result = znode_encode_name(names[i].name, strlen(names[i].name),
									   encoded, size);
			if (size < names[i].needed)
				assert_int_equal(result, -1);
			else
				assert_int_equal(result, (int) names[i].needed - 1);
			for (size_t j = size; j < sizeof(encoded); j++)
				assert_int_equal(encoded[j], '#');
		}
	}
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

/*
 * Distinct names never share a directory: all names of up to four bytes, out
 * of those that an encoder can mix up.
 */
static void
test_encode_is_injective(void **state)
{
	static const char alphabet[] = "a.%2E/F5 \x80";
	const int	letters = (int) strlen(alphabet);
	const int	total = letters + letters * letters +
		letters * letters * letters + letters * letters * letters * letters;
	char		(*encoded)[16] = calloc(total, sizeof(*encoded));
	int			count = 0;

	(void) state;
	assert_non_null(encoded);
	for (int len = 1, combinations = letters; len <= 4; len++)
	{
		for (int n = 0; n < combinations; n++)
		{
			char		name[4];
			char		buffer[ZNODE_MAX_NAME + 1];

			for (int i = 0, rest = n; i < len; i++, rest /= letters)
				name[i] = alphabet[rest % letters];
			encode_checked(name, len, buffer);
			strcpy(encoded[count++], buffer);
		}
		combinations *= letters;
	}
	assert_int_equal(count, total);

	qsort(encoded, count, sizeof(*encoded), compare_names);
	for (int i = 1; i < count; i++)
		assert_string_not_equal(encoded[i - 1], encoded[i]);
	free(encoded);
}

/* What we never write, but a person may have: it must not fail or overrun. */
static void
test_decode_foreign(void **state)
{
	static const struct
	{
		const char *encoded;
		const char *name;
	}			examples[] =
	{
		{"%", "%"},
		{"%4", "%4"},
		{"%4%41", "%4A"},
		{"%%41", "%A"},
		{"%2f", "%2f"},
		{"%f2", "%f2"},
		{"%zz", "%zz"},
		{"%2z", "%2z"},
		{"100%", "100%"},
		{"a%41b%42", "aAbB"}
	};
	char		name[16];

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
	{
		assert_int_equal(znode_decode_name(examples[i].encoded, name,
										   sizeof(name)),
						 strlen(examples[i].name));
		assert_string_equal(name, examples[i].name);
	}

	/* a zero byte is in the length, though C does not see behind it */
	assert_int_equal(znode_decode_name("a%00b", name, sizeof(name)), 3);
	assert_memory_equal(name, "a\0b", 4);
}

static void
test_decode_buffer_size(void **state)
{
	(void) state;
	for (size_t size = 1; size <= 6; size++)
	{
		char		name[8];
		int			result;

		memset(name, '#', sizeof(name));
		result = znode_decode_name("a%2Fb", name, size);
		assert_int_equal(result, size < 4 ? -1 : 3);
		for (size_t j = size; j < sizeof(name); j++)
			assert_int_equal(name[j], '#');
	}
}

static void
test_check_root(void **state)
{
	static const char *const accepted[] = {
		"/zklock", "/a", "/a/b/c", "/zklock/tenant-1", "/zookeepers",
		"/zookeepe", "/a/zookeeper", "/ZooKeeper", "/...", "/.a", "/a.",
		"/a..b", "/!~", "/%2F"
	};
	static const struct
	{
		const char *root;
		const char *complaint;	/* a word of the sentence returned */
	}			refused[] =
	{
		{"", "start with"},
		{"zklock", "start with"},
		{" /zklock", "start with"},
		{"/", "empty component"},
		{"//", "empty component"},
		{"/a/", "empty component"},
		{"//a", "empty component"},
		{"/a//b", "empty component"},
		{"/.", "\"..\""},
		{"/..", "\"..\""},
		{"/a/.", "\"..\""},
		{"/a/../b", "\"..\""},
		{"/zookeeper", "reserved"},
		{"/zookeeper/locks", "reserved"},
		{"/a b", "printable"},
		{"/a\t", "printable"},
		{"/a\x7f", "printable"},
		{"/\x01", "printable"},
		{"/caf\xc3\xa9", "printable"},
		{"/a/b\xff/c", "printable"}
	};
	char		root[ZNODE_MAX_ROOT + 2];

	(void) state;
	for (size_t i = 0; i < lengthof(accepted); i++)
		assert_null(znode_check_root(accepted[i]));

	for (size_t i = 0; i < lengthof(refused); i++)
	{
		const char *complaint = znode_check_root(refused[i].root);

		assert_non_null(complaint);
		if (strstr(complaint, refused[i].complaint) == NULL)
			fail_msg("\"%s\": %s", refused[i].root, complaint);
		/* a detail message: a whole sentence */
		assert_int_equal(complaint[strlen(complaint) - 1], '.');
	}

	memset(root, 'a', sizeof(root));
	root[0] = '/';
	root[ZNODE_MAX_ROOT] = '\0';
	assert_null(znode_check_root(root));
	root[ZNODE_MAX_ROOT] = 'a';
	root[ZNODE_MAX_ROOT + 1] = '\0';
	assert_non_null(strstr(znode_check_root(root), "119"));
}

/* The longest root and the longest name make the longest path. */
static void
test_path_size(void **state)
{
	(void) state;
	assert_int_equal(ZNODE_PATH_SIZE,
					 ZNODE_MAX_ROOT + strlen("/") + ZNODE_MAX_NAME + 1);
}

static void
test_make_uuid(void **state)
{
	uint8_t		bytes[ZNODE_UUID_BYTES];

	(void) state;
	for (int fill = 0; fill <= 0xFF; fill++)
	{
		memset(bytes, fill, sizeof(bytes));
		znode_make_uuid(bytes);
		for (int i = 0; i < ZNODE_UUID_BYTES; i++)
		{
			if (i == 6)
				assert_int_equal(bytes[i], 0x80 | (fill & 0x0F));
			else if (i == 8)
				assert_int_equal(bytes[i], 0x80 | (fill & 0x3F));
			else
				assert_int_equal(bytes[i], fill);
		}
	}
}

/* What Curator's ProtectedUtils and lock classes write, to the byte. */
static void
test_contender_names(void **state)
{
	static const struct
	{
		ZnodeKind	kind;
		int32_t		sequence;
		const char *name;
	}			examples[] =
	{
		{ZNODE_MUTEX, 0, "_c_" UUID_TEXT "-lock-0000000000"},
		{ZNODE_MUTEX, 42, "_c_" UUID_TEXT "-lock-0000000042"},
		{ZNODE_MUTEX, INT32_MAX, "_c_" UUID_TEXT "-lock-2147483647"},
		{ZNODE_MUTEX, INT32_MIN, "_c_" UUID_TEXT "-lock--2147483648"},
		{ZNODE_MUTEX, -1, "_c_" UUID_TEXT "-lock--000000001"},
		{ZNODE_READER, 7, "_c_" UUID_TEXT "-__READ__0000000007"},
		{ZNODE_READER, INT32_MIN, "_c_" UUID_TEXT "-__READ__-2147483648"},
		{ZNODE_READER, -12, "_c_" UUID_TEXT "-__READ__-000000012"},
		{ZNODE_WRITER, 8, "_c_" UUID_TEXT "-__WRIT__0000000008"},
		{ZNODE_WRITER, INT32_MIN, "_c_" UUID_TEXT "-__WRIT__-2147483648"},
		{ZNODE_WRITER, -13, "_c_" UUID_TEXT "-__WRIT__-000000013"},
		{ZNODE_PERMIT, 9, "_c_" UUID_TEXT "-lease-0000000009"},
		{ZNODE_PERMIT, INT32_MIN, "_c_" UUID_TEXT "-lease--2147483648"},
		{ZNODE_PERMIT, -14, "_c_" UUID_TEXT "-lease--000000014"}
	};
	char		name[ZNODE_CONTENDER_SIZE];

	(void) state;
	znode_contender_prefix(uuid, ZNODE_MUTEX, name);
	assert_string_equal(name, "_c_" UUID_TEXT "-lock-");
	znode_contender_prefix(uuid, ZNODE_READER, name);
	assert_string_equal(name, "_c_" UUID_TEXT "-__READ__");
	znode_contender_prefix(uuid, ZNODE_WRITER, name);
	assert_string_equal(name, "_c_" UUID_TEXT "-__WRIT__");
	znode_contender_prefix(uuid, ZNODE_PERMIT, name);
	assert_string_equal(name, "_c_" UUID_TEXT "-lease-");

	for (size_t i = 0; i < lengthof(examples); i++)
	{
		ZnodeContender contender;

		znode_contender_name(uuid, examples[i].kind, examples[i].sequence,
							 name);
		assert_string_equal(name, examples[i].name);
		assert_true(znode_has_uuid(name, uuid));
		assert_true(znode_parse_contender(name, &contender));
		assert_int_equal(contender.sequence, examples[i].sequence);
		assert_int_equal(contender.shared, examples[i].kind == ZNODE_READER);
	}
}

/* By its name, a contender is of an instance, or of another kind of client. */
static void
test_is_of_instance(void **state)
{
	static const char *const others[] = {
		/* Curator, kazoo with extra_lock_patterns, and go-zk */
		"_c_01234567-89ab-4def-8edc-ba9876543210-lock-0000000001",
		"0123456789ab4def8edcba9876543210__lock__0000000001",
		"_c_0123456789ab8def8edcba9876543210-lock-0000000001",

		/* other versions and variants */
		"_c_01234567-89ab-7def-8edc-ba9876543210-lock-0000000001",
		"_c_01234567-89ab-9def-8edc-ba9876543210-lock-0000000001",
		"_c_01234567-89ab-8def-7edc-ba9876543210-lock-0000000001",
		"_c_01234567-89ab-8def-cedc-ba9876543210-lock-0000000001",
		"lock-0000000001",
		""
	};
	uint8_t		bytes[ZNODE_UUID_BYTES];
	char		name[ZNODE_CONTENDER_SIZE];

	(void) state;
	for (int fill = 0; fill <= 0xFF; fill++)
	{
		memset(bytes, fill, sizeof(bytes));
		znode_make_uuid(bytes);
		znode_contender_name(bytes, ZNODE_WRITER, 42, name);
		assert_true(znode_is_of_instance(name));
	}
	for (size_t i = 0; i < lengthof(others); i++)
		if (znode_is_of_instance(others[i]))
			fail_msg("%s", others[i]);
}

static void
test_parse_contender(void **state)
{
	static const struct
	{
		const char *child;
		int32_t		sequence;
		bool		shared;
	}			contenders[] =
	{
		/* ours, which are Curator's */
		{"_c_" UUID_TEXT "-lock-0000000042", 42, false},
		{"_c_" UUID_TEXT "-__READ__0000000043", 43, true},
		{"_c_" UUID_TEXT "-__WRIT__0000000044", 44, false},
		{"_c_" UUID_TEXT "-lock-2147483647", INT32_MAX, false},
		{"_c_" UUID_TEXT "-lease-0000000045", 45, false},
		/* a Curator without protection */
		{"lock-0000000001", 1, false},
		{"__READ__0000000002", 2, true},
		/* kazoo, as it comes and as we tell people to set it up */
		{UUID_HEX "__lock__0000000003", 3, false},
		{UUID_HEX "__rlock__0000000004", 4, true},
		{UUID_HEX "-lock-0000000005", 5, false},
		/* go-zk */
		{"_c_" UUID_HEX "-lock-0000000006", 6, false},
		/* ZooKeeper's recipes in C (hexadecimal) and Java (decimal) */
		{"x-0123456789abcdef-0000000007", 7, false},
		{"x-72057594037927936-0000000008", 8, false},
		/* zk-ruby */
		{"ex0000000009", 9, false},
		{"sh0000000010", 10, true},
		{"publish0000000001", 1, false},
		{"thread-0000000001", 1, false},
		/* .NET */
		{"lock-0000000011", 11, false},
		{"read-0000000012", 12, true},
		{"write-0000000013", 13, false},
		/* nothing but the number */
		{"0000000014", 14, false},
		{"-0000000015", 15, false},
		/* a number of more than ten digits has a digit in the prefix */
		{"ex10000000016", 16, false},

		/* overflown, ten digits */
		{"_c_" UUID_TEXT "-lock--2147483648", INT32_MIN, false},
		{"_c_" UUID_TEXT "-__READ__-2147483648", INT32_MIN, true},
		{"_c_" UUID_TEXT "-__WRIT__-2000000000", -2000000000, false},
		{UUID_HEX "__lock__-2147483647", -2147483647, false},
		{UUID_HEX "__rlock__-1000000000", -1000000000, true},
		{"x-0123456789abcdef--2147483648", INT32_MIN, false},
		{"x--72057594037927936--2147483648", INT32_MIN, false},
		{"read--1234567890", -1234567890, true},
		/* overflown, nine digits: the minus sign is one of the ten */
		{"_c_" UUID_TEXT "-lock--000000001", -1, false},
		{"_c_" UUID_TEXT "-lock--999999999", -999999999, false},
		{"_c_" UUID_TEXT "-__READ__-000000001", -1, true},
		{UUID_HEX "__lock__-000000023", -23, false},
		{UUID_HEX "__rlock__-000000024", -24, true},
		{"x-0123456789abcdef--000000025", -25, false},
		{"read--000000026", -26, true},
		{"write--000000027", -27, false},

		/* ten digits with a zero in front: the '-' is the prefix's */
		{"lock_-0000000007", 7, false},
		{"lock--0000000007", 7, false},
		{"_c_" UUID_TEXT "-lock--0999999999", 999999999, false},
		{"lock_-0000000000", 0, false},
		/* from there on nobody can tell, and no order is assumed */
		{"lock_-1000000000", -1000000000, false},

		/* the client's own '-' is no minus sign */
		{"_c_" UUID_TEXT "-lock-1000000000", 1000000000, false},
		{"x-0123456789abcdef-2147483647", INT32_MAX, false}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(contenders); i++)
	{
		ZnodeContender contender;

		if (!znode_parse_contender(contenders[i].child, &contender))
			fail_msg("%s is no contender", contenders[i].child);
		if (contender.sequence != contenders[i].sequence)
			fail_msg("%s: sequence %d", contenders[i].child,
					 (int) contender.sequence);
		if (contender.shared != contenders[i].shared)
			fail_msg("%s: shared %d", contenders[i].child, contender.shared);
	}
}

static void
test_parse_stranger(void **state)
{
	static const char *const strangers[] = {
		"",
		"-",
		"lock",
		"lock-",
		"leases",
		"locks",
		UUID_TEXT "-lock-",
		"_c_" UUID_TEXT "-lock-0000000042x",
		"_c_" UUID_TEXT "-lock-0000000042 ",
		"_c_" UUID_TEXT "-lock-00000000ab",
		/* nine digits, and no minus sign to make them ten */
		"0",
		"000000001",
		"-000000001",
		"ex000000001",
		"lock-000000001",
		"_c_" UUID_TEXT "-lock-000000001",
		/* eight, and one */
		"_c_" UUID_TEXT "-lock--00000001",
		"__READ__-00000001",
		/* no int32 */
		"lock-2147483648",
		"lock-9999999999",
		"lock--2147483649",
		"__lock__-9999999999"
	};

	(void) state;
	for (size_t i = 0; i < lengthof(strangers); i++)
	{
		ZnodeContender contender;

		if (znode_parse_contender(strangers[i], &contender))
			fail_msg("%s is a contender", strangers[i]);
	}
}

static void
test_has_uuid(void **state)
{
	static const struct
	{
		const char *child;
		bool		expected;
	}			examples[] =
	{
		{"_c_" UUID_TEXT "-lock-0000000042", true},
		{"_c_" UUID_TEXT "-__READ__0000000042", true},
		{"_c_" UUID_TEXT "-__WRIT__0000000042", true},
		{"_c_" UUID_TEXT "-lease-0000000042", true},
		{"_c_" UUID_TEXT "-", true},
		{"_c_" UUID_TEXT, false},
		{"_c_" UUID_TEXT "0-lock-0000000042", false},
		{"_c_0123456f-89ab-4def-8edc-ba9876543211-lock-0000000042", false},
		{"_c_1123456f-89ab-4def-8edc-ba9876543210-lock-0000000042", false},
		{"_c_0123456F-89AB-4DEF-8EDC-BA9876543210-lock-0000000042", false},
		{"_c_" UUID_HEX "-lock-0000000042", false},
		{UUID_TEXT "-lock-0000000042", false},
		{"x_c_" UUID_TEXT "-lock-0000000042", false},
		{"", false}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
		if (znode_has_uuid(examples[i].child, uuid) != examples[i].expected)
			fail_msg("%s", examples[i].child);
}

static void
test_parse_uuid(void **state)
{
	static const char *const good[] = {
		"_c_" UUID_TEXT "-lock-0000000042", "_c_" UUID_TEXT "-__READ__0000000042",
		"_c_" UUID_TEXT "-"
	};
	static const char *const bad[] = {
		"_c_" UUID_TEXT, "_c_" UUID_TEXT "0-lock-0000000042",
		"_c_0123456F-89AB-4DEF-8EDC-BA9876543210-lock-0000000042",
		"_c_" UUID_HEX "-lock-0000000042", UUID_TEXT "-lock-0000000042",
		"_c_0123456g-89ab-4def-8edc-ba9876543210-lock-0000000042",
		"_c_0-1-2-3-4-5-6-7-8-9-a-b-c-d-e-f-0-1-2-3-4-5-6-7-8-9-a-b-c-d-e-f-",
		"_c_0123456f-89ab", "_c_0", "_c_", "_c", "lock-0000000042", ""
	};
	uint8_t		parsed[ZNODE_UUID_BYTES];

	(void) state;
	for (size_t i = 0; i < lengthof(good); i++)
	{
		memset(parsed, 0, sizeof(parsed));
		assert_true(znode_parse_uuid(good[i], parsed));
		assert_memory_equal(parsed, uuid, ZNODE_UUID_BYTES);
	}
	for (size_t i = 0; i < lengthof(bad); i++)
		if (znode_parse_uuid(bad[i], parsed))
			fail_msg("%s", bad[i]);
}

static void
test_order(void **state)
{
	/* up to the end of the server's counter */
	static const int32_t queue[] = {
		0, 1, 1000000000, ZNODE_LATE_SEQUENCE - 1, ZNODE_LATE_SEQUENCE,
		INT32_MAX - 1
	};

	(void) state;
	assert_true(znode_before(0, 1));
	assert_false(znode_before(1, 0));
	assert_true(znode_before(0, INT32_MAX - 1));
	assert_false(znode_before(INT32_MAX - 1, 0));

	/* a negative number is one that the server has given behind all others */
	assert_true(znode_before(INT32_MAX, INT32_MIN));
	assert_false(znode_before(INT32_MIN, INT32_MAX));
	assert_false(znode_before(-1, 0));

	for (size_t i = 0; i < lengthof(queue); i++)
		for (size_t j = 0; j < lengthof(queue); j++)
			assert_int_equal(znode_before(queue[i], queue[j]), i < j);
}

/* What the numbers at the end of the counter are good for. */
static void
test_end_of_counter(void **state)
{
	static const struct
	{
		int32_t		sequence;
		bool		late;
		bool		unordered;
	}			numbers[] =
	{
		{0, false, false}, {1, false, false},
		{ZNODE_LATE_SEQUENCE - 1, false, false},
		{ZNODE_LATE_SEQUENCE, true, false},
		{INT32_MAX - 1, true, false},
		{INT32_MAX, true, true},
		{INT32_MIN, true, true}, {INT32_MIN + 1, true, true},
		{-2000000000, true, true}, {-1, true, true}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(numbers); i++)
	{
		assert_int_equal(znode_is_late(numbers[i].sequence), numbers[i].late);
		assert_int_equal(znode_is_unordered(numbers[i].sequence),
						 numbers[i].unordered);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_encode_examples),
		cmocka_unit_test(test_encode_every_byte),
		cmocka_unit_test(test_encode_length_limit),
		cmocka_unit_test(test_encode_buffer_size),
		cmocka_unit_test(test_encode_is_injective),
		cmocka_unit_test(test_decode_foreign),
		cmocka_unit_test(test_decode_buffer_size),
		cmocka_unit_test(test_check_root),
		cmocka_unit_test(test_path_size),
		cmocka_unit_test(test_make_uuid),
		cmocka_unit_test(test_is_of_instance),
		cmocka_unit_test(test_contender_names),
		cmocka_unit_test(test_parse_contender),
		cmocka_unit_test(test_parse_stranger),
		cmocka_unit_test(test_has_uuid),
				cmocka_unit_test(test_parse_uuid),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_end_of_counter)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
