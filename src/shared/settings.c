/*-------------------------------------------------------------------------
 *
 * settings.c
 *		Settings of the extension: definitions and checks.
 *
 * The default must never silently replace a wrong value: this server would
 * take other locks than the other servers do.  PostgreSQL replaces a refused
 * value by the default in two cases: at server start, and for a value stored
 * by ALTER ROLE or ALTER DATABASE when a session begins.  In these cases the
 * check hooks accept a wrong value, with a warning, and code that needs the
 * setting calls zk_wrong_setting() first.  In all other cases they refuse it,
 * and the former value stays in force.
 *
 * An enum's check hook sees no word that is not among its options, so a wrong
 * word in the configuration is made an option; a wrong word that ALTER ROLE or
 * ALTER DATABASE stored while the library was not loaded is ignored by
 * PostgreSQL, with a warning.
 *
 * The ZooKeeper client library may have been built without TLS and SASL, as
 * Debian's was.  A value that asks for them is then an error, lest the
 * connection go without.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "access/parallel.h"
#include "core/lock/znode.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

char	   *zklock_servers;
int			zklock_session_timeout;
char	   *zklock_root;
int			zklock_max_locks;
int			zklock_max_claims;
int			zklock_max_claims_per_role;
int			zklock_max_tracked_locks;
int			zklock_handoff_quantum;
int			zklock_retain_time;
int			zklock_max_retain_time;
char	   *zklock_auth;
int			zklock_acl;
int			zklock_node_format;
int			zklock_commit_check;
int			zklock_commit_timeout;
bool		zklock_deadlock_check;
int			zklock_exclusion;
int			zklock_advisory_locks = ZK_ADVISORY_OFF;
char	   *zklock_advisory_namespace;
bool		zklock_advisory_used = false;
bool		zklock_terminate_on_loss;
char	   *zklock_tls_ca;
char	   *zklock_tls_cert;
char	   *zklock_tls_key;
char	   *zklock_sasl_user;
char	   *zklock_sasl_password_file;

/*
 * Has a wrong value been accepted, here or in the postmaster before it forked?
 * As long as none has been, no value needs to be checked again.
 */
static bool accepted_wrong = false;

/* The beginning of a problem that comes from the library, not the value. */
#define ZK_LIBRARY_LACKS \
	"The ZooKeeper client library of this server was built without "

/* What may stand ahead of a server of zklock.servers. */
#define BLANKS				" \t\n\v\f\r"

/* The value of an enum setting that was given an unknown word. */
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

/* Not a boolean: PostgreSQL would replace its wrong value by the default. */
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

/* A wrong word becomes the default, with which locks exclude no less. */
static const struct config_enum_entry exclusion_options[] = {
	{"fleet", ZK_EXCLUSION_FLEET, false},
	{"instance", ZK_EXCLUSION_INSTANCE, false},
	{NULL, 0, false}
};

/* Is this an IPv6 address in brackets, possibly with a zone ("%eth0")? */
static bool
is_bracketed_address(const char *host, size_t len)
{
	char		address[INET6_ADDRSTRLEN];
	struct in6_addr parsed;
	size_t		address_len;

	if (len < 2 || host[0] != '[' || host[len - 1] != ']')
		return false;
	address_len = strcspn(host + 1, "%]");
	if (address_len >= sizeof(address))
		return false;
	memcpy(address, host + 1, address_len);
	address[address_len] = '\0';
	return inet_pton(AF_INET6, address, &parsed) == 1;
}

/* The problem of one "host:port" of zklock.servers, palloc'd; or NULL. */
static char *
find_server_problem(const char *server)
{
	const char *colon = strrchr(server, ':');
	char	   *end;
	long		port;

	/* blanks as after a forgotten comma */
	if (colon == NULL || colon == server || strpbrk(server, BLANKS) ||
		(strpbrk(server, "[]") &&
		 !is_bracketed_address(server, colon - server)))
		return psprintf("\"%s\" is not of the form host:port.", server);

	/* no leading zero: the library would read octal */
	port = strtol(colon + 1, &end, 10);
	if (colon[1] < '1' || colon[1] > '9' || *end != '\0' || port > 65535)
		return psprintf("\"%s\" does not end in a port number.", server);
	return NULL;
}

