/*-------------------------------------------------------------------------
 *
 * zookeeper.c
 *		The simulated ensemble: servers, their trees, sessions and watches, and
 *		the network in front of them.
 *
 * The leader carries writes out one after the other, in the order in which
 * they come to it, and that is the log.  Each server applies the log in its
 * order, a follower later than the leader; it answers a client's reads from
 * its own tree, behind that client's writes, and tells of watches as it
 * applies.  When there is a new leader, the writes that the old one had not
 * got to are lost, or are not: nobody is told.  A server that is cut off from
 * the others goes on answering reads and pings until it notices.
 *
 * The leader ends sessions by its own clock, in ticks.  What a follower has
 * heard of a client comes to the leader with the next ping between the two
 * only.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/zookeeper.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "process.h"
#include "schedule.h"
#include "zookeeper.h"

#define BUCKETS			256
#define MAX_SESSIONS	256
#define CYCLE_EDGES		64
#define NOTICE_US		8000000 /* until a server that is cut off notices */
#define ELECTION_US		1500000

typedef struct Node
{
	struct Node *next;			/* in the bucket */
	const char *path;
	struct Node *parent;
	struct Node *children;		/* the latest first */
	struct Node *sibling;
	const char *data;
	int			len;
	int64_t		czxid;
	int64_t		mzxid;
	int64_t		pzxid;
	int64_t		ctime;
	int64_t		owner;
	int32_t		version;
	int32_t		nchildren;
	int32_t		created;		/* counts children that were ever created */
	bool		container;
} Node;

typedef struct Tree
{
	Node	   *buckets[BUCKETS];
} Tree;

/* One change; a transaction has any number of them. */
typedef enum ChangeKind
{
	CHANGE_CREATE,
	CHANGE_DELETE,
	CHANGE_SET,
	CHANGE_NOTHING,
	CHANGE_BEGIN_SESSION,
	CHANGE_END_SESSION
} ChangeKind;

typedef struct Change
{
	ChangeKind	kind;
	const char *path;
	const char *data;
	int			len;
	int64_t		owner;			/* or the session */
	bool		container;
	int32_t		counter;		/* of a new directory */
} Change;

typedef struct Transaction
{
	int64_t		zxid;
	int64_t		time;
	Change	   *changes;
	int			nchanges;
	int64_t		author;			/* the session that asked for it, or 0 */
	Request    *request;		/* whose answer waits for this, or NULL */
} Transaction;

typedef struct WatchEntry
{
	struct WatchEntry *next;
	const char *path;
	int			kind;			/* 0: data, 1: existence, 2: children */
} WatchEntry;

typedef struct Server
{
	bool		up;
	bool		cut_off;		/* from the other servers */
	bool		serves;			/* clients */
	Tree		tree;
	int			applied;		/* transactions of the log */
	int64_t		apply_at;		/* the last that is on its way */
	Connection *connections;
	uint64_t	life;			/* counts stops and cuts */
	bool		touched[MAX_SESSIONS];
} Server;

/* The path of a node whose delete was in a multi that failed. */
typedef struct Undeleted
{
	struct Undeleted *next;
	const char *path;
} Undeleted;

typedef struct Session
{
	int64_t		id;
	char		passwd[16];
	int			timeout_ms;
	int64_t		expires_at;
	bool		alive;
	int64_t		ended_at;		/* unless it is alive */
	bool		misled;			/* a write was lost, unnoticed: it is to end,
								 * also if another copy has it again */
	bool		outdated;		/* writes were lost, which its instance must
								 * notice: it is to end */
	int64_t		mark;			/* the zxid of the latest write of its instance's
								 * own znode whose answer has been handled */
	int			instance;
	Connection *connection;		/* the latest */
	Undeleted  *undeleted;
} Session;

static EnsembleOptions options;
static Server servers[MAX_SERVERS];
static int	leader;				/* -1: none */
static Transaction **txns;
static int	ntxns;
static int	txns_size;
static Session sessions[MAX_SESSIONS];
static int	nsessions;
static int64_t lag_us;
static uint64_t reigns;			/* counts leaders */
static uint64_t epoch;			/* the same, but for copies that are
								 * restored */
/* A cycle that a worker ends: see check_cycle(). */
typedef struct CycleEdge
{
	char		teller[64];
	char		from[256];
	char		to[256];
	char		keeper[512];
	int			pid;
}			CycleEdge;

typedef struct Cycle
{
	char		hash[64];
	int			nedges;
	CycleEdge	edges[CYCLE_EDGES];
}			Cycle;

static Cycle cycles[MAX_INSTANCES];
static int64_t commit_at;		/* the last write that waits for its turn */
static uint64_t nwrites;
static uint64_t nrequests;
static RequestCounts counts;

static int64_t cuts[MAX_SERVERS][8];	/* until when; negative: silently */
static int64_t slow_until;
static int64_t collected_until;
static int64_t slow_us;

static void serve(Server *server, Connection *connection);

/*
 * Trees.
 */
static uint32_t
hash_of(const char *path)
{
	uint32_t	hash = 2166136261u;

	for (; *path; path++)
		hash = (hash ^ (unsigned char) *path) * 16777619u;
	return hash % BUCKETS;
}

static Node *
find(const Tree *tree, const char *path)
{
	Node	   *node = tree->buckets[hash_of(path)];

	while (node != NULL && strcmp(node->path, path) != 0)
		node = node->next;
	return node;
}

static Node *
parent_of(const Tree *tree, const char *path)
{
	char		parent[1200];
	const char *slash = strrchr(path, '/');

	if (slash == NULL || slash[1] == '\0')
		return NULL;
	if (slash == path)
		return find(tree, "/");
	snprintf(parent, sizeof(parent), "%.*s", (int) (slash - path), path);
	return find(tree, parent);
}

static void
fill_stat(const Node *node, struct Stat *stat)
{
	memset(stat, 0, sizeof(*stat));
	stat->czxid = node->czxid;
	stat->mzxid = node->mzxid;
	stat->pzxid = node->pzxid;
	stat->ctime = stat->mtime = node->ctime;
	stat->version = node->version;
	stat->cversion = 2 * node->created - node->nchildren;
	stat->ephemeralOwner = node->container ? INT64_MIN : node->owner;
	stat->dataLength = node->len < 0 ? 0 : node->len;
	stat->numChildren = node->nchildren;
}

static void
tree_create(Tree *tree, const Change *change, int64_t zxid, int64_t time)
{
	Node	   *node = calloc(1, sizeof(Node));
	Node	   *parent = parent_of(tree, change->path);
	uint32_t	hash = hash_of(change->path);

	node->path = sim_keep_bytes(change->path, strlen(change->path));
	node->parent = parent;
	node->data = change->len < 0 ? NULL :
		sim_keep_bytes(change->data, change->len);
	node->len = change->len;
	node->czxid = node->mzxid = node->pzxid = zxid;
	node->ctime = time;
	node->owner = change->owner;
	node->container = change->container;
	node->created = change->counter;
	node->next = tree->buckets[hash];
	tree->buckets[hash] = node;
	if (parent == NULL)
		return;
	node->sibling = parent->children;
	parent->children = node;
	parent->nchildren++;
	parent->created++;
	parent->pzxid = zxid;
}

