/*-------------------------------------------------------------------------
 *
 * process.c
 *		Machines, instances and their processes.
 *
 * A process has statics of its own, as it has in the real world: the program
 * (zklock's sources and the stand-ins of guest/) is a shared library, which is
 * loaded from as many files, copies of one another, as there may be processes.
 * A process that begins finds its copy as it was when it was loaded.  What a
 * process allocates is on a list of its own, and goes with it.
 *
 * An instance is a machine of its own, with its clocks, which may be wrong.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/process.c
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "process.h"
#include "schedule.h"

#define MAX_SEGMENTS	4
#define MAX_TASKS		64
#define FIRST_FD		1000
#define SHMEM_SIZE		((size_t) 64 << 20)

/* far from the program, its libraries and its heap */
#if UINTPTR_MAX > UINT32_MAX
#define SHMEM_BASE		0x500000000000
#else
#define SHMEM_BASE		0x80000000
#endif

/* A copy of the program. */
typedef struct Copy
{
	const Guest *guest;
	int			nsegments;
	struct
	{
		char	   *start;
		size_t		size;
		char	   *pristine;
	}			segments[MAX_SEGMENTS];
	Process    *user;			/* or NULL */
} Copy;

typedef struct Chunk
{
	struct Chunk *next;
	struct Chunk *prev;
	size_t		size;
	size_t		unused;			/* keeps what follows aligned */
} Chunk;

struct Process
{
	Instance   *instance;
	Copy	   *copy;
	uint64_t	serial;
	int			pid;
	int			slot;			/* number of its PGPROC */
	int			client;			/* of a backend; -1: the worker */
	bool		alive;
	char		label[32];
	Task	   *tasks[MAX_TASKS];
	int			ntasks;
	uint64_t	signals;		/* a bit for each that is pending */
	int			senders[64];
	Chunk		chunks;
	size_t		bytes;
	uint64_t	event_count;	/* of its eventfd */
	int64_t		frozen_until;
};

typedef struct Segment
{
	struct Segment *next;
	const char *name;
	size_t		size;
	void	   *memory;
} Segment;

struct Instance
{
	int			number;
	InstanceOptions options;
	uint32_t	known_settings; /* a bit for each that was asked for */
	bool		up;
	uint64_t	life;			/* counts crashes */
	Segment    *shmem;
	size_t		shmem_used;
	Process   **slots;			/* by the number of the PGPROC */
	Process    *worker;
	int			last_pid;
	int64_t		frozen_until;
	int64_t		clock_from;		/* true time and ... */
	int64_t		clock_base;		/* ... boot time when its rate was set */
	double		rate;
	int64_t		wall_offset;
	int64_t		resolver_us;
	char		file[SIM_FILE_SIZE];
	size_t		file_size;
};

static Copy *copies;
static int	ncopies;
static int	max_copies;
static const char *program_file;
static bool keep_files;			/* for a debugger */
static char directory[] = "/tmp/zksimXXXXXX";

static Instance *instances[MAX_INSTANCES];
static int	ninstances;
static uint64_t last_serial;
static bool shmem_mapped[MAX_INSTANCES];

/*
 * Copies of the program.
 */
static void
copy_file(const char *from, const char *to)
{
	static char buffer[1 << 20];
	int			in = open(from, O_RDONLY);
	int			out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	ssize_t		n;

	if (in < 0 || out < 0)
	{
		perror(from);
		exit(2);
	}
	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, n) != n)
		{
			perror(to);
			exit(2);
		}
	close(in);
	close(out);
}

static int
note_segments(struct dl_phdr_info *info, size_t size, void *arg)
{
	Copy	   *copy = arg;
	const char *guest = (const char *) copy->guest;

	bool		is_ours = false;

	(void) size;
	for (int i = 0; i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		const char *start = (const char *) info->dlpi_addr + header->p_vaddr;

		is_ours |= header->p_type == PT_LOAD && guest >= start &&
			guest < start + header->p_memsz;
	}
	for (int i = 0; is_ours && i < info->dlpi_phnum; i++)
	{
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];

		if (header->p_type != PT_LOAD || !(header->p_flags & PF_W))
			continue;
		assert(copy->nsegments < MAX_SEGMENTS);
		copy->segments[copy->nsegments].start =
			(char *) info->dlpi_addr + header->p_vaddr;
		copy->segments[copy->nsegments++].size = header->p_memsz;
	}
	return copy->nsegments > 0;
}

