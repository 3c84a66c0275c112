/*-------------------------------------------------------------------------
 *
 * steps.c
 *		Steps of contenders: events in, operations and reports out.
 *
 * A contender's recipe, or its permit, processes an event, and this file carries
 * its output out: operations go to the session; reports go to the slot, and so to
 * backends, and to the server log.
 *
 * If a contender's slot is wanted again when nothing of the contender is left
 * in ZooKeeper, it begins again at once, if there is room.  If that is known
 * before an exclusive owner's node is deleted, the next node is created in the
 * same step (requeue).
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/steps.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/lock/note.h"
#include "core/lock/recipe.h"
#include "core/lock/znode.h"
#include "core/mutation.h"
#include "core/request.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/lock_stats.h"
#include "shared/outcome.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "shared/text.h"
#include "worker/lock/directories_private.h"
#include "worker/lock/habits_private.h"
#include "worker/lock/steps_private.h"
#include "worker/wake.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/status.h"

/* The pause before retrying what ZooKeeper has refused. */
#define RETRY_DELAY_MS		10000

/* The delay before a contender comes again whose number was late. */
#define LATE_DELAY_MS		1000

/* How long a retained owner may take to say whether it needs its lock. */
#define RETAINED_ANSWER_MS	1000

/* Submit an operation of a step. */
static void
submit(Contender *contender, Request *request)
{
	char		path[PLACE_PATH_SIZE];

	if (request->data == NULL && (request->kind == REQUEST_CREATE ||
								  request->kind == REQUEST_REQUEUE ||
								  request->kind == REQUEST_SET))
		request->data = contender_note(contender);

	/* a semaphore's parent is a container, too; the answer is ignored */
	if (request->kind == REQUEST_MKDIRS && request->path != NULL)
		directory_make(contender->directory);
	contender_place_path(contender, request->path, path);
	request->path = path;
	session_submit(contender->owner, request);
}

/* ZooKeeper refuses the contender: pass on why. */
static void
refuse(Contender *contender, const RecipeOutput *out)
{
	ZkRefusal	refusal = ZK_REFUSAL_OTHER;

	if (out->report & RECIPE_REPORT_MIXED)
		refusal = ZK_REFUSAL_MIXED;
	else if (out->report & RECIPE_REPORT_LATE)
		refusal = ZK_REFUSAL_ENDED;
	else if (out->permits_found != 0)
		refusal = ZK_REFUSAL_PERMITS;
	else
	{
		if (session_error_is_access(out->error))
			refusal = ZK_REFUSAL_ACCESS;
		else if (session_error_is_no_node(out->error))
			refusal = ZK_REFUSAL_NO_CHROOT;
		ereport(LOG,
				(errmsg("ZooKeeper refused a contender for \"%s\": %s",
						contender->directory,
						session_error_text(out->error))));
	}
	slot_set_refused(contender->slot, refusal, out->permits_found);
}

/* Schedule a retry of what was refused. */
static void
schedule_retry(void)
{
	if (wake_time(WAKE_RETRY) == 0)
		wake_set(WAKE_RETRY, zk_now_ms() + RETRY_DELAY_MS);
}

/*
 * Our node may be left in ZooKeeper.  If its deletion was refused, the worker
 * retries from time to time, and backends that want the slot see that it may
 * take long.
 */
static void
warn_of_left(Contender *contender, const RecipeOutput *out)
{
	const Permit *permit = contender->permit;
	char		directory[PLACE_PATH_SIZE];

	contender_place_path(contender, out->path, directory);
	ereport(WARNING,
			(errmsg("could not delete contender \"%s/%s\": %s",
					directory, out->left, session_error_text(out->error)),
			 errdetail("If it exists, it blocks the lock until the session ends.")));
	if (recipe_is_stuck(contender->recipe) ||
		(permit && recipe_is_stuck(&permit->place)))
	{
		slot_set_stuck(contender->slot);
		schedule_retry();
	}
	else
		contender_leave(contender);
}

/*
 * ZooKeeper refuses the fencing token.  Holders that ask for it fail, and the
 * worker retries from time to time.
 */
