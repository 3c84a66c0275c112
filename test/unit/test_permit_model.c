/*-------------------------------------------------------------------------
 *
 * test_permit_model.c
 *		The permits of a semaphore against a model of ZooKeeper.
 *
 * Up to three clients with up to three permits each, wanted or owned, on the
 * model of model.c, and other clients that do as Curator does.  Small
 * scenarios are explored exhaustively, larger ones at random from fixed seeds,
 * and the rules of a semaphore are checked after every step.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/test_permit_model.c
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

#include "core/lock/permit.h"
#include "schedule.h"

/* How many schedules the model plays at random, of each kind. */
#ifndef RANDOM_RUNS
#define RANDOM_RUNS		1000
#endif

/* With 2 of them, millions of schedules are explored instead of thousands. */
#ifndef FAULTS
#define FAULTS			1
#endif

#define MAX_CLIENTS		MODEL_SESSIONS
#define MAX_SEMAPHORES	3		/* of one client */
#define MAX_FOREIGNERS	3
/* random schedules make no more of these */
#define MAX_NODES		512
#define MAX_DIRS		96

#define UUID_LEN		39		/* with its "_c_" */

/* A semaphore, and what the backend and the worker know of it. */
typedef struct Backend
{
	Permit		permit;
	bool		active;			/* wanted, and not told gone */
	bool		wanted;
	bool		owner;
	bool		token;			/* known, or refused */
	bool		queued;			/* told so */
	bool		left;			/* told left: to be retried */
	bool		created;		/* the slot has the permit's number */
} Backend;

typedef struct Client
{
	Backend		backends[MAX_SEMAPHORES];
	int			nbackends;
	ModelSession session;
} Client;

/* Another client, which does as Curator does. */
typedef enum ForeignState
{
	FOREIGN_IDLE,
	FOREIGN_QUEUED,
	FOREIGN_WAITING,			/* has the lock and a permit */
	FOREIGN_HOLDER
} ForeignState;

typedef struct Foreigner
{
	ForeignState state;
	int			lock;			/* node, or -1 */
	int			permit;
} Foreigner;

/* One who uses the name as a lock, as recipe.c does. */
typedef enum LockerState
{
	LOCKER_IDLE,
	LOCKER_CREATED,				/* and has not looked yet */
	LOCKER_OWNER
} LockerState;

/* What the tests know of a run beside what the model does. */
typedef struct Scene
{
	int			permits;		/* that all agree on, but who disagrees */
	Client		clients[MAX_CLIENTS];
	int			nclients;
	Foreigner	foreigners[MAX_FOREIGNERS];
	int			nforeigners;
	LockerState locker_state;
	int			locker;			/* its node */
	int			last_uuid;
	/* what is allowed to happen */
	bool		disagreement;
	bool		lockers;
	bool		vandals;		/* delete our nodes */
} Scene;

/* How often the model came by the places that it is there for. */
typedef struct Tally
{
	unsigned long grants;
	unsigned long renewed;		/* "locks" deleted for its counter */
	unsigned long stood_by;
	unsigned long waits;
	unsigned long queued_by_permit;
	unsigned long queued_by_queue;
	unsigned long lost;
	unsigned long failed;
	unsigned long disagreed;
	unsigned long mixed;
	unsigned long mixed_lockers;
	unsigned long restarts;
	unsigned long sets;
	unsigned long rmdirs;
	unsigned long left;
	unsigned long retried;
	unsigned long tries;
	unsigned long tries_in_vain;
	unsigned long vandalized;
	unsigned long states[PERMIT_LEAVING + 1];
	unsigned long restarted_in[PERMIT_LEAVING + 1];
} Tally;

static Tally tally;

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
start_scene(const char *title, unsigned long run)
{
	model_start(title, run);
	model->refuse_one_in = 30;
	scene->last_uuid = 0;
	scene->permits = 1;
	scene->nclients = 0;
	scene->nforeigners = 0;
	scene->locker_state = LOCKER_IDLE;
	scene->disagreement = scene->lockers = scene->vandals = false;
}

static Client *
add_client(int nbackends)
{
	Client	   *client = &scene->clients[scene->nclients++];

	memset(client->backends, 0, sizeof(client->backends));
	client->nbackends = nbackends;
	for (int i = 0; i < nbackends; i++)
		memset(&client->backends[i].permit, 0,
			   sizeof(client->backends[i].permit));
	model_begin_session(&client->session, client_number(client));
	return client;
}

/* Make a directory; "permits" is the agreement that is its data, or 0. */
static void
make_directory(ModelPlace place, int permits)
{
	char		data[NOTE_PERMITS_SIZE] = "";

	if (permits != 0)
		snprintf(data, sizeof(data), "permits=%d", permits);
	model_make_directory(place, data);
}

/* The agreement that is there for everybody to see, or 0. */
static int
agreement(void)
{
	const ModelDirectory *dir = model_directory_at(MODEL_PERMITS, model->zxid);
	const char *data = model_data_at(&dir->data, model->zxid);

	return data[0] == '\0' ? 0 : atoi(data + strlen("permits="));
}

static void
check_create(const ModelEntry *entry)
{
	for (int i = model->oldest; i < model->nnodes; i++)
		model_check(model->nodes[i].dzxid != 0 ||
					model->nodes[i].place != entry->place ||
					strncmp(model->nodes[i].name, entry->node, UUID_LEN) != 0,
					"a semaphore has at most one node in a directory");
}

/* What the server is about to do must not break these rules. */
static void
check_executing(const ModelSession *session, const ModelEntry *entry)
{
	(void) session;
	switch (entry->kind)
	{
		case REQUEST_CREATE:
			check_create(entry);
			break;
		case REQUEST_RMDIR:
			model_check(entry->place == MODEL_LOCKS && entry->for_lock,
						"the lock's directory begins anew");
			if (model_is_made(entry->place) &&
				model_count_at(entry->place, model->zxid) == 0)
				tally.renewed++;
			break;
		case REQUEST_GET:
			model_check((entry->place == MODEL_PERMITS || entry->for_lock) &&
						entry->node[0] == '\0', "the agreement is read");
			break;
		case REQUEST_SET:
			model_check(entry->place == MODEL_PERMITS &&
						entry->node[0] == '\0' &&
						atoi(entry->data + strlen("permits=")) > 0,
						"the agreement is written");
			tally.sets++;
			break;
		case REQUEST_DELETE:
		case REQUEST_DELETE_ORPHAN:
			if (entry->place != MODEL_NAME)
				break;
			model_check(strcmp(entry->node, ZNODE_LOCKS_DIR) == 0 ||
						strcmp(entry->node, ZNODE_PERMITS_DIR) == 0,
						"only our directories are deleted");
			tally.rmdirs++;
			break;
		default:
			break;
	}
}

