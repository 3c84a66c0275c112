/*-------------------------------------------------------------------------
 *
 * slots.c
 *		The locks of this cluster in shared memory.
 *
 * A slot is a lock's entry: what this cluster owns or wants of it.  Backends
 * ask for slots and take them; the worker keeps one contender in ZooKeeper
 * for each slot that is wanted or owned.  That a backend has the heavyweight
 * lock of a name orders the backends, but safety rests on the slot's state
 * alone.  The states, and what moves a slot between them:
 *
 *				asked	granted	taken	handed	given up  contender gone
 *	NONE		WANTED	-		-		-		-		  -
 *	WANTED		-		IDLE	-		-		RELEASING NONE, or WANTED
 *	IDLE		-		-		HELD	-		RELEASING NONE, or WANTED
 *	HELD		-		-		HELD	IDLE	RELEASING NONE, or WANTED
 *	RELEASING	-		-		-		-		-		  NONE, or WANTED
 *
 *	asked			by a backend that has the heavyweight lock, or by a writer
 *					that waits for it
 *	granted			by the worker: our contender owns the lock
 *	taken			by a backend that has the heavyweight lock; HELD only by
 *					one more reader
 *	handed			by the last holder at its end, for the next local backend,
 *					whether there is one already or not
 *	given up		by the last holder at its end, if others have a turn; by
 *					the last backend that wanted the slot and does no more; by
 *					one that waits for something else first; by the worker, if
 *					it is lost, others wait for it, or nobody takes it
 *	contender gone	told by the worker: deleted, or expired with its session;
 *					WANTED if a backend waits for another one.  The holders,
 *					if there are any, have lost the lock, and are marked so.
 *
 * "-": ignored.  The worker's news may be overtaken: a grant that arrives when
 * the slot has been given up changes nothing.
 *
 * What a backend has to do with a slot is in a ZkProcLock: it wants the slot,
 * is ready to take it when it has the heavyweight lock, then holds it.  A lock
 * has a slot for each mode, since there is a contender for each.  Several
 * backends hold that of the readers together.  They may join the holders only
 * while no exclusive contender of another cluster waits behind ours; that is
 * looked up in ZooKeeper, by the worker, but not more often than once in
 * zklock.handoff_quantum.
 *
 * What has no taker is given up.  But while the worker has a flight out, and
 * other mail than this is waiting for the next, it is only left idle, and goes
 * when the worker opens the mail: a backend that wants it before that takes it
 * back.  Or it is retained, for zklock.retain_time.  So that this keeps no other
 * cluster waiting, the worker then watches who comes to stand behind our
 * contender; the znode of one that may be retained says so, and who finds it
 * ahead does not take it for a holder at once.  The same watch is asked for at
 * the first handoff, and while nobody else waits, handoffs go on.  When others
 * do (the slot is "crowded"), or while that is not known, they go on within
 * zklock.handoff_quantum.  If others do, or did of late ("contested": they may be
 * about to come again), the turn ends as soon as all who waited here when it
 * began have had the lock, and a part of the quantum has passed.
 *
 * A cluster must not wait for itself.  A contender that owns a lock is kept for
 * a backend that can take it, which is not held up in the lock manager: else it
 * could wait there for somebody who waits in ZooKeeper for that contender.  So
 * a grant that nobody is ready for is soon given up; readers hand on to ready
 * ones only; and who is ready in one mode gives up what the cluster has of the
 * other.
 *
 * Locking protocol.  The slots are a hash table of ZK_PARTITIONS partitions,
 * with an LWLock each.  Finding, entering or removing a slot, and reading or
 * changing any of its fields or of its ZkProcLocks, is done under the lock of
 * its partition (exclusive to change anything).  A pointer to a slot stays
 * valid without the lock while the slot is in use: while it has a ZkProcLock,
 * while it is in the worker's mail, or while it is in any state but NONE.
 * Whoever ends the last use removes the slot.  A ZkProcLock belongs to its
 * backend, which alone frees it.
 *
 * The keys of the hash table have the number of an entry of zk->roots in place
 * of their root.  Those entries are read under any partition lock, and changed
 * under all of them; one that no slot uses may be given to another root.
 *
 * A change that the worker must see puts the slot into the worker's mail, a
 * chain through the slots themselves, so that it can never be full.  "mailed"
 * is set and cleared under the partition lock; the chain's head and links are
 * guarded by the spinlock mail_lock, which is taken inside the partition
 * lock.  A slot stays "mailed" until the worker has opened its mail under the
 * partition lock, so that it is neither linked twice nor removed meanwhile.
 * The mail says only that there is something to see; what it is follows from
 * the slot's state, so that a new worker needs no old mail.
 *
 * The free ZkProcLocks and zk->last_group are guarded by the spinlock
 * free_lock, taken inside the partition lock.  zk->session is guarded by the
 * LWLock after those of the partitions; only the worker writes it.
 * zk->worker_latch is guarded by mail_lock; mail_is_waiting() looks at the mail
 * without it, since it only guesses.  Whoever wants several partition locks takes
 * them in ascending order.
 *
 * The lease says until when the session cannot have ended in ZooKeeper, which
 * the worker may not have heard of.  A commit that finds it run out, or wants
 * to be sure, draws a ticket from zk->proof_asked and waits on zk->proof_cv
 * until zk->proof_given has reached it: then ZooKeeper has confirmed the
 * session since.  All three are atomic.  They are read ahead of the slots: if
 * these are not lost after that, it is their session that was spoken of.
 * zk->path_bytes and zk->directories are atomic, too, and only the worker
 * writes them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slots.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <signal.h>
#include <time.h>

#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/settings.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#define ZK_TRANCHE		"zklock"
#define ZK_PARTITIONS	64

/* So many roots can be in use at the same time. */
#define ZK_MAX_ROOTS	256

/* As a number of ZK_ROOT_DIGITS digits of this base, which can be printed. */
#define ROOT_BASE		16
#define FIRST_DIGIT		'A'

/* How long to believe that a writer waits behind readers. */
#define RELOOK_MS		1000

/* How long to keep a lock for somebody who does not take it. */
#define MAX_IDLE_MS		100

/*
 * The part of zklock.handoff_quantum for which a turn goes on in any case: to
 * let others have the lock and get it back takes its time, too.
 */
#define TURN_PART		10

typedef enum SlotEvent
{
	SLOT_ASKED,
	SLOT_GRANTED,
	SLOT_TAKEN,
	SLOT_HANDED,
	SLOT_GIVEN_UP,
	SLOT_CONTENDER_GONE
} SlotEvent;

typedef struct ZkShared
{
	pg_atomic_uint32 nslots;	/* entries of the hash table, exactly */
	pg_atomic_uint32 nprocs;	/* ZkProcLocks in use */
	slock_t		mail_lock;
	ZkSlot	   *mail_head;
	pg_atomic_uint32 mail_held; /* the worker has not come to it yet */
	Latch	   *worker_latch;	/* NULL: no worker */
	pg_atomic_uint64 lease_until;	/* as of zk_now_ms(); 0: none */
	pg_atomic_uint32 proof_asked;	/* the latest ticket */
	pg_atomic_uint32 proof_given;	/* the latest that has its answer */
	ConditionVariable proof_cv; /* broadcast at every proof and every loss */
	pg_atomic_uint64 path_bytes;	/* of the session's nodes, at the most */
	pg_atomic_uint64 directories;	/* lock directories made since the start */
	ZkSessionInfo session;
	char		auths[ZK_AUTHS_SIZE];	/* for the worker alone */
	char		roots[ZK_MAX_ROOTS][ZNODE_MAX_ROOT + 1];	/* "": free */
	slock_t		free_lock;
	uint32		last_group;
	ZkProcLock *free_procs;
	ZkProcLock	procs[FLEXIBLE_ARRAY_MEMBER];	/* max_procs() of them */
} ZkShared;

static ZkShared *zk = NULL;
static HTAB *slots = NULL;
static LWLockPadded *locks = NULL;

/* One for each lock, and a reserve for those that are shared. */
static int
max_procs(void)
{
	return zklock_max_locks + MaxBackends;
}

static Size
shared_size(void)
{
	return offsetof(ZkShared, procs) + mul_size(max_procs(), sizeof(ZkProcLock));
}

/*
 * slots_request_shmem
 *		Reserve shared memory and locks; for the shmem_request_hook.
 */
