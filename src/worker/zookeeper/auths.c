/*-------------------------------------------------------------------------
 *
 * auths.c
 *		The credentials that the sessions present.
 *
 * The directories of our contenders, and with zklock.acl = creator the
 * contenders too, belong to whoever made them: with other credentials we
 * could not even delete them.  So the sessions go on presenting those that
 * they have begun with, together with the new ones, while there are
 * contenders, and with zklock.acl = creator until %clusters and our znode in it
 * have an ACL for both (fleet.c).  Then the next worker resumes them with the new
 * ones only: credentials are of a connection, and cannot be taken back from
 * one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/auths.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/session_info.h"
#include "shared/settings.h"
#include "worker/zookeeper/auths.h"
#include "worker/zookeeper/status.h"

/* What the sessions have presented, in the form of session_write_auths(). */
static char auths[ZK_AUTHS_SIZE];

static char *
find_auth(const char *auth)
{
	for (char *known = auths; known[0] != '\0'; known += strlen(known) + 1)
		if (strcmp(known, auth) == 0)
			return known;
	return NULL;
}

static void
forget_auth(char *auth)
{
	size_t		len = strlen(auth) + 1;

	memmove(auth, auth + len, auths + sizeof(auths) - (auth + len));
}

/*
 * auths_attach
 *		Begin with what the worker before this one has presented.
 */
void
auths_attach(void)
{
	session_read_auths(auths);
}

/*
 * auths_collect
 *		A session is to present zklock.auth, and nothing else if there is
 *		no session or no others are needed, since there are no contenders.
 *
 * Returns all that it is to present, one string after the other, with an
 * empty one behind the last.
 */
const char *
auths_collect(bool needed)
{
	size_t		need = strlen(zklock_auth) + 1;
	char	   *end = auths;

	if (!status_is_alive() || !needed)
		memset(auths, 0, sizeof(auths));
	if (zklock_auth[0] != '\0' && find_auth(zklock_auth) == NULL)
	{
		for (;;)
		{
			for (end = auths; end[0] != '\0'; end += strlen(end) + 1)
				;
			if (end + need < auths + sizeof(auths))
				break;
			forget_auth(auths); /* the oldest, after a good many */
		}
		memcpy(end, zklock_auth, need);
		end[need] = '\0';
	}
	session_write_auths(auths);
	return auths;
}

/*
 * auths_are_several
 *		Do the sessions present more than one?
 */
bool
auths_are_several(void)
{
	return auths[0] != '\0' && auths[strlen(auths) + 1] != '\0';
}

/*
 * auths_are_old
 *		Do the sessions present credentials that are zklock.auth no more?
 */
bool
auths_are_old(void)
{
	if (!status_is_alive())
		return false;
	for (const char *auth = auths; auth[0] != '\0'; auth += strlen(auth) + 1)
		if (strcmp(auth, zklock_auth) != 0)
			return true;
	return false;
}

/*
 * auths_forget_refused
 *		ZooKeeper has refused zklock.auth: the next worker presents the
 *		others.
 */
void
auths_forget_refused(void)
{
	char	   *refused = find_auth(zklock_auth);

	if (refused == NULL)
		return;
	forget_auth(refused);
	session_write_auths(auths);
}
