/*-------------------------------------------------------------------------
 *
 * detection_private.h
 *		What a detector knows, and what its files do for one another.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/detection_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DETECTION_PRIVATE_H
#define ZKLOCK_DETECTION_PRIVATE_H

#include "core/deadlock/detection.h"
#include "core/deadlock/graph_private.h"
#include "core/deadlock/probe.h"

/* What an operation is for. */
typedef enum DetectionTask
{
	TASK_NONE,
	TASK_SET,					/* a note */
	TASK_SEARCH,				/* a directory or a note for the search */
	TASK_LIST,					/* a directory, to hear what is new in it */
	TASK_MKDIR,					/* a directory */
	TASK_READ,					/* a probe of others, or one left behind */
	TASK_SWEEP,					/* a znode in a directory: is it ours? */
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
	bool		copy_differs;	/* it is as sent, but not the worker's copy */
	bool		grows;			/* what is out has a wait that it had not */
	int32_t		grown;			/* its version when it got one, as answered */
	bool		session;		/* it is a session's znode, ... */
	bool		made;			/* ... which may be there */
	bool		gone;			/* there is no such contender */
	int64_t		write_at;		/* it may have to be written then; 0: no */
	int64_t		retry_at;		/* not to be written before */
	int			first;			/* of more edges than a note has directory for */
	int64_t		turn_at;		/* when others have their turn */
} Holder;

/* The %waits of a root. */
typedef struct WaitsDir
{
	char		path[NOTE_VERTEX_SIZE];
	bool		needed;
	bool		used;			/* some edge or note has to do with it */
	bool		wanted;			/* EDGES has asked for it */
	bool		exists;			/* for all we know */
	char		(*named)[VERTEX_SESSION_SIZE];	/* sessions; malloc'd */
	int			nnamed;
	uint32_t	watch;			/* serial of the list whose watch is set, or
								 * is out; 0: none */
	bool		listing;		/* a list is out */
	bool		making;			/* a mkdir is */
	bool		barrier;		/* the next list is to go behind a barrier */
	bool		sweep;			/* there may be znodes of ours that we do not
								 * know of: look for them, too */
	int64_t		retry_at;		/* neither before */
	int64_t		leave_at;		/* not needed: to be deleted then; 0: no */
} WaitsDir;

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

/* A probe in a directory, of ours or of others. */
typedef struct Probe
{
	ProbeState	state;
	char		dir[NOTE_VERTEX_SIZE];
	int32_t		number;			/* -1 while CREATING */
	bool		ours;
	uint32_t	born;			/* later lists show it, as long as it exists */
	WaitDeadlock deadlock;
	uint64_t	mine;			/* its members that are ours, once read */
	uint64_t	confirmed;		/* by answers */
	bool		checked_own;	/* the victim is ours, and all of ours have
								 * been looked at in this step */
	bool		denied;
	bool		answering;		/* the create of our answer is out */
	uint32_t	scan;			/* SCANNING: which one, or a later one */
	uint32_t	checked;		/* CHECKING: a list of that serial or later */
	int64_t		since;			/* its create or get was asked for, ... */
	int64_t		trip;			/* ... and has taken so long; 0: not yet */
	int64_t		deadline;
	char		answer[PROBE_NAME_SIZE];	/* our answer, or "" */
	bool		verdict;		/* a verdict of ours is there */
} Probe;

/* A znode of ours that is to be deleted. */
typedef struct Orphan
{
	char		path[NOTE_VERTEX_SIZE];
	bool		out;			/* a delete is */
} Orphan;

typedef struct Detection
{
	int64_t		timeout;		/* deadlock_timeout, us */
	int64_t		now;
	bool		connected;
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
	bool		recount;		/* directories may be used by others than
								 * before */
	WaitsDir   *dirs;
	int			ndirs;
	Probe	   *probes;
	int			nprobes;
	Orphan	   *orphans;
	int			norphans;
	Pending    *pending;
	int			npending;
	bool		resumed;		/* directories that are new are to be swept */

	/* the search under way */
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

/* detection.c */

extern void *detection_alloc(Detection *state, size_t size);
extern char *detection_strdup(Detection *state, const char *text);
extern void detection_free_blocks(Detection *state);
extern DetectorOp *detection_send(Detection *state, RequestKind kind,
								  DetectionTask task, const char *path,
								  int32_t number);
extern bool detection_take(Detection *state, uint32_t serial, Pending *pending);
extern void detection_wake(Detection *state, int64_t at);
extern void detection_set_edges(Detection *state, LocalEdge *edges, int nedges);
extern LocalEdge *detection_find_edge(Detection *state, const WaitEdge *edge);
extern Holder *detection_find_holder(const Detection *state, const char *path);
extern Holder *detection_add_holder(Detection *state, const char *path);
extern void detection_drop_holder(Detection *state, Holder *holder);
extern Holder *detection_next_holder(const Detection *state,
									 const Holder *holder);
extern void detection_note_changed(Detection *state, Holder *holder,
								   bool first);
extern void detection_note_all_changed(Detection *state);

/* directory.c */

extern void waits_dir_path_in(const char *dir, const char *name,
							  char path[NOTE_VERTEX_SIZE]);
extern WaitsDir *waits_dir_find(Detection *state, const char *path);
extern void waits_dir_sweep(Detection *state, const char *path);
extern void waits_dir_sweep_anew(Detection *state, const char *path);
extern void waits_dir_throw_away(Detection *state, const char *dir,
								 const char *name);
extern void waits_dir_made(Detection *state, const Pending *pending,
						   const DetectorInput *in);
extern void waits_dir_deleted(Detection *state, const Pending *pending,
							  const DetectorInput *in);
extern void waits_dir_changed(Detection *state, uint32_t serial);
extern void waits_dir_resumed(Detection *state);
extern void waits_dir_want(Detection *state, const char *const *dirs, int ndirs);
extern void waits_dir_listed(Detection *state, WaitsDir *dir, const DetectorInput *in);
extern void waits_dir_forget(Detection *state);
extern void waits_dir_watch_needed(Detection *state);
extern void waits_dir_clean_up(Detection *state);

/* confirm.c */

extern void confirm_found(Detection *state, WaitDeadlock *deadlock);
extern void confirm_done(Detection *state, const Pending *pending,
						 const DetectorInput *in);
extern void confirm_scanned(Detection *state, uint32_t scan);
extern void confirm_forget(Detection *state);
extern void confirm_advance(Detection *state);

#endif							/* ZKLOCK_DETECTION_PRIVATE_H */
