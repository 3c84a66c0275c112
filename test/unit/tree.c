/*-------------------------------------------------------------------------
 *
 * tree.c
 *		A ZooKeeper in memory for detectors.
 *
 * Each write makes a new state of the tree; the last ones are kept, so that a
 * session's server may be behind.  What a state points to is freed by
 * tree_reset().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/tree.c
 *
 *-------------------------------------------------------------------------
 */
#include "tree.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct TreeState
{
	const TreeNode *nodes[TREE_NODES];
	int			n;
} TreeState;

typedef struct Block
{
	struct Block *next;
} Block;

void		(*tree_on_act) (const DetectorOp *op, const char *probe);
void		(*tree_on_session_node) (const char *path);

static TreeState states[TREE_HISTORY];
static int64_t zxid;
static int	last_session;
static Block *blocks;

void *
tree_alloc(size_t size)
{
	Block	   *block = calloc(1, sizeof(Block) + size);

	assert(block != NULL);
	block->next = blocks;
	blocks = block;
	return block + 1;
}

const char *
tree_copy(const char *text)
{
	char	   *copy = tree_alloc(strlen(text) + 1);

	strcpy(copy, text);
	return copy;
}

void
tree_reset(void)
{
	while (blocks != NULL)
	{
		Block	   *next = blocks->next;

		free(blocks);
		blocks = next;
	}
	memset(states, 0, sizeof(states));
	zxid = 1;
	last_session = 0;
}

int64_t
tree_zxid(void)
{
	return zxid;
}

static TreeState *
state_at(int64_t at)
{
	assert(at <= zxid && at > zxid - TREE_HISTORY);
	return &states[at % TREE_HISTORY];
}

static int
find_in(const TreeState *state, const char *path)
{
	for (int i = 0; i < state->n; i++)
		if (strcmp(state->nodes[i]->path, path) == 0)
			return i;
	return -1;
}

const TreeNode *
tree_find(int64_t at, const char *path)
{
	const TreeState *state = state_at(at);
	int			node = find_in(state, path);

	return node < 0 ? NULL : state->nodes[node];
}

static bool
is_child(const TreeNode *node, const char *path)
{
	size_t		len = strlen(path);

	return strncmp(node->path, path, len) == 0 && node->path[len] == '/' &&
		strchr(node->path + len + 1, '/') == NULL;
}

int
tree_count_below(const char *path)
{
	const TreeState *state = state_at(zxid);
	int			n = 0;

	for (int i = 0; i < state->n; i++)
		n += is_child(state->nodes[i], path);
	return n;
}

void
tree_print(const char *path)
{
	const TreeState *state = state_at(zxid);

	for (int i = 0; i < state->n; i++)
		if (is_child(state->nodes[i], path))
			printf("  %s of %d: %s\n", state->nodes[i]->path,
				   state->nodes[i]->session, state->nodes[i]->data);
}

/* The state that the next write makes. */
static TreeState *
new_state(void)
{
	TreeState  *next = &states[(zxid + 1) % TREE_HISTORY];

	*next = states[zxid % TREE_HISTORY];
	zxid++;
	return next;
}

static TreeNode *
change_node(TreeState *state, int node)
{
	TreeNode   *copy = tree_alloc(sizeof(TreeNode));

	*copy = *state->nodes[node];
	state->nodes[node] = copy;
	return copy;
}

static TreeNode *
change_parent(TreeState *state, const char *path)
{
	char		parent[NOTE_VERTEX_SIZE];
	int			node;
	TreeNode   *changed;

	strcpy(parent, path);
	*strrchr(parent, '/') = '\0';
	node = find_in(state, parent);
	if (node < 0)
		return NULL;
	changed = change_node(state, node);
	changed->changed = zxid;
	return changed;
}

/* Nodes without a parent in the tree are below the root. */
static const char *
create_in(TreeState *state, const char *path, const char *data, int session,
		  bool sequential)
{
	TreeNode   *node = tree_alloc(sizeof(TreeNode));
	TreeNode   *parent = change_parent(state, path);
	char		name[2 * NOTE_VERTEX_SIZE];

	if (sequential)
		sprintf(name, "%s%010" PRId32, path, parent->next);
	else
		strcpy(name, path);
	assert(strlen(name) < NOTE_VERTEX_SIZE && state->n < TREE_NODES);
	if (parent != NULL)
		parent->next++;
	strcpy(node->path, name);
	node->data = tree_copy(data);
	node->session = session;
	node->changed = zxid;
	state->nodes[state->n++] = node;
	return strrchr(node->path, '/') + 1;
}

const char *
tree_create(const char *path, const char *data, int session, bool sequential)
{
	return create_in(new_state(), path, data, session, sequential);
}

static bool
delete_in(TreeState *state, const char *path)
{
	int			node = find_in(state, path);

	if (node < 0)
		return false;
	(void) change_parent(state, path);
	state->n--;
	memmove(&state->nodes[node], &state->nodes[node + 1],
			(state->n - node) * sizeof(TreeNode *));
	return true;
}

