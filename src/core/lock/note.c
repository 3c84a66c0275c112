/*-------------------------------------------------------------------------
 *
 * note.c
 *		The data of znodes: the grammar of all that zklock writes, and the
 *		notes of contenders and of instances.
 *
 * People and other clients read these notes, and so do other instances, of
 * this version and others.  Only this file writes and parses them.  Every
 * client that may write znodes can write these, too.
 *
 * The grammar: words, how bytes, numbers and values are written and read, and
 * the known keys.
 *
 *	contender	= "postgresql" { " " word } [ " retain=yes" ]
 *	member		= "zklock" { " " word }
 *	edges		= "zklock1 " value LF { line }					(deadlock.c)
 *	line		= "wait" or "keep", { " " value } LF
 *	agreement	= "permits=" number
 *	word		= key "=" value
 *	key			= one or more of a-z and _
 *	value		= any of the printing characters of ASCII but the space; % and
 *				  two hexadecimal digits are another byte
 *
 * Edges have their values in a fixed order, and an agreement is compared as a
 * whole.  For the others:
 *
 *	W1	Words are written in the order of the known keys, each at most once,
 *		and only if it is set.  One that would make the data longer than they
 *		may be is left out.
 *	W2	In a value the space, %, and all that does not print or is not ASCII
 *		is encoded.  So the data are text in any server encoding.
 *	R1	Words are read in any order, separated by one or more spaces.  The
 *		first one with each key counts.
 *	R2	A word that is unknown, or has a value that its key cannot have (no
 *		number, too long), does not count: later versions may add words.
 *	R3	A % that two hexadecimal digits do not follow stands for itself.
 *		Bytes that do not print, or are not UTF-8, are read as \xNN, encoded
 *		or not, so that what is read can be shown.
 *
 * A contender's note tells other instances its owner, and what becomes of it.
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
 * The fleet is the instances of one ensemble and root.  Its znode,
 * <root>/%clusters, is persistent; the creation of that znode is the fleet's
 * identity, as a UUID of version 8: its ctime, and its czxid, which two young
 * ensembles may have in common.  Below it each instance has one ephemeral
 * znode, named "<uuid>-cluster".  No contender's name ends like that, and the
 * name does not reveal the session's ID.
 *
 * Data are not zklock's if they do not begin with "zklock ", if they are
 * longer than MEMBER_SIZE, or if their znode is not ephemeral.
 *
 * The data of members are only shown to people; nothing else depends on them.
 *
 * A member conflicts with others (Member.conflicts) if
 * - its name is empty, or another instance has it: errors, the log and the
 *   deadlock detector tell instances apart by their names.  A primary and its
 *   standbys (the same system identifier, one of the two in recovery) may
 *   share a name, as Patroni's members do;
 * - its node_format or session timeout is not the most common value.  If no
 *   value is more common than all others, all of them conflict.
 *
 * A znode that an earlier session of the same server has left does not count.
 * It goes when that session times out.
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

/* The beginning of a member's data, and the end of its znode's name. */
#define MEMBER_PREFIX		"zklock "
#define NODE_SUFFIX			"-cluster"

/* The type of a word's value in a struct. */
typedef enum WordType
{
	WORD_NUMBER,				/* an int, not negative */
	WORD_LONG,					/* a uint64_t, written in hexadecimal */
	WORD_TEXT					/* a char[WORD_VALUE_SIZE] */
} WordType;

/*
 * A known key.  The keys of a struct are an array, in the order in which they
 * are written; the last entry has no key.
 */
typedef struct WordField
{
	const char *key;			/* with the = */
	unsigned	bit;			/* its bit in a set of keys */
	WordType	type;
	size_t		offset;			/* of its value in the struct */
} WordField;

Bytes
word_bytes(const char *data, int len)
{
	Bytes		bytes = {data, len};

	return bytes;
}

/* Are the bytes this string? */
bool
word_bytes_are(Bytes bytes, const char *text)
{
	return bytes.len == (int) strlen(text) &&
		memcmp(bytes.data, text, bytes.len) == 0;
}

