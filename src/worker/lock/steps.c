/*-------------------------------------------------------------------------
 *
 * steps.c
 *		Steps of contenders: events in, operations and news out.
 *
 * An event goes into a contender's recipe or semaphore; what that comes out
 * with is carried out here: operations go to its session, news to its slot,
 * and so to backends, and to the server log.
 * A contender whose slot is wanted again when nothing of it is left begins
 * anew at once, if there is room.  If that is known before an exclusive owner's
 * node is deleted, the next one is created in the same step (requeue).
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
#include "core/lock/semaphore.h"
#include "core/lock/znode.h"
#include "core/mutation.h"
#include "core/request.h"
#include "shared/clock.h"
#include "shared/grant.h"
#include "shared/refusal.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/text.h"
#include "worker/lock/contender.h"
#include "worker/lock/directories.h"
#include "worker/lock/steps.h"
#include "worker/sessions.h"
#include "worker/wake.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/status.h"

/* How long to wait before trying again what ZooKeeper has refused. */
#define RETRY_DELAY_MS		10000

/* How long a retained owner may take to say whether it needs its lock. */
#define RETAINED_ANSWER_MS	1000

/* A lock directory, or one of the two parts of a semaphore. */
#define PLACE_PATH_SIZE		(ZNODE_PATH_SIZE + 8)

/* What a step of a contender came out with, apart from operations. */
typedef struct SlotNews
{
	unsigned	told;			/* bits RECIPE_TOLD_* */
	int			error;			/* FAILED, LEFT: ZooKeeper's code, or 0 */
	int			permits_found;	/* FAILED: see SemaphoreOutput */
	int64		token;			/* TOKEN */
	const char *stranger;		/* STRANGER, PERSISTENT: the child's name */
	char		stranger_path[PLACE_PATH_SIZE]; /* and its directory */
	const char *left;			/* LEFT: the name of our node, or its prefix */
	char		left_path[PLACE_PATH_SIZE];
} SlotNews;

/* What a step of either machine comes out with. */
typedef union StepOutput
{
	RecipeOutput recipe;
	SemaphoreOutput semaphore;
} StepOutput;

/* What is asked for together goes in one request, chroots and all. */
StaticAssertDecl(ZK_MAX_TOGETHER *
				 (ZNODE_MAX_ROOT + ZNODE_PATH_SIZE + ZNODE_CONTENDER_SIZE +
				  NOTE_SIZE + REQUEST_OVERHEAD_BYTES) <
				 REQUEST_MAX_BYTES,
				 "zk_lock_all() must fit in one request");

static void
submit(Contender *contender, Request *op, uint32 group)
{
	if (op->kind == REQUEST_CREATE || op->kind == REQUEST_REQUEUE ||
		op->kind == REQUEST_SET)
		op->data = contender_note(contender);
	op->path = contender->directory;
	op->group = group;
	session_submit(contender->session, contender->owner, op);
}

/* The directory of a semaphore's operation. */
static void
place_path(const Contender *contender, SemaphorePlace place,
		   char path[PLACE_PATH_SIZE])
{
	snprintf(path, PLACE_PATH_SIZE, "%s%s%s", contender->directory,
			 place == SEMAPHORE_NAME ? "" : "/",
			 place == SEMAPHORE_NAME ? "" :
			 place == SEMAPHORE_LOCKS ? ZNODE_LOCKS_DIR :
			 ZNODE_PERMITS_DIR);
}

static void
submit_permit(Contender *contender, SemaphoreOp *op)
{
	char		path[PLACE_PATH_SIZE];

	if (op->op.data == NULL && (op->op.kind == REQUEST_CREATE ||
								op->op.kind == REQUEST_SET))
		op->op.data = contender_note(contender);

	/* that of the name itself is a container, too; nobody waits for it */
	if (op->op.kind == REQUEST_MKDIRS)
		directory_make(contender->directory, contender->session);
	place_path(contender, op->place, path);
	op->op.path = path;
	session_submit(contender->session,
				   op->for_lock ? contender->lock_owner : contender->owner,
				   &op->op);
}

