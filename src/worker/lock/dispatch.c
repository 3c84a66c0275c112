/*-------------------------------------------------------------------------
 *
 * dispatch.c
 *		The mail of the slots: begins, parks and releases contenders.
 *
 * A contender goes into the first session with room (sessions.c).  If there is
 * none, it is parked until contenders that are being given up, or are only
 * retained, have left enough room; if that will not be enough, it is refused
 * with an error.  Parked contenders are begun in order, each group whole.
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
#include "nodes/pg_list.h"
#include "shared/grant.h"
#include "shared/outcome.h"
#include "shared/slots.h"
#include "worker/lock/habits_private.h"
#include "worker/lock/steps_private.h"
#include "worker/sessions.h"
#include "worker/zookeeper/status.h"

/* A slot that is requested together with others. */
typedef struct GroupMember
{
	ZkSlot	   *slot;
	ZkContender wanted;
	MachineOutput out;
} GroupMember;

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
		contender_park(contender, wanted->group);
}

static int
compare_groups(const ListCell *a, const ListCell *b)
{
	uint32		group_a = ((GroupMember *) lfirst(a))->wanted.group;
	uint32		group_b = ((GroupMember *) lfirst(b))->wanted.group;

	return group_a < group_b ? -1 : group_a > group_b;
}

static void
add_to_groups(List **members, ZkSlot *slot, const ZkContender *wanted)
{
	GroupMember *member = palloc(sizeof(GroupMember));

	member->slot = slot;
	member->wanted = *wanted;
	*members = lappend(*members, member);
}

static Contender *
contender_of(const GroupMember *member)
{
	return contender_find(member->slot);
}

/*
 * Submit the operations of this kind of members first to last (not included).
 */
static void
submit_group_part(List *members, int first, int last, RequestKind kind)
{
	for (int i = first; i < last; i++)
	{
		GroupMember *member = list_nth(members, i);

		step_submit_part(contender_of(member), &member->out, kind,
						 member->wanted.group);
	}
}

/*
 * Begin the members first to last (not included), of one group, in a session
 * that has room for all: first the directories, then all contenders in one
 * step.
 */
static void
start_group(List *members, int first, int last, int session)
{
	for (int i = first; i < last; i++)
	{
		GroupMember *member = list_nth(members, i);
		Contender  *contender = contender_of(member);

		member->out.nops = 0;
		if (!contender_is_begun(contender))
			step_start_together(contender, session, &member->wanted,
								&member->out);
	}
	submit_group_part(members, first, last, REQUEST_MKDIRS);
	submit_group_part(members, first, last, REQUEST_CREATE);
	submit_group_part(members, first, last, REQUEST_CHILDREN);
}

/*
 * Refuse the members of one group, for lack of room.  The backend looks at all
 * their slots, so the refusal is set in the first only; but before the others
 * end.
 */
static void
refuse_group(List *members)
{
	ListCell   *cell;

	foreach(cell, members)
	{
		GroupMember *member = lfirst(cell);

		if (member == linitial(members))
			slot_set_refused(member->slot, ZK_REFUSAL_NO_ROOM, 0);
		if (slot_set_gone(member->slot, &member->wanted))
			begin(member->slot, &member->wanted);
	}
}

/* Begin or park the members first to last (not included), of one group. */
static void
begin_group(List *members, int first, int last)
{
	int64		bytes = 0;
	int			session = NO_SESSION;

	for (int i = first; i < last; i++)
	{
		GroupMember *member = list_nth(members, i);
		Contender  *contender = contender_make(member->slot,
											   member->wanted.kind);

		if (contender->parked)
			return;
		if (!contender_is_begun(contender))
			bytes += contender_bytes_wanted(contender);
	}
	if (contender_first_parked() == NULL)
		session = sessions_choose(bytes);
	if (session != NO_SESSION)
		start_group(members, first, last, session);
	else
		for (int i = first; i < last; i++)
		{
			GroupMember *member = list_nth(members, i);
			Contender  *contender = contender_of(member);

			if (!contender_is_begun(contender))
				contender_park(contender, member->wanted.group);
		}
}

