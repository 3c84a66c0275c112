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

ssize_t
read(int fd, void *data, size_t size)
{
	static ssize_t (*real) (int, void *, size_t);
	FILE	   *file;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "read");
	if (fd == wake_fd && fd >= 0 && (file = open_file("read", "r")) != NULL)
	{
		int			ms = 0;

		if (fscanf(file, "%d", &ms) != 1)
			ms = 0;
		fclose(file);
		wait_ms(ms);
	}
	return real(fd, data, size);
}

int
getaddrinfo(const char *node, const char *service,
			const struct addrinfo *hints, struct addrinfo **result)
{
	int			(*real) (const char *, const char *, const struct addrinfo *,
						 struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
	FILE	   *file;

	while (wake_fd >= 0 && (file = open_file("getaddrinfo", "r")) != NULL)
	{
		int			rc = 0;

		if (fscanf(file, "%d", &rc) != 1)
			rc = 0;
		fclose(file);
		if (rc != 0)
			return rc;
		if ((file = open_file("resolving", "w")) != NULL)
		{
			fprintf(file, "%d\n", (int) getpid());
			fclose(file);
		}
		wait_ms(20);
	}
	return real(node, service, hints, result);
}
