/*-------------------------------------------------------------------------
 *
 * vertex.c
 *		Sessions as vertices of the wait-for graph, and their znodes.
 *
 * Through postgres_fdw a session has sessions of other instances work for it,
 * its remote sessions; together they are one transaction.  If
 * postgres_fdw.application_name is "zklock:%c:%C", the instance of a remote
 * session knows for which session that works.  A session S has two vertices:
 *
 *	S		the session itself: "<session id>:<cluster_name>"
 *	S*		its remote sessions: "remote:<session id>:<cluster_name>"
 *
 * The session id is that of %c: when the session began, in s since 1970, a
 * point, and its pid, both in hexadecimal.
 *
 * There are these edges:
 *
 *	H -> S	The holder of the contender H works for S, or waits in the lock
 *			manager for a session that does.  Or it is S, or waits for S, and S
 *			is in a statement on a foreign server.  Published in the note of H.
 *	S -> W	S waits for the contender W of its instance, directly or through
 *			others.  Published by the instance of S.
 *	S -> S*	S is in a statement on a foreign server.  Published by the instance
 *			of S.
 *	S* -> W	A session that works for S waits for the contender W of its own
 *			instance, directly or through others.  Published by that instance.
 *	S -> T, S* -> T
 *			As S -> W and S* -> W, where the way ends at a session that works
 *			for T; and S -> T if S works for T and is idle.
 *
 * A client can set any application_name, and so name any session.  So each way
 * through S leaves S by an edge that the instance of S publishes and confirms,
 * from what it sees of its own session; what other instances publish of S does
 * not count.
 *
 * An edge from a session is published in that session's own znode,
 *
 *	<root>/%waits/session-<vertex>-<publisher>-<number>
 *
 * where the vertex is encoded as a lock's name, and publisher and number have
 * 16 hexadecimal digits.  The znode is ephemeral, and its data are a note with
 * waits.  No name is used twice, so that a path and a version always stand for
 * one text.
 *
 * The instance of S does not publish edges from S until it knows that S is
 * named.  So an instance that publishes an edge to S also creates a znode of S
 * in which S waits for itself: that only names S.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/vertex.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/vertex.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/word.h"

static const char *const application_prefix = "zklock:";
static const char *const remote_prefix = "remote:";
static const char *const node_prefix = "session-";

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

/* Parse a session's vertex; false if it is not valid. */
bool
vertex_parse(const char *vertex, VertexSession *session)
{
	uint64_t	start;
	uint64_t	pid;

	memset(session, 0, sizeof(*session));
	if (strncmp(vertex, remote_prefix, strlen(remote_prefix)) == 0)
	{
		session->remote = true;
		vertex += strlen(remote_prefix);
	}
	if (!take_hex(&vertex, '.', INT64_MAX, &start) ||
		!take_hex(&vertex, ':', INT_MAX, &pid) ||
		*vertex == '\0' || strlen(vertex) >= sizeof(session->cluster_name))
		return false;
	session->start = (int64_t) start;
	session->pid = (int) pid;
	strcpy(session->cluster_name, vertex);
	return true;
}

/* The text of a session's vertex. */
void
vertex_write(const VertexSession *session, char vertex[VERTEX_SESSION_SIZE])
{
	(void) snprintf(vertex, VERTEX_SESSION_SIZE, "%s%" PRIx64 ".%x:%s",
					session->remote ? remote_prefix : "",
					(uint64_t) session->start, (unsigned) session->pid,
					session->cluster_name);
}

/*
 * vertex_of_application
 *		The session for which one with this application_name works; false if
 *		there is none known.
 *
 * A name of maximal length may have been truncated, so it counts as unknown.
 */
bool
vertex_of_application(const char *name, VertexSession *session)
{
	size_t		len = strlen(application_prefix);

	return strncmp(name, application_prefix, len) == 0 &&
		strlen(name) < VERTEX_NAME_SIZE - 1 &&
		vertex_parse(name + len, session) && !session->remote;
}

/* The path of a session's znode; false if it is too long. */
bool
vertex_node_path(const char *dir, const VertexNode *node,
				 char path[NOTE_VERTEX_SIZE])
{
	char		encoded[ZNODE_MAX_NAME + 1];

	return znode_encode_name(node->vertex, strlen(node->vertex), encoded,
							 sizeof(encoded)) >= 0 &&
		snprintf(path, NOTE_VERTEX_SIZE,
				 "%s/%s%s-%016" PRIx64 "-%016" PRIx64, dir, node_prefix,
				 encoded, node->publisher, node->number) < NOTE_VERTEX_SIZE;
}