static void
tree_delete(Tree *tree, const char *path, int64_t zxid)
{
	Node	  **place = &tree->buckets[hash_of(path)];
	Node	   *node;

	while (strcmp((*place)->path, path) != 0)
		place = &(*place)->next;
	node = *place;
	*place = node->next;
	place = &node->parent->children;
	while (*place != node)
		place = &(*place)->sibling;
	*place = node->sibling;
	node->parent->nchildren--;
	node->parent->pzxid = zxid;
	free(node);
}

static void
tree_free(Tree *tree)
{
	for (int i = 0; i < BUCKETS; i++)
		while (tree->buckets[i] != NULL)
		{
			Node	   *next = tree->buckets[i]->next;

			free(tree->buckets[i]);
			tree->buckets[i] = next;
		}
}

/*
 * Sessions.
 */
static Session *
find_session(int64_t id)
{
	for (int i = 0; i < nsessions; i++)
		if (sessions[i].id == id)
			return &sessions[i];
	return NULL;
}

static void
touch(Session *session)
{
	int64_t		tick = options.tick_ms * INT64_C(1000);
	int64_t		expires_at = sim_now() + session->timeout_ms * INT64_C(1000);

	expires_at = (expires_at / tick + 1) * tick;
	if (expires_at > session->expires_at)
		session->expires_at = expires_at;
}

/*
 * The network.
 */
int64_t
network_delay(void)
{
	int64_t		us = sim_between(options.delay_us / 10, options.delay_us);

	if (sim_now() < slow_until)
		us += sim_between(0, slow_us);
	return us;
}

/* For so long messages take up to that time more. */
void
network_slow(int64_t us, int64_t delay_us)
{
	slow_until = sim_now() + us;
	slow_us = delay_us;
}

bool
network_is_cut(int server, int instance)
{
	int64_t		until = cuts[server][instance];

	return (until < 0 ? -until : until) > sim_now();
}

static void
close_at_client(void *arg)
{
	Connection *connection = arg;

	if (!connection->closed)
		library_lost(connection->client, connection);
}

static void
forget_connection(Connection *connection)
{
	Connection **place = &servers[connection->server].connections;

	if (connection->server_closed)
		return;
	connection->server_closed = true;
	while (*place != NULL && *place != connection)
		place = &(*place)->next;
	if (*place != NULL)
		*place = connection->next;
	for (int i = 0; i < nsessions; i++)
		if (sessions[i].connection == connection)
			sessions[i].connection = NULL;
}

/* The server closes it; what it has sent still gets there. */
static void
drop_connection(Connection *connection)
{
	if (connection->server_closed)
		return;
	forget_connection(connection);
	if (connection->silent)
		return;
	if (connection->to_client_at < sim_now())
		connection->to_client_at = sim_now();
	connection->to_client_at += network_delay();
	sim_at(connection->to_client_at, close_at_client, connection);
}

static void
close_at_server(void *arg)
{
	forget_connection(arg);
}

/* The client closes it. */
void
connection_close(Connection *connection)
{
	if (connection->closed)
		return;
	connection->closed = true;
	if (connection->to_server_at < sim_now())
		connection->to_server_at = sim_now();
	connection->to_server_at += network_delay();
	if (!connection->silent)
		sim_at(connection->to_server_at, close_at_server, connection);
}

/* Both sides are told at some time, or only their timeouts tell. */
void
network_cut(int server, int instance, int64_t us, bool silently)
{
	int64_t		until = sim_now() + us;

	cuts[server][instance] = silently ? -until : until;
	for (Connection *connection = servers[server].connections;
		 connection != NULL; connection = connection->next)
	{
		if (connection->closed ||
			library_instance(connection->client) != instance)
			continue;
		connection->silent = true;
		if (silently)
			continue;
		sim_at(sim_now() + network_delay(), close_at_client, connection);
		sim_at(sim_now() + network_delay(), close_at_server, connection);
	}
}

Connection *
connection_new(int server, void *client)
{
	Connection *connection;

	if (!servers[server].up || !servers[server].serves ||
		network_is_cut(server, library_instance(client)))
		return NULL;
	connection = sim_keep(sizeof(Connection));
	connection->server = server;
	connection->client = client;
	connection->to_server_end = &connection->to_server;
	connection->to_client_end = &connection->to_client;
	connection->pending_end = &connection->pending;
	connection->next = servers[server].connections;
	servers[server].connections = connection;
	return connection;
}

static void
deliver_to_client(void *arg)
{
	Connection *connection = arg;
	Reply	   *reply;
	int64_t		until;

	if (connection->closed || connection->silent)
		return;
	if (library_is_frozen(connection->client, &until))
	{
		sim_at(until, deliver_to_client, connection);
		return;
	}
	reply = connection->to_client;
	if (reply == NULL)
		return;
	connection->to_client = reply->next;
	if (connection->to_client == NULL)
		connection->to_client_end = &connection->to_client;
	library_hear(connection->client, connection, reply);
}

static const char *const kind_names[] = {
	"connect", "ping", "close", "set watches", "remove watches", "exists",
	"get", "get acl", "children", "sync", "create", "delete", "set", "set acl",
	"check", "multi"
};

/* A request and its answer, for a person. */
static void
trace_answer(const Connection *connection, const Request *request,
			 const Reply *reply)
{
	if (!sim_tracing() || request->kind == REQUEST_PING)
		return;
	sim_trace("server %d to %" PRIx64 ": %s %s%s%s: %d", connection->server,
			  connection->session, kind_names[request->kind],
			  request->path ? request->path : "",
			  request->watch ? ", watch" : "",
			  connection->silent || connection->closed ? ", lost" : "",
			  reply->err);
	for (int i = 0; i < request->nops; i++)
		sim_trace("    %s %s: %d", kind_names[request->ops[i].kind],
				  request->ops[i].path,
				  i < reply->nresults ? reply->results[i].err : 0);
}

static void
send_reply(Connection *connection, Reply *reply)
{
	if (connection->server_closed || connection->closed || connection->silent)
		return;
	reply->next = NULL;
	*connection->to_client_end = reply;
	connection->to_client_end = &reply->next;
	if (connection->to_client_at < sim_now())
		connection->to_client_at = sim_now();
	connection->to_client_at += network_delay() / 4 + 1;
	if (connection->to_client_at < sim_now() + 40)
		connection->to_client_at = sim_now() + 40;
	sim_at(connection->to_client_at, deliver_to_client, connection);
}

/*
 * Watches.
 */
static void
add_watch(Connection *connection, const char *path, int kind)
{
	WatchEntry *entry;

	for (entry = connection->watches; entry != NULL; entry = entry->next)
		if (entry->kind == kind && strcmp(entry->path, path) == 0)
			return;
	entry = sim_keep(sizeof(WatchEntry));
	entry->path = sim_keep_bytes(sim_strdup(path), strlen(path));
	entry->kind = kind;
	entry->next = connection->watches;
	connection->watches = entry;
}

/* Remove the watches of these kinds; was there one? */
static bool
remove_watches(Connection *connection, const char *path, int kinds)
{
	bool		found = false;
	WatchEntry **place = &connection->watches;

	while (*place != NULL)
		if ((kinds >> (*place)->kind & 1) && strcmp((*place)->path, path) == 0)
		{
			*place = (*place)->next;
			found = true;
		}
		else
			place = &(*place)->next;
	return found;
}

