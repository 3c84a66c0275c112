/*-------------------------------------------------------------------------
 *
 * reason.h
 *		Why there is no connection, by what the client library tells.
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

extern void reason_of_line(const char *line, bool connected, int64_t session,
						   char *reason, size_t size);

#endif							/* ZKLOCK_REASON_H */
