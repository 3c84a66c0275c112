/*-------------------------------------------------------------------------
 *
 * desk.h
 *		The mail of the slots: contenders are begun, parked and released.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/desk.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DESK_H
#define ZKLOCK_DESK_H

#include "shared/slots.h"

extern void desk_open_mail(void);
extern void desk_begin_wanted(void);
extern void desk_begin_parked(void);
extern void desk_release(ZkSlot *slot);

#endif							/* ZKLOCK_DESK_H */
