/*-------------------------------------------------------------------------
 *
 * model.c
 *		A ZooKeeper in memory, for random and exhaustive schedules.
 *
 * A name's directories with their history.  Every change has a zxid, and nodes
 * and directories keep those of their creation and deletion, so that each
 * directory can be seen as it was at any zxid: that is what a session's server
 * shows that lags behind.  As in ZooKeeper, a session's view never goes back
 * behind what the client has seen, a write is answered when the session's
 * server has it and all before it, and a watch fires when the view passes the
 * change.  A sync may do nothing: it is answered then by a leader that has
 * been deposed, and has not noticed.
 *
 * A directory's counter ends as ZooKeeper's does: the last number is given
 * again and again, and negative ones to creates that are under way together.
 * An idle directory is collected, and begins anew when it is made again.
 *
 * A client has one watch of a path, which is the latest one's to have set it,
 * as the worker does it.  The library registers a watch when it is answered,
 * forgets it when it hears that it was removed, and sets what it has again
 * after a reconnect.
 *
 * Choices are random, from a seed that is the number of the run, or those of
 * an odometer that goes through all of them.  A rule that does not hold prints
 * the end of the run's history, what exists, and the number of the run.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/model.c
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"

static const char *const place_names[MODEL_PLACES] = {
	"", ZNODE_LOCKS_DIR, ZNODE_PERMITS_DIR
};

static Model storage;

/* The world that a failed check is about, and that runs are played in. */
Model	   *const model = &storage;
ModelTally	model_tally;

/* The name of an operation, for texts. */
const char *
model_op_name(RequestKind kind)
{
	static const char *const names[] = {
		[REQUEST_MKDIR] = "mkdir",
		[REQUEST_MKDIRS] = "mkdirs",
		[REQUEST_CREATE] = "create",
		[REQUEST_CHILDREN] = "children",
		[REQUEST_SEARCH] = "search",
		[REQUEST_SYNC] = "sync",
		[REQUEST_LIST] = "list",
		[REQUEST_WATCH] = "watch",
		[REQUEST_UNWATCH] = "unwatch",
		[REQUEST_GET] = "get",
		[REQUEST_SET] = "set",
		[REQUEST_STAT] = "stat",
		[REQUEST_DELETE] = "delete",
		[REQUEST_REQUEUE] = "requeue",
		[REQUEST_DELETE_ORPHAN] = "orphan",
		[REQUEST_RMDIR] = "rmdir"
	};

	return names[kind];
}

/*-------------------------------------------------------------------------
 * Runs and choices
 *-------------------------------------------------------------------------
 */

/* Set the model up for a test; "explore": go through all choices. */
void
model_reset(const ModelHooks *hooks, bool explore)
{
	memset(model, 0, sizeof(*model));
	model->hooks = hooks;
	model->explore = explore;
}

/* Begin a run, which is named by "title" and "run"; the odometer stays. */
void
model_start(const char *title, unsigned long run)
{
	model->zxid = 1;
	model->root_czxid = 1;
	memset(model->first, 0, sizeof(model->first));
	model->nnodes = model->oldest = 0;
	memset(model->ndirs, 0, sizeof(model->ndirs));
	model->last_session = FOREIGN;
	model->nsessions = 0;
	model->refusals = model->refuse_next = model->negative = false;
	model->refuse_one_in = 25;
	model->at_choice = 0;
	model->random = run;
	model->title = title;
	model->run = run;
	model->nnotes = 0;
}

/* Note what happens in a run; client -1 is somebody else. */
void
model_note(int client, int contender, const char *what, long number)
{
	int			at = model->nnotes++ % MODEL_NOTES;

	model->notes[at].client = client;
	model->notes[at].contender = contender;
	model->notes[at].what = what;
	model->notes[at].number = number;
}

static void
check_failed(const char *rule)
{
	int			first = model->nnotes > 120 ? model->nnotes - 120 : 0;

	if (model->hooks && model->hooks->end_trace)
		model->hooks->end_trace(rule);
	for (int i = first; i < model->nnotes; i++)
		print_message("%5d  client %d.%d  %s %ld\n", i,
					  model->notes[i % MODEL_NOTES].client,
					  model->notes[i % MODEL_NOTES].contender,
					  model->notes[i % MODEL_NOTES].what,
					  model->notes[i % MODEL_NOTES].number);
	for (int i = 0; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0)
			print_message("exists: %s/%s, session %d\n",
						  place_names[model->nodes[i].place],
						  model->nodes[i].name, model->nodes[i].session);
	if (model->hooks)
		model->hooks->describe();
	fail_msg("%s, run %lu: %s", model->title, model->run, rule);
}

/* A rule has to hold; else the test fails. */
void
model_check(bool holds, const char *rule)
{
	if (!holds)
		check_failed(rule);
}

