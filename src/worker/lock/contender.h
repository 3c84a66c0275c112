/*-------------------------------------------------------------------------
 *
 * contender.h
 *		Contenders: what the worker keeps in ZooKeeper for slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/contender.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_CONTENDER_H
#define ZKLOCK_CONTENDER_H

#include "core/lock/note.h"
#include "core/lock/znode.h"
#include "lib/ilist.h"
#include "lib/pairingheap.h"
#include "shared/slots.h"
#include "worker/lock/machine.h"
#include "worker/sessions.h"
#include "worker/zookeeper/session.h"

/* How often to look after all the contenders that own their locks. */
#define SWEEP_INTERVAL_MS	1000

/* A lock directory, or one of the two parts of a semaphore. */
#define PLACE_PATH_SIZE		(ZNODE_PATH_SIZE + 8)

/* What we keep in ZooKeeper for a slot: a place in a queue, or a permit. */
typedef struct Contender
{
	ZkSlot	   *slot;			/* hash key, must be first */
	int			session;		/* number of that which it is in, from when it
								 * begins until it is gone; or NO_SESSION */
	uint32		owner;			/* of its requests */
	uint32		lock_owner;		/* of those for a semaphore's lock, or 0 */
	int64		owner_since_ms; /* zk_now_ms(); 0: not the owner */
	int64		answer_due_ms;	/* the same: a retained owner that we have
								 * asked is to answer by then; or 0 */
	int64		check_at_ms;	/* the same: to be looked after then; or 0 */
	pairingheap_node check_node;	/* in a heap, unless that is 0 */
	int			asker_pid;		/* backend that it was begun for */
	bool		created;		/* the slot has its sequence number */
	bool		has_uuid;
	uint8		uuid[ZNODE_UUID_BYTES];
	char		directory[ZNODE_PATH_SIZE];
	int			place_bytes;	/* quota: of its node in a queue, and ... */
	int			permit_bytes;	/* ... of its permit's node, or 0 */
	int			bytes;			/* quota: of what it has, or may have */
	int			leaving;		/* the part of that which is being deleted */
	bool		parked;			/* not begun, until there is room */
	uint32		group;			/* parked: that of the slot */
	dlist_node	parked_node;	/* in contender.c's list, if parked */
	int64		queued_since_ms;	/* zk_now_ms(): it stands behind others, or
									 * a writer behind it, which backends
									 * wait for; 0: neither, for all we
									 * know */
	dlist_node	queued_node;	/* in contender.c's list, unless that is 0 */
	uint32		watch_serial;	/* of the watch that it waits for, or 0 */
	int64		watched_ms;		/* zk_now_ms() when that was last set */
	dlist_node	watching_node;	/* in contender.c's list, unless that is 0 */
	NoteWait   *waits;			/* that its note tells, palloc'd, or NULL */
	int			nwaits;
	bool		tells_waits;	/* its note may tell of some */
	bool		adopted;		/* this worker has looked after that */
	int32		note_version;	/* of its node's data, or -1: not known */
	bool		awaited;		/* a scan waits to hear if it is contended */
	Machine    *machine;
	MachineStatus now;			/* what that tells of itself */
} Contender;

extern void contenders_init(SessionHandler handler,
							SessionHandler lock_handler);
extern int	contenders_count(void);
extern int	contenders_count_of(int session);
extern Contender **contenders_list(int *n);
extern Contender *contender_find(ZkSlot *slot);
extern Contender *contender_make(ZkSlot *slot, ZnodeKind kind);
extern void contender_set_session(Contender *contender, int session);
extern void contender_drop(Contender *contender);
extern void contender_note_uuid(Contender *contender, const uint8 *uuid);
extern void contender_forget_note(Contender *contender);
extern void contender_set_waits(Contender *contender, const NoteWait *waits,
								int nwaits);
extern const char *contender_note(const Contender *contender);
extern bool contender_has_uuid(const uint8 *uuid);
extern Contender *contender_find_path(const char *path);
extern bool contender_owned_path(const Contender *contender,
								 char path[NOTE_VERTEX_SIZE]);
extern bool contender_queued_path(const Contender *contender,
								  char path[NOTE_VERTEX_SIZE]);

extern void contender_place_path(const Contender *contender,
								 SemaphorePlace place,
								 char path[PLACE_PATH_SIZE]);
extern bool contender_is_begun(const Contender *contender);
extern void contender_update(Contender *contender);

extern int	contender_bytes_wanted(const Contender *contender);
extern void contender_park(Contender *contender, uint32 group);
extern Contender *contender_first_parked(void);
extern int64 contender_bytes_of_first(void);

extern void contender_set_queued(Contender *contender, bool queued);
extern Contender *contender_first_queued(void);
extern int64 contender_queued_after(int64 at_ms);

extern void contender_delay_watch(Contender *contender);
extern Contender *contender_first_watching(int *nwatching);

extern void contender_schedule_check(Contender *contender, int64 at_ms);
extern Contender *contender_next_due(int64 now_ms);
extern int64 contender_next_check(void);

#endif							/* ZKLOCK_CONTENDER_H */
