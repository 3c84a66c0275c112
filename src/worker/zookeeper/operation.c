/*-------------------------------------------------------------------------
 *
 * operation.c
 *		One operation: as a request to the library, and its answer.
 *
 * Makes an operation of a request, passes it to the library, alone or in a
 * multi, and fills in its answer.  flight.c decides when it is sent, and with
 * which others.
 *
 * An operation is allocated in one piece, with its answer at the beginning,
 * which the callback fills in.  So it must not be freed between the request
 * and the answer, unless the handle is closed.
 *
 * The library's callbacks fill in the answers, in its threads; all else runs
 * in the main thread.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/operation.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/znode.h"
#include "shared/compat.h"
#include "utils/memutils.h"
#include "worker/zookeeper/operation_private.h"

/* More than a sequence number can add to a path. */
#define SEQUENCE_SIZE		32

/* The code for an answer that makes no sense: as if none had come. */
#define UNACKNOWLEDGED	ZCONNECTIONLOSS

/* A request that changes nothing, but goes through the leader as a write. */
typedef struct Barrier
{
	zoo_op_result_t checked;
	int			code;			/* ZOO_ERRORS */
} Barrier;

/* Operations that succeed or fail together: a group or a batch. */
typedef struct Multi
{
	bool		is_batch;
	int			count;
	zoo_op_result_t *results;
	ClientEvent *answers[FLEXIBLE_ARRAY_MEMBER];	/* NULL: the next one's */
} Multi;

/*
 * What follows runs in the library's threads; client.c says what it may touch.
 * "data" is the ClientEvent to be filled in; for callback_barrier() the
 * Barrier, for callback_multi() the Multi.
 *
 * What the library delivers is not trusted: a missing string or an impossible
 * code counts as a lost answer.
 */

/* The error code of a server.  It has no positive ones; we do. */
static int
code_of(int rc)
{
	return rc > 0 ? UNACKNOWLEDGED : rc;
}

static void
callback_void(int rc, const void *data)
{
	ClientEvent *event = (ClientEvent *) data;

	if (event)					/* else a step before the operation itself */
		client_post_answer(event, code_of(rc));
}

static void
callback_string(int rc, const char *value, const void *data)
{
	ClientEvent *event = (ClientEvent *) data;
	int			code = code_of(rc);

	if (event == NULL)
		return;
	if (rc == ZOK)
	{
		event->string = value ? strdup(value) : NULL;
		if (event->string == NULL)
			code = UNACKNOWLEDGED;
	}
	client_post_answer(event, code);
}

static void
callback_create(int rc, const char *value, const struct Stat *stat,
				const void *data)
{
	ClientEvent *event = (ClientEvent *) data;

	if (rc == ZOK && stat)
		event->stat = *stat;
	callback_string(rc, value, data);
}

/*
 * A parent of a directory is answered just before the directory; "data" is the
 * Client.  One that is missing has been collected meanwhile, but for the
 * topmost one, which is missing if the chroot is.
 */
static void
callback_parent(int rc, const char *value pg_attribute_unused(),
				const void *data)
{
	Client	   *client = (Client *) data;

	if (client->parents_code == ZOK && rc != ZNODEEXISTS && rc != ZNONODE)
		client->parents_code = code_of(rc);
}

static void
callback_topmost(int rc, const char *value, const void *data)
{
	Client	   *client = (Client *) data;

	client->parents_code = rc == ZNONODE ? rc : ZOK;
	callback_parent(rc, value, data);
}

/* A directory, behind its parents. */
static void
callback_directory(int rc, const char *value, const void *data)
{
	ClientEvent *event = (ClientEvent *) data;

	event->parents_code = event->client->parents_code;
	callback_string(rc, value, data);
}

/* The barrier before an operation is answered before it. */
static void
callback_barrier(int rc, const void *data)
{
	Barrier    *barrier = (Barrier *) data;

	barrier->code = rc;
}

/*
 * A truncated list has no strings at its end, or none at all.  Part of a queue
 * would look like a queue without the others.  The list may claim to have 2^31
 * strings, which the library would free one by one: set the count to the
 * strings that exist.
 */
