/*-------------------------------------------------------------------------
 *
 * sessions.c
 *		Which sessions are in use, and which one a contender goes into.
 *
 * A cluster begins with one session, number 0, and has that at all times.  A
 * contender goes into the first session that has room for it (quota.c); when
 * none has, another session is opened, until there are ZK_MAX_SESSIONS.  So
 * contenders gather in the sessions with low numbers, and those with high
 * numbers become empty: lives.c closes one that is empty for a while.
 *
 * A contender is in one session from when it begins until it is gone.  What
 * is asked for together goes into one session, since it is one request.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/sessions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/test_build.h"
#include "worker/lock/quota.h"
#include "worker/lock/sessions.h"

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
