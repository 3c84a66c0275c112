/*-------------------------------------------------------------------------
 *
 * proof.h
 *		Until when, and how, it is proved that a session has not ended.
 *
 * See proof.c for how it is guarded; core/lock/lease.h for the lease itself.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/proof.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROOF_H
#define ZKLOCK_PROOF_H

/* module load */
extern void proof_request_shmem(void);
extern void proof_startup_shmem(void);

/* any process */
extern int64 lease_read_ms(int session);
extern void proof_wake_waiters(void);

/* backends */
extern uint32 proof_ask(int session);
extern bool proof_is_given(int session, uint32 ticket);
extern void proof_prepare_wait(void);

/* the worker */
extern uint32 proof_asked(int session);
extern uint32 proof_latest(int session);
extern void lease_write(int session, int64 until_ms, uint32 ticket);
extern void lease_shorten(int session, int64 until_ms);

#endif							/* ZKLOCK_PROOF_H */
