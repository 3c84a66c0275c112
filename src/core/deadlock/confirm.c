/*-------------------------------------------------------------------------
 *
 * confirm.c
 *		Probes, answers and verdicts: the second half of a detector.
 *
 * See detector.c for the protocol.  The states of a probe in an instance, and
 * its events:
 *
 *	CREATING	create ok, the victim is ours -> WAITING
 *				create ok, it is not -> SCANNING: scan
 *				create unknown -> forgotten; the directory is swept
 *				create no node, refused -> forgotten
 *	READING		get ok, it has an edge of ours -> as CREATING, ok
 *				get ok, it has none, or is no probe; no node, refused -> OVER
 *				get ok, it is of our session -> OVER: delete
 *				get unknown -> READING: get
 *	SCANNING	scanned, our edges are there, the victim is ours, and the notes
 *				  of ours are written -> ACTING: act
 *				scanned, our edges are there -> WAITING: answer with them,
 *				  unless the victim is ours
 *				scanned, one is not, or its wait is part of an edge that is yet
 *				  to be published -> WAITING: answer no, or, if the probe is
 *				  ours, OVER: delete
 *	WAITING		the victim is ours, all edges of others are confirmed, and the
 *				  notes of ours are written -> SCANNING: scan
 *				the same, but one has got another wait since it was read ->
 *				  WAITING: answer no, or, if the probe is ours, OVER: delete
 *				an answer says no, and the probe is ours -> OVER: delete
 *				an older probe is the same, and this is ours -> OVER: delete
 *	ACTING		act ok -> OVER: victim
 *				act unknown -> CHECKING
 *				act no node, refused -> WAITING: answer no, or, if the probe is
 *				  ours, OVER: delete
 *	CHECKING	listed behind a barrier, with the verdict -> OVER: victim
 *				the same, without it -> as ACTING, no node
 *	all but CREATING, ACTING, CHECKING
 *				listed, with a verdict -> OVER; record, if we have answered
 *				  and the victim, not one of ours, fails
 *				listed, without the probe -> OVER
 *				deadline -> OVER
 *	all			expired -> forgotten
 *
 * In OVER our probe and our answer are deleted.  The victim's instance deletes
 * the verdict when neither probe nor answers are left, or at the deadline.
 *
 * The act is one multi of the victim's instance.  It checks that nothing has
 * changed: that the note of each H of others is the one that was read, and
 * that each H of ours, each W, each contender between a reader and owners that
 * are readers, and the probe exist.  It removes the victim's wait from our
 * notes, and creates the verdict.
 *
 * The versions of our own notes are not checked, since we know what they
 * contain.  Each act of ours writes some of them.  If that made the acts on
 * all earlier probes fail, deadlocks that exist at a time would end one by
 * one.
 *
 * Nor are the answers.  An instance whose wait has ended removes it from H's
 * note.  It deletes its answer at a deadline of its own, whether the wait has
 * ended or not: if the victim's instance took longer to read the answers and
 * to act, each act would fail, and the deadlock would last.
 *
 * Of a "between" only the existence is checked, since nothing else matters: a
 * reader waits behind it as long as it exists, and it waits itself, so its
 * data say nothing of that.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/confirm.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/deadlock/detection_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/mutation.h"

/*
 * A probe expires this long (us) plus twice deadlock_timeout after the last
 * event about it.  An answer takes several requests, so if ZooKeeper is slow
 * the probe lives longer, by this multiple of the time that its own create or
 * get took.
 */
#define MIN_LIFE	INT64_C(1000000)
#define LIFE_TRIPS	10

/* The most probes of ours at a time. */
#define MAX_OURS	8

static Probe *
find_probe(Detection *state, const char *dir, int32_t number)
{
	for (int i = 0; i < state->nprobes; i++)
		if (state->probes[i].number == number &&
			strcmp(state->probes[i].dir, dir) == 0)
			return &state->probes[i];
	return NULL;
}

/* There was an event about a probe: put off its deadline. */
static void
renew(const Detection *state, Probe *probe)
{
	int64_t		trip = probe->trip < MIN_LIFE ? probe->trip : MIN_LIFE;

	probe->deadline = state->now + 2 * state->timeout + MIN_LIFE +
		LIFE_TRIPS * trip;
}

