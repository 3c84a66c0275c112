/*-------------------------------------------------------------------------
 *
 * fleet.c
 *		This instance's membership in the fleet.
 *
 * The fleet is the instances of one ensemble and root, the worker's own
 * zklock.root.  Each has an ephemeral znode, created in its session, below
 * <root>/%clusters, which is persistent: its creation is the fleet's identity.
 * core/member.c has the form of both.
 *
 * With zklock.acl = creator others may read %clusters, but only instances with
 * its credentials may create znodes in it: a session with many long names in a
 * znode open to the world can destroy the ensemble (doc/security.md).  A
 * worker that finds an ACL by which others can do more than read sets it.
 * After a change of zklock.auth a worker sets it, and that of our znode, for
 * both credentials, which it presents, and the next worker for the new ones
 * (security.c).  The same is done with the root, where others could create no
 * lock, if its ACL is for one owner, as an instance creates it.  A worker
 * whose credentials have not changed leaves them alone.
 *
 * Our znode is created when the session has begun.  It stays when a new worker
 * resumes the session; since its name is in shared memory first, there is only
 * one.  It is written again when its data have changed, and moves with
 * zklock.root.  Nothing is watched, and no lock waits for any of this.  What
 * ZooKeeper refuses is logged, and retried after a reload or in the next
 * session.
 *
 *	IDLE		dirty, connected: we are below another root -> LEAVING: delete
 *				  that
 *				dirty, connected -> READING: get %clusters
 *				joined; connected again, or something has changed -> WRITING
 *	LEAVING		any answer -> IDLE, dirty
 *	READING		ok: has an identity; refused: no identity
 *				  -> ASKING: get its ACL; if all is to be open -> ENTERING
 *				no node -> MAKING: create it, with its parents
 *	MAKING		ok -> READING
 *	ASKING		open, or our credentials change -> CLOSING: set it
 *				any other answer -> ENTERING: create our znode
 *	CLOSING		refused: it belongs to others; log that
 *				our credentials change -> ROOT_ASKING: get the root's
 *				they do not -> ENTERING
 *	ROOT_ASKING	it is to change with them -> ROOT_CLOSING: set it
 *				any other answer -> ENTERING
 *	ROOT_CLOSING	any answer -> ENTERING
 *	ENTERING	ok -> IDLE, joined
 *				refused: it may be there -> OWNING: set its ACL; if that is to
 *				  be open, as OWNING's end
 *				no node: %clusters has gone -> MAKING
 *	OWNING		any answer -> WRITING: set its data
 *	WRITING		ok -> IDLE, joined
 *				joined, no node: it is made again, and the write of that ends
 *				  the session: see member_mark() -> IDLE, dirty
 *	any			unknown -> IDLE, dirty; of a write when joined, to be repeated
 *				refused, or no node, and not as above: log that -> IDLE
 *				the session ends -> IDLE, dirty
 *
 * ZooKeeper may be restored from an older copy in which our session is alive:
 * then it has what we have released since, and lacks what we have acquired.
 * The stat of each write of our znode shows that (member_mark()).  So it is
 * written after each connect, to check the previous writes, and after any
 * change of ours, at most MARKS_PER_TIMEOUT times in a session timeout; no
 * more than that can be missed.  If ZooKeeper was restored, the session is
 * ended.  The first write in a fleet with another identity proves nothing:
 * zklock.servers names another ensemble, or zklock.root has changed.
 *
 * The path of our znode does not count in contender.c; it is one, within the
 * room for what does not count.
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
#include "core/member.h"
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

/* How often to create what somebody else removes at once. */
#define MAX_MADE		3

/* The most writes of our znode in a session timeout. */
#define MARKS_PER_TIMEOUT	10

/* The znode of an operation. */
typedef enum FleetNode
{
	NODE_ROOT,
	NODE_DIR,					/* %clusters */
	NODE_OURS					/* our znode in it */
} FleetNode;

