/*-------------------------------------------------------------------------
 *
 * test_permit.c
 *		Unit tests of the permit.
 *
 * Each test is a script: what happens, and what the permit sends, reports and
 * becomes.  An answer is that of the oldest request of its kind and directory
 * that is out.  The scripts follow the table in permit.c's header; what its two
 * recipes do by themselves is test_recipe's matter, but for what a recipe does
 * for permits only.
 *
 * test_permit_model.c plays permits against a model of ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_permit.c
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/lock/permit.h"
#include "model.h"

#define TOKEN		INT64_C(0x100000002a)
#define PERMITS		2

#define UUID_TEXT	"_c_0123456f-89ab-4def-8edc-ba9876543210"
#define OTHER_TEXT	"_c_11111111-1111-4111-8111-11111111111"

#define MAX_OUT		64
#define MAX_WORDS	8
#define MAX_STEPS	40

static const uint8_t our_uuid[ZNODE_UUID_BYTES] = {
	0x01, 0x23, 0x45, 0x6f, 0x89, 0xab, 0x4d, 0xef,
	0x8e, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10
};

/*
 * One thing that happens.  "in" is an event of the worker, "want" or "resume
 * <how>", or the answer to "<request> <directory>": ok, unknown, none (no
 * node) or refused; the children, of which "o" and a digit are another's,
 * "us" ours and "x" an orphan of ours; or "=" and the agreed number.
 */
typedef struct Step
{
	const char *in;
	const char *ops;
	PermitState state;
	unsigned	report;
} Step;

typedef struct Script
{
	const char *title;
	Step		steps[MAX_STEPS];
} Script;

#define LOOK		"sync. children/leases get/leases"
#define QUEUE		"create/locks children/leases children/locks"
#define TAKE		"create/leases children/leases get/leases"
#define LEAVE		"delete/leases delete/locks"

#define GRANTED		(RECIPE_REPORT_GRANTED | RECIPE_REPORT_CREATED)
#define FAILED		RECIPE_REPORT_FAILED
#define QUEUED		RECIPE_REPORT_QUEUED
#define GONE		RECIPE_REPORT_GONE
#define LOST		RECIPE_REPORT_LOST
#define LEFT		RECIPE_REPORT_LEFT
#define MIXED		(FAILED | RECIPE_REPORT_MIXED)

/* The way to each state. */
#define TO_READING \
	{"want", LOOK, PERMIT_READING, 0}
#define TO_QUEUEING \
	TO_READING, \
	{"sync. ok", "", PERMIT_READING, 0}, \
	{"children/leases ok", "", PERMIT_READING, 0}, \
	{"get/leases =2", QUEUE, PERMIT_QUEUEING, 0}
#define TO_CREATED_LOCK \
	TO_QUEUEING, \
	{"create/locks us", "", PERMIT_QUEUEING, 0}, \
	{"children/leases ok", "", PERMIT_QUEUEING, 0}
#define TO_READING_AGAIN \
	TO_CREATED_LOCK, \
	{"children/locks us", "stat/locks " LOOK, PERMIT_READING, 0}, \
	{"stat/locks ok", "", PERMIT_READING, 0}
#define TO_TAKING \
	TO_READING_AGAIN, \
	{"sync. ok", "", PERMIT_READING, 0}, \
	{"children/leases o3", "", PERMIT_READING, 0}, \
	{"get/leases =2", TAKE, PERMIT_TAKING, 0}
#define TO_CREATED \
	TO_TAKING, \
	{"create/leases us", "", PERMIT_TAKING, 0}
#define TO_WAITING \
	TO_CREATED, \
	{"children/leases o3 us o4", "list/leases", PERMIT_TAKING, 0}, \
	{"get/leases =2", "", PERMIT_TAKING, QUEUED}
#define TO_OWNER \
	TO_CREATED, \
	{"children/leases o3 us", "stat/leases", PERMIT_TAKING, 0}, \
	{"get/leases =2", "delete/locks", PERMIT_OWNER, GRANTED}, \
	{"stat/leases ok", "", PERMIT_OWNER, RECIPE_REPORT_TOKEN}

