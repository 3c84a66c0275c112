/*-------------------------------------------------------------------------
 *
 * library.c
 *		libzookeeper_mt's calls: handles, their requests and watches, as the
 *		library's source has them.
 *
 * What the library's IO thread does is done here when it happens: it reads and
 * writes nothing of zklock's.  The completion thread is a task of the process,
 * which calls zklock back, in the order in which the IO thread has heard.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/library.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "zookeeper.h"

const int	ZOO_PERM_READ = 1;
const int	ZOO_PERM_ALL = 31;
const int	ZOO_PERSISTENT = 0;
const int	ZOO_EPHEMERAL = 1;
const int	ZOO_PERSISTENT_SEQUENTIAL = 2;
const int	ZOO_EPHEMERAL_SEQUENTIAL = 3;
const int	ZOO_CONTAINER = 4;
const int	ZOO_EXPIRED_SESSION_STATE = -112;
const int	ZOO_AUTH_FAILED_STATE = -113;
const int	ZOO_CONNECTING_STATE = 1;
const int	ZOO_ASSOCIATING_STATE = 2;
const int	ZOO_CONNECTED_STATE = 3;
const int	ZOO_READONLY_STATE = 5;
const int	ZOO_NOTCONNECTED_STATE = 999;
const int	ZOO_CREATED_EVENT = 1;
const int	ZOO_DELETED_EVENT = 2;
const int	ZOO_CHANGED_EVENT = 3;
const int	ZOO_CHILD_EVENT = 4;
const int	ZOO_SESSION_EVENT = -1;
struct Id	ZOO_ANYONE_ID_UNSAFE = {"world", "anyone"};
struct Id	ZOO_AUTH_IDS = {"auth", ""};
static struct ACL open_acl[] = {{31, {"world", "anyone"}}};
static struct ACL creator_acl[] = {{31, {"auth", ""}}};
struct ACL_vector ZOO_OPEN_ACL_UNSAFE = {1, open_acl};
struct ACL_vector ZOO_CREATOR_ALL_ACL = {1, creator_acl};

typedef enum CallKind
{
	CALL_VOID,
	CALL_STRING,
	CALL_STRING_STAT,
	CALL_STAT,
	CALL_DATA,
	CALL_STRINGS,
	CALL_ACL,
	CALL_MULTI,
	CALL_NONE					/* the library's own */
} CallKind;

/* A request under way, and what to call when it is answered. */
typedef struct Call
{
	struct Call *next;
	CallKind	kind;
	void		(*function) (void);
	const void *data;
	Request    *request;
	bool		tries;			/* the connection: a sync check */
	bool		sent;
	watcher_fn	watcher;
	void	   *context;
	zoo_op_result_t *results;	/* of a multi */
	const zoo_op_t *ops;
	char	  **buffers;		/* of a multi: where paths go, and stats */
	int		   *sizes;
	struct Stat **stats;
	int			err;			/* when it is done */
	Reply	   *reply;			/* the same, or NULL */
} Call;

/* A watch that is set. */
typedef struct Watch
{
	struct Watch *next;
	const char *path;
	int			kind;			/* 0: data, 1: existence, 2: children */
	watcher_fn	watcher;
	void	   *context;
} Watch;

/* What the completion thread is to deliver. */
typedef struct Delivery
{
	struct Delivery *next;
	Call	   *call;			/* or NULL: an event */
	int			type;
	int			state;
	const char *path;
	Watch	   *watches;		/* to be told */
} Delivery;

struct _zhandle
{
	Process    *process;
	Instance   *instance;
	bool		checking;		/* a sync check is being sent */
	const Call *sync_check;		/* the first of this connection, while it is not
								 * answered; or NULL */
	bool		checked;		/* it has been answered */
	bool		dead;			/* its process is */
	int			state;
	watcher_fn	watcher;		/* of the session */
	void	   *context;
	log_callback_fn log;
	int			asked_timeout_ms;
	int			timeout_ms;
	clientid_t	id;
	int64_t		last_zxid;
	int64_t		mark;			/* of the latest answered write of the instance's
								 * own znode */
	uint32_t	xid;

	int			order[MAX_SERVERS]; /* of the addresses */
	int			norder;
	int			next_address;
	Connection *connection;
	bool		handshake;		/* the connect request is out */
	uint64_t	attempt;		/* counts connections */
	int64_t		heard_at;		/* of the machine's clock */
	int64_t		sent_at;
	uint64_t	timer;			/* number of the latest */

	Call	   *calls;			/* in order */
	Call	  **calls_end;
	Watch	   *watches;
	Delivery   *deliveries;
	Delivery  **deliveries_end;
	Task	   *completion;		/* thread */
	int64_t		late_until;		/* it delivers nothing before */
	int			calls_left;		/* until it hangs; 0: it does not */
	int64_t		hang_until;		/* no later */
	bool		closing;
	bool		completing;		/* the thread is in a callback */
	Task	   *closer;
	zhandle_t  *next;
};

static zhandle_t *handles;

static void lose_connection(zhandle_t *zh, int reason);
static void try_next(zhandle_t *zh);

