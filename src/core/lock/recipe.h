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
	RECIPE_ENTERING,			/* the create is out */
	RECIPE_CANCELING,			/* the same, but no longer wanted */
	RECIPE_SEARCHING,			/* the create's result is unknown: a list is
								 * out */
	RECIPE_ABANDONING,			/* the same, but no longer wanted */
	RECIPE_READING,				/* our node exists; the children are being
								 * read */
	RECIPE_WATCHING,			/* queued behind the predecessor */
	RECIPE_OWNER,				/* we own the lock */
	RECIPE_REQUEUEING,			/* delete and create are out in one multi */
	RECIPE_LEAVING,				/* the delete is out */
	RECIPE_LATE					/* our number is late: the deletes of our node
								 * and the directory are out, or it is to be
								 * tried again */
} RecipeState;

typedef enum RecipeEvent
{
	RECIPE_ANSWER,				/* a request of ours has been answered, or its
								 * watch has fired */
	RECIPE_RELEASE,				/* leave the queue or give up the lock */
	RECIPE_REQUEUE,				/* give up the lock, and queue again */
	RECIPE_READ_QUEUE,			/* read it again, while behind others */
	RECIPE_WATCH_QUEUE,			/* report whether others are behind us, and the
								 * next change of that */
	RECIPE_SET_IN_USE,			/* write that we use the lock */
	RECIPE_WATCH_REVOCATION,	/* watch our own node for a revocation */
	RECIPE_LOOK,				/* look at what we watch: its event may have
								 * been lost */
	RECIPE_RETRY,				/* retry what was refused, or LATE */
	RECIPE_EXPIRED				/* the session ended, and our node with it */
} RecipeEvent;

/* Reports for the slot, as bits: a step can have several. */
#define RECIPE_REPORT_CREATED		(1 << 0)	/* recipe->sequence is known */
#define RECIPE_REPORT_QUEUED		(1 << 1)	/* see blockers */
#define RECIPE_REPORT_GRANTED		(1 << 2)	/* we own the lock */
#define RECIPE_REPORT_TOKEN		(1 << 3)	/* see recipe->token */
#define RECIPE_REPORT_LOST		(1 << 4)	/* we no longer own the lock */
#define RECIPE_REPORT_FAILED		(1 << 5)	/* refused: out->error */
#define RECIPE_REPORT_GONE		(1 << 6)	/* our contender is gone */
#define RECIPE_REPORT_LEFT		(1 << 7)	/* a node may stay: out->error */
#define RECIPE_REPORT_STRANGER	(1 << 8)	/* a child that is no contender, by
											 * its name or as it is not
											 * ephemeral: out->stranger */
#define RECIPE_REPORT_MIXED		(1 << 9)	/* with FAILED: lock and semaphore
											 * with one name */
#define RECIPE_REPORT_UNWATCHED		(1 << 10)	/* the queue behind our reader
												 * has changed */
#define RECIPE_REPORT_WRITER		(1 << 11)	/* with CONTENDED: a writer is
												 * behind our reader */
#define RECIPE_REPORT_REVOKED		(1 << 12)	/* requested by another
												 * client */
#define RECIPE_REPORT_ALONE		(1 << 13)	/* queue watched: nobody is behind
											 * us until reported */
#define RECIPE_REPORT_CONTENDED		(1 << 14)	/* queue watched: others are
												 * behind us */
#define RECIPE_REPORT_RETAINED	(1 << 15)	/* only owners are ahead, and
											 * the last may be retained: it
											 * answers */
#define RECIPE_REPORT_LATE		(1 << 16)	/* others use the directory, whose
											 * counter comes to its end; with
											 * FAILED: has ended */
#define RECIPE_REPORT_RENEWED		(1 << 17)	/* the directory is made again
												 * before its counter ends */
#define RECIPE_REPORT_NO_TOKEN	(1 << 18)	/* the token was refused:
											 * out->error */

/* A permit takes a step of each of its two recipes; see permit.c. */
#define RECIPE_MAX_OPS			16

/* Other nodes with our UUID that are deleted in a step. */
#define RECIPE_MAX_ORPHANS		5

/* Serial numbers stay below this, so that permit.c can add what they are of. */
#define RECIPE_MAX_SERIAL		(UINT32_MAX / 4)

