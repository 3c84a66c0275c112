/*-------------------------------------------------------------------------
 *
 * notice.c
 *		Tells the sessions of a database that they have lost locks.
 *
 * In a process of its own, which the worker starts (worker/lock/notices.c) and which
 * ends when it has told all of them: by NOTIFY, a message for each session and
 * lock, all in one transaction.  See shared/losses.c for the protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/notice.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/names.h"
#include "backend/notice.h"
#include "commands/async.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "shared/losses.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/json.h"

/*
 * The message, palloc'd: at most 1.6 kB in any encoding, since a name has at most
 * ZNODE_MAX_NAME bytes of UTF-8 and JSON makes no more than six of one; NOTIFY
 * takes 8000.
 */
static char *
make_message(const ZkLoss *loss)
{
	StringInfoData message;

	initStringInfo(&message);
	appendStringInfoString(&message, "{\"name\": ");
	escape_json(&message, key_name(&loss->key));
	appendStringInfo(&message, ", \"pid\": %d}", loss->pid);
	return message.data;
}

/*
 * zklock_notice_main
 *		Entry point of the process; its argument is the database's OID.
 *
 * An error ends it, with nothing told; the worker starts another one later.
 */
void
zklock_notice_main(Datum main_arg)
{
	ZkLoss	   *losses;
	int			nlosses;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	/* the sessions are there, whoever else may connect */
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(main_arg),
											  InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);

	/* no standby is to be waited for, but who else uses NOTIFY is */
	SetConfigOption("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("lock_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);

	losses = losses_of(MyDatabaseId, &nlosses);
	StartTransactionCommand();
	for (int i = 0; i < nlosses; i++)
	{
		CHECK_FOR_INTERRUPTS();
		Async_Notify(ZK_LOSS_CHANNEL, make_message(&losses[i]));
	}
	CommitTransactionCommand();
	losses_set_told(losses, nlosses);
	proc_exit(0);
}
