/*-------------------------------------------------------------------------
 *
 * succession.h
 *		Which sequence number owns a lock with nothing read.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/succession.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SUCCESSION_H
#define ZKLOCK_SUCCESSION_H

#include <stdbool.h>
#include <stdint.h>

typedef enum SuccessionState
{
	SUCCESSION_UNKNOWN,			/* the next contender must read */
	SUCCESSION_LEAVING,			/* the delete of our owner's node is out */
	SUCCESSION_LEFT				/* it is gone from the watched directory */
} SuccessionState;

typedef enum SuccessionWatch
{
	SUCCESSION_UNWATCHED,
	SUCCESSION_ASKED,			/* the get that watches the directory is out */
	SUCCESSION_WATCHED			/* answered, and has not fired */
} SuccessionWatch;

typedef struct Succession
{
	SuccessionState state;
	SuccessionWatch watch;
	uint32_t	serial;			/* ASKED, WATCHED: of the get */
	int32_t		number;			/* LEAVING, LEFT: of our owner's node */
} Succession;

extern void succession_init(Succession *succession);
extern void succession_watch(Succession *succession, uint32_t serial);
extern void succession_watched(Succession *succession, uint32_t serial,
							   bool ok);
extern void succession_fired(Succession *succession, uint32_t serial);
extern void succession_disconnect(Succession *succession);
extern void succession_doubt(Succession *succession);
extern void succession_leave(Succession *succession, int32_t number);
extern void succession_left(Succession *succession, int32_t number,
							bool deleted);
extern int32_t succession_next(const Succession *succession);

#endif							/* ZKLOCK_SUCCESSION_H */
