/*-------------------------------------------------------------------------
 *
 * test_detector.c
 *		Unit tests of the detector, line by line: detector.c's steps and
 *		confirm.c's states, with a scripted server.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_detector.c
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

#include "core/deadlock/detector.h"
#include "core/deadlock/graph_private.h"
#include "core/deadlock/probe.h"

#define TIMEOUT		INT64_C(1000)

/*
 * Our contenders x and y, and those of another instance, which wait for ours.
 */
#define X			"/z/x/_c_00000001-0000-0000-0000-000000000000-__WRIT__0000000001"
#define X_OTHER		"/z/x/_c_00000002-0000-0000-0000-000000000000-__WRIT__0000000002"
#define Y			"/z/y/_c_00000003-0000-0000-0000-000000000000-__WRIT__0000000002"
#define Y_OTHER		"/z/y/_c_00000004-0000-0000-0000-000000000000-__WRIT__0000000001"
#define V			"/z/v/_c_00000005-0000-0000-0000-000000000000-__WRIT__0000000001"
#define ROOM		"/z/%waits"

static Detector detector;
static DetectorOutput out;
static int64_t now;
static int	next_op;			/* of "out": the first not yet expected */

/* Operations that have been put out, with copies of what we need. */
static uint32_t serials[100];

static void
step(DetectorInput in)
{
	in.now = now;
	detector_step(&detector, &in, &out);
	next_op = 0;
}

static void
event(DetectorEvent what)
{
	step((DetectorInput) {.event = what});
}

static const DetectorOp *
expect_either(int name, bool act, RequestKind kind, const char *path)
{
	const DetectorOp *op = &out.ops[next_op];

	assert_true(next_op < out.nops);
	assert_int_equal(op->request.kind, kind);
	assert_int_equal(op->verdict != NULL, act);
	assert_string_equal(op->request.path, path);
	serials[name] = op->request.serial;
	next_op++;
	return op;
}

/* The next operation is of this kind, and about this; remembered as "name". */
static const DetectorOp *
expect(int name, RequestKind kind, const char *path)
{
	return expect_either(name, false, kind, path);
}

/* The same is an act. */
static const DetectorOp *
expect_act(int name, const char *path)
{
	return expect_either(name, true, REQUEST_SET, path);
}

static void
expect_nothing(void)
{
	assert_int_equal(next_op, out.nops);
}

static void
done(int name, RequestResult result)
{
	step((DetectorInput) {.event = DETECTOR_DONE,
		.answer.serial = serials[name],
		.answer.result = result});
}

static void
written(int name, int32_t version)
{
	step((DetectorInput) {.event = DETECTOR_DONE,
		.answer.serial = serials[name],
		.answer.version = version});
}

static void
created(int name, const char *node)
{
	step((DetectorInput) {.event = DETECTOR_DONE,
		.answer.serial = serials[name],
		.answer.node = node});
}

static void
children(int name, int n, const char *first, const char *second,
		 const char *third)
{
	const char *list[] = {first, second, third};

	step((DetectorInput) {.event = DETECTOR_DONE,
		.answer.serial = serials[name],
		.answer.children = list,.answer.nchildren = n});
}

/* The directory changes and is listed again, by 1. */
static void
waits_dir_changes(void)
{
	step((DetectorInput) {.event = DETECTOR_DIR_CHANGED,
		.answer.serial = serials[1]});
	expect(1, REQUEST_LIST, ROOM);
}

/* The same, and it has these. */
static void
waits_dir_has(int n, const char *first, const char *second, const char *third)
{
	waits_dir_changes();
	children(1, n, first, second, third);
}

/*
 * It has this probe and the answer of the other instance: theirs is still so.
 */
static void
others_confirm(int probe)
{
	char		question[64];
	char		answer[64];

	(void) snprintf(question, sizeof(question), "probe-%010d", probe);
	(void) snprintf(answer, sizeof(answer),
					"answer-%010d-0000000000000002-%010d", probe, probe + 1);
	waits_dir_has(2, answer, question, NULL);
}

static void
data(int name, const char *text, int32_t version, bool ours)
{
	step((DetectorInput) {.event = DETECTOR_DONE,
		.answer.serial = serials[name],
		.answer.data = text,.answer.data_len = (int) strlen(text),
		.answer.version = version,
		.answer.ephemeral_owner = 1,.answer.ours = ours});
}

/* All edges are of such as are only ahead of others. */
static bool all_requeue;

static WaitEdge
edge(const char *from, const char *to, int number)
{
	WaitEdge	result;

	memset(&result, 0, sizeof(result));
	strcpy(result.from, from);
	strcpy(result.wait.to, to);
	result.wait.hold.pid = number;
	result.wait.wait.pid = number;
	result.wait.wait.since = number;
	result.wait.began = all_requeue ? 0 : number;
	result.wait.alternatives = 1;
	return result;
}

static void
edges(int n, const WaitEdge *list, uint32_t scan)
{
	step((DetectorInput) {.event = DETECTOR_EDGES,.edges = list,.nedges = n,
		.scan = scan});
}

/* We hold x and wait for y, whose owner waits for x. */
static void
edges_ours(uint32_t scan)
{
	WaitEdge	ours = edge(X, Y, 71);

	edges(1, &ours, scan);
}

static const char *
note(const WaitEdge *report)
{
	static char text[NOTE_FULL_SIZE];
	Note		written;

	note_set_contender(&written, "h", 1, "shop", 1, false);
	(void) note_write_waits(&written, &report->wait, 1, text);
	return text;
}

/* The probe of that deadlock; the victim is the first that is told. */
static const char *
probe(const WaitEdge *first, const WaitEdge *second)
{
	static char text[10000];
	WaitMember	members[2];
	WaitDeadlock deadlock = {.nmembers = 2,.members = members};
	char	   *written;

	memset(members, 0, sizeof(members));
	members[0].edge = *first;
	members[1].edge = *second;
	for (int i = 0; i < 2; i++)
		members[i].version = strcmp(members[i].edge.from, X) == 0 ? 3 : 4;
	members[0].blocked_by = 1;
	strcpy(members[0].between, "/z/y/between");
	written = probe_write(&deadlock);
	strcpy(text, written);
	free(written);
	return text;
}

static int
begin(void **state)
{
	(void) state;
	now = 1000000;
	all_requeue = false;
	detector_init(&detector, TIMEOUT, false);
	event(DETECTOR_RESUMED);
	expect_nothing();
	assert_true(detector_is_idle(&detector));
	return 0;
}

static int
end(void **state)
{
	(void) state;
	detector_free(&detector);
	return 0;
}

