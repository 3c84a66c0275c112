/*-------------------------------------------------------------------------
 *
 * test_recipe.c
 *		Unit tests of the lock recipe.
 *
 * Three kinds of test, from the small to the large:
 *
 *	- every line of the transition table in recipe.c's header is a test named
 *	  after it, and a matrix of every situation and every input shows that
 *	  whatever the table does not list changes nothing and sends nothing;
 *	- single tests of what a table cannot say well: the place in the queue,
 *	  strays and strangers, missing directories, a worker's restart;
 *	- a model: a ZooKeeper server in plain C, with sessions, lagging views,
 *	  watches and connections that break before or after an operation was
 *	  applied, and up to three recipes in sessions of their own.  Small
 *	  scenarios are explored exhaustively, larger ones at random from fixed
 *	  seeds, and the rules of the lock are checked after every step.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_recipe.c
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

#include "core/recipe.h"

#define KIND(shared)	((shared) ? ZNODE_READER : ZNODE_MUTEX)

#define lengthof(array)	(sizeof(array) / sizeof((array)[0]))

/* How many schedules the model plays at random, of each kind. */
#ifndef RANDOM_RUNS
#define RANDOM_RUNS		3000
#endif

/*
 * The recipe's only allocation goes through here, as the program's own
 * definition comes before the C library's, so that it can be made to fail.
 */
static bool out_of_memory = false;

char *
strdup(const char *string)
{
	size_t		size = strlen(string) + 1;
	char	   *copy = out_of_memory ? NULL : malloc(size);

	return copy ? memcpy(copy, string, size) : NULL;
}

/*-------------------------------------------------------------------------
 * The transition table
 *-------------------------------------------------------------------------
 */

/* ZooKeeper's codes; the recipe only hands them through. */
#define ERROR_NO_NODE		(-101)
#define ERROR_REFUSED		(-102)	/* of the operation under test */
#define ERROR_MKDIRS		(-4)	/* why the directory could not be made */

#define TOKEN				INT64_C(0x100000002a)

#define OURS		"_c_0123456f-89ab-4def-8edc-ba9876543210-lock-0000000005"
#define OUR_PREFIX	"_c_0123456f-89ab-4def-8edc-ba9876543210-lock-"
#define OUR_READER \
	"_c_0123456f-89ab-4def-8edc-ba9876543210-__READ__0000000005"
#define READER_PREFIX "_c_0123456f-89ab-4def-8edc-ba9876543210-__READ__"
#define STRAY(number) \
	"_c_0123456f-89ab-4def-8edc-ba9876543210-lock-000000000" #number
#define FIRST		"_c_11111111-1111-4111-8111-111111111111-lock-0000000003"
#define SECOND		"22222222222222222222222222222222__lock__0000000004"
#define LATER		"x-33333333-0000000006"
#define UNORDERED	"x-44444444-2147483647"

static const uint8_t our_uuid[ZNODE_UUID_BYTES] = {
	0x01, 0x23, 0x45, 0x6f, 0x89, 0xab, 0x4d, 0xef,
	0x8e, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10
};

static const int32_t our_sequence = 5;

/* Where a recipe can be: its states, told apart where the answer depends. */
typedef enum Situation
{
	AT_NONE,
	AT_ENTERING,
	AT_ENTERING_MKDIR,			/* directory not known: MKDIR is out */
	AT_ENTERING_MKDIRS,			/* nor were its parents; they are made now */
	AT_ENTERING_IN_VAIN,		/* they could not be made */
	AT_CANCELLING,
	AT_SEARCHING,
	AT_SEARCHING_IN_VAIN,		/* after the parents could not be made */
	AT_ABANDONING,
	AT_READING,
	AT_ENTERING_GROUPED,		/* one of several; there is no second try */
	AT_SEARCHING_GROUPED,
	AT_READING_GROUPED,
	AT_WATCHING,				/* the predecessor alone excludes us */
	AT_WATCHING_OF_TWO,			/* another one does, too */
	AT_OWNER,
	AT_OWNER_LOOKING,			/* the look behind us is out */
	AT_OWNER_GUARDED,			/* our own node is watched, or about to be */
	AT_READING_COURTEOUS,		/* will ask an owner ahead that may be idle */
	AT_READING_RETAINING,		/* and will monitor, as an owner */
	AT_WATCHING_COURTEOUS,		/* the first answer to the watch is out */
	AT_WATCHING_COURTING,		/* the owner ahead may not need the lock */
	AT_WATCHING_IN_USE,			/* it does */
	AT_OWNER_MONITORING,		/* the list of who is behind us is out */
	AT_OWNER_MONITORED,			/* nobody is */
	AT_OWNER_CROWDED,			/* somebody is */
	AT_OWNER_RETAINING,			/* may not need the lock; the list is out */
	AT_OWNER_RETAINING_CLEAR,
	AT_OWNER_RETAINING_CROWDED,
	AT_OWNER_DENIED,			/* has told that it does need the lock */
	AT_LEAVING,
	AT_LEAVING_REFUSED,			/* the delete was refused */
	AT_EXAMINING,
	AT_READING_LATE,			/* our number is late */
	AT_WATCHING_LATE,
	AT_RETREATING,
	AT_RETREATING_GROUPED,
	AT_RETREATING_READ,			/* the directory is known */
	AT_CLEARING,
	AT_CLEARING_GROUPED,
	AT_SURVEYING,				/* nobody is known to be in it */
	AT_SURVEYING_READ,			/* somebody is */
	AT_SURVEYING_STRANGE,		/* no contender is, but something else */
	AT_STANDING_BY,
	NSITUATIONS
} Situation;

static const RecipeState situation_state[NSITUATIONS] = {
	RECIPE_NONE, RECIPE_ENTERING, RECIPE_ENTERING, RECIPE_ENTERING,
	RECIPE_ENTERING, RECIPE_CANCELLING, RECIPE_SEARCHING, RECIPE_SEARCHING,
	RECIPE_ABANDONING, RECIPE_READING, RECIPE_ENTERING, RECIPE_SEARCHING,
	RECIPE_READING, RECIPE_WATCHING, RECIPE_WATCHING, RECIPE_OWNER,
	RECIPE_OWNER, RECIPE_OWNER, RECIPE_READING, RECIPE_READING,
	RECIPE_WATCHING, RECIPE_WATCHING, RECIPE_WATCHING, RECIPE_OWNER,
	RECIPE_OWNER, RECIPE_OWNER, RECIPE_OWNER, RECIPE_OWNER, RECIPE_OWNER,
	RECIPE_OWNER, RECIPE_LEAVING, RECIPE_LEAVING, RECIPE_READING_CHILD,
	RECIPE_READING, RECIPE_WATCHING, RECIPE_RETREATING, RECIPE_RETREATING,
	RECIPE_RETREATING, RECIPE_REMOVING_DIR, RECIPE_REMOVING_DIR, RECIPE_LISTING_DIR,
	RECIPE_LISTING_DIR, RECIPE_LISTING_DIR, RECIPE_AWAITING_EMPTY
};

/*
 * Situations in which most lines of another one hold, too: what they do not
 * have a line of their own for, they have in common.
 */
static const Situation situation_base[NSITUATIONS] = {
	[AT_ENTERING_GROUPED] = AT_ENTERING,
	[AT_SEARCHING_GROUPED] = AT_SEARCHING,
	[AT_READING_GROUPED] = AT_READING,
	[AT_OWNER_LOOKING] = AT_OWNER,
	[AT_OWNER_GUARDED] = AT_OWNER,
	[AT_READING_COURTEOUS] = AT_READING,
	[AT_READING_RETAINING] = AT_READING,
	[AT_WATCHING_COURTEOUS] = AT_WATCHING,
	[AT_WATCHING_COURTING] = AT_WATCHING_COURTEOUS,
	[AT_WATCHING_IN_USE] = AT_WATCHING,
	[AT_OWNER_MONITORING] = AT_OWNER,
	[AT_OWNER_MONITORED] = AT_OWNER_MONITORING,
	[AT_OWNER_CROWDED] = AT_OWNER,
	[AT_OWNER_RETAINING] = AT_OWNER_MONITORING,
	[AT_OWNER_RETAINING_CLEAR] = AT_OWNER_RETAINING,
	[AT_OWNER_RETAINING_CROWDED] = AT_OWNER_CROWDED,
	[AT_OWNER_DENIED] = AT_OWNER_CROWDED,
	[AT_READING_LATE] = AT_READING,
	[AT_WATCHING_LATE] = AT_WATCHING,
	[AT_RETREATING_GROUPED] = AT_RETREATING,
	[AT_RETREATING_READ] = AT_RETREATING,
	[AT_CLEARING_GROUPED] = AT_CLEARING,
	[AT_SURVEYING_READ] = AT_SURVEYING,
	[AT_SURVEYING_STRANGE] = AT_SURVEYING
};

typedef enum Input
{
	IN_WANT,
	IN_WANT_NEW_DIR,
	IN_RELEASE,
	IN_LOOK,
	IN_MONITOR,
	IN_DENY,
	IN_GUARD,
	IN_MKDIR_OK,
	IN_MKDIR_UNKNOWN,
	IN_MKDIR_NO_NODE,
	IN_MKDIR_REFUSED,
	IN_CREATE_OK,
	IN_CREATE_ODD,				/* succeeded, with a name that cannot be */
	IN_CREATE_UNKNOWN,
	IN_CREATE_NO_NODE,
	IN_CREATE_REFUSED,
	IN_ALONE,					/* children: our node */
	IN_SECOND,					/* children: one ahead of us, one behind */
	IN_THIRD,					/* children: two ahead of us */
	IN_MISSING,					/* children: only another's node */
	IN_EMPTY,					/* children: none */
	IN_MIXED,					/* children: ours, and a semaphore's */
	IN_MIXED_MISSING,			/* children: a semaphore's, not ours */
	IN_UNORDERED,				/* children: ours, and one without order */
	IN_CHILDREN_UNKNOWN,
	IN_CHILDREN_NO_NODE,
	IN_CHILDREN_REFUSED,
	IN_STALE_ALONE,				/* the same, of an earlier read */
	IN_STALE_SECOND,
	IN_STALE_THIRD,
	IN_STALE_MISSING,
	IN_STALE_EMPTY,
	IN_STALE_MIXED,
	IN_STALE_CHILDREN_UNKNOWN,
	IN_STALE_CHILDREN_NO_NODE,
	IN_STALE_CHILDREN_REFUSED,
	IN_WATCH_OK,
	IN_WATCH_REVOKED,			/* succeeded, and reads Curator's data */
	IN_WATCH_RETAINED,			/* succeeded: the lock may not be needed */
	IN_WATCH_STRAY,				/* succeeded: it is ours, and of nobody */
	IN_WATCH_PERSISTENT,		/* succeeded: it is no ephemeral node */
	IN_WATCH_CONTAINER,			/* the same, of a container */
	IN_WATCH_UNKNOWN,
	IN_WATCH_NO_NODE,
	IN_WATCH_REFUSED,
	IN_STALE_WATCH_OK,
	IN_STALE_WATCH_REVOKED,
	IN_STALE_WATCH_RETAINED,
	IN_STALE_WATCH_STRAY,
	IN_STALE_WATCH_UNKNOWN,
	IN_STALE_WATCH_NO_NODE,
	IN_STALE_WATCH_REFUSED,
	IN_GET_OK,
	IN_GET_REVOKED,
	IN_GET_CLUSTER,				/* succeeded: a contender of a cluster */
	IN_GET_OTHER,				/* succeeded: created at another time */
	IN_GET_PERSISTENT,			/* succeeded: it is no ephemeral node */
	IN_GET_UNKNOWN,
	IN_GET_NO_NODE,
	IN_GET_REFUSED,
	IN_STALE_GET_OK,
	IN_STALE_GET_NO_NODE,
	IN_STALE_GET_REFUSED,
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
	IN_RMDIR_OK,
	IN_RMDIR_UNKNOWN,
	IN_RMDIR_NO_NODE,
	IN_RMDIR_NOT_EMPTY,
	IN_RMDIR_REFUSED,
	IN_STALE_RMDIR_OK,
	IN_STALE_RMDIR_NO_NODE,
	IN_STALE_RMDIR_NOT_EMPTY,
	IN_DELETED,
	IN_TOUCHED,
	IN_STALE_DELETED,
	IN_STALE_TOUCHED,
	IN_RETRY,
	IN_EXPIRED,
	NINPUTS
} Input;

/* The inputs that recipe_step() takes, from IN_RELEASE on. */
static const struct
{
	RecipeEvent event;
	RecipeResult result;
	bool		stale;
	const char *node;
	const char *children[4];
	bool		ours;
	const char *data;
	bool		other;
	bool		not_empty;
	bool		stray;
	bool		persistent;
	bool		container;
}			inputs[NINPUTS] =
{
	[IN_RELEASE] = {.event = RECIPE_RELEASE},
	[IN_LOOK] = {.event = RECIPE_CHECK_WRITERS},
	[IN_MONITOR] = {.event = RECIPE_WATCH_QUEUE},
	[IN_DENY] = {.event = RECIPE_SET_IN_USE},
	[IN_GUARD] = {.event = RECIPE_WATCH_REVOCATION},
	[IN_MKDIR_OK] = {RECIPE_MKDIR_DONE, RECIPE_OK},
	[IN_MKDIR_UNKNOWN] = {RECIPE_MKDIR_DONE, RECIPE_UNKNOWN},
	[IN_MKDIR_NO_NODE] = {RECIPE_MKDIR_DONE, RECIPE_NO_NODE},
	[IN_MKDIR_REFUSED] = {RECIPE_MKDIR_DONE, RECIPE_REFUSED},
	[IN_CREATE_OK] = {RECIPE_CREATE_DONE, RECIPE_OK, .node = OURS},
	[IN_CREATE_ODD] = {RECIPE_CREATE_DONE, RECIPE_OK, .node = OUR_PREFIX},
	[IN_CREATE_UNKNOWN] = {RECIPE_CREATE_DONE, RECIPE_UNKNOWN},
	[IN_CREATE_NO_NODE] = {RECIPE_CREATE_DONE, RECIPE_NO_NODE},
	[IN_CREATE_REFUSED] = {RECIPE_CREATE_DONE, RECIPE_REFUSED},
	[IN_ALONE] = {RECIPE_CHILDREN_DONE, .children = {OURS}},
	[IN_SECOND] = {RECIPE_CHILDREN_DONE, .children = {LATER, OURS, FIRST}},
	[IN_THIRD] = {RECIPE_CHILDREN_DONE, .children = {FIRST, OURS, SECOND}},
	[IN_MISSING] = {RECIPE_CHILDREN_DONE, .children = {FIRST}},
	[IN_EMPTY] = {RECIPE_CHILDREN_DONE},
	[IN_MIXED] = {RECIPE_CHILDREN_DONE, .children = {"leases", OURS, FIRST}},
	[IN_MIXED_MISSING] = {RECIPE_CHILDREN_DONE, .children = {"locks"}},
	[IN_UNORDERED] = {RECIPE_CHILDREN_DONE, .children = {UNORDERED, OURS}},
	[IN_CHILDREN_UNKNOWN] = {RECIPE_CHILDREN_DONE, RECIPE_UNKNOWN},
	[IN_CHILDREN_NO_NODE] = {RECIPE_CHILDREN_DONE, RECIPE_NO_NODE},
	[IN_CHILDREN_REFUSED] = {RECIPE_CHILDREN_DONE, RECIPE_REFUSED},
	[IN_STALE_ALONE] = {RECIPE_CHILDREN_DONE, .stale = true,
		.children = {OURS}},
	[IN_STALE_SECOND] = {RECIPE_CHILDREN_DONE, .stale = true,
		.children = {LATER, OURS, FIRST}},
	[IN_STALE_THIRD] = {RECIPE_CHILDREN_DONE, .stale = true,
		.children = {FIRST, OURS, SECOND}},
	[IN_STALE_MISSING] = {RECIPE_CHILDREN_DONE, .stale = true,
		.children = {FIRST}},
	[IN_STALE_EMPTY] = {RECIPE_CHILDREN_DONE, .stale = true},
	[IN_STALE_MIXED] = {RECIPE_CHILDREN_DONE, .stale = true,
		.children = {"leases", OURS}},
	[IN_STALE_CHILDREN_UNKNOWN] = {RECIPE_CHILDREN_DONE, RECIPE_UNKNOWN,
		.stale = true},
	[IN_STALE_CHILDREN_NO_NODE] = {RECIPE_CHILDREN_DONE, RECIPE_NO_NODE,
		.stale = true},
	[IN_STALE_CHILDREN_REFUSED] = {RECIPE_CHILDREN_DONE, RECIPE_REFUSED,
		.stale = true},
	[IN_WATCH_OK] = {RECIPE_WATCH_DONE, RECIPE_OK, .data = "me"},
	[IN_WATCH_REVOKED] = {RECIPE_WATCH_DONE, RECIPE_OK,
		.data = RECIPE_REVOKE_DATA},
	[IN_WATCH_RETAINED] = {RECIPE_WATCH_DONE, RECIPE_OK,
		.data = "me" RECIPE_RETAIN_MARK},
	[IN_WATCH_STRAY] = {RECIPE_WATCH_DONE, RECIPE_OK, .ours = true,
		.data = "me", .stray = true},
	[IN_WATCH_PERSISTENT] = {RECIPE_WATCH_DONE, RECIPE_OK, .data = "me",
	.persistent = true},
	[IN_WATCH_CONTAINER] = {RECIPE_WATCH_DONE, RECIPE_OK, .container = true},
	[IN_WATCH_UNKNOWN] = {RECIPE_WATCH_DONE, RECIPE_UNKNOWN},
	[IN_WATCH_NO_NODE] = {RECIPE_WATCH_DONE, RECIPE_NO_NODE},
	[IN_WATCH_REFUSED] = {RECIPE_WATCH_DONE, RECIPE_REFUSED},
	[IN_STALE_WATCH_OK] = {RECIPE_WATCH_DONE, RECIPE_OK, true},
	[IN_STALE_WATCH_REVOKED] = {RECIPE_WATCH_DONE, RECIPE_OK, true,
		.data = RECIPE_REVOKE_DATA},
	[IN_STALE_WATCH_RETAINED] = {RECIPE_WATCH_DONE, RECIPE_OK, true,
		.data = "me" RECIPE_RETAIN_MARK},
	[IN_STALE_WATCH_STRAY] = {RECIPE_WATCH_DONE, RECIPE_OK, true,
		.ours = true, .data = "me", .stray = true},
	[IN_STALE_WATCH_UNKNOWN] = {RECIPE_WATCH_DONE, RECIPE_UNKNOWN, true},
	[IN_STALE_WATCH_NO_NODE] = {RECIPE_WATCH_DONE, RECIPE_NO_NODE, true},
	[IN_STALE_WATCH_REFUSED] = {RECIPE_WATCH_DONE, RECIPE_REFUSED, true},
	[IN_GET_OK] = {RECIPE_GET_DONE, RECIPE_OK, .data = "me"},
	[IN_GET_REVOKED] = {RECIPE_GET_DONE, RECIPE_OK,
		.data = RECIPE_REVOKE_DATA},
	[IN_GET_CLUSTER] = {RECIPE_GET_DONE, RECIPE_OK,
		.data = RECIPE_DATA_PREFIX "host=x"},
	[IN_GET_OTHER] = {RECIPE_GET_DONE, RECIPE_OK, .data = "me",
	.other = true},
	[IN_GET_PERSISTENT] = {RECIPE_GET_DONE, RECIPE_OK,
	.data = RECIPE_DATA_PREFIX "host=x", .persistent = true},
	[IN_STALE_GET_OK] = {RECIPE_GET_DONE, RECIPE_OK, true, .data = "me"},
	[IN_STALE_GET_NO_NODE] = {RECIPE_GET_DONE, RECIPE_NO_NODE, true},
	[IN_STALE_GET_REFUSED] = {RECIPE_GET_DONE, RECIPE_REFUSED, true},
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
	[IN_RMDIR_OK] = {RECIPE_RMDIR_DONE, RECIPE_OK},
	[IN_RMDIR_UNKNOWN] = {RECIPE_RMDIR_DONE, RECIPE_UNKNOWN},
	[IN_RMDIR_NO_NODE] = {RECIPE_RMDIR_DONE, RECIPE_NO_NODE},
	[IN_RMDIR_NOT_EMPTY] = {RECIPE_RMDIR_DONE, RECIPE_REFUSED,
	.not_empty = true},
	[IN_RMDIR_REFUSED] = {RECIPE_RMDIR_DONE, RECIPE_REFUSED},
	[IN_STALE_RMDIR_OK] = {RECIPE_RMDIR_DONE, RECIPE_OK, true},
	[IN_STALE_RMDIR_NO_NODE] = {RECIPE_RMDIR_DONE, RECIPE_NO_NODE, true},
	[IN_STALE_RMDIR_NOT_EMPTY] = {RECIPE_RMDIR_DONE, RECIPE_REFUSED, true,
	.not_empty = true},
	[IN_DELETED] = {.event = RECIPE_NODE_DELETED},
	[IN_TOUCHED] = {.event = RECIPE_NODE_TOUCHED},
	[IN_STALE_DELETED] = {.event = RECIPE_NODE_DELETED, .stale = true},
	[IN_STALE_TOUCHED] = {.event = RECIPE_NODE_TOUCHED, .stale = true},
	[IN_RETRY] = {.event = RECIPE_RETRY},
	[IN_EXPIRED] = {.event = RECIPE_EXPIRED}
};

#define TOLD_LOST		(RECIPE_TOLD_LOST | RECIPE_TOLD_GONE)
#define TOLD_FAILED		(RECIPE_TOLD_FAILED | RECIPE_TOLD_GONE)
#define TOLD_MIXED		(RECIPE_TOLD_FAILED | RECIPE_TOLD_MIXED)
#define TOLD_ENDED		(RECIPE_TOLD_FAILED | RECIPE_TOLD_ENDED)

/* One line of the table; what no line is about must change nothing. */
typedef struct Transition
{
	const char *name;
	Situation	at;
	Input		input;
	RecipeState state;
	const char *ops;
	unsigned	told;
	int			error;
} Transition;