static const Script scripts[] = {
	{"from want to gone", {
		TO_OWNER,
		{"delete/locks ok", "", PERMIT_OWNER, 0},
		{"release", "delete/leases", PERMIT_LEAVING, 0},
		{"delete/leases ok", "", PERMIT_NONE, GONE}}},
	{"the permit is released before the lock is", {
		TO_OWNER,
		{"release", "delete/leases", PERMIT_LEAVING, 0},
		{"delete/locks ok", "", PERMIT_LEAVING, 0},
		{"delete/leases none", "", PERMIT_NONE, GONE}}},
	{"the token comes after the grant", {
		TO_CREATED,
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"stat/leases ok", "", PERMIT_TAKING, 0},
		{"get/leases =2", "delete/locks", PERMIT_OWNER,
		GRANTED | RECIPE_REPORT_TOKEN}}},

	/* the wait for a permit */
	{"a permit gets free", {
		TO_WAITING,
		{"list/leases o3 us o4", "", PERMIT_TAKING, 0},
		{"touched list/leases", "list/leases", PERMIT_TAKING, 0},
		{"list/leases unknown", "list/leases", PERMIT_TAKING, 0},
		{"look", "list/leases", PERMIT_TAKING, 0},
		{"list/leases us", "", PERMIT_TAKING, 0},
		{"list/leases us o9 o4", "unwatch/leases stat/leases delete/locks",
		PERMIT_OWNER, GRANTED}}},
	{"released while it waits", {
		TO_WAITING,
		{"release", "unwatch/leases " LEAVE, PERMIT_LEAVING, 0},
		{"delete/leases unknown", "delete/leases", PERMIT_LEAVING, 0},
		{"delete/leases ok", "", PERMIT_LEAVING, 0},
		{"delete/locks ok", "", PERMIT_NONE, GONE}}},
	{"our node is deleted while it waits", {
		TO_WAITING,
		{"list/leases o3 o4", "unwatch/leases " TAKE, PERMIT_TAKING, 0}}},
	{"the directory is, too", {
		TO_WAITING,
		{"list/leases ok", "unwatch/leases " TAKE, PERMIT_TAKING, 0},
		{"create/leases none", "mkdirs/leases " TAKE, PERMIT_TAKING, 0}}},
	{"the watch of a directory that is deleted", {
		TO_WAITING,
		{"list/leases o3 us o4", "", PERMIT_TAKING, 0},
		{"deleted list/leases", "list/leases", PERMIT_TAKING, 0},
		{"list/leases none", "unwatch/leases mkdirs/leases " TAKE,
		PERMIT_TAKING, 0}}},
	{"to list the permits is refused", {
		TO_WAITING,
		{"list/leases refused", "unwatch/leases " LEAVE, PERMIT_LEAVING,
		FAILED}}},
	{"orphans are deleted, and do not count", {
		TO_CREATED,
		{"children/leases x o3 us", "orphan/leases stat/leases", PERMIT_TAKING,
		0},
		{"get/leases =2", "delete/locks", PERMIT_OWNER, GRANTED}}},

	/* the create of the place */
	{"the create is unknown: its search finds it", {
		TO_TAKING,
		{"create/leases unknown", "search/leases get/leases", PERMIT_TAKING, 0},
		{"children/leases unknown", "", PERMIT_TAKING, 0},
		{"get/leases unknown", "", PERMIT_TAKING, 0},
		{"search/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"get/leases =2", "delete/locks", PERMIT_OWNER, GRANTED}}},
	{"the same: it does not", {
		TO_TAKING,
		{"create/leases unknown", "search/leases get/leases", PERMIT_TAKING, 0},
		{"search/leases unknown", "search/leases get/leases", PERMIT_TAKING, 0},
		{"search/leases o3", TAKE, PERMIT_TAKING, 0}}},
	{"released before the create is answered", {
		TO_TAKING,
		{"release", "", PERMIT_LEAVING, 0},
		{"create/leases us", LEAVE, PERMIT_LEAVING, 0},
		{"children/leases us", "", PERMIT_LEAVING, 0},
		{"get/leases =2", "", PERMIT_LEAVING, 0},
		{"delete/leases ok", "", PERMIT_LEAVING, 0},
		{"delete/locks ok", "", PERMIT_NONE, GONE}}},
	{"the same, and it is not done", {
		TO_TAKING,
		{"release", "", PERMIT_LEAVING, 0},
		{"create/leases none", "delete/locks", PERMIT_LEAVING, 0}}},
	{"the same, and nobody knows", {
		TO_TAKING,
		{"release", "", PERMIT_LEAVING, 0},
		{"create/leases unknown", "search/leases", PERMIT_LEAVING, 0},
		{"release", "", PERMIT_LEAVING, 0},
		{"search/leases us", LEAVE, PERMIT_LEAVING, 0}}},
	{"the create is refused", {
		TO_TAKING,
		{"create/leases refused", "delete/locks", PERMIT_LEAVING, FAILED}}},
	{"its search is refused", {
		TO_TAKING,
		{"create/leases unknown", "search/leases get/leases", PERMIT_TAKING, 0},
		{"search/leases refused", "delete/locks", PERMIT_LEAVING,
		FAILED | LEFT}}},
	{"the directory is collected ahead of the create", {
		TO_TAKING,
		{"create/leases none", "mkdirs/leases " TAKE, PERMIT_TAKING, 0},
		{"children/leases none", "", PERMIT_TAKING, 0},
		{"get/leases none", "", PERMIT_TAKING, 0},
		{"mkdirs/leases ok", "", PERMIT_TAKING, 0},
		{"create/leases us", "", PERMIT_TAKING, 0},
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"get/leases =2", "delete/locks", PERMIT_OWNER, GRANTED}}},

	/* the agreed number */
	{"another number, and permits in use, ahead of the queue", {
		TO_READING,
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases o3", "", PERMIT_READING, 0},
		{"get/leases =12", "", PERMIT_NONE, FAILED | GONE}}},
	{"the same as the lock's owner", {
		TO_READING_AGAIN,
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases o3", "", PERMIT_READING, 0},
		{"get/leases =12", "delete/locks", PERMIT_LEAVING, FAILED}}},
	{"the same behind our create: not told as queued", {
		TO_CREATED,
		{"children/leases o3 us o4", "list/leases", PERMIT_TAKING, 0},
		{"get/leases =12", "unwatch/leases " LEAVE, PERMIT_LEAVING, FAILED}}},
	{"another number, and none in use: ours is set", {
		TO_READING_AGAIN,
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases ok", "", PERMIT_READING, 0},
		{"get/leases =12", "set/leases " TAKE, PERMIT_TAKING, 0},
		{"set/leases unknown", "", PERMIT_TAKING, 0},
		{"create/leases unknown", "search/leases get/leases", PERMIT_TAKING, 0},
		{"children/leases unknown", "", PERMIT_TAKING, 0},
		{"get/leases unknown", "", PERMIT_TAKING, 0},
		/* and again: others must not see our node with that number */
		{"search/leases ok", "set/leases " TAKE, PERMIT_TAKING, 0},
		{"get/leases unknown", "", PERMIT_TAKING, 0},
		{"set/leases ok", "", PERMIT_TAKING, 0},
		{"create/leases us", "", PERMIT_TAKING, 0},
		{"children/leases unknown", "children/leases", PERMIT_TAKING, 0},
		{"get/leases =2", "", PERMIT_TAKING, 0},
		{"children/leases us", "stat/leases delete/locks", PERMIT_OWNER,
		GRANTED}}},
	{"no number, and Curator's permits: ours is set", {
		TO_READING_AGAIN,
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases o3", "", PERMIT_READING, 0},
		{"get/leases ok", "set/leases " TAKE, PERMIT_TAKING, 0},
		{"set/leases refused", "", PERMIT_LEAVING, FAILED}}},
	{"somebody has set another number behind our create", {
		TO_CREATED,
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"get/leases =12", "set/leases get/leases", PERMIT_TAKING, 0},
		{"set/leases ok", "", PERMIT_TAKING, 0},
		{"get/leases unknown", "get/leases", PERMIT_TAKING, 0},
		{"get/leases =2", "delete/locks", PERMIT_OWNER, GRANTED}}},
	{"to read the number is refused", {
		TO_CREATED,
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"get/leases refused", LEAVE, PERMIT_LEAVING, FAILED}}},
	{"somebody has deleted the directory behind our create", {
		TO_CREATED,
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"get/leases none", LEAVE, PERMIT_LEAVING, 0}}},

	/* reading the semaphore */
	{"what is not known is read again", {
		TO_READING,
		{"sync. unknown", LOOK, PERMIT_READING, 0},
		{"children/leases o3", "", PERMIT_READING, 0},
		{"get/leases =12", "", PERMIT_READING, 0},
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases unknown", LOOK, PERMIT_READING, 0},
		{"get/leases =12", "", PERMIT_READING, 0}}},
	{"what is missing is empty, and made", {
		TO_READING,
		{"sync. none", "", PERMIT_READING, 0},
		{"children/leases none", "", PERMIT_READING, 0},
		{"get/leases none", QUEUE, PERMIT_QUEUEING, 0},
		{"create/locks none", "mkdirs/locks " QUEUE, PERMIT_QUEUEING, 0},
		{"children/leases none", "", PERMIT_QUEUEING, 0},
		{"children/locks none", "", PERMIT_QUEUEING, 0},
		{"mkdirs/locks ok", "", PERMIT_QUEUEING, 0},
		{"create/locks us", "", PERMIT_QUEUEING, 0},
		{"children/leases none", "", PERMIT_QUEUEING, 0},
		{"children/locks us", "stat/locks " LOOK, PERMIT_READING, 0},
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases none", "", PERMIT_READING, 0},
		{"get/leases none", "mkdir/leases " TAKE, PERMIT_TAKING, 0}}},
	{"the directories cannot be made", {
		TO_QUEUEING,
		{"create/locks none", "mkdirs/locks " QUEUE, PERMIT_QUEUEING, 0},
		{"mkdirs/locks refused", "", PERMIT_QUEUEING, 0},
		{"create/locks none", "", PERMIT_NONE, FAILED | GONE}}},
	{"to read is refused", {
		TO_READING,
		{"sync. refused", "", PERMIT_NONE, FAILED | GONE}}},
	{"the name is a lock's", {
		TO_READING,
		{"sync. locks o3 leases", "orphan. orphan.", PERMIT_NONE,
		MIXED | GONE}}},
	{"the name has become a lock's", {
		TO_READING_AGAIN,
		{"sync. locks o3", "delete/locks orphan.", PERMIT_LEAVING, MIXED}}},
	{"released while it reads", {
		TO_READING,
		{"release", "", PERMIT_NONE, GONE},
		{"sync. ok", "", PERMIT_NONE, 0},
		{"children/leases ok", "", PERMIT_NONE, 0},
		{"get/leases =2", "", PERMIT_NONE, 0}}},

	/* the lock's queue */
	{"behind another, with all permits in use", {
		TO_QUEUEING,
		{"create/locks us", "", PERMIT_QUEUEING, 0},
		{"children/leases o1 o2", "", PERMIT_QUEUEING, 0},
		{"children/locks o3 us", "watch/locks", PERMIT_QUEUEING, QUEUED}}},
	{"behind as many as there are permits: one will be left", {
		TO_CREATED_LOCK,
		{"children/locks o3 o4 us", "watch/locks children/leases",
		PERMIT_QUEUEING, 0},
		{"watch/locks ok", "", PERMIT_QUEUEING, 0},
		{"children/leases ok", "", PERMIT_QUEUEING, 0}}},
	{"the same, but one who was not counted has got a permit", {
		TO_CREATED_LOCK,
		{"children/locks o3 o4 us", "watch/locks children/leases",
		PERMIT_QUEUEING, 0},
		{"watch/locks ok", "", PERMIT_QUEUEING, 0},
		{"children/leases o2", "unwatch/locks children/leases children/locks",
		PERMIT_QUEUEING, 0},
		{"children/leases o2", "", PERMIT_QUEUEING, 0},
		{"children/locks o3 o4 us", "watch/locks", PERMIT_QUEUEING, QUEUED}}},
	{"the same, and nobody knows", {
		TO_CREATED_LOCK,
		{"children/locks o3 us", "watch/locks children/leases",
		PERMIT_QUEUEING, 0},
		{"watch/locks unknown", "watch/locks", PERMIT_QUEUEING, 0},
		{"children/leases unknown",
			"unwatch/locks children/leases children/locks", PERMIT_QUEUEING,
		0}}},
	{"to list the permits for the queue is refused", {
		TO_QUEUEING,
		{"create/locks us", "", PERMIT_QUEUEING, 0},
		{"children/leases refused", "delete/locks", PERMIT_LEAVING, FAILED}}},
	{"the lock comes in its turn", {
		TO_QUEUEING,
		{"create/locks us", "", PERMIT_QUEUEING, 0},
		{"children/leases o1 o2", "", PERMIT_QUEUEING, 0},
		{"children/locks o3 us", "watch/locks", PERMIT_QUEUEING, QUEUED},
		{"watch/locks ok", "", PERMIT_QUEUEING, 0},
		{"deleted watch/locks", "stat/locks " LOOK, PERMIT_READING, 0}}},
	{"the lock is refused", {
		TO_CREATED_LOCK,
		{"children/locks refused", "delete/locks", PERMIT_LEAVING, FAILED}}},
	{"the lock finds parts of a semaphore", {
		TO_CREATED_LOCK,
		{"children/locks us leases", "delete/locks", PERMIT_LEAVING, MIXED}}},
	{"the lock is lost while it is ours", {
		TO_CREATED_LOCK,
		{"children/locks us", "stat/locks " LOOK, PERMIT_READING, 0},
		{"stat/locks none", "", PERMIT_NONE, GONE}}},

	/* an owner */
	{"the permit is lost", {
		TO_CREATED,
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"get/leases =2", "delete/locks", PERMIT_OWNER, GRANTED},
		{"stat/leases none", "", PERMIT_LEAVING, LOST},
		{"delete/locks ok", "", PERMIT_NONE, GONE}}},
	{"and before it is granted", {
		TO_CREATED,
		{"children/leases us", "stat/leases", PERMIT_TAKING, 0},
		{"stat/leases none", "delete/locks", PERMIT_LEAVING, 0}}},
	{"a revocation", {
		TO_OWNER,
		{"guard", "watch/leases", PERMIT_OWNER, 0},
		{"watch/leases =__REVOKE__", "set/leases", PERMIT_OWNER,
		RECIPE_REPORT_REVOKED}}},
	{"deletes are refused", {
		TO_OWNER,
		{"delete/locks refused", "", PERMIT_OWNER, LEFT},
		{"retry", "delete/locks", PERMIT_OWNER, 0},
		{"delete/locks refused", "", PERMIT_OWNER, LEFT},
		{"release", "delete/leases", PERMIT_LEAVING, 0},
		{"delete/leases refused", "", PERMIT_LEAVING, LEFT},
		{"retry", LEAVE, PERMIT_LEAVING, 0},
		{"retry", "", PERMIT_LEAVING, 0},
		{"delete/leases ok", "", PERMIT_LEAVING, 0},
		{"delete/locks none", "", PERMIT_NONE, GONE}}},

	/* a new worker */
	{"resumed as wanted, and nothing is found", {
		{"resume wanted", "search/leases search/leases search/locks",
		PERMIT_QUEUEING, 0},
		{"search/leases o3", "", PERMIT_QUEUEING, 0},
		{"search/leases o3", "", PERMIT_QUEUEING, 0},
		{"search/locks ok", QUEUE, PERMIT_QUEUEING, 0}}},
	{"resumed as wanted, with the lock and a node", {
		{"resume wanted", "search/leases search/leases search/locks",
		PERMIT_QUEUEING, 0},
		{"search/leases us", "delete/leases", PERMIT_QUEUEING, 0},
		{"search/leases us", "", PERMIT_QUEUEING, 0},
		{"search/locks us", "stat/locks", PERMIT_QUEUEING, 0},
		{"delete/leases ok", LOOK, PERMIT_READING, 0}}},
	{"resumed as wanted, and the node cannot be deleted", {
		{"resume wanted", "search/leases search/leases search/locks",
		PERMIT_QUEUEING, 0},
		{"search/leases us", "delete/leases", PERMIT_QUEUEING, 0},
		{"delete/leases refused", "", PERMIT_LEAVING, FAILED | LEFT}}},
	{"resumed as wanted, behind others: told so", {
		{"resume wanted", "search/leases search/leases search/locks",
		PERMIT_QUEUEING, 0},
		{"search/leases ok", "", PERMIT_QUEUEING, 0},
		{"search/leases o1 o2", "", PERMIT_QUEUEING, 0},
		{"search/locks o3 us", "watch/locks", PERMIT_QUEUEING, QUEUED}}},
	{"resumed as wanted, and released", {
		{"resume wanted", "search/leases search/leases search/locks",
		PERMIT_QUEUEING, 0},
		{"release", "", PERMIT_LEAVING, 0},
		{"search/leases ok", "", PERMIT_LEAVING, 0}}},
	{"resumed as owned", {
		{"resume owned", "stat/leases search/locks", PERMIT_OWNER, 0},
		{"stat/leases ok", "", PERMIT_OWNER, RECIPE_REPORT_TOKEN},
		{"search/locks us", "delete/locks", PERMIT_OWNER, 0}}},
	{"resumed as owned, and it is not there", {
		{"resume owned", "stat/leases search/locks", PERMIT_OWNER, 0},
		{"stat/leases none", "", PERMIT_LEAVING, LOST},
		{"search/locks ok", "", PERMIT_NONE, GONE}}},
	{"resumed as releasing", {
		{"resume releasing", "search/leases search/locks", PERMIT_LEAVING, 0},
		{"search/leases us", "delete/leases", PERMIT_LEAVING, 0},
		{"search/locks us", "delete/locks", PERMIT_LEAVING, 0},
		{"delete/leases ok", "", PERMIT_LEAVING, 0},
		{"delete/locks ok", "", PERMIT_NONE, GONE}}}
};

