/*-------------------------------------------------------------------------
 *
 * session.c
 *		The instance's ZooKeeper session.
 *
 * It is opened, connects, is suspended and resumed, and ends.  It has a client
 * (client.c: the library's handle and the queue of events), and its operations
 * and watches (flight.c), which do not know of this file.
 *
 * session_next_event() delivers answers and watches to the owners of the
 * requests; it handles other client events, or turns them into events for the
 * worker.  session_flush() sends.  An operation that the library will never
 * answer, because the session has ended, is forgotten with the session.
 *
 * Lease.  Each answer to a request that changes the tree proves to lease.c
 * that the session was alive.  Without such requests a heartbeat is sent: a
 * multi that only checks that "/" exists, which goes through the leader, too.
 *
 * Barriers.  The same multi is a barrier.  A server answers the reads of a
 * session after its earlier writes (CommitProcessor.java), and a write when a
 * majority has it.  So what is read behind a barrier on the same connection
 * includes all that was done anywhere before the barrier was sent.  A sync
 * does not guarantee that: a deposed leader that has not noticed answers it at
 * once, from old state.
 *
 * On each new connection a barrier is sent first (the sync check), and nothing
 * else before its answer: the server may lag behind what an earlier worker had
 * seen.  On the first one of a session the probes follow.  If the server lacks
 * something, nothing else is sent to it.
 *
 * Probes.  Old servers, and those that only speak ZooKeeper's protocol, do not
 * have all of its requests.  So they are probed on the first connection of a
 * session, one after the other, before anything else is sent but the sync
 * check, which probes multi; again if zklock.servers has changed.  The probes
 * change nothing, since the znodes that they would make have no parents.
 *
 * A server that does not know a request says so and closes the connection, as
 * ZooKeeper does, or only closes the connection.  Connections are lost for
 * other reasons, too: without an answer, a request is missing only if several
 * of them in a row, on each of which the sync check was answered, are lost
 * while its probe is out.  Any other answer shows that the server has it.
 *
 * The probes are requests as any, but each is alone in its flight.  The
 * library sends one to remove watches only for a watch that it has; so one is
 * set before, on the topmost znode.
 *
 * Credentials (zklock.auth).  The directories of our contenders and, with
 * zklock.acl = creator, the contenders too, belong to their creator's
 * credentials: with others we could not even delete them.  So the session
 * continues to present the credentials that it began with, together with the
 * new ones, while there are contenders, and with zklock.acl = creator until
 * %clusters and our znode in it have an ACL for both (fleet.c).  Then the next
 * worker resumes it with the new ones only: credentials belong to a
 * connection, and cannot be withdrawn from it.
 *
 * What a server sends is not trusted.  An answer that reports the end of the
 * session counts as lost, since the library tells by an event if it has ended;
 * a session with an impossible ID or timeout ends the worker.
 *
 * Published state.  The worker's own copy of what is in shared memory
 * (session_write()) is here, too.  There the next worker finds how to resume
 * the session: its ID and password, and the chroot of its nodes.
 *
 * Everything here runs in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/session.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/lock/lease.h"
#include "core/lock/note.h"
#include "core/mutation.h"
#include "core/reason.h"
#include "miscadmin.h"
#include "shared/clock.h"
#include "shared/settings.h"
#include "shared/test_build.h"
#include "utils/hsearch.h"
#include "worker/zookeeper/flight_private.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"

/*
 * More connections than these lost in a row without an answer are no accident.
 */
#define MAX_SILENT_CONNECTIONS	10

/*
 * No server grants shorter or longer session timeouts.  The library computes
 * twice the timeout, as an int.
 */
#define MIN_GRANTED_TIMEOUT_MS	100
#define MAX_GRANTED_TIMEOUT_MS	(INT_MAX / 2)

/* How often to check whether a session that is being closed is. */
#define CLOSED_CHECK_US		1000

/* The number of connections whose loss shows that a request is missing. */
#define MAX_LOSSES		3

/*
 * A directory that does not exist: no lock directory or directory of ours has
 * such a name.
 */
#define PROBE_PATH		"/%zklock-probe"

typedef enum FeatureProbe
{
	PROBE_CREATE2,
	PROBE_CONTAINER,
	PROBE_WATCH,				/* sets the watch for the next one */
	PROBE_REMOVE_WATCHES,
	PROBE_NONE					/* all have been answered */
} FeatureProbe;

