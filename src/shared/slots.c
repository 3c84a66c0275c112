/*-------------------------------------------------------------------------
 *
 * slots.c
 *		The locks of this instance in shared memory: slots, states, locks.
 *
 * All backends of the instance that want a lock share one place in its queue
 * in ZooKeeper.  That place is handed from one backend to the next, is kept
 * while none of them holds the lock, and outlives each of them and the worker.
 * So it belongs to no process, but to an entry in shared memory: the slot.
 *
 * A slot is what this instance owns or wants of a lock.  Backends ask for
 * slots, take and drop them (take.c); the worker keeps one contender in
 * ZooKeeper for each slot that is wanted or owned (grant.c).  That a backend
 * has the heavyweight lock of a name orders the backends, but safety rests on
 * the slot's state alone.  The states, and what moves a slot between them:
 *
 *				asked	granted	taken	handed	given up  requeued	gone
 *	NONE		WANTED	-		-		-		-		  -			-
 *	WANTED		-		IDLE	-		-		RELEASING -			NONE*
 *	IDLE		-		-		HELD	-		RELEASING -			NONE*
 *	HELD		-		-		HELD	IDLE	RELEASING -			NONE*
 *	RELEASING	-		-		-		-		-		  WANTED	NONE*
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
 *					a backend that waits for something else first; by the
 *					worker, if the lock is lost, others wait for it, or no
 *					backend takes it
 *	requeued		by the worker, before it sends the delete, if a backend
 *					waits for another contender: the delete and that one's
 *					create go in one step
 *	gone			the worker says so: our contender is deleted, or expired
 *					with its session; *: WANTED if a backend waits for another
 *					one.  The holders, if there are any, have lost the lock,
 *					and are marked so.
 *
 * "-": ignored, since the worker's report may come late: a grant that arrives
 * when the slot has been given up changes nothing.
 *
 * A ZkProcLock is what one backend wants or holds of a slot: the backend wants
 * the slot, is ready to take it once it has the heavyweight lock, then holds
 * it.  A lock has a slot for each mode, since it has a contender for each.
 * Several backends hold the readers' slot together.  They may join the holders
 * only while no exclusive contender of another instance waits behind ours.  The
 * worker lists and watches the queue for that when a backend wants to join, if
 * it does not watch already, but at most once in zklock.handoff_quantum.
 *
 * With zklock.exclusion = instance a lock has one slot of its own for all
 * modes (ZK_KEY_INSTANCE), which is always NONE, so that the worker does not
 * see it.  A backend takes it when no other one holds it in a mode that
 * excludes its own.
 *
 * An instance must not wait for itself.  So a grant is kept only for a backend
 * that has the heavyweight lock: one that still waits in the lock manager may
 * wait for a backend that waits in ZooKeeper for that very contender.  A grant
 * that no backend is ready for is soon given up; readers hand on to ready
 * backends only; and a backend that is ready in one mode gives up what the
 * instance has of the other.  core/lock/turn.c decides when an unheld slot is
 * kept.
 *
 * Locking protocol.
 *
 * The slots are a hash table of ZK_PARTITIONS partitions, with an LWLock each.
 * Finding, entering or removing a slot, and reading or changing any of its
 * fields or of its ZkProcLocks, is done under the lock of its partition
 * (exclusive to change anything; but see slot_begin_commit()).  A pointer to a
 * slot stays valid without the lock while the slot is in use: while it has a
 * ZkProcLock, is in the worker's mail, or is in any state but NONE.  The
 * process that ends the last use removes the slot.  A ZkProcLock belongs to
 * its backend, which alone frees it.  A process that wants several partition
 * locks takes them in ascending order.  A slot in use keeps the root of its
 * key in use (key.c), so its key, too, can be read without the lock.
 *
 * A backend that waits only for a slot may be part of a deadlock with other
 * instances.  To end the wait, the worker notes the deadlock in the backend's
 * ZkProcLock (slots_end_wait()); the backend finds the note when it next tries
 * to take the slot.  The note is cleared when the wait ends, and at any change
 * of the slot's state, since the wait is then another one.
 *
 * A change that the worker must see puts the slot into the worker's mail, a
 * chain through the slots themselves, so that it can never be full.  A slot's
 * state tells what it asks for, so a new worker needs no old mail.  While the
 * worker cannot send anything ("held"), mail does not wake it; it looks for
 * mail when it can send again.  Beside the chain are the generations of waits
 * and holds that have ended, of those that a scan for deadlocks has seen.
 *
 * The mail is read and changed under its spinlock, which may be taken inside
 * any LWLock; but see mail_is_waiting().  "mailed" is set and cleared under the
 * partition lock, and stays set until the worker has opened the mail under
 * that lock, so that a slot is neither linked twice nor removed meanwhile;
 * until then that lock guards the links of a chain that the worker has
 * collected.  The functions that release partition locks wake the worker for
 * the slots mailed under them.
 *
 * The ZkProcLocks are of a fixed number.  A backend takes one for each slot
 * that it wants, and gives it back when it neither wants nor holds the slot.
 * A spinlock, taken inside partition locks, guards the free list and the
 * counts.  The slot of a free one is NULL, so that a process that scans them
 * with procs_used() and proc_at() can tell: see proc_lock_slot().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/slots.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "core/mutation.h"
#include "core/remote.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots_private.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/guc.h"

#define ZK_TRANCHE		"zklock"
#define ZK_PARTITIONS	64

/* What all slots share, the worker's mail, and what backends want or hold. */
typedef struct SlotsShared
{
	pg_atomic_uint32 nslots;	/* entries of the hash table, exactly */
	pg_atomic_uint32 release_time;	/* see slots_release_time() */
	ConditionVariable room;		/* broadcast when a slot is free again */

	slock_t		mail_lock;		/* of what follows */
	bool		held;			/* the worker cannot send anything yet */
	ZkSlot	   *mail;			/* a chain, the latest first */
	int			nends;			/* or one more: there was no room for all */
	int64		ends[SLOTS_MAX_ENDS];	/* see slot_end_watch() */

	slock_t		procs_lock;		/* of what follows */
	int			nused;
	int			nused_ever;		/* those from here on were never in use */
	bool		remote_seen;	/* see procs_remote_seen(); without the lock,
								 * since it is only ever set */
	ZkProcLock *free;			/* of those that were */
	ZkProcLock	procs[FLEXIBLE_ARRAY_MEMBER];	/* procs_max() of them */
} SlotsShared;