static bool
list_is_whole(const struct String_vector *strings)
{
	if (strings == NULL || strings->count < 0 ||
		(strings->count > 0 && strings->data == NULL))
		return false;
	for (int i = 0; i < strings->count; i++)
	{
		if (strings->data[i] != NULL)
			continue;
		((struct String_vector *) strings)->count = i;
		return false;
	}
	return true;
}

/* Copy a list into one block; false if there is no memory. */
static bool
copy_children(ClientEvent *event, const struct String_vector *strings)
{
	Size		size = strings->count * sizeof(char *);
	char	   *end;

	for (int i = 0; i < strings->count; i++)
		size += strlen(strings->data[i]) + 1;
	event->children = malloc(size);
	if (event->children == NULL)
		return false;
	end = (char *) (event->children + strings->count);
	for (int i = 0; i < strings->count; i++)
	{
		event->children[i] = end;
		strcpy(end, strings->data[i]);
		end += strlen(end) + 1;
	}
	event->nchildren = strings->count;
	return true;
}

/* What was read behind a failed barrier does not count. */
static int
behind_barrier(const ClientEvent *event, int rc)
{
	if ((rc == ZOK || rc == ZNONODE) &&
		event->barrier && !client_is_leaders(event->barrier->code))
		return UNACKNOWLEDGED;
	return rc;
}

static void
callback_strings(int rc, const struct String_vector *strings,
				 const void *data)
{
	ClientEvent *event = (ClientEvent *) data;
	int			code;

	event->read = rc == ZOK;
	rc = behind_barrier(event, rc);
	code = code_of(rc);
	if (rc == ZOK && !list_is_whole(strings))
		code = UNACKNOWLEDGED;
	else if (rc == ZOK && strings->count > 0 && !copy_children(event, strings))
		code = UNACKNOWLEDGED;
	client_post_answer(event, code);
}

static void
callback_stat(int rc, const struct Stat *stat, const void *data)
{
	ClientEvent *event = (ClientEvent *) data;

	if (rc == ZOK && stat)
		event->stat = *stat;
	client_post_answer(event, code_of(rc));
}

/* Does this let everybody do more than read? */
static bool
is_open(const struct ACL *acl)
{
	return (acl->perms & ~ZOO_PERM_READ) != 0 &&
		(acl->id.scheme == NULL || strcmp(acl->id.scheme, "world") == 0);
}

static void
callback_acl(int rc, struct ACL_vector *acl,
			 struct Stat *stat pg_attribute_unused(), const void *data)
{
	ClientEvent *event = (ClientEvent *) data;
	int			code = code_of(rc);

	if (rc == ZOK && (acl == NULL || acl->data == NULL))
		code = UNACKNOWLEDGED;
	else if (rc == ZOK)
	{
		event->acl_count = acl->count;
		for (int i = 0; i < acl->count; i++)
			event->acl_open |= is_open(&acl->data[i]);
	}
	client_post_answer(event, code);
}

static void
callback_data(int rc, const char *value, int value_len,
			  const struct Stat *stat, const void *data)
{
	ClientEvent *event = (ClientEvent *) data;
	int			code;

	event->read = rc == ZOK;
	rc = behind_barrier(event, rc);
	code = code_of(rc);
	event->data_len = -1;
	if (rc == ZOK && stat)
		event->stat = *stat;
	if (rc == ZOK && (stat == NULL || Max(value_len, 0) != stat->dataLength))
		code = UNACKNOWLEDGED;		/* truncated, so unknown */
	else if (rc == ZOK && value && value_len >= 0)
	{
		event->data = malloc((Size) value_len + 1);
		if (event->data == NULL)
			code = UNACKNOWLEDGED;
		else
		{
			memcpy(event->data, value, value_len);
			event->data_len = value_len;
		}
	}
	client_post_answer(event, code);
}

/* Does operation "one" report to the events of operation "that"? */
static bool
is_part(const Multi *multi, int one, int that)
{
	return one == that ||
		(one >= 0 && one == that - 1 && multi->answers[one] == NULL);
}

/*
 * Queue all answers of a multi at once.  The main thread, which also calls
 * this if the library rejects a multi, may free the multi as soon as it has
 * the last answer.
 */
