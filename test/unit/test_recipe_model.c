/*-------------------------------------------------------------------------
 *
 * test_recipe_model.c
 *		The lock recipe against a model of ZooKeeper.
 *
 * Up to three recipes in sessions of their own, other clients, and the model
 * of model.c: sessions, lagging views, watches, and connections that break
 * before or after an operation was applied.  Small scenarios are explored
 * exhaustively, larger ones at random from fixed seeds, and the rules of the
 * lock are checked after every step.
 *
 * A client may be one that keeps its lock when it does not need it, or one
 * that asks such an owner.  What its instance does then is played, too: a
 * client that is told that others wait gives way if it is idle, and sets in
 * use otherwise.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_recipe_model.c
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

#include "core/lock/note.h"
#include "core/lock/succession.h"
#include "core/mutation.h"
#include "schedule.h"

/* How many schedules the model plays at random, of each kind. */
#ifndef RANDOM_RUNS
#define RANDOM_RUNS		3000
#endif

/* Prefixes of other clients' contenders. */
#define W	"_c_44444444-4444-4444-8444-444444444444-lock-"
#define R	"_c_55555555-5555-4555-8555-555555555555-__READ__"

/* The same of a reader that a client's instance has, too. */
#define KIN_READER	"_c_88888888-8888-4888-8888-888888888888-__READ__"

/* Of a client's operations: its recipe's, its directories', that reader's. */
#define OF_RECIPE		0
#define OF_DIRECTORY	1
#define OF_KIN			2

/* Data of other clients' nodes. */
#define FOREIGN_DATA		"me"
#define FOREIGN_RETAINED	"me" NOTE_RETAIN_MARK

#define MAX_CLIENTS		MODEL_SESSIONS
/* random schedules make no more of these */
#define MAX_NODES		256
#define MAX_CHANGES		16
#define MAX_DIRS		64
#define MAX_ENTRIES		64
#define MAX_SEEN		1024

static ZnodeKind
kind_of(bool shared)
{
	return shared ? ZNODE_READER : ZNODE_MUTEX;
}

typedef struct Client
{
	Recipe		recipe;
	ModelSession session;
	Succession	succession;		/* if scene->unread */
	uint32_t	last_serial;	/* of its watches */
	bool		robbed;			/* somebody deleted the owner's node */
	/* what the slot knows */
	bool		active;			/* wanted, and not told gone */
	bool		wanted;
	bool		owner;
	bool		created;
	bool		requeued;		/* the number may be of the node before */
	bool		token;			/* known, or told that it is refused */
	bool		no_token;		/* told so: to be retried while it owns */
	int32_t		sequence;
	bool		revoked;		/* told so at least once */
	bool		retains;		/* the contender says that it may be idle */
	bool		in_use;			/* it is not */
	bool		contended;		/* others wait behind it */
	bool		giving_way;		/* to be released for them */
	bool		queued;			/* told so at least once */
	/* what the worker knows */
	bool		left;			/* told left: to be retried */
	bool		guarded;		/* has asked for it */
	bool		watch_refused;	/* in vain */
	bool		set_refused;	/* what we are is not reported */
	bool		asks_retained;
	bool		reported_retained;
	int32_t		gone;			/* number of a predecessor known to be gone before
								 * the latest step, or -1 */
	bool		was_unsure;		/* recipe.unsure ahead of the last answer */
	bool		watches_queue;	/* has asked for it, or retains */
	bool		alone;			/* told so, and nothing else since */
	bool		set_in_use;		/* has written that it needs the lock */
	unsigned	report;			/* by the last step */
} Client;

/* How often the model came by the places that it is there for. */
typedef struct Tally
{
	unsigned long grants;
	unsigned long late;			/* contenders that had to retreat */
	unsigned long renewed;		/* directories deleted by us */
	unsigned long stood_by;
	unsigned long ended;
	unsigned long passed_over;
	unsigned long lost;
	unsigned long failed;
	unsigned long restarts;
	unsigned long looks;		/* at what a waiter watches */
	unsigned long search_hits;
	unsigned long search_misses;
	unsigned long left;
	unsigned long retried;
	unsigned long no_token;
	unsigned long asked_again;	/* for the token */
	unsigned long writer;		/* behind a reader */
	unsigned long unwatched;
	unsigned long revoked;
	unsigned long mixed;
	unsigned long alone;
	unsigned long contended;
	unsigned long contended_unknown;	/* for the list was refused */
	unsigned long comers;		/* lists of who has come behind idle locks, */
	unsigned long comers_gone;	/* that show nobody */
	unsigned long gave_way;
	unsigned long set_in_use;
	unsigned long reported_retained;
	unsigned long retained_in_vain;
	unsigned long retained_granted;
	unsigned long orphans;
	unsigned long first;		/* owners by the number 0, */
	unsigned long next;			/* or by that next to an owner's before */
	unsigned long not_next;		/* contenders that had hoped for it */
	unsigned long kin_next;
	unsigned long requeued;		/* owners by the number next to their own, */
	unsigned long requeued_behind;	/* contenders that others had overtaken, */
	unsigned long requeued_again;	/* that were found not to have queued, */
	unsigned long requeued_found;	/* or to have, */
	unsigned long requeued_lost;	/* and nodes that were gone before */
} Tally;

static Tally tally;

/* Something that a caller sees; the model has what the server does. */
typedef struct Seen
{
	int64_t		zxid;			/* the server's latest at that time */
	const char *what;
	int			client;
	int32_t		sequence;
} Seen;

/* What the tests know of a run beside what the model does. */
typedef struct Scene
{
	Client		clients[MAX_CLIENTS];
	int			nclients;
	bool		tokens;			/* creates are answered with the czxid */
	bool		strangers;
	bool		semaphores;		/* the name may become one */
	bool		unread;			/* clients remember their directory */
	bool		traced;			/* for proof/recipe.pml */
	Seen		seen[MAX_SEEN];
	int			nseen;
	bool		answered[MODEL_NODES];	/* its owner wrote that it is in use */
	/* the latest grants of each directory, which follow the queue */
	struct
	{
		bool		any;
		int32_t		latest;
		bool		exclusive_any;
		int32_t		exclusive;
	}			grants[MODEL_DIRS];
} Scene;

static Scene scene_storage;
static Scene *const scene = &scene_storage;

static int
client_number(const Client *client)
{
	return (int) (client - scene->clients);
}

static Client *
client_of(const ModelSession *session)
{
	return &scene->clients[session->client];
}

static void
note(const Client *client, const char *what, long number)
{
	model_note(client_number(client), 0, what, number);
}

static void
see(const Client *client, const char *what, int32_t sequence)
{
	Seen	   *seen = &scene->seen[scene->nseen];

	if (!scene->traced)
		return;
	model_check(scene->nseen++ < MAX_SEEN, "the trace is too long");
	seen->zxid = model->zxid;
	seen->what = what;
	seen->client = client_number(client);
	seen->sequence = sequence;
}

static void
start_scene(const char *title, unsigned long run)
{
	model_start(title, run);
	model->negative = true;
	scene->nclients = 0;
	scene->tokens = scene->strangers = scene->unread = false;
	scene->semaphores = scene->traced = false;
	scene->nseen = 0;
	memset(scene->answered, 0, sizeof(scene->answered));
	memset(scene->grants, 0, sizeof(scene->grants));
}

static int
node_at(const char *name, int64_t zxid)
{
	return model_node_at(MODEL_NAME, name, zxid);
}

static bool
node_exists(const ModelNode *node)
{
	return node->dzxid == 0;
}

/* Does the data ask for the lock, as of a zxid? */
static bool
asks_for_lock(const ModelNode *node, int64_t zxid)
{
	return strcmp(model_data_at(&node->data, zxid), NOTE_REVOCATION_DATA) == 0;
}

static bool
is_marked_text(const char *text)
{
	return strstr(text, NOTE_RETAIN_MARK) != NULL;
}

/* Does the data say that the lock may not be needed, as of a zxid? */
static bool
is_marked(const ModelNode *node, int64_t zxid)
{
	return is_marked_text(model_data_at(&node->data, zxid));
}

/* Did the data ever ask for the lock? */
static bool
was_asked(const ModelNode *node)
{
	for (int i = 0; i < node->data.n; i++)
		if (strcmp(node->data.text[i], NOTE_REVOCATION_DATA) == 0)
			return true;
	return false;
}

static const char *
cluster_data(bool retain)
{
	return retain ? NOTE_PREFIX "me" NOTE_RETAIN_MARK :
		NOTE_PREFIX "me";
}

static Client *
add_client(void)
{
	Client	   *client = &scene->clients[scene->nclients++];

	memset(client, 0, sizeof(*client));
	memset(&client->recipe, 0, sizeof(client->recipe));
	succession_init(&client->succession);
	model_begin_session(&client->session, client_number(client));
	return client;
}

static bool
has_uuid_of(const ModelNode *node, const Client *client)
{
	return node->session == client->session.id &&
		znode_has_uuid(node->name, client->recipe.uuid);
}

static bool
is_kin(const ModelNode *node)
{
	return node->kin || strncmp(node->name, KIN_READER, strlen(KIN_READER)) == 0;
}

/* What the server is about to do must not break these rules. */
static void
check_executing(const ModelSession *session, const ModelEntry *entry)
{
	bool		requeues = entry->kind == REQUEST_REQUEUE;

	if ((entry->kind == REQUEST_CREATE || requeues) &&
		entry->contender == OF_RECIPE)
	{
		for (int i = model->oldest; i < model->nnodes; i++)
			model_check(!node_exists(&model->nodes[i]) ||
						is_kin(&model->nodes[i]) || model->nodes[i].orphan ||
						(requeues && strcmp(model->nodes[i].name, entry->node) == 0) ||
						model->nodes[i].session != session->id,
						"a contender has at most one node");
	}
	else if (entry->kind == REQUEST_RMDIR &&
			 model_count_at(MODEL_NAME, model->zxid) == 0)
	{
		for (int i = 0; i < scene->nclients; i++)
			model_check(!scene->clients[i].owner ||
						!scene->clients[i].session.alive,
						"no owner's directory is deleted");
	}
}

static void
describe_clients(void)
{
	for (int i = 0; i < scene->nclients; i++)
	{
		const Client *client = &scene->clients[i];

		print_message("client %d: %s, session %d%s%s, node %s\n", i,
					  recipe_state_name(client->recipe.state),
					  client->session.id,
					  client->session.alive ? "" : " (expired)",
					  client->session.connected ? "" : " (disconnected)",
					  client->recipe.node);
	}
}

/*-------------------------------------------------------------------------
 * The rules
 *-------------------------------------------------------------------------
 */

/* Does a node with this number count as a reader?  Not if that is late. */
static bool
is_reader(bool shared, int32_t sequence)
{
	return shared && !znode_is_late(sequence);
}

/* Does a node stand behind a contender that excludes it? */
static bool
stands_behind(const ModelNode *node, const Recipe *recipe)
{
	return node->contender &&
		znode_before(recipe->sequence, node->sequence) &&
		!(recipe->kind == ZNODE_READER &&
		  is_reader(node->shared, node->sequence));
}

/* Does a node stand ahead of one, and exclude it? */
static bool
stands_ahead(const ModelNode *node, int32_t sequence, bool shared)
{
	return node->contender && znode_before(node->sequence, sequence) &&
		!(is_reader(shared, sequence) && node->shared);
}