static SlotsShared *shared = NULL;
static bool mail_is_due = false;	/* send_mail() is to wake the worker */
static HTAB *slots = NULL;
static LWLockPadded *locks = NULL;
static bool locked[ZK_PARTITIONS];	/* by slots_lock_of() or _all() */

/* Of the worker; true at first, since the one before may have ended. */
bool		claims_may_be_lost = true;

/* Is this a superuser's session?  See procs_note_role(). */
static bool of_superuser = false;

/*
 * procs_max
 *		The maximum number of wants and holds: one for each lock, and a reserve
 *		for shared ones.
 */
int
procs_max(void)
{
	return zklock_max_locks + MaxBackends;
}

static Size
shared_size(void)
{
	return offsetof(SlotsShared, procs) +
		mul_size(procs_max(), sizeof(ZkProcLock));
}

/*
 * slots_request_shmem
 *		Reserve shared memory and locks; for the shmem_request_hook.
 */
void
slots_request_shmem(void)
{
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(hash_estimate_size(zklock_max_locks,
											  sizeof(ZkSlot)));
	RequestNamedLWLockTranche(ZK_TRANCHE, ZK_PARTITIONS);
	keys_request_shmem();
}

/*
 * slots_startup_shmem
 *		Create or attach to the slots and what they stand on;
 *		AddinShmemInitLock is held.
 */
