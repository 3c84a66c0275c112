/*-------------------------------------------------------------------------
 *
 * test_deadlock.c
 *		Unit tests of deadlock.c: its table line by line, texts, searches, and
 *		schedules by name.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_deadlock.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "town.h"

/*-------------------------------------------------------------------------
 * The table
 *-------------------------------------------------------------------------
 */

#define NSTATES		(DEADLOCK_ENDED + 1)
#define NEVENTS		(DEADLOCK_CUT + 1)

typedef struct Line
{
	DeadlockState state;
	DeadlockEvent event;
	DeadlockState next;
	unsigned	todo;
} Line;

static const Line lines[] = {
	{DEADLOCK_TOLD, DEADLOCK_SAME, DEADLOCK_CONFIRMED, DEADLOCK_CONFIRM},
	{DEADLOCK_TOLD, DEADLOCK_SEEN, DEADLOCK_ENDED, DEADLOCK_SHOW},
	{DEADLOCK_TOLD, DEADLOCK_OVER, DEADLOCK_NONE, 0},
	{DEADLOCK_CONFIRMED, DEADLOCK_CHANGED, DEADLOCK_TOLD, DEADLOCK_RETRACT},
	{DEADLOCK_CONFIRMED, DEADLOCK_PASSED, DEADLOCK_LATE, 0},
	{DEADLOCK_CONFIRMED, DEADLOCK_COMPLETE, DEADLOCK_ACTING, DEADLOCK_ACT},
	{DEADLOCK_CONFIRMED, DEADLOCK_SEEN, DEADLOCK_ENDED,
	DEADLOCK_RETRACT | DEADLOCK_SHOW},
	{DEADLOCK_CONFIRMED, DEADLOCK_CUT, DEADLOCK_TOLD, 0},
	{DEADLOCK_LATE, DEADLOCK_CHANGED, DEADLOCK_TOLD, DEADLOCK_RETRACT},
	{DEADLOCK_LATE, DEADLOCK_COMPLETE, DEADLOCK_ACTING, DEADLOCK_ACT},
	{DEADLOCK_LATE, DEADLOCK_SEEN, DEADLOCK_ENDED,
	DEADLOCK_RETRACT | DEADLOCK_SHOW},
	{DEADLOCK_LATE, DEADLOCK_CUT, DEADLOCK_TOLD, 0},
	{DEADLOCK_ACTING, DEADLOCK_CHANGED, DEADLOCK_STALE, DEADLOCK_RETRACT},
	{DEADLOCK_ACTING, DEADLOCK_DONE, DEADLOCK_ENDED, DEADLOCK_VERDICT},
	{DEADLOCK_ACTING, DEADLOCK_FAILED, DEADLOCK_LATE, 0},
	{DEADLOCK_ACTING, DEADLOCK_CUT, DEADLOCK_SOUGHT, 0},
	{DEADLOCK_STALE, DEADLOCK_DONE, DEADLOCK_ENDED, DEADLOCK_VERDICT},
	{DEADLOCK_STALE, DEADLOCK_FAILED, DEADLOCK_TOLD, 0},
	{DEADLOCK_STALE, DEADLOCK_CUT, DEADLOCK_SOUGHT, 0},
	{DEADLOCK_SOUGHT, DEADLOCK_DONE, DEADLOCK_ENDED, DEADLOCK_VERDICT},
	{DEADLOCK_SOUGHT, DEADLOCK_FAILED, DEADLOCK_TOLD, 0},
	{DEADLOCK_ENDED, DEADLOCK_OVER, DEADLOCK_NONE, DEADLOCK_REMOVE}
};

/* Each line does what it says, and whatever is not listed does nothing. */
static void
test_table(void **state)
{
	(void) state;
	for (int s = 0; s < NSTATES; s++)
		for (int e = 0; e < NEVENTS; e++)
		{
			DeadlockState next = (DeadlockState) s;
			unsigned	todo = 0;
			unsigned	done = ~0U;

			for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
				if ((int) lines[i].state == s && (int) lines[i].event == e)
				{
					next = lines[i].next;
					todo = lines[i].todo;
				}
			assert_int_equal(deadlock_step((DeadlockState) s,
										   (DeadlockEvent) e, &done), next);
			assert_int_equal(done, todo);
		}
}

/*-------------------------------------------------------------------------
 * Texts
 *-------------------------------------------------------------------------
 */

static DeadlockEdge
make_edge(const char *teller, const char *from, const char *to, int pid)
{
	DeadlockEdge edge = {
		.from = {DEADLOCK_EXCLUSIVE, from, pid, 1},
		.to = {DEADLOCK_EXCLUSIVE, to, pid, 2},
		.way = "",.began = (uint64_t) pid,.teller = teller,.instance = ""
	};

	return edge;
}

