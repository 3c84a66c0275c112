/*-------------------------------------------------------------------------
 *
 * reads.c
 *		Reads in ZooKeeper what backends ask for.
 *
 * The worker does not know what the lists and the data are for: it reads the
 * paths of a request, and passes on what ZooKeeper has answered.  Each box of
 * shared/reads.h has room for one request.
 *
 * The first list of a request is behind a barrier, and the others follow it on
 * the same connection.  So a list has all that was done anywhere before it was
 * asked for.  What a backend reads afterwards is no older: a connection begins
 * with a barrier.
 *
 * Anybody may be allowed to create znodes of any size where backends look.  So
 * the data of a znode are read when its stat has shown that they are no longer
 * than any that zklock writes.  (Servers before 3.9.2 require no permission for
 * the stat, so it may be all that is known.)  And nothing more is read for an
 * answer that would be longer than ZK_READ_MAX_BYTES.
 *
 * Requests of contenders go in the same flights, and must not wait until
 * something long has been read.  So at most MAX_OUT reads are out at a time,
 * those of all backends in turns.
 *
 * If an answer is lost, or the session ends, all paths of the request are read
 * again.  Each time its reads have another owner ID, so that answers to the
 * earlier ones are not delivered.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/reads.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/deadlock.h"
#include "core/lock/note.h"
#include "shared/reads.h"
#include "shared/settings.h"
#include "utils/memutils.h"
#include "worker/fleet.h"
#include "worker/reads.h"
#include "worker/zookeeper/session.h"

/* The most reads that are out at a time. */
#define MAX_OUT		16

typedef struct ReadJob
{
	bool		taken;			/* the worker owes an answer */
	uint32		serial;			/* of the request in its box */
	ZkReadRequest request;
	uint32		owner;			/* of its reads; 0: not begun */
	MemoryContext context;		/* of what has been read */
	const char **paths;
	ZkReadNode **nodes;			/* what has been read of each; or NULL */
	int			next;			/* the first path that has not been sent */
	int			out;			/* unanswered reads */
	int			nread;			/* paths that are read */
	Size		size;			/* of the nodes */
	bool		logged;			/* a refusal was */
} ReadJob;

static ReadJob jobs[ZK_READ_BOXES];
static int	nout = 0;			/* unanswered reads of all of them */

static int
box_of(const ReadJob *job)
{
	return job - jobs;
}

/* Forget what has been read and sent. */
static void
stop(ReadJob *job)
{
	if (job->owner == 0)
		return;
	session_remove_owner(job->owner);
	MemoryContextDelete(job->context);
	nout -= job->out;
	job->owner = 0;
}

/* No answer is owed any more. */
static void
drop(ReadJob *job)
{
	stop(job);
	job->taken = false;
}

static void
finish(ReadJob *job, ZkReadOutcome outcome)
{
	reads_set_answer(box_of(job), job->serial, outcome, job->nodes,
					 job->request.npaths);
	drop(job);
}

static const char *
root_of(const ReadJob *job)
{
	return job->request.root[0] == '\0' ? zklock_root : job->request.root;
}

static void
submit(ReadJob *job, RequestKind kind, int number)
{
	const char *path = job->paths[number];
	Request		request = {
		.kind = kind,
		.serial = number,
		.path = root_of(job),
		.node = *path == '\0' ? NULL : path,
		.data = kind == REQUEST_SET ? NOTE_REVOCATION_DATA : NULL
	};

	session_submit(job->owner, &request);
	job->out++;
	nout++;
}

static void
send_next(ReadJob *job)
{
	int			number = job->next++;

	switch (job->request.kind)
	{
		case ZK_READ_CHILDREN:
			submit(job, number == 0 ? REQUEST_SEARCH : REQUEST_CHILDREN,
				   number);
			break;
		case ZK_READ_DATA:
			submit(job, REQUEST_STAT, number);
			break;
		case ZK_WRITE_REVOCATION:
			submit(job, REQUEST_SET, number);
			break;
	}
}

/* Continue with all that has begun, in turns. */
static void
send_more(void)
{
	static int	last = 0;

	for (int idle = 0; idle < ZK_READ_BOXES && nout < MAX_OUT; idle++)
	{
		ReadJob    *job = &jobs[last = (last + 1) % ZK_READ_BOXES];

		if (job->owner == 0 || job->next == job->request.npaths)
			continue;
		send_next(job);
		idle = -1;
	}
}

/* As much of the data as is passed on, without part of a UTF-8 character. */
static int
data_length(const RequestAnswer *in, int max)
{
	int			len = Min(in->data_len, max);

	if (len < in->data_len)
		for (int i = 0; i < 3 && (in->data[len] & 0xC0) == 0x80; i++)
			len--;
	return len;
}