void
slots_startup_shmem(void)
{
	bool		found;
	HASHCTL		ctl;
	int			flags;

	keys_startup_shmem();
	shared = ShmemInitStruct("zklock", shared_size(), &found);
	if (!found)
	{
		memset(shared, 0, shared_size());
		pg_atomic_init_u32(&shared->nslots, 0);
		pg_atomic_init_u32(&shared->release_time, 0);
		ConditionVariableInit(&shared->room);
		SpinLockInit(&shared->mail_lock);
		SpinLockInit(&shared->procs_lock);
	}

	flags = key_hash_ctl(&ctl, sizeof(ZkSlot));
	ctl.num_partitions = ZK_PARTITIONS;
	slots = ZkShmemInitHash("zklock slots", zklock_max_locks, &ctl,
							flags | HASH_PARTITION | HASH_FIXED_SIZE);
	locks = GetNamedLWLockTranche(ZK_TRANCHE);
}

/*
 * slots_available
 *		Is the shared state there, that is, was zklock preloaded?
 */
bool
slots_available(void)
{
	return shared != NULL;
}

/*
 * slot_key, slot_cv
 *		The key of a slot in use, and its condition variable, which is
 *		broadcast at every change that concerns a waiter.
 */
const ZkKey *
slot_key(const ZkSlot *slot)
{
	return &slot->key;
}

ConditionVariable *
slot_cv(ZkSlot *slot)
{
	return &slot->cv;
}

static LWLock *
partition_lock(uint32 hash)
{
	return &locks[hash % ZK_PARTITIONS].lock;
}

/*
 * Wake the worker for the mail of this process, unless mail is held.
 *
 * Not under the partition lock: the worker needs it at once.
 */
static void
send_mail(void)
{
	if (!mail_is_due)
		return;
	mail_is_due = false;
	worker_wake();
}

/*
 * slot_lock, slot_unlock
 *		Lock and unlock the partition of a slot in use.
 */
void
slot_lock(const ZkSlot *slot, LWLockMode mode)
{
	LWLockAcquire(partition_lock(slot->key.hash), mode);
}

void
slot_unlock(const ZkSlot *slot)
{
	LWLockRelease(partition_lock(slot->key.hash));
	send_mail();
}

/*
 * slot_unlock_last
 *		Unlock the partition of a slot, and remove the slot if the caller was
 *		its last user; the lock is held exclusively.
 */
void
slot_unlock_last(ZkSlot *slot)
{
	LWLock	   *lock = partition_lock(slot->key.hash);

	slot_remove_unused(slot);
	LWLockRelease(lock);
	send_mail();
}

/*
 * proc_lock_slot
 *		Lock the partition of a ZkProcLock's slot; if it has none, lock nothing
 *		and return NULL.
 *
 * The ZkProcLock is any of proc_at(), so its slot is read without the lock,
 * and may be another one, or in no use, by the time the partition is locked.
 * Under the lock, if the ZkProcLock belongs to the slot and the slot has the
 * hash of that partition, neither changes any more: a slot of another
 * partition would have to be entered in this one first.
 */
ZkSlot *
proc_lock_slot(const ZkProcLock *proc, LWLockMode mode)
{
	ZkSlot	   *slot = *(ZkSlot *volatile const *) &proc->slot;
	uint32		hash;

	if (slot == NULL)
		return NULL;
	hash = *(volatile uint32 *) &slot->key.hash;
	LWLockAcquire(partition_lock(hash), mode);
	if (*(ZkSlot *volatile const *) &proc->slot == slot)
	{
		pg_read_barrier();
		if (*(volatile uint32 *) &slot->key.hash == hash)
			return slot;
	}
	LWLockRelease(partition_lock(hash));
	return NULL;
}

/*
 * slots_lock_of, slots_lock_all, slots_unlock
 *		Lock the partitions of several slots exclusively, or all partitions;
 *		and unlock those that this process has so locked last.
 */
void
slots_lock_of(ZkProcLock **procs, int n)
{
	memset(locked, false, sizeof(locked));
	for (int i = 0; i < n; i++)
		locked[procs[i]->slot->key.hash % ZK_PARTITIONS] = true;
	for (int i = 0; i < ZK_PARTITIONS; i++)
		if (locked[i])
			LWLockAcquire(&locks[i].lock, LW_EXCLUSIVE);
}

void
slots_lock_all(LWLockMode mode)
{
	memset(locked, true, sizeof(locked));
	for (int i = 0; i < ZK_PARTITIONS; i++)
		LWLockAcquire(&locks[i].lock, mode);
}

