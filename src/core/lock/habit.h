/*-------------------------------------------------------------------------
 *
 * habit.h
 *		Which locks an instance retains because it takes them again and again.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/habit.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HABIT_H
#define ZKLOCK_HABIT_H

#include <stdbool.h>
#include <stdint.h>

/* The take in a row, with nobody in between, from which a lock is retained. */
#define HABIT_ROW		3

/* A lock is retained for this multiple of its usual pause. */
#define HABIT_MULTIPLE	4

/* So many takes from a retained lock are worth a revocation. */
#define HABIT_WORTH		3

/* The most such takes that count for later revocations. */
#define HABIT_CREDIT	(4 * HABIT_WORTH)

/* The most takes in a row that are required after revocations. */
#define HABIT_MAX_ROW	(HABIT_ROW << 10)

/* More than any row: the lock is not retained. */
#define HABIT_NEVER		UINT16_MAX

/* How an instance takes a lock in one mode; times in us. */
typedef struct Habit
{
	uint64_t	id;				/* of the lock and the mode; 0: a free entry */
	int64_t		dropped;		/* when its last holder gave it back; 0:
								 * never */
	int64_t		wanted;			/* when it was wanted last */
	int64_t		pause;			/* the usual one between the two */
	int32_t		number;			/* of the last contender that held it */
	uint16_t	row;			/* how many takes in a row there were */
	uint16_t	required;		/* how many it must be */
	int16_t		credit;			/* takes that no revocation has used up */
} Habit;

/* What is remembered of locks. */
typedef struct Habits Habits;

extern Habits *habits_make(int nbuckets);
extern void habits_free(Habits *habits);
extern Habit *habit_find(Habits *habits, uint64_t id);
extern Habit *habit_enter(Habits *habits, uint64_t id, int64_t now);

extern int64_t habit_wanted(Habit *habit, int64_t most, int64_t now);
extern void habit_dropped(Habit *habit, int64_t most, int32_t number,
						  uint32_t retaken, bool revoked, int64_t at);
extern void habit_broken(Habit *habit);
extern void habit_of_others(Habit *habit);

#endif							/* ZKLOCK_HABIT_H */
