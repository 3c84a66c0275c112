/*-------------------------------------------------------------------------
 *
 * word.c
 *		The grammar of all data that zklock writes into znodes: words, how
 *		bytes, numbers and values are written and read, and the known keys.
 *
 *	contender	= "postgresql" { " " word } [ " retain=yes" ]	(lock/note.c)
 *	member		= "zklock" { " " word }							(note.c)
 *	edges		= "zklock1 " value LF { line }					(deadlock.c)
 *	line		= "wait" or "keep", { " " value } LF
 *	agreement	= "permits=" number								(lock/permit.c)
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
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/word.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/word.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

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

bool
word_begins_with(Bytes bytes, const char *text)
{
	int			len = (int) strlen(text);

	return bytes.len >= len && memcmp(bytes.data, text, len) == 0;
}

bool
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
 * word_end
 *		End the word that begins at "start": if part of it did not fit, it
 *		is removed.
 */
void
word_end(Writer *writer, int start)
{
	if (writer->full)
	{
		writer->len = start;
		writer->data[start] = '\0';
		writer->full = false;
	}
}

/* The value of a hexadecimal digit in lower case; -1: it is none. */
int
word_hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return -1;
}

/* The same in either case. */
static int
digit_value(char digit)
{
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return word_hex_digit(digit);
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
 * word_put_fields
 *		Write a word, with a space before it, for each key in "set" whose
 *		value, from the struct "from", fits.
 */
void
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
 * word_parse_field
 *		Read a word into the struct "into"; returns the bit of its key.
 *
 * Returns 0 if the key is unknown or repeated, or cannot have that value.
 * "seen" is the set of keys read so far, whatever their values.
 */
unsigned
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
