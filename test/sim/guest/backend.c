/*-------------------------------------------------------------------------
 *
 * backend.c
 *		The processes of an instance: how they begin, and the statements of a
 *		backend's client.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/backend.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "access/xact.h"
#include "backend/acquire.h"
#include "backend/commit.h"
#include "backend/deadlock.h"
#include "backend/functions.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/timeout.h"
#include "interrupts.h"
#include "miscadmin.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/deadlocks.h"
#include "shared/reads.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/slots_private.h"
#include "shared/stats.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "worker/worker.h"

#define NROWS	8

extern void note_statement_start(void);
extern Datum zk_claim(PG_FUNCTION_ARGS);
extern Datum zk_try_claim(PG_FUNCTION_ARGS);
extern Datum zk_renew_claim(PG_FUNCTION_ARGS);
extern Datum zk_use_claim(PG_FUNCTION_ARGS);
extern Datum zk_end_claim(PG_FUNCTION_ARGS);

/* Which transaction has locked a row last. */
typedef struct Row
{
	TransactionId xid;
} Row;

static int	client;
static const SimStatement *current; /* of those that take locks */
static bool failed;				/* the transaction must be rolled back */
static int	nsavepoints;

/* What zklock.c does when it is loaded, and PostgreSQL at its start. */
static void
begin_process(bool worker)
{
	memory_begin();
	client = process_client(sim_process());
	MyBackendType = worker ? B_BG_WORKER : B_BACKEND;
	MyDatabaseId = worker ? InvalidOid : 5;
	cluster_name = pstrdup(instance_cluster_name(sim_instance()));
	ipc_begin();
	interrupts_begin(worker);
	LockTimeout = worker ? 0 : workload_lock_timeout(client);
	DeadlockTimeout = instance_setting(sim_instance(), "deadlock_timeout", 1000);

	settings_define();
	test_settings_define();
	instance_check_settings(sim_instance());
	commit_init();
	session_info_request_shmem();
	slots_request_shmem();
	claims_request_shmem();
	reads_request_shmem();
	stats_request_shmem();
	deadlocks_request_shmem();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	session_info_startup_shmem();
	slots_startup_shmem();
	claims_startup_shmem();
	reads_startup_shmem();
	stats_startup_shmem();
	deadlocks_startup_shmem();
	LWLockRelease(AddinShmemInitLock);
}

static void
run_worker(void)
{
	sigjmp_buf	on_error;

	begin_process(true);
	if (sigsetjmp(on_error, 0) != 0)
	{
		error_context_stack = NULL;
		HOLD_INTERRUPTS();
		EmitErrorReport();
		proc_exit(1);
	}
	PG_exception_stack = &on_error;
	zklock_worker_main((Datum) 0);
	sim_violation("worker", "the worker's main function has returned");
}

/*
 * Locks, as functions.c takes them.
 */
static void
make_key(int name, ZkLockName *lock)
{
	zk_lock_name(PointerGetDatum(cstring_to_text(workload_name(name))), false,
				 lock);
}

/* Which of the names this is. */
static int
number_of(const SimStatement *statement, const ZkKey *key)
{
	for (int i = 0; i < statement->nnames; i++)
		if (strcmp(workload_name(statement->names[i]), key->name) == 0)
			return statement->names[i];
	sim_violation("names", "a lock that nobody asked for: %s", key->name);
}

static void
report_failure(const ZkRequest *request, const ZkResult *result)
{
	switch (result->outcome)
	{
		case ZK_NO_SESSION:
			zk_report_no_session(ERROR, result->name, result->session);
			break;
		case ZK_DENIED:
			if (result->refusal == ZK_REFUSAL_NO_ROOM)
				ereport(ERROR,
						(errcode(ERRCODE_OUT_OF_MEMORY),
						 errmsg("no room for lock \"%s\"", result->name)));
			sim_violation("refusal", "ZooKeeper has refused \"%s\": %d",
						  result->name, result->refusal);
		case ZK_DEADLOCKED:
			check_deadlock(client, false);
			deadlock_report(result->deadlock);
			break;
		case ZK_HELD_ALL:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("lock \"%s\" is held already", request->name)));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not obtain lock \"%s\"", result->name)));
	}
}

