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

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "shared/znode.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"

typedef enum ZkSlotState
{
	ZK_SLOT_NONE,				/* the cluster has and wants nothing */
	ZK_SLOT_WANTED,				/* asked of the worker */
	ZK_SLOT_IDLE,				/* owned by the cluster, held by no backend */
	ZK_SLOT_HELD,				/* owned by the cluster, held by a backend */
	ZK_SLOT_RELEASING,			/* being given up; nobody may take it */
	ZK_SLOT_LOST				/* lost under its holder, who must learn of it */
} ZkSlotState;

/* Why ZooKeeper did not let us queue. */
typedef enum ZkRefusal
{
	ZK_REFUSAL_NONE,
	ZK_REFUSAL_ACCESS,			/* the credentials do not allow it */
	ZK_REFUSAL_NO_CHROOT,		/* the chroot of zklock.servers is missing */
	ZK_REFUSAL_OTHER			/* the server log has the details */
} ZkRefusal;

typedef struct ZkSlot
{
	char		path[ZNODE_PATH_SIZE];	/* hash key, must be first */
	uint32		hash;
	ZkSlotState state;
	int			nwanting;		/* backends between want and take */
	ConditionVariable cv;		/* broadcast at every change for a waiter */

	/* the holder, in HELD and LOST */
	int			holder_pid;
	TimestampTz held_since;
	int64		handoff_start;	/* ms; of the first handoff since the grant */

	/* the contender, as the worker last told */
	uint8		uuid[ZNODE_UUID_BYTES];
	bool		has_uuid;
	bool		has_sequence;
	int32		sequence;
	bool		queued;			/* WANTED, RELEASING: may take long */
	int64		token;			/* czxid, or 0 while not known */
	ZkRefusal	refusal;		/* news for the waiter that asked */

	/* mail to the worker */
	bool		mailed;
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

typedef struct ZkSessionInfo
{
	ZkSessionState state;
	TimestampTz state_since;
	int			worker_pid;		/* 0: none */
	int64		client_id;		/* 0: no session */
	char		chroot[ZNODE_MAX_ROOT + 1]; /* of that session, or "" */
	char		passwd[ZK_PASSWD_SIZE];
	int			timeout;		/* ms, as granted; as asked before */
	char		server[ZK_SERVER_SIZE]; /* "" if not connected */
	int64		sessions;		/* sessions begun since server start */
	int64		reconnects;		/* connections regained within a session */
	char		last_error[ZK_ERROR_SIZE];	/* "" if none since connected */
} ZkSessionInfo;

typedef enum ZkTake
{
	ZK_TAKEN,					/* the slot is ours */
	ZK_PENDING,					/* wait: no word from ZooKeeper yet */
	ZK_QUEUED,					/* wait: contenders are ahead */
	ZK_REFUSED					/* ZooKeeper refused: *refusal tells why */
} ZkTake;

/* One hold or wait, as the view zk_locks shows it. */
typedef struct ZkLockRow
{
	char		path[ZNODE_PATH_SIZE];
	int			pid;
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
	ZK_MAIL_RELEASE
} ZkMail;

/* module load */
extern void slots_request_shmem(void);
extern void slots_startup_shmem(void);
extern bool slots_available(void);

/* backends */
extern ZkSlot *slot_want(const char *path);
extern void slot_unwant(ZkSlot *slot);
extern ZkTake slot_take(ZkSlot *slot, ZkRefusal *refusal);
extern void slot_drop(ZkSlot *slot);
extern bool slot_is_mine(ZkSlot *slot, int64 *token);
extern void session_read(ZkSessionInfo *info);
extern ZkLockRow *slots_snapshot(int *nrows);
extern int	slots_count(void);

/* the worker */
extern void slots_attach_worker(void);
extern void slots_detach_worker(void);
extern ZkSlot **slots_list(int *nslots);
extern ZkSlot *slots_collect_mail(void);
extern ZkMail slot_open_mail(ZkSlot *slot, ZkSlot **next);
extern ZkSlotState slot_read_contender(ZkSlot *slot, uint8 *uuid,
									   bool *has_uuid, int32 *sequence,
									   bool *has_sequence);
extern void slot_set_uuid(ZkSlot *slot, const uint8 *uuid);
extern void slot_set_created(ZkSlot *slot, int32 sequence);
extern void slot_set_queued(ZkSlot *slot);
extern void slot_set_granted(ZkSlot *slot);
extern void slot_set_token(ZkSlot *slot, int64 token);
extern void slot_set_refused(ZkSlot *slot, ZkRefusal refusal);
extern bool slot_set_gone(ZkSlot *slot);
extern void session_write(const ZkSessionInfo *info);
extern bool slots_retire(void);

extern int64 zk_now_ms(void);

#endif							/* ZKLOCK_SLOTS_H */
