/*-------------------------------------------------------------------------
 *
 * process.h
 *		Machines, instances and their processes, as faults and the workload
 *		see them.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/process.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "sim.h"

typedef struct Setting
{
	const char *name;
	int			value;
} Setting;

#define MAX_SETTINGS	16

typedef struct InstanceOptions
{
	const char *cluster_name;
	const char *servers;
	int			max_procs;
	Setting		settings[MAX_SETTINGS];
	int			nsettings;
	double		drift;			/* its clock is so much faster than true
								 * time */
	int64_t		wall_offset;	/* of its time of day */
	int64_t		boot_offset;	/* of its clock since it was booted */
	const char *mutation;		/* or NULL */
} InstanceOptions;

/* So long after the end of a worker, the postmaster starts another. */
#define SIM_RESTART_US			1000000

extern void copies_open(const char *program, int n, bool debugged);
extern void processes_begin(void);
extern void processes_end(void);

extern Instance *instance_new(const InstanceOptions *options);
extern int	instances_count(void);
extern Instance *instance_at(int i);
extern bool instance_is_up(const Instance *instance);
extern void instance_crash(Instance *instance, int64_t down_us);
extern void instance_freeze(Instance *instance, int64_t us);
extern void instance_step_wall(Instance *instance, int64_t us);
extern void instance_set_drift(Instance *instance, double drift);
extern Process *instance_worker(const Instance *instance);
extern void instance_set_resolver(Instance *instance, int64_t us);
extern int64_t instance_resolver(const Instance *instance);

extern Process *backend_start(Instance *instance, int client);
extern bool process_is_alive(const Process *process);
extern Instance *process_instance(const Process *process);
extern const Guest *process_guest(const Process *process);
extern uint64_t process_serial(const Process *process);
extern size_t process_bytes(const Process *process);
extern void process_freeze(Process *process, int64_t us);
extern void process_signal(Process *process, int signo, int sender);

/* workload.c: a backend process is over */
extern void workload_ended(int client);
/* library.c: a process is over, and with it its handles */
extern void library_forget(Process *process);

#endif							/* SIM_PROCESS_H */
