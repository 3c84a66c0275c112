/*-------------------------------------------------------------------------
 *
 * questions.c
 *		Functions that ask ZooKeeper, by way of the worker.
 *
 * They wait for an answer, but for zk_terminate_holders(), which is of this
 * instance alone.  The functions of views.c show shared memory, and never
 * wait.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/questions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "backend/deadlock.h"
#include "backend/names.h"
#include "backend/questions.h"
#include "backend/timeout.h"
#include "backend/values.h"
#include "catalog/pg_type.h"
#include "core/lock/note.h"
#include "core/member.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/holders.h"
#include "shared/outcome.h"
#include "shared/questions.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/text.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_queue);
PG_FUNCTION_INFO_V1(zk_fleet_locks);
PG_FUNCTION_INFO_V1(zk_fleet);
PG_FUNCTION_INFO_V1(zk_cancel_holders);
PG_FUNCTION_INFO_V1(zk_terminate_holders);

#define QUEUE_COLUMNS	10
#define FLEET_LOCKS_COLUMNS	13
#define FLEET_COLUMNS		13

/*
 * How long to wait until an instance has heard that it is to give a lock up,
 * and until looking again, in ms.
 */
#define HEARD_MS			3000
#define HEARD_PAUSE_MS		100

/* A question, from before it is asked until its answer is no longer needed. */
typedef struct Asking
{
	ZkBox	   *box;			/* NULL: not asked yet */
	const ZkAnswer *answer;		/* NULL: none yet */
	ZkSessionInfo session;		/* as of the end of the wait */
} Asking;

static void
end_asking(int code pg_attribute_unused(), Datum arg)
{
	Asking	   *asking = (Asking *) DatumGetPointer(arg);

	if (asking->box)
		question_end(asking->box);
	asking->box = NULL;
	asking->answer = NULL;
}

/*
 * Ask, and wait for the answer.  asking->answer is NULL if none has come by
 * the deadline (as of zk_now_ms(), or -1), or if there was no session for the
 * session timeout.  The caller calls end_asking(), after an error too.
 */
static void
ask(Asking *asking, ZkQuestion question, const char *path, int64 deadline)
{
	static uint32 wait_event = 0;
	int64		called_at = zk_now_ms();
	int64		no_session_since = 0;

	for (;;)
	{
		int64		sleep = zk_timeout_left(0, called_at, &no_session_since,
											&asking->session);
		int64		left = zk_time_left(deadline);

		if (asking->box == NULL)
			asking->box = question_ask(question, path);
		if (asking->box)
			asking->answer = question_answer(asking->box);
		if (deadline >= 0)
			sleep = Min(sleep, left);
		if (asking->answer || sleep <= 0)
			break;

		/* the first sleep on a condition variable only prepares */
		(void) ConditionVariableTimedSleep(question_cv(asking->box),
										   Min(sleep, INT_MAX),
										   ZkWaitEvent(wait_event, "ZkQuery"));
		CHECK_FOR_INTERRUPTS();
	}
	ConditionVariableCancelSleep();
}

/* Fail if the question was refused; lock: NULL if it is about all locks. */
static void
check_answer(const ZkAnswer *answer, const ZkLockName *lock, const char *path)
{
	if (answer->out_of_memory)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 lock ? errmsg("out of shared memory for the queue of lock \"%s\"",
							   lock->name) :
				 errmsg("out of shared memory for the queues below \"%s\"",
						path),
				 errhint("The server log has the details.")));
	if (answer->too_large)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many locks below \"%s\"", path),
				 errdetail("An answer has at most %d MB.",
						   ZK_ANSWER_MAX_BYTES / (1024 * 1024)),
				 errhint("Call zk_queue() for single locks, or look at zk_locks in each server.")));
	switch (answer->refusal)
	{
		case ZK_REFUSAL_NONE:
			break;
		case ZK_REFUSAL_ACCESS:
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 lock ? errmsg("ZooKeeper denied access to lock \"%s\"",
								   lock->name) :
					 errmsg("ZooKeeper denied access to \"%s\"", path),
					 errdetail("The credentials of this server do not allow it to read or change the znodes in \"%s\".",
							   path),
					 errhint("Check \"%s\", and the ACL of the znodes.",
							 secure_name_of_credentials())));
			break;
		case ZK_REFUSAL_NO_CHROOT:
		case ZK_REFUSAL_MIXED:
		case ZK_REFUSAL_PERMITS:
		case ZK_REFUSAL_ENDED:
		case ZK_REFUSAL_NO_ROOM:
		case ZK_REFUSAL_OTHER:
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 lock ? errmsg("ZooKeeper refused a request for lock \"%s\"",
								   lock->name) :
					 errmsg("ZooKeeper refused a request for \"%s\"", path),
					 errhint("The server log has the details.")));
			break;
	}
}

