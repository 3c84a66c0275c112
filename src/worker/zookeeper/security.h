/*-------------------------------------------------------------------------
 *
 * security.h
 *		TLS and SASL for the library.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/security.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SECURITY_H
#define ZKLOCK_SECURITY_H

extern char *security_find_problem(void);
extern char *tls_files(void);
extern bool tls_is_hopeless(const char *message);
extern const struct SaslParams *sasl_params(void);

#endif							/* ZKLOCK_SECURITY_H */
