/*-------------------------------------------------------------------------
 *
 * detector_io.c
 *		The detector's operations in ZooKeeper, and their answers.
 *
 * The znodes of PostgreSQL's sessions (core/deadlock/vertex.c) are written or,
 * if they do not exist, created.
 *
 * Reads.  Any client may have written what is read, so each read begins with a
 * stat: the data are not read if the znode is not ephemeral, or if they are
 * longer than any note or probe.
 *
 * Versions.  A note is written only over the version that we know, since
 * another client may have written a revocation over it.  If the version
 * differs, the recipe is made to read the data first.
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
#include "core/memory.h"
#include "postmaster/postmaster.h"
#include "shared/deadlocks.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "worker/deadlock/detector_io_private.h"
#include "worker/lock/contender.h"
#include "worker/zookeeper/session.h"

/* Our groups have this bit, which those of fleet.c take long to reach. */
#define GROUP_BIT			UINT32_C(0x80000000)

/* A directory with more children is not listed. */
#define MAX_CHILDREN		1000

/* An operation of the detector that is out. */
typedef struct SentRequest
{
	uint32		serial;			/* hash key, must be first */
	RequestKind kind;
	bool		barrier;		/* the list is to go behind one */
	char		path[NOTE_VERTEX_SIZE];
	char	   *data;			/* SET of a session's znode: its note,
								 * malloc'd, until the znode is being created;
								 * or NULL */

	/* an act */
	bool		acts;			/* it is one */
	int			parts;			/* its parts without answer */
	RequestResult result;		/* of those with one */
	bool		noted;			/* the note of "path" has been written */
	int64		zxid;			/* of the multi, if it was carried out */
} SentRequest;

static struct
{
	HTAB	   *requests;
	uint32		notes_owner;	/* of requests that write contenders' notes,
								 * which need no order with others */
	uint32		owner;			/* of all others */
	uint32		last_group;
	bool		waits_dirs_noted;	/* in shared memory, for the next worker */
}			io;

/* Begin; the handler is for all requests. */
void
detector_io_attach(SessionHandler handler)
{
	io.notes_owner = session_add_owner(handler, NULL);
	io.owner = session_add_owner(handler, NULL);
	detector_io_forget();
}

/* The session is over: forget its requests. */
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
 * detector_io_read_waits_dir
 *		A directory in which an earlier worker may have left znodes, by
 *		number from 0 on; false if there are no more.
 */
bool
detector_io_read_waits_dir(int number, char path[ZNODE_PATH_SIZE])
{
	bool		found = deadlock_read_waits_dir(number, path);

	io.waits_dirs_noted |= found;
	return found;
}

/* No directory has a znode of ours any more. */
void
detector_io_forget_waits_dirs(void)
{
	if (io.waits_dirs_noted)
		deadlock_forget_waits_dirs();
	io.waits_dirs_noted = false;
}

static SentRequest *
new_sent(const DetectorOp *op)
{
	SentRequest *sent = hash_search(io.requests, &op->request.serial,
									HASH_ENTER, NULL);

	sent->kind = op->request.kind;
	sent->barrier = op->request.barrier;
	sent->acts = op->verdict != NULL;
	sent->parts = 0;
	sent->result = REQUEST_OK;
	sent->noted = false;
	sent->zxid = 0;
	sent->data = NULL;
	strlcpy(sent->path, op->request.path, sizeof(sent->path));
	return sent;
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

	session_submit(io.notes_owner, &set);
}

/*
 * Write the note of our contender over any version, since we do not know which
 * one it has.  It may be a revocation, so it is read first.
 *
 * If the node is watched for a revocation, the watch has fired before the
 * answer that made us come here, and the read is under way.
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

/*
 * The note with these waits for a session's znode, valid until the next call.
 */
static const char *
session_note(const NoteWait *waits, int nwaits)
{
	static char data[NOTE_FULL_SIZE];
	Note		note;

	note_set_contender(&note, host_name(), PostPortNumber, cluster_name,
					   nwaits > 0 ? waits[0].hold.pid : 0, false);
	(void) note_write_waits(&note, waits, nwaits, data);
	return data;
}

/*
 * Set the waits of our contender, or of a session's znode, and return the note
 * with them, valid until the next call; NULL: that is no contender of ours any
 * more.
 */
static const char *
note_with(const char *path, const NoteWait *waits, int nwaits)
{
	Contender  *contender = find_owner(path);

	if (vertex_is_node(path))
		return session_note(waits, nwaits);
	if (contender == NULL)
		return NULL;
	contender_set_waits(contender, waits, nwaits);
	return contender_note(contender);
}

