/*-------------------------------------------------------------------------
 *
 * claims.c
 *		Locks that belong to the holder of a token.
 *
 * A claim is a lock that this instance holds on behalf of whoever has its
 * token, for as long as it is renewed: not for a transaction, nor for a
 * session.
 *
 * A claim begins as an ordinary hold of a transaction, with an entry here that
 * is RESERVED for its backend, so that nothing can fail later.  When the
 * commit is visible, and before the heavyweight lock is released, the
 * ZkProcLock of the hold becomes the claim's (claim_begin()).  From then on it
 * is one more holder of its slot, without a process and without a heavyweight
 * lock, and the entry is LIVE.  If the transaction is rolled back the entry
 * goes with the hold.
 *
 * A transaction that uses the claim has a ZkProcLock of its own, which holds
 * the same slot beside the claim's.  So it is a holder like any: it is
 * canceled if the lock is lost, its commit checks the slot, and it is a vertex
 * in the search for deadlocks.  It has no heavyweight lock either: several may
 * use one claim.  The slot is HELD until the claim and its users have gone, so
 * nobody else gets the lock before the last of them has, whatever becomes of
 * the claim.
 *
 * A claim ends a ttl after it began or was last renewed.  Whoever comes with
 * the token looks at the time, so that does not depend on the worker; the
 * worker removes it (claims_end_due()).  One that is in use then is removed by
 * the last of its users (claim_leave()), and nobody can use or renew it any
 * more.  It also ends by its token, on demand (claim_end_of()), with the
 * ZooKeeper session, and when the worker closes the session, or goes to
 * another chroot (slots_retire()).
 *
 * A local taker of the lock gets the heavyweight lock, and finds the slot
 * HELD.  The users have another heavyweight lock, all together.  While there
 * are users the taker waits for that one, so that PostgreSQL's deadlock
 * detector and lock_timeout know of the wait (claim_has_users()); else on the
 * slot.  A new user goes ahead of the takers, since it has the lock as well as
 * they who use the claim already.
 *
 * Locking protocol.  The entries are found by their secrets, in a hash table
 * of chains.  LWLock "lock" guards the chains, the free list, and "used",
 * "next", "secret", "procno" and "role" of the entries; it is taken inside
 * partition locks.  The other fields are guarded by the partition lock of the
 * slot, while the entry is LIVE; before that by "lock".  An entry becomes
 * LIVE, and ends, with both exclusively.  So who holds the partition lock of
 * the slot of "proc", and finds that the entry still has this "proc", knows
 * that it stays as it is.
 *
 * "due" is when the worker must look next, or earlier.  Who sets an earlier
 * one wakes the worker; the worker sets it to infinity ahead of a look.
 *
 * The hash function has a random seed, and secrets are compared by
 * claim_is_same(): the time that a wrong token takes tells nothing of others.
 * No token is in a message.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/claims.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/mutation.h"
#include "port/atomics.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/compat.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "shared/slots_private.h"
#include "shared/stats.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#define CLAIMS_TRANCHE	"zklock claims"

typedef struct ClaimEntry
{
	bool		used;			/* RESERVED or LIVE; else in the free list */
	int			next;			/* of the chain or the free list, or -1 */
	int			procno;			/* RESERVED: of the backend's PGPROC */
	Oid			role;			/* that the backend had logged in as */
	uint8		secret[CLAIM_SECRET_BYTES];
	ZkProcLock *proc;			/* the claim's hold; NULL: not LIVE */
	int64		ttl_us;
	int64		began_us;		/* as of zk_now_us(), as what follows */
	int64		renewed_us;
	int64		end_us;			/* when it is over */
} ClaimEntry;

typedef struct ClaimsShared
{
	char		instance[CLAIM_ID_SIZE];
	uint64		seed;			/* of the hash function */
	int			free;			/* the first of the free list, or -1 */
	pg_atomic_uint32 nused;		/* entries that are not free */
	pg_atomic_uint32 nusers;	/* holds beside claims, or those that were */
	pg_atomic_uint64 due;		/* as of zk_now_us() */
	ClaimEntry	entries[FLEXIBLE_ARRAY_MEMBER]; /* zklock.max_claims of them */
} ClaimsShared;

/* Made at the start of the postmaster; a restart after a crash keeps it. */
static uint64 instance_numbers[2];

static ClaimsShared *claims = NULL;
static int *chains = NULL;		/* the first entry of each, or -1 */
static LWLock *claims_lock = NULL;

