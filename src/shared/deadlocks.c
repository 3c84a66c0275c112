/*-------------------------------------------------------------------------
 *
 * deadlocks.c
 *		The latest deadlocks between this instance and others.
 *
 * The worker enters each deadlock that a backend of this instance was a member
 * of, whether or not the victim was ours.  The victim's backend reads it for
 * its error, and the view zk_deadlocks shows all.  A restart of the server
 * clears them.
 *
 * An entry has its members one after the other, each with its two strings.
 * The last members are left out if they do not fit into ENTRY_BYTES.
 *
 * Locking protocol.  One LWLock of the tranche ZK_TRANCHE, which may be taken
 * inside any other, guards all fields.  Entry number n is at n % ZK_DEADLOCKS,
 * and is overwritten by number n + ZK_DEADLOCKS.  A forgotten entry is only
 * not listed: its victim can still read it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/deadlocks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/deadlocks.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#define ZK_TRANCHE		"zklock deadlocks"

#define ENTRY_BYTES		4096

/* A member in an entry; its strings follow, with their terminators. */
typedef struct PackedMember
{
	int32		pid;
	int32		holder_pid;
	uint8		kind;
	bool		local;
} PackedMember;

typedef struct DeadlockEntry
{
	uint32		number;			/* 0: none */
	int			nmembers;
	TimestampTz detected;
	char		bytes[ENTRY_BYTES];
} DeadlockEntry;

typedef struct DeadlocksShared
{
	uint32		last;			/* the latest number, or 0 */
	uint32		forgotten;		/* up to this number */
	DeadlockEntry entries[ZK_DEADLOCKS];
} DeadlocksShared;

static DeadlocksShared *shared = NULL;
static LWLock *deadlocks_lock = NULL;

/*
 * deadlocks_request_shmem
 *		Reserve shared memory and a lock; for the shmem_request_hook.
 */
void
deadlocks_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(DeadlocksShared));
	RequestNamedLWLockTranche(ZK_TRANCHE, 1);
}

/*
 * deadlocks_startup_shmem
 *		Create or attach to the deadlocks; AddinShmemInitLock is held.
 */
void
deadlocks_startup_shmem(void)
{
	bool		found;

	shared = ShmemInitStruct(ZK_TRANCHE, sizeof(DeadlocksShared), &found);
	if (!found)
		memset(shared, 0, sizeof(DeadlocksShared));
	deadlocks_lock = &GetNamedLWLockTranche(ZK_TRANCHE)->lock;
}

/* Append a member; false if it does not fit. */
static bool
pack_member(DeadlockEntry *entry, int *used, const ZkDeadlockMember *member)
{
	char	   *bytes = entry->bytes + *used;
	PackedMember packed = {0};
	size_t		name_size = strlen(member->cluster_name) + 1;
	size_t		path_size = strlen(member->path) + 1;
	size_t		size = sizeof(packed) + name_size + path_size;

	if (entry->nmembers == ZK_DEADLOCK_MEMBERS ||
		*used + size > sizeof(entry->bytes))
		return false;
	packed.pid = member->pid;
	packed.holder_pid = member->holder_pid;
	packed.kind = member->kind;
	packed.local = member->local;
	memcpy(bytes, &packed, sizeof(packed));
	memcpy(bytes + sizeof(packed), member->cluster_name, name_size);
	memcpy(bytes + size - path_size, member->path, path_size);
	*used += size;
	entry->nmembers++;
	return true;
}

/* Take the next member from an entry. */
static void
unpack_member(const DeadlockEntry *entry, int *used, ZkDeadlockMember *member)
{
	const char *bytes = entry->bytes + *used;
	PackedMember packed;

	memcpy(&packed, bytes, sizeof(packed));
	bytes += sizeof(packed);
	bytes += strlcpy(member->cluster_name, bytes,
					 sizeof(member->cluster_name)) + 1;
	bytes += strlcpy(member->path, bytes, sizeof(member->path)) + 1;
	member->kind = packed.kind;
	member->pid = packed.pid;
	member->holder_pid = packed.holder_pid;
	member->local = packed.local;
	*used = bytes - entry->bytes;
}

/* Fill in *deadlock, whose members are palloc'd. */
static void
unpack(const DeadlockEntry *entry, ZkDeadlock *deadlock)
{
	int			used = 0;

	deadlock->members = palloc(entry->nmembers * sizeof(ZkDeadlockMember));
	deadlock->number = entry->number;
	deadlock->detected = entry->detected;
	deadlock->nmembers = entry->nmembers;
	for (int i = 0; i < entry->nmembers; i++)
		unpack_member(entry, &used, &deadlock->members[i]);
}

/*
 * deadlock_add
 *		Enter a deadlock, set its number and time, and return the number, which
 *		is never 0; the worker only.
 */
uint32
deadlock_add(const ZkDeadlock *deadlock)
{
	DeadlockEntry *entry;
	uint32		number;
	int			used = 0;

	LWLockAcquire(deadlocks_lock, LW_EXCLUSIVE);
	number = ++shared->last;
	entry = &shared->entries[number % ZK_DEADLOCKS];
	entry->number = number;
	entry->detected = GetCurrentTimestamp();
	entry->nmembers = 0;
	for (int i = 0; i < deadlock->nmembers; i++)
		if (!pack_member(entry, &used, &deadlock->members[i]))
			break;
	LWLockRelease(deadlocks_lock);
	return number;
}

/*
 * deadlock_read
 *		Read the deadlock with this number, its members palloc'd; false if it
 *		has been overwritten.
 */
bool
deadlock_read(uint32 number, ZkDeadlock *deadlock)
{
	const DeadlockEntry *entry = &shared->entries[number % ZK_DEADLOCKS];
	bool		found;

	LWLockAcquire(deadlocks_lock, LW_SHARED);
	found = number != 0 && entry->number == number;
	if (found)
		unpack(entry, deadlock);
	LWLockRelease(deadlocks_lock);
	return found;
}

/*
 * deadlocks_list
 *		All deadlocks that are kept, the oldest first: an array, palloc'd.
 */
ZkDeadlock *
deadlocks_list(int *ndeadlocks)
{
	ZkDeadlock *deadlocks = palloc(ZK_DEADLOCKS * sizeof(ZkDeadlock));
	int			n = 0;

	LWLockAcquire(deadlocks_lock, LW_SHARED);
	for (int i = 1; i <= ZK_DEADLOCKS; i++)
	{
		const DeadlockEntry *entry =
			&shared->entries[(shared->last + i) % ZK_DEADLOCKS];

		if (entry->number > shared->forgotten)
			unpack(entry, &deadlocks[n++]);
	}
	LWLockRelease(deadlocks_lock);
	*ndeadlocks = n;
	return deadlocks;
}

/*
 * deadlocks_forget
 *		Stop listing the deadlocks found so far.
 */
void
deadlocks_forget(void)
{
	LWLockAcquire(deadlocks_lock, LW_EXCLUSIVE);
	shared->forgotten = shared->last;
	LWLockRelease(deadlocks_lock);
}
