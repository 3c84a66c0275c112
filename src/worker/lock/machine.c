/*-------------------------------------------------------------------------
 *
 * machine.c
 *		The state machine of a contender: a recipe, or a semaphore.
 *
 * A contender for a lock is a recipe, one for a permit a semaphore.  Only this
 * file knows which: each operation on a contender is a function here, and its
 * state is in its MachineStatus.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/machine.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "worker/lock/machine_private.h"

struct Machine
{
	bool		is_permit;
	union
	{
		Recipe		recipe;
		Semaphore	semaphore;
	};
};

/* Make a machine for contenders of this kind. */
Machine *
machine_make(ZnodeKind kind)
{
	bool		is_permit = kind == ZNODE_PERMIT;
	Machine    *machine;

	/* most are for locks, and there may be many */
	machine = MemoryContextAllocZero(TopMemoryContext,
									 offsetof(Machine, recipe) +
									 (is_permit ? sizeof(Semaphore) :
									  sizeof(Recipe)));
	machine->is_permit = is_permit;
	if (is_permit)
		semaphore_init(&machine->semaphore);
	else
		recipe_init(&machine->recipe);
	return machine;
}

void
machine_free(Machine *machine)
{
	if (machine->is_permit)
		semaphore_free(&machine->semaphore);
	else
		recipe_free(&machine->recipe);
	pfree(machine);
}

/* Convert a recipe's output to a machine's. */
static void
take_output(const Machine *machine, const RecipeOutput *from,
			MachineOutput *out)
{
	out->nops = from->nops;
	for (int i = 0; i < from->nops; i++)
	{
		out->ops[i].op = from->ops[i];
		out->ops[i].place = SEMAPHORE_NAME;
		out->ops[i].for_lock = false;
	}
	out->report = from->report;
	out->error = from->error;
	out->permits_found = 0;
	out->token = from->token;
	out->stranger = from->stranger;
	out->left = machine->recipe.node;
	out->stranger_place = out->left_place = SEMAPHORE_NAME;
}

/*
 * machine_want
 *		Queue for what is wanted, with a UUID that was never used.
 *
 * For a lock, "retain": the note says that it may be retained; "dir_known":
 * its directory has been seen; "unread": it is likely to be owned with nothing
 * read.
 */
void
machine_want(Machine *machine, const uint8 *uuid, const ZkContender *wanted,
			 bool retain, bool dir_known, bool unread, MachineOutput *out)
{
	RecipeOutput recipe_out;

	if (machine->is_permit)
	{
		semaphore_want(&machine->semaphore, uuid, wanted->permits, out);
		return;
	}
	machine->recipe.retain = retain;
	machine->recipe.asks_retained = true;
	recipe_want(&machine->recipe, uuid, wanted->kind, dir_known, unread,
				&recipe_out);
	take_output(machine, &recipe_out, out);
}

/* Continue a contender of the previous worker, as its slot describes it. */
void
machine_resume(Machine *machine, ZkSlotState state, const ZkContender *known,
			   MachineOutput *out)
{
	RecipeResume how =
		state == ZK_SLOT_WANTED ? RECIPE_RESUME_WANTED :
		state == ZK_SLOT_RELEASING ? RECIPE_RESUME_RELEASING :
		RECIPE_RESUME_OWNED;
	RecipeOutput recipe_out;

	if (machine->is_permit)
	{
		semaphore_resume(&machine->semaphore, known->uuid, known->permits,
						 how, out);
		return;
	}
	machine->recipe.retain = known->retain_ms > 0;
	machine->recipe.asks_retained = true;
	if (known->requeued)
		recipe_resume_requeued(&machine->recipe, known->uuid, known->kind,
							   how == RECIPE_RESUME_WANTED, known->sequence,
							   &recipe_out);
	else
		recipe_resume(&machine->recipe, known->uuid, known->kind, how,
					  known->has_sequence ? &known->sequence : NULL,
					  &recipe_out);
	take_output(machine, &recipe_out, out);
}

/*
 * machine_requeue
 *		Of a lock's exclusive owner: delete its node and create the next
 *		one, in one step.
 *
 * "retain" as for machine_want().
 */
void
machine_requeue(Machine *machine, bool retain, MachineOutput *out)
{
	RecipeInput input = {.event = RECIPE_REQUEUE};

	Assert(!machine->is_permit);
	machine->recipe.retain = retain;
	machine->recipe.asks_retained = true;
	machine_step(machine, false, &input, out);
}

