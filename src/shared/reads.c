/*-------------------------------------------------------------------------
 *
 * reads.c
 *		What backends have the worker read in ZooKeeper.
 *
 * A backend has no connection to ZooKeeper, so it puts a request into one of a
 * few boxes in shared memory, and sleeps on the box's condition variable until
 * the worker has answered.  The states of a box, and what changes them:
 *
 *	FREE		a backend asks -> ASKED
 *	ASKED		the worker begins to read -> TAKEN
 *	TAKEN		the worker has the answer -> ANSWERED
 *				a new worker starts, which knows nothing of it -> ASKED
 *	ANSWERED	nothing but what follows
 *	any			the backend has read the answer, or does not wait for it any
 *				more (error, cancel, end of the process) -> FREE
 *
 * Each request gives its box a new serial number.  The worker returns it with
 * the answer, and an answer with another number than the box's is discarded.
 *
 * Locking protocol.  All fields of all boxes are read and changed under the
 * LWLock of the tranche ZK_TRANCHE (exclusive to change anything), with two
 * exceptions.  The backend that has asked may read the answer in place while
 * the box is ANSWERED, since only that backend ends this state.  And nasked,
 * the number of boxes in state ASKED, may be read without the lock, as the
 * worker does in each iteration of its loop.
 *
 * What has been read can be long, and has its own dynamic shared memory
 * segment.  The worker pins it and detaches from it; the pin belongs to the
 * box, and the process that frees the box unpins the segment.  Nothing can fail
 * between the pin and the storing of the handle in the box.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/reads.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "shared/compat.h"
#include "shared/reads.h"
#include "shared/session_info.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#define ZK_TRANCHE		"zklock reads"

typedef enum BoxState
{
	BOX_FREE,
	BOX_ASKED,
	BOX_TAKEN,
	BOX_ANSWERED
} BoxState;

struct ZkReadBox
{
	BoxState	state;
	uint32		serial;			/* of the request */
	ZkReadRequest request;
	ZkReadAnswer answer;
	ConditionVariable cv;		/* broadcast when it is ANSWERED */
};

typedef struct ZkBoxes
{
	pg_atomic_uint32 nasked;
	ConditionVariable free_cv;	/* broadcast when a box is FREE */
	ZkReadBox	boxes[ZK_READ_BOXES];
} ZkBoxes;

static ZkBoxes *zk_boxes = NULL;
static LWLock *boxes_lock = NULL;

/*
 * reads_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
reads_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(ZkBoxes));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/*
 * reads_startup_shmem
 *		Create or attach to the boxes; AddinShmemInitLock is held.
 */
void
reads_startup_shmem(void)
{
	bool		found;

	zk_boxes = ShmemInitStruct(ZK_TRANCHE, sizeof(ZkBoxes), &found);
	if (!found)
	{
		memset(zk_boxes, 0, sizeof(ZkBoxes));
		pg_atomic_init_u32(&zk_boxes->nasked, 0);
		ConditionVariableInit(&zk_boxes->free_cv);
		for (int i = 0; i < ZK_READ_BOXES; i++)
			ConditionVariableInit(&zk_boxes->boxes[i].cv);
	}
	boxes_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
}

/* Change a box's state; the lock is held exclusively. */
static void
set_state(ZkReadBox *box, BoxState state)
{
	if (box->state == BOX_ASKED)
		pg_atomic_fetch_sub_u32(&zk_boxes->nasked, 1);
	if (state == BOX_ASKED)
		pg_atomic_fetch_add_u32(&zk_boxes->nasked, 1);
	box->state = state;
}

/*
 * reads_ask
 *		Have the worker carry out a request.
 *
 * Returns NULL if all boxes are in use: then sleep on reads_cv(NULL) and ask
 * again.  Otherwise the caller must call reads_end(), also after an error.
 * Does not throw.
 */
ZkReadBox *
reads_ask(const ZkReadRequest *request)
{
	ZkReadBox  *box = NULL;

	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZK_READ_BOXES && box == NULL; i++)
		if (zk_boxes->boxes[i].state == BOX_FREE)
			box = &zk_boxes->boxes[i];
	if (box)
	{
		box->serial++;
		memcpy(&box->request, request,
			   offsetof(ZkReadRequest, paths) + request->size);
		box->answer.segment = DSM_HANDLE_INVALID;
		set_state(box, BOX_ASKED);
	}
	LWLockRelease(boxes_lock);
	if (box)
		worker_wake();
	return box;
}

/*
 * reads_answer
 *		The answer; NULL if there is none yet: sleep on reads_cv() and look
 *		again.
 *
 * It stays valid until reads_end().
 */
const ZkReadAnswer *
reads_answer(ZkReadBox *box)
{
	bool		answered;

	LWLockAcquire(boxes_lock, LW_SHARED);
	answered = box->state == BOX_ANSWERED;
	LWLockRelease(boxes_lock);
	return answered ? &box->answer : NULL;
}