static void
post_multi(const Multi *multi)
{
	ClientEvent *first = NULL;
	ClientEvent *last = NULL;
	int			count = 0;

	for (int i = 0; i < multi->count; i++)
	{
		if (multi->answers[i] == NULL)
			continue;
		if (last == NULL)
			first = multi->answers[i];
		else
			last->next = multi->answers[i];
		last = multi->answers[i];
		count++;
	}
	client_post(first, last, count);
}

/*
 * A multi can fail in two ways.  If one of its operations fails, that one has
 * its error, those before it have none, and those after it have
 * ZRUNTIMEINCONSISTENCY, since the server did not try them.  If the request
 * fails or the connection is lost, all have the same error.
 */
static void
callback_multi(int rc, const void *data)
{
	const Multi *multi = data;
	bool		one_failed = false;
	int			failed = -1;

	for (int i = 0; i < multi->count; i++)
	{
		int			own = multi->results[i].err;

		if (own != rc)
			one_failed = true;
		else if (failed < 0 && own < ZAPIERROR && own != ZRUNTIMEINCONSISTENCY)
			failed = i;
	}
	for (int i = 0; i < multi->count; i++)
	{
		ClientEvent *event = multi->answers[i];
		int			own = multi->results[i].err;

		if (event == NULL)
			continue;
		event->code = code_of(rc);
		event->failed = failed;
		if (!one_failed || is_part(multi, failed, i))
			;
		else if (multi->is_batch)
			event->code = CLIENT_BATCH_FAILED;
		else if (rc < ZAPIERROR)
			event->code = own < ZAPIERROR ? own : ZRUNTIMEINCONSISTENCY;
		if (event->code == ZOK)
			event->created = multi->results[i].value;
	}
	post_multi(multi);
}

/*
 * From here on, everything runs in the main thread.
 */

static Operation *
make_empty(Client *client, MemoryContext context, Size path_size)
{
	Size		size = offsetof(Operation, path) + path_size;
	Operation  *op = MemoryContextAllocZero(context, size);

	op->event.kind = CLIENT_EVENT_ANSWER;
	op->event.client = client;
	return op;
}

/* Does this create a sequential znode? */
static bool
creates(const Operation *op)
{
	return op->request.kind == REQUEST_CREATE ||
		op->request.kind == REQUEST_REQUEUE;
}

/* May this be in a group? */
static bool
can_be_grouped(const Operation *op)
{
	RequestKind kind = op->request.kind;

	return kind == REQUEST_CREATE || kind == REQUEST_SET ||
		kind == REQUEST_CHECK || kind == REQUEST_DELETE;
}

/* Make an operation from a request, in "context". */
Operation *
operation_make(Client *client, MemoryContext context, uint32_t owner,
			   const Request *request)
{
	Operation  *op;
	Size		size = strlen(request->path) + 1;

	if (request->node)
		size += strlen(request->node) + 1;
	op = make_empty(client, context, size);
	op->owner = owner;
	strcpy(op->path, request->path);
	if (request->node)
	{
		strcat(op->path, "/");
		strcat(op->path, request->node);
	}
	op->request = *request;
	op->request.path = op->path;
	op->request.node = NULL;
	op->request.barrier |= request->kind == REQUEST_SEARCH;
	if (!can_be_grouped(op))
		op->request.group = 0;
	if (!request->has_version)
		op->request.version = -1;
	if (request->data)
		op->request.data = MemoryContextStrdup(context, request->data);
	if (request->kind == REQUEST_REQUEUE)
	{
		op->prefix = MemoryContextStrdup(context, op->path);
		op->prefix[strlen(op->path) - ZNODE_SEQUENCE_DIGITS] = '\0';
	}
	return op;
}

/* The number of operations in a multi that this takes. */
int
operation_parts(const Operation *op)
{
	return op->request.kind == REQUEST_REQUEUE ? 2 : 1;
}

/* Make a write that changes nothing, in "context". */
Operation *
operation_make_heartbeat(Client *client, MemoryContext context)
{
	Operation  *op = make_empty(client, context, sizeof("/"));

	op->heartbeat = true;
	strcpy(op->path, "/");
	return op;
}

