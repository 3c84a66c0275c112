/*-------------------------------------------------------------------------
 *
 * snapshot.c
 *		Waiting without a snapshot.
 *
 * A session that waits in a function has the snapshot of its statement, and so
 * VACUUM keeps all that the snapshot sees, and others wait for it.  A
 * procedure that CALL runs need not have one: it may commit, and so PostgreSQL
 * makes the snapshot anew where it needs one (EnsurePortalSnapshotExists()).
 * At the end of the command it releases what there is, if anything
 * (PortalRunUtility(), PortalDrop()).
 *
 * A command of the client's runs in a portal, which has its snapshot as the
 * active one (portalSnapshot), and a second time, registered, if it returns
 * rows (holdSnapshot).  Both are released here.  If nothing else has a
 * snapshot then, the process has at most that of the catalogs, which each
 * access to them can take anew: what sleeps drops it ahead of each sleep.
 *
 * Not released is what belongs to others: a statement that CALL is part of, a
 * cursor, the transaction.  Then the call fails.  That leaves a portal without
 * its snapshot, but it fails as a whole: whoever could catch the error inside
 * it does so by a subtransaction, and is refused ahead of that.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/snapshot.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/snapshot.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"

/* Who has a snapshot that we cannot release. */
typedef enum SnapshotHolder
{
	SNAPSHOT_OF_NOBODY,
	SNAPSHOT_OF_TRANSACTION,
	SNAPSHOT_OF_BLOCK,			/* around a subtransaction */
	SNAPSHOT_OF_STATEMENT,		/* of which CALL is a part */
	SNAPSHOT_OF_CURSOR,
	SNAPSHOT_EXPORTED
} SnapshotHolder;

/* Is the CALL of this procedure itself what the portal runs? */
static bool
is_command(Oid procedure)
{
	const PlannedStmt *statement;
	const CallStmt *call;

	/* none after a COMMIT in it */
	if (ActivePortal == NULL || list_length(ActivePortal->stmts) != 1)
		return false;
	statement = linitial_node(PlannedStmt, ActivePortal->stmts);
	if (statement->utilityStmt == NULL ||
		!IsA(statement->utilityStmt, CallStmt))
		return false;
	call = castNode(CallStmt, statement->utilityStmt);
	return call->funcexpr->funcid == procedure;
}

/* Release the snapshots of the portal. */
static void
release_of_portal(Portal portal)
{
	if (ActiveSnapshotSet() && GetActiveSnapshot() == portal->portalSnapshot)
	{
		PopActiveSnapshot();
		portal->portalSnapshot = NULL;
	}
	if (portal->holdSnapshot != NULL)
	{
		UnregisterSnapshotFromOwner(portal->holdSnapshot, portal->resowner);
		portal->holdSnapshot = NULL;
	}
}

/*
 * Release the snapshots, unless it is clear that this is not possible.
 * Returns who still has one.
 *
 * "atomic": CALL cannot commit.  Then, unless it is the command itself, the
 * statements around it may use the portal's snapshot.
 */
static SnapshotHolder
release(bool atomic, bool command)
{
	if (IsolationUsesXactSnapshot())
		return SNAPSHOT_OF_TRANSACTION;
	if (ActivePortal != NULL &&
		GetCurrentTransactionNestLevel() > ActivePortal->createLevel)
		return SNAPSHOT_OF_BLOCK;
	if (atomic && !command)
		return SNAPSHOT_OF_STATEMENT;

	if (ActivePortal != NULL)
		release_of_portal(ActivePortal);
	if (ActiveSnapshotSet())
		return SNAPSHOT_OF_STATEMENT;
	if (!HaveRegisteredOrActiveSnapshot())
		return SNAPSHOT_OF_NOBODY;
	return XactHasExportedSnapshots() ? SNAPSHOT_EXPORTED : SNAPSHOT_OF_CURSOR;
}

/* As the detail of an error. */
static int
detail_of_holder(SnapshotHolder holder)
{
	switch (holder)
	{
		case SNAPSHOT_OF_TRANSACTION:
			return errdetail("A %s transaction keeps its snapshot until it ends.",
							 XactIsoLevel == XACT_SERIALIZABLE ?
							 "SERIALIZABLE" : "REPEATABLE READ");
		case SNAPSHOT_OF_BLOCK:
			return errdetail("A block with an EXCEPTION clause, or another subtransaction, is within a statement that keeps its snapshot.");
		case SNAPSHOT_OF_STATEMENT:
			return errdetail("The call is part of a function, or of a procedure or DO block that cannot commit, and the statement around it keeps its snapshot.");
		case SNAPSHOT_OF_CURSOR:
			return errdetail("An open cursor, a loop over the rows of a query, or an open large object keeps its snapshot.");
		case SNAPSHOT_EXPORTED:
			return errdetail("The transaction has exported its snapshot.");
		case SNAPSHOT_OF_NOBODY:
			break;
	}
	return 0;
}

/*
 * snapshot_release
 *		Release the snapshots of the CALL that wants these locks, so that it
 *		waits without one.
 *
 * The caller has read its arguments, looks at nothing in the database any
 * more, and returns plain values.
 *
 * Errors: 55000 something else keeps a snapshot; 25P01 a transaction-scoped
 * lock outside of a block.
 */
void
snapshot_release(FunctionCallInfo fcinfo, const ZkRequest *request)
{
	bool		called = fcinfo->context && IsA(fcinfo->context, CallContext);
	bool		atomic = !called || castNode(CallContext, fcinfo->context)->atomic;
	bool		command = called && is_command(fcinfo->flinfo->fn_oid);
	SnapshotHolder holder;

	if (command && !atomic && !request->session)
		ereport(ERROR,
				(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
				 errmsg("a transaction-scoped lock can only be waited for in a transaction block"),
				 errdetail("Outside of one it would be released as soon as the call ends."),
				 errhint("Use BEGIN, or take the lock with session => true.")));

	holder = release(atomic, command);
	if (holder != SNAPSHOT_OF_NOBODY)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 request->nkeys > 1 ?
				 errmsg("cannot wait for %d locks without a snapshot",
						request->nkeys) :
				 errmsg("cannot wait for lock \"%s\" without a snapshot",
						request->name),
				 detail_of_holder(holder),
				 errhint("Use CALL as a statement of its own, at READ COMMITTED and without open cursors; or use zk_lock(), which waits with a snapshot.")));
}