/* Submit the operations of a step. */
static void
submit_all(Contender *contender, StepOutput *out)
{
	if (contender->is_permit)
		for (int i = 0; i < out->semaphore.nops; i++)
			submit_permit(contender, &out->semaphore.ops[i]);
	else
		for (int i = 0; i < out->recipe.nops; i++)
			submit(contender, &out->recipe.ops[i], 0);
}

/* What a step's output tells, whichever machine took it. */
static void
read_news(const Contender *contender, const StepOutput *out, SlotNews *news)
{
	SemaphorePlace stranger_place = SEMAPHORE_NAME;
	SemaphorePlace left_place = SEMAPHORE_NAME;

	if (contender->is_permit)
	{
		const SemaphoreOutput *from = &out->semaphore;

		news->told = from->told;
		news->error = from->error;
		news->permits_found = from->permits_found;
		news->token = from->token;
		news->stranger = from->stranger;
		news->left = from->left;
		stranger_place = from->stranger_place;
		left_place = from->left_place;
	}
	else
	{
		const RecipeOutput *from = &out->recipe;

		news->told = from->told;
		news->error = from->error;
		news->permits_found = 0;
		news->token = from->token;
		news->stranger = from->stranger;
		news->left = contender->recipe.node;
	}
	if (news->told & (RECIPE_TOLD_STRANGER | RECIPE_TOLD_PERSISTENT))
		place_path(contender, stranger_place, news->stranger_path);
	if (news->told & RECIPE_TOLD_LEFT)
		place_path(contender, left_place, news->left_path);
}

static void
refuse(Contender *contender, const SlotNews *news)
{
	ZkRefusal	refusal = ZK_REFUSAL_OTHER;

	if (news->told & RECIPE_TOLD_MIXED)
		refusal = ZK_REFUSAL_MIXED;
	else if (news->told & RECIPE_TOLD_ENDED)
		refusal = ZK_REFUSAL_ENDED;
	else if (news->permits_found != 0)
		refusal = ZK_REFUSAL_PERMITS;
	else
	{
		if (session_error_is_access(news->error))
			refusal = ZK_REFUSAL_ACCESS;
		else if (session_error_is_no_node(news->error))
			refusal = ZK_REFUSAL_NO_CHROOT;
		ereport(LOG,
				(errmsg("ZooKeeper refused a contender for \"%s\": %s",
						contender->directory, session_error_text(news->error))));
	}
	slot_set_refused(contender->slot, refusal, news->permits_found);
}

/* Have what was refused tried again. */
static void
schedule_retry(void)
{
	if (wake_time(WAKE_RETRY) == 0)
		wake_set(WAKE_RETRY, zk_now_ms() + RETRY_DELAY_MS);
}

/*
 * Our node may be left in ZooKeeper.  If its deletion was refused, the worker
 * tries again from time to time, and tells backends that want the slot that it
 * may take long.
 */
static void
warn_of_left(Contender *contender, const SlotNews *news)
{
	ereport(WARNING,
			(errmsg("could not delete contender \"%s/%s\": %s",
					news->left_path, news->left,
					session_error_text(news->error)),
			 errdetail("If it exists, it blocks the lock until the session ends.")));
	if (contender->is_permit ?
		!contender->semaphore.refused && !contender->semaphore.lock.refused :
		contender->recipe.state == RECIPE_NONE)
		quota_leave(contender->session,
					contender_bytes_wanted(contender));
	if (contender->is_permit ?
		contender->semaphore.state != SEMAPHORE_NONE :
		contender->recipe.state == RECIPE_LEAVING)
	{
		slot_set_stuck(contender->slot);
		schedule_retry();
	}
}

/*
 * ZooKeeper does not tell the fencing token.  Holders that ask for it fail, and
 * the worker tries again from time to time.
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

/* Another client has written into our node that it wants the lock. */
static void
revoked(const Contender *contender)
{
	int			n = slot_cancel_holders(contender->slot);

	ereport(LOG,
			(errmsg("another client requests revocation of lock \"%s\"", contender->directory),
			 errdetail_plural("The statement of %d holder has been canceled.",
							  "The statements of %d holders have been canceled.",
							  n, n)));
}

