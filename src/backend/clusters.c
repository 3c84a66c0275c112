/*-------------------------------------------------------------------------
 *
 * clusters.c
 *		zk_fleet: who else is on this ensemble and root.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/backend/clusters.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/names.h"
#include "backend/questions.h"
#include "backend/values.h"
#include "catalog/pg_type.h"
#include "core/member.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/questions.h"
#include "shared/session_info.h"
#include "shared/text.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(zk_fleet);

#define CLUSTERS_COLUMNS	13

static Datum
text_value(const char *value)
{
	return CStringGetTextDatum(text_of_string(value));
}

/* What does not fit, as an array. */
static Datum
misfits_of(const Member *member)
{
	Datum		texts[MEMBER_MISFITS];
	int			n = 0;

	for (int i = 0; i < MEMBER_MISFITS; i++)
		if (member->misfits & (1U << i))
			texts[n++] = CStringGetTextDatum(member_misfit_text(1 << i));
	return PointerGetDatum(construct_array(texts, n, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

static void
put_cluster(ReturnSetInfo *rsinfo, const Member *member,
			const ZkQueueEntry *entry, int64 session_id)
{
	Datum		values[CLUSTERS_COLUMNS] = {0};
	bool		nulls[CLUSTERS_COLUMNS];
	TimestampTz started_at = 0;
	int			n = 0;

#define PUT(known, value) \
	do { nulls[n] = !(known); values[n++] = (value); } while (0)

	PUT(member->words & MEMBER_CLUSTER, text_value(member->cluster));
	PUT(member->words & MEMBER_HOST, text_value(member->host));
	PUT(member->words & MEMBER_PORT, Int32GetDatum(member->port));
	PUT(member->words & MEMBER_STANDBY, BoolGetDatum(member->standby != 0));
	PUT(member->words & MEMBER_VERSION, text_value(member->version));
	PUT(member->words & MEMBER_SERVER, text_value(member->server));
	PUT(member->words & MEMBER_SYSTEM, Int64GetDatum((int64) member->system));
	PUT(member->words & MEMBER_FORMAT, text_value(member->format));
	PUT(member->words & MEMBER_TIMEOUT, interval_of_us((int64) member->timeout * 1000));
	PUT(timestamp_of_ctime(entry->ctime, &started_at),
		TimestampTzGetDatum(started_at));
	PUT(entry->session_id != 0, session_id_text(entry->session_id));
	PUT(entry->session_id != 0, BoolGetDatum(entry->session_id == session_id));
	PUT(member->misfits != 0, misfits_of(member));
#undef PUT
	Assert(n == CLUSTERS_COLUMNS);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zk_fleet() returns setof record
 *
 * The clusters that share the worker's ensemble and root, as ZooKeeper had them
 * when the worker read it, and what does not fit together.
 *
 * Errors: those of zk_check_usable() and ask_entries().
 */
Datum
zk_fleet(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ZkFleetInfo fleet;
	ZkSessionInfo session;
	int			count;
	char	   *entries;
	char	   *next;
	Member	   *members;

	zk_check_usable();
	InitMaterializedSRF(fcinfo, 0);
	check_row_columns(rsinfo->setDesc, CLUSTERS_COLUMNS);

	/* the worker's root, whatever this session's zklock.root */
	session_read_fleet(&fleet);
	entries = ask_entries(ZK_QUESTION_CLUSTERS,
						  psprintf("%s/%s", fleet.root, MEMBER_ROOM), NULL,
						  &count);
	session_read(0, &session);
	members = palloc(Max(count, 1) * sizeof(Member));
	next = entries;
	for (int i = 0; i < count; i++)
	{
		const ZkQueueEntry *entry = (ZkQueueEntry *) next;

		member_parse(&members[i], entry->bytes + entry->node_len,
					 entry->data_len);
		members[i].since = entry->ctime;
		next += ZkQueueEntrySize(entry);
	}
	member_judge(members, count);

	next = entries;
	for (int i = 0; i < count; i++)
	{
		const ZkQueueEntry *entry = (ZkQueueEntry *) next;

		CHECK_FOR_INTERRUPTS();
		put_cluster(rsinfo, &members[i], entry, session.client_id);
		next += ZkQueueEntrySize(entry);
	}
	return (Datum) 0;
}
