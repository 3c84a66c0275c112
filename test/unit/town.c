/*-------------------------------------------------------------------------
 *
 * town.c
 *		Instances with backends, tier 1, contenders and workers in virtual
 *		time, for core/deadlock.c; and the truth about their deadlocks.
 *
 * ZooKeeper is one history; each session's server has applied a part of it,
 * and its requests are carried out in order.  Contenders are created and
 * deleted through the same connection as the requests of deadlock.c.  What is
 * checked, whatever deadlock.c believes:
 *
 *	T1	All edges of a cycle that is ended were there at one moment.
 *	T2	When that is done nobody in it owns what he waits for, and all others'
 *		confirms are there.
 *	T3	A victim is in a deadlock, or was until what ended it was told.
 *	T4	No deadlock has two victims.
 *	T5	None fails who is only ahead of a member in tier 1.
 *	T6	No deadlock lasts.
 *	T7	In the end nothing is left in %waits.
 *	T8	Nothing is sent without a connection.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/unit/town.c
 *
 *-------------------------------------------------------------------------
 */
#include "town.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS				100000	/* generations in a run */
#define ZNODES			4000
#define CONTENDERS		20000
#define QUANTUM			(10 * MS)
#define NAME			256
#define NBACKENDS		(TOWN_INSTANCES * TOWN_BACKENDS)
#define MAX_EDGES		64

typedef struct Backend Backend;
typedef struct Instance Instance;

typedef struct Event
{
	int64_t		at;
	int64_t		number;
	void		(*run) (Town *t, void *of, uint64_t arg);
	void	   *of;
	uint64_t	arg;
} Event;

typedef struct Znode
{
	char		name[NAME];
	int64_t		born;			/* zxids */
	int64_t		died;
	int			session;
	int			nversions;
	struct
	{
		int64_t		zxid;
		char	   *data;
	}		   *versions;
} Znode;

typedef struct Contender
{
	int			lock;
	char		mode;
	Instance   *instance;		/* NULL: a stranger's */
	int			session;
	bool		alive;
} Contender;

/* A request under way. */
typedef struct Flight
{
	Request		requests[160];
	char	   *strings[160][3];
	int			n;
	int			lock;			/* or that of a contender, ... */
	int			delete;			/* ... to be deleted; -1: to be created */
	int64_t		arrives;
	bool		arrived;
	struct Flight *next;
} Flight;

typedef struct Held
{
	int			key;
	uint64_t	generation;
} Held;

struct Backend
{
	Instance   *instance;
	int			number;
	int			pid;
	int			tier;			/* waits in; 0: does not wait */
	int			key;			/* for */
	char		mode;
	uint64_t	wait;			/* generation */
	int64_t		since;
	bool		verdict;
	bool		stale;			/* an edge of its cycle has ended since */
	Held		stack[TOWN_KEYS];
	int			nstack;
	int			saves[TOWN_OPS];
	int			nsaves;
	Op			ops[TOWN_OPS];
	int			nops;
	int			op;
	bool		busy;
	uint64_t	began;
	uint64_t	step;
	uint64_t	budget;
	bool		source;			/* more scripts by chance */
};

typedef enum SlotState
{
	SLOT_NONE,
	SLOT_CREATING,
	SLOT_WANTED,
	SLOT_HELD,
	SLOT_DELETING
} SlotState;

typedef struct Slot
{
	SlotState	state;
	char		mode;
	int			contender;
	bool		queued;
	bool		contended;
	int			keeper;			/* contender; -1: none */
	int64_t		turn;			/* began then; -1: no */
	Backend    *waiters[TOWN_BACKENDS];
	int			nwaiters;
	uint64_t	holds[TOWN_BACKENDS];	/* generations; 0: does not hold */
} Slot;

struct Instance
{
	Town	   *town;
	int			number;
	char		id[16];
	Backend		backends[TOWN_BACKENDS];
	int			nbackends;
	char		holders[TOWN_KEYS][TOWN_BACKENDS];	/* tier 1: modes */
	Backend    *queue[TOWN_KEYS][TOWN_BACKENDS];
	int			nqueue[TOWN_KEYS];
	Slot		slots[TOWN_LOCKS];
	Deadlocks  *deadlocks;		/* NULL: no worker */
	/* the session */
	int			session;
	bool		up;
	bool		expired;
	uint64_t	epoch;
	int64_t		view;
	int64_t		applies;		/* the latest of the pending ones */
	int64_t		busy_until;
	int64_t		answers;
	bool		watches;
	Flight	   *flights;
	int64_t		disturbed;
	int64_t		tick_at;
};

struct Town
{
	uint64_t	random;
	int64_t		now;
	int64_t		timeout;
	int64_t		lag;
	Event	   *heap;
	int			nevents;
	int64_t		numbers;
	Instance	instances[TOWN_INSTANCES];
	int			ninstances;
	Znode	   *znodes;
	int			nznodes;
	int			sequence;
	int64_t		zxid;
	int64_t		children_changed;	/* zxid */
	Contender  *contenders;
	int			ncontenders;
	int			sessions;
	uint64_t	ids;
	int64_t    *born;			/* by generation: us */
	int64_t    *gone;
	char	   *cause;			/* how its deadlock ended: 'v' verdict */
	int64_t    *dead_since;		/* -1: in no deadlock */
	int64_t    *dead_until;		/* -1: never was in one */
	bool		dirty;
	char		label;			/* what happens: 'v' verdict, else ' ' */
	int64_t		progress;
	int			forged;
	bool		reaches[NBACKENDS][NBACKENDS];
	bool		edge[NBACKENDS][NBACKENDS];
	char		violation[NAME];
	void		(*on_act) (Town *town, int instance);
	TownStats	stats;
};

static void work(Instance *i, int lock);
static void pump(Instance *i);
static void over(Instance *i, uint64_t generation);
static void town_wake(Instance *i, int key);
static void backend_next(Town *t, void *of, uint64_t step);
static void backend_fail(Backend *b, bool verdict);

/*-------------------------------------------------------------------------
 * Time and chance.  One statement makes one choice: in which order a call's
 * arguments are evaluated depends on the compiler.
 *-------------------------------------------------------------------------
 */

static int64_t
chance(Town *t, int64_t from, int64_t to)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return from + (int64_t) ((t->random >> 11) % (uint64_t) (to - from + 1));
}

static bool
percent(Town *t, int n)
{
	return chance(t, 1, 100) <= n;
}

/* With TOWN_TRACE in the environment: what happens. */
#define trace(t, ...) \
	(getenv("TOWN_TRACE") ? (printf("%8lld ", (long long) (t)->now / 1000), \
							 printf(__VA_ARGS__), printf("\n")) : 0)

static void
violation(Town *t, const char *what)
{
	if (t->violation[0] == '\0')
		trace(t, "%s", what);
	if (t->violation[0] == '\0')
		(void) snprintf(t->violation, NAME, "%s", what);
}

