/*-------------------------------------------------------------------------
 *
 * grant.h
 *		What the worker does to slots: opens their mail, and reports what has
 *		become of their contenders.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/grant.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_GRANT_H
#define ZKLOCK_GRANT_H

#include "core/lock/recipe.h"
#include "shared/slots.h"

/* What a slot in the worker's mail asks for. */
typedef enum ZkMail
{
	ZK_MAIL_NOTHING,			/* overtaken by events */
	ZK_MAIL_WANT,
	ZK_MAIL_WATCH_QUEUE,		/* is any contender behind us? */
	ZK_MAIL_RELEASE
} ZkMail;

/* The bits of a step's report that concern the slot. */
#define SLOT_TOLD \
	(RECIPE_REPORT_CREATED | RECIPE_REPORT_QUEUED | RECIPE_REPORT_GRANTED | \
	 RECIPE_REPORT_ALONE | RECIPE_REPORT_CONTENDED | \
	 RECIPE_REPORT_UNWATCHED | RECIPE_REPORT_TOKEN | RECIPE_REPORT_LOST)

/* the mail, and all slots */
extern void slots_attach_worker(void);
extern ZkSlot **slots_list(int *nslots);
extern ZkMail slot_open_mail(ZkSlot *slot, ZkSlot **next,
							 ZkContender *wanted);
extern bool slots_retire(void);

/* a slot's contender */
extern int64 slot_report(ZkSlot *slot, unsigned report, int32 sequence,
						 int64 token);
extern void slot_set_uuid(ZkSlot *slot, const uint8 *uuid,
						  int32 retain_ms);
extern void slot_set_uncreated(ZkSlot *slot);
extern bool slot_requeue(ZkSlot *slot, ZkContender *wanted);
extern void slot_set_retain_ms(ZkSlot *slot, int32 retain_ms);
extern void slot_set_stuck(ZkSlot *slot);
extern void slot_set_disconnected(ZkSlot *slot);
extern bool slot_set_contended(ZkSlot *slot);
extern bool slot_set_no_token(ZkSlot *slot, ZkRefusal refusal);
extern void slot_set_refused(ZkSlot *slot, ZkRefusal refusal,
							 int permits_found);
extern bool slot_set_gone(ZkSlot *slot, ZkContender *wanted);
extern int	slot_cancel_holders(ZkSlot *slot, int *nleft,
								bool *claim_ended);
extern bool slots_end_wait(const char *path, int pid, int64 since,
						   uint32 deadlock);
extern int64 slot_check_idle(ZkSlot *slot, int64 now_ms);
extern bool slot_give_up_idle(ZkSlot *slot);

#endif							/* ZKLOCK_GRANT_H */