void
slots_request_shmem(void)
{
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(hash_estimate_size(zklock_max_locks, sizeof(ZkSlot)));
	RequestNamedLWLockTranche(ZK_TRANCHE, ZK_PARTITIONS + 1);
}

/*
 * slots_startup_shmem
 *		Create or attach to the shared state; for the shmem_startup_hook.
 */
void
slots_startup_shmem(void)
{
	bool		found;
	HASHCTL		ctl;

	/* in case this is a restart within the postmaster */
	zk = NULL;
	slots = NULL;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);

	zk = ShmemInitStruct("zklock", shared_size(), &found);
	if (!found)
	{
		memset(zk, 0, shared_size());
		pg_atomic_init_u32(&zk->nslots, 0);
		pg_atomic_init_u32(&zk->nprocs, 0);
		pg_atomic_init_u32(&zk->mail_held, 0);
		pg_atomic_init_u64(&zk->lease_until, 0);
		pg_atomic_init_u32(&zk->proof_asked, 0);
		pg_atomic_init_u32(&zk->proof_given, 0);
		pg_atomic_init_u64(&zk->path_bytes, 0);
		pg_atomic_init_u64(&zk->directories, 0);
		ConditionVariableInit(&zk->proof_cv);
		SpinLockInit(&zk->mail_lock);
		SpinLockInit(&zk->free_lock);
		for (int i = 0; i < max_procs(); i++)
			zk->procs[i].next = i > 0 ? &zk->procs[i - 1] : NULL;
		zk->free_procs = &zk->procs[max_procs() - 1];
		memset(zk->auths, 0, sizeof(zk->auths));
		zk->session.state = ZK_SESSION_DOWN;
		zk->session.state_since = GetCurrentTimestamp();
		zk->session.timeout = zklock_session_timeout;
	}

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = ZK_SHORT_KEY_SIZE;
	ctl.entrysize = sizeof(ZkSlot);
	ctl.num_partitions = ZK_PARTITIONS;
	slots = ZkShmemInitHash("zklock slots", zklock_max_locks, &ctl,
							HASH_ELEM | HASH_STRINGS | HASH_PARTITION |
							HASH_FIXED_SIZE);
	locks = GetNamedLWLockTranche(ZK_TRANCHE);

	LWLockRelease(AddinShmemInitLock);
}

/*
 * slots_available
 *		Is the shared state there, that is, was zklock preloaded?
 */
bool
slots_available(void)
{
	return zk != NULL;
}

/*
 * zk_now_us, zk_now_ms
 *		The time of a clock that also runs while the machine sleeps.
 */
int64
zk_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64
zk_now_ms(void)
{
	return zk_now_us() / 1000;
}

static LWLock *
partition_lock(uint32 hash)
{
	return &locks[hash % ZK_PARTITIONS].lock;
}

static LWLock *
session_lock(void)
{
	return &locks[ZK_PARTITIONS].lock;
}

static void
lock_slot(ZkSlot *slot, LWLockMode mode)
{
	LWLockAcquire(partition_lock(slot->hash), mode);
}

static void
lock_all(LWLockMode mode)
{
	for (int i = 0; i < ZK_PARTITIONS; i++)
		LWLockAcquire(&locks[i].lock, mode);
}

static void
unlock_all(void)
{
	for (int i = ZK_PARTITIONS - 1; i >= 0; i--)
		LWLockRelease(&locks[i].lock);
}

/* A key as the hash table has it, and its root. */
typedef struct ShortKey
{
	char		chars[ZK_SHORT_KEY_SIZE];
	char		root[ZNODE_MAX_ROOT + 1];
	uint32		hash;
} ShortKey;

static int
find_root(const char *root)
{
	for (int i = 0; i < ZK_MAX_ROOTS; i++)
		if (strcmp(zk->roots[i], root) == 0)
			return i;
	return -1;
}

/* The root's number in a key of the hash table. */
static int
root_number(const char *key)
{
	return (key[0] - FIRST_DIGIT) * ROOT_BASE + key[1] - FIRST_DIGIT;
}

/* Forget the roots that no slot uses; all partition locks are held. */
static void
forget_roots(void)
{
	bool		used[ZK_MAX_ROOTS] = {false};
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;

	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
		used[root_number(slot->key)] = true;
	for (int i = 0; i < ZK_MAX_ROOTS; i++)
		if (!used[i])
			zk->roots[i][0] = '\0';
}

/*
 * The number of a root, which may be another one's as soon as we hold no
 * partition lock.
 */
static int
number_root(const char *root)
{
	int			number;

	LWLockAcquire(&locks[0].lock, LW_SHARED);
	number = find_root(root);
	LWLockRelease(&locks[0].lock);
	if (number >= 0)
		return number;

	lock_all(LW_EXCLUSIVE);
	number = find_root(root);
	if (number < 0)
		number = find_root("");
	if (number < 0)
	{
		forget_roots();
		number = find_root("");
	}
	if (number >= 0)
		strlcpy(zk->roots[number], root, sizeof(zk->roots[number]));
	unlock_all();

	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of roots for locks"),
				 errdetail("Locks are in use below %d different values of \"zklock.root\".",
						   ZK_MAX_ROOTS),
				 errhint("Use fewer values, and longer names of locks.")));
	return number;
}

/*
 * Lock the partition of a key, and make its short form.
 *
 * Errors: 53200 if it has a root of which there are too many.
 */
static LWLock *
lock_key(const char *key, LWLockMode mode, ShortKey *short_key)
{
	static char cached_root[ZNODE_MAX_ROOT + 1] = "";
	static int	cached_number;
	const char *name = strstr(key, ZK_KEY_MARK);

	/* behind the last slash of the path */
	name = name ? name : key + strlen(key);
	while (name > key && name[-1] != '/')
		name--;
	strlcpy(short_key->root, key, Min(name - key, sizeof(short_key->root)));

	for (;;)
	{
		LWLock	   *lock;

		if (strcmp(cached_root, short_key->root) != 0)
		{
			cached_number = number_root(short_key->root);
			strlcpy(cached_root, short_key->root, sizeof(cached_root));
		}
		short_key->chars[0] = FIRST_DIGIT + cached_number / ROOT_BASE;
		short_key->chars[1] = FIRST_DIGIT + cached_number % ROOT_BASE;
		strlcpy(short_key->chars + ZK_ROOT_DIGITS, name,
				sizeof(short_key->chars) - ZK_ROOT_DIGITS);
		short_key->hash = get_hash_value(slots, short_key->chars);
		lock = partition_lock(short_key->hash);
		LWLockAcquire(lock, mode);
		if (strcmp(zk->roots[cached_number], cached_root) == 0)
			return lock;
		LWLockRelease(lock);
		cached_root[0] = '\0';
	}
}

static ZkSlot *
find_slot(const ShortKey *key)
{
	return hash_search_with_hash_value(slots, key->chars, key->hash,
									   HASH_FIND, NULL);
}

/* The key of a slot, which must be in use. */
static void
read_key(const ZkSlot *slot, char key[ZK_SLOT_KEY_SIZE])
{
	snprintf(key, ZK_SLOT_KEY_SIZE, "%s/%s",
			 zk->roots[root_number(slot->key)], slot->key + ZK_ROOT_DIGITS);
}

/*
 * slot_read_path
 *		The lock directory of a slot, which must be in use.
 */
void
slot_read_path(const ZkSlot *slot, char path[ZNODE_PATH_SIZE])
{
	char		key[ZK_SLOT_KEY_SIZE];
	char	   *mark;

	read_key(slot, key);
	mark = strstr(key, ZK_KEY_MARK);
	if (mark)
		*mark = '\0';
	strlcpy(path, key, ZNODE_PATH_SIZE);
}

static void
wake_worker(void)
{
	Latch	   *latch;

	SpinLockAcquire(&zk->mail_lock);
	latch = zk->worker_latch;
	SpinLockRelease(&zk->mail_lock);
	if (latch)
		SetLatch(latch);
}

/* Put the slot into the worker's mail; the partition lock is held exclusively. */
static void
mail_slot(ZkSlot *slot)
{
	if (slot->mailed)
		return;
	slot->mailed = true;
	SpinLockAcquire(&zk->mail_lock);
	slot->mail_next = zk->mail_head;
	zk->mail_head = slot;
	SpinLockRelease(&zk->mail_lock);
	wake_worker();
}

static bool
is_shared(ZnodeKind kind)
{
	return kind == ZNODE_READER;
}

