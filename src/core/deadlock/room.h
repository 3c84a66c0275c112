/*-------------------------------------------------------------------------
 *
 * room.h
 *		The znodes %waits: made, listed, watched, and cleaned up.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/deadlock/room.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_ROOM_H
#define ZKLOCK_ROOM_H

#include "core/deadlock/detection.h"

extern void room_path_in(const char *room, const char *name,
						 char path[NOTE_VERTEX_SIZE]);
extern Room *room_find(Detection *state, const char *path);
extern void room_sweep(Detection *state, const char *path);
extern void room_sweep_anew(Detection *state, const char *path);
extern void room_throw_away(Detection *state, const char *room,
							const char *name);
extern void room_made(Detection *state, const Pending *pending,
					  const DetectorInput *in);
extern void room_deleted(Detection *state, const Pending *pending,
						 const DetectorInput *in);
extern void room_changed(Detection *state, uint32_t serial);
extern void room_resumed(Detection *state);
extern void room_want(Detection *state, const char *const *rooms, int nrooms);
extern void room_listed(Detection *state, Room *room, const DetectorInput *in);
extern void room_forget(Detection *state);
extern void room_watch_needed(Detection *state);
extern void room_clean_up(Detection *state);

#endif							/* ZKLOCK_ROOM_H */
