/*
 * late_callback.c
 *		A module whose transaction callback comes ahead of zklock's, and runs a
 *		statement ahead of the commit.
 *
 * Loaded behind zklock, its hook is called around zklock's, and registers the
 * callback anew when zklock has made its own the first one.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static char *statement;			/* setting late_callback.statement */
static bool is_running = false;
static ExecutorEnd_hook_type prev_ExecutorEnd;

static void
run_statement(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_PRE_COMMIT || statement[0] == '\0')
		return;
	is_running = true;
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	for (int i = 0; i < 3; i++)
		SPI_execute(statement, false, 0);
	SPI_finish();
	PopActiveSnapshot();
	is_running = false;
}

static void
register_late(QueryDesc *query)
{
	if (prev_ExecutorEnd)
		prev_ExecutorEnd(query);
	else
		standard_ExecutorEnd(query);
	if (is_running)
		return;
	UnregisterXactCallback(run_statement, NULL);
	RegisterXactCallback(run_statement, NULL);
}

void
_PG_init(void)
{
	DefineCustomStringVariable("late_callback.statement",
							   "What to run ahead of each commit.", NULL,
							   &statement, "", PGC_USERSET, 0,
							   NULL, NULL, NULL);
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = register_late;
}