static const Transition transitions[] = {
	{"NONE: want -> ENTERING: create, children",
		AT_NONE, IN_WANT, RECIPE_ENTERING, "create children", 0, 0},
	{"NONE: want, directory not known -> ENTERING: mkdir, create, children",
		AT_NONE, IN_WANT_NEW_DIR, RECIPE_ENTERING, "mkdir create children",
	0, 0},

	{"ENTERING: create ok -> READING",
		AT_ENTERING, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_TOLD_CREATED, 0},
	{"ENTERING: create ok, after mkdir -> READING",
		AT_ENTERING_MKDIR, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_TOLD_CREATED, 0},
	{"ENTERING: create ok, after mkdirs -> READING",
		AT_ENTERING_MKDIRS, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_TOLD_CREATED, 0},
	{"ENTERING: create ok, though mkdirs failed -> READING",
		AT_ENTERING_IN_VAIN, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_TOLD_CREATED, 0},
	{"ENTERING: create ok with an odd name -> SEARCHING: search",
		AT_ENTERING, IN_CREATE_ODD, RECIPE_SEARCHING, "search", 0, 0},
	{"ENTERING: create ok with an odd name, after mkdir -> SEARCHING",
		AT_ENTERING_MKDIR, IN_CREATE_ODD, RECIPE_SEARCHING, "search", 0, 0},
	{"ENTERING: create ok with an odd name, after mkdirs -> SEARCHING",
		AT_ENTERING_MKDIRS, IN_CREATE_ODD, RECIPE_SEARCHING, "search", 0, 0},
	{"ENTERING: create ok with an odd name, mkdirs failed -> SEARCHING",
		AT_ENTERING_IN_VAIN, IN_CREATE_ODD, RECIPE_SEARCHING, "search", 0, 0},
	{"ENTERING: create unknown -> SEARCHING: search",
		AT_ENTERING, IN_CREATE_UNKNOWN, RECIPE_SEARCHING, "search", 0, 0},
	{"ENTERING: create unknown, after mkdir -> SEARCHING: search",
		AT_ENTERING_MKDIR, IN_CREATE_UNKNOWN, RECIPE_SEARCHING, "search",
	0, 0},
	{"ENTERING: create unknown, after mkdirs -> SEARCHING: search",
		AT_ENTERING_MKDIRS, IN_CREATE_UNKNOWN, RECIPE_SEARCHING, "search",
	0, 0},
	{"ENTERING: create unknown, mkdirs failed -> SEARCHING: search",
		AT_ENTERING_IN_VAIN, IN_CREATE_UNKNOWN, RECIPE_SEARCHING, "search",
	0, 0},
	{"ENTERING: create no node -> ENTERING: mkdirs, create, children",
		AT_ENTERING, IN_CREATE_NO_NODE, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"ENTERING: create no node, after mkdir -> ENTERING: mkdirs, all again",
		AT_ENTERING_MKDIR, IN_CREATE_NO_NODE, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"ENTERING: create no node, after mkdirs -> ENTERING: mkdirs, all again",
		AT_ENTERING_MKDIRS, IN_CREATE_NO_NODE, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"ENTERING: create no node, mkdirs failed -> NONE: failed",
		AT_ENTERING_IN_VAIN, IN_CREATE_NO_NODE, RECIPE_NONE, "",
	TOLD_FAILED, ERROR_MKDIRS},
	{"ENTERING: create refused -> NONE: failed",
		AT_ENTERING, IN_CREATE_REFUSED, RECIPE_NONE, "",
	TOLD_FAILED, ERROR_REFUSED},
	{"ENTERING: create refused, after mkdir -> NONE: failed",
		AT_ENTERING_MKDIR, IN_CREATE_REFUSED, RECIPE_NONE, "",
	TOLD_FAILED, ERROR_REFUSED},
	{"ENTERING: create refused, after mkdirs -> NONE: failed",
		AT_ENTERING_MKDIRS, IN_CREATE_REFUSED, RECIPE_NONE, "",
	TOLD_FAILED, ERROR_REFUSED},
	{"ENTERING: create refused, mkdirs failed -> NONE: failed",
		AT_ENTERING_IN_VAIN, IN_CREATE_REFUSED, RECIPE_NONE, "",
	TOLD_FAILED, ERROR_REFUSED},
	{"ENTERING: release -> CANCELLING",
		AT_ENTERING, IN_RELEASE, RECIPE_CANCELLING, "", 0, 0},
	{"ENTERING: release, after mkdir -> CANCELLING",
		AT_ENTERING_MKDIR, IN_RELEASE, RECIPE_CANCELLING, "", 0, 0},
	{"ENTERING: release, after mkdirs -> CANCELLING",
		AT_ENTERING_MKDIRS, IN_RELEASE, RECIPE_CANCELLING, "", 0, 0},
	{"ENTERING: release, mkdirs failed -> CANCELLING",
		AT_ENTERING_IN_VAIN, IN_RELEASE, RECIPE_CANCELLING, "", 0, 0},
	{"ENTERING: expired -> NONE: gone",
		AT_ENTERING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"ENTERING: expired, after mkdir -> NONE: gone",
		AT_ENTERING_MKDIR, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"ENTERING: expired, after mkdirs -> NONE: gone",
		AT_ENTERING_MKDIRS, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"ENTERING: expired, mkdirs failed -> NONE: gone",
		AT_ENTERING_IN_VAIN, IN_EXPIRED, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},

	{"CANCELLING: create ok -> LEAVING: delete",
		AT_CANCELLING, IN_CREATE_OK, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED, 0},
	{"CANCELLING: create ok with an odd name -> ABANDONING: search",
		AT_CANCELLING, IN_CREATE_ODD, RECIPE_ABANDONING, "search", 0, 0},
	{"CANCELLING: create unknown -> ABANDONING: search",
		AT_CANCELLING, IN_CREATE_UNKNOWN, RECIPE_ABANDONING, "search", 0, 0},
	{"CANCELLING: create no node -> NONE: gone",
		AT_CANCELLING, IN_CREATE_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"CANCELLING: create refused -> NONE: gone",
		AT_CANCELLING, IN_CREATE_REFUSED, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"CANCELLING: expired -> NONE: gone",
		AT_CANCELLING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"SEARCHING: children ok, our node alone -> OWNER: stat",
		AT_SEARCHING, IN_ALONE, RECIPE_OWNER, "stat",
	RECIPE_TOLD_CREATED | RECIPE_TOLD_GRANTED, 0},
	{"SEARCHING: children ok, our node behind another -> WATCHING: watch",
		AT_SEARCHING, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	RECIPE_TOLD_CREATED | RECIPE_TOLD_QUEUED, 0},
	{"SEARCHING: children ok, our node behind two -> WATCHING: watch",
		AT_SEARCHING, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_TOLD_CREATED | RECIPE_TOLD_QUEUED, 0},
	{"SEARCHING: children ok, without it -> ENTERING: create, children",
		AT_SEARCHING, IN_MISSING, RECIPE_ENTERING, "create children", 0, 0},
	{"SEARCHING: children ok, none -> ENTERING: create, children",
		AT_SEARCHING, IN_EMPTY, RECIPE_ENTERING, "create children", 0, 0},
	{"SEARCHING: children ok, with those of a semaphore -> LEAVING: delete",
		AT_SEARCHING, IN_MIXED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED | TOLD_MIXED, 0},
	{"SEARCHING: children ok, those of a semaphore only -> ENTERING",
		AT_SEARCHING, IN_MIXED_MISSING, RECIPE_ENTERING, "create children",
	0, 0},
	{"SEARCHING: no node -> ENTERING: mkdirs, create, children",
		AT_SEARCHING, IN_CHILDREN_NO_NODE, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: children unknown -> SEARCHING: search",
		AT_SEARCHING, IN_CHILDREN_UNKNOWN, RECIPE_SEARCHING, "search", 0, 0},
	{"SEARCHING: children refused -> NONE: failed, perhaps left behind",
		AT_SEARCHING, IN_CHILDREN_REFUSED, RECIPE_NONE, "",
	TOLD_FAILED | RECIPE_TOLD_LEFT, ERROR_REFUSED},
	{"SEARCHING: release -> ABANDONING",
		AT_SEARCHING, IN_RELEASE, RECIPE_ABANDONING, "", 0, 0},
	{"SEARCHING: expired -> NONE: gone",
		AT_SEARCHING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"SEARCHING: children ok, our node alone, mkdirs failed -> OWNER: stat",
		AT_SEARCHING_IN_VAIN, IN_ALONE, RECIPE_OWNER, "stat",
	RECIPE_TOLD_CREATED | RECIPE_TOLD_GRANTED, 0},
	{"SEARCHING: children ok, behind another, mkdirs failed -> WATCHING",
		AT_SEARCHING_IN_VAIN, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	RECIPE_TOLD_CREATED | RECIPE_TOLD_QUEUED, 0},
	{"SEARCHING: children ok, behind two, mkdirs failed -> WATCHING",
		AT_SEARCHING_IN_VAIN, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_TOLD_CREATED | RECIPE_TOLD_QUEUED, 0},
	{"SEARCHING: children ok, without it, mkdirs failed -> ENTERING",
		AT_SEARCHING_IN_VAIN, IN_MISSING, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: children ok, none, mkdirs failed -> ENTERING",
		AT_SEARCHING_IN_VAIN, IN_EMPTY, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: children ok, a semaphore's, mkdirs failed -> LEAVING",
		AT_SEARCHING_IN_VAIN, IN_MIXED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED | TOLD_MIXED, 0},
	{"SEARCHING: children ok, only a semaphore's, mkdirs failed -> ENTERING",
		AT_SEARCHING_IN_VAIN, IN_MIXED_MISSING, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: no node, mkdirs failed -> NONE: failed",
		AT_SEARCHING_IN_VAIN, IN_CHILDREN_NO_NODE, RECIPE_NONE, "",
	TOLD_FAILED, ERROR_MKDIRS},
	{"SEARCHING: children unknown, mkdirs failed -> SEARCHING: search",
		AT_SEARCHING_IN_VAIN, IN_CHILDREN_UNKNOWN, RECIPE_SEARCHING, "search",
	0, 0},
	{"SEARCHING: children refused, mkdirs failed -> NONE: failed",
		AT_SEARCHING_IN_VAIN, IN_CHILDREN_REFUSED, RECIPE_NONE, "",
	TOLD_FAILED | RECIPE_TOLD_LEFT, ERROR_REFUSED},
	{"SEARCHING: release, mkdirs failed -> ABANDONING",
		AT_SEARCHING_IN_VAIN, IN_RELEASE, RECIPE_ABANDONING, "", 0, 0},
	{"SEARCHING: expired, mkdirs failed -> NONE: gone",
		AT_SEARCHING_IN_VAIN, IN_EXPIRED, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},

	{"ABANDONING: children ok, our node alone -> LEAVING: delete",
		AT_ABANDONING, IN_ALONE, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED, 0},
	{"ABANDONING: children ok, behind another -> LEAVING: delete",
		AT_ABANDONING, IN_SECOND, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED, 0},
	{"ABANDONING: children ok, behind two -> LEAVING: delete",
		AT_ABANDONING, IN_THIRD, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED, 0},
	{"ABANDONING: children ok, without it -> NONE: gone",
		AT_ABANDONING, IN_MISSING, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"ABANDONING: children ok, none -> NONE: gone",
		AT_ABANDONING, IN_EMPTY, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"ABANDONING: children ok, with those of a semaphore -> LEAVING: delete",
		AT_ABANDONING, IN_MIXED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED, 0},
	{"ABANDONING: children ok, those of a semaphore only -> NONE: gone",
		AT_ABANDONING, IN_MIXED_MISSING, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"ABANDONING: no node -> NONE: gone",
		AT_ABANDONING, IN_CHILDREN_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"ABANDONING: children refused -> NONE: perhaps left behind",
		AT_ABANDONING, IN_CHILDREN_REFUSED, RECIPE_NONE, "",
	RECIPE_TOLD_GONE | RECIPE_TOLD_LEFT, ERROR_REFUSED},
	{"ABANDONING: children unknown -> ABANDONING: search",
		AT_ABANDONING, IN_CHILDREN_UNKNOWN, RECIPE_ABANDONING, "search",
	0, 0},
	{"ABANDONING: expired -> NONE: gone",
		AT_ABANDONING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"READING: children ok, nobody excludes us -> OWNER: stat",
		AT_READING, IN_ALONE, RECIPE_OWNER, "stat", RECIPE_TOLD_GRANTED, 0},
	{"READING: children ok, somebody does -> WATCHING: watch",
		AT_READING, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	RECIPE_TOLD_QUEUED, 0},
	{"READING: children ok, two do -> WATCHING: watch the last of them",
		AT_READING, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_TOLD_QUEUED, 0},
	{"READING: children ok, without our node -> ENTERING: as new",
		AT_READING, IN_MISSING, RECIPE_ENTERING, "create children", 0, 0},
	{"READING: children ok, none -> ENTERING: as new",
		AT_READING, IN_EMPTY, RECIPE_ENTERING, "create children", 0, 0},
	{"READING: children ok, with those of a semaphore -> LEAVING: delete",
		AT_READING, IN_MIXED, RECIPE_LEAVING, "delete", TOLD_MIXED, 0},
	{"READING: children ok, those of a semaphore only -> ENTERING: as new",
		AT_READING, IN_MIXED_MISSING, RECIPE_ENTERING, "create children",
	0, 0},
	{"READING: no node -> ENTERING: mkdirs, create, children",
		AT_READING, IN_CHILDREN_NO_NODE, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"READING: children unknown -> READING: children",
		AT_READING, IN_CHILDREN_UNKNOWN, RECIPE_READING, "children", 0, 0},
	{"READING: children refused -> LEAVING: delete; failed",
		AT_READING, IN_CHILDREN_REFUSED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"READING: release -> LEAVING: delete",
		AT_READING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"READING: expired -> NONE: gone",
		AT_READING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"ENTERING: create no node, one of a group -> NONE: gone",
		AT_ENTERING_GROUPED, IN_CREATE_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"SEARCHING: children ok, without it, one of a group -> NONE: gone",
		AT_SEARCHING_GROUPED, IN_MISSING, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"SEARCHING: children ok, none, one of a group -> NONE: gone",
		AT_SEARCHING_GROUPED, IN_EMPTY, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"SEARCHING: children ok, only a semaphore's, one of a group -> NONE",
		AT_SEARCHING_GROUPED, IN_MIXED_MISSING, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"SEARCHING: no node, one of a group -> NONE: gone",
		AT_SEARCHING_GROUPED, IN_CHILDREN_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"READING: children ok, without our node, one of a group -> NONE: gone",
		AT_READING_GROUPED, IN_MISSING, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"READING: children ok, none, one of a group -> NONE: gone",
		AT_READING_GROUPED, IN_EMPTY, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"READING: children ok, only a semaphore's, one of a group -> NONE",
		AT_READING_GROUPED, IN_MIXED_MISSING, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"READING: no node, one of a group -> NONE: gone",
		AT_READING_GROUPED, IN_CHILDREN_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},

	{"WATCHING: predecessor deleted, the only one -> OWNER: stat",
		AT_WATCHING, IN_DELETED, RECIPE_OWNER, "stat",
	RECIPE_TOLD_GRANTED, 0},
	{"WATCHING: watch no node, the only one -> OWNER: stat",
		AT_WATCHING, IN_WATCH_NO_NODE, RECIPE_OWNER, "stat",
	RECIPE_TOLD_GRANTED, 0},
	{"WATCHING: watch used up otherwise -> WATCHING: watch",
		AT_WATCHING, IN_TOUCHED, RECIPE_WATCHING, "watch(first)", 0, 0},
	{"WATCHING: watch unknown -> WATCHING: watch",
		AT_WATCHING, IN_WATCH_UNKNOWN, RECIPE_WATCHING, "watch(first)", 0, 0},
	{"WATCHING: watch refused -> LEAVING: unwatch, delete; failed",
		AT_WATCHING, IN_WATCH_REFUSED, RECIPE_LEAVING,
	"unwatch(first) delete", RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"WATCHING: release -> LEAVING: unwatch, delete",
		AT_WATCHING, IN_RELEASE, RECIPE_LEAVING, "unwatch(first) delete",
	0, 0},
	{"WATCHING: expired -> NONE: gone",
		AT_WATCHING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"WATCHING: predecessor deleted, one of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_DELETED, RECIPE_READING, "children", 0, 0},
	{"WATCHING: watch no node, one of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_WATCH_NO_NODE, RECIPE_READING, "children",
	0, 0},
	{"WATCHING: watch used up otherwise, of two -> WATCHING: watch",
		AT_WATCHING_OF_TWO, IN_TOUCHED, RECIPE_WATCHING, "watch(second)",
	0, 0},
	{"WATCHING: watch unknown, of two -> WATCHING: watch",
		AT_WATCHING_OF_TWO, IN_WATCH_UNKNOWN, RECIPE_WATCHING,
	"watch(second)", 0, 0},
	{"WATCHING: watch refused, of two -> LEAVING: unwatch, delete; failed",
		AT_WATCHING_OF_TWO, IN_WATCH_REFUSED, RECIPE_LEAVING,
	"unwatch(second) delete", RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"WATCHING: release, of two -> LEAVING: unwatch, delete",
		AT_WATCHING_OF_TWO, IN_RELEASE, RECIPE_LEAVING,
	"unwatch(second) delete", 0, 0},
	{"WATCHING: expired, of two -> NONE: gone",
		AT_WATCHING_OF_TWO, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"OWNER: stat ok, our session's -> OWNER: token",
		AT_OWNER, IN_STAT_OURS, RECIPE_OWNER, "", RECIPE_TOLD_TOKEN, 0},
	{"OWNER: stat ok, not our session's -> NONE: lost",
		AT_OWNER, IN_STAT_FOREIGN, RECIPE_NONE, "", TOLD_LOST, 0},
	{"OWNER: stat no node -> NONE: lost",
		AT_OWNER, IN_STAT_NO_NODE, RECIPE_NONE, "", TOLD_LOST,
	ERROR_NO_NODE},
	{"OWNER: stat unknown -> OWNER: stat",
		AT_OWNER, IN_STAT_UNKNOWN, RECIPE_OWNER, "stat", 0, 0},
	{"OWNER: release -> LEAVING: delete",
		AT_OWNER, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"OWNER: expired -> NONE: lost",
		AT_OWNER, IN_EXPIRED, RECIPE_NONE, "", TOLD_LOST, 0},

	{"OWNER: look -> OWNER: children",
		AT_OWNER, IN_LOOK, RECIPE_OWNER, "children", 0, 0},
	{"OWNER: guard -> OWNER: watch our own node",
		AT_OWNER, IN_GUARD, RECIPE_OWNER, "watch(own)", 0, 0},
	{"OWNER: set unknown -> OWNER: set",
		AT_OWNER, IN_SET_UNKNOWN, RECIPE_OWNER, "set", 0, 0},

	{"OWNER: looked, children ok, our node only -> OWNER: alone",
		AT_OWNER_LOOKING, IN_ALONE, RECIPE_OWNER, "", RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children ok, a writer later than ours -> OWNER: behind",
		AT_OWNER_LOOKING, IN_SECOND, RECIPE_OWNER, "", RECIPE_TOLD_WRITER, 0},
	{"OWNER: looked, children ok, only earlier writers -> OWNER: alone",
		AT_OWNER_LOOKING, IN_THIRD, RECIPE_OWNER, "", RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children ok, without our node -> OWNER: alone",
		AT_OWNER_LOOKING, IN_MISSING, RECIPE_OWNER, "", RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children ok, none -> OWNER: alone",
		AT_OWNER_LOOKING, IN_EMPTY, RECIPE_OWNER, "", RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children ok, with those of a semaphore -> OWNER: alone",
		AT_OWNER_LOOKING, IN_MIXED, RECIPE_OWNER, "", RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children ok, those of a semaphore only -> OWNER: alone",
		AT_OWNER_LOOKING, IN_MIXED_MISSING, RECIPE_OWNER, "",
	RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children no node -> OWNER: alone",
		AT_OWNER_LOOKING, IN_CHILDREN_NO_NODE, RECIPE_OWNER, "",
	RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children refused -> OWNER: alone",
		AT_OWNER_LOOKING, IN_CHILDREN_REFUSED, RECIPE_OWNER, "",
	RECIPE_TOLD_NO_WRITER, 0},
	{"OWNER: looked, children unknown -> OWNER: children",
		AT_OWNER_LOOKING, IN_CHILDREN_UNKNOWN, RECIPE_OWNER, "children",
	0, 0},

	/* once is enough */
	{"OWNER: guard again -> OWNER",
		AT_OWNER_GUARDED, IN_GUARD, RECIPE_OWNER, "", 0, 0},
	{"OWNER: guarding watch used up -> OWNER: watch our own node",
		AT_OWNER_GUARDED, IN_TOUCHED, RECIPE_OWNER, "watch(own)", 0, 0},
	{"OWNER: guarding watch unknown -> OWNER: watch our own node",
		AT_OWNER_GUARDED, IN_WATCH_UNKNOWN, RECIPE_OWNER, "watch(own)", 0, 0},
	{"OWNER: guarding watch ok, a revocation -> OWNER: set; revoked",
		AT_OWNER_GUARDED, IN_WATCH_REVOKED, RECIPE_OWNER, "set",
	RECIPE_TOLD_REVOKED, 0},
	{"OWNER: guarding watch no node -> OWNER: stat",
		AT_OWNER_GUARDED, IN_WATCH_NO_NODE, RECIPE_OWNER, "stat", 0, 0},
	{"OWNER: own node deleted -> OWNER: stat",
		AT_OWNER_GUARDED, IN_DELETED, RECIPE_OWNER, "stat", 0, 0},

	{"READING: children ok, one excludes us, courteous -> WATCHING: watch",
		AT_READING_COURTEOUS, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	0, 0},
	{"READING: children ok, nobody excludes us, retaining -> stat, list",
		AT_READING_RETAINING, IN_ALONE, RECIPE_OWNER, "stat list",
	RECIPE_TOLD_GRANTED, 0},

	{"WATCHING: watch ok, a stray of our session -> WATCHING: delete it",
		AT_WATCHING, IN_WATCH_STRAY, RECIPE_WATCHING, "stray(first)", 0, 0},
	{"WATCHING: watch ok, a stray, another is ahead -> WATCHING: delete it",
		AT_WATCHING_OF_TWO, IN_WATCH_STRAY, RECIPE_WATCHING, "stray(second)",
	0, 0},
	{"WATCHING: watch ok, a stray, courteous -> WATCHING: delete it, queued",
		AT_WATCHING_COURTEOUS, IN_WATCH_STRAY, RECIPE_WATCHING,
	"stray(first)", RECIPE_TOLD_QUEUED, 0},
	{"WATCHING: watch ok, courteous, the owner needs it -> queued",
		AT_WATCHING_COURTEOUS, IN_WATCH_OK, RECIPE_WATCHING, "",
	RECIPE_TOLD_QUEUED, 0},
	{"WATCHING: watch ok, courteous, a revocation -> queued",
		AT_WATCHING_COURTEOUS, IN_WATCH_REVOKED, RECIPE_WATCHING, "",
	RECIPE_TOLD_QUEUED, 0},
	{"WATCHING: watch ok, courteous, the owner may not need it -> courting",
		AT_WATCHING_COURTEOUS, IN_WATCH_RETAINED, RECIPE_WATCHING, "",
	RECIPE_TOLD_RETAINED, 0},
	{"WATCHING: watch ok, courting, the owner needs it now -> queued",
		AT_WATCHING_COURTING, IN_WATCH_OK, RECIPE_WATCHING, "",
	RECIPE_TOLD_QUEUED, 0},
	{"WATCHING: watch used up otherwise, courting -> WATCHING: watch",
		AT_WATCHING_COURTING, IN_TOUCHED, RECIPE_WATCHING, "watch(first)",
	0, 0},
	{"WATCHING: predecessor deleted, courting -> OWNER: stat",
		AT_WATCHING_COURTING, IN_DELETED, RECIPE_OWNER, "stat",
	RECIPE_TOLD_GRANTED, 0},

	{"OWNER: monitor -> OWNER: list",
		AT_OWNER, IN_MONITOR, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: list ok, our node only -> OWNER: clear",
		AT_OWNER_MONITORING, IN_ALONE, RECIPE_OWNER, "",
	RECIPE_TOLD_ALONE, 0},
	{"OWNER: list ok, one later than ours -> OWNER: crowded",
		AT_OWNER_MONITORING, IN_SECOND, RECIPE_OWNER, "",
	RECIPE_TOLD_CONTENDED, 0},
	{"OWNER: list ok, only earlier ones -> OWNER: clear",
		AT_OWNER_MONITORING, IN_THIRD, RECIPE_OWNER, "",
	RECIPE_TOLD_ALONE, 0},
	{"OWNER: list ok, without our node -> OWNER: clear",
		AT_OWNER_MONITORING, IN_MISSING, RECIPE_OWNER, "",
	RECIPE_TOLD_ALONE, 0},
	{"OWNER: list ok, none -> OWNER: clear",
		AT_OWNER_MONITORING, IN_EMPTY, RECIPE_OWNER, "",
	RECIPE_TOLD_ALONE, 0},
	{"OWNER: list ok, with those of a semaphore -> OWNER: clear",
		AT_OWNER_MONITORING, IN_MIXED, RECIPE_OWNER, "",
	RECIPE_TOLD_ALONE, 0},
	{"OWNER: list ok, those of a semaphore only -> OWNER: clear",
		AT_OWNER_MONITORING, IN_MIXED_MISSING, RECIPE_OWNER, "",
	RECIPE_TOLD_ALONE, 0},
	{"OWNER: list unknown -> OWNER: list",
		AT_OWNER_MONITORING, IN_CHILDREN_UNKNOWN, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: list no node -> OWNER: crowded",
		AT_OWNER_MONITORING, IN_CHILDREN_NO_NODE, RECIPE_OWNER, "",
	RECIPE_TOLD_CONTENDED, 0},
	{"OWNER: list refused -> OWNER: crowded",
		AT_OWNER_MONITORING, IN_CHILDREN_REFUSED, RECIPE_OWNER, "",
	RECIPE_TOLD_CONTENDED, 0},
	/* of a watch before; it is one and the same for the server */
	{"OWNER: watch of the list used up ahead of the answer -> OWNER: list",
		AT_OWNER_MONITORING, IN_TOUCHED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: watch of the list used up -> OWNER: list",
		AT_OWNER_MONITORED, IN_TOUCHED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: watch of the list used up, directory deleted -> OWNER: list",
		AT_OWNER_MONITORING, IN_DELETED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: monitor again -> OWNER: list",
		AT_OWNER_MONITORED, IN_MONITOR, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: monitor again, crowded -> OWNER: list",
		AT_OWNER_CROWDED, IN_MONITOR, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: deny, the list is out -> OWNER: set",
		AT_OWNER_RETAINING, IN_DENY, RECIPE_OWNER, "set", 0, 0},
	{"OWNER: deny, clear -> OWNER: set",
		AT_OWNER_RETAINING_CLEAR, IN_DENY, RECIPE_OWNER, "set", 0, 0},
	{"OWNER: deny, crowded -> OWNER: set",
		AT_OWNER_RETAINING_CROWDED, IN_DENY, RECIPE_OWNER, "set", 0, 0},
	{"OWNER: release, retaining, the list is out -> LEAVING: delete",
		AT_OWNER_RETAINING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"OWNER: release, retaining, crowded -> LEAVING: delete",
		AT_OWNER_RETAINING_CROWDED, IN_RELEASE, RECIPE_LEAVING, "delete",
	0, 0},
	{"OWNER: release, denied -> LEAVING: delete",
		AT_OWNER_DENIED, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"OWNER: set unknown, denied -> OWNER: set",
		AT_OWNER_DENIED, IN_SET_UNKNOWN, RECIPE_OWNER, "set", 0, 0},

	{"LEAVING: delete ok -> NONE: gone",
		AT_LEAVING, IN_DELETE_OK, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"LEAVING: delete no node -> NONE: gone",
		AT_LEAVING, IN_DELETE_NO_NODE, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"LEAVING: delete unknown -> LEAVING: delete",
		AT_LEAVING, IN_DELETE_UNKNOWN, RECIPE_LEAVING, "delete", 0, 0},
	{"LEAVING: delete refused -> LEAVING: left behind",
		AT_LEAVING, IN_DELETE_REFUSED, RECIPE_LEAVING, "",
	RECIPE_TOLD_LEFT, ERROR_REFUSED},
	{"LEAVING: expired -> NONE: gone",
		AT_LEAVING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"LEAVING: retry, after a refusal -> LEAVING: delete",
		AT_LEAVING_REFUSED, IN_RETRY, RECIPE_LEAVING, "delete", 0, 0},
	{"LEAVING: expired, after a refusal -> NONE: gone",
		AT_LEAVING_REFUSED, IN_EXPIRED, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	/* no delete is out then, but an answer would be taken for what it says */
	{"LEAVING: delete ok, after a refusal -> NONE: gone",
		AT_LEAVING_REFUSED, IN_DELETE_OK, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"LEAVING: delete no node, after a refusal -> NONE: gone",
		AT_LEAVING_REFUSED, IN_DELETE_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"LEAVING: delete unknown, after a refusal -> LEAVING: delete",
		AT_LEAVING_REFUSED, IN_DELETE_UNKNOWN, RECIPE_LEAVING, "delete",
	0, 0},
	{"LEAVING: delete refused, after a refusal -> LEAVING: left behind",
		AT_LEAVING_REFUSED, IN_DELETE_REFUSED, RECIPE_LEAVING, "",
	RECIPE_TOLD_LEFT, ERROR_REFUSED},

	{"SEARCHING: children ok, one without order -> EXAMINING: get",
		AT_SEARCHING, IN_UNORDERED, RECIPE_READING_CHILD, "get(unordered)",
	RECIPE_TOLD_CREATED, 0},
	{"SEARCHING: children ok, one without order, mkdirs failed -> EXAMINING",
		AT_SEARCHING_IN_VAIN, IN_UNORDERED, RECIPE_READING_CHILD, "get(unordered)",
	RECIPE_TOLD_CREATED, 0},
	{"ABANDONING: children ok, one without order -> LEAVING: delete",
		AT_ABANDONING, IN_UNORDERED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_CREATED, 0},
	{"READING: children ok, one without order -> EXAMINING: get",
		AT_READING, IN_UNORDERED, RECIPE_READING_CHILD, "get(unordered)", 0, 0},
	{"OWNER: looked, children ok, one without order -> OWNER: behind",
		AT_OWNER_LOOKING, IN_UNORDERED, RECIPE_OWNER, "",
	RECIPE_TOLD_WRITER, 0},
	{"OWNER: list ok, one without order -> OWNER: crowded",
		AT_OWNER_MONITORING, IN_UNORDERED, RECIPE_OWNER, "",
	RECIPE_TOLD_CONTENDED, 0},

	{"EXAMINING: get ok, one of a cluster -> READING: children",
		AT_EXAMINING, IN_GET_CLUSTER, RECIPE_READING, "children", 0, 0},
	{"EXAMINING: get ok, one of another client -> LEAVING: delete; failed",
		AT_EXAMINING, IN_GET_OK, RECIPE_LEAVING, "delete", TOLD_ENDED, 0},
	{"EXAMINING: get ok, a revocation -> LEAVING: delete; failed",
		AT_EXAMINING, IN_GET_REVOKED, RECIPE_LEAVING, "delete", TOLD_ENDED, 0},
	{"EXAMINING: get ok, later than the directory -> LEAVING: delete; failed",
		AT_EXAMINING, IN_GET_OTHER, RECIPE_LEAVING, "delete", TOLD_ENDED, 0},
	{"EXAMINING: get no node -> READING: children",
		AT_EXAMINING, IN_GET_NO_NODE, RECIPE_READING, "children", 0, 0},
	{"EXAMINING: get unknown -> EXAMINING: get",
		AT_EXAMINING, IN_GET_UNKNOWN, RECIPE_READING_CHILD, "get(unordered)",
	0, 0},
	{"EXAMINING: get refused -> LEAVING: delete; failed",
		AT_EXAMINING, IN_GET_REFUSED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"EXAMINING: release -> LEAVING: delete",
		AT_EXAMINING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"EXAMINING: expired -> NONE: gone",
		AT_EXAMINING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"READING: children ok, nobody excludes us, late -> RETREATING: get, delete",
		AT_READING_LATE, IN_ALONE, RECIPE_RETREATING, "get delete", 0, 0},
	{"READING: children ok, late -> WATCHING: watch the last of them",
		AT_READING_LATE, IN_SECOND, RECIPE_WATCHING, "watch(later)",
	RECIPE_TOLD_QUEUED, 0},
	{"WATCHING: predecessor deleted, late -> RETREATING: get, delete",
		AT_WATCHING_LATE, IN_DELETED, RECIPE_RETREATING, "get delete", 0, 0},
	{"WATCHING: watch no node, late -> RETREATING: get, delete",
		AT_WATCHING_LATE, IN_WATCH_NO_NODE, RECIPE_RETREATING, "get delete",
	0, 0},

	{"RETREATING: get ok -> RETREATING",
		AT_RETREATING, IN_GET_OK, RECIPE_RETREATING, "", 0, 0},
	{"RETREATING: get ok, a revocation -> RETREATING",
		AT_RETREATING, IN_GET_REVOKED, RECIPE_RETREATING, "", 0, 0},
	{"RETREATING: get ok, data of a cluster -> RETREATING",
		AT_RETREATING, IN_GET_CLUSTER, RECIPE_RETREATING, "", 0, 0},
	{"RETREATING: get ok, of another time -> RETREATING",
		AT_RETREATING, IN_GET_OTHER, RECIPE_RETREATING, "", 0, 0},
	{"RETREATING: get refused -> LEAVING; failed",
		AT_RETREATING, IN_GET_REFUSED, RECIPE_LEAVING, "",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"RETREATING: delete ok, directory not known -> ENTERING: as new",
		AT_RETREATING, IN_DELETE_OK, RECIPE_ENTERING, "create children", 0, 0},
	{"RETREATING: delete no node -> ENTERING: as new",
		AT_RETREATING, IN_DELETE_NO_NODE, RECIPE_ENTERING, "create children",
	0, 0},
	{"RETREATING: delete unknown -> RETREATING: get, delete",
		AT_RETREATING, IN_DELETE_UNKNOWN, RECIPE_RETREATING, "get delete",
	0, 0},
	{"RETREATING: delete refused -> LEAVING: failed, left behind",
		AT_RETREATING, IN_DELETE_REFUSED, RECIPE_LEAVING, "",
	RECIPE_TOLD_FAILED | RECIPE_TOLD_LEFT, ERROR_REFUSED},
	{"RETREATING: release -> LEAVING",
		AT_RETREATING, IN_RELEASE, RECIPE_LEAVING, "", 0, 0},
	{"RETREATING: expired -> NONE: gone",
		AT_RETREATING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"RETREATING: delete ok, directory not known, one of a group -> NONE",
		AT_RETREATING_GROUPED, IN_DELETE_OK, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"RETREATING: delete no node, one of a group -> NONE: gone",
		AT_RETREATING_GROUPED, IN_DELETE_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},
	{"RETREATING: delete ok, directory known -> CLEARING: rmdir",
		AT_RETREATING_READ, IN_DELETE_OK, RECIPE_REMOVING_DIR, "rmdir", 0, 0},

	{"CLEARING: rmdir ok -> ENTERING: as new; renewed",
		AT_CLEARING, IN_RMDIR_OK, RECIPE_ENTERING, "mkdir create children",
	RECIPE_TOLD_RENEWED, 0},
	{"CLEARING: rmdir no node -> ENTERING: as new",
		AT_CLEARING, IN_RMDIR_NO_NODE, RECIPE_ENTERING, "mkdir create children",
	0, 0},
	{"CLEARING: rmdir unknown -> CLEARING: rmdir",
		AT_CLEARING, IN_RMDIR_UNKNOWN, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"CLEARING: rmdir refused, not empty -> SURVEYING: children",
		AT_CLEARING, IN_RMDIR_NOT_EMPTY, RECIPE_LISTING_DIR, "children", 0, 0},
	{"CLEARING: rmdir refused -> LEAVING: delete; failed",
		AT_CLEARING, IN_RMDIR_REFUSED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"CLEARING: release -> LEAVING: delete",
		AT_CLEARING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"CLEARING: expired -> NONE: gone",
		AT_CLEARING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},
	{"CLEARING: rmdir ok, one of a group -> NONE: gone; renewed",
		AT_CLEARING_GROUPED, IN_RMDIR_OK, RECIPE_NONE, "",
	RECIPE_TOLD_GONE | RECIPE_TOLD_RENEWED, 0},
	{"CLEARING: rmdir no node, one of a group -> NONE: gone",
		AT_CLEARING_GROUPED, IN_RMDIR_NO_NODE, RECIPE_NONE, "",
	RECIPE_TOLD_GONE, 0},

	{"SURVEYING: children ok, one -> SURVEYING: get",
		AT_SURVEYING, IN_ALONE, RECIPE_LISTING_DIR, "get", 0, 0},
	{"SURVEYING: children ok, three -> SURVEYING: get",
		AT_SURVEYING, IN_SECOND, RECIPE_LISTING_DIR, "get", 0, 0},
	{"SURVEYING: children ok, three others -> SURVEYING: get",
		AT_SURVEYING, IN_THIRD, RECIPE_LISTING_DIR, "get", 0, 0},
	{"SURVEYING: children ok, one left -> SURVEYING: get",
		AT_SURVEYING, IN_MISSING, RECIPE_LISTING_DIR, "get", 0, 0},
	{"SURVEYING: children ok, none -> SURVEYING: get",
		AT_SURVEYING, IN_EMPTY, RECIPE_LISTING_DIR, "get", 0, 0},
	{"SURVEYING: children ok, with those of a semaphore -> SURVEYING: get",
		AT_SURVEYING, IN_MIXED, RECIPE_LISTING_DIR, "get",
	RECIPE_TOLD_STRANGER, 0},
	{"SURVEYING: children ok, those of a semaphore only -> SURVEYING: get",
		AT_SURVEYING, IN_MIXED_MISSING, RECIPE_LISTING_DIR, "get",
	RECIPE_TOLD_STRANGER, 0},
	{"SURVEYING: children ok, one without order -> SURVEYING: get",
		AT_SURVEYING, IN_UNORDERED, RECIPE_LISTING_DIR, "get", 0, 0},
	{"SURVEYING: children no node -> ENTERING: as new",
		AT_SURVEYING, IN_CHILDREN_NO_NODE, RECIPE_ENTERING, "mkdir create children",
	0, 0},
	{"SURVEYING: children unknown -> CLEARING: rmdir",
		AT_SURVEYING, IN_CHILDREN_UNKNOWN, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"SURVEYING: children refused -> LEAVING: delete; failed",
		AT_SURVEYING, IN_CHILDREN_REFUSED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"SURVEYING: get no node -> ENTERING: as new",
		AT_SURVEYING, IN_GET_NO_NODE, RECIPE_ENTERING, "mkdir create children",
	0, 0},
	{"SURVEYING: get unknown -> CLEARING: rmdir",
		AT_SURVEYING, IN_GET_UNKNOWN, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"SURVEYING: get refused -> LEAVING: delete; failed",
		AT_SURVEYING, IN_GET_REFUSED, RECIPE_LEAVING, "delete",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"SURVEYING: get ok, another directory -> ENTERING: as new",
		AT_SURVEYING, IN_GET_OTHER, RECIPE_ENTERING, "create children", 0, 0},
	{"SURVEYING: get ok, empty -> CLEARING: rmdir",
		AT_SURVEYING, IN_GET_OK, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"SURVEYING: get ok, contenders -> STANDING_BY: watch",
		AT_SURVEYING_READ, IN_GET_OK, RECIPE_AWAITING_EMPTY, "watch(first)",
	0, 0},
	{"SURVEYING: get ok, strangers -> LEAVING: delete; ended",
		AT_SURVEYING_STRANGE, IN_GET_OK, RECIPE_LEAVING, "delete",
	TOLD_ENDED, 0},
	{"SURVEYING: get ok, empty, a revocation -> CLEARING: rmdir",
		AT_SURVEYING, IN_GET_REVOKED, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"SURVEYING: get ok, contenders, a revocation -> STANDING_BY: watch",
		AT_SURVEYING_READ, IN_GET_REVOKED, RECIPE_AWAITING_EMPTY, "watch(first)",
	0, 0},
	{"SURVEYING: get ok, strangers, a revocation -> LEAVING: delete; ended",
		AT_SURVEYING_STRANGE, IN_GET_REVOKED, RECIPE_LEAVING, "delete",
	TOLD_ENDED, 0},
	{"SURVEYING: get ok, empty, data of a cluster -> CLEARING: rmdir",
		AT_SURVEYING, IN_GET_CLUSTER, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"SURVEYING: get ok, contenders, data of a cluster -> STANDING_BY: watch",
		AT_SURVEYING_READ, IN_GET_CLUSTER, RECIPE_AWAITING_EMPTY, "watch(first)",
	0, 0},
	{"SURVEYING: get ok, strangers, data of a cluster -> LEAVING: delete; ended",
		AT_SURVEYING_STRANGE, IN_GET_CLUSTER, RECIPE_LEAVING, "delete",
	TOLD_ENDED, 0},
	{"SURVEYING: release -> LEAVING: delete",
		AT_SURVEYING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"SURVEYING: expired -> NONE: gone",
		AT_SURVEYING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"STANDING_BY: watch ok -> queued",
		AT_STANDING_BY, IN_WATCH_OK, RECIPE_AWAITING_EMPTY, "",
	RECIPE_TOLD_QUEUED, 0},
	{"STANDING_BY: watch ok, a stray of our session -> STANDING_BY: delete it",
		AT_STANDING_BY, IN_WATCH_STRAY, RECIPE_AWAITING_EMPTY, "stray(first)",
	RECIPE_TOLD_QUEUED, 0},
	{"STANDING_BY: watch ok, a revocation -> queued",
		AT_STANDING_BY, IN_WATCH_REVOKED, RECIPE_AWAITING_EMPTY, "",
	RECIPE_TOLD_QUEUED, 0},
	{"STANDING_BY: watch ok, retained -> queued",
		AT_STANDING_BY, IN_WATCH_RETAINED, RECIPE_AWAITING_EMPTY, "",
	RECIPE_TOLD_QUEUED, 0},
	{"STANDING_BY: watch unknown -> STANDING_BY: watch",
		AT_STANDING_BY, IN_WATCH_UNKNOWN, RECIPE_AWAITING_EMPTY, "watch(first)",
	0, 0},
	{"STANDING_BY: watch used up otherwise -> STANDING_BY: watch",
		AT_STANDING_BY, IN_TOUCHED, RECIPE_AWAITING_EMPTY, "watch(first)", 0, 0},
	{"STANDING_BY: watch no node -> CLEARING: rmdir",
		AT_STANDING_BY, IN_WATCH_NO_NODE, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"STANDING_BY: node deleted -> CLEARING: rmdir",
		AT_STANDING_BY, IN_DELETED, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"STANDING_BY: watch refused -> LEAVING: unwatch, delete; failed",
		AT_STANDING_BY, IN_WATCH_REFUSED, RECIPE_LEAVING, "unwatch(first) delete",
	RECIPE_TOLD_FAILED, ERROR_REFUSED},
	{"STANDING_BY: release -> LEAVING: unwatch, delete",
		AT_STANDING_BY, IN_RELEASE, RECIPE_LEAVING, "unwatch(first) delete",
	0, 0},
	{"STANDING_BY: expired -> NONE: gone",
		AT_STANDING_BY, IN_EXPIRED, RECIPE_NONE, "", RECIPE_TOLD_GONE, 0},

	{"WATCHING: watch ok, not ephemeral -> OWNER: unwatch, stat",
		AT_WATCHING, IN_WATCH_PERSISTENT, RECIPE_OWNER,
	"unwatch(first) stat", RECIPE_TOLD_GRANTED | RECIPE_TOLD_PERSISTENT, 0},
	{"WATCHING: watch ok, a container -> OWNER: unwatch, stat",
		AT_WATCHING, IN_WATCH_CONTAINER, RECIPE_OWNER,
	"unwatch(first) stat", RECIPE_TOLD_GRANTED | RECIPE_TOLD_PERSISTENT, 0},
	{"WATCHING: watch ok, not ephemeral, of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_WATCH_PERSISTENT, RECIPE_READING,
	"unwatch(second) children", RECIPE_TOLD_PERSISTENT, 0},
	{"WATCHING: watch ok, a container, of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_WATCH_CONTAINER, RECIPE_READING,
	"unwatch(second) children", RECIPE_TOLD_PERSISTENT, 0},
	{"WATCHING: watch ok, not ephemeral, late -> RETREATING: get, delete",
		AT_WATCHING_LATE, IN_WATCH_PERSISTENT, RECIPE_RETREATING,
	"unwatch(first) get delete", RECIPE_TOLD_PERSISTENT, 0},
	{"WATCHING: watch ok, a container, late -> RETREATING: get, delete",
		AT_WATCHING_LATE, IN_WATCH_CONTAINER, RECIPE_RETREATING,
	"unwatch(first) get delete", RECIPE_TOLD_PERSISTENT, 0},
	{"EXAMINING: get ok, not ephemeral -> READING: children",
		AT_EXAMINING, IN_GET_PERSISTENT, RECIPE_READING,
	"children", RECIPE_TOLD_PERSISTENT, 0},
	{"RETREATING: get ok, not ephemeral -> RETREATING",
		AT_RETREATING, IN_GET_PERSISTENT, RECIPE_RETREATING, "", 0, 0},
	{"SURVEYING: get ok, empty, not ephemeral -> CLEARING: rmdir",
		AT_SURVEYING, IN_GET_PERSISTENT, RECIPE_REMOVING_DIR, "rmdir", 0, 0},
	{"SURVEYING: get ok, contenders, not ephemeral -> STANDING_BY: watch",
		AT_SURVEYING_READ, IN_GET_PERSISTENT, RECIPE_AWAITING_EMPTY,
	"watch(first)", 0, 0},
	{"SURVEYING: get ok, strangers, not ephemeral -> LEAVING: delete",
		AT_SURVEYING_STRANGE, IN_GET_PERSISTENT, RECIPE_LEAVING,
	"delete", TOLD_ENDED, 0},
	{"STANDING_BY: watch ok, not ephemeral -> LEAVING: unwatch, delete",
		AT_STANDING_BY, IN_WATCH_PERSISTENT, RECIPE_LEAVING,
	"unwatch(first) delete", TOLD_ENDED, 0},
	{"STANDING_BY: watch ok, a container -> LEAVING: unwatch, delete",
		AT_STANDING_BY, IN_WATCH_CONTAINER, RECIPE_LEAVING,
	"unwatch(first) delete", TOLD_ENDED, 0}
};

static const char *
op_name(RecipeOpKind kind)
{
	switch (kind)
	{
		case RECIPE_OP_MKDIR:
			return "mkdir";
		case RECIPE_OP_MKDIRS:
			return "mkdirs";
		case RECIPE_OP_CREATE:
			return "create";
		case RECIPE_OP_CHILDREN:
			return "children";
		case RECIPE_OP_SEARCH:
			return "search";
		case RECIPE_OP_SYNC:
			return "sync";
		case RECIPE_OP_WATCH:
			return "watch";
		case RECIPE_OP_UNWATCH:
			return "unwatch";
		case RECIPE_OP_LIST:
			return "list";
		case RECIPE_OP_GET:
			return "get";
		case RECIPE_OP_SET:
			return "set";
		case RECIPE_OP_STAT:
			return "stat";
		case RECIPE_OP_DELETE:
			return "delete";
		case RECIPE_OP_DELETE_STRAY:
			return "stray";
		case RECIPE_OP_RMDIR:
			return "rmdir";
	}
	return "?";
}

/*
 * The operations of a step as text.  The node is told only where there is a
 * choice; where there is none, a wrong one is.
 */
static const char *
describe_ops(const RecipeOutput *out)
{
	static char text[1024];
	size_t		used = 0;

	text[0] = '\0';
	for (int i = 0; i < out->nops; i++)
	{
		const RecipeOp *op = &out->ops[i];
		const char *node = op->node;

		switch (op->kind)
		{
			case RECIPE_OP_MKDIR:
			case RECIPE_OP_MKDIRS:
			case RECIPE_OP_CHILDREN:
			case RECIPE_OP_SEARCH:
			case RECIPE_OP_LIST:
			case RECIPE_OP_RMDIR:
				assert_null(node);
				break;
			case RECIPE_OP_CREATE:
				if (strcmp(node, OUR_PREFIX) == 0 ||
					strcmp(node, READER_PREFIX) == 0)
					node = NULL;
				break;
			case RECIPE_OP_SYNC:
				fail_msg("%s is not for a recipe to send", op_name(op->kind));
				break;
			case RECIPE_OP_GET:
				if (node != NULL && strcmp(node, UNORDERED) == 0)
					node = "unordered";
				break;
			case RECIPE_OP_SET:
			case RECIPE_OP_STAT:
			case RECIPE_OP_DELETE:
				if (strcmp(node, OURS) == 0 || strcmp(node, OUR_READER) == 0)
					node = NULL;
				break;
			case RECIPE_OP_WATCH:
			case RECIPE_OP_UNWATCH:
			case RECIPE_OP_DELETE_STRAY:
				if (strcmp(node, OURS) == 0 && op->kind == RECIPE_OP_WATCH)
					node = "own";
				else if (strcmp(node, FIRST) == 0)
					node = "first";
				else if (strcmp(node, SECOND) == 0)
					node = "second";
				else if (strcmp(node, LATER) == 0)
					node = "later";
				break;
		}
		assert_null(op->data);	/* the usual */
		used += snprintf(text + used, sizeof(text) - used,
						 node ? "%s%s(%s)" : "%s%s",
						 i > 0 ? " " : "", op_name(op->kind), node);
		assert_true(used < sizeof(text));
	}
	return text;
}

/* Reads and watches carry the one serial number whose answer will count. */
static void
check_serials(const Recipe *recipe, uint32_t before, const RecipeOutput *out)
{
	for (int i = 0; i < out->nops; i++)
	{
		RecipeOpKind kind = out->ops[i].kind;

		if (kind == RECIPE_OP_CHILDREN || kind == RECIPE_OP_SEARCH ||
			kind == RECIPE_OP_WATCH || kind == RECIPE_OP_LIST ||
			kind == RECIPE_OP_GET || kind == RECIPE_OP_RMDIR)
		{
			assert_int_not_equal(recipe->serial, before);
			assert_int_equal(out->ops[i].serial, recipe->serial);
		}
	}
}

static void
give(Recipe *recipe, Input input, RecipeOutput *out)
{
	RecipeInput in;
	uint32_t	before = recipe->serial;

	if (input == IN_WANT || input == IN_WANT_NEW_DIR)
		recipe_want(recipe, our_uuid, recipe->kind, recipe->grouped,
					input == IN_WANT, out);
	else
	{
		memset(&in, 0, sizeof(in));
		in.event = inputs[input].event;
		in.result = inputs[input].result;
		if (in.result == RECIPE_NO_NODE)
			in.error = ERROR_NO_NODE;
		else if (in.result == RECIPE_REFUSED)
			in.error = ERROR_REFUSED;
		in.serial = inputs[input].stale ? recipe->serial - 1 : recipe->serial;
		in.node = inputs[input].node;
		in.children = inputs[input].children;
		while (in.nchildren < (int) lengthof(inputs[input].children) &&
			   in.children[in.nchildren] != NULL)
			in.nchildren++;
		in.data = inputs[input].data;
		in.data_len = in.data ? (int) strlen(in.data) : -1;
		in.czxid = inputs[input].other ? TOKEN + 1 : TOKEN;
		in.not_empty = inputs[input].not_empty;
		in.ephemeral_owner = inputs[input].container ? INT64_MIN :
			inputs[input].persistent ? 0 : 1;
		in.ours = inputs[input].ours;
		in.stray = inputs[input].stray;
		recipe_step(recipe, &in, out);
	}
	check_serials(recipe, before, out);
}

/* MKDIRS fails with an error of its own, to tell it from the create's. */
static void
give_mkdirs_refused(Recipe *recipe, RecipeOutput *out)
{
	RecipeInput in = {
		.event = RECIPE_MKDIR_DONE,
		.result = RECIPE_REFUSED,
		.error = ERROR_MKDIRS
	};

	recipe_step(recipe, &in, out);
	assert_int_equal(out->nops, 0);
}

static void
bring_to(Recipe *recipe, Situation situation)
{
	static const Input ways[NSITUATIONS][8] = {
		[AT_ENTERING] = {IN_WANT},
		[AT_ENTERING_MKDIR] = {IN_WANT_NEW_DIR},
		[AT_ENTERING_MKDIRS] = {IN_WANT, IN_CREATE_NO_NODE, IN_MKDIR_OK},
		[AT_ENTERING_IN_VAIN] = {IN_WANT, IN_CREATE_NO_NODE},
		[AT_CANCELLING] = {IN_WANT, IN_RELEASE},
		[AT_SEARCHING] = {IN_WANT, IN_CREATE_UNKNOWN},
		[AT_SEARCHING_IN_VAIN] = {IN_WANT, IN_CREATE_NO_NODE},
		[AT_ABANDONING] = {IN_WANT, IN_CREATE_UNKNOWN, IN_RELEASE},
		[AT_READING] = {IN_WANT, IN_CREATE_OK},
		[AT_ENTERING_GROUPED] = {IN_WANT},
		[AT_SEARCHING_GROUPED] = {IN_WANT, IN_CREATE_UNKNOWN},
		[AT_READING_GROUPED] = {IN_WANT, IN_CREATE_OK},
		[AT_WATCHING] = {IN_WANT, IN_CREATE_OK, IN_SECOND},
		[AT_WATCHING_OF_TWO] = {IN_WANT, IN_CREATE_OK, IN_THIRD},
		[AT_OWNER] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_OWNER_LOOKING] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_LOOK},
		[AT_OWNER_GUARDED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GUARD},
		[AT_READING_COURTEOUS] = {IN_WANT, IN_CREATE_OK},
		[AT_READING_RETAINING] = {IN_WANT, IN_CREATE_OK},
		[AT_WATCHING_COURTEOUS] = {IN_WANT, IN_CREATE_OK, IN_SECOND},
		[AT_WATCHING_COURTING] = {IN_WANT, IN_CREATE_OK, IN_SECOND,
		IN_WATCH_RETAINED},
		[AT_WATCHING_IN_USE] = {IN_WANT, IN_CREATE_OK, IN_SECOND,
		IN_WATCH_OK},
		[AT_OWNER_MONITORING] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_MONITOR},
		[AT_OWNER_MONITORED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_MONITOR,
		IN_ALONE},
		[AT_OWNER_CROWDED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_MONITOR,
		IN_SECOND},
		[AT_OWNER_RETAINING] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_OWNER_RETAINING_CLEAR] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_ALONE},
		[AT_OWNER_RETAINING_CROWDED] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_SECOND},
		[AT_OWNER_DENIED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_SECOND,
		IN_DENY},
		[AT_LEAVING] = {IN_WANT, IN_CREATE_OK, IN_RELEASE},
		[AT_LEAVING_REFUSED] = {IN_WANT, IN_CREATE_OK, IN_RELEASE,
		IN_DELETE_REFUSED},
		[AT_EXAMINING] = {IN_WANT, IN_CREATE_OK, IN_UNORDERED},
		[AT_READING_LATE] = {IN_WANT, IN_CREATE_OK},
		[AT_WATCHING_LATE] = {IN_WANT, IN_CREATE_OK, IN_SECOND},
		[AT_RETREATING] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_RETREATING_GROUPED] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_RETREATING_READ] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK},
		[AT_CLEARING] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK,
		IN_DELETE_OK},
		[AT_CLEARING_GROUPED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK,
		IN_DELETE_OK},
		[AT_SURVEYING] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK,
		IN_DELETE_OK, IN_RMDIR_NOT_EMPTY},
		[AT_SURVEYING_READ] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK,
		IN_DELETE_OK, IN_RMDIR_NOT_EMPTY, IN_MISSING},
		[AT_SURVEYING_STRANGE] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK,
		IN_DELETE_OK, IN_RMDIR_NOT_EMPTY, IN_MIXED_MISSING},
		[AT_STANDING_BY] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_GET_OK,
		IN_DELETE_OK, IN_RMDIR_NOT_EMPTY, IN_MISSING, IN_GET_OK}
	};
	/* the step after which our number is a late one */
	static const Input late_after[NSITUATIONS] = {
		[AT_READING_LATE] = IN_CREATE_OK,
		[AT_WATCHING_LATE] = IN_SECOND,
		[AT_RETREATING] = IN_CREATE_OK,
		[AT_RETREATING_GROUPED] = IN_CREATE_OK,
		[AT_RETREATING_READ] = IN_CREATE_OK,
		[AT_CLEARING] = IN_CREATE_OK,
		[AT_CLEARING_GROUPED] = IN_CREATE_OK,
		[AT_SURVEYING] = IN_CREATE_OK,
		[AT_SURVEYING_READ] = IN_CREATE_OK,
		[AT_SURVEYING_STRANGE] = IN_CREATE_OK,
		[AT_STANDING_BY] = IN_CREATE_OK
	};
	RecipeOutput out;

	recipe_init(recipe);
	recipe->grouped = situation == AT_ENTERING_GROUPED ||
		situation == AT_SEARCHING_GROUPED ||
		situation == AT_READING_GROUPED ||
		situation == AT_RETREATING_GROUPED ||
		situation == AT_CLEARING_GROUPED;
	recipe->asks_retained = situation == AT_READING_COURTEOUS ||
		situation == AT_WATCHING_COURTEOUS ||
		situation == AT_WATCHING_COURTING || situation == AT_WATCHING_IN_USE;
	recipe->retain = situation == AT_READING_RETAINING ||
		situation == AT_OWNER_RETAINING ||
		situation == AT_OWNER_RETAINING_CLEAR ||
		situation == AT_OWNER_RETAINING_CROWDED ||
		situation == AT_OWNER_DENIED;
	if (situation == AT_NONE)
		return;
	for (size_t i = 0; i < lengthof(ways[0]); i++)
		if (i == 0 || ways[situation][i] != IN_WANT)
		{
			give(recipe, ways[situation][i], &out);
			if (late_after[situation] != IN_WANT &&
				late_after[situation] == ways[situation][i])
				recipe->sequence = ZNODE_LATE_SEQUENCE;
		}
	if (situation == AT_ENTERING_IN_VAIN || situation == AT_SEARCHING_IN_VAIN)
		give_mkdirs_refused(recipe, &out);
	if (situation == AT_SEARCHING_IN_VAIN)
		give(recipe, IN_CREATE_UNKNOWN, &out);
	assert_int_equal(recipe->state, situation_state[situation]);
	if (recipe->state == RECIPE_LEAVING)
		assert_int_equal(recipe->refused, situation == AT_LEAVING_REFUSED);
	assert_int_equal(recipe_is_leaving(recipe),
					 situation == AT_CANCELLING || situation == AT_ABANDONING ||
					 situation == AT_LEAVING);
	if (recipe->state == RECIPE_WATCHING)
		assert_int_equal(recipe->retained_ahead,
						 situation == AT_WATCHING_COURTEOUS ||
						 situation == AT_WATCHING_COURTING);
}