const char *
zerror(int code)
{
	static char text[32];

	snprintf(text, sizeof(text), "error %d", code);
	return text;
}

/*
 * The completion thread.
 */
static void
add_delivery(zhandle_t *zh, Delivery delivery)
{
	Delivery   *copy = sim_alloc(sizeof(Delivery));

	*copy = delivery;
	*zh->deliveries_end = copy;
	zh->deliveries_end = &copy->next;
	task_wake(zh->completion);
}

static void
fill_results(Call *call)
{
	const Reply *reply = call->reply;

	for (int i = 0; i < call->request->nops; i++)
	{
		const Reply *result = reply && reply->nresults > i ?
			&reply->results[i] : NULL;

		call->results[i].err = result ? result->err : call->err;
		if (result == NULL || result->err != ZOK || call->err != ZOK)
			continue;
		if (call->buffers[i] != NULL && result->path != NULL)
			snprintf(call->buffers[i], call->sizes[i], "%s", result->path);
		if (call->stats[i] != NULL)
			*call->stats[i] = result->stat;
	}
}

static void
call_back(Call *call)
{
	const Reply *reply = call->reply;
	int			err = call->err;
	const struct Stat *stat = err == ZOK && reply ? &reply->stat : NULL;
	struct String_vector strings;
	struct ACL_vector acl = ZOO_OPEN_ACL_UNSAFE;

	if (call->function == NULL)
		return;
	switch (call->kind)
	{
		case CALL_VOID:
			((void_completion_t) call->function) (err, call->data);
			break;
		case CALL_STRING:
			((string_completion_t) call->function)
				(err, err == ZOK ? reply->path ? reply->path :
				 call->request->path : NULL, call->data);
			break;
		case CALL_STRING_STAT:
			((string_stat_completion_t) call->function)
				(err, err == ZOK ? reply->path : NULL, stat, call->data);
			break;
		case CALL_STAT:
			((stat_completion_t) call->function) (err, stat, call->data);
			break;
		case CALL_DATA:
			((data_completion_t) call->function)
				(err, err == ZOK ? reply->data : NULL,
				 err == ZOK ? reply->len : 0, stat, call->data);
			break;
		case CALL_STRINGS:
			strings.count = err == ZOK ? reply->nchildren : 0;
			strings.data = err == ZOK ? (char **) reply->children : NULL;
			((strings_completion_t) call->function)
				(err, err == ZOK ? &strings : NULL, call->data);
			break;
		case CALL_ACL:
			((acl_completion_t) call->function)
				(err, err == ZOK ? &acl : NULL, (struct Stat *) stat,
				 call->data);
			break;
		case CALL_MULTI:
			fill_results(call);
			((void_completion_t) call->function) (err, call->data);
			break;
		case CALL_NONE:
			break;
	}
}

/* Does it write an instance's own znode? */
static bool
is_mark(const Request *request)
{
	return request->kind == REQUEST_SET &&
		strstr(request->path, "/%clusters/") != NULL;
}

static void
deliver_next(zhandle_t *zh)
{
	Delivery   *delivery = zh->deliveries;

	zh->deliveries = delivery->next;
	if (zh->deliveries == NULL)
		zh->deliveries_end = &zh->deliveries;
	if (delivery->call != NULL)
	{
		call_back(delivery->call);
		if (delivery->call->err == ZOK && is_mark(delivery->call->request))
			zh->mark = delivery->call->reply->stat.mzxid;
		return;
	}
	if (delivery->type == ZOO_SESSION_EVENT)
		zh->watcher(zh, delivery->type, delivery->state, "", zh->context);
	for (Watch *watch = delivery->watches; watch; watch = watch->next)
		watch->watcher(zh, delivery->type, delivery->state, delivery->path,
					   watch->context);
}

static void
completion_thread(void *arg)
{
	zhandle_t  *zh = arg;

	while (!zh->closing)
	{
		if (zh->deliveries == NULL)
		{
			(void) sim_wait(SIM_NEVER);
			continue;
		}
		sim_yield();
		while (sim_now() < zh->late_until)
			(void) sim_wait(zh->late_until);
		if (!zh->closing)
			deliver_next(zh);
	}
	zh->completion = NULL;
	task_wake(zh->closer);
}

static void
session_event(zhandle_t *zh, int state)
{
	Delivery	event = {.type = ZOO_SESSION_EVENT,.state = state};

	/* all watches are told, and stay */
	for (Watch *watch = zh->watches; watch; watch = watch->next)
	{
		Watch	   *copy = sim_alloc(sizeof(Watch));

		*copy = *watch;
		copy->next = event.watches;
		event.watches = copy;
	}
	event.path = "";
	add_delivery(zh, event);
}

/*
 * Watches.
 */
