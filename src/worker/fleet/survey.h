/*-------------------------------------------------------------------------
 *
 * survey.h
 *		Who holds and who waits for each lock below a root.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/survey.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SURVEY_H
#define ZKLOCK_SURVEY_H

#include "core/request.h"
#include "lib/stringinfo.h"

typedef struct Survey Survey;

extern Survey *survey_begin(uint32 owner, const char *root);
extern bool survey_event(Survey *survey, const RequestAnswer *in, int *error);
extern int	survey_entries(const Survey *survey, StringInfo buf);

#endif							/* ZKLOCK_SURVEY_H */
