/*-------------------------------------------------------------------------
 *
 * sessions.c
 *		Which sessions are in use, how much room each has, and which one a
 *		contender goes into.
 *
 * Session number 0 is always in use.  A contender goes into the first session
 * that has room for it; if none has, another session is opened, up to
 * ZK_MAX_SESSIONS.  So contenders gather in sessions with low numbers, and
 * those with high numbers become empty; lifecycle.c closes a session that has
 * been empty for a while.
 *
 * A contender stays in one session until it is gone.
 *
 * The quota.  However a session ends, ZooKeeper writes one transaction that
 * lists the paths of all its ephemeral nodes: PrepRequestProcessor.java makes
 * a CloseSessionTxn, a vector of strings, each with 4 bytes for its length.
 * What is written is unbounded.  But BinaryInputArchive.checkLength() lets no
 * server read a log entry, or a proposal of the leader, longer than
 * jute.maxbuffer + zookeeper.jute.maxbuffer.extrasize, by default 1 MB each.
 * Followers that receive a longer one leave the ensemble, and servers that
 * have logged one cannot be started again: the ensemble stops serving.
 *
 * So the worker counts the paths of what it creates, from the submission of
 * the create until the node is known to be gone, and begins no contender that
 * would exceed ZK_MAX_PATH_BYTES.  The other half of jute.maxbuffer is for
 * what is not counted: a few bytes before the list, the instance's member
 * znode (fleet.c), and nodes that are deleted as soon as they are seen
 * (REQUEST_DELETE_ORPHAN).  Because of the bound alone, a session from before
 * a crash can safely be closed although its nodes are unknown.
 *
 * contender.c computes what a contender counts; dispatch.c handles contenders
 * that do not fit.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/sessions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/test_build.h"
#include "worker/sessions.h"

/* By session; in bytes, as ZK_MAX_PATH_BYTES counts them. */
typedef struct Quota
{
	int64		held;			/* of nodes that contenders have, or may
								 * have */
	int64		leaving;		/* the part that is being deleted */
	int64		left;			/* of nodes that could not be deleted */
} Quota;

static Quota quotas[ZK_MAX_SESSIONS];
static bool used[ZK_MAX_SESSIONS] = {true};
static int64 since_ms[ZK_MAX_SESSIONS];	/* as of zk_now_ms() */
static int	end = 1;			/* the highest number in use, plus one */

/* The highest number of a session in use, plus one. */
int
sessions_end(void)
{
	return end;
}

/* Is this session in use (open, or to be opened)? */
bool
sessions_has(int session)
{
	return used[session];
}

/*
 * sessions_since
 *		Since when this session, other than the first, is in use, as of
 *		zk_now_ms().
 */
int64
sessions_since(int session)
{
	return since_ms[session];
}

/* Use this session. */
void
sessions_add(int session)
{
	if (!used[session])
		since_ms[session] = zk_now_ms();
	used[session] = true;
	end = Max(end, session + 1);
}

/* This session, other than the first, is no longer needed. */
void
sessions_remove(int session)
{
	Assert(session > 0);
	used[session] = false;
	while (!used[end - 1])
		end--;
}

/* Change the bytes that contenders have, and those being deleted. */
void
quota_change(int session, int bytes, int leaving)
{
	quotas[session].held += bytes;
	quotas[session].leaving += leaving;
}

/* A node with so many bytes may remain until the session ends. */
void
quota_leave(int session, int bytes)
{
	quotas[session].left += bytes;
}

/* The session has ended, and with it all its nodes. */
void
quota_forget_left(int session)
{
	quotas[session].left = 0;
}

/* Is there room for so many bytes? */
bool
quota_fits(int session, int64 bytes)
{
	const Quota *quota = &quotas[session];

	return quota->held + quota->left + bytes <= ZK_PATH_BYTES_BOUND;
}

/*
 * quota_will_fit
 *		Will there be room for so many bytes when everything being deleted
 *		is gone?
 */
bool
quota_will_fit(int session, int64 bytes)
{
	return quota_fits(session, bytes - quotas[session].leaving);
}

/* How many more bytes must be deleted before so many fit. */
int64
quota_excess(int session, int64 bytes)
{
	const Quota *quota = &quotas[session];

	return quota->held + quota->left - quota->leaving + bytes -
		ZK_PATH_BYTES_BOUND;
}

/* Bytes of the nodes that contenders have, or may have. */
int64
quota_held(int session)
{
	return quotas[session].held;
}

/* Publish how many bytes are taken. */
void
quota_publish(int session)
{
	path_bytes_write(session,
					 quotas[session].held + quotas[session].left);
}

/*
 * sessions_choose
 *		The session in which to create nodes of so many bytes, for a contender.
 *
 * Returns NO_SESSION if they fit in none.
 */
int
sessions_choose(int64 bytes)
{
	int			unused = NO_SESSION;

	for (int i = 0; i < ZK_SESSIONS_BOUND; i++)
	{
		if (used[i] && quota_fits(i, bytes))
			return i;
		if (!used[i] && unused == NO_SESSION)
			unused = i;
	}
	if (unused != NO_SESSION && quota_fits(unused, bytes))
	{
		sessions_add(unused);
		return unused;
	}
	return NO_SESSION;
}