static bool
is_before(const Event *a, const Event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void
at(Town *t, int64_t delay, void (*run) (Town *t, void *of, uint64_t arg),
   void *of, uint64_t arg)
{
	Event		event = {t->now + delay, ++t->numbers, run, of, arg};
	int			i = t->nevents++;

	if ((i & (i - 1)) == 0)
		t->heap = realloc(t->heap,
						  (i == 0 ? 1 : 2 * (size_t) i) * sizeof(Event));
	while (i > 0 && is_before(&event, &t->heap[(i - 1) / 2]))
	{
		t->heap[i] = t->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	t->heap[i] = event;
}

static Event
pop(Town *t)
{
	Event		first = t->heap[0];
	Event		last = t->heap[--t->nevents];
	int			i = 0;

	for (;;)
	{
		int			child = 2 * i + 1;

		if (child + 1 < t->nevents &&
			is_before(&t->heap[child + 1], &t->heap[child]))
			child++;
		if (child >= t->nevents || !is_before(&t->heap[child], &last))
			break;
		t->heap[i] = t->heap[child];
		i = child;
	}
	t->heap[i] = last;
	return first;
}

static uint64_t
make_id(Town *t)
{
	if (t->ids + 1 >= IDS)
	{
		violation(t, "model: too many generations");
		return IDS - 1;
	}
	t->ids++;
	t->born[t->ids] = t->now;
	t->gone[t->ids] = INT64_MAX;
	t->dead_since[t->ids] = t->dead_until[t->ids] = -1;
	return t->ids;
}

/*-------------------------------------------------------------------------
 * ZooKeeper
 *-------------------------------------------------------------------------
 */

static Znode *
find_znode(Town *t, const char *name, int64_t zxid)
{
	for (int i = t->nznodes - 1; i >= 0; i--)
		if (t->znodes[i].born <= zxid && zxid < t->znodes[i].died &&
			strcmp(t->znodes[i].name, name) == 0)
			return &t->znodes[i];
	return NULL;
}

static void
set_znode(Znode *z, int64_t zxid, const char *data)
{
	int			n = z->nversions++;

	if ((n & (n - 1)) == 0)
		z->versions = realloc(z->versions, (n == 0 ? 1 : 2 * (size_t) n) *
							  sizeof(*z->versions));
	z->versions[n].zxid = zxid;
	z->versions[n].data = strdup(data ? data : "");
}

static Znode *
make_znode(Town *t, const char *name, const char *data, int session)
{
	Znode	   *z = &t->znodes[t->nznodes];

	if (t->nznodes + 1 < ZNODES)
		t->nznodes++;
	else
		violation(t, "model: too many znodes");
	memset(z, 0, sizeof(*z));
	(void) snprintf(z->name, NAME, "%s", name);
	z->born = t->zxid;
	z->died = INT64_MAX;
	z->session = session;
	set_znode(z, t->zxid, data);
	t->children_changed = t->zxid;
	return z;
}

/* A session's server has applied this. */
static void
set_view(Instance *i, int64_t zxid)
{
	if (zxid > i->view)
		i->view = zxid;
}

static void
deliver_watch(Town *t, void *of, uint64_t epoch)
{
	Instance   *i = of;
	RequestAnswer answer = {.event = REQUEST_NODE_TOUCHED};

	if (epoch != i->epoch || i->deadlocks == NULL)
		return;
	deadlock_answer(i->deadlocks, &answer, t->now);
	pump(i);
}

static int64_t
answer_time(Instance *i)
{
	Town	   *t = i->town;
	int64_t		time = t->now + chance(t, MS, MESSAGE);

	if (time > i->answers)
		i->answers = time;
	return i->answers - t->now;
}

static void
fire(Instance *i, int64_t before)
{
	Town	   *t = i->town;

	if (i->watches && t->children_changed > before &&
		i->view >= t->children_changed)
	{
		i->watches = false;
		at(t, answer_time(i), deliver_watch, i, i->epoch);
	}
}

static void
apply_view(Town *t, void *of, uint64_t zxid)
{
	Instance   *i = of;
	int64_t		before = i->view;

	(void) t;
	set_view(i, (int64_t) zxid);
	fire(i, before);
}

/* Something has been committed: servers apply it when they do. */
static void
committed(Town *t)
{
	static const int64_t lags[] = {1, 5, 20, 0};

	for (int n = 0; n < t->ninstances; n++)
	{
		Instance   *i = &t->instances[n];
		int64_t		lag = lags[chance(t, 0, 3)] * MS;
		int64_t		time = t->now + (lag == 0 ? t->lag : lag);

		if (time > i->applies)
			i->applies = time;
		at(t, i->applies - t->now, apply_view, i, (uint64_t) t->zxid);
	}
	t->dirty = true;
}

static bool
precedes(Town *t, int a, char mode)
{
	return t->contenders[a].alive &&
		(mode == 'x' || t->contenders[a].mode == 'x');
}

/* What a list of a lock's queue says to an instance: is it the owner? */
static bool
read_queue(Instance *i, int lock, int64_t *ahead)
{
	Town	   *t = i->town;
	Slot	   *s = &i->slots[lock];
	int			before = -1;
	int			behind = -1;

	*ahead = -1;
	s->contended = false;
	for (int c = 0; c < t->ncontenders; c++)
	{
		if (t->contenders[c].lock != lock || c == s->contender ||
			!t->contenders[c].alive)
			continue;
		if (c < s->contender && precedes(t, c, s->mode))
			*ahead = c;
		if (c > s->contender && precedes(t, c, s->mode))
			s->contended = true;
		if (t->contenders[c].mode == 'x' && c < s->contender)
			before = c;
		if (t->contenders[c].mode == 'x' && c > s->contender && behind < 0)
			behind = c;
	}
	s->keeper = *ahead >= 0 ? before : behind;
	return *ahead < 0;
}

static void notice(Town *t, void *of, uint64_t lock);

static void
queue_changed(Town *t, int lock)
{
	t->zxid++;
	committed(t);
	for (int n = 0; n < t->ninstances; n++)
		at(t, chance(t, MS, MESSAGE), notice, &t->instances[n],
		   (uint64_t) lock);
}

static int
make_contender(Town *t, Instance *i, int lock, char mode)
{
	int			c = t->ncontenders;

	if (c + 1 >= CONTENDERS)
	{
		violation(t, "model: too many contenders");
		return c;
	}
	t->ncontenders++;
	t->contenders[c].lock = lock;
	t->contenders[c].mode = mode;
	t->contenders[c].instance = i;
	t->contenders[c].session = i ? i->session : -1;
	t->contenders[c].alive = true;
	return c;
}

static void
delete_contender(Town *t, int c)
{
	if (t->contenders[c].alive)
	{
		t->contenders[c].alive = false;
		queue_changed(t, t->contenders[c].lock);
	}
}

/* T1, T2: an act is carried out. */
static void check_act(Instance *i, const char *hash);

/* Can a request of a group be carried out? */
static bool
can_do(Town *t, Instance *i, const Request *r)
{
	const Znode *z;

	if (r->kind == REQUEST_CHECK && strcmp(r->path, "/w") != 0)
		return t->contenders[atoi(r->node + 1)].alive;
	if (r->kind == REQUEST_MKDIRS)
		return true;
	z = find_znode(t, r->node, t->zxid);
	if (r->kind == REQUEST_CREATE)
		return !r->exact || z == NULL;
	(void) i;
	return z != NULL && (!r->has_version || z->nversions - 1 == r->version);
}

static void
do_request(Town *t, Instance *i, const Request *r, char *made)
{
	Znode	   *z;
	char		name[NAME];

	switch (r->kind)
	{
		case REQUEST_CREATE:
			if (r->exact)
				(void) snprintf(name, NAME, "%s", r->node);
			else
				(void) snprintf(name, NAME, "%s%010d", r->node,
								t->sequence++);
			(void) make_znode(t, name, r->data, i->session);
			strcpy(made, name);
			break;
		case REQUEST_SET:
			set_znode(find_znode(t, r->node, t->zxid), t->zxid, r->data);
			break;
		case REQUEST_DELETE:
			z = find_znode(t, r->node, t->zxid - 1);
			z->died = t->zxid;
			t->children_changed = t->zxid;
			break;
		default:
			break;
	}
}

typedef struct Answer
{
	RequestAnswer answer;
	char	  **children;
	char	   *data;
	char		node[NAME];
	uint64_t	epoch;
	Instance   *instance;
} Answer;

static void
deliver(Town *t, void *of, uint64_t arg)
{
	Answer	   *a = of;
	Instance   *i = a->instance;

	(void) arg;
	if (a->epoch == i->epoch && i->deadlocks != NULL &&
		t->violation[0] == '\0')
	{
		deadlock_answer(i->deadlocks, &a->answer, t->now);
		pump(i);
	}
	for (int n = 0; n < a->answer.nchildren; n++)
		free(a->children[n]);
	free(a->children);
	free(a->data);
	free(a);
}

static void
read_children(Town *t, Instance *i, Answer *a)
{
	int			n = 0;

	a->children = malloc((size_t) (t->nznodes + 1) * sizeof(char *));
	for (int k = 0; k < t->nznodes; k++)
		if (t->znodes[k].born <= i->view && i->view < t->znodes[k].died)
			a->children[n++] = strdup(t->znodes[k].name);
	a->answer.children = (const char *const *) a->children;
	a->answer.nchildren = n;
}

static void
read_znode(Town *t, Instance *i, const char *name, Answer *a)
{
	const Znode *z = find_znode(t, name, i->view);
	int			version;

	t->stats.gets++;
	if (z == NULL)
	{
		a->answer.result = REQUEST_NO_NODE;
		return;
	}
	version = z->nversions - 1;
	while (version > 0 && z->versions[version].zxid > i->view)
		version--;
	a->data = strdup(z->versions[version].data);
	a->answer.data = a->data;
	a->answer.data_len = (int) strlen(a->data);
	a->answer.version = version;
	a->answer.ours = z->session == i->session;
}

/* Carry out what has arrived, and answer its last request. */
static void
execute(Instance *i, Flight *f, bool answered)
{
	Town	   *t = i->town;
	const Request *r = &f->requests[f->n > 0 ? f->n - 1 : 0];
	Answer	   *a;
	bool		can = true;
	bool		write = false;

	if (f->n == 0)
	{
		Slot	   *s = &i->slots[f->lock];

		if (f->delete < 0 && !i->expired)
		{
			s->contender = make_contender(t, i, f->lock, s->mode);
			queue_changed(t, f->lock);
		}
		if (f->delete >= 0)
			delete_contender(t, f->delete);
		apply_view(t, i, (uint64_t) t->zxid);
		return;
	}
	a = calloc(1, sizeof(Answer));
	a->instance = i;
	a->epoch = i->epoch;
	a->answer.event = REQUEST_DONE;
	a->answer.serial = r->serial;
	a->answer.kind = r->kind;
	a->answer.result = REQUEST_OK;
	for (int n = 0; n < f->n; n++)
	{
		RequestKind kind = f->requests[n].kind;

		if (kind == REQUEST_CREATE || kind == REQUEST_SET ||
			kind == REQUEST_DELETE || kind == REQUEST_CHECK)
		{
			write = true;
			can = can && !i->expired && can_do(t, i, &f->requests[n]);
		}
	}
	if (write)
		trace(t, "%s: %s %s", i->id, r->node ? r->node : "",
			  can ? "done" : "refused");
	if (write && can)
	{
		int64_t		before = i->view;

		t->zxid++;
		for (int n = 0; n < f->n; n++)
			do_request(t, i, &f->requests[n], a->node);
		if (f->n > 1 && strncmp(r->node, "ended.", 6) == 0)
			check_act(i, r->node + 6);
		a->answer.node = a->node;
		t->stats.writes++;
		committed(t);
		set_view(i, t->zxid);
		fire(i, before);
	}
	else if (write)
	{
		a->answer.result = REQUEST_REFUSED;
		if (f->n > 1)
			t->stats.failed_acts++;
	}
	if (r->kind == REQUEST_SEARCH)
	{
		int64_t		before = i->view;

		set_view(i, t->zxid);
		fire(i, before);
	}
	if (r->kind == REQUEST_LIST)
		i->watches = true;
	if (r->kind == REQUEST_LIST || r->kind == REQUEST_CHILDREN)
		t->stats.looks++;
	if (r->kind == REQUEST_SEARCH || r->kind == REQUEST_LIST ||
		r->kind == REQUEST_CHILDREN)
		read_children(t, i, a);
	if (r->kind == REQUEST_GET)
		read_znode(t, i, r->node, a);
	if (!answered)
		a->epoch = 0;
	at(t, answer_time(i), deliver, a, 0);
}

static void
free_flight(Flight *f)
{
	for (int n = 0; n < f->n; n++)
		for (int k = 0; k < 3; k++)
			free(f->strings[n][k]);
	free(f);
}

static void
contender_answered(Town *t, void *of, uint64_t arg)
{
	Instance   *i = of;
	int			lock = (int) (arg & 0xFF);
	Slot	   *s = &i->slots[lock];
	int64_t		ahead;

	if (arg >> 8 != i->epoch)
		return;
	if (s->state == SLOT_CREATING)
	{
		s->state = SLOT_WANTED;
		s->queued = false;
		(void) read_queue(i, lock, &ahead);
		notice(t, i, (uint64_t) lock);
	}
	else if (s->state == SLOT_DELETING)
	{
		s->state = SLOT_NONE;
		s->queued = s->contended = false;
		work(i, lock);
	}
}

static void
arrive(Town *t, void *of, uint64_t epoch)
{
	Instance   *i = of;
	Flight	   *f = i->flights;

	if (epoch != i->epoch || f == NULL)
		return;
	i->flights = f->next;
	execute(i, f, true);
	if (f->n == 0)
		at(t, answer_time(i), contender_answered, i,
		   epoch << 8 | (uint64_t) f->lock);
	free_flight(f);
}

static void
submit(Instance *i, Flight *f)
{
	Town	   *t = i->town;
	Flight	  **last = &i->flights;

	while (*last)
		last = &(*last)->next;
	*last = f;
	f->next = NULL;
	if (i->busy_until < t->now)
		i->busy_until = t->now;
	i->busy_until += chance(t, MS, MESSAGE / 4);
	at(t, i->busy_until - t->now, arrive, i, i->epoch);
}

static void
copy_request(Instance *i, Flight *f, const Request *r)
{
	trace(i->town, "%s sends %d %s group %u %s", i->id, r->kind,
		  r->node ? r->node : "", r->group, r->data ? r->data : "");
	if (f->n == 160)
		abort();
	f->requests[f->n] = *r;
	f->strings[f->n][0] = strdup(r->path);
	f->strings[f->n][1] = r->node ? strdup(r->node) : NULL;
	f->strings[f->n][2] = r->data ? strdup(r->data) : NULL;
	f->requests[f->n].path = f->strings[f->n][0];
	f->requests[f->n].node = f->strings[f->n][1];
	f->requests[f->n].data = f->strings[f->n][2];
	f->n++;
}

static void scan(Instance *i);

static void
do_scan(Town *t, void *of, uint64_t epoch)
{
	Instance   *i = of;

	(void) t;
	if (epoch == i->epoch && i->deadlocks && deadlock_wants_scan(i->deadlocks))
		scan(i);
}

static void
tick(Town *t, void *of, uint64_t arg)
{
	Instance   *i = of;

	(void) arg;
	i->tick_at = 0;
	if (i->deadlocks && deadlock_wake(i->deadlocks) <= t->now)
		deadlock_tick(i->deadlocks, t->now);
	pump(i);
}

/* The verdict, from the slot. */
static void
take_verdict(Town *t, void *of, uint64_t arg)
{
	Backend    *b = of;

	if (b->tier != 2 || b->wait != arg / 2 || !b->verdict)
		return;
	t->label = 'v';
	if (arg % 2 == 0)
		backend_fail(b, true);
	else
	{
		int			lock = b->key;
		Instance   *i = b->instance;
		Slot	   *s = &i->slots[lock];

		t->stats.requeues++;
		for (int n = 0; n < s->nwaiters; n++)
			if (s->waiters[n] == b)
				s->waiters[n--] = s->waiters[--s->nwaiters];
		b->tier = 0;
		over(i, b->wait);
		i->holders[lock][b->number] = 0;
		b->step = make_id(t);
		at(t, 0, backend_next, b, b->step);
		town_wake(i, lock);
		work(i, lock);
	}
}

static void
span(Town *t, uint64_t generation, int64_t *from, int64_t *to)
{
	if (generation > t->ids)
	{
		violation(t, "T1: an edge is not ours");
		return;
	}
	if (t->born[generation] > *from)
		*from = t->born[generation];
	if (t->gone[generation] < *to)
		*to = t->gone[generation];
}

/* From when until when was an edge there? */
static void
span_edge(Town *t, const DeadlockEdge *e, int64_t *from, int64_t *to)
{
	const char *way = e->way;

	span(t, e->from.generation, from, to);
	span(t, e->to.generation, from, to);
	while (*way != '\0')
	{
		way = strchr(way, '.') + 1;
		span(t, strtoull(way, NULL, 16), from, to);
		way += strcspn(way, ",");
		way += *way == ',';
	}
}

static void
on_outcome(Instance *i, const DeadlockOutcome *outcome)
{
	Town	   *t = i->town;
	const DeadlockVertex *to = &outcome->edges[outcome->victim]->to;
	Backend    *b = &i->backends[to->pid % 100];

	if (!outcome->verdict)
		return;
	if (b->tier == 2 && b->wait == to->generation)
	{
		int64_t		from = 0;
		int64_t		to = INT64_MAX;

		for (int n = 0; n < outcome->nedges; n++)
			span_edge(t, outcome->edges[n], &from, &to);
		b->stale = to < INT64_MAX;
		b->verdict = true;
		at(t, chance(t, 0, 3) * MS, take_verdict, b,
		   b->wait * 2 + outcome->requeue);
	}
	else
		t->stats.late++;
}

/* Take out of the worker's part what it has. */
static void
pump(Instance *i)
{
	Town	   *t = i->town;
	Flight	   *f = NULL;
	Request		r;
	DeadlockOutcome outcome;
	int64_t		wake;

	if (i->deadlocks == NULL)
		return;
	while (deadlock_request(i->deadlocks, &r))
	{
		if (!i->up)
			violation(t, "T8: a request without a connection");
		if (f != NULL && (r.group == 0 || f->requests[0].group != r.group))
		{
			submit(i, f);
			f = NULL;
		}
		if (f == NULL)
		{
			f = calloc(1, sizeof(Flight));
		}
		copy_request(i, f, &r);
		if (r.node && r.group && strncmp(r.node, "ended.", 6) == 0 &&
			t->on_act)
		{
			void		(*on_act) (Town *town, int instance) = t->on_act;

			t->on_act = NULL;
			submit(i, f);
			f = NULL;
			on_act(t, i->number);
		}
		if (i->deadlocks == NULL)
			break;
	}
	if (f != NULL)
		submit(i, f);
	if (i->deadlocks == NULL)
		return;
	while (deadlock_outcome(i->deadlocks, &outcome))
		on_outcome(i, &outcome);
	if (deadlock_wants_scan(i->deadlocks))
		at(t, 0, do_scan, i, i->epoch);
	wake = deadlock_wake(i->deadlocks);
	if (wake < t->now)
		wake = t->now;
	if (wake < INT64_MAX && (i->tick_at <= t->now || wake < i->tick_at))
	{
		i->tick_at = wake;
		at(t, wake - t->now, tick, i, 0);
	}
}

/*-------------------------------------------------------------------------
 * Tier 1
 *-------------------------------------------------------------------------
 */

static bool
conflicts(char a, char b)
{
	return a == 'x' || b == 'x';
}

static bool
may_have(Instance *i, int key, const Backend *b, int nahead)
{
	for (int n = 0; n < i->nbackends; n++)
		if (i->holders[key][n] && n != b->number &&
			conflicts(b->mode, i->holders[key][n]))
			return false;
	for (int n = 0; n < nahead; n++)
		if (conflicts(b->mode, i->queue[key][n]->mode))
			return false;
	return true;
}

static void
end_wait(Backend *b)
{
	b->instance->town->gone[b->wait] = b->instance->town->now;
	b->tier = 0;
	b->instance->town->dirty = true;
}

static void
leave_queue(Instance *i, int key, Backend *b)
{
	int			n = 0;

	for (int k = 0; k < i->nqueue[key]; k++)
		if (i->queue[key][k] != b)
			i->queue[key][n++] = i->queue[key][k];
	i->nqueue[key] = n;
}

static void
town_wake(Instance *i, int key)
{
	for (int n = 0; n < i->nqueue[key];)
	{
		Backend    *b = i->queue[key][n];

		if (!may_have(i, key, b, n))
		{
			n++;
			continue;
		}
		leave_queue(i, key, b);
		i->holders[key][b->number] = b->mode;
		end_wait(b);
		b->step = make_id(i->town);
		at(i->town, 0, backend_next, b, b->step);
	}
}

/* Whom a backend waits for in tier 1; returns how many. */
static int
blockers(const Backend *b, Backend **list, bool *hard)
{
	Instance   *i = b->instance;
	int			n = 0;

	for (int k = 0; k < i->nbackends; k++)
		if (i->holders[b->key][k] && k != b->number &&
			conflicts(b->mode, i->holders[b->key][k]))
		{
			hard[n] = true;
			list[n++] = &i->backends[k];
		}
	for (int k = 0; k < i->nqueue[b->key] && i->queue[b->key][k] != b; k++)
		if (conflicts(b->mode, i->queue[b->key][k]->mode))
		{
			hard[n] = false;
			list[n++] = i->queue[b->key][k];
		}
	return n;
}

static bool
find_circle(Backend *p, Backend *b, bool *seen, Backend **soft)
{
	Backend    *list[2 * TOWN_BACKENDS];
	bool		hard[2 * TOWN_BACKENDS];
	int			n = p->tier == 1 ? blockers(p, list, hard) : 0;

	for (int k = 0; k < n; k++)
	{
		bool		found = list[k] == b;

		if (!found && !seen[list[k]->number])
		{
			seen[list[k]->number] = true;
			found = find_circle(list[k], b, seen, soft);
		}
		if (found)
		{
			if (!hard[k])
			{
				soft[0] = p;
				soft[1] = list[k];
			}
			return true;
		}
	}
	return false;
}

/* PostgreSQL's own detector. */
static void
detect(Town *t, void *of, uint64_t wait)
{
	Backend    *b = of;
	bool		seen[TOWN_BACKENDS] = {0};
	Backend    *soft[2] = {NULL, NULL};

	if (b->tier != 1 || b->wait != wait || !find_circle(b, b, seen, soft))
		return;
	if (soft[0] != NULL)
	{
		Instance   *i = b->instance;
		int			key = soft[0]->key;
		int			n;

		leave_queue(i, key, soft[0]);
		n = i->nqueue[key]++;
		while (n > 0 && i->queue[key][n - 1] != soft[1])
		{
			i->queue[key][n] = i->queue[key][n - 1];
			n--;
		}
		i->queue[key][n] = soft[1];
		i->queue[key][n - 1] = soft[0];
		town_wake(i, key);
		t->dirty = true;
		at(t, 0, detect, b, wait);
	}
	else
		backend_fail(b, false);
}

/* Take a lock of tier 1, or wait. */
static bool
tier1(Backend *b, int key, char mode)
{
	Instance   *i = b->instance;

	if (i->holders[key][b->number])
		return true;
	b->key = key;
	b->mode = mode;
	if (may_have(i, key, b, i->nqueue[key]))
	{
		i->holders[key][b->number] = mode;
		return true;
	}
	b->tier = 1;
	b->verdict = false;
	b->wait = make_id(i->town);
	b->since = i->town->now;
	i->queue[key][i->nqueue[key]++] = b;
	i->town->dirty = true;
	at(i->town, i->town->timeout, detect, b, b->wait);
	return false;
}

/*-------------------------------------------------------------------------
 * Tier 2
 *-------------------------------------------------------------------------
 */

static bool
has_holders(const Slot *s)
{
	for (int n = 0; n < TOWN_BACKENDS; n++)
		if (s->holds[n])
			return true;
	return false;
}

static bool
is_turn_over(const Instance *i, const Slot *s)
{
	return s->contended && s->turn >= 0 && i->town->now > s->turn + QUANTUM;
}

static bool
may_join(const Instance *i, const Slot *s, char mode)
{
	return s->state == SLOT_HELD && s->mode == mode && !is_turn_over(i, s) &&
		(mode == 's' || !has_holders(s));
}

static void
work_soon(Town *t, void *of, uint64_t lock)
{
	(void) t;
	work(of, (int) lock);
}

static void
kick(Instance *i, int lock)
{
	at(i->town, chance(i->town, 1, 3) * MS, work_soon, i, (uint64_t) lock);
}

static void
next_op(Backend *b)
{
	b->budget = 0;
	b->op++;
	b->step = make_id(b->instance->town);
	at(b->instance->town, chance(b->instance->town, 1, 30) * MS, backend_next,
	   b, b->step);
}

static void
take_slot(Instance *i, int lock, Backend *b)
{
	Slot	   *s = &i->slots[lock];

	s->holds[b->number] = make_id(i->town);
	b->stack[b->nstack].key = lock;
	b->stack[b->nstack++].generation = s->holds[b->number];
	i->town->dirty = true;
	if (s->turn < 0)
		s->turn = i->town->now;
	kick(i, lock);
	next_op(b);
}

static void
over(Instance *i, uint64_t generation)
{
	i->town->gone[generation] = i->town->now;
	if (i->deadlocks != NULL && i->up)
	{
		deadlock_over(i->deadlocks, generation, i->town->now);
		pump(i);
	}
}

static void
grant(Instance *i, int lock)
{
	Slot	   *s = &i->slots[lock];

	for (int n = 0; n < s->nwaiters;)
	{
		Backend    *b = s->waiters[n];

		if (!may_join(i, s, b->mode) || b->verdict)
		{
			n++;
			continue;
		}
		for (int k = n + 1; k < s->nwaiters; k++)
			s->waiters[k - 1] = s->waiters[k];
		s->nwaiters--;
		end_wait(b);
		over(i, b->wait);
		take_slot(i, lock, b);
	}
}

static bool
has_waiter(const Slot *s, char mode)
{
	for (int n = 0; n < s->nwaiters; n++)
		if (s->waiters[n]->mode == mode)
			return true;
	return false;
}

static void
send_contender(Instance *i, int lock, int delete)
{
	Flight	   *f = calloc(1, sizeof(Flight));

	f->lock = lock;
	f->delete = delete;
	submit(i, f);
}

/* What the worker does for a slot. */
static void
work(Instance *i, int lock)
{
	Slot	   *s = &i->slots[lock];
	bool		idle;

	if (!i->up || i->deadlocks == NULL)
		return;
	if (s->state == SLOT_NONE && s->nwaiters > 0)
	{
		s->state = SLOT_CREATING;
		s->mode = s->waiters[0]->mode;
		s->contender = -1;
		send_contender(i, lock, -1);
		return;
	}
	if (s->state == SLOT_HELD)
		grant(i, lock);
	idle = s->state == SLOT_HELD && !has_holders(s);
	for (int n = 0; n < s->nwaiters && idle; n++)
		idle = !may_join(i, s, s->waiters[n]->mode);
	if (idle || (s->state == SLOT_WANTED && !has_waiter(s, s->mode)))
	{
		s->state = SLOT_DELETING;
		send_contender(i, lock, s->contender);
	}
}

/* An instance learns of its place in a queue. */
static void
notice(Town *t, void *of, uint64_t number)
{
	Instance   *i = of;
	int			lock = (int) number;
	Slot	   *s = &i->slots[lock];
	bool		contended = s->contended;
	int			keeper = s->keeper;
	int64_t		ahead;
	bool		owner;

	if (!i->up || i->deadlocks == NULL ||
		(s->state != SLOT_WANTED && s->state != SLOT_HELD) ||
		!t->contenders[s->contender].alive)
		return;
	owner = read_queue(i, lock, &ahead);
	t->dirty = true;
	if (s->state == SLOT_WANTED && owner)
	{
		s->state = SLOT_HELD;
		s->turn = -1;
		s->queued = false;
		grant(i, lock);
		(void) read_queue(i, lock, &ahead);
	}
	else if (s->state == SLOT_WANTED)
		s->queued = true;
	if (s->state == SLOT_HELD && s->contended && !contended)
	{
		if (s->turn >= 0)
			s->turn = t->now;
		at(t, QUANTUM + MS, work_soon, i, (uint64_t) lock);
	}
	if ((s->contended && !contended) || s->keeper != keeper)
		scan(i);
	work(i, lock);
}

/*-------------------------------------------------------------------------
 * Backends
 *-------------------------------------------------------------------------
 */

static void
give_back(Backend *b, int upto)
{
	Instance   *i = b->instance;

	while (b->nstack > upto)
	{
		Held		held = b->stack[--b->nstack];

		if (held.key < TOWN_LOCKS && i->slots[held.key].holds[b->number])
		{
			i->slots[held.key].holds[b->number] = 0;
			over(i, held.generation);
			kick(i, held.key);
		}
		i->holders[held.key][b->number] = 0;
		town_wake(i, held.key);
	}
	i->town->dirty = true;
}

static void
stop_waiting(Backend *b)
{
	Instance   *i = b->instance;
	int			tier = b->tier;

	if (tier == 0)
		return;
	end_wait(b);
	if (tier == 1)
	{
		leave_queue(i, b->key, b);
		town_wake(i, b->key);
	}
	else
	{
		Slot	   *s = &i->slots[b->key];

		for (int n = 0; n < s->nwaiters; n++)
			if (s->waiters[n] == b)
			{
				for (int k = n + 1; k < s->nwaiters; k++)
					s->waiters[k - 1] = s->waiters[k];
				s->nwaiters--;
			}
		over(i, b->wait);
		kick(i, b->key);
	}
}

static void script_by_chance(Backend *b, int64_t at);

static void
backend_end(Backend *b)
{
	Instance   *i = b->instance;

	give_back(b, 0);
	for (int key = 0; key < TOWN_KEYS; key++)
		if (i->holders[key][b->number])
		{
			i->holders[key][b->number] = 0;
			town_wake(i, key);
		}
	b->busy = false;
	b->nsaves = b->nops = b->op = 0;
	b->budget = 0;
	b->step = make_id(i->town);
	if (b->source && i->town->now < 15000 * MS)
		script_by_chance(b, chance(i->town, 1, 200) * MS);
}

static void
end_soon(Town *t, void *of, uint64_t step)
{
	Backend    *b = of;

	(void) t;
	if (b->step == step && b->busy)
		backend_end(b);
}

static void check_victim(Backend *b);

static void
backend_fail(Backend *b, bool verdict)
{
	Town	   *t = b->instance->town;

	trace(t, "%d fails%s", b->pid, verdict ? ": victim" : "");
	if (verdict)
		check_victim(b);
	stop_waiting(b);
	b->step = make_id(t);
	at(t, chance(t, 0, 5) * MS, end_soon, b, b->step);
}

static void
time_out(Town *t, void *of, uint64_t budget)
{
	Backend    *b = of;

	(void) t;
	if (b->budget == budget && b->tier != 0)
		backend_fail(b, false);
}

static bool
holds_key(const Backend *b, int key)
{
	for (int n = 0; n < b->nstack; n++)
		if (b->stack[n].key == key)
			return true;
	return false;
}

static void
scan_if_waits(Town *t, void *of, uint64_t wait)
{
	Backend    *b = of;

	(void) t;
	if (b->tier == 2 && b->wait == wait)
		scan(b->instance);
}

static void
tier2(Backend *b, int lock)
{
	Instance   *i = b->instance;
	Slot	   *s = &i->slots[lock];

	if (may_join(i, s, b->mode) && i->up)
	{
		take_slot(i, lock, b);
		return;
	}
	b->tier = 2;
	b->key = lock;
	b->verdict = false;
	b->wait = make_id(i->town);
	b->since = i->town->now;
	trace(i->town, "%d waits for %d in tier 2: %llu", b->pid, lock,
		  (unsigned long long) b->wait);
	s->waiters[s->nwaiters++] = b;
	i->town->dirty = true;
	at(i->town, i->town->timeout, scan_if_waits, b, b->wait);
	kick(i, lock);
}

static void
backend_lock(Backend *b, const Op *op)
{
	Town	   *t = b->instance->town;

	if (op->time > 0 && b->budget == 0)
	{
		b->budget = make_id(t);
		at(t, op->time, time_out, b, b->budget);
	}
	if (op->kind == OP_LOCK)
	{
		if (holds_key(b, op->lock))
			next_op(b);
		else if (tier1(b, op->lock, op->mode))
		{
			b->mode = op->mode;
			tier2(b, op->lock);
		}
		return;
	}
	if (holds_key(b, TOWN_LOCKS + op->lock))
		next_op(b);
	else if (tier1(b, TOWN_LOCKS + TOWN_ROWS + op->lock, 'x') &&
			 tier1(b, TOWN_LOCKS + op->lock, 'x'))
	{
		int			tuple = TOWN_LOCKS + TOWN_ROWS + op->lock;

		b->instance->holders[tuple][b->number] = 0;
		town_wake(b->instance, tuple);
		b->stack[b->nstack++].key = TOWN_LOCKS + op->lock;
		next_op(b);
	}
}

static void
backend_next(Town *t, void *of, uint64_t number)
{
	Backend    *b = of;
	const Op   *op;

	if (number != b->step || b->tier != 0)
		return;
	t->dirty = true;
	if (b->op >= b->nops)
	{
		backend_end(b);
		return;
	}
	op = &b->ops[b->op];
	if (op->kind == OP_LOCK || op->kind == OP_ROW)
	{
		backend_lock(b, op);
		return;
	}
	if (op->kind == OP_SAVE)
		b->saves[b->nsaves++] = b->nstack;
	else if (op->kind == OP_ROLLBACK_TO && b->nsaves > 0)
		give_back(b, b->saves[--b->nsaves]);
	b->op++;
	b->step = make_id(t);
	at(t, op->kind == OP_SLEEP ? op->time : chance(t, 1, 30) * MS,
	   backend_next, b, b->step);
}

static void
backend_start(Backend *b, int64_t delay, const Op *ops, int nops)
{
	Town	   *t = b->instance->town;

	memcpy(b->ops, ops, (size_t) nops * sizeof(Op));
	b->nops = nops;
	b->op = 0;
	b->busy = true;
	b->step = make_id(t);
	b->began = (uint64_t) (t->now + delay);
	at(t, delay, backend_next, b, b->step);
}

/*-------------------------------------------------------------------------
 * A scan: the edges of an instance, at one moment
 *-------------------------------------------------------------------------
 */

typedef struct Ways
{
	DeadlockEdge *edges;
	int			nedges;
	char		ways[MAX_EDGES][NAME];
	char		keepers[MAX_EDGES][NAME];
	struct
	{
		Backend    *end;
		bool		ahead;
		char		way[NAME];
	}			found[MAX_EDGES];
	int			nfound;
} Ways;

static const char *const lock_names[] = {"/z/x", "/z/y", "/z/z", "/z/w"};

static void
walk(Ways *w, Backend *p, const char *way, bool ahead, unsigned seen)
{
	Backend    *list[2 * TOWN_BACKENDS];
	bool		hard[2 * TOWN_BACKENDS];
	int			n;

	if (p->tier == 2 && w->nfound < MAX_EDGES)
	{
		w->found[w->nfound].end = p;
		w->found[w->nfound].ahead = ahead;
		strcpy(w->found[w->nfound++].way, way);
	}
	if (p->tier != 1)
		return;
	n = blockers(p, list, hard);
	for (int k = 0; k < n; k++)
	{
		Backend    *o = list[k];
		char		longer[NAME];

		if (o->tier == 0 || (seen & 1U << o->number))
			continue;
		(void) snprintf(longer, NAME, "%.200s%s%d.%llx", way, *way ? "," : "",
						p->pid, (unsigned long long) p->wait);
		walk(w, o, longer, o->tier == 2 && p->key == o->key,
			 seen | 1U << o->number);
	}
}

static void
add_edges(Instance *i, Backend *h, Ways *w, int found)
{
	Town	   *t = i->town;
	Backend    *p = w->found[found].end;
	Slot	   *s = &i->slots[p->key];
	bool		beside = s->state == SLOT_HELD && has_holders(s) &&
		s->mode == 's' && p->mode == 's' && is_turn_over(i, s);

	if (p->verdict || t->now - p->since < t->timeout ||
		!(beside || (s->state == SLOT_WANTED && s->queued &&
					 s->mode == p->mode)))
		return;
	for (int n = 0; n < h->nstack; n++)
	{
		int			lock = h->stack[n].key;
		DeadlockEdge *e = &w->edges[w->nedges];

		if (lock >= TOWN_LOCKS || !i->slots[lock].holds[h->number] ||
			!i->slots[lock].contended || w->nedges == MAX_EDGES)
			continue;
		memset(e, 0, sizeof(*e));
		e->from.kind = i->slots[lock].mode == 's' ? DEADLOCK_SHARED :
			DEADLOCK_EXCLUSIVE;
		e->from.name = lock_names[lock];
		e->from.pid = h->pid;
		e->from.generation = h->stack[n].generation;
		e->to.kind = p->mode == 's' ? DEADLOCK_SHARED : DEADLOCK_EXCLUSIVE;
		e->to.name = lock_names[p->key];
		e->to.pid = p->pid;
		e->to.generation = p->wait;
		strcpy(w->ways[w->nedges], w->found[found].way);
		e->way = w->ways[w->nedges];
		e->began = p->began;
		e->ahead = w->found[found].ahead;
		e->beside = beside;
		if (p->mode == 's' && s->keeper >= 0)
		{
			(void) snprintf(w->keepers[w->nedges], NAME, "%s/c%d",
							lock_names[p->key], s->keeper);
			e->keeper = w->keepers[w->nedges];
		}
		w->nedges++;
	}
}

static void
scan(Instance *i)
{
	static Ways w;
	static DeadlockEdge edges[MAX_EDGES];
	DeadlockScan result = {.edges = edges};
	Town	   *t = i->town;

	if (i->deadlocks == NULL || !i->up)
		return;
	w.edges = edges;
	w.nedges = 0;
	for (int n = 0; n < i->nbackends; n++)
	{
		Backend    *h = &i->backends[n];

		if (h->tier == 2 && t->now - h->since >= t->timeout)
			result.waits = true;
		if (h->tier == 0 || h->nstack == 0)
			continue;
		w.nfound = 0;
		walk(&w, h, "", false, 1U << h->number);
		for (int k = 0; k < w.nfound; k++)
			add_edges(i, h, &w, k);
	}
	result.nedges = w.nedges;
	trace(t, "%s scans: %d edges", i->id, w.nedges);
	deadlock_scanned(i->deadlocks, &result, t->now);
	pump(i);
}

/*-------------------------------------------------------------------------
 * Faults
 *-------------------------------------------------------------------------
 */

static void
start_worker(Instance *i)
{
	if (i->deadlocks == NULL)
		i->deadlocks = deadlock_make("/w", i->id, i->id, i->town->timeout);
}

static void
expire(Town *t, void *of, uint64_t session)
{
	Instance   *i = of;

	i->expired = true;
	t->zxid++;
	for (int n = 0; n < t->nznodes; n++)
		if (t->znodes[n].session == (int) session &&
			t->znodes[n].died == INT64_MAX)
		{
			t->znodes[n].died = t->zxid;
			t->children_changed = t->zxid;
		}
	committed(t);
	for (int c = 0; c < t->ncontenders; c++)
		if (t->contenders[c].session == (int) session)
			delete_contender(t, c);
}

static void
lose_slots(Instance *i)
{
	for (int lock = 0; lock < TOWN_LOCKS; lock++)
	{
		Slot	   *s = &i->slots[lock];

		for (int n = 0; n < i->nbackends; n++)
		{
			Backend    *b = &i->backends[n];

			if (s->holds[n])
			{
				i->town->gone[s->holds[n]] = i->town->now;
				s->holds[n] = 0;
				backend_fail(b, false);
			}
		}
		s->state = SLOT_NONE;
		s->queued = s->contended = false;
		for (int n = 0; n < s->nwaiters; n++)
		{
			i->town->gone[s->waiters[n]->wait] = i->town->now;
			s->waiters[n]->wait = make_id(i->town);
			s->waiters[n]->verdict = false;
			at(i->town, i->town->timeout, scan_if_waits, s->waiters[n],
			   s->waiters[n]->wait);
		}
	}
}

static void
reconnect(Town *t, void *of, uint64_t arg)
{
	Instance   *i = of;

	(void) arg;
	t->dirty = true;
	i->up = true;
	i->epoch++;
	i->answers = i->busy_until = t->now;
	set_view(i, t->zxid - (t->zxid > 2 ? chance(t, 0, 2) : 0));
	if (i->expired)
	{
		i->expired = false;
		i->session = ++t->sessions;
		lose_slots(i);
	}
	start_worker(i);
	deadlock_connect(i->deadlocks, t->now);
	pump(i);
	for (int lock = 0; lock < TOWN_LOCKS; lock++)
	{
		Slot	   *s = &i->slots[lock];
		bool		there = s->state != SLOT_NONE && s->contender >= 0 &&
			t->contenders[s->contender].alive;

		if (s->state == SLOT_CREATING || s->state == SLOT_DELETING)
			s->state = there && s->state == SLOT_CREATING ? SLOT_WANTED :
				there ? SLOT_WANTED : SLOT_NONE;
		s->queued = false;
		at(t, chance(t, MS, MESSAGE), notice, i, (uint64_t) lock);
		kick(i, lock);
	}
}

static void
cut(Instance *i, Fault fault, int64_t time)
{
	Town	   *t = i->town;
	int			done = 0;
	int			n = 0;

	if (!i->up)
		return;
	t->stats.cuts++;
	trace(t, "%s loses its connection (%d) for %lld ms", i->id, fault,
		  (long long) time / 1000);
	for (Flight *f = i->flights; f; f = f->next)
		n++;
	if (n > 0)
		done = (int) chance(t, 0, n);
	while (i->flights)
	{
		Flight	   *f = i->flights;

		i->flights = f->next;
		if (done-- > 0)
			execute(i, f, false);
		free_flight(f);
	}
	i->up = i->watches = false;
	i->epoch++;
	i->disturbed = t->now + time;
	if (i->disturbed > t->progress)
		t->progress = i->disturbed;
	if (fault == FAULT_WORKER)
	{
		deadlock_free(i->deadlocks);
		i->deadlocks = NULL;
	}
	else
		deadlock_end(i->deadlocks); /* what was sent comes no more */
	if (fault == FAULT_EXPIRE)
		at(t, time / 2, expire, i, (uint64_t) i->session);
	at(t, time, reconnect, i, 0);
}

/*-------------------------------------------------------------------------
 * The truth
 *-------------------------------------------------------------------------
 */

static Backend *
backend_number(Town *t, int n)
{
	return &t->instances[n / TOWN_BACKENDS].backends[n % TOWN_BACKENDS];
}

static int
number_of(const Backend *b)
{
	return b->instance->number * TOWN_BACKENDS + b->number;
}

static void
add_owners(Town *t, int c, bool *edges)
{
	Instance   *i = t->contenders[c].instance;
	Slot	   *s;

	if (i == NULL)
		return;
	s = &i->slots[t->contenders[c].lock];
	for (int n = 0; n < i->nbackends; n++)
		if (has_holders(s) ? s->holds[n] != 0 : false)
			edges[number_of(&i->backends[n])] = true;
	for (int n = 0; n < s->nwaiters && !has_holders(s); n++)
		edges[number_of(s->waiters[n])] = true;
}

/* Whom does a backend wait for, in truth? */
static void
true_blockers(Town *t, Backend *b, bool *edges)
{
	Slot	   *s = &b->instance->slots[b->key % TOWN_LOCKS];
	Backend    *list[2 * TOWN_BACKENDS];
	bool		hard[2 * TOWN_BACKENDS];
	int			foreign = -1;

	if (b->tier == 1)
	{
		int			n = blockers(b, list, hard);

		for (int k = 0; k < n; k++)
			edges[number_of(list[k])] = true;
		return;
	}
	if (s->state == SLOT_HELD && has_holders(s))
	{
		bool		writer = false;

		for (int c = 0; c < t->ncontenders; c++)
			writer = writer || (t->contenders[c].alive &&
								t->contenders[c].mode == 'x' &&
								t->contenders[c].lock == b->key);
		for (int c = 0; c < t->ncontenders && writer; c++)
			if (t->contenders[c].alive && t->contenders[c].lock == b->key &&
				t->contenders[c].instance &&
				has_holders(&t->contenders[c].instance->slots[b->key]))
				add_owners(t, c, edges);
		edges[number_of(b)] = false;
		return;
	}
	if (s->state == SLOT_NONE || s->contender < 0 ||
		!t->contenders[s->contender].alive)
		return;
	for (int c = 0; c < s->contender; c++)
		if (t->contenders[c].alive && t->contenders[c].lock == b->key &&
			t->contenders[c].instance == NULL && t->contenders[c].mode == 'x')
			foreign = c;
	for (int c = 0; c < s->contender; c++)
		if (t->contenders[c].lock == b->key &&
			(precedes(t, c, s->mode) ||
			 (t->contenders[c].alive && c < foreign)))
			add_owners(t, c, edges);
}

static void
close_graph(Town *t)
{
	int			n = t->ninstances * TOWN_BACKENDS;

	memset(t->edge, 0, sizeof(t->edge));
	for (int a = 0; a < n; a++)
	{
		if (backend_number(t, a)->tier != 0)
			true_blockers(t, backend_number(t, a), t->edge[a]);
		for (int b = 0; b < n; b++)
			if (backend_number(t, b)->tier == 0)
				t->edge[a][b] = false;
	}
	memcpy(t->reaches, t->edge, sizeof(t->reaches));
	for (int k = 0; k < n; k++)
		for (int a = 0; a < n; a++)
			if (t->reaches[a][k])
				for (int b = 0; b < n; b++)
					t->reaches[a][b] = t->reaches[a][b] || t->reaches[k][b];
}

/* After each event: which waits are in deadlocks? */
static void
look_at_truth(Town *t)
{
	static uint64_t waits[NBACKENDS];
	/* who forges edges can make it take rounds more */
	int64_t		bound = (5 + 8 * t->forged) * t->timeout / 2 + 25 * MESSAGE +
		4 * t->lag;

	if (t->dirty)
	{
		t->dirty = false;
		close_graph(t);
		for (int a = 0; a < t->ninstances * TOWN_BACKENDS; a++)
		{
			Backend    *b = backend_number(t, a);
			bool		dead = b->tier != 0 && t->reaches[a][a];

			if (waits[a] != 0 && (!dead || b->wait != waits[a]) &&
				waits[a] <= t->ids && t->dead_since[waits[a]] >= 0)
			{
				t->dead_since[waits[a]] = -1;
				t->dead_until[waits[a]] = t->now;
				t->cause[waits[a]] = t->label;
			}
			waits[a] = dead ? b->wait : 0;
			if (dead && t->dead_since[b->wait] < 0)
				t->dead_since[b->wait] = t->now;
		}
	}
	for (int a = 0; a < t->ninstances * TOWN_BACKENDS; a++)
	{
		Backend    *b = backend_number(t, a);
		int64_t		since;

		if (b->tier == 0 || t->dead_since[b->wait] < 0)
			continue;
		since = t->dead_since[b->wait] > t->progress ?
			t->dead_since[b->wait] : t->progress;
		if (t->now - since > bound)
			violation(t, "T6: a deadlock lasts");
	}
}

static bool
was_disturbed(const Town *t, int64_t since)
{
	for (int n = 0; n < t->ninstances; n++)
		if (t->instances[n].disturbed + t->timeout > since)
			return true;
	return false;
}

/* T3 to T5. */
static void
check_victim(Backend *b)
{
	Town	   *t = b->instance->town;
	int64_t		until = t->dead_until[b->wait];
	int			number = number_of(b);

	t->stats.victims++;
	look_at_truth(t);
	t->progress = t->now;
	if (t->dead_since[b->wait] >= 0)
	{
		bool		bystander = !b->stale;
		bool		any = false;

		for (int a = 0; a < t->ninstances * TOWN_BACKENDS; a++)
		{
			Backend    *o = backend_number(t, a);

			if (!t->reaches[number][a] || !t->edge[a][number])
				continue;
			any = true;
			bystander = bystander && o->tier == 1 && o->key == b->key;
		}
		if (any && bystander)
			violation(t, "T5: a bystander fails");
		if (t->stats.ntimes < 4096)
			t->stats.times[t->stats.ntimes++] =
				t->now - t->dead_since[b->wait];
		return;
	}
	if (until < 0)
		violation(t, "T3: a victim was in no deadlock");
	else if (t->cause[b->wait] == 'v')
		violation(t, "T4: two victims of one deadlock");
	else if (t->now - until > t->timeout / 4 + 10 * MESSAGE &&
			 !was_disturbed(t, until - t->timeout))
		violation(t, "T3: a victim's deadlock ended long ago");
}

/* Does the instance own the lock of this edge's wait? */
static bool
owns_what_it_waits_for(Town *t, Instance *i, const DeadlockEdge *e, int lock)
{
	Slot	   *s = &i->slots[lock];

	if (s->state != SLOT_WANTED || !t->contenders[s->contender].alive ||
		t->gone[e->to.generation] != INT64_MAX)
		return false;
	for (int c = 0; c < s->contender; c++)
		if (t->contenders[c].lock == lock && precedes(t, c, s->mode))
			return false;
	return true;
}

/* The act's cycle is what the confirms were about: find its text in ours. */
static void
check_act(Instance *i, const char *hash)
{
	Town	   *t = i->town;
	const DeadlockEdge *const *edges;
	int			n = i->deadlocks == NULL ? 0 :
		deadlock_cycle(i->deadlocks, hash, &edges);
	int64_t		from = 0;
	int64_t		to = INT64_MAX;
	char		name[NAME];

	t->stats.acts++;
	for (int k = 0; k < n; k++)
	{
		const DeadlockEdge *e = edges[k];
		Instance   *other = &t->instances[e->teller[1] - '0'];

		span_edge(t, e, &from, &to);
		(void) snprintf(name, NAME, "%.*s.%s", DEADLOCK_HASH, hash,
						e->teller);
		if (other != i && find_znode(t, name, t->zxid) == NULL)
			violation(t, "T2: an act without a confirm");
		for (int lock = 0; lock < TOWN_LOCKS; lock++)
			if (strcmp(lock_names[lock], e->to.name) == 0 &&
				owns_what_it_waits_for(t, other, e, lock))
				violation(t, "T2: a member owns what it waits for");
	}
	if (n > 0 && from >= to)
		violation(t, "T1: the edges were not there at one moment");
}

/*-------------------------------------------------------------------------
 * What tests call
 *-------------------------------------------------------------------------
 */

Town *
town_make(uint64_t seed, int64_t timeout, int64_t lag)
{
	Town	   *t = calloc(1, sizeof(Town));

	t->random = seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
	for (int n = 0; n < 10; n++)
		(void) chance(t, 0, 1);
	t->timeout = timeout;
	t->lag = lag;
	t->znodes = calloc(ZNODES, sizeof(Znode));
	t->contenders = calloc(CONTENDERS, sizeof(Contender));
	t->born = calloc(IDS, sizeof(int64_t));
	t->gone = calloc(IDS, sizeof(int64_t));
	t->dead_since = calloc(IDS, sizeof(int64_t));
	t->dead_until = calloc(IDS, sizeof(int64_t));
	t->cause = calloc(IDS, 1);
	t->label = ' ';
	t->zxid = 1;
	return t;
}

void
town_free(Town *t)
{
	while (t->nevents > 0)
	{
		Event		event = pop(t);

		if (event.run == deliver)
		{
			violation(t, "over");
			deliver(t, event.of, 0);
		}
	}
	for (int n = 0; n < t->ninstances; n++)
	{
		while (t->instances[n].flights)
		{
			Flight	   *f = t->instances[n].flights;

			t->instances[n].flights = f->next;
			free_flight(f);
		}
		if (t->instances[n].deadlocks)
			deadlock_free(t->instances[n].deadlocks);
	}
	for (int n = 0; n < t->nznodes; n++)
	{
		for (int v = 0; v < t->znodes[n].nversions; v++)
			free(t->znodes[n].versions[v].data);
		free(t->znodes[n].versions);
	}
	free(t->znodes);
	free(t->contenders);
	free(t->born);
	free(t->gone);
	free(t->dead_since);
	free(t->dead_until);
	free(t->cause);
	free(t->heap);
	free(t);
}

int
town_add_instance(Town *t, int nbackends)
{
	Instance   *i = &t->instances[t->ninstances];

	i->town = t;
	i->number = t->ninstances++;
	(void) snprintf(i->id, sizeof(i->id), "i%d", i->number);
	i->nbackends = nbackends;
	for (int n = 0; n < TOWN_BACKENDS; n++)
	{
		i->backends[n].instance = i;
		i->backends[n].number = n;
		i->backends[n].pid = 100 * (i->number + 1) + n;
	}
	for (int lock = 0; lock < TOWN_LOCKS; lock++)
		i->slots[lock].keeper = -1;
	i->disturbed = INT64_MIN / 2;
	i->session = ++t->sessions;
	i->up = true;
	i->epoch = 1;
	i->view = t->zxid;
	start_worker(i);
	deadlock_connect(i->deadlocks, t->now);
	pump(i);
	return i->number;
}

void
town_script(Town *t, int instance, int backend, int64_t when, const Op *ops,
			int nops)
{
	backend_start(&t->instances[instance].backends[backend], when - t->now,
				  ops, nops);
}

void
town_run(Town *t, int64_t until)
{
	while (t->nevents > 0 && t->heap[0].at <= until && t->violation[0] == '\0')
	{
		Event		event = pop(t);

		t->now = event.at;
		t->label = ' ';
		event.run(t, event.of, event.arg);
		look_at_truth(t);
	}
	if (t->now < until)
		t->now = until;
}

static bool
is_busy(const Town *t)
{
	for (int n = 0; n < t->ninstances; n++)
		for (int k = 0; k < t->instances[n].nbackends; k++)
			if (t->instances[n].backends[k].busy)
				return true;
	return false;
}

void
town_finish(Town *t, int64_t busy)
{
	int64_t		end;

	town_run(t, busy);
	end = t->now + 120 * t->timeout + 20000 * MS;
	while (t->now < end && is_busy(t) && t->violation[0] == '\0')
		town_run(t, t->now + t->timeout);
	if (is_busy(t))
		violation(t, "model: somebody is still there");
	town_run(t, t->now + 50 * t->timeout);
	for (int n = 0; n < t->nznodes; n++)
		if (t->znodes[n].died == INT64_MAX && t->znodes[n].session >= 0)
			violation(t, "T7: something is left in %waits");
}

static void
script_by_chance(Backend *b, int64_t delay)
{
	Town	   *t = b->instance->town;
	Op			ops[TOWN_OPS];
	int			n = 0;
	int			wants = (int) chance(t, 1, 4);
	char		modes[TOWN_LOCKS] = {0};

	while (wants-- > 0)
	{
		int64_t		x = chance(t, 1, 100);
		Op			op = {.time = percent(t, 25) ?
			chance(t, 200, 6000) * MS : 0};

		if (x <= 65)
		{
			op.kind = OP_LOCK;
			op.lock = (int) chance(t, 0, TOWN_LOCKS - 1);
			op.mode = percent(t, 33) ? 's' : 'x';
			if (modes[op.lock] == 's')
				op.mode = 's';	/* no upgrade */
			modes[op.lock] = modes[op.lock] ? modes[op.lock] : op.mode;
		}
		else if (x <= 85)
		{
			op.kind = OP_ROW;
			op.lock = (int) chance(t, 0, TOWN_ROWS - 1);
		}
		else
			op.kind = x <= 92 ? OP_SAVE : OP_ROLLBACK_TO;
		ops[n++] = op;
		if (percent(t, 30))
			ops[n++] = (Op) {.kind = OP_SLEEP,.time = percent(t, 50) ?
				50 * MS : 500 * MS};
	}
	ops[n++] = (Op) {.kind = OP_SLEEP,.time = percent(t, 50) ? 20 * MS :
		300 * MS};
	backend_start(b, delay, ops, n);
}

static void
chance_cancel(Town *t, void *of, uint64_t arg)
{
	Backend    *b = of;

	(void) t;
	(void) arg;
	if (b->tier != 0)
		backend_fail(b, false);
}

static void
chance_fault(Town *t, void *of, uint64_t fault)
{
	static const int64_t times[] = {50, 500, 3000};

	cut(of, (Fault) fault, times[chance(t, 0, 2)] * MS);
}

static void
stranger_leaves(Town *t, void *of, uint64_t c)
{
	(void) of;
	delete_contender(t, (int) c);
}

static void
stranger_comes(Town *t, void *of, uint64_t arg)
{
	(void) of;
	town_stranger(t, (int) (arg / 2), arg % 2 ? 's' : 'x',
				  chance(t, 50, 4000) * MS);
}

/* Somebody writes below %waits what he likes. */
static void
chance_forge(Town *t, void *of, uint64_t arg)
{
	static const char *const names[] = {
		"i0-0000099999", "zz-0000000001", "ended.x", "x.i0", "i1-0000099998"
	};
	char		data[1024];
	char		name[NAME];

	const char *kept_of_2 = lock_names[chance(t, 0, 3)];
	const char *keeper = percent(t, 50) ? "/z/x/c0" : "-";
	const char *way = percent(t, 50) ? "a" : "-";
	const char *second = lock_names[chance(t, 0, 3)];
	char		mode = percent(t, 50) ? 'x' : 's';
	const char *kept_of_1 = lock_names[chance(t, 0, 3)];
	const char *first = lock_names[chance(t, 0, 3)];

	(void) of;
	(void) snprintf(data, sizeof(data),
					"zklock1 forged\nwait 1 x %s 1 1 1 - - -\n"
					"keep x %s 1\nwait 2 %c %s 2 2 2 %s %s 7.7\nkeep s %s 3\n",
					first, kept_of_1, mode, second, way, keeper, kept_of_2);
	if (percent(t, 30))
		data[chance(t, 0, (int64_t) strlen(data) - 1)] =
			(char) chance(t, 1, 255);
	(void) snprintf(name, NAME, "%s%d", names[arg % 5],
					arg % 5 < 2 ? 0 : (int) arg);
	if (arg % 5 < 2 || arg % 5 == 4)
		name[13] = '\0';
	town_forge(t, name, data);
}

void
town_by_chance(Town *t)
{
	static const int lags[] = {20, 250, 250, 2000};
	int			ninstances = (int) chance(t, 2, TOWN_INSTANCES);
	int			faults = (int) chance(t, 0, 3);

	t->lag = lags[chance(t, 0, 3)] * MS;
	for (int n = 0; n < ninstances; n++)
	{
		Instance   *i;

		(void) town_add_instance(t, (int) chance(t, 1, TOWN_BACKENDS));
		i = &t->instances[n];
		for (int k = 0; k < i->nbackends; k++)
		{
			i->backends[k].source = true;
			script_by_chance(&i->backends[k], chance(t, 0, 800) * MS);
		}
	}
	while (faults-- > 1)
	{
		uint64_t	fault = (uint64_t) chance(t, 0, 2);
		Instance   *i = &t->instances[chance(t, 0, ninstances - 1)];

		at(t, chance(t, 0, 15000) * MS, chance_fault, i, fault);
	}
	for (int n = (int) chance(t, 0, 6); n > 0; n--)
	{
		Instance   *i = &t->instances[chance(t, 0, ninstances - 1)];
		Backend    *b = &i->backends[chance(t, 0, i->nbackends - 1)];

		at(t, chance(t, 0, 15000) * MS, chance_cancel, b, 0);
	}
	for (int n = percent(t, 30) ? (int) chance(t, 1, 5) : 0; n > 0; n--)
	{
		uint64_t	stranger = (uint64_t) chance(t, 0, 2 * TOWN_LOCKS - 1);

		at(t, chance(t, 0, 15000) * MS, stranger_comes, NULL, stranger);
	}
	for (int n = percent(t, 30) ? 5 : 0; n > 0; n--)
		at(t, chance(t, 0, 15000) * MS, chance_forge, NULL, (uint64_t) n);
	town_finish(t, 15000 * MS);
}

const char *
town_violation(const Town *t)
{
	return t->violation[0] != '\0' ? t->violation : NULL;
}

const TownStats *
town_stats(const Town *t)
{
	return &t->stats;
}

static void
run_hook(Town *t, void *of, uint64_t arg)
{
	void		(*hook) (Town *town);

	(void) of;
	memcpy(&hook, &arg, sizeof(hook));
	hook(t);
}

void
town_at(Town *t, int64_t when, void (*what) (Town *town))
{
	uint64_t	arg = 0;

	memcpy(&arg, &what, sizeof(what));
	at(t, when - t->now, run_hook, NULL, arg);
}

void
town_on_act(Town *t, void (*what) (Town *town, int instance))
{
	t->on_act = what;
}

void
town_cancel(Town *t, int instance, int backend)
{
	chance_cancel(t, &t->instances[instance].backends[backend], 0);
}

void
town_fault(Town *t, int instance, Fault fault, int64_t time)
{
	cut(&t->instances[instance], fault, time);
}

void
town_stranger(Town *t, int lock, char mode, int64_t time)
{
	int			c = make_contender(t, NULL, lock, mode);

	queue_changed(t, lock);
	at(t, time, stranger_leaves, NULL, (uint64_t) c);
}

void
town_strangers_leave(Town *t)
{
	for (int c = 0; c < t->ncontenders; c++)
		if (t->contenders[c].instance == NULL)
			delete_contender(t, c);
}

void
town_forge(Town *t, const char *name, const char *data)
{
	t->forged++;
	t->zxid++;
	(void) make_znode(t, name, data, -1);
	committed(t);
}
