/*-------------------------------------------------------------------------
 *
 * remote.c
 *		Names of sessions for which those of other instances work.
 *
 * Through postgres_fdw a session has sessions of other instances work for it.
 * If postgres_fdw.application_name is "zklock:%c:%C", the instance of each of
 * these knows for which session it works: "<session id>:<cluster_name>".  The
 * session id is that of %c: when the session began, in s since 1970, a point,
 * and its pid, both in hexadecimal.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/remote.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/remote.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/lock/note.h"

static const char *const application_prefix = "zklock:";

/* A number in hexadecimal, as written by %x, up to the delimiter. */
static bool
take_hex(const char **text, char delimiter, uint64_t max, uint64_t *number)
{
	const char *end = strchr(*text, delimiter);

	if (end == NULL ||
		!word_parse_unsigned(word_bytes(*text, (int) (end - *text)), 16, max,
							 number))
		return false;
	for (const char *digit = *text; digit < end; digit++)
		if (*digit >= 'A' && *digit <= 'F')
			return false;		/* other forms are not written */
	*text = end + 1;
	return true;
}

/* Parse a session's name; false if it is not valid. */
bool
remote_parse(const char *name, RemoteSession *session)
{
	uint64_t	start;
	uint64_t	pid;

	memset(session, 0, sizeof(*session));
	if (!take_hex(&name, '.', INT64_MAX, &start) ||
		!take_hex(&name, ':', INT_MAX, &pid) ||
		*name == '\0' || strlen(name) >= sizeof(session->cluster_name))
		return false;
	session->start = (int64_t) start;
	session->pid = (int) pid;
	strcpy(session->cluster_name, name);
	return true;
}

/* Write a session's name. */
void
remote_write(const RemoteSession *session, char name[REMOTE_NAME_SIZE])
{
	(void) snprintf(name, REMOTE_NAME_SIZE, "%" PRIx64 ".%x:%s",
					(uint64_t) session->start, (unsigned) session->pid,
					session->cluster_name);
}

/*
 * remote_of_application
 *		The session for which one with this application_name works; false if
 *		there is none known.
 *
 * A name of maximal length may have been truncated, so it counts as unknown.
 */
bool
remote_of_application(const char *name, RemoteSession *session)
{
	size_t		len = strlen(application_prefix);

	return strncmp(name, application_prefix, len) == 0 &&
		strlen(name) < REMOTE_CLUSTER_SIZE - 1 &&
		remote_parse(name + len, session);
}
