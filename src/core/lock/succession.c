/*-------------------------------------------------------------------------
 *
 * succession.c
 *		Which sequence number owns a lock with nothing read.
 *
 * A Succession is what a session remembers of one lock directory: which of its
 * own exclusive owners left it last, and whether the directory is still the
 * same one.  Then the next number owns the lock as soon as a contender of ours
 * gets it; src/ownership.md has the proof.
 *
 * A watch of the directory, set by a get, tells whether it is the same: it
 * fires when the directory is deleted, but not for its children.  The get must
 * be sent before the delete of our owner's node, which proves that the node
 * was in the watched directory.
 *
 *	state	event -> state
 *	UNKNOWN	leave, if the watch is ASKED or WATCHED -> LEAVING
 *	LEAVING	left, this number, deleted -> LEFT
 *			left, this number, anything else -> UNKNOWN
 *	LEFT	leave -> LEAVING, or UNKNOWN, if it is UNWATCHED
 *	any		fired, watched but not OK, disconnect, doubt -> UNKNOWN
 *
 *	watch	event -> watch
 *	any		watch -> ASKED
 *	ASKED	watched OK -> WATCHED; watched but not OK -> UNWATCHED
 *	any		fired, disconnect -> UNWATCHED
 *
 * Answers and events without the serial number of the latest get are ignored.
 * A get that is out at a disconnect counts no more: the library may send it on
 * the next connection, but directories.c forgets all gets with the connection,
 * and would ignore the event of that watch.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/core/lock/succession.c
 *
 *-------------------------------------------------------------------------
 */
#include "core/lock/succession.h"

#include <string.h>

#include "core/lock/znode.h"
#include "core/mutation.h"

/* Nothing is known of the directory. */
void
succession_init(Succession *succession)
{
	memset(succession, 0, sizeof(*succession));
}

/* Is this the serial number of the latest get, and is that out or answered? */
static bool
is_latest(const Succession *succession, uint32_t serial)
{
	return succession->watch != SUCCESSION_UNWATCHED &&
		succession->serial == serial;
}

/* A get that watches the directory is sent. */
void
succession_watch(Succession *succession, uint32_t serial)
{
	succession->watch = SUCCESSION_ASKED;
	succession->serial = serial;
}

/* The get is answered; "ok": the directory exists and is watched. */
void
succession_watched(Succession *succession, uint32_t serial, bool ok)
{
	if (!is_latest(succession, serial))
		return;
	if (ok)
		succession->watch = SUCCESSION_WATCHED;
	else
		succession_fired(succession, serial);
}

/* The watch has fired, or was removed: the directory may have been deleted. */
void
succession_fired(Succession *succession, uint32_t serial)
{
	if (!is_latest(succession, serial) || ZK_MUTATED(ZK_COLLECTED_OWNS))
		return;
	succession->watch = SUCCESSION_UNWATCHED;
	succession->state = SUCCESSION_UNKNOWN;
}

/* The connection, and with it the watch, is lost. */
void
succession_disconnect(Succession *succession)
{
	if (ZK_MUTATED(ZK_RECONNECTED_OWNS))
		return;
	if (succession->watch == SUCCESSION_WATCHED ||
		!ZK_MUTATED(ZK_WATCH_CROSSES_CONNECTIONS))
		succession->watch = SUCCESSION_UNWATCHED;
	succession->state = SUCCESSION_UNKNOWN;
}

/* The next contender must read, whatever is watched. */
void
succession_doubt(Succession *succession)
{
	succession->state = SUCCESSION_UNKNOWN;
}

/* The delete of our exclusive owner's node is sent. */
void
succession_leave(Succession *succession, int32_t number)
{
	succession->state = succession->watch == SUCCESSION_UNWATCHED ?
		SUCCESSION_UNKNOWN : SUCCESSION_LEAVING;
	succession->number = number;
}

/* The delete is answered; "deleted": it has deleted that node. */
void
succession_left(Succession *succession, int32_t number, bool deleted)
{
	if (succession->state == SUCCESSION_LEAVING &&
		succession->number == number)
		succession->state = deleted ? SUCCESSION_LEFT : SUCCESSION_UNKNOWN;
}

/*
 * succession_next
 *		The number that owns the lock with nothing read; 0: only 0 does.
 *
 * To be called when the answer to the create is handled, in the order of
 * answers and events.
 */
int32_t
succession_next(const Succession *succession)
{
	if (succession->state != SUCCESSION_LEFT ||
		succession->watch != SUCCESSION_WATCHED ||
		znode_is_late(succession->number + 1))
		return 0;
	return succession->number + 1;
}
