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
#include <time.h>

#include <cmocka.h>

#include "core/mutation.h"
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
	static char names[DEADLOCK_CYCLE + 1][32];
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

/* S -> S* is published by the instance of S alone: these say nothing of S. */
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

/* The same from one seed; what is wrong, or NULL. */
static const char *
play_once(void (*prepare) (Town *town), int ninstances, int64_t timeout,
		  int least, int most, uint64_t seed)
{
	static char wrong[256];
	Town	   *town = town_make(seed, timeout, timeout / 4);
	int			victims;

	for (int i = 0; i < ninstances; i++)
		(void) town_add_instance(town, TOWN_BACKENDS);
	prepare(town);
	town_finish(town, 20000 * MS);
	victims = town_stats(town)->victims;
	wrong[0] = '\0';
	if (town_violation(town))
		(void) snprintf(wrong, sizeof(wrong), "seed %d: %s", (int) seed,
						town_violation(town));
	else if (victims < least || victims > most)
		(void) snprintf(wrong, sizeof(wrong), "seed %d: %d victims",
						(int) seed, victims);
	town_free(town);
	return wrong[0] != '\0' ? wrong : NULL;
}

/* Play a schedule from several seeds; each has so many victims. */
static void
play(void (*prepare) (Town *town), int ninstances, int64_t timeout,
	 int least, int most)
{
	for (uint64_t seed = 1; seed <= 20; seed++)
	{
		const char *wrong = play_once(prepare, ninstances, timeout, least,
									  most, seed);

		if (wrong)
			fail_msg("%s", wrong);
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

/* While others come and go, so that all texts are written again and again. */
static void
churn(Town *town)
{
	const Op	want = {OP_LOCK, z, 'x', 1200 * MS};
	const Op	ops[] = {want, want, want, want};

	two(town);
	GO(B, 1, 1, X(z), Z(6000));
	GO(A, 1, 1, X(w), {OP_LOCK, z, 'x', 1100 * MS});
	town_script(town, A, 2, 200 * MS, ops, 4);
	town_script(town, A, 3, 500 * MS, ops, 4);
	GO(B, 2, 1, {OP_LOCK, w, 'x', 1150 * MS}, {OP_LOCK, w, 'x', 0});
}

static void
test_churn(void **state)
{
	(void) state;
	play(churn, 2, 1000 * MS, 1, 1);
}

/* A way of three: its middle changes, and another one begins. */
static void
change_way(Town *town, int instance)
{
	(void) instance;
	town_cancel(town, A, 1);
}

static void
way_changes(Town *town)
{
	GO(A, 0, 1, X(x), Z(500), R(1), Z(1), R(0));
	GO(A, 1, 1, R(1), Z(300), R(2));
	GO(A, 2, 20, R(2), R(0), Z(100), X(y));
	GO(B, 0, 1, X(y), Z(700), X(x));
	town_on_act(town, change_way);
}

static void
test_middle_of_a_way_changes(void **state)
{
	(void) state;
	play(way_changes, 2, 1000 * MS, 1, 1);
}

/*-------------------------------------------------------------------------
 * One instance by hand
 *-------------------------------------------------------------------------
 */

#define HOLDS	1150

/* Answer all requests of one instance, alone on its ZooKeeper. */
typedef struct Alone
{
	Deadlocks  *deadlocks;
	char		names[DEADLOCK_TEXTS][64];
	char	   *texts[DEADLOCK_TEXTS];
	int			ntexts;
	int			writes;
	int			reads;
} Alone;

static void
answer_all(Alone *alone, int64_t now)
{
	Request		r;

	while (deadlock_request(alone->deadlocks, &r))
	{
		const char *children[DEADLOCK_TEXTS];
		RequestAnswer a = {.serial = r.serial,.kind = r.kind};
		int			i = 0;

		while (i < alone->ntexts && r.node &&
			   strcmp(alone->names[i], r.node) != 0)
			i++;
		if (r.kind == REQUEST_CREATE && !r.exact)
		{
			i = alone->ntexts++;
			assert_true(i < DEADLOCK_TEXTS);
			(void) snprintf(alone->names[i], sizeof(alone->names[i]),
							"%s%010d", r.node, i);
			a.node = alone->names[i];
		}
		if (r.kind == REQUEST_CREATE || r.kind == REQUEST_SET)
		{
			alone->writes++;
			if (!r.exact)
			{
				assert_true(strlen(r.data) <= DEADLOCK_TEXT_BYTES);
				free(alone->texts[i]);
				alone->texts[i] = strdup(r.data);
			}
		}
		if (r.kind == REQUEST_GET)
		{
			alone->reads++;
			a.data = alone->texts[i];
			a.data_len = (int) strlen(a.data);
		}
		for (int k = 0; k < alone->ntexts; k++)
			children[k] = alone->names[k];
		a.children = children;
		a.nchildren = alone->ntexts;
		deadlock_answer(alone->deadlocks, &a, now);
	}
}

static void
begin_alone(Alone *alone, int64_t timeout)
{
	memset(alone, 0, sizeof(*alone));
	alone->deadlocks = deadlock_make("/w", "me", "me", timeout);
	deadlock_connect(alone->deadlocks, 0);
	answer_all(alone, 0);
}

static void
end_alone(Alone *alone)
{
	deadlock_free(alone->deadlocks);
	for (int i = 0; i < alone->ntexts; i++)
		free(alone->texts[i]);
}

/* A member that looks late, when it waits no more, hears of the end, too. */
static void
test_end_is_heard_late(void **state)
{
	DeadlockEdge edges[] = {
		make_edge("me", "/x", "/y", 1), make_edge("you", "/y", "/x", 2)
	};
	const DeadlockEdge *all[] = {&edges[0], &edges[1]};
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];
	DeadlockScan scan = {.edges = edges,.nedges = 1,.waits = true};
	RequestAnswer event = {.event = REQUEST_NODE_TOUCHED};
	DeadlockOutcome outcome;
	char		hash[DEADLOCK_HASH + 1];
	Alone		alone;

	(void) state;
	begin_alone(&alone, 1000 * MS);
	alone.texts[0] = calloc(1, 1000);
	(void) deadlock_write("you", &all[1], 1, alone.texts[0], 1000);
	(void) snprintf(alone.names[alone.ntexts++], 64, "you-0000000009");
	for (int i = 1; i <= 2; i++)
	{
		deadlock_scanned(alone.deadlocks, &scan, i * MS);
		answer_all(&alone, i * MS);
	}
	assert_int_equal(alone.writes, 2);	/* a text and a confirm */
	deadlock_over(alone.deadlocks, edges[0].to.generation, 3 * MS);
	deadlock_tick(alone.deadlocks, 15000 * MS);
	answer_all(&alone, 15000 * MS);
	scan.nedges = 0;
	deadlock_scanned(alone.deadlocks, &scan, 15000 * MS);
	assert_false(deadlock_outcome(alone.deadlocks, &outcome));

	assert_int_equal(deadlock_search(all, 2, "me", NULL, NULL, cycle, hash), 2);
	(void) snprintf(alone.names[alone.ntexts++], 64, "ended.%s.you", hash);
	deadlock_answer(alone.deadlocks, &event, 15001 * MS);
	answer_all(&alone, 15001 * MS);
	assert_true(deadlock_outcome(alone.deadlocks, &outcome));
	assert_string_equal(outcome.hash, hash);
	assert_false(outcome.verdict);
	end_alone(&alone);
}

/* 1,150 holds and one wait: all are published at once, in a few texts. */
static void
test_1150_holds_and_one_wait(void **state)
{
	static char names[HOLDS][64];
	static DeadlockEdge edges[HOLDS];
	DeadlockScan scan = {.edges = edges,.nedges = HOLDS,.waits = true};
	Alone		alone;
	int			published = 0;

	(void) state;
	for (int i = 0; i < HOLDS; i++)
	{
		(void) snprintf(names[i], sizeof(names[i]),
						"/zklock/the%%20name%%20of%%20a%%20lock-%d", i);
		edges[i] = make_edge("me", names[i], "/zklock/y", 7);
		edges[i].from.generation = (uint64_t) i;
	}
	begin_alone(&alone, 1000 * MS);
	deadlock_scanned(alone.deadlocks, &scan, 1);
	answer_all(&alone, 2);
	assert_int_equal(alone.writes, 2);
	for (int i = 0; i < alone.ntexts; i++)
	{
		DeadlockText text;

		assert_true(deadlock_parse("me", alone.texts[i],
								   (int) strlen(alone.texts[i]), &text));
		published += text.nedges;
		free(text.edges);
		free(text.memory);
	}
	assert_int_equal(published, HOLDS);
	assert_int_equal(deadlock_complaint(alone.deadlocks),
					 DEADLOCK_NO_COMPLAINT);
	/* one of them ends: one write */
	deadlock_over(alone.deadlocks, 17, 3);
	answer_all(&alone, 3);
	assert_int_equal(alone.writes, 3);
	end_alone(&alone);
}

/* New edges are published once in deadlock_timeout, ended ones at once. */
static void
test_new_edges_are_published_seldom(void **state)
{
	DeadlockEdge edges[50];
	static char names[50][32];
	DeadlockScan scan = {.edges = edges,.waits = true};
	Alone		alone;

	(void) state;
	begin_alone(&alone, 1000 * MS);
	for (int i = 0; i < 50; i++)
	{
		(void) snprintf(names[i], sizeof(names[i]), "/x%d", i);
		edges[i] = make_edge("me", names[i], "/y", i + 1);
		scan.nedges = i + 1;
		deadlock_scanned(alone.deadlocks, &scan, 1 + i * 100 * MS);
		answer_all(&alone, 1 + i * 100 * MS);
	}
	/* 5 s */
	assert_int_equal(alone.writes, 5);
	scan.nedges = 10;
	deadlock_scanned(alone.deadlocks, &scan, 5000 * MS);
	answer_all(&alone, 5000 * MS);
	assert_int_equal(alone.writes, 6);
	/* while a queue is being listed, nothing new is published */
	scan.nedges = 12;
	scan.listing = true;
	deadlock_scanned(alone.deadlocks, &scan, 9000 * MS);
	answer_all(&alone, 9000 * MS);
	assert_int_equal(alone.writes, 6);
	end_alone(&alone);
}

/* Without a connection nothing is due, and nothing is sent. */
static void
test_nothing_is_sent_without_a_connection(void **state)
{
	DeadlockEdge edge = make_edge("me", "/x", "/y", 1);
	DeadlockScan scan = {.edges = &edge,.nedges = 1,.waits = true};
	Alone		alone;
	Request		r;

	(void) state;
	begin_alone(&alone, 1000 * MS);
	deadlock_scanned(alone.deadlocks, &scan, 1);
	answer_all(&alone, 1);
	deadlock_disconnect(alone.deadlocks);
	assert_true(deadlock_wake(alone.deadlocks) == INT64_MAX);
	deadlock_tick(alone.deadlocks, 100000 * MS);
	deadlock_over(alone.deadlocks, 1, 100000 * MS);
	deadlock_scanned(alone.deadlocks, &scan, 100000 * MS);
	assert_false(deadlock_wants_scan(alone.deadlocks));
	assert_false(deadlock_request(alone.deadlocks, &r));
	end_alone(&alone);
}

/* Take out the next request, of this kind. */
static Request
take_request(Alone *alone, RequestKind kind)
{
	Request		r;

	assert_true(deadlock_request(alone->deadlocks, &r));
	assert_int_equal(r.kind, kind);
	return r;
}

/* A text whose create was carried out by the next connection goes. */
static void
test_text_is_created_behind_a_reconnect(void **state)
{
	const char *late = "me-0000000005";
	DeadlockEdge edge = make_edge("me", "/x", "/y", 1);
	DeadlockScan scan = {.edges = &edge,.nedges = 1,.waits = true};
	RequestAnswer dirs = {.kind = REQUEST_MKDIRS};
	RequestAnswer create = {.kind = REQUEST_CREATE,.node = late};
	RequestAnswer list = {.kind = REQUEST_SEARCH,.children = &late,
	.nchildren = 1};
	Alone		alone;
	Request		r;

	(void) state;
	begin_alone(&alone, 1000 * MS);
	deadlock_scanned(alone.deadlocks, &scan, 1);
	dirs.serial = take_request(&alone, REQUEST_MKDIRS).serial;
	create.serial = take_request(&alone, REQUEST_CREATE).serial;
	assert_false(deadlock_request(alone.deadlocks, &r));

	deadlock_disconnect(alone.deadlocks);
	deadlock_connect(alone.deadlocks, 2);
	assert_false(deadlock_request(alone.deadlocks, &r));
	deadlock_answer(alone.deadlocks, &dirs, 3);
	assert_false(deadlock_request(alone.deadlocks, &r));
	deadlock_answer(alone.deadlocks, &create, 3);
	list.serial = take_request(&alone, REQUEST_SEARCH).serial;
	deadlock_answer(alone.deadlocks, &list, 4);
	assert_string_equal(take_request(&alone, REQUEST_DELETE).node, late);

	/* the same, but the session has ended meanwhile */
	deadlock_scanned(alone.deadlocks, &scan, 5);
	(void) take_request(&alone, REQUEST_MKDIRS);
	deadlock_end(alone.deadlocks);
	deadlock_connect(alone.deadlocks, 6);
	(void) take_request(&alone, REQUEST_SEARCH);
	end_alone(&alone);
}

/*-------------------------------------------------------------------------
 * Figures: 100 members with 50 long waits each, and no deadlock
 *-------------------------------------------------------------------------
 */

#define MEMBERS	100
#define WAITS	50

static void
test_hundred_members(void **state)
{
	static char names[MEMBERS * WAITS + 1][32];
	static DeadlockEdge edges[MEMBERS * WAITS];
	static const DeadlockEdge *pointers[MEMBERS * WAITS];
	static char data[MEMBERS][DEADLOCK_TEXT_BYTES];
	static char ids[MEMBERS][32];
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];
	char		hash[DEADLOCK_HASH + 1];
	int			len[MEMBERS];
	double		seconds[2] = {0, 0};

	(void) state;
	for (int i = 0; i <= MEMBERS * WAITS; i++)
		(void) snprintf(names[i], sizeof(names[i]), "/zklock/lock-%d", i);
	for (int m = 0; m < MEMBERS; m++)
	{
		(void) snprintf(ids[m], sizeof(ids[m]), "member%d", m);
		for (int k = 0; k < WAITS; k++)
		{
			int			i = m * WAITS + k;

			/* each lock leads to one with a higher number: no circle */
			edges[i] = make_edge(ids[m], names[i],
								 names[i + 1 + (i * 7919) %
									   (MEMBERS * WAITS - i)], i + 1);
			pointers[i] = &edges[i];
		}
		len[m] = deadlock_write(ids[m], pointers + m * WAITS, WAITS, data[m],
								sizeof(data[m]));
		assert_true(len[m] > 0);
	}
	for (int round = 0; round < 10; round++)
	{
		clock_t		begin = clock();
		DeadlockText text;

		for (int m = 0; m < MEMBERS; m++)
		{
			assert_true(deadlock_parse(ids[m], data[m], len[m], &text));
			assert_int_equal(text.nedges, WAITS);
			free(text.edges);
			free(text.memory);
		}
		seconds[0] += (double) (clock() - begin) / CLOCKS_PER_SEC;
		begin = clock();
		assert_int_equal(deadlock_search(pointers, MEMBERS * WAITS, ids[round],
										 NULL, NULL, cycle, hash), 0);
		seconds[1] += (double) (clock() - begin) / CLOCKS_PER_SEC;
	}
	print_message("%d members with %d waits each: %d bytes a text; a member "
				  "parses all in %.1f ms, searches them in %.1f ms\n",
				  MEMBERS, WAITS, len[0], seconds[0] * 100, seconds[1] * 100);
}