/*
 * The problem of a value of zklock.servers, as a sentence, palloc'd; or NULL.
 *
 * The form is host:port,..., with an optional chroot.  A host may be an IPv6
 * address in brackets.
 */
static const char *
find_servers_problem(const char *servers)
{
	const char *chroot = strchr(servers, '/');
	const char *problem;

	do
	{
		char	   *server;

		servers += strspn(servers, BLANKS);
		server = pnstrdup(servers, strcspn(servers, ",/"));
		servers += strlen(server);
		problem = find_server_problem(server);
		pfree(server);
		if (problem)
			return problem;
	} while (*servers++ == ',');

	if (chroot && chroot[1] != '\0' &&
		(problem = znode_check_root(chroot)) != NULL)
		return psprintf("The chroot \"%s\" is not valid: %s", chroot, problem);
	return NULL;
}

static const char *
find_auth_problem(const char *auth)
{
	if (*auth != '\0' && strchr(auth, ':') == NULL)
		return "The credentials are not of the form user:password.";
	return strlen(auth) > ZKLOCK_MAX_AUTH ?
		"The credentials are longer than 1000 bytes." : NULL;
}

/* The library gets the three paths in one string, separated by commas. */
static const char *
find_tls_problem(const char *path)
{
	if (path[0] == '\0')
		return NULL;
	if (zookeeper_init_ssl == NULL)
		return ZK_LIBRARY_LACKS "TLS.";
	return strchr(path, ',') ? "The path must not contain a comma." : NULL;
}

static const char *
find_sasl_problem(const char *value)
{
	if (value[0] == '\0' ||
		(zookeeper_init_sasl != NULL &&
		 zoo_sasl_make_basic_callbacks != NULL && sasl_client_init != NULL))
		return NULL;
	return ZK_LIBRARY_LACKS "SASL.";
}

/* The name of the longest key must not be too long. */
static const char *
find_namespace_problem(const char *namespace)
{
	char	   *name = psprintf(ZK_ADVISORY_PREFIX "%s/%d,%d", namespace,
								INT_MIN, INT_MIN);
	char		encoded[ZNODE_MAX_NAME + 1];
	int			len = znode_encode_name(name, strlen(name), encoded,
										sizeof(encoded));

	pfree(name);
	return len < 0 ? "With it, the names of locks are too long." : NULL;
}

/* The settings that can be wrong, in the order in which that is reported. */
typedef enum Checked
{
	/* of the session in ZooKeeper */
	SERVERS,
	AUTH,
	ACL,
	TLS_CA,
	TLS_CERT,
	TLS_KEY,
	SASL_USER,
	SASL_PASSWORD_FILE,

	/* of locks only */
	ROOT,
	NODE_FORMAT,
	COMMIT_CHECK,
	ADVISORY_LOCKS,
	ADVISORY_NAMESPACE
} Checked;

#define NCHECKED	(ADVISORY_NAMESPACE + 1)

/* Each is a string, or an enum. */
typedef struct CheckedSetting
{
	const char *name;
	bool		secret;			/* its value is not reported */
	char	  **string;			/* NULL of an enum */
	const char *(*find_problem) (const char *value);	/* see below */
	struct config_enum_entry *options;
} CheckedSetting;

static const CheckedSetting checked[NCHECKED] = {
	[SERVERS] = {"zklock.servers", false, &zklock_servers, find_servers_problem},
	[AUTH] = {"zklock.auth", true, &zklock_auth, find_auth_problem},
	[ACL] = {"zklock.acl",.options = acl_options},
	[TLS_CA] = {"zklock.tls_ca", true, &zklock_tls_ca, find_tls_problem},
	[TLS_CERT] = {"zklock.tls_cert", true, &zklock_tls_cert, find_tls_problem},
	[TLS_KEY] = {"zklock.tls_key", true, &zklock_tls_key, find_tls_problem},
	[SASL_USER] = {"zklock.sasl_user", true, &zklock_sasl_user, find_sasl_problem},
	[SASL_PASSWORD_FILE] = {"zklock.sasl_password_file", true, &zklock_sasl_password_file, find_sasl_problem},
	[ROOT] = {"zklock.root", false, &zklock_root, znode_check_root},
	[NODE_FORMAT] = {"zklock.node_format",.options = format_options},
	[COMMIT_CHECK] = {"zklock.commit_check",.options = check_options},
	[ADVISORY_LOCKS] = {"zklock.advisory_locks",.options = advisory_options},
	[ADVISORY_NAMESPACE] = {"zklock.advisory_namespace", false, &zklock_advisory_namespace, find_namespace_problem}
};

