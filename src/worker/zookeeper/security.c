/*-------------------------------------------------------------------------
 *
 * security.c
 *		What the library gets to authenticate and to encrypt.
 *
 * Credentials (zklock.auth).  The directories of our contenders, and with
 * zklock.acl = creator the contenders too, belong to whoever made them: with
 * other credentials we could not even delete them.  So the sessions go on
 * presenting those that they have begun with, together with the new ones, while
 * there are contenders, and with zklock.acl = creator until %clusters and our
 * znode in it have an ACL for both (fleet.c).  Then the next worker resumes them
 * with the new ones only: credentials are of a connection, and cannot be taken
 * back from one.
 *
 * TLS.  libzookeeper_mt reads the files itself, at each connection.  What we know
 * of it, as of 3.8.0 and 3.9.3:
 *
 * - Files that it cannot use make its IO thread try again at once, for ever.
 *	 So we look at them first; and what we do not find ends the worker, so that
 *	 the next one tries a second later.
 * - It trusts the authorities of the system, too, and does not look at the name
 *	 in the server's certificate: whoever has a certificate of any of them could
 *	 pose as ZooKeeper.  OpenSSL takes the authorities of the system from where
 *	 two environment variables say, so in the worker they name our file.
 * - It waits for the end of a handshake for ever: see lifecycle.c and
 *	 client_close().
 * - It asks for the passphrase of a key on the terminal if it is given none.
 *
 * SASL.  The mechanism is DIGEST-MD5: of those that ZooKeeper's servers have, the
 * one that takes a password.  The password does not go over the network, and the
 * server must prove that it knows it, too.  Kerberos would need the name of each
 * server, and the library takes one name for all.
 *
 * libzookeeper_mt uses Cyrus SASL.  What we know of both, as of 3.8.0, 3.9.3
 * and 2.1.28:
 *
 * - The program must initialize Cyrus SASL, and give it mutexes: each handle
 *	 authenticates in a thread of its own.
 * - The library keeps the password with the callbacks that it makes: handles
 *	 must not share them.  It has no function to free them, so a session has
 *	 one set for the life of the process.
 * - Cyrus SASL looks up the name of this machine at each connection, and fails if
 *	 there is none.
 * - The library reads the password at each connection, the first line of the
 *	 file, and without a file it would ask for it on the terminal.
 * - When authentication has failed, its IO thread ends, and it tells nobody:
 *	 see client_next_event().
 * - It cannot have TLS at the same time.
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
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/settings.h"
#include "storage/fd.h"
#include "worker/zookeeper/fault_private.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/status.h"

/* What a file may have at most. */
#define MAX_FILE_BYTES		(1024 * 1024)

/* Not a passphrase: with a key that has one, the library fails. */
#define NO_PASSPHRASE		"none"

/* As ZooKeeper's servers have them for DIGEST-MD5, whatever they are called. */
#define SERVICE				"zookeeper"
#define HOST				"zk-sasl-md5"

/* The library reads 1023 bytes of the file. */
#define MAX_PASSWORD_BYTES	1000

/* Why the text of a file cannot be used, palloc'd; or NULL. */
typedef char *(*FileTextCheck) (const char *path, const char *text);

/* zoo_sasl_params_t, which zookeeper.h has for its own build only. */
typedef struct SaslParams
{
	const char *service;
	const char *host;
	const char *mechanisms;
	const void *callbacks;
} SaslParams;

/* What the sessions have presented, in the form of session_write_auths(). */
static char auths[ZK_AUTHS_SIZE];

static SaslParams sasl_of_session[ZK_MAX_SESSIONS];

/*
 * What follows runs in the library's threads, too.
 */

static void *
allocate_mutex(void)
{
	pthread_mutex_t *mutex = malloc(sizeof(*mutex));

	if (mutex != NULL && pthread_mutex_init(mutex, NULL) != 0)
	{
		free(mutex);
		mutex = NULL;
	}
	return mutex;
}

static int
lock_mutex(void *mutex)
{
	return pthread_mutex_lock(mutex);
}

static int
unlock_mutex(void *mutex)
{
	return pthread_mutex_unlock(mutex);
}

static void
dispose_mutex(void *mutex)
{
	pthread_mutex_destroy(mutex);
	free(mutex);
}

/*
 * From here on, everything runs in the main thread.
 */

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
 * Why a file cannot be used, palloc'd; or NULL.
 *
 * "secret" says what the file has, as "private key", if nobody else may read
 * it; else it is NULL.  "check" looks at its text.
 */
static char *
find_file_problem(const char *path, const char *secret, FileTextCheck check)
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
			text[		n] = '\0';

			problem = check(path, text);
			explicit_bzero(text, n);
		}
		pfree(text);
	}
	CloseTransientFile(fd);
	return problem;
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

