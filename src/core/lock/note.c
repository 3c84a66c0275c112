/*-------------------------------------------------------------------------
 *
 * note.c
 *		The data of a contender: its owner, and what it tells other
 *		instances.
 *
 * People and other clients read these notes, and so do other instances, of
 * this version and others.  Only this file writes and parses them.
 *
 *	note	= "postgresql" { " " word } [ " retain=yes" ]
 *	word	= key "=" value | "waits=" wait
 *	key		= one or more of a-z and _
 *	value	= any of the printing characters of ASCII but the space; % and two
 *			  hexadecimal digits are another byte
 *	wait	= hold "," wait "," began "," chain "," kind "," permits ","
 *			  alternatives "," vertex, as in NoteWait; hold and wait are a pid
 *			  "," a time; chain is hexadecimal, a vertex a value; kind is
 *			  exclusive, shared, permit or session
 *
 *	W1	The order is: host, port, instance, pid, the waits, the unknown words,
 *		retain=yes.  Each but waits is written at most once, and only if it
 *		is set.
 *	W2	A word that would make the note longer than NOTE_SIZE is left out.
 *		There is always room for retain=yes and for NOTE_MAX_WAITS waits,
 *		whose length does not count here.
 *	W3	In a value the space, %, and all that does not print or is not ASCII
 *		is encoded.  So a note is text in any server encoding.
 *
 *	R1	No data, empty data, or a length of -1 are no note.
 *	R2	Exactly "__REVOKE__" is a revocation.
 *	R3	What begins with "postgresql " is the note of an instance.  Its words
 *		are in any order, separated by one or more spaces, and each counts
 *		only once.
 *	R4	A word that is unknown or repeated, or has a value that its key cannot
 *		have (no number, too long), does not count, but is kept in "others",
 *		from which it is written again; bytes that do not print are encoded.
 *		Words for which "others" has no room are left out.
 *	R5	A % that two hexadecimal digits do not follow stands for itself.
 *		Bytes that do not print, or are not UTF-8, are read as \xNN, encoded
 *		or not, so that what is read can be shown.
 *	R6	Any other data are another client's.  It may be retained if they end
 *		in " retain=yes", which any client may write.
 *	R7	The first NOTE_MAX_WAITS waits count, and are not kept in "others".
 *		The vertex of a wait begins with a slash unless the kind is session;
 *		only a permit has permits; there is at least one alternative.
 *
 * A reader that knows no word takes what begins with "postgresql " for an
 * instance's note, and what ends in " retain=yes" for retained; by W1 both
 * hold.
 *
 * The number of permits that the users of a semaphore have agreed on is not a
 * note.  It is the data of their contenders' directory, and is compared as a
 * whole; see semaphore.c.
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

static const char *const waits_key = "waits=";

/* NoteWaitKind as written. */
static const char *const kinds[] = {"exclusive", "shared", "permit", "session"};

#define NKINDS	((int) (sizeof(kinds) / sizeof(kinds[0])))

static bool
parse_kind(Bytes bytes, NoteWaitKind *kind)
{
	for (int i = 0; i < NKINDS; i++)
		if (word_bytes_are(bytes, kinds[i]))
		{
			*kind = (NoteWaitKind) i;
			return true;
		}
	return false;
}

/* Parse the value of waits=; false if it is not valid. */
static bool
parse_wait(Bytes rest, NoteWait *wait)
{
	bool		slash;

	if (!word_parse_number(word_next_field(&rest), &wait->hold.pid) ||
		!word_parse_time(word_next_field(&rest), &wait->hold.since) ||
		!word_parse_number(word_next_field(&rest), &wait->wait.pid) ||
		!word_parse_time(word_next_field(&rest), &wait->wait.since) ||
		!word_parse_time(word_next_field(&rest), &wait->began) ||
		!word_parse_unsigned(word_next_field(&rest), 16, UINT64_MAX,
							 &wait->chain) ||
		!parse_kind(word_next_field(&rest), &wait->kind) ||
		!word_parse_number(word_next_field(&rest), &wait->permits) ||
		!word_parse_number(word_next_field(&rest), &wait->alternatives) ||
		!word_parse_text(rest, wait->to, NOTE_VERTEX_SIZE))
		return false;
	slash = wait->to[0] == '/';
	return wait->to[0] != '\0' && slash == (wait->kind != NOTE_WAIT_SESSION) &&
		wait->alternatives > 0 &&
		(wait->permits > 0) == (wait->kind == NOTE_WAIT_PERMIT);
}

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