/* What is known of the servers of one session. */
typedef struct Features
{
	FeatureProbe next;			/* the one to be sent, or that is out */
	int			losses;			/* connections lost in a row while it was
								 * out */
	uint32		missing;		/* 1 << ZkFeature, of those not found */
} Features;

/* An owner of requests. */
typedef struct Owner
{
	uint32		id;				/* hash key, must be first */
	RequestHandler handler;
	void	   *data;
} Owner;

static HTAB *owners;			/* by ID */
static uint32 unmarked_owner;	/* whose changes do not count as "changed" */
static bool changed = false;	/* since the last session_take_changes() */

static Features features;

static struct
{
	/* the connection */
	const char *next_auth;		/* of "auths", to be sent; or "" */
	bool		checked;		/* the server has answered the sync check */
	int			silent_connections; /* lost in a row without any answer */

	/* the lease */
	Lease		lease;
	const Operation *heartbeat; /* while it is out, its ticket is its serial;
								 * or NULL */
	uint32		proved_ticket;	/* of the latest that was answered */
}			session;

/* The state of the session, as published or to be published next. */
static ZkSessionInfo current;
static bool closing = false;	/* the server stops, and nothing is held */

static char *auths;				/* session_auths() */

static const struct
{
	Request		request;
	ZkFeature	feature;
}			probes[] = {
	[PROBE_CREATE2] = {
		{.kind = REQUEST_CREATE,.path = PROBE_PATH,.node = "none",.exact = true},
		ZK_FEATURE_CREATE2
	},
	[PROBE_CONTAINER] = {
		{.kind = REQUEST_MKDIR,.path = PROBE_PATH "/none"},
		ZK_FEATURE_CONTAINER
	},
	[PROBE_WATCH] = {{.kind = REQUEST_WATCH,.path = "/",.brief = true}},
	[PROBE_REMOVE_WATCHES] = {
		{.kind = REQUEST_UNWATCH,.path = "/"},
		ZK_FEATURE_REMOVE_WATCHES
	}
};

static void
go_on(void)
{
	if (features.next != PROBE_WATCH)
		features.losses = 0;
	features.next++;
}

/* The connection was lost while a probe was out. */
static void
note_loss(void)
{
	if (features.next == PROBE_WATCH)
		return;
	if (++features.losses >= MAX_LOSSES)
	{
		features.missing |= 1 << probes[features.next].feature;
		go_on();
	}
	else if (features.next == PROBE_REMOVE_WATCHES)
		features.next = PROBE_WATCH;
}

/*
 * The probe that is out has been answered.  If that is no answer of the server,
 * the next probe has to wait for another sync check.
 */
static void
end_probe(const Operation *op)
{
	int			code = op->answer.error;

	if (op->answer.result != REQUEST_UNKNOWN)
	{
		if ((code == ZUNIMPLEMENTED || code == ZBADARGUMENTS) &&
			features.next != PROBE_WATCH)
			features.missing |= 1 << probes[features.next].feature;
		go_on();
		return;
	}
	if (code == ZCONNECTIONLOSS)
		note_loss();
	session.checked = false;
}

/*
 * session_init
 *		Prepare the process for the session.
 *
 * Returns a file descriptor that is readable when session_next_event() may
 * have something new.  Errors: as for any failing system call.
 */
int
session_init(void)
{
	HASHCTL		ctl;

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(uint32);
	ctl.entrysize = sizeof(Owner);
	owners = hash_create("zklock owners of requests", 256, &ctl,
						 HASH_ELEM | HASH_BLOBS);
	flight_init();
	client_init();
	return client.wake_fd;
}

/* Is there a session, or an attempt at one? */
bool
session_is_open(void)
{
	return client.state == CLIENT_OPEN || session_is_opening();
}

/* Is there an attempt that has not begun to connect? */
bool
session_is_opening(void)
{
	return client.state == CLIENT_OPENING;
}

/* Can it be opened, because nothing is left of the last time? */
bool
session_is_closed(void)
{
	return client.state == CLIENT_CLOSED;
}

/*
 * session_close
 *		Begin to end the session, if it is open: its znodes go soon if there
 *		is a connection, otherwise when it times out.
 *
 * Operations that are out are forgotten.  Errors: as for client_close().
 */
