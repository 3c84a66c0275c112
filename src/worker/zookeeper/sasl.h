/*-------------------------------------------------------------------------
 *
 * sasl.h
 *		Authentication to ZooKeeper by SASL.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/sasl.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SASL_H
#define ZKLOCK_SASL_H

/*
 * zoo_sasl_params_t, which zookeeper.h has for its own build only.
 */
typedef struct SaslParams
{
	const char *service;
	const char *host;
	const char *mechanisms;
	const void *callbacks;
} SaslParams;

extern char *sasl_find_problem(void);
extern SaslParams *sasl_params(int session);

#endif							/* ZKLOCK_SASL_H */
