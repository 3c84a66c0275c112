/*-------------------------------------------------------------------------
 *
 * test_deadlock.c
 *		Deadlocks with other clusters that are none, in builds for tests.
 *
 * Tests declare the function themselves, and call it in another session than
 * the one whose wait is to end.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/test_deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#ifdef ZKLOCK_TEST_BUILD

#include "fmgr.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/deadlocks.h"
#include "shared/grant.h"
#include "shared/slots_private.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(zk_test_deadlock);

/* The latest wait of a backend for a slot, and for nothing else; or NULL. */
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
member(const char *cluster, const ZkProcLock *wait, int pid, int holder_pid)
{
	ZkDeadlockMember result = {0};

	strlcpy(result.cluster, cluster, sizeof(result.cluster));
	key_path(&wait->slot->key, result.path);
	result.kind = wait->kind;
	result.pid = pid;
	result.holder_pid = holder_pid;
	return result;
}

/*
 * zk_test_deadlock(pid integer, holder integer, others integer)
 *		returns boolean
 *
 * End the latest wait of this backend of ours: it waits for one of "others"
 * processes of other clusters, which wait for each other, and the last for
 * "holder", a process of this cluster, or NULL for the backend itself.  Or all
 * of them block the backend, if "others" is negative.  False if it does not
 * wait for a slot.
 */
Datum
zk_test_deadlock(PG_FUNCTION_ARGS)
{
	int			pid = PG_GETARG_INT32(0);
	int			holder = PG_ARGISNULL(1) ? pid : PG_GETARG_INT32(1);
	int			others = PG_GETARG_INT32(2);
	ZkDeadlockMember members[ZK_DEADLOCK_MEMBERS + 1];
	ZkDeadlock	deadlock = {.members = members};
	const ZkProcLock *found = find_wait(pid);

	if (found == NULL)
		PG_RETURN_BOOL(false);
	members[0] = member("here", found, pid, holder);
	members[0].local = true;
	deadlock.nmembers = 1 + Min(abs(others), ZK_DEADLOCK_MEMBERS);
	for (int i = 1; i < deadlock.nmembers; i++)
	{
		members[i] = member(psprintf("there_%d", i), found, 10 * i, 10 * i);
		if (others < 0)
		{
			members[0].blocked_by |= UINT64CONST(1) << i;
			members[i].blocked_by = 1;
		}
	}
	PG_RETURN_BOOL(slot_end_wait(found->slot, pid, found->since,
								 deadlock_add(&deadlock)));
}

#endif
