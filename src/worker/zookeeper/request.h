/*-------------------------------------------------------------------------
 *
 * request.h
 *		What one request to ZooKeeper may hold.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/request.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_REQUEST_H
#define ZKLOCK_REQUEST_H

/*
 * The most that one request may have: the server takes 1 MB (jute.maxbuffer).
 * Count the bytes of paths and data, and SESSION_OPERATION_BYTES for each
 * operation.
 */
#define SESSION_REQUEST_BYTES	(1000 * 1000)
#define SESSION_OPERATION_BYTES	128

#endif							/* ZKLOCK_REQUEST_H */