static Probe *
add_probe(Detection *state, const char *dir, int32_t number,
		  ProbeState how, uint32_t born)
{
	Probe	   *probe;

	state->probes = memory_grow(state->probes, state->nprobes, sizeof(Probe));
	probe = &state->probes[state->nprobes++];
	probe->state = how;
	strcpy(probe->dir, dir);
	probe->number = number;
	probe->born = born;
	probe->since = state->now;
	renew(state, probe);
	return probe;
}

static void
remove_probe(Detection *state, Probe *probe)
{
	waits_free_deadlock(&probe->deadlock);
	state->nprobes--;
	memmove(probe, probe + 1,
			(&state->probes[state->nprobes] - probe) * sizeof(Probe));
}

/* The name of a probe's znode. */
static void
probe_node(const Probe *probe, char name[PROBE_NAME_SIZE])
{
	(void) snprintf(name, PROBE_NAME_SIZE, PROBE_PREFIX "%010" PRId32,
					probe->number);
}

/* Nothing more needs to be done about a probe. */
static void
end_probe(Detection *state, Probe *probe)
{
	char		name[PROBE_NAME_SIZE];

	if (probe->state == PROBE_OVER)
		return;
	probe->state = PROBE_OVER;
	if (probe->ours)
	{
		probe_node(probe, name);
		waits_dir_delete(state, probe->dir, name);
	}
	if (probe->answer[0] != '\0')
		waits_dir_delete(state, probe->dir, probe->answer);
	probe->answer[0] = '\0';
}

static bool
is_mine(const Probe *probe, int member)
{
	return (probe->mine >> member & 1) != 0;
}

static uint64_t
all_members(const Probe *probe)
{
	return UINT64_MAX >> (64 - probe->deadlock.nmembers);
}

/*
 * Create our answer, with the edges that we confirm; none means no, and ends
 * the probe if it is ours.
 */
static void
answer(Detection *state, Probe *probe, uint64_t confirmed)
{
	char		prefix[PROBE_NAME_SIZE];
	char		path[NOTE_VERTEX_SIZE];
	DetectorOp *op;

	if (confirmed == 0)
	{
		probe->denied = true;
		state->counts->refuted++;
		if (probe->ours)
		{
			state->counts->denied++;
			end_probe(state, probe);
			return;
		}
	}
	else
		state->counts->confirmed++;
	probe_answer_prefix(probe->number, confirmed, prefix);
	waits_dir_path_in(probe->dir, prefix, path);
	op = detection_send(state, REQUEST_CREATE, TASK_ANSWER, path,
						probe->number);
	op->request.data = "";
	probe->answering = true;
}

/*
 * confirm_found
 *		A search has found a deadlock: create a probe of it, unless there is
 *		one, or too many are ours.
 *
 * Takes ownership of the deadlock.
 */
void
confirm_found(Detection *state, WaitDeadlock *deadlock)
{
	char		dir[NOTE_VERTEX_SIZE] = "";
	char		path[NOTE_VERTEX_SIZE];
	int			ours = 0;
	char	   *data;
	DetectorOp *op;
	Probe	   *probe;

	for (int i = 0; i < state->nprobes; i++)
	{
		ours += state->probes[i].ours;
		if (state->probes[i].state != PROBE_OVER &&
			waits_same_deadlock(&state->probes[i].deadlock, deadlock))
			ours = MAX_OURS;
	}
	for (int i = 0; i < deadlock->nmembers; i++)
	{
		const NoteWait *wait = &deadlock->members[i].edge.wait;

		if (wait->kind == NOTE_WAIT_SESSION)
			continue;
		if (vertex_waits_dir_of(wait->to, wait->kind == NOTE_WAIT_PERMIT,
								path) &&
			(dir[0] == '\0' || strcmp(path, dir) < 0))
			strcpy(dir, path);
	}
	if (dir[0] == '\0')
		ours = MAX_OURS;
	data = ours < MAX_OURS ? probe_write(deadlock) : NULL;
	if (data == NULL)
	{
		waits_free_deadlock(deadlock);
		return;
	}
	waits_dir_path_in(dir, PROBE_PREFIX, path);
	op = detection_send(state, REQUEST_CREATE, TASK_PROBE, path, -1);
	op->request.data = detection_strdup(state, data);
	free(data);
	probe = add_probe(state, dir, -1, PROBE_CREATING, op->request.serial);
	probe->deadlock = *deadlock;
	probe->ours = true;
	state->counts->probes++;
}

