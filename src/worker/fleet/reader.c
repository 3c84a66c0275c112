/*-------------------------------------------------------------------------
 *
 * reader.c
 *		Reads queues of contenders, or the members of the fleet.
 *
 * Used for the questions of backends (answers.c), and by fleet.c, which reads
 * the members after joining.  A Reader is for one question.  It lists the
 * directory in question behind a barrier, and so sees all that was done
 * anywhere before; then it reads what matters of each list, many requests at a
 * time.  Its inputs are the server's answers, its outputs operations.
 *
 * A lock has its contenders in its directory, a semaphore in two parts of it;
 * the members are in %clusters.  Each of these is a Queue here; the question
 * about all locks has one for each directory in the root.  The states of a
 * queue:
 *
 *	NAMED		the root's children name it; there is room for an operation
 *				  -> LISTING: list its directory
 *	LISTING		children ok: note its contenders, or members; of a directory
 *				  that is a semaphore, list both parts too
 *				children no node: it has none
 *				children refused: note that
 *				all lists are in -> READING: stat each node that matters
 *	READING		stat ok: get it, if its data matter and are not too large; or,
 *				  if it is not ephemeral, note that it is no contender
 *				get ok: note its data
 *				get or stat refused: leave it at what is known
 *				get or stat no node: it has left meanwhile
 *				all are read -> DONE
 *
 * The question determines which nodes matter: see count_relevant() and
 * wants_data().  For all locks, the first holder and the first waiter of each
 * are read.  If one of them is no contender, the next one is read.  If one has
 * left, the queue has moved, and is listed again when all its operations have
 * been answered; after MAX_LISTS it is DONE with an unknown first holder.  So
 * each row shows one lock at about one moment: the holder was read after the
 * list that had it first.  Rows of different locks are of different moments;
 * each has its own.  Only the entry of a lock that is DONE is kept.  If the
 * entries are longer than ZK_ANSWER_MAX_BYTES, or what is read takes more than
 * MAX_MEMORY, nothing more is read, and there is no answer.
 *
 * Operations of contenders go in the same flights, and must not wait until a
 * long queue is read.  So at most MAX_OPEN operations, or a few more, are out
 * at a time.  Others may be allowed to create znodes in %clusters, of any
 * name, number and size: fewer of those are out, and at most MAX_MEMBERS are
 * read; reader_left_out() returns the number of the others.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/reader.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/note.h"
#include "core/lock/znode.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "worker/fleet/reader_private.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/status.h"

/* The most operations that are out at a time; for members there are fewer. */
#define MAX_OPEN			256
#define MAX_OPEN_OF_MEMBERS	16

#define MAX_MEMBERS			1000

/* How often to list a queue that moves while it is read. */
#define MAX_LISTS			4

/* The bytes of all that is read about all locks, with their entries. */
#define MAX_MEMORY			(64 * 1024 * 1024)

/*
 * What an operation is about, in its serial number: the list of a QueuePlace;
 * or, from NPLACES on, the number of a node; or, in the question about all
 * locks, one of these two, with the number of the queue.
 */
#define PART_HOLDER			NPLACES
#define PART_WAITER			(NPLACES + 1)

#define NPARTS				(PART_WAITER + 1)

/* The serial number of the list of the root. */
#define ROOT_SERIAL			UINT32_MAX

static const char *const directories[NPLACES] = {
	[PLACE_NAME] = NULL,
	[PLACE_PERMITS] = ZNODE_PERMITS_DIR,
	[PLACE_LOCKS] = ZNODE_LOCKS_DIR,
};

/* The path of %clusters below a root. */
void
members_path(const char *root, char path[ZNODE_PATH_SIZE])
{
	snprintf(path, ZNODE_PATH_SIZE, "%s/%s", root, MEMBER_DIR);
}

/* The subdirectory of a place in the lock directory, or NULL. */
const char *
queue_directory(QueuePlace place)
{
	return directories[place];
}