/* The line that holds for an input in a situation, or NULL. */
static const Transition *
find_line(Situation at, Input input)
{
	for (size_t i = 0; i < lengthof(transitions); i++)
		if (transitions[i].at == at && transitions[i].input == input)
			return &transitions[i];
	return situation_base[at] != AT_NONE ?
		find_line(situation_base[at], input) : NULL;
}

static void
check_line(Situation at, const Transition *line)
{
	Recipe		recipe;
	RecipeOutput out;

	bring_to(&recipe, at);
	memset(&out, 0xFF, sizeof(out));	/* it has to be filled anew */
	give(&recipe, line->input, &out);

	assert_string_equal(recipe_state_name(recipe.state),
						recipe_state_name(line->state));
	assert_string_equal(describe_ops(&out), line->ops);
	assert_int_equal(out.told, line->told);
	assert_int_equal(out.error, line->error);
	if (out.told & RECIPE_TOLD_CREATED)
	{
		assert_int_equal(recipe.sequence, our_sequence);
		assert_string_equal(recipe.node, OURS);
	}
	if (out.told & RECIPE_TOLD_TOKEN)
		assert_true(out.token == TOKEN);
	if (out.told & RECIPE_TOLD_QUEUED)
		assert_int_equal(recipe.blockers, line->input == IN_THIRD ||
						 (line->input == IN_SECOND &&
						  at == AT_READING_LATE) ? 2 : 1);
	if (out.told & RECIPE_TOLD_GRANTED)
		assert_int_equal(recipe.blockers, 0);
	/* a delete that is to be retried is one that was refused last */
	if (recipe.state == RECIPE_LEAVING)
		assert_int_equal(recipe.refused, (out.told & RECIPE_TOLD_LEFT) != 0);
	/* kept only while we wait, so that nothing is left to free */
	if (recipe.state == RECIPE_LEAVING &&
		(situation_state[at] == RECIPE_WATCHING ||
		 situation_state[at] == RECIPE_AWAITING_EMPTY))
		assert_ptr_equal(recipe.predecessor, out.ops[0].node);
	else if (recipe.state != RECIPE_WATCHING &&
			 recipe.state != RECIPE_READING &&
			 recipe.state != RECIPE_AWAITING_EMPTY &&
			 situation_state[at] != RECIPE_LISTING_DIR &&
			 !(out.told & RECIPE_TOLD_MIXED))
		assert_null(recipe.predecessor);
	recipe_free(&recipe);
}

static void
test_transition(void **state)
{
	const Transition *line = *state;

	check_line(line->at, line);
}

/* The lines that a situation has in common with another one. */
static void
test_common_lines(void **state)
{
	int			lines = 0;

	(void) state;
	for (Situation at = 0; at < NSITUATIONS; at++)
	{
		for (Input input = 0; input < NINPUTS; input++)
		{
			const Transition *line = find_line(at, input);

			if (line != NULL && line->at != at)
			{
				check_line(at, line);
				lines++;
			}
		}
	}
	assert_in_range(lines, 30, INT_MAX);
}

/*
 * Every input in every situation: those that no line of the table is about
 * leave the recipe as it is, to the bit, send nothing and tell nothing.
 */
static void
test_everything_else_is_ignored(void **state)
{
	int			lines = 0;

	(void) state;
	for (Situation at = 0; at < NSITUATIONS; at++)
	{
		for (Input input = 0; input < NINPUTS; input++)
		{
			Recipe		recipe;
			Recipe		before;
			RecipeOutput out;

			for (size_t i = 0; i < lengthof(transitions); i++)
				if (transitions[i].at == at && transitions[i].input == input)
					lines++;
			if (find_line(at, input) != NULL)
				continue;

			bring_to(&recipe, at);
			before = recipe;
			memset(&out, 0xFF, sizeof(out));
			give(&recipe, input, &out);

			/* how making the directory went is kept for the create */
			if (input >= IN_MKDIR_OK && input <= IN_MKDIR_REFUSED)
				recipe.mkdir_error = before.mkdir_error;
			if (memcmp(&recipe, &before, sizeof(recipe)) != 0 ||
				out.nops != 0 || out.told != 0)
				fail_msg("situation %d (%s), input %d: now %s, \"%s\", %#x",
						 at, recipe_state_name(before.state), input,
						 recipe_state_name(recipe.state), describe_ops(&out),
						 out.told);
			recipe_free(&recipe);
		}
	}
	assert_int_equal(lines, lengthof(transitions));

	/* none is hidden behind another one */
	for (size_t i = 0; i < lengthof(transitions); i++)
		assert_ptr_equal(find_line(transitions[i].at, transitions[i].input),
						 &transitions[i]);
}

/* Without a contender there is nothing to do, whatever comes in late. */
static void
test_none_sends_nothing(void **state)
{
	static const struct
	{
		Situation	at;
		Input		input;
	}			ends[] =
	{
		{AT_CANCELLING, IN_CREATE_REFUSED},
		{AT_SEARCHING, IN_CHILDREN_REFUSED},
		{AT_ABANDONING, IN_EMPTY}, {AT_OWNER, IN_STAT_NO_NODE},
		{AT_WATCHING, IN_EXPIRED}, {AT_LEAVING, IN_DELETE_OK},
		{AT_OWNER_LOOKING, IN_EXPIRED}, {AT_OWNER_GUARDED, IN_EXPIRED},
		{AT_OWNER_RETAINING, IN_EXPIRED}, {AT_OWNER_MONITORED, IN_EXPIRED},
		{AT_OWNER_RETAINING_CROWDED, IN_STAT_NO_NODE},
		{AT_WATCHING_COURTING, IN_EXPIRED},
		{AT_READING_GROUPED, IN_MISSING},
		{AT_LEAVING_REFUSED, IN_DELETE_OK},
		{AT_LEAVING_REFUSED, IN_EXPIRED},
		{AT_CLEARING_GROUPED, IN_RMDIR_NO_NODE}, {AT_EXAMINING, IN_EXPIRED},
		{AT_RETREATING, IN_EXPIRED}, {AT_STANDING_BY, IN_EXPIRED},
		{AT_SURVEYING_READ, IN_EXPIRED}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(ends); i++)
	{
		for (Input input = IN_RELEASE; input < NINPUTS; input++)
		{
			Recipe		recipe;
			RecipeOutput out;

			bring_to(&recipe, ends[i].at);
			give(&recipe, ends[i].input, &out);
			assert_int_equal(recipe.state, RECIPE_NONE);
			give(&recipe, input, &out);
			assert_int_equal(recipe.state, RECIPE_NONE);
			assert_int_equal(out.nops, 0);
			assert_int_equal(out.told, 0);

			/* and it can be used again */
			give(&recipe, IN_WANT, &out);
			assert_string_equal(describe_ops(&out), "create children");
			recipe_free(&recipe);
		}
	}
}

/*-------------------------------------------------------------------------
 * What the table does not say
 *-------------------------------------------------------------------------
 */

static void
give_children(Recipe *recipe, const char *const *children, int nchildren,
			  RecipeOutput *out)
{
	RecipeInput in = {
		.event = RECIPE_CHILDREN_DONE,
		.result = RECIPE_OK,
		.serial = recipe->serial,
		.children = children,
		.nchildren = nchildren
	};
	uint32_t	before = recipe->serial;

	recipe_step(recipe, &in, out);
	check_serials(recipe, before, out);
}

/* A contender of ours with this number, its children on their way. */
static void
bring_to_reading(Recipe *recipe, bool shared, int32_t sequence)
{
	RecipeOutput out;
	char		node[ZNODE_CONTENDER_SIZE];
	RecipeInput in = {
		.event = RECIPE_CREATE_DONE,
		.result = RECIPE_OK,
		.node = node
	};

	recipe_init(recipe);
	recipe_want(recipe, our_uuid, KIND(shared), false, true, &out);
	assert_string_equal(out.ops[0].node, shared ? READER_PREFIX : OUR_PREFIX);
	znode_contender_name(our_uuid, KIND(shared), sequence, node);
	recipe_step(recipe, &in, &out);
	assert_int_equal(recipe->state, RECIPE_READING);
	assert_string_equal(recipe->node, node);
}

#define W(number)	"_c_44444444-4444-4444-8444-444444444444-lock-" #number
#define R(number)	"_c_55555555-5555-4555-8555-555555555555-__READ__" #number

/* Which of the others exclude us, and whose deletion we wait for. */
static void
test_place_in_queue(void **state)
{
	static const struct
	{
		bool		shared;
		int32_t		sequence;
		const char *others[6];
		int			blockers;
		const char *predecessor;
	}			places[] =
	{
		/* exclusive: everybody ahead, in whatever order they are listed */
		{false, 5, {NULL}, 0, NULL},
		{false, 5, {W(0000000006)}, 0, NULL},
		{false, 5, {W(0000000006), R(0000000007)}, 0, NULL},
		{false, 5, {W(0000000004)}, 1, W(0000000004)},
		{false, 5, {R(0000000004)}, 1, R(0000000004)},
		{false, 5, {W(0000000001), W(0000000003), W(0000000002)}, 3,
		W(0000000003)},
		{false, 5, {W(0000000003), W(0000000002), W(0000000001)}, 3,
		W(0000000003)},
		{false, 5, {W(0000000001), R(0000000003), W(0000000008)}, 2,
		R(0000000003)},
		/* shared: only the exclusive ones ahead */
		{true, 5, {NULL}, 0, NULL},
		{true, 5, {R(0000000001), R(0000000003)}, 0, NULL},
		{true, 5, {R(0000000001), W(0000000006), R(0000000007)}, 0, NULL},
		{true, 5, {W(0000000004)}, 1, W(0000000004)},
		{true, 5, {W(0000000001), R(0000000003)}, 1, W(0000000001)},
		{true, 5, {R(0000000004), W(0000000003), R(0000000002),
		W(0000000001)}, 2, W(0000000003)},
		{true, 5, {W(0000000009), W(0000000002), R(0000000008)}, 1,
		W(0000000002)},
		/* other clients' marks */
		{true, 5, {"0123456789abcdef0123456789abcdef__rlock__0000000004",
		"sh0000000003", "read-0000000002"}, 0, NULL},
		{true, 5, {"0123456789abcdef0123456789abcdef__lock__0000000004",
		"ex0000000003", "write-0000000002"}, 3,
		"0123456789abcdef0123456789abcdef__lock__0000000004"},
		/* the counter's end: the late wait for all, without order for more */
		{false, 1999999999, {W(0000000000), W(2000000000)}, 1,
		W(0000000000)},
		{false, 5, {W(2000000000), R(2147483646)}, 0, NULL},
		{true, 1999999999, {R(0000000001), W(2000000000)}, 0, NULL},
		{false, 2000000000, {W(1999999999), W(2000000001)}, 1,
		W(1999999999)},
		{true, 2000000001, {W(0000000003), R(2000000000)}, 2,
		R(2000000000)},
		{false, INT32_MAX, {W(2147483646), W(0000000005)}, 2,
		W(2147483646)},
		{true, INT32_MIN, {R(0000000005), R(2147483646)}, 2,
		R(2147483646)}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(places); i++)
	{
		Recipe		recipe;
		RecipeOutput out;
		const char *children[8];
		int			nchildren = 0;

		bring_to_reading(&recipe, places[i].shared, places[i].sequence);
		while (places[i].others[nchildren] != NULL)
		{
			children[nchildren] = places[i].others[nchildren];
			nchildren++;
		}

		/* our own node at every place of the list, which has no order */
		for (int own = 0; own <= nchildren; own++)
		{
			char		node[ZNODE_CONTENDER_SIZE];
			bool		sure = false;

			strcpy(node, recipe.node);
			memmove(&children[own + 1], &children[own],
					(nchildren - own) * sizeof(children[0]));
			children[own] = node;
			give_children(&recipe, children, nchildren + 1, &out);
			memmove(&children[own], &children[own + 1],
					(nchildren - own) * sizeof(children[0]));

			assert_int_equal(recipe.blockers, places[i].blockers);
			assert_int_equal(out.nops, 1);
			/* news of who is known by his name only need not wait */
			for (int j = 0; j < nchildren; j++)
				sure = sure || strncmp(places[i].others[j], "_c_", 3) == 0;
			if (places[i].predecessor == NULL)
			{
				assert_int_equal(recipe.state, RECIPE_OWNER);
				assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
				assert_int_equal(out.ops[0].kind, RECIPE_OP_STAT);
			}
			else
			{
				assert_int_equal(recipe.state, RECIPE_WATCHING);
				assert_int_equal(out.told, sure ? RECIPE_TOLD_QUEUED : 0);
				assert_int_equal(out.ops[0].kind, RECIPE_OP_WATCH);
				assert_string_equal(out.ops[0].node, places[i].predecessor);
			}
			recipe_free(&recipe);
			bring_to_reading(&recipe, places[i].shared, places[i].sequence);
		}
		recipe_free(&recipe);
	}
}