/* Have the locks scanned for a probe. */
static void
scan(Detection *state, Probe *probe)
{
	if (state->out->scan == 0)
	{
		if (++state->scan == 0)
			state->scan++;
		state->out->scan = state->scan;
	}
	probe->state = PROBE_SCANNING;
	probe->scan = state->scan;
}

/*
 * A probe has been read, or ours been created: have our edges in it checked.
 * If the victim is ours, that is done when all others have confirmed theirs,
 * right before the act.
 */
static void
take_up(Detection *state, Probe *probe)
{
	probe->trip = state->now - probe->since;
	renew(state, probe);
	probe->mine = 0;
	for (int i = 0; i < probe->deadlock.nmembers; i++)
		if (detection_find_note(state, probe->deadlock.members[i].edge.from))
			probe->mine |= UINT64_C(1) << i;
	probe->state = PROBE_WAITING;
	if (probe->mine == 0)
		end_probe(state, probe);
	else if (!is_mine(probe, 0) && ZK_MUTATED(ZK_DEADLOCK_ANSWERED_BLINDLY))
		answer(state, probe, probe->mine);
	else if (!is_mine(probe, 0) || ZK_MUTATED(ZK_DEADLOCK_UNCONFIRMED) ||
			 ZK_MUTATED(ZK_DEADLOCK_CHECKED_EARLY))
		scan(state, probe);
}

static void
on_probe_created(Detection *state, const Pending *pending,
				 const DetectorInput *in)
{
	Probe	   *probe = NULL;
	ProbeName	name;

	for (int i = 0; i < state->nprobes; i++)
		if (state->probes[i].state == PROBE_CREATING &&
			state->probes[i].born == pending->serial)
			probe = &state->probes[i];
	if (probe == NULL)
		return;
	if (in->answer.result == REQUEST_OK)
		probe_parse_name(in->answer.node, &name);
	if (in->answer.result == REQUEST_OK && name.kind == PROBE_QUESTION)
	{
		probe->number = name.number;
		take_up(state, probe);
		return;
	}
	if (in->answer.result == REQUEST_UNKNOWN ||
		in->answer.result == REQUEST_OK)
		waits_dir_sweep(state, probe->dir);
	remove_probe(state, probe);
}

static void
on_answered(Detection *state, const Pending *pending, const DetectorInput *in)
{
	char		dir[NOTE_VERTEX_SIZE];
	Probe	   *probe;

	(void) vertex_split_path(pending->path, dir);
	probe = find_probe(state, dir, pending->number);
	if (probe != NULL)
		probe->answering = false;
	if (in->answer.result == REQUEST_UNKNOWN)
	{
		waits_dir_sweep(state, dir);
		if (probe != NULL)
			end_probe(state, probe);
	}
	else if (in->answer.result == REQUEST_OK)
	{
		if (probe == NULL || probe->state == PROBE_OVER ||
			strlen(in->answer.node) >= PROBE_NAME_SIZE)
			waits_dir_delete(state, dir, in->answer.node);
		else
			strcpy(probe->answer, in->answer.node);
	}
}

/*
 * A probe has been read; or a znode, to see whether it is ours.  A znode of
 * ours that is read is unknown, and so is deleted.
 */
static void
on_read(Detection *state, const Pending *pending, const DetectorInput *in)
{
	char		dir[NOTE_VERTEX_SIZE];
	const char *name = vertex_split_path(pending->path, dir);
	Probe	   *probe;
	bool		ours = in->answer.result == REQUEST_OK && in->answer.ours;

	if (ours)
		waits_dir_delete(state, dir, name);
	if (pending->task == TASK_SWEEP)
	{
		if (in->answer.result == REQUEST_UNKNOWN)
			waits_dir_sweep(state, dir);
		return;
	}
	probe = find_probe(state, dir, pending->number);
	if (probe == NULL || probe->read != pending->serial)
		return;					/* it has been forgotten since */
	if (in->answer.result == REQUEST_UNKNOWN)
	{
		/* the next list shows it again, and it gets a new deadline */
		remove_probe(state, probe);
		return;
	}
	if (probe->state != PROBE_READING)
		return;
	if (in->answer.result != REQUEST_OK || ours ||
		!probe_parse(in->answer.data, in->answer.data_len, &probe->deadlock))
		end_probe(state, probe);
	else
		take_up(state, probe);
}

