/*
 * The lock that most people have in Redis: SET key token NX PX, and a script
 * that deletes the key if it still has the token.  redis PORT
 *
 * Whoever does not get it asks again after RETRY_US, or a little less or more.
 * Each client is a thread with a connection of its own.
 */
#include <pthread.h>
#include <hiredis/hiredis.h>

#include "rival.h"
#include "shop.h"

#define LEASE_MS "30000"
#define RETRY_US 1000

typedef struct Client
{
	pthread_t	thread;
	int			number;
	unsigned	seed;
	redisContext *redis;
	PGconn	   *shop;
	char		token[32];
	Samples		samples;
} Client;

static const char release_script[] =
	"if redis.call('get', KEYS[1]) == ARGV[1] then"
	" return redis.call('del', KEYS[1]) else return 0 end";

static Request req;
static char release_sha[64];
static pthread_barrier_t ready;

/* Runs a command; true if it did something. */
static int
command(redisContext *redis, int argc, const char **argv)
{
	redisReply *reply = redisCommandArgv(redis, argc, argv, NULL);
	int			done;

	if (reply == NULL)
		die("redis", redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		die("redis", reply->str);
	done = reply->type != REDIS_REPLY_NIL &&
		!(reply->type == REDIS_REPLY_INTEGER && reply->integer == 0);
	freeReplyObject(reply);
	return done;
}

/* False if time is over. */
static int
acquire(Client *c, const char *key)
{
	const char *set[] = {"SET", key, c->token, "NX", "PX", LEASE_MS};

	while (!command(c->redis, 6, set))
	{
		if (now_us() >= req.end)
			return 0;
		usleep(RETRY_US / 2 + rand_r(&c->seed) % RETRY_US);
	}
	return 1;
}

static void
release(Client *c, const char *key)
{
	const char *evalsha[] = {"EVALSHA", release_sha, "1", key, c->token};

	if (!command(c->redis, 5, evalsha))
		die("redis", "the lock was lost");
}

static void
run_cycles(Client *c)
{
	for (int cycle = 0;; cycle++)
	{
		char		key[64];
		int64_t		asked = now_us();
		int64_t		acquired;

		if (asked >= req.end)
			return;
		snprintf(key, sizeof(key), "%s%d", req.prefix, lock_number(&req, c->number, cycle));
		if (!acquire(c, key))
			return;
		acquired = now_us();
		release(c, key);
		keep_cycle(&c->samples, &req, c->number, asked, acquired, now_us());
		if (req.pause)
			usleep(req.pause);
	}
}

static void
run_sales(Client *c)
{
	for (int sold = 1; sold && now_us() < req.end;)
	{
		int64_t		asked = now_us();
		int64_t		acquired;
		PGresult   *res;

		if (!acquire(c, "lamp"))
			return;
		acquired = now_us();
		res = PQexecPrepared(c->shop, "sell", 0, NULL, NULL, NULL, 0);
		release(c, "lamp");
		if (PQresultStatus(res) != PGRES_TUPLES_OK)
			die("sale failed", PQerrorMessage(c->shop));
		sold = PQgetvalue(res, 0, 0)[0] == 't';
		PQclear(res);
		if (sold)
			keep_sample(&c->samples, c->number, asked, acquired, now_us());
	}
}

static void *
run_client(void *arg)
{
	Client	   *c = arg;

	if (pthread_barrier_wait(&ready) == PTHREAD_BARRIER_SERIAL_THREAD)
		start_clock(&req);
	pthread_barrier_wait(&ready);
	if (c->shop)
		run_sales(c);
	else
		run_cycles(c);
	return NULL;
}

static redisContext *
connect_to_redis(int port)
{
	redisContext *redis = redisConnect("127.0.0.1", port);

	if (redis == NULL || redis->err)
		die("redis", redis ? redis->errstr : "out of memory");
	return redis;
}

int
main(int argc, char **argv)
{
	redisContext *redis;
	redisReply *reply;
	int			port;

	if (argc != 2)
		die(argv[0], "usage: redis PORT");
	port = atoi(argv[1]);
	redis = connect_to_redis(port);
	reply = redisCommand(redis, "SCRIPT LOAD %s", release_script);
	if (reply == NULL || reply->type != REDIS_REPLY_STRING)
		die("redis", "could not load the script");
	snprintf(release_sha, sizeof(release_sha), "%s", reply->str);
	freeReplyObject(reply);

	while (next_request(&req))
	{
		Client	   *clients = calloc(req.clients, sizeof(Client));
		int			selling = strcmp(req.kind, "sell") == 0;

		if (!selling && strcmp(req.kind, "lock") != 0)
			die("unknown request", req.kind);
		pthread_barrier_init(&ready, NULL, req.clients);
		for (int i = 0; i < req.clients; i++)
		{
			Client	   *c = &clients[i];

			c->number = c->seed = i;
			snprintf(c->token, sizeof(c->token), "%d-%d", (int) getpid(), i);
			c->redis = connect_to_redis(port);
			if (selling)
				c->shop = connect_to_shop(i);
			if (pthread_create(&c->thread, NULL, run_client, c) != 0)
				die("pthread_create", strerror(errno));
		}
		for (int i = 0; i < req.clients; i++)
		{
			pthread_join(clients[i].thread, NULL);
			redisFree(clients[i].redis);
			PQfinish(clients[i].shop);
			print_samples(&clients[i].samples);
		}
		free(clients);
		end_request();
	}
	redisFree(redis);
	return 0;
}