/*
 * The write of the note of a session's znode has been answered; false: the
 * znode does not exist, and is now created.
 */
static bool
session_note_written(SentRequest *sent, const RequestAnswer *in)
{
	char	   *data = sent->data;

	if (data && in->result == REQUEST_NO_NODE)
	{
		Request		create = {
			.kind = REQUEST_CREATE,
			.serial = sent->serial,
			.path = sent->path,
			.data = data,
			.exact = true
		};

		io.last_group = (io.last_group + 1) & ~GROUP_BIT;
		create.group = GROUP_BIT | io.last_group;
		session_submit(io.owner, &create);
	}
	free(data);
	sent->data = NULL;
	return data == NULL || in->result != REQUEST_NO_NODE;
}

/* Submit the write of a note; false if there is none to write. */
static bool
submit_waits(const DetectorOp *op)
{
	const char *path = op->request.path;
	const char *data = note_with(path, op->waits, op->nwaits);
	Contender  *contender = find_owner(path);

	if (data == NULL)
		return false;
	if (vertex_is_node(path))
	{
		Request		set = op->request;

		set.data = new_sent(op)->data = memory_copy(data);
		session_submit(io.owner, &set);
		return true;
	}
	new_sent(op);
	if (contender->note_version < 0)
		write_again(contender, path, op->request.serial);
	else
		submit_note(contender, path, op->request.serial);
	return true;
}

/* Submit a part of an act. */
static void
submit_part(SentRequest *sent, Request part)
{
	part.serial = sent->serial;
	part.group = GROUP_BIT | io.last_group;
	sent->parts++;
	session_submit(io.owner, &part);
}

/* Submit the note of another contender of ours, if it still is one. */
static void
submit_other(SentRequest *sent, const DetectorNote *note)
{
	const char *data = note_with(note->path, note->waits, note->nwaits);
	Contender  *contender = find_owner(note->path);

	if (contender)
		contender->note_version = -1;
	if (data)
		submit_part(sent, (Request) {.kind = REQUEST_SET,.path = note->path,
			.data = data});
}

/* Submit an act; false if the deadlock no longer exists. */
static bool
submit_act(const DetectorOp *op)
{
	Request		set = op->request;
	SentRequest *sent;
	Contender  *contender = find_owner(set.path);

	set.data = note_with(set.path, op->waits, op->nwaits);
	if (set.data == NULL)
		return false;
	if (contender)
	{
		set.has_version = contender->note_version >= 0;
		set.version = contender->note_version;
	}
	sent = new_sent(op);
	io.last_group = (io.last_group + 1) & ~GROUP_BIT;
	for (int i = 0; i < op->nchecks; i++)
		submit_part(sent, (Request) {.kind = REQUEST_CHECK,
			.path = op->checks[i].path,
			.has_version = op->checks[i].version >= 0,
			.version = op->checks[i].version});
	submit_part(sent, set);
	for (int i = 0; i < op->nothers; i++)
		submit_other(sent, &op->others[i]);
	submit_part(sent, (Request) {.kind = REQUEST_CREATE,.path = op->verdict,
		.data = "",.exact = true});
	return true;
}

static const char *
op_name(const DetectorOp *op)
{
	static const char *const names[] = {
		[REQUEST_CHILDREN] = "list",
		[REQUEST_LIST] = "list and watch",
		[REQUEST_GET] = "get",
		[REQUEST_SET] = "set waits",
		[REQUEST_MKDIR] = "mkdir",
		[REQUEST_CREATE] = "create",
		[REQUEST_DELETE] = "delete"
	};

	return op->verdict ? "act" : names[op->request.kind];
}

/* If this creates a znode in a directory, note that for the next worker. */
static void
note_waits_dir(const DetectorOp *op)
{
	const char *path = op->verdict;
	char		dir[NOTE_VERTEX_SIZE];

	if (path == NULL && (op->request.kind == REQUEST_CREATE ||
						 (op->request.kind == REQUEST_SET &&
						  vertex_is_node(op->request.path))))
		path = op->request.path;
	if (path == NULL)
		return;
	strlcpy(dir, path, sizeof(dir));
	*strrchr(dir, '/') = '\0';
	deadlock_note_waits_dir(dir);
	io.waits_dirs_noted = true;
}

/*
 * detector_io_submit
 *		Submit an operation of the detector.
 *
 * Returns false if it is to be answered "no node", without asking ZooKeeper.
 */
