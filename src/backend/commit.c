/*-------------------------------------------------------------------------
 *
 * commit.c
 *		The end of a transaction that holds locks.
 *
 * Before the commit, a check makes sure that every lock is still ours.  The
 * slot of a lock is dropped when the commit is visible and all callbacks for
 * XACT_EVENT_COMMIT have run, since that of a foreign data wrapper may commit
 * on another server.  The slot is dropped before the heavyweight lock is
 * released, so that the next backend that gets the heavyweight lock finds the
 * slot dropped.  A rollback drops the slot at once: it makes nothing visible,
 * and a foreign server may delay a callback.
 *
 * For a command whose effects a rollback does not undo, the check comes before
 * the command, and not before its commits.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/commit.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/commit.h"
#include "backend/holds.h"
#include "backend/names.h"
#include "backend/timeout.h"
#include "catalog/pg_database.h"
#include "commands/async.h"
#include "core/mutation.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/take.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/resowner.h"

/* How long a commit waits for an answer before it asks again, in ms. */
#define PROOF_RECHECK_MS	100

/* The age from which an answer of ZooKeeper proves nothing, in ms. */
#define PROOF_MAX_AGE_MS	1000

/* How long a commit that waits keeps the lock of NOTIFY's queue, in ms. */
#define QUEUE_LOCK_MS		1000

/* The latest transaction that may use foreign tables. */
static LocalTransactionId used_foreign_in = InvalidLocalTransactionId;

/* Another callback may come before ours: see commit_check_first(). */
static bool be_first = false;

/* The arguments of our transaction callback, one for each registration. */
static uintptr_t first_registration = 1;
static uintptr_t last_registration = 1;

/* The latest transaction that has been checked. */
static LocalTransactionId checked_in = InvalidLocalTransactionId;

/*
 * The latest transaction in which a statement began or ended, and when the
 * statement's command came from the client.
 */
static LocalTransactionId statement_in = InvalidLocalTransactionId;
static TimestampTz command_began_at = 0;

/* The state of a command with lasting effects. */
typedef enum Lasting
{
	LASTING_NONE,
	LASTING_RUNNING,			/* the command may commit several times */
	LASTING_DONE				/* its last commit is to come */
} Lasting;

static Lasting lasting = LASTING_NONE;

/* A check under way. */
typedef struct CommitCheck
{
	uint32		ticket;			/* of proof_ask() */
	int64		begun_at;		/* as of zk_now_ms(): start of the wait; 0:
								 * none yet */
	int64		asked_at;		/* as of zk_now_ms(); 0: not asked */
	int64		queue_locked_at;	/* as of zk_now_ms() */
	bool		notified;		/* the transaction has used NOTIFY */
	bool		waiting;		/* for a proof */
	bool		logged;			/* for log_lock_waits */
} CommitCheck;

static void zk_xact_callback(XactEvent event, void *arg);

/*
 * commit_check_first
 *		Make our transaction callback the first one, if another may come before
 *		it.
 *
 * Callbacks run in the reverse order of registration, and our check must run
 * before postgres_fdw's callback, which commits the remote side.
 *
 * A statement that another callback runs may call this function, while
 * PostgreSQL walks the list of callbacks.  So older registrations are kept
 * until the transaction ends: one is called if the new one is not.
 */
void
commit_check_first(void)
{
	if (!be_first)
		return;
	RegisterXactCallback(zk_xact_callback, (void *) (last_registration + 1));
	last_registration++;
	be_first = false;
}

/*
 * Remove all but the latest registration; not called by zk_xact_callback().
 *
 * Later registrations are removed first, since PostgreSQL searches from the
 * latest, and each statement that used a foreign table may have added one.
 */
static void
forget_registrations(void)
{
	for (uintptr_t i = last_registration - 1; i >= first_registration; i--)
		UnregisterXactCallback(zk_xact_callback, (void *) i);
	first_registration = last_registration;
}

