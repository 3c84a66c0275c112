/*-------------------------------------------------------------------------
 *
 * test_semaphore.c
 *		Unit tests of the semaphore.
 *
 * As with test_recipe.c, from the small to the large:
 *
 *	- the lines of the transition table in semaphore.c's header, and a matrix
 *	  of every situation and every input, which shows that whatever the table
 *	  does not list changes nothing and sends nothing;
 *	- single tests of what a table cannot say well: the data of the
 *	  agreement, when one is told to be queued, strays, a worker's restart;
 *	- a model: a ZooKeeper server in plain C, with sessions that have several
 *	  semaphores each, lagging views, watches as session.c keeps them,
 *	  connections that break, and other clients that do as Curator does.
 *	  Small scenarios are explored exhaustively, larger ones at random from
 *	  fixed seeds, and the rules of a semaphore are checked after every step.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_semaphore.c
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

#include "worker/semaphore.h"

#define lengthof(array)	(sizeof(array) / sizeof((array)[0]))

/* How many schedules the model plays at random, of each kind. */
#ifndef RANDOM_RUNS
#define RANDOM_RUNS		2000
#endif

/*-------------------------------------------------------------------------
 * The transition table
 *-------------------------------------------------------------------------
 */

#define ERROR_NO_NODE		(-101)
#define ERROR_REFUSED		(-102)	/* of the operation under test */
#define ERROR_MKDIRS		(-4)	/* why a directory could not be made */

#define TOKEN				INT64_C(0x100000002a)
#define PERMITS				2

#define UUID_TEXT	"_c_0123456f-89ab-4def-8edc-ba9876543210"
#define LOCK		UUID_TEXT "-lock-0000000005"
#define LEASE		UUID_TEXT "-lease-0000000007"
#define LEASE_PREFIX UUID_TEXT "-lease-"
#define LOCK_PREFIX	UUID_TEXT "-lock-"
#define OTHER(kind, number) \
	"_c_11111111-1111-4111-8111-111111111111-" kind "-000000000" #number
#define THIRD(kind, number) \
	"_c_33333333-3333-4333-8333-333333333333-" kind "-000000000" #number

static const uint8_t our_uuid[ZNODE_UUID_BYTES] = {
	0x01, 0x23, 0x45, 0x6f, 0x89, 0xab, 0x4d, 0xef,
	0x8e, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10
};

typedef enum Input
{
	IN_END,						/* of a list of inputs */
	IN_WANT,					/* directories known */
	IN_WANT_NEW,				/* not known */
	IN_RELEASE,
	IN_RETRY,
	IN_EXPIRED,
	/* answers and watches of our own operations, all with a serial number */
	IN_MKDIR_OK,
	IN_MKDIR_UNKNOWN,
	IN_MKDIR_NO_NODE,
	IN_MKDIR_REFUSED,
	IN_CREATE_OK,
	IN_CREATE_ODD,
	IN_CREATE_UNKNOWN,
	IN_CREATE_NO_NODE,
	IN_CREATE_REFUSED,
	IN_EMPTY,					/* children: none */
	IN_STRANGER,				/* children: "locks", which is no contender */
	IN_ONE,						/* children: a lease or contender of another */
	IN_TWO,						/* children: two leases of others */
	IN_OURS,					/* children: our lease */
	IN_OURS_SECOND,				/* children: and one before it */
	IN_OURS_FIRST,				/* children: and two behind it */
	IN_OURS_THIRD,				/* children: and two before it */
	IN_QUEUE_SECOND,			/* children: our contender, one ahead */
	IN_QUEUE_THIRD,				/* children: our contender, two ahead */
	IN_CHILDREN_UNKNOWN,
	IN_CHILDREN_NO_NODE,
	IN_CHILDREN_REFUSED,
	IN_GET_NONE,				/* no data */
	IN_GET_OTHER,				/* no data of ours */
	IN_GET_SAME,				/* our number of permits */
	IN_GET_MORE,				/* another number */
	IN_GET_UNKNOWN,
	IN_GET_NO_NODE,
	IN_GET_REFUSED,
	IN_SET_OK,
	IN_SET_UNKNOWN,
	IN_SET_NO_NODE,
	IN_SET_REFUSED,
	IN_STAT_OURS,
	IN_STAT_FOREIGN,
	IN_STAT_UNKNOWN,
	IN_STAT_NO_NODE,
	IN_STAT_REFUSED,
	IN_DELETE_OK,
	IN_DELETE_UNKNOWN,
	IN_DELETE_NO_NODE,
	IN_DELETE_REFUSED,
	IN_WATCH_OK,				/* we never watch a node of our own account */
	IN_DELETED,
	IN_TOUCHED,
	/* what the lock's recipe makes of the answers of its operations */
	IN_LOCK_CREATED,
	IN_LOCK_GRANTED,
	IN_LOCK_QUEUED,
	IN_LOCK_TWO_AHEAD,
	IN_LOCK_DELETED,			/* the predecessor is: granted */
	IN_LOCK_REFUSED,			/* children: failed, leaving */
	IN_LOCK_CREATE_REFUSED,		/* failed, gone */
	IN_LOCK_LOST,
	IN_LOCK_GONE,
	IN_LOCK_LEFT,
	IN_LOCK_MISSING,			/* a search does not find it */
	IN_LOCK_FOUND,				/* a search does, at the head of the queue */
	NINPUTS
} Input;

static const struct
{
	RecipeEvent event;
	RecipeResult result;
	bool		for_lock;
	const char *node;
	const char *children[4];
	const char *data;
	bool		ours;
}			inputs[NINPUTS] =
{
	[IN_RELEASE] = {.event = RECIPE_RELEASE},
	[IN_RETRY] = {.event = RECIPE_RETRY},
	[IN_EXPIRED] = {.event = RECIPE_EXPIRED},
	[IN_MKDIR_OK] = {RECIPE_MKDIR_DONE, RECIPE_OK},
	[IN_MKDIR_UNKNOWN] = {RECIPE_MKDIR_DONE, RECIPE_UNKNOWN},
	[IN_MKDIR_NO_NODE] = {RECIPE_MKDIR_DONE, RECIPE_NO_NODE},
	[IN_MKDIR_REFUSED] = {RECIPE_MKDIR_DONE, RECIPE_REFUSED},
	[IN_CREATE_OK] = {RECIPE_CREATE_DONE, RECIPE_OK, .node = LEASE},
	[IN_CREATE_ODD] = {RECIPE_CREATE_DONE, RECIPE_OK, .node = LEASE_PREFIX},
	[IN_CREATE_UNKNOWN] = {RECIPE_CREATE_DONE, RECIPE_UNKNOWN},
	[IN_CREATE_NO_NODE] = {RECIPE_CREATE_DONE, RECIPE_NO_NODE},
	[IN_CREATE_REFUSED] = {RECIPE_CREATE_DONE, RECIPE_REFUSED},
	[IN_EMPTY] = {RECIPE_CHILDREN_DONE},
	[IN_STRANGER] = {RECIPE_CHILDREN_DONE, .children = {"locks"}},
	[IN_ONE] = {RECIPE_CHILDREN_DONE, .children = {OTHER("lease", 3)}},
	[IN_TWO] = {RECIPE_CHILDREN_DONE,
		.children = {OTHER("lease", 3), THIRD("lease", 4)}},
	[IN_OURS] = {RECIPE_CHILDREN_DONE, .children = {LEASE}},
	[IN_OURS_SECOND] = {RECIPE_CHILDREN_DONE,
		.children = {LEASE, OTHER("lease", 3)}},
	[IN_OURS_FIRST] = {RECIPE_CHILDREN_DONE,
		.children = {OTHER("lease", 8), LEASE, THIRD("lease", 9)}},
	[IN_OURS_THIRD] = {RECIPE_CHILDREN_DONE,
		.children = {OTHER("lease", 3), LEASE, THIRD("lease", 4)}},
	[IN_QUEUE_SECOND] = {RECIPE_CHILDREN_DONE,
		.children = {OTHER("lock", 4), LOCK, THIRD("lock", 8)}},
	[IN_QUEUE_THIRD] = {RECIPE_CHILDREN_DONE,
		.children = {OTHER("lock", 4), LOCK, THIRD("lock", 3)}},
	[IN_CHILDREN_UNKNOWN] = {RECIPE_CHILDREN_DONE, RECIPE_UNKNOWN},
	[IN_CHILDREN_NO_NODE] = {RECIPE_CHILDREN_DONE, RECIPE_NO_NODE},
	[IN_CHILDREN_REFUSED] = {RECIPE_CHILDREN_DONE, RECIPE_REFUSED},
	[IN_GET_NONE] = {RECIPE_GET_DONE},
	[IN_GET_OTHER] = {RECIPE_GET_DONE, .data = "127.0.0.1"},
	[IN_GET_SAME] = {RECIPE_GET_DONE, .data = "permits=2"},
	[IN_GET_MORE] = {RECIPE_GET_DONE, .data = "permits=12"},
	[IN_GET_UNKNOWN] = {RECIPE_GET_DONE, RECIPE_UNKNOWN},
	[IN_GET_NO_NODE] = {RECIPE_GET_DONE, RECIPE_NO_NODE},
	[IN_GET_REFUSED] = {RECIPE_GET_DONE, RECIPE_REFUSED},
	[IN_SET_OK] = {RECIPE_SET_DONE, RECIPE_OK},
	[IN_SET_UNKNOWN] = {RECIPE_SET_DONE, RECIPE_UNKNOWN},
	[IN_SET_NO_NODE] = {RECIPE_SET_DONE, RECIPE_NO_NODE},
	[IN_SET_REFUSED] = {RECIPE_SET_DONE, RECIPE_REFUSED},
	[IN_STAT_OURS] = {RECIPE_STAT_DONE, RECIPE_OK, .ours = true},
	[IN_STAT_FOREIGN] = {RECIPE_STAT_DONE, RECIPE_OK},
	[IN_STAT_UNKNOWN] = {RECIPE_STAT_DONE, RECIPE_UNKNOWN},
	[IN_STAT_NO_NODE] = {RECIPE_STAT_DONE, RECIPE_NO_NODE},
	[IN_STAT_REFUSED] = {RECIPE_STAT_DONE, RECIPE_REFUSED},
	[IN_DELETE_OK] = {RECIPE_DELETE_DONE, RECIPE_OK},
	[IN_DELETE_UNKNOWN] = {RECIPE_DELETE_DONE, RECIPE_UNKNOWN},
	[IN_DELETE_NO_NODE] = {RECIPE_DELETE_DONE, RECIPE_NO_NODE},
	[IN_DELETE_REFUSED] = {RECIPE_DELETE_DONE, RECIPE_REFUSED},
	[IN_WATCH_OK] = {RECIPE_WATCH_DONE, RECIPE_OK},
	[IN_DELETED] = {.event = RECIPE_NODE_DELETED},
	[IN_TOUCHED] = {.event = RECIPE_NODE_TOUCHED},
	[IN_LOCK_CREATED] = {RECIPE_CREATE_DONE, RECIPE_OK, true, .node = LOCK},
	[IN_LOCK_GRANTED] = {RECIPE_CHILDREN_DONE, RECIPE_OK, true,
		.children = {LOCK}},
	[IN_LOCK_QUEUED] = {RECIPE_CHILDREN_DONE, RECIPE_OK, true,
		.children = {LOCK, OTHER("lock", 4)}},
	[IN_LOCK_TWO_AHEAD] = {RECIPE_CHILDREN_DONE, RECIPE_OK, true,
		.children = {THIRD("lock", 3), LOCK, OTHER("lock", 4)}},
	[IN_LOCK_DELETED] = {RECIPE_NODE_DELETED, RECIPE_OK, true},
	[IN_LOCK_REFUSED] = {RECIPE_CHILDREN_DONE, RECIPE_REFUSED, true},
	[IN_LOCK_CREATE_REFUSED] = {RECIPE_CREATE_DONE, RECIPE_REFUSED, true},
	[IN_LOCK_LOST] = {RECIPE_STAT_DONE, RECIPE_NO_NODE, true},
	[IN_LOCK_GONE] = {RECIPE_DELETE_DONE, RECIPE_OK, true},
	[IN_LOCK_LEFT] = {RECIPE_DELETE_DONE, RECIPE_REFUSED, true},
	[IN_LOCK_MISSING] = {RECIPE_CHILDREN_DONE, RECIPE_OK, true},
	[IN_LOCK_FOUND] = {RECIPE_CHILDREN_DONE, RECIPE_OK, true,
		.children = {LOCK}}
};

