/*-------------------------------------------------------------------------
 *
 * status.c
 *		The published state of the sessions.
 *
 * This is the worker's own copy of what is in shared memory (session_write()).
 * There the next worker finds how to resume a session: its ID and password,
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
#include "worker/zookeeper/session_file.h"
#include "worker/zookeeper/status.h"

static struct
{
	ZkSessionInfo info[ZK_MAX_SESSIONS];	/* as last published by
											 * session_write() */
	bool		closing;		/* the server stops, and nothing is held */
}			current;

/* Begin with what the previous worker published. */
void
status_attach(void)
{
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
	{
		ZkSessionInfo *info = &current.info[i];

		session_read(i, info);
		info->worker_pid = MyProcPid;
		if (i == 0 || info->client_id != 0)
			status_publish(i, ZK_SESSION_CONNECTING);
	}
}

void
status_detach(void)
{
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
	{
		ZkSessionInfo *info = &current.info[i];

		info->worker_pid = 0;
		info->server[0] = '\0';
		if (i == 0 || info->state != ZK_SESSION_DOWN)
			status_publish(i, ZK_SESSION_DOWN);
	}
}

/* The state of a session, as published, or to be published next. */
const ZkSessionInfo *
status(int session)
{
	return &current.info[session];
}

/* Is there any session, as far as we know? */
bool
status_is_alive(void)
{
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		if (current.info[i].client_id != 0)
			return true;
	return false;
}

bool
status_is_connected(int session)
{
	return current.info[session].state == ZK_SESSION_CONNECTED;
}

/* Is this the ID of one of the sessions? */
bool
status_is_ours(int64 client_id)
{
	if (client_id == 0)
		return false;
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		if (current.info[i].client_id == client_id)
			return true;
	return false;
}

/*
 * status_list_others
 *		List the sessions other than this one, for session_file_write().
 *
 * "keys" has room for ZK_MAX_SESSIONS.  Returns how many there are.
 */
int
status_list_others(int session, SessionKey *keys)
{
	int			n = 0;

	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
	{
		const ZkSessionInfo *info = &current.info[i];

		if (i == session || info->client_id == 0)
			continue;
		keys[n].client_id = info->client_id;
		memcpy(keys[n].passwd, info->passwd, sizeof(keys[n].passwd));
		n++;
	}
	return n;
}

/*
 * status_publish
 *		Publish the session's new state, with all that has been noted.
 *
 * A server that has not answered has not been reached: it may refuse the
 * credentials, which follow the request to connect, after granting that.
 */
void
status_publish(int session, ZkSessionState state)
{
	ZkSessionInfo *info = &current.info[session];

	if (info->state != state)
	{
		int64		now = zk_now_us();

		if (info->answered)
			info->unreached_since = now;
		info->answered = false;
		info->state = state;
		info->state_since = now;
	}
	session_write(session, info);
}

/* The session is connected. */
void
status_set_up(int session, const SessionIdentity *identity)
{
	ZkSessionInfo *info = &current.info[session];

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
	status_publish(session, ZK_SESSION_CONNECTED);
}

/* The server of the current connection has answered, and has what we need. */
void
status_set_answered(int session)
{
	ZkSessionInfo *info = &current.info[session];

	if (info->answered || info->state != ZK_SESSION_CONNECTED)
		return;
	info->answered = info->probed = true;
	info->missing &= 1 << ZK_FEATURE_RESUME;
	info->last_error[0] = '\0';
	session_write(session, info);
}

/* There may be other servers for all sessions. */
void
status_forget_probes(void)
{
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
	{
		current.info[i].probed = false;
		session_write(i, &current.info[i]);
	}
}

/* Note, but do not publish yet, what the servers lack. */
void
status_set_missing(int session, uint32 missing)
{
	current.info[session].missing |= missing;
}

/* The connection is lost; the session, if any, may be alive. */
void
status_set_suspended(int session)
{
	ZkSessionInfo *info = &current.info[session];

	info->server[0] = '\0';
	status_publish(session, info->client_id != 0 ?
				   ZK_SESSION_SUSPENDED : ZK_SESSION_CONNECTING);
}

/*
 * status_set_ended
 *		The session has ended; another one is to be opened, unless this
 *		number is no longer needed.
 */
void
status_set_ended(int session, bool needed)
{
	ZkSessionInfo *info = &current.info[session];

	info->client_id = 0;
	memset(info->passwd, 0, sizeof(info->passwd));
	info->probed = false;
	info->server[0] = '\0';
	status_publish(session,
				   needed ? ZK_SESSION_CONNECTING : ZK_SESSION_DOWN);
}

/* All sessions are closed, because the server stops. */
void
status_set_closed(void)
{
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
	{
		if (i > 0 && current.info[i].client_id == 0)
			continue;
		current.info[i].client_id = 0;
		session_write(i, &current.info[i]);
	}
}

/*
 * status_set_closing
 *		The sessions are to be closed, because the server stops and nothing
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
	current.info[0].draining = draining;
	session_write(0, &current.info[0]);
}

/*
 * status_set_error
 *		Note, but do not publish yet, why there is no connection.  Returns
 *		false if that was noted before.
 */
bool
status_set_error(int session, const char *error)
{
	ZkSessionInfo *info = &current.info[session];

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

/* Has a session begun, or is one about to, so that the chroot is settled? */
static bool
is_settled(void)
{
	if (status_is_alive())
		return true;
	for (int i = 0; i < ZK_MAX_SESSIONS; i++)
		if (session_is_open(i))
			return true;
	return false;
}

/*
 * status_settle_chroot
 *		The chroot of the session to be opened.
 *
 * All sessions have the chroot of the first one, which is that of
 * zklock.servers when it begins.
 */
const char *
status_settle_chroot(int session)
{
	if (!is_settled())
		strlcpy(current.info[0].chroot, chroot_of(zklock_servers),
				sizeof(current.info[0].chroot));
	if (session != 0)
		strlcpy(current.info[session].chroot, current.info[0].chroot,
				sizeof(current.info[0].chroot));
	return current.info[0].chroot;
}

/* The chroot of the sessions, whether open yet or not. */
const char *
status_chroot(void)
{
	return is_settled() ? current.info[0].chroot : chroot_of(zklock_servers);
}

/*
 * status_chroot_changed
 *		Has zklock.servers another chroot than the sessions?
 *
 * Then no contender is begun until nothing is held and the sessions have
 * ended.
 */
bool
status_chroot_changed(void)
{
	return status_is_alive() &&
		strcmp(current.info[0].chroot, chroot_of(zklock_servers)) != 0;
}

/* Are the sessions to end, so that no contender is begun? */
bool
status_is_ending(void)
{
	return current.closing || status_chroot_changed();
}