/* Begin to want a contender; the partition lock is held exclusively. */
static void
begin_contender(ZkSlot *slot)
{
	memset(&slot->contender, 0, sizeof(slot->contender));
	slot->contender.kind = slot->ask.kind;
	slot->contender.permits = slot->ask.permits;
	slot->contender.asker_pid = slot->ask.pid;
}

/*
 * The holders have lost the lock.  What they are running is in vain, and is
 * canceled.  Not so a commit that has passed its check: a signal would only cut
 * short its wait for a synchronous standby.
 */
static void
lose_holders(ZkSlot *slot)
{
	slot->nholding = 0;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
	{
		if (!proc->granted || proc->lost)
			continue;
		proc->lost = true;
		stats_count_lost();
		ConditionVariableBroadcast(&zk->proof_cv);
		if (!proc->committing)
			kill(-proc->pid, SIGINT);
	}
}

/* The contender is no more, and so is what the cluster has owned by it. */
static void
end_contender(ZkSlot *slot)
{
	memset(&slot->contender, 0, sizeof(slot->contender));
	slot->token = 0;
	slot->look_start = 0;
	slot->look_wanted = false;
	slot->watched = false;
	slot->crowded = false;
	slot->watch_wanted = false;
	slot->watch_asked = false;
	lose_holders(slot);
}

/*
 * The transition function: see the table in this file's header.  The caller
 * holds the partition lock exclusively.
 */
static void
slot_event(ZkSlot *slot, SlotEvent event)
{
	ZkSlotState last = slot->state;
	ZkSlotState next = last;
	bool		queued = slot->queued;

	if (event == SLOT_CONTENDER_GONE)
	{
		if (slot->state != ZK_SLOT_NONE)
			next = slot->asked && !slot->reserved && slot->refusal == ZK_REFUSAL_NONE ?
				ZK_SLOT_WANTED : ZK_SLOT_NONE;
	}
	else
		switch (slot->state)
		{
			case ZK_SLOT_NONE:
				if (event == SLOT_ASKED)
					next = ZK_SLOT_WANTED;
				break;
			case ZK_SLOT_WANTED:
				if (event == SLOT_GRANTED)
					next = ZK_SLOT_IDLE;
				else if (event == SLOT_GIVEN_UP)
					next = ZK_SLOT_RELEASING;
				break;
			case ZK_SLOT_IDLE:
				if (event == SLOT_TAKEN)
					next = ZK_SLOT_HELD;
				else if (event == SLOT_GIVEN_UP)
					next = ZK_SLOT_RELEASING;
				break;
			case ZK_SLOT_HELD:
				if (event == SLOT_HANDED)
					next = ZK_SLOT_IDLE;
				else if (event == SLOT_GIVEN_UP)
					next = ZK_SLOT_RELEASING;
				break;
			case ZK_SLOT_RELEASING:
				break;
		}

	if (next == slot->state && event != SLOT_CONTENDER_GONE)
		return;
	slot->state = next;
	slot->queued = false;

	if (event == SLOT_CONTENDER_GONE)
		end_contender(slot);
	if (next == ZK_SLOT_WANTED)
		begin_contender(slot);
	if (event == SLOT_GRANTED)
	{
		slot->handoff_start = 0;
		if (queued)
			slot->contested = 2;
		else if (slot->contested > 0)
			slot->contested--;
		slot->looked_at = zk_now_ms();
		slot->keep_until = slot->looked_at + MAX_IDLE_MS;
		slot->writer_behind = false;
	}
	if (event == SLOT_ASKED || event == SLOT_GIVEN_UP)
		mail_slot(slot);

	/* who asked for the next contender goes on waiting, and need not know */
	if (!(last == ZK_SLOT_RELEASING && next == ZK_SLOT_WANTED &&
		  slot->nwanting == 1))
		ConditionVariableBroadcast(&slot->cv);
}

/* Remove the slot if nobody uses it; the partition lock is held exclusively. */
static void
remove_unused(ZkSlot *slot)
{
	if (slot->state != ZK_SLOT_NONE || slot->procs != NULL || slot->mailed)
		return;
	if (hash_search_with_hash_value(slots, slot->key, slot->hash,
									HASH_REMOVE, NULL) != NULL)
		pg_atomic_fetch_sub_u32(&zk->nslots, 1);
}

/*
 * Release the partition lock of a slot that the caller used, and remove the
 * slot if that was its last use.
 */
static void
unlock_slot(ZkSlot *slot)
{
	LWLock	   *lock = partition_lock(slot->hash);

	remove_unused(slot);
	LWLockRelease(lock);
}

/* Make room for one more slot, or fail; the caller holds no lock. */
static bool
reserve_slot(void)
{
	if (pg_atomic_fetch_add_u32(&zk->nslots, 1) < (uint32) zklock_max_locks)
		return true;
	pg_atomic_fetch_sub_u32(&zk->nslots, 1);
	return false;
}

/* Set up a slot that was just entered, all but its key. */
static void
init_slot(ZkSlot *slot, uint32 hash)
{
	memset(&slot->hash, 0, sizeof(ZkSlot) - offsetof(ZkSlot, hash));
	slot->hash = hash;
	slot->state = ZK_SLOT_NONE;
	slot->procs_end = &slot->procs;
	ConditionVariableInit(&slot->cv);
}

/* Take a ZkProcLock from the free ones; NULL if there is none. */
static ZkProcLock *
new_proc(void)
{
	ZkProcLock *proc;

	SpinLockAcquire(&zk->free_lock);
	proc = zk->free_procs;
	if (proc)
		zk->free_procs = proc->next;
	SpinLockRelease(&zk->free_lock);
	if (proc)
	{
		memset(proc, 0, sizeof(ZkProcLock));
		pg_atomic_fetch_add_u32(&zk->nprocs, 1);
	}
	return proc;
}

static void
free_proc(ZkProcLock *proc)
{
	SpinLockAcquire(&zk->free_lock);
	proc->next = zk->free_procs;
	zk->free_procs = proc;
	SpinLockRelease(&zk->free_lock);
	pg_atomic_fetch_sub_u32(&zk->nprocs, 1);
}

/* Link to its slot; the partition lock is held exclusively. */
static void
add_proc(ZkProcLock *proc)
{
	proc->next = NULL;
	*proc->slot->procs_end = proc;
	proc->slot->procs_end = &proc->next;
}

/* Unlink from the slot and free; the partition lock is held exclusively. */
static void
remove_proc(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	ZkProcLock **link = &slot->procs;

	/* a holder has come long ago, and is one of the first */
	while (*link != proc)
		link = &(*link)->next;
	*link = proc->next;
	if (slot->procs_end == &proc->next)
		slot->procs_end = link;
	free_proc(proc);
}

/* Find or make a slot; the partition lock is held exclusively. */
static ZkSlot *
find_or_enter_slot(const ShortKey *key)
{
	ZkSlot	   *slot = find_slot(key);

	if (slot == NULL && reserve_slot())
	{
		slot = hash_search_with_hash_value(slots, key->chars, key->hash,
										   HASH_ENTER_NULL, NULL);
		if (slot == NULL)
			pg_atomic_fetch_sub_u32(&zk->nslots, 1);
		else
			init_slot(slot, key->hash);
	}
	return slot;
}

/*
 * slot_want
 *		Find or make the slot with this key, and say that this backend wants
 *		it.
 *
 * To be called ahead of waiting for the heavyweight lock, so that a holder
 * sees that there is somebody to hand the slot to.  A backend wants or holds a
 * slot once; slot_unwant() ends a want, slot_drop() a hold.  "kind" is that of
 * the contender that it needs; "session" is for zk_locks only; "together" is
 * for slots_take_together().
 *
 * Errors: 53200 if all zklock.max_locks slots are in use, or all ZkProcLocks.
 */
ZkProcLock *
slot_want(const char *key, ZnodeKind kind, bool session, bool together)
{
	ShortKey	short_key;
	LWLock	   *lock = lock_key(key, LW_EXCLUSIVE, &short_key);
	ZkProcLock *proc = new_proc();
	ZkSlot	   *slot = NULL;

	if (proc != NULL)
		slot = find_or_enter_slot(&short_key);
	if (slot == NULL)
	{
		LWLockRelease(lock);
		if (proc != NULL)
			free_proc(proc);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of lock slots"),
				 errdetail("All %d slots for locks in ZooKeeper are in use.",
						   zklock_max_locks),
				 errhint("You might need to increase \"zklock.max_locks\".")));
	}
	proc->slot = slot;
	proc->pid = MyProcPid;
	proc->kind = kind;
	proc->session = session;
	proc->together = together;
	proc->since = zk_now_us();
	add_proc(proc);
	slot->nwanting++;
	LWLockRelease(lock);
	return proc;
}