/* The permit under test, and the requests that are out. */
typedef struct Bench
{
	Permit		permit;
	struct
	{
		char		name[32];
		uint32_t	serial;
		RequestKind kind;
		bool		answered;	/* its watch may fire yet */
	}			outs[MAX_OUT];
	int			nouts;
	char		sent[512];
} Bench;

/* Note what a step sends. */
static void
note_sent(Bench *bench, const RecipeOutput *out)
{
	size_t		used = 0;

	bench->sent[0] = '\0';
	for (int i = 0; i < out->nops; i++)
	{
		const Request *op = &out->ops[i];
		bool		permits = strcmp(op->path, "/leases") == 0;
		char		name[32];

		snprintf(name, sizeof(name), "%s%s", model_op_name(op->kind),
				 op->path[0] ? op->path : ".");
		used += snprintf(bench->sent + used, sizeof(bench->sent) - used,
						 "%s%s", i > 0 ? " " : "", name);

		/* what is written is the agreement, or a note */
		if (permits && (op->kind == REQUEST_MKDIR ||
						op->kind == REQUEST_MKDIRS ||
						(op->kind == REQUEST_SET && op->node == NULL)))
			assert_string_equal(op->data, bench->permit.agreement);
		else
			assert_null(op->data);
		if (op->kind == REQUEST_CREATE)
			assert_string_equal(op->node, permits ? UUID_TEXT "-lease-" :
								UUID_TEXT "-lock-");
		if (op->kind == REQUEST_UNWATCH || op->kind == REQUEST_DELETE_ORPHAN)
			continue;
		assert_true(bench->nouts < MAX_OUT);
		strcpy(bench->outs[bench->nouts].name, name);
		bench->outs[bench->nouts].serial = op->serial;
		bench->outs[bench->nouts].answered = false;
		bench->outs[bench->nouts++].kind = op->kind;
	}
}

