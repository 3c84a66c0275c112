/*-------------------------------------------------------------------------
 *
 * servers.c
 *		The form of zklock.servers: host:port,..., with an optional chroot.
 *
 * A host may be an IPv6 address in brackets.  The client library knows none, and
 * takes for the port what is behind the last colon.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/servers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>

#include "core/lock/znode.h"
#include "shared/servers.h"

/* Is this an IPv6 address in brackets, perhaps with a zone ("%eth0")? */
static bool
is_bracketed_address(const char *host, size_t len)
{
	char		address[INET6_ADDRSTRLEN];
	struct in6_addr parsed;
	size_t		address_len;

	if (len < 2 || host[0] != '[' || host[len - 1] != ']')
		return false;
	address_len = strcspn(host + 1, "%]");
	if (address_len >= sizeof(address))
		return false;
	memcpy(address, host + 1, address_len);
	address[address_len] = '\0';
	return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* What is wrong with one "host:port" of zklock.servers; NULL: nothing. */
static char *
find_server_problem(const char *server, size_t len)
{
	const char *colon = NULL;
	char	   *end;
	long		port;
	bool		blank = false;
	bool		bracket = false;

	for (size_t i = 0; i < len; i++)
	{
		if (server[i] == ':')
			colon = server + i;
		else if (isspace((unsigned char) server[i]))
			blank = true;		/* as of a comma that was forgotten */
		else if (server[i] == '[' || server[i] == ']')
			bracket = true;
	}
	if (colon == NULL || colon == server || blank ||
		(bracket && !is_bracketed_address(server, colon - server)))
		return psprintf("\"%.*s\" is not of the form host:port.",
						(int) len, server);

	/* no zero in front: the library would take it for octal */
	port = strtol(colon + 1, &end, 10);
	if (colon[1] < '1' || colon[1] > '9' || end != server + len ||
		port > 65535)
		return psprintf("\"%.*s\" does not end in a port number.",
						(int) len, server);
	return NULL;
}

/*
 * servers_find_problem
 *		What is wrong with a value of zklock.servers, as a sentence, palloc'd;
 *		NULL: nothing.
 */
char *
servers_find_problem(const char *server)
{
	const char *chroot = strchr(server, '/');
	const char *end = chroot ? chroot : server + strlen(server);
	const char *problem;

	for (;;)
	{
		size_t		len = strcspn(server, ",/");
		char	   *server_problem;

		while (len > 0 && isspace((unsigned char) *server))
		{
			server++;
			len--;
		}
		server_problem = find_server_problem(server, len);
		if (server_problem)
			return server_problem;
		server += len;
		if (server == end)
			break;
		server++;
	}

	if (chroot && chroot[1] != '\0' &&
		(problem = znode_check_root(chroot)) != NULL)
		return psprintf("The chroot \"%s\" is not valid: %s", chroot, problem);
	return NULL;
}

/*
 * servers_for_library
 *		The servers of a valid value, without the chroot, as the client library
 *		wants them, palloc'd.
 */
char *
servers_for_library(const char *servers)
{
	char	   *result = palloc(strlen(servers) + 1);
	int			len = 0;

	for (const char *c = servers; *c != '\0' && *c != '/'; c++)
		if (*c != '[' && *c != ']')
			result[len++] = *c;
	result[len] = '\0';
	return result;
}
