/*-------------------------------------------------------------------------
 *
 * habit.c
 *		Which locks an instance retains because it takes them again and again.
 *
 * A lock that one instance takes most of the time costs a write of ZooKeeper
 * each time, though nobody else asks for it.  An instance that retains it, as
 * long as no other one comes, takes it without ZooKeeper.  But who comes then
 * has to wait until it is given up, which is a handover more than if nobody
 * owned it.  So a lock is retained where the instance has taken it again and
 * again with nobody in between, and not where others share it.
 *
 * For each lock and mode the instance remembers a Habit: how many takes in a
 * row there were, each soon after the lock was given back, with nobody in
 * between.  The number of the new contender tells the latter, with nothing
 * asked: it is the one after that of our last owner.  When a contender is
 * made, its note must say already whether the lock may be retained, so this is
 * decided from the takes before.
 *
 * The usual pause is one that most pauses do not exceed: it grows with a
 * longer one at once, and shrinks with a shorter one by a quarter of the
 * difference.  "most" is zklock.max_retain_time.  A pause is short if it is at
 * most half of that.
 *
 * A revocation is worth its cost if the lock was taken HABIT_WORTH times while
 * it was retained: each of these has saved a write and its wait, and the
 * revocation costs one handover.  Takes beyond that are a credit for the next
 * revocations.  When there is none left, twice as many takes in a row are
 * required.  If chance alone decides who takes a lock next, an instance that
 * has a share p of the takes retakes it p / (1 - p) times on average before it
 * is revoked: 9 times for nine of ten, once for one of two.  Those of more
 * than three quarters gain credit, and the others lose it.
 *
 * The table.  In each group the first matching line counts.  test_habit.c has
 * a test for each line, by its name.
 *
 *	wanted: a contender is made.  Is the lock to be retained, and how long?
 *	W1	never dropped, or the pause since is longer than most / 2
 *										no
 *	W2	with this take, fewer in a row than required
 *										no
 *	W3	else							HABIT_MULTIPLE times the usual pause,
 *										but no longer than most
 *
 *	dropped: backends have held the lock, and the contender is given up
 *	  the row
 *	R1	W1 held when it was wanted; or its number is not the next one, so that
 *		somebody was in between			the first in a row
 *	R2	else							one more
 *	R3	then, revoked					there is no row
 *	  the usual pause, in a row
 *	P1	the second, or longer than the usual pause
 *										this one
 *	P2	else							shorter by a quarter of the difference
 *	  the credit
 *	C1	takes while the lock was retained
 *										so much more, but no more than
 *										HABIT_CREDIT
 *	C2	then, revoked					HABIT_WORTH less; none if that is more
 *										than there is
 *	  the takes required
 *	T1	another kind of client was seen	as they are
 *	T2	C2 took more credit than there was
 *										twice as many, but no more than
 *										HABIT_MAX_ROW
 *	T3	HABIT_WORTH takes while the lock was retained, or more
 *										HABIT_ROW
 *	T4	else							as they are
 *
 *	broken: it is taken as any of several locks, and not to be retained
 *	X1									there is no row
 *
 *	of others: another kind of client has been seen in the queue.  Its tries
 *	with no timeout fail while the lock is retained
 *	O1									HABIT_NEVER takes are required
 *
 * Memory.  A Habits has a number of buckets with HABIT_WAYS entries each,
 * found by the id.  In a full bucket the lock that was wanted longest ago is
 * forgotten, and so it begins like a new one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/habit.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/habit.h"

#include <stdlib.h>
#include <string.h>

#include "core/mutation.h"

/* The entries of a bucket. */
#define HABIT_WAYS		4

struct Habits
{
	uint64_t	nbuckets;
	Habit		entries[];
};

/* Make a memory for HABIT_WAYS times nbuckets locks; NULL: out of memory. */
Habits *
habits_make(int nbuckets)
{
	/* unlike memory_alloc(), calloc() does not use all of it at once */
	Habits	   *habits = calloc(1, sizeof(Habits) +
								(size_t) nbuckets * HABIT_WAYS * sizeof(Habit));

	if (habits != NULL)
		habits->nbuckets = nbuckets;
	return habits;
}

void
habits_free(Habits *habits)
{
	free(habits);
}

/*
 * The entry of a lock in its bucket, or NULL; sets *oldest to a free entry, or
 * the one that was wanted longest ago.
 */
