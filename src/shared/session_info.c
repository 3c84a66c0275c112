/*-------------------------------------------------------------------------
 *
 * session_info.c
 *		What the worker publishes of the ZooKeeper sessions.
 *
 * It is kept for views, for backends that wait for a session, and for the
 * worker after this one, which resumes the sessions by it.  There is an entry
 * for each number that a session may have; the first one is always in use.
 * Backends that have no contender yet go by the first.
 *
 * Locking protocol.  All fields are guarded by one LWLock, of the tranche
 * ZK_TRANCHE, which may be taken inside any other; only the worker writes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/session_info.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define ZK_TRANCHE		"zklock session"

/* One session; sessions go by their numbers, from 0. */
typedef struct SessionEntry
{
	ZkSessionInfo info;
	int64		path_bytes;		/* of the session's nodes, at the most */
} SessionEntry;

typedef struct SessionShared
{
	SessionEntry entries[ZK_MAX_SESSIONS];
	int64		directories;	/* lock directories made since server start */
	char		auths[ZK_AUTHS_SIZE];	/* for the worker alone */
	ZkFleetInfo fleet;
} SessionShared;

static SessionShared *shared = NULL;
static LWLock *session_lock = NULL;

/*
 * session_info_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
session_info_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(SessionShared));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/*
 * session_info_startup_shmem
 *		Create or attach to what is known of the session; for the
 *		shmem_startup_hook.
 */
void
session_info_startup_shmem(void)
{
	bool		found;

	/* in case this is a restart within the postmaster */
	shared = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct(ZK_TRANCHE, sizeof(SessionShared), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(SessionShared));
		for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		{
			ZkSessionInfo *info = &shared->entries[i].info;

			info->state = ZK_SESSION_DOWN;
			info->state_since = zk_now_us();
			info->unreached_since = info->state_since;
			info->timeout = zklock_session_timeout;
		}
	}
	session_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
	LWLockRelease(AddinShmemInitLock);
}

/*
 * session_read
 *		Copy the state of the ZooKeeper session with this number.
 */
void
session_read(int session, ZkSessionInfo *info)
{
	LWLockAcquire(session_lock, LW_SHARED);
	*info = shared->entries[session].info;
	LWLockRelease(session_lock);
}

/*
 * session_write
 *		Publish the state of a ZooKeeper session; the worker only.
 */
void
session_write(int session, const ZkSessionInfo *info)
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->entries[session].info = *info;
	LWLockRelease(session_lock);
}

/*
 * session_read_auths, session_write_auths
 *		The credentials that the sessions have presented; the worker only.
 *
 * They are kept for the worker after this one, apart from what views show.
 */
void
session_read_auths(char auths[ZK_AUTHS_SIZE])
{
	LWLockAcquire(session_lock, LW_SHARED);
	memcpy(auths, shared->auths, ZK_AUTHS_SIZE);
	LWLockRelease(session_lock);
}

void
session_write_auths(const char auths[ZK_AUTHS_SIZE])
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	memcpy(shared->auths, auths, ZK_AUTHS_SIZE);
	LWLockRelease(session_lock);
}

/*
 * path_bytes_read
 *		How many of ZK_MAX_PATH_BYTES the session has in use.
 */
int64
path_bytes_read(int session)
{
	int64		bytes;

	LWLockAcquire(session_lock, LW_SHARED);
	bytes = shared->entries[session].path_bytes;
	LWLockRelease(session_lock);
	return bytes;
}

/*
 * path_bytes_read_all
 *		How many bytes all sessions have in use.
 */
int64
path_bytes_read_all(void)
{
	int64		bytes = 0;

	LWLockAcquire(session_lock, LW_SHARED);
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		bytes += shared->entries[i].path_bytes;
	LWLockRelease(session_lock);
	return bytes;
}

/*
 * path_bytes_write
 *		Publish how many of ZK_MAX_PATH_BYTES are in use; the worker only.
 */
void
path_bytes_write(int session, int64 bytes)
{
	/* nobody else changes it, and mostly it is the same */
	if (shared->entries[session].path_bytes == bytes)
		return;
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->entries[session].path_bytes = bytes;
	LWLockRelease(session_lock);
}

/*
 * directories_read
 *		How many lock directories the worker has made since server start.
 */
int64
directories_read(void)
{
	int64		directories;

	LWLockAcquire(session_lock, LW_SHARED);
	directories = shared->directories;
	LWLockRelease(session_lock);
	return directories;
}

/*
 * directories_count
 *		The worker has made a lock directory.
 */
void
directories_count(void)
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->directories++;
	LWLockRelease(session_lock);
}

/*
 * session_read_fleet
 *		Copy what is known of the fleet.
 */
void
session_read_fleet(ZkFleetInfo *info)
{
	LWLockAcquire(session_lock, LW_SHARED);
	*info = shared->fleet;
	LWLockRelease(session_lock);
}

/*
 * session_write_fleet
 *		Publish what is known of the fleet; the worker only.
 */
void
session_write_fleet(const ZkFleetInfo *info)
{
	LWLockAcquire(session_lock, LW_EXCLUSIVE);
	shared->fleet = *info;
	LWLockRelease(session_lock);
}