/*
 * commit_note_foreign
 *		Note that the transaction may use a foreign table.
 */
void
commit_note_foreign(void)
{
	used_foreign_in = ZkMyLocalTransactionId;
	be_first = true;
}

/*
 * commit_note_statement
 *		Note that a statement begins or ends in the current transaction.
 */
void
commit_note_statement(void)
{
	statement_in = ZkMyLocalTransactionId;
	command_began_at = GetCurrentStatementStartTimestamp();
}

/*
 * Fail if this instance knows that a lock is lost.  From here on, the loss of
 * a lock does not cancel this backend.
 */
static void
begin_commit_of_holds(void)
{
	HeldLock   *lock = NULL;

	while ((lock = holds_next(lock)) != NULL)
		if (!slot_begin_commit(lock->proc) &&
			!(ZK_MUTATED(ZK_CLAIM_UNCHECKED) && lock->uses_claim))
			hold_report_lost(&lock->key, true);
}

/* From here on, the loss of a lock cancels this backend. */
static void
end_commit_of_holds(void)
{
	HeldLock   *lock = NULL;

	while ((lock = holds_next(lock)) != NULL)
		if (lock->proc->committing)
			slot_end_commit(lock->proc);
}

/*
 * If the error under way is a cancel and a lock is lost, report the loss
 * instead: the worker cancels the holders of a lost lock.
 */
static void
explain_cancel(MemoryContext context, bool committing)
{
	HeldLock   *lock = NULL;

	if (geterrcode() != ERRCODE_QUERY_CANCELED)
		return;
	while ((lock = holds_next(lock)) != NULL)
	{
		if (slot_is_mine(lock->proc))
			continue;
		MemoryContextSwitchTo(context);
		FlushErrorState();
		hold_report_lost(&lock->key, committing);
	}
}

/*
 * commit_explain_cancel
 *		Report a lost lock (40001) in place of the error under way, if the
 *		statement was canceled for that reason.
 *
 * Called in PG_CATCH() of the outermost statement only, since a function could
 * catch the error and continue.  "context" is the memory context of PG_TRY().
 */
void
commit_explain_cancel(MemoryContext context)
{
	explain_cancel(context, false);
}

/*
 * Has the transaction used NOTIFY (or LISTEN)?  If so, AtPrepare_Notify()
 * raises an error.  That function changes nothing, so no rollback is needed.
 */
static bool
has_notified(void)
{
	MemoryContext context = CurrentMemoryContext;
	bool		save_exit = ExitOnAnyError;
	volatile bool notified = false;

	ExitOnAnyError = false;
	PG_TRY();
	{
		AtPrepare_Notify();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		notified = true;
	}
	PG_END_TRY();
	ExitOnAnyError = save_exit;
	return notified;
}

/*
 * Take the lock that each transaction with NOTIFY holds while it commits.
 * PostgreSQL takes the lock between our check and the commit, and may wait for
 * a long time.  So we take the lock before the check.
 */
