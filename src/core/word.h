/*-------------------------------------------------------------------------
 *
 * word.h
 *		The grammar of all data that zklock writes into znodes: words, how
 *		bytes, numbers and values are written and read, and the known keys.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/word.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORD_H
#define ZKLOCK_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The size of a decoded value, with its terminating zero. */
#define WORD_VALUE_SIZE 128

/* The size that one byte of another client may become: \xNN. */
#define WORD_ESCAPE_SIZE 4

/* Some bytes of a note, not terminated. */
typedef struct Bytes
{
	const char *data;
	int			len;
} Bytes;

/* A string being written; what does not fit is left out. */
typedef struct Writer
{
	char	   *data;
	int			len;
	int			size;			/* with the terminating zero */
	bool		full;			/* something did not fit */
} Writer;

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

extern Bytes word_bytes(const char *data, int len);
extern bool word_bytes_are(Bytes bytes, const char *text);
extern bool word_begins_with(Bytes bytes, const char *text);
extern bool word_ends_with(Bytes bytes, const char *text);
extern bool word_next(Bytes *rest, Bytes *word);
extern void word_put_byte(Writer *writer, char byte);
extern void word_put_text(Writer *writer, const char *text);
extern void word_put_encoded(Writer *writer, Bytes bytes, bool percent);
extern void word_end(Writer *writer, int start);
extern int	word_printable(Bytes bytes, bool ascii, char *text, int size);
extern bool word_decode(Bytes bytes, char *text, int size);
extern bool word_parse_text(Bytes bytes, char *text, int size);
extern bool word_parse_unsigned(Bytes bytes, unsigned base, uint64_t max,
								uint64_t *number);
extern int	word_hex_digit(char digit);
extern bool word_parse_number(Bytes bytes, int *number);
extern void word_set_text(char text[WORD_VALUE_SIZE], const char *from);
extern void word_put_fields(Writer *writer, const WordField *fields,
							const void *from, unsigned set);
extern unsigned word_parse_field(Bytes word, const WordField *fields,
								 void *into, unsigned *seen);

#endif							/* ZKLOCK_WORD_H */