/* The contender owns its lock: the sweep of all owners looks after it. */
static void
note_owner(Contender *contender)
{
	contender->owner_since_ms = zk_now_ms();
	if (wake_time(WAKE_SWEEP) == 0)
		wake_set(WAKE_SWEEP, contender->owner_since_ms + SWEEP_INTERVAL_MS);
}

/* The contender has a node in the queue, or has lost the one that it had. */
static void
note_created(Contender *contender, unsigned told)
{
	if (told & RECIPE_TOLD_CREATED)
	{
		slot_set_created(contender->slot, contender->recipe.sequence);
		contender->created = true;
		contender->note_version = 0;
		directory_note(contender->directory, true);
	}
	else if (contender->created && contender->recipe.state == RECIPE_ENTERING)
	{
		/* the next worker must not look for the node of before */
		slot_set_uncreated(contender->slot);
		contender->created = false;
		contender_set_queued(contender, false);
	}
}

/* How the contender stands in its queue. */
static void
tell_queue(Contender *contender, unsigned told)
{
	ZkSlot	   *slot = contender->slot;

	if (told & (RECIPE_TOLD_QUEUED | RECIPE_TOLD_GRANTED))
		contender->answer_due_ms = 0;
	if (told & RECIPE_TOLD_QUEUED)
	{
		slot_set_queued(slot);
		contender_set_queued(contender, true);
	}
	if (told & RECIPE_TOLD_RETAINED)
	{
		contender->answer_due_ms = zk_now_ms() + RETAINED_ANSWER_MS;
		contender_schedule_check(contender, contender->answer_due_ms);
	}
	if (told & RECIPE_TOLD_GRANTED)
	{
		contender_set_queued(contender, false);
		note_owner(contender);
		contender_schedule_check(contender, slot_set_granted(slot));
	}
	if (told & RECIPE_TOLD_ALONE)
		slot_set_alone(slot);
	if ((told & RECIPE_TOLD_CONTENDED) && contender->awaited)
	{
		contender->awaited = false;
		wake_set(WAKE_SCAN, zk_now_ms());
	}
	if (told & (RECIPE_TOLD_NO_WRITER | RECIPE_TOLD_WRITER))
	{
		slot_set_writers_checked(slot, (told & RECIPE_TOLD_WRITER) != 0);
		contender_set_queued(contender, (told & RECIPE_TOLD_WRITER) != 0);
	}
}

/*
 * Tell the slot and the server log what a step of the contender came out with.
 * Left to the caller is what another step may follow: GONE, and CONTENDED.
 */
static void
tell_news(Contender *contender, const SlotNews *news)
{
	unsigned	told = news->told;

	if (told & RECIPE_TOLD_STRANGER)
		directory_warn(news->stranger_path, news->stranger, false);
	if (told & RECIPE_TOLD_PERSISTENT)
		directory_warn(news->stranger_path, news->stranger, true);
	if (!contender->is_permit)
		note_created(contender, told);
	tell_queue(contender, told);
	if (told & RECIPE_TOLD_REVOKED)
		revoked(contender);
	if (told & RECIPE_TOLD_RENEWED)
		ereport(LOG,
				(errmsg("the queue of \"%s\" has begun anew in ZooKeeper, because its sequence numbers were nearly used up",
						contender->directory)));
	if (told & RECIPE_TOLD_TOKEN)
		slot_set_token(contender->slot, news->token);
	if (told & RECIPE_TOLD_NO_TOKEN)
		refuse_token(contender, news->error);
	if (told & RECIPE_TOLD_LOST)
	{
		ereport(LOG,
				(errmsg("lost the lock \"%s\"", contender->directory)));
		slot_set_lost(contender->slot);
	}
	if (told & RECIPE_TOLD_FAILED)
		refuse(contender, news);
	if (told & RECIPE_TOLD_LEFT)
		warn_of_left(contender, news);
	if (!contender->is_permit && !contender->recipe.dir_known)
		directory_note(contender->directory, false);
}

/* A UUID for a new contender, noted in its slot ahead of all else. */
static void
new_uuid(Contender *contender, uint8 *uuid, bool retain)
{
	session_make_uuid(uuid);
	contender_note_uuid(contender, uuid);
	slot_set_uuid(contender->slot, contender->session, uuid, retain);
}