/* Have a request answered, or its watch fire, by its name. */
static void
find_out(Bench *bench, const char *name, bool watch,
		 RequestAnswer *answer)
{
	for (int i = bench->nouts - 1; i >= 0; i--)
	{
		/* of answers, the oldest comes first */
		int			at = watch ? i : bench->nouts - 1 - i;

		if (strcmp(bench->outs[at].name, name) != 0 ||
			bench->outs[at].answered != watch)
			continue;
		answer->serial = bench->outs[at].serial;
		answer->kind = bench->outs[at].kind;
		bench->outs[at].answered = true;
		return;
	}
	fail_msg("%s is not out", name);
}

/* Fill in what an answer has, by the words of a step. */
static void
fill_answer(RequestAnswer *answer, char *words[], int nwords,
			const char *directory)
{
	static char names[MAX_WORDS][ZNODE_CONTENDER_SIZE];
	static const char *children[MAX_WORDS];
	static char data[64];
	bool		permits = strcmp(directory, "/leases") == 0;
	const char *kind = permits ? "lease" : "lock";

	answer->data_len = -1;
	answer->czxid = TOKEN;
	answer->ours = true;
	answer->ephemeral_owner = 1;
	answer->children = children;
	for (int i = 0; i < nwords; i++)
	{
		const char *word = words[i];
		char	   *name = names[answer->nchildren];

		if (strcmp(word, "unknown") == 0)
			answer->result = REQUEST_UNKNOWN;
		else if (strcmp(word, "none") == 0)
			answer->result = REQUEST_NO_NODE;
		else if (strcmp(word, "refused") == 0)
			answer->result = REQUEST_REFUSED;
		else if (word[0] == '=')
		{
			snprintf(data, sizeof(data), "%s%s",
					 word[1] == '_' ? "" : "permits=", word + 1);
			answer->data = data;
			answer->data_len = (int) strlen(data);
		}
		else if (strcmp(word, "ok") != 0)
		{
			if (strcmp(word, "us") == 0)
				sprintf(name, UUID_TEXT "-%s-0000000007", kind);
			else if (strcmp(word, "x") == 0)
				sprintf(name, UUID_TEXT "-%s-0000000002", kind);
			else if (word[0] == 'o')
				sprintf(name, OTHER_TEXT "%c-%s-000000000%c", word[1], kind,
						word[1]);
			else
				strcpy(name, word);
			answer->node = name;
			children[answer->nchildren++] = name;
		}
	}
	answer->error = answer->result == REQUEST_NO_NODE ? ERROR_NO_NODE :
		answer->result == REQUEST_REFUSED ? ERROR_REFUSED : 0;
}