static void
activate_watch(zhandle_t *zh, const Call *call, int err)
{
	int			kind;
	Watch	   *watch;

	if (call->watcher == NULL)
		return;
	if (call->request->kind == REQUEST_EXISTS && err == ZNONODE)
		kind = 1;
	else if (err != ZOK)
		return;
	else
		kind = call->request->kind == REQUEST_CHILDREN ? 2 : 0;
	for (watch = zh->watches; watch; watch = watch->next)
		if (watch->kind == kind && watch->watcher == call->watcher &&
			watch->context == call->context &&
			strcmp(watch->path, call->request->path) == 0)
			return;
	watch = sim_keep(sizeof(Watch));
	watch->path = sim_keep_bytes(call->request->path,
								 strlen(call->request->path));
	watch->kind = kind;
	watch->watcher = call->watcher;
	watch->context = call->context;
	watch->next = zh->watches;
	zh->watches = watch;
}

/* Take the watches of these kinds off the tables. */
static Watch *
take_watches(zhandle_t *zh, const char *path, int kinds)
{
	Watch	   *taken = NULL;
	Watch	  **place = &zh->watches;

	while (*place != NULL)
	{
		Watch	   *watch = *place;

		if ((kinds >> watch->kind & 1) && strcmp(watch->path, path) == 0)
		{
			*place = watch->next;
			watch->next = taken;
			taken = watch;
		}
		else
			place = &watch->next;
	}
	return taken;
}

static int
kinds_of_type(int wtype)
{
	return (wtype & ZWATCHTYPE_DATA ? 3 : 0) | (wtype & ZWATCHTYPE_CHILD ? 4 : 0);
}

static bool
has_watch(const zhandle_t *zh, const char *path, int kinds)
{
	for (const Watch *watch = zh->watches; watch; watch = watch->next)
		if ((kinds >> watch->kind & 1) && strcmp(watch->path, path) == 0)
			return true;
	return false;
}

/*
 * Timers: pings, and a server that is silent.
 */
typedef struct Timer
{
	zhandle_t  *zh;
	uint64_t	number;
} Timer;

static void set_timer(zhandle_t *zh);

static void
send_request(zhandle_t *zh, Request *request)
{
	zh->sent_at = sim_boottime(zh->instance);
	connection_send(zh->connection, request);
}

/* When the IO thread must look again, as of the machine's clock. */
static int64_t
due_at(const zhandle_t *zh)
{
	int64_t		timeout = zh->timeout_ms * INT64_C(1000);
	int64_t		silent_at = zh->heard_at + timeout * 2 / 3;
	int64_t		ping_at = zh->sent_at + timeout / 3;

	if (zh->state != ZOO_CONNECTED_STATE)
		return zh->heard_at + timeout / 3;
	return silent_at < ping_at ? silent_at : ping_at;
}

static void
timer_event(void *arg)
{
	Timer	   *timer = arg;
	zhandle_t  *zh = timer->zh;
	int64_t		now;
	int64_t		timeout = zh->timeout_ms * INT64_C(1000);

	if (zh->dead || zh->timer != timer->number || zh->connection == NULL)
		return;
	if (process_is_frozen(zh->process))
	{
		sim_at(process_frozen_until(zh->process), timer_event, timer);
		return;
	}
	now = sim_boottime(zh->instance);
	if (now < due_at(zh))
	{
		set_timer(zh);
		return;
	}
	if (zh->state != ZOO_CONNECTED_STATE ||
		now - zh->heard_at >= timeout * 2 / 3)
	{
		lose_connection(zh, ZOPERATIONTIMEOUT);
		return;
	}
	{
		Request    *ping = sim_alloc(sizeof(Request));

		ping->kind = REQUEST_PING;
		ping->session = zh->id.client_id;
		send_request(zh, ping);
	}
	set_timer(zh);
}

static void
set_timer(zhandle_t *zh)
{
	Timer	   *timer = sim_alloc(sizeof(Timer));

	timer->zh = zh;
	timer->number = ++zh->timer;
	sim_at(sim_true_time(zh->instance, due_at(zh)), timer_event, timer);
}

/*
 * The connection.
 */
static void
finish_call(zhandle_t *zh, Call *call, int err, Reply *reply)
{
	call->err = err;
	call->reply = reply;
	if (call->kind != CALL_NONE)
		add_delivery(zh, (Delivery) {.call = call});
}

/* All that is under way is answered so. */
static void
finish_all(zhandle_t *zh, int err)
{
	Call	   *call = zh->calls;

	zh->calls = NULL;
	zh->calls_end = &zh->calls;
	while (call != NULL)
	{
		Call	   *next = call->next;

		finish_call(zh, call, err, NULL);
		call = next;
	}
}

static void
try_later(void *arg)
{
	Timer	   *timer = arg;
	zhandle_t  *zh = timer->zh;

	if (zh->dead || zh->closing || zh->attempt != timer->number)
		return;
	if (process_is_frozen(zh->process))
	{
		sim_at(process_frozen_until(zh->process), try_later, timer);
		return;
	}
	try_next(zh);
}

static void
schedule_attempt(zhandle_t *zh, int64_t us)
{
	Timer	   *timer = sim_alloc(sizeof(Timer));

	timer->zh = zh;
	timer->number = ++zh->attempt;
	sim_at(sim_now() + us, try_later, timer);
}

static void
log_line(zhandle_t *zh, const char *line)
{
	sim_trace("library of %s: %s",
			  instance_cluster_name(zh->instance), line);
}

