/*-------------------------------------------------------------------------
 *
 * test_recipe.c
 *		Unit tests of the lock recipe.
 *
 *	- Every line of the transition table in recipe.c's header is a test named
 *	  after it, and a matrix of every situation and every input shows that
 *	  whatever the table does not list changes nothing and sends nothing.
 *	- Single tests are of what a table cannot say well: the place in the queue,
 *	  orphans and strangers, missing directories, a worker's restart.
 *
 * test_recipe_model.c plays the recipe against a model of ZooKeeper.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_recipe.c
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

#include "core/lock/note.h"
#include "model.h"

#define KIND(shared)	((shared) ? ZNODE_READER : ZNODE_MUTEX)

/*-------------------------------------------------------------------------
 * The transition table
 *-------------------------------------------------------------------------
 */

#define ERROR_MKDIRS		(-4)	/* why the directory could not be made */

#define TOKEN				INT64_C(0x100000002a)

#define OURS		"_c_0123456f-89ab-4def-8edc-ba9876543210-lock-0000000005"
#define OUR_PREFIX	"_c_0123456f-89ab-4def-8edc-ba9876543210-lock-"
#define OUR_FIRST \
	"_c_0123456f-89ab-4def-8edc-ba9876543210-lock-0000000000"
#define OUR_READER \
	"_c_0123456f-89ab-4def-8edc-ba9876543210-__READ__0000000005"
#define READER_PREFIX "_c_0123456f-89ab-4def-8edc-ba9876543210-__READ__"
#define ORPHAN(number) \
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
	AT_ENTERING_UNREAD,			/* no read is behind the create */
	AT_CANCELING,
	AT_REQUEUEING,				/* delete and create are out together */
	AT_CANCELING_REQUEUED,
	AT_SEARCHING_REQUEUED,
	AT_ABANDONING_REQUEUED,
	AT_SEARCHING,
	AT_SEARCHING_IN_VAIN,		/* after the parents could not be made */
	AT_ABANDONING,
	AT_READING,
	AT_WATCHING,				/* the predecessor alone excludes us */
	AT_WATCHING_OF_TWO,			/* another one does, too */
	AT_OWNER,
	AT_OWNER_REVOCABLE,			/* our own node is watched, or about to be */
	AT_OWNER_NO_TOKEN,			/* the stat for it was refused */
	AT_READING_ASKING,		/* will ask an owner ahead that may be idle */
	AT_READING_RETAINING,		/* and will watch the queue, as an owner */
	AT_WATCHING_ASKING,		/* the first answer to the watch is out */
	AT_WATCHING_RETAINED,		/* the owner ahead may not need the lock */
	AT_WATCHING_IN_USE,			/* it does */
	AT_OWNER_LISTING_QUEUE,		/* the list of who is behind us is out */
	AT_OWNER_ALONE,			/* nobody is */
	AT_OWNER_CONTENDED,			/* somebody is */
	AT_OWNER_RETAINING,			/* may not need the lock; the list is out */
	AT_OWNER_RETAINING_ALONE,
	AT_OWNER_RETAINING_CONTENDED,
	AT_OWNER_SET_IN_USE,			/* has told that it does need the lock */
	AT_LEAVING,
	AT_LEAVING_REFUSED,			/* the delete was refused */
	AT_READING_LATE,			/* our number is late, */
	AT_READING_UNORDERED,		/* or the last one */
	AT_LATE,					/* the deletes are out */
	AT_LATE_DELETED,			/* that of our node is not */
	AT_LATE_AGAIN,				/* the same, not for the first time */
	AT_LATE_UNORDERED,			/* our number is the last one */
	AT_LATE_ASIDE,				/* others are in the directory */
	NSITUATIONS
} Situation;

static const RecipeState situation_state[NSITUATIONS] = {
	RECIPE_NONE, RECIPE_ENTERING, RECIPE_ENTERING, RECIPE_ENTERING,
	RECIPE_ENTERING, RECIPE_ENTERING, RECIPE_CANCELING, RECIPE_REQUEUEING,
	RECIPE_CANCELING, RECIPE_SEARCHING, RECIPE_ABANDONING,
	RECIPE_SEARCHING, RECIPE_SEARCHING,
	RECIPE_ABANDONING, RECIPE_READING, RECIPE_WATCHING, RECIPE_WATCHING, RECIPE_OWNER,
	RECIPE_OWNER, RECIPE_OWNER, RECIPE_READING, RECIPE_READING,
	RECIPE_WATCHING, RECIPE_WATCHING, RECIPE_WATCHING, RECIPE_OWNER,
	RECIPE_OWNER, RECIPE_OWNER, RECIPE_OWNER, RECIPE_OWNER, RECIPE_OWNER,
	RECIPE_OWNER, RECIPE_LEAVING, RECIPE_LEAVING, RECIPE_READING,
	RECIPE_READING, RECIPE_LATE, RECIPE_LATE, RECIPE_LATE, RECIPE_LATE,
	RECIPE_LATE
};

/*
 * Situations in which most lines of another one hold, too: what they do not
 * have a line of their own for, they have in common.
 */
static const Situation situation_base[NSITUATIONS] = {
	[AT_ENTERING_UNREAD] = AT_ENTERING,
	[AT_SEARCHING_REQUEUED] = AT_SEARCHING,
	[AT_ABANDONING_REQUEUED] = AT_ABANDONING,
	[AT_OWNER_REVOCABLE] = AT_OWNER,
	[AT_OWNER_NO_TOKEN] = AT_OWNER,
	[AT_READING_ASKING] = AT_READING,
	[AT_READING_RETAINING] = AT_READING,
	[AT_WATCHING_ASKING] = AT_WATCHING,
	[AT_WATCHING_RETAINED] = AT_WATCHING_ASKING,
	[AT_WATCHING_IN_USE] = AT_WATCHING,
	[AT_OWNER_LISTING_QUEUE] = AT_OWNER,
	[AT_OWNER_ALONE] = AT_OWNER_LISTING_QUEUE,
	[AT_OWNER_CONTENDED] = AT_OWNER,
	[AT_OWNER_RETAINING] = AT_OWNER_LISTING_QUEUE,
	[AT_OWNER_RETAINING_ALONE] = AT_OWNER_RETAINING,
	[AT_OWNER_RETAINING_CONTENDED] = AT_OWNER_CONTENDED,
	[AT_OWNER_SET_IN_USE] = AT_OWNER_CONTENDED,
	[AT_READING_LATE] = AT_READING,
	[AT_READING_UNORDERED] = AT_READING_LATE,
	[AT_LATE_DELETED] = AT_LATE,
	[AT_LATE_AGAIN] = AT_LATE,
	[AT_LATE_UNORDERED] = AT_LATE,
	[AT_LATE_ASIDE] = AT_LATE_DELETED
};

typedef enum Input
{
	IN_WANT,
	IN_WANT_NEW_DIR,
	IN_WANT_UNREAD,				/* its number is likely to own the lock */
	IN_RELEASE,
	IN_REQUEUE,
	IN_WATCH_QUEUE,
	IN_SET_IN_USE,
	IN_WATCH_REVOCATION,
	IN_MKDIR_OK,
	IN_MKDIR_UNKNOWN,
	IN_MKDIR_NO_NODE,
	IN_MKDIR_REFUSED,
	IN_CREATE_OK,
	IN_CREATE_NEXT,				/* the same, and that number owns the lock */
	IN_CREATE_FIRST,			/* its number is 0 */
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
	IN_WATCH_ORPHAN,				/* succeeded: it is ours, and of nobody */
	IN_WATCH_PERSISTENT,		/* succeeded: it is no ephemeral node */
	IN_WATCH_CONTAINER,			/* the same, of a container */
	IN_WATCH_UNKNOWN,
	IN_WATCH_NO_NODE,
	IN_WATCH_REFUSED,
	IN_STALE_WATCH_OK,
	IN_STALE_WATCH_REVOKED,
	IN_STALE_WATCH_RETAINED,
	IN_STALE_WATCH_ORPHAN,
	IN_STALE_WATCH_UNKNOWN,
	IN_STALE_WATCH_NO_NODE,
	IN_STALE_WATCH_REFUSED,
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
	IN_REQUEUE_NEXT,			/* succeeded, and nobody came in between */
	IN_REQUEUE_BEHIND,			/* succeeded, but somebody did */
	IN_REQUEUE_ODD,
	IN_REQUEUE_UNKNOWN,
	IN_REQUEUE_NO_NODE,
	IN_REQUEUE_REFUSED,
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
	IN_LOOK,
	IN_LOOKED_OK,				/* the stat of a look */
	IN_LOOKED_ORPHAN,
	IN_LOOKED_UNKNOWN,
	IN_LOOKED_NO_NODE,
	IN_LOOKED_REFUSED,
	IN_STALE_LOOKED_ORPHAN,
	IN_STALE_LOOKED_NO_NODE,
	IN_RETRY,
	IN_EXPIRED,
	NINPUTS
} Input;

/* The inputs that recipe_step() takes, from IN_RELEASE on. */
static const struct
{
	RequestKind kind;			/* of an answer */
	RequestResult result;
	bool		stale;
	const char *node;
	const char *children[4];
	bool		ours;
	const char *data;
	bool		other;
	bool		not_empty;
	bool		orphan;
	bool		persistent;
	bool		container;
	int32_t		next;
	bool		own;			/* of our own node: has no serial number */
	RecipeEvent event;
	RequestEvent watch;			/* what has fired */
}			inputs[NINPUTS] =
{
	[IN_RELEASE] = {.event = RECIPE_RELEASE},
	[IN_REQUEUE] = {.event = RECIPE_REQUEUE},
	[IN_WATCH_QUEUE] = {.event = RECIPE_WATCH_QUEUE},
	[IN_SET_IN_USE] = {.event = RECIPE_SET_IN_USE},
	[IN_WATCH_REVOCATION] = {.event = RECIPE_WATCH_REVOCATION},
	[IN_MKDIR_OK] = {REQUEST_MKDIR, REQUEST_OK},
	[IN_MKDIR_UNKNOWN] = {REQUEST_MKDIR, REQUEST_UNKNOWN},
	[IN_MKDIR_NO_NODE] = {REQUEST_MKDIR, REQUEST_NO_NODE},
	[IN_MKDIR_REFUSED] = {REQUEST_MKDIR, REQUEST_REFUSED},
	[IN_CREATE_OK] = {REQUEST_CREATE, REQUEST_OK, .node = OURS},
	[IN_CREATE_NEXT] = {REQUEST_CREATE, REQUEST_OK, .node = OURS,
	.next = 5},
	[IN_CREATE_FIRST] = {REQUEST_CREATE, REQUEST_OK, .node = OUR_FIRST},
	[IN_CREATE_ODD] = {REQUEST_CREATE, REQUEST_OK, .node = OUR_PREFIX},
	[IN_CREATE_UNKNOWN] = {REQUEST_CREATE, REQUEST_UNKNOWN},
	[IN_CREATE_NO_NODE] = {REQUEST_CREATE, REQUEST_NO_NODE},
	[IN_CREATE_REFUSED] = {REQUEST_CREATE, REQUEST_REFUSED},
	[IN_ALONE] = {REQUEST_CHILDREN, .children = {OURS}},
	[IN_SECOND] = {REQUEST_CHILDREN, .children = {LATER, OURS, FIRST}},
	[IN_THIRD] = {REQUEST_CHILDREN, .children = {FIRST, OURS, SECOND}},
	[IN_MISSING] = {REQUEST_CHILDREN, .children = {FIRST}},
	[IN_EMPTY] = {REQUEST_CHILDREN},
	[IN_MIXED] = {REQUEST_CHILDREN, .children = {"leases", OURS, FIRST}},
	[IN_MIXED_MISSING] = {REQUEST_CHILDREN, .children = {"locks"}},
	[IN_UNORDERED] = {REQUEST_CHILDREN, .children = {UNORDERED, OURS}},
	[IN_CHILDREN_UNKNOWN] = {REQUEST_CHILDREN, REQUEST_UNKNOWN},
	[IN_CHILDREN_NO_NODE] = {REQUEST_CHILDREN, REQUEST_NO_NODE},
	[IN_CHILDREN_REFUSED] = {REQUEST_CHILDREN, REQUEST_REFUSED},
	[IN_STALE_ALONE] = {REQUEST_CHILDREN, .stale = true,
		.children = {OURS}},
	[IN_STALE_SECOND] = {REQUEST_CHILDREN, .stale = true,
		.children = {LATER, OURS, FIRST}},
	[IN_STALE_THIRD] = {REQUEST_CHILDREN, .stale = true,
		.children = {FIRST, OURS, SECOND}},
	[IN_STALE_MISSING] = {REQUEST_CHILDREN, .stale = true,
		.children = {FIRST}},
	[IN_STALE_EMPTY] = {REQUEST_CHILDREN, .stale = true},
	[IN_STALE_MIXED] = {REQUEST_CHILDREN, .stale = true,
		.children = {"leases", OURS}},
	[IN_STALE_CHILDREN_UNKNOWN] = {REQUEST_CHILDREN, REQUEST_UNKNOWN,
		.stale = true},
	[IN_STALE_CHILDREN_NO_NODE] = {REQUEST_CHILDREN, REQUEST_NO_NODE,
		.stale = true},
	[IN_STALE_CHILDREN_REFUSED] = {REQUEST_CHILDREN, REQUEST_REFUSED,
		.stale = true},
	[IN_WATCH_OK] = {REQUEST_WATCH, REQUEST_OK, .data = "me"},
	[IN_WATCH_REVOKED] = {REQUEST_WATCH, REQUEST_OK,
		.data = NOTE_REVOCATION_DATA},
	[IN_WATCH_RETAINED] = {REQUEST_WATCH, REQUEST_OK,
		.data = "me" NOTE_RETAIN_MARK},
	[IN_WATCH_ORPHAN] = {REQUEST_WATCH, REQUEST_OK, .ours = true,
		.data = "me", .orphan = true},
	[IN_WATCH_PERSISTENT] = {REQUEST_WATCH, REQUEST_OK, .data = "me",
	.persistent = true},
	[IN_WATCH_CONTAINER] = {REQUEST_WATCH, REQUEST_OK, .container = true},
	[IN_WATCH_UNKNOWN] = {REQUEST_WATCH, REQUEST_UNKNOWN},
	[IN_WATCH_NO_NODE] = {REQUEST_WATCH, REQUEST_NO_NODE},
	[IN_WATCH_REFUSED] = {REQUEST_WATCH, REQUEST_REFUSED},
	[IN_STALE_WATCH_OK] = {REQUEST_WATCH, REQUEST_OK, true},
	[IN_STALE_WATCH_REVOKED] = {REQUEST_WATCH, REQUEST_OK, true,
		.data = NOTE_REVOCATION_DATA},
	[IN_STALE_WATCH_RETAINED] = {REQUEST_WATCH, REQUEST_OK, true,
		.data = "me" NOTE_RETAIN_MARK},
	[IN_STALE_WATCH_ORPHAN] = {REQUEST_WATCH, REQUEST_OK, true,
		.ours = true, .data = "me", .orphan = true},
	[IN_STALE_WATCH_UNKNOWN] = {REQUEST_WATCH, REQUEST_UNKNOWN, true},
	[IN_STALE_WATCH_NO_NODE] = {REQUEST_WATCH, REQUEST_NO_NODE, true},
	[IN_STALE_WATCH_REFUSED] = {REQUEST_WATCH, REQUEST_REFUSED, true},
	[IN_SET_OK] = {REQUEST_SET, REQUEST_OK},
	[IN_SET_UNKNOWN] = {REQUEST_SET, REQUEST_UNKNOWN},
	[IN_SET_NO_NODE] = {REQUEST_SET, REQUEST_NO_NODE},
	[IN_SET_REFUSED] = {REQUEST_SET, REQUEST_REFUSED},
	[IN_STAT_OURS] = {REQUEST_STAT, REQUEST_OK, .ours = true, .own = true},
	[IN_STAT_FOREIGN] = {REQUEST_STAT, REQUEST_OK, .own = true},
	[IN_STAT_UNKNOWN] = {REQUEST_STAT, REQUEST_UNKNOWN, .own = true},
	[IN_STAT_NO_NODE] = {REQUEST_STAT, REQUEST_NO_NODE, .own = true},
	[IN_STAT_REFUSED] = {REQUEST_STAT, REQUEST_REFUSED, .own = true},
	[IN_DELETE_OK] = {REQUEST_DELETE, REQUEST_OK},
	[IN_DELETE_UNKNOWN] = {REQUEST_DELETE, REQUEST_UNKNOWN},
	[IN_DELETE_NO_NODE] = {REQUEST_DELETE, REQUEST_NO_NODE},
	[IN_DELETE_REFUSED] = {REQUEST_DELETE, REQUEST_REFUSED},
	[IN_REQUEUE_NEXT] = {REQUEST_REQUEUE, REQUEST_OK, .node = ORPHAN(6)},
	[IN_REQUEUE_BEHIND] = {REQUEST_REQUEUE, REQUEST_OK, .node = ORPHAN(7)},
	[IN_REQUEUE_ODD] = {REQUEST_REQUEUE, REQUEST_OK, .node = OUR_PREFIX},
	[IN_REQUEUE_UNKNOWN] = {REQUEST_REQUEUE, REQUEST_UNKNOWN},
	[IN_REQUEUE_NO_NODE] = {REQUEST_REQUEUE, REQUEST_NO_NODE},
	[IN_REQUEUE_REFUSED] = {REQUEST_REQUEUE, REQUEST_REFUSED},
	[IN_RMDIR_OK] = {REQUEST_RMDIR, REQUEST_OK},
	[IN_RMDIR_UNKNOWN] = {REQUEST_RMDIR, REQUEST_UNKNOWN},
	[IN_RMDIR_NO_NODE] = {REQUEST_RMDIR, REQUEST_NO_NODE},
	[IN_RMDIR_NOT_EMPTY] = {REQUEST_RMDIR, REQUEST_REFUSED,
	.not_empty = true},
	[IN_RMDIR_REFUSED] = {REQUEST_RMDIR, REQUEST_REFUSED},
	[IN_STALE_RMDIR_OK] = {REQUEST_RMDIR, REQUEST_OK, true},
	[IN_STALE_RMDIR_NO_NODE] = {REQUEST_RMDIR, REQUEST_NO_NODE, true},
	[IN_STALE_RMDIR_NOT_EMPTY] = {REQUEST_RMDIR, REQUEST_REFUSED, true,
	.not_empty = true},
	[IN_DELETED] = {.watch = REQUEST_NODE_DELETED},
	[IN_TOUCHED] = {.watch = REQUEST_NODE_TOUCHED},
	[IN_STALE_DELETED] = {.watch = REQUEST_NODE_DELETED, .stale = true},
	[IN_STALE_TOUCHED] = {.watch = REQUEST_NODE_TOUCHED, .stale = true},
	[IN_LOOK] = {.event = RECIPE_LOOK},
	[IN_LOOKED_OK] = {REQUEST_STAT, REQUEST_OK},
	[IN_LOOKED_ORPHAN] = {REQUEST_STAT, REQUEST_OK, .ours = true,
	.orphan = true},
	[IN_LOOKED_UNKNOWN] = {REQUEST_STAT, REQUEST_UNKNOWN},
	[IN_LOOKED_NO_NODE] = {REQUEST_STAT, REQUEST_NO_NODE},
	[IN_LOOKED_REFUSED] = {REQUEST_STAT, REQUEST_REFUSED},
	[IN_STALE_LOOKED_ORPHAN] = {REQUEST_STAT, REQUEST_OK, true,
	.ours = true, .orphan = true},
	[IN_STALE_LOOKED_NO_NODE] = {REQUEST_STAT, REQUEST_NO_NODE, true},
	[IN_RETRY] = {.event = RECIPE_RETRY},
	[IN_EXPIRED] = {.event = RECIPE_EXPIRED}
};