static void
happen(Bench *bench, const char *what, RecipeOutput *out)
{
	static const struct
	{
		const char *word;
		RecipeEvent event;
	}			events[] = {
		{"release", RECIPE_RELEASE},
		{"retry", RECIPE_RETRY},
		{"look", RECIPE_LOOK},
		{"guard", RECIPE_WATCH_REVOCATION},
		{"expired", RECIPE_EXPIRED}
	};
	static const char *const resumes[] = {"wanted", "owned", "releasing"};
	static const int32_t sequence = 7;
	char		text[128];
	char	   *words[MAX_WORDS];
	int			nwords = 0;
	RequestAnswer in = {.event = REQUEST_DONE};
	RecipeEvent event = RECIPE_ANSWER;

	snprintf(text, sizeof(text), "%s", what);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		words[nwords++] = word;
	memset(out, 0xFF, sizeof(*out));	/* it has to be filled anew */
	if (strcmp(words[0], "want") == 0)
	{
		permit_want(&bench->permit, our_uuid, PERMITS, out);
		return;
	}
	for (int i = 0; i < 3 && strcmp(words[0], "resume") == 0; i++)
		if (strcmp(words[1], resumes[i]) == 0)
		{
			permit_resume(&bench->permit, our_uuid, PERMITS, (RecipeResume) i,
						  i == RECIPE_RESUME_OWNED ? &sequence : NULL, out);
			return;
		}
	if (strcmp(words[0], "touched") == 0 || strcmp(words[0], "deleted") == 0)
	{
		find_out(bench, words[1], true, &in);
		in.event = words[0][0] == 't' ? REQUEST_NODE_TOUCHED :
			REQUEST_NODE_DELETED;
	}
	else if (strpbrk(words[0], "/."))
	{
		find_out(bench, words[0], false, &in);
		fill_answer(&in, words + 1, nwords - 1, strpbrk(words[0], "/."));
	}
	for (size_t i = 0; i < lengthof(events); i++)
		if (strcmp(words[0], events[i].word) == 0)
			event = events[i].event;
	permit_step(&bench->permit, event, &in, out);
}

