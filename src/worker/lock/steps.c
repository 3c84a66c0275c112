/*-------------------------------------------------------------------------
 *
 * steps.c
 *		Steps of contenders: events in, operations and news out.
 *
 * An event goes into a contender's recipe or semaphore; what that comes out
 * with is carried out here: operations go to its session, news to its slot.
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
#include "shared/grant.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/text.h"
#include "worker/lock/contender.h"
#include "worker/lock/directories.h"
#include "worker/lock/news.h"
#include "worker/lock/notes.h"
#include "worker/lock/steps.h"
#include "worker/sessions.h"
#include "worker/zookeeper/request.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/status.h"

/* What a step of either machine comes out with. */
typedef union StepOutput
{
	RecipeOutput recipe;
	SemaphoreOutput semaphore;
} StepOutput;

/* What is asked for together goes in one request, chroots and all. */
StaticAssertDecl(ZK_MAX_TOGETHER *
				 (ZNODE_MAX_ROOT + ZNODE_PATH_SIZE + ZNODE_CONTENDER_SIZE +
				  NOTE_SIZE + SESSION_OPERATION_BYTES) <
				 SESSION_REQUEST_BYTES,
				 "zk_lock_all() must fit in one request");

static void
submit(Contender *contender, RecipeOp *op, uint32 group)
{
	if (op->kind == RECIPE_OP_CREATE || op->kind == RECIPE_OP_REQUEUE ||
		op->kind == RECIPE_OP_SET)
		op->data = notes_write(contender);
	session_submit(contender->session, contender->id, contender->directory,
				   op, group);
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

	if (op->op.data == NULL && (op->op.kind == RECIPE_OP_CREATE ||
								op->op.kind == RECIPE_OP_SET))
		op->op.data = notes_write(contender);

	/* that of the name itself is a container, too; nobody waits for it */
	if (op->op.kind == RECIPE_OP_MKDIRS)
	{
		RecipeOp	mkdirs = {.kind = RECIPE_OP_MKDIRS};

		session_submit(contender->session, NOBODY, contender->directory,
					   &mkdirs, 0);
	}
	place_path(contender, op->place, path);
	session_submit(contender->session,
				   op->for_lock ? contender->lock_id : contender->id,
				   path, &op->op, 0);
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
		news_tell(contender, &news);
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
step_submit_part(Contender *contender, RecipeOutput *out, RecipeOpKind kind,
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
		news_note_owner(contender);
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
		key_in_other_mode(&contender->slot->key, &key) &&
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
is_stray(const Contender *contender, bool for_lock, const RecipeInput *input)
{
	const Recipe *recipe = &contender->recipe;
	uint8		uuid[ZNODE_UUID_BYTES];

	if (input->event != RECIPE_WATCH_DONE || input->result != RECIPE_OK ||
		!(input->ours || status_is_ours(input->ephemeral_owner)))
		return false;
	if (contender->is_permit)
		recipe = &contender->semaphore.lock;
	if (contender->is_permit != for_lock ||
		(recipe->state != RECIPE_WATCHING &&
		 recipe->state != RECIPE_AWAITING_EMPTY) ||
		input->serial != recipe->serial ||
		!znode_parse_uuid(recipe->predecessor, uuid) ||
		contender_has_uuid(uuid))
		return false;

	ereport(LOG,
			(errmsg("deleting znode \"%s\" of a lost contender of this cluster for \"%s\"",
					text_for_log(recipe->predecessor), contender->directory),
			 errdetail("It belongs to a session of this cluster, but no contender of this cluster knows it.")));
	return true;
}

/*
 * step_answered
 *		An operation of a contender, if that is not gone, has been
 *		answered; or its watch has come.
 */
void
step_answered(uint32 owner, RecipeInput *input)
{
	bool		for_lock;
	Contender  *contender;

	if (input->event == RECIPE_MKDIR_DONE && input->result == RECIPE_OK &&
		input->error == 0)
		directory_made();		/* else it existed */
	contender = contender_find_owner(owner, &for_lock);
	if (contender == NULL)
		return;
	if (input->event == RECIPE_SET_DONE && input->result == RECIPE_OK &&
		(!contender->is_permit || contender->semaphore.state == SEMAPHORE_OWNER))
		contender->note_version = input->version;
	input->stray = is_stray(contender, for_lock, input);
	if (is_remembered(contender) && input->event == RECIPE_CREATE_DONE)
		input->next = directory_next(contender->directory);
	else if (is_remembered(contender) && input->event == RECIPE_DELETE_DONE)
		directory_left(contender->directory, contender->recipe.sequence,
					   input->result == RECIPE_OK);
	step(contender, for_lock, input);
}