/* Our edge is published, and the search has found nothing; the list is 1. */
static void
publish(void)
{
	edges_ours(0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect_nothing();
	children(1, 0, NULL, NULL, NULL);
	expect_nothing();
	done(2, REQUEST_NO_NODE);
	expect_nothing();
}

static void
an_edge_is_published_and_taken_back(void **state)
{
	const DetectorOp *op;
	WaitEdge	other = edge(X, Y, 72);

	(void) state;
	edges_ours(0);
	op = expect(0, REQUEST_SET, X);
	assert_int_equal(op->nwaits, 1);
	assert_string_equal(op->waits[0].to, Y);
	op = expect(1, REQUEST_LIST, ROOM);
	assert_true(op->request.barrier);
	expect_nothing();

	/* the same once more; another wait, while the write is out */
	edges_ours(0);
	expect_nothing();
	edges(1, &other, 0);
	expect_nothing();
	done(0, REQUEST_OK);
	op = expect(0, REQUEST_SET, X);
	assert_int_equal(op->waits[0].wait.pid, 72);
	expect_nothing();

	/* and none */
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	edges(0, NULL, 0);
	op = expect(0, REQUEST_SET, X);
	assert_int_equal(op->nwaits, 0);
	done(0, REQUEST_OK);
	done(1, REQUEST_OK);
	done(2, REQUEST_OK);
	expect_nothing();
	assert_true(detector_is_idle(&detector));
	assert_true(out.wake_at > now + TIMEOUT);	/* to leave the directory */
}

static void
a_note_that_cannot_be_written(void **state)
{
	(void) state;
	edges_ours(0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	done(0, REQUEST_REFUSED);
	expect_nothing();
	assert_true(out.wake_at == now + TIMEOUT);
	now += TIMEOUT;
	event(DETECTOR_TICK);
	expect(0, REQUEST_SET, X);
	expect_nothing();

	/* the contender is gone: that is all */
	done(0, REQUEST_NO_NODE);
	expect_nothing();
	edges(0, NULL, 0);
	expect_nothing();
}

static void
many_edges_take_turns(void **state)
{
	WaitEdge	list[20];
	bool		seen[20] = {false};
	const DetectorOp *op;

	(void) state;
	for (int i = 0; i < 20; i++)
		list[i] = edge(X, Y, 100 + i);
	edges(20, list, 0);
	for (int turn = 0; turn < 6; turn++)
	{
		op = turn == 0 ? expect(0, REQUEST_SET, X) :
			&out.ops[0];
		assert_int_equal(op->request.kind, REQUEST_SET);
		serials[0] = op->request.serial;
		assert_int_equal(op->nwaits, NOTE_MAX_WAITS);
		for (int i = 0; i < op->nwaits; i++)
			seen[op->waits[i].wait.pid - 100] = true;
		done(0, REQUEST_OK);
		assert_true(out.wake_at <= now + TIMEOUT);
		now += TIMEOUT;
		event(DETECTOR_TICK);
	}
	for (int i = 0; i < 20; i++)
		assert_true(seen[i]);
}

static void
the_room_is_made(void **state)
{
	(void) state;
	edges_ours(0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	done(1, REQUEST_NO_NODE);
	expect(2, REQUEST_MKDIR, ROOM);
	done(2, REQUEST_OK);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	children(1, 0, NULL, NULL, NULL);
	expect_nothing();

	/* its watch: listed again; an old one: not */
	step((DetectorInput) {.event = DETECTOR_DIR_CHANGED,
		.answer.serial = serials[0]});
	expect_nothing();
	waits_dir_changes();

	/* who may not read it tries again later */
	done(1, REQUEST_REFUSED);
	expect_nothing();
	now += TIMEOUT;
	event(DETECTOR_TICK);
	expect(1, REQUEST_LIST, ROOM);
}

/*
 * The directory has been made, and the edge taken back: wait until it is left.
 */
static void
leave_room(void)
{
	publish();
	edges(0, NULL, 0);
	expect(0, REQUEST_SET, X);
	done(0, REQUEST_OK);
	while (out.nops == 0)
	{
		assert_true(out.wake_at < INT64_MAX);
		now = out.wake_at;
		event(DETECTOR_TICK);
	}
	expect(3, REQUEST_DELETE, ROOM);
	expect_nothing();
}

/* Whether one is only ahead of others may change while it waits. */
static void
an_edge_is_told_with_its_mark(void **state)
{
	(void) state;
	publish();
	all_requeue = true;
	edges_ours(0);
	assert_true(expect(0, REQUEST_SET, X)->waits[0].began == 0);
	expect_nothing();
	done(0, REQUEST_OK);
	all_requeue = false;
	edges_ours(0);
	assert_true(expect(0, REQUEST_SET, X)->waits[0].began == 71);
	expect_nothing();
}

static void
the_room_goes_when_nobody_needs_it(void **state)
{
	(void) state;
	leave_room();
	done(3, REQUEST_OK);
	assert_true(detector_is_idle(&detector) && out.wake_at == INT64_MAX);

	/* it is needed again, and so made again */
	edges_ours(0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	done(1, REQUEST_NO_NODE);
	expect(2, REQUEST_MKDIR, ROOM);
}

static void
the_room_stays_that_others_use(void **state)
{
	(void) state;
	leave_room();

	/* it is not empty, and so watched as before */
	done(3, REQUEST_REFUSED);
	assert_true(detector_is_idle(&detector) && out.wake_at == INT64_MAX);
	edges_ours(0);
	expect(0, REQUEST_SET, X);
	expect_nothing();
}

static void
the_room_is_needed_while_it_goes(void **state)
{
	(void) state;
	leave_room();
	edges_ours(0);
	expect(0, REQUEST_SET, X);
	expect_nothing();
	done(3, REQUEST_OK);
	expect(1, REQUEST_LIST, ROOM);
}

static void
one_search_in_each_timeout(void **state)
{
	(void) state;
	publish();
	for (int i = 0; i < 3; i++)
	{
		assert_true(out.wake_at == now + TIMEOUT);
		now += TIMEOUT - 1;
		event(DETECTOR_TICK);
		edges_ours(0);
		expect_nothing();
		now += 1;
		event(DETECTOR_TICK);
		expect(2, REQUEST_CHILDREN, "/z/y");
		expect_nothing();
		children(2, 0, NULL, NULL, NULL);
		expect_nothing();
	}
	assert_int_equal(detector.counts.searches, 4);
}

/* A search whose first read is out reads that deadlock. */
static void
read_deadlock(bool victim_is_ours)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, victim_is_ours ? 70 : 92);

	children(2, 2, strrchr(Y, '/') + 1, strrchr(Y_OTHER, '/') + 1, NULL);
	expect(2, REQUEST_GET, Y_OTHER);
	data(2, note(&theirs), 4, false);
	expect(2, REQUEST_CHILDREN, "/z/x");
	children(2, 2, strrchr(X, '/') + 1, strrchr(X_OTHER, '/') + 1, NULL);
	expect(2, REQUEST_GET, X);
	data(2, note(&ours), 3, true);
}

/* The second search finds a deadlock, and we ask: the probe is 5. */
static void
find(bool victim_is_ours)
{
	now += TIMEOUT;
	event(DETECTOR_TICK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	read_deadlock(victim_is_ours);
	assert_non_null(strstr(expect(5, REQUEST_CREATE, ROOM "/probe-")->request.data,
						   "shop"));
	expect_nothing();
	created(5, "probe-0000000005");
	expect_nothing();
	assert_int_equal(out.scan != 0, !victim_is_ours);
}

/* From our edge to the act, which is 6: ours is the victim, others confirm. */
static const DetectorOp *
ask_and_act(void)
{
	const DetectorOp *act;

	publish();
	find(true);
	others_confirm(5);
	expect_nothing();

	/* only then are our own edges looked at, and nobody need be told of it */
	assert_int_not_equal(out.scan, 0);
	edges_ours(out.scan);
	act = expect_act(6, X);
	expect_nothing();
	return act;
}

static void
check_act(const DetectorOp *op)
{
	assert_int_equal(op->request.version, -1);
	assert_int_equal(op->nwaits, 0);
	assert_int_equal(op->nothers, 0);
	assert_string_equal(op->verdict, ROOM "/verdict-0000000005");
	assert_string_equal(op->checks[0].path, ROOM "/probe-0000000005");
	assert_int_equal(op->nchecks, 4);
	for (int i = 0; i < op->nchecks; i++)
		assert_int_equal(op->checks[i].version,
						 strcmp(op->checks[i].path, Y_OTHER) == 0 ? 4 : -1);
}

static void
our_victim(void **state)
{
	(void) state;
	check_act(ask_and_act());
	step((DetectorInput) {.event = DETECTOR_DONE, .answer.serial = serials[6],
		.answer.result = REQUEST_OK, .answer.mzxid = 77});
	assert_int_equal(out.nverdicts, 1);
	assert_true(out.verdicts[0].ours);
	assert_false(out.verdicts[0].requeues);
	assert_int_equal(out.verdicts[0].zxid, 77);
	assert_string_equal(out.verdicts[0].deadlock->members[0].edge.from, X);
	assert_int_equal(out.verdicts[0].deadlock->members[1].blocked_by, 0);
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();

	/* the edge is over, even if it is still there */
	edges_ours(0);
	expect_nothing();

	/* when all have seen the verdict, it goes */
	done(7, REQUEST_OK);
	waits_dir_has(2, "answer-0000000005-0000000000000002-0000000006",
			 "verdict-0000000005", NULL);
	expect_nothing();
	assert_int_equal(out.nverdicts, 0);
	waits_dir_has(1, "verdict-0000000005", NULL, NULL);
	expect(7, REQUEST_DELETE, ROOM "/verdict-0000000005");
	done(7, REQUEST_OK);
	edges(0, NULL, 0);
	expect_nothing();
	assert_true(detector_is_idle(&detector));
	assert_int_equal(detector.counts.victims, 1);
}

static void
an_act_that_fails(void **state)
{
	(void) state;
	ask_and_act();
	done(6, REQUEST_NO_NODE);
	assert_int_equal(out.nverdicts, 0);

	/* what the worker has of the note is without the wait: with it again */
	assert_int_equal(expect(0, REQUEST_SET, X)->nwaits, 1);
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();
	assert_int_equal(detector.counts.failed_acts, 1);

	/* that tells nothing new: whoever has read the note before is right */
	written(0, 9);
	expect_nothing();
	done(7, REQUEST_OK);
	waits_dir_has(0, NULL, NULL, NULL);
	find(true);
	others_confirm(5);
	edges_ours(out.scan);
	expect_act(6, X);
}

/* Our backend has given up while others were asked. */
static void
our_edge_ends_before_the_act(void **state)
{
	(void) state;
	publish();
	find(true);
	others_confirm(5);
	edges(0, NULL, out.scan);
	expect(7, REQUEST_SET, X);
	expect(8, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();
	assert_int_equal(detector.counts.denied, 1);
}

/* With or without the verdict in the list that comes afterwards. */
static void
an_act_whose_answer_is_lost(void **state)
{
	(void) state;
	for (int verdict = 0; verdict < 2; verdict++)
	{
		ask_and_act();
		event(DETECTOR_SUSPENDED);
		done(6, REQUEST_UNKNOWN);
		expect_nothing();
		event(DETECTOR_RESUMED);
		expect(0, REQUEST_SET, X);
		assert_true(expect(1, REQUEST_LIST, ROOM)->request.barrier);
		children(1, 2, "probe-0000000005",
				 verdict ? "verdict-0000000005" :
				 "answer-0000000005-0000000000000002-0000000006", NULL);
		assert_int_equal(out.nverdicts, verdict);
		expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
		expect_nothing();

		/* what has been written since is taken back, if the wait has ended */
		done(0, REQUEST_OK);
		if (verdict)
			assert_int_equal(expect(0, REQUEST_SET, X)->nwaits, 0);
		else
			expect(2, REQUEST_CHILDREN, "/z/y");
		expect_nothing();
		end(NULL);
		begin(NULL);
	}
}

/* What was listed ahead of the act tells nothing about it. */
static void
an_act_that_may_have_been_carried_out(void **state)
{
	(void) state;
	ask_and_act();
	waits_dir_changes();
	done(6, REQUEST_UNKNOWN);
	expect(0, REQUEST_SET, X);
	expect_nothing();
	children(1, 2, "answer-0000000005-0000000000000002-0000000006",
			 "probe-0000000005", NULL);
	assert_true(expect(1, REQUEST_LIST, ROOM)->request.barrier);
	expect_nothing();
	children(1, 2, "probe-0000000005", "verdict-0000000005", NULL);
	assert_int_equal(out.nverdicts, 1);
}

/* While a note of the victim's is being written nobody knows its version. */
static void
our_note_is_being_written(void **state)
{
	WaitEdge	both[2] = {edge(X, Y, 71), edge(X, Y, 73)};

	(void) state;
	publish();
	find(true);
	edges(2, both, 0);
	expect(0, REQUEST_SET, X);
	expect_nothing();
	others_confirm(5);
	expect_nothing();
	assert_int_equal(out.scan, 0);
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect_nothing();
	assert_int_not_equal(out.scan, 0);
	edges(2, both, out.scan);
	expect_act(6, X);
	expect_nothing();
}

/* Our note has another version than when it was read for the probe. */
static void
note_changes(int n, const WaitEdge *list)
{
	edges(n, list, 0);
	expect(0, REQUEST_SET, X);
	others_confirm(5);
	expect_nothing();
	written(0, 4);
}

/* Another deadlock may be in this one, of which the victim is no part. */
static void
our_note_gets_another_wait(void **state)
{
	WaitEdge	both[2] = {edge(X, Y, 71), edge(X, Y, 73)};

	(void) state;
	publish();
	find(true);
	note_changes(2, both);
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();
	assert_int_equal(out.scan, 0);
}

/*
 * None can be; if that kept acts from being done, each would keep the others.
 */
static void
our_note_loses_a_wait(void **state)
{
	WaitEdge	both[2] = {edge(X, Y, 71), edge(X, Y, 73)};

	(void) state;
	publish();
	edges(2, both, 0);
	expect(0, REQUEST_SET, X);
	written(0, 3);
	expect(2, REQUEST_CHILDREN, "/z/y");
	children(2, 0, NULL, NULL, NULL);
	find(true);
	note_changes(1, both);
	expect_nothing();
	edges_ours(out.scan);
	check_act(expect_act(6, X));
}

/*
 * So it is where the note has more edges than it tells, and the victim's has
 * just lost its turn.
 */
#define VICTIM_PLACE	(NOTE_MAX_WAITS - 4)

static void
our_note_is_written_without_the_victim(void **state)
{
	WaitEdge	many[NOTE_MAX_WAITS + 4];
	int			n = NOTE_MAX_WAITS + 4;
	const DetectorOp *op;

	(void) state;
	publish();
	find(true);
	for (int i = 0; i < n; i++)
		many[i] = edge(X, Y, 71 + (i + n - VICTIM_PLACE) % n);
	edges(n, many, 0);
	expect(0, REQUEST_SET, X);
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	others_confirm(5);
	assert_int_not_equal(out.scan, 0);
	now += TIMEOUT;
	edges(n, many, out.scan);
	op = expect(0, REQUEST_SET, X);
	assert_int_equal(op->nwaits, NOTE_MAX_WAITS);
	for (int i = 0; i < op->nwaits; i++)
		assert_int_not_equal(op->waits[i].wait.pid, 71);
	expect_nothing();
}

/*
 * Who waits for any of several is out of all notes when one of them ends it.
 */
static void
our_victim_waits_for_any(void **state)
{
	WaitEdge	both[2] = {edge(X, Y, 71), edge(X, Y_OTHER, 71)};
	WaitEdge	theirs = edge("/z/u/1", X_OTHER, 70);
	const DetectorOp *op;

	(void) state;
	both[0].wait.alternatives = both[1].wait.alternatives = 2;
	both[1].wait.wait.since++;
	edges(2, both, 0);
	assert_int_equal(expect(0, REQUEST_SET, X)->nwaits, 2);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 0, NULL, NULL, NULL);
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	done(2, REQUEST_NO_NODE);
	waits_dir_has(1, "probe-0000000003", NULL, NULL);
	expect(4, REQUEST_GET, ROOM "/probe-0000000003");
	data(4, probe(&both[0], &theirs), 0, false);
	others_confirm(3);
	edges(2, both, out.scan);
	op = expect_act(6, X);
	assert_int_equal(op->nwaits, 0);
}

static void
our_edge_is_denied(void **state)
{
	WaitEdge	other = edge(X, Y, 71);

	(void) state;
	other.wait.hold.since++;	/* handed on */
	publish();
	find(true);
	others_confirm(5);
	edges(1, &other, out.scan);
	expect(0, REQUEST_SET, X);
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();
	assert_int_equal(detector.counts.denied, 1);
}

static void
others_deny_theirs(void **state)
{
	(void) state;
	publish();
	find(false);
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000005-0000000000000002-");
	expect_nothing();
	created(6, "answer-0000000005-0000000000000002-0000000006");
	waits_dir_has(3, "answer-0000000005-0000000000000000-0000000007",
			 "answer-0000000005-0000000000000002-0000000006",
			 "probe-0000000005");
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect(8, REQUEST_DELETE,
		   ROOM "/answer-0000000005-0000000000000002-0000000006");
	expect_nothing();
}

/* Nobody answers. */
static void
a_probe_has_a_deadline(void **state)
{
	(void) state;
	publish();
	find(true);
	edges_ours(out.scan);
	now += 2 * TIMEOUT + 999999;
	event(DETECTOR_TICK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect_nothing();
	now += 1;
	event(DETECTOR_TICK);
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
}

/*
 * It counts from when the probe is there, and is the later the longer that has
 * taken.
 */
static void
a_probe_is_created_late(void **state)
{
	int64_t		took = 2 * TIMEOUT + 1000000;

	(void) state;
	publish();
	now += TIMEOUT;
	event(DETECTOR_TICK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	read_deadlock(true);
	expect(5, REQUEST_CREATE, ROOM "/probe-");
	now += took;
	created(5, "probe-0000000005");
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect_nothing();
	children(2, 0, NULL, NULL, NULL);
	now += 2 * took;
	event(DETECTOR_TICK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect_nothing();
	others_confirm(5);
	edges_ours(out.scan);
	expect_act(6, X);
}

/* Another instance's probe is listed and read; ours is edge "member". */
static void
hear(const char *text)
{
	waits_dir_has(1, "probe-0000000003", NULL, NULL);
	expect(4, REQUEST_GET, ROOM "/probe-0000000003");
	expect_nothing();
	data(4, text, 0, false);
	expect_nothing();
}

static void
check_others_ask(void)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	publish();
	hear(probe(&theirs, &ours));
	assert_int_not_equal(out.scan, 0);

	/* a scan from before does not count */
	edges_ours(out.scan - 1);
	expect_nothing();
	edges_ours(1);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000002-");
	created(6, "answer-0000000003-0000000000000002-0000000004");

	/* their victim */
	waits_dir_has(3, "answer-0000000003-0000000000000002-0000000004",
			 "probe-0000000003", "verdict-0000000003");
	assert_int_equal(out.nverdicts, all_requeue ? 0 : 1);
	if (!all_requeue)
		assert_false(out.verdicts[0].ours);
	expect(7, REQUEST_DELETE,
		   ROOM "/answer-0000000003-0000000000000002-0000000004");
	expect_nothing();
}

/* The same backend holds another contender, and nobody knows that yet. */
static void
others_ask_before_all_is_told(void **state)
{
	WaitEdge	ours[2] = {edge(X, Y, 71), edge(V, Y, 71)};
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	(void) state;
	publish();
	hear(probe(&theirs, &ours[0]));
	edges(2, ours, 1);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000000-");
	expect(0, REQUEST_SET, V);
	expect_nothing();
	assert_int_equal(detector.counts.refuted, 1);
}

/* Or the note that tells it is just being written; or cannot be. */
static void
others_ask_while_it_is_being_told(void **state)
{
	WaitEdge	ours[2] = {edge(X, Y, 71), edge(V, Y, 71)};
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	(void) state;
	for (int gone = 0; gone < 2; gone++)
	{
		publish();
		edges(2, ours, 0);
		expect(0, REQUEST_SET, V);
		if (gone)
			done(0, REQUEST_NO_NODE);
		hear(probe(&theirs, &ours[0]));
		edges(2, ours, out.scan);
		expect(6, REQUEST_CREATE,
			   gone ? ROOM "/answer-0000000003-0000000000000002-" :
			   ROOM "/answer-0000000003-0000000000000000-");
		expect_nothing();
		end(NULL);
		begin(NULL);
	}
}

/* A note that is full tells as much as it can. */
static void
others_ask_about_a_full_note(void **state)
{
	WaitEdge	ours[NOTE_MAX_WAITS + 2];
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	(void) state;
	for (int i = 0; i < NOTE_MAX_WAITS + 2; i++)
	{
		ours[i] = edge(X, Y, 71);
		ours[i].wait.hold.since = 100 + i;
	}
	edges(NOTE_MAX_WAITS + 2, ours, 0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 0, NULL, NULL, NULL);
	done(0, REQUEST_OK);
	hear(probe(&theirs, &ours[0]));
	edges(NOTE_MAX_WAITS + 2, ours, out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000002-");
}

/* Each probe is answered by a scan that began when it had been read. */
static void
others_ask_twice(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);
	WaitEdge	third = edge(Y_OTHER, X_OTHER, 93);
	uint32_t	first;

	(void) state;
	publish();
	hear(probe(&theirs, &ours));
	first = out.scan;
	waits_dir_has(2, "probe-0000000003", "probe-0000000004", NULL);
	expect(4, REQUEST_GET, ROOM "/probe-0000000004");
	data(4, probe(&third, &ours), 0, false);
	assert_int_not_equal(out.scan, first);
	edges_ours(first);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000002-");
	expect_nothing();
	edges_ours(first + 1);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000004-0000000000000002-");
	expect_nothing();
}

/*
 * Nobody else makes the verdict about a victim of ours: one that is there
 * ahead of our act is forged, and tells of no deadlock that has been ended.
 */
static void
a_verdict_that_is_not_ours(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 70);

	(void) state;
	publish();
	find(true);
	edges_ours(out.scan);
	waits_dir_has(2, "probe-0000000005", "verdict-0000000005", NULL);
	assert_int_equal(out.nverdicts, 0);
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();

	/* the same of a probe of somebody else */
	end(NULL);
	begin(NULL);
	publish();
	hear(probe(&ours, &theirs));
	edges_ours(out.scan);
	waits_dir_has(2, "probe-0000000003", "verdict-0000000003", NULL);
	assert_int_equal(out.nverdicts, 0);
	expect_nothing();
}

static void
others_ask(void **state)
{
	(void) state;
	check_others_ask();
}

/* Their victim only requeues in tier 1: that is nobody's business. */
static void
others_requeue(void **state)
{
	(void) state;
	all_requeue = true;
	check_others_ask();
}

static void
our_victim_requeues(void **state)
{
	WaitEdge	ours;
	WaitEdge	theirs;

	(void) state;
	all_requeue = true;
	ours = edge(X, Y, 71);
	theirs = edge(Y_OTHER, X_OTHER, 92);
	publish();
	hear(probe(&ours, &theirs));
	others_confirm(3);
	expect_nothing();
	edges_ours(out.scan);
	expect_act(6, X);
	done(6, REQUEST_OK);
	assert_int_equal(out.nverdicts, 1);
	assert_true(out.verdicts[0].ours);
	assert_true(out.verdicts[0].requeues);
	assert_int_equal(detector.counts.requeues, 1);
	assert_int_equal(detector.counts.victims, 0);

	/* that wait is over, and the next one is another edge */
	edges_ours(0);
	expect_nothing();
	now += TIMEOUT;
	ours.wait.wait.since = 72;
	edges(1, &ours, 0);
	expect(0, REQUEST_SET, X);
}

static void
others_ask_for_what_is_not_there(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	(void) state;
	publish();
	ours.wait.chain++;
	hear(probe(&theirs, &ours));
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000000-");
	expect_nothing();
	assert_int_equal(detector.counts.refuted, 1);

	/* whatever comes of it, we are no part of it */
	created(6, "answer-0000000003-0000000000000000-0000000004");
	waits_dir_has(3, "answer-0000000003-0000000000000000-0000000004",
			 "probe-0000000003", "verdict-0000000003");
	assert_int_equal(out.nverdicts, 0);
	expect(7, REQUEST_DELETE,
		   ROOM "/answer-0000000003-0000000000000000-0000000004");
	expect_nothing();
}

static void
others_ask_others(void **state)
{
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);
	WaitEdge	third = edge("/z/a/b", "/z/c/d", 3);

	(void) state;
	publish();
	hear(probe(&theirs, &third));
	assert_int_equal(out.scan, 0);
}

static void
what_is_no_probe_is_ignored(void **state)
{
	(void) state;
	publish();
	hear("no probe at all");
	assert_int_equal(out.scan, 0);
}

/* They ask, and it is for us to act; whoever stands in between is checked. */
static void
others_ask_and_we_act(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 70);
	const DetectorOp *op;
	bool		between = false;

	(void) state;
	publish();
	hear(probe(&ours, &theirs));
	others_confirm(3);
	expect_nothing();
	edges_ours(out.scan);
	op = expect_act(6, X);
	for (int i = 0; i < op->nchecks; i++)
		between |= strcmp(op->checks[i].path, "/z/y/between") == 0;
	assert_true(between);
}

/*
 * A probe is forgotten while it is being read, and read again: the answer to
 * the first get does not begin what one to the second would end.
 */
static void
others_ask_and_are_forgotten(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 70);

	(void) state;
	publish();
	waits_dir_has(1, "probe-0000000003", NULL, NULL);
	expect(4, REQUEST_GET, ROOM "/probe-0000000003");
	edges(0, NULL, 0);
	expect(0, REQUEST_SET, X);
	done(0, REQUEST_OK);
	now += 2 * TIMEOUT + 1000000;
	event(DETECTOR_TICK);
	event(DETECTOR_TICK);
	expect_nothing();

	edges_ours(0);
	expect(0, REQUEST_SET, X);
	waits_dir_has(1, "probe-0000000003", NULL, NULL);
	expect(5, REQUEST_GET, ROOM "/probe-0000000003");
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	done(2, REQUEST_NO_NODE);
	data(4, probe(&ours, &theirs), 0, false);
	others_confirm(3);
	assert_int_equal(out.scan, 0);
	data(5, probe(&ours, &theirs), 0, false);
	assert_int_not_equal(out.scan, 0);
	edges_ours(out.scan);
	expect_act(6, X);
	done(6, REQUEST_OK);
	assert_int_equal(out.nverdicts, 1);
}

/* What waits for the same in several notes ends in all of them. */
static void
all_notes_of_the_victim(void **state)
{
	WaitEdge	both[2] = {edge(X, Y, 71), edge(X_OTHER, Y, 71)};
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 70);
	const DetectorOp *op;

	(void) state;
	publish();
	edges(2, both, 0);
	expect(0, REQUEST_SET, X_OTHER);
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	done(2, REQUEST_NO_NODE);
	hear(probe(&both[0], &theirs));
	others_confirm(3);
	edges(2, both, out.scan);
	op = expect_act(6, X);
	assert_int_equal(op->nothers, 1);
	assert_string_equal(op->others[0].path, X_OTHER);
	assert_int_equal(op->others[0].nwaits, 0);
}

