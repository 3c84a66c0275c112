/*-------------------------------------------------------------------------
 *
 * act.h
 *		The end of a deadlock: one multi of the victim's cluster.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/act.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ACT_H
#define ZKLOCK_ACT_H

#include "core/deadlock/detection.h"

extern void act_probe_node(const Probe *probe, char name[PROBE_NAME_SIZE]);
extern bool act_is_possible(Detection *state, const Probe *probe);
extern void act_send(Detection *state, Probe *probe);
extern void act_answered(Detection *state, const Probe *probe, uint32_t serial,
						 bool done);
extern void act_done(Detection *state, Probe *probe, int64_t zxid);

#endif							/* ZKLOCK_ACT_H */