static void
lock_notify_queue(void)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		LockSharedObject(DatabaseRelationId, InvalidOid, 0,
						 AccessExclusiveLock);
	}
	PG_CATCH();
	{
		explain_cancel(context, true);
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/* Let other backends with NOTIFY commit while we wait. */
static void
unlock_notify_queue(void)
{
	UnlockSharedObject(DatabaseRelationId, InvalidOid, 0, AccessExclusiveLock);
}

/* Does this backend hold a lock that excludes other instances? */
static bool
is_one_in_zookeeper(void)
{
	HeldLock   *lock = NULL;

	while ((lock = holds_next(lock)) != NULL)
		if (!hold_is_of_instance(lock))
			return true;
	return false;
}

/*
 * Is it proved, as zklock.commit_check requires, that the session has not
 * ended?  "proved_at" is when a request was sent that confirmed it, or 0.
 */
static bool
is_session_proved(int64 lease, int64 proved_at)
{
	int64		now = zk_now_ms();

	switch (zklock_commit_check)
	{
		case ZK_CHECK_LEASE:
			return now < lease;
		case ZK_CHECK_QUORUM:
			if (ZK_MUTATED(ZK_PROOF_UNASKED))
				return true;
			if (ZK_MUTATED(ZK_LEASE_FOR_QUORUM))
				return now < lease;
			return proved_at != 0 && now < proved_at + PROOF_MAX_AGE_MS;
		default:
			return true;
	}
}

/* The lock that messages about the wait for a proof name. */
static const char *
first_name(void)
{
	return key_name(&holds_next(NULL)->key);
}

/*
 * How long the commit may wait for a proof before it asks again, in ms.  Fails
 * (40001) if zklock.commit_timeout has passed.
 */
static long
time_for_proof(CommitCheck *check)
{
	int64		now = zk_now_ms();
	int64		left;

	if (zklock_commit_timeout == 0)
		return PROOF_RECHECK_MS;
	left = check->begun_at + zklock_commit_timeout - now;
	if (left <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not commit because lock \"%s\" may have been lost",
						first_name()),
				 errdetail("ZooKeeper has not confirmed the session of this server within %d ms.",
						   zklock_commit_timeout),
				 errhint("Retry the transaction.")));
	return (long) Min(left, PROOF_RECHECK_MS);
}

/*
 * Log once why the commit has waited for deadlock_timeout, as the lock manager
 * does with log_lock_waits.  This function may reset the latch.
 */
static void
log_wait(CommitCheck *check)
{
	int64		waited = zk_now_ms() - check->begun_at;
	char	   *outage;

	if (!log_lock_waits || check->logged || waited < DeadlockTimeout)
		return;
	check->logged = true;
	outage = zk_describe_outage();
	ereport(LOG,
			(errmsg("process %d still waiting for ZooKeeper to confirm lock \"%s\" ahead of its commit after %lld ms",
					MyProcPid, first_name(), (long long) waited),
			 outage ? errdetail_log("%s", outage) :
			 errdetail_log("ZooKeeper has not answered for %lld ms.",
						   (long long) waited)));
}

/* Log the success of a wait that was logged; a failure is an error. */
static void
log_wait_end(const CommitCheck *check)
{
	if (check->logged)
		ereport(LOG,
				(errmsg("ZooKeeper confirmed lock \"%s\" for process %d after %lld ms",
						first_name(), MyProcPid,
						(long long) (zk_now_ms() - check->begun_at))));
}

static void
waiting_callback(void *arg)
{
	const CommitCheck *check = arg;

	if (check->waiting)
		errcontext("while waiting for ZooKeeper to confirm lock \"%s\" ahead of the commit",
				   first_name());
}

/* Ask the worker for a proof, or wait for its answer. */
static void
wait_for_proof(CommitCheck *check, bool proved)
{
	static uint32 wait_event = 0;
	long		timeout;

	check->waiting = true;
	if (check->begun_at == 0)
		check->begun_at = zk_now_ms();
	if (check->queue_locked_at != 0 &&
		zk_now_ms() >= check->queue_locked_at + QUEUE_LOCK_MS)
	{
		unlock_notify_queue();
		check->queue_locked_at = 0;
	}
	end_commit_of_holds();
	timeout = time_for_proof(check);
	if (check->asked_at != 0)
	{
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout,
						 ZkWaitEvent(wait_event, "ZkLockCommit"));
		ResetLatch(MyLatch);
		log_wait(check);
	}
	proof_prepare_wait();
	if (check->asked_at == 0 || proved)
	{
		check->asked_at = zk_now_ms();
		check->ticket = proof_ask();
	}
}