static void
describe_clients(void)
{
	for (int i = 0; i < scene->nclients; i++)
	{
		const Client *client = &scene->clients[i];

		for (int j = 0; j < client->nbackends; j++)
		{
			const Permit *permit = &client->backends[j].permit;

			print_message("client %d.%d: %s, lock %s, session %d%s%s, %s, %s\n",
						  i, j, permit_state_name(permit->state),
						  recipe_state_name(permit->lock.state),
						  client->session.id,
						  client->session.alive ? "" : " (expired)",
						  client->session.connected ? "" : " (disconnected)",
						  permit->place.node, permit->lock.node);
		}
	}
	print_message("%d permits\n", scene->permits);
}

/*-------------------------------------------------------------------------
 * The model: the rules
 *-------------------------------------------------------------------------
 */

/* Has it got through the queue, and waits for a permit? */
static bool
is_waiting(const Permit *permit)
{
	return permit->state == PERMIT_TAKING &&
		permit->place.state == RECIPE_WATCHING;
}

/* Our node in a place, or -1. */
static int
own_node(const Client *client, const Backend *backend, ModelPlace place)
{
	for (int i = model->nnodes - 1; i >= 0; i--)
		if (model->nodes[i].dzxid == 0 && model->nodes[i].place == (int) place &&
			model->nodes[i].session == client->session.id &&
			znode_has_uuid(model->nodes[i].name, backend->permit.uuid))
			return i;
	return -1;
}

/* May the semaphore have a node of this recipe? */
static bool
may_have(const Permit *permit, const Recipe *recipe)
{
	return permit_is_wanted(permit) || recipe->state != RECIPE_NONE;
}

/* What must hold at any time, whatever has happened. */
static void
check_rules(void)
{
	int			owners = 0;
	int			agreed = 0;

	for (int i = 0; i < scene->nclients; i++)
	{
		Client	   *client = &scene->clients[i];

		for (int j = 0; j < client->nbackends; j++)
		{
			Backend	   *backend = &client->backends[j];
			Permit  *permit = &backend->permit;
			PermitState state = permit->state;

			model_check((state == PERMIT_OWNER) == backend->owner,
				  "the backend knows whether it has a permit");
			model_check((state == PERMIT_NONE) == !backend->active,
						"the backend knows whether a node of it may be left");
			model_check(state != PERMIT_NONE ||
						permit->lock.state == RECIPE_NONE,
						"without a permit there is no lock");
			model_check((recipe_is_stuck(&permit->place) ||
						 recipe_is_stuck(&permit->lock)) == backend->left,
				  "the worker knows of every delete that was refused");

			model_check(!client->session.alive || may_have(permit, &permit->lock) ||
						own_node(client, backend, MODEL_LOCKS) < 0,
						"a contender is accounted for");
			model_check(!client->session.alive || may_have(permit, &permit->place) ||
						own_node(client, backend, MODEL_PERMITS) < 0,
						"a permit's node is accounted for");
			model_check(state != PERMIT_LEAVING ||
						(!backend->owner && !backend->wanted) || scene->vandals,
						"what is wanted is not leaving");

			/* an owner whose session has ended is what the lease is for */
			if (!backend->owner || !client->session.alive)
				continue;
			if (own_node(client, backend, MODEL_PERMITS) < 0)
			{
				model_check(scene->vandals, "an owner has its node");
				continue;
			}
			owners++;
			model_check(scene->disagreement ||
						permit->place.permits == scene->permits,
						"there is one number of permits");
			model_check(agreed == 0 || agreed == permit->place.permits,
						"all owners agree on the number of permits");
			agreed = permit->place.permits;
		}
	}
	for (int i = 0; i < scene->nforeigners; i++)
		if (scene->foreigners[i].state == FOREIGN_HOLDER)
			owners++;
	model_check(owners <= (agreed ? agreed : scene->permits),
				"there are no more owners than permits");
	model_check(agreed == 0 || scene->vandals ||
				agreement() == agreed,
				"the agreement is there for everybody to see");
	model_check(scene->locker_state != LOCKER_OWNER || agreed == 0,
				"a name is a lock's or a semaphore's");
}

/* How many permits were used up at a zxid, by permits and by those ahead? */
static int
used_at(const char *uuid, const ModelNode *own, int64_t zxid)
{
	int			used = 0;

	for (int i = 0; i < model->nnodes; i++)
	{
		const ModelNode *node = &model->nodes[i];
		bool		has_permit = false;

		if (!model_exists_at(node->czxid, node->dzxid, zxid) ||
			node->place == MODEL_NAME ||
			strncmp(node->name, uuid, UUID_LEN) == 0)
			continue;
		if (node->place == MODEL_PERMITS)
		{
			used++;
			continue;
		}
		for (int j = 0; j < model->nnodes; j++)
			if (model->nodes[j].place == MODEL_PERMITS &&
				model_exists_at(model->nodes[j].czxid, model->nodes[j].dzxid, zxid) &&
				strncmp(model->nodes[j].name, node->name, UUID_LEN) == 0)
				has_permit = true;
		if (!has_permit && znode_before(node->sequence, own->sequence))
			used++;
	}
	return used;
}