/* The connection, or an attempt at one, has failed: handle_error(). */
static void
lose_connection(zhandle_t *zh, int reason)
{
	bool		was_connected = zh->state == ZOO_CONNECTED_STATE;
	int64_t		resolve_us;

	log_line(zh, reason == ZSESSIONEXPIRED ? "the session has expired" :
			 reason == ZOPERATIONTIMEOUT ? "timed out" : "lost the connection");
	if (zh->connection != NULL)
		connection_close(zh->connection);
	zh->connection = NULL;
	zh->handshake = false;
	if (zh->state < 0)
		session_event(zh, zh->state);
	else if (was_connected)
		session_event(zh, ZOO_CONNECTING_STATE);
	finish_all(zh, reason);
	if (zh->state < 0 || zh->closing)
		return;
	zh->state = ZOO_NOTCONNECTED_STATE;
	zh->next_address++;
	resolve_us = sim_between(0, instance_resolver(zh->instance));
	check_slow(resolve_us);
	schedule_attempt(zh, resolve_us +
					 (zh->next_address % zh->norder == 0 ?
					  zh->timeout_ms * INT64_C(1000) / 60 : 100));
}

/* A connection is refused, or comes to a server. */
static void
connected(void *arg)
{
	Timer	   *timer = arg;
	zhandle_t  *zh = timer->zh;
	Request    *request;

	if (zh->dead || zh->closing || zh->attempt != timer->number)
		return;
	if (process_is_frozen(zh->process))
	{
		sim_at(process_frozen_until(zh->process), connected, timer);
		return;
	}
	zh->connection = connection_new(zh->order[zh->next_address % zh->norder], zh);
	if (zh->connection == NULL)
	{
		lose_connection(zh, ZCONNECTIONLOSS);
		return;
	}
	zh->state = ZOO_ASSOCIATING_STATE;
	zh->handshake = true;
	zh->heard_at = sim_boottime(zh->instance);
	request = sim_alloc(sizeof(Request));
	request->kind = REQUEST_CONNECT;
	request->session = zh->id.client_id;
	memcpy(request->passwd, zh->id.passwd, 16);
	request->timeout_ms = zh->asked_timeout_ms;
	request->last_zxid = zh->last_zxid;
	send_request(zh, request);
	set_timer(zh);
}

static void
try_next(zhandle_t *zh)
{
	Timer	   *timer = sim_alloc(sizeof(Timer));
	int			server = zh->order[zh->next_address % zh->norder];
	int64_t		us = network_delay();

	zh->state = ZOO_CONNECTING_STATE;
	if (network_is_cut(server, instance_number(zh->instance)))
		us = zh->timeout_ms * INT64_C(1000) / 3;
	timer->zh = zh;
	timer->number = ++zh->attempt;
	sim_at(sim_now() + us, connected, timer);
}

static void
set_watches_again(zhandle_t *zh)
{
	Request    *request;
	int			n[3] = {0, 0, 0};

	if (zh->watches == NULL)
		return;
	request = sim_alloc(sizeof(Request));
	request->kind = REQUEST_SET_WATCHES;
	request->session = zh->id.client_id;
	request->last_zxid = zh->last_zxid;
	for (Watch *watch = zh->watches; watch; watch = watch->next)
		n[watch->kind]++;
	for (int kind = 0; kind < 3; kind++)
		request->watches[kind] = sim_alloc((n[kind] + 1) * sizeof(char *));
	for (Watch *watch = zh->watches; watch; watch = watch->next)
	{
		bool		known = false;

		for (int i = 0; i < request->nwatches[watch->kind]; i++)
			known |= strcmp(request->watches[watch->kind][i], watch->path) == 0;
		if (!known)
			request->watches[watch->kind][request->nwatches[watch->kind]++] =
				watch->path;
	}
	send_request(zh, request);
}

static void
end_handshake(zhandle_t *zh, const Reply *reply)
{
	zh->handshake = false;
	zh->sync_check = NULL;
	zh->checked = false;
	if (reply->session == 0 ||
		(zh->id.client_id != 0 && reply->session != zh->id.client_id))
	{
		zh->state = ZOO_EXPIRED_SESSION_STATE;
		lose_connection(zh, ZSESSIONEXPIRED);
		return;
	}
	zh->id.client_id = reply->session;
	memcpy(zh->id.passwd, reply->passwd, 16);
	zh->timeout_ms = reply->timeout_ms;
	zh->state = ZOO_CONNECTED_STATE;
	zh->connection->session = reply->session;
	sim_trace("library of %s: session %" PRIx64 " at server %d, timeout %d",
			  instance_cluster_name(zh->instance), reply->session,
			  zh->connection->server, reply->timeout_ms);
	set_watches_again(zh);
	session_event(zh, ZOO_CONNECTED_STATE);
	for (Call *call = zh->calls; call; call = call->next)
	{
		call->request->session = zh->id.client_id;
		call->sent = true;
		if (call->tries && zh->sync_check == NULL)
			zh->sync_check = call;
		send_request(zh, call->request);
	}
	set_timer(zh);
}

