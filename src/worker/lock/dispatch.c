/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *		The mail of the slots: begins and releases contenders.
 *
 * A contender for which the session has no room (contender.c) is deferred to
 * the end of the turn, when all that is to be released has been.  If there is
 * no room then either, retained ones are given up for it; if that is not
 * enough, it is refused with an error.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/dispatch.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/recipe.h"
#include "shared/grant.h"
#include "shared/outcome.h"
#include "shared/slots.h"
#include "worker/lock/habits_private.h"
#include "worker/lock/steps_private.h"
#include "worker/zookeeper/status.h"

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
watch_queue(ZkSlot *slot)
{
	Contender  *contender = contender_find(slot);

	if (contender != NULL)
		step_watch_queue(contender);
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
		habits_learn(contender);
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
			else if (mail == ZK_MAIL_WATCH_QUEUE)
				watch_queue(slot);
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
