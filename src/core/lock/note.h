/*-------------------------------------------------------------------------
 *
 * note.h
 *		The data of a contender: who it is, and what it tells others.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/note.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTE_H
#define ZKLOCK_NOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/lock/znode.h"
#include "core/word.h"

/* No note without waits that we write is longer, with its terminating zero. */
#define NOTE_SIZE		256

/* An owner's note tells at most so many of the waits that keep it. */
#define NOTE_MAX_WAITS	16

/* " waits=", the longest of numbers, and the longest vertex, encoded */
#define NOTE_WAIT_SIZE	(7 + 140 + 3 * NOTE_VERTEX_SIZE)

/* No note of ours is longer, with its terminating zero. */
#define NOTE_FULL_SIZE	(NOTE_SIZE + NOTE_MAX_WAITS * NOTE_WAIT_SIZE)

/*
 * The note of a contender of an instance, ours or another, begins with this.
 */
#define NOTE_PREFIX		"postgresql "

/*
 * A contender that may own the lock and not use it says so.  Its instance
 * gives way when somebody stands behind it, or writes that the lock is in use.
 * Readers of version 1.0 want it at the end.
 */
#define NOTE_RETAIN_MARK	" retain=yes"

/* Curator's Revoker writes this over all else, to ask for the lock. */
#define NOTE_REVOCATION_DATA	"__REVOKE__"

typedef enum NoteKind
{
	NOTE_EMPTY,					/* there are no data, or we may not read them */
	NOTE_OF_INSTANCE,
	NOTE_REVOCATION,			/* somebody asks for the lock */
	NOTE_OF_ANOTHER				/* of another client, with a form of its own */
} NoteKind;

/*
 * A vertex of the graph of waits as text: the path of a contender, which is as
 * its session sees it; or, not beginning with a slash, a session of an
 * instance: "<session id>:<cluster_name>".  "<lock
 * directory>/leases/<contender>" and the terminator.
 */
#define NOTE_VERTEX_SIZE	(ZNODE_PATH_SIZE + 7 + ZNODE_CONTENDER_SIZE)

/*
 * What one backend holds or waits for, and for how long: never used again while
 * the contender exists.
 */
typedef struct NoteId
{
	int			pid;
	int64_t		since;			/* us, of the instance's own clock */
} NoteId;

/* How the contender waits that somebody waits for. */
typedef enum NoteWaitKind
{
	NOTE_WAIT_EXCLUSIVE,
	NOTE_WAIT_SHARED,
	NOTE_WAIT_PERMIT,			/* in <name>/locks, for a permit */
	NOTE_WAIT_SESSION			/* "to" is a session, which waits itself */
} NoteWaitKind;

/*
 * An edge of the graph of waits, as the note of the contender that is held
 * tells it: who holds it waits for "to", himself or by way of other backends of
 * his instance.
 */
typedef struct NoteWait
{
	NoteId		hold;			/* who holds the contender of this note */
	NoteId		wait;			/* who waits for "to" */
	int64_t		began;			/* his transaction; us since 1970, UTC; 0: he is
								 * only ahead of a backend between the two, in
								 * the queue of his instance for one of the
								 * locks that he waits for; so in all waits
								 * with the same hold, chain and wait.pid */
	uint64_t	chain;			/* hash of the backends between the two and
								 * their waits, in order; 0: they are one */
	NoteWaitKind kind;
	int			permits;		/* NOTE_WAIT_PERMIT: of the semaphore; else 0 */
	int			alternatives;	/* he waits for one of so many (zk_lock_any):
								 * each is an edge, with the same hold, chain
								 * and wait.pid; else 1, also if he waits for
								 * several together (zk_lock_all) */
	char		to[NOTE_VERTEX_SIZE];
} NoteWait;

/* The words that are known: bits of Note.words. */
#define NOTE_HOST		(1 << 0)
#define NOTE_PORT		(1 << 1)
#define NOTE_CLUSTER	(1 << 2)
#define NOTE_PID		(1 << 3)
#define NOTE_RETAIN		(1 << 4)

typedef struct Note
{
	NoteKind	kind;
	unsigned	words;			/* those that it has; the others' fields are
								 * not set */
	char		host[WORD_VALUE_SIZE];	/* where the instance runs */
	int			port;
	char		cluster_name[WORD_VALUE_SIZE];	/* its cluster_name */
	int			pid;			/* of the backend that asked for the lock */
	char		others[NOTE_SIZE];	/* all other words, as they are written */
} Note;

extern void note_set_contender(Note *note, const char *host, int port,
							   const char *cluster_name, int pid, bool retain);
extern int	note_write(const Note *note, char data[NOTE_SIZE]);
extern int	note_write_waits(const Note *note, const NoteWait *waits,
							 int nwaits, char data[NOTE_FULL_SIZE]);
extern void note_parse(Note *note, const char *data, int len);
extern int	note_parse_waits(const char *data, int len,
							 NoteWait waits[NOTE_MAX_WAITS]);
extern int	note_leave_out_waits(const char *data, int len, char *kept);
extern ZnodeKind note_wait_kind(const NoteWait *wait);
extern void note_lock_of(const NoteWait *wait, char lock[NOTE_VERTEX_SIZE]);
extern bool note_queue_of(const NoteWait *wait,
						  char directory[NOTE_VERTEX_SIZE]);
extern int	note_write_wait(const NoteWait *wait, char text[NOTE_WAIT_SIZE]);
extern bool note_parse_wait(const char *text, int len, NoteWait *wait);
extern int	note_encode(const char *value, char *text, int size);
extern bool note_decode(const char *text, int len, char *value, int size);
extern bool note_same_wait(const NoteWait *a, const NoteWait *b);
extern bool note_is_of_instance(const char *data, int len);
extern bool note_may_be_retained(const char *data, int len);
extern bool note_is_revocation(const char *data, int len);

#endif							/* ZKLOCK_NOTE_H */
