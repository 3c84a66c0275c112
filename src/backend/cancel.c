/*-------------------------------------------------------------------------
 *
 * cancel.c
 *		Functions that have the holders of a lock give it up.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/cancel.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/names.h"
#include "backend/reads.h"
#include "core/lock/note.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/holders.h"
#include "shared/settings.h"
#include "shared/text.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(zk_cancel_holders);
PG_FUNCTION_INFO_V1(zk_terminate_holders);

/*
 * How long to wait until an instance has acknowledged that it is to give a
 * lock up, and until looking again, in ms.
 */
#define ANSWER_MS			3000
#define ANSWER_PAUSE_MS		100

/*
 * May the user cancel that backend?  As with pg_cancel_backend(), only a
 * superuser may cancel a backend of a superuser or of no role, such as an
 * autovacuum worker; else the privilege to call the function is enough.  Warns
 * if the user may not.
 */
static bool
may_cancel(const PGPROC *proc, int pid, const ZkLockName *lock)
{
	Oid			role = proc->roleId;

	if (superuser() || (OidIsValid(role) && !superuser_arg(role)))
		return true;
	ereport(WARNING,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to cancel query"),
			 OidIsValid(role) ?
			 errdetail("Process %d, which holds lock \"%s\", belongs to a superuser.",
					   pid, lock->name) :
			 errdetail("Process %d, which holds lock \"%s\", belongs to no role.",
					   pid, lock->name)));
	return false;
}

/*
 * Cancel the statements of this instance's holders, if the user may, and end
 * the claim that holds the lock.
 */
static int
cancel_local_holders(const ZkLockName *lock)
{
	int			npids;
	int		   *pids = slots_holders(&lock->key, &npids);
	int			nallowed = 0;
	int			canceled;

	for (int i = 0; i < npids; i++)
	{
		PGPROC	   *proc = BackendPidGetProc(pids[i]);

		if (proc && may_cancel(proc, pids[i], lock))
			pids[nallowed++] = pids[i];
	}
	canceled = slots_cancel_holders(&lock->key, pids, nallowed);
	if (claim_end_of(&lock->key))
	{
		char		path[ZNODE_PATH_SIZE];

		canceled++;
		key_path(&lock->key, path);
		ereport(LOG,
				(errmsg("claim of lock \"%s\" has ended because zk_cancel_holders() was called",
						path)));
	}
	pfree(pids);
	return canceled;
}

/* The owners of a lock that is asked for. */
typedef struct Owners
{
	Reading		reading;
	char		path[ZNODE_PATH_SIZE];
	Queue		queue;
	QueueNode **nodes;			/* as they were before they were asked */
	int			n;
} Owners;

/* Read the owners; false if there is no session, and that was reported. */
static bool
read_owners(Owners *owners)
{
	Queue	   *queue = &owners->queue;
	int			n;

	if (!read_queues(&owners->reading, queue, 1))
		return false;
	read_check_refusal(&owners->reading, queue->refusal);
	queue_find_first(queue);
	n = queue->waiter < 0 ? queue->n : queue->waiter;
	owners->nodes = palloc(n * sizeof(QueueNode *));
	for (int i = 0; i < n; i++)
		owners->nodes[i] = &queue->nodes[i];
	if (!read_queue_nodes(&owners->reading, owners->nodes, n))
		return false;
	for (int i = 0; i < n; i++)
		if (!queue_node_is_gone(owners->nodes[i]))
			owners->nodes[owners->n++] = owners->nodes[i];
	return true;
}

/*
 * Ask the owners that are other instances or clients, as Curator's Revoker
 * does.  Returns how many were asked.
 *
 * Without a session that is an error, or a WARNING if "warn".
 */
static int
ask_owners(Owners *owners, const ZkLockName *lock, bool warn)
{
	const char **paths;
	const ZkReadNode **answers;
	ZkRefusal	refusal = ZK_REFUSAL_NONE;
	int			n = 0;
	int			asked = 0;

	read_begin_of_lock(&owners->reading, &lock->key, owners->path,
					   &owners->queue);
	owners->reading.lock = lock;
	owners->reading.elevel = warn ? WARNING : ERROR;
	if (!read_owners(owners))
		return 0;
	paths = palloc(owners->n * sizeof(char *));
	answers = palloc(owners->n * sizeof(ZkReadNode *));
	for (int i = 0; i < owners->n; i++)
		if (!owners->nodes[i]->read->ours)
			paths[n++] = owners->nodes[i]->path;
	if (!read_nodes(&owners->reading, ZK_WRITE_REVOCATION, paths, n, answers))
		return 0;
	for (int i = 0; i < n; i++)
	{
		if (answers[i]->refusal != ZK_REFUSAL_NONE)
			refusal = answers[i]->refusal;
		else if (!answers[i]->gone)
			asked++;
	}
	if (asked == 0)
		read_check_refusal(&owners->reading, refusal);
	return asked;
}

/*
 * Of the owners that are instances, those that have not acknowledged the
 * request: they would say again who they are.  Returns how many they are, and
 * adds a line for each to "text".
 */
static int
find_unacknowledged(Owners *owners, StringInfo text)
{
	const char **paths = palloc(owners->n * sizeof(char *));
	const ZkReadNode **now = palloc(owners->n * sizeof(ZkReadNode *));
	int			n = 0;

	for (int i = 0; i < owners->n; i++)
		paths[i] = owners->nodes[i]->path;
	resetStringInfo(text);
	if (!read_nodes(&owners->reading, ZK_READ_DATA, paths, owners->n, now))
		return 0;
	for (int i = 0; i < owners->n; i++)
	{
		const ZkReadNode *before = owners->nodes[i]->read;
		Note		note;

		note_parse(&note, before->bytes, before->data_len);
		if ((note.kind != NOTE_OF_INSTANCE && note.kind != NOTE_REVOCATION) ||
			!note_is_revocation(now[i]->bytes, now[i]->data_len))
			continue;
		if (n++ > 0)
			appendStringInfoChar(text, '\n');
		appendStringInfo(text, "Not answered: %s",
						 text_of_data(before->bytes, before->data_len));
	}
	pfree(paths);
	pfree(now);
	return n;
}

