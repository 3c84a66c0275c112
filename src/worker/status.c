/*-------------------------------------------------------------------------
 *
 * status.c
 *		What the worker and the backends know of the session.
 *
 * The worker's own copy of what is in shared memory (session_write()).  The
 * next worker finds there how to resume the session: its id and password, and
 * the chroot below which its nodes are.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/status.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "utils/timestamp.h"
#include "worker/session.h"
#include "worker/status.h"

/* Of one session. */
static struct
{
	ZkSessionInfo info;			/* what session_write() last published */
	bool		closing;		/* the server stops, and nothing is held */
}			current;

/*
 * status_attach
 *		Begin with what the worker before this one has published.
 */
void
status_attach(void)
{
	session_read(&current.info);
	current.info.worker_pid = MyProcPid;
	status_publish(ZK_SESSION_CONNECTING);
}

/*
 * status_detach
 *		This worker ends.
 */
void
status_detach(void)
{
	current.info.worker_pid = 0;
	current.info.server[0] = '\0';
	status_publish(ZK_SESSION_DOWN);
}

/*
 * status
 *		What was last published, and what has been noted since.
 */
const ZkSessionInfo *
status(void)
{
	return &current.info;
}

/*
 * status_publish
 *		The session is in this state now: publish that, and all that has
 *		been noted.
 */
void
status_publish(ZkSessionState state)
{
	if (current.info.state != state)
	{
		current.info.state = state;
		current.info.state_since = GetCurrentTimestamp();
	}
	session_write(&current.info);
}

/*
 * status_set_up
 *		The session is connected.
 */
void
status_set_up(const SessionIdentity *identity)
{
	ZkSessionInfo *info = &current.info;

	if (info->client_id != identity->client_id)
		info->sessions++;
	else
		info->reconnects++;
	info->client_id = identity->client_id;
	memcpy(info->passwd, identity->passwd, sizeof(info->passwd));
	info->timeout = identity->timeout;
	info->first_timeout = identity->first_timeout;
	strlcpy(info->server, identity->address, sizeof(info->server));
	info->last_error[0] = '\0';
	status_publish(ZK_SESSION_CONNECTED);
}

/*
 * status_set_suspended
 *		The connection is lost; the session, if there is one, may be alive.
 */
void
status_set_suspended(void)
{
	current.info.server[0] = '\0';
	status_publish(current.info.client_id != 0 ?
				   ZK_SESSION_SUSPENDED : ZK_SESSION_CONNECTING);
}

/*
 * status_set_ended
 *		There is no session; another is to be opened.
 */
void
status_set_ended(void)
{
	current.info.client_id = 0;
	memset(current.info.passwd, 0, sizeof(current.info.passwd));
	current.info.server[0] = '\0';
	status_publish(ZK_SESSION_CONNECTING);
}

/*
 * status_set_closed
 *		The session is closed, as the server stops.
 */
void
status_set_closed(void)
{
	current.info.client_id = 0;
	session_write(&current.info);
}

/*
 * status_set_closing
 *		The session is to be closed, as the server stops and nothing is
 *		held.
 */
void
status_set_closing(void)
{
	current.closing = true;
}

/*
 * status_set_draining
 *		Nothing new is begun until nothing is held; or that is over.
 */
void
status_set_draining(bool draining)
{
	current.info.draining = draining;
	session_write(&current.info);
}

/*
 * status_set_error
 *		Note why there is no connection.  Returns false if that is known
 *		already; it is not published yet.
 */
bool
status_set_error(const char *error)
{
	if (strncmp(current.info.last_error, error,
				sizeof(current.info.last_error) - 1) == 0)
		return false;
	strlcpy(current.info.last_error, error, sizeof(current.info.last_error));
	return true;
}

/* The part of zklock.servers that says below which znode all our paths are. */
static const char *
chroot_of(const char *servers)
{
	const char *slash = strchr(servers, '/');

	return slash && slash[1] != '\0' ? slash : "";
}

/*
 * status_settle_chroot
 *		The chroot of the session that is to be opened.
 *
 * A session lives below the chroot that it has begun with; the first one
 * begins with that of zklock.servers.
 */
const char *
status_settle_chroot(void)
{
	if (current.info.client_id == 0)
		strlcpy(current.info.chroot, chroot_of(zklock_servers),
				sizeof(current.info.chroot));
	return current.info.chroot;
}

/*
 * status_chroot
 *		The chroot of the session that is open, or would be opened now.
 */
const char *
status_chroot(void)
{
	return session_is_open() ? current.info.chroot : chroot_of(zklock_servers);
}

/*
 * status_chroot_changed
 *		Has zklock.servers another chroot than the session has begun with?
 *
 * Then no contender is begun any more until nothing is held, and the session
 * ends.
 */
bool
status_chroot_changed(void)
{
	return current.info.client_id != 0 &&
		strcmp(current.info.chroot, chroot_of(zklock_servers)) != 0;
}

/*
 * status_is_ending
 *		Is the session to end, so that no contender is begun in it any
 *		more?
 */
bool
status_is_ending(void)
{
	return current.closing || status_chroot_changed();
}
