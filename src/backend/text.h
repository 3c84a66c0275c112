/*-------------------------------------------------------------------------
 *
 * text.h
 *		What ZooKeeper has as text, in the encoding of the database.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/text.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_BACKEND_TEXT_H
#define ZKLOCK_BACKEND_TEXT_H

extern char *text_of_utf8(const char *utf8, int len);
extern char *text_of_data(const char *data, int len);
extern char *text_of_string(const char *string);

#endif							/* ZKLOCK_BACKEND_TEXT_H */