/*
 * Before the definition of an enum: if the configuration has a word that is
 * not among its options, make it one.
 */
static void
admit_wrong_word(Checked setting)
{
	struct config_enum_entry *option = checked[setting].options;
	const char *word = GetConfigOption(checked[setting].name, true, false);

	if (word == NULL)
		return;
	for (; option->name != NULL; option++)
		if (pg_strcasecmp(option->name, word) == 0)
			return;
	option->name = MemoryContextStrdup(TopMemoryContext, word);
	option->val = WRONG_WORD;
	option->hidden = true;
}

/* The word of an enum, or NULL. */
static const char *
word_of(Checked setting, int val)
{
	const struct config_enum_entry *option = checked[setting].options;

	while (option->name != NULL && option->val != val)
		option++;
	return option->name;
}

/* The problem of a value, or of a word_of(), as a sentence; or NULL. */
static const char *
find_problem(Checked setting, const char *value)
{
	const struct config_enum_entry *option = checked[setting].options;
	char	   *list;

	if (option == NULL)
		return checked[setting].find_problem(value);
	if (value != word_of(setting, WRONG_WORD))
		return NULL;
	list = psprintf("Available values: %s", option->name);
	while ((++option)->name != NULL && !option->hidden)
		list = psprintf("%s, %s", list, option->name);
	return psprintf("%s.", list);
}

/*
 * The SQLSTATE of a problem: "otherwise", unless the library lacks something.
 */
static int
problem_code(const char *problem, int otherwise)
{
	return strncmp(problem, ZK_LIBRARY_LACKS, strlen(ZK_LIBRARY_LACKS)) == 0 ?
		ERRCODE_FEATURE_NOT_SUPPORTED : otherwise;
}

/*
 * The check hook of a setting: refuse a value that has a problem, or accept it
 * with a warning if PostgreSQL would replace it by the default.
 *
 * A parallel worker must take its leader's value, which the leader has warned
 * of.
 */
static bool
check(Checked setting, const char *value, GucSource source)
{
	const char *problem = find_problem(setting, value);
	const char *name = checked[setting].name;
	const char *shown = checked[setting].secret ? NULL : value;

	if (problem == NULL)
		return true;
	if (process_shared_preload_libraries_in_progress ||
		InitializingParallelWorker ||
		(source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER))
	{
		accepted_wrong = true;
		if (InitializingParallelWorker)
			return true;
		ereport(WARNING,
				(errcode(problem_code(problem,
									  ERRCODE_INVALID_PARAMETER_VALUE)),
				 shown ?
				 errmsg("invalid value for parameter \"%s\": \"%s\"", name, shown) :
				 errmsg("invalid value for parameter \"%s\"", name),
				 errdetail("%s", problem),
				 errhint("Locks in ZooKeeper cannot be used until the value is corrected.")));
		return true;
	}
	if (checked[setting].options)
	{
		GUC_check_errhint("%s", problem);
		return false;
	}
	GUC_check_errcode(problem_code(problem, ERRCODE_INVALID_PARAMETER_VALUE));
	if (shown == NULL)
		GUC_check_errmsg("invalid value for parameter \"%s\"", name);
	GUC_check_errdetail("%s", problem);
	return false;
}

/* A hook is not told which setting it checks, so each has its own. */
#define CHECK_STRING(hook, setting) \
static bool \
hook(char **newval, void **extra pg_attribute_unused(), GucSource source) \
{ \
	return check(setting, *newval, source); \
}

#define CHECK_WORD(hook, setting) \
static bool \
hook(int *newval, void **extra pg_attribute_unused(), GucSource source) \
{ \
	return check(setting, word_of(setting, *newval), source); \
}

