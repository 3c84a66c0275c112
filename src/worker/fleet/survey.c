/*-------------------------------------------------------------------------
 *
 * survey.c
 *		Who holds and who waits for each lock below a root.
 *
 * The answer to zk_queues().  A survey lists the root, then each lock directory
 * in it, and reads of each queue the first holder and the first waiter.  What
 * the server answers goes in, operations come out, as in answers.c, which has
 * one survey to a question.  The states of a lock:
 *
 *	LISTED		the root's children name it; there is room for an operation
 *				  -> LISTING: list its directory
 *	LISTING		children ok: note the contenders; of a directory that is a
 *				  semaphore, list both parts too
 *				children no node: it has none
 *				children refused: note that -> DONE
 *				all lists are in -> READING: stat the first holder and the first
 *				  waiter
 *	READING		stat ok: note it, and get the holder if it is not too large; or,
 *				  if it is not ephemeral, that it is no contender, and stat the
 *				  next one
 *				get ok: note it
 *				get or stat refused: leave it at what is known
 *				get or stat no node: the queue has moved; when what is out has
 *				  been answered -> LISTING, or, after MAX_LISTS, -> DONE with
 *				  a first holder of whom nothing is known
 *				first holder and first waiter are read -> DONE
 *
 * So each row is of one lock at one moment, or nearly: the holder was read
 * behind the list that it was the first of.  Rows of different locks are of
 * different moments; each tells its own.
 *
 * No more than MAX_OPEN operations are out at a time, since operations of
 * contenders go in the same flights.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/survey.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/note.h"
#include "core/lock/znode.h"
#include "shared/questions.h"
#include "utils/timestamp.h"
#include "worker/fleet/queue_list.h"
#include "worker/fleet/survey.h"
#include "worker/zookeeper/session.h"

/* How many operations of one survey may be out at a time. */
#define MAX_OPEN		256

/* How often a queue is listed that moves while it is read. */
#define MAX_LISTS		4

typedef enum LockState
{
	LOCK_LISTED,
	LOCK_LISTING,
	LOCK_READING,
	LOCK_DONE
} LockState;

/*
 * What an operation is about, in its serial number beside the lock: the list of a
 * QueuePlace, or one of these two.
 */
#define PART_HOLDER		NPLACES
#define PART_WAITER		(NPLACES + 1)

#define NPARTS			(PART_WAITER + 1)

/* The serial number of the list of the root. */
#define ROOT_SERIAL		UINT32_MAX

typedef struct SurveyLock
{
	LockState	state;
	char	   *name;			/* of its directory */
	int			open;			/* operations that are not answered */
	int			lists;			/* how often it was listed */
	bool		moved;			/* what was to be read has gone */
	bool		refused;
	TimestampTz seen;			/* when the last list came in */
	QueueList	queue;

	/* as of the nodes that are contenders; -1: there is none */
	int			holder;
	int			waiter;
	int			nholders;
	int			nwaiters;
} SurveyLock;

struct Survey
{
	uint32		owner;			/* id of its operations */
	char		root[ZNODE_PATH_SIZE];
	MemoryContext context;		/* of it, and of what it points to */
	SurveyLock *locks;
	int			nlocks;
	int			next;			/* the first lock that is LISTED only */
	int			open;
	bool		listed;			/* the list of the root is in */
};

static void
submit(Survey *survey, const Request *op, const char *directory)
{
	session_submit(0, survey->owner, directory, op, 0);
	survey->open++;
}

static void
send_op(Survey *survey, SurveyLock *lock, RequestKind kind, int part,
		const QueueNode *node)
{
	Request		op = {.kind = kind};
	QueuePlace	in = node ? node->place : (QueuePlace) part;
	const char *place = queue_directory(in);
	char		directory[ZNODE_PATH_SIZE * 2];

	op.serial = (uint32) (lock - survey->locks) * NPARTS + part;
	op.node = node ? node->node : NULL;
	snprintf(directory, sizeof(directory), "%s/%s%s%s", survey->root,
			 lock->name, place ? "/" : "", place ? place : "");
	submit(survey, &op, directory);
	lock->open++;
}