bool
tree_delete(const char *path)
{
	return delete_in(new_state(), path);
}

void
tree_begin_session(TreeSession *session)
{
	memset(session, 0, sizeof(*session));
	session->id = ++last_session;
	session->alive = true;
	session->connected = true;
	session->view = zxid;
	session->seen = zxid;
}

/*
 * "note" is for SET: the data to be written.  Those of others are
 * to be filled in.
 */
TreeRequest *
tree_submit(TreeSession *session, const DetectorOp *op, const char *note)
{
	TreeRequest *request = &session->queue[session->n];
	DetectorCheck *checks;
	DetectorNote *others;

	assert(session->n < TREE_QUEUE);
	session->n++;
	memset(request, 0, sizeof(*request));
	request->op = *op;
	request->op.request.path = tree_copy(op->request.path);
	request->op.request.data = op->request.data != NULL ?
		tree_copy(op->request.data) : NULL;
	request->op.verdict = op->verdict != NULL ? tree_copy(op->verdict) : NULL;
	request->op.waits = NULL;
	request->note = note != NULL ? tree_copy(note) : NULL;
	checks = tree_alloc((op->nchecks + 1) * sizeof(DetectorCheck));
	for (int i = 0; i < op->nchecks; i++)
	{
		checks[i].path = tree_copy(op->checks[i].path);
		checks[i].version = op->checks[i].version;
	}
	request->op.checks = checks;
	others = tree_alloc((op->nothers + 1) * sizeof(DetectorNote));
	for (int i = 0; i < op->nothers; i++)
		others[i].path = tree_copy(op->others[i].path);
	request->op.others = others;
	request->other_notes = tree_alloc((op->nothers + 1) * sizeof(char *));
	return request;
}

/* Let events go out for what the session's server has applied. */
static void
fire_watches(TreeSession *session)
{
	for (int i = session->nwatches - 1; i >= 0; i--)
	{
		const TreeNode *node = tree_find(session->view,
										 session->watches[i].path);
		TreeRequest *event = &session->queue[session->nready];

		if (node != NULL && node->changed <= session->watches[i].since)
			continue;
		assert(session->n < TREE_QUEUE);
		memmove(event + 1, event,
				(session->n - session->nready) * sizeof(TreeRequest));
		session->n++;
		session->nready++;
		memset(event, 0, sizeof(*event));
		event->event = true;
		event->op.request.serial = session->watches[i].serial;
		event->view = session->view;
		session->nwatches--;
		memmove(&session->watches[i], &session->watches[i + 1],
				(session->nwatches - i) * sizeof(session->watches[0]));
	}
}

void
tree_advance(TreeSession *session, int64_t view)
{
	if (view <= session->view)
		return;
	session->view = view;
	if (session->connected)
		fire_watches(session);
}

static void
execute_list(TreeSession *session, TreeRequest *request)
{
	const TreeState *state = state_at(session->view);
	const TreeNode *node = tree_find(session->view, request->op.request.path);

	if (node == NULL)
	{
		request->result = REQUEST_NO_NODE;
		return;
	}
	request->children = tree_alloc((state->n + 1) * sizeof(char *));
	for (int i = 0; i < state->n; i++)
		if (is_child(state->nodes[i], request->op.request.path))
			request->children[request->nchildren++] =
				strrchr(state->nodes[i]->path, '/') + 1;
	if (request->op.request.kind == REQUEST_LIST)
	{
		assert(session->nwatches < TREE_WATCHES);
		session->watches[session->nwatches].path = request->op.request.path;
		session->watches[session->nwatches].serial = request->op.request.serial;
		session->watches[session->nwatches++].since = session->view;
	}
}

static void
execute_get(TreeSession *session, TreeRequest *request)
{
	const TreeNode *node = tree_find(session->view, request->op.request.path);

	if (node == NULL)
	{
		request->result = REQUEST_NO_NODE;
		return;
	}
	request->data = node->data;
	request->version = node->version;
	request->ephemeral = node->session != 0;
	request->ours = node->session == session->id;
}

/* Returns the new version. */
static int32_t
set_in(TreeState *state, const char *path, const char *data)
{
	TreeNode   *node = change_node(state, find_in(state, path));

	node->data = tree_copy(data);
	return ++node->version;
}

