/*-------------------------------------------------------------------------
 *
 * mail_private.h
 *		The worker's mail: the slots that it must look at.
 *
 * See mail.c for the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/mail_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_MAIL_PRIVATE_H
#define ZKLOCK_MAIL_PRIVATE_H

#include "lib/ilist.h"
#include "storage/latch.h"

/* The most ends of waits and holds in the mail. */
#define MAIL_ENDS			256

/* module load */
extern void mail_request_shmem(void);
extern void mail_startup_shmem(void);

/* any process */
extern void mail_put(slist_node *node);
extern void mail_put_end(int64 since);
extern void mail_send(void);
extern bool mail_is_waiting(void);
extern void worker_wake(void);

/* the worker */
extern void mail_attach_worker(Latch *latch);
extern void mail_detach_worker(void);
extern void mail_hold(bool held);
extern slist_node *mail_collect(void);
extern int	mail_collect_ends(int64 *ends, bool *all);

#endif							/* ZKLOCK_MAIL_PRIVATE_H */