/*
 * A reader behind two writers, with readers between: it waits for the last
 * writer, looks again, waits for the first, and is granted though the readers
 * are still there.
 */
static void
test_reader_waits_for_writers_only(void **state)
{
	static const char *const all[] = {
		W(0000000001), R(0000000002), W(0000000003), R(0000000004), OUR_READER
	};
	static const char *const without_last[] = {
		W(0000000001), R(0000000002), R(0000000004), OUR_READER
	};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to_reading(&recipe, true, our_sequence);
	give_children(&recipe, all, lengthof(all), &out);
	assert_string_equal(out.ops[0].node, W(0000000003));
	assert_int_equal(recipe.blockers, 2);

	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "children");
	assert_int_equal(out.told, 0);
	give_children(&recipe, without_last, lengthof(without_last), &out);
	assert_string_equal(out.ops[0].node, W(0000000001));
	assert_int_equal(recipe.blockers, 1);

	give(&recipe, IN_DELETED, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
	assert_string_equal(describe_ops(&out), "stat");
	recipe_free(&recipe);
}

/*
 * Children named like contenders that are not ephemeral: each is looked at
 * once, from the last to the first, and told; who is behind them is queued only
 * once a contender has been found.
 */
static void
test_persistent_children(void **state)
{
	static const char *const others[] = {
		"order-0000000001", "order-0000000004", "x-1-0000000002",
		"order-0000000003", "zorder-0000000003"
	};
	static const char *const order[] = {
		"order-0000000004", "zorder-0000000003", "order-0000000003"
	};
	Recipe		recipe;
	RecipeOutput out;
	RecipeInput in = {.event = RECIPE_WATCH_DONE, .data_len = -1};
	char		own[ZNODE_CONTENDER_SIZE];
	const char *children[lengthof(others) + 1];

	(void) state;
	memcpy(children, others, sizeof(others));
	children[lengthof(others)] = own;
	bring_to_reading(&recipe, false, 5);
	strcpy(own, recipe.node);
	give_children(&recipe, children, lengthof(children), &out);
	for (size_t i = 0; i < lengthof(order); i++)
	{
		assert_int_equal(recipe.state, RECIPE_WATCHING);
		assert_int_equal(recipe.blockers, (int) (lengthof(others) - i));
		assert_int_equal(out.told, 0);
		assert_string_equal(out.ops[0].node, order[i]);
		in.serial = recipe.serial;
		in.ephemeral_owner = i % 2 ? INT64_MIN : 0;
		recipe_step(&recipe, &in, &out);
		assert_int_equal(out.told, RECIPE_TOLD_PERSISTENT);
		assert_string_equal(out.stranger, order[i]);
		assert_int_equal(out.nops, 2);
		assert_int_equal(out.ops[0].kind, RECIPE_OP_UNWATCH);
		assert_string_equal(out.ops[0].node, order[i]);
		assert_int_equal(out.ops[1].kind, RECIPE_OP_CHILDREN);
		give_children(&recipe, children, lengthof(children), &out);
	}

	/* this one is a contender */
	assert_string_equal(out.ops[0].node, "x-1-0000000002");
	in.serial = recipe.serial;
	in.ephemeral_owner = 1;
	recipe_step(&recipe, &in, &out);
	assert_int_equal(out.told, RECIPE_TOLD_QUEUED);
	assert_int_equal(out.nops, 0);
	recipe_step(&recipe, &in, &out);
	assert_int_equal(out.told, 0);
	give(&recipe, IN_DELETED, &out);
	children[2] = own;
	give_children(&recipe, children, lengthof(children) - 1, &out);
	assert_string_equal(out.ops[0].node, "order-0000000001");
	give(&recipe, IN_WATCH_CONTAINER, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED | RECIPE_TOLD_PERSISTENT);

	/* they are not behind us either; another contender begins anew */
	give(&recipe, IN_MONITOR, &out);
	give_children(&recipe, children, lengthof(children) - 1, &out);
	assert_int_equal(out.told, RECIPE_TOLD_ALONE);
	recipe_free(&recipe);
}

/* An answer that was overtaken by a new watch is not mistaken for its own. */
static void
test_overtaken_watch(void **state)
{
	Recipe		recipe;
	RecipeOutput out;
	RecipeInput in = {.event = RECIPE_NODE_DELETED};

	(void) state;
	bring_to(&recipe, AT_WATCHING);
	in.serial = recipe.serial;
	give(&recipe, IN_TOUCHED, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);

	recipe_step(&recipe, &in, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(out.nops, 0);

	in.serial = recipe.serial;
	recipe_step(&recipe, &in, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	recipe_free(&recipe);
}

/*
 * Somebody deleted our node while we waited.  That shows only when the
 * predecessor goes: granted in haste, and lost as soon as the stat is in.
 */
static void
test_node_deleted_while_waiting(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_WATCHING);
	give(&recipe, IN_DELETED, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
	give(&recipe, IN_STAT_NO_NODE, &out);
	assert_int_equal(out.told, TOLD_LOST);

	/* one of two: the second look finds it out, and we queue again */
	bring_to(&recipe, AT_WATCHING_OF_TWO);
	give(&recipe, IN_DELETED, &out);
	give(&recipe, IN_MISSING, &out);
	assert_string_equal(describe_ops(&out), "create children");
	assert_string_equal(recipe.node, OUR_PREFIX);
	recipe_free(&recipe);
}

/* No token, but the lock is ours; and it can be released as ever. */
static void
test_stat_refused_keeps_lock(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_OWNER);
	give(&recipe, IN_STAT_REFUSED, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.told, 0);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	recipe_free(&recipe);
}

/* A create's answer, and then a list of children without a token. */
static void
give_created(Recipe *recipe, int64_t token, uint32_t batch, RecipeOutput *out)
{
	RecipeInput in = {
		.event = RECIPE_CREATE_DONE,
		.node = OURS,
		.token = token,
		.batch = batch
	};

	recipe_step(recipe, &in, out);
	assert_int_equal(recipe->state, RECIPE_READING);
}

/* READING: children ok, nobody excludes us -> OWNER: token */
static void
test_token_comes_with_create(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_ENTERING);
	give_created(&recipe, 77, 0, &out);
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED | RECIPE_TOLD_TOKEN);
	assert_int_equal(out.token, 77);
	assert_string_equal(describe_ops(&out), "");

	/* what is stat'ed later, because the guard misses it, is our own node */
	give(&recipe, IN_GUARD, &out);
	give(&recipe, IN_WATCH_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "stat");
	assert_int_equal(out.ops[0].batch, 0);
	recipe_free(&recipe);
}

/*
 * WATCHING: predecessor deleted -> OWNER: stat, and token.  Nobody has looked
 * at our node since we began to wait.
 */
static void
test_node_is_looked_at_after_waiting(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	for (int batch = 0; batch <= 5; batch += 5)
	{
		bring_to(&recipe, AT_ENTERING);
		give_created(&recipe, 77, batch, &out);
		give(&recipe, IN_SECOND, &out);
		assert_int_equal(out.told, RECIPE_TOLD_QUEUED);
		give(&recipe, IN_DELETED, &out);
		assert_int_equal(out.told, RECIPE_TOLD_GRANTED | RECIPE_TOLD_TOKEN);
		assert_int_equal(out.token, 77);
		assert_string_equal(describe_ops(&out), "stat");
		assert_int_equal(out.ops[0].batch, 0);
		give(&recipe, IN_STAT_NO_NODE, &out);
		assert_int_equal(out.told, TOLD_LOST);
		recipe_free(&recipe);
	}

	/* one of two: the second look sees it */
	bring_to(&recipe, AT_ENTERING);
	give_created(&recipe, 77, 0, &out);
	give(&recipe, IN_THIRD, &out);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "children");
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED | RECIPE_TOLD_TOKEN);
	assert_string_equal(describe_ops(&out), "");
	recipe_free(&recipe);
}

/* The stat may be that of another node, if our own has just been seen. */
static void
test_stat_of_batch(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_ENTERING);
	give_created(&recipe, 0, 5, &out);
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
	assert_string_equal(describe_ops(&out), "stat");
	assert_int_equal(out.ops[0].batch, 5);

	/* it was not to be had: by itself then */
	give(&recipe, IN_STAT_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "stat");
	assert_int_equal(out.ops[0].batch, 0);
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.told, RECIPE_TOLD_TOKEN);
	assert_int_equal(out.token, TOKEN);
	recipe_free(&recipe);
}

/* Token and batch are those of one create only. */
static void
test_token_is_forgotten(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	for (int batch = 0; batch <= 5; batch += 5)
	{
		/* another contender of the same recipe */
		bring_to(&recipe, AT_ENTERING);
		give_created(&recipe, 77, batch, &out);
		give(&recipe, IN_RELEASE, &out);
		give(&recipe, IN_DELETE_OK, &out);
		give(&recipe, IN_WANT, &out);
		give(&recipe, IN_CREATE_OK, &out);
		give(&recipe, IN_ALONE, &out);
		assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
		assert_string_equal(describe_ops(&out), "stat");
		assert_int_equal(out.ops[0].batch, 0);
		recipe_free(&recipe);

		/* our node was deleted, and created anew; found by a search */
		bring_to(&recipe, AT_ENTERING);
		give_created(&recipe, 77, batch, &out);
		give(&recipe, IN_MISSING, &out);
		assert_string_equal(describe_ops(&out), "create children");
		give(&recipe, IN_CREATE_UNKNOWN, &out);
		assert_int_equal(recipe.state, RECIPE_SEARCHING);
		give(&recipe, IN_ALONE, &out);
		assert_int_equal(out.told, RECIPE_TOLD_CREATED | RECIPE_TOLD_GRANTED);
		assert_string_equal(describe_ops(&out), "stat");
		assert_int_equal(out.ops[0].batch, 0);
		recipe_free(&recipe);
	}
}

/* Who stops waiting takes the watch back once, whatever the delete does. */
static void
test_unwatch_once(void **state)
{
	static const Input ways[] = {IN_RELEASE, IN_WATCH_REFUSED};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	for (size_t i = 0; i < lengthof(ways); i++)
	{
		bring_to(&recipe, AT_WATCHING_OF_TWO);
		give(&recipe, ways[i], &out);
		assert_string_equal(describe_ops(&out), "unwatch(second) delete");
		give(&recipe, IN_DELETE_UNKNOWN, &out);
		assert_string_equal(describe_ops(&out), "delete");
		give(&recipe, IN_DELETE_REFUSED, &out);
		assert_int_equal(out.nops, 0);
		give(&recipe, IN_RETRY, &out);
		assert_string_equal(describe_ops(&out), "delete");

		/* the watch may have fired meanwhile */
		give(&recipe, IN_DELETED, &out);
		assert_int_equal(out.nops, 0);
		assert_int_equal(out.told, 0);
		give(&recipe, IN_DELETE_OK, &out);
		assert_int_equal(out.told, RECIPE_TOLD_GONE);
		assert_null(recipe.predecessor);
	}

	/* one that has been used up, with the next look on its way */
	bring_to(&recipe, AT_WATCHING_OF_TWO);
	give(&recipe, IN_DELETED, &out);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	give(&recipe, IN_DELETE_OK, &out);
	assert_null(recipe.predecessor);
}

/* A refused delete is sent again by a retry, as often as it is refused. */
static void
test_refused_delete_is_retried(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_LEAVING);
	for (int i = 0; i < 3; i++)
	{
		give(&recipe, IN_RETRY, &out);
		assert_int_equal(out.nops, 0);
		give(&recipe, IN_DELETE_REFUSED, &out);
		assert_int_equal(out.told, RECIPE_TOLD_LEFT);
		assert_int_equal(out.error, ERROR_REFUSED);
		assert_true(recipe.refused);
		give(&recipe, IN_RETRY, &out);
		assert_string_equal(describe_ops(&out), "delete");
		assert_int_equal(out.told, 0);
		assert_int_equal(out.error, 0);
		assert_false(recipe.refused);
	}

	/* nobody knows what became of it: sent again with no retry */
	give(&recipe, IN_DELETE_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "delete");
	give(&recipe, IN_DELETE_NO_NODE, &out);
	assert_int_equal(recipe.state, RECIPE_NONE);
	assert_int_equal(out.told, RECIPE_TOLD_GONE);

	/* the next contender's delete has not been refused */
	bring_to(&recipe, AT_LEAVING_REFUSED);
	give(&recipe, IN_EXPIRED, &out);
	give(&recipe, IN_WANT, &out);
	for (Input input = IN_CREATE_OK;; input = IN_RELEASE)
	{
		give(&recipe, IN_RETRY, &out);
		assert_int_equal(out.nops, 0);
		if (recipe.state == RECIPE_LEAVING)
			break;
		give(&recipe, input, &out);
	}
	give(&recipe, IN_DELETE_OK, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GONE);
}

/* The second node of a create that was repeated although it had arrived. */
static void
test_stray_is_deleted(void **state)
{
	static const char *const before[] = {STRAY(2), OURS};
	static const char *const behind[] = {OURS, STRAY(8)};
	static const char *const reader[] = {OUR_READER, OURS};
	static const char *const blocked[] = {STRAY(4), FIRST, OURS, STRAY(9)};
	static const char *const lost[] = {STRAY(4), FIRST};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;

	/* it never excludes us */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, before, lengthof(before), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_string_equal(describe_ops(&out), "stray(" STRAY(2) ") stat");

	bring_to(&recipe, AT_READING);
	give_children(&recipe, behind, lengthof(behind), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_string_equal(describe_ops(&out), "stray(" STRAY(8) ") stat");

	/* nor in the other mode */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, reader, lengthof(reader), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_string_equal(describe_ops(&out), "stray(" OUR_READER ") stat");

	bring_to(&recipe, AT_READING);
	give_children(&recipe, blocked, lengthof(blocked), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(recipe.blockers, 1);
	assert_string_equal(describe_ops(&out),
						"stray(" STRAY(4) ") "
						"stray(" STRAY(9) ") watch(first)");
	recipe_free(&recipe);

	/* our own node is gone, but a stray is there */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, lost, lengthof(lost), &out);
	assert_int_equal(recipe.state, RECIPE_ENTERING);
	assert_string_equal(describe_ops(&out),
						"stray(" STRAY(4) ") create children");

	/* found by a search: one is ours, the other is the stray */
	bring_to(&recipe, AT_SEARCHING);
	give_children(&recipe, before, lengthof(before), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.nops, 2);
	assert_int_equal(out.ops[0].kind, RECIPE_OP_DELETE_STRAY);
	assert_int_equal(out.ops[1].kind, RECIPE_OP_STAT);
	assert_string_equal(out.ops[1].node, recipe.node);
	assert_string_not_equal(out.ops[0].node, recipe.node);
	recipe_free(&recipe);
}

/* However many strays, what the step is about is still sent. */
static void
test_strays_leave_room(void **state)
{
	static const char *const many[] = {
		STRAY(0), STRAY(1), STRAY(2), STRAY(3), STRAY(4), OURS, STRAY(6),
		STRAY(7), STRAY(8), STRAY(9), FIRST
	};
	static const char *const lost[] = {
		STRAY(0), STRAY(1), STRAY(2), STRAY(3), STRAY(4), STRAY(6), STRAY(7),
		STRAY(8), STRAY(9)
	};
	static const int32_t sequence = 5;
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_READING);
	give_children(&recipe, many, lengthof(many), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_in_range(out.nops, 2, RECIPE_MAX_OPS);
	for (int i = 0; i < out.nops - 1; i++)
		assert_int_equal(out.ops[i].kind, RECIPE_OP_DELETE_STRAY);
	assert_int_equal(out.ops[out.nops - 1].kind, RECIPE_OP_WATCH);
	recipe_free(&recipe);

	/* the most that a step can be about: the directory, create, children */
	bring_to(&recipe, AT_ENTERING_MKDIRS);
	give(&recipe, IN_CREATE_OK, &out);
	give_children(&recipe, lost, lengthof(lost), &out);
	assert_int_equal(out.nops, RECIPE_MAX_OPS);
	assert_int_equal(out.ops[out.nops - 3].kind, RECIPE_OP_MKDIRS);
	assert_int_equal(out.ops[out.nops - 2].kind, RECIPE_OP_CREATE);
	assert_int_equal(out.ops[out.nops - 1].kind, RECIPE_OP_CHILDREN);
	recipe_free(&recipe);

	/* and with nothing to spare, those that are seen next time go then */
	recipe_init(&recipe);
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_WANTED,
				  &sequence, &out);
	give_children(&recipe, many, lengthof(many), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(out.ops[out.nops - 1].kind, RECIPE_OP_WATCH);
	recipe_free(&recipe);
}

/* What is no contender is nobody's blocker, and is told once in a step. */
static void
test_stranger_is_told(void **state)
{
	static const char *const strangers[] = {"leaves", OURS, "config", FIRST};
	static const char *const only_ours[] = {OURS};
	static const char *const odd_own[] = {OUR_PREFIX, OURS};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_READING);
	give_children(&recipe, strangers, lengthof(strangers), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(recipe.blockers, 1);
	assert_int_equal(out.told, RECIPE_TOLD_QUEUED | RECIPE_TOLD_STRANGER);
	assert_true(strcmp(out.stranger, "leaves") == 0 ||
				strcmp(out.stranger, "config") == 0);

	give(&recipe, IN_WATCH_UNKNOWN, &out);
	assert_int_equal(out.told, 0);
	recipe_free(&recipe);

	bring_to(&recipe, AT_READING);
	give_children(&recipe, strangers, 3, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED | RECIPE_TOLD_STRANGER);

	bring_to(&recipe, AT_READING);
	give_children(&recipe, only_ours, 1, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);

	/* under our UUID, but not what a sequential create makes */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, odd_own, lengthof(odd_own), &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED | RECIPE_TOLD_STRANGER);
	assert_string_equal(describe_ops(&out), "stat");

	bring_to(&recipe, AT_SEARCHING);
	give_children(&recipe, odd_own, 1, &out);
	assert_string_equal(describe_ops(&out), "create children");
	recipe_free(&recipe);
}

/* Neither the lock directory nor its parents are there. */
static void
test_directories_are_made(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_ENTERING_MKDIR);
	give(&recipe, IN_MKDIR_NO_NODE, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");

	/* the answer to the read of the first flight is too late to count */
	give(&recipe, IN_STALE_CHILDREN_NO_NODE, &out);
	assert_int_equal(out.nops, 0);

	/* they are made, but collected before the create: once more */
	give(&recipe, IN_MKDIR_OK, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");

	/* the connection broke: neither success nor failure */
	give(&recipe, IN_MKDIR_UNKNOWN, &out);
	give(&recipe, IN_CREATE_UNKNOWN, &out);
	give(&recipe, IN_CHILDREN_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");

	give(&recipe, IN_MKDIR_OK, &out);
	give(&recipe, IN_CREATE_OK, &out);
	assert_int_equal(out.told, RECIPE_TOLD_CREATED);
	assert_true(recipe.dir_known);
	recipe_free(&recipe);
}

/* What the user is told is about the mkdir, not about the create. */
static void
test_directories_cannot_be_made(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_ENTERING_MKDIR);
	give(&recipe, IN_MKDIR_REFUSED, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");
	assert_int_equal(out.told, 0);

	give_mkdirs_refused(&recipe, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_int_equal(out.told, TOLD_FAILED);
	assert_int_equal(out.error, ERROR_MKDIRS);

	/* a chroot that is not there: even the parents' parents are missing */
	bring_to(&recipe, AT_ENTERING_MKDIR);
	give(&recipe, IN_MKDIR_NO_NODE, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	give(&recipe, IN_MKDIR_NO_NODE, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_int_equal(out.told, TOLD_FAILED);
	assert_int_equal(out.error, ERROR_NO_NODE);

	/* the next contender starts with a clean slate */
	give(&recipe, IN_WANT_NEW_DIR, &out);
	assert_string_equal(describe_ops(&out), "mkdir create children");
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");
	recipe_free(&recipe);
}

/* A directory that was seen is not made again for a repeated create. */
static void
test_directory_is_remembered(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_ENTERING_MKDIR);
	give(&recipe, IN_MKDIR_OK, &out);
	give(&recipe, IN_CREATE_OK, &out);
	give(&recipe, IN_MISSING, &out);
	assert_string_equal(describe_ops(&out), "create children");
	recipe_free(&recipe);
}

/* A worker takes over where the one before it stopped. */
static void
test_resume(void **state)
{
	static const struct
	{
		RecipeResume how;
		bool		created;
		bool		shared;
		RecipeState state;
		RecipeOpKind op;
	}			cases[] =
	{
		{RECIPE_RESUME_WANTED, false, false, RECIPE_SEARCHING,
		RECIPE_OP_SEARCH},
		{RECIPE_RESUME_OWNED, false, false, RECIPE_SEARCHING,
		RECIPE_OP_SEARCH},
		{RECIPE_RESUME_RELEASING, false, false, RECIPE_ABANDONING,
		RECIPE_OP_SEARCH},
		{RECIPE_RESUME_WANTED, true, true, RECIPE_READING,
		RECIPE_OP_CHILDREN},
		{RECIPE_RESUME_OWNED, true, false, RECIPE_OWNER, RECIPE_OP_STAT},
		{RECIPE_RESUME_OWNED, true, true, RECIPE_OWNER, RECIPE_OP_STAT},
		{RECIPE_RESUME_RELEASING, true, true, RECIPE_LEAVING,
		RECIPE_OP_DELETE}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Recipe		recipe;
		RecipeOutput out;

		recipe_init(&recipe);
		memset(&out, 0xFF, sizeof(out));
		recipe_resume(&recipe, our_uuid, KIND(cases[i].shared), false,
					  cases[i].how, cases[i].created ? &our_sequence : NULL,
					  &out);
		assert_int_equal(recipe.state, cases[i].state);
		assert_int_equal(out.nops, 1);
		assert_int_equal(out.ops[0].kind, cases[i].op);
		assert_int_equal(out.told,
						 cases[i].created ? RECIPE_TOLD_CREATED : 0);
		check_serials(&recipe, 0, &out);
		if (cases[i].created)
			assert_string_equal(recipe.node,
								cases[i].shared ? OUR_READER : OURS);
		if (out.ops[0].kind == RECIPE_OP_STAT ||
			out.ops[0].kind == RECIPE_OP_DELETE)
			assert_ptr_equal(out.ops[0].node, recipe.node);
		recipe_free(&recipe);
	}
}

/* What a resumed contender does next is what any other would do. */
static void
test_resume_and_go_on(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	recipe_init(&recipe);
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_WANTED,
				  NULL, &out);
	give(&recipe, IN_MISSING, &out);
	assert_string_equal(describe_ops(&out), "create children");
	recipe_free(&recipe);

	recipe_init(&recipe);
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_WANTED,
				  &our_sequence, &out);
	give(&recipe, IN_SECOND, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	recipe_free(&recipe);

	recipe_init(&recipe);
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.told, RECIPE_TOLD_TOKEN);
	assert_true(out.token == TOKEN);
	recipe_free(&recipe);

	recipe_init(&recipe);
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false,
				  RECIPE_RESUME_RELEASING, NULL, &out);
	give(&recipe, IN_THIRD, &out);
	assert_string_equal(describe_ops(&out), "delete");
	recipe_free(&recipe);
}

/* A reader's look at who is behind: only an exclusive one matters. */
static void
test_look_behind(void **state)
{
	static const struct
	{
		int32_t		sequence;
		const char *other;
		unsigned	told;
	}			looks[] =
	{
		{5, R(0000000006), RECIPE_TOLD_NO_WRITER},
		{5, W(0000000006), RECIPE_TOLD_WRITER},
		{5, "77777777777777777777777777777777__lock__0000000006",
		RECIPE_TOLD_WRITER},
		{5, "77777777777777777777777777777777__rlock__0000000006",
		RECIPE_TOLD_NO_WRITER},
		{5, W(0000000004), RECIPE_TOLD_NO_WRITER},
		{5, "leaves", RECIPE_TOLD_NO_WRITER},
		{5, R(1999999999), RECIPE_TOLD_NO_WRITER},
		{5, R(2000000000), RECIPE_TOLD_WRITER},
		{5, R(2147483647), RECIPE_TOLD_WRITER},
		{5, W(-2147483648), RECIPE_TOLD_WRITER},
		{1999999999, W(2147483647), RECIPE_TOLD_WRITER}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(looks); i++)
	{
		Recipe		recipe;
		RecipeOutput out;
		char		own[ZNODE_CONTENDER_SIZE];
		const char *children[2] = {own, looks[i].other};

		bring_to_reading(&recipe, true, looks[i].sequence);
		strcpy(own, recipe.node);
		give_children(&recipe, children, 1, &out);
		assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
		give(&recipe, IN_LOOK, &out);
		for (int order = 0; order < 2; order++)
		{
			give_children(&recipe, children, 2, &out);
			assert_int_equal(out.told, looks[i].told);
			assert_int_equal(out.nops, 0);
			assert_int_equal(recipe.state, RECIPE_OWNER);

			/* a look is answered once */
			give_children(&recipe, children, 2, &out);
			assert_int_equal(out.told, 0);
			give(&recipe, IN_LOOK, &out);
			children[0] = looks[i].other;
			children[1] = own;
		}
		recipe_free(&recipe);
	}
}

/* A writer of the same cluster is not somebody else; the next look may be. */
static void
test_look_ignores_sibling(void **state)
{
	static const uint8_t sibling[ZNODE_UUID_BYTES] = {
		0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
		0x84, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44
	};
	static const char *const children[] = {
		OUR_READER, W(0000000006), LATER
	};
	RecipeInput in = {.event = RECIPE_CHECK_WRITERS};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to_reading(&recipe, true, our_sequence);
	give_children(&recipe, children, 1, &out);
	for (int known = 0; known < 2; known++)
	{
		in.sibling = known ? sibling : NULL;
		recipe_step(&recipe, &in, &out);
		give(&recipe, IN_CHILDREN_UNKNOWN, &out);
		assert_string_equal(describe_ops(&out), "children");
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.told, known ? RECIPE_TOLD_NO_WRITER :
						 RECIPE_TOLD_WRITER);
		recipe_step(&recipe, &in, &out);
		give_children(&recipe, children, 3, &out);
		assert_int_equal(out.told, RECIPE_TOLD_WRITER);
	}
	in.sibling = NULL;
	recipe_step(&recipe, &in, &out);
	give_children(&recipe, children, 2, &out);
	assert_int_equal(out.told, RECIPE_TOLD_WRITER);
	recipe_free(&recipe);
}

/* Look and guard do not get in each other's way, nor in a new contender's. */
static void
test_look_and_guard(void **state)
{
	Recipe		recipe;
	RecipeOutput out;
	RecipeInput look = {.event = RECIPE_CHILDREN_DONE};
	RecipeInput event = {.event = RECIPE_NODE_TOUCHED};

	(void) state;
	bring_to(&recipe, AT_OWNER_LOOKING);
	look.serial = recipe.serial;
	give(&recipe, IN_GUARD, &out);
	event.serial = recipe.serial;
	give(&recipe, IN_WATCH_OK, &out);
	recipe_step(&recipe, &look, &out);
	assert_int_equal(out.told, RECIPE_TOLD_NO_WRITER);

	give(&recipe, IN_LOOK, &out);
	recipe_step(&recipe, &event, &out);
	assert_string_equal(describe_ops(&out), "watch(own)");
	recipe_step(&recipe, &event, &out); /* of the one before */
	assert_int_equal(out.nops, 0);
	give(&recipe, IN_WATCH_REVOKED, &out);
	assert_string_equal(describe_ops(&out), "set");
	assert_int_equal(out.told, RECIPE_TOLD_REVOKED);

	/* what is out when the lock is given up is nobody's */
	look.serial = recipe.writer_check;
	event.serial = recipe.revocation_watch;
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	for (Input input = IN_DELETE_OK;; input = IN_WANT)
	{
		recipe_step(&recipe, &look, &out);
		assert_int_equal(out.told | out.nops, 0);
		recipe_step(&recipe, &event, &out);
		assert_int_equal(out.told | out.nops, 0);
		if (recipe.state == RECIPE_ENTERING)
			break;
		give(&recipe, input, &out);
	}
	give(&recipe, IN_CREATE_OK, &out);
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	recipe_step(&recipe, &look, &out);
	assert_int_equal(out.told | out.nops, 0);
	recipe_step(&recipe, &event, &out);
	assert_int_equal(out.told | out.nops, 0);

	/* and the new one has to be guarded anew */
	give(&recipe, IN_GUARD, &out);
	assert_string_equal(describe_ops(&out), "watch(own)");
	recipe_free(&recipe);
}

/*
 * Whom a monitor counts: everybody behind an exclusive contender, only the
 * exclusive ones behind a shared one, and nobody ahead.
 */
