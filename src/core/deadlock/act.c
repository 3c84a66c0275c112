/*-------------------------------------------------------------------------
 *
 * act.c
 *		The end of a deadlock: one multi of the victim's cluster.
 *
 * The multi checks that nothing has moved: that the note of each H is the one
 * that was read, that each W is there, and whoever stands between readers and
 * owners that are readers, and the probe.  It takes the victim's wait out of
 * our notes, and creates the verdict.  See detector.c.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/act.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/act.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/deadlock/room.h"

/*
 * act_probe_node
 *		The name of a probe.
 */
void
act_probe_node(const Probe *probe, char name[PROBE_NAME_SIZE])
{
	(void) snprintf(name, PROBE_NAME_SIZE, PROBE_PREFIX "%010" PRId32,
					probe->number);
}

/* Fill in what is to be checked before the victim dies. */
static bool
fill_checks(Detection *state, const Probe *probe, DetectorOp *op)
{
	const WaitDeadlock *deadlock = &probe->deadlock;
	char		name[PROBE_NAME_SIZE];
	char		path[NOTE_VERTEX_SIZE];
	DetectorCheck *checks = detection_alloc(state, sizeof(DetectorCheck) *
											(3 * deadlock->nmembers + 1));

	if (checks == NULL)
		return false;
	act_probe_node(probe, name);
	room_path_in(probe->room, name, path);
	checks[0].path = detection_strdup(state, path);
	checks[0].version = -1;
	op->nchecks = 1;
	for (int i = 0; i < deadlock->nmembers; i++)
	{
		const WaitMember *member = &deadlock->members[i];

		if (strcmp(member->edge.from, op->path) != 0)
		{
			checks[op->nchecks].path = member->edge.from;
			checks[op->nchecks++].version = member->version;
		}
		if (member->edge.wait.kind != NOTE_WAIT_SESSION)
		{
			checks[op->nchecks].path = member->edge.wait.to;
			checks[op->nchecks++].version = -1;
		}
		if (member->between[0] != '\0')
		{
			checks[op->nchecks].path = member->between;
			checks[op->nchecks++].version = -1;
		}
	}
	op->checks = checks;
	return checks[0].path != NULL;
}

/* Does this wait of ours end with the victim's?  All of one process do. */
static bool
is_ended(const NoteWait *wait, const NoteWait *victim)
{
	return wait->wait.pid == victim->wait.pid &&
		wait->kind != NOTE_WAIT_SESSION;
}

/* The waits of a note without the one that is to end; returns how many. */
static int
without(const Holder *holder, const NoteWait *victim,
		NoteWait waits[NOTE_MAX_WAITS])
{
	int			n = 0;

	for (int i = 0; i < holder->nsent; i++)
		if (!is_ended(&holder->sent[i], victim))
			waits[n++] = holder->sent[i];
	return n;
}

/* Is the wait in any note that is just being written? */
static bool
is_being_written(const Detection *state, const NoteWait *victim)
{
	for (const Holder *holder = detection_next_holder(state, NULL);
		 holder != NULL; holder = detection_next_holder(state, holder))
		for (int i = 0; i < holder->nsent; i++)
			if ((holder->out != 0 || holder->unsure) &&
				is_ended(&holder->sent[i], victim))
				return true;
	return false;
}

/*
 * Take the victim's wait out of all notes that it is in: so no other deadlock
 * that it is a part of is ended by another victim.
 */
static bool
fill_notes(Detection *state, const NoteWait *victim, DetectorOp *op)
{
	DetectorNote *others = detection_alloc(state, (state->nholders + 1) *
										   sizeof(DetectorNote));

	if (others == NULL)
		return false;
	for (Holder *holder = detection_next_holder(state, NULL); holder != NULL;
		 holder = detection_next_holder(state, holder))
	{
		NoteWait	left[NOTE_MAX_WAITS];
		NoteWait   *waits;
		int			n = without(holder, victim, left);

		if (n == holder->nsent && strcmp(holder->path, op->path) != 0)
			continue;
		waits = detection_alloc(state, (n + 1) * sizeof(NoteWait));
		if (waits == NULL)
			return false;
		memcpy(waits, left, n * sizeof(NoteWait));
		if (strcmp(holder->path, op->path) == 0)
		{
			op->waits = waits;
			op->nwaits = n;
		}
		else
		{
			others[op->nothers].path = detection_strdup(state, holder->path);
			others[op->nothers].waits = waits;
			others[op->nothers++].nwaits = n;
		}
		holder->out = op->serial;
	}
	op->others = others;
	return true;
}

/*
 * act_is_possible
 *		Can the deadlock be ended?  Not while a note of the victim's is being
 *		written: nobody knows its version.
 */
bool
act_is_possible(Detection *state, const Probe *probe)
{
	const WaitEdge *victim = &probe->deadlock.members[0].edge;
	const Holder *holder = detection_find_holder(state, victim->from);

	return holder != NULL && holder->out == 0 && !holder->unsure &&
		!is_being_written(state, &victim->wait);
}

/*
 * act_send
 *		All is confirmed, the victim is ours, and the act is possible: end the
 *		deadlock.
 */
void
act_send(Detection *state, Probe *probe)
{
	const WaitMember *victim = &probe->deadlock.members[0];
	char		name[PROBE_NAME_SIZE];
	char		path[NOTE_VERTEX_SIZE];
	DetectorOp *op;

	op = detection_send(state, DETECTOR_OP_ACT, TASK_ACT, victim->edge.from,
						probe->number);
	if (op == NULL || !fill_checks(state, probe, op) ||
		!fill_notes(state, &victim->edge.wait, op))
		return;
	strcpy(state->pending[state->npending - 1].path, probe->room);
	op->version = victim->version;
	probe_verdict_name(probe->number, name);
	room_path_in(probe->room, name, path);
	op->verdict = detection_strdup(state, path);
	probe->state = PROBE_ACTING;
}

/*
 * act_answered
 *		The act with this serial has been answered: the notes are as it wrote
 *		them, if it was carried out for sure; or to be written again, since the
 *		worker's copies are without the victim's wait.
 *
 * "probe" is NULL if it is not known any more.
 */
void
act_answered(Detection *state, const Probe *probe, uint32_t serial, bool done)
{
	for (Holder *holder = detection_next_holder(state, NULL); holder != NULL;
		 holder = detection_next_holder(state, holder))
	{
		if (holder->out != serial)
			continue;
		holder->out = 0;
		if (done && probe != NULL)
			holder->nsent = without(holder,
									&probe->deadlock.members[0].edge.wait,
									holder->sent);
		else
			holder->unsure = true;
		detection_note_changed(state, holder, false);
	}
}

/*
 * act_done
 *		The act has been carried out: tell so, and take the victim's edges for
 *		ended.
 *
 * "zxid" is that of the act, or 0 if its answer was lost.
 */
void
act_done(Detection *state, Probe *probe, int64_t zxid)
{
	const NoteWait *victim = &probe->deadlock.members[0].edge.wait;

	for (int i = 0; i < state->nedges; i++)
		if (is_ended(&state->edges[i].edge.wait, victim))
		{
			state->edges[i].ended = true;
			detection_note_changed(state, state->edges[i].holder, false);
		}
	if (waits_steps_back(&probe->deadlock))
		state->counts->steps_back++;
	else
		state->counts->victims++;
	detection_tell(state, probe, zxid);
	probe->verdict = true;
}
