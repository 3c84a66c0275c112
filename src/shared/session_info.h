/*-------------------------------------------------------------------------
 *
 * session_info.h
 *		What the worker publishes of the ZooKeeper session: its state, and until
 *		when it is proved that it has not ended.
 *
 * See session_info.c for the locking protocol; core/lock/lease.h for the lease
 * itself.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/session_info.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_INFO_H
#define ZKLOCK_SESSION_INFO_H

#include "core/lock/note.h"
#include "core/lock/znode.h"
#include "storage/latch.h"

/*
 * The most bytes that the paths of a session's nodes may take, each with
 * ZK_PATH_BYTES more: worker/contender.c has the reason.
 */
#define ZK_MAX_PATH_BYTES	(1024 * 1024)
#define ZK_PATH_BYTES		4

typedef enum ZkSessionState
{
	ZK_SESSION_DOWN,			/* no worker, or no address to connect to */
	ZK_SESSION_CONNECTING,		/* no session yet, or the previous one
								 * expired */
	ZK_SESSION_CONNECTED,
	ZK_SESSION_SUSPENDED		/* connection lost; the session may be alive */
} ZkSessionState;

/* The features of ZooKeeper that a server may lack and that zklock uses. */
typedef enum ZkFeature
{
	ZK_FEATURE_MULTI,
	ZK_FEATURE_CREATE2,
	ZK_FEATURE_CONTAINER,
	ZK_FEATURE_REMOVE_WATCHES,
	ZK_FEATURE_RESUME			/* of sessions, on another connection */
} ZkFeature;

#define ZK_FEATURES			(ZK_FEATURE_RESUME + 1)

#define ZK_SERVER_SIZE		64
#define ZK_ERROR_SIZE		256
#define ZK_PASSWD_SIZE		16

/*
 * The credentials that a session has presented, one string after the other,
 * each with its terminator, and an empty one at the end.
 */
#define ZK_AUTHS_SIZE		4096

/* What is needed to attach to a session. */
typedef struct SessionKey
{
	int64		client_id;		/* 0: no session */
	char		passwd[ZK_PASSWD_SIZE];
} SessionKey;

typedef struct ZkSessionInfo
{
	ZkSessionState state;
	int64		state_since;	/* as of zk_now_us() */
	int64		unreached_since;	/* as of zk_now_us(): no server has
									 * answered since then; unused while
									 * connected */
	bool		answered;		/* while connected: the server has answered */
	bool		probed;			/* a server of this session has what zklock
								 * needs */
	int			worker_pid;		/* 0: none */
	SessionKey	key;
	char		chroot[ZNODE_MAX_ROOT + 1]; /* of that session, or "" */
	bool		draining;		/* nothing is begun until nothing is held */
	int			timeout;		/* ms, as granted; before that, as asked */
	int			first_timeout;	/* ms, the shortest granted since the session
								 * began; 0: not yet */
	char		server[ZK_SERVER_SIZE]; /* "" if not connected */
	int64		sessions;		/* sessions begun since server start */
	int64		reconnects;		/* connections regained within a session */
	uint32		missing;		/* 1 << ZkFeature, of each that the servers
								 * were found to lack */
	char		last_error[ZK_ERROR_SIZE];	/* "" if none since a server
											 * has answered */
} ZkSessionInfo;

/* The state of the fleet; worker/fleet.c */
typedef struct ZkFleetInfo
{
	char		root[ZNODE_MAX_ROOT + 1];	/* below which the worker has
											 * joined; "" if not yet */
	char		node[MEMBER_NODE_SIZE]; /* "": none yet */
	char		id[MEMBER_FLEET_SIZE];	/* "" if not known */
	MemberMark	mark;			/* of the latest write of that */
	bool		dropped;		/* former credentials are no longer presented,
								 * and %clusters must exclude them */
	bool		root_set;		/* the root likewise: we have set its ACL */
} ZkFleetInfo;

/* How many instances of the fleet are remembered, and how long, in ms. */
#define ZK_KNOWN_INSTANCES	64
#define ZK_KNOWN_MS			1000

/* An instance of the fleet, as it was read last. */
typedef struct ZkInstance
{
	char		id[WORD_VALUE_SIZE];	/* prefix of its claims' tokens */
	char		cluster_name[WORD_VALUE_SIZE];
	char		host[WORD_VALUE_SIZE];
	int			port;
} ZkInstance;

/* module load */
extern void session_info_request_shmem(void);
extern void session_info_startup_shmem(void);

/* any process */
extern const char *zk_feature_name(ZkFeature feature);
extern void session_read(ZkSessionInfo *info);
extern int64 path_bytes_read(int *nlocks);
extern int64 directories_read(void);
extern void session_read_fleet(ZkFleetInfo *info);
extern int64 lease_read_ms(void);
extern void proof_wake_waiters(void);
extern void worker_wake(void);

/* backends */
extern bool instances_find(const char *id, ZkInstance *instance, bool *known);
extern void instances_write(const ZkInstance *instances, int n);
extern void member_miss(void);
extern uint32 proof_ask(void);
extern bool proof_is_given(uint32 ticket);
extern void proof_prepare_wait(void);
extern bool proof_wait(uint32 ticket, int64 until_ms, uint32 wait_event);

/* the worker */
extern void worker_set_latch(Latch *latch);
extern void session_write(const ZkSessionInfo *info);
extern char *session_auths(void);
extern void path_bytes_write(int64 bytes, int nlocks);
extern void directories_count(void);
extern void session_write_fleet(const ZkFleetInfo *info);
extern bool member_is_missed(void);
extern uint32 proof_asked(void);
extern uint32 proof_latest(void);
extern void lease_write(int64 until_ms, uint32 ticket);
extern void lease_shorten(int64 until_ms);

#endif							/* ZKLOCK_SESSION_INFO_H */
