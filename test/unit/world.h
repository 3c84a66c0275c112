/*-------------------------------------------------------------------------
 *
 * world.h
 *		Instances whose backends take locks, with a detector each; and the
 *		truth about who waits for whom.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/world.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_WORLD_H
#define ZKLOCK_WORLD_H

#include <setjmp.h>

#include "tree.h"

#define WORLD_INSTANCES		8
#define WORLD_BACKENDS		4		/* of each instance */
#define WORLD_LOCKS			10
#define WORLD_SEMAPHORES	2		/* the last of the locks are */
#define WORLD_PERMITS		2
#define WORLD_CONTENDERS	600
#define WORLD_EDGES			12000
#define WORLD_HOLDS			8
#define WORLD_NODES			4000
#define WORLD_ROOT_SIZE		20
#define WORLD_LISTED		320		/* edges of one instance at a time */
#define WORLD_WANTS			2

#define WORLD_TIMEOUT		INT64_C(1000000)	/* deadlock_timeout, us */
#define FOREVER				INT64_MAX

/* All that there have been in a run; steps are those of World.step. */
typedef struct WorldContender
{
	int			cluster;
	int			lock;
	bool		shared;
	bool		permit;			/* <name>/leases/... */
	char		path[NOTE_VERTEX_SIZE];
	int32_t		number;
	bool		granted;		/* and the instance knows */
	bool		noted;			/* its note may have waits */
	NoteWait	waits[NOTE_MAX_WAITS];
	int64_t		birth;
	int64_t		death;
} WorldContender;

typedef enum BackendState
{
	BACKEND_IDLE,
	BACKEND_RUNNING,
	BACKEND_WAITING,			/* for contenders */
	BACKEND_BLOCKED,			/* by another backend of the instance */
	BACKEND_CALLING				/* one that works for it in another instance */
} BackendState;

typedef struct WorldBackend
{
	BackendState state;
	int			pid;
	int64_t		began;
	int			holds[WORLD_HOLDS];	/* contenders */
	int64_t		hold_since[WORLD_HOLDS];
	int			nholds;
	int			wants[WORLD_WANTS]; /* WAITING: contenders */
	int			nwants;
	bool		any;			/* one of them is enough; else all */
	int			blocker;		/* BLOCKED */
	int			lock;			/* the same: in tier 1 for this one; -1: no */
	bool		shared;
	int			locks[WORLD_WANTS]; /* what it takes then: see
									 * world_lock_several() */
	int			nlocks;
	int			remote;			/* CALLING: number of the one called */
	int			employer;		/* number of the one it works for, or -1 */
	int64_t		employed;		/* since then; unique */
	int64_t		wait_since;		/* unique; CALLING, too */
	int64_t		wait_at;		/* time */
	bool		victim;			/* marked: this very wait is to fail, ... */
	bool		requeues;		/* ... or to let the next one in tier 1
								 * ahead */
} WorldBackend;

/* The znode in which an instance tells the edges of a session. */
typedef struct WorldNode
{
	uint64_t	number;			/* 0: there has been none */
	unsigned	scan;			/* the last one that had it */
} WorldNode;

typedef struct WorldInstance
{
	TreeSession session;
	Detector	detector;
	bool		worker;			/* it lives */
	bool		heard;			/* of the end of its session */
	uint32_t	scan;			/* asked for by the detector; 0: none */
	int64_t		wake_at;
	int64_t		scan_at;		/* when to scan by itself */
	WorldBackend backends[WORLD_BACKENDS];
	WorldNode	nodes[2 * WORLD_INSTANCES * WORLD_BACKENDS];
	unsigned	scans;			/* so many of the worker so far */
} WorldInstance;

