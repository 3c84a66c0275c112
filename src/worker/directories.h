/*-------------------------------------------------------------------------
 *
 * directories.h
 *		What the worker knows of lock directories.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/directories.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DIRECTORIES_H
#define ZKLOCK_DIRECTORIES_H

extern void directories_forget(void);
extern bool directory_is_known(const char *path);
extern void directory_note(const char *path, bool known);
extern void directory_made(void);
extern void directory_warn(const char *path, const char *child,
						   bool persistent);

#endif							/* ZKLOCK_DIRECTORIES_H */