/*
 * machine_step
 *		Process one event.
 *
 * "for_lock": the event is of an operation of a semaphore's lock.
 */
void
machine_step(Machine *machine, bool for_lock, const RecipeInput *input,
			 MachineOutput *out)
{
	RecipeOutput recipe_out;

	if (machine->is_permit)
	{
		semaphore_step(&machine->semaphore, for_lock, input, out);
		return;
	}
	recipe_step(&machine->recipe, input, &recipe_out);
	take_output(machine, &recipe_out, out);
}

/*
 * Describe the watch of a recipe that waits behind others, or of an owner that
 * watches its queue.
 */
static void
describe_watch(const Recipe *recipe, MachineStatus *status)
{
	if (recipe->state == RECIPE_OWNER)
		status->watch_serial = recipe->queue_watch;
	if (recipe->state != RECIPE_WATCHING)
		return;
	status->watch_serial = recipe->serial;
	status->predecessor = recipe->predecessor;
}

static void
describe_recipe(const Recipe *recipe, MachineStatus *status)
{
	status->state = recipe_state_name(recipe->state);
	status->kind = recipe->kind;
	status->place = SEMAPHORE_NAME;
	status->node = recipe->node;
	status->sequence = recipe->sequence;
	status->queues = recipe->state == RECIPE_WATCHING ||
		recipe->state == RECIPE_READING;
	status->owns = recipe->state == RECIPE_OWNER;
	status->enters = recipe->state == RECIPE_ENTERING;
	status->deletes = recipe->state == RECIPE_LEAVING;
	status->is_late = recipe->state == RECIPE_LATE && recipe->aside;
	status->retain = recipe->retain;
	status->watches_queue = status->owns && recipe->queue_watch != 0;
	status->others = recipe->others;
	status->watches_itself = recipe->revocation_watch != 0;
	status->no_directory = !recipe->dir_known;
	describe_watch(recipe, status);
	if (recipe->kind == ZNODE_READER)
		status->keeper = status->owns ? recipe->writer :
			status->queues ? recipe->predecessor : NULL;
	status->has_place = recipe->state != RECIPE_NONE;
	status->leaves_place = recipe->state == RECIPE_LEAVING;
	status->leaves = recipe_is_leaving(recipe);
	status->is_stuck = recipe->state == RECIPE_LEAVING;
	status->has_given_up = recipe->state == RECIPE_NONE;
}

static void
describe_semaphore(const Semaphore *semaphore, MachineStatus *status)
{
	const Recipe *lock = &semaphore->lock;

	status->state = semaphore_state_name(semaphore->state);
	status->kind = ZNODE_PERMIT;
	status->permits = semaphore->permits;
	status->owns = semaphore->state == SEMAPHORE_OWNER;
	status->reclaims = semaphore->state == SEMAPHORE_RECLAIMING;
	status->place = status->owns ? SEMAPHORE_PERMITS : SEMAPHORE_LOCKS;
	status->node = status->owns ? semaphore->node : lock->node;
	status->queues = !status->owns && (lock->state == RECIPE_WATCHING ||
									   lock->state == RECIPE_READING ||
									   lock->state == RECIPE_OWNER);
	status->watches_itself = semaphore->revocation_watched;
	status->is_late = lock->state == RECIPE_LATE && lock->aside;
	if (semaphore->state == SEMAPHORE_WAITING)
		status->watch_serial = semaphore->serial;
	else
	{
		describe_watch(lock, status);
		status->watch_for_lock = true;
	}
	status->has_place = semaphore_may_queue(semaphore);
	status->has_permit = semaphore_may_have_permit(semaphore);
	/* before that the lock may be wanted again */
	status->leaves_place = semaphore->state >= SEMAPHORE_OWNER &&
		lock->state == RECIPE_LEAVING;
	status->leaves_permit = semaphore->state == SEMAPHORE_LEAVING;
	status->leaves = semaphore_is_leaving(semaphore);
	status->is_stuck = semaphore->state != SEMAPHORE_NONE;
	status->has_given_up = !semaphore->refused && !lock->refused;
}

/* Fill in the state of a machine. */
void
machine_describe(const Machine *machine, MachineStatus *status)
{
	memset(status, 0, sizeof(*status));
	if (machine->is_permit)
		describe_semaphore(&machine->semaphore, status);
	else
		describe_recipe(&machine->recipe, status);
}