/* Parse the words of an instance's note; returns the number of waits. */
static int
parse_words(Note *note, Bytes rest, NoteWait waits[NOTE_MAX_WAITS])
{
	int			waits_len = (int) strlen(waits_key);
	int			nwaits = 0;
	Bytes		word;
	Writer		others = {.data = note->others,.size = NOTE_SIZE};
	unsigned	seen = 0;

	(void) word_next(&rest, &word);
	while (word_next(&rest, &word))
	{
		int			start = others.len;
		NoteWait	wait;

		if (parse_word(note, word, &seen))
			continue;
		if (nwaits < NOTE_MAX_WAITS && word_begins_with(word, waits_key) &&
			parse_wait(word_bytes(word.data + waits_len, word.len - waits_len),
					   waits != NULL ? &waits[nwaits] : &wait))
		{
			nwaits++;
			continue;
		}
		if (start > 0)
			word_put_byte(&others, ' ');
		word_put_encoded(&others, word, false);
		word_end(&others, start);
	}
	return nwaits;
}

/*
 * note_parse
 *		Parse the data of a contender of any client: "len" bytes, or -1 if
 *		there are none.
 *
 * The waits are left to note_parse_waits().
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
		(void) parse_words(note, word_bytes(data, len), NULL);
	}
	else
	{
		note->kind = NOTE_OF_ANOTHER;
		if (word_ends_with(word_bytes(data, len), NOTE_RETAIN_MARK))
			note->words = NOTE_RETAIN;
	}
}

/*
 * note_parse_waits
 *		Parse what the holders of a contender wait for; returns the number
 *		of waits.
 *
 * "data" and "len" are as for note_parse().
 */
int
note_parse_waits(const char *data, int len, NoteWait waits[NOTE_MAX_WAITS])
{
	Note		note;

	memset(&note, 0, sizeof(note));
	if (data == NULL || len <= 0 || !note_is_of_instance(data, len))
		return 0;
	return parse_words(&note, word_bytes(data, len), waits);
}

/*
 * note_leave_out_waits
 *		Copy the data of a contender of any client without its waits;
 *		returns the length.
 *
 * "kept" has room for "len" bytes.  A truncated wait is left out, too.
 */
int
note_leave_out_waits(const char *data, int len, char *kept)
{
	int			waits_len = (int) strlen(waits_key);
	bool		ours = note_is_of_instance(data, len);
	int			nkept = 0;

	for (int i = 0; i < len;)
	{
		if (ours && len - i > waits_len && data[i] == ' ' &&
			memcmp(data + i + 1, waits_key, waits_len) == 0)
			for (i++; i < len && data[i] != ' '; i++)
				;
		else
			kept[nkept++] = data[i++];
	}
	return nkept;
}

/* The kind of the contender that is waited for. */
ZnodeKind
note_wait_kind(const NoteWait *wait)
{
	return wait->kind == NOTE_WAIT_SHARED ? ZNODE_READER :
		wait->kind == NOTE_WAIT_PERMIT ? ZNODE_PERMIT : ZNODE_MUTEX;
}

/* Cut the last component off a path; false if nothing is left. */
static bool
cut_last(char path[NOTE_VERTEX_SIZE])
{
	char	   *slash = strrchr(path, '/');

	if (slash == NULL || slash == path)
		return false;
	*slash = '\0';
	return true;
}

/*
 * note_lock_of
 *		The lock or semaphore that a contender waits for: "<root>/<encoded
 *		name>".
 */
void
note_lock_of(const NoteWait *wait, char lock[NOTE_VERTEX_SIZE])
{
	strcpy(lock, wait->to);
	if (wait->kind == NOTE_WAIT_SESSION)
		return;
	(void) cut_last(lock);
	if (wait->kind == NOTE_WAIT_PERMIT)
		(void) cut_last(lock);
}

/*
 * note_queue_of
 *		The directory that shows what a contender waits for; false if there
 *		is none.
 */