static bool
sets_watch(const Operation *op)
{
	return op->request.kind == REQUEST_WATCH ||
		op->request.kind == REQUEST_LIST;
}

/* The type of watch that this sets. */
static ZooWatcherType
watch_type(const Operation *op)
{
	return op->request.kind == REQUEST_LIST ?
		ZWATCHTYPE_CHILD : ZWATCHTYPE_DATA;
}

/* Read the node or list its children, with a watch. */
static int
send_watch(Operation *op, Watches *watches)
{
	Client	   *client = op->event.client;

	watches_add(watches, op->path, watch_type(op), op->owner,
				op->request.serial, op->request.brief);
	if (op->request.kind == REQUEST_LIST)
		return zoo_awget_children(client->handle, op->path,
								  client_watch_fired, client,
								  callback_strings, &op->event);
	return zoo_awget(client->handle, op->path, client_watch_fired, client,
					 callback_data, &op->event);
}

static int
send_unwatch(Operation *op, Watches *watches)
{
	op->unwatched = watches_remove(watches, op->path, op->owner);
	if (op->unwatched != 0)
		return zoo_aremove_all_watches(op->event.client->handle, op->path,
									   op->unwatched, 0,
									   (void_completion_t *) callback_void,
									   &op->event);
	client_post_answer(&op->event, ZOK);
	return ZOK;
}

static int
data_len(const Operation *op)
{
	return op->request.data ? (int) strlen(op->request.data) : -1;
}

/* The ACL of a node; a persistent one is readable by others. */
static const struct ACL_vector *
acl_of(const Operation *op)
{
	const struct ACL_vector *acl = op->event.client->acl;
	static struct ACL acls[2];
	static const struct ACL_vector readable = {lengthof(acls), acls};

	if (acl != &ZOO_CREATOR_ALL_ACL || !op->request.persistent)
		return acl;
	acls[0].perms = ZOO_PERM_ALL;
	acls[0].id = ZOO_AUTH_IDS;
	acls[1].perms = ZOO_PERM_READ;
	acls[1].id = ZOO_ANYONE_ID_UNSAFE;
	return &readable;
}

/*
 * Create a directory and its parents, which are plain nodes.  If one of those
 * cannot be made, the create of the directory fails.
 */
static int
send_mkdirs(Operation *op)
{
	ClientEvent *event = &op->event;
	Client	   *client = event->client;
	const char *first = strchr(op->path + 1, '/');
	char		parent[ZNODE_PATH_SIZE];

	for (const char *slash = first; slash != NULL;
		 slash = strchr(slash + 1, '/'))
	{
		strlcpy(parent, op->path, slash - op->path + 1);
		zoo_acreate(client->handle, parent, NULL, -1, client->acl,
					ZOO_PERSISTENT, slash == first ?
					callback_topmost : callback_parent, client);
	}

	/* a directory without parents is the topmost one itself */
	event->parents_code = first ? ZOK : ZNONODE;
	return zoo_acreate(client->handle, op->path, op->request.data,
					   data_len(op), acl_of(op), op->request.persistent ?
					   ZOO_PERSISTENT : ZOO_CONTAINER,
					   first ? callback_directory : callback_string, event);
}

