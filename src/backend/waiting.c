/*-------------------------------------------------------------------------
 *
 * waiting.c
 *		The wait of a call that acquires locks: its time, its end, the log.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/waiting.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/patience.h"
#include "backend/questions.h"
#include "backend/waiting.h"
#include "core/lock/znode.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/holders.h"
#include "shared/test_build.h"
#include "storage/proc.h"

/* How long to wait for the owner's name, for the log, in ms. */
#define OWNER_QUESTION_MS	1000

/* How long ZooKeeper may take to answer without a word about it, in ms. */
#define SILENCE_MS			1000

/*
 * waiting_error_context
 *		The context of an error in a wait, or about its outcome.
 */
void
waiting_error_context(const char *name)
{
	errcontext("while waiting for lock \"%s\" in ZooKeeper", name);
}

/* Does a session of this server hold the lock, in whatever mode? */
static bool
is_held_here(const HeldLock *lock)
{
	int			npids;

	pfree(slots_holders(&lock->key, &npids));
	return npids > 0;
}

/*
 * waiting_describe_outage
 *		A wait is past its time: what to tell of ZooKeeper, as an error detail,
 *		palloc'd; NULL if it is not to blame.
 *
 * It is not if the lock is held in this server, nor if contenders are ahead and
 * the connection is there.
 */
char *
waiting_describe_outage(const SlotWait *wait)
{
	char	   *outage = zk_describe_outage();
	int64		silent_ms;

	/* this looks through all slots, so it comes second */
	if (outage != NULL && wait->tier1 != NULL && is_held_here(wait->tier1))
		return NULL;
	if (outage != NULL || wait->tier1 != NULL || wait->in_queue ||
		wait->started == 0)
		return outage;
	silent_ms = zk_now_ms() - wait->started;
	if (silent_ms < SILENCE_MS)
		return NULL;
	return psprintf("ZooKeeper has not told for %lld ms whether anybody is ahead.",
					(long long) silent_ms);
}

/*
 * waiting_begin
 *		A call begins, and with it its wait.
 */
void
waiting_begin(SlotWait *wait, const ZkRequest *request, ZkResult *result)
{
	memset(result, 0, sizeof(*result));
	result->outcome = ZK_NOT_IN_TIME;
	result->name = request->name;
	result->key = request->keys;
	memset(wait, 0, sizeof(*wait));
	wait->result = result;
	wait->immediate = request->timeout == 0;
	wait->called_us = zk_now_us();
	wait->called_ms = wait->called_us / 1000;
	wait->deadline = -1;
	if (request->timeout > 0)
		wait->deadline = wait->called_ms + request->timeout;
	if (LockTimeout > 0)
	{
		int64		limit = wait->called_ms + LockTimeout;

		wait->deadline = wait->deadline < 0 ? limit : Min(wait->deadline, limit);
	}
}

/*
 * waiting_patience
 *		How long a call without a place in the queue may sleep for this slot,
 *		in ms; 0, and ZK_NO_SESSION, if its session was missing for too long.
 *
 * The slot does not tell when its contender goes into a session, so that the
 * call looks again every now and then.
 */
int64
waiting_patience(SlotWait *wait, ZkSlot *slot)
{
	ZkSessionInfo info;
	ZkContender contender;
	int64		patience;

	(void) slot_read_contender(slot, &contender);
	patience = zk_session_patience(contender.session, wait->called_ms,
								   &wait->no_session_since, &info);
	if (patience == 0)
	{
		wait->result->outcome = ZK_NO_SESSION;
		wait->result->session = palloc(sizeof(info));
		*wait->result->session = info;
	}
	return Min(patience, RECHECK_MS);
}

/*
 * waiting_note_end
 *		ZooKeeper has refused the lock, or the wait ends because of a deadlock.
 */
void
waiting_note_end(ZkResult *result, const HeldLock *lock, ZkTake take,
				 const ZkTakeNews *news)
{
	ZkKey	   *key;

	if (take == ZK_GO_BACK || take == ZK_GIVE_WAY)
		return;
	/* the entry goes in a moment */
	key = palloc(sizeof(ZkKey));
	*key = lock->key;
	result->key = key;
	if (take == ZK_DEADLOCK)
	{
		result->outcome = ZK_DEADLOCKED;
		result->deadlock = news->deadlock;
		return;
	}
	result->outcome = ZK_DENIED;
	result->refusal = news->refusal;
	result->permits_found = news->permits_found;
}

static const char *
lock_word(ZnodeKind kind)
{
	return kind == ZNODE_READER ? "shared lock" :
		kind == ZNODE_PERMIT ? "a permit of" : "exclusive lock";
}

/*
 * waiting_log
 *		As the lock manager does for log_lock_waits: tell once which contender has
 * kept us waiting for deadlock_timeout, and what it waits for itself.  Returns
 * in how many ms that is due, or -1 if it is not.
 */
int64
waiting_log(SlotWait *wait, const HeldLock *lock)
{
	char		path[ZNODE_PATH_SIZE];
	StringInfoData owner;
	int64		waited;
	bool		known;

	if (!log_lock_waits || wait->logged)
		return -1;
	waited = zk_now_ms() - wait->started;
	if (waited < DeadlockTimeout)
		return DeadlockTimeout - waited;

	wait->logged = true;
	wait->prepared = NULL;		/* the question sleeps, too */
	key_path(&lock->key, path);
	initStringInfo(&owner);
	known = ask_owner(path,
					  wait->deadline < 0 ? OWNER_QUESTION_MS :
					  (int) Min(zk_time_left(wait->deadline), OWNER_QUESTION_MS),
					  &owner);
	ereport(LOG,
			(errmsg("process %d still waiting for %s \"%s\" in ZooKeeper after %lld ms",
					MyProcPid, lock_word(lock->kind), wait->result->name,
					(long long) waited),
			 known ? errdetail_log("%s", owner.data) : 0));
	pfree(owner.data);
	return -1;
}

/*
 * waiting_log_end
 *		The end of a wait whose beginning was logged, with this lock.
 */
void
waiting_log_end(const SlotWait *wait, const HeldLock *lock)
{
	ZK_FAIL_AT("log");
	if (wait->logged)
		ereport(LOG,
				(errmsg("process %d acquired %s \"%s\" in ZooKeeper after %lld ms",
						MyProcPid, lock_word(lock->kind), wait->result->name,
						(long long) (zk_now_ms() - wait->started))));
}
