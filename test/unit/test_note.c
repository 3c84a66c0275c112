/*-------------------------------------------------------------------------
 *
 * test_note.c
 *		Unit tests of note.c: each line of its grammar, by its name; what
 *		a reader that knows no word reads; and any bytes at all.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_note.c
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

#include "core/lock/note.h"

#define NFUZZ		200000
#define FUZZ_BYTES	700

static uint64_t random_state;

static uint32_t
dice(uint32_t n)
{
	random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t) (random_state >> 33) % n;
}

/*
 * A reader that knows no word, and a writer of the first words
 */

static void
write_plain(char *data, size_t size, const char *host, int port,
		  const char *cluster, int pid, bool retain)
{
	snprintf(data, size, "postgresql host=%s port=%d cluster=%s pid=%d%s",
			 host, port, cluster, pid, retain ? " retain=yes" : "");
}

static bool
is_of_cluster_plain(const char *data, int len)
{
	return len >= 11 && memcmp(data, "postgresql ", 11) == 0;
}

static bool
may_be_retained_plain(const char *data, int len)
{
	return len >= 11 && memcmp(data + len - 11, " retain=yes", 11) == 0;
}

static bool
is_revocation_plain(const char *data, int len)
{
	return len == 10 && memcmp(data, "__REVOKE__", 10) == 0;
}

/*
 * Helpers
 */

static void
parse(Note *note, const char *data)
{
	note_parse(note, data, (int) strlen(data));
}

/* What is parsed and written again. */
static const char *
again(const char *data)
{
	static char written[NOTE_SIZE];
	Note		note;
	int			len;

	parse(&note, data);
	assert_int_equal(note.kind, NOTE_OF_INSTANCE);
	len = note_write(&note, written);
	assert_int_equal(len, strlen(written));
	return written;
}

static const char *
written(const char *host, const char *cluster, bool retain)
{
	static char data[NOTE_SIZE];
	Note		note;
	int			len;

	note_set_contender(&note, host, 5432, cluster, 1234, retain);
	len = note_write(&note, data);
	assert_int_equal(len, strlen(data));
	return data;
}

static void
assert_same_note(const Note *a, const Note *b)
{
	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->words, b->words);
	assert_string_equal(a->host, b->host);
	assert_int_equal(a->port, b->port);
	assert_string_equal(a->cluster_name, b->cluster_name);
	assert_int_equal(a->pid, b->pid);
	assert_string_equal(a->others, b->others);
}

/* So many bytes of the same letter. */
static const char *
letters(int n)
{
	static char text[1000];

	memset(text, 'x', n);
	text[n] = '\0';
	return text;
}

/*
 * Lines W: what is written
 */

static void
n1_words_are_written_in_order(void **state)
{
	(void) state;
	assert_string_equal(written("db1", "shop_a", false),
						"postgresql host=db1 port=5432 cluster=shop_a pid=1234");
	assert_string_equal(written("db1", "", true),
						"postgresql host=db1 port=5432 cluster= pid=1234 retain=yes");
	assert_string_equal(again("postgresql retain=yes a=1 pid=7 b cluster=c port=1 host=h"),
						"postgresql host=h port=1 cluster=c pid=7 a=1 b retain=yes");
	assert_string_equal(again("postgresql pid=7"), "postgresql pid=7");
	assert_string_equal(again("postgresql "), "postgresql ");
	assert_string_equal(again("postgresql retain=yes"),
						"postgresql retain=yes");
}

