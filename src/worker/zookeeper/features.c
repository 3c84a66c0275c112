/*-------------------------------------------------------------------------
 *
 * features.c
 *		Which of the requests that zklock needs a server does not have.
 *
 * Old servers, and those that only speak ZooKeeper's protocol, do not have all
 * of its requests.  So they are probed on the first connection of a session,
 * one after the other, before anything else is sent but the sync check, which
 * probes multi; again if zklock.servers has changed.  The probes change
 * nothing, since the znodes that they name do not exist, nor do their parents.
 *
 * A server that does not know a request says so and closes the connection, as
 * ZooKeeper does, or only closes the connection.  Connections are lost for
 * other reasons, too: without an answer, a request is missing only if several
 * of them in a row, on each of which the sync check was answered, are lost
 * while its probe is out.  Any other answer shows that the server has it.
 *
 * The library sends a request to remove watches only for a watch that it has;
 * so one is set before, on a missing znode.  It has no owner, and so watches.c
 * drops it if the connection is lost.  The library may have been given that
 * request before we hear of the loss, and send it on the next connection; so
 * the watch is noted by the answer, too.
 *
 * Callbacks run in the library's threads, all else in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/features.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/session_info.h"
#include "worker/zookeeper/features_private.h"
#include "worker/zookeeper/operation_private.h"

/* The number of connections whose loss shows that a request is missing. */
#define MAX_LOSSES		3

/*
 * A znode that does not exist, nor does its parent: no lock directory or
 * directory of ours has such a name.
 */
#define PROBE_PATH		"/%zklock-probe/none"

static const ZkFeature probed[] = {
	[PROBE_CREATE2] = ZK_FEATURE_CREATE2,
	[PROBE_CONTAINER] = ZK_FEATURE_CONTAINER,
	[PROBE_REMOVE_WATCHES] = ZK_FEATURE_REMOVE_WATCHES
};

/* Begin to probe. */
void
features_init(Features *features)
{
	memset(features, 0, sizeof(*features));
}

/* Do not probe: the servers of the session have what zklock needs. */
void
features_skip(Features *features)
{
	features->next = PROBE_NONE;
}

static void
answer_create2(int rc, const char *value pg_attribute_unused(),
			   const struct Stat *stat pg_attribute_unused(),
			   const void *client)
{
	client_answer_probe(rc, client);
}

static void
answer_create(int rc, const char *value pg_attribute_unused(),
			  const void *client)
{
	client_answer_probe(rc, client);
}

static void
answer_exists(int rc, const struct Stat *stat pg_attribute_unused(),
			  const void *client)
{
	client_answer_probe(rc, client);
}

/* Pass a probe to the library; returns one of ZOO_ERRORS. */
static int
send_probe(FeatureProbe probe, Client *client, Watches *watches)
{
	zhandle_t  *handle = client->handle;

	switch (probe)
	{
		case PROBE_CREATE2:
			return zoo_acreate2(handle, PROBE_PATH, NULL, -1, client->acl,
								ZOO_EPHEMERAL, answer_create2, client);
		case PROBE_CONTAINER:
			return zoo_acreate(handle, PROBE_PATH, NULL, -1, client->acl,
							   ZOO_CONTAINER, answer_create, client);
		case PROBE_WATCH:
			watches_note_set(watches, PROBE_PATH, ZWATCHTYPE_DATA, NOBODY);
			return zoo_awexists(handle, PROBE_PATH, client_watch_fired, client,
								answer_exists, client);
		case PROBE_REMOVE_WATCHES:
			return zoo_aremove_all_watches(handle, PROBE_PATH,
										   ZWATCHTYPE_DATA, 0,
										   (void_completion_t *) client_answer_probe,
										   client);
		case PROBE_NONE:
			break;
	}
	return ZBADARGUMENTS;
}

static void
go_on(Features *features, Watches *watches)
{
	if (features->next != PROBE_WATCH)
		features->losses = 0;
	if (features->next == PROBE_REMOVE_WATCHES)
		watches_removed(watches, PROBE_PATH, ZWATCHTYPE_DATA);
	features->next++;
}

/*
 * features_probe
 *		Send the next probe; false if there is none.
 *
 * None may be out.  If the library rejects it because the connection is lost,
 * it is sent on the next one.
 */
bool
features_probe(Features *features, Client *client, Watches *watches)
{
	while (features->next != PROBE_NONE)
	{
		int			rc = send_probe(features->next, client, watches);

		features->out = rc == ZOK;
		if (rc != ZNOWATCHER)
			return true;

		/* the watch could not be set: the server's answer is not known */
		go_on(features, watches);
	}
	return false;
}

/* The connection was lost while a probe was out. */
static void
note_loss(Features *features, Watches *watches)
{
	if (features->next == PROBE_WATCH)
		return;
	if (++features->losses >= MAX_LOSSES)
	{
		features->missing |= 1 << probed[features->next];
		go_on(features, watches);
	}
	else if (features->next == PROBE_REMOVE_WATCHES)
		features->next = PROBE_WATCH;
}

/* Does a server answer so if it does not know the request? */
static bool
is_unknown(int code)
{
	return code == ZUNIMPLEMENTED || code == ZBADARGUMENTS;
}

/* Has the server processed a request with this outcome? */
static bool
is_processed(int code)
{
	return code == ZOK ||
		(code < ZAPIERROR && code != ZSESSIONEXPIRED && code != ZCLOSING &&
		 code != ZSESSIONMOVED && code != ZSESSIONCLOSEDREQUIRESASLAUTH &&
		 code != ZTHROTTLEDOP);
}

/*
 * features_answer
 *		The probe that is out has been answered with this code of ZOO_ERRORS.
 *
 * Returns false if that is no answer of the server: the next probe has to wait
 * for another sync check.
 */
bool
features_answer(Features *features, int code, Watches *watches)
{
	features->out = false;
	if (code == ZCONNECTIONLOSS)
	{
		note_loss(features, watches);
		return false;
	}
	if (!is_unknown(code) && !is_processed(code))
		return false;
	if (is_unknown(code) && features->next != PROBE_WATCH)
		features->missing |= 1 << probed[features->next];
	if (features->next == PROBE_WATCH && !is_unknown(code))
		watches_note_set(watches, PROBE_PATH, ZWATCHTYPE_DATA, NOBODY);
	go_on(features, watches);
	return true;
}

/* The handle is closed: no probe is out any more. */
void
features_disconnect(Features *features)
{
	features->out = false;
}
