/*-------------------------------------------------------------------------
 *
 * detection_private.h
 *		The state of a detector, and what its files do for one another.
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
	TASK_LIST,					/* a directory, to see new children */
	TASK_MKDIR,					/* a directory */
	TASK_READ,					/* a probe of others, or one left behind */
	TASK_SWEEP,					/* a znode in a directory: is it ours? */
	TASK_PROBE,					/* the create of a probe */
	TASK_ANSWER,				/* the create of an answer */
	TASK_ACT,
	TASK_DELETE
} DetectionTask;

/* An operation without an answer as yet. */
typedef struct Pending
{
	uint32_t	serial;
	DetectionTask task;
	char	   *path;			/* of the operation, or the directory of an
								 * act's probe; malloc'd */
	int32_t		number;			/* of the probe that it is about, if any */
} Pending;

/* A local edge, as last reported. */
typedef struct LocalEdge
{
	WaitEdge	edge;
	struct OwnNote *note;		/* of edge.from */
	int			next_of_note;	/* index of its next edge, or -1 */
	int			next_of_hash;	/* the same, in Detection.edge_table */
	bool		kept;			/* it has been reported again */
	bool		published;		/* it is in a note, as far as we know */
	bool		ended;			/* its wait is that of a victim */
	int64_t		search_at;		/* not to be searched from before */
} LocalEdge;

/*
 * The note of a contender of ours that has, or had, waits; or that of a
 * session's znode (vertex.c).
 */
typedef struct OwnNote
{
	char		path[NOTE_VERTEX_SIZE];
	uint64_t	hash;			/* of that */
	struct OwnNote *next;		/* in Detection.notes */
	struct OwnNote *next_changed;	/* in Detection.changed, ... */
	bool		changed;		/* ... if it is there */
	int			edges;			/* index of its first edge, or -1 */
	NoteWait   *sent;			/* what was last written; malloc'd */
	int			nsent;
	uint32_t	out;			/* serial of that write, until answered */
	bool		unsure;			/* the note may have any contents */
	bool		copy_differs;	/* the note is as sent, but the worker's copy
								 * of it is not */
	bool		grows;			/* the write that is out may add a wait */
	int32_t		grown;			/* the version in which one was last added */
	bool		session;		/* it is a session's znode */
	bool		made;			/* session: the znode may exist */
	bool		gone;			/* the contender does not exist */
	int64_t		write_at;		/* it may have to be written then; 0: no */
	int64_t		retry_at;		/* not to be written before */
	int			first;			/* first edge to be written, if the note has
								 * no room for all */
	int64_t		turn_at;		/* when other edges have their turn */
} OwnNote;

/* The %waits of a root. */
typedef struct WaitsDir
{
	char		path[NOTE_VERTEX_SIZE];
	bool		needed;			/* for any of the following reasons, or for a
								 * probe */
	bool		used;			/* an edge or note belongs to it */
	bool		wanted;			/* EDGES has requested it */
	bool		sweep;			/* it may have unknown znodes of ours, to be
								 * found by the next list */
	bool		exists;			/* as far as we know */
	char		(*named)[VERTEX_SESSION_SIZE];	/* sessions that others name
												 * in it; malloc'd */
	int			nnamed;
	uint32_t	watch;			/* serial of the list that has set the watch,
								 * or will; 0: none */
	bool		listing;		/* a list is out */
	bool		making;			/* a mkdir is out */
	bool		barrier;		/* the next list is to go behind a barrier */
	int64_t		retry_at;		/* no list or mkdir before */
	int64_t		leave_at;		/* not needed: to be deleted then; 0: no */
} WaitsDir;

typedef enum ProbeState
{
	PROBE_CREATING,				/* ours; its create is out */
	PROBE_READING,				/* its data are being read */
	PROBE_SCANNING,				/* it waits for a scan of the locks */
	PROBE_WAITING,				/* it waits for others; we have answered, if
								 * we have to */
	PROBE_ACTING,				/* the victim is ours; the act is out */
	PROBE_CHECKING,				/* the act's result is unknown: a list will
								 * show it */
	PROBE_OVER					/* it is only to be deleted */
} ProbeState;

