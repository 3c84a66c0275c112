/*-------------------------------------------------------------------------
 *
 * word.h
 *		The words of a note: bytes, numbers and values as they are written.
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
#include <stdint.h>

/* Some bytes of a note, not terminated. */
typedef struct Bytes
{
	const char *data;
	int			len;
} Bytes;

/* A string that is being written; what does not fit is left out. */
typedef struct Writer
{
	char	   *data;
	int			len;
	int			size;			/* with the terminating zero */
	bool		full;			/* something did not fit */
} Writer;

extern Bytes word_bytes(const char *data, int len);
extern bool word_bytes_are(Bytes bytes, const char *text);
extern bool word_begins_with(Bytes bytes, const char *text);
extern bool word_ends_with(Bytes bytes, const char *text);
extern bool word_next(Bytes *rest, Bytes *word);
extern void word_put_byte(Writer *writer, char byte);
extern void word_put_text(Writer *writer, const char *text);
extern void word_put_encoded(Writer *writer, Bytes bytes, bool percent);
extern void word_end(Writer *writer, int start);
extern bool word_parse_text(Bytes bytes, char *text, int size);
extern bool word_parse_unsigned(Bytes bytes, unsigned base, uint64_t max,
								uint64_t *number);
extern bool word_parse_number(Bytes bytes, int *number);
extern bool word_parse_time(Bytes bytes, int64_t *time);
extern Bytes word_next_field(Bytes *rest);

#endif							/* ZKLOCK_WORD_H */
