/*-------------------------------------------------------------------------
 *
 * model.h
 *		A ZooKeeper in memory, for random and exhaustive schedules.
 *
 * What a test includes plays its clients on it: each has a ModelSession, and
 * hands it the operations that its state machine sends.  The test decides what
 * happens next, by model_choose(): the server carries an operation out, the
 * client hears an answer, a connection breaks, a session ends.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/model.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MODEL_H
#define ZKLOCK_MODEL_H

#include "core/lock/recipe.h"

#define lengthof(array)	(sizeof(array) / sizeof((array)[0]))

/* ZooKeeper's codes; the state machines only hand them through. */
#define ERROR_NO_NODE		(-101)
#define ERROR_REFUSED		(-102)	/* of the operation under test */

#define MODEL_SESSIONS		3		/* at a time: one of each client */
#define MODEL_NODES			512
#define MODEL_CHANGES		64		/* of one node's or directory's data */
#define MODEL_DIRS			96		/* one after the other, of one place */
#define MODEL_ENTRIES		128
#define MODEL_CHILDREN		256		/* of one directory, at a time */
#define MODEL_WATCHES		64
#define MODEL_NOTES			4096
#define MODEL_CHOICES		256
#define MODEL_DATA_SIZE		64		/* of a node, with the terminator */

#define MODEL_SELF			"."		/* a watched node: the directory itself */

#define FOREIGN				0		/* the session of other clients' nodes */

/* The directories that there may be. */
typedef enum ModelPlace
{
	MODEL_NAME,					/* <name> */
	MODEL_LOCKS,				/* <name>/locks */
	MODEL_PERMITS,				/* <name>/leases */
	MODEL_PLACES
} ModelPlace;

/* The data of a node or directory, with all that it has been. */
typedef struct ModelData
{
	int			n;
	int64_t		zxid[MODEL_CHANGES];	/* when it was set; first: created */
	char		text[MODEL_CHANGES][MODEL_DATA_SIZE];	/* and to what */
} ModelData;

typedef struct ModelNode
{
	char		name[ZNODE_CONTENDER_SIZE];
	int			place;
	int			dir;			/* which of the place's directories */
	int			session;
	bool		contender;
	bool		persistent;
	bool		shared;
	int32_t		sequence;
	int64_t		czxid;
	int64_t		dzxid;			/* 0 while it exists */
	ModelData	data;
	bool		kin;			/* of another contender of its instance */
	bool		orphan;			/* of its session, and of no contender */
	bool		stays;			/* to delete it was refused */
} ModelNode;

typedef struct ModelDirectory
{
	int64_t		czxid;
	int64_t		dzxid;
	int32_t		next;			/* sequence number of the next node */
	bool		used;			/* has had a child */
	ModelData	data;
} ModelDirectory;

/*
 * What a session's connection carries: operations in the order sent, and
 * among them the watch events, where the server puts them.
 */
typedef struct ModelEntry
{
	int			contender;		/* whose it is, of the client's */
	bool		for_lock;		/* the same: of its lock, if it has one */
	bool		is_event;
	bool		deleted;		/* of an event: deleted, not changed */
	bool		in_vain;		/* an UNWATCH of what the library knows not */
	RequestKind kind;
	int			place;
	char		node[ZNODE_CONTENDER_SIZE]; /* "": the directory */
	char		data[MODEL_DATA_SIZE];	/* written or read */
	uint32_t	serial;
	RequestResult result;
	int64_t		czxid;
	bool		ours;
	bool		persistent;		/* what was read is not ephemeral */
	bool		orphan;
	bool		not_empty;		/* RMDIR: refused because of that */
	int64_t		view;			/* how far the answering server was */
	int			nchildren;
	int16_t		children[MODEL_CHILDREN];	/* nodes; -1 - place: a
											 * directory */
} ModelEntry;

/* A watch as the server has it: one for a path and session. */
typedef struct ModelWatch
{
	int			place;
	char		node[ZNODE_CONTENDER_SIZE];
	int			index;			/* of the node or directory */
	int64_t		since;			/* changes up to here were seen with it */
	bool		registered;		/* the client's library knows of it */
	bool		armed;			/* the server does */
	bool		orphaned;		/* nobody could take it back */
} ModelWatch;

/* Whose it is, as the worker has it: the latest to set it. */
typedef struct ModelClaim
{
	int			place;
	char		node[ZNODE_CONTENDER_SIZE];
	int			contender;
	bool		for_lock;
	uint32_t	serial;
} ModelClaim;

typedef struct ModelSession
{
	int			id;
	int			client;			/* number of its client, for notes */
	bool		alive;			/* at the server */
	bool		connected;
	int64_t		view;			/* what its server has applied */
	int64_t		seen;			/* what its client knows to have happened */
	ModelEntry	entries[MODEL_ENTRIES];
	int			nentries;
	int			nready;			/* those with an answer */
	ModelWatch	watches[MODEL_WATCHES];
	int			nwatches;
	ModelClaim	claims[MODEL_WATCHES];
	int			nclaims;
} ModelSession;

