/*-------------------------------------------------------------------------
 *
 * notes.c
 *		The notes of our contenders.
 *
 * Each write of a contender's data, the create and all sets, writes the whole
 * note anew: who the contender is, whether it may be retained, and the waits
 * that keep it.  Only this cluster and other clients' revocations write there,
 * so it has no words but those.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/notes.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "postmaster/postmaster.h"
#include "shared/grant.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "worker/fleet/fleet.h"
#include "worker/lock/notes.h"

/*
 * notes_set_waits
 *		The contender's note is to tell these waits from now on.
 *
 * The caller sees to it that it is written.
 */
void
notes_set_waits(Contender *contender, const NoteWait *waits, int nwaits)
{
	if (contender->waits)
		pfree(contender->waits);
	contender->waits = NULL;
	contender->nwaits = nwaits;
	if (nwaits == 0)
		return;
	contender->waits = MemoryContextAlloc(TopMemoryContext,
										  nwaits * sizeof(NoteWait));
	memcpy(contender->waits, waits, nwaits * sizeof(NoteWait));
	if (!contender->tells_waits)
		slot_set_tells_waits(contender->slot);
	contender->tells_waits = contender->adopted = true;
}

/*
 * notes_write
 *		The contender's note, valid until the next call.
 */
const char *
notes_write(const Contender *contender)
{
	static char data[NOTE_FULL_SIZE];
	Note		note;

	note_set_contender(&note, fleet_host(), PostPortNumber, cluster_name,
					   contender->asker_pid,
					   !contender->is_permit && contender->recipe.retain);
	if (contender->nwaits == 0)
		(void) note_write(&note, data);
	else
		(void) note_write_waits(&note, contender->waits, contender->nwaits,
								data);
	return data;
}

/*
 * notes_write_session
 *		The note of a session's znode, valid until the next call.
 */
const char *
notes_write_session(const NoteWait *waits, int nwaits)
{
	static char data[NOTE_FULL_SIZE];
	Note		note;

	note_set_contender(&note, fleet_host(), PostPortNumber, cluster_name,
					   nwaits > 0 ? waits[0].hold.pid : 0, false);
	(void) note_write_waits(&note, waits, nwaits, data);
	return data;
}
