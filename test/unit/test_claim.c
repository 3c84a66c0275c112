/*-------------------------------------------------------------------------
 *
 * test_claim.c
 *		The form of a claim's token, and until when a claim lasts.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_claim.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/lock/claim.h"

#define TOKEN	"0123456789abcdef/00112233445566778899aabbccddeeff"

#define DAY_US	(INT64_C(86400) * 1000000)

/* Read a copy of just these bytes, so that ASan sees a read behind them. */
static bool
parse(const char *string, ClaimToken *token)
{
	int			len = (int) strlen(string);
	char	   *copy = malloc(len > 0 ? len : 1);
	bool		good;

	memcpy(copy, string, len);
	good = claim_parse_token(copy, len, token);
	free(copy);
	return good;
}

static void
test_id(void **state)
{
	char		id[CLAIM_ID_SIZE];

	(void) state;
	claim_write_id(UINT64_C(0x0123456789abcdef), id);
	assert_string_equal(id, "0123456789abcdef");
	claim_write_id(0, id);
	assert_string_equal(id, "0000000000000000");
	assert_true(claim_is_id(id));
	assert_false(claim_is_id(""));
	assert_false(claim_is_id("000000000000000"));
	assert_false(claim_is_id("00000000000000000"));
	assert_false(claim_is_id("000000000000000g"));
	assert_false(claim_is_id("000000000000000A"));
}

static void
test_there_and_back(void **state)
{
	ClaimToken	token;
	char		string[CLAIM_TOKEN_SIZE];

	(void) state;
	assert_int_equal(strlen(TOKEN), CLAIM_TOKEN_SIZE - 1);
	assert_true(parse(TOKEN, &token));
	assert_string_equal(token.instance, "0123456789abcdef");
	for (int i = 0; i < CLAIM_SECRET_BYTES; i++)
		assert_int_equal(token.secret[i], i * 0x11);
	claim_write_token(&token, string);
	assert_string_equal(string, TOKEN);
}

/* Each byte counts, and none more. */
static void
test_malformed(void **state)
{
	ClaimToken	token;
	char		string[CLAIM_TOKEN_SIZE + 1];
	static const char wrong[] = "gGA/ -\n\x01\xff";

	(void) state;
	assert_false(parse("", &token));
	assert_false(parse("/", &token));
	strcpy(string, TOKEN);
	string[CLAIM_TOKEN_SIZE - 2] = '\0';

	assert_false(parse(string, &token));
	strcpy(string, TOKEN "0");
	assert_false(parse(string, &token));
	for (int i = 0; i < CLAIM_TOKEN_SIZE - 1; i++)
		for (int j = 0; wrong[j] != '\0'; j++)
		{
			strcpy(string, TOKEN);
			if (string[i] == wrong[j])
				continue;
			string[i] = wrong[j];

			assert_false(parse(string, &token));
		}
	strcpy(string, TOKEN);
	string[CLAIM_ID_SIZE - 1] = '0';

	assert_false(parse(string, &token));
}

static void
test_same(void **state)
{
	uint8_t		a[CLAIM_SECRET_BYTES];
	uint8_t		b[CLAIM_SECRET_BYTES];

	(void) state;
	for (int i = 0; i < CLAIM_SECRET_BYTES; i++)
		a[i] = b[i] = (uint8_t) (7 * i);
	assert_true(claim_is_same(a, b));
	for (int i = 0; i < CLAIM_SECRET_BYTES * 8; i++)
	{
		b[i / 8] ^= (uint8_t) (1 << i % 8);
		assert_false(claim_is_same(a, b));
		b[i / 8] ^= (uint8_t) (1 << i % 8);
	}
}

static void
test_ttl(void **state)
{
	(void) state;
	assert_int_equal(claim_ttl_us(0, 1000000), 1000000);
	assert_int_equal(claim_ttl_us(0, 999999), 0);
	assert_int_equal(claim_ttl_us(0, 0), 0);
	assert_int_equal(claim_ttl_us(0, -1000000), 0);
	assert_int_equal(claim_ttl_us(1, 0), DAY_US);
	assert_int_equal(claim_ttl_us(0, DAY_US), DAY_US);
	assert_int_equal(claim_ttl_us(1, 1), 0);
	assert_int_equal(claim_ttl_us(2, -DAY_US), DAY_US);
	assert_int_equal(claim_ttl_us(-1, DAY_US + 5000000), 5000000);
	assert_int_equal(claim_ttl_us(INT64_MAX, 0), 0);
	assert_int_equal(claim_ttl_us(INT64_MIN, 0), 0);
	assert_int_equal(claim_ttl_us(0, INT64_MAX), 0);
	assert_int_equal(claim_ttl_us(0, INT64_MIN), 0);
	assert_int_equal(claim_ttl_us(INT64_C(2147483647) * 31, INT64_MIN / 2), 0);
}

static void
test_end(void **state)
{
	(void) state;
	assert_int_equal(claim_end_us(5, 1000000), 1000005);
	assert_int_equal(claim_end_us(INT64_MAX - 1, DAY_US), INT64_MAX);
	assert_false(claim_is_over(1000005, 1000004));
	assert_true(claim_is_over(1000005, 1000005));
	assert_true(claim_is_over(1000005, 1000006));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_id),
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_ttl),
		cmocka_unit_test(test_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
