/*-------------------------------------------------------------------------
 *
 * tls.c
 *		The files for encrypted connections to ZooKeeper.
 *
 * libzookeeper_mt reads them itself, at each connection.  What we know of it,
 * as of 3.8.0 and 3.9.3:
 *
 * - Files that it cannot use make its IO thread try again at once, for ever.
 *	 So we look at them first; and what we do not find ends the worker, so that
 *	 the next one tries a second later.
 * - It trusts the authorities of the system, too, and does not look at the name
 *	 in the server's certificate: whoever has a certificate of any of them could
 *	 pose as ZooKeeper.  OpenSSL takes the authorities of the system from where
 *	 two environment variables say, so in the worker they name our file.
 * - It waits for the end of a handshake for ever: see connection.c and
 *	 client_close().
 * - It asks for the passphrase of a key on the terminal if it is given none.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/tls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/tls.h"

/* Not a passphrase: with a key that has one, the library fails. */
#define NO_PASSPHRASE		"none"

/* What a file may have at most. */
#define MAX_FILE_BYTES		(1024 * 1024)

/*
 * tls_files
 *		The files as the library wants them, palloc'd; NULL: no TLS.
 */
char *
tls_files(void)
{
	return tls_is_wanted() ?
		psprintf("%s,%s,%s,%s", zklock_tls_ca, zklock_tls_cert, zklock_tls_key,
				 NO_PASSPHRASE) : NULL;
}

/*
 * As PostgreSQL does for its own key: our own key must be ours alone; one of
 * root may be readable by a group, of which we are a member.
 */
static char *
find_mode_problem(const char *path, const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return psprintf("private key file \"%s\" is not a regular file", path);
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return psprintf("private key file \"%s\" must be owned by the database user or root",
						path);
	if (st->st_mode & (st->st_uid == geteuid() ? S_IRWXG | S_IRWXO :
					   S_IWGRP | S_IXGRP | S_IRWXO))
		return psprintf("private key file \"%s\" has group or world access: it must have mode 0600 if it is of the database user, 0640 if it is of root",
						path);
	return NULL;
}

/* What is wrong with a file that must have a line with this; NULL: nothing. */
static char *
find_file_problem(const char *path, const char *mark, bool is_key)
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
	else if (is_key)
		problem = find_mode_problem(path, &st);
	if (problem == NULL)
	{
		text = palloc(MAX_FILE_BYTES + 1);
		n = read(fd, text, MAX_FILE_BYTES);
		if (n < 0)
			problem = psprintf("could not read file \"%s\": %m", path);
		else
		{
			text[n] = '\0';
			if (strstr(text, mark) == NULL)
				problem = psprintf("file \"%s\" has no \"%s\"", path, mark);
			memset(text, 0, n);
		}
		pfree(text);
	}
	CloseTransientFile(fd);
	return problem;
}

/*
 * tls_find_problem
 *		Why the files cannot be used, palloc'd; or NULL.
 *
 * If they can, OpenSSL trusts in this process those authorities only that are
 * in ours: to be called ahead of the first handle.
 */
char *
tls_find_problem(void)
{
	char	   *problem;

	if (!tls_is_wanted())
		return NULL;
	problem = find_file_problem(zklock_tls_ca, "BEGIN CERTIFICATE", false);
	if (problem == NULL)
		problem = find_file_problem(zklock_tls_cert, "BEGIN CERTIFICATE", false);
	if (problem == NULL)
		problem = find_file_problem(zklock_tls_key, "PRIVATE KEY", true);
	if (problem == NULL)
	{
		setenv("SSL_CERT_FILE", zklock_tls_ca, 1);
		setenv("SSL_CERT_DIR", zklock_tls_ca, 1);	/* a directory it is not */
	}
	return problem;
}

/*
 * tls_is_hopeless
 *		Has the library just told that it cannot use the files?
 */
bool
tls_is_hopeless(const char *message)
{
	return tls_is_wanted() &&
		(strncmp(message, "Failed to load ", strlen("Failed to load ")) == 0 ||
		 strncmp(message, "SSL_CTX_", strlen("SSL_CTX_")) == 0);
}
