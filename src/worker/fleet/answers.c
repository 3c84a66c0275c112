/*-------------------------------------------------------------------------
 *
 * answers.c
 *		The worker's answers to the questions of backends.
 *
 * An Answer belongs to one question, from when the worker collects it; each
 * box of shared/questions.c has room for one.  Its inputs are the server's
 * answers; its outputs are operations and finally a ZkAnswer for the backend.
 * It begins with a search, so that it sees what was done anywhere before the
 * question was asked.  (A lock that is being given up in a session other than
 * the first may still be seen.)  The states:
 *
 *	IDLE		collected -> WAITING
 *	WAITING		begin -> READING; about the instances, not before fleet.c has
 *				  written our own znode
 *	READING		as reader.c has it; at its end -> IDLE: answer; or, to revoke,
 *				  -> REVOKING: set the data of each owner that is another
 *				  client's
 *				the lock directory, the root or %clusters may not be listed, or
 *				there are too many locks -> IDLE: answer that
 *	REVOKING	set ok: count it
 *				set no node: it has left meanwhile
 *				set refused: note that; it is the answer if none was ok
 *				all are set -> IDLE: answer
 *	any			unknown; session expired -> READING, from the beginning
 *				no backend waits for the answer any more -> IDLE
 *				another question is collected from this box -> WAITING
 *
 * All operations of answers go to the first session.  At each beginning the
 * answer gets another owner ID, so that answers to its earlier operations are
 * no longer delivered to it.
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
#include "shared/outcome.h"
#include "shared/questions.h"
#include "shared/settings.h"
#include "worker/fleet/fleet.h"
#include "worker/fleet/reader_private.h"
#include "worker/zookeeper/session.h"

typedef enum AnswerState
{
	ANSWER_IDLE,
	ANSWER_WAITING,
	ANSWER_READING,
	ANSWER_REVOKING
} AnswerState;

typedef struct Answer
{
	AnswerState state;
	uint32		owner;			/* of its requests, or 0 */
	uint32		serial;			/* of the question in its box */
	ZkQuestion	question;
	char		path[ZNODE_PATH_SIZE];
	Reader	   *reader;			/* READING, REVOKING; else NULL */
	int			open;			/* REVOKING: unanswered sets */
	int			revoked;
	int			error;			/* of a set that was refused, or 0 */
} Answer;

static Answer answers[ZK_QUESTION_BOXES];

static int
box_of(const Answer *answer)
{
	return answer - answers;
}

static void
forget(Answer *answer)
{
	if (answer->reader)
		reader_free(answer->reader);
	answer->reader = NULL;
	answer->open = 0;
	answer->revoked = 0;
	answer->error = 0;
	if (answer->owner != 0)
		session_remove_owner(answer->owner);
	answer->owner = 0;
	answer->state = ANSWER_IDLE;
}

static void on_answer(void *data, const RequestAnswer *in);

/* Begin to answer a question, perhaps again. */
static void
start(Answer *answer)
{
	forget(answer);
	if (!question_is_open(box_of(answer), answer->serial))
		return;
	if (answer->question == ZK_QUESTION_FLEET)
	{
		if (!fleet_is_settled())
		{
			answer->state = ANSWER_WAITING;
			return;
		}
		members_path(zklock_root, answer->path);
	}
	answer->owner = session_add_owner(on_answer, answer);
	answer->state = ANSWER_READING;
	answer->reader = reader_begin(answer->question, answer->owner,
								  answer->path);
}

/*
 * Pass the answer to the backend; "entries" are those of questions.h, or NULL.
 */
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

/* There are more locks than fit into an answer. */
static void
finish_too_large(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1,.too_large = true};

	finish(answer, &reply, NULL);
}

/* Answer with all entries. */
static void
finish_entries(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};
	StringInfoData buf;

	initStringInfo(&buf);
	reply.count = reader_append(answer->reader, &buf);
	reply.left_out = reader_left_out(answer->reader);
	if (answer->question == ZK_QUESTION_FLEET)
		fleet_judge(answer->reader);
	finish(answer, &reply, &buf);
	pfree(buf.data);
}

