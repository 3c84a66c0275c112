/*
 * What ZooKeeper's C client can do, with nothing around it: the floor.
 * raw single|create|multi|blind SERVERS
 *
 * single: each lock cycle is a create with the read of the children right
 * behind it, then a delete; as many cycles are in flight as there are clients.
 * create: the same without the read.
 * multi: one flight at a time, which has for all clients the deletes of their
 * last locks and the creates of their next ones in one multi, with the reads
 * behind it.
 * blind: the same without the reads.
 * With flights=2 the clients are divided between two such flights, each of
 * which goes on as soon as its own answers are there.
 *
 * All is done in the library's completion thread.
 *
 * relay, of any: from a delete in one session to the watch in another.
 * write, of any: one write after the other, whatever happens to the servers.
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
	struct Flight *flight;		/* that it belongs to, of multis */
} Client;

static Request req;
static Samples samples;
static zhandle_t *zk;
static Client *clients;
static int	running;			/* clients, or flights, that still go on */
static int	reading;			/* is the queue read behind each create? */
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
	static sem_t ready;			/* posted at each later connection, too */
	zhandle_t  *zh;

	sem_init(&ready, 0, 0);
	zh = zookeeper_init(servers, connected, 10000, NULL, &ready, 0);
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

/* Have those of this request been made by an earlier one? */
static int
directories_made(int count)
{
	static struct
	{
		char		prefix[sizeof(req.prefix)];
		int			count;
	}			made[16];

	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
	{
		if (strcmp(made[i].prefix, req.prefix) == 0 && made[i].count >= count)
			return 1;
		if (made[i].count == 0)
		{
			strcpy(made[i].prefix, req.prefix);
			made[i].count = count;
			break;
		}
	}
	return 0;
}

/* They stay until the end. */
static void
make_directories(void)
{
	int			count = req.locks > req.count ? req.locks : req.count;
	char		path[PATH_SIZE];

	if (directories_made(count))
		return;
	make_room();
	make_directory("/raw");
	for (int i = 0; i < count; i++)
	{
		snprintf(path, sizeof(path), "/raw/%s%d", req.prefix, i);
		make_directory(path);
	}
	wait_for_all();
}

