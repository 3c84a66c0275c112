/*-------------------------------------------------------------------------
 *
 * reason.c
 *		Why there is no connection, from the client library's log.
 *
 * The library's log is written for readers of its source, and two of its lines
 * mislead others.  It reports a connection closed by a server as "Host is
 * down" (EHOSTDOWN).  And it counts how late an answer is from two thirds of
 * the session timeout, so the number may be anything.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/reason.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/reason.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
begins_with(const char *line, const char *start)
{
	return strncmp(line, start, strlen(start)) == 0;
}

/*
 * Is this "Socket <address> zk retcode=<n>, errno=<n>(<text>): <what>", about
 * a server that has closed the connection?  Sets *address and *len.
 */
static bool
is_closed(const char *line, const char **address, int *len)
{
	const char *retcode = strstr(line, " zk retcode=");
	const char *error = strstr(line, ", errno=");

	if (!begins_with(line, "Socket ") || retcode == NULL ||
		error == NULL ||
		strtol(error + strlen(", errno="), NULL, 10) != EHOSTDOWN)
		return false;
	*address = line + strlen("Socket ");
	*len = (int) (retcode - *address);
	return *len > 0;
}

/*
 * Is this "connection to <address> timed out (exceeded timeout by <n>ms)",
 * with or without the socket's address before it?  Sets *text to its
 * beginning, and *len.
 */
static bool
is_late(const char *line, const char **text, int *len)
{
	const char *end = strstr(line, " (exceeded timeout by ");

	*text = strstr(line, "connection to ");
	if (*text == NULL || end == NULL || end < *text)
		return false;
	*len = (int) (end - *text);
	return true;
}

/*
 * reason_is_of_refusal
 *		Does a line tell why our credentials are useless?
 *
 * The library logs what it finds itself, but not that a server refuses them.
 */
bool
reason_is_of_refusal(const char *line)
{
	static const char *const starts[] = {
		REASON_UNWELCOME,
		"Starting SASL negotiation: ", "During SASL negotiation: ",
		"allocating SASL connection state: ",
		"getsockname", "getpeername", "getnameinfo: "
	};

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
		if (begins_with(line, starts[i]))
			return true;
	return false;
}

/* Does a line only say that our credentials are useless, not why? */
bool
reason_is_none(const char *line)
{
	return begins_with(line, "SASL authentication failed");
}

/*
 * Has the server answered the request for SASL with an empty challenge?  It
 * does so if it offers neither SASL nor our mechanism, but lets in clients
 * that fail.
 */
static bool
is_without_sasl(const char *line)
{
	return begins_with(line, "During SASL negotiation: invalid parameter");
}

/*
 * reason_of_line
 *		Explain a line of the library's log, in "size" bytes.
 *
 * "connected" says whether there was a connection when the line was logged.
 * If not, "session" is the session to be resumed, or 0.
 */
void
reason_of_line(const char *line, bool connected, int64_t session,
			   char *reason, size_t size)
{
	const char *text;
	int			len;

	if (is_late(line, &text, &len))
		snprintf(reason, size, "%.*s", len, text);
	else if (is_without_sasl(line))
		snprintf(reason, size,
				 "no SASL from the server: it has no JAAS configuration, does not offer DIGEST-MD5, or has refused us and lets such clients in (zookeeper.allowSaslFailedClients)");
	else if (!is_closed(line, &text, &len))
		snprintf(reason, size, "%s", line);
	else if (connected)
		snprintf(reason, size,
				 "server %.*s has closed the connection: it stops, has no majority any more, or the session has ended",
				 len, text);
	else if (session != 0)
		snprintf(reason, size,
				 "server %.*s has closed the connection instead of resuming session 0x%" PRIx64 ": it is starting, has no majority, too many connections of this host, or older data than the session has seen",
				 len, text, (uint64_t) session);
	else
		snprintf(reason, size,
				 "server %.*s has closed the connection before a session began: it is starting, has no majority, too many connections of this host, or expects TLS",
				 len, text);
}