/* Nobody who queues is missed: the news is there, or on its way. */
static void
check_queue_watch(Client *client)
{
	ModelSession *session = &client->session;
	const ModelClaim *claim = model_find_claim(session, MODEL_NAME, "");
	const ModelWatch *watch = model_find_watch(session, MODEL_NAME, "");
	bool		pending = false;

	for (int i = 0; i < session->nentries; i++)
	{
		const ModelEntry *entry = &session->entries[i];

		if (entry->is_event ? entry->node[0] == '\0' :
			entry->kind == REQUEST_LIST &&
			entry->serial == client->recipe.queue_watch)
			pending = true;
	}
	model_check(claim != NULL && claim->serial == client->recipe.queue_watch,
				"the watch of the list tells the owner");
	if (pending)
		return;
	model_check(watch != NULL &&
				(session->connected ? watch->armed : watch->registered),
				"an owner that watches the queue has a watch, or an answer on its way");
	model_check(client->alone, "an owner that watches the queue is told");
	for (int i = model->oldest; i < model->nnodes && session->connected; i++)
	{
		const ModelNode *node = &model->nodes[i];

		model_check(!model_exists_at(node->czxid, node->dzxid,
									 session->view) ||
					!stands_behind(node, &client->recipe),
					"nobody is behind who is alone, or news is on its way");
	}
}

/* What must hold at any time, whatever has happened. */
static void
check_rules(void)
{
	int			exclusive = 0;
	int			shared = 0;

	for (int i = 0; i < scene->nclients; i++)
	{
		Client	   *client = &scene->clients[i];
		Recipe	   *recipe = &client->recipe;
		int			own;

		model_check((recipe->state == RECIPE_OWNER) == client->owner,
					"the slot knows whether we own the lock");
		model_check((recipe->state == RECIPE_NONE) == !client->active,
					"the slot knows whether we have a contender");
		model_check(recipe->state != RECIPE_WATCHING || recipe->predecessor != NULL,
					"the predecessor is known while we wait for it");
		/* its name has to last until the unwatch has been sent */
		model_check(recipe->state == RECIPE_WATCHING ||
			  recipe->state == RECIPE_READING ||
			  recipe->state == RECIPE_OWNER || recipe->state == RECIPE_LATE ||
			  recipe->state == RECIPE_LEAVING || recipe->predecessor == NULL,
			  "the predecessor is forgotten with the node");
		model_check((recipe->state == RECIPE_LEAVING && recipe->refused) ==
					client->left,
					"the worker knows of every delete that was refused");

		model_check(recipe->state != RECIPE_OWNER ||
			  !znode_is_late(recipe->sequence), "nobody late is an owner");

		/* an owner whose session has ended is what leases are for */
		if (recipe->state != RECIPE_OWNER || !client->session.alive ||
			client->robbed)
			continue;
		if (recipe->queue_watch != 0)
			check_queue_watch(client);
		model_check(!client->giving_way || !client->in_use,
					"who gives way has no use for it");
		own = node_at(recipe->node, model->zxid);
		model_check(own >= 0, "an owner's node exists");
		model_check(has_uuid_of(&model->nodes[own], client),
					"an owner's node is its session's");
		if (recipe->kind == ZNODE_READER)
			shared++;
		else
			exclusive++;
		for (int j = model->oldest; j < model->nnodes; j++)
		{
			const ModelNode *other = &model->nodes[j];

			model_check(other->dzxid != 0 || j == own ||
						!stands_ahead(other, model->nodes[own].sequence,
									  recipe->kind == ZNODE_READER),
						"nothing that excludes an owner is ahead of it");
		}
	}
	model_check(exclusive == 0 || (exclusive == 1 && shared == 0),
				"an exclusive owner is the only owner");
}

/* Grants follow the queue; what ended sessions believe does not count. */
static void
check_grant(Client *client)
{
	int			own = node_at(client->recipe.node, model->zxid);
	int			dir;
	int32_t		sequence = client->recipe.sequence;

	tally.grants++;
	if (!client->session.alive)
		return;
	model_check(own >= 0, "who is granted the lock has a node");
	dir = model->nodes[own].dir;
	if (client->recipe.kind == ZNODE_READER)
		model_check(!scene->grants[dir].exclusive_any ||
					znode_before(scene->grants[dir].exclusive, sequence),
					"a reader is granted the lock after the writers ahead");
	else
		model_check(!scene->grants[dir].any ||
					znode_before(scene->grants[dir].latest, sequence),
					"a writer is granted the lock after everybody ahead");
	if (!scene->grants[dir].any ||
		znode_before(scene->grants[dir].latest, sequence))
		scene->grants[dir].latest = sequence;
	scene->grants[dir].any = true;
	if (client->recipe.kind != ZNODE_READER)
	{
		scene->grants[dir].exclusive = sequence;
		scene->grants[dir].exclusive_any = true;
	}
}

static void step(Client *client, RecipeEvent event,
				 const RequestAnswer *in);

/* Others wait behind an owner: it gives way if it is idle, or tells them. */
static void
answer_contended(Client *client)
{
	int			node = node_at(client->recipe.node, model->zxid);

	if (client->retains && !client->in_use)
	{
		note(client, "gives way", 0);
		tally.gave_way++;
		client->giving_way = true;
		return;
	}
	note(client, "sets in use", client->recipe.retain);
	client->set_in_use = client->recipe.retain;
	if (client->set_in_use && node >= 0)
	{
		tally.set_in_use++;
		scene->answered[node] = true;
	}
	step(client, RECIPE_SET_IN_USE, NULL);
	model_check(!client->recipe.retain,
				"it is told once that the lock is needed");
}

/* Is this of a client's session, and of none of its contenders? */
static bool
is_orphan(const Client *client, const char *name)
{
	/* the latest: numbers come again when the directory has been collected */
	for (int i = model->nnodes - 1; i >= 0; i--)
		if (strcmp(model->nodes[i].name, name) == 0 &&
			model->nodes[i].session == client->session.id)
			return model->nodes[i].orphan;
	return false;
}

/* News of a contender that waits. */
static void
take_waiter_news(Client *client, const RecipeOutput *out)
{
	const Recipe *recipe = &client->recipe;

	if (out->report & RECIPE_REPORT_CREATED)
	{
		model_check(client->active, "created only what was wanted");
		client->created = true;
		client->requeued = false;
		client->sequence = recipe->sequence;
	}
	if (out->report & RECIPE_REPORT_QUEUED)
	{
		model_check(client->wanted &&
					(recipe->state == RECIPE_WATCHING ? recipe->blockers > 0 :
					 recipe->state == RECIPE_LATE && recipe->refused),
					"queued behind somebody");
		if (recipe->state == RECIPE_LATE)
			tally.stood_by++;
		if (client->reported_retained && !client->queued)
			tally.retained_in_vain++;
		client->queued = true;
	}
	if (out->report & RECIPE_REPORT_RETAINED)
	{
		model_check(client->asks_retained && recipe->retained_ahead &&
					recipe->state == RECIPE_WATCHING && recipe->blockers > 0 &&
					!(out->report & RECIPE_REPORT_QUEUED),
					"who asks retained owners asks who is ahead");
		client->reported_retained = true;
		tally.reported_retained++;
	}
}

static void
take_grant(Client *client, const RecipeOutput *out)
{
	const Recipe *recipe = &client->recipe;

	if (out->report & RECIPE_REPORT_GRANTED)
	{
		model_check(client->wanted && !client->owner,
					"granted once, to who wants it");
		see(client, "OWNS", recipe->sequence);
		client->owner = true;
		client->robbed = false;
		client->token = client->no_token = client->revoked = false;
		client->guarded = client->watch_refused = client->set_refused = false;
		if (client->reported_retained && !client->queued)
			tally.retained_granted++;
		client->in_use = true;
		client->contended = client->giving_way = client->alone = false;
		client->set_in_use = false;
		client->watches_queue = client->retains;
		check_grant(client);
	}
	if (out->report & RECIPE_REPORT_TOKEN)
	{
		int			node = node_at(recipe->node, model->zxid);

		model_check(client->owner, "only an owner has a token");
		model_check(!client->session.alive || client->robbed ||
					(node >= 0 && model->nodes[node].czxid == recipe->token),
					"the token is the node's czxid");
		client->token = true;
	}
	if (out->report & RECIPE_REPORT_NO_TOKEN)
	{
		model_check(client->owner && !client->token,
					"only who does not know the token is told that there is none");
		model_check(model->refusals && out->error == ERROR_REFUSED,
					"the token is told, if it is not refused");
		tally.no_token++;
		client->token = client->no_token = true;
	}
}

static void
check_failure(const Client *client, const RecipeOutput *out)
{
	model_check(client->wanted && !client->owner, "only a waiter can fail");
	if (out->report & RECIPE_REPORT_MIXED)
	{
		model_check(scene->semaphores && out->error == 0,
					"only a semaphore's name fails as one");
		tally.mixed++;
	}
	else if (out->report & RECIPE_REPORT_LATE)
	{
		model_check(znode_is_unordered(client->recipe.sequence) &&
					out->error == 0, "only who has no order is refused");
		tally.ended++;
	}
	else
		model_check(model->refusals, "nothing fails that was not refused");
	tally.failed++;
}

/* News of a contender that does not get the lock, or not any more. */
static void
take_end_news(Client *client, const RecipeOutput *out)
{
	const Recipe *recipe = &client->recipe;

	if (out->report & RECIPE_REPORT_LOST)
	{
		model_check(client->owner, "only an owner can lose the lock");
		model_check(!client->session.alive || client->robbed,
					"a lock is lost with the session only");
		tally.lost++;
		client->owner = client->wanted = false;
	}
	if (out->report & RECIPE_REPORT_FAILED)
	{
		check_failure(client, out);
		client->wanted = false;
	}
	if (out->report & RECIPE_REPORT_LEFT)
	{
		model_check(model->refusals && out->error == ERROR_REFUSED,
					"no node is left behind but by a refusal");
		model_check(recipe->state == RECIPE_LEAVING && client->active &&
					!client->wanted && !(out->report & RECIPE_REPORT_GONE),
					"what is left behind is still to be deleted");
		model_check(!client->left && out->nops == 0,
					"a refused delete waits for a retry");
		tally.left++;
		client->left = true;
	}
	if (out->report & RECIPE_REPORT_GONE)
	{
		model_check(client->active, "gone only once");
		model_check(!client->wanted || client->owner ||
					!client->session.alive, "who wants the lock goes on");
		client->active = client->wanted = client->owner = false;
		client->created = client->left = false;
		client->requeued = false;
		client->in_use = client->giving_way = client->watches_queue = false;
	}
}

/* Has the step passed over a child that has the name of a contender? */
static bool
has_passed_over(const RecipeOutput *out)
{
	ZnodeContender contender;

	return (out->report & RECIPE_REPORT_STRANGER) &&
		znode_parse_contender(out->stranger, &contender);
}

static void
check_other_news(const RecipeOutput *out)
{
	if (out->report & RECIPE_REPORT_RENEWED)
		tally.renewed++;
	if (has_passed_over(out))
		tally.passed_over++;
	model_check(!(out->report & RECIPE_REPORT_STRANGER) || scene->strangers,
				"no contender is taken for a stranger");
	model_check(!(out->report & RECIPE_REPORT_MIXED) ||
		  (out->report & RECIPE_REPORT_FAILED), "who finds a semaphore fails");
}

/* What an owner has asked for. */
static void
take_owner_news(Client *client, const RecipeOutput *out)
{
	const Recipe *recipe = &client->recipe;

	if (out->report & RECIPE_REPORT_UNWATCHED)
	{
		model_check(client->owner && client->watches_queue && client->alone &&
					!recipe->retain && recipe->kind == ZNODE_READER,
					"only a reader in use does not watch on");
		client->watches_queue = client->alone = false;
		tally.unwatched++;
	}
	if (out->report & (RECIPE_REPORT_ALONE | RECIPE_REPORT_CONTENDED))
	{
		model_check(client->owner && client->watches_queue,
			  "only an owner that watches the queue is told who is behind");
		model_check((recipe->queue_watch != 0) == (out->report == RECIPE_REPORT_ALONE),
					"who is alone goes on, who is contended does not");
		client->alone = (out->report & RECIPE_REPORT_ALONE) != 0;
		if (!client->alone)
			client->contended = true;
	}
	if (out->report & RECIPE_REPORT_REVOKED)
	{
		int			node = node_at(recipe->node, model->zxid);

		model_check(client->owner && client->guarded,
					"only a guarded owner is asked for the lock");
		model_check(!client->session.alive ||
					(node >= 0 && was_asked(&model->nodes[node])),
					"who is asked for it was asked");
		tally.revoked++;
		client->revoked = true;
	}
}

