/*
 * MariaDB's GET_LOCK and RELEASE_LOCK.  mariadb SOCKET
 *
 * Both are sent in one request of two statements, so that a cycle costs one
 * round trip; with split=1 GET_LOCK is sent, and timed, by itself.  Each
 * client is a thread with a connection of its own.
 */
#include <pthread.h>
#include <mysql.h>

#include "rival.h"

typedef struct Client
{
	pthread_t	thread;
	int			number;
	MYSQL	   *conn;
	Samples		samples;
} Client;

static Request req;
static const char *server;
static pthread_barrier_t ready;

/*
 * The value that the next statement of the request has returned: 1 if it did
 * what it should.
 */
static int
answer(MYSQL *conn)
{
	MYSQL_RES  *res = mysql_store_result(conn);
	MYSQL_ROW	row;
	int			value;

	if (res == NULL)
		die("query failed", mysql_error(conn));
	row = mysql_fetch_row(res);
	if (row == NULL)
		die("query failed", "no row");
	value = row[0] != NULL && row[0][0] == '1';
	mysql_free_result(res);
	return value;
}

static void
request(MYSQL *conn, const char *sql)
{
	if (mysql_real_query(conn, sql, strlen(sql)) != 0)
		die("query failed", mysql_error(conn));
}

/* False if time is over. */
static int
run_cycle(Client *c, const char *name)
{
	int64_t		asked = now_us();
	int64_t		acquired = 0;
	char		get[128];
	char		release[128];
	char		both[256];

	if (asked >= req.end)
		return 0;
	snprintf(get, sizeof(get), "SELECT GET_LOCK('%s', %.6f)", name, (req.end - asked) / 1e6);
	snprintf(release, sizeof(release), "SELECT RELEASE_LOCK('%s')", name);
	if (req.split)
	{
		request(c->conn, get);
		if (!answer(c->conn))
			return 0;
		acquired = now_us();
		request(c->conn, release);
	}
	else
	{
		snprintf(both, sizeof(both), "%s;%s", get, release);
		request(c->conn, both);
		if (!answer(c->conn))
		{
			if (mysql_next_result(c->conn) == 0)
				answer(c->conn);
			return 0;
		}
		if (mysql_next_result(c->conn) != 0)
			die("query failed", mysql_error(c->conn));
	}
	if (!answer(c->conn))
		die("RELEASE_LOCK", "the lock was lost");
	keep_cycle(&c->samples, &req, c->number, asked, acquired ? acquired : now_us(), now_us());
	return 1;
}

static void *
run_client(void *arg)
{
	Client	   *c = arg;
	char		name[64];

	if (pthread_barrier_wait(&ready) == PTHREAD_BARRIER_SERIAL_THREAD)
		start_clock(&req);
	pthread_barrier_wait(&ready);
	for (int cycle = 0;; cycle++)
	{
		snprintf(name, sizeof(name), "%s%d", req.prefix, lock_number(&req, c->number, cycle));
		if (!run_cycle(c, name))
			break;
		if (req.pause)
			usleep(req.pause);
	}
	mysql_thread_end();
	return NULL;
}

static MYSQL *
connect_to_server(void)
{
	MYSQL	   *conn = mysql_init(NULL);

	if (conn == NULL)
		die("mariadb", "out of memory");
	if (mysql_real_connect(conn, NULL, "root", "", NULL, 0, server, CLIENT_MULTI_STATEMENTS) == NULL)
		die("could not connect", mysql_error(conn));
	return conn;
}

int
main(int argc, char **argv)
{
	if (argc != 2)
		die(argv[0], "usage: mariadb SOCKET");
	server = argv[1];
	if (mysql_library_init(0, NULL, NULL) != 0)
		die("mariadb", "could not start the library");

	while (next_request(&req))
	{
		Client	   *clients = calloc(req.clients, sizeof(Client));

		if (strcmp(req.kind, "lock") != 0)
			die("unknown request", req.kind);
		pthread_barrier_init(&ready, NULL, req.clients);
		for (int i = 0; i < req.clients; i++)
		{
			Client	   *c = &clients[i];

			c->number = i;
			c->conn = connect_to_server();
			if (pthread_create(&c->thread, NULL, run_client, c) != 0)
				die("pthread_create", strerror(errno));
		}
		for (int i = 0; i < req.clients; i++)
		{
			pthread_join(clients[i].thread, NULL);
			mysql_close(clients[i].conn);
			print_samples(&clients[i].samples);
		}
		free(clients);
		end_request();
	}
	mysql_library_end();
	return 0;
}
