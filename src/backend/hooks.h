/*-------------------------------------------------------------------------
 *
 * hooks.h
 *		Hooks of the executor and of utility commands.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/hooks.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_HOOKS_H
#define ZKLOCK_HOOKS_H

extern void hooks_init(void);

#endif							/* ZKLOCK_HOOKS_H */