void
slots_unlock(void)
{
	for (int i = ZK_PARTITIONS - 1; i >= 0; i--)
		if (locked[i])
			LWLockRelease(&locks[i].lock);
	send_mail();
}

/*
 * slots_scan
 *		Begin to scan the slots by hash_seq_search(); the caller holds all
 *		partition locks.
 */
void
slots_scan(HASH_SEQ_STATUS *scan)
{
	hash_seq_init(scan, slots);
}

static ZkSlot *
find(const ZkKey *key)
{
	return hash_search_with_hash_value(slots, key, key->hash, HASH_FIND, NULL);
}

/*
 * slot_find_locked
 *		Lock the partition of the slot with this key; if there is no such slot,
 *		lock nothing and return NULL.
 */
ZkSlot *
slot_find_locked(const ZkKey *key, LWLockMode mode)
{
	LWLock	   *lock = partition_lock(key->hash);
	ZkSlot	   *slot;

	LWLockAcquire(lock, mode);
	slot = find(key);
	if (slot == NULL)
		LWLockRelease(lock);
	return slot;
}

/*
 * slot_find_other_mode
 *		As slot_find_locked(), for the slot of the same lock whose contender
 *		would conflict with this slot's, which is in use and not locked.
 */
ZkSlot *
slot_find_other_mode(const ZkSlot *slot, LWLockMode mode)
{
	ZkKey		other;

	return key_in_other_mode(&slot->key, &other) ?
		slot_find_locked(&other, mode) : NULL;
}

/* Count one more slot; false if there are zklock.max_locks. */
static bool
count_slot(void)
{
	uint32		n = pg_atomic_read_u32(&shared->nslots);

	while (n < (uint32) zklock_max_locks)
		if (pg_atomic_compare_exchange_u32(&shared->nslots, &n, n + 1))
			return true;
	return false;
}

static void
uncount_slot(void)
{
	if (pg_atomic_fetch_sub_u32(&shared->nslots, 1) >= (uint32) zklock_max_locks)
		ConditionVariableBroadcast(&shared->room);
}

/* Set up a slot that was just entered with its key. */
static void
init_slot(ZkSlot *slot)
{
	memset(&slot->state, 0, sizeof(ZkSlot) - offsetof(ZkSlot, state));
	slot->state = ZK_SLOT_NONE;
	slot->procs_end = &slot->procs;
	ConditionVariableInit(&slot->cv);
	key_set_advisory(&slot->key, false);
	root_use(slot->key.root);
}

/* Enter the slot with this key, a new one; NULL if all are in use. */
static ZkSlot *
enter(const ZkKey *key)
{
	ZkSlot	   *slot;

	if (!count_slot())
		return NULL;
	slot = hash_search_with_hash_value(slots, key, key->hash,
									   HASH_ENTER_NULL, NULL);
	if (slot == NULL)
		uncount_slot();
	else
		init_slot(slot);
	return slot;
}

/*
 * slot_enter_locked
 *		Find or make the slot with this key, and lock its partition
 *		exclusively; if all slots are in use, lock nothing and return NULL.
 */
ZkSlot *
slot_enter_locked(const ZkKey *key)
{
	LWLock	   *lock = partition_lock(key->hash);
	ZkSlot	   *slot;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	slot = find(key);
	if (slot == NULL)
		slot = enter(key);
	if (slot == NULL)
		LWLockRelease(lock);
	return slot;
}

/*
 * slot_remove_unused
 *		Remove the slot if nobody uses it; the partition lock is held
 *		exclusively.
 */
void
slot_remove_unused(ZkSlot *slot)
{
	if (slot->state != ZK_SLOT_NONE || slot->procs != NULL || slot->mailed)
		return;
	root_leave(slot->key.root);
	if (hash_search_with_hash_value(slots, &slot->key, slot->key.hash,
									HASH_REMOVE, NULL) != NULL)
		uncount_slot();
}

/*
 * slots_in_use
 *		How many of the zklock.max_locks slots are in use?
 */
int
slots_in_use(void)
{
	return (int) pg_atomic_read_u32(&shared->nslots);
}

