/*-------------------------------------------------------------------------
 *
 * auths.h
 *		The credentials that the sessions present.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/auths.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_AUTHS_H
#define ZKLOCK_AUTHS_H

extern void auths_attach(void);
extern const char *auths_collect(bool needed);
extern bool auths_are_several(void);
extern bool auths_are_old(void);
extern void auths_forget_refused(void);

#endif							/* ZKLOCK_AUTHS_H */
