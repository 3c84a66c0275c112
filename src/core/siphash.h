/*-------------------------------------------------------------------------
 *
 * siphash.h
 *		A keyed hash: SipHash-2-4.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/siphash.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SIPHASH_H
#define ZKLOCK_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* 128 random bits; as bytes, each half is in little-endian order. */
typedef struct SipKey
{
	uint64_t	half[2];
} SipKey;

extern uint64_t siphash(const SipKey *key, const void *data, size_t len);

#endif							/* ZKLOCK_SIPHASH_H */