/*
 * slots_room_cv
 *		The condition variable that is broadcast when one of all slots in use
 *		is free again.
 */
ConditionVariable *
slots_room_cv(void)
{
	return &shared->room;
}

/*
 * slots_give_up_retained
 *		Give up all slots that are only retained, to make room for others.
 *
 * Returns whether a slot is free, or will soon be.
 */
bool
slots_give_up_retained(void)
{
	HASH_SEQ_STATUS scan;
	ZkSlot	   *slot;
	bool		room;

	slots_lock_all(LW_EXCLUSIVE);
	room = slots_in_use() < zklock_max_locks;
	slots_scan(&scan);
	while ((slot = hash_seq_search(&scan)) != NULL)
	{
		if (slot->procs != NULL)
			continue;
		if (slot->state == ZK_SLOT_IDLE)
			slot_event(slot, SLOT_GIVEN_UP);

		/* being released; or only in the worker's mail */
		room = true;
	}
	slots_unlock();
	return room;
}

/*
 * slot_retain_time
 *		How long the slot may be retained, in us: as long as its contender
 *		says, or less if the settings have changed.
 */
int64
slot_retain_time(const ZkSlot *slot)
{
	int64		most_us = most_retain_us();

	return Min((int64) slot->contender.retain_ms * 1000, most_us);
}

/*
 * slots_release_time
 *		How long the instance takes to release a lock in ZooKeeper, in us; 0:
 *		unknown.
 */
int32
slots_release_time(void)
{
	return (int32) pg_atomic_read_u32(&shared->release_time);
}

/*
 * slot_read_other_mode
 *		The state of the slot that slot_find_other_mode() finds, and its
 *		contender; NONE if there is no such slot.
 */
ZkSlotState
slot_read_other_mode(const ZkSlot *slot, ZkContender *contender)
{
	ZkSlotState state;
	ZkSlot	   *other = slot_find_other_mode(slot, LW_SHARED);

	if (other == NULL)
		return ZK_SLOT_NONE;
	state = other->state;
	*contender = other->contender;
	slot_unlock(other);
	return state;
}

/*
 * slot_read_contender
 *		The state of a slot, and its contender.
 */
ZkSlotState
slot_read_contender(ZkSlot *slot, ZkContender *contender)
{
	ZkSlotState state;

	slot_lock(slot, LW_SHARED);
	state = slot->state;
	*contender = slot->contender;
	slot_unlock(slot);
	return state;
}

/*
 * procs_in_use
 *		How many wants and holds are there?
 */
int
procs_in_use(void)
{
	int			n;

	SpinLockAcquire(&shared->procs_lock);
	n = shared->nused;
	SpinLockRelease(&shared->procs_lock);
	return n;
}

/*
 * procs_used
 *		How many ZkProcLocks, from the first, were ever in use?
 */
int
procs_used(void)
{
	int			n;

	SpinLockAcquire(&shared->procs_lock);
	n = shared->nused_ever;
	SpinLockRelease(&shared->procs_lock);
	return n;
}

/*
 * proc_at
 *		The ZkProcLock with this number, below procs_used(); it may be in use
 *		or not.
 */
ZkProcLock *
proc_at(int i)
{
	return &shared->procs[i];
}

/*
 * procs_note_role
 *		Note whether the session is a superuser's, for the ZkProcLocks that it
 *		takes from now on.
 *
 * This may read a catalog, so it is done neither under a partition lock nor in
 * a wait without a snapshot.
 */
void
procs_note_role(void)
{
	of_superuser = superuser_arg(MyProc->roleId);
}

/*
 * proc_new
 *		Take a ZkProcLock of this process and its transaction from the free
 *		ones, with what "wish" says; NULL if there is none.
 */
ZkProcLock *
proc_new(const ZkProcLock *wish)
{
	ZkProcLock *proc;
	RemoteSession origin;

	if (!shared->remote_seen &&
		remote_of_application(application_name, &origin))
		shared->remote_seen = true;
	SpinLockAcquire(&shared->procs_lock);
	proc = shared->free;
	if (proc)
		shared->free = proc->next;
	else if (shared->nused_ever < procs_max())
		proc = &shared->procs[shared->nused_ever++];
	if (proc)
		shared->nused++;
	SpinLockRelease(&shared->procs_lock);
	if (proc)
	{
		*proc = *wish;
		proc->procno = ZkMyProcNumber;
		proc->superuser = of_superuser;
		proc->xact_start = GetCurrentTransactionStartTimestamp();
	}
	return proc;
}