typedef enum FleetState
{
	FLEET_IDLE,
	FLEET_LEAVING,
	FLEET_READING,
	FLEET_MAKING,
	FLEET_ASKING,
	FLEET_CLOSING,
	FLEET_ROOT_ASKING,
	FLEET_ROOT_CLOSING,
	FLEET_ENTERING,
	FLEET_OWNING,
	FLEET_WRITING
} FleetState;

static struct
{
	FleetState	state;
	bool		dirty;			/* our znode may be missing or outdated */
	bool		joined;			/* it exists, with "data" */
	bool		standby;		/* "data" say so */
	bool		unmarked;		/* it is to be written as it is, */
	int64		mark_at_ms;		/* but not before this zk_now_ms() */
	int			made;			/* how often MAKING was tried */
	int			error;			/* of the create that was refused */
	int			logged_error;	/* the last refusal that was logged, or 0 */
	bool		open_logged;	/* it was logged that %clusters belongs to
								 * others */
	uint32		owner;			/* of our requests */
	void		(*restored) (void); /* see fleet_attach() */
	uint32		last_group;
	char		data[MEMBER_SIZE];
	ZkFleetInfo info;			/* as published */
}			fleet;

static void
publish_identity(const char *id)
{
	strlcpy(fleet.info.id, id, sizeof(fleet.info.id));
	session_write_fleet(&fleet.info);
}

static void
publish_root(const char *root)
{
	strlcpy(fleet.info.root, root, sizeof(fleet.info.root));
	session_write_fleet(&fleet.info);
}

/* The next worker no longer presents the former credentials. */
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
 *		The session is connected, or settings have changed: check that
 *		our znode exists and is up to date.
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
 *		The session is over, with our znode and all submitted requests; the
 *		next one may be in another ensemble.
 */
void
fleet_end_session(void)
{
	fleet.state = FLEET_IDLE;
	fleet.dirty = true;
	fleet.joined = false;
	memset(&fleet.info.mark, 0, sizeof(fleet.info.mark));
	fleet.info.node[0] = '\0';
	publish_identity("");
	publish_root("");
}

static void
submit(FleetState state, Request *op, FleetNode node)
{
	char		path[ZNODE_PATH_SIZE];

	snprintf(path, sizeof(path), "%s%s", fleet.info.root,
			 node == NODE_ROOT ? "" : "/" MEMBER_DIR);
	if (node == NODE_OURS)
		op->node = fleet.info.node;
	if (op->exact)
		op->group = ++fleet.last_group == 0 ?
			++fleet.last_group : fleet.last_group;
	fleet.state = state;
	op->path = path;
	session_submit(fleet.owner, op);
}

static void
read_identity(void)
{
	Request		op = {.kind = REQUEST_GET};

	submit(FLEET_READING, &op, NODE_DIR);
}

static void
get_access(FleetState state, FleetNode node)
{
	Request		op = {.kind = REQUEST_GET_ACL};

	submit(state, &op, node);
}

/* Set an ACL: that of %clusters lets all others read. */
static void
restrict_access(FleetState state, FleetNode node)
{
	Request		op = {
		.kind = REQUEST_SET_ACL,
		.persistent = node == NODE_DIR
	};

	submit(state, &op, node);
}

/* Must ACLs change because our credentials do? */
static bool
credentials_change(void)
{
	return auths_are_several() || fleet.info.dropped;
}

/* The ACLs are set: create our znode. */
static void
enter(void)
{
	Request		op = {
		.kind = REQUEST_CREATE,
		.data = fleet.data,
		.exact = true
	};

	if (fleet.info.dropped)
	{
		fleet.info.dropped = fleet.info.root_set = false;
		session_write_fleet(&fleet.info);
	}
	submit(FLEET_ENTERING, &op, NODE_OURS);
}

