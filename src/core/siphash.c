/*-------------------------------------------------------------------------
 *
 * siphash.c
 *		A keyed hash: SipHash-2-4.
 *
 * Who does not know the key cannot tell the hash of any data from a random
 * number, not even from the hashes of other data of his choice: so he finds no
 * two that have the same hash, but by chance.
 *
 * Jean-Philippe Aumasson and Daniel J. Bernstein, "SipHash: a fast short-input
 * PRF", 2012.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/siphash.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/siphash.h"

#include <string.h>

typedef struct State
{
	uint64_t	v0;
	uint64_t	v1;
	uint64_t	v2;
	uint64_t	v3;
} State;

static inline uint64_t
rotated(uint64_t word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static inline void
mix(State *s, int rounds)
{
	while (rounds-- > 0)
	{
		s->v0 += s->v1;
		s->v2 += s->v3;
		s->v1 = rotated(s->v1, 13) ^ s->v0;
		s->v3 = rotated(s->v3, 16) ^ s->v2;
		s->v0 = rotated(s->v0, 32) + s->v3;
		s->v2 += s->v1;
		s->v1 = rotated(s->v1, 17) ^ s->v2;
		s->v3 = rotated(s->v3, 21) ^ s->v0;
		s->v2 = rotated(s->v2, 32);
	}
}

static inline void
take(State *s, uint64_t word)
{
	s->v3 ^= word;
	mix(s, 2);
	s->v0 ^= word;
}

/* Up to eight bytes as a little-endian number. */
static inline uint64_t
number_of(const uint8_t *bytes, size_t n)
{
	uint64_t	word = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	if (n == sizeof(word))
	{
		memcpy(&word, bytes, sizeof(word));
		return word;
	}
#endif
	while (n-- > 0)
		word = word << 8 | bytes[n];
	return word;
}

/*
 * siphash
 *		The hash of "len" bytes under a key.
 */
uint64_t
siphash(const SipKey *key, const void *data, size_t len)
{
	const uint8_t *bytes = data;
	size_t		left = len;
	State		s = {
		key->half[0] ^ UINT64_C(0x736f6d6570736575),
		key->half[1] ^ UINT64_C(0x646f72616e646f6d),
		key->half[0] ^ UINT64_C(0x6c7967656e657261),
		key->half[1] ^ UINT64_C(0x7465646279746573)
	};

	for (; left >= 8; left -= 8, bytes += 8)
		take(&s, number_of(bytes, 8));
	take(&s, number_of(bytes, left) | (uint64_t) len << 56);
	s.v2 ^= 0xff;
	mix(&s, 4);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
