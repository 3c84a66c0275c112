/*-------------------------------------------------------------------------
 *
 * test_fuzz.c
 *		All parsers of what other clients write, and of what sessions pass:
 *		texts that are valid, changed at random, and any bytes.
 *
 * A parser must only say whether it can read them: the sanitizers, and
 * copies of just the length of the text, notice what it reads beyond.  What it
 * has read it can write, and then reads the same again.  Each parser has a
 * seed of its own, which is fixed.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_fuzz.c
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

#include "core/deadlock.h"
#include "core/lock/claim.h"
#include "core/lock/note.h"
#include "core/lock/znode.h"
#include "core/reason.h"
#include "core/remote.h"
#include "soak.h"

#define TEXT_SIZE	4096
#define UUID		"89ab0123-4567-4def-8edc-ba9876543210"

typedef void (*Parser) (const char *text, int len);

static uint64_t random_state;

static uint32_t
dice(uint32_t n)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t) (random_state >> 33) % n;
}

/* One byte of those that parsers look for, or any. */
static char
any_byte(void)
{
	static const char marks[] = " ,%-/:=\n_.~\\09afAFxk";

	return dice(2) ? marks[dice(sizeof(marks) - 1)] : (char) dice(256);
}

/* Make a text of one of the samples; returns its length. */
static int
make_text(const char *const *samples, int nsamples, char *text)
{
	const char *sample = samples[dice(nsamples)];
	int			len = (int) strlen(sample);

	memcpy(text, sample, len);
	for (int changes = dice(6); changes > 0; changes--)
	{
		int			at = dice(len + 1);
		int			n = dice(len - at + 1);

		switch (dice(6))
		{
			case 0:				/* cut */
				len = at;
				break;
			case 1:				/* left out */
				memmove(text + at, text + at + n, len - at - n);
				len -= n;
				break;
			case 2:				/* twice */
				if (len + n > TEXT_SIZE)
					break;
				memmove(text + at + n, text + at, len - at);
				len += n;
				break;
			case 3:				/* a long run */
				n = dice(400);
				if (len + n > TEXT_SIZE)
					break;
				memmove(text + at + n, text + at, len - at);
				memset(text + at, any_byte(), n);
				len += n;
				break;
			default:			/* another byte */
				if (at < len)
					text[at] = any_byte();
				break;
		}
	}
	return len;
}

static void
fuzz(uint64_t seed, const char *const *samples, int nsamples, Parser parse)
{
	unsigned long runs = soak(50000, 1000000);
	char		text[TEXT_SIZE];

	random_state = seed;
	while (runs-- > 0)
	{
		int			len = make_text(samples, nsamples, text);
		char	   *copy = malloc(len > 0 ? len : 1);

		memcpy(copy, text, len);
		parse(copy, len);
		free(copy);
	}
}

#define FUZZ(seed, parse, ...) \
	do { \
		static const char *const samples[] = {__VA_ARGS__}; \
		fuzz(seed, samples, sizeof(samples) / sizeof(samples[0]), parse); \
	} while (0)

/* For parsers of strings: the text up to its first zero byte. */
static char *
string_of(const char *text, int len)
{
	char	   *string = malloc(len + 1);

	memcpy(string, text, len);
	string[len] = '\0';
	return string;
}

static void
parse_note(const char *text, int len)
{
	Note		note;
	char		written[NOTE_SIZE];

	note_parse(&note, text, len);
	(void) note_may_be_retained(text, len);
	(void) note_is_revocation(text, len);
	if (note.kind == NOTE_OF_INSTANCE)
		assert_true(note_write(&note, written) < NOTE_SIZE);
}

static void
parse_member(const char *text, int len)
{
	Member		member;
	char		written[MEMBER_SIZE];
	char	   *string = string_of(text, len);

	member_parse(&member, text, len);
	if (member.kind == MEMBER_READ)
		assert_true(member_write(&member, written) < MEMBER_SIZE);
	(void) member_is_node(string);
	free(string);
}

static void
parse_znode(const char *text, int len)
{
	char	   *string = string_of(text, len);
	ZnodeContender contender;
	uint8_t		uuid[ZNODE_UUID_BYTES] = {0};
	char		name[ZNODE_MAX_NAME + 1];
	char		encoded[ZNODE_MAX_NAME + 1];
	int			n;

	(void) znode_parse_contender(string, &contender);
	(void) znode_parse_uuid(string, uuid);
	(void) znode_has_uuid(string, uuid);
	(void) znode_is_of_instance(string);
	(void) znode_check_root(string);
	n = znode_encode_name(text, len, encoded, sizeof(encoded));
	if (n >= 0)
	{
		assert_int_equal(znode_decode_name(encoded, name, sizeof(name)), len);
		assert_memory_equal(name, text, len);
	}
	n = znode_decode_name(string, name, sizeof(name));
	assert_true(n < (int) sizeof(name));
	free(string);
}