/* Is an idle slot to be kept although nobody wants it? */
static bool
is_retained(const ZkSlot *slot, int64 now)
{
	return slot->contender.retain && !slot->crowded && now < slot->keep_until;
}

/* The backend needs a contender; the partition lock is held exclusively. */
static void
note_ask(ZkProcLock *proc, int permits)
{
	ZkSlot	   *slot = proc->slot;

	proc->asked = true;
	slot->asked = true;
	slot->ask.kind = proc->kind;
	slot->ask.permits = permits;
	slot->ask.pid = proc->pid;
}

/*
 * One of those who have asked for a contender is gone.  Others may have, too, and
 * need not ask again: they may be waiting for the heavyweight lock.
 */
static void
retract_ask(ZkSlot *slot)
{
	if (!slot->asked)
		return;
	slot->asked = false;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (proc->asked && !proc->granted && !proc->together)
		{
			note_ask(proc, slot->ask.permits);
			break;
		}
}

/*
 * slot_unwant
 *		Say that this backend wants the slot no more: timeout, cancel, error.
 *
 * The slot may be gone afterwards.  Does not throw: to be called in
 * transaction callbacks too.
 */
void
slot_unwant(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		asked;

	lock_slot(slot, LW_EXCLUSIVE);
	asked = proc->asked;
	/* only who takes several together and has come as far reserves the slot */
	if (proc->together && proc->ready)
		slot->reserved = false;
	remove_proc(proc);
	slot->nwanting--;
	if (asked)
		retract_ask(slot);
	if (slot->nwanting == 0)
	{
		slot->refusal = ZK_REFUSAL_NONE;
		if (slot->state == ZK_SLOT_WANTED ||
			(slot->state == ZK_SLOT_IDLE && !is_retained(slot, zk_now_ms())))
			slot_event(slot, SLOT_GIVEN_UP);
	}
	unlock_slot(slot);
}

/*
 * Is an idle slot still ours?  A cluster that was cut off may not have heard of
 * its loss.  What is handed on in a moment is left to the commit check, and so is
 * a grant; but what is retained, or what a worker that is held up has not come
 * to, may have been idle for long.
 */
static bool
is_proved(const ZkSlot *slot, int64 now)
{
	return slot->handoff_start == 0 ||
		(!slot->contender.retain && now < slot->keep_until + MAX_IDLE_MS) ||
		now < lease_read();
}

/*
 * The slot is free to be taken; the partition lock is held exclusively.  "now" is
 * that of zk_now_us().
 */
static void
take(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;

	slot->asked = false;
	slot->reserved = false;
	slot->nwanting--;
	slot->nholding++;
	proc->granted = true;
	proc->since = now;
	slot_event(slot, SLOT_TAKEN);
}

/*
 * A slot is held by readers: may one more join them?  Not if an exclusive
 * contender waits behind ours, or it would wait forever.  If that is not known
 * well enough, have the worker look.
 */
static ZkTake
try_join(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	int64		now = zk_now_us();
	int64		age = now / 1000 - slot->looked_at;
	bool		fresh;

	/* what was seen after we came is an answer, however old it is */
	fresh = age < zklock_handoff_quantum ||
		(slot->writer_behind ? age < RELOOK_MS :
		 slot->looked_at >= proc->since / 1000);
	if (fresh && slot->writer_behind)
		return ZK_QUEUED;
	if (fresh)
	{
		take(proc, now);
		return ZK_TAKEN;
	}
	if (!slot->look_wanted && slot->look_start == 0)
	{
		slot->look_wanted = true;
		mail_slot(slot);
	}
	return ZK_PENDING;
}

/*
 * slot_find_contender
 *		What the slot with this key has of a contender; NONE if there is no
 *		such slot.
 */
ZkSlotState
slot_find_contender(const char *key, ZkContender *contender)
{
	ShortKey	short_key;
	LWLock	   *lock = lock_key(key, LW_SHARED, &short_key);
	ZkSlotState state = ZK_SLOT_NONE;
	ZkSlot	   *slot = find_slot(&short_key);

	if (slot)
	{
		state = slot->state;
		*contender = slot->contender;
	}
	LWLockRelease(lock);
	return state;
}

/* Ask in the name of somebody who has not got the heavyweight lock yet. */
static void
ask_ahead(ZkProcLock *proc)
{
	if (proc->slot->reserved)
		return;
	note_ask(proc, 0);
	slot_event(proc->slot, SLOT_ASKED);
}

/*
 * slot_ask
 *		Ask for a contender ahead of waiting for the heavyweight lock.
 *
 * For a writer: readers of other clusters that come later must see that it
 * waits, though it is readers of its own cluster that it waits for.
 */
void
slot_ask(ZkProcLock *proc)
{
	lock_slot(proc->slot, LW_EXCLUSIVE);
	ask_ahead(proc);
	LWLockRelease(partition_lock(proc->slot->hash));
}

/*
 * slot_ask_for_others
 *		The same for whoever waits for the slot with this key.
 *
 * To be called by a reader of the lock who has got it, and may have given up
 * what its writers had asked for.
 */
void
slot_ask_for_others(const char *key)
{
	ShortKey	short_key;
	LWLock	   *lock;
	ZkContender contender;
	ZkSlot	   *slot;
	ZkProcLock *proc;

	if (slot_find_contender(key, &contender) != ZK_SLOT_NONE)
		return;
	lock = lock_key(key, LW_EXCLUSIVE, &short_key);
	slot = find_slot(&short_key);
	for (proc = slot ? slot->procs : NULL; proc != NULL; proc = proc->next)
		if (!proc->granted && !proc->together)
			break;
	if (proc)
		ask_ahead(proc);
	LWLockRelease(lock);
}

/*
 * slot_take
 *		Take the slot if the cluster owns it and nobody is in the way; else ask
 *		the worker for a contender.
 *
 * The caller must want the slot and have the heavyweight lock of its name.
 * "permits" is that of a semaphore, or 0.  Unless the answer is ZK_TAKEN, it
 * goes on wanting the slot; the condition variable of the slot is broadcast
 * when another try is worthwhile.  ZK_REFUSED sets *refusal, and with
 * ZK_REFUSAL_PERMITS *permits_found, once.
 */
ZkTake
slot_take(ZkProcLock *proc, int permits, ZkRefusal *refusal,
		  int *permits_found)
{
	ZkSlot	   *slot = proc->slot;
	ZkTake		result = ZK_PENDING;
	int64		now;

	lock_slot(slot, LW_EXCLUSIVE);
	proc->ready = true;
	note_ask(proc, permits);
	if (slot->refusal != ZK_REFUSAL_NONE)
	{
		slot->asked = false;
		*refusal = slot->refusal;
		*permits_found = slot->permits_found;
		slot->refusal = ZK_REFUSAL_NONE;
		result = ZK_REFUSED;
	}
	else
		switch (slot->state)
		{
			case ZK_SLOT_NONE:
				slot_event(slot, SLOT_ASKED);
				break;
			case ZK_SLOT_WANTED:
			case ZK_SLOT_RELEASING:
				if (slot->queued)
					result = ZK_QUEUED;
				break;
			case ZK_SLOT_IDLE:
				now = zk_now_us();
				result = is_proved(slot, now / 1000) ? ZK_TAKEN : ZK_UNPROVED;
				if (result == ZK_TAKEN)
					take(proc, now);
				break;
			case ZK_SLOT_HELD:
				result = is_shared(proc->kind) ? try_join(proc) : ZK_QUEUED;
				break;
		}
	LWLockRelease(partition_lock(slot->hash));
	return result;
}

static void
lock_partitions_of(ZkProcLock **procs, int n, bool partitions[ZK_PARTITIONS])
{
	memset(partitions, 0, ZK_PARTITIONS * sizeof(bool));
	for (int i = 0; i < n; i++)
		partitions[procs[i]->slot->hash % ZK_PARTITIONS] = true;
	for (int i = 0; i < ZK_PARTITIONS; i++)
		if (partitions[i])
			LWLockAcquire(&locks[i].lock, LW_EXCLUSIVE);
}