static void
w1_what_does_not_fit_is_left_out(void **state)
{
	Note		note;
	char		data[NOTE_SIZE];
	int			room = NOTE_SIZE - 1 - (int) strlen("postgresql pid=7 a=");

	(void) state;
	assert_int_equal(NOTE_SIZE, 256);
	for (int retain = 0; retain < 2; retain++)
		for (int more = -1; more <= 1; more++)
		{
			int			len = room - (retain ? 11 : 0) + more;

			memset(&note, 0, sizeof(note));
			note.kind = NOTE_OF_INSTANCE;
			note.words = NOTE_PID | (retain ? NOTE_RETAIN : 0);
			note.pid = 7;
			snprintf(note.others, sizeof(note.others), "a=%s", letters(len));
			(void) note_write(&note, data);
			assert_int_equal(strlen(data), more > 0 ?
							 (retain ? 27 : 16) : NOTE_SIZE - 1 + more);
			assert_int_equal(may_be_retained_plain(data, (int) strlen(data)),
							 retain);
		}

	/* a shorter one behind it may fit; known ones come first */
	memset(&note, 0, sizeof(note));
	note.kind = NOTE_OF_INSTANCE;
	note.words = NOTE_HOST | NOTE_PORT;
	note.port = 1;
	memset(note.host, ' ', WORD_VALUE_SIZE - 1);
	strcpy(note.others, "a=1 b=2");
	(void) note_write(&note, data);
	assert_string_equal(data, "postgresql port=1 a=1 b=2");
}

static void
w2_a_value_breaks_nothing(void **state)
{
	Note		note;

	(void) state;
	assert_string_equal(written("db1", "my shop", true),
						"postgresql host=db1 port=5432 cluster=my%20shop pid=1234 retain=yes");
	assert_string_equal(written("h", "a retain=yes", false),
						"postgresql host=h port=5432 cluster=a%20retain=yes pid=1234");
	assert_string_equal(written("h", "50%\t\n\x7f\xc3\xa4", false),
						"postgresql host=h port=5432 cluster=50%25%09%0A%7F%C3%A4 pid=1234");
	assert_string_equal(written("h", "!~a=b\"'\\", false),
						"postgresql host=h port=5432 cluster=!~a=b\"'\\ pid=1234");
	for (int byte = 1; byte < 256; byte++)
	{
		char		name[] = {'a', (char) byte, 'b', '\0'};
		char		read[8];

		snprintf(read, sizeof(read), byte >= ' ' && byte < 0x7F ?
				 "a%cb" : "a\\x%02xb", byte);
		parse(&note, written(name, name, true));
		assert_int_equal(note.words, NOTE_HOST | NOTE_PORT | NOTE_CLUSTER |
						 NOTE_PID | NOTE_RETAIN);
		assert_string_equal(note.host, read);
		assert_string_equal(note.cluster_name, read);
		assert_int_equal(note.port, 5432);
		assert_int_equal(note.pid, 1234);
		assert_string_equal(note.others, "");
	}
}

static void
names_that_are_too_long_are_cut(void **state)
{
	Note		note;

	(void) state;
	note_set_contender(&note, letters(500), 1, letters(500), 2, true);
	assert_int_equal(strlen(note.host), WORD_VALUE_SIZE - 1);
	assert_int_equal(strlen(note.cluster_name), WORD_VALUE_SIZE - 1);
}

/*
 * Lines R: what is read
 */

static void
n2_nothing_is_no_note(void **state)
{
	Note		note;

	(void) state;
	for (int len = -1; len <= 0; len++)
	{
		note_parse(&note, NULL, len);
		assert_int_equal(note.kind, NOTE_EMPTY);
		assert_int_equal(note.words, 0);
		note_parse(&note, "postgresql retain=yes", len);
		assert_int_equal(note.kind, NOTE_EMPTY);
		assert_false(note_may_be_retained(NULL, len));
		assert_false(note_is_revocation(NULL, len));
	}
}

static void
n3_a_revocation_is_just_that(void **state)
{
	Note		note;

	(void) state;
	parse(&note, "__REVOKE__");
	assert_int_equal(note.kind, NOTE_REVOCATION);
	assert_int_equal(note.words, 0);
	assert_true(note_is_revocation("__REVOKE__", 10));
	assert_false(note_is_revocation("__REVOKE__ ", 11));
	assert_false(note_is_revocation("__REVOKE__", 9));
	assert_false(note_is_revocation("__REVOKED_", 10));
	parse(&note, "__REVOKE__ ");
	assert_int_equal(note.kind, NOTE_OF_ANOTHER);
}

