/*-------------------------------------------------------------------------
 *
 * refusal.h
 *		Why ZooKeeper does not do what a backend asks for.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/refusal.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REFUSAL_H
#define ZKLOCK_REFUSAL_H

typedef enum ZkRefusal
{
	ZK_REFUSAL_NONE,
	ZK_REFUSAL_ACCESS,			/* the credentials do not allow it */
	ZK_REFUSAL_NO_CHROOT,		/* the chroot of zklock.servers is missing */
	ZK_REFUSAL_MIXED,			/* a lock and a semaphore under one name */
	ZK_REFUSAL_PERMITS,			/* the semaphore has another size */
	ZK_REFUSAL_ENDED,			/* the counter of the directory has ended */
	ZK_REFUSAL_NO_ROOM,			/* the session has too many nodes: see
								 * ZK_MAX_PATH_BYTES */
	ZK_REFUSAL_OTHER			/* the server log has the details */
} ZkRefusal;

#endif							/* ZKLOCK_REFUSAL_H */