#define REPORT_LOST		(RECIPE_REPORT_LOST | RECIPE_REPORT_GONE)
#define REPORT_FAILED		(RECIPE_REPORT_FAILED | RECIPE_REPORT_GONE)
#define REPORT_MIXED		(RECIPE_REPORT_FAILED | RECIPE_REPORT_MIXED)

/* One line of the table; what no line is about must change nothing. */
typedef struct Transition
{
	const char *name;
	Situation	at;
	Input		input;
	RecipeState state;
	const char *ops;
	unsigned	report;
	int			error;
} Transition;

static const Transition transitions[] = {
	{"NONE: want -> ENTERING: create, children",
		AT_NONE, IN_WANT, RECIPE_ENTERING, "create children", 0, 0},
	{"NONE: want, directory not known -> ENTERING: mkdir, create, children",
		AT_NONE, IN_WANT_NEW_DIR, RECIPE_ENTERING, "mkdir create children",
	0, 0},
	{"NONE: want, likely to own the lock unread -> ENTERING: create",
		AT_NONE, IN_WANT_UNREAD, RECIPE_ENTERING, "create", 0, 0},

	{"ENTERING: create ok -> READING",
		AT_ENTERING, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_REPORT_CREATED, 0},
	{"ENTERING: create ok, after mkdir -> READING",
		AT_ENTERING_MKDIR, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_REPORT_CREATED, 0},
	{"ENTERING: create ok, after mkdirs -> READING",
		AT_ENTERING_MKDIRS, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_REPORT_CREATED, 0},
	{"ENTERING: create ok, though mkdirs failed -> READING",
		AT_ENTERING_IN_VAIN, IN_CREATE_OK, RECIPE_READING, "",
	RECIPE_REPORT_CREATED, 0},
	{"ENTERING: create ok, the next number -> OWNER: stat",
		AT_ENTERING, IN_CREATE_NEXT, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, number 0 -> OWNER: stat",
		AT_ENTERING, IN_CREATE_FIRST, RECIPE_OWNER, "stat(0)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, the next number, after mkdir -> OWNER: stat",
		AT_ENTERING_MKDIR, IN_CREATE_NEXT, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, number 0, after mkdir -> OWNER: stat",
		AT_ENTERING_MKDIR, IN_CREATE_FIRST, RECIPE_OWNER, "stat(0)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, the next number, after mkdirs -> OWNER: stat",
		AT_ENTERING_MKDIRS, IN_CREATE_NEXT, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, number 0, after mkdirs -> OWNER: stat",
		AT_ENTERING_MKDIRS, IN_CREATE_FIRST, RECIPE_OWNER, "stat(0)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, the next number, mkdirs failed -> OWNER: stat",
		AT_ENTERING_IN_VAIN, IN_CREATE_NEXT, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, number 0, mkdirs failed -> OWNER: stat",
		AT_ENTERING_IN_VAIN, IN_CREATE_FIRST, RECIPE_OWNER, "stat(0)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ENTERING: create ok, no read behind it -> READING: children",
		AT_ENTERING_UNREAD, IN_CREATE_OK, RECIPE_READING, "children",
	RECIPE_REPORT_CREATED, 0},
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
	REPORT_FAILED, ERROR_MKDIRS},
	{"ENTERING: create refused -> NONE: failed",
		AT_ENTERING, IN_CREATE_REFUSED, RECIPE_NONE, "",
	REPORT_FAILED, ERROR_REFUSED},
	{"ENTERING: create refused, after mkdir -> NONE: failed",
		AT_ENTERING_MKDIR, IN_CREATE_REFUSED, RECIPE_NONE, "",
	REPORT_FAILED, ERROR_REFUSED},
	{"ENTERING: create refused, after mkdirs -> NONE: failed",
		AT_ENTERING_MKDIRS, IN_CREATE_REFUSED, RECIPE_NONE, "",
	REPORT_FAILED, ERROR_REFUSED},
	{"ENTERING: create refused, mkdirs failed -> NONE: failed",
		AT_ENTERING_IN_VAIN, IN_CREATE_REFUSED, RECIPE_NONE, "",
	REPORT_FAILED, ERROR_REFUSED},
	{"ENTERING: release -> CANCELING",
		AT_ENTERING, IN_RELEASE, RECIPE_CANCELING, "", 0, 0},
	{"ENTERING: release, after mkdir -> CANCELING",
		AT_ENTERING_MKDIR, IN_RELEASE, RECIPE_CANCELING, "", 0, 0},
	{"ENTERING: release, after mkdirs -> CANCELING",
		AT_ENTERING_MKDIRS, IN_RELEASE, RECIPE_CANCELING, "", 0, 0},
	{"ENTERING: release, mkdirs failed -> CANCELING",
		AT_ENTERING_IN_VAIN, IN_RELEASE, RECIPE_CANCELING, "", 0, 0},
	{"ENTERING: expired -> NONE: gone",
		AT_ENTERING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"ENTERING: expired, after mkdir -> NONE: gone",
		AT_ENTERING_MKDIR, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"ENTERING: expired, after mkdirs -> NONE: gone",
		AT_ENTERING_MKDIRS, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"ENTERING: expired, mkdirs failed -> NONE: gone",
		AT_ENTERING_IN_VAIN, IN_EXPIRED, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},

	{"CANCELING: create ok -> LEAVING: delete",
		AT_CANCELING, IN_CREATE_OK, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"CANCELING: create ok, the next number -> LEAVING: delete",
		AT_CANCELING, IN_CREATE_NEXT, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"CANCELING: create ok, number 0 -> LEAVING: delete",
		AT_CANCELING, IN_CREATE_FIRST, RECIPE_LEAVING, "delete(0)",
	RECIPE_REPORT_CREATED, 0},
	{"CANCELING: create ok with an odd name -> ABANDONING: search",
		AT_CANCELING, IN_CREATE_ODD, RECIPE_ABANDONING, "search", 0, 0},
	{"CANCELING: create unknown -> ABANDONING: search",
		AT_CANCELING, IN_CREATE_UNKNOWN, RECIPE_ABANDONING, "search", 0, 0},
	{"CANCELING: create no node -> NONE: gone",
		AT_CANCELING, IN_CREATE_NO_NODE, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"CANCELING: create refused -> NONE: gone",
		AT_CANCELING, IN_CREATE_REFUSED, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"CANCELING: expired -> NONE: gone",
		AT_CANCELING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

	{"SEARCHING: children ok, our node alone -> OWNER: stat",
		AT_SEARCHING, IN_ALONE, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"SEARCHING: children ok, our node behind another -> WATCHING: watch",
		AT_SEARCHING, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_QUEUED, 0},
	{"SEARCHING: children ok, our node behind two -> WATCHING: watch",
		AT_SEARCHING, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_QUEUED, 0},
	{"SEARCHING: children ok, without it -> ENTERING: create, children",
		AT_SEARCHING, IN_MISSING, RECIPE_ENTERING, "create children", 0, 0},
	{"SEARCHING: children ok, none -> ENTERING: create, children",
		AT_SEARCHING, IN_EMPTY, RECIPE_ENTERING, "create children", 0, 0},
	{"SEARCHING: children ok, with those of a semaphore -> LEAVING: delete",
		AT_SEARCHING, IN_MIXED, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED | REPORT_MIXED, 0},
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
	REPORT_FAILED | RECIPE_REPORT_LEFT, ERROR_REFUSED},
	{"SEARCHING: release -> ABANDONING",
		AT_SEARCHING, IN_RELEASE, RECIPE_ABANDONING, "", 0, 0},
	{"SEARCHING: expired -> NONE: gone",
		AT_SEARCHING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

	{"SEARCHING: children ok, our node alone, mkdirs failed -> OWNER: stat",
		AT_SEARCHING_IN_VAIN, IN_ALONE, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"SEARCHING: children ok, behind another, mkdirs failed -> WATCHING",
		AT_SEARCHING_IN_VAIN, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_QUEUED, 0},
	{"SEARCHING: children ok, behind two, mkdirs failed -> WATCHING",
		AT_SEARCHING_IN_VAIN, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_QUEUED, 0},
	{"SEARCHING: children ok, without it, mkdirs failed -> ENTERING",
		AT_SEARCHING_IN_VAIN, IN_MISSING, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: children ok, none, mkdirs failed -> ENTERING",
		AT_SEARCHING_IN_VAIN, IN_EMPTY, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: children ok, a semaphore's, mkdirs failed -> LEAVING",
		AT_SEARCHING_IN_VAIN, IN_MIXED, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED | REPORT_MIXED, 0},
	{"SEARCHING: children ok, only a semaphore's, mkdirs failed -> ENTERING",
		AT_SEARCHING_IN_VAIN, IN_MIXED_MISSING, RECIPE_ENTERING,
	"mkdirs create children", 0, 0},
	{"SEARCHING: no node, mkdirs failed -> NONE: failed",
		AT_SEARCHING_IN_VAIN, IN_CHILDREN_NO_NODE, RECIPE_NONE, "",
	REPORT_FAILED, ERROR_MKDIRS},
	{"SEARCHING: children unknown, mkdirs failed -> SEARCHING: search",
		AT_SEARCHING_IN_VAIN, IN_CHILDREN_UNKNOWN, RECIPE_SEARCHING, "search",
	0, 0},
	{"SEARCHING: children refused, mkdirs failed -> NONE: failed",
		AT_SEARCHING_IN_VAIN, IN_CHILDREN_REFUSED, RECIPE_NONE, "",
	REPORT_FAILED | RECIPE_REPORT_LEFT, ERROR_REFUSED},
	{"SEARCHING: release, mkdirs failed -> ABANDONING",
		AT_SEARCHING_IN_VAIN, IN_RELEASE, RECIPE_ABANDONING, "", 0, 0},
	{"SEARCHING: expired, mkdirs failed -> NONE: gone",
		AT_SEARCHING_IN_VAIN, IN_EXPIRED, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},

	{"ABANDONING: children ok, our node alone -> LEAVING: delete",
		AT_ABANDONING, IN_ALONE, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"ABANDONING: children ok, behind another -> LEAVING: delete",
		AT_ABANDONING, IN_SECOND, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"ABANDONING: children ok, behind two -> LEAVING: delete",
		AT_ABANDONING, IN_THIRD, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"ABANDONING: children ok, without it -> NONE: gone",
		AT_ABANDONING, IN_MISSING, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"ABANDONING: children ok, none -> NONE: gone",
		AT_ABANDONING, IN_EMPTY, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"ABANDONING: children ok, with those of a semaphore -> LEAVING: delete",
		AT_ABANDONING, IN_MIXED, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"ABANDONING: children ok, those of a semaphore only -> NONE: gone",
		AT_ABANDONING, IN_MIXED_MISSING, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"ABANDONING: no node -> NONE: gone",
		AT_ABANDONING, IN_CHILDREN_NO_NODE, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"ABANDONING: children refused -> NONE: perhaps left behind",
		AT_ABANDONING, IN_CHILDREN_REFUSED, RECIPE_NONE, "",
	RECIPE_REPORT_GONE | RECIPE_REPORT_LEFT, ERROR_REFUSED},
	{"ABANDONING: children unknown -> ABANDONING: search",
		AT_ABANDONING, IN_CHILDREN_UNKNOWN, RECIPE_ABANDONING, "search",
	0, 0},
	{"ABANDONING: expired -> NONE: gone",
		AT_ABANDONING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

	{"READING: children ok, nobody excludes us -> OWNER: stat",
		AT_READING, IN_ALONE, RECIPE_OWNER, "stat", RECIPE_REPORT_GRANTED, 0},
	{"READING: children ok, somebody does -> WATCHING: watch",
		AT_READING, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	RECIPE_REPORT_QUEUED, 0},
	{"READING: children ok, two do -> WATCHING: watch the last of them",
		AT_READING, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_REPORT_QUEUED, 0},
	{"READING: children ok, without our node -> ENTERING: as new",
		AT_READING, IN_MISSING, RECIPE_ENTERING, "create children", 0, 0},
	{"READING: children ok, none -> ENTERING: as new",
		AT_READING, IN_EMPTY, RECIPE_ENTERING, "create children", 0, 0},
	{"READING: children ok, with those of a semaphore -> LEAVING: delete",
		AT_READING, IN_MIXED, RECIPE_LEAVING, "delete", REPORT_MIXED, 0},
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
	RECIPE_REPORT_FAILED, ERROR_REFUSED},
	{"READING: release -> LEAVING: delete",
		AT_READING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"READING: expired -> NONE: gone",
		AT_READING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},


	{"WATCHING: predecessor deleted, the only one -> OWNER: stat",
		AT_WATCHING, IN_DELETED, RECIPE_OWNER, "stat",
	RECIPE_REPORT_GRANTED, 0},
	{"WATCHING: watch no node, the only one -> OWNER: stat",
		AT_WATCHING, IN_WATCH_NO_NODE, RECIPE_OWNER, "stat",
	RECIPE_REPORT_GRANTED, 0},
	{"WATCHING: watch used up otherwise -> WATCHING: watch",
		AT_WATCHING, IN_TOUCHED, RECIPE_WATCHING, "watch(first)", 0, 0},
	{"WATCHING: look -> WATCHING: stat",
		AT_WATCHING, IN_LOOK, RECIPE_WATCHING, "stat(first)", 0, 0},
	{"WATCHING: looked, no node, the only one -> OWNER: stat",
		AT_WATCHING, IN_LOOKED_NO_NODE, RECIPE_OWNER, "stat",
	RECIPE_REPORT_GRANTED, 0},
	{"WATCHING: looked, an orphan of our session -> WATCHING: delete it",
		AT_WATCHING, IN_LOOKED_ORPHAN, RECIPE_WATCHING, "orphan(first)", 0, 0},
	{"WATCHING: look, of two -> WATCHING: stat",
		AT_WATCHING_OF_TWO, IN_LOOK, RECIPE_WATCHING, "stat(second)", 0, 0},
	{"WATCHING: looked, no node, one of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_LOOKED_NO_NODE, RECIPE_READING, "children",
	0, 0},
	{"WATCHING: looked, an orphan, another is ahead -> WATCHING: delete it",
		AT_WATCHING_OF_TWO, IN_LOOKED_ORPHAN, RECIPE_WATCHING,
	"orphan(second)", 0, 0},
	{"WATCHING: watch unknown -> WATCHING: watch",
		AT_WATCHING, IN_WATCH_UNKNOWN, RECIPE_WATCHING, "watch(first)", 0, 0},
	{"WATCHING: watch refused -> LEAVING: unwatch, delete; failed",
		AT_WATCHING, IN_WATCH_REFUSED, RECIPE_LEAVING,
	"unwatch(first) delete", RECIPE_REPORT_FAILED, ERROR_REFUSED},
	{"WATCHING: release -> LEAVING: unwatch, delete",
		AT_WATCHING, IN_RELEASE, RECIPE_LEAVING, "unwatch(first) delete",
	0, 0},
	{"WATCHING: expired -> NONE: gone",
		AT_WATCHING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

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
	"unwatch(second) delete", RECIPE_REPORT_FAILED, ERROR_REFUSED},
	{"WATCHING: release, of two -> LEAVING: unwatch, delete",
		AT_WATCHING_OF_TWO, IN_RELEASE, RECIPE_LEAVING,
	"unwatch(second) delete", 0, 0},
	{"WATCHING: expired, of two -> NONE: gone",
		AT_WATCHING_OF_TWO, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

	{"OWNER: stat ok, our session's -> OWNER: token",
		AT_OWNER, IN_STAT_OURS, RECIPE_OWNER, "", RECIPE_REPORT_TOKEN, 0},
	{"OWNER: stat ok, not our session's -> NONE: lost",
		AT_OWNER, IN_STAT_FOREIGN, RECIPE_NONE, "", REPORT_LOST, 0},
	{"OWNER: stat no node -> NONE: lost",
		AT_OWNER, IN_STAT_NO_NODE, RECIPE_NONE, "", REPORT_LOST,
	ERROR_NO_NODE},
	{"OWNER: stat unknown -> OWNER: stat",
		AT_OWNER, IN_STAT_UNKNOWN, RECIPE_OWNER, "stat", 0, 0},
	{"OWNER: stat refused -> OWNER; no token",
		AT_OWNER, IN_STAT_REFUSED, RECIPE_OWNER, "", RECIPE_REPORT_NO_TOKEN,
	ERROR_REFUSED},
	{"OWNER: retry, after that -> OWNER: stat",
		AT_OWNER_NO_TOKEN, IN_RETRY, RECIPE_OWNER, "stat", 0, 0},
	{"OWNER: release -> LEAVING: delete",
		AT_OWNER, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"OWNER: expired -> NONE: lost",
		AT_OWNER, IN_EXPIRED, RECIPE_NONE, "", REPORT_LOST, 0},
	{"OWNER: requeue -> REQUEUEING: requeue",
		AT_OWNER, IN_REQUEUE, RECIPE_REQUEUEING, "requeue", 0, 0},

	{"REQUEUEING: requeue ok, the next number -> OWNER: stat",
		AT_REQUEUEING, IN_REQUEUE_NEXT, RECIPE_OWNER, "stat(6)",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"REQUEUEING: requeue ok -> READING: children",
		AT_REQUEUEING, IN_REQUEUE_BEHIND, RECIPE_READING, "children",
	RECIPE_REPORT_CREATED, 0},
	{"REQUEUEING: requeue ok, under no name -> SEARCHING: search",
		AT_REQUEUEING, IN_REQUEUE_ODD, RECIPE_SEARCHING, "search", 0, 0},
	{"REQUEUEING: requeue unknown -> SEARCHING: search",
		AT_REQUEUEING, IN_REQUEUE_UNKNOWN, RECIPE_SEARCHING, "search", 0, 0},
	{"REQUEUEING: requeue no node -> ENTERING: make the directories, as new",
		AT_REQUEUEING, IN_REQUEUE_NO_NODE, RECIPE_ENTERING,
		"mkdirs create children",
	0, 0},
	{"REQUEUEING: requeue refused -> LEAVING: delete; failed",
		AT_REQUEUEING, IN_REQUEUE_REFUSED, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_FAILED, ERROR_REFUSED},
	{"REQUEUEING: release -> CANCELING",
		AT_REQUEUEING, IN_RELEASE, RECIPE_CANCELING, "", 0, 0},
	{"REQUEUEING: expired -> NONE: gone",
		AT_REQUEUEING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

	{"CANCELING: requeue ok, the next number -> LEAVING: delete",
		AT_CANCELING_REQUEUED, IN_REQUEUE_NEXT, RECIPE_LEAVING, "delete(6)",
	RECIPE_REPORT_CREATED, 0},
	{"CANCELING: requeue ok -> LEAVING: delete",
		AT_CANCELING_REQUEUED, IN_REQUEUE_BEHIND, RECIPE_LEAVING, "delete(7)",
	RECIPE_REPORT_CREATED, 0},
	{"CANCELING: requeue ok, under no name -> ABANDONING: search",
		AT_CANCELING_REQUEUED, IN_REQUEUE_ODD, RECIPE_ABANDONING, "search",
	0, 0},
	{"CANCELING: requeue unknown -> ABANDONING: search",
		AT_CANCELING_REQUEUED, IN_REQUEUE_UNKNOWN, RECIPE_ABANDONING,
	"search", 0, 0},
	{"CANCELING: requeue no node -> NONE: gone",
		AT_CANCELING_REQUEUED, IN_REQUEUE_NO_NODE, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"CANCELING: requeue refused -> LEAVING: delete",
		AT_CANCELING_REQUEUED, IN_REQUEUE_REFUSED, RECIPE_LEAVING, "delete",
	0, 0},
	{"CANCELING: expired, requeued -> NONE: gone",
		AT_CANCELING_REQUEUED, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE,
	0},

	{"SEARCHING: children ok, the node of before alone -> REQUEUEING: requeue",
		AT_SEARCHING_REQUEUED, IN_ALONE, RECIPE_REQUEUEING, "requeue", 0, 0},
	{"SEARCHING: children ok, that and others -> REQUEUEING: requeue",
		AT_SEARCHING_REQUEUED, IN_SECOND, RECIPE_REQUEUEING, "requeue", 0, 0},
	{"SEARCHING: children ok, that behind two -> REQUEUEING: requeue",
		AT_SEARCHING_REQUEUED, IN_THIRD, RECIPE_REQUEUEING, "requeue", 0, 0},
	{"SEARCHING: children ok, that and a semaphore's -> REQUEUEING: requeue",
		AT_SEARCHING_REQUEUED, IN_MIXED, RECIPE_REQUEUEING, "requeue", 0, 0},
	{"SEARCHING: children ok, that and one without order -> REQUEUEING: requeue",
		AT_SEARCHING_REQUEUED, IN_UNORDERED, RECIPE_REQUEUEING, "requeue",
	0, 0},
	{"ABANDONING: children ok, the node of before alone -> LEAVING: delete",
		AT_ABANDONING_REQUEUED, IN_ALONE, RECIPE_LEAVING, "delete", 0, 0},
	{"ABANDONING: children ok, that and others -> LEAVING: delete",
		AT_ABANDONING_REQUEUED, IN_SECOND, RECIPE_LEAVING, "delete", 0, 0},
	{"ABANDONING: children ok, that behind two -> LEAVING: delete",
		AT_ABANDONING_REQUEUED, IN_THIRD, RECIPE_LEAVING, "delete", 0, 0},
	{"ABANDONING: children ok, that and a semaphore's -> LEAVING: delete",
		AT_ABANDONING_REQUEUED, IN_MIXED, RECIPE_LEAVING, "delete", 0, 0},
	{"ABANDONING: children ok, that and one without order -> LEAVING: delete",
		AT_ABANDONING_REQUEUED, IN_UNORDERED, RECIPE_LEAVING, "delete", 0, 0},

	{"OWNER: watch for a revocation -> OWNER: watch our own node",
		AT_OWNER, IN_WATCH_REVOCATION, RECIPE_OWNER, "watch(own)", 0, 0},
	{"OWNER: set unknown -> OWNER: set",
		AT_OWNER, IN_SET_UNKNOWN, RECIPE_OWNER, "set", 0, 0},

	/* once is enough */
	{"OWNER: watch for a revocation again -> OWNER",
		AT_OWNER_REVOCABLE, IN_WATCH_REVOCATION, RECIPE_OWNER, "", 0, 0},
	{"OWNER: revocation watch used up -> OWNER: watch our own node",
		AT_OWNER_REVOCABLE, IN_TOUCHED, RECIPE_OWNER, "watch(own)", 0, 0},
	{"OWNER: revocation watch unknown -> OWNER: watch our own node",
		AT_OWNER_REVOCABLE, IN_WATCH_UNKNOWN, RECIPE_OWNER, "watch(own)", 0, 0},
	{"OWNER: revocation watch ok, a revocation -> OWNER: set; revoked",
		AT_OWNER_REVOCABLE, IN_WATCH_REVOKED, RECIPE_OWNER, "set",
	RECIPE_REPORT_REVOKED, 0},
	{"OWNER: revocation watch no node -> OWNER: stat",
		AT_OWNER_REVOCABLE, IN_WATCH_NO_NODE, RECIPE_OWNER, "stat", 0, 0},
	{"OWNER: own node deleted -> OWNER: stat",
		AT_OWNER_REVOCABLE, IN_DELETED, RECIPE_OWNER, "stat", 0, 0},

	{"READING: children ok, one excludes us, asking -> WATCHING: watch",
		AT_READING_ASKING, IN_SECOND, RECIPE_WATCHING, "watch(first)",
	0, 0},
	{"READING: children ok, nobody excludes us, retaining -> stat, list",
		AT_READING_RETAINING, IN_ALONE, RECIPE_OWNER, "stat list",
	RECIPE_REPORT_GRANTED, 0},

	{"WATCHING: watch ok, an orphan of our session -> WATCHING: delete it",
		AT_WATCHING, IN_WATCH_ORPHAN, RECIPE_WATCHING, "orphan(first)", 0, 0},
	{"WATCHING: watch ok, an orphan, another is ahead -> WATCHING: delete it",
		AT_WATCHING_OF_TWO, IN_WATCH_ORPHAN, RECIPE_WATCHING, "orphan(second)",
	0, 0},
	{"WATCHING: watch ok, an orphan, asking -> WATCHING: delete it, queued",
		AT_WATCHING_ASKING, IN_WATCH_ORPHAN, RECIPE_WATCHING,
	"orphan(first)", RECIPE_REPORT_QUEUED, 0},
	{"WATCHING: watch ok, asking, the owner needs it -> queued",
		AT_WATCHING_ASKING, IN_WATCH_OK, RECIPE_WATCHING, "",
	RECIPE_REPORT_QUEUED, 0},
	{"WATCHING: watch ok, asking, a revocation -> queued",
		AT_WATCHING_ASKING, IN_WATCH_REVOKED, RECIPE_WATCHING, "",
	RECIPE_REPORT_QUEUED, 0},
	{"WATCHING: watch ok, asking, the owner may not need it -> retained",
		AT_WATCHING_ASKING, IN_WATCH_RETAINED, RECIPE_WATCHING, "",
	RECIPE_REPORT_RETAINED, 0},
	{"WATCHING: watch ok, retained ahead, the owner needs it now -> queued",
		AT_WATCHING_RETAINED, IN_WATCH_OK, RECIPE_WATCHING, "",
	RECIPE_REPORT_QUEUED, 0},
	{"WATCHING: watch used up otherwise, retained ahead -> WATCHING: watch",
		AT_WATCHING_RETAINED, IN_TOUCHED, RECIPE_WATCHING, "watch(first)",
	0, 0},
	{"WATCHING: predecessor deleted, retained ahead -> OWNER: stat",
		AT_WATCHING_RETAINED, IN_DELETED, RECIPE_OWNER, "stat",
	RECIPE_REPORT_GRANTED, 0},

	{"OWNER: watch the queue -> OWNER: list",
		AT_OWNER, IN_WATCH_QUEUE, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: list ok, our node only -> OWNER: alone",
		AT_OWNER_LISTING_QUEUE, IN_ALONE, RECIPE_OWNER, "",
	RECIPE_REPORT_ALONE, 0},
	{"OWNER: list ok, one later than ours -> OWNER: contended",
		AT_OWNER_LISTING_QUEUE, IN_SECOND, RECIPE_OWNER, "",
	RECIPE_REPORT_CONTENDED, 0},
	{"OWNER: list ok, only earlier ones -> OWNER: alone",
		AT_OWNER_LISTING_QUEUE, IN_THIRD, RECIPE_OWNER, "",
	RECIPE_REPORT_ALONE, 0},
	{"OWNER: list ok, without our node -> OWNER: alone",
		AT_OWNER_LISTING_QUEUE, IN_MISSING, RECIPE_OWNER, "",
	RECIPE_REPORT_ALONE, 0},
	{"OWNER: list ok, none -> OWNER: alone",
		AT_OWNER_LISTING_QUEUE, IN_EMPTY, RECIPE_OWNER, "",
	RECIPE_REPORT_ALONE, 0},
	{"OWNER: list ok, with those of a semaphore -> OWNER: alone",
		AT_OWNER_LISTING_QUEUE, IN_MIXED, RECIPE_OWNER, "",
	RECIPE_REPORT_ALONE, 0},
	{"OWNER: list ok, those of a semaphore only -> OWNER: alone",
		AT_OWNER_LISTING_QUEUE, IN_MIXED_MISSING, RECIPE_OWNER, "",
	RECIPE_REPORT_ALONE, 0},
	{"OWNER: list unknown -> OWNER: list",
		AT_OWNER_LISTING_QUEUE, IN_CHILDREN_UNKNOWN, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: list no node -> OWNER: contended",
		AT_OWNER_LISTING_QUEUE, IN_CHILDREN_NO_NODE, RECIPE_OWNER, "",
	RECIPE_REPORT_CONTENDED, 0},
	{"OWNER: list refused -> OWNER: contended",
		AT_OWNER_LISTING_QUEUE, IN_CHILDREN_REFUSED, RECIPE_OWNER, "",
	RECIPE_REPORT_CONTENDED, 0},
	/* of a watch before; it is one and the same for the server */
	{"OWNER: watch of the list used up ahead of the answer -> OWNER: list",
		AT_OWNER_LISTING_QUEUE, IN_TOUCHED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: watch of the list used up -> OWNER: list",
		AT_OWNER_ALONE, IN_TOUCHED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: that, retaining, ahead of the answer -> OWNER: list",
		AT_OWNER_RETAINING, IN_TOUCHED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: that, retaining, alone -> OWNER: children, contended",
		AT_OWNER_RETAINING_ALONE, IN_TOUCHED, RECIPE_OWNER, "children",
	RECIPE_REPORT_CONTENDED, 0},
	{"OWNER: that, retaining, alone, directory deleted -> OWNER: children, contended",
		AT_OWNER_RETAINING_ALONE, IN_DELETED, RECIPE_OWNER, "children",
	RECIPE_REPORT_CONTENDED, 0},
	{"OWNER: watch of the list used up, directory deleted -> OWNER: list",
		AT_OWNER_LISTING_QUEUE, IN_DELETED, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: look, the list is out -> OWNER: list",
		AT_OWNER_LISTING_QUEUE, IN_LOOK, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: look, retaining, alone -> OWNER: list",
		AT_OWNER_RETAINING_ALONE, IN_LOOK, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: watch the queue again -> OWNER: list",
		AT_OWNER_ALONE, IN_WATCH_QUEUE, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: watch the queue again, contended -> OWNER: list",
		AT_OWNER_CONTENDED, IN_WATCH_QUEUE, RECIPE_OWNER, "list", 0, 0},
	{"OWNER: set in use, the list is out -> OWNER: set",
		AT_OWNER_RETAINING, IN_SET_IN_USE, RECIPE_OWNER, "set", 0, 0},
	{"OWNER: set in use, alone -> OWNER: set",
		AT_OWNER_RETAINING_ALONE, IN_SET_IN_USE, RECIPE_OWNER, "set", 0, 0},
	{"OWNER: set in use, contended -> OWNER: set",
		AT_OWNER_RETAINING_CONTENDED, IN_SET_IN_USE, RECIPE_OWNER, "set", 0, 0},
	{"OWNER: release, retaining, the list is out -> LEAVING: delete",
		AT_OWNER_RETAINING, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"OWNER: release, retaining, contended -> LEAVING: delete",
		AT_OWNER_RETAINING_CONTENDED, IN_RELEASE, RECIPE_LEAVING, "delete",
	0, 0},
	{"OWNER: release, set in use -> LEAVING: delete",
		AT_OWNER_SET_IN_USE, IN_RELEASE, RECIPE_LEAVING, "delete", 0, 0},
	{"OWNER: set unknown, set in use -> OWNER: set",
		AT_OWNER_SET_IN_USE, IN_SET_UNKNOWN, RECIPE_OWNER, "set", 0, 0},

	{"LEAVING: delete ok -> NONE: gone",
		AT_LEAVING, IN_DELETE_OK, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"LEAVING: delete no node -> NONE: gone",
		AT_LEAVING, IN_DELETE_NO_NODE, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"LEAVING: delete unknown -> LEAVING: delete",
		AT_LEAVING, IN_DELETE_UNKNOWN, RECIPE_LEAVING, "delete", 0, 0},
	{"LEAVING: delete refused -> LEAVING: left behind",
		AT_LEAVING, IN_DELETE_REFUSED, RECIPE_LEAVING, "",
	RECIPE_REPORT_LEFT, ERROR_REFUSED},
	{"LEAVING: expired -> NONE: gone",
		AT_LEAVING, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},

	{"LEAVING: retry, after a refusal -> LEAVING: delete",
		AT_LEAVING_REFUSED, IN_RETRY, RECIPE_LEAVING, "delete", 0, 0},
	{"LEAVING: expired, after a refusal -> NONE: gone",
		AT_LEAVING_REFUSED, IN_EXPIRED, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	/* no delete is out then, but an answer would be taken for what it says */
	{"LEAVING: delete ok, after a refusal -> NONE: gone",
		AT_LEAVING_REFUSED, IN_DELETE_OK, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"LEAVING: delete no node, after a refusal -> NONE: gone",
		AT_LEAVING_REFUSED, IN_DELETE_NO_NODE, RECIPE_NONE, "",
	RECIPE_REPORT_GONE, 0},
	{"LEAVING: delete unknown, after a refusal -> LEAVING: delete",
		AT_LEAVING_REFUSED, IN_DELETE_UNKNOWN, RECIPE_LEAVING, "delete",
	0, 0},
	{"LEAVING: delete refused, after a refusal -> LEAVING: left behind",
		AT_LEAVING_REFUSED, IN_DELETE_REFUSED, RECIPE_LEAVING, "",
	RECIPE_REPORT_LEFT, ERROR_REFUSED},

	{"SEARCHING: children ok, one without order -> OWNER: stat",
		AT_SEARCHING, IN_UNORDERED, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"SEARCHING: children ok, one without order, mkdirs failed -> OWNER: stat",
		AT_SEARCHING_IN_VAIN, IN_UNORDERED, RECIPE_OWNER, "stat",
	RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED, 0},
	{"ABANDONING: children ok, one without order -> LEAVING: delete",
		AT_ABANDONING, IN_UNORDERED, RECIPE_LEAVING, "delete",
	RECIPE_REPORT_CREATED, 0},
	{"READING: children ok, one without order -> OWNER: stat",
		AT_READING, IN_UNORDERED, RECIPE_OWNER, "stat",
	RECIPE_REPORT_GRANTED, 0},
	{"OWNER: list ok, one without order -> OWNER: contended",
		AT_OWNER_LISTING_QUEUE, IN_UNORDERED, RECIPE_OWNER, "",
	RECIPE_REPORT_CONTENDED, 0},

	{"WATCHING: watch ok, not ephemeral -> OWNER: unwatch, stat",
		AT_WATCHING, IN_WATCH_PERSISTENT, RECIPE_OWNER,
	"unwatch(first) stat", RECIPE_REPORT_GRANTED | RECIPE_REPORT_STRANGER, 0},
	{"WATCHING: watch ok, a container -> OWNER: unwatch, stat",
		AT_WATCHING, IN_WATCH_CONTAINER, RECIPE_OWNER,
	"unwatch(first) stat", RECIPE_REPORT_GRANTED | RECIPE_REPORT_STRANGER, 0},
	{"WATCHING: watch ok, not ephemeral, of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_WATCH_PERSISTENT, RECIPE_READING,
	"unwatch(second) children", RECIPE_REPORT_STRANGER, 0},
	{"WATCHING: watch ok, a container, of two -> READING: children",
		AT_WATCHING_OF_TWO, IN_WATCH_CONTAINER, RECIPE_READING,
	"unwatch(second) children", RECIPE_REPORT_STRANGER, 0},

	{"READING: children ok, late, nobody excludes us -> LATE: delete, rmdir",
		AT_READING_LATE, IN_ALONE, RECIPE_LATE, "delete rmdir", 0, 0},
	{"READING: children ok, late, one without order -> LATE: delete, rmdir",
		AT_READING_LATE, IN_UNORDERED, RECIPE_LATE, "delete rmdir", 0, 0},
	{"READING: children ok, late, two do -> WATCHING: watch; late",
		AT_READING_LATE, IN_SECOND, RECIPE_WATCHING, "watch(later)",
	RECIPE_REPORT_QUEUED | RECIPE_REPORT_LATE, 0},
	{"READING: children ok, late, two others do -> WATCHING: watch; late",
		AT_READING_LATE, IN_THIRD, RECIPE_WATCHING, "watch(second)",
	RECIPE_REPORT_QUEUED | RECIPE_REPORT_LATE, 0},
	{"READING: children ok, no order, two do -> LATE: delete, rmdir",
		AT_READING_UNORDERED, IN_SECOND, RECIPE_LATE, "delete rmdir", 0, 0},
	{"READING: children ok, no order, two others do -> LATE: delete, rmdir",
		AT_READING_UNORDERED, IN_THIRD, RECIPE_LATE, "delete rmdir", 0, 0},

	{"LATE: delete ok -> LATE, deleted",
		AT_LATE, IN_DELETE_OK, RECIPE_LATE, "", 0, 0},
	{"LATE: delete no node -> LATE, deleted",
		AT_LATE, IN_DELETE_NO_NODE, RECIPE_LATE, "", 0, 0},
	{"LATE: delete unknown -> LATE: delete, rmdir",
		AT_LATE, IN_DELETE_UNKNOWN, RECIPE_LATE, "delete rmdir", 0, 0},
	{"LATE: release, deleted -> NONE: gone",
		AT_LATE_DELETED, IN_RELEASE, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"LATE: delete refused -> LEAVING: failed, left behind",
		AT_LATE, IN_DELETE_REFUSED, RECIPE_LEAVING, "",
	RECIPE_REPORT_FAILED | RECIPE_REPORT_LEFT, ERROR_REFUSED},
	{"LATE: rmdir ok -> ENTERING: as new; renewed",
		AT_LATE, IN_RMDIR_OK, RECIPE_ENTERING, "mkdir create children",
	RECIPE_REPORT_RENEWED, 0},
	{"LATE: rmdir no node -> ENTERING: as new",
		AT_LATE, IN_RMDIR_NO_NODE, RECIPE_ENTERING, "mkdir create children",
	0, 0},
	{"LATE: rmdir unknown -> LATE: delete, rmdir",
		AT_LATE, IN_RMDIR_UNKNOWN, RECIPE_LATE, "delete rmdir", 0, 0},
	{"LATE: rmdir refused, not empty -> LATE, refused: queued, late",
		AT_LATE, IN_RMDIR_NOT_EMPTY, RECIPE_LATE, "",
	RECIPE_REPORT_QUEUED | RECIPE_REPORT_LATE, 0},
	{"LATE: rmdir refused -> NONE: failed",
		AT_LATE, IN_RMDIR_REFUSED, RECIPE_NONE, "", REPORT_FAILED,
	ERROR_REFUSED},
	{"LATE: release -> LEAVING",
		AT_LATE, IN_RELEASE, RECIPE_LEAVING, "", 0, 0},
	{"LATE: expired -> NONE: gone",
		AT_LATE, IN_EXPIRED, RECIPE_NONE, "", RECIPE_REPORT_GONE, 0},
	{"LATE: rmdir refused, not empty, for the second time -> LATE: queued",
		AT_LATE_AGAIN, IN_RMDIR_NOT_EMPTY, RECIPE_LATE, "",
	RECIPE_REPORT_QUEUED, 0},
	{"LATE: rmdir refused, not empty, no order -> NONE: failed, ended",
		AT_LATE_UNORDERED, IN_RMDIR_NOT_EMPTY, RECIPE_NONE, "",
	REPORT_FAILED | RECIPE_REPORT_LATE, 0},
	{"LATE: retry, refused -> ENTERING: as new",
		AT_LATE_ASIDE, IN_RETRY, RECIPE_ENTERING, "create children", 0, 0},
	{"LATE: rmdir refused, not empty, again -> LATE: queued",
		AT_LATE_ASIDE, IN_RMDIR_NOT_EMPTY, RECIPE_LATE, "",
	RECIPE_REPORT_QUEUED, 0},
	{"READING: children ok, one without order, retaining -> OWNER: stat, list",
		AT_READING_RETAINING, IN_UNORDERED, RECIPE_OWNER, "stat list",
	RECIPE_REPORT_GRANTED, 0}
};

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
		const Request *op = &out->ops[i];
		const char *node = op->node;

		switch (op->kind)
		{
			case REQUEST_MKDIR:
			case REQUEST_MKDIRS:
			case REQUEST_CHILDREN:
			case REQUEST_SEARCH:
			case REQUEST_LIST:
			case REQUEST_RMDIR:
				assert_null(node);
				break;
			case REQUEST_CREATE:
				if (strcmp(node, OUR_PREFIX) == 0 ||
					strcmp(node, READER_PREFIX) == 0)
					node = NULL;
				break;
			case REQUEST_SYNC:
			case REQUEST_CHECK:
			case REQUEST_SET_ACL:
			case REQUEST_GET_ACL:
			case REQUEST_GET:
				fail_msg("%s is not for a recipe to send", model_op_name(op->kind));
				break;
			case REQUEST_SET:
			case REQUEST_STAT:
			case REQUEST_DELETE:
			case REQUEST_REQUEUE:
				if (strcmp(node, OURS) == 0 || strcmp(node, OUR_READER) == 0)
					node = NULL;
				else if (strcmp(node, OUR_FIRST) == 0)
					node = "0";
				else if (strcmp(node, ORPHAN(6)) == 0)
					node = "6";
				else if (strcmp(node, ORPHAN(7)) == 0)
					node = "7";
				else if (strcmp(node, FIRST) == 0 && op->kind == REQUEST_STAT)
					node = "first";
				else if (strcmp(node, SECOND) == 0 && op->kind == REQUEST_STAT)
					node = "second";
				break;
			case REQUEST_WATCH:
			case REQUEST_UNWATCH:
			case REQUEST_DELETE_ORPHAN:
				if (strcmp(node, OURS) == 0 && op->kind == REQUEST_WATCH)
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
						 i > 0 ? " " : "", model_op_name(op->kind), node);
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
		RequestKind kind = out->ops[i].kind;

		if (kind == REQUEST_CHILDREN || kind == REQUEST_SEARCH ||
			kind == REQUEST_WATCH || kind == REQUEST_LIST ||
			kind == REQUEST_RMDIR)
		{
			assert_int_not_equal(recipe->serial, before);
			assert_int_equal(out->ops[i].serial, recipe->serial);
		}
	}
}

static void
give(Recipe *recipe, Input input, RecipeOutput *out)
{
	RequestAnswer in;
	uint32_t	before = recipe->serial;

	if (input == IN_WANT || input == IN_WANT_NEW_DIR ||
		input == IN_WANT_UNREAD)
		recipe_want(recipe, our_uuid, recipe->kind,
					input != IN_WANT_NEW_DIR, input == IN_WANT_UNREAD, out);
	else
	{
		memset(&in, 0, sizeof(in));
		in.event = inputs[input].watch;
		in.kind = inputs[input].kind;
		in.result = inputs[input].result;
		if (in.result == REQUEST_NO_NODE)
			in.error = ERROR_NO_NODE;
		else if (in.result == REQUEST_REFUSED)
			in.error = ERROR_REFUSED;
		in.serial = inputs[input].stale ?
			recipe->serial - 1 : recipe->serial;
		if (inputs[input].own)
			in.serial = 0;
		else if (in.serial == 0)
			in.serial--;	/* 0 stands for none */
		in.node = inputs[input].node;
		recipe->next = inputs[input].next;
		in.children = inputs[input].children;
		while (in.nchildren < (int) lengthof(inputs[input].children) &&
			   in.children[in.nchildren] != NULL)
			in.nchildren++;
		in.data = inputs[input].data;
		in.data_len = in.data ?
			(int) strlen(in.data) : -1;
		in.czxid = inputs[input].other ? TOKEN + 1 : TOKEN;
		in.not_empty = inputs[input].not_empty;
		in.ephemeral_owner = inputs[input].container ? INT64_MIN :
			inputs[input].persistent ? 0 : 1;
		in.ours = inputs[input].ours;
		recipe->orphan = inputs[input].orphan;
		recipe_step(recipe, inputs[input].event, &in, out);
	}
	check_serials(recipe, before, out);
}

/* MKDIRS fails with an error of its own, to tell it from the create's. */
static void
give_mkdirs_refused(Recipe *recipe, RecipeOutput *out)
{
	RequestAnswer in = {
		.kind = REQUEST_MKDIR,
		.result = REQUEST_REFUSED,
		.error = ERROR_MKDIRS
	};

	recipe_step(recipe, RECIPE_ANSWER, &in, out);
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
		[AT_ENTERING_UNREAD] = {IN_WANT_UNREAD},
		[AT_CANCELING] = {IN_WANT, IN_RELEASE},
		[AT_REQUEUEING] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_REQUEUE},
		[AT_CANCELING_REQUEUED] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_REQUEUE, IN_RELEASE},
		[AT_SEARCHING_REQUEUED] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_REQUEUE, IN_REQUEUE_UNKNOWN},
		[AT_ABANDONING_REQUEUED] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_REQUEUE, IN_REQUEUE_UNKNOWN, IN_RELEASE},
		[AT_SEARCHING] = {IN_WANT, IN_CREATE_UNKNOWN},
		[AT_SEARCHING_IN_VAIN] = {IN_WANT, IN_CREATE_NO_NODE},
		[AT_ABANDONING] = {IN_WANT, IN_CREATE_UNKNOWN, IN_RELEASE},
		[AT_READING] = {IN_WANT, IN_CREATE_OK},
		[AT_WATCHING] = {IN_WANT, IN_CREATE_OK, IN_SECOND},
		[AT_WATCHING_OF_TWO] = {IN_WANT, IN_CREATE_OK, IN_THIRD},
		[AT_OWNER] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_OWNER_REVOCABLE] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_WATCH_REVOCATION},
		[AT_OWNER_NO_TOKEN] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_STAT_REFUSED},
		[AT_READING_ASKING] = {IN_WANT, IN_CREATE_OK},
		[AT_READING_RETAINING] = {IN_WANT, IN_CREATE_OK},
		[AT_WATCHING_ASKING] = {IN_WANT, IN_CREATE_OK, IN_SECOND},
		[AT_WATCHING_RETAINED] = {IN_WANT, IN_CREATE_OK, IN_SECOND,
		IN_WATCH_RETAINED},
		[AT_WATCHING_IN_USE] = {IN_WANT, IN_CREATE_OK, IN_SECOND,
		IN_WATCH_OK},
		[AT_OWNER_LISTING_QUEUE] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_WATCH_QUEUE},
		[AT_OWNER_ALONE] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_WATCH_QUEUE,
		IN_ALONE},
		[AT_OWNER_CONTENDED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_WATCH_QUEUE,
		IN_SECOND},
		[AT_OWNER_RETAINING] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_OWNER_RETAINING_ALONE] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_ALONE},
		[AT_OWNER_RETAINING_CONTENDED] = {IN_WANT, IN_CREATE_OK, IN_ALONE,
		IN_SECOND},
		[AT_OWNER_SET_IN_USE] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_SECOND,
		IN_SET_IN_USE},
		[AT_LEAVING] = {IN_WANT, IN_CREATE_OK, IN_RELEASE},
		[AT_LEAVING_REFUSED] = {IN_WANT, IN_CREATE_OK, IN_RELEASE,
		IN_DELETE_REFUSED},
		[AT_READING_LATE] = {IN_WANT, IN_CREATE_OK},
		[AT_READING_UNORDERED] = {IN_WANT, IN_CREATE_OK},
		[AT_LATE] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_LATE_DELETED] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_DELETE_OK},
		[AT_LATE_AGAIN] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_DELETE_OK,
		IN_RMDIR_NOT_EMPTY, IN_RETRY, IN_CREATE_OK, IN_ALONE},
		[AT_LATE_UNORDERED] = {IN_WANT, IN_CREATE_OK, IN_ALONE},
		[AT_LATE_ASIDE] = {IN_WANT, IN_CREATE_OK, IN_ALONE, IN_DELETE_OK,
		IN_RMDIR_NOT_EMPTY}
	};
	RecipeOutput out;

	memset(recipe, 0, sizeof(*recipe));
	recipe->asks_retained = situation == AT_READING_ASKING ||
		situation == AT_WATCHING_ASKING ||
		situation == AT_WATCHING_RETAINED || situation == AT_WATCHING_IN_USE;
	recipe->retain = situation == AT_READING_RETAINING ||
		situation == AT_OWNER_RETAINING ||
		situation == AT_OWNER_RETAINING_ALONE ||
		situation == AT_OWNER_RETAINING_CONTENDED ||
		situation == AT_OWNER_SET_IN_USE;
	if (situation == AT_NONE)
		return;
	for (size_t i = 0; i < lengthof(ways[0]); i++)
	{
		if (i == 0 || ways[situation][i] != IN_WANT)
			give(recipe, ways[situation][i], &out);
		if (situation >= AT_READING_LATE && ways[situation][i] == IN_CREATE_OK)
			recipe->sequence = situation == AT_LATE_UNORDERED ||
				situation == AT_READING_UNORDERED ?
				INT32_MAX : ZNODE_LATE_SEQUENCE;
	}
	if (situation == AT_ENTERING_IN_VAIN || situation == AT_SEARCHING_IN_VAIN)
		give_mkdirs_refused(recipe, &out);
	if (situation == AT_SEARCHING_IN_VAIN)
		give(recipe, IN_CREATE_UNKNOWN, &out);
	assert_int_equal(recipe->state, situation_state[situation]);
	if (recipe->state == RECIPE_LEAVING)
		assert_int_equal(recipe->refused, situation == AT_LEAVING_REFUSED);
	assert_int_equal(recipe_is_leaving(recipe),
					 situation == AT_CANCELING || situation == AT_ABANDONING ||
					 situation == AT_CANCELING_REQUEUED ||
					 situation == AT_ABANDONING_REQUEUED ||
					 situation == AT_LEAVING ||
					 situation == AT_LEAVING_REFUSED);
	if (recipe->state == RECIPE_WATCHING)
		assert_int_equal(recipe->retained_ahead,
						 situation == AT_WATCHING_ASKING ||
						 situation == AT_WATCHING_RETAINED);
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
	assert_int_equal(out.report, line->report);
	assert_int_equal(out.error, line->error);
	if (out.report & RECIPE_REPORT_CREATED)
		assert_string_equal(recipe.node, line->input == IN_CREATE_FIRST ?
							OUR_FIRST : line->input == IN_REQUEUE_NEXT ? ORPHAN(6) :
							line->input == IN_REQUEUE_BEHIND ? ORPHAN(7) :
							OURS);
	if (out.report & RECIPE_REPORT_TOKEN)
		assert_true(recipe.token == TOKEN);
	if ((out.report & RECIPE_REPORT_QUEUED) && recipe.state != RECIPE_LATE)
		assert_int_equal(recipe.blockers, line->input == IN_THIRD ||
						 at == AT_READING_LATE ? 2 : 1);
	if (out.report & RECIPE_REPORT_GRANTED)
		assert_int_equal(recipe.blockers, 0);
	/* a delete that is to be retried is one that was refused last */
	if (recipe.state == RECIPE_LEAVING)
		assert_int_equal(recipe.refused, (out.report & RECIPE_REPORT_LEFT) != 0);
	/* kept only while we have a node, so that nothing is left to free */
	if (recipe.state == RECIPE_LEAVING &&
		situation_state[at] == RECIPE_WATCHING)
		assert_ptr_equal(recipe.predecessor, out.ops[0].node);
	else if (recipe.state != RECIPE_WATCHING &&
			 recipe.state != RECIPE_READING &&
			 recipe.state != RECIPE_OWNER && recipe.state != RECIPE_LATE &&
			 !(out.report & RECIPE_REPORT_MIXED))
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
	assert_true(lines >= 30);
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

			/* these are ours to set */
			recipe.next = before.next;
			recipe.orphan = before.orphan;
			if (memcmp(&recipe, &before, sizeof(recipe)) != 0 ||
				out.nops != 0 || out.report != 0)
				fail_msg("situation %d (%s), input %d: now %s, \"%s\", %#x",
						 at, recipe_state_name(before.state), input,
						 recipe_state_name(recipe.state), describe_ops(&out),
						 out.report);
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
		{AT_CANCELING, IN_CREATE_REFUSED},
		{AT_SEARCHING, IN_CHILDREN_REFUSED},
		{AT_ABANDONING, IN_EMPTY}, {AT_OWNER, IN_STAT_NO_NODE},
		{AT_WATCHING, IN_EXPIRED}, {AT_LEAVING, IN_DELETE_OK},
		{AT_OWNER_REVOCABLE, IN_EXPIRED},
		{AT_OWNER_RETAINING, IN_EXPIRED}, {AT_OWNER_ALONE, IN_EXPIRED},
		{AT_OWNER_RETAINING_CONTENDED, IN_STAT_NO_NODE},
		{AT_WATCHING_RETAINED, IN_EXPIRED},
		{AT_LEAVING_REFUSED, IN_DELETE_OK},
		{AT_LEAVING_REFUSED, IN_EXPIRED},
		{AT_LATE, IN_EXPIRED}, {AT_LATE_ASIDE, IN_EXPIRED}
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
			assert_int_equal(out.report, 0);

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
give_children_of(Recipe *recipe, uint32_t serial, const char *const *children,
				 int nchildren, RecipeOutput *out)
{
	RequestAnswer in = {
		.kind = REQUEST_CHILDREN,
		.result = REQUEST_OK,
		.serial = serial,
		.children = children,
		.nchildren = nchildren
	};
	uint32_t	before = recipe->serial;

	recipe_step(recipe, RECIPE_ANSWER, &in, out);
	check_serials(recipe, before, out);
}