static void
hear_event(zhandle_t *zh, const Reply *reply)
{
	int			kinds = reply->event == ZOO_CHILD_EVENT ? 4 :
		reply->event == ZOO_DELETED_EVENT ? 7 : 3;

	add_delivery(zh, (Delivery) {
		.type = reply->event,.state = zh->state,.path = reply->path,
		.watches = take_watches(zh, reply->path, kinds)
	});
}

/* The IO thread hears an answer. */
void
library_hear(void *client, Connection *connection, Reply *reply)
{
	zhandle_t  *zh = client;
	Call	   *call;

	if (zh->dead || zh->closing || zh->connection != connection)
		return;
	zh->heard_at = sim_boottime(zh->instance);
	if (zh->handshake)
	{
		end_handshake(zh, reply);
		return;
	}
	if (reply->zxid > 0)
		zh->last_zxid = reply->zxid;
	if (reply->event != 0)
	{
		hear_event(zh, reply);
		return;
	}
	if (reply->kind == REQUEST_PING || reply->kind == REQUEST_SET_WATCHES)
		return;
	call = zh->calls;
	if (call == NULL || call->request->xid != reply->xid)
		sim_violation("simulator", "an answer out of order");
	zh->calls = call->next;
	if (zh->calls == NULL)
		zh->calls_end = &zh->calls;
	if (call == zh->sync_check)
	{
		zh->sync_check = NULL;
		zh->checked = true;
	}
	activate_watch(zh, call, reply->err);
	if (call->request->kind == REQUEST_REMOVE_WATCHES && reply->err == ZOK)
		(void) take_watches(zh, call->request->path,
							kinds_of_type(call->request->watch_type));
	finish_call(zh, call, reply->err, reply);
}

/* The IO thread hears that the connection is closed. */
void
library_lost(void *client, Connection *connection)
{
	zhandle_t  *zh = client;

	if (zh->dead || zh->closing || zh->connection != connection)
		return;
	lose_connection(zh, ZCONNECTIONLOSS);
}

bool
library_is_frozen(const void *client, int64_t *until)
{
	const zhandle_t *zh = client;

	*until = process_frozen_until(zh->process) + 1;
	return !zh->dead && process_is_frozen(zh->process);
}

int
library_instance(const void *client)
{
	return instance_number(((const zhandle_t *) client)->instance);
}

/* A process is gone: the system closes its connections. */
void
library_forget(Process *process)
{
	for (zhandle_t *zh = handles; zh != NULL; zh = zh->next)
		if (zh->process == process && !zh->dead)
		{
			zh->dead = true;
			if (zh->connection != NULL)
				connection_close(zh->connection);
			zh->connection = NULL;
		}
}

/* The completion threads of this instance stand still: callbacks come late. */
void
library_delay(int instance, int64_t us)
{
	for (zhandle_t *zh = handles; zh != NULL; zh = zh->next)
		if (!zh->dead && instance_number(zh->instance) == instance)
			zh->late_until = sim_now() + us;
}

static void
hang(zhandle_t *zh)
{
	lose_connection(zh, ZCONNECTIONLOSS);
	schedule_attempt(zh, zh->hang_until - sim_now());
}

/*
 * One of the instance's sessions loses its connection, now or while its worker
 * calls the library, and the library takes so long to resolve the servers'
 * names again.
 */
void
library_hang(int instance, int64_t us)
{
	zhandle_t  *chosen = NULL;
	int			n = 0;

	for (zhandle_t *zh = handles; zh != NULL; zh = zh->next)
		if (!zh->dead && !zh->closing && zh->state == ZOO_CONNECTED_STATE &&
			instance_number(zh->instance) == instance && sim_below(++n) == 0)
			chosen = zh;
	if (chosen == NULL)
		return;
	chosen->hang_until = sim_now() + us;
	if (sim_chance(500000))
		chosen->calls_left = sim_between(1, 30);
	else
		hang(chosen);
}

/* Watches that the libraries of live processes have below this path. */
int
library_watches(const char *below)
{
	int			n = 0;

	for (zhandle_t *zh = handles; zh != NULL; zh = zh->next)
		for (Watch *watch = zh->dead || zh->closing ? NULL : zh->watches; watch;
			 watch = watch->next)
			n += strncmp(watch->path, below, strlen(below)) == 0;
	return n;
}

/* What its watches would take in the request that sets them again. */
size_t
library_watch_bytes(const zhandle_t *zh)
{
	size_t		bytes = 0;
	bool		ended = zh->state < 0 || zh->closing;

	for (const Watch *watch = ended ? NULL : zh->watches; watch;
		 watch = watch->next)
		bytes += sizeof(int32_t) + strlen(watch->path);
	return bytes;
}

void
library_begin(void)
{
	handles = NULL;
}

/*
 * The library's functions.
 */
