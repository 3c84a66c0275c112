/*-------------------------------------------------------------------------
 *
 * fleet.c
 *		This instance's membership in the fleet.
 *
 * A fleet is all instances that use the same ensemble and have the same
 * zklock.root in their configuration.  The worker of each instance creates an
 * ephemeral znode ("our znode") below <root>/%clusters, which is persistent
 * and identifies the fleet by its creation; core/lock/note.c has their form.
 *
 * With zklock.acl = creator, other clients may read %clusters, but only
 * instances with the same credentials may create znodes there: a session that
 * creates many long names can destroy the ensemble (doc/security.md).  A
 * worker that finds an ACL by which others can do more than read sets it.
 * After a change of zklock.auth, a worker presents both credentials, and sets
 * the ACLs of %clusters and our znode for both; the next worker sets them for
 * the new ones (session.c).  The same is done with the root if its ACL has one
 * owner, as when an instance creates the root; otherwise the new credentials
 * could create no lock.  Without a change, these ACLs are left alone.
 *
 * Our znode is created when the session has begun.  A worker that resumes the
 * session creates no second one, since the name is in shared memory before the
 * first create.  Our znode is written when its data change, and moves with
 * zklock.root.  Nothing is watched, and no lock waits for these requests.  A
 * refusal is logged, and the request is sent again after a reload or in the
 * next session.  The requests go in two flights, the reads and then the writes
 * that the reads call for.  If an answer is lost, both are sent again.
 *
 * If ZooKeeper is restored from an older copy in which our session is alive,
 * contenders that we have deleted since the copy exist again, and those that
 * we have created since are missing.  The stat of each write of our znode
 * reveals this (member_mark()).  If the answer to a write is lost, our znode
 * is read before it is written again.  It is written after each connect, which
 * checks the previous writes, and after any change of ours, but at most
 * MARKS_PER_TIMEOUT times in a session timeout.  A restore is not noticed if
 * it loses only changes since the latest write.  After a restore, or when our
 * znode was missing and is created again, the worker ends the session.  The
 * stat is forgotten when the session ends and when zklock.root changes.
 *
 * contender.c does not count the path of our znode, but has room for it.
 *
 * Copyright (c) 2026, zklock developers
 *
 * IDENTIFICATION
 *		src/worker/fleet.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "core/lock/note.h"
#include "core/mutation.h"
#include "postmaster/postmaster.h"
#include "shared/claims.h"
#include "shared/clock.h"
#include "shared/session_info.h"
#include "shared/settings.h"
#include "utils/guc.h"
#include "worker/fleet.h"
#include "worker/wake.h"
#include "worker/zookeeper/security.h"
#include "worker/zookeeper/session.h"
#include "worker/zookeeper/session_file.h"

/* The most writes of our znode in a session timeout. */
#define MARKS_PER_TIMEOUT	10

/* The requests, in their order; each is sent only if it is needed. */
typedef enum FleetStep
{
	STEP_LOOK,					/* stat our znode, if the answer to a write
								 * of it is lost */
	STEP_LEAVE,					/* delete our znode below another root */
	STEP_MAKE,					/* create %clusters, with its parents */
	STEP_ASK,					/* get its ACL, if zklock.acl is creator */
	STEP_ASK_ROOT,				/* get the root's ACL, if credentials change */
	STEP_READ,					/* get %clusters, which identifies the fleet */
	STEP_CLOSE,					/* set the ACL of %clusters, if it is open or
								 * our credentials change */
	STEP_CLOSE_ROOT,			/* set the root's ACL */
	STEP_ENTER,					/* create our znode */
	STEP_OWN,					/* set its ACL, since it may exist already */
	STEP_WRITE					/* set its data */
} FleetStep;

static struct
{
	int			out;			/* requests without an answer yet */
	bool		dirty;			/* our znode may be missing or outdated */
	bool		joined;			/* our znode exists, with "data" */
	bool		standby;		/* "data" say that we are a standby */
	bool		unsure;			/* the answer to a write of it is lost */
	bool		unmarked;		/* our znode is to be written unchanged, */
	int64		mark_at_ms;		/* but not before this zk_now_ms() */
	bool		made;			/* STEP_MAKE was tried */
	bool		close;			/* STEP_CLOSE is needed */
	bool		close_root;		/* STEP_CLOSE_ROOT is needed */
	int			error;			/* of the latest create, or 0 */
	int			logged_error;	/* the last refusal that was logged, or 0 */
	bool		open_logged;	/* a refusal to set the ACL of %clusters was
								 * logged */
	uint32		owner;			/* of our requests */
	void		(*restored) (void); /* see fleet_attach() */
	char		data[MEMBER_SIZE];
	ZkFleetInfo info;			/* as published */
}			fleet;

