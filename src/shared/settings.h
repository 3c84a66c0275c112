/*-------------------------------------------------------------------------
 *
 * settings.h
 *		Settings of the extension, for all rooms that know PostgreSQL.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/settings.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTINGS_H
#define ZKLOCK_SETTINGS_H

#include "shared/setting_check.h"

typedef enum ZkAcl
{
	ZK_ACL_OPEN,				/* anyone may do anything with our znodes */
	ZK_ACL_CREATOR				/* only who has the same credentials */
} ZkAcl;

typedef enum ZkFormat
{
	ZK_FORMAT_MUTEX,			/* as Curator's InterProcessMutex */
	ZK_FORMAT_READWRITE			/* as its InterProcessReadWriteLock */
} ZkFormat;

typedef enum ZkCommitCheck
{
	ZK_CHECK_LEASE,				/* pass while the lease runs */
	ZK_CHECK_QUORUM,			/* ask ZooKeeper at each commit */
	ZK_CHECK_OFF				/* only what is known already */
} ZkCommitCheck;

typedef enum ZkAdvisoryLocks
{
	ZK_ADVISORY_OFF,			/* pg_advisory_lock() is PostgreSQL's */
	ZK_ADVISORY_ON				/* it takes a lock in ZooKeeper */
} ZkAdvisoryLocks;

extern char *zklock_servers;
extern int	zklock_session_timeout; /* ms */
extern char *zklock_root;
extern int	zklock_max_locks;
extern int	zklock_track_locks;
extern int	zklock_handoff_quantum; /* ms */
extern int	zklock_retain_time; /* ms */
extern char *zklock_auth;
extern int	zklock_acl;			/* a ZkAcl */
extern int	zklock_node_format; /* a ZkFormat, of exclusive contenders */
extern int	zklock_commit_check;	/* a ZkCommitCheck */
extern int	zklock_commit_timeout;	/* ms; 0: none */
extern bool zklock_deadlock_check;
extern int	zklock_advisory_locks;	/* a ZkAdvisoryLocks */
extern bool zklock_advisory_used;	/* it has been on in this process */

/* Longest zklock.auth, in bytes: several must fit into ZK_AUTHS_SIZE. */
#define ZKLOCK_MAX_AUTH		1000

extern void settings_define(void);
extern int64 handoff_quantum_us(void);
extern int64 retain_time_us(void);
extern bool zk_wrong_setting(bool locks, ZkWrongSetting *wrong);
extern char *zk_describe_wrong_setting(const ZkWrongSetting *wrong);

#endif							/* ZKLOCK_SETTINGS_H */