zhandle_t *
zookeeper_init2(const char *host, watcher_fn fn, int recv_timeout,
				const clientid_t *clientid, void *context, int flags,
				log_callback_fn log_callback)
{
	zhandle_t  *zh = sim_keep(sizeof(zhandle_t));

	(void) host;
	(void) flags;
	zh->process = sim_process();
	zh->instance = sim_instance();
	if (instance_resolver(zh->instance) > 0)
	{
		check_slow(instance_resolver(zh->instance));
		sim_sleep(instance_resolver(zh->instance));
	}
	zh->state = ZOO_NOTCONNECTED_STATE;
	zh->watcher = fn;
	zh->context = context;
	zh->log = log_callback;
	zh->asked_timeout_ms = zh->timeout_ms = recv_timeout;
	if (clientid != NULL)
		zh->id = *clientid;
	zh->calls_end = &zh->calls;
	zh->deliveries_end = &zh->deliveries;
	zh->norder = ensemble_servers();
	for (int i = 0; i < zh->norder; i++)
	{
		int			j = sim_below(i + 1);

		zh->order[i] = zh->order[j];
		zh->order[j] = i;
	}
	zh->next = handles;
	handles = zh;
	zh->completion = process_new_task(completion_thread, zh);
	schedule_attempt(zh, 1);
	return zh;
}

int
zookeeper_close(zhandle_t *zh)
{
	zh->closing = true;
	zh->closer = sim_task();
	while (zh->completion != NULL)
	{
		task_wake(zh->completion);
		(void) sim_wait(sim_now() + 1000);
	}
	if (zh->state == ZOO_CONNECTED_STATE && zh->connection != NULL)
	{
		Request    *request = sim_alloc(sizeof(Request));

		request->kind = REQUEST_CLOSE;
		request->session = zh->id.client_id;
		send_request(zh, request);
	}
	if (zh->connection != NULL)
		connection_close(zh->connection);
	zh->connection = NULL;
	finish_all(zh, ZCLOSING);
	while (zh->deliveries != NULL)
		deliver_next(zh);
	return ZOK;
}

int
zoo_state(zhandle_t *zh)
{
	return zh->state;
}

int
zoo_recv_timeout(zhandle_t *zh)
{
	return zh->timeout_ms;
}

const clientid_t *
zoo_client_id(zhandle_t *zh)
{
	return &zh->id;
}

struct sockaddr *
zookeeper_get_connected_host(zhandle_t *zh, struct sockaddr *addr,
							 socklen_t *len)
{
	(void) len;
	return zh->connection ? addr : NULL;
}

void
zoo_set_debug_level(ZooLogLevel level)
{
	(void) level;
}

void
zoo_set_log_callback(zhandle_t *zh, log_callback_fn callback)
{
	zh->log = callback;
}

int
zoo_set_servers_resolution_delay(zhandle_t *zh, int delay_ms)
{
	(void) zh;
	(void) delay_ms;
	return ZOK;
}

int
zoo_add_auth(zhandle_t *zh, const char *scheme, const char *cert, int certLen,
			 void_completion_t completion, const void *data)
{
	(void) zh;
	(void) scheme;
	(void) cert;
	(void) certLen;
	(void) completion;
	(void) data;
	sim_lacks("zoo_add_auth()");
}

/* Nothing is sent on a new connection before its sync check is answered. */
static void
check_sync_check(const zhandle_t *zh)
{
	if (zh->sync_check != NULL)
		sim_violation("sync", "instance %d sends a request ahead of the answer to its sync check",
					  instance_number(zh->instance));
}

/* An instance confirms a deadlock: its look at its members is behind it. */
static void
note_confirms(zhandle_t *zh, const Request *request)
{
	const char *name;

	for (int i = 0; i < request->nops; i++)
		note_confirms(zh, &request->ops[i]);
	if (request->kind != REQUEST_CREATE)
		return;
	name = strstr(request->path, "/%waits/");
	if (name != NULL && strncmp(name, "/%waits/ended.", 14) != 0 &&
		strchr(name, '.') != NULL)
		check_confirm(instance_number(zh->instance), request->path);
}

static int
add_call(zhandle_t *zh, CallKind kind, void *function, const void *data,
		 const Request *request, watcher_fn watcher, void *context,
		 Call **result)
{
	Call	   *call;

	if (zh->calls_left > 0 && --zh->calls_left == 0 &&
		zh->state == ZOO_CONNECTED_STATE && sim_now() < zh->hang_until)
		hang(zh);
	if (zh->state < 0)
		return ZINVALIDSTATE;
	note_confirms(zh, request);
	call = sim_alloc(sizeof(Call));
	call->kind = kind;
	call->function = (void (*) (void)) function;
	call->data = data;
	call->watcher = watcher;
	call->context = context;
	call->request = sim_alloc(sizeof(Request));
	*call->request = *request;
	call->request->xid = ++zh->xid;
	if (request->path != NULL)
		call->request->path = sim_strdup(request->path);
	if (request->data != NULL && request->len >= 0)
	{
		char	   *copy = sim_alloc(request->len + 1);

		memcpy(copy, request->data, request->len);
		call->request->data = copy;
	}
	call->request->session = zh->id.client_id;
	*zh->calls_end = call;
	zh->calls_end = &call->next;
	if (result != NULL)
		*result = call;
	if (zh->state == ZOO_CONNECTED_STATE)
	{
		call->sent = true;
		send_request(zh, call->request);
	}
	return ZOK;
}