static Copy *
load_copy(void)
{
	Copy	   *copy = &copies[ncopies];
	char		file[64];
	void	   *handle;

	if (ncopies == max_copies)
		sim_lacks("so many processes at a time");
	ncopies++;
	snprintf(file, sizeof(file), "%s/%d.so", directory, ncopies);
	copy_file(program_file, file);
	handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL || (copy->guest = dlsym(handle, "guest")) == NULL)
	{
		fprintf(stderr, "sim: %s\n", dlerror());
		exit(2);
	}
	if (!keep_files)
		unlink(file);
	dl_iterate_phdr(note_segments, copy);
	for (int i = 0; i < copy->nsegments; i++)
	{
		copy->segments[i].pristine = malloc(copy->segments[i].size);
		memcpy(copy->segments[i].pristine, copy->segments[i].start,
			   copy->segments[i].size);
	}
	return copy;
}

/* A debugger has read them. */
static void
remove_files(void)
{
	for (int i = 1; i <= ncopies; i++)
	{
		char		file[64];

		snprintf(file, sizeof(file), "%s/%d.so", directory, i);
		unlink(file);
	}
	rmdir(directory);
}

/*
 * Prepare for so many processes at a time of this program; "debugged": keep
 * the files of their copies until the end.
 */
void
copies_open(const char *program, int n, bool debugged)
{
	program_file = program;
	max_copies = n;
	copies = calloc(n, sizeof(Copy));
	keep_files = debugged;
	if (debugged)
		atexit(remove_files);
	if (mkdtemp(directory) == NULL)
	{
		perror(directory);
		exit(2);
	}
	(void) load_copy();
	rmdir(directory);
}

static Copy *
take_copy(Process *process)
{
	Copy	   *copy = NULL;

	for (int i = 0; i < ncopies && copy == NULL; i++)
		if (copies[i].user == NULL)
			copy = &copies[i];
	if (copy == NULL)
	{
		(void) mkdir(directory, 0700);
		copy = load_copy();
		rmdir(directory);
	}
	for (int i = 0; i < copy->nsegments; i++)
		memcpy(copy->segments[i].start, copy->segments[i].pristine,
			   copy->segments[i].size);
	copy->user = process;
	return copy;
}

/*
 * Processes.
 */
static void
free_chunks(Process *process)
{
	while (process->chunks.next != &process->chunks)
	{
		Chunk	   *chunk = process->chunks.next;

		process->chunks.next = chunk->next;
		free(chunk);
	}
	process->chunks.prev = &process->chunks;
	process->bytes = 0;
}

/*
 * The process is gone, with all that it had; the running task may be its own.
 */
static void
bury(Process *process)
{
	Instance   *instance = process->instance;

	if (!process->alive)
		return;
	process->alive = false;
	instance->slots[process->slot] = NULL;
	library_forget(process);
	for (int i = 0; i < process->ntasks; i++)
		if (process->tasks[i] != sim_task())
			task_kill(process->tasks[i]);
	free_chunks(process);
	process->copy->user = NULL;
	sim_trace("process %d has ended", process->pid);
}

static void start_worker(void *arg);

/* The worker has ended: the postmaster starts another. */
static void
restart_worker(Instance *instance)
{
	uint64_t   *life = sim_alloc(2 * sizeof(uint64_t));

	life[0] = instance->number;
	life[1] = instance->life;
	sim_at(sim_now() + SIM_RESTART_US, start_worker, life);
}

static Process *
process_start(Instance *instance, int client, TaskMain main)
{
	Process    *process = sim_keep(sizeof(Process));
	int			slot = 0;

	while (slot < instance->options.max_procs && instance->slots[slot] != NULL)
		slot++;
	if (slot == instance->options.max_procs)
		sim_lacks("so many processes of an instance");
	instance->slots[slot] = process;
	process->instance = instance;
	process->serial = ++last_serial;
	process->pid = ++instance->last_pid;
	process->slot = slot;
	process->client = client;
	process->alive = true;
	process->chunks.next = process->chunks.prev = &process->chunks;
	if (client < 0)
		snprintf(process->label, sizeof(process->label), "%s.worker",
				 instance->options.cluster_name);
	else
		snprintf(process->label, sizeof(process->label), "%s.%d",
				 instance->options.cluster_name, client);
	process->copy = take_copy(process);
	process->tasks[process->ntasks++] = task_new(process, main, process);
	sim_trace("process %d starts: %s", process->pid, process->label);
	return process;
}