/*
 * Wait for a moment until the owners that are instances have acknowledged the
 * request, and warn if some have not.
 *
 * An instance sees it when it has owned the lock for about a second, and only
 * of so many locks at a time (worker/contender.c).
 */
static void
wait_until_acknowledged(Owners *owners)
{
	static uint32 wait_event = 0;
	int64		until = zk_now_ms() + ANSWER_MS;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "zklock owners",
												  ALLOCSET_DEFAULT_SIZES);
	StringInfoData text;
	int			n;

	initStringInfo(&text);
	for (;;)
	{
		MemoryContext save = MemoryContextSwitchTo(context);

		owners->reading.size = 0;
		n = find_unacknowledged(owners, &text);
		MemoryContextSwitchTo(save);
		MemoryContextReset(context);
		if (n == 0 || zk_now_ms() >= until)
			break;
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ANSWER_PAUSE_MS, ZkWaitEvent(wait_event, "ZkRead"));
		ResetLatch(MyLatch);
	}
	if (n > 0)
		ereport(WARNING,
				(errmsg("%d of %d owners of lock \"%s\" have not answered",
						n, owners->n, owners->reading.lock->name),
				 errdetail("%s", text.data),
				 errhint("Nothing has been canceled there.  Call zk_cancel_holders() or zk_terminate_holders() in that server.")));
	MemoryContextDelete(context);
	pfree(text.data);
}

/*
 * zk_cancel_holders(name text) returns integer
 *
 * Cancels the running statements of the holders of a lock.  Backends of this
 * server are canceled at once; other clients are asked to release the lock, by
 * the data that Curator's Revoker writes, unless zklock.exclusion is
 * "instance".  Returns how many were canceled or asked.
 *
 * Errors: as of zk_queue(); but if a backend of this server has been
 * canceled, 57P03 is only a WARNING.
 */
Datum
zk_cancel_holders(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	char		path[ZNODE_PATH_SIZE];
	int			canceled;
	int			asked = 0;
	Owners		owners = {0};

	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), &lock);
	key_path(&lock.key, path);
	canceled = cancel_local_holders(&lock);
	if (zklock_exclusion == ZK_EXCLUSION_FLEET)
		asked = ask_owners(&owners, &lock, canceled > 0);
	if (canceled + asked > 0)
		ereport(LOG,
				(errmsg("role \"%s\" cancels the statements of the holders of lock \"%s\"",
						GetUserNameFromId(GetUserId(), false), path),
				 errdetail("Statements canceled here: %d.  Contenders of others asked: %d.",
						   canceled, asked)));
	if (asked > 0)
		wait_until_acknowledged(&owners);
	PG_RETURN_INT32(canceled + asked);
}

/*
 * Terminate a session by PostgreSQL's own function, with its rules.  What it
 * does not allow is only a WARNING, as other holders are to end.
 *
 * The error is raised when nothing has happened, and needs no rollback.
 */
static bool
terminate_session(int pid)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	PG_TRY();
	{
		done = DatumGetBool(DirectFunctionCall2(pg_terminate_backend,
												Int32GetDatum(pid),
												Int64GetDatum(0)));
	}
	PG_CATCH();
	{
		ErrorData  *error;

		if (geterrcode() != ERRCODE_INSUFFICIENT_PRIVILEGE)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg_internal("%s", error->message),
				 errdetail("Process %d is not terminated.", pid)));
		FreeErrorData(error);
	}
	PG_END_TRY();
	return done;
}

/*
 * zk_terminate_holders(name text) returns integer
 *
 * Terminate the sessions of this server that hold a lock, as
 * pg_terminate_backend() does; its own last.  Returns how many.
 *
 * Warns if a claim holds the lock, which has no session.
 *
 * Errors: those of the name, as in zk_lock().
 */
Datum
zk_terminate_holders(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	char		path[ZNODE_PATH_SIZE];
	int			npids;
	int		   *pids;
	int			count = 0;
	bool		own = false;
	StringInfoData text;

	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), &lock);
	key_path(&lock.key, path);
	pids = slots_holders(&lock.key, &npids);
	initStringInfo(&text);
	for (int i = 0; i < npids; i++)
	{
		if (pids[i] == MyProcPid)
			own = true;
		else if (terminate_session(pids[i]))
			appendStringInfo(&text, count++ == 0 ? "%d" : ", %d", pids[i]);
	}
	if (own)
		appendStringInfo(&text, count++ == 0 ? "%d" : ", %d", MyProcPid);
	if (count > 0)
		ereport(LOG,
				(errmsg("role \"%s\" terminates the sessions that hold lock \"%s\"",
						GetUserNameFromId(GetUserId(), false), path),
				 errdetail_plural("Process: %s.", "Processes: %s.", count,
								  text.data)));
	if (claim_holds(&lock.key))
		ereport(WARNING,
				(errmsg("a claim holds lock \"%s\"", lock.name),
				 errdetail("A claim has no session that could be terminated."),
				 errhint("Call zk_cancel_holders() to end it.")));
	if (own)
		(void) terminate_session(MyProcPid);
	pfree(pids);
	PG_RETURN_INT32(count);
}
