/*
 * Calls that take long, in the zklock worker of a server that has been started
 * with this preloaded: see SlowCalls.pm.
 *
 * The worker is the process that has an eventfd.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int	wake_fd = -1;

int
eventfd(unsigned int count, int flags)
{
	int			(*real) (unsigned int, int) = dlsym(RTLD_NEXT, "eventfd");

	return wake_fd = real(count, flags);
}

/* A file in the directory that SlowCalls.pm has made. */
static FILE *
open_file(const char *name, const char *mode)
{
	char		path[4096];

	snprintf(path, sizeof(path), "%s/%s", getenv("SLOW_CALLS"), name);
	return fopen(path, mode);
}

static void
wait_ms(int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

	while (nanosleep(&time, &time) != 0)
		;
}

/* Wait for as long as a file of this name says, if there is one. */
static void
delay(const char *name)
{
	FILE	   *file = open_file(name, "r");
	int			ms = 0;

	if (file == NULL)
		return;
	if (fscanf(file, "%d", &ms) != 1)
		ms = 0;
	fclose(file);
	wait_ms(ms);
}

/* The last that is done in a scan for deadlocks is to log it, with DEBUG2. */
ssize_t
write(int fd, const void *data, size_t size)
{
	static const char of_scan[] = "waits for slots";
	static ssize_t (*real) (int, const void *, size_t);

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "write");
	if (fd == STDERR_FILENO && wake_fd >= 0 &&
		memmem(data, size, of_scan, strlen(of_scan)) != NULL)
		delay("scan");
	return real(fd, data, size);
}

/* Wait while there is a file of this name, and say so in another. */
static void
hold(const char *name)
{
	char		held[64];
	FILE	   *file;

	snprintf(held, sizeof(held), "%s.held", name);
	while (wake_fd >= 0 && (file = open_file(name, "r")) != NULL)
	{
		fclose(file);
		if ((file = open_file(held, "w")) != NULL)
		{
			fprintf(file, "%d\n", (int) getpid());
			fclose(file);
		}
		wait_ms(20);
	}
}

int
getaddrinfo(const char *node, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	int			(*real) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

	hold("getaddrinfo");
	return real(node, service, hints, result);
}

/* The library is not loaded with the program, as this is. */
static void *
find_in_library(const char *name)
{
	return dlsym(dlopen("libzookeeper_mt.so.2", RTLD_NOLOAD | RTLD_LAZY), name);
}

int
zookeeper_close(void *handle)
{
	int			(*real) (void *) = find_in_library("zookeeper_close");

	hold("zookeeper_close");
	return real(handle);
}

/* Each call is counted: by a line in a file. */
void *
zookeeper_init2(const char *servers, void *watcher, int timeout_ms,
				const void *id, void *context, int flags, void *log)
{
	void	   *(*real) (const char *, void *, int, const void *, void *, int,
						 void *) = find_in_library("zookeeper_init2");
	FILE	   *file = open_file("zookeeper_init2", "a");

	if (file != NULL)
	{
		fprintf(file, "%d\n", (int) getpid());
		fclose(file);
	}
	return real(servers, watcher, timeout_ms, id, context, flags, log);
}