static void
check_unwatch(const Client *client, const RecipeOutput *out, int i)
{
	if (has_passed_over(out))
	{
		model_check(out->ops[i].node == out->stranger,
					"who is no contender is not watched");
		return;
	}
	model_check(client->recipe.state == RECIPE_LEAVING && i + 1 < out->nops &&
				out->ops[i + 1].kind == REQUEST_DELETE,
				"who stops waiting leaves");
	model_check(strcmp(out->ops[i].node, client->recipe.predecessor) == 0,
				"who stops waiting waited for the predecessor");
}

/* An operation is sent: is it one that its state allows, about its node? */
static void
check_op(Client *client, const RecipeOutput *out, int i)
{
	const Recipe *recipe = &client->recipe;
	const Request *op = &out->ops[i];
	char		own[ZNODE_CONTENDER_SIZE];

	znode_contender_name(recipe->uuid, recipe->kind, recipe->sequence, own);
	switch (op->kind)
	{
		case REQUEST_CREATE:
			for (int j = 0; j < client->session.nentries; j++)
				model_check(client->session.entries[j].is_event ||
							client->session.entries[j].contender !=
							OF_RECIPE ||
							client->session.entries[j].kind !=
							REQUEST_CREATE, "one create at a time");
			model_check(recipe->retain == client->retains,
						"a contender says what it is from the beginning");
			break;
		case REQUEST_REQUEUE:
			for (int j = 0; j < client->session.nentries; j++)
				model_check(client->session.entries[j].is_event ||
							client->session.entries[j].kind !=
							REQUEST_REQUEUE, "one requeue at a time");
			model_check(client->requeued && client->wanted && !client->owner &&
						recipe->kind != ZNODE_READER &&
						strcmp(op->node, own) == 0,
						"an exclusive owner queues again, if it is to");
			model_check(recipe->retain == client->retains,
						"a contender says what it is from the beginning");
			break;
		case REQUEST_LIST:
			model_check(client->owner && client->watches_queue,
						"only an owner that watches the queue lists it");
			break;
		case REQUEST_WATCH:
			if (recipe->state == RECIPE_OWNER)
				model_check(client->guarded && strcmp(op->node, own) == 0,
							"an owner watches its own node");
			else
				model_check(!znode_has_uuid(op->node, recipe->uuid),
							"the predecessor is somebody else");
			break;
		case REQUEST_SET:
			model_check((client->guarded || client->set_in_use) &&
						strcmp(op->node, own) == 0,
						"we touch our own node only");
			break;
		case REQUEST_RMDIR:
			model_check(recipe->state == RECIPE_LATE, "who is late leaves");
			tally.late++;
			break;
		case REQUEST_UNWATCH:
			check_unwatch(client, out, i);
			break;
		case REQUEST_STAT:
			if (op->serial != 0)
			{
				model_check(recipe->predecessor != NULL &&
							strcmp(op->node, recipe->predecessor) == 0,
							"who waits looks at what it watches");
				tally.looks++;
				break;
			}
			/* FALLTHROUGH */
		case REQUEST_DELETE:
			model_check(strcmp(op->node, own) == 0,
						"we touch our own node only");
			break;
		case REQUEST_DELETE_ORPHAN:
			model_check(is_orphan(client, op->node),
						"no create is repeated that had arrived");
			tally.orphans++;
			break;
		default:
			break;
	}
}

/* What a step put out: news for the slot, and operations to send. */
static void
take_output(Client *client, const RecipeOutput *out)
{
	const Recipe *recipe = &client->recipe;

	note(client, recipe_state_name(recipe->state), out->report);
	model_check_recipe(recipe);
	client->report = out->report;
	if (recipe->state == RECIPE_ENTERING)
		client->created = client->requeued = false;
	take_waiter_news(client, out);
	take_grant(client, out);
	check_other_news(out);
	take_owner_news(client, out);
	take_end_news(client, out);
	model_check(recipe->state != RECIPE_NONE || out->nops == 0,
				"without a contender nothing is sent");

	for (int i = 0; i < out->nops; i++)
	{
		Request		op = out->ops[i];

		check_op(client, out, i);
		if (op.kind == REQUEST_CREATE || op.kind == REQUEST_REQUEUE ||
			op.kind == REQUEST_SET)
			op.data = cluster_data(recipe->retain);
		model_submit(&client->session, 0, false, MODEL_NAME, &op);
	}
	check_rules();
	if (out->report & RECIPE_REPORT_CONTENDED)
	{
		answer_contended(client);
		client->report = out->report;
	}
}

/*
 * An exclusive owner is about to be deleted: the worker has the directory
 * watched, and remembers the number.
 */
static void
note_leaving(Client *client)
{
	Succession *succession = &client->succession;
	Request		op = {.kind = REQUEST_WATCH,.node = MODEL_SELF};

	if (succession->watch == SUCCESSION_UNWATCHED)
	{
		op.serial = ++client->last_serial;
		succession_watch(succession, op.serial);
		model_submit(&client->session, OF_DIRECTORY, false, MODEL_NAME, &op);
	}
	succession_leave(succession, client->recipe.sequence);
}

static void
step(Client *client, RecipeEvent event, const RequestAnswer *in)
{
	RecipeOutput out;
	bool		owned = client->recipe.state == RECIPE_OWNER &&
		client->recipe.kind != ZNODE_READER;
	ZnodeContender gone = {.sequence = -1};

	if (client->recipe.state == RECIPE_READING && client->recipe.blockers > 0)
		(void) znode_parse_contender(client->recipe.predecessor, &gone);
	client->gone = gone.sequence;
	recipe_step(&client->recipe, event, in, &out);
	if (scene->unread && owned && client->recipe.state == RECIPE_LEAVING)
		note_leaving(client);
	take_output(client, &out);
}

/*
 * Do all own the lock who exclude a client, in the list that it was given?
 * Who owns it has nobody ahead that excludes it.  A server that lags may list
 * who is known to be gone.
 */
static bool
only_owners_exclude(const Client *client, const ModelEntry *entry)
{
	for (int i = 0; i < entry->nchildren; i++)
	{
		const ModelNode *other = &model->nodes[entry->children[i]];

		if (has_uuid_of(other, client) ||
			!znode_before(other->sequence, client->gone) ||
			!stands_ahead(other, client->recipe.sequence,
						  client->recipe.kind == ZNODE_READER))
			continue;
		for (int j = 0; j < entry->nchildren; j++)
		{
			const ModelNode *first = &model->nodes[entry->children[j]];

			if (first->contender && !has_uuid_of(first, client) &&
				znode_before(first->sequence, other->sequence) &&
				!(first->shared && is_reader(other->shared, other->sequence)))
				return false;
		}
	}
	return true;
}

/* Is one ahead that is known by its name, and excludes a client? */
static bool
names_contender(const Client *client, const ModelEntry *entry)
{
	for (int i = 0; i < entry->nchildren; i++)
	{
		const ModelNode *other = &model->nodes[entry->children[i]];

		if (strncmp(other->name, "_c_", 3) == 0 &&
			!has_uuid_of(other, client) &&
			stands_ahead(other, client->recipe.sequence,
						 client->recipe.kind == ZNODE_READER))
			return true;
	}
	return false;
}

/*
 * An answer has been heard: who asks retained owners is told to be queued only
 * if one is ahead that waits itself, or if the last of the owners has said
 * that it needs the lock; and if that is one of us that may keep it idle, it
 * has said so for that.
 */
static void
check_queued(const Client *client, const ModelEntry *entry)
{
	bool		list = entry->kind == REQUEST_CHILDREN ||
		entry->kind == REQUEST_SEARCH;
	bool		queued = (client->report & RECIPE_REPORT_QUEUED) != 0;

	if (list && client->recipe.state == RECIPE_WATCHING &&
		(client->recipe.unsure || scene->strangers))
		model_check(!queued || names_contender(client, entry),
					"queued is told at once if somebody is surely ahead");
	else if (list && client->recipe.state == RECIPE_WATCHING)
		model_check(queued == (!client->asks_retained ||
						 !only_owners_exclude(client, entry)),
			  "who asks retained owners lets owners answer first");
	else if (queued && client->recipe.state != RECIPE_LATE)
	{
		int			node = node_at(entry->node, entry->view);

		model_check(entry->kind == REQUEST_WATCH &&
			  entry->result == REQUEST_OK && node >= 0 && !entry->persistent,
			  "queued by what was read");
		if (client->was_unsure)
			return;				/* it only had to be there */
		model_check(client->asks_retained && !is_marked_text(entry->data),
					"queued behind one that needs the lock");
		model_check(strcmp(entry->data, NOTE_REVOCATION_DATA) == 0 ||
					!is_marked_text(model->nodes[node].data.text[0]) ||
					scene->answered[node] ||
					model->nodes[node].session == FOREIGN,
					"queued behind one that has answered");
	}
	if (client->report & RECIPE_REPORT_RETAINED)
		model_check(entry->kind == REQUEST_WATCH &&
					is_marked_text(entry->data),
					"retained is told of one that may not need the lock");
}

/* The list of who is behind is in, or not. */
static void
hear_list(Client *client, const ModelEntry *entry, const RequestAnswer *in)
{
	const Recipe *recipe = &client->recipe;
	unsigned	behind = RECIPE_REPORT_CONTENDED |
		(recipe->kind == ZNODE_READER ? RECIPE_REPORT_WRITER : 0);
	unsigned	report = 0;

	if (recipe->state == RECIPE_OWNER && entry->serial == recipe->queue_watch)
	{
		if (entry->result == REQUEST_OK)
			report = RECIPE_REPORT_ALONE;
		else if (entry->result != REQUEST_UNKNOWN)
		{
			report = RECIPE_REPORT_CONTENDED;
			tally.contended_unknown++;
		}
		for (int i = 0; i < entry->nchildren; i++)
			if (stands_behind(&model->nodes[entry->children[i]], recipe))
				report = behind;
	}
	step(client, RECIPE_ANSWER, in);
	/* one that is not ephemeral may be taken for somebody */
	if (report == RECIPE_REPORT_ALONE && scene->strangers)
		report = client->report & RECIPE_REPORT_CONTENDED ?
			behind : RECIPE_REPORT_ALONE;
	model_check(client->report == report,
				"who watches the queue is told who is behind");
	tally.alone += (report & RECIPE_REPORT_ALONE) != 0;
	tally.contended += (report & RECIPE_REPORT_CONTENDED) != 0;
	tally.writer += (report & RECIPE_REPORT_WRITER) != 0;
}

/* The list of who has come behind a lock that may be idle is in, or not. */
static void
hear_comers(Client *client, const ModelEntry *entry, const RequestAnswer *in)
{
	const Recipe *recipe = &client->recipe;
	bool		others = recipe->others;
	bool		found = false;

	for (int i = 0; i < entry->nchildren; i++)
		if (stands_behind(&model->nodes[entry->children[i]], recipe))
			found = true;
	step(client, RECIPE_ANSWER, in);
	model_check(recipe->comers_list == 0, "who has come is read once");
	if (entry->result == REQUEST_OK && !found && !scene->strangers)
		model_check(recipe->others, "who has come and gone is of another kind");
	if (entry->result != REQUEST_OK)
		model_check(recipe->others == others, "nobody knows who has come");
	tally.comers += entry->result == REQUEST_OK;
	tally.comers_gone += entry->result == REQUEST_OK && !found;
}