static void
run_worker(void *arg)
{
	Process    *process = arg;

	process->copy->guest->worker();
	sim_exit_process(0);
}

static void
run_backend(void *arg)
{
	Process    *process = arg;

	process->copy->guest->backend();
	sim_exit_process(0);
}

static void
start_worker(void *arg)
{
	uint64_t   *life = arg;
	Instance   *instance = instances[life[0]];

	if (!instance->up || instance->life != life[1])
		return;
	instance->worker = process_start(instance, -1, run_worker);
}

Process *
backend_start(Instance *instance, int client)
{
	return process_start(instance, client, run_backend);
}

/* The process of the running task ends. */
void
sim_exit_process(int code)
{
	Process    *process = sim_process();
	Instance   *instance = process->instance;

	sim_trace("exit %d", code);
	bury(process);
	if (process == instance->worker)
	{
		instance->worker = NULL;
		if (code != 0)
			restart_worker(instance);
	}
	else
		workload_ended(process->client);
	sim_exit_task();
}

Task *
process_new_task(TaskMain main, void *arg)
{
	Process    *process = sim_process();

	if (process->ntasks == MAX_TASKS)
	{
		process->ntasks = 1;	/* that of the main thread stays */
		for (int i = 1; i < MAX_TASKS; i++)
			if (!task_is_over(process->tasks[i]))
				process->tasks[process->ntasks++] = process->tasks[i];
	}
	if (process->ntasks == MAX_TASKS)
		sim_lacks("so many threads");
	return process->tasks[process->ntasks++] = task_new(process, main, arg);
}

bool
process_is_alive(const Process *process)
{
	return process->alive;
}

Instance *
process_instance(const Process *process)
{
	return process->instance;
}

int
process_client(const Process *process)
{
	return process->client;
}

const Guest *
process_guest(const Process *process)
{
	return process->copy->guest;
}

uint64_t
process_serial(const Process *process)
{
	return process->serial;
}

size_t
process_bytes(const Process *process)
{
	return process->bytes;
}

const char *
process_label(const Process *process)
{
	return process ? process->label : "?";
}

int
process_pid(const Process *process)
{
	return process->pid;
}

/* Of its PGPROC. */
int
process_number(const Process *process)
{
	return process->slot;
}

bool
process_is_worker(const Process *process)
{
	return process->client < 0;
}

Task *
process_main(Process *process)
{
	return process->tasks[0];
}

/* The main thread of the process with this PGPROC, or NULL. */
Task *
instance_find_main(Instance *instance, int number)
{
	Process    *process = instance->slots[number];

	return process ? process->tasks[0] : NULL;
}

/*
 * Signals: a process takes them when it comes to a stand-in.
 */
void
process_signal(Process *process, int signo, int sender)
{
	if (!process->alive)
		return;
	process->signals |= UINT64_C(1) << signo;
	process->senders[signo] = sender;
	task_wake(process->tasks[0]);
}

/* Is one pending of the running task's process? */
bool
process_has_signal(void)
{
	const Process *process = sim_process();

	return process != NULL && process->signals != 0;
}

bool
process_take_signal(Process *process, int *signo, int *sender)
{
	if (process->signals == 0)
		return false;
	*signo = __builtin_ctzll(process->signals);
	*sender = process->senders[*signo];
	process->signals &= process->signals - 1;
	return true;
}

int
process_kill(Instance *instance, int pid, int signo, int sender)
{
	for (int i = 0; i < instance->options.max_procs; i++)
		if (instance->slots[i] && instance->slots[i]->pid == pid)
		{
			process_signal(instance->slots[i], signo, sender);
			return 0;
		}
	errno = ESRCH;
	return -1;
}

/*
 * What a process allocates.
 */
void *
process_malloc(size_t size)
{
	Process    *process = sim_process();
	Chunk	   *chunk = malloc(sizeof(Chunk) + size);

	if (chunk == NULL)
		return NULL;
	memset(chunk + 1, 0x7F, size);	/* so that it is the same at each run */
	chunk->size = size;
	chunk->next = process->chunks.next;
	chunk->prev = &process->chunks;
	chunk->next->prev = chunk;
	process->chunks.next = chunk;
	process->bytes += size;
	return chunk + 1;
}

void
process_free(void *block)
{
	Process    *process = sim_process();
	Chunk	   *chunk = (Chunk *) block - 1;

	if (block == NULL)
		return;
	chunk->prev->next = chunk->next;
	chunk->next->prev = chunk->prev;
	process->bytes -= chunk->size;
	free(chunk);
}

