/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *		What makes contenders begin, end and look again: mail and time.
 *
 * Mail of the slots begins and releases contenders.  One for which the session
 * has no room (contender.c) is deferred to the end of the iteration, when all that
 * is to be released has been.  If there is no room then either, retained ones
 * are given up for it; if that is not enough, it is refused with an error.
 *
 * Independently of mail and answers, the worker retries what ZooKeeper has
 * refused, gives up idle locks, counts a retained owner that does not answer
 * as a holder, watches long-time owners for a revocation, lets contenders look
 * at what they watch, and ends claims that are over.
 *
 * Watches.  A contender whose watch never fires would wait forever, and an
 * owner that watches its queue would keep the lock from others: no event is
 * sent twice, and a server or the client library may lose one.  So a contender
 * that has waited for its watch for a session timeout looks at what it
 * watches.  The one that has waited for longest is first.  With n of them, one
 * is due in each nth part of a timeout: so all are done after two timeouts,
 * and never many at once.  No more than 100 are due in a second, so 10,000
 * contenders take 100 seconds.  They go a few together, since other requests
 * wait for a flight of reads.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/dispatch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/outcome.h"
#include "shared/test_build.h"
#include "worker/contender_private.h"
#include "worker/wake.h"
#include "worker/zookeeper/session.h"

/*
 * The most contenders that are watched for a revocation: the library sets all
 * watches again in one request when it reconnects.
 */
#define MAX_REVOCABLE		1000

/*
 * The pause between two sweeps over the owners is the larger of
 * SWEEP_INTERVAL_MS and this multiple of a sweep's CPU time, which is some
 * ms with 8,000 owners.
 */
#define SWEEP_PAUSE			50

/* How many contenders look together, and how often. */
#define LOOKS_AT_A_TIME		10
#define LOOKS_PAUSE_MS		100

/* Claims that end before they are logged. */
#define CLAIMS_AT_A_TIME	16

/* The slot is wanted: begin a contender, unless it has one. */
static void
begin(ZkSlot *slot, const ZkContender *wanted)
{
	Contender  *contender;

	if (status_is_ending())
		return;					/* contenders_take_over() does so, in the next
								 * session */
	contender = contender_make(slot, wanted->kind);
	if (contender_is_begun(contender) || contender->deferred)
		return;
	if (contender_excess(contender) > 0)
		contender_defer(contender);
	else
		step_start(contender, wanted);
}

static void
queue_behind(ZkSlot *slot, RecipeEvent event)
{
	Contender  *contender = contender_find(slot);

	if (contender != NULL)
		step_queue_behind(contender, event);
}

/* The slot is released: give its contender up, or cancel its begin. */
static void
release(ZkSlot *slot)
{
	ZkContender wanted;
	RecipeInput input = {.event = RECIPE_RELEASE};
	Contender  *contender = contender_find(slot);

	if (contender != NULL && contender->deferred)
	{
		contender_drop(contender);
		contender = NULL;
	}
	if (contender != NULL && contender_owns(contender))
		contender_learn(contender);
	if (contender != NULL && step_requeue(contender))
		return;
	if (contender != NULL)
		step(contender, &input);
	else if (slot_set_gone(slot, &wanted))
		begin(slot, &wanted);
}

/*
 * dispatch_open_mail
 *		Pass the ends of waits and holds to "over" (see slots_collect_ends()),
 *		and then do what the slots in the mail request.
 */
void
dispatch_open_mail(void (*over) (const int64 *ends, int n, bool all))
{
	bool		more = true;

	while (more)
	{
		ZkSlot	   *slot = slots_collect_mail();
		int64		ends[SLOTS_MAX_ENDS];
		bool		all;
		int			n = slots_collect_ends(ends, &all);

		more = slot != NULL;
		if (n > 0)
			over(ends, n, all);
		while (slot != NULL)
		{
			ZkSlot	   *next;
			ZkContender wanted;
			ZkMail		mail = slot_open_mail(slot, &next, &wanted);

			if (mail == ZK_MAIL_WANT)
				begin(slot, &wanted);
			else if (mail == ZK_MAIL_CHECK_WRITERS)
				queue_behind(slot, RECIPE_CHECK_WRITERS);
			else if (mail == ZK_MAIL_WATCH_QUEUE)
				queue_behind(slot, RECIPE_WATCH_QUEUE);
			else if (mail == ZK_MAIL_RELEASE)
				release(slot);
			slot = next;
		}
	}
}

/*
 * contenders_take_over
 *		Give a contender to each slot that wants one and has none: take over
 *		those of the previous worker, begin the others, or release the slot
 *		if no worker had seen it wanted.
 */
