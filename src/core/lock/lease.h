/*-------------------------------------------------------------------------
 *
 * lease.h
 *		Until when the ZooKeeper session cannot have ended.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/lease.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_LEASE_H
#define ZKLOCK_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* An answer that may be the first of four that make a lease. */
typedef struct LeaseProof
{
	int64_t		sent;
	int64_t		answered;
	int64_t		second_answered;	/* 0: no second proof yet */
	int64_t		third_answered; /* the same */
} LeaseProof;

#define LEASE_MAX_PROOFS	16

/*
 * All times are in ms of one clock, which also runs while the machine is
 * suspended.
 */
typedef struct Lease
{
	int64_t		until;			/* 0: nothing is known */
	int64_t		last_sent;		/* when the latest proof was sent; 0: none */
	int64_t		awake_at;		/* of the latest lease_turn() */
	int64_t		distrust_until; /* proofs sent before do not count alone */
	int			nproofs;
	LeaseProof	proofs[LEASE_MAX_PROOFS];	/* of this connection, in order */
} Lease;

extern void lease_begin(Lease *lease, int64_t now);
extern void lease_disconnect(Lease *lease);
extern void lease_forget(Lease *lease);
extern int64_t lease_turn(Lease *lease, int64_t timeout, int64_t now);
extern void lease_prove(Lease *lease, int64_t timeout, int64_t sent,
						int64_t now);
extern int64_t lease_heartbeat_at(const Lease *lease, int64_t timeout);

#endif							/* ZKLOCK_LEASE_H */
