/*-------------------------------------------------------------------------
 *
 * note.h
 *		The data of a contender: its owner, and what it tells other
 *		instances.
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

/* The longest note without waits that we write, with its terminating zero. */
#define NOTE_SIZE		256

/* The most waits in the note of an owner. */
#define NOTE_MAX_WAITS	16

/* " waits=", the longest of numbers, and the longest vertex, encoded */
#define NOTE_WAIT_SIZE	(7 + 140 + 3 * NOTE_VERTEX_SIZE)

/* The longest note that we write, with its terminating zero. */
#define NOTE_FULL_SIZE	(NOTE_SIZE + NOTE_MAX_WAITS * NOTE_WAIT_SIZE)

/* The beginning of the note of an instance's contender, ours or another. */
#define NOTE_PREFIX		"postgresql "

/*
 * Ends the note of a contender that may own the lock without using it.  If
 * another contender is behind it, its instance gives the lock up, or writes
 * that the lock is in use.
 */
#define NOTE_RETAIN_MARK	" retain=yes"

/* Curator's Revoker replaces the data by this to request the lock. */
#define NOTE_REVOCATION_DATA	"__REVOKE__"

typedef enum NoteKind
{
	NOTE_EMPTY,					/* no data, or we may not read them */
	NOTE_OF_INSTANCE,
	NOTE_REVOCATION,			/* another client requests the lock */
	NOTE_OF_ANOTHER				/* another client's, in a form of its own */
} NoteKind;

/*
 * A vertex of the wait-for graph as text, with its terminator: the path of a
 * contender, as its session sees it ("<lock directory>/leases/<contender>" is
 * the longest); or a session of an instance, "<session id>:<cluster_name>",
 * which does not begin with a slash.
 */
#define NOTE_VERTEX_SIZE	(ZNODE_PATH_SIZE + 7 + ZNODE_CONTENDER_SIZE)

/*
 * What one backend holds or waits for, and since when.  Never reused while the
 * contender exists.
 */
typedef struct NoteId
{
	int			pid;
	int64_t		since;			/* us, of the instance's clock */
} NoteId;

/* How the contender that is waited for waits. */
typedef enum NoteWaitKind
{
	NOTE_WAIT_EXCLUSIVE,
	NOTE_WAIT_SHARED,
	NOTE_WAIT_PERMIT,			/* in <name>/locks, for a permit */
	NOTE_WAIT_SESSION			/* "to" is a session, which waits itself */
} NoteWaitKind;

/*
 * A wait-for edge, as in the note of the contender that is held: its holder
 * waits for "to", directly or through other backends of its instance.
 */
typedef struct NoteWait
{
	NoteId		hold;			/* the holder of this note's contender */
	NoteId		wait;			/* the backend that waits for "to" */
	int64_t		began;			/* the waiting transaction, us since 1970, UTC.
								 * 0: that backend is only ahead of another one
								 * on the way, in its instance's queue for one
								 * of the locks that it waits for; likewise in
								 * all waits with the same hold, chain and
								 * wait.pid */
	uint64_t	chain;			/* hash of the backends in between and their
								 * waits, in order; 0: holder and waiter are
								 * one */
	NoteWaitKind kind;
	int			permits;		/* WAIT_PERMIT: of the semaphore; else 0 */
	int			alternatives;	/* the number of locks any of which ends the
								 * wait (zk_lock_any): each is an edge with
								 * the same hold, chain and wait.pid;
								 * otherwise 1, even if it waits for several
								 * (zk_lock_all) */
	char		to[NOTE_VERTEX_SIZE];
} NoteWait;

/* The known words: bits of Note.words. */
#define NOTE_HOST		(1 << 0)
#define NOTE_PORT		(1 << 1)
#define NOTE_CLUSTER	(1 << 2)
#define NOTE_PID		(1 << 3)
#define NOTE_RETAIN		(1 << 4)

typedef struct Note
{
	NoteKind	kind;
	unsigned	words;			/* present words; other fields are not set */
	char		host[WORD_VALUE_SIZE];
	int			port;
	char		cluster_name[WORD_VALUE_SIZE];	/* its cluster_name */
	int			pid;			/* of the backend that asked for the lock */
	char		others[NOTE_SIZE];	/* all other words, as written */
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
