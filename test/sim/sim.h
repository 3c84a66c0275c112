/*-------------------------------------------------------------------------
 *
 * sim.h
 *		What the simulator and the processes that it simulates know of each
 *		other.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/sim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_H
#define SIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAX_NAMES	16		/* lock names in a schedule */

typedef struct Task Task;
typedef struct Instance Instance;
typedef struct Process Process;

/* schedule.c: tasks, virtual time, random numbers, the trace */
typedef void (*TaskMain) (void *arg);
typedef void (*EventHandler) (void *arg);

extern int64_t sim_now(void);	/* true time, in us */
extern uint64_t sim_random(void);
extern uint32_t sim_below(uint32_t n);
extern bool sim_chance(uint32_t per_million);
extern int64_t sim_between(int64_t low, int64_t high);
extern void sim_yield(void);
extern void sim_sleep(int64_t us);
extern void sim_nap_behind_clock(void);
extern bool sim_wait(int64_t until);
extern Task *sim_task(void);
extern Process *sim_process(void);
extern void task_wake(Task *task);
extern Task *task_new(Process *process, TaskMain main, void *arg);
extern void task_kill(Task *task);
extern void sim_exit_task(void) __attribute__((noreturn));
extern void sim_at(int64_t at, EventHandler handler, void *arg);
extern bool sim_tracing(void);
extern void sim_trace(const char *format,...)
			__attribute__((format(printf, 1, 2)));
extern void sim_vtrace(const char *format, va_list args);
extern void sim_mix(uint64_t value);

/* The end: a checker has found something, or the simulator lacks something. */
extern void sim_violation(const char *checker, const char *format,...)
			__attribute__((format(printf, 2, 3), noreturn));
extern void sim_lacks(const char *what) __attribute__((noreturn));

/* process.c: machines, instances, processes */
#define SIM_NEVER	INT64_MAX

extern int64_t sim_boottime(const Instance *instance);
extern int64_t sim_walltime(const Instance *instance);
extern int64_t sim_true_time(const Instance *instance, int64_t boottime);
extern Instance *sim_instance(void);
extern int	instance_number(const Instance *instance);
extern void *instance_shmem(Instance *instance, const char *name, size_t size,
							bool *found);
extern const char *instance_cluster_name(const Instance *instance);
extern const char *instance_servers(const Instance *instance);
extern bool instance_is_stopping(const Instance *instance);
extern int	instance_max_procs(const Instance *instance);
extern int	instance_setting(Instance *instance, const char *name,
							 int otherwise);
extern void instance_check_settings(const Instance *instance);
extern int	process_pid(const Process *process);
extern int	process_client(const Process *process);
extern int	process_number(const Process *process);
extern bool process_is_worker(const Process *process);
extern Task *process_main(Process *process);
extern Task *instance_find_main(Instance *instance, int number);
extern bool process_has_signal(void);
extern bool process_take_signal(Process *process, int *signo, int *sender);
extern int	process_kill(Instance *instance, int pid, int signo, int sender);
extern const char *instance_mutation(const Instance *instance);
extern Task *process_new_task(TaskMain main, void *arg);
extern void sim_exit_process(int code) __attribute__((noreturn));
extern void *process_malloc(size_t size);
extern void *process_realloc(void *block, size_t size);
extern void process_free(void *block);
extern int	process_eventfd(void);
extern bool process_is_readable(int fd);
extern long process_read(int fd, void *buffer, size_t size);
extern long process_write(int fd, const void *buffer, size_t size);

/* The file with the session, of one data directory. */
#define SIM_FILE_SIZE	2048
extern void instance_write_file(Instance *instance, const void *data,
								size_t size);
extern size_t instance_read_file(Instance *instance, void *data);

/* What a process is told when it starts, in its own copy of the program. */
typedef struct Guest
{
	void		(*worker) (void);	/* zklock's worker */
	void		(*backend) (void);	/* a backend with a client */
	void		(*inspect) (int *slots, int *procs, long *bytes);
} Guest;

/* check.c: what the checkers are told */
typedef enum SimMode
{
	SIM_EXCLUSIVE,
	SIM_SHARED,
	SIM_PERMIT
} SimMode;

extern void check_want(int backend, const int *names, int n, SimMode mode,
					   bool any, bool alone);
