/*-------------------------------------------------------------------------
 *
 * uuid.c
 *		UUIDs for what the worker creates in ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/uuid.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/zookeeper/uuid.h"

/*
 * uuid_make
 *		A random UUID.
 *
 * Errors: XX000 if there are no random bytes to be had.
 */
void
uuid_make(uint8 uuid[ZNODE_UUID_BYTES])
{
	/* many at a time, which is cheaper */
	static uint8 pool[64 * ZNODE_UUID_BYTES];
	static Size left = 0;

	if (left == 0)
	{
		if (!pg_strong_random(pool, sizeof(pool)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		left = sizeof(pool);
	}
	left -= ZNODE_UUID_BYTES;
	memcpy(uuid, pool + left, ZNODE_UUID_BYTES);
	znode_make_uuid(uuid);
}