static void
test_monitor_behind(void **state)
{
	static const struct
	{
		ZnodeKind	kind;
		int32_t		sequence;
		const char *others[5];
		unsigned	told;
	}			monitors[] =
	{
		{ZNODE_MUTEX, 5, {NULL}, RECIPE_TOLD_ALONE},
		{ZNODE_MUTEX, 5, {W(0000000006)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_MUTEX, 5, {R(0000000006)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_WRITER, 5, {R(0000000006)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_WRITER, 5, {R(0000000009), W(0000000007), R(0000000008)},
		RECIPE_TOLD_CONTENDED},
		{ZNODE_MUTEX, 5,
			{"77777777777777777777777777777777__rlock__0000000006"},
		RECIPE_TOLD_CONTENDED},
		{ZNODE_MUTEX, 5, {W(0000000004), R(0000000003)}, RECIPE_TOLD_ALONE},
		{ZNODE_MUTEX, 5, {"leaves", "locks"}, RECIPE_TOLD_ALONE},
		{ZNODE_READER, 5, {NULL}, RECIPE_TOLD_ALONE},
		{ZNODE_READER, 5, {R(0000000006)}, RECIPE_TOLD_ALONE},
		{ZNODE_READER, 5, {R(0000000004), R(0000000006), R(0000000007)},
		RECIPE_TOLD_ALONE},
		{ZNODE_READER, 5, {W(0000000006)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_READER, 5, {R(0000000006), R(0000000007), W(0000000008)},
		RECIPE_TOLD_CONTENDED},
		{ZNODE_READER, 5,
			{"77777777777777777777777777777777__rlock__0000000006"},
		RECIPE_TOLD_ALONE},
		{ZNODE_READER, 5, {W(0000000004)}, RECIPE_TOLD_ALONE},
		/* the counter's end */
		{ZNODE_MUTEX, 5, {W(-2147483648)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_MUTEX, 1999999999, {W(2147483647)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_READER, 5, {R(1999999999)}, RECIPE_TOLD_ALONE},
		{ZNODE_READER, 5, {R(2000000000)}, RECIPE_TOLD_CONTENDED},
		{ZNODE_READER, 5, {R(-2147483648)}, RECIPE_TOLD_CONTENDED}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(monitors); i++)
	{
		char		own[ZNODE_CONTENDER_SIZE];
		const char *children[6] = {own};
		int			nchildren = 1;

		znode_contender_name(our_uuid, monitors[i].kind, monitors[i].sequence,
							 own);
		while (monitors[i].others[nchildren - 1] != NULL)
		{
			children[nchildren] = monitors[i].others[nchildren - 1];
			nchildren++;
		}

		/* our own node at every place of the list, which has no order */
		for (int at = 0; at < nchildren; at++)
		{
			Recipe		recipe;
			RecipeOutput out;
			bool		clear = monitors[i].told == RECIPE_TOLD_ALONE;

			recipe_init(&recipe);
			recipe.retain = at % 2 == 0;
			recipe_resume(&recipe, our_uuid, monitors[i].kind, false,
						  RECIPE_RESUME_OWNED, &monitors[i].sequence, &out);
			if (!recipe.retain)
				give(&recipe, IN_MONITOR, &out);
			give_children(&recipe, children, nchildren, &out);
			assert_int_equal(out.told, monitors[i].told);
			assert_int_equal(out.nops, 0);
			assert_int_equal(recipe.state, RECIPE_OWNER);

			/* the watch goes on if it is still of interest, and only then */
			give(&recipe, IN_TOUCHED, &out);
			assert_string_equal(describe_ops(&out), clear ? "list" : "");
			give_children(&recipe, children, nchildren, &out);
			assert_int_equal(out.told, clear ? RECIPE_TOLD_ALONE : 0);

			if (at + 1 < nchildren)
			{
				children[at] = children[at + 1];
				children[at + 1] = own;
			}
			recipe_free(&recipe);
		}
	}
}

/* Nobody, then a reader, then a writer: the reader alone is told of once. */
static void
test_monitor_goes_on(void **state)
{
	static const char *const children[] = {
		OUR_READER, R(0000000006), R(0000000007), W(0000000008)
	};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to_reading(&recipe, true, our_sequence);
	recipe.retain = true;
	give_children(&recipe, children, 1, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
	for (int n = 1; n < 4; n++)
	{
		give_children(&recipe, children, n, &out);
		assert_int_equal(out.told, RECIPE_TOLD_ALONE);
		give(&recipe, IN_TOUCHED, &out);
		assert_string_equal(describe_ops(&out), "list");
		assert_int_equal(out.told, 0);
	}

	/* nobody knows what became of the list: no news until it is in */
	give(&recipe, IN_CHILDREN_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "list");
	assert_int_equal(out.told, 0);
	give(&recipe, IN_STALE_ALONE, &out);
	assert_int_equal(out.told | out.nops, 0);
	give_children(&recipe, children, 4, &out);
	assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);
	assert_int_equal(out.nops, 0);
	assert_true(recipe.retain); /* it is for the worker to tell */

	/* once is enough */
	give(&recipe, IN_TOUCHED, &out);
	assert_int_equal(out.told | out.nops, 0);
	give_children(&recipe, children, 4, &out);
	assert_int_equal(out.told | out.nops, 0);

	/* but it can be asked again */
	give(&recipe, IN_MONITOR, &out);
	assert_string_equal(describe_ops(&out), "list");
	give_children(&recipe, children, 3, &out);
	assert_int_equal(out.told, RECIPE_TOLD_ALONE);
	recipe_free(&recipe);
}

/* One of the same cluster is not somebody else, until one asks anew. */
static void
test_monitor_ignores_sibling(void **state)
{
	static const uint8_t sibling[ZNODE_UUID_BYTES] = {
		0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
		0x84, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44
	};
	static const char *const readers[] = {OUR_READER, W(0000000006), LATER};
	static const char *const mutexes[] = {OURS, W(0000000006), LATER};

	(void) state;
	for (int shared = 0; shared < 2; shared++)
	{
		const char *const *children = shared ? readers : mutexes;
		RecipeInput in = {.event = RECIPE_WATCH_QUEUE};
		Recipe		recipe;
		RecipeOutput out;

		bring_to_reading(&recipe, shared, our_sequence);
		recipe.retain = true;
		give_children(&recipe, children, 1, &out);

		/* that which begins with the lock knows of none */
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);

		in.sibling = sibling;
		recipe_step(&recipe, &in, &out);
		give(&recipe, IN_CHILDREN_UNKNOWN, &out);
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.told, RECIPE_TOLD_ALONE);
		give(&recipe, IN_TOUCHED, &out);
		assert_string_equal(describe_ops(&out), "list");
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.told, RECIPE_TOLD_ALONE);
		give(&recipe, IN_TOUCHED, &out);
		give_children(&recipe, children, 3, &out);
		assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);

		in.sibling = NULL;
		recipe_step(&recipe, &in, &out);
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);

		/* nor does the next contender know of one */
		in.sibling = sibling;
		recipe_step(&recipe, &in, &out);
		give(&recipe, IN_EXPIRED, &out);
		recipe_want(&recipe, our_uuid, recipe.kind, false, true, &out);
		give(&recipe, IN_CREATE_UNKNOWN, &out);
		give_children(&recipe, children, 1, &out);
		assert_string_equal(describe_ops(&out), "stat list");
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);
		recipe_free(&recipe);
	}
}

/*
 * Monitor, look and guard are out at the same time, and each takes its own
 * answers and events only.  Nor do they get in the next contender's way.
 */
static void
test_monitor_look_and_guard(void **state)
{
	static const char *const alone[] = {OURS};
	static const char *const crowd[] = {OURS, LATER};
	Recipe		recipe;
	RecipeOutput out;
	RecipeInput list = {.event = RECIPE_CHILDREN_DONE, .children = alone,
	.nchildren = 1};
	RecipeInput look = list;
	RecipeInput listed = {.event = RECIPE_NODE_TOUCHED};
	RecipeInput guarded = {.event = RECIPE_NODE_TOUCHED};

	(void) state;
	bring_to(&recipe, AT_OWNER_RETAINING);
	list.serial = listed.serial = recipe.serial;
	give(&recipe, IN_LOOK, &out);
	look.serial = recipe.serial;
	give(&recipe, IN_GUARD, &out);
	guarded.serial = recipe.serial;
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.told | out.nops, 0);

	recipe_step(&recipe, &list, &out);
	assert_int_equal(out.told, RECIPE_TOLD_ALONE);
	recipe_step(&recipe, &look, &out);
	assert_int_equal(out.told, RECIPE_TOLD_NO_WRITER);

	/* the one that is used up is set again, not the other */
	recipe_step(&recipe, &guarded, &out);
	assert_string_equal(describe_ops(&out), "watch(own)");
	guarded.serial = recipe.serial;
	recipe_step(&recipe, &listed, &out);
	assert_string_equal(describe_ops(&out), "list");
	recipe_step(&recipe, &listed, &out);
	assert_int_equal(out.told | out.nops, 0);
	list.serial = listed.serial = recipe.serial;
	guarded.event = RECIPE_NODE_DELETED;
	recipe_step(&recipe, &guarded, &out);
	assert_string_equal(describe_ops(&out), "stat");

	/* a look behind the list does not answer it */
	give(&recipe, IN_LOOK, &out);
	give_children(&recipe, crowd, 2, &out);
	assert_int_equal(out.told, RECIPE_TOLD_WRITER);
	list.children = crowd;
	list.nchildren = 2;
	recipe_step(&recipe, &list, &out);
	assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);

	/* what we are is told with the next set, whatever that is for */
	give(&recipe, IN_DENY, &out);
	assert_string_equal(describe_ops(&out), "set");
	assert_false(recipe.retain);

	/* what is out when the lock is given up is nobody's */
	give(&recipe, IN_MONITOR, &out);
	list.serial = listed.serial = recipe.serial;
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	for (Input input = IN_DELETE_OK;; input = IN_WANT)
	{
		recipe_step(&recipe, &list, &out);
		assert_int_equal(out.told | out.nops, 0);
		recipe_step(&recipe, &listed, &out);
		assert_int_equal(out.told | out.nops, 0);
		if (recipe.state == RECIPE_ENTERING)
			break;
		give(&recipe, input, &out);
	}
	give(&recipe, IN_CREATE_OK, &out);
	recipe_step(&recipe, &list, &out);	/* nor what the queue is read from */
	assert_int_equal(out.told | out.nops, 0);
	recipe.asks_retained = true;
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	recipe_step(&recipe, &listed, &out);
	assert_int_equal(out.told | out.nops, 0);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "stat");	/* it denied */
	recipe_step(&recipe, &list, &out);
	assert_int_equal(out.told | out.nops, 0);
	recipe_step(&recipe, &listed, &out);
	assert_int_equal(out.told | out.nops, 0);
	recipe_free(&recipe);
}

/* Only an owner whose data says otherwise tells that it needs the lock. */
static void
test_deny(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	for (Situation at = 0; at < NSITUATIONS; at++)
	{
		bool		retains = at == AT_OWNER_RETAINING ||
			at == AT_OWNER_RETAINING_CLEAR ||
			at == AT_OWNER_RETAINING_CROWDED;

		bring_to(&recipe, at);
		give(&recipe, IN_DENY, &out);
		assert_string_equal(describe_ops(&out), retains ? "set" : "");
		assert_int_equal(out.told, 0);
		if (retains)
		{
			assert_ptr_equal(out.ops[0].node, recipe.node);
			assert_false(recipe.retain);
		}
		give(&recipe, IN_DENY, &out);
		assert_int_equal(out.told | out.nops, 0);
		recipe_free(&recipe);
	}

	/* a contender that still waits keeps its data, and owns with it */
	bring_to(&recipe, AT_READING_RETAINING);
	give(&recipe, IN_DENY, &out);
	give(&recipe, IN_SECOND, &out);
	give(&recipe, IN_DENY, &out);
	assert_true(recipe.retain);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "stat list");

	/* it is told until it has arrived */
	give(&recipe, IN_SECOND, &out);
	give(&recipe, IN_DENY, &out);
	give(&recipe, IN_SET_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "set");
	give(&recipe, IN_SET_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "set");
	give(&recipe, IN_SET_OK, &out);
	assert_int_equal(out.told | out.nops, 0);

	/* or the lock is given up */
	give(&recipe, IN_RELEASE, &out);
	give(&recipe, IN_SET_UNKNOWN, &out);
	assert_int_equal(out.told | out.nops, 0);
	recipe_free(&recipe);
}

/* A worker takes over an owner that may not need its lock. */
static void
test_resume_retaining(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;

	/* nobody has watched since; which may take the watch's event with it */
	recipe_init(&recipe);
	recipe.retain = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	check_serials(&recipe, 0, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	assert_int_equal(out.told, RECIPE_TOLD_CREATED);
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.told, RECIPE_TOLD_TOKEN);
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(out.told, RECIPE_TOLD_CONTENDED);
	give(&recipe, IN_DENY, &out);
	assert_string_equal(describe_ops(&out), "set");
	recipe_free(&recipe);

	/* in the other order, and it can be given up at once */
	recipe_init(&recipe);
	recipe.retain = true;
	recipe_resume(&recipe, our_uuid, ZNODE_READER, false, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(out.told, RECIPE_TOLD_ALONE);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	give(&recipe, IN_TOUCHED, &out);	/* by our own deletion */
	assert_int_equal(out.told | out.nops, 0);
	recipe_free(&recipe);

	/* one that is being given up is nobody's to wait for */
	recipe_init(&recipe);
	recipe.retain = recipe.asks_retained = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false,
				  RECIPE_RESUME_RELEASING, &our_sequence, &out);
	assert_string_equal(describe_ops(&out), "delete");
	recipe_free(&recipe);

	/* one that waits is courteous, and monitors when it owns */
	recipe_init(&recipe);
	recipe.retain = recipe.asks_retained = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_WANTED,
				  &our_sequence, &out);
	assert_string_equal(describe_ops(&out), "children");
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(out.told, 0);
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.told, RECIPE_TOLD_RETAINED);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
	recipe_free(&recipe);

	/* the same, its create not known to have arrived */
	recipe_init(&recipe);
	recipe.retain = recipe.asks_retained = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, false, RECIPE_RESUME_OWNED,
				  NULL, &out);
	assert_string_equal(describe_ops(&out), "search");
	give(&recipe, IN_SECOND, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.told, RECIPE_TOLD_CREATED);
	give(&recipe, IN_WATCH_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	recipe_free(&recipe);
}

/* Who is courteous asks, if only owners of the lock exclude us. */
static void
test_courtesy(void **state)
{
	static const struct
	{
		bool		shared;
		const char *others[4];
		RecipeState state;
		bool		courting;
	}			places[] =
	{
		{false, {NULL}, RECIPE_OWNER, false},
		{false, {W(0000000006)}, RECIPE_OWNER, false},
		{false, {W(0000000004)}, RECIPE_WATCHING, true},
		{false, {R(0000000004)}, RECIPE_WATCHING, true},
		{false, {W(0000000004), W(0000000006)}, RECIPE_WATCHING, true},
		{false, {W(0000000004), "leaves"}, RECIPE_WATCHING, true},
		/* a stray of ours is nobody */
		{false, {W(0000000004), STRAY(2)}, RECIPE_WATCHING, true},
		/* who is first may give way, but not to us */
		{false, {W(0000000004), W(0000000003)}, RECIPE_WATCHING, false},
		{false, {W(0000000004), R(0000000003)}, RECIPE_WATCHING, false},
		/* owners, one after the other */
		{false, {R(0000000004), R(0000000003)}, RECIPE_WATCHING, true},
		{false, {R(0000000003), R(0000000004), R(0000000002)}, RECIPE_WATCHING, true},
		{false, {R(0000000003), W(0000000004), R(0000000002)}, RECIPE_WATCHING, false},
		{true, {R(0000000004)}, RECIPE_OWNER, false},
		{true, {R(0000000004), R(0000000003)}, RECIPE_OWNER, false},
		{true, {W(0000000004)}, RECIPE_WATCHING, true},
		{true, {W(0000000004), R(0000000006)}, RECIPE_WATCHING, true},
		/* the only one that excludes us waits itself */
		{true, {R(0000000003), W(0000000004)}, RECIPE_WATCHING, false},
		/* another one that waits for the owner does not keep us from asking */
		{true, {W(0000000003), R(0000000004)}, RECIPE_WATCHING, true},
		{true, {W(0000000003), W(0000000004)}, RECIPE_WATCHING, false}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(places); i++)
	{
		for (int courteous = 0; courteous < 2; courteous++)
		{
			Recipe		recipe;
			RecipeOutput out;
			const char *children[5] = {places[i].shared ? OUR_READER : OURS};
			int			nchildren = 1;
			bool		courting = courteous && places[i].courting;

			while (places[i].others[nchildren - 1] != NULL)
			{
				children[nchildren] = places[i].others[nchildren - 1];
				nchildren++;
			}
			bring_to_reading(&recipe, places[i].shared, our_sequence);
			recipe.asks_retained = courteous;
			give_children(&recipe, children, nchildren, &out);
			assert_int_equal(recipe.state, places[i].state);
			if (recipe.state == RECIPE_WATCHING)
				assert_int_equal(recipe.retained_ahead, courting);
			assert_int_equal(out.told & ~RECIPE_TOLD_STRANGER,
							 recipe.state == RECIPE_OWNER ?
							 RECIPE_TOLD_GRANTED :
							 courting ? 0 : RECIPE_TOLD_QUEUED);
			if (recipe.state == RECIPE_WATCHING)
			{
				give(&recipe, IN_WATCH_RETAINED, &out);
				assert_int_equal(out.told,
								 courting ? RECIPE_TOLD_RETAINED : 0);
				give(&recipe, IN_TOUCHED, &out);
				assert_int_equal(out.told, 0);
				give(&recipe, IN_WATCH_OK, &out);
				assert_int_equal(out.told,
								 courting ? RECIPE_TOLD_QUEUED : 0);
			}
			recipe_free(&recipe);
		}
	}
}

/* What the data of the owner ahead says, to the byte. */
static void
test_retain_mark(void **state)
{
	static const struct
	{
		const char *data;
		int			len;
		bool		marked;
	}			examples[] =
	{
		{" retain=yes", 11, true},
		{"postgresql pid=1 retain=yes", 27, true},
		{"postgresql pid=1 retain=yesx", 27, true}, /* not terminated */
		{"postgresql pid=1 retain=yesx", 28, false},
		{"postgresql pid=1 retain=yes ", 28, false},
		{"postgresql retain=yes pid=1", 27, false},
		{"postgresql pid=1 retain=no", 26, false},
		{"postgresql pid=1 retain=ye", 26, false},
		{"postgresql pid=1_retain=yes", 27, false},
		{"retain=yes", 10, false},
		{"postgresql pid=1", 16, false},
		{"", 0, false},
		{NULL, -1, false}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
	{
		Recipe		recipe;
		RecipeOutput out;
		RecipeInput in = {.event = RECIPE_WATCH_DONE, .ephemeral_owner = 1};

		bring_to(&recipe, AT_WATCHING_COURTEOUS);
		in.serial = recipe.serial;
		in.data = examples[i].data;
		in.data_len = examples[i].len;
		recipe_step(&recipe, &in, &out);
		assert_int_equal(out.told, examples[i].marked ?
						 RECIPE_TOLD_RETAINED : RECIPE_TOLD_QUEUED);
		assert_int_equal(recipe.retained_ahead, examples[i].marked);
		assert_int_equal(out.nops, 0);
		recipe_free(&recipe);
	}
}

/* The owner ahead is asked until it has answered, once and for all. */
static void
test_courting_goes_on(void **state)
{
	static const char *const first_left[] = {SECOND, OURS};
	Recipe		recipe;
	RecipeOutput out;
	RecipeInput in = {.event = RECIPE_WATCH_DONE, .data = "me", .data_len = 2,
	.ephemeral_owner = 1};

	(void) state;

	/* faults are no answer */
	bring_to(&recipe, AT_WATCHING_COURTEOUS);
	in.serial = recipe.serial;
	give(&recipe, IN_WATCH_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.told, 0);
	recipe_step(&recipe, &in, &out);	/* of the watch before */
	assert_int_equal(out.told | out.nops, 0);
	give(&recipe, IN_TOUCHED, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.told, 0);
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.told, RECIPE_TOLD_RETAINED);
	give(&recipe, IN_TOUCHED, &out);
	give(&recipe, IN_WATCH_UNKNOWN, &out);
	assert_int_equal(out.told, 0);
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.told, RECIPE_TOLD_QUEUED);

	/* it stays so, whatever its data becomes */
	give(&recipe, IN_TOUCHED, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.told | out.nops, 0);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "unwatch(first) delete");
	recipe_free(&recipe);

	/* who gives up has no more to hear */
	bring_to(&recipe, AT_WATCHING_COURTEOUS);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "unwatch(first) delete");
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.told | out.nops, 0);
	give(&recipe, IN_DELETE_OK, &out);
	recipe_free(&recipe);

	/* of two, one goes: who is left is asked then */
	bring_to(&recipe, AT_READING_COURTEOUS);
	give(&recipe, IN_THIRD, &out);
	assert_int_equal(out.told, RECIPE_TOLD_QUEUED);
	assert_false(recipe.retained_ahead);
	give(&recipe, IN_DELETED, &out);
	give_children(&recipe, first_left, lengthof(first_left), &out);
	assert_string_equal(describe_ops(&out), "watch(second)");
	assert_int_equal(out.told, 0);
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.told, RECIPE_TOLD_QUEUED);
	give(&recipe, IN_DELETED, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GRANTED);
	recipe_free(&recipe);

	/* without memory for its name nothing is said yet */
	bring_to(&recipe, AT_READING_COURTEOUS);
	out_of_memory = true;
	give(&recipe, IN_SECOND, &out);
	out_of_memory = false;
	assert_string_equal(describe_ops(&out), "children");
	assert_int_equal(out.told, 0);
	give(&recipe, IN_SECOND, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.told, RECIPE_TOLD_RETAINED);

	/* the next contender asks for itself */
	give(&recipe, IN_EXPIRED, &out);
	recipe.asks_retained = false;
	give(&recipe, IN_WANT, &out);
	give(&recipe, IN_CREATE_OK, &out);
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(out.told, RECIPE_TOLD_QUEUED);
	recipe_free(&recipe);
}

/* However many strays, an owner that is to monitor does. */
static void
test_strays_leave_room_for_list(void **state)
{
	static const char *const many[] = {
		STRAY(0), STRAY(1), STRAY(2), STRAY(3), STRAY(4), OURS, STRAY(6),
		STRAY(7), STRAY(8), STRAY(9)
	};
	static const Situation ways[] = {AT_READING, AT_SEARCHING};

	(void) state;
	for (size_t i = 0; i < lengthof(ways); i++)
	{
		Recipe		recipe;
		RecipeOutput out;
		int			n;

		bring_to(&recipe, ways[i]);
		recipe.retain = true;

		/* a search takes the first of them for ours */
		n = (int) lengthof(many);
		give_children(&recipe, many, n, &out);
		assert_int_equal(recipe.state, RECIPE_OWNER);
		assert_in_range(out.nops, 3, RECIPE_MAX_OPS);
		for (int j = 0; j < out.nops - 2; j++)
			assert_int_equal(out.ops[j].kind, RECIPE_OP_DELETE_STRAY);
		assert_int_equal(out.ops[out.nops - 2].kind, RECIPE_OP_STAT);
		assert_int_equal(out.ops[out.nops - 1].kind, RECIPE_OP_LIST);
		assert_int_equal(out.ops[out.nops - 1].serial, recipe.queue_watch);
		recipe_free(&recipe);
	}
}

/* The numbers of reads and watches wrap around, and 0 is none of them. */
static void
test_serials_wrap(void **state)
{
	static const struct
	{
		Situation	at;
		Input		ask;
		Input		answer;
		const char *ops;
		unsigned	told;
	}			asks[] =
	{
		{AT_OWNER, IN_MONITOR, IN_SECOND, "", RECIPE_TOLD_CONTENDED},
		{AT_OWNER, IN_MONITOR, IN_TOUCHED, "list", 0},
		{AT_OWNER_MONITORED, IN_TOUCHED, IN_ALONE, "", RECIPE_TOLD_ALONE},
		{AT_OWNER_MONITORED, IN_TOUCHED, IN_TOUCHED, "list", 0},
		{AT_READING_RETAINING, IN_ALONE, IN_SECOND, "", RECIPE_TOLD_CONTENDED},
		{AT_OWNER, IN_LOOK, IN_SECOND, "", RECIPE_TOLD_WRITER},
		{AT_OWNER, IN_GUARD, IN_WATCH_REVOKED, "set", RECIPE_TOLD_REVOKED},
		{AT_OWNER, IN_GUARD, IN_TOUCHED, "watch(own)", 0},
		{AT_READING, IN_SECOND, IN_TOUCHED, "watch(first)", 0},
		{AT_WATCHING_OF_TWO, IN_DELETED, IN_ALONE, "stat",
		RECIPE_TOLD_GRANTED},
		{AT_READING_COURTEOUS, IN_SECOND, IN_WATCH_RETAINED, "",
		RECIPE_TOLD_RETAINED}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(asks); i++)
	{
		Recipe		recipe;
		RecipeOutput out;

		bring_to(&recipe, asks[i].at);
		recipe.serial = UINT32_MAX;
		if (recipe.queue_watch != 0)
			recipe.queue_watch = recipe.serial;
		give(&recipe, asks[i].ask, &out);
		for (int j = 0; j < out.nops; j++)
			if (out.ops[j].kind != RECIPE_OP_STAT)
				assert_int_not_equal(out.ops[j].serial, 0);
		give(&recipe, asks[i].answer, &out);
		assert_string_equal(describe_ops(&out), asks[i].ops);
		assert_int_equal(out.told, asks[i].told);
		recipe_free(&recipe);
	}
}

/* Only Curator's data is a revocation, to the byte. */
static void
test_revocation_data(void **state)
{
	static const struct
	{
		const char *data;
		int			len;
		bool		revokes;
	}			examples[] =
	{
		{"__REVOKE__", 10, true},
		{"__REVOKE__x", 11, false},
		{"__REVOKE__x", 10, true},	/* data is not terminated */
		{"__REVOKE_", 9, false},
		{"__revoke__", 10, false},
		{"", 0, false},
		{NULL, -1, false}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(examples); i++)
	{
		Recipe		recipe;
		RecipeOutput out;
		RecipeInput in = {.event = RECIPE_WATCH_DONE};

		bring_to(&recipe, AT_OWNER_GUARDED);
		in.serial = recipe.serial;
		in.data = examples[i].data;
		in.data_len = examples[i].len;
		recipe_step(&recipe, &in, &out);
		assert_int_equal(out.told,
						 examples[i].revokes ? RECIPE_TOLD_REVOKED : 0);
		assert_string_equal(describe_ops(&out),
							examples[i].revokes ? "set" : "");
		recipe_free(&recipe);
	}
}