static void
r1_words_come_in_any_order(void **state)
{
	Note		note;

	(void) state;
	parse(&note, "postgresql   retain=yes pid=7  cluster=c host=h port=65535 ");
	assert_int_equal(note.kind, NOTE_OF_INSTANCE);
	assert_int_equal(note.words, NOTE_HOST | NOTE_PORT | NOTE_CLUSTER |
					 NOTE_PID | NOTE_RETAIN);
	assert_string_equal(note.host, "h");
	assert_int_equal(note.port, 65535);
	assert_string_equal(note.cluster_name, "c");
	assert_int_equal(note.pid, 7);
	assert_string_equal(note.others, "");

	parse(&note, "postgresql cluster=c");
	assert_int_equal(note.words, NOTE_CLUSTER);
	parse(&note, "postgresql");
	assert_int_not_equal(note.kind, NOTE_OF_INSTANCE);
	parse(&note, "postgresqlx host=h");
	assert_int_not_equal(note.kind, NOTE_OF_INSTANCE);
	parse(&note, "postgresql host=h");
	assert_int_equal(note.kind, NOTE_OF_INSTANCE);
	assert_true(note_may_be_retained("postgresql retain=yes a=b", 25));
	assert_false(note_may_be_retained("postgresql retain=yes", 20));
}

static void
n5_what_is_not_known_is_kept(void **state)
{
	static const char *const strange[] = {
		"host", "hosts=h", "Host=h", "=", "a==b", "%", "%zz",
		"retain=no", "retain=yes,", "retain", "revoke=yes", "pid=", "pid=x",
		"pid=-1", "pid=01", "pid=7x", "pid=2147483648",
		"pid=99999999999999999999999"
	};
	Note		note;
	char		data[NOTE_SIZE];

	(void) state;
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
	{
		snprintf(data, sizeof(data), "postgresql host=h %s port=1", strange[i]);
		parse(&note, data);
		assert_int_equal(note.words, NOTE_HOST | NOTE_PORT);
		assert_string_equal(note.others, strange[i]);
		snprintf(data, sizeof(data), "postgresql host=h port=1 %s", strange[i]);
		assert_string_equal(again(data), data);
	}

	/* the first counts, be it good or not */
	parse(&note, "postgresql pid=1 pid=2");
	assert_int_equal(note.pid, 1);
	assert_string_equal(note.others, "pid=2");
	parse(&note, "postgresql pid=x pid=2");
	assert_int_equal(note.words, 0);
	assert_string_equal(note.others, "pid=x pid=2");
	parse(&note, "postgresql pid=2147483647 port=0");
	assert_int_equal(note.words, NOTE_PID | NOTE_PORT);
	assert_int_equal(note.pid, INT_MAX);
	assert_int_equal(note.port, 0);

	/* bytes that do not print */
	note_parse(&note, "postgresql a\0b\t\x80", 16);
	assert_string_equal(note.others, "a%00b%09%80");
}

static void
n5_as_far_as_there_is_room(void **state)
{
	Note		note;
	char		data[2000];

	(void) state;
	snprintf(data, sizeof(data), "postgresql host=%s",
			 letters(WORD_VALUE_SIZE - 1));
	parse(&note, data);
	assert_int_equal(note.words, NOTE_HOST);
	assert_int_equal(strlen(note.host), WORD_VALUE_SIZE - 1);
	snprintf(data, sizeof(data), "postgresql host=%s",
			 letters(WORD_VALUE_SIZE));
	parse(&note, data);
	assert_int_equal(note.words, 0);
	assert_string_equal(note.host, "");
	assert_string_equal(note.others, data + 11);

	snprintf(data, sizeof(data), "postgresql a=1 %s b=2",
			 letters(NOTE_SIZE - 1 - 4));
	parse(&note, data);
	assert_int_equal(strlen(note.others), NOTE_SIZE - 1);
	snprintf(data, sizeof(data), "postgresql a=1 %s b=2 retain=yes",
			 letters(NOTE_SIZE - 4));
	parse(&note, data);
	assert_string_equal(note.others, "a=1 b=2");
	assert_int_equal(note.words, NOTE_RETAIN);
}

