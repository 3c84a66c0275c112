/*-------------------------------------------------------------------------
 *
 * answers.c
 *		The worker's answers to the questions of backends.
 *
 * An Answer is that to one question, from when the worker collects it; there
 * is room for one to each box of shared/questions.c.  What the server answers
 * goes in, operations come out, and in the end a ZkAnswer for the backend.  An
 * answer begins with a search, so that it sees what was done anywhere before
 * the question was asked.  (A lock that is being given up in another session
 * than the first may still be seen.)  The states:
 *
 *	IDLE		collected -> WAITING
 *	WAITING		begin -> LISTING: search the lock directory
 *				begin, of all queues -> SURVEYING
 *	LISTING		children ok: note its contenders; of a directory that is a
 *				  semaphore, list both parts too
 *				children no node: it has none
 *				children refused -> IDLE: answer that
 *				all lists are in -> READING: get each contender that matters
 *	READING		get ok: note what it says of itself; or, if it is not ephemeral,
 *				  that it is no contender
 *				get refused: stat, which needs no permission to read
 *				get or stat no node: it has left meanwhile
 *				stat refused: leave it at its name
 *				all are read -> IDLE: answer; or, to revoke, -> REVOKING: set
 *				  the data of each owner that is another client's
 *	SURVEYING	as survey.c has it; at its end -> IDLE: answer
 *	REVOKING	set ok: count it
 *				set no node: it has left meanwhile
 *				set refused: note that; it is the answer if none was ok
 *				all are set -> IDLE: answer
 *	any			unknown; session expired -> LISTING, all anew; or, if no
 *				  backend waits for the answer any more, -> IDLE
 *				no backend waits when the lists are in, or, SURVEYING, at
 *				  any answer -> IDLE
 *				another question is collected from this box -> WAITING
 *
 * All operations of answers go to the first session.  Each beginning gives the
 * answer another owner id, so that what the server answers to operations of
 * before is no longer its own.  No more than MAX_OPEN operations are out at a
 * time: those of contenders go in the same flights, and must not wait for all
 * of a long queue to be read.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/answers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/note.h"
#include "core/recipe.h"
#include "core/znode.h"
#include "lib/stringinfo.h"
#include "shared/questions.h"
#include "shared/refusal.h"
#include "utils/memutils.h"
#include "worker/answers.h"
#include "worker/session.h"
#include "worker/status.h"
#include "worker/survey.h"

/* How many operations of one answer may be out at a time. */
#define MAX_OPEN		256

typedef enum AnswerState
{
	ANSWER_IDLE,
	ANSWER_WAITING,
	ANSWER_LISTING,
	ANSWER_READING,
	ANSWER_SURVEYING,
	ANSWER_REVOKING
} AnswerState;

/* Where a contender stands, in the order in which they are told. */
typedef enum AnswerPlace
{
	PLACE_NAME,					/* the lock directory */
	PLACE_PERMITS,				/* of a semaphore: has a permit */
	PLACE_LOCKS					/* of a semaphore: waits for one */
} AnswerPlace;

static const char *const place_directory[] = {
	[PLACE_NAME] = NULL,
	[PLACE_PERMITS] = ZNODE_PERMITS_DIR,
	[PLACE_LOCKS] = ZNODE_LOCKS_DIR,
};

typedef struct AnswerEntry
{
	AnswerPlace place;
	const char *node;
	ZnodeContender contender;
	bool		gone;
	bool		ours;			/* one of our sessions' */
	int64		session_id;
	int64		ctime;
	int			data_len;		/* -1: none */
	const char *data;
} AnswerEntry;

typedef struct Answer
{
	AnswerState state;
	uint32		owner;			/* id of its operations */
	uint32		serial;			/* of the question in its box */
	ZkQuestion	question;
	char		path[ZNODE_PATH_SIZE];
	MemoryContext context;		/* of all that follows */
	Survey	   *survey;			/* of all queues; else NULL */
	AnswerEntry *entries;
	int			nentries;
	int			maxentries;
	int			next;			/* the first entry that no operation is for */
	int			open;			/* operations that are not answered */
	int			revoked;
	int			error;			/* of a set that was refused, or 0 */
} Answer;

static Answer answers[ZK_QUESTION_BOXES];
static uint32 last_attempt = 0;

static void
send_op(Answer *answer, RecipeOpKind kind, AnswerPlace place, const char *node,
		uint32 serial)
{
	RecipeOp	op = {.kind = kind,.serial = serial,.node = node};
	char		directory[ZNODE_PATH_SIZE + 8];

	strlcpy(directory, answer->path, sizeof(directory));
	if (place_directory[place])
	{
		strlcat(directory, "/", sizeof(directory));
		strlcat(directory, place_directory[place], sizeof(directory));
	}
	if (kind == RECIPE_OP_SET)
		op.data = NOTE_REVOCATION_DATA;
	session_submit(0, answer->owner, directory, &op, 0);
	answer->open++;
}