static void
give_children(Recipe *recipe, const char *const *children, int nchildren,
			  RecipeOutput *out)
{
	give_children_of(recipe, recipe->serial, children, nchildren, out);
}

/* A contender of ours with this number, its children on their way. */
static void
bring_to_reading(Recipe *recipe, bool shared, int32_t sequence)
{
	RecipeOutput out;
	char		node[ZNODE_CONTENDER_SIZE];
	RequestAnswer in = {
		.kind = REQUEST_CREATE,
		.result = REQUEST_OK,
		.node = node
	};

	memset(recipe, 0, sizeof(*recipe));
	recipe_want(recipe, our_uuid, KIND(shared), true, false,
				&out);
	assert_string_equal(out.ops[0].node, shared ? READER_PREFIX : OUR_PREFIX);
	znode_contender_name(our_uuid, KIND(shared), sequence, node);
	recipe_step(recipe, RECIPE_ANSWER, &in, &out);
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
		/* the counter's end: the late, and those without order, are behind */
		{false, 1999999999, {W(0000000000), W(2000000000)}, 1,
		W(0000000000)},
		{false, 5, {W(2000000000), R(2147483646)}, 0, NULL},
		{true, 1999999999, {R(0000000001), W(2000000000)}, 0, NULL},
		{false, 5, {W(2147483647), W(-2147483648), R(-1000000001)}, 0, NULL}
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
				assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
				assert_int_equal(out.ops[0].kind, REQUEST_STAT);
			}
			else
			{
				assert_int_equal(recipe.state, RECIPE_WATCHING);
				assert_int_equal(out.report, sure ? RECIPE_REPORT_QUEUED : 0);
				assert_int_equal(out.ops[0].kind, REQUEST_WATCH);
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
 * writer, reads again, waits for the first, and is granted though the readers
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
	assert_int_equal(out.report, 0);
	give_children(&recipe, without_last, lengthof(without_last), &out);
	assert_string_equal(out.ops[0].node, W(0000000001));
	assert_int_equal(recipe.blockers, 1);

	give(&recipe, IN_DELETED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
	assert_string_equal(describe_ops(&out), "stat");
	recipe_free(&recipe);
}

/*
 * Children named like contenders that are not ephemeral: each is looked at
 * once, from the last to the first, and told; who is behind them is queued
 * only once a contender has been found.
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
	RequestAnswer in = {.kind = REQUEST_WATCH, .data_len = -1};
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
		assert_int_equal(out.report, 0);
		assert_string_equal(out.ops[0].node, order[i]);
		in.serial = recipe.serial;
		in.ephemeral_owner = i % 2 ? INT64_MIN : 0;
		recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
		assert_int_equal(out.report, RECIPE_REPORT_STRANGER);
		assert_string_equal(out.stranger, order[i]);
		assert_int_equal(out.nops, 2);
		assert_int_equal(out.ops[0].kind, REQUEST_UNWATCH);
		assert_string_equal(out.ops[0].node, order[i]);
		assert_int_equal(out.ops[1].kind, REQUEST_CHILDREN);
		give_children(&recipe, children, lengthof(children), &out);
	}

	/* this one is a contender */
	assert_string_equal(out.ops[0].node, "x-1-0000000002");
	in.serial = recipe.serial;
	in.ephemeral_owner = 1;
	recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
	assert_int_equal(out.report, RECIPE_REPORT_QUEUED);
	assert_int_equal(out.nops, 0);
	recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
	assert_int_equal(out.report, 0);
	give(&recipe, IN_DELETED, &out);
	children[2] = own;
	give_children(&recipe, children, lengthof(children) - 1, &out);
	assert_string_equal(out.ops[0].node, "order-0000000001");
	give(&recipe, IN_WATCH_CONTAINER, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED | RECIPE_REPORT_STRANGER);

	/* they are not behind us either; another contender begins anew */
	give(&recipe, IN_WATCH_QUEUE, &out);
	give_children(&recipe, children, lengthof(children) - 1, &out);
	assert_int_equal(out.report, RECIPE_REPORT_ALONE);
	recipe_free(&recipe);
}

