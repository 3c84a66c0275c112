/*-------------------------------------------------------------------------
 *
 * answers.c
 *		The worker's answers to the questions of backends.
 *
 * One ZkQuery is one question that is being answered; there is room for one to
 * each box of shared/questions.c.  Answers of the server go in, operations come
 * out, and in the end an answer for the backend.  A query begins with a search,
 * so that it sees what was done anywhere before it was asked.  The states:
 *
 *	IDLE		collected -> WAITING
 *	WAITING		begin -> LISTING: search the lock directory
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
 *	REVOKING	set ok: count it
 *				set no node: it has left meanwhile
 *				set refused: note that; it is the answer if none was ok
 *				all are set -> IDLE: answer
 *	any			unknown; session expired -> LISTING, all anew; or, if nobody
 *				  waits for the answer any more, -> IDLE
 *				nobody waits when the lists are in -> IDLE
 *				another question is collected from this box -> WAITING
 *
 * Each beginning gives the query another owner id, so that answers to
 * operations of before are no longer its own.  No more than MAX_OPEN
 * operations are out at a time: those of contenders go in the same flights,
 * and must not wait for all of a long queue to be read.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/answers.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "shared/questions.h"
#include "utils/memutils.h"
#include "worker/answers.h"
#include "worker/session.h"

/* How many operations of one query may be out at a time. */
#define MAX_OPEN		256

typedef enum QueryState
{
	QUERY_IDLE,
	QUERY_WAITING,
	QUERY_LISTING,
	QUERY_READING,
	QUERY_REVOKING
} QueryState;

/* Where a contender stands, in the order in which they are told. */
typedef enum QueryPlace
{
	PLACE_NAME,					/* the lock directory */
	PLACE_LEASES,				/* of a semaphore: has a permit */
	PLACE_LOCKS					/* of a semaphore: waits for one */
} QueryPlace;

static const char *const place_directory[] = {
	[PLACE_NAME] = NULL,
	[PLACE_LEASES] = ZNODE_PERMITS_DIR,
	[PLACE_LOCKS] = ZNODE_LOCKS_DIR,
};

typedef struct QueryEntry
{
	QueryPlace	place;
	const char *node;
	ZnodeContender contender;
	bool		gone;
	bool		ours;			/* our session's */
	int64		session_id;
	int64		ctime;
	int			data_len;		/* -1: none */
	const char *data;
} QueryEntry;

typedef struct ZkQuery
{
	QueryState	state;
	uint32		owner;			/* id of its operations */
	uint32		serial;			/* of the question in its box */
	ZkQuestion	question;
	char		path[ZNODE_PATH_SIZE];
	MemoryContext context;		/* of the entries and what they point to */
	QueryEntry *entries;
	int			nentries;
	int			maxentries;
	int			next;			/* the first entry that no operation is for */
	int			open;			/* operations that are not answered */
	int			revoked;
	int			error;			/* of a set that was refused, or 0 */
} ZkQuery;

static ZkQuery queries[ZK_QUESTION_BOXES];
static uint32 last_attempt = 0;

static void
send_op(ZkQuery *query, RecipeOpKind kind, QueryPlace place, const char *node,
		uint32 serial)
{
	RecipeOp	op = {.kind = kind,.serial = serial,.node = node};
	char		directory[ZNODE_PATH_SIZE + 8];

	strlcpy(directory, query->path, sizeof(directory));
	if (place_directory[place])
	{
		strlcat(directory, "/", sizeof(directory));
		strlcat(directory, place_directory[place], sizeof(directory));
	}
	if (kind == RECIPE_OP_SET)
		op.data = RECIPE_REVOKE_DATA;
	session_submit(query->owner, directory, &op, 0);
	query->open++;
}

static int
box_of(const ZkQuery *query)
{
	return query - queries;
}

static void
forget(ZkQuery *query)
{
	if (query->context)
		MemoryContextDelete(query->context);
	query->context = NULL;
	query->entries = NULL;
	query->nentries = 0;
	query->maxentries = 0;
	query->next = 0;
	query->open = 0;
	query->revoked = 0;
	query->error = 0;
	query->owner = 0;
	query->state = QUERY_IDLE;
}

/* Begin to answer a question, or begin again. */
static void
start(ZkQuery *query)
{
	forget(query);
	if (!question_is_open(box_of(query), query->serial))
		return;
	query->context = AllocSetContextCreate(TopMemoryContext, "zklock query",
										   ALLOCSET_DEFAULT_SIZES);
	last_attempt++;
	query->owner = ANSWERS_OWNER |
		((last_attempt * ZK_QUESTION_BOXES + box_of(query)) & ~ANSWERS_OWNER);
	query->state = QUERY_LISTING;
	send_op(query, RECIPE_OP_SEARCH, PLACE_NAME, NULL, PLACE_NAME);
}

