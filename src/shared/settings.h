/*-------------------------------------------------------------------------
 *
 * settings.h
 *		Settings of the extension, for all files that know PostgreSQL.
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

#include "utils/guc.h"

typedef enum ZkAcl
{
	ZK_ACL_OPEN,				/* anyone may do anything with our znodes */
	ZK_ACL_CREATOR				/* only clients with the same credentials */
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

typedef enum ZkExclusion
{
	ZK_EXCLUSION_FLEET,			/* locks exclude all instances */
	ZK_EXCLUSION_INSTANCE		/* ... this one only, without ZooKeeper */
} ZkExclusion;

/* A setting with a wrong value. */
typedef struct ZkWrongSetting
{
	const char *name;
	const char *value;			/* NULL: a secret */
	const char *problem;		/* a sentence */
	int			sqlstate;		/* of calls that need the setting */
} ZkWrongSetting;

extern char *zklock_servers;
extern int	zklock_session_timeout; /* ms */
extern char *zklock_root;
extern int	zklock_max_locks;
extern int	zklock_max_claims;
extern int	zklock_max_claims_per_role; /* -1: a tenth of these */
extern int	zklock_max_tracked_locks;
extern int	zklock_handoff_quantum; /* ms */
extern int	zklock_retain_time; /* ms, or ZK_RETAIN_BY_HABIT */
extern int	zklock_max_retain_time; /* ms */
extern char *zklock_auth;
extern int	zklock_acl;			/* a ZkAcl */
extern int	zklock_node_format; /* a ZkFormat, of exclusive contenders */
extern int	zklock_commit_check;	/* a ZkCommitCheck */
extern int	zklock_commit_timeout;	/* ms; 0: none */
extern bool zklock_terminate_on_loss;
extern bool zklock_deadlock_check;
extern int	zklock_exclusion;	/* a ZkExclusion */
extern int	zklock_advisory_locks;	/* a ZkAdvisoryLocks */
extern char *zklock_advisory_namespace; /* "": the database's name */
extern bool zklock_advisory_used;	/* all plans call our functions */
extern char *zklock_tls_ca;
extern char *zklock_tls_cert;
extern char *zklock_tls_key;
extern char *zklock_sasl_user;
extern char *zklock_sasl_password_file;

/* zklock.retain_time: as core/lock/habit decides for each lock. */
#define ZK_RETAIN_BY_HABIT	(-1)

/* The prefix of the names that stand for advisory locks. */
#define ZK_ADVISORY_PREFIX	"advisory/"

/* The longest zklock.auth, in bytes: several must fit into ZK_AUTHS_SIZE. */
#define ZKLOCK_MAX_AUTH		1000

/*
 * Symbols of libzookeeper_mt if it was built with OpenSSL, or with Cyrus SASL,
 * else NULL; client.c has the types of the first two.
 */
extern void zookeeper_init_ssl(void) __attribute__((weak));
extern void zookeeper_init_sasl(void) __attribute__((weak));
extern void *zoo_sasl_make_basic_callbacks(const char *user, const char *realm,
										   const char *password_file) __attribute__((weak));

/* Symbols of libsasl2, if it is loaded. */
extern int	sasl_client_init(const void *callbacks) __attribute__((weak));

extern void settings_define(void);
extern int64 most_retain_us(void);
extern bool zk_wrong_setting(bool locks, ZkWrongSetting *wrong);
extern char *zk_describe_wrong_setting(const ZkWrongSetting *wrong);
extern bool tls_is_wanted(void);
extern bool sasl_is_wanted(void);
extern const char *secure_name_of_credentials(void);

#endif							/* ZKLOCK_SETTINGS_H */