static void
send_event(Connection *connection, int event, const char *path)
{
	Reply	   *reply = sim_alloc(sizeof(Reply));

	sim_trace("server %d to %" PRIx64 ": event %d of %s", connection->server,
			  connection->session, event, path);
	reply->event = event;
	reply->path = path;
	reply->zxid = -1;
	send_reply(connection, reply);
}

#define DATA_WATCHES	3		/* data and existence */
#define CHILD_WATCHES	4

static void
fire(Server *server, const char *path, int event, int kinds)
{
	for (Connection *connection = server->connections, *next;
		 connection != NULL; connection = next)
	{
		next = connection->next;
		if (remove_watches(connection, path, kinds))
			send_event(connection, event, path);
	}
}

static void
fire_parent(Server *server, const Node *parent)
{
	if (parent != NULL)
		fire(server, parent->path, ZOO_CHILD_EVENT, CHILD_WATCHES);
}

/*
 * The log is applied.
 */
static void
apply_change(Server *server, const Change *change, const Transaction *txn)
{
	Node	   *node;

	switch (change->kind)
	{
		case CHANGE_CREATE:
			tree_create(&server->tree, change, txn->zxid, txn->time);
			fire(server, change->path, ZOO_CREATED_EVENT, DATA_WATCHES);
			fire_parent(server, parent_of(&server->tree, change->path));
			break;
		case CHANGE_DELETE:
			node = parent_of(&server->tree, change->path);
			tree_delete(&server->tree, change->path, txn->zxid);
			fire(server, change->path, ZOO_DELETED_EVENT,
				 DATA_WATCHES | CHILD_WATCHES);
			fire_parent(server, node);
			break;
		case CHANGE_SET:
			node = find(&server->tree, change->path);
			node->data = change->len < 0 ? NULL :
				sim_keep_bytes(change->data, change->len);
			node->len = change->len;
			node->mzxid = txn->zxid;
			node->version++;
			fire(server, change->path, ZOO_CHANGED_EVENT, DATA_WATCHES);
			break;
		case CHANGE_END_SESSION:
			for (Connection *connection = server->connections, *next;
				 connection != NULL; connection = next)
			{
				next = connection->next;
				if (connection->session == change->owner)
					drop_connection(connection);
			}
			break;
		case CHANGE_NOTHING:
		case CHANGE_BEGIN_SESSION:
			break;
	}
}

static void
apply_next(Server *server)
{
	Transaction		   *txn = txns[server->applied++];
	Request    *request = txn->request;

	for (int i = 0; i < txn->nchanges; i++)
		apply_change(server, &txn->changes[i], txn);
	if (request != NULL && !request->connection->server_closed &&
		&servers[request->connection->server] == server)
	{
		/* the answer has the stat of then */
		request->forwarded = false;
		serve(server, request->connection);
	}
}

typedef struct Apply
{
	Server	   *server;
	uint64_t	life;
	int			upto;
} Apply;

static void
apply_event(void *arg)
{
	Apply	   *apply = arg;
	Server	   *server = apply->server;

	if (server->life != apply->life || server->cut_off || !server->up)
		return;
	while (server->applied < apply->upto && server->applied < ntxns)
		apply_next(server);
}

static bool
is_follower(int i)
{
	return servers[i].up && !servers[i].cut_off;
}

/* A transaction is in the log: the servers apply it, each in its time. */
static void
append(Change *changes, int nchanges, Request *request)
{
	Transaction		   *txn = sim_alloc(sizeof(Transaction));

	if (ntxns == txns_size)
	{
		txns_size = txns_size == 0 ? 1024 : 2 * txns_size;
		txns = realloc(txns, txns_size * sizeof(Transaction *));
	}
	txn->zxid = (int64_t) (epoch << 32) + ntxns + 1;
	txn->time = sim_now() / 1000;
	txn->changes = changes;
	txn->nchanges = nchanges;
	for (int i = 0; i < nchanges; i++)
		counts.contenders += changes[i].kind == CHANGE_CREATE &&
			strstr(changes[i].path, "/_c_") != NULL;
	txn->author = request ? request->session : 0;
	txn->request = request;
	txns[ntxns++] = txn;
	for (int i = 0; i < options.nservers; i++)
	{
		Apply	   *apply;

		if (!is_follower(i))
			continue;
		if (i == leader)
		{
			while (servers[i].applied < ntxns)
				apply_next(&servers[i]);
			continue;
		}
		apply = sim_alloc(sizeof(Apply));
		apply->server = &servers[i];
		apply->life = servers[i].life;
		apply->upto = ntxns;
		if (servers[i].apply_at < sim_now())
			servers[i].apply_at = sim_now();
		servers[i].apply_at += sim_between(1, 50);
		if (servers[i].apply_at < sim_now() + lag_us && sim_chance(200000))
			servers[i].apply_at = sim_now() + sim_between(1, lag_us);
		sim_at(servers[i].apply_at, apply_event, apply);
	}
}

static int64_t
zxid_of(const Server *server)
{
	return server->applied == 0 ? 0 : txns[server->applied - 1]->zxid;
}

/*
 * Writes, at the leader.
 */

/*
 * Carry one operation of a write out, in the leader's tree as "draft" has it.
 */
typedef struct Draft
{
	Change	   *changes;
	int			n;
	int			size;
} Draft;

/*
 * A node as the changes of this draft leave it; *known is false if there are
 * none.
 */
static bool
drafted(const Draft *draft, const char *path, bool *exists, int32_t *version)
{
	bool		known = false;

	for (int i = 0; i < draft->n; i++)
	{
		if (strcmp(draft->changes[i].path, path) != 0)
			continue;
		known = true;
		*exists = draft->changes[i].kind != CHANGE_DELETE;
		if (draft->changes[i].kind == CHANGE_SET)
			(*version)++;
		else
			*version = 0;
	}
	return known;
}

static bool
exists(const Draft *draft, const char *path, int32_t *version)
{
	const Node *node = find(&servers[leader].tree, path);
	bool		found = node != NULL;

	*version = node ? node->version : 0;
	(void) drafted(draft, path, &found, version);
	return found;
}

static const char *
parent_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	char	   *parent;

	if (slash == path)
		return "/";
	parent = sim_alloc(slash - path + 1);
	memcpy(parent, path, slash - path);
	return parent;
}

/*
 * How many children of a directory the draft creates, and how it changes them.
 */
static int
count_drafted(const Draft *draft, const char *directory, bool only_created)
{
	int			n = 0;

	for (int i = 0; i < draft->n; i++)
	{
		if (draft->changes[i].kind == CHANGE_SET ||
			strcmp(parent_path(draft->changes[i].path), directory) != 0)
			continue;
		if (draft->changes[i].kind == CHANGE_CREATE)
			n++;
		else if (!only_created)
			n--;
	}
	return n;
}

static void
add_change(Draft *draft, Change change)
{
	assert(draft->n < draft->size);
	draft->changes[draft->n++] = change;
}

