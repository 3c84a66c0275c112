/*-------------------------------------------------------------------------
 *
 * ages.c
 *		How long waits, statements and states have lasted, by our own clock.
 *
 * PostgreSQL notes by the wall clock when a process began to wait for a lock,
 * when its statement began, and when its state changed.  That clock may be
 * set.  So these times only identify a wait, statement or state; its age
 * counts from the first sample that has seen it.
 *
 * A sample of one of these kinds sees all processes.  What it does not see is
 * over.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/ages.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/clock.h"
#include "utils/hsearch.h"
#include "worker/deadlock/ages_private.h"

#define NKINDS				(AGE_OF_STATE + 1)

/* A wait, statement or state of a process. */
typedef struct Sight
{
	int			pid;			/* hash key, must be first */
	TimestampTz started;		/* by the wall clock */
	int64		first_us;		/* first seen, of zk_now_us() */
	uint32		sample;			/* the last sample that has seen it */
} Sight;

/* The samples of one kind. */
static struct
{
	HTAB	   *sights;
	uint32		sample;			/* number of the latest */
	int64		look_us;		/* its time, of zk_now_us() */
}			kinds[NKINDS];

/* Begin a sample: forget what the last one has not seen. */
void
ages_sample(AgeOf of)
{
	HASH_SEQ_STATUS seq;
	Sight	   *sight;

	if (kinds[of].sights == NULL)
	{
		HASHCTL		ctl;

		memset(&ctl, 0, sizeof(ctl));
		ctl.keysize = sizeof(int);
		ctl.entrysize = sizeof(Sight);
		kinds[of].sights = hash_create("zklock ages", 64, &ctl,
									   HASH_ELEM | HASH_BLOBS);
	}
	hash_seq_init(&seq, kinds[of].sights);
	while ((sight = hash_seq_search(&seq)) != NULL)
		if (sight->sample != kinds[of].sample)
			hash_search(kinds[of].sights, &sight->pid, HASH_REMOVE, NULL);
	kinds[of].sample++;
	kinds[of].look_us = zk_now_us();
}

/*
 * ages_first_seen
 *		Note that the sample sees a process in what began at this time by
 *		the wall clock, and return when that was first seen, as of
 *		zk_now_us().
 */
int64
ages_first_seen(AgeOf of, int pid, TimestampTz started)
{
	bool		found;
	Sight	   *sight =
		hash_search(kinds[of].sights, &pid, HASH_ENTER, &found);

	if (!found || sight->started != started)
		sight->first_us = kinds[of].look_us;
	sight->started = started;
	sight->sample = kinds[of].sample;
	return sight->first_us;
}