/* Note that the next worker will not present the former credentials. */
void
fleet_drop_auths(void)
{
	fleet.info.dropped = true;
	session_write_fleet(&fleet.info);
}

/* Compose the data of our znode. */
static void
compose(char data[MEMBER_SIZE])
{
	Member		member;
	const char *server = GetConfigOption("server_version", false, false);

	memset(&member, 0, sizeof(member));
	member.words = MEMBER_HOST | MEMBER_PORT | MEMBER_CLUSTER | MEMBER_SYSTEM |
		MEMBER_VERSION | MEMBER_SERVER | MEMBER_FORMAT | MEMBER_TIMEOUT |
		MEMBER_STANDBY | MEMBER_ID;
	word_set_text(member.host, host_name());
	member.port = PostPortNumber;
	word_set_text(member.cluster_name, cluster_name);
	member.system = GetSystemIdentifier();
	member.place = session_file_place();
	if (member.place != 0)
		member.words |= MEMBER_PLACE;
	word_set_text(member.version, ZKLOCK_VERSION);
	word_set_text(member.server, server);
	member.server[strcspn(member.server, " ")] = '\0';
	word_set_text(member.format, zklock_node_format == ZK_FORMAT_READWRITE ?
				  "readwrite" : "mutex");
	member.timeout = status()->timeout;
	member.standby = fleet.standby = RecoveryInProgress();
	word_set_text(member.id, claims_instance());
	(void) member_write(&member, data);
}

/*
 * fleet_check
 *		Check that our znode exists and is up to date, after a connect or a
 *		change of settings.
 */
void
fleet_check(void)
{
	char		data[MEMBER_SIZE];

	fleet.unmarked = true;
	compose(data);
	if (!fleet.joined || strcmp(data, fleet.data) != 0 ||
		strcmp(fleet.info.root, zklock_root) != 0)
		fleet.dirty = true;
}

/*
 * fleet_end_session
 *		Forget our znode and all requests, since the session has ended.  The
 *		next session may be in another ensemble.
 */
void
fleet_end_session(void)
{
	fleet.out = 0;
	fleet.dirty = true;
	fleet.joined = fleet.unsure = false;
	memset(&fleet.info.mark, 0, sizeof(fleet.info.mark));
	fleet.info.node[0] = fleet.info.id[0] = fleet.info.root[0] = '\0';
	session_write_fleet(&fleet.info);
}

/* Send a step's request: for the root, for %clusters, or for our znode. */
static void
request(FleetStep step, RequestKind kind)
{
	bool		is_root = step == STEP_ASK_ROOT || step == STEP_CLOSE_ROOT;
	bool		is_ours = step <= STEP_LEAVE || step >= STEP_ENTER;
	char		path[ZNODE_PATH_SIZE];
	Request		op = {.kind = kind,.serial = step,.path = path};

	snprintf(path, sizeof(path), "%s%s", fleet.info.root,
			 is_root ? "" : "/" MEMBER_DIR);
	op.node = is_ours ? fleet.info.node : NULL;
	op.persistent = step == STEP_MAKE || step == STEP_CLOSE;
	if (step == STEP_ENTER || step == STEP_WRITE)
		op.data = fleet.data;
	op.exact = step == STEP_ENTER;
	op.group = step == STEP_ENTER;	/* in no batch */
	fleet.out++;
	session_submit(fleet.owner, &op);
}

/* Must ACLs be set because our credentials change? */
static bool
credentials_change(void)
{
	return auths_are_several() || fleet.info.dropped;
}

