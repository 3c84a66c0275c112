/*-------------------------------------------------------------------------
 *
 * system.c
 *		Stand-ins for the system: memory, clocks, threads, signals, files.
 *
 * The functions here take the place of libc's in the copies of the program
 * only: they are linked with -Bsymbolic.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		test/sim/guest/system.c
 *
 *-------------------------------------------------------------------------
 */
#include "guest.h"

#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "storage/fd.h"
#include "storage/s_lock.h"
#include "utils/timestamp.h"

#define MAX_SIGNALS	64

/* Others may go on in one of so many basic blocks, beside the stand-ins. */
#define BLOCKS		400

static int64 points;			/* the CPU time of this process, in us */

static void (*handlers[MAX_SIGNALS]) (int);
static void (*info_handlers[MAX_SIGNALS]) (int, siginfo_t *, void *);

/* Signals come to the main thread only, as in zklock. */
void
signals_take(void)
{
	int			signo;
	int			sender;

	if (!process_has_signal() || sim_task() != process_main(sim_process()))
		return;
	while (process_take_signal(sim_process(), &signo, &sender))
	{
		if (info_handlers[signo])
		{
			siginfo_t	info;

			memset(&info, 0, sizeof(info));
			info.si_signo = signo;
			info.si_pid = sender;
			info_handlers[signo] (signo, &info, NULL);
		}
		else if (handlers[signo])
			handlers[signo] (signo);
	}
}

void
sim_point(void)
{
	points++;
	sim_yield();
	signals_take();
}

/*
 * The compiler has this called in each basic block of zklock's sources, but
 * for core/: others may go on there, too, between any two accesses to memory.
 */
extern void __sanitizer_cov_trace_pc(void);

void
__sanitizer_cov_trace_pc(void)
{
	static int	blocks_left = 0;

	if (--blocks_left > 0 || sim_task() == NULL)
		return;
	blocks_left = INT_MAX;		/* not again within it */
	sim_point();
	blocks_left = 1 + sim_below(BLOCKS);
}

int
sim_spin_lock(volatile slock_t *lock)
{
	sim_point();
	while (*lock)
		sim_sleep(10);
	*lock = 1;
	return 0;
}

/*
 * Memory.
 */
void *
malloc(size_t size)
{
	return process_malloc(size);
}

void *
calloc(size_t n, size_t size)
{
	void	   *block = process_malloc(n * size);

	return block ? memset(block, 0, n * size) : NULL;
}

void *
realloc(void *block, size_t size)
{
	return process_realloc(block, size);
}

void
free(void *block)
{
	process_free(block);
}

char *
strdup(const char *string)
{
	return strcpy(process_malloc(strlen(string) + 1), string);
}

/*
 * Clocks.
 */
int64
guest_now(void)
{
	return sim_boottime(sim_instance());
}

/* The true time of a time of the machine's clock. */
int64
guest_deadline(int64 boottime)
{
	return sim_true_time(sim_instance(), boottime);
}

int
clock_gettime(clockid_t id, struct timespec *time)
{
	int64		us = id == CLOCK_THREAD_CPUTIME_ID ? points : guest_now();

	if (id != CLOCK_BOOTTIME && id != CLOCK_THREAD_CPUTIME_ID)
		sim_lacks("this clock");
	time->tv_sec = us / 1000000;
	time->tv_nsec = us % 1000000 * 1000;
	if (id == CLOCK_BOOTTIME)
		check_clock_read();
	sim_point();
	if (id == CLOCK_BOOTTIME)
		sim_nap_behind_clock();
	return 0;
}

/* 2026-11-23 as PostgreSQL counts. */
#define WALL_BASE	INT64CONST(848700000000000)

TimestampTz
GetCurrentTimestamp(void)
{
	return WALL_BASE + sim_walltime(sim_instance());
}

void
pg_usleep(long us)
{
	sim_sleep(us);
	signals_take();
}

/*
 * Files: an eventfd, and none that can be opened.
 */
int
eventfd(unsigned int count, int flags)
{
	(void) count;
	(void) flags;
	return process_eventfd();
}