/* Another name's directories are not ours to make one by one. */
static void
test_grouped_directories(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	recipe_init(&recipe);
	recipe.grouped = true;
	give(&recipe, IN_WANT_NEW_DIR, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");
	give(&recipe, IN_MKDIR_OK, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out); /* collected meanwhile */
	assert_int_equal(out.told, RECIPE_TOLD_GONE);
	assert_int_equal(out.nops, 0);
	assert_false(recipe.dir_known);

	give(&recipe, IN_WANT_NEW_DIR, &out);
	give_mkdirs_refused(&recipe, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_int_equal(out.told, TOLD_FAILED);
	assert_int_equal(out.error, ERROR_MKDIRS);

	/* one that fails takes the others with it: theirs is not known */
	give(&recipe, IN_WANT, &out);
	assert_string_equal(describe_ops(&out), "create children");
	give(&recipe, IN_CREATE_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "search");
	give(&recipe, IN_MISSING, &out);
	assert_int_equal(out.told, RECIPE_TOLD_GONE);
	assert_int_equal(out.nops, 0);

	/* the next contender is none of a group any more */
	recipe_want(&recipe, our_uuid, ZNODE_MUTEX, false, true, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "mkdirs create children");
	recipe_free(&recipe);
}

/* Every kind of contender enters and is found under a name of its own. */
static void
test_kinds(void **state)
{
	static const ZnodeKind kinds[] = {
		ZNODE_MUTEX, ZNODE_WRITER, ZNODE_READER, ZNODE_PERMIT
	};

	(void) state;
	for (size_t i = 0; i < lengthof(kinds); i++)
	{
		Recipe		recipe;
		RecipeOutput out;
		char		prefix[ZNODE_CONTENDER_SIZE];
		char		own[ZNODE_CONTENDER_SIZE];
		const char *children[] = {R(0000000004), own};

		znode_contender_prefix(our_uuid, kinds[i], prefix);
		znode_contender_name(our_uuid, kinds[i], our_sequence, own);
		recipe_init(&recipe);
		recipe_want(&recipe, our_uuid, kinds[i], false, true, &out);
		assert_string_equal(out.ops[0].node, prefix);
		give(&recipe, IN_CREATE_UNKNOWN, &out);
		give_children(&recipe, children, 2, &out);
		assert_string_equal(recipe.node, own);
		assert_int_equal(recipe.state, kinds[i] == ZNODE_READER ?
						 RECIPE_OWNER : RECIPE_WATCHING);
		recipe_free(&recipe);

		recipe_init(&recipe);
		recipe_resume(&recipe, our_uuid, kinds[i], true,
					  RECIPE_RESUME_RELEASING, &our_sequence, &out);
		assert_string_equal(out.ops[0].node, own);
		assert_true(recipe.grouped);
		recipe_free(&recipe);
	}
}

/* Without memory for the predecessor's name the recipe looks again. */
static void
test_out_of_memory(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_READING);
	out_of_memory = true;
	give(&recipe, IN_SECOND, &out);
	out_of_memory = false;
	assert_int_equal(recipe.state, RECIPE_READING);
	assert_string_equal(describe_ops(&out), "children");
	assert_int_equal(out.told, 0);

	give(&recipe, IN_SECOND, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	recipe_free(&recipe);
}

static void
test_free_is_repeatable(void **state)
{
	Recipe		recipe;

	(void) state;
	recipe_init(&recipe);
	recipe_free(&recipe);
	bring_to(&recipe, AT_WATCHING);
	recipe_free(&recipe);
	recipe_free(&recipe);
}

static void
test_state_names(void **state)
{
	(void) state;
	for (RecipeState a = RECIPE_NONE; a <= RECIPE_AWAITING_EMPTY; a++)
	{
		assert_string_not_equal(recipe_state_name(a), "unknown");
		for (RecipeState b = RECIPE_NONE; b < a; b++)
			assert_string_not_equal(recipe_state_name(a),
									recipe_state_name(b));
	}
	assert_string_equal(recipe_state_name((RecipeState) 99), "unknown");
}

/*-------------------------------------------------------------------------
 * The model: a server
 *
 * One lock directory with its history.  Every change has a zxid, and nodes
 * and directories keep those of their creation and deletion, so that the
 * directory can be seen as it was at any zxid: that is what a session's
 * server shows that lags behind.  As in ZooKeeper, a session's view never
 * goes back behind what the client has seen, a write is answered when the
 * session's server has it and all before it, and a watch fires when the view
 * passes the change.  A sync does nothing: it is answered by a leader that has
 * been deposed, and has not noticed.
 *
 * A client may be one that keeps its lock when it does not need it, or one
 * that asks such an owner.  What its cluster does then is played, too: who is
 * told that others wait gives way if it is idle, and denies otherwise.
 *
 * The directory's counter ends as ZooKeeper's does: the last number is given
 * again and again, and negative ones to creates that are under way together.
 *-------------------------------------------------------------------------
 */

#define MAX_CLIENTS		3
#define MAX_NODES		256
#define MAX_CHANGES		16
#define MAX_DIRS		64
#define MAX_ENTRIES		64
#define MAX_WATCHES		64
#define MAX_NOTES		4096
#define MAX_CHOICES		256

#define FOREIGN			0		/* the session of other clients' nodes */

typedef struct Node
{
	char		name[ZNODE_CONTENDER_SIZE];
	int			dir;
	int			session;
	bool		contender;
	bool		persistent;
	bool		shared;
	int32_t		sequence;
	int64_t		czxid;
	int64_t		dzxid;			/* 0 while it exists */
	int			nchanges;		/* of its data */
	int64_t		changes[MAX_CHANGES];	/* when */
	bool		revokes[MAX_CHANGES];	/* and whether it asks for the lock */
	bool		marks[MAX_CHANGES]; /* or tells that it may not be needed */
	bool		marked;			/* told so from the beginning */
	bool		denied;			/* its owner has answered that it is needed */
	bool		kin;			/* of another contender of its cluster */
	bool		stray;			/* of its session, and of no contender */
	bool		stays;			/* to delete it was refused */
} Node;

typedef struct Directory
{
	int64_t		czxid;
	int64_t		dzxid;
	int32_t		next;			/* sequence number of the next node */
	bool		used;			/* has had a node */
	/* the latest grants, to check that they follow the queue */
	bool		granted_any;
	int32_t		granted;
	bool		granted_exclusive_any;
	int32_t		granted_exclusive;
} Directory;

/*
 * What a session's connection carries: operations in the order sent, and
 * among them the watch events, where the server puts them.
 */
typedef struct Entry
{
	bool		is_event;
	bool		is_list;		/* of an event: of the directory's watch */
	bool		changed;		/* of an event: changed, not deleted */
	RecipeOpKind kind;
	char		node[ZNODE_CONTENDER_SIZE];
	uint32_t	serial;
	RecipeResult result;
	int			watch;			/* id, or 0 */
	int64_t		czxid;
	bool		ours;
	bool		of_cluster;		/* the data read is that of one of us */
	bool		persistent;		/* what was read is not ephemeral */
	bool		not_empty;		/* RMDIR: refused because of that */
	bool		stray;
	bool		revoked;		/* the data read */
	bool		marked;			/* the data read, or to be written */
	int64_t		view;			/* how far the answering server was */
	int			nchildren;
	int16_t		children[MAX_NODES];
} Entry;

typedef struct Watch
{
	int			id;
	int			node;
	uint32_t	serial;
	int64_t		since;			/* changes up to here were seen with it */
	bool		registered;		/* the client knows of it */
	bool		armed;			/* the server does */
	bool		orphaned;		/* its UNWATCH was lost with a connection */
} Watch;

typedef struct Client
{
	Recipe		recipe;
	int			session;
	bool		alive;			/* the session, at the server */
	bool		connected;
	int64_t		view;			/* what its server has applied */
	int64_t		seen;			/* what its client knows to have happened */
	Entry		entries[MAX_ENTRIES];
	int			nentries;
	int			nready;			/* those with an answer */
	Watch		watches[MAX_WATCHES];
	int			nwatches;
	/* the watch of the directory's children: a session has one at the most */
	bool		list_registered;	/* the client's library knows of it */
	bool		list_armed;		/* the server does */
	uint32_t	list_serial;	/* of the latest to have asked for it; or 0 */
	/* what the slot knows */
	bool		active;			/* wanted, and not told gone */
	bool		wanted;
	bool		owner;
	bool		created;
	bool		token;			/* known, or refused */
	int32_t		sequence;
	bool		revoked;		/* told so at least once */
	bool		retains;		/* the contender says that it may be idle */
	bool		in_use;			/* it is not */
	bool		crowded;		/* others wait behind it */
	bool		giving_way;		/* to be released for them */
	bool		queued;			/* told so at least once */
	/* what the worker knows */
	bool		left;			/* told left: to be retried */
	bool		guarded;		/* has asked for it */
	bool		watch_refused;	/* in vain */
	bool		set_refused;	/* what we are is not told */
	bool		looking;		/* is not told yet */
	bool		courteous;
	bool		courted;		/* told courting */
	bool		was_unsure;		/* recipe.unsure ahead of the last answer */
	bool		monitors;		/* has asked for it, or retains */
	bool		clear;			/* told so, and nothing else since */
	bool		denies;			/* has told that it needs the lock */
	int			creates;		/* sent for this contender */
	unsigned	told;			/* by the last step */
} Client;

typedef struct Note
{
	int			client;
	const char *what;
	long		number;
} Note;

typedef struct World
{
	/* the server */
	int64_t		zxid;
	int64_t		root_czxid;		/* of the directory's parent; 0: missing */
	int32_t		first_sequence; /* as if the directory had been used before */
	Node		nodes[MAX_NODES];
	int			nnodes;
	int			oldest;			/* no node before this one exists */
	Directory	dirs[MAX_DIRS];
	int			ndirs;
	int			last_session;
	int			last_watch;
	/* the clients */
	Client		clients[MAX_CLIENTS];
	int			nclients;
	/* what is allowed to happen */
	bool		refusals;
	bool		refuse_next;	/* whatever is carried out next */
	bool		tokens;			/* creates are answered with the czxid */
	bool		strangers;
	bool		semaphores;		/* the name may become one */
	bool		ended;			/* another client got a number without order */
	/* where choices come from: an odometer, or random numbers */
	bool		explore;
	struct
	{
		unsigned	value;
		unsigned	of;
	}			choices[MAX_CHOICES];
	int			nchoices;
	int			at_choice;
	uint64_t	random;
	/* how to name a run, and what happened in it */
	const char *title;
	unsigned long run;
	Note		notes[MAX_NOTES];
	int			nnotes;
} World;

/* How often the model came by the places that it is there for. */
typedef struct Tally
{
	unsigned long grants;
	unsigned long late;			/* contenders that had to retreat */
	unsigned long renewed;		/* directories deleted by us */
	unsigned long stood_by;
	unsigned long ended;
	unsigned long examined;
	unsigned long passed_over;
	unsigned long losses;
	unsigned long expirations;
	unsigned long lost;
	unsigned long failed;
	unsigned long restarts;
	unsigned long collected;
	unsigned long lagging_reads;
	unsigned long search_hits;
	unsigned long search_misses;
	unsigned long mkdirs;
	unsigned long touched;
	unsigned long unwatched;
	unsigned long left;
	unsigned long retried;
	unsigned long alone;
	unsigned long behind;
	unsigned long revoked;
	unsigned long mixed;
	unsigned long dissolved;	/* grouped contenders that did not reenter */
	unsigned long clear;
	unsigned long crowded;
	unsigned long crowded_unknown;	/* for the list was refused */
	unsigned long list_events;
	unsigned long gave_way;
	unsigned long denied;
	unsigned long courting;
	unsigned long courted_in_vain;
	unsigned long courted_granted;
	unsigned long strays;
} Tally;

static Tally tally;

/* The world that a failed check is about, and that runs are played in. */
static World world_storage;
static World *const world = &world_storage;

static void
note(int client, const char *what, long number)
{
	Note	   *entry = &world->notes[world->nnotes++ % MAX_NOTES];

	entry->client = client;
	entry->what = what;
	entry->number = number;
}

static void
check_failed(const char *rule)
{
	int			first = world->nnotes > 100 ? world->nnotes - 100 : 0;

	for (int i = first; i < world->nnotes; i++)
	{
		const Note *entry = &world->notes[i % MAX_NOTES];

		print_message("%5d  client %d  %s %ld\n", i, entry->client,
					  entry->what, entry->number);
	}
	for (int i = 0; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0)
			print_message("exists: %s, session %d\n", world->nodes[i].name,
						  world->nodes[i].session);
	for (int i = 0; i < world->nclients; i++)
		print_message("client %d: %s, session %d%s%s, node %s\n", i,
					  recipe_state_name(world->clients[i].recipe.state),
					  world->clients[i].session,
					  world->clients[i].alive ? "" : " (expired)",
					  world->clients[i].connected ? "" : " (disconnected)",
					  world->clients[i].recipe.node);
	fail_msg("%s, run %lu: %s", world->title, world->run, rule);
}

static void
check(bool holds, const char *rule)
{
	if (!holds)
		check_failed(rule);
}

/* splitmix64: the same numbers on every machine */
static uint64_t
next_random(void)
{
	uint64_t	z = (world->random += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* One of 0 .. n-1: the next in turn when exploring, else at random. */
static unsigned
choose(unsigned n)
{
	if (!world->explore)
		return (unsigned) (next_random() % n);

	if (world->at_choice == world->nchoices)
	{
		check(world->nchoices < MAX_CHOICES, "the model is out of choices");
		world->choices[world->nchoices].value = 0;
		world->choices[world->nchoices].of = n;
		world->nchoices++;
	}
	check(world->choices[world->at_choice].of == n,
		  "the model does not repeat itself");
	return world->choices[world->at_choice++].value;
}

/* Turn the odometer of choices; false when it has come around. */
static bool
next_schedule(void)
{
	while (world->nchoices > 0)
	{
		int			last = world->nchoices - 1;

		if (++world->choices[last].value < world->choices[last].of)
			return true;
		world->nchoices--;
	}
	return false;
}

/* true with a probability of 1/n; never when exploring */
static bool
one_in(unsigned n)
{
	return !world->explore && choose(n) == 0;
}

static void
start_world(const char *title, unsigned long run)
{
	/* all but the odometer */
	bool		explore = world->explore;
	int			nchoices = world->nchoices;

	world->zxid = 1;
	world->root_czxid = 1;
	world->first_sequence = 0;
	world->nnodes = 0;
	world->oldest = 0;
	world->ndirs = 0;
	world->last_session = FOREIGN;
	world->last_watch = 0;
	world->nclients = 0;
	world->refusals = false;
	world->refuse_next = false;
	world->strangers = false;
	world->semaphores = false;
	world->ended = false;
	world->tokens = false;
	world->explore = explore;
	world->nchoices = nchoices;
	world->at_choice = 0;
	world->random = run;
	world->title = title;
	world->run = run;
	world->nnotes = 0;
}

static bool
exists_at(int64_t czxid, int64_t dzxid, int64_t zxid)
{
	return czxid != 0 && czxid <= zxid && (dzxid == 0 || dzxid > zxid);
}

/* The lock directory as of a zxid; -1 if there is none. */
static int
directory_at(int64_t zxid)
{
	for (int i = world->ndirs - 1; i >= 0; i--)
		if (exists_at(world->dirs[i].czxid, world->dirs[i].dzxid, zxid))
			return i;
	return -1;
}

static int
node_at(const char *name, int64_t zxid)
{
	for (int i = world->nnodes - 1; i >= 0; i--)
		if (strcmp(world->nodes[i].name, name) == 0 &&
			exists_at(world->nodes[i].czxid, world->nodes[i].dzxid, zxid))
			return i;
	return -1;
}

static bool
directory_is_empty(void)
{
	for (int i = world->oldest; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0)
			return false;
	return true;
}

static int
make_directory(void)
{
	Directory  *dir = &world->dirs[world->ndirs];

	check(world->ndirs < MAX_DIRS, "the model is out of directories");
	memset(dir, 0, sizeof(*dir));
	dir->czxid = ++world->zxid;
	dir->next = world->first_sequence;
	return world->ndirs++;
}

/* The idle container is collected; its counter starts anew with the next. */
static void
collect_directory(void)
{
	int			dir = directory_at(world->zxid);

	if (dir >= 0 && world->dirs[dir].used && directory_is_empty())
	{
		world->dirs[dir].dzxid = ++world->zxid;
		world->first_sequence = 0;
		tally.collected++;
		note(-1, "directory collected", dir);
	}
}

/* Make a node, adding the number to its name if it is a sequential one. */
static int
make_node(const char *name, bool sequential, int session)
{
	int			dir = directory_at(world->zxid);
	Node	   *node = &world->nodes[world->nnodes];
	ZnodeContender contender;

	check(world->nnodes < MAX_NODES, "the model is out of nodes");
	check(dir >= 0, "the model has no directory for a node");
	node->dir = dir;
	node->session = session;
	node->sequence = world->dirs[dir].next;
	/* others are under way that were given the last number */
	if (sequential && node->sequence == INT32_MAX && one_in(4))
		node->sequence = INT32_MIN + (int32_t) choose(3);
	node->czxid = ++world->zxid;
	node->dzxid = 0;
	node->nchanges = 0;
	node->marked = node->denied = false;
	node->kin = node->stray = node->stays = false;
	snprintf(node->name, sizeof(node->name), sequential ? "%s%010d" : "%s",
			 name, (int) node->sequence);
	node->contender = sequential;
	node->persistent = !sequential;
	node->shared = sequential && znode_parse_contender(node->name, &contender)
		&& contender.shared;

	/* every create counts, but one more than the last is not larger */
	if (world->dirs[dir].next < INT32_MAX)
		world->dirs[dir].next++;
	world->dirs[dir].used = true;
	return world->nnodes++;
}

static void
delete_node(int node)
{
	world->nodes[node].dzxid = ++world->zxid;
	while (world->oldest < world->nnodes &&
		   world->nodes[world->oldest].dzxid != 0)
		world->oldest++;
}

/* A node's data is set, which its watches tell when their view passes it. */
static void
touch(int node, bool revoke)
{
	Node	   *changed = &world->nodes[node];

	check(changed->nchanges < MAX_CHANGES, "the model is out of changes");
	changed->changes[changed->nchanges] = ++world->zxid;
	changed->marks[changed->nchanges] = false;
	changed->revokes[changed->nchanges++] = revoke;
}

/* Is that what the data says, as of a zxid? */
static bool
asks_for_lock(const Node *node, int64_t zxid)
{
	for (int i = node->nchanges - 1; i >= 0; i--)
		if (node->changes[i] <= zxid)
			return node->revokes[i];
	return false;
}

/* Does the data say that the lock may not be needed, as of a zxid? */
static bool
is_marked(const Node *node, int64_t zxid)
{
	for (int i = node->nchanges - 1; i >= 0; i--)
		if (node->changes[i] <= zxid)
			return node->marks[i];
	return node->marked;
}

/* Has a child of the directory come or gone between two zxids? */
static bool
children_changed(int64_t since, int64_t zxid)
{
	for (int i = 0; i < world->nnodes; i++)
	{
		const Node *node = &world->nodes[i];

		if ((node->czxid > since && node->czxid <= zxid) ||
			(node->dzxid > since && node->dzxid <= zxid))
			return true;
	}
	return false;
}

static bool
has_changed(const Node *node, int64_t since, int64_t zxid)
{
	for (int i = 0; i < node->nchanges; i++)
		if (node->changes[i] > since && node->changes[i] <= zxid)
			return true;
	return false;
}

/*-------------------------------------------------------------------------
 * The model: sessions
 *-------------------------------------------------------------------------
 */

static int
client_number(const Client *client)
{
	return (int) (client - world->clients);
}

static Client *
add_client(void)
{
	Client	   *client = &world->clients[world->nclients++];

	recipe_init(&client->recipe);
	client->session = ++world->last_session;
	client->alive = true;
	client->connected = true;
	client->view = client->seen = world->zxid;
	client->nentries = client->nready = client->nwatches = 0;
	client->active = client->wanted = client->owner = client->created = false;
	client->token = client->left = client->revoked = false;
	client->guarded = client->watch_refused = client->set_refused = false;
	client->looking = false;
	client->list_registered = client->list_armed = false;
	client->list_serial = 0;
	client->retains = client->in_use = client->crowded = false;
	client->giving_way = client->queued = client->courteous = false;
	client->courted = client->monitors = client->clear = false;
	client->denies = false;
	return client;
}

static Entry *
add_entry(Client *client, int at)
{
	Entry	   *entry = &client->entries[at];

	check(client->nentries < MAX_ENTRIES, "operations pile up");
	memmove(entry + 1, entry, (client->nentries - at) * sizeof(*entry));
	client->nentries++;
	memset(entry, 0, offsetof(Entry, children));
	return entry;
}

/* The server tells a watch; the client hears it in the order of answers. */
static void
fire(Client *client, Watch *watch, bool changed)
{
	Entry	   *entry = add_entry(client, client->nready++);

	entry->is_event = true;
	entry->changed = changed;
	entry->serial = watch->serial;
	entry->watch = watch->id;
	watch->armed = false;
	if (changed)
		tally.touched++;
}

/* The same, of the watch of the children: once, whatever has come or gone. */
static void
fire_list(Client *client, bool changed)
{
	Entry	   *entry = add_entry(client, client->nready++);

	entry->is_event = entry->is_list = true;
	entry->changed = changed;
	client->list_armed = false;
	tally.list_events++;
}

/* The session's server applies changes up to "zxid". */
static void
advance(Client *client, int64_t zxid)
{
	int64_t		before = client->view;

	if (zxid > client->view)
		client->view = zxid;
	if (client->list_armed && children_changed(before, client->view))
		fire_list(client, true);
	if (client->list_armed && directory_at(client->view) < 0)
		fire_list(client, false);
	for (int i = 0; i < client->nwatches; i++)
	{
		Watch	   *watch = &client->watches[i];
		const Node *node = &world->nodes[watch->node];

		if (watch->armed && has_changed(node, watch->since, client->view))
			fire(client, watch, true);
		if (watch->armed &&
			!exists_at(node->czxid, node->dzxid, client->view))
			fire(client, watch, false);
	}
}

static void
forget_watch(Client *client, int id)
{
	for (int i = 0; i < client->nwatches; i++)
	{
		if (client->watches[i].id == id)
		{
			client->watches[i] = client->watches[--client->nwatches];
			return;
		}
	}
}

static bool
is_watch_of(const Watch *watch, const char *node)
{
	return strcmp(world->nodes[watch->node].name, node) == 0;
}

static void
list_children(Client *client, Entry *entry)
{
	for (int i = 0; i < world->nnodes; i++)
		if (exists_at(world->nodes[i].czxid, world->nodes[i].dzxid,
					  client->view))
			entry->children[entry->nchildren++] = (int16_t) i;

	/* a list of children has no order */
	for (int i = entry->nchildren - 1; i > 0 && !world->explore; i--)
	{
		int			j = (int) choose(i + 1);
		int16_t		swap = entry->children[i];

		entry->children[i] = entry->children[j];
		entry->children[j] = swap;
	}
}

static bool
has_uuid_of(const Node *node, const Client *client)
{
	return node->session == client->session &&
		znode_has_uuid(node->name, client->recipe.uuid);
}

/* The server carries out the next operation and answers it. */
static void
execute(Client *client)
{
	Entry		todo = client->entries[client->nready];
	bool		may_refuse = world->refusals;
	int			node;
	int			dir;

	note(client_number(client), op_name(todo.kind), todo.serial);

	/* who answers a write has it, and so has who answers what is behind it */
	if (todo.kind == RECIPE_OP_CHILDREN || todo.kind == RECIPE_OP_WATCH ||
		todo.kind == RECIPE_OP_GET || todo.kind == RECIPE_OP_SYNC ||
		todo.kind == RECIPE_OP_STAT || todo.kind == RECIPE_OP_LIST)
	{
		if (client->view < world->zxid)
			tally.lagging_reads++;
	}
	else if (todo.kind != RECIPE_OP_UNWATCH)
		advance(client, world->zxid);

	todo.result = RECIPE_OK;
	/* whether the node exists could not be found out then, and it may stay */
	may_refuse = may_refuse && todo.kind != RECIPE_OP_SEARCH;
	/* a watch is the session's own, and needs no permission to be removed */
	may_refuse = may_refuse && todo.kind != RECIPE_OP_UNWATCH;
	if (world->refuse_next || (may_refuse && one_in(25)))
	{
		todo.result = RECIPE_REFUSED;
		if (todo.kind == RECIPE_OP_DELETE_STRAY &&
			(node = node_at(todo.node, world->zxid)) >= 0)
			world->nodes[node].stays = true;
	}
	else
	{
		switch (todo.kind)
		{
			case RECIPE_OP_MKDIR:
				if (world->root_czxid == 0)
					todo.result = RECIPE_NO_NODE;
				else if (directory_at(world->zxid) < 0)
					make_directory();
				break;
			case RECIPE_OP_MKDIRS:
				tally.mkdirs++;
				if (world->root_czxid == 0)
					world->root_czxid = ++world->zxid;
				if (directory_at(world->zxid) < 0)
					make_directory();
				break;
			case RECIPE_OP_CREATE:
				dir = directory_at(world->zxid);
				if (dir < 0)
				{
					todo.result = RECIPE_NO_NODE;
					break;
				}
				for (int i = world->oldest; i < world->nnodes; i++)
					check(world->nodes[i].dzxid != 0 ||
						  world->nodes[i].kin || world->nodes[i].stray ||
						  world->nodes[i].session != client->session,
						  "a contender has at most one node");
				node = make_node(todo.node, true, client->session);
				world->nodes[node].marked = todo.marked;
				strcpy(todo.node, world->nodes[node].name);
				todo.czxid = world->nodes[node].czxid;
				break;
			case RECIPE_OP_CHILDREN:
			case RECIPE_OP_SEARCH:
			case RECIPE_OP_SYNC:
			case RECIPE_OP_LIST:
				if (directory_at(client->view) < 0)
					todo.result = RECIPE_NO_NODE;
				else
				{
					list_children(client, &todo);
					if (todo.kind == RECIPE_OP_LIST)
						client->list_armed = true;
				}
				break;
			case RECIPE_OP_WATCH:
				node = node_at(todo.node, client->view);
				if (node < 0)
					todo.result = RECIPE_NO_NODE;
				else
				{
					Watch	   *watch = &client->watches[client->nwatches++];

					check(client->nwatches < MAX_WATCHES, "watches pile up");
					watch->id = todo.watch = ++world->last_watch;
					watch->node = node;
					watch->serial = todo.serial;
					watch->since = client->view;
					todo.of_cluster = world->nodes[node].session != FOREIGN;
					todo.persistent = world->nodes[node].persistent;
					todo.revoked = asks_for_lock(&world->nodes[node],
												 client->view);
					todo.marked = is_marked(&world->nodes[node],
											client->view);
					todo.ours = world->nodes[node].session == client->session;
					todo.stray = todo.ours && world->nodes[node].stray;
					watch->registered = false;
					watch->armed = true;
					watch->orphaned = false;
				}
				break;
			case RECIPE_OP_UNWATCH:
				/* one that has fired is not there any more: no matter */
				for (int i = 0; i < client->nwatches; i++)
				{
					if (client->watches[i].armed &&
						is_watch_of(&client->watches[i], todo.node))
					{
						tally.unwatched++;
						client->watches[i].armed = false;
					}
				}
				break;
			case RECIPE_OP_STAT:
				node = node_at(todo.node, client->view);
				if (node < 0)
					todo.result = RECIPE_NO_NODE;
				else
				{
					todo.czxid = world->nodes[node].czxid;
					todo.ours = world->nodes[node].session == client->session;
				}
				break;
			case RECIPE_OP_GET:
				dir = directory_at(client->view);
				node = todo.node[0] != '\0' ?
					node_at(todo.node, client->view) : -1;
				if (dir < 0 || (node < 0 && todo.node[0] != '\0'))
					todo.result = RECIPE_NO_NODE;
				else if (node < 0)
					todo.czxid = world->dirs[dir].czxid;
				else
				{
					todo.czxid = world->nodes[node].czxid;
					todo.of_cluster = world->nodes[node].session != FOREIGN;
					todo.persistent = world->nodes[node].persistent;
				}
				break;
			case RECIPE_OP_RMDIR:
				dir = directory_at(world->zxid);
				if (dir < 0)
					todo.result = RECIPE_NO_NODE;
				else if (!directory_is_empty())
				{
					todo.result = RECIPE_REFUSED;
					todo.not_empty = true;
				}
				else
				{
					for (int i = 0; i < world->nclients; i++)
						check(!world->clients[i].owner ||
							  !world->clients[i].alive,
							  "no owner's directory is deleted");
					world->dirs[dir].dzxid = ++world->zxid;
					world->first_sequence = 0;
				}
				break;
			case RECIPE_OP_SET:
				node = node_at(todo.node, world->zxid);
				if (node < 0)
					todo.result = RECIPE_NO_NODE;
				else
				{
					Node	   *set = &world->nodes[node];

					touch(node, false);
					set->marks[set->nchanges - 1] = todo.marked;
				}
				break;
			case RECIPE_OP_DELETE:
			case RECIPE_OP_DELETE_STRAY:
				node = node_at(todo.node, world->zxid);
				if (node < 0)
					todo.result = RECIPE_NO_NODE;
				else
					delete_node(node);
				break;
		}
		if (todo.kind != RECIPE_OP_CHILDREN && todo.kind != RECIPE_OP_WATCH &&
			todo.kind != RECIPE_OP_STAT && todo.kind != RECIPE_OP_UNWATCH &&
			todo.kind != RECIPE_OP_LIST && todo.kind != RECIPE_OP_GET &&
			todo.kind != RECIPE_OP_SYNC)
			advance(client, world->zxid);
	}

	/* events that this brought about have gone ahead of the answer */
	todo.view = client->view;
	client->entries[client->nready++] = todo;
}

/* Does a node stand behind a contender that excludes it? */
static bool
stands_behind(const Node *node, const Recipe *recipe)
{
	return node->contender &&
		(znode_is_unordered(node->sequence) ||
		 znode_before(recipe->sequence, node->sequence)) &&
		!(recipe->kind == ZNODE_READER && node->shared &&
		  !znode_is_late(node->sequence));
}

/* Does a node stand ahead of one, and exclude it? */
static bool
stands_ahead(const Node *node, int32_t sequence, bool shared)
{
	return node->contender && !znode_is_unordered(node->sequence) &&
		(znode_is_unordered(sequence) ||
		 znode_before(node->sequence, sequence)) &&
		!(shared && node->shared && !znode_is_late(sequence));
}

/* Who is monitored is not missed: the news is there, or on its way. */
static void
check_monitor(const Client *client)
{
	bool		pending = false;

	check(client->list_serial == client->recipe.queue_watch,
		  "the watch of the list tells the monitor");
	for (int i = 0; i < client->nentries; i++)
	{
		const Entry *entry = &client->entries[i];

		if (entry->is_event ? entry->is_list :
			entry->kind == RECIPE_OP_LIST &&
			entry->serial == client->recipe.queue_watch)
			pending = true;
	}
	if (pending)
		return;
	check(client->connected ? client->list_armed : client->list_registered,
		  "who monitors has a watch, or an answer on its way");
	check(client->clear, "who monitors is told");
	for (int i = world->oldest; i < world->nnodes && client->connected; i++)
	{
		const Node *node = &world->nodes[i];

		check(!exists_at(node->czxid, node->dzxid, client->view) ||
			  !stands_behind(node, &client->recipe),
			  "nobody is behind who is clear, or news is on its way");
	}
}

/* What must hold at any time, whatever has happened. */
static void
check_rules(void)
{
	int			exclusive = 0;
	int			shared = 0;

	for (int i = 0; i < world->nclients; i++)
	{
		Client	   *client = &world->clients[i];
		Recipe	   *recipe = &client->recipe;
		int			own;

		check((recipe->state == RECIPE_OWNER) == client->owner,
			  "the slot knows whether we own the lock");
		check((recipe->state == RECIPE_NONE) == !client->active,
			  "the slot knows whether we have a contender");
		check(recipe->state != RECIPE_WATCHING || recipe->predecessor != NULL,
			  "the predecessor is known while we wait for it");
		/* leaving, its name has to last until the unwatch has been sent */
		check(recipe->state == RECIPE_WATCHING ||
			  recipe->state == RECIPE_READING ||
			  recipe->state == RECIPE_LISTING_DIR ||
			  recipe->state == RECIPE_AWAITING_EMPTY ||
			  recipe->state == RECIPE_LEAVING || recipe->predecessor == NULL,
			  "the predecessor is forgotten with the wait");
		check((recipe->state == RECIPE_LEAVING && recipe->refused) ==
			  client->left,
			  "the worker knows of every delete that was refused");

		check(recipe->state != RECIPE_OWNER ||
			  !znode_is_late(recipe->sequence), "nobody late is an owner");
		check(recipe->state != RECIPE_AWAITING_EMPTY ||
			  recipe->predecessor != NULL, "who stands by knows for whom");

		/* an owner whose session has ended is what leases are for */
		if (recipe->state != RECIPE_OWNER || !client->alive)
			continue;
		if (recipe->queue_watch != 0)
			check_monitor(client);
		check(!client->giving_way || !client->in_use,
			  "who gives way has no use for it");
		own = node_at(recipe->node, world->zxid);
		check(own >= 0, "an owner's node exists");
		check(has_uuid_of(&world->nodes[own], client),
			  "an owner's node is its session's");
		if (recipe->kind == ZNODE_READER)
			shared++;
		else
			exclusive++;
		for (int j = world->oldest; j < world->nnodes; j++)
		{
			const Node *other = &world->nodes[j];

			check(other->dzxid != 0 || j == own ||
				  !stands_ahead(other, world->nodes[own].sequence,
								recipe->kind == ZNODE_READER),
				  "nothing that excludes an owner is ahead of it");
		}
	}
	check(exclusive == 0 || (exclusive == 1 && shared == 0),
		  "an exclusive owner is the only owner");
}

/* Grants follow the queue; what ended sessions believe does not count. */
static void
check_grant(Client *client)
{
	int			own = node_at(client->recipe.node, world->zxid);
	Directory  *dir;

	tally.grants++;
	if (!client->alive)
		return;
	check(own >= 0, "who is granted the lock has a node");
	dir = &world->dirs[world->nodes[own].dir];
	if (client->recipe.kind == ZNODE_READER)
		check(!dir->granted_exclusive_any ||
			  znode_before(dir->granted_exclusive, client->recipe.sequence),
			  "a reader is granted the lock after the writers ahead");
	else
		check(!dir->granted_any ||
			  znode_before(dir->granted, client->recipe.sequence),
			  "a writer is granted the lock after everybody ahead");
	if (!dir->granted_any ||
		znode_before(dir->granted, client->recipe.sequence))
		dir->granted = client->recipe.sequence;
	dir->granted_any = true;
	if (client->recipe.kind != ZNODE_READER)
	{
		dir->granted_exclusive = client->recipe.sequence;
		dir->granted_exclusive_any = true;
	}
}

static void step(Client *client, const RecipeInput *in);

/* Others wait behind an owner: it gives way if it is idle, or tells them. */
static void
answer_crowd(Client *client)
{
	RecipeInput in = {.event = RECIPE_SET_IN_USE};
	int			node = node_at(client->recipe.node, world->zxid);

	if (client->retains && !client->in_use)
	{
		note(client_number(client), "gives way", 0);
		tally.gave_way++;
		client->giving_way = true;
		return;
	}
	note(client_number(client), "denies", client->recipe.retain);
	client->denies = client->recipe.retain;
	if (client->denies && node >= 0)
	{
		tally.denied++;
		world->nodes[node].denied = true;
	}
	step(client, &in);
	check(!client->recipe.retain, "it is told once that the lock is needed");
}

/* Is this of a client's session, and of none of its contenders? */
static bool
is_stray(const Client *client, const char *name)
{
	/* the latest: numbers come again when the directory has been collected */
	for (int i = world->nnodes - 1; i >= 0; i--)
		if (strcmp(world->nodes[i].name, name) == 0 &&
			world->nodes[i].session == client->session)
			return world->nodes[i].stray;
	return false;
}

/* What a step put out: news for the slot, and operations to send. */
static void
take_output(Client *client, const RecipeOutput *out)
{
	const Recipe *recipe = &client->recipe;
	char		own[ZNODE_CONTENDER_SIZE];

	note(client_number(client), recipe_state_name(recipe->state), out->told);
	client->told = out->told;
	if (recipe->state == RECIPE_ENTERING)
		client->created = false;
	if (out->told & RECIPE_TOLD_CREATED)
	{
		check(client->active, "created only what was wanted");
		client->created = true;
		client->sequence = recipe->sequence;
	}
	if (out->told & RECIPE_TOLD_QUEUED)
	{
		check(client->wanted && recipe->blockers > 0 &&
			  (recipe->state == RECIPE_WATCHING ||
			   recipe->state == RECIPE_AWAITING_EMPTY), "queued behind somebody");
		if (recipe->state == RECIPE_AWAITING_EMPTY)
			tally.stood_by++;
		if (client->courted && !client->queued)
			tally.courted_in_vain++;
		client->queued = true;
	}
	if (out->told & RECIPE_TOLD_RETAINED)
	{
		check(client->courteous && recipe->retained_ahead &&
			  recipe->state == RECIPE_WATCHING && recipe->blockers > 0 &&
			  !(out->told & RECIPE_TOLD_QUEUED),
			  "who is courteous asks who is ahead");
		client->courted = true;
		tally.courting++;
	}
	if (out->told & RECIPE_TOLD_GRANTED)
	{
		check(client->wanted && !client->owner,
			  "granted once, to who wants it");
		client->owner = true;
		client->token = client->revoked = false;
		client->guarded = client->watch_refused = client->set_refused = false;
		client->looking = false;
		if (client->courted && !client->queued)
			tally.courted_granted++;
		client->in_use = true;
		client->crowded = client->giving_way = client->clear = false;
		client->denies = false;
		client->monitors = client->retains;
		check_grant(client);
	}
	if (out->told & RECIPE_TOLD_TOKEN)
	{
		int			node = node_at(recipe->node, world->zxid);

		check(client->owner, "only an owner has a token");
		check(!client->alive ||
			  (node >= 0 && world->nodes[node].czxid == out->token),
			  "the token is the node's czxid");
		client->token = true;
	}
	if (out->told & RECIPE_TOLD_LOST)
	{
		check(client->owner, "only an owner can lose the lock");
		check(!client->alive, "a lock is lost with the session only");
		tally.lost++;
		client->owner = client->wanted = false;
	}
	if (out->told & RECIPE_TOLD_FAILED)
	{
		check(client->wanted && !client->owner, "only a waiter can fail");
		if (out->told & RECIPE_TOLD_MIXED)
		{
			check(world->semaphores && out->error == 0,
				  "only a semaphore's name fails as one");
			tally.mixed++;
		}
		else if (out->told & RECIPE_TOLD_ENDED)
		{
			check((world->ended || world->semaphores || world->strangers) &&
				  out->error == 0, "only who has no order is refused");
			tally.ended++;
		}
		else
			check(world->refusals, "nothing fails that was not refused");
		tally.failed++;
		client->wanted = false;
	}
	if (out->told & RECIPE_TOLD_LEFT)
	{
		check(world->refusals && out->error == ERROR_REFUSED,
			  "no node is left behind but by a refusal");
		check(recipe->state == RECIPE_LEAVING && client->active &&
			  !client->wanted && !(out->told & RECIPE_TOLD_GONE),
			  "what is left behind is still to be deleted");
		check(!client->left && out->nops == 0,
			  "a refused delete waits for a retry");
		tally.left++;
		client->left = true;
	}
	if (out->told & RECIPE_TOLD_RENEWED)
		tally.renewed++;
	if (out->told & RECIPE_TOLD_PERSISTENT)
	{
		check(world->strangers && out->stranger != NULL,
			  "no contender is taken for something else");
		tally.passed_over++;
	}
	check(!(out->told & RECIPE_TOLD_STRANGER) || world->strangers ||
		  (world->semaphores && recipe->state == RECIPE_LISTING_DIR),
		  "no contender is taken for a stranger");
	check(!(out->told & RECIPE_TOLD_MIXED) ||
		  (out->told & RECIPE_TOLD_FAILED), "who finds a semaphore fails");
	if (out->told & (RECIPE_TOLD_NO_WRITER | RECIPE_TOLD_WRITER))
	{
		check(client->looking, "only who looks is told what is behind");
		client->looking = false;
	}
	if (out->told & (RECIPE_TOLD_ALONE | RECIPE_TOLD_CONTENDED))
	{
		check(client->owner && client->monitors,
			  "only an owner that monitors is told who is behind");
		check((recipe->queue_watch != 0) == (out->told == RECIPE_TOLD_ALONE),
			  "who is clear goes on, who is crowded does not");
		client->clear = (out->told & RECIPE_TOLD_ALONE) != 0;
		if (!client->clear)
			client->crowded = true;
	}
	if (out->told & RECIPE_TOLD_REVOKED)
	{
		int			node = node_at(recipe->node, world->zxid);
		bool		asked = false;

		check(client->owner && client->guarded,
			  "only a guarded owner is asked for the lock");
		for (int i = 0; node >= 0 && i < world->nodes[node].nchanges; i++)
			asked = asked || world->nodes[node].revokes[i];
		check(asked || !client->alive, "who is asked for it was asked");
		tally.revoked++;
		client->revoked = true;
	}
	if (out->told & RECIPE_TOLD_GONE)
	{
		check(client->active, "gone only once");
		if (client->wanted && !client->owner && client->alive)
		{
			check(recipe->grouped, "who wants the lock goes on");
			tally.dissolved++;
		}
		client->active = client->wanted = client->owner = false;
		client->created = client->left = client->looking = false;
		client->in_use = client->giving_way = client->monitors = false;
	}
	check(recipe->state != RECIPE_NONE || out->nops == 0,
		  "without a contender nothing is sent");

	znode_contender_name(recipe->uuid, recipe->kind, recipe->sequence, own);
	for (int i = 0; i < out->nops; i++)
	{
		const RecipeOp *op = &out->ops[i];
		Entry	   *entry = add_entry(client, client->nentries);

		entry->kind = op->kind;
		entry->serial = op->serial;
		if (op->node != NULL)
			strcpy(entry->node, op->node);
		switch (op->kind)
		{
			case RECIPE_OP_CREATE:
				for (int j = 0; j < client->nentries - 1; j++)
					check(client->entries[j].is_event ||
						  client->entries[j].kind != RECIPE_OP_CREATE,
						  "one create at a time");
				check(client->creates++ == 0 || !recipe->grouped,
					  "one of a group is not created alone");
				entry->marked = recipe->retain;
				check(recipe->retain == client->retains,
					  "a contender says what it is from the beginning");
				break;
			case RECIPE_OP_LIST:
				check(client->owner && client->monitors,
					  "only an owner that monitors lists who is behind");
				client->list_serial = op->serial;
				break;
			case RECIPE_OP_WATCH:
				if (recipe->state == RECIPE_OWNER)
					check(client->guarded && strcmp(op->node, own) == 0,
						  "an owner watches its own node");
				else
					check(!znode_has_uuid(op->node, recipe->uuid),
						  "the predecessor is somebody else");
				break;
			case RECIPE_OP_SET:
				check((client->guarded || client->denies) &&
					  strcmp(op->node, own) == 0,
					  "we touch our own node only");
				entry->marked = recipe->retain;
				break;
			case RECIPE_OP_GET:
				if (op->node == NULL && recipe->state == RECIPE_RETREATING)
					tally.late++;
				else if (op->node != NULL)
					tally.examined++;
				break;
			case RECIPE_OP_UNWATCH:
				if (out->told & RECIPE_TOLD_PERSISTENT)
				{
					check(op->node == out->stranger,
						  "who is no contender is not watched");
					break;
				}
				check(recipe->state == RECIPE_LEAVING && i + 1 < out->nops &&
					  out->ops[i + 1].kind == RECIPE_OP_DELETE,
					  "who stops waiting leaves");
				check(strcmp(op->node, recipe->predecessor) == 0,
					  "who stops waiting waited for the predecessor");
				break;
			case RECIPE_OP_STAT:
			case RECIPE_OP_DELETE:
				check(strcmp(op->node, own) == 0,
					  "we touch our own node only");
				break;
			case RECIPE_OP_DELETE_STRAY:
				check(is_stray(client, op->node),
					  "no create is repeated that had arrived");
				tally.strays++;
				break;
			default:
				break;
		}
	}
	check_rules();
	if (out->told & RECIPE_TOLD_CONTENDED)
	{
		answer_crowd(client);
		client->told = out->told;
	}
}

static void
step(Client *client, const RecipeInput *in)
{
	RecipeOutput out;

	recipe_step(&client->recipe, in, &out);
	take_output(client, &out);
}

static const RecipeEvent answers[] = {
	[RECIPE_OP_MKDIR] = RECIPE_MKDIR_DONE,
	[RECIPE_OP_MKDIRS] = RECIPE_MKDIR_DONE,
	[RECIPE_OP_CREATE] = RECIPE_CREATE_DONE,
	[RECIPE_OP_CHILDREN] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_SEARCH] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_SYNC] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_LIST] = RECIPE_CHILDREN_DONE,
	[RECIPE_OP_WATCH] = RECIPE_WATCH_DONE,
	[RECIPE_OP_SET] = RECIPE_SET_DONE,
	[RECIPE_OP_STAT] = RECIPE_STAT_DONE,
	[RECIPE_OP_DELETE] = RECIPE_DELETE_DONE,
	[RECIPE_OP_GET] = RECIPE_GET_DONE,
	[RECIPE_OP_RMDIR] = RECIPE_RMDIR_DONE
};

/*
 * Do all own the lock who exclude a client, in the list that it was given?  Who
 * owns it has nobody ahead that excludes it.
 */
static bool
only_owners_exclude(const Client *client, const Entry *entry)
{
	for (int i = 0; i < entry->nchildren; i++)
	{
		const Node *other = &world->nodes[entry->children[i]];

		if (has_uuid_of(other, client) ||
			!stands_ahead(other, client->recipe.sequence,
						  client->recipe.kind == ZNODE_READER))
			continue;
		for (int j = 0; j < entry->nchildren; j++)
		{
			const Node *first = &world->nodes[entry->children[j]];

			if (first->contender && !has_uuid_of(first, client) &&
				!znode_is_unordered(first->sequence) &&
				znode_before(first->sequence, other->sequence) &&
				!(first->shared && other->shared &&
				  !znode_is_late(other->sequence)))
				return false;
		}
	}
	return true;
}

/* Is one ahead that is known by its name, and excludes a client? */
static bool
names_contender(const Client *client, const Entry *entry)
{
	for (int i = 0; i < entry->nchildren; i++)
	{
		const Node *other = &world->nodes[entry->children[i]];

		if (strncmp(other->name, "_c_", 3) == 0 &&
			!has_uuid_of(other, client) &&
			stands_ahead(other, client->recipe.sequence,
						 client->recipe.kind == ZNODE_READER))
			return true;
	}
	return false;
}

/*
 * An answer has been heard: who is courteous is told to be queued only if one
 * is ahead that waits itself, or if the last of the owners has said that it
 * needs the lock; and if that is one of us that may keep it idle, it has said so
 * for that.
 */
static void
check_courtesy(const Client *client, const Entry *entry)
{
	bool		list = entry->kind == RECIPE_OP_CHILDREN ||
		entry->kind == RECIPE_OP_SEARCH;
	bool		queued = (client->told & RECIPE_TOLD_QUEUED) != 0;

	if (list && client->recipe.state == RECIPE_WATCHING &&
		(client->recipe.unsure || world->strangers))
		check(!queued || names_contender(client, entry),
			  "queued is told at once if somebody is surely ahead");
	else if (list && client->recipe.state == RECIPE_WATCHING)
		check(queued == (!client->courteous ||
						 !only_owners_exclude(client, entry)),
			  "who is courteous lets owners answer first");
	else if (queued && client->recipe.state != RECIPE_AWAITING_EMPTY)
	{
		int			node = node_at(entry->node, entry->view);

		check(entry->kind == RECIPE_OP_WATCH &&
			  entry->result == RECIPE_OK && node >= 0 && !entry->persistent,
			  "queued by what was read");
		if (client->was_unsure)
			return;				/* it only had to be there */
		check(client->courteous && (entry->revoked || !entry->marked),
			  "queued behind one that needs the lock");
		check(entry->revoked || !world->nodes[node].marked ||
			  world->nodes[node].denied ||
			  world->nodes[node].session == FOREIGN,
			  "queued behind one that has answered");
	}
	if (client->told & RECIPE_TOLD_RETAINED)
		check(entry->kind == RECIPE_OP_WATCH && entry->marked &&
			  !entry->revoked, "courting one that may not need the lock");
}

/* The list of who is behind is in, or not. */
static void
hear_list(Client *client, const Entry *entry, const RecipeInput *in)
{
	unsigned	told = 0;

	if (entry->result == RECIPE_OK)
		client->list_registered = true;
	else if (client->list_serial == entry->serial)
		client->list_serial = 0;

	if (client->recipe.state == RECIPE_OWNER &&
		entry->serial == client->recipe.queue_watch)
	{
		if (entry->result == RECIPE_OK)
			told = RECIPE_TOLD_ALONE;
		else if (entry->result != RECIPE_UNKNOWN)
		{
			told = RECIPE_TOLD_CONTENDED;
			tally.crowded_unknown++;
		}
		for (int i = 0; i < entry->nchildren; i++)
			if (stands_behind(&world->nodes[entry->children[i]],
							  &client->recipe))
				told = RECIPE_TOLD_CONTENDED;
	}
	step(client, in);
	/* one that is not ephemeral may be taken for somebody */
	if (told == RECIPE_TOLD_ALONE && world->strangers)
		told = client->told & RECIPE_TOLD_CONTENDED ?
			RECIPE_TOLD_CONTENDED : RECIPE_TOLD_ALONE;
	check(client->told == told, "who monitors is told who is behind");
	if (told == RECIPE_TOLD_ALONE)
		tally.clear++;
	else if (told == RECIPE_TOLD_CONTENDED)
		tally.crowded++;
}

/* The client hears the next answer or event. */
static void
deliver(Client *client)
{
	Entry		entry = client->entries[0];
	RecipeInput in;
	const char *children[MAX_NODES];

	check(client->nready > 0, "the model has nothing to deliver");
	client->nready--;
	client->nentries--;
	memmove(&client->entries[0], &client->entries[1],
			client->nentries * sizeof(Entry));

	memset(&in, 0, sizeof(in));
	in.serial = entry.serial;
	if (entry.is_event && entry.is_list)
	{
		/* the library tells whoever has asked last, and forgets him */
		in.serial = client->list_serial;
		client->list_serial = 0;
		client->list_registered = false;
		in.event = entry.changed ? RECIPE_NODE_TOUCHED : RECIPE_NODE_DELETED;
		note(client_number(client), "event of the list", in.serial);
		if (in.serial != 0)
			step(client, &in);
		return;
	}
	if (entry.is_event)
	{
		forget_watch(client, entry.watch);
		in.event = entry.changed ? RECIPE_NODE_TOUCHED : RECIPE_NODE_DELETED;
		note(client_number(client), "event", entry.serial);
		step(client, &in);
		return;
	}

	/* events do not say how far their server was, but answers do */
	if (entry.result != RECIPE_UNKNOWN && entry.view > client->seen)
		client->seen = entry.view;
	for (int i = 0; i < client->nwatches; i++)
		if (entry.watch != 0 && client->watches[i].id == entry.watch)
			client->watches[i].registered = true;

	/* nobody waits for this one, but the client's library does */
	if (entry.kind == RECIPE_OP_UNWATCH)
	{
		note(client_number(client), op_name(entry.kind), entry.result);
		for (int i = client->nwatches - 1;
			 i >= 0 && entry.result == RECIPE_OK; i--)
			if (is_watch_of(&client->watches[i], entry.node))
				forget_watch(client, client->watches[i].id);
		return;
	}

	/* nor for this one, but it is repeated until it is answered */
	if (entry.kind == RECIPE_OP_DELETE_STRAY)
	{
		note(client_number(client), op_name(entry.kind), entry.result);
		if (entry.result == RECIPE_UNKNOWN && client->alive)
			*add_entry(client, client->nentries) = entry;
		return;
	}

	in.event = answers[entry.kind];
	in.result = entry.result;
	in.error = entry.result == RECIPE_NO_NODE ? ERROR_NO_NODE :
		entry.result == RECIPE_REFUSED ? ERROR_REFUSED : 0;
	in.node = entry.node;
	in.czxid = entry.czxid;
	in.not_empty = entry.not_empty;
	in.ephemeral_owner = entry.persistent ? (one_in(2) ? 0 : INT64_MIN) :
		client->session;
	if (world->tokens && entry.kind == RECIPE_OP_CREATE &&
		entry.result == RECIPE_OK)
		in.token = entry.czxid;
	in.ours = entry.ours;
	in.stray = entry.stray;
	in.data = entry.revoked ? RECIPE_REVOKE_DATA :
		entry.of_cluster && entry.marked ?
		RECIPE_DATA_PREFIX "me" RECIPE_RETAIN_MARK :
		entry.of_cluster ? RECIPE_DATA_PREFIX "me" :
		entry.marked ? "me" RECIPE_RETAIN_MARK : "me";
	in.data_len = (int) strlen(in.data);
	for (int i = 0; i < entry.nchildren; i++)
		children[i] = world->nodes[entry.children[i]].name;
	in.children = children;
	in.nchildren = entry.nchildren;
	note(client_number(client), op_name(entry.kind), entry.result);
	if (entry.kind == RECIPE_OP_SEARCH && entry.result == RECIPE_OK)
	{
		bool		hit = false;

		for (int i = 0; i < entry.nchildren; i++)
			if (has_uuid_of(&world->nodes[entry.children[i]], client))
				hit = true;
		if (hit)
			tally.search_hits++;
		else
			tally.search_misses++;
	}
	if (entry.kind == RECIPE_OP_STAT && entry.result == RECIPE_REFUSED)
		client->token = true;
	if (entry.kind == RECIPE_OP_WATCH && entry.result == RECIPE_REFUSED)
		client->watch_refused = true;
	if (entry.kind == RECIPE_OP_SET && entry.result == RECIPE_REFUSED)
		client->set_refused = true;
	if (client->looking && entry.kind == RECIPE_OP_CHILDREN &&
		entry.serial == client->recipe.writer_check &&
		entry.result != RECIPE_UNKNOWN)
	{
		unsigned	told = RECIPE_TOLD_NO_WRITER;

		for (int i = 0; i < entry.nchildren; i++)
		{
			const Node *other = &world->nodes[entry.children[i]];

			if (other->contender &&
				(!other->shared || znode_is_late(other->sequence)) &&
				(znode_is_unordered(other->sequence) ||
				 znode_before(client->recipe.sequence, other->sequence)))
				told = RECIPE_TOLD_WRITER;
		}
		step(client, &in);
		if (told == RECIPE_TOLD_NO_WRITER && world->strangers)
			told = client->told;
		check(client->told == told, "who looks is told what is behind");
		if (told == RECIPE_TOLD_NO_WRITER)
			tally.alone++;
		else
			tally.behind++;
		return;
	}
	if (entry.kind == RECIPE_OP_LIST)
	{
		hear_list(client, &entry, &in);
		return;
	}
	client->was_unsure = client->recipe.unsure;
	step(client, &in);
	check_courtesy(client, &entry);
}

/*
 * Answers on their way are lost, and with them what was not carried out.
 *
 * The client's library forgets a watch when it hears that it was removed.
 * Not having heard of it, it will set the watch again, and nobody takes that
 * back: it lasts until its node is deleted, or is watched once more.
 */
static void
drop_answers(Client *client)
{
	int			kept = 0;

	for (int i = 0; i < client->nentries; i++)
	{
		if (client->entries[i].is_event)
			continue;
		for (int j = 0; j < client->nwatches; j++)
			if (client->entries[i].kind == RECIPE_OP_UNWATCH &&
				is_watch_of(&client->watches[j], client->entries[i].node))
				client->watches[j].orphaned = true;
		client->entries[kept] = client->entries[i];
		client->entries[kept].result = RECIPE_UNKNOWN;
		client->entries[kept].nchildren = 0;
		client->entries[kept].watch = 0;
		kept++;
	}
	client->nentries = client->nready = kept;
	client->list_armed = false;

	for (int i = client->nwatches - 1; i >= 0; i--)
	{
		client->watches[i].armed = false;
		if (!client->watches[i].registered)
			forget_watch(client, client->watches[i].id);
	}
}

/*
 * The connection breaks when the server has carried out "applied" more of the
 * operations sent.
 */
static void
lose_connection(Client *client, int applied)
{
	note(client_number(client), "connection lost, applied", applied);
	tally.losses++;
	while (applied-- > 0)
		execute(client);
	drop_answers(client);
	client->connected = false;
}

/*
 * A server takes the session over that is as far as the client knows things
 * to be, or as far as "view".  Watches are set again; those whose node is
 * gone by now fire.
 */
static void
reconnect(Client *client, int64_t view)
{
	note(client_number(client), "reconnected, behind", world->zxid - view);
	client->connected = true;
	client->view = view;
	for (int i = 0; i < client->nwatches; i++)
	{
		Watch	   *watch = &client->watches[i];
		const Node *node = &world->nodes[watch->node];

		watch->armed = watch->registered;
		watch->since = client->seen;
		if (watch->armed && !exists_at(node->czxid, node->dzxid, view))
			fire(client, watch, false);
	}
	client->list_armed = client->list_registered;
	if (client->list_armed && directory_at(view) < 0)
		fire_list(client, false);
	if (client->list_armed && children_changed(client->seen, view))
		fire_list(client, true);
	advance(client, view);
}

/* The server ends the session; the client hears of it when it reconnects. */
static void
expire(Client *client)
{
	note(client_number(client), "session expires", client->session);
	tally.expirations++;
	client->alive = false;
	client->connected = false;
	for (int i = world->oldest; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0 &&
			world->nodes[i].session == client->session)
			delete_node(i);
	/* answers already on their way arrive, the rest is unknown */
	for (int i = client->nready; i < client->nentries; i++)
		client->entries[i].result = RECIPE_UNKNOWN;
	client->nready = client->nentries;
	check_rules();
}

static void
hear_of_expiry(Client *client)
{
	RecipeInput in = {.event = RECIPE_EXPIRED};

	note(client_number(client), "told of expiry", client->session);
	client->list_registered = client->list_armed = false;
	client->list_serial = 0;
	client->nentries = client->nready = client->nwatches = 0;
	step(client, &in);
	check(client->nentries == 0, "nothing is sent in an ended session");
	client->session = ++world->last_session;
	client->alive = true;
	client->connected = true;
	client->view = client->seen = world->zxid;
	check(client->recipe.state == RECIPE_NONE,
		  "a contender ends with its session");
}

static void
want(Client *client, bool shared, bool grouped, bool dir_known)
{
	RecipeOutput out;
	uint8_t		uuid[ZNODE_UUID_BYTES];
	uint64_t	halves[2];

	/* not by choose(), which would explore every UUID */
	halves[0] = next_random();
	halves[1] = next_random();
	memcpy(uuid, halves, sizeof(uuid));
	znode_make_uuid(uuid);
	note(client_number(client), shared ? "wants shared" : "wants", dir_known);
	client->active = client->wanted = true;
	client->creates = 0;
	client->queued = client->courted = client->crowded = false;
	client->denies = false;
	client->recipe.retain = client->retains;
	client->recipe.asks_retained = client->courteous;
	recipe_want(&client->recipe, uuid, KIND(shared), grouped, dir_known,
				&out);
	take_output(client, &out);
}

static void
release(Client *client)
{
	RecipeInput in = {.event = RECIPE_RELEASE};

	note(client_number(client), "releases", 0);
	client->wanted = client->owner = client->looking = false;
	client->in_use = client->giving_way = client->monitors = false;
	step(client, &in);
}

/* The worker has the owner's node watched. */
static void
guard(Client *client)
{
	RecipeInput in = {.event = RECIPE_WATCH_REVOCATION};

	note(client_number(client), "guards", 0);
	client->guarded = true;
	step(client, &in);
}

/* The worker asks who is behind the owner. */
static void
look(Client *client)
{
	RecipeInput in = {.event = RECIPE_CHECK_WRITERS};

	note(client_number(client), "looks", 0);
	client->looking = true;
	step(client, &in);
}

/* The worker asks to be told when others come to stand behind the owner. */
static void
monitor(Client *client)
{
	RecipeInput in = {.event = RECIPE_WATCH_QUEUE};

	note(client_number(client), "monitors", 0);
	client->monitors = true;
	step(client, &in);
}

/*
 * The last holder gives the lock back.  It is kept if the contender says that
 * it may be, and nobody has come yet.
 */
static void
put_down(Client *client)
{
	if (client->retains && !client->crowded)
	{
		note(client_number(client), "keeps the lock", 0);
		client->in_use = false;
	}
	else
		release(client);
}

static void
take_up(Client *client)
{
	if (!client->giving_way)
	{
		note(client_number(client), "takes the lock up", 0);
		client->in_use = true;
	}
}

/* Somebody asks for the lock that a client owns. */
static void
revoke(Client *client)
{
	int			node = node_at(client->recipe.node, world->zxid);

	if (node >= 0 && world->nodes[node].nchanges < MAX_CHANGES - 6)
	{
		note(client_number(client), "is asked for the lock", 0);
		touch(node, true);
	}
}

/* The worker tries again what was refused, which is a delete or nothing. */
static void
retry(Client *client)
{
	RecipeInput in = {.event = RECIPE_RETRY};
	RecipeOutput out;
	bool		left = client->left;
	Recipe		before = client->recipe;

	recipe_step(&client->recipe, &in, &out);
	if (left)
	{
		note(client_number(client), "retries", 0);
		tally.retried++;
		check(out.nops == 1 && out.ops[0].kind == RECIPE_OP_DELETE &&
			  out.told == 0, "a retry sends the delete that was refused");
		client->left = false;
		take_output(client, &out);
	}
	else
		check(out.nops == 0 && out.told == 0 &&
			  memcmp(&client->recipe, &before, sizeof(before)) == 0,
			  "with nothing refused there is nothing to retry");
}

/*
 * The worker dies and the next one resumes the session, with what the slot
 * knows.  No answer reaches anybody, and no watch is left.
 *
 * The server that takes the session over is taken to be as far as the old
 * worker had seen.  A new ZooKeeper handle does not ask that of it, so that
 * the worker has to, by a write ahead of what the recipes send.
 */
static void
restart_worker(Client *client, int applied)
{
	Recipe		old = client->recipe;
	RecipeOutput out;

	tally.restarts++;
	lose_connection(client, applied);
	note(client_number(client), "worker restarted", applied);
	client->nentries = client->nready = client->nwatches = 0;
	client->list_registered = client->list_armed = false;
	client->list_serial = 0;
	client->courted = client->clear = client->denies = false;
	client->monitors = client->owner && client->retains;
	if (client->giving_way)
		client->owner = client->wanted = client->giving_way = false;
	client->token = client->left = false;
	client->guarded = client->watch_refused = client->set_refused = false;
	client->looking = false;
	client->creates = 0;
	recipe_free(&client->recipe);
	recipe_init(&client->recipe);
	if (!client->active)
		return;
	client->recipe.retain = client->retains;
	client->recipe.asks_retained = client->courteous;
	recipe_resume(&client->recipe, old.uuid, old.kind, old.grouped,
				  client->owner ? RECIPE_RESUME_OWNED :
				  client->wanted ? RECIPE_RESUME_WANTED :
				  RECIPE_RESUME_RELEASING,
				  client->created ? &client->sequence : NULL, &out);
	take_output(client, &out);
}

/* Another client queues, or makes what is no contender. */
static void
foreigner_enters(const char *name, bool sequential)
{
	int			node;

	if (directory_at(world->zxid) < 0)
	{
		if (world->root_czxid == 0)
			world->root_czxid = ++world->zxid;
		make_directory();
	}
	if (!sequential)
	{
		if (strcmp(name, ZNODE_LOCKS_DIR) == 0 ||
			strcmp(name, ZNODE_PERMITS_DIR) == 0)
			world->semaphores = true;
		else
			world->strangers = true;
		if (node_at(name, world->zxid) >= 0)
			return;
	}
	node = make_node(name, sequential, FOREIGN);
	if (sequential && znode_is_unordered(world->nodes[node].sequence))
		world->ended = true;
	note(-1, "another client enters", world->nodes[node].sequence);
}

/* A contender that a client's cluster has, too, or that it has lost. */
static void
kin_enters(Client *client, const char *name, bool stray)
{
	int			node;

	if (directory_at(world->zxid) < 0)
		return;
	node = make_node(name, true, client->session);
	world->nodes[node].kin = !stray;
	world->nodes[node].stray = stray;
	note(client_number(client), stray ? "has a stray" : "has another contender",
		 world->nodes[node].sequence);
}

/* The first node of another client or another contender, or -1. */
static int
first_foreigner(void)
{
	for (int i = world->oldest; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0 &&
			(world->nodes[i].session == FOREIGN || world->nodes[i].kin))
			return i;
	return -1;
}

static int
first_stray(void)
{
	for (int i = world->oldest; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0 && world->nodes[i].stray)
			return i;
	return -1;
}

static void
foreigner_leaves(int node)
{
	note(-1, "another client leaves", world->nodes[node].sequence);
	delete_node(node);
	check_rules();
}

/* Whatever is on its way arrives, and what was refused is tried again. */
static void
settle(void)
{
	bool		busy = true;

	for (int rounds = 0; busy; rounds++)
	{
		check(rounds < 1000, "it comes to rest");
		busy = false;
		for (int i = 0; i < world->nclients; i++)
		{
			Client	   *client = &world->clients[i];

			if (!client->connected)
			{
				busy = true;
				if (client->alive)
					reconnect(client, client->seen);
				else
				{
					/* what was on its way may come first, or never */
					while (client->nready > 0 && one_in(2))
						deliver(client);
					hear_of_expiry(client);
				}
			}
			while (client->nready < client->nentries)
			{
				busy = true;
				execute(client);
			}
			while (client->nready > 0)
			{
				busy = true;
				deliver(client);
			}
			if (client->view < world->zxid)
				advance(client, world->zxid);
			if (client->nready > 0)
				busy = true;
			if (client->left)
				busy = true;
			retry(client);
			if (client->giving_way)
			{
				busy = true;
				release(client);
			}
		}
	}
}

/* At rest, there are the watches of those who wait, and no others. */
static void
check_watches(const Client *client)
{
	bool		waits = client->recipe.state == RECIPE_WATCHING ||
		client->recipe.state == RECIPE_AWAITING_EMPTY;
	bool		guards = client->recipe.state == RECIPE_OWNER &&
		client->guarded && !client->watch_refused;
	int			nwatches = 0;

	for (int i = 0; i < client->nwatches; i++)
	{
		const Watch *watch = &client->watches[i];

		check(watch->registered && watch->armed,
			  "at rest client and server agree on a watch");
		if (waits && watch->serial == client->recipe.serial)
		{
			check(is_watch_of(watch, client->recipe.predecessor),
				  "who waits watches its predecessor");
			nwatches++;
		}
		else if (guards && watch->serial == client->recipe.revocation_watch)
		{
			check(is_watch_of(watch, client->recipe.node),
				  "who guards watches its own node");
			nwatches++;
		}
		else
			check(watch->orphaned,
				  "no watch is left of who does not wait for it");
	}
	check(nwatches == (waits || guards ? 1 : 0),
		  "who waits or guards has a watch");
}

/* At rest, nobody waits for an idle owner, and all who wait know for whom. */
static void
check_manners(const Client *client)
{
	const Recipe *recipe = &client->recipe;
	int			own = node_at(recipe->node, world->zxid);
	bool		behind = false;

	if (recipe->state == RECIPE_WATCHING && !client->queued)
	{
		int			ahead = node_at(recipe->predecessor, world->zxid);

		check(client->courteous && client->courted && recipe->retained_ahead &&
			  ahead >= 0 && is_marked(&world->nodes[ahead], world->zxid),
			  "who waits and is not queued has asked the owner");
		for (int i = 0; i < world->nclients; i++)
			check(world->clients[i].session != world->nodes[ahead].session ||
				  world->clients[i].set_refused,
				  "an owner of ours that was asked has answered");
	}
	if (!client->owner)
		return;

	for (int i = world->oldest; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0 &&
			stands_behind(&world->nodes[i], recipe))
			behind = true;
	if (client->monitors)
	{
		check(client->crowded || client->clear,
			  "at rest, who monitors is told");
		check(client->crowded || !behind,
			  "at rest, who monitors knows of who is behind");
		check(recipe->queue_watch == 0 ||
			  (client->list_armed && client->list_registered),
			  "at rest, who monitors has a watch");
	}
	if (client->retains && behind)
	{
		check(client->in_use, "nobody waits for an idle owner");
		check(client->set_refused ||
			  !is_marked(&world->nodes[own], world->zxid),
			  "who needs the lock says so to who waits");
	}
}

/* At rest, nobody waits for a node that its own cluster has lost. */
static void
check_predecessor(const Client *client)
{
	int			ahead;

	if (client->recipe.state != RECIPE_WATCHING)
		return;
	ahead = node_at(client->recipe.predecessor, world->zxid);
	check(ahead >= 0, "who waits has a predecessor");
	check(!world->nodes[ahead].stray || world->nodes[ahead].stays ||
		  world->nodes[ahead].session != client->session,
		  "a predecessor that is a stray of our own is deleted");
}

/* At rest, who is first in the queue owns the lock, and nobody else does. */
static void
check_liveness(void)
{
	for (int i = 0; i < world->nclients; i++)
	{
		Client	   *client = &world->clients[i];
		bool		first = true;
		int			own;

		check(client->recipe.state == RECIPE_NONE ||
			  client->recipe.state == RECIPE_WATCHING ||
			  client->recipe.state == RECIPE_AWAITING_EMPTY ||
			  client->recipe.state == RECIPE_OWNER,
			  "at rest one has the lock, waits for it, or has no part in it");
		check_watches(client);
		check(client->active == client->wanted,
			  "who does not want the lock leaves the queue");
		if (!client->active)
			continue;
		if (client->recipe.state == RECIPE_AWAITING_EMPTY)
		{
			int			last = node_at(client->recipe.predecessor,
									   world->zxid);

			/* or for one of us that waits for such a one */
			check(last >= 0 && (world->nodes[last].session == FOREIGN ||
								znode_is_late(world->nodes[last].sequence)),
				  "who stands by waits for another client");
			check(world->dirs[world->nodes[last].dir].czxid ==
				  client->recipe.directory,
				  "who stands by waits for the old directory");
			check(client->queued, "who stands by is told to be queued");
			continue;
		}
		own = node_at(client->recipe.node, world->zxid);
		check(own >= 0, "who wants the lock is in the queue");
		check_manners(client);
		check_predecessor(client);
		for (int j = world->oldest; j < world->nnodes; j++)
		{
			const Node *other = &world->nodes[j];

			if (other->dzxid == 0 &&
				stands_ahead(other, world->nodes[own].sequence,
							 client->recipe.kind == ZNODE_READER))
				first = false;
		}
		check(client->owner == first,
			  "who is first in the queue has the lock");
		check(!client->owner || client->token,
			  "an owner comes to know its token");
		check(!client->looking, "who looks is told");
		if (client->owner && client->guarded && !client->watch_refused)
		{
			for (int j = 0; j < world->nodes[own].nchanges; j++)
				/* unless it wrote at that moment that it needs the lock */
				check(client->revoked || !world->nodes[own].revokes[j] ||
					  world->nodes[own].denied,
					  "a guarded owner hears that it is asked for the lock");
			check(client->set_refused ||
				  !asks_for_lock(&world->nodes[own], world->zxid),
				  "who was asked says again who it is");
		}
	}
}

/* The other clients leave, and the lock goes from one of us to the next. */
static void
wind_up(void)
{
	int			node;
	bool		wanted = true;

	settle();
	check_liveness();
	/* strays that nobody stands right behind go with their session */
	while ((node = first_stray()) >= 0)
		foreigner_leaves(node);
	while ((node = first_foreigner()) >= 0)
		foreigner_leaves(node);

	for (int rounds = 0; wanted; rounds++)
	{
		check(rounds < 10, "the lock goes round");
		wanted = false;
		settle();
		check_liveness();
		for (int i = 0; i < world->nclients; i++)
		{
			wanted = wanted || world->clients[i].wanted;
			if (world->clients[i].owner)
				release(&world->clients[i]);
		}
	}
	settle();
	for (int i = 0; i < world->nclients; i++)
	{
		check(!world->clients[i].active, "released contenders are gone");
		check(world->clients[i].nwatches == 0, "no watch of ours is left");
		check(!world->clients[i].list_registered &&
			  !world->clients[i].list_armed, "nor one of the directory");
		recipe_free(&world->clients[i].recipe);
	}
	check(directory_is_empty(), "no node of ours is left");
}

/*-------------------------------------------------------------------------
 * The model: every small schedule
 *
 * One recipe on a known path - queue behind others, own, release - and on it,
 * at every step, up to "faults" of: the connection breaks with any number of
 * the operations sent applied; the session expires; the worker restarts; and
 * if there are "refusals", a delete is refused.  The release comes at any
 * step, too, and so does the retry of a refused delete.
 *-------------------------------------------------------------------------
 */

typedef struct Scenario
{
	const char *title;
	bool		shared;
	bool		grouped;
	bool		guarded;		/* and asked for the lock, once owned */
	bool		root_missing;
	bool		dir_known;		/* or so we believe */
	bool		dir_missing;
	const char *others[3];		/* ahead in the queue */
	const char *kin;			/* the same, of our own session */
	bool		stray;			/* and of nobody */
	bool		retain;
	bool		courteous;
	bool		ahead_retains;	/* they may not need the lock, */
	bool		ahead_denies;	/* but say that they do */
	const char *behind;			/* comes when we own it, or before */
	bool		in_a_row;		/* all sent is applied, then answered */
	bool		tokens;			/* creates are answered with the czxid */
	bool		refusals;
	int32_t		first;			/* where the counter stands at first */
	int			faults;
} Scenario;

static const Scenario scenarios[] = {
	{"free lock", .dir_known = true, .faults = 2},
	{"free lock, answers late", .dir_known = true, .in_a_row = true,
	.faults = 2},
	{"first use of the namespace", .root_missing = true, .dir_missing = true,
	.in_a_row = true, .faults = 2},
	{"directory collected behind our back", .dir_known = true,
	.dir_missing = true, .faults = 2},
	{"one ahead", .dir_known = true, .others = {W()}, .faults = 2},
	{"one ahead, answers late", .dir_known = true, .others = {W()},
	.in_a_row = true, .faults = 2},
	{"two ahead", .dir_known = true, .others = {W(), R()}, .faults = 2},
	{"a reader behind a writer and readers", .shared = true,
	.dir_known = true, .others = {R(), W(), R()}, .in_a_row = true,
	.faults = 2},
	{"free lock, deletes refused", .dir_known = true, .refusals = true,
	.faults = 3},
	{"one ahead, deletes refused", .dir_known = true, .others = {W()},
	.refusals = true, .faults = 2},
	{"free lock, guarded, and asked for", .guarded = true, .dir_known = true,
	.faults = 2},
	{"one of a group", .grouped = true, .dir_known = true, .others = {W()},
	.faults = 2},
	{"one of a group, first use of the namespace", .grouped = true,
		.root_missing = true, .dir_missing = true, .in_a_row = true,
	.faults = 2},
	{"one ahead, three faults", .dir_known = true, .others = {W()},
	.faults = 3},
	{"one ahead gives way", .courteous = true, .retain = true,
		.dir_known = true, .others = {W()}, .ahead_retains = true,
	.faults = 2},
	{"one ahead says that it needs the lock", .courteous = true,
		.dir_known = true, .others = {W()}, .ahead_retains = true,
	.ahead_denies = true, .faults = 2},
	{"one ahead never may be idle", .courteous = true, .dir_known = true,
	.others = {W()}, .in_a_row = true, .faults = 2},
	{"a courteous reader behind a writer and a reader", .courteous = true,
		.shared = true, .dir_known = true, .others = {R(), W()},
	.ahead_retains = true, .in_a_row = true, .faults = 2},
	{"a retained lock, and somebody comes", .retain = true,
	.dir_known = true, .behind = W(), .faults = 1},
	{"a retained lock, and somebody comes, answers late", .retain = true,
	.dir_known = true, .behind = R(), .in_a_row = true, .faults = 1},
	{"a retained shared lock, and a writer comes", .retain = true,
	.shared = true, .dir_known = true, .behind = W(), .faults = 1},
	{"a retained shared lock, and a reader comes", .retain = true,
	.shared = true, .dir_known = true, .behind = R(), .faults = 1},
	{"free lock, creates tell the token", .dir_known = true, .tokens = true,
	.faults = 2},
	{"two ahead, creates tell the token", .dir_known = true, .tokens = true,
	.others = {W(), R()}, .faults = 2},
	{"late, and free", .dir_known = true, .first = ZNODE_LATE_SEQUENCE,
	.faults = 2},
	{"late, and free, answers late", .dir_known = true,
	.first = ZNODE_LATE_SEQUENCE, .in_a_row = true, .faults = 2},
	{"late, one ahead", .dir_known = true, .others = {W()},
	.first = ZNODE_LATE_SEQUENCE - 1, .faults = 1},
	{"a late reader behind a reader", .shared = true, .dir_known = true,
	.others = {R()}, .first = ZNODE_LATE_SEQUENCE - 1, .faults = 1},
	{"late, one of a group", .grouped = true, .dir_known = true,
	.first = ZNODE_LATE_SEQUENCE, .in_a_row = true, .faults = 2},
	{"late, deletes refused", .dir_known = true, .refusals = true,
	.first = ZNODE_LATE_SEQUENCE, .faults = 2},
	{"the last number with an order", .dir_known = true, .others = {W()},
	.first = INT32_MAX - 2, .in_a_row = true, .faults = 1},
	{"a number without order, one ahead that has one", .dir_known = true,
	.others = {W()}, .first = INT32_MAX - 1, .in_a_row = true, .faults = 1},
	{"a number without order, as that of one ahead", .dir_known = true,
	.others = {W()}, .first = INT32_MAX, .in_a_row = true, .faults = 2},
	{"a stray of our own ahead", .dir_known = true, .kin = W(),
	.stray = true, .faults = 2},
	{"another one, and a stray of our own ahead, answers late",
		.dir_known = true, .others = {W()}, .kin = R(), .stray = true,
	.in_a_row = true, .faults = 2},
	{"another contender of ours ahead", .dir_known = true, .kin = W(),
	.faults = 2}
};

static void
play_scenario(const Scenario *scenario)
{
	Client	   *client;
	bool		released = false;
	bool		asked = false;
	bool		denied = !scenario->ahead_denies;
	bool		came = scenario->behind == NULL;
	bool		kept = !scenario->retain || scenario->behind == NULL;
	int			faults = scenario->faults;

	if (scenario->root_missing)
		world->root_czxid = 0;
	world->first_sequence = scenario->first;
	if (!scenario->dir_missing)
		make_directory();
	for (size_t i = 0; i < lengthof(scenario->others); i++)
		if (scenario->others[i] != NULL)
		{
			foreigner_enters(scenario->others[i], true);
			world->nodes[world->nnodes - 1].marked = scenario->ahead_retains;
		}
	world->refusals = scenario->refusals;
	world->tokens = scenario->tokens;
	client = add_client();
	if (scenario->kin)
		kin_enters(client, scenario->kin, scenario->stray);
	client->view = client->seen = world->zxid;
	client->retains = scenario->retain;
	client->courteous = scenario->courteous;
	want(client, scenario->shared, scenario->grouped, scenario->dir_known);

	for (;;)
	{
		int			unapplied = client->nentries - client->nready;
		bool		up = client->connected;
		unsigned	nlosses = up && faults > 0 ? unapplied + 1 : 0;
		unsigned	nexpiries = client->alive && faults > 0 ? 1 : 0;
		unsigned	nreleases = released || !client->wanted ? 0 : 1;
		unsigned	nretries = client->left ? 1 : 0;
		unsigned	nrefusals = 0;
		unsigned	ncomers = came ? 0 : 1;
		unsigned	nkeeps = kept || !client->owner ? 0 : 1;
		unsigned	which;

		if (scenario->refusals && up && unapplied > 0 && faults > 0 &&
			client->entries[client->nready].kind == RECIPE_OP_DELETE)
			nrefusals = 1;

		/* 0: nothing special, so that the first schedule is the plain one */
		which = choose(1 + nreleases + nretries + ncomers + nkeeps +
					   nrefusals + nexpiries + 2 * nlosses);
		if (which == 0)
		{
			int			node = first_foreigner();

			if (scenario->guarded && client->owner && !client->guarded)
			{
				guard(client);
				look(client);
			}
			else if (client->guarded && !asked)
			{
				revoke(client);
				asked = true;
			}
			else if (client->nready > 0 &&
				!(scenario->in_a_row && up && unapplied > 0))
				deliver(client);
			else if (up && unapplied > 0)
				execute(client);
			else if (!up && client->alive)
				reconnect(client, client->seen);
			else if (!up)
				hear_of_expiry(client);
			else if (client->view < world->zxid)
				advance(client, world->zxid);
			else if (client->giving_way)
				release(client);
			else if (node >= 0 && !denied)
			{
				check_manners(client);
				touch(node, false);
				denied = true;
			}
			else if (client->owner && !came)
			{
				check_manners(client);
				foreigner_enters(scenario->behind, true);
				came = true;
			}
			else if (node >= 0)
			{
				check_watches(client);
				check_manners(client);
				foreigner_leaves(node);
			}
			else if (client->left)
				retry(client);
			else
				break;
			continue;
		}
		which--;
		if (which < nreleases)
		{
			release(client);
			released = true;
			continue;
		}
		which -= nreleases;
		if (which < nretries)
		{
			retry(client);
			continue;
		}
		which -= nretries;
		if (which < ncomers)
		{
			foreigner_enters(scenario->behind, true);
			came = true;
			continue;
		}
		which -= ncomers;
		if (which < nkeeps)
		{
			put_down(client);
			kept = true;
			continue;
		}
		which -= nkeeps;
		faults--;
		if (which < nrefusals)
		{
			world->refuse_next = true;
			execute(client);
			world->refuse_next = false;
			continue;
		}
		which -= nrefusals;
		if (which < nexpiries)
		{
			expire(client);
			continue;
		}
		which -= nexpiries;
		if (which < nlosses)
			lose_connection(client, (int) which);
		else
			restart_worker(client, (int) (which - nlosses));
	}
	wind_up();
}

static void
test_scenario(void **state)
{
	const Scenario *scenario = *state;
	unsigned long run = 0;

	memset(world, 0, sizeof(*world));
	world->explore = true;
	do
	{
		start_world(scenario->title, run++);
		play_scenario(scenario);
	} while (next_schedule());
	world->explore = false;
	/* not so few that the exploration must have been cut short */
	assert_in_range(run, 1000, ULONG_MAX);
}

/*-------------------------------------------------------------------------
 * The model: random schedules
 *-------------------------------------------------------------------------
 */

typedef struct Mix
{
	const char *title;
	int			clients;		/* 0: one to three */
	bool		foreigners;
	bool		end;			/* the counter comes to its end */
	bool		refusals;
	bool		restarts;
	bool		semaphores;
	bool		retaining;		/* some keep locks, some ask for them */
	bool		tokens;
	bool		kin;			/* a cluster has other contenders, and strays */
	unsigned	calm;			/* the higher, the rarer are faults */
} Mix;

static const Mix mixes[] = {
	{"one client, faults all the time", .clients = 1, .calm = 4},
	{"clients among themselves", .calm = 12},
	{"clients among themselves, hardly a fault", .clients = 3, .calm = 100},
	{"clients and foreigners", .foreigners = true, .calm = 12},
	{"the counter ends", .clients = 3, .end = true, .calm = 100},
	{"the counter ends, foreigners, faults", .foreigners = true, .end = true,
	.calm = 12},
	{"the counter ends, workers restarted", .end = true, .restarts = true,
	.calm = 10},
	{"operations refused", .foreigners = true, .refusals = true, .calm = 20},
	{"workers restarted", .foreigners = true, .restarts = true, .calm = 10},
	{"the name becomes a semaphore's", .foreigners = true,
	.semaphores = true, .calm = 12},
	{"creates tell the token", .foreigners = true, .restarts = true,
	.tokens = true, .calm = 12},
	{"strays of their own", .foreigners = true, .kin = true, .calm = 12},
	{"strays of their own, operations refused", .refusals = true,
	.restarts = true, .kin = true, .calm = 15},
	{"everything", .foreigners = true, .end = true, .refusals = true,
	.restarts = true, .semaphores = true, .calm = 10},
	{"locks are retained, hardly a fault", .clients = 3, .retaining = true,
	.calm = 100},
	{"locks are retained", .foreigners = true, .retaining = true, .calm = 12},
	{"locks are retained, operations refused", .clients = 3,
	.refusals = true, .retaining = true, .calm = 20},
	{"locks are retained, the counter ends", .clients = 3, .end = true,
	.retaining = true, .calm = 50},
	{"locks are retained, and everything", .foreigners = true, .end = true,
		.refusals = true, .restarts = true, .semaphores = true,
	.retaining = true, .tokens = true, .calm = 10}
};

static void
random_foreigner(const Mix *mix)
{
	static const struct
	{
		const char *name;
		bool		sequential;
	}			kinds[] =
	{
		{W(), true}, {W(), true}, {R(), true}, {R(), true},
		{"_c_66666666-6666-4666-8666-666666666666-__WRIT__", true},
		{"77777777777777777777777777777777__lock__", true},
		{"77777777777777777777777777777777__rlock__", true},
		{"x-0123456789abcdef-", true}, {"read-", true}, {"write-", true},
		{"leaves", false}, {"order-0000000001", false},
		{"order-0000000004", false}, {"order--1234567890", false},
		{"order-2147483647", false}
	};
	int			nforeign = 0;
	int			node;
	unsigned	which;

	for (int i = world->oldest; i < world->nnodes; i++)
		if (world->nodes[i].dzxid == 0 && world->nodes[i].session == FOREIGN)
			nforeign++;

	which = choose(4);
	if (which == 0 && nforeign < 4 && world->nnodes < MAX_NODES - 64)
	{
		which = choose(lengthof(kinds));
		if (mix->semaphores && one_in(4))
			foreigner_enters(one_in(2) ? "locks" : "leases", false);
		else
			foreigner_enters(kinds[which].name, kinds[which].sequential);
		if (mix->retaining && world->nodes[world->nnodes - 1].contender &&
			world->nodes[world->nnodes - 1].session == FOREIGN)
			world->nodes[world->nnodes - 1].marked = one_in(3);
	}
	else if (nforeign > 0)
	{
		/* not always the first: waiters give up */
		nforeign = (int) choose(nforeign);
		for (node = world->oldest; node < world->nnodes; node++)
			if (world->nodes[node].dzxid == 0 &&
				world->nodes[node].session == FOREIGN && nforeign-- == 0)
				break;
		if (which == 1)
		{
			if (world->nodes[node].nchanges < MAX_CHANGES)
				touch(node, one_in(2));
		}
		else
			foreigner_leaves(node);
	}
}

static void
random_fault(const Mix *mix, Client *client)
{
	int			unapplied = client->nentries - client->nready;

	switch (choose(mix->restarts ? 5 : 4))
	{
		case 0:
		case 1:
		case 2:
			if (client->connected)
				lose_connection(client, (int) choose(unapplied + 1));
			else if (client->alive && one_in(2))
				drop_answers(client);	/* one more server out of reach */
			break;
		case 3:
			if (client->alive && one_in(3))
			{
				if (client->connected)
					for (int n = (int) choose(unapplied + 1); n > 0; n--)
						execute(client);
				expire(client);
			}
			break;
		case 4:
			restart_worker(client, client->connected ?
						   (int) choose(unapplied + 1) : 0);
			break;
	}
}

/* The counter goes on by so much as if a month had passed. */
static void
approach_end(void)
{
	int			dir = directory_at(world->zxid);
	int32_t		next = (one_in(4) ? INT32_MAX : ZNODE_LATE_SEQUENCE) -
		(int32_t) choose(4);

	if (dir >= 0 && world->ndirs < MAX_DIRS - 8 &&
		world->dirs[dir].next < next)
	{
		note(-1, "the counter comes to", next);
		world->dirs[dir].next = next;
	}
}

/* Whether the next contender of a client keeps its lock, and asks for it. */
static void
choose_manners(const Mix *mix, Client *client)
{
	if (mix->retaining)
	{
		client->retains = !one_in(3);
		client->courteous = !one_in(4);
	}
}

static void
random_step(const Mix *mix)
{
	Client	   *client = &world->clients[choose(world->nclients)];

	if (choose(mix->calm) == 0)
	{
		random_fault(mix, client);
		return;
	}

	switch (choose(15))
	{
		case 0:
		case 1:
			if (client->wanted)
			{
				if (one_in(client->owner ? 3 : 10))
					release(client);
			}
			else if (!client->active && world->nnodes < MAX_NODES - 32)
			{
				choose_manners(mix, client);
				want(client, one_in(3), one_in(4), one_in(2));
			}
			break;
		case 2:
			if (mix->kin && client->alive &&
				world->nnodes < MAX_NODES - 64 && one_in(3))
				kin_enters(client, one_in(2) ? W() : R(), one_in(2));
			else if (mix->kin && one_in(2) && first_foreigner() >= 0)
				foreigner_leaves(first_foreigner());
			else if (mix->foreigners)
				random_foreigner(mix);
			break;
		case 3:
			if (world->ndirs < MAX_DIRS - 8)
				collect_directory();
			if (mix->end && one_in(8))
				approach_end();
			break;
		case 4:
			if (client->connected && client->view < world->zxid)
				advance(client, client->view + 1 +
						choose((unsigned) (world->zxid - client->view)));
			break;
		case 5:
		case 6:
			if (!client->connected && client->alive)
			{
				unsigned	lag = (unsigned) (world->zxid - client->seen);

				reconnect(client, client->seen + choose(lag + 1));
			}
			else if (!client->connected && one_in(3))
				hear_of_expiry(client);
			break;
		case 7:
		case 8:
			if (client->connected && client->nready < client->nentries)
				execute(client);
			break;
		case 9:
			retry(client);
			break;
		case 10:
		case 11:
			if (!client->owner)
				break;
			switch (choose(mix->retaining ? 8 : 3))
			{
				case 0:
					guard(client);
					break;
				case 1:
					look(client);
					break;
				case 2:
					revoke(client);
					break;
				case 3:
					if (client->nentries < MAX_ENTRIES / 4)
						monitor(client);
					break;
				case 4:
				case 5:
				case 6:
					put_down(client);
					break;
				case 7:
					take_up(client);
					break;
			}
			break;
		default:
			if (client->nready > 0)
				deliver(client);
			break;
	}
	check_rules();
}

static void
test_random_schedules(void **state)
{
	const Mix  *mix = *state;
	Tally		before = tally;

	memset(world, 0, sizeof(*world));
	for (unsigned long run = 0; run < RANDOM_RUNS; run++)
	{
		int			nclients;

		start_world(mix->title, run);
		nclients = mix->clients ? mix->clients : 1 + (int) choose(3);
		if (mix->end)
			world->first_sequence = (one_in(6) ? INT32_MAX :
									 ZNODE_LATE_SEQUENCE) -
				(int32_t) choose(4);
		world->refusals = mix->refusals;
		world->tokens = mix->tokens;
		switch (choose(3))
		{
			case 0:
				world->root_czxid = 0;
				break;
			case 1:
				make_directory();
				break;
			case 2:
				break;
		}
		for (int i = 0; i < nclients; i++)
			add_client();
		for (int steps = 100 + (int) choose(200); steps > 0; steps--)
			random_step(mix);

		/* who has no part in it by now joins in, and then all come to rest */
		for (int i = 0; i < nclients; i++)
			if (world->clients[i].recipe.state == RECIPE_NONE && one_in(2) &&
				world->clients[i].alive)
			{
				choose_manners(mix, &world->clients[i]);
				want(&world->clients[i], one_in(3), one_in(4), false);
			}
		settle();
		world->refusals = false;
		wind_up();
	}

	/* it has come by the places that it is there for */
	assert_true(tally.grants > before.grants + RANDOM_RUNS / 3);
	assert_true(tally.losses > before.losses + 100);
	assert_true(tally.expirations > before.expirations + 10);
	assert_true(tally.lost > before.lost);
	assert_true(tally.collected > before.collected);
	assert_true(tally.search_hits > before.search_hits);
	assert_true(tally.search_misses > before.search_misses);
	assert_true(tally.mkdirs > before.mkdirs);
	if (mix->clients != 1 || mix->foreigners)
		assert_true(tally.lagging_reads > before.lagging_reads);
	if (mix->clients != 1 || mix->foreigners)
		assert_true(tally.unwatched > before.unwatched);
	if (mix->foreigners)
		assert_true(tally.touched > before.touched);
	if (mix->foreigners)
		assert_true(tally.passed_over > before.passed_over + 100);
	if (mix->end)
	{
		assert_true(tally.late > before.late + 1000);
		assert_true(tally.renewed > before.renewed + 500);
		assert_true(tally.examined > before.examined + 20);
		if (mix->foreigners)
		{
			assert_true(tally.stood_by > before.stood_by + 20);
			assert_true(tally.ended > before.ended + 100);
		}
	}
	if (mix->refusals)
	{
		assert_true(tally.failed > before.failed);
		assert_true(tally.left > before.left + 100);
		assert_true(tally.retried > before.retried + 100);
	}
	if (mix->restarts)
		assert_true(tally.restarts > before.restarts);
	if (mix->semaphores)
		assert_true(tally.mixed > before.mixed + 100);
	if (mix->kin)
		assert_true(tally.strays > before.strays + 100);
	assert_true(tally.dissolved > before.dissolved);
	assert_true(tally.revoked > before.revoked);
	assert_true(tally.alone > before.alone);
	if (mix->clients != 1 || mix->foreigners)
		assert_true(tally.behind > before.behind);
	if (mix->retaining)
	{
		assert_true(tally.clear > before.clear + 100);
		assert_true(tally.crowded > before.crowded + 100);
		assert_true(tally.list_events > before.list_events + 100);
		assert_true(tally.gave_way > before.gave_way + 20);
		assert_true(tally.denied > before.denied + 100);
		assert_true(tally.courting > before.courting + 100);
		assert_true(tally.courted_in_vain > before.courted_in_vain + 100);
		assert_true(tally.courted_granted > before.courted_granted + 100);
		if (mix->refusals)
			assert_true(tally.crowded_unknown > before.crowded_unknown);
	}
	else
		assert_true(tally.list_events == before.list_events);
}

int
main(void)
{
	static const struct CMUnitTest singles[] = {
		cmocka_unit_test(test_common_lines),
		cmocka_unit_test(test_everything_else_is_ignored),
		cmocka_unit_test(test_none_sends_nothing),
		cmocka_unit_test(test_place_in_queue),
		cmocka_unit_test(test_reader_waits_for_writers_only),
		cmocka_unit_test(test_persistent_children),
		cmocka_unit_test(test_overtaken_watch),
		cmocka_unit_test(test_node_deleted_while_waiting),
		cmocka_unit_test(test_stat_refused_keeps_lock),
		cmocka_unit_test(test_token_comes_with_create),
		cmocka_unit_test(test_node_is_looked_at_after_waiting),
		cmocka_unit_test(test_stat_of_batch),
		cmocka_unit_test(test_token_is_forgotten),
		cmocka_unit_test(test_unwatch_once),
		cmocka_unit_test(test_refused_delete_is_retried),
		cmocka_unit_test(test_stray_is_deleted),
		cmocka_unit_test(test_strays_leave_room),
		cmocka_unit_test(test_stranger_is_told),
		cmocka_unit_test(test_directories_are_made),
		cmocka_unit_test(test_directories_cannot_be_made),
		cmocka_unit_test(test_directory_is_remembered),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_resume_and_go_on),
		cmocka_unit_test(test_look_behind),
		cmocka_unit_test(test_look_ignores_sibling),
		cmocka_unit_test(test_look_and_guard),
		cmocka_unit_test(test_monitor_behind),
		cmocka_unit_test(test_monitor_goes_on),
		cmocka_unit_test(test_monitor_ignores_sibling),
		cmocka_unit_test(test_monitor_look_and_guard),
		cmocka_unit_test(test_deny),
		cmocka_unit_test(test_resume_retaining),
		cmocka_unit_test(test_courtesy),
		cmocka_unit_test(test_retain_mark),
		cmocka_unit_test(test_courting_goes_on),
		cmocka_unit_test(test_strays_leave_room_for_list),
		cmocka_unit_test(test_serials_wrap),
		cmocka_unit_test(test_revocation_data),
		cmocka_unit_test(test_grouped_directories),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_free_is_repeatable),
		cmocka_unit_test(test_state_names)
	};
	struct CMUnitTest lines[lengthof(transitions)];
	struct CMUnitTest explored[lengthof(scenarios)];
	struct CMUnitTest random[lengthof(mixes)];
	int			failed = 0;

	memset(lines, 0, sizeof(lines));
	for (size_t i = 0; i < lengthof(transitions); i++)
	{
		lines[i].name = transitions[i].name;
		lines[i].test_func = test_transition;
		lines[i].initial_state = (void *) &transitions[i];
	}
	memset(explored, 0, sizeof(explored));
	for (size_t i = 0; i < lengthof(scenarios); i++)
	{
		explored[i].name = scenarios[i].title;
		explored[i].test_func = test_scenario;
		explored[i].initial_state = (void *) &scenarios[i];
	}
	memset(random, 0, sizeof(random));
	for (size_t i = 0; i < lengthof(mixes); i++)
	{
		random[i].name = mixes[i].title;
		random[i].test_func = test_random_schedules;
		random[i].initial_state = (void *) &mixes[i];
	}

	failed += cmocka_run_group_tests_name("transitions", lines, NULL, NULL);
	failed += cmocka_run_group_tests_name("singles", singles, NULL, NULL);
	failed += cmocka_run_group_tests_name("explored", explored, NULL, NULL);
	failed += cmocka_run_group_tests_name("random", random, NULL, NULL);
	return failed;
}