/* All of them on one ZooKeeper, with a new wait each second. */
typedef struct Crowd
{
	Deadlocks  *members[MEMBERS];
	bool		watches[MEMBERS];
	char		names[MEMBERS][64];
	char	   *texts[MEMBERS];
	int			ntexts;
	int			writes;
	int			reads;
} Crowd;

static void
serve(Crowd *crowd, int member, int64_t now)
{
	const char *children[MEMBERS];
	Request		r;

	for (int k = 0; k < MEMBERS; k++)
		children[k] = crowd->names[k];
	while (deadlock_request(crowd->members[member], &r))
	{
		RequestAnswer a = {.serial = r.serial,.children = children};
		int			i = 0;

		if (r.kind == REQUEST_CREATE)
		{
			i = crowd->ntexts++;
			(void) snprintf(crowd->names[i], sizeof(crowd->names[i]),
							"%s%010d", r.node, i);
			a.node = crowd->names[i];
		}
		while (i < crowd->ntexts && r.node && a.node == NULL &&
			   strcmp(crowd->names[i], r.node) != 0)
			i++;
		if (r.kind == REQUEST_CREATE || r.kind == REQUEST_SET)
		{
			free(crowd->texts[i]);
			crowd->texts[i] = strdup(r.data);
			crowd->writes++;
		}
		if (r.kind == REQUEST_GET)
		{
			a.data = crowd->texts[i];
			a.data_len = (int) strlen(a.data);
		}
		if (r.kind == REQUEST_LIST)
			crowd->watches[member] = true;
		crowd->reads += r.kind == REQUEST_GET || r.kind == REQUEST_LIST ||
			r.kind == REQUEST_CHILDREN;
		a.nchildren = crowd->ntexts;
		deadlock_answer(crowd->members[member], &a, now);
	}
}

