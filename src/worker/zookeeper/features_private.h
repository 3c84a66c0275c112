/*-------------------------------------------------------------------------
 *
 * features_private.h
 *		Which of the requests that zklock needs a server does not have.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/features_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_FEATURES_PRIVATE_H
#define ZKLOCK_FEATURES_PRIVATE_H

#include "worker/zookeeper/watches_private.h"

typedef enum FeatureProbe
{
	PROBE_CREATE2,
	PROBE_CONTAINER,
	PROBE_WATCH,				/* sets the watch for the next one */
	PROBE_REMOVE_WATCHES,
	PROBE_NONE					/* all have been answered */
} FeatureProbe;

/* What is known of the servers of one session. */
typedef struct Features
{
	FeatureProbe next;			/* the one to be sent, or that is out */
	bool		out;
	int			losses;			/* connections lost in a row while it was
								 * out */
	uint32		missing;		/* 1 << ZkFeature, of those not found */
} Features;

extern void features_init(Features *features);
extern void features_skip(Features *features);
extern bool features_probe(Features *features, Client *client,
						   Watches *watches);
extern bool features_answer(Features *features, int code, Watches *watches);
extern void features_disconnect(Features *features);

#endif							/* ZKLOCK_FEATURES_PRIVATE_H */
