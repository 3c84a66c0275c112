/*-------------------------------------------------------------------------
 *
 * turn.h
 *		When an instance keeps a lock, and when it lets others have it.
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
 * How long a lock is kept for a backend that does not take it.  For as long
 * again a handoff counts as recent.
 */
#define TURN_MAX_IDLE	INT64_C(100000)

/*
 * The part of the quantum for which a turn goes on in any case, however fast
 * locks are released.
 */
#define TURN_PART		10

/*
 * There is a second round in a turn unless the first one took as long as so
 * many releases.
 */
#define TURN_RELEASES	2

/* What the instance knows of contenders of others behind its own. */
typedef enum TurnBehind
{
	TURN_UNKNOWN,				/* nothing, and nobody has asked */
	TURN_TO_ASK,				/* the worker is to watch the queue, and has
								 * not read so in its mail */
	TURN_ASKED,					/* it has; no answer, or not one that holds */
	TURN_ALONE,					/* nobody; the worker would hear of it */
	TURN_CONTENDED				/* somebody, for as long as we own the lock */
} TurnBehind;

/* Why nobody of the instance that owns the lock holds it. */
typedef enum TurnIdle
{
	TURN_GRANTED,				/* it has just become ours */
	TURN_HANDED_ON,				/* a backend is about to take it */
	TURN_LEFT,					/* until the worker opens its mail */
	TURN_RETAINED,				/* for zklock.retain_time */
	TURN_GIVEN_UP				/* its contender is to be deleted */
} TurnIdle;

/*
 * A slot's part of it.  There may be many, so it is small; all bytes 0: a slot
 * that has had no contender.  All times are those of one clock in us.
 */
typedef struct Turn
{
	int64_t		start;			/* of the first handoff since the grant, or
								 * since others are known to be there; 0:
								 * there was none */
	int64_t		idle_since;
	int32_t		due;			/* backends that waited at the start and have
								 * not had the lock since */
	uint8_t		behind;			/* TurnBehind */
	uint8_t		idle;			/* TurnIdle; while idle or given up */
	uint8_t		contested;		/* grants, this one and later ones, for which
								 * others may be about to come again */
	bool		again;			/* those who are due have had it, in this
								 * turn */
} Turn;

typedef enum TurnDecision
{
	TURN_KEEP,					/* as it is */
	TURN_GIVE_UP,
	TURN_LEAVE,					/* idle; the worker is to see it in its mail */
	TURN_RETAIN,				/* idle; nobody need be told */
	TURN_HAND_ON,				/* idle, for a local backend */
	TURN_HAND_ON_AND_ASK		/* the same; mail: the worker is to watch */
} TurnDecision;

/* What a decision depends on beside the Turn; times and lengths in us. */
typedef struct TurnInput
{
	int64_t		now;
	int64_t		quantum;		/* zklock.handoff_quantum */
	int64_t		retain_time;	/* zklock.retain_time; 0: none is retained */
	int32_t		release_time;	/* what turn_gone() returned last, or 0 */
	int			waiting;		/* backends that want the slot */
	bool		taker;			/* one of them can take it */
	bool		mail_waiting;	/* other mail waits for the worker's flight */
	bool		room;			/* what nobody uses leaves room for others */
	bool		retainable;		/* the contender's data say that it may be
								 * retained */
	bool		permit;			/* the contender is a permit */
	bool		readers;		/* ... or is that of readers, */
	bool		writer_behind;	/* and a writer waits behind it */
} TurnInput;

/* news of the contender and of the queue */
extern int64_t turn_granted(Turn *turn, bool queued, bool retainable,
							int64_t now);
extern void turn_given_up(Turn *turn, int64_t now);
extern void turn_unknown(Turn *turn);
extern int32_t turn_gone(Turn *turn, int32_t release_time, int64_t now);
extern void turn_alone(Turn *turn);
extern void turn_unheard(Turn *turn);
extern TurnDecision turn_contended(Turn *turn, bool idle, bool taker,
								   int waiting, int64_t now);

/* the worker's mail */
extern void turn_new_worker(Turn *turn);
extern bool turn_take_ask(Turn *turn);

/* the slot's own events */
extern TurnDecision turn_dropped(Turn *turn, const TurnInput *in);
extern TurnDecision turn_unwanted(const Turn *turn, bool retainable,
								  int64_t retain_time, int64_t now);
extern TurnDecision turn_mail_opened(const Turn *turn, bool taker,
									 int64_t retain_time, int64_t now);
extern TurnDecision turn_checked(const Turn *turn, bool reserved,
								 int64_t retain_time, int64_t now,
								 int64_t *check_at);
extern bool turn_is_proved(const Turn *turn, bool retainable,
						   int64_t lease_until, int64_t now);

#endif							/* ZKLOCK_TURN_H */