/* What the worker learns from an answer, whatever the recipe does with it. */
static void
note_answer(Client *client, const ModelEntry *entry)
{
	bool		refused = entry->result == REQUEST_REFUSED;
	bool		hit = false;

	if (entry->kind == REQUEST_SEARCH && entry->result == REQUEST_OK)
	{
		for (int i = 0; i < entry->nchildren; i++)
			hit = hit || has_uuid_of(&model->nodes[entry->children[i]], client);
		if (client->recipe.requeued && hit)
		{
			if (node_at(client->recipe.node, entry->view) >= 0)
				tally.requeued_again++;
			else
				tally.requeued_found++;
		}
		if (hit)
			tally.search_hits++;
		else
			tally.search_misses++;
	}
	if (entry->kind == REQUEST_WATCH && refused)
		client->watch_refused = true;
	if (entry->kind == REQUEST_SET && refused)
		client->set_refused = true;
}

/* The directory's watch is set, or not, or used up. */
static void
hear_directory(Client *client, const RequestAnswer *in)
{
	note(client, "hears of its directory", in->result);
	if (in->event == REQUEST_DONE)
		succession_watched(&client->succession, in->serial,
						   in->result == REQUEST_OK);
	else
		succession_fired(&client->succession, in->serial);
}

/* The other contender of an instance, a reader, owns the lock if it may. */
static void
hear_kin(Client *client, const ModelEntry *entry)
{
	int			own = node_at(entry->node, model->zxid);
	ZnodeContender contender;

	if (entry->result != REQUEST_OK || own < 0 ||
		!znode_parse_contender(entry->node, &contender) ||
		contender.sequence == 0 ||
		contender.sequence != succession_next(&client->succession))
		return;
	tally.kin_next++;
	note(client, "its other contender owns", contender.sequence);
	for (int i = model->oldest; i < model->nnodes; i++)
		model_check(model->nodes[i].dzxid != 0 || i == own ||
					!stands_ahead(&model->nodes[i], contender.sequence, true),
					"nothing that excludes a reader with the next number is ahead");
}

/* What the worker knows of the directory when a recipe's answer is in. */
static void
note_succession(Client *client, const ModelEntry *entry)
{
	if (entry->kind == REQUEST_CREATE)
		client->recipe.next = succession_next(&client->succession);
	else if (entry->kind == REQUEST_DELETE)
		succession_left(&client->succession, client->recipe.sequence,
						entry->result == REQUEST_OK);
}

/* An answer to a create: who owns the lock by its number alone? */
static void
tally_unread(const Client *client, const RequestAnswer *in, bool unread)
{
	if (client->report & RECIPE_REPORT_GRANTED)
	{
		if (client->recipe.sequence == 0)
			tally.first++;
		else
			tally.next++;
	}
	else if (unread && in->result == REQUEST_OK)
		tally.not_next++;
}

/* An answer to a requeue. */
static void
tally_requeue(const Client *client, const RequestAnswer *in)
{
	if (in->result == REQUEST_NO_NODE)
		tally.requeued_lost++;
	else if (client->report & RECIPE_REPORT_GRANTED)
		tally.requeued++;
	else if (in->result == REQUEST_OK && client->wanted)
		tally.requeued_behind++;
}

/* The client hears the next answer or event. */
static void
deliver(ModelSession *session)
{
	Client	   *client = client_of(session);
	bool		unread = client->recipe.unread;
	ModelEntry	entry;
	RequestAnswer in;
	const char *children[MODEL_CHILDREN];

	if (!model_hear(&client->session, &entry))
	{
		/* nobody waits for it, but it is repeated until it is answered */
		if (!entry.is_event && entry.kind == REQUEST_DELETE_ORPHAN &&
			entry.result == REQUEST_UNKNOWN && client->session.alive)
			model_resubmit(&client->session, &entry);
		return;
	}
	model_answer(&entry, &in, children);
	client->recipe.orphan = entry.orphan;
	if (entry.contender != OF_RECIPE)
	{
		if (entry.contender == OF_DIRECTORY)
			hear_directory(client, &in);
		else
			hear_kin(client, &entry);
		return;
	}
	if (entry.is_event)
	{
		step(client, RECIPE_ANSWER, &in);
		return;
	}

	if (scene->tokens && entry.kind == REQUEST_CREATE &&
		entry.result == REQUEST_OK)
		in.token = entry.czxid;
	note_answer(client, &entry);
	note_succession(client, &entry);
	if (entry.kind == REQUEST_LIST)
		hear_list(client, &entry, &in);
	else if (client->recipe.comers_list != 0 &&
			 entry.serial == client->recipe.comers_list)
		hear_comers(client, &entry, &in);
	else
	{
		client->was_unsure = client->recipe.unsure;
		step(client, RECIPE_ANSWER, &in);
		check_queued(client, &entry);
	}
	if (entry.kind == REQUEST_CREATE)
		tally_unread(client, &in, unread);
	else if (entry.kind == REQUEST_REQUEUE)
		tally_requeue(client, &in);
}

/*
 * The connection is lost.  The worker has the library forget the directory's
 * watch, so that it is not set again.
 */
static void
lose_connection(ModelSession *session, int applied)
{
	model_lose_connection(session, applied);
	see(client_of(session), "LOST", 0);
	model_drop_watch(session, MODEL_NAME, MODEL_SELF);
	succession_disconnect(&client_of(session)->succession);
}

/*
 * The worker remembers too many directories, and no longer this one's watch.
 */
static void
unwatch_directory(Client *client)
{
	Request		op = {.kind = REQUEST_UNWATCH,.node = MODEL_SELF};

	if (client->succession.watch != SUCCESSION_WATCHED)
		return;
	note(client, "no longer watches the directory", 0);
	model_submit(&client->session, OF_DIRECTORY, false, MODEL_NAME, &op);
	succession_fired(&client->succession, client->succession.serial);
}

static void
hear_of_expiry(ModelSession *session)
{
	Client	   *client = client_of(session);

	note(client, "told of expiry", session->id);
	model_forget_all(session);
	step(client, RECIPE_EXPIRED, NULL);
	model_check(session->nentries == 0,
				"nothing is sent in an ended session");
	model_begin_session(session, client_number(client));
	succession_init(&client->succession);
	model_check(client->recipe.state == RECIPE_NONE,
				"a contender ends with its session");
}

static void
want(Client *client, bool shared, bool dir_known)
{
	RecipeOutput out;
	uint8_t		uuid[ZNODE_UUID_BYTES];

	model_make_uuid(uuid);
	note(client, shared ? "wants shared" : "wants", dir_known);
	client->active = client->wanted = true;
	client->queued = client->reported_retained = client->contended = false;
	client->set_in_use = false;
	client->recipe.retain = client->retains;
	client->recipe.asks_retained = client->asks_retained;
	recipe_want(&client->recipe, uuid, kind_of(shared), dir_known,
				succession_next(&client->succession) != 0 || model_one_in(8),
				&out);
	take_output(client, &out);
}

static void
release(Client *client)
{
	note(client, "releases", 0);
	if (client->owner)
		see(client, "RELEASES", client->recipe.sequence);
	client->wanted = client->owner = false;
	client->in_use = client->giving_way = client->watches_queue = false;
	step(client, RECIPE_RELEASE, NULL);
}

/* An exclusive owner gives the lock up, and queues for it again. */
static void
requeue(Client *client)
{
	note(client, "queues again", 0);
	see(client, "RELEASES", client->recipe.sequence);
	client->requeued = true;
	client->owner = false;
	client->in_use = client->giving_way = client->watches_queue = false;
	client->queued = client->reported_retained = client->contended = false;
	client->set_in_use = false;
	client->recipe.retain = client->retains;
	client->recipe.asks_retained = client->asks_retained;
	step(client, RECIPE_REQUEUE, NULL);
}

/* The worker has the owner's node watched. */
static void
watch_revocation(Client *client)
{
	note(client, "watches for a revocation", 0);
	client->guarded = true;
	step(client, RECIPE_WATCH_REVOCATION, NULL);
}

/* The worker asks to be told when others come to stand behind the owner. */
static void
watch_queue(Client *client)
{
	note(client, "watches the queue", 0);
	client->watches_queue = true;
	step(client, RECIPE_WATCH_QUEUE, NULL);
}

/*
 * The last holder gives the lock back.  It is kept if the contender says that
 * it may be, and nobody has come yet.
 */
static void
put_down(Client *client)
{
	if (client->retains && !client->contended)
	{
		note(client, "keeps the lock", 0);
		client->in_use = false;
	}
	else
		release(client);
}

static void
take_up(Client *client)
{
	if (!client->giving_way)
	{
		note(client, "takes the lock up", 0);
		client->in_use = true;
	}
}

/* Somebody asks for the lock that a client owns. */
static void
revoke(Client *client)
{
	int			node = node_at(client->recipe.node, model->zxid);

	if (node >= 0 && model->nodes[node].data.n < MAX_CHANGES - 5)
	{
		note(client, "is asked for the lock", 0);
		model_set_data(&model->nodes[node].data, NOTE_REVOCATION_DATA);
	}
}

/* Does a contender come again that had a late number?  Nobody is there. */
static bool
comes_again(const Client *client)
{
	return client->recipe.state == RECIPE_LATE && client->recipe.refused &&
		model_count_at(MODEL_NAME, model->zxid) == 0;
}

/* Was something refused that a retry sends again? */
static bool
is_to_retry(const Client *client)
{
	return client->left || (client->owner && client->no_token) ||
		comes_again(client);
}

/* The worker tries again what was refused: a delete, a stat, or nothing. */
static void
retry(Client *client)
{
	RecipeOutput out;
	bool		left = client->left;
	bool		aside = client->recipe.state == RECIPE_LATE &&
		client->recipe.refused;
	Recipe		before = client->recipe;

	recipe_step(&client->recipe, RECIPE_RETRY, NULL, &out);
	if (aside)
	{
		note(client, "comes again", 0);
		model_check(client->recipe.state == RECIPE_ENTERING,
					"who stood by comes again");
		take_output(client, &out);
	}
	else if (is_to_retry(client))
	{
		note(client, "retries", 0);
		if (left)
			tally.retried++;
		else
			tally.asked_again++;
		model_check(out.nops == 1 && out.report == 0 &&
					out.ops[0].kind ==
					(left ? REQUEST_DELETE : REQUEST_STAT),
					"a retry sends what was refused");
		if (!left)
			client->token = client->no_token = false;
		client->left = false;
		take_output(client, &out);
	}
	else
		model_check(out.nops == 0 && out.report == 0 &&
					memcmp(&client->recipe, &before, sizeof(before)) == 0,
					"with nothing refused there is nothing to retry");
}

/*
 * The worker dies and the next one resumes the session, with what the slot
 * knows.  No answer reaches anybody, and no watch is left.
 *
 * The server that takes the session over is taken to be as far as the old
 * worker had seen.  A new ZooKeeper handle does not ask that of it, so that
 * the worker has to, by a write ahead of what the recipes send.
 */
static void
restart_worker(ModelSession *session, int applied)
{
	Client	   *client = client_of(session);
	Recipe		old = client->recipe;
	RecipeOutput out;

	tally.restarts++;
	model_lose_connection(session, applied);
	note(client, "worker restarted", applied);
	model_forget_all(session);
	succession_init(&client->succession);
	client->reported_retained = client->alone = client->set_in_use = false;
	client->watches_queue = client->owner && client->retains;
	if (client->giving_way)
		client->owner = client->wanted = client->giving_way = false;
	client->token = client->no_token = client->left = false;
	client->guarded = client->watch_refused = client->set_refused = false;
	recipe_free(&client->recipe);
	memset(&client->recipe, 0, sizeof(client->recipe));
	if (!client->active)
		return;
	client->recipe.retain = client->retains;
	client->recipe.asks_retained = client->asks_retained;
	client->recipe.requeued = client->requeued;
	recipe_resume(&client->recipe, old.uuid, old.kind,
				  client->owner ? RECIPE_RESUME_OWNED :
				  client->wanted ? RECIPE_RESUME_WANTED :
				  RECIPE_RESUME_RELEASING,
				  client->created || client->requeued ?
				  &client->sequence : NULL, &out);
	take_output(client, &out);
}

