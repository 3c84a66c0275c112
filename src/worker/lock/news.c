/*-------------------------------------------------------------------------
 *
 * news.c
 *		News of contenders for their slots.
 *
 * What a step tells goes to the slot, and so to backends, to the server log,
 * and to what the worker knows of the contender.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/news.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/recipe.h"
#include "core/lock/semaphore.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/refusal.h"
#include "shared/slots.h"
#include "worker/lock/contender.h"
#include "worker/lock/directories.h"
#include "worker/lock/news.h"
#include "worker/sessions.h"
#include "worker/wake.h"
#include "worker/zookeeper/session.h"

/* How long to wait before trying again what ZooKeeper has refused. */
#define RETRY_DELAY_MS		10000

/* How long a retained owner may take to say whether it needs its lock. */
#define RETAINED_ANSWER_MS	1000

static void
refuse(Contender *contender, const SlotNews *news)
{
	ZkRefusal	refusal = ZK_REFUSAL_OTHER;

	if (news->told & RECIPE_TOLD_MIXED)
		refusal = ZK_REFUSAL_MIXED;
	else if (news->told & RECIPE_TOLD_ENDED)
		refusal = ZK_REFUSAL_ENDED;
	else if (news->permits_found != 0)
		refusal = ZK_REFUSAL_PERMITS;
	else
	{
		if (session_error_is_access(news->error))
			refusal = ZK_REFUSAL_ACCESS;
		else if (session_error_is_no_node(news->error))
			refusal = ZK_REFUSAL_NO_CHROOT;
		ereport(LOG,
				(errmsg("ZooKeeper refused a contender for \"%s\": %s",
						contender->directory, session_error_text(news->error))));
	}
	slot_set_refused(contender->slot, refusal, news->permits_found);
}

/* Have what was refused tried again. */
static void
schedule_retry(void)
{
	if (wake_time(WAKE_RETRY) == 0)
		wake_set(WAKE_RETRY, zk_now_ms() + RETRY_DELAY_MS);
}

/*
 * Our node may be left in ZooKeeper.  If its deletion was refused, the worker
 * tries again from time to time, and tells backends that want the slot that it
 * may take long.
 */
static void
warn_of_left(Contender *contender, const SlotNews *news)
{
	ereport(WARNING,
			(errmsg("could not delete contender \"%s/%s\": %s",
					news->left_path, news->left,
					session_error_text(news->error)),
			 errdetail("If it exists, it blocks the lock until the session ends.")));
	if (contender->is_permit ?
		!contender->semaphore.refused && !contender->semaphore.lock.refused :
		contender->recipe.state == RECIPE_NONE)
		quota_leave(contender->session,
					contender_bytes_wanted(contender));
	if (contender->is_permit ?
		contender->semaphore.state != SEMAPHORE_NONE :
		contender->recipe.state == RECIPE_LEAVING)
	{
		slot_set_stuck(contender->slot);
		schedule_retry();
	}
}

/*
 * ZooKeeper does not tell the fencing token.  Holders that ask for it fail, and
 * the worker tries again from time to time.
 */
static void
refuse_token(const Contender *contender, int error)
{
	ZkRefusal	refusal = session_error_is_access(error) ? ZK_REFUSAL_ACCESS :
		ZK_REFUSAL_OTHER;

	if (slot_set_no_token(contender->slot, refusal))
		ereport(LOG,
				(errmsg("ZooKeeper refused the fencing token of \"%s\": %s",
						contender->directory, session_error_text(error))));
	schedule_retry();
}

/* Another client has written into our node that it wants the lock. */
static void
revoked(const Contender *contender)
{
	int			n = slot_cancel_holders(contender->slot);

	ereport(LOG,
			(errmsg("another client requests revocation of lock \"%s\"", contender->directory),
			 errdetail_plural("The statement of %d holder has been canceled.",
							  "The statements of %d holders have been canceled.",
							  n, n)));
}

/*
 * news_note_owner
 *		The contender owns its lock: the sweep of all owners looks after
 *		it.
 */
