/*-------------------------------------------------------------------------
 *
 * town.h
 *		Instances with backends, tier 1, contenders and workers in virtual
 *		time, for core/deadlock.c; and the truth about their deadlocks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/town.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TOWN_H
#define ZKLOCK_TOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/deadlock.h"

#define TOWN_INSTANCES	4
#define TOWN_BACKENDS	4		/* of each */
#define TOWN_LOCKS		4
#define TOWN_ROWS		3
#define TOWN_KEYS		(TOWN_LOCKS + 2 * TOWN_ROWS)	/* of tier 1 */
#define TOWN_OPS		16

/* Times, in us. */
#define MS				INT64_C(1000)
#define MESSAGE			(20 * MS)	/* the slowest */

typedef enum OpKind
{
	OP_LOCK,
	OP_ROW,
	OP_SLEEP,
	OP_SAVE,
	OP_ROLLBACK_TO
} OpKind;

typedef struct Op
{
	OpKind		kind;
	int			lock;			/* or row */
	char		mode;			/* 'x', 's' */
	int64_t		time;			/* sleep, or timeout; 0: none */
} Op;

typedef struct Town Town;

/* What is to happen, besides what the backends do. */
typedef enum Fault
{
	FAULT_CUT,					/* the connection is lost */
	FAULT_WORKER,				/* and the worker ends */
	FAULT_EXPIRE				/* or the session does */
} Fault;

typedef struct TownStats
{
	int			victims;
	int			requeues;
	int			acts;
	int			failed_acts;
	int			late;			/* verdicts behind the end of the wait */
	int			looks;
	int			gets;
	int			writes;
	int			cuts;
	int64_t		longest;		/* a deadlock, undisturbed */
	int64_t		times[4096];	/* all of them */
	int			ntimes;
} TownStats;

extern Town *town_make(uint64_t seed, int64_t timeout, int64_t lag);
extern void town_free(Town *town);
extern int	town_add_instance(Town *town, int nbackends);
extern void town_script(Town *town, int instance, int backend, int64_t at,
						const Op *ops, int nops);
extern void town_run(Town *town, int64_t until);
extern void town_finish(Town *town, int64_t busy);
extern void town_by_chance(Town *town);
extern const char *town_violation(const Town *town);
extern const TownStats *town_stats(const Town *town);

extern void town_at(Town *town, int64_t at, void (*what) (Town *town));
extern void town_on_act(Town *town, void (*what) (Town *town, int instance));
extern void town_cancel(Town *town, int instance, int backend);
extern void town_fault(Town *town, int instance, Fault fault, int64_t time);
extern void town_stranger(Town *town, int lock, char mode, int64_t time);
extern void town_strangers_leave(Town *town);
extern void town_forge(Town *town, const char *name, const char *data);

#endif							/* ZKLOCK_TOWN_H */
