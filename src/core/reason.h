/*-------------------------------------------------------------------------
 *
 * reason.h
 *		Why there is no connection, from the client library's log.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/reason.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REASON_H
#define ZKLOCK_REASON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Not a line of the library: a server has refused the first request. */
#define REASON_UNWELCOME \
	"ZooKeeper wants other credentials: see its settings enforce.auth.schemes and sessionRequireClientSASLAuth"

extern bool reason_is_of_refusal(const char *line);
extern bool reason_is_none(const char *line);
extern void reason_of_line(const char *line, bool connected, int64_t session,
						   char *reason, size_t size);

#endif							/* ZKLOCK_REASON_H */
