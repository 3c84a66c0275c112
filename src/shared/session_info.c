/*-------------------------------------------------------------------------
 *
 * session_info.c
 *		What the worker publishes of the ZooKeeper session: its state and its
 *		lease.
 *
 * The readers are views, backends that wait for a session, and the next
 * worker, which resumes the session.
 *
 * While the lease runs, ZooKeeper cannot have ended the session, not even
 * without the worker's knowledge.  A commit that finds the lease expired, or
 * must not rely on it, draws a ticket from "asked" and waits on "cv" until
 * "given" has reached the ticket: then ZooKeeper has confirmed the session
 * after the draw.
 *
 * Locking protocol.  One LWLock of the tranche ZK_TRANCHE guards the fields
 * that are not atomics, and may be taken while any other lock is held; but a
 * spinlock guards the worker's latch.  Only the worker writes these fields,
 * except for the instances, which a backend writes when it has read them in
 * ZooKeeper.  Only the worker writes lease_until_ms and "given", too.  A
 * backend reads these two before its slots: if a slot is not lost then, the
 * lease was that of its session.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/session_info.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#define ZK_TRANCHE		"zklock session"

typedef struct SessionShared
{
	ZkSessionInfo info;
	char		auths[ZK_AUTHS_SIZE];	/* of the worker only: no lock */
	ZkFleetInfo fleet;
	int64		instances_ms;	/* zk_now_ms() when instances were read */
	int			ninstances;
	ZkInstance	instances[ZK_KNOWN_INSTANCES];
	pg_atomic_uint64 path_bytes;	/* bound for the session's paths */
	pg_atomic_uint32 nlocks;	/* locks to which these paths belong */
	pg_atomic_uint64 directories;	/* lock directories made since server
									 * start */
	pg_atomic_uint32 member_missed; /* by member_miss() */
	pg_atomic_uint64 lease_until_ms;	/* as of zk_now_ms(); 0: none */
	pg_atomic_uint32 asked;		/* the latest ticket */
	pg_atomic_uint32 given;		/* the latest ticket with an answer */
	ConditionVariable cv;		/* broadcast at every proof and every loss */
	slock_t		latch_lock;
	Latch	   *worker_latch;	/* NULL: no worker */
} SessionShared;

static SessionShared *shared = NULL;
static LWLock *session_lock = NULL;

/*
 * zk_feature_name
 *		ZooKeeper's name for a feature.
 */
const char *
zk_feature_name(ZkFeature feature)
{
	switch (feature)
	{
		case ZK_FEATURE_MULTI:
			return "multi";
		case ZK_FEATURE_CREATE2:
			return "create2";
		case ZK_FEATURE_CONTAINER:
			return "createContainer";
		case ZK_FEATURE_REMOVE_WATCHES:
			return "removeWatches";
		case ZK_FEATURE_RESUME:
			return "session resumption";
	}
	return "unknown";
}

/*
 * session_info_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
session_info_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(SessionShared));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/*
 * session_info_startup_shmem
 *		Create or attach to the session's state; AddinShmemInitLock is held.
 */
void
session_info_startup_shmem(void)
{
	bool		found;

	shared = ShmemInitStruct(ZK_TRANCHE, sizeof(SessionShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(SessionShared));
		shared->info.state = ZK_SESSION_DOWN;
		shared->info.state_since = zk_now_us();
		shared->info.unreached_since = shared->info.state_since;
		shared->info.timeout = zklock_session_timeout;
		pg_atomic_init_u64(&shared->path_bytes, 0);
		pg_atomic_init_u32(&shared->nlocks, 0);
		pg_atomic_init_u64(&shared->directories, 0);
		pg_atomic_init_u32(&shared->member_missed, 0);
		pg_atomic_init_u64(&shared->lease_until_ms, 0);
		pg_atomic_init_u32(&shared->asked, 0);
		pg_atomic_init_u32(&shared->given, 0);
		ConditionVariableInit(&shared->cv);
		SpinLockInit(&shared->latch_lock);
	}
	session_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
}

