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
 *				begin, of all queues or of the clusters -> SURVEYING; of the
 *				  clusters not before fleet.c is done with our own znode
 *	LISTING		children ok: note its contenders; of a directory that is a
 *				  semaphore, list both parts too
 *				children no node: it has none
 *				children refused -> IDLE: answer that
 *				all lists are in -> READING: stat each contender that matters
 *	READING		stat ok: get it, if its data matter and are not too large; or, if
 *				  it is not ephemeral, note that it is no contender
 *				get ok: note what it says of itself
 *				get or stat no node: it has left meanwhile
 *				get or stat refused: leave it at what is known
 *				all are read -> IDLE: answer; or, to revoke, -> REVOKING: set
 *				  the data of each owner that is another client's
 *	SURVEYING	as survey.c or census.c has it; at its end -> IDLE: answer
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
 *		src/worker/fleet/answers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/note.h"
#include "core/lock/znode.h"
#include "lib/stringinfo.h"
#include "shared/questions.h"
#include "shared/refusal.h"
#include "shared/settings.h"
#include "utils/memutils.h"
#include "worker/fleet/answers.h"
#include "worker/fleet/census.h"
#include "worker/fleet/fleet.h"
#include "worker/fleet/queue_list.h"
#include "worker/fleet/survey.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/status.h"

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

typedef struct Answer
{
	AnswerState state;
	uint32		owner;			/* id of its operations */
	uint32		serial;			/* of the question in its box */
	ZkQuestion	question;
	char		path[ZNODE_PATH_SIZE];
	MemoryContext context;		/* of all that follows */
	Survey	   *survey;			/* of all queues; else NULL */
	Census	   *census;			/* of the clusters; else NULL */
	QueueList	queue;
	int			next;			/* the first entry that no operation is for */
	int			open;			/* operations that are not answered */
	int			left_out;		/* contenders that are too many to tell of */
	int			revoked;
	int			error;			/* of a set that was refused, or 0 */
} Answer;

static Answer answers[ZK_QUESTION_BOXES];
static uint32 last_attempt = 0;

static void
send_op(Answer *answer, RequestKind kind, QueuePlace place, const char *node,
		uint32 serial)
{
	Request		op = {.kind = kind,.serial = serial,.node = node};
	char		directory[ZNODE_PATH_SIZE + 8];

	strlcpy(directory, answer->path, sizeof(directory));
	if (queue_directory(place))
	{
		strlcat(directory, "/", sizeof(directory));
		strlcat(directory, queue_directory(place), sizeof(directory));
	}
	if (kind == REQUEST_SET)
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
	answer->census = NULL;
	memset(&answer->queue, 0, sizeof(answer->queue));
	answer->next = 0;
	answer->open = 0;
	answer->left_out = 0;
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
	if (answer->question == ZK_QUESTION_CLUSTERS && !fleet_is_settled())
	{
		answer->state = ANSWER_WAITING;
		return;
	}
	answer->context = AllocSetContextCreate(TopMemoryContext, "zklock answer",
											ALLOCSET_DEFAULT_SIZES);
	last_attempt++;
	answer->owner = ANSWERS_OWNER |
		((last_attempt * ZK_QUESTION_BOXES + box_of(answer)) & ~ANSWERS_OWNER);
	if (answer->question == ZK_QUESTION_QUEUES ||
		answer->question == ZK_QUESTION_CLUSTERS)
	{
		MemoryContext save = MemoryContextSwitchTo(answer->context);

		answer->state = ANSWER_SURVEYING;
		if (answer->question == ZK_QUESTION_QUEUES)
			answer->survey = survey_begin(answer->owner, answer->path);
		else
		{
			census_room(zklock_root, answer->path);
			answer->census = census_begin(answer->owner, zklock_root);
		}
		MemoryContextSwitchTo(save);
		return;
	}
	answer->state = ANSWER_LISTING;
	send_op(answer, REQUEST_SEARCH, PLACE_NAME, NULL, PLACE_NAME);
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

static void
finish_queue(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1,.left_out = answer->left_out};
	StringInfoData buf;
	MemoryContext save = MemoryContextSwitchTo(answer->context);

	initStringInfo(&buf);
	for (int i = 0; i < answer->queue.n; i++)
		if (!answer->queue.nodes[i].gone)
		{
			queue_append_entry(&buf, &answer->queue.nodes[i]);
			reply.count++;
		}
	MemoryContextSwitchTo(save);
	finish(answer, &reply, &buf);
}