static void
finish_owner(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};
	const Queue *queue = answer->reader->queues;

	if (queue->n > 0 && queue->nodes[0].data_len >= 0)
	{
		reply.data_len = queue->nodes[0].data_len;
		memcpy(reply.data, queue->nodes[0].data, reply.data_len);
	}
	finish(answer, &reply, NULL);
}

/* The entries are the owners as they were before they were asked. */
static void
finish_revoke(Answer *answer)
{
	ZkAnswer	reply = {.data_len = -1};
	StringInfoData buf;

	if (answer->revoked == 0 && answer->error != 0)
	{
		finish_refused(answer, answer->error);
		return;
	}
	initStringInfo(&buf);
	reply.count = reader_append(answer->reader, &buf);
	reply.revoked = answer->revoked;
	finish(answer, &reply, &buf);
	pfree(buf.data);
}

/* All owners are read: request revocation of those of other clients. */
static void
revoke_owners(Answer *answer)
{
	const Queue *queue = answer->reader->queues;

	answer->state = ANSWER_REVOKING;
	for (int i = 0; i < queue->nread; i++)
	{
		const QueueNode *node = &queue->nodes[i];
		const char *place = queue_directory(node->place);
		Request		set = {
			.kind = REQUEST_SET,
			.node = node->node,
			.data = NOTE_REVOCATION_DATA
		};
		char		directory[ZNODE_PATH_SIZE + 8];

		if (node->gone || node->ours)
			continue;
		snprintf(directory, sizeof(directory), "%s%s%s", answer->path,
				 place ? "/" : "", place ? place : "");
		set.path = directory;
		session_submit(0, answer->owner, &set);
		answer->open++;
	}
	if (answer->open == 0)
		finish_revoke(answer);
}

/* Handle the answer to an operation of the reader. */
static void
on_read(Answer *answer, const RequestAnswer *in)
{
	bool		done = reader_event(answer->reader, in);

	if (!question_is_open(box_of(answer), answer->serial))
		forget(answer);
	else if (answer->reader->error != 0)
		finish_refused(answer, answer->reader->error);
	else if (answer->reader->too_large)
		finish_too_large(answer);
	else if (done)
		switch (answer->question)
		{
			case ZK_QUESTION_QUEUE:
			case ZK_QUESTION_QUEUES:
			case ZK_QUESTION_FLEET:
				finish_entries(answer);
				break;
			case ZK_QUESTION_OWNER:
				finish_owner(answer);
				break;
			case ZK_QUESTION_REVOKE:
				revoke_owners(answer);
				break;
		}
}

static void
on_set(Answer *answer, const RequestAnswer *in)
{
	answer->open--;
	if (in->result == REQUEST_OK)
		answer->revoked++;
	else if (in->result == REQUEST_REFUSED)
		answer->error = in->error;
	if (answer->open == 0)
		finish_revoke(answer);
}

/* Handle the answer to a request. */
static void
on_answer(void *data, const RequestAnswer *in)
{
	Answer	   *answer = data;

	if (in->result == REQUEST_UNKNOWN)
		start(answer);
	else if (answer->state == ANSWER_READING)
		on_read(answer, in);
	else if (answer->state == ANSWER_REVOKING)
		on_set(answer, in);
}

/*
 * answers_collect
 *		Collect the questions that backends have asked.
 *
 * To be called while there is a session, so that no backend can pile up
 * operations by asking repeatedly while there is none; and before the mail is
 * opened, so that a lock that a backend released before it asked is released
 * in ZooKeeper before the answer.
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

/* Begin to answer the collected questions. */
void
answers_begin(void)
{
	for (int i = 0; i < ZK_QUESTION_BOXES; i++)
		if (answers[i].state == ANSWER_WAITING)
			start(&answers[i]);
}

/* The session, with all operations, is over: start over in the next one. */
void
answers_restart(void)
{
	for (int i = 0; i < ZK_QUESTION_BOXES; i++)
		if (answers[i].state != ANSWER_IDLE)
			start(&answers[i]);
}
