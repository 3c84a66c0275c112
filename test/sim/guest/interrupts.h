/*-------------------------------------------------------------------------
 *
 * interrupts.h
 *		Stand-ins for interrupts: what the lock manager and the backend share.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/interrupts.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_INTERRUPTS_H
#define SIM_INTERRUPTS_H

extern bool lock_timeout_struck;	/* and has not been told */
extern bool reading_command;

extern void lock_timeout_strike(void);

#endif							/* SIM_INTERRUPTS_H */