static void
unlock_partitions(const bool partitions[ZK_PARTITIONS])
{
	for (int i = ZK_PARTITIONS - 1; i >= 0; i--)
		if (partitions[i])
			LWLockRelease(&locks[i].lock);
}

/* How far several slots are that must be had together. */
typedef enum ZkTogether
{
	ZK_ALL_READY,				/* each is owned by the cluster and idle */
	ZK_ALL_NONE,				/* each can be asked for */
	ZK_ALL_ASKED,				/* each was asked for in the same step */
	ZK_APART
} ZkTogether;

static ZkTogether
how_together(ZkProcLock **procs, int n, uint32 group)
{
	int			ready = 0;
	int			none = 0;
	int			asked = 0;

	for (int i = 0; i < n; i++)
	{
		const ZkSlot *slot = procs[i]->slot;

		if (slot->state == ZK_SLOT_NONE)
			none++;
		else if (slot->state == ZK_SLOT_IDLE)
			ready++;
		if ((slot->state == ZK_SLOT_IDLE || slot->state == ZK_SLOT_WANTED) &&
			group != 0 && slot->contender.group == group)
			asked++;
	}
	return ready == n ? ZK_ALL_READY :
		none == n ? ZK_ALL_NONE :
		asked == n ? ZK_ALL_ASKED : ZK_APART;
}

/*
 * Ask for all slots in one step.  Since the partition locks are held until all
 * are in the mail, the worker, when it opens one, finds the others there.
 */
static uint32
ask_together(ZkProcLock **procs, int n)
{
	uint32		group;

	SpinLockAcquire(&zk->free_lock);
	group = ++zk->last_group;
	if (group == 0)
		group = ++zk->last_group;
	SpinLockRelease(&zk->free_lock);

	for (int i = 0; i < n; i++)
	{
		ZkSlot	   *slot = procs[i]->slot;

		note_ask(procs[i], 0);
		slot_event(slot, SLOT_ASKED);
		slot->asked = false;
		slot->contender.group = group;
	}
	return group;
}

/*
 * slots_take_together
 *		As slot_take(), for several slots: all or none.
 *
 * Contenders for all are created in one step, so that whoever takes several
 * locks stands in the same order in all the queues: two such callers cannot
 * wait for each other.  For the same reason nothing is kept while something
 * is waited for that was not asked for in the same step.
 *
 * *group tells the last such step of this call; it is 0 at first.  The caller
 * must want all of the slots and have the heavyweight locks of their names.
 * Answers as slot_take(); ZK_REFUSED sets *which.  Unless all are taken,
 * *which is a slot whose condition variable to wait for; others may change,
 * too.
 */
ZkTake
slots_take_together(ZkProcLock **procs, int n, uint32 *group, int *which,
					ZkRefusal *refusal)
{
	bool		partitions[ZK_PARTITIONS];
	ZkTake		result = ZK_PENDING;
	ZkTogether	together;

	lock_partitions_of(procs, n, partitions);
	together = how_together(procs, n, *group);
	*which = -1;
	for (int i = 0; i < n && result != ZK_REFUSED; i++)
	{
		ZkSlot	   *slot = procs[i]->slot;

		/* nobody else of this cluster may ask for it now */
		procs[i]->ready = true;
		slot->reserved = true;
		slot->asked = false;
		if (slot->refusal != ZK_REFUSAL_NONE)
		{
			*refusal = slot->refusal;
			slot->refusal = ZK_REFUSAL_NONE;
			*which = i;
			result = ZK_REFUSED;
		}
		else if (slot->queued || slot->state == ZK_SLOT_HELD)
			result = ZK_QUEUED;
	}

	if (result == ZK_REFUSED)
		;
	else if (together == ZK_ALL_READY)
	{
		int64		now = zk_now_us();

		result = ZK_TAKEN;
		for (int i = 0; i < n; i++)
			if (!is_proved(procs[i]->slot, now / 1000))
				result = ZK_UNPROVED;
		for (int i = 0; i < n && result == ZK_TAKEN; i++)
			take(procs[i], now);
	}
	else if (together == ZK_ALL_NONE)
		*group = ask_together(procs, n);
	else if (together == ZK_APART)
	{
		for (int i = 0; i < n; i++)
			if (procs[i]->slot->state == ZK_SLOT_WANTED ||
				procs[i]->slot->state == ZK_SLOT_IDLE)
				slot_event(procs[i]->slot, SLOT_GIVEN_UP);
	}

	/* one that is not yet as it should be */
	for (int i = 0; i < n && *which < 0; i++)
		if (procs[i]->slot->state != (together == ZK_APART ?
									  ZK_SLOT_NONE : ZK_SLOT_IDLE))
			*which = i;
	*which = Max(*which, 0);
	unlock_partitions(partitions);
	return result;
}

/*
 * slot_yield
 *		Give up what the cluster owns or waits for under this key, if no
 *		backend holds it.
 *
 * The caller has the heavyweight lock of the name, so nobody can take the slot
 * before it; but it will wait for something else, which may in turn wait for
 * this.
 */
void
slot_yield(const char *key)
{
	ShortKey	short_key;
	LWLock	   *lock;
	ZkContender contender;
	ZkSlot	   *slot;

	if (slot_find_contender(key, &contender) == ZK_SLOT_NONE)
		return;					/* as nearly always */

	lock = lock_key(key, LW_EXCLUSIVE, &short_key);
	slot = find_slot(&short_key);
	if (slot && (slot->state == ZK_SLOT_WANTED || slot->state == ZK_SLOT_IDLE))
	{
		slot->asked = false;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	LWLockRelease(lock);
}

/*
 * Is there a backend that can take the slot from the last holder?  A writer
 * gets the heavyweight lock in a moment, unless it waits for several; but a
 * reader that has not got it already stands behind a writer there.
 */
static bool
has_taker(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted &&
			(proc->ready || (!is_shared(proc->kind) && !proc->together)))
			return true;
	return false;
}

static int64
quantum_us(void)
{
	return (int64) zklock_handoff_quantum * 1000;
}

/* "now" is in us here. */
static void
begin_turn(ZkSlot *slot, int64 now)
{
	slot->handoff_start = now;
	slot->turn_due = slot->nwanting;
}

/* May the turn of this cluster go on, though others wait behind it? */
static bool
turn_goes_on(const ZkSlot *slot, int64 now)
{
	int64		lasted = now - slot->handoff_start;

	if (lasted >= quantum_us())
		return false;
	return lasted < quantum_us() / TURN_PART || slot->turn_due > 0;
}

/*
 * Is a slot to be retained that nobody wants?  Not if what nobody uses would
 * leave no room for others.
 */
static bool
may_retain(const ZkSlot *slot)
{
	return slot->contender.retain && zklock_retain_time > 0 &&
		slot->watched &&
		pg_atomic_read_u32(&zk->nslots) <= (uint32) zklock_max_locks / 2;
}

/* Is other mail waiting until the worker can send something again? */
static bool
mail_is_waiting(void)
{
	return pg_atomic_read_u32(&zk->mail_held) != 0 && zk->mail_head != NULL;
}

/* May the last holder leave the slot to the next local backend? */
static bool
may_hand_off(ZkSlot *slot, int64 now)
{
	bool		taker = has_taker(slot);

	/* a permit is one backend's own, and not of every size */
	if (slot->contender.kind == ZNODE_PERMIT || slot->writer_behind)
		return false;
	if (slot->handoff_start == 0)
		begin_turn(slot, now);
	if (!taker && may_retain(slot))
		return true;
	if (!taker && !mail_is_waiting())
		return false;
	if (slot->watched && !slot->contested)
		return true;
	if (slot->crowded || slot->contested)
		return taker && turn_goes_on(slot, now);
	return now - slot->handoff_start < quantum_us();
}

/*
 * The slot is idle now.  If there is nobody to take it, the worker gives it up
 * when it comes to it, or when it has been retained for long enough; if there
 * is, the worker is to tell us when others wait.
 */
static void
leave_idle(ZkSlot *slot, int64 now)
{
	if (has_taker(slot))
	{
		slot->keep_until = now + MAX_IDLE_MS;
		if (slot->watched || slot->crowded || slot->contested ||
			slot->watch_asked ||
			is_shared(slot->contender.kind))
			return;
		slot->watch_asked = true;
		slot->watch_wanted = true;
	}
	else
	{
		slot->keep_until = now;
		if (may_retain(slot))
		{
			slot->keep_until += zklock_retain_time;
			return;
		}
	}
	mail_slot(slot);
}