int
zoo_acreate(zhandle_t *zh, const char *path, const char *value, int valuelen,
			const struct ACL_vector *acl, int mode,
			string_completion_t completion, const void *data)
{
	Request		request = {
		.kind = REQUEST_CREATE,.path = path,.data = value,.len = valuelen,
		.flags = mode
	};

	(void) acl;
	return add_call(zh, CALL_STRING, completion, data, &request, NULL, NULL,
					NULL);
}

int
zoo_acreate2(zhandle_t *zh, const char *path, const char *value, int valuelen,
			 const struct ACL_vector *acl, int mode,
			 string_stat_completion_t completion, const void *data)
{
	Request		request = {
		.kind = REQUEST_CREATE,.path = path,.data = value,.len = valuelen,
		.flags = mode
	};

	(void) acl;
	return add_call(zh, CALL_STRING_STAT, completion, data, &request, NULL,
					NULL, NULL);
}

int
zoo_adelete(zhandle_t *zh, const char *path, int version,
			void_completion_t completion, const void *data)
{
	Request		request = {
		.kind = REQUEST_DELETE,.path = path,.version = version
	};

	return add_call(zh, CALL_VOID, completion, data, &request, NULL, NULL, NULL);
}

int
zoo_aexists(zhandle_t *zh, const char *path, int watch,
			stat_completion_t completion, const void *data)
{
	Request		request = {.kind = REQUEST_EXISTS,.path = path};

	if (watch)
		sim_lacks("the session's watcher for a znode");
	return add_call(zh, CALL_STAT, completion, data, &request, NULL, NULL, NULL);
}

int
zoo_awexists(zhandle_t *zh, const char *path, watcher_fn watcher,
			 void *context, stat_completion_t completion, const void *data)
{
	Request		request = {.kind = REQUEST_EXISTS,.path = path,.watch = true};

	return add_call(zh, CALL_STAT, completion, data, &request, watcher, context,
					NULL);
}

int
zoo_aget(zhandle_t *zh, const char *path, int watch,
		 data_completion_t completion, const void *data)
{
	if (watch)
		sim_lacks("the session's watcher for a znode");
	return zoo_awget(zh, path, NULL, NULL, completion, data);
}

int
zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *context,
		  data_completion_t completion, const void *data)
{
	Request		request = {
		.kind = REQUEST_GET,.path = path,.watch = watcher != NULL
	};

	check_sync_check(zh);
	return add_call(zh, CALL_DATA, completion, data, &request, watcher, context,
					NULL);
}

int
zoo_aget_children(zhandle_t *zh, const char *path, int watch,
				  strings_completion_t completion, const void *data)
{
	if (watch)
		sim_lacks("the session's watcher for a znode");
	return zoo_awget_children(zh, path, NULL, NULL, completion, data);
}

int
zoo_awget_children(zhandle_t *zh, const char *path, watcher_fn watcher,
				   void *context, strings_completion_t completion,
				   const void *data)
{
	Request		request = {
		.kind = REQUEST_CHILDREN,.path = path,.watch = watcher != NULL
	};

	check_sync_check(zh);
	return add_call(zh, CALL_STRINGS, completion, data, &request, watcher,
					context, NULL);
}

int
zoo_aget_acl(zhandle_t *zh, const char *path, acl_completion_t completion,
			 const void *data)
{
	Request		request = {.kind = REQUEST_GET_ACL,.path = path};

	return add_call(zh, CALL_ACL, completion, data, &request, NULL, NULL, NULL);
}

int
zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int buflen,
		 int version, stat_completion_t completion, const void *data)
{
	Request		request = {
		.kind = REQUEST_SET,.path = path,.data = buffer,.len = buflen,
		.version = version
	};

	/* the worker has handled the answer to the one before: see fleet.c */
	if (zh->mark != 0 && is_mark(&request))
		ensemble_mark(zh->id.client_id, zh->mark);
	return add_call(zh, CALL_STAT, completion, data, &request, NULL, NULL, NULL);
}

int
zoo_aset_acl(zhandle_t *zh, const char *path, int version,
			 struct ACL_vector *acl, void_completion_t completion,
			 const void *data)
{
	Request		request = {
		.kind = REQUEST_SET_ACL,.path = path,.version = version
	};

	(void) acl;
	return add_call(zh, CALL_VOID, completion, data, &request, NULL, NULL, NULL);
}

int
zoo_async(zhandle_t *zh, const char *path, string_completion_t completion,
		  const void *data)
{
	Request		request = {.kind = REQUEST_SYNC,.path = path};

	return add_call(zh, CALL_STRING, completion, data, &request, NULL, NULL,
					NULL);
}

int
zoo_aremove_all_watches(zhandle_t *zh, const char *path, ZooWatcherType wtype,
						int local, void_completion_t *completion,
						const void *data)
{
	Request		request = {
		.kind = REQUEST_REMOVE_WATCHES,.path = path,.watch_type = wtype
	};

	if (local)
		sim_lacks("asynchronous removal of watches in the library alone");
	if (zh->state < 0)
		return ZINVALIDSTATE;
	if (!has_watch(zh, path, kinds_of_type(wtype)))
		return ZNOWATCHER;
	return add_call(zh, CALL_VOID, (void *) completion, data, &request, NULL,
					NULL, NULL);
}