/* Where a semaphore can be, and the way there. */
typedef enum Situation
{
	AT_NONE,
	AT_RESUMING,
	AT_RETRACTING,
	AT_PREPARING,
	AT_PREPARING_NEW,			/* the directories are being made */
	AT_PREPARING_MKDIRS,		/* with parents */
	AT_PREPARING_IN_VAIN,		/* they cannot be made */
	AT_PREPARING_LEASES,		/* <name> is read, the leases are next */
	AT_PREPARING_FREE,			/* there are none; the agreement is next */
	AT_PREPARING_USED,			/* there is one; the agreement is next */
	AT_ENTERING,				/* queueing: the lock's create is out */
	AT_READING,					/* queueing: created */
	AT_QUEUEING,				/* one is ahead; the leases are being read */
	AT_QUEUEING_ONE,			/* a lease is in use, the queue is next */
	AT_QUEUEING_TWO,			/* two are, the queue is next */
	AT_QUEUEING_READ,			/* nothing of ours is out */
	AT_CHECKING,
	AT_CHECKING_LEASES,
	AT_CHECKING_FREE,
	AT_CHECKING_USED,
	AT_AGREEING,
	AT_CREATING,
	AT_SEARCHING,
	AT_COUNTING,
	AT_WAITING,
	AT_OWNER,					/* the lock is being given up */
	AT_OWNER_ALONE,				/* it has been */
	AT_RECLAIMING,
	AT_CANCELLING,
	AT_ABANDONING,
	AT_LEAVING,					/* lease and lock are being deleted */
	AT_LEAVING_LEASE,			/* the lease alone is */
	AT_LEAVING_LOCK,			/* the lock alone is */
	AT_LEAVING_REFUSED,			/* the delete of the lease was refused */
	NSITUATIONS
} Situation;

#define TO_PREPARING_FREE	IN_WANT, IN_EMPTY, IN_EMPTY
#define TO_READING			TO_PREPARING_FREE, IN_GET_SAME, IN_LOCK_CREATED
#define TO_CHECKING			TO_READING, IN_LOCK_GRANTED
#define TO_CREATING			TO_CHECKING, IN_EMPTY, IN_ONE, IN_GET_SAME
#define TO_OWNER			TO_CREATING, IN_CREATE_OK, IN_OURS_SECOND

static const struct
{
	const char *name;
	SemaphoreState state;
	int			resumed;		/* 1 + RecipeResume, or 0 */
	Input		way[16];
}			situations[NSITUATIONS] =
{
	[AT_NONE] = {"NONE", SEMAPHORE_NONE},
	[AT_RESUMING] = {"RESUMING", SEMAPHORE_RESUMING,
	1 + RECIPE_RESUME_WANTED},
	[AT_RETRACTING] = {"RETRACTING", SEMAPHORE_RETRACTING,
	1 + RECIPE_RESUME_WANTED, {IN_OURS_SECOND}},
	[AT_PREPARING] = {"PREPARING", SEMAPHORE_PREPARING, 0, {IN_WANT}},
	[AT_PREPARING_NEW] = {"PREPARING, making directories",
	SEMAPHORE_PREPARING, 0, {IN_WANT_NEW}},
	[AT_PREPARING_MKDIRS] = {"PREPARING, making parents",
	SEMAPHORE_PREPARING, 0, {IN_WANT, IN_CHILDREN_NO_NODE}},
	[AT_PREPARING_IN_VAIN] = {"PREPARING, in vain", SEMAPHORE_PREPARING, 0,
	{IN_WANT, IN_CHILDREN_NO_NODE, IN_MKDIR_REFUSED, IN_MKDIR_NO_NODE}},
	[AT_PREPARING_LEASES] = {"PREPARING, name read", SEMAPHORE_PREPARING, 0,
	{IN_WANT, IN_EMPTY}},
	[AT_PREPARING_FREE] = {"PREPARING, no lease", SEMAPHORE_PREPARING, 0,
	{TO_PREPARING_FREE}},
	[AT_PREPARING_USED] = {"PREPARING, a lease", SEMAPHORE_PREPARING, 0,
	{IN_WANT, IN_EMPTY, IN_ONE}},
	[AT_ENTERING] = {"QUEUEING, entering", SEMAPHORE_QUEUEING, 0,
	{TO_PREPARING_FREE, IN_GET_SAME}},
	[AT_READING] = {"QUEUEING, created", SEMAPHORE_QUEUEING, 0,
	{TO_READING}},
	[AT_QUEUEING] = {"QUEUEING, leases being read", SEMAPHORE_QUEUEING, 0,
	{TO_READING, IN_LOCK_QUEUED}},
	[AT_QUEUEING_ONE] = {"QUEUEING, a lease", SEMAPHORE_QUEUEING, 0,
	{TO_READING, IN_LOCK_QUEUED, IN_ONE}},
	[AT_QUEUEING_TWO] = {"QUEUEING, two leases", SEMAPHORE_QUEUEING, 0,
	{TO_READING, IN_LOCK_QUEUED, IN_TWO}},
	[AT_QUEUEING_READ] = {"QUEUEING, all read", SEMAPHORE_QUEUEING, 0,
	{TO_READING, IN_LOCK_QUEUED, IN_ONE, IN_QUEUE_SECOND}},
	[AT_CHECKING] = {"CHECKING", SEMAPHORE_CHECKING, 0, {TO_CHECKING}},
	[AT_CHECKING_LEASES] = {"CHECKING, name read", SEMAPHORE_CHECKING, 0,
	{TO_CHECKING, IN_EMPTY}},
	[AT_CHECKING_FREE] = {"CHECKING, no lease", SEMAPHORE_CHECKING, 0,
	{TO_CHECKING, IN_EMPTY, IN_EMPTY}},
	[AT_CHECKING_USED] = {"CHECKING, a lease", SEMAPHORE_CHECKING, 0,
	{TO_CHECKING, IN_EMPTY, IN_ONE}},
	[AT_AGREEING] = {"AGREEING", SEMAPHORE_AGREEING, 0,
	{TO_CHECKING, IN_EMPTY, IN_EMPTY, IN_GET_MORE}},
	[AT_CREATING] = {"CREATING", SEMAPHORE_CREATING, 0, {TO_CREATING}},
	[AT_SEARCHING] = {"SEARCHING", SEMAPHORE_SEARCHING, 0,
	{TO_CREATING, IN_CREATE_UNKNOWN}},
	[AT_COUNTING] = {"COUNTING", SEMAPHORE_COUNTING, 0,
	{TO_CREATING, IN_CREATE_OK}},
	[AT_WAITING] = {"WAITING", SEMAPHORE_WAITING, 0,
	{TO_CREATING, IN_CREATE_OK, IN_OURS_THIRD}},
	[AT_OWNER] = {"OWNER", SEMAPHORE_OWNER, 0, {TO_OWNER}},
	[AT_OWNER_ALONE] = {"OWNER, without the lock", SEMAPHORE_OWNER, 0,
	{TO_OWNER, IN_LOCK_GONE}},
	[AT_RECLAIMING] = {"RECLAIMING", SEMAPHORE_RECLAIMING,
	1 + RECIPE_RESUME_OWNED},
	[AT_CANCELLING] = {"CANCELLING", SEMAPHORE_CANCELLING, 0,
	{TO_CREATING, IN_RELEASE}},
	[AT_ABANDONING] = {"ABANDONING", SEMAPHORE_ABANDONING, 0,
	{TO_CREATING, IN_CREATE_UNKNOWN, IN_RELEASE}},
	[AT_LEAVING] = {"LEAVING", SEMAPHORE_LEAVING, 0,
	{TO_CREATING, IN_CREATE_OK, IN_RELEASE}},
	[AT_LEAVING_LEASE] = {"LEAVING, lease only", SEMAPHORE_LEAVING, 0,
	{TO_OWNER, IN_LOCK_GONE, IN_RELEASE}},
	[AT_LEAVING_LOCK] = {"LEAVING, lock only", SEMAPHORE_LEAVING, 0,
	{TO_READING, IN_RELEASE}},
	[AT_LEAVING_REFUSED] = {"LEAVING, refused", SEMAPHORE_LEAVING, 0,
	{TO_OWNER, IN_LOCK_GONE, IN_RELEASE, IN_DELETE_REFUSED}}
};

