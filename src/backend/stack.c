/*-------------------------------------------------------------------------
 *
 * stack.c
 *		The holds of one lock, in the order in which they were taken.
 *
 * A trigger may take one lock a million times, so adjacent holds that do not
 * differ are one entry, with a count.
 *
 * A hold that is undone is marked, if it cannot go yet.  The latest one goes
 * first, so all entries above a marked one of the transaction are marked, or
 * of the session.  Those of the session may be marked in any order.
 *
 * What ends holds allocates nothing; stack_make_room() comes ahead of what
 * needs memory.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/stack.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/stack.h"
#include "utils/memutils.h"

/*
 * hold_is_undone
 *		Are the holds of this entry marked?
 */
bool
hold_is_undone(const Hold *hold)
{
	return hold->undone != InvalidSubTransactionId;
}

/* Do these holds differ in number only? */
static bool
are_alike(const Hold *hold, const Hold *other)
{
	return hold->session == other->session && hold->subid == other->subid &&
		hold->undone == other->undone && hold->shared == other->shared;
}

/*
 * stack_make_room
 *		Have room for one more entry.
 */
void
stack_make_room(HoldStack *stack)
{
	int			newmax = stack->maxholds == 0 ? 2 : stack->maxholds * 2;

	if (stack->nholds < stack->maxholds)
		return;
	if (stack->holds == NULL)
		stack->holds = MemoryContextAlloc(TopMemoryContext,
										  newmax * sizeof(Hold));
	else
		stack->holds = repalloc_huge(stack->holds, newmax * sizeof(Hold));
	stack->maxholds = newmax;
}

/*
 * stack_free
 *		Free its memory.
 */
void
stack_free(HoldStack *stack)
{
	if (stack->holds)
		pfree(stack->holds);
	memset(stack, 0, sizeof(*stack));
}

/*
 * stack_add
 *		Put holds on top, where there is room.
 */
void
stack_add(HoldStack *stack, Hold added)
{
	Hold	   *top = stack->nholds > 0 ?
		&stack->holds[stack->nholds - 1] : NULL;

	if (added.session)
		stack->nsession += added.count;
	if (hold_is_undone(&added))
		stack->nundone += added.count;
	if (top && are_alike(top, &added))
		top->count += added.count;
	else
		stack->holds[stack->nholds++] = added;
}

/*
 * stack_take_off
 *		Take all entries but the lowest "kept" off.
 *
 * Their memory can still be read: the caller goes through them from below,
 * and adds again those that stay, which take no more room than before.
 */
void
stack_take_off(HoldStack *stack, int kept)
{
	for (int i = kept; i < stack->nholds; i++)
	{
		if (stack->holds[i].session)
			stack->nsession -= stack->holds[i].count;
		if (hold_is_undone(&stack->holds[i]))
			stack->nundone -= stack->holds[i].count;
	}
	stack->nholds = kept;
}

/*
 * stack_take_off_latest
 *		Take the latest hold off, which is not marked; true if it was the
 *		session's.
 */
bool
stack_take_off_latest(HoldStack *stack)
{
	Hold	   *hold = &stack->holds[stack->nholds - 1];
	bool		session = hold->session;

	Assert(!hold_is_undone(hold));
	if (session)
		stack->nsession--;
	if (--hold->count == 0)
		stack->nholds--;
	return session;
}

/*
 * stack_latest_live
 *		The number of the latest entry that is not marked, or -1.
 */
int
stack_latest_live(const HoldStack *stack)
{
	for (int i = stack->nholds - 1; i >= 0; i--)
		if (!hold_is_undone(&stack->holds[i]))
			return i;
	return -1;
}

/*
 * stack_latest_of_session
 *		The same of the session's that were asked for in this mode.
 */
int
stack_latest_of_session(const HoldStack *stack, bool shared)
{
	for (int i = stack->nholds - 1; i >= 0; i--)
	{
		const Hold *hold = &stack->holds[i];

		if (hold->session && hold->shared == shared && !hold_is_undone(hold))
			return i;
	}
	return -1;
}

/*
 * stack_mark
 *		Mark the latest hold of entry "number" as undone.
 *
 * The entry is not marked; all entries above it are, unless it is of the
 * session.
 */
void
stack_mark(HoldStack *stack, int number)
{
	Hold	   *holds;
	Hold		marked;

	stack_make_room(stack);
	holds = stack->holds;
	marked = holds[number];
	marked.undone = marked.session ? TopSubTransactionId :
		GetCurrentSubTransactionId();
	marked.count = 1;
	stack->nundone++;

	/*
	 * it leaves its entry, and joins the one above or below, or gets a new
	 * one
	 */
	if (--holds[number].count == 0)
	{
		stack->nholds--;
		memmove(&holds[number], &holds[number + 1],
				(stack->nholds - number) * sizeof(Hold));
	}
	else
		number++;
	for (int i = number; i >= number - 1; i--)
	{
		if (i < 0 || i >= stack->nholds || !are_alike(&holds[i], &marked))
			continue;
		holds[i].count++;
		return;
	}
	memmove(&holds[number + 1], &holds[number],
			(stack->nholds - number) * sizeof(Hold));
	holds[number] = marked;
	stack->nholds++;
}

/*
 * stack_mark_session
 *		Mark all holds of the session.
 */
void
stack_mark_session(HoldStack *stack)
{
	for (int i = 0; i < stack->nholds; i++)
	{
		Hold	   *hold = &stack->holds[i];

		if (!hold->session || hold_is_undone(hold))
			continue;
		hold->undone = TopSubTransactionId;
		stack->nundone += hold->count;
	}
}