static void
the_older_probe_counts(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	(void) state;
	publish();
	find(false);
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000005-0000000000000002-");
	created(6, "answer-0000000005-0000000000000002-0000000006");
	waits_dir_has(2, "probe-0000000003", "probe-0000000005", NULL);
	expect(4, REQUEST_GET, ROOM "/probe-0000000003");
	data(4, probe(&theirs, &ours), 0, false);
	expect(7, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect(8, REQUEST_DELETE,
		   ROOM "/answer-0000000005-0000000000000002-0000000006");
	expect_nothing();
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000002-");
}

/* But not if it is over. */
static void
an_older_probe_that_is_over(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);

	(void) state;
	publish();
	hear(probe(&theirs, &ours));
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000003-0000000000000002-");
	created(6, "answer-0000000003-0000000000000002-0000000004");
	waits_dir_has(2, "probe-0000000003", "verdict-0000000003", NULL);
	expect(7, REQUEST_DELETE,
		   ROOM "/answer-0000000003-0000000000000002-0000000004");
	find(false);
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000005-0000000000000002-");
	expect_nothing();
}

/* Nobody asks twice about a deadlock. */
static void
one_probe_for_a_deadlock(void **state)
{
	(void) state;
	publish();
	find(false);
	edges_ours(out.scan);
	expect(6, REQUEST_CREATE, ROOM "/answer-0000000005-0000000000000002-");
	now += TIMEOUT;
	event(DETECTOR_TICK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	read_deadlock(false);
	expect_nothing();
	assert_int_equal(detector.counts.probes, 1);
}

static void
a_lost_connection(void **state)
{
	(void) state;
	publish();
	event(DETECTOR_SUSPENDED);
	event(DETECTOR_RESUMED);
	expect(2, REQUEST_CHILDREN, "/z/y");
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	done(2, REQUEST_NO_NODE);
	children(1, 0, NULL, NULL, NULL);
	event(DETECTOR_SUSPENDED);
	assert_true(out.wake_at == INT64_MAX);
	now += 3 * TIMEOUT;
	event(DETECTOR_TICK);
	edges_ours(0);
	expect_nothing();

	/* at once, whenever the last look was */
	event(DETECTOR_RESUMED);
	expect(2, REQUEST_CHILDREN, "/z/y");
	assert_true(expect(1, REQUEST_LIST, ROOM)->request.barrier);
	expect_nothing();

	/* the end of the session: all is written anew */
	event(DETECTOR_EXPIRED);
	expect_nothing();
	event(DETECTOR_RESUMED);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
}

/* A probe of ours that is there still, whatever has become of it meanwhile. */
static void
an_old_probe_is_cleaned_up(void **state)
{
	(void) state;
	detector_free(&detector);
	detector_init(&detector, TIMEOUT, true);
	step((DetectorInput) {.event = DETECTOR_ADOPT,.path = X});
	event(DETECTOR_RESUMED);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 1, "probe-0000000005", NULL, NULL);
	expect(2, REQUEST_GET, ROOM "/probe-0000000005");

	/* no answer, for longer than a probe lives */
	now += 10 * TIMEOUT + INT64_C(1000000);
	event(DETECTOR_TICK);
	done(2, REQUEST_UNKNOWN);
	waits_dir_has(1, "probe-0000000005", NULL, NULL);
	expect(2, REQUEST_GET, ROOM "/probe-0000000005");
	now += 10 * TIMEOUT + INT64_C(1000000);
	event(DETECTOR_TICK);
	data(2, "", 0, true);
	expect(3, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();
}

static void
a_new_worker_cleans_up(void **state)
{
	(void) state;
	detector_free(&detector);
	detector_init(&detector, TIMEOUT, true);
	step((DetectorInput) {.event = DETECTOR_ADOPT,.path = X});
	expect_nothing();
	event(DETECTOR_RESUMED);
	assert_int_equal(expect(0, REQUEST_SET, X)->nwaits, 0);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 3, "answer-0000000003-0000000000000002-0000000004",
			 "probe-0000000005", "something else");
	expect(2, REQUEST_GET,
		   ROOM "/answer-0000000003-0000000000000002-0000000004");
	expect(3, REQUEST_GET, ROOM "/probe-0000000005");
	expect_nothing();
	data(2, "", 0, true);
	expect(7, REQUEST_DELETE,
		   ROOM "/answer-0000000003-0000000000000002-0000000004");
	data(3, "", 0, true);
	expect(8, REQUEST_DELETE, ROOM "/probe-0000000005");
	expect_nothing();
}

