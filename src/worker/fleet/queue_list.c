/*-------------------------------------------------------------------------
 *
 * queue_list.c
 *		The contenders of a lock or semaphore, as they are read from ZooKeeper.
 *
 * For the answers to questions of backends.  A lock has its contenders in its
 * directory, a semaphore in two parts of that.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/queue_list.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "worker/fleet/queue_list.h"
#include "worker/zookeeper/status.h"

static const char *const directories[NPLACES] = {
	[PLACE_NAME] = NULL,
	[PLACE_PERMITS] = ZNODE_PERMITS_DIR,
	[PLACE_LOCKS] = ZNODE_LOCKS_DIR,
};

/*
 * queue_directory
 *		Where in the lock directory a place is; NULL: it is the directory.
 */
const char *
queue_directory(QueuePlace place)
{
	return directories[place];
}

/*
 * queue_clear
 *		Forget all contenders, to list them again.
 */
void
queue_clear(QueueList *list)
{
	for (int i = 0; i < list->n; i++)
		pfree(unconstify(char *, list->nodes[i].node));
	list->n = 0;
}

static void
add_node(QueueList *list, QueuePlace place, const char *child,
		 const ZnodeContender *contender)
{
	QueueNode  *node;

	if (list->n == list->max)
	{
		Size		size;

		list->max = Max(list->max * 2, 4);
		size = list->max * sizeof(QueueNode);
		list->nodes = list->nodes == NULL ?
			palloc_extended(size, MCXT_ALLOC_HUGE) :
			repalloc_huge(list->nodes, size);
	}
	node = &list->nodes[list->n++];
	memset(node, 0, sizeof(*node));
	node->place = place;
	node->node = pstrdup(child);
	node->contender = *contender;
	node->data_len = -1;
}

/*
 * queue_add
 *		Add the contenders that the list of a place has, which may be none.
 *
 * "parts" tells which other places are to be listed: those of a semaphore.  All
 * is palloc'd in the current context.
 */
void
queue_add(QueueList *list, QueuePlace place, const RequestAnswer *in,
		  bool parts[NPLACES])
{
	memset(parts, 0, NPLACES * sizeof(bool));
	for (int i = 0; in->result == REQUEST_OK && i < in->nchildren; i++)
	{
		const char *child = in->children[i];
		ZnodeContender contender;

		if (znode_parse_contender(child, &contender))
			add_node(list, place, child, &contender);
		else if (place == PLACE_NAME)
			for (int part = PLACE_PERMITS; part < NPLACES; part++)
				parts[part] |= strcmp(child, directories[part]) == 0;
	}
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

/*
 * queue_sort
 *		All lists are in: put the contenders in order.
 */
void
queue_sort(QueueList *list)
{
	if (list->n > 0)
		qsort(list->nodes, list->n, sizeof(QueueNode), compare_nodes);
}

/* Keep so much of a node's data, and no part of a character of UTF-8. */
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

/*
 * queue_next_op
 *		What to ask next of a znode that is not read.
 */
RequestKind
queue_next_op(const QueueNode *node)
{
	return node->seen ? REQUEST_GET : REQUEST_STAT;
}

/*
 * queue_note
 *		Note what the server has answered to that; not UNKNOWN.
 *
 * The stat comes first, so that data of more than "max" bytes are not read, and
 * because it needs no permission with servers before 3.9.2.
 */
void
queue_note(QueueNode *node, const RequestAnswer *in, int max)
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

/*
 * queue_mode
 *		What a contender is.
 */
ZkQueueMode
queue_mode(const QueueNode *node)
{
	if (node->place != PLACE_NAME)
		return ZK_QUEUE_PERMIT;
	return node->contender.shared ? ZK_QUEUE_SHARED : ZK_QUEUE_EXCLUSIVE;
}

/*
 * queue_append_entry
 *		Append what is known of a contender as an entry of questions.h.
 */
void
queue_append_entry(StringInfo buf, const QueueNode *entry)
{
	const char *directory = queue_directory(entry->place);
	ZkQueueEntry head;
	int			start = buf->len;
	Size		size;

	memset(&head, 0, sizeof(head));
	head.session_id = entry->session_id;
	head.ctime = entry->ctime;
	head.mode = queue_mode(entry);
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