static int
box_of(const Answer *answer)
{
	return answer - answers;
}

static void
forget(Answer *answer)
{
	if (answer->context)
		MemoryContextDelete(answer->context);
	answer->context = NULL;
	answer->survey = NULL;
	answer->entries = NULL;
	answer->nentries = 0;
	answer->maxentries = 0;
	answer->next = 0;
	answer->open = 0;
	answer->revoked = 0;
	answer->error = 0;
	answer->owner = 0;
	answer->state = ANSWER_IDLE;
}

/* Begin to answer a question, or begin again. */
static void
start(Answer *answer)
{
	forget(answer);
	if (!question_is_open(box_of(answer), answer->serial))
		return;
	answer->context = AllocSetContextCreate(TopMemoryContext, "zklock answer",
											ALLOCSET_DEFAULT_SIZES);
	last_attempt++;
	answer->owner = ANSWERS_OWNER |
		((last_attempt * ZK_QUESTION_BOXES + box_of(answer)) & ~ANSWERS_OWNER);
	if (answer->question == ZK_QUESTION_QUEUES)
	{
		MemoryContext save = MemoryContextSwitchTo(answer->context);

		answer->state = ANSWER_SURVEYING;
		answer->survey = survey_begin(answer->owner, answer->path);
		MemoryContextSwitchTo(save);
		return;
	}
	answer->state = ANSWER_LISTING;
	send_op(answer, RECIPE_OP_SEARCH, PLACE_NAME, NULL, PLACE_NAME);
}

/* Give the backend its answer; "entries" are those of one queue, or of all. */
static void
finish(Answer *answer, ZkAnswer *reply, StringInfo entries)
{
	question_set_answer(box_of(answer), answer->serial, reply,
						entries ? entries->data : NULL,
						entries ? entries->len : 0);
	forget(answer);
}

static void
finish_refused(Answer *answer, int error)
{
	ZkAnswer	reply = {.data_len = -1};

	reply.refusal = session_error_is_access(error) ?
		ZK_REFUSAL_ACCESS : ZK_REFUSAL_OTHER;
	ereport(LOG,
			(errmsg("ZooKeeper refused a request for \"%s\": %s",
					answer->path, session_error_text(error))));
	finish(answer, &reply, NULL);
}

static ZkQueueMode
mode_of(const AnswerEntry *entry)
{
	if (entry->place != PLACE_NAME)
		return ZK_QUEUE_PERMIT;
	return entry->contender.shared ? ZK_QUEUE_SHARED : ZK_QUEUE_EXCLUSIVE;
}

static void
append_entry(StringInfo buf, const AnswerEntry *entry)
{
	const char *directory = place_directory[entry->place];
	ZkQueueEntry head;
	int			start = buf->len;
	Size		size;

	memset(&head, 0, sizeof(head));
	head.session_id = entry->session_id;
	head.ctime = entry->ctime;
	head.mode = mode_of(entry);
	head.node_len = strlen(entry->node) +
		(directory ? strlen(directory) + 1 : 0);
	head.data_len = entry->data_len;
	size = ZkQueueEntrySize(&head);

	appendBinaryStringInfo(buf, (char *) &head, offsetof(ZkQueueEntry, bytes));
	if (directory)
	{
		appendStringInfoString(buf, directory);
		appendStringInfoChar(buf, '/');
	}
	appendStringInfoString(buf, entry->node);
	if (entry->data_len > 0)
		appendBinaryStringInfo(buf, entry->data, entry->data_len);
	while (buf->len - start < (int) size)
		appendStringInfoChar(buf, '\0');
}

static void
finish_queue(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};
	StringInfoData buf;
	MemoryContext save = MemoryContextSwitchTo(answer->context);

	initStringInfo(&buf);
	for (int i = 0; i < answer->nentries; i++)
		if (!answer->entries[i].gone)
		{
			append_entry(&buf, &answer->entries[i]);
			reply.count++;
		}
	MemoryContextSwitchTo(save);
	finish(answer, &reply, &buf);
}

static void
finish_owner(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};

	if (answer->nentries > 0 && answer->entries[0].data_len >= 0)
	{
		reply.data_len = answer->entries[0].data_len;
		memcpy(reply.data, answer->entries[0].data, reply.data_len);
	}
	finish(answer, &reply, NULL);
}

static void
finish_revoke(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};

	if (answer->revoked == 0 && answer->error != 0)
	{
		finish_refused(answer, answer->error);
		return;
	}
	reply.count = answer->revoked;
	finish(answer, &reply, NULL);
}