/* An answer that was overtaken by a new watch is not mistaken for its own. */
static void
test_overtaken_watch(void **state)
{
	Recipe		recipe;
	RecipeOutput out;
	RequestAnswer in = {.event = REQUEST_NODE_DELETED};

	(void) state;
	bring_to(&recipe, AT_WATCHING);
	in.serial = recipe.serial;
	give(&recipe, IN_TOUCHED, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);

	recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(out.nops, 0);

	in.serial = recipe.serial;
	recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
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
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
	give(&recipe, IN_STAT_NO_NODE, &out);
	assert_int_equal(out.report, REPORT_LOST);

	/* one of two: the second read finds it out, and we queue again */
	bring_to(&recipe, AT_WATCHING_OF_TWO);
	give(&recipe, IN_DELETED, &out);
	give(&recipe, IN_MISSING, &out);
	assert_string_equal(describe_ops(&out), "create children");
	assert_string_equal(recipe.node, OUR_PREFIX);
	recipe_free(&recipe);
}

/*
 * No token, but the lock is ours: the token is asked for again by a retry, as
 * often as it is refused, and the lock can be released as ever.
 */
static void
test_stat_refused_keeps_lock(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_OWNER);
	for (int i = 0; i < 3; i++)
	{
		give(&recipe, IN_RETRY, &out);
		assert_int_equal(out.nops, 0);
		give(&recipe, IN_STAT_REFUSED, &out);
		assert_int_equal(recipe.state, RECIPE_OWNER);
		assert_int_equal(out.report, RECIPE_REPORT_NO_TOKEN);
		give(&recipe, IN_RETRY, &out);
		assert_string_equal(describe_ops(&out), "stat");
	}

	/* what is known stays known */
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.report, RECIPE_REPORT_TOKEN);
	give(&recipe, IN_STAT_REFUSED, &out);
	assert_int_equal(out.report, 0);
	give(&recipe, IN_RETRY, &out);
	assert_int_equal(out.nops, 0);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	give(&recipe, IN_DELETE_OK, &out);

	/* that of the next contender is another one, and has not been refused */
	bring_to(&recipe, AT_OWNER_NO_TOKEN);
	give(&recipe, IN_REQUEUE, &out);
	give(&recipe, IN_REQUEUE_NEXT, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	give(&recipe, IN_RETRY, &out);
	assert_int_equal(out.nops, 0);
	give(&recipe, IN_STAT_REFUSED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_NO_TOKEN);
	recipe_free(&recipe);
}