void
session_close(void)
{
	client_close();
	session.heartbeat = NULL;
	session.checked = false;
	session.silent_connections = 0;
	lease_begin(&session.lease, zk_now_ms());
	flight_end();
}

/*
 * session_await_closed
 *		Wait until ZooKeeper has learned of the end of a session that is being
 *		closed, at most until this time, as of zk_now_ms().
 *
 * For a process that ends.  Errors: as for client_next_event().
 */
void
session_await_closed(int64 until_ms)
{
	while (client.state == CLIENT_CLOSING && zk_now_ms() < until_ms)
	{
		ClientEvent *event = client_next_event();

		if (event)
			client_free_notice(event);
		else
			pg_usleep(CLOSED_CHECK_US);
	}
}

/* Add an owner of requests, and return its ID, for session_submit(). */
uint32
session_add_owner(RequestHandler handler, void *data)
{
	static uint32 last = OURSELVES;
	Owner	   *owner;
	bool		found;

	/* IDs wrap around, and some owners live long */
	do
	{
		if (++last <= OURSELVES)
			last = OURSELVES + 1;
		owner = hash_search(owners, &last, HASH_ENTER, &found);
	} while (found);
	owner->handler = handler;
	owner->data = data;
	return owner->id;
}

/* Remove an owner: its handler is no longer called. */
void
session_remove_owner(uint32 owner)
{
	hash_search(owners, &owner, HASH_REMOVE, NULL);
}

/*
 * session_submit
 *		Submit a request of this owner, to be sent by session_flush().
 *
 * The requests of a group succeed or fail together.  In any state a request is
 * accepted, and waits for a connection or the end of the session.
 */
void
session_submit(uint32_t owner, const Request *request)
{
	(void) flight_submit(owner, request);
}

/*
 * session_let_first
 *		Until the next call, send no requests but those of this owner, and
 *		heartbeats; 0: send all.
 */
void
session_let_first(uint32 owner)
{
	flight.first = owner;
}

/*
 * session_make_uuid
 *		Make a random UUID for a znode, by which it is found if the answer
 *		to its create is lost.
 *
 * Errors: XX000 if there are no random bytes.
 */
void
session_make_uuid(uint8 uuid[ZNODE_UUID_BYTES])
{
	if (!pg_strong_random(uuid, ZNODE_UUID_BYTES))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	znode_make_uuid(uuid);
}

/* The name of this host, for other instances. */
const char *
host_name(void)
{
	static char host[WORD_VALUE_SIZE] = "";

	if (host[0] == '\0')
	{
		if (gethostname(host, sizeof(host)) != 0)
			strlcpy(host, "unknown", sizeof(host));
		host[sizeof(host) - 1] = '\0';
	}
	return host;
}

/* A watch has reported the deletion of this directory: creates in it fail. */
void
session_directory_deleted(const char *directory)
{
	flight_directory_deleted(directory);
}

/*
 * The session timeout to rely on, in ms.  If it has changed since the session
 * began, the new one counts, but ZooKeeper remembers the old one, and returns
 * to that when it is restarted or has a new leader.
 */
static int
lease_timeout_ms(void)
{
	int			timeout_ms = zoo_recv_timeout(client.handle);

	return current.first_timeout == 0 ? timeout_ms :
		Min(timeout_ms, current.first_timeout);
}

/* Has the server of the current connection answered, and lacks nothing? */
bool
session_is_synced(void)
{
	bool		checked = session.checked || ZK_MUTATED(ZK_SYNC_UNANSWERED) ||
		(ZK_MUTATED(ZK_SYNC_OF_BEFORE) && current.probed);

	return client.connected && checked &&
		features.next == PROBE_NONE && features.missing == 0;
}

/* Would session_flush() send what is submitted now? */
bool
session_ready(void)
{
	return session_is_synced() && !flight_is_out() &&
		zk_now_ms() >= flight.resend_ms;
}

/*
 * session_flush
 *		Send what has been submitted, if no flight is out and there is a
 *		connection.  To be called after events have been handled.
 *
 * Returns when to call it again, as of zk_now_ms(), or 0.
 */