/* Is the question about all locks of a root, with many queues? */
static bool
reads_all(const Reader *reader)
{
	return reader->question == ZK_QUESTION_QUEUES;
}

/* Is it about the members? */
static bool
reads_members(const Reader *reader)
{
	return reader->question == ZK_QUESTION_FLEET;
}

static void
submit(Reader *reader, const Request *op)
{
	session_submit(0, reader->owner, op);
	reader->open++;
}

/* Send an operation for this part of a queue. */
static void
send_op(Reader *reader, Queue *queue, RequestKind kind, uint32 part,
		QueuePlace in, const char *node)
{
	Request		op = {.kind = kind,.serial = part,.node = node};
	const char *place = queue_directory(in);
	char		directory[ZNODE_PATH_SIZE * 2];

	if (reads_all(reader))
		op.serial += (uint32) (queue - reader->queues) * NPARTS;
	snprintf(directory, sizeof(directory), "%s%s%s%s%s", reader->path,
			 queue->name ? "/" : "", queue->name ? queue->name : "",
			 place ? "/" : "", place ? place : "");
	op.path = directory;
	submit(reader, &op);
	queue->open++;
}

/* List a place of a queue. */
static void
send_list(Reader *reader, Queue *queue, RequestKind kind, QueuePlace place)
{
	send_op(reader, queue, kind, place, place, NULL);
}

/*
 * Send the next read of a node.  The stat comes first, so that data that are
 * too long are not read, and because servers before 3.9.2 require no
 * permission for it.
 */
static void
send_read(Reader *reader, Queue *queue, int number)
{
	const QueueNode *node = &queue->nodes[number];
	uint32		part = NPLACES + number;

	if (reads_all(reader))
		part = number == queue->holder ? PART_HOLDER : PART_WAITER;
	send_op(reader, queue, node->seen ? REQUEST_GET : REQUEST_STAT, part,
			node->place, node->node);
}

/* Forget the nodes of a queue. */
static void
free_nodes(Queue *queue)
{
	for (int i = 0; i < queue->n; i++)
	{
		pfree(unconstify(char *, queue->nodes[i].node));
		if (queue->nodes[i].data)
			pfree(unconstify(char *, queue->nodes[i].data));
	}
	if (queue->nodes)
		pfree(queue->nodes);
	queue->nodes = NULL;
	queue->n = queue->max = 0;
}

/* Begin to list a queue of all locks, perhaps again. */
static void
list_queue(Reader *reader, Queue *queue)
{
	free_nodes(queue);
	queue->state = QUEUE_LISTING;
	queue->lists++;
	queue->moved = false;
	send_list(reader, queue, REQUEST_CHILDREN, PLACE_NAME);
}

/* Continue listing and reading, as far as there is room. */
static void
send_more(Reader *reader)
{
	int			max = reads_members(reader) ? MAX_OPEN_OF_MEMBERS : MAX_OPEN;
	Queue	   *queue = reader->queues;

	if (reader->unsure || reader->error != 0 || reader->too_large)
		return;
	while (reader->next < reader->nqueues && reader->open < max)
		list_queue(reader, &reader->queues[reader->next++]);
	while (!reads_all(reader) && queue->next < queue->nread &&
		   reader->open < max)
		send_read(reader, queue, queue->next++);
}

static void
add_node(Queue *queue, QueuePlace place, const char *child,
		 const ZnodeContender *contender)
{
	QueueNode  *node;

	if (queue->n == queue->max)
	{
		Size		size;

		queue->max = Max(queue->max * 2, 4);
		size = queue->max * sizeof(QueueNode);
		queue->nodes = queue->nodes == NULL ?
			palloc_extended(size, MCXT_ALLOC_HUGE) :
			repalloc_huge(queue->nodes, size);
	}
	node = &queue->nodes[queue->n++];
	memset(node, 0, sizeof(*node));
	node->place = place;
	node->node = pstrdup(child);
	node->contender = *contender;
	node->data_len = -1;
}

