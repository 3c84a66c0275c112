/*-------------------------------------------------------------------------
 *
 * questions.c
 *		Questions of backends to ZooKeeper, and the worker's answers.
 *
 * A backend has no connection to ZooKeeper, so it puts its question into one
 * of a few boxes in shared memory, and sleeps on the box's condition variable
 * until the worker has answered.  The states of a box, and what changes them:
 *
 *	FREE		a backend asks -> ASKED
 *	ASKED		the worker begins to answer -> TAKEN
 *	TAKEN		the worker has the answer -> ANSWERED
 *				a new worker starts, which knows nothing of it -> ASKED
 *	ANSWERED	nothing but what follows
 *	any			the backend has read the answer, or does not wait for it any
 *				more (error, cancel, end of the process) -> FREE
 *
 * Each question gives its box a new serial number.  The worker returns it with
 * the answer, and an answer with another number than the box's is discarded.
 *
 * Locking protocol.  All fields of all boxes are read and changed under the
 * LWLock of the tranche ZK_TRANCHE (exclusive to change anything), with two
 * exceptions.  The backend that has asked may read the answer in place while
 * the box is ANSWERED, since only that backend ends this state.  And nasked,
 * the number of boxes in state ASKED, may be read without the lock, as the
 * worker does in each iteration of its loop.
 *
 * The list of one queue, or of all, can be long, and has its own dynamic
 * shared memory segment.  The worker pins it and detaches from it; the pin
 * belongs to the box, and the process that frees the box unpins the segment.
 * Nothing can fail between the pin and the storing of the handle in the box.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/questions.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "shared/compat.h"
#include "shared/mail_private.h"
#include "shared/questions.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#define ZK_TRANCHE		"zklock queries"

typedef enum BoxState
{
	BOX_FREE,
	BOX_ASKED,
	BOX_TAKEN,
	BOX_ANSWERED
} BoxState;

struct ZkBox
{
	BoxState	state;
	uint32		serial;			/* of the question */
	ZkQuestion	question;
	char		path[ZNODE_PATH_SIZE];	/* of the lock directory, or the
										 * root */
	ZkAnswer	answer;
	ConditionVariable cv;		/* broadcast when it is ANSWERED */
};

typedef struct ZkBoxes
{
	pg_atomic_uint32 nasked;
	ConditionVariable free_cv;	/* broadcast when a box is FREE */
	ZkBox		boxes[ZK_QUESTION_BOXES];
} ZkBoxes;

static ZkBoxes *zk_boxes = NULL;
static LWLock *boxes_lock = NULL;

/*
 * questions_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
questions_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(ZkBoxes));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/*
 * questions_startup_shmem
 *		Create or attach to the boxes; for the shmem_startup_hook.
 */
void
questions_startup_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zk_boxes = ShmemInitStruct(ZK_TRANCHE, sizeof(ZkBoxes), &found);
	if (!found)
	{
		memset(zk_boxes, 0, sizeof(ZkBoxes));
		pg_atomic_init_u32(&zk_boxes->nasked, 0);
		ConditionVariableInit(&zk_boxes->free_cv);
		for (int i = 0; i < ZK_QUESTION_BOXES; i++)
			ConditionVariableInit(&zk_boxes->boxes[i].cv);
	}
	boxes_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
	LWLockRelease(AddinShmemInitLock);
}

/* Change a box's state; the lock is held exclusively. */
static void
set_state(ZkBox *box, BoxState state)
{
	if (box->state == BOX_ASKED)
		pg_atomic_fetch_sub_u32(&zk_boxes->nasked, 1);
	if (state == BOX_ASKED)
		pg_atomic_fetch_add_u32(&zk_boxes->nasked, 1);
	box->state = state;
}

/*
 * question_ask
 *		Ask a question about a lock directory, or about a root.
 *
 * Returns NULL if all boxes are in use: then sleep on question_cv(NULL) and
 * ask again.  Otherwise the caller must call question_end(), also after an
 * error.  Does not throw.
 */
ZkBox *
question_ask(ZkQuestion question, const char *path)
{
	ZkBox	   *box = NULL;

	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZK_QUESTION_BOXES && box == NULL; i++)
		if (zk_boxes->boxes[i].state == BOX_FREE)
			box = &zk_boxes->boxes[i];
	if (box)
	{
		box->serial++;
		box->question = question;
		strlcpy(box->path, path, sizeof(box->path));
		box->answer.segment = DSM_HANDLE_INVALID;
		set_state(box, BOX_ASKED);
	}
	LWLockRelease(boxes_lock);
	if (box)
		worker_wake();
	return box;
}