/*
 * Does directories.c remember what this contender owned?  It watches in the
 * first session only, and a lock that is owned unread was owned last in the
 * same session.
 */
static bool
is_remembered(const Contender *contender)
{
	return !contender->is_permit && contender->session == 0;
}

/* May the data of a new contender say that it is retained? */
static bool
may_retain(void)
{
	return zklock_retain_time > 0 && !auths_are_old();
}

/* Queue for a lock or a permit that is wanted. */
static void
want(Contender *contender, const ZkContender *wanted, StepOutput *out)
{
	uint8		uuid[ZNODE_UUID_BYTES];

	contender->asker_pid = wanted->asker_pid;
	if (contender->is_permit)
	{
		new_uuid(contender, uuid, false);
		semaphore_want(&contender->semaphore, uuid, wanted->permits,
					   &out->semaphore);
		return;
	}
	contender->recipe.retain = may_retain();
	contender->recipe.asks_retained = true;
	new_uuid(contender, uuid, contender->recipe.retain);
	recipe_want(&contender->recipe, uuid, wanted->kind, wanted->group != 0,
				directory_is_known(contender->directory),
				is_remembered(contender) &&
				directory_owns_unread(contender->directory), &out->recipe);
}

/*
 * If others stand behind our contender, and its data says that it is retained,
 * have it written that it is in use.  Returns false if there is no such step.
 */
static bool
set_in_use(Contender *contender, unsigned told, StepOutput *out)
{
	RecipeInput input = {.event = RECIPE_SET_IN_USE};

	if (!(told & RECIPE_TOLD_CONTENDED) ||
		!slot_set_contended(contender->slot) || !contender->recipe.retain)
		return false;
	recipe_step(&contender->recipe, &input, &out->recipe);
	return true;
}

/*
 * Nothing of the contender is left in ZooKeeper.  Begins it anew, and returns
 * true, if its slot is wanted again and there is room in the same session;
 * else the contender is parked or dropped.
 */
static bool
want_again(Contender *contender, StepOutput *out)
{
	ZkContender wanted;

	if (!slot_set_gone(contender->slot) || status_is_ending())
	{
		contender_drop(contender);
		return false;
	}
	slot_read_contender(contender->slot, &wanted);
	if (!quota_fits(contender->session, contender_bytes_wanted(contender)))
	{
		contender_park(contender, wanted.group);
		return false;
	}
	want(contender, &wanted, out);
	return true;
}

/*
 * Do what a step came out with: submit its operations and tell the slot the
 * news, until there is no further step to take.  The contender may be dropped
 * by that.
 */
static void
carry_out(Contender *contender, StepOutput *out)
{
	for (;;)
	{
		SlotNews	news;

		ereport(DEBUG3,
				(contender->is_permit ?
				 errmsg_internal("permit of \"%s\" is %s",
								 contender->directory,
								 semaphore_state_name(contender->semaphore.state)) :
				 errmsg_internal("contender \"%s/%s\" is %s",
								 contender->directory, contender->recipe.node,
								 recipe_state_name(contender->recipe.state))));
		contender_count_bytes(contender);
		contender_note_watch(contender);
		if (contender->leaving > 0 || !contender_is_begun(contender))
			contender_set_queued(contender, false);
		submit_all(contender, out);
		read_news(contender, out, &news);
		tell_news(contender, &news);
		if (!contender->is_permit && set_in_use(contender, news.told, out))
			continue;
		if (!(news.told & RECIPE_TOLD_GONE) || !want_again(contender, out))
			return;
	}
}

/*
 * Have the recipe take one step.  If that is the end of an exclusive owner, the
 * directory is noted ahead of the delete.
 */
static void
take_recipe_step(Contender *contender, const RecipeInput *input,
				 RecipeOutput *out)
{
	Recipe	   *recipe = &contender->recipe;
	bool		owned = recipe->state == RECIPE_OWNER &&
		(recipe->kind != ZNODE_READER || ZK_MUTATED(ZK_READER_PRECEDES));

	recipe_step(recipe, input, out);
	if (owned && recipe->state == RECIPE_LEAVING && !status_is_ending() &&
		is_remembered(contender))
		directory_leave(contender->directory, recipe->sequence);
}