#define LOOK		"search(name) children get"
#define LOOK_MADE	"mkdirs(name) mkdir(locks) mkdir " LOOK
#define TOLD_GONE	RECIPE_TOLD_GONE
#define TOLD_FAILED	RECIPE_TOLD_FAILED
#define TOLD_MIXED	(RECIPE_TOLD_FAILED | RECIPE_TOLD_MIXED)
#define TOLD_LEFT	RECIPE_TOLD_LEFT
#define TOLD_LOST	RECIPE_TOLD_LOST
#define TOLD_QUEUED	RECIPE_TOLD_QUEUED
#define TOLD_GRANTED RECIPE_TOLD_GRANTED

/*
 * One line of the table.  Operations without a place are on <name>/leases;
 * those of the lock's recipe stand behind a "+".
 */
typedef struct Transition
{
	Situation	at;
	Input		input;
	SemaphoreState state;
	const char *ops;
	unsigned	told;
	int			error;
} Transition;

static const Transition transitions[] = {
	{AT_NONE, IN_WANT, SEMAPHORE_PREPARING, LOOK, 0, 0},
	{AT_NONE, IN_WANT_NEW, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},

	{AT_RESUMING, IN_OURS, SEMAPHORE_RETRACTING, "delete", 0, 0},
	{AT_RESUMING, IN_OURS_FIRST, SEMAPHORE_RETRACTING, "delete", 0, 0},
	{AT_RESUMING, IN_OURS_SECOND, SEMAPHORE_RETRACTING, "delete", 0, 0},
	{AT_RESUMING, IN_OURS_THIRD, SEMAPHORE_RETRACTING, "delete", 0, 0},
	{AT_RESUMING, IN_EMPTY, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},
	{AT_RESUMING, IN_STRANGER, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},
	{AT_RESUMING, IN_ONE, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},
	{AT_RESUMING, IN_TWO, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},
	{AT_RESUMING, IN_CHILDREN_NO_NODE, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},
	{AT_RESUMING, IN_CHILDREN_UNKNOWN, SEMAPHORE_RESUMING, "search", 0, 0},
	{AT_RESUMING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_FAILED | TOLD_LEFT, ERROR_REFUSED},
	{AT_RESUMING, IN_RELEASE, SEMAPHORE_ABANDONING, "", 0, 0},
	{AT_RESUMING, IN_LOCK_FOUND, SEMAPHORE_RESUMING, "+stat", 0, 0},
	{AT_RESUMING, IN_LOCK_GRANTED, SEMAPHORE_RESUMING, "+stat", 0, 0},
	{AT_RESUMING, IN_LOCK_QUEUED, SEMAPHORE_RESUMING, "+watch", 0, 0},
	{AT_RESUMING, IN_LOCK_TWO_AHEAD, SEMAPHORE_RESUMING, "+watch", 0, 0},
	{AT_RESUMING, IN_LOCK_MISSING, SEMAPHORE_RESUMING,
	"+create +children", 0, 0},
	{AT_RESUMING, IN_LOCK_REFUSED, SEMAPHORE_ABANDONING, "",
	TOLD_FAILED | TOLD_LEFT, ERROR_REFUSED},

	{AT_RETRACTING, IN_DELETE_OK, SEMAPHORE_RESUMING, "search", 0, 0},
	{AT_RETRACTING, IN_DELETE_NO_NODE, SEMAPHORE_RESUMING, "search", 0, 0},
	{AT_RETRACTING, IN_DELETE_UNKNOWN, SEMAPHORE_RETRACTING, "delete", 0, 0},
	{AT_RETRACTING, IN_DELETE_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_FAILED | TOLD_LEFT, ERROR_REFUSED},
	{AT_RETRACTING, IN_RELEASE, SEMAPHORE_LEAVING, "", 0, 0},
	{AT_RETRACTING, IN_LOCK_FOUND, SEMAPHORE_RETRACTING, "+stat", 0, 0},
	{AT_RETRACTING, IN_LOCK_GRANTED, SEMAPHORE_RETRACTING, "+stat", 0, 0},
	{AT_RETRACTING, IN_LOCK_QUEUED, SEMAPHORE_RETRACTING, "+watch", 0, 0},
	{AT_RETRACTING, IN_LOCK_TWO_AHEAD, SEMAPHORE_RETRACTING, "+watch", 0, 0},
	{AT_RETRACTING, IN_LOCK_MISSING, SEMAPHORE_RETRACTING,
	"+create +children", 0, 0},
	{AT_RETRACTING, IN_LOCK_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_FAILED | TOLD_LEFT, ERROR_REFUSED},

	{AT_PREPARING, IN_ONE, SEMAPHORE_NONE, "", TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_TWO, SEMAPHORE_NONE, "", TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_OURS, SEMAPHORE_NONE, "", TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_OURS_FIRST, SEMAPHORE_NONE, "",
	TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_OURS_SECOND, SEMAPHORE_NONE, "",
	TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_OURS_THIRD, SEMAPHORE_NONE, "",
	TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_QUEUE_SECOND, SEMAPHORE_NONE, "",
	TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_QUEUE_THIRD, SEMAPHORE_NONE, "",
	TOLD_MIXED | TOLD_GONE, 0},
	{AT_PREPARING, IN_EMPTY, SEMAPHORE_PREPARING, "", 0, 0},
	{AT_PREPARING, IN_STRANGER, SEMAPHORE_PREPARING, "", 0, 0},
	{AT_PREPARING, IN_CHILDREN_UNKNOWN, SEMAPHORE_PREPARING, LOOK, 0, 0},
	{AT_PREPARING, IN_CHILDREN_NO_NODE, SEMAPHORE_PREPARING, LOOK_MADE,
	0, 0},
	{AT_PREPARING, IN_CHILDREN_REFUSED, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_REFUSED},
	{AT_PREPARING, IN_RELEASE, SEMAPHORE_NONE, "", TOLD_GONE, 0},
	{AT_PREPARING_MKDIRS, IN_CHILDREN_NO_NODE, SEMAPHORE_PREPARING,
	LOOK_MADE, 0, 0},
	{AT_PREPARING_NEW, IN_CHILDREN_NO_NODE, SEMAPHORE_PREPARING, LOOK_MADE,
	0, 0},
	{AT_PREPARING_NEW, IN_CHILDREN_UNKNOWN, SEMAPHORE_PREPARING,
	"mkdir(name) mkdir(locks) mkdir " LOOK, 0, 0},
	{AT_PREPARING_MKDIRS, IN_CHILDREN_UNKNOWN, SEMAPHORE_PREPARING,
	LOOK_MADE, 0, 0},
	{AT_PREPARING_IN_VAIN, IN_CHILDREN_UNKNOWN, SEMAPHORE_PREPARING,
	LOOK_MADE, 0, 0},
	{AT_PREPARING_IN_VAIN, IN_CHILDREN_NO_NODE, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_MKDIRS},

	{AT_PREPARING_LEASES, IN_EMPTY, SEMAPHORE_PREPARING, "", 0, 0},
	{AT_PREPARING_LEASES, IN_ONE, SEMAPHORE_PREPARING, "", 0, 0},
	{AT_PREPARING_LEASES, IN_TWO, SEMAPHORE_PREPARING, "", 0, 0},
	/* leases of ours that are not wanted go, and do not count */
	{AT_PREPARING_LEASES, IN_OURS, SEMAPHORE_PREPARING, "stray", 0, 0},
	{AT_PREPARING_LEASES, IN_OURS_FIRST, SEMAPHORE_PREPARING, "stray", 0, 0},
	{AT_PREPARING_LEASES, IN_OURS_SECOND, SEMAPHORE_PREPARING, "stray", 0, 0},
	{AT_PREPARING_LEASES, IN_OURS_THIRD, SEMAPHORE_PREPARING, "stray", 0, 0},
	{AT_PREPARING_LEASES, IN_STRANGER, SEMAPHORE_PREPARING, "",
	RECIPE_TOLD_STRANGER, 0},
	{AT_PREPARING_LEASES, IN_CHILDREN_UNKNOWN, SEMAPHORE_PREPARING, LOOK,
	0, 0},
	{AT_PREPARING_LEASES, IN_CHILDREN_NO_NODE, SEMAPHORE_PREPARING,
	LOOK_MADE, 0, 0},
	{AT_PREPARING_LEASES, IN_CHILDREN_REFUSED, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_REFUSED},
	{AT_PREPARING_LEASES, IN_RELEASE, SEMAPHORE_NONE, "", TOLD_GONE, 0},

	{AT_PREPARING_FREE, IN_GET_NONE, SEMAPHORE_QUEUEING, "+create +children",
	0, 0},
	{AT_PREPARING_FREE, IN_GET_OTHER, SEMAPHORE_QUEUEING,
	"+create +children", 0, 0},
	{AT_PREPARING_FREE, IN_GET_SAME, SEMAPHORE_QUEUEING, "+create +children",
	0, 0},
	{AT_PREPARING_FREE, IN_GET_MORE, SEMAPHORE_QUEUEING, "+create +children",
	0, 0},
	{AT_PREPARING_FREE, IN_GET_UNKNOWN, SEMAPHORE_PREPARING, LOOK, 0, 0},
	{AT_PREPARING_FREE, IN_GET_NO_NODE, SEMAPHORE_PREPARING, LOOK_MADE,
	0, 0},
	{AT_PREPARING_FREE, IN_GET_REFUSED, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_REFUSED},
	{AT_PREPARING_FREE, IN_RELEASE, SEMAPHORE_NONE, "", TOLD_GONE, 0},
	{AT_PREPARING_USED, IN_GET_NONE, SEMAPHORE_QUEUEING, "+create +children",
	0, 0},
	{AT_PREPARING_USED, IN_GET_OTHER, SEMAPHORE_QUEUEING,
	"+create +children", 0, 0},
	{AT_PREPARING_USED, IN_GET_SAME, SEMAPHORE_QUEUEING, "+create +children",
	0, 0},
	{AT_PREPARING_USED, IN_GET_MORE, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, 0},

	{AT_ENTERING, IN_LOCK_CREATED, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_ENTERING, IN_LOCK_CREATE_REFUSED, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_REFUSED},
	{AT_ENTERING, IN_RELEASE, SEMAPHORE_LEAVING, "", 0, 0},
	{AT_READING, IN_LOCK_GRANTED, SEMAPHORE_CHECKING, "+stat " LOOK, 0, 0},
	{AT_READING, IN_LOCK_FOUND, SEMAPHORE_CHECKING, "+stat " LOOK, 0, 0},
	{AT_READING, IN_LOCK_QUEUED, SEMAPHORE_QUEUEING,
	"+watch search children(locks)", 0, 0},
	{AT_READING, IN_LOCK_TWO_AHEAD, SEMAPHORE_QUEUEING,
	"+watch search children(locks)", 0, 0},
	{AT_READING, IN_LOCK_MISSING, SEMAPHORE_QUEUEING, "+create +children",
	0, 0},
	{AT_READING, IN_LOCK_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_READING, IN_RELEASE, SEMAPHORE_LEAVING, "+delete", 0, 0},

	{AT_QUEUEING, IN_LOCK_DELETED, SEMAPHORE_CHECKING, "+stat " LOOK, 0, 0},
	{AT_QUEUEING, IN_EMPTY, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING, IN_ONE, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING, IN_TWO, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING, IN_OURS, SEMAPHORE_QUEUEING, "stray", 0, 0},
	{AT_QUEUEING, IN_OURS_FIRST, SEMAPHORE_QUEUEING, "stray", 0, 0},
	{AT_QUEUEING, IN_OURS_SECOND, SEMAPHORE_QUEUEING, "stray", 0, 0},
	{AT_QUEUEING, IN_OURS_THIRD, SEMAPHORE_QUEUEING, "stray", 0, 0},
	{AT_QUEUEING, IN_STRANGER, SEMAPHORE_QUEUEING, "",
	RECIPE_TOLD_STRANGER, 0},
	{AT_QUEUEING, IN_CHILDREN_NO_NODE, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING, IN_CHILDREN_UNKNOWN, SEMAPHORE_QUEUEING,
	"search children(locks)", 0, 0},
	{AT_QUEUEING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING,
	"+unwatch +delete", TOLD_FAILED, ERROR_REFUSED},
	{AT_QUEUEING, IN_RELEASE, SEMAPHORE_LEAVING, "+unwatch +delete", 0, 0},
	/* one lease, one ahead: both get through */
	{AT_QUEUEING_ONE, IN_QUEUE_SECOND, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING_ONE, IN_QUEUE_THIRD, SEMAPHORE_QUEUEING, "",
	TOLD_QUEUED, 0},
	{AT_QUEUEING_TWO, IN_QUEUE_SECOND, SEMAPHORE_QUEUEING, "",
	TOLD_QUEUED, 0},
	{AT_QUEUEING_TWO, IN_QUEUE_THIRD, SEMAPHORE_QUEUEING, "",
	TOLD_QUEUED, 0},
	{AT_QUEUEING_ONE, IN_EMPTY, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING_ONE, IN_CHILDREN_NO_NODE, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING_ONE, IN_CHILDREN_REFUSED, SEMAPHORE_QUEUEING, "", 0, 0},
	{AT_QUEUEING_ONE, IN_CHILDREN_UNKNOWN, SEMAPHORE_QUEUEING,
	"search children(locks)", 0, 0},
	{AT_QUEUEING_READ, IN_LOCK_DELETED, SEMAPHORE_CHECKING, "+stat " LOOK,
	0, 0},
	{AT_QUEUEING_READ, IN_RELEASE, SEMAPHORE_LEAVING, "+unwatch +delete",
	0, 0},

	{AT_CHECKING, IN_ONE, SEMAPHORE_LEAVING, "+delete", TOLD_MIXED, 0},
	{AT_CHECKING, IN_EMPTY, SEMAPHORE_CHECKING, "", 0, 0},
	{AT_CHECKING, IN_STRANGER, SEMAPHORE_CHECKING, "", 0, 0},
	{AT_CHECKING, IN_CHILDREN_UNKNOWN, SEMAPHORE_CHECKING, LOOK, 0, 0},
	{AT_CHECKING, IN_CHILDREN_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE, 0, 0},
	{AT_CHECKING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_CHECKING, IN_RELEASE, SEMAPHORE_LEAVING, "+delete", 0, 0},
	{AT_CHECKING, IN_LOCK_LOST, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_NO_NODE},
	{AT_CHECKING_LEASES, IN_EMPTY, SEMAPHORE_CHECKING, "", 0, 0},
	{AT_CHECKING_LEASES, IN_OURS_SECOND, SEMAPHORE_CHECKING, "stray", 0, 0},
	{AT_CHECKING_LEASES, IN_CHILDREN_UNKNOWN, SEMAPHORE_CHECKING, LOOK,
	0, 0},
	{AT_CHECKING_LEASES, IN_CHILDREN_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE,
	0, 0},
	{AT_CHECKING_LEASES, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_CHECKING_FREE, IN_GET_SAME, SEMAPHORE_CREATING, "create children",
	0, 0},
	{AT_CHECKING_FREE, IN_GET_NONE, SEMAPHORE_AGREEING, "set", 0, 0},
	{AT_CHECKING_FREE, IN_GET_OTHER, SEMAPHORE_AGREEING, "set", 0, 0},
	{AT_CHECKING_FREE, IN_GET_MORE, SEMAPHORE_AGREEING, "set", 0, 0},
	{AT_CHECKING_FREE, IN_GET_UNKNOWN, SEMAPHORE_CHECKING, LOOK, 0, 0},
	{AT_CHECKING_FREE, IN_GET_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE, 0, 0},
	{AT_CHECKING_FREE, IN_GET_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_CHECKING_USED, IN_GET_SAME, SEMAPHORE_CREATING, "create children",
	0, 0},
	{AT_CHECKING_USED, IN_GET_NONE, SEMAPHORE_AGREEING, "set", 0, 0},
	{AT_CHECKING_USED, IN_GET_OTHER, SEMAPHORE_AGREEING, "set", 0, 0},
	{AT_CHECKING_USED, IN_GET_MORE, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, 0},

	{AT_AGREEING, IN_SET_OK, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_AGREEING, IN_SET_UNKNOWN, SEMAPHORE_AGREEING, "set", 0, 0},
	{AT_AGREEING, IN_SET_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE, 0, 0},
	{AT_AGREEING, IN_SET_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_AGREEING, IN_RELEASE, SEMAPHORE_LEAVING, "+delete", 0, 0},
	{AT_AGREEING, IN_LOCK_LOST, SEMAPHORE_NONE, "",
	TOLD_FAILED | TOLD_GONE, ERROR_NO_NODE},

	{AT_CREATING, IN_CREATE_OK, SEMAPHORE_COUNTING, "", 0, 0},
	{AT_CREATING, IN_CREATE_ODD, SEMAPHORE_SEARCHING, "search", 0, 0},
	{AT_CREATING, IN_CREATE_UNKNOWN, SEMAPHORE_SEARCHING, "search", 0, 0},
	{AT_CREATING, IN_CREATE_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE, 0, 0},
	{AT_CREATING, IN_CREATE_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_CREATING, IN_RELEASE, SEMAPHORE_CANCELLING, "", 0, 0},
	{AT_CREATING, IN_LOCK_LOST, SEMAPHORE_CANCELLING, "",
	TOLD_FAILED, ERROR_NO_NODE},

	{AT_SEARCHING, IN_OURS, SEMAPHORE_OWNER, "stat +delete",
	TOLD_GRANTED, 0},
	{AT_SEARCHING, IN_OURS_FIRST, SEMAPHORE_OWNER, "stat +delete",
	TOLD_GRANTED, 0},
	{AT_SEARCHING, IN_OURS_SECOND, SEMAPHORE_OWNER, "stat +delete",
	TOLD_GRANTED, 0},
	{AT_SEARCHING, IN_OURS_THIRD, SEMAPHORE_WAITING, "list",
	TOLD_QUEUED, 0},
	{AT_SEARCHING, IN_EMPTY, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_SEARCHING, IN_STRANGER, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_SEARCHING, IN_ONE, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_SEARCHING, IN_TWO, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_SEARCHING, IN_CHILDREN_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE, 0, 0},
	{AT_SEARCHING, IN_CHILDREN_UNKNOWN, SEMAPHORE_SEARCHING, "search", 0, 0},
	{AT_SEARCHING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_FAILED | TOLD_LEFT, ERROR_REFUSED},
	{AT_SEARCHING, IN_RELEASE, SEMAPHORE_ABANDONING, "", 0, 0},
	{AT_SEARCHING, IN_LOCK_LOST, SEMAPHORE_ABANDONING, "",
	TOLD_FAILED, ERROR_NO_NODE},

	{AT_COUNTING, IN_OURS, SEMAPHORE_OWNER, "stat +delete",
	TOLD_GRANTED, 0},
	{AT_COUNTING, IN_OURS_FIRST, SEMAPHORE_OWNER, "stat +delete",
	TOLD_GRANTED, 0},
	{AT_COUNTING, IN_OURS_SECOND, SEMAPHORE_OWNER, "stat +delete",
	TOLD_GRANTED, 0},
	{AT_COUNTING, IN_OURS_THIRD, SEMAPHORE_WAITING, "list", TOLD_QUEUED, 0},
	{AT_COUNTING, IN_EMPTY, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_COUNTING, IN_STRANGER, SEMAPHORE_CREATING, "create children",
	RECIPE_TOLD_STRANGER, 0},
	{AT_COUNTING, IN_ONE, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_COUNTING, IN_TWO, SEMAPHORE_CREATING, "create children", 0, 0},
	{AT_COUNTING, IN_CHILDREN_UNKNOWN, SEMAPHORE_COUNTING, "children", 0, 0},
	{AT_COUNTING, IN_CHILDREN_NO_NODE, SEMAPHORE_CHECKING, LOOK_MADE, 0, 0},
	{AT_COUNTING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "delete +delete",
	TOLD_FAILED, ERROR_REFUSED},
	{AT_COUNTING, IN_RELEASE, SEMAPHORE_LEAVING, "delete +delete", 0, 0},
	{AT_COUNTING, IN_LOCK_LOST, SEMAPHORE_LEAVING, "delete",
	TOLD_FAILED, ERROR_NO_NODE},

	{AT_WAITING, IN_OURS, SEMAPHORE_OWNER, "unwatch stat +delete",
	TOLD_GRANTED, 0},
	{AT_WAITING, IN_OURS_FIRST, SEMAPHORE_OWNER, "unwatch stat +delete",
	TOLD_GRANTED, 0},
	{AT_WAITING, IN_OURS_SECOND, SEMAPHORE_OWNER, "unwatch stat +delete",
	TOLD_GRANTED, 0},
	{AT_WAITING, IN_OURS_THIRD, SEMAPHORE_WAITING, "", 0, 0},
	{AT_WAITING, IN_EMPTY, SEMAPHORE_CREATING, "unwatch create children",
	0, 0},
	{AT_WAITING, IN_STRANGER, SEMAPHORE_CREATING, "unwatch create children",
	RECIPE_TOLD_STRANGER, 0},
	{AT_WAITING, IN_ONE, SEMAPHORE_CREATING, "unwatch create children",
	0, 0},
	{AT_WAITING, IN_TWO, SEMAPHORE_CREATING, "unwatch create children",
	0, 0},
	{AT_WAITING, IN_TOUCHED, SEMAPHORE_WAITING, "list", 0, 0},
	{AT_WAITING, IN_DELETED, SEMAPHORE_WAITING, "list", 0, 0},
	{AT_WAITING, IN_CHILDREN_UNKNOWN, SEMAPHORE_WAITING, "list", 0, 0},
	{AT_WAITING, IN_CHILDREN_NO_NODE, SEMAPHORE_CHECKING,
	"unwatch " LOOK_MADE, 0, 0},
	{AT_WAITING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING,
	"unwatch delete +delete", TOLD_FAILED, ERROR_REFUSED},
	{AT_WAITING, IN_RELEASE, SEMAPHORE_LEAVING, "unwatch delete +delete",
	0, 0},
	{AT_WAITING, IN_LOCK_LOST, SEMAPHORE_LEAVING, "unwatch delete",
	TOLD_FAILED, ERROR_NO_NODE},

	{AT_OWNER, IN_STAT_OURS, SEMAPHORE_OWNER, "", RECIPE_TOLD_TOKEN, 0},
	{AT_OWNER, IN_STAT_FOREIGN, SEMAPHORE_LEAVING, "", TOLD_LOST, 0},
	{AT_OWNER, IN_STAT_NO_NODE, SEMAPHORE_LEAVING, "", TOLD_LOST,
	ERROR_NO_NODE},
	{AT_OWNER, IN_STAT_UNKNOWN, SEMAPHORE_OWNER, "stat", 0, 0},
	{AT_OWNER, IN_RELEASE, SEMAPHORE_LEAVING, "delete", 0, 0},
	{AT_OWNER, IN_LOCK_GONE, SEMAPHORE_OWNER, "", 0, 0},
	{AT_OWNER, IN_LOCK_LEFT, SEMAPHORE_OWNER, "", TOLD_LEFT, ERROR_REFUSED},
	{AT_OWNER_ALONE, IN_STAT_OURS, SEMAPHORE_OWNER, "",
	RECIPE_TOLD_TOKEN, 0},
	{AT_OWNER_ALONE, IN_STAT_FOREIGN, SEMAPHORE_NONE, "",
	TOLD_LOST | TOLD_GONE, 0},
	{AT_OWNER_ALONE, IN_STAT_NO_NODE, SEMAPHORE_NONE, "",
	TOLD_LOST | TOLD_GONE, ERROR_NO_NODE},
	{AT_OWNER_ALONE, IN_STAT_UNKNOWN, SEMAPHORE_OWNER, "stat", 0, 0},
	{AT_OWNER_ALONE, IN_RELEASE, SEMAPHORE_LEAVING, "delete", 0, 0},

	{AT_RECLAIMING, IN_OURS, SEMAPHORE_OWNER, "stat", 0, 0},
	{AT_RECLAIMING, IN_OURS_FIRST, SEMAPHORE_OWNER, "stat", 0, 0},
	{AT_RECLAIMING, IN_OURS_SECOND, SEMAPHORE_OWNER, "stat", 0, 0},
	{AT_RECLAIMING, IN_OURS_THIRD, SEMAPHORE_OWNER, "stat", 0, 0},
	{AT_RECLAIMING, IN_EMPTY, SEMAPHORE_LEAVING, "", TOLD_LOST, 0},
	{AT_RECLAIMING, IN_ONE, SEMAPHORE_LEAVING, "", TOLD_LOST, 0},
	{AT_RECLAIMING, IN_CHILDREN_NO_NODE, SEMAPHORE_LEAVING, "",
	TOLD_LOST, 0},
	{AT_RECLAIMING, IN_CHILDREN_UNKNOWN, SEMAPHORE_RECLAIMING, "search",
	0, 0},
	{AT_RECLAIMING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_LOST | TOLD_LEFT, ERROR_REFUSED},
	{AT_RECLAIMING, IN_RELEASE, SEMAPHORE_ABANDONING, "", 0, 0},
	{AT_RECLAIMING, IN_LOCK_MISSING, SEMAPHORE_RECLAIMING, "", 0, 0},
	{AT_RECLAIMING, IN_LOCK_FOUND, SEMAPHORE_RECLAIMING, "+delete", 0, 0},
	{AT_RECLAIMING, IN_LOCK_GRANTED, SEMAPHORE_RECLAIMING, "+delete", 0, 0},
	{AT_RECLAIMING, IN_LOCK_QUEUED, SEMAPHORE_RECLAIMING, "+delete", 0, 0},
	{AT_RECLAIMING, IN_LOCK_REFUSED, SEMAPHORE_RECLAIMING, "",
	TOLD_LEFT, ERROR_REFUSED},

	{AT_CANCELLING, IN_CREATE_OK, SEMAPHORE_LEAVING, "delete +delete", 0, 0},
	{AT_CANCELLING, IN_CREATE_ODD, SEMAPHORE_ABANDONING, "search", 0, 0},
	{AT_CANCELLING, IN_CREATE_UNKNOWN, SEMAPHORE_ABANDONING, "search", 0, 0},
	{AT_CANCELLING, IN_CREATE_NO_NODE, SEMAPHORE_LEAVING, "+delete", 0, 0},
	{AT_CANCELLING, IN_CREATE_REFUSED, SEMAPHORE_LEAVING, "+delete", 0, 0},

	{AT_ABANDONING, IN_OURS, SEMAPHORE_LEAVING, "delete +delete", 0, 0},
	{AT_ABANDONING, IN_OURS_FIRST, SEMAPHORE_LEAVING, "delete +delete",
	0, 0},
	{AT_ABANDONING, IN_OURS_SECOND, SEMAPHORE_LEAVING, "delete +delete",
	0, 0},
	{AT_ABANDONING, IN_OURS_THIRD, SEMAPHORE_LEAVING, "delete +delete",
	0, 0},
	{AT_ABANDONING, IN_EMPTY, SEMAPHORE_LEAVING, "+delete", 0, 0},
	{AT_ABANDONING, IN_ONE, SEMAPHORE_LEAVING, "+delete", 0, 0},
	{AT_ABANDONING, IN_CHILDREN_NO_NODE, SEMAPHORE_LEAVING, "+delete", 0, 0},
	{AT_ABANDONING, IN_CHILDREN_UNKNOWN, SEMAPHORE_ABANDONING, "search",
	0, 0},
	{AT_ABANDONING, IN_CHILDREN_REFUSED, SEMAPHORE_LEAVING, "+delete",
	TOLD_LEFT, ERROR_REFUSED},

	{AT_LEAVING, IN_DELETE_OK, SEMAPHORE_LEAVING, "", 0, 0},
	{AT_LEAVING, IN_DELETE_NO_NODE, SEMAPHORE_LEAVING, "", 0, 0},
	{AT_LEAVING, IN_DELETE_UNKNOWN, SEMAPHORE_LEAVING, "delete", 0, 0},
	{AT_LEAVING, IN_DELETE_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_LEFT, ERROR_REFUSED},
	{AT_LEAVING, IN_LOCK_GONE, SEMAPHORE_LEAVING, "", 0, 0},
	{AT_LEAVING, IN_LOCK_LEFT, SEMAPHORE_LEAVING, "",
	TOLD_LEFT, ERROR_REFUSED},
	{AT_LEAVING_LEASE, IN_DELETE_OK, SEMAPHORE_NONE, "", TOLD_GONE, 0},
	{AT_LEAVING_LEASE, IN_DELETE_NO_NODE, SEMAPHORE_NONE, "", TOLD_GONE, 0},
	{AT_LEAVING_LEASE, IN_DELETE_UNKNOWN, SEMAPHORE_LEAVING, "delete", 0, 0},
	{AT_LEAVING_LEASE, IN_DELETE_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_LEFT, ERROR_REFUSED},
	{AT_LEAVING_LOCK, IN_LOCK_GONE, SEMAPHORE_NONE, "", TOLD_GONE, 0},
	{AT_LEAVING_LOCK, IN_LOCK_LEFT, SEMAPHORE_LEAVING, "",
	TOLD_LEFT, ERROR_REFUSED},
	{AT_LEAVING_REFUSED, IN_RETRY, SEMAPHORE_LEAVING, "delete", 0, 0},
	/* no delete is out then, but an answer would be taken for what it says */
	{AT_LEAVING_REFUSED, IN_DELETE_OK, SEMAPHORE_NONE, "", TOLD_GONE, 0},
	{AT_LEAVING_REFUSED, IN_DELETE_NO_NODE, SEMAPHORE_NONE, "",
	TOLD_GONE, 0},
	{AT_LEAVING_REFUSED, IN_DELETE_UNKNOWN, SEMAPHORE_LEAVING, "delete",
	0, 0},
	{AT_LEAVING_REFUSED, IN_DELETE_REFUSED, SEMAPHORE_LEAVING, "",
	TOLD_LEFT, ERROR_REFUSED}
};