/*
 * Check before the commit that every lock is still ours.
 *
 * While the lease runs, ZooKeeper cannot have ended the session.  After that,
 * or if zklock.commit_check requires it, wait until ZooKeeper has confirmed
 * the session; the wait can be canceled.
 *
 * A process that is exiting does not check: it cannot be canceled, its locks
 * end in a moment, and it commits only the removal of its temporary tables,
 * which needs no lock.
 *
 * Errors: 40001 if a lock has been lost, or may have been lost when
 * zklock.commit_timeout has passed.
 */
static void
check_holds(void)
{
	CommitCheck check = {0};
	bool		in_zookeeper;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = waiting_callback,
		.arg = &check
	};

	if (!holds_exist() || proc_exit_inprogress ||
		ZK_MUTATED(ZK_COMMIT_CHECK_OFF))
		return;

	in_zookeeper = is_one_in_zookeeper();
	check.notified = has_notified();
	error_context_stack = &context;
	for (;;)
	{
		int64		lease = lease_read_ms();
		bool		proved = check.asked_at != 0 &&
			proof_is_given(check.ticket);

		/* a loss cancels the backend: the error must be the loss */
		begin_commit_of_holds();
		/* a pending cancel would end the commit's wait for a standby */
		CHECK_FOR_INTERRUPTS();
		if (in_zookeeper &&
			!is_session_proved(lease, proved ? check.asked_at : 0))
		{
			wait_for_proof(&check, proved);
			continue;
		}
		check.waiting = false;
		if (!check.notified || check.queue_locked_at != 0)
			break;
		ConditionVariableCancelSleep();
		end_commit_of_holds();
		lock_notify_queue();
		check.queue_locked_at = zk_now_ms();
	}
	ConditionVariableCancelSleep();
	error_context_stack = context.previous;
	log_wait_end(&check);

	/*
	 * The foreign server may be this one, and a trigger there may use NOTIFY:
	 * if the lock were held while postgres_fdw commits, both would deadlock.
	 */
	if (check.queue_locked_at != 0 &&
		used_foreign_in == ZkMyLocalTransactionId)
		unlock_notify_queue();

	/* no lock may be free before the commit is durable */
	ForceSyncCommit();
}

/*
 * Warn of lost locks before a commit of a command with lasting effects.  An
 * error would mean that the command has had no effect, and a wait for a proof
 * could end in an error.  The hold stays lost, and the next commit fails.
 */
static void
warn_of_lost_holds(void)
{
	HeldLock   *lock = NULL;

	while ((lock = holds_next(lock)) != NULL)
	{
		if (slot_begin_commit(lock->proc) || lock->loss_reported)
			continue;
		lock->loss_reported = true;
		ereport(WARNING,
				(errmsg("lock \"%s\" has been lost while the command was running",
						key_name(&lock->key)),
				 errdetail("The ZooKeeper session of this server has ended.  The changes that the command has made remain."),
				 errhint("Call zk_unlock() to acknowledge the loss; until then no transaction of this session can commit.")));
	}
	if (holds_exist())
		ForceSyncCommit();
}

/*
 * commit_begin_lasting
 *		Check the locks before a command with lasting effects.
 *
 * The commits of the command do not check the locks.  The loss of a lock does
 * not cancel the command, since it would stop half-way.
 *
 * Errors: 40001 if a lock has been lost.
 */
void
commit_begin_lasting(void)
{
	check_holds();
	lasting = LASTING_RUNNING;
}

/*
 * commit_end_lasting
 *		Note that the command is over, and its last commit still to come.
 */
void
commit_end_lasting(void)
{
	Assert(lasting == LASTING_RUNNING);
	lasting = LASTING_DONE;
}

/*
 * commit_leave_lasting
 *		Note that the command's last commit is over.
 *
 * In a pipeline, the next statement may be in the same transaction.
 */
void
commit_leave_lasting(void)
{
	if (lasting != LASTING_DONE)
		return;
	lasting = LASTING_NONE;
	end_commit_of_holds();
}

/*
 * commit_fail_lasting
 *		Note that the command, if there was one, has failed.
 */
