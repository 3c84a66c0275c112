/*-------------------------------------------------------------------------
 *
 * foreign.c
 *		Sessions that work for those of other instances, by postgres_fdw,
 *		and ours for which others work.
 *
 * See core/deadlock/vertex.c.  A session's application_name, which the other
 * instance has set by postgres_fdw.application_name, says for which session it
 * works.  If this instance is configured with that setting, others may name
 * our sessions.
 *
 * A session of ours is in a statement on a foreign server if its wait event is
 * one of an extension, or of an Append that has sent its queries.  Some other
 * waits look the same, but then none of its remote sessions waits for a lock,
 * and no way leads on from its vertex.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/foreign.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/procs.h"
#include "shared/settings.h"
#include "storage/proc.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#include "worker/deadlock/ages_private.h"
#include "worker/deadlock/blockers_private.h"
#include "worker/deadlock/foreign_private.h"
#include "worker/zookeeper/status.h"

#define WAIT_CLASS_MASK		0xFF000000U

/* The znode of a session in this scan, or with an edge in the last one. */
typedef struct SessionNode
{
	char		vertex[VERTEX_SESSION_SIZE];	/* hash key, must be first */
	uint64		number;			/* part of its name */
	uint32		scan;			/* the last scan with an edge from it */
} SessionNode;

static struct
{
	HTAB	   *sessions;		/* of this scan */
	HTAB	   *nodes;
	uint32		scan;			/* number of scans */
	uint64		number;			/* of the last znode */
}			foreign;

/*
 * Do our sessions say to other instances for which session their remote
 * sessions work?
 */
bool
foreign_is_set(void)
{
	const char *name = GetConfigOption("postgres_fdw.application_name", true,
									   false);

	return name && strcmp(name, VERTEX_APPLICATION_NAME) == 0 &&
		cluster_name[0] != '\0';
}

/* May a process wait for a foreign server? */
static bool
may_wait_remotely(const PGPROC *proc)
{
	uint32		event = proc->wait_event_info;

	return (event & WAIT_CLASS_MASK) == PG_WAIT_EXTENSION ||
		event == WAIT_EVENT_APPEND_READY;
}

/*
 * Does this session work for one of another instance?  If so, fills in that.
 */
static bool
works_for(const PgBackendStatus *status, VertexSession *session)
{
	return status->st_backendType == B_BACKEND && status->st_appname &&
		vertex_of_application(status->st_appname, session) &&
		strcmp(session->cluster_name, cluster_name) != 0;
}

/*
 * Does any session work for one of another instance?
 *
 * That matters only if it holds a lock.  So the status of all sessions is not
 * copied as long as no session that works for another has ever wanted one.
 */
static bool
any_session_works(void)
{
	VertexSession session;
	bool		works = false;

	if (!procs_remote_seen())
		return false;
	pgstat_clear_backend_activity_snapshot();
	for (int i = pgstat_fetch_stat_numbackends(); i > 0 && !works; i--)
		works = works_for(&ZkLocalBackendStatus(i)->backendStatus, &session);
	pgstat_clear_backend_activity_snapshot();
	return works;
}

/*
 * foreign_may_matter
 *		May there be edges through foreign servers?
 *
 * Checks each process, without a lock: has any waited in the lock manager for
 * "wait_us", does any wait for a foreign server, or does any session work for
 * another instance?
 */
bool
foreign_may_matter(int64 wait_us)
{
	bool		is_set = foreign_is_set();

	if (blockers_sample(wait_us))
		return true;
	for (uint32 i = 0; is_set && i < ProcGlobal->allProcCount; i++)
	{
		const PGPROC *proc = &ProcGlobal->allProcs[i];

		if (proc->pid != 0 && may_wait_remotely(proc))
			return true;
	}
	return any_session_works();
}

/*
 * Add a session if it matters; "set" is foreign_is_set().  A statement that
 * has not lasted for "wait_us" is not noted.
 */
static void
add_session(const PgBackendStatus *status, bool set, int64 wait_us,
			List *named)
{
	VertexSession employer;
	bool		works = works_for(status, &employer);
	bool		runs = status->st_state == STATE_RUNNING ||
	status->st_state == STATE_FASTPATH;
	bool		lasts;
	ForeignSession *session;
	char		vertex[VERTEX_SESSION_SIZE];
	ListCell   *cell;

	if (status->st_backendType != B_BACKEND || (!works && !set))
		return;
	session = hash_search(foreign.sessions, &status->st_procpid, HASH_ENTER,
						  NULL);
	memset(session, 0, sizeof(*session));
	session->pid = status->st_procpid;
	session->start = zk_unix_us(status->st_proc_start_timestamp);
	session->works = works;
	session->idle = status->st_state == STATE_IDLEINTRANSACTION;
	lasts = ages_has_lasted(AGE_OF_STATE, session->pid,
							status->st_state_start_timestamp, wait_us);
	session->rests = !runs && lasts;
	if (works)
		session->works_for = employer;
	if (!set || strlen(cluster_name) >= sizeof(session->self.cluster_name))
		return;
	session->self.start =
		(int64) timestamptz_to_time_t(status->st_proc_start_timestamp);
	session->self.pid = session->pid;
	strcpy(session->self.cluster_name, cluster_name);
	vertex_write(&session->self, vertex);
	foreach(cell, named)
		session->named |= strcmp(lfirst(cell), vertex) == 0;
	lasts = ages_has_lasted(AGE_OF_STATEMENT, session->pid,
							status->st_activity_start_timestamp, wait_us);
	if (runs && lasts)
		session->statement = zk_unix_us(status->st_activity_start_timestamp);
}