/*
 * A directory in which it may have left something is listed for nothing else.
 */
static void
a_new_worker_sweeps_a_room(void **state)
{
	(void) state;
	detector_free(&detector);
	detector_init(&detector, TIMEOUT, true);
	step((DetectorInput) {.event = DETECTOR_SWEEP,.path = ROOM});
	expect_nothing();
	assert_false(detector_is_idle(&detector));
	event(DETECTOR_RESUMED);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	children(1, 2, "verdict-0000000005", "verdict-0000000006", NULL);
	expect(2, REQUEST_GET, ROOM "/verdict-0000000005");
	expect(3, REQUEST_GET, ROOM "/verdict-0000000006");
	expect_nothing();
	data(2, "", 0, true);
	expect(4, REQUEST_DELETE, ROOM "/verdict-0000000005");
	expect_nothing();
	data(3, "", 0, false);
	expect_nothing();
	assert_false(detector_is_idle(&detector));
	done(4, REQUEST_OK);
	expect_nothing();
	assert_true(detector_is_idle(&detector));
}

#define SESSION		"5f.a:shop_a"
#define S_NODE		"session-5f.a%3Ashop_a-0000000000000001-0000000000000001"
#define S_OTHER		"session-remote%3A5f.a%3Ashop_a-0000000000000002-0000000000000001"

