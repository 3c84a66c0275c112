/*
 * rival.h: requests in, samples out, for the rivals in C.
 *
 * bench/README.md tells what the lines mean.
 */
#ifndef RIVAL_H
#define RIVAL_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct Request
{
	char		kind[32];
	char		prefix[32];
	int			clients;
	int			locks;
	int			ms;
	int			warmup;
	int			pause;			/* us */
	int			instances;
	int			count;
	int			split;
	int			instance;		/* the first one */
	int			flights;
	int			home;			/* percent of a client's cycles that are with a
								 * lock of its instance, by Zipf's law; 0: the
								 * client goes round its share of the locks */
	int64_t		begin;			/* of what is measured */
	int64_t		end;
} Request;

typedef struct Sample
{
	int			client;
	int64_t		asked;
	int64_t		acquired;
	int64_t		released;
} Sample;

typedef struct Samples
{
	Sample	   *all;
	size_t		used;
	size_t		size;
} Samples;

static inline void
die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

/* Microseconds of a clock that only goes forward. */
static inline int64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static inline void
keep_sample(Samples *s, int client, int64_t asked, int64_t acquired, int64_t released)
{
	if (s->used == s->size)
	{
		s->size = s->size ? 2 * s->size : 1024;
		s->all = realloc(s->all, s->size * sizeof(Sample));
		if (s->all == NULL)
			die("samples", "out of memory");
	}
	s->all[s->used++] = (Sample) {client, asked, acquired, released};
}

/* A cycle counts if it ended in the time that is measured. */
static inline void
keep_cycle(Samples *s, const Request *r, int client, int64_t asked,
		   int64_t acquired, int64_t released)
{
	if (released >= r->begin && released < r->end)
		keep_sample(s, client, asked, acquired, released);
}

static inline void
print_samples(Samples *s)
{
	for (size_t i = 0; i < s->used; i++)
		printf("%d %lld %lld %lld\n", s->all[i].client, (long long) s->all[i].asked,
			   (long long) s->all[i].acquired, (long long) s->all[i].released);
	free(s->all);
	memset(s, 0, sizeof(*s));
}

/* The next request, or 0 at the end of input. */
static inline int
next_request(Request *r)
{
	char		line[256];
	struct
	{
		const char *key;
		int		   *value;
	}			numbers[] = {
		{"clients", &r->clients}, {"locks", &r->locks}, {"ms", &r->ms},
		{"warmup", &r->warmup}, {"pause", &r->pause},
		{"instances", &r->instances}, {"count", &r->count},
		{"split", &r->split}, {"instance", &r->instance},
		{"flights", &r->flights}, {"home", &r->home}
	};

	memset(r, 0, sizeof(*r));
	r->clients = r->locks = r->instances = r->flights = 1;
	if (fgets(line, sizeof(line), stdin) == NULL)
		return 0;
	snprintf(r->kind, sizeof(r->kind), "%s", strtok(line, " \n"));
	for (char *word; (word = strtok(NULL, " \n")) != NULL;)
	{
		char	   *value = strchr(word, '=');

		if (value == NULL)
			die("not key=value", word);
		*value++ = '\0';
		if (strcmp(word, "prefix") == 0)
			snprintf(r->prefix, sizeof(r->prefix), "%s", value);
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
			if (strcmp(word, numbers[i].key) == 0)
				*numbers[i].value = atoi(value);
	}
	return 1;
}

/* To be called when all are connected. */
static inline void
start_clock(Request *r)
{
	r->begin = now_us() + r->warmup * INT64_C(1000);
	r->end = r->begin + r->ms * INT64_C(1000);
}

static inline void
end_request(void)
{
	puts("done");
	fflush(stdout);
}

/*
 * Each client goes round its share of the locks; where there are fewer locks
 * than clients, several have the same one.
 */
static inline int
lock_number(const Request *r, int client, int cycle)
{
	int			share = r->locks / r->clients;

	if (share < 1)
		return client % r->locks;
	return client + r->clients * (cycle % share);
}

#endif
