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
 *	WANTED		-		IDLE	-		-		RELEASING WANTED (queues again)
 *	IDLE		-		-		HELD	-		RELEASING NONE, or WANTED
 *	HELD		-		-		-		IDLE	RELEASING LOST
 *	RELEASING	-		-		-		-		-		  NONE, or WANTED
 *	LOST		-		-		-		NONE	NONE	  -
 *
 *	asked			by a backend that has the heavyweight lock
 *	granted			by the worker: our contender owns the lock
 *	taken			by a backend that has the heavyweight lock
 *	handed			by the holder at its end, for the next local backend
 *	given up		by the holder at its end, or by the last backend that
 *					wanted the slot and does no more
 *	contender gone	told by the worker: deleted, or expired with its session;
 *					WANTED if a backend still wants the slot
 *
 * "-": ignored.  The worker's news may be overtaken: a grant that arrives when
 * the slot has been given up changes nothing.
 *
 * Locking protocol.  The slots are a hash table of ZK_PARTITIONS partitions,
 * with an LWLock each.  Finding, entering or removing a slot, and reading or
 * changing any of its fields, is done under the lock of its partition
 * (exclusive to change anything).  A pointer to a slot stays valid without
 * the lock while the slot is in use: while a backend wants or holds it, while
 * it is in the worker's mail, or while it is in any state but NONE.  Whoever
 * ends the last use removes the slot.
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
 * Each backend waits for one slot at the most, and notes it in its entry of
 * zk->waits, under the lock of the slot's partition.  zk->session is guarded
 * by the LWLock after those of the partitions; only the worker writes it.
 * zk->worker_latch is guarded by mail_lock.  Whoever wants several partition
 * locks takes them in ascending order.
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
#include <time.h>

#include "miscadmin.h"
#include "shared/compat.h"
#include "shared/slots.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"
#include "zklock.h"

#define ZK_TRANCHE		"zklock"
#define ZK_PARTITIONS	64

typedef enum SlotEvent
{
	SLOT_ASKED,
	SLOT_GRANTED,
	SLOT_TAKEN,
	SLOT_HANDED,
	SLOT_GIVEN_UP,
	SLOT_CONTENDER_GONE
} SlotEvent;

/* What a backend waits for. */
typedef struct ZkWait
{
	ZkSlot	   *slot;			/* NULL: nothing */
	int			pid;
	TimestampTz since;
} ZkWait;

typedef struct ZkShared
{
	pg_atomic_uint32 nslots;	/* entries of the hash table, exactly */
	slock_t		mail_lock;
	ZkSlot	   *mail_head;
	Latch	   *worker_latch;	/* NULL: no worker */
	ZkSessionInfo session;
	ZkWait		waits[FLEXIBLE_ARRAY_MEMBER];	/* MaxBackends of them */
} ZkShared;

static ZkShared *zk = NULL;
static HTAB *slots = NULL;
static LWLockPadded *locks = NULL;