/* Wait for the fencing token of a lock, as functions.c does. */
static void
read_token(int name, const ZkKey *key)
{
	HeldLock   *held = hold_find(key);
	int64		token = 0;
	ZkRefusal	refusal = ZK_REFUSAL_NONE;

	while (slot_read_token(held->proc, &token, &refusal) && token == 0 &&
		   refusal == ZK_REFUSAL_NONE)
		ConditionVariableSleep(slot_cv(held->proc->slot), 0);
	ConditionVariableCancelSleep();
	if (token != 0)
		check_token(client, name, token);
}

static void
tell_acquired(const ZkRequest *request, const ZkResult *result)
{
	check_want_end(client);
	for (int i = 0; i < request->nkeys; i++)
		if (!current->any || key_is_of_lock(result->key, &request->keys[i]))
		{
			const HeldLock *lock = hold_find(&request->keys[i]);

			check_acquired(client, number_of(current, &request->keys[i]),
						   current->mode, current->session,
						   slot_is_mine(lock->proc), hold_is_of_instance(lock));
		}
	if (request->nkeys == 1 && current->mode == SIM_EXCLUSIVE &&
		!hold_is_of_instance(hold_find(&request->keys[0])) &&
		sim_chance(250000))
		read_token(current->names[0], &request->keys[0]);
}

/*
 * What functions.c has for others.
 */
bool
acquire_or_fail(const ZkRequest *request)
{
	ZkResult	result;
	ZkOutcome	outcome = current->any ? acquire_any(request, &result) :
		acquire_locks(request, &result);

	if (outcome == ZK_ACQUIRED)
		tell_acquired(request, &result);
	else if (!(request->try &&
			   (outcome == ZK_NOT_IN_TIME || outcome == ZK_HELD_ALL)))
		report_failure(request, &result);
	else if (outcome == ZK_NOT_IN_TIME)
		check_denied(client, LockTimeout > 0 && LockTimeout < request->timeout ?
					 LockTimeout : request->timeout);
	return outcome == ZK_ACQUIRED;
}

ZnodeKind
kind_of_lock(bool shared)
{
	return shared ? ZNODE_READER :
		zklock_node_format == ZK_FORMAT_READWRITE ? ZNODE_WRITER : ZNODE_MUTEX;
}

int64
get_timeout(FunctionCallInfo fcinfo, int argno)
{
	return PG_ARGISNULL(argno) ? ZK_NO_TIMEOUT :
		PG_GETARG_INTERVAL_P(argno)->time / 1000;
}

static void
take_locks(const SimStatement *statement)
{
	ZkRequest	request = {.try = statement->try};
	ZkKey	   *keys = palloc(statement->nnames * sizeof(ZkKey));

	for (int i = 0; i < statement->nnames; i++)
	{
		ZkLockName	lock;

		make_key(statement->names[i], &lock);
		keys[i] = lock.key;
		if (statement->mode == SIM_PERMIT)
			key_in_mode(&lock.key, ZK_KEY_PERMIT, &keys[i]);
		if (i == 0)
			request.name = lock.name;
	}
	request.keys = keys;
	request.nkeys = statement->nnames;
	request.kind = statement->mode == SIM_PERMIT ? ZNODE_PERMIT :
		kind_of_lock(statement->mode == SIM_SHARED);
	request.permits = statement->mode == SIM_PERMIT ? statement->permits : 0;
	request.session = statement->session;
	request.timeout = statement->timeout_ms < 0 ? ZK_NO_TIMEOUT :
		statement->timeout_ms;
	if (!statement->any && request.nkeys > 1)
		qsort(keys, request.nkeys, sizeof(ZkKey), key_compare);
	(void) acquire_or_fail(&request);
}

/*
 * Claims.
 */
static Datum
call(PGFunction function, const NullableDatum *args, int nargs, bool *isnull)
{
	LOCAL_FCINFO(fcinfo, 3);
	FmgrInfo	flinfo = {.fn_nargs = nargs};
	Datum		result;

	InitFunctionCallInfoData(*fcinfo, &flinfo, nargs, InvalidOid, NULL, NULL);
	memcpy(fcinfo->args, args, nargs * sizeof(NullableDatum));
	result = function(fcinfo);
	*isnull = fcinfo->isnull;
	return result;
}

