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

/* The longest note that we write, with its terminating zero. */
#define NOTE_SIZE		256

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
extern void note_parse(Note *note, const char *data, int len);
extern bool note_is_of_instance(const char *data, int len);
extern bool note_may_be_retained(const char *data, int len);
extern bool note_is_revocation(const char *data, int len);

#endif							/* ZKLOCK_NOTE_H */