extern void check_want_row(int backend, int row);
extern void check_want_timed(int backend);
extern void check_want_end(int backend);
extern void check_acquired_row(int backend, int row);
extern void check_begin(int backend);
extern void check_unlocked(int backend, int name, bool at_once);
extern void check_unlocked_session(int backend, bool at_once);
extern void check_savepoint(int backend);
extern void check_release_savepoint(int backend);
extern void check_rolled_back_to(int backend);
extern void check_rolled_back(int backend);
extern void check_ended(int backend);
extern void check_failed(int backend, const char *sqlstate,
						 const char *message);
extern void check_acquired(int backend, int name, SimMode mode, bool session,
						   bool mine, bool alone);
extern void check_terminated(int instance, int pid);
extern void check_denied(int backend, int64_t timeout_ms);
extern void check_renewed(int instance, int64_t boottime);
extern void check_commit(int backend);
extern void check_commit_hold(int backend, const char *name, bool mine);
extern void check_clock_read(void);
extern void check_committing(int backend, bool quorum);
extern void check_committed(int backend);
extern void check_deadlock(int backend, bool local);
extern void check_look(int instance);

/* An edge of a deadlock between instances. */
typedef struct SimEdge
{
	const char *teller;			/* id of its instance */
	const char *from;			/* lock directories */
	const char *to;
	const char *keeper;			/* a contender, or NULL */
	int			pid;			/* of the process that waits */
} SimEdge;

extern void check_cycle(int instance, const char *hash, const SimEdge *edges,
						int n);
extern void check_session(int instance, int64_t id);
extern void check_lease(int instance, int64_t until);
extern void check_sleep(int instance, int64_t ms, int64_t due_ms);
extern void check_watches(int instance, size_t library,
						  size_t books);
extern void check_token(int backend, int name, int64_t token);
extern void check_leave(int instance, const char *path);
extern void check_next(int instance, const char *path, int number);
extern void check_act(int instance);
extern void check_noticed(int instance);
extern void check_asked(void);

/* claims.c: what clients do with claims */
typedef enum SimClaimCall
{
	CLAIM_RENEW,
	CLAIM_USE,
	CLAIM_END
} SimClaimCall;

extern const char *claims_token(int claim);
extern int64_t claims_ttl(int claim);
extern void check_claim_taken(int backend, bool begins);
extern void check_claim_given(int backend, int name, int64_t ttl_us,
							  const char *token);
extern void check_claim_call(int backend, int claim, SimClaimCall call);
extern void check_claim_done(int backend, bool ok, bool at_once);
extern void check_claim_failed(int backend, bool refused);
extern void check_claim_shown(int users, int64_t over_us);
extern void check_claims_settled(int backend);
extern void check_lost(int instance, const char *name);
extern void check_blind_act(int instance);

/* workload.c: what the clients of backends do */
typedef enum SimStep
{
	STEP_END,					/* the session ends */
	STEP_BEGIN,
	STEP_LOCK,
	STEP_ROW,
	STEP_UNLOCK,
	STEP_UNLOCK_ALL,
	STEP_SAVEPOINT,
	STEP_ROLLBACK_TO,
	STEP_RELEASE,
	STEP_WRITE,
	STEP_CLAIM,
	STEP_RENEW_CLAIM,
	STEP_USE_CLAIM,
	STEP_END_CLAIM,
	STEP_SHOW_CLAIMS,
	STEP_IDLE,
	STEP_COMMIT,
	STEP_ROLLBACK
} SimStep;

typedef struct SimStatement
{
	SimStep		step;
	int			names[SIM_MAX_NAMES];
	int			nnames;
	SimMode		mode;
	bool		any;
	bool		try;
	bool		session;
	int			permits;
	int64_t		timeout_ms;		/* -1: none */
	int			row;
	int64_t		idle_us;
	int64_t		ttl_us;			/* of a claim; 0: none is given */
	bool		own;			/* the claim that this client has taken last */
	int			claim;
} SimStatement;

extern void workload_next(int backend, SimStatement *statement);
extern void workload_failed(int backend, const char *sqlstate);
extern const char *workload_name(int name);
extern bool workload_is_alone(int instance);
extern int	workload_lock_timeout(int backend);
extern int64_t workload_flush_us(int backend);

#endif							/* SIM_H */
