/*-------------------------------------------------------------------------
 *
 * stack.h
 *		The holds of one lock, in the order in which they were taken.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/stack.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_STACK_H
#define ZKLOCK_STACK_H

/* Holds that do not differ: an entry of the stack. */
typedef struct Hold
{
	SubTransactionId subid;		/* that it belongs to; Invalid: session */
	SubTransactionId undone;	/* in which zk_unlock marked it, or Invalid;
								 * Top for one of the session, since that is
								 * not rolled back */
	bool		session;
	bool		shared;			/* asked for as shared; only of locks that
								 * stand for advisory locks */
	int64		count;			/* how many they are */
} Hold;

/* All zero: no hold, no memory. */
typedef struct HoldStack
{
	int			nholds;			/* entries */
	int			maxholds;
	Hold	   *holds;			/* the latest is the last */
	int64		nsession;		/* holds of the session, each counted */
	int64		nundone;		/* holds that are marked, likewise */
} HoldStack;

extern bool hold_is_undone(const Hold *hold);
extern void stack_make_room(HoldStack *stack);
extern void stack_free(HoldStack *stack);
extern void stack_add(HoldStack *stack, Hold added);
extern void stack_take_off(HoldStack *stack, int kept);
extern bool stack_take_off_latest(HoldStack *stack);
extern int	stack_latest_live(const HoldStack *stack);
extern int	stack_latest_of_session(const HoldStack *stack, bool shared);
extern void stack_mark(HoldStack *stack, int number);
extern void stack_mark_session(HoldStack *stack);

#endif							/* ZKLOCK_STACK_H */