int64
session_flush(void)
{
	static const Request sync_check = {.kind = REQUEST_CHECK,.path = "/"};
	int64		now_ms = zk_now_ms();
	int64		again_ms;

	if (client.handle == NULL)
		return 0;
	again_ms = lease_turn(&session.lease, lease_timeout_ms(), now_ms);
	if (!client.connected || flight_is_out())
		return again_ms;
	if (now_ms < flight.resend_ms)
		return zk_earlier(again_ms, flight.resend_ms);
	if (!session.checked)
		flight_send_alone(OURSELVES, &sync_check);
	else if (features.next != PROBE_NONE)
		flight_send_alone(OURSELVES, &probes[features.next].request);
	if (session_is_synced())
		flight_send(now_ms);
	return again_ms;
}

/*
 * session_keep_lease
 *		Publish the lease, and submit a heartbeat if none is out and one is
 *		due: because a ticket is not proved yet, or because a lease is needed
 *		and the latest proof is old.
 *
 * Returns when to call it again, as of zk_now_ms(), or 0.
 */
int64
session_keep_lease(bool needed)
{
	Request		check = {.kind = REQUEST_CHECK,.path = "/",.serial = proof_asked()};
	int64		until = session.lease.until;
	int64		due_ms;

	if (!ZK_HAS_LEASE)
		until = Min(until, 1);
	if (until != lease_read_ms() || session.proved_ticket != proof_latest())
		lease_write(until, session.proved_ticket);
	if (!client.connected || session.heartbeat != NULL)
		return 0;
	if (check.serial == session.proved_ticket)
	{
		if (!needed)
			return 0;
		due_ms = lease_heartbeat_at(&session.lease, lease_timeout_ms());
		if (zk_now_ms() < due_ms)
			return due_ms;
	}
	session.heartbeat = flight_submit(OURSELVES, &check);
	return 0;
}

/* The server lacks what zklock needs. */
static void
fill_unfit(uint32 missing, SessionEvent *event)
{
	event->kind = SESSION_UNFIT;
	event->missing = missing;
	memset(&features, 0, sizeof(features)); /* the next one may have it */
}

/* The sync check has been answered, or has failed. */
static void
end_sync_check(int code, SessionEvent *event)
{
	if (client.connected && client_is_leaders(code))
	{
		session.silent_connections = 0;
		session.checked = true;
		return;
	}
	if (client.connected && code == ZUNIMPLEMENTED)
	{
		fill_unfit(1 << ZK_FEATURE_MULTI, event);
		return;
	}
	flight_hold_back();

	/* the library only logs that the server closes the connection */
	if (code == ZSESSIONCLOSEDREQUIRESASLAUTH)
	{
		event->kind = SESSION_MESSAGE;
		event->message = REASON_UNWELCOME;
	}
}

static void
end_heartbeat(bool proof)
{
	if (proof)
		session.proved_ticket = session.heartbeat->request.serial;
	else
		flight_hold_back();
	session.heartbeat = NULL;
}

/*
 * Does an answer prove the session alive, since the leader has processed the
 * write?  That to a sync check need not.
 */
static bool
take_proof(const Operation *op)
{
	RequestKind kind = op->request.kind;
	int64		sent_ms = ZK_MUTATED(ZK_LATE_ANSWER_PROVES) ? zk_now_ms() :
		flight.sent_ms;

	if (!client_is_leaders(op->answer.error) ||
		(op != session.heartbeat && !operation_creates(op) &&
		 kind != REQUEST_SET && kind != REQUEST_DELETE &&
		 kind != REQUEST_DELETE_ORPHAN))
		return false;
	if (client.connected && sent_ms != session.lease.last_sent)
		lease_prove(&session.lease, lease_timeout_ms(), sent_ms, zk_now_ms());
	return true;
}

/* A request of ours has been answered. */
static void
end_own_request(const Operation *op, bool proof, SessionEvent *event)
{
	if (!operation_is_check(op))
		end_probe(op);
	else if (op == session.heartbeat)
		end_heartbeat(proof);
	else
		end_sync_check(op->answer.error, event);
}

/* Call the handler of an owner, if it is still there. */
static void
tell_owner(uint32 id, const RequestAnswer *answer)
{
	Owner	   *owner = hash_search(owners, &id, HASH_FIND, NULL);

	if (owner)
		owner->handler(owner->data, answer);
}

static void
deliver_answer(Operation *op, SessionEvent *event)
{
	bool		proof = take_proof(op);

	if (op->owner == OURSELVES)
		end_own_request(op, proof, event);
	else
	{
		changed |= proof && op->owner != unmarked_owner;
		if (op->request.kind != REQUEST_DELETE_ORPHAN &&
			op->request.kind != REQUEST_UNWATCH)
			tell_owner(op->owner, &op->answer);
	}
	flight_forget(op);
}