static int
chains_max(void)
{
	return Max(zklock_max_claims, 1);
}

static Size
shared_size(void)
{
	return offsetof(ClaimsShared, entries) +
		mul_size(zklock_max_claims, sizeof(ClaimEntry));
}

/*
 * claims_request_shmem
 *		Reserve shared memory and a lock, and make the id of the instance; for
 *		the shmem_request_hook.
 */
void
claims_request_shmem(void)
{
	if (!pg_strong_random(instance_numbers, sizeof(instance_numbers)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random numbers")));
	RequestAddinShmemSpace(shared_size());
	RequestAddinShmemSpace(mul_size(chains_max(), sizeof(int)));
	RequestNamedLWLockTranche(CLAIMS_TRANCHE, 1);
}

/*
 * claims_startup_shmem
 *		Create or attach to the claims; AddinShmemInitLock is held.
 */
void
claims_startup_shmem(void)
{
	bool		found;

	claims = ShmemInitStruct("zklock claims", shared_size(), &found);
	if (!found)
	{
		memset(claims, 0, shared_size());
		claim_write_id(instance_numbers[0], claims->instance);
		claims->seed = instance_numbers[1];
		for (int i = 0; i < zklock_max_claims; i++)
			claims->entries[i].next = i + 1 < zklock_max_claims ? i + 1 : -1;
		claims->free = zklock_max_claims > 0 ? 0 : -1;
		pg_atomic_init_u32(&claims->nused, 0);
		pg_atomic_init_u32(&claims->nusers, 0);
		pg_atomic_init_u64(&claims->due, PG_INT64_MAX);
	}
	chains = ShmemInitStruct("zklock claim chains",
							 mul_size(chains_max(), sizeof(int)), &found);
	if (!found)
		for (int i = 0; i < chains_max(); i++)
			chains[i] = -1;
	claims_lock = &GetNamedLWLockTranche(CLAIMS_TRANCHE)->lock;
}

/*
 * claims_instance
 *		The id of this instance, which its tokens begin with.
 */
const char *
claims_instance(void)
{
	return claims->instance;
}

/*
 * claims_count
 *		How many claims are there, and are to begin?
 */
int
claims_count(void)
{
	return (int) pg_atomic_read_u32(&claims->nused);
}

/* The worker must look at that time, or earlier. */
static void
note_due(int64 due_us)
{
	uint64		known = pg_atomic_read_u64(&claims->due);

	while ((uint64) due_us < known)
		if (pg_atomic_compare_exchange_u64(&claims->due, &known,
										   (uint64) due_us))
		{
			worker_wake();
			break;
		}
}

/* When a claim ends if it is not renewed. */
static int64
end_of(const ClaimEntry *entry)
{
	return entry->end_us + (ZK_MUTATED(ZK_CLAIM_ENDS_LATE) ? 3000000 : 0);
}

static int *
chain_of(const uint8 *secret)
{
	uint64		hash = hash_bytes_extended(secret, CLAIM_SECRET_BYTES,
										   claims->seed);

	return &chains[hash % chains_max()];
}

/* The entry with this secret, or NULL; "lock" is held. */
static ClaimEntry *
find(const uint8 *secret)
{
	for (int i = *chain_of(secret); i >= 0; i = claims->entries[i].next)
		if (claim_is_same(claims->entries[i].secret, secret))
			return &claims->entries[i];
	return NULL;
}

/* Free an entry; "lock" is held exclusively. */
static void
free_entry(ClaimEntry *entry)
{
	int			number = entry - claims->entries;
	int		   *link = chain_of(entry->secret);

	while (*link != number)
		link = &claims->entries[*link].next;
	*link = entry->next;
	memset(entry, 0, sizeof(*entry));
	entry->next = claims->free;
	claims->free = number;
	pg_atomic_fetch_sub_u32(&claims->nused, 1);
}

/*
 * Can there be one more, of a role that may have "most"?  "lock" is held.
 */
static bool
has_room(Oid role, int most)
{
	int			n = 0;

	if (claims->free < 0 || most >= zklock_max_claims)
		return claims->free >= 0;
	for (int i = 0; i < zklock_max_claims; i++)
		if (claims->entries[i].used && claims->entries[i].role == role)
			n++;
	return n < most;
}

/*
 * claims_have_room
 *		Can there be one more, of a role that may have "most", with those that
 *		are to begin?
 */
bool
claims_have_room(Oid role, int most)
{
	bool		room;

	LWLockAcquire(claims_lock, LW_SHARED);
	room = has_room(role, most);
	LWLockRelease(claims_lock);
	return room;
}

/*
 * claim_reserve
 *		Have an entry for a claim that begins when this transaction commits;
 *		returns its number, or -1 if all are in use, or the role has "most".
 *
 * claim_begin() or claim_cancel() comes next.
 */
int
claim_reserve(const ClaimToken *token, int64 ttl_us, Oid role, int most)
{
	int			number;

	LWLockAcquire(claims_lock, LW_EXCLUSIVE);
	number = has_room(role, most) ? claims->free : -1;
	if (number >= 0)
	{
		ClaimEntry *entry = &claims->entries[number];
		int		   *chain = chain_of(token->secret);

		claims->free = entry->next;
		entry->used = true;
		entry->procno = ZkMyProcNumber;
		entry->role = role;
		memcpy(entry->secret, token->secret, CLAIM_SECRET_BYTES);
		entry->ttl_us = ttl_us;
		entry->next = *chain;
		*chain = number;
		pg_atomic_fetch_add_u32(&claims->nused, 1);
	}
	LWLockRelease(claims_lock);
	return number;
}

/*
 * claim_cancel
 *		The claim does not begin: the transaction has been rolled back, or has
 *		ended the claim itself.  Does not throw.
 */
void
claim_cancel(int number)
{
	LWLockAcquire(claims_lock, LW_EXCLUSIVE);
	Assert(claims->entries[number].proc == NULL);
	free_entry(&claims->entries[number]);
	LWLockRelease(claims_lock);
}

/*
 * claim_begin
 *		The transaction has been committed: its hold is the claim's from now
 *		on.
 *
 * If the lock has been lost meanwhile there is no claim.  Does not throw, and
 * does not wait for more than LWLocks.
 */
void
claim_begin(int number, ZkProcLock *proc, int64 now)
{
	ZkSlot	   *slot = proc->slot;
	ClaimEntry *entry = &claims->entries[number];
	int64		due_us = PG_INT64_MAX;

	slot_lock(slot, LW_EXCLUSIVE);
	LWLockAcquire(claims_lock, LW_EXCLUSIVE);
	if (proc->lost)
		free_entry(entry);
	else
	{
		entry->proc = proc;
		entry->began_us = entry->renewed_us = now;
		entry->end_us = due_us = claim_end_us(now, entry->ttl_us);
		slot_end_watch(proc);
		proc->is_claim = true;
		proc->session = false;
		proc->committing = false;
		proc->xact_start = number;
	}
	LWLockRelease(claims_lock);
	if (proc->lost)
		(void) slot_drop_locked(proc, now);
	slot_unlock_last(slot);
	if (due_us != PG_INT64_MAX && !ZK_MUTATED(ZK_CLAIM_OVERLOOKED))
		note_due(due_us);
}

/* End a claim; the partition lock of its slot is held exclusively. */
static void
end_entry(ClaimEntry *entry, int64 now)
{
	ZkProcLock *proc = entry->proc;
	int64		held_us = now - proc->since;
	char		path[ZNODE_PATH_SIZE];
	bool		retained;

	key_path(&proc->slot->key, path);
	LWLockAcquire(claims_lock, LW_EXCLUSIVE);
	free_entry(entry);
	LWLockRelease(claims_lock);
	retained = slot_drop_locked(proc, now);
	stats_release(lock_stats_id(path), retained, held_us);
}

/* The claim of this slot, or NULL; its partition lock is held. */
static ClaimEntry *
claim_of_slot(const ZkSlot *slot)
{
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		if (proc->is_claim && !proc->lost)
			return &claims->entries[proc->xact_start];
	return NULL;
}

/*
 * claim_end_of_slot
 *		End the claim of this slot, if there is one; its partition lock is held
 *		exclusively.
 */
bool
claim_end_of_slot(ZkSlot *slot, int64 now)
{
	ClaimEntry *entry = claim_of_slot(slot);

	if (entry != NULL)
		end_entry(entry, now);
	return entry != NULL;
}

/*
 * Has the lock a holder that is a claim, if "claim", or a process that uses
 * one, if "user", other than number "but"?
 */
static bool
has_holder(const ZkKey *lock, bool claim, bool user, int but)
{
	ZkSlot	   *slot = slot_find_locked(lock, LW_SHARED);
	bool		found = false;

	if (slot == NULL)
		return false;
	for (ZkProcLock *proc = slot->procs; proc != NULL; proc = proc->next)
		found |= !proc->lost &&
			((claim && proc->is_claim) ||
			 (user && proc->uses_claim && proc->procno != but));
	slot_unlock(slot);
	return found;
}

/*
 * claim_holds
 *		Does a claim hold the lock?
 */
bool
claim_holds(const ZkKey *lock)
{
	return has_holder(lock, true, false, -1);
}

/*
 * claim_has_users
 *		Do other transactions hold the lock because they use its claim?
 *
 * "lock" is the key of the lock's holds.
 */
bool
claim_has_users(const ZkKey *lock)
{
	return pg_atomic_read_u32(&claims->nusers) != 0 &&
		has_holder(lock, false, true, ZkMyProcNumber);
}

/*
 * claim_is_in_way
 *		Does a claim hold the lock, or a transaction that uses one?
 *
 * For those who do not look at the slot of the claim, with zklock.exclusion =
 * instance: they have the heavyweight lock, so that no other claim begins.
 * And for those who show the contender, whose note names the backend that took
 * the lock.
 */
bool
claim_is_in_way(const ZkKey *lock)
{
	return has_holder(lock, true, true, -1);
}

/*
 * claim_end_of
 *		End the claim of this lock, if there is one.
 */
bool
claim_end_of(const ZkKey *lock)
{
	ZkSlot	   *slot = slot_find_locked(lock, LW_EXCLUSIVE);
	bool		ended;

	if (slot == NULL)
		return false;
	ended = claim_end_of_slot(slot, zk_now_us());
	slot_unlock_last(slot);
	return ended;
}

/* The slot of a LIVE entry, locked; NULL, and nothing is locked: none. */
static ZkSlot *
lock_slot_of(const ClaimEntry *entry, LWLockMode mode)
{
	ZkProcLock *proc = *(ZkProcLock *volatile *) &entry->proc;
	ZkSlot	   *slot = proc ? proc_lock_slot(proc, mode) : NULL;

	if (slot == NULL || *(ZkProcLock *volatile *) &entry->proc == proc)
		return slot;
	slot_unlock(slot);
	return NULL;
}

/*
 * claims_end_of_role
 *		End the claims of a role; returns how many.
 */
int
claims_end_of_role(Oid role)
{
	int64		now = zk_now_us();
	int			n = 0;

	for (int i = 0; i < zklock_max_claims; i++)
	{
		ClaimEntry *entry = &claims->entries[i];
		ZkSlot	   *slot = lock_slot_of(entry, LW_EXCLUSIVE);

		if (slot == NULL)
			continue;
		if (!entry->proc->lost && entry->role == role)
		{
			end_entry(entry, now);
			n++;
		}
		slot_unlock_last(slot);
	}
	return n;
}

/*
 * Lock the slot of a claim that goes on, and set *entry, and *now to a time
 * under that lock; NULL, and nothing is locked, if there is none with this
 * token.
 *
 * *number is that of claim_reserve() if it is the token of a hold of this
 * process, else -1.
 */
static ZkSlot *
lock_live(const ClaimToken *token, LWLockMode mode, int64 *now,
		  ClaimEntry **entry, int *number)
{
	ZkProcLock *proc = NULL;
	ZkSlot	   *slot;

	*number = -1;
	LWLockAcquire(claims_lock, LW_SHARED);
	*entry = find(token->secret);
	if (*entry != NULL)
		proc = (*entry)->proc;
	if (*entry != NULL && proc == NULL && (*entry)->procno == ZkMyProcNumber)
		*number = *entry - claims->entries;
	LWLockRelease(claims_lock);
	slot = proc ? proc_lock_slot(proc, mode) : NULL;
	if (slot == NULL)
		return NULL;
	*now = zk_now_us();

	/* it may have ended, and its place be another's */
	if (*(ZkProcLock *volatile *) &(*entry)->proc == proc && proc->is_claim &&
		claim_is_same((*entry)->secret, token->secret) && !proc->lost &&
		slot->state == ZK_SLOT_HELD &&
		(!claim_is_over(end_of(*entry), *now) ||
		 ZK_MUTATED(ZK_CLAIM_OVER_USED)))
		return slot;
	slot_unlock(slot);
	return NULL;
}

/*
 * claim_find
 *		What a token of this instance stands for.
 *
 * Sets *key to that of the lock, if it is LIVE, or *number to that of
 * claim_reserve(), if it is RESERVED.
 */
ZkClaimState
claim_find(const ClaimToken *token, ZkKey *key, int *number)
{
	int64		now;
	ClaimEntry *entry;
	ZkSlot	   *slot;

	slot = lock_live(token, LW_SHARED, &now, &entry, number);
	if (slot == NULL)
		return *number >= 0 ? ZK_CLAIM_RESERVED : ZK_CLAIM_ENDED;
	*key = slot->key;
	slot_unlock(slot);
	return ZK_CLAIM_LIVE;
}

/*
 * claim_renew
 *		Have the ttl count from now on; 0: the same ttl as before.
 *
 * If it returns ZK_CLAIM_UNPROVED, since the session may have ended, it has
 * done no more than to set *end_ms, as of zk_now_ms(), to a time before the
 * claim is over.  Sets *number to that of claim_reserve() if it
 * returns ZK_CLAIM_RESERVED.
 */
ZkClaimState
claim_renew(const ClaimToken *token, int64 ttl_us, int64 *end_ms, int *number)
{
	int64		now;
	int64		due_us = PG_INT64_MAX;
	ClaimEntry *entry;
	ZkSlot	   *slot;

	slot = lock_live(token, LW_EXCLUSIVE, &now, &entry, number);
	if (slot == NULL && *number >= 0)
	{
		LWLockAcquire(claims_lock, LW_EXCLUSIVE);
		if (ttl_us != 0)
			claims->entries[*number].ttl_us = ttl_us;
		LWLockRelease(claims_lock);
		return ZK_CLAIM_RESERVED;
	}
	if (slot == NULL)
		return ZK_CLAIM_ENDED;
	*end_ms = (entry->end_us + 999) / 1000;
	if (ZK_MUTATED(ZK_CLAIM_NOT_RENEWED))
		due_us = entry->end_us;
	else if (now < lease_read_ms() * 1000 ||
			 ZK_MUTATED(ZK_CLAIM_RENEWED_UNPROVED))
	{
		if (ttl_us != 0)
			entry->ttl_us = ttl_us;
		entry->renewed_us = now;
		entry->end_us = due_us = claim_end_us(now, entry->ttl_us);
	}
	slot_unlock(slot);
	if (due_us == PG_INT64_MAX)
		return ZK_CLAIM_UNPROVED;
	note_due(due_us);
	return ZK_CLAIM_LIVE;
}

/*
 * claim_use
 *		Hold the lock of a claim beside it, until claim_leave(); NULL if it has
 *		ended, or, then *full is set, if all ZkProcLocks are in use.
 *
 * The caller has the heavyweight lock of the users.  Those who wait for the
 * slot are woken, in either mode, since they wait for that lock now.
 */
ZkProcLock *
claim_use(const ClaimToken *token, bool *full)
{
	ZkProcLock	wish = {
		.granted = true,
		.uses_claim = !ZK_MUTATED(ZK_CLAIM_USERS_FORGOTTEN)
	};
	ZkProcLock *proc = proc_new(&wish);
	int64		now;
	int			number;
	ClaimEntry *entry;
	ZkSlot	   *slot;
	ZkSlot	   *readers;

	*full = proc == NULL;
	if (proc == NULL)
		return NULL;
	slot = lock_live(token, LW_EXCLUSIVE, &now, &entry, &number);
	if (slot == NULL)
	{
		proc_free(proc);
		return NULL;
	}
	proc->slot = slot;
	proc->kind = entry->proc->kind;
	proc->since = now;
	slot_add_proc(proc);
	slot->nholding += proc->uses_claim;
	pg_atomic_fetch_add_u32(&claims->nusers, 1);
	slot_wake(slot);
	slot_unlock(slot);
	readers = slot_find_other_mode(slot, LW_SHARED);
	if (readers != NULL)
	{
		slot_wake(readers);
		slot_unlock(readers);
	}
	return proc;
}

/*
 * claim_leave
 *		The transaction does not use the claim any more, and ends it, if
 *		"end", or if its ttl is over and nobody else uses it.
 *
 * The slot may be gone afterwards.  Does not throw, and does not wait for more
 * than LWLocks.
 */
void
claim_leave(ZkProcLock *proc, bool end)
{
	ZkSlot	   *slot = proc->slot;
	ClaimEntry *entry;
	int64		now;

	slot_lock(slot, LW_EXCLUSIVE);

	/* not earlier, or the worker may have left the end of the claim to us */
	now = zk_now_us();
	entry = proc->lost ? NULL : claim_of_slot(slot);
	if (entry != NULL && !end && slot->nholding == 2 &&
		claim_is_over(end_of(entry), now))
	{
		stats_expired_claim();
		end = true;
	}
	if (entry != NULL && end)
		end_entry(entry, now);
	if (ZK_MUTATED(ZK_CLAIM_USERS_FORGOTTEN))
		proc->lost = true;
	(void) slot_drop_locked(proc, now);
	pg_atomic_fetch_sub_u32(&claims->nusers, 1);
	slot_unlock_last(slot);
}

/*
 * claim_end
 *		End the claim with this token; false if it has ended.
 */
bool
claim_end(const ClaimToken *token)
{
	int64		now;
	int			number;
	ClaimEntry *entry;
	ZkSlot	   *slot = lock_live(token, LW_EXCLUSIVE, &now, &entry, &number);

	if (slot == NULL)
		return false;
	end_entry(entry, now);
	slot_unlock_last(slot);
	return true;
}

/*
 * claims_due_ms
 *		When the worker must look for claims to end, as of zk_now_ms(); 0 if
 *		not at any time.
 */
int64
claims_due_ms(void)
{
	int64		due_us = (int64) pg_atomic_read_u64(&claims->due);

	if (claims_may_be_lost)
		return 1;
	if (ZK_MUTATED(ZK_CLAIM_STAYS))
		return 0;
	return due_us == PG_INT64_MAX ? 0 : (due_us + 999) / 1000;
}

/*
 * Look at one claim, with the partition lock of its slot; true if it ends.
 * Else *due_us becomes the time when to look again, if that is earlier.
 */
static bool
look_at_entry(ClaimEntry *entry, ZkSlot *slot, int64 now, int64 *due_us,
			  ZkEndedClaim *ended)
{
	bool		lost = entry->proc->lost;
	int64		end_us = end_of(entry);

	if (!lost && !claim_is_over(end_us, now))
	{
		*due_us = Min(*due_us, end_us);
		return false;
	}
	if (!lost && slot->nholding > 1)
		return false;			/* the last user ends it */
	ended->lost = lost;
	key_path(&slot->key, ended->path);
	if (!lost)
		stats_expired_claim();
	end_entry(entry, now);
	return true;
}

/*
 * claims_end_due
 *		End those claims that are lost, or over and not in use; returns how
 *		many, and fills in *ended.
 *
 * If there are more than fit, claims_due_ms() tells.
 */
int
claims_end_due(ZkEndedClaim *ended, int room)
{
	int64		now = zk_now_us();
	int64		due_us = PG_INT64_MAX;
	int			n = 0;
	int			i;

	claims_may_be_lost = false;

	/* a barrier: a claim that is not seen below finds it, and sets it again */
	(void) pg_atomic_exchange_u64(&claims->due, PG_INT64_MAX);
	for (i = 0; i < zklock_max_claims && n < room; i++)
	{
		ClaimEntry *entry = &claims->entries[i];
		ZkSlot	   *slot = lock_slot_of(entry, LW_EXCLUSIVE);

		if (slot == NULL)
			continue;
		n += look_at_entry(entry, slot, now, &due_us, &ended[n]);
		slot_unlock_last(slot);
	}
	note_due(i < zklock_max_claims ? now : due_us);
	return n;
}

/*
 * claims_snapshot
 *		The claims of this instance, palloc'd, each as of some moment of the
 *		call.
 */
ZkClaimRow *
claims_snapshot(int *nrows)
{
	ZkClaimRow *rows = MemoryContextAllocHuge(CurrentMemoryContext,
											  mul_size(chains_max(),
													   sizeof(ZkClaimRow)));
	TimestampTz boot = zk_wall_time(0);
	int			n = 0;

	for (int i = 0; i < zklock_max_claims; i++)
	{
		ClaimEntry *entry = &claims->entries[i];
		ZkSlot	   *slot = lock_slot_of(entry, LW_SHARED);

		if (slot == NULL)
			continue;
		if (!entry->proc->lost)
		{
			ZkClaimRow *row = &rows[n++];

			row->key = slot->key;
			key_path(&slot->key, row->path);
			row->ttl_us = entry->ttl_us;
			row->began = boot + entry->began_us;
			row->renewed = boot + entry->renewed_us;
			row->ends = boot + entry->end_us;
			row->users = slot->nholding - 1;
			row->fencing_token = slot->token;
			row->role = entry->role;
		}
		slot_unlock(slot);
	}
	*nrows = n;
	return rows;
}
