/*-------------------------------------------------------------------------
 *
 * uuid.h
 *		UUIDs for what the worker creates in ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/uuid.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_UUID_H
#define ZKLOCK_UUID_H

#include "core/lock/znode.h"

extern void uuid_make(uint8 uuid[ZNODE_UUID_BYTES]);

#endif							/* ZKLOCK_UUID_H */