static Size
shared_size(void)
{
	return offsetof(ZkShared, waits) + mul_size(MaxBackends, sizeof(ZkWait));
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
		SpinLockInit(&zk->mail_lock);
		zk->session.state = ZK_SESSION_DOWN;
		zk->session.state_since = GetCurrentTimestamp();
		zk->session.timeout = zklock_session_timeout;
	}

	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = ZNODE_PATH_SIZE;
	ctl.entrysize = sizeof(ZkSlot);
	ctl.num_partitions = ZK_PARTITIONS;
	slots = ShmemInitHash("zklock slots", zklock_max_locks, zklock_max_locks,
						  &ctl, HASH_ELEM | HASH_STRINGS | HASH_PARTITION |
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
 * zk_now_ms
 *		Milliseconds on a clock that also runs while the machine sleeps.
 */
int64
zk_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
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

/* Does a backend still want the slot, and not just to hear of a refusal? */
static bool
still_wanted(const ZkSlot *slot)
{
	return slot->nwanting > 0 && slot->refusal == ZK_REFUSAL_NONE;
}

/*
 * The transition function: see the table in this file's header.  The caller
 * holds the partition lock exclusively.
 */
static void
slot_event(ZkSlot *slot, SlotEvent event)
{
	ZkSlotState next = slot->state;

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
			else if (event == SLOT_CONTENDER_GONE)
				next = still_wanted(slot) ? ZK_SLOT_WANTED : ZK_SLOT_NONE;
			break;
		case ZK_SLOT_HELD:
			if (event == SLOT_HANDED)
				next = ZK_SLOT_IDLE;
			else if (event == SLOT_GIVEN_UP)
				next = ZK_SLOT_RELEASING;
			else if (event == SLOT_CONTENDER_GONE)
			{
				next = ZK_SLOT_LOST;
				stats_count_lost();
			}
			break;
		case ZK_SLOT_RELEASING:
			if (event == SLOT_CONTENDER_GONE)
				next = still_wanted(slot) ? ZK_SLOT_WANTED : ZK_SLOT_NONE;
			break;
		case ZK_SLOT_LOST:
			if (event == SLOT_HANDED || event == SLOT_GIVEN_UP)
				next = ZK_SLOT_NONE;
			break;
	}

	if (next == slot->state && event != SLOT_CONTENDER_GONE)
		return;
	slot->state = next;

	if (event == SLOT_GRANTED)
		slot->handoff_start = 0;
	if (event == SLOT_GRANTED || event == SLOT_GIVEN_UP)
		slot->queued = false;
	if (event == SLOT_CONTENDER_GONE)
	{
		slot->has_uuid = false;
		slot->has_sequence = false;
		slot->queued = false;
		slot->token = 0;
	}
	if (next == ZK_SLOT_RELEASING ||
		(next == ZK_SLOT_WANTED && event == SLOT_ASKED))
		mail_slot(slot);
	ConditionVariableBroadcast(&slot->cv);
}

/* Remove the slot if nobody uses it; the partition lock is held exclusively. */
static void
remove_unused(ZkSlot *slot)
{
	if (slot->state != ZK_SLOT_NONE || slot->nwanting > 0 || slot->mailed)
		return;
	hash_search_with_hash_value(slots, slot->path, slot->hash,
								HASH_REMOVE, NULL);
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
	ConditionVariableInit(&slot->cv);
}

/* Note what this backend waits for; the slot's partition lock is held. */
static void
note_wait(ZkSlot *slot)
{
	ZkWait	   *wait = &zk->waits[ZkMyProcNumber];

	wait->slot = slot;
	wait->pid = MyProcPid;
	wait->since = slot ? GetCurrentTimestamp() : 0;
}

/*
 * slot_want
 *		Find or make the slot of a lock directory, and say that this backend
 *		wants it.
 *
 * To be called ahead of waiting for the heavyweight lock, so that a holder
 * sees that there is somebody to hand the slot to.  A backend wants at most
 * one slot at a time; slot_take() or slot_unwant() ends the want.
 *
 * Errors: 53200 if all zklock.max_locks slots are in use.
 */
ZkSlot *
slot_want(const char *path)
{
	uint32		hash;
	LWLock	   *lock;
	ZkSlot	   *slot;

	hash = get_hash_value(slots, path);
	lock = partition_lock(hash);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	slot = hash_search_with_hash_value(slots, path, hash, HASH_FIND, NULL);
	if (slot == NULL && reserve_slot())
	{
		slot = hash_search_with_hash_value(slots, path, hash,
										   HASH_ENTER_NULL, NULL);
		if (slot == NULL)
			pg_atomic_fetch_sub_u32(&zk->nslots, 1);
		else
			init_slot(slot, hash);
	}
	if (slot == NULL)
	{
		LWLockRelease(lock);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of lock slots"),
				 errdetail("All %d slots for locks in ZooKeeper are in use.",
						   zklock_max_locks),
				 errhint("You might need to increase \"zklock.max_locks\".")));
	}
	slot->nwanting++;
	note_wait(slot);
	LWLockRelease(lock);
	return slot;
}

/* End this backend's want; the partition lock is held exclusively. */
static void
end_want(ZkSlot *slot)
{
	slot->nwanting--;
	note_wait(NULL);
}

/*
 * slot_unwant
 *		Say that this backend wants the slot no more: timeout, cancel, error.
 *
 * The slot may be gone afterwards.  Does not throw: to be called in
 * transaction callbacks too.
 */
