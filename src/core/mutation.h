/*-------------------------------------------------------------------------
 *
 * mutation.h
 *		Ways to break the locks on purpose, for the files that they break.
 *
 * The checker of test/chaos must find what each mutation does.  Builds with
 * ZKLOCK_TEST_BUILD select one by the setting zklock.mutation, which
 * shared/test_build.c defines; other builds have none of this code.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/mutation.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MUTATION_H
#define ZKLOCK_MUTATION_H

#ifdef ZKLOCK_TEST_BUILD

typedef enum ZkMutation
{
	ZK_MUTATION_NONE,
	ZK_COMMIT_CHECK_OFF,		/* commit, whatever has become of the locks */
	ZK_RELEASE_BEFORE_COMMIT,	/* give the locks up ahead of the commit */
	ZK_RECOVERED_CREATE_OWNS,	/* take a contender that had to be searched
								 * for to own its lock */
	ZK_REQUEUED_OWNS,			/* take a contender that has queued again to
								 * own its lock, whatever its number */
	ZK_LOST_WAKEUP,				/* now and then, do not notice that the
								 * predecessor has gone */
	ZK_GAP_OWNS,				/* own with a number that is not next to our
								 * last owner's, too */
	ZK_READER_PRECEDES,			/* remember a reader's number as an owner's */
	ZK_RECONNECTED_OWNS,		/* remember that over a lost connection */
	ZK_COLLECTED_OWNS,			/* and in the next directory of the name */
	ZK_DEADLOCK_UNCONFIRMED,	/* end a deadlock as soon as it has been read */
	ZK_DEADLOCK_CHECKED_EARLY,	/* look at our own edges when a probe is known,
								 * and not ahead of the act */
	ZK_DEADLOCK_ANY_GENERATION, /* take an edge for the same whoever holds and
								 * waits */
	ZK_DEADLOCK_EDGES_STAY,		/* take no edge back */
	ZK_DEADLOCK_NOT_MINIMAL,	/* take all that is in any deadlock for one */
	ZK_DEADLOCK_LOOK_AHEAD,		/* look before our own edge is
								 * written */
	ZK_DEADLOCK_AHEAD_FAILS,	/* let fail who is only ahead of a member */
	ZK_DEADLOCK_AHEAD_BY_ONE,	/* say of each wait by itself that it is only
								 * ahead of a member */
	ZK_DEADLOCK_NAMES_AGAIN,	/* use the names of sessions' znodes again */
	ZK_DEADLOCK_SECOND_VICTIM,	/* let a member of ours fail with the victim of
								 * another instance */
	ZK_WATCHES_OF_ONE_TYPE,	/* forget all watches of a path when one of them
								 * fires */
	ZK_WAKE_LATE				/* take the wake-ups of news that come while
								 * others are taken, and not the news */
} ZkMutation;

extern int	zklock_mutation;	/* a ZkMutation */

#define ZK_MUTATED(mutation)	(zklock_mutation == (mutation))

#else

#define ZK_MUTATED(mutation)	(false)

#endif

#endif							/* ZKLOCK_MUTATION_H */