/* A true edge. */
typedef struct WorldEdge
{
	int			from;			/* vertices */
	int			to;
	bool		works;			/* to a session that the process works for */
	NoteId		hold;
	NoteId		wait;
	uint64_t	chain;
	int64_t		began;
	bool		ahead;			/* who waits is only ahead of who holds, or of
								 * one between, in tier 1 */
	int			alternatives;
	bool		acted;			/* its wait has been made a victim */
	int64_t		birth;
	int64_t		death;
	int64_t		seen;
} WorldEdge;

typedef struct World
{
	int			ninstances;
	WorldInstance instances[WORLD_INSTANCES];
	WorldContender contenders[WORLD_CONTENDERS];
	int			ncontenders;
	WorldEdge	edges[WORLD_EDGES];
	int			nedges;
	int64_t		step;
	int64_t		now;
	int64_t		stamp;			/* last of the unique times */
	uint64_t	random;
	unsigned long run;
	bool		sessions;		/* they work for one another */
	int			roots;			/* the locks are below so many, in turn */
	const char *title;
	/* a mutation: a rule that does not hold ends the run, not the test */
	bool		mutated;
	jmp_buf		violated;
	const char *violation;
	/* what has happened */
	unsigned long acts;
	unsigned long victims;
	unsigned long requeues;
	unsigned long verdicts;
	unsigned long found;		/* true deadlocks that there were at the end */
	int			largest;
	int			lost_workers;	/* in this run */
	VertexNode	nodes[WORLD_NODES];	/* sessions' znodes that there were */
	int			nnodes;
} World;

extern World *const world;

extern unsigned world_dice(unsigned n);
extern bool world_one_in(unsigned n);
extern void world_check(bool holds, const char *rule);

extern void world_write_root(int lock, char root[WORLD_ROOT_SIZE]);
extern void world_reset(const char *title, unsigned long run, int ninstances);
extern void world_end(void);

/* backends */
extern bool world_exists(int contender);
extern bool world_is_semaphore(int lock);
extern WorldBackend *world_backend(int cluster, int backend);
extern bool world_lock(int cluster, int backend, int lock, bool shared);
extern bool world_lock_several(int cluster, int backend, const int *locks,
							   int nlocks, bool any);
extern void world_begin(WorldBackend *backend);
extern bool world_block(int cluster, int backend, int blocker);
extern void world_leave(int cluster, int backend);
extern void world_end_transaction(int cluster, int backend);
extern bool world_learn(int cluster);
extern bool world_release_idle(int cluster);
extern bool world_kill_victim(int cluster);
extern bool world_is_marked(int cluster, NoteId wait);

/* sessions that work for others */
extern int	world_number(int cluster, int backend);
extern bool world_waits_for(int number, int other);
extern int	world_call(int cluster, int backend, int other);
extern bool world_return(int cluster);
extern void world_finish(int cluster, int backend);
extern int	world_session_vertex(int number, bool remote);
extern bool world_is_session(int vertex);
extern bool world_is_remote(int vertex);
extern void world_write_vertex(int vertex, char text[VERTEX_SESSION_SIZE]);
extern int	world_vertex(const char *path);
extern void world_session_path(int cluster, int vertex,
							   char path[NOTE_VERTEX_SIZE]);
extern bool world_is_named(int cluster, int backend);

/* detectors */
extern void world_step(int cluster, DetectorInput *in);
extern int	world_list_edges(int cluster, bool aged,
							 WorldEdge list[WORLD_LISTED]);
extern void world_scan(int cluster, uint32_t scan);
extern bool world_deliver(int cluster);
extern void world_lose_connection(int cluster);
extern void world_reconnect(int cluster, int64_t view);
extern void world_lose_worker(int cluster);
extern void world_expire(int cluster);

/* the truth */
extern void truth_update(void);
extern int	truth_deadlocked(void);
extern void truth_forget_acts(int cluster);
extern void truth_on_victim(const WorldBackend *victim);
extern void truth_on_session_node(const char *path);
extern void truth_on_act_sent(int cluster, const DetectorOp *op);
extern void truth_on_act(const DetectorOp *op, const char *probe);

#endif							/* ZKLOCK_WORLD_H */
