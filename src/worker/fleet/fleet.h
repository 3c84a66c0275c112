/*-------------------------------------------------------------------------
 *
 * fleet.h
 *		The worker tells the other clusters that this one is there.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/fleet.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FLEET_H
#define ZKLOCK_FLEET_H

#include "worker/fleet/census.h"

extern void fleet_attach(void);
extern void fleet_check(void);
extern void fleet_run(void);
extern bool fleet_is_settled(void);
extern bool fleet_event(const RequestAnswer *in);
extern void fleet_end_session(bool last);
extern void fleet_judge(const Census *census);
extern void fleet_drop_auths(void);

#endif							/* ZKLOCK_FLEET_H */