/* Begin the contenders of slots that are requested together. */
static void
begin_groups(List *members)
{
	int			first = 0;
	int			last;

	if (status_is_ending())
		return;
	list_sort(members, compare_groups);
	for (; first < list_length(members); first = last)
	{
		GroupMember *member = list_nth(members, first);
		uint32		group = member->wanted.group;

		for (last = first; last < list_length(members); last++)
		{
			member = list_nth(members, last);
			if (member->wanted.group != group)
				break;
		}
		begin_group(members, first, last);
	}
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
 *
 * The slots of a group are in the mail together, but perhaps not all in the
 * part collected first.  The group may also be released by later mail.  So
 * releases come last, when their contenders have been begun and the slots
 * still exist.
 */
void
dispatch_open_mail(void)
{
	List	   *members = NIL;
	List	   *released = NIL;
	ZkSlot	   *slot;
	ListCell   *cell;

	while ((slot = slots_collect_mail()) != NULL)
	{
		while (slot != NULL)
		{
			ZkSlot	   *next;
			ZkContender wanted;
			ZkMail		mail = slot_open_mail(slot, &next, &wanted);

			if (mail == ZK_MAIL_WANT && wanted.group != 0)
				add_to_groups(&members, slot, &wanted);
			else if (mail == ZK_MAIL_WANT)
				begin(slot, &wanted);
			else if (mail == ZK_MAIL_CHECK_WRITERS)
				queue_behind(slot, RECIPE_CHECK_WRITERS);
			else if (mail == ZK_MAIL_WATCH_QUEUE)
				queue_behind(slot, RECIPE_WATCH_QUEUE);
			else if (mail == ZK_MAIL_RELEASE)
				released = lappend(released, slot);
			slot = next;
		}
	}
	begin_groups(members);
	foreach(cell, released)
		release(lfirst(cell));
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
	List	   *members = NIL;

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
		else if (wanted.group != 0)
			add_to_groups(&members, slot, &wanted);
		else
			begin(slot, &wanted);
	}
	begin_groups(members);
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
 * Remove the first parked contender and its group, and return them as
 * GroupMembers; those that no backend wants any more are left out: their mail
 * is on its way.
 */
static List *
unpark_first(void)
{
	Contender  *contender = contender_first_parked();
	uint32		group = contender->group;
	List	   *members = NIL;

	do
	{
		ZkSlot	   *slot = contender->slot;
		ZkContender wanted;

		if (contender->group != group)
			break;
		contender_drop(contender);
		if (slot_read_contender(slot, &wanted) == ZK_SLOT_WANTED)
			add_to_groups(&members, slot, &wanted);
		contender = contender_first_parked();
	} while (group != 0 && contender != NULL);
	return members;
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
 * Begin the members of one group, or a single one, in a session that has room
 * for all.
 */
static void
start_members(List *members, int session)
{
	GroupMember *first = linitial(members);
	ListCell   *cell;

	foreach(cell, members)
	{
		GroupMember *member = lfirst(cell);

		(void) contender_make(member->slot, member->wanted.kind);
	}
	if (first->wanted.group != 0)
		start_group(members, 0, list_length(members), session);
	else
		step_start(contender_of(first), session, &first->wanted);
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
	while (contender_first_parked() != NULL)
	{
		int64		bytes = contender_bytes_of_first();
		int			session = sessions_choose(bytes);
		List	   *members;

		if (session == NO_SESSION && will_have_room(bytes))
			return;				/* room is coming */
		members = unpark_first();
		if (members == NIL)
			continue;
		if (session == NO_SESSION)
			refuse_group(members);
		else if (!status_is_ending())
			start_members(members, session);
	}
}
