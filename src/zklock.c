/*-------------------------------------------------------------------------
 *
 * zklock.c
 *		Module load: settings, hooks, registration of the worker.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/zklock.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "shared/queries.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "zklock.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "zklock", .version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

char	   *zklock_servers;
int			zklock_session_timeout;
char	   *zklock_root;
int			zklock_max_locks;
int			zklock_handoff_quantum;
int			zklock_retain_time;
char	   *zklock_auth;
int			zklock_acl;
int			zklock_node_format;
int			zklock_commit_check;

static const struct config_enum_entry acl_options[] = {
	{"open", ZK_ACL_OPEN, false},
	{"creator", ZK_ACL_CREATOR, false},
	{NULL, 0, false}
};

static const struct config_enum_entry format_options[] = {
	{"mutex", ZK_FORMAT_MUTEX, false},
	{"readwrite", ZK_FORMAT_READWRITE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry check_options[] = {
	{"lease", ZK_CHECK_LEASE, false},
	{"quorum", ZK_CHECK_QUORUM, false},
	{"off", ZK_CHECK_OFF, false},
	{NULL, 0, false}
};

#ifdef ZKLOCK_TEST_BUILD
int			zklock_mutation;
bool		zklock_stop_before_commit;

static const struct config_enum_entry mutation_options[] = {
	{"none", ZK_MUTATION_NONE, false},
	{"commit_check_off", ZK_COMMIT_CHECK_OFF, false},
	{"release_before_commit", ZK_RELEASE_BEFORE_COMMIT, false},
	{"recovered_create_owns", ZK_RECOVERED_CREATE_OWNS, false},
	{"lost_wakeup", ZK_LOST_WAKEUP, false},
	{NULL, 0, false}
};
#endif

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

void		_PG_init(void);

/* One "host:port" of zklock.servers, without its comma. */
static bool
check_server(const char *server, size_t len)
{
	const char *colon = NULL;
	char	   *end;
	long		port;
	bool		blank = false;

	for (size_t i = 0; i < len; i++)
	{
		if (server[i] == ':')
			colon = server + i;
		else if (isspace((unsigned char) server[i]))
			blank = true;		/* as of a comma that was forgotten */
	}
	if (colon == NULL || colon == server || blank)
	{
		GUC_check_errdetail("\"%.*s\" is not of the form host:port.",
							(int) len, server);
		return false;
	}
	/* no zero in front: the library would take it for octal */
	port = strtol(colon + 1, &end, 10);
	if (colon[1] < '1' || colon[1] > '9' || end != server + len ||
		port > 65535)
	{
		GUC_check_errdetail("\"%.*s\" does not end in a port number.",
							(int) len, server);
		return false;
	}
	return true;
}

static bool
check_servers(char **newval, void **extra pg_attribute_unused(),
			  GucSource source pg_attribute_unused())
{
	const char *server = *newval;
	const char *chroot = strchr(server, '/');
	const char *end = chroot ? chroot : server + strlen(server);
	const char *problem;

	for (;;)
	{
		size_t		len = strcspn(server, ",/");

		while (len > 0 && isspace((unsigned char) *server))
		{
			server++;
			len--;
		}
		if (!check_server(server, len))
			return false;
		server += len;
		if (server == end)
			break;
		server++;
	}

	if (chroot && chroot[1] != '\0' &&
		(problem = znode_check_root(chroot)) != NULL)
	{
		GUC_check_errdetail("The chroot \"%s\" is not valid: %s",
							chroot, problem);
		return false;
	}
	return true;
}

static bool
check_root(char **newval, void **extra pg_attribute_unused(),
		   GucSource source pg_attribute_unused())
{
	const char *problem = znode_check_root(*newval);

	if (problem)
		GUC_check_errdetail("%s", problem);
	return problem == NULL;
}

static bool
check_auth(char **newval, void **extra pg_attribute_unused(),
		   GucSource source pg_attribute_unused())
{
	if (**newval != '\0' && strchr(*newval, ':') == NULL)
	{
		/* the usual message would show them */
		GUC_check_errmsg("invalid value for parameter \"%s\"", "zklock.auth");
		GUC_check_errdetail("The credentials are not of the form user:password.");
		return false;
	}
	return true;
}

