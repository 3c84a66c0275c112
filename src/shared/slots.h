/*-------------------------------------------------------------------------
 *
 * slots.h
 *		The locks of this cluster in shared memory.
 *
 * Where backend/ and worker/ meet: see the header of slots.c for the states
 * and the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slots.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SLOTS_H
#define ZKLOCK_SLOTS_H

#include "core/znode.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"

typedef enum ZkSlotState
{
	ZK_SLOT_NONE,				/* the cluster has and wants nothing */
	ZK_SLOT_WANTED,				/* asked of the worker */
	ZK_SLOT_IDLE,				/* owned by the cluster, held by no backend */
	ZK_SLOT_HELD,				/* owned by the cluster, held by backends */
	ZK_SLOT_RELEASING			/* being given up; nobody may take it */
} ZkSlotState;

/* Why ZooKeeper did not let us queue. */
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

/* The most locks that are taken together, by one request to ZooKeeper. */
#define ZK_MAX_TOGETHER		500

/*
 * The nodes of a session may have paths of so many bytes, each with
 * ZK_PATH_BYTES more: worker.c tells why.
 */
#define ZK_MAX_PATH_BYTES	(1024 * 1024)
#define ZK_PATH_BYTES		4

/*
 * A slot's key is the path of its lock directory.  Slots of the same directory
 * that serve something else than exclusive locks add a mark: ZK_KEY_MARK, which
 * no path can contain, and something that tells them apart.
 */
#define ZK_KEY_MARK			"//"
#define ZK_KEY_MARK_SIZE	10
#define ZK_SLOT_KEY_SIZE	(ZNODE_PATH_SIZE + ZK_KEY_MARK_SIZE)

/*
 * The same in shared memory, where the root is a number of two digits: it is
 * long, and nearly always the same.
 */
#define ZK_ROOT_DIGITS		2
#define ZK_SHORT_KEY_SIZE	(ZK_ROOT_DIGITS + ZNODE_MAX_NAME + \
							 ZK_KEY_MARK_SIZE + 1)

/*
 * What one backend wants or holds of a slot, as a PROCLOCK is for the lock
 * manager.
 */
typedef struct ZkProcLock
{
	struct ZkSlot *slot;
	struct ZkProcLock *next;	/* of the same slot, or of the free list */
	int			pid;
	bool		granted;		/* holds the slot; else wants it */
	bool		lost;			/* granted, but the contender is gone */
	bool		ready;			/* has the heavyweight lock, and only waits
								 * for the slot */
	bool		session;		/* has a session-scoped hold */
	bool		together;		/* wants it only together with others */
	bool		asked;			/* has asked for a contender */
	bool		committing;		/* past the commit check: not to be canceled */
	ZnodeKind	kind;			/* of the contender that it wanted */
	int64		since;			/* that it wants it, or holds it; as of
								 * zk_now_us() */
} ZkProcLock;

/* What the worker keeps in ZooKeeper for a slot, or is asked to. */
typedef struct ZkContender
{
	uint32		group;			/* to be created in one step with others of
								 * the same number, or 0 */
	int			permits;		/* of a semaphore, or 0 */
	int			asker_pid;		/* of the backend that asked for it */
	int32		sequence;
	uint8		uuid[ZNODE_UUID_BYTES];
	uint8		kind;			/* ZnodeKind */
	bool		has_uuid;
	bool		has_sequence;
	bool		retain;			/* its znode says that it may be idle */
} ZkContender;

/* What the waiters of a slot need a contender for. */
typedef struct ZkAsk
{
	ZnodeKind	kind;
	int			permits;
	int			pid;			/* of the latest of them */
} ZkAsk;