/* Pass the operation to the library; returns one of ZOO_ERRORS. */
static int
send_by_kind(Operation *op, Watches *watches)
{
	ClientEvent *event = &op->event;
	Client	   *client = event->client;
	zhandle_t  *handle = client->handle;
	const char *data = op->request.data;

	op->parent_lost = false;
	switch (op->request.kind)
	{
		case REQUEST_MKDIRS:
			return send_mkdirs(op);
		case REQUEST_MKDIR:
			return zoo_acreate(handle, op->path, data, data_len(op),
							   acl_of(op), op->request.persistent ?
							   ZOO_PERSISTENT : ZOO_CONTAINER,
							   callback_string, event);
		case REQUEST_CREATE:
			return zoo_acreate2(handle, op->path, data, data_len(op),
								client->acl, op->request.exact ?
								ZOO_EPHEMERAL : ZOO_EPHEMERAL_SEQUENTIAL,
								callback_create, event);
		case REQUEST_SYNC:
			zoo_async(handle, op->path, callback_string, NULL);
			pg_fallthrough;		/* FALLTHROUGH */
		case REQUEST_SEARCH:
		case REQUEST_CHILDREN:
			return zoo_aget_children(handle, op->path, 0,
									 callback_strings, event);
		case REQUEST_LIST:
		case REQUEST_WATCH:
			return send_watch(op, watches);
		case REQUEST_GET:
			return zoo_aget(handle, op->path, 0, callback_data, event);
		case REQUEST_SET:
			return zoo_aset(handle, op->path, data, data_len(op),
							op->request.version, callback_stat, event);
		case REQUEST_UNWATCH:
			return send_unwatch(op, watches);
		case REQUEST_STAT:
			return zoo_aexists(handle, op->path, 0, callback_stat, event);
		case REQUEST_DELETE:
		case REQUEST_DELETE_ORPHAN:
		case REQUEST_RMDIR:
			return zoo_adelete(handle, op->path, -1, callback_void, event);
		case REQUEST_SET_ACL:
			return zoo_aset_acl(handle, op->path, -1,
								unconstify(struct ACL_vector *, acl_of(op)),
								callback_void, event);
		case REQUEST_GET_ACL:
			return zoo_aget_acl(handle, op->path, callback_acl, event);
		case REQUEST_REQUEUE:
		case REQUEST_CHECK:
			break;				/* in a multi only: operation_send_multi() */
	}
	return ZBADARGUMENTS;
}

/* The same, behind a barrier if required (session.c). */
static int
send_behind_barrier(Operation *op, Watches *watches)
{
	ClientEvent *event = &op->event;
	int			rc;

	if (!op->request.barrier)
		return send_by_kind(op, watches);
	event->barrier = calloc(1, sizeof(Barrier));
	if (event->barrier == NULL)
		return ZSYSTEMERROR;
	rc = client_send_check(event->client, &event->barrier->checked,
						   callback_barrier, event->barrier);
	if (rc != ZOK)
	{
		free(event->barrier);
		event->barrier = NULL;
		return rc;
	}
	rc = send_by_kind(op, watches);
	if (rc != ZOK)
		event->barrier = NULL;	/* left to its answer: out of memory */
	return rc;
}

/*
 * Did the library reject a request, so that we must answer it?  ZINVALIDSTATE
 * is the end of the session, an event of its own, which ends the operation
 * too.
 */
static bool
was_refused(int rc)
{
	return rc != ZOK && rc != ZINVALIDSTATE;
}

/*
 * operation_send
 *		Pass an operation to the library, alone.
 *
 * It is answered in any case, unless the session ends.
 */
void
operation_send(Operation *op, Watches *watches)
{
	int			rc;

	if (op->heartbeat)
		rc = client_send_check(op->event.client, &op->checked,
							   callback_void, &op->event);
	else
		rc = send_behind_barrier(op, watches);
	if (was_refused(rc))
		client_post_answer(&op->event, rc);
}

/*
 * Make a multi, followed by room for the results and their paths: all that the
 * library uses until it has answered.
 */
static Multi *
make_multi(Operation *const *ops, int count, bool is_batch,
		   MemoryContext context)
{
	Multi	   *multi;
	Size		size = offsetof(Multi, answers);
	int			parts = 0;

	for (int i = 0; i < count; i++)
	{
		size += strlen(ops[i]->path) + SEQUENCE_SIZE;
		parts += operation_parts(ops[i]);
	}
	size += parts * (sizeof(ClientEvent *) + sizeof(zoo_op_result_t));
	multi = MemoryContextAlloc(context, size);
	multi->is_batch = is_batch;
	multi->count = parts;
	multi->results = (zoo_op_result_t *) &multi->answers[parts];
	memset(multi->results, 0, parts * sizeof(zoo_op_result_t));
	parts = 0;
	for (int i = 0; i < count; i++)
	{
		if (operation_parts(ops[i]) > 1)
			multi->answers[parts++] = NULL;
		multi->answers[parts++] = &ops[i]->event;
	}
	for (int i = 0; i < parts; i++)
		multi->results[i].err = ZRUNTIMEINCONSISTENCY;
	return multi;
}