/* Is "node" the name of the contender's node, or the prefix of that? */
static bool
is_named(const Recipe *recipe, bool by_number)
{
	char		name[ZNODE_CONTENDER_SIZE];

	if (by_number)
		znode_contender_name(recipe->uuid, recipe->kind, recipe->sequence,
							 name);
	else
		znode_contender_prefix(recipe->uuid, recipe->kind, name);
	return strcmp(recipe->node, name) == 0;
}

static bool
has_predecessor(const Recipe *recipe)
{
	return recipe->predecessor != NULL;
}

/* What recipe.c says of its states has to hold. */
void
model_check_recipe(const Recipe *recipe)
{
	bool		permit = recipe->kind == ZNODE_PERMIT;
	bool		late = !permit && znode_is_late(recipe->sequence);
	bool		holds = false;

	switch (recipe->state)
	{
		case RECIPE_NONE:
			holds = !has_predecessor(recipe);
			break;
		case RECIPE_ENTERING:
			holds = is_named(recipe, false) && !recipe->requeued &&
				!has_predecessor(recipe) && recipe->token == 0;
			break;
		case RECIPE_CANCELING:
			holds = is_named(recipe, recipe->requeued) &&
				!has_predecessor(recipe);
			break;
		case RECIPE_SEARCHING:
		case RECIPE_ABANDONING:
			/*
			 * a contender that is resumed without its number has no name yet
			 */
			holds = (is_named(recipe, recipe->requeued) ||
					 recipe->node[0] == '\0') && !has_predecessor(recipe);
			break;
		case RECIPE_READING:
			holds = is_named(recipe, true) && !recipe->requeued &&
				(recipe->blockers == 0 || has_predecessor(recipe) || permit);
			break;
		case RECIPE_WATCHING:
			holds = is_named(recipe, true) && !recipe->requeued &&
				has_predecessor(recipe) == !permit &&
				recipe->blockers >= (permit ? recipe->permits : 1);
			break;
		case RECIPE_OWNER:
			holds = is_named(recipe, true) && !recipe->requeued && !late &&
				recipe->blockers == 0;
			break;
		case RECIPE_REQUEUEING:
			holds = is_named(recipe, true) && recipe->requeued &&
				recipe->kind != ZNODE_READER && !has_predecessor(recipe);
			break;
		case RECIPE_LEAVING:
			holds = is_named(recipe, true);
			break;
		case RECIPE_LATE:
			holds = is_named(recipe, true) && !recipe->requeued && late;
			break;
	}
	if (!holds)
		check_failed(recipe_state_name(recipe->state));
}

