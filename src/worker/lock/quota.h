/*-------------------------------------------------------------------------
 *
 * quota.h
 *		How many bytes the paths of a session's nodes may have.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/quota.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_QUOTA_H
#define ZKLOCK_QUOTA_H

extern void quota_change(int session, int bytes, int leaving);
extern void quota_leave(int session, int bytes);
extern void quota_forget_left(int session);
extern bool quota_fits(int session, int64 bytes);
extern bool quota_will_fit(int session, int64 bytes);
extern int64 quota_excess(int session, int64 bytes);
extern int64 quota_held(int session);
extern void quota_publish(int session);

#endif							/* ZKLOCK_QUOTA_H */
