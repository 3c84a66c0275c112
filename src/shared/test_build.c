/*-------------------------------------------------------------------------
 *
 * test_build.c
 *		Additions to builds for tests: settings that break the locks on
 *		purpose, and a function that simulates a deadlock with other instances.
 *
 * Tests declare the function themselves.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/test_build.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/test_build.h"

#ifdef ZKLOCK_TEST_BUILD

#include "fmgr.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/deadlocks.h"
#include "shared/grant.h"
#include "shared/slots_private.h"
#include "utils/builtins.h"
#include "utils/guc.h"

PG_FUNCTION_INFO_V1(zk_test_deadlock);

int			zklock_mutation;
bool		zklock_stop_before_commit;
char	   *zklock_fail_at;
bool		zklock_stop_at_end;
int			zklock_path_bytes;
bool		zklock_look_again;
bool		zklock_no_lease;

static const struct config_enum_entry mutation_options[] = {
	{"none", ZK_MUTATION_NONE, false},
	{"commit_check_off", ZK_COMMIT_CHECK_OFF, false},
	{"release_before_commit", ZK_RELEASE_BEFORE_COMMIT, false},
	{"recovered_create_owns", ZK_RECOVERED_CREATE_OWNS, false},
	{"requeued_owns", ZK_REQUEUED_OWNS, false},
	{"lost_wakeup", ZK_LOST_WAKEUP, false},
	{"gap_owns", ZK_GAP_OWNS, false},
	{"reader_precedes", ZK_READER_PRECEDES, false},
	{"reconnected_owns", ZK_RECONNECTED_OWNS, false},
	{"watch_crosses_connections", ZK_WATCH_CROSSES_CONNECTIONS, false},
	{"collected_owns", ZK_COLLECTED_OWNS, false},
	{"watches_of_one_type", ZK_WATCHES_OF_ONE_TYPE, false},
	{"unsent_watch_dropped", ZK_UNSENT_WATCH_DROPPED, false},
	{"wake_late", ZK_WAKE_LATE, false},
	{"event_dropped", ZK_EVENT_DROPPED, false},
	{"mail_dropped", ZK_MAIL_DROPPED, false},
	{"release_dropped", ZK_RELEASE_DROPPED, false},
	{"cancel_keeps_node", ZK_CANCEL_KEEPS_NODE, false},
	{"permit_twice", ZK_PERMIT_TWICE, false},
	{"permit_missed", ZK_PERMIT_MISSED, false},
	{"requeue_keeps_token", ZK_REQUEUE_KEEPS_TOKEN, false},
	{"directory_stays", ZK_DIRECTORY_STAYS, false},
	{"delete_forgotten", ZK_DELETE_FORGOTTEN, false},
	{"claim_stays", ZK_CLAIM_STAYS, false},
	{"claim_overlooked", ZK_CLAIM_OVERLOOKED, false},
	{"claim_over_used", ZK_CLAIM_OVER_USED, false},
	{"claim_not_renewed", ZK_CLAIM_NOT_RENEWED, false},
	{"claim_renewed_unproved", ZK_CLAIM_RENEWED_UNPROVED, false},
	{"claim_unchecked", ZK_CLAIM_UNCHECKED, false},
	{"claim_users_forgotten", ZK_CLAIM_USERS_FORGOTTEN, false},
	{"claim_ends_late", ZK_CLAIM_ENDS_LATE, false},
	{"room_unchecked", ZK_ROOM_UNCHECKED, false},
	{"restore_unnoticed", ZK_RESTORE_UNNOTICED, false},
	{"late_answer_proves", ZK_LATE_ANSWER_PROVES, false},
	{"clock_read_twice", ZK_CLOCK_READ_TWICE, false},
	{"event_leaked", ZK_EVENT_LEAKED, false},
	{"heartbeat_always", ZK_HEARTBEAT_ALWAYS, false},
	{"not_handed_on", ZK_NOT_HANDED_ON, false},
	{"exclusion_ignored", ZK_EXCLUSION_IGNORED, false},
	{"exclusion_apart", ZK_EXCLUSION_APART, false},
	{"loss_cancels", ZK_LOSS_CANCELS, false},
	{"loss_untold", ZK_LOSS_UNTOLD, false},
	{"lease_of_one", ZK_LEASE_OF_ONE, false},
	{"revocation_forgotten", ZK_REVOCATION_FORGOTTEN, false},
	{"others_forgotten", ZK_OTHERS_FORGOTTEN, false},
	{"habits_unbounded", ZK_HABITS_UNBOUNDED, false},
	{"proof_unasked", ZK_PROOF_UNASKED, false},
	{"lease_for_quorum", ZK_LEASE_FOR_QUORUM, false},
	{"sync_unanswered", ZK_SYNC_UNANSWERED, false},
	{"sync_of_before", ZK_SYNC_OF_BEFORE, false},
	{"quantum_forgotten", ZK_QUANTUM_FORGOTTEN, false},
	{"contention_ignored", ZK_CONTENTION_IGNORED, false},
	{"change_ignored", ZK_CHANGE_IGNORED, false},
	{"operation_leaked", ZK_OPERATION_LEAKED, false},
	{"answer_leaked", ZK_ANSWER_LEAKED, false},
	{"reads_not_again", ZK_READS_NOT_AGAIN, false},
	{"answer_wakes_nobody", ZK_ANSWER_WAKES_NOBODY, false},
	{"grant_wakes_nobody", ZK_GRANT_WAKES_NOBODY, false},
	{"cycle_any_generation", ZK_CYCLE_ANY_GENERATION, false},
	{"cycle_any_way", ZK_CYCLE_ANY_WAY, false},
	{"cycle_ahead_fails", ZK_CYCLE_AHEAD_FAILS, false},
	{"cycle_local_order", ZK_CYCLE_LOCAL_ORDER, false},
	{"cycle_gives_up", ZK_CYCLE_GIVES_UP, false},
	{"cycle_writes_at_once", ZK_CYCLE_WRITES_AT_ONCE, false},
	{"cycle_unconfirmed", ZK_CYCLE_UNCONFIRMED, false},
	{"cycle_act_unchecked", ZK_CYCLE_ACT_UNCHECKED, false},
	{"cycle_keeper_unchecked", ZK_CYCLE_KEEPER_UNCHECKED, false},
	{"cycle_leftovers_stay", ZK_CYCLE_LEFTOVERS_STAY, false},
	{"cycle_looks_ahead", ZK_CYCLE_LOOKS_AHEAD, false},
	{"cycle_loads_behind", ZK_CYCLE_LOADS_BEHIND, false},
	{"cycle_no_rescan", ZK_CYCLE_NO_RESCAN, false},
	{"cycle_ends_late", ZK_CYCLE_ENDS_LATE, false},
	{"cycle_sought_is_done", ZK_CYCLE_SOUGHT_IS_DONE, false},
	{"cycle_second_victim", ZK_CYCLE_SECOND_VICTIM, false},
	{NULL, 0, false}
};

/* Settings by which a process stops, or a call fails. */
static void
define_failures(void)
{
	DefineCustomBoolVariable("zklock.stop_before_commit",
							 "Stops the process between the commit check and the commit.",
							 NULL,
							 &zklock_stop_before_commit,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.fail_at",
							   "Sets the point at which calls fail on purpose.",
							   NULL,
							   &zklock_fail_at,
							   "",
							   PGC_USERSET,
							   0,
							   NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.stop_at_end",
							 "Stops the process where other callbacks of the end of the transaction run.",
							 NULL,
							 &zklock_stop_at_end,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
}

/*
 * test_settings_define
 *		Define the settings of builds for tests.
 */
void
test_settings_define(void)
{
	DefineCustomEnumVariable("zklock.mutation",
							 "Sets how the locks are broken on purpose.",
							 NULL,
							 &zklock_mutation,
							 ZK_MUTATION_NONE,
							 mutation_options,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.path_bytes",
							"Sets how many bytes the paths of a session's znodes may have.",
							NULL,
							&zklock_path_bytes,
							ZK_MAX_PATH_BYTES, 1, ZK_MAX_PATH_BYTES,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.look_again",
							 "Has contenders that wait for a watch look again.",
							 NULL,
							 &zklock_look_again,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.no_lease",
							 "Ends the lease, as if ZooKeeper had not answered for long.",
							 NULL,
							 &zklock_no_lease,
							 false,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
	define_failures();
}

/* The latest wait of a backend for a slot only; or NULL. */
static const ZkProcLock *
find_wait(int pid)
{
	const ZkProcLock *found = NULL;
	int			n = procs_used();

	for (int i = 0; i < n; i++)
	{
		const ZkProcLock *proc = proc_at(i);
		const ZkSlot *slot = proc_lock_slot(proc, LW_SHARED);

		if (slot == NULL)
			continue;
		if (proc_backend(proc)->pid == pid && proc->ready && !proc->granted &&
			(slot->state == ZK_SLOT_WANTED || slot->state == ZK_SLOT_HELD))
			found = proc;
		slot_unlock(slot);
	}
	return found;
}

static ZkDeadlockMember
member(const char *cluster_name, const ZkProcLock *wait, int pid,
	   int holder_pid)
{
	ZkDeadlockMember result = {0};

	strlcpy(result.cluster_name, cluster_name, sizeof(result.cluster_name));
	key_path(&wait->slot->key, result.path);
	result.kind = wait->kind == ZNODE_READER ? DEADLOCK_SHARED :
		DEADLOCK_EXCLUSIVE;
	result.pid = pid;
	result.holder_pid = holder_pid;
	return result;
}

/*
 * zk_test_deadlock(pid integer, holder integer, others integer)
 *		returns boolean
 *
 * Ends the latest wait of backend "pid", as if it waited for the first of
 * "others" processes of other instances, each of these for the next, and the
 * last for "holder", a process of this instance (NULL: the backend itself).
 * False if the backend does not wait for a slot.  Called in another session
 * than that of the backend.
 */
Datum
zk_test_deadlock(PG_FUNCTION_ARGS)
{
	int			pid = PG_GETARG_INT32(0);
	int			holder = PG_ARGISNULL(1) ? pid : PG_GETARG_INT32(1);
	ZkDeadlockMember members[ZK_DEADLOCK_MEMBERS + 1];
	ZkDeadlock	deadlock = {.members = members};
	int			others = PG_GETARG_INT32(2);
	const ZkProcLock *found = find_wait(pid);

	if (found == NULL)
		PG_RETURN_BOOL(false);
	members[0] = member("here", found, pid, holder);
	members[0].local = true;
	deadlock.nmembers = 1 + Min(others, ZK_DEADLOCK_MEMBERS);
	for (int i = 1; i < deadlock.nmembers; i++)
		members[i] = member(psprintf("there_%d", i), found, 10 * i, 10 * i);
	PG_RETURN_BOOL(slots_end_wait(members[0].path, pid, found->since,
								  deadlock_add(&deadlock)));
}

#endif