/* Another client queues, or makes what is no contender. */
static void
foreigner_enters(const char *name, bool sequential)
{
	int			node;

	model_make_directory(MODEL_NAME, NULL);
	if (!sequential)
	{
		if (strcmp(name, ZNODE_LOCKS_DIR) == 0 ||
			strcmp(name, ZNODE_PERMITS_DIR) == 0)
			scene->semaphores = true;
		else
			scene->strangers = true;
		if (node_at(name, model->zxid) >= 0)
			return;
	}
	node = model_make_node(MODEL_NAME, name, sequential,
						   FOREIGN, FOREIGN_DATA);
	model_note(-1, 0, "another client enters", model->nodes[node].sequence);
}

/* A contender that a client's instance has, too, or that it has lost. */
static void
kin_enters(Client *client, const char *name, bool orphan)
{
	int			node;

	if (!model_is_made(MODEL_NAME))
		return;
	node = model_make_node(MODEL_NAME, name, true, client->session.id,
						   cluster_data(false));
	model->nodes[node].kin = !orphan;
	model->nodes[node].orphan = orphan;
	note(client, orphan ? "has an orphan" : "has another contender",
		 model->nodes[node].sequence);
}

/* The first node of another client or another contender, or -1. */
static int
first_foreigner(void)
{
	for (int i = model->oldest; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0 &&
			(model->nodes[i].session == FOREIGN || is_kin(&model->nodes[i])))
			return i;
	return -1;
}

static int
first_orphan(void)
{
	for (int i = model->oldest; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0 && model->nodes[i].orphan)
			return i;
	return -1;
}

static void
foreigner_leaves(int node)
{
	model_note(-1, 0, "another client leaves", model->nodes[node].sequence);
	model_delete_node(node);
	check_rules();
}

/*
 * What was refused is tried again, and who is to give way does; false if there
 * is nothing to do.
 */
static bool
act(ModelSession *session)
{
	Client	   *client = client_of(session);
	bool		busy = is_to_retry(client);

	if (busy)
		retry(client);
	if (client->giving_way)
	{
		busy = true;
		release(client);
	}
	return busy;
}

static const ModelHooks hooks = {
	.executing = check_executing,
	.describe = describe_clients,
	.check_rules = check_rules,
	.deliver = deliver,
	.hear_of_expiry = hear_of_expiry,
	.lose_connection = lose_connection,
	.restart_worker = restart_worker,
	.act = act
};

/* At rest, there are the watches of those who wait, and no others. */
static void
check_watches(Client *client)
{
	ModelSession *session = &client->session;
	const Recipe *recipe = &client->recipe;
	bool		waits = recipe->state == RECIPE_WATCHING;
	bool		guards = recipe->state == RECIPE_OWNER &&
		client->guarded && !client->watch_refused;
	bool		lists = model_find_claim(session, MODEL_NAME, "") != NULL;
	bool		remembers =
		model_find_claim(session, MODEL_NAME, MODEL_SELF) != NULL;
	const char *node = waits ? recipe->predecessor : recipe->node;
	const ModelClaim *claim;

	for (int i = 0; i < session->nwatches; i++)
	{
		const ModelWatch *watch = &session->watches[i];

		model_check(watch->registered && watch->armed,
					"at rest client and server agree on a watch");
		/* that of the directory lasts until it fires */
		model_check(watch->orphaned || watch->node[0] == '\0' ||
					model_find_claim(session, watch->place, watch->node),
					"no watch is left of who does not wait for it");
	}
	if (waits || guards)
	{
		claim = model_find_claim(session, MODEL_NAME, node);
		model_check(claim != NULL && claim->serial ==
					(waits ? recipe->serial : recipe->revocation_watch),
					"who waits for a node, or for a revocation, has a watch");
		model_check(model_find_watch(session, MODEL_NAME, node) != NULL,
					"at rest worker and library agree on a watch");
	}
	model_check(session->nclaims == (waits || guards) + lists + remembers,
				"nobody else has a watch");
	model_check(remembers ==
				(client->succession.watch == SUCCESSION_WATCHED),
				"at rest the directory is watched as the worker believes");
	model_check(!remembers ||
				model_find_watch(session, MODEL_NAME, MODEL_SELF) != NULL,
				"and the library knows of it");
	model_check(!lists || client->watches_queue || !client->owner,
				"only who watches the queue lists it");
}

/* At rest: is the queue behind an owner watched? */
static bool
watches_list(const Client *client)
{
	ModelSession *session = (ModelSession *) &client->session;
	const ModelWatch *watch = model_find_watch(session, MODEL_NAME, "");

	return watch != NULL && watch->armed && watch->registered &&
		model_find_claim(session, MODEL_NAME, "") != NULL;
}

/* At rest, nobody waits for an idle owner, and all who wait know for whom. */
static void
check_retaining(const Client *client)
{
	const Recipe *recipe = &client->recipe;
	int			own = node_at(recipe->node, model->zxid);
	bool		behind = false;

	if (recipe->state == RECIPE_WATCHING && !client->queued)
	{
		int			ahead = node_at(recipe->predecessor, model->zxid);

		model_check(client->asks_retained && client->reported_retained &&
					recipe->retained_ahead && ahead >= 0 &&
					is_marked(&model->nodes[ahead], model->zxid),
					"who waits and is not queued has asked the owner");
		for (int i = 0; i < scene->nclients; i++)
			model_check(scene->clients[i].session.id != model->nodes[ahead].session ||
						scene->clients[i].set_refused,
						"an owner of ours that was asked has answered");
	}
	if (!client->owner)
		return;

	for (int i = model->oldest; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0 &&
			stands_behind(&model->nodes[i], recipe))
			behind = true;
	if (client->watches_queue)
	{
		model_check(client->contended || client->alone,
					"at rest, who watches the queue is told");
		model_check(client->contended || !behind,
					"at rest, who watches the queue knows of who is behind");
		model_check(recipe->queue_watch == 0 ||
					watches_list(client),
					"at rest, who watches the queue has a watch");
	}
	if (client->retains && behind)
	{
		model_check(client->in_use, "nobody waits for an idle owner");
		model_check(client->set_refused ||
					!is_marked(&model->nodes[own], model->zxid),
					"who needs the lock says so to who waits");
	}
}

/* At rest, nobody waits for a node that its own instance has lost. */
static void
check_predecessor(const Client *client)
{
	int			ahead;

	if (client->recipe.state != RECIPE_WATCHING)
		return;
	ahead = node_at(client->recipe.predecessor, model->zxid);
	model_check(ahead >= 0, "who waits has a predecessor");
	model_check(!model->nodes[ahead].orphan || model->nodes[ahead].stays ||
				model->nodes[ahead].session != client->session.id,
				"a predecessor that is an orphan of our own is deleted");
}

/* At rest, who is first in the queue owns the lock, and nobody else does. */
static void
check_liveness(void)
{
	for (int i = 0; i < scene->nclients; i++)
	{
		Client	   *client = &scene->clients[i];
		bool		first = true;
		int			own;

		model_check(client->recipe.state == RECIPE_NONE ||
			  client->recipe.state == RECIPE_WATCHING ||
			  client->recipe.state == RECIPE_LATE ||
			  client->recipe.state == RECIPE_OWNER,
			  "at rest one has the lock, waits for it, or has no part in it");
		check_watches(client);
		model_check(client->active == client->wanted,
					"who does not want the lock leaves the queue");
		if (!client->active)
			continue;
		if (client->recipe.state == RECIPE_LATE)
		{
			model_check(!is_to_retry(client), "who is late waits for others");
			model_check(client->queued, "who stands by is told to be queued");
			continue;
		}
		own = node_at(client->recipe.node, model->zxid);
		model_check(own >= 0, "who wants the lock is in the queue");
		check_retaining(client);
		check_predecessor(client);
		for (int j = model->oldest; j < model->nnodes; j++)
		{
			const ModelNode *other = &model->nodes[j];

			if (other->dzxid == 0 &&
				stands_ahead(other, model->nodes[own].sequence,
							 client->recipe.kind == ZNODE_READER))
				first = false;
		}
		model_check(client->owner == first,
					"who is first in the queue has the lock");
		model_check(!client->owner || (client->token && !client->no_token),
					"an owner comes to know its token");
		if (client->owner && client->guarded && !client->watch_refused)
		{
			/* unless it wrote at that moment that it needs the lock */
			model_check(client->revoked || !was_asked(&model->nodes[own]) ||
						scene->answered[own],
						"a guarded owner hears that it is asked for the lock");
			model_check(client->set_refused ||
						!asks_for_lock(&model->nodes[own], model->zxid),
						"who was asked says again who it is");
		}
	}
}

/* The other clients leave, and the lock goes from one of us to the next. */
static void
wind_up(void)
{
	int			node;
	bool		wanted = true;

	schedule_settle();
	check_liveness();
	/* orphans that nobody stands right behind go with their session */
	while ((node = first_orphan()) >= 0)
		foreigner_leaves(node);
	while ((node = first_foreigner()) >= 0)
		foreigner_leaves(node);

	for (int rounds = 0; wanted; rounds++)
	{
		model_check(rounds < 10, "the lock goes round");
		wanted = false;
		schedule_settle();
		check_liveness();
		for (int i = 0; i < scene->nclients; i++)
		{
			wanted = wanted || scene->clients[i].wanted;
			if (scene->clients[i].owner)
				release(&scene->clients[i]);
		}
	}
	schedule_settle();
	for (int i = 0; i < scene->nclients; i++)
		unwatch_directory(&scene->clients[i]);
	/* or, if the library has not heard of that, it fires with the directory */
	schedule_settle();
	if (scene->unread)
		(void) model_collect_directory(MODEL_NAME);
	schedule_settle();
	for (int i = 0; i < scene->nclients; i++)
	{
		model_check(!scene->clients[i].active, "released contenders are gone");
		model_check(scene->clients[i].session.nwatches == 0,
					"no watch of ours is left");
		model_check(scene->clients[i].session.nclaims == 0,
					"nor does anybody wait for one");
		recipe_free(&scene->clients[i].recipe);
	}
	model_check(model_count_at(MODEL_NAME, model->zxid) == 0,
				"no node of ours is left");
}

/*-------------------------------------------------------------------------
 * The model: every small schedule
 *
 * One recipe on a known path - queue behind others, own, release - and on it,
 * at every step, up to "faults" of: the connection breaks with any number of
 * the operations sent applied; the session expires; the worker restarts; and
 * if there are "refusals", a delete is refused.  The release comes at any
 * step, too, and so does the retry of a refused delete.
 *-------------------------------------------------------------------------
 */

typedef struct Scenario
{
	const char *title;
	bool		shared;
	bool		guarded;		/* and asked for the lock, once owned */
	bool		root_missing;
	bool		dir_known;		/* or so we believe */
	bool		dir_missing;
	const char *others[3];		/* ahead in the queue */
	const char *kin;			/* the same, of our own session */
	bool		orphan;			/* and of nobody */
	bool		retain;
	bool		asks_retained;
	bool		ahead_retains;	/* they may not need the lock, */
	bool		ahead_in_use;	/* but say that they do */
	const char *behind;			/* comes when we own it, or before */
	bool		in_a_row;		/* all sent is applied, then answered */
	bool		tokens;			/* creates are answered with the czxid */
	bool		refusals;
	int32_t		first;			/* where the counter stands at first */
	int			faults;
} Scenario;