static int
draft_create(Draft *draft, const Request *op, int64_t session, Reply *reply)
{
	const char *directory = parent_path(op->path);
	const Node *parent = find(&servers[leader].tree, directory);
	const char *path = op->path;
	bool		ephemeral = op->flags == ZOO_EPHEMERAL ||
		op->flags == ZOO_EPHEMERAL_SEQUENTIAL;
	int32_t		version;

	if (!exists(draft, directory, &version))
		return ZNONODE;
	if (op->flags == ZOO_EPHEMERAL_SEQUENTIAL ||
		op->flags == ZOO_PERSISTENT_SEQUENTIAL)
	{
		char	   *name = sim_alloc(strlen(path) + 12);

		sprintf(name, "%s%010" PRId32, path,
				(parent ? parent->created : 0) +
				count_drafted(draft, directory, true));
		path = name;
	}
	if (exists(draft, path, &version))
		return ZNODEEXISTS;
	if (parent != NULL && parent->owner != 0)
		return ZNOCHILDRENFOREPHEMERALS;
	add_change(draft, (Change) {
		.kind = CHANGE_CREATE,.path = path,.data = op->data,.len = op->len,
		.owner = ephemeral ? session : 0,
		.container = op->flags == ZOO_CONTAINER,
		.counter = op->flags == ZOO_CONTAINER ? options.first_number : 0
	});
	reply->path = path;
	return ZOK;
}

static int
draft_operation(Draft *draft, const Request *op, int64_t session, Reply *reply)
{
	const Node *node;
	int32_t		version;

	reply->kind = op->kind;
	if (op->kind == REQUEST_CREATE)
		return draft_create(draft, op, session, reply);
	if (!exists(draft, op->path, &version))
		return ZNONODE;
	if (op->version >= 0 && op->kind != REQUEST_SET_ACL &&
		op->version != version)
		return ZBADVERSION;
	switch (op->kind)
	{
		case REQUEST_DELETE:
			node = find(&servers[leader].tree, op->path);
			if ((node ? node->nchildren : 0) +
				count_drafted(draft, op->path, false) > 0)
				return ZNOTEMPTY;
			add_change(draft, (Change) {.kind = CHANGE_DELETE,.path = op->path});
			return ZOK;
		case REQUEST_SET:
			add_change(draft, (Change) {
				.kind = CHANGE_SET,.path = op->path,.data = op->data,
				.len = op->len
			});
			return ZOK;
		case REQUEST_SET_ACL:
		case REQUEST_CHECK:
			return ZOK;
		default:
			sim_lacks("this operation in a multi");
	}
}

static Draft
new_draft(int size)
{
	return (Draft) {.changes = sim_alloc(size * sizeof(Change)),.size = size};
}

static Reply *
new_reply(const Request *request)
{
	Reply	   *reply = sim_alloc(sizeof(Reply));

	reply->kind = request->kind;
	reply->xid = request->xid;
	reply->len = -1;
	return reply;
}

static void
look_at_znode(int actor, const char *path)
{
	if (find(&servers[leader].tree, path) == NULL)
		sim_violation("acts", "instance %d acts, but %s is gone", actor, path);
}

/* Has an instance a znode in this lock directory? */
static bool
has_contender(int instance, const char *path)
{
	const Node *directory = find(&servers[leader].tree, path);
	const Node *child = directory ? directory->children : NULL;

	for (; child; child = child->sibling)
		if (child->owner != 0 &&
			find_session(child->owner)->instance == instance)
			return true;
	return false;
}

/*
 * An act is carried out: each edge is confirmed, and what it is about is there.
 * Returns the time of the look that led to its confirm, or INT64_MAX.
 */
static int64_t
look_at_edge(int actor, const char *directory, const Cycle *cycle,
			 const CycleEdge *edge)
{
	char		path[1200];
	const Node *confirm;
	int			instance;

	snprintf(path, sizeof(path), "%s/%s.%s", directory, cycle->hash,
			 edge->teller);
	confirm = find(&servers[leader].tree, path);
	if (confirm == NULL)
	{
		check_unconfirmed(actor, path);
		return INT64_MAX;
	}
	instance = find_session(confirm->owner)->instance;
	if (!has_contender(instance, edge->from))
		sim_violation("acts", "instance %d acts, but instance %d has no contender in %s",
					  actor, instance, edge->from);
	if (!has_contender(instance, edge->to))
		sim_violation("acts", "instance %d acts, but instance %d has no contender in %s",
					  actor, instance, edge->to);
	if (edge->keeper[0] != '\0')
		look_at_znode(actor, edge->keeper);
	return check_confirmed_at(path);
}

static void
look_at_act(int actor, const char *ended)
{
	const char *name = strrchr(ended, '/');
	char		directory[1024];
	const Cycle *cycle = &cycles[actor];
	int			pids[CYCLE_EDGES];
	int			npids = 0;
	bool		between = false;
	int64_t		confirmed = INT64_MAX;

	snprintf(directory, sizeof(directory), "%.*s", (int) (name - ended), ended);
	if (strncmp(name + strlen("/ended."), cycle->hash,
				strlen(cycle->hash)) != 0)
		sim_violation("acts", "instance %d acts without a cycle", actor);
	for (int i = 0; i < cycle->nedges; i++)
	{
		const CycleEdge *edge = &cycle->edges[i];
		int64_t		at = look_at_edge(actor, directory, cycle, edge);

		if (at < confirmed)
			confirmed = at;
		pids[npids++] = edge->pid;
		between |= edge->keeper[0] != '\0';
	}
	check_acted(actor, pids, npids, between, confirmed);
}

/* A worker is about to send the end of a deadlock, one at a time. */
void
check_cycle(int instance, const char *hash, const SimEdge *edges, int n)
{
	Cycle	   *cycle = &cycles[instance];

	memset(cycle, 0, sizeof(*cycle));
	snprintf(cycle->hash, sizeof(cycle->hash), "%s", hash);
	if (n == 0 || n > CYCLE_EDGES)
		sim_violation("acts", "instance %d ends a cycle of %d edges", instance,
					  n);
	cycle->nedges = n;
	for (int i = 0; i < n; i++)
	{
		CycleEdge  *edge = &cycle->edges[i];

		snprintf(edge->teller, sizeof(edge->teller), "%s", edges[i].teller);
		snprintf(edge->from, sizeof(edge->from), "%s", edges[i].from);
		snprintf(edge->to, sizeof(edge->to), "%s", edges[i].to);
		snprintf(edge->keeper, sizeof(edge->keeper), "%s",
				 edges[i].keeper ? edges[i].keeper : "");
		edge->pid = edges[i].pid;
	}
}

/*
 * Tell the checkers of the end of a deadlock.  Its znode is named by the cycle,
 * which comes once: so if the session has it already, this act is the one that
 * created it.
 */
static void
tell_of_act(const Request *request, bool done)
{
	const Request *last = &request->ops[request->nops - 1];
	const Node *ended;

	if (last->kind != REQUEST_CREATE ||
		strstr(last->path, "/%waits/ended.") == NULL)
		return;
	ended = find(&servers[leader].tree, last->path);
	if (done)
		look_at_act(find_session(request->session)->instance, last->path);
	else if (ended != NULL && ended->owner == request->session)
		check_sent_again(last->path);
}

static void
note_undeleted(Session *session, const Request *multi)
{
	for (int i = 0; i < multi->nops; i++)
		if (multi->ops[i].kind == REQUEST_DELETE)
		{
			Undeleted  *node = sim_alloc(sizeof(Undeleted));

			node->path = sim_strdup(multi->ops[i].path);
			node->next = session->undeleted;
			session->undeleted = node;
		}
}