/* Queued was told: was there a moment since we queue with no permit for us? */
static void
check_queued(const Client *client, const Backend *backend)
{
	int			node = own_node(client, backend, MODEL_LOCKS);
	const ModelNode *own;

	if (backend->permit.lock.state == RECIPE_LATE)
	{
		tally.stood_by++;
		return;
	}
	if (is_waiting(&backend->permit))
		tally.queued_by_permit++;
	else
		tally.queued_by_queue++;
	if (!client->session.alive || scene->vandals || scene->disagreement)
		return;
	model_check(node >= 0, "who is told to be queued is in the queue");
	own = &model->nodes[node];
	for (int64_t zxid = own->czxid; zxid <= model->zxid; zxid++)
		if (used_at(own->name, own, zxid) >= backend->permit.place.permits)
			return;
	model_check(false, "queued is told when no permit is free");
}

static void
check_granted(const Client *client, const Backend *backend)
{
	int			node = own_node(client, backend, MODEL_PERMITS);

	tally.grants++;
	if (!client->session.alive || scene->vandals)
		return;
	model_check(node >= 0, "who is granted a permit has its node");
	model_check(own_node(client, backend, MODEL_LOCKS) >= 0,
				"who is granted a permit has the lock");
}

static void
check_failure(const Backend *backend, const RecipeOutput *out)
{
	tally.failed++;
	if (out->report & RECIPE_REPORT_MIXED)
	{
		tally.mixed++;
		model_check(scene->lockers && out->error == 0,
					"only a lock's name fails as one");
	}
	else if (out->permits_found != 0)
	{
		tally.disagreed++;
		model_check(scene->disagreement && out->error == 0 &&
					out->permits_found != backend->permit.place.permits,
					"only who disagrees is refused for it");
	}
	else
		model_check(model->refusals || scene->vandals,
					"nothing fails that was not refused");
}

/* The news of a step, as backend and worker take it. */
static void
take_news(Client *client, Backend *backend, const RecipeOutput *out)
{
	Permit  *permit = &backend->permit;

	if (out->report & RECIPE_REPORT_QUEUED)
	{
		model_check(backend->wanted && !backend->owner,
					"queued only while wanted");
		check_queued(client, backend);
		backend->queued = true;
	}
	if (out->report & RECIPE_REPORT_GRANTED)
	{
		model_check(backend->wanted && !backend->owner,
					"granted once, to who wants it");
		backend->owner = true;
		backend->token = false;
		check_granted(client, backend);
	}
	if (out->report & RECIPE_REPORT_CREATED)
	{
		model_check(backend->owner, "only an owner's number is told");
		backend->created = true;
	}
	if (out->report & RECIPE_REPORT_TOKEN)
	{
		int			node = own_node(client, backend, MODEL_PERMITS);

		model_check(backend->owner, "only an owner has a token");
		model_check(!client->session.alive || scene->vandals ||
					(node >= 0 && model->nodes[node].czxid == permit->place.token),
					"the token is the permit's czxid");
		backend->token = true;
	}
	if (out->report & RECIPE_REPORT_LOST)
	{
		model_check(backend->owner, "only an owner can lose a permit");
		model_check(!client->session.alive || scene->vandals,
					"a permit is lost with the session only");
		tally.lost++;
		backend->owner = backend->wanted = false;
	}
	if (out->report & RECIPE_REPORT_FAILED)
	{
		model_check(backend->wanted && !backend->owner,
					"only a waiter can fail");
		check_failure(backend, out);
		backend->wanted = false;
	}
	if (out->report & RECIPE_REPORT_LEFT)
	{
		model_check(model->refusals && out->error == ERROR_REFUSED,
					"no node is left behind but by a refusal");
		tally.left++;
		backend->left = true;
	}
	model_check(!(out->report & RECIPE_REPORT_STRANGER),
				"no contender is taken for a stranger");
	if (out->report & RECIPE_REPORT_GONE)
	{
		model_check(backend->active, "gone only once");
		/* unless somebody deleted its node: then the worker begins anew */
		model_check(!backend->wanted || !client->session.alive || scene->vandals,
					"who wants a permit goes on");
		model_check(!client->session.alive ||
					(own_node(client, backend, MODEL_LOCKS) < 0 &&
					 own_node(client, backend, MODEL_PERMITS) < 0),
					"gone is told when no node is left");
		backend->active = backend->wanted = backend->owner = false;
		backend->left = backend->queued = false;
	}
	model_check(permit->state != PERMIT_NONE || out->nops == 0 ||
				(out->report & RECIPE_REPORT_MIXED),
				"without a permit nothing is sent");
}

/* The place of a request: permit.c has it from <name> on. */
static ModelPlace
place_of(const Request *op)
{
	return strcmp(op->path, "/locks") == 0 ? MODEL_LOCKS :
		strcmp(op->path, "/leases") == 0 ? MODEL_PERMITS : MODEL_NAME;
}

static void
submit(Client *client, Backend *backend, const Request *op)
{
	ModelPlace	place = place_of(op);
	bool		for_lock = op->serial % PERMIT_PARTS == PERMIT_LOCK;
	const ModelClaim *claim = model_find_claim(&client->session, place,
											   op->node ? op->node : "");
	bool		free = claim == NULL || scene->vandals ||
		&client->backends[claim->contender] == backend;

	switch (op->kind)
	{
		case REQUEST_LIST:
			model_check(place == MODEL_PERMITS && !for_lock &&
						is_waiting(&backend->permit),
						"who waits watches the permits");
			/* FALLTHROUGH */
		case REQUEST_WATCH:
			model_check(free || !client->backends[claim->contender].wanted,
						"nobody takes another's watch");
			break;
		case REQUEST_UNWATCH:
			model_check(free, "nobody takes back another's watch");
			break;
		case REQUEST_DELETE_ORPHAN:
			model_check(place == MODEL_NAME,
						"no create is repeated that had arrived");
			break;
		default:
			break;
	}
	model_submit(&client->session, (int) (backend - client->backends),
				 for_lock, place, op);
}

