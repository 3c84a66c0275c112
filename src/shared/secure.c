/*-------------------------------------------------------------------------
 *
 * secure.c
 *		Settings of what the ZooKeeper client library may have been built
 *		with: TLS and SASL.
 *
 * Debian's was built with neither.  What is asked for and cannot be had must not
 * end in a connection without it, so such a value is an error.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/secure.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/secure.h"

char	   *zklock_tls_ca;
char	   *zklock_tls_cert;
char	   *zklock_tls_key;
char	   *zklock_sasl_user;
char	   *zklock_sasl_password_file;

/* What is wrong with the value in force: see settings.c. */
static const char *tls_ca_problem = NULL;
static const char *tls_cert_problem = NULL;
static const char *tls_key_problem = NULL;
static const char *sasl_user_problem = NULL;
static const char *sasl_password_file_problem = NULL;

/* The library gets the three paths in one string, separated by commas. */
static bool
check_tls(const char *name, const char *path, void **extra, GucSource source)
{
	const char *problem = NULL;

	if (path[0] == '\0')
		return true;
	if (zookeeper_init_ssl == NULL)
		problem = ZK_LIBRARY_LACKS "TLS.";
	else if (strchr(path, ',') != NULL)
		problem = "The path must not contain a comma.";
	return setting_pass(name, NULL, problem, extra, source);
}

static bool
check_tls_ca(char **newval, void **extra, GucSource source)
{
	return check_tls("zklock.tls_ca", *newval, extra, source);
}

static bool
check_tls_cert(char **newval, void **extra, GucSource source)
{
	return check_tls("zklock.tls_cert", *newval, extra, source);
}

static bool
check_tls_key(char **newval, void **extra, GucSource source)
{
	return check_tls("zklock.tls_key", *newval, extra, source);
}

static bool
check_sasl(const char *name, const char *value, void **extra, GucSource source)
{
	bool		supported = zookeeper_init_sasl != NULL &&
		zoo_sasl_make_basic_callbacks != NULL && sasl_client_init != NULL &&
		sasl_set_mutex != NULL;

	return setting_pass(name, NULL,
						value[0] != '\0' && !supported ?
						ZK_LIBRARY_LACKS "SASL." : NULL,
						extra, source);
}

static bool
check_sasl_user(char **newval, void **extra, GucSource source)
{
	return check_sasl("zklock.sasl_user", *newval, extra, source);
}

static bool
check_sasl_password_file(char **newval, void **extra, GucSource source)
{
	return check_sasl("zklock.sasl_password_file", *newval, extra, source);
}

static void
assign_tls_ca(const char *newval pg_attribute_unused(), void *extra)
{
	tls_ca_problem = extra;
}

static void
assign_tls_cert(const char *newval pg_attribute_unused(), void *extra)
{
	tls_cert_problem = extra;
}

static void
assign_tls_key(const char *newval pg_attribute_unused(), void *extra)
{
	tls_key_problem = extra;
}

static void
assign_sasl_user(const char *newval pg_attribute_unused(), void *extra)
{
	sasl_user_problem = extra;
}

static void
assign_sasl_password_file(const char *newval pg_attribute_unused(), void *extra)
{
	sasl_password_file_problem = extra;
}

/*
 * tls_is_wanted
 *		Are connections to ZooKeeper to be encrypted?
 *
 * So they are as soon as one of the settings has a value: what is missing must
 * not end in a connection in clear.
 */
bool
tls_is_wanted(void)
{
	return zklock_tls_ca[0] != '\0' || zklock_tls_cert[0] != '\0' ||
		zklock_tls_key[0] != '\0';
}

/*
 * sasl_is_wanted
 *		Is this server to authenticate to ZooKeeper by SASL?  As for TLS.
 */
bool
sasl_is_wanted(void)
{
	return zklock_sasl_user[0] != '\0' || zklock_sasl_password_file[0] != '\0';
}

/*
 * secure_name_of_credentials
 *		Which setting says who this server is for ZooKeeper?
 */
