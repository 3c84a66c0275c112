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
 * What is retained by habit takes at most an eighth of the slots and of each
 * session's room (contender_set_habitual()): what is beyond that is not.
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
#include "shared/grant.h"
#include "shared/lock_stats.h"
#include "shared/settings.h"
#include "shared/stats.h"
#include "worker/habits_private.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"

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

/*
 * The same of a contender, made if it is missing; NULL if there is no memory.
 */
static Habit *
enter(const Contender *contender, int64 now)
{
	if (habits == NULL)
		habits = habits_make(HABIT_BUCKETS);
	return habits == NULL ? NULL :
		habit_enter(habits, id_of(contender->directory,
								  contender->recipe->kind),
					now);
}

/* Convert a time in us, not to less. */
static int32
ms_of_us(int64 us)
{
	return (int32) ((us + 999) / 1000);
}

/* How long core/lock/habit.c has the contender's lock retained, in us. */
static int64
habitual_time(const Contender *contender, const ZkContender *wanted)
{
	/* the contender itself does not know its kind yet */
	Habit	   *habit = find(contender->directory, wanted->kind);

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
 * habits_retain_ms
 *		A contender is about to be created: how long may its lock be retained?
 *		0: not at all.
 *
 * Not while the session has presented credentials of the past, since it is to
 * be without contenders.
 */
int32
habits_retain_ms(Contender *contender, const ZkContender *wanted)
{
	int64		time;

	(void) contender_set_habitual(contender, false);
	if (wanted->kind == ZNODE_PERMIT || auths_are_old())
		return 0;
	if (zklock_retain_time != ZK_RETAIN_BY_HABIT)
		return zklock_retain_time;
	time = habitual_time(contender, wanted);
	if (time > 0 && !contender_set_habitual(contender, true))
		time = 0;
	return ms_of_us(time);
}

/*
 * habits_learn
 *		The contender, which owns its lock, is being given up.
 */
void
habits_learn(const Contender *contender)
{
	ZkSlotUse	use;
	Habit	   *habit;

	if (contender->permit)
		return;
	slot_read_use(contender->slot, &use);
	if (use.revoked && !status_is_ending())
	{
		stats_count_revoked();
		lock_stats_revoked(slot_key(contender->slot));
	}
	if (use.dropped_at == 0 || zklock_retain_time != ZK_RETAIN_BY_HABIT)
		return;
	habit = enter(contender, use.dropped_at);
	if (habit != NULL)
		habit_dropped(habit, most_retain_us(), contender->recipe->sequence,
					  use.retaken, use.revoked, use.dropped_at);
}

/*
 * habits_learn_others
 *		Another kind of client has been seen in the queue.
 */
void
habits_learn_others(const Contender *contender)
{
	Habit	   *habit;

	if (contender->permit ||
		zklock_retain_time != ZK_RETAIN_BY_HABIT)
		return;
	habit = enter(contender, zk_now_us());
	if (habit != NULL)
		habit_of_others(habit);
}