/*
 * procs_remote_seen
 *		Has a session that works for another instance's, by postgres_fdw, ever
 *		wanted a lock here?
 */
bool
procs_remote_seen(void)
{
	return shared->remote_seen;
}

/*
 * proc_free
 *		Give back a ZkProcLock that belongs to no slot.
 */
void
proc_free(ZkProcLock *proc)
{
	SpinLockAcquire(&shared->procs_lock);
	proc->next = shared->free;
	shared->free = proc;
	shared->nused--;
	SpinLockRelease(&shared->procs_lock);
}

/* Cancel a backend's statement, or end it; the partition lock is held. */
static bool
signal_backend(const ZkProcLock *proc, int signo)
{
	int			pid = proc_backend(proc)->pid;

	return pid != 0 && kill(-pid, signo) == 0;
}

/*
 * proc_cancel
 *		Cancel a backend's statement, if it holds its slot; returns whether it
 *		was canceled.
 *
 * Not once its commit has begun: a signal would only cut short its wait for a
 * synchronous standby.  The partition lock is held exclusively, so that the
 * backend neither ends nor begins its commit meanwhile.
 */
bool
proc_cancel(const ZkProcLock *proc)
{
	return proc->granted && !proc->lost && !proc->committing &&
		!proc->is_claim && signal_backend(proc, SIGINT);
}

/*
 * slot_mail
 *		Put the slot into the worker's mail; the partition lock is held
 *		exclusively.  The worker is woken when the lock is released.
 */
void
slot_mail(ZkSlot *slot)
{
	if (slot->mailed)
		return;
	slot->mailed = true;
	SpinLockAcquire(&shared->mail_lock);
	slot->mail_next = shared->mail;
	shared->mail = slot;
	mail_is_due |= !shared->held;
	SpinLockRelease(&shared->mail_lock);
}

/*
 * slot_end_watch
 *		A wait or hold ends: let the worker know by its generation, if a scan
 *		for deadlocks has seen it; the partition lock is held exclusively.
 *
 * Who gives a slot up calls this first, so that the worker has it ahead of the
 * slot.
 */
void
slot_end_watch(ZkProcLock *proc)
{
	if (!proc->watched)
		return;
	proc->watched = false;
	SpinLockAcquire(&shared->mail_lock);
	if (shared->nends < SLOTS_MAX_ENDS)
		shared->ends[shared->nends++] = proc->since;
	else
		shared->nends = SLOTS_MAX_ENDS + 1;
	mail_is_due |= !shared->held;
	SpinLockRelease(&shared->mail_lock);
}

/*
 * mail_is_waiting
 *		Is mail waiting until the worker can send something again?
 *
 * The spinlock is not taken, since this is only about when a lock is given
 * up, and may be otherwise in a moment.
 */
bool
mail_is_waiting(void)
{
	return *(volatile bool *) &shared->held &&
		*(ZkSlot *volatile *) &shared->mail != NULL;
}

/*
 * mail_clear
 *		A worker begins; all partition locks are held.  Old mail is discarded.
 */
void
mail_clear(void)
{
	SpinLockAcquire(&shared->mail_lock);
	shared->mail = NULL;
	shared->nends = 0;
	SpinLockRelease(&shared->mail_lock);
}

/*
 * slots_hold_mail
 *		The worker stops opening its mail until it can send something again; or
 *		opens it again, and does not sleep if there is some.
 */
void
slots_hold_mail(bool held)
{
	bool		missed;

	SpinLockAcquire(&shared->mail_lock);
	missed = shared->held && !held && shared->mail != NULL;
	shared->held = held;
	SpinLockRelease(&shared->mail_lock);
	if (missed)
		SetLatch(MyLatch);
}