/*
 * slot_drop
 *		The holder gives the slot back, at the end of its transaction or of
 *		its last hold.
 *
 * The slot may be gone afterwards.  Does not throw, and does not wait for
 * more than LWLocks: to be called in transaction callbacks.  "now" is that of
 * zk_now_us().
 */
void
slot_drop(ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;
	bool		lost;

	lock_slot(slot, LW_EXCLUSIVE);
	lost = proc->lost;
	remove_proc(proc);
	if (!lost && --slot->nholding == 0)
	{
		if (may_hand_off(slot, now))
		{
			slot->turn_due--;
			slot_event(slot, SLOT_HANDED);
			leave_idle(slot, now / 1000);
		}
		else
			slot_event(slot, SLOT_GIVEN_UP);
	}
	unlock_slot(slot);
}

static bool
is_held(const ZkProcLock *proc)
{
	return !proc->lost && proc->slot->state == ZK_SLOT_HELD;
}

/*
 * slot_is_mine
 *		Does this backend, which took the slot, still hold it?
 *
 * Sets *token, if not NULL, to the fencing token or to 0 while the worker has
 * not got it yet.
 */
bool
slot_is_mine(ZkProcLock *proc, int64 *token)
{
	ZkSlot	   *slot = proc->slot;
	bool		mine;

	lock_slot(slot, LW_SHARED);
	mine = is_held(proc);
	if (token)
		*token = slot->token;
	LWLockRelease(partition_lock(slot->hash));
	return mine;
}

/*
 * slot_begin_commit
 *		As slot_is_mine(), for the check ahead of a commit.
 *
 * If so, the backend is not canceled any more when the lock is lost, until
 * slot_end_commit().
 */
bool
slot_begin_commit(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;
	bool		mine;

	/* shared will do: only the worker looks, and only under an exclusive lock */
	lock_slot(slot, LW_SHARED);
	mine = is_held(proc);
	proc->committing = mine;
	LWLockRelease(partition_lock(slot->hash));
	return mine;
}

/*
 * slot_end_commit
 *		The commit is over, and the backend goes on holding the slot.
 */
void
slot_end_commit(ZkProcLock *proc)
{
	ZkSlot	   *slot = proc->slot;

	lock_slot(slot, LW_SHARED);
	proc->committing = false;
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_read_state
 *		The state of a slot that the caller wants.
 */
ZkSlotState
slot_read_state(ZkSlot *slot)
{
	ZkSlotState state;

	lock_slot(slot, LW_SHARED);
	state = slot->state;
	LWLockRelease(partition_lock(slot->hash));
	return state;
}

/*
 * slot_is_leaving
 *		Is the contender of a slot, which the caller wants, being given up?
 *
 * If so, sets *stuck to whether ZooKeeper does not let it go.
 */
bool
slot_is_leaving(ZkSlot *slot, bool *stuck)
{
	bool		leaving;

	lock_slot(slot, LW_SHARED);
	leaving = slot->state == ZK_SLOT_RELEASING;
	*stuck = slot->queued;
	LWLockRelease(partition_lock(slot->hash));
	return leaving;
}

/*
 * slot_set_scope
 *		Tell zk_locks whether the backend has a session-scoped hold.
 */
void
slot_set_scope(ZkProcLock *proc, bool session)
{
	ZkSlot	   *slot = proc->slot;

	lock_slot(slot, LW_EXCLUSIVE);
	proc->session = session;
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * lease_read
 *		Until when the session cannot have ended, as of zk_now_ms(); 0 if
 *		nothing is known.
 */
int64
lease_read(void)
{
	int64		until = (int64) pg_atomic_read_u64(&zk->lease_until);

	/* ahead of what the caller reads next */
	pg_read_barrier();
	return until;
}

/*
 * proof_ask
 *		Have the worker ask ZooKeeper whether the session is alive: a ticket
 *		for proof_is_given().
 */
uint32
proof_ask(void)
{
	uint32		ticket = pg_atomic_add_fetch_u32(&zk->proof_asked, 1);

	wake_worker();
	return ticket;
}

/*
 * proof_is_given
 *		Has ZooKeeper confirmed the session after this ticket was drawn?
 */
bool
proof_is_given(uint32 ticket)
{
	bool		given = (int32) (pg_atomic_read_u32(&zk->proof_given) - ticket) >= 0;

	pg_read_barrier();
	return given;
}

/*
 * proof_prepare_wait
 *		Have our latch set by the next proof or loss.  To be followed by a look
 *		at what is waited for, and ended by ConditionVariableCancelSleep().
 */
void
proof_prepare_wait(void)
{
	ConditionVariablePrepareToSleep(&zk->proof_cv);
}

/*
 * session_read
 *		Copy the state of the ZooKeeper session.
 */
void
session_read(ZkSessionInfo *info)
{
	LWLockAcquire(session_lock(), LW_SHARED);
	*info = zk->session;
	LWLockRelease(session_lock());
}

/*
 * path_bytes_read
 *		How many of ZK_MAX_PATH_BYTES the session has in use.
 */
int64
path_bytes_read(void)
{
	return (int64) pg_atomic_read_u64(&zk->path_bytes);
}

/*
 * directories_read
 *		How many lock directories the worker has made since server start.
 */
int64
directories_read(void)
{
	return (int64) pg_atomic_read_u64(&zk->directories);
}

/* "boot" is when zk_now_us() was 0. */
static void
fill_row(ZkLockRow *row, const ZkSlot *slot, const ZkProcLock *proc,
		 TimestampTz boot)
{
	read_key(slot, row->key);
	row->pid = proc->pid;
	row->kind = proc->kind;
	row->session = proc->session;
	row->granted = proc->granted;
	row->lost = proc->lost;
	row->since = boot + proc->since;
	row->token = proc->granted && !proc->lost ? slot->token : 0;
}

/*
 * slots_snapshot
 *		All holds and waits of this cluster at one moment, palloc'd.
 */
ZkLockRow *
slots_snapshot(int *nrows)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	ZkLockRow  *rows;
	int			n = 0;
	TimestampTz boot = -zk_now_us();

	boot += GetCurrentTimestamp();

	/* allocated ahead of the locks */
	rows = MemoryContextAllocHuge(CurrentMemoryContext,
								  mul_size(max_procs(), sizeof(ZkLockRow)));
	lock_all(LW_SHARED);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			fill_row(&rows[n++], slot, proc, boot);
	unlock_all();

	*nrows = n;
	return rows;
}

/* Is this the lock directory of the slot? */
static bool
is_of_path(const ZkSlot *slot, const char *path)
{
	char		directory[ZNODE_PATH_SIZE];

	slot_read_path(slot, directory);
	return strcmp(directory, path) == 0;
}

/*
 * slots_holders
 *		The backends of this cluster that hold the lock, or a permit, whose
 *		directory this is: an array, palloc'd.
 */
int *
slots_holders(const char *path, int *npids)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	int		   *pids = palloc(max_procs() * sizeof(int));
	int			n = 0;

	lock_all(LW_SHARED);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (!is_of_path(slot, path))
			continue;
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			if (proc->granted && !proc->lost)
				pids[n++] = proc->pid;
	}
	unlock_all();

	*npids = n;
	return pids;
}

/*
 * Cancel what a backend is running, if it holds the slot: not any more when its
 * commit has begun, since a signal would only cut short its wait for a
 * synchronous standby.  The partition lock is held exclusively, so that the
 * backend neither ends nor begins its commit meanwhile.
 */
static bool
cancel_holder(const ZkProcLock *proc)
{
	return proc->granted && !proc->lost && !proc->committing &&
		kill(-proc->pid, SIGINT) == 0;
}

static bool
is_one_of(int pid, const int *pids, int npids)
{
	for (int i = 0; i < npids; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/*
 * slots_cancel_holders
 *		Cancel what the backends of slots_holders() are running, of which the
 *		caller may have left out some.
 *
 * Returns how many they are, without those that do not hold the lock any more,
 * or are in their commit: that ends by itself.
 */
int
slots_cancel_holders(const char *path, const int *pids, int npids)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	int			n = 0;

	if (npids == 0)
		return 0;
	lock_all(LW_EXCLUSIVE);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (!is_of_path(slot, path))
			continue;
		for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
			if (is_one_of(proc->pid, pids, npids) && cancel_holder(proc))
				n++;
	}
	unlock_all();
	return n;
}

