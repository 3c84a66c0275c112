/*-------------------------------------------------------------------------
 *
 * publish.h
 *		The edges of a detector in its notes: written, and taken back.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/publish.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_PUBLISH_H
#define ZKLOCK_PUBLISH_H

#include "core/deadlock/detection.h"

extern void publish_edges(Detection *state, const WaitEdge *list, int n);
extern void publish_answered(Detection *state, const Pending *pending,
							 const DetectorInput *in);
extern void publish_all(Detection *state);
extern void publish_expired(Detection *state);

#endif							/* ZKLOCK_PUBLISH_H */
