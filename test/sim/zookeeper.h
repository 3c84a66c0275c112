/*-------------------------------------------------------------------------
 *
 * zookeeper.h
 *		The simulated ensemble: what clients send to it and hear from it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/zookeeper.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_ZOOKEEPER_H
#define SIM_ZOOKEEPER_H

#include <zookeeper/zookeeper.h>

#include "sim.h"

#define MAX_SERVERS		5

typedef enum RequestKind
{
	REQUEST_CONNECT,
	REQUEST_PING,
	REQUEST_CLOSE,
	REQUEST_SET_WATCHES,
	REQUEST_REMOVE_WATCHES,
	REQUEST_EXISTS,
	REQUEST_GET,
	REQUEST_GET_ACL,
	REQUEST_CHILDREN,
	REQUEST_SYNC,
	REQUEST_CREATE,
	REQUEST_DELETE,
	REQUEST_SET,
	REQUEST_SET_ACL,
	REQUEST_CHECK,
	REQUEST_MULTI
} RequestKind;

typedef struct Connection Connection;

/* What a server answers, or tells of a watch that has fired. */
typedef struct Reply
{
	struct Reply *next;
	RequestKind kind;
	uint32_t	xid;			/* of the request; 0: an event */
	int			err;
	int64_t		zxid;
	int			event;			/* ZOO_*_EVENT */
	const char *path;			/* of an event; created */
	const char *data;
	int			len;			/* -1: no data */
	struct Stat stat;
	const char **children;
	int			nchildren;
	struct Reply *results;		/* of a multi, an array */
	int			nresults;
	int64_t		session;		/* of a connect; 0: it has expired */
	char		passwd[16];
	int			timeout_ms;
} Reply;

typedef struct Request
{
	struct Request *next;
	RequestKind kind;
	uint32_t	xid;
	Connection *connection;
	int64_t		session;
	char		passwd[16];
	int			timeout_ms;		/* of a connect */
	int64_t		last_zxid;		/* of a connect; what SET_WATCHES is about */
	const char *path;
	const char *data;
	int			len;
	int			flags;			/* of a create: its mode */
	int			version;
	bool		watch;
	int			watch_type;		/* to be removed */
	struct Request *ops;		/* of a multi, an array */
	int			nops;
	const char **watches[3];	/* data, exist, child */
	int			nwatches[3];

	/* the server's */
	bool		forwarded;
	Reply	   *reply;			/* NULL: not answered yet */
} Request;

/* The ensemble. */
typedef struct EnsembleOptions
{
	int			nservers;
	int			tick_ms;
	int64_t		lag_us;			/* a follower is so far behind at the most */
	int64_t		delay_us;		/* a message takes so long at the most */
	int			containers_ms;	/* how often empty containers are removed */
	int32_t		first_number;	/* of the children of a new directory */
} EnsembleOptions;

extern void ensemble_begin(const EnsembleOptions *options);
extern int	ensemble_servers(void);
extern int	ensemble_server_of(int instance);
extern int64_t ensemble_delay(void);
extern int64_t ensemble_longest_lag(void);
extern bool ensemble_is_up(int server);
extern void ensemble_stop(int server, int64_t us);
extern void ensemble_partition(int server, int64_t us);
extern void ensemble_depose(void);
extern void ensemble_expire(int64_t session);
extern void ensemble_restore(int64_t age_us, bool epochs_too);
extern void ensemble_collect(int64_t us);
extern void ensemble_lag(int64_t us);
extern bool ensemble_is_whole(void);
extern int64_t ensemble_session(int i);
extern int	ensemble_sessions(void);
extern int	ensemble_sessions_of(int instance);
extern bool ensemble_is_outdated(int instance);
extern void ensemble_mark(int64_t id, int64_t zxid);
extern bool ensemble_was_alive(int64_t session, int64_t at);

/* For checkers: the tree as it is for the leader. */
typedef void (*NodeVisitor) (const char *path, int64_t owner, int64_t czxid,
							 void *arg);
extern void ensemble_visit(NodeVisitor visit, void *arg);
typedef void (*QueueVisitor) (const char *child, int instance, int64_t number,
							  int64_t created, void *arg);
extern void ensemble_look_at_queue(const char *path, QueueVisitor visit,
								   void *arg);
extern bool ensemble_has_new_directory(const char *path, int instance,
									   int64_t since);
extern void ensemble_print(void);
extern int	ensemble_watches(const char *below);
extern uint64_t ensemble_writes(void);
extern uint64_t ensemble_requests(void);

/* What the servers have been asked in this schedule. */
typedef struct RequestCounts
{
	uint64_t	contenders;		/* that were created */
	uint64_t	queues;			/* that were read */
	uint64_t	heartbeats;		/* writes that change nothing */
	uint64_t	members;		/* written, in %clusters */
	uint64_t	all;			/* but for pings */
} RequestCounts;

extern RequestCounts ensemble_counts(void);

/* A connection, from the client's side. */
struct Connection
{
	int			server;
	bool		closed;			/* for the client; nothing is delivered */
	bool		server_closed;	/* for the server */
	bool		silent;			/* nothing gets through, and nobody is told */
	int64_t		slow_until;		/* messages take long */
	int64_t		slow_us;
	int64_t		session;
	void	   *client;			/* the library's handle */

	/* the network's */
	Request    *to_server;
	Request   **to_server_end;
	Reply	   *to_client;
	Reply	  **to_client_end;
	int64_t		to_server_at;	/* the last is delivered then */
	int64_t		to_client_at;

	/* the server's */
	Request    *pending;
	Request   **pending_end;
	bool		connected;		/* the session has been granted */
	Connection *next;			/* of the same server */
	struct WatchEntry *watches;
};

extern Connection *connection_new(int server, void *client);
extern void connection_send(Connection *connection, Request *request);
extern void connection_close(Connection *connection);
extern void network_cut(int server, int instance, int64_t us, bool silently);
extern bool network_is_cut(int server, int instance);
extern void network_slow(int64_t us, int64_t delay_us);
extern int64_t network_delay(void);

/* library.c */
extern void library_hear(void *client, Connection *connection, Reply *reply);
extern void library_lost(void *client, Connection *connection);
extern bool library_is_frozen(const void *client, int64_t *until);
extern int	library_instance(const void *client);
extern int	library_watches(const char *below);
extern void library_delay(int instance, int64_t us);
extern void library_hang(int instance, int64_t us);

#endif							/* SIM_ZOOKEEPER_H */