static const char *
queue_mode_name(ZkQueueMode mode)
{
	switch (mode)
	{
		case ZK_QUEUE_EXCLUSIVE:
			return "exclusive";
		case ZK_QUEUE_SHARED:
			return "shared";
		case ZK_QUEUE_PERMIT:
			return "permit";
	}
	return "unknown";
}

/* Copy the entries of an answer to our own memory; NULL if there are none. */
static char *
copy_entries(const ZkAnswer *answer)
{
	dsm_segment *segment;
	Size		size;
	char	   *copy;

	if (answer->segment == DSM_HANDLE_INVALID)
		return NULL;
	segment = dsm_attach(answer->segment);
	if (segment == NULL)
		elog(ERROR, "could not attach to the segment of an answer");
	size = dsm_segment_map_length(segment);
	copy = MemoryContextAllocHuge(CurrentMemoryContext, size);
	memcpy(copy, dsm_segment_address(segment), size);
	dsm_detach(segment);
	return copy;
}

static void
warn_of_left_out(const ZkAnswer *answer, const char *path)
{
	if (answer->left_out > 0)
		ereport(WARNING,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("not all znodes in \"%s\" are shown", path),
				 errdetail("%d are shown, %d more are not.",
						   answer->count, answer->left_out)));
}

/*
 * Ask about a lock or, if that is NULL, about all below "path"; returns a copy
 * of the answer's *count entries.
 *
 * Warns (54000) if there are more than are shown.
 *
 * Errors: 57P03 no session; 42501 or 58000 refused by ZooKeeper; 53200 no
 * memory for the answer; 54000 too many locks below "path"; 57014 cancelled.
 */
static char *
ask_entries(ZkQuestion question, const char *path, const ZkLockName *lock,
			int *count)
{
	Asking		asking = {0};
	char	   *volatile entries = NULL;

	*count = 0;
	PG_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	{
		ask(&asking, question, path, -1);
		if (asking.answer == NULL)
			zk_report_no_session(ERROR, lock ? lock->name : NULL,
								 &asking.session);
		check_answer(asking.answer, lock, path);
		entries = copy_entries(asking.answer);
		*count = asking.answer->count;
		warn_of_left_out(asking.answer, path);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	end_asking(0, PointerGetDatum(&asking));
	return entries;
}

/*
 * The data of a contender as text, without the waits of its holders, which are
 * for other workers.
 */
static char *
text_of_owner(const char *data, int len)
{
	char	   *kept = palloc(Max(len, 1));

	return text_of_data(kept, note_leave_out_waits(data, len, kept));
}

/*
 * The locks that the holders wait for, according to an instance's note; NULL:
 * none.
 */
static ArrayType *
waited_for(const char *data, int len)
{
	NoteWait	waits[NOTE_MAX_WAITS];
	int			nwaits = note_parse_waits(data, len, waits);
	Datum		names[NOTE_MAX_WAITS];
	int			n = 0;

	for (int i = 0; i < nwaits; i++)
	{
		char		lock[NOTE_VERTEX_SIZE];
		bool		known = waits[i].kind == NOTE_WAIT_SESSION;

		note_lock_of(&waits[i], lock);
		for (int j = 0; j < i && !known; j++)
		{
			char		other[NOTE_VERTEX_SIZE];

			note_lock_of(&waits[j], other);
			known = strcmp(lock, other) == 0;
		}
		if (!known)
			names[n++] = CStringGetTextDatum(path_lock_name(lock));
	}
	return n == 0 ? NULL :
		construct_array(names, n, TEXTOID, -1, false, TYPALIGN_INT);
}

/* Convert ZooKeeper's time; false if it is out of our range. */
static bool
timestamp_of_ctime(int64 ctime, TimestampTz *result)
{
	const int64 epoch_ms = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) *
	(USECS_PER_DAY / 1000);

	if (ctime <= 0 || ctime > END_TIMESTAMP / 1000)
		return false;
	*result = (ctime - epoch_ms) * 1000;
	return true;
}