static void
r3_a_percent_sign_may_stand_for_itself(void **state)
{
	Note		note;

	(void) state;
	parse(&note, "postgresql cluster=50%");
	assert_string_equal(note.cluster_name, "50%");
	parse(&note, "postgresql cluster=%4 host=%g0");
	assert_string_equal(note.cluster_name, "%4");
	assert_string_equal(note.host, "%g0");
	parse(&note, "postgresql cluster=%41%4a%4Az%20%2541");
	assert_string_equal(note.cluster_name, "AJJz %41");
	parse(&note, "postgresql cluster=a%00b%");
	assert_string_equal(note.cluster_name, "a\\x00b%");
	note_parse(&note, "postgresql cluster=a\0b", 22);
	assert_string_equal(note.cluster_name, "a\\x00b");
	note_parse(&note, "postgresql cluster=%41", 21);
	assert_string_equal(note.cluster_name, "%4");
	parse(&note, "postgresql cluster=%af%FA%9G%@0");
	assert_string_equal(note.cluster_name, "\\xaf\\xfa%9G%@0");
	parse(&note, "postgresql cluster=%C3%A4\xc3\xa4\xc3%A4");
	assert_string_equal(note.cluster_name, "\xc3\xa4\xc3\xa4\xc3\xa4");
}

static void
n6_others_have_forms_of_their_own(void **state)
{
	Note		note;

	(void) state;
	parse(&note, "10.0.0.1");
	assert_int_equal(note.kind, NOTE_OF_ANOTHER);
	assert_int_equal(note.words, 0);
	parse(&note, "me host=h retain=yes");
	assert_int_equal(note.kind, NOTE_OF_ANOTHER);
	assert_int_equal(note.words, NOTE_RETAIN);
	parse(&note, " retain=yes");
	assert_int_equal(note.words, NOTE_RETAIN);
	parse(&note, "retain=yes");
	assert_int_equal(note.words, 0);
	parse(&note, "me retain=yes ");
	assert_int_equal(note.words, 0);
}

/*
 * That one and this one
 */

static void
we_write_the_first_words(void **state)
{
	static const char *const names[] = {"", "a", "shop_a", "db1.example.com",
		"15/main", "x-y:z", "=", "a=b", "retain=yes"
	};
	char		data[NOTE_SIZE];

	(void) state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (int retain = 0; retain < 2; retain++)
		{
			write_plain(data, sizeof(data), names[i], 5432, names[i], 1234,
					  retain);
			assert_string_equal(written(names[i], names[i], retain), data);
		}
}

static void
we_read_the_first_words(void **state)
{
	Note		note;
	char		data[NOTE_SIZE];

	(void) state;
	for (int retain = 0; retain < 2; retain++)
	{
		write_plain(data, sizeof(data), "db1", 5433, "my old shop", 99, retain);
		parse(&note, data);
		assert_int_equal(note.kind, NOTE_OF_INSTANCE);
		assert_int_equal(note.words, NOTE_HOST | NOTE_PORT | NOTE_CLUSTER |
						 NOTE_PID | (retain ? NOTE_RETAIN : 0));
		assert_string_equal(note.cluster_name, "my");
		assert_int_equal(note.pid, 99);
		assert_string_equal(note.others, "old shop");
		assert_int_equal(note_may_be_retained(data, (int) strlen(data)),
						 retain);
	}
}

/*
 * Any bytes
 */

/* What is made of pieces is often nearly a note. */
static int
random_data(char *data)
{
	static const char *const pieces[] = {
		"postgresql ", "postgresql", " ", " ", "host=", " port=", " pid=",
		" cluster=", " retain=yes", "retain=yes", "__REVOKE__", "=", "%",
		"%41", "%00", "%2", "7", "2147483647", "99999999999", "abc",
		"a_long_name_of_some_cluster_or_machine", "\xc3\xa4", ","
	};
	int			len = 0;
	int			npieces = (int) dice(30);

	if (dice(8) != 0)
		len = sprintf(data, "postgresql ");
	for (int i = 0; i < npieces && len < FUZZ_BYTES - 50; i++)
	{
		if (dice(6) == 0)
			data[len++] = (char) dice(256);
		else
			len += sprintf(data + len, "%s",
						   pieces[dice(sizeof(pieces) / sizeof(pieces[0]))]);
	}
	return len;
}

