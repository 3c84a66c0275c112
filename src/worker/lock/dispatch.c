/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *		The mail of the slots: begins, parks and releases contenders.
 *
 * A contender goes into the first session with room (sessions.c).  If there is
 * none, it is parked until contenders that are being given up, or are only
 * retained, have left enough room; if that will not be enough, it is refused
 * with an error.  Parked contenders are begun in order.
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
#include "worker/sessions.h"
#include "worker/zookeeper/status.h"

/* The slot is wanted: begin a contender, unless it has one. */
static void
begin(ZkSlot *slot, const ZkContender *wanted)
{
	Contender  *contender;
	int			session = NO_SESSION;

	if (status_is_ending())
		return;					/* contenders_take_over() does so, in the next
								 * session */
	contender = contender_make(slot, wanted->kind);
	if (contender_is_begun(contender) || contender->parked)
		return;
	if (contender_first_parked() == NULL)
		session = sessions_choose(contender_bytes_wanted(contender));
	if (session != NO_SESSION)
		step_start(contender, session, wanted);
	else
		contender_park(contender);
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

	if (contender != NULL && contender->parked)
	{
		contender_drop(contender);
		contender = NULL;
	}
	if (contender != NULL && contender->now.owns)
		habits_learn(contender);
	if (contender != NULL && step_requeue(contender))
		return;
	if (contender != NULL)
		step(contender, false, &input);
	else if (slot_set_gone(slot, &wanted))
		begin(slot, &wanted);
}

/*
 * dispatch_open_mail
 *		Do what the slots in the mail request.
 */
void
dispatch_open_mail(void)
{
	ZkSlot	   *slot;

	while ((slot = slots_collect_mail()) != NULL)
	{
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
 *		The sessions are to end when nothing is held: until then, no lock
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

/* Give up retained contenders, to make room for so many bytes in a session. */
static void
give_up_retained(int session, int64 bytes)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n && bytes > 0; i++)
	{
		Contender  *contender = list[i];

		if (contender->session != session ||
			!contender->now.owns || !contender->now.retain ||
			!slot_give_up_idle(contender->slot))
			continue;
		bytes -= contender->bytes;
		release(contender->slot);
	}
	pfree(list);
}

/*
 * Will any session have room for so many bytes when all contenders being given
 * up are gone?  Retained ones are given up for it.
 */
static bool
will_have_room(int64 bytes)
{
	for (int i = 0; i < sessions_end(); i++)
		if (quota_will_fit(i, bytes))
			return true;
	for (int i = 0; i < sessions_end(); i++)
	{
		give_up_retained(i, quota_excess(i, bytes));
		if (quota_will_fit(i, bytes))
			return true;
	}
	return false;
}

/*
 * dispatch_begin_parked
 *		Begin the parked contenders that fit now.
 *
 * Refuses those that will not fit when all contenders being given up are gone.
 */
void
dispatch_begin_parked(void)
{
	Contender  *contender;

	while ((contender = contender_first_parked()) != NULL)
	{
		ZkSlot	   *slot = contender->slot;
		int64		bytes = contender_bytes_wanted(contender);
		int			session = sessions_choose(bytes);
		ZkContender wanted;

		if (session == NO_SESSION && will_have_room(bytes))
			return;				/* room is coming */
		contender_drop(contender);

		/* if no backend wants it any more, that is in the mail */
		if (slot_read_contender(slot, &wanted) != ZK_SLOT_WANTED)
			continue;
		if (session == NO_SESSION)
		{
			slot_set_refused(slot, ZK_REFUSAL_NO_ROOM, 0);
			if (slot_set_gone(slot, &wanted))
				begin(slot, &wanted);
		}
		else if (!status_is_ending())
			step_start(contender_make(slot, wanted.kind), session, &wanted);
	}
}