void
slot_unwant(ZkSlot *slot)
{
	lock_slot(slot, LW_EXCLUSIVE);
	end_want(slot);
	if (slot->nwanting == 0)
	{
		slot->refusal = ZK_REFUSAL_NONE;
		if (slot->state == ZK_SLOT_WANTED || slot->state == ZK_SLOT_IDLE)
			slot_event(slot, SLOT_GIVEN_UP);
	}
	unlock_slot(slot);
}

/*
 * slot_take
 *		Take the slot if the cluster owns it and no backend holds it; else ask
 *		the worker for it.
 *
 * The caller must want the slot and have the heavyweight lock of its name.
 * Unless the answer is ZK_TAKEN, it goes on wanting the slot; the condition
 * variable of the slot is broadcast when another try is worthwhile.
 * ZK_REFUSED sets *refusal, once.
 */
ZkTake
slot_take(ZkSlot *slot, ZkRefusal *refusal)
{
	ZkTake		result = ZK_PENDING;

	lock_slot(slot, LW_EXCLUSIVE);
	if (slot->refusal != ZK_REFUSAL_NONE)
	{
		*refusal = slot->refusal;
		slot->refusal = ZK_REFUSAL_NONE;
		result = ZK_REFUSED;
	}
	else if (slot->state == ZK_SLOT_IDLE)
	{
		slot_event(slot, SLOT_TAKEN);
		end_want(slot);
		slot->holder_pid = MyProcPid;
		slot->held_since = GetCurrentTimestamp();
		result = ZK_TAKEN;
	}
	else if (slot->state == ZK_SLOT_NONE)
		slot_event(slot, SLOT_ASKED);
	else if (slot->queued)
		result = ZK_QUEUED;
	LWLockRelease(partition_lock(slot->hash));
	return result;
}

/*
 * May the holder hand the slot to the next local backend?  Contenders of
 * other clusters may stand behind ours, so not for longer than the quantum.
 */
static bool
may_hand_off(ZkSlot *slot)
{
	int64		now;

	if (slot->nwanting == 0 || zklock_handoff_quantum == 0)
		return false;
	now = zk_now_ms();
	if (slot->handoff_start == 0)
		slot->handoff_start = now;
	return now - slot->handoff_start < zklock_handoff_quantum;
}

/*
 * slot_drop
 *		The holder gives the slot back, at the end of its transaction or of
 *		its last hold.
 *
 * The slot may be gone afterwards.  Does not throw, and does not wait for
 * more than LWLocks: to be called in transaction callbacks.
 */
void
slot_drop(ZkSlot *slot)
{
	lock_slot(slot, LW_EXCLUSIVE);
	slot->holder_pid = 0;
	slot_event(slot, may_hand_off(slot) ? SLOT_HANDED : SLOT_GIVEN_UP);
	unlock_slot(slot);
}

/*
 * slot_is_mine
 *		Does this backend, which took the slot, still hold it?
 *
 * Sets *token, if not NULL, to the fencing token or to 0 while the worker has
 * not got it yet.
 */