/* What permit.c says of its states has to hold. */
static void
check_invariants(const Permit *permit)
{
	RecipeState lock = permit->lock.state;
	RecipeState place = permit->place.state;
	bool		leaving = recipe_is_leaving(&permit->place);
	bool		unwanted = lock == RECIPE_NONE ||
		recipe_is_leaving(&permit->lock);
	bool		holds = false;

	switch (permit->state)
	{
		case PERMIT_NONE:
			holds = lock == RECIPE_NONE && place == RECIPE_NONE;
			break;
		case PERMIT_READING:
			holds = (lock == RECIPE_NONE || lock == RECIPE_OWNER) &&
				place == RECIPE_NONE;
			break;
		case PERMIT_QUEUEING:
			holds = !unwanted &&
				(place == RECIPE_NONE ? lock != RECIPE_OWNER : leaving);
			break;
		case PERMIT_TAKING:
			holds = lock == RECIPE_OWNER && place != RECIPE_NONE && !leaving;
			break;
		case PERMIT_OWNER:
			holds = unwanted && place == RECIPE_OWNER;
			break;
		case PERMIT_LEAVING:
			holds = (place == RECIPE_NONE || leaving) &&
				(place != RECIPE_NONE || lock != RECIPE_NONE) &&
				(unwanted || place == RECIPE_CANCELING ||
				 place == RECIPE_ABANDONING);
			break;
	}
	model_check(holds, permit_state_name(permit->state));
}

static void
take_output(Client *client, Backend *backend, const RecipeOutput *out)
{
	PermitState state = backend->permit.state;

	model_note(client_number(client), (int) (backend - client->backends),
		 permit_state_name(state), (long) out->report);
	model_check_recipe(&backend->permit.lock);
	model_check_recipe(&backend->permit.place);
	check_invariants(&backend->permit);
	tally.states[state]++;
	if (is_waiting(&backend->permit) && (out->report & RECIPE_REPORT_QUEUED))
		tally.waits++;
	for (int i = 0; i < out->nops; i++)
		submit(client, backend, &out->ops[i]);
	take_news(client, backend, out);
	check_rules();
}

static void
step(Client *client, int semaphore, RecipeEvent event,
	 const RequestAnswer *in)
{
	Backend	   *backend = &client->backends[semaphore];
	RecipeOutput out;

	permit_step(&backend->permit, event, in, &out);
	take_output(client, backend, &out);
}

/* The client hears the next answer or event. */
static void
deliver(ModelSession *session)
{
	Client	   *client = client_of(session);
	ModelEntry	entry;
	RequestAnswer in;
	const char *children[MODEL_CHILDREN];

	if (!model_hear(session, &entry))
		return;
	model_answer(&entry, &in, children);
	client->backends[entry.contender].permit.lock.orphan = entry.orphan;
	if (!entry.is_event && entry.kind == REQUEST_STAT &&
		entry.result == REQUEST_REFUSED && !entry.for_lock)
		client->backends[entry.contender].token = true;
	step(client, entry.contender, RECIPE_ANSWER, &in);
}

static void
hear_of_expiry(ModelSession *session)
{
	Client	   *client = client_of(session);

	model_note(client_number(client), -1, "told of expiry", session->id);
	model_forget_all(session);
	for (int i = 0; i < client->nbackends; i++)
	{
		step(client, i, RECIPE_EXPIRED, NULL);
		model_check(client->backends[i].permit.state == PERMIT_NONE,
					"a permit ends with its session");
	}
	model_check(session->nentries == 0,
				"nothing is sent in an ended session");
	model_begin_session(session, client_number(client));
}

static void
want(Client *client, int semaphore, int permits)
{
	Backend	   *backend = &client->backends[semaphore];
	RecipeOutput out;
	uint8_t		uuid[ZNODE_UUID_BYTES];

	model_make_uuid(uuid);
	model_note(client_number(client), semaphore, "wants one of", permits);
	backend->active = backend->wanted = true;
	backend->queued = backend->created = false;
	permit_want(&backend->permit, uuid, permits, &out);
	take_output(client, backend, &out);
}

static void
release(Client *client, int semaphore)
{
	model_note(client_number(client), semaphore, "releases", 0);
	client->backends[semaphore].wanted = false;
	client->backends[semaphore].owner = false;
	step(client, semaphore, RECIPE_RELEASE, NULL);
}

/* The worker tries again what was refused, which is a delete or nothing. */
static void
retry(Client *client, int semaphore)
{
	Backend	   *backend = &client->backends[semaphore];
	RecipeOutput out;
	bool		left = backend->left;
	const Recipe *lock = &backend->permit.lock;

	if (lock->state == RECIPE_LATE && lock->refused)
	{
		permit_step(&backend->permit, RECIPE_RETRY, NULL, &out);
		model_check(lock->state == RECIPE_ENTERING, "who was late comes again");
		take_output(client, backend, &out);
		return;
	}
	permit_step(&backend->permit, RECIPE_RETRY, NULL, &out);
	model_check(out.report == 0, "a retry tells nothing");
	model_check((out.nops > 0) == left, "what was refused is tried again");
	for (int i = 0; i < out.nops; i++)
		model_check(out.ops[i].kind == REQUEST_DELETE,
					"which is a delete");
	backend->left = false;
	if (left)
	{
		tally.retried++;
		take_output(client, backend, &out);
	}
}

/* The worker dies, and the next one resumes the session with what is known. */
static void
restart_worker(ModelSession *session, int applied)
{
	Client	   *client = client_of(session);

	tally.restarts++;
	model_lose_connection(session, applied);
	model_note(client_number(client), -1, "worker restarted", applied);
	model_forget_all(session);
	for (int i = 0; i < client->nbackends; i++)
	{
		Backend	   *backend = &client->backends[i];
		Permit	old = backend->permit;
		RecipeOutput out;

		permit_free(&backend->permit);
		memset(&backend->permit, 0, sizeof(backend->permit));
		backend->token = backend->left = false;
		if (!backend->active)
			continue;
		tally.restarted_in[old.state]++;
		permit_resume(&backend->permit, old.uuid, old.place.permits,
					  backend->owner ? RECIPE_RESUME_OWNED :
					  backend->wanted ? RECIPE_RESUME_WANTED :
					  RECIPE_RESUME_RELEASING,
					  backend->created ? &old.place.sequence : NULL, &out);
		take_output(client, backend, &out);
	}
}

/*-------------------------------------------------------------------------
 * The model: others
 *-------------------------------------------------------------------------
 */