static const char *
op_name(RecipeOpKind kind)
{
	static const char *const names[] = {
		[RECIPE_OP_MKDIR] = "mkdir",
		[RECIPE_OP_MKDIRS] = "mkdirs",
		[RECIPE_OP_CREATE] = "create",
		[RECIPE_OP_CHILDREN] = "children",
		[RECIPE_OP_SEARCH] = "search",
		[RECIPE_OP_LIST] = "list",
		[RECIPE_OP_WATCH] = "watch",
		[RECIPE_OP_UNWATCH] = "unwatch",
		[RECIPE_OP_GET] = "get",
		[RECIPE_OP_SET] = "set",
		[RECIPE_OP_STAT] = "stat",
		[RECIPE_OP_DELETE] = "delete",
		[RECIPE_OP_DELETE_STRAY] = "stray"
	};

	return names[kind];
}

/* Which node an operation of our own must be about. */
static const char *
expected_node(RecipeOpKind kind)
{
	switch (kind)
	{
		case RECIPE_OP_CREATE:
			return LEASE_PREFIX;
		case RECIPE_OP_STAT:
		case RECIPE_OP_DELETE:
		case RECIPE_OP_DELETE_STRAY:
			return LEASE;
		default:
			return NULL;		/* the directory */
	}
}

/* The operations of a step as text; each is checked for what text omits. */
static const char *
describe_ops(const Semaphore *semaphore, const SemaphoreOutput *out)
{
	static const char *const places[] = {"(name)", "(locks)", ""};
	static char text[1024];
	size_t		used = 0;

	text[0] = '\0';
	for (int i = 0; i < out->nops; i++)
	{
		const RecipeOp *op = &out->ops[i].op;
		SemaphorePlace place = out->ops[i].place;
		const char *node = expected_node(op->kind);
		bool		agreement = op->kind == RECIPE_OP_SET ||
			(op->kind == RECIPE_OP_MKDIR && place == SEMAPHORE_LEASES);

		if (out->ops[i].for_lock)
		{
			assert_int_equal(place, SEMAPHORE_LOCKS);
			used += snprintf(text + used, sizeof(text) - used, "%s+%s",
							 i > 0 ? " " : "", op_name(op->kind));
			continue;
		}
		if (node == NULL)
			assert_null(op->node);
		else
			assert_string_equal(op->node, node);
		if (agreement)
			assert_string_equal(op->data, semaphore->agreement);
		else
			assert_null(op->data);
		/* nobody waits for the answers of these */
		if (op->kind != RECIPE_OP_UNWATCH && op->kind != RECIPE_OP_DELETE_STRAY)
			assert_int_equal(op->serial, semaphore->serial);
		used += snprintf(text + used, sizeof(text) - used, "%s%s%s",
						 i > 0 ? " " : "", op_name(op->kind), places[place]);
	}
	assert_true(used < sizeof(text));
	return text;
}

