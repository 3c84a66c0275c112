/*-------------------------------------------------------------------------
 *
 * advisory.h
 *		The functions that stand in for PostgreSQL's advisory lock functions.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/advisory.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ADVISORY_H
#define ZKLOCK_ADVISORY_H

#include "fmgr.h"

typedef enum AdvisoryAct
{
	ADVISORY_LOCK,
	ADVISORY_TRY,
	ADVISORY_UNLOCK,
	ADVISORY_UNLOCK_ALL
} AdvisoryAct;

/* One of PostgreSQL's functions. */
typedef struct AdvisoryFunction
{
	Oid			oid;
	const char *standin;		/* name of ours, with the same arguments */
	int			nargs;			/* 1: a bigint; 2: two integers; or 0 */
	PGFunction	function;
	AdvisoryAct act;
	bool		shared;
	bool		session;
} AdvisoryFunction;

#define ADVISORY_FUNCTIONS	21

extern const AdvisoryFunction advisory_functions[ADVISORY_FUNCTIONS];

extern int	advisory_find(const char *standin, int nargs);

#endif							/* ZKLOCK_ADVISORY_H */
