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

#include "core/request.h"

/* the session */
extern void directories_forget(void);
extern void directories_disconnect(void);

/* contenders */
extern bool directory_is_known(const char *path);
extern void directory_note(const char *path, bool known);
extern bool directory_owns_unread(const char *path);
extern int32_t directory_next(const char *path);
extern void directory_leave(const char *path, int32_t number);
extern void directory_left(const char *path, int32_t number, bool deleted);
extern void directory_made(const RequestAnswer *in);
extern void directory_warn(const char *path, const char *child);

#endif							/* ZKLOCK_DIRECTORIES_H */
