/*-------------------------------------------------------------------------
 *
 * file_check.c
 *		Looks at files ahead of libzookeeper_mt, which reads them itself.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/file_check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/fd.h"
#include "worker/zookeeper/file_check.h"

/* What a file may have at most. */
#define MAX_FILE_BYTES		(1024 * 1024)

/*
 * As PostgreSQL does for its own key: a file of ours must be ours alone; one of
 * root may be readable by a group, of which we are a member.
 */
static char *
find_mode_problem(const char *path, const char *secret, const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return psprintf("%s file \"%s\" is not a regular file", secret, path);
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return psprintf("%s file \"%s\" must be owned by the database user or root",
						secret, path);
	if (st->st_mode & (st->st_uid == geteuid() ? S_IRWXG | S_IRWXO :
					   S_IWGRP | S_IXGRP | S_IRWXO))
		return psprintf("%s file \"%s\" has group or world access: it must have mode 0600 if it is of the database user, 0640 if it is of root",
						secret, path);
	return NULL;
}

/*
 * file_find_problem
 *		Why a file cannot be used, palloc'd; or NULL.
 *
 * "secret" says what the file has, as "private key", if nobody else may read
 * it; else it is NULL.  "check" looks at its text.
 */
char *
file_find_problem(const char *path, const char *secret, FileTextCheck check)
{
	int			fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	struct stat st;
	char	   *problem = NULL;
	char	   *text;
	ssize_t		n;

	if (fd < 0)
		return psprintf("could not open file \"%s\": %m", path);
	if (fstat(fd, &st) < 0)
		problem = psprintf("could not stat file \"%s\": %m", path);
	else if (secret != NULL)
		problem = find_mode_problem(path, secret, &st);
	if (problem == NULL)
	{
		text = palloc(MAX_FILE_BYTES + 1);
		n = read(fd, text, MAX_FILE_BYTES);
		if (n < 0)
			problem = psprintf("could not read file \"%s\": %m", path);
		else
		{
			text[n] = '\0';
			problem = check(path, text);
			explicit_bzero(text, n);
		}
		pfree(text);
	}
	CloseTransientFile(fd);
	return problem;
}