/*
 * Put the data of a contender, and its parts, into five columns from values[n]
 * on.  Returns the number of the next column.
 *
 * "of_claim": a claim of this instance has the lock, so that the process in
 * the note, which took the lock, holds it no more.
 */
static int
put_owner(const char *data, int len, bool of_claim, Datum *values, bool *nulls,
		  int n)
{
	Note		note;

	note_parse(&note, data, len);
	nulls[n] = len < 0;
	if (!nulls[n])
		values[n] = CStringGetTextDatum(text_of_owner(data, len));
	n++;
	nulls[n] = (note.words & NOTE_CLUSTER) == 0;
	if (!nulls[n])
		values[n] = CStringGetTextDatum(text_of_string(note.cluster_name));
	n++;
	nulls[n] = (note.words & NOTE_HOST) == 0;
	if (!nulls[n])
		values[n] = CStringGetTextDatum(text_of_string(note.host));
	n++;
	nulls[n] = (note.words & NOTE_PORT) == 0;
	values[n++] = Int32GetDatum(note.port);
	nulls[n] = (note.words & NOTE_PID) == 0 || of_claim;
	values[n++] = Int32GetDatum(note.pid);
	return n;
}

/* Has a claim of this instance the lock whose first holder this is? */
static bool
is_of_claim(const ZkFleetLockEntry *entry, const char *directory)
{
	ZkKey		key;

	if (!entry->ours || entry->mode != ZK_QUEUE_EXCLUSIVE ||
		entry->name_len > ZNODE_MAX_NAME)
		return false;
	key_make(zklock_root, directory, &key);
	return claim_is_in_way(&key);
}

