/*-------------------------------------------------------------------------
 *
 * text.h
 *		What others have written, to be shown.
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

extern char *text_utf8(const char *bytes, int len);
extern char *text_ascii(const char *bytes, int len);
extern char *text_for_log(const char *text);

#endif							/* ZKLOCK_TEXT_H */