int
zoo_remove_all_watches(zhandle_t *zh, const char *path, ZooWatcherType wtype,
					   int local)
{
	if (!local)
		sim_lacks("synchronous removal of watches");
	return take_watches(zh, path, kinds_of_type(wtype)) != NULL ? ZOK :
		ZNOWATCHER;
}

void
zoo_create_op_init(zoo_op_t *op, const char *path, const char *value,
				   int valuelen, const struct ACL_vector *acl, int mode,
				   char *path_buffer, int path_buffer_len)
{
	op->type = REQUEST_CREATE;
	op->create_op.path = path;
	op->create_op.data = value;
	op->create_op.datalen = valuelen;
	op->create_op.acl = acl;
	op->create_op.flags = mode;
	op->create_op.buf = path_buffer;
	op->create_op.buflen = path_buffer_len;
}

void
zoo_delete_op_init(zoo_op_t *op, const char *path, int version)
{
	op->type = REQUEST_DELETE;
	op->delete_op.path = path;
	op->delete_op.version = version;
}

void
zoo_set_op_init(zoo_op_t *op, const char *path, const char *buffer, int buflen,
				int version, struct Stat *stat)
{
	op->type = REQUEST_SET;
	op->set_op.path = path;
	op->set_op.data = buffer;
	op->set_op.datalen = buflen;
	op->set_op.version = version;
	op->set_op.stat = stat;
}

void
zoo_check_op_init(zoo_op_t *op, const char *path, int version)
{
	op->type = REQUEST_CHECK;
	op->check_op.path = path;
	op->check_op.version = version;
}

static void
fill_op(Request *request, const zoo_op_t *op)
{
	request->kind = op->type;
	switch (op->type)
	{
		case REQUEST_CREATE:
			request->path = sim_strdup(op->create_op.path);
			request->flags = op->create_op.flags;
			request->len = op->create_op.datalen;
			if (op->create_op.data != NULL && request->len >= 0)
				request->data = memcpy(sim_alloc(request->len + 1),
									   op->create_op.data, request->len);
			if (request->flags == ZOO_CONTAINER)
				sim_violation("library", "a container in a multi");
			break;
		case REQUEST_DELETE:
			request->path = sim_strdup(op->delete_op.path);
			request->version = op->delete_op.version;
			break;
		case REQUEST_SET:
			request->path = sim_strdup(op->set_op.path);
			request->version = op->set_op.version;
			request->len = op->set_op.datalen;
			if (op->set_op.data != NULL && request->len >= 0)
				request->data = memcpy(sim_alloc(request->len + 1),
									   op->set_op.data, request->len);
			break;
		case REQUEST_CHECK:
			request->path = sim_strdup(op->check_op.path);
			request->version = op->check_op.version;
			break;
	}
}

/* Is it part of the multi that ends a deadlock? */
static bool
is_verdict(const zoo_op_t *op)
{
	const char *name = op->type == REQUEST_CREATE ?
		strstr(op->create_op.path, "/%waits/") : NULL;

	return name != NULL && strncmp(name, "/%waits/ended.", 14) == 0;
}

/* What is sent now is, or is not any more, what a connection is tried by. */
void
library_try_connection(zhandle_t *zh, bool begins)
{
	zh->checking = begins;
}

int
zoo_amulti(zhandle_t *zh, int count, const zoo_op_t *ops,
		   zoo_op_result_t *results, void_completion_t completion,
		   const void *data)
{
	Request		request = {.kind = REQUEST_MULTI,.nops = count};
	Call	   *call;
	Call		made = {.results = results};
	int			rc;

	if (zh->state < 0)
		return ZINVALIDSTATE;
	for (int i = 0; i < count; i++)
		if (is_verdict(&ops[i]))
			check_act(instance_number(zh->instance));
	request.ops = sim_alloc(count * sizeof(Request));
	made.buffers = sim_alloc(count * sizeof(char *));
	made.sizes = sim_alloc(count * sizeof(int));
	made.stats = sim_alloc(count * sizeof(struct Stat *));
	for (int i = 0; i < count; i++)
	{
		fill_op(&request.ops[i], &ops[i]);
		if (ops[i].type == REQUEST_CREATE)
		{
			made.buffers[i] = ops[i].create_op.buf;
			made.sizes[i] = ops[i].create_op.buflen;
			results[i].value = ops[i].create_op.buf;
			results[i].valuelen = ops[i].create_op.buflen;
		}
		else if (ops[i].type == REQUEST_SET)
			made.stats[i] = ops[i].set_op.stat;
	}
	rc = add_call(zh, CALL_MULTI, completion, data, &request, NULL, NULL, &call);
	if (rc != ZOK)
		return rc;
	call->tries = zh->checking;
	if (!zh->checking)
		check_sync_check(zh);
	else if (zh->sync_check == NULL && !zh->checked)
		zh->sync_check = call;
	call->results = results;
	call->buffers = made.buffers;
	call->sizes = made.sizes;
	call->stats = made.stats;
	return ZOK;
}
