/*-------------------------------------------------------------------------
 *
 * security.c
 *		TLS and SASL for the library.
 *
 * TLS.  libzookeeper_mt reads the files itself, at each connection.  Known
 * facts of 3.8.0 and 3.9.3:
 *
 * - If it cannot use a file, its IO thread retries at once, without end.  So
 *   we check the files first; what we do not find ends the worker, so that the
 *   next one tries a second later.
 * - It also trusts the system's authorities, and does not check the name in
 *   the server's certificate: the owner of any certificate of theirs could
 *   pose as ZooKeeper.  OpenSSL reads the location of the system's authorities
 *   from two environment variables, so in the worker they name our file.
 * - It waits for the end of a handshake without limit: see lifecycle.c and
 *   client_close().
 * - Without the passphrase of a key, it asks for it on the terminal.
 *
 * SASL.  The mechanism is DIGEST-MD5, the one of ZooKeeper's mechanisms that
 * uses a password.  The password does not go over the network, and the server
 * must prove that it knows it, too.  Kerberos would need the name of each
 * server, but the library uses one name for all.
 *
 * libzookeeper_mt uses Cyrus SASL.  Known facts of 3.8.0, 3.9.3 and 2.1.28:
 *
 * - The program must initialize Cyrus SASL.  It need not provide mutexes: only
 *   a thread of the one handle authenticates.
 * - The library keeps the password with its callbacks, which handles must not
 *   share.  It has no function to free them, so a session has one set for the
 *   life of the process.
 * - Cyrus SASL looks up the name of this machine at each connection, and fails
 *   if there is none.
 * - The library reads the password, the first line of the file, at each
 *   connection; without a file it would ask for it on the terminal.
 * - When authentication has failed, its IO thread ends without a report: see
 *   client_next_event().
 * - It cannot be combined with TLS.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/security.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/zookeeper/client_private.h"
#include "worker/zookeeper/security.h"

/* The longest file. */
#define MAX_FILE_BYTES		(1024 * 1024)

/* Not a passphrase: with a key that has one, the library fails. */
#define NO_PASSPHRASE		"none"

/* What ZooKeeper's servers use for DIGEST-MD5, whatever their names. */
#define SERVICE				"zookeeper"
#define HOST				"zk-sasl-md5"

/* The library reads 1023 bytes of the file. */
#define MAX_PASSWORD_BYTES	1000

/* zoo_sasl_params_t, which zookeeper.h declares only if built so. */
typedef struct SaslParams
{
	const char *service;
	const char *host;
	const char *mechanisms;
	const void *callbacks;
} SaslParams;

/*
 * As PostgreSQL does for its own key: a file of ours must not be accessible to
 * others; a file of root may be readable by a group of ours.
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

static char *
check_password(const char *path, const char *text)
{
	size_t		len = strcspn(text, "\n");

	if (len == 0)
		return psprintf("file \"%s\" has no password in its first line", path);
	if (len > MAX_PASSWORD_BYTES)
		return psprintf("the password in file \"%s\" is longer than %d bytes",
						path, MAX_PASSWORD_BYTES);
	return NULL;
}

/*
 * Why a file cannot be used, palloc'd; or NULL.
 *
 * "secret" names its contents, such as "private key", if only we may read it;
 * otherwise it is NULL.  The file must have "mark" in it or, if that is NULL, a
 * password.
 */
static char *
find_file_problem(const char *path, const char *secret, const char *mark)
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
			if (mark == NULL)
				problem = check_password(path, text);
			else if (strstr(text, mark) == NULL)
				problem = psprintf("file \"%s\" has no \"%s\"", path, mark);
			explicit_bzero(text, n);
		}
		pfree(text);
	}
	CloseTransientFile(fd);
	return problem;
}

/* Why the files for TLS cannot be used. */
static char *
find_tls_problem(void)
{
	char	   *problem;

	if ((problem = find_file_problem(zklock_tls_ca, NULL,
									 "BEGIN CERTIFICATE")) != NULL ||
		(problem = find_file_problem(zklock_tls_cert, NULL,
									 "BEGIN CERTIFICATE")) != NULL ||
		(problem = find_file_problem(zklock_tls_key, "private key",
									 "PRIVATE KEY")) != NULL)
		return problem;
	setenv("SSL_CERT_FILE", zklock_tls_ca, 1);
	setenv("SSL_CERT_DIR", zklock_tls_ca, 1);	/* a file, so no directory of
												 * authorities */
	return NULL;
}

/*
 * Initialize the library, once in a process.  Returns why that failed,
 * palloc'd; or NULL.
 */
static char *
find_library_problem(void)
{
	static bool initialized = false;
	int			rc;

	if (initialized)
		return NULL;
	client_enter_library();
	rc = sasl_client_init(NULL);
	client_leave_library();
	initialized = rc == 0;
	return initialized ? NULL :
		psprintf("could not initialize Cyrus SASL: error %d", rc);
}

/*
 * security_find_problem
 *		Why TLS or SASL, if wanted, cannot be used, palloc'd; or NULL.
 *
 * With TLS, OpenSSL trusts only the authorities in our file from then on, in
 * this process: to be called before the first handle is made.
 */
char *
security_find_problem(void)
{
	char	   *problem;

	if (tls_is_wanted())
		return find_tls_problem();
	if (!sasl_is_wanted())
		return NULL;
	problem = find_file_problem(zklock_sasl_password_file, "password", NULL);
	return problem ? problem : find_library_problem();
}

/* The files, as the library wants them, palloc'd; NULL: no TLS. */
char *
tls_files(void)
{
	return tls_is_wanted() ?
		psprintf("%s,%s,%s,%s", zklock_tls_ca, zklock_tls_cert, zklock_tls_key,
				 NO_PASSPHRASE) : NULL;
}

/* Does this message say that the library cannot use the files? */
bool
tls_is_hopeless(const char *message)
{
	return tls_is_wanted() &&
		(strncmp(message, "Failed to load ", strlen("Failed to load ")) == 0 ||
		 strncmp(message, "SSL_CTX_", strlen("SSL_CTX_")) == 0);
}

/*
 * sasl_params
 *		The library's parameters for the SASL authentication of the session;
 *		NULL: no SASL.
 *
 * To be called after security_find_problem() has found none.  Valid until the
 * process ends: another user, or file, needs another worker.  Errors: 53200.
 */
const SaslParams *
sasl_params(void)
{
	static SaslParams params;

	if (!sasl_is_wanted())
		return NULL;
	if (params.callbacks != NULL)
		return &params;

	client_enter_library();
	params.callbacks =
		zoo_sasl_make_basic_callbacks(zklock_sasl_user, NULL,
									  zklock_sasl_password_file);
	client_leave_library();

	if (params.callbacks == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));
	params.service = SERVICE;
	params.host = HOST;
	params.mechanisms = "DIGEST-MD5";
	return &params;
}
