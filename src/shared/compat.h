/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Differences between PostgreSQL 15 and 19.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/compat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMPAT_H
#define ZKLOCK_COMPAT_H

#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "pgstat.h"
#include "replication/logicalworker.h"
#include "replication/origin.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/* In 15, all symbols are exported or none. */
#if PG_VERSION_NUM < 160000
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(funcname) \
extern PGDLLEXPORT Datum funcname(PG_FUNCTION_ARGS); \
extern PGDLLEXPORT const Pg_finfo_record * CppConcat(pg_finfo_,funcname)(void); \
const Pg_finfo_record * \
CppConcat(pg_finfo_,funcname) (void) \
{ \
	static const Pg_finfo_record my_finfo = { 1 }; \
	return &my_finfo; \
} \
extern int no_such_variable
#endif

/* The number of our PGPROC: below MaxBackends for backends and workers. */
#if PG_VERSION_NUM >= 170000
#define ZkMyProcNumber	((int) MyProcNumber)
#else
#define ZkMyProcNumber	((int) MyProc->pgprocno)
#endif

/* The local id of this process's transaction: unique in the process. */
#if PG_VERSION_NUM >= 170000
#define ZkMyLocalTransactionId	(MyProc->vxid.lxid)
#else
#define ZkMyLocalTransactionId	(MyProc->lxid)
#endif

/* 17 has named wait events for extensions; 15 and 16 have one for all. */
#if PG_VERSION_NUM >= 170000
#define ZkWaitEvent(var, name) \
	((var) != 0 ? (var) : ((var) = WaitEventExtensionNew(name)))
#else
#define ZkWaitEvent(var, name)	((void) (var), (uint32) PG_WAIT_EXTENSION)
#endif

/* A backend's status in the snapshot, by number from 1 on. */
#if PG_VERSION_NUM >= 160000
#define ZkLocalBackendStatus(i) pgstat_get_local_beentry_by_index(i)
#else
#define ZkLocalBackendStatus(i) pgstat_fetch_stat_local_beentry(i)
#endif

/* Since 17 a resource owner, not a memory context, has wait event sets. */
#if PG_VERSION_NUM >= 170000
#define ZkCreateWaitEventSet(n) CreateWaitEventSet(NULL, n)
#else
#define ZkCreateWaitEventSet(n) CreateWaitEventSet(TopMemoryContext, n)
#endif

/* 17 has a third argument, for stronger modes than this one. */
#if PG_VERSION_NUM >= 170000
#define ZkLockHeldByMe(tag, mode) LockHeldByMe(tag, mode, false)
#else
#define ZkLockHeldByMe(tag, mode) LockHeldByMe(tag, mode)
#endif

/* What a process holds of heavyweight locks; 16 has lists of another type. */
#if PG_VERSION_NUM >= 160000
#define ZkForEachProcLock(proclock, proc, partition) \
	for (PROCLOCK *proclock = dlist_is_empty(&(proc)->myProcLocks[partition]) ? NULL : \
		 dlist_head_element(PROCLOCK, procLink, &(proc)->myProcLocks[partition]); \
		 proclock != NULL; \
		 proclock = dlist_has_next(&(proc)->myProcLocks[partition], &proclock->procLink) ? \
		 dlist_container(PROCLOCK, procLink, \
						 dlist_next_node(&(proc)->myProcLocks[partition], &proclock->procLink)) : NULL)
#else
#define ZkForEachProcLock(proclock, proc, partition) \
	for (PROCLOCK *proclock = (PROCLOCK *) \
		 SHMQueueNext(&(proc)->myProcLocks[partition], &(proc)->myProcLocks[partition], \
					  offsetof(PROCLOCK, procLink)); \
		 proclock != NULL; \
		 proclock = (PROCLOCK *) \
		 SHMQueueNext(&(proc)->myProcLocks[partition], &proclock->procLink, \
					  offsetof(PROCLOCK, procLink)))
#endif

/*
 * The PROCLOCKs of a lock, and the processes that wait for it, in the order of
 * its queue.  The lists are of other types from 16 on; 19 has a link of its own
 * for the queue.
 */
#if PG_VERSION_NUM >= 190000
#define ZkWaitLink	waitLink
#else
#define ZkWaitLink	links
#endif

#if PG_VERSION_NUM >= 160000
#define ZkForEachLockHolder(proclock, lock) \
	for (dlist_node *node = (lock)->procLocks.head.next; \
		 node != NULL && node != &(lock)->procLocks.head; node = node->next) \
		for (PROCLOCK *proclock = dlist_container(PROCLOCK, lockLink, node); \
			 proclock != NULL; proclock = NULL)