void *
process_realloc(void *block, size_t size)
{
	Chunk	   *chunk = (Chunk *) block - 1;
	void	   *result = process_malloc(size);

	if (block == NULL || result == NULL)
		return result;
	memcpy(result, block, size < chunk->size ? size : chunk->size);
	process_free(block);
	return result;
}

/*
 * The eventfd of a process.
 */
int
process_eventfd(void)
{
	return FIRST_FD;
}

bool
process_is_readable(int fd)
{
	if (fd != FIRST_FD)
		sim_lacks("this file descriptor");
	return sim_process()->event_count > 0;
}

long
process_read(int fd, void *buffer, size_t size)
{
	Process    *process = sim_process();

	if (fd != FIRST_FD || size != sizeof(uint64_t))
		sim_lacks("read() of this");
	sim_yield();
	if (process->event_count == 0)
	{
		errno = EAGAIN;
		return -1;
	}
	memcpy(buffer, &process->event_count, size);
	process->event_count = 0;
	return size;
}

long
process_write(int fd, const void *buffer, size_t size)
{
	Process    *process = sim_process();
	uint64_t	count;

	if (fd != FIRST_FD || size != sizeof(uint64_t))
		sim_lacks("write() to this");
	memcpy(&count, buffer, size);
	process->event_count += count;
	task_wake(process->tasks[0]);
	sim_yield();
	return size;
}

/*
 * Instances.
 */
Instance *
instance_new(const InstanceOptions *options)
{
	Instance   *instance = sim_alloc(sizeof(Instance));

	assert(ninstances < MAX_INSTANCES);
	instance->number = ninstances;
	instance->options = *options;
	instance->up = true;
	instance->slots = sim_alloc(options->max_procs * sizeof(Process *));
	instance->last_pid = 1000 * (ninstances + 1);
	instance->clock_from = sim_now();
	instance->clock_base = sim_now() + options->boot_offset;
	instance->rate = 1.0 + options->drift;
	instance->wall_offset = options->wall_offset;
	instances[ninstances++] = instance;
	instance->worker = process_start(instance, -1, run_worker);
	return instance;
}

/*
 * Shared memory has the same addresses at each run, since zklock has a hash
 * table of slots by their addresses.
 */
static void *
take_shmem(Instance *instance, size_t size)
{
	char	   *base = (char *) SHMEM_BASE + instance->number * SHMEM_SIZE;
	char	   *result = base + instance->shmem_used;

	if (!shmem_mapped[instance->number])
	{
		if (mmap(base, SHMEM_SIZE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
				 -1, 0) != base)
			sim_lacks("memory at a fixed address");
		shmem_mapped[instance->number] = true;
	}
	instance->shmem_used += (size + 127) / 128 * 128;
	if (instance->shmem_used > SHMEM_SIZE)
		sim_lacks("so much shared memory");
	return result;
}

static void
free_shmem(Instance *instance)
{
	memset((char *) SHMEM_BASE + instance->number * SHMEM_SIZE, 0,
		   instance->shmem_used);
	instance->shmem_used = 0;
	instance->shmem = NULL;
}

static void
instance_recover(void *arg)
{
	Instance   *instance = arg;

	instance->up = true;
	instance->worker = process_start(instance, -1, run_worker);
}

/*
 * All processes are gone, and the shared memory; it begins anew after a while.
 */
void
instance_crash(Instance *instance, int64_t down_us)
{
	instance->up = false;
	instance->life++;
	instance->worker = NULL;
	for (int i = 0; i < instance->options.max_procs; i++)
		if (instance->slots[i] != NULL)
		{
			Process    *process = instance->slots[i];

			bury(process);
			if (process->client >= 0)
				workload_ended(process->client);
		}
	free_shmem(instance);
	claims_crashed(instance_number(instance));
	sim_at(sim_now() + down_us, instance_recover, instance);
}

bool
instance_is_up(const Instance *instance)
{
	return instance->up;
}

static void
thaw(void *arg)
{
	(void) arg;
	schedule_thaw();
}

/* The machine stands still; its clocks do not. */
void
instance_freeze(Instance *instance, int64_t us)
{
	instance->frozen_until = sim_now() + us;
	sim_at(instance->frozen_until, thaw, NULL);
}

void
process_freeze(Process *process, int64_t us)
{
	process->frozen_until = sim_now() + us;
	sim_at(process->frozen_until, thaw, NULL);
}