static void
refuse_token(const Contender *contender, int error)
{
	ZkRefusal	refusal = session_error_is_access(error) ? ZK_REFUSAL_ACCESS :
	ZK_REFUSAL_OTHER;

	if (slot_set_no_token(contender->slot, refusal))
		ereport(LOG,
				(errmsg("ZooKeeper refused the fencing token of \"%s\": %s",
						contender->directory, session_error_text(error))));
	schedule_retry();
}

/* Another client has requested the lock by writing to our node. */
static void
revoked(const Contender *contender)
{
	int			nleft;
	bool		claim_ended;
	int			n = slot_cancel_holders(contender->slot, &nleft, &claim_ended);

	ereport(LOG,
			(errmsg("another client requests revocation of lock \"%s\"", contender->directory),
			 nleft == 0 ?
			 errdetail_plural("The statement of %d holder has been canceled.",
							  "The statements of %d holders have been canceled.",
							  n, n) :
			 errdetail("Holders whose statement has been canceled: %d.  Holders left alone, since only superusers may cancel them: %d.",
					   n, nleft)));
	if (claim_ended)
		ereport(LOG,
				(errmsg("claim of lock \"%s\" has ended because another client has requested that",
						contender->directory)));
}

static void
log_loss(const Contender *contender)
{
	ereport(LOG,
			(errmsg("lost the lock \"%s\"", contender->directory)));
}

/* The contender owns its lock: include it in the sweep of owners. */
static void
note_owner(Contender *contender)
{
	contender->owner_since_ms = zk_now_ms();
	if (wake_time(WAKE_SWEEP) == 0)
		wake_set(WAKE_SWEEP, contender->owner_since_ms + SWEEP_INTERVAL_MS);
}

/* Note whether the contender has a node in the queue. */
static void
note_created(Contender *contender, unsigned report)
{
	if (report & RECIPE_REPORT_CREATED)
	{
		contender->created = true;
		if (!contender->permit)
			directory_note(contender->directory, true);
	}
	else if (contender->created &&
			 contender->recipe->state == RECIPE_ENTERING)
	{
		/* the next worker must not search for the previous node */
		slot_set_uncreated(contender->slot);
		contender->created = false;
		contender_set_queued(contender, false);
	}
}

/* Note the contender's place in its queue. */
static void
note_queue(Contender *contender, unsigned report)
{
	if ((report & RECIPE_REPORT_GRANTED) && contender->revokes)
	{
		stats_count_revoke_wait();
		lock_stats_revoke_wait(slot_key(contender->slot));
	}
	if (report & (RECIPE_REPORT_QUEUED | RECIPE_REPORT_GRANTED))
	{
		contender->answer_due_ms = 0;
		contender->revokes = false;
	}
	if (report & RECIPE_REPORT_QUEUED)
		contender_set_queued(contender, true);
	if (report & RECIPE_REPORT_RETAINED)
	{
		contender->revokes = true;
		contender->answer_due_ms = zk_now_ms() + RETAINED_ANSWER_MS;
		contender_schedule_check(contender, contender->answer_due_ms);
	}
	if (report & RECIPE_REPORT_GRANTED)
	{
		contender_set_queued(contender, false);
		note_owner(contender);
	}
	if ((report & (RECIPE_REPORT_CONTENDED | RECIPE_REPORT_ALONE)) &&
		contender->awaited)
	{
		contender->awaited = false;
		wake_set(WAKE_SCAN, zk_now_ms());
	}
	if ((report & (RECIPE_REPORT_CONTENDED | RECIPE_REPORT_ALONE)) &&
		contender->recipe->kind == ZNODE_READER)
		contender_set_queued(contender, contender->recipe->writer != NULL);
	if (contender->recipe->others)
		habits_learn_others(contender);
}

/* The directory has a child that is no contender. */
static void
warn_of_stranger(const Contender *contender, const RecipeOutput *out)
{
	char		directory[PLACE_PATH_SIZE];

	contender_place_path(contender, out->path, directory);
	if (out->report & RECIPE_REPORT_STRANGER)
		directory_warn(directory, out->stranger, false);
	if (out->report & RECIPE_REPORT_PERSISTENT)
		directory_warn(directory, out->stranger, true);
}