void
contenders_take_over(void)
{
	int			nslots;
	ZkSlot	  **list = slots_list(&nslots);

	/* what may exist already takes its room first */
	for (int i = 0; i < nslots; i++)
	{
		ZkContender known;
		ZkSlotState state = slot_read_contender(list[i], &known);

		if (known.has_uuid && contender_find(list[i]) == NULL)
			step_resume(list[i], state, &known);
	}
	pfree(list);

	/* some slots may be gone by now */
	list = slots_list(&nslots);
	for (int i = 0; i < nslots; i++)
	{
		ZkSlot	   *slot = list[i];
		ZkContender wanted;
		ZkSlotState state = slot_read_contender(slot, &wanted);

		if (contender_find(slot) != NULL)
			continue;
		if (state == ZK_SLOT_RELEASING)
			release(slot);
		else
			begin(slot, &wanted);
	}
	pfree(list);
}

/*
 * contenders_drain
 *		The session is to end when nothing is held: until then, no lock
 *		may pass from backend to backend for long, or be retained.
 */
void
contenders_drain(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
		(void) slot_set_contended(list[i]->slot);
	pfree(list);
}

/*
 * contenders_release
 *		Release all contenders, when nothing is held: wanted ones, too,
 *		which queue again in another session.
 */
void
contenders_release(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
		release(list[i]->slot);
	pfree(list);
}

/* Give up retained contenders until there is room for this one. */
static void
give_up_retained(const Contender *deferred)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n && contender_excess(deferred) > 0; i++)
	{
		const Contender *contender = list[i];

		if (contender_owns(contender) && contender->recipe->retain &&
			slot_give_up_idle(contender->slot))
			release(contender->slot);
	}
	pfree(list);
}

/*
 * dispatch_begin_deferred
 *		Begin the deferred contenders that fit when retained ones have been
 *		given up, and refuse the others.
 */
void
dispatch_begin_deferred(void)
{
	Contender  *contender;

	while ((contender = contender_first_deferred()) != NULL)
	{
		ZkSlot	   *slot = contender->slot;
		ZkContender wanted;
		bool		fits;

		give_up_retained(contender);
		fits = contender_excess(contender) <= 0;
		contender_drop(contender);

		/* if no backend wants it any more, that is in the mail */
		if (slot_read_contender(slot, &wanted) != ZK_SLOT_WANTED)
			continue;
		if (!fits)
		{
			slot_set_refused(slot, ZK_REFUSAL_NO_ROOM, 0);
			if (slot_set_gone(slot, &wanted))
				begin(slot, &wanted);
		}
		else if (!status_is_ending())
			step_start(contender_make(slot, wanted.kind), &wanted);
	}
}

/* Retry what ZooKeeper has refused. */
static void
retry_refused(void)
{
	int			n;
	Contender **list;
	RecipeInput input = {.event = RECIPE_RETRY};

	if (!wake_is_due(WAKE_RETRY))
		return;
	wake_set(WAKE_RETRY, 0);
	list = contenders_list(&n);
	for (int i = 0; i < n; i++)
		step(list[i], &input);
}

/* A retained owner that does not answer in time counts as a holder. */
static void
check_answer(Contender *contender, int64 now_ms)
{
	if (contender->answer_due_ms == 0)
		return;
	/* does it still watch that owner? */
	if (!contender_is_queued(contender) || contender->watch_serial == 0)
		contender->answer_due_ms = 0;
	else if (now_ms < contender->answer_due_ms)
		contender_schedule_check(contender, contender->answer_due_ms);
	else
	{
		contender->answer_due_ms = 0;
		(void) slot_report(contender->slot, RECIPE_REPORT_QUEUED, 0, 0);
		contender_set_queued(contender, true);
	}
}

/*
 * Check a contender: give it up if it owns its lock and no backend takes it,
 * check whether the time of a retained owner ahead of it is over, and let it
 * come again if its number was late.
 */
static void
check_contender(Contender *contender, int64 now_ms)
{
	RecipeInput retry = {.event = RECIPE_RETRY};

	check_answer(contender, now_ms);
	if (contender->owner_since_ms != 0)
		contender_schedule_check(contender,
								 slot_check_idle(contender->slot, now_ms));
	if (contender->recipe->state == RECIPE_LATE && contender->recipe->aside)
		step(contender, &retry);
}

/*
 * Check the contenders that are due: each at its own time, since thousands may
 * be retained.
 */
static void
check_due(void)
{
	int64		now_ms = zk_now_ms();
	int			n = 0;
	Contender  *contender;

	while ((contender = contender_next_due(now_ms)) != NULL)
	{
		check_contender(contender, now_ms);
		n++;
	}
	if (n > 0)
		ereport(DEBUG2, (errmsg_internal("looked after %d contenders", n)));
	wake_set(WAKE_CHECK, contender_next_check());
}