static void
list_lock(Survey *survey, SurveyLock *lock)
{
	lock->state = LOCK_LISTING;
	lock->lists++;
	lock->moved = false;
	queue_clear(&lock->queue);
	send_op(survey, lock, REQUEST_CHILDREN, PLACE_NAME, NULL);
}

/* Go on listing locks. */
static void
list_more(Survey *survey)
{
	while (survey->next < survey->nlocks && survey->open < MAX_OPEN)
		list_lock(survey, &survey->locks[survey->next++]);
}

/* Find the first holder and the first waiter, and count both kinds. */
static void
find_first(SurveyLock *lock)
{
	bool		writer = false;

	lock->holder = lock->waiter = -1;
	lock->nholders = lock->nwaiters = 0;
	for (int i = 0; i < lock->queue.n; i++)
	{
		const QueueNode *child = &lock->queue.nodes[i];
		bool		holds;

		if (child->gone)
			continue;

		/* the first of a lock; readers, up to a writer; who has a permit */
		if (child->place == PLACE_NAME)
		{
			holds = lock->nholders == 0 ||
				(child->contender.shared && !writer);
			writer |= !child->contender.shared;
		}
		else
			holds = child->place == PLACE_PERMITS;
		if (holds && lock->nholders++ == 0)
			lock->holder = i;
		if (!holds && lock->nwaiters++ == 0)
			lock->waiter = i;
	}
}

/* Ask what is to be known of the queue and is not; or be done with it. */
static void
read_first(Survey *survey, SurveyLock *lock)
{
	const QueueNode *nodes = lock->queue.nodes;

	find_first(lock);
	lock->state = LOCK_READING;
	if (lock->holder >= 0 && !nodes[lock->holder].read)
		send_op(survey, lock, queue_next_op(&nodes[lock->holder]), PART_HOLDER,
				&nodes[lock->holder]);
	if (lock->waiter >= 0 && !nodes[lock->waiter].seen)
		send_op(survey, lock, REQUEST_STAT, PART_WAITER,
				&nodes[lock->waiter]);
	if (lock->open == 0)
		lock->state = LOCK_DONE;
}

/* A list of a lock's children is in. */
static void
on_list(Survey *survey, SurveyLock *lock, QueuePlace place,
		const RequestAnswer *in)
{
	bool		parts[NPLACES];

	lock->refused |= in->result == REQUEST_REFUSED;
	queue_add(&lock->queue, place, in, parts);
	for (int part = 0; part < NPLACES; part++)
		if (parts[part])
			send_op(survey, lock, REQUEST_CHILDREN, part, NULL);
	if (lock->open > 0)
		return;
	lock->seen = GetCurrentTimestamp();
	queue_sort(&lock->queue);
	read_first(survey, lock);
}

/* The first holder has been read, or the first waiter. */
static void
on_read(Survey *survey, SurveyLock *lock, int part, const RequestAnswer *in)
{
	QueueNode  *node = &lock->queue.nodes[part == PART_HOLDER ?
										  lock->holder : lock->waiter];

	queue_note(node, in, NOTE_FULL_SIZE);
	lock->moved |= in->result == REQUEST_NO_NODE;
	if (lock->open > 0)
		return;
	if (!lock->moved)
		read_first(survey, lock);
	else if (lock->lists < MAX_LISTS)
		list_lock(survey, lock);
	else
		lock->state = LOCK_DONE;
}