static void
wanted(int n, const WaitEdge *list, bool dir)
{
	static const char *const dirs[] = {ROOM};

	step((DetectorInput) {.event = DETECTOR_EDGES,.edges = list,.nedges = n,
		.dirs = dirs,.ndirs = dir ? 1 : 0});
}

static void
sessions_are_named(void **state)
{
	const char *dir;

	(void) state;
	wanted(0, NULL, true);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	assert_null(detector_named(&detector, 0, &dir));
	children(1, 2, S_OTHER, S_NODE, NULL);
	expect_nothing();
	assert_true(out.named);
	assert_string_equal(detector_named(&detector, 0, &dir), SESSION);
	assert_string_equal(dir, ROOM);
	assert_null(detector_named(&detector, 1, &dir));

	/* news only, and only while it is wanted */
	waits_dir_has(1, S_OTHER, NULL, NULL);
	assert_false(out.named);
	waits_dir_has(0, NULL, NULL, NULL);
	assert_true(out.named);
	wanted(0, NULL, false);
	step((DetectorInput) {.event = DETECTOR_DIR_CHANGED,
		.answer.serial = serials[1]});
	expect_nothing();
	assert_true(detector_is_idle(&detector));
}

/* They are news, too, when the directory is wanted after it was listed. */
static void
sessions_were_named_before(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);

	(void) state;
	edges(1, &ours, 0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 1, S_OTHER, NULL, NULL);
	assert_false(out.named);
	wanted(1, &ours, true);
	assert_true(out.named);
	wanted(1, &ours, true);
	assert_false(out.named);
}