CHECK_STRING(check_servers, SERVERS)
CHECK_STRING(check_auth, AUTH)
CHECK_WORD(check_acl, ACL)
CHECK_STRING(check_tls_ca, TLS_CA)
CHECK_STRING(check_tls_cert, TLS_CERT)
CHECK_STRING(check_tls_key, TLS_KEY)
CHECK_STRING(check_sasl_user, SASL_USER)
CHECK_STRING(check_sasl_password_file, SASL_PASSWORD_FILE)
CHECK_STRING(check_root, ROOT)
CHECK_WORD(check_node_format, NODE_FORMAT)
CHECK_WORD(check_commit_check, COMMIT_CHECK)
CHECK_WORD(check_advisory_locks, ADVISORY_LOCKS)
CHECK_STRING(check_advisory_namespace, ADVISORY_NAMESPACE)

/*
 * Plans made before the setting was on for the first time may call
 * PostgreSQL's functions; later ones call ours, which look at the setting: see
 * backend/advisory.c.
 */
static void
assign_advisory_locks(int newval, void *extra pg_attribute_unused())
{
	if (newval == ZK_ADVISORY_OFF || zklock_advisory_used)
		return;
	zklock_advisory_used = true;
	ResetPlanCache();
}

/*
 * tls_is_wanted, sasl_is_wanted
 *		Must connections to ZooKeeper be encrypted, or this server authenticate
 *		there by SASL?
 *
 * So it is if any of the settings has a value: an incomplete set must not end
 * in a connection in clear.
 */
bool
tls_is_wanted(void)
{
	return zklock_tls_ca[0] != '\0' || zklock_tls_cert[0] != '\0' ||
		zklock_tls_key[0] != '\0';
}

bool
sasl_is_wanted(void)
{
	return zklock_sasl_user[0] != '\0' || zklock_sasl_password_file[0] != '\0';
}

/*
 * secure_name_of_credentials
 *		The setting that identifies this server to ZooKeeper.
 */
const char *
secure_name_of_credentials(void)
{
	return sasl_is_wanted() ? "zklock.sasl_user" : "zklock.auth";
}

/* The value in force. */
static const char *
value_of(Checked setting)
{
	return checked[setting].string ? *checked[setting].string :
		GetConfigOption(checked[setting].name, false, false);
}

/* What is wrong with a setting of TLS or SASL beside the others, or NULL. */
static const char *
find_set_problem(Checked setting)
{
	bool		empty = value_of(setting)[0] == '\0';

	if (setting <= TLS_KEY)
		return tls_is_wanted() && empty ?
			"TLS needs \"zklock.tls_ca\", \"zklock.tls_cert\" and \"zklock.tls_key\"." : NULL;
	if (sasl_is_wanted() && empty)
		return "SASL needs \"zklock.sasl_user\" and \"zklock.sasl_password_file\".";
	return sasl_is_wanted() && tls_is_wanted() ?
		"The ZooKeeper client library cannot combine SASL with its TLS." : NULL;
}

/* Fill in "wrong" if there is a problem. */
static bool
is_wrong(Checked setting, const char *problem, ZkWrongSetting *wrong)
{
	if (problem == NULL)
		return false;
	wrong->name = checked[setting].name;
	wrong->value = checked[setting].secret ? NULL : value_of(setting);
	wrong->problem = problem;
	wrong->sqlstate = problem_code(problem, ERRCODE_CONFIG_FILE_ERROR);
	return true;
}

/*
 * zk_wrong_setting
 *		Does a setting have a wrong value?
 *
 * Looks at the settings that the ZooKeeper session needs and, if "locks", at
 * those that a lock needs in addition.  If one is wrong, fills in "wrong",
 * which is valid until a setting changes or the memory context is reset; else
 * "wrong" is all zero.
 */
bool
zk_wrong_setting(bool locks, ZkWrongSetting *wrong)
{
	bool		secure = tls_is_wanted() || sasl_is_wanted();

	memset(wrong, 0, sizeof(*wrong));
	for (Checked i = SERVERS; accepted_wrong && i < (locks ? NCHECKED : ROOT); i++)
		if (is_wrong(i, find_problem(i, value_of(i)), wrong))
			return true;
	for (Checked i = TLS_CA; secure && i <= SASL_PASSWORD_FILE; i++)
		if (is_wrong(i, find_set_problem(i), wrong))
			return true;
	return false;
}

