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

#include "access/parallel.h"
#include "backend/hooks.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "shared/compat.h"
#include "shared/questions.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "shared/test_build.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/memutils.h"

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

/*
 * A value that was given and is wrong must never be replaced by the default in
 * silence: the locks would be others than those that the other servers take.
 * Where PostgreSQL would do that, at server start and for what ALTER ROLE or
 * ALTER DATABASE has stored ahead of it, the check hooks let the wrong value
 * pass, with a warning, and whoever needs it asks zk_check_settings() or
 * zk_wrong_setting().  Anywhere else they refuse it, and the former value stays.
 *
 * What is wrong with the value in force, or NULL; malloc'd, by the check hooks.
 */
static const char *servers_problem = NULL;
static const char *root_problem = NULL;
static const char *auth_problem = NULL;

/* The value of an enum that stands for a word which is none of its words. */
#define WRONG_WORD			(-1)

/* In each of these there is room for one: see admit_wrong_word(). */
static struct config_enum_entry acl_options[] = {
	{"open", ZK_ACL_OPEN, false},
	{"creator", ZK_ACL_CREATOR, false},
	{NULL, 0, false},
	{NULL, 0, false}
};

static struct config_enum_entry format_options[] = {
	{"mutex", ZK_FORMAT_MUTEX, false},
	{"readwrite", ZK_FORMAT_READWRITE, false},
	{NULL, 0, false},
	{NULL, 0, false}
};

static struct config_enum_entry check_options[] = {
	{"lease", ZK_CHECK_LEASE, false},
	{"quorum", ZK_CHECK_QUORUM, false},
	{"off", ZK_CHECK_OFF, false},
	{NULL, 0, false},
	{NULL, 0, false}
};

#ifdef ZKLOCK_TEST_BUILD
int			zklock_mutation;
bool		zklock_stop_before_commit;
char	   *zklock_fail_at;
bool		zklock_stop_at_end;

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

PGDLLEXPORT void _PG_init(void);

/* What is wrong with one "host:port" of zklock.servers; NULL: nothing. */
static char *
find_server_problem(const char *server, size_t len)
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
		return psprintf("\"%.*s\" is not of the form host:port.",
						(int) len, server);

	/* no zero in front: the library would take it for octal */
	port = strtol(colon + 1, &end, 10);
	if (colon[1] < '1' || colon[1] > '9' || end != server + len ||
		port > 65535)
		return psprintf("\"%.*s\" does not end in a port number.",
						(int) len, server);
	return NULL;
}

static char *
find_servers_problem(const char *server)
{
	const char *chroot = strchr(server, '/');
	const char *end = chroot ? chroot : server + strlen(server);
	const char *problem;

	for (;;)
	{
		size_t		len = strcspn(server, ",/");
		char	   *server_problem;

		while (len > 0 && isspace((unsigned char) *server))
		{
			server++;
			len--;
		}
		server_problem = find_server_problem(server, len);
		if (server_problem)
			return server_problem;
		server += len;
		if (server == end)
			break;
		server++;
	}

	if (chroot && chroot[1] != '\0' &&
		(problem = znode_check_root(chroot)) != NULL)
		return psprintf("The chroot \"%s\" is not valid: %s", chroot, problem);
	return NULL;
}

/*
 * Would PostgreSQL replace a value that is refused by the default?  So it does
 * with what the configuration has when the library is loaded, and with what
 * the catalog has for a role or database when a session begins.  A parallel
 * worker must take whatever its leader has.
 */
static bool
is_replaced_if_refused(GucSource source)
{
	return process_shared_preload_libraries_in_progress ||
		InitializingParallelWorker ||
		source == PGC_S_GLOBAL || source == PGC_S_DATABASE ||
		source == PGC_S_USER || source == PGC_S_DATABASE_USER;
}