/*
 * slots_count
 *		How many slots, and wants and holds of them, are in use?
 */
void
slots_count(int *nslots, int *nprocs)
{
	*nslots = (int) pg_atomic_read_u32(&zk->nslots);
	*nprocs = (int) pg_atomic_read_u32(&zk->nprocs);
}

/*
 * slots_attach_worker
 *		The calling process is the worker from now on, until it ends.
 *
 * Old mail is thrown away: slots_list() shows all there is to know.
 */
void
slots_attach_worker(void)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;

	lock_all(LW_EXCLUSIVE);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		slot->mailed = false;
		slot->watched = false;
		slot->watch_asked = false;
		if (slot->look_wanted || slot->look_start != 0)
		{
			/* who waits for it asks again */
			slot->look_wanted = false;
			slot->look_start = 0;
			ConditionVariableBroadcast(&slot->cv);
		}
	}
	SpinLockAcquire(&zk->mail_lock);
	zk->mail_head = NULL;
	zk->worker_latch = MyLatch;
	SpinLockRelease(&zk->mail_lock);
	unlock_all();
}

/*
 * slots_detach_worker
 *		The calling worker is about to end.
 */
void
slots_detach_worker(void)
{
	slots_hold_mail(false);
	SpinLockAcquire(&zk->mail_lock);
	zk->worker_latch = NULL;
	SpinLockRelease(&zk->mail_lock);
}

/*
 * slots_list
 *		The slots that want or have a contender, palloc'd.  They stay until the
 *		worker has said slot_set_gone().
 *
 * Slots that only an earlier worker's mail had kept are removed.
 */
ZkSlot **
slots_list(int *nslots)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	ZkSlot	  **list;
	int			n = 0;

	list = MemoryContextAllocHuge(CurrentMemoryContext,
								  mul_size(zklock_max_locks, sizeof(ZkSlot *)));
	lock_all(LW_EXCLUSIVE);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (slot->state != ZK_SLOT_NONE)
			list[n++] = slot;
		else
			remove_unused(slot);
	}
	unlock_all();

	*nslots = n;
	return list;
}

/*
 * slots_hold_mail
 *		The worker does not open its mail until it can send something again; or
 *		does.
 */
void
slots_hold_mail(bool held)
{
	if (held != (pg_atomic_read_u32(&zk->mail_held) != 0))
		pg_atomic_write_u32(&zk->mail_held, held);
}

/*
 * slots_collect_mail
 *		Take all mail: a chain of slots to be walked by slot_open_mail(), to
 *		its end.
 */
ZkSlot *
slots_collect_mail(void)
{
	ZkSlot	   *head;

	SpinLockAcquire(&zk->mail_lock);
	head = zk->mail_head;
	zk->mail_head = NULL;
	SpinLockRelease(&zk->mail_lock);
	return head;
}

/*
 * slot_open_mail
 *		What does this slot of the collected chain ask for?
 *
 * Sets *next to the next slot of the chain and, for ZK_MAIL_WANT, *wanted.  The
 * slot may be gone afterwards if the answer is ZK_MAIL_NOTHING.
 */
ZkMail
slot_open_mail(ZkSlot *slot, ZkSlot **next, ZkContender *wanted)
{
	ZkMail		mail = ZK_MAIL_NOTHING;

	lock_slot(slot, LW_EXCLUSIVE);
	*next = slot->mail_next;
	if (slot->state == ZK_SLOT_IDLE && !has_taker(slot) &&
		slot->keep_until <= zk_now_ms())
		slot_event(slot, SLOT_GIVEN_UP);
	slot->mailed = false;
	*wanted = slot->contender;
	if (slot->state == ZK_SLOT_WANTED)
		mail = ZK_MAIL_WANT;
	else if (slot->state == ZK_SLOT_RELEASING)
		mail = ZK_MAIL_RELEASE;
	else if (slot->state == ZK_SLOT_HELD && slot->look_wanted)
	{
		mail = ZK_MAIL_CHECK_WRITERS;
		slot->look_start = zk_now_ms();
	}
	else if (slot->watch_wanted)
		mail = ZK_MAIL_WATCH_QUEUE;
	slot->look_wanted = false;
	slot->watch_wanted = false;
	unlock_slot(slot);
	return mail;
}

/*
 * slot_read_contender
 *		What the slot needs a contender for, and what is known of it already.
 */
ZkSlotState
slot_read_contender(ZkSlot *slot, ZkContender *contender)
{
	ZkSlotState state;

	lock_slot(slot, LW_SHARED);
	state = slot->state;
	*contender = slot->contender;
	LWLockRelease(partition_lock(slot->hash));
	return state;
}

/*
 * slot_set_uuid
 *		The worker is about to create a contender under this UUID.
 *
 * Noted ahead of the create, so that the next worker can find the znode even
 * if this one does not live to see the answer.  "retain" tells that the znode
 * will say that it may be idle, and so may be.
 */