static Habit *
look_up(Habits *habits, uint64_t id, Habit **oldest)
{
	Habit	   *bucket = &habits->entries[id % habits->nbuckets * HABIT_WAYS];

	*oldest = bucket;
	for (int i = 0; i < HABIT_WAYS; i++)
	{
		if (bucket[i].id == id)
			return &bucket[i];
		if (bucket[i].wanted < (*oldest)->wanted)
			*oldest = &bucket[i];
	}
	return NULL;
}

/* The habit with this id, which is not 0; NULL if nothing is remembered. */
Habit *
habit_find(Habits *habits, uint64_t id)
{
	Habit	   *oldest;

	return look_up(habits, id, &oldest);
}

/* The same, but it is made, in place of another one if there is no room. */
Habit *
habit_enter(Habits *habits, uint64_t id, int64_t now)
{
	Habit	   *oldest;
	Habit	   *habit = look_up(habits, id, &oldest);

	if (habit != NULL)
		return habit;
	memset(oldest, 0, sizeof(*oldest));
	oldest->id = id;
	oldest->wanted = now;
	oldest->required = HABIT_ROW;
	return oldest;
}

/* Line W1: was it wanted too long after it was dropped, if ever? */
static bool
is_late(const Habit *habit, int64_t most)
{
	return habit->dropped == 0 || habit->wanted - habit->dropped > most / 2;
}

/* Lines P: the usual pause, counting the one before this take. */
static int64_t
usual_pause(const Habit *habit)
{
	int64_t		pause = habit->wanted - habit->dropped;

	if (habit->row <= 1 || pause >= habit->pause)
		return pause;
	return habit->pause - (habit->pause - pause) / 4;
}

/*
 * habit_wanted
 *		A contender is about to be made: how long is the lock to be retained,
 *		in us?  0: not at all.
 *
 * "most" is the longest time for which any lock is retained, here and below.
 */
int64_t
habit_wanted(Habit *habit, int64_t most, int64_t now)
{
	int64_t		time;

	habit->wanted = now;
	if (is_late(habit, most) || habit->row + 1 < habit->required)
		return 0;
	time = HABIT_MULTIPLE * usual_pause(habit);
	return time < most ? time : most;
}

/* Lines R and P: the take by the contender with this number. */
static void
count_take(Habit *habit, int64_t most, int32_t number)
{
	bool		next = number == habit->number + 1 && !is_late(habit, most);

	habit->number = number;
	if (!next)
	{
		habit->row = 1;
		return;
	}
	habit->pause = usual_pause(habit);
	if (habit->row < HABIT_MAX_ROW)
		habit->row++;
}

/* Lines C, and T2 to T4. */
static void
require_takes(Habit *habit, uint32_t retaken, bool revoked)
{
	int64_t		credit = (int64_t) habit->credit + retaken;

	if (credit > HABIT_CREDIT)
		credit = HABIT_CREDIT;
	if (revoked)
		credit -= HABIT_WORTH;
	habit->credit = credit < 0 ? 0 : (int16_t) credit;
	if (credit >= 0 && retaken >= HABIT_WORTH)
		habit->required = HABIT_ROW;
	else if (credit < 0 && habit->required < HABIT_MAX_ROW)
		habit->required *= 2;
}

/*
 * habit_dropped
 *		The contender with this number, by which the lock was held, is being
 *		given up.
 *
 * "retaken": how many takes found the lock retained; "revoked": it is given up
 * while it is retained, because others have come; "at": when its last holder
 * gave it back.
 */
void
habit_dropped(Habit *habit, int64_t most, int32_t number, uint32_t retaken,
			  bool revoked, int64_t at)
{
	if (ZK_MUTATED(ZK_REVOCATION_FORGOTTEN))
		revoked = false;
	count_take(habit, most, number);
	habit->dropped = at;
	if (revoked)
		habit->row = 0;
	if (habit->required != HABIT_NEVER)
		require_takes(habit, retaken, revoked);
}

/* It is taken as any of several locks. */
void
habit_broken(Habit *habit)
{
	habit->row = 0;
}

/* Another kind of client has been seen in the queue. */
void
habit_of_others(Habit *habit)
{
	if (!ZK_MUTATED(ZK_OTHERS_FORGOTTEN))
		habit->required = HABIT_NEVER;
}
