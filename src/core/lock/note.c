/*-------------------------------------------------------------------------
 *
 * note.c
 *		The data of a contender: its owner, and what it tells other
 *		instances.
 *
 * People and other clients read these notes, and so do other instances, of
 * this version and others.  Only this file writes and parses them.
 *
 *	note	= "postgresql" { " " word } [ " retain=yes" ], as in core/word.c
 *
 *	N1	The order is: host, port, cluster, pid, the unknown words, retain=yes.
 *		There is always room for retain=yes.
 *	N2	No data, empty data, or a length of -1 are no note.
 *	N3	Exactly "__REVOKE__" is a revocation.
 *	N4	What begins with "postgresql " is the note of an instance.
 *	N5	A word that does not count is kept in "others", from which it is
 *		written again; bytes that do not print are encoded.  Words for which
 *		"others" has no room are left out.
 *	N6	Any other data are another client's.  It may be retained if they end
 *		in " retain=yes", which any client may write.
 *
 * A reader that knows no word takes what begins with "postgresql " for an
 * instance's note, and what ends in " retain=yes" for retained; by N1 both
 * hold.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/note.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/note.h"

#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/mutation.h"

/* The same as a word, without its space. */
static const char *const retain_word = &NOTE_RETAIN_MARK[1];

/* In the order in which they are written. */
static const WordField keys[] = {
	{"host=", NOTE_HOST, WORD_TEXT, offsetof(Note, host)},
	{"port=", NOTE_PORT, WORD_NUMBER, offsetof(Note, port)},
	{"cluster=", NOTE_CLUSTER, WORD_TEXT, offsetof(Note, cluster_name)},
	{"pid=", NOTE_PID, WORD_NUMBER, offsetof(Note, pid)},
	{.key = NULL}
};

/*
 * Parse a word; "seen" has the keys so far.  False if the word is to be kept
 * as it is.
 */
static bool
parse_word(Note *note, Bytes word, unsigned *seen)
{
	unsigned	bit = word_bytes_are(word, retain_word) ? NOTE_RETAIN :
		word_parse_field(word, keys, note, seen);

	note->words |= bit;
	return bit != 0;
}

/* Parse the words of an instance's note. */
static void
parse_words(Note *note, Bytes rest)
{
	Bytes		word;
	Writer		others = {.data = note->others,.size = NOTE_SIZE};
	unsigned	seen = 0;

	(void) word_next(&rest, &word);
	while (word_next(&rest, &word))
	{
		int			start = others.len;

		if (parse_word(note, word, &seen))
			continue;
		if (start > 0)
			word_put_byte(&others, ' ');
		word_put_encoded(&others, word, false);
		word_end(&others, start);
	}
}

/*
 * note_parse
 *		Parse the data of a contender of any client: "len" bytes, or -1 if
 *		there are none.
 */
void
note_parse(Note *note, const char *data, int len)
{
	memset(note, 0, sizeof(*note));
	if (data == NULL || len <= 0)
		return;
	if (note_is_revocation(data, len))
		note->kind = NOTE_REVOCATION;
	else if (note_is_of_instance(data, len))
	{
		note->kind = NOTE_OF_INSTANCE;
		parse_words(note, word_bytes(data, len));
	}
	else
	{
		note->kind = NOTE_OF_ANOTHER;
		if (word_ends_with(word_bytes(data, len), NOTE_RETAIN_MARK))
			note->words = NOTE_RETAIN;
	}
}

/*
 * note_set_contender
 *		Fill in the note of a contender of this instance, for note_write().
 *
 * "pid" is that of the backend that asked for it; "retain" says that it may be
 * retained.  Names that are too long are truncated.
 */
void
note_set_contender(Note *note, const char *host, int port,
				   const char *cluster_name, int pid, bool retain)
{
	memset(note, 0, sizeof(*note));
	note->kind = NOTE_OF_INSTANCE;
	note->words = NOTE_HOST | NOTE_PORT | NOTE_CLUSTER | NOTE_PID;
	if (retain)
		note->words |= NOTE_RETAIN;
	word_set_text(note->host, host);
	note->port = port;
	word_set_text(note->cluster_name, cluster_name);
	note->pid = pid;
}

/* Write the note of an instance; returns the string's length. */
int
note_write(const Note *note, char data[NOTE_SIZE])
{
	Writer		writer = {.data = data,.size = NOTE_SIZE};
	Bytes		rest = {note->others, (int) strlen(note->others)};
	Bytes		word;
	bool		retain = (note->words & NOTE_RETAIN) != 0;
	int			prefix_len = (int) strlen(NOTE_PREFIX);

	/* each word brings its space */
	word_put_text(&writer, NOTE_PREFIX);
	writer.len = prefix_len - 1;
	if (retain)
		writer.size -= (int) strlen(NOTE_RETAIN_MARK);
	word_put_fields(&writer, keys, note, note->words);
	while (word_next(&rest, &word))
	{
		int			start = writer.len;

		word_put_byte(&writer, ' ');
		word_put_encoded(&writer, word, false);
		word_end(&writer, start);
	}
	if (retain)
	{
		writer.size += (int) strlen(NOTE_RETAIN_MARK);
		word_put_text(&writer, NOTE_RETAIN_MARK);
	}
	if (writer.len < prefix_len)
		word_put_byte(&writer, ' ');
	return writer.len;
}

/*
 * note_is_of_instance
 *		Are these the data of a contender of an instance, ours or another?
 *
 * "data" and "len" are as for note_parse(), here and below.
 */
bool
note_is_of_instance(const char *data, int len)
{
	return word_begins_with(word_bytes(data, len), NOTE_PREFIX);
}

/* Do the data of an owner say that it may be retained? */
bool
note_may_be_retained(const char *data, int len)
{
	Note		note;

	note_parse(&note, data, len);
	return (note.words & NOTE_RETAIN) != 0;
}

/* Has another client requested revocation of the lock? */
bool
note_is_revocation(const char *data, int len)
{
	return word_bytes_are(word_bytes(data, len), NOTE_REVOCATION_DATA);
}