/* Add a create to a multi; *room is for its path. */
static void
add_create(zoo_op_t *zop, const Operation *op, const char *path, char **room)
{
	int			size = strlen(path) + SEQUENCE_SIZE;

	**room = '\0';
	zoo_create_op_init(zop, path, op->request.data, data_len(op),
					   op->event.client->acl, op->request.exact ?
					   ZOO_EPHEMERAL : ZOO_EPHEMERAL_SEQUENTIAL, *room, size);
	*room += size;
}

/* Add an operation to a multi, in operation_parts() parts. */
static void
add_operation(zoo_op_t *zop, Operation *op, char **room)
{
	switch (op->request.kind)
	{
		case REQUEST_DELETE:
			zoo_delete_op_init(zop, op->path, -1);
			break;
		case REQUEST_CHECK:
			zoo_check_op_init(zop, op->path, op->request.version);
			break;
		case REQUEST_SET:
			zoo_set_op_init(zop, op->path, op->request.data, data_len(op),
							op->request.version, &op->event.stat);
			break;
		case REQUEST_REQUEUE:
			zoo_delete_op_init(zop, op->path, -1);
			add_create(zop + 1, op, op->prefix, room);
			break;
		default:
			add_create(zop, op, op->path, room);
			break;
	}
}

/*
 * operation_send_multi
 *		Pass creates and deletes, or a group, to the library as one multi.
 *
 * "id" becomes the batch of what it creates.  "is_batch": the operations are
 * unrelated, and if one fails the others are answered CLIENT_BATCH_FAILED.
 * All are answered in any case, unless the session ends.  The multi, in
 * "context", is freed with the last of them.
 */
void
operation_send_multi(Operation *const *ops, int count, bool is_batch,
					 uint32_t id, MemoryContext context)
{
	Multi	   *multi = make_multi(ops, count, is_batch, context);
	Client	   *client = ops[0]->event.client;
	zoo_op_t   *zops = palloc(multi->count * sizeof(zoo_op_t));
	char	   *room = (char *) &multi->results[multi->count];
	int			n = 0;
	int			rc;

	for (int i = 0; i < count; i++)
	{
		Operation  *op = ops[i];

		add_operation(&zops[n], op, &room);
		n += operation_parts(op);
		if (creates(op))
			op->request.batch = id;
		op->place = n - 1;
		op->place_count = multi->count;
	}
	ops[count - 1]->multi = multi;

	rc = client_send_multi(client, multi->count, zops, multi->results,
						   callback_multi, multi);
	if (was_refused(rc))
	{
		for (int i = 0; i < count; i++)
		{
			ops[i]->event.code = is_batch ? CLIENT_BATCH_FAILED : rc;
			ops[i]->event.failed = -1;
		}
		post_multi(multi);
	}
	pfree(zops);
}

/* The watch that this was to set was not set. */
static void
forget_watch(const Operation *op, Watches *watches)
{
	if (sets_watch(op))
		watches_forget(watches, op->path, watch_type(op), op->owner,
					   op->request.serial);
}

/* Note by the answer whether this has set or removed its watch. */
void
operation_note_watch(const Operation *op, Watches *watches)
{
	if (sets_watch(op) && op->event.read)
		watches_note_set(watches, op->path, watch_type(op), op->owner);
	else if (op->event.code != ZOK)
		forget_watch(op, watches);
	else if (op->unwatched != 0)
		watches_removed(watches, op->path, op->unwatched);
}

static void
free_answer(Operation *op)
{
	client_free_answer(&op->event);
	if (op->multi)
		pfree(op->multi);
	op->multi = NULL;
}

/* Forget the answer to an operation, so that it can be sent again. */
void
operation_reset(Operation *op, Watches *watches)
{
	Client	   *client = op->event.client;

	forget_watch(op, watches);
	free_answer(op);
	memset(&op->event, 0, sizeof(op->event));
	op->event.kind = CLIENT_EVENT_ANSWER;
	op->event.client = client;
	op->request.batch = 0;
}