/* A probe in a directory, of ours or of others. */
typedef struct Probe
{
	ProbeState	state;
	char		dir[NOTE_VERTEX_SIZE];
	int32_t		number;			/* -1 while CREATING */
	bool		ours;			/* we have created it */
	uint32_t	born;			/* lists after this serial show it, as long as
								 * it exists */
	uint32_t	read;			/* serial of the get of its data; 0: it is
								 * ours */
	WaitDeadlock deadlock;
	uint64_t	mine;			/* its members that are ours, once read */
	uint64_t	confirmed;		/* by answers */
	bool		checked_own;	/* the victim is ours, and all of our edges
								 * were checked in this step */
	bool		denied;			/* an answer says no */
	bool		answering;		/* the create of our answer is out */
	uint32_t	scan;			/* SCANNING: the scan needed, or a later one */
	uint32_t	checked;		/* CHECKING: the list needed, or a later one */
	int64_t		since;			/* when its create or get was requested, ... */
	int64_t		trip;			/* ... and how long that took; 0: unknown */
	int64_t		deadline;		/* OVER then, unless there is an event */
	char		answer[PROBE_NAME_SIZE];	/* name of our answer, or "" */
	bool		verdict;		/* a verdict of ours exists */
} Probe;

/* A znode of ours to be deleted. */
typedef struct PendingDelete
{
	char		path[NOTE_VERTEX_SIZE];
	bool		out;			/* a delete is */
} PendingDelete;

typedef struct Detection
{
	int64_t		timeout;		/* deadlock_timeout, us */
	int64_t		now;
	bool		connected;
	int64_t		write_at;		/* when notes may have to be written */
	uint32_t	serial;			/* of the last operation */
	uint32_t	scan;			/* number of the last scan requested */
	LocalEdge  *edges;
	int			nedges;
	int		   *edge_table;		/* indexes by hash, or -1 */
	uint64_t	edge_mask;		/* of those hashes */
	OwnNote   **notes;			/* by hash */
	uint64_t	note_mask;		/* of those hashes; 0: none */
	int			nnotes;
	OwnNote    *changed;		/* notes that may have to be written, ... */
	OwnNote    *last_changed;	/* ... in this order */
	int			nwriting;		/* writes that are out */
	bool		recount;		/* directories may have come into use or out of
								 * it */
	WaitsDir   *dirs;
	int			ndirs;
	Probe	   *probes;
	int			nprobes;
	PendingDelete *deletes;
	int			ndeletes;
	Pending    *pending;
	int			npending;
	bool		resumed;		/* new directories are to be swept */

	/* the search */
	bool		searching;		/* one is under way */
	int64_t		search_at;		/* no edge is to be searched from before */
	int			first_start;	/* the first edge to be checked whether it is
								 * due */
	WaitGraph	graph;
	WaitEdge   *starts;			/* the edges from which it began */
	int			nstarts;
	int			nreading;		/* its reads that are out */

	/* the output */
	DetectorOutput *out;
	DetectionCounts *counts;
	DetectorOp *ops;			/* those of the output */
	void	  **blocks;			/* what it points to: freed in the next step */
	int			nblocks;
} Detection;

/* detection.c */

extern void *detection_alloc(Detection *state, size_t size);
extern char *detection_strdup(Detection *state, const char *text);
extern void detection_free_blocks(Detection *state);
extern DetectorOp *detection_send(Detection *state, RequestKind kind,
								  DetectionTask task, const char *path,
								  int32_t number);
extern bool detection_take(Detection *state, uint32_t serial,
						   Pending *pending);
extern void detection_wake(Detection *state, int64_t at);
extern void detection_set_edges(Detection *state, LocalEdge *edges,
								int nedges);
extern LocalEdge *detection_find_edge(Detection *state, const WaitEdge *edge);
extern OwnNote *detection_find_note(const Detection *state, const char *path);
extern OwnNote *detection_add_note(Detection *state, const char *path);
extern void detection_drop_note(Detection *state, OwnNote *note);
extern OwnNote *detection_next_note(const Detection *state,
									 const OwnNote *note);
extern void detection_note_changed(Detection *state, OwnNote *note,
								   bool first);
extern void detection_note_all_changed(Detection *state);

/* waits_dir.c */

extern void waits_dir_path_in(const char *dir, const char *name,
							  char path[NOTE_VERTEX_SIZE]);
extern WaitsDir *waits_dir_find(Detection *state, const char *path);
extern void waits_dir_sweep(Detection *state, const char *path);
extern void waits_dir_sweep_new(Detection *state, const char *path);
extern void waits_dir_delete(Detection *state, const char *dir,
								 const char *name);
extern void waits_dir_made(Detection *state, const Pending *pending,
						   const DetectorInput *in);
extern void waits_dir_deleted(Detection *state, const Pending *pending,
							  const DetectorInput *in);
extern void waits_dir_changed(Detection *state, uint32_t serial);
extern void waits_dir_resumed(Detection *state);
extern void waits_dir_want(Detection *state, const char *const *dirs,
						   int ndirs);
extern void waits_dir_listed(Detection *state, WaitsDir *dir,
							 const DetectorInput *in);
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