/* There may be many of these, so they are kept small. */
typedef struct ZkSlot
{
	char		key[ZK_SHORT_KEY_SIZE]; /* hash key, must be first */
	uint32		hash;
	uint8		state;			/* ZkSlotState */
	uint8		refusal;		/* ZkRefusal: news for the waiter that asked */
	bool		queued;			/* WANTED, RELEASING: may take long */
	bool		reserved;		/* for who takes several slots together */
	bool		asked;			/* somebody waits for a contender: see "ask" */
	bool		mailed;			/* in the worker's mail */
	bool		look_wanted;	/* see ZK_MAIL_CHECK_WRITERS */
	bool		watch_wanted;	/* see ZK_MAIL_WATCH_QUEUE ... */
	bool		watch_asked;	/* ... and once is enough */
	bool		watched;		/* the worker hears of others behind us */
	bool		crowded;		/* it has */
	uint8		contested;		/* we had to queue behind others for it: 2;
								 * for the contender before it: 1 */
	bool		writer_behind;	/* seen at looked_at, behind our readers */
	ZkAsk		ask;
	int			permits_found;	/* of ZK_REFUSAL_PERMITS */
	ZkContender contender;		/* in any state but NONE */
	int64		token;			/* czxid, or 0 while not known */
	ConditionVariable cv;		/* broadcast at every change for a waiter */

	/* the backends, in the order in which they came */
	int			nwanting;
	int			nholding;		/* without those that have lost it */
	ZkProcLock *procs;
	ZkProcLock **procs_end;		/* the last "next" */

	/* fairness to contenders of others; times as of zk_now_ms(), or in us */
	int			turn_due;		/* backends that waited at handoff_start and
								 * have not had the lock since */
	int64		handoff_start;	/* us: of the first handoff since the grant,
								 * or since others are known to wait; or 0 */
	int64		keep_until;		/* IDLE: not given up before, if nobody else
								 * waits */
	int64		looked_at;		/* when we looked who is behind us */
	int64		look_start;		/* of the look under way, or 0 */

	struct ZkSlot *mail_next;
} ZkSlot;

typedef enum ZkSessionState
{
	ZK_SESSION_DOWN,			/* no worker, or no address to connect to */
	ZK_SESSION_CONNECTING,		/* no session yet, or the last one expired */
	ZK_SESSION_CONNECTED,
	ZK_SESSION_SUSPENDED		/* connection lost, session perhaps alive */
} ZkSessionState;

#define ZK_SERVER_SIZE		64
#define ZK_ERROR_SIZE		256
#define ZK_PASSWD_SIZE		16

/*
 * The credentials that a session has presented, one string after the other,
 * each with its end, and an empty one behind the last.
 */
#define ZK_AUTHS_SIZE		4096

typedef struct ZkSessionInfo
{
	ZkSessionState state;
	TimestampTz state_since;
	int			worker_pid;		/* 0: none */
	int64		client_id;		/* 0: no session */
	char		chroot[ZNODE_MAX_ROOT + 1]; /* of that session, or "" */
	char		passwd[ZK_PASSWD_SIZE];
	bool		draining;		/* nothing new is begun until nothing is held */
	int			timeout;		/* ms, as granted; as asked before */
	int			first_timeout;	/* ms, as granted when the session began */
	char		server[ZK_SERVER_SIZE]; /* "" if not connected */
	int64		sessions;		/* sessions begun since server start */
	int64		reconnects;		/* connections regained within a session */
	char		last_error[ZK_ERROR_SIZE];	/* "" if none since connected */
} ZkSessionInfo;

typedef enum ZkTake
{
	ZK_TAKEN,					/* the slot is ours */
	ZK_PENDING,					/* wait: no word from ZooKeeper yet */
	ZK_UNPROVED,				/* wait: is the cluster still the owner? */
	ZK_QUEUED,					/* wait: contenders are ahead */
	ZK_REFUSED					/* ZooKeeper refused: *refusal tells why */
} ZkTake;

/* One hold or wait, as the view zk_locks shows it. */
typedef struct ZkLockRow
{
	char		key[ZK_SLOT_KEY_SIZE];
	int			pid;
	ZnodeKind	kind;
	bool		session;
	bool		granted;
	bool		lost;
	TimestampTz since;
	int64		token;
} ZkLockRow;

/* What a slot in the worker's mail asks for. */
typedef enum ZkMail
{
	ZK_MAIL_NOTHING,			/* overtaken by events */
	ZK_MAIL_WANT,
	ZK_MAIL_CHECK_WRITERS,				/* once: is a writer behind our readers? */
	ZK_MAIL_WATCH_QUEUE,				/* from now on: is anybody behind us? */
	ZK_MAIL_RELEASE
} ZkMail;

