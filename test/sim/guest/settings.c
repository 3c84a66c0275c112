/*-------------------------------------------------------------------------
 *
 * settings.c
 *		Stand-ins for settings: each has its default, or what its instance has
 *		for that name.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include <limits.h>

#include "utils/guc.h"

char	   *GUC_check_errmsg_string;
char	   *GUC_check_errdetail_string;
char	   *GUC_check_errhint_string;

char	   *cluster_name = "";
char	   *application_name = "";

void
GUC_check_errcode(int sqlerrcode)
{
	(void) sqlerrcode;
}

static int
value_of(const char *name, int otherwise)
{
	return instance_setting(sim_instance(), name, otherwise);
}

void
DefineCustomBoolVariable(const char *name, const char *short_desc,
						 const char *long_desc, bool *valueAddr,
						 bool bootValue, GucContext context, int flags,
						 GucBoolCheckHook check_hook,
						 GucBoolAssignHook assign_hook,
						 GucShowHook show_hook)
{
	(void) short_desc;
	(void) long_desc;
	(void) context;
	(void) flags;
	(void) show_hook;
	if (check_hook || assign_hook)
		SIM_LACKS();
	*valueAddr = value_of(name, bootValue);
}

void
DefineCustomIntVariable(const char *name, const char *short_desc,
						const char *long_desc, int *valueAddr, int bootValue,
						int minValue, int maxValue, GucContext context,
						int flags, GucIntCheckHook check_hook,
						GucIntAssignHook assign_hook, GucShowHook show_hook)
{
	(void) short_desc;
	(void) long_desc;
	(void) context;
	(void) flags;
	(void) show_hook;
	if (check_hook || assign_hook)
		SIM_LACKS();
	*valueAddr = value_of(name, bootValue);
	if (*valueAddr < minValue || *valueAddr > maxValue)
		sim_lacks(name);
}

static int
mutation_of(const struct config_enum_entry *options)
{
	const char *mutation = instance_mutation(sim_instance());

	if (mutation == NULL)
		return 0;
	for (; options->name != NULL; options++)
		if (strcmp(options->name, mutation) == 0)
			return options->val;
	sim_lacks(mutation);
}

void
DefineCustomEnumVariable(const char *name, const char *short_desc,
						 const char *long_desc, int *valueAddr, int bootValue,
						 const struct config_enum_entry *options,
						 GucContext context, int flags,
						 GucEnumCheckHook check_hook,
						 GucEnumAssignHook assign_hook, GucShowHook show_hook)
{
	void	   *extra = NULL;

	(void) short_desc;
	(void) long_desc;
	(void) context;
	(void) flags;
	(void) show_hook;
	*valueAddr = strcmp(name, "zklock.mutation") == 0 ?
		mutation_of(options) : value_of(name, bootValue);
	if (check_hook && !check_hook(valueAddr, &extra, PGC_S_DEFAULT))
		sim_lacks(name);
	if (assign_hook)
		assign_hook(*valueAddr, extra);
}

void
DefineCustomStringVariable(const char *name, const char *short_desc,
						   const char *long_desc, char **valueAddr,
						   const char *bootValue, GucContext context,
						   int flags, GucStringCheckHook check_hook,
						   GucStringAssignHook assign_hook,
						   GucShowHook show_hook)
{
	void	   *extra = NULL;

	(void) short_desc;
	(void) long_desc;
	(void) context;
	(void) flags;
	(void) show_hook;
	*valueAddr = strdup(strcmp(name, "zklock.servers") == 0 ?
						instance_servers(sim_instance()) : bootValue);
	if (check_hook && !check_hook(valueAddr, &extra, PGC_S_DEFAULT))
		sim_lacks(name);
	if (assign_hook)
		assign_hook(*valueAddr, extra);
}

void
MarkGUCPrefixReserved(const char *prefix)
{
	(void) prefix;
}

const char *
GetConfigOption(const char *name, bool missing_ok, bool restrict_privileged)
{
	(void) restrict_privileged;
	if (missing_ok)
		return NULL;
	if (strcmp(name, "server_version") == 0)
		return PG_VERSION;
	sim_lacks(name);
}

void
ProcessConfigFile(GucContext context)
{
	(void) context;
}