/* Give the answer; "entries" are those of a queue. */
static void
finish(ZkQuery *query, ZkAnswer *answer, StringInfo entries)
{
	question_set_answer(box_of(query), query->serial, answer,
						entries ? entries->data : NULL,
						entries ? entries->len : 0);
	forget(query);
}

static void
finish_refused(ZkQuery *query, int error)
{
	ZkAnswer	answer = {.data_len = -1};

	answer.refusal = session_error_is_access(error) ?
		ZK_REFUSAL_ACCESS : ZK_REFUSAL_OTHER;
	ereport(LOG,
			(errmsg("ZooKeeper refused a query of \"%s\": %s",
					query->path, session_error_text(error))));
	finish(query, &answer, NULL);
}

static ZkQueueMode
mode_of(const QueryEntry *entry)
{
	if (entry->place != PLACE_NAME)
		return ZK_QUEUE_PERMIT;
	return entry->contender.shared ? ZK_QUEUE_SHARED : ZK_QUEUE_EXCLUSIVE;
}

static void
append_entry(StringInfo buf, const QueryEntry *entry)
{
	const char *directory = place_directory[entry->place];
	ZkQueueEntry head;
	int			start = buf->len;
	Size		size;

	memset(&head, 0, sizeof(head));
	head.session_id = entry->session_id;
	head.ctime = entry->ctime;
	head.mode = mode_of(entry);
	head.node_len = strlen(entry->node) + (directory ? strlen(directory) + 1 : 0);
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
finish_queue(ZkQuery *query)
{
	ZkAnswer	answer = {.data_len = -1};
	StringInfoData buf;
	MemoryContext save = MemoryContextSwitchTo(query->context);

	initStringInfo(&buf);
	for (int i = 0; i < query->nentries; i++)
		if (!query->entries[i].gone)
		{
			append_entry(&buf, &query->entries[i]);
			answer.count++;
		}
	MemoryContextSwitchTo(save);
	finish(query, &answer, &buf);
}

static void
finish_owner(ZkQuery *query)
{
	ZkAnswer	answer = {.data_len = -1};

	if (query->nentries > 0 && query->entries[0].data_len >= 0)
	{
		answer.data_len = query->entries[0].data_len;
		memcpy(answer.data, query->entries[0].data, answer.data_len);
	}
	finish(query, &answer, NULL);
}

static void
finish_revoke(ZkQuery *query)
{
	ZkAnswer	answer = {.data_len = -1};

	if (query->revoked == 0 && query->error != 0)
	{
		finish_refused(query, query->error);
		return;
	}
	answer.count = query->revoked;
	finish(query, &answer, NULL);
}

/* All contenders are read: ask those of other clients to give way. */
static void
revoke_owners(ZkQuery *query)
{
	query->state = QUERY_REVOKING;
	for (int i = 0; i < query->nentries; i++)
	{
		const QueryEntry *entry = &query->entries[i];

		if (!entry->gone && !entry->ours)
			send_op(query, RECIPE_OP_SET, entry->place, entry->node, i);
	}
	if (query->open == 0)
		finish_revoke(query);
}

/* Go on reading, or to what comes then. */
static void
read_more(ZkQuery *query)
{
	while (query->next < query->nentries && query->open < MAX_OPEN)
	{
		const QueryEntry *entry = &query->entries[query->next];

		send_op(query, RECIPE_OP_GET, entry->place, entry->node, query->next);
		query->next++;
	}
	if (query->open > 0)
		return;
	switch (query->question)
	{
		case ZK_QUESTION_QUEUE:
			finish_queue(query);
			break;
		case ZK_QUESTION_OWNER:
			finish_owner(query);
			break;
		case ZK_QUESTION_REVOKE:
			revoke_owners(query);
			break;
	}
}

static int
compare_entries(const void *a, const void *b)
{
	const QueryEntry *left = a;
	const QueryEntry *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;
	if (left->contender.sequence != right->contender.sequence)
		return znode_before(left->contender.sequence,
							right->contender.sequence) ? -1 : 1;
	return strcmp(left->node, right->node);
}

/* How many of the sorted entries matter for the question? */
static int
count_relevant(const ZkQuery *query)
{
	int			n = 0;

	switch (query->question)
	{
		case ZK_QUESTION_QUEUE:
			return Min(query->nentries, ZK_ANSWER_MAX_ENTRIES);
		case ZK_QUESTION_OWNER:
			return Min(query->nentries, 1);
		case ZK_QUESTION_REVOKE:
			break;
	}

	/* the first of a lock; readers, up to a writer; who has a permit */
	while (n < query->nentries && n < ZK_ANSWER_MAX_ENTRIES &&
		   (query->entries[n].place == PLACE_NAME ?
			n == 0 || (query->entries[0].contender.shared &&
					   query->entries[n].contender.shared) :
			query->entries[n].place == PLACE_LEASES))
		n++;
	return n;
}

static void
add_entry(ZkQuery *query, QueryPlace place, const char *child,
		  const ZnodeContender *contender)
{
	MemoryContext save = MemoryContextSwitchTo(query->context);
	QueryEntry *entry;

	if (query->nentries == query->maxentries)
	{
		Size		size;

		query->maxentries = Max(query->maxentries * 2, 16);
		size = query->maxentries * sizeof(QueryEntry);
		query->entries = query->entries == NULL ?
			palloc_extended(size, MCXT_ALLOC_HUGE) :
			repalloc_huge(query->entries, size);
	}
	entry = &query->entries[query->nentries++];
	memset(entry, 0, sizeof(*entry));
	entry->place = place;
	entry->node = pstrdup(child);
	entry->contender = *contender;
	entry->data_len = -1;
	MemoryContextSwitchTo(save);
}

/* A list of children is in; its serial number is the place. */
static void
on_list(ZkQuery *query, const RecipeInput *in)
{
	QueryPlace	place = (QueryPlace) in->serial;

	if (in->result == RECIPE_REFUSED)
	{
		finish_refused(query, in->error);
		return;
	}
	for (int i = 0; in->result == RECIPE_OK && i < in->nchildren; i++)
	{
		const char *child = in->children[i];
		ZnodeContender contender;

		if (znode_parse_contender(child, &contender))
			add_entry(query, place, child, &contender);
		else if (place == PLACE_NAME &&
				 strcmp(child, ZNODE_PERMITS_DIR) == 0)
			send_op(query, RECIPE_OP_CHILDREN, PLACE_LEASES, NULL, PLACE_LEASES);
		else if (place == PLACE_NAME &&
				 strcmp(child, ZNODE_LOCKS_DIR) == 0)
			send_op(query, RECIPE_OP_CHILDREN, PLACE_LOCKS, NULL, PLACE_LOCKS);
	}
	if (query->open > 0)
		return;

	if (!question_is_open(box_of(query), query->serial))
	{
		forget(query);
		return;
	}
	if (query->nentries > 0)
		qsort(query->entries, query->nentries, sizeof(QueryEntry), compare_entries);
	query->nentries = count_relevant(query);
	query->state = QUERY_READING;
	read_more(query);
}

/* Keep so much of a node's data, and no part of a character of UTF-8. */
static void
note_data(ZkQuery *query, QueryEntry *entry, const RecipeInput *in)
{
	int			len = Min(in->data_len, ZK_ANSWER_MAX_DATA);
	char	   *data;

	if (len < in->data_len)
		for (int i = 0; i < 3 && (in->data[len] & 0xC0) == 0x80; i++)
			len--;
	data = MemoryContextAlloc(query->context, len + 1);
	memcpy(data, in->data, len);
	entry->data = data;
	entry->data_len = len;
}

static void
on_read(ZkQuery *query, const RecipeInput *in)
{
	QueryEntry *entry = &query->entries[in->serial];

	switch (in->result)
	{
		case RECIPE_OK:
			entry->ours = in->ours;
			entry->session_id = in->ephemeral_owner;
			entry->ctime = in->ctime;
			entry->gone = !recipe_is_ephemeral(in);
			if (in->data && in->data_len >= 0)
				note_data(query, entry, in);
			break;
		case RECIPE_NO_NODE:
			entry->gone = true;
			break;
		case RECIPE_REFUSED:
			if (in->event == RECIPE_GET_DONE)
				send_op(query, RECIPE_OP_STAT, entry->place, entry->node,
						in->serial);
			break;
		case RECIPE_UNKNOWN:
			break;				/* not here */
	}
	read_more(query);
}

static void
on_set(ZkQuery *query, const RecipeInput *in)
{
	if (in->result == RECIPE_OK)
		query->revoked++;
	else if (in->result == RECIPE_REFUSED)
		query->error = in->error;
	if (query->open == 0)
		finish_revoke(query);
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
		ZkQuery    *query = &queries[box];

		forget(query);
		query->serial = serial;
		query->question = question;
		strlcpy(query->path, path, sizeof(query->path));
		query->state = QUERY_WAITING;
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
		if (queries[i].state == QUERY_WAITING)
			start(&queries[i]);
}

/*
 * answers_event
 *		An operation of a query is answered.
 */
void
answers_event(uint32_t owner, const RecipeInput *in)
{
	ZkQuery    *query = &queries[owner % ZK_QUESTION_BOXES];

	if (query->owner != owner)
		return;					/* it has been given up meanwhile */
	query->open--;
	if (in->result == RECIPE_UNKNOWN)
	{
		start(query);
		return;
	}
	switch (query->state)
	{
		case QUERY_IDLE:
		case QUERY_WAITING:
			break;
		case QUERY_LISTING:
			on_list(query, in);
			break;
		case QUERY_READING:
			on_read(query, in);
			break;
		case QUERY_REVOKING:
			on_set(query, in);
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
		if (queries[i].state != QUERY_IDLE)
			start(&queries[i]);
}
