/*-------------------------------------------------------------------------
 *
 * proof.c
 *		Until when, and how, it is proved that the session has not ended.
 *
 * The lease says until when the session cannot have ended in ZooKeeper, which
 * the worker may not have heard of.  A commit that finds the lease expired, or
 * wants to be sure, draws a ticket from "asked" and waits on "cv" until
 * "given" has reached it: then ZooKeeper has confirmed the session since.
 *
 * Locking protocol.  There is no lock: each field is an atomic, and only the
 * worker writes lease_until_ms and "given".  Backends read them ahead of their
 * slots: if a slot is not lost after that, its session is the one that was
 * spoken of.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/proof.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "shared/mail.h"
#include "shared/proof.h"
#include "storage/condition_variable.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

typedef struct ProofShared
{
	pg_atomic_uint64 lease_until_ms;	/* as of zk_now_ms(); 0: none */
	pg_atomic_uint32 asked;		/* the latest ticket */
	pg_atomic_uint32 given;		/* the latest that has its answer */
	ConditionVariable cv;		/* broadcast at every proof and every loss */
} ProofShared;

static ProofShared *proof = NULL;

/*
 * proof_request_shmem
 *		Reserve shared memory; for the shmem_request_hook.
 */
void
proof_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(ProofShared));
}

/*
 * proof_startup_shmem
 *		Create or attach to the lease and the proofs; AddinShmemInitLock is
 *		held.
 */
void
proof_startup_shmem(void)
{
	bool		found;

	proof = ShmemInitStruct("zklock proof", sizeof(ProofShared), &found);
	if (!found)
	{
		pg_atomic_init_u64(&proof->lease_until_ms, 0);
		pg_atomic_init_u32(&proof->asked, 0);
		pg_atomic_init_u32(&proof->given, 0);
		ConditionVariableInit(&proof->cv);
	}
}

/*
 * lease_read_ms
 *		Until when the session cannot have ended, as of zk_now_ms(); 0 if
 *		nothing is known.
 */
int64
lease_read_ms(void)
{
	int64		until_ms = (int64) pg_atomic_read_u64(&proof->lease_until_ms);

	/* ahead of what the caller reads next */
	pg_read_barrier();
	return until_ms;
}

/*
 * proof_wake_waiters
 *		A lock is lost: whoever waits for a proof must look at its locks.
 */
void
proof_wake_waiters(void)
{
	ConditionVariableBroadcast(&proof->cv);
}

/*
 * proof_ask
 *		Have the worker ask ZooKeeper whether the session is alive: a ticket
 *		for proof_is_given().
 */
uint32
proof_ask(void)
{
	uint32		ticket = pg_atomic_add_fetch_u32(&proof->asked, 1);

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
	uint32		latest = pg_atomic_read_u32(&proof->given);

	pg_read_barrier();
	return (int32) (latest - ticket) >= 0;
}

/*
 * proof_prepare_wait
 *		Have our latch set by the next proof or loss.  The caller then looks at
 *		what it waits for, and ends the wait by
 *		ConditionVariableCancelSleep().
 */
void
proof_prepare_wait(void)
{
	ConditionVariablePrepareToSleep(&proof->cv);
}

/*
 * proof_asked
 *		The latest ticket that waits for a proof, or has had it.
 */
uint32
proof_asked(void)
{
	return pg_atomic_read_u32(&proof->asked);
}

/*
 * proof_latest
 *		The latest ticket that has its answer.
 */
uint32
proof_latest(void)
{
	return pg_atomic_read_u32(&proof->given);
}

/*
 * lease_write
 *		Publish the lease, which ends at until_ms as of zk_now_ms(), and up to
 *		which ticket the session is proved; the worker only.
 */
void
lease_write(int64 until_ms, uint32 ticket)
{
	pg_atomic_write_u64(&proof->lease_until_ms, (uint64) until_ms);
	pg_atomic_write_u32(&proof->given, ticket);
	proof_wake_waiters();
}

/*
 * lease_shorten
 *		Rely on the session until then at the latest; the worker only.
 */
void
lease_shorten(int64 until_ms)
{
	if (lease_read_ms() > until_ms)
		pg_atomic_write_u64(&proof->lease_until_ms, (uint64) until_ms);
}
