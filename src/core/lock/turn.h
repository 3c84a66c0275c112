/*-------------------------------------------------------------------------
 *
 * turn.h
 *		When an instance keeps a lock, and when it gives it up.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/turn.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TURN_H
#define ZKLOCK_TURN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How long a lock is kept for a backend that does not take it.  For that long
 * again a handoff counts as recent.
 */
#define TURN_MAX_IDLE	INT64_C(100000)

/*
 * A turn lasts for at least this part of the quantum, however fast releases
 * are.
 */
#define TURN_PART		10

/*
 * A turn has a second round unless the first took as long as this many
 * releases.
 */
#define TURN_RELEASES	2

/* What the instance knows of others' contenders behind its own. */
typedef enum TurnBehind
{
	TURN_UNKNOWN,				/* nothing, and nobody has asked */
	TURN_TO_ASK,				/* the worker is to watch the queue, but has
								 * not opened its mail */
	TURN_ASKED,					/* it has; there is no valid answer yet */
	TURN_ALONE,					/* nobody; the worker would learn of it */
	TURN_CONTENDED				/* somebody, as long as we own the lock */
} TurnBehind;

/* Why no backend holds a lock that the instance owns. */
typedef enum TurnIdle
{
	TURN_GRANTED,				/* it has just become ours */
	TURN_HANDED_ON,				/* a backend is about to take it */
	TURN_LEFT,					/* until the worker opens its mail */
	TURN_RETAINED,				/* for the retain time of its contender */
	TURN_GIVEN_UP				/* its contender is to be deleted */
} TurnIdle;

/*
 * The part of a slot.  It is small, since there are many.  All bytes 0 is a
 * slot without a contender.  All times are of one clock, in us.
 */
typedef struct Turn
{
	int64_t		start;			/* of the first handoff since the grant, or
								 * since others are known to wait; 0: none */
	int64_t		idle_since;
	int32_t		due;			/* backends that waited at the start and have
								 * not had the lock since */
	uint8_t		behind;			/* TurnBehind */
	uint8_t		idle;			/* TurnIdle; only while idle or given up */
	uint8_t		contested;		/* number of grants, from this one on, with
								 * others about to come again */
	bool		again;			/* the backends that are due have had it in
								 * this turn */
} Turn;

typedef enum TurnDecision
{
	TURN_KEEP,					/* no change */
	TURN_GIVE_UP,
	TURN_LEAVE,					/* idle; left to the worker's mail */
	TURN_RETAIN,				/* idle, without mail */
	TURN_HAND_ON,				/* idle, for a local backend */
	TURN_HAND_ON_AND_ASK		/* the same, and the worker is to watch the
								 * queue */
} TurnDecision;

/* What a decision depends on, besides the Turn; times in us. */
typedef struct TurnInput
{
	int64_t		now;
	int64_t		quantum;		/* zklock.handoff_quantum */
	int64_t		retain_time;	/* how long the contender may be retained, as
								 * its data say; 0: not at all */
	int32_t		release_time;	/* the last result of turn_gone(), or 0 */
	int			waiting;		/* backends that want the slot */
	bool		taker;			/* one of them can take it */
	bool		mail_waiting;	/* other mail waits for the worker's flight */
	bool		room;			/* idle contenders leave room for others */
	bool		permit;			/* the contender is a permit */
	bool		readers;		/* ... or is that of readers, */
	bool		writer_behind;	/* and a writer waits behind it */
} TurnInput;

/* the contender and the queue */
extern int64_t turn_granted(Turn *turn, bool queued, bool retainable,
							int64_t now);
extern void turn_given_up(Turn *turn, int64_t now);
extern void turn_unknown(Turn *turn);
extern int32_t turn_gone(Turn *turn, int32_t release_time, int64_t now);
extern void turn_alone(Turn *turn, bool readers);
extern void turn_disconnected(Turn *turn);
extern TurnDecision turn_contended(Turn *turn, bool idle, bool taker,
								   int waiting, int64_t now);

/* the worker's mail */
extern void turn_unwatched(Turn *turn);
extern bool turn_take_ask(Turn *turn);

/* the slot's own events */
extern TurnDecision turn_dropped(Turn *turn, const TurnInput *in);
extern TurnDecision turn_unwanted(const Turn *turn, int64_t retain_time,
								  int64_t now);
extern TurnDecision turn_mail_opened(const Turn *turn, bool taker,
									 int64_t retain_time, int64_t now);
extern TurnDecision turn_checked(const Turn *turn, int64_t retain_time,
								 int64_t now, int64_t *check_at);
extern bool turn_is_proved(const Turn *turn, int64_t retain_time,
						   int64_t lease_until, int64_t now);

#endif							/* ZKLOCK_TURN_H */
