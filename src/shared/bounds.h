/*-------------------------------------------------------------------------
 *
 * bounds.h
 *		How many sessions a cluster may have, and how much is in one.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/bounds.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BOUNDS_H
#define ZKLOCK_BOUNDS_H

/*
 * The nodes of a session may have paths of so many bytes, each with
 * ZK_PATH_BYTES more: worker/sessions.c tells why.
 */
#define ZK_MAX_PATH_BYTES	(1024 * 1024)
#define ZK_PATH_BYTES		4

/*
 * A cluster has so many sessions at the most: they hold 100,000 locks whose
 * paths take 160 bytes.  Each costs the worker two threads and a connection,
 * of which ZooKeeper grants 60 to a client's address by default.
 */
#define ZK_MAX_SESSIONS		16

#endif							/* ZKLOCK_BOUNDS_H */