/* Another part of the work is done; true if that was the last one. */
static int
all_done(int *parts)
{
	return __atomic_sub_fetch(parts, 1, __ATOMIC_SEQ_CST) == 0;
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
single_release(Client *c)
{
	c->acquired = now_us();
	check(zoo_adelete(zk, c->node, -1, single_deleted, c), "delete");
}

static void
single_listed(int rc, const struct String_vector *names, const void *data)
{
	check(rc, "get children");
	if (names->count != 1)
		die("get children", "somebody else is in the queue");
	single_release((Client *) data);
}

static void
single_created(int rc, const char *path, const void *data)
{
	Client	   *c = (Client *) data;

	check(rc, "create");
	strcpy(c->node, path);
	if (!reading)
		single_release(c);
}

static void
single_begin(Client *c)
{
	char		path[PATH_SIZE];
	char		node[PATH_SIZE + 16];

	c->asked = now_us();
	if (c->asked >= req.end)
	{
		if (all_done(&running))
			sem_post(&finished);
		return;
	}
	lock_dir(path, c);
	snprintf(node, sizeof(node), "%s/lock-", path);
	check(zoo_acreate(zk, node, "bench", 5, &ZOO_OPEN_ACL_UNSAFE,
					  ZOO_EPHEMERAL | ZOO_SEQUENCE, single_created, c), "create");
	if (reading)
		check(zoo_aget_children(zk, path, 0, single_listed, c), "get children");
}

/* --- multi --- */

typedef struct Flight
{
	Client	   *clients;		/* of this flight */
	int			count;
	int			unread;			/* answers still to come for its reads */
	int64_t		sent;
	zoo_op_t   *ops;
	zoo_op_result_t *results;
	char		(*created)[PATH_SIZE];	/* path to create, of each client */
	char		(*deleted)[PATH_SIZE];	/* path to delete, likewise */
} Flight;

static void flight_leaves(Flight *f);

static void
flight_listed(int rc, const struct String_vector *names, const void *data)
{
	Client	   *c = (Client *) data;

	check(rc, "get children");
	if (names->count != 1)
		die("get children", "somebody else is in the queue");
	c->acquired = now_us();
	if (all_done(&c->flight->unread))
		flight_leaves(c->flight);
}

/* Each client's last lock is released by now, and its next one created. */
static void
flight_done(int rc, const void *data)
{
	Flight	   *f = (Flight *) data;
	int64_t		now = now_us();

	check(rc, "multi");
	for (int i = 0; i < f->count; i++)
	{
		Client	   *c = &f->clients[i];

		if (c->cycle > 1)
			keep_cycle(&samples, &req, c->number, c->asked, c->acquired, now);
		c->asked = f->sent;
		c->acquired = now;		/* unless it is read */
	}
	if (!reading)
		flight_leaves(f);
}

static void
flight_leaves(Flight *f)
{
	int			n = 0;

	if (now_us() >= req.end)
	{
		if (all_done(&running))
			sem_post(&finished);
		return;
	}
	if (req.pause)
		usleep(req.pause);
	f->sent = now_us();
	for (int i = 0; i < f->count; i++)
		if (f->clients[i].cycle > 0)
		{
			strcpy(f->deleted[i], f->clients[i].node);
			zoo_delete_op_init(&f->ops[n++], f->deleted[i], -1);
		}
	for (int i = 0; i < f->count; i++)
	{
		Client	   *c = &f->clients[i];

		lock_dir(f->created[i], c);
		strcat(f->created[i], "/lock-");
		zoo_create_op_init(&f->ops[n++], f->created[i], "bench", 5, &ZOO_OPEN_ACL_UNSAFE,
						   ZOO_EPHEMERAL | ZOO_SEQUENCE, c->node, PATH_SIZE);
		c->cycle++;
	}
	f->unread = f->count;
	check(zoo_amulti(zk, n, f->ops, f->results, flight_done, f), "multi");
	for (int i = 0; reading && i < f->count; i++)
	{
		char		path[PATH_SIZE];

		strcpy(path, f->created[i]);
		*strrchr(path, '/') = '\0';
		check(zoo_aget_children(zk, path, 0, flight_listed, &f->clients[i]), "get children");
	}
}

static void
run_flights(void)
{
	int			n = req.flights < req.clients ? req.flights : req.clients;
	Flight	   *flights = calloc(n, sizeof(*flights));

	for (int i = 0, first = 0; i < n; i++)
	{
		Flight	   *f = &flights[i];
		int			end = (i + 1) * req.clients / n;

		f->clients = &clients[first];
		f->count = end - first;
		f->ops = calloc(2 * f->count, sizeof(*f->ops));
		f->results = calloc(2 * f->count, sizeof(*f->results));
		f->created = calloc(f->count, sizeof(*f->created));
		f->deleted = calloc(f->count, sizeof(*f->deleted));
		for (; first < end; first++)
			clients[first].flight = f;
	}
	running = n;
	for (int i = 0; i < n; i++)
		flight_leaves(&flights[i]);
	sem_wait(&finished);
	for (int i = 0; i < req.clients; i++)
		check(zoo_delete(zk, clients[i].node, -1), "delete");
	for (int i = 0; i < n; i++)
	{
		free(flights[i].ops);
		free(flights[i].results);
		free(flights[i].created);
		free(flights[i].deleted);
	}
	free(flights);
}

static void
run_locks(int multi)
{
	clients = calloc(req.clients, sizeof(*clients));
	make_directories();
	for (int i = 0; i < req.clients; i++)
		clients[i].number = i;
	start_clock(&req);
	if (multi)
		run_flights();
	else
	{
		running = req.clients;
		for (int i = 0; i < req.clients; i++)
			single_begin(&clients[i]);
		sem_wait(&finished);
	}
	free(clients);
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

/* --- write --- */

/*
 * Nothing is sent without a connection: each request wakes the library's
 * thread, which would then try the servers without a pause, as no client
 * should.
 */
static void
run_writes(void)
{
	Client		client = {0};
	int64_t		asked;

	make_directories();
	lock_dir(client.node, &client);
	start_clock(&req);
	while ((asked = now_us()) < req.end)
	{
		int			rc;

		if (zoo_state(zk) != ZOO_CONNECTED_STATE)
		{
			usleep(1000);
			continue;
		}
		rc = zoo_set(zk, client.node, "bench", 5, -1);
		if (rc == ZOK)
			keep_cycle(&samples, &req, 0, asked, now_us(), now_us());
		else if (rc != ZCONNECTIONLOSS && rc != ZOPERATIONTIMEOUT)
			check(rc, "set");
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
	int			multi;

	if (argc != 3)
		die(argv[0], "usage: raw single|create|multi|blind SERVERS");
	reading = strcmp(argv[1], "single") == 0 || strcmp(argv[1], "multi") == 0;
	multi = strcmp(argv[1], "multi") == 0 || strcmp(argv[1], "blind") == 0;
	zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
	sem_init(&finished, 0, 0);
	zk = open_session(argv[2]);
	other = open_session(argv[2]);

	while (next_request(&req))
	{
		if (strcmp(req.kind, "lock") == 0)
			run_locks(multi);
		else if (strcmp(req.kind, "relay") == 0)
			run_relay(other);
		else if (strcmp(req.kind, "write") == 0)
			run_writes();
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