bool
slot_is_mine(ZkSlot *slot, int64 *token)
{
	bool		mine;

	lock_slot(slot, LW_SHARED);
	mine = slot->state == ZK_SLOT_HELD && slot->holder_pid == MyProcPid;
	if (token)
		*token = slot->token;
	LWLockRelease(partition_lock(slot->hash));
	return mine;
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

static void
fill_row(ZkLockRow *row, const ZkSlot *slot, int pid, TimestampTz since,
		 bool granted)
{
	strlcpy(row->path, slot->path, sizeof(row->path));
	row->pid = pid;
	row->since = since;
	row->granted = granted;
	row->lost = slot->state == ZK_SLOT_LOST;
	row->token = granted ? slot->token : 0;
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

	/* allocated ahead of the locks: a hold a slot and a wait a backend */
	rows = MemoryContextAllocHuge(CurrentMemoryContext,
								  mul_size(add_size(zklock_max_locks, MaxBackends),
										   sizeof(ZkLockRow)));
	lock_all(LW_SHARED);
	hash_seq_init(&scan, slots);
	while ((slot = hash_seq_search(&scan)) != NULL)
		if (slot->state == ZK_SLOT_HELD || slot->state == ZK_SLOT_LOST)
			fill_row(&rows[n++], slot, slot->holder_pid, slot->held_since, true);
	for (int i = 0; i < MaxBackends; i++)
		if (zk->waits[i].slot)
			fill_row(&rows[n++], zk->waits[i].slot, zk->waits[i].pid,
					 zk->waits[i].since, false);
	unlock_all();

	*nrows = n;
	return rows;
}

/*
 * slots_count
 *		How many slots are in use.
 */
int
slots_count(void)
{
	return (int) pg_atomic_read_u32(&zk->nslots);
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
		slot->mailed = false;
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
		if (slot->state != ZK_SLOT_NONE && slot->state != ZK_SLOT_LOST)
			list[n++] = slot;
		else
			remove_unused(slot);
	}
	unlock_all();

	*nslots = n;
	return list;
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
 * Sets *next to the next slot of the chain.  The slot may be gone afterwards
 * if the answer is ZK_MAIL_NOTHING.
 */
ZkMail
slot_open_mail(ZkSlot *slot, ZkSlot **next)
{
	ZkMail		mail = ZK_MAIL_NOTHING;

	lock_slot(slot, LW_EXCLUSIVE);
	*next = slot->mail_next;
	slot->mailed = false;
	if (slot->state == ZK_SLOT_WANTED)
		mail = ZK_MAIL_WANT;
	else if (slot->state == ZK_SLOT_RELEASING)
		mail = ZK_MAIL_RELEASE;
	unlock_slot(slot);
	return mail;
}

/*
 * slot_read_contender
 *		What is known of the slot's contender, for a worker that takes it over.
 */
ZkSlotState
slot_read_contender(ZkSlot *slot, uint8 *uuid, bool *has_uuid,
					int32 *sequence, bool *has_sequence)
{
	ZkSlotState state;

	lock_slot(slot, LW_SHARED);
	state = slot->state;
	memcpy(uuid, slot->uuid, ZNODE_UUID_BYTES);
	*has_uuid = slot->has_uuid;
	*sequence = slot->sequence;
	*has_sequence = slot->has_sequence;
	LWLockRelease(partition_lock(slot->hash));
	return state;
}

/*
 * slot_set_uuid
 *		The worker is about to create a contender under this UUID.
 *
 * Noted ahead of the create, so that the next worker can find the znode even
 * if this one does not live to see the answer.
 */
void
slot_set_uuid(ZkSlot *slot, const uint8 *uuid)
{
	lock_slot(slot, LW_EXCLUSIVE);
	memcpy(slot->uuid, uuid, ZNODE_UUID_BYTES);
	slot->has_uuid = true;
	slot->has_sequence = false;
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
	slot->sequence = sequence;
	slot->has_sequence = true;
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_queued
 *		The contender stands behind others; or, if it is being given up,
 *		ZooKeeper does not let it go.
 */
void
slot_set_queued(ZkSlot *slot)
{
	lock_slot(slot, LW_EXCLUSIVE);
	if (!slot->queued && (slot->state == ZK_SLOT_WANTED ||
						  slot->state == ZK_SLOT_RELEASING))
	{
		slot->queued = true;
		ConditionVariableBroadcast(&slot->cv);
	}
	LWLockRelease(partition_lock(slot->hash));
}

/*
 * slot_set_granted
 *		The contender owns the lock.
 */
void
slot_set_granted(ZkSlot *slot)
{
	lock_slot(slot, LW_EXCLUSIVE);
	slot_event(slot, SLOT_GRANTED);
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
slot_set_refused(ZkSlot *slot, ZkRefusal refusal)
{
	lock_slot(slot, LW_EXCLUSIVE);
	if (slot->state == ZK_SLOT_WANTED)
	{
		slot->refusal = refusal;
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
 * slots_retire
 *		Take back what the cluster owns, if no backend holds any of it, so that
 *		the worker may close the session.
 *
 * Returns false, and does nothing, while a slot is held: its holder may be in
 * the middle of its commit.  A slot that is idle is wanted by somebody, so it
 * stays, and needs a new contender.
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
				slot_event(slot, SLOT_CONTENDER_GONE);
	}
	unlock_all();
	return !held;
}
