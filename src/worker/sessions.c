/*-------------------------------------------------------------------------
 *
 * sessions.c
 *		Which sessions are in use, how much room each has, and which one a
 *		contender goes into.
 *
 * An instance begins with one session, number 0, and has that at all times. A
 * contender goes into the first session that has room for it; when none has,
 * another session is opened, until there are ZK_MAX_SESSIONS.  So contenders
 * gather in the sessions with low numbers, and those with high numbers become
 * empty: lifecycle.c closes one that is empty for a while.
 *
 * A contender is in one session from when it begins until it is gone.  What
 * is asked for together goes into one session, since it is one request.
 *
 * The quota.  However a session ends, ZooKeeper writes that as one
 * transaction that lists the paths of all its ephemeral nodes:
 * PrepRequestProcessor.java makes a CloseSessionTxn of them, a vector of
 * strings with 4 bytes for the length of each.  Nothing bounds what is
 * written; but BinaryInputArchive.checkLength() lets no server read an entry
 * of the log, or a proposal of the leader, that is longer than jute.maxbuffer
 * + zookeeper.jute.maxbuffer.extrasize, each 1 MB if it is not set.
 * Followers that get a longer one leave, and servers that have logged it do
 * not start any more: the ensemble stops serving.
 *
 * So the worker counts the paths of what it creates, from when the create is
 * submitted until the node is known to be gone, and begins no contender that
 * would exceed ZK_MAX_PATH_BYTES.  The other half of jute.maxbuffer's room is
 * for what is not counted: a few bytes ahead of the list, the node by which
 * the instance tells of itself (fleet.c), and nodes that are deleted as soon
 * as they are seen (REQUEST_DELETE_ORPHAN).  The bound alone makes it safe
 * to close the session of before a crash, whose nodes nobody knows any more.
 *
 * contender.c tells what a contender counts, dispatch.c what becomes of one that
 * does not fit.
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

/* Of one session; in bytes, as ZK_MAX_PATH_BYTES counts them. */
typedef struct Quota
{
	int64		held;			/* of the nodes that contenders have, or may */
	int64		leaving;		/* the part of it that is being deleted */
	int64		left;			/* of nodes that could not be deleted */
} Quota;

static Quota quotas[ZK_MAX_SESSIONS];
static bool used[ZK_MAX_SESSIONS] = {true};
static int64 since_ms[ZK_MAX_SESSIONS];	/* as of zk_now_ms() */
static int	end = 1;			/* one more than the highest number in use */

/*
 * sessions_end
 *		One more than the highest number of a session in use.
 */
int
sessions_end(void)
{
	return end;
}

/*
 * sessions_has
 *		Is the session with this number in use: to be opened, if it is not?
 */
bool
sessions_has(int session)
{
	return used[session];
}

/*
 * sessions_since
 *		Since when is the session with this number, other than the first, in use,
 *		as of zk_now_ms()?
 */
int64
sessions_since(int session)
{
	return since_ms[session];
}

/*
 * sessions_add
 *		The session with this number is to be opened, if it is not.
 */
void
sessions_add(int session)
{
	if (!used[session])
		since_ms[session] = zk_now_ms();
	used[session] = true;
	end = Max(end, session + 1);
}

/*
 * sessions_remove
 *		The session with this number, other than the first, is not needed any
 *		more.
 */
void
sessions_remove(int session)
{
	Assert(session > 0);
	used[session] = false;
	while (!used[end - 1])
		end--;
}

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

/*
 * sessions_choose
 *		The session in which nodes of so many bytes are to be created, for a
 *		contender, or for several that are asked for together.
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
