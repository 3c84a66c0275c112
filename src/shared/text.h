/*-------------------------------------------------------------------------
 *
 * text.h
 *		Text that other clients have written, made fit to be shown.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/text.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_TEXT_H
#define ZKLOCK_TEXT_H

/* any process */
extern char *text_for_log(const char *text);

/* in the encoding of the database: backends */
extern char *text_of_utf8(const char *utf8, int len);
extern char *text_of_data(const char *data, int len);
extern char *text_of_string(const char *string);

#endif							/* ZKLOCK_TEXT_H */