/* Free an operation, which is in no list, and its answer. */
void
operation_free(Operation *op)
{
	free_answer(op);
	if (op->request.data)
		pfree(unconstify(char *, op->request.data));
	if (op->prefix)
		pfree(op->prefix);
	pfree(op);
}

/* Is the operation about a znode in this directory? */
bool
operation_is_in(const Operation *op, const char *directory)
{
	size_t		len = strlen(directory);

	return strncmp(directory, op->path, len) == 0 && op->path[len] == '/' &&
		strchr(op->path + len + 1, '/') == NULL;
}

/* This directory has been deleted since the operation was submitted. */
void
operation_note_deletion(Operation *op, const char *directory)
{
	if (op->request.kind == REQUEST_CREATE && operation_is_in(op, directory))
		op->directory_deleted = true;
}

/* Has the leader processed this, and a quorum logged the outcome? */
bool
operation_is_proof(const Operation *op)
{
	RequestKind kind = op->request.kind;

	if (!client_is_leaders(op->event.code))
		return false;
	return op->heartbeat || creates(op) || kind == REQUEST_SET ||
		kind == REQUEST_DELETE || kind == REQUEST_DELETE_ORPHAN;
}

/* Why the parents of a directory cannot be made, or ZOK. */
static int
parents_code(const Operation *op)
{
	return op->request.kind == REQUEST_MKDIRS ? op->event.parents_code : ZOK;
}

RequestResult
operation_result(const Operation *op)
{
	int			code = op->event.code;

	switch (code)
	{
		case ZOK:
			return REQUEST_OK;
		case ZNONODE:
			return op->parent_lost ? REQUEST_UNKNOWN :
				parents_code(op) != ZOK ? REQUEST_REFUSED : REQUEST_NO_NODE;
		case ZNODEEXISTS:
			/* another client made the directory */
			return op->request.kind == REQUEST_MKDIR ||
				op->request.kind == REQUEST_MKDIRS ?
				REQUEST_OK : REQUEST_REFUSED;
		case ZSESSIONEXPIRED:
		case ZCLOSING:
		case ZSESSIONMOVED:
		case ZTHROTTLEDOP:
			return REQUEST_UNKNOWN;
		case ZBADARGUMENTS:
		case ZUNIMPLEMENTED:
			return REQUEST_REFUSED;
		default:
			/* up to ZAPIERROR it is the client's code, which knows no more */
			return code > ZAPIERROR ? REQUEST_UNKNOWN : REQUEST_REFUSED;
	}
}

/*
 * operation_fill_answer
 *		Fill in the answer, which points into the operation.
 *
 * Not for heartbeats, nor for UNWATCH and DELETE_ORPHAN, which are not
 * answered.
 */
void
operation_fill_answer(const Operation *op, RequestAnswer *answer)
{
	const ClientEvent *event = &op->event;
	bool		ours = client_is_ours(event->client, &event->stat);

	memset(answer, 0, sizeof(*answer));
	answer->event = REQUEST_DONE;
	answer->kind = op->request.kind;
	answer->serial = op->request.serial;
	answer->result = operation_result(op);
	answer->error = event->code == ZNONODE && parents_code(op) != ZOK ?
		parents_code(op) : event->code;
	answer->not_empty = event->code == ZNOTEMPTY;
	if (creates(op) && event->code == ZOK)
	{
		const char *created = event->created ? event->created : event->string;
		const char *slash = created ? strrchr(created, '/') : NULL;

		answer->node = slash ? slash + 1 : "";
		answer->batch = op->request.batch;
		answer->token = ours ? event->stat.czxid : 0;
	}
	answer->children = (const char *const *) event->children;
	answer->nchildren = event->nchildren;
	answer->data = event->data;
	answer->data_len = event->data_len;
	answer->size = event->stat.dataLength;
	answer->child_count = event->stat.numChildren;
	answer->czxid = event->stat.czxid;
	answer->mzxid = event->stat.mzxid;
	answer->version = event->stat.version;
	answer->acl_count = event->acl_count;
	answer->acl_open = event->acl_open;
	answer->ctime = event->stat.ctime;
	answer->ephemeral_owner = event->stat.ephemeralOwner;
	answer->ours = ours;
}