/* Have the contender's machine take one step. */
static void
take_step(Contender *contender, bool for_lock, const RecipeInput *input,
		  StepOutput *out)
{
	if (contender->is_permit)
		semaphore_step(&contender->semaphore, for_lock, input,
					   &out->semaphore);
	else
		take_recipe_step(contender, input, &out->recipe);
}

/*
 * step
 *		One event for a contender, which may be dropped by it.
 *
 * for_lock tells that it answers an operation of a semaphore's lock.
 */
void
step(Contender *contender, bool for_lock, const RecipeInput *input)
{
	StepOutput	out;

	take_step(contender, for_lock, input, &out);
	carry_out(contender, &out);
}

/*
 * step_start
 *		Begin a contender in a session that has room for it.
 */
void
step_start(Contender *contender, int session, const ZkContender *wanted)
{
	StepOutput	out;

	contender_set_session(contender, session);
	want(contender, wanted, &out);
	carry_out(contender, &out);
}

/*
 * step_start_together
 *		Begin a contender in a session that has room for it, as one of a
 *		group.
 *
 * Its operations come out in *out, for step_submit_part().
 */
void
step_start_together(Contender *contender, int session,
					const ZkContender *wanted, RecipeOutput *out)
{
	StepOutput	step_out;

	contender_set_session(contender, session);
	want(contender, wanted, &step_out);
	*out = step_out.recipe;
	contender_count_bytes(contender);
}

/*
 * step_submit_part
 *		Submit those of the operations that are of this kind, together with
 *		others of the same group.
 */
void
step_submit_part(Contender *contender, RecipeOutput *out, RequestKind kind,
				 uint32 group)
{
	for (int i = 0; i < out->nops; i++)
		if (out->ops[i].kind == kind)
			submit(contender, &out->ops[i], group);
}

/*
 * step_requeue
 *		The slot is being released: if the contender owns its lock alone, and
 *		the slot is wanted again, have it queue anew in the same step.
 *
 * Returns whether it does.
 */
bool
step_requeue(Contender *contender)
{
	RecipeInput input = {.event = RECIPE_REQUEUE};
	ZkContender wanted;

	if (contender->is_permit || contender->recipe.state != RECIPE_OWNER ||
		contender->recipe.kind == ZNODE_READER || status_is_ending() ||
		!slot_requeue(contender->slot, may_retain(), &wanted))
		return false;
	contender->recipe.retain = wanted.retain;
	contender->recipe.asks_retained = true;
	contender->asker_pid = wanted.asker_pid;
	contender->owner_since_ms = 0;
	contender_forget_note(contender);
	step(contender, false, &input);
	return true;
}

/*
 * step_resume
 *		Go on with a contender of the worker before this one, as its slot
 *		knows it.
 */
void
step_resume(ZkSlot *slot, ZkSlotState state, const ZkContender *known)
{
	Contender  *contender = contender_make(slot, known->kind);
	RecipeResume how = RECIPE_RESUME_OWNED;
	StepOutput	out;

	if (state == ZK_SLOT_WANTED)
		how = RECIPE_RESUME_WANTED;
	else if (state == ZK_SLOT_RELEASING)
		how = RECIPE_RESUME_RELEASING;
	sessions_add(known->session);
	contender_set_session(contender, known->session);
	contender_note_uuid(contender, known->uuid);
	contender->asker_pid = known->asker_pid;
	contender->tells_waits = known->tells_waits;
	if (how == RECIPE_RESUME_OWNED)
		note_owner(contender);
	if (contender->is_permit)
		semaphore_resume(&contender->semaphore, known->uuid, known->permits,
						 how, &out.semaphore);
	else
	{
		contender->recipe.retain = known->retain;
		contender->recipe.asks_retained = true;
		if (known->requeued)
			recipe_resume_requeued(&contender->recipe, known->uuid,
								   known->kind, how == RECIPE_RESUME_WANTED,
								   known->sequence, &out.recipe);
		else
			recipe_resume(&contender->recipe, known->uuid, known->kind,
						  known->group != 0, how,
						  known->has_sequence ? &known->sequence : NULL,
						  &out.recipe);
	}
	carry_out(contender, &out);
}

