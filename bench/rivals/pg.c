/*
 * zklock, PostgreSQL's own advisory locks, and leases in a table: pg WAY DIR
 * PORT...
 *
 * The instances listen on a socket in DIR.  All connections are driven by one
 * loop over epoll, as pgbench does it.  A transaction is BEGIN, the lock,
 * COMMIT, as prepared statements sent in one go (pipeline mode), so that it
 * costs one round trip; with split=1 BEGIN goes ahead, and the lock is asked
 * for, and timed, by itself.
 *
 * Ways "claim-..." and "lease-...": each client has a claim, or a lease in a
 * table, from its connect on.  A cycle is its renewal, by itself, or a
 * transaction that changes one row under it.
 */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/epoll.h>

#include "rival.h"
#include "shop.h"

#define CONNECTORS 8			/* threads that connect clients */
#define HELD_AT_ONCE 250		/* by zk_lock_all, which takes up to 500 */

/*
 * What the clients do; each statement has the lock's name as $1, unless said.
 */
typedef struct Way
{
	const char *name;
	const char *lock;			/* $1: the token, if there is one */
	const char *token;			/* run at the connect, returns a token */
	const char *end;			/* run ahead of the disconnect; $1: the
								 * token */
	const char *prepare;		/* run at the connect, for the work */
	const char *work;			/* to do under the lock, or NULL */
	int			alone;			/* the lock, without BEGIN and COMMIT */
} Way;

#define CLAIM		.token = "SELECT zk_claim($1, '1 min')", .end = "SELECT zk_end_claim($1)"
#define LEASE		.token = "INSERT INTO lease VALUES ($1, gen_random_uuid()," \
	" clock_timestamp() + '1 h') RETURNING token", .end = "DELETE FROM lease WHERE token = $1"
#define LEASE_LOCK	"UPDATE lease SET expires_at = clock_timestamp() + '1 h'" \
	" WHERE token = $1 AND expires_at > clock_timestamp() RETURNING true"
#define WORK		.prepare = "INSERT INTO work VALUES ($1, 0) ON CONFLICT DO NOTHING", \
	.work = "UPDATE work SET n = n + 1 WHERE name = $1"