/* The same of the files for TLS. */
static char *
find_tls_problem(void)
{
	char	   *problem;

	problem = find_file_problem(zklock_tls_ca, NULL, check_certificate);
	if (problem == NULL)
		problem = find_file_problem(zklock_tls_cert, NULL, check_certificate);
	if (problem == NULL)
		problem = find_file_problem(zklock_tls_key, "private key", check_key);
	if (problem == NULL)
	{
		setenv("SSL_CERT_FILE", zklock_tls_ca, 1);
		setenv("SSL_CERT_DIR", zklock_tls_ca, 1);	/* a directory it is not */
	}
	return problem;
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

/* Once in a process.  Returns why it cannot be done, palloc'd; or NULL. */
static char *
find_library_problem(void)
{
	static bool initialized = false;
	sigset_t	saved;
	int			rc;

	if (initialized)
		return NULL;
	fault_enter_library(&saved);
	sasl_set_mutex(allocate_mutex, lock_mutex, unlock_mutex, dispose_mutex);
	rc = sasl_client_init(NULL);
	fault_leave_library(&saved);
	initialized = rc == 0;
	return initialized ? NULL :
		psprintf("could not initialize Cyrus SASL: error %d", rc);
}

static char *
find_sasl_problem(void)
{
	char	   *problem;

	problem = find_file_problem(zklock_sasl_password_file, "password",
								check_password);
	return problem ? problem : find_library_problem();
}

/*
 * security_find_problem
 *		Why TLS or SASL, whichever is wanted, cannot be used, palloc'd; or NULL.
 *
 * If TLS can, OpenSSL trusts in this process those authorities only that are in
 * our file: to be called ahead of the first handle.
 */
char *
security_find_problem(void)
{
	if (tls_is_wanted())
		return find_tls_problem();
	return sasl_is_wanted() ? find_sasl_problem() : NULL;
}

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

/*
 * sasl_params
 *		What the library wants to know to authenticate the handle of a
 *		session; NULL: no SASL.
 *
 * To be called when security_find_problem() has found none.  Valid until the process
 * ends: another user, or another file, needs another worker.  Errors: 53200.
 */
const SaslParams *
sasl_params(int session)
{
	SaslParams *params = &sasl_of_session[session];
	sigset_t	saved;

	if (!sasl_is_wanted())
		return NULL;
	if (params->callbacks != NULL)
		return params;

	fault_enter_library(&saved);
	params->callbacks =
		zoo_sasl_make_basic_callbacks(zklock_sasl_user, NULL,
													  zklock_sasl_password_file);
	fault_leave_library(&saved);

	if (params->callbacks == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));
	params->service = SERVICE;
	params->host = HOST;
	params->mechanisms = "DIGEST-MD5";
	return params;
}

static char *
find_auth(const char *auth)
{
	for (char *known = auths; known[0] != '\0'; known += strlen(known) + 1)
		if (strcmp(known, auth) == 0)
			return known;
	return NULL;
}

static void
forget_auth(char *auth)
{
	size_t		len = strlen(auth) + 1;

	memmove(auth, auth + len, auths + sizeof(auths) - (auth + len));
}

/*
 * auths_attach
 *		Begin with what the worker before this one has presented.
 */
void
auths_attach(void)
{
	session_read_auths(auths);
}

/*
 * auths_collect
 *		A session is to present zklock.auth, and nothing else if there is
 *		no session or no others are needed, since there are no contenders.
 *
 * Returns all that it is to present, one string after the other, with an
 * empty one behind the last.
 */
const char *
auths_collect(bool needed)
{
	size_t		need = strlen(zklock_auth) + 1;
	char	   *end = auths;

	if (!status_is_alive() || !needed)
		memset(auths, 0, sizeof(auths));
	if (zklock_auth[0] != '\0' && find_auth(zklock_auth) == NULL)
	{
		for (;;)
		{
			for (end = auths; end[0] != '\0'; end += strlen(end) + 1)
				;
			if (end + need < auths + sizeof(auths))
				break;
			forget_auth(auths); /* the oldest, after a good many */
		}
		memcpy(end, zklock_auth, need);
		end[need] = '\0';
	}
	session_write_auths(auths);
	return auths;
}

/*
 * auths_are_several
 *		Do the sessions present more than one?
 */
bool
auths_are_several(void)
{
	return auths[0] != '\0' && auths[strlen(auths) + 1] != '\0';
}

/*
 * auths_are_old
 *		Do the sessions present credentials that are zklock.auth no more?
 */
bool
auths_are_old(void)
{
	if (!status_is_alive())
		return false;
	for (const char *auth = auths; auth[0] != '\0'; auth += strlen(auth) + 1)
		if (strcmp(auth, zklock_auth) != 0)
			return true;
	return false;
}

/*
 * auths_forget_refused
 *		ZooKeeper has refused zklock.auth: the next worker presents the
 *		others.
 */
void
auths_forget_refused(void)
{
	char	   *refused = find_auth(zklock_auth);

	if (refused == NULL)
		return;
	forget_auth(refused);
	session_write_auths(auths);
}
