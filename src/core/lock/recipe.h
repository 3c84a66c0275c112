/*-------------------------------------------------------------------------
 *
 * recipe.h
 *		The ZooKeeper lock recipe as a pure state machine.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/recipe.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_RECIPE_H
#define ZKLOCK_RECIPE_H

#include "core/lock/znode.h"
#include "core/request.h"

typedef enum RecipeState
{
	RECIPE_NONE,				/* no contender, and none wanted */
	RECIPE_ENTERING,			/* create is out, its answer not in */
	RECIPE_CANCELLING,			/* the same, but no longer wanted */
	RECIPE_SEARCHING,			/* fate of the create unknown: list is out */
	RECIPE_ABANDONING,			/* the same, but no longer wanted */
	RECIPE_READING,				/* our node exists; children are being read */
	RECIPE_WATCHING,			/* queued behind the predecessor */
	RECIPE_OWNER,				/* we own the lock */
	RECIPE_REQUEUEING,			/* delete and create are out, as one multi */
	RECIPE_LEAVING,				/* delete is out, its answer not in */
	RECIPE_READING_CHILD,		/* reading a child that has no order */
	RECIPE_RETREATING,			/* our number is too late: delete is out */
	RECIPE_REMOVING_DIR,		/* the old directory's delete is out */
	RECIPE_LISTING_DIR,			/* it is not empty: its list is out */
	RECIPE_AWAITING_EMPTY		/* watching the last contender in it */
} RecipeState;

typedef enum RecipeEvent
{
	RECIPE_RELEASE,				/* leave the queue or give up the lock */
	RECIPE_REQUEUE,				/* give up the lock, and queue for it again */
	RECIPE_CHECK_WRITERS,		/* tell if a writer waits behind our reader */
	RECIPE_WATCH_QUEUE,			/* tell when anybody waits behind us */
	RECIPE_SET_IN_USE,			/* tell those behind that we use the lock */
	RECIPE_WATCH_REVOCATION,	/* watch our own node for a revocation */
	RECIPE_MKDIR_DONE,
	RECIPE_CREATE_DONE,
	RECIPE_CHILDREN_DONE,
	RECIPE_WATCH_DONE,
	RECIPE_GET_DONE,
	RECIPE_SET_DONE,
	RECIPE_STAT_DONE,
	RECIPE_DELETE_DONE,
	RECIPE_REQUEUE_DONE,
	RECIPE_RMDIR_DONE,
	RECIPE_CHECK_DONE,
	RECIPE_NODE_DELETED,		/* a watch: the node is gone */
	RECIPE_NODE_TOUCHED,		/* a watch was used up by anything else */
	RECIPE_RETRY,				/* try again what was refused, if anything */
	RECIPE_EXPIRED				/* the session, and with it our node, is gone */
} RecipeEvent;

typedef struct RecipeInput
{
	RecipeEvent event;
	RequestAnswer answer;		/* of the *_DONE events; of watches "serial" */
	int32_t		next;			/* CREATE_DONE: this number owns the lock with
								 * nothing read, as 0 does in any case */
	const uint8_t *sibling;		/* CHECK_WRITERS, WATCH_QUEUE: UUID of the
								 * other contender of this instance, or NULL */
	bool		orphan;			/* WATCH_DONE: ours, and of no contender */
} RecipeInput;

/* What the worker tells the slot, as bits: a step can have several. */
#define RECIPE_REPORT_CREATED		(1 << 0)	/* recipe->sequence is now
												 * known */
#define RECIPE_REPORT_QUEUED		(1 << 1)	/* others are ahead: see
												 * blockers */
#define RECIPE_REPORT_GRANTED		(1 << 2)	/* we own the lock */
#define RECIPE_REPORT_TOKEN		(1 << 3)	/* out->token is the fencing
											 * token */
#define RECIPE_REPORT_LOST		(1 << 4)	/* we do not own the lock any
											 * more */
#define RECIPE_REPORT_FAILED		(1 << 5)	/* refused: out->error */
#define RECIPE_REPORT_GONE		(1 << 6)	/* no contender of ours is left */
#define RECIPE_REPORT_LEFT		(1 << 7)	/* a node may stay: out->error */
#define RECIPE_REPORT_STRANGER	(1 << 8)	/* a child that is no contender */
#define RECIPE_REPORT_MIXED		(1 << 9)	/* with FAILED: lock and semaphore
											 * under one name */
#define RECIPE_REPORT_NO_WRITER		(1 << 10)	/* checked: no writer is
												 * behind us */
#define RECIPE_REPORT_WRITER		(1 << 11)	/* checked: a writer is behind
												 * us */
#define RECIPE_REPORT_REVOKED		(1 << 12)	/* somebody asks for the
												 * lock */
#define RECIPE_REPORT_ALONE		(1 << 13)	/* queue watched: nobody waits
											 * behind us, until we tell */