static const Scenario scenarios[] = {
	{"free lock", .dir_known = true, .faults = 2},
	{"free lock, answers late", .dir_known = true, .in_a_row = true,
	.faults = 2},
	{"first use of the namespace", .root_missing = true, .dir_missing = true,
	.in_a_row = true, .faults = 2},
	{"directory collected behind our back", .dir_known = true,
	.dir_missing = true, .faults = 2},
	{"one ahead", .dir_known = true, .others = {W}, .faults = 2},
	{"one ahead, answers late", .dir_known = true, .others = {W},
	.in_a_row = true, .faults = 2},
	{"two ahead", .dir_known = true, .others = {W, R}, .faults = 2},
	{"a reader behind a writer and readers", .shared = true,
	.dir_known = true, .others = {R, W, R}, .in_a_row = true,
	.faults = 2},
	{"free lock, deletes refused", .dir_known = true, .refusals = true,
	.faults = 3},
	{"one ahead, deletes refused", .dir_known = true, .others = {W},
	.refusals = true, .faults = 2},
	{"free lock, guarded, and asked for", .guarded = true, .dir_known = true,
	.faults = 2},
	{"one ahead, three faults", .dir_known = true, .others = {W},
	.faults = 3},
	{"one ahead gives way", .asks_retained = true, .retain = true,
		.dir_known = true, .others = {W}, .ahead_retains = true,
	.faults = 2},
	{"one ahead says that it needs the lock", .asks_retained = true,
		.dir_known = true, .others = {W}, .ahead_retains = true,
	.ahead_in_use = true, .faults = 2},
	{"one ahead never may be idle", .asks_retained = true, .dir_known = true,
	.others = {W}, .in_a_row = true, .faults = 2},
	{"a courteous reader behind a writer and a reader", .asks_retained = true,
		.shared = true, .dir_known = true, .others = {R, W},
	.ahead_retains = true, .in_a_row = true, .faults = 2},
	{"a retained lock, and somebody comes", .retain = true,
	.dir_known = true, .behind = W, .faults = 1},
	{"a retained lock, and somebody comes, answers late", .retain = true,
	.dir_known = true, .behind = R, .in_a_row = true, .faults = 1},
	{"a retained shared lock, and a writer comes", .retain = true,
	.shared = true, .dir_known = true, .behind = W, .faults = 1},
	{"a retained shared lock, and a reader comes", .retain = true,
	.shared = true, .dir_known = true, .behind = R, .faults = 1},
	{"free lock, creates tell the token", .dir_known = true, .tokens = true,
	.faults = 2},
	{"two ahead, creates tell the token", .dir_known = true, .tokens = true,
	.others = {W, R}, .faults = 2},
	{"late, and free", .dir_known = true, .first = ZNODE_LATE_SEQUENCE,
	.faults = 2},
	{"late, and free, answers late", .dir_known = true,
	.first = ZNODE_LATE_SEQUENCE, .in_a_row = true, .faults = 2},
	{"late, one ahead", .dir_known = true, .others = {W},
	.first = ZNODE_LATE_SEQUENCE - 1, .faults = 1},
	{"a late reader behind a reader", .shared = true, .dir_known = true,
	.others = {R}, .first = ZNODE_LATE_SEQUENCE - 1, .faults = 1},
	{"late, deletes refused", .dir_known = true, .refusals = true,
	.first = ZNODE_LATE_SEQUENCE, .faults = 2},
	{"the last number with an order", .dir_known = true, .others = {W},
	.first = INT32_MAX - 2, .in_a_row = true, .faults = 1},
	{"a number without order, one ahead that has one", .dir_known = true,
	.others = {W}, .first = INT32_MAX - 1, .in_a_row = true, .faults = 2},
	{"a number without order, as that of one ahead", .dir_known = true,
	.others = {W}, .first = INT32_MAX, .in_a_row = true, .faults = 2},
	{"an orphan of our own ahead", .dir_known = true, .kin = W,
	.orphan = true, .faults = 2},
	{"another one, and an orphan of our own ahead, answers late",
		.dir_known = true, .others = {W}, .kin = R, .orphan = true,
	.in_a_row = true, .faults = 2},
	{"another contender of ours ahead", .dir_known = true, .kin = W,
	.faults = 2}
};

/* How far a scenario has come. */
typedef struct Play
{
	const Scenario *scenario;
	Client	   *client;
	bool		released;
	bool		asked;			/* for the lock, by a revocation */
	bool		in_use;			/* those ahead have written so, or never
								 * will */
	bool		came;			/* whoever is to come behind us */
	bool		kept;			/* the lock was put down and may be kept */
	int			faults;			/* that may still happen */
} Play;

static void
set_scene(Play *play, const Scenario *scenario)
{
	Client	   *client;

	if (scenario->root_missing)
		model->root_czxid = 0;
	model->first[MODEL_NAME] = scenario->first;
	if (!scenario->dir_missing)
		model_make_directory(MODEL_NAME, NULL);
	for (size_t i = 0; i < lengthof(scenario->others); i++)
		if (scenario->others[i] != NULL)
		{
			foreigner_enters(scenario->others[i], true);
			strcpy(model->nodes[model->nnodes - 1].data.text[0],
				   scenario->ahead_retains ? FOREIGN_RETAINED : FOREIGN_DATA);
		}
	model->refusals = scenario->refusals;
	scene->tokens = scenario->tokens;
	client = add_client();
	if (scenario->kin)
		kin_enters(client, scenario->kin, scenario->orphan);
	client->session.view = client->session.seen = model->zxid;
	client->retains = scenario->retain;
	client->asks_retained = scenario->asks_retained;

	memset(play, 0, sizeof(*play));
	play->scenario = scenario;
	play->client = client;
	play->in_use = !scenario->ahead_in_use;
	play->came = scenario->behind == NULL;
	play->kept = !scenario->retain || scenario->behind == NULL;
	play->faults = scenario->faults;
	want(client, scenario->shared, scenario->dir_known);
}

/* With nothing on its way, others do what they are there for. */
static bool
others_go_on(Play *play)
{
	Client	   *client = play->client;
	int			node = first_foreigner();

	if (node >= 0 && !play->in_use)
	{
		check_retaining(client);
		model_set_data(&model->nodes[node].data, FOREIGN_DATA);
		play->in_use = true;
	}
	else if (client->owner && !play->came)
	{
		check_retaining(client);
		foreigner_enters(play->scenario->behind, true);
		play->came = true;
	}
	else if (node >= 0)
	{
		check_watches(client);
		check_retaining(client);
		foreigner_leaves(node);
	}
	else if (is_to_retry(client))
		retry(client);
	else
		return false;
	return true;
}

/* The plain next thing to happen; false if there is none. */
static bool
go_on(Play *play)
{
	Client	   *client = play->client;
	ModelSession *session = &client->session;

	if (play->scenario->guarded && client->owner && !client->guarded)
	{
		watch_revocation(client);
		watch_queue(client);
	}
	else if (client->guarded && !play->asked)
	{
		revoke(client);
		play->asked = true;
	}
	else if (play->scenario->in_a_row && session->connected &&
			 model_unapplied(session) > 0)
		model_execute(session);
	else if (schedule_go_on(session) || schedule_catch_up(session))
		return true;
	else if (client->giving_way)
		release(client);
	else
		return others_go_on(play);
	return true;
}

/* What may come at any step, and is no fault; false if "which" is beyond. */
static bool
make_event(Play *play, unsigned *which, const unsigned counts[4])
{
	int			event = 0;

	while (event < 4 && *which >= counts[event])
		*which -= counts[event++];
	switch (event)
	{
		case 0:
			release(play->client);
			play->released = true;
			return true;
		case 1:
			retry(play->client);
			return true;
		case 2:
			foreigner_enters(play->scenario->behind, true);
			play->came = true;
			return true;
		case 3:
			put_down(play->client);
			play->kept = true;
			return true;
	}
	return false;
}

static void
play_scenario(const void *plan)
{
	const Scenario *scenario = plan;
	Play		play;

	set_scene(&play, scenario);
	for (;;)
	{
		Client	   *client = play.client;
		ScheduleFaults faults;
		unsigned	nfaults = schedule_count_faults(&client->session,
													play.faults > 0,
													scenario->refusals,
													&faults);
		unsigned	counts[4] = {
			play.released || !client->wanted ? 0 : 1,
			client->left ? 1 : 0,
			play.came ? 0 : 1,
			play.kept || !client->owner ? 0 : 1
		};
		unsigned	which;

		/* 0: nothing special, so that the first schedule is the plain one */
		which = model_choose(1 + counts[0] + counts[1] + counts[2] +
							 counts[3] + nfaults);
		if (which == 0)
		{
			if (!go_on(&play))
				break;
			continue;
		}
		which--;
		if (!make_event(&play, &which, counts))
		{
			play.faults--;
			schedule_fault(&client->session, &faults, which);
		}
	}
	wind_up();
}

static void
test_scenario(void **state)
{
	schedule_explore(&hooks, *state, start_scene, play_scenario, 1000);
}

/*-------------------------------------------------------------------------
 * The model: every small schedule of a directory that is remembered
 *
 * One client owns the lock and releases it, again and again, and remembers its
 * directory.  At every step, up to "events" of those things happen from which
 * it must not take another directory for it, nor another contender for its
 * own: the directory is collected, another client enters, somebody deletes the
 * owner's node, the connection breaks with all or none of the operations sent
 * applied, the worker restarts or remembers too much, the instance has a
 * reader, too.
 *-------------------------------------------------------------------------
 */

typedef struct Relay
{
	const char *title;
	bool		shared;			/* the first contender, and no other */
	const char *ahead;			/* of the first contender; or NULL */
	bool		requeues;		/* each but the last queues again */
	int			wants;			/* contenders behind the first */
	int			events;
} Relay;

static const Relay relays[] = {
	{"one after the other", .wants = 1, .events = 3},
	{"three, one after the other", .wants = 2, .events = 2},
	{"a reader first, behind another client's", .shared = true, .ahead = R,
	.wants = 1, .events = 2},
	{"one after the other, another client ahead", .ahead = W, .wants = 1,
	.events = 2},
	{"in one step", .requeues = true, .wants = 1, .events = 3},
	{"three, in one step each", .requeues = true, .wants = 2, .events = 2},
	{"in one step, another client ahead", .requeues = true, .ahead = W,
	.wants = 1, .events = 2}
};

typedef enum RelayEvent
{
	RELAY_COLLECT,
	RELAY_FOREIGNER,
	RELAY_ROB,
	RELAY_LOSE_NONE,			/* nothing that was sent is applied */
	RELAY_LOSE_ALL,				/* or all is */
	RELAY_RESTART,
	RELAY_UNWATCH,
	RELAY_KIN,
	RELAY_CANCEL,
	RELAY_EVENTS
} RelayEvent;

static bool
may_happen(const Client *client, RelayEvent event)
{
	const ModelSession *session = &client->session;

	switch (event)
	{
		case RELAY_COLLECT:
			return model_is_made(MODEL_NAME) &&
				model_count_at(MODEL_NAME, model->zxid) == 0;
		case RELAY_FOREIGNER:
			return first_foreigner() < 0;
		case RELAY_ROB:
			return client->owner &&
				node_at(client->recipe.node, model->zxid) >= 0;
		case RELAY_LOSE_NONE:
			return session->connected;
		case RELAY_LOSE_ALL:
			return session->connected && model_unapplied(session) > 0;
		case RELAY_RESTART:
			return true;
		case RELAY_UNWATCH:
			return session->connected &&
				client->succession.watch == SUCCESSION_WATCHED;
		case RELAY_KIN:
			return session->connected && first_foreigner() < 0;
		case RELAY_CANCEL:
			return client->wanted && !client->owner;
		case RELAY_EVENTS:
			break;
	}
	return false;
}

