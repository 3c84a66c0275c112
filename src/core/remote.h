/*-------------------------------------------------------------------------
 *
 * remote.h
 *		Names of sessions for which those of other instances work.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/remote.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REMOTE_H
#define ZKLOCK_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

/* postgres_fdw.application_name that says for which session another works. */
#define REMOTE_APPLICATION_NAME	"zklock:%c:%C"

/* PostgreSQL cuts names to one byte less. */
#define REMOTE_CLUSTER_SIZE		64

/* The name of a session: 16 digits, ".", 8 digits, ":", a cluster_name. */
#define REMOTE_NAME_SIZE		(26 + REMOTE_CLUSTER_SIZE)

typedef struct RemoteSession
{
	int64_t		start;			/* when it began; s since 1970 */
	int			pid;
	char		cluster_name[REMOTE_CLUSTER_SIZE];	/* its instance's */
} RemoteSession;

extern bool remote_of_application(const char *name, RemoteSession *session);
extern bool remote_parse(const char *name, RemoteSession *session);
extern void remote_write(const RemoteSession *session,
						 char name[REMOTE_NAME_SIZE]);

#endif							/* ZKLOCK_REMOTE_H */
