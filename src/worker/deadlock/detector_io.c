/*-------------------------------------------------------------------------
 *
 * detector_io.c
 *		What the detector asks of ZooKeeper, and the answers.
 *
 * Sessions.  The detector goes by the first session; a note is written in the
 * session of its contender, and so in order with what the recipe writes there.
 *
 * Sessions' znodes (core/deadlock/vertex.c) are of the first session, too: they are
 * written, and if they are not there, made.
 *
 * Reads.  Anybody may have written what is read, so the stat comes first: the
 * data are not read if the znode is not ephemeral, or if they are longer than
 * any note or probe.
 *
 * Versions.  A note is written only if it has the version that we know, since
 * another client may have written a revocation over it.  If it has another one,
 * the recipe is made to read that first.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/detector_io.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/deadlock/probe.h"
#include "core/deadlock/vertex.h"
#include "core/lock/note.h"
#include "postmaster/postmaster.h"
#include "shared/deadlocks.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "worker/deadlock/detector_io.h"
#include "worker/lock/contender.h"
#include "worker/zookeeper/session.h"

/* Groups of ours have this bit, which those of slots come to late. */
#define GROUP_BIT			UINT32_C(0x80000000)

/* An operation of the detector that is on its way. */
typedef struct SentRequest
{
	uint32		serial;			/* hash key, must be first */
	DetectorOpKind kind;
	int			session;
	int			parts;			/* ACT: answers that are missing */
	DetectorResult result;		/* ACT: so far */
	bool		noted;			/* ACT: the note of "path" has been written */
	int64		zxid;			/* ACT: of the multi, if it has been done */
	char	   *data;			/* SET_WAITS of a session's znode: its note,
								 * malloc'd, until it is being made; or NULL */
	char		path[NOTE_VERTEX_SIZE];
} SentRequest;

static struct
{
	HTAB	   *requests;
	uint32		notes_owner;	/* of requests that write notes */
	uint32		owner;			/* of all others */
	uint32		last_group;
	bool		rooms_noted;	/* for the next worker */
}			io;

/*
 * detector_io_attach
 *		Begin; the handler is that of all requests.
 */
void
detector_io_attach(SessionHandler handler)
{
	io.notes_owner = session_add_owner(handler, NULL);
	io.owner = session_add_owner(handler, NULL);
	detector_io_forget();
}

/*
 * detector_io_forget
 *		The first session is over: forget what was submitted.
 */
void
detector_io_forget(void)
{
	HASHCTL		ctl;

	if (io.requests)
		hash_destroy(io.requests);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(uint32);
	ctl.entrysize = sizeof(SentRequest);
	io.requests = hash_create("zklock deadlock requests", 64, &ctl,
									HASH_ELEM | HASH_BLOBS);
}

/*
 * detector_io_left_room
 *		A room in which an earlier worker may have left znodes, by number from 0
 *		on; false if there is none.
 */
bool
detector_io_left_room(int number, char path[ZNODE_PATH_SIZE])
{
	bool		found = deadlock_read_room(number, path);

	io.rooms_noted |= found;
	return found;
}

/*
 * detector_io_leave_rooms
 *		There is no znode of ours in any room.
 */
void
detector_io_leave_rooms(void)
{
	if (io.rooms_noted)
		deadlock_forget_rooms();
	io.rooms_noted = false;
}

static DetectorResult
result_of(RequestResult result)
{
	switch (result)
	{
		case REQUEST_OK:
			return DETECTOR_OK;
		case REQUEST_UNKNOWN:
			return DETECTOR_UNKNOWN;
		case REQUEST_NO_NODE:
			return DETECTOR_NO_NODE;
		case REQUEST_REFUSED:
			break;
	}
	return DETECTOR_REFUSED;
}

static SentRequest *
new_sent(const DetectorOp *op, int session)
{
	SentRequest *sent = hash_search(io.requests, &op->serial,
									  HASH_ENTER, NULL);

	sent->kind = op->kind;
	sent->session = session;
	sent->parts = 1;
	sent->result = DETECTOR_OK;
	sent->noted = false;
	sent->zxid = 0;
	sent->data = NULL;
	strlcpy(sent->path, op->path, sizeof(sent->path));
	return sent;
}