/* module load */
extern void slots_request_shmem(void);
extern void slots_startup_shmem(void);
extern bool slots_available(void);

/* backends */
extern ZkProcLock *slot_want(const char *key, ZnodeKind kind, bool session,
							 bool together);
extern void slot_unwant(ZkProcLock *proc);
extern ZkSlotState slot_find_contender(const char *key,
									   ZkContender *contender);
extern void slot_ask(ZkProcLock *proc);
extern void slot_ask_for_others(const char *key);
extern ZkTake slot_take(ZkProcLock *proc, int permits, ZkRefusal *refusal,
						int *permits_found);
extern ZkTake slots_take_together(ZkProcLock **procs, int n, uint32 *group,
								  int *which, ZkRefusal *refusal);
extern void slot_yield(const char *key);
extern void slot_drop(ZkProcLock *proc, int64 now);
extern ZkSlotState slot_read_state(ZkSlot *slot);
extern bool slot_is_leaving(ZkSlot *slot, bool *stuck);
extern bool slot_is_mine(ZkProcLock *proc, int64 *token);
extern bool slot_begin_commit(ZkProcLock *proc);
extern void slot_end_commit(ZkProcLock *proc);
extern void slot_set_scope(ZkProcLock *proc, bool session);
extern int64 lease_read(void);
extern uint32 proof_ask(void);
extern bool proof_is_given(uint32 ticket);
extern void proof_prepare_wait(void);
extern void session_read(ZkSessionInfo *info);
extern int64 path_bytes_read(void);
extern int64 directories_read(void);
extern ZkLockRow *slots_snapshot(int *nrows);
extern int *slots_holders(const char *path, int *npids);
extern int	slots_cancel_holders(const char *path, const int *pids,
								 int npids);
extern void slots_count(int *nslots, int *nprocs);

/* the worker */
extern void slots_attach_worker(void);
extern void slots_detach_worker(void);
extern void slot_read_path(const ZkSlot *slot, char path[ZNODE_PATH_SIZE]);
extern ZkSlot **slots_list(int *nslots);
extern void slots_hold_mail(bool held);
extern ZkSlot *slots_collect_mail(void);
extern ZkMail slot_open_mail(ZkSlot *slot, ZkSlot **next,
							 ZkContender *wanted);
extern ZkSlotState slot_read_contender(ZkSlot *slot, ZkContender *contender);
extern void slot_set_uuid(ZkSlot *slot, const uint8 *uuid, bool retain);
extern void slot_set_created(ZkSlot *slot, int32 sequence);
extern void slot_set_uncreated(ZkSlot *slot);
extern void slot_set_queued(ZkSlot *slot);
extern void slot_set_stuck(ZkSlot *slot);
extern int64 slot_set_granted(ZkSlot *slot);
extern void slot_set_writers_checked(ZkSlot *slot, bool writer_behind);
extern void slot_set_watched(ZkSlot *slot, bool watched);
extern bool slot_set_contended(ZkSlot *slot);
extern void slot_set_token(ZkSlot *slot, int64 token);
extern void slot_set_refused(ZkSlot *slot, ZkRefusal refusal,
							 int permits_found);
extern void slot_set_lost(ZkSlot *slot);
extern bool slot_set_gone(ZkSlot *slot);
extern void session_write(const ZkSessionInfo *info);
extern void path_bytes_write(int64 bytes);
extern void directories_count(void);
extern void session_read_auths(char auths[ZK_AUTHS_SIZE]);
extern void session_write_auths(const char auths[ZK_AUTHS_SIZE]);
extern uint32 proof_asked(void);
extern uint32 proof_latest(void);
extern void lease_write(int64 until, uint32 ticket);
extern void lease_shorten(int64 until);
extern int	slot_cancel_holders(ZkSlot *slot);
extern int64 slot_check_idle(ZkSlot *slot, int64 now);
extern bool slot_give_up_idle(ZkSlot *slot);
extern bool slots_retire(void);

extern void worker_wake(void);
extern int64 zk_now_ms(void);
extern int64 zk_now_us(void);

#endif							/* ZKLOCK_SLOTS_H */
