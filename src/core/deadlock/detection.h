/*-------------------------------------------------------------------------
 *
 * detection.h
 *		What a detector is told, what it tells, and what it knows.
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

#include "core/deadlock/graph_private.h"
#include "core/deadlock/probe.h"

/*
 * What goes in and comes out: see detector_step().
 */

typedef enum DetectorEvent
{
	DETECTOR_EDGES,				/* the local edges that there are now */
	DETECTOR_DONE,				/* the answer to an operation */
	DETECTOR_ROOM_CHANGED,		/* the watch of a LIST_WATCH was used up */
	DETECTOR_TICK,				/* wake_at has come, or any time before */
	DETECTOR_ADOPT,				/* new worker: an owner's note may have waits */
	DETECTOR_SWEEP,				/* new worker: an earlier one may have left
								 * znodes in a room */
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
	const char *const *rooms;	/* EDGES: to be watched for sessions that are
								 * named, though there are no edges */
	int			nrooms;

	/* DONE */
	uint32_t	serial;			/* ROOM_CHANGED, too: of the LIST_WATCH */
	DetectorResult result;
	const char *const *children;	/* LIST, LIST_WATCH */
	int			nchildren;
	const char *data;			/* GET: not terminated */
	int			len;			/* -1: none */
	int32_t		version;		/* GET: of the data */
	bool		ephemeral;		/* GET: it is, see recipe_is_ephemeral() */
	bool		ours;			/* GET: of our session */
	const char *node;			/* CREATE: the name that it has got, without
								 * its directory */
	int64_t		zxid;			/* ACT: of the multi */

	/* ADOPT, SWEEP */
	const char *path;			/* of our contender; of the room */
} DetectorInput;

typedef enum DetectorOpKind
{
	DETECTOR_OP_LIST,			/* the children of "path" */
	DETECTOR_OP_LIST_WATCH,		/* the same, and watch them */
	DETECTOR_OP_GET,			/* data, version and owner of "path" */
	DETECTOR_OP_SET_WAITS,		/* write the note of our contender "path" with
								 * these waits; if that is no contender of
								 * ours any more, or not owned: NO_NODE,
								 * without asking ZooKeeper.  Or "path" is a
								 * session's znode: set its note, or, if it
								 * is not there, make it, ephemeral */
	DETECTOR_OP_MKDIR,			/* make "path" as lock directories are made,
								 * without its parents */
	DETECTOR_OP_CREATE,			/* "path" as prefix: an ephemeral sequential
								 * znode with "data" */
	DETECTOR_OP_DELETE,			/* "path", whatever its version */
	DETECTOR_OP_ACT				/* one multi, which goes alone: the checks;
								 * the note of our contender "path" with
								 * these waits, if it has "version"; the
								 * notes of "others"; create "verdict",
								 * ephemeral, without data */
} DetectorOpKind;

typedef struct DetectorCheck
{
	const char *path;
	int32_t		version;		/* -1: it exists */
} DetectorCheck;

/* The note of a contender of ours, whatever its version. */
typedef struct DetectorNote
{
	const char *path;
	const NoteWait *waits;
	int			nwaits;
} DetectorNote;

/* What it points to is valid until the next step. */
typedef struct DetectorOp
{
	DetectorOpKind kind;
	uint32_t	serial;			/* to be handed back with the answer */
	bool		barrier;		/* of LIST_WATCH: behind a barrier */
	const char *path;
	const char *data;			/* CREATE: a string */
	const NoteWait *waits;		/* SET_WAITS, ACT */
	int			nwaits;
	const DetectorCheck *checks;	/* ACT: without that of "path" */
	int			nchecks;
	int32_t		version;		/* ACT: that of "path" */
	const DetectorNote *others; /* ACT */
	int			nothers;
	const char *verdict;		/* ACT: path */
} DetectorOp;

/* A deadlock that was ended, of which we are a part. */
typedef struct DetectorVerdict
{
	const WaitDeadlock *deadlock;	/* members[0] is the victim */
	uint64_t	mine;			/* its members of this cluster, bit by bit */
	bool		ours;			/* the victim is ours: its wait, named by
								 * members[0].edge.wait, is to fail ... */
	bool		steps_back;		/* ... or to go behind those of its cluster */
	int64_t		zxid;			/* of the act, if it is ours; 0: its answer was
								 * lost */
} DetectorVerdict;