/* What a test adds to the model. */
typedef struct ModelHooks
{
	/* the server is about to carry out an operation */
	void		(*executing) (const ModelSession *session,
							  const ModelEntry *entry);
	/* a rule does not hold: print the clients */
	void		(*describe) (void);
	/* the same, but the test does not fail; or NULL */
	void		(*end_trace) (const char *rule);
	/* check the rules of all clients */
	void		(*check_rules) (void);
	/*
	 * a client hears the next answer or event, or that its session has ended
	 */
	void		(*deliver) (ModelSession *session);
	void		(*hear_of_expiry) (ModelSession *session);
	/* so many of the operations that were sent are carried out before */
	void		(*lose_connection) (ModelSession *session, int applied);
	void		(*restart_worker) (ModelSession *session, int applied);
	/*
	 * with nothing on its way, a client does what it has to; true if it does
	 */
	bool		(*act) (ModelSession *session);
	/* the same of those that have no session; or NULL */
	bool		(*others_act) (void);
} ModelHooks;

typedef struct Model
{
	/* the server */
	int64_t		zxid;
	int64_t		root_czxid;		/* of the name's parent; 0: missing */
	int32_t		first[MODEL_PLACES];	/* as if directories had been used */
	ModelNode	nodes[MODEL_NODES];
	int			nnodes;
	int			oldest;			/* no node before this one exists */
	ModelDirectory dirs[MODEL_PLACES][MODEL_DIRS];
	int			ndirs[MODEL_PLACES];
	int			last_session;
	ModelSession *sessions[MODEL_SESSIONS]; /* by client */
	int			nsessions;
	/* what is allowed to happen */
	bool		refusals;
	unsigned	refuse_one_in;	/* how often, then */
	bool		refuse_next;	/* whatever is carried out next */
	bool		negative;		/* the counter's end gives negative numbers */
	/* where choices come from: an odometer, or random numbers */
	bool		explore;
	struct
	{
		unsigned	value;
		unsigned	of;
	}			choices[MODEL_CHOICES];
	int			nchoices;
	int			at_choice;
	uint64_t	random;
	/* how to name a run, and what happened in it */
	const char *title;
	unsigned long run;
	struct
	{
		int			client;
		int			contender;
		const char *what;
		long		number;
	}			notes[MODEL_NOTES];
	int			nnotes;
	const ModelHooks *hooks;
} Model;

/* How often the model came by the places that it is there for. */
typedef struct ModelTally
{
	unsigned long losses;
	unsigned long expirations;
	unsigned long collected;
	unsigned long lagging_reads;
	unsigned long mkdirs;
	unsigned long touched;
	unsigned long unwatched;
	unsigned long list_events;
} ModelTally;

extern Model *const model;
extern ModelTally model_tally;

extern const char *model_op_name(RequestKind kind);

/* runs, choices, and what is printed when a rule does not hold */
extern void model_reset(const ModelHooks *hooks, bool explore);
extern void model_start(const char *title, unsigned long run);
extern void model_note(int client, int contender, const char *what,
					   long number);
extern void model_check(bool holds, const char *rule);
extern void model_check_recipe(const Recipe *recipe);
extern uint64_t model_random(void);
extern void model_make_uuid(uint8_t uuid[ZNODE_UUID_BYTES]);
extern unsigned model_choose(unsigned n);
extern bool model_one_in(unsigned n);
extern bool model_next_schedule(void);

/* the tree */
extern bool model_exists_at(int64_t czxid, int64_t dzxid, int64_t zxid);
extern ModelDirectory *model_directory_at(int place, int64_t zxid);
extern bool model_is_made(int place);
extern int	model_node_at(int place, const char *name, int64_t zxid);
extern int	model_count_at(int place, int64_t zxid);
extern const char *model_data_at(const ModelData *data, int64_t zxid);
extern void model_set_data(ModelData *data, const char *text);
extern void model_make_directory(int place, const char *text);
extern bool model_collect_directory(int place);
extern int	model_make_node(int place, const char *name, bool sequential,
							int session, const char *text);
extern void model_delete_node(int node);

/* sessions */
extern void model_begin_session(ModelSession *session, int client);
extern ModelEntry *model_submit(ModelSession *session, int contender,
								bool for_lock, int place, const Request *op);
extern void model_resubmit(ModelSession *session, const ModelEntry *entry);
extern void model_advance(ModelSession *session, int64_t zxid);
extern void model_execute(ModelSession *session);
extern bool model_hear(ModelSession *session, ModelEntry *entry);
extern void model_answer(const ModelEntry *entry,
						 RequestAnswer *answer,
						 const char *children[MODEL_CHILDREN]);
extern void model_drop_answers(ModelSession *session);
extern void model_lose_connection(ModelSession *session, int applied);
extern void model_reconnect(ModelSession *session, int64_t view);
extern void model_expire(ModelSession *session);
extern void model_forget_all(ModelSession *session);
extern ModelWatch *model_find_watch(ModelSession *session, int place,
									const char *node);
extern ModelClaim *model_find_claim(ModelSession *session, int place,
									const char *node);
extern void model_drop_watch(ModelSession *session, int place,
							 const char *node);
extern int	model_unapplied(const ModelSession *session);

#endif							/* ZKLOCK_MODEL_H */