static void
parse_waits(const char *text, int len)
{
	DeadlockText read;
	DeadlockText again;
	const DeadlockEdge **edges;
	char		written[4 * TEXT_SIZE];
	int			n;

	if (!deadlock_parse("t", text, len, &read))
		return;
	edges = malloc((read.nedges + 1) * sizeof(*edges));
	for (int i = 0; i < read.nedges; i++)
		edges[i] = &read.edges[i];
	n = deadlock_write("i", edges, read.nedges, written, sizeof(written));
	assert_true(n < 0 || deadlock_parse("t", written, n, &again));
	if (n >= 0)
	{
		assert_int_equal(again.nedges, read.nedges);
		free(again.edges);
		free(again.memory);
	}
	free(edges);
	free(read.edges);
	free(read.memory);
}

static void
parse_remote(const char *text, int len)
{
	char	   *string = string_of(text, len);
	RemoteSession session;
	char		name[REMOTE_NAME_SIZE];

	if (remote_parse(string, &session))
		remote_write(&session, name);
	(void) remote_of_application(string, &session);
	free(string);
}

static void
parse_claim(const char *text, int len)
{
	ClaimToken	token;
	char		written[CLAIM_TOKEN_SIZE];
	char	   *string = string_of(text, len);

	(void) claim_is_id(string);
	free(string);
	if (!claim_parse_token(text, len, &token))
		return;
	claim_write_token(&token, written);
	assert_memory_equal(written, text, len);
}

static void
parse_words(const char *text, int len)
{
	Bytes		rest = word_bytes(text, len);
	Bytes		word;
	char	   *shown = malloc(WORD_ESCAPE_SIZE * len + 1);
	char		value[WORD_VALUE_SIZE];
	char		reason[200];
	char	   *string = string_of(text, len);
	int			printed;

	printed = word_printable(rest, dice(2), shown, WORD_ESCAPE_SIZE * len + 1);
	assert_true(printed >= 0 && printed <= WORD_ESCAPE_SIZE * len);
	while (word_next(&rest, &word))
	{
		uint64_t	number;
		int			integer;

		(void) word_parse_text(word, value, sizeof(value));
		(void) word_parse_unsigned(word, 16, UINT64_MAX, &number);
		(void) word_parse_number(word, &integer);
	}
	reason_of_line(string, dice(2), 0x1000, reason, sizeof(reason));
	(void) reason_is_of_refusal(string);
	(void) reason_is_none(string);
	free(string);
	free(shown);
}

static void
test_notes(void **state)
{
	(void) state;
	FUZZ(1, parse_note,
		 "postgresql host=db1 port=5432 cluster=shop%20a pid=1234 retain=yes",
		 "__REVOKE__", "10.0.0.1-thread", "");
}

static void
test_members(void **state)
{
	(void) state;
	FUZZ(2, parse_member,
		 "zklock cluster=a host=db1 port=5432 system=0123456789abcdef place=1"
		 " version=1.1 server=15.3 format=mutex timeout=10000 standby=0"
		 " id=0123456789abcdef",
		 UUID "-cluster");
}

static void
test_znodes(void **state)
{
	(void) state;
	FUZZ(4, parse_znode, "_c_" UUID "-lock-0000000001",
		 "_c_" UUID "-__READ__2147483647", "_c_" UUID "-lock--2147483648",
		 "stock%2F17", "%C3%A4", "/zklock/a", "lease-0000000001");
}

static void
test_waits(void **state)
{
	(void) state;
	FUZZ(5, parse_waits, "zklock1 a\n",
		 "zklock1 shop%20a\nwait 71 x /zklock/b 72 1f 2a ab"
		 " /zklock/b/_c_" UUID "-lock-0000000001 71.1,73.f\n"
		 "keep s /zklock/a 1c\nkeep c 65.47:shop 0\n"
		 "wait 7 w 65.47:b 7 1 0 - - -\nkeep x /zklock/c 3\n");
}

static void
test_remotes(void **state)
{
	(void) state;
	FUZZ(6, parse_remote, "65.47:a", "65.47:shop", "zklock:65.47:a");
}

static void
test_claims(void **state)
{
	(void) state;
	FUZZ(7, parse_claim, "0123456789abcdef/00112233445566778899aabbccddeeff",
		 "0123456789abcdef");
}

static void
test_words(void **state)
{
	(void) state;
	FUZZ(8, parse_words, "a=1 b=%20 c=0123456789abcdef 9223372036854775807",
		 "\xc3\xa4\xe2\x82\xac \x1b[31m\r\n",
		 "2026-01-01 12:00:00,000:1(0x7f):ZOO_ERROR@handle_socket_error_msg@1: Socket [127.0.0.1:2181] zk retcode=-4, errno=111(Connection refused): server refused to accept the client");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notes),
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_znodes),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_remotes),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
