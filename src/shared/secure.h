/*-------------------------------------------------------------------------
 *
 * secure.h
 *		Settings of what the ZooKeeper client library may have been built
 *		with: TLS and SASL.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/secure.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SECURE_H
#define ZKLOCK_SECURE_H

#include "shared/setting_check.h"

extern char *zklock_tls_ca;
extern char *zklock_tls_cert;
extern char *zklock_tls_key;
extern char *zklock_sasl_user;
extern char *zklock_sasl_password_file;

/*
 * Of libzookeeper_mt if it was built with OpenSSL, or with Cyrus SASL, else
 * NULL; client.c has the types of the first two.
 */
extern void zookeeper_init_ssl(void) __attribute__((weak));
extern void zookeeper_init_sasl(void) __attribute__((weak));
extern void *zoo_sasl_make_basic_callbacks(const char *user, const char *realm,
										   const char *password_file) __attribute__((weak));

/* Of libsasl2, if it is there. */
extern int	sasl_client_init(const void *callbacks) __attribute__((weak));
extern void sasl_set_mutex(void *(*allocate) (void), int (*lock) (void *),
						   int (*unlock) (void *), void (*dispose) (void *)) __attribute__((weak));

extern bool tls_is_wanted(void);
extern bool sasl_is_wanted(void);
extern char *secure_values(void);
extern const char *secure_name_of_credentials(void);
extern bool secure_is_wrong(ZkWrongSetting *wrong);
extern void secure_define(void);

#endif							/* ZKLOCK_SECURE_H */