/* Let a wrong value pass.  "value" is NULL if it must not be shown. */
static void
warn_of_wrong_value(const char *name, const char *value, const char *problem)
{
	if (InitializingParallelWorker)
		return;					/* the leader has */
	ereport(WARNING,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 value ?
			 errmsg("invalid value for parameter \"%s\": \"%s\"", name, value) :
			 errmsg("invalid value for parameter \"%s\"", name),
			 errdetail("%s", problem),
			 errhint("Until it is corrected, locks in ZooKeeper cannot be used.")));
}

/*
 * End of a check hook.  *extra becomes a copy of the problem, if there is one
 * and the value passes all the same.
 */
static bool
pass_string(const char *name, const char *value, const char *problem,
			void **extra, GucSource source)
{
	if (problem == NULL)
		return true;
	if (!is_replaced_if_refused(source))
	{
		if (value == NULL)
			GUC_check_errmsg("invalid value for parameter \"%s\"", name);
		GUC_check_errdetail("%s", problem);
		return false;
	}
	*extra = ZkGucAlloc(strlen(problem) + 1);
	if (*extra == NULL)
		return false;
	strcpy(*extra, problem);
	warn_of_wrong_value(name, value, problem);
	return true;
}

static bool
check_servers(char **newval, void **extra, GucSource source)
{
	return pass_string("zklock.servers", *newval,
					   find_servers_problem(*newval), extra, source);
}

static void
assign_servers(const char *newval pg_attribute_unused(), void *extra)
{
	servers_problem = extra;
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	return pass_string("zklock.root", *newval,
					   znode_check_root(*newval), extra, source);
}

static void
assign_root(const char *newval pg_attribute_unused(), void *extra)
{
	root_problem = extra;
}

static bool
check_auth(char **newval, void **extra, GucSource source)
{
	const char *problem = NULL;

	if (**newval != '\0' && strchr(*newval, ':') == NULL)
		problem = "The credentials are not of the form user:password.";
	else if (strlen(*newval) > ZKLOCK_MAX_AUTH)
		problem = "The credentials are longer than 1000 bytes.";

	/* without the value, which the usual message would show */
	return pass_string("zklock.auth", NULL, problem, extra, source);
}

static void
assign_auth(const char *newval pg_attribute_unused(), void *extra)
{
	auth_problem = extra;
}

/*
 * Ahead of the definition of an enum: if it has been given a word that is none
 * of its words, make that one.
 */
static void
admit_wrong_word(const char *name, struct config_enum_entry *options)
{
	const char *word = GetConfigOption(name, true, false);

	if (word == NULL)
		return;
	for (; options->name != NULL; options++)
		if (pg_strcasecmp(options->name, word) == 0)
			return;
	options->name = MemoryContextStrdup(TopMemoryContext, word);
	options->val = WRONG_WORD;
	options->hidden = true;
}

static const char *
find_word(const struct config_enum_entry *options, int val)
{
	while (options->name != NULL && options->val != val)
		options++;
	return options->name;
}

static char *
list_words(const struct config_enum_entry *options)
{
	char	   *list = psprintf("Available values: %s", options->name);

	while ((++options)->name != NULL && !options->hidden)
		list = psprintf("%s, %s", list, options->name);
	return psprintf("%s.", list);
}

static bool
pass_word(const char *name, const struct config_enum_entry *options,
		  int val, GucSource source)
{
	if (val != WRONG_WORD)
		return true;
	if (!is_replaced_if_refused(source))
	{
		GUC_check_errhint("%s", list_words(options));
		return false;
	}
	warn_of_wrong_value(name, find_word(options, val), list_words(options));
	return true;
}

static bool
check_acl(int *newval, void **extra pg_attribute_unused(), GucSource source)
{
	return pass_word("zklock.acl", acl_options, *newval, source);
}

static bool
check_node_format(int *newval, void **extra pg_attribute_unused(),
				  GucSource source)
{
	return pass_word("zklock.node_format", format_options, *newval, source);
}

static bool
check_commit_check(int *newval, void **extra pg_attribute_unused(),
				   GucSource source)
{
	return pass_word("zklock.commit_check", check_options, *newval, source);
}

/*
 * zk_wrong_setting
 *		Has a setting that the session in ZooKeeper, or with "locks" also that
 *		a lock needs, been given a wrong value?
 *
 * Then fills in which and why, valid as long as the settings are not changed.
 */