/*
 * reads_end
 *		The backend that asked wants no answer, or has read it.
 *
 * Error cleanup and process exit call it, too.
 */
void
reads_end(ZkReadBox *box)
{
	dsm_handle	segment;

	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	segment = box->answer.segment;
	box->answer.segment = DSM_HANDLE_INVALID;
	set_state(box, BOX_FREE);
	LWLockRelease(boxes_lock);
	if (segment != DSM_HANDLE_INVALID)
		dsm_unpin_segment(segment);
	ConditionVariableBroadcast(&zk_boxes->free_cv);
}

/*
 * reads_cv
 *		The condition variable to sleep on until a box may have an answer; or,
 *		for NULL, until a box may be free.
 */
ConditionVariable *
reads_cv(ZkReadBox *box)
{
	return box ? &box->cv : &zk_boxes->free_cv;
}

/*
 * reads_attach_worker
 *		Make the calling process the worker: it must answer what its
 *		predecessor had not.
 */
void
reads_attach_worker(void)
{
	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZK_READ_BOXES; i++)
		if (zk_boxes->boxes[i].state == BOX_TAKEN)
			set_state(&zk_boxes->boxes[i], BOX_ASKED);
	LWLockRelease(boxes_lock);
}

/*
 * reads_take
 *		Take the next request: the number of its box, or -1 if there is none.
 */
int
reads_take(uint32 *serial, ZkReadRequest *request)
{
	int			taken = -1;

	if (pg_atomic_read_u32(&zk_boxes->nasked) == 0)
		return -1;
	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZK_READ_BOXES && taken < 0; i++)
	{
		ZkReadBox  *box = &zk_boxes->boxes[i];

		if (box->state != BOX_ASKED)
			continue;
		set_state(box, BOX_TAKEN);
		*serial = box->serial;
		memcpy(request, &box->request,
			   offsetof(ZkReadRequest, paths) + box->request.size);
		taken = i;
	}
	LWLockRelease(boxes_lock);
	return taken;
}

/* Does the worker owe this box an answer?  The lock is held. */
static bool
is_open(const ZkReadBox *box, uint32 serial)
{
	return box->state == BOX_TAKEN && box->serial == serial;
}

/*
 * reads_is_open
 *		Does a backend still wait for the answer to this request?
 */
bool
reads_is_open(int box, uint32 serial)
{
	bool		open;

	LWLockAcquire(boxes_lock, LW_SHARED);
	open = is_open(&zk_boxes->boxes[box], serial);
	LWLockRelease(boxes_lock);
	return open;
}

static Size
segment_size(ZkReadNode *const *nodes, int n)
{
	Size		size = 0;

	for (int i = 0; i < n; i++)
		size += ZkReadNodeSize(nodes[i]->nbytes);
	return size;
}

/*
 * A segment with these znodes; NULL if there is no memory for it.  The worker
 * must not die of that: the next one would try the same.
 */
static dsm_segment *
make_segment(ZkReadNode *const *nodes, int n)
{
	MemoryContext context = CurrentMemoryContext;
	dsm_segment *volatile segment = NULL;
	char	   *end;

	PG_TRY();
	{
		segment = dsm_create(segment_size(nodes, n),
							 DSM_CREATE_NULL_IF_MAXSEGMENTS);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		segment = NULL;
	}
	PG_END_TRY();
	if (segment == NULL)
		return NULL;
	end = dsm_segment_address(segment);
	for (int i = 0; i < n; i++)
	{
		memcpy(end, nodes[i], offsetof(ZkReadNode, bytes) + nodes[i]->nbytes);
		end += ZkReadNodeSize(nodes[i]->nbytes);
	}
	return segment;
}

/*
 * reads_set_answer
 *		Store the answer to a request, if a backend still waits for it; if it
 *		is DONE, with the znodes, at least one.
 */
void
reads_set_answer(int box_number, uint32 serial, ZkReadOutcome outcome,
				 ZkReadNode *const *nodes, int n)
{
	ZkReadBox  *box = &zk_boxes->boxes[box_number];
	ZkReadAnswer answer = {outcome, DSM_HANDLE_INVALID};
	dsm_segment *segment = NULL;
	bool		open;

	if (outcome == ZK_READ_DONE && reads_is_open(box_number, serial))
	{
		segment = make_segment(nodes, n);
		if (segment == NULL)
			answer.outcome = ZK_READ_NO_MEMORY;
	}
	if (segment)
	{
		answer.segment = dsm_segment_handle(segment);
		dsm_pin_segment(segment);
	}

	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	open = is_open(box, serial);
	if (open)
	{
		box->answer = answer;
		set_state(box, BOX_ANSWERED);
	}
	LWLockRelease(boxes_lock);

	if (segment)
	{
		if (!open)
			dsm_unpin_segment(answer.segment);
		dsm_detach(segment);
	}
	ConditionVariableBroadcast(&box->cv);
}
