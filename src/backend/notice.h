/*-------------------------------------------------------------------------
 *
 * notice.h
 *		Tells the sessions of a database that they have lost locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/notice.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NOTICE_H
#define ZKLOCK_NOTICE_H

extern PGDLLEXPORT void zklock_notice_main(Datum main_arg);

#endif							/* ZKLOCK_NOTICE_H */