/* A member's waits: each leads to a lock with a higher number. */
static void
scan_member(Crowd *crowd, int m, int64_t now)
{
	static char names[MEMBERS * WAITS + 1][32];
	DeadlockEdge edges[WAITS];
	DeadlockScan scan = {.edges = edges,.nedges = WAITS,.waits = true};

	for (int i = 0; i <= MEMBERS * WAITS && names[i][0] == '\0'; i++)
		(void) snprintf(names[i], sizeof(names[i]), "/zklock/lock-%d", i);
	for (int k = 0; k < WAITS; k++)
	{
		int			i = m * WAITS + k;

		edges[k] = make_edge("", names[i],
							 names[i + 1 + (i * 7919) % (MEMBERS * WAITS - i)],
							 i + 1);
		/* one of them is new in each second */
		if (k == (int) (now / (1000 * MS)) % WAITS)
			edges[k].to.generation += (uint64_t) (now / (1000 * MS));
	}
	deadlock_scanned(crowd->members[m], &scan, now);
	serve(crowd, m, now);
}

static void
test_hundred_members_on_one_tree(void **state)
{
	static Crowd crowd;
	const int	seconds = 3;
	clock_t		begin = 0;
	int64_t		now;

	(void) state;
	for (int m = 0; m < MEMBERS; m++)
	{
		char		id[32];

		(void) snprintf(id, sizeof(id), "member%d", m);
		crowd.members[m] = deadlock_make("/w", id, id, 1000 * MS);
		deadlock_connect(crowd.members[m], 0);
		serve(&crowd, m, 0);
	}
	for (now = 1000 * MS; now < (seconds + 2) * 1000 * MS; now += 100 * MS)
	{
		if (now == 2000 * MS)
		{
			begin = clock();
			crowd.writes = crowd.reads = 0;
		}
		for (int m = 0; m < MEMBERS; m++)
		{
			deadlock_tick(crowd.members[m], now);
			serve(&crowd, m, now);
			while (deadlock_wants_scan(crowd.members[m]))
				scan_member(&crowd, m, now);
			if (crowd.ntexts < MEMBERS && now % (1000 * MS) == 0)
				scan_member(&crowd, m, now);
		}
	}
	assert_true(crowd.writes <= 3 * MEMBERS * (seconds + 1));
	print_message("%d members on one ZooKeeper: a member writes %.1f times a "
				  "second, reads %.0f times, and computes for %.1f ms\n",
				  MEMBERS, (double) crowd.writes / MEMBERS / seconds,
				  (double) crowd.reads / MEMBERS / seconds,
				  (double) (clock() - begin) * 1000 / CLOCKS_PER_SEC /
				  MEMBERS / seconds);
	for (int m = 0; m < MEMBERS; m++)
	{
		deadlock_free(crowd.members[m]);
		free(crowd.texts[m]);
	}
}