/* NULL unless it is positive, or 0 if that is a value, too. */
static NullableDatum
interval(int64 us, bool may_be_0)
{
	Interval   *value = palloc0(sizeof(Interval));

	value->time = us;
	return (NullableDatum)
	{
		.value = IntervalPGetDatum(value),.isnull = us < 0 || (us == 0 && !may_be_0)
	};
}

static NullableDatum
string(const char *s)
{
	return (NullableDatum)
	{
		.value = PointerGetDatum(cstring_to_text(s))
	};
}

static void
take_claim(const SimStatement *statement)
{
	NullableDatum args[] = {
		string(workload_name(statement->names[0])),
		interval(statement->ttl_us, false),
		interval(statement->timeout_ms < 0 ? -1 : statement->timeout_ms * 1000,
				 true)
	};
	bool		isnull;
	Datum		token;

	check_claim_taken(client, true);
	token = call(statement->try ? zk_try_claim : zk_claim, args, 3, &isnull);
	if (!isnull)
		check_claim_given(client, statement->names[0], statement->ttl_us,
						  text_to_cstring(DatumGetTextPP(token)));
}

static bool
call_for_claim(const SimStatement *statement)
{
	NullableDatum args[] = {
		string(claims_token(statement->claim)), interval(statement->ttl_us, false)
	};
	bool		isnull;

	switch (statement->step)
	{
		case STEP_RENEW_CLAIM:
			return DatumGetBool(call(zk_renew_claim, args, 2, &isnull));
		case STEP_USE_CLAIM:
			(void) call(zk_use_claim, args, 1, &isnull);
			return true;
		default:
			return DatumGetBool(call(zk_end_claim, args, 1, &isnull));
	}
}