ssize_t
read(int fd, void *buffer, size_t size)
{
	return process_read(fd, buffer, size);
}

ssize_t
write(int fd, const void *buffer, size_t size)
{
	return process_write(fd, buffer, size);
}

int
poll(struct pollfd *fds, nfds_t n, int timeout)
{
	int64		until = guest_deadline(guest_now() + timeout * INT64CONST(1000));

	if (n != 1)
		SIM_LACKS();
	while (!process_is_readable(fds->fd))
	{
		if (sim_now() >= until)
			return 0;
		(void) sim_wait(until);
		signals_take();
	}
	fds->revents = POLLIN;
	return 1;
}

FILE *
fopen(const char *name, const char *mode)
{
	(void) mode;
	if (strcmp(name, "postmaster.pid") != 0)
		SIM_LACKS();
	errno = ENOENT;
	return NULL;
}

int
OpenTransientFile(const char *name, int flags)
{
	(void) name;
	(void) flags;
	SIM_LACKS();
}

int
CloseTransientFile(int fd)
{
	(void) fd;
	SIM_LACKS();
}

FILE *
AllocateFile(const char *name, const char *mode)
{
	(void) name;
	if (strcmp(mode, "rb") != 0 && strcmp(mode, "r") != 0)
		SIM_LACKS();
	errno = ENOENT;
	return NULL;
}

int
FreeFile(FILE *file)
{
	(void) file;
	SIM_LACKS();
}

int
durable_rename(const char *from, const char *to, int elevel)
{
	(void) from;
	(void) to;
	(void) elevel;
	SIM_LACKS();
}

/*
 * Threads.
 */
typedef struct Start
{
	void	   *(*function) (void *);
	void	   *argument;
} Start;

static void
run_thread(void *arg)
{
	Start		start = *(Start *) arg;

	process_free(arg);
	start.function(start.argument);
}

int
pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			   void *(*function) (void *), void *argument)
{
	Start	   *start = process_malloc(sizeof(Start));

	(void) attr;
	start->function = function;
	start->argument = argument;
	*thread = 0;
	(void) process_new_task(run_thread, start);
	sim_point();
	return 0;
}

int
pthread_detach(pthread_t thread)
{
	(void) thread;
	return 0;
}

/* __data.__lock is all that counts. */
int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
	sim_yield();
	while (mutex->__data.__lock)
		sim_sleep(20);
	mutex->__data.__lock = 1;
	return 0;
}

int
pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	Assert(mutex->__data.__lock);
	mutex->__data.__lock = 0;
	sim_yield();
	return 0;
}

/*
 * Signals.  None comes from outside.
 */
int
pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	(void) how;
	(void) set;
	(void) old;
	return 0;
}

/* The timer of a fault, which does not happen. */
int
timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	(void) clock;
	(void) event;
	(void) timer;
	return 0;
}

int
sigaction(int signo, const struct sigaction *action, struct sigaction *old)
{
	(void) old;
	if (action->sa_flags & SA_SIGINFO)
		info_handlers[signo] = action->sa_sigaction;
	else
		handlers[signo] = action->sa_handler;
	return 0;
}

pqsigfunc
pqsignal(int signo, pqsigfunc handler)
{
	pqsigfunc	old = handlers[signo];

	handlers[signo] = handler;
	info_handlers[signo] = NULL;
	return old;
}

int
kill(pid_t pid, int signo)
{
	sim_point();
	return process_kill(sim_instance(), abs(pid), signo,
						process_pid(sim_process()));
}

/*
 * Hosts.
 */
int
gethostname(char *name, size_t size)
{
	pg_snprintf(name, size, "host%d", instance_number(sim_instance()));
	return 0;
}

int
getnameinfo(const struct sockaddr *address, socklen_t size, char *host,
			socklen_t host_size, char *service, socklen_t service_size,
			int flags)
{
	(void) address;
	(void) size;
	(void) flags;
	strlcpy(host, "10.0.0.1", host_size);
	strlcpy(service, "2181", service_size);
	return 0;
}

bool
pg_strong_random(void *buffer, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *) buffer)[i] = (unsigned char) sim_random();
	return true;
}