/* Else it would be named, and told of, as long as it waits. */
static void
what_we_tell_names_nobody(void **state)
{
	WaitEdge	ours = edge(ROOM "/" S_NODE, Y, 71);
	const char *dir;

	(void) state;
	wanted(1, &ours, true);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 1, S_OTHER, NULL, NULL);
	assert_true(out.named);
	expect(0, REQUEST_SET, ROOM "/" S_NODE);
	waits_dir_has(1, S_NODE, NULL, NULL);
	assert_true(out.named);
	assert_null(detector_named(&detector, 0, &dir));

	/* not even while it is being deleted */
	done(0, REQUEST_OK);
	wanted(0, NULL, true);
	expect(2, REQUEST_DELETE, ROOM "/" S_NODE);
	waits_dir_has(1, S_NODE, NULL, NULL);
	assert_false(out.named);
}

static void
an_edge_from_a_session(void **state)
{
	WaitEdge	ours = edge(ROOM "/" S_NODE, Y, 71);
	const DetectorOp *op;

	(void) state;
	edges(1, &ours, 0);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	done(1, REQUEST_NO_NODE);
	expect(2, REQUEST_MKDIR, ROOM);
	expect_nothing();
	done(2, REQUEST_OK);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	children(1, 0, NULL, NULL, NULL);
	op = expect(0, REQUEST_SET, ROOM "/" S_NODE);
	assert_int_equal(op->nwaits, 1);
	expect_nothing();

	/* the directory goes meanwhile: it is made again, and the znode in it */
	done(0, REQUEST_NO_NODE);
	expect(1, REQUEST_LIST, ROOM);
	expect_nothing();
	children(1, 0, NULL, NULL, NULL);
	expect(0, REQUEST_SET, ROOM "/" S_NODE);
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	done(2, REQUEST_NO_NODE);
	expect_nothing();

	/* it is over */
	edges(0, NULL, 0);
	expect(3, REQUEST_DELETE, ROOM "/" S_NODE);
	expect_nothing();
	done(3, REQUEST_OK);
	assert_true(detector_is_idle(&detector));
}

static void
a_session_is_only_named(void **state)
{
	WaitEdge	ours = edge(ROOM "/" S_NODE, SESSION, 71);

	(void) state;
	ours.wait.kind = NOTE_WAIT_SESSION;
	edges(1, &ours, 0);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 0, NULL, NULL, NULL);
	expect(0, REQUEST_SET, ROOM "/" S_NODE);
	done(0, REQUEST_OK);
	expect_nothing();
}

/* With the session its znodes go; other names are handed in then. */
static void
sessions_go_with_the_session(void **state)
{
	WaitEdge	ours = edge(ROOM "/" S_NODE, Y, 71);

	(void) state;
	edges(1, &ours, 0);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 0, NULL, NULL, NULL);
	expect(0, REQUEST_SET, ROOM "/" S_NODE);
	event(DETECTOR_EXPIRED);
	event(DETECTOR_RESUMED);
	expect_nothing();
	assert_true(detector_is_idle(&detector));
}