static void
foreigner_enters(Foreigner *foreigner)
{
	char		prefix[ZNODE_CONTENDER_SIZE];

	make_directory(MODEL_LOCKS, 0);
	snprintf(prefix, sizeof(prefix), "_c_00000000-0000-4000-8000-%012d-lock-",
			 ++scene->last_uuid);
	foreigner->lock = model_make_node(MODEL_LOCKS, prefix, true,
									  FOREIGN, "me");
	foreigner->permit = -1;
	foreigner->state = FOREIGN_QUEUED;
	model_note(-1, -1, "another client queues", scene->last_uuid);
}

/* What Curator does next; false if it has to wait. */
static bool
foreigner_acts(Foreigner *foreigner)
{
	char		prefix[ZNODE_CONTENDER_SIZE];

	if (foreigner->state == FOREIGN_QUEUED)
	{
		const ModelNode *lock = &model->nodes[foreigner->lock];

		for (int i = model->oldest; i < model->nnodes; i++)
			if (model->nodes[i].dzxid == 0 &&
				model->nodes[i].place == MODEL_LOCKS &&
				znode_before(model->nodes[i].sequence, lock->sequence))
				return false;
		make_directory(MODEL_PERMITS, 0);
		snprintf(prefix, sizeof(prefix), "%.*s-lease-", UUID_LEN, lock->name);
		foreigner->permit = model_make_node(MODEL_PERMITS, prefix, true,
											FOREIGN, "me");
		foreigner->state = FOREIGN_WAITING;
		model_note(-1, -1, "another client has a permit's node", 0);
		return true;
	}
	if (foreigner->state == FOREIGN_WAITING &&
		model_count_at(MODEL_PERMITS, model->zxid) <= scene->permits)
	{
		foreigner->state = FOREIGN_HOLDER;
		model_note(-1, -1, "another client has a permit", 0);
		check_rules();
		model_delete_node(foreigner->lock);
		foreigner->lock = -1;
		return true;
	}
	return false;
}

/* It releases its permit, or has waited long enough. */
static void
foreigner_leaves(Foreigner *foreigner)
{
	model_note(-1, -1, "another client leaves", foreigner->state);
	if (foreigner->permit >= 0)
		model_delete_node(foreigner->permit);
	if (foreigner->lock >= 0)
		model_delete_node(foreigner->lock);
	foreigner->permit = foreigner->lock = -1;
	foreigner->state = FOREIGN_IDLE;
	check_rules();
}

static void
locker_acts(void)
{
	switch (scene->locker_state)
	{
		case LOCKER_IDLE:
			make_directory(MODEL_NAME, 0);
			scene->locker = model_make_node(MODEL_NAME, "_c_x-lock-", true,
											FOREIGN, "me");
			scene->locker_state = LOCKER_CREATED;
			model_note(-1, -1, "the name is locked", 0);
			break;
		case LOCKER_CREATED:
			if (!model_is_made(MODEL_LOCKS) && !model_is_made(MODEL_PERMITS))
			{
				scene->locker_state = LOCKER_OWNER;
				model_note(-1, -1, "the name's lock is owned", 0);
				check_rules();
				break;
			}
			tally.mixed_lockers++;
			/* FALLTHROUGH */
		case LOCKER_OWNER:
			model_delete_node(scene->locker);
			scene->locker_state = LOCKER_IDLE;
			model_note(-1, -1, "the name's lock is given up", 0);
			break;
	}
}

/* Somebody deletes a node of ours. */
static void
vandalize(ModelPlace place)
{
	for (int i = model->oldest; i < model->nnodes; i++)
	{
		ModelNode	   *node = &model->nodes[i];

		if (node->dzxid == 0 && node->place == (int) place &&
			node->session != FOREIGN && model_choose(2) == 0)
		{
			model_note(-1, -1, "a node is deleted by somebody", (long) place);
			tally.vandalized++;
			model_delete_node(i);
			return;
		}
	}
}

/* What was refused is tried again; true if there is any. */
static bool
act(ModelSession *session)
{
	Client	   *client = client_of(session);
	bool		busy = false;

	for (int i = 0; i < client->nbackends; i++)
	{
		const Backend *backend = &client->backends[i];
		const Recipe *lock = &backend->permit.lock;

		if (backend->left ||
			(lock->state == RECIPE_LATE && lock->refused &&
			 model_count_at(MODEL_LOCKS, model->zxid) == 0))
		{
			busy = true;
			retry(client, i);
		}
	}
	return busy;
}

static bool
foreigners_act(void)
{
	bool		busy = false;

	for (int i = 0; i < scene->nforeigners; i++)
		busy |= foreigner_acts(&scene->foreigners[i]);
	return busy;
}

static const ModelHooks hooks = {
	.executing = check_executing,
	.describe = describe_clients,
	.check_rules = check_rules,
	.deliver = deliver,
	.hear_of_expiry = hear_of_expiry,
	.lose_connection = model_lose_connection,
	.restart_worker = restart_worker,
	.act = act,
	.others_act = foreigners_act
};

/* At rest, there are the watches of those who wait, and no others. */
static void
check_watches(Client *client)
{
	int			waiting = 0;

	for (int i = 0; i < client->nbackends; i++)
	{
		Permit  *permit = &client->backends[i].permit;
		const ModelClaim *claim;

		if (permit->lock.state == RECIPE_WATCHING)
			claim = model_find_claim(&client->session, MODEL_LOCKS,
							   permit->lock.predecessor);
		else if (is_waiting(permit))
			claim = model_find_claim(&client->session, MODEL_PERMITS, "");
		else
			continue;
		waiting++;
		model_check(claim != NULL && claim->contender == i &&
			  claim->serial == (claim->for_lock ?
								PERMIT_SERIAL(permit->lock.serial, PERMIT_LOCK) :
								PERMIT_SERIAL(permit->place.serial, PERMIT_PLACE)),
			  "who waits has a watch");
		model_check(model_find_watch(&client->session, claim->place, claim->node) != NULL,
					"at rest worker and library agree on a watch");
	}
	model_check(client->session.nclaims == waiting,
				"no watch is left of who does not wait");
	for (int i = 0; i < client->session.nwatches; i++)
	{
		const ModelWatch *watch = &client->session.watches[i];

		model_check(watch->armed,
					"at rest library and server agree on a watch");
		model_check(watch->orphaned ||
			  model_find_claim(&client->session, watch->place, watch->node) != NULL,
			  "a watch that nobody needs was taken back");
	}
}