static void
play(Bench *bench, const Step *step)
{
	RecipeOutput out;

	happen(bench, step->in, &out);
	note_sent(bench, &out);
	if (strcmp(bench->sent, step->ops) != 0 ||
		bench->permit.state != step->state || out.report != step->report)
		fail_msg("%s: sent \"%s\", is %s, told %#x", step->in, bench->sent,
				 permit_state_name(bench->permit.state), out.report);
	assert_int_equal(out.permits_found,
					 strcmp(step->in, "get/leases =12") == 0 &&
					 (out.report & FAILED) ? 12 : 0);
	if (out.report & (FAILED | LEFT))
		assert_int_equal(out.error, strstr(step->in, "refused") ?
						 ERROR_REFUSED :
						 strcmp(step->in, "create/locks none") == 0 ?
						 ERROR_REFUSED : 0);
	if (out.report & LEFT)
	{
		bool		permits = strstr(step->in, "/leases") != NULL;

		assert_string_equal(out.path, permits ? "/leases" : "/locks");
		assert_ptr_equal(out.left, permits ? bench->permit.place.node :
						 bench->permit.lock.node);
	}
	if (out.report & RECIPE_REPORT_TOKEN)
		assert_true(bench->permit.place.token == TOKEN);
	model_check_recipe(&bench->permit.lock);
	model_check_recipe(&bench->permit.place);
}