static void
put_fleet_lock(ReturnSetInfo *rsinfo, const ZkFleetLockEntry *entry)
{
	Datum		values[FLEET_LOCKS_COLUMNS] = {0};
	bool		nulls[FLEET_LOCKS_COLUMNS] = {0};
	char	   *directory = pnstrdup(entry->bytes, entry->name_len);
	ArrayType  *waits = NULL;
	TimestampTz queued_at = 0;
	TimestampTz waiter_since = 0;
	int			n = 0;

	if (entry->data_len > 0)
		waits = waited_for(entry->bytes + entry->name_len, entry->data_len);
	values[n++] = CStringGetTextDatum(path_lock_name(directory));
	nulls[n] = entry->refused;
	values[n++] = CStringGetTextDatum(queue_mode_name(entry->mode));
	nulls[n] = entry->refused;
	values[n++] = Int32GetDatum(entry->nholders);
	n = put_owner(entry->bytes + entry->name_len, entry->data_len,
				  is_of_claim(entry, directory), values, nulls, n);
	nulls[n] = !timestamp_of_ctime(entry->since, &queued_at);
	values[n++] = TimestampTzGetDatum(queued_at);
	nulls[n] = entry->refused;
	values[n++] = Int32GetDatum(entry->nwaiters);
	nulls[n] = !timestamp_of_ctime(entry->waiter_since, &waiter_since);
	values[n++] = interval_of_us(Max(entry->seen - waiter_since, 0));
	nulls[n] = waits == NULL;
	values[n++] = PointerGetDatum(waits);
	values[n++] = TimestampTzGetDatum(entry->seen);
	Assert(n == FLEET_LOCKS_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
put_entry(ReturnSetInfo *rsinfo, int position, const char *path,
		  const ZkQueueEntry *entry, bool claimed)
{
	Datum		values[QUEUE_COLUMNS] = {0};
	bool		nulls[QUEUE_COLUMNS] = {0};
	TimestampTz queued_at = 0;
	int			n = 0;

	values[n++] = Int32GetDatum(position);
	values[n++] = CStringGetTextDatum(psprintf("%s/%s", path,
											   text_of_data(entry->bytes,
															entry->node_len)));
	values[n++] = CStringGetTextDatum(queue_mode_name(entry->mode));
	n = put_owner(entry->bytes + entry->node_len, entry->data_len,
				  claimed && entry->ours && entry->mode == ZK_QUEUE_EXCLUSIVE,
				  values, nulls, n);
	nulls[n] = entry->session_id == 0;
	values[n++] = session_id_text(entry->session_id);
	nulls[n] = !timestamp_of_ctime(entry->ctime, &queued_at);
	values[n++] = TimestampTzGetDatum(queued_at);
	Assert(n == QUEUE_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_queue(name text) returns setof record
 *
 * The contenders for a lock as ZooKeeper has them now, in the order of the
 * queue; for a semaphore, first those that have a permit, then those that wait
 * for one.
 *
 * Errors: those of the name, as in zk_lock(); 57P03 no session; 42501 or 58000
 * refused by ZooKeeper; 53200 no memory for the answer; 57014 cancelled.
 */
Datum
zk_queue(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkLockName	lock;
	char		path[ZNODE_PATH_SIZE];
	int			count;
	char	   *next;
	bool		claimed;

	zk_check_fleet(fcinfo->flinfo->fn_oid);
	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), &lock);
	key_path(&lock.key, path);
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, QUEUE_COLUMNS);

	next = ask_entries(ZK_QUESTION_QUEUE, path, &lock, &count);
	claimed = claim_is_in_way(&lock.key);
	for (int i = 1; i <= count; i++)
	{
		const ZkQueueEntry *entry = (ZkQueueEntry *) next;

		CHECK_FOR_INTERRUPTS();
		put_entry(rsinfo, i, path, entry, claimed);
		next += ZkQueueEntrySize(entry);
	}
	return (Datum) 0;
}

/*
 * zk_fleet_locks() returns setof record
 *
 * Each lock below zklock.root that an instance or another client holds or
 * waits for, as ZooKeeper had it when the worker read it.
 *
 * Errors: those of zk_check_usable(); 57P03 no session; 42501 or 58000 refused
 * by ZooKeeper; 53200 no memory for the answer; 54000 more locks than fit into
 * one; 57014 cancelled.
 */
Datum
zk_fleet_locks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			count;
	char	   *next;
	MemoryContext row_context;

	zk_check_usable();
	zk_check_fleet(fcinfo->flinfo->fn_oid);
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, FLEET_LOCKS_COLUMNS);

	row_context = AllocSetContextCreate(CurrentMemoryContext, "zklock row",
										ALLOCSET_SMALL_SIZES);
	next = ask_entries(ZK_QUESTION_QUEUES, zklock_root, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		const ZkFleetLockEntry *entry = (ZkFleetLockEntry *) next;
		MemoryContext save = MemoryContextSwitchTo(row_context);

		CHECK_FOR_INTERRUPTS();
		put_fleet_lock(rsinfo, entry);
		next += ZkFleetLockEntrySize(entry);
		MemoryContextSwitchTo(save);
		MemoryContextReset(row_context);
	}
	return (Datum) 0;
}

static Datum
text_value(const char *value)
{
	return CStringGetTextDatum(text_of_string(value));
}