#define RECIPE_REPORT_CONTENDED		(1 << 14)	/* queue watched: somebody
												 * does */
#define RECIPE_REPORT_RETAINED	(1 << 15)	/* only owners are ahead, and the
											 * last may not need the lock: it
											 * answers */
#define RECIPE_REPORT_ENDED		(1 << 16)	/* with FAILED: the counter has
											 * ended, and others use it */
#define RECIPE_REPORT_RENEWED		(1 << 17)	/* the directory begins anew,
											 * since its counter comes to an
											 * end */
#define RECIPE_REPORT_PERSISTENT	(1 << 18)	/* out->stranger is named like
												 * a contender, but is not
												 * ephemeral */
#define RECIPE_REPORT_NO_TOKEN	(1 << 19)	/* we own the lock, but the token
											 * is refused: out->error */

#define RECIPE_MAX_OPS			8

typedef struct RecipeOutput
{
	Request		ops[RECIPE_MAX_OPS];
	int			nops;
	unsigned	report;
	int			error;
	int64_t		token;
	const char *stranger;
} RecipeOutput;

typedef struct Recipe
{
	RecipeState state;
	uint8_t		uuid[ZNODE_UUID_BYTES];
	ZnodeKind	kind;
	bool		grouped;		/* one of several that are enqueued together */
	bool		dir_known;		/* the lock directory has been seen to exist */
	bool		unread;			/* ENTERING: no read is behind the create */
	bool		requeued;		/* our node may be the one before, whose name
								 * and number we have, or another one */
	bool		parents_tried;	/* MKDIRS has been sent for this contender */
	int			mkdir_error;	/* why that failed, or 0 */
	bool		refused;		/* LEAVING: the delete was; to be retried */
	int32_t		sequence;		/* of our node, once created */
	int64_t		token;			/* its czxid, if that is known, or 0 */
	uint32_t	batch;			/* that of the input that it came with, or 0 */
	bool		token_refused;	/* OWNER: the stat for it was; to be retried */
	char		node[ZNODE_CONTENDER_SIZE]; /* its name, or its prefix before */
	uint32_t	serial;			/* of the last read or watch sent */
	bool		retain;			/* our note says retain=yes; set ahead of
								 * recipe_want() and recipe_resume() */
	bool		asks_retained;	/* ask an owner that may not need the lock;
								 * set likewise */
	bool		retained_ahead; /* WATCHING: the owner ahead may be such */
	bool		rewritten;		/* OWNER: we have set our data */
	uint32_t	queue_watch;	/* OWNER: serial of the list of the queue and
								 * its watch, or 0 */
	uint32_t	writer_check;	/* OWNER: serial of the check for writers, or
								 * 0 */
	bool		has_sibling;	/* OWNER: a writer of this instance is
								 * known, */
	uint8_t		sibling[ZNODE_UUID_BYTES];	/* which does not count behind us */
	uint32_t	revocation_watch;	/* OWNER: serial of the watch of our own
									 * node, or 0 */
	int			blockers;		/* contenders ahead that exclude us */
	char	   *predecessor;	/* the last of the blockers, or of those in
								 * the old directory; malloc'd */
	bool		unsure;			/* WATCHING: not told queued, since those
								 * ahead may be no contenders */
	char	   *passed;			/* children that have no order, up to this
								 * one, need not be read; malloc'd */
	char	  **persistent;		/* children that are not ephemeral, sorted;
								 * malloc'd */
	int			npersistent;
	int64_t		directory;		/* RETREATING and later: czxid of the old
								 * directory, or 0 */
} Recipe;

/* How far a contender had come when its worker ended: see recipe_resume(). */
typedef enum RecipeResume
{
	RECIPE_RESUME_WANTED,
	RECIPE_RESUME_OWNED,
	RECIPE_RESUME_RELEASING
} RecipeResume;

extern void recipe_init(Recipe *recipe);
extern void recipe_free(Recipe *recipe);
extern void recipe_want(Recipe *recipe, const uint8_t uuid[ZNODE_UUID_BYTES],
						ZnodeKind kind, bool grouped, bool dir_known,
						bool unread, RecipeOutput *out);
extern void recipe_resume(Recipe *recipe, const uint8_t uuid[ZNODE_UUID_BYTES],
						  ZnodeKind kind, bool grouped, RecipeResume how,
						  const int32_t *sequence, RecipeOutput *out);
extern void recipe_resume_requeued(Recipe *recipe,
								   const uint8_t uuid[ZNODE_UUID_BYTES],
								   ZnodeKind kind, bool wanted,
								   int32_t sequence, RecipeOutput *out);
extern void recipe_step(Recipe *recipe, const RecipeInput *in,
						RecipeOutput *out);
extern RecipeEvent recipe_event(const RequestAnswer *answer);
extern bool recipe_is_leaving(const Recipe *recipe);
extern const char *recipe_state_name(RecipeState state);

#endif							/* ZKLOCK_RECIPE_H */
