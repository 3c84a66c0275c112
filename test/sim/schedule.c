/*-------------------------------------------------------------------------
 *
 * schedule.c
 *		Tasks, virtual time, random numbers and the trace.
 *
 * A task is a thread of a simulated process, with a stack of its own.  One
 * task runs at a time.  It runs until it waits, sleeps or yields, and then the
 * scheduler, which has the stack of the program, takes one of those that are
 * ready, by lot.  When none is, time goes on to the next event.
 *
 * All that is left to chance comes from one generator, whose seed is that of
 * the schedule, and nothing depends on addresses or on the real clock.  So the
 * same seed is the same schedule, step by step; the hash of the trace tells.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/schedule.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "schedule.h"

#define STACK_SIZE		(256 * 1024)
#define GUARD_SIZE		4096

/* A step takes from 1 us to so many. */
#define STEP_US			8

typedef enum TaskState
{
	TASK_READY,
	TASK_RUNNING,
	TASK_WAITING,
	TASK_FROZEN,				/* ready, but its machine stands still */
	TASK_DEAD
} TaskState;

struct Task
{
	uint64_t	id;
	Process    *process;
	TaskMain	main;
	void	   *arg;
	TaskState	state;
	bool		woken;			/* since it last waited */
	bool		timed_out;
	bool		started;
	uint64_t	wait;			/* number of its present wait */
	char	   *stack;
	ucontext_t	start;
	jmp_buf		context;
	Task	   *next;			/* of all */
};

typedef struct Event
{
	int64_t		at;
	uint64_t	number;
	EventHandler handler;		/* NULL: of a task that waits */
	void	   *arg;
	uint64_t	wait;
} Event;

/*
 * What sim_alloc() has given out of; all of it is free when a schedule ends.
 */
typedef struct Block
{
	struct Block *next;
	size_t		size;			/* of the whole */
	int64_t		full_at;		/* when nothing was left of it */
} Block;

/* Blocks, the oldest first, and what is left of the latest. */
typedef struct Arena
{
	Block	   *first;
	Block	   *last;
	char	   *free_from;
	size_t		free_size;
} Arena;

#define BLOCK_SIZE		(1 << 20)

static int64_t now;
static uint64_t seed_state;
static uint64_t hash;
static uint64_t steps;
static Wildness wild;
static bool calm;
static uint32_t yields_left;

static Task *tasks;
static Task *running;
static uint64_t last_id;
static uint64_t last_wait;
static Task **ready;
static size_t nready;
static size_t ready_size;
static jmp_buf scheduler;

static Event *events;
static size_t nevents;
static size_t events_size;
static uint64_t last_event;

static char **free_stacks;
static size_t nfree_stacks;
static size_t free_stacks_size;
static Arena lasting;			/* as long as the schedule */
static Arena passing;			/* unless "lifetime" is 0 */
static int64_t lifetime;
static Block *free_blocks;		/* all of BLOCK_SIZE */

static bool tracing;
static bool tracing_steps;
static uint64_t stop_at;
static jmp_buf failed;
static char checker[64];
static char failure[1024];

/*
 * Random numbers: splitmix64.
 */
