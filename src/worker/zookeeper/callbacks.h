/*-------------------------------------------------------------------------
 *
 * callbacks.h
 *		The library's callbacks for the answers to operations.
 *
 * Includes zookeeper.h (client.h), so only operation and watches include this.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/callbacks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CALLBACKS_H
#define ZKLOCK_CALLBACKS_H

#include "worker/zookeeper/client.h"

/*
 * "data" is the News that they fill in; of callback_barrier the Barrier, of
 * callback_multi the Multi.
 */
extern void callback_void(int rc, const void *data);
extern void callback_string(int rc, const char *value, const void *data);
extern void callback_create(int rc, const char *value,
							const struct Stat *stat, const void *data);
extern void callback_strings(int rc, const struct String_vector *strings,
							 const void *data);
extern void callback_stat(int rc, const struct Stat *stat,
						  const void *data);
extern void callback_data(int rc, const char *value, int value_len,
						  const struct Stat *stat, const void *data);
extern void callback_acl(int rc, struct ACL_vector *acl, struct Stat *stat,
						 const void *data);
extern void callback_multi(int rc, const void *data);
extern void callback_barrier(int rc, const void *data);

#endif							/* ZKLOCK_CALLBACKS_H */