/* Submit an operation that is one request. */
static void
submit(const DetectorOp *op, RequestKind kind)
{
	Request		request = {
		.kind = kind,
		.serial = op->serial,
		.data = op->data,
		.barrier = op->barrier,
		.path = op->path,
		.brief = true
	};

	new_sent(op, 0);
	session_submit(0, io.owner, &request);
}

/* Submit the write of a contender's note. */
static void
submit_note(const Contender *contender, const char *path, uint32 serial)
{
	Request		set = {
		.kind = REQUEST_SET,
		.serial = serial,
		.data = contender_note(contender),
		.has_version = contender->note_version >= 0,
		.version = contender->note_version,
		.path = path
	};

	session_submit(contender->session, io.notes_owner, &set);
}

/*
 * The note of our contender has another version than we know: read it, in case
 * it is a revocation, ahead of writing it whatever its version is.
 *
 * If the node is watched for a revocation, the watch has come ahead of the
 * answer that told us, and the read is on its way.
 */
static void
write_again(Contender *contender, const char *path, uint32 serial)
{
	RecipeInput input = {.event = RECIPE_WATCH_REVOCATION};

	if (!contender->now.watches_itself)
		step(contender, false, &input);
	contender->note_version = -1;
	submit_note(contender, path, serial);
}

/* Our contender that owns its lock with this node, or NULL. */
static Contender *
find_owner(const char *path)
{
	Contender  *contender = contender_find_path(path);
	char		owned[NOTE_VERTEX_SIZE];

	return contender && contender_owned_path(contender, owned) ?
		contender : NULL;
}

/* The note of a session's znode, valid until the next call. */
static const char *
write_session(const NoteWait *waits, int nwaits)
{
	static char data[NOTE_FULL_SIZE];
	Note		note;

	note_set_contender(&note, host_name(), PostPortNumber, cluster_name,
					   nwaits > 0 ? waits[0].hold.pid : 0, false);
	(void) note_write_waits(&note, waits, nwaits, data);
	return data;
}

/* Write the note of a session's znode; if that is not there it is made then. */
static void
set_session(const DetectorOp *op)
{
	Request		set = {
		.kind = REQUEST_SET,
		.serial = op->serial,
		.data = write_session(op->waits, op->nwaits)
	};

	new_sent(op, 0)->data = strdup(set.data);
	set.path = op->path;
	session_submit(0, io.owner, &set);
}

/*
 * The note of a session's znode has been written, or not; false: the znode is
 * being made.
 */
static bool
session_written(SentRequest *sent, const RequestAnswer *in)
{
	char	   *data = sent->data;

	if (data && in->result == REQUEST_NO_NODE)
	{
		Request		create = {
			.kind = REQUEST_CREATE,
			.serial = sent->serial,
			.data = data,
			.exact = true
		};

		io.last_group = (io.last_group + 1) & ~GROUP_BIT;
		create.path = sent->path;
		create.group = GROUP_BIT | io.last_group;
		session_submit(0, io.owner, &create);
	}
	free(data);
	sent->data = NULL;
	return data == NULL || in->result != REQUEST_NO_NODE;
}

/* Write a note; false if there is none to be written. */
static bool
set_waits(const DetectorOp *op)
{
	Contender  *contender = find_owner(op->path);

	if (vertex_is_node(op->path))
	{
		set_session(op);
		return true;
	}
	if (contender == NULL)
		return false;
	contender_set_waits(contender, op->waits, op->nwaits);
	new_sent(op, contender->session);
	if (contender->note_version < 0)
		write_again(contender, op->path, op->serial);
	else
		submit_note(contender, op->path, op->serial);
	return true;
}

/* Submit a part of an act. */
static void
submit_part(SentRequest *sent, Request *part, const char *path)
{
	part->serial = sent->serial;
	sent->parts++;
	part->path = path;
	part->group = GROUP_BIT | io.last_group;
	session_submit(0, io.owner, part);
}

/* Submit the note of another contender of ours, if it still is one. */
static void
submit_other(SentRequest *sent, const DetectorNote *note)
{
	Contender  *contender = find_owner(note->path);
	Request		set = {.kind = REQUEST_SET};

	if (vertex_is_node(note->path))
	{
		set.data = write_session(note->waits, note->nwaits);
		submit_part(sent, &set, note->path);
		return;
	}
	if (contender == NULL)
		return;
	contender_set_waits(contender, note->waits, note->nwaits);
	contender->note_version = -1;
	set.data = contender_note(contender);
	submit_part(sent, &set, note->path);
}