uint64_t
sim_random(void)
{
	uint64_t	z = (seed_state += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

uint32_t
sim_below(uint32_t n)
{
	return (uint32_t) ((sim_random() >> 32) * n >> 32);
}

bool
sim_chance(uint32_t per_million)
{
	return per_million > 0 && sim_below(1000000) < per_million;
}

/* From low to high, both included. */
int64_t
sim_between(int64_t low, int64_t high)
{
	return low + (int64_t) (sim_random() % (uint64_t) (high - low + 1));
}

int64_t
sim_now(void)
{
	return now;
}

Task *
sim_task(void)
{
	return running;
}

Process *
sim_process(void)
{
	return running ? running->process : NULL;
}

/*
 * Memory.
 */
static void
give_block(Block *block)
{
	if (block->size > BLOCK_SIZE)
		free(block);
	else
	{
		block->next = free_blocks;
		free_blocks = block;
	}
}

/*
 * Give the oldest block back if its time is over: a late read of it crashes.
 */
static void
give_oldest(Arena *arena)
{
	Block	   *block = arena->first;

	if (block == NULL || block == arena->last || block->full_at + lifetime > now)
		return;
	arena->first = block->next;
	memset(block + 1, 0x5A, block->size - sizeof(Block));
	give_block(block);
}

static void
add_block(Arena *arena, size_t size)
{
	Block	   *block;

	if (arena == &passing)
		give_oldest(arena);
	block = free_blocks;
	if (size <= BLOCK_SIZE && block != NULL)
		free_blocks = block->next;
	else
	{
		block = malloc(size > BLOCK_SIZE ? size : BLOCK_SIZE);
		if (block == NULL)
			abort();
		block->size = size > BLOCK_SIZE ? size : BLOCK_SIZE;
	}
	block->next = NULL;
	if (arena->last != NULL)
	{
		arena->last->full_at = now;
		arena->last->next = block;
	}
	else
		arena->first = block;
	arena->last = block;
	arena->free_from = (char *) (block + 1);
	arena->free_size = block->size - sizeof(Block);
}

static void *
allocate(Arena *arena, size_t size)
{
	char	   *result;

	size = (size + 15) / 16 * 16;
	if (size > arena->free_size)
		add_block(arena, size + sizeof(Block));
	result = arena->free_from;
	arena->free_from += size;
	arena->free_size -= size;
	return memset(result, 0, size);
}

/* Of zeros; it is there until the schedule ends, or for the lifetime. */
void *
sim_alloc(size_t size)
{
	return allocate(lifetime > 0 ? &passing : &lasting, size);
}

/* Of zeros; it is there until the schedule ends. */
void *
sim_keep(size_t size)
{
	return allocate(&lasting, size);
}

/* The same bytes, until the schedule ends. */
const char *
sim_keep_bytes(const char *bytes, size_t n)
{
	return lifetime == 0 || bytes == NULL ? bytes :
		memcpy(sim_keep(n + 1), bytes, n);
}

/*
 * What is allocated from now on is there for so long only.  For schedules that
 * last long, and in which nothing is lost or late.
 */
void
schedule_set_lifetime(int64_t us)
{
	lifetime = us;
}

static void
free_arena(Arena *arena)
{
	while (arena->first != NULL)
	{
		Block	   *block = arena->first;

		arena->first = block->next;
		give_block(block);
	}
	memset(arena, 0, sizeof(*arena));
}

char *
sim_strdup(const char *string)
{
	return strcpy(sim_alloc(strlen(string) + 1), string);
}

/*
 * The trace.
 */
void
schedule_set_trace(bool on, bool every_step, uint64_t stop)
{
	tracing = on;
	tracing_steps = every_step;
	stop_at = stop;
}

bool
sim_tracing(void)
{
	return tracing;
}

void
sim_mix(uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x100000001B3);
	hash ^= hash >> 29;
}

void
sim_vtrace(const char *format, va_list args)
{
	if (!tracing)
		return;
	printf("%10" PRId64 ".%06" PRId64 " %6" PRIu64 " %-10s ", now / 1000000,
		   now % 1000000, steps,
		   running ? process_label(running->process) : "-");
	vprintf(format, args);
	putchar('\n');
}

void
sim_trace(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	sim_vtrace(format, args);
	va_end(args);
}

/* For a breakpoint. */
void		sim_at_step(void);

void
sim_at_step(void)
{
	sim_trace("step %" PRIu64, steps);
}

/*
 * The end of a schedule that has failed: back to schedule_run().
 */
void
sim_violation(const char *which, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	vsnprintf(failure, sizeof(failure), format, args);
	va_end(args);
	snprintf(checker, sizeof(checker), "%s", which);
	sim_trace("VIOLATION of %s: %s", checker, failure);
	longjmp(failed, 1);
}

void
sim_lacks(const char *what)
{
	fprintf(stderr, "sim: not simulated: %s, called by %s at step %" PRIu64 "\n",
			what, running ? process_label(running->process) : "nobody", steps);
	abort();
}

const char *
schedule_failure(void)
{
	return failure;
}

const char *
schedule_checker(void)
{
	return checker;
}

/*
 * Events, in a heap.
 */
static bool
is_before(const Event *a, const Event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void
add_event(Event event)
{
	size_t		i = nevents++;

	if (nevents > events_size)
	{
		events_size = events_size == 0 ? 1024 : 2 * events_size;
		events = realloc(events, events_size * sizeof(Event));
	}
	event.number = ++last_event;
	while (i > 0 && is_before(&event, &events[(i - 1) / 2]))
	{
		events[i] = events[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	events[i] = event;
}

static Event
take_event(void)
{
	Event		first = events[0];
	Event		last = events[--nevents];
	size_t		i = 0;

	for (;;)
	{
		size_t		child = 2 * i + 1;

		if (child >= nevents)
			break;
		if (child + 1 < nevents && is_before(&events[child + 1], &events[child]))
			child++;
		if (!is_before(&events[child], &last))
			break;
		events[i] = events[child];
		i = child;
	}
	events[i] = last;
	return first;
}

void
sim_at(int64_t at, EventHandler handler, void *arg)
{
	add_event((Event) {.at = at > now ? at : now, .handler = handler, .arg = arg});
}

/*
 * Tasks.
 */
static void
make_ready(Task *task)
{
	task->state = TASK_READY;
	if (nready == ready_size)
	{
		ready_size = ready_size == 0 ? 64 : 2 * ready_size;
		ready = realloc(ready, ready_size * sizeof(Task *));
	}
	ready[nready++] = task;
}

static void
task_start(void)
{
	running->main(running->arg);
	sim_exit_task();
}

Task *
task_new(Process *process, TaskMain main, void *arg)
{
	Task	   *task = sim_keep(sizeof(Task));

	task->id = ++last_id;
	task->process = process;
	task->main = main;
	task->arg = arg;
	task->next = tasks;
	tasks = task;
	make_ready(task);
	return task;
}

static char *
take_stack(void)
{
	char	   *stack;

	if (nfree_stacks > 0)
		return free_stacks[--nfree_stacks];
	stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		abort();
	mprotect(stack, GUARD_SIZE, PROT_NONE);
	return stack;
}

static void
give_stack(char *stack)
{
	if (nfree_stacks == free_stacks_size)
	{
		free_stacks_size = free_stacks_size == 0 ? 64 : 2 * free_stacks_size;
		free_stacks = realloc(free_stacks, free_stacks_size * sizeof(char *));
	}
	free_stacks[nfree_stacks++] = stack;
}

static void
resume(Task *task)
{
	if (task->started)
		_longjmp(task->context, 1);
	task->started = true;
	task->stack = take_stack();
	getcontext(&task->start);
	task->start.uc_stack.ss_sp = task->stack;
	task->start.uc_stack.ss_size = STACK_SIZE;
	task->start.uc_link = NULL;
	makecontext(&task->start, task_start, 0);
	setcontext(&task->start);
}

/* From the scheduler to a task, and back. */
static void
run_task(Task *task)
{
	running = task;
	task->state = TASK_RUNNING;
	sim_mix(task->id);
	sim_mix((uint64_t) now);
	steps++;
	if (steps == stop_at)
		sim_at_step();
	if (tracing_steps)
		sim_trace("step, random %016" PRIx64, seed_state);
	if (_setjmp(scheduler) == 0)
		resume(task);
	running = NULL;
	if (task->state == TASK_DEAD && task->stack != NULL)
	{
		give_stack(task->stack);
		task->stack = NULL;
	}
}

/* From the task that runs to the scheduler. */
static void
leave(void)
{
	if (_setjmp(running->context) == 0)
		_longjmp(scheduler, 1);
}

/* The running task is over. */
void
sim_exit_task(void)
{
	running->state = TASK_DEAD;
	_longjmp(scheduler, 1);
}

/* Another task is over, wherever it is. */
void
task_kill(Task *task)
{
	assert(task != running);
	if (task->state == TASK_DEAD)
		return;
	if (task->state == TASK_READY)
		for (size_t i = 0; i < nready; i++)
			if (ready[i] == task)
			{
				ready[i] = ready[--nready];
				break;
			}
	task->state = TASK_DEAD;
	if (task->stack != NULL)
		give_stack(task->stack);
	task->stack = NULL;
}

bool
task_is_over(const Task *task)
{
	return task->state == TASK_DEAD;
}

void
task_wake(Task *task)
{
	if (task == NULL || task->state == TASK_DEAD)
		return;
	task->woken = true;
	if (task->state != TASK_WAITING)
		return;
	task->wait = 0;
	make_ready(task);
}

/*
 * sim_wait
 *		Wait until somebody wakes this task, or it is this time.
 *
 * Returns false if nobody has.  It comes back at once if somebody has since
 * the last time.
 */
bool
sim_wait(int64_t until)
{
	bool		woken;

	if (!running->woken)
	{
		running->state = TASK_WAITING;
		running->wait = ++last_wait;
		if (until != SIM_NEVER)
			add_event((Event) {.at = until > now ? until : now,
							   .arg = running,.wait = running->wait});
		leave();
	}
	woken = running->woken;
	running->woken = false;
	return woken;
}

/* Sleep, whoever wakes this task; it stays woken. */
void
sim_sleep(int64_t us)
{
	bool		woken = running->woken;
	int64_t		until = now + us;

	while (now < until)
	{
		running->woken = false;
		running->state = TASK_WAITING;
		running->wait = ++last_wait;
		add_event((Event) {.at = until,.arg = running,.wait = running->wait});
		leave();
		woken |= running->woken;
	}
	running->woken = woken;
}

/*
 * The running task has read the clock: now and then it stands still, so that
 * what it knows of the time is old.
 */
void
sim_nap_behind_clock(void)
{
	if (running != NULL && !calm && wild.late_clocks > 0 &&
		sim_chance(wild.late_clocks))
		sim_sleep(sim_between(1, wild.longest_us));
}

/*
 * sim_yield
 *		Let others run, perhaps, and perhaps for long: a process may stand
 *		still at any point.
 */
void
sim_yield(void)
{
	if (running == NULL)
		return;
	if (yields_left > 0)
	{
		yields_left--;
		return;
	}
	yields_left = sim_below(2 * wild.yields);
	if (!calm && wild.naps > 0 && sim_below(wild.naps) == 0)
	{
		int64_t		us = sim_below(wild.sleeps) == 0 ?
			sim_between(1, wild.longest_us) : sim_between(1, 500);

		sim_sleep(us);
		return;
	}
	make_ready(running);
	leave();
}

/* From now on nobody stands still for longer than others take. */
void
schedule_calm(void)
{
	calm = true;
}

/* Whoever stood still goes on, if his machine does. */
void
schedule_thaw(void)
{
	for (Task *task = tasks; task != NULL; task = task->next)
		if (task->state == TASK_FROZEN && !process_is_frozen(task->process))
			make_ready(task);
}

static void
run_event(void)
{
	Event		event = take_event();
	Task	   *task = event.arg;

	if (event.at > now)
		now = event.at;
	if (event.handler != NULL)
	{
		sim_mix((uint64_t) now);
		event.handler(event.arg);
	}
	else if (task->state == TASK_WAITING && task->wait == event.wait)
	{
		task->wait = 0;
		make_ready(task);
	}
}

/*
 * schedule_run
 *		Run until this time.  Returns false if a checker has found something.
 */
bool
schedule_run(int64_t until)
{
	if (setjmp(failed) != 0)
	{
		running = NULL;
		return false;
	}
	while (now < until)
	{
		if (nevents > 0 && events[0].at <= now)
			run_event();
		else if (nready > 0)
		{
			size_t		i = sim_below((uint32_t) nready);
			Task	   *task = ready[i];

			ready[i] = ready[--nready];
			now += 1 + sim_below(STEP_US);
			if (process_is_frozen(task->process))
				task->state = TASK_FROZEN;
			else
				run_task(task);
		}
		else if (nevents > 0 && events[0].at <= until)
			run_event();
		else
			now = until;
	}
	return true;
}

void
schedule_begin(uint64_t seed, const Wildness *wildness)
{
	seed_state = seed * UINT64_C(0xD1342543DE82EF95) + 1;
	(void) sim_random();
	wild = *wildness;
	calm = false;
	now = 1000000;
	hash = UINT64_C(0xCBF29CE484222325);
	steps = 0;
	last_id = last_wait = last_event = 0;
	yields_left = 0;
	checker[0] = failure[0] = '\0';
}

void
schedule_set_wildness(const Wildness *wildness)
{
	wild = *wildness;
}

int64_t
schedule_longest_nap(void)
{
	return wild.naps > 0 ? wild.longest_us : 0;
}

void
schedule_end(void)
{
	for (Task *task = tasks; task != NULL; task = task->next)
		if (task->stack != NULL)
			give_stack(task->stack);
	tasks = NULL;
	running = NULL;
	nready = 0;
	nevents = 0;
	free_arena(&lasting);
	free_arena(&passing);
	lifetime = 0;
}

/* Is this behind the end of the running task's stack? */
bool
schedule_is_guard(const void *address)
{
	const char *stack = running ? running->stack : NULL;

	return stack != NULL && (const char *) address >= stack &&
		(const char *) address < stack + GUARD_SIZE;
}

uint64_t
schedule_hash(void)
{
	return hash;
}

uint64_t
schedule_steps(void)
{
	return steps;
}