static void
assert_same_edge(const DeadlockEdge *a, const DeadlockEdge *b)
{
	assert_int_equal(a->from.kind, b->from.kind);
	assert_string_equal(a->from.name, b->from.name);
	assert_int_equal(a->from.pid, b->from.pid);
	assert_true(a->from.generation == b->from.generation);
	assert_int_equal(a->to.kind, b->to.kind);
	assert_string_equal(a->to.name, b->to.name);
	assert_int_equal(a->to.pid, b->to.pid);
	assert_true(a->to.generation == b->to.generation);
	assert_string_equal(a->way, b->way);
	assert_true(a->began == b->began);
	assert_int_equal(a->ahead, b->ahead);
	assert_int_equal(a->beside, b->beside);
	assert_int_equal(a->keeper != NULL, b->keeper != NULL);
	if (a->keeper)
		assert_string_equal(a->keeper, b->keeper);
}

/* Each byte survives in each word, and by itself. */
static void
test_every_byte(void **state)
{
	static char data[DEADLOCK_TEXT_BYTES];

	(void) state;
	for (int byte = 1; byte < 256; byte++)
		for (int alone = 0; alone < 2; alone++)
		{
			char		word[] = {alone ? (char) byte : 'a', (char) byte, 0};
			DeadlockEdge edge = make_edge("me", word, word, byte);
			const DeadlockEdge *edges[] = {&edge};
			DeadlockText text;
			int			len;

			if (alone)
				word[1] = '\0';
			edge.way = word;
			edge.keeper = word;
			edge.from.kind = "xscw"[byte % 4];
			edge.to.kind = "xscw"[byte / 4 % 4];
			edge.from.generation = (uint64_t) byte << 56 | 1;
			edge.to.generation = UINT64_MAX - (uint64_t) byte;
			edge.ahead = byte & 1;
			edge.beside = byte & 2;
			len = deadlock_write(word, edges, 1, data, sizeof(data));
			assert_true(len > 0);
			assert_true(deadlock_parse("me", data, len, &text));
			assert_int_equal(text.nedges, 1);
			assert_same_edge(&text.edges[0], &edge);
			assert_string_equal(text.edges[0].instance, word);
			free(text.edges);
			free(text.memory);
		}
}

/* A text in which any byte is another one, or that ends early, is no harm. */
static void
test_fuzz(void **state)
{
	static char data[DEADLOCK_TEXT_BYTES];
	DeadlockEdge a = make_edge("me", "/z/x", "/z/y", 7);
	DeadlockEdge b = make_edge("me", "/z/u", "/z/y", 7);
	const DeadlockEdge *edges[] = {&a, &b};
	DeadlockText text;
	int			len;
	int			parsed = 0;

	(void) state;
	a.way = b.way = "8.1,9.2";
	a.keeper = b.keeper = "/z/y/w";
	len = deadlock_write("one", edges, 2, data, sizeof(data));
	for (int i = 0; i < len; i++)
		for (int byte = 0; byte < 256; byte++)
		{
			char	   *copy = malloc((size_t) len);

			memcpy(copy, data, (size_t) len);
			copy[i] = (char) byte;
			for (int n = byte == 0 ? i : len; n <= len; n++)
				if (deadlock_parse("me", copy, n, &text))
				{
					parsed++;
					assert_true(text.nedges <= 2);
					free(text.edges);
					free(text.memory);
				}
			free(copy);
		}
	assert_true(parsed > 256);
	assert_false(deadlock_parse("me", data, 0, &text));
	assert_false(deadlock_parse("me", data, DEADLOCK_TEXT_BYTES + 1, &text));
	assert_int_equal(deadlock_write("one", edges, 2, data, len), -1);
}

/*-------------------------------------------------------------------------
 * Searches
 *-------------------------------------------------------------------------
 */

static int
search(const DeadlockEdge *edges, int n, const char *id,
	   const DeadlockEdge **cycle)
{
	const DeadlockEdge **pointers = malloc((size_t) n * sizeof(*pointers));
	char		hash[DEADLOCK_HASH + 1];
	int			found;

	for (int i = 0; i < n; i++)
		pointers[i] = &edges[i];
	found = deadlock_search(pointers, n, id, NULL, NULL, cycle, hash);
	free(pointers);
	return found;
}