static void
test_script(void **state)
{
	const Script *script = *state;
	Bench		bench = {.nouts = 0};

	memset(&bench.permit, 0, sizeof(bench.permit));
	for (int i = 0; i < MAX_STEPS && script->steps[i].in; i++)
		play(&bench, &script->steps[i]);
	permit_free(&bench.permit);
}

/*
 * Wherever a script is: the session may end, and then all that is out is
 * nobody's; released twice is released once; and nothing is retried that was
 * not refused.
 */
static void
test_ends_everywhere(void **state)
{
	const Script *script = *state;

	for (int n = 1; n <= MAX_STEPS && script->steps[n - 1].in; n++)
	{
		for (int with = 0; with < 2; with++)
		{
			Bench		bench = {.nouts = 0};
			RecipeOutput out;
			bool		owned;
			bool		stuck;

			memset(&bench.permit, 0, sizeof(bench.permit));
			for (int i = 0; i < n; i++)
				play(&bench, &script->steps[i]);
			owned = bench.permit.state == PERMIT_OWNER;
			stuck = recipe_is_stuck(&bench.permit.lock) ||
				recipe_is_stuck(&bench.permit.place);
			if (bench.permit.state == PERMIT_NONE)
			{
				permit_free(&bench.permit);
				continue;
			}
			if (with == 0)
			{
				happen(&bench, "retry", &out);
				assert_int_equal(out.nops > 0, stuck);
				happen(&bench, "release", &out);
				happen(&bench, "release", &out);
				assert_int_equal(out.nops, 0);
				assert_int_equal(out.report, 0);
				owned = false;
			}
			if (bench.permit.state != PERMIT_NONE)
			{
				happen(&bench, "expired", &out);
				assert_int_equal(out.report, owned ? LOST | GONE : GONE);
			}
			assert_int_equal(bench.permit.state, PERMIT_NONE);
			assert_int_equal(bench.permit.lock.state, RECIPE_NONE);
			assert_int_equal(bench.permit.place.state, RECIPE_NONE);
			for (int i = 0; i < bench.nouts; i++)
			{
				char		late[64];

				if (bench.outs[i].answered)
					continue;
				snprintf(late, sizeof(late), "%s ok", bench.outs[i].name);
				happen(&bench, late, &out);
				assert_int_equal(out.nops, 0);
				assert_int_equal(out.report, 0);
			}
			happen(&bench, "want", &out);
			note_sent(&bench, &out);
			assert_string_equal(bench.sent, LOOK);
			permit_free(&bench.permit);
		}
	}
}