static bool
word_begins_with(Bytes bytes, const char *text)
{
	int			len = (int) strlen(text);

	return bytes.len >= len && memcmp(bytes.data, text, len) == 0;
}

static bool
word_ends_with(Bytes bytes, const char *text)
{
	int			len = (int) strlen(text);

	return bytes.len >= len &&
		memcmp(bytes.data + bytes.len - len, text, len) == 0;
}

/* Take the next word off the rest of a note; false if there is none. */
bool
word_next(Bytes *rest, Bytes *word)
{
	while (rest->len > 0 && *rest->data == ' ')
	{
		rest->data++;
		rest->len--;
	}
	word->data = rest->data;
	word->len = 0;
	while (rest->len > 0 && *rest->data != ' ')
	{
		rest->data++;
		rest->len--;
		word->len++;
	}
	return word->len > 0;
}

void
word_put_byte(Writer *writer, char byte)
{
	if (writer->len + 1 >= writer->size)
		writer->full = true;
	else
		writer->data[writer->len++] = byte;
	writer->data[writer->len] = '\0';
}

void
word_put_text(Writer *writer, const char *text)
{
	while (*text)
		word_put_byte(writer, *text++);
}

/* Write bytes encoded; with "percent", that character is encoded, too. */
void
word_put_encoded(Writer *writer, Bytes bytes, bool percent)
{
	static const char digits[] = "0123456789ABCDEF";

	for (int i = 0; i < bytes.len; i++)
	{
		unsigned char byte = (unsigned char) bytes.data[i];

		if (byte > ' ' && byte < 0x7F && !(percent && byte == '%'))
			word_put_byte(writer, (char) byte);
		else
		{
			word_put_byte(writer, '%');
			word_put_byte(writer, digits[byte >> 4]);
			word_put_byte(writer, digits[byte & 0x0F]);
		}
	}
}

/*
 * End the word that begins at "start": if part of it did not fit, it
 * is removed.
 */
static void
word_end(Writer *writer, int start)
{
	if (writer->full)
	{
		writer->len = start;
		writer->data[start] = '\0';
		writer->full = false;
	}
}

/* The same in either case. */
static int
digit_value(char digit)
{
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return znode_hex_digit(digit);
}

/*
 * The length of the first character, if it prints.  0: it is not UTF-8, or it
 * is a control or format character.
 */