static void
fill_input(const Semaphore *semaphore, Input input, RecipeInput *in)
{
	memset(in, 0, sizeof(*in));
	in->event = inputs[input].event;
	in->result = inputs[input].result;
	if (in->result == RECIPE_NO_NODE)
		in->error = ERROR_NO_NODE;
	else if (in->result == RECIPE_REFUSED)
		in->error = in->event == RECIPE_MKDIR_DONE ? ERROR_MKDIRS :
			ERROR_REFUSED;
	in->serial = inputs[input].for_lock ? semaphore->lock.serial :
		semaphore->serial;
	in->node = inputs[input].node;
	in->children = inputs[input].children;
	while (in->nchildren < (int) lengthof(inputs[input].children) &&
		   in->children[in->nchildren] != NULL)
		in->nchildren++;
	in->data = inputs[input].data;
	in->data_len = in->data ? (int) strlen(in->data) : -1;
	in->czxid = TOKEN;
	in->ours = inputs[input].ours;
}

static void
give(Semaphore *semaphore, Input input, SemaphoreOutput *out)
{
	RecipeInput in;

	memset(out, 0xFF, sizeof(*out));	/* it has to be filled anew */
	if (input == IN_WANT || input == IN_WANT_NEW)
	{
		semaphore_want(semaphore, our_uuid, PERMITS, input == IN_WANT, out);
		return;
	}
	fill_input(semaphore, input, &in);
	semaphore_step(semaphore, inputs[input].for_lock, &in, out);
}

