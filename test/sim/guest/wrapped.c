/*-------------------------------------------------------------------------
 *
 * wrapped.c
 *		What the checkers are told by functions of zklock: the linker has
 *		__wrap_NAME() called in the place of NAME(), which is __real_NAME().
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/wrapped.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include "core/deadlock.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/slots.h"
#include "shared/slots_private.h"
#include "worker/directories.h"
#include "worker/lifecycle.h"
#include "worker/waits.h"
#include "worker/wake.h"
#include "worker/zookeeper/flight_private.h"
#include "worker/zookeeper/session.h"

/* What the library's watches would take in a request (library.c). */
extern size_t library_watch_bytes(const zhandle_t *zh);

/* The sync check of a connection is about to be sent, or has been. */
extern void library_try_connection(zhandle_t *zh, bool begins);

extern void __real_waits_scan(Waits *result, int64 wait_us);
extern void __wrap_waits_scan(Waits *result, int64 wait_us);
extern void __real_session_write(const ZkSessionInfo *info);
extern void __wrap_session_write(const ZkSessionInfo *info);
extern void __real_lease_write(int64 until_ms, uint32 ticket);
extern void __wrap_lease_write(int64 until_ms, uint32 ticket);
extern void __real_lifecycle_end_restored(void);
extern void __wrap_lifecycle_end_restored(void);
extern void __real_stats_lost(const ZkKey *key);
extern void __wrap_stats_lost(const ZkKey *key);
extern uint32 __real_proof_ask(void);
extern uint32 __wrap_proof_ask(void);
extern void __real_lease_shorten(int64 until_ms);
extern void __wrap_lease_shorten(int64 until_ms);
extern int64 __real_session_flush(void);
extern int64 __wrap_session_flush(void);

extern const Operation *__real_flight_send_alone(uint32_t owner,
												 const Request *request);
extern const Operation *__wrap_flight_send_alone(uint32_t owner,
												 const Request *request);
extern bool __real_deadlock_request(Deadlocks *d, Request *request);
extern bool __wrap_deadlock_request(Deadlocks *d, Request *request);
extern ZkClaimState __real_claim_renew(const ClaimToken *token, int64 ttl_us,
									   int64 *end_ms, int *number);
extern ZkClaimState __wrap_claim_renew(const ClaimToken *token, int64 ttl_us,
									   int64 *end_ms, int *number);
extern long __real_wake_timeout(void);
extern long __wrap_wake_timeout(void);
extern void __real_directory_leave(const char *path, int32_t number);
extern void __wrap_directory_leave(const char *path, int32_t number);
extern int32_t __real_directory_next(const char *path);
extern int32_t __wrap_directory_next(const char *path);

static bool looked;				/* in this iteration of the main loop */

void
__wrap_waits_scan(Waits *result, int64 wait_us)
{
	looked = true;
	check_look(instance_number(sim_instance()));
	__real_waits_scan(result, wait_us);
}

void
__wrap_session_write(const ZkSessionInfo *info)
{
	check_session(instance_number(sim_instance()), info->key.client_id);
	__real_session_write(info);
}

/* For each holder of a slot that is lost, ahead of the signal that it gets. */
void
__wrap_stats_lost(const ZkKey *key)
{
	int			n = procs_used();

	check_lost(instance_number(sim_instance()), key->name);
	for (int i = 0; i < n; i++)
	{
		const ZkProcLock *proc = proc_at(i);

		if (proc->slot != NULL && &proc->slot->key == key && proc->granted &&
			proc->terminates && !proc->provisional)
			check_terminated(instance_number(sim_instance()),
							 proc_backend(proc)->pid);
	}
	__real_stats_lost(key);
}

uint32
__wrap_proof_ask(void)
{
	check_asked();
	return __real_proof_ask();
}

void
__wrap_lifecycle_end_restored(void)
{
	check_noticed(instance_number(sim_instance()));
	__real_lifecycle_end_restored();
}

/* It is told ahead of a process that may read it, and taken back behind it. */
void
__wrap_lease_write(int64 until_ms, uint32 ticket)
{
	check_lease(instance_number(sim_instance()), until_ms * 1000);
	__real_lease_write(until_ms, ticket);
}

void
__wrap_lease_shorten(int64 until_ms)
{
	__real_lease_shorten(until_ms);
	check_lease(instance_number(sim_instance()), until_ms * 1000);
}

/* The bytes of the watch that session.c sets to probe for its removal. */
#define PROBE_BYTES		23

/*
 * All answers have been taken if no flight is out, but for that of a probe.
 * What has fired since may still be in the books.
 */
int64
__wrap_session_flush(void)
{
	if (client.connected && !flight_is_out())
		check_watches(instance_number(sim_instance()),
					  library_watch_bytes(client.handle),
					  flight.watch_bytes + PROBE_BYTES);
	looked = false;
	return __real_session_flush();
}

const Operation *
__wrap_flight_send_alone(uint32_t owner, const Request *request)
{
	bool		tries = request->kind == REQUEST_CHECK;
	const Operation *op;

	if (tries)
		library_try_connection(client.handle, true);
	op = __real_flight_send_alone(owner, request);
	if (tries)
		library_try_connection(client.handle, false);
	return op;
}

/* The worker ends a deadlock: the last part of that begins with its hash. */
static void
tell_of_cycle(Deadlocks *d, const char *part)
{
	const DeadlockEdge *const *edges;
	int			n = deadlock_cycle(d, part, &edges);
	SimEdge		reported[DEADLOCK_CYCLE];
	char		hash[DEADLOCK_HASH + 1];

	strlcpy(hash, part, sizeof(hash));
	for (int i = 0; i < n; i++)
		reported[i] = (SimEdge)
	{
		.teller = edges[i]->teller,.from = edges[i]->from.name,
		.to = edges[i]->to.name,.keeper = edges[i]->keeper,
		.pid = edges[i]->to.pid
	};
	if (!looked)
		check_blind_act(instance_number(sim_instance()));
	check_cycle(instance_number(sim_instance()), hash, reported, n);
}

bool
__wrap_deadlock_request(Deadlocks *d, Request *request)
{
	bool		there = __real_deadlock_request(d, request);

	if (there && request->kind == REQUEST_CREATE &&
		strncmp(request->node, "ended.", 6) == 0)
		tell_of_cycle(d, request->node + 6);
	return there;
}

ZkClaimState
__wrap_claim_renew(const ClaimToken *token, int64 ttl_us,
				   int64 *end_ms, int *number)
{
	int64		boottime = sim_boottime(sim_instance());
	ZkClaimState state = __real_claim_renew(token, ttl_us, end_ms,
											 number);

	if (state == ZK_CLAIM_LIVE)
		check_renewed(instance_number(sim_instance()), boottime);
	return state;
}

void
__wrap_directory_leave(const char *path, int32_t number)
{
	check_leave(instance_number(sim_instance()), path);
	__real_directory_leave(path, number);
}

int32_t
__wrap_directory_next(const char *path)
{
	int32_t		number = __real_directory_next(path);

	if (number != 0)
		check_next(instance_number(sim_instance()), path, number);
	return number;
}

/* The worker is about to sleep. */
long
__wrap_wake_timeout(void)
{
	int64		now_ms = sim_boottime(sim_instance()) / 1000;
	int64		first_ms = 0;
	long		timeout;

	for (int i = 0; i < WAKE_REASONS; i++)
		first_ms = zk_earlier(first_ms, wake_time(i));
	timeout = __real_wake_timeout();
	check_sleep(instance_number(sim_instance()), timeout,
				first_ms == 0 ? -1 : Max(first_ms - now_ms, 0));
	return timeout;
}
