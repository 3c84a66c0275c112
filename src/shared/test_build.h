/*-------------------------------------------------------------------------
 *
 * test_build.h
 *		Ways to break the locks on purpose, in builds for tests only.
 *
 * The checker of test/chaos must find what the mutations do; zklock.fail_at
 * has an error come where one is rare.  They are settings of builds with
 * ZKLOCK_TEST_BUILD; other builds have neither the settings nor the code.
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
extern bool zklock_stop_at_end; /* the same where others' callbacks end the
								 * transaction on other servers */

extern char *zklock_fail_at;	/* the name of a ZK_FAIL_AT(), or "" */

#define ZK_MUTATED(mutation)	(zklock_mutation == (mutation))

/* A place where an error may come; the caller includes postgres.h. */
#define ZK_FAIL_AT(point) \
	do { \
		if (strcmp(zklock_fail_at, (point)) == 0) \
			ereport(ERROR, \
					(errcode(ERRCODE_INTERNAL_ERROR), \
					 errmsg("failed on purpose at \"%s\"", (point)))); \
	} while (0)

#else

#define ZK_MUTATED(mutation)	(false)
#define ZK_FAIL_AT(point)		((void) 0)

#endif

#endif							/* ZKLOCK_TEST_BUILD_H */