static void
bring_to(Semaphore *semaphore, Situation at)
{
	SemaphoreOutput out;

	semaphore_init(semaphore);
	if (situations[at].resumed)
		semaphore_resume(semaphore, our_uuid, PERMITS,
						 (RecipeResume) (situations[at].resumed - 1), &out);
	for (int i = 0; situations[at].way[i] != IN_END; i++)
		give(semaphore, situations[at].way[i], &out);
	assert_string_equal(semaphore_state_name(semaphore->state),
						semaphore_state_name(situations[at].state));
}

static void
test_transition(void **state)
{
	const Transition *line = *state;
	Semaphore	semaphore;
	SemaphoreOutput out;

	bring_to(&semaphore, line->at);
	give(&semaphore, line->input, &out);

	assert_string_equal(describe_ops(&semaphore, &out), line->ops);
	assert_string_equal(semaphore_state_name(semaphore.state),
						semaphore_state_name(line->state));
	assert_int_equal(out.told, line->told);
	assert_int_equal(out.error, line->error);
	assert_int_equal(out.permits_found,
					 line->input == IN_GET_MORE &&
					 (line->told & TOLD_FAILED) ? 12 : 0);
	if (out.told & RECIPE_TOLD_TOKEN)
		assert_true(out.token == TOKEN);
	if (out.told & RECIPE_TOLD_STRANGER)
	{
		assert_string_equal(out.stranger, "locks");
		assert_int_equal(out.stranger_place, SEMAPHORE_LEASES);
	}
	if (out.told & RECIPE_TOLD_LEFT)
	{
		assert_int_equal(out.left_place, inputs[line->input].for_lock ?
						 SEMAPHORE_LOCKS : SEMAPHORE_LEASES);
		assert_ptr_equal(out.left, inputs[line->input].for_lock ?
						 semaphore.lock.node : semaphore.node);
	}
	if (semaphore.state == SEMAPHORE_NONE)
		assert_int_equal(semaphore.lock.state, RECIPE_NONE);
	semaphore_free(&semaphore);
}

/*
 * Every input in every situation.  Those whose event no line of the situation
 * is about leave the semaphore as it is, to the bit, send nothing and tell
 * nothing; so do all if the answer is to an earlier operation.  What the
 * lock's recipe makes of its own is test_recipe's matter.
 */
static void
test_everything_else_is_ignored(void **state)
{
	int			ignored = 0;

	(void) state;
	for (Situation at = 0; at < NSITUATIONS; at++)
	{
		for (Input input = IN_MKDIR_OK; input < NINPUTS; input++)
		{
			bool		listed = false;

			for (size_t i = 0; i < lengthof(transitions); i++)
			{
				Input		other = transitions[i].input;

				if (transitions[i].at == at && other > IN_WANT_NEW &&
					inputs[other].for_lock == inputs[input].for_lock &&
					(inputs[input].for_lock ? other == input :
					 inputs[other].event == inputs[input].event))
					listed = true;
			}
			/* lines that the variants of a situation have in common */
			if (situations[at].state == SEMAPHORE_PREPARING &&
				inputs[input].event == RECIPE_CHILDREN_DONE &&
				at != AT_PREPARING_FREE && at != AT_PREPARING_USED)
				listed = true;
			if (at == AT_QUEUEING_TWO &&
				inputs[input].event == RECIPE_CHILDREN_DONE)
				listed = true;
			/* nothing was sent under the latest serial number */
			if ((at == AT_ENTERING || at == AT_READING ||
				 at == AT_QUEUEING_READ) &&
				inputs[input].event == RECIPE_CHILDREN_DONE)
				listed = true;

			for (int stale = 0; stale < 2; stale++)
			{
				Semaphore	semaphore;
				Semaphore	before;
				SemaphoreOutput out;
				RecipeInput in;

				if (listed && !stale)
					continue;
				if (stale && inputs[input].for_lock)
					continue;
				bring_to(&semaphore, at);
				before = semaphore;
				fill_input(&semaphore, input, &in);
				in.serial -= stale;
				memset(&out, 0xFF, sizeof(out));
				semaphore_step(&semaphore, inputs[input].for_lock, &in, &out);

				/* how making the directories went is kept for the reads */
				if (in.event == RECIPE_MKDIR_DONE && !stale)
					semaphore.mkdir_error = before.mkdir_error;
				if (inputs[input].for_lock)
				{
					semaphore_free(&semaphore);
					if (semaphore.state != before.state || out.told != 0)
						fail_msg("%s, input %d: now %s, %#x",
								 situations[at].name, input,
								 semaphore_state_name(semaphore.state),
								 out.told);
					continue;
				}
				if (memcmp(&semaphore, &before, sizeof(semaphore)) != 0 ||
					out.nops != 0 || out.told != 0)
					fail_msg("%s, input %d%s: now %s, \"%s\", %#x",
							 situations[at].name, input,
							 stale ? ", stale" : "",
							 semaphore_state_name(semaphore.state),
							 describe_ops(&semaphore, &out), out.told);
				ignored++;
				semaphore_free(&semaphore);
			}
		}
	}
	assert_in_range(ignored, 1000, INT_MAX);
}

