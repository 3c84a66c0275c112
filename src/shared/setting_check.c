/*-------------------------------------------------------------------------
 *
 * setting_check.c
 *		Wrong values of settings: the ends of check hooks.
 *
 * settings.c tells why a wrong value is accepted in some cases.  "value" is NULL
 * everywhere if it must not be shown.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/setting_check.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdlib.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/setting_check.h"

/*
 * setting_is_replaced
 *		Would PostgreSQL replace a refused value by the default?
 *
 * It does so with the configuration's when the library is loaded, and with the
 * catalog's, of a role or database, when a session begins.  A parallel worker
 * must take whatever its leader has.
 */
bool
setting_is_replaced(GucSource source)
{
	return process_shared_preload_libraries_in_progress ||
		InitializingParallelWorker ||
		source == PGC_S_GLOBAL || source == PGC_S_DATABASE ||
		source == PGC_S_USER || source == PGC_S_DATABASE_USER;
}

/* The SQLSTATE of a problem: "otherwise", unless the library lacks something. */
static int
problem_code(const char *problem, int otherwise)
{
	return strncmp(problem, ZK_LIBRARY_LACKS, strlen(ZK_LIBRARY_LACKS)) == 0 ?
		ERRCODE_FEATURE_NOT_SUPPORTED : otherwise;
}

/*
 * setting_warn
 *		Warn of a wrong value that is accepted.
 */
void
setting_warn(const char *name, const char *value, const char *problem)
{
	if (InitializingParallelWorker)
		return;					/* the leader has warned */
	ereport(WARNING,
			(errcode(problem_code(problem, ERRCODE_INVALID_PARAMETER_VALUE)),
			 value ?
			 errmsg("invalid value for parameter \"%s\": \"%s\"", name, value) :
			 errmsg("invalid value for parameter \"%s\"", name),
			 errdetail("%s", problem),
			 errhint("Locks in ZooKeeper cannot be used until the value is corrected.")));
}

/*
 * setting_pass
 *		End of the check hook of a string.
 *
 * Refuses a value that has a problem; or accepts it with a warning, and sets
 * *extra to a copy of the problem, made by ZkGucAlloc().
 */
bool
setting_pass(const char *name, const char *value, const char *problem,
			 void **extra, GucSource source)
{
	if (problem == NULL)
		return true;
	if (!setting_is_replaced(source))
	{
		GUC_check_errcode(problem_code(problem, ERRCODE_INVALID_PARAMETER_VALUE));
		if (value == NULL)
			GUC_check_errmsg("invalid value for parameter \"%s\"", name);
		GUC_check_errdetail("%s", problem);
		return false;
	}
	*extra = ZkGucAlloc(strlen(problem) + 1);
	if (*extra == NULL)
		return false;
	strcpy(*extra, problem);
	setting_warn(name, value, problem);
	return true;
}

/*
 * setting_is_wrong
 *		For zk_wrong_setting(): fill in "wrong" if there is a problem with the
 *		setting.
 */
bool
setting_is_wrong(const char *name, const char *value, const char *problem,
				 ZkWrongSetting *wrong)
{
	if (problem == NULL)
		return false;
	wrong->name = name;
	wrong->value = value;
	wrong->problem = problem;
	wrong->sqlstate = problem_code(problem, ERRCODE_CONFIG_FILE_ERROR);
	return true;
}