void
slot_set_uuid(ZkSlot *slot, const uint8 *uuid, bool retain)
{
	lock_slot(slot, LW_EXCLUSIVE);
	memcpy(slot->contender.uuid, uuid, ZNODE_UUID_BYTES);
	slot->contender.has_uuid = true;
	slot->contender.retain = retain;
	slot->contender.has_sequence = false;
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_created
 *		The contender exists, with this sequence number.
 */
void
slot_set_created(ZkSlot *slot, int32 sequence)
{
	lock_slot(slot, LW_EXCLUSIVE);
	slot->contender.sequence = sequence;
	slot->contender.has_sequence = true;
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_uncreated
 *		It does not exist any more, and is about to be created again.
 */
void
slot_set_uncreated(ZkSlot *slot)
{
	lock_slot(slot, LW_EXCLUSIVE);
	slot->contender.has_sequence = false;
	LWLockRelease(partition_lock(slot->hash));
}

/* Waiters are to know that it may take long, if the slot is in this state. */
static void
set_queued(ZkSlot *slot, ZkSlotState state)
{
	lock_slot(slot, LW_EXCLUSIVE);
	if (!slot->queued && slot->state == state)
	{
		slot->queued = true;
		ConditionVariableBroadcast(&slot->cv);
	}
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_queued
 *		The contender stands behind others.
 *
 * If it is being given up meanwhile, that is no news: it goes in a moment.
 */
void
slot_set_queued(ZkSlot *slot)
{
	set_queued(slot, ZK_SLOT_WANTED);
}

/*
 * slot_set_stuck
 *		The contender is being given up, but ZooKeeper does not let it go.
 */
void
slot_set_stuck(ZkSlot *slot)
{
	set_queued(slot, ZK_SLOT_RELEASING);
}

static bool
has_ready_waiter(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted && proc->ready)
			return true;
	return false;
}

/*
 * slot_set_granted
 *		The contender owns the lock.
 *
 * If all who want it still wait for the heavyweight lock, returns when the
 * worker must look again, by slot_check_idle(); else 0.  They may be about to
 * get it; but they may also wait for somebody who in turn waits for our
 * contender.
 */
int64
slot_set_granted(ZkSlot *slot)
{
	int64		check_at = 0;

	lock_slot(slot, LW_EXCLUSIVE);
	slot_event(slot, SLOT_GRANTED);
	/* by now, or in a moment */
	slot->watched = slot->contender.retain && !slot->crowded;
	if (slot->state == ZK_SLOT_IDLE && !has_ready_waiter(slot))
		check_at = slot->keep_until;
	LWLockRelease(partition_lock(slot->hash));
	return check_at;
}

/*
 * slot_set_watched
 *		From now on the worker hears when others come to stand behind our
 *		contender; or not any more.
 */
void
slot_set_watched(ZkSlot *slot, bool watched)
{
	lock_slot(slot, LW_EXCLUSIVE);
	slot->watched = watched && !slot->crowded;
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_contended
 *		Others wait behind our contender, or the worker itself does, to end the
 *		session.
 *
 * What is only retained is given up.  Returns whether the slot is in use
 * instead, so that they have to wait.
 */
bool
slot_set_contended(ZkSlot *slot)
{
	bool		in_use;
	int64		now = zk_now_ms();

	lock_slot(slot, LW_EXCLUSIVE);
	if (slot->watched && !slot->contested)
		begin_turn(slot, zk_now_us());
	slot->watched = false;
	slot->crowded = true;
	if (slot->state == ZK_SLOT_IDLE && !has_taker(slot))
		slot_event(slot, SLOT_GIVEN_UP);
	/* it may have been retained before there was a taker */
	slot->keep_until = Min(slot->keep_until, now + MAX_IDLE_MS);
	in_use = slot->state == ZK_SLOT_IDLE || slot->state == ZK_SLOT_HELD;
	LWLockRelease(partition_lock(slot->hash));
	return in_use;
}

/*
 * slot_set_writers_checked
 *		The look is done: does an exclusive contender wait behind our shared
 *		one?
 */
void
slot_set_writers_checked(ZkSlot *slot, bool writer_behind)
{
	lock_slot(slot, LW_EXCLUSIVE);
	if (slot->look_start != 0)
	{
		slot->looked_at = slot->look_start;
		slot->look_start = 0;
		slot->writer_behind = writer_behind;
		ConditionVariableBroadcast(&slot->cv);
	}
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_token
 *		The fencing token of the contender that owns the lock.
 */
void
slot_set_token(ZkSlot *slot, int64 token)
{
	lock_slot(slot, LW_EXCLUSIVE);
	slot->token = token;
	ConditionVariableBroadcast(&slot->cv);
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_refused
 *		ZooKeeper refuses the contender.
 *
 * The waiter that asked is told.  The worker says slot_set_gone() when nothing
 * of the contender is left.
 */
void
slot_set_refused(ZkSlot *slot, ZkRefusal refusal, int permits_found)
{
	lock_slot(slot, LW_EXCLUSIVE);
	if (slot->state == ZK_SLOT_WANTED)
	{
		slot->refusal = refusal;
		slot->permits_found = permits_found;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_lost
 *		The contender is not the owner any more, though something of it may be
 *		left: the holders have lost the lock.
 */
void
slot_set_lost(ZkSlot *slot)
{
	lock_slot(slot, LW_EXCLUSIVE);
	if (slot->state == ZK_SLOT_HELD || slot->state == ZK_SLOT_IDLE)
	{
		lose_holders(slot);
		slot_event(slot, SLOT_GIVEN_UP);
	}
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_gone
 *		Nothing of the contender is left in ZooKeeper.
 *
 * Returns true if the slot is wanted all the same and needs a new contender;
 * else the slot may be gone.
 */
bool
slot_set_gone(ZkSlot *slot)
{
	bool		wanted;

	lock_slot(slot, LW_EXCLUSIVE);
	slot_event(slot, SLOT_CONTENDER_GONE);
	wanted = slot->state == ZK_SLOT_WANTED;
	unlock_slot(slot);
	return wanted;
}

/*
 * session_write
 *		Publish the state of the ZooKeeper session; the worker only.
 */
void
session_write(const ZkSessionInfo *info)
{
	LWLockAcquire(session_lock(), LW_EXCLUSIVE);
	zk->session = *info;
	LWLockRelease(session_lock());
}

/*
 * path_bytes_write
 *		Publish how many of ZK_MAX_PATH_BYTES are in use; the worker only.
 */
void
path_bytes_write(int64 bytes)
{
	pg_atomic_write_u64(&zk->path_bytes, (uint64) bytes);
}

/*
 * directories_count
 *		The worker has made a lock directory.
 */
void
directories_count(void)
{
	pg_atomic_fetch_add_u64(&zk->directories, 1);
}

/*
 * session_read_auths, session_write_auths
 *		The credentials that the session has presented; the worker only.
 *
 * They are kept for the worker after this one, apart from what views show.
 */
void
session_read_auths(char auths[ZK_AUTHS_SIZE])
{
	LWLockAcquire(session_lock(), LW_SHARED);
	memcpy(auths, zk->auths, ZK_AUTHS_SIZE);
	LWLockRelease(session_lock());
}

void
session_write_auths(const char auths[ZK_AUTHS_SIZE])
{
	LWLockAcquire(session_lock(), LW_EXCLUSIVE);
	memcpy(zk->auths, auths, ZK_AUTHS_SIZE);
	LWLockRelease(session_lock());
}

/*
 * proof_asked
 *		The latest ticket that waits for a proof, or has had it.
 */
uint32
proof_asked(void)
{
	return pg_atomic_read_u32(&zk->proof_asked);
}

/*
 * proof_latest
 *		The latest ticket that has its answer.
 */
uint32
proof_latest(void)
{
	return pg_atomic_read_u32(&zk->proof_given);
}

/*
 * lease_write
 *		Publish the lease, and up to which ticket it has been proved; the worker
 *		only.
 */
void
lease_write(int64 until, uint32 ticket)
{
	pg_atomic_write_u64(&zk->lease_until, (uint64) until);
	pg_atomic_write_u32(&zk->proof_given, ticket);
	ConditionVariableBroadcast(&zk->proof_cv);
}

/*
 * lease_shorten
 *		Rely on the session until then at the latest; the worker only.
 */
void
lease_shorten(int64 until)
{
	if (lease_read() > until)
		pg_atomic_write_u64(&zk->lease_until, (uint64) until);
}

/*
 * slots_retire
 *		Take back what the cluster owns, if no backend holds any of it, so that
 *		the worker may close the session.
 *
 * Returns false, and does nothing, while a slot is held: its holder may be in
 * the middle of its commit.
 */
bool
slots_retire(void)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	bool		held = false;

	lock_all(LW_EXCLUSIVE);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
		if (slot->state == ZK_SLOT_HELD)
			held = true;
	if (!held)
	{
		hash_seq_init(&scan, slots);
		while ((slot = hash_seq_search(&scan)) != NULL)
			if (slot->state == ZK_SLOT_IDLE)
				slot_event(slot, SLOT_GIVEN_UP);
	}
	unlock_all();
	return !held;
}

/* Is the backend somebody's, and not one like an autovacuum worker? */
static bool
has_role(int pid)
{
	const PGPROC *proc = BackendPidGetProc(pid);

	return proc && OidIsValid(proc->roleId);
}

/*
 * slot_cancel_holders
 *		Another client asks for the lock: cancel what its holders are running.
 *
 * Returns how many they are, as slots_cancel_holders() does.  It is not known who
 * asks, so processes that belong to no role are left alone.
 */
int
slot_cancel_holders(ZkSlot *slot)
{
	int			n = 0;

	lock_slot(slot, LW_EXCLUSIVE);
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (has_role(proc->pid) && cancel_holder(proc))
			n++;
	LWLockRelease(partition_lock(slot->hash));
	return n;
}

/*
 * slot_check_idle
 *		Give up the slot if it has been idle for too long.
 *
 * The backends that it was kept for do not come, or cannot take it: they wait
 * for something else, and must not keep other clusters waiting.  Returns when
 * to look again, or 0 if it is not idle.
 */
int64
slot_check_idle(ZkSlot *slot, int64 now)
{
	int64		check_at = 0;

	lock_slot(slot, LW_EXCLUSIVE);
	/* zklock.retain_time may have become shorter */
	if (slot->state == ZK_SLOT_IDLE && slot->contender.retain && !has_taker(slot))
		slot->keep_until = Min(slot->keep_until, now + zklock_retain_time);
	if (slot->state == ZK_SLOT_IDLE && now < slot->keep_until)
		check_at = slot->keep_until;
	else if (slot->state == ZK_SLOT_IDLE && slot->reserved &&
			 has_ready_waiter(slot))
		check_at = now + MAX_IDLE_MS;	/* for others that it wants with it */
	else if (slot->state == ZK_SLOT_IDLE)
	{
		slot->asked = false;
		slot_event(slot, SLOT_GIVEN_UP);
	}
	LWLockRelease(partition_lock(slot->hash));
	return check_at;
}

/*
 * slot_give_up_idle
 *		Give up the slot if it is only retained, to make room for others.
 *
 * Returns whether it was.  The worker must see to its release.
 */
bool
slot_give_up_idle(ZkSlot *slot)
{
	bool		given_up;

	lock_slot(slot, LW_EXCLUSIVE);
	given_up = slot->state == ZK_SLOT_IDLE && slot->nwanting == 0;
	if (given_up)
		slot_event(slot, SLOT_GIVEN_UP);
	LWLockRelease(partition_lock(slot->hash));
	return given_up;
}

/*
 * worker_wake
 *		There is something to do for the worker that is not in the mail.
 */
void
worker_wake(void)
{
	wake_worker();
}