/* The victim's edge is from a session: its znode is what the act changes. */
static void
our_session_is_the_victim(void **state)
{
	WaitEdge	ours = edge(ROOM "/" S_NODE, Y, 72);
	WaitEdge	theirs = edge("/z/y/_c_00000004-0000-0000-0000-000000000000-__WRIT__0000000001",
							  SESSION, 71);
	const DetectorOp *op;

	(void) state;
	theirs.wait.kind = NOTE_WAIT_SESSION;
	edges(1, &ours, 0);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 0, NULL, NULL, NULL);
	expect(0, REQUEST_SET, ROOM "/" S_NODE);
	done(0, REQUEST_OK);
	expect(2, REQUEST_CHILDREN, "/z/y");
	done(2, REQUEST_NO_NODE);

	/* others have found it */
	waits_dir_has(2, "probe-0000000001", S_NODE, NULL);
	expect(3, REQUEST_GET, ROOM "/probe-0000000001");
	expect_nothing();
	data(3, probe(&ours, &theirs), 0, false);
	waits_dir_has(3, "probe-0000000001", S_NODE,
			 "answer-0000000001-0000000000000002-0000000002");
	expect_nothing();
	assert_true(out.scan != 0);
	edges(1, &ours, out.scan);
	op = expect_act(4, ROOM "/" S_NODE);
	assert_int_equal(op->nwaits, 0);
	assert_int_equal(op->request.version, 4);
	assert_int_equal(op->nchecks, 4);	/* the probe, y twice, between */
	done(4, REQUEST_OK);
	assert_int_equal(out.nverdicts, 1);
	assert_true(out.verdicts[0].ours);
	edges(0, NULL, 0);
	expect(5, REQUEST_DELETE, ROOM "/" S_NODE);
}

static void
a_new_worker_sweeps_sessions(void **state)
{
	(void) state;
	detector_free(&detector);
	detector_init(&detector, TIMEOUT, true);
	event(DETECTOR_RESUMED);
	wanted(0, NULL, true);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 2, S_OTHER, S_NODE, NULL);
	expect(2, REQUEST_GET, ROOM "/" S_OTHER);
	expect(3, REQUEST_GET, ROOM "/" S_NODE);
	expect_nothing();
	data(2, "", 0, false);
	expect_nothing();
	data(3, "", 0, true);
	expect(4, REQUEST_DELETE, ROOM "/" S_NODE);
	expect_nothing();
}

/*
 * What many edges cost: comparisons of paths, which are counted, and time.
 */

static unsigned long comparisons;

/* Instead of the library's. */
int
strcmp(const char *a, const char *b)
{
	comparisons++;
	for (; *a != '\0' && *a == *b; a++)
		b++;
	return (unsigned char) *a - (unsigned char) *b;
}

/*
 * Answer all operations of the last step, those that come of that, and so on.
 */
static void
answer_all(void)
{
	static struct
	{
		uint32_t	serial;
		RequestKind kind;
	}			queue[10000];
	int			n = 0;

	for (int first = -1; first < n; first++)
	{
		if (first >= 0)
			step((DetectorInput) {.event = DETECTOR_DONE,
				.answer.serial = queue[first].serial,
				.answer.result = queue[first].kind == REQUEST_CHILDREN ?
				REQUEST_NO_NODE : REQUEST_OK});
		for (int i = 0; i < out.nops; i++)
		{
			assert_true(n < (int) (sizeof(queue) / sizeof(queue[0])));
			queue[n].serial = out.ops[i].request.serial;
			queue[n++].kind = out.ops[i].request.kind;
		}
	}
}

/*
 * One session holds so many locks, and waits for one more: from the first scan
 * until nothing of it is published any more.  Returns the time, in us.
 */