/* End a deadlock, if it is still there; false if it is not. */
static bool
act(const DetectorOp *op)
{
	Contender  *contender = find_owner(op->path);
	SentRequest *sent;
	Request		set = {
		.kind = REQUEST_SET,
		.has_version = true,
		.version = op->version
	};
	Request		create = {
		.kind = REQUEST_CREATE,
		.data = "",
		.exact = true
	};

	if (contender == NULL && !vertex_is_node(op->path))
		return false;
	sent = new_sent(op, 0);
	sent->parts = 0;
	io.last_group = (io.last_group + 1) & ~GROUP_BIT;
	for (int i = 0; i < op->nchecks; i++)
	{
		Request		check = {
			.kind = REQUEST_CHECK,
			.has_version = op->checks[i].version >= 0,
			.version = op->checks[i].version
		};

		submit_part(sent, &check, op->checks[i].path);
	}
	if (contender)
	{
		contender_set_waits(contender, op->waits, op->nwaits);
		set.data = contender_note(contender);
	}
	else
		set.data = write_session(op->waits, op->nwaits);
	submit_part(sent, &set, op->path);
	for (int i = 0; i < op->nothers; i++)
		submit_other(sent, &op->others[i]);
	submit_part(sent, &create, op->verdict);
	return true;
}

static const char *
op_name(DetectorOpKind kind)
{
	static const char *const names[] = {
		[DETECTOR_OP_LIST] = "list",
		[DETECTOR_OP_LIST_WATCH] = "list and watch",
		[DETECTOR_OP_GET] = "get",
		[DETECTOR_OP_SET_WAITS] = "set waits",
		[DETECTOR_OP_MKDIR] = "mkdir",
		[DETECTOR_OP_CREATE] = "create",
		[DETECTOR_OP_DELETE] = "delete",
		[DETECTOR_OP_ACT] = "act"
	};

	return names[kind];
}

/* If it creates a znode in a room: the next worker must know of that. */
static void
note_room(const DetectorOp *op)
{
	const char *path = op->kind == DETECTOR_OP_CREATE ||
		(op->kind == DETECTOR_OP_SET_WAITS && vertex_is_node(op->path)) ?
		op->path : op->kind == DETECTOR_OP_ACT ? op->verdict : NULL;
	char		room[NOTE_VERTEX_SIZE];

	if (path == NULL)
		return;
	strlcpy(room, path, sizeof(room));
	*strrchr(room, '/') = '\0';
	deadlock_note_room(room);
	io.rooms_noted = true;
}

/*
 * detector_io_submit
 *		Submit an operation of the detector.
 *
 * Returns false if it has to be answered "no node", without asking ZooKeeper.
 */
bool
detector_io_submit(const DetectorOp *op)
{
	ereport(DEBUG3,
			(errmsg_internal("deadlock request %u: %s %s%s", op->serial,
							 op_name(op->kind), op->path,
							 op->barrier ? ", behind a barrier" : "")));
	note_room(op);
	switch (op->kind)
	{
		case DETECTOR_OP_LIST:
			submit(op, REQUEST_CHILDREN);
			break;
		case DETECTOR_OP_LIST_WATCH:
			submit(op, REQUEST_LIST);
			break;
		case DETECTOR_OP_GET:
			submit(op, REQUEST_STAT);
			break;
		case DETECTOR_OP_MKDIR:
			submit(op, REQUEST_MKDIR);
			break;
		case DETECTOR_OP_CREATE:
			submit(op, REQUEST_CREATE);
			break;
		case DETECTOR_OP_DELETE:
			submit(op, REQUEST_DELETE);
			break;
		case DETECTOR_OP_SET_WAITS:
			return set_waits(op);
		case DETECTOR_OP_ACT:
			return act(op);
	}
	return true;
}

/*
 * The stat of what is to be read has come: read it, unless it is nothing of a
 * cluster's; false: then it is to be told without data.
 */