static const Way ways[] = {
	{"zklock", .lock = "SELECT zk_lock($1)"},
	{"advisory", .lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"},
	{"claim-renew", .lock = "SELECT zk_renew_claim($1)", CLAIM, .alone = 1},
	{"claim-use", .lock = "SELECT zk_use_claim($1)", CLAIM, WORK},
	{"lease-renew", .lock = LEASE_LOCK, LEASE, .alone = 1},
	{"lease-use", .lock = LEASE_LOCK, LEASE, WORK},
	{NULL}
};

typedef enum Step
{
	BEGINNING,					/* BEGIN alone is out */
	LOCKING,					/* the lock alone is out */
	ENDING,						/* all the rest is out */
	PAUSING,
	GONE
} Step;

typedef struct Client
{
	PGconn	   *conn;
	int			socket;			/* of a connection that is being closed */
	int			number;
	char	   *token;			/* or NULL */
	Step		step;
	int			cycle;
	int64_t		asked;
	int64_t		acquired;
	int64_t		due;			/* end of the pause */
	int			sold_out;
} Client;

static const Way *way;
static int	selling;
static Client *clients;
static int	gone;				/* how many of them are */
static const char *dir;
static char **ports;
static Request req;
static Samples samples;

static void
check(PGconn *conn, PGresult *res)
{
	switch (PQresultStatus(res))
	{
		case PGRES_COMMAND_OK:
		case PGRES_TUPLES_OK:
		case PGRES_PIPELINE_SYNC:
			return;
		default:
			die("query failed", PQerrorMessage(conn));
	}
}

static void
run(PGconn *conn, const char *sql)
{
	PGresult   *res = PQexec(conn, sql);

	check(conn, res);
	PQclear(res);
}

static void
prepare(PGconn *conn, const char *name, const char *sql)
{
	PGresult   *res = PQprepare(conn, name, sql, 0, NULL);

	check(conn, res);
	PQclear(res);
}

static PGconn *
connect_to(int instance)
{
	char		conninfo[512];
	PGconn	   *conn;

	snprintf(conninfo, sizeof(conninfo),
			 "host=%s port=%s user=postgres dbname=bench", dir, ports[instance]);
	conn = PQconnectdb(conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		die("could not connect", PQerrorMessage(conn));
	prepare(conn, "begin", "BEGIN");
	prepare(conn, "lock", way->lock);
	if (way->work)
		prepare(conn, "work", way->work);
	prepare(conn, "commit", "COMMIT");
	return conn;
}

/* Run a statement with an argument, and return its value, or NULL. */
static char *
run_with(PGconn *conn, const char *sql, const char *argument)
{
	PGresult   *res = PQexecParams(conn, sql, 1, NULL, &argument, NULL, NULL, 0);
	char	   *value = NULL;

	check(conn, res);
	if (PQntuples(res) == 1)
		value = strdup(PQgetvalue(res, 0, 0));
	PQclear(res);
	return value;
}

/* A random number from 0 to 1, exclusive. */
static double
chance(void)
{
	static uint64_t seed = UINT64_C(88172645463325252);

	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return ((double) (seed >> 11) + 0.5) / (double) (UINT64_C(1) << 53);
}

/*
 * A lock of the client's instance, or of another one: each instance has as
 * many, the most used first.  Between them Zipf's law is approximated by its
 * integral.
 */
static int
zipf_lock_number(int client)
{
	int			instance = client % req.instances;
	int			rank = (int) pow(req.locks / req.instances + 1, chance()) - 1;

	if (req.instances > 1 && 100 * chance() >= req.home)
		instance = (instance + 1 + (int) ((req.instances - 1) * chance())) % req.instances;
	return instance + req.instances * rank;
}

/* The name of the lock that a client takes next. */
static void
name_of(const Client *c, char *name, size_t size)
{
	snprintf(name, size, "%s%d", req.prefix,
			 req.home > 0 ? zipf_lock_number(c->number) :
			 lock_number(&req, c->number, c->cycle));
}

/* What a client has from its connect on. */
static void
begin_client(Client *c)
{
	char		name[64];

	name_of(c, name, sizeof(name));
	if (way->prepare)
		free(run_with(c->conn, way->prepare, name));
	if (way->token)
		c->token = run_with(c->conn, way->token, name);
}

static void
send_statement(PGconn *conn, const char *name, const char *argument)
{
	if (!PQsendQueryPrepared(conn, name, argument != NULL, &argument, NULL, NULL, 0))
		die("could not send", PQerrorMessage(conn));
}

/* What is sent fits into the socket's buffer. */
static void
sync_and_flush(PGconn *conn)
{
	if (!PQpipelineSync(conn) || PQflush(conn) != 0)
		die("could not send", PQerrorMessage(conn));
}

static void
send_lock(Client *c)
{
	char		name[64];

	name_of(c, name, sizeof(name));
	c->asked = now_us();
	send_statement(c->conn, "lock", c->token ? c->token : name);
	if (way->work)
		send_statement(c->conn, "work", name);
}

static void
begin_cycle(Client *c)
{
	if (c->sold_out || now_us() >= req.end)
	{
		c->step = GONE;
		gone++;
		return;
	}
	if (selling)
	{
		c->step = ENDING;
		c->asked = now_us();
		send_statement(c->conn, "sell", NULL);
	}
	else if (way->alone)
	{
		c->step = ENDING;
		send_lock(c);
	}
	else if (req.split)
	{
		c->step = BEGINNING;
		send_statement(c->conn, "begin", NULL);
	}
	else
	{
		c->step = ENDING;
		send_statement(c->conn, "begin", NULL);
		send_lock(c);
		send_statement(c->conn, "commit", NULL);
	}
	sync_and_flush(c->conn);
}

/* All that was sent has been answered. */
static void
next_step(Client *c)
{
	int64_t		now = now_us();

	switch (c->step)
	{
		case BEGINNING:
			c->step = LOCKING;
			send_lock(c);
			sync_and_flush(c->conn);
			break;
		case LOCKING:
			c->step = ENDING;
			c->acquired = now;
			send_statement(c->conn, "commit", NULL);
			sync_and_flush(c->conn);
			break;
		default:
			if (!req.split)
				c->acquired = now;
			if (!selling)
				keep_cycle(&samples, &req, c->number, c->asked, c->acquired, now);
			else if (!c->sold_out)
				keep_sample(&samples, c->number, c->asked, c->acquired, now);
			c->cycle++;
			c->step = PAUSING;
			c->due = now + req.pause;
			if (req.pause == 0)
				begin_cycle(c);
	}
}

/* Read what there is; true if that is all up to the sync. */
static int
read_answers(Client *c)
{
	int			synced = 0;

	if (!PQconsumeInput(c->conn))
		die("connection lost", PQerrorMessage(c->conn));
	while (!synced && !PQisBusy(c->conn))
	{
		PGresult   *res = PQgetResult(c->conn);

		if (res == NULL)
			continue;			/* the end of one statement's results */
		check(c->conn, res);
		if (selling && PQresultStatus(res) == PGRES_TUPLES_OK)
			c->sold_out = PQgetvalue(res, 0, 0)[0] == 'f';
		else if (c->token && PQresultStatus(res) == PGRES_TUPLES_OK &&
				 (PQntuples(res) == 0 || PQgetvalue(res, 0, 0)[0] == 'f'))
			die(way->name, "it has ended");
		synced = PQresultStatus(res) == PGRES_PIPELINE_SYNC;
		PQclear(res);
	}
	return synced;
}

/* Every CONNECTORS-th client, from this one on. */
static void *
connect_some(void *first)
{
	for (int i = (intptr_t) first; i < req.clients; i += CONNECTORS)
	{
		clients[i].number = i;
		clients[i].conn = selling ? connect_to_shop(i) : connect_to(req.instance + i % req.instances);
		if (!selling)
			begin_client(&clients[i]);
	}
	return NULL;
}

static void
connect_all(void)
{
	pthread_t	threads[CONNECTORS];

	clients = calloc(req.clients, sizeof(Client));
	for (int i = 0; i < CONNECTORS; i++)
		if (pthread_create(&threads[i], NULL, connect_some, (void *) (intptr_t) i) != 0)
			die("pthread_create", strerror(errno));
	for (int i = 0; i < CONNECTORS; i++)
		pthread_join(threads[i], NULL);
}

/*
 * Until the backends are gone, which takes a while if they are many, and would
 * disturb what is measured next.  A backend closes its socket last.
 */
static void
disconnect_all(void)
{
	char		rest[1024];

	for (int i = 0; i < req.clients; i++)
	{
		if (clients[i].token)
		{
			PQexitPipelineMode(clients[i].conn);
			PQsetnonblocking(clients[i].conn, 0);
			free(run_with(clients[i].conn, way->end, clients[i].token));
			free(clients[i].token);
		}
		clients[i].socket = dup(PQsocket(clients[i].conn));
		PQfinish(clients[i].conn);
	}
	for (int i = 0; i < req.clients; i++)
	{
		fcntl(clients[i].socket, F_SETFL, 0);	/* libpq's do not block */
		while (read(clients[i].socket, rest, sizeof(rest)) > 0)
			;
		close(clients[i].socket);
	}
	free(clients);
}

static void
run_clients(void)
{
	int			ep = epoll_create1(0);

	selling = strcmp(req.kind, "sell") == 0;
	gone = 0;
	connect_all();
	for (int i = 0; i < req.clients; i++)
	{
		Client	   *c = &clients[i];
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};

		PQsetnonblocking(c->conn, 1);
		PQenterPipelineMode(c->conn);
		epoll_ctl(ep, EPOLL_CTL_ADD, PQsocket(c->conn), &event);
	}

	start_clock(&req);
	for (int i = 0; i < req.clients; i++)
		begin_cycle(&clients[i]);
	while (gone < req.clients)
	{
		struct epoll_event events[64];
		int			n;

		/* pauses are some ms long */
		n = epoll_wait(ep, events, 64, req.pause ? 1 : 1000);
		for (int i = 0; i < n; i++)
			if (read_answers(events[i].data.ptr))
				next_step(events[i].data.ptr);
		for (int i = 0; req.pause && i < req.clients; i++)
			if (clients[i].step == PAUSING && now_us() >= clients[i].due)
				begin_cycle(&clients[i]);
	}
	disconnect_all();
	close(ep);
}

/*
 * From COMMIT in one instance to the grant in the other, back and forth.  The
 * pause is for the waiter to get into its place.
 */
static void
run_relay(void)
{
	PGconn	   *conn[2] = {connect_to(0), connect_to(1)};
	const char *name = req.prefix;
	int			holder = 0;

	start_clock(&req);
	run(conn[0], "BEGIN");
	PQclear(PQexecPrepared(conn[0], "lock", 1, &name, NULL, NULL, 0));
	while (now_us() < req.end)
	{
		PGconn	   *giver = conn[holder];
		PGconn	   *taker = conn[1 - holder];
		PGresult   *res;
		int64_t		committed;

		run(taker, "BEGIN");
		send_statement(taker, "lock", name);
		PQflush(taker);
		usleep(req.pause);

		committed = now_us();
		send_statement(giver, "commit", NULL);
		PQflush(giver);
		while ((res = PQgetResult(taker)) != NULL)
		{
			check(taker, res);
			PQclear(res);
		}
		keep_cycle(&samples, &req, 1 - holder, committed, now_us(), now_us());
		while ((res = PQgetResult(giver)) != NULL)
			PQclear(res);
		holder = 1 - holder;
	}
	PQfinish(conn[0]);
	PQfinish(conn[1]);
}

/* --- hold --- */

static PGconn **held;			/* session that holds locks, of each
								 * instance */

/* Are there no more locks to be had (53200)? */
static int
is_full(PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	return state != NULL && strcmp(state, "53200") == 0;
}

/*
 * Hold that many more locks in one session, until "drop", or as many as can be
 * had: then some are given back, for those that are to be measured.
 */
static void
run_hold(void)
{
	const char *lock_some =
		"SELECT zk_lock_all(array_agg('%s' || i), session => true)"
		" FROM generate_series(%d, %d) i";
	const char *unlock_some =
		"SELECT bool_and(zk_unlock('%s' || i)) FROM generate_series(%d, %d) i";
	PGconn	   *conn = held[req.instance];
	char		sql[256];
	int			nheld = 0;

	if (conn == NULL)
		conn = held[req.instance] = connect_to(req.instance);
	while (nheld < req.count)
	{
		int			end = nheld + HELD_AT_ONCE;
		PGresult   *res;

		if (end > req.count)
			end = req.count;
		snprintf(sql, sizeof(sql), lock_some, req.prefix, nheld + 1, end);
		res = PQexec(conn, sql);
		if (is_full(res) && nheld > 0)
		{
			PQclear(res);
			snprintf(sql, sizeof(sql), unlock_some, req.prefix,
					 nheld - HELD_AT_ONCE + 1, nheld);
			run(conn, sql);
			nheld -= HELD_AT_ONCE;
			break;
		}
		check(conn, res);
		PQclear(res);
		nheld = end;
	}
	keep_sample(&samples, nheld, 0, 0, 0);
}

static void
run_drop(void)
{
	PQfinish(held[req.instance]);
	held[req.instance] = NULL;
}

int
main(int argc, char **argv)
{
	if (argc < 4)
		die(argv[0], "usage: pg WAY DIR PORT...");
	for (way = ways; way->name && strcmp(way->name, argv[1]) != 0; way++)
		;
	if (way->name == NULL)
		die(argv[1], "there is no such way");
	dir = argv[2];
	ports = argv + 3;
	held = calloc(argc, sizeof(*held));

	while (next_request(&req))
	{
		if (strcmp(req.kind, "lock") == 0 || strcmp(req.kind, "sell") == 0)
			run_clients();
		else if (strcmp(req.kind, "relay") == 0)
			run_relay();
		else if (strcmp(req.kind, "hold") == 0)
			run_hold();
		else if (strcmp(req.kind, "drop") == 0)
			run_drop();
		else
			die("unknown request", req.kind);
		print_samples(&samples);
		end_request();
	}
	return 0;
}
