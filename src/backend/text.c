/*-------------------------------------------------------------------------
 *
 * text.c
 *		What ZooKeeper has as text, in the encoding of the database.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/text.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/text.h"
#include "catalog/namespace.h"
#include "mb/pg_wchar.h"
#include "shared/text.h"

/*
 * text_of_utf8
 *		UTF-8 in the server encoding, palloc'd; NULL if it is not valid or has
 *		characters that this encoding does not have.
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
									  (unsigned char *) unconstify(char *, utf8),
									  len, (unsigned char *) text,
									  len * MAX_CONVERSION_GROWTH + 1,
									  true) != len)
		return NULL;
	return text;
}

/*
 * text_of_data
 *		What somebody has written to ZooKeeper as printable text, palloc'd: in
 *		ASCII, if the server encoding lacks any of its characters.
 */
char *
text_of_data(const char *data, int len)
{
	char	   *utf8 = text_utf8(data, len);
	char	   *text = text_of_utf8(utf8, strlen(utf8));

	return text ? text : text_ascii(data, len);
}

/*
 * text_of_string
 *		The same of a string.
 */
char *
text_of_string(const char *string)
{
	return text_of_data(string, strlen(string));
}