/*
 * Pass the reports of a step to the slot and the server log.  The caller
 * handles GONE and CONTENDED, which another step may follow.
 */
static void
report_step(Contender *contender, const RecipeOutput *out)
{
	const Recipe *recipe = contender->recipe;
	unsigned	report = out->report;

	if (report & (RECIPE_REPORT_STRANGER | RECIPE_REPORT_PERSISTENT))
		warn_of_stranger(contender, out);
	if (report & RECIPE_REPORT_LOST)
		log_loss(contender);
	note_created(contender, report);
	note_queue(contender, report);
	contender_schedule_check(contender,
							 slot_report(contender->slot, report,
										 recipe->sequence, out->token));
	if (report & RECIPE_REPORT_REVOKED)
		revoked(contender);
	if (recipe->state == RECIPE_LATE && recipe->aside)
		contender_schedule_check(contender, zk_now_ms() + LATE_DELAY_MS);
	if ((report & RECIPE_REPORT_LATE) && !(report & RECIPE_REPORT_FAILED))
		ereport(LOG,
				(errmsg("the sequence numbers of \"%s\" in ZooKeeper are nearly used up",
						contender->directory),
				 errdetail("This server does not take the lock before the directory has been deleted, which needs a moment in which nobody is in it.")));
	if (report & RECIPE_REPORT_RENEWED)
		ereport(LOG,
				(errmsg("the queue of \"%s\" has started over in ZooKeeper, because its sequence numbers were nearly used up",
						contender->directory)));
	if (report & RECIPE_REPORT_NO_TOKEN)
		refuse_token(contender, out->error);
	if (report & RECIPE_REPORT_FAILED)
		refuse(contender, out);
	if (report & RECIPE_REPORT_LEFT)
		warn_of_left(contender, out);
	if (!contender->permit && !recipe->dir_known)
		directory_note(contender->directory, false);
}

/*
 * Queue for a wanted lock or permit with a new UUID, which is noted in its
 * slot before anything is sent.
 */
static void
want(Contender *contender, const ZkContender *wanted, RecipeOutput *out)
{
	Recipe	   *recipe = contender->recipe;
	int32		retain_ms = habits_retain_ms(contender, wanted);
	uint8		uuid[ZNODE_UUID_BYTES];

	contender->asker_pid = wanted->asker_pid;
	session_make_uuid(uuid);
	contender_note_uuid(contender, uuid);
	slot_set_uuid(contender->slot, uuid, retain_ms);
	if (contender->permit)
		permit_want(contender->permit, uuid, wanted->permits, out);
	else
	{
		recipe->retain = retain_ms > 0;
		recipe->asks_retained = true;
		recipe_want(recipe, uuid, wanted->kind,
					directory_is_known(contender->directory),
					directory_owns_unread(contender->directory), out);
	}
	contender_update(contender);
}

/*
 * Before a step: may it end an exclusive owner that directories.c remembers?
 */
static bool
may_leave(const Contender *contender)
{
	return contender_owns(contender) && !contender->permit &&
		(contender->recipe->kind != ZNODE_READER ||
		 ZK_MUTATED(ZK_READER_PRECEDES));
}

/* After that step: note the directory, before the delete is sent. */
static void
note_step(Contender *contender, bool may_have_left)
{
	contender_update(contender);
	if (may_have_left && contender->recipe->state == RECIPE_LEAVING &&
		!status_is_ending())
		directory_leave(contender->directory, contender->recipe->sequence);
}

/* Let the contender's recipe, or its permit, take one step. */
static void
take_step(Contender *contender, const RecipeInput *input, RecipeOutput *out)
{
	bool		leaves = may_leave(contender);

	if (contender->permit)
		permit_step(contender->permit, input, out);
	else
		recipe_step(contender->recipe, input, out);
	note_step(contender, leaves);
}

/*
 * If a step has reported others behind our contender, and its note says
 * retain=yes, take the step that writes that the lock is in use.  Returns
 * false if there is no such step.
 */
static bool
set_in_use(Contender *contender, RecipeOutput *out)
{
	RecipeInput input = {.event = RECIPE_SET_IN_USE};

	if (!(out->report & RECIPE_REPORT_CONTENDED) ||
		!slot_set_contended(contender->slot) || !contender->recipe->retain)
		return false;
	take_step(contender, &input, out);
	return true;
}