/* At rest, nobody waits while a permit is free and nobody is ahead. */
static void
check_liveness(void)
{
	int			used = model_count_at(MODEL_PERMITS, model->zxid);
	int			first = -1;

	for (int i = model->oldest; i < model->nnodes; i++)
		if (model->nodes[i].dzxid == 0 &&
			model->nodes[i].place == MODEL_LOCKS &&
			(first < 0 || znode_before(model->nodes[i].sequence,
									   model->nodes[first].sequence)))
			first = i;

	for (int i = 0; i < scene->nclients; i++)
	{
		Client	   *client = &scene->clients[i];

		if (!scene->vandals)
			check_watches(client);
		for (int j = 0; j < client->nbackends; j++)
		{
			Backend	   *backend = &client->backends[j];
			PermitState state = backend->permit.state;
			int			lock = own_node(client, backend, MODEL_LOCKS);
			int			node = own_node(client, backend, MODEL_PERMITS);
			bool		waiting = is_waiting(&backend->permit);

			model_check(state == PERMIT_NONE || state == PERMIT_QUEUEING ||
				  waiting || state == PERMIT_OWNER,
				  "at rest one has a permit, waits, or has no part in it");
			model_check(backend->active == backend->wanted,
						"who does not want a permit leaves");
			if (scene->vandals || state == PERMIT_NONE)
				continue;
			model_check(state != PERMIT_OWNER || (lock < 0 && backend->token),
						"an owner gives up the lock, and knows its token");
			model_check(state == PERMIT_OWNER || lock >= 0 ||
						backend->permit.lock.state == RECIPE_LATE,
						"who waits is in the queue");
			model_check((state == PERMIT_QUEUEING) == (node < 0),
						"who has got through the queue has its node");
			model_check(waiting == (lock >= 0 && lock == first),
						"who is first in the queue waits for a permit");
			model_check(!waiting ||
						used > backend->permit.place.permits,
						"nobody waits while a permit is free");
			model_check(state == PERMIT_OWNER || backend->queued ||
						scene->disagreement,
						"who waits is told so");
		}
	}
}

/* The other clients leave, and the permits go from one of us to the next. */
static void
wind_up(void)
{
	bool		wanted = true;

	schedule_settle();
	check_liveness();
	if (scene->locker_state != LOCKER_IDLE)
	{
		scene->locker_state = LOCKER_OWNER;
		locker_acts();
	}
	for (int i = 0; i < scene->nforeigners; i++)
		if (scene->foreigners[i].state != FOREIGN_IDLE)
			foreigner_leaves(&scene->foreigners[i]);

	for (int rounds = 0; wanted; rounds++)
	{
		model_check(rounds < 15, "the permits go round");
		wanted = false;
		schedule_settle();
		check_liveness();
		for (int i = 0; i < scene->nclients; i++)
		{
			Client	   *client = &scene->clients[i];

			for (int j = 0; j < client->nbackends; j++)
			{
				wanted = wanted || client->backends[j].wanted;
				if (client->backends[j].owner)
					release(client, j);
			}
		}
	}
	schedule_settle();
	for (int i = 0; i < scene->nclients; i++)
	{
		for (int j = 0; j < scene->clients[i].nbackends; j++)
		{
			model_check(!scene->clients[i].backends[j].active,
						"released permits are gone");
			permit_free(&scene->clients[i].backends[j].permit);
		}
		model_check(scene->clients[i].session.nclaims == 0,
					"no watch of ours is left");
	}
	for (int i = 0; i < model->nnodes; i++)
		model_check(model->nodes[i].dzxid != 0, "no node of ours is left");
}

/*-------------------------------------------------------------------------
 * The model: every small schedule
 *
 * One semaphore - queue, own, release - and on it, at every step, up to
 * FAULTS of: the connection breaks with any number of the operations sent
 * applied; the session expires; the worker restarts; a delete is refused.
 * The release comes at any step, too.
 *-------------------------------------------------------------------------
 */

typedef struct Scenario
{
	const char *title;
	int			permits;
	int			holders;		/* other clients with a permit */
	bool		waiter;			/* and one who waits for the next */
	bool		missing;		/* even the root */
	bool		stale;			/* the agreement is an old one */
	bool		refusals;
} Scenario;

static const Scenario scenarios[] = {
	{"a free permit", .permits = 1},
	{"a free permit, an old agreement", .permits = 2, .stale = true},
	{"first use of the namespace", .permits = 1, .missing = true},
	{"one of two is free", .permits = 2, .holders = 1},
	{"all in use", .permits = 1, .holders = 1},
	{"all in use, one ahead", .permits = 1, .holders = 1, .waiter = true},
	{"a free permit, deletes refused", .permits = 1, .refusals = true}
};

/* The first other client that has, or waits for, a permit; or NULL. */
static Foreigner *
first_foreigner(void)
{
	for (int i = 0; i < scene->nforeigners; i++)
		if (scene->foreigners[i].state != FOREIGN_IDLE)
			return &scene->foreigners[i];
	return NULL;
}

static void
set_scene(const Scenario *scenario)
{
	scene->permits = scenario->permits;
	if (scenario->missing)
		model->root_czxid = 0;
	else
	{
		make_directory(MODEL_LOCKS, 0);
		make_directory(MODEL_PERMITS, scenario->stale ? 7 : 0);
	}
	for (int i = 0; i < scenario->holders + (scenario->waiter ? 1 : 0); i++)
	{
		Foreigner  *foreigner = &scene->foreigners[scene->nforeigners++];

		foreigner_enters(foreigner);
		while (foreigner_acts(foreigner))
			continue;
	}
	model->refusals = scenario->refusals;
}

/* The plain next thing to happen; false if there is none. */
static bool
go_on(Client *client)
{
	Foreigner  *foreigner = first_foreigner();

	if (schedule_go_on(&client->session) ||
		schedule_catch_up(&client->session))
		return true;
	if (client->backends[0].left)
		retry(client, 0);
	else if (foreigner != NULL)
	{
		check_watches(client);
		if (!foreigner_acts(foreigner))
			foreigner_leaves(foreigner);
	}
	else
		return false;
	return true;
}