/*
 * question_answer
 *		The answer; NULL if there is none yet: sleep on question_cv() and look
 *		again.
 *
 * It stays valid until question_end().
 */
const ZkAnswer *
question_answer(ZkBox *box)
{
	bool		answered;

	LWLockAcquire(boxes_lock, LW_SHARED);
	answered = box->state == BOX_ANSWERED;
	LWLockRelease(boxes_lock);
	return answered ? &box->answer : NULL;
}

/*
 * question_end
 *		The backend that asked wants no answer, or has read it.
 *
 * Error cleanup and process exit call it, too.
 */
void
question_end(ZkBox *box)
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
 * question_cv
 *		The condition variable to sleep on until a box may have an answer; or,
 *		for NULL, until a box may be free.
 */
ConditionVariable *
question_cv(ZkBox *box)
{
	return box ? &box->cv : &zk_boxes->free_cv;
}

/*
 * questions_attach_worker
 *		Make the calling process the worker: it must answer what its
 *		predecessor had not.
 */
void
questions_attach_worker(void)
{
	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZK_QUESTION_BOXES; i++)
		if (zk_boxes->boxes[i].state == BOX_TAKEN)
			set_state(&zk_boxes->boxes[i], BOX_ASKED);
	LWLockRelease(boxes_lock);
}

/*
 * questions_take
 *		Take the next question: the number of its box, or -1 if there is none.
 *
 * "path" has room for ZNODE_PATH_SIZE bytes.
 */
int
questions_take(uint32 *serial, ZkQuestion *question, char *path)
{
	int			taken = -1;

	if (pg_atomic_read_u32(&zk_boxes->nasked) == 0)
		return -1;
	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	for (int i = 0; i < ZK_QUESTION_BOXES && taken < 0; i++)
	{
		ZkBox	   *box = &zk_boxes->boxes[i];

		if (box->state != BOX_ASKED)
			continue;
		set_state(box, BOX_TAKEN);
		*serial = box->serial;
		*question = box->question;
		strlcpy(path, box->path, ZNODE_PATH_SIZE);
		taken = i;
	}
	LWLockRelease(boxes_lock);
	return taken;
}

/* Does the worker owe this box an answer?  The lock is held. */
static bool
is_open(const ZkBox *box, uint32 serial)
{
	return box->state == BOX_TAKEN && box->serial == serial;
}

/*
 * question_is_open
 *		Does a backend still wait for the answer to this question?
 */
bool
question_is_open(int box, uint32 serial)
{
	bool		open;

	LWLockAcquire(boxes_lock, LW_SHARED);
	open = is_open(&zk_boxes->boxes[box], serial);
	LWLockRelease(boxes_lock);
	return open;
}

/*
 * A segment with these bytes; NULL if there is no memory for it.  The worker
 * must not die of that: the next one would try the same.
 */
static dsm_segment *
make_segment(const char *bytes, Size size)
{
	MemoryContext context = CurrentMemoryContext;
	dsm_segment *volatile segment = NULL;

	PG_TRY();
	{
		segment = dsm_create(size, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
		segment = NULL;
	}
	PG_END_TRY();
	if (segment)
		memcpy(dsm_segment_address(segment), bytes, size);
	return segment;
}

/*
 * question_set_answer
 *		Store the answer to a question, if a backend still waits for it.
 *
 * "entries" are "size" bytes that go into a segment; this function sets
 * answer->segment.
 */
void
question_set_answer(int box_number, uint32 serial, ZkAnswer *answer,
					const char *entries, Size size)
{
	ZkBox	   *box = &zk_boxes->boxes[box_number];
	dsm_segment *segment = NULL;
	bool		open;

	answer->segment = DSM_HANDLE_INVALID;
	if (size > 0 && question_is_open(box_number, serial))
	{
		segment = make_segment(entries, size);
		answer->out_of_memory = segment == NULL;
	}
	if (segment)
	{
		answer->segment = dsm_segment_handle(segment);
		dsm_pin_segment(segment);
	}

	LWLockAcquire(boxes_lock, LW_EXCLUSIVE);
	open = is_open(box, serial);
	if (open)
	{
		box->answer = *answer;
		set_state(box, BOX_ANSWERED);
	}
	LWLockRelease(boxes_lock);

	if (segment)
	{
		if (!open)
			dsm_unpin_segment(answer->segment);
		dsm_detach(segment);
	}
	ConditionVariableBroadcast(&box->cv);
}
