/*-------------------------------------------------------------------------
 *
 * session.h
 *		The instance's ZooKeeper session.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/zookeeper/session.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef ZKLOCK_SESSION_H
#define ZKLOCK_SESSION_H

#include "core/lock/znode.h"
#include "core/request.h"
#include "shared/session_info.h"

typedef enum SessionEventKind
{
	SESSION_NOTHING,			/* of the event that is no event */
	SESSION_FAILED,				/* could not begin to connect: "error" is an
								 * errno */
	SESSION_UP,					/* connected; see status_set_up() */
	SESSION_SUSPENDED,			/* connection lost; the session may be alive */
	SESSION_EXPIRED,			/* over; operations that were out are
								 * forgotten */
	SESSION_AUTH_FAILED,		/* the server refused our credentials */
	SESSION_UNFIT,				/* it lacks requests that zklock needs: see
								 * "missing" */
	SESSION_MESSAGE				/* a line of the library's log */
} SessionEventKind;

typedef struct SessionEvent
{
	SessionEventKind kind;
	int			error;
	uint32		missing;		/* 1 << ZkFeature, of each */
	const char *message;
} SessionEvent;

extern int	session_init(void);
extern void session_open(const SessionKey *other);
extern bool session_is_open(void);
extern bool session_is_opening(void);
extern bool session_is_closed(void);
extern bool session_is_synced(void);
extern bool session_is_stuck(void);
extern void session_close(void);
extern void session_await_closed(int64 until_ms);
extern uint32 session_add_owner(RequestHandler handler, void *data);
extern void session_remove_owner(uint32 owner);
extern void session_submit(uint32_t owner,
						   const Request *request);
extern void session_let_first(uint32 owner);
extern void session_make_uuid(uint8 uuid[ZNODE_UUID_BYTES]);
extern const char *host_name(void);
extern void session_directory_deleted(const char *directory);
extern bool session_ready(void);
extern int64_t session_flush(void);
extern int64 session_keep_lease(bool needed);
extern void session_ignore_changes(uint32 owner);
extern bool session_take_changes(void);
extern void session_reset_wake(void);
extern bool session_next_event(SessionEvent *event);
extern const char *session_error_text(int error);
extern bool session_error_is_access(int error);
extern bool session_error_is_no_node(int error);
extern bool session_error_is_untried(int error);

/* What is published of it. */
extern void status_attach(void);
extern void status_detach(void);
extern ZkSessionInfo *status(void);
extern bool status_is_alive(void);
extern bool status_is_connected(void);
extern void status_publish(ZkSessionState state);
extern bool status_set_up(void);
extern void status_set_closing(void);
extern bool status_set_error(const char *error);
extern const char *status_chroot(void);
extern bool status_chroot_changed(void);
extern bool status_is_ending(void);

/* The credentials that it presents. */
extern void auths_collect(bool needed);
extern bool auths_are_several(void);
extern bool auths_are_old(void);
extern void auths_forget_refused(void);

#endif							/* ZKLOCK_SESSION_H */
