/*-------------------------------------------------------------------------
 *
 * quota.h
 *		How many bytes the paths of the session's nodes may have.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/quota.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUOTA_H
#define ZKLOCK_QUOTA_H

extern void quota_change(int bytes, int leaving);
extern void quota_leave(int bytes);
extern void quota_forget_left(void);
extern bool quota_fits(int64 bytes);
extern bool quota_will_fit(int64 bytes);
extern int64 quota_excess(int64 bytes);
extern int64 quota_held(void);
extern void quota_publish(void);

#endif							/* ZKLOCK_QUOTA_H */