/* Log a refusal, which affects locks only if the chroot is missing. */
static void
give_up(int error, bool no_chroot)
{
	if (error == fleet.logged_error)
		return;
	fleet.logged_error = error;
	ereport(LOG,
			(errmsg("could not publish this server in \"%s/%s\": %s",
					fleet.info.root, MEMBER_DIR, session_error_text(error)),
			 no_chroot ?
			 errdetail("The chroot of \"zklock.servers\" does not exist in ZooKeeper.") :
			 session_error_is_access(error) ?
			 errdetail("Servers with other credentials have made it.  This server cannot share locks with them, and zk_fleet() does not show it.") :
			 errdetail("zk_fleet() does not show this server; locks do not depend on that.")));
}

/* Send the reads; if "make", create %clusters first. */
static void
read_fleet(bool make)
{
	fleet.made = make;
	fleet.close = fleet.close_root = false;
	if (make)
		request(STEP_MAKE, REQUEST_MKDIRS);
	if (zklock_acl == ZK_ACL_CREATOR)
	{
		request(STEP_ASK, REQUEST_GET_ACL);
		if (credentials_change())
			request(STEP_ASK_ROOT, REQUEST_GET_ACL);
	}
	request(STEP_READ, REQUEST_GET);
}

/* Set the data of our znode; the write follows all acknowledged changes. */
static void
write_member(void)
{
	fleet.unmarked = false;
	fleet.mark_at_ms = zk_now_ms() + status()->timeout / MARKS_PER_TIMEOUT;
	request(STEP_WRITE, REQUEST_SET);
}

/* After the reads: set the ACLs, and create our znode if it is missing. */
static void
enter(void)
{
	if (fleet.close)
		request(STEP_CLOSE, REQUEST_SET_ACL);
	if (fleet.close_root)
	{
		fleet.info.root_set = true;
		session_write_fleet(&fleet.info);
		request(STEP_CLOSE_ROOT, REQUEST_SET_ACL);
	}
	request(STEP_ENTER, REQUEST_CREATE);
	if (zklock_acl == ZK_ACL_CREATOR)
		request(STEP_OWN, REQUEST_SET_ACL);
	write_member();
}

/* Handle the answer to STEP_READ. */
static void
on_read(const RequestAnswer *in)
{
	fleet.info.id[0] = '\0';
	if (in->result == REQUEST_OK)
		member_fleet(in->czxid, in->ctime, fleet.info.id);
	session_write_fleet(&fleet.info);
	if (fleet.dirty)
		return;					/* another answer was lost */
	if (in->result != REQUEST_NO_NODE)
		enter();
	else if (!fleet.made)
		read_fleet(true);
	else
		give_up(fleet.error ? fleet.error : in->error,
				session_error_is_no_node(fleet.error) &&
				*status_chroot() != '\0');
}

/* Handle the answer to STEP_CLOSE. */
static void
on_closed(const RequestAnswer *in)
{
	bool		refused = in->result == REQUEST_REFUSED;

	if (refused && !fleet.open_logged)
		ereport(LOG,
				(errmsg("could not set the ACL of \"%s/%s\" in ZooKeeper: %s",
						fleet.info.root, MEMBER_DIR,
						session_error_text(in->error)),
				 errdetail("It belongs to other credentials than those of this server.")));
	fleet.open_logged = refused;
}

/* Can this stat of our znode follow the previous write? */
static bool
is_later(const RequestAnswer *in, bool written)
{
	bool		later = member_mark(&fleet.info.mark, in->mzxid, in->czxid,
									in->version, written);

	return later || ZK_MUTATED(ZK_RESTORE_UNNOTICED);
}

/* Handle the answer to STEP_WRITE, which follows all changes of ACLs. */
static void
on_written(const RequestAnswer *in)
{
	bool		later = in->result != REQUEST_OK || is_later(in, true);

	if (fleet.info.dropped && !fleet.dirty)
		fleet.info.dropped = fleet.info.root_set = false;
	session_write_fleet(&fleet.info);
	if (in->result == REQUEST_OK)
	{
		fleet.joined = true;
		fleet.logged_error = 0;
		if (!later)
			fleet.restored();
	}
	else if (in->result == REQUEST_REFUSED)
		give_up(in->error, false);
	else if (fleet.joined || session_error_is_no_node(fleet.error))
		fleet.dirty = fleet.unmarked = true;
	else
		give_up(fleet.error, false);
}

