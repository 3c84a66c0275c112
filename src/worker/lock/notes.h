/*-------------------------------------------------------------------------
 *
 * notes.h
 *		The notes of our contenders.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/notes.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTES_H
#define ZKLOCK_NOTES_H

#include "core/lock/note.h"
#include "worker/lock/contender.h"

extern void notes_set_waits(Contender *contender, const NoteWait *waits,
							int nwaits);
extern const char *notes_write(const Contender *contender);
extern const char *notes_write_session(const NoteWait *waits, int nwaits);

#endif							/* ZKLOCK_NOTES_H */