/*
 * worker_set_latch
 *		Set the latch of a worker that begins, or NULL when it is to end.
 */
void
worker_set_latch(Latch *latch)
{
	SpinLockAcquire(&shared->latch_lock);
	shared->worker_latch = latch;
	SpinLockRelease(&shared->latch_lock);
}

/*
 * worker_wake
 *		Set the worker's latch, if there is a worker.
 */
void
worker_wake(void)
{
	Latch	   *latch;

	SpinLockAcquire(&shared->latch_lock);
	latch = shared->worker_latch;
	SpinLockRelease(&shared->latch_lock);
	if (latch)
		SetLatch(latch);
}

/*
 * session_read
 *		Copy the state of the ZooKeeper session.
 */
void
session_read(ZkSessionInfo *info)
{
	LWLockAcquire(session_lock, LW_SHARED);
	*info = shared->info;
	LWLockRelease(session_lock);
}

/*
 * session_write
 *		Publish the state of the ZooKeeper session; the worker only.
 */
void
session_write(const ZkSessionInfo *info)
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->info = *info;
	LWLockRelease(session_lock);
}

/*
 * session_auths
 *		The credentials that the session presents: ZK_AUTHS_SIZE bytes with
 *		strings, the last one empty.  Only the worker and its successors use
 *		them.
 */
char *
session_auths(void)
{
	return shared->auths;
}

/*
 * path_bytes_read
 *		How many of ZK_MAX_PATH_BYTES the session uses; and, in *nlocks unless
 *		that is NULL, the number of locks that use them; the two may be of two
 *		moments.
 */
int64
path_bytes_read(int *nlocks)
{
	if (nlocks)
		*nlocks = (int) pg_atomic_read_u32(&shared->nlocks);
	return (int64) pg_atomic_read_u64(&shared->path_bytes);
}

/*
 * path_bytes_write
 *		Publish how many of ZK_MAX_PATH_BYTES are in use, and for how many
 *		locks; the worker only.
 */
void
path_bytes_write(int64 bytes, int nlocks)
{
	pg_atomic_write_u64(&shared->path_bytes, (uint64) bytes);
	pg_atomic_write_u32(&shared->nlocks, (uint32) nlocks);
}

/*
 * directories_read
 *		How many lock directories the worker has made since server start.
 */
int64
directories_read(void)
{
	return (int64) pg_atomic_read_u64(&shared->directories);
}

/*
 * directories_count
 *		Count a lock directory that the worker has made.
 */
void
directories_count(void)
{
	pg_atomic_fetch_add_u64(&shared->directories, 1);
}

/*
 * session_read_fleet
 *		Copy the state of the fleet.
 */
void
session_read_fleet(ZkFleetInfo *info)
{
	LWLockAcquire(session_lock, LW_SHARED);
	*info = shared->fleet;
	LWLockRelease(session_lock);
}

/*
 * session_write_fleet
 *		Publish the state of the fleet; the worker only.
 */
void
session_write_fleet(const ZkFleetInfo *info)
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->fleet = *info;
	LWLockRelease(session_lock);
}

/*
 * instances_find
 *		Find an instance by its id among those that were read last.  Returns
 *		false if there is none, or if no read is recent (*known is false).
 */
bool
instances_find(const char *id, ZkInstance *instance, bool *known)
{
	bool		found = false;

	LWLockAcquire(session_lock, LW_SHARED);
	*known = shared->instances_ms != 0 &&
		zk_now_ms() - shared->instances_ms < ZK_KNOWN_MS;
	for (int i = 0; *known && !found && i < shared->ninstances; i++)
		if (strcmp(shared->instances[i].id, id) == 0)
		{
			*instance = shared->instances[i];
			found = true;
		}
	LWLockRelease(session_lock);
	return found;
}

/*
 * instances_write
 *		Remember instances of the fleet, ZK_KNOWN_INSTANCES at most.
 */