/* The member's misfits, as an array. */
static Datum
misfits_of(const Member *member)
{
	Datum		texts[MEMBER_MISFITS];
	int			n = 0;

	for (int i = 0; i < MEMBER_MISFITS; i++)
		if (member->misfits & (1U << i))
			texts[n++] = CStringGetTextDatum(member_misfit_text(1 << i));
	return PointerGetDatum(construct_array(texts, n, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

static void
put_member(ReturnSetInfo *rsinfo, const Member *member,
		   const ZkQueueEntry *entry, int64 session_id)
{
	Datum		values[FLEET_COLUMNS] = {0};
	bool		nulls[FLEET_COLUMNS];
	TimestampTz started_at = 0;
	int			n = 0;

#define PUT(known, value) \
	do { nulls[n] = !(known); values[n++] = (value); } while (0)

	PUT(member->words & MEMBER_CLUSTER, text_value(member->cluster_name));
	PUT(member->words & MEMBER_HOST, text_value(member->host));
	PUT(member->words & MEMBER_PORT, Int32GetDatum(member->port));
	PUT(member->words & MEMBER_STANDBY, BoolGetDatum(member->standby != 0));
	PUT(member->words & MEMBER_VERSION, text_value(member->version));
	PUT(member->words & MEMBER_SERVER, text_value(member->server));
	PUT(member->words & MEMBER_SYSTEM, Int64GetDatum((int64) member->system));
	PUT(member->words & MEMBER_FORMAT, text_value(member->format));
	PUT(member->words & MEMBER_TIMEOUT,
		interval_of_us((int64) member->timeout * 1000));
	PUT(timestamp_of_ctime(entry->ctime, &started_at),
		TimestampTzGetDatum(started_at));
	PUT(entry->session_id != 0, session_id_text(entry->session_id));
	PUT(entry->session_id != 0, BoolGetDatum(entry->session_id == session_id));
	PUT(member->misfits != 0, misfits_of(member));
#undef PUT
	Assert(n == FLEET_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_fleet() returns setof record
 *
 * The instances that share the worker's ensemble and root, as ZooKeeper had
 * them when the worker read it, and their misfits.
 *
 * Errors: those of zk_check_usable() and ask_entries().
 */
Datum
zk_fleet(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkFleetInfo fleet;
	ZkSessionInfo session;
	int			count;
	char	   *entries;
	char	   *next;
	Member	   *members;

	zk_check_usable();
	zk_check_fleet(fcinfo->flinfo->fn_oid);
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, FLEET_COLUMNS);

	/* of the worker's root, not this session's zklock.root */
	session_read_fleet(&fleet);
	entries = ask_entries(ZK_QUESTION_FLEET,
						  psprintf("%s/%s", fleet.root, MEMBER_DIR), NULL,
						  &count);
	session_read(0, &session);
	members = palloc(Max(count, 1) * sizeof(Member));
	next = entries;
	for (int i = 0; i < count; i++)
	{
		const ZkQueueEntry *entry = (ZkQueueEntry *) next;

		member_parse(&members[i], entry->bytes + entry->node_len,
					 entry->data_len);
		members[i].since = entry->ctime;
		next += ZkQueueEntrySize(entry);
	}
	member_judge(members, count);

	next = entries;
	for (int i = 0; i < count; i++)
	{
		const ZkQueueEntry *entry = (ZkQueueEntry *) next;

		CHECK_FOR_INTERRUPTS();
		put_member(rsinfo, &members[i], entry, session.client_id);
		next += ZkQueueEntrySize(entry);
	}
	return (Datum) 0;
}

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
	int			cancelled;

	for (int i = 0; i < npids; i++)
	{
		PGPROC	   *proc = BackendPidGetProc(pids[i]);

		if (proc && may_cancel(proc, pids[i], lock))
			pids[nallowed++] = pids[i];
	}
	cancelled = slots_cancel_holders(&lock->key, pids, nallowed);
	if (claim_end_of(&lock->key))
	{
		char		path[ZNODE_PATH_SIZE];

		cancelled++;
		key_path(&lock->key, path);
		ereport(LOG,
				(errmsg("claim of lock \"%s\" has ended because zk_cancel_holders() was called",
						path)));
	}
	pfree(pids);
	return cancelled;
}

/*
 * Ask the owners that are other instances or clients.  Returns how many were
 * asked; *owners has all owners as they were before, *nowners of them.
 *
 * Without a session that is an error, or a WARNING if "warn".
 */
static int
ask_owners(const ZkLockName *lock, const char *path, bool warn,
		   char **owners, int *nowners)
{
	Asking		asking = {0};
	volatile int count = 0;

	*owners = NULL;
	*nowners = 0;
	PG_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	{
		ask(&asking, ZK_QUESTION_REVOKE, path, -1);
		if (asking.answer == NULL)
			zk_report_no_session(warn ? WARNING : ERROR, lock->name,
								 &asking.session);
		else
		{
			check_answer(asking.answer, lock, path);
			*owners = copy_entries(asking.answer);
			*nowners = asking.answer->count;
			count = asking.answer->revoked;
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	end_asking(0, PointerGetDatum(&asking));
	return count;
}

/* Does the contender of this entry still show the request to give way? */
static bool
shows_request(const ZkQueueEntry *owner, const char *next, int count)
{
	for (int i = 0; i < count; i++)
	{
		const ZkQueueEntry *entry = (const ZkQueueEntry *) next;

		if (entry->node_len == owner->node_len &&
			memcmp(entry->bytes, owner->bytes, owner->node_len) == 0)
			return entry->data_len >= 0 &&
				note_is_revocation(entry->bytes + entry->node_len,
								   entry->data_len);
		next += ZkQueueEntrySize(entry);
	}
	return false;
}

/*
 * Of the owners that are instances, those that have not heard of the request:
 * they would say again who they are.  Returns how many they are, and adds a
 * line for each to "text".
 */
static int
find_unheard(const ZkLockName *lock, const char *path, const char *owners,
			 int nowners, StringInfo text)
{
	int			n = 0;
	int			count;
	char	   *now = ask_entries(ZK_QUESTION_QUEUE, path, lock, &count);

	resetStringInfo(text);
	for (int i = 0; i < nowners; i++)
	{
		const ZkQueueEntry *owner = (const ZkQueueEntry *) owners;
		const char *data = owner->bytes + owner->node_len;
		Note		note;

		owners += ZkQueueEntrySize(owner);
		note_parse(&note, data, owner->data_len);
		if ((note.kind != NOTE_OF_INSTANCE &&
			 !note_is_revocation(data, owner->data_len)) ||
			!shows_request(owner, now, count))
			continue;
		if (n++ > 0)
			appendStringInfoChar(text, '\n');
		appendStringInfo(text, "Not answered: %s",
						 text_of_owner(data, owner->data_len));
	}
	if (now)
		pfree(now);
	return n;
}

/*
 * Wait for a moment until the owners that are instances have heard of the
 * request, and warn if some have not.
 *
 * An instance hears of it when it has owned the lock for about a second, and
 * only of so many locks at a time (worker/lock/checks.c).
 */
static void
wait_until_heard(const ZkLockName *lock, const char *path, const char *owners,
				 int nowners)
{
	static uint32 wait_event = 0;
	int64		until = zk_now_ms() + HEARD_MS;
	StringInfoData text;
	int			unheard;

	initStringInfo(&text);
	while ((unheard = find_unheard(lock, path, owners, nowners, &text)) > 0 &&
		   zk_now_ms() < until)
	{
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 HEARD_PAUSE_MS, ZkWaitEvent(wait_event, "ZkQuery"));
		ResetLatch(MyLatch);
	}
	if (unheard > 0)
		ereport(WARNING,
				(errmsg("%d of %d owners of lock \"%s\" have not answered",
						unheard, nowners, lock->name),
				 errdetail("%s", text.data),
				 errhint("Nothing has been canceled there.  Call zk_cancel_holders() or zk_terminate_holders() in that server.")));
	pfree(text.data);
}

/*
 * zk_cancel_holders(name text) returns integer
 *
 * Cancels the running statements of the holders of a lock.  Backends of this
 * server are canceled at once; other clients are asked to release the lock, by
 * the data that Curator's Revoker writes, unless zklock.exclusion is
 * "instance".  Returns how many were cancelled or asked.
 *
 * Errors: as of zk_queue(); but if a backend of this server has been
 * cancelled, 57P03 is only a WARNING.
 */
Datum
zk_cancel_holders(PG_FUNCTION_ARGS)
{
	ZkLockName	lock;
	char		path[ZNODE_PATH_SIZE];
	int			cancelled;
	int			asked = 0;
	char	   *owners;
	int			nowners;

	zk_lock_name(PG_GETARG_DATUM(0), PG_ARGISNULL(0), &lock);
	key_path(&lock.key, path);
	cancelled = cancel_local_holders(&lock);
	if (zklock_exclusion == ZK_EXCLUSION_FLEET)
		asked = ask_owners(&lock, path, cancelled > 0, &owners, &nowners);
	if (cancelled + asked > 0)
		ereport(LOG,
				(errmsg("role \"%s\" cancels the statements of the holders of lock \"%s\"",
						GetUserNameFromId(GetUserId(), false), path),
				 errdetail("Statements canceled here: %d.  Contenders of others asked: %d.",
						   cancelled, asked)));
	if (asked > 0)
		wait_until_heard(&lock, path, owners, nowners);
	PG_RETURN_INT32(cancelled + asked);
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

/*
 * Append how an owner describes itself, and what it waits for.  The last word
 * is ignored, since it may be cut.
 */
static void
describe_owner(StringInfo buf, const char *data, int len)
{
	char		text[NOTE_SIZE];
	Note		note;
	NoteWait	waits[NOTE_MAX_WAITS];
	int			nwaits;

	while (len == ZK_ANSWER_MAX_DATA && len > 0 && data[len - 1] != ' ')
		len--;
	note_parse(&note, data, len);
	if (note.kind == NOTE_OF_INSTANCE)
		(void) note_write(&note, text);
	appendStringInfo(buf, "First in the queue: %s",
					 note.kind == NOTE_OF_INSTANCE ? text :
					 text_of_data(data, Min(len, NOTE_SIZE - 1)));

	nwaits = note_parse_waits(data, len, waits);
	for (int i = 0; i < nwaits; i++)
	{
		char		lock[NOTE_VERTEX_SIZE];

		if (waits[i].kind == NOTE_WAIT_SESSION)
			continue;
		note_lock_of(&waits[i], lock);
		deadlock_append_wait(buf, note.words & NOTE_CLUSTER ?
							 note.cluster_name :
							 note.words & NOTE_HOST ? note.host : "?",
							 waits[i].hold.pid, waits[i].wait.pid,
							 note_wait_kind(&waits[i]), lock);
		appendStringInfoChar(buf, '.');
	}
}

/*
 * ask_owner
 *		Ask how the first contender for a lock describes itself, and what it
 *		waits for, for the log.
 *
 * Appends a line for each; returns false, and appends nothing, if there is no
 * answer within the timeout.  The caller may have prepared to sleep on a
 * condition variable: its next sleep prepares anew, and returns at once.
 *
 * Errors: 57014 cancelled; out of memory.
 */
bool
ask_owner(const char *path, int timeout_ms, StringInfo owner)
{
	Asking		asking = {0};
	char		data[ZK_ANSWER_MAX_DATA];
	volatile int len = -1;

	PG_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	{
		ask(&asking, ZK_QUESTION_OWNER, path, zk_now_ms() + timeout_ms);
		if (asking.answer && asking.answer->data_len >= 0)
		{
			len = asking.answer->data_len;
			memcpy(data, asking.answer->data, len);
		}
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	end_asking(0, PointerGetDatum(&asking));
	if (len < 0)
		return false;
	describe_owner(owner, data, len);
	return true;
}

/* Remember the instances in an answer. */
static void
note_instances(const char *next, int count)
{
	ZkInstance *instances = palloc0(Max(count, 1) * sizeof(ZkInstance));
	int			n = 0;

	for (int i = 0; i < count; i++)
	{
		const ZkQueueEntry *entry = (const ZkQueueEntry *) next;
		Member		member;

		next += ZkQueueEntrySize(entry);
		member_parse(&member, entry->bytes + entry->node_len, entry->data_len);
		if (!(member.words & MEMBER_ID))
			continue;
		strlcpy(instances[n].id, member.id, WORD_VALUE_SIZE);
		strlcpy(instances[n].cluster_name, member.cluster_name,
				WORD_VALUE_SIZE);
		strlcpy(instances[n].host, member.host, WORD_VALUE_SIZE);
		instances[n++].port = member.port;
	}
	instances_write(instances, n);
	pfree(instances);
}

/* Read the instances of the fleet, if ZooKeeper answers within the timeout. */
static void
ask_instances(int timeout_ms)
{
	Asking		asking = {0};
	ZkFleetInfo fleet;

	session_read_fleet(&fleet);
	PG_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	{
		ask(&asking, ZK_QUESTION_FLEET,
			psprintf("%s/%s", fleet.root, MEMBER_DIR),
			zk_now_ms() + timeout_ms);
		if (asking.answer && asking.answer->refusal == ZK_REFUSAL_NONE)
			note_instances(asking.answer->count > 0 ?
						   copy_entries(asking.answer) : NULL,
						   asking.answer->count);
	}
	PG_END_ENSURE_ERROR_CLEANUP(end_asking, PointerGetDatum(&asking));
	end_asking(0, PointerGetDatum(&asking));
}

/*
 * ask_instance
 *		Which instance of the fleet has this id, by its name and address; false
 *		if none has, or it is not known within the timeout.
 *
 * Anybody can make up ids, so the instances are read again only when it is a
 * while since they were.
 *
 * Errors: 57014 cancelled; out of memory.
 */
bool
ask_instance(const char *id, int timeout_ms, StringInfo buf)
{
	ZkInstance	instance;
	bool		known;
	bool		found = instances_find(id, &instance, &known);

	if (!known)
	{
		ask_instances(timeout_ms);
		found = instances_find(id, &instance, &known);
	}
	if (found)
		appendStringInfo(buf, "\"%s\" (host %s, port %d)",
						 text_of_string(instance.cluster_name),
						 text_of_string(instance.host), instance.port);
	return found;
}