static void
carry_out_multi(Request *request, Reply *reply, Draft *draft)
{
	reply->nresults = request->nops;
	reply->results = sim_alloc(request->nops * sizeof(Reply));
	for (int i = 0; i < request->nops; i++)
	{
		int			err = reply->err != ZOK ? ZRUNTIMEINCONSISTENCY :
			draft_operation(draft, &request->ops[i], request->session,
							&reply->results[i]);

		reply->results[i].err = err;
		if (err != ZOK && reply->err == ZOK)
			reply->err = err;
	}
	if (reply->err != ZOK)
	{
		draft->n = 0;
		note_undeleted(find_session(request->session), request);
	}
	tell_of_act(request, reply->err == ZOK);
}

static bool
is_undeleted(const Session *session, const char *path)
{
	for (const Undeleted *node = session->undeleted; node; node = node->next)
		if (strcmp(node->path, path) == 0)
			return true;
	return false;
}

/* All ephemeral nodes of a session go with it, in one transaction. */
static void
end_session(Session *session, Request *request)
{
	Draft		draft;
	int			n = 1;
	int			bytes = 0;

	for (int i = 0; i < BUCKETS; i++)
		for (Node *node = servers[leader].tree.buckets[i]; node; node = node->next)
			n += node->owner == session->id;
	draft = new_draft(n);
	for (int i = 0; i < BUCKETS; i++)
		for (Node *node = servers[leader].tree.buckets[i]; node; node = node->next)
			if (node->owner == session->id)
			{
				if (strncmp(node->path, "/zklock/%", 9) != 0 &&
					!is_undeleted(session, node->path))
					bytes += 4 + strlen(node->path);
				add_change(&draft, (Change) {
					.kind = CHANGE_DELETE,.path = node->path
				});
			}
	add_change(&draft, (Change) {
		.kind = CHANGE_END_SESSION,.path = "",.owner = session->id
	});
	session->alive = false;
	session->ended_at = sim_now();
	check_session_ended(session->instance, session->id, bytes);
	sim_trace("session %" PRIx64 " ends with %d nodes", session->id, n - 1);
	append(draft.changes, draft.n, request);
}

/* Is this a directory that anybody may delete, since nothing is in it? */
static bool
is_unused(const Node *node)
{
	return node != NULL && node->container && node->nchildren == 0 &&
		node->created > options.first_number;
}

static void
remove_directory(const char *path)
{
	Change	   *change = sim_alloc(sizeof(Change));

	change->kind = CHANGE_DELETE;
	change->path = path;
	append(change, 1, NULL);
}

/*
 * Somebody deletes unused directories, now and then one in which a contender
 * is about to be created.
 */
static void
collect_ahead_of(const Request *request)
{
	const Request *ops = request->kind == REQUEST_MULTI ? request->ops : request;
	int			nops = request->kind == REQUEST_MULTI ? request->nops : 1;

	if (sim_now() >= collected_until || !sim_chance(500000))
		return;
	for (int i = 0; i < nops; i++)
	{
		const Node *directory = ops[i].kind == REQUEST_CREATE &&
			ops[i].flags == ZOO_EPHEMERAL_SEQUENTIAL ?
			find(&servers[leader].tree, parent_path(ops[i].path)) : NULL;

		if (is_unused(directory))
			remove_directory(directory->path);
	}
}

/* The leader's turn for a request: it is in the log from now on. */
static void
carry_out(Request *request)
{
	Connection *connection = request->connection;
	Session    *session = find_session(request->session);
	Reply	   *reply = new_reply(request);
	Draft		draft = new_draft(request->nops + 1);

	request->reply = reply;
	nwrites++;
	collect_ahead_of(request);
	if (request->kind == REQUEST_CONNECT)
	{
		session = &sessions[nsessions++];
		if (nsessions == MAX_SESSIONS)
			sim_lacks("so many sessions");
		session->id = (int64_t) (0x100000000 * (connection->server + 1) +
								 nsessions);
		for (int i = 0; i < 16; i++)
			session->passwd[i] = (char) (sim_random() >> 11);
		session->timeout_ms = request->timeout_ms;
		session->alive = true;
		session->connection = connection;
		session->instance = library_instance(connection->client);
		touch(session);
		reply->session = session->id;
		memcpy(reply->passwd, session->passwd, 16);
		reply->timeout_ms = session->timeout_ms;
		add_change(&draft, (Change) {
			.kind = CHANGE_BEGIN_SESSION,.path = "",.owner = session->id
		});
		append(draft.changes, draft.n, request);
		return;
	}
	if (session == NULL || !session->alive)
		reply->err = ZSESSIONEXPIRED;
	else if (session->connection != NULL && session->connection != connection)
		reply->err = ZSESSIONMOVED;
	else if (request->kind == REQUEST_CLOSE)
	{
		end_session(session, request);
		return;
	}
	else if (request->kind == REQUEST_SYNC)
		reply->err = ZOK;
	else if (request->kind == REQUEST_MULTI)
		carry_out_multi(request, reply, &draft);
	else
		reply->err = draft_operation(&draft, request, request->session, reply);
	if (draft.n == 0)
		add_change(&draft, (Change) {.kind = CHANGE_NOTHING,.path = ""});
	append(draft.changes, draft.n, request);
}

typedef struct Turn
{
	Request    *request;
	uint64_t	reign;
} Turn;

static void
turn_event(void *arg)
{
	Turn	   *turn = arg;

	if (turn->reign == reigns && leader >= 0)
		carry_out(turn->request);
}

/* A write is on its way to the leader. */
static void
forward(Server *server, Request *request)
{
	Turn	   *turn = sim_alloc(sizeof(Turn));
	int64_t		at = sim_now() + sim_between(100, 1500);

	request->forwarded = true;
	if (server->cut_off || leader < 0)
		return;					/* until the client gives up */
	turn->request = request;
	turn->reign = reigns;
	if (commit_at < at)
		commit_at = at;
	sim_at(commit_at, turn_event, turn);
}

/*
 * Reads, at the server of the client.
 */
static void
read_node(Server *server, Request *request, Reply *reply)
{
	const Node *node = find(&server->tree, request->path);
	int			n = 0;

	if (node == NULL)
	{
		reply->err = ZNONODE;
		if (request->watch && request->kind == REQUEST_EXISTS)
			add_watch(request->connection, request->path, 1);
		return;
	}
	fill_stat(node, &reply->stat);
	if (request->watch)
		add_watch(request->connection, request->path,
				  request->kind == REQUEST_CHILDREN ? 2 : 0);
	if (request->kind == REQUEST_GET)
	{
		reply->data = node->data;
		reply->len = node->len;
	}
	if (request->kind != REQUEST_CHILDREN)
		return;
	reply->children = sim_alloc((node->nchildren + 1) * sizeof(char *));
	for (const Node *child = node->children; child; child = child->sibling)
		reply->children[n++] = strrchr(child->path, '/') + 1;
	reply->nchildren = n;

	/* in no order */
	for (int i = n - 1; i > 0; i--)
	{
		int			j = sim_below(i + 1);
		const char *child = reply->children[i];

		reply->children[i] = reply->children[j];
		reply->children[j] = child;
	}
}

static void
set_watches(Server *server, Request *request)
{
	Connection *connection = request->connection;

	for (int kind = 0; kind < 3; kind++)
		for (int i = 0; i < request->nwatches[kind]; i++)
		{
			const char *path = request->watches[kind][i];
			const Node *node = find(&server->tree, path);
			int64_t		seen = request->last_zxid;

			if (kind == 1 && node != NULL)
				send_event(connection, ZOO_CREATED_EVENT, path);
			else if (kind != 1 && node == NULL)
				send_event(connection, ZOO_DELETED_EVENT, path);
			else if (kind == 0 && node->mzxid > seen)
				send_event(connection, ZOO_CHANGED_EVENT, path);
			else if (kind == 2 && node->pzxid > seen)
				send_event(connection, ZOO_CHILD_EVENT, path);
			else
				add_watch(connection, path, kind);
		}
}

