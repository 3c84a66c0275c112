/*-------------------------------------------------------------------------
 *
 * deadlocks.h
 *		The latest deadlocks between this instance and others.
 *
 * See deadlocks.c for the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/deadlocks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DEADLOCKS_H
#define ZKLOCK_DEADLOCKS_H

#include "core/deadlock.h"
#include "core/lock/znode.h"
#include "datatype/timestamp.h"

/* The most deadlocks kept, and the most members of each. */
#define ZK_DEADLOCKS			32
#define ZK_DEADLOCK_MEMBERS		DEADLOCK_CYCLE

/* The name of an instance, with its terminator; a longer one is cut. */
#define ZK_CLUSTER_NAME_SIZE			128

/*
 * A member: a process that waits, in an instance that has what the member
 * before waits for.
 */
typedef struct ZkDeadlockMember
{
	char		cluster_name[ZK_CLUSTER_NAME_SIZE]; /* cluster_name, or
													 * another name of the
													 * instance */
	char		path[ZNODE_PATH_SIZE];	/* of the lock waited for: its lock
										 * directory; or the name of a
										 * session, see core/remote.c */
	DeadlockKind kind;			/* of what is waited for */
	int			pid;			/* of the process that waits for it */
	int			holder_pid;		/* of the process that blocks the member
								 * before: the same, or one that waits for it
								 * in its instance */
	bool		local;			/* it is ours */
} ZkDeadlockMember;

typedef struct ZkDeadlock
{
	uint32		number;			/* from 1 on, since server start */
	TimestampTz detected;		/* when this instance learned of it */
	int			nmembers;
	ZkDeadlockMember *members;	/* the victim first; each is blocked by the
								 * next, and the last by the first */
} ZkDeadlock;

/* module load */
extern void deadlocks_request_shmem(void);
extern void deadlocks_startup_shmem(void);

/* the worker */
extern uint32 deadlock_add(const ZkDeadlock *deadlock);

/* any process */
extern bool deadlock_read(uint32 number, ZkDeadlock *deadlock);
extern ZkDeadlock *deadlocks_list(int *ndeadlocks);
extern void deadlocks_forget(void);

#endif							/* ZKLOCK_DEADLOCKS_H */