static double
tell_many(int n)
{
	WaitEdge   *list = calloc(n, sizeof(WaitEdge));
	struct timespec begun;
	struct timespec ended;

	for (int i = 0; i < n; i++)
	{
		char		path[NOTE_VERTEX_SIZE];

		sprintf(path, "/z/held.%d/_c_00000001-0000-0000-0000-000000000000-__WRIT__0000000001", i);
		list[i] = edge(path, Y, 71);
		list[i].wait.hold.since = i;
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
	for (int scan = 0; scan < 3; scan++)
	{
		edges(n, list, 0);
		answer_all();
		now += TIMEOUT;
		event(DETECTOR_TICK);
		answer_all();
	}
	assert_true(detector.counts.published == n);
	edges(0, NULL, 0);
	answer_all();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
	assert_true(detector_is_idle(&detector));
	free(list);
	return (ended.tv_sec - begun.tv_sec) * 1e6 +
		(ended.tv_nsec - begun.tv_nsec) / 1e3;
}

static void
many_edges_cost_as_much_each(void **state)
{
	static const int many[] = {100, 1000};
	double		compared[2];
	double		took[2];

	for (int i = 0; i < 2; i++)
	{
		/* the first time is for the caches */
		for (int round = 0; round < 2; round++)
		{
			end(state);
			begin(state);
			comparisons = 0;
			took[i] = tell_many(many[i]) / many[i];
			compared[i] = (double) comparisons / many[i];
		}
		printf("%d edges: %.1f comparisons and %.1f us for each\n", many[i],
			   compared[i], took[i]);
	}
	assert_true(compared[1] <= 1.3 * compared[0]);
	assert_true(took[1] < 5 * took[0]);
}

#define MANY	300

static bool was_read[MANY];		/* by the numbers at the end of paths */
static uint32_t unanswered[MANY];
static int	nunanswered;

/*
 * Answer all operations, but note reads of this kind, which searches have
 * sent.
 */
static void
answer_all_but(RequestKind kind)
{
	uint32_t	others[MANY];
	int			nothers = 0;

	for (int i = 0; i < out.nops; i++)
	{
		const char *path = out.ops[i].request.path;

		if (out.ops[i].request.kind != kind)
			others[nothers++] = out.ops[i].request.serial;
		else
		{
			was_read[atoi(path + strlen(path) - 3)] = true;
			unanswered[nunanswered++] = out.ops[i].request.serial;
		}
	}
	for (int i = 0; i < nothers; i++)
	{
		step((DetectorInput) {.event = DETECTOR_DONE,.answer.serial = others[i]});
		answer_all_but(kind);
	}
}

/* Time passes, and then what has been noted is answered. */
static void
answer_late(RequestKind kind)
{
	uint32_t	reads[MANY];
	int			n = nunanswered;

	memcpy(reads, unanswered, sizeof(reads));
	nunanswered = 0;
	now += TIMEOUT;
	for (int i = 0; i < n; i++)
	{
		step((DetectorInput) {.event = DETECTOR_DONE,.answer.serial = reads[i],
			.answer.result = REQUEST_NO_NODE});
		answer_all_but(kind);
	}
}

/*
 * More edges than one search begins with, and a server that takes so long that
 * the first are due again: each has its search.
 */
static void
each_edge_has_its_search(void **state)
{
	WaitEdge	list[40];

	(void) state;
	memset(was_read, 0, sizeof(was_read));
	for (int i = 0; i < 40; i++)
	{
		list[i] = edge("", "", 100 + i);
		sprintf(list[i].from, "/z/held/%d", i);
		sprintf(list[i].wait.to, "/z/%03d/wanted", i);
	}
	edges(40, list, 0);
	answer_all_but(REQUEST_CHILDREN);
	for (int round = 0; round < 10; round++)
		answer_late(REQUEST_CHILDREN);
	for (int i = 0; i < 40; i++)
		assert_true(was_read[i]);
}

/*
 * More readers ahead than one search reads notes of: others have theirs read.
 */
static void
each_note_is_read(void **state)
{
	static char names[MANY][ZNODE_CONTENDER_SIZE];
	const char *list[MANY + 1];
	WaitEdge	ours = edge(X, "/z/y/_c_00000003-0000-0000-0000-000000000000-__WRIT__0000000400", 71);

	(void) state;
	memset(was_read, 0, sizeof(was_read));
	for (int i = 0; i < MANY; i++)
	{
		sprintf(names[i], "_c_00000004-0000-0000-0000-000000000000-__READ__%010d", i);
		list[i] = names[i];
	}
	list[MANY] = strrchr(ours.wait.to, '/') + 1;
	edges(1, &ours, 0);
	expect(0, REQUEST_SET, X);
	expect(1, REQUEST_LIST, ROOM);
	children(1, 0, NULL, NULL, NULL);
	done(0, REQUEST_OK);
	for (int look = 0; look < 3; look++)
	{
		expect(2, REQUEST_CHILDREN, "/z/y");
		step((DetectorInput) {.event = DETECTOR_DONE,.answer.serial = serials[2],
			.answer.children = list,.answer.nchildren = MANY + 1});
		assert_int_equal(out.nops, GRAPH_MAX_READS - 1);
		answer_all_but(REQUEST_GET);
		for (; nunanswered > 0; nunanswered--)
			step((DetectorInput) {.event = DETECTOR_DONE,
				.answer.serial = unanswered[nunanswered - 1],
				.answer.result = REQUEST_NO_NODE});
		now += TIMEOUT;
		event(DETECTOR_TICK);
	}
	for (int i = 0; i < MANY; i++)
		assert_true(was_read[i]);
}

/* A probe is read as it was written; a name for what it is. */
static void
names_and_forms(void **state)
{
	WaitEdge	ours = edge(X, Y, 71);
	WaitEdge	theirs = edge(Y_OTHER, X_OTHER, 92);
	const char *text = probe(&ours, &theirs);
	WaitDeadlock deadlock;
	ProbeName	name;

	(void) state;
	assert_true(probe_parse(text, (int) strlen(text), &deadlock));
	assert_int_equal(deadlock.nmembers, 2);
	assert_true(waits_same_edge(&deadlock.members[0].edge, &ours));
	assert_true(waits_same_edge(&deadlock.members[1].edge, &theirs));
	assert_int_equal(deadlock.members[1].version, 4);
	assert_string_equal(deadlock.members[0].between, "/z/y/between");
	assert_string_equal(deadlock.members[1].cluster_name, "");
	waits_free_deadlock(&deadlock);
	for (int len = 0; len < (int) strlen(text); len++)
		if (probe_parse(text, len, &deadlock))
		{
			/* the first line alone names the second */
			fail_msg("%d bytes are taken for a probe", len);
		}

	probe_parse_name("probe-0000000042", &name);
	assert_int_equal(name.kind, PROBE_QUESTION);
	assert_int_equal(name.number, 42);
	probe_parse_name("verdict-0000000042", &name);
	assert_int_equal(name.kind, PROBE_VERDICT);
	probe_parse_name("answer-0000000042-800000000000000f-0000000001", &name);
	assert_int_equal(name.kind, PROBE_ANSWER);
	assert_true(name.confirmed == 0x800000000000000F);
	probe_parse_name("answer-0000000042-800000000000000g-0000000001", &name);
	assert_int_equal(name.kind, PROBE_NOTHING);
	probe_parse_name("probe-42", &name);
	assert_int_equal(name.kind, PROBE_NOTHING);
	probe_parse_name("probe-0000000042x", &name);
	assert_int_equal(name.kind, PROBE_NOTHING);
}

/*
 * The probe of a deadlock with these paths, which other clients have chosen.
 */
static void
reads_paths(const char *from, const char *between)
{
	WaitMember	member = {.edge = edge(X, X, 71)};
	WaitDeadlock written = {.nmembers = 1,.members = &member};
	WaitDeadlock read;
	char	   *text;

	strcpy(member.edge.from, from);
	strcpy(member.between, between);
	text = probe_write(&written);
	if (!probe_parse(text, (int) strlen(text), &read))
		fail_msg("no probe: %s", text);
	assert_string_equal(read.members[0].edge.from, from);
	assert_string_equal(read.members[0].between, between);
	waits_free_deadlock(&read);
	free(text);
}

/* A path in a probe is read as it was written: each byte, at any length. */
static void
paths_of_any_bytes(void **state)
{
	char		path[NOTE_VERTEX_SIZE];

	(void) state;
	for (int byte = 1; byte < 256; byte++)
	{
		sprintf(path, "/z/y/a%cb", byte);
		reads_paths(path, X);
		reads_paths(X, path);
		memset(path + 5, byte, sizeof(path) - 5);
		path[sizeof(path) - 1] = '\0';
		reads_paths(path, path);
	}
}

#define LINE(test)	cmocka_unit_test_setup_teardown(test, begin, end)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LINE(an_edge_is_published_and_taken_back),
		LINE(a_note_that_cannot_be_written),
		LINE(many_edges_take_turns),
		LINE(the_room_is_made),
		LINE(an_edge_is_told_with_its_mark),
		LINE(the_room_goes_when_nobody_needs_it),
		LINE(the_room_stays_that_others_use),
		LINE(the_room_is_needed_while_it_goes),
		LINE(one_search_in_each_timeout),
		LINE(our_victim),
		LINE(an_act_that_fails),
		LINE(our_edge_ends_before_the_act),
		LINE(an_act_whose_answer_is_lost),
		LINE(an_act_that_may_have_been_carried_out),
		LINE(our_note_is_being_written),
		LINE(our_note_gets_another_wait),
		LINE(our_note_loses_a_wait),
		LINE(our_note_is_written_without_the_victim),
		LINE(our_victim_waits_for_any),
		LINE(our_edge_is_denied),
		LINE(others_deny_theirs),
		LINE(a_probe_has_a_deadline),
		LINE(a_probe_is_created_late),
		LINE(a_verdict_that_is_not_ours),
		LINE(others_ask),
		LINE(others_ask_twice),
		LINE(others_ask_about_a_full_note),
		LINE(others_ask_before_all_is_told),
		LINE(others_ask_while_it_is_being_told),
		LINE(others_requeue),
		LINE(our_victim_requeues),
		LINE(others_ask_for_what_is_not_there),
		LINE(others_ask_others),
		LINE(what_is_no_probe_is_ignored),
		LINE(others_ask_and_we_act),
		LINE(others_ask_and_are_forgotten),
		LINE(all_notes_of_the_victim),
		LINE(the_older_probe_counts),
		LINE(an_older_probe_that_is_over),
		LINE(one_probe_for_a_deadlock),
		LINE(a_lost_connection),
		LINE(a_new_worker_cleans_up),
		LINE(a_new_worker_sweeps_a_room),
		LINE(an_old_probe_is_cleaned_up),
		LINE(sessions_are_named),
		LINE(sessions_were_named_before),
		LINE(what_we_tell_names_nobody),
		LINE(an_edge_from_a_session),
		LINE(a_session_is_only_named),
		LINE(sessions_go_with_the_session),
		LINE(our_session_is_the_victim),
		LINE(a_new_worker_sweeps_sessions),
		LINE(many_edges_cost_as_much_each),
		LINE(each_edge_has_its_search),
		LINE(each_note_is_read),
		LINE(names_and_forms),
		LINE(paths_of_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
