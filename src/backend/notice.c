/*-------------------------------------------------------------------------
 *
 * notice.c
 *		Tells the sessions of a database that they have lost locks.
 *
 * A process that the worker starts (worker/lock/notices.c) sends a NOTIFY for
 * each session and lock, all in one transaction, and ends.  See
 * shared/losses.c for the protocol.
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
 * The message, palloc'd.  It takes at most 1.6 kB in any encoding, since a
 * name has at most ZNODE_MAX_NAME bytes of UTF-8 and JSON makes at most six
 * bytes of one; NOTIFY allows 8000.
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
 * An error ends the process, with nothing sent; the worker starts another one
 * later.
 */
void
zklock_notice_main(Datum main_arg)
{
	ZkLoss	   *losses;
	int			nlosses;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	/* even if the database now allows no connections: it has sessions */
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(main_arg),
											  InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);

	/* wait for no standby: other users of NOTIFY would have to wait, too */
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
