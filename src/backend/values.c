/*-------------------------------------------------------------------------
 *
 * values.c
 *		SQL values of what ZooKeeper and the worker tell.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/values.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/names.h"
#include "backend/values.h"
#include "shared/questions.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/*
 * escape_bytes
 *		Show any bytes as printable ASCII, with backslashes doubled and the
 *		other bytes as \xNN.
 *
 * What does not fit into "buf" is left out.
 */
void
escape_bytes(const char *bytes, int len, char *buf, size_t size)
{
	size_t		used = 0;

	for (int i = 0; i < len; i++)
	{
		unsigned char c = (unsigned char) bytes[i];
		char		piece[5];

		if (c == '\\')
			strcpy(piece, "\\\\");
		else if (c >= 0x20 && c <= 0x7E)
			snprintf(piece, sizeof(piece), "%c", c);
		else
			snprintf(piece, sizeof(piece), "\\x%02x", c);
		if (used + strlen(piece) >= size)
			break;
		strcpy(buf + used, piece);
		used += strlen(piece);
	}
	buf[used] = '\0';
}

/*
 * text_of_data
 *		What somebody has written to ZooKeeper as text, palloc'd.
 */
char *
text_of_data(const char *data, int len)
{
	char	   *text = zk_text_of_utf8(data, len);

	if (text == NULL)
	{
		text = palloc(ZK_ANSWER_MAX_DATA + 1);
		escape_bytes(data, len, text, ZK_ANSWER_MAX_DATA + 1);
	}
	return text;
}

/*
 * timestamp_of_ctime
 *		ZooKeeper's clock as ours; false if it is out of our range.
 */
bool
timestamp_of_ctime(int64 ctime, TimestampTz *result)
{
	const int64 epoch_ms = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
		(USECS_PER_DAY / 1000);

	if (ctime <= 0 || ctime > END_TIMESTAMP / 1000)
		return false;
	*result = (ctime - epoch_ms) * 1000;
	return true;
}

/*
 * interval_of_us
 *		A time in microseconds as an interval.
 */
Datum
interval_of_us(int64 us)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = us;
	return IntervalPGetDatum(interval);
}

/*
 * session_id_text
 *		The id of a ZooKeeper session as text, as ZooKeeper writes it.
 */
Datum
session_id_text(int64 session_id)
{
	return CStringGetTextDatum(psprintf("0x%llx",
										(unsigned long long) session_id));
}