/* How many circles there may be, the work is bounded. */
static void
test_search_is_bounded(void **state)
{
	static char names[MEMBERS][32];
	static DeadlockEdge edges[MEMBERS * WAITS];
	const DeadlockEdge *cycle[DEADLOCK_CYCLE];
	clock_t		begin;
	int			n = 0;

	(void) state;
	for (int i = 0; i < MEMBERS; i++)
		(void) snprintf(names[i], sizeof(names[i]), "/l%d", i);
	for (int i = 0; i < MEMBERS; i++)
	{
		for (int k = 0; k < WAITS; k++)
		{
			edges[n] = make_edge(i % 2 ? "a" : "b", names[i],
								 names[(i + 10 + k % 5) % MEMBERS], n + 1);
			n++;
		}
	}
	begin = clock();
	assert_true(search(edges, n, "a", cycle) > 0);
	print_message("%d edges with any number of circles: %.1f ms\n", n,
				  (double) (clock() - begin) * 1000 / CLOCKS_PER_SEC);
}

/*-------------------------------------------------------------------------
 * Mutations: what is left out is found
 *-------------------------------------------------------------------------
 */

/* Has the search a cycle with another hash if an edge is another one? */
static bool
hash_is_same(bool way)
{
	char		hashes[2][DEADLOCK_HASH + 1];

	for (int i = 0; i < 2; i++)
	{
		DeadlockEdge edges[] = {
			make_edge("a", "/x", "/y", 1), make_edge("b", "/y", "/x", 2)
		};
		const DeadlockEdge *pointers[] = {&edges[0], &edges[1]};
		const DeadlockEdge *cycle[DEADLOCK_CYCLE];

		if (way)
			edges[1].way = i ? "3.1" : "3.2";
		else
			edges[1].from.generation += (uint64_t) i;
		assert_int_equal(deadlock_search(pointers, 2, "a", NULL, NULL, cycle,
										 hashes[i]), 2);
	}
	return strcmp(hashes[0], hashes[1]) == 0;
}

