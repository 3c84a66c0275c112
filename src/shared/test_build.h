/*-------------------------------------------------------------------------
 *
 * test_build.h
 *		Ways to break the locks on purpose, in builds for tests only.
 *
 * The checker of test/chaos must find what these do.  They are settings of
 * builds with ZKLOCK_TEST_BUILD; other builds have neither the settings nor
 * the code.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/test_build.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TEST_BUILD_H
#define ZKLOCK_TEST_BUILD_H

#ifdef ZKLOCK_TEST_BUILD

typedef enum ZkMutation
{
	ZK_MUTATION_NONE,
	ZK_COMMIT_CHECK_OFF,		/* commit, whatever has become of the locks */
	ZK_RELEASE_BEFORE_COMMIT,	/* give the locks up ahead of the commit */
	ZK_RECOVERED_CREATE_OWNS,	/* take a contender that had to be searched
								 * for to own its lock */
	ZK_LOST_WAKEUP				/* now and then, do not notice that the
								 * predecessor has gone */
} ZkMutation;

extern int	zklock_mutation;	/* a ZkMutation */
extern bool zklock_stop_before_commit;	/* SIGSTOP behind the commit check */

#define ZK_MUTATED(mutation)	(zklock_mutation == (mutation))

#else

#define ZK_MUTATED(mutation)	(false)

#endif

#endif							/* ZKLOCK_TEST_BUILD_H */
