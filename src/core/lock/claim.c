/*-------------------------------------------------------------------------
 *
 * claim.c
 *		The form of a claim's token, and until when a claim lasts.
 *
 *	token	= id "/" secret
 *	id		= 16 digits: the instance that has given the token
 *	secret	= 32 digits: 128 random bits
 *	digit	= "0" to "9", "a" to "f"
 *
 * Whoever has the token has the claim.  So two secrets are compared in a time
 * that does not tell how much of them is the same.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/claim.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/claim.h"

#include <string.h>

#include "core/lock/znode.h"

#define DAY_US	(INT64_C(86400) * 1000000)

static const char digits[] = "0123456789abcdef";

static void
write_bytes(const uint8_t *bytes, int n, char *string)
{
	for (int i = 0; i < n; i++)
	{
		*string++ = digits[bytes[i] >> 4];
		*string++ = digits[bytes[i] & 15];
	}
	*string = '\0';
}

/*
 * claim_write_id
 *		The id of an instance with this random number.
 */
void
claim_write_id(uint64_t number, char id[CLAIM_ID_SIZE])
{
	uint8_t		bytes[(CLAIM_ID_SIZE - 1) / 2];

	for (int i = 0; i < (int) sizeof(bytes); i++)
		bytes[i] = (uint8_t) (number >> (56 - 8 * i));
	write_bytes(bytes, sizeof(bytes), id);
}

static bool
are_digits(const char *string, int n)
{
	for (int i = 0; i < n; i++)
		if (znode_hex_digit(string[i]) < 0)
			return false;
	return true;
}

/*
 * claim_is_id
 *		Has a string the form of an instance's id?
 */
bool
claim_is_id(const char *string)
{
	return strlen(string) == CLAIM_ID_SIZE - 1 &&
		are_digits(string, CLAIM_ID_SIZE - 1);
}

/*
 * claim_write_token
 *		A token as text.
 */
void
claim_write_token(const ClaimToken *token, char string[CLAIM_TOKEN_SIZE])
{
	memcpy(string, token->instance, CLAIM_ID_SIZE - 1);
	string[CLAIM_ID_SIZE - 1] = '/';

	write_bytes(token->secret, CLAIM_SECRET_BYTES, string + CLAIM_ID_SIZE);
}

/*
 * claim_parse_token
 *		Read "len" bytes as a token; false if they are none.
 */
bool
claim_parse_token(const char *string, int len, ClaimToken *token)
{
	const char *secret = string + CLAIM_ID_SIZE;

	if (len != CLAIM_TOKEN_SIZE - 1 || string[CLAIM_ID_SIZE - 1] != '/' ||
		!are_digits(string, CLAIM_ID_SIZE - 1) ||
		!are_digits(secret, 2 * CLAIM_SECRET_BYTES))
		return false;
	memcpy(token->instance, string, CLAIM_ID_SIZE - 1);
	token->instance[CLAIM_ID_SIZE - 1] = '\0';
	for (int i = 0; i < CLAIM_SECRET_BYTES; i++)
		token->secret[i] = (uint8_t) (znode_hex_digit(secret[2 * i]) << 4 |
									  znode_hex_digit(secret[2 * i + 1]));
	return true;
}

/*
 * claim_is_same
 *		Are two secrets the same?  Takes the same time in any case.
 */
bool
claim_is_same(const uint8_t a[CLAIM_SECRET_BYTES],
			  const uint8_t b[CLAIM_SECRET_BYTES])
{
	volatile uint8_t differ = 0;

	for (int i = 0; i < CLAIM_SECRET_BYTES; i++)
		differ |= a[i] ^ b[i];
	return differ == 0;
}

/*
 * claim_ttl_us
 *		A ttl of so many days and microseconds, which may be negative, in
 *		microseconds; 0 if it is too short or too long.
 */
int64_t
claim_ttl_us(int64_t days, int64_t us)
{
	int64_t		max_days = INT64_MAX / DAY_US / 2;
	int64_t		ttl_us;

	if (days < -max_days || days > max_days ||
		us < -(INT64_MAX / 2) || us > INT64_MAX / 2)
		return 0;
	ttl_us = days * DAY_US + us;
	return ttl_us < CLAIM_MIN_TTL_US || ttl_us > CLAIM_MAX_TTL_US ? 0 : ttl_us;
}

/*
 * claim_end_us
 *		When a claim is over that begins or is renewed now.
 */
int64_t
claim_end_us(int64_t now_us, int64_t ttl_us)
{
	return now_us > INT64_MAX - ttl_us ? INT64_MAX : now_us + ttl_us;
}

/*
 * claim_is_over
 *		Is it over?  At the very end it is.
 */
bool
claim_is_over(int64_t end_us, int64_t now_us)
{
	return now_us >= end_us;
}
