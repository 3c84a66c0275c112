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
#include "core/remote.h"
#include "lib/stringinfo.h"
#include "pgstat.h"
#include "shared/text.h"
#include "utils/backend_status.h"

static const ZkDeadlockMember *
blocker_of(const ZkDeadlock *deadlock, int i)
{
	return &deadlock->members[(i + 1) % deadlock->nmembers];
}

/*
 * Append a member's lines: which of its processes waits for which, and why.
 * They are in PostgreSQL's words.
 */
static void
append_member(StringInfo buf, const ZkDeadlock *deadlock, int i)
{
	const ZkDeadlockMember *member = &deadlock->members[i];
	const ZkDeadlockMember *blocker = blocker_of(deadlock, i);
	const char *cluster_name = text_of_string(member->cluster_name);
	RemoteSession session;

	if (member->holder_pid != member->pid)
		appendStringInfo(buf, "%sProcess %d of instance %s waits for process %d of the same instance.",
						 buf->len > 0 ? "\n" : "", member->holder_pid,
						 cluster_name, member->pid);
	if (member->kind == DEADLOCK_SESSION)
	{
		if (remote_parse(member->path, &session) &&
			(session.pid != member->pid ||
			 strcmp(session.cluster_name, member->cluster_name) != 0))
			appendStringInfo(buf, "%sProcess %d of instance %s works for process %d of instance %s.",
							 buf->len > 0 ? "\n" : "", member->pid,
							 cluster_name, session.pid,
							 text_of_string(session.cluster_name));
		return;
	}
	appendStringInfo(buf, "%sProcess %d of instance %s waits for ",
					 buf->len > 0 ? "\n" : "", member->pid, cluster_name);
	if (member->kind == DEADLOCK_WORK)
		appendStringInfoString(buf, "a foreign server");
	else
		appendStringInfo(buf, "%s lock \"%s\" in ZooKeeper",
						 member->kind == DEADLOCK_SHARED ? "shared" :
						 "exclusive", path_lock_text(member->path));
	appendStringInfo(buf, "; blocked by process %d of instance %s.",
					 blocker->holder_pid,
					 text_of_string(blocker->cluster_name));
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
