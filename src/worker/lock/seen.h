/*-------------------------------------------------------------------------
 *
 * seen.h
 *		Which lock directories have been seen to exist.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/seen.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SEEN_H
#define ZKLOCK_SEEN_H

extern void seen_forget_all(void);
extern void seen_note(const char *path, bool exists);
extern bool seen_has(const char *path);

#endif							/* ZKLOCK_SEEN_H */