typedef struct DetectorOutput
{
	DetectorOp *ops;			/* to be sent in this order */
	int			nops;
	uint32_t	scan;			/* look at the locks and hand in EDGES with
								 * this, soon; 0: no need */
	bool		named;			/* other sessions are named than before, see
								 * detector_named(): look at the locks */
	DetectorVerdict *verdicts;
	int			nverdicts;
	int64_t		wake_at;		/* give a TICK then; INT64_MAX: no need */
} DetectorOutput;

/* How often the detector did what, since detector_init(). */
typedef struct DetectionCounts
{
	int64_t		published;		/* edges written into notes */
	int64_t		looks;			/* each from one edge or more */
	int64_t		reads;			/* directories and notes, in looks */
	int64_t		probes;			/* deadlocks that others were asked about */
	int64_t		denied;			/* of these, some edge was not confirmed */
	int64_t		confirmed;		/* probes of anybody's answered by us: yes */
	int64_t		refuted;		/* the same: no */
	int64_t		victims;		/* ours, that failed */
	int64_t		steps_back;		/* the same, that did not */
	int64_t		failed_acts;	/* something had moved */
} DetectionCounts;

/*
 * Private to the rooms of the detector.
 */

/* What an operation is for. */
typedef enum DetectionTask
{
	TASK_NONE,
	TASK_SET,					/* a note */
	TASK_LOOK,					/* a directory or a note for the look */
	TASK_LIST,					/* a room, to hear what is new in it */
	TASK_MKDIR,					/* a room */
	TASK_READ,					/* a probe of others, or one left behind */
	TASK_SWEEP,					/* a znode in a room: is it ours? */
	TASK_PROBE,
	TASK_ANSWER,
	TASK_ACT,
	TASK_DELETE
} DetectionTask;

typedef struct Pending
{
	uint32_t	serial;
	DetectionTask task;
	char	   *path;			/* that of the operation; malloc'd */
	int32_t		number;			/* of the probe that it is about */
} Pending;

/* A local edge that there is, as far as we have been told. */
typedef struct LocalEdge
{
	WaitEdge	edge;
	struct Holder *holder;		/* of edge.from */
	int			next_of_holder; /* index of another edge from there, or -1 */
	int			next_of_hash;	/* the same, in Detection.edge_table */
	bool		kept;			/* it is among those that have come */
	bool		published;		/* it is in a note, for all we know */
	bool		ended;			/* its wait has been made a victim */
	int64_t		look_at;		/* not to be looked from before */
} LocalEdge;

/*
 * A contender of ours whose note has waits, or has had; or a session's znode,
 * see vertex.c.
 */
typedef struct Holder
{
	char		path[NOTE_VERTEX_SIZE];
	uint64_t	hash;			/* of that */
	struct Holder *next;		/* in Detection.holders */
	struct Holder *next_changed;	/* in Detection.changed, ... */
	bool		changed;		/* ... if it is there */
	int			edges;			/* index of the first from there, or -1 */
	NoteWait   *sent;			/* what was last written; malloc'd */
	int			nsent;
	uint32_t	out;			/* serial of that write, until it is answered */
	bool		unsure;			/* the note may have anything */
	bool		session;		/* it is a session's znode, ... */
	bool		made;			/* ... which may be there */
	bool		gone;			/* there is no such contender */
	int64_t		write_at;		/* it may have to be written then; 0: no */
	int64_t		retry_at;		/* not to be written before */
	int			first;			/* of more edges than a note has room for */
	int64_t		turn_at;		/* when others have their turn */
} Holder;

/* The %waits of a root. */
typedef struct Room
{
	char		path[NOTE_VERTEX_SIZE];
	bool		needed;
	bool		used;			/* some edge or note has to do with it */
	bool		wanted;			/* EDGES has asked for it */
	bool		exists;			/* for all we know */
	char		(*named)[VERTEX_SESSION_SIZE];	/* sessions; malloc'd */
	int			nnamed;
	uint32_t	watch;			/* serial of the list whose watch is set, or is
								 * out; 0: none */
	bool		listing;		/* a list is out */
	bool		making;			/* a mkdir is */
	bool		barrier;		/* the next list is to go behind a barrier */
	bool		sweep;			/* there may be znodes of ours that we do not
								 * know of: look for them, too */
	int64_t		retry_at;		/* neither before */
	int64_t		leave_at;		/* not needed: to be deleted then; 0: no */
} Room;