/*
 * step_expire
 *		The session is over, and with it the contender: tell its slot, and
 *		drop it.
 */
void
step_expire(Contender *contender)
{
	RecipeInput input = {.event = RECIPE_EXPIRED};
	StepOutput	out;
	SlotNews	news;

	take_step(contender, false, &input, &out);
	read_news(contender, &out, &news);
	if (news.told & RECIPE_TOLD_LOST)
		ereport(LOG,
				(errmsg("lost the lock \"%s\"", contender->directory)));
	(void) slot_set_gone(contender->slot);
	contender_drop(contender);
}

/*
 * step_queue_behind
 *		Check for writers behind our contender, or watch the queue; a
 *		writer of this cluster is not counted.
 */
void
step_queue_behind(Contender *contender, RecipeEvent event)
{
	RecipeInput input = {.event = event};
	ZkContender writer;
	ZkKey		key;

	if (contender->recipe.kind == ZNODE_READER &&
		key_in_other_mode(slot_key(contender->slot), &key) &&
		slot_find_contender(&key, &writer) != ZK_SLOT_NONE && writer.has_uuid)
		input.sibling = writer.uuid;
	step(contender, false, &input);
}

/*
 * The predecessor that a contender watches is of one of our sessions.  Is it
 * of none of our contenders, and so in the way of all for as long as that
 * session lives?
 *
 * The UUID of a node is noted before the node is created, and until it is known
 * to have been deleted; and this answer is not older than that to any delete in
 * the same session.  (It may be older than that to a delete in another one:
 * then the node that is deleted here is gone already.)
 */
static bool
is_stray(const Contender *contender, bool for_lock,
		 const RequestAnswer *answer)
{
	const Recipe *recipe = &contender->recipe;
	uint8		uuid[ZNODE_UUID_BYTES];

	if (answer->event != REQUEST_DONE || answer->kind != REQUEST_WATCH ||
		answer->result != REQUEST_OK ||
		!(answer->ours || status_is_ours(answer->ephemeral_owner)))
		return false;
	if (contender->is_permit)
		recipe = &contender->semaphore.lock;
	if (contender->is_permit != for_lock ||
		(recipe->state != RECIPE_WATCHING &&
		 recipe->state != RECIPE_AWAITING_EMPTY) ||
		answer->serial != recipe->serial ||
		!znode_parse_uuid(recipe->predecessor, uuid) ||
		contender_has_uuid(uuid))
		return false;

	ereport(LOG,
			(errmsg("deleting znode \"%s\" of a lost contender of this cluster for \"%s\"",
					text_for_log(recipe->predecessor), contender->directory),
			 errdetail("It belongs to a session of this cluster, but no contender of this cluster knows it.")));
	return true;
}

/* A request of a contender has been answered; or its watch has come. */
static void
take_answer(Contender *contender, bool for_lock, const RequestAnswer *answer)
{
	RecipeInput input = {.event = recipe_event(answer),.answer = *answer};

	if (input.event == RECIPE_MKDIR_DONE)
		directory_made(answer);
	if (input.event == RECIPE_SET_DONE && answer->result == REQUEST_OK &&
		(!contender->is_permit || contender->semaphore.state == SEMAPHORE_OWNER))
		contender->note_version = answer->version;
	input.stray = is_stray(contender, for_lock, answer);
	if (is_remembered(contender) && input.event == RECIPE_CREATE_DONE)
		input.next = directory_next(contender->directory);
	else if (is_remembered(contender) && input.event == RECIPE_DELETE_DONE)
		directory_left(contender->directory, contender->recipe.sequence,
					   answer->result == REQUEST_OK);
	step(contender, for_lock, &input);
}

/*
 * step_answered, step_lock_answered
 *		Handlers of a contender, and of a semaphore's lock.
 */
void
step_answered(void *contender, const RequestAnswer *answer)
{
	take_answer(contender, false, answer);
}

void
step_lock_answered(void *contender, const RequestAnswer *answer)
{
	take_answer(contender, true, answer);
}
