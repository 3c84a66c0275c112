/*-------------------------------------------------------------------------
 *
 * znode.h
 *		Lock names, znode paths, and the order of contenders.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/znode.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ZNODE_H
#define ZKLOCK_ZNODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest percent-encoded lock name. */
#define ZNODE_MAX_NAME		255

/* The longest zklock.root, which bounds the path of a slot. */
#define ZNODE_MAX_ROOT		119

/* "<root>/<encoded name>" and the terminator. */
#define ZNODE_PATH_SIZE		(ZNODE_MAX_ROOT + 1 + ZNODE_MAX_NAME + 1)

#define ZNODE_UUID_BYTES	16

/* A UUID as text, and the terminator. */
#define ZNODE_UUID_SIZE		37

/* The fewest digits in which the name of a sequential node ends. */
#define ZNODE_SEQUENCE_DIGITS	10

/* "_c_<uuid>-__READ__-2147483648" and the terminator, rounded up. */
#define ZNODE_CONTENDER_SIZE	64

/*
 * A directory's counter comes to an end (see znode.c).  A contender with this
 * or a higher number does not own the lock: its directory is to be made again
 * while the numbers still have an order.
 */
#define ZNODE_LATE_SEQUENCE		2000000000

/*
 * The directories of a semaphore, as Curator names them: one for its lock, one
 * for its permits.
 */
#define ZNODE_LOCKS_DIR		"locks"
#define ZNODE_PERMITS_DIR	"leases"

/* What a contender is; this determines the format of its name. */
typedef enum ZnodeKind
{
	ZNODE_MUTEX,				/* exclusive, as Curator's InterProcessMutex */
	ZNODE_WRITER,				/* exclusive, as InterProcessReadWriteLock */
	ZNODE_READER,				/* shared, likewise */
	ZNODE_PERMIT				/* a permit, as InterProcessSemaphoreV2 */
} ZnodeKind;

/* Can several contenders of this kind own the lock together? */
static inline bool
znode_is_shared(ZnodeKind kind)
{
	return kind == ZNODE_READER;
}

typedef struct ZnodeContender
{
	int32_t		sequence;
	bool		shared;			/* does not exclude other readers */
} ZnodeContender;

extern int	znode_encode_name(const char *name, size_t len,
							  char *encoded, size_t size);
extern int	znode_decode_name(const char *encoded, char *name, size_t size);
extern const char *znode_check_root(const char *root);
extern int	znode_hex_digit(char digit);

extern void znode_make_uuid(uint8_t uuid[ZNODE_UUID_BYTES]);
extern void znode_write_uuid(const uint8_t uuid[ZNODE_UUID_BYTES],
							 char text[ZNODE_UUID_SIZE]);
extern void znode_contender_prefix(const uint8_t uuid[ZNODE_UUID_BYTES],
								   ZnodeKind kind,
								   char prefix[ZNODE_CONTENDER_SIZE]);
extern void znode_contender_name(const uint8_t uuid[ZNODE_UUID_BYTES],
								 ZnodeKind kind, int32_t sequence,
								 char name[ZNODE_CONTENDER_SIZE]);
extern bool znode_read_uuid(const char *text, uint8_t uuid[ZNODE_UUID_BYTES]);
extern bool znode_parse_uuid(const char *child,
							 uint8_t uuid[ZNODE_UUID_BYTES]);
extern bool znode_has_uuid(const char *child,
						   const uint8_t uuid[ZNODE_UUID_BYTES]);
extern bool znode_is_of_instance(const char *child);
extern bool znode_is_semaphore_part(const char *child);
extern bool znode_parse_contender(const char *child,
								  ZnodeContender *contender);
extern bool znode_before(int32_t a, int32_t b);
extern bool znode_is_late(int32_t sequence);
extern bool znode_is_unordered(int32_t sequence);

#endif							/* ZKLOCK_ZNODE_H */