/* The shortest counts, and all choose the same. */
static void
test_order(void **state)
{
	DeadlockEdge edges[] = {
		make_edge("a", "/x", "/y", 1),
		make_edge("b", "/y", "/z", 2),
		make_edge("c", "/z", "/x", 3),
		make_edge("d", "/y", "/x", 4),
		make_edge("e", "/y", "/x", 5)
	};
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];

	(void) state;
	assert_int_equal(search(edges, 5, "a", cycle), 2);
	assert_ptr_equal(cycle[1], &edges[3]);
	assert_int_equal(search(edges, 5, "d", cycle), 2);
	assert_ptr_equal(cycle[1], &edges[3]);
	assert_int_equal(search(edges, 5, "e", cycle), 2);
	assert_ptr_equal(cycle[1], &edges[4]);
	assert_int_equal(search(edges, 5, "b", cycle), 3);
	assert_ptr_equal(cycle[0], &edges[0]);
	assert_int_equal(search(edges, 5, "f", cycle), 0);

	/* one with a wait that may fail comes ahead of those without */
	edges[0].ahead = edges[3].ahead = true;
	assert_int_equal(search(edges, 5, "a", cycle), 2);
	assert_ptr_equal(cycle[1], &edges[4]);
}

static bool
skip_first(const char *hash, void *arg)
{
	char	   *first = arg;

	if (first[0] == '\0')
		strcpy(first, hash);
	return strcmp(first, hash) == 0;
}

static void
test_skip(void **state)
{
	DeadlockEdge edges[] = {
		make_edge("a", "/x", "/y", 1),
		make_edge("b", "/y", "/x", 2),
		make_edge("c", "/y", "/x", 3)
	};
	const DeadlockEdge *pointers[] = {&edges[0], &edges[1], &edges[2]};
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];
	char		first[DEADLOCK_HASH + 1] = "";
	char		hash[DEADLOCK_HASH + 1];

	(void) state;
	assert_int_equal(deadlock_search(pointers, 3, "a", skip_first, first,
									 cycle, hash), 2);
	assert_ptr_equal(cycle[1], &edges[2]);
	assert_string_not_equal(first, hash);
}

/* A circle of 64 is found; no more. */
static void
test_longest(void **state)
{
	static char names[DEADLOCK_CYCLE + 1][8];
	DeadlockEdge edges[DEADLOCK_CYCLE + 1];
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];

	(void) state;
	for (int n = DEADLOCK_CYCLE; n <= DEADLOCK_CYCLE + 1; n++)
	{
		for (int i = 0; i < n; i++)
			(void) snprintf(names[i], sizeof(names[i]), "/l%d", i);
		for (int i = 0; i < n; i++)
			edges[i] = make_edge("a", names[i], names[(i + 1) % n], i + 1);
		assert_int_equal(search(edges, n, "a", cycle),
						 n > DEADLOCK_CYCLE ? 0 : n);
	}
}

/* S -> S* is told by the instance of S alone, so these say nothing of S. */
static DeadlockEdge
session_edge(const char *teller, int from_kind, const char *from, int to_kind,
			 const char *to, int pid)
{
	DeadlockEdge edge = make_edge(teller, from, to, pid);

	edge.from.kind = (DeadlockKind) from_kind;
	edge.to.kind = (DeadlockKind) to_kind;
	return edge;
}

/* A remote session left behind waits, and its session does not wait for it. */
static void
test_remote_session_left_behind(void **state)
{
	DeadlockEdge edges[] = {
		/* what works for S at b has /y, and waits for /x */
		session_edge("b", 'x', "/y", 'c', "S", 1),
		session_edge("b", 'w', "S", 'x', "/x", 2),
		/* /x is held by one who waits for /y */
		session_edge("c", 'x', "/x", 'x', "/y", 3),
		/* S is in a foreign statement */
		session_edge("a", 'c', "S", 'w', "S", 4)
	};
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];

	(void) state;
	assert_int_equal(search(edges, 3, "b", cycle), 0);
	assert_int_equal(search(edges, 3, "c", cycle), 0);
	assert_int_equal(search(edges, 4, "c", cycle), 4);
}

/* Two who say that they work for S, which waits for nobody. */
static void
test_two_forged_sessions(void **state)
{
	DeadlockEdge edges[] = {
		session_edge("f", 'x', "/y", 'c', "S", 1),
		session_edge("g", 'w', "S", 'x', "/x", 2),
		session_edge("c", 'x', "/x", 'x', "/y", 3)
	};
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];

	(void) state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(search(edges, 3, edges[i].teller, cycle), 0);
}

