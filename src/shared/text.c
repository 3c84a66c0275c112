/*-------------------------------------------------------------------------
 *
 * text.c
 *		Text that other clients have written, made fit to be shown.
 *
 * Any client of ZooKeeper chooses the bytes of its data and names.  Before
 * people see them, all of them pass word_printable(): here, or as words of a
 * note when it is parsed.  So no such bytes can forge a line of the log, drive
 * a terminal, or be invalid UTF-8.  Backends show them in the encoding of
 * their database; the worker has none, and writes ASCII.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/text.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "core/lock/note.h"
#include "mb/pg_wchar.h"
#include "shared/text.h"

/* Make any bytes printing characters of UTF-8, or of ASCII, palloc'd. */
static char *
printable(const char *bytes, int len, bool ascii)
{
	int			size = len * WORD_ESCAPE_SIZE + 1;
	char	   *text = palloc(size);

	(void) word_printable(word_bytes(bytes, len), ascii, text, size);
	return text;
}

/*
 * text_for_log
 *		A string in printing characters of ASCII, palloc'd: for the worker's
 *		messages.
 */
char *
text_for_log(const char *text)
{
	return printable(text, strlen(text), true);
}

/*
 * text_of_utf8
 *		Convert UTF-8 to the server encoding, palloc'd; NULL if it is invalid
 *		or has characters that this encoding lacks.
 */
char *
text_of_utf8(const char *utf8, int len)
{
	int			encoding = GetDatabaseEncoding();
	char	   *text;
	Oid			conversion;

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return pg_verify_mbstr(encoding, utf8, len, true) ?
			pnstrdup(utf8, len) : NULL;

	conversion = FindDefaultConversionProc(PG_UTF8, encoding);
	if (!OidIsValid(conversion) ||
		!pg_verify_mbstr(PG_UTF8, utf8, len, true))
		return NULL;
	text = palloc(len * MAX_CONVERSION_GROWTH + 1);

	if (pg_do_encoding_conversion_buf(conversion, PG_UTF8, encoding,
									  (unsigned char *)
									  unconstify(char *, utf8),
									  len, (unsigned char *) text,
									  len * MAX_CONVERSION_GROWTH + 1,
									  true) != len)
		return NULL;
	return text;
}

/*
 * text_of_data
 *		Make data from ZooKeeper printable text, palloc'd: in ASCII, if the
 *		server encoding lacks any of its characters.
 */
char *
text_of_data(const char *data, int len)
{
	char	   *utf8 = printable(data, len, false);
	char	   *text = text_of_utf8(utf8, strlen(utf8));

	return text ? text : printable(data, len, true);
}

/*
 * text_of_string
 *		As text_of_data(), for a string.
 */
char *
text_of_string(const char *string)
{
	return text_of_data(string, strlen(string));
}
