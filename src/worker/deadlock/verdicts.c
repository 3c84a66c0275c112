/*-------------------------------------------------------------------------
 *
 * verdicts.c
 *		Deadlocks that have been ended, for backends.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/verdicts.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/mutation.h"
#include "shared/clock.h"
#include "shared/deadlocks.h"
#include "shared/grant.h"
#include "worker/deadlock/verdicts.h"
#include "worker/lock/contender.h"
#include "worker/wake.h"

/* So long a backend may take to step back, before we scan again, in ms. */
#define STEP_BACK_MS	20

static void
fill_member(ZkDeadlockMember *to, const WaitMember *from, bool local)
{
	char		path[NOTE_VERTEX_SIZE];

	memset(to, 0, sizeof(*to));
	strlcpy(to->cluster, from->cluster[0] != '\0' ? from->cluster : "unnamed",
			sizeof(to->cluster));
	note_lock_of(&from->edge.wait, path);
	strlcpy(to->path, path, sizeof(to->path));
	to->kind = note_wait_kind(&from->edge.wait);
	to->pid = from->edge.wait.wait.pid;
	to->holder_pid = from->edge.wait.hold.pid;
	to->local = local;
}

/* Does a member hold a permit of the semaphore that another one waits for? */
static bool
holds_permit(const WaitMember *member, const NoteWait *wait)
{
	char		permits[NOTE_VERTEX_SIZE];
	size_t		len;

	if (wait->kind != NOTE_WAIT_PERMIT || !note_queue_of(wait, permits))
		return false;
	len = strlen(permits);
	return strncmp(member->edge.from, permits, len) == 0 &&
		member->edge.from[len] == '/';
}

/* The members, bit by bit, that block one; each by its place in "order". */
static uint64
blockers_of(const WaitDeadlock *found, const int *order, int n, int place)
{
	const WaitMember *member = &found->members[order[place]];
	uint64		blockers = 0;

	for (int i = 0; i < n; i++)
	{
		const WaitMember *other = &found->members[order[i]];
		bool		is_first = true;

		/* one that waits for any of several is there for each of them */
		for (int j = 0; j < i; j++)
			is_first &= strcmp(found->members[order[j]].edge.from,
							   other->edge.from) != 0;
		if (member->edge.wait.kind == NOTE_WAIT_PERMIT ?
			is_first && holds_permit(other, &member->edge.wait) :
			order[i] == member->blocked_by)
			blockers |= UINT64CONST(1) << i;
	}
	return blockers;
}

/*
 * Note a deadlock for backends to read, and return its number: the victim comes
 * first, and each is blocked by the next, as far as they are on one way.
 */
static uint32
note_deadlock(const DetectorVerdict *verdict)
{
	const WaitDeadlock *found = verdict->deadlock;
	ZkDeadlock	result;
	int			n = Min(found->nmembers, ZK_DEADLOCK_MEMBERS);
	int		   *place = palloc(found->nmembers * sizeof(int));
	int		   *order = palloc(found->nmembers * sizeof(int));
	int			count = 0;

	for (int i = 0; i < found->nmembers; i++)
		place[i] = -1;
	for (int i = 0; place[i] < 0; i = found->members[i].blocked_by)
	{
		place[i] = count;
		order[count++] = i;
	}
	for (int i = 0; i < found->nmembers; i++)
		if (place[i] < 0)
		{
			place[i] = count;
			order[count++] = i;
		}
	memset(&result, 0, sizeof(result));
	result.nmembers = n;
	result.members = palloc(n * sizeof(ZkDeadlockMember));
	for (int i = 0; i < n; i++)
	{
		fill_member(&result.members[i], &found->members[order[i]],
					(verdict->mine >> order[i] & 1) != 0);
		result.members[i].blocked_by = blockers_of(found, order, n, i);
	}
	return deadlock_add(&result);
}

/* The wait of ours that is to end, or NULL. */
static const NoteWait *
wait_to_end(const DetectorVerdict *verdict)
{
	const WaitDeadlock *deadlock = verdict->deadlock;

	if (verdict->ours)
		return &deadlock->members[0].edge.wait;
	for (int i = 1; i < deadlock->nmembers &&
		 ZK_MUTATED(ZK_DEADLOCK_SECOND_VICTIM); i++)
		if (contender_find_path(deadlock->members[i].edge.wait.to))
			return &deadlock->members[i].edge.wait;
	return NULL;
}

/*
 * verdict_tell
 *		A deadlock has been ended that we are a part of: note it, and if the
 *		victim is ours, end its wait.
 *
 * A victim of ours that only steps back is no end: nothing is noted, and the next
 * scan finds who has come to its place.
 *
 * The log tells of the act ahead of what the victim tells.
 */
void
verdict_tell(const DetectorVerdict *verdict)
{
	const NoteWait *wait = wait_to_end(verdict);
	Contender  *contender;
	uint32		number = ZK_STEPS_BACK;

	if (verdict->steps_back)
		wake_set(WAKE_SCAN, zk_now_ms() + STEP_BACK_MS);
	else
	{
		number = note_deadlock(verdict);
		ereport(DEBUG1,
				(errmsg_internal("deadlock %u with other clusters, %d members, the victim is %s",
								 number, verdict->deadlock->nmembers,
								 verdict->ours ? "ours" : "another cluster's")));
	}
	if (wait == NULL)
		return;
	ereport(DEBUG1,
			(errmsg_internal("act 0x%llx: process %d %s",
							 (unsigned long long) verdict->zxid, wait->wait.pid,
							 verdict->steps_back ? "steps back" : "fails")));
	contender = contender_find_path(wait->to);
	if (contender == NULL ||
		!slot_end_wait(contender->slot, wait->wait.pid, wait->wait.since,
					   number))
		ereport(DEBUG1, (errmsg_internal("the victim does not wait any more")));
}
