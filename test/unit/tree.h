/*-------------------------------------------------------------------------
 *
 * tree.h
 *		A ZooKeeper in memory for detectors: znodes with data and versions,
 *		sessions whose servers lag, watches of children, multis.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/tree.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TREE_H
#define ZKLOCK_TREE_H

#include "core/deadlock/detector.h"

#define TREE_NODES		512
#define TREE_HISTORY	32		/* a server lags by less */
#define TREE_QUEUE		512
#define TREE_WATCHES	16

typedef struct TreeNode
{
	char		path[NOTE_VERTEX_SIZE];
	const char *data;
	int32_t		version;
	int			session;		/* 0: persistent */
	int32_t		next;			/* number of the next sequential child */
	int64_t		changed;		/* zxid of the last change of its children */
} TreeNode;

/* A request on its way, its answer, or an event among the answers. */
typedef struct TreeRequest
{
	DetectorOp	op;				/* a deep copy */
	const char *note;			/* SET_WAITS, ACT: the data; NULL: there is no
								 * such contender of ours */
	const char **other_notes;	/* ACT: the same for the others */
	bool		event;
	RequestResult result;
	const char **children;
	int			nchildren;
	const char *data;
	int32_t		version;
	bool		ephemeral;
	bool		ours;
	const char *node;
	int64_t		view;
} TreeRequest;

typedef struct TreeSession
{
	int			id;
	bool		alive;			/* at the server */
	bool		connected;
	int64_t		view;			/* what its server has applied */
	int64_t		seen;			/* what its client has heard */
	TreeRequest queue[TREE_QUEUE];
	int			n;
	int			nready;
	struct
	{
		const char *path;
		uint32_t	serial;
		int64_t		since;
	}			watches[TREE_WATCHES];
	int			nwatches;
} TreeSession;

/* Called when an act has been carried out. */
extern void (*tree_on_act) (const DetectorOp *op, const char *probe);
extern void (*tree_on_session_node) (const char *path);

extern void tree_reset(void);
extern void *tree_alloc(size_t size);
extern const char *tree_copy(const char *text);
extern int64_t tree_zxid(void);
extern const TreeNode *tree_find(int64_t zxid, const char *path);
extern void tree_print(const char *path);
extern int	tree_count_below(const char *path);
extern const char *tree_create(const char *path, const char *data, int session,
							   bool sequential);
extern bool tree_delete(const char *path);

extern void tree_begin_session(TreeSession *session);
extern TreeRequest *tree_submit(TreeSession *session, const DetectorOp *op,
								const char *note);
extern bool tree_execute(TreeSession *session);
extern void tree_advance(TreeSession *session, int64_t view);
extern bool tree_hear(TreeSession *session, DetectorInput *in);
extern int	tree_lose_connection(TreeSession *session, int applied,
								 uint32_t *serials);
extern void tree_reconnect(TreeSession *session, int64_t view);
extern void tree_expire(TreeSession *session);

#endif							/* ZKLOCK_TREE_H */