/* A create's answer, and then a list of children without a token. */
static void
give_created(Recipe *recipe, int64_t token, uint32_t batch, RecipeOutput *out)
{
	RequestAnswer in = {
		.kind = REQUEST_CREATE,
		.node = OURS,
		.token = token,
		.batch = batch
	};

	recipe_step(recipe, RECIPE_ANSWER, &in, out);
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
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED | RECIPE_REPORT_TOKEN);
	assert_int_equal(recipe.token, 77);
	assert_string_equal(describe_ops(&out), "");

	/* what is stat'ed later, because the watch misses it, is our own node */
	give(&recipe, IN_WATCH_REVOCATION, &out);
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
		assert_int_equal(out.report, RECIPE_REPORT_QUEUED);
		give(&recipe, IN_DELETED, &out);
		assert_int_equal(out.report, RECIPE_REPORT_GRANTED | RECIPE_REPORT_TOKEN);
		assert_int_equal(recipe.token, 77);
		assert_string_equal(describe_ops(&out), "stat");
		assert_int_equal(out.ops[0].batch, 0);
		give(&recipe, IN_STAT_NO_NODE, &out);
		assert_int_equal(out.report, REPORT_LOST);
		recipe_free(&recipe);
	}

	/* one of two: the second read sees it */
	bring_to(&recipe, AT_ENTERING);
	give_created(&recipe, 77, 0, &out);
	give(&recipe, IN_THIRD, &out);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "children");
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED | RECIPE_REPORT_TOKEN);
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
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
	assert_string_equal(describe_ops(&out), "stat");
	assert_int_equal(out.ops[0].batch, 5);

	/* it was not to be had: by itself then */
	give(&recipe, IN_STAT_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "stat");
	assert_int_equal(out.ops[0].batch, 0);
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.report, RECIPE_REPORT_TOKEN);
	assert_int_equal(recipe.token, TOKEN);
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
		assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
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
		assert_int_equal(out.report, RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED);
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
		assert_int_equal(out.report, 0);
		give(&recipe, IN_DELETE_OK, &out);
		assert_int_equal(out.report, RECIPE_REPORT_GONE);
		assert_null(recipe.predecessor);
	}

	/* one that has been used up, with the next check on its way */
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
		assert_int_equal(out.report, RECIPE_REPORT_LEFT);
		assert_int_equal(out.error, ERROR_REFUSED);
		assert_true(recipe.refused);
		give(&recipe, IN_RETRY, &out);
		assert_string_equal(describe_ops(&out), "delete");
		assert_int_equal(out.report, 0);
		assert_int_equal(out.error, 0);
		assert_false(recipe.refused);
	}

	/* nobody knows what became of it: sent again with no retry */
	give(&recipe, IN_DELETE_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "delete");
	give(&recipe, IN_DELETE_NO_NODE, &out);
	assert_int_equal(recipe.state, RECIPE_NONE);
	assert_int_equal(out.report, RECIPE_REPORT_GONE);

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
	assert_int_equal(out.report, RECIPE_REPORT_GONE);
}

