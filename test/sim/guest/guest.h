/*-------------------------------------------------------------------------
 *
 * guest.h
 *		The stand-ins for PostgreSQL, as they know of each other.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/guest.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_GUEST_H
#define SIM_GUEST_H

#include "postgres.h"

#include "sim.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/resowner.h"

/* Something that others may see is about to happen: they may go on first. */
extern void sim_point(void);

/* A stand-in that there is not. */
#define SIM_LACKS() sim_lacks(__func__)

/* system.c */
extern void signals_take(void);
extern int64 guest_now(void);
extern int64 guest_deadline(int64 boottime);

/* memory.c */
extern void memory_begin(void);

/* error.c */
extern const char *error_sqlstate(void);
extern const char *error_message(void);

/* ipc.c */
extern void ipc_begin(void);

/* lockmgr.c */
extern void lockmgr_release_owner(ResourceOwner owner, bool commit);
extern void lockmgr_release_all(bool session_too);
extern void lockmgr_cleanup(void);

/* backend.c */
extern void note_holds(void);

/* xact.c */
extern void xact_start(void);
extern void xact_commit(void);
extern void xact_abort(void);
extern bool xact_is_open(void);
extern void xact_savepoint(void);
extern void xact_abort_sub(void);
extern void xact_release(void);
extern void xact_assign_id(void);

/* interrupts.c */
extern void interrupts_begin(bool worker);

#endif							/* SIM_GUEST_H */
