/*
 * What ZooKeeper's C client can do, with nothing around it: the floor.
 * raw single|multi SERVERS
 *
 * single: each lock cycle is a create with the read of the children right
 * behind it, then a delete; as many cycles are in flight as there are clients.
 * multi: one flight at a time, which has for all clients the deletes of their
 * last locks and the creates of their next ones in one multi, with the reads
 * behind it.  All is done in the library's completion thread.
 *
 * relay, of either: from a delete in one session to the watch in another.
 */
#define THREADED
#include <semaphore.h>
#include <zookeeper/zookeeper.h>

#include "rival.h"

#define PATH_SIZE 128
#define IN_FLIGHT 256			/* of requests that are not measured */

typedef struct Client
{
	int			number;
	int			cycle;
	int64_t		asked;
	int64_t		acquired;
	char		node[PATH_SIZE];
} Client;

static Request req;
static Samples samples;
static zhandle_t *zk;
static Client *clients;
static int	running;			/* clients, or parts of a flight, still out */
static sem_t finished;
static char (*held)[PATH_SIZE];
static int	nheld;

static void
check(int rc, const char *what)
{
	if (rc != ZOK)
		die(what, zerror(rc));
}

static void
connected(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	(void) zh, (void) path;
	if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
		sem_post(context);
}

static zhandle_t *
open_session(const char *servers)
{
	sem_t		ready;
	zhandle_t  *zh;

	sem_init(&ready, 0, 0);
	zh = zookeeper_init(servers, connected, 30000, NULL, &ready, 0);
	if (zh == NULL)
		die("zookeeper_init", strerror(errno));
	sem_wait(&ready);
	return zh;
}

static void
lock_dir(char *path, const Client *c)
{
	snprintf(path, PATH_SIZE, "/raw/%s%d", req.prefix, lock_number(&req, c->number, c->cycle));
}

static sem_t room;				/* for requests in flight */

static void
directory_made(int rc, const char *path, const void *data)
{
	(void) path, (void) data;
	if (rc != ZNODEEXISTS)
		check(rc, "create a directory");
	sem_post(&room);
}

static void
make_directory(const char *path)
{
	sem_wait(&room);
	check(zoo_acreate(zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, directory_made, NULL),
		  "create a directory");
}

static void
make_room(void)
{
	sem_init(&room, 0, IN_FLIGHT);
}

static void
wait_for_all(void)
{
	for (int i = 0; i < IN_FLIGHT; i++)
		sem_wait(&room);
}

static void
make_directories(void)
{
	char		path[PATH_SIZE];

	make_room();
	make_directory("/raw");
	for (int i = 0; i < req.locks || i < req.count; i++)
	{
		snprintf(path, sizeof(path), "/raw/%s%d", req.prefix, i);
		make_directory(path);
	}
	wait_for_all();
}

/* --- single --- */

static void single_begin(Client *c);

static void
single_deleted(int rc, const void *data)
{
	Client	   *c = (Client *) data;

	check(rc, "delete");
	keep_cycle(&samples, &req, c->number, c->asked, c->acquired, now_us());
	c->cycle++;
	if (req.pause)
		usleep(req.pause);
	single_begin(c);
}

static void
single_listed(int rc, const struct String_vector *names, const void *data)
{
	Client	   *c = (Client *) data;

	check(rc, "get children");
	if (names->count != 1)
		die("get children", "somebody else is in the queue");
	c->acquired = now_us();
	check(zoo_adelete(zk, c->node, -1, single_deleted, c), "delete");
}

static void
single_created(int rc, const char *path, const void *data)
{
	check(rc, "create");
	strcpy(((Client *) data)->node, path);
}

static void
single_begin(Client *c)
{
	char		path[PATH_SIZE];
	char		node[PATH_SIZE + 16];

	c->asked = now_us();
	if (c->asked >= req.end)
	{
		if (__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST) == 0)
			sem_post(&finished);
		return;
	}
	lock_dir(path, c);
	snprintf(node, sizeof(node), "%s/lock-", path);
	check(zoo_acreate(zk, node, "bench", 5, &ZOO_OPEN_ACL_UNSAFE,
					  ZOO_EPHEMERAL | ZOO_SEQUENCE, single_created, c), "create");
	check(zoo_aget_children(zk, path, 0, single_listed, c), "get children");
}

/* --- multi --- */

static zoo_op_t *ops;
static zoo_op_result_t *results;
static char (*asked_for)[PATH_SIZE];	/* path to create, of each client */
static char (*deleted)[PATH_SIZE];	/* path to delete, likewise */
static int64_t flight_sent;

static void multi_begin(void);

static void
multi_listed(int rc, const struct String_vector *names, const void *data)
{
	Client	   *c = (Client *) data;

	check(rc, "get children");
	if (names->count != 1)
		die("get children", "somebody else is in the queue");
	c->acquired = now_us();
	if (--running == 0)
		multi_begin();
}

/* Whoever had a lock in the flight before this has now released it. */
static void
multi_done(int rc, const void *data)
{
	int64_t		now = now_us();

	(void) data;
	check(rc, "multi");
	for (int i = 0; i < req.clients; i++)
	{
		Client	   *c = &clients[i];

		if (c->cycle > 1)
			keep_cycle(&samples, &req, i, c->asked, c->acquired, now);
		c->asked = flight_sent;
	}
}