static void
execute_act(TreeSession *session, TreeRequest *request)
{
	const DetectorOp *op = &request->op;
	const TreeNode *own = tree_find(zxid, op->request.path);
	const char *probe;
	TreeState  *state;

	request->result = REQUEST_NO_NODE;
	if (own == NULL || request->note == NULL ||
		(op->request.has_version && own->version != op->request.version) ||
		tree_find(zxid, op->verdict) != NULL)
		return;
	for (int i = 0; i < op->nchecks; i++)
	{
		const TreeNode *node = tree_find(zxid, op->checks[i].path);

		if (node == NULL || (op->checks[i].version >= 0 &&
							 op->checks[i].version != node->version))
			return;
	}
	for (int i = 0; i < op->nothers; i++)
		if (request->other_notes[i] == NULL ||
			tree_find(zxid, op->others[i].path) == NULL)
			return;
	request->result = REQUEST_OK;
	probe = tree_find(zxid, op->checks[0].path)->data;
	state = new_state();
	(void) set_in(state, op->request.path, request->note);
	for (int i = 0; i < op->nothers; i++)
		(void) set_in(state, op->others[i].path, request->other_notes[i]);
	(void) create_in(state, op->verdict, "", session->id, false);
	if (tree_on_act)
		tree_on_act(op, probe);
}

static void
execute_write(TreeSession *session, TreeRequest *request)
{
	const DetectorOp *op = &request->op;
	const char *path = op->request.path;
	char		parent[NOTE_VERTEX_SIZE];

	strcpy(parent, path);
	*strrchr(parent, '/') = '\0';
	switch (op->request.kind)
	{
		case REQUEST_SET:
			if (request->note != NULL && tree_find(zxid, path) != NULL)
				request->version = set_in(new_state(), path, request->note);
			else if (vertex_is_node(path) &&
					 tree_find(zxid, parent) != NULL)
			{
				if (tree_on_session_node)
					tree_on_session_node(path);
				(void) tree_create(path, request->note, session->id, false);
			}
			else
				request->result = REQUEST_NO_NODE;
			break;
		case REQUEST_MKDIR:
			if (tree_find(zxid, path) == NULL)
				(void) tree_create(path, "", 0, false);
			break;
		case REQUEST_CREATE:
			if (tree_find(zxid, parent) == NULL)
				request->result = REQUEST_NO_NODE;
			else
				request->node = tree_create(path, op->request.data,
											session->id, true);
			break;
		case REQUEST_DELETE:
			if (tree_find(zxid, path) == NULL)
				request->result = REQUEST_NO_NODE;
			else if (tree_count_below(path) > 0)
				request->result = REQUEST_REFUSED;
			else
				(void) tree_delete(path);
			break;
		default:
			assert(false);
	}
}

/* The server carries the next request out; false if there is none. */
bool
tree_execute(TreeSession *session)
{
	TreeRequest *request;
	RequestKind kind;

	if (session->nready == session->n)
		return false;
	kind = session->queue[session->nready].op.request.kind;
	if (session->queue[session->nready].op.request.barrier)
		tree_advance(session, zxid);
	request = &session->queue[session->nready];
	if (kind == REQUEST_CHILDREN || kind == REQUEST_LIST)
		execute_list(session, request);
	else if (kind == REQUEST_GET)
		execute_get(session, request);
	else
	{
		if (request->op.verdict != NULL)
			execute_act(session, request);
		else
			execute_write(session, request);
		tree_advance(session, zxid);
		request = &session->queue[session->nready];
	}
	request->view = session->view;
	session->nready++;
	return true;
}

/* Give the client the next answer or event; false if there is none. */
bool
tree_hear(TreeSession *session, DetectorInput *in)
{
	TreeRequest request;

	if (session->nready == 0)
		return false;
	request = session->queue[0];
	session->nready--;
	session->n--;
	memmove(&session->queue[0], &session->queue[1],
			session->n * sizeof(TreeRequest));
	session->seen = request.view;
	in->event = request.event ? DETECTOR_DIR_CHANGED : DETECTOR_DONE;
	in->answer.serial = request.op.request.serial;
	in->answer.result = request.result;
	in->answer.children = request.children;
	in->answer.nchildren = request.nchildren;
	in->answer.data = request.data;
	in->answer.data_len = request.data != NULL ?
		(int) strlen(request.data) : -1;
	in->answer.version = request.version;
	in->answer.ephemeral_owner = request.ephemeral ? 1 : 0;
	in->answer.ours = request.ours;
	in->answer.node = request.node;
	return true;
}

/*
 * So many of the requests under way are carried out, and no answer is heard.
 * Returns how many there were, with their serials.
 */
int
tree_lose_connection(TreeSession *session, int applied, uint32_t *serials)
{
	int			n = 0;

	session->connected = false;
	session->nwatches = 0;
	while (session->alive && applied-- > 0 && tree_execute(session))
		;
	for (int i = 0; i < session->n; i++)
		if (!session->queue[i].event)
			serials[n++] = session->queue[i].op.request.serial;
	session->n = 0;
	session->nready = 0;
	session->nwatches = 0;
	return n;
}

void
tree_reconnect(TreeSession *session, int64_t view)
{
	session->connected = true;
	session->view = view;
}

void
tree_expire(TreeSession *session)
{
	TreeState  *state = new_state();

	session->alive = false;
	for (int i = state->n - 1; i >= 0; i--)
		if (state->nodes[i]->session == session->id)
			(void) delete_in(state, state->nodes[i]->path);
}
