/*-------------------------------------------------------------------------
 *
 * world_sessions.c
 *		Backends of world.c that have others work for them in other instances,
 *		as postgres_fdw has it; and their vertices.
 *
 * Who works for another backend does only what that calls for, and its
 * transaction ends with that one's.  A caller goes on when the call has ended.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/world_sessions.c
 *
 *-------------------------------------------------------------------------
 */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "core/mutation.h"

int
world_number(int cluster, int backend)
{
	return cluster * WORLD_BACKENDS + backend;
}

static WorldBackend *
numbered(int number)
{
	return world_backend(number / WORLD_BACKENDS, number % WORLD_BACKENDS);
}

/*
 * The backend that has to end or to go on, for this one to do so; -1: none, or
 * it waits in ZooKeeper.
 */
static int
awaited(int number)
{
	const WorldBackend *backend = numbered(number);

	switch (backend->state)
	{
		case BACKEND_BLOCKED:
			return number - number % WORLD_BACKENDS + backend->blocker;
		case BACKEND_CALLING:
			return backend->remote;
		case BACKEND_RUNNING:
			return backend->employer;
		default:
			return -1;
	}
}

/* Does a backend wait for another one with no wait in ZooKeeper between? */
bool
world_waits_for(int number, int other)
{
	for (int i = 0; i < WORLD_INSTANCES * WORLD_BACKENDS && number >= 0; i++)
	{
		if (number == other)
			return true;
		number = awaited(number);
	}
	return number >= 0;
}

/*
 * A running backend calls one of another instance, which works for it from
 * then on, and has yet to do something; returns which, or -1.
 */
int
world_call(int cluster, int backend, int other)
{
	WorldBackend *caller = world_backend(cluster, backend);
	int			number = world_number(cluster, backend);
	int			remote = -1;

	for (int i = 0; i < WORLD_BACKENDS; i++)
		if (world_backend(other, i)->employer == number)
			remote = i;
	for (int i = 0; i < WORLD_BACKENDS && remote < 0; i++)
		if (world_backend(other, i)->state == BACKEND_IDLE)
			remote = i;
	if (remote < 0 || cluster == other)
		return -1;
	if (world_backend(other, remote)->employer < 0)
	{
		world_begin(world_backend(other, remote));
		world_backend(other, remote)->employer = number;
		world_backend(other, remote)->employed = ++world->stamp;
	}
	caller->remote = world_number(other, remote);
	caller->state = BACKEND_CALLING;
	caller->wait_since = ++world->stamp;
	caller->wait_at = world->now;
	return remote;
}

/* The calls of an instance that have ended return; true if there was one. */
bool
world_return(int cluster)
{
	bool		any = false;

	for (int i = 0; i < WORLD_BACKENDS; i++)
	{
		WorldBackend *backend = world_backend(cluster, i);

		if (backend->state == BACKEND_CALLING &&
			numbered(backend->remote)->state == BACKEND_RUNNING)
		{
			backend->state = BACKEND_RUNNING;
			any = true;
		}
	}
	return any;
}

/*
 * A transaction ends: that of who has them work, and of all who work for it.
 */
void
world_finish(int cluster, int backend)
{
	bool		ends[WORLD_INSTANCES * WORLD_BACKENDS] = {0};
	int			root = world_number(cluster, backend);
	bool		more = true;

	while (numbered(root)->employer >= 0)
		root = numbered(root)->employer;
	ends[root] = true;
	while (more)
	{
		more = false;
		for (int i = 0; i < world->ninstances * WORLD_BACKENDS; i++)
			if (!ends[i] && numbered(i)->employer >= 0 &&
				ends[numbered(i)->employer])
				ends[i] = more = true;
	}
	for (int i = 0; i < world->ninstances * WORLD_BACKENDS; i++)
		if (ends[i])
			numbered(i)->employer = -1;
	for (int i = 0; i < world->ninstances * WORLD_BACKENDS; i++)
		if (ends[i])
			world_end_transaction(i / WORLD_BACKENDS, i % WORLD_BACKENDS);
}

/*
 * Vertices: contenders by their numbers, then two for each backend.
 */

int
world_session_vertex(int number, bool remote)
{
	return WORLD_CONTENDERS + 2 * number + remote;
}

bool
world_is_session(int vertex)
{
	return vertex >= WORLD_CONTENDERS;
}

bool
world_is_remote(int vertex)
{
	return world_is_session(vertex) && (vertex - WORLD_CONTENDERS) % 2 != 0;
}

/* The text of a session's vertex. */
void
world_write_vertex(int vertex, char text[VERTEX_SESSION_SIZE])
{
	int			number = (vertex - WORLD_CONTENDERS) / 2;
	VertexSession session = {
		.remote = world_is_remote(vertex),
		.start = 1,
		.pid = numbered(number)->pid
	};

	sprintf(session.cluster_name, "c%d", number / WORLD_BACKENDS);
	vertex_write(&session, text);
}

static int
parse_vertex(const char *text)
{
	VertexSession session;

	if (!vertex_parse(text, &session))
		return -1;
	return world_session_vertex(world_number(session.pid / 100 - 1,
											 session.pid % 100),
								session.remote);
}

/* What a note's path, or a wait, is about; -1: nothing. */
int
world_vertex(const char *path)
{
	VertexNode	node;

	if (path[0] != '/')
		return parse_vertex(path);
	if (vertex_is_node(path) &&
		vertex_parse_node(strrchr(path, '/') + 1, &node))
		return parse_vertex(node.vertex);
	for (int i = 0; i < world->ncontenders; i++)
		if (strcmp(world->contenders[i].path, path) == 0)
			return i;
	return -1;
}

/* The path of the znode in which an instance tells the edges of a session. */
void
world_session_path(int cluster, int vertex, char path[NOTE_VERTEX_SIZE])
{
	WorldInstance *own = &world->instances[cluster];
	WorldNode  *known = &own->nodes[vertex - WORLD_CONTENDERS];
	VertexNode	node = {.publisher = (uint64_t) own->session.id};

	if (known->number == 0 || (own->scans - known->scan > 1 &&
							   !ZK_MUTATED(ZK_DEADLOCK_NAMES_AGAIN)))
		known->number = (uint64_t) ++world->stamp;
	known->scan = own->scans;
	node.number = known->number;
	world_write_vertex(vertex, node.vertex);
	world_check(vertex_node_path("/zklock/" WAITS_DIR, &node, path),
				"a session's znode has a path");
}

/* Do others tell that sessions work for this one? */
bool
world_is_named(int cluster, int backend)
{
	char		vertex[VERTEX_SESSION_SIZE];
	const char *named;
	const char *dir;

	world_write_vertex(world_session_vertex(world_number(cluster, backend),
											false), vertex);
	for (int i = 0;
		 (named = detector_named(&world->instances[cluster].detector, i,
								 &dir)) != NULL; i++)
		if (strcmp(named, vertex) == 0)
			return true;
	return false;
}