bool
process_is_frozen(const Process *process)
{
	return process != NULL &&
		(process->frozen_until > sim_now() ||
		 process->instance->frozen_until > sim_now());
}

/* When a process that is frozen goes on. */
int64_t
process_frozen_until(const Process *process)
{
	return process->frozen_until > process->instance->frozen_until ?
		process->frozen_until : process->instance->frozen_until;
}

int64_t
sim_boottime(const Instance *instance)
{
	return instance->clock_base +
		(int64_t) ((double) (sim_now() - instance->clock_from) * instance->rate);
}

/* When, in true time, the machine's clock will show that. */
int64_t
sim_true_time(const Instance *instance, int64_t boottime)
{
	return instance->clock_from +
		(int64_t) ((double) (boottime - instance->clock_base) / instance->rate) + 1;
}

int64_t
sim_walltime(const Instance *instance)
{
	return sim_boottime(instance) + instance->wall_offset;
}

void
instance_step_wall(Instance *instance, int64_t us)
{
	instance->wall_offset += us;
}

void
instance_set_drift(Instance *instance, double drift)
{
	int64_t		base = sim_boottime(instance);

	instance->clock_base = base;
	instance->clock_from = sim_now();
	instance->rate = 1.0 + drift;
}

Process *
instance_worker(const Instance *instance)
{
	return instance->worker;
}

/* How long it takes to resolve a name. */
void
instance_set_resolver(Instance *instance, int64_t us)
{
	instance->resolver_us = us;
}

int64_t
instance_resolver(const Instance *instance)
{
	return instance->resolver_us;
}

Instance *
sim_instance(void)
{
	return sim_process()->instance;
}

int
instance_number(const Instance *instance)
{
	return instance->number;
}

int
instances_count(void)
{
	return ninstances;
}

Instance *
instance_at(int i)
{
	return instances[i];
}

/* Shared memory by name, all zero when it is new. */
void *
instance_shmem(Instance *instance, const char *name, size_t size, bool *found)
{
	Segment    *segment;

	for (segment = instance->shmem; segment; segment = segment->next)
		if (strcmp(segment->name, name) == 0)
			break;
	*found = segment != NULL;
	if (segment == NULL)
	{
		segment = sim_keep(sizeof(Segment));
		segment->name = strcpy(sim_keep(strlen(name) + 1), name);
		segment->size = size;
		segment->memory = take_shmem(instance, size);
		segment->next = instance->shmem;
		instance->shmem = segment;
	}
	assert(segment->size == size);
	return segment->memory;
}

const char *
instance_cluster_name(const Instance *instance)
{
	return instance->options.cluster_name;
}

const char *
instance_servers(const Instance *instance)
{
	return instance->options.servers;
}

bool
instance_is_stopping(const Instance *instance)
{
	(void) instance;
	return false;
}

int
instance_max_procs(const Instance *instance)
{
	return instance->options.max_procs;
}

int
instance_setting(Instance *instance, const char *name, int otherwise)
{
	for (int i = 0; i < instance->options.nsettings; i++)
		if (strcmp(instance->options.settings[i].name, name) == 0)
		{
			instance->known_settings |= UINT32_C(1) << i;
			return instance->options.settings[i].value;
		}
	return otherwise;
}

/* A process has asked for all of its settings: is there one that nobody knows? */
void
instance_check_settings(const Instance *instance)
{
	for (int i = 0; i < instance->options.nsettings; i++)
		if ((instance->known_settings >> i & 1) == 0)
			sim_lacks(instance->options.settings[i].name);
}

const char *
instance_mutation(const Instance *instance)
{
	return instance->options.mutation;
}

void
instance_write_file(Instance *instance, const void *data, size_t size)
{
	assert(size <= SIM_FILE_SIZE);
	memcpy(instance->file, data, size);
	instance->file_size = size;
}

size_t
instance_read_file(Instance *instance, void *data)
{
	memcpy(data, instance->file, instance->file_size);
	return instance->file_size;
}

void
processes_begin(void)
{
	ninstances = 0;
	last_serial = 0;
}

/* The end of a schedule, wherever it is. */
void
processes_end(void)
{
	for (int i = 0; i < ninstances; i++)
	{
		Instance   *instance = instances[i];

		for (int j = 0; j < instance->options.max_procs; j++)
			if (instance->slots[j] != NULL)
			{
				Process    *process = instance->slots[j];

				process->alive = false;
				library_forget(process);
				free_chunks(process);
				process->copy->user = NULL;
			}
		free_shmem(instance);
	}
	ninstances = 0;
}