static Reply *
answer_read(Server *server, Request *request)
{
	Reply	   *reply = new_reply(request);

	switch (request->kind)
	{
		case REQUEST_PING:
		case REQUEST_SYNC:
			break;
		case REQUEST_SET_WATCHES:
			set_watches(server, request);
			break;
		case REQUEST_REMOVE_WATCHES:
			if (!remove_watches(request->connection, request->path,
								(request->watch_type & ZWATCHTYPE_DATA ?
								 DATA_WATCHES : 0) |
								(request->watch_type & ZWATCHTYPE_CHILD ?
								 CHILD_WATCHES : 0)))
				reply->err = ZNOWATCHER;
			break;
		default:
			read_node(server, request, reply);
			break;
	}
	return reply;
}

static bool
is_write(const Request *request)
{
	return request->kind >= REQUEST_SYNC || request->kind == REQUEST_CLOSE;
}

/* The stats that come with the answer to a write are those of its state. */
static void
fill_stats(Server *server, Request *request, Reply *reply)
{
	for (int i = -1; i < reply->nresults; i++)
	{
		Reply	   *part = i < 0 ? reply : &reply->results[i];
		const Request *op = i < 0 ? request : &request->ops[i];
		const Node *node;

		if (part->err != ZOK ||
			(op->kind != REQUEST_CREATE && op->kind != REQUEST_SET))
			continue;
		node = find(&server->tree,
					op->kind == REQUEST_CREATE ? part->path : op->path);
		if (node)
			fill_stat(node, &part->stat);
	}
}

static void
grant(Server *server, Connection *connection, Reply *reply)
{
	connection->session = reply->session;
	connection->connected = true;
	reply->zxid = zxid_of(server);
	send_reply(connection, reply);
}

/* Answer what can be answered, in the order in which it came. */
static void
serve(Server *server, Connection *connection)
{
	Request    *request;

	while ((request = connection->pending) != NULL)
	{
		Reply	   *reply = request->reply;

		if (request->forwarded)
			break;
		if (reply == NULL)
			reply = answer_read(server, request);
		else if (reply->err == ZSESSIONMOVED || reply->err == ZSESSIONEXPIRED)
		{
			drop_connection(connection);
			return;
		}
		else
			fill_stats(server, request, reply);
		trace_answer(connection, request, reply);
		connection->pending = request->next;
		if (connection->pending == NULL)
			connection->pending_end = &connection->pending;
		if (request->kind == REQUEST_CONNECT)
			grant(server, connection, reply);
		else
		{
			reply->zxid = request->kind == REQUEST_PING ? -1 : zxid_of(server);
			send_reply(connection, reply);
		}
	}
}

/* The server has heard of the client. */
static void
hear_of(Server *server, Session *session)
{
	if (session == NULL)
		return;
	if (server - servers == leader)
	{
		if (session->alive)
			touch(session);
	}
	else
		server->touched[session - sessions] = true;
}

/* Revalidate a session at the leader. */
static void
reattach(void *arg)
{
	Request    *request = arg;
	Connection *connection = request->connection;
	Server	   *server = &servers[connection->server];
	Session    *session = find_session(request->session);
	Reply	   *reply;

	if (connection->server_closed)
		return;
	if (server->cut_off || leader < 0)
	{
		drop_connection(connection);
		return;
	}
	reply = new_reply(request);
	if (session != NULL && session->alive &&
		memcmp(session->passwd, request->passwd, 16) == 0)
	{
		session->timeout_ms = request->timeout_ms;
		session->connection = connection;
		touch(session);
		reply->session = session->id;
		memcpy(reply->passwd, session->passwd, 16);
		reply->timeout_ms = session->timeout_ms;
	}
	request->reply = reply;
	request->forwarded = false;
	serve(server, connection);
	if (reply->session == 0)
		drop_connection(connection);
}

static void
connect_session(Server *server, Request *request)
{
	if (request->last_zxid > zxid_of(server))
	{
		drop_connection(request->connection);	/* it has seen more than we */
		return;
	}
	if (request->timeout_ms < 2 * options.tick_ms)
		request->timeout_ms = 2 * options.tick_ms;
	if (request->timeout_ms > 20 * options.tick_ms)
		request->timeout_ms = 20 * options.tick_ms;
	*request->connection->pending_end = request;
	request->connection->pending_end = &request->next;
	if (request->session == 0)
	{
		forward(server, request);
		return;
	}
	request->forwarded = true;
	sim_at(sim_now() + sim_between(50, 1000), reattach, request);
}

static void
count_request(const Request *request)
{
	nrequests++;
	if (request->kind == REQUEST_PING)
		return;
	counts.all++;
	if (request->kind == REQUEST_CHILDREN)
		counts.queues++;
	else if (request->kind == REQUEST_SET &&
			 strncmp(request->path, "/zklock/%clusters/", 18) == 0)
		counts.members++;
	else if (request->kind == REQUEST_MULTI && request->nops == 1 &&
			 request->ops[0].kind == REQUEST_CHECK)
		counts.heartbeats++;
}

RequestCounts
ensemble_counts(void)
{
	return counts;
}

static void
server_hear(Connection *connection, Request *request)
{
	Server	   *server = &servers[connection->server];

	count_request(request);
	if (request->kind == REQUEST_CONNECT)
	{
		connect_session(server, request);
		return;
	}
	hear_of(server, find_session(connection->session));
	*connection->pending_end = request;
	connection->pending_end = &request->next;
	if (is_write(request))
	{
		/*
		 * a leader that does not know that it is none answers from old state
		 */
		if (request->kind == REQUEST_SYNC && server->cut_off)
			request->reply = new_reply(request);
		else
			forward(server, request);
	}
	serve(server, connection);
}

static void
deliver_to_server(void *arg)
{
	Connection *connection = arg;
	Request    *request;

	if (connection->server_closed || connection->silent)
		return;
	request = connection->to_server;
	if (request == NULL)
		return;
	connection->to_server = request->next;
	if (connection->to_server == NULL)
		connection->to_server_end = &connection->to_server;
	request->next = NULL;
	server_hear(connection, request);
}

void
connection_send(Connection *connection, Request *request)
{
	request->connection = connection;
	request->next = NULL;
	if (connection->closed || connection->silent)
		return;
	*connection->to_server_end = request;
	connection->to_server_end = &request->next;
	if (connection->to_server_at < sim_now())
		connection->to_server_at = sim_now();
	connection->to_server_at += network_delay() / 4 + 1;
	sim_at(connection->to_server_at, deliver_to_server, connection);
}

/*
 * The servers' ticks.
 */
static void
tick_event(void *arg)
{
	(void) arg;
	if (leader >= 0)
		for (int i = 0; i < nsessions; i++)
			if (sessions[i].alive && sessions[i].expires_at <= sim_now())
			{
				check_expired(sessions[i].instance, sessions[i].id);
				end_session(&sessions[i], NULL);
			}
	sim_at(sim_now() + options.tick_ms * INT64_C(1000), tick_event, NULL);
}

