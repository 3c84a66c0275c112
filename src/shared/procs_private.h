/*-------------------------------------------------------------------------
 *
 * procs_private.h
 *		The pool of ZkProcLocks, for the files of the slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/procs_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROCS_PRIVATE_H
#define ZKLOCK_PROCS_PRIVATE_H

#include "shared/procs.h"
#include "storage/proc.h"

/*
 * proc_backend
 *		The PGPROC of the backend.
 *
 * It stays that backend's while the partition lock is held, since a backend
 * gives back its ZkProcLocks before it ends.  Without the lock, or of a claim,
 * it may belong to any other backend, or to none (pid 0).
 */
static inline PGPROC *
proc_backend(const ZkProcLock *proc)
{
	return &ProcGlobal->allProcs[proc->procno];
}

extern int	procs_max(void);
extern int	procs_in_use(void);
extern int	procs_used(void);
extern ZkProcLock *proc_at(int i);
extern ZkProcLock *proc_new(void);
extern void proc_free(ZkProcLock *proc);
extern bool proc_has_role(const ZkProcLock *proc);
extern bool proc_cancel(const ZkProcLock *proc);
extern void proc_lose(ZkProcLock *proc);
extern uint32 procs_claim_losses(void);

#endif							/* ZKLOCK_PROCS_PRIVATE_H */