static void
happen(Client *client, RelayEvent event)
{
	Request		op = {.kind = REQUEST_CREATE,.node = KIN_READER,
		.data = cluster_data(false)
	};
	int			unapplied = model_unapplied(&client->session);

	switch (event)
	{
		case RELAY_COLLECT:
			(void) model_collect_directory(MODEL_NAME);
			break;
		case RELAY_FOREIGNER:
			foreigner_enters(W, true);
			break;
		case RELAY_ROB:
			note(client, "is robbed of its node", client->recipe.sequence);
			client->robbed = true;
			model_delete_node(node_at(client->recipe.node, model->zxid));
			break;
		case RELAY_LOSE_NONE:
			lose_connection(&client->session, 0);
			break;
		case RELAY_LOSE_ALL:
			lose_connection(&client->session, unapplied);
			break;
		case RELAY_RESTART:
			restart_worker(&client->session,
						   client->session.connected ? unapplied : 0);
			break;
		case RELAY_UNWATCH:
			unwatch_directory(client);
			break;
		case RELAY_KIN:
			model_submit(&client->session, OF_KIN, false, MODEL_NAME, &op);
			break;
		case RELAY_CANCEL:
			release(client);
			break;
		case RELAY_EVENTS:
			break;
	}
}

/* The plain next thing to happen; false if there is none. */
static bool
relay_on(Client *client, bool requeues, int *wants)
{
	if (schedule_go_on(&client->session))
		return true;
	if (client->owner && requeues && *wants > 0)
	{
		(*wants)--;
		requeue(client);
	}
	else if (client->owner)
		release(client);
	else if (!client->active && *wants > 0)
	{
		(*wants)--;
		want(client, false, true);
	}
	else if (schedule_catch_up(&client->session))
		return true;
	else if (first_foreigner() >= 0)
		foreigner_leaves(first_foreigner());
	else
		return false;
	return true;
}

static void
play_relay(const void *plan)
{
	const Relay *relay = plan;
	Client	   *client;
	int			wants = relay->wants;
	int			events = relay->events;

	model_make_directory(MODEL_NAME, NULL);
	if (relay->ahead)
		foreigner_enters(relay->ahead, true);
	client = add_client();
	scene->unread = true;
	want(client, relay->shared, true);
	for (;;)
	{
		RelayEvent	possible[RELAY_EVENTS];
		unsigned	n = 0;
		unsigned	which;

		for (int i = 0; events > 0 && i < RELAY_EVENTS; i++)
			if (may_happen(client, i))
				possible[n++] = i;
		which = model_choose(1 + n);
		if (which > 0)
		{
			happen(client, possible[which - 1]);
			events--;
		}
		else if (!relay_on(client, relay->requeues, &wants))
			break;
	}
	wind_up();
}

static void
test_relay(void **state)
{
	const Relay *relay = *state;
	Tally		before = tally;

	schedule_explore(&hooks, relay, start_scene, play_relay, 1000);
	if (relay->requeues)
	{
		assert_true(tally.requeued > before.requeued + 100);
		assert_true(tally.requeued_behind > before.requeued_behind + 20);
		assert_true(tally.requeued_again > before.requeued_again + 20);
		assert_true(tally.requeued_found > before.requeued_found + 20);
		assert_true(tally.requeued_lost > before.requeued_lost + 20);
	}
}

/*-------------------------------------------------------------------------
 * The model: random schedules
 *-------------------------------------------------------------------------
 */

typedef struct Mix
{
	const char *title;
	int			clients;		/* 0: one to three */
	bool		foreigners;
	bool		end;			/* the counter comes to its end */
	bool		refusals;
	bool		restarts;
	bool		semaphores;
	bool		retaining;		/* some keep locks, some ask for them */
	bool		tokens;
	bool		kin;			/* an instance has other contenders, and
								 * orphans */
	bool		unread;			/* clients remember their directory */
	bool		requeues;		/* owners queue again */
	bool		traced;			/* only what proof/recipe.pml has, too */
	unsigned	calm;			/* the higher, the rarer are faults */
} Mix;

static const Mix mixes[] = {
	{"one client, faults all the time", .clients = 1, .calm = 4},
	{"clients among themselves", .calm = 12},
	{"clients among themselves, hardly a fault", .clients = 3, .calm = 100},
	{"clients and foreigners", .foreigners = true, .calm = 12},
	{"the counter ends", .clients = 3, .end = true, .calm = 100},
	{"the counter ends, foreigners, faults", .foreigners = true, .end = true,
	.calm = 12},
	{"the counter ends, workers restarted", .end = true, .restarts = true,
	.calm = 10},
	{"operations refused", .foreigners = true, .refusals = true, .calm = 20},
	{"workers restarted", .foreigners = true, .restarts = true, .calm = 10},
	{"the name becomes a semaphore's", .foreigners = true,
	.semaphores = true, .calm = 12},
	{"creates tell the token", .foreigners = true, .restarts = true,
	.tokens = true, .calm = 12},
	{"orphans of their own", .foreigners = true, .kin = true, .calm = 12},
	{"orphans of their own, operations refused", .refusals = true,
	.restarts = true, .kin = true, .calm = 15},
	{"everything", .foreigners = true, .end = true, .refusals = true,
	.restarts = true, .semaphores = true, .calm = 10},
	{"locks are retained, hardly a fault", .clients = 3, .retaining = true,
	.calm = 100},
	{"locks are retained", .foreigners = true, .retaining = true, .calm = 12},
	{"locks are retained, operations refused", .clients = 3,
	.refusals = true, .retaining = true, .calm = 20},
	{"locks are retained, the counter ends", .clients = 3, .end = true,
	.retaining = true, .calm = 50},
	{"with nothing read, hardly a fault", .clients = 1, .foreigners = true,
	.unread = true, .calm = 100},
	{"with nothing read", .foreigners = true, .restarts = true,
	.unread = true, .calm = 20},
	{"with nothing read, the counter ends", .foreigners = true, .end = true,
		.refusals = true, .unread = true, .semaphores = true,
	.calm = 40},
	{"owners queue again", .foreigners = true, .restarts = true,
	.requeues = true, .calm = 12},
	{"an owner queues again, hardly a fault", .clients = 1, .restarts = true,
	.requeues = true, .calm = 60},
	{"owners queue again, with nothing read", .foreigners = true,
		.restarts = true, .kin = true, .unread = true, .requeues = true,
	.calm = 20},
	{"owners queue again, and everything", .foreigners = true, .end = true,
		.refusals = true, .restarts = true, .semaphores = true,
	.retaining = true, .tokens = true, .requeues = true, .calm = 15},
	{"locks are retained, and everything", .foreigners = true, .end = true,
		.refusals = true, .restarts = true, .semaphores = true,
	.retaining = true, .tokens = true, .calm = 10}
};

static void
random_foreigner(const Mix *mix)
{
	static const struct
	{
		const char *name;
		bool		sequential;
	}			kinds[] =
	{
		{W, true}, {W, true}, {R, true}, {R, true},
		{"_c_66666666-6666-4666-8666-666666666666-__WRIT__", true},
		{"77777777777777777777777777777777__lock__", true},
		{"77777777777777777777777777777777__rlock__", true},
		{"x-0123456789abcdef-", true}, {"read-", true}, {"write-", true},
		{"leaves", false}, {"order-0000000000", false},
		{"order-0000000004", false}, {"order--1234567890", false},
		{"order-2147483647", false}
	};
	int			nforeign = 0;
	int			node;
	unsigned	which;

	for (int i = model->oldest; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0 && model->nodes[i].session == FOREIGN)
			nforeign++;

	which = model_choose(4);
	if (which == 0 && nforeign < 4 && model->nnodes < MAX_NODES - 64)
	{
		which = model_choose(lengthof(kinds));
		if (mix->semaphores && model_one_in(4))
			foreigner_enters(model_one_in(2) ? "locks" : "leases", false);
		else
			foreigner_enters(kinds[which].name, kinds[which].sequential);
		if (mix->retaining && model->nodes[model->nnodes - 1].contender &&
			model->nodes[model->nnodes - 1].session == FOREIGN)
			strcpy(model->nodes[model->nnodes - 1].data.text[0],
				   model_one_in(3) ? FOREIGN_RETAINED : FOREIGN_DATA);
	}
	else if (nforeign > 0)
	{
		/* not always the first: waiters give up */
		nforeign = (int) model_choose(nforeign);
		for (node = model->oldest; node < model->nnodes; node++)
			if (model->nodes[node].dzxid == 0 &&
				model->nodes[node].session == FOREIGN && nforeign-- == 0)
				break;
		if (which == 1)
		{
			if (model->nodes[node].data.n <= MAX_CHANGES)
				model_set_data(&model->nodes[node].data, model_one_in(2) ?
							   NOTE_REVOCATION_DATA : FOREIGN_DATA);
		}
		else
			foreigner_leaves(node);
	}
}

/* The counter goes on by so much as if a month had passed. */
static void
approach_end(void)
{
	ModelDirectory *dir = model_directory_at(MODEL_NAME, model->zxid);
	int32_t		next = model_one_in(4) ? INT32_MAX : ZNODE_LATE_SEQUENCE;

	next -= (int32_t) model_choose(4);
	if (dir != NULL && model->ndirs[MODEL_NAME] < MAX_DIRS - 8 &&
		dir->next < next)
	{
		model_note(-1, 0, "the counter comes to", next);
		dir->next = next;
	}
}

/* Whether the next contender of a client keeps its lock, and asks for it. */
static void
choose_retaining(const Mix *mix, Client *client)
{
	if (mix->retaining)
	{
		client->retains = !model_one_in(3);
		client->asks_retained = !model_one_in(4);
	}
}

/* Something that a worker or a backend does with a lock that it owns. */
static void
random_owner(const Mix *mix, Client *client)
{
	switch (model_choose(mix->retaining ? 7 : 3))
	{
		case 0:
			watch_revocation(client);
			break;
		case 1:
			revoke(client);
			break;
		case 2:
			if (client->session.nentries < MAX_ENTRIES / 4)
				watch_queue(client);
			break;
		case 3:
		case 4:
		case 5:
			put_down(client);
			break;
		case 6:
			take_up(client);
			break;
	}
}

/* A reader must not; so it stays what it is, whoever asks. */
static void
random_requeue(const Mix *mix, Client *client)
{
	if (client->recipe.kind == ZNODE_READER)
		step(client, RECIPE_REQUEUE, NULL);
	else
	{
		choose_retaining(mix, client);
		requeue(client);
	}
}

static void
want_at_random(const Mix *mix, Client *client, bool dir_known)
{
	bool		shared = !mix->traced && model_one_in(3);

	want(client, shared, dir_known);
}

/*
 * The watch has stood for long: its event may have been lost.  (Where nothing
 * is read, what that is there for is rare, and looks make it rarer.)
 */
static void
look(const Mix *mix, Client *client)
{
	if (mix->traced || mix->unread || !client->session.connected ||
		client->session.nentries >= MAX_ENTRIES / 4 || !model_one_in(20))
		return;
	note(client, "looks", 0);
	step(client, RECIPE_LOOK, NULL);
}

static void
random_want(const Mix *mix, Client *client)
{
	if (client->wanted)
	{
		if (!model_one_in(client->owner ? 3 : 10))
			look(mix, client);
		else if (mix->requeues && client->owner && client->session.alive &&
				 model->nnodes < MAX_NODES - 32 && !model_one_in(3))
			random_requeue(mix, client);
		else
			release(client);
	}
	else if (!client->active && model->nnodes < MAX_NODES - 32)
	{
		choose_retaining(mix, client);
		want_at_random(mix, client, model_one_in(2));
	}
}