typedef enum ProbeState
{
	PROBE_CREATING,				/* ours; its create is out */
	PROBE_READING,				/* its data are being read */
	PROBE_SCANNING,				/* waiting for a scan of the locks */
	PROBE_WAITING,				/* we have answered, if it is for us to answer */
	PROBE_ACTING,				/* the victim is ours; the act is out */
	PROBE_CHECKING,				/* the act's fate is unknown: a list will tell */
	PROBE_OVER					/* nothing more to do but to delete */
} ProbeState;

/* A probe in a room, of ours or of others. */
typedef struct Probe
{
	ProbeState	state;
	char		room[NOTE_VERTEX_SIZE];
	int32_t		number;			/* -1 while CREATING */
	bool		ours;
	uint32_t	born;			/* later lists show it, as long as it exists */
	WaitDeadlock deadlock;
	uint64_t	mine;			/* its members that are ours, once read */
	uint64_t	confirmed;		/* by answers */
	bool		checked_own;	/* the victim is ours, and all of ours have been
								 * looked at in this step */
	bool		denied;
	bool		answering;		/* the create of our answer is out */
	uint32_t	scan;			/* SCANNING: which one, or a later one */
	uint32_t	checked;		/* CHECKING: a list of that serial or later */
	int64_t		deadline;
	char		answer[PROBE_NAME_SIZE];	/* our answer, or "" */
	bool		verdict;		/* a verdict of ours is there */
} Probe;

/* A znode of ours that is to be deleted. */
typedef struct Litter
{
	char		path[NOTE_VERTEX_SIZE];
	bool		out;			/* a delete is */
} Litter;

typedef struct Detection
{
	int64_t		timeout;		/* deadlock_timeout, us */
	int64_t		now;
	bool		connected;
	bool		failed;			/* memory is short: begin anew */
	int64_t		write_at;		/* notes may have to be written then */
	uint32_t	serial;			/* of the last operation */
	uint32_t	scan;			/* the last that was asked for */
	LocalEdge  *edges;
	int			nedges;
	int		   *edge_table;		/* indexes by hash, or -1 */
	uint64_t	edge_mask;		/* of those hashes */
	Holder	  **holders;		/* by hash */
	uint64_t	holder_mask;	/* of those hashes; 0: none */
	int			nholders;
	Holder	   *changed;		/* whose notes may have to be written, ... */
	Holder	   *last_changed;	/* ... in this order */
	int			nwriting;		/* writes that are out */
	bool		recount;		/* rooms may be used by others than before */
	Room	   *rooms;
	int			nrooms;
	Probe	   *probes;
	int			nprobes;
	Litter	   *litter;
	int			nlitter;
	Pending    *pending;
	int			npending;
	bool		resumed;		/* rooms that are new are to be swept */

	/* the look under way */
	bool		looking;
	int64_t		look_at;		/* there is no edge to be looked from before */
	int			first_start;	/* where to begin to look for such */
	WaitGraph	graph;
	WaitEdge   *starts;
	int			nstarts;
	int			nreading;		/* reads that are out */

	/* the output */
	DetectorOutput *out;
	DetectionCounts *counts;
	DetectorOp *ops;			/* those of the output */
	void	  **blocks;			/* what it points to: freed by the next step */
	int			nblocks;
} Detection;

extern void *detection_alloc(Detection *state, size_t size);
extern char *detection_strdup(Detection *state, const char *text);
extern void *detection_grow(Detection *state, void *array, int n, size_t size);
extern void detection_free_blocks(Detection *state);
extern DetectorOp *detection_send(Detection *state, DetectorOpKind kind,
								  DetectionTask task, const char *path,
								  int32_t number);
extern bool detection_take(Detection *state, uint32_t serial, Pending *pending);
extern void detection_tell(Detection *state, const Probe *probe,
						   int64_t zxid);
extern void detection_wake(Detection *state, int64_t at);

extern bool detection_set_edges(Detection *state, LocalEdge *edges, int nedges);
extern LocalEdge *detection_find_edge(Detection *state, const WaitEdge *edge);
extern Holder *detection_find_holder(const Detection *state, const char *path);
extern Holder *detection_add_holder(Detection *state, const char *path);
extern void detection_drop_holder(Detection *state, Holder *holder);
extern Holder *detection_next_holder(const Detection *state,
									 const Holder *holder);
extern void detection_note_changed(Detection *state, Holder *holder,
								   bool first);
extern void detection_note_all_changed(Detection *state);
extern bool detection_is_told(const Detection *state, const NoteWait *wait);

#endif							/* ZKLOCK_DETECTION_H */
