/*-------------------------------------------------------------------------
 *
 * setting_check.h
 *		Wrong values of settings: the ends of check hooks.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/setting_check.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SETTING_CHECK_H
#define ZKLOCK_SETTING_CHECK_H

#include "utils/guc.h"

/*
 * How a problem begins that is none of the value, but of the library at hand.
 */
#define ZK_LIBRARY_LACKS \
	"The ZooKeeper client library of this server was built without "

/* A setting with a wrong value. */
typedef struct ZkWrongSetting
{
	const char *name;
	const char *value;			/* NULL: a secret */
	const char *problem;		/* a sentence */
	int			sqlstate;		/* of calls that need the setting */
} ZkWrongSetting;

extern bool setting_is_replaced(GucSource source);
extern void setting_warn(const char *name, const char *value,
						 const char *problem);
extern bool setting_pass(const char *name, const char *value,
						 const char *problem, void **extra, GucSource source);
extern bool setting_is_wrong(const char *name, const char *value,
							 const char *problem, ZkWrongSetting *wrong);

#endif							/* ZKLOCK_SETTING_CHECK_H */
