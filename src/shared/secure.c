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

typedef enum SecureSetting
{
	TLS_CA,
	TLS_CERT,
	TLS_KEY,
	SASL_USER,
	SASL_PASSWORD_FILE
} SecureSetting;

#define NSETTINGS	(SASL_PASSWORD_FILE + 1)

static const struct
{
	const char *name;
	const char *description;
	char	  **value;
}			settings[NSETTINGS] =
{
	[TLS_CA] = {
		"zklock.tls_ca",
		"Sets the file with the certificates of the authorities that ZooKeeper's certificate must be of.",
		&zklock_tls_ca
	},
	[TLS_CERT] = {
		"zklock.tls_cert",
		"Sets the file with the certificate to present to ZooKeeper.",
		&zklock_tls_cert
	},
	[TLS_KEY] = {
		"zklock.tls_key",
		"Sets the file with the private key of that certificate.",
		&zklock_tls_key
	},
	[SASL_USER] = {
		"zklock.sasl_user",
		"Sets the user to authenticate as to ZooKeeper by SASL, with DIGEST-MD5.",
		&zklock_sasl_user
	},
	[SASL_PASSWORD_FILE] = {
		"zklock.sasl_password_file",
		"Sets the file with the password of that user.",
		&zklock_sasl_password_file
	}
};

static bool
is_tls(SecureSetting setting)
{
	return setting <= TLS_KEY;
}

static bool
sasl_is_supported(void)
{
	return zookeeper_init_sasl != NULL &&
		zoo_sasl_make_basic_callbacks != NULL && sasl_client_init != NULL &&
		sasl_set_mutex != NULL;
}

/*
 * What is wrong with a value by itself, as a sentence, or NULL.  The library
 * gets the three paths for TLS in one string, separated by commas.
 */
static const char *
find_problem(SecureSetting setting, const char *value)
{
	if (value[0] == '\0')
		return NULL;
	if (!is_tls(setting))
		return sasl_is_supported() ? NULL : ZK_LIBRARY_LACKS "SASL.";
	if (zookeeper_init_ssl == NULL)
		return ZK_LIBRARY_LACKS "TLS.";
	return strchr(value, ',') ? "The path must not contain a comma." : NULL;
}

static bool
check(SecureSetting setting, const char *value, void **extra, GucSource source)
{
	return setting_pass(settings[setting].name, NULL,
						find_problem(setting, value), extra, source);
}

static bool
check_tls_ca(char **newval, void **extra, GucSource source)
{
	return check(TLS_CA, *newval, extra, source);
}

static bool
check_tls_cert(char **newval, void **extra, GucSource source)
{
	return check(TLS_CERT, *newval, extra, source);
}

static bool
check_tls_key(char **newval, void **extra, GucSource source)
{
	return check(TLS_KEY, *newval, extra, source);
}

static bool
check_sasl_user(char **newval, void **extra, GucSource source)
{
	return check(SASL_USER, *newval, extra, source);
}

static bool
check_sasl_password_file(char **newval, void **extra, GucSource source)
{
	return check(SASL_PASSWORD_FILE, *newval, extra, source);
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

/* Is one without a value that these settings, all or none, must have? */
static bool
is_incomplete(SecureSetting first, SecureSetting last, const char *problem,
			  ZkWrongSetting *wrong)
{
	for (SecureSetting i = first; i <= last; i++)
		if ((*settings[i].value)[0] == '\0')
			return setting_is_wrong(settings[i].name, NULL, problem, wrong);
	return false;
}

/*
 * secure_is_wrong
 *		For zk_wrong_setting(): is one of these settings wrong?
 */
bool
secure_is_wrong(ZkWrongSetting *wrong)
{
	for (SecureSetting i = 0; i < NSETTINGS; i++)
		if (setting_is_wrong(settings[i].name, NULL,
							 find_problem(i, *settings[i].value), wrong))
			return true;
	if (tls_is_wanted() &&
		is_incomplete(TLS_CA, TLS_KEY,
					  "TLS needs \"zklock.tls_ca\", \"zklock.tls_cert\" and \"zklock.tls_key\".",
					  wrong))
		return true;
	if (sasl_is_wanted() &&
		is_incomplete(SASL_USER, SASL_PASSWORD_FILE,
					  "SASL needs \"zklock.sasl_user\" and \"zklock.sasl_password_file\".",
					  wrong))
		return true;
	return tls_is_wanted() && sasl_is_wanted() &&
		setting_is_wrong(settings[SASL_USER].name, NULL,
						 "The ZooKeeper client library cannot combine SASL with its TLS.",
						 wrong);
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

/*
 * secure_define
 *		Define these settings: see settings_define().
 */
void
secure_define(void)
{
	static const GucStringCheckHook checks[NSETTINGS] = {
		check_tls_ca, check_tls_cert, check_tls_key, check_sasl_user,
		check_sasl_password_file
	};

	for (SecureSetting i = 0; i < NSETTINGS; i++)
		DefineCustomStringVariable(settings[i].name, settings[i].description,
								   NULL, settings[i].value, "",
								   PGC_SIGHUP,
								   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
								   GUC_NOT_IN_SAMPLE,
								   checks[i], NULL, NULL);
}
