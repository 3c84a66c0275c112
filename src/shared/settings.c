/*-------------------------------------------------------------------------
 *
 * settings.c
 *		Settings of the extension: their definitions and their checks.
 *
 * A wrong value that was given must never be replaced by the default in
 * silence: this server would take other locks than the other servers do.
 * PostgreSQL replaces a refused value by the default in two cases: at server
 * start, and when a session begins with what ALTER ROLE or ALTER DATABASE has
 * stored.  In these cases the check hooks accept a wrong value, with a warning,
 * and code that needs the setting asks zk_wrong_setting() first.  In all other
 * cases they refuse it, and the former value stays in force.
 *
 * An enum's check hook sees no word that is not among its options.  In the
 * configuration's that is made one; what ALTER ROLE or ALTER DATABASE has stored
 * while the library was not loaded PostgreSQL leaves out, with a warning.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "core/lock/znode.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/secure.h"
#include "shared/servers.h"
#include "shared/setting_check.h"
#include "shared/settings.h"
#include "shared/test_build.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

char	   *zklock_servers;
int			zklock_session_timeout;
char	   *zklock_root;
int			zklock_max_locks;
int			zklock_track_locks;
int			zklock_handoff_quantum;
int			zklock_retain_time;
char	   *zklock_auth;
int			zklock_acl;
int			zklock_node_format;
int			zklock_commit_check;
int			zklock_commit_timeout;
bool		zklock_deadlock_check;
int			zklock_advisory_locks = ZK_ADVISORY_OFF;
bool		zklock_advisory_used = false;

/*
 * What is wrong with the value in force, as a sentence, or NULL.  The check
 * hooks allocate it as their "extra", with ZkGucAlloc().
 */
static const char *servers_problem = NULL;
static const char *root_problem = NULL;
static const char *auth_problem = NULL;

/* The value of an enum setting that was given a word it does not know. */
#define WRONG_WORD			(-1)

/* Each has a free entry for a wrong word: see admit_wrong_word(). */
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

/* As for a boolean, whose wrong value PostgreSQL would replace by the default. */
static struct config_enum_entry advisory_options[] = {
	{"off", ZK_ADVISORY_OFF, false},
	{"on", ZK_ADVISORY_ON, false},
	{"false", ZK_ADVISORY_OFF, true},
	{"true", ZK_ADVISORY_ON, true},
	{"no", ZK_ADVISORY_OFF, true},
	{"yes", ZK_ADVISORY_ON, true},
	{"0", ZK_ADVISORY_OFF, true},
	{"1", ZK_ADVISORY_ON, true},
	{NULL, 0, false},
	{NULL, 0, false}
};

static bool
check_servers(char **newval, void **extra, GucSource source)
{
	return setting_pass("zklock.servers", *newval,
						servers_find_problem(*newval), extra, source);
}

static void
assign_servers(const char *newval pg_attribute_unused(), void *extra)
{
	servers_problem = extra;
}