static void
on_answer(void *data pg_attribute_unused(), const RequestAnswer *in)
{
	bool		later;

	fleet.out--;
	if (in->result == REQUEST_UNKNOWN)
	{
		/* repeat the write if joined, all requests otherwise */
		*(fleet.joined ? &fleet.unmarked : &fleet.dirty) = true;
		fleet.unsure = fleet.info.mark.czxid != 0;
		return;
	}
	switch ((FleetStep) in->serial)
	{
		case STEP_LOOK:
			fleet.unsure = false;
			later = in->result != REQUEST_OK || is_later(in, false);
			session_write_fleet(&fleet.info);
			if (!later)
				fleet.restored();
			break;
		case STEP_LEAVE:
			fleet.info.root_set = false;
			memset(&fleet.info.mark, 0, sizeof(fleet.info.mark));
			fleet.info.root[0] = '\0';
			session_write_fleet(&fleet.info);
			fleet.dirty = true;
			break;
		case STEP_MAKE:
		case STEP_ENTER:
			fleet.error = in->result == REQUEST_OK ? 0 : in->error;
			break;
		case STEP_ASK:
			fleet.close = in->acl_open || credentials_change();
			break;
		case STEP_ASK_ROOT:

			/* an ACL of several owners is an administrator's, or our own */
			fleet.close_root = !in->acl_open && in->acl_count != 0 &&
				(fleet.info.root_set ||
				 (in->acl_count == 1 && auths_are_several()));
			break;
		case STEP_READ:
			on_read(in);
			break;
		case STEP_CLOSE:
			on_closed(in);
			break;
		case STEP_CLOSE_ROOT:
		case STEP_OWN:
			break;
		case STEP_WRITE:
			on_written(in);
			break;
	}
}

/*
 * fleet_attach
 *		Begin with what the previous worker published.
 *
 * "restored" is called when ZooKeeper proves to have been restored from an
 * older copy; it must end the session.
 */
void
fleet_attach(void (*restored) (void))
{
	fleet.restored = restored;
	fleet.owner = session_add_owner(on_answer, NULL);
	session_ignore_changes(fleet.owner);
	session_read_fleet(&fleet.info);
	fleet.dirty = true;
	fleet.unsure = fleet.info.mark.czxid != 0;
}

/* If our znode says that we are a standby, check for a promotion. */
static void
check_promotion(void)
{
	if (fleet.standby && !RecoveryInProgress())
		fleet_check();
}

/* Must joining wait? */
static bool
is_barred(void)
{
	ZkWrongSetting wrong;

	return status_is_ending() || zk_wrong_setting(true, &wrong);
}

/*
 * fleet_is_settled
 *		Does our znode exist, unless ZooKeeper refuses it or joining must
 *		wait?
 */
bool
fleet_is_settled(void)
{
	check_promotion();
	return fleet.out > 0 ? fleet.joined : !fleet.dirty || is_barred();
}

/* Send the requests that are due, if there is a connection. */
void
fleet_run(void)
{
	uint8		uuid[ZNODE_UUID_BYTES];

	wake_set(WAKE_FLEET, 0);
	if (!status_is_connected() || fleet.out > 0)
		return;
	check_promotion();
	fleet.unmarked |= session_take_changes();
	fleet.unmarked |= member_is_missed();
	if ((!fleet.dirty && !(fleet.unmarked && fleet.joined)) || is_barred())
		return;
	if (fleet.unsure)
	{
		request(STEP_LOOK, REQUEST_STAT);
		return;
	}
	if (!fleet.dirty)
	{
		if (zk_now_ms() >= fleet.mark_at_ms)
			write_member();
		else
			wake_set(WAKE_FLEET, fleet.mark_at_ms);
		return;
	}
	fleet.dirty = fleet.joined = false;
	compose(fleet.data);
	if (fleet.info.node[0] == '\0')
	{
		session_make_uuid(uuid);
		member_node(uuid, fleet.info.node);
	}
	if (fleet.info.root[0] != '\0' &&
		strcmp(fleet.info.root, zklock_root) != 0)
	{
		fleet.info.id[0] = '\0';
		session_write_fleet(&fleet.info);
		request(STEP_LEAVE, REQUEST_DELETE);
		return;
	}
	strlcpy(fleet.info.root, zklock_root, sizeof(fleet.info.root));
	session_write_fleet(&fleet.info);
	read_fleet(false);
}