/* Is the edge about to be written into a note? */
static bool
is_yet_to_be_published(const Detection *state, const LocalEdge *edge)
{
	const OwnNote *note = edge->note;

	if (note->gone || note->retry_at > state->now)
		return false;
	if (note->out != 0)
		return true;
	for (int i = 0; i < note->nsent; i++)
		if (note_same_wait(&note->sent[i], &edge->edge.wait))
			return false;
	return note->nsent < NOTE_MAX_WAITS;
}

/*
 * Are all local edges that end with this wait in our notes?
 *
 * If not, the creator of a probe with this wait did not know all contenders
 * that the waiting process keeps from others, and the deadlock may contain a
 * smaller one without the victim.
 */
static bool
is_published(const Detection *state, const NoteWait *wait)
{
	for (int i = 0; i < state->nedges; i++)
	{
		const LocalEdge *local = &state->edges[i];

		if (!local->ended &&
			local->edge.wait.wait.pid == wait->wait.pid &&
			local->edge.wait.wait.since == wait->wait.since &&
			is_yet_to_be_published(state, local))
			return false;
	}
	return true;
}

/* The locks have been scanned: do our edges of a probe still exist? */
static void
check_own(Detection *state, Probe *probe)
{
	bool		there = true;

	for (int i = 0; i < probe->deadlock.nmembers; i++)
	{
		const WaitEdge *edge = &probe->deadlock.members[i].edge;
		const LocalEdge *local = detection_find_edge(state, edge);

		if (is_mine(probe, i))
			there &= local != NULL && !local->ended &&
				is_published(state, &edge->wait);
	}
	probe->state = PROBE_WAITING;
	if (ZK_MUTATED(ZK_DEADLOCK_UNCONFIRMED))
	{
		there = true;
		probe->confirmed = all_members(probe);
	}
	if (!there)
		answer(state, probe, 0);
	else if (!is_mine(probe, 0))
		answer(state, probe, probe->mine);
	else
		probe->checked_own = true;
}

/* The local edges are those of the scan with this number. */
void
confirm_scanned(Detection *state, uint32_t scanned)
{
	for (int i = 0; i < state->nprobes; i++)
		if (state->probes[i].state == PROBE_SCANNING &&
			(int32_t) (scanned - state->probes[i].scan) >= 0)
			check_own(state, &state->probes[i]);
}

/* Report that the deadlock of a probe was ended, by the act with this zxid. */
static void
report_end(Detection *state, const Probe *probe, int64_t zxid)
{
	const WaitDeadlock *deadlock = &probe->deadlock;
	int			n = state->out->nverdicts;
	DetectorVerdict *verdicts = detection_alloc(state, (n + 1) *
												sizeof(*verdicts));
	WaitDeadlock *copy = detection_alloc(state, sizeof(*copy));
	WaitMember *members = detection_alloc(state, deadlock->nmembers *
										  sizeof(*members));

	memcpy(members, deadlock->members, deadlock->nmembers * sizeof(*members));
	copy->members = members;
	copy->nmembers = deadlock->nmembers;
	if (n > 0)
		memcpy(verdicts, state->out->verdicts, n * sizeof(*verdicts));
	verdicts[n].deadlock = copy;
	verdicts[n].mine = probe->mine;
	verdicts[n].ours = (probe->mine & 1) != 0;
	verdicts[n].requeues = waits_is_requeued(deadlock);
	verdicts[n].zxid = zxid;
	state->out->verdicts = verdicts;
	state->out->nverdicts++;
}

/* The note of a member, if that is a contender of ours; or NULL. */
static const OwnNote *
own_note(const Detection *state, const Probe *probe, int member)
{
	const char *path = probe->deadlock.members[member].edge.from;

	return is_mine(probe, member) && !vertex_is_node(path) ?
		detection_find_note(state, path) : NULL;
}