/* The second node of a create that was repeated although it had arrived. */
static void
test_orphan_is_deleted(void **state)
{
	static const char *const before[] = {ORPHAN(2), OURS};
	static const char *const behind[] = {OURS, ORPHAN(8)};
	static const char *const reader[] = {OUR_READER, OURS};
	static const char *const blocked[] = {ORPHAN(4), FIRST, OURS, ORPHAN(9)};
	static const char *const lost[] = {ORPHAN(4), FIRST};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;

	/* it never excludes us */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, before, lengthof(before), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_string_equal(describe_ops(&out), "orphan(" ORPHAN(2) ") stat");

	bring_to(&recipe, AT_READING);
	give_children(&recipe, behind, lengthof(behind), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_string_equal(describe_ops(&out), "orphan(" ORPHAN(8) ") stat");

	/* nor in the other mode */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, reader, lengthof(reader), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_string_equal(describe_ops(&out), "orphan(" OUR_READER ") stat");

	bring_to(&recipe, AT_READING);
	give_children(&recipe, blocked, lengthof(blocked), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(recipe.blockers, 1);
	assert_string_equal(describe_ops(&out),
						"orphan(" ORPHAN(4) ") "
						"orphan(" ORPHAN(9) ") watch(first)");
	recipe_free(&recipe);

	/* our own node is gone, but an orphan is there */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, lost, lengthof(lost), &out);
	assert_int_equal(recipe.state, RECIPE_ENTERING);
	assert_string_equal(describe_ops(&out),
						"orphan(" ORPHAN(4) ") create children");

	/* found by a search: one is ours, the other is the orphan */
	bring_to(&recipe, AT_SEARCHING);
	give_children(&recipe, before, lengthof(before), &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.nops, 2);
	assert_int_equal(out.ops[0].kind, REQUEST_DELETE_ORPHAN);
	assert_int_equal(out.ops[1].kind, REQUEST_STAT);
	assert_string_equal(out.ops[1].node, recipe.node);
	assert_string_not_equal(out.ops[0].node, recipe.node);
	recipe_free(&recipe);
}

/* However many orphans, what the step is about is still sent. */
static void
test_orphans_leave_room(void **state)
{
	static const char *const many[] = {
		ORPHAN(0), ORPHAN(1), ORPHAN(2), ORPHAN(3), ORPHAN(4), OURS, ORPHAN(6),
		ORPHAN(7), ORPHAN(8), ORPHAN(9), FIRST
	};
	static const char *const lost[] = {
		ORPHAN(0), ORPHAN(1), ORPHAN(2), ORPHAN(3), ORPHAN(4), ORPHAN(6), ORPHAN(7),
		ORPHAN(8), ORPHAN(9)
	};
	static const int32_t sequence = 5;
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to(&recipe, AT_READING);
	give_children(&recipe, many, lengthof(many), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_true(out.nops >= 2 && out.nops <= RECIPE_MAX_OPS);
	for (int i = 0; i < out.nops - 1; i++)
		assert_int_equal(out.ops[i].kind, REQUEST_DELETE_ORPHAN);
	assert_int_equal(out.ops[out.nops - 1].kind, REQUEST_WATCH);
	recipe_free(&recipe);

	/* the most that a step can be about: the directory, create, children */
	bring_to(&recipe, AT_ENTERING_MKDIRS);
	give(&recipe, IN_CREATE_OK, &out);
	give_children(&recipe, lost, lengthof(lost), &out);
	assert_int_equal(out.nops, RECIPE_MAX_ORPHANS + 3);
	assert_int_equal(out.ops[out.nops - 3].kind, REQUEST_MKDIRS);
	assert_int_equal(out.ops[out.nops - 2].kind, REQUEST_CREATE);
	assert_int_equal(out.ops[out.nops - 1].kind, REQUEST_CHILDREN);
	recipe_free(&recipe);

	/* and with nothing to spare, those that are seen next time go then */
	memset(&recipe, 0, sizeof(recipe));
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_WANTED,
				  &sequence, &out);
	give_children(&recipe, many, lengthof(many), &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	assert_int_equal(out.ops[out.nops - 1].kind, REQUEST_WATCH);
	recipe_free(&recipe);
}

/* What is no contender is nobody's blocker, and is reported once in a step. */
static void
test_stranger_is_reported(void **state)
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
	assert_int_equal(out.report, RECIPE_REPORT_QUEUED | RECIPE_REPORT_STRANGER);
	assert_true(strcmp(out.stranger, "leaves") == 0 ||
				strcmp(out.stranger, "config") == 0);

	give(&recipe, IN_WATCH_UNKNOWN, &out);
	assert_int_equal(out.report, 0);
	recipe_free(&recipe);

	bring_to(&recipe, AT_READING);
	give_children(&recipe, strangers, 3, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED | RECIPE_REPORT_STRANGER);

	bring_to(&recipe, AT_READING);
	give_children(&recipe, only_ours, 1, &out);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);

	/* under our UUID, but not what a sequential create makes */
	bring_to(&recipe, AT_READING);
	give_children(&recipe, odd_own, lengthof(odd_own), &out);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED | RECIPE_REPORT_STRANGER);
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
	assert_int_equal(out.report, RECIPE_REPORT_CREATED);
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
	assert_int_equal(out.report, 0);

	give_mkdirs_refused(&recipe, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_int_equal(out.report, REPORT_FAILED);
	assert_int_equal(out.error, ERROR_MKDIRS);

	/* but a parent may be collected when it has just been made */
	bring_to(&recipe, AT_ENTERING_MKDIR);
	for (int i = 0; i < 3; i++)
	{
		give(&recipe, IN_MKDIR_NO_NODE, &out);
		give(&recipe, IN_CREATE_NO_NODE, &out);
		assert_string_equal(describe_ops(&out), "mkdirs create children");
		assert_int_equal(out.report, 0);
	}
	give(&recipe, IN_MKDIR_OK, &out);
	give(&recipe, IN_CREATE_OK, &out);
	assert_int_equal(out.report, RECIPE_REPORT_CREATED);
	recipe_free(&recipe);

	/* a chroot that is not there: not even the topmost parent can be made */
	bring_to(&recipe, AT_ENTERING_MKDIR);
	give(&recipe, IN_MKDIR_NO_NODE, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	give_mkdirs_refused(&recipe, &out);
	give(&recipe, IN_CREATE_NO_NODE, &out);
	assert_int_equal(out.report, REPORT_FAILED);

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
		RequestKind op;
	}			cases[] =
	{
		{RECIPE_RESUME_WANTED, false, false, RECIPE_SEARCHING,
		REQUEST_SEARCH},
		{RECIPE_RESUME_OWNED, false, false, RECIPE_SEARCHING,
		REQUEST_SEARCH},
		{RECIPE_RESUME_RELEASING, false, false, RECIPE_ABANDONING,
		REQUEST_SEARCH},
		{RECIPE_RESUME_WANTED, true, true, RECIPE_READING,
		REQUEST_CHILDREN},
		{RECIPE_RESUME_OWNED, true, false, RECIPE_OWNER, REQUEST_STAT},
		{RECIPE_RESUME_OWNED, true, true, RECIPE_OWNER, REQUEST_STAT},
		{RECIPE_RESUME_RELEASING, true, true, RECIPE_LEAVING,
		REQUEST_DELETE}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		Recipe		recipe;
		RecipeOutput out;

		memset(&recipe, 0, sizeof(recipe));
		memset(&out, 0xFF, sizeof(out));
		recipe_resume(&recipe, our_uuid, KIND(cases[i].shared),
					  cases[i].how, cases[i].created ? &our_sequence : NULL,
					  &out);
		assert_int_equal(recipe.state, cases[i].state);
		assert_int_equal(out.nops, 1);
		assert_int_equal(out.ops[0].kind, cases[i].op);
		assert_int_equal(out.report,
						 cases[i].created ? RECIPE_REPORT_CREATED : 0);
		check_serials(&recipe, 0, &out);
		if (cases[i].created)
			assert_string_equal(recipe.node,
								cases[i].shared ? OUR_READER : OURS);
		if (out.ops[0].kind == REQUEST_STAT ||
			out.ops[0].kind == REQUEST_DELETE)
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
	memset(&recipe, 0, sizeof(recipe));
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_WANTED,
				  NULL, &out);
	give(&recipe, IN_MISSING, &out);
	assert_string_equal(describe_ops(&out), "create children");
	recipe_free(&recipe);

	memset(&recipe, 0, sizeof(recipe));
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_WANTED,
				  &our_sequence, &out);
	give(&recipe, IN_SECOND, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	recipe_free(&recipe);

	memset(&recipe, 0, sizeof(recipe));
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.report, RECIPE_REPORT_TOKEN);
	assert_true(recipe.token == TOKEN);
	recipe_free(&recipe);

	memset(&recipe, 0, sizeof(recipe));
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX,
				  RECIPE_RESUME_RELEASING, NULL, &out);
	give(&recipe, IN_THIRD, &out);
	assert_string_equal(describe_ops(&out), "delete");
	recipe_free(&recipe);
}

/*
 * A contender that was to queue again: the next worker tells the node of
 * before, which has the number that it knows, from the one behind it.
 */
static void
test_resume_requeued(void **state)
{
	static const struct
	{
		bool		wanted;
		const char *children[3];
		RecipeState state;
		const char *ops;
		unsigned	report;
	}			cases[] =
	{
		{true, {OURS}, RECIPE_REQUEUEING, "requeue", 0},
		{true, {LATER, OURS}, RECIPE_REQUEUEING, "requeue", 0},
		{true, {ORPHAN(6)}, RECIPE_OWNER, "stat(6)",
		RECIPE_REPORT_CREATED | RECIPE_REPORT_GRANTED},
		{true, {ORPHAN(7), LATER}, RECIPE_WATCHING, "watch(later)",
		RECIPE_REPORT_CREATED},
		{true, {FIRST}, RECIPE_ENTERING, "create children", 0},
		{false, {OURS}, RECIPE_LEAVING, "delete", 0},
		{false, {LATER, ORPHAN(7)}, RECIPE_LEAVING, "delete(7)",
		RECIPE_REPORT_CREATED},
		{false, {FIRST}, RECIPE_NONE, "", RECIPE_REPORT_GONE},
		/* both cannot be, but if they are, the one of before goes first */
		{true, {ORPHAN(6), OURS}, RECIPE_REQUEUEING, "requeue", 0},
		{false, {ORPHAN(6), OURS}, RECIPE_LEAVING, "delete", 0}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(cases); i++)
	{
		RequestAnswer in = {.kind = REQUEST_CHILDREN};
		Recipe		recipe;
		RecipeOutput out;

		memset(&recipe, 0, sizeof(recipe));
		recipe.requeued = true;
		recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, cases[i].wanted ?
					  RECIPE_RESUME_WANTED : RECIPE_RESUME_RELEASING,
					  &our_sequence, &out);
		assert_string_equal(describe_ops(&out), "search");
		assert_int_equal(out.report, 0);
		in.serial = recipe.serial;
		in.children = cases[i].children;
		while (in.nchildren < (int) lengthof(cases[i].children) &&
			   in.children[in.nchildren] != NULL)
			in.nchildren++;
		recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
		assert_int_equal(recipe.state, cases[i].state);
		assert_string_equal(describe_ops(&out), cases[i].ops);
		assert_int_equal(out.report, cases[i].report);
		recipe_free(&recipe);
	}
}

/*
 * A reader is not alone with its number, so it does not queue again in one
 * step; and a late number does not own the lock, though it is the next.
 */
