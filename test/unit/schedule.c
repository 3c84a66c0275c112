/*-------------------------------------------------------------------------
 *
 * schedule.c
 *		What happens next to the clients of a model, and in what order.
 *
 * A test plays its clients by hooks (model.h).  Here is what is the same for
 * all of them: a session's next step, faults, coming to rest, and running
 * through what a test has planned.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/schedule.c
 *
 *-------------------------------------------------------------------------
 */
#include "schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The plain next thing to happen to a session; false if there is none. */
bool
schedule_go_on(ModelSession *session)
{
	if (session->nready > 0)
		model->hooks->deliver(session);
	else if (session->connected && model_unapplied(session) > 0)
		model_execute(session);
	else if (!session->connected && session->alive)
		model_reconnect(session, session->seen);
	else if (!session->connected)
		model->hooks->hear_of_expiry(session);
	else
		return false;
	return true;
}

/* A session's server applies all that there is; false if it has. */
bool
schedule_catch_up(ModelSession *session)
{
	if (session->view == model->zxid)
		return false;
	model_advance(session, model->zxid);
	return true;
}

/* Which faults may happen to a session now?  Returns how many there are. */
unsigned
schedule_count_faults(const ModelSession *session, bool may, bool refusals,
					  ScheduleFaults *faults)
{
	int			unapplied = model_unapplied(session);

	faults->refusals = refusals && may && session->connected &&
		unapplied > 0 &&
		session->entries[session->nready].kind == REQUEST_DELETE ? 1 : 0;
	faults->expiries = session->alive && may ? 1 : 0;
	faults->losses = session->connected && may ? unapplied + 1 : 0;
	return faults->refusals + faults->expiries + 2 * faults->losses;
}

static void
expire(ModelSession *session)
{
	model_expire(session);
	model->hooks->check_rules();
}

/* One fault, the "which"th of those that are possible. */
void
schedule_fault(ModelSession *session, const ScheduleFaults *faults,
			   unsigned which)
{
	if (which < faults->refusals)
	{
		model->refuse_next = true;
		model_execute(session);
		model->refuse_next = false;
		return;
	}
	which -= faults->refusals;
	if (which < faults->expiries)
	{
		expire(session);
		return;
	}
	which -= faults->expiries;
	if (which < faults->losses)
		model->hooks->lose_connection(session, (int) which);
	else
		model->hooks->restart_worker(session, (int) (which - faults->losses));
}

/* Any fault, or none. */
void
schedule_random_fault(ModelSession *session, bool restarts)
{
	int			unapplied = model_unapplied(session);

	switch (model_choose(restarts ? 5 : 4))
	{
		case 0:
		case 1:
		case 2:
			if (session->connected)
				model->hooks->lose_connection(session,
											  (int) model_choose(unapplied + 1));
			else if (session->alive && model_one_in(2))
				model_drop_answers(session);
			break;
		case 3:
			if (session->alive && model_one_in(3))
			{
				if (session->connected)
					for (int n = (int) model_choose(unapplied + 1); n > 0; n--)
						model_execute(session);
				expire(session);
			}
			break;
		case 4:
			model->hooks->restart_worker(session, session->connected ?
										 (int) model_choose(unapplied + 1) : 0);
			break;
	}
}

/* A session's server applies some of what there is. */
void
schedule_random_catch_up(ModelSession *session)
{
	if (session->connected && session->view < model->zxid)
		model_advance(session, session->view + 1 +
					  model_choose((unsigned) (model->zxid - session->view)));
}

/* A session finds a server, or its client hears that it has ended. */
void
schedule_random_reconnect(ModelSession *session)
{
	if (!session->connected && session->alive)
	{
		unsigned	lag = (unsigned) (model->zxid - session->seen);

		model_reconnect(session, session->seen + model_choose(lag + 1));
	}
	else if (!session->connected && model_one_in(3))
		model->hooks->hear_of_expiry(session);
}

/* Whatever is on a session's way arrives; false if nothing is. */
static bool
settle_session(ModelSession *session)
{
	bool		busy = false;

	if (!session->connected)
	{
		busy = true;
		if (session->alive)
			model_reconnect(session, session->seen);
		else
		{
			/* what was on its way may come first, or never */
			while (session->nready > 0 && model_one_in(2))
				model->hooks->deliver(session);
			model->hooks->hear_of_expiry(session);
		}
	}
	while (model_unapplied(session) > 0)
	{
		busy = true;
		model_execute(session);
	}
	while (session->nready > 0)
	{
		busy = true;
		model->hooks->deliver(session);
	}
	(void) schedule_catch_up(session);
	return busy || session->nready > 0;
}

/* All that is on its way arrives, and the clients do what is left to do. */
void
schedule_settle(void)
{
	bool		busy = true;

	for (int rounds = 0; busy; rounds++)
	{
		model_check(rounds < 1000, "it comes to rest");
		busy = false;
		for (int i = 0; i < model->nsessions; i++)
		{
			busy |= settle_session(model->sessions[i]);
			busy |= model->hooks->act(model->sessions[i]);
		}
		if (model->hooks->others_act)
			busy |= model->hooks->others_act();
	}
}

static const char *
title_of(const void *plan)
{
	return *(const char *const *) plan;
}

/* Play a plan by every schedule that there is, but not fewer than these. */
void
schedule_explore(const ModelHooks *hooks, const void *plan,
				 void (*start) (const char *title, unsigned long run),
				 void (*play) (const void *plan), unsigned long at_least)
{
	unsigned long run = 0;

	model_reset(hooks, true);
	do
	{
		start(title_of(plan), run++);
		play(plan);
	} while (model_next_schedule());
	model->explore = false;
	/* not so few that the exploration must have been cut short */
	assert_true(run >= at_least);
}

/* A group of tests, one for each plan; returns how many have failed. */
int
schedule_run_tests(const char *name, const void *plans, size_t size, size_t n,
				   void (*test) (void **state))
{
	struct CMUnitTest *tests = calloc(n, sizeof(*tests));
	int			failed;

	for (size_t i = 0; i < n; i++)
	{
		const void *plan = (const char *) plans + i * size;

		tests[i].name = title_of(plan);
		tests[i].test_func = test;
		tests[i].initial_state = (void *) plan;
	}
	failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
	free(tests);
	return failed;
}
