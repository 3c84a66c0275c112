/*-------------------------------------------------------------------------
 *
 * detection.h
 *		The inputs and outputs of a detector.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/detection.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DETECTION_H
#define ZKLOCK_DETECTION_H

#include "core/deadlock/waits.h"
#include "core/request.h"

/* See detector_step(). */

typedef enum DetectorEvent
{
	DETECTOR_EDGES,				/* the local edges */
	DETECTOR_DONE,				/* the answer to an operation */
	DETECTOR_DIR_CHANGED,		/* the watch of a LIST has fired */
	DETECTOR_TICK,				/* the time of wake_at, or any earlier one */
	DETECTOR_ADOPT,				/* a note of ours may have waits that an
								 * earlier worker has written */
	DETECTOR_SWEEP,				/* a directory may have znodes of ours that an
								 * earlier worker has created */
	DETECTOR_SUSPENDED,			/* the connection is lost */
	DETECTOR_RESUMED,			/* connected, for the first time or again */
	DETECTOR_EXPIRED			/* the session has ended; RESUMED follows in
								 * the next one */
} DetectorEvent;

typedef struct DetectorInput
{
	DetectorEvent event;
	int64_t		now;			/* us, of one clock that never goes back */

	/*
	 * EDGES: all local edges whose wait has lasted for deadlock_timeout and
	 * whose "from" has another instance's contender behind it, without those
	 * whose wait is that of a victim.  "scan" is that of the output which
	 * requested a scan, if the locks were scanned after that, or 0.
	 */
	const WaitEdge *edges;
	int			nedges;
	uint32_t	scan;
	const char *const *dirs;	/* EDGES: to be watched for names of sessions,
								 * even without edges */
	int			ndirs;

	RequestAnswer answer;		/* DONE; DIR_CHANGED has "serial" only */

	const char *path;			/* ADOPT: of our contender; SWEEP: of the
								 * directory */
} DetectorInput;

typedef struct DetectorCheck
{
	const char *path;
	int32_t		version;		/* -1: it exists */
} DetectorCheck;

/* A note of ours, to be written whatever its version. */
typedef struct DetectorNote
{
	const char *path;
	const NoteWait *waits;
	int			nwaits;
} DetectorNote;

/*
 * An operation, to be sent to ZooKeeper.  What it points to is valid until the
 * next step.  The kinds of requests:
 *
 * CHILDREN, LIST, MKDIR, DELETE
 *		As usual.
 * CREATE
 *		"path" is the prefix of the znode.
 * GET
 *		Answered without data if the znode is not ephemeral, or if they are
 *		longer than any note or probe.
 * SET
 *		Write the note of our contender "path" with these waits.  If that is
 *		no contender of ours any more, or does not own its lock, the answer is
 *		NO_NODE, without asking ZooKeeper.  Or "path" is a session's znode: set
 *		its note or, if it does not exist, create it, ephemeral.
 *
 * With a "verdict" it is an act.  That is one multi, which is sent alone: the
 * checks; the SET, if "path" has this version or, if it is our contender, the
 * version that the worker knows; the notes of "others"; the create of the
 * verdict, ephemeral, without data.  Its answer has the "mzxid" of the multi,
 * or is NO_NODE if a check failed, so that nothing was done.
 */
typedef struct DetectorOp
{
	Request		request;
	const NoteWait *waits;		/* SET */
	int			nwaits;
	const char *verdict;		/* an act: path; else NULL */
	const DetectorCheck *checks;	/* without that of "path" */
	int			nchecks;
	const DetectorNote *others;
	int			nothers;
} DetectorOp;

/* A deadlock with a member of this instance that was ended. */
typedef struct DetectorVerdict
{
	const WaitDeadlock *deadlock;	/* members[0] is the victim */
	uint64_t	mine;			/* bits of its members of this instance */
	bool		ours;			/* the victim is ours: its wait,
								 * members[0].edge.wait, is to end */
	bool		requeues;		/* the victim does not fail, but requeues in
								 * tier 1 */
	int64_t		zxid;			/* of the act, if it is ours; 0: its answer was
								 * lost */
} DetectorVerdict;

typedef struct DetectorOutput
{
	DetectorOp *ops;			/* to be sent in this order */
	int			nops;
	uint32_t	scan;			/* scan the locks soon, and pass EDGES with
								 * this number; 0: no need */
	bool		named;			/* other sessions are named than before
								 * (detector_named()): scan the locks */
	DetectorVerdict *verdicts;
	int			nverdicts;
	int64_t		wake_at;		/* when to pass a TICK; INT64_MAX: no need */
} DetectorOutput;

/* How often the detector did what, since detector_init(). */
typedef struct DetectionCounts
{
	int64_t		published;		/* edges written into notes */
	int64_t		searches;		/* each from one edge or more */
	int64_t		reads;			/* directories and notes, in searches */
	int64_t		probes;			/* deadlocks that others were asked about */
	int64_t		denied;			/* of these, with an edge that was denied */
	int64_t		confirmed;		/* probes of any instance that we answered:
								 * yes */
	int64_t		refuted;		/* the same: no */
	int64_t		victims;		/* ours, that failed */
	int64_t		requeues;		/* ours, that requeued in tier 1 instead */
	int64_t		failed_acts;	/* something had changed */
} DetectionCounts;

#endif							/* ZKLOCK_DETECTION_H */