static void
play_scenario(const void *plan)
{
	const Scenario *scenario = plan;
	Client	   *client;
	bool		released = false;
	int			faults_left = FAULTS;

	set_scene(scenario);
	client = add_client(1);
	want(client, 0, scenario->permits);

	for (;;)
	{
		ScheduleFaults faults;
		unsigned	nfaults = schedule_count_faults(&client->session,
													faults_left > 0,
													scenario->refusals,
													&faults);
		unsigned	nreleases = released || !client->backends[0].wanted ? 0 : 1;
		unsigned	which;

		/* 0: nothing special, so that the first schedule is the plain one */
		which = model_choose(1 + nreleases + nfaults);
		if (which == 0)
		{
			if (!go_on(client))
				break;
		}
		else if (which <= nreleases)
		{
			release(client, 0);
			released = true;
		}
		else
		{
			faults_left--;
			schedule_fault(&client->session, &faults, which - 1 - nreleases);
		}
	}
	wind_up();
}

static void
test_scenario(void **state)
{
	schedule_explore(&hooks, *state, start_scene, play_scenario, 500);
}

/*-------------------------------------------------------------------------
 * The model: random schedules
 *-------------------------------------------------------------------------
 */

typedef struct Mix
{
	const char *title;
	int			clients;		/* 0: one to three */
	int			semaphores;		/* of a client; 0: one to three */
	bool		foreigners;
	bool		end;			/* the counters come to their ends */
	bool		refusals;
	bool		restarts;
	bool		disagreement;
	bool		lockers;
	bool		vandals;
	bool		lock_vandals;
	unsigned	calm;			/* the higher, the rarer are faults */
} Mix;

static const Mix mixes[] = {
	{"one client, faults all the time", .clients = 1, .calm = 4},
	{"one client, many semaphores", .clients = 1, .semaphores = 3,
	.calm = 15},
	{"clients among themselves", .calm = 15},
	{"clients among themselves, hardly a fault", .clients = 3, .calm = 150},
	{"clients and foreigners", .foreigners = true, .calm = 15},
	{"clients and foreigners, hardly a fault", .foreigners = true,
	.calm = 150},
	{"the counters end", .semaphores = 1, .end = true, .calm = 60},
	{"the counters end, foreigners", .semaphores = 1, .foreigners = true,
	.end = true, .calm = 20},
	{"the counters end, workers restarted", .semaphores = 1, .end = true,
	.restarts = true, .calm = 12},
	{"operations refused", .foreigners = true, .refusals = true, .calm = 25},
	{"workers restarted", .foreigners = true, .restarts = true, .calm = 12},
	{"clients disagree", .disagreement = true, .restarts = true, .calm = 25},
	{"the name is used as a lock", .lockers = true, .calm = 25},
	{"permits are deleted by somebody", .foreigners = true, .vandals = true,
	.restarts = true, .calm = 20},
	{"locks are deleted by somebody", .semaphores = 1, .foreigners = true,
	.vandals = true, .lock_vandals = true, .calm = 20},
	{"everything", .foreigners = true, .end = true, .refusals = true,
	.restarts = true, .calm = 15}
};

static void
random_foreigner(void)
{
	Foreigner  *foreigner = &scene->foreigners[model_choose(scene->nforeigners)];

	if (foreigner->state == FOREIGN_IDLE)
	{
		if (model->nnodes < MAX_NODES - 96)
			foreigner_enters(foreigner);
	}
	else if (model_one_in(foreigner->state == FOREIGN_HOLDER ? 2 : 8))
		foreigner_leaves(foreigner);
	else
		(void) foreigner_acts(foreigner);
}

static bool
all_at_rest(void)
{
	for (int i = 0; i < scene->nclients; i++)
	{
		Client	   *client = &scene->clients[i];

		if (!client->session.connected || client->session.nentries > 0 ||
			client->session.view < model->zxid)
			return false;
	}
	return scene->locker_state == LOCKER_IDLE;
}

/* A try in peace: it succeeds or is told to queue, as permits are free. */
static void
random_try(Client *client, int semaphore)
{
	Backend	   *backend = &client->backends[semaphore];
	int			used;

	if (backend->active || !client->session.alive || scene->vandals)
		return;
	schedule_settle();
	if (!all_at_rest() || backend->active)
		return;
	check_liveness();
	used = model_count_at(MODEL_PERMITS, model->zxid);
	if (used > 0 && scene->disagreement)
		return;
	want(client, semaphore, scene->permits);
	if (model->refusals)
		return;
	schedule_settle();
	if (used < scene->permits)
	{
		tally.tries++;
		model_check(backend->owner && !backend->queued,
					"a try succeeds while a permit is free");
	}
	else
	{
		tally.tries_in_vain++;
		model_check(!backend->owner && backend->queued,
					"a try is told that no permit is free");
	}
	if (model_one_in(2))
		release(client, semaphore);
}

static void
random_want(Client *client, int semaphore)
{
	Backend	   *backend = &client->backends[semaphore];

	if (backend->wanted)
	{
		if (model_one_in(backend->owner ? 4 : 14))
			release(client, semaphore);
	}
	else if (!backend->active && model->nnodes < MAX_NODES - 96)
		want(client, semaphore, scene->permits +
			 (scene->disagreement ? (int) model_choose(2) : 0));
}

