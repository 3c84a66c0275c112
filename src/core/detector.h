/*-------------------------------------------------------------------------
 *
 * detector.h
 *		Deadlocks between clusters: the part of one cluster.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/detector.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DETECTOR_H
#define ZKLOCK_DETECTOR_H

#include "core/waits.h"

/* The znode below a root where clusters confirm deadlocks to one another. */
#define DETECTOR_ROOM	"%waits"

typedef enum DetectorEvent
{
	DETECTOR_EDGES,				/* the local edges that there are now */
	DETECTOR_DONE,				/* the answer to an operation */
	DETECTOR_ROOM_CHANGED,		/* the watch of a LIST_WATCH was used up */
	DETECTOR_TICK,				/* wake_at has come, or any time before */
	DETECTOR_ADOPT,				/* new worker: an owner's note may have waits */
	DETECTOR_SUSPENDED,			/* the connection is lost */
	DETECTOR_RESUMED,			/* connected, for the first time or again */
	DETECTOR_EXPIRED			/* the session has ended; RESUMED follows when
								 * there is another */
} DetectorEvent;

typedef enum DetectorResult
{
	DETECTOR_OK,				/* MKDIR: or it exists */
	DETECTOR_UNKNOWN,			/* connection lost: it may have happened */
	DETECTOR_NO_NODE,			/* ACT: or anything else of it does not hold,
								 * so nothing was done */
	DETECTOR_REFUSED			/* any other error */
} DetectorResult;

typedef struct DetectorInput
{
	DetectorEvent event;
	int64_t		now;			/* us, of one clock that never goes back */

	/*
	 * EDGES: all local edges whose wait has lasted deadlock_timeout and whose
	 * "from" has somebody of another cluster behind it.  No edge of a wait
	 * that has been made a victim.  "scan" is that of the output which asked
	 * for it, if the locks were looked at after that, or 0.
	 */
	const WaitEdge *edges;
	int			nedges;
	uint32_t	scan;

	/* DONE */
	uint32_t	serial;			/* ROOM_CHANGED, too: of the LIST_WATCH */
	DetectorResult result;
	const char *const *children;	/* LIST, LIST_WATCH */
	int			nchildren;
	const char *data;			/* GET: not terminated */
	int			len;			/* -1: none */
	int32_t		version;		/* GET: of the data */
	bool		ours;			/* GET: ephemeral of our session */
	const char *node;			/* CREATE: the name that it has got, without
								 * its directory */

	/* ADOPT */
	const char *path;			/* of our contender */
} DetectorInput;

typedef enum DetectorOpKind
{
	DETECTOR_OP_LIST,			/* the children of "path" */
	DETECTOR_OP_LIST_WATCH,		/* the same, and watch them */
	DETECTOR_OP_GET,			/* data, version and owner of "path" */
	DETECTOR_OP_SET_WAITS,		/* write the note of our contender "path" with
								 * these waits; if that is no contender of
								 * ours any more, or not owned: NO_NODE,
								 * without asking ZooKeeper */
	DETECTOR_OP_MKDIR,			/* make "path" as lock directories are made,
								 * without its parents */
	DETECTOR_OP_CREATE,			/* "path" as prefix: an ephemeral sequential
								 * znode with "data" */
	DETECTOR_OP_DELETE,			/* "path", whatever its version */
	DETECTOR_OP_ACT				/* one multi, which goes alone: the checks;
								 * the note of our contender "path" with
								 * these waits, if it has "version"; create
								 * "verdict", ephemeral, without data */
} DetectorOpKind;

typedef struct DetectorCheck
{
	const char *path;
	int32_t		version;		/* -1: it exists */
} DetectorCheck;

/* What it points to is valid until the next step. */
typedef struct DetectorOp
{
	DetectorOpKind kind;
	uint32_t	serial;			/* to be handed back with the answer */
	bool		barrier;		/* of LIST, LIST_WATCH, GET: behind a barrier */
	const char *path;
	const char *data;			/* CREATE: a string */
	const NoteWait *waits;		/* SET_WAITS, ACT */
	int			nwaits;
	const DetectorCheck *checks;	/* ACT: without that of "path" */
	int			nchecks;
	int32_t		version;		/* ACT: that of "path" */
	const char *verdict;		/* ACT: path */
} DetectorOp;

/* A deadlock that was ended, of which we are a part. */
typedef struct DetectorVerdict
{
	const WaitDeadlock *deadlock;	/* members[0] is the victim */
	bool		ours;			/* the victim is ours: its wait, named by
								 * members[0].edge.wait, is to fail */
} DetectorVerdict;

typedef struct DetectorOutput
{
	DetectorOp *ops;			/* to be sent in this order */
	int			nops;
	uint32_t	scan;			/* look at the locks and hand in EDGES with
								 * this, soon; 0: no need */
	DetectorVerdict *verdicts;
	int			nverdicts;
	int64_t		wake_at;		/* give a TICK then; INT64_MAX: no need */
} DetectorOutput;

/* How often the detector did what, since detector_init(). */
typedef struct DetectorCounts
{
	int64_t		published;		/* edges written into notes */
	int64_t		looks;			/* each from one edge or more */
	int64_t		reads;			/* directories and notes, in looks */
	int64_t		probes;			/* deadlocks that others were asked about */
	int64_t		denied;			/* of these, some edge was not confirmed */
	int64_t		confirmed;		/* probes of anybody's answered by us: yes */
	int64_t		refuted;		/* the same: no */
	int64_t		victims;		/* ours */
	int64_t		failed_acts;	/* something had moved */
} DetectorCounts;

/* The fields are the detector's own, but for "counts". */
typedef struct Detector
{
	struct DetectorState *state;	/* malloc'd */
	DetectorCounts counts;
} Detector;

extern bool detector_init(Detector *detector, int64_t deadlock_timeout,
						  bool resumed);
extern void detector_free(Detector *detector);
extern void detector_set_timeout(Detector *detector,
								 int64_t deadlock_timeout);
extern void detector_step(Detector *detector, const DetectorInput *in,
						  DetectorOutput *out);
extern bool detector_is_idle(const Detector *detector);

#endif							/* ZKLOCK_DETECTOR_H */