static bool
generation_is_ignored(void)
{
	return hash_is_same(false);
}

static bool
way_is_ignored(void)
{
	return hash_is_same(true);
}

/* Do two members that have the same two cycles choose differently? */
static bool
orders_differ(void)
{
	DeadlockEdge edges[] = {
		make_edge("a", "/x", "/y", 1), make_edge("b", "/y", "/x", 2),
		make_edge("b", "/x", "/z", 3), make_edge("a", "/z", "/x", 4)
	};
	const DeadlockEdge *cycles[2][DEADLOCK_CYCLE];

	assert_int_equal(search(edges, 4, "a", cycles[0]), 2);
	assert_int_equal(search(edges, 4, "b", cycles[1]), 2);
	return cycles[0][0] != cycles[1][0];
}

static bool
new_edges_are_published_at_once(void)
{
	DeadlockEdge edges[] = {
		make_edge("me", "/x", "/y", 1), make_edge("me", "/z", "/y", 2)
	};
	DeadlockScan scan = {.edges = edges,.waits = true};
	Alone		alone;
	int			writes;

	begin_alone(&alone, 1000 * MS);
	for (scan.nedges = 1; scan.nedges <= 2; scan.nedges++)
	{
		deadlock_scanned(alone.deadlocks, &scan, scan.nedges * MS);
		answer_all(&alone, scan.nedges * MS);
	}
	writes = alone.writes;
	end_alone(&alone);
	return writes > 1;
}