/* Our znode is there, with our data. */
static void
set_joined(void)
{
	fleet.joined = true;
	fleet.logged_error = 0;
	fleet.state = FLEET_IDLE;
}

/* ZooKeeper refuses; that affects no lock, except if the chroot is missing. */
static void
give_up(int error)
{
	bool		no_chroot = fleet.state == FLEET_MAKING &&
	session_error_is_no_node(error) && *status_chroot() != '\0';

	fleet.state = FLEET_IDLE;
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

static void
make(int error)
{
	Request		op = {.kind = REQUEST_MKDIRS,.persistent = true};

	if (fleet.made++ == MAX_MADE)
		give_up(error);
	else
		submit(FLEET_MAKING, &op, NODE_DIR);
}

/* The stat of %clusters has been read with its data, or not. */
static void
on_identity(const RequestAnswer *in)
{
	char		id[MEMBER_FLEET_SIZE] = "";

	if (in->result == REQUEST_OK)
		member_fleet(in->czxid, in->ctime, id);
	publish_identity(id);
	if (zklock_acl == ZK_ACL_CREATOR)
		get_access(FLEET_ASKING, NODE_DIR);
	else
		enter();
}

/* The ACL of %clusters has been read, or not. */
static void
on_access(const RequestAnswer *in)
{
	if (in->acl_open || credentials_change())
		restrict_access(FLEET_CLOSING, NODE_DIR);
	else
		enter();
}

/* The ACL of %clusters has been set, or not. */
static void
on_closed(const RequestAnswer *in)
{
	if (in->result == REQUEST_REFUSED && !fleet.open_logged)
		ereport(LOG,
				(errmsg("could not set the ACL of \"%s/%s\" in ZooKeeper: %s",
						fleet.info.root, MEMBER_DIR,
						session_error_text(in->error)),
				 errdetail("It belongs to other credentials than those of this server.")));
	fleet.open_logged = in->result == REQUEST_REFUSED;
	if (credentials_change())
		get_access(FLEET_ROOT_ASKING, NODE_ROOT);
	else
		enter();
}

/*
 * The root's ACL has been read, or set.  An ACL with several owners is an
 * administrator's, unless we have set it before.
 */
static void
on_root(const RequestAnswer *in)
{
	if (fleet.state == FLEET_ROOT_CLOSING ||
		in->acl_open || in->acl_count == 0 ||
		!(fleet.info.root_set || (in->acl_count == 1 && auths_are_several())))
	{
		enter();
		return;
	}
	fleet.info.root_set = true;
	session_write_fleet(&fleet.info);
	restrict_access(FLEET_ROOT_CLOSING, NODE_ROOT);
}

/* Set the data of our znode, which exists, after all acknowledged changes. */
static void
write_member(void)
{
	Request		set = {.kind = REQUEST_SET,.data = fleet.data};

	fleet.unmarked = false;
	fleet.mark_at_ms = zk_now_ms() + status()->timeout / MARKS_PER_TIMEOUT;
	submit(FLEET_WRITING, &set, NODE_OURS);
}

/*
 * Our znode has been written.  Returns false if ZooKeeper was restored from an
 * older copy.
 */
static bool
note_mark(const RequestAnswer *in)
{
	bool		later;

	if (strcmp(fleet.info.mark_id, fleet.info.id) != 0)
		memset(&fleet.info.mark, 0, sizeof(fleet.info.mark));
	strlcpy(fleet.info.mark_id, fleet.info.id, sizeof(fleet.info.mark_id));
	later = member_mark(&fleet.info.mark, in->mzxid, in->czxid, in->version);
	session_write_fleet(&fleet.info);
	return later || ZK_MUTATED(ZK_RESTORE_UNNOTICED);
}

/* The answer to the write; returns as note_mark(). */
static bool
on_written(const RequestAnswer *in)
{
	if (in->result == REQUEST_OK)
	{
		set_joined();
		return note_mark(in);
	}
	if (in->result == REQUEST_NO_NODE && fleet.joined)
	{
		fleet.state = FLEET_IDLE;
		fleet.dirty = fleet.unmarked = true;
	}
	else
		give_up(in->result == REQUEST_NO_NODE ? fleet.error : in->error);
	return true;
}

static void
on_entered(const RequestAnswer *in)
{
	fleet.error = in->error;
	if (in->result == REQUEST_OK)
		set_joined();
	else if (in->result == REQUEST_NO_NODE)
		make(in->error);
	else if (zklock_acl == ZK_ACL_CREATOR)
		restrict_access(FLEET_OWNING, NODE_OURS);
	else
		write_member();
}

/*
 * Handle an answer.  Returns false if it proves that ZooKeeper was restored
 * from an older copy.
 */
static bool
take_answer(const RequestAnswer *in)
{
	if (in->result == REQUEST_UNKNOWN)
	{
		if (fleet.joined)
			fleet.unmarked = true;
		else
			fleet.dirty = true;
		fleet.state = FLEET_IDLE;
		return true;
	}
	switch (fleet.state)
	{
		case FLEET_IDLE:
			break;
		case FLEET_LEAVING:
			fleet.info.root_set = false;
			memset(&fleet.info.mark, 0, sizeof(fleet.info.mark));
			publish_root("");
			fleet.state = FLEET_IDLE;
			fleet.dirty = true;
			break;
		case FLEET_READING:
			if (in->result == REQUEST_NO_NODE)
				make(in->error);
			else
				on_identity(in);
			break;
		case FLEET_MAKING:
			if (in->result == REQUEST_OK)
				read_identity();
			else
				give_up(in->error);
			break;
		case FLEET_ASKING:
			on_access(in);
			break;
		case FLEET_CLOSING:
			on_closed(in);
			break;
		case FLEET_ROOT_ASKING:
		case FLEET_ROOT_CLOSING:
			on_root(in);
			break;
		case FLEET_ENTERING:
			on_entered(in);
			break;
		case FLEET_OWNING:
			write_member();
			break;
		case FLEET_WRITING:
			return on_written(in);
	}
	return true;
}

static void
on_answer(void *data pg_attribute_unused(), const RequestAnswer *in)
{
	if (!take_answer(in))
		fleet.restored();
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
 *		Is everything done, so that our own znode, if possible, is among the
 *		members?
 */
bool
fleet_is_settled(void)
{
	check_promotion();
	return (fleet.state == FLEET_WRITING && fleet.joined) ||
		(fleet.state == FLEET_IDLE && (!fleet.dirty || is_barred()));
}

/* Begin what is to be done, if there is a connection. */
void
fleet_run(void)
{
	Request		op = {.kind = REQUEST_DELETE};
	uint8		uuid[ZNODE_UUID_BYTES];

	wake_set(WAKE_FLEET, 0);
	if (!status_is_connected() || fleet.state != FLEET_IDLE)
		return;
	check_promotion();
	fleet.unmarked |= session_take_changes();
	fleet.unmarked |= member_is_missed();
	if ((!fleet.dirty && !(fleet.unmarked && fleet.joined)) || is_barred())
		return;
	if (!fleet.dirty)
	{
		if (zk_now_ms() >= fleet.mark_at_ms)
			write_member();
		else
			wake_set(WAKE_FLEET, fleet.mark_at_ms);
		return;
	}
	fleet.dirty = fleet.joined = false;
	fleet.made = 0;
	compose(fleet.data);
	if (fleet.info.node[0] == '\0')
	{
		session_make_uuid(uuid);
		member_node(uuid, fleet.info.node);
	}
	if (fleet.info.root[0] != '\0' &&
		strcmp(fleet.info.root, zklock_root) != 0)
	{
		publish_identity("");
		submit(FLEET_LEAVING, &op, NODE_OURS);
		return;
	}
	publish_root(zklock_root);
	read_identity();
}
