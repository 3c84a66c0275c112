/*-------------------------------------------------------------------------
 *
 * reads.h
 *		What backends have the worker read in ZooKeeper.
 *
 * See the header of reads.c for the states of a box and the locking protocol.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/shared/reads.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_READS_H
#define ZKLOCK_READS_H

#include "core/lock/znode.h"
#include "shared/outcome.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"

/* The most requests that can be under way at a time. */
#define ZK_READ_BOXES		16

/* The most bytes of the paths of a request, each with its terminator. */
#define ZK_READ_PATHS_SIZE	(16 * 1024)

/* The longest answer; one that would be longer is an error. */
#define ZK_READ_MAX_BYTES	(8 * 1024 * 1024)

/* How many bytes of a znode's data are wanted but for texts of waits. */
#define ZK_READ_MAX_DATA	1024

typedef enum ZkReadKind
{
	ZK_READ_CHILDREN,
	ZK_READ_DATA,				/* and the stat */
	ZK_WRITE_REVOCATION			/* write Curator's request to release a lock */
} ZkReadKind;

typedef struct ZkReadRequest
{
	ZkReadKind	kind;
	int			max_data;		/* of DATA: how many bytes of them are wanted */
	char		root[ZNODE_MAX_ROOT + 1];	/* "": the worker's own */
	int			npaths;
	int			size;			/* of "paths" */
	char		paths[ZK_READ_PATHS_SIZE];	/* below the root, each with its
											 * terminator; "": the root */
} ZkReadRequest;

/*
 * A znode of the request.  In an answer's segment they are in the order of the
 * paths, each with its bytes and padded to the maximal alignment.
 */
typedef struct ZkReadNode
{
	ZkRefusal	refusal;		/* ACCESS, OTHER; NONE: not refused.  The stat
								 * may be known if its data are refused */
	bool		gone;			/* there is no such znode */
	bool		persistent;		/* it is not ephemeral */
	bool		ours;			/* of a session of this instance */
	int64		session_id;		/* 0: not known, or persistent */
	int64		ctime;			/* ms since 1970; 0: not known */
	int			size;			/* of its data */
	int			data_len;		/* of what follows; -1: none, or not read */
	int			nchildren;		/* names that follow, with terminators */
	int			nbytes;			/* of data or names */
	char		bytes[FLEXIBLE_ARRAY_MEMBER];
} ZkReadNode;

#define ZkReadNodeSize(nbytes) MAXALIGN(offsetof(ZkReadNode, bytes) + (nbytes))

typedef enum ZkReadOutcome
{
	ZK_READ_DONE,
	ZK_READ_TOO_LARGE,			/* ZK_READ_MAX_BYTES would not do */
	ZK_READ_NO_MEMORY			/* for the segment */
} ZkReadOutcome;

typedef struct ZkReadAnswer
{
	ZkReadOutcome outcome;
	dsm_handle	segment;		/* DONE: of a ZkReadNode for each path */
} ZkReadAnswer;

typedef struct ZkReadBox ZkReadBox;

/* module load */
extern void reads_request_shmem(void);
extern void reads_startup_shmem(void);

/* backends */
extern ZkReadBox *reads_ask(const ZkReadRequest *request);
extern const ZkReadAnswer *reads_answer(ZkReadBox *box);
extern void reads_end(ZkReadBox *box);
extern ConditionVariable *reads_cv(ZkReadBox *box);

/* the worker */
extern void reads_attach_worker(void);
extern int	reads_take(uint32 *serial, ZkReadRequest *request);
extern bool reads_is_open(int box, uint32 serial);
extern void reads_set_answer(int box, uint32 serial, ZkReadOutcome outcome,
							 ZkReadNode *const *nodes, int n);

#endif							/* ZKLOCK_READS_H */