bool
zk_wrong_setting(bool locks, ZkWrongSetting *wrong)
{
	memset(wrong, 0, sizeof(*wrong));
	if (servers_problem)
	{
		wrong->name = "zklock.servers";
		wrong->value = zklock_servers;
		wrong->problem = servers_problem;
	}
	else if (auth_problem)
	{
		wrong->name = "zklock.auth";	/* the value is a secret */
		wrong->problem = auth_problem;
	}
	else if (zklock_acl == WRONG_WORD)
	{
		wrong->name = "zklock.acl";
		wrong->value = find_word(acl_options, WRONG_WORD);
		wrong->problem = list_words(acl_options);
	}
	else if (locks && root_problem)
	{
		wrong->name = "zklock.root";
		wrong->value = zklock_root;
		wrong->problem = root_problem;
	}
	else if (locks && zklock_node_format == WRONG_WORD)
	{
		wrong->name = "zklock.node_format";
		wrong->value = find_word(format_options, WRONG_WORD);
		wrong->problem = list_words(format_options);
	}
	else if (locks && zklock_commit_check == WRONG_WORD)
	{
		wrong->name = "zklock.commit_check";
		wrong->value = find_word(check_options, WRONG_WORD);
		wrong->problem = list_words(check_options);
	}
	return wrong->name != NULL;
}

/*
 * zk_describe_wrong_setting
 *		The same as one line, palloc'd.
 */
char *
zk_describe_wrong_setting(const ZkWrongSetting *wrong)
{
	return wrong->value ?
		psprintf("invalid value for parameter \"%s\": \"%s\": %s",
				 wrong->name, wrong->value, wrong->problem) :
		psprintf("invalid value for parameter \"%s\": %s",
				 wrong->name, wrong->problem);
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
	DefineCustomStringVariable("zklock.fail_at",
							   "Sets the point at which calls fail on purpose.",
							   NULL,
							   &zklock_fail_at,
							   "",
							   PGC_USERSET,
							   0,
							   NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.stop_at_end",
							 "Stops the process where other callbacks of the transaction's end run.",
							 NULL,
							 &zklock_stop_at_end,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
}
#endif

static void
define_settings(void)
{
	admit_wrong_word("zklock.acl", acl_options);
	admit_wrong_word("zklock.node_format", format_options);
	admit_wrong_word("zklock.commit_check", check_options);

	DefineCustomStringVariable("zklock.servers",
							   "Sets the ZooKeeper servers: host:port,..., with an optional chroot.",
							   NULL,
							   &zklock_servers,
							   "localhost:2181",
							   PGC_SIGHUP,
							   0,
							   check_servers, assign_servers, NULL);
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
							   check_root, assign_root, NULL);
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
							   check_auth, assign_auth, show_auth);
	DefineCustomEnumVariable("zklock.acl",
							 "Sets who may use our znodes: anyone, or only who has the credentials of zklock.auth.",
							 NULL,
							 &zklock_acl,
							 ZK_ACL_OPEN,
							 acl_options,
							 PGC_SIGHUP,
							 0,
							 check_acl, NULL, NULL);
	DefineCustomEnumVariable("zklock.node_format",
							 "Sets how our exclusive contenders are named, so that other clients know them.",
							 "As those of Curator's InterProcessMutex or of its InterProcessReadWriteLock.",
							 &zklock_node_format,
							 ZK_FORMAT_MUTEX,
							 format_options,
							 PGC_SUSET,
							 0,
							 check_node_format, NULL, NULL);
	DefineCustomEnumVariable("zklock.commit_check",
							 "Sets how a commit makes sure that its locks are not lost.",
							 "By the lease of the session, by asking ZooKeeper each time, or not beyond what is known already.",
							 &zklock_commit_check,
							 ZK_CHECK_LEASE,
							 check_options,
							 PGC_USERSET,
							 0,
							 check_commit_check, NULL, NULL);
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
	hooks_init();
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = zk_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = zk_shmem_startup;
	register_worker();
}