/* The leader asks the followers for the clients that they have heard of. */
static void
touch_event(void *arg)
{
	(void) arg;
	for (int i = 0; leader >= 0 && i < options.nservers; i++)
	{
		if (!is_follower(i))
			continue;
		for (int j = 0; j < nsessions; j++)
		{
			if (servers[i].touched[j] && sessions[j].alive)
				touch(&sessions[j]);
			servers[i].touched[j] = false;
		}
	}
	sim_at(sim_now() + options.tick_ms * INT64_C(500), touch_event, NULL);
}

static void
containers_event(void *arg)
{
	(void) arg;
	if (leader >= 0)
	{
		const char *paths[256];
		int			n = 0;

		for (int i = 0; i < BUCKETS; i++)
			for (Node *node = servers[leader].tree.buckets[i]; node;
				 node = node->next)
				if (is_unused(node) && n < 256)
					paths[n++] = node->path;
		for (int i = 0; i < n; i++)
			remove_directory(paths[i]);
	}
	sim_at(sim_now() + options.containers_ms * INT64_C(1000), containers_event,
		   NULL);
}

/*
 * Leaders.
 */
static void
drop_all(Server *server)
{
	while (server->connections != NULL)
		drop_connection(server->connections);
}

static int
count_members(void)
{
	int			n = 0;

	for (int i = 0; i < options.nservers; i++)
		n += is_follower(i);
	return n;
}

/* A server has all that is in the log. */
static void
catch_up(Server *server)
{
	while (server->applied < ntxns)
		apply_next(server);
	server->apply_at = sim_now();
}

static void
elect(void *arg)
{
	int			best = -1;

	if (arg != (void *) (uintptr_t) reigns || leader >= 0 ||
		count_members() * 2 <= options.nservers)
		return;
	for (int i = 0; i < options.nservers; i++)
		if (is_follower(i) && (best < 0 || sim_chance(400000)))
			best = i;
	leader = best;
	reigns++;
	epoch++;
	commit_at = sim_now();
	sim_trace("server %d leads", leader);
	for (int i = 0; i < options.nservers; i++)
		if (is_follower(i))
		{
			catch_up(&servers[i]);
			servers[i].serves = true;
			servers[i].life++;
		}
	for (int i = 0; i < nsessions; i++)
	{
		sessions[i].connection = NULL;
		if (sessions[i].alive)
		{
			sessions[i].expires_at = 0;
			touch(&sessions[i]);
		}
	}
}

/* There is no leader any more: whoever can elects another. */
static void
lose_leader(void)
{
	leader = -1;
	reigns++;
	epoch++;
	for (int i = 0; i < options.nservers; i++)
		if (is_follower(i))
		{
			servers[i].serves = false;
			drop_all(&servers[i]);
		}
	sim_trace("no leader");
	sim_at(sim_now() + sim_between(ELECTION_US / 10, ELECTION_US), elect,
		   (void *) (uintptr_t) reigns);
}

static void
check_quorum(int gone)
{
	if (leader < 0)
		sim_at(sim_now() + sim_between(ELECTION_US / 10, ELECTION_US), elect,
			   (void *) (uintptr_t) reigns);
	else if (gone == leader || count_members() * 2 <= options.nservers)
		lose_leader();
}

typedef struct Return
{
	int			server;
	uint64_t	life;
} Return;

static Return *
new_return(int server)
{
	Return	   *result = sim_alloc(sizeof(Return));

	result->server = server;
	result->life = ++servers[server].life;
	return result;
}

/* A server is back among the others. */
static void
come_back(void *arg)
{
	Return	   *back = arg;
	Server	   *server = &servers[back->server];

	if (server->life != back->life)
		return;
	drop_all(server);
	server->up = true;
	server->cut_off = false;
	server->life++;
	sim_trace("server %d is back", back->server);
	if (leader < 0)
		check_quorum(-1);
	else
	{
		catch_up(server);
		server->serves = true;
	}
}

/* A server that is cut off has noticed, and serves nobody. */
static void
notice(void *arg)
{
	Return	   *cut = arg;
	Server	   *server = &servers[cut->server];

	if (server->life != cut->life || !server->cut_off)
		return;
	server->serves = false;
	drop_all(server);
}

void
ensemble_stop(int i, int64_t us)
{
	Server	   *server = &servers[i];

	if (!server->up || server->cut_off)
		return;
	sim_trace("server %d stops", i);
	drop_all(server);
	server->up = server->serves = false;
	sim_at(sim_now() + us, come_back, new_return(i));
	check_quorum(i);
}

void
ensemble_partition(int i, int64_t us)
{
	Server	   *server = &servers[i];
	Return	   *back;

	if (!server->up || server->cut_off)
		return;
	sim_trace("server %d is cut off from the others", i);
	server->cut_off = true;
	back = new_return(i);
	sim_at(sim_now() + sim_between(NOTICE_US / 8, NOTICE_US), notice, back);
	sim_at(sim_now() + us, come_back, back);
	check_quorum(i);
}

/* The leader gives up, and another one comes. */
void
ensemble_depose(void)
{
	if (leader >= 0)
		lose_leader();
}

/* End a session at once. */
void
ensemble_expire(int64_t id)
{
	Session    *session = find_session(id);

	if (leader < 0 || session == NULL || !session->alive)
		return;
	check_closed_outside(session->id);
	end_session(session, NULL);
}

/* Which sessions there are, as of the log. */
static void
restore_sessions(void)
{
	for (int i = 0; i < nsessions; i++)
	{
		check_restored(sessions[i].instance);
		sessions[i].alive = false;
		sessions[i].connection = NULL;
	}
	for (int i = 0; i < ntxns; i++)
		for (int j = 0; j < txns[i]->nchanges; j++)
		{
			const Change *change = &txns[i]->changes[j];

			if (change->kind == CHANGE_BEGIN_SESSION ||
				change->kind == CHANGE_END_SESSION)
				find_session(change->owner)->alive =
					change->kind == CHANGE_BEGIN_SESSION;
		}
}

/* Has a session written since the copy? */
static bool
has_lost_writes(int64_t id, int end)
{
	for (int i = ntxns; i < end; i++)
		for (int j = 0; j < txns[i]->nchanges; j++)
			if (txns[i]->author == id &&
				txns[i]->changes[j].kind <= CHANGE_SET)
				return true;
	return false;
}

/* End a session as soon as there is a leader. */
static void
expire_soon(void *arg)
{
	Session    *session = arg;

	if (leader < 0)
		sim_at(sim_now() + 10000, expire_soon, session);
	else
		ensemble_expire(session->id);
}

/*
 * Which sessions have lost writes?  Their instances must notice that if their
 * latest mark is among these (fleet.c); else they cannot know, and the session
 * ends.
 */
static void
lose_writes(int end)
{
	int64_t		latest = ntxns > 0 ? txns[ntxns - 1]->zxid : 0;

	for (int i = 0; i < nsessions; i++)
	{
		Session    *session = &sessions[i];

		if (session->mark > latest)
			session->outdated |= session->alive;
		else
			session->misled |= has_lost_writes(session->id, end);
		if (session->alive && session->misled)
			sim_at(sim_now(), expire_soon, session);
	}
}

/*
 * All servers are stopped, get a copy of what they had so long ago, and are
 * started.  With "epochs_too" they count these from then on; else they go on,
 * as when the files of the epochs are not part of the copy.  Sessions end that
 * have lost a write which their instances cannot notice.
 */
