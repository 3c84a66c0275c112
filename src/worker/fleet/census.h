/*-------------------------------------------------------------------------
 *
 * census.h
 *		Which clusters are in the fleet, as ZooKeeper has them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet/census.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CENSUS_H
#define ZKLOCK_CENSUS_H

#include "core/member.h"
#include "core/request.h"
#include "lib/stringinfo.h"

typedef struct Census Census;

extern void census_room(const char *root, char room[ZNODE_PATH_SIZE]);
extern Census *census_begin(uint32 owner, const char *root);
extern bool census_event(Census *census, const RequestAnswer *in, int *error);
extern bool census_is_unsure(const Census *census);
extern bool census_has(const Census *census, const char *node);
extern int	census_left_out(const Census *census);
extern Member *census_members(const Census *census, int *count);
extern int	census_entries(const Census *census, StringInfo buf);

#endif							/* ZKLOCK_CENSUS_H */