/*
 * Nothing of the contender is left in ZooKeeper.  If its slot is wanted again
 * and there is room, begins it again and returns true; otherwise defers or
 * drops it.
 */
static bool
want_again(Contender *contender, RecipeOutput *out)
{
	ZkContender wanted;

	if (!slot_set_gone(contender->slot, &wanted) || status_is_ending())
	{
		contender_drop(contender);
		return false;
	}
	if (contender_excess(contender) > 0)
	{
		contender_defer(contender);
		return false;
	}
	want(contender, &wanted, out);
	return true;
}

/*
 * Carry out a step's output, and the further steps that follow from it.  May
 * drop the contender.
 */
static void
carry_out(Contender *contender, RecipeOutput *out)
{
	bool		again = true;

	while (again)
	{
		ereport(DEBUG3,
				(errmsg_internal("contender \"%s/%s\" is %s",
								 contender->directory, contender->recipe->node,
								 contender_state_name(contender))));
		for (int i = 0; i < out->nops; i++)
			submit(contender, &out->ops[i]);
		report_step(contender, out);
		again = set_in_use(contender, out) ||
			((out->report & RECIPE_REPORT_GONE) && want_again(contender, out));
	}
}

/*
 * step
 *		Process one event of a contender, which may be dropped by that.
 */
void
step(Contender *contender, const RecipeInput *input)
{
	RecipeOutput out;

	take_step(contender, input, &out);
	carry_out(contender, &out);
}

/* Begin a contender, for which there is room. */
void
step_start(Contender *contender, const ZkContender *wanted)
{
	RecipeOutput out;

	want(contender, wanted, &out);
	carry_out(contender, &out);
}

/*
 * step_requeue
 *		The slot is being released: if it is wanted again, and the contender
 *		is an exclusive owner, requeue in the same step.
 *
 * Returns whether it does.
 */
bool
step_requeue(Contender *contender)
{
	ZkContender wanted;
	RecipeInput input = {.event = RECIPE_REQUEUE};
	RecipeOutput out;
	int32		retain_ms;

	if (!contender_owns(contender) || contender->permit ||
		znode_is_shared(contender->recipe->kind) || status_is_ending() ||
		!slot_requeue(contender->slot, &wanted))
		return false;
	retain_ms = habits_retain_ms(contender, &wanted);
	if (retain_ms > 0)
		slot_set_retain_ms(contender->slot, retain_ms);
	contender->asker_pid = wanted.asker_pid;
	contender->owner_since_ms = 0;
	contender->awaited = false;
	contender->recipe->retain = retain_ms > 0;
	take_step(contender, &input, &out);
	carry_out(contender, &out);
	return true;
}

/* Resume its recipe or permit. */
static void
resume(Contender *contender, ZkSlotState state, const ZkContender *known,
	   RecipeOutput *out)
{
	RecipeResume how =
		state == ZK_SLOT_WANTED ? RECIPE_RESUME_WANTED :
		state == ZK_SLOT_RELEASING ? RECIPE_RESUME_RELEASING :
		RECIPE_RESUME_OWNED;
	const int32 *sequence = known->has_sequence ? &known->sequence : NULL;
	Recipe	   *recipe = contender->recipe;

	if (contender->permit)
	{
		permit_resume(contender->permit, known->uuid, known->permits, how,
					  sequence, out);
		return;
	}
	recipe->retain = known->retain_ms > 0;
	recipe->asks_retained = true;
	if (known->requeued)
		recipe_resume_requeued(recipe, known->uuid, known->kind,
							   how == RECIPE_RESUME_WANTED, known->sequence,
							   out);
	else
		recipe_resume(recipe, known->uuid, known->kind, how, sequence, out);
}