/* Add the members in a list. */
static void
add_members(Queue *queue, const RequestAnswer *in)
{
	ZnodeContender none;

	memset(&none, 0, sizeof(none));
	for (int i = 0; i < in->nchildren; i++)
		if (member_is_node(in->children[i]))
			add_node(queue, PLACE_NAME, in->children[i], &none);
}

/*
 * Add the contenders in the list of a place.  If it is a semaphore's, list its
 * parts.
 */
static void
add_contenders(Reader *reader, Queue *queue, QueuePlace place,
			   const RequestAnswer *in)
{
	bool		parts[NPLACES] = {false};

	for (int i = 0; i < in->nchildren; i++)
	{
		const char *child = in->children[i];
		ZnodeContender contender;

		if (znode_parse_contender(child, &contender))
			add_node(queue, place, child, &contender);
		else if (place == PLACE_NAME)
			for (int part = PLACE_PERMITS; part < NPLACES; part++)
				parts[part] |= strcmp(child, directories[part]) == 0;
	}
	for (int part = 0; part < NPLACES; part++)
		if (parts[part])
			send_list(reader, queue, REQUEST_CHILDREN, part);
}

static int
compare_nodes(const void *a, const void *b)
{
	const QueueNode *left = a;
	const QueueNode *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;
	if (left->contender.sequence != right->contender.sequence)
		return znode_before(left->contender.sequence,
							right->contender.sequence) ? -1 : 1;
	return strcmp(left->node, right->node);
}

/* Find the first holder and the first waiter, and count both kinds. */
static void
find_first(Queue *queue)
{
	bool		writer = false;

	queue->holder = queue->waiter = -1;
	queue->nholders = queue->nwaiters = 0;
	for (int i = 0; i < queue->n; i++)
	{
		const QueueNode *node = &queue->nodes[i];
		bool		holds;

		if (node->gone)
			continue;

		/*
		 * the first contender of a lock; readers before a writer; owners of
		 * permits
		 */
		if (node->place == PLACE_NAME)
		{
			holds = queue->nholders == 0 ||
				(node->contender.shared && !writer);
			writer |= !node->contender.shared;
		}
		else
			holds = node->place == PLACE_PERMITS;
		if (holds && queue->nholders++ == 0)
			queue->holder = i;
		if (!holds && queue->nwaiters++ == 0)
			queue->waiter = i;
	}
}

/* All lists are in: how many of the first nodes matter? */
static int
count_relevant(const Reader *reader, Queue *queue)
{
	switch (reader->question)
	{
		case ZK_QUESTION_QUEUE:
			return Min(queue->n, ZK_ANSWER_MAX_ENTRIES);
		case ZK_QUESTION_OWNER:
			return Min(queue->n, 1);
		case ZK_QUESTION_REVOKE:
			find_first(queue);
			return Min(queue->waiter < 0 ? queue->n : queue->waiter,
					   ZK_ANSWER_MAX_ENTRIES);
		case ZK_QUESTION_FLEET:
			return Min(queue->n, MAX_MEMBERS);
		case ZK_QUESTION_QUEUES:
			break;				/* see read_first() */
	}
	return 0;
}

/* Do the data of a node matter, or is the stat enough? */
static bool
wants_data(const Reader *reader, const Queue *queue, int number)
{
	return !reads_all(reader) || number == queue->holder;
}

/* Send the next read of a node, if there is one. */
static void
read_on(Reader *reader, Queue *queue, int number)
{
	const QueueNode *node = &queue->nodes[number];

	if (!node->read && (!node->seen || wants_data(reader, queue, number)))
		send_read(reader, queue, number);
}

static ZkQueueMode
mode_of(const QueueNode *node)
{
	if (node->place != PLACE_NAME)
		return ZK_QUEUE_PERMIT;
	return node->contender.shared ? ZK_QUEUE_SHARED : ZK_QUEUE_EXCLUSIVE;
}

