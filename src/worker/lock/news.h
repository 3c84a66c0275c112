/*-------------------------------------------------------------------------
 *
 * news.h
 *		News of contenders for their slots.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/lock/news.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_NEWS_H
#define ZKLOCK_NEWS_H

#include "core/lock/znode.h"
#include "worker/lock/contender.h"

/* How often to look after all the contenders that own their locks. */
#define SWEEP_INTERVAL_MS	1000

/* A lock directory, or one of the two parts of a semaphore. */
#define PLACE_PATH_SIZE		(ZNODE_PATH_SIZE + 8)

/* What a step of a contender came out with, apart from operations. */
typedef struct SlotNews
{
	unsigned	told;			/* bits RECIPE_TOLD_* */
	int			error;			/* FAILED, LEFT: ZooKeeper's code, or 0 */
	int			permits_found;	/* FAILED: see SemaphoreOutput */
	int64		token;			/* TOKEN */
	const char *stranger;		/* STRANGER, PERSISTENT: the child's name */
	char		stranger_path[PLACE_PATH_SIZE]; /* and its directory */
	const char *left;			/* LEFT: the name of our node, or its prefix */
	char		left_path[PLACE_PATH_SIZE];
} SlotNews;

extern void news_tell(Contender *contender, const SlotNews *news);
extern void news_note_owner(Contender *contender);

#endif							/* ZKLOCK_NEWS_H */