/*
 * There is a new connection.  First our credentials are sent, if the library
 * does not have them yet (it rejects them without a connection).
 */
static void
begin_connection(void)
{
	zhandle_t  *handle = client.handle;

	client_enter_library();
	while (session.next_auth[0] != '\0' &&
		   zoo_add_auth(handle, "digest", session.next_auth,
						strlen(session.next_auth), NULL, NULL) == ZOK)
		session.next_auth += strlen(session.next_auth) + 1;
	client_leave_library();
	client.connected = true;
	flight.resend_ms = 0;

	/* a shorter timeout counts from when the server learns of it */
	if (current.first_timeout == 0 ||
		current.first_timeout > zoo_recv_timeout(handle))
	{
		current.first_timeout = zoo_recv_timeout(handle);
		lease_forget(&session.lease);
	}
}

/* What grants such a session is no ZooKeeper server: let a new worker try. */
static void
check_granted(void)
{
	int			timeout_ms = zoo_recv_timeout(client.handle);
	int64_t		client_id = zoo_client_id(client.handle)->client_id;

	if (timeout_ms >= MIN_GRANTED_TIMEOUT_MS &&
		timeout_ms <= MAX_GRANTED_TIMEOUT_MS && client_id != 0)
		return;
	ereport(FATAL,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("ZooKeeper granted an invalid session"),
			 errdetail("The session ID is 0x%llx, the timeout %d ms.",
					   (unsigned long long) client_id, timeout_ms),
			 errhint("Check that all of \"zklock.servers\" are ZooKeeper servers.")));
}

/*
 * Is this a change of the handle's state that matters?  A server may report
 * any state; the library knows whether a session has really ended.
 */
static bool
is_change(int state)
{
	if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)
		return zoo_state(client.handle) == state;
	return state == ZOO_CONNECTED_STATE || state == ZOO_CONNECTING_STATE ||
		state == ZOO_ASSOCIATING_STATE;
}

/* The connection is lost, and possibly the session. */
static void
end_connection(void)
{
	if (client.connected)
		session.silent_connections++;
	client.connected = false;
	session.checked = false;
	flight_disconnect();
	lease_disconnect(&session.lease);
}

static void
fill_state(int state, SessionEvent *event)
{
	if (!is_change(state))
		return;
	if (state == ZOO_CONNECTED_STATE)
	{
		check_granted();
		begin_connection();
		event->kind = SESSION_UP;
		return;
	}
	end_connection();
	if (state == ZOO_EXPIRED_SESSION_STATE)
		event->kind = SESSION_EXPIRED;
	else if (state == ZOO_AUTH_FAILED_STATE)
		event->kind = SESSION_AUTH_FAILED;
	else
		event->kind = SESSION_SUSPENDED;
}

/* Handle an event of the client that is no answer. */
static void
take_notice(const ClientEvent *client_event, SessionEvent *event)
{
	int			code = client_event->code;

	switch (client_event->kind)
	{
		case CLIENT_EVENT_STATE:
			fill_state(code, event);
			break;
		case CLIENT_EVENT_MESSAGE:
			event->kind = SESSION_MESSAGE;
			event->message = pstrdup(client_event->string);
			break;
		case CLIENT_EVENT_CLOSED:
			flight_forget_out();
			if (code != 0)
				event->kind = SESSION_FAILED;
			event->error = code;
			break;
		case CLIENT_EVENT_WATCH:
			flight_fire(client_event->string, code);
			break;
		case CLIENT_EVENT_ANSWER:
			break;				/* handled by deliver_answer() */
	}
}

/* Exclude the changes of this owner from session_take_changes(). */
void
session_ignore_changes(uint32 owner)
{
	unmarked_owner = owner;
}

/* Has a change been acknowledged since the last call? */
bool
session_take_changes(void)
{
	bool		result = changed;

	changed = false;
	return result;
}

/*
 * session_reset_wake
 *		Make the file descriptor of session_init() readable for later events
 *		only; to be called before taking all that there are.
 */
