/*-------------------------------------------------------------------------
 *
 * servers.h
 *		The form of zklock.servers: host:port,..., with an optional chroot.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/servers.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SERVERS_H
#define ZKLOCK_SERVERS_H

extern char *servers_find_problem(const char *server);
extern char *servers_for_library(const char *servers);

#endif							/* ZKLOCK_SERVERS_H */