/* No lock in it: nobody can fail. */
static void
test_sessions_only(void **state)
{
	DeadlockEdge edges[] = {
		session_edge("a", 'c', "S", 'w', "S", 1),
		session_edge("b", 'w', "S", 'c', "S", 2)
	};
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];

	(void) state;
	assert_int_equal(search(edges, 2, "a", cycle), 0);
}

/*-------------------------------------------------------------------------
 * Schedules by name
 *-------------------------------------------------------------------------
 */

#define X(lock)		{OP_LOCK, lock, 'x', 0}
#define S(lock)		{OP_LOCK, lock, 's', 0}
#define R(row)		{OP_ROW, row, 'x', 0}
#define Z(ms)		{OP_SLEEP, 0, 0, (ms) * MS}
#define GO(instance, backend, at, ...) \
	do { \
		const Op	ops_[] = {__VA_ARGS__}; \
		town_script(town, instance, backend, (at) * MS, ops_, \
					(int) (sizeof(ops_) / sizeof(ops_[0]))); \
	} while (0)

enum
{
	A, B, C, D
};

/* Locks. */
enum
{
	x, y, z, w
};

/* Play a schedule from several seeds; each has so many victims. */
static void
play(void (*prepare) (Town *town), int ninstances, int64_t timeout,
	 int least, int most)
{
	for (uint64_t seed = 1; seed <= 20; seed++)
	{
		Town	   *town = town_make(seed, timeout, timeout / 4);
		int			victims;

		for (int i = 0; i < ninstances; i++)
			(void) town_add_instance(town, TOWN_BACKENDS);
		prepare(town);
		town_finish(town, 20000 * MS);
		if (town_violation(town))
			fail_msg("seed %d: %s", (int) seed, town_violation(town));
		victims = town_stats(town)->victims;
		if (victims < least || victims > most)
			fail_msg("seed %d: %d victims", (int) seed, victims);
		town_free(town);
	}
}

static void
two(Town *town)
{
	GO(A, 0, 1, X(x), Z(100), X(y));
	GO(B, 0, 1, X(y), Z(100), X(x));
}

static void
test_two(void **state)
{
	(void) state;
	play(two, 2, 1000 * MS, 1, 1);
}

static void
three_share_two(Town *town)
{
	GO(A, 0, 1, S(y), S(z), Z(300), X(x));
	GO(B, 0, 1, S(x), S(z), Z(300), X(y));
	GO(C, 0, 1, S(x), S(y), Z(300), X(z));
}

static void
test_three_share_two_and_want_the_third(void **state)
{
	(void) state;
	play(three_share_two, 3, 1000 * MS, 2, 2);
}

static void
reader_beside(Town *town)
{
	GO(A, 0, 1, S(x), Z(900), X(y));
	GO(A, 1, 1, X(y), Z(900), S(x));
	GO(A, 2, 400, S(x));
	GO(B, 0, 200, X(x));
}

static void
test_reader_beside_its_own(void **state)
{
	(void) state;
	play(reader_beside, 2, 1000 * MS, 1, 1);
}

static void
overlapping(Town *town)
{
	GO(A, 0, 1, X(x), Z(300), X(y));
	GO(B, 0, 1, S(y), Z(300), X(x));
	GO(C, 0, 1, S(y), Z(320), X(x));
}

static void
test_two_overlapping(void **state)
{
	(void) state;
	play(overlapping, 3, 1000 * MS, 1, 2);
	play(overlapping, 3, 10 * MS, 1, 2);
}

static void
lose_connection(Town *town, int instance)
{
	town_fault(town, instance, FAULT_CUT, 300 * MS);
}

static void
act_lost(Town *town)
{
	two(town);
	town_on_act(town, lose_connection);
}

static void
test_answer_to_the_act_is_lost(void **state)
{
	(void) state;
	play(act_lost, 2, 1000 * MS, 1, 1);
}

static void
end_worker(Town *town, int instance)
{
	town_fault(town, instance, FAULT_WORKER, 300 * MS);
}

static void
act_and_worker_lost(Town *town)
{
	two(town);
	town_on_act(town, end_worker);
}

static void
test_answer_to_the_act_and_worker_are_lost(void **state)
{
	(void) state;
	play(act_and_worker_lost, 2, 1000 * MS, 1, 1);
}

static void
late_contention(Town *town)
{
	GO(A, 0, 1, X(x), Z(200), X(y));
	GO(B, 0, 1, X(y), Z(3300), X(x));
}

static void
test_contention_comes_late(void **state)
{
	(void) state;
	play(late_contention, 2, 1000 * MS, 1, 1);
}

static void
late_row(Town *town)
{
	GO(A, 0, 1, X(x), Z(3300), R(1));
	GO(A, 1, 1, R(1), Z(100), X(y));
	GO(B, 0, 1, X(y), Z(1000), X(x));
}