/*
 * slots_collect_mail
 *		Take all mail: a chain of slots, the latest first, or NULL; to be
 *		walked to its end by slot_open_mail().
 */
ZkSlot *
slots_collect_mail(void)
{
	ZkSlot	   *first;

	SpinLockAcquire(&shared->mail_lock);
	first = shared->mail;
	shared->mail = NULL;
	SpinLockRelease(&shared->mail_lock);
	return first;
}

/*
 * slots_collect_ends
 *		Take the ends of waits and holds in the mail: at most SLOTS_MAX_ENDS,
 *		and how many they are.  Sets *all to whether there were no more.
 */
int
slots_collect_ends(int64 *ends, bool *all)
{
	int			n;

	SpinLockAcquire(&shared->mail_lock);
	n = Min(shared->nends, SLOTS_MAX_ENDS);
	*all = n == shared->nends;
	memcpy(ends, shared->ends, n * sizeof(int64));
	shared->nends = 0;
	SpinLockRelease(&shared->mail_lock);
	return n;
}

/*
 * Mark that a backend has lost what it holds.
 *
 * Its statement is canceled; but not a commit that has passed its check (see
 * proc_cancel()), nor a call that begins again.  With
 * zklock.terminate_on_loss, the loss of a session-scoped hold ends the
 * session; behind such a commit, slot_end_commit() does that.  The caller is
 * the worker, and holds the partition lock exclusively.
 */
static void
proc_lose(ZkProcLock *proc)
{
	proc->lost = true;
	if (proc->is_claim)
		claims_may_be_lost = true;
	else if (!proc->committing && !proc->provisional)
		(void) signal_backend(proc, proc->terminates &&
							  !ZK_MUTATED(ZK_LOSS_CANCELS) ?
							  SIGTERM : SIGINT);
}

/*
 * slot_lose_holders
 *		Mark that the holders have lost the lock; the partition lock is held
 *		exclusively.
 *
 * Their statements are canceled: see proc_lose().
 */
void
slot_lose_holders(ZkSlot *slot)
{
	slot->nholding = 0;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
	{
		if (!proc->granted || proc->lost)
			continue;
		slot_end_watch(proc);
		stats_lost(&slot->key);
		proc_lose(proc);
		proof_wake_waiters();
	}
}

/* Note which contender the worker is to keep in ZooKeeper for the slot. */
static void
want_contender(ZkSlot *slot)
{
	slot->contender.kind = slot->asked_kind;
	slot->contender.permits = slot->asked_permits;
	slot->contender.asker_pid = slot->asker_pid;
}

/*
 * slot_learn_release
 *		The contender that was given up, if any, is gone: measure how long that
 *		took.
 *
 * The caller is the worker, and holds the partition lock exclusively.
 */
void
slot_learn_release(ZkSlot *slot)
{
	int32		known = slots_release_time();
	int32		now_known = turn_gone(&slot->turn, known, zk_now_us());

	if (now_known != known)
		pg_atomic_write_u32(&shared->release_time, now_known);
}

/* The contender is gone, and with it all that the instance owned by it. */
static void
end_contender(ZkSlot *slot)
{
	memset(&slot->contender, 0, sizeof(slot->contender));
	slot->token = 0;
	slot->token_refusal = ZK_REFUSAL_NONE;
	slot->check_start = 0;
	slot->check_wanted = false;
	turn_unknown(&slot->turn);
	slot_lose_holders(slot);
}

/* Does a backend wait for another contender? */
static bool
is_wanted_again(const ZkSlot *slot)
{
	return slot->asked && slot->refusal == ZK_REFUSAL_NONE;
}

/* The waits are no longer those that a deadlock was found for. */
static void
spare_victims(ZkSlot *slot)
{
	if (!slot->has_victim)
		return;
	slot->has_victim = false;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		proc->victim_of = 0;
}

/* The contender is given up: nobody waits behind others with it any more. */
static void
end_waits(ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted)
			slot_end_watch(proc);
}