/* Is this as word_printable() has it? */
static void
assert_printable(const char *text)
{
	char		again[4 * NOTE_SIZE];

	(void) word_printable(word_bytes(text, (int) strlen(text)), false, again,
						  sizeof(again));
	assert_string_equal(text, again);
}

static void
bytes_are_made_printable(void **state)
{
	static const struct
	{
		const char *bytes;
		const char *utf8;
		const char *ascii;
	}			cases[] = {
		{"", "", ""},
		{"a b~\\", "a b~\\", "a b~\\"},
		{"\x1b[31m\n\x7f", "\\x1b[31m\\x0a\\x7f", "\\x1b[31m\\x0a\\x7f"},
		{"\xc3\xa4", "\xc3\xa4", "\\xc3\\xa4"},
		{"\xe2\x82\xac!", "\xe2\x82\xac!", "\\xe2\\x82\\xac!"},
		{"\xf0\x9f\x94\x92", "\xf0\x9f\x94\x92", "\\xf0\\x9f\\x94\\x92"},
		/* cut, overlong, a surrogate, beyond the last, no first byte */
		{"\xc3", "\\xc3", "\\xc3"},
		{"\xe2\x82z", "\\xe2\\x82z", "\\xe2\\x82z"},
		{"\xc0\x8a", "\\xc0\\x8a", "\\xc0\\x8a"},
		{"\xe0\x82\xac", "\\xe0\\x82\\xac", "\\xe0\\x82\\xac"},
		{"\xf0\x82\x82\xac", "\\xf0\\x82\\x82\\xac", "\\xf0\\x82\\x82\\xac"},
		{"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80"},
		{"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "\\xf4\\x90\\x80\\x80"},
		{"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80", "\\xf5\\x80\\x80\\x80"},
		{"\x80\xff", "\\x80\\xff", "\\x80\\xff"},
		/* next line (C1), from right to left, end of line, no width, mark */
		{"\xc2\x85", "\\xc2\\x85", "\\xc2\\x85"},
		{"\xe2\x80\xae", "\\xe2\\x80\\xae", "\\xe2\\x80\\xae"},
		{"\xe2\x80\xa8", "\\xe2\\x80\\xa8", "\\xe2\\x80\\xa8"},
		{"\xe2\x80\x8b", "\\xe2\\x80\\x8b", "\\xe2\\x80\\x8b"},
		{"\xe2\x81\xa9", "\\xe2\\x81\\xa9", "\\xe2\\x81\\xa9"},
		{"\xef\xbb\xbf", "\\xef\\xbb\\xbf", "\\xef\\xbb\\xbf"},
		/* and what is next to them */
		{"\xc2\xa0", "\xc2\xa0", "\\xc2\\xa0"},
		{"\xe2\x80\x90", "\xe2\x80\x90", "\\xe2\\x80\\x90"},
		{"\xee\x80\x80", "\xee\x80\x80", "\\xee\\x80\\x80"},
		{"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", "\\xf4\\x8f\\xbf\\xbf"},
	};
	char		text[64];

	(void) state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		Bytes		bytes = word_bytes(cases[i].bytes, (int) strlen(cases[i].bytes));

		assert_int_equal(word_printable(bytes, false, text, sizeof(text)),
						 strlen(cases[i].utf8));
		assert_string_equal(text, cases[i].utf8);
		(void) word_printable(bytes, true, text, sizeof(text));
		assert_string_equal(text, cases[i].ascii);
	}
	assert_int_equal(word_printable(word_bytes("a\0b", 3), true, text,
									sizeof(text)), 6);
	assert_string_equal(text, "a\\x00b");

	/* no part of a character is left of what does not fit */
	for (int size = 1; size < 12; size++)
	{
		int			len = word_printable(word_bytes("\xff\xe2\x82\xac" "a", 5),
										 false, text, size);

		assert_int_equal(len, size <= 4 ? 0 : size <= 7 ? 4 : size == 8 ? 7 : 8);
		assert_int_equal(text[len], '\0');
	}
}