static void
random_other(const Mix *mix, Client *client)
{
	if (mix->traced)
		return;
	if (mix->kin && client->session.alive &&
		model->nnodes < MAX_NODES - 64 && model_one_in(3))
	{
		bool		orphan = model_one_in(2);

		kin_enters(client, model_one_in(2) ? W : R, orphan);
	}
	else if ((mix->kin || mix->unread) && model_one_in(2) &&
			 first_foreigner() >= 0)
		foreigner_leaves(first_foreigner());
	else if (mix->unread && client->session.connected && model_one_in(6))
		happen(client, model_one_in(2) ? RELAY_KIN : RELAY_UNWATCH);
	else if (mix->foreigners)
		random_foreigner(mix);
}

static void
random_step(const Mix *mix)
{
	Client	   *client = &scene->clients[model_choose(scene->nclients)];
	ModelSession *session = &client->session;

	if (model_choose(mix->calm) == 0)
	{
		if (!mix->traced)
			schedule_random_fault(session, mix->restarts);
		else if (session->connected)
			lose_connection(session, (int) model_choose(model_unapplied(session) + 1));
		return;
	}

	switch (model_choose(15))
	{
		case 0:
		case 1:
			random_want(mix, client);
			break;
		case 2:
			random_other(mix, client);
			break;
		case 3:
			if (model->ndirs[MODEL_NAME] < MAX_DIRS - 8)
				model_collect_directory(MODEL_NAME);
			if (mix->end && !mix->traced && model_one_in(8))
				approach_end();
			break;
		case 4:
			schedule_random_catch_up(session);
			break;
		case 5:
		case 6:
			schedule_random_reconnect(session);
			break;
		case 7:
		case 8:
			if (session->connected && model_unapplied(session) > 0)
				model_execute(session);
			break;
		case 9:
			retry(client);
			break;
		case 10:
		case 11:
			if (client->owner)
				random_owner(mix, client);
			break;
		default:
			if (session->nready > 0)
				deliver(session);
			break;
	}
	check_rules();
}

/* One schedule, of which the number of the run is the seed. */
static void
play_random(const Mix *mix, unsigned long run)
{
	int			nclients;

	start_scene(mix->title, run);
	nclients = mix->clients ? mix->clients : 1 + (int) model_choose(3);
	if (mix->end)
	{
		int32_t		first = model_one_in(6) ? INT32_MAX : ZNODE_LATE_SEQUENCE;

		model->first[MODEL_NAME] = first - (int32_t) model_choose(4);
	}
	model->refusals = mix->refusals;
	model->negative = !mix->traced;
	scene->traced = mix->traced;
	scene->tokens = mix->tokens;
	scene->unread = mix->unread;
	switch (model_choose(3))
	{
		case 0:
			model->root_czxid = 0;
			break;
		case 1:
			model_make_directory(MODEL_NAME, NULL);
			break;
		case 2:
			break;
	}
	for (int i = 0; i < nclients; i++)
		add_client();
	for (int steps = (mix->traced ? 500 : 100) + (int) model_choose(200);
		 steps > 0; steps--)
		random_step(mix);

	/* who has no part in it by now joins in, and then all come to rest */
	for (int i = 0; i < nclients; i++)
		if (scene->clients[i].recipe.state == RECIPE_NONE && model_one_in(2) &&
			scene->clients[i].session.alive)
		{
			choose_retaining(mix, &scene->clients[i]);
			want_at_random(mix, &scene->clients[i], false);
		}
	schedule_settle();
	model->refusals = false;
	wind_up();
}

/* It has come by the places that it is there for. */
static void
check_tally(const Mix *mix, const Tally *before,
			const ModelTally *model_before)
{
	assert_true(tally.grants > before->grants + RANDOM_RUNS / 3);
	assert_true(model_tally.losses > model_before->losses + 100);
	assert_true(model_tally.expirations > model_before->expirations + 10);
	assert_true(tally.lost > before->lost);
	assert_true(model_tally.collected > model_before->collected);
	assert_true(tally.search_hits > before->search_hits);
	assert_true(tally.search_misses > before->search_misses);
	assert_true(model_tally.mkdirs > model_before->mkdirs);
	if (mix->clients != 1 || mix->foreigners)
		assert_true(model_tally.lagging_reads > model_before->lagging_reads);
	if (mix->clients != 1 || mix->foreigners)
		assert_true(model_tally.unwatched > model_before->unwatched);
	if (mix->foreigners)
		assert_true(model_tally.touched > model_before->touched);
	if (mix->foreigners)
		assert_true(tally.passed_over > before->passed_over + (mix->end ? 10 : 30));
	if (mix->foreigners && !mix->unread)
		assert_true(tally.looks > before->looks + (mix->end ? 5 : 20));
	if (mix->end)
	{
		assert_true(tally.late > before->late + 1000);
		assert_true(tally.renewed > before->renewed + 500);
		if (mix->foreigners)
		{
			assert_true(tally.stood_by > before->stood_by + 20);
			assert_true(tally.ended > before->ended + 100);
		}
	}
	if (mix->refusals)
	{
		assert_true(tally.failed > before->failed);
		assert_true(tally.left > before->left + 100);
		assert_true(tally.retried > before->retried + 100);
		assert_true(tally.no_token > before->no_token);
		assert_true(tally.asked_again > before->asked_again);
	}
	if (mix->restarts)
		assert_true(tally.restarts > before->restarts);
	if (mix->semaphores)
		assert_true(tally.mixed > before->mixed + 100);
	if (mix->kin)
		assert_true(tally.orphans > before->orphans + 100);
	if (mix->requeues)
	{
		assert_true(tally.requeued > before->requeued + 15);
		assert_true(tally.requeued_again > before->requeued_again + 20);
		assert_true(tally.requeued_found > before->requeued_found + 20);
		if (mix->foreigners)
			assert_true(tally.requeued_behind > before->requeued_behind + 50);
	}
	if (mix->unread && !mix->requeues)
	{
		assert_true(tally.first > before->first + 100);
		assert_true(tally.next > before->next + 3);
		assert_true(tally.not_next > before->not_next + 20);
		assert_true(tally.kin_next > before->kin_next);
	}
}

/* The same, of what owners and those who ask them do. */
static void
check_owner_tally(const Mix *mix, const Tally *before,
				  const ModelTally *model_before)
{
	assert_true(tally.revoked > before->revoked);
	if (mix->clients != 1 || mix->foreigners)
	{
		assert_true(tally.writer > before->writer);
		if (!mix->retaining)
			assert_true(tally.unwatched > before->unwatched);
	}
	if (mix->retaining)
	{
		assert_true(tally.alone > before->alone + 100);
		assert_true(tally.contended > before->contended + 100);
		assert_true(model_tally.list_events > model_before->list_events + 100);
		assert_true(tally.comers > before->comers + 20);
		assert_true(tally.comers_gone > before->comers_gone);
		assert_true(tally.gave_way > before->gave_way + 20);
		assert_true(tally.set_in_use > before->set_in_use + 100);
		assert_true(tally.reported_retained > before->reported_retained + 100);
		/* who has no order does not wait for anybody */
		assert_true(tally.retained_in_vain > before->retained_in_vain +
					(mix->end ? 40 : 100));
		assert_true(tally.retained_granted > before->retained_granted +
					(mix->end ? 40 : 100));
		if (mix->refusals)
			assert_true(tally.contended_unknown > before->contended_unknown);
	}
}

static void
test_random_schedules(void **state)
{
	const Mix  *mix = *state;
	Tally		before = tally;
	ModelTally	model_before = model_tally;

	model_reset(&hooks, false);
	for (unsigned long run = 0; run < RANDOM_RUNS; run++)
		play_random(mix, run);
	check_tally(mix, &before, &model_before);
	check_owner_tally(mix, &before, &model_before);
}

/*-------------------------------------------------------------------------
 * Traces for the model in proof/recipe.pml
 *-------------------------------------------------------------------------
 */

static void
print_seen(const char *what, int client, int32_t sequence)
{
	printf("%s %d %d\n", what, client, (int) sequence);
}

static int
client_of_node(const ModelNode *node)
{
	int			client = 0;

	while (scene->clients[client].session.id != node->session)
		client++;
	return client;
}

/* All that the server did and callers saw, in order; and the rule broken. */
static void
print_trace(const char *rule)
{
	int			next = 0;

	for (int64_t zxid = 1; zxid <= model->zxid; zxid++)
	{
		for (int i = 0; i < model->ndirs[MODEL_NAME]; i++)
		{
			if (model->dirs[MODEL_NAME][i].czxid == zxid)
				print_seen("DIR_MADE", 0, 0);
			if (model->dirs[MODEL_NAME][i].dzxid == zxid)
				print_seen("DIR_GONE", 0, 0);
		}
		/* a requeue deletes a node and makes the next one */
		for (int i = 0; i < model->nnodes; i++)
			if (model->nodes[i].dzxid == zxid)
				print_seen("NODE_GONE", client_of_node(&model->nodes[i]),
						   model->nodes[i].sequence);
		for (int i = 0; i < model->nnodes; i++)
			if (model->nodes[i].czxid == zxid)
				print_seen("NODE_MADE", client_of_node(&model->nodes[i]),
						   model->nodes[i].sequence);
		for (; next < scene->nseen && scene->seen[next].zxid <= zxid; next++)
			print_seen(scene->seen[next].what, scene->seen[next].client,
					   scene->seen[next].sequence);
	}
	printf("END %s\n", rule);
}

static jmp_buf stopped;

/* A rule is broken, by a mutation: that is the end of the trace. */
static void
stop_trace(const char *rule)
{
	print_trace(rule);
	longjmp(stopped, 1);
}

/* Every second one comes to the end of the counter. */
static void
print_traces(unsigned long runs)
{
	Mix			mix = {.title = "traced", .clients = MAX_CLIENTS,
		.unread = true, .requeues = true, .traced = true, .calm = 40
	};
	ModelHooks	traced = hooks;

	traced.end_trace = stop_trace;
	model_reset(&traced, false);
	for (volatile unsigned long run = 0; run < runs; run++)
	{
		mix.end = run % 2 == 1;
		if (setjmp(stopped) == 0)
		{
			play_random(&mix, run);
			print_trace("");
		}
	}
}

/* The mutations of recipe.c and succession.c that such a trace can show. */
static const struct
{
	const char *name;
	ZkMutation	mutation;
}			mutations[] =
{
	{"recovered_create_owns", ZK_RECOVERED_CREATE_OWNS},
	{"requeued_owns", ZK_REQUEUED_OWNS},
	{"gap_owns", ZK_GAP_OWNS},
	{"reconnected_owns", ZK_RECONNECTED_OWNS},
	{"collected_owns", ZK_COLLECTED_OWNS}
};

/*
 * All tests; or, with the arguments "traces" and a number, so many traces,
 * with a third one of a mutated recipe.
 */
int
main(int argc, char **argv)
{
	int			failed = 0;

	if (argc >= 3 && strcmp(argv[1], "traces") == 0)
	{
		for (size_t i = 0; argc > 3 && i < lengthof(mutations); i++)
			if (strcmp(argv[3], mutations[i].name) == 0)
				zklock_mutation = mutations[i].mutation;
		print_traces(strtoul(argv[2], NULL, 10));
		return 0;
	}
	failed += schedule_run_tests("explored", scenarios, sizeof(scenarios[0]),
								 lengthof(scenarios), test_scenario);
	failed += schedule_run_tests("relayed", relays, sizeof(relays[0]),
								 lengthof(relays), test_relay);
	failed += schedule_run_tests("random", mixes, sizeof(mixes[0]),
								 lengthof(mixes), test_random_schedules);
	return failed;
}