/* Release, retry and the end of the session, wherever no line tells more. */
static void
test_ends_everywhere(void **state)
{
	(void) state;
	for (Situation at = 0; at < NSITUATIONS; at++)
	{
		Semaphore	semaphore;
		SemaphoreOutput out;
		bool		released;
		unsigned	told = at == AT_NONE ? 0 : TOLD_GONE;

		/* nothing was refused */
		bring_to(&semaphore, at);
		if (at != AT_LEAVING_REFUSED)
		{
			give(&semaphore, IN_RETRY, &out);
			assert_int_equal(semaphore.state, situations[at].state);
			assert_int_equal(out.nops, 0);
			assert_int_equal(out.told, 0);
		}

		/* who leaves already goes on with it */
		released = at == AT_NONE || semaphore.state == SEMAPHORE_CANCELLING ||
			semaphore.state == SEMAPHORE_ABANDONING ||
			semaphore.state == SEMAPHORE_LEAVING;
		give(&semaphore, IN_RELEASE, &out);
		assert_int_equal(out.told & ~TOLD_GONE, 0);
		if (released)
		{
			assert_int_equal(semaphore.state, situations[at].state);
			assert_int_equal(out.nops, 0);
		}
		else
			assert_int_not_equal(semaphore.state, situations[at].state);
		give(&semaphore, IN_RELEASE, &out);
		assert_int_equal(out.nops, 0);
		assert_int_equal(out.told, 0);
		semaphore_free(&semaphore);

		bring_to(&semaphore, at);
		if (semaphore.state == SEMAPHORE_OWNER ||
			semaphore.state == SEMAPHORE_RECLAIMING)
			told |= TOLD_LOST;
		give(&semaphore, IN_EXPIRED, &out);
		assert_int_equal(semaphore.state, SEMAPHORE_NONE);
		assert_int_equal(semaphore.lock.state, RECIPE_NONE);
		assert_int_equal(out.nops, 0);
		assert_int_equal(out.told, told);

		/* what comes in late is nobody's, and it can be used again */
		for (Input input = IN_RELEASE; input < NINPUTS; input++)
		{
			give(&semaphore, input, &out);
			assert_int_equal(semaphore.state, SEMAPHORE_NONE);
			assert_int_equal(out.nops, 0);
			assert_int_equal(out.told, 0);
		}
		give(&semaphore, IN_WANT, &out);
		assert_string_equal(describe_ops(&semaphore, &out), LOOK);
		semaphore_free(&semaphore);
	}
}

/*-------------------------------------------------------------------------
 * What the table does not say
 *-------------------------------------------------------------------------
 */

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

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
	{
		Semaphore	semaphore;
		SemaphoreOutput out;
		RecipeInput in = {.event = RECIPE_GET_DONE};

		bring_to(&semaphore, AT_PREPARING_USED);
		in.serial = semaphore.serial;
		in.data = examples[i].data;
		in.data_len = examples[i].len >= 0 ? examples[i].len :
			examples[i].data ? (int) strlen(examples[i].data) : -1;
		semaphore_step(&semaphore, false, &in, &out);
		assert_int_equal(out.permits_found, examples[i].permits);
		assert_int_equal(out.told, examples[i].permits ?
						 TOLD_FAILED | TOLD_GONE : 0);
		semaphore_free(&semaphore);
	}

	/* what we write can be read */
	for (int permits = 1; permits > 0; permits = permits < INT_MAX / 7 ?
		 permits * 7 : permits < INT_MAX ? INT_MAX : 0)
	{
		Semaphore	semaphore;
		SemaphoreOutput out;
		RecipeInput in = {.event = RECIPE_GET_DONE};
		char		data[SEMAPHORE_DATA_SIZE];

		semaphore_init(&semaphore);
		semaphore_want(&semaphore, our_uuid, permits, true, &out);
		strcpy(data, semaphore.agreement);
		give(&semaphore, IN_EXPIRED, &out);
		bring_to(&semaphore, AT_PREPARING_USED);
		in.serial = semaphore.serial;
		in.data = data;
		in.data_len = (int) strlen(data);
		semaphore_step(&semaphore, false, &in, &out);
		assert_int_equal(out.permits_found, permits == PERMITS ? 0 : permits);
		semaphore_free(&semaphore);
	}
}

/* A number is no agreement any more when its leases are ours, or gone. */
static void
test_own_lease_is_no_agreement(void **state)
{
	Semaphore	semaphore;
	SemaphoreOutput out;

	(void) state;
	bring_to(&semaphore, AT_CHECKING_LEASES);
	give(&semaphore, IN_OURS, &out);
	give(&semaphore, IN_GET_MORE, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "set");
	assert_int_equal(out.told, 0);
	semaphore_free(&semaphore);
}

/* Queued is told when it is certain, for any number of permits. */
static void
test_queued_is_certain(void **state)
{
	static const char *const leases[] = {
		OTHER("lease", 1), OTHER("lease", 2), OTHER("lease", 3)
	};
	static const char *const locks[] = {
		LOCK, OTHER("lock", 4), OTHER("lock", 3), OTHER("lock", 2)
	};

	(void) state;
	for (int permits = 1; permits <= 5; permits++)
	{
		for (int nleases = 0; nleases <= 3; nleases++)
		{
			for (int ahead = 1; ahead <= 3; ahead++)
			{
				Semaphore	semaphore;
				SemaphoreOutput out;
				RecipeInput in = {.event = RECIPE_CHILDREN_DONE};

				bring_to(&semaphore, AT_QUEUEING);
				semaphore.permits = permits;
				in.serial = semaphore.serial;
				in.children = leases;
				in.nchildren = nleases;
				semaphore_step(&semaphore, false, &in, &out);
				assert_int_equal(out.told, 0);
				in.children = locks;
				in.nchildren = 1 + ahead;
				semaphore_step(&semaphore, false, &in, &out);
				assert_int_equal(out.told, nleases + ahead > permits ?
								 TOLD_QUEUED : 0);
				assert_int_equal(out.nops, 0);
				semaphore_free(&semaphore);
			}
		}
	}
}

/* Each news of the queue has the leases read again; older answers are void. */
static void
test_queue_is_read_again(void **state)
{
	Semaphore	semaphore;
	SemaphoreOutput out;
	RecipeInput in;

	(void) state;
	bring_to(&semaphore, AT_READING);
	give(&semaphore, IN_LOCK_TWO_AHEAD, &out);
	give(&semaphore, IN_TWO, &out);
	fill_input(&semaphore, IN_QUEUE_THIRD, &in);	/* on its way */
	give(&semaphore, IN_LOCK_DELETED, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "+children");
	give(&semaphore, IN_LOCK_QUEUED, &out);
	assert_string_equal(describe_ops(&semaphore, &out),
						"+watch search children(locks)");
	semaphore_step(&semaphore, false, &in, &out);
	assert_int_equal(out.told, 0);
	give(&semaphore, IN_ONE, &out);
	give(&semaphore, IN_QUEUE_SECOND, &out);
	assert_int_equal(out.told, 0);

	/* a contender of ours that has gone meanwhile waits for nothing */
	give(&semaphore, IN_LOCK_DELETED, &out);
	assert_int_equal(semaphore.state, SEMAPHORE_CHECKING);
	semaphore_free(&semaphore);

	bring_to(&semaphore, AT_QUEUEING_TWO);
	give(&semaphore, IN_TWO, &out);
	assert_int_equal(out.told, 0);
	semaphore_free(&semaphore);
}

/* Another lease of ours is deleted as soon as it is seen, and never counts. */
static void
test_stray_lease(void **state)
{
	static const char *const children[] = {
		UUID_TEXT "-lease-0000000005", LEASE, OTHER("lease", 3),
		UUID_TEXT "-lease-0000000009"
	};
	Semaphore	semaphore;
	SemaphoreOutput out;
	RecipeInput in = {.event = RECIPE_CHILDREN_DONE};

	(void) state;
	bring_to(&semaphore, AT_COUNTING);
	in.serial = semaphore.serial;
	in.children = children;
	in.nchildren = lengthof(children);
	semaphore_step(&semaphore, false, &in, &out);
	assert_int_equal(out.told, TOLD_GRANTED);
	assert_int_equal(out.nops, 4);
	assert_int_equal(out.ops[0].op.kind, RECIPE_OP_DELETE_STRAY);
	assert_ptr_equal(out.ops[0].op.node, children[0]);
	assert_int_equal(out.ops[1].op.kind, RECIPE_OP_DELETE_STRAY);
	assert_ptr_equal(out.ops[1].op.node, children[3]);
	assert_int_equal(out.ops[2].op.kind, RECIPE_OP_STAT);
	assert_int_equal(out.ops[3].op.kind, RECIPE_OP_DELETE);
	semaphore_free(&semaphore);
}

/* However many strays, what the step is about is still sent. */
static void
test_strays_leave_room(void **state)
{
	char		names[30][ZNODE_CONTENDER_SIZE];
	const char *children[31];
	Semaphore	semaphore;
	SemaphoreOutput out;
	RecipeInput in = {.event = RECIPE_CHILDREN_DONE};

	(void) state;
	for (int i = 0; i < 30; i++)
	{
		znode_contender_name(our_uuid, ZNODE_LEASE, 100 + i, names[i]);
		children[i] = names[i];
	}
	children[30] = LEASE;
	for (int with = 0; with < 2; with++)
	{
		bring_to(&semaphore, AT_WAITING);
		in.serial = semaphore.serial;
		in.children = children;
		in.nchildren = 30 + with;
		semaphore_step(&semaphore, false, &in, &out);
		assert_in_range(out.nops, RECIPE_MAX_OPS, SEMAPHORE_MAX_OPS);
		assert_int_equal(out.ops[out.nops - 3].op.kind, RECIPE_OP_UNWATCH);
		assert_int_equal(out.ops[out.nops - 2].op.kind,
						 with ? RECIPE_OP_STAT : RECIPE_OP_CREATE);
		assert_int_equal(out.ops[out.nops - 1].op.kind,
						 with ? RECIPE_OP_DELETE : RECIPE_OP_CHILDREN);
		semaphore_free(&semaphore);
	}
}

