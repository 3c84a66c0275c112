/*-------------------------------------------------------------------------
 *
 * quota.c
 *		How many bytes the paths of a session's nodes may have.
 *
 * However a session ends, ZooKeeper writes that as one transaction that lists
 * the paths of all its ephemeral nodes: PrepRequestProcessor.java makes a
 * CloseSessionTxn of them, a vector of strings with 4 bytes for the length of
 * each.  Nothing bounds what is written; but BinaryInputArchive.checkLength()
 * lets no server read an entry of the log, or a proposal of the leader, that
 * is longer than jute.maxbuffer + zookeeper.jute.maxbuffer.extrasize, each 1
 * MB if it is not set.  Followers that get a longer one leave, and servers
 * that have logged it do not start any more: the ensemble stops serving.
 *
 * So the worker counts the paths of what it creates, from when the create is
 * submitted until the node is known to be gone, and begins no contender that
 * would exceed ZK_MAX_PATH_BYTES.  The other half of jute.maxbuffer's room is
 * for what is not counted: a few bytes ahead of the list, the node by which the
 * cluster tells of itself (fleet.c), and nodes that are deleted as soon as they
 * are seen (RECIPE_OP_DELETE_STRAY).  The bound alone
 * makes it safe to close the session of before a crash, whose nodes nobody
 * knows any more.
 *
 * contender.c tells what a contender counts, desk.c what becomes of one that
 * does not fit.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/quota.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/session_info.h"
#include "shared/test_build.h"
#include "worker/lock/quota.h"

/* Of one session; in bytes, as ZK_MAX_PATH_BYTES counts them. */
typedef struct Quota
{
	int64		held;			/* of the nodes that contenders have, or may */
	int64		leaving;		/* the part of it that is being deleted */
	int64		left;			/* of nodes that could not be deleted */
} Quota;

static Quota quotas[ZK_MAX_SESSIONS];

/*
 * quota_change
 *		What contenders have, and what part of that is being deleted, has
 *		changed by so much.
 */
void
quota_change(int session, int bytes, int leaving)
{
	quotas[session].held += bytes;
	quotas[session].leaving += leaving;
}

/*
 * quota_leave
 *		A node of so many bytes may stay in ZooKeeper until the session
 *		ends.
 */
void
quota_leave(int session, int bytes)
{
	quotas[session].left += bytes;
}

/*
 * quota_forget_left
 *		The session has ended: none of its nodes is left.
 */
void
quota_forget_left(int session)
{
	quotas[session].left = 0;
}

/*
 * quota_fits
 *		Is there room for so many bytes?
 */
bool
quota_fits(int session, int64 bytes)
{
	const Quota *quota = &quotas[session];

	return quota->held + quota->left + bytes <= ZK_PATH_BYTES_BOUND;
}

/*
 * quota_will_fit
 *		Will there be room for so many bytes when all that is being deleted
 *		is gone?
 */
bool
quota_will_fit(int session, int64 bytes)
{
	return quota_fits(session, bytes - quotas[session].leaving);
}

/*
 * quota_excess
 *		How many bytes more have to go until there will be room for so
 *		many.
 */
int64
quota_excess(int session, int64 bytes)
{
	const Quota *quota = &quotas[session];

	return quota->held + quota->left - quota->leaving + bytes -
		ZK_PATH_BYTES_BOUND;
}

/*
 * quota_held
 *		Bytes of the nodes that contenders have, or may have.
 */
int64
quota_held(int session)
{
	return quotas[session].held;
}

/*
 * quota_publish
 *		Tell backends how many bytes are taken.
 */
void
quota_publish(int session)
{
	path_bytes_write(session,
					 quotas[session].held + quotas[session].left);
}