static void
test_requeue_conditions(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	memset(&recipe, 0, sizeof(recipe));
	recipe_resume(&recipe, our_uuid, ZNODE_READER, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	give(&recipe, IN_REQUEUE, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	assert_int_equal(out.nops, 0);
	recipe_free(&recipe);

	bring_to(&recipe, AT_OWNER);
	recipe.sequence = ZNODE_LATE_SEQUENCE - 1;
	give(&recipe, IN_REQUEUE, &out);
	{
		RequestAnswer in = {
			.kind = REQUEST_REQUEUE,
			.node = OUR_PREFIX "2000000000"
		};

		recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
	}
	assert_int_equal(recipe.state, RECIPE_LATE);
	recipe_free(&recipe);
}

/* Its instance has this contender in the other mode; NULL: none. */
static void
set_sibling(Recipe *recipe, const uint8_t *uuid)
{
	recipe->has_sibling = uuid != NULL;
	if (uuid != NULL)
		memcpy(recipe->sibling, uuid, ZNODE_UUID_BYTES);
}

/* The watch of the queue and that for a revocation do not get mixed up. */
static void
test_queue_and_revocation(void **state)
{
	Recipe		recipe;
	RecipeOutput out;
	RequestAnswer list = {.kind = REQUEST_CHILDREN};
	RequestAnswer event = {.event = REQUEST_NODE_TOUCHED};

	(void) state;
	bring_to(&recipe, AT_OWNER_LISTING_QUEUE);
	list.serial = recipe.serial;
	give(&recipe, IN_WATCH_REVOCATION, &out);
	event.serial = recipe.serial;
	give(&recipe, IN_WATCH_OK, &out);
	recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
	assert_int_equal(out.report, RECIPE_REPORT_ALONE);

	give(&recipe, IN_WATCH_QUEUE, &out);
	recipe_step(&recipe, RECIPE_ANSWER, &event, &out);
	assert_string_equal(describe_ops(&out), "watch(own)");
	recipe_step(&recipe, RECIPE_ANSWER, &event, &out); /* of the one before */
	assert_int_equal(out.nops, 0);
	give(&recipe, IN_WATCH_REVOKED, &out);
	assert_string_equal(describe_ops(&out), "set");
	assert_int_equal(out.report, RECIPE_REPORT_REVOKED);

	/* what is out when the lock is given up is nobody's */
	list.serial = recipe.queue_watch;
	event.serial = recipe.revocation_watch;
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	for (Input input = IN_DELETE_OK;; input = IN_WANT)
	{
		recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
		assert_int_equal(out.report | out.nops, 0);
		recipe_step(&recipe, RECIPE_ANSWER, &event, &out);
		assert_int_equal(out.report | out.nops, 0);
		if (recipe.state == RECIPE_ENTERING)
			break;
		give(&recipe, input, &out);
	}
	give(&recipe, IN_CREATE_OK, &out);
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(recipe.state, RECIPE_OWNER);
	recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
	assert_int_equal(out.report | out.nops, 0);
	recipe_step(&recipe, RECIPE_ANSWER, &event, &out);
	assert_int_equal(out.report | out.nops, 0);

	/* and the new one has to be watched anew */
	give(&recipe, IN_WATCH_REVOCATION, &out);
	assert_string_equal(describe_ops(&out), "watch(own)");
	recipe_free(&recipe);
}

/*
 * Who counts in a watched queue: everybody behind an exclusive contender, only
 * the exclusive ones behind a shared one, and nobody ahead.
 */
static void
test_watch_queue(void **state)
{
	enum
	{
		BEHIND_READER = RECIPE_REPORT_CONTENDED | RECIPE_REPORT_WRITER
	};
	static const struct
	{
		ZnodeKind	kind;
		int32_t		sequence;
		const char *others[5];
		unsigned	report;
	}			queues[] =
	{
		{ZNODE_MUTEX, 5, {NULL}, RECIPE_REPORT_ALONE},
		{ZNODE_MUTEX, 5, {W(0000000006)}, RECIPE_REPORT_CONTENDED},
		{ZNODE_MUTEX, 5, {R(0000000006)}, RECIPE_REPORT_CONTENDED},
		{ZNODE_WRITER, 5, {R(0000000006)}, RECIPE_REPORT_CONTENDED},
		{ZNODE_WRITER, 5, {R(0000000009), W(0000000007), R(0000000008)},
		RECIPE_REPORT_CONTENDED},
		{ZNODE_MUTEX, 5,
			{"77777777777777777777777777777777__rlock__0000000006"},
		RECIPE_REPORT_CONTENDED},
		{ZNODE_MUTEX, 5, {W(0000000004), R(0000000003)}, RECIPE_REPORT_ALONE},
		{ZNODE_MUTEX, 5, {"leaves", "locks"}, RECIPE_REPORT_ALONE},
		{ZNODE_READER, 5, {NULL}, RECIPE_REPORT_ALONE},
		{ZNODE_READER, 5, {R(0000000006)}, RECIPE_REPORT_ALONE},
		{ZNODE_READER, 5, {R(0000000004), R(0000000006), R(0000000007)},
		RECIPE_REPORT_ALONE},
		{ZNODE_READER, 5, {W(0000000006)}, BEHIND_READER},
		{ZNODE_READER, 5, {R(0000000006), R(0000000007), W(0000000008)},
		BEHIND_READER},
		{ZNODE_READER, 5,
			{"77777777777777777777777777777777__lock__0000000006"},
		BEHIND_READER},
		{ZNODE_READER, 5,
			{"77777777777777777777777777777777__rlock__0000000006"},
		RECIPE_REPORT_ALONE},
		{ZNODE_READER, 5, {W(0000000004)}, RECIPE_REPORT_ALONE},
		/* the counter's end */
		{ZNODE_MUTEX, 5, {W(-2147483648)}, RECIPE_REPORT_CONTENDED},
		{ZNODE_MUTEX, 1999999999, {W(2147483647)}, RECIPE_REPORT_CONTENDED},
		{ZNODE_READER, 5, {R(1999999999)}, RECIPE_REPORT_ALONE},
		{ZNODE_READER, 5, {R(2000000000)}, BEHIND_READER},
		{ZNODE_READER, 5, {R(-2147483648)}, BEHIND_READER},
		{ZNODE_READER, 5, {W(-2147483648)}, BEHIND_READER},
		{ZNODE_READER, 1999999999, {W(2147483647)}, BEHIND_READER}
	};

	(void) state;
	for (size_t i = 0; i < lengthof(queues); i++)
	{
		char		own[ZNODE_CONTENDER_SIZE];
		const char *children[6] = {own};
		int			nchildren = 1;

		znode_contender_name(our_uuid, queues[i].kind, queues[i].sequence,
							 own);
		while (queues[i].others[nchildren - 1] != NULL)
		{
			children[nchildren] = queues[i].others[nchildren - 1];
			nchildren++;
		}

		/* our own node at every place of the list, which has no order */
		for (int at = 0; at < nchildren; at++)
		{
			Recipe		recipe;
			RecipeOutput out;
			bool		clear = queues[i].report == RECIPE_REPORT_ALONE;
			bool		shared = queues[i].kind == ZNODE_READER;
			const char *ops = "";
			unsigned	report = 0;

			memset(&recipe, 0, sizeof(recipe));
			recipe.retain = at % 2 == 0;
			if (clear && recipe.retain && !shared)
			{
				ops = "children";
				report = RECIPE_REPORT_CONTENDED;
			}
			else if (clear && shared && !recipe.retain)
				report = RECIPE_REPORT_UNWATCHED;
			else if (clear)
				ops = "list";
			recipe_resume(&recipe, our_uuid, queues[i].kind,
						  RECIPE_RESUME_OWNED, &queues[i].sequence, &out);
			if (!recipe.retain)
				give(&recipe, IN_WATCH_QUEUE, &out);
			give_children(&recipe, children, nchildren, &out);
			assert_int_equal(out.report, queues[i].report);
			assert_int_equal(out.nops, 0);
			assert_int_equal(recipe.state, RECIPE_OWNER);

			/* the watch goes on if it is still of interest, and only then */
			give(&recipe, IN_TOUCHED, &out);
			assert_string_equal(describe_ops(&out), ops);
			assert_int_equal(out.report, report);
			give_children(&recipe, children, nchildren, &out);
			assert_int_equal(out.report, strcmp(ops, "list") == 0 ?
							 RECIPE_REPORT_ALONE : 0);
			assert_int_equal(out.nops, 0);

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
test_watch_queue_goes_on(void **state)
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
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
	for (int n = 1; n < 4; n++)
	{
		give_children(&recipe, children, n, &out);
		assert_int_equal(out.report, RECIPE_REPORT_ALONE);
		give(&recipe, IN_TOUCHED, &out);
		assert_string_equal(describe_ops(&out), "list");
		assert_int_equal(out.report, 0);
	}

	/* nobody knows what became of the list: no news until it is in */
	give(&recipe, IN_CHILDREN_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "list");
	assert_int_equal(out.report, 0);
	give(&recipe, IN_STALE_ALONE, &out);
	assert_int_equal(out.report | out.nops, 0);
	give_children(&recipe, children, 4, &out);
	assert_int_equal(out.report,
					 RECIPE_REPORT_CONTENDED | RECIPE_REPORT_WRITER);
	assert_int_equal(out.nops, 0);
	assert_true(recipe.retain); /* it is for the worker to tell */

	/* once is enough */
	give(&recipe, IN_TOUCHED, &out);
	assert_int_equal(out.report | out.nops, 0);
	give_children(&recipe, children, 4, &out);
	assert_int_equal(out.report | out.nops, 0);

	/* but it can be asked again */
	give(&recipe, IN_WATCH_QUEUE, &out);
	assert_string_equal(describe_ops(&out), "list");
	give_children(&recipe, children, 3, &out);
	assert_int_equal(out.report, RECIPE_REPORT_ALONE);
	recipe_free(&recipe);
}

/*
 * Another kind of client in the queue is recognized by its name, or by a
 * change that nobody in the queue explains.
 */
static void
test_other_clients(void **state)
{
#define INSTANCE	"_c_77777777-7777-8777-8777-777777777777-lock-"
	static const struct
	{
		const char *children[2];
		bool		touched;	/* by an event before this list */
		bool		leaves;		/* idle, and so given up before the answer */
		bool		others;
		unsigned	report;		/* of the list */
	}			lists[] =
	{
		{{OURS}, false, false, false, RECIPE_REPORT_ALONE},
		{{OURS}, true, false, true, 0},
		{{OURS}, true, true, true, 0},
		{{OURS, INSTANCE "0000000006"}, false, false, false,
		RECIPE_REPORT_CONTENDED},
		{{OURS, INSTANCE "0000000006"}, true, false, false, 0},
		{{OURS, INSTANCE "0000000006"}, true, true, false, 0},
		{{OURS, W(0000000006)}, true, false, true, 0},
		{{OURS, W(0000000006)}, true, true, true, 0},
		{{OURS, "x__lock__0000000006"}, true, true, true, 0}
	};
	static const char *const ahead[] = {
		INSTANCE "0000000004", W(0000000004), "x__lock__0000000004"
	};

	(void) state;
	for (size_t i = 0; i < lengthof(lists); i++)
	{
		const char *const *children = lists[i].children;
		Recipe		recipe;
		RecipeOutput out;
		uint32_t	serial;

		bring_to_reading(&recipe, false, our_sequence);
		recipe.retain = true;
		give_children(&recipe, children, 1, &out);
		give_children(&recipe, children, 1, &out);
		assert_int_equal(out.report, RECIPE_REPORT_ALONE);
		give(&recipe, lists[i].touched ? IN_TOUCHED : IN_WATCH_QUEUE, &out);
		if (lists[i].touched)
		{
			assert_int_equal(out.report, RECIPE_REPORT_CONTENDED);
			assert_string_equal(describe_ops(&out), "children");
		}
		serial = recipe.serial;
		if (lists[i].leaves)
			give(&recipe, IN_RELEASE, &out);
		give_children_of(&recipe, serial, children, children[1] == NULL ? 1 : 2,
						 &out);
		assert_int_equal(out.report, lists[i].report);
		assert_int_equal(recipe.others, lists[i].others);
		recipe_free(&recipe);
	}
	for (size_t i = 0; i < lengthof(ahead); i++)
	{
		const char *const children[] = {OURS, ahead[i]};
		Recipe		recipe;
		RecipeOutput out;

		bring_to_reading(&recipe, false, our_sequence);
		give_children(&recipe, children, 2, &out);
		assert_int_equal(recipe.state, RECIPE_WATCHING);
		assert_int_equal(recipe.others, i > 0);
		give(&recipe, IN_EXPIRED, &out);
		recipe_want(&recipe, our_uuid, ZNODE_MUTEX, true, false, &out);
		assert_false(recipe.others);
		recipe_free(&recipe);
	}
#undef INSTANCE
}

/* One of the same instance is not somebody else, until one asks anew. */
static void
test_watch_queue_ignores_sibling(void **state)
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
		unsigned	contended = RECIPE_REPORT_CONTENDED |
			(shared ? RECIPE_REPORT_WRITER : 0);
		Recipe		recipe;
		RecipeOutput out;

		bring_to_reading(&recipe, shared, our_sequence);
		recipe.retain = true;
		give_children(&recipe, children, 1, &out);

		/* that which begins with the lock knows of none */
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.report, contended);

		set_sibling(&recipe, sibling);
		recipe.retain = shared;
		recipe_step(&recipe, RECIPE_WATCH_QUEUE, NULL, &out);
		give(&recipe, IN_CHILDREN_UNKNOWN, &out);
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.report, RECIPE_REPORT_ALONE);
		give(&recipe, IN_TOUCHED, &out);
		assert_string_equal(describe_ops(&out), "list");
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.report, RECIPE_REPORT_ALONE);
		give(&recipe, IN_TOUCHED, &out);
		give_children(&recipe, children, 3, &out);
		assert_int_equal(out.report, contended);

		recipe.retain = true;
		set_sibling(&recipe, NULL);
		recipe_step(&recipe, RECIPE_WATCH_QUEUE, NULL, &out);
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.report, contended);

		/* nor does the next contender know of one */
		set_sibling(&recipe, sibling);
		recipe_step(&recipe, RECIPE_WATCH_QUEUE, NULL, &out);
		give(&recipe, IN_EXPIRED, &out);
		recipe_want(&recipe, our_uuid, recipe.kind, true,
					false, &out);
		give(&recipe, IN_CREATE_UNKNOWN, &out);
		give_children(&recipe, children, 1, &out);
		assert_string_equal(describe_ops(&out), "stat list");
		give_children(&recipe, children, 2, &out);
		assert_int_equal(out.report, contended);
		recipe_free(&recipe);
	}
}

/* But who waits behind the writer of the same instance waits for us, too. */
static void
test_watch_queue_behind_sibling(void **state)
{
	static const uint8_t sibling[ZNODE_UUID_BYTES] = {
		0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44,
		0x84, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44, 0x44
	};
	static const char *const ahead[] = {OUR_READER, R(0000000006), W(0000000007)};
	static const char *const behind[] = {OUR_READER, R(0000000008), W(0000000007)};
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	bring_to_reading(&recipe, true, our_sequence);
	give_children(&recipe, ahead, 1, &out);
	set_sibling(&recipe, sibling);
	recipe_step(&recipe, RECIPE_WATCH_QUEUE, NULL, &out);
	give_children(&recipe, ahead, 3, &out);
	assert_int_equal(out.report, RECIPE_REPORT_ALONE);
	give(&recipe, IN_TOUCHED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_UNWATCHED);
	recipe_step(&recipe, RECIPE_WATCH_QUEUE, NULL, &out);
	give_children(&recipe, behind, 3, &out);
	assert_int_equal(out.report, RECIPE_REPORT_CONTENDED);
	recipe_free(&recipe);
}

/*
 * Both watches of an owner that retains its lock: each takes its own answers
 * and events only.  Nor do they get in the next contender's way.
 */
static void
test_both_watches_of_an_owner(void **state)
{
	static const char *const alone[] = {OURS};
	static const char *const crowd[] = {OURS, LATER};
	Recipe		recipe;
	RecipeOutput out;
	RequestAnswer list = {.kind = REQUEST_CHILDREN, .children = alone,
	.nchildren = 1};
	RequestAnswer listed = {.event = REQUEST_NODE_TOUCHED};
	RequestAnswer revocation = {.event = REQUEST_NODE_TOUCHED};

	(void) state;
	bring_to(&recipe, AT_OWNER_RETAINING);
	list.serial = listed.serial = recipe.serial;
	give(&recipe, IN_WATCH_REVOCATION, &out);
	revocation.serial = recipe.serial;
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.report | out.nops, 0);

	recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
	assert_int_equal(out.report, RECIPE_REPORT_ALONE);

	/* the one that is used up is set again, not the other */
	recipe_step(&recipe, RECIPE_ANSWER, &revocation, &out);
	assert_string_equal(describe_ops(&out), "watch(own)");
	revocation.serial = recipe.serial;
	recipe_step(&recipe, RECIPE_ANSWER, &listed, &out);
	assert_string_equal(describe_ops(&out), "children");
	assert_int_equal(out.report, RECIPE_REPORT_CONTENDED);
	recipe_step(&recipe, RECIPE_ANSWER, &listed, &out);
	assert_int_equal(out.report | out.nops, 0);
	give(&recipe, IN_WATCH_QUEUE, &out);
	list.serial = listed.serial = recipe.serial;
	revocation.event = REQUEST_NODE_DELETED;
	recipe_step(&recipe, RECIPE_ANSWER, &revocation, &out);
	assert_string_equal(describe_ops(&out), "stat");

	list.children = crowd;
	list.nchildren = 2;
	recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
	assert_int_equal(out.report, RECIPE_REPORT_CONTENDED);

	/* what we are is told with the next set, whatever that is for */
	give(&recipe, IN_SET_IN_USE, &out);
	assert_string_equal(describe_ops(&out), "set");
	assert_false(recipe.retain);

	/* what is out when the lock is given up is nobody's */
	give(&recipe, IN_WATCH_QUEUE, &out);
	list.serial = listed.serial = recipe.serial;
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	for (Input input = IN_DELETE_OK;; input = IN_WANT)
	{
		recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
		assert_int_equal(out.report | out.nops, 0);
		recipe_step(&recipe, RECIPE_ANSWER, &listed, &out);
		assert_int_equal(out.report | out.nops, 0);
		if (recipe.state == RECIPE_ENTERING)
			break;
		give(&recipe, input, &out);
	}
	give(&recipe, IN_CREATE_OK, &out);
	/* nor what the queue is read from */
	recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
	assert_int_equal(out.report | out.nops, 0);
	recipe.asks_retained = true;
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(recipe.state, RECIPE_WATCHING);
	recipe_step(&recipe, RECIPE_ANSWER, &listed, &out);
	assert_int_equal(out.report | out.nops, 0);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "stat");	/* it has set in use */
	recipe_step(&recipe, RECIPE_ANSWER, &list, &out);
	assert_int_equal(out.report | out.nops, 0);
	recipe_step(&recipe, RECIPE_ANSWER, &listed, &out);
	assert_int_equal(out.report | out.nops, 0);
	recipe_free(&recipe);
}