void
news_note_owner(Contender *contender)
{
	contender->owner_since_ms = zk_now_ms();
	if (wake_time(WAKE_SWEEP) == 0)
		wake_set(WAKE_SWEEP, contender->owner_since_ms + SWEEP_INTERVAL_MS);
}

/* The contender has a node in the queue, or has lost the one that it had. */
static void
note_created(Contender *contender, unsigned told)
{
	if (told & RECIPE_TOLD_CREATED)
	{
		slot_set_created(contender->slot, contender->recipe.sequence);
		contender->created = true;
		contender->note_version = 0;
		directory_note(contender->directory, true);
	}
	else if (contender->created && contender->recipe.state == RECIPE_ENTERING)
	{
		/* the next worker must not look for the node of before */
		slot_set_uncreated(contender->slot);
		contender->created = false;
		contender_set_queued(contender, false);
	}
}

/* How the contender stands in its queue. */
static void
tell_queue(Contender *contender, unsigned told)
{
	ZkSlot	   *slot = contender->slot;

	if (told & (RECIPE_TOLD_QUEUED | RECIPE_TOLD_GRANTED))
		contender->answer_due_ms = 0;
	if (told & RECIPE_TOLD_QUEUED)
	{
		slot_set_queued(slot);
		contender_set_queued(contender, true);
	}
	if (told & RECIPE_TOLD_RETAINED)
	{
		contender->answer_due_ms = zk_now_ms() + RETAINED_ANSWER_MS;
		contender_schedule_check(contender, contender->answer_due_ms);
	}
	if (told & RECIPE_TOLD_GRANTED)
	{
		contender_set_queued(contender, false);
		news_note_owner(contender);
		contender_schedule_check(contender, slot_set_granted(slot));
	}
	if (told & RECIPE_TOLD_ALONE)
		slot_set_alone(slot);
	if ((told & RECIPE_TOLD_CONTENDED) && contender->awaited)
	{
		contender->awaited = false;
		wake_set(WAKE_SCAN, zk_now_ms());
	}
	if (told & (RECIPE_TOLD_NO_WRITER | RECIPE_TOLD_WRITER))
	{
		slot_set_writers_checked(slot, (told & RECIPE_TOLD_WRITER) != 0);
		contender_set_queued(contender, (told & RECIPE_TOLD_WRITER) != 0);
	}
}

/*
 * news_tell
 *		Tell the slot and the server log what a step of the contender came
 *		out with.
 *
 * Left to the caller is what another step may follow: GONE, and CONTENDED.
 */
void
news_tell(Contender *contender, const SlotNews *news)
{
	unsigned	told = news->told;

	if (told & RECIPE_TOLD_STRANGER)
		directory_warn(news->stranger_path, news->stranger, false);
	if (told & RECIPE_TOLD_PERSISTENT)
		directory_warn(news->stranger_path, news->stranger, true);
	if (!contender->is_permit)
		note_created(contender, told);
	tell_queue(contender, told);
	if (told & RECIPE_TOLD_REVOKED)
		revoked(contender);
	if (told & RECIPE_TOLD_RENEWED)
		ereport(LOG,
				(errmsg("the queue of \"%s\" has begun anew in ZooKeeper, because its sequence numbers were nearly used up",
						contender->directory)));
	if (told & RECIPE_TOLD_TOKEN)
		slot_set_token(contender->slot, news->token);
	if (told & RECIPE_TOLD_NO_TOKEN)
		refuse_token(contender, news->error);
	if (told & RECIPE_TOLD_LOST)
	{
		ereport(LOG,
				(errmsg("lost the lock \"%s\"", contender->directory)));
		slot_set_lost(contender->slot);
	}
	if (told & RECIPE_TOLD_FAILED)
		refuse(contender, news);
	if (told & RECIPE_TOLD_LEFT)
		warn_of_left(contender, news);
	if (!contender->is_permit && !contender->recipe.dir_known)
		directory_note(contender->directory, false);
}