static void
random_step(const Mix *mix)
{
	Client	   *client = &scene->clients[model_choose(scene->nclients)];
	ModelSession *session = &client->session;
	int			semaphore = (int) model_choose(client->nbackends);

	if (model_choose(mix->calm) == 0)
	{
		schedule_random_fault(session, mix->restarts);
		return;
	}

	switch (model_choose(18))
	{
		case 0:
		case 1:
			random_want(client, semaphore);
			break;
		case 2:
			if (mix->foreigners)
				random_foreigner();
			else if (mix->lockers && model->nnodes < MAX_NODES - 96)
				locker_acts();
			break;
		case 3:
			if (model->ndirs[0] < MAX_DIRS - 20 &&
				model->ndirs[1] < MAX_DIRS - 20 &&
				model->ndirs[2] < MAX_DIRS - 20)
				model_collect_directory((ModelPlace) model_choose(3));
			break;
		case 4:
			schedule_random_catch_up(session);
			break;
		case 5:
		case 6:
			schedule_random_reconnect(session);
			break;
		case 7:
			retry(client, semaphore);
			break;
		case 8:
			if (mix->vandals && model_one_in(3))
				vandalize(mix->lock_vandals && model_one_in(2) ? MODEL_LOCKS :
						  MODEL_PERMITS);
			break;
		case 9:
			if (model_one_in(4) && model->nnodes < MAX_NODES - 96)
				random_try(client, semaphore);
			break;
		case 10:
		case 11:
		case 12:
			for (int n = 1 + (int) model_choose(4); n > 0; n--)
				if (session->connected && model_unapplied(session) > 0)
					model_execute(session);
			break;
		default:
			for (int n = 1 + (int) model_choose(4); n > 0; n--)
				if (session->nready > 0)
					deliver(session);
			break;
	}
	check_rules();
}

static void
check_tally(const Mix *mix, const Tally *before,
			const ModelTally *model_before)
{
	bool		crowded = mix->clients != 1 || mix->semaphores == 3 ||
		mix->foreigners;

	assert_true(tally.grants > before->grants + RANDOM_RUNS / 2);
	assert_true(model_tally.losses > model_before->losses + 100);
	assert_true(model_tally.expirations > model_before->expirations + 10);
	assert_true(tally.lost > before->lost);
	assert_true(model_tally.collected > model_before->collected);
	if (!mix->vandals && !mix->refusals)
		assert_true(tally.tries > before->tries + 100);
	if (crowded)
	{
		assert_true(model_tally.lagging_reads > model_before->lagging_reads);
		assert_true(tally.waits > before->waits + 100);
		assert_true(tally.queued_by_permit > before->queued_by_permit + 100);
		/* who is late is not in the queue */
		assert_true(tally.queued_by_queue > before->queued_by_queue +
					(mix->end ? 40 : 100));
		if (!mix->vandals && !mix->refusals && !mix->disagreement)
			assert_true(tally.tries_in_vain > before->tries_in_vain + 100);
	}
	if (mix->refusals)
	{
		assert_true(tally.failed > before->failed + 100);
		assert_true(tally.left > before->left + 100);
		assert_true(tally.retried > before->retried + 100);
	}
	if (mix->end && mix->semaphores == 1)
		assert_true(tally.renewed > before->renewed + 300);
	if (mix->end && mix->semaphores == 1 && mix->foreigners)
		assert_true(tally.stood_by > before->stood_by + 20);
	if (mix->restarts)
		assert_true(tally.restarts > before->restarts + 100);
	if (mix->disagreement)
	{
		assert_true(tally.disagreed > before->disagreed + 100);
		assert_true(tally.sets > before->sets + 100);
	}
	if (mix->lockers)
	{
		assert_true(tally.mixed > before->mixed + 100);
		assert_true(tally.mixed_lockers > before->mixed_lockers + 100);
		assert_true(tally.rmdirs > before->rmdirs + 100);
	}
	if (mix->vandals)
		assert_true(tally.vandalized > before->vandalized + 100);
}

static void
test_random_schedules(void **state)
{
	const Mix  *mix = *state;
	Tally		before = tally;
	ModelTally	model_before = model_tally;

	model_reset(&hooks, false);
	for (unsigned long run = 0; run < RANDOM_RUNS; run++)
	{
		int			nclients;

		start_scene(mix->title, run);
		nclients = mix->clients ? mix->clients : 1 + (int) model_choose(3);
		scene->permits = 1 + (int) model_choose(3);
		if (mix->end)
		{
			/* a client's semaphores would watch the same late contender */
			if (mix->semaphores == 1)
				model->first[MODEL_LOCKS] = ZNODE_LATE_SEQUENCE -
					(int32_t) model_choose(4);
			model->first[MODEL_PERMITS] = INT32_MAX - (int32_t) model_choose(4);
		}
		model->refusals = mix->refusals;
		scene->disagreement = mix->disagreement;
		scene->lockers = mix->lockers;
		scene->vandals = mix->vandals;
		if (mix->foreigners)
		{
			scene->nforeigners = 1 + (int) model_choose(MAX_FOREIGNERS);
			memset(scene->foreigners, 0, sizeof(scene->foreigners));
		}
		switch (model_choose(3))
		{
			case 0:
				model->root_czxid = 0;
				break;
			case 1:
				make_directory(MODEL_LOCKS, 0);
				/*
				 * an old number is as good as none while nobody has a permit
				 */
				make_directory(MODEL_PERMITS, mix->foreigners ?
							   (int) model_choose(2) * scene->permits :
							   (int) model_choose(3));
				break;
			case 2:
				break;
		}
		for (int i = 0; i < nclients; i++)
			(void) add_client(mix->semaphores ? mix->semaphores :
							  1 + (int) model_choose(MAX_SEMAPHORES));
		for (int steps = 200 + (int) model_choose(400); steps > 0; steps--)
			random_step(mix);
		schedule_settle();
		model->refusals = false;
		wind_up();
	}
	/* it has come by the places that it is there for */
	check_tally(mix, &before, &model_before);
}

/* Every state was come by, and workers were restarted in each. */
static void
test_all_states_were_seen(void **state)
{
	(void) state;
	for (PermitState i = PERMIT_NONE; i <= PERMIT_LEAVING; i++)
	{
		assert_true(tally.states[i] > 50);
		if (i != PERMIT_NONE)
			assert_true(tally.restarted_in[i] > 10);
	}
}

int
main(void)
{
	static const struct CMUnitTest last[] = {
		cmocka_unit_test(test_all_states_were_seen)
	};
	int			failed = 0;

	failed += schedule_run_tests("explored", scenarios, sizeof(scenarios[0]),
								 lengthof(scenarios), test_scenario);
	failed += schedule_run_tests("random", mixes, sizeof(mixes[0]),
								 lengthof(mixes), test_random_schedules);
	failed += cmocka_run_group_tests_name("seen", last, NULL, NULL);
	return failed;
}
