/*-------------------------------------------------------------------------
 *
 * file_check.h
 *		Looks at files ahead of libzookeeper_mt, which reads them itself.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/file_check.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FILE_CHECK_H
#define ZKLOCK_FILE_CHECK_H

/* Why the text of a file cannot be used, palloc'd; or NULL. */
typedef char *(*FileTextCheck) (const char *path, const char *text);

extern char *file_find_problem(const char *path, const char *secret,
							   FileTextCheck check);

#endif							/* ZKLOCK_FILE_CHECK_H */