static void
finish_owner(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};

	if (answer->queue.n > 0 && answer->queue.nodes[0].data_len >= 0)
	{
		reply.data_len = answer->queue.nodes[0].data_len;
		memcpy(reply.data, answer->queue.nodes[0].data, reply.data_len);
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
	for (int i = 0; i < answer->queue.n; i++)
	{
		const QueueNode *entry = &answer->queue.nodes[i];

		if (!entry->gone && !entry->ours)
			send_op(answer, REQUEST_SET, entry->place, entry->node, i);
	}
	if (answer->open == 0)
		finish_revoke(answer);
}

static void
read_entry(Answer *answer, int i)
{
	const QueueNode *entry = &answer->queue.nodes[i];

	send_op(answer, queue_next_op(entry), entry->place, entry->node, i);
}

/* Go on reading, or to what comes then. */
static void
read_more(Answer *answer)
{
	while (answer->next < answer->queue.n && answer->open < MAX_OPEN)
		read_entry(answer, answer->next++);
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
		case ZK_QUESTION_CLUSTERS:
			break;				/* not here */
	}
}

/* How many of the sorted entries matter for the question? */
static int
count_relevant(const Answer *answer)
{
	int			n = 0;

	switch (answer->question)
	{
		case ZK_QUESTION_QUEUE:
			return Min(answer->queue.n, ZK_ANSWER_MAX_ENTRIES);
		case ZK_QUESTION_OWNER:
			return Min(answer->queue.n, 1);
		case ZK_QUESTION_REVOKE:
		case ZK_QUESTION_QUEUES:
		case ZK_QUESTION_CLUSTERS:
			break;
	}

	/* the first of a lock; readers, up to a writer; who has a permit */
	while (n < answer->queue.n && n < ZK_ANSWER_MAX_ENTRIES &&
		   (answer->queue.nodes[n].place == PLACE_NAME ?
			n == 0 || (answer->queue.nodes[0].contender.shared &&
					   answer->queue.nodes[n].contender.shared) :
			answer->queue.nodes[n].place == PLACE_PERMITS))
		n++;
	return n;
}

/* A list of children is in; its serial number is the place. */
static void
on_list(Answer *answer, const RequestAnswer *in)
{
	QueuePlace	place = (QueuePlace) in->serial;
	bool		parts[NPLACES];
	MemoryContext save;
	int			n;

	if (in->result == REQUEST_REFUSED)
	{
		finish_refused(answer, in->error);
		return;
	}
	save = MemoryContextSwitchTo(answer->context);
	queue_add(&answer->queue, place, in, parts);
	MemoryContextSwitchTo(save);
	for (int part = 0; part < NPLACES; part++)
		if (parts[part])
			send_op(answer, REQUEST_CHILDREN, part, NULL, part);
	if (answer->open > 0)
		return;

	if (!question_is_open(box_of(answer), answer->serial))
	{
		forget(answer);
		return;
	}
	queue_sort(&answer->queue);
	n = count_relevant(answer);
	answer->left_out = answer->queue.n - n;
	answer->queue.n = n;
	answer->state = ANSWER_READING;
	read_more(answer);
}

static void
on_read(Answer *answer, const RequestAnswer *in)
{
	QueueNode  *entry = &answer->queue.nodes[in->serial];
	MemoryContext save = MemoryContextSwitchTo(answer->context);

	queue_note(entry, in, NOTE_FULL_SIZE);
	MemoryContextSwitchTo(save);
	if (!entry->read && answer->question != ZK_QUESTION_REVOKE)
		read_entry(answer, in->serial);
	read_more(answer);
}

static void
on_set(Answer *answer, const RequestAnswer *in)
{
	if (in->result == REQUEST_OK)
		answer->revoked++;
	else if (in->result == REQUEST_REFUSED)
		answer->error = in->error;
	if (answer->open == 0)
		finish_revoke(answer);
}

/* The server has answered an operation of a survey, or of a census. */
static void
on_survey(Answer *answer, const RequestAnswer *in)
{
	ZkAnswer	reply = {.data_len = -1};
	StringInfoData buf;
	MemoryContext save;
	int			error;
	bool		done = answer->survey ?
		survey_event(answer->survey, in, &error) :
		census_event(answer->census, in, &error);

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
	reply.count = answer->survey ? survey_entries(answer->survey, &buf) :
		census_entries(answer->census, &buf);
	MemoryContextSwitchTo(save);
	if (answer->census)
	{
		reply.left_out = census_left_out(answer->census);
		fleet_judge(answer->census);
	}
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
answers_event(uint32_t owner, const RequestAnswer *in)
{
	Answer	   *answer = &answers[owner % ZK_QUESTION_BOXES];

	if (answer->owner != owner)
		return;					/* it has been given up meanwhile */
	answer->open--;
	if (in->result == REQUEST_UNKNOWN)
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
