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
 *		src/worker/zookeeper/tls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdlib.h>

#include "shared/secure.h"
#include "worker/zookeeper/file_check.h"
#include "worker/zookeeper/tls.h"

/* Not a passphrase: with a key that has one, the library fails. */
#define NO_PASSPHRASE		"none"

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

static char *
check_mark(const char *path, const char *text, const char *mark)
{
	return strstr(text, mark) ? NULL :
		psprintf("file \"%s\" has no \"%s\"", path, mark);
}

static char *
check_certificate(const char *path, const char *text)
{
	return check_mark(path, text, "BEGIN CERTIFICATE");
}

static char *
check_key(const char *path, const char *text)
{
	return check_mark(path, text, "PRIVATE KEY");
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
	problem = file_find_problem(zklock_tls_ca, NULL, check_certificate);
	if (problem == NULL)
		problem = file_find_problem(zklock_tls_cert, NULL, check_certificate);
	if (problem == NULL)
		problem = file_find_problem(zklock_tls_key, "private key", check_key);
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