/* Fill in what the act checks. */
static void
fill_checks(Detection *state, const Probe *probe, DetectorOp *op)
{
	const WaitDeadlock *deadlock = &probe->deadlock;
	char		name[PROBE_NAME_SIZE];
	char		path[NOTE_VERTEX_SIZE];
	DetectorCheck *checks = detection_alloc(state, sizeof(DetectorCheck) *
											(3 * deadlock->nmembers + 1));

	probe_node(probe, name);
	waits_dir_path_in(probe->dir, name, path);
	checks[0].path = detection_strdup(state, path);
	checks[0].version = -1;
	op->nchecks = 1;
	for (int i = 0; i < deadlock->nmembers &&
		 !ZK_MUTATED(ZK_DEADLOCK_ACT_UNCHECKED); i++)
	{
		const WaitMember *member = &deadlock->members[i];

		if (ZK_MUTATED(ZK_DEADLOCK_ACT_OWN_PART) &&
			own_note(state, probe, i) == NULL)
			continue;
		if (strcmp(member->edge.from, op->request.path) != 0)
		{
			checks[op->nchecks].path = member->edge.from;
			checks[op->nchecks++].version =
				own_note(state, probe, i) ||
				ZK_MUTATED(ZK_DEADLOCK_ACT_ANY_VERSION) ? -1 : member->version;
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
}

/*
 * Does this wait of ours end with the victim's?  All of the same process do.
 */
static bool
is_ended(const NoteWait *wait, const NoteWait *victim)
{
	return wait->wait.pid == victim->wait.pid &&
		wait->kind != NOTE_WAIT_SESSION;
}

/* The waits of a note without the one that is to end; returns their number. */
static int
without(const OwnNote *note, const NoteWait *victim,
		NoteWait waits[NOTE_MAX_WAITS])
{
	int			n = 0;

	for (int i = 0; i < note->nsent; i++)
		if (!is_ended(&note->sent[i], victim))
			waits[n++] = note->sent[i];
	return n;
}

/* Is the victim's wait in a note that is being written, or may be in one? */
static bool
is_being_written(const Detection *state, const NoteWait *victim)
{
	for (const OwnNote *note = detection_next_note(state, NULL);
		 note != NULL; note = detection_next_note(state, note))
		for (int i = 0; i < note->nsent; i++)
			if ((note->out != 0 || note->unsure) &&
				is_ended(&note->sent[i], victim))
				return true;
	return false;
}

/*
 * Remove the victim's wait from all notes that have it, so that no other
 * deadlock that it is part of is ended by another victim.
 */
static void
fill_notes(Detection *state, const NoteWait *victim, DetectorOp *op)
{
	DetectorNote *others = detection_alloc(state, (state->nnotes + 1) *
										   sizeof(DetectorNote));

	for (OwnNote *note = detection_next_note(state, NULL); note != NULL;
		 note = detection_next_note(state, note))
	{
		NoteWait	left[NOTE_MAX_WAITS];
		NoteWait   *waits;
		int			n = without(note, victim, left);

		if (n == note->nsent && strcmp(note->path, op->request.path) != 0)
			continue;
		waits = detection_alloc(state, n * sizeof(NoteWait));
		memcpy(waits, left, n * sizeof(NoteWait));
		if (strcmp(note->path, op->request.path) == 0)
		{
			op->waits = waits;
			op->nwaits = n;
		}
		else
		{
			others[op->nothers].path = detection_strdup(state, note->path);
			others[op->nothers].waits = waits;
			others[op->nothers++].nwaits = n;
		}
		note->out = op->request.serial;
	}
	op->others = others;
}

/*
 * Can the deadlock be ended?  Not while a note with the victim's wait, or of a
 * member of ours, is being written: what it contains is unknown.
 */
static bool
can_act(Detection *state, const Probe *probe)
{
	const WaitEdge *victim = &probe->deadlock.members[0].edge;
	const OwnNote *note = detection_find_note(state, victim->from);

	for (int i = 0; i < probe->deadlock.nmembers; i++)
	{
		const OwnNote *own = own_note(state, probe, i);

		if (own != NULL && (own->out != 0 || own->unsure))
			return false;
	}
	return note != NULL && note->out == 0 && !note->unsure &&
		!is_being_written(state, &victim->wait);
}

/*
 * Has a note of ours got another wait since it was read for a probe?  Then the
 * deadlock may contain a smaller one without the victim.
 */
static bool
has_grown(const Detection *state, const Probe *probe)
{
	for (int i = 0; i < probe->deadlock.nmembers; i++)
	{
		const OwnNote *note = own_note(state, probe, i);

		if (note != NULL && probe->deadlock.members[i].version < note->grown)
			return true;
	}
	return false;
}

/* All is confirmed, and the victim is ours: send the act. */
static void
send_act(Detection *state, Probe *probe)
{
	const WaitMember *victim = &probe->deadlock.members[0];
	char		name[PROBE_NAME_SIZE];
	char		path[NOTE_VERTEX_SIZE];
	DetectorOp *op;

	op = detection_send(state, REQUEST_SET, TASK_ACT, victim->edge.from,
						probe->number);
	fill_checks(state, probe, op);
	fill_notes(state, &victim->edge.wait, op);
	strcpy(state->pending[state->npending - 1].path, probe->dir);
	op->request.has_version = vertex_is_node(op->request.path);
	op->request.version = op->request.has_version ? victim->version : -1;
	probe_verdict_name(probe->number, name);
	waits_dir_path_in(probe->dir, name, path);
	op->verdict = detection_strdup(state, path);
	probe->state = PROBE_ACTING;
}

/*
 * The act with this serial has been answered.  If it was carried out, the
 * notes are as it wrote them.  If it was not, or if that is unknown, they must
 * be written again, since the worker's copies lack the victim's wait.
 *
 * "probe" is NULL if it is no longer known.
 */
static void
act_answered(Detection *state, const Probe *probe, uint32_t serial,
			 RequestResult result)
{
	for (OwnNote *note = detection_next_note(state, NULL); note != NULL;
		 note = detection_next_note(state, note))
	{
		if (note->out != serial)
			continue;
		note->out = 0;
		if (result == REQUEST_OK && probe != NULL)
			note->nsent = without(note,
									&probe->deadlock.members[0].edge.wait,
									note->sent);
		else if (result == REQUEST_NO_NODE)
			note->copy_differs = true;
		else
			note->unsure = true;
		detection_note_changed(state, note, false);
	}
}

/*
 * The act has been carried out: report it, treat the victim's edges as ended,
 * and end the probe.
 *
 * "zxid" is that of the act, or 0 if its answer was lost.
 */
static void
end_victim(Detection *state, Probe *probe, int64_t zxid)
{
	const NoteWait *victim = &probe->deadlock.members[0].edge.wait;

	for (int i = 0; i < state->nedges; i++)
		if (is_ended(&state->edges[i].edge.wait, victim))
		{
			state->edges[i].ended = true;
			detection_note_changed(state, state->edges[i].note, false);
		}
	if (waits_is_requeued(&probe->deadlock))
		state->counts->requeues++;
	else
		state->counts->victims++;
	report_end(state, probe, zxid);
	probe->verdict = true;
	end_probe(state, probe);
}

static void
on_acted(Detection *state, const Pending *pending, const DetectorInput *in)
{
	Probe	   *probe = find_probe(state, pending->path, pending->number);

	act_answered(state, probe, pending->serial, in->answer.result);
	if (probe == NULL || probe->state != PROBE_ACTING)
		return;
	if (in->answer.result == REQUEST_OK)
		end_victim(state, probe, in->answer.mzxid);
	else if (in->answer.result == REQUEST_UNKNOWN)
	{
		WaitsDir   *dir = waits_dir_find(state, probe->dir);

		/* the next list must have been sent after this */
		probe->state = PROBE_CHECKING;
		probe->checked = state->serial + 1;
		if (dir != NULL)
		{
			dir->barrier = true;
			dir->watch = 0;
		}
	}
	else
	{
		probe->state = PROBE_WAITING;
		state->counts->failed_acts++;
		answer(state, probe, 0);
	}
}

/*
 * A directory has a child that is new to us: a probe to be read, or perhaps
 * one of ours.
 */
static void
on_new_child(Detection *state, WaitsDir *dir, const char *child,
			 uint32_t serial)
{
	ProbeName	name;
	char		path[NOTE_VERTEX_SIZE];
	Probe	   *probe;

	probe_parse_name(child, &name);
	if (name.kind == PROBE_NOTHING)
		return;
	waits_dir_path_in(dir->path, child, path);
	probe = find_probe(state, dir->path, name.number);
	if (probe == NULL && name.kind == PROBE_QUESTION)
	{
		probe = add_probe(state, dir->path, name.number, PROBE_READING,
						  serial);
		probe->read = detection_send(state, REQUEST_GET, TASK_READ, path,
									 name.number)->request.serial;
	}
	else if (dir->sweep && name.kind != PROBE_QUESTION &&
			 (probe == NULL || strcmp(probe->answer, child) != 0))
		(void) detection_send(state, REQUEST_GET, TASK_SWEEP, path,
							  name.number);
}

/*
 * Note what a child of a directory says about a probe; "verdicts" and "seen"
 * are by probe.
 */
static void
on_child(Detection *state, const WaitsDir *dir, const char *child,
		 bool *verdicts, bool *seen)
{
	ProbeName	name;
	Probe	   *probe;

	probe_parse_name(child, &name);
	probe = find_probe(state, dir->path, name.number);
	if (name.kind == PROBE_NOTHING || probe == NULL)
		return;
	if (name.kind == PROBE_VERDICT)
		verdicts[probe - state->probes] = true;
	else
		seen[probe - state->probes] = true;
	if (name.kind == PROBE_ANSWER)
	{
		if ((name.confirmed & ~probe->confirmed) != 0)
			renew(state, probe);
		probe->denied |= name.confirmed == 0;
		probe->confirmed |= name.confirmed;
	}
}

static void
delete_verdict(Detection *state, Probe *probe)
{
	char		name[PROBE_NAME_SIZE];

	probe_verdict_name(probe->number, name);
	if (probe->verdict)
		waits_dir_delete(state, probe->dir, name);
	probe->verdict = false;
}

/* Handle a list for one probe; true if nothing is left of it. */
static bool
on_probe_listed(Detection *state, Probe *probe, bool seen, bool verdict,
				uint32_t serial)
{
	if (probe->state == PROBE_CREATING || probe->state == PROBE_ACTING)
		return false;
	if (probe->state == PROBE_CHECKING)
	{
		if ((int32_t) (serial - probe->checked) < 0)
			return false;
		if (verdict)
			end_victim(state, probe, 0);
		else
		{
			probe->state = PROBE_WAITING;
			state->counts->failed_acts++;
			answer(state, probe, 0);
		}
		return false;
	}
	if (verdict && !probe->verdict && probe->state != PROBE_OVER)
	{
		/* a verdict about our victim that we have not made is forged */
		if (probe->state == PROBE_WAITING && !probe->denied &&
			!is_mine(probe, 0) && !waits_is_requeued(&probe->deadlock))
			report_end(state, probe, 0);
		end_probe(state, probe);
	}
	if (seen || (int32_t) (serial - probe->born) <= 0)
		return false;
	delete_verdict(state, probe);
	end_probe(state, probe);
	return !probe->answering;
}

/* A directory has been listed. */
static void
on_children(Detection *state, WaitsDir *dir, const Pending *pending,
			const DetectorInput *in)
{
	bool	   *verdicts;
	bool	   *seen;

	for (int i = 0; i < in->answer.nchildren; i++)
		on_new_child(state, dir, in->answer.children[i], pending->serial);
	dir->sweep = false;
	verdicts = detection_alloc(state, state->nprobes + 1);
	seen = detection_alloc(state, state->nprobes + 1);
	for (int i = 0; i < in->answer.nchildren; i++)
		on_child(state, dir, in->answer.children[i], verdicts, seen);
	for (int i = state->nprobes - 1; i >= 0; i--)
		if (strcmp(state->probes[i].dir, dir->path) == 0 &&
			on_probe_listed(state, &state->probes[i], seen[i], verdicts[i],
							pending->serial))
			remove_probe(state, &state->probes[i]);
}

static void
on_listed(Detection *state, const Pending *pending, const DetectorInput *in)
{
	WaitsDir   *dir = waits_dir_find(state, pending->path);
	DetectorInput empty = *in;

	if (dir == NULL)
		return;
	dir->listing = false;
	waits_dir_listed(state, dir, in);
	if (in->answer.result == REQUEST_OK)
	{
		on_children(state, dir, pending, in);
		return;
	}
	if (dir->watch == pending->serial)
		dir->watch = 0;
	if (in->answer.result == REQUEST_REFUSED)
		dir->retry_at = state->now + state->timeout;
	else if (in->answer.result == REQUEST_NO_NODE)
	{
		empty.answer.nchildren = 0;
		on_children(state, dir, pending, &empty);
		dir->making = dir->needed;
		if (dir->needed)
			(void) detection_send(state, REQUEST_MKDIR, TASK_MKDIR,
								  dir->path, 0);
		else
			dir->watch = 0;
	}
}

/* Handle the answer to an operation that is of a task of this file. */
void
confirm_done(Detection *state, const Pending *pending, const DetectorInput *in)
{
	switch (pending->task)
	{
		case TASK_LIST:
			on_listed(state, pending, in);
			break;
		case TASK_MKDIR:
			waits_dir_made(state, pending, in);
			break;
		case TASK_READ:
		case TASK_SWEEP:
			on_read(state, pending, in);
			break;
		case TASK_PROBE:
			on_probe_created(state, pending, in);
			break;
		case TASK_ANSWER:
			on_answered(state, pending, in);
			break;
		case TASK_ACT:
			on_acted(state, pending, in);
			break;
		case TASK_DELETE:
			waits_dir_deleted(state, pending, in);
			break;
		default:
			break;
	}
}

/* The session has ended, and with it all our znodes. */
void
confirm_forget(Detection *state)
{
	for (int i = 0; i < state->nprobes; i++)
		waits_free_deadlock(&state->probes[i].deadlock);
	state->nprobes = 0;
	waits_dir_forget(state);
}

/* Is there an older probe about the same deadlock? */
static bool
has_elder(const Detection *state, const Probe *probe)
{
	for (int i = 0; i < state->nprobes; i++)
	{
		const Probe *other = &state->probes[i];

		if (other != probe && other->number >= 0 &&
			other->number < probe->number && other->state != PROBE_OVER &&
			strcmp(other->dir, probe->dir) == 0 &&
			waits_same_deadlock(&other->deadlock, &probe->deadlock))
			return true;
	}
	return false;
}

/*
 * The victim of a probe is ours, and all others have confirmed their edges:
 * act if ours have just been checked, else have them checked.
 */
static void
finish(Detection *state, Probe *probe)
{
	if (!can_act(state, probe))
		return;
	if (has_grown(state, probe))
		answer(state, probe, 0);
	else if (!probe->checked_own)
		scan(state, probe);
	else
	{
		state->counts->confirmed++;
		send_act(state, probe);
	}
}

static void
advance_probe(Detection *state, Probe *probe)
{
	if (probe->state == PROBE_CREATING || probe->state == PROBE_ACTING ||
		probe->state == PROBE_CHECKING)
		return;
	if (probe->deadline <= state->now)
	{
		end_probe(state, probe);
		delete_verdict(state, probe);
		return;
	}
	if (probe->state != PROBE_OVER || probe->verdict)
		detection_wake(state, probe->deadline);
	if (probe->state == PROBE_WAITING && probe->denied && probe->ours)
	{
		state->counts->denied++;
		end_probe(state, probe);
	}
	else if (probe->state != PROBE_OVER &&
			 (probe->ours || probe->state == PROBE_WAITING) &&
			 has_elder(state, probe))
	{
		if (probe->ours)
			end_probe(state, probe);
	}
	else if (probe->state == PROBE_WAITING && !probe->denied &&
			 is_mine(probe, 0) && state->connected &&
			 (probe->confirmed | probe->mine) == all_members(probe))
		finish(state, probe);
}

/*
 * confirm_advance
 *		Do what can be done now.  Without a connection, that is only to end
 *		what is too old.
 */
void
confirm_advance(Detection *state)
{
	for (int i = state->nprobes - 1; i >= 0; i--)
	{
		Probe	   *probe = &state->probes[i];
		WaitsDir   *dir;

		advance_probe(state, probe);
		probe->checked_own &= ZK_MUTATED(ZK_DEADLOCK_CHECKED_EARLY);
		dir = waits_dir_find(state, probe->dir);
		if (probe->state == PROBE_OVER && !probe->verdict &&
			!probe->answering && (dir == NULL || !dir->needed))
			remove_probe(state, probe);
	}
	if (!state->connected)
		return;
	waits_dir_watch_needed(state);
	waits_dir_clean_up(state);
}
