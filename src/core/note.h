/*-------------------------------------------------------------------------
 *
 * note.h
 *		The data of a contender: who it is, and what it tells others.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/note.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTE_H
#define ZKLOCK_NOTE_H

#include <stdbool.h>

/* No note that we write is longer, with its terminating zero. */
#define NOTE_SIZE		256

/* The same for a value, as it is before it is encoded. */
#define NOTE_VALUE_SIZE	128

/* The note of a contender of a cluster, ours or another, begins with this. */
#define NOTE_PREFIX		"postgresql "

/*
 * A contender that may own the lock and not use it says so.  Its cluster gives
 * way when somebody stands behind it, or writes that the lock is in use.
 * Readers of version 1.0 want it at the end.
 */
#define NOTE_RETAIN_MARK	" retain=yes"

/* Curator's Revoker writes this over all else, to ask for the lock. */
#define NOTE_REVOCATION_DATA	"__REVOKE__"

typedef enum NoteKind
{
	NOTE_EMPTY,					/* there are no data, or we may not read them */
	NOTE_OF_CLUSTER,
	NOTE_REVOCATION,			/* somebody asks for the lock */
	NOTE_OF_ANOTHER				/* of another client, with a form of its own */
} NoteKind;

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
	char		host[NOTE_VALUE_SIZE];	/* where the cluster runs */
	int			port;
	char		cluster[NOTE_VALUE_SIZE];	/* its cluster_name */
	int			pid;			/* of the backend that asked for the lock */
	char		others[NOTE_SIZE];	/* all other words, as they are written */
} Note;

extern void note_set_contender(Note *note, const char *host, int port,
							   const char *cluster, int pid, bool retain);
extern int	note_write(const Note *note, char data[NOTE_SIZE]);
extern void note_parse(Note *note, const char *data, int len);
extern bool note_is_of_cluster(const char *data, int len);
extern bool note_may_be_retained(const char *data, int len);
extern bool note_is_revocation(const char *data, int len);

#endif							/* ZKLOCK_NOTE_H */