bool
note_queue_of(const NoteWait *wait, char directory[NOTE_VERTEX_SIZE])
{
	strcpy(directory, wait->to);
	if (wait->kind == NOTE_WAIT_SESSION || !cut_last(directory))
		return false;
	if (wait->kind != NOTE_WAIT_PERMIT)
		return true;
	if (!cut_last(directory) ||
		strlen(directory) + sizeof("/" ZNODE_PERMITS_DIR) > NOTE_VERTEX_SIZE)
		return false;
	strcat(directory, "/" ZNODE_PERMITS_DIR);
	return true;
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

static void
put_wait(Writer *writer, const NoteWait *wait)
{
	char		numbers[160];

	(void) snprintf(numbers, sizeof(numbers),
					"%d,%" PRId64 ",%d,%" PRId64 ",%" PRId64 ",%" PRIX64
					",%s,%d,%d,",
					wait->hold.pid, wait->hold.since,
					wait->wait.pid, wait->wait.since, wait->began,
					wait->chain, kinds[wait->kind], wait->permits,
					wait->alternatives);
	word_put_text(writer, numbers);
	word_put_encoded(writer, word_bytes(wait->to, (int) strlen(wait->to)),
					 true);
}

/* "data" has room for NOTE_SIZE bytes and the waits. */
static int
write_words(const Note *note, const NoteWait *waits, int nwaits, char *data)
{
	Writer		writer = {.data = data,.size = NOTE_SIZE};
	Bytes		rest = {note->others, (int) strlen(note->others)};
	Bytes		word;
	bool		retain = (note->words & NOTE_RETAIN) != 0;
	int			prefix_len = (int) strlen(NOTE_PREFIX);
	int			start;

	/* each word brings its space */
	word_put_text(&writer, NOTE_PREFIX);
	writer.len = prefix_len - 1;
	if (retain)
		writer.size -= (int) strlen(NOTE_RETAIN_MARK);
	word_put_fields(&writer, keys, note, note->words);

	start = writer.len;
	for (int i = 0; i < nwaits && i < NOTE_MAX_WAITS; i++)
	{
		writer.size += NOTE_WAIT_SIZE;
		word_put_byte(&writer, ' ');
		word_put_text(&writer, waits_key);
		put_wait(&writer, &waits[i]);
	}
	if (nwaits > 0)
		writer.size = NOTE_SIZE + writer.len - start -
			(retain ? (int) strlen(NOTE_RETAIN_MARK) : 0);

	while (word_next(&rest, &word))
	{
		start = writer.len;
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
 * note_write_waits
 *		Write the note of an instance with the waits of its contender's
 *		holders; returns the string's length.
 *
 * Only the first NOTE_MAX_WAITS waits are written.
 */
int
note_write_waits(const Note *note, const NoteWait *waits, int nwaits,
				 char data[NOTE_FULL_SIZE])
{
	return write_words(note, waits, nwaits, data);
}

/* Write the note of an instance without waits; returns the string's length. */
int
note_write(const Note *note, char data[NOTE_SIZE])
{
	return write_words(note, NULL, 0, data);
}

/* Write a wait as in "waits="; returns its length. */
int
note_write_wait(const NoteWait *wait, char text[NOTE_WAIT_SIZE])
{
	Writer		writer = {.data = text,.size = NOTE_WAIT_SIZE};

	put_wait(&writer, wait);
	return writer.len;
}

/* Parse what note_write_wait() has written; false if it is not valid. */
bool
note_parse_wait(const char *text, int len, NoteWait *wait)
{
	return parse_wait(word_bytes(text, len), wait);
}

/*
 * note_encode
 *		Encode a string as the value of a word; returns its length, or -1 if
 *		it does not fit into "size" with its terminating zero.
 */
int
note_encode(const char *value, char *text, int size)
{
	Writer		writer = {.data = text,.size = size};

	text[0] = '\0';
	word_put_encoded(&writer, word_bytes(value, (int) strlen(value)), true);
	return writer.full ? -1 : writer.len;
}

/*
 * note_decode
 *		Decode what note_encode() has written; false if it does not fit into
 *		"size", or is no string.
 *
 * The bytes are those that were written: they may not print.
 */
bool
note_decode(const char *text, int len, char *value, int size)
{
	return word_decode(word_bytes(text, len), value, size);
}

/*
 * note_same_wait
 *		Are these the same wait of the same hold?
 *
 * Details of a wait may change from note to note; its identity does not.
 */
bool
note_same_wait(const NoteWait *a, const NoteWait *b)
{
	if (ZK_MUTATED(ZK_DEADLOCK_ANY_GENERATION))
		return strcmp(a->to, b->to) == 0;
	return a->hold.pid == b->hold.pid && a->hold.since == b->hold.since &&
		a->wait.pid == b->wait.pid && a->wait.since == b->wait.since &&
		a->chain == b->chain && strcmp(a->to, b->to) == 0;
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