/* All contenders are read: ask those of other clients to give way. */
static void
revoke_owners(Answer *answer)
{
	answer->state = ANSWER_REVOKING;
	for (int i = 0; i < answer->nentries; i++)
	{
		const AnswerEntry *entry = &answer->entries[i];

		if (!entry->gone && !entry->ours)
			send_op(answer, RECIPE_OP_SET, entry->place, entry->node, i);
	}
	if (answer->open == 0)
		finish_revoke(answer);
}

/* Go on reading, or to what comes then. */
static void
read_more(Answer *answer)
{
	while (answer->next < answer->nentries && answer->open < MAX_OPEN)
	{
		const AnswerEntry *entry = &answer->entries[answer->next];

		send_op(answer, RECIPE_OP_GET, entry->place, entry->node,
				answer->next);
		answer->next++;
	}
	if (answer->open > 0)
		return;
	switch (answer->question)
	{
		case ZK_QUESTION_QUEUE:
			finish_queue(answer);
			break;
		case ZK_QUESTION_OWNER:
			finish_owner(answer);
			break;
		case ZK_QUESTION_REVOKE:
			revoke_owners(answer);
			break;
		case ZK_QUESTION_QUEUES:
			break;				/* not here */
	}
}

static int
compare_entries(const void *a, const void *b)
{
	const AnswerEntry *left = a;
	const AnswerEntry *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;
	if (left->contender.sequence != right->contender.sequence)
		return znode_before(left->contender.sequence,
							right->contender.sequence) ? -1 : 1;
	return strcmp(left->node, right->node);
}

/* How many of the sorted entries matter for the question? */
static int
count_relevant(const Answer *answer)
{
	int			n = 0;

	switch (answer->question)
	{
		case ZK_QUESTION_QUEUE:
			return Min(answer->nentries, ZK_ANSWER_MAX_ENTRIES);
		case ZK_QUESTION_OWNER:
			return Min(answer->nentries, 1);
		case ZK_QUESTION_REVOKE:
		case ZK_QUESTION_QUEUES:
			break;
	}

	/* the first of a lock; readers, up to a writer; who has a permit */
	while (n < answer->nentries && n < ZK_ANSWER_MAX_ENTRIES &&
		   (answer->entries[n].place == PLACE_NAME ?
			n == 0 || (answer->entries[0].contender.shared &&
					   answer->entries[n].contender.shared) :
			answer->entries[n].place == PLACE_PERMITS))
		n++;
	return n;
}

static void
add_entry(Answer *answer, AnswerPlace place, const char *child,
		  const ZnodeContender *contender)
{
	MemoryContext save = MemoryContextSwitchTo(answer->context);
	AnswerEntry *entry;

	if (answer->nentries == answer->maxentries)
	{
		Size		size;

		answer->maxentries = Max(answer->maxentries * 2, 16);
		size = answer->maxentries * sizeof(AnswerEntry);
		answer->entries = answer->entries == NULL ?
			palloc_extended(size, MCXT_ALLOC_HUGE) :
			repalloc_huge(answer->entries, size);
	}
	entry = &answer->entries[answer->nentries++];
	memset(entry, 0, sizeof(*entry));
	entry->place = place;
	entry->node = pstrdup(child);
	entry->contender = *contender;
	entry->data_len = -1;
	MemoryContextSwitchTo(save);
}

/* A list of children is in; its serial number is the place. */
static void
on_list(Answer *answer, const RecipeInput *in)
{
	AnswerPlace place = (AnswerPlace) in->serial;

	if (in->result == RECIPE_REFUSED)
	{
		finish_refused(answer, in->error);
		return;
	}
	for (int i = 0; in->result == RECIPE_OK && i < in->nchildren; i++)
	{
		const char *child = in->children[i];
		ZnodeContender contender;

		if (znode_parse_contender(child, &contender))
			add_entry(answer, place, child, &contender);
		else if (place == PLACE_NAME &&
				 strcmp(child, ZNODE_PERMITS_DIR) == 0)
			send_op(answer, RECIPE_OP_CHILDREN, PLACE_PERMITS, NULL,
					PLACE_PERMITS);
		else if (place == PLACE_NAME &&
				 strcmp(child, ZNODE_LOCKS_DIR) == 0)
			send_op(answer, RECIPE_OP_CHILDREN, PLACE_LOCKS, NULL,
					PLACE_LOCKS);
	}
	if (answer->open > 0)
		return;

	if (!question_is_open(box_of(answer), answer->serial))
	{
		forget(answer);
		return;
	}
	if (answer->nentries > 0)
		qsort(answer->entries, answer->nentries, sizeof(AnswerEntry),
			  compare_entries);
	answer->nentries = count_relevant(answer);
	answer->state = ANSWER_READING;
	read_more(answer);
}