static void
claim_statement(const SimStatement *statement)
{
	MemoryContext context = CurrentMemoryContext;
	bool		at_once = holds_may_go();
	bool		ok = false;

	commit_leave_lasting();
	commit_note_statement();
	check_claim_call(client, statement->claim,
					 statement->step == STEP_RENEW_CLAIM ? CLAIM_RENEW :
					 statement->step == STEP_USE_CLAIM ? CLAIM_USE : CLAIM_END);
	PG_TRY();
	{
		ok = call_for_claim(statement);
	}
	PG_CATCH();
	{
		check_claim_failed(client,
						   geterrcode() == ERRCODE_T_R_SERIALIZATION_FAILURE);
		commit_explain_cancel(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	check_claim_done(client, ok, at_once);
	commit_note_statement();
}

/* The view zk_claims, unless the clock is set meanwhile. */
static void
show_claims(void)
{
	TimestampTz boot = zk_wall_time(0);
	int			nrows;
	ZkClaimRow *rows = claims_snapshot(&nrows);
	int64		now = zk_now_us();

	if (zk_wall_time(0) != boot)
		return;
	for (int i = 0; i < nrows; i++)
		check_claim_shown(rows[i].users, now - (rows[i].ends - boot));
}

/* A lock function in a statement, as hooks.c wraps it. */
static void
lock_statement(const SimStatement *statement)
{
	MemoryContext context = CurrentMemoryContext;

	current = statement;
	commit_leave_lasting();
	commit_note_statement();
	zklock_exclusion = workload_is_alone(instance_number(sim_instance())) ?
		ZK_EXCLUSION_INSTANCE : ZK_EXCLUSION_FLEET;
	check_want(client, statement->names, statement->nnames, statement->mode,
			   statement->any, zklock_exclusion == ZK_EXCLUSION_INSTANCE);
	if (LockTimeout > 0 || statement->timeout_ms >= 0)
		check_want_timed(client);
	PG_TRY();
	{
		if (statement->step == STEP_CLAIM)
			take_claim(statement);
		else
			take_locks(statement);
	}
	PG_CATCH();
	{
		check_want_end(client);
		commit_explain_cancel(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	check_want_end(client);
	check_claim_taken(client, false);
	commit_note_statement();
}

static void
unlock_statement(int name)
{
	ZkLockName	lock;
	ZkKey		permit;

	commit_note_statement();
	make_key(name, &lock);
	key_in_mode(&lock.key, ZK_KEY_PERMIT, &permit);
	if (hold_find(&lock.key) || hold_find(&permit))
		check_unlocked(client, name, holds_may_go());
	if (!hold_release(&lock.key) && !hold_release(&permit))
		ereport(WARNING,
				(errmsg("you do not hold lock \"%s\"", lock.name)));
	commit_note_statement();
}

/*
 * As heap_lock_tuple(): the tuple's lock, then the last locker's transaction.
 */
static void
lock_row(int number)
{
	bool		found;
	Row		   *rows = instance_shmem(sim_instance(), "rows",
									  NROWS * sizeof(Row), &found);
	LOCKTAG		tuple;
	LOCKTAG		transaction;
	bool		have_tuple = false;

	xact_assign_id();
	SET_LOCKTAG_TUPLE(tuple, 5, 1000, 0, number + 1);
	for (;;)
	{
		TransactionId xid = rows[number].xid;
		bool		running = false;

		for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
			running |= xid != 0 && ProcGlobal->allProcs[i].pid != 0 &&
				ProcGlobal->allProcs[i].xid == xid;
		if (!running || xid == MyProc->xid)
			break;
		if (!have_tuple)
			(void) LockAcquire(&tuple, ExclusiveLock, false, false);
		have_tuple = true;
		SET_LOCKTAG_TRANSACTION(transaction, xid);
		(void) LockAcquire(&transaction, ShareLock, false, false);
		(void) LockRelease(&transaction, ShareLock, false);
	}
	rows[number].xid = MyProc->xid;
	if (have_tuple)
		(void) LockRelease(&tuple, ExclusiveLock, false);
}

static void
row_statement(int number)
{
	MemoryContext context = CurrentMemoryContext;

	commit_note_statement();
	holds_note_write();
	check_want_row(client, number);
	PG_TRY();
	{
		lock_row(number);
	}
	PG_CATCH();
	{
		check_want_end(client);
		commit_explain_cancel(context);
		PG_RE_THROW();
	}
	PG_END_TRY();
	check_want_end(client);
	check_acquired_row(client, number);
	commit_note_statement();
}

/* The client thinks; a cancel does nothing meanwhile. */
static void
idle(int64 us)
{
	int64		until = sim_now() + us;

	reading_command = true;
	while (sim_now() < until)
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 (long) ((until - sim_now() + 999) / 1000), 0);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	reading_command = false;
}

/* The next command is there: a signal that came before it is handled first. */
static void
end_reading(void)
{
	reading_command = true;
	signals_take();
	CHECK_FOR_INTERRUPTS();
	reading_command = false;
}

/* The transaction is about to commit: under which locks? */
void
note_holds(void)
{
	HeldLock   *lock = NULL;

	check_commit(client);
	while ((lock = holds_next(lock)) != NULL)
		if (!hold_is_of_instance(lock))
			check_commit_hold(client, key_name(&lock->key),
							  slot_is_mine(lock->proc));
}

static void
begin_xact(void)
{
	xact_start();
	nsavepoints = 0;
	failed = false;
	check_begin(client);
}

static void
run_statement(const SimStatement *statement)
{
	switch (statement->step)
	{
		case STEP_BEGIN:
			begin_xact();
			break;
		case STEP_LOCK:
		case STEP_CLAIM:
			lock_statement(statement);
			break;
		case STEP_RENEW_CLAIM:
		case STEP_USE_CLAIM:
		case STEP_END_CLAIM:
			claim_statement(statement);
			break;
		case STEP_SHOW_CLAIMS:
			show_claims();
			break;
		case STEP_ROW:
			row_statement(statement->row);
			break;
		case STEP_WRITE:
			commit_note_statement();
			holds_note_write();
			xact_assign_id();
			commit_note_statement();
			break;
		case STEP_UNLOCK:
			unlock_statement(statement->names[0]);
			break;
		case STEP_UNLOCK_ALL:
			commit_note_statement();
			check_unlocked_session(client, holds_may_go());
			holds_release_session();
			commit_note_statement();
			break;
		case STEP_SAVEPOINT:
			nsavepoints++;
			xact_savepoint();
			check_savepoint(client);
			break;
		case STEP_RELEASE:
			nsavepoints--;
			xact_release();
			check_release_savepoint(client);
			break;
		case STEP_IDLE:
			idle(statement->idle_us);
			break;
		case STEP_COMMIT:
			commit_note_statement();
			xact_commit();
			break;
		default:
			sim_lacks("this step");
	}
}

/* Whoever is not in a block is in a transaction for one statement. */
static void
run_in_transaction(const SimStatement *statement)
{
	bool		single = !xact_is_open() && statement->step != STEP_IDLE &&
	statement->step != STEP_BEGIN;

	if (single && statement->step == STEP_COMMIT)
		sim_lacks("COMMIT outside a block");
	if (single)
		begin_xact();
	run_statement(statement);
	if (single)
		xact_commit();
}

/* ROLLBACK, and ROLLBACK TO, come to their end even after an error. */
static void
roll_back(const SimStatement *statement)
{
	if (statement->step == STEP_ROLLBACK_TO && nsavepoints > 0)
	{
		if (!failed)
		{
			check_rolled_back_to(client);
			xact_abort_sub();
		}
		xact_savepoint();
		check_savepoint(client);
	}
	else
	{
		check_rolled_back(client);
		xact_abort();
		nsavepoints = 0;
	}
	failed = false;
}

/*
 * An error.  In a block, PostgreSQL undoes the innermost subtransaction at
 * once, and waits for ROLLBACK TO or the end of the block.
 */
static void
fail(bool in_block, SimStep step)
{
	failed = in_block && step != STEP_COMMIT;
	if (failed && nsavepoints > 0)
	{
		check_rolled_back_to(client);
		xact_abort_sub();
	}
	else
	{
		check_rolled_back(client);
		xact_abort();
	}
}

/* After an error only the end of the (sub)transaction is left. */
static bool
is_skipped(const SimStatement *statement)
{
	if (!failed)
		return false;
	return statement->step != STEP_ROLLBACK &&
		statement->step != STEP_ROLLBACK_TO &&
		statement->step != STEP_COMMIT && statement->step != STEP_IDLE;
}

static void
run_backend(void)
{
	sigjmp_buf	on_error;
	static SimStatement statement;
	static volatile bool in_block = false;

	begin_process(false);
	if (sigsetjmp(on_error, 0) != 0)
	{
		error_context_stack = NULL;
		HOLD_INTERRUPTS();
		reading_command = false;
		QueryCancelPending = false;
		EmitErrorReport();
		CurrentMemoryContext = MessageContext;
		check_failed(client, error_sqlstate(), error_message());
		fail(in_block, statement.step);
		check_claim_taken(client, false);
		FlushErrorState();
		RESUME_INTERRUPTS();
		workload_failed(client, error_sqlstate());
	}
	PG_exception_stack = &on_error;
	for (;;)
	{
		MemoryContextReset(MessageContext);
		CurrentMemoryContext = MessageContext;
		in_block = xact_is_open() || failed;
		workload_next(client, &statement);
		end_reading();
		if (statement.step == STEP_END)
			proc_exit(0);
		if (is_skipped(&statement))
			continue;
		note_statement_start();
		if (failed && statement.step == STEP_COMMIT)
			statement.step = STEP_ROLLBACK;
		if (statement.step == STEP_ROLLBACK || statement.step == STEP_ROLLBACK_TO)
			roll_back(&statement);
		else
			run_in_transaction(&statement);
		in_block = xact_is_open() || failed;
		CHECK_FOR_INTERRUPTS();
	}
}

/* What is left in shared memory. */
static void
inspect(int *slots, int *procs, long *bytes)
{
	*slots = slots_in_use();
	*procs = procs_in_use();
	*bytes = path_bytes_read(NULL);
}

extern PGDLLEXPORT const Guest guest;

const		Guest guest = {
	.worker = run_worker,
	.backend = run_backend,
	.inspect = inspect
};
