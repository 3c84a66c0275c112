/*-------------------------------------------------------------------------
 *
 * mail.c
 *		The worker's mail: the slots that it must look at.
 *
 * The mail is a chain through the slots themselves, so it can never be full.
 * A slot's state tells what it asks for, so a new worker needs no old mail.
 *
 * While the worker cannot send anything ("held"), mail does not wake it; it
 * looks for mail when it can send again.
 *
 * Beside it are the generations of waits and holds that have ended, of those
 * that a scan for deadlocks has seen.
 *
 * Locking protocol.  The chain's head and links, the ends, the worker's latch
 * and "held" are read and changed under the spinlock, which may be taken
 * inside any LWLock.  "waiting" follows from them: it is changed under the
 * spinlock, and read without it.  Once the worker has collected a chain, the partition locks
 * of slots.c guard its links: no slot is mailed again until the worker has
 * opened its mail.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/mail.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/atomics.h"
#include "shared/mail_private.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"

typedef struct MailShared
{
	slock_t		lock;
	bool		held;			/* the worker cannot send anything yet */
	slist_head	chain;			/* the latest first */
	int			nends;			/* or one more: there was no room for all */
	int64		ends[MAIL_ENDS];	/* see mail_put_end() */
	pg_atomic_uint32 waiting;	/* held, and there is mail */
	Latch	   *worker_latch;	/* NULL: no worker */
} MailShared;

static MailShared *mail = NULL;
static Latch *due = NULL;		/* the worker's, which mail_send() sets */

/*
 * mail_request_shmem
 *		Reserve shared memory; for the shmem_request_hook.
 */
void
mail_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(MailShared));
}

/*
 * mail_startup_shmem
 *		Create or attach to the mail; AddinShmemInitLock is held.
 */
void
mail_startup_shmem(void)
{
	bool		found;

	mail = ShmemInitStruct("zklock mail", sizeof(MailShared), &found);
	if (!found)
	{
		memset(mail, 0, sizeof(MailShared));
		SpinLockInit(&mail->lock);
		slist_init(&mail->chain);
		pg_atomic_init_u32(&mail->waiting, 0);
	}
}

/* "held" or the chain has changed; the spinlock is held. */
static void
set_waiting(void)
{
	bool		waiting = mail->held && !slist_is_empty(&mail->chain);

	if (waiting != (pg_atomic_read_u32(&mail->waiting) != 0))
		pg_atomic_write_u32(&mail->waiting, waiting);
}

/*
 * mail_put
 *		Add a node that is not in the chain.  The caller holds its partition
 *		lock, and calls mail_send() after releasing it.
 */
void
mail_put(slist_node *node)
{
	SpinLockAcquire(&mail->lock);
	slist_push_head(&mail->chain, node);
	set_waiting();
	if (!mail->held)
		due = mail->worker_latch;
	SpinLockRelease(&mail->lock);
}

/*
 * mail_put_end
 *		A wait or hold that a scan for deadlocks has seen has ended, by its
 *		generation.  Otherwise as mail_put().
 *
 * Who gives a slot up puts this first, so that the worker has it ahead of the
 * slot.
 */
void
mail_put_end(int64 since)
{
	SpinLockAcquire(&mail->lock);
	if (mail->nends < MAIL_ENDS)
		mail->ends[mail->nends++] = since;
	else
		mail->nends = MAIL_ENDS + 1;
	if (!mail->held)
		due = mail->worker_latch;
	SpinLockRelease(&mail->lock);
}

/*
 * mail_send
 *		Wake the worker for the mail of this process, unless mail is held.
 *
 * Not under the partition lock: the worker needs it at once.
 */
void
mail_send(void)
{
	Latch	   *latch = due;

	if (latch == NULL)
		return;
	due = NULL;
	SetLatch(latch);
}

/*
 * mail_is_waiting
 *		Is mail waiting until the worker can send something again?
 */
bool
mail_is_waiting(void)
{
	return pg_atomic_read_u32(&mail->waiting) != 0;
}

/*
 * worker_wake
 *		Set the worker's latch, if there is a worker.
 */
void
worker_wake(void)
{
	Latch	   *latch;

	SpinLockAcquire(&mail->lock);
	latch = mail->worker_latch;
	SpinLockRelease(&mail->lock);
	if (latch)
		SetLatch(latch);
}

/*
 * mail_attach_worker
 *		A worker begins, with this latch.  Old mail is discarded.
 */
void
mail_attach_worker(Latch *latch)
{
	SpinLockAcquire(&mail->lock);
	slist_init(&mail->chain);
	mail->nends = 0;
	set_waiting();
	mail->worker_latch = latch;
	SpinLockRelease(&mail->lock);
}

/*
 * mail_detach_worker
 *		The worker is about to end.
 */
void
mail_detach_worker(void)
{
	SpinLockAcquire(&mail->lock);
	mail->held = false;
	set_waiting();
	mail->worker_latch = NULL;
	SpinLockRelease(&mail->lock);
}

/*
 * mail_hold
 *		The worker stops opening its mail until it can send something again; or
 *		opens it again, and does not sleep if there is some.
 */
void
mail_hold(bool held)
{
	bool		missed;

	SpinLockAcquire(&mail->lock);
	missed = mail->held && !held && !slist_is_empty(&mail->chain);
	mail->held = held;
	set_waiting();
	SpinLockRelease(&mail->lock);
	if (missed)
		SetLatch(mail->worker_latch);
}

/*
 * mail_collect
 *		Take all mail: a chain, the latest first, or NULL.
 */
slist_node *
mail_collect(void)
{
	slist_node *first;

	SpinLockAcquire(&mail->lock);
	first = mail->chain.head.next;
	slist_init(&mail->chain);
	set_waiting();
	SpinLockRelease(&mail->lock);
	return first;
}

/*
 * mail_collect_ends
 *		Take the ends of waits and holds: at most MAIL_ENDS, and how many they
 *		are.  Sets *all to whether there were no more.
 */
int
mail_collect_ends(int64 *ends, bool *all)
{
	int			n;

	SpinLockAcquire(&mail->lock);
	n = Min(mail->nends, MAIL_ENDS);
	*all = n == mail->nends;
	memcpy(ends, mail->ends, n * sizeof(int64));
	mail->nends = 0;
	SpinLockRelease(&mail->lock);
	return n;
}