/* Make room for what has been read of a path, in place of what was before. */
static ZkReadNode *
make_node(ReadJob *job, int number, Size nbytes)
{
	ZkReadNode **node = &job->nodes[number];

	if (*node)
	{
		job->size -= ZkReadNodeSize((*node)->nbytes);
		pfree(*node);
	}
	*node = MemoryContextAllocExtended(job->context,
									   ZkReadNodeSize(nbytes),
									   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	(*node)->nbytes = nbytes;
	(*node)->data_len = -1;
	job->size += ZkReadNodeSize(nbytes);
	return *node;
}

static void
note_children(ReadJob *job, const RequestAnswer *in)
{
	ZkReadNode *node;
	Size		nbytes = 0;
	char	   *end;

	for (int i = 0; i < in->nchildren; i++)
		nbytes += strlen(in->children[i]) + 1;
	if (nbytes > ZK_READ_MAX_BYTES)
	{
		job->size += nbytes;
		return;
	}
	node = make_node(job, in->serial, nbytes);
	node->nchildren = in->nchildren;
	end = node->bytes;
	for (int i = 0; i < in->nchildren; i++)
	{
		strcpy(end, in->children[i]);
		end += strlen(end) + 1;
	}
}

static void
note_data(ReadJob *job, const RequestAnswer *in)
{
	int			len = in->kind == REQUEST_GET ?
		data_length(in, job->request.max_data) : -1;
	ZkReadNode *node = make_node(job, in->serial, Max(len, 0));

	node->ours = in->ours;
	node->persistent = !request_is_ephemeral(in);
	node->session_id = node->persistent ? 0 : in->ephemeral_owner;
	node->ctime = in->ctime;
	node->size = in->size;
	node->data_len = len;
	if (len > 0)
		memcpy(node->bytes, in->data, len);
}

/* A refusal leaves what is known by the stat. */
static void
note_refusal(ReadJob *job, const RequestAnswer *in)
{
	const char *path = job->paths[in->serial];
	ZkReadNode *node = job->nodes[in->serial];

	if (node == NULL)
		node = make_node(job, in->serial, 0);
	node->refusal = session_error_is_access(in->error) ?
		ZK_REFUSAL_ACCESS : ZK_REFUSAL_OTHER;
	if (node->refusal == ZK_REFUSAL_OTHER && !job->logged)
		ereport(LOG,
				(errmsg("ZooKeeper refused a request for \"%s%s%s\": %s",
						root_of(job), *path == '\0' ? "" : "/", path,
						session_error_text(in->error))));
	job->logged |= node->refusal == ZK_REFUSAL_OTHER;
}

static void
note_answer(ReadJob *job, const RequestAnswer *in)
{
	if (in->result == REQUEST_NO_NODE)
		make_node(job, in->serial, 0)->gone = true;
	else if (in->result == REQUEST_REFUSED)
		note_refusal(job, in);
	else if (job->request.kind == ZK_READ_CHILDREN)
		note_children(job, in);
	else if (job->request.kind == ZK_READ_DATA)
		note_data(job, in);
	else
		make_node(job, in->serial, 0);
}

/* Handle the answer to a read. */
static void
on_answer(void *data, const RequestAnswer *in)
{
	ReadJob    *job = data;

	job->out--;
	nout--;
	if (in->result == REQUEST_UNKNOWN)
		stop(job);				/* and begin it again */
	else if (!reads_is_open(box_of(job), job->serial))
		drop(job);
	else
	{
		note_answer(job, in);
		if (job->size > ZK_READ_MAX_BYTES)
			finish(job, ZK_READ_TOO_LARGE);
		else if (in->kind == REQUEST_STAT && in->result == REQUEST_OK &&
				 in->size <= DEADLOCK_TEXT_BYTES)
			submit(job, REQUEST_GET, in->serial);
		else if (++job->nread == job->request.npaths)
			finish(job, ZK_READ_DONE);
	}
	send_more();
}

static void
start(ReadJob *job)
{
	const char *path = job->request.paths;
	int			npaths = job->request.npaths;

	job->context = AllocSetContextCreate(TopMemoryContext, "zklock reads",
										 ALLOCSET_DEFAULT_SIZES);
	job->paths = MemoryContextAlloc(job->context, npaths * sizeof(char *));
	job->nodes = MemoryContextAllocZero(job->context,
										npaths * sizeof(ZkReadNode *));
	for (int i = 0; i < npaths; i++)
	{
		job->paths[i] = path;
		path += strlen(path) + 1;
	}
	job->next = job->out = job->nread = 0;
	job->size = 0;
	job->logged = false;
	job->owner = session_add_owner(on_answer, job);
}

/*
 * reads_collect
 *		Collect the requests of backends.
 *
 * To be called while there is a session, so that no backend can pile up reads
 * by asking repeatedly while there is none; and before the mail is opened, so
 * that a lock that a backend released before it asked is released in ZooKeeper
 * before the answer.
 */
void
reads_collect(void)
{
	static ZkReadRequest request;
	uint32		serial;
	int			box;

	while ((box = reads_take(&serial, &request)) >= 0)
	{
		ReadJob    *job = &jobs[box];

		stop(job);
		job->taken = true;
		job->serial = serial;
		job->request = request;
	}
}

/*
 * reads_begin
 *		Begin what has been collected; below the worker's own root, not before
 *		our znode is there.
 */
void
reads_begin(void)
{
	for (int i = 0; i < ZK_READ_BOXES; i++)
	{
		ReadJob    *job = &jobs[i];

		if (job->taken && job->owner == 0 &&
			(job->request.root[0] != '\0' || fleet_is_settled()))
			start(job);
	}
	send_more();
}

/* The session is over, with all reads: begin again in the next one. */
void
reads_restart(void)
{
	for (int i = 0; i < ZK_READ_BOXES; i++)
		stop(&jobs[i]);
}