const char *
secure_name_of_credentials(void)
{
	return sasl_is_wanted() ? "zklock.sasl_user" : "zklock.auth";
}

/* Of the settings for TLS, all or none must have a value. */
static bool
is_wrong_tls(ZkWrongSetting *wrong)
{
	const char *missing = zklock_tls_ca[0] == '\0' ? "zklock.tls_ca" :
		zklock_tls_cert[0] == '\0' ? "zklock.tls_cert" :
		zklock_tls_key[0] == '\0' ? "zklock.tls_key" : NULL;

	return setting_is_wrong("zklock.tls_ca", NULL, tls_ca_problem, wrong) ||
		setting_is_wrong("zklock.tls_cert", NULL, tls_cert_problem, wrong) ||
		setting_is_wrong("zklock.tls_key", NULL, tls_key_problem, wrong) ||
		(tls_is_wanted() && missing != NULL &&
		 setting_is_wrong(missing, NULL,
						  "TLS needs \"zklock.tls_ca\", \"zklock.tls_cert\" and \"zklock.tls_key\".",
						  wrong));
}

/* Likewise for SASL; and the library cannot have both. */
static bool
is_wrong_sasl(ZkWrongSetting *wrong)
{
	const char *missing = zklock_sasl_user[0] == '\0' ? "zklock.sasl_user" :
		zklock_sasl_password_file[0] == '\0' ? "zklock.sasl_password_file" : NULL;

	return setting_is_wrong("zklock.sasl_user", NULL, sasl_user_problem, wrong) ||
		setting_is_wrong("zklock.sasl_password_file", NULL,
						 sasl_password_file_problem, wrong) ||
		(sasl_is_wanted() && missing != NULL &&
		 setting_is_wrong(missing, NULL,
						  "SASL needs \"zklock.sasl_user\" and \"zklock.sasl_password_file\".",
						  wrong)) ||
		(sasl_is_wanted() && tls_is_wanted() &&
		 setting_is_wrong("zklock.sasl_user", NULL,
						  "The ZooKeeper client library cannot combine SASL with its TLS.",
						  wrong));
}

/*
 * secure_is_wrong
 *		For zk_wrong_setting(): is one of these settings wrong?
 */
bool
secure_is_wrong(ZkWrongSetting *wrong)
{
	return is_wrong_tls(wrong) || is_wrong_sasl(wrong);
}

/*
 * secure_values
 *		All of these settings as one string, palloc'd, to see if one changes.
 */
char *
secure_values(void)
{
	return psprintf("%s\n%s\n%s\n%s\n%s", zklock_tls_ca, zklock_tls_cert,
					zklock_tls_key, zklock_sasl_user, zklock_sasl_password_file);
}

static void
define_setting(const char *name, const char *description, char **variable,
			   GucStringCheckHook check, GucStringAssignHook assign)
{
	DefineCustomStringVariable(name, description, NULL, variable, "",
							   PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
							   GUC_NOT_IN_SAMPLE,
							   check, assign, NULL);
}

/*
 * secure_define
 *		Define these settings: see settings_define().
 */
void
secure_define(void)
{
	define_setting("zklock.tls_ca",
				   "Sets the file with the certificates of the authorities that ZooKeeper's certificate must be of.",
				   &zklock_tls_ca, check_tls_ca, assign_tls_ca);
	define_setting("zklock.tls_cert",
				   "Sets the file with the certificate to present to ZooKeeper.",
				   &zklock_tls_cert, check_tls_cert, assign_tls_cert);
	define_setting("zklock.tls_key",
				   "Sets the file with the private key of that certificate.",
				   &zklock_tls_key, check_tls_key, assign_tls_key);
	define_setting("zklock.sasl_user",
				   "Sets the user to authenticate as to ZooKeeper by SASL, with DIGEST-MD5.",
				   &zklock_sasl_user, check_sasl_user, assign_sasl_user);
	define_setting("zklock.sasl_password_file",
				   "Sets the file with the password of that user.",
				   &zklock_sasl_password_file, check_sasl_password_file,
				   assign_sasl_password_file);
}