/* Continue a contender of the previous worker, as its slot describes it. */
void
step_resume(ZkSlot *slot, ZkSlotState state, const ZkContender *known)
{
	Contender  *contender = contender_make(slot, known->kind);
	RecipeOutput out;

	contender_note_uuid(contender, known->uuid);
	(void) contender_set_habitual(contender, known->retain_ms > 0 &&
								  zklock_retain_time == ZK_RETAIN_BY_HABIT);
	contender->asker_pid = known->asker_pid;
	if (state != ZK_SLOT_WANTED && state != ZK_SLOT_RELEASING)
		note_owner(contender);
	resume(contender, state, known, &out);
	contender_update(contender);
	carry_out(contender, &out);
}

/* The session has ended, and the contender with it: drop it. */
static void
expire(Contender *contender)
{
	RecipeInput input = {.event = RECIPE_EXPIRED};
	RecipeOutput out;
	ZkContender wanted;

	take_step(contender, &input, &out);
	if (out.report & RECIPE_REPORT_LOST)
		log_loss(contender);
	(void) slot_set_gone(contender->slot, &wanted);
	contender_drop(contender);
}

/* The session has ended, and its contenders with it: drop them. */
void
contenders_expire(void)
{
	int			n;
	Contender **list = contenders_list(&n);

	for (int i = 0; i < n; i++)
		expire(list[i]);
	pfree(list);
	contenders_forget_left();
}

/* Have our contender watch the queue behind it. */
void
step_watch_queue(Contender *contender)
{
	RecipeInput input = {.event = RECIPE_WATCH_QUEUE};

	step(contender, &input);
}

/* The UUID of this instance's writer, for which its reader waits; or NULL. */
static const uint8 *
find_sibling(const Contender *contender, ZkContender *writer)
{
	ZkKey		key;

	if (contender_kind(contender) != ZNODE_READER ||
		!contender_owns(contender) ||
		!key_in_other_mode(slot_key(contender->slot), &key) ||
		slot_find_contender(&key, writer) == ZK_SLOT_NONE ||
		!writer->has_uuid)
		return NULL;
	return writer->uuid;
}

/*
 * Is the predecessor that a contender watches, by this answer, an orphan: of
 * our session, but of none of our contenders?  It would block the queue until
 * the session ends.
 *
 * A node's UUID is noted from before its create until its delete is known to
 * be done; and this answer is not older than the answer to any delete.
 */
static bool
is_orphan(const Contender *contender, const RequestAnswer *answer)
{
	const char *predecessor = contender->recipe->predecessor;
	uint8		uuid[ZNODE_UUID_BYTES];

	if (answer->event != REQUEST_DONE ||
		(answer->kind != REQUEST_WATCH && answer->kind != REQUEST_STAT) ||
		answer->result != REQUEST_OK || !answer->ours)
		return false;
	if (contender->recipe->state != RECIPE_WATCHING || predecessor == NULL ||
		answer->serial != contender->watch_serial ||
		!znode_parse_uuid(predecessor, uuid) ||
		contender_has_uuid(uuid))
		return false;

	ereport(LOG,
			(errmsg("deleting znode \"%s\" of a lost contender of this instance for \"%s\"",
					text_for_log(predecessor), contender->directory),
			 errdetail("It belongs to the session of this instance, but no contender of this instance knows it.")));
	return true;
}

/* A request of a contender has been answered, or its watch has fired. */
static void
on_answer(void *data, const RequestAnswer *answer)
{
	Contender  *contender = data;
	RecipeInput input = {.event = recipe_event(answer),.answer = *answer};
	ZkContender writer;

	if (input.event == RECIPE_CHILDREN_DONE)
		input.sibling = find_sibling(contender, &writer);
	if (input.event == RECIPE_MKDIR_DONE)
		directory_made(answer);
	if (input.event == RECIPE_DELETE_DONE &&
		(answer->result == REQUEST_UNKNOWN ||
		 answer->result == REQUEST_REFUSED))
		contender->in_doubt = true;
	input.orphan = is_orphan(contender, answer);
	if (!contender->permit && input.event == RECIPE_CREATE_DONE)
		input.next = directory_next(contender->directory);
	else if (!contender->permit && input.event == RECIPE_DELETE_DONE)
		directory_left(contender->directory, contender->recipe->sequence,
					   answer->result == REQUEST_OK);
	step(contender, &input);
}

/* Begin with no contenders. */
void
contenders_attach(void)
{
	contenders_init(on_answer);
}
