/*-------------------------------------------------------------------------
 *
 * probe.h
 *		What instances write to one another about a deadlock.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/probe.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PROBE_H
#define ZKLOCK_PROBE_H

#include "core/deadlock/waits.h"

/* The name of a probe, answer or verdict, with its terminating zero. */
#define PROBE_NAME_SIZE	48

#define PROBE_PREFIX	"probe-"

/*
 * A line of a probe: two numbers, a cluster_name, two vertices, a wait,
 * spaces.
 */
#define PROBE_LINE_SIZE	(2 * 12 + 3 * WORD_VALUE_SIZE + \
						 6 * NOTE_VERTEX_SIZE + NOTE_WAIT_SIZE + 8)

/* The longest probe of ours. */
#define PROBE_MAX_SIZE	(WAITS_MAX_MEMBERS * PROBE_LINE_SIZE)

typedef enum ProbeKind
{
	PROBE_QUESTION,
	PROBE_ANSWER,
	PROBE_VERDICT,
	PROBE_NOTHING				/* none of these names */
} ProbeKind;

/* A parsed name of a znode. */
typedef struct ProbeName
{
	ProbeKind	kind;
	int32_t		number;			/* of the probe that it is, or is about */
	uint64_t	confirmed;		/* ANSWER: a bit for each confirmed member; 0:
								 * the answer is no */
} ProbeName;

extern void probe_parse_name(const char *name, ProbeName *parsed);
extern void probe_answer_prefix(int32_t number, uint64_t confirmed,
								char name[PROBE_NAME_SIZE]);
extern void probe_verdict_name(int32_t number, char name[PROBE_NAME_SIZE]);
extern char *probe_write(const WaitDeadlock *deadlock);
extern bool probe_parse(const char *data, int len, WaitDeadlock *deadlock);

#endif							/* ZKLOCK_PROBE_H */