/*
 * zk_describe_wrong_setting
 *		The result of zk_wrong_setting() as one line, palloc'd.
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

/* The flags of settings that are shown to superusers only, if asked for. */
#define FOR_SUPERUSERS \
	(GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE)

/* Settings of the session in ZooKeeper. */
static void
define_session_settings(void)
{
	DefineCustomStringVariable("zklock.servers",
							   "Sets the ZooKeeper servers: host:port,..., with an optional chroot.",
							   NULL, &zklock_servers, "localhost:2181",
							   PGC_SIGHUP, 0, check_servers, NULL, NULL);
	DefineCustomIntVariable("zklock.session_timeout",
							"Sets the session timeout to request from ZooKeeper.",
							"ZooKeeper may grant a different one; the view zk_session shows it.",
							&zklock_session_timeout, 10000, 2000, INT_MAX / 2,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable("zklock.auth",
							   "Sets the credentials for ZooKeeper's digest authentication, as user:password.",
							   NULL, &zklock_auth, "", PGC_SIGHUP,
							   FOR_SUPERUSERS, check_auth, NULL, show_auth);
	DefineCustomEnumVariable("zklock.acl",
							 "Sets who may use the znodes of this server: anyone, or only clients with the same credentials.",
							 NULL, &zklock_acl, ZK_ACL_OPEN, acl_options,
							 PGC_SIGHUP, 0, check_acl, NULL, NULL);
	DefineCustomStringVariable("zklock.tls_ca",
							   "Sets the file with the certificates of the authorities that ZooKeeper's certificate must be of.",
							   NULL, &zklock_tls_ca, "", PGC_SIGHUP,
							   FOR_SUPERUSERS, check_tls_ca, NULL, NULL);
	DefineCustomStringVariable("zklock.tls_cert",
							   "Sets the file with the certificate to present to ZooKeeper.",
							   NULL, &zklock_tls_cert, "", PGC_SIGHUP,
							   FOR_SUPERUSERS, check_tls_cert, NULL, NULL);
	DefineCustomStringVariable("zklock.tls_key",
							   "Sets the file with the private key of that certificate.",
							   NULL, &zklock_tls_key, "", PGC_SIGHUP,
							   FOR_SUPERUSERS, check_tls_key, NULL, NULL);
	DefineCustomStringVariable("zklock.sasl_user",
							   "Sets the user to authenticate as to ZooKeeper by SASL, with DIGEST-MD5.",
							   NULL, &zklock_sasl_user, "", PGC_SIGHUP,
							   FOR_SUPERUSERS, check_sasl_user, NULL, NULL);
	DefineCustomStringVariable("zklock.sasl_password_file",
							   "Sets the file with the password of that user.",
							   NULL, &zklock_sasl_password_file, "", PGC_SIGHUP,
							   FOR_SUPERUSERS, check_sasl_password_file, NULL, NULL);
}

/* Settings of the locks, and of those in place of advisory locks. */
static void
define_lock_settings(void)
{
	DefineCustomStringVariable("zklock.root",
							   "Sets the znode that contains the lock directories.",
							   NULL, &zklock_root, "/zklock",
							   PGC_SUSET, 0, check_root, NULL, NULL);
	DefineCustomEnumVariable("zklock.node_format",
							 "Sets how exclusive contenders are named, so that other clients recognize them.",
							 "They are named like those of Curator's InterProcessMutex or InterProcessReadWriteLock.",
							 &zklock_node_format, ZK_FORMAT_MUTEX,
							 format_options,
							 PGC_SUSET, 0, check_node_format, NULL, NULL);
	DefineCustomEnumVariable("zklock.exclusion",
							 "Sets whom locks exclude: sessions of all servers, or of this one only.",
							 "With \"instance\" nothing is asked of ZooKeeper.",
							 &zklock_exclusion, ZK_EXCLUSION_FLEET,
							 exclusion_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.deadlock_check",
							 "Checks for deadlocks with other servers.",
							 "A wait that has lasted deadlock_timeout is published in ZooKeeper and followed there.",
							 &zklock_deadlock_check, true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.advisory_locks",
							 "Makes pg_advisory_lock and its siblings take locks in ZooKeeper.",
							 "They are named \"advisory/<namespace>/<key>\" and exclude the sessions of all servers.",
							 &zklock_advisory_locks, ZK_ADVISORY_OFF,
							 advisory_options,
							 PGC_USERSET, 0, check_advisory_locks,
							 assign_advisory_locks, NULL);
	DefineCustomStringVariable("zklock.advisory_namespace",
							   "Sets which databases share the locks of zklock.advisory_locks: those with the same namespace.",
							   "An empty string stands for the name of the database.",
							   &zklock_advisory_namespace, "",
							   PGC_SUSET, 0, check_advisory_namespace, NULL,
							   NULL);
}

/* Settings of how much room there is in shared memory. */
static void
define_size_settings(void)
{
	DefineCustomIntVariable("zklock.max_locks",
							"Sets the maximum number of locks that the server can hold and wait for.",
							NULL, &zklock_max_locks, 8192, 1, INT_MAX / 1024,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_claims",
							"Sets the maximum number of claims that the server can have.",
							"Zero allows none.",
							&zklock_max_claims, 1000, 0, 1000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_claims_per_role",
							"Sets the maximum number of claims that a role can have in the server.",
							"-1 is a tenth of zklock.max_claims.  Superusers can have all of these.",
							&zklock_max_claims_per_role, -1, -1, 1000000,
							PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_tracked_locks",
							"Sets the maximum number of locks that zk_stat_locks has counters of.",
							"Zero turns them off.",
							&zklock_max_tracked_locks, 1000, 0, 1000000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

/* Settings of the end of a transaction. */
static void
define_transaction_settings(void)
{
	DefineCustomIntVariable("zklock.handoff_quantum",
							"Sets how long backends may hand a lock on to each other while other servers wait for it.",
							"Zero gives the lock up after each transaction, unless it may be retained.",
							&zklock_handoff_quantum, 10, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.retain_time",
							"Sets how long an idle lock is kept for the next transaction of this server.",
							"The lock is given up at once when another server waits for it.  Zero gives it up at transaction end; -1 keeps those that this server takes again and again.",
							&zklock_retain_time, ZK_RETAIN_BY_HABIT,
							ZK_RETAIN_BY_HABIT, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("zklock.max_retain_time",
							"Sets the longest time for which an idle lock is kept if \"zklock.retain_time\" is -1.",
							NULL, &zklock_max_retain_time, 1000, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable("zklock.terminate_on_loss",
							 "Ends a session that has lost a session-scoped lock.",
							 "The value at the call that takes the lock counts.",
							 &zklock_terminate_on_loss, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomEnumVariable("zklock.commit_check",
							 "Sets how a commit makes sure that its locks are not lost.",
							 "By the lease of the session, by asking ZooKeeper each time, or only by what the server knows already.",
							 &zklock_commit_check, ZK_CHECK_LEASE,
							 check_options,
							 PGC_USERSET, 0, check_commit_check, NULL, NULL);
	DefineCustomIntVariable("zklock.commit_timeout",
							"Sets how long a commit waits until ZooKeeper confirms that its locks are not lost.",
							"Past that the transaction is rolled back.  Zero waits as long as it takes.",
							&zklock_commit_timeout, 0, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * settings_define
 *		Define all settings, except those of builds for tests, which come
 *		first.  Called once, when the library is preloaded.
 */
void
settings_define(void)
{
	for (Checked i = SERVERS; i < NCHECKED; i++)
		if (checked[i].options)
			admit_wrong_word(i);
	define_session_settings();
	define_lock_settings();
	define_size_settings();
	define_transaction_settings();
	MarkGUCPrefixReserved("zklock");
}

/*
 * most_retain_us
 *		The longest time for which any lock is retained, in microseconds.
 */
int64
most_retain_us(void)
{
	int			time = zklock_retain_time == ZK_RETAIN_BY_HABIT ?
	zklock_max_retain_time : zklock_retain_time;

	return (int64) time * 1000;
}
