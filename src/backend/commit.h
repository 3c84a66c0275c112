/*-------------------------------------------------------------------------
 *
 * commit.h
 *		The end of a transaction that holds locks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/commit.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_COMMIT_H
#define ZKLOCK_COMMIT_H

extern void commit_init(void);
extern void commit_attach(void);
extern void commit_check_first(void);
extern void commit_note_foreign(void);
extern void commit_note_statement(void);
extern void commit_explain_cancel(MemoryContext context);

/* a command whose effects a rollback does not undo */
extern void commit_begin_lasting(void);
extern void commit_end_lasting(void);
extern void commit_leave_lasting(void);
extern void commit_fail_lasting(void);
extern bool commit_is_lasting(void);

#endif							/* ZKLOCK_COMMIT_H */