/* The data of the agreement, to the byte. */
static void
test_agreement(void **state)
{
	static const struct
	{
		const char *data;
		int			len;		/* -1: strlen */
		int			permits;	/* 0: no agreement */
	}			examples[] =
	{
		{"permits=1", -1, 1},
		{"permits=12", -1, 12},
		{"permits=12", 9, 1},	/* data is not terminated */
		{"permits=2147483647", -1, INT_MAX},
		{"permits=2147483648", -1, 0},
		{"permits=99999999999999", -1, 0},
		{"permits=999999999999999999999999999999", -1, 0},
		{"permits=", -1, 0},
		{"permits=0", -1, 0},
		{"permits=01", -1, 0},
		{"permits=-1", -1, 0},
		{"permits= 1", -1, 0},
		{"permits=1 ", -1, 0},
		{"permits=1x", -1, 0},
		{"Permits=1", -1, 0},
		{"permits", -1, 0},
		{"127.0.0.1", -1, 0},
		{"", -1, 0},
		{NULL, -1, 0}
	};
	static const Step steps[] = {
		TO_READING,
		{"sync. ok", "", PERMIT_READING, 0},
		{"children/leases o3", "", PERMIT_READING, 0}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
	{
		Bench		bench = {.nouts = 0};
		RecipeOutput out;
		RequestAnswer in = {.event = REQUEST_DONE};

		memset(&bench.permit, 0, sizeof(bench.permit));
		for (size_t j = 0; j < lengthof(steps); j++)
			play(&bench, &steps[j]);
		find_out(&bench, "get/leases", false, &in);
		in.data = examples[i].data;
		in.data_len = examples[i].len >= 0 ? examples[i].len :
			examples[i].data ? (int) strlen(examples[i].data) : -1;
		permit_step(&bench.permit, RECIPE_ANSWER, &in, &out);
		assert_int_equal(out.permits_found, examples[i].permits);
		assert_int_equal(out.report, examples[i].permits ? FAILED | GONE : 0);
		permit_free(&bench.permit);
	}
}

/* However many orphans, what the step is about is still sent. */
static void
test_orphans_leave_room(void **state)
{
	static const Step steps[] = {TO_WAITING};
	char		names[30][ZNODE_CONTENDER_SIZE];
	const char *children[31];

	(void) state;
	for (int i = 0; i < 30; i++)
	{
		znode_contender_name(our_uuid, ZNODE_PERMIT, 100 + i, names[i]);
		children[i] = names[i];
	}
	children[30] = UUID_TEXT "-lease-0000000007";
	for (int with = 0; with < 2; with++)
	{
		Bench		bench = {.nouts = 0};
		RecipeOutput out;
		RequestAnswer in = {.event = REQUEST_DONE};

		memset(&bench.permit, 0, sizeof(bench.permit));
		for (size_t j = 0; j < lengthof(steps); j++)
			play(&bench, &steps[j]);
		find_out(&bench, "list/leases", false, &in);
		in.children = children;
		in.nchildren = 30 + with;
		permit_step(&bench.permit, RECIPE_ANSWER, &in, &out);
		assert_int_equal(out.ops[RECIPE_MAX_ORPHANS].kind, REQUEST_UNWATCH);
		assert_int_equal(out.ops[RECIPE_MAX_ORPHANS + 1].kind,
						 with ? REQUEST_STAT : REQUEST_CREATE);
		assert_int_equal(out.ops[out.nops - 1].kind,
						 with ? REQUEST_DELETE : REQUEST_GET);
		permit_free(&bench.permit);
	}
}

/* A number without order is that of the last permit: all others count. */
static void
test_permit_without_order(void **state)
{
	static const char *const ours[] = {"-lease-2147483647", "-lease-0000000001"};
	static const Step steps[] = {TO_TAKING};

	(void) state;
	for (int i = 0; i < 2; i++)
	{
		char		name[ZNODE_CONTENDER_SIZE];
		const char *children[] = {
			OTHER_TEXT "1-lease-0000000002", name,
			"_c_x-lease--2147483648"
		};
		Bench		bench = {.nouts = 0};
		RecipeOutput out;
		RequestAnswer in = {.event = REQUEST_DONE};

		snprintf(name, sizeof(name), "%s%s", UUID_TEXT, ours[i]);
		memset(&bench.permit, 0, sizeof(bench.permit));
		for (size_t j = 0; j < lengthof(steps); j++)
			play(&bench, &steps[j]);
		find_out(&bench, "create/leases", false, &in);
		in.node = name;
		permit_step(&bench.permit, RECIPE_ANSWER, &in, &out);
		find_out(&bench, "children/leases", false, &in);
		in.children = children;
		in.nchildren = lengthof(children);
		permit_step(&bench.permit, RECIPE_ANSWER, &in, &out);
		/* ours has no order, or only the second other one */
		assert_int_equal(bench.permit.others, 2);
		assert_int_equal(bench.permit.place.state,
						 i == 0 ? RECIPE_WATCHING : RECIPE_OWNER);
		permit_free(&bench.permit);
	}
}

/* A lock whose number is late is out of its queue: who waits is told so. */
static void
test_late_lock(void **state)
{
	static const Step steps[] = {TO_CREATED_LOCK};
	Bench		bench = {.nouts = 0};
	RecipeOutput out;
	RequestAnswer in = {
		.kind = REQUEST_RMDIR,
		.result = REQUEST_REFUSED,
		.not_empty = true
	};
	Recipe	   *lock = &bench.permit.lock;

	(void) state;
	memset(&bench.permit, 0, sizeof(bench.permit));
	for (size_t j = 0; j < lengthof(steps); j++)
		play(&bench, &steps[j]);
	lock->state = RECIPE_LATE;
	lock->sequence = ZNODE_LATE_SEQUENCE;
	in.serial = PERMIT_SERIAL(lock->serial, PERMIT_LOCK);
	permit_step(&bench.permit, RECIPE_ANSWER, &in, &out);
	assert_int_equal(bench.permit.state, PERMIT_QUEUEING);
	assert_int_equal(out.report, QUEUED | RECIPE_REPORT_LATE);
	assert_int_equal(out.nops, 0);

	/* it comes again, as the lock does */
	happen(&bench, "retry", &out);
	assert_int_equal(lock->state, RECIPE_ENTERING);
	assert_int_equal(bench.permit.state, PERMIT_QUEUEING);

	/* and that its counter has ended */
	lock->state = RECIPE_LATE;
	lock->sequence = INT32_MAX;
	in.serial = PERMIT_SERIAL(lock->serial, PERMIT_LOCK);
	permit_step(&bench.permit, RECIPE_ANSWER, &in, &out);
	assert_int_equal(lock->state, RECIPE_NONE);
	assert_int_equal(out.report, FAILED | RECIPE_REPORT_LATE | GONE);
	permit_free(&bench.permit);
}

int
main(void)
{
	static const struct CMUnitTest singles[] = {
		cmocka_unit_test(test_agreement),
		cmocka_unit_test(test_orphans_leave_room),
		cmocka_unit_test(test_permit_without_order),
		cmocka_unit_test(test_late_lock)
	};
	struct CMUnitTest tests[2 * lengthof(scripts)];
	int			failed = 0;

	memset(tests, 0, sizeof(tests));
	for (size_t i = 0; i < lengthof(tests); i++)
	{
		const Script *script = &scripts[i % lengthof(scripts)];

		tests[i].name = script->title;
		tests[i].test_func = i < lengthof(scripts) ? test_script :
			test_ends_everywhere;
		tests[i].initial_state = (void *) script;
	}
	failed += cmocka_run_group_tests_name("scripts", tests, NULL, NULL);
	failed += cmocka_run_group_tests_name("singles", singles, NULL, NULL);
	return failed;
}