/*
 * Check all owners: watch those that have owned for some time for a
 * revocation, and find those that have become idle.
 */
static void
sweep_owners(void)
{
	int64		now_ms = zk_now_ms();
	int64		cpu_us = zk_cpu_us();
	int			n;
	int			revocable = 0;
	bool		again = false;
	Contender **list;
	RecipeInput input = {.event = RECIPE_WATCH_REVOCATION};

	if (!wake_is_due(WAKE_SWEEP))
		return;
	wake_set(WAKE_SWEEP, 0);
	list = contenders_list(&n);
	for (int i = 0; i < n; i++)
		if (contender_watches_itself(list[i]))
			revocable++;
	for (int i = 0; i < n; i++)
	{
		Contender  *contender = list[i];

		if (contender->owner_since_ms == 0)
			continue;
		again = true;
		check_contender(contender, now_ms);
		if (now_ms - contender->owner_since_ms >= SWEEP_INTERVAL_MS &&
			!contender_watches_itself(contender) && revocable < MAX_REVOCABLE)
		{
			revocable++;
			step(contender, &input);
		}
	}
	if (again)
	{
		int64		pause_ms = SWEEP_PAUSE * (zk_cpu_us() - cpu_us) / 1000;

		wake_set(WAKE_SWEEP, now_ms + Max(pause_ms, SWEEP_INTERVAL_MS));
	}
	ereport(DEBUG2, (errmsg_internal("looked after %d contenders", n)));
}

/*
 * Let a contender look at what it watches.  Not without a connection: the
 * library sets all watches again on the next one, and then delivers what was
 * missed.
 */
static void
look_again(Contender *contender)
{
	RecipeInput input = {.event = RECIPE_LOOK};

	contender_delay_watch(contender);
	if (status_is_connected())
		step(contender, &input);
}

/* When the first of n contenders that wait for a watch is due. */
static int64
due_to_look(const Contender *first, int n, int64 last_ms)
{
	int			timeout_ms = status()->timeout;

	return Max(first->watched_ms + timeout_ms,
			   last_ms + Max(timeout_ms / n, LOOKS_PAUSE_MS));
}

/* Let contenders that have waited for a watch for long look. */
static void
look_again_in_turn(void)
{
	static int64 last_ms = 0;
	int64		now_ms = zk_now_ms();
	int			timeout_ms = status()->timeout;
	int			n;
	Contender  *first = contender_first_watching(&n);

	if (!ZK_LOOKS_AGAIN)
		first = NULL;
	if (first != NULL && now_ms >= due_to_look(first, n, last_ms))
	{
		int			count = Min((int64) n * LOOKS_PAUSE_MS / timeout_ms + 1,
								LOOKS_AT_A_TIME);

		last_ms = now_ms;
		while (count-- > 0 && first != NULL &&
			   now_ms >= first->watched_ms + timeout_ms)
		{
			look_again(first);
			first = contender_first_watching(&n);
		}
	}
	wake_set(WAKE_WATCH, first ? due_to_look(first, n, last_ms) : 0);
}

/* End claims that are over or lost, and have the slots' mail opened next. */
static void
end_claims(void)
{
	ZkEndedClaim ended[CLAIMS_AT_A_TIME];
	int64		due_ms;

	while ((due_ms = claims_due_ms()) != 0 && due_ms <= zk_now_ms())
	{
		int			n = claims_end_due(ended, CLAIMS_AT_A_TIME);

		for (int i = 0; i < n; i++)
			ereport(LOG,
					(ended[i].lost ?
					 errmsg("claim of lock \"%s\" has been lost",
							ended[i].path) :
					 errmsg("claim of lock \"%s\" has ended because it was not renewed in time",
							ended[i].path)));
	}
	wake_set(WAKE_CLAIMS, due_ms);
}

/*
 * checks_run
 *		Check all contenders and claims that are due.
 */
void
checks_run(void)
{
	end_claims();
	retry_refused();
	sweep_owners();
	check_due();
	look_again_in_turn();
}

/*
 * checks_watch_queues
 *		The connection is lost, or back.
 *
 * Without a connection we do not learn who queues behind our contenders.  With
 * a new one, the contenders that need it watch their queues again.
 */
void
checks_watch_queues(bool connected)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
	{
		Contender  *contender = list[i];

		if (!contender_watches_queue(contender))
			continue;
		if (connected)
			step_queue_behind(contender, RECIPE_WATCH_QUEUE);
		else
			slot_set_unwatched(contender->slot);
	}
	pfree(list);
}
