/*-------------------------------------------------------------------------
 *
 * census.c
 *		Which clusters are in the fleet, as ZooKeeper has them.
 *
 * The answer to zk_clusters(), and what the worker itself looks at when it has
 * joined.  A census lists <root>/%clusters behind a barrier, and then reads each
 * znode there whose name is a cluster's, MAX_OPEN at a time: first the stat, then
 * the data, if it is ephemeral and they are no longer than a cluster's.  What the
 * server answers goes in, operations come out, as in survey.c.
 *
 * Others may be allowed to create znodes there, of any name, number and size, and
 * the operations of contenders go in the same flights.  So no more than MAX_NODES
 * are read, and the census tells how many are left out.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/census.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/questions.h"
#include "worker/fleet/census.h"
#include "worker/fleet/queue_list.h"
#include "worker/zookeeper/session.h"

#define MAX_NODES		1000

/* How many operations of a census may be out at a time. */
#define MAX_OPEN		16

/* The serial number of the list; a node's is its place among them. */
#define LIST_SERIAL		UINT32_MAX

struct Census
{
	uint32		owner;			/* of its operations */
	char		room[ZNODE_PATH_SIZE];
	MemoryContext context;		/* of it, and of what it points to */
	QueueNode  *nodes;
	int			n;
	int			nread;			/* as many of them are read at most */
	int			next;			/* the first that no operation is for */
	int			open;			/* operations that are not answered */
	bool		unsure;			/* an answer was lost */
};

/*
 * census_room
 *		The path of %clusters below a root.
 */
void
census_room(const char *root, char room[ZNODE_PATH_SIZE])
{
	snprintf(room, ZNODE_PATH_SIZE, "%s/%s", root, MEMBER_ROOM);
}

static void
submit(Census *census, RequestKind kind, const char *node, uint32 serial)
{
	Request		op = {.kind = kind,.serial = serial,.node = node};

	session_submit(0, census->owner, census->room, &op, 0);
	census->open++;
}

/*
 * census_begin
 *		Begin a census below a root, in a memory context of the caller's, which
 *		is the current one and is to be deleted with it.
 *
 * "owner" is the id of its operations.
 */
Census *
census_begin(uint32 owner, const char *root)
{
	Census	   *census = palloc0(sizeof(Census));

	census->owner = owner;
	census->context = CurrentMemoryContext;
	census_room(root, census->room);
	submit(census, REQUEST_SEARCH, NULL, LIST_SERIAL);
	return census;
}

static void
read_node(Census *census, int i)
{
	const QueueNode *node = &census->nodes[i];

	submit(census, queue_next_op(node), node->node, i);
}

/* Go on reading, unless all is to be done again. */
static void
read_more(Census *census)
{
	while (census->next < census->nread && census->open < MAX_OPEN &&
		   !census->unsure)
		read_node(census, census->next++);
}

static void
on_list(Census *census, const RequestAnswer *in)
{
	if (in->result != REQUEST_OK || in->nchildren == 0)
		return;
	census->nodes = palloc_extended(in->nchildren * sizeof(QueueNode),
									MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < in->nchildren; i++)
		if (member_is_node(in->children[i]))
		{
			QueueNode  *node = &census->nodes[census->n++];

			node->node = pstrdup(in->children[i]);
			node->data_len = -1;
		}
	census->nread = Min(census->n, MAX_NODES);
}

static void
on_read(Census *census, const RequestAnswer *in)
{
	QueueNode  *node = &census->nodes[in->serial];

	if (in->result == REQUEST_UNKNOWN)
		return;
	queue_note(node, in, MEMBER_SIZE - 1);
	if (in->size >= MEMBER_SIZE)
		node->data_len = 0;		/* nothing of zklock's */
	if (!node->read && !census->unsure)
		read_node(census, in->serial);
}

/*
 * census_event
 *		The server has answered an operation of the census.
 *
 * Returns true if it was the last one.  *error is ZooKeeper's, if it refused to
 * list the clusters; else 0.
 */
bool
census_event(Census *census, const RequestAnswer *in, int *error)
{
	MemoryContext save = MemoryContextSwitchTo(census->context);

	*error = 0;
	census->open--;
	census->unsure |= in->result == REQUEST_UNKNOWN;
	if (in->serial != LIST_SERIAL)
		on_read(census, in);
	else if (in->result == REQUEST_REFUSED)
		*error = in->error;
	else
		on_list(census, in);
	read_more(census);
	MemoryContextSwitchTo(save);
	return census->open == 0;
}

/*
 * census_is_unsure
 *		Was an answer lost, so that all is to be done again?
 */
bool
census_is_unsure(const Census *census)
{
	return census->unsure;
}

/*
 * census_has
 *		Is there a znode of this name?
 */
bool
census_has(const Census *census, const char *node)
{
	for (int i = 0; i < census->n; i++)
		if (!census->nodes[i].gone && strcmp(census->nodes[i].node, node) == 0)
			return true;
	return false;
}

/*
 * census_left_out
 *		How many znodes of clusters were too many to read?
 */
int
census_left_out(const Census *census)
{
	return census->n - census->nread;
}

/*
 * census_members
 *		The clusters, palloc'd, in no order.
 */
Member *
census_members(const Census *census, int *count)
{
	Member	   *members = palloc(Max(census->nread, 1) * sizeof(Member));

	*count = 0;
	for (int i = 0; i < census->nread; i++)
	{
		const QueueNode *node = &census->nodes[i];
		Member	   *member = &members[*count];

		if (node->gone)
			continue;
		member_parse(member, node->data, node->data_len);
		member->since = node->ctime;
		(*count)++;
	}
	return members;
}

/*
 * census_entries
 *		The same as entries of questions.h; returns how many there are.
 */
int
census_entries(const Census *census, StringInfo buf)
{
	int			count = 0;

	for (int i = 0; i < census->nread; i++)
	{
		if (census->nodes[i].gone)
			continue;
		queue_append_entry(buf, &census->nodes[i]);
		count++;
	}
	return count;
}
