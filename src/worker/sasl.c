/*-------------------------------------------------------------------------
 *
 * sasl.c
 *		Authentication to ZooKeeper by SASL.
 *
 * The mechanism is DIGEST-MD5: of those that ZooKeeper's servers have, the one
 * that takes a password.  The password does not go over the network, and the
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
 * - It reads the password at each connection, the first line of the file, and
 *	 without a file it would ask for it on the terminal.
 * - When authentication has failed, its IO thread ends, and it tells nobody:
 *	 see client_next_news().
 * - It cannot have TLS at the same time.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/sasl.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <stdlib.h>

#include "shared/bounds.h"
#include "shared/secure.h"
#include "worker/fault.h"
#include "worker/file_check.h"
#include "worker/sasl.h"

/* As ZooKeeper's servers have them for DIGEST-MD5, whatever they are called. */
#define SERVICE				"zookeeper"
#define HOST				"zk-sasl-md5"

/* The library reads 1023 bytes of the file. */
#define MAX_PASSWORD_BYTES	1000

/* Of libzookeeper_mt and of libsasl2, whose headers need not be there. */
extern void *zoo_sasl_make_basic_callbacks(const char *user, const char *realm,
										   const char *password_file) __attribute__((weak));
extern int	sasl_client_init(const void *callbacks) __attribute__((weak));
extern void sasl_set_mutex(void *(*allocate) (void), int (*lock) (void *),
						   int (*unlock) (void *), void (*dispose) (void *)) __attribute__((weak));

static bool initialized = false;
static SaslParams sessions[ZK_MAX_SESSIONS];

/*
 * Mutexes for Cyrus SASL, which run in the library's threads, too.
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
 * sasl_find_problem
 *		Why the password cannot be read, palloc'd; or NULL.
 */
char *
sasl_find_problem(void)
{
	return sasl_is_wanted() ?
		file_find_problem(zklock_sasl_password_file, "password",
						  check_password) : NULL;
}

/*
 * sasl_params
 *		What the library wants to know to authenticate the handle of a
 *		session; NULL: no SASL.
 *
 * Valid until the process ends: another user, or another file, needs another
 * worker.  Errors: FATAL if Cyrus SASL cannot be initialized; 53200.
 */
SaslParams *
sasl_params(int session)
{
	SaslParams *params = &sessions[session];
	sigset_t	saved;

	if (!sasl_is_wanted())
		return NULL;
	if (params->callbacks != NULL)
		return params;

	fault_enter_library(&saved);
	if (!initialized)
	{
		sasl_set_mutex(allocate_mutex, lock_mutex, unlock_mutex, dispose_mutex);
		initialized = sasl_client_init(NULL) == 0;
	}
	if (initialized)
		params->callbacks = zoo_sasl_make_basic_callbacks(zklock_sasl_user, NULL,
														  zklock_sasl_password_file);
	fault_leave_library(&saved);

	if (!initialized)
		ereport(FATAL,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("could not initialize Cyrus SASL")));
	if (params->callbacks == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory in the ZooKeeper client")));
	params->service = SERVICE;
	params->host = HOST;
	params->mechanisms = "DIGEST-MD5";
	return params;
}

/*
 * sasl_tells_why
 *		Has the library just told why it cannot authenticate?
 *
 * It does not if the server refuses it.
 */
bool
sasl_tells_why(const char *message)
{
	return strstr(message, " SASL negotiation: ") != NULL ||
		strstr(message, " SASL connection state: ") != NULL;
}

/*
 * sasl_only_failed
 *		Has the library just told that it could not authenticate, but not why?
 */
bool
sasl_only_failed(const char *message)
{
	return strncmp(message, "SASL authentication failed",
				   strlen("SASL authentication failed")) == 0;
}