/* splitmix64: the same numbers on every machine */
uint64_t
model_random(void)
{
	uint64_t	z = (model->random += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/* A UUID; not by model_choose(), which would explore every one. */
void
model_make_uuid(uint8_t uuid[ZNODE_UUID_BYTES])
{
	uint64_t	halves[2];

	halves[0] = model_random();
	halves[1] = model_random();
	memcpy(uuid, halves, ZNODE_UUID_BYTES);
	znode_make_uuid(uuid);
}

/* One of 0 .. n-1: the next in turn when exploring, else at random. */
unsigned
model_choose(unsigned n)
{
	if (!model->explore)
		return (unsigned) (model_random() % n);

	if (model->at_choice == model->nchoices)
	{
		model_check(model->nchoices < MODEL_CHOICES,
					"the model is out of choices");
		model->choices[model->nchoices].value = 0;
		model->choices[model->nchoices].of = n;
		model->nchoices++;
	}
	model_check(model->choices[model->at_choice].of == n,
				"the model does not repeat itself");
	return model->choices[model->at_choice++].value;
}

/* true with a probability of 1/n; never when exploring */
bool
model_one_in(unsigned n)
{
	return !model->explore && model_choose(n) == 0;
}

/* Turn the odometer of choices; false when it has come around. */
bool
model_next_schedule(void)
{
	while (model->nchoices > 0)
	{
		int			last = model->nchoices - 1;

		if (++model->choices[last].value < model->choices[last].of)
			return true;
		model->nchoices--;
	}
	return false;
}

/*-------------------------------------------------------------------------
 * The tree
 *-------------------------------------------------------------------------
 */

bool
model_exists_at(int64_t czxid, int64_t dzxid, int64_t zxid)
{
	return czxid != 0 && czxid <= zxid && (dzxid == 0 || dzxid > zxid);
}

static int
directory_index_at(int place, int64_t zxid)
{
	for (int i = model->ndirs[place] - 1; i >= 0; i--)
		if (model_exists_at(model->dirs[place][i].czxid,
							model->dirs[place][i].dzxid, zxid))
			return i;
	return -1;
}

/* A directory as of a zxid; NULL if there is none. */
ModelDirectory *
model_directory_at(int place, int64_t zxid)
{
	int			dir = directory_index_at(place, zxid);

	return dir < 0 ? NULL : &model->dirs[place][dir];
}

bool
model_is_made(int place)
{
	return directory_index_at(place, model->zxid) >= 0;
}

/* A node as of a zxid; -1 if there is none. */
int
model_node_at(int place, const char *name, int64_t zxid)
{
	for (int i = model->nnodes - 1; i >= 0; i--)
		if (model->nodes[i].place == place &&
			strcmp(model->nodes[i].name, name) == 0 &&
			model_exists_at(model->nodes[i].czxid, model->nodes[i].dzxid,
							zxid))
			return i;
	return -1;
}

/* How many nodes, which directories are not, are in a place? */
int
model_count_at(int place, int64_t zxid)
{
	int			count = 0;

	for (int i = 0; i < model->nnodes; i++)
		if (model->nodes[i].place == place &&
			model_exists_at(model->nodes[i].czxid, model->nodes[i].dzxid,
							zxid))
			count++;
	return count;
}

static void
init_data(ModelData *data, int64_t zxid, const char *text)
{
	data->n = 1;
	data->zxid[0] = zxid;
	snprintf(data->text[0], MODEL_DATA_SIZE, "%s", text ? text : "");
}

/* What the data was at a zxid; "" is none. */
const char *
model_data_at(const ModelData *data, int64_t zxid)
{
	for (int i = data->n - 1; i >= 0; i--)
		if (data->zxid[i] <= zxid)
			return data->text[i];
	return "";
}

/* Set the data, which watches of it tell when their view passes that. */
void
model_set_data(ModelData *data, const char *text)
{
	model_check(data->n < MODEL_CHANGES, "the model is out of changes");
	data->zxid[data->n] = ++model->zxid;
	snprintf(data->text[data->n++], MODEL_DATA_SIZE, "%s", text);
}

/* Make a directory, and its parents, unless it is there. */
void
model_make_directory(int place, const char *text)
{
	ModelDirectory *dir;

	if (model_is_made(place))
		return;
	if (model->root_czxid == 0)
		model->root_czxid = ++model->zxid;
	if (place != MODEL_NAME)
	{
		model_make_directory(MODEL_NAME, NULL);
		model_directory_at(MODEL_NAME, model->zxid)->used = true;
	}
	model_check(model->ndirs[place] < MODEL_DIRS,
				"the model is out of directories");
	dir = &model->dirs[place][model->ndirs[place]++];
	dir->czxid = ++model->zxid;
	dir->dzxid = 0;
	dir->next = model->first[place];
	dir->used = false;
	init_data(&dir->data, dir->czxid, text);
}

static bool
has_children(int place)
{
	return model_count_at(place, model->zxid) > 0 ||
		(place == MODEL_NAME &&
		 (model_is_made(MODEL_LOCKS) || model_is_made(MODEL_PERMITS)));
}

/* Its counter starts anew with the next one; that of permits goes on. */
static void
delete_directory(int place)
{
	ModelDirectory *dir = model_directory_at(place, model->zxid);

	dir->dzxid = ++model->zxid;
	if (place != MODEL_PERMITS)
		model->first[place] = 0;
}

/* An idle container is collected; returns whether it was one. */
bool
model_collect_directory(int place)
{
	ModelDirectory *dir = model_directory_at(place, model->zxid);

	if (dir == NULL || !dir->used || has_children(place))
		return false;
	delete_directory(place);
	model_tally.collected++;
	model_note(-1, -1, "directory collected", place);
	return true;
}

/* Make a node, adding the number to its name if it is a sequential one. */
int
model_make_node(int place, const char *name, bool sequential, int session,
				const char *text)
{
	int			dir = directory_index_at(place, model->zxid);
	ModelNode  *node = &model->nodes[model->nnodes];
	int32_t    *next = &model->dirs[place][dir < 0 ? 0 : dir].next;
	ZnodeContender contender;

	model_check(model->nnodes < MODEL_NODES, "the model is out of nodes");
	model_check(dir >= 0, "the model has no directory for a node");
	node->place = place;
	node->dir = dir;
	node->session = session;
	node->sequence = *next;
	/* others are under way that were given the last number */
	if (sequential && model->negative && node->sequence == INT32_MAX &&
		model_one_in(4))
		node->sequence = INT32_MIN + (int32_t) model_choose(3);
	node->czxid = ++model->zxid;
	node->dzxid = 0;
	init_data(&node->data, node->czxid, text);
	node->kin = node->orphan = node->stays = false;
	snprintf(node->name, sizeof(node->name), sequential ? "%s%010d" : "%s",
			 name, (int) node->sequence);
	node->contender = sequential;
	node->persistent = !sequential;
	node->shared = sequential && znode_parse_contender(node->name, &contender)
		&& contender.shared;

	/* every create counts, but one more than the last is not larger */
	if (*next < INT32_MAX)
		(*next)++;
	model->dirs[place][dir].used = true;
	return model->nnodes++;
}

static void
delete_node_at(int node, int64_t zxid)
{
	model->nodes[node].dzxid = zxid;
	while (model->oldest < model->nnodes &&
		   model->nodes[model->oldest].dzxid != 0)
		model->oldest++;
}

void
model_delete_node(int node)
{
	delete_node_at(node, ++model->zxid);
}

static bool
data_changed(const ModelData *data, int64_t since, int64_t zxid)
{
	for (int i = 1; i < data->n; i++)
		if (data->zxid[i] > since && data->zxid[i] <= zxid)
			return true;
	return false;
}

/* Has a child of a place come or gone between two zxids? */
static bool
children_changed(int place, int64_t since, int64_t zxid)
{
	for (int i = 0; i < model->nnodes; i++)
	{
		const ModelNode *node = &model->nodes[i];

		if (node->place == place &&
			((node->czxid > since && node->czxid <= zxid) ||
			 (node->dzxid > since && node->dzxid <= zxid)))
			return true;
	}
	return false;
}

/*-------------------------------------------------------------------------
 * Sessions and their watches
 *-------------------------------------------------------------------------
 */

/* A new session for a client, connected, with a server that has it all. */
void
model_begin_session(ModelSession *session, int client)
{
	model->sessions[client] = session;
	if (client >= model->nsessions)
		model->nsessions = client + 1;
	session->id = ++model->last_session;
	session->client = client;
	session->alive = true;
	session->connected = true;
	session->view = session->seen = model->zxid;
	model_forget_all(session);
}

/* Nothing is on its way any more, and no watch is left. */
void
model_forget_all(ModelSession *session)
{
	session->nentries = session->nready = 0;
	session->nwatches = session->nclaims = 0;
}

/* How many of the operations sent has the server not carried out? */
int
model_unapplied(const ModelSession *session)
{
	return session->nentries - session->nready;
}

ModelWatch *
model_find_watch(ModelSession *session, int place, const char *node)
{
	for (int i = 0; i < session->nwatches; i++)
		if (session->watches[i].place == place &&
			strcmp(session->watches[i].node, node) == 0)
			return &session->watches[i];
	return NULL;
}

ModelClaim *
model_find_claim(ModelSession *session, int place, const char *node)
{
	for (int i = 0; i < session->nclaims; i++)
		if (session->claims[i].place == place &&
			strcmp(session->claims[i].node, node) == 0)
			return &session->claims[i];
	return NULL;
}

static void
forget_watch(ModelSession *session, ModelWatch *watch)
{
	*watch = session->watches[--session->nwatches];
}

static void
forget_claim(ModelSession *session, ModelClaim *claim)
{
	if (claim != NULL)
		*claim = session->claims[--session->nclaims];
}

/* The client's library forgets a watch, and nobody waits for it. */
void
model_drop_watch(ModelSession *session, int place, const char *node)
{
	ModelWatch *watch = model_find_watch(session, place, node);

	if (watch != NULL)
		forget_watch(session, watch);
	forget_claim(session, model_find_claim(session, place, node));
}

static ModelEntry *
add_entry(ModelSession *session, int at)
{
	ModelEntry *entry = &session->entries[at];

	model_check(session->nentries < MODEL_ENTRIES, "operations pile up");
	memmove(entry + 1, entry, (session->nentries - at) * sizeof(*entry));
	session->nentries++;
	memset(entry, 0, offsetof(ModelEntry, children));
	return entry;
}

/* Whoever watches a path last has the watch. */
static void
claim_watch(ModelSession *session, const ModelEntry *entry)
{
	ModelClaim *claim = model_find_claim(session, entry->place, entry->node);

	if (claim == NULL)
	{
		model_check(session->nclaims < MODEL_WATCHES, "watches pile up");
		claim = &session->claims[session->nclaims++];
	}
	claim->place = entry->place;
	strcpy(claim->node, entry->node);
	claim->contender = entry->contender;
	claim->for_lock = entry->for_lock;
	claim->serial = entry->serial;
}

static bool
sets_watch(const ModelEntry *entry)
{
	return !entry->is_event &&
		(entry->kind == REQUEST_LIST || entry->kind == REQUEST_WATCH);
}

static void
unclaim_watch(ModelSession *session, ModelEntry *entry)
{
	ModelWatch *watch = model_find_watch(session, entry->place, entry->node);

	forget_claim(session,
				 model_find_claim(session, entry->place, entry->node));
	entry->in_vain = watch == NULL || !watch->registered;
	if (watch && entry->in_vain)
		watch->orphaned = true;
	/* the watch itself may be on its way still */
	for (int i = 0; i < session->nentries - 1; i++)
		if (sets_watch(&session->entries[i]) &&
			session->entries[i].place == entry->place &&
			strcmp(session->entries[i].node, entry->node) == 0)
			session->entries[i].in_vain = true;
}

/*
 * A client sends an operation for one of its contenders.  The caller adds the
 * data to the entry returned.
 */
ModelEntry *
model_submit(ModelSession *session, int contender, bool for_lock, int place,
			 const Request *op)
{
	ModelEntry *entry = add_entry(session, session->nentries);

	entry->contender = contender;
	entry->for_lock = for_lock;
	entry->kind = op->kind;
	entry->place = place;
	entry->serial = op->serial;
	if (op->node != NULL)
		strcpy(entry->node, op->node);
	if (op->data != NULL)
		snprintf(entry->data, sizeof(entry->data), "%s", op->data);
	if (sets_watch(entry))
		claim_watch(session, entry);
	else if (entry->kind == REQUEST_UNWATCH)
		unclaim_watch(session, entry);
	return entry;
}

/* An operation that was answered is sent once more. */
void
model_resubmit(ModelSession *session, const ModelEntry *entry)
{
	*add_entry(session, session->nentries) = *entry;
}

/* The server tells a watch; the client hears it in the order of answers. */
static void
fire(ModelSession *session, ModelWatch *watch, bool deleted)
{
	ModelEntry *entry = add_entry(session, session->nready++);

	entry->is_event = true;
	entry->deleted = deleted;
	entry->place = watch->place;
	strcpy(entry->node, watch->node);
	watch->armed = false;
	if (watch->node[0] == '\0')
		model_tally.list_events++;
	else if (!deleted)
		model_tally.touched++;
}

/* Has what is watched gone, or has it changed, as of the session's server? */
static void
check_watch(ModelSession *session, ModelWatch *watch)
{
	int64_t		czxid;
	int64_t		dzxid;
	bool		changed;

	if (strcmp(watch->node, MODEL_SELF) == 0)
	{
		const ModelDirectory *dir = &model->dirs[watch->place][watch->index];

		czxid = dir->czxid;
		dzxid = dir->dzxid;
		changed = data_changed(&dir->data, watch->since, session->view);
	}
	else if (watch->node[0] != '\0')
	{
		const ModelNode *node = &model->nodes[watch->index];

		czxid = node->czxid;
		dzxid = node->dzxid;
		changed = data_changed(&node->data, watch->since, session->view);
	}
	else
	{
		czxid = model->dirs[watch->place][watch->index].czxid;
		dzxid = model->dirs[watch->place][watch->index].dzxid;
		changed = children_changed(watch->place, watch->since, session->view);
	}
	if (changed)
		fire(session, watch, false);
	else if (!model_exists_at(czxid, dzxid, session->view))
		fire(session, watch, true);
}

/* The session's server applies changes up to "zxid". */
void
model_advance(ModelSession *session, int64_t zxid)
{
	if (zxid > session->view)
		session->view = zxid;
	for (int i = 0; i < session->nwatches; i++)
		if (session->watches[i].armed)
			check_watch(session, &session->watches[i]);
}

/* The server sets a watch; there is one of a path. */
static void
set_watch(ModelSession *session, const ModelEntry *entry, int index)
{
	ModelWatch *watch = model_find_watch(session, entry->place, entry->node);

	if (watch == NULL)
	{
		model_check(session->nwatches < MODEL_WATCHES, "watches pile up");
		watch = &session->watches[session->nwatches++];
		watch->place = entry->place;
		strcpy(watch->node, entry->node);
		watch->registered = false;
		watch->armed = false;
	}
	watch->orphaned = false;
	if (!watch->armed)
	{
		watch->index = index;
		watch->since = session->view;
		watch->armed = true;
	}
}

/*-------------------------------------------------------------------------
 * The server carries out operations
 *-------------------------------------------------------------------------
 */

static void
add_child(ModelEntry *entry, int child)
{
	model_check(entry->nchildren < MODEL_CHILDREN,
				"the model is out of children");
	entry->children[entry->nchildren++] = (int16_t) child;
}

static void
list_children(const ModelSession *session, ModelEntry *entry)
{
	for (int i = 0; i < model->nnodes; i++)
		if (model->nodes[i].place == entry->place &&
			model_exists_at(model->nodes[i].czxid, model->nodes[i].dzxid,
							session->view))
			add_child(entry, i);
	for (int i = MODEL_LOCKS; i < MODEL_PLACES; i++)
		if (entry->place == MODEL_NAME &&
			model_directory_at(i, session->view))
			add_child(entry, -1 - i);

	/* a list of children has no order */
	for (int i = entry->nchildren - 1; i > 0 && !model->explore; i--)
	{
		int			j = (int) model_choose(i + 1);
		int16_t		swap = entry->children[i];

		entry->children[i] = entry->children[j];
		entry->children[j] = swap;
	}
}

static void
execute_list(ModelSession *session, ModelEntry *todo)
{
	int			dir = directory_index_at(todo->place, session->view);

	if (dir < 0)
	{
		todo->result = REQUEST_NO_NODE;
		return;
	}
	list_children(session, todo);
	if (todo->kind == REQUEST_LIST)
		set_watch(session, todo, dir);
}

/* WATCH, GET and STAT of a node, or GET of the directory. */
static void
execute_get(ModelSession *session, ModelEntry *todo)
{
	ModelDirectory *dir = model_directory_at(todo->place, session->view);
	bool		self = todo->node[0] == '\0' ||
		strcmp(todo->node, MODEL_SELF) == 0;
	int			node = self ? -1 :
		model_node_at(todo->place, todo->node, session->view);

	if (dir == NULL || (node < 0 && !self))
	{
		todo->result = REQUEST_NO_NODE;
		return;
	}
	if (node < 0)
	{
		if (todo->kind == REQUEST_WATCH)
			set_watch(session, todo,
					  directory_index_at(todo->place, session->view));
		todo->czxid = dir->czxid;
		strcpy(todo->data, model_data_at(&dir->data, session->view));
		return;
	}
	if (todo->kind == REQUEST_WATCH)
		set_watch(session, todo, node);
	todo->czxid = model->nodes[node].czxid;
	todo->ours = model->nodes[node].session == session->id;
	todo->orphan = todo->ours && model->nodes[node].orphan;
	todo->persistent = model->nodes[node].persistent;
	strcpy(todo->data, model_data_at(&model->nodes[node].data,
									 session->view));
}

static void
execute_unwatch(ModelSession *session, const ModelEntry *todo)
{
	ModelWatch *watch = model_find_watch(session, todo->place, todo->node);

	/* one that has fired is not there any more: no matter */
	if (!todo->in_vain && watch && watch->armed)
	{
		model_tally.unwatched++;
		watch->armed = false;
	}
}

static void
execute_mkdir(ModelEntry *todo)
{
	if (todo->kind == REQUEST_MKDIRS)
		model_tally.mkdirs++;
	if (todo->kind == REQUEST_MKDIR &&
		(todo->place == MODEL_NAME ? model->root_czxid == 0 :
		 !model_is_made(MODEL_NAME)))
		todo->result = REQUEST_NO_NODE;
	else
		model_make_directory(todo->place, todo->data);
}

static void
execute_create(const ModelSession *session, ModelEntry *todo)
{
	int			node;

	if (!model_is_made(todo->place))
	{
		todo->result = REQUEST_NO_NODE;
		return;
	}
	node = model_make_node(todo->place, todo->node, true, session->id,
						   todo->data);
	strcpy(todo->node, model->nodes[node].name);
	todo->czxid = model->nodes[node].czxid;
}

static void
execute_set(ModelEntry *todo)
{
	ModelDirectory *dir = model_directory_at(todo->place, model->zxid);
	int			node = model_node_at(todo->place, todo->node, model->zxid);

	if (todo->node[0] == '\0' && dir != NULL)
		model_set_data(&dir->data, todo->data);
	else if (node >= 0)
		model_set_data(&model->nodes[node].data, todo->data);
	else
		todo->result = REQUEST_NO_NODE;
}

/* Only what is empty can be deleted. */
static void
execute_rmdir(ModelEntry *todo, int place)
{
	if (!model_is_made(place))
		todo->result = REQUEST_NO_NODE;
	else if (has_children(place))
	{
		todo->result = REQUEST_REFUSED;
		todo->not_empty = true;
	}
	else
		delete_directory(place);
}

static void
execute_delete(ModelEntry *todo)
{
	int			node = model_node_at(todo->place, todo->node, model->zxid);

	if (node >= 0)
	{
		model_delete_node(node);
		return;
	}
	todo->result = REQUEST_NO_NODE;
	for (int i = MODEL_LOCKS; i < MODEL_PLACES; i++)
		if (todo->place == MODEL_NAME &&
			strcmp(todo->node, place_names[i]) == 0)
		{
			todo->result = REQUEST_OK;
			execute_rmdir(todo, i);
		}
}

/* A delete and a create in one multi, which has one zxid. */
static void
execute_requeue(const ModelSession *session, ModelEntry *todo)
{
	int			last = model_node_at(todo->place, todo->node, model->zxid);

	if (last < 0)
	{
		todo->result = REQUEST_NO_NODE;
		return;
	}
	todo->node[strlen(todo->node) - ZNODE_SEQUENCE_DIGITS] = '\0';
	execute_create(session, todo);
	delete_node_at(last, model->zxid);
}

static void
execute_operation(ModelSession *session, ModelEntry *todo)
{
	switch (todo->kind)
	{
		case REQUEST_MKDIR:
		case REQUEST_MKDIRS:
			execute_mkdir(todo);
			break;
		case REQUEST_CREATE:
			execute_create(session, todo);
			break;
		case REQUEST_CHILDREN:
		case REQUEST_SEARCH:
		case REQUEST_SYNC:
		case REQUEST_LIST:
			execute_list(session, todo);
			break;
		case REQUEST_WATCH:
		case REQUEST_GET:
		case REQUEST_STAT:
			execute_get(session, todo);
			break;
		case REQUEST_UNWATCH:
			execute_unwatch(session, todo);
			break;
		case REQUEST_SET:
			execute_set(todo);
			break;
		case REQUEST_DELETE:
		case REQUEST_DELETE_ORPHAN:
			execute_delete(todo);
			break;
		case REQUEST_REQUEUE:
			execute_requeue(session, todo);
			break;
		case REQUEST_RMDIR:
			execute_rmdir(todo, todo->place);
			break;
		case REQUEST_CHECK:
		case REQUEST_SET_ACL:
		case REQUEST_GET_ACL:
			model_check(false, "no recipe checks a node");
			break;
	}
}

static bool
is_read(RequestKind kind)
{
	return kind == REQUEST_CHILDREN || kind == REQUEST_LIST ||
		kind == REQUEST_WATCH || kind == REQUEST_GET ||
		kind == REQUEST_STAT;
}

/* Is the operation refused?  An orphan that is to be deleted stays then. */
static bool
is_refused(const ModelEntry *todo)
{
	bool		may_refuse = model->refusals &&
		/* whether a node exists could not be found out then */
		todo->kind != REQUEST_SEARCH &&
		/* a watch is the session's own, and needs no permission */
		todo->kind != REQUEST_UNWATCH;
	int			node;

	if (!model->refuse_next &&
		!(may_refuse && model_one_in(model->refuse_one_in)))
		return false;
	if (todo->kind == REQUEST_DELETE_ORPHAN)
	{
		node = model_node_at(todo->place, todo->node, model->zxid);
		if (node >= 0)
			model->nodes[node].stays = true;
	}
	return true;
}

/* The server carries out the next operation and answers it. */
void
model_execute(ModelSession *session)
{
	ModelEntry	todo = session->entries[session->nready];

	model_note(session->client, todo.contender, model_op_name(todo.kind),
			   (long) todo.serial);

	/*
	 * Who answers a write has it, and everything before it; so has who answers
	 * a sync, but for a leader that does not know yet that it is none.
	 */
	if (is_read(todo.kind) ||
		(todo.kind == REQUEST_SYNC && model_one_in(2)))
	{
		if (session->view < model->zxid)
			model_tally.lagging_reads++;
	}
	else if (todo.kind != REQUEST_UNWATCH)
		model_advance(session, model->zxid);

	todo.result = REQUEST_OK;
	if (is_refused(&todo))
		todo.result = REQUEST_REFUSED;
	else
	{
		if (model->hooks && model->hooks->executing)
			model->hooks->executing(session, &todo);
		execute_operation(session, &todo);
		if (!is_read(todo.kind) && todo.kind != REQUEST_UNWATCH &&
			todo.kind != REQUEST_SYNC)
			model_advance(session, model->zxid);
	}

	/* events that this brought about have gone ahead of the answer */
	todo.view = session->view;
	session->entries[session->nready++] = todo;
}

/*-------------------------------------------------------------------------
 * The client hears answers and events, or loses its connection
 *-------------------------------------------------------------------------
 */

/* An event is for whoever has claimed the watch; false if nobody has. */
static bool
hear_event(ModelSession *session, ModelEntry *entry)
{
	ModelWatch *watch = model_find_watch(session, entry->place, entry->node);
	ModelClaim *claim = model_find_claim(session, entry->place, entry->node);

	if (watch != NULL && !watch->armed)
		forget_watch(session, watch);
	model_note(session->client, claim ? claim->contender : -1, "event",
			   (long) entry->place);
	if (claim == NULL)
		return false;
	entry->contender = claim->contender;
	entry->for_lock = claim->for_lock;
	entry->serial = claim->serial;
	forget_claim(session, claim);
	return true;
}

/* The library learns from the answer to a watch, or to taking it back. */
static void
hear_watch_answer(ModelSession *session, const ModelEntry *entry)
{
	ModelWatch *watch = model_find_watch(session, entry->place, entry->node);
	ModelClaim *claim = model_find_claim(session, entry->place, entry->node);

	if (entry->kind == REQUEST_UNWATCH)
	{
		if (watch && !entry->in_vain && !watch->armed &&
			entry->result == REQUEST_OK)
			forget_watch(session, watch);
	}
	else if (entry->result == REQUEST_OK)
	{
		if (watch)
		{
			watch->registered = true;
			if (entry->in_vain)
				watch->orphaned = true;
		}
	}
	else if (claim && claim->contender == entry->contender &&
			 claim->for_lock == entry->for_lock &&
			 claim->serial == entry->serial)
		forget_claim(session, claim);
}

/*
 * The client hears the next answer or event, which is put into *entry.
 * Returns whether it is for one of its contenders.
 */
bool
model_hear(ModelSession *session, ModelEntry *entry)
{
	model_check(session->nready > 0, "the model has nothing to deliver");
	*entry = session->entries[0];
	session->nready--;
	session->nentries--;
	memmove(&session->entries[0], &session->entries[1],
			session->nentries * sizeof(ModelEntry));
	if (entry->is_event)
		return hear_event(session, entry);

	/* events do not say how far their server was, but answers do */
	if (entry->result != REQUEST_UNKNOWN && entry->view > session->seen)
		session->seen = entry->view;
	if (sets_watch(entry) || entry->kind == REQUEST_UNWATCH)
		hear_watch_answer(session, entry);
	model_note(session->client, entry->contender, model_op_name(entry->kind),
			   1000 + (long) entry->result);
	/* nobody waits for the answers of these */
	return entry->kind != REQUEST_UNWATCH &&
		entry->kind != REQUEST_DELETE_ORPHAN;
}

/* What was heard, as an answer; it points into *entry and "children". */
void
model_answer(const ModelEntry *entry, RequestAnswer *answer,
			 const char *children[MODEL_CHILDREN])
{
	memset(answer, 0, sizeof(*answer));
	answer->serial = entry->serial;
	if (entry->is_event)
		answer->event = entry->deleted ?
			REQUEST_NODE_DELETED : REQUEST_NODE_TOUCHED;
	else
		answer->kind = entry->kind;
	if (entry->is_event)
		return;
	answer->result = entry->result;
	answer->error = entry->result == REQUEST_NO_NODE ? ERROR_NO_NODE :
		entry->result == REQUEST_REFUSED ? ERROR_REFUSED : 0;
	answer->node = entry->node;
	answer->czxid = entry->czxid;
	answer->not_empty = entry->not_empty;
	answer->ephemeral_owner = entry->persistent ?
		(model_one_in(2) ? 0 : INT64_MIN) : 1;
	answer->ours = entry->ours;
	answer->data = entry->data[0] != '\0' ? entry->data : NULL;
	answer->data_len = answer->data ? (int) strlen(answer->data) : -1;
	for (int i = 0; i < entry->nchildren; i++)
		children[i] = entry->children[i] < 0 ?
			place_names[-1 - entry->children[i]] :
			model->nodes[entry->children[i]].name;
	answer->children = children;
	answer->nchildren = entry->nchildren;
}

/*
 * Answers on their way are lost, and with them what was not carried out.
 *
 * The client's library forgets a watch when it hears that it was removed.  Not
 * having heard of it, it will set the watch again, and nobody takes that back:
 * it lasts until it fires, or until its path is watched once more.
 */
void
model_drop_answers(ModelSession *session)
{
	int			kept = 0;

	for (int i = 0; i < session->nentries; i++)
	{
		ModelEntry *entry = &session->entries[i];
		ModelWatch *watch = model_find_watch(session, entry->place,
											 entry->node);

		if (entry->is_event)
			continue;
		if (entry->kind == REQUEST_UNWATCH && watch)
			watch->orphaned = true;
		session->entries[kept] = *entry;
		session->entries[kept].result = REQUEST_UNKNOWN;
		session->entries[kept].nchildren = 0;
		kept++;
	}
	session->nentries = session->nready = kept;

	for (int i = session->nwatches - 1; i >= 0; i--)
	{
		session->watches[i].armed = false;
		if (!session->watches[i].registered)
			forget_watch(session, &session->watches[i]);
	}
}

/*
 * The connection breaks when the server has carried out "applied" more of the
 * operations sent.
 */
void
model_lose_connection(ModelSession *session, int applied)
{
	model_note(session->client, -1, "connection lost, applied", applied);
	model_tally.losses++;
	while (applied-- > 0)
		model_execute(session);
	model_drop_answers(session);
	session->connected = false;
}

/*
 * A server takes the session over that is as far as "view", but no less far
 * than the client knows things to be.  Watches are set again; those that have
 * missed something by now fire.
 */
void
model_reconnect(ModelSession *session, int64_t view)
{
	model_note(session->client, -1, "reconnected, behind",
			   (long) (model->zxid - view));
	session->connected = true;
	session->view = view;
	for (int i = 0; i < session->nwatches; i++)
	{
		session->watches[i].armed = true;
		session->watches[i].since = session->seen;
	}
	model_advance(session, view);
}

/* The server ends the session; the client hears of it when it reconnects. */
void
model_expire(ModelSession *session)
{
	model_note(session->client, -1, "session expires", session->id);
	model_tally.expirations++;
	session->alive = false;
	session->connected = false;
	for (int i = model->oldest; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0 &&
			model->nodes[i].session == session->id)
			model_delete_node(i);
	/* answers already on their way arrive, the rest is unknown */
	for (int i = session->nready; i < session->nentries; i++)
		session->entries[i].result = REQUEST_UNKNOWN;
	session->nready = session->nentries;
}