static void
test_row_wait_comes_late(void **state)
{
	(void) state;
	play(late_row, 2, 1000 * MS, 1, 1);
}

static void
tuple_lock(Town *town)
{
	GO(A, 0, 1, X(x), Z(500), R(1));
	GO(A, 1, 1, Z(250), R(1));
	GO(A, 2, 1, R(1), Z(100), X(y));
	GO(B, 0, 1, X(y), Z(200), X(x));
}

static void
test_tuple_lock(void **state)
{
	(void) state;
	play(tuple_lock, 2, 1000 * MS, 1, 1);
}

static void
ahead(Town *town)
{
	GO(A, 0, 1, X(x), Z(400), X(y));
	GO(A, 1, 1, Z(150), X(y));
	GO(A, 2, 1, Z(250), X(y));
	GO(B, 0, 1, X(y), Z(400), X(x));
	GO(B, 1, 1, Z(150), X(x));
	GO(B, 2, 1, Z(250), X(x));
}

static void
test_ahead(void **state)
{
	(void) state;
	play(ahead, 2, 1000 * MS, 1, 1);
}

static void
lose_late(Town *town)
{
	town_fault(town, B, FAULT_CUT, 3500 * MS);
}

static void
late_member(Town *town)
{
	two(town);
	town_at(town, 1190 * MS, lose_late);
}

static void
test_member_comes_late(void **state)
{
	(void) state;
	play(late_member, 2, 1000 * MS, 1, 1);
}

static void
cancel_other(Town *town, int instance)
{
	town_cancel(town, instance == A ? B : A, 0);
}

/* The other's text is emptied, and written again for another wait. */
static void
text_written_again(Town *town)
{
	two(town);
	GO(B, 1, 1, X(z), Z(90), X(w));
	GO(A, 1, 1, X(w), Z(8000));
	GO(A, 2, 1, Z(2000), X(z));
	town_on_act(town, cancel_other);
}

static void
test_text_is_written_again_behind_the_read(void **state)
{
	(void) state;
	play(text_written_again, 2, 1000 * MS, 0, 1);
}

static void
cancel_and_lose(Town *town, int instance)
{
	town_cancel(town, instance == A ? B : A, 0);
	town_cancel(town, instance, 1);
	town_fault(town, instance, FAULT_CUT, 300 * MS);
}

/* The act may fail; the text is written behind it; no answer comes. */
static void
act_lost_and_text(Town *town)
{
	two(town);
	GO(B, 1, 1, X(w), Z(9000));
	GO(A, 1, 1, X(z), Z(80), X(w));
	GO(B, 2, 1, Z(90), X(z));
	GO(A, 2, 1, Z(90), X(z));
	town_on_act(town, cancel_and_lose);
}

static void
test_text_is_written_behind_an_act_that_is_lost(void **state)
{
	(void) state;
	play(act_lost_and_text, 2, 1000 * MS, 0, 1);
}

static void
leave(Town *town, int instance)
{
	(void) instance;
	town_strangers_leave(town);
}

static void
stranger_between(Town *town)
{
	town_stranger(town, x, 'x', 60000 * MS);
}

/* The writer between two readers leaves ahead of the act. */
static void
writer_leaves(Town *town)
{
	GO(A, 0, 1, S(x), Z(400), X(y));
	town_at(town, 150 * MS, stranger_between);
	GO(B, 0, 1, X(y), Z(300), S(x));
	town_on_act(town, leave);
}

static void
test_writer_between_readers_leaves(void **state)
{
	(void) state;
	play(writer_leaves, 2, 1000 * MS, 0, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_fuzz),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_skip),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_remote_session_left_behind),
		cmocka_unit_test(test_two_forged_sessions),
		cmocka_unit_test(test_sessions_only),
		cmocka_unit_test(test_two),
		cmocka_unit_test(test_three_share_two_and_want_the_third),
		cmocka_unit_test(test_reader_beside_its_own),
		cmocka_unit_test(test_two_overlapping),
		cmocka_unit_test(test_answer_to_the_act_is_lost),
		cmocka_unit_test(test_answer_to_the_act_and_worker_are_lost),
		cmocka_unit_test(test_contention_comes_late),
		cmocka_unit_test(test_row_wait_comes_late),
		cmocka_unit_test(test_tuple_lock),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_member_comes_late),
		cmocka_unit_test(test_text_is_written_again_behind_the_read),
		cmocka_unit_test(test_text_is_written_behind_an_act_that_is_lost),
		cmocka_unit_test(test_writer_between_readers_leaves)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