/* The order of leases goes over the overflow of the server's counter. */
static void
test_lease_order_wraps(void **state)
{
	static const char *const children[] = {
		OTHER("lease", 1), UUID_TEXT "-lease-2147483647",
		THIRD("lease", 2), "_c_x-lease--2147483648"
	};
	Semaphore	semaphore;
	SemaphoreOutput out;
	RecipeInput in = {.event = RECIPE_CREATE_DONE};

	(void) state;
	bring_to(&semaphore, AT_CREATING);
	in.serial = semaphore.serial;
	in.node = children[1];
	semaphore_step(&semaphore, false, &in, &out);
	in.event = RECIPE_CHILDREN_DONE;
	in.children = children;
	in.nchildren = lengthof(children);
	semaphore_step(&semaphore, false, &in, &out);
	assert_int_equal(semaphore.leases, 3);
	assert_int_equal(semaphore.ahead, 2);
	assert_int_equal(out.told, TOLD_QUEUED);
	semaphore_free(&semaphore);
}

/* What a worker sends first that takes over, and what becomes of it. */
static void
test_resume(void **state)
{
	static const struct
	{
		RecipeResume how;
		SemaphoreState state;
		RecipeState lock;
	}			cases[] =
	{
		{RECIPE_RESUME_WANTED, SEMAPHORE_RESUMING, RECIPE_SEARCHING},
		{RECIPE_RESUME_OWNED, SEMAPHORE_RECLAIMING, RECIPE_ABANDONING},
		{RECIPE_RESUME_RELEASING, SEMAPHORE_ABANDONING, RECIPE_ABANDONING}
	};
	Semaphore	semaphore;
	SemaphoreOutput out;

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		semaphore_init(&semaphore);
		memset(&out, 0xFF, sizeof(out));
		semaphore_resume(&semaphore, our_uuid, PERMITS, cases[i].how, &out);
		assert_int_equal(semaphore.state, cases[i].state);
		assert_int_equal(semaphore.lock.state, cases[i].lock);
		assert_int_equal(out.told, 0);
		assert_string_equal(describe_ops(&semaphore, &out), "search +search");
		semaphore_free(&semaphore);
	}

	/* wanted, with nothing found: as new */
	bring_to(&semaphore, AT_RESUMING);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_LOCK_MISSING, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "+create +children");
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_GET_NONE, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "");
	assert_int_equal(semaphore.state, SEMAPHORE_QUEUEING);
	give(&semaphore, IN_LOCK_CREATED, &out);
	give(&semaphore, IN_LOCK_GRANTED, &out);
	assert_int_equal(semaphore.state, SEMAPHORE_CHECKING);
	semaphore_free(&semaphore);

	/* wanted, and in the queue: told so anew */
	bring_to(&semaphore, AT_RESUMING);
	give(&semaphore, IN_TWO, &out);
	give(&semaphore, IN_LOCK_QUEUED, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "+watch");
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_TWO, &out);
	give(&semaphore, IN_GET_SAME, &out);
	assert_string_equal(describe_ops(&semaphore, &out),
						"search children(locks)");
	give(&semaphore, IN_TWO, &out);
	give(&semaphore, IN_QUEUE_SECOND, &out);
	assert_int_equal(out.told, TOLD_QUEUED);
	semaphore_free(&semaphore);

	/* wanted, with the lock and a lease: that goes, the lock stays */
	bring_to(&semaphore, AT_RETRACTING);
	give(&semaphore, IN_LOCK_FOUND, &out);
	give(&semaphore, IN_DELETE_OK, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_GET_SAME, &out);
	assert_string_equal(describe_ops(&semaphore, &out), LOOK);
	assert_int_equal(semaphore.state, SEMAPHORE_CHECKING);
	assert_int_equal(semaphore.lock.state, RECIPE_OWNER);
	semaphore_free(&semaphore);

	/* owned: the token is told again, and the lock given up */
	bring_to(&semaphore, AT_RECLAIMING);
	give(&semaphore, IN_OURS_SECOND, &out);
	give(&semaphore, IN_LOCK_FOUND, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "+delete");
	give(&semaphore, IN_STAT_OURS, &out);
	assert_int_equal(out.told, RECIPE_TOLD_TOKEN);
	give(&semaphore, IN_LOCK_GONE, &out);
	assert_int_equal(out.told, 0);
	give(&semaphore, IN_RELEASE, &out);
	give(&semaphore, IN_DELETE_OK, &out);
	assert_int_equal(out.told, TOLD_GONE);
	semaphore_free(&semaphore);

	/* owned, and deleted by somebody meanwhile */
	bring_to(&semaphore, AT_RECLAIMING);
	give(&semaphore, IN_LOCK_MISSING, &out);
	give(&semaphore, IN_ONE, &out);
	assert_int_equal(out.told, TOLD_LOST | TOLD_GONE);
	semaphore_free(&semaphore);
}

/* A lock that cannot be given up keeps others waiting, but not the permit. */
static void
test_lock_left_behind(void **state)
{
	Semaphore	semaphore;
	SemaphoreOutput out;

	(void) state;
	bring_to(&semaphore, AT_OWNER);
	give(&semaphore, IN_LOCK_LEFT, &out);
	assert_int_equal(out.told, TOLD_LEFT);
	give(&semaphore, IN_STAT_OURS, &out);
	assert_int_equal(out.told, RECIPE_TOLD_TOKEN);
	give(&semaphore, IN_RETRY, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "+delete");
	give(&semaphore, IN_LOCK_LEFT, &out);

	/* released: both are tried again until both are gone */
	give(&semaphore, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "delete");
	give(&semaphore, IN_DELETE_REFUSED, &out);
	assert_int_equal(out.told, TOLD_LEFT);
	give(&semaphore, IN_RETRY, &out);
	assert_string_equal(describe_ops(&semaphore, &out), "delete +delete");
	give(&semaphore, IN_RETRY, &out);
	assert_int_equal(out.nops, 0);
	give(&semaphore, IN_LOCK_GONE, &out);
	assert_int_equal(out.told, 0);
	give(&semaphore, IN_DELETE_NO_NODE, &out);
	assert_int_equal(out.told, TOLD_GONE);
	semaphore_free(&semaphore);
}

/* Directories are made singly first, then with parents, then never mind. */
static void
test_directories(void **state)
{
	Semaphore	semaphore;
	SemaphoreOutput out;

	(void) state;
	bring_to(&semaphore, AT_PREPARING_NEW);
	give(&semaphore, IN_MKDIR_NO_NODE, &out);
	give(&semaphore, IN_MKDIR_NO_NODE, &out);
	give(&semaphore, IN_MKDIR_NO_NODE, &out);
	give(&semaphore, IN_CHILDREN_NO_NODE, &out);
	assert_string_equal(describe_ops(&semaphore, &out), LOOK_MADE);

	/* a chroot that is not there */
	give(&semaphore, IN_MKDIR_NO_NODE, &out);
	give(&semaphore, IN_MKDIR_REFUSED, &out);
	give(&semaphore, IN_CHILDREN_NO_NODE, &out);
	assert_int_equal(out.told, TOLD_FAILED | TOLD_GONE);
	assert_int_equal(out.error, ERROR_NO_NODE);

	/* the next one starts with a clean slate; once seen, they are known */
	give(&semaphore, IN_WANT_NEW, &out);
	give(&semaphore, IN_MKDIR_REFUSED, &out);
	give(&semaphore, IN_CHILDREN_NO_NODE, &out);
	assert_string_equal(describe_ops(&semaphore, &out), LOOK_MADE);
	give(&semaphore, IN_MKDIR_OK, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_EMPTY, &out);
	assert_false(semaphore.dirs_known);
	give(&semaphore, IN_GET_SAME, &out);
	assert_true(semaphore.dirs_known);
	give(&semaphore, IN_EXPIRED, &out);

	/* an error of making them is of no account if they are there */
	give(&semaphore, IN_WANT_NEW, &out);
	give(&semaphore, IN_MKDIR_REFUSED, &out);
	give(&semaphore, IN_CHILDREN_NO_NODE, &out);
	give(&semaphore, IN_MKDIR_REFUSED, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_EMPTY, &out);
	give(&semaphore, IN_GET_SAME, &out);
	give(&semaphore, IN_LOCK_CREATED, &out);
	give(&semaphore, IN_LOCK_GRANTED, &out);
	give(&semaphore, IN_CHILDREN_NO_NODE, &out);
	assert_string_equal(describe_ops(&semaphore, &out), LOOK_MADE);
	semaphore_free(&semaphore);
}

static void
test_state_names(void **state)
{
	(void) state;
	for (SemaphoreState a = SEMAPHORE_NONE; a <= SEMAPHORE_LEAVING; a++)
	{
		assert_string_not_equal(semaphore_state_name(a), "unknown");
		for (SemaphoreState b = SEMAPHORE_NONE; b < a; b++)
			assert_string_not_equal(semaphore_state_name(a),
									semaphore_state_name(b));
	}
	assert_string_equal(semaphore_state_name((SemaphoreState) 99), "unknown");
}

int
main(void)
{
	static const struct CMUnitTest singles[] = {
		cmocka_unit_test(test_everything_else_is_ignored),
		cmocka_unit_test(test_ends_everywhere),
		cmocka_unit_test(test_agreement),
		cmocka_unit_test(test_own_lease_is_no_agreement),
		cmocka_unit_test(test_queued_is_certain),
		cmocka_unit_test(test_queue_is_read_again),
		cmocka_unit_test(test_stray_lease),
		cmocka_unit_test(test_strays_leave_room),
		cmocka_unit_test(test_lease_order_wraps),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_lock_left_behind),
		cmocka_unit_test(test_directories),
		cmocka_unit_test(test_state_names)
	};
	static char names[lengthof(transitions)][100];
	struct CMUnitTest lines[lengthof(transitions)];
	int			failed = 0;

	memset(lines, 0, sizeof(lines));
	for (size_t i = 0; i < lengthof(transitions); i++)
	{
		snprintf(names[i], sizeof(names[i]), "%s: input %d -> %s: %s",
				 situations[transitions[i].at].name, transitions[i].input,
				 semaphore_state_name(transitions[i].state),
				 transitions[i].ops);
		lines[i].name = names[i];
		lines[i].test_func = test_transition;
		lines[i].initial_state = (void *) &transitions[i];
	}
	failed += cmocka_run_group_tests_name("transitions", lines, NULL, NULL);
	failed += cmocka_run_group_tests_name("singles", singles, NULL, NULL);
	return failed;
}