/* The children of the root: lock directories, and what is no lock. */
static void
on_root(Survey *survey, const RequestAnswer *in)
{
	survey->listed = true;
	if (in->result != REQUEST_OK || in->nchildren == 0)
		return;
	survey->locks = palloc_extended(in->nchildren * sizeof(SurveyLock),
									MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < in->nchildren; i++)
	{
		const char *child = in->children[i];
		char		name[ZNODE_MAX_NAME + 1];

		/* %waits and its kin are what no name is encoded as */
		if (znode_decode_name(child, name, sizeof(name)) >= 0 &&
			(child[0] != '%' || name[0] != '%' || strncmp(child, "%25", 3) == 0))
			survey->locks[survey->nlocks++].name = pstrdup(child);
	}
}

/*
 * survey_begin
 *		Begin a survey of the locks below a root, in a memory context of the
 *		caller's, which is the current one and is to be deleted with it.
 *
 * "owner" is the id of its operations.
 */
Survey *
survey_begin(uint32 owner, const char *root)
{
	Survey	   *survey = palloc0(sizeof(Survey));
	Request		op = {.kind = REQUEST_SEARCH,.serial = ROOT_SERIAL};

	survey->owner = owner;
	survey->context = CurrentMemoryContext;
	strlcpy(survey->root, root, sizeof(survey->root));
	submit(survey, &op, root);
	return survey;
}

/*
 * survey_event
 *		The server has answered an operation of the survey; not with UNKNOWN.
 *
 * Returns true if it was the last one.  *error is ZooKeeper's, if it refused to
 * list the root; else 0.
 */
bool
survey_event(Survey *survey, const RequestAnswer *in, int *error)
{
	MemoryContext save = MemoryContextSwitchTo(survey->context);

	*error = 0;
	survey->open--;
	if (!survey->listed)
	{
		on_root(survey, in);
		if (in->result == REQUEST_REFUSED)
			*error = in->error;
	}
	else
	{
		SurveyLock *lock = &survey->locks[in->serial / NPARTS];
		int			part = in->serial % NPARTS;

		lock->open--;
		if (lock->state == LOCK_LISTING)
			on_list(survey, lock, part, in);
		else
			on_read(survey, lock, part, in);
	}
	list_more(survey);
	MemoryContextSwitchTo(save);
	return survey->open == 0;
}

static void
append_entry(StringInfo buf, const SurveyLock *lock)
{
	const QueueNode *holder =
		lock->holder >= 0 ? &lock->queue.nodes[lock->holder] : NULL;
	const QueueNode *waiter =
		lock->waiter >= 0 ? &lock->queue.nodes[lock->waiter] : NULL;
	ZkSurveyEntry head;
	int			start = buf->len;
	int			size;

	memset(&head, 0, sizeof(head));
	head.seen = lock->seen;
	head.refused = lock->refused;
	if (!lock->refused)
	{
		head.mode = queue_mode(holder ? holder : waiter);
		head.nholders = lock->nholders;
		head.nwaiters = lock->nwaiters;
	}
	head.data_len = -1;
	if (holder)
	{
		head.since = holder->ctime;
		head.data_len = holder->data_len;
	}
	if (waiter)
		head.waiter_since = waiter->ctime;
	head.name_len = strlen(lock->name);
	size = ZkSurveyEntrySize(&head);

	appendBinaryStringInfo(buf, (char *) &head, offsetof(ZkSurveyEntry, bytes));
	appendStringInfoString(buf, lock->name);
	if (head.data_len > 0)
		appendBinaryStringInfo(buf, holder->data, head.data_len);
	while (buf->len - start < size)
		appendStringInfoChar(buf, '\0');
}

/*
 * survey_entries
 *		What the survey has found, as entries of questions.h; returns how many
 *		there are.
 *
 * Locks that nobody holds or waits for are left out.
 */
int
survey_entries(const Survey *survey, StringInfo buf)
{
	int			count = 0;

	for (int i = 0; i < survey->nlocks; i++)
	{
		const SurveyLock *lock = &survey->locks[i];

		if (!lock->refused && lock->nholders + lock->nwaiters == 0)
			continue;
		append_entry(buf, lock);
		count++;
	}
	return count;
}