void
instances_write(const ZkInstance *instances, int n)
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->ninstances = Min(n, ZK_KNOWN_INSTANCES);
	memcpy(shared->instances, instances,
		   shared->ninstances * sizeof(ZkInstance));
	shared->instances_ms = zk_now_ms();
	LWLockRelease(session_lock);
}

/*
 * lease_read_ms
 *		The end of the lease, as of zk_now_ms(); 0: none.
 */
int64
lease_read_ms(void)
{
	int64		until_ms = (int64) pg_atomic_read_u64(&shared->lease_until_ms);

	/* the lease is read before what the caller reads next */
	pg_read_barrier();
	return until_ms;
}

/*
 * proof_wake_waiters
 *		Wake the backends that wait for a proof.  Each checks whether one of
 *		its locks is lost.
 */
void
proof_wake_waiters(void)
{
	ConditionVariableBroadcast(&shared->cv);
}

/*
 * member_miss
 *		Have the worker check this instance's znode, which a backend misses.
 */
void
member_miss(void)
{
	pg_atomic_write_u32(&shared->member_missed, 1);
	worker_wake();
}

/*
 * member_is_missed
 *		Was member_miss() called since the last call?  The worker only.
 */
bool
member_is_missed(void)
{
	return pg_atomic_exchange_u32(&shared->member_missed, 0) != 0;
}

/*
 * proof_ask
 *		Have the worker ask ZooKeeper whether the session is alive, and return
 *		a ticket for proof_is_given().
 */
uint32
proof_ask(void)
{
	uint32		ticket = pg_atomic_add_fetch_u32(&shared->asked, 1);

	worker_wake();
	return ticket;
}

/*
 * proof_is_given
 *		Has ZooKeeper confirmed the session after this ticket was drawn?
 */
bool
proof_is_given(uint32 ticket)
{
	uint32		latest = pg_atomic_read_u32(&shared->given);

	pg_read_barrier();
	return (int32) (latest - ticket) >= 0;
}

/*
 * proof_prepare_wait
 *		Have the next proof or loss set our latch.  The caller then checks its
 *		condition, and ends the wait by ConditionVariableCancelSleep().
 */
void
proof_prepare_wait(void)
{
	ConditionVariablePrepareToSleep(&shared->cv);
}

/*
 * proof_wait
 *		Wait until ZooKeeper has confirmed the session after this ticket was
 *		drawn.  Returns false if until_ms, as of zk_now_ms(), comes first.
 *
 * The wait can be canceled.
 */
bool
proof_wait(uint32 ticket, int64 until_ms, uint32 wait_event)
{
	bool		given;

	ConditionVariablePrepareToSleep(&shared->cv);
	for (;;)
	{
		int64		left_ms = until_ms - zk_now_ms();

		given = proof_is_given(ticket);
		if (given || left_ms <= 0)
			break;
		(void) ConditionVariableTimedSleep(&shared->cv, left_ms, wait_event);
	}
	ConditionVariableCancelSleep();
	return given;
}

/*
 * proof_asked
 *		The latest ticket that was drawn.
 */
uint32
proof_asked(void)
{
	return pg_atomic_read_u32(&shared->asked);
}

/*
 * proof_latest
 *		The latest ticket with an answer.
 */
uint32
proof_latest(void)
{
	return pg_atomic_read_u32(&shared->given);
}

/*
 * lease_write
 *		Publish the lease, which ends at until_ms as of zk_now_ms(), and the
 *		latest ticket with an answer; the worker only.
 */
void
lease_write(int64 until_ms, uint32 ticket)
{
	pg_atomic_write_u64(&shared->lease_until_ms, (uint64) until_ms);
	pg_atomic_write_u32(&shared->given, ticket);
	proof_wake_waiters();
}

/*
 * lease_shorten
 *		End the lease at until_ms, unless it ends earlier; the worker only.
 */
void
lease_shorten(int64 until_ms)
{
	if (lease_read_ms() > until_ms)
		pg_atomic_write_u64(&shared->lease_until_ms, (uint64) until_ms);
}