static void
align(StringInfo buf, int end)
{
	while (buf->len < end)
		appendStringInfoChar(buf, '\0');
}

/* Append a contender or member as an entry of questions.h. */
static void
append_node(StringInfo buf, const QueueNode *node)
{
	const char *directory = queue_directory(node->place);
	ZkQueueEntry head;
	int			start = buf->len;

	memset(&head, 0, sizeof(head));
	head.session_id = node->session_id;
	head.ctime = node->ctime;
	head.mode = mode_of(node);
	head.ours = node->ours;
	head.node_len = strlen(node->node) +
		(directory ? strlen(directory) + 1 : 0);
	head.data_len = node->data_len;

	appendBinaryStringInfo(buf, (char *) &head, offsetof(ZkQueueEntry, bytes));
	if (directory)
	{
		appendStringInfoString(buf, directory);
		appendStringInfoChar(buf, '/');
	}
	appendStringInfoString(buf, node->node);
	if (node->data_len > 0)
		appendBinaryStringInfo(buf, node->data, node->data_len);
	align(buf, start + ZkQueueEntrySize(&head));
}

/* Append the queue of one of all locks as an entry of questions.h. */
static void
append_queue(StringInfo buf, const Queue *queue)
{
	const QueueNode *holder =
	queue->holder >= 0 ? &queue->nodes[queue->holder] : NULL;
	const QueueNode *waiter =
	queue->waiter >= 0 ? &queue->nodes[queue->waiter] : NULL;
	ZkFleetLockEntry head;
	int			start = buf->len;

	memset(&head, 0, sizeof(head));
	head.seen = queue->seen;
	head.refused = queue->refused;
	if (!queue->refused)
	{
		head.mode = mode_of(holder ? holder : waiter);
		head.nholders = queue->nholders;
		head.nwaiters = queue->nwaiters;
	}
	head.data_len = -1;
	if (holder)
	{
		head.since = holder->ctime;
		head.ours = holder->ours;
		head.data_len = holder->data_len;
	}
	if (waiter)
		head.waiter_since = waiter->ctime;
	head.name_len = strlen(queue->name);

	appendBinaryStringInfo(buf, (char *) &head,
						   offsetof(ZkFleetLockEntry, bytes));
	appendStringInfoString(buf, queue->name);
	if (head.data_len > 0)
		appendBinaryStringInfo(buf, holder->data, head.data_len);
	align(buf, start + ZkFleetLockEntrySize(&head));
}

/*
 * A queue of all locks is read: append its entry, and forget the rest.  A lock
 * that nobody holds or waits for has none.
 */
static void
finish_queue(Reader *reader, Queue *queue)
{
	queue->state = QUEUE_DONE;
	if (queue->refused || queue->nholders + queue->nwaiters > 0)
	{
		append_queue(&reader->entries, queue);
		reader->nentries++;
	}
	free_nodes(queue);
	pfree(queue->name);
	queue->name = NULL;
}

/* Read the first holder and the first waiter, if not done yet. */
static void
read_first(Reader *reader, Queue *queue)
{
	find_first(queue);
	if (queue->holder >= 0)
		read_on(reader, queue, queue->holder);
	if (queue->waiter >= 0)
		read_on(reader, queue, queue->waiter);
	if (queue->open == 0)
		finish_queue(reader, queue);
}

/* Handle a list of a queue. */
static void
on_list(Reader *reader, Queue *queue, QueuePlace place,
		const RequestAnswer *in)
{
	if (in->result == REQUEST_REFUSED)
	{
		queue->refused = true;
		if (!reads_all(reader))
			reader->error = in->error;
	}
	else if (in->result == REQUEST_OK && reads_members(reader))
		add_members(queue, in);
	else if (in->result == REQUEST_OK)
		add_contenders(reader, queue, place, in);
	if (queue->open > 0)
		return;
	queue->seen = GetCurrentTimestamp();
	queue->state = QUEUE_READING;
	if (queue->n > 0 && !reads_members(reader))
		qsort(queue->nodes, queue->n, sizeof(QueueNode), compare_nodes);
	if (reads_all(reader))
		read_first(reader, queue);
	else
		queue->nread = count_relevant(reader, queue);
}

