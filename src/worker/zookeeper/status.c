/*-------------------------------------------------------------------------
 *
 * status.c
 *		The published state of the session.
 *
 * This is the worker's own copy of what is in shared memory (session_write()).
 * There the next worker finds how to resume the session: its ID and password,
 * and the chroot of its nodes.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/status.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/status.h"

static struct
{
	ZkSessionInfo info;			/* as last published by session_write() */
	bool		closing;		/* the server stops, and nothing is held */
}			current;

/* Begin with what the previous worker published. */
void
status_attach(void)
{
	session_read(&current.info);
	current.info.worker_pid = MyProcPid;
	status_publish(ZK_SESSION_CONNECTING);
}

void
status_detach(void)
{
	current.info.worker_pid = 0;
	current.info.server[0] = '\0';
	status_publish(ZK_SESSION_DOWN);
}

/* The state of the session, as published, or to be published next. */
const ZkSessionInfo *
status(void)
{
	return &current.info;
}

/* Is there a session, as far as we know? */
bool
status_is_alive(void)
{
	return current.info.client_id != 0;
}

bool
status_is_connected(void)
{
	return current.info.state == ZK_SESSION_CONNECTED;
}

/*
 * status_publish
 *		Publish the session's new state, with all that has been noted.
 *
 * A server that has not answered has not been reached: it may refuse the
 * credentials, which follow the request to connect, after granting that.
 */
void
status_publish(ZkSessionState state)
{
	ZkSessionInfo *info = &current.info;

	if (info->state != state)
	{
		int64		now = zk_now_us();

		if (info->answered)
			info->unreached_since = now;
		info->answered = false;
		info->state = state;
		info->state_since = now;
	}
	session_write(info);
}

/* The session is connected. */
void
status_set_up(const SessionIdentity *identity)
{
	ZkSessionInfo *info = &current.info;

	if (info->client_id != identity->client_id)
		info->sessions++;
	else
	{
		info->reconnects++;
		info->missing &= ~(1 << ZK_FEATURE_RESUME);
	}
	info->client_id = identity->client_id;
	memcpy(info->passwd, identity->passwd, sizeof(info->passwd));
	info->timeout = identity->timeout;
	info->first_timeout = identity->first_timeout;
	strlcpy(info->server, identity->address, sizeof(info->server));
	status_publish(ZK_SESSION_CONNECTED);
}

/* The server of the current connection has answered, and has what we need. */
void
status_set_answered(void)
{
	ZkSessionInfo *info = &current.info;

	if (info->answered || info->state != ZK_SESSION_CONNECTED)
		return;
	info->answered = info->probed = true;
	info->missing &= 1 << ZK_FEATURE_RESUME;
	info->last_error[0] = '\0';
	session_write(info);
}

/* There may be other servers. */
void
status_forget_probes(void)
{
	current.info.probed = false;
	session_write(&current.info);
}

/* Note, but do not publish yet, what the servers lack. */
void
status_set_missing(uint32 missing)
{
	current.info.missing |= missing;
}

/* The connection is lost; the session, if any, may be alive. */
void
status_set_suspended(void)
{
	ZkSessionInfo *info = &current.info;

	info->server[0] = '\0';
	status_publish(info->client_id != 0 ?
				   ZK_SESSION_SUSPENDED : ZK_SESSION_CONNECTING);
}

/* The session has ended; another one is to be opened. */
void
status_set_ended(void)
{
	ZkSessionInfo *info = &current.info;

	info->client_id = 0;
	memset(info->passwd, 0, sizeof(info->passwd));
	info->probed = false;
	info->server[0] = '\0';
	status_publish(ZK_SESSION_CONNECTING);
}

/* The session is closed, because the server stops. */
void
status_set_closed(void)
{
	current.info.client_id = 0;
	session_write(&current.info);
}

/*
 * status_set_closing
 *		The session is to be closed, because the server stops and nothing
 *		is held.
 */
void
status_set_closing(void)
{
	current.closing = true;
}

/* Begin or end draining: nothing new is begun until nothing is held. */
void
status_set_draining(bool draining)
{
	current.info.draining = draining;
	session_write(&current.info);
}

/*
 * status_set_error
 *		Note, but do not publish yet, why there is no connection.  Returns
 *		false if that was noted before.
 */
bool
status_set_error(const char *error)
{
	ZkSessionInfo *info = &current.info;

	if (strncmp(info->last_error, error, sizeof(info->last_error) - 1) == 0)
		return false;
	strlcpy(info->last_error, error, sizeof(info->last_error));
	return true;
}

/* The chroot in zklock.servers, below which all our paths are. */
static const char *
chroot_of(const char *servers)
{
	const char *slash = strchr(servers, '/');

	return slash && slash[1] != '\0' ? slash : "";
}

/* Has the session begun, or is it about to, so that the chroot is settled? */
static bool
is_settled(void)
{
	return status_is_alive() || session_is_open();
}

/* The chroot of the session to be opened. */
const char *
status_settle_chroot(void)
{
	if (!is_settled())
		strlcpy(current.info.chroot, chroot_of(zklock_servers),
				sizeof(current.info.chroot));
	return current.info.chroot;
}

/* The chroot of the session, whether open yet or not. */
const char *
status_chroot(void)
{
	return is_settled() ? current.info.chroot : chroot_of(zklock_servers);
}

/*
 * status_chroot_changed
 *		Has zklock.servers another chroot than the session?
 *
 * Then no contender is begun until nothing is held and the session has
 * ended.
 */
bool
status_chroot_changed(void)
{
	return status_is_alive() &&
		strcmp(current.info.chroot, chroot_of(zklock_servers)) != 0;
}

/* Is the session to end, so that no contender is begun? */
bool
status_is_ending(void)
{
	return current.closing || status_chroot_changed();
}