bool
detector_io_submit(const DetectorOp *op)
{
	Request		request = op->request;

	ereport(DEBUG3,
			(errmsg_internal("deadlock request %u: %s %s%s", request.serial,
							 op_name(op), request.path,
							 request.barrier ? ", behind a barrier" : "")));
	note_waits_dir(op);
	if (op->verdict)
		return submit_act(op);
	if (request.kind == REQUEST_SET)
		return submit_waits(op);
	if (request.kind == REQUEST_GET || request.kind == REQUEST_LIST ||
		request.kind == REQUEST_CHILDREN)
	{
		/* see read_data() and read_children() */
		request.kind = REQUEST_STAT;
		request.barrier = false;
	}
	request.brief = true;
	new_sent(op);
	session_submit(io.owner, &request);
	return true;
}

/*
 * Handle the stat that precedes a read: read the data, unless they cannot be
 * an instance's.  Returns false if they cannot: the answer has no data.
 */
static bool
read_data(const SentRequest *sent, const RequestAnswer *in)
{
	const char *name = strrchr(sent->path, '/') + 1;
	bool		is_probe =
		strncmp(name, PROBE_PREFIX, strlen(PROBE_PREFIX)) == 0;
	int			max = is_probe ? PROBE_MAX_SIZE : NOTE_FULL_SIZE;
	Request		get = {
		.kind = REQUEST_GET,
		.serial = sent->serial,
		.path = sent->path
	};

	if (in->result != REQUEST_OK || !request_is_ephemeral(in) ||
		in->size > max)
		return false;
	session_submit(io.owner, &get);
	return true;
}

/*
 * Handle the stat that precedes a list: list the children, unless they are so
 * many that all lock traffic behind the list would wait for it.  Any client
 * may make such a crowd, if the ACL is open.  Returns false if they are: then
 * the list is answered as one that was refused.
 */
static bool
read_children(const SentRequest *sent, const RequestAnswer *in,
			  DetectorInput *input)
{
	static bool logged = false;
	Request		list = {
		.kind = sent->kind,
		.serial = sent->serial,
		.path = sent->path,
		.barrier = sent->barrier,
		.brief = true
	};

	if (in->result == REQUEST_UNKNOWN || in->result == REQUEST_REFUSED)
		return false;
	if (in->result != REQUEST_OK || in->child_count <= MAX_CHILDREN)
	{
		session_submit(io.owner, &list);
		return true;
	}
	if (!logged)
		ereport(LOG,
				(errmsg("too many znodes in \"%s\" to search for deadlocks",
						sent->path),
				 errdetail("It has %d, and more than %d are not read.  Deadlocks with other servers may last until it has fewer.",
						   in->child_count, MAX_CHILDREN)));
	logged = true;
	input->answer.result = REQUEST_REFUSED;
	return false;
}

/*
 * Handle the answer to one part of an act.  That a part was not tried means
 * nothing: the answer to another part has the reason.
 */
static void
take_part(SentRequest *sent, const RequestAnswer *in)
{
	sent->parts--;
	if (session_error_is_untried(in->error))
		return;
	if (in->result == REQUEST_UNKNOWN && sent->result == REQUEST_OK)
		sent->result = REQUEST_UNKNOWN;
	else if (in->result == REQUEST_NO_NODE || in->result == REQUEST_REFUSED)
		sent->result = REQUEST_NO_NODE;
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

/*
 * The write of a contender's note has been answered; false: it is written
 * again.
 */
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
 *		Handle the answer to an operation, or a watch: fill in the
 *		detector's input.
 *
 * Returns false if there is no input, or none yet.
 */
bool
detector_io_answer(const RequestAnswer *in, DetectorInput *input)
{
	SentRequest *sent;

	memset(input, 0, sizeof(*input));
	input->event = DETECTOR_DIR_CHANGED;
	input->answer = *in;
	if (in->event != REQUEST_DONE)
		return true;
	sent = hash_search(io.requests, &in->serial, HASH_FIND, NULL);
	if (sent == NULL)
		return false;			/* of an ended session */
	input->event = DETECTOR_DONE;
	if (sent->acts)
	{
		take_part(sent, in);
		if (sent->parts > 0)
			return false;
		input->answer.result = sent->result;
		input->answer.mzxid = sent->zxid;
	}
	else if (sent->kind == REQUEST_SET)
	{
		if (!(vertex_is_node(sent->path) ?
			  session_note_written(sent, in) : note_written(sent, in)))
			return false;
	}
	else if (in->kind == REQUEST_STAT && sent->kind == REQUEST_GET)
	{
		if (read_data(sent, in))
			return false;
	}
	else if (in->kind == REQUEST_STAT && read_children(sent, in, input))
		return false;
	hash_search(io.requests, &in->serial, HASH_REMOVE, NULL);
	ereport(DEBUG3,
			(errmsg_internal("deadlock request %u answered: %d", in->serial,
							 input->answer.result)));
	return true;
}
