/*-------------------------------------------------------------------------
 *
 * fleet.h
 *		This instance's membership in the fleet.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FLEET_H
#define ZKLOCK_FLEET_H

extern void fleet_attach(void (*restored) (void));
extern void fleet_check(void);
extern void fleet_run(void);
extern bool fleet_is_settled(void);
extern void fleet_end_session(void);
extern void fleet_drop_auths(void);

#endif							/* ZKLOCK_FLEET_H */