static void
check_any_bytes(const char *data, int len)
{
	Note		note;
	Note		second;
	char		first_written[NOTE_SIZE];
	char		second_written[NOTE_SIZE];
	int			written_len;

	/* both readers agree, but that the mark may be anywhere */
	note_parse(&note, data, len);
	assert_int_equal(note.kind == NOTE_OF_INSTANCE,
					 is_of_cluster_plain(data, len));
	assert_int_equal(note.kind == NOTE_REVOCATION,
					 is_revocation_plain(data, len));
	if (may_be_retained_plain(data, len))
		assert_true(note_may_be_retained(data, len));
	else if (note.kind != NOTE_OF_INSTANCE)
		assert_false(note_may_be_retained(data, len));
	if (note.kind != NOTE_OF_INSTANCE)
		return;

	assert_printable(note.host);
	assert_printable(note.cluster_name);

	/* what is written is text, and the other reader understands it */
	written_len = note_write(&note, first_written);
	assert_true(written_len < NOTE_SIZE);
	assert_int_equal(strlen(first_written), written_len);
	for (int i = 0; i < written_len; i++)
		assert_true(first_written[i] >= ' ' && first_written[i] < 0x7F);
	assert_true(is_of_cluster_plain(first_written, written_len));
	assert_int_equal(may_be_retained_plain(first_written, written_len),
					 (note.words & NOTE_RETAIN) != 0);

	/* and if there was room for all, nothing of it is lost */
	if (written_len > NOTE_SIZE / 2 || strlen(note.others) > NOTE_SIZE / 4)
		return;
	if (strlen(note.host) + strlen(note.cluster_name) > NOTE_SIZE / 8)
		return;
	note_parse(&second, first_written, written_len);
	assert_same_note(&note, &second);
	(void) note_write(&second, second_written);
	assert_string_equal(first_written, second_written);
}

static void
any_bytes_are_read(void **state)
{
	(void) state;
	random_state = 1;
	for (int i = 0; i < NFUZZ; i++)
	{
		char		data[FUZZ_BYTES];
		int			len = random_data(data);

		/* of just that size, for AddressSanitizer */
		char	   *bytes = malloc(len > 0 ? len : 1);

		memcpy(bytes, data, len);
		check_any_bytes(bytes, len);
		free(bytes);
	}
}

static void
any_words_are_written(void **state)
{
	(void) state;
	random_state = 2;
	for (int i = 0; i < NFUZZ / 10; i++)
	{
		Note		note;
		Note		second;
		char		data[NOTE_SIZE];
		char		name[40];
		int			len = (int) dice(sizeof(name) - 1);
		bool		retain;
		int			pid;

		for (int j = 0; j < len; j++)
			name[j] = (char) (dice(3) == 0 ? '%' : ' ' + dice(95));
		name[len] = '\0';
		retain = dice(2);
		pid = (int) dice(INT_MAX);
		note_set_contender(&note, "h", (int) dice(65536), name, pid, retain);
		len = note_write(&note, data);
		note_parse(&second, data, len);
		assert_same_note(&note, &second);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(n1_words_are_written_in_order),
		cmocka_unit_test(w1_what_does_not_fit_is_left_out),
		cmocka_unit_test(w2_a_value_breaks_nothing),
		cmocka_unit_test(names_that_are_too_long_are_cut),
		cmocka_unit_test(n2_nothing_is_no_note),
		cmocka_unit_test(n3_a_revocation_is_just_that),
		cmocka_unit_test(r1_words_come_in_any_order),
		cmocka_unit_test(n5_what_is_not_known_is_kept),
		cmocka_unit_test(n5_as_far_as_there_is_room),
		cmocka_unit_test(r3_a_percent_sign_may_stand_for_itself),
		cmocka_unit_test(bytes_are_made_printable),
		cmocka_unit_test(n6_others_have_forms_of_their_own),
		cmocka_unit_test(we_write_the_first_words),
		cmocka_unit_test(we_read_the_first_words),
		cmocka_unit_test(any_bytes_are_read),
		cmocka_unit_test(any_words_are_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
