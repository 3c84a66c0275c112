/*-------------------------------------------------------------------------
 *
 * test_build.h
 *		Ways to break the locks on purpose, in builds for tests only.
 *
 * They are settings of builds with ZKLOCK_TEST_BUILD, which test_build.c
 * describes; other builds have neither the settings nor the code.
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

#include "core/mutation.h"
#include "shared/session_info.h"

#ifdef ZKLOCK_TEST_BUILD

extern bool zklock_stop_before_commit;	/* SIGSTOP after the commit check */
extern bool zklock_stop_at_end; /* SIGSTOP where other callbacks end the
								 * transaction on other servers */

extern char *zklock_fail_at;	/* the name of a ZK_FAIL_AT(), or "" */

extern int	zklock_path_bytes;	/* in place of ZK_MAX_PATH_BYTES */
extern bool zklock_look_again;
extern bool zklock_no_lease;
#define ZK_LOOKS_AGAIN			zklock_look_again
#define ZK_HAS_LEASE			(!zklock_no_lease)
#define ZK_PATH_BYTES_BOUND		zklock_path_bytes

extern void test_settings_define(void);

/* An error may be raised here; the caller includes postgres.h. */
#define ZK_FAIL_AT(point) \
	do { \
		if (strcmp(zklock_fail_at, (point)) == 0) \
			ereport(ERROR, \
					(errcode(ERRCODE_INTERNAL_ERROR), \
					 errmsg("failed on purpose at \"%s\"", (point)))); \
	} while (0)

#else

#define ZK_LOOKS_AGAIN			(true)
#define ZK_HAS_LEASE			(true)
#define ZK_PATH_BYTES_BOUND		ZK_MAX_PATH_BYTES
#define ZK_FAIL_AT(point)		((void) 0)
#define test_settings_define()	((void) 0)

#endif

#endif							/* ZKLOCK_TEST_BUILD_H */