/* Keep a node's data up to a limit, without part of a UTF-8 character. */
static void
note_data(QueueNode *node, const RequestAnswer *in)
{
	int			len = Min(in->data_len, ZK_ANSWER_MAX_DATA);
	char	   *data;

	if (len < in->data_len)
		for (int i = 0; i < 3 && (in->data[len] & 0xC0) == 0x80; i++)
			len--;
	data = palloc(len + 1);
	memcpy(data, in->data, len);
	node->data = data;
	node->data_len = len;
}

/* Note the server's answer about a node, whose data are limited. */
static void
note_node(QueueNode *node, const RequestAnswer *in, int max)
{
	node->read = node->seen || in->result != REQUEST_OK;
	node->seen = true;
	node->gone = in->result == REQUEST_NO_NODE;
	if (in->result != REQUEST_OK)
		return;
	node->ours = in->ours || status_is_ours(in->ephemeral_owner);
	node->session_id = in->ephemeral_owner;
	node->ctime = in->ctime;
	node->gone = !request_is_ephemeral(in);
	node->read |= node->gone || in->size > max;
	if (in->data && in->data_len >= 0)
		note_data(node, in);
}

/* Handle the answer to the read of a node. */
static void
on_read(Reader *reader, Queue *queue, uint32 part, const RequestAnswer *in)
{
	int			number = reads_all(reader) ?
	(part == PART_HOLDER ? queue->holder : queue->waiter) :
	(int) (part - NPLACES);
	QueueNode  *node = &queue->nodes[number];

	note_node(node, in, reads_members(reader) ? MEMBER_SIZE - 1 :
			  NOTE_FULL_SIZE);
	if (reads_members(reader) && in->size >= MEMBER_SIZE)
		node->data_len = 0;		/* nothing of zklock's */
	read_on(reader, queue, number);
	if (!reads_all(reader))
		return;
	queue->moved |= in->result == REQUEST_NO_NODE;
	if (queue->open > 0)
		return;
	if (!queue->moved)
		read_first(reader, queue);
	else if (queue->lists < MAX_LISTS)
		list_queue(reader, queue);
	else
		finish_queue(reader, queue);
}

/* Handle the children of the root: lock directories, and others. */
static void
on_root(Reader *reader, const RequestAnswer *in)
{
	if (in->result == REQUEST_REFUSED)
		reader->error = in->error;
	if (in->result != REQUEST_OK || in->nchildren == 0)
		return;
	reader->too_large = in->nchildren > MAX_MEMORY / (int) sizeof(Queue);
	if (reader->too_large)
		return;
	reader->queues = palloc_extended(in->nchildren * sizeof(Queue),
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < in->nchildren; i++)
	{
		const char *child = in->children[i];
		char		name[ZNODE_MAX_NAME + 1];

		/* no name is encoded as %waits, and so on */
		if (znode_decode_name(child, name, sizeof(name)) >= 0 &&
			(child[0] != '%' || name[0] != '%' || strncmp(child, "%25", 3) == 0))
			reader->queues[reader->nqueues++].name = pstrdup(child);
	}
}

/*
 * reader_begin
 *		Begin to read for a question.
 *
 * "path" is that of the lock directory; of the root, for all locks; or of
 * %clusters.  "owner" is that of the operations.
 */
