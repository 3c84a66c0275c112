/*-------------------------------------------------------------------------
 *
 * probe.c
 *		What instances write to one another about a deadlock.
 *
 * In <root>/%waits, which is the name of no lock, are
 *
 *	probe-NNNNNNNNNN	a deadlock that an instance has read: a line for each
 *						member, as below; the number is ZooKeeper's
 *	answer-NNNNNNNNNN-BBBBBBBBBBBBBBBB-nnnnnnnnnn
 *						an instance has confirmed its edges in probe N: bit i
 *						of B, which is hexadecimal, is that of line i; no bit:
 *						one of its edges does not exist any more
 *	verdict-NNNNNNNNNN	the first member of probe N has been made the victim
 *	session-...			see vertex.c
 *
 * All are ephemeral.  A line is a WaitMember:
 *
 *	version " " blocked_by " " cluster_name " " from " " between " " wait "\n"
 *
 * Here cluster_name, from and between are encoded as the values in note.c, and
 * may be empty, and wait has the form that it has in a note.  Data with a line
 * of another form are no probe.  What is shown, cluster_name and wait, is read
 * so that it prints, as in a note; the paths from and between are read as they
 * are, for requests to ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/probe.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/word.h"

/* The ten digits behind a prefix; false if there are none. */
static bool
parse_digits(const char **text, int32_t *number)
{
	int64_t		value = 0;

	for (int i = 0; i < 10; i++)
	{
		if ((*text)[i] < '0' || (*text)[i] > '9')
			return false;
		value = value * 10 + ((*text)[i] - '0');
	}
	*text +=10;
	*number = (int32_t) value;
	return value <= INT32_MAX;
}

static bool
parse_bits(const char **text, uint64_t *bits)
{
	if (!word_parse_hex(*text, bits))
		return false;
	*text += WORD_HEX_DIGITS;
	return true;
}

static bool
skip(const char **text, const char *prefix)
{
	size_t		len = strlen(prefix);

	if (strncmp(*text, prefix, len) != 0)
		return false;
	*text +=len;
	return true;
}

/* Parse the name of a znode in %waits. */
void
probe_parse_name(const char *name, ProbeName *parsed)
{
	const char *rest = name;
	int32_t		number;

	memset(parsed, 0, sizeof(*parsed));
	if (skip(&rest, PROBE_PREFIX) && parse_digits(&rest, &parsed->number) &&
		*rest == '\0')
	{
		parsed->kind = PROBE_QUESTION;
		return;
	}
	rest = name;
	if (skip(&rest, "answer-") && parse_digits(&rest, &parsed->number) &&
		skip(&rest, "-") && parse_bits(&rest, &parsed->confirmed) &&
		skip(&rest, "-") && parse_digits(&rest, &number) && *rest == '\0')
	{
		parsed->kind = PROBE_ANSWER;
		return;
	}
	rest = name;
	parsed->kind = skip(&rest, "verdict-") &&
		parse_digits(&rest, &parsed->number) && *rest == '\0' ?
		PROBE_VERDICT : PROBE_NOTHING;
}

/* The name of an answer, without the number that ZooKeeper appends. */
void
probe_answer_prefix(int32_t number, uint64_t confirmed,
					char name[PROBE_NAME_SIZE])
{
	(void) snprintf(name, PROBE_NAME_SIZE,
					"answer-%010" PRId32 "-%016" PRIx64 "-",
					number, confirmed);
}

/* The name of the verdict about a probe. */
void
probe_verdict_name(int32_t number, char name[PROBE_NAME_SIZE])
{
	(void) snprintf(name, PROBE_NAME_SIZE, "verdict-%010" PRId32, number);
}

/* The data of a probe: a string, malloc'd. */
char *
probe_write(const WaitDeadlock *deadlock)
{
	char	   *data = memory_alloc((size_t) deadlock->nmembers *
									PROBE_LINE_SIZE + 1);
	int			len = 0;

	for (int i = 0; i < deadlock->nmembers; i++)
	{
		const WaitMember *member = &deadlock->members[i];

		len += sprintf(data + len, "%" PRId32 " %d ", member->version,
					   member->blocked_by);
		len += note_encode(member->cluster_name, data + len, PROBE_LINE_SIZE);
		data[len++] = ' ';
		len += note_encode(member->edge.from, data + len, PROBE_LINE_SIZE);
		data[len++] = ' ';
		len += note_encode(member->between, data + len, PROBE_LINE_SIZE);
		data[len++] = ' ';
		len += note_write_wait(&member->edge.wait, data + len);
		data[len++] = '\n';
	}
	data[len] = '\0';
	return data;
}

/* Cut off what precedes the delimiter; false if there is no delimiter. */
static bool
take_up_to(const char **rest, const char *end, char delimiter,
		   const char **part, int *len)
{
	const char *found = memchr(*rest, delimiter, end - *rest);

	if (found == NULL)
		return false;
	*part = *rest;
	*len = (int) (found - *rest);
	*rest = found + 1;
	return true;
}

static bool
parse_int(const char *text, int len, int *number)
{
	char		digits[12];
	char	   *end;

	if (len == 0 || len >= (int) sizeof(digits))
		return false;
	memcpy(digits, text, len);
	digits[len] = '\0';
	*number = (int) strtol(digits, &end, 10);
	return *end == '\0';
}

static bool
parse_member(const char *line, int line_len, WaitMember *member)
{
	const char *end = line + line_len;
	const char *part;
	int			len;
	int			version;

	memset(member, 0, sizeof(*member));
	if (!take_up_to(&line, end, ' ', &part, &len) ||
		!parse_int(part, len, &version) ||
		!take_up_to(&line, end, ' ', &part, &len) ||
		!parse_int(part, len, &member->blocked_by) ||
		!take_up_to(&line, end, ' ', &part, &len) ||
		!word_parse_text(word_bytes(part, len), member->cluster_name,
						 WORD_VALUE_SIZE) ||
		!take_up_to(&line, end, ' ', &part, &len) ||
		!note_decode(part, len, member->edge.from, NOTE_VERTEX_SIZE) ||
		!take_up_to(&line, end, ' ', &part, &len) ||
		!note_decode(part, len, member->between, NOTE_VERTEX_SIZE))
		return false;
	member->version = version;
	return note_parse_wait(line, (int) (end - line), &member->edge.wait);
}

/*
 * probe_parse
 *		Parse the data of a probe; false if they are none.
 *
 * "deadlock" is overwritten; on success the caller must call
 * waits_free_deadlock().
 */
bool
probe_parse(const char *data, int len, WaitDeadlock *deadlock)
{
	const char *end = data + len;
	const char *line;
	int			line_len;

	memset(deadlock, 0, sizeof(*deadlock));
	if (data == NULL || len <= 0)
		return false;
	deadlock->members = memory_alloc(WAITS_MAX_MEMBERS * sizeof(WaitMember));
	while (data < end && deadlock->nmembers < WAITS_MAX_MEMBERS &&
		   take_up_to(&data, end, '\n', &line, &line_len) &&
		   parse_member(line, line_len,
						&deadlock->members[deadlock->nmembers]))
		deadlock->nmembers++;
	for (int i = 0; i < deadlock->nmembers; i++)
		if (deadlock->members[i].blocked_by < 0 ||
			deadlock->members[i].blocked_by >= deadlock->nmembers)
			data = NULL;
	if (data != end || deadlock->nmembers == 0)
	{
		waits_free_deadlock(deadlock);
		return false;
	}
	return true;
}
