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
 * - Cyrus SASL looks up the name of this machine at each connection, and fails if
 *	 there is none.
 * - The library reads the password at each connection, the first line of the
 *	 file, and without a file it would ask for it on the terminal.
 * - When authentication has failed, its IO thread ends, and it tells nobody:
 *	 see client_next_news().
 * - It cannot have TLS at the same time.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/sasl.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <stdlib.h>

#include "shared/bounds.h"
#include "shared/secure.h"
#include "worker/zookeeper/fault.h"
#include "worker/zookeeper/file_check.h"
#include "worker/zookeeper/sasl.h"

/* As ZooKeeper's servers have them for DIGEST-MD5, whatever they are called. */
#define SERVICE				"zookeeper"
#define HOST				"zk-sasl-md5"

/* The library reads 1023 bytes of the file. */
#define MAX_PASSWORD_BYTES	1000

static SaslParams sessions[ZK_MAX_SESSIONS];

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

/*
 * sasl_find_problem
 *		Why SASL cannot be used, palloc'd; or NULL.
 */
char *
sasl_find_problem(void)
{
	char	   *problem;

	if (!sasl_is_wanted())
		return NULL;
	problem = file_find_problem(zklock_sasl_password_file, "password",
								check_password);
	return problem ? problem : find_library_problem();
}

/*
 * sasl_params
 *		What the library wants to know to authenticate the handle of a
 *		session; NULL: no SASL.
 *
 * To be called when sasl_find_problem() has found none.  Valid until the process
 * ends: another user, or another file, needs another worker.  Errors: 53200.
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
	params->callbacks = zoo_sasl_make_basic_callbacks(zklock_sasl_user, NULL,
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