/* Cut a "-" and 16 digits off the end of a text of length *len. */
static bool
cut_number(const char *text, size_t *len, uint64_t *number)
{
	if (*len < WORD_HEX_DIGITS + 1 ||
		text[*len - WORD_HEX_DIGITS - 1] != '-' ||
		!word_parse_hex(text + *len - WORD_HEX_DIGITS, number))
		return false;
	*len -= WORD_HEX_DIGITS + 1;
	return true;
}

/* Parse the name of a session's znode; false if it is not valid. */
bool
vertex_parse_node(const char *name, VertexNode *node)
{
	size_t		prefix_len = strlen(node_prefix);
	size_t		len = strlen(name);
	char		encoded[ZNODE_MAX_NAME + 1];
	VertexSession session;

	memset(node, 0, sizeof(*node));
	if (strncmp(name, node_prefix, prefix_len) != 0 ||
		!cut_number(name, &len, &node->number) ||
		!cut_number(name, &len, &node->publisher) ||
		len <= prefix_len || len - prefix_len > ZNODE_MAX_NAME)
		return false;
	memcpy(encoded, name + prefix_len, len - prefix_len);
	encoded[len - prefix_len] = '\0';
	return znode_decode_name(encoded, node->vertex,
							 sizeof(node->vertex)) >= 0 &&
		vertex_parse(node->vertex, &session);
}

/* The beginning of a path's last component; NULL: it has at most one. */
static const char *
last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL || slash == path ? NULL : slash + 1;
}

/* Does the parent directory of a path have this name? */
static bool
is_in_directory(const char *path, const char *directory)
{
	const char *name = last_component(path);
	size_t		len = strlen(directory);

	return name != NULL && (size_t) (name - path) >= len + 2 &&
		name[-2 - (int) len] == '/' &&
		memcmp(name - 1 - len, directory, len) == 0;
}

/* Is this the path of a session's znode? */
bool
vertex_is_node(const char *path)
{
	VertexNode	node;

	return is_in_directory(path, WAITS_DIR) &&
		vertex_parse_node(last_component(path), &node);
}

/*
 * vertex_split_path
 *		The name of a znode, and the path of its directory.
 */
const char *
vertex_split_path(const char *path, char dir[NOTE_VERTEX_SIZE])
{
	strcpy(dir, path);
	*strrchr(dir, '/') = '\0';
	return strrchr(path, '/') + 1;
}

/*
 * vertex_waits_dir_of
 *		The %waits of the root below which a contender is; false if there is
 *		none.  "permit": it is a permit.
 */
bool
vertex_waits_dir_of(const char *path, bool permit, char dir[NOTE_VERTEX_SIZE])
{
	size_t		len = strlen(path);
	int			levels = permit ? 3 : 2;

	dir[0] = '\0';
	if (path[0] != '/')
		return false;
	for (; levels > 0; levels--)
	{
		while (len > 0 && path[len - 1] != '/')
			len--;
		if (len == 0)
			return false;
		len--;
	}
	if (len + sizeof("/" WAITS_DIR) > NOTE_VERTEX_SIZE)
		return false;
	memcpy(dir, path, len);
	strcpy(dir + len, "/" WAITS_DIR);
	return true;
}

/*
 * vertex_waits_dir_of_owner
 *		The same for a path whose note has waits: a contender that owns its
 *		lock, a permit, or a session's znode.
 */
bool
vertex_waits_dir_of_owner(const char *path, char dir[NOTE_VERTEX_SIZE])
{
	const char *name = last_component(path);

	if (vertex_is_node(path))
		return vertex_waits_dir_of(path, false, dir);
	return vertex_waits_dir_of(path, name != NULL &&
							   is_in_directory(path, ZNODE_PERMITS_DIR) &&
							   strstr(name, "-lease-") != NULL, dir);
}

/* Does an edge from a session's znode "path" only name the session? */
bool
vertex_only_names(const char *path, const NoteWait *wait)
{
	VertexNode	node;
	const char *name = last_component(path);

	return wait->kind == NOTE_WAIT_SESSION && name != NULL &&
		vertex_parse_node(name, &node) && strcmp(node.vertex, wait->to) == 0;
}