static bool
read_data(const SentRequest *sent, const RequestAnswer *in)
{
	const char *name = strrchr(sent->path, '/') + 1;
	bool		is_probe = strncmp(name, PROBE_PREFIX, strlen(PROBE_PREFIX)) == 0;
	int			max = is_probe ? PROBE_MAX_SIZE : NOTE_FULL_SIZE;
	Request		get = {.kind = REQUEST_GET,.serial = sent->serial};

	if (in->result != REQUEST_OK || !request_is_ephemeral(in) ||
		in->size > max)
		return false;
	get.path = sent->path;
	session_submit(0, io.owner, &get);
	return true;
}

/*
 * Take one answer of an act.  That a part was not tried means nothing: another
 * one tells why.
 */
static void
take_part(SentRequest *sent, const RequestAnswer *in)
{
	sent->parts--;
	if (session_error_is_untried(in->error))
		return;
	if (in->result == REQUEST_UNKNOWN && sent->result == DETECTOR_OK)
		sent->result = DETECTOR_UNKNOWN;
	else if (in->result == REQUEST_NO_NODE || in->result == REQUEST_REFUSED)
		sent->result = DETECTOR_NO_NODE;
	if (in->kind == REQUEST_SET && in->result == REQUEST_OK &&
		!sent->noted)
	{
		Contender  *contender = find_owner(sent->path);

		sent->noted = true;
		sent->zxid = in->mzxid;
		if (contender)
			contender->note_version = in->version;
	}
}

/* The note of a contender has been written, or not; false: it goes again. */
static bool
note_written(const SentRequest *sent, const RequestAnswer *in)
{
	Contender  *contender = find_owner(sent->path);

	if (contender == NULL)
		return true;
	if (in->result == REQUEST_OK)
		contender->note_version = in->version;
	else if (in->result == REQUEST_UNKNOWN)
		contender->note_version = -1;
	else if (session_error_is_bad_version(in->error))
	{
		write_again(contender, sent->path, sent->serial);
		return false;
	}
	return true;
}

/*
 * detector_io_answer
 *		The server has answered an operation, or the watch of one has come:
 *		fills in what to tell the detector.
 *
 * Returns false if it is not to be told (yet).
 */
bool
detector_io_answer(const RequestAnswer *in, DetectorInput *answer)
{
	SentRequest *sent;

	memset(answer, 0, sizeof(*answer));
	answer->serial = in->serial;
	answer->event = DETECTOR_ROOM_CHANGED;
	if (in->event != REQUEST_DONE)
		return true;
	sent = hash_search(io.requests, &in->serial, HASH_FIND, NULL);
	if (sent == NULL)
		return false;			/* of a session that has ended */
	answer->event = DETECTOR_DONE;
	answer->result = result_of(in->result);
	answer->children = in->children;
	answer->nchildren = in->nchildren;
	answer->data = in->data;
	answer->len = in->data_len;
	answer->version = in->version;
	answer->ephemeral = request_is_ephemeral(in);
	answer->ours = in->ours;
	answer->node = in->node;
	if (sent->kind == DETECTOR_OP_ACT)
	{
		take_part(sent, in);
		if (sent->parts > 0)
			return false;
		answer->result = sent->result;
		answer->zxid = sent->zxid;
	}
	else if (sent->kind == DETECTOR_OP_SET_WAITS &&
			 !(vertex_is_node(sent->path) ?
			   session_written(sent, in) : note_written(sent, in)))
		return false;
	else if (in->kind == REQUEST_STAT && read_data(sent, in))
		return false;
	hash_search(io.requests, &in->serial, HASH_REMOVE, NULL);
	ereport(DEBUG3,
			(errmsg_internal("deadlock request %u answered: %d", in->serial,
							 answer->result)));
	return true;
}

/*
 * detector_io_lost
 *		A session other than the first is over: fills in what to tell the
 *		detector of an operation that was on its way in it.
 *
 * To be called until it returns false: there is none left.
 */
bool
detector_io_lost(int session, DetectorInput *answer)
{
	HASH_SEQ_STATUS scan;
	SentRequest *sent;

	hash_seq_init(&scan, io.requests);
	while ((sent = hash_seq_search(&scan)) != NULL)
	{
		if (sent->session != session)
			continue;
		hash_seq_term(&scan);
		memset(answer, 0, sizeof(*answer));
		answer->event = DETECTOR_DONE;
		answer->serial = sent->serial;
		answer->result = DETECTOR_NO_NODE;
		hash_search(io.requests, &answer->serial, HASH_REMOVE, NULL);
		return true;
	}
	return false;
}