typedef struct RecipeOutput
{
	Request		ops[RECIPE_MAX_OPS];	/* path: from the lock's own directory
										 * on, or NULL: that itself */
	int			nops;
	unsigned	report;
	int			error;
	int			permits_found;	/* FAILED: a permit's users have agreed on this
								 * number, or 0 */
	const char *stranger;
	const char *left;			/* LEFT: name of our node, or its prefix */
	const char *path;			/* where stranger and left are, as for ops */
} RecipeOutput;

/* With all fields zero, it has no contender. */
typedef struct Recipe
{
	RecipeState state;
	uint8_t		uuid[ZNODE_UUID_BYTES];
	ZnodeKind	kind;
	int			permits;		/* of ZNODE_PERMIT: how many own together; set
								 * before recipe_want() and recipe_resume() */
	bool		dir_known;		/* the lock directory has been seen to exist */
	bool		unread;			/* ENTERING: no read behind the create */
	bool		requeued;		/* our node may be the previous one, with this
								 * name and number, or a new one; set before
								 * recipe_resume(), too */
	bool		parents_tried;	/* MKDIRS has been sent for this contender */
	int			mkdir_error;	/* why that failed, or 0 */
	bool		refused;		/* to be retried: LEAVING: the delete; OWNER:
								 * the stat for the token; LATE: the rmdir,
								 * since others are in the directory */
	int32_t		sequence;		/* of our node, once created */
	int64_t		token;			/* its czxid, or 0: unknown */
	uint32_t	batch;			/* of the input that it came with, or 0 */
	char		node[ZNODE_CONTENDER_SIZE]; /* its name; before the create, its
											 * prefix */
	uint32_t	serial;			/* of the last read or watch */
	bool		retain;			/* our note says retain=yes; set before
								 * recipe_want() and recipe_resume() */
	bool		asks_retained;	/* ask an owner that may be retained; set
								 * likewise */
	bool		retained_ahead; /* WATCHING: the owner ahead may be retained */
	bool		rewritten;		/* OWNER: we have set our data */
	uint32_t	queue_watch;	/* OWNER: serial of the watched list of the
								 * queue, or 0 */
	bool		alone;			/* that list has shown nobody behind us */
	uint32_t	comers_list;	/* serial of the list that shows who has come,
								 * or 0 */
	bool		others;			/* another kind of client was in the queue */
	int32_t		next;			/* this number, like 0, owns the lock with
								 * nothing read; set before the answer to a
								 * create */
	bool		orphan;			/* the predecessor is of our session, but no
								 * contender's; set before its answer */
	char	   *writer;			/* OWNER: the first one behind our reader that
								 * list has shown; malloc'd, or NULL */
	bool		has_sibling;	/* this instance has a contender in the other
								 * mode, */
	uint8_t		sibling[ZNODE_UUID_BYTES];	/* which does not count behind us:
											 * set before WATCH_QUEUE */
	uint32_t	revocation_watch;	/* OWNER: serial of the watch of our own
									 * node, or 0 */
	int			blockers;		/* contenders ahead that exclude us */
	char	   *predecessor;	/* WATCHING: the last of the blockers; READING,
								 * with blockers: the one behind them, which is
								 * gone; malloc'd */
	bool		unsure;			/* WATCHING: not reported as queued, since
								 * those ahead may be no contenders */
	bool		deleted;		/* LATE: our node is gone */
	bool		was_late;		/* LATE has been reported */
} Recipe;

/* How far a contender was when its worker ended. */
typedef enum RecipeResume
{
	RECIPE_RESUME_WANTED,
	RECIPE_RESUME_OWNED,
	RECIPE_RESUME_RELEASING
} RecipeResume;

extern void recipe_free(Recipe *recipe);
extern void recipe_want(Recipe *recipe, const uint8_t uuid[ZNODE_UUID_BYTES],
						ZnodeKind kind, bool dir_known, bool unread,
						RecipeOutput *out);
extern void recipe_resume(Recipe *recipe, const uint8_t uuid[ZNODE_UUID_BYTES],
						  ZnodeKind kind, RecipeResume how,
						  const int32_t *sequence, RecipeOutput *out);
extern void recipe_step(Recipe *recipe, RecipeEvent event,
						const RequestAnswer *answer, RecipeOutput *out);
extern bool recipe_is_stuck(const Recipe *recipe);
extern bool recipe_is_leaving(const Recipe *recipe);
extern const char *recipe_state_name(RecipeState state);

#endif							/* ZKLOCK_RECIPE_H */