void
session_reset_wake(void)
{
	uint64_t	count;

	if (read(client.wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		elog(ERROR, "could not read from eventfd: %m");
}

/*
 * session_next_event
 *		Deliver answers and watches to their owners, up to the next event;
 *		false if there is none.
 *
 * What the event points to is in the current memory context.  After
 * SESSION_EXPIRED, SESSION_AUTH_FAILED and SESSION_UNFIT the caller must call
 * session_close() before it submits anything.  A handler may close the session
 * as its last action.
 *
 * Errors: 53200 if a callback was out of memory, so that an event is lost;
 * FATAL if the library has aborted; those of handlers.  Then the worker must
 * end, and the next one read everything again.
 */
bool
session_next_event(SessionEvent *event)
{
	ClientEvent *client_event;
	RequestAnswer answer;
	uint32		owner;

	memset(event, 0, sizeof(*event));
	while (event->kind == SESSION_NOTHING)
	{
		while (flight_next_fired(&owner, &answer))
			tell_owner(owner, &answer);
		client_event = client_next_event();
		if (client_event == NULL)
			break;
		if (client_event->kind == CLIENT_EVENT_ANSWER)
		{
			Operation  *op = flight_take_answer((Operation *) client_event);

			if (op)
				deliver_answer(op, event);
			continue;
		}
		take_notice(client_event, event);
		client_free_notice(client_event);
	}
	if (event->kind == SESSION_NOTHING && session.checked &&
		features.next == PROBE_NONE && features.missing != 0)
		fill_unfit(features.missing, event);
	return event->kind != SESSION_NOTHING;
}

/*
 * session_is_stuck
 *		Were several connections in a row lost without an answer, or does a
 *		TLS handshake hang?
 *
 * On each connection the library sets all watches again, in one request, which
 * may be too long for the server.  Only a new process is without them.
 */
bool
session_is_stuck(void)
{
	return session.silent_connections >= MAX_SILENT_CONNECTIONS ||
		client_hangs();
}

/* ZooKeeper's text for an error code. */
const char *
session_error_text(int error)
{
	return zerror(error);
}

/*
 * session_error_is_access, session_error_is_no_node, session_error_is_untried
 *		The kind of a refusal.  The last one: another operation of the group
 *		has failed.
 */
bool
session_error_is_access(int error)
{
	return error == ZNOAUTH || error == ZINVALIDACL || error == ZAUTHFAILED;
}

bool
session_error_is_no_node(int error)
{
	return error == ZNONODE;
}

bool
session_error_is_untried(int error)
{
	return error == ZRUNTIMEINCONSISTENCY;
}

/* Begin with what the previous worker published and presented. */
void
status_attach(void)
{
	auths = session_auths();
	session_read(&current);
	current.worker_pid = MyProcPid;
	status_publish(ZK_SESSION_CONNECTING);
}

void
status_detach(void)
{
	current.worker_pid = 0;
	current.server[0] = '\0';
	status_publish(ZK_SESSION_DOWN);
}

/*
 * status
 *		The state of the session, as published, or to be published next by
 *		status_publish() or session_write(), which is up to lifecycle.c.
 */
ZkSessionInfo *
status(void)
{
	return &current;
}

/* Is there a session, as far as we know? */
bool
status_is_alive(void)
{
	return current.key.client_id != 0;
}

bool
status_is_connected(void)
{
	return current.state == ZK_SESSION_CONNECTED;
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
	ZkSessionInfo *info = &current;

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

/* The address of the server. */
static void
fill_server(char server[ZK_SERVER_SIZE])
{
	struct sockaddr_storage address;
	socklen_t	size = sizeof(address);
	char		host[NI_MAXHOST];
	char		port[NI_MAXSERV];

	if (zookeeper_get_connected_host(client.handle,
									 (struct sockaddr *) &address,
									 &size) != NULL &&
		getnameinfo((struct sockaddr *) &address, size, host, sizeof(host),
					port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(server, ZK_SERVER_SIZE,
				 strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	else
		strlcpy(server, "unknown address", ZK_SERVER_SIZE);
}

/*
 * status_set_up
 *		Note, but do not publish yet, which session is connected, and to which
 *		server; after SESSION_UP.  Returns whether it is a new one.
 */
bool
status_set_up(void)
{
	ZkSessionInfo *info = &current;
	zhandle_t  *handle = client.handle;
	const clientid_t *id = zoo_client_id(handle);
	bool		is_new = info->key.client_id != id->client_id;

	if (is_new)
		info->sessions++;
	else
	{
		info->reconnects++;
		info->missing &= ~(1 << ZK_FEATURE_RESUME);
	}
	info->key.client_id = id->client_id;
	memcpy(info->key.passwd, id->passwd, sizeof(info->key.passwd));
	info->timeout = zoo_recv_timeout(handle);
	fill_server(info->server);
	return is_new;
}

/* The session is to be closed: the server stops, and nothing is held. */
void
status_set_closing(void)
{
	closing = true;
}

/*
 * status_set_error
 *		Note, but do not publish yet, why there is no connection.  Returns
 *		false if that was noted before.
 */
bool
status_set_error(const char *error)
{
	ZkSessionInfo *info = &current;

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

/* The chroot of the session, whether open yet or not. */
const char *
status_chroot(void)
{
	return is_settled() ? current.chroot : chroot_of(zklock_servers);
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
		strcmp(current.chroot, chroot_of(zklock_servers)) != 0;
}

/*
 * zklock.servers as the client library wants it, palloc'd, without the chroot.
 * It knows no brackets, and takes what follows the last colon for the port.
 */
static char *
servers_for_library(void)
{
	char	   *servers = pstrdup(zklock_servers);
	char	   *end = servers;

	for (const char *c = zklock_servers; *c != '\0' && *c != '/'; c++)
		if (*c != '[' && *c != ']')
			*end++ = *c;
	*end = '\0';
	return servers;
}

/*
 * session_open
 *		Begin to connect: to "other", a session to be closed, unless that is
 *		NULL; else to the session that is published, or to a new one.
 *
 * The session must be closed, and auths_collect() have been called.
 * SESSION_FAILED is delivered if the library cannot begin (for example, cannot
 * resolve any server's name); SESSION_MESSAGE may explain it.  Errors: as for
 * client_open().
 */
void
session_open(const SessionKey *other)
{
	ZkSessionInfo *info = &current;
	bool		resumes = other == NULL && status_is_alive();
	int64		now_ms = zk_now_ms();

	if (!is_settled())
		strlcpy(info->chroot, chroot_of(zklock_servers), sizeof(info->chroot));
	flight.chroot_len = strlen(info->chroot);
	session.next_auth = auths;

	/* a shorter timeout counts from when the server learns of it */
	if (resumes && zklock_session_timeout < info->timeout)
		lease_shorten(now_ms + zklock_session_timeout -
					  zklock_session_timeout / 20);
	lease_begin(&session.lease, now_ms);
	session.lease.until = resumes ? lease_read_ms() : 0;
	if (!resumes)
		info->first_timeout = 0;
	session.proved_ticket = proof_latest();
	if (resumes && info->probed)
		features.next = PROBE_NONE;
	client_open(psprintf("%s%s", servers_for_library(), info->chroot),
				other ? other : &info->key, tls_files(), sasl_params());
}

/* Is the session to end, so that no contender is begun? */
bool
status_is_ending(void)
{
	return closing || status_chroot_changed();
}

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

	memmove(auth, auth + len, auths + ZK_AUTHS_SIZE - (auth + len));
}

/*
 * auths_collect
 *		Add zklock.auth to the credentials to be presented; the others are
 *		dropped if there is no session, or if they are not needed because
 *		there are no contenders.
 */
void
auths_collect(bool needed)
{
	size_t		need = strlen(zklock_auth) + 1;
	char	   *end = auths;

	if (!status_is_alive() || !needed)
		memset(auths, 0, ZK_AUTHS_SIZE);
	if (zklock_auth[0] != '\0' && find_auth(zklock_auth) == NULL)
	{
		for (;;)
		{
			for (end = auths; end[0] != '\0'; end += strlen(end) + 1)
				;
			if (end + need < auths + ZK_AUTHS_SIZE)
				break;
			forget_auth(auths); /* the oldest of many */
		}
		memcpy(end, zklock_auth, need);
		end[need] = '\0';
	}
}

/* Does the session present more than one credential? */
bool
auths_are_several(void)
{
	return auths[0] != '\0' && auths[strlen(auths) + 1] != '\0';
}

/* Does the session present credentials that are not zklock.auth's? */
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

/* ZooKeeper has refused zklock.auth: the next worker presents the others. */
void
auths_forget_refused(void)
{
	char	   *refused = find_auth(zklock_auth);

	if (refused != NULL)
		forget_auth(refused);
}