static bool
play_finds(void (*prepare) (Town *town), int ninstances, int most)
{
	for (uint64_t seed = 1; seed <= 40; seed++)
		if (play_once(prepare, ninstances, 1000 * MS, 0, most, seed))
			return true;
	return false;
}

static uint64_t first_seed;		/* of a mutation that is found late */

static bool
chance_finds(void)
{
	bool		found = false;

	for (uint64_t seed = first_seed;
		 seed < first_seed + 1000 && !found; seed++)
	{
		Town	   *town = town_make(seed, 1000 * MS, 250 * MS);

		town_by_chance(town);
		found = town_violation(town) != NULL;
		town_free(town);
	}
	return found;
}

static void
test_mutations(void **state)
{
	static const struct
	{
		const char *name;
		int			mutation;
		void		(*prepare) (Town *town);
		int			ninstances;
		int			most;
		bool		(*find) (void);
		uint64_t	first;
	}			mutations[] = {
		{"generations are ignored", ZK_CYCLE_ANY_GENERATION, NULL, 0, 0,
		generation_is_ignored, 1},
		{"ways are ignored", ZK_CYCLE_ANY_WAY, NULL, 0, 0, way_is_ignored, 1},
		{"each has an order of its own", ZK_CYCLE_LOCAL_ORDER, NULL, 0, 0,
		orders_differ, 1},
		{"new edges are published at once", ZK_CYCLE_WRITES_AT_ONCE, NULL, 0,
		0, new_edges_are_published_at_once, 1},
		{"a victim that is only ahead", ZK_CYCLE_AHEAD_FAILS, NULL, 0, 0,
		chance_finds, 1},
		{"a confirm goes in time", ZK_CYCLE_GIVES_UP, NULL, 0, 0,
		chance_finds, 1},
		{"act without all confirms", ZK_CYCLE_UNCONFIRMED, NULL, 0, 0,
		chance_finds, 1},
		{"confirms are not checked", ZK_CYCLE_ACT_UNCHECKED, NULL, 0, 0,
		chance_finds, 1},
		{"writers are not checked", ZK_CYCLE_KEEPER_UNCHECKED,
		writer_leaves, 2, 0, NULL, 1},
		{"leftovers stay", ZK_CYCLE_LEFTOVERS_STAY, NULL, 0, 0,
		chance_finds, 1},
		{"no look behind a write", ZK_CYCLE_LOOKS_AHEAD, NULL, 0, 0,
		chance_finds, 1},
		{"no scan behind a look", ZK_CYCLE_NO_RESCAN, NULL, 0, 0,
		chance_finds, 300},
		{"ended edges wait", ZK_CYCLE_ENDS_LATE, NULL, 0, 0,
		chance_finds, 450},
		{"an act without an answer is done", ZK_CYCLE_SOUGHT_IS_DONE,
		act_lost_and_text, 2, 0, NULL, 1},
	};

	(void) state;
	for (size_t i = 0; i < sizeof(mutations) / sizeof(mutations[0]); i++)
	{
		clock_t		begin = clock();
		bool		found;

		if (mutations[i].find != NULL && mutations[i].find != chance_finds)
			assert_false(mutations[i].find());
		first_seed = mutations[i].first;
		zklock_mutation = mutations[i].mutation;
		found = mutations[i].find ? mutations[i].find() :
			play_finds(mutations[i].prepare, mutations[i].ninstances,
					   mutations[i].most);
		zklock_mutation = ZK_MUTATION_NONE;
		print_message("%-36s %s in %.2f s\n", mutations[i].name,
					  found ? "found" : "not found",
					  (double) (clock() - begin) / CLOCKS_PER_SEC);
		if (!found)
			fail_msg("%s: not found", mutations[i].name);
	}
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
		cmocka_unit_test(test_writer_between_readers_leaves),
		cmocka_unit_test(test_churn),
		cmocka_unit_test(test_middle_of_a_way_changes),
		cmocka_unit_test(test_end_is_heard_late),
		cmocka_unit_test(test_1150_holds_and_one_wait),
		cmocka_unit_test(test_new_edges_are_published_seldom),
		cmocka_unit_test(test_nothing_is_sent_without_a_connection),
		cmocka_unit_test(test_text_is_created_behind_a_reconnect),
		cmocka_unit_test(test_hundred_members),
		cmocka_unit_test(test_hundred_members_on_one_tree),
		cmocka_unit_test(test_search_is_bounded),
		cmocka_unit_test(test_mutations)
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