static void
multi_begin(void)
{
	int			n = 0;

	if (now_us() >= req.end)
	{
		sem_post(&finished);
		return;
	}
	if (req.pause)
		usleep(req.pause);
	flight_sent = now_us();
	for (int i = 0; i < req.clients; i++)
		if (clients[i].cycle > 0)
		{
			strcpy(deleted[i], clients[i].node);
			zoo_delete_op_init(&ops[n++], deleted[i], -1);
		}
	for (int i = 0; i < req.clients; i++)
	{
		lock_dir(asked_for[i], &clients[i]);
		strcat(asked_for[i], "/lock-");
		zoo_create_op_init(&ops[n++], asked_for[i], "bench", 5, &ZOO_OPEN_ACL_UNSAFE,
						   ZOO_EPHEMERAL | ZOO_SEQUENCE, clients[i].node, PATH_SIZE);
		clients[i].cycle++;
	}
	running = req.clients;
	check(zoo_amulti(zk, n, ops, results, multi_done, NULL), "multi");
	for (int i = 0; i < req.clients; i++)
	{
		char		path[PATH_SIZE];

		strcpy(path, asked_for[i]);
		*strrchr(path, '/') = '\0';
		check(zoo_aget_children(zk, path, 0, multi_listed, &clients[i]), "get children");
	}
}

static void
run_locks(int multi)
{
	clients = calloc(req.clients, sizeof(*clients));
	ops = calloc(2 * req.clients, sizeof(*ops));
	results = calloc(2 * req.clients, sizeof(*results));
	asked_for = calloc(req.clients, sizeof(*asked_for));
	deleted = calloc(req.clients, sizeof(*deleted));

	make_directories();
	for (int i = 0; i < req.clients; i++)
		clients[i].number = i;
	start_clock(&req);
	if (multi)
		multi_begin();
	else
	{
		running = req.clients;
		for (int i = 0; i < req.clients; i++)
			single_begin(&clients[i]);
	}
	sem_wait(&finished);
	for (int i = 0; multi && i < req.clients; i++)
		check(zoo_delete(zk, clients[i].node, -1), "delete");

	free(clients);
	free(ops);
	free(results);
	free(asked_for);
	free(deleted);
}

/* --- relay --- */

typedef struct Watch
{
	int64_t		seen;
	sem_t		fired;
} Watch;

static void
watched(zhandle_t *zh, int type, int state, const char *path, void *context)
{
	Watch	   *w = context;

	(void) zh, (void) state, (void) path;
	if (type != ZOO_DELETED_EVENT)
		return;
	w->seen = now_us();
	sem_post(&w->fired);
}

static void
relay_deleted(int rc, const void *data)
{
	(void) data;
	check(rc, "delete");
}

static void
run_relay(zhandle_t *other)
{
	Watch		watch;

	sem_init(&watch.fired, 0, 0);
	make_directories();
	start_clock(&req);
	while (now_us() < req.end)
	{
		char		path[PATH_SIZE];
		char		node[PATH_SIZE];
		char		data[16];
		int			size = sizeof(data);
		int64_t		deleted_at;

		snprintf(path, sizeof(path), "/raw/%s0/lock-", req.prefix);
		check(zoo_create(zk, path, "bench", 5, &ZOO_OPEN_ACL_UNSAFE,
						 ZOO_EPHEMERAL | ZOO_SEQUENCE, node, sizeof(node)), "create");
		check(zoo_wget(other, node, watched, &watch, data, &size, NULL), "get");
		usleep(req.pause);
		deleted_at = now_us();
		check(zoo_adelete(zk, node, -1, relay_deleted, NULL), "delete");
		sem_wait(&watch.fired);
		keep_cycle(&samples, &req, 0, deleted_at, watch.seen, watch.seen);
	}
}

/* --- hold --- */

static void
hold_created(int rc, const char *path, const void *data)
{
	check(rc, "create");
	strcpy((char *) data, path);
	sem_post(&room);
}

static void
hold_deleted(int rc, const void *data)
{
	(void) data;
	check(rc, "delete");
	sem_post(&room);
}

static void
run_hold(void)
{
	make_directories();
	make_room();
	held = realloc(held, (nheld + req.count) * sizeof(*held));
	for (int i = 0; i < req.count; i++)
	{
		char		path[PATH_SIZE];

		sem_wait(&room);
		snprintf(path, sizeof(path), "/raw/%s%d/lock-", req.prefix, i);
		check(zoo_acreate(zk, path, "bench", 5, &ZOO_OPEN_ACL_UNSAFE,
						  ZOO_EPHEMERAL | ZOO_SEQUENCE, hold_created, held[nheld++]), "create");
	}
	wait_for_all();
}

static void
run_drop(void)
{
	make_room();
	while (nheld > 0)
	{
		sem_wait(&room);
		check(zoo_adelete(zk, held[--nheld], -1, hold_deleted, NULL), "delete");
	}
	wait_for_all();
}

int
main(int argc, char **argv)
{
	zhandle_t  *other;

	if (argc != 3)
		die(argv[0], "usage: raw single|multi SERVERS");
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	sem_init(&finished, 0, 0);
	zk = open_session(argv[2]);
	other = open_session(argv[2]);

	while (next_request(&req))
	{
		if (strcmp(req.kind, "lock") == 0)
			run_locks(strcmp(argv[1], "multi") == 0);
		else if (strcmp(req.kind, "relay") == 0)
			run_relay(other);
		else if (strcmp(req.kind, "hold") == 0)
			run_hold();
		else if (strcmp(req.kind, "drop") == 0)
			run_drop();
		else
			die("unknown request", req.kind);
		print_samples(&samples);
		end_request();
	}
	zookeeper_close(other);
	zookeeper_close(zk);
	return 0;
}