static const char *
show_auth(void)
{
	return zklock_auth[0] != '\0' ? "********" : "";
}

#ifdef ZKLOCK_TEST_BUILD
static void
define_test_settings(void)
{
	DefineCustomEnumVariable("zklock.mutation",
							 "Sets how the locks are broken on purpose.",
							 NULL,
							 &zklock_mutation,
							 ZK_MUTATION_NONE,
							 mutation_options,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.stop_before_commit",
							 "Stops the process between the commit check and the commit.",
							 NULL,
							 &zklock_stop_before_commit,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
}
#endif

static void
define_settings(void)
{
	DefineCustomStringVariable("zklock.servers",
							   "Sets the ZooKeeper servers: host:port,..., with an optional chroot.",
							   NULL,
							   &zklock_servers,
							   "localhost:2181",
							   PGC_SIGHUP,
							   0,
							   check_servers, NULL, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"Sets the session timeout that is asked of ZooKeeper.",
							"What the server grants counts; the view zk_session shows it.",
							&zklock_session_timeout,
							10000, 2000, INT_MAX / 2,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.root",
							   "Sets the znode below which the lock directories are.",
							   NULL,
							   &zklock_root,
							   "/zklock",
							   PGC_SUSET,
							   0,
							   check_root, NULL, NULL);
	DefineCustomIntVariable("zklock.max_locks",
							"Sets the maximum number of locks that the server can hold and wait for.",
							NULL,
							&zklock_max_locks,
							8192, 1, INT_MAX / 1024,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.handoff_quantum",
							"Sets how long a lock may go from backend to backend before other servers have a turn.",
							"Zero gives the lock up after each transaction, unless it may be retained.",
							&zklock_handoff_quantum,
							10, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.retain_time",
							"Sets how long a lock is kept for the next transaction of this server when none holds it.",
							"It goes at once when another server waits for it.  Zero gives the lock up at transaction end.",
							&zklock_retain_time,
							0, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.auth",
							   "Sets the credentials for ZooKeeper's digest authentication, as user:password.",
							   NULL,
							   &zklock_auth,
							   "",
							   PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
							   GUC_NOT_IN_SAMPLE,
							   check_auth, NULL, show_auth);
	DefineCustomEnumVariable("zklock.acl",
							 "Sets who may use our znodes: anyone, or only who has the credentials of zklock.auth.",
							 NULL,
							 &zklock_acl,
							 ZK_ACL_OPEN,
							 acl_options,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.node_format",
							 "Sets how our exclusive contenders are named, so that other clients know them.",
							 "As those of Curator's InterProcessMutex or of its InterProcessReadWriteLock.",
							 &zklock_node_format,
							 ZK_FORMAT_MUTEX,
							 format_options,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.commit_check",
							 "Sets how a commit makes sure that its locks are not lost.",
							 "By the lease of the session, by asking ZooKeeper each time, or not beyond what is known already.",
							 &zklock_commit_check,
							 ZK_CHECK_LEASE,
							 check_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
#ifdef ZKLOCK_TEST_BUILD
	define_test_settings();
#endif
	MarkGUCPrefixReserved("zklock");
}

static void
register_worker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 1;
	strlcpy(worker.bgw_library_name, "zklock", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, ZKLOCK_WORKER_MAIN,
			sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, ZKLOCK_WORKER_NAME, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, ZKLOCK_WORKER_NAME, sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

static void
zk_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	slots_request_shmem();
	questions_request_shmem();
	stats_request_shmem();
}

static void
zk_shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	slots_startup_shmem();
	questions_startup_shmem();
	stats_startup_shmem();
}

/*
 * _PG_init
 *		Entry point of the library.
 *
 * Loaded later than at server start, it does nothing: the functions say what
 * is missing.  pg_upgrade's servers hold no locks.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;

	define_settings();
	holds_init();
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = zk_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = zk_shmem_startup;
	register_worker();
}