#define ZkForEachLockWaiter(proc, lock) \
	for (dlist_node *node = (lock)->waitProcs.dlist.head.next; \
		 node != NULL && node != &(lock)->waitProcs.dlist.head; node = node->next) \
		for (PGPROC *proc = dlist_container(PGPROC, ZkWaitLink, node); \
			 proc != NULL; proc = NULL)
#else
#define ZkForEachLockHolder(proclock, lock) \
	for (PROCLOCK *proclock = (PROCLOCK *) \
		 SHMQueueNext(&(lock)->procLocks, &(lock)->procLocks, \
					  offsetof(PROCLOCK, lockLink)); \
		 proclock != NULL; \
		 proclock = (PROCLOCK *) \
		 SHMQueueNext(&(lock)->procLocks, &proclock->lockLink, \
					  offsetof(PROCLOCK, lockLink)))
#define ZkForEachLockWaiter(proc, lock) \
	for (PGPROC *proc = (PGPROC *) \
		 SHMQueueNext(&(lock)->waitProcs.links, &(lock)->waitProcs.links, \
					  offsetof(PGPROC, ZkWaitLink)); \
		 proc != NULL; \
		 proc = (PGPROC *) \
		 SHMQueueNext(&(lock)->waitProcs.links, &proc->ZkWaitLink, \
					  offsetof(PGPROC, ZkWaitLink)))
#endif

/* 19 has no initial size apart from the maximal one. */
#if PG_VERSION_NUM >= 190000
#define ZkShmemInitHash(name, size, ctl, flags) \
	ShmemInitHash(name, size, ctl, flags)
#else
#define ZkShmemInitHash(name, size, ctl, flags) \
	ShmemInitHash(name, size, size, ctl, flags)
#endif

/* Before 18 ExecutorRun has a fourth argument. */
#if PG_VERSION_NUM >= 180000
#define ZK_EXECUTE_ONCE_PARAMETER
#define ZK_EXECUTE_ONCE
#else
#define ZK_EXECUTE_ONCE_PARAMETER	, bool execute_once
#define ZK_EXECUTE_ONCE				, execute_once
#endif

/* 19 passes EXPLAIN's state to the planner. */
#if PG_VERSION_NUM >= 190000
#define ZK_EXPLAIN_STATE_PARAMETER	, struct ExplainState *es
#define ZK_EXPLAIN_STATE			, es
#else
#define ZK_EXPLAIN_STATE_PARAMETER
#define ZK_EXPLAIN_STATE
#endif

/* 16 has one function for the privileges of all kinds of objects. */
#if PG_VERSION_NUM >= 160000
#define ZkCheckExecute(function, role) \
	object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE)
#else
#define ZkCheckExecute(function, role) \
	pg_proc_aclcheck(function, role, ACL_EXECUTE)
#endif

/*
 * An apply worker of logical replication notes before the commit how far the
 * publisher's transaction goes.  If that is rolled back, the note must go;
 * else a later commit of the process writes it down, as that of
 * disable_on_error does, or (from 16 on) a rollback, and the transaction is
 * never sent again.  From 17 on PostgreSQL removes the note after an error,
 * and at process exit: but by then an extension's callback may have rolled
 * back.
 */
#if PG_VERSION_NUM >= 190000
#define ZkForgetOrigin() \
	do { if (IsLogicalWorker()) replorigin_xact_clear(false); } while (0)
#else
#define ZkForgetOrigin() \
	do { \
		if (IsLogicalWorker()) \
		{ \
			replorigin_session_origin_lsn = InvalidXLogRecPtr; \
			replorigin_session_origin_timestamp = 0; \
		} \
	} while (0)
#endif

/* libpq/libpq.h needs Kerberos' headers if PostgreSQL was built with it. */
extern bool pq_is_reading_msg(void);
extern bool pq_check_connection(void);

/* 19 passes more than a number to signal handlers. */
#ifndef PG_SIG_DFL
#define PG_SIG_DFL	SIG_DFL
#endif

/* Compilers take no comment for it in 19. */
#ifndef pg_fallthrough
#define pg_fallthrough	((void) 0)
#endif

/* 17 has infinite intervals. */
#ifndef INTERVAL_NOT_FINITE
#define INTERVAL_NOT_FINITE(i)	(false)
#endif

#endif							/* ZKLOCK_COMPAT_H */
