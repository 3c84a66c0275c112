/*-------------------------------------------------------------------------
 *
 * fleet.h
 *		This instance's membership in the fleet, and the answers to the
 *		questions of backends to ZooKeeper.
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

struct Reader;

extern void fleet_attach(void (*restored) (void));
extern void fleet_check(void);
extern void fleet_run(void);
extern bool fleet_is_settled(void);
extern void fleet_end_session(bool last);
extern void fleet_judge(const struct Reader *reader);
extern void fleet_drop_auths(void);

/* questions */
extern void answers_collect(void);
extern void answers_begin(void);
extern void answers_restart(void);

#endif							/* ZKLOCK_FLEET_H */