Reader *
reader_begin(ZkQuestion question, uint32 owner, const char *path)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "zklock reader",
												  ALLOCSET_DEFAULT_SIZES);
	Reader	   *reader = MemoryContextAllocZero(context, sizeof(Reader));
	Request		op = {.kind = REQUEST_SEARCH,.serial = ROOT_SERIAL};

	reader->question = question;
	reader->owner = owner;
	reader->context = context;
	strlcpy(reader->path, path, sizeof(reader->path));
	if (reads_all(reader))
	{
		MemoryContext save = MemoryContextSwitchTo(context);

		initStringInfo(&reader->entries);
		MemoryContextSwitchTo(save);
		op.path = path;
		submit(reader, &op);
		return reader;
	}
	reader->queues = MemoryContextAllocZero(context, sizeof(Queue));
	reader->queues->state = QUEUE_LISTING;
	reader->nqueues = reader->next = 1;
	send_list(reader, reader->queues, REQUEST_SEARCH, PLACE_NAME);
	return reader;
}

/*
 * reader_event
 *		Handle the answer to an operation of the reader.
 *
 * Returns true if it was the last one.  If an answer was lost, or an important
 * list refused, or the answer is too large, no more are sent.
 */
bool
reader_event(Reader *reader, const RequestAnswer *in)
{
	MemoryContext save = MemoryContextSwitchTo(reader->context);

	reader->open--;
	if (in->result == REQUEST_UNKNOWN)
		reader->unsure = true;
	else if (in->serial == ROOT_SERIAL)
		on_root(reader, in);
	else if (!reader->unsure)
	{
		bool		all = reads_all(reader);
		Queue	   *queue = &reader->queues[all ? in->serial / NPARTS : 0];
		uint32		part = all ? in->serial % NPARTS : in->serial;

		queue->open--;
		if (queue->state == QUEUE_LISTING)
			on_list(reader, queue, part, in);
		else
			on_read(reader, queue, part, in);
		reader->too_large |= all &&
			(reader->entries.len > ZK_ANSWER_MAX_BYTES ||
			 MemoryContextMemAllocated(reader->context, false) > MAX_MEMORY);
	}
	send_more(reader);
	MemoryContextSwitchTo(save);
	return reader->open == 0;
}

/* Forget a reader, with what it has read; answers still out are ignored. */
void
reader_free(Reader *reader)
{
	MemoryContextDelete(reader->context);
}

/*
 * reader_append
 *		Append what has been read as entries of questions.h; returns their
 *		number.
 */
int
reader_append(const Reader *reader, StringInfo buf)
{
	const Queue *queue = reader->queues;
	int			count = 0;

	if (reads_all(reader))
	{
		appendBinaryStringInfo(buf, reader->entries.data, reader->entries.len);
		return reader->nentries;
	}
	for (int i = 0; i < queue->nread; i++)
		if (!queue->nodes[i].gone)
		{
			append_node(buf, &queue->nodes[i]);
			count++;
		}
	return count;
}

/*
 * reader_left_out
 *		The number of contenders or members beyond the limit, which were not
 *		read.
 */
int
reader_left_out(const Reader *reader)
{
	return reads_all(reader) ? 0 :
		reader->queues->n - reader->queues->nread;
}

/* Is there a member's znode of this name? */
bool
reader_has(const Reader *reader, const char *node)
{
	const Queue *queue = reader->queues;

	for (int i = 0; i < queue->n; i++)
		if (!queue->nodes[i].gone && strcmp(queue->nodes[i].node, node) == 0)
			return true;
	return false;
}

/* The members, palloc'd, in no order. */
Member *
reader_members(const Reader *reader, int *count)
{
	const Queue *queue = reader->queues;
	Member	   *members = palloc(Max(queue->nread, 1) * sizeof(Member));

	*count = 0;
	for (int i = 0; i < queue->nread; i++)
	{
		const QueueNode *node = &queue->nodes[i];
		Member	   *member = &members[*count];

		if (node->gone)
			continue;
		member_parse(member, node->data, node->data_len);
		member->since = node->ctime;
		(*count)++;
	}
	return members;
}
