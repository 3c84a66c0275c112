/*-------------------------------------------------------------------------
 *
 * text.c
 *		What others have written, to be shown.
 *
 * Whoever reaches ZooKeeper chooses the bytes of data and of names there.  On
 * their way to people all of them pass word_printable(): here, or as words of a
 * note, where they are parsed.  So no such bytes forge a line of the log, drive a
 * terminal, or are invalid in UTF-8.  backend/text.c turns that into the encoding
 * of a database; the worker has none, and writes ASCII.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/text.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/word.h"
#include "shared/text.h"

static char *
printable(const char *bytes, int len, bool ascii)
{
	int			size = len * WORD_ESCAPE_SIZE + 1;
	char	   *text = palloc(size);

	(void) word_printable(word_bytes(bytes, len), ascii, text, size);
	return text;
}

/*
 * text_utf8
 *		Any bytes as printing characters of UTF-8, palloc'd.
 */
char *
text_utf8(const char *bytes, int len)
{
	return printable(bytes, len, false);
}

/*
 * text_ascii
 *		Any bytes as printing characters of ASCII, palloc'd.
 */
char *
text_ascii(const char *bytes, int len)
{
	return printable(bytes, len, true);
}

/*
 * text_for_log
 *		The same of a string, for the worker's messages.
 */
char *
text_for_log(const char *text)
{
	return text_ascii(text, strlen(text));
}
