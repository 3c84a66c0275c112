/*-------------------------------------------------------------------------
 *
 * habits.c
 *		Which locks the instance retains, and how long: the worker's memory of
 *		how it takes them.
 *
 * With zklock.retain_time = -1 core/lock/habit.c decides for each lock and
 * mode.  This file keeps the memory and tells it what happens.  A take from a
 * lock that is retained happens in shared memory, without the worker; it hears
 * of these from the slot, when the contender is given up.
 *
 * What is retained by habit takes at most an eighth of the slots and of the
 * session's room (contender.c): what is beyond that is not.
 *
 * The memory goes with the worker; the next one begins with none.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/habits.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/lock/habit.h"
#include "shared/clock.h"
#include "shared/settings.h"
#include "worker/habits.h"

/* The memory has room for four times as many locks: 3 MB, once it is full. */
#define HABIT_BUCKETS		16384

/* What has no room in it is forgotten; NULL: nothing has been remembered. */
static Habits *habits = NULL;

static uint64
id_of(const char *directory, ZnodeKind kind)
{
	uint64		id = hash_bytes_extended((const unsigned char *) directory,
										 strlen(directory),
										 znode_is_shared(kind));

	return id == 0 ? 1 : id;
}

/* The habit of a lock and the mode of this kind, or NULL. */
static Habit *
find(const char *directory, ZnodeKind kind)
{
	return habits == NULL ? NULL :
		habit_find(habits, id_of(directory, kind));
}

/* The same, made if it is missing; NULL if there is no memory. */
static Habit *
enter(const char *directory, ZnodeKind kind, int64 now)
{
	if (habits == NULL)
		habits = habits_make(HABIT_BUCKETS);
	return habits == NULL ? NULL :
		habit_enter(habits, id_of(directory, kind), now);
}

/*
 * habits_wanted
 *		How long core/lock/habit.c has a lock retained for which a contender
 *		is about to be created, in us; 0: not at all.
 */
int64
habits_wanted(const char *directory, const ZkContender *wanted)
{
	Habit	   *habit = find(directory, wanted->kind);

	if (habit == NULL)
		return 0;
	if (wanted->for_any)
	{
		habit_broken(habit);
		return 0;
	}
	return habit_wanted(habit, most_retain_us(), zk_now_us());
}

/*
 * habits_dropped
 *		The owner with this number is being given up; "use" is that of its
 *		slot.
 */
void
habits_dropped(const char *directory, ZnodeKind kind, int32 number,
			   const ZkSlotUse *use)
{
	Habit	   *habit;

	if (zklock_retain_time != ZK_RETAIN_BY_HABIT)
		return;
	habit = enter(directory, kind, use->dropped_at);
	if (habit != NULL)
		habit_dropped(habit, most_retain_us(), number, use->retaken,
					  use->revoked, use->dropped_at);
}

/*
 * habits_of_others
 *		Another kind of client has been seen in the queue.
 */
void
habits_of_others(const char *directory, ZnodeKind kind)
{
	Habit	   *habit;

	if (zklock_retain_time != ZK_RETAIN_BY_HABIT)
		return;
	habit = enter(directory, kind, zk_now_us());
	if (habit != NULL)
		habit_of_others(habit);
}
