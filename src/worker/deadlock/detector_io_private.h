/*-------------------------------------------------------------------------
 *
 * detector_io_private.h
 *		The detector's operations in ZooKeeper, and their answers.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/deadlock/detector_io_private.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DETECTOR_IO_PRIVATE_H
#define ZKLOCK_DETECTOR_IO_PRIVATE_H

#include "core/deadlock/detector.h"
#include "worker/zookeeper/session.h"

extern void detector_io_attach(SessionHandler handler);
extern void detector_io_forget(void);
extern bool detector_io_read_waits_dir(int number, char path[ZNODE_PATH_SIZE]);
extern void detector_io_forget_waits_dirs(void);
extern bool detector_io_submit(const DetectorOp *op);
extern bool detector_io_answer(const RequestAnswer *in, DetectorInput *input);

#endif							/* ZKLOCK_DETECTOR_IO_PRIVATE_H */