void
commit_fail_lasting(void)
{
	lasting = LASTING_NONE;
}

/*
 * commit_is_lasting
 *		Is a command with lasting effects running, or its last commit still to
 *		come?
 */
bool
commit_is_lasting(void)
{
	return lasting != LASTING_NONE;
}

/* End what a transaction holds, at its commit or rollback. */
static void
end_transaction(bool commit)
{
	holds_end_transaction(commit);
	if (lasting != LASTING_RUNNING)
	{
		lasting = LASTING_NONE;
		end_commit_of_holds();
	}
}

/*
 * Is this a transaction that PostgreSQL runs by itself while the session waits
 * for the client, or is about to wait?  Such a transaction processes NOTIFY
 * messages or catalog changes of other sessions, and changes nothing.  An
 * error would end the session, or look like one of the preceding command,
 * which may be a ROLLBACK.
 *
 * Before the wait, such a transaction runs no statement, but the preceding
 * command has run one.  (A procedure may commit without a statement in
 * between, but runs in a portal.)
 */
static bool
is_between_commands(void)
{
	if (pq_is_reading_msg())
		return true;
	return MyBackendType == B_BACKEND && ActivePortal == NULL &&
		statement_in != ZkMyLocalTransactionId &&
		command_began_at == GetCurrentStatementStartTimestamp();
}

static void
zk_xact_callback(XactEvent event, void *arg pg_attribute_unused())
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (checked_in == ZkMyLocalTransactionId || is_between_commands())
				break;
			checked_in = ZkMyLocalTransactionId;
			if (lasting == LASTING_NONE)
				check_holds();
			else
				warn_of_lost_holds();
#ifdef ZKLOCK_TEST_BUILD
			if (ZK_MUTATED(ZK_RELEASE_BEFORE_COMMIT))
				end_transaction(true);
			if (zklock_stop_before_commit)
				kill(MyProcPid, SIGSTOP);
#endif
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (holds_exist())
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that holds a lock in ZooKeeper"),
						 errhint("Locks end with the server's ZooKeeper session, which a prepared transaction may outlive.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			break;				/* not yet: see zk_release_callback() */
		case XACT_EVENT_ABORT:
			ZkForgetOrigin();
			end_transaction(false);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
	}
}

/*
 * Drop the slots of a transaction that has been committed.  All transaction
 * callbacks have run, and PostgreSQL releases the heavyweight locks next.
 *
 * PostgreSQL calls this for every resource owner that it releases.  It
 * releases that of the transaction as "top level" only at the transaction's
 * end, right after the callbacks.
 */
static void
zk_release_callback(ResourceReleasePhase phase,
					bool isCommit, bool isTopLevel,
					void *arg pg_attribute_unused())
{
	if (phase != RESOURCE_RELEASE_BEFORE_LOCKS || !isTopLevel ||
		CurrentResourceOwner != TopTransactionResourceOwner)
		return;
	if (isCommit)
		end_transaction(true);
	forget_registrations();
}

#ifdef ZKLOCK_TEST_BUILD
/*
 * Stop where a foreign data wrapper may commit or roll back its remote side.
 */
static void
stop_at_end_callback(XactEvent event, void *arg pg_attribute_unused())
{
	if (zklock_stop_at_end &&
		(event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT))
		kill(MyProcPid, SIGSTOP);
}
#endif

/*
 * commit_init
 *		At module load; see commit_attach().
 */
void
commit_init(void)
{
#ifdef ZKLOCK_TEST_BUILD
	/* last in the list: the latest registration is called first */
	RegisterXactCallback(stop_at_end_callback, NULL);
#endif
}

/*
 * commit_attach
 *		Install callbacks, before the first lock of this process.
 */
void
commit_attach(void)
{
	RegisterXactCallback(zk_xact_callback, (void *) last_registration);
	RegisterResourceReleaseCallback(zk_release_callback, NULL);
}