/* The table in this file's header; the state itself if an event is ignored. */
static ZkSlotState
next_state(const ZkSlot *slot, SlotEvent event)
{
	switch (event)
	{
		case SLOT_ASKED:
			if (slot->state == ZK_SLOT_NONE)
				return ZK_SLOT_WANTED;
			break;
		case SLOT_GRANTED:
			if (slot->state == ZK_SLOT_WANTED)
				return ZK_SLOT_IDLE;
			break;
		case SLOT_TAKEN:
			if (slot->state == ZK_SLOT_IDLE)
				return ZK_SLOT_HELD;
			break;
		case SLOT_HANDED:
			if (slot->state == ZK_SLOT_HELD)
				return ZK_SLOT_IDLE;
			break;
		case SLOT_GIVEN_UP:
			if (slot->state != ZK_SLOT_NONE)
				return ZK_SLOT_RELEASING;
			break;
		case SLOT_REQUEUED:
			if (slot->state == ZK_SLOT_RELEASING && is_wanted_again(slot))
				return ZK_SLOT_WANTED;
			break;
		case SLOT_CONTENDER_GONE:
			if (slot->state != ZK_SLOT_NONE && is_wanted_again(slot))
				return ZK_SLOT_WANTED;
			return ZK_SLOT_NONE;
	}
	return slot->state;
}

/*
 * The next contender is wanted.  Must any backend look at the slot all the
 * same?  A ready one that has not asked must, to ask.  Backends that have asked
 * wait on, and those in the lock manager do not look at the slot.
 */
static bool
has_other_waiter(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted && proc->ready && !proc->asked)
			return true;
	return false;
}

/*
 * slot_event
 *		The transition function: see the table in this file's header.
 *
 * The caller holds the partition lock exclusively.  Wakes the waiters, except
 * in two cases, since each waiter takes the partition lock when it wakes up,
 * and there may be many.  When the slot is granted, the caller wakes them
 * after it has released the lock.  When the next contender replaces the one
 * that was given up, nothing changes for the backends that have asked for it:
 * they are woken only if another waiter has to look.
 */
void
slot_event(ZkSlot *slot, SlotEvent event)
{
	ZkSlotState last = slot->state;
	ZkSlotState next = next_state(slot, event);

	if (next == last && event != SLOT_CONTENDER_GONE)
		return;
	slot->state = next;
	slot->queued = false;
	spare_victims(slot);

	if (event == SLOT_GIVEN_UP)
		end_waits(slot);
	if (event == SLOT_GIVEN_UP && last != ZK_SLOT_WANTED)
		turn_given_up(&slot->turn, zk_now_us());
	if (event == SLOT_CONTENDER_GONE || event == SLOT_REQUEUED)
		end_contender(slot);
	if (event == SLOT_CONTENDER_GONE)
		slot_learn_release(slot);
	if (next == ZK_SLOT_WANTED)
		want_contender(slot);
	if (event == SLOT_ASKED || event == SLOT_GIVEN_UP)
		slot_mail(slot);

	if (event != SLOT_GRANTED &&
		(last != ZK_SLOT_RELEASING || next != ZK_SLOT_WANTED ||
		 has_other_waiter(slot)))
		slot_wake(slot);
}

/*
 * slot_wake
 *		Wake all backends that wait for the slot; the partition lock is held.
 */
void
slot_wake(ZkSlot *slot)
{
	ConditionVariableBroadcast(&slot->cv);
	slot_wake_any(slot);
}

/*
 * slot_wake_any
 *		Wake the backends that want any of several slots; the partition lock is
 *		held.
 *
 * They sleep on their latches, since a process cannot sleep on several
 * condition variables.
 */
void
slot_wake_any(const ZkSlot *slot)
{
	int			left = slot->nany;

	for (const ZkProcLock *proc = slot->procs; left > 0; proc = proc->next)
		if (proc->alternatives > 0)
		{
			SetLatch(&proc_backend(proc)->procLatch);
			left--;
		}
}

/*
 * slot_has_taker
 *		Is there a backend that can take the slot from the last holder?
 *
 * A writer gets the heavyweight lock in a moment; but a reader that does not
 * have it yet stands behind a writer there.
 */
bool
slot_has_taker(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (!proc->granted &&
			(proc->ready || !znode_is_shared(proc->kind)))
			return true;
	return false;
}
