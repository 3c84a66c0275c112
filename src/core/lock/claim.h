/*-------------------------------------------------------------------------
 *
 * claim.h
 *		The form of a claim's token, and until when a claim lasts.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/claim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CLAIM_H
#define ZKLOCK_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

/* The id of an instance, in hexadecimal digits, and the terminator. */
#define CLAIM_ID_SIZE		17

/* What makes a token hard to guess. */
#define CLAIM_SECRET_BYTES	16

/* "<id>/<secret>", in hexadecimal digits, and the terminator. */
#define CLAIM_TOKEN_SIZE	(CLAIM_ID_SIZE + 2 * CLAIM_SECRET_BYTES + 1)

#define CLAIM_MIN_TTL_US	INT64_C(1000000)
#define CLAIM_MAX_TTL_US	(INT64_C(86400) * 1000000)

typedef struct ClaimToken
{
	char		instance[CLAIM_ID_SIZE];	/* that has given it */
	uint8_t		secret[CLAIM_SECRET_BYTES];
} ClaimToken;

extern void claim_write_id(uint64_t number, char id[CLAIM_ID_SIZE]);
extern bool claim_is_id(const char *string);
extern void claim_write_token(const ClaimToken *token,
							  char string[CLAIM_TOKEN_SIZE]);
extern bool claim_parse_token(const char *string, int len, ClaimToken *token);
extern bool claim_is_same(const uint8_t a[CLAIM_SECRET_BYTES],
						  const uint8_t b[CLAIM_SECRET_BYTES]);
extern int64_t claim_ttl_us(int64_t days, int64_t us);
extern int64_t claim_end_us(int64_t now_us, int64_t ttl_us);
extern bool claim_is_over(int64_t end_us, int64_t now_us);

#endif							/* ZKLOCK_CLAIM_H */