static bool
check_root(char **newval, void **extra, GucSource source)
{
	return setting_pass("zklock.root", *newval,
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
	return setting_pass("zklock.auth", NULL, problem, extra, source);
}

static void
assign_auth(const char *newval pg_attribute_unused(), void *extra)
{
	auth_problem = extra;
}

/*
 * To be called ahead of the definition of an enum: if the configuration has a
 * word that is not among its options, make it one.
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

/* End of the check hook of an enum, as setting_pass(). */
static bool
pass_word(const char *name, const struct config_enum_entry *options,
		  int val, GucSource source)
{
	if (val != WRONG_WORD)
		return true;
	if (!setting_is_replaced(source))
	{
		GUC_check_errhint("%s", list_words(options));
		return false;
	}
	setting_warn(name, find_word(options, val), list_words(options));
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

static bool
check_advisory_locks(int *newval, void **extra pg_attribute_unused(),
					 GucSource source)
{
	return pass_word("zklock.advisory_locks", advisory_options, *newval,
					 source);
}

/*
 * Plans that were made while the setting was off may call PostgreSQL's
 * functions; the others may call ours, which look at the setting: see
 * backend/replace.c.
 */
static void
assign_advisory_locks(int newval, void *extra pg_attribute_unused())
{
	if (newval == ZK_ADVISORY_OFF || zklock_advisory_locks != ZK_ADVISORY_OFF)
		return;
	zklock_advisory_used = true;
	ResetPlanCache();
}

static bool
is_wrong_word(const char *name, int val,
			  const struct config_enum_entry *options, ZkWrongSetting *wrong)
{
	if (val != WRONG_WORD)
		return false;
	return setting_is_wrong(name, find_word(options, val), list_words(options),
							wrong);
}

/*
 * zk_wrong_setting
 *		Does a setting have a wrong value?
 *
 * Looks at the settings that the session in ZooKeeper needs and, if "locks",
 * at those that a lock needs in addition.  If one is wrong, fills in "wrong",
 * which is valid until a setting changes or the memory context is reset; else
 * "wrong" is all zero.
 */
bool
zk_wrong_setting(bool locks, ZkWrongSetting *wrong)
{
	memset(wrong, 0, sizeof(*wrong));
	if (setting_is_wrong("zklock.servers", zklock_servers, servers_problem, wrong) ||
		setting_is_wrong("zklock.auth", NULL, auth_problem, wrong) ||
		is_wrong_word("zklock.acl", zklock_acl, acl_options, wrong) ||
		secure_is_wrong(wrong))
		return true;
	return locks &&
		(setting_is_wrong("zklock.root", zklock_root, root_problem, wrong) ||
		 is_wrong_word("zklock.node_format", zklock_node_format,
					   format_options, wrong) ||
		 is_wrong_word("zklock.commit_check", zklock_commit_check,
					   check_options, wrong) ||
		 is_wrong_word("zklock.advisory_locks", zklock_advisory_locks,
					   advisory_options, wrong));
}

/*
 * zk_describe_wrong_setting
 *		What zk_wrong_setting() has filled in as one line, palloc'd.
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

/* Settings of the session in ZooKeeper. */
static void
define_session_settings(void)
{
	admit_wrong_word("zklock.acl", acl_options);

	DefineCustomStringVariable("zklock.servers",
							   "Sets the ZooKeeper servers: host:port,..., with an optional chroot.",
							   NULL,
							   &zklock_servers,
							   "localhost:2181",
							   PGC_SIGHUP,
							   0,
							   check_servers, assign_servers, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"Sets the session timeout to request from ZooKeeper.",
							"ZooKeeper may grant a different one; the view zk_session shows it.",
							&zklock_session_timeout,
							10000, 2000, INT_MAX / 2,
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
							 "Sets who may use the znodes of this server: anyone, or only clients with the same credentials.",
							 NULL,
							 &zklock_acl,
							 ZK_ACL_OPEN,
							 acl_options,
							 PGC_SIGHUP,
							 0,
							 check_acl, NULL, NULL);
}

/* Settings of the locks: where they are, what they look like, how many. */
static void
define_lock_settings(void)
{
	admit_wrong_word("zklock.node_format", format_options);
	admit_wrong_word("zklock.advisory_locks", advisory_options);

	DefineCustomStringVariable("zklock.root",
							   "Sets the znode that contains the lock directories.",
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
	DefineCustomIntVariable("zklock.track_locks",
							"Sets the maximum number of locks that zk_stat_locks has counters of.",
							"Zero turns them off.",
							&zklock_track_locks,
							1000, 0, 1000000,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.node_format",
							 "Sets how exclusive contenders are named, so that other clients recognize them.",
							 "They are named like those of Curator's InterProcessMutex or InterProcessReadWriteLock.",
							 &zklock_node_format,
							 ZK_FORMAT_MUTEX,
							 format_options,
							 PGC_SUSET,
							 0,
							 check_node_format, NULL, NULL);
	DefineCustomBoolVariable("zklock.deadlock_check",
							 "Checks for deadlocks with other servers.",
							 "A wait that has lasted deadlock_timeout is published in ZooKeeper and followed there.",
							 &zklock_deadlock_check,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.advisory_locks",
							 "Makes pg_advisory_lock and its kin take locks in ZooKeeper.",
							 "They are named \"advisory/<database>/<key>\" and exclude the sessions of all servers.",
							 &zklock_advisory_locks,
							 ZK_ADVISORY_OFF,
							 advisory_options,
							 PGC_USERSET,
							 0,
							 check_advisory_locks, assign_advisory_locks,
							 NULL);
}

/* Settings of the end of a transaction. */
static void
define_transaction_settings(void)
{
	admit_wrong_word("zklock.commit_check", check_options);

	DefineCustomIntVariable("zklock.handoff_quantum",
							"Sets how long backends may hand a lock on to each other while other servers wait for it.",
							"Zero gives the lock up after each transaction, unless it may be retained.",
							&zklock_handoff_quantum,
							10, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.retain_time",
							"Sets how long an idle lock is kept for the next transaction of this server.",
							"The lock is given up at once when another server waits for it.  Zero gives it up at transaction end.",
							&zklock_retain_time,
							0, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.commit_check",
							 "Sets how a commit makes sure that its locks are not lost.",
							 "By the lease of the session, by asking ZooKeeper each time, or only by what the server knows already.",
							 &zklock_commit_check,
							 ZK_CHECK_LEASE,
							 check_options,
							 PGC_USERSET,
							 0,
							 check_commit_check, NULL, NULL);
	DefineCustomIntVariable("zklock.commit_timeout",
							"Sets how long a commit waits until ZooKeeper confirms that its locks are not lost.",
							"Past that the transaction is rolled back.  Zero waits as long as it takes.",
							&zklock_commit_timeout,
							0, 0, INT_MAX,
							PGC_USERSET,
							GUC_UNIT_MS,
							NULL, NULL, NULL);
}

/*
 * settings_define
 *		Define all settings.  Called once, when the library is preloaded.
 */
void
settings_define(void)
{
	define_session_settings();
	secure_define();
	define_lock_settings();
	define_transaction_settings();
	test_settings_define();
	MarkGUCPrefixReserved("zklock");
}

/*
 * handoff_quantum_us, retain_time_us
 *		The settings in microseconds.
 */
int64
handoff_quantum_us(void)
{
	return (int64) zklock_handoff_quantum * 1000;
}

int64
retain_time_us(void)
{
	return (int64) zklock_retain_time * 1000;
}
