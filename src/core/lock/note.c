/*-------------------------------------------------------------------------
 *
 * note.c
 *		The data of a contender: who it is, and what it tells others.
 *
 * A person finds a note in each of our znodes, and so do other instances, of
 * this version and of others, and other clients.  It is put together and taken
 * apart here only.
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
 *	W1	Written are host, port, instance, pid, the waits, then the words that
 *	we
 *		do not know, then retain=yes: each but waits at most once, and only if
 *		it is set.
 *	W2	A word that would make the note longer than NOTE_SIZE is left out; for
 *		retain=yes there is always room, and for NOTE_MAX_WAITS waits, which do
 *		not count here.
 *	W3	In a value the space, %, and whatever does not print or is no ASCII, are
 *		encoded.  So a note is text in any encoding of a server.
 *
 *	R1	No data, data of no length and a length of -1 are no note.
 *	R2	"__REVOKE__", and not a byte more, is a revocation.  R3	What begins
 *	with "postgresql " is the note of an instance.  Its words come
 *		in any order, with one space or more between them, and count but once.
 *	R4	A word that is not known, comes again, or has a value that its key
 *		cannot have (no number, too long) is kept in "others", from which it is
 *		written again; bytes that do not print are encoded.  It does not count.
 *		What is longer than that has room for is left out, word by word.
 *	R5	A % that two hexadecimal digits do not follow stands for itself.  What
 *		does not print, or is not UTF-8, is read as \xNN, encoded or not, so
 *		that people can be shown what is read.
 *	R6	All else is of another client.  It may be retained if it ends in
 *		" retain=yes", as any client may have it.
 *	R7	The first NOTE_MAX_WAITS waits count, and are not kept in "others".  The
 *		vertex of a wait begins with a slash unless its kind is session; a
 *		permit has permits, and nothing else has; of alternatives there is one
 *		at least.
 *
 * Version 1.0 and later ones understand each other.  A reader of 1.0 takes what
 * begins with "postgresql " for an instance's, and for retained what ends in
 * " retain=yes": by W1 all notes do the one, and those that say so, and no
 * others, the other.  What 1.0 writes has the same words in the same order; a
 * space in its cluster_name makes the rest of the name a word that is not
 * known.  That retain=yes counts anywhere lets a later version put words behind
 * it as soon as there are no readers of 1.0 any more.
 *
 * What semaphores have agreed on, the number of permits, is not a note: it is
 * the data of the directory of their contenders, nobody's own, and compared as
 * a whole; see semaphore.c.
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

/* The same without its space: as a word. */
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

/* How a NoteWaitKind is written. */
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

/* The value of a word waits=; false if it is none. */
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
 * Understand a word, of which "seen" has the keys that came before; false if it
 * is to be kept as it is.
 */
static bool
parse_word(Note *note, Bytes word, unsigned *seen)
{
	unsigned	bit = word_bytes_are(word, retain_word) ? NOTE_RETAIN :
		word_parse_field(word, keys, note, seen);

	note->words |= bit;
	return bit != 0;
}

/* Read the words of an instance's note; returns how many of them are waits. */
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
 *		Read the data of a contender, of any client: "len" bytes, or -1 if there
 *		are none.
 *
 * Its waits are left to note_parse_waits().
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
 *		Read what the holders of a contender wait for; returns how many there
 *		are.
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
 *		Copy the data of a contender, of any client, without the words that tell
 *		what its holders wait for; returns the length.
 *
 * "kept" has room for "len" bytes.  Of a wait that has been cut, too, nothing is
 * left.
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

/*
 * note_wait_kind
 *		What the contender is that somebody waits for.
 */
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
 *		The lock that a contender waits for, or the semaphore:
 *		"<root>/<encoded name>".
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
 *		The directory that tells for whom a contender waits; false if there is
 *		none.
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
 *		The note of a contender of this instance, for note_write().
 *
 * "pid" is that of the backend that asked for it; "retain" says that it may be
 * retained.  Names that are too long are cut.
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

/* "data" has room for NOTE_SIZE bytes, and for the waits. */
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

	/* there is room for them beside the rest */
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
 *		Write the note of an instance, with what the holders of its contender
 *		wait for: a string, whose length is returned.
 *
 * Of more waits than NOTE_MAX_WAITS the first are written.
 */
int
note_write_waits(const Note *note, const NoteWait *waits, int nwaits,
				 char data[NOTE_FULL_SIZE])
{
	return write_words(note, waits, nwaits, data);
}

/*
 * note_write
 *		Write the note of an instance without waits: a string, whose length is
 *		returned.
 */
int
note_write(const Note *note, char data[NOTE_SIZE])
{
	return write_words(note, NULL, 0, data);
}

/*
 * note_write_wait
 *		A wait alone, as it is written behind "waits="; returns its length.
 */
int
note_write_wait(const NoteWait *wait, char text[NOTE_WAIT_SIZE])
{
	Writer		writer = {.data = text,.size = NOTE_WAIT_SIZE};

	put_wait(&writer, wait);
	return writer.len;
}

/*
 * note_parse_wait
 *		Read that again; false if it is no wait.
 */
bool
note_parse_wait(const char *text, int len, NoteWait *wait)
{
	return parse_wait(word_bytes(text, len), wait);
}

/*
 * note_encode
 *		Write a string as the value of a word; returns its length, or -1 if it
 *		is longer than "size", with its terminating zero, has room for.
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
 *		Read that again; false if it is longer than "size" has room for.
 */
bool
note_decode(const char *text, int len, char *value, int size)
{
	return word_parse_text(word_bytes(text, len), value, size);
}

/*
 * note_same_wait
 *		Are these the same wait of the same hold?
 *
 * What is told twice of it may have changed in its details, not in its being.
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

/*
 * note_may_be_retained
 *		Do the data of an owner say that it may not need the lock?
 */
bool
note_may_be_retained(const char *data, int len)
{
	Note		note;

	note_parse(&note, data, len);
	return (note.words & NOTE_RETAIN) != 0;
}

/*
 * note_is_revocation
 *		Has another client written that it wants the lock?
 */
bool
note_is_revocation(const char *data, int len)
{
	return word_bytes_are(word_bytes(data, len), NOTE_REVOCATION_DATA);
}
