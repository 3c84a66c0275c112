/*-------------------------------------------------------------------------
 *
 * detector.h
 *		Deadlocks between instances: the part of one instance.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/detector.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_DETECTOR_H
#define ZKLOCK_DETECTOR_H

#include "core/deadlock/detection.h"

/* All but "counts" is the detector's own. */
typedef struct Detector
{
	struct Detection *state;	/* malloc'd */
	DetectionCounts counts;
} Detector;

extern void detector_init(Detector *detector, int64_t deadlock_timeout,
						  bool resumed);
extern void detector_free(Detector *detector);
extern void detector_set_timeout(Detector *detector,
								 int64_t deadlock_timeout);
extern void detector_step(Detector *detector, const DetectorInput *in,
						  DetectorOutput *out);
extern bool detector_knows(const Detector *detector, const char *path);
extern bool detector_is_idle(const Detector *detector);
extern const char *detector_named(const Detector *detector, int number,
								  const char **dir);

#endif							/* ZKLOCK_DETECTOR_H */
