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
 *	S		"<session id>:<cluster_name>"; the id is %c, that is when the
 *			session began, in s since 1970, and its pid, in hexadecimal, with a
 *			point between
 *	S*		"remote:<session id>:<cluster_name>": the remote sessions
 *
 * and these edges:
 *
 *	H -> S	The holder of the contender H works for S, or waits in the lock
 *			manager for a session that does; or it is S, or waits for S, which
 *			is in a statement on a foreign server.  In the note of H.
 *	S -> W	S waits for the contender W of its instance, itself or through
 *			others.  Told by the instance of S.
 *	S -> S*	S is in a statement on a foreign server.  Told by the instance of
 *			S.
 *	S* -> W	A session that works for S waits for the contender W of its own
 *			instance, itself or through others.  Told by that instance.
 *	S -> T, S* -> T
 *			The same, where the way ends at a session that works for T; and
 *			S -> T if S works for T and is idle.
 *
 * Whoever sets application_name can forge a name.  So each way through S
 * leaves it by an edge that the instance of S tells and confirms, from what it
 * sees of its own session; what others tell of S does not count.
 *
 * An edge from a session is told in that session's own znode,
 *
 *	<root>/%waits/session-<vertex>-<publisher>-<number>
 *
 * where the vertex is encoded as a lock's name; publisher and number have 16
 * hexadecimal digits.  The znode is ephemeral, and its data are a note with
 * waits.  No name is used twice, so that a path and a version always stand for
 * one text.
 *
 * The instance of S does not know that S is named, and does not search for it
 * until it does.  So an instance that tells an edge to S also creates a znode
 * of S in which S waits for itself: that only names S.
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

#define NODE_DIGITS		16

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
 * A name of maximal length may have been truncated, and says nothing.
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

/* The 16 digits at the end of a text, from which they and a - are cut off. */
static bool
cut_number(const char *text, size_t *len, uint64_t *number)
{
	*number = 0;
	if (*len < NODE_DIGITS + 1 || text[*len - NODE_DIGITS - 1] != '-')
		return false;
	for (size_t i = *len - NODE_DIGITS; i < *len; i++)
	{
		static const char digits[] = "0123456789abcdef";
		const char *digit = strchr(digits, text[i]);

		if (digit == NULL)
			return false;
		*number = *number << 4 | (uint64_t) (digit - digits);
	}
	*len -= NODE_DIGITS + 1;
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

/* Is the parent directory of a path named so? */
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
 * vertex_waits_dir_of
 *		The directory of the root below which a contender is; false if there is
 *		none.
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
