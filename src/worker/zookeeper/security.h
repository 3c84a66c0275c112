/*-------------------------------------------------------------------------
 *
 * security.h
 *		Credentials, TLS and SASL for the library.
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

/* The credentials that the session presents. */
extern void auths_attach(void);
extern const char *auths_collect(bool needed);
extern bool auths_are_several(void);
extern bool auths_are_old(void);
extern void auths_forget_refused(void);

#endif							/* ZKLOCK_SECURITY_H */