void
ensemble_restore(int64_t age_us, bool epochs_too)
{
	int64_t		then = (sim_now() - age_us) / 1000;
	int			end = ntxns;

	for (int i = 0; i < options.nservers; i++)
		drop_all(&servers[i]);
	while (ntxns > 0 && txns[ntxns - 1]->time > then)
		ntxns--;
	sim_trace("the ensemble is restored from a copy with %d transactions", ntxns);
	if (epochs_too)
		epoch = ntxns > 0 ? (uint64_t) txns[ntxns - 1]->zxid >> 32 : 1;
	restore_sessions();
	lose_writes(end);
	for (int i = 0; i < options.nservers; i++)
	{
		Server	   *server = &servers[i];

		server->up = true;
		server->cut_off = server->serves = false;
		server->life++;
		tree_free(&server->tree);
		tree_create(&server->tree,
					&(Change) {.kind = CHANGE_CREATE,.path = "/",.len = -1}, 0, 0);
		server->applied = 0;
		catch_up(server);
	}
	leader = -1;
	reigns++;
	check_quorum(-1);
}

/* For so long somebody deletes what directories he can. */
void
ensemble_collect(int64_t us)
{
	if (collected_until < sim_now() + us)
		collected_until = sim_now() + us;
}

void
ensemble_lag(int64_t us)
{
	lag_us = us;
}

bool
ensemble_is_whole(void)
{
	return leader >= 0 && count_members() == options.nservers;
}

bool
ensemble_is_up(int server)
{
	return servers[server].up && !servers[server].cut_off;
}

/* The server that an instance is connected to; -1: none. */
int
ensemble_server_of(int instance)
{
	for (int i = 0; i < nsessions; i++)
		if (sessions[i].alive && sessions[i].instance == instance &&
			sessions[i].connection && !sessions[i].connection->server_closed)
			return sessions[i].connection->server;
	return -1;
}

/* A message between a client and a server takes so long at the most. */
int64_t
ensemble_delay(void)
{
	return options.delay_us;
}

/* So far behind a follower is, but for faults. */
int64_t
ensemble_longest_lag(void)
{
	return options.lag_us;
}

int
ensemble_servers(void)
{
	return options.nservers;
}

int
ensemble_sessions(void)
{
	return nsessions;
}

/* How many sessions of an instance there are. */
int
ensemble_sessions_of(int instance)
{
	int			n = 0;

	for (int i = 0; i < nsessions; i++)
		n += sessions[i].alive && sessions[i].instance == instance;
	return n;
}

/* A session has handled the answer to a write of its instance's own znode. */
void
ensemble_mark(int64_t id, int64_t zxid)
{
	find_session(id)->mark = zxid;
}

/* Does an instance still have a session that has lost writes? */
bool
ensemble_is_outdated(int instance)
{
	for (int i = 0; i < nsessions; i++)
		if (sessions[i].alive && sessions[i].outdated &&
			sessions[i].instance == instance)
			return true;
	return false;
}

/* Had it not ended at that time, unless an older copy has ended it? */
bool
ensemble_was_alive(int64_t id, int64_t at)
{
	const Session *session = find_session(id);

	return session == NULL || session->alive || session->ended_at > at;
}

int64_t
ensemble_session(int i)
{
	return sessions[i].alive ? sessions[i].id : 0;
}

/* The one that has applied most of the log. */
static int
newest_server(void)
{
	int			newest = 0;

	for (int i = 1; i < options.nservers; i++)
		if (servers[i].applied > servers[newest].applied)
			newest = i;
	return newest;
}

void
ensemble_visit(NodeVisitor visit, void *arg)
{
	const Server *server = &servers[leader < 0 ? 0 : leader];

	for (int i = 0; i < BUCKETS; i++)
		for (const Node *node = server->tree.buckets[i]; node; node = node->next)
			visit(node->path, node->owner, node->czxid, arg);
}

/*
 * The contenders in a directory: what is of a session, with its number, and
 * the time at which it was created.
 */
void
ensemble_look_at_queue(const char *path, QueueVisitor visit, void *arg)
{
	const Node *directory = find(&servers[newest_server()].tree, path);

	if (directory == NULL)
		return;
	for (const Node *child = directory->children; child; child = child->sibling)
	{
		const char *name = strrchr(child->path, '/') + 1;
		Session    *session = find_session(child->owner);

		if (session != NULL && strlen(name) > 10)
			visit(name, session->instance,
				  strtoll(name + strlen(name) - 10, NULL, 10),
				  child->ctime * 1000, arg);
	}
}

/* Does the instance have a child in this directory, made later than that? */
bool
ensemble_has_new_directory(const char *path, int instance, int64_t since)
{
	const Node *directory = find(&servers[newest_server()].tree, path);

	if (directory == NULL || directory->ctime <= since / 1000)
		return false;
	for (const Node *child = directory->children; child; child = child->sibling)
	{
		const Session *session = find_session(child->owner);

		if (session != NULL && session->instance == instance)
			return true;
	}
	return false;
}

/* The tree, for a person. */
void
ensemble_print(void)
{
	const Server *server = &servers[leader < 0 ? 0 : leader];

	for (int i = 0; i < BUCKETS; i++)
		for (const Node *node = server->tree.buckets[i]; node; node = node->next)
			printf("%s, session %" PRIx64 ", czxid %" PRIx64 ", version %d: %.*s\n",
				   node->path, node->owner, node->czxid, node->version,
				   node->len < 0 ? 0 : node->len, node->data ? node->data : "");
}

/* Watches of znodes below this path. */
int
ensemble_watches(const char *below)
{
	int			n = 0;

	for (int i = 0; i < options.nservers; i++)
		for (Connection *connection = servers[i].connections; connection;
			 connection = connection->next)
			for (WatchEntry *entry = connection->watches; entry;
				 entry = entry->next)
				n += strncmp(entry->path, below, strlen(below)) == 0;
	return n;
}

uint64_t
ensemble_writes(void)
{
	return nwrites;
}

uint64_t
ensemble_requests(void)
{
	return nrequests;
}

void
ensemble_begin(const EnsembleOptions *new_options)
{
	for (int i = 0; i < MAX_SERVERS; i++)
		tree_free(&servers[i].tree);
	memset(servers, 0, sizeof(servers));
	memset(sessions, 0, sizeof(sessions));
	memset(cuts, 0, sizeof(cuts));
	options = *new_options;
	nsessions = 0;
	ntxns = 0;
	leader = 0;
	reigns = epoch = 1;
	commit_at = 0;
	slow_until = 0;
	collected_until = 0;
	lag_us = options.lag_us;
	nwrites = nrequests = 0;
	memset(&counts, 0, sizeof(counts));
	for (int i = 0; i < options.nservers; i++)
	{
		servers[i].up = servers[i].serves = true;
		tree_create(&servers[i].tree,
					&(Change) {.kind = CHANGE_CREATE,.path = "/",.len = -1}, 0, 0);
	}
	sim_at(sim_now() + options.tick_ms * INT64_C(1000), tick_event, NULL);
	/* not in step with the ends of sessions */
	sim_at(sim_now() + sim_between(1, options.tick_ms * INT64_C(500)),
		   touch_event, NULL);
	sim_at(sim_now() + options.containers_ms * INT64_C(1000), containers_event,
		   NULL);
}