/* Only an owner whose data says otherwise tells that it needs the lock. */
static void
test_set_in_use(void **state)
{
	Recipe		recipe;
	RecipeOutput out;

	(void) state;
	for (Situation at = 0; at < NSITUATIONS; at++)
	{
		bool		retains = at == AT_OWNER_RETAINING ||
			at == AT_OWNER_RETAINING_ALONE ||
			at == AT_OWNER_RETAINING_CONTENDED;

		bring_to(&recipe, at);
		give(&recipe, IN_SET_IN_USE, &out);
		assert_string_equal(describe_ops(&out), retains ? "set" : "");
		assert_int_equal(out.report, 0);
		if (retains)
		{
			assert_ptr_equal(out.ops[0].node, recipe.node);
			assert_false(recipe.retain);
		}
		give(&recipe, IN_SET_IN_USE, &out);
		assert_int_equal(out.report | out.nops, 0);
		recipe_free(&recipe);
	}

	/* a contender that still waits keeps its data, and owns with it */
	bring_to(&recipe, AT_READING_RETAINING);
	give(&recipe, IN_SET_IN_USE, &out);
	give(&recipe, IN_SECOND, &out);
	give(&recipe, IN_SET_IN_USE, &out);
	assert_true(recipe.retain);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "stat list");

	/* it is told until it has arrived */
	give(&recipe, IN_SECOND, &out);
	give(&recipe, IN_SET_IN_USE, &out);
	give(&recipe, IN_SET_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "set");
	give(&recipe, IN_SET_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "set");
	give(&recipe, IN_SET_OK, &out);
	assert_int_equal(out.report | out.nops, 0);

	/* or the lock is given up */
	give(&recipe, IN_RELEASE, &out);
	give(&recipe, IN_SET_UNKNOWN, &out);
	assert_int_equal(out.report | out.nops, 0);
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
	memset(&recipe, 0, sizeof(recipe));
	recipe.retain = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	check_serials(&recipe, 0, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	assert_int_equal(out.report, RECIPE_REPORT_CREATED);
	give(&recipe, IN_STAT_OURS, &out);
	assert_int_equal(out.report, RECIPE_REPORT_TOKEN);
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(out.report, RECIPE_REPORT_CONTENDED);
	give(&recipe, IN_SET_IN_USE, &out);
	assert_string_equal(describe_ops(&out), "set");
	recipe_free(&recipe);

	/* in the other order, and it can be given up at once */
	memset(&recipe, 0, sizeof(recipe));
	recipe.retain = true;
	recipe_resume(&recipe, our_uuid, ZNODE_READER, RECIPE_RESUME_OWNED,
				  &our_sequence, &out);
	give(&recipe, IN_ALONE, &out);
	assert_int_equal(out.report, RECIPE_REPORT_ALONE);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "delete");
	give(&recipe, IN_TOUCHED, &out);	/* by our own deletion */
	assert_int_equal(out.report | out.nops, 0);
	recipe_free(&recipe);

	/* one that is being given up is nobody's to wait for */
	memset(&recipe, 0, sizeof(recipe));
	recipe.retain = recipe.asks_retained = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX,
				  RECIPE_RESUME_RELEASING, &our_sequence, &out);
	assert_string_equal(describe_ops(&out), "delete");
	recipe_free(&recipe);

	/* one that waits asks, and watches the queue when it owns */
	memset(&recipe, 0, sizeof(recipe));
	recipe.retain = recipe.asks_retained = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_WANTED,
				  &our_sequence, &out);
	assert_string_equal(describe_ops(&out), "children");
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(out.report, 0);
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_RETAINED);
	give(&recipe, IN_DELETED, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
	recipe_free(&recipe);

	/* the same, its create not known to have arrived */
	memset(&recipe, 0, sizeof(recipe));
	recipe.retain = recipe.asks_retained = true;
	recipe_resume(&recipe, our_uuid, ZNODE_MUTEX, RECIPE_RESUME_OWNED,
				  NULL, &out);
	assert_string_equal(describe_ops(&out), "search");
	give(&recipe, IN_SECOND, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.report, RECIPE_REPORT_CREATED);
	give(&recipe, IN_WATCH_NO_NODE, &out);
	assert_string_equal(describe_ops(&out), "stat list");
	recipe_free(&recipe);
}

/* A contender asks a retained owner if only owners of the lock exclude it. */
static void
test_ask_retained(void **state)
{
	static const struct
	{
		bool		shared;
		const char *others[4];
		RecipeState state;
		bool		retained;
	}			places[] =
	{
		{false, {NULL}, RECIPE_OWNER, false},
		{false, {W(0000000006)}, RECIPE_OWNER, false},
		{false, {W(0000000004)}, RECIPE_WATCHING, true},
		{false, {R(0000000004)}, RECIPE_WATCHING, true},
		{false, {W(0000000004), W(0000000006)}, RECIPE_WATCHING, true},
		{false, {W(0000000004), "leaves"}, RECIPE_WATCHING, true},
		/* an orphan of ours is nobody */
		{false, {W(0000000004), ORPHAN(2)}, RECIPE_WATCHING, true},
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
		for (int asking = 0; asking < 2; asking++)
		{
			Recipe		recipe;
			RecipeOutput out;
			const char *children[5] = {places[i].shared ? OUR_READER : OURS};
			int			nchildren = 1;
			bool		retained = asking && places[i].retained;

			while (places[i].others[nchildren - 1] != NULL)
			{
				children[nchildren] = places[i].others[nchildren - 1];
				nchildren++;
			}
			bring_to_reading(&recipe, places[i].shared, our_sequence);
			recipe.asks_retained = asking;
			give_children(&recipe, children, nchildren, &out);
			assert_int_equal(recipe.state, places[i].state);
			if (recipe.state == RECIPE_WATCHING)
				assert_int_equal(recipe.retained_ahead, retained);
			assert_int_equal(out.report & ~RECIPE_REPORT_STRANGER,
							 recipe.state == RECIPE_OWNER ?
							 RECIPE_REPORT_GRANTED :
							 retained ? 0 : RECIPE_REPORT_QUEUED);
			if (recipe.state == RECIPE_WATCHING)
			{
				give(&recipe, IN_WATCH_RETAINED, &out);
				assert_int_equal(out.report,
								 retained ? RECIPE_REPORT_RETAINED : 0);
				give(&recipe, IN_TOUCHED, &out);
				assert_int_equal(out.report, 0);
				give(&recipe, IN_WATCH_OK, &out);
				assert_int_equal(out.report,
								 retained ? RECIPE_REPORT_QUEUED : 0);
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
		{"postgresql pid=1 retain=yes ", 28, true},
		{"postgresql retain=yes pid=1", 27, true},
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
		RequestAnswer in = {.kind = REQUEST_WATCH, .ephemeral_owner = 1};

		bring_to(&recipe, AT_WATCHING_ASKING);
		in.serial = recipe.serial;
		in.data = examples[i].data;
		in.data_len = examples[i].len;
		recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
		assert_int_equal(out.report, examples[i].marked ?
						 RECIPE_REPORT_RETAINED : RECIPE_REPORT_QUEUED);
		assert_int_equal(recipe.retained_ahead, examples[i].marked);
		assert_int_equal(out.nops, 0);
		recipe_free(&recipe);
	}
}

/* The owner ahead is asked until it has answered, once and for all. */
static void
test_ask_retained_goes_on(void **state)
{
	static const char *const second_left[] = {FIRST, OURS};
	Recipe		recipe;
	RecipeOutput out;
	RequestAnswer in = {.kind = REQUEST_WATCH, .data = "me",
	.data_len = 2,
	.ephemeral_owner = 1};

	(void) state;

	/* faults are no answer */
	bring_to(&recipe, AT_WATCHING_ASKING);
	in.serial = recipe.serial;
	give(&recipe, IN_WATCH_UNKNOWN, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.report, 0);
	recipe_step(&recipe, RECIPE_ANSWER, &in, &out);	/* of the watch before */
	assert_int_equal(out.report | out.nops, 0);
	give(&recipe, IN_TOUCHED, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.report, 0);
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_RETAINED);
	give(&recipe, IN_TOUCHED, &out);
	give(&recipe, IN_WATCH_UNKNOWN, &out);
	assert_int_equal(out.report, 0);
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.report, RECIPE_REPORT_QUEUED);

	/* it stays so, whatever its data becomes */
	give(&recipe, IN_TOUCHED, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.report | out.nops, 0);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "unwatch(first) delete");
	recipe_free(&recipe);

	/* who gives up has no more to hear */
	bring_to(&recipe, AT_WATCHING_ASKING);
	give(&recipe, IN_RELEASE, &out);
	assert_string_equal(describe_ops(&out), "unwatch(first) delete");
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.report | out.nops, 0);
	give(&recipe, IN_DELETE_OK, &out);
	recipe_free(&recipe);

	/* of two, one goes: who is left is asked then */
	bring_to(&recipe, AT_READING_ASKING);
	give(&recipe, IN_THIRD, &out);
	assert_int_equal(out.report, RECIPE_REPORT_QUEUED);
	assert_false(recipe.retained_ahead);
	give(&recipe, IN_DELETED, &out);
	give_children(&recipe, second_left, lengthof(second_left), &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	assert_int_equal(out.report, 0);
	give(&recipe, IN_WATCH_OK, &out);
	assert_int_equal(out.report, RECIPE_REPORT_QUEUED);
	give(&recipe, IN_DELETED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_GRANTED);
	recipe_free(&recipe);

	/* the next contender asks for itself */
	bring_to(&recipe, AT_READING_ASKING);
	give(&recipe, IN_SECOND, &out);
	assert_string_equal(describe_ops(&out), "watch(first)");
	give(&recipe, IN_WATCH_RETAINED, &out);
	assert_int_equal(out.report, RECIPE_REPORT_RETAINED);
	give(&recipe, IN_EXPIRED, &out);
	recipe.asks_retained = false;
	give(&recipe, IN_WANT, &out);
	give(&recipe, IN_CREATE_OK, &out);
	give(&recipe, IN_SECOND, &out);
	assert_int_equal(out.report, RECIPE_REPORT_QUEUED);
	recipe_free(&recipe);
}

/* However many orphans, an owner that is to monitor does. */
static void
test_orphans_leave_room_for_list(void **state)
{
	static const char *const many[] = {
		ORPHAN(0), ORPHAN(1), ORPHAN(2), ORPHAN(3), ORPHAN(4), OURS, ORPHAN(6),
		ORPHAN(7), ORPHAN(8), ORPHAN(9)
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
		assert_true(out.nops >= 3 && out.nops <= RECIPE_MAX_OPS);
		for (int j = 0; j < out.nops - 2; j++)
			assert_int_equal(out.ops[j].kind, REQUEST_DELETE_ORPHAN);
		assert_int_equal(out.ops[out.nops - 2].kind, REQUEST_STAT);
		assert_int_equal(out.ops[out.nops - 1].kind, REQUEST_LIST);
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
		unsigned	report;
	}			asks[] =
	{
		{AT_OWNER, IN_WATCH_QUEUE, IN_SECOND, "", RECIPE_REPORT_CONTENDED},
		{AT_OWNER, IN_WATCH_QUEUE, IN_TOUCHED, "list", 0},
		{AT_OWNER_ALONE, IN_TOUCHED, IN_ALONE, "", RECIPE_REPORT_ALONE},
		{AT_OWNER_ALONE, IN_TOUCHED, IN_TOUCHED, "list", 0},
		{AT_READING_RETAINING, IN_ALONE, IN_SECOND, "", RECIPE_REPORT_CONTENDED},
		{AT_OWNER, IN_WATCH_REVOCATION, IN_WATCH_REVOKED, "set", RECIPE_REPORT_REVOKED},
		{AT_OWNER, IN_WATCH_REVOCATION, IN_TOUCHED, "watch(own)", 0},
		{AT_READING, IN_SECOND, IN_TOUCHED, "watch(first)", 0},
		{AT_WATCHING_OF_TWO, IN_DELETED, IN_ALONE, "stat",
		RECIPE_REPORT_GRANTED},
		{AT_READING_ASKING, IN_SECOND, IN_WATCH_RETAINED, "",
		RECIPE_REPORT_RETAINED}
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
			if (out.ops[j].kind != REQUEST_STAT)
				assert_int_not_equal(out.ops[j].serial, 0);
		give(&recipe, asks[i].answer, &out);
		assert_string_equal(describe_ops(&out), asks[i].ops);
		assert_int_equal(out.report, asks[i].report);
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
		RequestAnswer in = {.kind = REQUEST_WATCH};

		bring_to(&recipe, AT_OWNER_REVOCABLE);
		in.serial = recipe.serial;
		in.data = examples[i].data;
		in.data_len = examples[i].len;
		recipe_step(&recipe, RECIPE_ANSWER, &in, &out);
		assert_int_equal(out.report,
						 examples[i].revokes ? RECIPE_REPORT_REVOKED : 0);
		assert_string_equal(describe_ops(&out),
							examples[i].revokes ? "set" : "");
		recipe_free(&recipe);
	}
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
		memset(&recipe, 0, sizeof(recipe));
		recipe_want(&recipe, our_uuid, kinds[i], true, false,
					&out);
		assert_string_equal(out.ops[0].node, prefix);
		give(&recipe, IN_CREATE_UNKNOWN, &out);
		give_children(&recipe, children, 2, &out);
		assert_string_equal(recipe.node, own);
		assert_int_equal(recipe.state, kinds[i] == ZNODE_READER ?
						 RECIPE_OWNER : RECIPE_WATCHING);
		recipe_free(&recipe);

		memset(&recipe, 0, sizeof(recipe));
		recipe_resume(&recipe, our_uuid, kinds[i],
					  RECIPE_RESUME_RELEASING, &our_sequence, &out);
		assert_string_equal(out.ops[0].node, own);
		recipe_free(&recipe);
	}
}

static void
test_free_is_repeatable(void **state)
{
	Recipe		recipe;

	(void) state;
	memset(&recipe, 0, sizeof(recipe));
	recipe_free(&recipe);
	bring_to(&recipe, AT_WATCHING);
	recipe_free(&recipe);
	recipe_free(&recipe);
}

static void
test_state_names(void **state)
{
	(void) state;
	for (RecipeState a = RECIPE_NONE; a <= RECIPE_LATE; a++)
	{
		assert_string_not_equal(recipe_state_name(a), "unknown");
		for (RecipeState b = RECIPE_NONE; b < a; b++)
			assert_string_not_equal(recipe_state_name(a),
									recipe_state_name(b));
	}
	assert_string_equal(recipe_state_name((RecipeState) 99), "unknown");
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
		cmocka_unit_test(test_orphan_is_deleted),
		cmocka_unit_test(test_orphans_leave_room),
		cmocka_unit_test(test_stranger_is_reported),
		cmocka_unit_test(test_directories_are_made),
		cmocka_unit_test(test_directories_cannot_be_made),
		cmocka_unit_test(test_directory_is_remembered),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_resume_and_go_on),
		cmocka_unit_test(test_resume_requeued),
		cmocka_unit_test(test_requeue_conditions),
		cmocka_unit_test(test_queue_and_revocation),
		cmocka_unit_test(test_watch_queue),
		cmocka_unit_test(test_watch_queue_goes_on),
		cmocka_unit_test(test_other_clients),
		cmocka_unit_test(test_watch_queue_ignores_sibling),
		cmocka_unit_test(test_watch_queue_behind_sibling),
		cmocka_unit_test(test_both_watches_of_an_owner),
		cmocka_unit_test(test_set_in_use),
		cmocka_unit_test(test_resume_retaining),
		cmocka_unit_test(test_ask_retained),
		cmocka_unit_test(test_retain_mark),
		cmocka_unit_test(test_ask_retained_goes_on),
		cmocka_unit_test(test_orphans_leave_room_for_list),
		cmocka_unit_test(test_serials_wrap),
		cmocka_unit_test(test_revocation_data),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_free_is_repeatable),
		cmocka_unit_test(test_state_names)
	};
	struct CMUnitTest lines[lengthof(transitions)];
	int			failed = 0;

	memset(lines, 0, sizeof(lines));
	for (size_t i = 0; i < lengthof(transitions); i++)
	{
		lines[i].name = transitions[i].name;
		lines[i].test_func = test_transition;
		lines[i].initial_state = (void *) &transitions[i];
	}
	failed += cmocka_run_group_tests_name("transitions", lines, NULL, NULL);
	failed += cmocka_run_group_tests_name("singles", singles, NULL, NULL);
	return failed;
}
