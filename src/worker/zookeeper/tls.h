/*-------------------------------------------------------------------------
 *
 * tls.h
 *		The files for encrypted connections to ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/tls.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TLS_H
#define ZKLOCK_TLS_H

extern char *tls_files(void);
extern char *tls_find_problem(void);
extern bool tls_is_hopeless(const char *message);

#endif							/* ZKLOCK_TLS_H */