/* A scan begins: forget the znodes without an edge in the last one. */
static void
forget_nodes(void)
{
	HASH_SEQ_STATUS seq;
	SessionNode *node;

	if (foreign.nodes == NULL)
	{
		HASHCTL		ctl;

		memset(&ctl, 0, sizeof(ctl));
		ctl.keysize = VERTEX_SESSION_SIZE;
		ctl.entrysize = sizeof(SessionNode);
		foreign.nodes = hash_create("zklock session znodes", 64, &ctl,
									HASH_ELEM | HASH_STRINGS);
	}
	hash_seq_init(&seq, foreign.nodes);
	while ((node = hash_seq_search(&seq)) != NULL)
		if (node->scan != foreign.scan && !ZK_MUTATED(ZK_DEADLOCK_NAMES_AGAIN))
			hash_search(foreign.nodes, node->vertex, HASH_REMOVE, NULL);
	foreign.scan++;
}

/*
 * foreign_begin
 *		Begin a scan, in which statements count that have lasted for
 *		"wait_us".  Other instances name the sessions "named": a list of
 *		vertices.
 *
 * Returns the sessions that matter, a list of ForeignSessions: those that work
 * for others, and those that are named or in a statement on a foreign server.
 * All is palloc'd in the current context, and valid until the next scan
 * begins.
 */
List *
foreign_begin(int64 wait_us, List *named)
{
	bool		set = foreign_is_set();
	List	   *result = NIL;
	HASHCTL		ctl;
	HASH_SEQ_STATUS seq;
	ForeignSession *session;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(int);
	ctl.entrysize = sizeof(ForeignSession);
	ctl.hcxt = CurrentMemoryContext;
	foreign.sessions = hash_create("zklock foreign sessions", 64, &ctl,
								   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	forget_nodes();
	ages_sample(AGE_OF_STATEMENT);
	ages_sample(AGE_OF_STATE);
	pgstat_clear_backend_activity_snapshot();
	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
		add_session(&ZkLocalBackendStatus(i)->backendStatus, set, wait_us,
					named);
	pgstat_clear_backend_activity_snapshot();
	for (uint32 i = 0; set && i < ProcGlobal->allProcCount; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];

		session = proc->pid == 0 ? NULL : foreign_find(proc->pid);
		if (session && !may_wait_remotely(proc))
			session->statement = 0;
	}
	hash_seq_init(&seq, foreign.sessions);
	while ((session = hash_seq_search(&seq)) != NULL)
		if (session->works || session->named || session->statement != 0)
			result = lappend(result, session);
	return result;
}

/* The session of a process, or NULL. */
ForeignSession *
foreign_find(int pid)
{
	return hash_search(foreign.sessions, &pid, HASH_FIND, NULL);
}

/* The directory for edges of sessions; false if there is none. */
bool
foreign_waits_dir(char dir[NOTE_VERTEX_SIZE])
{
	return snprintf(dir, NOTE_VERTEX_SIZE, "%s/%s", zklock_root,
					WAITS_DIR) < NOTE_VERTEX_SIZE;
}

/* A scan is left out: its sessions' znodes are forgotten, as without edges. */
void
foreign_skip(void)
{
	foreign.scan++;
}

/*
 * foreign_node
 *		The path of the znode for edges of a session, or of its remote
 *		sessions; false if there is none.
 *
 * It stays the same as long as each scan has an edge from it
 * (foreign_published()).  After that it changes, since the detector deletes
 * the znode, and no name is used twice.
 */
bool
foreign_node(const VertexSession *session, bool remote,
			 char path[NOTE_VERTEX_SIZE])
{
	char		dir[NOTE_VERTEX_SIZE];
	VertexNode	name = {.publisher = (uint64) status()->client_id};
	VertexSession vertex = *session;
	SessionNode *node;
	bool		found;

	vertex.remote = remote;
	vertex_write(&vertex, name.vertex);
	node = hash_search(foreign.nodes, name.vertex, HASH_ENTER, &found);
	if (!found)
	{
		uint64		now_us = (uint64) zk_now_us();

		node->scan = 0;
		node->number = foreign.number = Max(foreign.number + 1, now_us);
	}
	name.number = node->number;
	return name.publisher != 0 && foreign_waits_dir(dir) &&
		vertex_node_path(dir, &name, path);
}

/*
 * foreign_published
 *		The scan has an edge from the znode of a session with this path, a
 *		result of foreign_node().
 */
void
foreign_published(const char *path)
{
	VertexNode	name;
	SessionNode *node;

	if (!vertex_parse_node(strrchr(path, '/') + 1, &name))
		return;
	node = hash_search(foreign.nodes, name.vertex, HASH_FIND, NULL);
	if (node && node->number == name.number)
		node->scan = foreign.scan;
}
