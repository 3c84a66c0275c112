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
 * What has to last for some time is sampled AGES_SAMPLES times meanwhile, and
 * counts when samples have seen it for that time less the pause between two of
 * them.  So all that was there when the time began counts when it is over, and
 * a scan that comes slightly early counts what the previous one has seen.
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
typedef struct Age
{
	int			pid;			/* hash key, must be first */
	TimestampTz started;		/* by the wall clock */
	int64		first_us;		/* first seen, of zk_now_us() */
	uint32		sample;			/* the last sample that has seen it */
} Age;

/* The samples of one kind. */
static struct
{
	HTAB	   *ages;
	uint32		sample;			/* number of the latest */
	int64		sampled_us;		/* its time, of zk_now_us() */
}			kinds[NKINDS];

/* Begin a sample: forget what the last one has not seen. */
void
ages_sample(AgeOf of)
{
	HASH_SEQ_STATUS seq;
	Age	   *age;

	if (kinds[of].ages == NULL)
	{
		HASHCTL		ctl;

		memset(&ctl, 0, sizeof(ctl));
		ctl.keysize = sizeof(int);
		ctl.entrysize = sizeof(Age);
		kinds[of].ages = hash_create("zklock ages", 64, &ctl,
									   HASH_ELEM | HASH_BLOBS);
	}
	hash_seq_init(&seq, kinds[of].ages);
	while ((age = hash_seq_search(&seq)) != NULL)
		if (age->sample != kinds[of].sample)
			hash_search(kinds[of].ages, &age->pid, HASH_REMOVE, NULL);
	kinds[of].sample++;
	kinds[of].sampled_us = zk_now_us();
}

/*
 * ages_has_lasted
 *		Note that the sample sees a process in what began at this time by
 *		the wall clock.  Has that lasted for "us"?
 */
bool
ages_has_lasted(AgeOf of, int pid, TimestampTz started, int64 us)
{
	bool		found;
	Age	   *age =
		hash_search(kinds[of].ages, &pid, HASH_ENTER, &found);

	if (!found || age->started != started)
		age->first_us = kinds[of].sampled_us;
	age->started = started;
	age->sample = kinds[of].sample;
	return kinds[of].sampled_us - age->first_us >= us - us / AGES_SAMPLES;
}