static int
printing_len(Bytes bytes)
{
	const unsigned char *byte = (const unsigned char *) bytes.data;
	uint32_t	c = byte[0];
	int			len = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 :
		c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;

	if (len <= 1)
		return len == 1 && c >= ' ' && c != 0x7F;
	if (len > bytes.len)
		return 0;
	c &= 0xFFU >> (len + 1);
	for (int i = 1; i < len; i++)
	{
		if ((byte[i] & 0xC0) != 0x80)
			return 0;
		c = c << 6 | (byte[i] & 0x3F);
	}
	if ((len == 3 && c < 0x800) || (len == 4 && c < 0x10000) || c > 0x10FFFF ||
		(c >= 0xD800 && c <= 0xDFFF))
		return 0;

	/* C1; marks that are invisible, end a line, or change the direction */
	if (c < 0xA0 || (c >= 0x200B && c <= 0x200F) ||
		(c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
		c == 0xFEFF)
		return 0;
	return len;
}

/* Write the first character so that it prints; returns its length in bytes. */
static int
put_printable(Writer *writer, Bytes bytes, bool ascii)
{
	static const char digits[] = "0123456789abcdef";
	int			len = printing_len(bytes);
	int			start = writer->len;

	if (len == 1 || (len > 1 && !ascii))
		for (int i = 0; i < len; i++)
			word_put_byte(writer, bytes.data[i]);
	else
	{
		unsigned char byte = (unsigned char) bytes.data[0];

		len = 1;
		word_put_text(writer, "\\x");
		word_put_byte(writer, digits[byte >> 4]);
		word_put_byte(writer, digits[byte & 0x0F]);
	}
	if (writer->full)
	{
		writer->len = start;
		writer->data[start] = '\0';
	}
	return len;
}

/*
 * word_printable
 *		Turn any bytes into printing characters of UTF-8 or ASCII; all other
 *		bytes become \xNN.  Returns the string's length.
 *
 * What does not fit into "size", with the terminating zero, is left out.
 */
int
word_printable(Bytes bytes, bool ascii, char *text, int size)
{
	Writer		writer = {.data = text,.size = size};

	text[0] = '\0';
	while (bytes.len > 0 && !writer.full)
	{
		int			len = put_printable(&writer, bytes, ascii);

		bytes = word_bytes(bytes.data + len, bytes.len - len);
	}
	return writer.len;
}

/* Decode the next byte of a value. */
static char
take_decoded(Bytes *value)
{
	const char *data = value->data;
	int			len = 1;
	char		byte = data[0];

	if (byte == '%' && value->len > 2 && digit_value(data[1]) >= 0 &&
		digit_value(data[2]) >= 0)
	{
		byte = (char) (digit_value(data[1]) * 16 + digit_value(data[2]));
		len = 3;
	}
	*value = word_bytes(data + len, value->len - len);
	return byte;
}

/*
 * word_decode
 *		Decode a value to a string of the bytes that were encoded; false if it
 *		is too long, or has a zero byte.
 */
bool
word_decode(Bytes bytes, char *text, int size)
{
	Writer		writer = {.data = text,.size = size};
	bool		zero = false;

	text[0] = '\0';
	while (bytes.len > 0 && !writer.full && !zero)
	{
		char		byte = take_decoded(&bytes);

		zero = byte == '\0';
		word_put_byte(&writer, byte);
	}
	return !writer.full && !zero;
}

/* Decode a value as word_printable() does; false if it is too long. */
bool
word_parse_text(Bytes bytes, char *text, int size)
{
	Writer		writer = {.data = text,.size = size};

	text[0] = '\0';
	while (bytes.len > 0 && !writer.full)
	{
		char		character[4];
		Bytes		rest = bytes;
		int			n = 0;
		int			taken;

		do
			character[n++] = take_decoded(&rest);
		while ((character[0] & 0x80) && n < (int) sizeof(character) &&
			   rest.len > 0);
		taken = put_printable(&writer, word_bytes(character, n), false);
		while (taken-- > 0)
			(void) take_decoded(&bytes);
	}
	if (writer.full)
		text[0] = '\0';
	return !writer.full;
}

/* Read a number without sign or leading zeros. */
bool
word_parse_unsigned(Bytes bytes, unsigned base, uint64_t max, uint64_t *number)
{
	uint64_t	value = 0;

	if (bytes.len == 0 || (bytes.len > 1 && bytes.data[0] == '0'))
		return false;
	for (int i = 0; i < bytes.len; i++)
	{
		int			digit = digit_value(bytes.data[i]);

		if (digit < 0 || (unsigned) digit >= base ||
			value > (max - (unsigned) digit) / base)
			return false;
		value = value * base + (unsigned) digit;
	}
	*number = value;
	return true;
}

/* Read an int that is not negative. */
bool
word_parse_number(Bytes bytes, int *number)
{
	uint64_t	value;

	if (!word_parse_unsigned(bytes, 10, INT_MAX, &value))
		return false;
	*number = (int) value;
	return true;
}

/* Set a value of type WORD_TEXT, truncating it if necessary. */
void
word_set_text(char text[WORD_VALUE_SIZE], const char *from)
{
	(void) snprintf(text, WORD_VALUE_SIZE, "%s", from);
}

/* Write a space, the key, and the value. */
static void
put_field(Writer *writer, const WordField *field, const void *value)
{
	int			start = writer->len;
	char		number[24];

	word_put_byte(writer, ' ');
	word_put_text(writer, field->key);
	switch (field->type)
	{
		case WORD_NUMBER:
			(void) snprintf(number, sizeof(number), "%d", *(const int *) value);
			word_put_text(writer, number);
			break;
		case WORD_LONG:
			(void) snprintf(number, sizeof(number), "%" PRIx64,
							*(const uint64_t *) value);
			word_put_text(writer, number);
			break;
		case WORD_TEXT:
			word_put_encoded(writer, word_bytes(value, (int) strlen(value)),
							 true);
			break;
	}
	word_end(writer, start);
}

/*
 * Write a word, with a space before it, for each key in "set" whose
 * value, from the struct "from", fits.
 */
static void
word_put_fields(Writer *writer, const WordField *fields, const void *from,
				unsigned set)
{
	for (; fields->key != NULL; fields++)
		if (set & fields->bit)
			put_field(writer, fields, (const char *) from + fields->offset);
}

static bool
parse_value(Bytes bytes, WordType type, void *value)
{
	switch (type)
	{
		case WORD_NUMBER:
			return word_parse_number(bytes, value);
		case WORD_LONG:
			return word_parse_unsigned(bytes, 16, UINT64_MAX, value);
		case WORD_TEXT:
			return word_parse_text(bytes, value, WORD_VALUE_SIZE);
	}
	return false;
}

/*
 * Read a word into the struct "into"; returns the bit of its key.
 *
 * Returns 0 if the key is unknown or repeated, or cannot have that value.
 * "seen" is the set of keys read so far, whatever their values.
 */
static unsigned
word_parse_field(Bytes word, const WordField *fields, void *into,
				 unsigned *seen)
{
	for (; fields->key != NULL; fields++)
	{
		int			len = (int) strlen(fields->key);

		if (!word_begins_with(word, fields->key))
			continue;
		if (*seen & fields->bit)
			return 0;
		*seen |= fields->bit;
		return parse_value(word_bytes(word.data + len, word.len - len),
						   fields->type, (char *) into + fields->offset) ?
			fields->bit : 0;
	}
	return 0;
}

/* The same as a word, without its space. */
static const char *const retain_word = &NOTE_RETAIN_MARK[1];

/* In the order in which they are written. */
static const WordField note_keys[] = {
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
		word_parse_field(word, note_keys, note, seen);

	note->words |= bit;
	return bit != 0;
}

/* Write a word of "others" as it is, with a space before it. */
static void
put_other(Writer *writer, Bytes word)
{
	int			start = writer->len;

	if (start > 0)
		word_put_byte(writer, ' ');
	word_put_encoded(writer, word, false);
	word_end(writer, start);
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
		if (!parse_word(note, word, &seen))
			put_other(&others, word);
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
	else if (word_begins_with(word_bytes(data, len), NOTE_PREFIX))
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
	word_put_fields(&writer, note_keys, note, note->words);
	while (word_next(&rest, &word))
		put_other(&writer, word);
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
 * Do the data of an owner say that it may be retained?  "data" and "len" are as
 * for note_parse(), here and below.
 */
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

/* The data of a semaphore whose users have agreed on this number. */
void
note_write_permits(char data[NOTE_PERMITS_SIZE], int permits)
{
	(void) snprintf(data, NOTE_PERMITS_SIZE, "permits=%d", permits);
}

/* The number that these data of a semaphore are, or 0: none. */
int
note_permits(const char *data, int len)
{
	static const WordField keys[] = {
		{"permits=", 1, WORD_NUMBER, 0}, {.key = NULL}
	};
	int			permits = 0;
	unsigned	seen = 0;

	(void) word_parse_field(word_bytes(data, len), keys, &permits, &seen);
	return permits;
}

/* In the order in which they are written. */
static const WordField member_keys[] = {
	{"host=", MEMBER_HOST, WORD_TEXT, offsetof(Member, host)},
	{"port=", MEMBER_PORT, WORD_NUMBER, offsetof(Member, port)},
	{"cluster=", MEMBER_CLUSTER, WORD_TEXT, offsetof(Member, cluster_name)},
	{"system=", MEMBER_SYSTEM, WORD_LONG, offsetof(Member, system)},
	{"place=", MEMBER_PLACE, WORD_LONG, offsetof(Member, place)},
	{"version=", MEMBER_VERSION, WORD_TEXT, offsetof(Member, version)},
	{"server=", MEMBER_SERVER, WORD_TEXT, offsetof(Member, server)},
	{"format=", MEMBER_FORMAT, WORD_TEXT, offsetof(Member, format)},
	{"timeout=", MEMBER_TIMEOUT, WORD_NUMBER, offsetof(Member, timeout)},
	{"standby=", MEMBER_STANDBY, WORD_NUMBER, offsetof(Member, standby)},
	{"id=", MEMBER_ID, WORD_TEXT, offsetof(Member, id)},
	{.key = NULL}
};

/* The name of an instance's znode. */
void
member_node(const uint8_t uuid[ZNODE_UUID_BYTES],
			char node[MEMBER_NODE_SIZE])
{
	znode_write_uuid(uuid, node);
	strcat(node, NODE_SUFFIX);
}

/* Is this the name of such a znode? */
bool
member_is_node(const char *node)
{
	uint8_t		uuid[ZNODE_UUID_BYTES];

	return znode_read_uuid(node, uuid) &&
		strcmp(node + ZNODE_UUID_SIZE - 1, NODE_SUFFIX) == 0;
}

/* Write the data of an instance's znode; returns the string's length. */
int
member_write(const Member *member, char data[MEMBER_SIZE])
{
	Writer		writer = {.data = data,.size = MEMBER_SIZE};

	/* each word brings its space */
	word_put_text(&writer, MEMBER_PREFIX);
	writer.len--;
	word_put_fields(&writer, member_keys, member, member->words);
	data[writer.len] = '\0';
	return writer.len;
}

/*
 * member_parse
 *		Read the data of a znode below %clusters, whichever client wrote it:
 *		"len" bytes, or -1 if we may not read them.
 */
void
member_parse(Member *member, const char *data, int len)
{
	Bytes		rest;
	Bytes		word;
	unsigned	seen = 0;

	memset(member, 0, sizeof(*member));
	member->kind = len < 0 ? MEMBER_UNREAD : MEMBER_STRANGE;
	rest = word_bytes(data, len);
	if (len <= 0 || !word_begins_with(rest, MEMBER_PREFIX))
		return;
	member->kind = MEMBER_READ;
	(void) word_next(&rest, &word);
	while (word_next(&rest, &word))
		member->words |= word_parse_field(word, member_keys, member, &seen);
}

/* Are these two sessions of one server, as far as their data show? */
static bool
same_server(const Member *a, const Member *b)
{
	const unsigned needed = MEMBER_SYSTEM | MEMBER_PLACE;

	return (a->words & b->words & needed) == needed &&
		a->system == b->system && a->place == b->place;
}

/* Does a later session of the same server have a znode, too? */
static bool
is_left_over(const Member *members, int n, int i)
{
	for (int j = 0; j < n; j++)
		if (j != i && same_server(&members[i], &members[j]) &&
			(members[j].since > members[i].since ||
			 (members[j].since == members[i].since && j > i)))
			return true;
	return false;
}

static bool
is_standby(const Member *member)
{
	return (member->words & MEMBER_STANDBY) && member->standby;
}

/* May two instances share a name, as a primary and its standbys do? */
static bool
may_share_name(const Member *a, const Member *b)
{
	return (a->words & b->words & MEMBER_SYSTEM) && a->system == b->system &&
		(is_standby(a) || is_standby(b));
}

static bool
has_no_name(const Member *member)
{
	return !(member->words & MEMBER_CLUSTER) ||
		member->cluster_name[0] == '\0';
}

static bool
has_same_name(const Member *members, int n, int i)
{
	for (int j = 0; j < n; j++)
		if (j != i && !members[j].left_over && !has_no_name(&members[j]) &&
			strcmp(members[i].cluster_name, members[j].cluster_name) == 0 &&
			!may_share_name(&members[i], &members[j]))
			return true;
	return false;
}

/* Does the member count, and have this word? */
static bool
has(const Member *member, unsigned word)
{
	return !member->left_over && (member->words & word) != 0;
}

static bool
has_same(const Member *a, const Member *b, unsigned word)
{
	return word == MEMBER_FORMAT ? strcmp(a->format, b->format) == 0 :
		a->timeout == b->timeout;
}

/* Mark each member whose value is not more common than every other value. */
static void
judge_value(Member *members, int n, unsigned word, unsigned conflict)
{
	for (int i = 0; i < n; i++)
	{
		members[i].same = 0;
		for (int j = 0; j < n; j++)
			members[i].same += has(&members[j], word) &&
				has_same(&members[i], &members[j], word);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (has(&members[i], word) && has(&members[j], word) &&
				!has_same(&members[i], &members[j], word) &&
				members[j].same >= members[i].same)
				members[i].conflicts |= conflict;
}

/*
 * member_judge
 *		Find out what conflicts among all members.
 *
 * Takes time in the square of their number.
 */
void
member_judge(Member *members, int n)
{
	for (int i = 0; i < n; i++)
		members[i].left_over = is_left_over(members, n, i);
	for (int i = 0; i < n; i++)
	{
		Member	   *member = &members[i];

		member->conflicts = 0;
		if (member->kind == MEMBER_UNREAD)
			member->conflicts = MEMBER_IS_UNREAD;
		else if (member->kind == MEMBER_STRANGE)
			member->conflicts = MEMBER_IS_STRANGE;
		else if (member->left_over)
			continue;
		else if (has_no_name(member))
			member->conflicts = MEMBER_NO_NAME;
		else if (has_same_name(members, n, i))
			member->conflicts = MEMBER_SAME_NAME;
	}
	judge_value(members, n, MEMBER_FORMAT, MEMBER_OTHER_FORMAT);
	judge_value(members, n, MEMBER_TIMEOUT, MEMBER_OTHER_TIMEOUT);
}

/* The text shown for one bit of Member.conflicts. */
const char *
member_conflict_text(int bit)
{
	switch (bit)
	{
		case MEMBER_SAME_NAME:
			return "another instance has this cluster_name";
		case MEMBER_NO_NAME:
			return "cluster_name is empty";
		case MEMBER_OTHER_FORMAT:
			return "zklock.node_format differs";
		case MEMBER_OTHER_TIMEOUT:
			return "session timeout differs";
		case MEMBER_IS_UNREAD:
			return "this server may not read it";
		case MEMBER_IS_STRANGE:
			return "not written by zklock";
	}
	return "unknown";
}

/* The identity of the fleet whose %clusters was created like this. */
void
member_fleet(int64_t czxid, int64_t ctime, char fleet[MEMBER_FLEET_SIZE])
{
	uint8_t		uuid[ZNODE_UUID_BYTES] = {0};

	for (int i = 0; i < 6; i++)
		uuid[i] = (uint8_t) (ctime >> (8 * (5 - i)));
	for (int i = 0; i < 8; i++)
		uuid[8 + i] = (uint8_t) (czxid >> (8 * (7 - i)));
	znode_make_uuid(uuid);
	znode_write_uuid(uuid, fleet);
}

/*
 * member_mark
 *		Note the stat of our znode: "written", of an acknowledged write, which
 *		was sent after the previous write had been answered; or behind one
 *		whose answer is lost.
 *
 * Returns false if that proves that ZooKeeper has lost the write noted before,
 * because it was restored from an older copy.  A server that lags proves
 * nothing, but it acknowledges no write before it has caught up.  A restored
 * ensemble may begin an epoch with a higher zxid; then the version of the data
 * is too low, or the znode is a new one, since the copy had none.  The version
 * counts all writes, including those of other clients, and starts again after
 * the highest number.  Nobody but its instance has reason to remove a znode;
 * a removal by somebody else ends the session as well.
 */
bool
member_mark(MemberMark *mark, int64_t zxid, int64_t czxid, int32_t version,
			bool written)
{
	bool		later = zxid > mark->zxid;

	if (!written && zxid == mark->zxid)
		return true;
	if (czxid != mark->czxid)
		later = later && mark->czxid == 0;
	else if ((int32_t) ((uint32_t) version - (uint32_t) mark->version) <= 0)
		later = false;
	mark->zxid = zxid;
	mark->czxid = czxid;
	mark->version = version;
	return later;
}