/* Keep so much of a node's data, and no part of a character of UTF-8. */
static void
note_data(Answer *answer, AnswerEntry *entry, const RecipeInput *in)
{
	int			len = Min(in->data_len, ZK_ANSWER_MAX_DATA);
	char	   *data;

	if (len < in->data_len)
		for (int i = 0; i < 3 && (in->data[len] & 0xC0) == 0x80; i++)
			len--;
	data = MemoryContextAlloc(answer->context, len + 1);
	memcpy(data, in->data, len);
	entry->data = data;
	entry->data_len = len;
}

static void
on_read(Answer *answer, const RecipeInput *in)
{
	AnswerEntry *entry = &answer->entries[in->serial];

	switch (in->result)
	{
		case RECIPE_OK:
			entry->ours = in->ours || status_is_ours(in->ephemeral_owner);
			entry->session_id = in->ephemeral_owner;
			entry->ctime = in->ctime;
			entry->gone = !recipe_is_ephemeral(in);
			if (in->data && in->data_len >= 0)
				note_data(answer, entry, in);
			break;
		case RECIPE_NO_NODE:
			entry->gone = true;
			break;
		case RECIPE_REFUSED:
			if (in->event == RECIPE_GET_DONE)
				send_op(answer, RECIPE_OP_STAT, entry->place, entry->node,
						in->serial);
			break;
		case RECIPE_UNKNOWN:
			break;				/* not here */
	}
	read_more(answer);
}

static void
on_set(Answer *answer, const RecipeInput *in)
{
	if (in->result == RECIPE_OK)
		answer->revoked++;
	else if (in->result == RECIPE_REFUSED)
		answer->error = in->error;
	if (answer->open == 0)
		finish_revoke(answer);
}

/* The server has answered an operation of a survey. */
static void
on_survey(Answer *answer, const RecipeInput *in)
{
	ZkAnswer	reply = {.data_len = -1};
	StringInfoData buf;
	MemoryContext save;
	int			error;
	bool		done = survey_event(answer->survey, in, &error);

	if (!question_is_open(box_of(answer), answer->serial))
	{
		forget(answer);
		return;
	}
	if (error != 0)
	{
		finish_refused(answer, error);
		return;
	}
	if (!done)
		return;
	save = MemoryContextSwitchTo(answer->context);
	initStringInfo(&buf);
	reply.count = survey_entries(answer->survey, &buf);
	MemoryContextSwitchTo(save);
	finish(answer, &reply, &buf);
}

/*
 * answers_collect
 *		Collect the questions that backends have asked.
 *
 * To be called while there is a session, so that nobody can pile up
 * operations by asking again and again while there is none; and ahead of
 * opening the mail, so that a lock that a backend has given up before it asked
 * is given up in ZooKeeper before the answer.
 */
void
answers_collect(void)
{
	uint32		serial;
	ZkQuestion	question;
	char		path[ZNODE_PATH_SIZE];
	int			box;

	while ((box = questions_take(&serial, &question, path)) >= 0)
	{
		Answer	   *answer = &answers[box];

		forget(answer);
		answer->serial = serial;
		answer->question = question;
		strlcpy(answer->path, path, sizeof(answer->path));
		answer->state = ANSWER_WAITING;
	}
}

/*
 * answers_begin
 *		Begin to answer what has been collected.
 */
void
answers_begin(void)
{
	for (int i = 0; i < ZK_QUESTION_BOXES; i++)
		if (answers[i].state == ANSWER_WAITING)
			start(&answers[i]);
}

/*
 * answers_event
 *		The server has answered an operation of an answer.
 */
void
answers_event(uint32_t owner, const RecipeInput *in)
{
	Answer	   *answer = &answers[owner % ZK_QUESTION_BOXES];

	if (answer->owner != owner)
		return;					/* it has been given up meanwhile */
	answer->open--;
	if (in->result == RECIPE_UNKNOWN)
	{
		start(answer);
		return;
	}
	switch (answer->state)
	{
		case ANSWER_IDLE:
		case ANSWER_WAITING:
			break;
		case ANSWER_LISTING:
			on_list(answer, in);
			break;
		case ANSWER_READING:
			on_read(answer, in);
			break;
		case ANSWER_SURVEYING:
			on_survey(answer, in);
			break;
		case ANSWER_REVOKING:
			on_set(answer, in);
			break;
	}
}

/*
 * answers_restart
 *		The session is over, and with it all operations: ask anew in the next.
 */
void
answers_restart(void)
{
	for (int i = 0; i < ZK_QUESTION_BOXES; i++)
		if (answers[i].state != ANSWER_IDLE)
			start(&answers[i]);
}
