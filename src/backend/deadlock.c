/*-------------------------------------------------------------------------
 *
 * deadlock.c
 *		The error of a deadlock with other instances.
 *
 * It reads as PostgreSQL's own, with the instance of each process.  The server
 * log also has the statements of this instance's processes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/deadlock.h"
#include "backend/names.h"
#include "core/deadlock/vertex.h"
#include "pgstat.h"
#include "shared/text.h"
#include "utils/backend_status.h"

/*
 * deadlock_is_blocked_by
 *		Does one member of a deadlock wait for what another one holds?
 */
bool
deadlock_is_blocked_by(const ZkDeadlock *deadlock, int member, int other)
{
	uint64		blocked_by = deadlock->members[member].blocked_by;

	if (blocked_by == 0)
		return other == (member + 1) % deadlock->nmembers;
	return (blocked_by & (UINT64CONST(1) << other)) != 0;
}

/*
 * deadlock_append_wait
 *		Append a line that says which process of an instance waits for which
 *		lock, in PostgreSQL's words.
 *
 * The process is "pid"; "holder_pid" is another one that waits for it, or the
 * same.  The sentence is left open.
 */
void
deadlock_append_wait(StringInfo buf, const char *cluster_name, int holder_pid,
					 int pid, ZnodeKind kind, const char *path)
{
	cluster_name = text_of_string(cluster_name);
	if (buf->len > 0)
		appendStringInfoChar(buf, '\n');
	if (holder_pid != pid)
		appendStringInfo(buf, "Process %d of instance %s waits for process %d of the same instance.\n",
						 holder_pid, cluster_name, pid);
	appendStringInfo(buf, "Process %d of instance %s waits for %s \"%s\" in ZooKeeper",
					 pid, cluster_name,
					 kind == ZNODE_PERMIT ? "a permit of semaphore" :
					 kind == ZNODE_READER ? "shared lock" : "exclusive lock",
					 path_lock_text(path));
}

/* Append the members that a member waits for. */
static void
append_blockers(StringInfo buf, const ZkDeadlock *deadlock, int member)
{
	const char *before = "; blocked by ";

	for (int i = 0; i < deadlock->nmembers; i++)
	{
		const ZkDeadlockMember *other = &deadlock->members[i];

		if (!deadlock_is_blocked_by(deadlock, member, i))
			continue;
		appendStringInfo(buf, "%sprocess %d of instance %s", before,
						 other->holder_pid,
						 text_of_string(other->cluster_name));
		before = ", ";
	}
}

/*
 * Append the lines about a member that waits for a session: for the one that
 * it works for, or for those that work for it.
 */
static void
append_session(StringInfo buf, const ZkDeadlock *deadlock, int i)
{
	const ZkDeadlockMember *member = &deadlock->members[i];
	const char *cluster_name = text_of_string(member->cluster_name);
	VertexSession session;

	if (member->holder_pid != member->pid)
		appendStringInfo(buf, "%sProcess %d of instance %s waits for process %d of the same instance.",
						 buf->len > 0 ? "\n" : "", member->holder_pid,
						 cluster_name, member->pid);
	if (!vertex_parse(member->path, &session))
		return;
	if (session.remote)
	{
		appendStringInfo(buf, "%sProcess %d of instance %s waits for a foreign server",
						 buf->len > 0 ? "\n" : "", member->pid, cluster_name);
		append_blockers(buf, deadlock, i);
		appendStringInfoChar(buf, '.');
	}
	else if (session.pid != member->pid ||
			 strcmp(session.cluster_name, member->cluster_name) != 0)
		appendStringInfo(buf, "%sProcess %d of instance %s works for process %d of instance %s.",
						 buf->len > 0 ? "\n" : "", member->pid,
						 cluster_name, session.pid,
						 text_of_string(session.cluster_name));
}

/* Append a member's lines: which of its processes waits for which, and why. */
static void
append_member(StringInfo buf, const ZkDeadlock *deadlock, int i)
{
	const ZkDeadlockMember *member = &deadlock->members[i];

	if (member->path[0] != '/')
	{
		append_session(buf, deadlock, i);
		return;
	}
	deadlock_append_wait(buf, member->cluster_name, member->holder_pid,
						 member->pid,
						 member->kind, member->path);
	append_blockers(buf, deadlock, i);
	appendStringInfoChar(buf, '.');
}

/* Append the statement of a process of this instance. */
static void
append_statement(StringInfo buf, int pid)
{
	appendStringInfo(buf, "\nProcess %d: %s", pid,
					 pgstat_get_backend_current_activity(pid, false));
}

/* Is this process of ours among the first n members? */
static bool
is_ahead(const ZkDeadlock *deadlock, int n, int pid)
{
	for (int i = 0; i < n; i++)
	{
		const ZkDeadlockMember *member = &deadlock->members[i];

		if (member->local && (member->pid == pid || member->holder_pid == pid))
			return true;
	}
	return false;
}

static void
append_statements(StringInfo buf, const ZkDeadlock *deadlock)
{
	for (int i = 0; i < deadlock->nmembers; i++)
	{
		const ZkDeadlockMember *member = &deadlock->members[i];

		if (!member->local)
			continue;
		if (!is_ahead(deadlock, i, member->pid))
			append_statement(buf, member->pid);
		if (member->holder_pid != member->pid &&
			!is_ahead(deadlock, i, member->holder_pid))
			append_statement(buf, member->holder_pid);
	}
}

/*
 * deadlock_report
 *		Report (40P01) the deadlock with this number, of which this backend is
 *		the victim.
 */
void
deadlock_report(uint32 number)
{
	ZkDeadlock	deadlock;
	StringInfoData client;
	StringInfoData server;

	initStringInfo(&client);
	initStringInfo(&server);
	if (deadlock_read(number, &deadlock))
	{
		for (int i = 0; i < deadlock.nmembers; i++)
			append_member(&client, &deadlock, i);
		appendBinaryStringInfo(&server, client.data, client.len);
		append_statements(&server, &deadlock);
	}
	pgstat_report_deadlock();
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 client.len > 0 ? errdetail_internal("%s", client.data) : 0,
			 client.len > 0 ? errdetail_log("%s", server.data) : 0,
			 errhint("See server log for query details.")));
}
