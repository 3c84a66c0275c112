/*-------------------------------------------------------------------------
 *
 * census.c
 *		Which clusters are in the fleet, as ZooKeeper has them.
 *
 * The answer to zk_clusters(), and what the worker itself looks at when it has
 * joined.  A census lists <root>/%clusters behind a barrier, and then reads each
 * znode there, all in one flight; of one that may not be read it asks for the
 * stat.  What the server answers goes in, operations come out, as in survey.c.
 * At most MAX_NODES are read: anybody may create znodes there.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/census.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/questions.h"
#include "worker/census.h"
#include "worker/queue_list.h"
#include "worker/session.h"

#define MAX_NODES		1000

/* The serial number of the list; a node's is its place among them. */
#define LIST_SERIAL		UINT32_MAX

struct Census
{
	uint32		owner;			/* of its operations */
	char		room[ZNODE_PATH_SIZE];
	MemoryContext context;		/* of it, and of what it points to */
	QueueNode  *nodes;
	int			n;
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
submit(Census *census, RecipeOpKind kind, const char *node, uint32 serial)
{
	RecipeOp	op = {.kind = kind,.serial = serial,.node = node};

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
	submit(census, RECIPE_OP_SEARCH, NULL, LIST_SERIAL);
	return census;
}

static void
on_list(Census *census, const RecipeInput *in)
{
	if (in->result != RECIPE_OK || in->nchildren == 0)
		return;
	census->n = Min(in->nchildren, MAX_NODES);
	census->nodes = palloc0(census->n * sizeof(QueueNode));
	for (int i = 0; i < census->n; i++)
	{
		census->nodes[i].node = pstrdup(in->children[i]);
		census->nodes[i].data_len = -1;
		submit(census, RECIPE_OP_GET, census->nodes[i].node, i);
	}
}

static void
on_read(Census *census, const RecipeInput *in)
{
	QueueNode  *node = &census->nodes[in->serial];

	switch (in->result)
	{
		case RECIPE_OK:
			queue_note(node, in);
			break;
		case RECIPE_NO_NODE:
			node->gone = true;
			break;
		case RECIPE_REFUSED:
			if (in->event == RECIPE_GET_DONE && !census->unsure)
				submit(census, RECIPE_OP_STAT, node->node, in->serial);
			break;
		case RECIPE_UNKNOWN:
			break;
	}
}

/*
 * census_event
 *		The server has answered an operation of the census.
 *
 * Returns true if it was the last one.  *error is ZooKeeper's, if it refused to
 * list the clusters; else 0.
 */
bool
census_event(Census *census, const RecipeInput *in, int *error)
{
	MemoryContext save = MemoryContextSwitchTo(census->context);

	*error = 0;
	census->open--;
	census->unsure |= in->result == RECIPE_UNKNOWN;
	if (in->serial != LIST_SERIAL)
		on_read(census, in);
	else if (in->result == RECIPE_REFUSED)
		*error = in->error;
	else
		on_list(census, in);
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
 * census_members
 *		The clusters, palloc'd, in no order.
 */
Member *
census_members(const Census *census, int *count)
{
	Member	   *members = palloc(Max(census->n, 1) * sizeof(Member));

	*count = 0;
	for (int i = 0; i < census->n; i++)
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

	for (int i = 0; i < census->n; i++)
	{
		if (census->nodes[i].gone)
			continue;
		queue_append_entry(buf, &census->nodes[i]);
		count++;
	}
	return count;
}
